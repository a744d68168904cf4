/*
 * The binary form of a record, version 1, all numbers big-endian:
 *
 *   at 0     u32 magic "idem", u8 version, u8 kind, u8 state, u8 reason
 *   at 8     u64 expires                  (here, so that a sweeper reads 16 bytes and no more)
 *   at 16    id, owner, u8 algorithm, fingerprint, u8 present, principal
 *            u64 fence, u32 attempt, u64 lease, lease_until, created, updated, resolved at
 *            u16 status, u16 flags, u8 tombstone
 *            u16 sizes of scope, key, method, path, who, why; u32 sizes of headers, body
 *   then     the bytes of these eight, in this order
 *   last     u64 checksum of all of the above
 *
 * There is exactly one encoding of a record, and the decoder takes no other: whatever it accepts
 * would be encoded to the same bytes again. The fuzzer holds it to that.
 */
#include "core/record_codec.h"

#include <assert.h>
#include <idem/record.h>
#include <sodium.h>

#include "base/cursor.h"

#define MAGIC   0x6964656du /* "idem" */
#define VERSION 1

#define PARTS_COUNT 8
#define PARTS_SHORT 6 /* this many have a u16 size, the rest a u32 */
#define HEAD_SIZE   16
#define FIXED_SIZE                                                                                 \
    (HEAD_SIZE + IDEM_ID_SIZE + IDEM_OWNER_SIZE + 2 * (1 + IDEM_DIGEST_SIZE) + 8 + 4 + 5 * 8 + 5 + \
     PARTS_SHORT * 2 + (PARTS_COUNT - PARTS_SHORT) * 4)

static const size_t part_sizes_max[PARTS_COUNT] = {
    IDEM_SCOPE_SIZE_MAX, IDEM_KEY_SIZE_MAX, IDEM_METHOD_SIZE_MAX,  IDEM_PATH_SIZE_MAX,
    IDEM_WHO_SIZE_MAX,   IDEM_WHY_SIZE_MAX, IDEM_HEADERS_SIZE_MAX, IDEM_BODY_SIZE_MAX,
};

_Static_assert(FIXED_SIZE + IDEM_SCOPE_SIZE_MAX + IDEM_KEY_SIZE_MAX + IDEM_METHOD_SIZE_MAX +
                       IDEM_PATH_SIZE_MAX + IDEM_WHO_SIZE_MAX + IDEM_WHY_SIZE_MAX +
                       IDEM_HEADERS_SIZE_MAX + IDEM_BODY_SIZE_MAX + IDEM_RECORD_CHECKSUM_SIZE <=
                   IDEM_RECORD_SIZE_MAX,
               "the largest record is within the maximum");

/*
 * SipHash with a key that everybody knows: against damage by chance, which it misses once in 2^64,
 * not against an attacker, who could as well write a whole record.
 */
uint64_t idem_record_checksum(struct idem_bytes covered)
{
    static const uint8_t key[crypto_shorthash_KEYBYTES] = "idem record v1";
    uint8_t hash[crypto_shorthash_BYTES];
    struct idem_reader reader;

    _Static_assert(sizeof hash == IDEM_RECORD_CHECKSUM_SIZE, "the checksum is one SipHash");
    crypto_shorthash(hash, covered.data, covered.size, key);
    idem_reader_init(&reader, idem_bytes_make(hash, sizeof hash));
    return idem_read_u64(&reader);
}

/* True when the block is header lines from its first byte to its last, and not too many. */
static bool headers_valid(struct idem_bytes headers)
{
    struct idem_bytes name, value;
    size_t lines = 0;

    while (idem_headers_next(&headers, &name, &value))
        lines++;
    return headers.size == 0 && lines <= IDEM_HEADER_LINES_MAX;
}

static bool answer_valid(const struct idem_answer *answer)
{
    bool status_valid = answer->status >= 100 && answer->status <= 999;

    if (answer->tombstone == IDEM_REASON_NONE)
        return status_valid && headers_valid(answer->headers);
    return answer->tombstone >= IDEM_REASON_TOO_LARGE &&
           answer->tombstone <= IDEM_REASON_REPLACED && (status_valid || answer->status == 0) &&
           answer->headers.size == 0 && answer->body.size == 0;
}

