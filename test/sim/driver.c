/*
 * The driver, as nginx/ngx_http_idempotency_driver.c is one: it turns what happens into events,
 * and executes effects in their order.
 *
 *   1. An item becomes an event, or several ops' ends.
 *   2. The exchange answers with effects; gateway.c lets them be executed one by one.
 *   3. Once the exchange is done and its effects are executed, the session ends with ABORTED, which
 *      every driver sends at the end.
 */
#include <assert.h>

#include "sim/checker.h"
#include "sim/client.h"
#include "sim/gateway.h"
#include "sim/mutant.h"
#include "sim/sender.h"
#include "sim/store_faults.h"
#include "sim/upstream.h"

static const char *const event_names[IDEM_EVENT_KIND_COUNT] = {
    "request",         "store result", "store failed", "answer head", "answer body", "answer end",
    "upstream failed", "rerouted",     "client gone",  "tick",        "wake",        "aborted",
};

static bool event_has_op(const struct idem_event *event)
{
    return event->kind == IDEM_EVENT_STORE_RESULT && event->op;
}

static void step_tell(const struct world *world, const struct gateway *gateway,
                      const struct session *session, enum idem_exchange_state before)
{
    const struct idem_event *event = &gateway->event;

    if (!world->tracing)
        return;
    if (event_has_op(event))
        world_tell(world, "gateway %u request %u: %s %s while %s", gateway->number,
                   session->request, idem_op_kind_text(event->op->kind),
                   idem_result_text(event->op->result), idem_exchange_state_text(before));
    else
        world_tell(world, "gateway %u request %u: %s%s%s while %s", gateway->number,
                   session->request, event_names[event->kind],
                   event->kind == IDEM_EVENT_STORE_FAILED ? " " : "",
                   event->kind == IDEM_EVENT_STORE_FAILED ? idem_op_kind_text(event->op_kind) : "",
                   idem_exchange_state_text(before));
}

void driver_step(struct world *world, struct gateway *gateway, struct session *session,
                 const struct idem_event *event)
{
    enum idem_exchange_state before = session->exchange.state;

    assert(!gateway->stepping);
    gateway->event = *event;
    memset(&gateway->op, 0, sizeof gateway->op);
    if (event_has_op(event)) {
        gateway->op = *event->op; /* with what it owns */
        gateway->event.op = &gateway->op;
    }
    check_heard(world, session->request, &gateway->event);
    mutant_event(world, session, &gateway->item, &gateway->event, &gateway->op);
    world->cover.situations[COVER_PROBE_TOO_LATE] |= before == IDEM_EXCHANGE_CONFIRMING &&
                                                     event_has_op(&gateway->event) &&
                                                     gateway->op.result == IDEM_RESULT_LOST;
    world->cover.events[before][gateway->event.kind] = true;
    step_tell(world, gateway, session, before);
    idem_exchange_step(&session->exchange, &gateway->event, &gateway->effects);
    mutant_effects(world, session, before, &gateway->event, &gateway->effects);
    gateway->stepping = true;
    gateway->next = 0;
    gateway->session = (uint8_t)(session - gateway->sessions);
    gateway->generation = session->generation;
}

static void driver_event(struct world *world, struct gateway *gateway, struct session *session,
                         enum idem_event_kind kind)
{
    struct idem_event event = {
        .kind = kind,
        .elapsed_us = world->now_us - session->begun_us,
    };

    driver_step(world, gateway, session, &event);
}

/* What is known of the connection to the upstream, when the driver has to say it. */
static enum idem_evidence session_evidence(const struct world *world, const struct session *session)
{
    const struct execution *execution;

    if (session->execution == NOBODY)
        return IDEM_EVIDENCE_NOT_SENT;
    execution = &world->executions[session->execution];
    if (execution->probe || !execution->sent)
        return IDEM_EVIDENCE_NOT_SENT; /* nothing of the request itself */
    return execution->head ? IDEM_EVIDENCE_TRUNCATED : IDEM_EVIDENCE_UNANSWERED;
}

