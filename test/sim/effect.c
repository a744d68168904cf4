/*
 * The effects of exchanges, one at a time. What must be durable before each is checked here, by the
 * checkers' own knowledge of the store.
 */
#include "sim/checker.h"
#include "sim/client.h"
#include "sim/gateway.h"
#include "sim/mutant.h"
#include "sim/sender.h"
#include "sim/store_faults.h"
#include "sim/upstream.h"

static void answer_sent(struct world *world, struct session *session)
{
    if (session->answered) {
        check_broken(world, CHECKER_HANG, "request %u is answered twice", session->request);
        return;
    }
    session->answered = true;
    client_close(world, session->request, false);
}

/* The fast path of a replay: what is recorded stands for the result of the claim. */
static bool claim_peeked(struct world *world, struct gateway *gateway, struct session *session)
{
    struct idem_op op = {.kind = IDEM_OP_GET, .id = session->exchange.id};

    op.in.get.match = true;
    op.in.get.fingerprint = session->exchange.claim.fingerprint;
    op.in.get.principal = session->exchange.claim.principal;
    if (!world->plan.peek || !store_peek(world, &op, session->request))
        return false;
    if (op.result == IDEM_RESULT_FOUND && op.out.found.record.state == IDEM_STATE_COMPLETED)
        op.result = IDEM_RESULT_COMPLETED;
    if (op.result != IDEM_RESULT_COMPLETED && op.result != IDEM_RESULT_MISMATCH &&
        op.result != IDEM_RESULT_OTHER_PRINCIPAL) {
        idem_op_deinit(&op);
        return false;
    }
    world->cover.situations[COVER_STORE_PEEK] = true;
    op.kind = IDEM_OP_CLAIM;
    sender_finished(gateway, session, &op);
    return true;
}

static void fill_answer(const struct world *world, const struct session *session,
                        struct idem_op *op)
{
    struct idem_answer *answer = &op->in.verdict.answer;

    if (op->kind != IDEM_OP_COMPLETE || answer->tombstone != IDEM_REASON_NONE ||
        session->held == NOBODY)
        return;
    answer->headers = world->executions[session->held].answer.headers;
    answer->body = world->executions[session->held].answer.body;
}

static void effect_store(struct world *world, struct gateway *gateway, struct session *session,
                         const struct idem_effect *effect)
{
    struct request *request = &world->requests[session->request];
    struct idem_op op;

    idem_exchange_op(&session->exchange, effect, &op);
    fill_answer(world, session, &op);
    world_tell(world, "gateway %u request %u: submits %s%s", gateway->number, session->request,
               idem_op_kind_text(op.kind), effect->background ? " in the background" : "");
    if (op.kind == IDEM_OP_COMPLETE || op.kind == IDEM_OP_FAIL || op.kind == IDEM_OP_ABANDON) {
        check_submitted(world, session->request, op.kind,
                        session->exchange.outcome == IDEM_OUTCOME_UNSET ? NOBODY : session->held);
        request->verdict = op.kind;
        request->verdict_life = gateway->life;
        request->verdict_applied = false;
    }
    request->renews += op.kind == IDEM_OP_RENEW;
    if (effect->background) {
        sender_submit(world, gateway, NULL, &op);
        return;
    }
    if (op.kind == IDEM_OP_CLAIM && claim_peeked(world, gateway, session))
        return;
    if (op.kind != IDEM_OP_RENEW) {
        struct event deadline;

        session->waiting = op.kind;
        session->wait_number++;
        deadline = gateway_item(gateway, session, ITEM_DEADLINE);
        deadline.number = session->wait_number;
        world_in(world, world->plan.deadline_us, deadline);
    }
    sender_submit(world, gateway, session, &op);
}

static void effect_timer(struct world *world, struct gateway *gateway, struct session *session,
                         const struct idem_effect *effect)
{
    struct event tick;

    session->timer_number++;
    tick = gateway_item(gateway, session, ITEM_TICK);
    tick.number = session->timer_number;
    world_in(world, effect->delay_us, tick);
}

