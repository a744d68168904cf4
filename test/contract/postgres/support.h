/* What the tests of the PostgreSQL store alone have in common: a store each, and SQL beside it. */
#ifndef IDEM_TEST_POSTGRES_SUPPORT_H
#define IDEM_TEST_POSTGRES_SUPPORT_H

#include <libpq-fe.h>

#include "../ops.h"
#include "../servers.h"

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

/* How many client connections wait for a lock, or for a standby; for tests that wait for that. */
int64_t waiting_for(const char *what);

#endif
