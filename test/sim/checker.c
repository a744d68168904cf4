#include "sim/checker.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/sender.h"

static const struct {
    const char *name, *what;
} checkers[CHECKER_COUNT] = {[CHECKER_NONE] = {"none", ""},
#define CHECKER_TEXT(name, text, what) [CHECKER_##name] = {text, what},
                             CHECKER_LIST(CHECKER_TEXT)
#undef CHECKER_TEXT
};

const char *checker_name(int checker)
{
    return checkers[checker].name;
}

const char *checker_what(int checker)
{
    return checkers[checker].what;
}

void check_broken(struct world *world, enum checker checker, const char *format, ...)
{
    va_list arguments;

    if (world->broken)
        return;
    world->broken = checker;
    va_start(arguments, format);
    vsnprintf(world->finding, sizeof world->finding, format, arguments);
    va_end(arguments);
    world_tell(world, "FOUND by %s: %s", checker_name(checker), world->finding);
}

enum idem_outcome check_outcome(unsigned status, enum idem_outcome declared)
{
    if (declared != IDEM_OUTCOME_UNSET)
        return declared;
    switch (status) {
    case 401:
    case 403:
    case 407:
    case 408:
    case 425:
    case 429:
        return IDEM_OUTCOME_FAILED;
    case 502:
    case 504:
        return IDEM_OUTCOME_UNKNOWN;
    default:
        if (status < 200 || status > 599)
            return IDEM_OUTCOME_UNKNOWN;
        return status < 500 ? IDEM_OUTCOME_FINAL : IDEM_OUTCOME_FAILED;
    }
}

/* Whether this upstream, asked by this policy, makes sure that nothing happens twice. */
static bool executes_once(const struct world *world)
{
    return world->policy.unknown != IDEM_UNKNOWN_PROBE || world->plan.promise ||
           world->policy.settle_us > 0;
}

/*
 * Whether the store gave the request that fence. A gateway that was held up until its key had
 * expired may find that a late repeat of its claim has the next life of the key by then.
 */
static bool has_fence(const struct request *request, const struct idem_effect *effect)
{
    return (effect->fence == request->fence && effect->attempt == request->attempt) ||
           (request->fence_before != 0 && effect->fence == request->fence_before);
}

static void check_forward(struct world *world, uint16_t number, const struct idem_effect *effect)
{
    const struct request *request = &world->requests[number];

    if (!request->acquired) {
        check_broken(world, CHECKER_DURABLE, "request %u goes upstream and has no claim", number);
    } else if (!has_fence(request, effect)) {
        check_broken(world, CHECKER_DURABLE,
                     "request %u goes upstream with fence %llu, and its claim has %llu", number,
                     (unsigned long long)effect->fence, (unsigned long long)request->fence);
    } else if (request->heard_gone) {
        check_broken(world, CHECKER_DURABLE,
                     "request %u goes upstream, and knows that its claim is gone", number);
    } else if (effect->kind == IDEM_EFFECT_FORWARD && request->probed &&
               request->renews_heard <= request->renews_probed) {
        check_broken(world, CHECKER_DURABLE,
                     "request %u is told \"not executed\" and does not look at its claim again",
                     number);
    } else if (request->saw_two) {
        check_broken(world, CHECKER_WAITER,
                     "request %u waited while two others ran, and executes after all", number);
    }
    world->cover.situations[COVER_WAITER_EXECUTED] |= request->saw_running;
}

static void heard_claim(struct request *request, const struct idem_op *op)
{
    if (op->result == IDEM_RESULT_IN_PROGRESS) {
        request->saw_two |= request->saw_running && request->running_fence != op->out.fence;
        request->saw_running = true;
        request->running_fence = op->out.fence;
    } else if (op->result == IDEM_RESULT_UNKNOWN) {
        request->saw_unknown = true;
        request->unknown_fence = op->out.fence;
    }
}

