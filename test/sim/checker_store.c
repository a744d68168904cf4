/*
 * What the store is seen to do, op by op. Of each id a track is kept: who holds it, in which state,
 * until when, with which answer. It follows what the store says and protests where the rules of
 * design 4 and 5.2 do not allow it.
 *
 * Of a record whose end of life lies between the store's clock and the latest that this clock has
 * ever told, nothing is said: after a step back it may be there, or have been swept.
 */
#include "sim/checker.h"
#include "sim/upstream.h"

enum life { GONE, LIVE, EITHER };

static enum life track_life(const struct world *world, const struct track *track, int64_t now_us)
{
    if (track->state == 0 || now_us >= track->expires_last_us)
        return GONE;
    return world->clock_max_us >= track->expires_us ? EITHER : LIVE;
}

static bool track_lapsed(const struct track *track, int64_t now_us)
{
    return now_us >= track->lease_until_us || track->lease_until_us - now_us > 2 * track->lease_us;
}

/* Abandoned, or its lease has ended. */
static bool track_over(const struct track *track, int64_t now_us)
{
    return track->state == IDEM_STATE_UNKNOWN || track_lapsed(track, now_us);
}

static int64_t after(int64_t now_us, int64_t length_us)
{
    return length_us == IDEM_NEVER_US ? IDEM_NEVER_US : now_us + length_us;
}

static void track_expire(struct track *track, int64_t at_us)
{
    track->expires_us = track->expires_last_us = at_us;
}

static struct answer answer_of(const struct idem_answer *answer)
{
    return (struct answer){answer->status, answer->tombstone, answer->headers, answer->body};
}

/* An unknown, or a running, record gets a new owner: only as the policy says. */
static void check_takeover(struct world *world, const struct track *track,
                           const struct request *request, uint16_t number, int64_t now_us)
{
    if (track->state == IDEM_STATE_COMPLETED) {
        check_broken(world, CHECKER_TAKEOVER, "request %u is given a key that was completed",
                     number);
    } else if (track->state == IDEM_STATE_PROCESSING && !track_lapsed(track, now_us)) {
        check_broken(world, CHECKER_TAKEOVER, "request %u is given a key that request %u runs",
                     number, track->holder);
    } else if (world->policy.unknown == IDEM_UNKNOWN_HOLD) {
        check_broken(world, CHECKER_TAKEOVER, "request %u takes an unknown over under hold",
                     number);
    } else if (world->policy.unknown == IDEM_UNKNOWN_PROBE &&
               (!request->saw_unknown || request->unknown_fence != track->fence)) {
        check_broken(world, CHECKER_TAKEOVER,
                     "request %u takes over fence %llu and has seen fence %llu", number,
                     (unsigned long long)track->fence, (unsigned long long)request->unknown_fence);
    }
    world->cover.situations[COVER_KEY_TAKEN_OVER] = true;
}

static void track_begin(struct world *world, struct track *track)
{
    world->cover.situations[COVER_KEY_EXPIRED] |= track->life > 0;
    track->life++;
    track->over = false;
    track->told_to = NOBODY;
    track->effects = 0;
    track->effect_of = track->kept_of = NOBODY;
}

/* The same owner's claim again: nothing but the same words is allowed. */
static bool acquired_before(struct world *world, const struct track *track,
                            const struct request *request, uint16_t number,
                            const struct idem_op *op, enum life life)
{
    if (track->holder != number || life == GONE)
        return false;
    if (track->state == IDEM_STATE_PROCESSING && request->acquired) {
        if (op->out.fence != track->fence && life == EITHER)
            return false; /* it had expired, and this is another claim of the key */
        if (op->out.fence != track->fence)
            check_broken(world, CHECKER_FENCE, "request %u: its claim again, and another fence",
                         number);
        return true;
    }
    if (life == LIVE)
        check_broken(world, CHECKER_OWNER, "request %u acquires a key that it had given back",
                     number);
    return false;
}

