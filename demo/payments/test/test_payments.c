/* Payments: one transaction or nothing, the second line of defence, and a ledger that adds up. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "payments.h"

static char directory[64], path[80];

static int directory_make(void **state)
{
    snprintf(directory, sizeof(directory), "/tmp/idem-payments-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/db", directory);
    *state = NULL;
    return database_open(path, (struct database **)state, NULL);
}

static int directory_remove(void **state)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char file[96];

    database_close(*state);
    for (size_t i = 0; i < 3; i++) {
        snprintf(file, sizeof(file), "%s%s", path, suffixes[i]);
        unlink(file);
    }
    return rmdir(directory);
}

static struct idem_key key_of(const char *text)
{
    struct idem_key key;

    assert_int_equal(
        idem_key_parse(idem_bytes_from_text(text), IDEM_KEY_LENIENT, IDEM_KEY_SIZE_DEFAULT, &key),
        0);
    return key;
}

static struct payment_order order_of(const char *order_id, int64_t minor)
{
    struct payment_order order = {.amount_minor = minor, .currency = {"CNY", 2}};

    snprintf(order.order_id, sizeof(order.order_id), "%s", order_id);
    return order;
}

/* Asks the file by a connection of its own: what is seen has been committed. */
static int64_t ask(const char *question)
{
    sqlite3_stmt *statement;
    sqlite3 *handle;
    int64_t answer;

    assert_int_equal(sqlite3_open(path, &handle), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(handle, question, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    answer = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(handle);
    return answer;
}

static void a_payment_is_made_and_booked(void **state)
{
    struct payment_order order = order_of("o", 10000);
    struct payment made, found;

    assert_int_equal(payment_create(*state, &order, NULL, &made), 0);
    assert_int_equal(made.status, PAYMENT_SUCCESS);
    assert_int_equal(strlen(made.payment_no), PAYMENT_NO_SIZE - 1);
    assert_int_equal(payment_find(*state, made.payment_no, &found), 0);
    assert_memory_equal(&found.order, &made.order, sizeof(found.order));
    assert_int_equal(ask("SELECT count(*) FROM payment"), 1);
    assert_int_equal(ask("SELECT count(*) FROM payment_move"), 2);
    assert_int_equal(ask("SELECT count(*) FROM ledger_entry"), 2);
    assert_int_equal(ask("SELECT sum(amount_minor) FROM ledger_entry"), 0);
    assert_int_equal(ask("SELECT balance_minor FROM account WHERE name = 'clearing:CNY'"), -10000);
    assert_int_equal(payment_find(*state, "PAY000000000000000000000000", &found), PAYMENT_ABSENT);
}

static void the_same_key_gives_the_same_payment(void **state)
{
    struct payment_order order = order_of("o", 10000), other = order_of("o", 10001);
    struct idem_key key = key_of("k"), quoted = key_of("\"k\"");
    struct payment first, second;

    assert_int_equal(payment_create(*state, &order, &key, &first), 0);
    assert_int_equal(payment_create(*state, &order, &key, &second), PAYMENT_EXISTING);
    assert_string_equal(first.payment_no, second.payment_no);
    assert_int_equal(payment_create(*state, &order, &quoted, &second), PAYMENT_EXISTING);
    assert_int_equal(payment_create(*state, &other, &key, &second), PAYMENT_KEY_REUSED);
    assert_int_equal(ask("SELECT count(*) FROM payment"), 1);
    assert_int_equal(ask("SELECT count(*) FROM ledger_entry"), 2);
}

static void an_order_may_be_paid_in_parts(void **state)
{
    struct payment_order order = order_of("o", 10000);
    struct idem_key first = key_of("1"), second = key_of("2");
    struct payment payment;

    assert_int_equal(payment_create(*state, &order, &first, &payment), 0);
    assert_int_equal(payment_create(*state, &order, &second, &payment), 0);
    assert_int_equal(payment_create(*state, &order, NULL, &payment), 0);
    assert_int_equal(payment_create(*state, &order, NULL, &payment), 0);
    assert_int_equal(ask("SELECT count(DISTINCT payment_no) FROM payment"), 4);
}

static void a_merchants_order_is_paid_once(void **state)
{
    struct payment_order order = order_of("o", 10000);
    struct idem_key first = key_of("1"), second = key_of("2");
    struct payment payment, again;

    snprintf(order.merchant_id, sizeof(order.merchant_id), "m");
    snprintf(order.merchant_order_no, sizeof(order.merchant_order_no), "7");
    assert_int_equal(payment_create(*state, &order, &first, &payment), 0);
    assert_int_equal(payment_create(*state, &order, &second, &again), PAYMENT_MERCHANT_ORDER_TAKEN);
    assert_int_equal(payment_create(*state, &order, NULL, &again), PAYMENT_MERCHANT_ORDER_TAKEN);
    /* A retry meets both its key and its merchant order: it is a retry. */
    assert_int_equal(payment_create(*state, &order, &first, &again), PAYMENT_EXISTING);
    assert_string_equal(payment.payment_no, again.payment_no);
    snprintf(order.merchant_id, sizeof(order.merchant_id), "n");
    assert_int_equal(payment_create(*state, &order, &second, &again), 0);
    assert_int_equal(ask("SELECT count(*) FROM payment"), 2);
}

static void a_refund_books_back_once(void **state)
{
    struct payment_order order = order_of("o", 10000);
    struct payment made, refunded;

    assert_int_equal(payment_create(*state, &order, NULL, &made), 0);
    assert_int_equal(payment_refund(*state, made.payment_no, &refunded), 0);
    assert_int_equal(refunded.status, PAYMENT_REFUNDED);
    assert_int_equal(payment_refund(*state, made.payment_no, &refunded), 0);
    assert_int_equal(ask("SELECT count(*) FROM ledger_entry"), 4);
    assert_int_equal(ask("SELECT sum(abs(balance_minor)) FROM account"), 0);
    assert_int_equal(payment_refund(*state, "PAY000000000000000000000000", &refunded),
                     PAYMENT_ABSENT);
}

/* The balance cannot take the amount: nothing of the payment is left behind, and later ones work.
 */
static void a_failed_booking_leaves_nothing(void **state)
{
    struct payment_order order = order_of("o", 10000);
    struct idem_key key = key_of("k");
    struct payment payment;
    sqlite3 *handle;

    assert_int_equal(sqlite3_open(path, &handle), SQLITE_OK);
    assert_int_equal(sqlite3_exec(handle,
                                  "INSERT INTO account VALUES ('merchant::CNY', 'CNY',"
                                  " 9223372036854775807)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_true(payment_create(*state, &order, &key, &payment) < 0);
    assert_int_equal(ask("SELECT count(*) FROM payment"), 0);
    assert_int_equal(ask("SELECT count(*) FROM ledger_entry"), 0);
    assert_int_equal(sqlite3_exec(handle, "UPDATE account SET balance_minor = 0", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(handle);
    assert_int_equal(payment_create(*state, &order, &key, &payment), 0);
}

static void a_locked_database_is_unavailable(void **state)
{
    struct payment_order order = order_of("o", 10000);
    struct payment payment;
    sqlite3 *handle;

    assert_int_equal(sqlite3_open(path, &handle), SQLITE_OK);
    assert_int_equal(sqlite3_exec(handle, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(payment_create(*state, &order, NULL, &payment), IDEM_ERR_UNAVAILABLE);
    sqlite3_close(handle);
    assert_int_equal(payment_create(*state, &order, NULL, &payment), 0);
}

/* A row that the schema cannot have let in is damage, and is not shown as a payment. */
static void a_damaged_row_is_not_a_payment(void **state)
{
    struct payment_order order = order_of("o", 10000);
    struct payment payment;
    sqlite3 *handle;

    assert_int_equal(payment_create(*state, &order, NULL, &payment), 0);
    assert_int_equal(sqlite3_open(path, &handle), SQLITE_OK);
    assert_int_equal(sqlite3_exec(handle, "UPDATE payment SET currency = 'ZZZ'", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(handle);
    assert_int_equal(payment_find(*state, payment.payment_no, &payment), IDEM_ERR_CORRUPT);
}

static void another_applications_file_is_left_alone(void **state)
{
    struct database *database = NULL;
    struct idem_message message;
    char other[96];
    sqlite3 *handle;

    snprintf(other, sizeof(other), "%s/other", directory);
    assert_int_equal(sqlite3_open(other, &handle), SQLITE_OK);
    assert_int_equal(sqlite3_exec(handle, "CREATE TABLE t (x)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(handle);
    assert_int_equal(database_open(other, &database, &message), IDEM_ERR_CORRUPT);
    assert_non_null(strstr(message.text, "name another file"));
    assert_null(database);
    unlink(other);
    assert_int_equal(database_open("/nonexistent/db", &database, &message), IDEM_ERR_UNAVAILABLE);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, directory_make, directory_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(a_payment_is_made_and_booked),
        EACH(the_same_key_gives_the_same_payment),
        EACH(an_order_may_be_paid_in_parts),
        EACH(a_merchants_order_is_paid_once),
        EACH(a_refund_books_back_once),
        EACH(a_failed_booking_leaves_nothing),
        EACH(a_locked_database_is_unavailable),
        EACH(a_damaged_row_is_not_a_payment),
        EACH(another_applications_file_is_left_alone),
    };

    return cmocka_run_group_tests_name("payments payments", tests, NULL, NULL);
}
