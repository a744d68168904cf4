/* Money: literals become minor units exactly, or are refused for the right reason. */
#include "test.h"

#include "money.h"

struct sample {
    const char *currency, *literal;
    int outcome;
    int64_t minor;
};

static const struct sample samples[] = {
    {"CNY", "100.00", 0, 10000},
    {"CNY", "100", 0, 10000},
    {"CNY", "100.0", 0, 10000},
    {"CNY", "100.000", 0, 10000},
    {"CNY", "1e2", 0, 10000},
    {"CNY", "1E+2", 0, 10000},
    {"CNY", "1000e-1", 0, 10000},
    {"CNY", "0.0001e6", 0, 10000},
    {"CNY", "0.01", 0, 1},
    {"CNY", "1e-2", 0, 1},
    {"CNY", "0.29", 0, 29}, /* 0.29 * 100 is 28.999999999999996 in binary */
    {"CNY", "1.10", 0, 110},
    {"CNY", "4.35", 0, 435}, /* 434.99999999999994 */
    {"CNY", "9999999999.99", 0, MONEY_MINOR_MAX},
    {"CNY", "9999999999.990000000000000000000000000000", 0, MONEY_MINOR_MAX},
    {"CNY", "10000000000.00", MONEY_TOO_LARGE, 0},
    {"CNY", "99999999999999999999999999", MONEY_TOO_LARGE, 0},
    {"CNY", "1e400", MONEY_TOO_LARGE, 0},
    {"CNY", "1e99999999999999999999", MONEY_TOO_LARGE, 0},
    {"CNY", "0.001", MONEY_TOO_PRECISE, 0},
    {"CNY", "1.005", MONEY_TOO_PRECISE, 0},
    {"CNY", "100.00000000000000000000000000001", MONEY_TOO_PRECISE, 0},
    {"CNY", "1e-99999999999999999999", MONEY_TOO_PRECISE, 0},
    {"CNY", "0", MONEY_NOT_POSITIVE, 0},
    {"CNY", "0.00", MONEY_NOT_POSITIVE, 0},
    {"CNY", "-0.0", MONEY_NOT_POSITIVE, 0},
    {"CNY", "0e99999999999999999999", MONEY_NOT_POSITIVE, 0},
    {"CNY", "-1", MONEY_NOT_POSITIVE, 0},
    {"CNY", "-0.001", MONEY_NOT_POSITIVE, 0},
    {"JPY", "100", 0, 100},
    {"JPY", "100.0", 0, 100},
    {"JPY", "0.5", MONEY_TOO_PRECISE, 0},
    {"JPY", "999999999999", 0, MONEY_MINOR_MAX},
    {"JPY", "1000000000000", MONEY_TOO_LARGE, 0},
    {"KWD", "1.005", 0, 1005},
    {"KWD", "1.0005", MONEY_TOO_PRECISE, 0},
    {"CLF", "0.0001", 0, 1},
    {"CNY", "", MONEY_MALFORMED, 0},
    {"CNY", "-", MONEY_MALFORMED, 0},
    {"CNY", "+1", MONEY_MALFORMED, 0},
    {"CNY", "01", MONEY_MALFORMED, 0},
    {"CNY", ".5", MONEY_MALFORMED, 0},
    {"CNY", "5.", MONEY_MALFORMED, 0},
    {"CNY", "1e", MONEY_MALFORMED, 0},
    {"CNY", "1e+", MONEY_MALFORMED, 0},
    {"CNY", "1 ", MONEY_MALFORMED, 0},
    {"CNY", " 1", MONEY_MALFORMED, 0},
    {"CNY", "1,5", MONEY_MALFORMED, 0},
    {"CNY", "0x10", MONEY_MALFORMED, 0},
    {"CNY", "NaN", MONEY_MALFORMED, 0},
    {"CNY", "1.5.5", MONEY_MALFORMED, 0},
};

static void literals_are_read_exactly(void **state)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        const struct sample *sample = &samples[i];
        struct currency currency;
        int64_t minor = -1;
        int outcome;

        assert_true(currency_find(idem_bytes_from_text(sample->currency), &currency));
        outcome = money_parse(idem_bytes_from_text(sample->literal), &currency, &minor);
        if (outcome != sample->outcome || minor != (outcome ? -1 : sample->minor))
            fail_msg("%s %s: outcome %d, %lld", sample->literal, sample->currency, outcome,
                     (long long)minor);
    }
}

/* The literal is a view: what follows it in memory is not part of it. */
static void views_are_not_overrun(void **state)
{
    struct currency currency;
    int64_t minor;

    assert_true(currency_find(idem_bytes_from_text("CNY"), &currency));
    assert_int_equal(money_parse(idem_bytes_make("1234", 2), &currency, &minor), 0);
    assert_int_equal(minor, 1200);
    assert_int_equal(money_parse(idem_bytes_make("1\0002", 3), &currency, &minor), MONEY_MALFORMED);
}

/* Every amount of up to four digits survives being written and read, in every width. */
static void written_amounts_read_back(void **state)
{
    static const char *const codes[] = {"JPY", "CNY", "KWD", "CLF"};

    for (size_t c = 0; c < 4; c++) {
        struct currency currency;

        assert_true(currency_find(idem_bytes_from_text(codes[c]), &currency));
        for (int64_t minor = 1; minor < 10000; minor++) {
            char text[MONEY_TEXT_SIZE];
            int64_t back = 0;

            money_format(minor, &currency, text);
            assert_int_equal(money_parse(idem_bytes_from_text(text), &currency, &back), 0);
            assert_int_equal(back, minor);
        }
    }
}

static void amounts_have_their_decimals(void **state)
{
    static const struct currency yen = {"JPY", 0}, yuan = {"CNY", 2}, dinar = {"KWD", 3};
    char text[MONEY_TEXT_SIZE];

    money_format(10000, &yuan, text);
    assert_string_equal(text, "100.00");
    money_format(5, &yuan, text);
    assert_string_equal(text, "0.05");
    money_format(5, &dinar, text);
    assert_string_equal(text, "0.005");
    money_format(100, &yen, text);
    assert_string_equal(text, "100");
    money_format(MONEY_MINOR_MAX, &yuan, text);
    assert_string_equal(text, "9999999999.99");
}

static void currencies_are_found_by_exact_code(void **state)
{
    struct currency currency = {"", 9};

    assert_true(currency_find(idem_bytes_from_text("USD"), &currency));
    assert_string_equal(currency.code, "USD");
    assert_int_equal(currency.decimals, 2);
    assert_true(currency_find(idem_bytes_from_text("ZMW"), &currency));
    assert_true(currency_find(idem_bytes_from_text("TND"), &currency));
    assert_int_equal(currency.decimals, 3);
    assert_false(currency_find(idem_bytes_from_text("usd"), &currency));
    assert_false(currency_find(idem_bytes_from_text("US"), &currency));
    assert_false(currency_find(idem_bytes_from_text("USDT"), &currency));
    assert_false(currency_find(idem_bytes_from_text("ED "), &currency));
    assert_false(currency_find(idem_bytes_from_text(""), &currency));
    assert_false(currency_find(idem_bytes_from_text("ZZZ"), &currency));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(literals_are_read_exactly),
        cmocka_unit_test(views_are_not_overrun),
        cmocka_unit_test(written_amounts_read_back),
        cmocka_unit_test(amounts_have_their_decimals),
        cmocka_unit_test(currencies_are_found_by_exact_code),
    };

    return cmocka_run_group_tests_name("payments money", tests, NULL, NULL);
}
