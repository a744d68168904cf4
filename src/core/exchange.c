/*
 * The exchange, as a table of who handles which event in which state.
 *
 *   1. Each handler looks at the event, changes the exchange, and appends effects.
 *   2. move() is the only writer of `state`; it asserts that the move is one of MOVES.
 *   3. After each step invariant() holds: in particular nothing is forwarded without a claim, and
 *      an exchange that holds a claim always has a way to give its verdict.
 *
 * An event that no handler waits for comes too late and has no effect: a time-out and the result
 * that overtakes it, a timer that was armed before the answer came.
 */
#include <idem/exchange.h>

#include <assert.h>

#define BIT(state) (1u << (state))

static const unsigned MOVES[IDEM_EXCHANGE_STATE_COUNT] = {
    [IDEM_EXCHANGE_IDLE] = BIT(IDEM_EXCHANGE_CLAIMING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_CLAIMING] = BIT(IDEM_EXCHANGE_EXECUTING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_EXECUTING] = BIT(IDEM_EXCHANGE_RECORDING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_RECORDING] = BIT(IDEM_EXCHANGE_LOOKING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_LOOKING] = BIT(IDEM_EXCHANGE_DONE),
};

static void invariant(const struct idem_exchange *x)
{
    assert(x->state < IDEM_EXCHANGE_STATE_COUNT);
    assert(x->state != IDEM_EXCHANGE_EXECUTING || x->attempt > 0);
    assert(x->state != IDEM_EXCHANGE_RECORDING || x->verdict != 0);
    assert(x->state != IDEM_EXCHANGE_LOOKING || !x->owned);
    assert(!x->overflow || x->verdict != 0);
}

static void move(struct idem_exchange *x, enum idem_exchange_state next)
{
    invariant(x);
    assert(MOVES[x->state] & BIT(next));
    x->state = next;
}

static struct idem_effect *effects_add(struct idem_effects *effects, enum idem_effect_kind kind,
                                       enum idem_durable requires)
{
    struct idem_effect *effect = &effects->items[effects->count];

    assert(effects->count < IDEM_EFFECTS_MAX);
    effects->count++;
    *effect = (struct idem_effect){.kind = kind, .requires = requires};
    return effect;
}

static void effects_store(struct idem_effects *effects, enum idem_op_kind kind, bool background)
{
    struct idem_effect *effect = effects_add(effects, IDEM_EFFECT_STORE, IDEM_DURABLE_NOTHING);

    effect->op_kind = kind;
    effect->background = background;
}

static void effects_timer(struct idem_effects *effects, int64_t delay_us)
{
    effects_add(effects, IDEM_EFFECT_TIMER, IDEM_DURABLE_NOTHING)->delay_us = delay_us;
}

static void refuse(struct idem_exchange *x, struct idem_effects *effects,
                   struct idem_problem problem, enum idem_durable requires)
{
    effects_add(effects, IDEM_EFFECT_REFUSE, requires)->problem = problem;
    move(x, IDEM_EXCHANGE_DONE);
}

static void refuse_kind(struct idem_exchange *x, struct idem_effects *effects,
                        enum idem_problem_kind kind)
{
    refuse(x, effects, idem_problem_make(kind), IDEM_DURABLE_NOTHING);
}

static void forward(struct idem_exchange *x, struct idem_effects *effects)
{
    struct idem_effect *effect = effects_add(effects, IDEM_EFFECT_FORWARD, IDEM_DURABLE_CLAIM);

    effect->attempt = x->attempt;
    effect->fence = x->fence;
}

/* The upstream's side is over: gives the verdict, which the answer waits for. */
static void record_verdict(struct idem_exchange *x, struct idem_effects *effects,
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
    effects_store(effects, x->verdict, false);
    move(x, IDEM_EXCHANGE_RECORDING);
}

/* Answers a completed record: with the answer, or with why there is none. */
static void answer_from_record(struct idem_exchange *x, struct idem_effects *effects,
                               const struct idem_op *op)
{
    const struct idem_answer *answer = &op->out.found.record.answer;
    struct idem_problem problem;

    if (answer->tombstone == IDEM_REASON_NONE) {
        effects_add(effects, IDEM_EFFECT_REPLAY, IDEM_DURABLE_VERDICT);
        move(x, IDEM_EXCHANGE_DONE);
        return;
    }

    problem = idem_problem_make(IDEM_PROBLEM_ANSWER_NOT_KEPT);
    problem.original_status = answer->status;
    refuse(x, effects, problem, IDEM_DURABLE_VERDICT);
}

