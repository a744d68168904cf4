/* Words for numbers: what is stored or shown never changes, and a wrong number has no surprise. */
#include "unit.h"

#include <idem/op.h>
#include <idem/policy.h>

static void test_kinds(void **state)
{
    static const char *const words[] = {NULL,    "http", "message", "lock",
                                        "token", "job",  "tx",      "selftest"};

    (void)state;
    for (int i = 1; i <= IDEM_KIND_SELFTEST; i++)
        assert_string_equal(idem_kind_text((enum idem_kind)i), words[i]);
    assert_null(idem_kind_text((enum idem_kind)0));
    assert_null(idem_kind_text((enum idem_kind)(IDEM_KIND_SELFTEST + 1)));
    assert_null(idem_kind_text((enum idem_kind)255));
}

static void test_states(void **state)
{
    (void)state;
    assert_string_equal(idem_state_text(IDEM_STATE_PROCESSING), "processing");
    assert_string_equal(idem_state_text(IDEM_STATE_COMPLETED), "completed");
    assert_string_equal(idem_state_text(IDEM_STATE_FAILED), "failed");
    assert_string_equal(idem_state_text(IDEM_STATE_UNKNOWN), "unknown");
    assert_null(idem_state_text((enum idem_state)0));
    assert_null(idem_state_text((enum idem_state)IDEM_STATE_COUNT));
}

/* Every number of an enum has a word, and no two have the same. */
#define ASSERT_WORDS(function, type, first, last, otherwise)                   \
    do {                                                                       \
        for (int a = (first); a <= (last); a++) {                              \
            assert_string_not_equal(function((type)a), otherwise);             \
            for (int b = (first); b < a; b++)                                  \
                assert_string_not_equal(function((type)a), function((type)b)); \
        }                                                                      \
        assert_string_equal(function((type)((last) + 1)), otherwise);          \
        assert_string_equal(function((type)0), otherwise);                     \
        assert_string_equal(function((type)255), otherwise);                   \
    } while (0)

static void test_reasons(void **state)
{
    (void)state;
    ASSERT_WORDS(idem_reason_text, enum idem_reason, IDEM_REASON_UNANSWERED, IDEM_REASON_INVALID,
                 "none");
    assert_string_equal(idem_reason_text(IDEM_REASON_UNANSWERED), "unanswered");
    assert_string_equal(idem_reason_text(IDEM_REASON_TOO_LARGE), "too_large");
}

static void test_ops_and_results(void **state)
{
    (void)state;
    ASSERT_WORDS(idem_op_kind_text, enum idem_op_kind, IDEM_OP_CLAIM, IDEM_OP_PUT, "none");
    ASSERT_WORDS(idem_result_text, enum idem_result, IDEM_RESULT_OK, IDEM_RESULT_CORRUPT, "none");
    assert_string_equal(idem_op_kind_text(IDEM_OP_CLAIM), "claim");
    assert_string_equal(idem_result_text(IDEM_RESULT_IN_PROGRESS), "in_progress");
}

static void test_outcomes(void **state)
{
    (void)state;
    ASSERT_WORDS(idem_outcome_text, enum idem_outcome, IDEM_OUTCOME_FINAL, IDEM_OUTCOME_UNKNOWN,
                 "unset");
    for (int i = IDEM_OUTCOME_FINAL; i <= IDEM_OUTCOME_UNKNOWN; i++) {
        const char *word = idem_outcome_text((enum idem_outcome)i);

        assert_int_equal(idem_outcome_parse(idem_bytes_from_text(word)), i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),    cmocka_unit_test(test_states),
        cmocka_unit_test(test_reasons),  cmocka_unit_test(test_ops_and_results),
        cmocka_unit_test(test_outcomes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