static void on_acquired(struct world *world, struct track *track, uint16_t number,
                        const struct idem_op *op)
{
    struct request *request = &world->requests[number];
    int64_t now_us = op->out.now_us;
    enum life life = track_life(world, track, now_us);

    if (acquired_before(world, track, request, number, op, life) || world->broken)
        return;
    if (op->out.fence <= track->fence_max) {
        check_broken(world, CHECKER_FENCE, "request %u gets fence %llu after %llu", number,
                     (unsigned long long)op->out.fence, (unsigned long long)track->fence_max);
        return;
    }
    if (life == LIVE && track->state != IDEM_STATE_FAILED)
        check_takeover(world, track, request, number, now_us);
    if (life != LIVE || track->over)
        track_begin(world, track);
    else if (track->state == IDEM_STATE_FAILED)
        world->cover.situations[COVER_KEY_FAILED_AGAIN] = true;
    request->orphan = request->over || request->verdict_applied || world->stray;
    world->cover.situations[COVER_CLAIM_ORPHAN] |= request->orphan;
    track->state = IDEM_STATE_PROCESSING;
    track->phantom = false;
    track->holder = number;
    track->payload = request->payload;
    track->principal = request->principal;
    track->fence = track->fence_max = op->out.fence;
    track->lease_us = world->policy.lease_us;
    track->lease_until_us = now_us + track->lease_us;
    track_expire(track, after(track->lease_until_us, world->policy.unknown_ttl_us));
    request->fence_before = request->acquired ? request->fence : 0;
    if (world->stray && request->acquired)
        return; /* the key expired in its hands: the claim that it has heard of is the first one */
    request->acquired = true;
    request->fence = op->out.fence;
    request->attempt = op->out.attempt;
    request->key_life = track->life;
}

static void check_told(struct world *world, uint16_t number, const struct idem_record *record)
{
    struct request *request = &world->requests[number];
    struct track *track = &world->tracks[request->id];
    struct answer answer = answer_of(&record->answer);

    if (track->state != IDEM_STATE_COMPLETED) {
        check_broken(world, CHECKER_SAME, "request %u is told an answer that nobody recorded",
                     number);
    } else if (!answer_equal(&answer, &track->recorded)) {
        check_broken(world, CHECKER_SAME, "request %u is told another answer than was recorded",
                     number);
    }
    if (world->stray)
        return; /* nobody hears it: what counts is what the first one was told */
    request->told_completed = true;
    request->expected = track->recorded;
    request->told_life = track->life;
}

/* Unknown since when, and rightly so. */
static void check_unknown_told(struct world *world, const struct track *track, uint16_t number,
                               const struct idem_op *op)
{
    bool abandoned = track->state == IDEM_STATE_UNKNOWN;

    if (!track_over(track, op->out.now_us))
        check_broken(world, CHECKER_LOST, "request %u is told unknown, and request %u runs", number,
                     track->holder);
    else if (op->out.since_us != (abandoned ? track->abandoned_us : track->lease_until_us))
        check_broken(world, CHECKER_TAKEOVER, "request %u is told a wrong instant of abandonment",
                     number);
    else if (!abandoned && world->plan.calm)
        check_broken(world, CHECKER_LOST, "the lease of request %u ends and its gateway lives",
                     track->holder);
}

/* What a claim is told of a record that it does not get. */
static void on_claim_refused(struct world *world, struct track *track, uint16_t number,
                             const struct idem_op *op)
{
    struct request *request = &world->requests[number];
    enum life life = track_life(world, track, op->out.now_us);
    bool final = track->state == IDEM_STATE_COMPLETED || track->state == IDEM_STATE_FAILED;

    if (life == GONE) {
        check_broken(world, CHECKER_STUCK, "request %u is told %s of a key that nobody holds",
                     number, idem_result_text(op->result));
        return;
    }
    switch (op->result) {
    case IDEM_RESULT_COMPLETED:
        check_told(world, number, &op->out.found.record);
        break;
    case IDEM_RESULT_IN_PROGRESS:
        if (life == LIVE && !final && track_over(track, op->out.now_us))
            check_broken(world, CHECKER_STUCK, "request %u is told in_progress, and nobody runs",
                         number);
        break;
    case IDEM_RESULT_UNKNOWN:
        if (life == LIVE && !final)
            check_unknown_told(world, track, number, op);
        break;
    case IDEM_RESULT_MISMATCH:
        world->cover.situations[COVER_CLIENT_OTHER_PAYLOAD] = true;
        if (request->payload == track->payload)
            check_broken(world, CHECKER_STUCK, "request %u is the same, and told it is another",
                         number);
        break;
    case IDEM_RESULT_OTHER_PRINCIPAL:
        world->cover.situations[COVER_CLIENT_OTHER_CALLER] = true;
        if (request->principal == track->principal)
            check_broken(world, CHECKER_STUCK, "request %u is told that its caller is another",
                         number);
        break;
    default:
        break;
    }
    if (life == LIVE && final &&
        (op->result == IDEM_RESULT_IN_PROGRESS || op->result == IDEM_RESULT_UNKNOWN))
        check_broken(world, CHECKER_LOST, "request %u is told %s, and the verdict was taken",
                     number, idem_result_text(op->result));
}

