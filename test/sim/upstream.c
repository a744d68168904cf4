#include "sim/upstream.h"

#include <assert.h>
#include <stdio.h>

#include "sim/checker.h"
#include "sim/gateway.h"
#include "sim/mutant.h"

#define BODY_SMALL_MAX 40
#define BODY_LARGE     200 /* over what a route with a small maximum keeps */

enum effect { NEVER, ALWAYS, EITHER };

static const struct manner sound = {.name = "answers 201", .status = 201, .effect = ALWAYS};

static const struct manner manners[] = {
    {.name = "answers 201", .status = 201, .effect = ALWAYS, .weight = 10},
    {.name = "answers 200", .status = 200, .effect = ALWAYS, .weight = 4},
    {.name = "answers 303", .status = 303, .effect = ALWAYS, .weight = 2},
    {.name = "answers 422", .status = 422, .effect = NEVER, .weight = 3},
    {.name = "answers 404", .status = 404, .effect = NEVER, .weight = 2},
    {.name = "answers 401", .status = 401, .effect = NEVER, .weight = 3},
    {.name = "answers 429", .status = 429, .effect = NEVER, .weight = 2},
    {.name = "answers 500", .status = 500, .effect = NEVER, .weight = 4},
    {.name = "answers 503", .status = 503, .effect = NEVER, .weight = 6},
    {.name = "answers 502", .status = 502, .effect = EITHER, .weight = 3},
    {.name = "answers 504", .status = 504, .effect = EITHER, .weight = 3},
    {.name = "answers 503, declared final",
     .status = 503,
     .effect = ALWAYS,
     .declared = IDEM_OUTCOME_FINAL,
     .weight = 2},
    {.name = "answers 200, declared failed",
     .status = 200,
     .effect = NEVER,
     .declared = IDEM_OUTCOME_FAILED,
     .weight = 2},
    {.name = "answers 504, declared failed",
     .status = 504,
     .effect = NEVER,
     .declared = IDEM_OUTCOME_FAILED,
     .weight = 2},
    {.name = "answers 202, declared unknown",
     .status = 202,
     .effect = EITHER,
     .declared = IDEM_OUTCOME_UNKNOWN,
     .weight = 3},
    {.name = "answers 500, declared unknown",
     .status = 500,
     .effect = EITHER,
     .declared = IDEM_OUTCOME_UNKNOWN,
     .weight = 3},
    {.name = "refuses the connection", .ending = ENDING_REFUSED, .weight = 6},
    {.name = "refuses, another handler wants it", .ending = ENDING_REROUTED, .weight = 3},
    {.name = "answers, another handler wants to",
     .status = 404,
     .effect = NEVER,
     .ending = ENDING_REPLACED,
     .weight = 2},
    {.name = "answers 503, another handler wants to",
     .status = 503,
     .effect = NEVER,
     .ending = ENDING_REPLACED,
     .weight = 2},
    {.name = "dies, another handler wants it",
     .effect = EITHER,
     .ending = ENDING_REPLACED,
     .weight = 2},
    {.name = "dies before the effect", .effect = NEVER, .ending = ENDING_NONE, .weight = 8},
    {.name = "dies after the effect", .effect = ALWAYS, .ending = ENDING_NONE, .weight = 8},
    {.name = "is late", .status = 201, .effect = ALWAYS, .late = true, .weight = 12},
    {.name = "is late, and for nothing", .status = 503, .effect = NEVER, .late = true, .weight = 4},
    {.name = "is cut short", .status = 201, .effect = ALWAYS, .ending = ENDING_CUT, .weight = 6},
    {.name = "is cut short at 503",
     .status = 503,
     .effect = NEVER,
     .ending = ENDING_CUT,
     .weight = 3},
    {.name = "closes", .status = 201, .effect = ALWAYS, .ending = ENDING_CLOSE, .weight = 4},
    {.name = "is no HTTP", .status = 0, .effect = EITHER, .ending = ENDING_INVALID, .weight = 3},
    {.name = "answers at length", .status = 201, .effect = ALWAYS, .large = true, .weight = 4},
    {.name = "answers at length, unannounced",
     .status = 201,
     .effect = ALWAYS,
     .large = true,
     .silent = true,
     .weight = 4},
    {.name = "answers 503 at length", .status = 503, .effect = NEVER, .large = true, .weight = 2},
};

#define MANNERS_COUNT (sizeof manners / sizeof manners[0])

/*
 * Who is asked again later has to give the same answer with a 2xx, so where that may happen the
 * answers to the request itself are of that kind as well.
 */
static bool manner_fits(const struct world *world, const struct manner *manner)
{
    if (world->policy.unknown != IDEM_UNKNOWN_PROBE || manner->effect != ALWAYS)
        return true;
    return manner->status == 0 || (manner->status >= 200 && manner->status < 300);
}

