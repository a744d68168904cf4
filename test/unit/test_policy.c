/* Outcomes by status: the table of design 6, changes to it, and the upstream's own word. */
#include "unit.h"

#include <idem/policy.h>
#include <stdio.h>

#define FINAL   IDEM_OUTCOME_FINAL
#define FAILED  IDEM_OUTCOME_FAILED
#define UNKNOWN IDEM_OUTCOME_UNKNOWN
#define UNSET   IDEM_OUTCOME_UNSET

static void test_defaults(void **state)
{
    struct idem_policy policy;

    (void)state;
    idem_policy_init(&policy);
    assert_int_equal(policy.ttl_us, INT64_C(86400000000));
    assert_int_equal(policy.lease_us, 10000000);
    assert_int_equal(policy.unknown_ttl_us, INT64_C(2592000000000));
    assert_int_equal(policy.body_size_max, 1048576);
    assert_int_equal(policy.unknown, IDEM_UNKNOWN_HOLD);
    assert_false(policy.fail_open);
    assert_int_equal(policy.wait_us, 0);
    assert_int_equal(policy.settle_us, 0);
    assert_false(policy.trust);
    assert_int_equal(idem_policy_check(&policy, NULL), IDEM_OK);
}

/* One part of a policy set to a value, or two parts. */
static struct idem_policy policy_with(enum idem_unknown_policy unknown, int64_t settle_us,
                                      bool trust)
{
    struct idem_policy policy;

    idem_policy_init(&policy);
    policy.unknown = unknown;
    policy.settle_us = settle_us;
    policy.trust = trust;
    return policy;
}

static void assert_refused(const struct idem_policy *policy, const char *word)
{
    struct idem_message message = {{0}};

    assert_int_equal(idem_policy_check(policy, &message), IDEM_ERR_INVALID);
    assert_non_null(strstr(message.text, word));
}

static void test_what_only_a_probe_has_use_for(void **state)
{
    const int64_t minute_us = 60 * IDEM_SECOND_US;
    struct idem_policy policy;

    (void)state;
    policy = policy_with(IDEM_UNKNOWN_PROBE, minute_us, true);
    assert_int_equal(idem_policy_check(&policy, NULL), IDEM_OK);
    policy = policy_with(IDEM_UNKNOWN_PROBE, 0, false);
    assert_int_equal(idem_policy_check(&policy, NULL), IDEM_OK);
    policy = policy_with(IDEM_UNKNOWN_PROBE, -1, false);
    assert_refused(&policy, "settle");
    policy = policy_with(IDEM_UNKNOWN_PROBE, IDEM_UNKNOWN_TTL_US_DEFAULT, false);
    assert_refused(&policy, "settle");
    policy = policy_with(IDEM_UNKNOWN_HOLD, minute_us, false);
    assert_refused(&policy, "probe");
    policy = policy_with(IDEM_UNKNOWN_RETRY, 0, true);
    assert_refused(&policy, "probe");
    policy = policy_with((enum idem_unknown_policy)3, 0, false);
    assert_refused(&policy, "held");
}

