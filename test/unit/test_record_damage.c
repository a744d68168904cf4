/*
 * Of all bytes that are not a record none is taken for one. Damage behind a right checksum is made
 * too, because a checksum alone proves nothing of the rest.
 */
#include "unit.h"

#include "core/record_codec.h"
#include "record_sample.h"

/* Where things are in version 1. */
#define AT_VERSION   4
#define AT_KIND      5
#define AT_STATE     6
#define AT_REASON    7
#define AT_EXPIRES   8
#define AT_ALGORITHM 64
#define AT_PRESENT   97
#define AT_STATUS    182
#define AT_TOMBSTONE 186

/* Decodes from a block without a byte to spare; on failure *ret_record must be untouched. */
static int decode(struct idem_bytes blob, struct idem_record *ret_record)
{
    uint8_t *copy = unit_copy(blob);
    struct idem_record before;
    int error;

    memset(ret_record, 0xa5, sizeof *ret_record);
    before = *ret_record;
    error = idem_record_decode(idem_bytes_make(copy, blob.size), ret_record);
    if (error != IDEM_OK) {
        assert_int_equal(error, IDEM_ERR_CORRUPT);
        assert_memory_equal(ret_record, &before, sizeof before);
    }
    free(copy);
    return error;
}

/* Puts a right checksum at the end of the blob. */
static void checksum_forge(uint8_t *blob, size_t size)
{
    size_t covered = size - IDEM_RECORD_CHECKSUM_SIZE;
    uint64_t checksum = idem_record_checksum(idem_bytes_make(blob, covered));

    for (int i = 0; i < IDEM_RECORD_CHECKSUM_SIZE; i++)
        blob[covered + (size_t)i] = (uint8_t)(checksum >> 8 * (7 - i));
}

static void test_truncated(void **state)
{
    struct idem_record record = sample(), decoded;
    struct idem_bytes blob = encode(&record);

    (void)state;
    for (size_t size = 0; size < blob.size; size++) {
        uint8_t *copy = unit_copy(idem_bytes_make(blob.data, size));

        assert_int_equal(decode(idem_bytes_make(copy, size), &decoded), IDEM_ERR_CORRUPT);
        if (size >= IDEM_RECORD_CHECKSUM_SIZE) {
            checksum_forge(copy, size);
            assert_int_equal(decode(idem_bytes_make(copy, size), &decoded), IDEM_ERR_CORRUPT);
        }
        free(copy);
    }
    release(blob);
}

static void test_trailing(void **state)
{
    struct idem_record record = sample(), decoded;
    struct idem_bytes blob = encode(&record);

    (void)state;
    for (size_t more = 1; more <= 16; more++) {
        uint8_t *longer = calloc(1, blob.size + more);

        assert_non_null(longer);
        memcpy(longer, blob.data, blob.size);
        assert_int_equal(decode(idem_bytes_make(longer, blob.size + more), &decoded),
                         IDEM_ERR_CORRUPT);
        checksum_forge(longer, blob.size + more);
        assert_int_equal(decode(idem_bytes_make(longer, blob.size + more), &decoded),
                         IDEM_ERR_CORRUPT);
        free(longer);
    }
    release(blob);
}

/* Each byte of the blob changed to each other value: never a record. */
static void test_every_byte_changed(void **state)
{
    struct idem_record record = sample(), decoded;
    struct idem_bytes blob = encode(&record);
    uint8_t *copy = unit_copy(blob);

    (void)state;
    for (size_t at = 0; at < blob.size; at++) {
        for (int flip = 1; flip < 256; flip++) {
            copy[at] = blob.data[at] ^ (uint8_t)flip;
            assert_int_equal(decode(idem_bytes_make(copy, blob.size), &decoded), IDEM_ERR_CORRUPT);
        }
        copy[at] = blob.data[at];
    }
    assert_int_equal(decode(idem_bytes_make(copy, blob.size), &decoded), IDEM_OK);
    free(copy);
    release(blob);
}

/* The same behind a right checksum: refused, or a record whose one encoding is those very bytes. */
static void test_every_byte_forged(void **state)
{
    struct idem_record record = sample(), decoded;
    struct idem_bytes blob = encode(&record);
    uint8_t *copy = unit_copy(blob);
    size_t accepted = 0;

    (void)state;
    for (size_t at = 0; at < blob.size - IDEM_RECORD_CHECKSUM_SIZE; at++) {
        for (int flip = 1; flip < 256; flip++) {
            struct idem_bytes again, forged = idem_bytes_make(copy, blob.size);

            copy[at] = blob.data[at] ^ (uint8_t)flip;
            checksum_forge(copy, blob.size);
            if (idem_record_decode(forged, &decoded) != IDEM_OK)
                continue;
            accepted++;
            again = encode(&decoded);
            unit_assert_bytes(again, forged);
            release(again);
        }
        copy[at] = blob.data[at];
    }
    assert_true(accepted > 0); /* free bytes like those of a key, or this test saw nothing */
    free(copy);
    release(blob);
}

