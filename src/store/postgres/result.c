/*
 * Rows in PostgreSQL's binary form. Everything that comes from the server is checked: sizes of
 * cells here, words and numbers where a record is made of them.
 */
#include <assert.h>

#include "base/memory.h"
#include "store/postgres/postgres_store.h"

#define EPOCH_US (INT64_C(946684800) * IDEM_SECOND_US) /* 2000, since 1970 */
#define DAY_US   (INT64_C(86400) * IDEM_SECOND_US)

/* A big-endian number of one to eight bytes, with its sign. */
static int64_t number_read(struct idem_bytes bytes)
{
    uint64_t value = bytes.size > 0 && bytes.data[0] >= 0x80 ? UINT64_MAX : 0;

    for (size_t i = 0; i < bytes.size; i++)
        value = value << 8 | bytes.data[i];
    return (int64_t)value;
}

struct idem_bytes idem_pg_cell_bytes(const PGresult *result, int row, int column)
{
    if (row >= PQntuples(result) || column >= PQnfields(result) || PQgetisnull(result, row, column))
        return idem_bytes_make(NULL, 0);
    return idem_bytes_make(PQgetvalue(result, row, column),
                           (size_t)PQgetlength(result, row, column));
}

int64_t idem_pg_cell_number(const PGresult *result, int row, int column, bool *failed)
{
    struct idem_bytes cell = idem_pg_cell_bytes(result, row, column);

    if (cell.size > 8) {
        *failed = true;
        return 0;
    }
    return number_read(cell);
}

int64_t idem_pg_cell_instant(const PGresult *result, int row, int column, bool *failed)
{
    struct idem_bytes cell = idem_pg_cell_bytes(result, row, column);
    int64_t value;

    if (cell.size != 8) {
        *failed |= cell.size != 0;
        return 0;
    }
    value = number_read(cell);
    if (value == INT64_MIN)
        return INT64_MIN;
    return value > INT64_MAX - EPOCH_US ? IDEM_NEVER_US : value + EPOCH_US;
}

/* Days and months are there only when somebody else has written them: 24 hours, and 30 days. */
int64_t idem_pg_cell_length(const PGresult *result, int row, int column, bool *failed)
{
    struct idem_bytes cell = idem_pg_cell_bytes(result, row, column);
    int64_t days, length_us;

    if (cell.size != 16) {
        *failed |= cell.size != 0;
        return 0;
    }
    days = number_read(idem_bytes_make(cell.data + 8, 4)) +
           30 * number_read(idem_bytes_make(cell.data + 12, 4));
    length_us = number_read(idem_bytes_make(cell.data, 8));
    if (__builtin_add_overflow(length_us, days * DAY_US, &length_us))
        *failed = true;
    return length_us;
}

bool idem_pg_cell_is(const PGresult *result, int row, int column, const char *word)
{
    return idem_bytes_equal(idem_pg_cell_bytes(result, row, column), idem_bytes_from_text(word));
}

/* The number whose word this is, or 0; NULL and what is no word at all are 0 too. */
static int word_number(struct idem_bytes word, const char *(*text)(int), int count)
{
    for (int number = 1; number < count; number++)
        if (text(number) && idem_bytes_equal(word, idem_bytes_from_text(text(number))))
            return number;
    return 0;
}

static const char *kind_word(int number)
{
    return idem_kind_text((enum idem_kind)number);
}

static const char *state_word(int number)
{
    return idem_state_text((enum idem_state)number);
}

static const char *reason_word(int number)
{
    return idem_reason_text((enum idem_reason)number);
}

/* Copies a cell of exactly that size; false when it has another. */
static bool digest_read(struct idem_bytes cell, uint8_t *ret_bytes, size_t size)
{
    if (cell.size != size)
        return false;
    memcpy(ret_bytes, cell.data, size);
    return true;
}

static bool identity_view(const PGresult *result, int row, struct idem_record *record)
{
    struct idem_bytes kind = idem_pg_cell_bytes(result, row, IDEM_PG_KIND);
    struct idem_bytes fingerprint = idem_pg_cell_bytes(result, row, IDEM_PG_FINGERPRINT);
    struct idem_bytes principal = idem_pg_cell_bytes(result, row, IDEM_PG_PRINCIPAL);

    record->kind = (enum idem_kind)word_number(kind, kind_word, IDEM_KIND_SELFTEST + 1);
    record->scope = idem_pg_cell_bytes(result, row, IDEM_PG_SCOPE);
    record->key = idem_pg_cell_bytes(result, row, IDEM_PG_KEY);
    record->method = idem_pg_cell_bytes(result, row, IDEM_PG_METHOD);
    record->path = idem_pg_cell_bytes(result, row, IDEM_PG_PATH);
    if (fingerprint.size != 1 + IDEM_DIGEST_SIZE)
        return false;
    record->fingerprint.algorithm = fingerprint.data[0];
    memcpy(record->fingerprint.bytes, fingerprint.data + 1, IDEM_DIGEST_SIZE);
    record->principal.present = principal.size > 0;
    if (principal.size > 0 && !digest_read(principal, record->principal.bytes, IDEM_DIGEST_SIZE))
        return false;
    return digest_read(idem_pg_cell_bytes(result, row, IDEM_PG_ID), record->id.bytes,
                       IDEM_ID_SIZE) &&
           digest_read(idem_pg_cell_bytes(result, row, IDEM_PG_OWNER), record->owner.bytes,
                       IDEM_OWNER_SIZE) &&
           (record->kind != 0 || kind.size == 0);
}

