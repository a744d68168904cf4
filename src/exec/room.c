/*
 * Room: what is told of a store that has none left. The client that is refused learns it from its
 * answer, whoever runs the service from these lines:
 *
 *   1. when claims begin to be refused, once, with what is free and what is needed
 *   2. when claims are taken again and none was refused for a while, once, with how many were
 *   3. when an answer could not be kept, with the id, at most once in a while; the others counted.
 *      One that is larger than the store ever takes is told apart: no sweeping helps there
 */
#include "exec/state.h"

void idem_executor_room_gather(struct idem_executor *executor)
{
    struct idem_room *room = &executor->room;

    for (size_t i = 0; i < executor->batch_count; i++) {
        const struct idem_op *op = executor->ops[i];

        room->batch_refused += op->result == IDEM_RESULT_FULL;
        room->batch_taken += op->result == IDEM_RESULT_ACQUIRED;
        if (op->out.tombstoned) {
            struct idem_unkept *unkept = op->out.oversized ? &room->oversized : &room->no_room;

            unkept->count++;
            unkept->id = op->id;
        }
    }
}

/* The store's own words on whether it takes claims, with the figures. */
static int claims_describe(struct idem_executor *executor, struct idem_store_fact *ret_fact)
{
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    size_t count;

    *ret_fact = (struct idem_store_fact){.name = "claims", .value = "refused"};
    idem_executor_enter_store(executor);
    count = idem_store_describe(executor->store, facts, IDEM_STORE_FACTS_MAX);
    if (idem_executor_leave_store(executor))
        return IDEM_LEFT_BEHIND;
    for (size_t i = 0; i < count; i++)
        if (strcmp(facts[i].name, "claims") == 0)
            *ret_fact = facts[i];
    return 0;
}

static int refused_tell(struct idem_executor *executor, size_t refused)
{
    struct idem_room *room = &executor->room;
    struct idem_store_fact claims;

    room->refused += refused;
    room->refused_us = idem_monotonic_us();
    if (room->full)
        return 0;
    room->full = true;
    if (claims_describe(executor, &claims))
        return IDEM_LEFT_BEHIND;
    idem_executor_trace(executor, IDEM_ERR_FULL,
                        "store full: new requests are refused, verdicts still get in; claims %s",
                        claims.value);
    return 0;
}

static void taken_tell(struct idem_executor *executor)
{
    struct idem_room *room = &executor->room;

    if (!room->full || idem_monotonic_us() - room->refused_us < IDEM_CALM_US)
        return;
    idem_executor_trace(executor, 0, "store takes claims again; %llu were refused",
                        (unsigned long long)room->refused);
    room->full = false;
    room->refused = 0;
}

static void unkept_tell(struct idem_executor *executor, struct idem_unkept *unkept)
{
    bool oversized = unkept == &executor->room.oversized;
    char id[IDEM_ID_TEXT_SIZE];
    int64_t now_us = idem_monotonic_us();

    if (unkept->count == 0 ||
        (unkept->told_us && now_us - unkept->told_us < IDEM_TOMBSTONE_PAUSE_US))
        return;
    idem_id_format(&unkept->id, id);
    idem_executor_trace(executor, IDEM_ERR_FULL,
                        "%s the answer to %s: it is recorded that it was executed, and a retry is "
                        "told so without the answer (%llu answers since the last such line)%s",
                        oversized ? "the store does not take answers as large as" : "no room for",
                        id, (unsigned long long)unkept->count,
                        oversized ? ". `idem store check` shows its largest answer; raise that, "
                                    "or keep idempotency_body_max below it"
                                  : "");
    unkept->told_us = now_us;
    unkept->count = 0;
}

int idem_executor_room_tell(struct idem_executor *executor)
{
    struct idem_room *room = &executor->room;
    size_t refused = room->batch_refused, taken = room->batch_taken;

    room->batch_refused = room->batch_taken = 0;
    unkept_tell(executor, &room->no_room);
    unkept_tell(executor, &room->oversized);
    if (refused > 0)
        return refused_tell(executor, refused);
    if (taken > 0)
        taken_tell(executor);
    return 0;
}