static void on_request(struct idem_exchange *x, const struct idem_event *event,
                       struct idem_effects *effects)
{
    effects_store(effects, IDEM_OP_CLAIM, false);
    move(x, IDEM_EXCHANGE_CLAIMING);
}

static void on_acquired(struct idem_exchange *x, const struct idem_op *op,
                        struct idem_effects *effects)
{
    x->fence = op->out.fence;
    x->attempt = op->out.attempt;
    x->owned = true;
    move(x, IDEM_EXCHANGE_EXECUTING);
    effects_timer(effects, x->claim.lease_us / 3);
    forward(x, effects);
}

/* The store cannot guard this request: refused, or let through where the route prefers that. */
static void go_unguarded(struct idem_exchange *x, struct idem_effects *effects,
                         enum idem_problem_kind otherwise)
{
    if (!x->policy->fail_open) {
        refuse_kind(x, effects, otherwise);
        return;
    }
    effects_add(effects, IDEM_EFFECT_BYPASS, IDEM_DURABLE_NOTHING);
    move(x, IDEM_EXCHANGE_DONE);
}

static void on_claim_result(struct idem_exchange *x, const struct idem_event *event,
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
        answer_from_record(x, effects, op);
        return;
    case IDEM_RESULT_IN_PROGRESS:
        refuse_kind(x, effects, IDEM_PROBLEM_IN_PROGRESS);
        return;
    case IDEM_RESULT_UNKNOWN:
        refuse_kind(x, effects, IDEM_PROBLEM_OUTCOME_UNKNOWN);
        return;
    case IDEM_RESULT_MISMATCH:
        refuse_kind(x, effects, IDEM_PROBLEM_KEY_REUSED);
        return;
    case IDEM_RESULT_OTHER_PRINCIPAL:
        refuse_kind(x, effects, IDEM_PROBLEM_OTHER_CALLER);
        return;
    case IDEM_RESULT_FULL:
        go_unguarded(x, effects, IDEM_PROBLEM_STORE_FULL);
        return;
    default:
        /* ENDED: this claim was given up before. CORRUPT: the record may say "executed". */
        refuse_kind(x, effects, IDEM_PROBLEM_STORE_UNAVAILABLE);
    }
}

/* A claim whose result is not known is never forwarded under guard; its `fail` undoes it. */
static void on_claim_failed(struct idem_exchange *x, const struct idem_event *event,
                            struct idem_effects *effects)
{
    if (event->op_kind != IDEM_OP_CLAIM) {
        return;
    }
    if (!event->not_applied) {
        effects_store(effects, IDEM_OP_FAIL, true);
    }
    go_unguarded(x, effects, IDEM_PROBLEM_STORE_UNAVAILABLE);
}

static void on_claim_aborted(struct idem_exchange *x, const struct idem_event *event,
                             struct idem_effects *effects)
{
    effects_store(effects, IDEM_OP_FAIL, true);
    move(x, IDEM_EXCHANGE_DONE);
}

static void on_tick(struct idem_exchange *x, const struct idem_event *event,
                    struct idem_effects *effects)
{
    effects_store(effects, IDEM_OP_RENEW, false);
}

/* `lost` while the upstream works: it cannot be stopped, but its verdict will be refused. */
static void on_renew_result(struct idem_exchange *x, const struct idem_event *event,
                            struct idem_effects *effects)
{
    if (event->op->kind == IDEM_OP_RENEW && event->op->result == IDEM_RESULT_OK) {
        effects_timer(effects, x->claim.lease_us / 3);
    }
}

/* Tried again sooner, so that one lost reply does not cost the lease. */
static void on_renew_failed(struct idem_exchange *x, const struct idem_event *event,
                            struct idem_effects *effects)
{
    if (event->op_kind == IDEM_OP_RENEW) {
        effects_timer(effects, x->claim.lease_us / 6);
    }
}