/* A record that is not COMPLETED carries no answer at all. */
static bool answer_blank(const struct idem_answer *answer)
{
    return answer->status == 0 && answer->flags == 0 && answer->tombstone == IDEM_REASON_NONE &&
           answer->headers.size == 0 && answer->body.size == 0;
}

/*
 * Every record names its kind, except the FAILED{owner} that `fail` leaves on an absent id: it
 * stands for a claim that was never seen, of which nothing but id and owner is known. It stays
 * without a kind when a person resolves it, so neither its state nor its attempt can be asked for.
 */
static bool kind_valid(const struct idem_record *record)
{
    if (record->kind == 0)
        return record->scope.size == 0 && record->key.size == 0;
    return idem_kind_text(record->kind) != NULL;
}

static bool reason_valid(const struct idem_record *record)
{
    if (record->state != IDEM_STATE_UNKNOWN)
        return record->reason == IDEM_REASON_NONE;
    return idem_reason_is_unknown(record->reason);
}

static bool times_valid(const struct idem_record *record)
{
    return record->lease_us >= 0 && record->lease_us <= IDEM_LEASE_US_MAX &&
           record->lease_until_us >= 0 && record->created_us >= 0 && record->updated_us >= 0 &&
           record->expires_us >= 0 && record->resolution.at_us >= 0;
}

static bool digests_valid(const struct idem_record *record)
{
    const struct idem_fingerprint *fingerprint = &record->fingerprint;
    const struct idem_principal *principal = &record->principal;

    if (fingerprint->algorithm > IDEM_FINGERPRINT_RAW)
        return false;
    if (fingerprint->algorithm == IDEM_FINGERPRINT_NONE &&
        !sodium_is_zero(fingerprint->bytes, sizeof fingerprint->bytes))
        return false;
    return principal->present || sodium_is_zero(principal->bytes, sizeof principal->bytes);
}

static void parts_collect(const struct idem_record *record,
                          struct idem_bytes ret_parts[PARTS_COUNT])
{
    const struct idem_bytes parts[PARTS_COUNT] = {
        record->scope,          record->key,
        record->method,         record->path,
        record->resolution.who, record->resolution.why,
        record->answer.headers, record->answer.body,
    };

    memcpy(ret_parts, parts, sizeof parts);
}

/* What every record in a store must be, whichever way it is going. */
static bool record_valid(const struct idem_record *record)
{
    struct idem_bytes parts[PARTS_COUNT];

    parts_collect(record, parts);
    for (size_t i = 0; i < PARTS_COUNT; i++)
        if (parts[i].size > part_sizes_max[i])
            return false;
    if (!kind_valid(record) || idem_state_text(record->state) == NULL)
        return false;
    if (!reason_valid(record) || !times_valid(record) || !digests_valid(record))
        return false;
    return record->state == IDEM_STATE_COMPLETED ? answer_valid(&record->answer)
                                                 : answer_blank(&record->answer);
}

static struct idem_bytes bytes_cut(struct idem_bytes bytes, size_t size_max)
{
    return idem_bytes_make(bytes.data, bytes.size < size_max ? bytes.size : size_max);
}

/* The record as it is written: without what its state gives no meaning, or nobody may rely on. */
static struct idem_record record_normalize(const struct idem_record *record)
{
    struct idem_record normal = *record;

    normal.method = bytes_cut(normal.method, IDEM_METHOD_SIZE_MAX);
    normal.path = bytes_cut(normal.path, IDEM_PATH_SIZE_MAX);
    if (normal.state != IDEM_STATE_UNKNOWN)
        normal.reason = IDEM_REASON_NONE;
    if (normal.state != IDEM_STATE_COMPLETED)
        memset(&normal.answer, 0, sizeof normal.answer);
    if (normal.fingerprint.algorithm == IDEM_FINGERPRINT_NONE)
        memset(normal.fingerprint.bytes, 0, sizeof normal.fingerprint.bytes);
    if (!normal.principal.present)
        memset(normal.principal.bytes, 0, sizeof normal.principal.bytes);
    return normal;
}

