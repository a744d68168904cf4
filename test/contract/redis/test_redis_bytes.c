/* The bytes of a record in Redis, and the slots of a cluster: what needs no server. */
#include <string.h>

#include "../contract.h"
#include "base/cursor.h"
#include "store/redis/redis_store.h"

#define BLOB_MAX 4096

static struct idem_bytes bytes_of(const char *text)
{
    return idem_bytes_make(text, strlen(text));
}

/* A record with everything in it. */
static struct idem_record record_make(enum idem_state state)
{
    static uint8_t headers[64];
    size_t size =
        idem_headers_append(headers, 0, sizeof headers, bytes_of("Location"), bytes_of("/c/1"));
    struct idem_record record = {
        .kind = IDEM_KIND_HTTP,
        .scope = bytes_of("scope"),
        .key = bytes_of("key"),
        .method = bytes_of("POST"),
        .path = bytes_of("/charges"),
        .state = state,
        .reason = state == IDEM_STATE_UNKNOWN ? IDEM_REASON_TRUNCATED : IDEM_REASON_NONE,
        .fence = (UINT64_C(1) << 53) - 1,
        .attempt = UINT32_MAX,
        .lease_us = 7,
        .lease_until_us = (INT64_C(1) << 53) - 1,
        .created_us = 1,
        .updated_us = 2,
        .expires_us = IDEM_NEVER_US,
        .resolution = {bytes_of("dana"), bytes_of("asked"), 3},
    };

    record.id = idem_id_make(IDEM_KIND_HTTP, record.scope, record.key);
    record.fingerprint.algorithm = IDEM_FINGERPRINT_RAW;
    memset(record.fingerprint.bytes, 0xa1, IDEM_DIGEST_SIZE);
    record.principal.present = true;
    memset(record.principal.bytes, 0xb2, IDEM_DIGEST_SIZE);
    memset(record.owner.bytes, 0xc3, IDEM_OWNER_SIZE);
    if (state == IDEM_STATE_COMPLETED)
        record.answer = (struct idem_answer){201, 3, IDEM_REASON_NONE,
                                             idem_bytes_make(headers, size), bytes_of("paid")};
    return record;
}

static size_t record_encode(const struct idem_record *record, uint8_t *ret_blob)
{
    struct idem_writer writer;
    size_t size;

    assert_int_equal(idem_redis_record_size(record, &size), 0);
    assert_true(size <= BLOB_MAX);
    idem_writer_init(&writer, ret_blob, size);
    idem_redis_record_write(&writer, record);
    assert_false(writer.failed);
    assert_int_equal(writer.left, 0);
    return size;
}

/* By the core's codec, which has one encoding of each record. */
static void assert_same(const struct idem_record *a, const struct idem_record *b)
{
    uint8_t left[BLOB_MAX], right[BLOB_MAX];
    size_t left_size, right_size;

    assert_int_equal(idem_record_size(a, &left_size), 0);
    assert_int_equal(idem_record_size(b, &right_size), 0);
    assert_int_equal(left_size, right_size);
    idem_record_encode(a, left, left_size);
    idem_record_encode(b, right, right_size);
    assert_memory_equal(left, right, left_size);
}

static void records_come_back(void **state)
{
    uint8_t blob[BLOB_MAX];

    (void)state;
    for (int s = IDEM_STATE_PROCESSING; s <= IDEM_STATE_UNKNOWN; s++) {
        struct idem_record record = record_make((enum idem_state)s), read;
        size_t size = record_encode(&record, blob);
        bool gone;

        assert_int_equal(
            idem_redis_record_decode(&record.id, idem_bytes_make(blob, size), &read, &gone), 0);
        assert_false(gone);
        assert_same(&record, &read);
    }
}

/* Every instant that scripts cannot count exactly, in a record that is copied in, is refused. */
static void inexact_numbers_are_refused(void **state)
{
    const int64_t large = INT64_C(1) << 53;
    struct idem_record record = record_make(IDEM_STATE_PROCESSING);
    int64_t *const instants[] = {&record.lease_until_us, &record.created_us, &record.updated_us,
                                 &record.resolution.at_us};
    size_t size;

    (void)state;
    for (size_t i = 0; i < COUNT(instants); i++) {
        int64_t before = *instants[i];

        *instants[i] = large;
        assert_int_equal(idem_redis_record_size(&record, &size), IDEM_ERR_UNSUPPORTED);
        *instants[i] = before;
    }
    record.fence = (uint64_t)large;
    assert_int_equal(idem_redis_record_size(&record, &size), IDEM_ERR_UNSUPPORTED);
}

/* Wherever it is cut, or goes on, it is no record. */
static void cut_records_are_none(void **state)
{
    struct idem_record record = record_make(IDEM_STATE_COMPLETED), read;
    uint8_t blob[BLOB_MAX] = {0};
    size_t size = record_encode(&record, blob);
    bool gone;

    (void)state;
    for (size_t cut = 0; cut <= size + 1; cut++)
        assert_int_equal(
            idem_redis_record_decode(&record.id, idem_bytes_make(blob, cut), &read, &gone),
            cut == size ? 0 : IDEM_ERR_CORRUPT);
}

/*
 * A byte that is changed in a part that is told again makes it no record. Scripts write head and
 * identity, which have no checksum; there only what no record can be is found.
 */
static void changed_parts_are_found(void **state)
{
    struct idem_record record = record_make(IDEM_STATE_COMPLETED), read;
    uint8_t blob[BLOB_MAX];
    size_t size = record_encode(&record, blob);
    size_t resolution = 2 + 8 + 4 + record.resolution.who.size + record.resolution.why.size;
    size_t claim_end = size - idem_redis_answer_size(&record.answer) - resolution;
    bool gone;

    (void)state;
    for (size_t i = 0; i < size; i++) {
        int error;

        blob[i] ^= 0x40;
        error = idem_redis_record_decode(&record.id, idem_bytes_make(blob, size), &read, &gone);
        if ((i >= IDEM_REDIS_HEAD_SIZE + IDEM_REDIS_IDENTITY_SIZE && i < claim_end) ||
            i >= claim_end + resolution)
            assert_int_equal(error, IDEM_ERR_CORRUPT);
        blob[i] ^= 0x40;
    }
}

/* The vectors of the cluster's specification, and its rule of hash tags. */
static void slots_are_those_of_the_cluster(void **state)
{
    (void)state;
    assert_int_equal(idem_redis_slot("123456789"), 0x31c3);
    assert_int_equal(idem_redis_slot("foo"), 12182);
    assert_int_equal(idem_redis_slot("{foo}.bar"), idem_redis_slot("foo"));
    assert_int_equal(idem_redis_slot("a{foo}{bar}"), idem_redis_slot("foo"));
    assert_int_equal(idem_redis_slot("a{b"), idem_redis_slot("a{b"));
    assert_int_not_equal(idem_redis_slot("{}foo"), idem_redis_slot("foo"));
    assert_int_equal(idem_redis_slot("{{foo}}"), idem_redis_slot("{foo"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_back),
        cmocka_unit_test(inexact_numbers_are_refused),
        cmocka_unit_test(cut_records_are_none),
        cmocka_unit_test(changed_parts_are_found),
        cmocka_unit_test(slots_are_those_of_the_cluster),
    };

    return cmocka_run_group_tests_name("redis bytes", tests, NULL, NULL);
}