/*
 * The answer is larger than what is kept. Its verdict is recorded before the first byte leaves, so
 * that a retry is told "executed" and never executes again; then the answer flows through.
 */
static void overflow(struct idem_exchange *x, struct idem_effects *effects)
{
    x->overflow = true;
    record_verdict(x, effects, x->outcome,
                   x->outcome == IDEM_OUTCOME_FINAL ? IDEM_REASON_TOO_LARGE : x->reason);
}

static void on_answer_head(struct idem_exchange *x, const struct idem_event *event,
                           struct idem_effects *effects)
{
    unsigned decisive = event->own_status ? event->own_status : event->status;

    x->answer_status = event->status;
    x->outcome = idem_policy_outcome(x->policy, decisive, event->declared);
    x->reason = event->declared == IDEM_OUTCOME_UNSET ? IDEM_REASON_STATUS : IDEM_REASON_DECLARED;
    x->body_size = 0;

    if (event->length > 0 && (uint64_t)event->length > x->policy->body_size_max) {
        overflow(x, effects);
    }
}

static void on_answer_body(struct idem_exchange *x, const struct idem_event *event,
                           struct idem_effects *effects)
{
    x->body_size += event->size;
    if (x->outcome != IDEM_OUTCOME_UNSET && x->body_size > x->policy->body_size_max) {
        overflow(x, effects);
    }
}

static void on_answer_end(struct idem_exchange *x, const struct idem_event *event,
                          struct idem_effects *effects)
{
    if (x->outcome != IDEM_OUTCOME_UNSET) {
        record_verdict(x, effects, x->outcome, x->reason);
    }
}

static void give_up(struct idem_exchange *x, const struct idem_event *event,
                    struct idem_effects *effects)
{
    static const enum idem_reason REASONS[] = {
        [IDEM_EVIDENCE_NOT_SENT] = IDEM_REASON_NONE,
        [IDEM_EVIDENCE_UNANSWERED] = IDEM_REASON_UNANSWERED,
        [IDEM_EVIDENCE_TRUNCATED] = IDEM_REASON_TRUNCATED,
        [IDEM_EVIDENCE_INVALID] = IDEM_REASON_INVALID,
    };
    bool sent = event->evidence != IDEM_EVIDENCE_NOT_SENT;

    x->failure = idem_problem_make(sent ? IDEM_PROBLEM_UPSTREAM_UNANSWERED
                                        : IDEM_PROBLEM_UPSTREAM_UNREACHABLE);
    if (event->status >= 500) {
        x->failure.status = event->status;
    }
    record_verdict(x, effects, sent ? IDEM_OUTCOME_UNKNOWN : IDEM_OUTCOME_FAILED,
                   REASONS[event->evidence]);
}

/*
 * Another handler that executes wants the request: it may have it only if nobody has had it yet.
 * If somebody has, and answered, that answer's status decides, though its bytes were thrown away.
 */
static void on_rerouted(struct idem_exchange *x, const struct idem_event *event,
                        struct idem_effects *effects)
{
    enum idem_outcome outcome;

    if (event->evidence == IDEM_EVIDENCE_NOT_SENT) {
        forward(x, effects);
        return;
    }
    if (event->status < 200) {
        give_up(x, event, effects);
        return;
    }

    outcome = idem_policy_outcome(x->policy, event->status, event->declared);
    x->answer_status = event->status;
    x->overflow = true;
    x->failure =
        idem_problem_make(outcome == IDEM_OUTCOME_FINAL ? IDEM_PROBLEM_ANSWER_NOT_KEPT
                                                        : IDEM_PROBLEM_UPSTREAM_UNANSWERED);
    x->failure.original_status = event->status;
    record_verdict(x, effects, outcome,
                   outcome == IDEM_OUTCOME_FINAL ? IDEM_REASON_REPLACED : IDEM_REASON_STATUS);
}

static void on_execution_aborted(struct idem_exchange *x, const struct idem_event *event,
                                 struct idem_effects *effects)
{
    bool sent = event->evidence != IDEM_EVIDENCE_NOT_SENT;

    x->verdict = sent ? IDEM_OP_ABANDON : IDEM_OP_FAIL;
    x->reason = IDEM_REASON_ABORTED;
    effects_store(effects, x->verdict, true);
    move(x, IDEM_EXCHANGE_DONE);
}

