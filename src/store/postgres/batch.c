/*
 * A batch of ops as round trips to the server, almost always one:
 *
 *   1. ops on one id must apply in order, those on different ids need not: the k-th op on its id
 *      goes into wave k. Within a wave, ops of one group become one statement, in ascending order
 *      of their ids, which is the order that rows are locked in
 *   2. statements are put into one round trip, until they are many or large: each round trip is a
 *      transaction of its own, and each op is atomic on its own
 *   3. what the server rolled back for no fault of the batch is repeated; after a lost connection
 *      another one is made, with growing pauses, until the time for the whole call is over. Every
 *      op may be repeated: its owner is known by the record
 *   4. when the server's disk is full, the round trip is repeated without new claims, and then
 *      without answers, which become tombstones
 */
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "store/postgres/postgres_store.h"

#define CALLS_MAX      64
#define TRIP_BYTES_MAX (16u << 20)            /* of parameters, but never less than one op */
#define BRIEF_US       (600 * IDEM_SECOND_US) /* records that live no longer leave many dead rows */
#define PAUSE_US_MIN   (IDEM_SECOND_US / 200)
#define PAUSE_US_MAX   (IDEM_SECOND_US / 4)

/* An op's place in the batch. */
struct place {
    struct idem_op *op;
    uint16_t index, wave;
    uint8_t group;
};

/* A statement: places[first …] of the batch. */
struct call {
    enum idem_pg_group group;
    size_t first, count;
};

struct batch {
    struct idem_backend *store;
    struct idem_op **ops; /* in the order of the places */
    struct place *places;
    size_t count;
    size_t done; /* places that were committed */
    int64_t deadline_us;
    struct call calls[CALLS_MAX]; /* of the round trip that is being made */
    size_t call_count, claim_count;
    bool deep; /* a sweep that begins at the very first record */
    bool lost; /* an attempt has failed, which the link's message explains */
    struct idem_pg_room room;
};

static bool has_no_id(const struct place *place)
{
    return place->group >= IDEM_PG_SCAN;
}

static int place_by_id(const void *a, const void *b)
{
    const struct place *left = a, *right = b;
    int order = (int)has_no_id(left) - (int)has_no_id(right);

    if (order)
        return order;
    order = memcmp(left->op->id.bytes, right->op->id.bytes, IDEM_ID_SIZE);

    return order ? order : (int)left->index - (int)right->index;
}

static int place_by_wave(const void *a, const void *b)
{
    const struct place *left = a, *right = b;

    if (left->wave != right->wave)
        return (int)left->wave - (int)right->wave;
    if (left->group != right->group)
        return (int)left->group - (int)right->group;
    /* The audit tells what people did in the order that they did it. */
    if (left->group == IDEM_PG_RESOLVE || left->group == IDEM_PG_FORGET || has_no_id(left))
        return (int)left->index - (int)right->index;
    return place_by_id(a, b);
}

/* Step 1. What is about no id comes last: it then sees what the others did. */
static void places_sort(struct batch *batch)
{
    struct place *places = batch->places;

    qsort(places, batch->count, sizeof *places, place_by_id);
    for (size_t i = 0; i < batch->count; i++) {
        bool again = i > 0 && idem_id_equal(&places[i].op->id, &places[i - 1].op->id);

        places[i].wave = has_no_id(&places[i]) ? UINT16_MAX
                         : again               ? (uint16_t)(places[i - 1].wave + 1)
                                               : 0;
    }
    qsort(places, batch->count, sizeof *places, place_by_wave);
    for (size_t i = 0; i < batch->count; i++)
        batch->ops[i] = places[i].op;
}

static int batch_init(struct batch *batch, struct idem_backend *store, struct idem_op *const *ops,
                      size_t count)
{
    memset(batch, 0, sizeof *batch);
    batch->store = store;
    batch->count = count;
    batch->places = idem_calloc(count, sizeof *batch->places);
    batch->ops = idem_calloc(count, sizeof(struct idem_op *));
    batch->deadline_us = idem_pg_now_us() + store->settings.timeout_us;
    if (!batch->places || !batch->ops) {
        idem_message_set(&store->link.message, "there is no memory left for a batch");
        return IDEM_ERR_NOMEM;
    }
    for (size_t i = 0; i < count; i++)
        batch->places[i] = (struct place){
            .op = ops[i], .index = (uint16_t)i, .group = (uint8_t)idem_pg_call_group(ops[i])};
    places_sort(batch);
    return IDEM_OK;
}

static void batch_free(struct batch *batch)
{
    idem_free(batch->places);
    idem_free(batch->ops);
}

