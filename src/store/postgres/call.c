/*
 * Each kind of op as a row of parameters for its function in sql/, in the order that the function
 * declares, and as its row of the result. A statement does all ops of one group; the function's
 * row 0 speaks for every op that has no row of its own. Claims and verdicts that are alone have
 * functions of their own, without arrays.
 */
#include <assert.h>
#include <stdio.h>

#include "store/postgres/postgres_store.h"

#define ROW_BYTES 400 /* about what the fixed parts of a row take */

#define ALL     "*"                     /* enum idem_pg_field */
#define VERDICT "n,result,at,tombstone" /* a verdict meets nothing that is told */

enum { VERDICT_TOMBSTONE = IDEM_PG_AT + 1, VERDICT_FIELD_COUNT };

static const struct {
    const char *name, *lone; /* lone: that for one op; NULL: the same */
    const char *fields;      /* of its result */
    int columns;             /* of a row of parameters */
} functions[IDEM_PG_GROUP_COUNT] = {
    [IDEM_PG_VERDICT] = {"idempotency_verdict", "idempotency_verdict_lone", VERDICT, 12},
    [IDEM_PG_CLAIM] = {"idempotency_claim", "idempotency_claim_lone", ALL, 14},
    [IDEM_PG_RESOLVE] = {"idempotency_resolve", NULL, ALL, 14},
    [IDEM_PG_FORGET] = {"idempotency_forget", NULL, ALL, 4},
    [IDEM_PG_PUT] = {"idempotency_put", NULL, ALL, 27},
    [IDEM_PG_GET] = {"idempotency_get", NULL, ALL, 5},
    [IDEM_PG_SCAN] = {"idempotency_scan", NULL, ALL, 11},
    [IDEM_PG_AUDIT] = {"idempotency_audit_page", NULL, ALL, 2},
    [IDEM_PG_SWEEP] = {"idempotency_sweep", NULL, ALL, 2},
};

bool idem_pg_call_is_lone(enum idem_pg_group group, size_t count)
{
    return group >= IDEM_PG_SCAN || (count == 1 && functions[group].lone);
}

enum idem_pg_group idem_pg_call_group(const struct idem_op *op)
{
    static const enum idem_pg_group groups[IDEM_OP_COUNT] = {
        [IDEM_OP_CLAIM] = IDEM_PG_CLAIM,      [IDEM_OP_RENEW] = IDEM_PG_VERDICT,
        [IDEM_OP_COMPLETE] = IDEM_PG_VERDICT, [IDEM_OP_FAIL] = IDEM_PG_VERDICT,
        [IDEM_OP_ABANDON] = IDEM_PG_VERDICT,  [IDEM_OP_GET] = IDEM_PG_GET,
        [IDEM_OP_SCAN] = IDEM_PG_SCAN,        [IDEM_OP_RESOLVE] = IDEM_PG_RESOLVE,
        [IDEM_OP_FORGET] = IDEM_PG_FORGET,    [IDEM_OP_SWEEP] = IDEM_PG_SWEEP,
        [IDEM_OP_AUDIT] = IDEM_PG_AUDIT,      [IDEM_OP_PUT] = IDEM_PG_PUT,
    };

    return groups[op->kind];
}

static size_t answer_bytes(const struct idem_answer *answer)
{
    return answer->headers.size + answer->body.size;
}

size_t idem_pg_call_bytes(const struct idem_op *op)
{
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        return ROW_BYTES + op->in.claim.scope.size + op->in.claim.key.size + op->in.claim.path.size;
    case IDEM_OP_COMPLETE:
        return ROW_BYTES + answer_bytes(&op->in.verdict.answer);
    case IDEM_OP_RESOLVE:
        return ROW_BYTES + answer_bytes(&op->in.resolve.answer) + op->in.resolve.why.size;
    case IDEM_OP_PUT:
        return ROW_BYTES + idem_pg_record_bytes(&op->in.put.record);
    default:
        return ROW_BYTES;
    }
}

