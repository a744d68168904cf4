/* What the tests of the PostgreSQL store alone have in common: a store each, and SQL beside it. */
#ifndef IDEM_TEST_POSTGRES_SUPPORT_H
#define IDEM_TEST_POSTGRES_SUPPORT_H

#include <libpq-fe.h>

#include "../contract.h"

#define URL_SIZE 600

/* The server of IDEM_TEST_POSTGRES, with a schema that no other test has. */
const char *schema_name(void); /* a new one with each call; valid until 8 calls later */
void url_make(const char *schema, const char *options, char ret_url[URL_SIZE]);
void url_make_for(const char *user, const char *schema, const char *options,
                  char ret_url[URL_SIZE]);

/* Runs SQL as a user who may do everything; must work. The last row's first cell as a number. */
int64_t sql(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A connection as some user; what it says last of statements that may fail: the SQLSTATE. */
PGconn *sql_connect(const char *user);
const char *sql_state(PGconn *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Migrates and opens; must work. The clock is the server's. */
struct idem_store *store_make(const char *url);
struct idem_store *store_open(const char *url);
void migrated(const char *url, int version, int from, int to);
void migration_refused(const char *url, int version, int wanted, const char *words);

/* Ops that are filled in and applied to any store; the caller deinits the op. */
void op_claim(struct idem_op *op, const char *key, const char *owner);
void op_verdict(struct idem_op *op, enum idem_op_kind kind, const char *key, const char *owner,
                struct idem_bytes body);
void op_get(struct idem_op *op, const char *key);
int apply(struct idem_store *store, struct idem_op *op); /* the error is the caller's */
enum idem_result applied(struct idem_store *store, struct idem_op *op); /* must work */
enum idem_result claimed(struct idem_store *store, const char *key, const char *owner);
enum idem_result completed(struct idem_store *store, const char *key, const char *owner,
                           const char *body);

extern struct idem_message told; /* what apply() was told when it failed */

/* "stop", "cont", "restart" … of the server; see test/servers/control.py. */
void control(const char *verb);
int64_t steady_us(void);

/* How many client connections wait for a lock, or for a standby; for tests that wait for that. */
int64_t waiting_for(const char *what);

#endif