/* Numbers that no version wrote, each behind a right checksum. */
static void test_unknown_numbers(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {
        {0, 'I'},          {3, 'n'},           {AT_VERSION, 0},    {AT_VERSION, 2},
        {AT_KIND, 0},      {AT_KIND, 8},       {AT_KIND, 255},     {AT_STATE, 0},
        {AT_STATE, 1},     {AT_STATE, 3},      {AT_STATE, 4},      {AT_STATE, 5},
        {AT_STATE, 255},   {AT_REASON, 1},     {AT_REASON, 5},     {AT_REASON, 6},
        {AT_REASON, 255},  {AT_EXPIRES, 0x80}, {AT_ALGORITHM, 0},  {AT_ALGORITHM, 2},
        {AT_PRESENT, 0},   {AT_PRESENT, 2},    {AT_PRESENT, 255},  {AT_STATUS, 0xff},
        {AT_TOMBSTONE, 1}, {AT_TOMBSTONE, 6},  {AT_TOMBSTONE, 10}, {AT_TOMBSTONE, 255},
    };
    struct idem_record record = sample(), decoded;
    struct idem_bytes blob = encode(&record);

    (void)state;
    for (size_t i = 0; i < COUNT(changes); i++) {
        uint8_t *copy = unit_copy(blob);

        assert_int_not_equal(copy[changes[i].at], changes[i].value);
        copy[changes[i].at] = changes[i].value;
        checksum_forge(copy, blob.size);
        if (decode(idem_bytes_make(copy, blob.size), &decoded) != IDEM_ERR_CORRUPT)
            fail_msg("%d at %zu was accepted", changes[i].value, changes[i].at);
        free(copy);
    }
    release(blob);
}

/* A second way to write what is not there would be a second encoding. */
static void test_one_encoding(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {
        {AT_PRESENT, 2},       /* neither absent nor present */
        {AT_PRESENT + 1, 1},   /* bytes of an absent principal */
        {AT_ALGORITHM + 1, 1}, /* bytes of a fingerprint that there is not */
        {AT_STATUS + 1, 200},  /* parts of an answer that there is not */
        {AT_STATUS + 3, 1},    {AT_TOMBSTONE, IDEM_REASON_TOO_LARGE},
    };
    struct idem_record record = {.state = IDEM_STATE_FAILED, .kind = IDEM_KIND_HTTP}, decoded;
    struct idem_bytes blob = encode(&record);

    (void)state;
    for (size_t i = 0; i < COUNT(changes); i++) {
        uint8_t *copy = unit_copy(blob);

        copy[changes[i].at] = changes[i].value;
        checksum_forge(copy, blob.size);
        if (decode(idem_bytes_make(copy, blob.size), &decoded) != IDEM_ERR_CORRUPT)
            fail_msg("%d at %zu was accepted", changes[i].value, changes[i].at);
        free(copy);
    }
    release(blob);
}

static void test_nothing(void **state)
{
    struct idem_record decoded;
    int64_t expires_us;

    (void)state;
    assert_int_equal(idem_record_decode(idem_bytes_make(NULL, 0), &decoded), IDEM_ERR_CORRUPT);
    assert_int_equal(idem_record_peek_expiry(idem_bytes_make(NULL, 0), &expires_us),
                     IDEM_ERR_CORRUPT);
}

/* A sweeper's look needs the first 16 bytes and no more. */
static void test_peek(void **state)
{
    struct idem_record record = sample();
    struct idem_bytes blob = encode(&record);

    (void)state;
    for (size_t size = 0; size <= blob.size; size++) {
        uint8_t *copy = unit_copy(idem_bytes_make(blob.data, size));
        int64_t expires_us = -7;
        int error = idem_record_peek_expiry(idem_bytes_make(copy, size), &expires_us);

        assert_int_equal(error, size < 16 ? IDEM_ERR_CORRUPT : IDEM_OK);
        assert_true(expires_us == (size < 16 ? -7 : record.expires_us));
        if (size >= 16) {
            copy[AT_EXPIRES] ^= 0x80; /* before 1970 */
            assert_int_equal(idem_record_peek_expiry(idem_bytes_make(copy, size), &expires_us),
                             IDEM_ERR_CORRUPT);
            copy[AT_EXPIRES] ^= 0x80;
            copy[AT_VERSION]++;
            assert_int_equal(idem_record_peek_expiry(idem_bytes_make(copy, size), &expires_us),
                             IDEM_ERR_CORRUPT);
        }
        free(copy);
    }
    release(blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_trailing),
        cmocka_unit_test(test_every_byte_changed),
        cmocka_unit_test(test_every_byte_forged),
        cmocka_unit_test(test_unknown_numbers),
        cmocka_unit_test(test_one_encoding),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_peek),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
