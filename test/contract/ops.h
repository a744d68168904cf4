/*
 * Ops on a bare store handle: filled in, and applied. For the tests of one store, which open it by
 * a URL of theirs; the rules, which hold for every store, live in a world (contract.h).
 */
#ifndef IDEM_TEST_OPS_H
#define IDEM_TEST_OPS_H

#include "contract.h"

/* Opens; must work. The clock is the host's or the server's. */
struct idem_store *store_open(const char *url);

/* Makes, changes or (version 0) removes the tables of a store that has some. */
void migrated(const char *url, int version, int from, int to); /* must go from, to */
void migration_refused(const char *url, int version, int wanted, const char *words);

/*
 * What op_claim() claims for: LEASE, unless a test says otherwise because no lease of its may end
 * while it does things to a server, whose clock goes on.
 */
extern int64_t op_lease_us;

/* Ops that are filled in, and nothing else; what applying gives them is the caller's to deinit. */
void op_blank(struct idem_op *op, enum idem_op_kind kind, const char *key);
void op_claim(struct idem_op *op, const char *key, const char *owner);
void op_verdict(struct idem_op *op, enum idem_op_kind kind, const char *key, const char *owner,
                struct idem_bytes body); /* only a complete has a body */
void op_renew(struct idem_op *op, const char *key, const char *owner, int64_t lease_us);
void op_get(struct idem_op *op, const char *key);
void op_forget(struct idem_op *op, const char *key, bool force);

/* What an op was given before is released first. The error is the caller's; for the message NULL
 * is fine. */
int apply(struct idem_store *store, struct idem_op *op, struct idem_message *ret_message);
int apply_batch(struct idem_store *store, struct idem_op *ops, size_t count,
                struct idem_message *ret_message);

/* These must work. */
enum idem_result applied(struct idem_store *store, struct idem_op *op);
enum idem_result claimed(struct idem_store *store, const char *key, const char *owner);
enum idem_result completed(struct idem_store *store, const char *key, const char *owner,
                           const char *body);
enum idem_result got(struct idem_store *store, const char *key);

/* This must fail with the error, and find nothing; the sentence, valid until the next call. */
const char *apply_fails(struct idem_store *store, struct idem_op *op, int wanted_error);
const char *claim_fails(struct idem_store *store, const char *key, int wanted_error);

#define wanted(got, result) \
    assert_string_equal(idem_result_text(got), idem_result_text(IDEM_RESULT_##result))

#endif