static void deliver(struct idem_exchange *x, struct idem_effects *effects, bool unrecorded)
{
    enum idem_durable requires = unrecorded ? IDEM_DURABLE_NOTHING : IDEM_DURABLE_VERDICT;

    if (x->failure.kind != IDEM_PROBLEM_NONE) {
        refuse(x, effects, x->failure, requires);
        return;
    }
    effects_add(effects, IDEM_EFFECT_DELIVER, requires)->unrecorded = unrecorded;
    move(x, IDEM_EXCHANGE_DONE);
}

static void on_verdict_result(struct idem_exchange *x, const struct idem_event *event,
                              struct idem_effects *effects)
{
    if (event->op->kind != x->verdict) {
        return;
    }
    if (event->op->result == IDEM_RESULT_LOST) {
        x->owned = false;
        move(x, IDEM_EXCHANGE_LOOKING);
        effects_store(effects, IDEM_OP_GET, false);
        return;
    }
    deliver(x, effects, event->op->result != IDEM_RESULT_OK);
}

/* The answer exists and the client gets it; the driver's executor goes on recording it. */
static void on_verdict_failed(struct idem_exchange *x, const struct idem_event *event,
                              struct idem_effects *effects)
{
    if (event->op_kind == x->verdict) {
        deliver(x, effects, true);
    }
}

/*
 * The verdict was `lost`: somebody took the record over or settled it, so the client gets what the
 * record says. Where it has nothing to say, gone or released by a person, the answer in hand is the
 * truth and is told as unrecorded.
 */
static void on_look_result(struct idem_exchange *x, const struct idem_event *event,
                           struct idem_effects *effects)
{
    const struct idem_op *op = event->op;

    if (op->kind != IDEM_OP_GET) {
        return;
    }
    if (op->result == IDEM_RESULT_FOUND) {
        switch (op->out.found.record.state) {
        case IDEM_STATE_COMPLETED:
            answer_from_record(x, effects, op);
            return;
        case IDEM_STATE_PROCESSING:
            refuse_kind(x, effects, IDEM_PROBLEM_IN_PROGRESS);
            return;
        case IDEM_STATE_UNKNOWN:
            refuse_kind(x, effects, IDEM_PROBLEM_OUTCOME_UNKNOWN);
            return;
        case IDEM_STATE_FAILED:
            break;
        }
    }
    deliver(x, effects, true);
}

static void on_look_failed(struct idem_exchange *x, const struct idem_event *event,
                           struct idem_effects *effects)
{
    if (event->op_kind == IDEM_OP_GET) {
        deliver(x, effects, true);
    }
}

/* The verdict is already with the executor, which does not need the exchange any more. */
static void on_aborted(struct idem_exchange *x, const struct idem_event *event,
                       struct idem_effects *effects)
{
    move(x, IDEM_EXCHANGE_DONE);
}

typedef void (*handler)(struct idem_exchange *x, const struct idem_event *event,
                        struct idem_effects *effects);

static const handler HANDLERS[IDEM_EXCHANGE_STATE_COUNT][IDEM_EVENT_KIND_COUNT] = {
    [IDEM_EXCHANGE_IDLE] =
        {
            [IDEM_EVENT_REQUEST] = on_request,
            [IDEM_EVENT_ABORTED] = on_aborted,
        },
    [IDEM_EXCHANGE_CLAIMING] =
        {
            [IDEM_EVENT_STORE_RESULT] = on_claim_result,
            [IDEM_EVENT_STORE_FAILED] = on_claim_failed,
            [IDEM_EVENT_ABORTED] = on_claim_aborted,
        },
    [IDEM_EXCHANGE_EXECUTING] =
        {
            [IDEM_EVENT_STORE_RESULT] = on_renew_result,
            [IDEM_EVENT_STORE_FAILED] = on_renew_failed,
            [IDEM_EVENT_ANSWER_HEAD] = on_answer_head,
            [IDEM_EVENT_ANSWER_BODY] = on_answer_body,
            [IDEM_EVENT_ANSWER_END] = on_answer_end,
            [IDEM_EVENT_UPSTREAM_FAILED] = give_up,
            [IDEM_EVENT_REROUTED] = on_rerouted,
            [IDEM_EVENT_TICK] = on_tick,
            [IDEM_EVENT_ABORTED] = on_execution_aborted,
        },
    [IDEM_EXCHANGE_RECORDING] =
        {
            [IDEM_EVENT_STORE_RESULT] = on_verdict_result,
            [IDEM_EVENT_STORE_FAILED] = on_verdict_failed,
            [IDEM_EVENT_ABORTED] = on_aborted,
        },
    [IDEM_EXCHANGE_LOOKING] =
        {
            [IDEM_EVENT_STORE_RESULT] = on_look_result,
            [IDEM_EVENT_STORE_FAILED] = on_look_failed,
            [IDEM_EVENT_ABORTED] = on_aborted,
        },
};