/* How many places from `first` on become one statement. */
static size_t call_extent(const struct batch *batch, size_t first, size_t *bytes)
{
    const struct place *begin = &batch->places[first];
    size_t count = 0;

    while (first + count < batch->count) {
        const struct place *place = &batch->places[first + count];
        size_t more = idem_pg_call_bytes(place->op);

        if (place->wave != begin->wave || place->group != begin->group ||
            (count > 0 && (has_no_id(place) || *bytes + more > TRIP_BYTES_MAX)))
            break;
        *bytes += more;
        count++;
    }
    return count;
}

/* Step 2: the statements of the next round trip. */
static void calls_plan(struct batch *batch)
{
    size_t next = batch->done, bytes = 0;

    batch->call_count = batch->claim_count = 0;
    while (next < batch->count && batch->call_count < CALLS_MAX &&
           (batch->call_count == 0 || bytes < TRIP_BYTES_MAX)) {
        struct call *call = &batch->calls[batch->call_count++];

        call->group = (enum idem_pg_group)batch->places[next].group;
        call->first = next;
        call->count = call_extent(batch, next, &bytes);
        next += call->count;
        if (call->group == IDEM_PG_CLAIM || call->group == IDEM_PG_PUT)
            batch->claim_count += call->count;
    }
}

static bool calls_only_sweep(const struct batch *batch)
{
    for (size_t i = 0; i < batch->call_count; i++)
        if (batch->calls[i].group != IDEM_PG_SWEEP)
            return false;
    return true;
}

static int call_send(struct batch *batch, const struct call *call, struct idem_pg_trip *trip)
{
    struct idem_backend *store = batch->store;
    char first[IDEM_PG_SQL_SIZE / 2] = "", sql[IDEM_PG_SQL_SIZE];
    bool lone = idem_pg_call_is_lone(call->group, call->count);

    idem_pg_params_begin(&store->params, !lone);
    for (size_t i = 0; i < call->count; i++)
        idem_pg_call_row(store, batch->ops[call->first + i], &batch->room);
    if (call->group == IDEM_PG_SCAN)
        idem_pg_scan_states(&batch->ops[call->first]->in.scan, first, sizeof first);
    else if (call->group == IDEM_PG_CLAIM)
        snprintf(first, sizeof first, "%s", batch->room.claims ? "true" : "false");
    else if (call->group == IDEM_PG_SWEEP)
        snprintf(first, sizeof first, "%s", batch->deep ? "'-infinity'" : "NULL");
    else if (call->group == IDEM_PG_PUT)
        snprintf(first, sizeof first, "%s",
                 batch->room.claims && batch->room.answers ? "true" : "false");
    idem_pg_call_sql(store->settings.schema, call->group, lone, first, sql);
    return idem_pg_trip_send(trip, idem_pg_named_call(call->group, lone, first), sql,
                             &store->params);
}

static int look_send(const struct idem_backend *store, struct idem_pg_trip *trip)
{
    char sql[IDEM_PG_SQL_SIZE];

    snprintf(sql, sizeof sql, "SELECT pg_total_relation_size('\"%s\".idempotency_keys')",
             store->settings.schema);
    return idem_pg_trip_send(trip, IDEM_PG_NAMED_NONE, sql, NULL);
}

/* Tells what counts records, and what is left dead, of an op that was applied. */
static void op_count(struct idem_backend *store, const struct idem_op *op)
{
    size_t removed = op->kind == IDEM_OP_SWEEP
                         ? op->out.count
                         : op->kind == IDEM_OP_FORGET && op->result == IDEM_RESULT_OK;
    bool brief = op->kind == IDEM_OP_COMPLETE && op->in.verdict.ttl_us < BRIEF_US;

    idem_pg_space_count(&store->space, op->result == IDEM_RESULT_ACQUIRED, removed);
    idem_pg_vacuum_count(&store->vacuum, removed + brief);
}

/* The results of a round trip that is committed. */
static int calls_decode(struct batch *batch, const struct idem_pg_trip *trip)
{
    struct idem_backend *store = batch->store;
    int error = IDEM_OK;

    for (size_t i = 0; i < batch->call_count && !error; i++) {
        const struct call *call = &batch->calls[i];
        struct idem_op *const *ops = batch->ops + call->first;

        error = idem_pg_call_decode(store, call->group, trip->results[trip->preface + i], ops,
                                    call->count, &batch->room);
        for (size_t n = 0; n < call->count && !error; n++)
            op_count(store, ops[n]);
    }
    if (error)
        idem_message_set(&store->link.message,
                         error == IDEM_ERR_NOMEM
                             ? "there is no memory left for what the server answered"
                             : "the server answered with what no function of idem answers: run "
                               "`idem migrate URL`");
    return error;
}