static void effect_upstream(struct world *world, struct gateway *gateway, struct session *session,
                            const struct idem_effect *effect)
{
    session->held = NOBODY;
    session->bypassed = effect->kind == IDEM_EFFECT_BYPASS;
    session->execution = upstream_connect(world, gateway, session, effect);
}

static void effect_replay(struct world *world, struct gateway *gateway, struct session *session)
{
    struct request *request = &world->requests[session->request];
    const struct idem_answer *record = &gateway->op.out.found.record.answer;
    struct answer answer = {
        .status = record->status,
        .tombstone = record->tombstone,
        .headers = record->headers,
        .body = record->body,
    };

    mutant_answer(world, &answer);
    check_replayed(world, session->request, &answer);
    request->answer = request->expected; /* the same bytes, or a finding */
    answer_sent(world, session);
}

static void effect_deliver(struct world *world, struct session *session, bool unrecorded)
{
    struct request *request = &world->requests[session->request];

    if (session->held == NOBODY) {
        check_broken(world, CHECKER_HANG, "request %u: there is no answer to deliver",
                     session->request);
        return;
    }
    world->cover.situations[unrecorded ? COVER_DELIVER_UNRECORDED : COVER_DELIVER_RECORDED] = true;
    world->cover.situations[COVER_DELIVER_OVERFLOW] |= session->exchange.overflow;
    world->cover.situations[COVER_DELIVER_PROBED] |= world->executions[session->held].probe;
    check_delivered(world, session->request, session->held, unrecorded);
    request->answer = world->executions[session->held].answer;
    request->unrecorded = unrecorded;
    answer_sent(world, session);
}

static void effect_refuse(struct world *world, struct session *session,
                          const struct idem_problem *problem)
{
    struct request *request = &world->requests[session->request];

    world->cover.problems[problem->kind] = true;
    request->refused = true;
    request->problem = *problem;
    answer_sent(world, session);
}

static void effect_tell(const struct world *world, const struct gateway *gateway,
                        const struct session *session, const struct idem_effect *effect)
{
    static const char *const names[] = {
        "store", "forwards", "lets it go unguarded", "replays", "refuses", "delivers",
        "timer", "probes",
    };

    if (!world->tracing || effect->kind == IDEM_EFFECT_STORE || effect->kind == IDEM_EFFECT_TIMER)
        return;
    world_tell(world, "gateway %u request %u: %s%s%s", gateway->number, session->request,
               names[effect->kind], effect->kind == IDEM_EFFECT_REFUSE ? ", " : "",
               effect->kind == IDEM_EFFECT_REFUSE ? idem_problem_type(effect->problem.kind) : "");
}

void driver_effect(struct world *world, struct gateway *gateway, const struct idem_effect *effect)
{
    struct session *session = &gateway->sessions[gateway->session];

    effect_tell(world, gateway, session, effect);
    world->cover.effects[effect->kind] = true;
    check_effect(world, session->request, effect);
    if (world->broken)
        return;
    switch (effect->kind) {
    case IDEM_EFFECT_STORE:
        effect_store(world, gateway, session, effect);
        break;
    case IDEM_EFFECT_TIMER:
        effect_timer(world, gateway, session, effect);
        break;
    case IDEM_EFFECT_FORWARD:
    case IDEM_EFFECT_PROBE:
    case IDEM_EFFECT_BYPASS:
        effect_upstream(world, gateway, session, effect);
        break;
    case IDEM_EFFECT_REPLAY:
        effect_replay(world, gateway, session);
        break;
    case IDEM_EFFECT_REFUSE:
        effect_refuse(world, session, &effect->problem);
        break;
    case IDEM_EFFECT_DELIVER:
        effect_deliver(world, session, effect->unrecorded);
        break;
    }
}
