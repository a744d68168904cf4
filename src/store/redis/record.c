/*
 * The bytes of a record in Redis, all numbers big-endian:
 *
 *   head      u8 version, u8 state, u8 reason, u64 fence, u32 attempt,
 *             u64 lease, lease_until, created, updated, expires
 *   identity  owner, u8 algorithm, fingerprint, u8 present, principal
 *   claim     u16 size, then: u8 kind, u16 sizes of scope, key, method, path, their bytes, u64
 *             checksum
 *   settled   u16 size, then, if a person resolved it: u64 at, u16 sizes of who and why, their
 *             bytes
 *   answer    if COMPLETED: u16 status, u16 flags, u8 tombstone, u32 sizes of headers and body,
 *             their bytes, u64 checksum
 *
 * Scripts write the head and put the rest together from parts that are made here, so the checksums
 * are of parts, and head and identity have none. State 0 is a record that was forgotten.
 */
#include <assert.h>

#include "base/cursor.h"
#include "core/record_codec.h"
#include "store/redis/redis_store.h"

#define VERSION     1
#define STATE_GONE  0
#define NEVER_BYTES (UINT64_C(1) << 63) /* what a script makes of IDEM_NEVER_US */

#define CLAIM_FIXED  (1 + 4 * 2 + IDEM_RECORD_CHECKSUM_SIZE)
#define ANSWER_FIXED (2 + 2 + 1 + 2 * 4 + IDEM_RECORD_CHECKSUM_SIZE)
#define PEOPLE_FIXED (2 * 2)
#define PEOPLE_AT    8 /* the instant, before who and why */

void idem_redis_key_named(const struct idem_redis_options *options, const char *name,
                          char ret_key[IDEM_REDIS_KEY_MAX])
{
    size_t prefix = strlen(options->prefix), size = strlen(name) + 1;

    assert(prefix + size <= IDEM_REDIS_KEY_MAX);
    memcpy(ret_key, options->prefix, prefix);
    memcpy(ret_key + prefix, name, size);
}

void idem_redis_key_record(const struct idem_redis_options *options, const struct idem_id *id,
                           char ret_key[IDEM_REDIS_KEY_MAX])
{
    size_t prefix = strlen(options->prefix);

    memcpy(ret_key, options->prefix, prefix);
    idem_id_format(id, ret_key + prefix);
}

static size_t claim_part_size(const struct idem_record *record)
{
    return CLAIM_FIXED + record->scope.size + record->key.size + record->method.size +
           record->path.size;
}

size_t idem_redis_claim_size(const struct idem_record *record)
{
    return IDEM_REDIS_IDENTITY_SIZE + 2 + claim_part_size(record) + 2;
}

/* Ends a part that began at `start` with its checksum. */
static void checksum_write(struct idem_writer *writer, const uint8_t *start)
{
    if (!writer->failed)
        idem_write_u64(
            writer, idem_record_checksum(idem_bytes_make(start, (size_t)(writer->next - start))));
}

static void identity_write(struct idem_writer *writer, const struct idem_record *record)
{
    static const uint8_t none[IDEM_DIGEST_SIZE];
    bool printed = record->fingerprint.algorithm != IDEM_FINGERPRINT_NONE;
    bool present = record->principal.present;

    idem_write_bytes(writer, idem_bytes_make(record->owner.bytes, IDEM_OWNER_SIZE));
    idem_write_u8(writer, record->fingerprint.algorithm);
    idem_write_bytes(writer,
                     idem_bytes_make(printed ? record->fingerprint.bytes : none, IDEM_DIGEST_SIZE));
    idem_write_u8(writer, present);
    idem_write_bytes(writer,
                     idem_bytes_make(present ? record->principal.bytes : none, IDEM_DIGEST_SIZE));
}

static void claim_part_write(struct idem_writer *writer, const struct idem_record *record)
{
    const struct idem_bytes parts[] = {record->scope, record->key, record->method, record->path};
    const uint8_t *start;

    idem_write_u16(writer, (uint16_t)claim_part_size(record));
    start = writer->next;
    idem_write_u8(writer, (uint8_t)record->kind);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        idem_write_u16(writer, (uint16_t)parts[i].size);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        idem_write_bytes(writer, parts[i]);
    checksum_write(writer, start);
}

void idem_redis_claim_write(struct idem_writer *writer, const struct idem_record *record)
{
    identity_write(writer, record);
    claim_part_write(writer, record);
    idem_write_u16(writer, 0);
}

