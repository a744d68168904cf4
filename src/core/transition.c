/*
 * The rules of a record's life (design 4 and 5.2), for every store that keeps blobs:
 *
 *   1. an expired record is as good as absent; only its fence is still respected
 *   2. claim and get compare the fingerprint before they tell anything, then the principal, unless
 *      the record is FAILED, which has nothing to show
 *   3. an owner's own repeat is answered as the first time, or with `ended` and `lost`
 *   4. whatever changes the state goes through move(), which holds the one table of allowed moves
 */
#include "core/transition.h"

#include <assert.h>

#include <idem/limits.h>

#define MOVE(state) (1u << (state))

#define ABSENT 0 /* the number that enum idem_state leaves unused */

/*
 * The allowed moves: by op, then by the state as the op sees it (a lapsed lease is UNKNOWN), the
 * set of states that it may lead to. What is not named here never happens.
 */
static const uint8_t moves_allowed[IDEM_OP_COUNT][IDEM_STATE_COUNT] = {
    [IDEM_OP_CLAIM] =
        {
            [ABSENT] = MOVE(IDEM_STATE_PROCESSING),
            [IDEM_STATE_FAILED] = MOVE(IDEM_STATE_PROCESSING),
            [IDEM_STATE_UNKNOWN] = MOVE(IDEM_STATE_PROCESSING),
        },
    [IDEM_OP_RENEW] =
        {
            [IDEM_STATE_PROCESSING] = MOVE(IDEM_STATE_PROCESSING),
        },
    [IDEM_OP_COMPLETE] =
        {
            [IDEM_STATE_PROCESSING] = MOVE(IDEM_STATE_COMPLETED),
            [IDEM_STATE_UNKNOWN] = MOVE(IDEM_STATE_COMPLETED),
        },
    [IDEM_OP_FAIL] =
        {
            [ABSENT] = MOVE(IDEM_STATE_FAILED),
            [IDEM_STATE_PROCESSING] = MOVE(IDEM_STATE_FAILED),
            [IDEM_STATE_UNKNOWN] = MOVE(IDEM_STATE_FAILED),
        },
    [IDEM_OP_ABANDON] =
        {
            [IDEM_STATE_PROCESSING] = MOVE(IDEM_STATE_UNKNOWN),
            [IDEM_STATE_UNKNOWN] = MOVE(IDEM_STATE_UNKNOWN),
        },
    [IDEM_OP_RESOLVE] =
        {
            [IDEM_STATE_PROCESSING] = MOVE(IDEM_STATE_COMPLETED) | MOVE(IDEM_STATE_FAILED),
            [IDEM_STATE_COMPLETED] = MOVE(IDEM_STATE_COMPLETED) | MOVE(IDEM_STATE_FAILED),
            [IDEM_STATE_FAILED] = MOVE(IDEM_STATE_COMPLETED) | MOVE(IDEM_STATE_FAILED),
            [IDEM_STATE_UNKNOWN] = MOVE(IDEM_STATE_COMPLETED) | MOVE(IDEM_STATE_FAILED),
        },
    [IDEM_OP_FORGET] =
        {
            [IDEM_STATE_PROCESSING] = MOVE(ABSENT),
            [IDEM_STATE_COMPLETED] = MOVE(ABSENT),
            [IDEM_STATE_FAILED] = MOVE(ABSENT),
            [IDEM_STATE_UNKNOWN] = MOVE(ABSENT),
        },
};

bool idem_transition_allowed(enum idem_op_kind op, int from, int to)
{
    if (op < IDEM_OP_CLAIM || op >= IDEM_OP_COUNT || from < 0 || from >= IDEM_STATE_COUNT ||
        to < 0 || to >= IDEM_STATE_COUNT) {
        return false;
    }
    return (moves_allowed[op][from] & MOVE(to)) != 0;
}

/* One op under way: what it sees, and where its change goes. */
struct step {
    struct idem_op *op;
    int64_t now_us;
    const struct idem_record *current; /* what is physically there, or NULL */
    const struct idem_record *live;    /* the same, or NULL once expired */
    int state;                         /* of `live` at this moment, or ABSENT */
    uint64_t fence_floor;
    bool room;
    struct idem_transition *ret;
};

