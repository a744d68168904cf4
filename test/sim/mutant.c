#include "sim/mutant.h"

static const struct {
    const char *name, *what;
    enum checker checker;
} mutants[MUTANT_COUNT] = {[MUTANT_NONE] = {"none", "the protocol as it is", CHECKER_NONE},
#define MUTANT_ROW(name, text, checker, what) [MUTANT_##name] = {text, what, CHECKER_##checker},
                           MUTANT_LIST(MUTANT_ROW)
#undef MUTANT_ROW
};

unsigned mutant_find(const char *name)
{
    unsigned mutant = 0;

    while (mutant < MUTANT_COUNT && strcmp(mutants[mutant].name, name) != 0)
        mutant++;
    return mutant;
}

const char *mutant_name(unsigned mutant)
{
    return mutants[mutant].name;
}

const char *mutant_what(unsigned mutant)
{
    return mutants[mutant].what;
}

enum checker mutant_checker(unsigned mutant)
{
    return mutants[mutant].checker;
}

const struct idem_id *mutant_id(const struct world *world, const struct request *request)
{
    return world_id(world->mutant == MUTANT_NO_SCOPE ? request->key : request->id);
}

bool mutant_forgets_verdicts(const struct world *world)
{
    return world->mutant == MUTANT_NOT_REPEATED;
}

bool mutant_breaks_promise(const struct world *world)
{
    return world->mutant == MUTANT_NO_PROMISE;
}

/* The last line goes. */
void mutant_answer(const struct world *world, struct answer *answer)
{
    struct idem_bytes rest = answer->headers, name, value;
    size_t size = 0;

    if (world->mutant != MUTANT_OTHER_BYTES)
        return;
    while (idem_headers_next(&rest, &name, &value) && rest.size > 0)
        size = answer->headers.size - rest.size;
    answer->headers.size = size;
}

/* The event that a claim with this result brings. */
static void claim_result(struct idem_event *event, struct idem_op *op, enum idem_result result)
{
    event->kind = IDEM_EVENT_STORE_RESULT;
    event->op = op;
    op->kind = IDEM_OP_CLAIM;
    op->result = result;
}

/* What the waker got stands ready for a replay: see mutant_effects(). */
static void event_wake(struct world *world, const struct event *item, struct idem_op *op)
{
    struct idem_record *record = &op->out.found.record;
    const struct answer *answer;

    if (item->index == NOBODY)
        return;
    answer = &world->executions[item->index].answer;
    record->answer.status = answer->status;
    record->answer.headers = answer->headers;
    record->answer.body = answer->body;
}

static bool event_is_result(const struct idem_event *event, enum idem_op_kind kind,
                            enum idem_result result)
{
    return event->kind == IDEM_EVENT_STORE_RESULT && event->op->kind == kind &&
           event->op->result == result;
}

static bool op_is_verdict(enum idem_op_kind kind)
{
    return kind == IDEM_OP_COMPLETE || kind == IDEM_OP_FAIL || kind == IDEM_OP_ABANDON;
}

/* Mutants that misread what the store said. */
static void event_of_store(struct world *world, const struct session *session,
                           struct idem_event *event, struct idem_op *op)
{
    bool failed = event->kind == IDEM_EVENT_STORE_FAILED;

    switch (world->mutant) {
    case MUTANT_BLIND_FORWARD:
        if (failed && event->op_kind == IDEM_OP_CLAIM && !event->not_applied &&
            session->exchange.state == IDEM_EXCHANGE_CLAIMING) {
            claim_result(event, op, IDEM_RESULT_ACQUIRED);
            op->out.fence = (uint64_t)world_store_now_us(world);
            op->out.attempt = 1;
        }
        break;
    case MUTANT_OWN_ANSWER:
        if (event->kind == IDEM_EVENT_STORE_RESULT && op_is_verdict(op->kind) &&
            op->result == IDEM_RESULT_LOST)
            op->result = IDEM_RESULT_OK;
        break;
    case MUTANT_NO_LOOK:
        if (event->kind == IDEM_EVENT_STORE_RESULT && op->kind == IDEM_OP_GET) {
            idem_op_deinit(op);
            op->result = IDEM_RESULT_ABSENT;
        }
        break;
    case MUTANT_NO_SETTLE:
        if (event_is_result(event, IDEM_OP_CLAIM, IDEM_RESULT_UNKNOWN))
            op->out.since_us = 0;
        break;
    case MUTANT_HERD:
        if (event_is_result(event, IDEM_OP_CLAIM, IDEM_RESULT_IN_PROGRESS))
            op->out.fence = 1;
        break;
    case MUTANT_DEAF:
        if (failed)
            event->kind = IDEM_EVENT_CLIENT_GONE;
        break;
    default:
        break;
    }
}

