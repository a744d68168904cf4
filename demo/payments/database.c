#include "database.h"

#include <assert.h>
#include <stdio.h>

#include "base/memory.h"

/* "idem" as a number: marks the file as ours, so that no other application's is written to. */
#define APPLICATION_ID 0x6964656d
#define SCHEMA_VERSION 1

#define BUSY_MS_MAX 2000 /* how long another process, say the sqlite3 shell, may hold the lock */

#define NUMBER(digits) #digits
#define TEXT(digits)   NUMBER(digits)

struct database {
    sqlite3 *handle;
    sqlite3_stmt *statements[STATEMENT_COUNT];
};

static const char schema[] =
    "CREATE TABLE payment ("
    "  id INTEGER PRIMARY KEY,"
    "  payment_no TEXT NOT NULL UNIQUE,"
    "  idempotency_key BLOB UNIQUE,"
    "  order_id TEXT NOT NULL,"
    "  merchant_id TEXT,"
    "  merchant_order_no TEXT,"
    "  amount_minor INTEGER NOT NULL CHECK (typeof(amount_minor) = 'integer' AND amount_minor > 0),"
    "  currency TEXT NOT NULL CHECK (length(currency) = 3),"
    "  status TEXT NOT NULL"
    "    CHECK (status IN ('pending', 'paying', 'success', 'failed', 'refunded', 'closed')),"
    "  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),"
    "  updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),"
    "  CHECK ((merchant_id IS NULL) = (merchant_order_no IS NULL)),"
    "  CONSTRAINT uk_merchant_order UNIQUE (merchant_id, merchant_order_no));"

    "CREATE TABLE payment_move ("
    "  id INTEGER PRIMARY KEY,"
    "  payment_id INTEGER NOT NULL REFERENCES payment (id),"
    "  from_status TEXT NOT NULL,"
    "  to_status TEXT NOT NULL,"
    "  moved_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')));"
    "CREATE INDEX payment_move_payment ON payment_move (payment_id);"

    /* SQLite turns an integer that overflows into a float: the check turns that into an error. */
    "CREATE TABLE account ("
    "  name TEXT PRIMARY KEY,"
    "  currency TEXT NOT NULL,"
    "  balance_minor INTEGER NOT NULL DEFAULT 0 CHECK (typeof(balance_minor) = 'integer'));"

    /* One booking of a kind a payment and account: a second debit is refused by the database. */
    "CREATE TABLE ledger_entry ("
    "  id INTEGER PRIMARY KEY,"
    "  payment_id INTEGER NOT NULL REFERENCES payment (id),"
    "  account TEXT NOT NULL REFERENCES account (name),"
    "  booking TEXT NOT NULL CHECK (booking IN ('payment', 'refund')),"
    "  amount_minor INTEGER NOT NULL"
    "    CHECK (typeof(amount_minor) = 'integer' AND amount_minor <> 0),"
    "  balance_after_minor INTEGER NOT NULL,"
    "  booked_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),"
    "  UNIQUE (payment_id, account, booking));"

    "PRAGMA application_id = " TEXT(APPLICATION_ID) ";"
                                                    "PRAGMA user_version = " TEXT(
                                                        SCHEMA_VERSION) ";";

#define PAYMENT_COLUMNS                                                                         \
    "id, payment_no, order_id, merchant_id, merchant_order_no, amount_minor, currency, status," \
    " created_at, updated_at "

static const char *const texts[STATEMENT_COUNT] = {
    [STATEMENT_BEGIN] = "BEGIN IMMEDIATE",
    [STATEMENT_COMMIT] = "COMMIT",
    [STATEMENT_ROLLBACK] = "ROLLBACK",
    [STATEMENT_PAYMENT_INSERT] =
        "INSERT INTO payment (payment_no, idempotency_key, order_id, merchant_id,"
        " merchant_order_no, amount_minor, currency, status)"
        " VALUES (:payment_no, :key, :order_id, :merchant_id, :merchant_order_no, :amount,"
        " :currency, 'pending') ON CONFLICT DO NOTHING",
    [STATEMENT_PAYMENT_BY_KEY] =
        "SELECT " PAYMENT_COLUMNS "FROM payment WHERE idempotency_key = :key",
    [STATEMENT_PAYMENT_BY_NUMBER] =
        "SELECT " PAYMENT_COLUMNS "FROM payment WHERE payment_no = :payment_no",
    [STATEMENT_PAYMENT_MOVE] =
        "UPDATE payment SET status = :to, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
        " WHERE id = :id AND status = :from",
    [STATEMENT_MOVE_INSERT] =
        "INSERT INTO payment_move (payment_id, from_status, to_status) VALUES (:id, :from, :to)",
    [STATEMENT_ACCOUNT_OPEN] =
        "INSERT INTO account (name, currency) VALUES (:name, :currency) ON CONFLICT DO NOTHING",
    [STATEMENT_ACCOUNT_ADD] = "UPDATE account SET balance_minor = balance_minor + :amount"
                              " WHERE name = :name AND currency = :currency",
    [STATEMENT_ENTRY_INSERT] =
        "INSERT INTO ledger_entry (payment_id, account, booking, amount_minor, balance_after_minor)"
        " SELECT :id, name, :booking, :amount, balance_minor FROM account WHERE name = :name",
};

static int error_from_sqlite(int code)
{
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CANTOPEN:
        return IDEM_ERR_UNAVAILABLE;
    case SQLITE_NOMEM:
        return IDEM_ERR_NOMEM;
    case SQLITE_FULL:
        return IDEM_ERR_FULL;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return IDEM_ERR_CORRUPT;
    default:
        return IDEM_ERR_IO;
    }
}

