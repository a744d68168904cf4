#include "ledger.h"

#include <assert.h>
#include <stdio.h>

#define ACCOUNT_NAME_SIZE (MERCHANT_ID_SIZE_MAX + 32)

struct booking {
    struct database *database;
    const struct payment *payment;
    const char *kind; /* "payment" or "refund" */
};

/* One entry: the account's balance moves by `amount_minor`, and the entry remembers the result. */
static int entry_add(const struct booking *booking, const char *account, int64_t amount_minor)
{
    const char *currency = booking->payment->order.currency.code;
    sqlite3_stmt *statement;
    int error, changes;

    statement = database_statement(booking->database, STATEMENT_ACCOUNT_OPEN);
    database_bind_text(statement, ":name", account);
    database_bind_text(statement, ":currency", currency);
    error = database_run(booking->database, statement, NULL);
    if (error)
        return error;

    statement = database_statement(booking->database, STATEMENT_ACCOUNT_ADD);
    database_bind_text(statement, ":name", account);
    database_bind_text(statement, ":currency", currency);
    database_bind_int64(statement, ":amount", amount_minor);
    error = database_run(booking->database, statement, &changes);
    if (error)
        return error;
    assert(changes == 1);

    statement = database_statement(booking->database, STATEMENT_ENTRY_INSERT);
    database_bind_int64(statement, ":id", booking->payment->id);
    database_bind_text(statement, ":booking", booking->kind);
    database_bind_text(statement, ":name", account);
    database_bind_int64(statement, ":amount", amount_minor);
    return database_run(booking->database, statement, NULL);
}

/* Moves `amount_minor` (negative: backwards) from the clearing account to the merchant's. */
static int booking_write(const struct booking *booking, int64_t amount_minor)
{
    const struct payment_order *order = &booking->payment->order;
    char clearing[ACCOUNT_NAME_SIZE], merchant[ACCOUNT_NAME_SIZE];
    int error, size;

    size = snprintf(clearing, sizeof(clearing), "clearing:%s", order->currency.code);
    assert(size > 0 && (size_t)size < sizeof(clearing));
    size = snprintf(merchant, sizeof(merchant), "merchant:%s:%s", order->merchant_id,
                    order->currency.code);
    assert(size > 0 && (size_t)size < sizeof(merchant));

    error = entry_add(booking, clearing, -amount_minor);
    return error ? error : entry_add(booking, merchant, amount_minor);
}

int ledger_book_payment(struct database *database, const struct payment *payment)
{
    struct booking booking = {database, payment, "payment"};

    return booking_write(&booking, payment->order.amount_minor);
}

int ledger_book_refund(struct database *database, const struct payment *payment)
{
    struct booking booking = {database, payment, "refund"};

    return booking_write(&booking, -payment->order.amount_minor);
}
