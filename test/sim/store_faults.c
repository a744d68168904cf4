#include "sim/store_faults.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/checker.h"
#include "sim/gateway.h"
#include "sim/mutant.h"

#define STORE_SIZE 65536 /* of a store that gets full: "size=64k" */
#define ROOM_LEFT  3300  /* less than the sixteenth that claims leave, more than half of it */

static const struct idem_owner ballast_owner = {
    .bytes = {0xff, 0xff, 'b', 'a', 'l', 'l', 'a', 's'}};

uint16_t store_message_new(struct world *world)
{
    uint16_t number = 0;

    while (number < MESSAGES_MAX && world->messages[number].used)
        number++;
    assert(number < MESSAGES_MAX);
    memset(&world->messages[number], 0, offsetof(struct message, ops));
    world->messages[number].used = true;
    world->messages[number].error = 0;
    return number;
}

void store_message_free(struct world *world, uint16_t number)
{
    struct message *message = &world->messages[number];

    for (size_t i = 0; i < message->count; i++)
        idem_op_deinit(&message->ops[i]);
    message->used = false;
}

void store_end(struct world *world)
{
    for (uint16_t i = 0; i < MESSAGES_MAX; i++)
        if (world->messages[i].used)
            store_message_free(world, i);
}

/* The same batch comes once more; nobody waits for what that brings. */
static void message_double(struct world *world, const struct message *message, int64_t at_us,
                           bool stray)
{
    struct event event = {.kind = EVENT_ARRIVAL, .index = store_message_new(world)};
    struct message *twin = &world->messages[event.index];

    twin->orphan = true;
    twin->stray = stray;
    twin->gateway = message->gateway;
    memcpy(twin->askers, message->askers, sizeof twin->askers);
    twin->count = message->count;
    memcpy(twin->ops, message->ops, message->count * sizeof message->ops[0]);
    world_at(world, at_us < world->quiet_us ? at_us : world->quiet_us, event);
}

/*
 * The backend has lost its connection and sends the batch on another, within the same call: what
 * counts is the second one's result. The first one comes before it, or long after.
 */
static int64_t message_repeat(struct world *world, const struct message *message, int64_t at_us)
{
    struct dice *dice = &world->dice;
    bool after = dice_chance(dice, 150);

    world->cover.situations[COVER_STORE_REPEATED] = true;
    message_double(world, message, after ? at_us + dice_range(dice, 1, world->plan.late_us) : at_us,
                   after);
    return at_us + dice_range(dice, 1, world->plan.call_us);
}

void store_send(struct world *world, uint16_t number)
{
    struct message *message = &world->messages[number];
    const struct plan *plan = &world->plan;
    struct dice *dice = &world->dice;
    struct event event = {.kind = EVENT_ARRIVAL, .index = number};
    int64_t at_us = world->now_us + dice_range(dice, 1, plan->delay_us);
    bool late = false;

    if (!world->quiet) {
        message->lose = dice_chance(dice, plan->lose);
        message->cut = dice_chance(dice, plan->cut);
        if (dice_chance(dice, plan->partial) && message->count > 1)
            message->partial = (uint8_t)dice_range(dice, 1, (int64_t)message->count - 1);
        if (dice_chance(dice, plan->late)) {
            at_us = world->now_us + dice_range(dice, plan->call_us, plan->late_us);
            at_us = at_us < world->quiet_us ? at_us : world->quiet_us;
            late = at_us >= world->now_us + plan->call_us;
        }
        if ((late || message->lose || message->cut) && dice_chance(dice, plan->duplicate)) {
            world->cover.situations[COVER_STORE_DUPLICATE] = true;
            message_double(world, message, world->now_us + dice_range(dice, 1, plan->late_us),
                           true);
        } else if (!late && dice_chance(dice, plan->repeat)) {
            at_us = message_repeat(world, message, at_us);
        }
    }
    world_at(world, at_us, event);
}

static void ops_apply(struct world *world, struct message *message, size_t count)
{
    struct idem_op *ops[BATCH_MAX] = {NULL};
    int error;

    for (size_t i = 0; i < count; i++)
        ops[i] = &message->ops[i];
    world->stray = message->stray;
    error = mutant_apply(world, ops, count);
    if (error)
        check_broken(world, CHECKER_WORLD, "the store fails: %s", idem_error_text(error));
    for (size_t i = 0; i < count && !error && !world->broken; i++) {
        world_tell(world, "store: %s of request %u is %s%s", idem_op_kind_text(ops[i]->kind),
                   world_op_request(world, ops[i]), idem_result_text(ops[i]->result),
                   message->orphan ? ", again" : "");
        check_applied(world, ops[i], message->askers[i]);
    }
    world->stray = false; /* peeks do not come this way */
}

static bool sender_waits(const struct world *world, const struct message *message)
{
    const struct gateway *gateway = &world->gateways[message->gateway];

    return !message->orphan && gateway->life == message->life && gateway->sender.busy &&
           gateway->sender.call == message->call;
}

/* What the network and the store do to a batch that arrives. */
static void message_apply(struct world *world, struct message *message)
{
    struct cover *cover = &world->cover;

    if (world->store_down || message->lose) {
        cover->situations[COVER_STORE_LOST] |= message->lose;
        message->error = dice_chance(&world->dice, 200) ? IDEM_ERR_NOMEM : IDEM_ERR_UNAVAILABLE;
    } else if (message->partial) {
        cover->situations[COVER_STORE_PARTIAL] = true;
        ops_apply(world, message, message->partial);
        message->error = IDEM_ERR_UNAVAILABLE;
    } else {
        cover->situations[COVER_STORE_LATE] |= !message->orphan && !sender_waits(world, message);
        ops_apply(world, message, message->count);
    }
    if (message->cut && !message->error) {
        cover->situations[COVER_STORE_CUT] = true;
        message->error = IDEM_ERR_UNAVAILABLE;
    }
}

