/* Every error has a text of its own; a sentence is cut at its maximum and always terminated. */
#include "unit.h"

#include <idem/error.h>

static void test_text(void **state)
{
    (void)state;
    for (int a = IDEM_ERR_SELFTEST; a <= IDEM_OK; a++) {
        assert_string_not_equal(idem_error_text(a), "unknown error");
        for (int b = IDEM_ERR_SELFTEST; b < a; b++)
            assert_string_not_equal(idem_error_text(a), idem_error_text(b));
    }
    assert_string_equal(idem_error_text(IDEM_ERR_SELFTEST - 1), "unknown error");
    assert_string_equal(idem_error_text(1), "unknown error");
}

static void test_message(void **state)
{
    struct idem_message message;

    (void)state;
    idem_message_set(&message, "%s has %d", "it", 3);
    assert_string_equal(message.text, "it has 3");
    idem_message_set(&message, "%s", "");
    assert_string_equal(message.text, "");
    idem_message_set(NULL, "%s", "nobody listens");
}

static void test_message_is_cut(void **state)
{
    char text[2 * IDEM_MESSAGE_SIZE_MAX];
    struct idem_message message;

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    idem_message_set(&message, "%s", text);
    assert_int_equal(strlen(message.text), IDEM_MESSAGE_SIZE_MAX - 1);
    assert_int_equal(message.text[IDEM_MESSAGE_SIZE_MAX - 2], 'x');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_message),
        cmocka_unit_test(test_message_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
