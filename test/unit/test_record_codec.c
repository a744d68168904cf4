/*
 * The codec: what goes in comes out, the form is frozen, and of all other bytes none is a record.
 * Damage behind a right checksum is made too, because a checksum alone proves nothing of the rest.
 */
#include "unit.h"

#include <idem/record.h>

#include "core/record_codec.h"

/* Where things are in version 1. */
#define AT_VERSION 4
#define AT_KIND 5
#define AT_STATE 6
#define AT_REASON 7
#define AT_EXPIRES 8
#define AT_ALGORITHM 64
#define AT_PRESENT 97
#define AT_STATUS 182
#define AT_TOMBSTONE 186

/* The record that the golden blob holds. */
static struct idem_record sample(void)
{
    static const uint8_t headers[] = {0, 1, 0, 0, 0, 1, 'A', 'B'};
    struct idem_record record = {
        .kind = IDEM_KIND_HTTP,
        .scope = TEXT("alice"),
        .key = TEXT("k1"),
        .method = TEXT("POST"),
        .path = TEXT("/pay"),
        .fingerprint.algorithm = IDEM_FINGERPRINT_RAW,
        .principal.present = true,
        .state = IDEM_STATE_COMPLETED,
        .fence = 7,
        .attempt = 3,
        .lease_us = 10000000,
        .lease_until_us = 12000000,
        .created_us = 1000000,
        .updated_us = 3000000,
        .expires_us = 9000000,
        .answer = {.status = 201, .flags = 5, .body = TEXT("ok\n")},
        .resolution = {.who = TEXT("bob"), .why = TEXT("saw it"), .at_us = 2500000},
    };

    memset(record.id.bytes, 0x11, sizeof record.id.bytes);
    memset(record.owner.bytes, 0x22, sizeof record.owner.bytes);
    memset(record.fingerprint.bytes, 0x33, sizeof record.fingerprint.bytes);
    memset(record.principal.bytes, 0x44, sizeof record.principal.bytes);
    record.answer.headers = idem_bytes_make(headers, sizeof headers);
    return record;
}

/* Written by another implementation of the layout and of SipHash. Stores hold it: never change it. */
static const char golden[] =
    "6964656d010102000000000000895440111111111111111111111111111111111111111111111111"
    "11111111111111112222222222222222222222222222222201333333333333333333333333333333"
    "33333333333333333333333333333333330144444444444444444444444444444444444444444444"
    "4444444444444444444400000000000000070000000300000000009896800000000000b71b000000"
    "0000000f424000000000002dc6c000000000002625a000c900050000050002000400040003000600"
    "00000800000003616c6963656b31504f53542f706179626f6273617720697400010000000141426f"
    "6b0a8a6837244510bba2";

/* Encodes into a block without a byte to spare; the caller frees it. */
static struct idem_bytes encode(const struct idem_record *record)
{
    uint8_t *blob;
    size_t size = 0;

    assert_int_equal(idem_record_size(record, &size), IDEM_OK);
    blob = malloc(size);
    assert_non_null(blob);
    memset(blob, 0xa5, size);
    idem_record_encode(record, blob, size);
    return idem_bytes_make(blob, size);
}

static void release(struct idem_bytes blob)
{
    free((void *)(uintptr_t)blob.data);
}

static void assert_record_equal(const struct idem_record *a, const struct idem_record *b)
{
    assert_memory_equal(&a->id, &b->id, sizeof a->id);
    assert_int_equal(a->kind, b->kind);
    unit_assert_bytes(a->scope, b->scope);
    unit_assert_bytes(a->key, b->key);
    unit_assert_bytes(a->method, b->method);
    unit_assert_bytes(a->path, b->path);
    assert_memory_equal(&a->fingerprint, &b->fingerprint, sizeof a->fingerprint);
    assert_int_equal(a->principal.present, b->principal.present);
    assert_memory_equal(a->principal.bytes, b->principal.bytes, sizeof a->principal.bytes);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->reason, b->reason);
    assert_memory_equal(&a->owner, &b->owner, sizeof a->owner);
    assert_true(a->fence == b->fence);
    assert_true(a->attempt == b->attempt);
    assert_true(a->lease_us == b->lease_us);
    assert_true(a->lease_until_us == b->lease_until_us);
    assert_true(a->created_us == b->created_us);
    assert_true(a->updated_us == b->updated_us);
    assert_true(a->expires_us == b->expires_us);
    assert_int_equal(a->answer.status, b->answer.status);
    assert_int_equal(a->answer.flags, b->answer.flags);
    assert_int_equal(a->answer.tombstone, b->answer.tombstone);
    unit_assert_bytes(a->answer.headers, b->answer.headers);
    unit_assert_bytes(a->answer.body, b->answer.body);
    unit_assert_bytes(a->resolution.who, b->resolution.who);
    unit_assert_bytes(a->resolution.why, b->resolution.why);
    assert_true(a->resolution.at_us == b->resolution.at_us);
}