void idem_pg_call_sql(const char *schema, enum idem_pg_group group, bool lone, const char *first,
                      char ret_sql[IDEM_PG_SQL_SIZE])
{
    const char *name =
        lone && functions[group].lone ? functions[group].lone : functions[group].name;
    int used = snprintf(ret_sql, IDEM_PG_SQL_SIZE, "SELECT %s FROM \"%s\".%s(%s",
                        functions[group].fields, schema, name, first);
    bool more = first[0] != '\0';

    for (int i = 0; i < functions[group].columns; i++) {
        used += snprintf(ret_sql + used, IDEM_PG_SQL_SIZE - (size_t)used, "%s$%d", more ? "," : "",
                         i + 1);
        more = true;
    }
    snprintf(ret_sql + used, IDEM_PG_SQL_SIZE - (size_t)used, ")");
}

/* What the digests of this row were made under. */
static void put_salt(struct idem_backend *store)
{
    idem_pg_put_bytes(&store->params,
                      idem_bytes_make(store->salt_digest, sizeof store->salt_digest));
}

static void put_id(struct idem_pg_params *params, const struct idem_id *id)
{
    idem_pg_put_bytes(params, idem_bytes_make(id->bytes, sizeof id->bytes));
}

static void put_owner(struct idem_pg_params *params, const struct idem_owner *owner)
{
    idem_pg_put_bytes(params, idem_bytes_make(owner->bytes, sizeof owner->bytes));
}

static void put_fingerprint(struct idem_pg_params *params,
                            const struct idem_fingerprint *fingerprint)
{
    uint8_t bytes[1 + IDEM_DIGEST_SIZE] = {fingerprint->algorithm};

    memcpy(bytes + 1, fingerprint->bytes, IDEM_DIGEST_SIZE);
    idem_pg_put_bytes(params, idem_bytes_make(bytes, sizeof bytes));
}

static void put_principal(struct idem_pg_params *params, const struct idem_principal *principal)
{
    if (principal->present)
        idem_pg_put_bytes(params, idem_bytes_make(principal->bytes, sizeof principal->bytes));
    else
        idem_pg_put_null(params, IDEM_PG_BYTEA);
}

static const char *reason_text(enum idem_reason reason)
{
    return reason == IDEM_REASON_NONE ? NULL : idem_reason_text(reason);
}

static struct idem_bytes cut(struct idem_bytes bytes, size_t size_max)
{
    return idem_bytes_make(bytes.data, bytes.size < size_max ? bytes.size : size_max);
}

/* status, flags, tombstone, headers, body; all NULL for an op that gives no answer. */
static void put_answer(struct idem_pg_params *params, const struct idem_answer *answer,
                       bool with_bytes)
{
    bool dropped = answer && !with_bytes && answer_bytes(answer) > 0;

    if (!answer) {
        idem_pg_put_null(params, IDEM_PG_INT2);
        idem_pg_put_null(params, IDEM_PG_INT4);
    } else {
        idem_pg_put_int2(params, answer->status);
        idem_pg_put_int4(params, answer->flags);
    }
    idem_pg_put_text(params, !answer   ? NULL
                             : dropped ? idem_reason_text(IDEM_REASON_NO_ROOM)
                                       : reason_text(answer->tombstone));
    if (!answer || dropped || answer->tombstone != IDEM_REASON_NONE) {
        idem_pg_put_null(params, IDEM_PG_BYTEA);
        idem_pg_put_null(params, IDEM_PG_BYTEA);
    } else {
        idem_pg_put_bytes(params, answer->headers);
        idem_pg_put_bytes(params, answer->body);
    }
}

static void claim_row(struct idem_pg_params *params, const struct idem_op *op)
{
    const struct idem_claim *in = &op->in.claim;

    put_id(params, &op->id);
    idem_pg_put_text(params, idem_kind_text(in->kind));
    idem_pg_put_bytes(params, in->scope);
    idem_pg_put_bytes(params, in->key);
    idem_pg_put_bytes(params, cut(in->method, IDEM_METHOD_SIZE_MAX));
    idem_pg_put_bytes(params, cut(in->path, IDEM_PATH_SIZE_MAX));
    put_fingerprint(params, &in->fingerprint);
    put_principal(params, &in->principal);
    put_owner(params, &in->owner);
    idem_pg_put_length(params, in->lease_us);
    idem_pg_put_length(params, in->unknown_ttl_us);
    idem_pg_put_length(params, in->ttl_us);
    if (in->take == IDEM_TAKE_ANY)
        idem_pg_put_int8_signed(params, -1);
    else if (in->take == IDEM_TAKE_FENCE && in->take_fence <= INT64_MAX)
        idem_pg_put_int8(params, in->take_fence);
    else
        idem_pg_put_null(params, IDEM_PG_INT8);
}

