#include "ops.h"

#include <string.h>

int64_t op_lease_us = LEASE;

struct idem_store *store_open(const char *url)
{
    struct idem_message message = {""};
    struct idem_store *store = NULL;

    if (idem_store_open(url, NULL, &store, &message))
        fail_msg("%s: %s", url, message.text);
    return store;
}

void migrated(const char *url, int version, int from, int to)
{
    struct idem_message message = {""};
    struct idem_migration migration = {.from = -1, .to = -1};

    if (idem_store_migrate(url, version, &migration, &message))
        fail_msg("%s: %s", url, message.text);
    assert_int_equal(migration.from, from);
    assert_int_equal(migration.to, to);
}

void migration_refused(const char *url, int version, int wanted, const char *words)
{
    struct idem_message message = {""};
    struct idem_migration migration;
    int error = idem_store_migrate(url, version, &migration, &message);

    if (error != wanted || !strstr(message.text, words))
        fail_msg("%d \"%s\" instead of %d \"%s\"", error, message.text, wanted, words);
}

void op_blank(struct idem_op *op, enum idem_op_kind kind, const char *key)
{
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->id = id_of(key);
}

void op_claim(struct idem_op *op, const char *key, const char *owner)
{
    struct idem_claim *in = &op->in.claim;

    op_blank(op, IDEM_OP_CLAIM, key);
    in->kind = IDEM_KIND_HTTP;
    in->scope = text("scope");
    in->key = text(key);
    in->method = text("POST");
    in->path = text("/charges");
    in->fingerprint = payload_of("payload");
    in->principal = caller_of("alice");
    in->owner = owner_of(owner);
    in->lease_us = op_lease_us;
    in->unknown_ttl_us = UNKNOWN_TTL;
    in->ttl_us = TTL;
}

void op_verdict(struct idem_op *op, enum idem_op_kind kind, const char *key, const char *owner,
                struct idem_bytes body)
{
    struct idem_verdict *in = &op->in.verdict;

    op_blank(op, kind, key);
    in->owner = owner_of(owner);
    in->ttl_us = TTL;
    in->lease_us = LEASE;
    if (kind == IDEM_OP_COMPLETE)
        in->answer = (struct idem_answer){.status = 201, .body = body};
}

void op_renew(struct idem_op *op, const char *key, const char *owner, int64_t lease_us)
{
    op_blank(op, IDEM_OP_RENEW, key);
    op->in.renew = (struct idem_renew){owner_of(owner), lease_us, UNKNOWN_TTL};
}

void op_get(struct idem_op *op, const char *key)
{
    op_blank(op, IDEM_OP_GET, key);
}

void op_forget(struct idem_op *op, const char *key, bool force)
{
    op_blank(op, IDEM_OP_FORGET, key);
    op->in.forget.who = text("dana");
    op->in.forget.why = text("a test");
    op->in.forget.force = force;
}

int apply_batch(struct idem_store *store, struct idem_op *ops, size_t count,
                struct idem_message *ret_message)
{
    struct idem_op *list[IDEM_BATCH_MAX];

    assert_in_range(count, 1, IDEM_BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        idem_op_deinit(&ops[i]);
        list[i] = &ops[i];
    }
    return idem_store_apply(store, list, count, ret_message);
}

int apply(struct idem_store *store, struct idem_op *op, struct idem_message *ret_message)
{
    return apply_batch(store, op, 1, ret_message);
}

enum idem_result applied(struct idem_store *store, struct idem_op *op)
{
    struct idem_message message = {""};

    if (apply(store, op, &message))
        fail_msg("%s: %s", idem_op_kind_text(op->kind), message.text);
    return op->result;
}

/* Applies it, and keeps nothing of it but the result. */
static enum idem_result result_of(struct idem_store *store, struct idem_op *op)
{
    enum idem_result result = applied(store, op);

    idem_op_deinit(op);
    return result;
}

enum idem_result claimed(struct idem_store *store, const char *key, const char *owner)
{
    struct idem_op op;

    op_claim(&op, key, owner);
    return result_of(store, &op);
}

enum idem_result completed(struct idem_store *store, const char *key, const char *owner,
                           const char *body)
{
    struct idem_op op;

    op_verdict(&op, IDEM_OP_COMPLETE, key, owner, text(body));
    return result_of(store, &op);
}

enum idem_result got(struct idem_store *store, const char *key)
{
    struct idem_op op;

    op_get(&op, key);
    return result_of(store, &op);
}

const char *apply_fails(struct idem_store *store, struct idem_op *op, int wanted_error)
{
    static struct idem_message message;
    int error;

    message.text[0] = '\0';
    error = apply(store, op, &message);
    if (error != wanted_error)
        fail_msg("%s: %d (%s) instead of %d", idem_op_kind_text(op->kind), error, message.text,
                 wanted_error);
    wanted(op->result, NONE);
    return message.text;
}

const char *claim_fails(struct idem_store *store, const char *key, int wanted_error)
{
    struct idem_op op;

    op_claim(&op, key, "A");
    return apply_fails(store, &op, wanted_error);
}
