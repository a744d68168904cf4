#include "payments.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>

#include "ledger.h"

#define PAYMENT_NO_RANDOM 12 /* bytes: nobody guesses a number, and none comes twice */

static int text_column(sqlite3_stmt *row, int column, char *ret_text, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    int length = snprintf(ret_text, size, "%s", text ? text : "");

    return length >= 0 && (size_t)length < size ? 0 : IDEM_ERR_CORRUPT;
}

/* Reads a row of PAYMENT_COLUMNS. What the schema cannot hold is damage, not a payment. */
static int payment_read(sqlite3_stmt *row, struct payment *ret_payment)
{
    struct payment payment = {.id = sqlite3_column_int64(row, 0)};
    struct payment_order *order = &payment.order;
    char currency[sizeof(order->currency.code)], status[16];

    order->amount_minor = sqlite3_column_int64(row, 5);
    if (text_column(row, 1, payment.payment_no, sizeof(payment.payment_no)) ||
        text_column(row, 2, order->order_id, sizeof(order->order_id)) ||
        text_column(row, 3, order->merchant_id, sizeof(order->merchant_id)) ||
        text_column(row, 4, order->merchant_order_no, sizeof(order->merchant_order_no)) ||
        text_column(row, 6, currency, sizeof(currency)) ||
        text_column(row, 7, status, sizeof(status)) ||
        text_column(row, 8, payment.created_at, sizeof(payment.created_at)) ||
        text_column(row, 9, payment.updated_at, sizeof(payment.updated_at)))
        return IDEM_ERR_CORRUPT;
    if (order->amount_minor <= 0 || order->amount_minor > MONEY_MINOR_MAX ||
        !currency_find(idem_bytes_from_text(currency), &order->currency) ||
        !payment_status_parse(idem_bytes_from_text(status), &payment.status))
        return IDEM_ERR_CORRUPT;
    *ret_payment = payment;
    return 0;
}

/* 0, PAYMENT_ABSENT, or negative. */
static int payment_select(struct database *database, sqlite3_stmt *statement,
                          struct payment *ret_payment)
{
    int error = database_step(database, statement);

    if (error != DATABASE_ROW)
        return error ? error : PAYMENT_ABSENT;
    error = payment_read(statement, ret_payment);
    sqlite3_reset(statement);
    return error;
}

int payment_find(struct database *database, const char *payment_no, struct payment *ret_payment)
{
    sqlite3_stmt *statement = database_statement(database, STATEMENT_PAYMENT_BY_NUMBER);

    database_bind_text(statement, ":payment_no", payment_no);
    return payment_select(database, statement, ret_payment);
}

static int payment_find_by_key(struct database *database, const struct idem_key *key,
                               struct payment *ret_payment)
{
    sqlite3_stmt *statement = database_statement(database, STATEMENT_PAYMENT_BY_KEY);

    database_bind_blob(statement, ":key", key->bytes, key->size);
    return payment_select(database, statement, ret_payment);
}

static bool order_equal(const struct payment_order *a, const struct payment_order *b)
{
    return strcmp(a->order_id, b->order_id) == 0 && strcmp(a->merchant_id, b->merchant_id) == 0 &&
           strcmp(a->merchant_order_no, b->merchant_order_no) == 0 &&
           a->amount_minor == b->amount_minor && strcmp(a->currency.code, b->currency.code) == 0;
}

/*
 * Moves a payment along the table and writes the move down. The statement names the status that it
 * leaves: PAYMENT_NOT_ALLOWED also when the row has another one by now.
 */
static int payment_move(struct database *database, struct payment *payment, enum payment_status to)
{
    const char *from_text = payment_status_text(payment->status);
    sqlite3_stmt *statement;
    int error, changes;

    if (!payment_status_may_move(payment->status, to))
        return PAYMENT_NOT_ALLOWED;
    statement = database_statement(database, STATEMENT_PAYMENT_MOVE);
    database_bind_int64(statement, ":id", payment->id);
    database_bind_text(statement, ":from", from_text);
    database_bind_text(statement, ":to", payment_status_text(to));
    error = database_run(database, statement, &changes);
    if (error)
        return error;
    if (changes == 0)
        return PAYMENT_NOT_ALLOWED;

    statement = database_statement(database, STATEMENT_MOVE_INSERT);
    database_bind_int64(statement, ":id", payment->id);
    database_bind_text(statement, ":from", from_text);
    database_bind_text(statement, ":to", payment_status_text(to));
    error = database_run(database, statement, NULL);
    if (error == 0)
        payment->status = to;
    return error;
}

