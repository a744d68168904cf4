/* What the tests of the MariaDB store alone have in common: a store each, and SQL beside it. */
#ifndef IDEM_TEST_MARIADB_SUPPORT_H
#define IDEM_TEST_MARIADB_SUPPORT_H

#include "../ops.h"
#include "../servers.h"

#define URL_SIZE 512

/* The server of IDEM_TEST_MARIADB, and a database on it that no other test has. */
void url_make(const char *database, const char *options, char ret_url[URL_SIZE]);
void url_make_for(const char *user, const char *password, const char *database, const char *options,
                  char ret_url[URL_SIZE]);
void url_make_through(int port, const char *database, char ret_url[URL_SIZE]);
int server_port(void);
const char *database_name(void); /* a new one with each call; valid until 8 calls later */

/* Runs SQL as a user who may do everything, in a database if it is not NULL; must work. */
void sql(const char *database, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t sql_number(const char *database, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends all of idem's connections to the database, as an administrator may; how many there were. */
int64_t sql_kill(const char *database);

/* A connection that holds what its statements lock, until they are rolled back or committed. */
void *sql_hold(const char *database, const char *statements);
void sql_more(void *held, const char *statements);
void sql_release(void *held);
void sql_commit(void *held);

/* Migrates and opens; must work. The clock is the server's. */
struct idem_store *store_make(const char *url);

/* On a database of its own, with a clock or NULL. Not `returning`: as if INSERT had no RETURNING.
 */
struct idem_store *store_make_form(const char *url, const struct idem_clock *clock, bool returning);
bool server_has_returning(void);

#endif