static void verdict_row(struct idem_pg_params *params, const struct idem_op *op, bool answers)
{
    bool renew = op->kind == IDEM_OP_RENEW;
    const struct idem_verdict *in = &op->in.verdict;

    idem_pg_put_text(params, idem_op_kind_text(op->kind));
    put_id(params, &op->id);
    put_owner(params, renew ? &op->in.renew.owner : &in->owner);
    idem_pg_put_length(params, renew ? 0 : in->ttl_us);
    idem_pg_put_length(params, renew ? op->in.renew.lease_us : in->lease_us);
    idem_pg_put_length(params, renew ? op->in.renew.unknown_ttl_us : 0);
    idem_pg_put_text(params, op->kind == IDEM_OP_ABANDON ? reason_text(in->reason) : NULL);
    put_answer(params, op->kind == IDEM_OP_COMPLETE ? &in->answer : NULL, answers);
}

/* What a resolve leaves: no answer, the one given, or a tombstone where none can be told again. */
static struct idem_answer resolve_answer(const struct idem_resolve *in)
{
    if (in->answer.tombstone == IDEM_REASON_NONE && in->answer.status == 0)
        return (struct idem_answer){.tombstone = IDEM_REASON_RESOLVED};
    return in->answer;
}

static void resolve_row(struct idem_pg_params *params, const struct idem_op *op, bool answers)
{
    const struct idem_resolve *in = &op->in.resolve;
    struct idem_answer answer = resolve_answer(in);

    put_id(params, &op->id);
    idem_pg_put_int8(params, in->fence);
    idem_pg_put_instant(params, in->updated_us);
    idem_pg_put_bool(params, in->force);
    idem_pg_put_bool(params, in->completed);
    put_owner(params, &in->owner);
    idem_pg_put_length(params, in->ttl_us);
    put_answer(params, in->completed ? &answer : NULL, answers);
    idem_pg_put_bytes(params, in->who);
    idem_pg_put_bytes(params, in->why);
}

static void forget_row(struct idem_pg_params *params, const struct idem_op *op)
{
    put_id(params, &op->id);
    idem_pg_put_bool(params, op->in.forget.force);
    idem_pg_put_bytes(params, op->in.forget.who);
    idem_pg_put_bytes(params, op->in.forget.why);
}

static void get_row(struct idem_pg_params *params, const struct idem_op *op)
{
    put_id(params, &op->id);
    idem_pg_put_bool(params, op->in.get.match);
    put_fingerprint(params, &op->in.get.fingerprint);
    put_principal(params, &op->in.get.principal);
}

/* Far beyond any lease that a claim may ask for; the rules add it to instants, twice. */
static int64_t lease_clamp(int64_t lease_us)
{
    int64_t most_us = INT64_C(1) << 60;

    return lease_us > most_us ? most_us : lease_us < -most_us ? -most_us : lease_us;
}