/* Each length just inside its limits, and just outside. */
static void test_lengths_have_limits(void **state)
{
    static const struct {
        size_t offset;
        int64_t least, most;
        const char *word;
    } LENGTHS[] = {
        {offsetof(struct idem_policy, ttl_us), 1, IDEM_TTL_US_MAX, "ttl"},
        {offsetof(struct idem_policy, unknown_ttl_us), 1, IDEM_TTL_US_MAX, "ttl"},
        {offsetof(struct idem_policy, lease_us), IDEM_LEASE_US_MIN, IDEM_LEASE_US_MAX, "lease"},
        {offsetof(struct idem_policy, wait_us), 0, IDEM_WAIT_US_MAX, "waits"},
        {offsetof(struct idem_policy, body_size_max), 0, IDEM_BODY_SIZE_MAX, "body"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++) {
        const int64_t values[] = {LENGTHS[i].least, LENGTHS[i].most, LENGTHS[i].least - 1,
                                  LENGTHS[i].most + 1};

        for (size_t v = 0; v < 4; v++) {
            struct idem_policy policy;

            idem_policy_init(&policy);
            memcpy((uint8_t *)&policy + LENGTHS[i].offset, &values[v], sizeof values[v]);
            if (v < 2)
                assert_int_equal(idem_policy_check(&policy, NULL), IDEM_OK);
            else
                assert_refused(&policy, LENGTHS[i].word);
        }
    }
}

static void test_for_ever_is_a_ttl(void **state)
{
    struct idem_policy policy;

    (void)state;
    idem_policy_init(&policy);
    policy.ttl_us = IDEM_NEVER_US;
    policy.unknown_ttl_us = IDEM_NEVER_US;
    assert_int_equal(idem_policy_check(&policy, NULL), IDEM_OK);
}

/* The first range that holds a status decides. */
static const struct {
    unsigned first, last;
    enum idem_outcome outcome;
} defaults[] = {
    {401, 401, FAILED}, {403, 403, FAILED},  {407, 408, FAILED},    {425, 425, FAILED},
    {429, 429, FAILED}, {502, 502, UNKNOWN}, {504, 504, UNKNOWN},   {0, 199, UNKNOWN},
    {200, 499, FINAL},  {500, 599, FAILED},  {600, 70000, UNKNOWN},
};

static void test_default_outcomes(void **state)
{
    struct idem_policy policy;

    (void)state;
    idem_policy_init(&policy);
    for (unsigned status = 0; status <= 70000; status++) {
        size_t i = 0;

        while (status < defaults[i].first || status > defaults[i].last)
            i++;
        if (idem_policy_outcome(&policy, status, UNSET) != defaults[i].outcome)
            fail_msg("status %u", status);
    }
    assert_int_equal(idem_policy_outcome(&policy, UINT32_MAX, UNSET), UNKNOWN);
}

static void test_declared(void **state)
{
    struct idem_policy policy;

    (void)state;
    idem_policy_init(&policy);
    for (unsigned status = 0; status <= 700; status++) {
        assert_int_equal(idem_policy_outcome(&policy, status, FINAL), FINAL);
        assert_int_equal(idem_policy_outcome(&policy, status, FAILED), FAILED);
        assert_int_equal(idem_policy_outcome(&policy, status, UNKNOWN), UNKNOWN);
    }
    /* A number that is no outcome is not the upstream's word. */
    assert_int_equal(idem_policy_outcome(&policy, 200, (enum idem_outcome)9), FINAL);
}

/* A policy that nobody initialised must not let anything through as final. */
static void test_blank(void **state)
{
    struct idem_policy policy;

    (void)state;
    memset(&policy, 0, sizeof policy);
    assert_int_equal(idem_policy_outcome(&policy, 200, UNSET), UNKNOWN);
}

static void test_set_one(void **state)
{
    struct idem_policy policy, before;

    (void)state;
    for (unsigned status = 200; status < 600; status++) {
        char text[8];

        idem_policy_init(&policy);
        before = policy;
        assert_int_equal(snprintf(text, sizeof text, "%u", status), 3);
        assert_int_equal(idem_policy_set_outcome(&policy, idem_bytes_from_text(text), UNKNOWN),
                         IDEM_OK);
        assert_int_equal(idem_policy_outcome(&policy, status, UNSET), UNKNOWN);
        policy.outcomes[status] = before.outcomes[status];
        assert_memory_equal(&policy, &before, sizeof policy);
    }
}

static void test_set_class(void **state)
{
    static const char *const classes[] = {"2xx", "3XX", "4xX", "5Xx"};

    (void)state;
    for (unsigned i = 0; i < COUNT(classes); i++) {
        struct idem_policy policy, before;

        idem_policy_init(&policy);
        before = policy;
        assert_int_equal(
            idem_policy_set_outcome(&policy, idem_bytes_from_text(classes[i]), UNKNOWN), IDEM_OK);
        for (unsigned status = 0; status < 600; status++)
            assert_int_equal(policy.outcomes[status],
                             status / 100 == i + 2 ? UNKNOWN : before.outcomes[status]);
    }
}

static void test_set_refuses(void **state)
{
    static const struct idem_bytes wrong[] = {
        LITERAL(""),     LITERAL("2"),    LITERAL("20"),   LITERAL("2000"),   LITERAL("199"),
        LITERAL("600"),  LITERAL("100"),  LITERAL("1xx"),  LITERAL("6xx"),    LITERAL("0xx"),
        LITERAL("xxx"),  LITERAL("x00"),  LITERAL("2x0"),  LITERAL("20x"),    LITERAL("2xy"),
        LITERAL(" 200"), LITERAL("200 "), LITERAL("-20"),  LITERAL("2.0"),    LITERAL("20\0"),
        LITERAL("2:0"),  LITERAL("20/"),  LITERAL("2xx "), LITERAL("\xb2xx"),
    };
    struct idem_policy policy, before;

    (void)state;
    idem_policy_init(&policy);
    before = policy;
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(idem_policy_set_outcome(&policy, wrong[i], UNKNOWN), IDEM_ERR_INVALID);
    assert_int_equal(idem_policy_set_outcome(&policy, TEXT("200"), UNSET), IDEM_ERR_INVALID);
    assert_int_equal(idem_policy_set_outcome(&policy, TEXT("200"), (enum idem_outcome)4),
                     IDEM_ERR_INVALID);
    assert_memory_equal(&policy, &before, sizeof policy);
}

static void test_parse(void **state)
{
    static const struct {
        struct idem_bytes text;
        enum idem_outcome outcome;
    } cases[] = {
        {LITERAL("final"), FINAL},
        {LITERAL("failed"), FAILED},
        {LITERAL("unknown"), UNKNOWN},
        {LITERAL("FINAL"), FINAL},
        {LITERAL("Failed"), FAILED},
        {LITERAL(" \tunknown\t "), UNKNOWN},
        {LITERAL(""), UNSET},
        {LITERAL("  "), UNSET},
        {LITERAL("fina"), UNSET},
        {LITERAL("finally"), UNSET},
        {LITERAL("final\0"), UNSET},
        {LITERAL("fin al"), UNSET},
        {LITERAL("\"final\""), UNSET},
        {LITERAL("final, failed"), UNSET},
        {LITERAL("final;x"), UNSET},
        {LITERAL("unset"), UNSET},
        {LITERAL("f\xcd\xaenal"), UNSET},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint8_t *copy = unit_copy(cases[i].text);

        assert_int_equal(idem_outcome_parse(idem_bytes_make(copy, cases[i].text.size)),
                         cases[i].outcome);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_what_only_a_probe_has_use_for),
        cmocka_unit_test(test_lengths_have_limits),
        cmocka_unit_test(test_for_ever_is_a_ttl),
        cmocka_unit_test(test_default_outcomes),
        cmocka_unit_test(test_declared),
        cmocka_unit_test(test_blank),
        cmocka_unit_test(test_set_one),
        cmocka_unit_test(test_set_class),
        cmocka_unit_test(test_set_refuses),
        cmocka_unit_test(test_parse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