void store_arrival(struct world *world, uint16_t number)
{
    struct message *message = &world->messages[number];
    struct event reply = {
        .kind = ITEM_REPLY, .gateway = message->gateway, .life = message->life, .index = number};

    message_apply(world, message);
    /* A failure is told, or not at all: the sender's time runs out. */
    if (message->orphan || (message->error && dice_chance(&world->dice, 300))) {
        store_message_free(world, number);
        return;
    }
    world_in(world, dice_range(&world->dice, 1, world->plan.delay_us), reply);
}

int store_apply_now(struct world *world, struct idem_op *op)
{
    int error = mutant_apply(world, &op, 1);

    if (error)
        check_broken(world, CHECKER_WORLD, "the store fails: %s", idem_error_text(error));
    else
        check_applied(world, op, NOBODY);
    return error;
}

bool store_peek(struct world *world, struct idem_op *get, uint16_t asker)
{
    if (world->store_down || mutant_peek(world, get))
        return false;
    check_applied(world, get, asker);
    return true;
}

void store_down(struct world *world)
{
    if (world->store_down || world->quiet)
        return;
    world_tell(world, "store: down");
    world->cover.situations[COVER_STORE_DOWN] = true;
    world->store_down = true;
    world_in(world, dice_range(&world->dice, 1, 2 * world->plan.lease_us),
             (struct event){.kind = EVENT_UP});
}

void store_up(struct world *world)
{
    if (world->store_down)
        world_tell(world, "store: up");
    world->store_down = false;
}

static uint64_t store_used(struct world *world)
{
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    size_t count = idem_store_describe(world->store, facts, IDEM_STORE_FACTS_MAX);

    for (size_t i = 0; i < count; i++)
        if (strcmp(facts[i].name, "used") == 0)
            return strtoull(facts[i].value, NULL, 10);
    return STORE_SIZE;
}

static struct idem_op ballast_op(enum idem_op_kind kind)
{
    return (struct idem_op){
        .kind = kind,
        .id = idem_id_make(IDEM_KIND_LOCK, (struct idem_bytes){0}, (struct idem_bytes){0})};
}

/* One record takes nearly all that is left; its claim may be refused, and then it does not. */
void store_fill(struct world *world)
{
    static const uint8_t body[STORE_SIZE];
    struct idem_op op = ballast_op(IDEM_OP_CLAIM);
    uint64_t used;

    if (world->store_full || world->quiet)
        return;
    op.in.claim.kind = IDEM_KIND_LOCK;
    op.in.claim.owner = ballast_owner;
    op.in.claim.lease_us = IDEM_SECOND_US;
    op.in.claim.unknown_ttl_us = IDEM_TTL_US_MAX;
    if (store_apply_now(world, &op) || op.result != IDEM_RESULT_ACQUIRED)
        return;
    used = store_used(world);
    op = ballast_op(IDEM_OP_COMPLETE);
    op.in.verdict.owner = ballast_owner;
    op.in.verdict.ttl_us = IDEM_NEVER_US;
    op.in.verdict.answer.status = 200;
    op.in.verdict.answer.body =
        idem_bytes_make(body, used + ROOM_LEFT < STORE_SIZE ? STORE_SIZE - used - ROOM_LEFT : 0);
    if (store_apply_now(world, &op))
        return;
    world_tell(world, "store: full");
    world->store_full = true;
    world->cover.situations[COVER_STORE_FULL] = true;
    world_in(world, dice_range(&world->dice, 1, 2 * world->plan.lease_us),
             (struct event){.kind = EVENT_ROOM});
}

void store_room(struct world *world)
{
    struct idem_op op = ballast_op(IDEM_OP_FORGET);

    if (!world->store_full)
        return;
    op.in.forget.force = true;
    if (store_apply_now(world, &op))
        return;
    world_tell(world, "store: has room again");
    world->store_full = false;
}

static void clock_step(struct world *world, int64_t by_us)
{
    world->cover.situations[by_us < 0 ? COVER_CLOCK_BACK : COVER_CLOCK_FORWARD] = true;
    world->clock_offset_us += by_us;
    world_tell(world, "store: the clock is stepped by %.3f s", (double)by_us / IDEM_SECOND_US);
}

void store_sweep(struct world *world)
{
    struct idem_op op = {.kind = IDEM_OP_SWEEP, .in.sweep.limit = 100};

    if (store_apply_now(world, &op) == 0 && op.out.count > 0)
        store_removed(world);
}

/* A record is gone: now a clock that goes back tempts the next claim to use a fence again. */
void store_removed(struct world *world)
{
    if (world->plan.jumps > 0 && !world->quiet && dice_chance(&world->dice, 500))
        clock_step(world, -dice_range(&world->dice, 1, world->plan.lease_us - 1));
}

/* What the guarantee allows: back by less than a lease, forward by anything. */
void store_clock_jump(struct world *world)
{
    const struct plan *plan = &world->plan;
    struct dice *dice = &world->dice;
    int64_t by_us;

    if (world->policy.settle_us > 0 || dice_chance(dice, 400)) {
        by_us = -dice_range(dice, 1, plan->lease_us - 1);
    } else if (plan->jumps_far && dice_chance(dice, 500)) {
        by_us = dice_range(dice, 1, 40 * 86400) * IDEM_SECOND_US;
        world->cover.situations[COVER_CLOCK_FAR] = true;
    } else {
        by_us = dice_range(dice, 1, 3 * plan->lease_us);
    }
    clock_step(world, by_us);
}