size_t idem_redis_answer_size(const struct idem_answer *answer)
{
    return ANSWER_FIXED + answer->headers.size + answer->body.size;
}

void idem_redis_answer_write(struct idem_writer *writer, const struct idem_answer *answer)
{
    const uint8_t *start = writer->next;

    idem_write_u16(writer, answer->status);
    idem_write_u16(writer, answer->flags);
    idem_write_u8(writer, (uint8_t)answer->tombstone);
    idem_write_u32(writer, (uint32_t)answer->headers.size);
    idem_write_u32(writer, (uint32_t)answer->body.size);
    idem_write_bytes(writer, answer->headers);
    idem_write_bytes(writer, answer->body);
    checksum_write(writer, start);
}

size_t idem_redis_people_size(struct idem_bytes who, struct idem_bytes why)
{
    return PEOPLE_FIXED + who.size + why.size;
}

void idem_redis_people_write(struct idem_writer *writer, struct idem_bytes who,
                             struct idem_bytes why)
{
    idem_write_u16(writer, (uint16_t)who.size);
    idem_write_u16(writer, (uint16_t)why.size);
    idem_write_bytes(writer, who);
    idem_write_bytes(writer, why);
}

static bool is_resolved(const struct idem_resolution *resolution)
{
    return resolution->at_us > 0 || resolution->who.size > 0 || resolution->why.size > 0;
}

static bool is_exact(int64_t number)
{
    return number < IDEM_REDIS_EXACT_MAX;
}

int idem_redis_record_size(const struct idem_record *record, size_t *ret_size)
{
    if (record->fence >= (uint64_t)IDEM_REDIS_EXACT_MAX || !is_exact(record->lease_until_us) ||
        !is_exact(record->created_us) || !is_exact(record->updated_us) ||
        !is_exact(record->resolution.at_us))
        return IDEM_ERR_UNSUPPORTED;
    *ret_size = IDEM_REDIS_HEAD_SIZE + idem_redis_claim_size(record);
    if (is_resolved(&record->resolution))
        *ret_size +=
            PEOPLE_AT + idem_redis_people_size(record->resolution.who, record->resolution.why);
    if (record->state == IDEM_STATE_COMPLETED)
        *ret_size += idem_redis_answer_size(&record->answer);
    return IDEM_OK;
}

static void head_write(struct idem_writer *writer, const struct idem_record *record)
{
    bool unknown = record->state == IDEM_STATE_UNKNOWN;

    idem_write_u8(writer, VERSION);
    idem_write_u8(writer, (uint8_t)record->state);
    idem_write_u8(writer, unknown ? (uint8_t)record->reason : 0);
    idem_write_u64(writer, record->fence);
    idem_write_u32(writer, record->attempt);
    idem_write_u64(writer, (uint64_t)record->lease_us);
    idem_write_u64(writer, (uint64_t)record->lease_until_us);
    idem_write_u64(writer, (uint64_t)record->created_us);
    idem_write_u64(writer, (uint64_t)record->updated_us);
    idem_write_u64(writer,
                   is_exact(record->expires_us) ? (uint64_t)record->expires_us : NEVER_BYTES);
}

void idem_redis_record_write(struct idem_writer *writer, const struct idem_record *record)
{
    const struct idem_resolution *resolution = &record->resolution;
    bool resolved = is_resolved(resolution);

    head_write(writer, record);
    identity_write(writer, record);
    claim_part_write(writer, record);
    idem_write_u16(writer, !resolved
                               ? 0
                               : (uint16_t)(PEOPLE_AT + idem_redis_people_size(resolution->who,
                                                                               resolution->why)));
    if (resolved) {
        idem_write_u64(writer, (uint64_t)resolution->at_us);
        idem_redis_people_write(writer, resolution->who, resolution->why);
    }
    if (record->state == IDEM_STATE_COMPLETED)
        idem_redis_answer_write(writer, &record->answer);
}

static void array_read(struct idem_reader *reader, uint8_t *ret_bytes, size_t size)
{
    struct idem_bytes bytes = idem_read_bytes(reader, size);

    if (bytes.size == size)
        memcpy(ret_bytes, bytes.data, size);
}

static int64_t instant_read(struct idem_reader *reader)
{
    uint64_t instant = idem_read_u64(reader);

    return instant < (uint64_t)IDEM_REDIS_EXACT_MAX ? (int64_t)instant : IDEM_NEVER_US;
}

