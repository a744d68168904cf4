/* Pages of records, pages of the audit, and sweeps: one op a statement, with plain parameters. */
#include <stdio.h>

#include "base/memory.h"
#include "store/audit.h"
#include "store/keep.h"
#include "store/postgres/postgres_store.h"

#define SCAN_LOOK_MAX   5000 /* rows that one page may look at: a filter may take few */
#define SWEEP_BYTES_MAX (INT64_C(4) << 20) /* of answers that one sweep removes */
#define DEEP_EVERY_US   (60 * IDEM_SECOND_US)
#define DEEP_SOON_US    IDEM_SECOND_US

/* The last id of the scan's prefix. */
static struct idem_id scan_end(const struct idem_scan *scan)
{
    size_t whole = scan->prefix_digits / 2;
    struct idem_id last;

    memset(last.bytes, 0xff, sizeof last.bytes);
    memcpy(last.bytes, scan->prefix.bytes, whole);
    if (scan->prefix_digits % 2 != 0)
        last.bytes[whole] = scan->prefix.bytes[whole] | 0x0f;
    return last;
}

void idem_pg_scan_row(struct idem_pg_params *params, const struct idem_scan *in)
{
    bool exclusive;
    struct idem_id from = idem_scan_start(in, &exclusive), to = scan_end(in);

    idem_pg_put_bytes(params, idem_bytes_make(from.bytes, sizeof from.bytes));
    idem_pg_put_bool(params, exclusive);
    idem_pg_put_bytes(params, idem_bytes_make(to.bytes, sizeof to.bytes));
    idem_pg_put_text(params, in->kind ? idem_kind_text(in->kind) : "");
    idem_pg_put_bool(params, in->has_scope);
    idem_pg_put_bytes(params, in->scope);
    idem_pg_put_instant(params, in->updated_since_us ? in->updated_since_us : INT64_MIN);
    idem_pg_put_instant(params, in->updated_before_us ? in->updated_before_us : IDEM_NEVER_US);
    idem_pg_put_int4(params, in->limit);
    idem_pg_put_int4(params, SCAN_LOOK_MAX);
    idem_pg_put_int8(params, IDEM_PAGE_BYTES_MAX);
}

/* The words go into the statement's text: they are fixed ones. */
void idem_pg_scan_states(const struct idem_scan *in, char *ret_sql, size_t size)
{
    size_t used = (size_t)snprintf(ret_sql, size, "ARRAY['']");

    used--; /* the bracket */
    for (int state = IDEM_STATE_PROCESSING; state < IDEM_STATE_COUNT && used < size; state++)
        if (!in->states || in->states & 1u << state)
            used += (size_t)snprintf(ret_sql + used, size - used, ",'%s'",
                                     idem_state_text((enum idem_state)state));
    if (used < size)
        snprintf(ret_sql + used, size - used, "]");
}

static int scan_damage(const PGresult *result, int row, struct idem_op *op)
{
    struct idem_bytes bytes = idem_pg_cell_bytes(result, row, IDEM_PG_ID);
    struct idem_id id;

    if (bytes.size != IDEM_ID_SIZE)
        return idem_scan_damage(op, NULL);
    memcpy(id.bytes, bytes.data, IDEM_ID_SIZE);
    return idem_scan_damage(op, &id);
}

static int scan_page(const PGresult *result, int count, struct idem_op *op)
{
    op->out.page = idem_calloc((size_t)count + 1, sizeof *op->out.page);
    if (!op->out.page)
        return IDEM_ERR_NOMEM;
    for (int row = 0; row < count; row++) {
        struct idem_record record;
        bool damaged = idem_pg_record_view(result, row, &record) != IDEM_OK;
        int error =
            damaged ? scan_damage(result, row, op)
                    : idem_pg_record_keep(&record, op->out.now_us, &op->out.page[op->out.count]);

        if (error)
            return error;
        op->out.count += !damaged;
    }
    return IDEM_OK;
}

int idem_pg_scan_decode(const PGresult *result, struct idem_op *op)
{
    int last = PQntuples(result) - 1;
    struct idem_bytes reached;
    bool failed =
        PQnfields(result) != IDEM_PG_FIELD_COUNT || last < 0 || last > (int)op->in.scan.limit;
    int error;

    if (failed)
        return IDEM_ERR_CORRUPT;
    op->out.now_us = idem_pg_cell_instant(result, last, IDEM_PG_AT, &failed);
    op->out.more = idem_pg_cell_is(result, last, IDEM_PG_RESULT, "more");
    reached = idem_pg_cell_bytes(result, last, IDEM_PG_ID);
    if (failed || (reached.size != 0 && reached.size != IDEM_ID_SIZE))
        return IDEM_ERR_CORRUPT;
    if (reached.size > 0)
        memcpy(op->out.next.bytes, reached.data, IDEM_ID_SIZE);
    error = scan_page(result, last, op);
    if (!error)
        op->result = IDEM_RESULT_OK;
    return error;
}

