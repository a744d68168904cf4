/*
 * One batch. Its ops on ids are sorted by id, so that all connections take rows in one order, and
 * go through three steps, each with what the one before has left:
 *
 *   guess    one round trip: what each op usually finds is made a condition of its statement
 *   look     one round trip, nothing locked: most of the others turn out to write nothing
 *   locked   two round trips: rows locked and read, the rules applied, everything written
 *
 * A conflict with another connection, or a deadlock, rolls a step back; then the rest is done
 * again. When there is no room it is done again without claims, then without answers.
 */
#include <stdlib.h>

#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

#define CONFLICTS_MAX 64
#define PAUSE_US      (IDEM_SECOND_US / 1000) /* before the first repetition; grows with each */
#define PAUSES_MAX    20

#define TEXT_MAX (8u << 20) /* bytes that a statement is kept under while ops can be parted */
#define OP_SIZE  2048       /* bytes of an op's text besides what comes from outside, at most */
#define RECORD_SIZE                                                                  \
    (OP_SIZE + 2 * (IDEM_SCOPE_SIZE_MAX + IDEM_KEY_SIZE_MAX + IDEM_METHOD_SIZE_MAX + \
                    IDEM_PATH_SIZE_MAX + IDEM_WHO_SIZE_MAX + IDEM_WHY_SIZE_MAX)) /* no answer */
#define TEXT_SLACK 8192 /* bytes of a batch's text besides its ops, at most */

static bool op_has_id(const struct idem_op *op)
{
    return op->kind != IDEM_OP_SCAN && op->kind != IDEM_OP_SWEEP && op->kind != IDEM_OP_AUDIT;
}

static int item_compare(const void *a, const void *b)
{
    const struct idem_mariadb_item *left = a, *right = b;
    bool has_id = op_has_id(left->op);
    int order;

    if (has_id != op_has_id(right->op))
        return has_id ? -1 : 1;
    order = has_id ? memcmp(left->op->id.bytes, right->op->id.bytes, IDEM_ID_SIZE) : 0;
    if (order)
        return order;
    return left->at < right->at ? -1 : left->at > right->at;
}

static bool items_share_id(const struct idem_mariadb_item *a, const struct idem_mariadb_item *b)
{
    return op_has_id(a->op) && op_has_id(b->op) && idem_id_equal(&a->op->id, &b->op->id);
}

/* What the ops on one id have in common. */
static void run_mark(struct idem_mariadb_item *items, size_t count)
{
    bool mixed = false;

    for (size_t i = 0; i < count; i++)
        mixed |= items[i].op->kind != IDEM_OP_CLAIM && items[i].op->kind != IDEM_OP_GET;
    for (size_t i = 0; i < count; i++) {
        items[i].repeated = count > 1;
        items[i].mixed = count > 1 && mixed;
    }
}

void idem_mariadb_batch_begin(struct idem_mariadb_batch *batch, struct idem_backend *store,
                              struct idem_op *const *ops, size_t count,
                              struct idem_mariadb_item items[IDEM_BATCH_MAX])
{
    for (size_t i = 0; i < count; i++)
        items[i] = (struct idem_mariadb_item){.op = ops[i], .at = (unsigned)i};
    qsort(items, count, sizeof *items, item_compare);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && items_share_id(&items[first], &items[end]);)
            end++;
        run_mark(&items[first], end - first);
    }
    *batch = (struct idem_mariadb_batch){.store = store, .items = items, .count = count};
}

static int id_compare(const void *key, const void *element)
{
    const struct idem_id *id = key;
    const struct idem_mariadb_item *item = element;

    return memcmp(id->bytes, item->op->id.bytes, IDEM_ID_SIZE);
}

struct idem_mariadb_item *idem_mariadb_item_find(const struct idem_mariadb_batch *batch,
                                                 const struct idem_id *id)
{
    struct idem_mariadb_item *item =
        bsearch(id, batch->items, batch->count, sizeof *batch->items, id_compare);

    while (item && item > batch->items && items_share_id(item - 1, item))
        item--;
    return item;
}

/*
 * Usually the clock is ahead of every fence that was ever given, and guess.c need not know the
 * mark. It must know it while the clock is behind, because it was stepped back.
 */
void idem_mariadb_floor_seen(struct idem_backend *store, uint64_t fence_floor, int64_t now_us)
{
    store->fence_floor = now_us <= 0 || fence_floor >= (uint64_t)now_us ? fence_floor : 0;
}

/* The self-test cleans up after itself and must not fail for want of room. */
bool idem_mariadb_room_for(const struct idem_mariadb_batch *batch, const struct idem_op *op)
{
    if (batch->tight != IDEM_MARIADB_ROOMY)
        return false;
    return batch->room || (op->kind == IDEM_OP_CLAIM && op->in.claim.kind == IDEM_KIND_SELFTEST);
}

static size_t text_max(const struct idem_backend *store)
{
    return store->facts.packet > TEXT_SLACK ? store->facts.packet - TEXT_SLACK : 0;
}

