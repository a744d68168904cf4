/*
 * The queue of events, the phases of a run, and the constants that every run is made of.
 */
#include "sim/world.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "sim/checker.h"
#include "sim/client.h"
#include "sim/gateway.h"
#include "sim/person.h"
#include "sim/store_faults.h"
#include "sim/upstream.h"

#define START_US                                                                    \
    (INT64_C(1700000000) * IDEM_SECOND_US) /* what the store's clock tells at first \
                                            */
#define STEPS_MAX 200000 /* events in one run: past this something goes round in circles */

static const char *const scopes[SCOPES_MAX] = {"north", "south"};
static const char *const keys[KEYS_MAX] = {"k-1", "k-2", "k-3"};

struct idem_bytes world_scope(unsigned scope)
{
    return idem_bytes_from_text(scopes[scope]);
}

struct idem_bytes world_key(unsigned key)
{
    return idem_bytes_from_text(keys[key]);
}

const struct idem_id *world_id(unsigned id)
{
    static struct idem_id ids[IDS_MAX];
    static bool made;

    if (!made) {
        for (unsigned i = 0; i < IDS_MAX; i++)
            ids[i] =
                idem_id_make(IDEM_KIND_HTTP, world_scope(i / KEYS_MAX), world_key(i % KEYS_MAX));
        made = true;
    }
    return &ids[id];
}

unsigned world_id_find(const struct idem_id *id)
{
    unsigned i = 0;

    while (i < IDS_MAX && !idem_id_equal(world_id(i), id))
        i++;
    return i;
}

struct idem_fingerprint world_fingerprint(unsigned payload)
{
    static struct idem_fingerprint fingerprints[PAYLOADS_MAX];
    struct idem_fingerprinter f;

    if (fingerprints[payload].algorithm == IDEM_FINGERPRINT_NONE) {
        idem_fingerprinter_init(&f, IDEM_FINGERPRINT_RAW);
        idem_fingerprinter_field(&f, idem_bytes_from_text("POST"));
        idem_fingerprinter_body(&f, idem_bytes_from_text(payload == 0 ? "pay 10" : "pay 20"));
        idem_fingerprinter_end(&f, &fingerprints[payload]);
    }
    return fingerprints[payload];
}

struct idem_principal world_principal(const struct world *world, unsigned principal)
{
    static struct idem_principal principals[PRINCIPALS_MAX];
    static const char *const tokens[PRINCIPALS_MAX] = {"Bearer a", "Bearer b", "Bearer c"};
    struct idem_bytes token = idem_bytes_from_text(tokens[principal]);

    if (!world->plan.credentials)
        return (struct idem_principal){0};
    if (!principals[principal].present)
        principals[principal] = idem_principal_make(&token, 1);
    return principals[principal];
}

uint16_t world_owner_request(const struct world *world, const struct idem_owner *owner)
{
    unsigned number = (unsigned)owner->bytes[0] << 8 | owner->bytes[1];

    return number < world->request_count ? (uint16_t)number : NOBODY;
}

uint16_t world_op_request(const struct world *world, const struct idem_op *op)
{
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        return world_owner_request(world, &op->in.claim.owner);
    case IDEM_OP_RENEW:
        return world_owner_request(world, &op->in.renew.owner);
    case IDEM_OP_COMPLETE:
    case IDEM_OP_FAIL:
    case IDEM_OP_ABANDON:
        return world_owner_request(world, &op->in.verdict.owner);
    default:
        return NOBODY;
    }
}

const char *world_id_text(const struct world *world, unsigned id)
{
    static char text[16];

    (void)world;
    snprintf(text, sizeof text, "%s/%s", scopes[id / KEYS_MAX], keys[id % KEYS_MAX]);
    return text;
}

int64_t world_store_now_us(const struct world *world)
{
    return START_US + world->now_us + world->clock_offset_us;
}

static int64_t world_clock(void *context)
{
    struct world *world = context;
    int64_t now_us = world_store_now_us(world);

    if (now_us > world->clock_max_us)
        world->clock_max_us = now_us;
    return now_us;
}

void world_tell(const struct world *world, const char *format, ...)
{
    va_list arguments;

    if (!world->tracing)
        return;
    printf("%9.4f  ", (double)world->now_us / IDEM_SECOND_US);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

/* The queue is a heap: the next event stands first. */
static bool event_before(const struct event *a, const struct event *b)
{
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order);
}