void idem_exchange_init(struct idem_exchange *exchange, const struct idem_policy *policy,
                        const struct idem_id *id, const struct idem_claim *claim)
{
    *exchange = (struct idem_exchange){.policy = policy, .id = *id, .claim = *claim};
    exchange->claim.lease_us = policy->lease_us;
    exchange->claim.ttl_us = policy->ttl_us;
    exchange->claim.unknown_ttl_us = policy->unknown_ttl_us;
    exchange->claim.take = policy->unknown == IDEM_UNKNOWN_RETRY ? IDEM_TAKE_ANY : IDEM_TAKE_NONE;
}

void idem_exchange_step(struct idem_exchange *exchange, const struct idem_event *event,
                        struct idem_effects *ret_effects)
{
    handler handle;

    assert(event->kind < IDEM_EVENT_KIND_COUNT);
    ret_effects->count = 0;
    invariant(exchange);
    handle = HANDLERS[exchange->state][event->kind];
    if (handle != NULL) {
        handle(exchange, event, ret_effects);
    }
    invariant(exchange);
}

static void fill_verdict(const struct idem_exchange *x, enum idem_op_kind kind,
                         struct idem_verdict *verdict)
{
    verdict->owner = x->claim.owner;
    verdict->ttl_us = x->policy->ttl_us;
    verdict->lease_us = x->policy->lease_us;
    if (kind == IDEM_OP_ABANDON) {
        verdict->reason = x->reason;
    }
    if (kind == IDEM_OP_COMPLETE) {
        verdict->answer.status = (uint16_t)x->answer_status;
        verdict->answer.tombstone = x->overflow ? x->reason : IDEM_REASON_NONE;
    }
}

void idem_exchange_op(const struct idem_exchange *exchange, const struct idem_effect *effect,
                      struct idem_op *ret_op)
{
    assert(effect->kind == IDEM_EFFECT_STORE);
    *ret_op = (struct idem_op){.kind = effect->op_kind, .id = exchange->id};

    switch (effect->op_kind) {
    case IDEM_OP_CLAIM:
        ret_op->in.claim = exchange->claim;
        break;
    case IDEM_OP_RENEW:
        ret_op->in.renew.owner = exchange->claim.owner;
        ret_op->in.renew.lease_us = exchange->policy->lease_us;
        ret_op->in.renew.unknown_ttl_us = exchange->policy->unknown_ttl_us;
        break;
    case IDEM_OP_GET:
        ret_op->in.get.match = true;
        ret_op->in.get.fingerprint = exchange->claim.fingerprint;
        ret_op->in.get.principal = exchange->claim.principal;
        break;
    default:
        fill_verdict(exchange, effect->op_kind, &ret_op->in.verdict);
    }
}

const char *idem_exchange_state_text(enum idem_exchange_state state)
{
    static const char *const TEXTS[IDEM_EXCHANGE_STATE_COUNT] = {
        [IDEM_EXCHANGE_IDLE] = "idle",           [IDEM_EXCHANGE_CLAIMING] = "claiming",
        [IDEM_EXCHANGE_EXECUTING] = "executing", [IDEM_EXCHANGE_RECORDING] = "recording",
        [IDEM_EXCHANGE_LOOKING] = "looking",     [IDEM_EXCHANGE_DONE] = "done",
    };

    return state < IDEM_EXCHANGE_STATE_COUNT ? TEXTS[state] : NULL;
}