void check_heard(struct world *world, uint16_t number, const struct idem_event *event)
{
    struct request *request = &world->requests[number];
    const struct idem_op *op = event->op;

    if (event->kind == IDEM_EVENT_STORE_FAILED) {
        request->heard_look |= event->op_kind == IDEM_OP_GET;
        request->renews_heard += event->op_kind == IDEM_OP_RENEW;
    }
    if (event->kind != IDEM_EVENT_STORE_RESULT)
        return;
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        heard_claim(request, op);
        break;
    case IDEM_OP_RENEW:
        request->renews_heard++;
        request->heard_gone = op->result == IDEM_RESULT_LOST;
        break;
    case IDEM_OP_COMPLETE:
    case IDEM_OP_FAIL:
    case IDEM_OP_ABANDON:
        request->heard_lost |= op->result == IDEM_RESULT_LOST;
        break;
    case IDEM_OP_GET:
        request->heard_look = true;
        request->looked = op->result == IDEM_RESULT_FOUND ? op->out.found.record.state : 0;
        break;
    default:
        break;
    }
}

void check_submitted(struct world *world, uint16_t number, enum idem_op_kind verdict, uint16_t held)
{
    const struct execution *execution;

    if (verdict != IDEM_OP_COMPLETE)
        return;
    if (held == NOBODY)
        return; /* what was replaced by another handler: a tombstone */
    execution = &world->executions[held];
    if (!execution->probe &&
        check_outcome(execution->answer.status, execution->declared) != IDEM_OUTCOME_FINAL)
        check_broken(world, CHECKER_TRUTH, "request %u records %u as final", number,
                     execution->answer.status);
}

static void check_bypass(struct world *world, struct request *request, uint16_t number)
{
    world->tracks[request->id].bypassed = true;
    if (!world->policy.fail_open)
        check_broken(world, CHECKER_DURABLE, "request %u goes unguarded", number);
    else if (request->saw_running || request->saw_unknown)
        check_broken(world, CHECKER_DURABLE,
                     "request %u goes unguarded, and knows of another attempt", number);
}

void check_effect(struct world *world, uint16_t number, const struct idem_effect *effect)
{
    struct request *request = &world->requests[number];

    if (effect->kind == IDEM_EFFECT_FORWARD || effect->kind == IDEM_EFFECT_PROBE) {
        check_forward(world, number, effect);
    } else if (effect->kind == IDEM_EFFECT_BYPASS) {
        check_bypass(world, request, number);
    } else if (effect->kind == IDEM_EFFECT_REFUSE) {
        world->cover.situations[COVER_WAITER_GAVE_WAY] |= request->saw_two;
        if (effect->requires == IDEM_DURABLE_VERDICT && !request->verdict_ok &&
            !request->told_completed)
            check_broken(world, CHECKER_RECORDED, "request %u is refused before its verdict is in",
                         number);
    }
}

/*
 * Under hold nobody starts while the outcome of an earlier execution is not known to be "failed",
 * nor twice for one claim.
 */
void check_sent(struct world *world, uint16_t number)
{
    const struct execution *execution = &world->executions[number];

    if (execution->probe || execution->bypass || world->tracks[execution->id].bypassed)
        return;
    for (uint16_t i = 0; i < number; i++) {
        const struct execution *earlier = &world->executions[i];
        bool same = earlier->id == execution->id && earlier->key_life == execution->key_life;

        if (!same || earlier->probe || earlier->no_effect)
            continue;
        if (earlier->request == execution->request && earlier->sent)
            check_broken(world, CHECKER_START, "request %u is sent twice", execution->request);
        else if (world->policy.unknown == IDEM_UNKNOWN_HOLD && !earlier->settled)
            check_broken(world, CHECKER_START,
                         "request %u is sent, and what became of request %u is not known",
                         execution->request, earlier->request);
    }
}

void check_happened(struct world *world, uint16_t number)
{
    const struct execution *execution = &world->executions[number];
    struct track *track = &world->tracks[execution->id];

    if (execution->bypass || track->bypassed || execution->key_life != track->life)
        return;
    track->effects++;
    if (track->effects == 1)
        track->effect_of = number;
    else if (executes_once(world))
        check_broken(world, CHECKER_ONCE, "requests %u and %u both took effect for %s",
                     world->executions[track->effect_of].request, execution->request,
                     world_id_text(world, execution->id));
}

