/* Problems: the body is valid JSON whatever goes in, says what the kind says, and fits. */
#include "unit.h"

#include <idem/problem.h>
#include <jansson.h>

static const struct {
    enum idem_problem_kind kind;
    unsigned status;
    const char *type, *retry;
    bool retry_after;
} kinds[] = {
    {IDEM_PROBLEM_KEY_MISSING, 400, "urn:idem:problem:key-missing", "new-key", false},
    {IDEM_PROBLEM_KEY_MALFORMED, 400, "urn:idem:problem:key-malformed", "new-key", false},
    {IDEM_PROBLEM_KEY_REUSED, 422, "urn:idem:problem:key-reused", "new-key", false},
    {IDEM_PROBLEM_OTHER_CALLER, 403, "urn:idem:problem:other-caller", "no", false},
    {IDEM_PROBLEM_IN_PROGRESS, 409, "urn:idem:problem:in-progress", "same-key", true},
    {IDEM_PROBLEM_OUTCOME_UNKNOWN, 409, "urn:idem:problem:outcome-unknown", "same-key", true},
    {IDEM_PROBLEM_ANSWER_NOT_KEPT, 409, "urn:idem:problem:answer-not-kept", "no", false},
    {IDEM_PROBLEM_STORE_UNAVAILABLE, 503, "urn:idem:problem:store-unavailable", "same-key", true},
    {IDEM_PROBLEM_STORE_FULL, 503, "urn:idem:problem:store-full", "same-key", true},
    {IDEM_PROBLEM_UPSTREAM_UNREACHABLE, 502, "urn:idem:problem:upstream-unreachable", "same-key",
     true},
    {IDEM_PROBLEM_UPSTREAM_UNANSWERED, 502, "urn:idem:problem:upstream-unanswered", "same-key",
     true},
};

/* Formats into a block of exactly the maximum and parses; the caller releases the document. */
static json_t *format(const struct idem_problem *problem)
{
    char *body = malloc(IDEM_PROBLEM_SIZE_MAX);
    json_error_t error;
    json_t *document;
    size_t size;

    assert_non_null(body);
    size = idem_problem_format(problem, body);
    assert_true(size <= IDEM_PROBLEM_SIZE_MAX);
    document = json_loadb(body, size, JSON_REJECT_DUPLICATES, &error);
    if (document == NULL)
        fail_msg("%s in %.*s", error.text, (int)size, body);
    free(body);
    return document;
}

static const char *text_of(json_t *document, const char *member)
{
    const char *text = json_string_value(json_object_get(document, member));

    assert_non_null(text);
    return text;
}

static void test_kinds(void **state)
{
    (void)state;
    assert_int_equal(COUNT(kinds), IDEM_PROBLEM_COUNT - 1);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct idem_problem problem = idem_problem_make(kinds[i].kind);
        json_t *document = format(&problem);

        assert_int_equal(problem.kind, kinds[i].kind);
        assert_int_equal(problem.status, kinds[i].status);
        assert_int_equal(problem.retry_after_s > 0, kinds[i].retry_after);
        assert_null(problem.detail);
        assert_string_equal(idem_problem_type(kinds[i].kind), kinds[i].type);
        assert_string_equal(idem_problem_retry(kinds[i].kind), kinds[i].retry);

        assert_string_equal(text_of(document, "type"), kinds[i].type);
        assert_string_equal(text_of(document, "title"), idem_problem_title(kinds[i].kind));
        assert_string_equal(text_of(document, "retry"), kinds[i].retry);
        assert_true(strlen(text_of(document, "detail")) > 40);
        assert_int_equal(json_integer_value(json_object_get(document, "status")), kinds[i].status);
        assert_int_equal(json_object_size(document), 5);
        json_decref(document);
    }
}

