/* The allocator seam: counts, and makes exactly the n-th allocation fail. */
#include "unit.h"

#include "base/memory.h"

static int reset(void **state)
{
    (void)state;
    (void)idem_memory_fail_at(0);
    return 0;
}

static void test_counts(void **state)
{
    void *a, *b;

    (void)state;
    a = idem_malloc(8);
    b = idem_calloc(2, 8);
    assert_non_null(a);
    assert_non_null(b);
    a = idem_realloc(a, 16);
    assert_non_null(a);
    idem_free(a);
    idem_free(b);
    idem_free(NULL);
    assert_int_equal(idem_memory_fail_at(0), 3);
    assert_int_equal(idem_memory_fail_at(0), 0);
}

static void test_zeroed(void **state)
{
    static const uint8_t zeroes[64];
    void *memory = idem_calloc(4, 16);

    (void)state;
    assert_non_null(memory);
    assert_memory_equal(memory, zeroes, sizeof zeroes);
    idem_free(memory);
}

/* The n-th fails, once, whichever function makes it, and a failed realloc leaves its memory alone.
 */
static void test_fails_once(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 4; n++) {
        uint8_t *memory[4] = {NULL};
        uint8_t *kept = idem_malloc(1);

        assert_non_null(kept);
        *kept = 7;
        (void)idem_memory_fail_at(n);
        memory[0] = idem_malloc(1);
        memory[1] = idem_calloc(1, 1);
        memory[2] = idem_realloc(kept, 2);
        memory[3] = idem_malloc(1);
        for (size_t i = 0; i < 4; i++) {
            if (i == n - 1)
                assert_null(memory[i]);
            else
                assert_non_null(memory[i]);
        }
        assert_int_equal(memory[2] != NULL ? memory[2][0] : kept[0], 7);
        if (memory[2] == NULL)
            idem_free(kept);
        for (size_t i = 0; i < 4; i++)
            idem_free(memory[i]);
        assert_int_equal(idem_memory_fail_at(0), 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_counts, reset),
        cmocka_unit_test_setup(test_zeroed, reset),
        cmocka_unit_test_setup_teardown(test_fails_once, reset, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
