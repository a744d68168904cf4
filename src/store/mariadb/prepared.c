/*
 * Statements that the server has read before. To read one takes it as long as to do what it says,
 * so that of a lone op is prepared once a connection: after that only its number and its values are
 * sent. Which it is, is told by its text, with a question mark for each value.
 *
 * A connection keeps the latest few. One whose server, or what is in between, does not know of
 * prepared statements goes without.
 */
#include <assert.h>
#include <mysqld_error.h>

#include "base/memory.h"
#include "store/mariadb/mariadb_store.h"

void idem_mariadb_value_bytes(struct idem_mariadb_values *values, struct idem_bytes bytes)
{
    MYSQL_BIND *bind = &values->binds[values->count];

    assert(values->count < IDEM_MARIADB_VALUES_MAX);
    values->sizes[values->count] = bytes.size;
    *bind = (MYSQL_BIND){
        .buffer_type = MYSQL_TYPE_BLOB,
        /* The library only reads it, and takes NULL for the value. */
        .buffer = bytes.size > 0 ? (void *)bytes.data : "",
        .buffer_length = bytes.size,
        .length = &values->sizes[values->count],
    };
    values->count++;
}

void idem_mariadb_value_number(struct idem_mariadb_values *values, uint64_t number)
{
    MYSQL_BIND *bind = &values->binds[values->count];

    assert(values->count < IDEM_MARIADB_VALUES_MAX);
    values->numbers[values->count] = number;
    *bind = (MYSQL_BIND){
        .buffer_type = MYSQL_TYPE_LONGLONG,
        .buffer = &values->numbers[values->count],
        .is_unsigned = number > INT64_MAX,
    };
    values->count++;
}

static void prepared_free(struct idem_mariadb_prepared *prepared)
{
    idem_free(prepared->text);
    memset(prepared, 0, sizeof *prepared);
}

/* Which tells the server. A connection that does not take that within the time is closed. */
static void prepared_close(struct idem_mariadb_link *link, struct idem_mariadb_prepared *prepared)
{
    my_bool failed;
    int status;

    if (prepared->statement) {
        status = mysql_stmt_close_start(&failed, prepared->statement);
        while (status)
            status = mysql_stmt_close_cont(&failed, prepared->statement,
                                           idem_mariadb_wait(link, status));
    }
    prepared_free(prepared);
    if (link->timed_out)
        idem_mariadb_disconnect(link);
}

void idem_mariadb_prepared_forget(struct idem_mariadb_link *link)
{
    for (size_t i = 0; i < IDEM_MARIADB_PREPARED_MAX; i++) {
        if (link->prepared[i].statement)
            (void)mysql_stmt_close(link->prepared[i].statement);
        prepared_free(&link->prepared[i]);
    }
    link->unprepared = false;
}

/* These mean that it is not for this connection. */
static bool is_unprepared(unsigned code)
{
    return code == ER_UNSUPPORTED_PS || code == ER_MAX_PREPARED_STMT_COUNT_REACHED ||
           code == ER_UNKNOWN_COM_ERROR || code == ER_UNKNOWN_STMT_HANDLER;
}

static int not_taken(struct idem_mariadb_link *link, const char *words, unsigned code)
{
    return idem_mariadb_fault(link, IDEM_MARIADB_AGAIN,
                              "the MariaDB server did not take a prepared statement: %s (%u)",
                              words, code);
}

/* Whatever it was, the next time it is prepared anew. */
static int statement_failed(struct idem_mariadb_link *link, struct idem_mariadb_prepared *prepared)
{
    unsigned code = mysql_stmt_errno(prepared->statement);
    const char *words = mysql_stmt_error(prepared->statement);
    int error;

    link->unprepared |= is_unprepared(code);
    if (is_unprepared(code) || code == ER_NEED_REPREPARE)
        error = not_taken(link, words, code);
    else
        error = idem_mariadb_failure(link, code, words);
    if (link->mysql)
        prepared_close(link, prepared);
    return error;
}

/* Nothing has been executed: what this way cannot be said is said as text. A proxy that knows of no
 * prepared statements may say so in any words; if it was something else, that is told once more. */
static int prepare_failed(struct idem_mariadb_link *link, struct idem_mariadb_prepared *prepared)
{
    int error = statement_failed(link, prepared);

    if (error != IDEM_ERR_IO)
        return error;
    link->unprepared = true;
    return IDEM_MARIADB_AGAIN;
}

static bool statement_prepare(struct idem_mariadb_link *link, MYSQL_STMT *statement,
                              const struct idem_mariadb_text *text)
{
    int failed = 0;
    int status = mysql_stmt_prepare_start(&failed, statement, text->data, text->size);

    while (status)
        status = mysql_stmt_prepare_cont(&failed, statement, idem_mariadb_wait(link, status));
    return !failed;
}

static bool statement_execute(struct idem_mariadb_link *link, MYSQL_STMT *statement)
{
    int failed = 0;
    int status = mysql_stmt_execute_start(&failed, statement);

    while (status)
        status = mysql_stmt_execute_cont(&failed, statement, idem_mariadb_wait(link, status));
    return !failed;
}

