/* The cursor: big-endian, never past the end, and a failure that stays. */
#include "unit.h"

#include "base/cursor.h"

static void test_read(void **state)
{
    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 'a', 'b'};
    struct idem_reader reader;

    (void)state;
    idem_reader_init(&reader, idem_bytes_make(bytes, sizeof bytes));
    assert_int_equal(idem_reader_peek(&reader), 1);
    assert_int_equal(idem_read_u8(&reader), 0x01);
    assert_int_equal(idem_read_u16(&reader), 0x0203);
    assert_int_equal(idem_read_u32(&reader), 0x04050607);
    assert_true(idem_read_u64(&reader) == UINT64_C(0x08090a0b0c0d0e0f));
    unit_assert_bytes(idem_read_bytes(&reader, 2), TEXT("ab"));
    assert_int_equal(reader.left, 0);
    assert_false(reader.failed);
    assert_int_equal(idem_reader_peek(&reader), -1);
}

/* Each width on an input that is one byte short of it, and nothing succeeds afterwards. */
static void test_read_past_end(void **state)
{
    static const size_t widths[] = {1, 2, 4, 8};

    (void)state;
    for (size_t i = 0; i < COUNT(widths); i++) {
        uint8_t *copy = unit_copy(idem_bytes_make("\xff\xff\xff\xff\xff\xff\xff", widths[i] - 1));
        struct idem_reader reader;
        uint64_t value = 1;

        idem_reader_init(&reader, idem_bytes_make(copy, widths[i] - 1));
        if (widths[i] == 1)
            value = idem_read_u8(&reader);
        else if (widths[i] == 2)
            value = idem_read_u16(&reader);
        else if (widths[i] == 4)
            value = idem_read_u32(&reader);
        else
            value = idem_read_u64(&reader);
        assert_true(value == 0);
        assert_true(reader.failed);
        assert_int_equal(idem_read_u8(&reader), 0);
        assert_int_equal(idem_read_bytes(&reader, 0).size, 0);
        assert_int_equal(idem_reader_peek(&reader), -1);
        assert_true(reader.failed);
        free(copy);
    }
}

static void test_read_bytes_past_end(void **state)
{
    struct idem_reader reader;
    struct idem_bytes taken;

    (void)state;
    idem_reader_init(&reader, TEXT("abc"));
    taken = idem_read_bytes(&reader, 4);
    assert_int_equal(taken.size, 0);
    assert_true(reader.failed);

    idem_reader_init(&reader, TEXT("abc"));
    assert_int_equal(idem_read_bytes(&reader, SIZE_MAX).size, 0);
    assert_true(reader.failed);
}

static void test_read_nothing(void **state)
{
    struct idem_reader reader;

    (void)state;
    idem_reader_init(&reader, idem_bytes_make(NULL, 0));
    assert_int_equal(idem_read_bytes(&reader, 0).size, 0);
    assert_false(reader.failed);
    assert_int_equal(idem_reader_peek(&reader), -1);
    assert_false(reader.failed);
    assert_int_equal(idem_read_u8(&reader), 0);
    assert_true(reader.failed);
}

static void test_fail(void **state)
{
    struct idem_reader reader;

    (void)state;
    idem_reader_init(&reader, TEXT("abc"));
    idem_reader_fail(&reader);
    assert_true(reader.failed);
    assert_int_equal(idem_reader_peek(&reader), -1);
    assert_int_equal(idem_read_u8(&reader), 0);
}

static void test_write(void **state)
{
    uint8_t memory[17];
    struct idem_writer writer;

    (void)state;
    idem_writer_init(&writer, memory, sizeof memory);
    idem_write_u8(&writer, 0x01);
    idem_write_u16(&writer, 0x0203);
    idem_write_u32(&writer, 0x04050607);
    idem_write_u64(&writer, UINT64_C(0x08090a0b0c0d0e0f));
    idem_write_bytes(&writer, TEXT("ab"));
    idem_write_bytes(&writer, idem_bytes_make(NULL, 0));
    assert_false(writer.failed);
    assert_int_equal(writer.left, 0);
    unit_assert_bytes(idem_bytes_make(memory, sizeof memory),
                      TEXT("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
                           "ab"));
}

/* What does not fit is not written in part, and nothing is written after it. */
static void test_write_past_end(void **state)
{
    uint8_t memory[4] = {0xa5, 0xa5, 0xa5, 0xa5};
    struct idem_writer writer;

    (void)state;
    idem_writer_init(&writer, memory, 3);
    idem_write_u32(&writer, 0);
    assert_true(writer.failed);
    idem_write_u8(&writer, 0);
    assert_true(writer.failed);
    unit_assert_bytes(idem_bytes_make(memory, 4), TEXT("\xa5\xa5\xa5\xa5"));

    idem_writer_init(&writer, NULL, 0);
    idem_write_bytes(&writer, idem_bytes_make(NULL, 0));
    assert_false(writer.failed);
    idem_write_u8(&writer, 0);
    assert_true(writer.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_read_past_end),
        cmocka_unit_test(test_read_bytes_past_end),
        cmocka_unit_test(test_read_nothing),
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_past_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
