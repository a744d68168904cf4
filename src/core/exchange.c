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
#include "core/exchange_parts.h"

#include <assert.h>

#define BIT(state) (1u << (state))

static const unsigned MOVES[IDEM_EXCHANGE_STATE_COUNT] = {
    [IDEM_EXCHANGE_IDLE] = BIT(IDEM_EXCHANGE_CLAIMING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_CLAIMING] = BIT(IDEM_EXCHANGE_WAITING) | BIT(IDEM_EXCHANGE_PROBING) |
                               BIT(IDEM_EXCHANGE_EXECUTING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_WAITING] = BIT(IDEM_EXCHANGE_CLAIMING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_PROBING] =
        BIT(IDEM_EXCHANGE_CONFIRMING) | BIT(IDEM_EXCHANGE_RECORDING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_CONFIRMING] =
        BIT(IDEM_EXCHANGE_EXECUTING) | BIT(IDEM_EXCHANGE_RECORDING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_EXECUTING] = BIT(IDEM_EXCHANGE_RECORDING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_RECORDING] = BIT(IDEM_EXCHANGE_LOOKING) | BIT(IDEM_EXCHANGE_DONE),
    [IDEM_EXCHANGE_LOOKING] = BIT(IDEM_EXCHANGE_DONE),
};

bool idem_exchange_move_allowed(enum idem_exchange_state from, enum idem_exchange_state to)
{
    return from < IDEM_EXCHANGE_STATE_COUNT && to < IDEM_EXCHANGE_STATE_COUNT &&
           (MOVES[from] & BIT(to)) != 0;
}

static bool is_in(const struct idem_exchange *x, unsigned states)
{
    return (BIT(x->state) & states) != 0;
}

static void invariant(const struct idem_exchange *x)
{
    const unsigned probes = BIT(IDEM_EXCHANGE_PROBING) | BIT(IDEM_EXCHANGE_CONFIRMING);

    assert(x->state < IDEM_EXCHANGE_STATE_COUNT);
    assert(!is_in(x, probes | BIT(IDEM_EXCHANGE_EXECUTING)) || x->attempt > 0);
    assert(!is_in(x, probes) || x->unknown_before);
    assert(x->state != IDEM_EXCHANGE_WAITING || x->wait_fence > 0);
    assert(x->state != IDEM_EXCHANGE_RECORDING || x->verdict != 0);
    assert(x->state != IDEM_EXCHANGE_LOOKING || !x->owned);
    assert(!x->overflow || x->verdict != 0);
    assert(x->claim.take == IDEM_TAKE_NONE || x->unknown_before || x->attempt > 0);
}

void idem_exchange_move(struct idem_exchange *x, enum idem_exchange_state next)
{
    invariant(x);
    assert(idem_exchange_move_allowed(x->state, next));
    x->state = next;
}

struct idem_effect *idem_effects_add(struct idem_effects *effects, enum idem_effect_kind kind,
                                     enum idem_durable requires)
{
    struct idem_effect *effect = &effects->items[effects->count];

    assert(effects->count < IDEM_EFFECTS_MAX);
    effects->count++;
    *effect = (struct idem_effect){.kind = kind, .requires = requires};
    return effect;
}

void idem_effects_store(struct idem_effects *effects, enum idem_op_kind kind, bool background)
{
    struct idem_effect *effect = idem_effects_add(effects, IDEM_EFFECT_STORE, IDEM_DURABLE_NOTHING);

    effect->op_kind = kind;
    effect->background = background;
}

void idem_effects_timer(struct idem_effects *effects, int64_t delay_us)
{
    idem_effects_add(effects, IDEM_EFFECT_TIMER, IDEM_DURABLE_NOTHING)->delay_us = delay_us;
}

void idem_exchange_refuse(struct idem_exchange *x, struct idem_effects *effects,
                          struct idem_problem problem, enum idem_durable requires)
{
    idem_effects_add(effects, IDEM_EFFECT_REFUSE, requires)->problem = problem;
    idem_exchange_move(x, IDEM_EXCHANGE_DONE);
}

void idem_exchange_refuse_kind(struct idem_exchange *x, struct idem_effects *effects,
                               enum idem_problem_kind kind)
{
    idem_exchange_refuse(x, effects, idem_problem_make(kind), IDEM_DURABLE_NOTHING);
}

/* Answers a completed record: with the answer, or with why there is none. */
void idem_exchange_replay(struct idem_exchange *x, struct idem_effects *effects,
                          const struct idem_op *op)
{
    const struct idem_answer *answer = &op->out.found.record.answer;
    struct idem_problem problem;

    if (answer->tombstone == IDEM_REASON_NONE) {
        idem_effects_add(effects, IDEM_EFFECT_REPLAY, IDEM_DURABLE_VERDICT);
        idem_exchange_move(x, IDEM_EXCHANGE_DONE);
        return;
    }

    problem = idem_problem_make(IDEM_PROBLEM_ANSWER_NOT_KEPT);
    problem.original_status = answer->status;
    idem_exchange_refuse(x, effects, problem, IDEM_DURABLE_VERDICT);
}

/*
 * No claim is held: none was made, or it got nothing, or its verdict is already with the executor,
 * which does not need the exchange any more.
 */
static void on_nothing_left(struct idem_exchange *x, const struct idem_event *event,
                            struct idem_effects *effects)
{
    idem_exchange_move(x, IDEM_EXCHANGE_DONE);
}