/* The execution that an answer tells of, by its first header line; NOBODY when it tells of none. */
static uint16_t answer_execution(const struct world *world, const struct answer *answer)
{
    struct idem_bytes rest = answer->headers, name, value;
    char text[8] = "";
    unsigned long number;

    if (!idem_headers_next(&rest, &name, &value) || value.size >= sizeof text)
        return NOBODY;
    memcpy(text, value.data, value.size);
    number = strtoul(text, NULL, 10);
    return number < world->execution_count ? (uint16_t)number : NOBODY;
}

/* An answer is for the request that was executed, and for nobody else. */
static void check_leak(struct world *world, uint16_t number, const struct answer *answer)
{
    const struct request *request = &world->requests[number], *source;
    uint16_t of;

    if (answer->tombstone != IDEM_REASON_NONE)
        return;
    of = answer_execution(world, answer);
    if (of == NOBODY) {
        check_broken(world, CHECKER_LEAK, "request %u gets an answer from nowhere", number);
        return;
    }
    source = &world->requests[world->executions[of].request];
    if (source->scope != request->scope || source->key != request->key)
        check_broken(world, CHECKER_LEAK, "request %u gets the answer to another key", number);
    else if (source->payload != request->payload)
        check_broken(world, CHECKER_LEAK, "request %u gets the answer to another payload", number);
    else if (source->principal != request->principal)
        check_broken(world, CHECKER_LEAK, "request %u gets the answer to another caller", number);
}

/* What one client was told to be final is what every other is told, while the key lives. */
static void check_contradiction(struct world *world, uint16_t number, uint32_t key_life,
                                const struct answer *answer)
{
    const struct request *request = &world->requests[number];
    struct track *track = &world->tracks[request->id];

    if (key_life != track->life || track->bypassed)
        return;
    if (track->told_to != NOBODY && !answer_equal(&track->told, answer))
        check_broken(world, CHECKER_SAME, "request %u gets another answer than request %u did",
                     number, track->told_to);
    track->told_to = number;
    track->told = *answer;
}

void check_replayed(struct world *world, uint16_t number, const struct answer *answer)
{
    const struct request *request = &world->requests[number];

    if (!request->told_completed) {
        check_broken(world, CHECKER_WAITER,
                     "request %u gets an answer that its own claim did not bring", number);
        return;
    }
    if (!answer_equal(answer, &request->expected))
        check_broken(world, CHECKER_SAME, "request %u gets other bytes than were recorded", number);
    world->cover.situations[COVER_WAITER_REPLAYED] |= request->saw_running;
    check_leak(world, number, answer);
    check_contradiction(world, number, request->told_life, &request->expected);
}

void check_delivered(struct world *world, uint16_t number, uint16_t execution, bool unrecorded)
{
    const struct request *request = &world->requests[number];
    const struct execution *of = &world->executions[execution];
    bool final = check_outcome(of->answer.status, of->declared) == IDEM_OUTCOME_FINAL;

    if (!unrecorded && !request->verdict_ok) {
        check_broken(world, CHECKER_RECORDED, "request %u is answered before that is recorded",
                     number);
        return;
    }
    if (request->heard_lost &&
        (!request->heard_look || (request->looked && request->looked != IDEM_STATE_FAILED)))
        check_broken(world, CHECKER_SAME,
                     "request %u lost its key, and answers without regard to the record", number);
    if (unrecorded && of->probe)
        check_broken(world, CHECKER_LEAK,
                     "request %u is told what a probe found for the key, whoever has it now",
                     number);
    if (!final)
        return;
    if (of->probe && of->of == NOBODY)
        check_broken(world, CHECKER_SAME, "request %u gets an answer that no execution gave",
                     number);
    check_leak(world, number, &of->answer);
    if (!unrecorded || of->effect || of->of != NOBODY)
        check_contradiction(world, number, of->key_life, &of->answer);
}