static void session_abort(struct world *world, struct gateway *gateway, struct session *session)
{
    struct idem_event event = {
        .kind = IDEM_EVENT_ABORTED,
        .evidence = session_evidence(world, session),
    };
    struct execution *execution =
        session->execution == NOBODY ? NULL : &world->executions[session->execution];

    if (execution && !execution->sent)
        execution->closed = execution->no_effect = true;
    driver_step(world, gateway, session, &event);
}

static void session_end(struct world *world, struct session *session)
{
    if (session->execution != NOBODY)
        world->executions[session->execution].closed = true;
    session->used = false;
}

/* Sends ABORTED once more, which must have no effect by now. */
void driver_settled(struct world *world, struct gateway *gateway)
{
    struct session *session = &gateway->sessions[gateway->session];
    struct idem_event last = {.kind = IDEM_EVENT_ABORTED, .evidence = IDEM_EVIDENCE_UNANSWERED};
    struct idem_effects effects;

    idem_op_deinit(&gateway->op);
    gateway->stepping = false;
    if (!session->used || session->generation != gateway->generation ||
        session->exchange.state != IDEM_EXCHANGE_DONE || session->bypassed)
        return;
    if (!session->answered) {
        if (gateway->event.kind != IDEM_EVENT_ABORTED &&
            gateway->event.kind != IDEM_EVENT_CLIENT_GONE)
            check_broken(world, CHECKER_HANG, "request %u is done and was not answered",
                         session->request);
        session->answered = true;
        client_close(world, session->request, true);
    }
    idem_exchange_step(&session->exchange, &last, &effects);
    if (effects.count > 0)
        check_broken(world, CHECKER_HANG, "request %u: an exchange that was done goes on",
                     session->request);
    session_end(world, session);
}

/* When a session is destroyed: at any time, and often before much has happened. */
static int64_t abort_draw(struct world *world)
{
    bool early = dice_chance(&world->dice, 600);

    return dice_range(&world->dice, 0, early ? 6 * world->plan.delay_us : 2 * world->plan.lease_us);
}

static void item_request(struct world *world, struct gateway *gateway, const struct event *item)
{
    struct request *request = &world->requests[item->index];
    struct session *session = gateway->sessions;
    struct idem_claim claim = {
        .kind = IDEM_KIND_HTTP,
        .scope = world_scope(request->scope),
        .key = world_key(request->key),
        .method = idem_bytes_from_text("POST"),
        .path = idem_bytes_from_text("/payments"),
        .fingerprint = world_fingerprint(request->payload),
        .principal = world_principal(world, request->principal),
        .owner = request->owner,
    };
    uint32_t generation;

    while (session < gateway->sessions + SESSIONS_MAX && session->used)
        session++;
    if (session == gateway->sessions + SESSIONS_MAX || request->gone) {
        client_close(world, item->index, true);
        return;
    }
    generation = session->generation + 1;
    *session = (struct session){
        .used = true,
        .generation = generation ? generation : 1,
        .request = item->index,
        .execution = NOBODY,
        .held = NOBODY,
        .begun_us = world->now_us,
    };
    request->session = (uint8_t)(session - gateway->sessions);
    request->generation = session->generation;
    request->gateway_life = gateway->life;
    idem_exchange_init(&session->exchange, &world->policy, mutant_id(world, request), &claim);
    if (!world->quiet && dice_chance(&world->dice, world->plan.abort))
        world_in(world, abort_draw(world), gateway_item(gateway, session, ITEM_ABORT));
    driver_event(world, gateway, session, IDEM_EVENT_REQUEST);
}

static void session_store_failed(struct world *world, struct gateway *gateway,
                                 struct session *session, enum idem_op_kind kind, bool not_applied)
{
    struct idem_event event = {
        .kind = IDEM_EVENT_STORE_FAILED,
        .op_kind = kind,
        .not_applied = not_applied,
        .elapsed_us = world->now_us - session->begun_us,
    };

    if (session->waiting == kind)
        session->waiting = 0;
    driver_step(world, gateway, session, &event);
}