static int64_t add_saturated(int64_t instant_us, int64_t length_us)
{
    if (length_us <= 0) {
        return instant_us;
    }
    return instant_us > IDEM_NEVER_US - length_us ? IDEM_NEVER_US : instant_us + length_us;
}

static uint64_t fence_above(uint64_t fence)
{
    return fence == UINT64_MAX ? UINT64_MAX : fence + 1;
}

static uint64_t fence_greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The next fence of this id: above its last one, above all removed ones, and near the clock. */
static uint64_t fence_next(const struct step *step)
{
    uint64_t fence = fence_above(step->fence_floor);

    if (step->current) {
        fence = fence_greater(fence, fence_above(step->current->fence));
    }
    return fence_greater(fence, step->now_us > 0 ? (uint64_t)step->now_us : 0);
}

/* What holds of every record that is written, whatever led to it. */
static void record_assert(const struct idem_record *record)
{
    bool completed = record->state == IDEM_STATE_COMPLETED;

    assert(record->fence > 0);
    assert(record->state >= IDEM_STATE_PROCESSING && record->state <= IDEM_STATE_UNKNOWN);
    assert(completed || (record->answer.status == 0 && record->answer.body.size == 0 &&
                         record->answer.headers.size == 0));
    assert(record->state == IDEM_STATE_UNKNOWN || record->reason == IDEM_REASON_NONE);
    assert(record->answer.tombstone == IDEM_REASON_NONE ||
           (record->answer.body.size == 0 && record->answer.headers.size == 0));
}

/* The one place where a record changes its state. The record's other fields are set already. */
static void move(struct step *step, enum idem_state to)
{
    struct idem_record *record = &step->ret->record;

    assert(idem_transition_allowed(step->op->kind, step->state, (int)to));
    record->state = to;
    record->updated_us = step->now_us;
    record_assert(record);
    step->ret->change = IDEM_CHANGE_PUT;
    step->ret->created = step->current == NULL;
}

static void answer_clear(struct idem_record *record)
{
    memset(&record->answer, 0, sizeof record->answer);
}

static struct idem_bytes bytes_cut(struct idem_bytes bytes, size_t size_max)
{
    if (bytes.size > size_max) {
        bytes.size = size_max;
    }
    return bytes;
}

/* A FAILED record that `fail` left on an absent id: it stands for a claim that was never seen. */
static bool is_phantom(const struct idem_record *record)
{
    return record->state == IDEM_STATE_FAILED &&
           record->fingerprint.algorithm == IDEM_FINGERPRINT_NONE;
}

static bool fingerprint_matches(const struct idem_record *record,
                                const struct idem_fingerprint *fingerprint)
{
    return is_phantom(record) || idem_fingerprint_equal(&record->fingerprint, fingerprint);
}

static uint32_t attempt_next(const struct idem_record *live)
{
    if (!live)
        return 1;
    return live->attempt == UINT32_MAX ? UINT32_MAX : live->attempt + 1;
}

/* Gives the id to the caller: a new record, or the next attempt of the one that is there. */
static void claim_acquire(struct step *step)
{
    const struct idem_claim *in = &step->op->in.claim;
    struct idem_record *record = &step->ret->record;

    if (!step->room) {
        step->op->result = IDEM_RESULT_FULL;
        return;
    }
    memset(record, 0, sizeof *record);
    record->id = step->op->id;
    record->kind = in->kind;
    record->scope = in->scope;
    record->key = in->key;
    record->method = bytes_cut(in->method, IDEM_METHOD_SIZE_MAX);
    record->path = bytes_cut(in->path, IDEM_PATH_SIZE_MAX);
    record->fingerprint = in->fingerprint;
    record->principal = in->principal;
    record->owner = in->owner;
    record->fence = fence_next(step);
    record->attempt = attempt_next(step->live);
    record->lease_us = in->lease_us;
    record->lease_until_us = add_saturated(step->now_us, in->lease_us);
    record->expires_us = add_saturated(record->lease_until_us, in->unknown_ttl_us);
    record->created_us = step->live ? step->live->created_us : step->now_us;
    move(step, IDEM_STATE_PROCESSING);
    step->op->result = IDEM_RESULT_ACQUIRED;
    step->op->out.fence = record->fence;
    step->op->out.attempt = record->attempt;
}