static int pragma_read(sqlite3 *handle, const char *text, int *ret_value)
{
    sqlite3_stmt *statement;
    int code = sqlite3_prepare_v2(handle, text, -1, &statement, NULL);

    if (code != SQLITE_OK)
        return code;
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        *ret_value = sqlite3_column_int(statement, 0);
        code = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return code;
}

/* Makes the schema in an empty file; refuses a file that is another application's or version's. */
static int schema_ensure(sqlite3 *handle, struct idem_message *message)
{
    int application = 0, version = 0, objects = 0, code;

    code = sqlite3_exec(handle, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = pragma_read(handle, "PRAGMA application_id", &application);
    if (code == SQLITE_OK)
        code = pragma_read(handle, "PRAGMA user_version", &version);
    if (code == SQLITE_OK)
        code = pragma_read(handle, "SELECT count(*) FROM sqlite_master", &objects);
    if (code != SQLITE_OK)
        return code;
    if (objects > 0 && (application != APPLICATION_ID || version != SCHEMA_VERSION)) {
        idem_message_set(message, "it is not a payments database of version %d; name another file",
                         SCHEMA_VERSION);
        return SQLITE_NOTADB;
    }
    if (objects == 0)
        code = sqlite3_exec(handle, schema, NULL, NULL, NULL);
    return code == SQLITE_OK ? sqlite3_exec(handle, "COMMIT", NULL, NULL, NULL) : code;
}

static int database_setup(struct database *database, const char *path, struct idem_message *message)
{
    int code =
        sqlite3_open_v2(path, &database->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(database->handle, BUSY_MS_MAX);
    if (code == SQLITE_OK)
        code = sqlite3_exec(database->handle,
                            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                            "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;",
                            NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = schema_ensure(database->handle, message);
    for (int i = 0; code == SQLITE_OK && i < STATEMENT_COUNT; i++)
        code = sqlite3_prepare_v3(database->handle, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                  &database->statements[i], NULL);
    return code;
}

int database_open(const char *path, struct database **ret_database, struct idem_message *message)
{
    struct idem_message why = {""};
    struct database *database = idem_calloc(1, sizeof(*database));
    int code;

    if (!database)
        return IDEM_ERR_NOMEM;
    code = database_setup(database, path, &why);
    if (code == SQLITE_OK) {
        *ret_database = database;
        return 0;
    }
    idem_message_set(message, "cannot open the database %s: %s", path,
                     why.text[0]        ? why.text
                     : database->handle ? sqlite3_errmsg(database->handle)
                                        : sqlite3_errstr(code));
    database_close(database);
    return error_from_sqlite(code);
}

void database_close(struct database *database)
{
    if (!database)
        return;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(database->statements[i]);
    sqlite3_close(database->handle);
    idem_free(database);
}

sqlite3_stmt *database_statement(struct database *database, enum database_statement which)
{
    sqlite3_stmt *statement = database->statements[which];

    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return statement;
}

/* A name that the statement does not have is a mistake in this program, not in its input. */
static int parameter_index(sqlite3_stmt *statement, const char *name)
{
    int index = sqlite3_bind_parameter_index(statement, name);

    assert(index > 0);
    return index;
}

/* Static binds copy nothing and so cannot fail for a parameter that exists. */
void database_bind_text(sqlite3_stmt *statement, const char *name, const char *text)
{
    sqlite3_bind_text(statement, parameter_index(statement, name), text, -1, SQLITE_STATIC);
}

void database_bind_blob(sqlite3_stmt *statement, const char *name, const void *data, size_t size)
{
    sqlite3_bind_blob64(statement, parameter_index(statement, name), data, size, SQLITE_STATIC);
}

void database_bind_int64(sqlite3_stmt *statement, const char *name, int64_t value)
{
    sqlite3_bind_int64(statement, parameter_index(statement, name), value);
}

int database_step(struct database *database, sqlite3_stmt *statement)
{
    int code = sqlite3_step(statement);

    if (code == SQLITE_ROW)
        return DATABASE_ROW;
    sqlite3_reset(statement);
    if (code == SQLITE_DONE)
        return 0;
    fprintf(stderr, "payments: %s: %s\n", sqlite3_sql(statement), sqlite3_errmsg(database->handle));
    return error_from_sqlite(code);
}

int database_run(struct database *database, sqlite3_stmt *statement, int *ret_changes)
{
    int error = database_step(database, statement);

    assert(error != DATABASE_ROW);
    if (error == 0 && ret_changes)
        *ret_changes = sqlite3_changes(database->handle);
    return error;
}

int64_t database_last_id(struct database *database)
{
    return sqlite3_last_insert_rowid(database->handle);
}

int database_begin(struct database *database)
{
    return database_run(database, database_statement(database, STATEMENT_BEGIN), NULL);
}

int database_commit(struct database *database)
{
    int error = database_run(database, database_statement(database, STATEMENT_COMMIT), NULL);

    if (error == 0)
        return 0;
    database_rollback(database);
    return error == IDEM_ERR_IO ? DATABASE_UNSURE : error;
}

/* A failure may have rolled the transaction back already, which is as good. */
void database_rollback(struct database *database)
{
    if (sqlite3_get_autocommit(database->handle))
        return;
    if (database_run(database, database_statement(database, STATEMENT_ROLLBACK), NULL) != 0)
        fprintf(stderr, "payments: the transaction could not be rolled back\n");
}
