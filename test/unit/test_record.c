/* The life of a record by the clock alone. */
#include "unit.h"

#include <idem/record.h>

#define SECOND IDEM_SECOND_US

static void test_expired(void **state)
{
    static const struct {
        int64_t expires_us, now_us;
        bool expired;
    } cases[] = {
        {10, 9, false},
        {10, 10, true},
        {10, 11, true},
        {0, 0, true},
        {0, -1, false},
        {IDEM_NEVER_US, IDEM_NEVER_US - 1, false},
        {IDEM_NEVER_US, IDEM_NEVER_US, false},
        {IDEM_NEVER_US - 1, IDEM_NEVER_US - 1, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct idem_record record = {.expires_us = cases[i].expires_us};

        assert_int_equal(idem_record_expired_at(&record, cases[i].now_us), cases[i].expired);
    }
}

static const struct {
    const char *says;
    int64_t lease_us, lease_until_us, now_us;
    bool lapsed;
} lapses[] = {
    {"just claimed", 10 * SECOND, 110 * SECOND, 100 * SECOND, false},
    {"the last microsecond", 10 * SECOND, 110 * SECOND, 110 * SECOND - 1, false},
    {"the end", 10 * SECOND, 110 * SECOND, 110 * SECOND, true},
    {"long ago", 10 * SECOND, 110 * SECOND, 1000 * SECOND, true},
    {"clock back by one lease: twice its length ahead", 10 * SECOND, 110 * SECOND, 90 * SECOND,
     false},
    {"and a microsecond more", 10 * SECOND, 110 * SECOND, 90 * SECOND - 1, true},
    {"clock back by a day", 10 * SECOND, 86400 * SECOND, 0, true},
    {"a lease of nothing, at its end", 0, 100, 100, true},
    {"a lease of nothing, clock back", 0, 100, 99, true},
    {"the longest lease", IDEM_LEASE_US_MAX, IDEM_LEASE_US_MAX, 0, false},
    {"the longest lease, clock back", IDEM_LEASE_US_MAX, 3 * IDEM_LEASE_US_MAX, 0, true},
    {"the end of time from its beginning", 10 * SECOND, INT64_MAX, INT64_MIN, true},
    {"a lease as long as time", INT64_MAX, INT64_MAX, 0, false},
    {"from its beginning", INT64_MAX, INT64_MAX, INT64_MIN, true},
    {"a lease that makes no sense", -1, 100, 99, true},
};

static void test_lapsed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(lapses); i++) {
        struct idem_record record = {
            .lease_us = lapses[i].lease_us,
            .lease_until_us = lapses[i].lease_until_us,
        };

        if (idem_record_lapsed_at(&record, lapses[i].now_us) != lapses[i].lapsed)
            fail_msg("%s", lapses[i].says);
    }
}

/* Only PROCESSING depends on the time, and nothing is written when it becomes UNKNOWN. */
static void test_state_at(void **state)
{
    (void)state;
    for (int s = IDEM_STATE_PROCESSING; s <= IDEM_STATE_UNKNOWN; s++) {
        struct idem_record record = {
            .state = (enum idem_state)s,
            .lease_us = 10,
            .lease_until_us = 110,
        };

        assert_int_equal(idem_record_state_at(&record, 109), s);
        assert_int_equal(idem_record_state_at(&record, 110),
                         s == IDEM_STATE_PROCESSING ? IDEM_STATE_UNKNOWN : s);
        assert_int_equal(idem_record_state_at(&record, 89),
                         s == IDEM_STATE_PROCESSING ? IDEM_STATE_UNKNOWN : s);
        assert_int_equal(record.state, s);
    }
}

static void test_unknown_since(void **state)
{
    struct idem_record record = {
        .state = IDEM_STATE_UNKNOWN,
        .reason = IDEM_REASON_UNANSWERED,
        .updated_us = 105,
        .lease_until_us = 110,
    };

    (void)state;
    assert_int_equal(idem_record_unknown_since_us(&record), 105);
    record.reason = IDEM_REASON_NONE; /* as a get shows a record whose lease has lapsed */
    assert_int_equal(idem_record_unknown_since_us(&record), 110);
    record.state = IDEM_STATE_PROCESSING; /* as it is stored */
    assert_int_equal(idem_record_unknown_since_us(&record), 110);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expired),
        cmocka_unit_test(test_lapsed),
        cmocka_unit_test(test_state_at),
        cmocka_unit_test(test_unknown_since),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