void idem_pg_audit_row(struct idem_pg_params *params, const struct idem_audit *in)
{
    idem_pg_put_instant(params, in->after_us);
    idem_pg_put_int4(params, in->limit);
}

/* The columns of idempotency_audit_page. */
enum audit_field { AUDIT_AT, AUDIT_ID, AUDIT_WHAT, AUDIT_WAS, AUDIT_FENCE, AUDIT_WHO, AUDIT_WHY };

static enum idem_state state_read(const PGresult *result, int row)
{
    for (int state = IDEM_STATE_PROCESSING; state < IDEM_STATE_COUNT; state++)
        if (idem_pg_cell_is(result, row, AUDIT_WAS, idem_state_text((enum idem_state)state)))
            return (enum idem_state)state;
    return (enum idem_state)0;
}

/* Goes through the form that stores of blobs keep: it checks sizes, and the page owns its memory.
 */
static int entry_add(struct idem_audit_page *page, const PGresult *result, int row)
{
    uint8_t blob[IDEM_AUDIT_SIZE_MAX];
    struct idem_bytes id = idem_pg_cell_bytes(result, row, AUDIT_ID);
    bool failed = id.size != IDEM_ID_SIZE;
    struct idem_audit_entry entry = {
        .at_us = idem_pg_cell_instant(result, row, AUDIT_AT, &failed),
        .what =
            idem_pg_cell_is(result, row, AUDIT_WHAT, "forget") ? IDEM_OP_FORGET : IDEM_OP_RESOLVE,
        .was = state_read(result, row),
        .fence = (uint64_t)idem_pg_cell_number(result, row, AUDIT_FENCE, &failed),
        .who = idem_pg_cell_bytes(result, row, AUDIT_WHO),
        .why = idem_pg_cell_bytes(result, row, AUDIT_WHY),
    };

    if (failed || entry.who.size > IDEM_WHO_SIZE_MAX || entry.why.size > IDEM_WHY_SIZE_MAX)
        return IDEM_ERR_CORRUPT;
    memcpy(entry.id.bytes, id.data, IDEM_ID_SIZE);
    return idem_audit_page_add(page, idem_bytes_make(blob, idem_audit_encode(&entry, blob)),
                               entry.at_us);
}

int idem_pg_audit_decode(const PGresult *result, struct idem_op *op)
{
    struct idem_audit_page page;
    int count = PQntuples(result);
    bool more = count > (int)op->in.audit.limit;
    int error = idem_audit_page_init(&page, op->in.audit.limit);

    for (int row = 0; row < count - more && !error; row++)
        error = entry_add(&page, result, row);
    if (error)
        idem_audit_page_free(&page);
    else
        idem_audit_page_finish(&page, more, op);
    return error;
}

void idem_pg_sweep_row(struct idem_pg_params *params, const struct idem_sweep *in)
{
    idem_pg_put_int4(params, in->limit < IDEM_SCAN_MAX ? in->limit : IDEM_SCAN_MAX);
    idem_pg_put_int8(params, SWEEP_BYTES_MAX);
}

bool idem_pg_sweep_is_deep(const struct idem_backend *store)
{
    return idem_pg_now_us() >= store->deep_us;
}

void idem_pg_sweep_deep_done(struct idem_backend *store, bool soon)
{
    store->deep_us = idem_pg_now_us() + (soon ? DEEP_SOON_US : DEEP_EVERY_US);
}

/* The columns of idempotency_sweep. */
enum sweep_field { SWEEP_AT, SWEEP_REMOVED, SWEEP_UNKNOWN, SWEEP_MORE, SWEEP_REACHED };

int idem_pg_sweep_decode(struct idem_backend *store, const PGresult *result, struct idem_op *op)
{
    bool failed = PQntuples(result) != 1;

    op->out.now_us = idem_pg_cell_instant(result, 0, SWEEP_AT, &failed);
    op->out.count = (size_t)idem_pg_cell_number(result, 0, SWEEP_REMOVED, &failed);
    op->out.unknown_removed = (size_t)idem_pg_cell_number(result, 0, SWEEP_UNKNOWN, &failed);
    op->out.more = idem_pg_cell_number(result, 0, SWEEP_MORE, &failed) != 0;
    if (failed)
        return IDEM_ERR_CORRUPT;
    if (idem_pg_sweep_is_deep(store))
        idem_pg_sweep_deep_done(store, op->out.more);
    op->result = IDEM_RESULT_OK;
    return IDEM_OK;
}