static void claim_acquired_before(struct step *step)
{
    step->op->result = IDEM_RESULT_ACQUIRED;
    step->op->out.fence = step->live->fence;
    step->op->out.attempt = step->live->attempt;
}

static void claim_unknown(struct step *step)
{
    const struct idem_claim *in = &step->op->in.claim;
    const struct idem_record *live = step->live;

    if (in->take == IDEM_TAKE_ANY ||
        (in->take == IDEM_TAKE_FENCE && in->take_fence == live->fence)) {
        claim_acquire(step);
        return;
    }
    step->op->result = IDEM_RESULT_UNKNOWN;
    step->op->out.since_us = idem_record_unknown_since_us(live);
    step->op->out.fence = live->fence;
    step->op->out.attempt = live->attempt;
}

static void claim(struct step *step)
{
    struct idem_op *op = step->op;
    const struct idem_record *live = step->live;

    if (!live) {
        claim_acquire(step);
    } else if (!fingerprint_matches(live, &op->in.claim.fingerprint)) {
        op->result = IDEM_RESULT_MISMATCH;
    } else if (idem_owner_equal(&live->owner, &op->in.claim.owner)) {
        if (step->state == IDEM_STATE_PROCESSING) {
            claim_acquired_before(step);
        } else {
            op->result = IDEM_RESULT_ENDED;
        }
    } else if (step->state == IDEM_STATE_FAILED) {
        claim_acquire(step);
    } else if (!idem_principal_equal(&live->principal, &op->in.claim.principal)) {
        op->result = IDEM_RESULT_OTHER_PRINCIPAL;
    } else if (step->state == IDEM_STATE_PROCESSING) {
        op->result = IDEM_RESULT_IN_PROGRESS;
        op->out.retry_after_us = live->lease_until_us - step->now_us;
        op->out.fence = live->fence;
        op->out.attempt = live->attempt;
    } else if (step->state == IDEM_STATE_UNKNOWN) {
        claim_unknown(step);
    } else {
        op->result = IDEM_RESULT_COMPLETED;
    }
}

/*
 * Never moves a lease back. When the old end stands, so does the old length: a lease that ends
 * further ahead than twice its length would count as lapsed.
 */
static void renew(struct step *step)
{
    const struct idem_renew *in = &step->op->in.renew;
    struct idem_record *record = &step->ret->record;
    int64_t until_us = add_saturated(step->now_us, in->lease_us);

    if (step->state != IDEM_STATE_PROCESSING || !idem_owner_equal(&step->live->owner, &in->owner)) {
        step->op->result = IDEM_RESULT_LOST;
        return;
    }
    *record = *step->live;
    if (until_us > record->lease_until_us) {
        record->lease_until_us = until_us;
        record->lease_us = in->lease_us;
    }
    record->expires_us = add_saturated(record->lease_until_us, in->unknown_ttl_us);
    move(step, IDEM_STATE_PROCESSING);
    step->op->result = IDEM_RESULT_OK;
}

/* True while the record still waits for its own owner's word: running, lapsed or abandoned. */
static bool verdict_awaited(const struct step *step)
{
    return step->state == IDEM_STATE_PROCESSING || step->state == IDEM_STATE_UNKNOWN;
}

static bool verdict_owned(const struct step *step)
{
    return step->live && idem_owner_equal(&step->live->owner, &step->op->in.verdict.owner);
}

static void complete(struct step *step)
{
    const struct idem_verdict *in = &step->op->in.verdict;
    struct idem_record *record = &step->ret->record;

    if (!verdict_owned(step)) {
        step->op->result = IDEM_RESULT_LOST;
    } else if (verdict_awaited(step)) {
        *record = *step->live;
        record->reason = IDEM_REASON_NONE;
        record->answer = in->answer;
        record->expires_us = add_saturated(step->now_us, in->ttl_us);
        move(step, IDEM_STATE_COMPLETED);
        step->op->result = IDEM_RESULT_OK;
        step->op->out.tombstoned = in->answer.tombstone == IDEM_REASON_NO_ROOM;
    } else if (step->state == IDEM_STATE_COMPLETED) {
        step->op->result = IDEM_RESULT_OK;
        step->op->out.tombstoned = step->live->answer.tombstone == IDEM_REASON_NO_ROOM;
    } else {
        step->op->result = IDEM_RESULT_LOST;
    }
}

