/*
 * Parameters in PostgreSQL's binary form. An array of one dimension is
 *
 *   int32 dimensions (1), int32 has NULLs, int32 element type, int32 length, int32 first index (1),
 *   then each element as int32 size (-1: NULL) and its bytes;
 *
 * numbers are big-endian, instants are microseconds since 2000, lengths of time are microseconds,
 * days and months. Rows are given op by op, and kept column by column.
 */
#include <assert.h>

#include "base/memory.h"
#include "store/postgres/postgres_store.h"

#define ARRAY_HEADER_SIZE 20
#define EPOCH_US          (INT64_C(946684800) * IDEM_SECOND_US) /* 2000, since 1970 */
#define INSTANT_MIN       (-INT64_C(211813488000000000)) /* the first that is finite, since 2000 */
#define COLUMN_KEEP_MAX   (1u << 20) /* memory that is kept for the next batch */

#define OID_BOOL     16
#define OID_INTERVAL 1186

void idem_pg_params_free(struct idem_pg_params *params)
{
    for (size_t i = 0; i < IDEM_PG_PARAMS_MAX; i++)
        idem_free(params->columns[i].data);
    memset(params, 0, sizeof *params);
}

void idem_pg_params_begin(struct idem_pg_params *params, bool arrays)
{
    for (size_t i = 0; i < IDEM_PG_PARAMS_MAX; i++) {
        struct idem_pg_column *column = &params->columns[i];

        if (column->capacity > COLUMN_KEEP_MAX) {
            idem_free(column->data);
            column->data = NULL;
            column->capacity = 0;
        }
        column->array = arrays;
        column->size = arrays ? ARRAY_HEADER_SIZE : 0;
    }
    params->column = params->column_count = params->row_count = 0;
    params->failed = false;
}

void idem_pg_row_end(struct idem_pg_params *params)
{
    assert(params->row_count == 0 || params->column == params->column_count);
    params->column_count = params->column;
    params->column = 0;
    params->row_count++;
}

size_t idem_pg_params_bytes(const struct idem_pg_params *params)
{
    size_t bytes = 0;

    for (size_t i = 0; i < params->column_count; i++)
        bytes += params->columns[i].size;
    return bytes;
}

static bool column_grow(struct idem_pg_column *column, size_t needed)
{
    size_t capacity = column->capacity ? column->capacity : 256;
    uint8_t *grown;

    if (needed <= column->capacity)
        return true;
    while (capacity < needed)
        capacity *= 2;
    grown = idem_realloc(column->data, capacity);
    if (!grown)
        return false;
    column->data = grown;
    column->capacity = capacity;
    return true;
}

static void number_write(uint8_t *at, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(value >> 8 * (size - 1 - i));
}

/* The next cell of this row, for `size` bytes to be written; NULL when there is no memory. */
static uint8_t *cell_make(struct idem_pg_params *params, Oid element, size_t size, bool is_null)
{
    struct idem_pg_column *column = &params->columns[params->column++];
    size_t prefix = column->array ? 4 : 0;
    uint8_t *at;

    assert(params->column <= IDEM_PG_PARAMS_MAX);
    column->element = element;
    column->is_null = is_null;
    if (!column_grow(column, column->size + prefix + size)) {
        params->failed = true;
        return NULL;
    }
    at = column->data + column->size;
    if (column->array)
        number_write(at, is_null ? UINT32_MAX : size, 4);
    column->size += prefix + size;
    return at + prefix;
}

static void number_put(struct idem_pg_params *params, Oid element, uint64_t value, size_t size)
{
    uint8_t *at = cell_make(params, element, size, false);

    if (at)
        number_write(at, value, size);
}

void idem_pg_put_bytes(struct idem_pg_params *params, struct idem_bytes bytes)
{
    uint8_t *at = cell_make(params, IDEM_PG_BYTEA, bytes.size, false);

    if (at && bytes.size > 0)
        memcpy(at, bytes.data, bytes.size);
}

void idem_pg_put_text(struct idem_pg_params *params, const char *text)
{
    uint8_t *at = cell_make(params, IDEM_PG_TEXT, text ? strlen(text) : 0, !text);

    if (at && text)
        memcpy(at, text, strlen(text));
}

void idem_pg_put_bool(struct idem_pg_params *params, bool value)
{
    number_put(params, OID_BOOL, value, 1);
}

void idem_pg_put_int2(struct idem_pg_params *params, int value)
{
    number_put(params, IDEM_PG_INT2, (uint64_t)value, 2);
}

void idem_pg_put_int4(struct idem_pg_params *params, int64_t value)
{
    number_put(params, IDEM_PG_INT4, (uint64_t)value, 4);
}

void idem_pg_put_int8(struct idem_pg_params *params, uint64_t value)
{
    number_put(params, IDEM_PG_INT8, value > INT64_MAX ? INT64_MAX : value, 8);
}

void idem_pg_put_int8_signed(struct idem_pg_params *params, int64_t value)
{
    number_put(params, IDEM_PG_INT8, (uint64_t)value, 8);
}

/*
 * IDEM_NEVER_US is PostgreSQL's infinity, and every other instant from 1970 on is one that it can
 * hold: its range ends later. What lies before its first instant is its minus infinity.
 */
void idem_pg_put_instant(struct idem_pg_params *params, int64_t at_us)
{
    int64_t value = at_us;

    if (at_us != IDEM_NEVER_US)
        value = at_us < INSTANT_MIN + EPOCH_US ? INT64_MIN : at_us - EPOCH_US;
    number_put(params, IDEM_PG_TIMESTAMPTZ, (uint64_t)value, 8);
}

void idem_pg_put_length(struct idem_pg_params *params, int64_t length_us)
{
    uint8_t *at = cell_make(params, OID_INTERVAL, 16, false);

    if (at) {
        number_write(at, (uint64_t)length_us, 8);
        memset(at + 8, 0, 8); /* days and months, whose length depends on a calendar */
    }
}

void idem_pg_put_null(struct idem_pg_params *params, Oid element)
{
    (void)cell_make(params, element, 0, true);
}

/* The header of an array, written once all its elements are there. */
static void array_finish(struct idem_pg_column *column, size_t length)
{
    number_write(column->data, 1, 4);
    number_write(column->data + 4, 1, 4);
    number_write(column->data + 8, column->element, 4);
    number_write(column->data + 12, length, 4);
    number_write(column->data + 16, 1, 4);
}

void idem_pg_params_finish(struct idem_pg_params *params)
{
    for (size_t i = 0; i < params->column_count && !params->failed; i++)
        if (params->columns[i].array)
            array_finish(&params->columns[i], params->row_count);
}

Oid idem_pg_column_type(const struct idem_pg_column *column)
{
    static const struct {
        Oid element, array;
    } types[] = {
        {OID_BOOL, 1000},
        {IDEM_PG_BYTEA, 1001},
        {IDEM_PG_INT2, 1005},
        {IDEM_PG_INT4, 1007},
        {IDEM_PG_TEXT, 1009},
        {IDEM_PG_INT8, 1016},
        {IDEM_PG_TIMESTAMPTZ, 1185},
        {OID_INTERVAL, 1187},
    };

    if (!column->array)
        return column->element;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].element == column->element)
            return types[i].array;
    assert(!"a type that has no array here");
    return 0;
}
