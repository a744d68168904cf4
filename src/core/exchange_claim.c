/*
 * Getting the claim, and waiting for whoever has it.
 *
 *   1. The first claim takes nothing over, whatever the policy. So it is known of every later one
 *      whether it may take over an unknown, and of every claim whether `fail` would be true.
 *   2. In progress: refused, or made again after a pause, as long as the same claim runs.
 *   3. Unknown: refused, or made again as a take-over (`retry`: of any; `probe`: of the fence
 * seen).
 *   4. A claim whose result is not known is undone, and never followed by another.
 *
 * All claims of an exchange have the same owner. That is safe because one follows another only when
 * the store has said that the one before got nothing.
 */
#include "core/exchange_parts.h"

#include <limits.h>

#define PAUSE_US_MIN (IDEM_SECOND_US / 50)
#define PAUSE_US_MAX IDEM_SECOND_US

void idem_exchange_on_request(struct idem_exchange *x, const struct idem_event *event,
                              struct idem_effects *effects)
{
    idem_effects_store(effects, IDEM_OP_CLAIM, false);
    idem_exchange_move(x, IDEM_EXCHANGE_CLAIMING);
}

static void on_acquired(struct idem_exchange *x, const struct idem_op *op,
                        struct idem_effects *effects)
{
    x->fence = op->out.fence;
    x->attempt = op->out.attempt;
    x->owned = true;
    if (x->unknown_before && x->policy->unknown == IDEM_UNKNOWN_PROBE) {
        idem_exchange_probe(x, effects);
    } else {
        idem_exchange_execute(x, effects);
    }
}

static int64_t pause_next(int64_t pause_us)
{
    if (pause_us < PAUSE_US_MIN) {
        return PAUSE_US_MIN;
    }
    return pause_us < PAUSE_US_MAX / 2 ? pause_us * 2 : PAUSE_US_MAX;
}

/*
 * Waits for the claim that was seen first, as long as the policy allows and somebody waits for the
 * answer. When another runs, the first one failed and one waiter has it: the rest give up.
 */
static void on_in_progress(struct idem_exchange *x, const struct idem_op *op,
                           struct idem_effects *effects)
{
    int64_t left_us = x->policy->wait_us - x->waited_us;
    bool another = x->wait_fence != 0 && x->wait_fence != op->out.fence;

    if (left_us <= 0 || another || x->client_gone) {
        idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_IN_PROGRESS);
        return;
    }
    x->wait_fence = op->out.fence;
    if (x->claim.take == IDEM_TAKE_FENCE) {
        x->claim.take = IDEM_TAKE_NONE; /* the fence that it names is gone */
    }
    x->pause_us = pause_next(x->pause_us);
    idem_effects_timer(effects, x->pause_us < left_us ? x->pause_us : left_us);
    idem_exchange_move(x, IDEM_EXCHANGE_WAITING);
}

/* How long a probe's 404 would not count yet. A clock that was stepped back waits for all of it. */
static int64_t unsettled_us(const struct idem_exchange *x, const struct idem_op *op)
{
    int64_t settle_us = x->policy->settle_us, past_us = op->out.now_us - op->out.since_us;

    if (x->policy->unknown != IDEM_UNKNOWN_PROBE || past_us >= settle_us) {
        return 0;
    }
    return past_us > 0 ? settle_us - past_us : settle_us;
}

static void refuse_unsettled(struct idem_exchange *x, struct idem_effects *effects, int64_t left_us)
{
    struct idem_problem problem = idem_problem_make(IDEM_PROBLEM_OUTCOME_UNKNOWN);
    int64_t left_s = (left_us - 1) / IDEM_SECOND_US + 1;

    problem.retry_after_s = left_s < INT_MAX ? (unsigned)left_s : INT_MAX;
    idem_exchange_refuse(x, effects, problem, IDEM_DURABLE_NOTHING);
}

/*
 * Takes it over if the policy says so, once an exchange: what is unknown again after another's
 * probe stays so. Nothing is taken over before it has settled, because giving it back would count
 * as a new abandonment and move that instant further and further away.
 */
static void on_unknown(struct idem_exchange *x, const struct idem_op *op,
                       struct idem_effects *effects)
{
    int64_t left_us = unsettled_us(x, op);

