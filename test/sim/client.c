#include "sim/client.h"

#include <assert.h>

#include "sim/checker.h"
#include "sim/gateway.h"

#define INTENTS_MAX     4 /* that a client has in one run */
#define TRIES_MAX       5 /* for each */
#define FINAL_TRIES_MAX 8

static struct event client_event(const struct world *world, size_t client)
{
    return (struct event){
        .kind = EVENT_CLIENT,
        .index = (uint16_t)client,
        .number = world->clients[client].turn,
    };
}

/* The client acts again after a while; what was to wake it before does not any more. */
static void client_in(struct world *world, size_t client, int64_t delay_us)
{
    world->clients[client].turn++;
    world_in(world, delay_us, client_event(world, client));
}

void clients_begin(struct world *world)
{
    for (size_t i = 0; i < world->plan.clients; i++) {
        struct client *client = &world->clients[i];

        *client = (struct client){.request = NOBODY, .intents = INTENTS_MAX};
        client->principal =
            world->plan.credentials ? (uint8_t)dice_below(&world->dice, world->plan.callers) : 0;
        client_in(world, i, dice_range(&world->dice, 0, world->plan.active_us / 3));
    }
}

static struct variant variant_of(const struct request *request)
{
    return (struct variant){request->client, request->scope, request->key, request->payload,
                            request->principal};
}

static void variant_note(struct world *world, const struct request *request)
{
    struct variant variant = variant_of(request);

    for (size_t i = 0; i < world->variant_count; i++) {
        const struct variant *known = &world->variants[i];

        if (known->scope == variant.scope && known->key == variant.key &&
            known->payload == variant.payload && known->principal == variant.principal)
            return;
    }
    world->variants[world->variant_count++] = variant;
}

static uint16_t request_send(struct world *world, struct variant variant)
{
    uint16_t number = (uint16_t)world->request_count++;
    struct request *request = &world->requests[number];
    struct event item = {.kind = ITEM_REQUEST, .index = number};

    assert(world->request_count <= REQUESTS_MAX);
    *request = (struct request){
        .client = variant.client,
        .scope = variant.scope,
        .key = variant.key,
        .payload = variant.payload,
        .principal = variant.principal,
        .id = (uint8_t)(variant.scope * KEYS_MAX + variant.key),
        .gateway = (uint8_t)dice_below(&world->dice, world->plan.gateways),
        .final_phase = world->final,
    };
    request->owner.bytes[0] = (uint8_t)(number >> 8);
    request->owner.bytes[1] = (uint8_t)number;
    for (size_t i = 2; i < IDEM_OWNER_SIZE; i++)
        request->owner.bytes[i] = (uint8_t)dice_next(&world->dice);
    if (!world->final)
        variant_note(world, request);
    item.gateway = request->gateway;
    item.life = world->gateways[request->gateway].life;
    world_tell(world, "client %u sends request %u: %s, payload %u, caller %u, to gateway %u",
               variant.client, number, world_id_text(world, request->id), variant.payload,
               variant.principal, request->gateway);
    world_in(world, dice_range(&world->dice, 1, world->plan.delay_us), item);
    return number;
}

/* Another thing that the client wants. */
static void intent_draw(struct world *world, struct client *client)
{
    struct dice *dice = &world->dice;

    client->intents--;
    client->tries = (uint8_t)dice_range(dice, 1, TRIES_MAX);
    client->scope = (uint8_t)dice_below(dice, world->plan.scopes);
    client->key = (uint8_t)dice_below(dice, world->plan.keys);
    client->payload = dice_chance(dice, world->plan.payload);
    if (world->plan.credentials && dice_chance(dice, world->plan.principal))
        client->principal = (uint8_t)dice_below(dice, PRINCIPALS_MAX);
}

static void client_gives_up(struct world *world, const struct client *client)
{
    struct request *request = &world->requests[client->request];
    struct event item = {.kind = ITEM_CLIENT_GONE, .gateway = request->gateway};

    world->cover.situations[COVER_CLIENT_GAVE_UP] = true;
    world_tell(world, "client gives request %u up", client->request);
    if (!dice_chance(&world->dice, world->plan.gone))
        return;
    request->gone = true;
    item.life = request->gateway_life;
    item.session = request->session;
    item.generation = request->generation;
    world->cover.situations[COVER_CLIENT_GONE] = true;
    if (request->generation > 0)
        world_in(world, dice_range(&world->dice, 1, world->plan.delay_us), item);
}

void client_act(struct world *world, const struct event *event)
{
    struct client *client = &world->clients[event->index];
    struct variant variant;

    if (event->number != client->turn || world->quiet)
        return;
    if (client->request != NOBODY)
        client_gives_up(world, client);
    client->request = NOBODY;
    if (client->tries == 0 && client->intents == 0)
        return;
    if (client->tries == 0)
        intent_draw(world, client);
    client->tries--;
    variant = (struct variant){(uint8_t)event->index, client->scope, client->key, client->payload,
                               client->principal};
    client->request = request_send(world, variant);
    client_in(world, event->index, world->plan.patience_us);
}

void client_close(struct world *world, uint16_t number, bool lost)
{
    struct request *request = &world->requests[number];
    struct event event = {.kind = EVENT_ANSWER, .index = number};

    request->over = true;
    request->lost = lost;
    world_in(world, dice_range(&world->dice, 1, world->plan.delay_us), event);
}

static void answer_tell(const struct world *world, const struct request *request, uint16_t number)
{
    if (request->lost)
        world_tell(world, "client %u: request %u lost its connection", request->client, number);
    else if (request->refused)
        world_tell(world, "client %u: request %u is refused: %s", request->client, number,
                   idem_problem_type(request->problem.kind));
    else
        world_tell(world, "client %u: request %u is answered %u%s", request->client, number,
                   request->answer.status, request->unrecorded ? ", not recorded" : "");
}

void client_answered(struct world *world, const struct event *event)
{
    struct request *request = &world->requests[event->index];
    struct client *client = &world->clients[request->client];

    if (!request->gone)
        answer_tell(world, request, event->index);
    if (request->final_phase) {
        client_final_next(world);
        return;
    }
    if (client->request != event->index)
        return;
    client->request = NOBODY;
    if (!request->lost && !request->refused)
        client->tries = dice_chance(&world->dice, 300) ? client->tries : 0; /* some ask again */
    client_in(world, request->client, dice_range(&world->dice, 1, world->plan.lease_us));
}

void client_final_begin(struct world *world)
{
    world_tell(world, "---- every request once more");
    world->final = true;
    world->variant_next = 0;
    world->variant_tries = 0;
    world->final_request = NOBODY;
    client_final_next(world);
}

/* A definite verdict ends a request; one that may come with time is asked for again. */
void client_final_next(struct world *world)
{
    if (world->final_request != NOBODY) {
        bool last = world->variant_tries == FINAL_TRIES_MAX;

        if (!world->requests[world->final_request].over) {
            check_broken(world, CHECKER_HANG, "request %u was never answered",
                         world->final_request);
            return;
        }
        if (check_verdict(world, world->final_request, last) || last) {
            world->variant_next++;
            world->variant_tries = 0;
        }
        world->final_request = NOBODY;
        if (!world->broken)
            world_in(world, (world->plan.lease_us + world->policy.settle_us) / 2,
                     (struct event){.kind = EVENT_FINAL_NEXT});
        return;
    }
    if (world->variant_next == world->variant_count || world->broken)
        return;
    world->variant_tries++;
    world->final_request = request_send(world, world->variants[world->variant_next]);
}
