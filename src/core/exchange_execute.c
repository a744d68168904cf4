/*
 * The upstream works, the lease is renewed, the verdict is given, and what became of it is told.
 *
 * "Failed" is said of this attempt, by the evidence, by the answer's status or in the upstream's
 * own word. It is recorded only where no earlier attempt may have taken effect: under `retry`,
 * which sends a request again without knowing, and may send it while the earlier one still runs,
 * the record stays unknown until an answer is final.
 */
#include "core/exchange_parts.h"

#include <assert.h>

static void forward(struct idem_exchange *x, struct idem_effects *effects)
{
    struct idem_effect *effect = idem_effects_add(effects, IDEM_EFFECT_FORWARD, IDEM_DURABLE_CLAIM);

    effect->attempt = x->attempt;
    effect->fence = x->fence;
}

void idem_exchange_execute(struct idem_exchange *x, struct idem_effects *effects)
{
    idem_exchange_move(x, IDEM_EXCHANGE_EXECUTING);
    idem_effects_timer(effects, x->claim.lease_us / 3);
    forward(x, effects);
}

/* One at a time: a result then belongs to the renewal that was asked for last. */
void idem_exchange_renew(struct idem_exchange *x, struct idem_effects *effects)
{
    if (!x->renewing) {
        x->renewing = true;
        idem_effects_store(effects, IDEM_OP_RENEW, false);
    }
}

void idem_exchange_on_tick(struct idem_exchange *x, const struct idem_event *event,
                           struct idem_effects *effects)
{
    idem_exchange_renew(x, effects);
}

/*
 * `lost` while the upstream works: it cannot be stopped, but its verdict will be refused, and no
 * other upstream gets the request.
 */
void idem_exchange_on_renew_result(struct idem_exchange *x, const struct idem_event *event,
                                   struct idem_effects *effects)
{
    if (event->op->kind != IDEM_OP_RENEW) {
        return;
    }
    x->renewing = false;
    if (event->op->result == IDEM_RESULT_OK) {
        idem_effects_timer(effects, x->claim.lease_us / 3);
    } else {
        x->renew_lost = true;
    }
}

/* Tried again sooner, so that one lost reply does not cost the lease. */
void idem_exchange_on_renew_failed(struct idem_exchange *x, const struct idem_event *event,
                                   struct idem_effects *effects)
{
    if (event->op_kind == IDEM_OP_RENEW) {
        x->renewing = false;
        idem_effects_timer(effects, x->claim.lease_us / 6);
    }
}

/* The upstream's side is over: gives the verdict, which the answer waits for. */
void idem_exchange_record(struct idem_exchange *x, struct idem_effects *effects,
                          enum idem_outcome outcome, enum idem_reason reason)
{
    static const enum idem_op_kind VERDICTS[] = {
        [IDEM_OUTCOME_FINAL] = IDEM_OP_COMPLETE,
        [IDEM_OUTCOME_FAILED] = IDEM_OP_FAIL,
        [IDEM_OUTCOME_UNKNOWN] = IDEM_OP_ABANDON,
    };

    assert(outcome > IDEM_OUTCOME_UNSET && outcome <= IDEM_OUTCOME_UNKNOWN);
    x->verdict = VERDICTS[outcome];
    x->reason = reason;
    idem_effects_store(effects, x->verdict, false);
    idem_exchange_move(x, IDEM_EXCHANGE_RECORDING);
}

/* What an answer says of the operation, not only of this attempt. */
static enum idem_outcome outcome_of(const struct idem_exchange *x, unsigned status,
                                    enum idem_outcome declared)
{
    enum idem_outcome outcome = idem_policy_outcome(x->policy, status, declared);

    return outcome == IDEM_OUTCOME_FAILED && x->unknown_before ? IDEM_OUTCOME_UNKNOWN : outcome;
}

/*
 * The answer is larger than what is kept. Its verdict is recorded before the first byte leaves, so
 * that a retry is told "executed" and never executes again; then the answer flows through.
 */
void idem_exchange_overflow(struct idem_exchange *x, struct idem_effects *effects)
{
    x->overflow = true;
    idem_exchange_record(x, effects, x->outcome,
                         x->outcome == IDEM_OUTCOME_FINAL ? IDEM_REASON_TOO_LARGE : x->reason);
}