static const struct manner *manner_draw(struct world *world)
{
    unsigned total = 0;
    size_t i = 0;
    int64_t at;

    if (world->quiet || !dice_chance(&world->dice, world->plan.trouble))
        return &sound;
    for (size_t j = 0; j < MANNERS_COUNT; j++)
        total += manners[j].weight;
    at = (int64_t)dice_below(&world->dice, total);
    while (at >= manners[i].weight)
        at -= manners[i++].weight;
    return manner_fits(world, &manners[i]) ? &manners[i] : &sound;
}

static struct event execution_event(const struct execution *execution, uint16_t number,
                                    enum event_kind kind)
{
    return (struct event){
        .kind = (uint8_t)kind,
        .gateway = execution->gateway,
        .life = execution->gateway_life,
        .session = execution->session,
        .generation = execution->generation,
        .index = number,
    };
}

static int64_t delay_draw(struct world *world)
{
    return dice_range(&world->dice, 1, world->plan.delay_us);
}

/* A connection may take its time to come about, or to be refused. */
static int64_t connect_draw(struct world *world)
{
    if (world->quiet || !dice_chance(&world->dice, world->plan.trouble / 8))
        return delay_draw(world);
    return dice_range(&world->dice, 1, world->plan.lease_us);
}

/* The bytes that tell which execution they come from. A body may be empty. */
static void truth_make(struct world *world, struct execution *execution, uint16_t number)
{
    static const uint8_t filler[BODY_LARGE + 256] = "what was paid, to whom, and how much of it is "
                                                    "left on the account of whoever paid it";
    size_t size =
        execution->manner->large ? BODY_LARGE : (size_t)dice_below(&world->dice, BODY_SMALL_MAX);
    const struct manner *manner = execution->manner;
    char text[8];
    size_t used;

    snprintf(text, sizeof text, "%u", number);
    used = idem_headers_append(execution->headers, 0, sizeof execution->headers,
                               idem_bytes_from_text("X-Execution"), idem_bytes_from_text(text));
    used = idem_headers_append(execution->headers, used, sizeof execution->headers,
                               idem_bytes_from_text("Link"), idem_bytes_from_text("</a>"));
    used = idem_headers_append(execution->headers, used, sizeof execution->headers,
                               idem_bytes_from_text("Link"), idem_bytes_from_text(""));
    assert(used > 0);
    execution->truth.status = check_outcome(manner->status, manner->declared) == IDEM_OUTCOME_FINAL
                                  ? manner->status
                                  : 201;
    execution->truth.headers = idem_bytes_make(execution->headers, used);
    execution->truth.body = idem_bytes_make(filler + number % 97, size);
    execution->answer = execution->truth;
    execution->answer.status = manner->status;
    execution->declared = manner->declared;
}

uint16_t upstream_connect(struct world *world, struct gateway *gateway, struct session *session,
                          const struct idem_effect *effect)
{
    uint16_t number = (uint16_t)world->execution_count++;
    struct execution *execution = &world->executions[number];
    const struct request *request = &world->requests[session->request];
    struct event event;

    assert(world->execution_count <= EXECUTIONS_MAX);
    memset(execution, 0, sizeof *execution);
    execution->request = session->request;
    execution->gateway = gateway->number;
    execution->gateway_life = gateway->life;
    execution->session = (uint8_t)(session - gateway->sessions);
    execution->generation = session->generation;
    execution->id = request->id;
    execution->probe = effect->kind == IDEM_EFFECT_PROBE;
    execution->bypass = effect->kind == IDEM_EFFECT_BYPASS;
    execution->key_life = execution->bypass ? world->tracks[request->id].life : request->key_life;
    execution->fence = effect->fence;
    execution->attempt = effect->attempt;
    execution->manner = manner_draw(world);
    execution->of = NOBODY;
    truth_make(world, execution, number);

    event = execution_event(execution, number, ITEM_CONNECTED);
    if (execution->manner->ending == ENDING_REFUSED)
        event.kind = ITEM_REFUSED;
    if (execution->manner->ending == ENDING_REROUTED)
        event.kind = execution->probe ? ITEM_REFUSED : ITEM_REROUTED;
    event.what = IDEM_EVIDENCE_NOT_SENT;
    world->cover.situations[COVER_UPSTREAM_REFUSED] |= event.kind == ITEM_REFUSED;
    world->cover.situations[COVER_UPSTREAM_REROUTED] |= event.kind == ITEM_REROUTED;
    world_in(world, connect_draw(world), event);
    return number;
}

void upstream_send(struct world *world, uint16_t number)
{
    struct execution *execution = &world->executions[number];

    execution->sent = true;
    check_sent(world, number);
    world_in(world, world->plan.upstream_us, execution_event(execution, number, ITEM_LATE));
    world_in(world, delay_draw(world), execution_event(execution, number, EVENT_UPSTREAM));
}

