/* A record to encode, for the tests of the codec. */
#ifndef IDEM_TEST_RECORD_SAMPLE_H
#define IDEM_TEST_RECORD_SAMPLE_H

#include <idem/record.h>

#include "unit.h"

/* A completed record with every part, the one that the golden blob holds. */
static inline struct idem_record sample(void)
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

/* Encodes into a block without a byte to spare; the caller frees it. */
static inline struct idem_bytes encode(const struct idem_record *record)
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

static inline void release(struct idem_bytes blob)
{
    free((void *)(uintptr_t)blob.data);
}

#endif
