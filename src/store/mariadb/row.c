/*
 * A row of the table from and to a record. Enumerations go both ways as their numbers, which are
 * those of the record: the table shows the words.
 */
#include <assert.h>

#include "base/memory.h"
#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

/* Where the columns stand in what idem_mariadb_row_columns() asks for. */
enum {
    ROW_ID,
    ROW_KIND,
    ROW_SCOPE,
    ROW_KEY,
    ROW_METHOD,
    ROW_PATH,
    ROW_ALGORITHM,
    ROW_FINGERPRINT,
    ROW_PRINCIPAL,
    ROW_STATE,
    ROW_REASON,
    ROW_OWNER,
    ROW_FENCE,
    ROW_ATTEMPT,
    ROW_LEASE,
    ROW_LEASE_UNTIL,
    ROW_CREATED,
    ROW_UPDATED,
    ROW_EXPIRES,
    ROW_STATUS,
    ROW_FLAGS,
    ROW_TOMBSTONE,
    ROW_WHO,
    ROW_WHY,
    ROW_RESOLVED,
    ROW_HEADERS,
    ROW_BODY,
    ROW_COUNT,
};

unsigned idem_mariadb_columns_of(enum idem_op_kind kind)
{
    static const unsigned columns[IDEM_OP_COUNT] = {
        [IDEM_OP_CLAIM] = IDEM_MARIADB_COLUMNS_ALL,
        [IDEM_OP_RENEW] =
            IDEM_MARIADB_COLUMNS_STATE | IDEM_MARIADB_COLUMNS_LEASE | IDEM_MARIADB_COLUMNS_EXPIRY,
        [IDEM_OP_COMPLETE] =
            IDEM_MARIADB_COLUMNS_STATE | IDEM_MARIADB_COLUMNS_EXPIRY | IDEM_MARIADB_COLUMNS_ANSWER,
        [IDEM_OP_FAIL] = IDEM_MARIADB_COLUMNS_STATE | IDEM_MARIADB_COLUMNS_EXPIRY,
        [IDEM_OP_ABANDON] = IDEM_MARIADB_COLUMNS_STATE,
        [IDEM_OP_RESOLVE] = IDEM_MARIADB_COLUMNS_STATE | IDEM_MARIADB_COLUMNS_EXPIRY |
                            IDEM_MARIADB_COLUMNS_ANSWER | IDEM_MARIADB_COLUMNS_PERSON,
        [IDEM_OP_PUT] = IDEM_MARIADB_COLUMNS_ALL,
    };

    return columns[kind];
}

void idem_mariadb_row_columns(struct idem_mariadb_text *text, bool answers)
{
    idem_mariadb_text_add(text,
                          "id,kind+0,scope,`key`,method,path,fingerprint_algorithm,fingerprint,"
                          "principal,state+0,reason+0,owner,fence,attempt,lease_us,lease_until_us,"
                          "created_us,updated_us,expires_us,status,flags,tombstone+0,resolved_by,"
                          "resolved_why,resolved_us,");
    idem_mariadb_text_add(text, answers ? "headers,body" : "'',''");
}

bool idem_mariadb_number(const char *text, uint64_t *ret_number)
{
    uint64_t number = 0;

    if (!text || !*text)
        return false;
    for (; *text; text++) {
        uint64_t digit = (uint64_t)(*text - '0');

        if (*text < '0' || *text > '9' || number > (UINT64_MAX - digit) / 10)
            return false;
        number = 10 * number + digit;
    }
    *ret_number = number;
    return true;
}

bool idem_mariadb_instant_read(const char *text, int64_t *ret_instant_us)
{
    uint64_t number;

    if (!idem_mariadb_number(text, &number) || number > INT64_MAX)
        return false;
    *ret_instant_us = (int64_t)number;
    return true;
}

bool idem_mariadb_row_id(MYSQL_RES *result, MYSQL_ROW row, struct idem_id *ret_id)
{
    unsigned long *sizes = mysql_fetch_lengths(result);

    if (!row[ROW_ID] || sizes[ROW_ID] != IDEM_ID_SIZE)
        return false;
    memcpy(ret_id->bytes, row[ROW_ID], IDEM_ID_SIZE);
    return true;
}

/* A row that is being read; what is not as it must be makes it bad once and for all. */
struct reading {
    MYSQL_ROW row;
    const unsigned long *sizes;
    bool bad;
};

static uint64_t number_take(struct reading *reading, int column, uint64_t max)
{
    uint64_t number = 0;

    if (!idem_mariadb_number(reading->row[column], &number) || number > max)
        reading->bad = true;
    return number;
}

/* An enumeration's number; 0 stands for NULL. */
static int word_take(struct reading *reading, int column, int count)
{
    if (!reading->row[column])
        return 0;
    return (int)number_take(reading, column, (uint64_t)count - 1);
}