static bool statement_store(struct idem_mariadb_link *link, MYSQL_STMT *statement)
{
    int failed = 0;
    int status = mysql_stmt_store_result_start(&failed, statement);

    while (status)
        status = mysql_stmt_store_result_cont(&failed, statement, idem_mariadb_wait(link, status));
    return !failed;
}

static int no_connection(struct idem_mariadb_link *link)
{
    return idem_mariadb_fault(link, IDEM_MARIADB_LOST, "there is no connection");
}

/* Rows are on their way that there is no place for, and whether it was executed is not known. */
static int answered_otherwise(struct idem_mariadb_link *link)
{
    idem_mariadb_disconnect(link);
    return idem_mariadb_fault(link, IDEM_ERR_UNAVAILABLE,
                              "the MariaDB server, or what is in between, answers a prepared "
                              "statement with other columns than it has");
}

static int no_memory(struct idem_mariadb_link *link)
{
    return idem_mariadb_fault(link, IDEM_ERR_NOMEM, "there is no memory left for a statement");
}

/* In the place of the one that was prepared longest ago. */
static int prepared_make(struct idem_mariadb_link *link, const struct idem_mariadb_text *text,
                         struct idem_mariadb_prepared **ret_prepared)
{
    struct idem_mariadb_prepared *prepared = &link->prepared[link->prepared_next];

    prepared_close(link, prepared);
    if (!link->mysql)
        return no_connection(link);
    prepared->text = idem_malloc(text->size);
    prepared->statement = prepared->text ? mysql_stmt_init(link->mysql) : NULL;
    if (!prepared->statement) {
        prepared_free(prepared);
        return no_memory(link);
    }
    if (!statement_prepare(link, prepared->statement, text))
        return prepare_failed(link, prepared);
    if (mysql_stmt_param_count(prepared->statement) != text->values->count) {
        prepared_close(link, prepared);
        link->unprepared = true;
        return not_taken(link, "it has another number of values", 0);
    }
    memcpy(prepared->text, text->data, text->size);
    prepared->size = text->size;
    link->prepared_next = (link->prepared_next + 1) % IDEM_MARIADB_PREPARED_MAX;
    *ret_prepared = prepared;
    return IDEM_OK;
}

static int prepared_need(struct idem_mariadb_link *link, const struct idem_mariadb_text *text,
                         struct idem_mariadb_prepared **ret_prepared)
{
    for (size_t i = 0; i < IDEM_MARIADB_PREPARED_MAX; i++) {
        struct idem_mariadb_prepared *prepared = &link->prepared[i];

        if (prepared->statement && prepared->size == text->size &&
            memcmp(prepared->text, text->data, text->size) == 0) {
            *ret_prepared = prepared;
            return IDEM_OK;
        }
    }
    return prepared_make(link, text, ret_prepared);
}

/* The first column of the one row that there may be; false when it could not be read. */
static bool row_tell(struct idem_mariadb_link *link, MYSQL_STMT *statement,
                     struct idem_mariadb_told *ret_told)
{
    double ignored = 0;
    MYSQL_BIND columns[IDEM_MARIADB_TOLD_COLUMNS] = {
        {.buffer_type = MYSQL_TYPE_LONGLONG, .buffer = &ret_told->number},
        {.buffer_type = MYSQL_TYPE_DOUBLE, .buffer = &ignored},
    };

    if (mysql_stmt_bind_result(statement, columns) || !statement_store(link, statement))
        return false;
    ret_told->count = mysql_stmt_num_rows(statement);
    if (ret_told->count > 0 && mysql_stmt_fetch(statement) == 1)
        return false;
    (void)mysql_stmt_free_result(statement); /* all of it is here: the server is not asked */
    return true;
}

int idem_mariadb_execute(struct idem_mariadb_link *link, const struct idem_mariadb_text *text,
                         struct idem_mariadb_told *ret_told)
{
    struct idem_mariadb_told told = {.count = 0};
    struct idem_mariadb_prepared *prepared = NULL;
    int error;

    if (text->failed)
        return no_memory(link);
    if (!link->mysql)
        return no_connection(link);
    error = prepared_need(link, text, &prepared);
    if (error)
        return error;
    if (mysql_stmt_bind_param(prepared->statement, text->values->binds) ||
        !statement_execute(link, prepared->statement))
        return statement_failed(link, prepared);
    if (mysql_field_count(link->mysql) != text->values->columns ||
        mysql_stmt_field_count(prepared->statement) != text->values->columns)
        return answered_otherwise(link);
    if (text->values->columns > 0) {
        if (!row_tell(link, prepared->statement, &told))
            return statement_failed(link, prepared);
    } else {
        told.count = mysql_stmt_affected_rows(prepared->statement);
        told.number = (int64_t)mysql_stmt_insert_id(prepared->statement);
    }
    *ret_told = told;
    return IDEM_OK;
}
