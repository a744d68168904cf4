#include "sim/person.h"

#include <assert.h>

#include "sim/checker.h"
#include "sim/store_faults.h"
#include "sim/upstream.h"

#define SETTLERS 0xfffe /* the first bytes of a person's owner: of no request */

/* Looks at one record that is unknown, and decides later. */
void person_look(struct world *world)
{
    struct idem_op op = {.kind = IDEM_OP_SCAN};
    const struct idem_record *record;

    if (world->store_down || world->final)
        return;
    op.in.scan.states = 1u << IDEM_STATE_UNKNOWN;
    op.in.scan.limit = IDS_MAX;
    if (store_apply_now(world, &op) || op.out.count == 0) {
        idem_op_deinit(&op);
        return;
    }
    record = &op.out.page[dice_below(&world->dice, (unsigned)op.out.count)].record;
    world->look_id = record->id;
    world->look_fence = record->fence;
    world->look_updated_us = record->updated_us;
    idem_op_deinit(&op);
    world_in(
        world,
        dice_range(&world->dice, 1,
                   dice_chance(&world->dice, 500) ? world->plan.delay_us : world->plan.lease_us),
        (struct event){.kind = EVENT_SETTLE});
}

/* True while a gateway has this key in hand, or the upstream may still act on it. */
static bool key_is_open(const struct world *world, unsigned id)
{
    for (size_t i = 0; i < world->execution_count; i++)
        if (world->executions[i].id == id && upstream_is_open(&world->executions[i]))
            return true;
    for (unsigned i = 0; i < world->plan.gateways; i++)
        for (size_t j = 0; j < SESSIONS_MAX; j++) {
            const struct session *session = &world->gateways[i].sessions[j];

            if (session->used && world->requests[session->request].id == id &&
                session->exchange.state != IDEM_EXCHANGE_DONE)
                return true;
        }
    return false;
}

static struct idem_op settle_op(struct world *world, const struct track *track)
{
    struct idem_op op = {.kind = IDEM_OP_RESOLVE, .id = world->look_id};
    struct idem_resolve *in = &op.in.resolve;

    in->fence = world->look_fence;
    in->updated_us = world->look_updated_us;
    in->ttl_us = world->policy.ttl_us;
    in->who = idem_bytes_from_text("somebody");
    in->why = idem_bytes_from_text("asked the service");
    in->completed = track->effects > 0;
    in->owner.bytes[0] = SETTLERS >> 8;
    in->owner.bytes[1] = SETTLERS & 0xff;
    for (size_t i = 2; i < IDEM_OWNER_SIZE; i++)
        in->owner.bytes[i] = (uint8_t)dice_next(&world->dice);
    if (in->completed && dice_chance(&world->dice, 500)) {
        const struct answer *answer = &world->executions[track->effect_of].truth;

        in->answer.status = answer->status;
        in->answer.headers = answer->headers;
        in->answer.body = answer->body;
    }
    return op;
}

void person_settle(struct world *world)
{
    unsigned id = world_id_find(&world->look_id);
    const struct track *track = &world->tracks[id];
    struct idem_op op;

    assert(id < IDS_MAX);
    if (world->store_down || world->final || key_is_open(world, id))
        return;
    op = settle_op(world, track);
    if (dice_chance(&world->dice, 250)) {
        op = (struct idem_op){.kind = IDEM_OP_FORGET, .id = world->look_id};
        op.in.forget.who = idem_bytes_from_text("somebody");
    }
    if (store_apply_now(world, &op))
        return;
    world_tell(world, "person: %s of %s is %s", idem_op_kind_text(op.kind),
               world_id_text(world, id), idem_result_text(op.result));
    if (op.result == IDEM_RESULT_CHANGED)
        world->cover.situations[COVER_PERSON_CHANGED] = true;
    if (op.result != IDEM_RESULT_OK)
        return;
    if (op.kind == IDEM_OP_FORGET) {
        world->cover.situations[COVER_PERSON_FORGOT] = true;
        store_removed(world);
    } else
        world->cover
            .situations[op.in.resolve.completed ? COVER_PERSON_COMPLETED : COVER_PERSON_FAILED] =
            true;
}