static void session_store_result(struct world *world, struct gateway *gateway,
                                 struct session *session, struct idem_op *op)
{
    struct idem_event event = {
        .kind = IDEM_EVENT_STORE_RESULT,
        .op = op,
        .elapsed_us = world->now_us - session->begun_us,
    };

    if (session->waiting == op->kind)
        session->waiting = 0;
    driver_step(world, gateway, session, &event);
    memset(op, 0, sizeof *op); /* the step has it now */
}

/* Those that wait in this process for the same key; each claims again, none takes this answer. */
static void waiters_wake(struct world *world, struct gateway *gateway, const struct session *waker)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct session *session = &gateway->sessions[i];
        struct event item;

        if (!session->used || session == waker ||
            session->exchange.state != IDEM_EXCHANGE_WAITING ||
            !idem_id_equal(&session->exchange.id, &waker->exchange.id))
            continue;
        item = gateway_item(gateway, session, ITEM_WAKE);
        item.index = waker->held;
        gateway_append(gateway, item);
        world->cover.situations[COVER_WAITER_WOKEN] = true;
    }
}

static void item_job(struct world *world, struct gateway *gateway, const struct event *item)
{
    struct job *job = &gateway->sender.jobs[item->index];
    struct event of = {.session = job->session, .generation = job->generation};
    struct session *session = job->generation ? gateway_session(gateway, &of) : NULL;

    if (item->what == IDEM_JOB_DELAYED) {
        job->generation = 0; /* the executor goes on with it alone */
        world->cover.situations[COVER_GATEWAY_KEPT] = true;
        if (session)
            session_store_failed(world, gateway, session, job->job.op.kind, false);
        return;
    }
    if (session && job->job.error)
        session_store_failed(world, gateway, session, job->job.op.kind, job->job.not_applied);
    else if (session)
        session_store_result(world, gateway, session, &job->job.op);
    if (session && session->exchange.state != IDEM_EXCHANGE_WAITING &&
        gateway->event.kind == IDEM_EVENT_STORE_RESULT && dice_chance(&world->dice, 700))
        waiters_wake(world, gateway, session);
    sender_release(&gateway->sender, item->index);
}

/* A request that went unguarded: what comes back goes straight to the client. */
static void session_bypassed(struct world *world, struct session *session,
                             const struct execution *execution, enum idem_event_kind kind)
{
    struct request *request = &world->requests[session->request];

    if (kind == IDEM_EVENT_ANSWER_HEAD || kind == IDEM_EVENT_ANSWER_BODY)
        return;
    if (kind == IDEM_EVENT_ANSWER_END) {
        request->answer = execution->answer;
        request->unrecorded = true;
    } else {
        request->refused = true;
        request->problem = idem_problem_make(IDEM_PROBLEM_UPSTREAM_UNANSWERED);
    }
    session->answered = true;
    client_close(world, session->request, false);
    session_end(world, session);
}

/* Fills the event of an item that tells of a connection to the upstream. */
static void upstream_event(const struct event *item, struct execution *execution,
                           struct idem_event *event)
{
    event->evidence = (enum idem_evidence)item->what;
    switch (item->kind) {
    case ITEM_HEAD:
        execution->head = true;
        event->kind = IDEM_EVENT_ANSWER_HEAD;
        event->status = execution->answer.status;
        event->declared = execution->declared;
        event->length = execution->manner->silent || execution->manner->ending == ENDING_CLOSE
                            ? -1
                            : (int64_t)execution->answer.body.size;
        break;
    case ITEM_BODY:
        event->kind = IDEM_EVENT_ANSWER_BODY;
        event->size = item->number;
        break;
    case ITEM_END:
        event->kind = IDEM_EVENT_ANSWER_END;
        execution->closed = execution->answered = true;
        break;
    case ITEM_REROUTED:
        event->kind = IDEM_EVENT_REROUTED;
        event->status = execution->sent ? execution->answer.status : 0;
        event->declared = execution->sent ? execution->declared : IDEM_OUTCOME_UNSET;
        execution->closed = true;
        break;
    default:
        event->kind = IDEM_EVENT_UPSTREAM_FAILED;
        if (item->kind == ITEM_LATE)
            event->evidence = execution->head ? IDEM_EVIDENCE_TRUNCATED : IDEM_EVIDENCE_UNANSWERED;
        execution->closed = true;
    }
}

