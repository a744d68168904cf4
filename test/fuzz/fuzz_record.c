/*
 * Records: the bytes as they are, then with a right checksum behind them, for no fuzzer guesses
 * one.
 *
 *   1. whatever is decoded is encoded to the very same bytes
 *   2. a sweeper's look at it agrees
 *   3. time may be asked for at any instant
 */
#include "fuzz.h"

#include <idem/record.h>

#include "core/record_codec.h"

static void check_times(const struct idem_record *record)
{
    const int64_t instants[] = {
        INT64_MIN, -1, 0, record->updated_us, record->lease_until_us, record->expires_us, INT64_MAX,
    };

    for (size_t i = 0; i < sizeof instants / sizeof instants[0]; i++) {
        enum idem_state state = idem_record_state_at(record, instants[i]);

        FUZZ_CHECK(idem_state_text(state) != NULL);
        FUZZ_CHECK(state == record->state || record->state == IDEM_STATE_PROCESSING);
        (void)idem_record_expired_at(record, instants[i]);
    }
    (void)idem_record_unknown_since_us(record);
}

static void check_record(struct idem_bytes blob, const struct idem_record *record)
{
    size_t size = 0;
    int64_t expires_us = 0;
    uint8_t *again;

    FUZZ_CHECK(idem_record_size(record, &size) == IDEM_OK);
    FUZZ_CHECK(size == blob.size);
    again = malloc(size);
    FUZZ_CHECK(again != NULL);
    idem_record_encode(record, again, size);
    FUZZ_CHECK(memcmp(again, blob.data, size) == 0);
    free(again);
    FUZZ_CHECK(idem_record_peek_expiry(blob, &expires_us) == IDEM_OK);
    FUZZ_CHECK(expires_us == record->expires_us);
    check_times(record);
}

static void check_blob(struct idem_bytes blob)
{
    struct idem_record record;
    int64_t expires_us;
    int error = idem_record_decode(blob, &record);

    FUZZ_CHECK(error == IDEM_OK || error == IDEM_ERR_CORRUPT);
    if (error == IDEM_OK)
        check_record(blob, &record);
    error = idem_record_peek_expiry(blob, &expires_us);
    FUZZ_CHECK(error == IDEM_OK || error == IDEM_ERR_CORRUPT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct idem_bytes plain = idem_bytes_make(data, size);
    uint64_t checksum = idem_record_checksum(plain);
    uint8_t *forged;

    check_blob(plain);
    forged = malloc(size + IDEM_RECORD_CHECKSUM_SIZE);
    FUZZ_CHECK(forged != NULL);
    if (size > 0)
        memcpy(forged, data, size);
    for (size_t i = 0; i < IDEM_RECORD_CHECKSUM_SIZE; i++)
        forged[size + i] = (uint8_t)(checksum >> 8 * (7 - i));
    check_blob(idem_bytes_make(forged, size + IDEM_RECORD_CHECKSUM_SIZE));
    free(forged);
    return 0;
}