static int64_t instant_take(struct reading *reading, int column)
{
    return (int64_t)number_take(reading, column, INT64_MAX);
}

static struct idem_bytes bytes_take(struct reading *reading, int column)
{
    if (!reading->row[column])
        reading->bad = true;
    return idem_bytes_make(reading->row[column], reading->row[column] ? reading->sizes[column] : 0);
}

static void array_take(struct reading *reading, int column, uint8_t *ret_bytes, size_t size)
{
    struct idem_bytes bytes = bytes_take(reading, column);

    if (bytes.size == size)
        memcpy(ret_bytes, bytes.data, size);
    else
        reading->bad = true;
}

static void claim_take(struct reading *reading, struct idem_record *record)
{
    array_take(reading, ROW_ID, record->id.bytes, IDEM_ID_SIZE);
    record->kind = (enum idem_kind)word_take(reading, ROW_KIND, IDEM_KIND_SELFTEST + 1);
    record->scope = bytes_take(reading, ROW_SCOPE);
    record->key = bytes_take(reading, ROW_KEY);
    record->method = bytes_take(reading, ROW_METHOD);
    record->path = bytes_take(reading, ROW_PATH);
    record->fingerprint.algorithm = (uint8_t)number_take(reading, ROW_ALGORITHM, UINT8_MAX);
    array_take(reading, ROW_FINGERPRINT, record->fingerprint.bytes, IDEM_DIGEST_SIZE);
    record->principal.present = reading->row[ROW_PRINCIPAL] != NULL;
    if (record->principal.present)
        array_take(reading, ROW_PRINCIPAL, record->principal.bytes, IDEM_DIGEST_SIZE);
    array_take(reading, ROW_OWNER, record->owner.bytes, IDEM_OWNER_SIZE);
    record->fence = number_take(reading, ROW_FENCE, UINT64_MAX);
    record->attempt = (uint32_t)number_take(reading, ROW_ATTEMPT, UINT32_MAX);
}

static void life_take(struct reading *reading, struct idem_record *record)
{
    record->state = (enum idem_state)word_take(reading, ROW_STATE, IDEM_STATE_COUNT);
    if (record->state == IDEM_STATE_UNKNOWN)
        record->reason = (enum idem_reason)word_take(reading, ROW_REASON, IDEM_REASON_INVALID + 1);
    record->lease_us = instant_take(reading, ROW_LEASE);
    record->lease_until_us = instant_take(reading, ROW_LEASE_UNTIL);
    record->created_us = instant_take(reading, ROW_CREATED);
    record->updated_us = instant_take(reading, ROW_UPDATED);
    record->expires_us = instant_take(reading, ROW_EXPIRES);
    record->resolution.who = bytes_take(reading, ROW_WHO);
    record->resolution.why = bytes_take(reading, ROW_WHY);
    record->resolution.at_us = instant_take(reading, ROW_RESOLVED);
}

static void answer_take(struct reading *reading, struct idem_answer *answer)
{
    answer->status = (uint16_t)number_take(reading, ROW_STATUS, UINT16_MAX);
    answer->flags = (uint16_t)number_take(reading, ROW_FLAGS, UINT16_MAX);
    answer->tombstone =
        (enum idem_reason)word_take(reading, ROW_TOMBSTONE, IDEM_REASON_INVALID + 1);
    answer->headers = bytes_take(reading, ROW_HEADERS);
    answer->body = bytes_take(reading, ROW_BODY);
}

int idem_mariadb_row_read(MYSQL_RES *result, MYSQL_ROW row, struct idem_record *ret_record)
{
    struct reading reading = {row, mysql_fetch_lengths(result), false};
    struct idem_record record = {.kind = 0};
    size_t size;

    if (mysql_num_fields(result) != ROW_COUNT)
        return IDEM_ERR_CORRUPT;
    claim_take(&reading, &record);
    life_take(&reading, &record);
    if (record.state == IDEM_STATE_COMPLETED)
        answer_take(&reading, &record.answer);
    /* The codec knows what a record may be. */
    if (reading.bad || record.state == 0 || record.fence == 0 || idem_record_size(&record, &size))
        return IDEM_ERR_CORRUPT;
    *ret_record = record;
    return IDEM_OK;
}

void idem_mariadb_row_names(struct idem_mariadb_text *text)
{
    idem_mariadb_text_add(text,
                          "(id,created_us,updated_us,kind,scope,`key`,method,path,"
                          "fingerprint_algorithm,fingerprint,principal,state,reason,owner,fence,"
                          "attempt,lease_us,lease_until_us,expires_us,status,flags,tombstone,"
                          "resolved_by,resolved_why,resolved_us,headers,body,sweep_us)");
}