/* A claim, or a verdict, of a gateway that has lived all the time must be in the store by now. */
static void check_claims_ended(struct world *world)
{
    for (uint16_t i = 0; i < world->request_count; i++) {
        const struct request *request = &world->requests[i];
        const struct gateway *gateway = &world->gateways[request->gateway];
        const struct track *track = &world->tracks[request->id];
        bool holds = track->holder == i &&
                     (track->state == IDEM_STATE_PROCESSING || track->state == IDEM_STATE_UNKNOWN);

        if (request->gateway_life != gateway->life)
            continue;
        if (request->verdict && request->verdict_life == gateway->life && !request->verdict_applied)
            check_broken(world, CHECKER_LOST, "the %s of request %u never came to the store",
                         idem_op_kind_text(request->verdict), i);
        else if (holds && !request->verdict && !request->orphan &&
                 world->clock_max_us < track->expires_us)
            check_broken(world, CHECKER_LOST, "request %u leaves its claim without a verdict", i);
    }
}

void check_quiet(struct world *world)
{
    for (unsigned i = 0; i < world->plan.gateways; i++) {
        const struct gateway *gateway = &world->gateways[i];

        for (size_t j = 0; j < SESSIONS_MAX; j++)
            if (gateway->sessions[j].used)
                check_broken(world, CHECKER_HANG, "request %u never ends: it is %s",
                             gateway->sessions[j].request,
                             idem_exchange_state_text(gateway->sessions[j].exchange.state));
        if (!sender_is_idle(&gateway->sender))
            check_broken(world, CHECKER_HANG, "gateway %u still has ops to send", i);
    }
    for (uint16_t i = 0; i < world->request_count; i++)
        if (!world->requests[i].over)
            check_broken(world, CHECKER_HANG, "request %u was never answered", i);
    check_claims_ended(world);
}

/* Somebody sent it, or died with the claim in hand; otherwise nothing can be unknown. */
static bool unknown_is_true(const struct world *world, const struct track *track)
{
    const struct request *holder;

    if (track->holder == NOBODY || track->bypassed)
        return true;
    holder = &world->requests[track->holder];
    if (holder->gateway_life != world->gateways[holder->gateway].life || holder->orphan)
        return true;
    for (size_t i = 0; i < world->execution_count; i++) {
        const struct execution *execution = &world->executions[i];

        if (execution->request == track->holder && execution->sent && !execution->probe &&
            !execution->no_effect)
            return true;
    }
    return false;
}

static bool check_unknown(struct world *world, uint16_t number, bool last_try)
{
    const struct track *track = &world->tracks[world->requests[number].id];

    world->cover.situations[COVER_FINAL_UNKNOWN] = true;
    if (world->policy.unknown == IDEM_UNKNOWN_HOLD) {
        if (!unknown_is_true(world, track))
            check_broken(world, CHECKER_STUCK,
                         "request %u is told \"unknown\", and nothing was ever sent", number);
        return true;
    }
    if (last_try)
        check_broken(world, CHECKER_STUCK,
                     "request %u is told \"unknown\" to the last, though the policy asks", number);
    return false;
}

bool check_verdict(struct world *world, uint16_t number, bool last_try)
{
    const struct request *request = &world->requests[number];
    bool *seen = world->cover.situations;

    if (request->lost) {
        check_broken(world, CHECKER_HANG, "request %u lost its connection without any trouble",
                     number);
        return true;
    }
    if (!request->refused) {
        seen[COVER_FINAL_ANSWER] = true;
        return true;
    }
    switch (request->problem.kind) {
    case IDEM_PROBLEM_OUTCOME_UNKNOWN:
        return check_unknown(world, number, last_try);
    case IDEM_PROBLEM_KEY_REUSED:
    case IDEM_PROBLEM_OTHER_CALLER:
        seen[COVER_FINAL_REFUSED] = true;
        return true;
    case IDEM_PROBLEM_ANSWER_NOT_KEPT:
        seen[COVER_FINAL_NOT_KEPT] = true;
        return true;
    default:
        check_broken(world, CHECKER_STUCK, "request %u is refused (%s) without any trouble", number,
                     idem_problem_type(request->problem.kind));
        return true;
    }
}

void check_end(struct world *world)
{
    if (world->variant_next != world->variant_count)
        check_broken(world, CHECKER_HANG, "request %u of the last phase was never answered",
                     world->final_request);
}