bool upstream_is_open(const struct execution *execution)
{
    return execution->sent && !execution->worked && !execution->probe;
}

static void tell(struct world *world, const struct execution *execution, uint16_t number,
                 const char *what)
{
    world_tell(world, "upstream: %s %u of request %u, fence %llu: %s",
               execution->probe ? "probe" : "execution", number, execution->request,
               (unsigned long long)execution->fence, what);
}

/* How long it works: mostly not long, now and then for more than a lease. */
static int64_t work_draw(struct world *world, const struct execution *execution)
{
    const struct plan *plan = &world->plan;

    if (execution->manner->late && !world->quiet)
        return dice_range(&world->dice, plan->upstream_us / 2, plan->late_us);
    if (!world->quiet && dice_chance(&world->dice, 200))
        return dice_range(&world->dice, 1, plan->upstream_us);
    return delay_draw(world);
}

/* Sends the answer, or the lack of one, back on the connection. */
static void answer_schedule(struct world *world, const struct execution *execution, uint16_t number,
                            enum ending ending)
{
    struct event event = execution_event(execution, number, ITEM_HEAD);
    size_t size = execution->answer.body.size;
    int64_t at_us = world->now_us + delay_draw(world);

    if (ending == ENDING_NONE || ending == ENDING_INVALID || ending == ENDING_REPLACED) {
        event.kind = ending == ENDING_REPLACED ? ITEM_REROUTED : ITEM_FAILED;
        event.what = ending == ENDING_INVALID ? IDEM_EVIDENCE_INVALID : IDEM_EVIDENCE_UNANSWERED;
        world_at(world, at_us, event);
        return;
    }
    world_at(world, at_us, event);
    if (ending == ENDING_CUT)
        size /= 2;
    if (size > 0) {
        event.kind = ITEM_BODY;
        event.number = (uint32_t)size;
        at_us += dice_range(&world->dice, 0, world->plan.delay_us);
        world_at(world, at_us, event);
    }
    event.kind = ITEM_END;
    if (ending == ENDING_CUT || (ending == ENDING_CLOSE && !world->plan.close_delimited)) {
        event.kind = ITEM_FAILED;
        event.what = IDEM_EVIDENCE_TRUNCATED;
    }
    world_at(world, at_us + dice_range(&world->dice, 0, world->plan.delay_us), event);
}

static void answer_with(struct execution *execution, unsigned status, enum idem_outcome declared)
{
    execution->answer.status = (uint16_t)status;
    execution->declared = declared;
}

/* Gives the answer of the execution that had the effect. */
static void answer_as(struct world *world, struct execution *execution, uint16_t of)
{
    execution->of = of;
    execution->answer = world->executions[of].truth;
    execution->declared =
        world->executions[of].truth.status < 400 ? IDEM_OUTCOME_UNSET : IDEM_OUTCOME_FINAL;
}

/* One that is still at work on this key, or will be. */
static bool key_is_busy(const struct world *world, const struct execution *probe)
{
    for (size_t i = 0; i < world->execution_count; i++) {
        const struct execution *other = &world->executions[i];

        if (other->id == probe->id && other->arrived && upstream_is_open(other))
            return true;
    }
    return false;
}

static void probe_found(struct world *world, struct execution *probe, uint16_t of)
{
    bool vague = !world->quiet && dice_chance(&world->dice, 150);

    answer_as(world, probe, of);
    probe->declared = IDEM_OUTCOME_FINAL;
    if (vague)
        probe->declared =
            dice_chance(&world->dice, 700) ? IDEM_OUTCOME_UNSET : IDEM_OUTCOME_UNKNOWN;
    world->cover.situations[COVER_PROBE_FOUND] = true;
}

/* What is true at this moment; having promised, lower fences come too late. */
static enum ending probe_answer(struct world *world, struct execution *probe)
{
    struct track *track = &world->tracks[probe->id];
    bool known = track->effects > 0 && track->life == probe->key_life;
    enum ending ending = probe->manner->ending;

    if (known) {
        probe_found(world, probe, track->effect_of);
    } else if (key_is_busy(world, probe) && world->policy.settle_us == 0 && !world->quiet &&
               dice_chance(&world->dice, 600)) {
        answer_with(probe, world->policy.trust ? 409 : 202, IDEM_OUTCOME_UNSET);
        world->cover.situations[COVER_PROBE_BUSY] = true;
    } else {
        bool vague = !world->quiet && dice_chance(&world->dice, 100);

        answer_with(probe, 404, vague ? IDEM_OUTCOME_UNKNOWN : IDEM_OUTCOME_UNSET);
        if (world->plan.promise && !vague && !mutant_breaks_promise(world) &&
            probe->fence > track->promised)
            track->promised = probe->fence;
        world->cover.situations[COVER_PROBE_ABSENT] = true;
    }
    if (probe->manner != &sound && ending == ENDING_WHOLE && !probe->manner->late) {
        /* Anything else than a true word tells nothing. */
        answer_with(probe, dice_chance(&world->dice, 500) ? 500 : 401, IDEM_OUTCOME_UNSET);
        world->cover.situations[COVER_PROBE_FAILED] = true;
    }
    return ending;
}