/* Bytes that an op on an id may add to a statement. */
static size_t op_text_size(const struct idem_op *op)
{
    const struct idem_record *put = &op->in.put.record;
    size_t size = 0;

    if (op->kind == IDEM_OP_CLAIM)
        size = op->in.claim.scope.size + op->in.claim.key.size + IDEM_METHOD_SIZE_MAX +
               IDEM_PATH_SIZE_MAX;
    else if (op->kind == IDEM_OP_COMPLETE)
        size = op->in.verdict.answer.headers.size + op->in.verdict.answer.body.size;
    else if (op->kind == IDEM_OP_RESOLVE)
        size = op->in.resolve.answer.headers.size + op->in.resolve.answer.body.size +
               2 * (IDEM_WHO_SIZE_MAX + IDEM_WHY_SIZE_MAX);
    else if (op->kind == IDEM_OP_FORGET)
        size = IDEM_WHO_SIZE_MAX + IDEM_WHY_SIZE_MAX;
    else if (op->kind == IDEM_OP_PUT && idem_record_size(put, &size))
        size = 0;
    return 2 * size + OP_SIZE;
}

enum idem_reason idem_mariadb_answer_bar(const struct idem_mariadb_batch *batch,
                                         const struct idem_record *record)
{
    size_t size = idem_answer_size(record);

    if (size == 0)
        return IDEM_REASON_NONE;
    if (2 * size + RECORD_SIZE > text_max(batch->store))
        return IDEM_REASON_TOO_LARGE;
    return batch->tight == IDEM_MARIADB_NO_ANSWERS ? IDEM_REASON_NO_ROOM : IDEM_REASON_NONE;
}

/* What an earlier try has set must not leak, nor be trusted. */
static void batch_clear(struct idem_mariadb_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (!batch->items[i].done)
            idem_op_deinit(batch->items[i].op);
        batch->items[i].seen = false;
    }
}

static int batch_try(struct idem_mariadb_batch *batch, bool guess)
{
    int error = guess ? idem_mariadb_guess(batch) : IDEM_OK;

    if (!error)
        error = idem_mariadb_look(batch);
    return error ? error : idem_mariadb_locked(batch);
}

/* Items on ids that fit into one statement. */
static int part_run(struct idem_mariadb_batch *batch)
{
    unsigned conflicts = 0;
    int error;

    for (;;) {
        batch_clear(batch);
        error = batch_try(batch, conflicts == 0);
        if (error == IDEM_MARIADB_FULL && batch->tight < IDEM_MARIADB_NO_ANSWERS) {
            batch->tight++;
            continue;
        }
        if (error != IDEM_MARIADB_AGAIN || ++conflicts == CONFLICTS_MAX ||
            idem_mariadb_steady_us() >= batch->store->link.deadline_us)
            return error;
        idem_mariadb_pause(&batch->store->link,
                           PAUSE_US * (conflicts < PAUSES_MAX ? conflicts : PAUSES_MAX));
    }
}

/* How many items from the first on may go into one statement; at least one. */
static size_t part_count(const struct idem_mariadb_batch *batch, size_t first, size_t end)
{
    size_t max = text_max(batch->store) < TEXT_MAX ? text_max(batch->store) : TEXT_MAX;
    size_t size = op_text_size(batch->items[first].op);
    size_t count = 1;

    while (first + count < end) {
        size += op_text_size(batch->items[first + count].op);
        if (size > max)
            break;
        count++;
    }
    return count;
}

static int list_run(struct idem_mariadb_batch *batch, struct idem_op *op)
{
    switch (op->kind) {
    case IDEM_OP_SCAN:
        return idem_mariadb_scan(batch->store, op);
    case IDEM_OP_AUDIT:
        return idem_mariadb_audit(batch->store, op);
    default:
        return idem_mariadb_sweep(batch->store, op);
    }
}

/* What is not about one id, one after the other. */
static int lists_run(struct idem_mariadb_batch *batch, size_t first)
{
    unsigned conflicts = 0;

    for (size_t i = first; i < batch->count; i++) {
        struct idem_mariadb_item *item = &batch->items[i];
        int error = IDEM_OK;

        while (!item->done && !error) {
            idem_op_deinit(item->op);
            error = list_run(batch, item->op);
            item->done = !error;
            if (error == IDEM_MARIADB_AGAIN && ++conflicts < CONFLICTS_MAX)
                error = IDEM_OK;
        }
        if (error)
            return error;
    }
    return IDEM_OK;
}

int idem_mariadb_batch_run(struct idem_mariadb_batch *batch)
{
    size_t ids = 0;
    int error = idem_mariadb_space_look(batch->store);

    while (ids < batch->count && op_has_id(batch->items[ids].op))
        ids++;
    for (size_t first = 0, count; first < ids && !error; first += count) {
        struct idem_mariadb_batch part = *batch;

        count = part_count(batch, first, ids);
        part.items += first;
        part.count = count;
        part.room = idem_mariadb_space_has_room(batch->store);
        error = part_run(&part);
    }
    return error ? error : lists_run(batch, ids);
}