/*
 * Leaves FAILED{owner} for one lease on an id where the owner's claim was not seen (yet): if that
 * claim is still on its way to the store it will find its owner there, and end.
 */
static void fail_phantom(struct step *step)
{
    const struct idem_verdict *in = &step->op->in.verdict;
    struct idem_record *record = &step->ret->record;

    memset(record, 0, sizeof *record);
    record->id = step->op->id;
    record->owner = in->owner;
    record->fence = fence_next(step);
    record->lease_us = in->lease_us;
    record->lease_until_us = step->now_us;
    record->created_us = step->now_us;
    record->expires_us = add_saturated(step->now_us, in->lease_us);
    move(step, IDEM_STATE_FAILED);
    step->op->result = IDEM_RESULT_OK;
}

static void fail(struct step *step)
{
    struct idem_record *record = &step->ret->record;

    if (!step->live) {
        fail_phantom(step);
    } else if (verdict_owned(step) && verdict_awaited(step)) {
        *record = *step->live;
        record->reason = IDEM_REASON_NONE;
        record->expires_us = add_saturated(step->now_us, step->op->in.verdict.ttl_us);
        move(step, IDEM_STATE_FAILED);
        step->op->result = IDEM_RESULT_OK;
    } else {
        step->op->result = verdict_owned(step) && step->state == IDEM_STATE_FAILED
                               ? IDEM_RESULT_OK
                               : IDEM_RESULT_LOST;
    }
}

static void abandon(struct step *step)
{
    struct idem_record *record = &step->ret->record;

    if (!verdict_owned(step) || !verdict_awaited(step)) {
        step->op->result = IDEM_RESULT_LOST;
        return;
    }
    step->op->result = IDEM_RESULT_OK;
    if (step->live->state == IDEM_STATE_UNKNOWN) {
        return; /* the same word again */
    }
    *record = *step->live;
    record->reason = step->op->in.verdict.reason;
    move(step, IDEM_STATE_UNKNOWN);
}

static void get(struct step *step)
{
    const struct idem_get *in = &step->op->in.get;
    const struct idem_record *live = step->live;

    if (!live) {
        step->op->result = IDEM_RESULT_ABSENT;
    } else if (in->match && !fingerprint_matches(live, &in->fingerprint)) {
        step->op->result = IDEM_RESULT_MISMATCH;
    } else if (in->match && step->state != IDEM_STATE_FAILED &&
               !idem_principal_equal(&live->principal, &in->principal)) {
        step->op->result = IDEM_RESULT_OTHER_PRINCIPAL;
    } else {
        step->op->result = IDEM_RESULT_FOUND;
    }
}

static void resolve_settle(struct step *step)
{
    const struct idem_resolve *in = &step->op->in.resolve;
    struct idem_record *record = &step->ret->record;

    *record = *step->live;
    record->reason = IDEM_REASON_NONE;
    record->owner = in->owner;
    record->resolution.who = in->who;
    record->resolution.why = in->why;
    record->resolution.at_us = step->now_us;
    record->expires_us = add_saturated(step->now_us, in->ttl_us);
    answer_clear(record);
    if (in->completed) {
        record->answer = in->answer;
        /* Without a status there is no answer that could be told again. */
        if (in->answer.tombstone == IDEM_REASON_NONE && in->answer.status == 0) {
            answer_clear(record);
            record->answer.tombstone = IDEM_REASON_RESOLVED;
        }
    }
    move(step, in->completed ? IDEM_STATE_COMPLETED : IDEM_STATE_FAILED);
    step->op->result = IDEM_RESULT_OK;
    step->op->out.tombstoned = record->answer.tombstone == IDEM_REASON_NO_ROOM;
}