void idem_exchange_on_answer_head(struct idem_exchange *x, const struct idem_event *event,
                                  struct idem_effects *effects)
{
    unsigned decisive = event->own_status ? event->own_status : event->status;

    x->answer_status = event->status;
    x->outcome = outcome_of(x, decisive, event->declared);
    x->reason = event->declared == IDEM_OUTCOME_UNKNOWN ? IDEM_REASON_DECLARED : IDEM_REASON_STATUS;
    x->body_size = 0;

    if (event->length > 0 && (uint64_t)event->length > x->policy->body_size_max) {
        idem_exchange_overflow(x, effects);
    }
}

void idem_exchange_on_answer_body(struct idem_exchange *x, const struct idem_event *event,
                                  struct idem_effects *effects)
{
    if (x->outcome == IDEM_OUTCOME_UNSET) {
        return; /* of what was thrown away: an answer begins with its head */
    }
    x->body_size += event->size;
    if (x->body_size > x->policy->body_size_max) {
        idem_exchange_overflow(x, effects);
    }
}

void idem_exchange_on_answer_end(struct idem_exchange *x, const struct idem_event *event,
                                 struct idem_effects *effects)
{
    if (x->outcome != IDEM_OUTCOME_UNSET) {
        idem_exchange_record(x, effects, x->outcome, x->reason);
    }
}

enum idem_reason idem_exchange_reason_of(enum idem_evidence evidence)
{
    static const enum idem_reason REASONS[] = {
        [IDEM_EVIDENCE_NOT_SENT] = IDEM_REASON_NONE,
        [IDEM_EVIDENCE_UNANSWERED] = IDEM_REASON_UNANSWERED,
        [IDEM_EVIDENCE_TRUNCATED] = IDEM_REASON_TRUNCATED,
        [IDEM_EVIDENCE_INVALID] = IDEM_REASON_INVALID,
    };

    return REASONS[evidence];
}

/* Nothing was sent this time, but the answer to what an earlier attempt sent is still missing. */
static struct idem_problem unanswered_before(void)
{
    struct idem_problem problem = idem_problem_make(IDEM_PROBLEM_UPSTREAM_UNANSWERED);

    problem.detail = "The service could not be reached this time. An earlier attempt may have "
                     "reached it, and may have taken effect. Send the same request with the same "
                     "key again. Do not use a new key: that could execute it twice.";
    return problem;
}

void idem_exchange_on_upstream_failed(struct idem_exchange *x, const struct idem_event *event,
                                      struct idem_effects *effects)
{
    if (event->evidence != IDEM_EVIDENCE_NOT_SENT) {
        x->failure = idem_problem_make(IDEM_PROBLEM_UPSTREAM_UNANSWERED);
        x->reason = idem_exchange_reason_of(event->evidence);
        x->outcome = IDEM_OUTCOME_UNKNOWN;
    } else if (x->unknown_before) {
        x->failure = unanswered_before();
        x->reason = IDEM_REASON_UNANSWERED;
        x->outcome = IDEM_OUTCOME_UNKNOWN;
    } else {
        x->failure = idem_problem_make(IDEM_PROBLEM_UPSTREAM_UNREACHABLE);
        x->reason = IDEM_REASON_NONE;
        x->outcome = IDEM_OUTCOME_FAILED;
    }
    if (event->status >= 500) {
        x->failure.status = event->status;
    }
    idem_exchange_record(x, effects, x->outcome, x->reason);
}

/*
 * Another handler that executes wants the request: it may have it only if nobody has had it yet and
 * the claim, as far as is known, still stands. If somebody has, and answered, that answer's status
 * decides, though its bytes were thrown away.
 */
void idem_exchange_on_rerouted(struct idem_exchange *x, const struct idem_event *event,
                               struct idem_effects *effects)
{
    enum idem_outcome outcome;

    if (event->evidence == IDEM_EVIDENCE_NOT_SENT && !x->renew_lost) {
        forward(x, effects);
        return;
    }
    if (event->evidence == IDEM_EVIDENCE_NOT_SENT || event->status < 200) {
        idem_exchange_on_upstream_failed(x, event, effects);
        return;
    }