static void put_row(struct idem_pg_params *params, const struct idem_record *in)
{
    bool completed = in->state == IDEM_STATE_COMPLETED;

    put_id(params, &in->id);
    idem_pg_put_text(params, in->kind == 0 ? NULL : idem_kind_text(in->kind));
    idem_pg_put_bytes(params, in->scope);
    idem_pg_put_bytes(params, in->key);
    idem_pg_put_bytes(params, cut(in->method, IDEM_METHOD_SIZE_MAX));
    idem_pg_put_bytes(params, cut(in->path, IDEM_PATH_SIZE_MAX));
    put_fingerprint(params, &in->fingerprint);
    put_principal(params, &in->principal);
    idem_pg_put_text(params, idem_state_text(in->state));
    idem_pg_put_text(params, in->state == IDEM_STATE_UNKNOWN ? reason_text(in->reason) : NULL);
    put_owner(params, &in->owner);
    idem_pg_put_int8(params, in->fence);
    idem_pg_put_int8(params, in->attempt);
    idem_pg_put_length(params, lease_clamp(in->lease_us));
    idem_pg_put_instant(params, in->lease_until_us);
    idem_pg_put_instant(params, in->created_us);
    idem_pg_put_instant(params, in->updated_us);
    idem_pg_put_instant(params, in->expires_us);
    put_answer(params, completed ? &in->answer : NULL, true);
    if (in->resolution.who.size + in->resolution.why.size > 0 || in->resolution.at_us != 0) {
        idem_pg_put_bytes(params, in->resolution.who);
        idem_pg_put_bytes(params, in->resolution.why);
        idem_pg_put_instant(params, in->resolution.at_us);
    } else {
        idem_pg_put_null(params, IDEM_PG_BYTEA);
        idem_pg_put_null(params, IDEM_PG_BYTEA);
        idem_pg_put_null(params, IDEM_PG_TIMESTAMPTZ);
    }
}

void idem_pg_call_row(struct idem_backend *store, const struct idem_op *op,
                      const struct idem_pg_room *room)
{
    struct idem_pg_params *params = &store->params;

    switch (idem_pg_call_group(op)) {
    case IDEM_PG_CLAIM:
        put_salt(store);
        claim_row(params, op);
        break;
    case IDEM_PG_VERDICT:
        verdict_row(params, op, room->answers);
        break;
    case IDEM_PG_RESOLVE:
        resolve_row(params, op, room->answers);
        break;
    case IDEM_PG_FORGET:
        forget_row(params, op);
        break;
    case IDEM_PG_GET:
        put_salt(store);
        get_row(params, op);
        break;
    case IDEM_PG_PUT:
        put_salt(store);
        put_row(params, &op->in.put.record);
        break;
    case IDEM_PG_SCAN:
        idem_pg_scan_row(params, &op->in.scan);
        break;
    case IDEM_PG_AUDIT:
        idem_pg_audit_row(params, &op->in.audit);
        break;
    case IDEM_PG_SWEEP:
        idem_pg_sweep_row(params, &op->in.sweep);
        break;
    case IDEM_PG_GROUP_COUNT:
        break;
    }
    idem_pg_row_end(params);
    assert(params->column_count == (size_t)functions[idem_pg_call_group(op)].columns);
}

static enum idem_result result_read(const PGresult *result, int row)
{
    for (int r = IDEM_RESULT_OK; r < IDEM_RESULT_COUNT; r++)
        if (idem_pg_cell_is(result, row, IDEM_PG_RESULT, idem_result_text((enum idem_result)r)))
            return (enum idem_result)r;
    return IDEM_RESULT_NONE;
}

/* True when an op that was told OK kept a tombstone, for want of room, in place of its answer. */
static bool is_tombstoned(const struct idem_op *op, const struct idem_pg_room *room)
{
    const struct idem_answer *answer = op->kind == IDEM_OP_COMPLETE ? &op->in.verdict.answer
                                       : op->kind == IDEM_OP_RESOLVE && op->in.resolve.completed
                                           ? &op->in.resolve.answer
                                           : NULL;

    return answer && (answer->tombstone == IDEM_REASON_NO_ROOM ||
                      (!room->answers && answer_bytes(answer) > 0));
}