static int trip_run(struct batch *batch, struct idem_pg_trip *trip)
{
    struct idem_backend *store = batch->store;
    bool look = idem_pg_space_is_due(&store->space);
    bool sweep = calls_only_sweep(batch);
    int outcome;

    batch->deep = sweep && idem_pg_sweep_is_deep(store);
    /* A sweep need not be durable: what comes back after a crash has expired all the same. */
    outcome = idem_pg_trip_begin(trip, &store->link, store->settings.sync && !sweep,
                                 batch->deep ? IDEM_PG_DEEP_US : INT64_MAX, batch->deadline_us);
    for (size_t i = 0; i < batch->call_count && !outcome; i++)
        outcome = call_send(batch, &batch->calls[i], trip);
    if (!outcome && look)
        outcome = look_send(store, trip);
    if (!outcome)
        outcome = idem_pg_trip_end(trip);
    if (!outcome && look) {
        bool failed = false;
        const PGresult *result = trip->results[trip->count - 1];

        idem_pg_space_looked(&store->space, (uint64_t)idem_pg_cell_number(result, 0, 0, &failed));
    }
    return outcome;
}

/* One attempt: a connection, a round trip, and its results into the ops. */
static int trip_try(struct batch *batch)
{
    struct idem_pg_trip trip = {0};
    struct idem_pg_link *link = &batch->store->link;
    struct idem_message before = link->message;
    int outcome = idem_pg_link_connect(link, true, batch->deadline_us);

    if (outcome == IDEM_ERR_TIMEOUT && batch->lost) {
        link->message = before; /* says why, and not only that the time was over then */
        return IDEM_ERR_UNAVAILABLE;
    }
    if (outcome)
        return outcome;
    outcome = trip_run(batch, &trip);
    if (!outcome)
        outcome = calls_decode(batch, &trip);
    idem_pg_trip_free(&trip);
    return outcome;
}

/* Waits a little, so that who is in the way can go on. False when the time is over. */
static bool pause_make(int64_t *pause_us, int64_t deadline_us)
{
    int64_t left_us = deadline_us - idem_pg_now_us();
    int64_t length_us = *pause_us / 2 + (int64_t)randombytes_uniform((uint32_t)*pause_us);

    if (length_us >= left_us)
        return false;
    (void)poll(NULL, 0, (int)(length_us / 1000 + 1));
    *pause_us = 2 * *pause_us < PAUSE_US_MAX ? 2 * *pause_us : PAUSE_US_MAX;
    return true;
}

/* Step 4. IDEM_ERR_FULL when even verdicts without their answers find no room. */
static int room_lower(struct batch *batch)
{
    idem_pg_space_disk_full(&batch->store->space);
    if (batch->room.claims)
        batch->room.claims = false;
    else if (batch->room.answers)
        batch->room.answers = false;
    else
        return IDEM_ERR_FULL;
    return IDEM_OK;
}

/* Step 3: the next round trip, until it is committed. */
static int trip_insist(struct batch *batch)
{
    int64_t pause_us = PAUSE_US_MIN;

    batch->room = idem_pg_space_room(&batch->store->space, batch->claim_count);
    for (;;) {
        int outcome = trip_try(batch);

        if (outcome == IDEM_ERR_TIMEOUT && batch->deep && batch->store->link.connection) {
            idem_pg_sweep_deep_done(batch->store, false);
            continue; /* from where the last sweep has got to */
        }
        if (outcome <= 0)
            return outcome;
        if (outcome == IDEM_PG_FULL) {
            int error = room_lower(batch);

            if (error)
                return error;
            continue;
        }
        batch->lost = outcome == IDEM_PG_LOST;
        if (batch->lost)
            idem_pg_link_close(&batch->store->link);
        if (!pause_make(&pause_us, batch->deadline_us))
            return IDEM_ERR_UNAVAILABLE;
    }
}

/*
 * The self-test's claim is made whether `size` has room for it or not. Where the disk has none, it
 * is refused like any other, and the store opens: verdicts wait for that.
 */
static bool selftest_is_refused(const struct batch *batch)
{
    struct idem_op *op = batch->ops[0];

    if (batch->count != 1 || op->kind != IDEM_OP_CLAIM || op->in.claim.kind != IDEM_KIND_SELFTEST)
        return false;
    idem_op_deinit(op);
    op->result = IDEM_RESULT_FULL;
    return true;
}

int idem_pg_apply(struct idem_backend *store, struct idem_op *const *ops, size_t count,
                  struct idem_message *message)
{
    struct batch batch;
    int error = batch_init(&batch, store, ops, count);

    while (!error && batch.done < batch.count) {
        calls_plan(&batch);
        error = trip_insist(&batch);
        for (size_t i = 0; i < batch.call_count && !error; i++)
            batch.done += batch.calls[i].count;
    }
    if (error == IDEM_ERR_FULL && selftest_is_refused(&batch))
        error = IDEM_OK;
    batch_free(&batch);
    idem_pg_vacuum_step(&store->vacuum, &store->link);
    if (error && message)
        *message = store->link.message;
    return error;
}