static size_t record_size(const struct idem_record *normal)
{
    struct idem_bytes parts[PARTS_COUNT];
    size_t size = FIXED_SIZE + IDEM_RECORD_CHECKSUM_SIZE;

    parts_collect(normal, parts);
    for (size_t i = 0; i < PARTS_COUNT; i++)
        size += parts[i].size;
    return size;
}

int idem_record_size(const struct idem_record *record, size_t *ret_size)
{
    struct idem_record normal = record_normalize(record);

    if (!record_valid(&normal))
        return IDEM_ERR_INVALID;
    *ret_size = record_size(&normal);
    return IDEM_OK;
}

static void write_fixed(struct idem_writer *writer, const struct idem_record *record)
{
    idem_write_u32(writer, MAGIC);
    idem_write_u8(writer, VERSION);
    idem_write_u8(writer, (uint8_t)record->kind);
    idem_write_u8(writer, (uint8_t)record->state);
    idem_write_u8(writer, (uint8_t)record->reason);
    idem_write_u64(writer, (uint64_t)record->expires_us);
    idem_write_bytes(writer, idem_bytes_make(record->id.bytes, IDEM_ID_SIZE));
    idem_write_bytes(writer, idem_bytes_make(record->owner.bytes, IDEM_OWNER_SIZE));
    idem_write_u8(writer, record->fingerprint.algorithm);
    idem_write_bytes(writer, idem_bytes_make(record->fingerprint.bytes, IDEM_DIGEST_SIZE));
    idem_write_u8(writer, record->principal.present);
    idem_write_bytes(writer, idem_bytes_make(record->principal.bytes, IDEM_DIGEST_SIZE));
    idem_write_u64(writer, record->fence);
    idem_write_u32(writer, record->attempt);
    idem_write_u64(writer, (uint64_t)record->lease_us);
    idem_write_u64(writer, (uint64_t)record->lease_until_us);
    idem_write_u64(writer, (uint64_t)record->created_us);
    idem_write_u64(writer, (uint64_t)record->updated_us);
    idem_write_u64(writer, (uint64_t)record->resolution.at_us);
    idem_write_u16(writer, record->answer.status);
    idem_write_u16(writer, record->answer.flags);
    idem_write_u8(writer, (uint8_t)record->answer.tombstone);
}

static void write_parts(struct idem_writer *writer, const struct idem_record *record)
{
    struct idem_bytes parts[PARTS_COUNT];

    parts_collect(record, parts);
    for (size_t i = 0; i < PARTS_COUNT; i++) {
        if (i < PARTS_SHORT)
            idem_write_u16(writer, (uint16_t)parts[i].size);
        else
            idem_write_u32(writer, (uint32_t)parts[i].size);
    }
    for (size_t i = 0; i < PARTS_COUNT; i++)
        idem_write_bytes(writer, parts[i]);
}

void idem_record_encode(const struct idem_record *record, uint8_t *blob, size_t size)
{
    struct idem_record normal = record_normalize(record);
    struct idem_writer writer;

    assert(record_valid(&normal) && size == record_size(&normal));
    idem_writer_init(&writer, blob, size);
    write_fixed(&writer, &normal);
    write_parts(&writer, &normal);
    idem_write_u64(&writer,
                   idem_record_checksum(idem_bytes_make(blob, size - IDEM_RECORD_CHECKSUM_SIZE)));
    assert(!writer.failed && writer.left == 0);
}

static void read_array(struct idem_reader *reader, uint8_t *ret_bytes, size_t size)
{
    struct idem_bytes bytes = idem_read_bytes(reader, size);

    if (bytes.size == size)
        memcpy(ret_bytes, bytes.data, size);
}

/* A number that stands for true or false and nothing else. */
static bool read_bool(struct idem_reader *reader)
{
    uint8_t value = idem_read_u8(reader);

    if (value > 1)
        idem_reader_fail(reader);
    return value == 1;
}

