/* Header blocks: lines come back in order with repeats kept, and damage is never read past. */
#include "unit.h"

#include <idem/record.h>

static const struct {
    struct idem_bytes name, value;
} lines[] = {
    {LITERAL("Location"), LITERAL("/payments/1")},
    {LITERAL("Link"), LITERAL("<a>")},
    {LITERAL("Link"), LITERAL("<b>")},
    {LITERAL("X-Empty"), LITERAL("")},
    {LITERAL(""), LITERAL("no name")},
    {LITERAL(""), LITERAL("")},
    {LITERAL("X-Bytes"), LITERAL("\0\xff\r\n")},
};

/* Writes all lines; returns the block's size. */
static size_t block_fill(uint8_t *block, size_t capacity)
{
    size_t size = 0;

    for (size_t i = 0; i < COUNT(lines); i++) {
        size = idem_headers_append(block, size, capacity, lines[i].name, lines[i].value);
        assert_int_not_equal(size, 0);
    }
    return size;
}

static void test_round_trip(void **state)
{
    uint8_t block[256];
    size_t size = block_fill(block, sizeof block);
    struct idem_bytes rest = idem_bytes_make(block, size), name, value;

    (void)state;
    for (size_t i = 0; i < COUNT(lines); i++) {
        assert_true(idem_headers_next(&rest, &name, &value));
        unit_assert_bytes(name, lines[i].name);
        unit_assert_bytes(value, lines[i].value);
    }
    assert_int_equal(rest.size, 0);
    assert_false(idem_headers_next(&rest, &name, &value));
}

static void test_layout(void **state)
{
    uint8_t block[16];
    size_t size = idem_headers_append(block, 0, sizeof block, TEXT("ab"), TEXT("cde"));

    (void)state;
    unit_assert_bytes(idem_bytes_make(block, size), TEXT("\0\2\0\0\0\3abcde"));
}

/* One byte less than a line needs: 0, and nothing is written behind the capacity. */
static void test_capacity(void **state)
{
    uint8_t block[16];

    (void)state;
    for (size_t capacity = 0; capacity <= 11; capacity++) {
        size_t wanted = capacity == 11 ? 11 : 0;

        memset(block, 0xa5, sizeof block);
        assert_int_equal(idem_headers_append(block, 0, capacity, TEXT("ab"), TEXT("cde")), wanted);
        for (size_t i = capacity; i < sizeof block; i++)
            assert_int_equal(block[i], 0xa5);
    }
    assert_int_equal(idem_headers_append(block, 12, 11, TEXT(""), TEXT("")), 0);
    assert_int_equal(idem_headers_append(NULL, 0, 0, TEXT(""), TEXT("")), 0);
}

/* The widest name there can be, and one byte more than its field can say. */
static void test_widths(void **state)
{
    size_t capacity = 6 + UINT16_MAX + 1;
    uint8_t *block = malloc(capacity), *name = calloc(1, UINT16_MAX + 1);

    (void)state;
    assert_non_null(block);
    assert_non_null(name);
    assert_int_equal(
        idem_headers_append(block, 0, capacity, idem_bytes_make(name, UINT16_MAX), TEXT("v")),
        capacity);
    assert_int_equal(
        idem_headers_append(block, 0, capacity, idem_bytes_make(name, UINT16_MAX + 1), TEXT("")),
        0);
    if (SIZE_MAX > UINT32_MAX) {
        size_t size = (size_t)(UINT64_C(1) << 32); /* never read: the size alone is refused */

        assert_int_equal(
            idem_headers_append(block, 0, capacity, TEXT(""), idem_bytes_make(name, size)), 0);
    }
    free(block);
    free(name);
}

/* A block cut anywhere but between two lines ends early, with something left to tell it from an
 * end. */
static void test_truncated(void **state)
{
    uint8_t block[256];
    size_t whole = block_fill(block, sizeof block);

    (void)state;
    for (size_t size = 0; size < whole; size++) {
        uint8_t *copy = unit_copy(idem_bytes_make(block, size));
        struct idem_bytes rest = idem_bytes_make(copy, size), name, value;
        size_t end = 0, count = 0;

        while (idem_headers_next(&rest, &name, &value))
            end += 6 + lines[count].name.size + lines[count].value.size, count++;
        assert_true(count < COUNT(lines));
        assert_int_equal(rest.size, size - end);
        free(copy);
    }
}

/* Sizes that point far outside. */
static void test_damaged(void **state)
{
    static const struct idem_bytes blocks[] = {
        LITERAL("\xff\xff\xff\xff\xff\xff"),
        LITERAL("\0\0\xff\xff\xff\xff"),
        LITERAL("\0\1\xff\xff\xff\xff"
                "a"),
        LITERAL("\xff\xff\0\0\0\0"),
        LITERAL("\0"),
    };

    (void)state;
    for (size_t i = 0; i < COUNT(blocks); i++) {
        uint8_t *copy = unit_copy(blocks[i]);
        struct idem_bytes rest = idem_bytes_make(copy, blocks[i].size);
        struct idem_bytes name = TEXT("name"), value = TEXT("value");

        assert_false(idem_headers_next(&rest, &name, &value));
        assert_int_equal(rest.size, blocks[i].size);
        unit_assert_bytes(name, TEXT("name"));
        unit_assert_bytes(value, TEXT("value"));
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_layout),
        cmocka_unit_test(test_capacity),   cmocka_unit_test(test_widths),
        cmocka_unit_test(test_truncated),  cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