/* The values in the making, named or not. */
struct writing {
    struct idem_mariadb_text *text;
    bool named;
    bool begun; /* the next one needs a comma before it */
    const struct idem_mariadb_clock *clock;
    const char *now; /* of the clock, in the next instant; NULL: instants are absolute */
};

static struct writing writing_begin(struct idem_mariadb_text *text, bool named,
                                    const struct idem_mariadb_clock *clock)
{
    return (struct writing){text, named, !named, clock, clock ? clock->first : NULL};
}

static void name_add(struct writing *writing, const char *name)
{
    if (writing->begun)
        idem_mariadb_text_add(writing->text, ",");
    writing->begun = true;
    if (!writing->named)
        return;
    idem_mariadb_text_add(writing->text, name);
    idem_mariadb_text_add(writing->text, "=");
}

static void bytes_put(struct writing *writing, const char *name, struct idem_bytes bytes)
{
    name_add(writing, name);
    idem_mariadb_text_bytes(writing->text, bytes);
}

static void number_put(struct writing *writing, const char *name, uint64_t number)
{
    name_add(writing, name);
    idem_mariadb_text_value(writing->text, number);
}

/* Not as a value: servers differ in what a number means there for an enumeration. */
static void word_put(struct writing *writing, const char *name, int number)
{
    name_add(writing, name);
    if (number)
        idem_mariadb_text_unsigned(writing->text, (uint64_t)number);
    else
        idem_mariadb_text_add(writing->text, "NULL");
}

static void instant_write(struct writing *writing, int64_t instant_us)
{
    if (!writing->now || instant_us == IDEM_NEVER_US) {
        idem_mariadb_text_signed(writing->text, instant_us);
        return;
    }
    assert(instant_us == 0 || writing->now == writing->clock->again);
    idem_mariadb_text_add(writing->text, writing->now);
    writing->now = writing->clock->again;
    if (instant_us) {
        idem_mariadb_text_add(writing->text, "+");
        idem_mariadb_text_value(writing->text, (uint64_t)instant_us);
    }
}

static void instant_put(struct writing *writing, const char *name, int64_t instant_us)
{
    name_add(writing, name);
    instant_write(writing, instant_us);
}

static void claim_put(struct writing *writing, const struct idem_record *record)
{
    word_put(writing, "kind", (int)record->kind);
    bytes_put(writing, "scope", record->scope);
    bytes_put(writing, "`key`", record->key);
    bytes_put(writing, "method", record->method);
    bytes_put(writing, "path", record->path);
    number_put(writing, "fingerprint_algorithm", record->fingerprint.algorithm);
    bytes_put(writing, "fingerprint", idem_bytes_make(record->fingerprint.bytes, IDEM_DIGEST_SIZE));
    if (record->principal.present)
        bytes_put(writing, "principal", idem_bytes_make(record->principal.bytes, IDEM_DIGEST_SIZE));
    else
        word_put(writing, "principal", 0);
}

static void state_put(struct writing *writing, const struct idem_record *record)
{
    word_put(writing, "state", (int)record->state);
    word_put(writing, "reason", (int)record->reason);
}

static void fence_put(struct writing *writing, const struct idem_record *record)
{
    bytes_put(writing, "owner", idem_bytes_make(record->owner.bytes, IDEM_OWNER_SIZE));
    name_add(writing, "fence");
    if (writing->now)
        idem_mariadb_text_fence(writing->text, writing->now, record->fence);
    else
        idem_mariadb_text_unsigned(writing->text, record->fence);
    number_put(writing, "attempt", record->attempt);
}

static void lease_put(struct writing *writing, const struct idem_record *record)
{
    number_put(writing, "lease_us", (uint64_t)record->lease_us);
    instant_put(writing, "lease_until_us", record->lease_until_us);
}

static void answer_put(struct writing *writing, const struct idem_answer *answer)
{
    number_put(writing, "status", answer->status);
    number_put(writing, "flags", answer->flags);
    word_put(writing, "tombstone", (int)answer->tombstone);
}

static void resolution_put(struct writing *writing, const struct idem_resolution *resolution)
{
    bytes_put(writing, "resolved_by", resolution->who);
    bytes_put(writing, "resolved_why", resolution->why);
    number_put(writing, "resolved_us", (uint64_t)resolution->at_us);
}

static void answer_bytes_put(struct writing *writing, const struct idem_answer *answer)
{
    bytes_put(writing, "headers", answer->headers);
    bytes_put(writing, "body", answer->body);
}

/*
 * Every column but the id, in the order of idem_mariadb_row_names(). What is written of a row may
 * be told from what was written of it before, so its own instant comes first.
 */