void world_at(struct world *world, int64_t at_us, struct event event)
{
    size_t place = world->event_count++;

    assert(world->event_count <= EVENTS_MAX);
    event.at_us = at_us > world->now_us ? at_us : world->now_us;
    event.order = world->event_order++;
    while (place > 0 && event_before(&event, &world->events[(place - 1) / 2])) {
        world->events[place] = world->events[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    world->events[place] = event;
}

void world_in(struct world *world, int64_t delay_us, struct event event)
{
    world_at(world, world->now_us + delay_us, event);
}

static struct event event_take(struct world *world)
{
    struct event first = world->events[0];
    struct event last = world->events[--world->event_count];
    size_t place = 0;

    for (;;) {
        size_t child = 2 * place + 1;

        if (child >= world->event_count)
            break;
        if (child + 1 < world->event_count &&
            event_before(&world->events[child + 1], &world->events[child]))
            child++;
        if (!event_before(&world->events[child], &last))
            break;
        world->events[place] = world->events[child];
        place = child;
    }
    world->events[place] = last;
    return first;
}

static void trouble(struct world *world, const struct event *event)
{
    struct gateway *gateway = &world->gateways[event->gateway];

    if (world->quiet)
        return;
    if (event->what == TROUBLE_PAUSE)
        gateway_pause(world, gateway);
    else if (event->what == TROUBLE_CRASH)
        gateway_crash(world, gateway);
    else
        store_clock_jump(world);
}

static void quiet_begin(struct world *world)
{
    world_tell(world, "---- no more trouble");
    world->quiet = true;
    store_up(world);
    store_room(world);
    for (unsigned i = 0; i < world->plan.gateways; i++)
        gateway_heal(world, &world->gateways[i]);
}

/* What befalls the store, and who looks into it. */
static void store_handle(struct world *world, const struct event *event)
{
    switch ((enum event_kind)event->kind) {
    case EVENT_DOWN:
        store_down(world);
        break;
    case EVENT_UP:
        store_up(world);
        break;
    case EVENT_FULL:
        store_fill(world);
        break;
    case EVENT_ROOM:
        store_room(world);
        break;
    case EVENT_SWEEP:
        store_sweep(world);
        break;
    case EVENT_LOOK:
        person_look(world);
        break;
    case EVENT_SETTLE:
        person_settle(world);
        break;
    default:
        check_broken(world, CHECKER_WORLD, "event %u is for nobody", event->kind);
    }
}

static void event_handle(struct world *world, const struct event *event)
{
    switch ((enum event_kind)event->kind) {
    case EVENT_CLIENT:
        client_act(world, event);
        break;
    case EVENT_ANSWER:
        client_answered(world, event);
        break;
    case EVENT_ARRIVAL:
        store_arrival(world, event->index);
        break;
    case EVENT_UPSTREAM:
        upstream_arrival(world, event->index);
        break;
    case EVENT_WORKED:
        upstream_worked(world, event->index);
        break;
    case EVENT_RESUME:
        gateway_resume(world, event);
        break;
    case EVENT_RESTART:
        gateway_restart(world, event);
        break;
    case EVENT_TROUBLE:
        trouble(world, event);
        break;
    case EVENT_QUIET:
        quiet_begin(world);
        break;
    case EVENT_FINAL:
        check_quiet(world);
        client_final_begin(world);
        break;
    case EVENT_FINAL_NEXT:
        client_final_next(world);
        break;
    default:
        if (event->kind <= ITEM_LAST)
            gateway_receive(world, event);
        else
            store_handle(world, event);
    }
}

static void schedule_some(struct world *world, unsigned count, struct event event)
{
    for (unsigned i = 0; i < count; i++)
        world_at(world, dice_range(&world->dice, 0, world->plan.active_us), event);
}

static void schedule(struct world *world)
{
    const struct plan *plan = &world->plan;

    schedule_some(world, plan->downs, (struct event){.kind = EVENT_DOWN});
    schedule_some(world, plan->fulls, (struct event){.kind = EVENT_FULL});
    schedule_some(world, plan->sweeps, (struct event){.kind = EVENT_SWEEP});
    schedule_some(world, plan->looks, (struct event){.kind = EVENT_LOOK});
    schedule_some(world, plan->jumps, (struct event){.kind = EVENT_TROUBLE, .what = TROUBLE_JUMP});
    for (uint8_t i = 0; i < plan->gateways; i++) {
        schedule_some(world, plan->pause > 0,
                      (struct event){.kind = EVENT_TROUBLE, .what = TROUBLE_PAUSE, .gateway = i});
        schedule_some(world, plan->crash > 0,
                      (struct event){.kind = EVENT_TROUBLE, .what = TROUBLE_CRASH, .gateway = i});
    }
    world_at(world, world->quiet_us, (struct event){.kind = EVENT_QUIET});
    world_at(world, world->final_us, (struct event){.kind = EVENT_FINAL});
}

/*
 * From the end of trouble to the last phase: what the upstream may take, what is late, what a
 * waiter waits, a person's word, and then the lease of whoever was last.
 */
static int64_t calm_us(const struct world *world)
{
    const struct plan *plan = &world->plan;

    return plan->late_us + 2 * plan->upstream_us + world->policy.wait_us + world->policy.settle_us +
           2 * plan->deadline_us + 4 * plan->lease_us;
}

static bool world_open(struct world *world)
{
    struct idem_message message = {""};
    const char *url = world->plan.fulls > 0 ? "memory:?size=64k" : "memory:";
    int error = idem_store_open(url, &world->clock, &world->store, &message);

    if (error)
        check_broken(world, CHECKER_WORLD, "the store does not open: %s", message.text);
    return !error;
}

static void tracks_begin(struct world *world)
{
    for (size_t i = 0; i < IDS_MAX; i++)
        world->tracks[i] =
            (struct track){.told_to = NOBODY, .effect_of = NOBODY, .kept_of = NOBODY};
}

static void world_begin(struct world *world, uint64_t seed, unsigned mutant, bool tracing)
{
    world->seed = seed;
    world->dice.state = seed * UINT64_C(0x2545f4914f6cdd1d);
    world->mutant = mutant;
    memset(world->mutant_rows, 0, sizeof world->mutant_rows);
    world->tracing = tracing;
    world->now_us = world->clock_offset_us = world->clock_max_us = 0;
    world->clock = (struct idem_clock){world_clock, world};
    world->store = NULL;
    world->quiet = world->final = world->stray = false;
    world->store_down = world->store_full = false;
    world->event_count = world->request_count = world->execution_count = 0;
    world->variant_count = world->variant_next = 0;
    world->event_order = 0;
    world->steps = world->digest = 0;
    world->broken = 0;
    world->finding[0] = '\0';
    memset(&world->cover, 0, sizeof world->cover);
    tracks_begin(world);
    plan_draw(&world->dice, &world->plan, &world->policy, &world->cover);
    world->quiet_us = world->plan.active_us;
    world->final_us = world->quiet_us + calm_us(world);
    for (uint8_t i = 0; i < world->plan.gateways; i++)
        gateway_begin(&world->gateways[i], i);
    clients_begin(world);
    schedule(world);
}

static void world_end(struct world *world)
{
    for (unsigned i = 0; i < world->plan.gateways; i++)
        gateway_end(world, &world->gateways[i]);
    store_end(world);
    idem_store_close(world->store);
}

static void digest_add(struct world *world, const struct event *event)
{
    struct dice stir = {.state = world->digest ^ world->dice.state};

    stir.state += (uint64_t)event->at_us + event->kind + event->index + event->number;
    world->digest = dice_next(&stir);
}

bool world_run(struct world *world, uint64_t seed, unsigned mutant, bool tracing)
{
    world_begin(world, seed, mutant, tracing);
    if (tracing)
        plan_tell(world);
    if (world_open(world)) {
        while (world->event_count > 0 && !world->broken) {
            struct event event = event_take(world);

            world->now_us = event.at_us;
            digest_add(world, &event);
            event_handle(world, &event);
            if (++world->steps > STEPS_MAX)
                check_broken(world, CHECKER_HANG, "the run does not come to an end");
        }
        if (!world->broken)
            check_end(world);
    }
    world_end(world);
    return !world->broken;
}
