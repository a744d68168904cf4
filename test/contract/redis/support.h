/* What the tests of the Redis store alone have in common: a store each, and commands beside it. */
#ifndef IDEM_TEST_REDIS_SUPPORT_H
#define IDEM_TEST_REDIS_SUPPORT_H

#include <hiredis.h>

#include "../contract.h"

#define URL_SIZE 512

/* The URL in an environment variable with a prefix that no other test has; options begin with a
 * '?' or are empty. */
void url_make(const char *variable, const char *options, char ret_url[URL_SIZE]);
const char *prefix_of(const char *url); /* without a ':'; valid until the next call */

/* The port of a server of test/servers/with: "redis", "sentinel-master", "cluster-1" … */
int port_of(const char *server);

/* One command over a connection of its own; the caller frees the reply, which may be an error. */
redisReply *ask(int port, const char *format, ...);
/* The same, must not be an error; an integer reply, or the number in a text. */
long long told(int port, const char *format, ...);
/* The value of a setting in INFO or CONFIG GET; valid until the next call. */
const char *info_of(int port, const char *section, const char *name);

/* Opens; must work. */
struct idem_store *store_open(const char *url);
void unsafe(const char *url, const char *words); /* must be refused as unsafe, with these words */

/* Ops that are filled in and applied to any store; the caller deinits the op. */
void op_claim(struct idem_op *op, const char *key, const char *owner);
void op_verdict(struct idem_op *op, enum idem_op_kind kind, const char *key, const char *owner,
                const char *body);
void op_forget(struct idem_op *op, const char *key, bool force);
int apply(struct idem_store *store, struct idem_op *op, struct idem_message *ret_message);
enum idem_result applied(struct idem_store *store, struct idem_op *op); /* must work */
enum idem_result claimed(struct idem_store *store, const char *key, const char *owner);
enum idem_result completed(struct idem_store *store, const char *key, const char *owner,
                           const char *body);
enum idem_result got(struct idem_store *store, const char *key);

/* The key in Redis that a record of that name has. */
const char *record_key(const char *url, const char *key); /* valid until the next call */

/* "stop", "cont", "restart" … of a server; see test/servers/control.py. */
void control(const char *verb, const char *server);
int64_t steady_us(void);

/* Listens on a free port of this host. */
int listener_open(int *ret_port);

/* Polls until the condition holds; fails the test, naming it, after a minute. */
void await(bool (*holds)(void *context), void *context, const char *what);

#define wanted(got, result) \
    assert_string_equal(idem_result_text(got), idem_result_text(IDEM_RESULT_##result))

#endif