static void answer_view(const PGresult *result, int row, struct idem_answer *answer, bool *failed)
{
    answer->status = (uint16_t)idem_pg_cell_number(result, row, IDEM_PG_STATUS, failed);
    answer->flags = (uint16_t)idem_pg_cell_number(result, row, IDEM_PG_FLAGS, failed);
    answer->tombstone = (enum idem_reason)word_number(
        idem_pg_cell_bytes(result, row, IDEM_PG_TOMBSTONE), reason_word, IDEM_REASON_INVALID + 1);
    answer->headers = idem_pg_cell_bytes(result, row, IDEM_PG_HEADERS);
    answer->body = idem_pg_cell_bytes(result, row, IDEM_PG_BODY);
}

int idem_pg_record_view(const PGresult *result, int row, struct idem_record *ret_record)
{
    struct idem_record record = {0};
    bool failed = PQnfields(result) != IDEM_PG_FIELD_COUNT || !identity_view(result, row, &record);
    size_t size;

    record.state = (enum idem_state)word_number(idem_pg_cell_bytes(result, row, IDEM_PG_STATE),
                                                state_word, IDEM_STATE_COUNT);
    record.reason = (enum idem_reason)word_number(idem_pg_cell_bytes(result, row, IDEM_PG_REASON),
                                                  reason_word, IDEM_REASON_INVALID + 1);
    record.fence = (uint64_t)idem_pg_cell_number(result, row, IDEM_PG_FENCE, &failed);
    record.attempt = (uint32_t)idem_pg_cell_number(result, row, IDEM_PG_ATTEMPT, &failed);
    record.lease_us = idem_pg_cell_length(result, row, IDEM_PG_LEASE, &failed);
    record.lease_until_us = idem_pg_cell_instant(result, row, IDEM_PG_LEASE_UNTIL, &failed);
    record.created_us = idem_pg_cell_instant(result, row, IDEM_PG_CREATED_AT, &failed);
    record.updated_us = idem_pg_cell_instant(result, row, IDEM_PG_UPDATED_AT, &failed);
    record.expires_us = idem_pg_cell_instant(result, row, IDEM_PG_EXPIRES_AT, &failed);
    answer_view(result, row, &record.answer, &failed);
    record.resolution.who = idem_pg_cell_bytes(result, row, IDEM_PG_RESOLVED_BY);
    record.resolution.why = idem_pg_cell_bytes(result, row, IDEM_PG_RESOLVED_WHY);
    record.resolution.at_us = idem_pg_cell_instant(result, row, IDEM_PG_RESOLVED_AT, &failed);
    if (failed || record.fence == 0 || idem_record_size(&record, &size))
        return IDEM_ERR_CORRUPT;
    *ret_record = record;
    return IDEM_OK;
}

#define VIEWS_MAX 8

static size_t record_views(struct idem_record *record, struct idem_bytes *ret_views[VIEWS_MAX])
{
    struct idem_bytes *views[VIEWS_MAX] = {
        &record->scope,          &record->key,
        &record->method,         &record->path,
        &record->answer.headers, &record->answer.body,
        &record->resolution.who, &record->resolution.why,
    };

    memcpy(ret_views, views, sizeof views);
    return VIEWS_MAX;
}

size_t idem_pg_record_bytes(const struct idem_record *record)
{
    struct idem_record copy = *record;
    struct idem_bytes *views[VIEWS_MAX];
    size_t bytes = 0, count = record_views(&copy, views);

    for (size_t i = 0; i < count; i++)
        bytes += views[i]->size;
    return bytes;
}

int idem_pg_record_keep(const struct idem_record *record, int64_t now_us,
                        struct idem_kept_record *ret_kept)
{
    struct idem_record copy = *record;
    struct idem_bytes *views[VIEWS_MAX];
    size_t count = record_views(&copy, views), used = 0;
    uint8_t *memory = idem_malloc(idem_pg_record_bytes(record) + 1);

    if (!memory)
        return IDEM_ERR_NOMEM;
    for (size_t i = 0; i < count; i++) {
        if (views[i]->size > 0)
            memcpy(memory + used, views[i]->data, views[i]->size);
        views[i]->data = memory + used;
        used += views[i]->size;
    }
    copy.state = idem_record_state_at(record, now_us);
    ret_kept->record = copy;
    ret_kept->memory = memory;
    return IDEM_OK;
}