static void on_claim(struct world *world, struct track *track, uint16_t number,
                     const struct idem_op *op)
{
    switch (op->result) {
    case IDEM_RESULT_ACQUIRED:
        on_acquired(world, track, number, op);
        break;
    case IDEM_RESULT_ENDED:
        if (track->holder == number && track->state == IDEM_STATE_PROCESSING &&
            track_life(world, track, op->out.now_us) == LIVE && !track_over(track, op->out.now_us))
            check_broken(world, CHECKER_OWNER, "request %u runs, and is told that it has ended",
                         number);
        world->cover.situations[COVER_CLAIM_LATE] = true;
        break;
    case IDEM_RESULT_FULL:
        break;
    default:
        on_claim_refused(world, track, number, op);
    }
}

static void on_renew(struct world *world, struct track *track, uint16_t number,
                     const struct idem_op *op)
{
    int64_t until_us = op->out.now_us + world->policy.lease_us;

    if (op->result != IDEM_RESULT_OK)
        return;
    if (track_life(world, track, op->out.now_us) == GONE || track->holder != number ||
        track->state != IDEM_STATE_PROCESSING || track_lapsed(track, op->out.now_us)) {
        check_broken(world, CHECKER_OWNER, "request %u renews a lease that is not its own any more",
                     number);
        return;
    }
    if (until_us > track->lease_until_us)
        track->lease_until_us = until_us;
    track_expire(track, after(track->lease_until_us, world->policy.unknown_ttl_us));
}

/* Who fails a key that is not there leaves a mark, so that a late claim of its own finds it. */
static void on_phantom(struct world *world, struct track *track, uint16_t number,
                       const struct idem_op *op)
{
    track->state = IDEM_STATE_FAILED;
    track->phantom = track->over = true;
    track->holder = number;
    track_expire(track, op->out.now_us + world->policy.lease_us);
}

/* A fail on what may have expired: the mark of an absent claim, or the record's own end. */
static void on_either(struct world *world, struct track *track, uint16_t number,
                      const struct idem_op *op)
{
    int64_t first_us = track->expires_us, last_us = track->expires_last_us;
    int64_t failed_us = after(op->out.now_us, world->policy.ttl_us);

    on_phantom(world, track, number, op);
    if (failed_us < track->expires_us)
        track->expires_us = failed_us;
    if (failed_us > track->expires_last_us)
        track->expires_last_us = failed_us;
    if (first_us < track->expires_us)
        track->expires_us = first_us; /* it may stand as it was */
    if (last_us > track->expires_last_us)
        track->expires_last_us = last_us;
}

/* A key that is given back as failed: nothing has happened for it, and nothing can any more. */
static void check_without_effect(struct world *world, const struct track *track)
{
    for (size_t i = 0; i < world->execution_count; i++) {
        const struct execution *execution = &world->executions[i];
        bool open = upstream_is_open(execution) && execution->fence >= track->promised;

        if (execution->id != track - world->tracks || execution->key_life != track->life ||
            execution->probe || track->bypassed)
            continue;
        if (execution->effect || open)
            check_broken(world, CHECKER_TRUTH, "request %u says failed, and request %u %s",
                         track->holder, execution->request,
                         execution->effect ? "took effect" : "may still take effect");
    }
}

static void verdict_take(struct world *world, struct track *track, const struct idem_op *op)
{
    int64_t now_us = op->out.now_us;

    if (op->kind != IDEM_OP_ABANDON && track_lapsed(track, now_us))
        world->cover.situations[COVER_VERDICT_LATE] = true;
    if (op->kind == IDEM_OP_ABANDON) {
        if (track->state != IDEM_STATE_UNKNOWN)
            track->abandoned_us = now_us;
        track->state = IDEM_STATE_UNKNOWN;
        return;
    }
    if (op->kind == IDEM_OP_FAIL)
        check_without_effect(world, track);
    track_expire(track, after(now_us, world->policy.ttl_us));
    track->state = op->kind == IDEM_OP_FAIL ? IDEM_STATE_FAILED : IDEM_STATE_COMPLETED;
    if (op->kind == IDEM_OP_COMPLETE) {
        track->recorded = answer_of(&op->in.verdict.answer);
        if (op->out.tombstoned)
            track->recorded =
                (struct answer){.status = track->recorded.status, .tombstone = IDEM_REASON_NO_ROOM};
    }
}