static void all_put(struct writing *writing, const struct idem_record *record, int64_t sweep_us)
{
    instant_put(writing, "created_us", record->created_us);
    instant_put(writing, "updated_us", record->updated_us);
    claim_put(writing, record);
    state_put(writing, record);
    fence_put(writing, record);
    lease_put(writing, record);
    instant_put(writing, "expires_us", record->expires_us);
    answer_put(writing, &record->answer);
    resolution_put(writing, &record->resolution);
    answer_bytes_put(writing, &record->answer);
    instant_put(writing, "sweep_us", sweep_us);
}

void idem_mariadb_row_values(struct idem_mariadb_text *text, const struct idem_record *record,
                             int64_t sweep_us, const struct idem_mariadb_clock *clock)
{
    struct writing writing = writing_begin(text, false, clock);

    idem_mariadb_text_add(text, "(");
    idem_mariadb_text_id(text, &record->id);
    all_put(&writing, record, sweep_us);
    idem_mariadb_text_add(text, ")");
}

/* A record that was to be kept for ever has no place in the index; it gets one now. */
static void expiry_put(struct writing *writing, const struct idem_record *record)
{
    instant_put(writing, "expires_us", record->expires_us);
    name_add(writing, "sweep_us");
    idem_mariadb_text_add(writing->text, "IF(sweep_us=");
    idem_mariadb_text_signed(writing->text, IDEM_NEVER_US);
    idem_mariadb_text_add(writing->text, ",");
    instant_write(writing, record->expires_us);
    idem_mariadb_text_add(writing->text, ",sweep_us)");
}

void idem_mariadb_row_update(struct idem_mariadb_text *text, const struct idem_record *record,
                             unsigned columns, int64_t sweep_us,
                             const struct idem_mariadb_clock *clock)
{
    struct writing writing = writing_begin(text, true, clock);

    idem_mariadb_text_add(text, "UPDATE " IDEM_MARIADB_KEYS " SET ");
    if (columns & IDEM_MARIADB_COLUMNS_ALL) {
        all_put(&writing, record, sweep_us);
        return;
    }
    if (columns & IDEM_MARIADB_COLUMNS_STATE) {
        state_put(&writing, record);
        instant_put(&writing, "updated_us", record->updated_us);
    }
    if (columns & IDEM_MARIADB_COLUMNS_LEASE)
        lease_put(&writing, record);
    if (columns & IDEM_MARIADB_COLUMNS_EXPIRY)
        expiry_put(&writing, record);
    if (columns & IDEM_MARIADB_COLUMNS_ANSWER) {
        answer_put(&writing, &record->answer);
        answer_bytes_put(&writing, &record->answer);
    }
    if (columns & IDEM_MARIADB_COLUMNS_PERSON) {
        bytes_put(&writing, "owner", idem_bytes_make(record->owner.bytes, IDEM_OWNER_SIZE));
        resolution_put(&writing, &record->resolution);
    }
}

static int64_t add_saturated(int64_t instant_us, int64_t length_us)
{
    return length_us > IDEM_NEVER_US - instant_us ? IDEM_NEVER_US : instant_us + length_us;
}

/*
 * For a claim when its answer will have expired if all goes as it should. When it goes otherwise
 * the sweeper finds the record alive and moves the hint. So the index is written once a record, in
 * the order of time, and no renewal and no verdict touches it.
 */
int64_t idem_mariadb_sweep_hint(const struct idem_op *op, const struct idem_record *record)
{
    const struct idem_claim *in = &op->in.claim;

    if (op->kind != IDEM_OP_CLAIM)
        return record->expires_us;
    return add_saturated(record->lease_until_us,
                         in->ttl_us < in->unknown_ttl_us ? in->ttl_us : in->unknown_ttl_us);
}

#define VIEWS_COUNT 8

int idem_mariadb_record_keep(const struct idem_record *record, int64_t now_us,
                             struct idem_kept_record *ret_kept)
{
    struct idem_record kept = *record;
    struct idem_bytes *const views[VIEWS_COUNT] = {
        &kept.scope,          &kept.key,         &kept.method,         &kept.path,
        &kept.answer.headers, &kept.answer.body, &kept.resolution.who, &kept.resolution.why,
    };
    size_t size = 0;
    uint8_t *memory, *next;

    for (size_t i = 0; i < VIEWS_COUNT; i++)
        size += views[i]->size;
    memory = next = idem_malloc(size + 1);
    if (!memory)
        return IDEM_ERR_NOMEM;
    for (size_t i = 0; i < VIEWS_COUNT; i++) {
        if (views[i]->size > 0)
            memcpy(next, views[i]->data, views[i]->size);
        views[i]->data = next;
        next += views[i]->size;
    }
    kept.state = idem_record_state_at(record, now_us);
    ret_kept->record = kept;
    ret_kept->memory = memory;
    return IDEM_OK;
}
