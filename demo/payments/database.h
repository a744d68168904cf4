/*
 * Database: the SQLite file that holds payments, their moves, and the ledger.
 *
 * WAL with synchronous=FULL: a payment that was answered is on disk. Foreign keys are on, and the
 * schema itself refuses what the code must never write (a fractional amount, half a merchant
 * order). One connection, used from one thread.
 */
#ifndef PAYMENTS_DATABASE_H
#define PAYMENTS_DATABASE_H

#include <idem/error.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

struct database;

/* Every statement of the service, prepared once. Their text and parameters stand in database.c. */
enum database_statement {
    STATEMENT_BEGIN,
    STATEMENT_COMMIT,
    STATEMENT_ROLLBACK,
    STATEMENT_PAYMENT_INSERT,
    STATEMENT_PAYMENT_BY_KEY,
    STATEMENT_PAYMENT_BY_NUMBER,
    STATEMENT_PAYMENT_MOVE,
    STATEMENT_MOVE_INSERT,
    STATEMENT_ACCOUNT_OPEN,
    STATEMENT_ACCOUNT_ADD,
    STATEMENT_ENTRY_INSERT,
    STATEMENT_COUNT
};

/*
 * Opens the file, or makes it with its schema. IDEM_ERR_UNAVAILABLE, _CORRUPT (also: the file is
 * some other application's), _IO, _NOMEM, with a sentence in *message.
 */
IDEM_MUST_CHECK int database_open(const char *path, struct database **ret_database,
                                  struct idem_message *message);
void database_close(struct database *database);

/*
 * The statement, reset and without bindings, ready to be bound and stepped. Owned by the database.
 * Parameters are bound by name with the functions below.
 */
sqlite3_stmt *database_statement(struct database *database, enum database_statement which);

/* Binds ?NAME; views must outlive the next step. A NULL `data` binds NULL. */
void database_bind_text(sqlite3_stmt *statement, const char *name, const char *text);
void database_bind_blob(sqlite3_stmt *statement, const char *name, const void *data, size_t size);
void database_bind_int64(sqlite3_stmt *statement, const char *name, int64_t value);

/*
 * Steps once. 0: no (more) rows. DATABASE_ROW: a row is there. Negative: it failed; the statement
 * was reset and the transaction is still open.
 */
#define DATABASE_ROW 1
IDEM_MUST_CHECK int database_step(struct database *database, sqlite3_stmt *statement);

/* Steps a statement that yields no rows. *ret_changes, if wanted, is how many rows it changed. */
IDEM_MUST_CHECK int database_run(struct database *database, sqlite3_stmt *statement,
                                 int *ret_changes);

/* The rowid of the last insert. */
int64_t database_last_id(struct database *database);

/*
 * One transaction. It takes the write lock at once, so that what it reads stays true until it ends.
 * database_commit: DATABASE_UNSURE when the system failed while the log was being flushed: whether
 * the transaction survives a crash is then not known. Any other failure means it did not happen.
 */
#define DATABASE_UNSURE 1
IDEM_MUST_CHECK int database_begin(struct database *database);
IDEM_MUST_CHECK int database_commit(struct database *database);
void database_rollback(struct database *database);

#endif
