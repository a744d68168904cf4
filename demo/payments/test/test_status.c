/* Status: the whole table, word by word, and nothing beside it. */
#include "test.h"

#include "status.h"

/* Rows: from; columns: to; in the order of the enum. Written out so that a slip in the table shows.
 */
static const char *const allowed[PAYMENT_STATUS_COUNT] = {
    /*            pending paying success failed refunded closed */
    [PAYMENT_PENDING] = ".x...x", [PAYMENT_PAYING] = "..xx..",   [PAYMENT_SUCCESS] = "....x.",
    [PAYMENT_FAILED] = "x.....",  [PAYMENT_REFUNDED] = "......", [PAYMENT_CLOSED] = "......",
};

static void the_table_is_what_it_says(void **state)
{
    for (unsigned from = 0; from < PAYMENT_STATUS_COUNT; from++)
        for (unsigned to = 0; to < PAYMENT_STATUS_COUNT; to++)
            if (payment_status_may_move(from, to) != (allowed[from][to] == 'x'))
                fail_msg("%s -> %s", payment_status_text(from), payment_status_text(to));
}

static void words_read_back(void **state)
{
    enum payment_status status;

    for (unsigned i = 0; i < PAYMENT_STATUS_COUNT; i++) {
        assert_true(payment_status_parse(idem_bytes_from_text(payment_status_text(i)), &status));
        assert_int_equal(status, i);
    }
    assert_false(payment_status_parse(idem_bytes_from_text("Success"), &status));
    assert_false(payment_status_parse(idem_bytes_from_text("paid"), &status));
    assert_false(payment_status_parse(idem_bytes_from_text(""), &status));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_what_it_says),
        cmocka_unit_test(words_read_back),
    };

    return cmocka_run_group_tests_name("payments status", tests, NULL, NULL);
}
