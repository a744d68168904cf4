/* Request: bodies become orders; each wrong member is named. */
#include "test.h"

#include <stdio.h>

#include "request.h"

static int parse(const char *body, struct payment_order *order, struct request_faults *faults)
{
    return request_parse(idem_bytes_from_text(body), order, faults);
}

static void good_bodies_become_orders(void **state)
{
    struct request_faults faults;
    struct payment_order order;

    assert_int_equal(
        parse("{\"order_id\":\"ORD001\",\"amount\":100.00,\"currency\":\"CNY\"}", &order, &faults),
        0);
    assert_string_equal(order.order_id, "ORD001");
    assert_int_equal(order.amount_minor, 10000);
    assert_string_equal(order.currency.code, "CNY");
    assert_string_equal(order.merchant_id, "");

    assert_int_equal(parse("\r\n{ \"currency\" : \"KWD\",\t\"merchant_order_no\":\"7\","
                           "\"amount\":\n1.005 ,\"merchant_id\":\"m\",\"order_id\":\"\\u8ba2\"}",
                           &order, &faults),
                     0);
    assert_int_equal(order.amount_minor, 1005);
    assert_string_equal(order.merchant_id, "m");
    assert_string_equal(order.merchant_order_no, "7");
    assert_string_equal(order.order_id, "\xe8\xae\xa2");
}

/* The amount is the top-level member, wherever the same words stand besides. */
static void the_right_amount_is_read(void **state)
{
    struct request_faults faults;
    struct payment_order order;

    assert_int_equal(parse("{\"note\":\"\\\"amount\\\":1\",\"x\":{\"amount\":2},"
                           "\"y\":[\"amount\",{\"amount\":3}],\"z\":\"amount\","
                           "\"amount\":4.44,\"order_id\":\"\\\\\",\"currency\":\"CNY\"}",
                           &order, &faults),
                     0);
    assert_int_equal(order.amount_minor, 444);
    assert_string_equal(order.order_id, "\\");
}

static bool fault_named(const struct request_faults *faults, const char *field, const char *word)
{
    for (size_t i = 0; i < faults->count; i++)
        if (strcmp(faults->items[i].field, field) == 0)
            return strstr(faults->items[i].detail, word) != NULL;
    return false;
}

struct fault_case {
    const char *body, *field, *word;
};

static void each_wrong_member_is_named(void **state)
{
    static const struct fault_case cases[] = {
        {"{\"amount\":1,\"currency\":\"CNY\"}", "order_id", "missing"},
        {"{\"order_id\":\"\",\"amount\":1,\"currency\":\"CNY\"}", "order_id", "1 to 64"},
        {"{\"order_id\":1,\"amount\":1,\"currency\":\"CNY\"}", "order_id", "string"},
        {"{\"order_id\":\"a\\n\",\"amount\":1,\"currency\":\"CNY\"}", "order_id", "control"},
        {"{\"order_id\":\"o\",\"currency\":\"CNY\"}", "amount", "missing"},
        {"{\"order_id\":\"o\",\"amount\":\"1\",\"currency\":\"CNY\"}", "amount", "number"},
        {"{\"order_id\":\"o\",\"amount\":null,\"currency\":\"CNY\"}", "amount", "number"},
        {"{\"order_id\":\"o\",\"am\\u006funt\":1,\"currency\":\"CNY\"}", "amount", "escapes"},
        {"{\"order_id\":\"o\",\"amount\":-1,\"currency\":\"CNY\"}", "amount", "more than zero"},
        {"{\"order_id\":\"o\",\"amount\":0,\"currency\":\"CNY\"}", "amount", "more than zero"},
        {"{\"order_id\":\"o\",\"amount\":0.001,\"currency\":\"CNY\"}", "amount", "decimals"},
        {"{\"order_id\":\"o\",\"amount\":0.5,\"currency\":\"JPY\"}", "amount", "decimals"},
        {"{\"order_id\":\"o\",\"amount\":1e30,\"currency\":\"CNY\"}", "amount", "maximum"},
        {"{\"order_id\":\"o\",\"amount\":18446744073709551616,\"currency\":\"CNY\"}", "amount",
         "maximum"},
        {"{\"order_id\":\"o\",\"amount\":1}", "currency", "missing"},
        {"{\"order_id\":\"o\",\"amount\":1,\"currency\":\"cny\"}", "currency", "ISO 4217"},
        {"{\"order_id\":\"o\",\"amount\":1,\"currency\":156}", "currency", "ISO 4217"},
        {"{\"order_id\":\"o\",\"amount\":1,\"currency\":\"CNY\",\"merchant_id\":\"m\"}",
         "merchant_order_no", "missing"},
        {"{\"order_id\":\"o\",\"amount\":1,\"currency\":\"CNY\",\"merchant_order_no\":\"m\"}",
         "merchant_id", "missing"},
        {"{\"order_id\":\"o\",\"amount\":1,\"currency\":\"CNY\",\"merchant_id\":"
         "\"123456789012345678901234567890123\",\"merchant_order_no\":\"m\"}",
         "merchant_id", "32"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct request_faults faults;
        struct payment_order order;

        assert_int_equal(parse(cases[i].body, &order, &faults), REQUEST_INVALID);
        assert_int_equal(faults.count, 1);
        if (!fault_named(&faults, cases[i].field, cases[i].word))
            fail_msg("%s: %s %s", cases[i].body, faults.items[0].field, faults.items[0].detail);
    }
}

static void all_wrong_members_are_named_at_once(void **state)
{
    struct request_faults faults;
    struct payment_order order;

    assert_int_equal(parse("{}", &order, &faults), REQUEST_INVALID);
    assert_int_equal(faults.count, 3);
    assert_int_equal(parse("{\"order_id\":1,\"amount\":{},\"currency\":[],\"merchant_id\":2,"
                           "\"merchant_order_no\":{}}",
                           &order, &faults),
                     REQUEST_INVALID);
    assert_int_equal(faults.count, 5);
}

static void what_is_no_json_object_is_refused(void **state)
{
    static const char *const bodies[] = {
        "",
        " ",
        "[]",
        "1",
        "\"x\"",
        "null",
        "{",
        "{\"a\":1,}",
        "{'a':1}",
        "{\"a\":01}",
        "{} {}",
        "{\"amount\":1,\"amount\":2}",
        "{\"amount\":1,\"am\\u006funt\":2}",
        "{\"a\":\"\xff\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":NaN}",
        "{\"amount\":1e400}",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct request_faults faults;
        struct payment_order order;

        if (parse(bodies[i], &order, &faults) != REQUEST_NOT_JSON || faults.syntax[0] == '\0')
            fail_msg("taken: %s", bodies[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_bodies_become_orders),
        cmocka_unit_test(the_right_amount_is_read),
        cmocka_unit_test(each_wrong_member_is_named),
        cmocka_unit_test(all_wrong_members_are_named_at_once),
        cmocka_unit_test(what_is_no_json_object_is_refused),
    };

    return cmocka_run_group_tests_name("payments request", tests, NULL, NULL);
}