static void note_manner(struct world *world, const struct execution *execution)
{
    const struct manner *manner = execution->manner;
    bool *seen = world->cover.situations;

    if (execution->probe) {
        seen[COVER_PROBE_FAILED] |= manner->ending != ENDING_WHOLE;
        return;
    }
    seen[COVER_UPSTREAM_DIED_BEFORE] |= manner->ending == ENDING_NONE && manner->effect == NEVER;
    seen[COVER_UPSTREAM_DIED_AFTER] |= manner->ending == ENDING_NONE && manner->effect == ALWAYS;
    seen[COVER_UPSTREAM_CUT] |= manner->ending == ENDING_CUT;
    seen[COVER_UPSTREAM_CLOSED] |= manner->ending == ENDING_CLOSE;
    seen[COVER_UPSTREAM_INVALID] |= manner->ending == ENDING_INVALID;
    seen[COVER_UPSTREAM_REPLACED] |= manner->ending == ENDING_REPLACED;
    seen[COVER_UPSTREAM_DECLARED] |= manner->declared != IDEM_OUTCOME_UNSET;
    seen[COVER_UPSTREAM_LARGE] |= manner->large;
}

void upstream_arrival(struct world *world, uint16_t number)
{
    struct execution *execution = &world->executions[number];
    int64_t at_us = world->now_us + work_draw(world, execution);
    int64_t last_us = world->quiet_us + world->plan.late_us;

    execution->arrived = true;
    tell(world, execution, number, execution->manner->name);
    note_manner(world, execution);
    world_at(world, at_us < last_us || world->quiet ? at_us : last_us,
             execution_event(execution, number, EVENT_WORKED));
}

/* It has come too late: the upstream has promised so. What it says of that is up to it. */
static enum ending stale(struct world *world, struct execution *execution)
{
    world->cover.situations[COVER_UPSTREAM_STALE] = true;
    if (dice_chance(&world->dice, 300))
        return ENDING_NONE;
    answer_with(execution, 409,
                dice_chance(&world->dice, 500) ? IDEM_OUTCOME_FAILED : IDEM_OUTCOME_UNSET);
    return ENDING_WHOLE;
}

/*
 * Policy retry: this key has its answer, with an effect or without. The same request gets the same
 * answer, whichever of two was first.
 */
static void repeated(struct world *world, struct execution *execution, uint16_t of)
{
    const struct request *now = &world->requests[execution->request];
    const struct request *then = &world->requests[world->executions[of].request];

    world->cover.situations[COVER_UPSTREAM_DEDUP] = true;
    if (now->payload == then->payload && now->principal == then->principal)
        answer_as(world, execution, of);
    else
        answer_with(execution, 422, IDEM_OUTCOME_UNSET);
}

static void takes_effect(struct world *world, struct execution *execution, uint16_t number)
{
    tell(world, execution, number, "takes effect");
    execution->effect = true;
    world->cover.situations[COVER_UPSTREAM_LATE_EFFECT] |= execution->closed;
    check_happened(world, number);
}

/* The request itself: at most one of a key's is executed where the upstream sees to that. */
static enum ending execution_answer(struct world *world, struct execution *execution,
                                    uint16_t number)
{
    struct track *track = &world->tracks[execution->id];
    const struct manner *manner = execution->manner;
    bool dedup = world->plan.dedup && execution->key_life == track->life;

    if (execution->fence < track->promised && !execution->bypass) {
        tell(world, execution, number, "below the promised fence");
        return stale(world, execution);
    }
    if (dedup && track->kept_of != NOBODY) {
        tell(world, execution, number, "executed before");
        repeated(world, execution, track->kept_of);
        return manner->ending;
    }
    if (manner->effect == ALWAYS || (manner->effect == EITHER && dice_chance(&world->dice, 500)))
        takes_effect(world, execution, number);
    if (dedup && (execution->effect ||
                  check_outcome(manner->status, manner->declared) == IDEM_OUTCOME_FINAL))
        track->kept_of = number;
    return manner->ending;
}

void upstream_worked(struct world *world, uint16_t number)
{
    struct execution *execution = &world->executions[number];
    enum ending ending;

    execution->worked = true;
    if (execution->probe)
        ending = probe_answer(world, execution);
    else
        ending = execution_answer(world, execution, number);
    answer_schedule(world, execution, number, ending);
}
