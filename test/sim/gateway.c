#include "sim/gateway.h"

#include <assert.h>

#include "sim/checker.h"
#include "sim/client.h"
#include "sim/sender.h"
#include "sim/store_faults.h"

void gateway_begin(struct gateway *gateway, uint8_t number)
{
    gateway->number = number;
    gateway->state = GATEWAY_UP;
    gateway->life = 1;
    gateway->inbox_first = gateway->inbox_count = 0;
    gateway->stepping = false;
    gateway->effects.count = gateway->next = 0;
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        gateway->sessions[i].used = false;
    sender_begin(&gateway->sender);
}

static void item_release(struct world *world, const struct event *item)
{
    if (item->kind == ITEM_REPLY)
        store_message_free(world, item->index);
}

/* Everything in the process goes. */
static void gateway_empty(struct world *world, struct gateway *gateway)
{
    while (gateway->inbox_count > 0) {
        item_release(world, &gateway->inbox[gateway->inbox_first]);
        gateway->inbox_first = (gateway->inbox_first + 1) % INBOX_MAX;
        gateway->inbox_count--;
    }
    if (gateway->stepping)
        idem_op_deinit(&gateway->op);
    gateway->stepping = false;
    gateway->effects.count = gateway->next = 0;
    sender_drop(&gateway->sender);
}

void gateway_end(struct world *world, struct gateway *gateway)
{
    gateway_empty(world, gateway);
}

struct session *gateway_session(struct gateway *gateway, const struct event *item)
{
    struct session *session = &gateway->sessions[item->session];

    return session->used && session->generation == item->generation ? session : NULL;
}

struct event gateway_item(const struct gateway *gateway, const struct session *session,
                          enum event_kind kind)
{
    return (struct event){
        .kind = (uint8_t)kind,
        .gateway = gateway->number,
        .life = gateway->life,
        .session = session ? (uint8_t)(session - gateway->sessions) : 0,
        .generation = session ? session->generation : 0,
    };
}

void gateway_append(struct gateway *gateway, struct event item)
{
    assert(gateway->inbox_count < INBOX_MAX);
    gateway->inbox[(gateway->inbox_first + gateway->inbox_count++) % INBOX_MAX] = item;
}

static struct event inbox_take(struct gateway *gateway)
{
    struct event item = gateway->inbox[gateway->inbox_first];

    gateway->inbox_first = (gateway->inbox_first + 1) % INBOX_MAX;
    gateway->inbox_count--;
    return item;
}

/* True when the process goes no further now. */
static bool gateway_struck(struct world *world, struct gateway *gateway)
{
    bool effects = gateway->stepping && gateway->next > 0;

    if (world->quiet)
        return false;
    if (dice_chance(&world->dice, world->plan.crash)) {
        world->cover.situations[COVER_GATEWAY_CRASHED_EFFECTS] |= effects;
        gateway_crash(world, gateway);
        return true;
    }
    if (dice_chance(&world->dice, world->plan.pause)) {
        world->cover.situations[COVER_GATEWAY_PAUSED_EFFECTS] |= effects;
        gateway_pause(world, gateway);
        return true;
    }
    return false;
}

/* Goes on until there is nothing to do, or something strikes. */
static void gateway_run(struct world *world, struct gateway *gateway)
{
    while (gateway->state == GATEWAY_UP && !world->broken) {
        if (gateway->stepping && gateway->next == gateway->effects.count) {
            driver_settled(world, gateway);
        } else if (!gateway->stepping && gateway->inbox_count == 0) {
            return;
        } else if (gateway_struck(world, gateway)) {
            return;
        } else if (gateway->stepping) {
            driver_effect(world, gateway, &gateway->effects.items[gateway->next++]);
        } else {
            struct event item = inbox_take(gateway);

            driver_item(world, gateway, &item);
        }
    }
}

void gateway_receive(struct world *world, const struct event *item)
{
    struct gateway *gateway = &world->gateways[item->gateway];

    if (gateway->state == GATEWAY_DOWN || item->life != gateway->life) {
        item_release(world, item);
        if (item->kind == ITEM_REQUEST)
            client_close(world, item->index, true); /* nobody listens */
        return;
    }
    gateway_append(gateway, *item);
    gateway_run(world, gateway);
}

void gateway_pause(struct world *world, struct gateway *gateway)
{
    struct event event = {.kind = EVENT_RESUME, .gateway = gateway->number, .life = gateway->life};
    int64_t pause_us = dice_range(&world->dice, 1, 3 * world->plan.lease_us);

    if (gateway->state != GATEWAY_UP || world->plan.pause == 0)
        return;
    world->cover.situations[COVER_GATEWAY_PAUSED] = true;
    gateway->state = GATEWAY_PAUSED;
    if (world->now_us + pause_us > world->quiet_us)
        pause_us = world->quiet_us - world->now_us;
    world_tell(world, "gateway %u is paused for %.3f s", gateway->number,
               (double)pause_us / IDEM_SECOND_US);
    world_in(world, pause_us, event);
}

void gateway_resume(struct world *world, const struct event *event)
{
    struct gateway *gateway = &world->gateways[event->gateway];

    if (gateway->state != GATEWAY_PAUSED || event->life != gateway->life)
        return;
    world_tell(world, "gateway %u goes on", gateway->number);
    gateway->state = GATEWAY_UP;
    gateway_run(world, gateway);
}

void gateway_crash(struct world *world, struct gateway *gateway)
{
    struct event event = {.kind = EVENT_RESTART, .gateway = gateway->number};

    if (gateway->state == GATEWAY_DOWN || world->plan.crash == 0)
        return;
    world_tell(world, "gateway %u crashes", gateway->number);
    world->cover.situations[COVER_GATEWAY_CRASHED] = true;
    gateway->state = GATEWAY_DOWN;
    for (size_t i = 0; i < gateway->inbox_count; i++) {
        const struct event *item = &gateway->inbox[(gateway->inbox_first + i) % INBOX_MAX];

        if (item->kind == ITEM_REQUEST)
            client_close(world, item->index, true);
    }
    gateway_empty(world, gateway);
    gateway->life++;
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct session *session = &gateway->sessions[i];

        if (session->used && !session->answered)
            client_close(world, session->request, true);
        session->used = false;
    }
    event.life = gateway->life;
    world_in(world, dice_range(&world->dice, 1, world->plan.lease_us), event);
}

void gateway_restart(struct world *world, const struct event *event)
{
    struct gateway *gateway = &world->gateways[event->gateway];

    if (gateway->state != GATEWAY_DOWN || event->life != gateway->life)
        return;
    world_tell(world, "gateway %u is there again", gateway->number);
    gateway->state = GATEWAY_UP;
}

void gateway_heal(struct world *world, struct gateway *gateway)
{
    if (gateway->state == GATEWAY_DOWN)
        gateway->state = GATEWAY_UP;
    else if (gateway->state == GATEWAY_PAUSED)
        gateway_resume(world, &(struct event){.gateway = gateway->number, .life = gateway->life});
}