static void payment_no_make(char ret_text[PAYMENT_NO_SIZE])
{
    uint8_t random[PAYMENT_NO_RANDOM];
    char digits[2 * PAYMENT_NO_RANDOM + 1];

    randombytes_buf(random, sizeof(random));
    sodium_bin2hex(digits, sizeof(digits), random, sizeof(random));
    snprintf(ret_text, PAYMENT_NO_SIZE, "PAY%s", digits);
}

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

/* 0 and *ret_inserted: a conflict with any unique column inserts nothing and is no error. */
static int payment_insert(struct database *database, const struct payment_order *order,
                          const struct idem_key *key, const char *payment_no, int *ret_inserted)
{
    sqlite3_stmt *statement = database_statement(database, STATEMENT_PAYMENT_INSERT);

    database_bind_text(statement, ":payment_no", payment_no);
    database_bind_blob(statement, ":key", key ? key->bytes : NULL, key ? key->size : 0);
    database_bind_text(statement, ":order_id", order->order_id);
    database_bind_text(statement, ":merchant_id", text_or_null(order->merchant_id));
    database_bind_text(statement, ":merchant_order_no", text_or_null(order->merchant_order_no));
    database_bind_int64(statement, ":amount", order->amount_minor);
    database_bind_text(statement, ":currency", order->currency.code);
    return database_run(database, statement, ret_inserted);
}

/* Why nothing was inserted: the key first, for a retry meets its own merchant order as well. */
static int conflict_explain(struct database *database, const struct payment_order *order,
                            const struct idem_key *key, struct payment *ret_payment)
{
    int outcome = key ? payment_find_by_key(database, key, ret_payment) : PAYMENT_ABSENT;

    if (outcome == PAYMENT_ABSENT)
        return PAYMENT_MERCHANT_ORDER_TAKEN;
    if (outcome != 0)
        return outcome;
    return order_equal(&ret_payment->order, order) ? PAYMENT_EXISTING : PAYMENT_KEY_REUSED;
}

/* Everything between begin and commit. */
static int create_in_transaction(struct database *database, const struct payment_order *order,
                                 const struct idem_key *key, struct payment *ret_payment)
{
    char payment_no[PAYMENT_NO_SIZE];
    int error, inserted;

    payment_no_make(payment_no);
    error = payment_insert(database, order, key, payment_no, &inserted);
    if (error)
        return error;
    if (inserted == 0)
        return conflict_explain(database, order, key, ret_payment);

    error = payment_find(database, payment_no, ret_payment);
    if (error == 0)
        error = payment_move(database, ret_payment, PAYMENT_PAYING);
    if (error == 0)
        error = ledger_book_payment(database, ret_payment);
    if (error == 0)
        error = payment_move(database, ret_payment, PAYMENT_SUCCESS);
    return error == 0 ? payment_find(database, payment_no, ret_payment) : error;
}

/* Ends the transaction: commits when `outcome` is 0, else rolls back and hands the outcome on. */
static int transaction_end(struct database *database, int outcome)
{
    if (outcome == 0) {
        int error = database_commit(database);

        return error == DATABASE_UNSURE ? PAYMENT_UNSURE : error;
    }
    database_rollback(database);
    return outcome;
}

int payment_create(struct database *database, const struct payment_order *order,
                   const struct idem_key *key, struct payment *ret_payment)
{
    struct payment payment;
    int outcome = database_begin(database);

    if (outcome)
        return outcome;
    outcome = create_in_transaction(database, order, key, &payment);
    outcome = transaction_end(database, outcome);
    if (outcome == 0 || outcome == PAYMENT_EXISTING)
        *ret_payment = payment;
    return outcome;
}

static int refund_in_transaction(struct database *database, const char *payment_no,
                                 struct payment *ret_payment)
{
    int error = payment_find(database, payment_no, ret_payment);

    if (error || ret_payment->status == PAYMENT_REFUNDED)
        return error;
    error = payment_move(database, ret_payment, PAYMENT_REFUNDED);
    if (error == 0)
        error = ledger_book_refund(database, ret_payment);
    return error == 0 ? payment_find(database, payment_no, ret_payment) : error;
}

int payment_refund(struct database *database, const char *payment_no, struct payment *ret_payment)
{
    struct payment payment;
    int outcome = database_begin(database);

    if (outcome)
        return outcome;
    outcome = refund_in_transaction(database, payment_no, &payment);
    outcome = transaction_end(database, outcome);
    if (outcome == 0)
        *ret_payment = payment;
    return outcome;
}