    if (x->policy->unknown == IDEM_UNKNOWN_HOLD || x->unknown_before) {
        idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_OUTCOME_UNKNOWN);
        return;
    }
    if (left_us > 0) {
        refuse_unsettled(x, effects, left_us);
        return;
    }
    x->unknown_before = true;
    if (x->policy->unknown == IDEM_UNKNOWN_RETRY) {
        x->claim.take = IDEM_TAKE_ANY;
    } else {
        x->claim.take = IDEM_TAKE_FENCE;
        x->claim.take_fence = op->out.fence;
    }
    idem_effects_store(effects, IDEM_OP_CLAIM, false);
}

/*
 * The store cannot guard this request: refused, or let through where the route prefers that, unless
 * the store has already told of another attempt, running or unknown.
 */
static void go_unguarded(struct idem_exchange *x, struct idem_effects *effects,
                         enum idem_problem_kind otherwise)
{
    bool seen = x->wait_fence != 0 || x->unknown_before;

    if (!x->policy->fail_open || seen) {
        idem_exchange_refuse_kind(x, effects, otherwise);
        return;
    }
    idem_effects_add(effects, IDEM_EFFECT_BYPASS, IDEM_DURABLE_NOTHING);
    idem_exchange_move(x, IDEM_EXCHANGE_DONE);
}

/*
 * Gives back a claim that may have been won, though nothing was sent under it. If it may have taken
 * over an unknown, "failed" would be a lie about the attempt before.
 */
static void undo_claim(struct idem_exchange *x, struct idem_effects *effects)
{
    x->reason = IDEM_REASON_ABORTED;
    idem_effects_store(effects, x->unknown_before ? IDEM_OP_ABANDON : IDEM_OP_FAIL, true);
}

void idem_exchange_on_claim_result(struct idem_exchange *x, const struct idem_event *event,
                                   struct idem_effects *effects)
{
    const struct idem_op *op = event->op;

    if (op->kind != IDEM_OP_CLAIM) {
        return;
    }
    switch (op->result) {
    case IDEM_RESULT_ACQUIRED:
        on_acquired(x, op, effects);
        return;
    case IDEM_RESULT_COMPLETED:
        idem_exchange_replay(x, effects, op);
        return;
    case IDEM_RESULT_IN_PROGRESS:
        on_in_progress(x, op, effects);
        return;
    case IDEM_RESULT_UNKNOWN:
        on_unknown(x, op, effects);
        return;
    case IDEM_RESULT_MISMATCH:
        idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_KEY_REUSED);
        return;
    case IDEM_RESULT_OTHER_PRINCIPAL:
        idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_OTHER_CALLER);
        return;
    case IDEM_RESULT_FULL:
        go_unguarded(x, effects, IDEM_PROBLEM_STORE_FULL);
        return;
    case IDEM_RESULT_ENDED:
        /* Won when its reply was lost; lapsed when it was repeated. Nothing was sent under it. */
        undo_claim(x, effects);
        idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_STORE_UNAVAILABLE);
        return;
    default: /* CORRUPT: the record may say "executed" */
        idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_STORE_UNAVAILABLE);
    }
}

/* A claim whose result is not known is never forwarded under guard. */
void idem_exchange_on_claim_failed(struct idem_exchange *x, const struct idem_event *event,
                                   struct idem_effects *effects)
{
    if (event->op_kind != IDEM_OP_CLAIM) {
        return;
    }
    if (!event->not_applied) {
        undo_claim(x, effects);
    }
    go_unguarded(x, effects, IDEM_PROBLEM_STORE_UNAVAILABLE);
}

void idem_exchange_on_claim_client_gone(struct idem_exchange *x, const struct idem_event *event,
                                        struct idem_effects *effects)
{
    x->client_gone = true;
}

/* The claim under way may have been too early to see the change: the next pause is a short one. */
void idem_exchange_on_claim_wake(struct idem_exchange *x, const struct idem_event *event,
                                 struct idem_effects *effects)
{
    x->pause_us = 0;
}

void idem_exchange_on_claim_aborted(struct idem_exchange *x, const struct idem_event *event,
                                    struct idem_effects *effects)
{
    undo_claim(x, effects);
    idem_exchange_move(x, IDEM_EXCHANGE_DONE);
}

/* TICK or WAKE. When the time allowed is over this is the last claim: it may find the answer. */
void idem_exchange_on_wait_over(struct idem_exchange *x, const struct idem_event *event,
                                struct idem_effects *effects)
{
    if (event->kind == IDEM_EVENT_WAKE) {
        x->pause_us = 0;
    }
    if (event->elapsed_us > x->waited_us) {
        x->waited_us = event->elapsed_us;
    }
    idem_effects_store(effects, IDEM_OP_CLAIM, false);
    idem_exchange_move(x, IDEM_EXCHANGE_CLAIMING);
}