static void head_read(struct idem_reader *reader, struct idem_record *record)
{
    if (idem_read_u8(reader) != VERSION)
        idem_reader_fail(reader);
    record->state = (enum idem_state)idem_read_u8(reader);
    record->reason = (enum idem_reason)idem_read_u8(reader);
    record->fence = idem_read_u64(reader);
    record->attempt = idem_read_u32(reader);
    record->lease_us = instant_read(reader);
    record->lease_until_us = instant_read(reader);
    record->created_us = instant_read(reader);
    record->updated_us = instant_read(reader);
    record->expires_us = instant_read(reader);
}

static void identity_read(struct idem_reader *reader, struct idem_record *record)
{
    uint8_t present;

    array_read(reader, record->owner.bytes, IDEM_OWNER_SIZE);
    record->fingerprint.algorithm = idem_read_u8(reader);
    array_read(reader, record->fingerprint.bytes, IDEM_DIGEST_SIZE);
    present = idem_read_u8(reader);
    if (present > 1)
        idem_reader_fail(reader);
    record->principal.present = present == 1;
    array_read(reader, record->principal.bytes, IDEM_DIGEST_SIZE);
}

/* Compares the checksum of what was read since `start` with the one that follows. */
static void checksum_read(struct idem_reader *reader, const uint8_t *start)
{
    uint64_t wanted;

    if (reader->failed)
        return;
    wanted = idem_record_checksum(idem_bytes_make(start, (size_t)(reader->next - start)));
    if (idem_read_u64(reader) != wanted)
        idem_reader_fail(reader);
}

static void claim_part_read(struct idem_reader *reader, struct idem_record *record)
{
    struct idem_bytes *const parts[] = {&record->scope, &record->key, &record->method,
                                        &record->path};
    size_t sizes[sizeof parts / sizeof parts[0]];
    size_t size = idem_read_u16(reader);
    const uint8_t *start = reader->next;

    record->kind = (enum idem_kind)idem_read_u8(reader);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        sizes[i] = idem_read_u16(reader);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        *parts[i] = idem_read_bytes(reader, sizes[i]);
    checksum_read(reader, start);
    if (!reader->failed && size != (size_t)(reader->next - start))
        idem_reader_fail(reader);
}

static void settled_read(struct idem_reader *reader, struct idem_resolution *resolution)
{
    size_t size = idem_read_u16(reader), who_size, why_size;
    const uint8_t *start = reader->next;

    if (size == 0 || reader->failed)
        return;
    resolution->at_us = instant_read(reader);
    who_size = idem_read_u16(reader);
    why_size = idem_read_u16(reader);
    resolution->who = idem_read_bytes(reader, who_size);
    resolution->why = idem_read_bytes(reader, why_size);
    if (!reader->failed && size != (size_t)(reader->next - start))
        idem_reader_fail(reader);
}

static void answer_read(struct idem_reader *reader, struct idem_answer *answer)
{
    const uint8_t *start = reader->next;
    size_t headers_size, body_size;

    answer->status = idem_read_u16(reader);
    answer->flags = idem_read_u16(reader);
    answer->tombstone = (enum idem_reason)idem_read_u8(reader);
    headers_size = idem_read_u32(reader);
    body_size = idem_read_u32(reader);
    answer->headers = idem_read_bytes(reader, headers_size);
    answer->body = idem_read_bytes(reader, body_size);
    checksum_read(reader, start);
}

int idem_redis_record_decode(const struct idem_id *id, struct idem_bytes blob,
                             struct idem_record *ret_record, bool *ret_gone)
{
    struct idem_record record = {.id = *id};
    struct idem_reader reader;
    size_t size;

    idem_reader_init(&reader, blob);
    head_read(&reader, &record);
    identity_read(&reader, &record);
    *ret_gone = !reader.failed && record.state == STATE_GONE;
    if (*ret_gone)
        return IDEM_OK;
    claim_part_read(&reader, &record);
    settled_read(&reader, &record.resolution);
    if (record.state == IDEM_STATE_COMPLETED)
        answer_read(&reader, &record.answer);
    if (reader.failed || reader.left > 0 || idem_record_size(&record, &size))
        return IDEM_ERR_CORRUPT;
    *ret_record = record;
    return IDEM_OK;
}