static void read_fixed(struct idem_reader *reader, struct idem_record *record)
{
    if (idem_read_u32(reader) != MAGIC || idem_read_u8(reader) != VERSION)
        idem_reader_fail(reader);
    record->kind = (enum idem_kind)idem_read_u8(reader);
    record->state = (enum idem_state)idem_read_u8(reader);
    record->reason = (enum idem_reason)idem_read_u8(reader);
    record->expires_us = (int64_t)idem_read_u64(reader);
    read_array(reader, record->id.bytes, IDEM_ID_SIZE);
    read_array(reader, record->owner.bytes, IDEM_OWNER_SIZE);
    record->fingerprint.algorithm = idem_read_u8(reader);
    read_array(reader, record->fingerprint.bytes, IDEM_DIGEST_SIZE);
    record->principal.present = read_bool(reader);
    read_array(reader, record->principal.bytes, IDEM_DIGEST_SIZE);
    record->fence = idem_read_u64(reader);
    record->attempt = idem_read_u32(reader);
    record->lease_us = (int64_t)idem_read_u64(reader);
    record->lease_until_us = (int64_t)idem_read_u64(reader);
    record->created_us = (int64_t)idem_read_u64(reader);
    record->updated_us = (int64_t)idem_read_u64(reader);
    record->resolution.at_us = (int64_t)idem_read_u64(reader);
    record->answer.status = idem_read_u16(reader);
    record->answer.flags = idem_read_u16(reader);
    record->answer.tombstone = (enum idem_reason)idem_read_u8(reader);
}

static void read_parts(struct idem_reader *reader, struct idem_record *record)
{
    struct idem_bytes *const parts[PARTS_COUNT] = {
        &record->scope,          &record->key,
        &record->method,         &record->path,
        &record->resolution.who, &record->resolution.why,
        &record->answer.headers, &record->answer.body,
    };
    size_t sizes[PARTS_COUNT];

    for (size_t i = 0; i < PARTS_COUNT; i++)
        sizes[i] = i < PARTS_SHORT ? idem_read_u16(reader) : idem_read_u32(reader);
    for (size_t i = 0; i < PARTS_COUNT; i++)
        *parts[i] = idem_read_bytes(reader, sizes[i]);
}

int idem_record_decode(struct idem_bytes blob, struct idem_record *ret_record)
{
    struct idem_record record = {0};
    struct idem_bytes covered, checksum;
    struct idem_reader reader;

    if (blob.size < FIXED_SIZE + IDEM_RECORD_CHECKSUM_SIZE || blob.size > IDEM_RECORD_SIZE_MAX)
        return IDEM_ERR_CORRUPT;
    covered = idem_bytes_make(blob.data, blob.size - IDEM_RECORD_CHECKSUM_SIZE);
    checksum = idem_bytes_make(blob.data + covered.size, IDEM_RECORD_CHECKSUM_SIZE);
    idem_reader_init(&reader, checksum);
    if (idem_read_u64(&reader) != idem_record_checksum(covered))
        return IDEM_ERR_CORRUPT;
    idem_reader_init(&reader, covered);
    read_fixed(&reader, &record);
    read_parts(&reader, &record);
    if (reader.failed || reader.left > 0 || !record_valid(&record))
        return IDEM_ERR_CORRUPT;
    *ret_record = record;
    return IDEM_OK;
}

int idem_record_peek_expiry(struct idem_bytes blob, int64_t *ret_expires_us)
{
    struct idem_reader reader;
    int64_t expires_us;

    idem_reader_init(&reader, blob);
    if (idem_read_u32(&reader) != MAGIC || idem_read_u8(&reader) != VERSION)
        return IDEM_ERR_CORRUPT;
    (void)idem_read_bytes(&reader, 3); /* kind, state, reason */
    expires_us = (int64_t)idem_read_u64(&reader);
    if (reader.failed || expires_us < 0)
        return IDEM_ERR_CORRUPT;
    *ret_expires_us = expires_us;
    return IDEM_OK;
}