/* What an op of its own row is told beside its result. A damaged record is CORRUPT. */
static int op_tell(const PGresult *result, int row, struct idem_op *op)
{
    int tombstone =
        idem_pg_call_group(op) == IDEM_PG_VERDICT ? (int)VERDICT_TOMBSTONE : (int)IDEM_PG_TOMBSTONE;
    struct idem_record record;
    bool failed = false;

    switch (op->result) {
    case IDEM_RESULT_OK:
        op->out.tombstoned =
            op->kind != IDEM_OP_PUT &&
            idem_pg_cell_is(result, row, tombstone, idem_reason_text(IDEM_REASON_NO_ROOM));
        return IDEM_OK;
    case IDEM_RESULT_ACQUIRED:
        op->out.fence = (uint64_t)idem_pg_cell_number(result, row, IDEM_PG_FENCE, &failed);
        op->out.attempt = (uint32_t)idem_pg_cell_number(result, row, IDEM_PG_ATTEMPT, &failed);
        return failed || op->out.fence == 0 ? IDEM_ERR_CORRUPT : IDEM_OK;
    case IDEM_RESULT_MISMATCH: /* with a whole record, or it is not known to be one */
    case IDEM_RESULT_OTHER_PRINCIPAL:
    case IDEM_RESULT_IN_PROGRESS:
    case IDEM_RESULT_UNKNOWN:
    case IDEM_RESULT_COMPLETED:
    case IDEM_RESULT_FOUND:
        break;
    default:
        return IDEM_OK;
    }
    if (idem_pg_record_view(result, row, &record)) {
        op->result = IDEM_RESULT_CORRUPT;
        return IDEM_OK;
    }
    if (op->result == IDEM_RESULT_MISMATCH || op->result == IDEM_RESULT_OTHER_PRINCIPAL)
        return IDEM_OK;
    if (op->result == IDEM_RESULT_COMPLETED || op->result == IDEM_RESULT_FOUND)
        return idem_pg_record_keep(&record, op->out.now_us, &op->out.found);
    op->out.fence = record.fence;
    op->out.attempt = record.attempt;
    if (op->result == IDEM_RESULT_UNKNOWN)
        op->out.since_us = idem_record_unknown_since_us(&record);
    else
        op->out.retry_after_us = record.lease_until_us - op->out.now_us;
    return IDEM_OK;
}

/* The row that speaks for those without one, given to all; -1 when there is none. */
static int default_find(const PGresult *result)
{
    bool failed = false;

    if (PQntuples(result) > 0 && idem_pg_cell_number(result, 0, IDEM_PG_N, &failed) == 0)
        return 0;
    return -1;
}

static int op_decode(const PGresult *result, int row, struct idem_op *op)
{
    bool failed = false;

    op->result = result_read(result, row);
    op->out.now_us = idem_pg_cell_instant(result, row, IDEM_PG_AT, &failed);
    return failed ? IDEM_ERR_CORRUPT : op_tell(result, row, op);
}

static int rows_decode(const PGresult *result, struct idem_op *const *ops, size_t count,
                       const struct idem_pg_room *room)
{
    int fields = idem_pg_call_group(ops[0]) == IDEM_PG_VERDICT ? (int)VERDICT_FIELD_COUNT
                                                               : (int)IDEM_PG_FIELD_COUNT;
    int otherwise = default_find(result);
    int error = PQnfields(result) == fields ? IDEM_OK : IDEM_ERR_CORRUPT;

    for (int row = otherwise + 1; row < PQntuples(result) && !error; row++) {
        bool failed = false;
        int64_t n = idem_pg_cell_number(result, row, IDEM_PG_N, &failed);

        if (failed || n < 1 || (uint64_t)n > count)
            return IDEM_ERR_CORRUPT;
        error = op_decode(result, row, ops[n - 1]);
    }
    for (size_t i = 0; i < count && !error; i++) {
        if (ops[i]->result != IDEM_RESULT_NONE)
            continue;
        error = otherwise < 0 ? IDEM_ERR_CORRUPT : op_decode(result, otherwise, ops[i]);
        if (!error && ops[i]->result == IDEM_RESULT_OK)
            ops[i]->out.tombstoned = is_tombstoned(ops[i], room);
        if (ops[i]->result == IDEM_RESULT_NONE)
            error = IDEM_ERR_CORRUPT;
    }
    return error;
}

int idem_pg_call_decode(struct idem_backend *store, enum idem_pg_group group,
                        const PGresult *result, struct idem_op *const *ops, size_t count,
                        const struct idem_pg_room *room)
{
    switch (group) {
    case IDEM_PG_SCAN:
        return idem_pg_scan_decode(result, ops[0]);
    case IDEM_PG_AUDIT:
        return idem_pg_audit_decode(result, ops[0]);
    case IDEM_PG_SWEEP:
        return idem_pg_sweep_decode(store, result, ops[0]);
    default:
        return rows_decode(result, ops, count, room);
    }
}