/* Whether the gateway knows, by what has come back so far, that there was no effect. */
static bool known_without_effect(const struct world *world, const struct execution *execution,
                                 const struct event *item)
{
    bool whole = item->kind == ITEM_END || item->kind == ITEM_REROUTED;
    bool enough = execution->head && execution->answer.body.size > world->policy.body_size_max;

    if (!execution->sent)
        return item->kind == ITEM_REFUSED || item->kind == ITEM_REROUTED;
    return (whole || enough) &&
           check_outcome(execution->answer.status, execution->declared) == IDEM_OUTCOME_FAILED;
}

static void item_upstream(struct world *world, struct gateway *gateway, const struct event *item)
{
    struct execution *execution = &world->executions[item->index];
    struct session *session = gateway_session(gateway, item);
    struct idem_event event = {0};

    if (!session || execution->closed || session->execution != item->index)
        return;
    if (item->kind == ITEM_CONNECTED) {
        upstream_send(world, item->index);
        return;
    }
    upstream_event(item, execution, &event);
    event.elapsed_us = world->now_us - session->begun_us;
    execution->no_effect |= !execution->probe && known_without_effect(world, execution, item);
    world->cover.situations[COVER_UPSTREAM_TIMED_OUT] |= item->kind == ITEM_LATE;
    if (item->kind == ITEM_HEAD)
        session->held = item->index;
    if (item->kind == ITEM_END && execution->probe) {
        struct request *request = &world->requests[session->request];

        request->probed = true;
        request->renews_probed = request->renews;
    }
    if (session->bypassed)
        session_bypassed(world, session, execution, event.kind);
    else
        driver_step(world, gateway, session, &event);
}

static void item_session(struct world *world, struct gateway *gateway, const struct event *item)
{
    struct session *session = gateway_session(gateway, item);

    if (!session)
        return;
    switch (item->kind) {
    case ITEM_CLIENT_GONE:
        driver_event(world, gateway, session, IDEM_EVENT_CLIENT_GONE);
        break;
    case ITEM_ABORT:
        if (session->bypassed)
            return;
        world->cover.situations[COVER_GATEWAY_ABORTED] = true;
        session_abort(world, gateway, session);
        break;
    case ITEM_TICK:
        if (item->number == session->timer_number)
            driver_event(world, gateway, session, IDEM_EVENT_TICK);
        break;
    case ITEM_WAKE:
        driver_event(world, gateway, session, IDEM_EVENT_WAKE);
        break;
    case ITEM_DEADLINE:
        if (session->waiting && item->number == session->wait_number)
            session_store_failed(world, gateway, session, session->waiting, false);
        break;
    default:
        check_broken(world, CHECKER_WORLD, "item %u is for nobody", item->kind);
    }
}

void driver_item(struct world *world, struct gateway *gateway, const struct event *item)
{
    gateway->item = *item;
    switch (item->kind) {
    case ITEM_REQUEST:
        item_request(world, gateway, item);
        break;
    case ITEM_REPLY:
        sender_reply(world, gateway, item);
        break;
    case ITEM_CALL_TIMEOUT:
        sender_timeout(world, gateway, item);
        break;
    case ITEM_SENDER_WAKE:
        sender_wake(world, gateway);
        break;
    case ITEM_JOB:
        item_job(world, gateway, item);
        break;
    case ITEM_CONNECTED:
    case ITEM_REFUSED:
    case ITEM_REROUTED:
    case ITEM_HEAD:
    case ITEM_BODY:
    case ITEM_END:
    case ITEM_FAILED:
    case ITEM_LATE:
        item_upstream(world, gateway, item);
        break;
    default:
        item_session(world, gateway, item);
    }
}