/* Mutants that misread what came from elsewhere. */
static void event_of_others(struct world *world, const struct session *session,
                            const struct event *item, struct idem_event *event, struct idem_op *op)
{
    const struct idem_exchange *exchange = &session->exchange;

    switch (world->mutant) {
    case MUTANT_UNANSWERED_FAILS:
        if (event->kind == IDEM_EVENT_UPSTREAM_FAILED)
            event->evidence = IDEM_EVIDENCE_NOT_SENT;
        break;
    case MUTANT_GONE_FAILS:
        if (event->kind == IDEM_EVENT_CLIENT_GONE) {
            event->kind = IDEM_EVENT_ABORTED;
            event->evidence = IDEM_EVIDENCE_NOT_SENT;
        }
        break;
    case MUTANT_TRUSTS_ALL:
        if (event->kind == IDEM_EVENT_ANSWER_HEAD && exchange->state == IDEM_EXCHANGE_PROBING &&
            event->status / 100 == 2)
            event->declared = IDEM_OUTCOME_FINAL;
        break;
    case MUTANT_FINAL_ALWAYS:
        if (event->kind == IDEM_EVENT_ANSWER_HEAD && exchange->state == IDEM_EXCHANGE_EXECUTING &&
            check_outcome(event->status, event->declared) == IDEM_OUTCOME_FAILED)
            event->declared = IDEM_OUTCOME_FINAL;
        break;
    case MUTANT_NEVER_RENEWS:
        if (event->kind == IDEM_EVENT_TICK && exchange->state == IDEM_EXCHANGE_EXECUTING)
            event->kind = IDEM_EVENT_CLIENT_GONE;
        break;
    case MUTANT_WAKER_ANSWERS:
        if (event->kind == IDEM_EVENT_WAKE && exchange->state == IDEM_EXCHANGE_WAITING)
            event_wake(world, item, op);
        break;
    default:
        break;
    }
}

void mutant_event(struct world *world, const struct session *session, const struct event *item,
                  struct idem_event *event, struct idem_op *op)
{
    if (world->mutant == MUTANT_NONE)
        return;
    event_of_store(world, session, event, op);
    event_of_others(world, session, item, event, op);
}

static void effects_append(struct idem_effects *effects, struct idem_effect effect)
{
    if (effects->count < IDEM_EFFECTS_MAX)
        effects->items[effects->count++] = effect;
}

static bool effect_is_store(const struct idem_effect *effect, enum idem_op_kind kind)
{
    return effect->kind == IDEM_EFFECT_STORE && effect->op_kind == kind;
}

/* True while the exchange has taken an unknown over and nothing of its own was sent. */
static bool state_is_asking(enum idem_exchange_state state)
{
    return state == IDEM_EXCHANGE_PROBING || state == IDEM_EXCHANGE_CONFIRMING;
}

/* Mutants that do something else than the exchange says. */
static void effect_change(const struct world *world, const struct session *session,
                          enum idem_exchange_state before, const struct idem_event *event,
                          struct idem_effect *effect)
{
    bool abandon = effect_is_store(effect, IDEM_OP_ABANDON);

    switch (world->mutant) {
    case MUTANT_HEARSAY:
        if (effect->kind == IDEM_EFFECT_REFUSE && effect->requires == IDEM_DURABLE_NOTHING &&
            before == IDEM_EXCHANGE_RECORDING && session->exchange.verdict == IDEM_OP_COMPLETE)
            *effect = (struct idem_effect){.kind = IDEM_EFFECT_DELIVER, .unrecorded = true};
        break;
    case MUTANT_PROBE_SKIPPED:
        if (effect->kind == IDEM_EFFECT_PROBE)
            effect->kind = IDEM_EFFECT_FORWARD;
        break;
    case MUTANT_PROBE_FAILS:
        if (abandon && state_is_asking(before)) {
            effect->op_kind = IDEM_OP_FAIL;
            effect->background = true;
        }
        break;
    case MUTANT_LATER_FAILS:
        if (abandon && world->policy.unknown == IDEM_UNKNOWN_RETRY)
            effect->op_kind = IDEM_OP_FAIL;
        break;
    case MUTANT_UNKNOWN_ALWAYS:
        if (effect_is_store(effect, IDEM_OP_FAIL) && effect->background)
            effect->op_kind = IDEM_OP_ABANDON;
        break;
    case MUTANT_WAKER_ANSWERS:
        if (before == IDEM_EXCHANGE_WAITING && event->kind == IDEM_EVENT_WAKE)
            effect->kind = IDEM_EFFECT_REPLAY;
        break;
    case MUTANT_NOT_UNDONE:
        if (before == IDEM_EXCHANGE_CLAIMING && effect->background)
            effect->kind = IDEM_EFFECT_TIMER;
        break;
    default:
        break;
    }
}

void mutant_effects(struct world *world, const struct session *session,
                    enum idem_exchange_state before, const struct idem_event *event,
                    struct idem_effects *effects)
{
    struct idem_effect early = {.kind = IDEM_EFFECT_FORWARD, .attempt = 1};
    struct idem_effect release = {.kind = IDEM_EFFECT_DELIVER};
    bool completes = false;

    for (size_t i = 0; i < effects->count; i++) {
        effect_change(world, session, before, event, &effects->items[i]);
        completes |= effect_is_store(&effects->items[i], IDEM_OP_COMPLETE);
    }
    if (world->mutant == MUTANT_EARLY_FORWARD && event->kind == IDEM_EVENT_REQUEST) {
        early.fence = (uint64_t)world_store_now_us(world);
        effects_append(effects, early);
    }
    if (world->mutant == MUTANT_EARLY_RELEASE && completes && session->held != NOBODY)
        effects_append(effects, release);
}
