/* The codec: what goes in comes out, what is over a maximum does not go in, the form is frozen. */
#include "unit.h"

#include "record_sample.h"

/* Written by another implementation of the layout and of SipHash. Stores hold it: never change it.
 */
static const char golden[] =
    "6964656d010102000000000000895440111111111111111111111111111111111111111111111111"
    "11111111111111112222222222222222222222222222222201333333333333333333333333333333"
    "33333333333333333333333333333333330144444444444444444444444444444444444444444444"
    "4444444444444444444400000000000000070000000300000000009896800000000000b71b000000"
    "0000000f424000000000002dc6c000000000002625a000c900050000050002000400040003000600"
    "00000800000003616c6963656b31504f53542f706179626f6273617720697400010000000141426f"
    "6b0a8a6837244510bba2";

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
        record.reason = IDEM_REASON_INVALID;
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
    assert_int_equal(
        idem_headers_append(block, 0, size, TEXT("A"), idem_bytes_make(value, size - 7)), size);
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
        &record.scope,          &record.key,         &record.resolution.who, &record.resolution.why,
        &record.answer.headers, &record.answer.body,
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

#define ASSERT_INVALID(field, value)          \
    do {                                      \
        struct idem_record record = sample(); \
                                              \
        record.field = (value);               \
        assert_invalid(&record);              \
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),          cmocka_unit_test(test_every_kind_and_state),
        cmocka_unit_test(test_every_reason),    cmocka_unit_test(test_empty_parts),
        cmocka_unit_test(test_extreme_numbers), cmocka_unit_test(test_maximum_parts),
        cmocka_unit_test(test_cut_parts),       cmocka_unit_test(test_meaningless_is_dropped),
        cmocka_unit_test(test_size_refuses),    cmocka_unit_test(test_tombstone_reasons),
        cmocka_unit_test(test_header_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