/* RFC 9457, 3.1.1: the type identifies the problem, so no two share one; nor do titles. */
static void test_distinct(void **state)
{
    (void)state;
    for (int a = 0; a < IDEM_PROBLEM_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(idem_problem_type((enum idem_problem_kind)a),
                                    idem_problem_type((enum idem_problem_kind)b));
            assert_string_not_equal(idem_problem_title((enum idem_problem_kind)a),
                                    idem_problem_title((enum idem_problem_kind)b));
        }
    }
}

static void test_status(void **state)
{
    struct idem_problem problem = idem_problem_make(IDEM_PROBLEM_KEY_REUSED);
    json_t *document;

    (void)state;
    problem.status = 409;
    document = format(&problem);
    assert_int_equal(json_integer_value(json_object_get(document, "status")), 409);
    json_decref(document);

    problem.status = 0;
    document = format(&problem);
    assert_int_equal(json_integer_value(json_object_get(document, "status")), 422);
    json_decref(document);
}

static void test_original_status(void **state)
{
    struct idem_problem problem = idem_problem_make(IDEM_PROBLEM_ANSWER_NOT_KEPT);
    json_t *document;

    (void)state;
    problem.original_status = 201;
    document = format(&problem);
    assert_int_equal(json_integer_value(json_object_get(document, "original_status")), 201);
    assert_int_equal(json_object_size(document), 6);
    json_decref(document);
}

static void assert_detail(const char *detail)
{
    struct idem_problem problem = idem_problem_make(IDEM_PROBLEM_KEY_MALFORMED);
    json_t *document;

    problem.detail = detail;
    document = format(&problem);
    assert_string_equal(text_of(document, "detail"), detail);
    json_decref(document);
}

static void test_detail(void **state)
{
    char controls[32];

    (void)state;
    assert_detail("");
    assert_detail("plain");
    assert_detail("\"quoted\" and back\\slashed, /slashed/");
    assert_detail("umlaut \xc3\xbc, euro \xe2\x82\xac, face \xf0\x9f\x98\x80");
    for (int i = 1; i < 32; i++)
        controls[i - 1] = (char)i;
    controls[31] = '\0';
    assert_detail(controls);
}

/* A detail of any length and any characters leaves a whole body, and the detail is cut cleanly. */
static void test_detail_is_cut(void **state)
{
    static const char *const characters[] = {"x",        "\"",           "\x01",
                                             "\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};

    (void)state;
    for (size_t i = 0; i < COUNT(characters); i++) {
        for (size_t shift = 0; shift < 6; shift++) {
            struct idem_problem problem = idem_problem_make(IDEM_PROBLEM_ANSWER_NOT_KEPT);
            size_t size = strlen(characters[i]), used = shift;
            char detail[2048];
            const char *kept;
            json_t *document;

            memset(detail, 'a', shift);
            for (; used + size < sizeof detail; used += size)
                memcpy(detail + used, characters[i], size);
            detail[used] = '\0';
            problem.detail = detail;
            problem.original_status = UINT32_MAX;
            problem.status = UINT32_MAX;
            document = format(&problem);
            kept = text_of(document, "detail");
            assert_memory_equal(kept, detail, strlen(kept));
            assert_true(strlen(kept) > 100 && strlen(kept) < IDEM_PROBLEM_SIZE_MAX);
            assert_int_equal((strlen(kept) - shift) % size, 0);
            assert_string_equal(text_of(document, "retry"), "no");
            json_decref(document);
        }
    }
}

static void test_none(void **state)
{
    struct idem_problem problem = idem_problem_make(IDEM_PROBLEM_NONE);

    (void)state;
    assert_string_equal(idem_problem_type(IDEM_PROBLEM_NONE), "about:blank");
    json_decref(format(&problem));
    assert_string_equal(idem_problem_type((enum idem_problem_kind)IDEM_PROBLEM_COUNT),
                        "about:blank");
    assert_string_equal(idem_problem_retry((enum idem_problem_kind) - 1), "no");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),  cmocka_unit_test(test_distinct),
        cmocka_unit_test(test_status), cmocka_unit_test(test_original_status),
        cmocka_unit_test(test_detail), cmocka_unit_test(test_detail_is_cut),
        cmocka_unit_test(test_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