static void assert_round_trip(const struct idem_record *record)
{
    struct idem_bytes blob = encode(record);
    struct idem_record decoded;
    int64_t expires_us = 0;

    assert_int_equal(idem_record_decode(blob, &decoded), IDEM_OK);
    assert_record_equal(&decoded, record);
    assert_int_equal(idem_record_peek_expiry(blob, &expires_us), IDEM_OK);
    assert_true(expires_us == record->expires_us);
    release(blob);
}

static void test_golden(void **state)
{
    struct idem_record record = sample(), decoded;
    struct idem_bytes blob = encode(&record);
    uint8_t wanted[(sizeof golden - 1) / 2];

    (void)state;
    for (size_t i = 0; i < sizeof wanted; i++) {
        char digits[3] = {golden[2 * i], golden[2 * i + 1], '\0'};

        wanted[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    unit_assert_bytes(blob, idem_bytes_make(wanted, sizeof wanted));
    assert_int_equal(idem_record_decode(idem_bytes_make(wanted, sizeof wanted), &decoded), IDEM_OK);
    assert_record_equal(&decoded, &record);
    release(blob);
}

static void answer_drop(struct idem_record *record)
{
    memset(&record->answer, 0, sizeof record->answer);
}

static void test_every_kind_and_state(void **state)
{
    (void)state;
    for (int kind = IDEM_KIND_HTTP; kind <= IDEM_KIND_SELFTEST; kind++) {
        for (int s = IDEM_STATE_PROCESSING; s <= IDEM_STATE_UNKNOWN; s++) {
            struct idem_record record = sample();

            record.kind = (enum idem_kind)kind;
            record.state = (enum idem_state)s;
            if (s != IDEM_STATE_COMPLETED)
                answer_drop(&record);
            assert_round_trip(&record);
        }
    }
}

static void test_every_reason(void **state)
{
    (void)state;
    for (int reason = IDEM_REASON_NONE; reason <= IDEM_REASON_ABORTED; reason++) {
        struct idem_record record = sample();

        record.state = IDEM_STATE_UNKNOWN;
        record.reason = (enum idem_reason)reason;
        answer_drop(&record);
        assert_round_trip(&record);
    }
    for (int reason = IDEM_REASON_TOO_LARGE; reason <= IDEM_REASON_REPLACED; reason++) {
        struct idem_record record = sample();

        answer_drop(&record);
        record.answer.tombstone = (enum idem_reason)reason;
        assert_round_trip(&record); /* of unknown status */
        record.answer.status = 201;
        assert_round_trip(&record);
    }
}

/* Nothing but an id and an owner: what a fail leaves whose claim was never seen. */
static void test_empty_parts(void **state)
{
    struct idem_record record = {.state = IDEM_STATE_FAILED};

    (void)state;
    assert_round_trip(&record);
    record.kind = IDEM_KIND_JOB;
    record.state = IDEM_STATE_COMPLETED;
    record.answer.status = 204;
    assert_round_trip(&record); /* an empty answer is an answer */
    record = sample();
    record.answer.headers = record.answer.body = idem_bytes_make(NULL, 0);
    assert_round_trip(&record);
}

static void test_extreme_numbers(void **state)
{
    struct idem_record record = sample();

    (void)state;
    record.fence = UINT64_MAX;
    record.attempt = UINT32_MAX;
    record.lease_us = IDEM_LEASE_US_MAX;
    record.lease_until_us = record.created_us = record.updated_us = IDEM_NEVER_US;
    record.expires_us = record.resolution.at_us = IDEM_NEVER_US;
    record.answer.flags = UINT16_MAX;
    record.answer.status = 999;
    assert_round_trip(&record);
    record.fence = record.attempt = 0;
    record.lease_us = record.lease_until_us = record.created_us = record.updated_us = 0;
    record.expires_us = record.resolution.at_us = 0;
    record.answer.flags = 0;
    record.answer.status = 100;
    assert_round_trip(&record);
}

/* One line that fills the header block. */
static struct idem_bytes headers_of_size(uint8_t *block, size_t size)
{
    uint8_t *value = calloc(1, size);

    assert_non_null(value);
    assert_int_equal(idem_headers_append(block, 0, size, TEXT("A"),
                                         idem_bytes_make(value, size - 7)), size);
    free(value);
    return idem_bytes_make(block, size);
}

/* Every part at its maximum, all at once; then each, alone, a byte over it. */
static void test_maximum_parts(void **state)
{
    uint8_t *memory = calloc(1, IDEM_BODY_SIZE_MAX + 1);
    uint8_t *headers = malloc(IDEM_HEADERS_SIZE_MAX + 1);
    struct idem_record record = sample();
    struct idem_bytes *const parts[] = {
        &record.scope,          &record.key,            &record.resolution.who,
        &record.resolution.why, &record.answer.headers, &record.answer.body,
    };
    size_t size = 0;

    (void)state;
    assert_non_null(memory);
    assert_non_null(headers);
    record.scope = idem_bytes_make(memory, IDEM_SCOPE_SIZE_MAX);
    record.key = idem_bytes_make(memory, IDEM_KEY_SIZE_MAX);
    record.method = idem_bytes_make(memory, IDEM_METHOD_SIZE_MAX);
    record.path = idem_bytes_make(memory, IDEM_PATH_SIZE_MAX);
    record.resolution.who = idem_bytes_make(memory, IDEM_WHO_SIZE_MAX);
    record.resolution.why = idem_bytes_make(memory, IDEM_WHY_SIZE_MAX);
    record.answer.headers = headers_of_size(headers, IDEM_HEADERS_SIZE_MAX);
    record.answer.body = idem_bytes_make(memory, IDEM_BODY_SIZE_MAX);
    assert_round_trip(&record);
    assert_int_equal(idem_record_size(&record, &size), IDEM_OK);
    assert_true(size <= IDEM_RECORD_SIZE_MAX);

    for (size_t i = 0; i < COUNT(parts); i++) {
        struct idem_bytes before = *parts[i];

        *parts[i] = parts[i] == &record.answer.headers
                        ? headers_of_size(headers, IDEM_HEADERS_SIZE_MAX + 1)
                        : idem_bytes_make(memory, before.size + 1);
        size = 77;
        assert_int_equal(idem_record_size(&record, &size), IDEM_ERR_INVALID);
        assert_int_equal(size, 77);
        *parts[i] = before;
        (void)headers_of_size(headers, IDEM_HEADERS_SIZE_MAX);
    }
    free(memory);
    free(headers);
}

/* What is kept for people only is cut, because it must not make a claim fail. */
static void test_cut_parts(void **state)
{
    uint8_t memory[IDEM_PATH_SIZE_MAX + 100];
    struct idem_record record = sample(), decoded;
    struct idem_bytes blob;

    (void)state;
    memset(memory, 'p', sizeof memory);
    record.method = record.path = idem_bytes_make(memory, sizeof memory);
    blob = encode(&record);
    assert_int_equal(idem_record_decode(blob, &decoded), IDEM_OK);
    record.method = idem_bytes_make(memory, IDEM_METHOD_SIZE_MAX);
    record.path = idem_bytes_make(memory, IDEM_PATH_SIZE_MAX);
    assert_record_equal(&decoded, &record);
    release(blob);
}

/* What the state gives no meaning is not kept, so that it cannot come back with one. */
static void test_meaningless_is_dropped(void **state)
{
    struct idem_record record = sample(), decoded;
    struct idem_bytes blob;

    (void)state;
    record.state = IDEM_STATE_PROCESSING;
    record.reason = IDEM_REASON_TRUNCATED;
    record.fingerprint.algorithm = IDEM_FINGERPRINT_NONE;
    record.principal.present = false;
    blob = encode(&record);
    assert_int_equal(idem_record_decode(blob, &decoded), IDEM_OK);
    answer_drop(&record);
    record.reason = IDEM_REASON_NONE;
    memset(record.fingerprint.bytes, 0, sizeof record.fingerprint.bytes);
    memset(record.principal.bytes, 0, sizeof record.principal.bytes);
    assert_record_equal(&decoded, &record);
    release(blob);
}

static void assert_invalid(const struct idem_record *record)
{
    size_t size = 77;

    assert_int_equal(idem_record_size(record, &size), IDEM_ERR_INVALID);
    assert_int_equal(size, 77);
}

#define ASSERT_INVALID(field, value)                                                               \
    do {                                                                                           \
        struct idem_record record = sample();                                                      \
                                                                                                   \
        record.field = (value);                                                                    \
        assert_invalid(&record);                                                                   \
    } while (0)

static void test_size_refuses(void **state)
{
    struct idem_record unknown = sample();

    (void)state;
    ASSERT_INVALID(kind, (enum idem_kind)(IDEM_KIND_SELFTEST + 1));
    ASSERT_INVALID(kind, (enum idem_kind)0); /* with a key */
    ASSERT_INVALID(state, (enum idem_state)0);
    ASSERT_INVALID(state, (enum idem_state)IDEM_STATE_COUNT);
    ASSERT_INVALID(fingerprint.algorithm, IDEM_FINGERPRINT_RAW + 1);
    ASSERT_INVALID(lease_us, -1);
    ASSERT_INVALID(lease_us, IDEM_LEASE_US_MAX + 1);
    ASSERT_INVALID(lease_until_us, -1);
    ASSERT_INVALID(created_us, -1);
    ASSERT_INVALID(updated_us, -1);
    ASSERT_INVALID(expires_us, -1);
    ASSERT_INVALID(resolution.at_us, -1);
    ASSERT_INVALID(answer.status, 0);
    ASSERT_INVALID(answer.status, 99);
    ASSERT_INVALID(answer.status, 1000);
    ASSERT_INVALID(answer.tombstone, IDEM_REASON_TOO_LARGE); /* with a body */
    ASSERT_INVALID(answer.headers, TEXT("Location: /"));
    ASSERT_INVALID(answer.headers, TEXT("\0\1\0\0\0\1AB\0"));
    unknown.state = IDEM_STATE_UNKNOWN;
    unknown.reason = IDEM_REASON_TOO_LARGE; /* a reason for a tombstone, not for an unknown */
    assert_invalid(&unknown);
}

static void test_tombstone_reasons(void **state)
{
    struct idem_record record = sample();

    (void)state;
    answer_drop(&record);
    for (int reason = IDEM_REASON_UNANSWERED; reason <= IDEM_REASON_ABORTED; reason++) {
        record.answer.tombstone = (enum idem_reason)reason;
        assert_invalid(&record);
    }
    record.answer.tombstone = (enum idem_reason)(IDEM_REASON_REPLACED + 1);
    assert_invalid(&record);
    record.answer.tombstone = IDEM_REASON_NO_ROOM;
    record.answer.status = 99;
    assert_invalid(&record);
}

static void test_header_lines(void **state)
{
    uint8_t block[(IDEM_HEADER_LINES_MAX + 1) * 7];
    struct idem_record record = sample();
    size_t size = 0, blob_size;

    (void)state;
    for (size_t i = 0; i < IDEM_HEADER_LINES_MAX; i++)
        size = idem_headers_append(block, size, sizeof block, TEXT("A"), TEXT(""));
    record.answer.headers = idem_bytes_make(block, size);
    assert_round_trip(&record);
    size = idem_headers_append(block, size, sizeof block, TEXT("A"), TEXT(""));
    record.answer.headers = idem_bytes_make(block, size);
    assert_int_equal(idem_record_size(&record, &blob_size), IDEM_ERR_INVALID);
}

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
        {0, 'I'},          {3, 'n'},         {AT_VERSION, 0},     {AT_VERSION, 2},
        {AT_KIND, 0},      {AT_KIND, 8},     {AT_KIND, 255},      {AT_STATE, 0},
        {AT_STATE, 1},     {AT_STATE, 3},    {AT_STATE, 4},       {AT_STATE, 5},
        {AT_STATE, 255},   {AT_REASON, 1},   {AT_REASON, 5},      {AT_REASON, 6},
        {AT_REASON, 255},  {AT_EXPIRES, 0x80}, {AT_ALGORITHM, 0}, {AT_ALGORITHM, 2},
        {AT_PRESENT, 0},   {AT_PRESENT, 2},  {AT_PRESENT, 255},   {AT_STATUS, 0xff},
        {AT_TOMBSTONE, 1}, {AT_TOMBSTONE, 6}, {AT_TOMBSTONE, 10}, {AT_TOMBSTONE, 255},
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
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_every_kind_and_state),
        cmocka_unit_test(test_every_reason),
        cmocka_unit_test(test_empty_parts),
        cmocka_unit_test(test_extreme_numbers),
        cmocka_unit_test(test_maximum_parts),
        cmocka_unit_test(test_cut_parts),
        cmocka_unit_test(test_meaningless_is_dropped),
        cmocka_unit_test(test_size_refuses),
        cmocka_unit_test(test_tombstone_reasons),
        cmocka_unit_test(test_header_lines),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_trailing),
        cmocka_unit_test(test_every_byte_changed),
        cmocka_unit_test(test_every_byte_forged),
        cmocka_unit_test(test_unknown_numbers),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_peek),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