static idem_exchange_handler *const HANDLERS[IDEM_EXCHANGE_STATE_COUNT][IDEM_EVENT_KIND_COUNT] = {
    [IDEM_EXCHANGE_IDLE] =
        {
            [IDEM_EVENT_REQUEST] = idem_exchange_on_request,
            [IDEM_EVENT_ABORTED] = on_nothing_left,
        },
    [IDEM_EXCHANGE_CLAIMING] =
        {
            [IDEM_EVENT_STORE_RESULT] = idem_exchange_on_claim_result,
            [IDEM_EVENT_STORE_FAILED] = idem_exchange_on_claim_failed,
            [IDEM_EVENT_CLIENT_GONE] = idem_exchange_on_claim_client_gone,
            [IDEM_EVENT_WAKE] = idem_exchange_on_claim_wake,
            [IDEM_EVENT_ABORTED] = idem_exchange_on_claim_aborted,
        },
    [IDEM_EXCHANGE_WAITING] =
        {
            [IDEM_EVENT_CLIENT_GONE] = on_nothing_left,
            [IDEM_EVENT_TICK] = idem_exchange_on_wait_over,
            [IDEM_EVENT_WAKE] = idem_exchange_on_wait_over,
            [IDEM_EVENT_ABORTED] = on_nothing_left,
        },
    [IDEM_EXCHANGE_PROBING] =
        {
            [IDEM_EVENT_STORE_RESULT] = idem_exchange_on_renew_result,
            [IDEM_EVENT_STORE_FAILED] = idem_exchange_on_renew_failed,
            [IDEM_EVENT_ANSWER_HEAD] = idem_exchange_on_probe_head,
            [IDEM_EVENT_ANSWER_BODY] = idem_exchange_on_probe_body,
            [IDEM_EVENT_ANSWER_END] = idem_exchange_on_probe_end,
            [IDEM_EVENT_UPSTREAM_FAILED] = idem_exchange_on_probe_failed,
            [IDEM_EVENT_REROUTED] = idem_exchange_on_probe_failed,
            [IDEM_EVENT_TICK] = idem_exchange_on_tick,
            [IDEM_EVENT_ABORTED] = idem_exchange_on_probe_aborted,
        },
    [IDEM_EXCHANGE_CONFIRMING] =
        {
            [IDEM_EVENT_STORE_RESULT] = idem_exchange_on_confirm_result,
            [IDEM_EVENT_STORE_FAILED] = idem_exchange_on_confirm_failed,
            [IDEM_EVENT_ABORTED] = idem_exchange_on_probe_aborted,
        },
    [IDEM_EXCHANGE_EXECUTING] =
        {
            [IDEM_EVENT_STORE_RESULT] = idem_exchange_on_renew_result,
            [IDEM_EVENT_STORE_FAILED] = idem_exchange_on_renew_failed,
            [IDEM_EVENT_ANSWER_HEAD] = idem_exchange_on_answer_head,
            [IDEM_EVENT_ANSWER_BODY] = idem_exchange_on_answer_body,
            [IDEM_EVENT_ANSWER_END] = idem_exchange_on_answer_end,
            [IDEM_EVENT_UPSTREAM_FAILED] = idem_exchange_on_upstream_failed,
            [IDEM_EVENT_REROUTED] = idem_exchange_on_rerouted,
            [IDEM_EVENT_TICK] = idem_exchange_on_tick,
            [IDEM_EVENT_ABORTED] = idem_exchange_on_execution_aborted,
        },
    [IDEM_EXCHANGE_RECORDING] =
        {
            [IDEM_EVENT_STORE_RESULT] = idem_exchange_on_verdict_result,
            [IDEM_EVENT_STORE_FAILED] = idem_exchange_on_verdict_failed,
            [IDEM_EVENT_ABORTED] = on_nothing_left,
        },
    [IDEM_EXCHANGE_LOOKING] =
        {
            [IDEM_EVENT_STORE_RESULT] = idem_exchange_on_look_result,
            [IDEM_EVENT_STORE_FAILED] = idem_exchange_on_look_failed,
            [IDEM_EVENT_ABORTED] = on_nothing_left,
        },
};

void idem_exchange_init(struct idem_exchange *exchange, const struct idem_policy *policy,
                        const struct idem_id *id, const struct idem_claim *claim)
{
    *exchange = (struct idem_exchange){.policy = policy, .id = *id, .claim = *claim};
    exchange->claim.lease_us = policy->lease_us;
    exchange->claim.ttl_us = policy->ttl_us;
    exchange->claim.unknown_ttl_us = policy->unknown_ttl_us;
    exchange->claim.take = IDEM_TAKE_NONE;
}

void idem_exchange_step(struct idem_exchange *exchange, const struct idem_event *event,
                        struct idem_effects *ret_effects)
{
    idem_exchange_handler *handle;

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
        [IDEM_EXCHANGE_IDLE] = "idle",
        [IDEM_EXCHANGE_CLAIMING] = "claiming",
        [IDEM_EXCHANGE_WAITING] = "waiting",
        [IDEM_EXCHANGE_PROBING] = "probing",
        [IDEM_EXCHANGE_CONFIRMING] = "confirming",
        [IDEM_EXCHANGE_EXECUTING] = "executing",
        [IDEM_EXCHANGE_RECORDING] = "recording",
        [IDEM_EXCHANGE_LOOKING] = "looking",
        [IDEM_EXCHANGE_DONE] = "done",
    };

    return state < IDEM_EXCHANGE_STATE_COUNT ? TEXTS[state] : NULL;
}