static void on_verdict(struct world *world, struct track *track, uint16_t number,
                       const struct idem_op *op)
{
    struct request *request = &world->requests[number];
    enum life life = track_life(world, track, op->out.now_us);
    bool own = track->holder == number && track->state != 0;
    bool awaited = own && !track->phantom &&
                   (track->state == IDEM_STATE_PROCESSING || track->state == IDEM_STATE_UNKNOWN);
    bool again = own && ((op->kind == IDEM_OP_COMPLETE && track->state == IDEM_STATE_COMPLETED) ||
                         (op->kind == IDEM_OP_FAIL && track->state == IDEM_STATE_FAILED));
    bool ok = op->result == IDEM_RESULT_OK;

    if (request->verdict == op->kind)
        request->verdict_applied = true;
    request->verdict_ok |= ok;
    if (life == GONE) {
        if (ok && op->kind == IDEM_OP_FAIL)
            on_phantom(world, track, number, op);
        else if (op->kind == IDEM_OP_FAIL)
            check_broken(world, CHECKER_OWNER, "request %u fails a key that is not there, in vain",
                         number);
        else if (ok)
            check_broken(world, CHECKER_OWNER, "request %u records on a key that is not there",
                         number);
        return;
    }
    if (ok && life == EITHER && op->kind == IDEM_OP_FAIL) {
        on_either(world, track, number, op);
    } else if (ok && awaited) {
        verdict_take(world, track, op);
    } else if (ok && !again) {
        check_broken(world, CHECKER_OWNER, "request %u records %s on a key that request %u holds",
                     number, idem_op_kind_text(op->kind), track->holder);
    } else if (!ok && life == LIVE && (awaited || again)) {
        check_broken(world, CHECKER_LOST, "request %u holds its key, and its %s is %s", number,
                     idem_op_kind_text(op->kind), idem_result_text(op->result));
    }
}

static void on_resolve(struct world *world, struct track *track, const struct idem_op *op)
{
    if (op->result != IDEM_RESULT_OK)
        return;
    if (track->state == IDEM_STATE_COMPLETED || track->state == IDEM_STATE_FAILED)
        check_broken(world, CHECKER_OWNER, "a person settles a key that has its verdict");
    track->holder = NOBODY;
    track->state = op->in.resolve.completed ? IDEM_STATE_COMPLETED : IDEM_STATE_FAILED;
    track_expire(track, after(op->out.now_us, op->in.resolve.ttl_us));
    track->recorded = answer_of(&op->in.resolve.answer);
    if (track->recorded.status == 0)
        track->recorded.tombstone = IDEM_REASON_RESOLVED;
    for (size_t i = 0; i < world->execution_count; i++)
        if (world->executions[i].id == track - world->tracks && !op->in.resolve.completed)
            world->executions[i].settled = true;
}

/* A look at the record, after a lost verdict or before a claim: told like a claim's result. */
static void on_get(struct world *world, const struct track *track, uint16_t number,
                   const struct idem_op *op)
{
    if (number == NOBODY || op->result != IDEM_RESULT_FOUND)
        return;
    if (track_life(world, track, op->out.now_us) == GONE)
        check_broken(world, CHECKER_SAME, "request %u is shown a record that has expired", number);
    else if (op->out.found.record.state == IDEM_STATE_COMPLETED)
        check_told(world, number, &op->out.found.record);
}

void check_applied(struct world *world, const struct idem_op *op, uint16_t asker)
{
    unsigned id = world_id_find(&op->id);
    uint16_t number = world_op_request(world, op);
    struct track *track;

    world->cover.results[op->kind][op->result] = true;
    if (id == IDS_MAX)
        return;
    track = &world->tracks[id];
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        on_claim(world, track, number, op);
        break;
    case IDEM_OP_RENEW:
        on_renew(world, track, number, op);
        break;
    case IDEM_OP_COMPLETE:
    case IDEM_OP_FAIL:
    case IDEM_OP_ABANDON:
        on_verdict(world, track, number, op);
        break;
    case IDEM_OP_GET:
        on_get(world, track, asker, op);
        break;
    case IDEM_OP_RESOLVE:
        on_resolve(world, track, op);
        break;
    case IDEM_OP_FORGET:
        if (op->result == IDEM_RESULT_OK)
            track->state = 0;
        break;
    default:
        break;
    }
}