    outcome = outcome_of(x, event->status, event->declared);
    x->answer_status = event->status;
    x->overflow = true;
    x->failure =
        idem_problem_make(outcome == IDEM_OUTCOME_FINAL ? IDEM_PROBLEM_ANSWER_NOT_KEPT
                                                        : IDEM_PROBLEM_UPSTREAM_UNANSWERED);
    x->failure.original_status = event->status;
    idem_exchange_record(x, effects, outcome,
                         outcome == IDEM_OUTCOME_FINAL ? IDEM_REASON_REPLACED : IDEM_REASON_STATUS);
}

void idem_exchange_on_execution_aborted(struct idem_exchange *x, const struct idem_event *event,
                                        struct idem_effects *effects)
{
    bool nothing = event->evidence == IDEM_EVIDENCE_NOT_SENT && !x->unknown_before;

    x->verdict = nothing ? IDEM_OP_FAIL : IDEM_OP_ABANDON;
    x->reason = IDEM_REASON_ABORTED;
    idem_effects_store(effects, x->verdict, true);
    idem_exchange_move(x, IDEM_EXCHANGE_DONE);
}

/*
 * Whether the answer in hand is a probe's. It is the key's answer, and this request's only as long
 * as the key is: once the claim is lost, another caller may have executed under the key meanwhile.
 */
static bool is_probed(const struct idem_exchange *x)
{
    return x->unknown_before && x->policy->unknown == IDEM_UNKNOWN_PROBE;
}

static void deliver(struct idem_exchange *x, struct idem_effects *effects, bool unrecorded)
{
    enum idem_durable requires = unrecorded ? IDEM_DURABLE_NOTHING : IDEM_DURABLE_VERDICT;

    if (x->failure.kind != IDEM_PROBLEM_NONE) {
        idem_exchange_refuse(x, effects, x->failure, requires);
        return;
    }
    if (unrecorded && is_probed(x)) {
        idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_OUTCOME_UNKNOWN);
        return;
    }
    idem_effects_add(effects, IDEM_EFFECT_DELIVER, requires)->unrecorded = unrecorded;
    idem_exchange_move(x, IDEM_EXCHANGE_DONE);
}

void idem_exchange_on_verdict_result(struct idem_exchange *x, const struct idem_event *event,
                                     struct idem_effects *effects)
{
    if (event->op->kind != x->verdict) {
        return;
    }
    if (event->op->result == IDEM_RESULT_LOST) {
        x->owned = false;
        idem_exchange_move(x, IDEM_EXCHANGE_LOOKING);
        idem_effects_store(effects, IDEM_OP_GET, false);
        return;
    }
    deliver(x, effects, event->op->result != IDEM_RESULT_OK);
}

/* The answer exists and the client gets it, unless it is a probe's; the driver's executor goes on
 * recording it. */
void idem_exchange_on_verdict_failed(struct idem_exchange *x, const struct idem_event *event,
                                     struct idem_effects *effects)
{
    if (event->op_kind == x->verdict) {
        deliver(x, effects, true);
    }
}

/*
 * The verdict was `lost`: somebody took the record over or settled it, so the client gets what the
 * record says. Where it has nothing to say, gone or released by a person, the answer in hand is the
 * truth and is told as unrecorded, unless it is a probe's.
 */
void idem_exchange_on_look_result(struct idem_exchange *x, const struct idem_event *event,
                                  struct idem_effects *effects)
{
    const struct idem_op *op = event->op;

    if (op->kind != IDEM_OP_GET) {
        return;
    }
    if (op->result == IDEM_RESULT_FOUND) {
        switch (op->out.found.record.state) {
        case IDEM_STATE_COMPLETED:
            idem_exchange_replay(x, effects, op);
            return;
        case IDEM_STATE_PROCESSING:
            idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_IN_PROGRESS);
            return;
        case IDEM_STATE_UNKNOWN:
            idem_exchange_refuse_kind(x, effects, IDEM_PROBLEM_OUTCOME_UNKNOWN);
            return;
        case IDEM_STATE_FAILED:
            break;
        }
    }
    deliver(x, effects, true);
}

void idem_exchange_on_look_failed(struct idem_exchange *x, const struct idem_event *event,
                                  struct idem_effects *effects)
{
    if (event->op_kind == IDEM_OP_GET) {
        deliver(x, effects, true);
    }
}