static void resolve(struct step *step)
{
    const struct idem_resolve *in = &step->op->in.resolve;
    const struct idem_record *live = step->live;

    if (!live) {
        step->op->result = IDEM_RESULT_ABSENT;
    } else if (idem_owner_equal(&live->owner, &in->owner)) {
        step->op->result = IDEM_RESULT_OK; /* this very resolve again */
    } else if (live->fence != in->fence || live->updated_us != in->updated_us) {
        step->op->result = IDEM_RESULT_CHANGED;
    } else if (step->state != IDEM_STATE_UNKNOWN && !in->force) {
        step->op->result = IDEM_RESULT_REFUSED;
    } else {
        resolve_settle(step);
    }
}

static void forget(struct step *step)
{
    if (!step->live) {
        step->op->result = IDEM_RESULT_ABSENT;
    } else if (step->state == IDEM_STATE_PROCESSING && !step->op->in.forget.force) {
        step->op->result = IDEM_RESULT_REFUSED;
    } else {
        assert(idem_transition_allowed(IDEM_OP_FORGET, step->state, ABSENT));
        step->ret->change = IDEM_CHANGE_DELETE;
        step->op->result = IDEM_RESULT_OK;
    }
}

static bool put_is_there(const struct idem_record *live, const struct idem_record *in)
{
    return live->fence == in->fence && live->updated_us == in->updated_us &&
           idem_owner_equal(&live->owner, &in->owner);
}

/*
 * Of one fence the later change stands; whoever made it (a person who resolves is another owner).
 * A later claim stands over the outcome that it took up: what is FAILED or UNKNOWN here.
 */
static bool put_stands_over(const struct step *step, const struct idem_record *in)
{
    if (step->live->fence == in->fence) {
        return step->live->updated_us < in->updated_us;
    }
    return step->live->fence < in->fence &&
           (step->state == IDEM_STATE_FAILED || step->state == IDEM_STATE_UNKNOWN);
}

/* Copies a record in: over nothing, or over an earlier state of what it was at the source. */
static void put(struct step *step)
{
    const struct idem_record *in = &step->op->in.put.record;

    if (step->live && put_is_there(step->live, in)) {
        step->op->result = IDEM_RESULT_OK;
    } else if (step->live && !put_stands_over(step, in)) {
        step->op->result = IDEM_RESULT_CHANGED;
    } else if (!step->room) {
        step->op->result = IDEM_RESULT_FULL;
    } else {
        step->ret->record = *in;
        step->ret->change = IDEM_CHANGE_PUT;
        step->ret->created = step->current == NULL;
        record_assert(in);
        step->op->result = IDEM_RESULT_OK;
    }
}

static void (*const steps[IDEM_OP_COUNT])(struct step *) = {
    [IDEM_OP_CLAIM] = claim,     [IDEM_OP_RENEW] = renew,     [IDEM_OP_COMPLETE] = complete,
    [IDEM_OP_FAIL] = fail,       [IDEM_OP_ABANDON] = abandon, [IDEM_OP_GET] = get,
    [IDEM_OP_RESOLVE] = resolve, [IDEM_OP_FORGET] = forget,   [IDEM_OP_PUT] = put,
};

void idem_transition(struct idem_op *op, int64_t now_us, const struct idem_record *current,
                     uint64_t fence_floor, bool room, struct idem_transition *ret_transition)
{
    struct step step = {
        .op = op,
        .now_us = now_us,
        .current = current,
        .fence_floor = fence_floor,
        .room = room,
        .ret = ret_transition,
    };

    assert(op->kind >= IDEM_OP_CLAIM && op->kind < IDEM_OP_COUNT && steps[op->kind]);
    assert(!current || idem_id_equal(&current->id, &op->id));
    if (current && !idem_record_expired_at(current, now_us)) {
        step.live = current;
        step.state = (int)idem_record_state_at(current, now_us);
    }
    ret_transition->change = IDEM_CHANGE_NONE;
    ret_transition->created = false;
    op->result = IDEM_RESULT_NONE;
    op->out.now_us = now_us;
    steps[op->kind](&step);
    assert(op->result != IDEM_RESULT_NONE);
}
