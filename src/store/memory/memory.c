/*
 * The memory store: one process, nothing kept. For tests, the simulator, and services that need no
 * more. Every handle is a store of its own.
 *
 * `size` bounds what records may take. Claims are refused when less than a sixteenth of it is left;
 * that reserve is for verdicts, whose answers become tombstones when half of the reserve is gone.
 */
#include <assert.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "core/transition.h"
#include "store/audit.h"
#include "store/backend.h"
#include "store/keep.h"
#include "store/memory/table.h"

#define SIZE_DEFAULT       (UINT64_C(1) << 30)
#define SIZE_MIN           (UINT64_C(64) << 10)
#define RESERVE_SHARE      16
#define SWEEP_STEPS_FACTOR 64 /* slots that a sweep looks at for each that it may remove */

struct entry {
    struct entry *next;
    int64_t at_us;
    size_t size;
    uint8_t blob[];
};

struct idem_backend {
    pthread_mutex_t lock; /* of all below: peek comes from a second thread */
    const struct idem_clock *clock;
    uint64_t size, reserve;
    struct idem_table table;
    uint64_t fence_floor;
    size_t sweep_bucket; /* where the next sweep goes on */
    struct entry *audit_first, *audit_last;
    size_t audit_count;
};

static int size_read(const struct idem_url *url, uint64_t *ret_size, struct idem_message *message)
{
    for (size_t i = 0; i < url->option_count; i++) {
        const struct idem_url_option *option = &url->options[i];

        if (strcmp(option->name, "size") != 0) {
            idem_message_set(message, "the memory store has no option \"%s\": it takes size only",
                             option->name);
            return IDEM_ERR_INVALID;
        }
        if (idem_size_parse(option->value, ret_size) || *ret_size < SIZE_MIN) {
            idem_message_set(message,
                             "size=%s is not allowed: write at least 64k, such as 256m "
                             "or 1g",
                             option->value);
            return IDEM_ERR_INVALID;
        }
    }
    if (url->place[0] != '\0') {
        idem_message_set(message, "the memory store has no name: write memory: alone");
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

static int memory_check(const struct idem_url *url, char **ret_directory,
                        struct idem_message *message)
{
    uint64_t size;
    int error = size_read(url, &size, message);

    if (!error)
        *ret_directory = NULL;
    return error;
}

static int memory_open(const struct idem_url *url, const struct idem_clock *clock,
                       struct idem_backend **ret_backend, struct idem_salt *ret_salt,
                       struct idem_message *message)
{
    struct idem_backend *store;
    uint64_t size = SIZE_DEFAULT;
    int error = size_read(url, &size, message);

    if (error)
        return error;
    store = idem_calloc(1, sizeof *store);
    if (!store || idem_table_init(&store->table)) {
        idem_free(store);
        idem_message_set(message, "there is no memory left to open a store");
        return IDEM_ERR_NOMEM;
    }
    pthread_mutex_init(&store->lock, NULL);
    store->clock = clock;
    store->size = size;
    store->reserve = size / RESERVE_SHARE;
    randombytes_buf(ret_salt->bytes, sizeof ret_salt->bytes);
    *ret_backend = store;
    return IDEM_OK;
}

static void memory_close(struct idem_backend *store)
{
    while (store->audit_first) {
        struct entry *entry = store->audit_first;

        store->audit_first = entry->next;
        idem_free(entry);
    }
    idem_table_deinit(&store->table);
    pthread_mutex_destroy(&store->lock);
    idem_free(store);
}

static uint64_t bytes_left(const struct idem_backend *store)
{
    return store->table.bytes < store->size ? store->size - store->table.bytes : 0;
}

/* The self-test cleans up after itself and must not fail for want of room. */
static bool room_for(const struct idem_backend *store, const struct idem_op *op)
{
    return bytes_left(store) > store->reserve ||
           (op->kind == IDEM_OP_CLAIM && op->in.claim.kind == IDEM_KIND_SELFTEST);
}

static void audit_drop_first(struct idem_backend *store)
{
    struct entry *entry = store->audit_first;

    store->audit_first = entry->next;
    if (!store->audit_first)
        store->audit_last = NULL;
    store->audit_count--;
    idem_free(entry);
}

/* Instants are made distinct and ascending, so that a page can go on after the last one's. */
static int64_t audit_instant(const struct idem_backend *store, int64_t now_us)
{
    if (store->audit_last && store->audit_last->at_us >= now_us)
        return store->audit_last->at_us + 1;
    return now_us;
}

static struct entry *audit_make(const struct idem_backend *store, const struct idem_op *op,
                                const struct idem_record *was)
{
    int64_t at_us = audit_instant(store, op->out.now_us);
    struct idem_audit_entry entry = idem_audit_entry_make(op, was, at_us);
    struct entry *made = idem_malloc(sizeof *made + IDEM_AUDIT_SIZE_MAX);

    if (!made)
        return NULL;
    made->next = NULL;
    made->at_us = at_us;
    made->size = idem_audit_encode(&entry, made->blob);
    return made;
}

static void audit_append(struct idem_backend *store, struct entry *entry)
{
    if (!entry)
        return; /* this op leaves none */
    if (store->audit_count == IDEM_AUDIT_ENTRIES_MAX)
        audit_drop_first(store);
    if (store->audit_last)
        store->audit_last->next = entry;
    else
        store->audit_first = entry;
    store->audit_last = entry;
    store->audit_count++;
}

static void record_remove(struct idem_backend *store, struct idem_slot *slot,
                          const struct idem_record *record, int64_t now_us)
{
    uint64_t fence = record ? record->fence : (uint64_t)now_us;

    if (fence > store->fence_floor)
        store->fence_floor = fence;
    idem_table_remove(&store->table, slot);
}

/* Writes the record; an answer that does not fit, or finds no memory, becomes a tombstone. */
static int record_put(struct idem_backend *store, struct idem_op *op, struct idem_record *record)
{
    uint64_t needed = idem_slot_size(idem_answer_size(record));
    int error;

    if (idem_answer_size(record) > 0 && needed + store->reserve / 2 > bytes_left(store)) {
        if (op->kind == IDEM_OP_PUT) { /* a copy is whole or not made */
            op->result = IDEM_RESULT_FULL;
            return IDEM_OK;
        }
        idem_answer_drop(op, record, IDEM_REASON_NO_ROOM);
    }
    error = idem_table_put(&store->table, record);
    if (error == IDEM_ERR_NOMEM && idem_answer_size(record) > 0 && op->kind != IDEM_OP_PUT) {
        idem_answer_drop(op, record, IDEM_REASON_NO_ROOM);
        error = idem_table_put(&store->table, record);
    }
    return error;
}

static bool leaves_audit(const struct idem_op *op, const struct idem_transition *transition,
                         const struct idem_record *current)
{
    bool acted = transition->change != IDEM_CHANGE_NONE;

    return acted && (op->kind == IDEM_OP_RESOLVE || op->kind == IDEM_OP_FORGET) && current &&
           current->kind != IDEM_KIND_SELFTEST;
}

static int change_apply(struct idem_backend *store, struct idem_op *op, struct idem_slot *slot,
                        const struct idem_record *current, struct idem_transition *transition)
{
    struct entry *entry = NULL;
    int error = IDEM_OK;

    if (leaves_audit(op, transition, current)) {
        entry = audit_make(store, op, current);
        if (!entry)
            return IDEM_ERR_NOMEM;
    }
    if (transition->change == IDEM_CHANGE_PUT)
        error = record_put(store, op, &transition->record);
    else if (transition->change == IDEM_CHANGE_DELETE)
        record_remove(store, slot, current, op->out.now_us);
    if (error)
        idem_free(entry);
    else
        audit_append(store, entry);
    return error;
}

/* A damaged record is left for a person to look at, who may then forget it by force. */
static int damaged_apply(struct idem_backend *store, struct idem_op *op, struct idem_slot *slot)
{
    struct entry *entry;

    op->result = IDEM_RESULT_CORRUPT;
    if (op->kind != IDEM_OP_FORGET || !op->in.forget.force)
        return IDEM_OK;
    entry = audit_make(store, op, NULL);
    if (!entry)
        return IDEM_ERR_NOMEM;
    op->result = IDEM_RESULT_OK;
    audit_append(store, entry);
    record_remove(store, slot, NULL, op->out.now_us);
    return IDEM_OK;
}

/* An op on one id. */
static int record_apply(struct idem_backend *store, struct idem_op *op, int64_t now_us)
{
    struct idem_slot *slot = idem_table_find(&store->table, &op->id);
    struct idem_transition transition;
    struct idem_record current;

    op->out.now_us = now_us;
    if (slot && idem_record_decode(idem_slot_blob(slot), &current))
        return damaged_apply(store, op, slot);
    idem_transition(op, now_us, slot ? &current : NULL, store->fence_floor, room_for(store, op),
                    &transition);
    if (slot && idem_op_wants_record(op))
        return idem_record_keep(&current, idem_slot_blob(slot), now_us, &op->out.found);
    return change_apply(store, op, slot, slot ? &current : NULL, &transition);
}

static void slot_sweep(struct idem_backend *store, struct idem_op *op, struct idem_slot *slot)
{
    struct idem_record record;
    int64_t now_us = op->out.now_us;

    if (idem_record_decode(idem_slot_blob(slot), &record) ||
        !idem_record_expired_at(&record, now_us))
        return;
    if (idem_record_state_at(&record, now_us) == IDEM_STATE_UNKNOWN)
        op->out.unknown_removed++;
    op->out.count++;
    record_remove(store, slot, &record, now_us);
}

/*
 * Looks at the buckets in turn, at most once each, going on where the last sweep ended. `more` says
 * that this one ended before it had seen them all.
 */
static int sweep(struct idem_backend *store, struct idem_op *op)
{
    size_t limit = op->in.sweep.limit;
    size_t steps = 0;
    size_t seen = 0;

    for (; seen < store->table.buckets_count; seen++) {
        size_t bucket = store->sweep_bucket & (store->table.buckets_count - 1);
        struct idem_slot *next;

        if (op->out.count >= limit || steps >= limit * SWEEP_STEPS_FACTOR)
            break;
        for (struct idem_slot *slot = store->table.buckets[bucket]; slot; slot = next) {
            if (op->out.count == limit)
                break;
            next = slot->next;
            steps++;
            slot_sweep(store, op, slot);
        }
        if (op->out.count < limit)
            store->sweep_bucket = bucket + 1;
        steps++;
    }
    op->out.more = seen < store->table.buckets_count || op->out.count == limit;
    op->result = IDEM_RESULT_OK;
    return IDEM_OK;
}

static int slot_compare(const void *a, const void *b)
{
    const struct idem_slot *const *left = a;
    const struct idem_slot *const *right = b;

    return memcmp((*left)->id.bytes, (*right)->id.bytes, IDEM_ID_SIZE);
}

/* True when a scan must look at this id at all: it has the prefix and is behind the cursor. */
static bool scan_reaches(const struct idem_scan *scan, const struct idem_id *id)
{
    return idem_scan_takes_id(scan, id) &&
           (!scan->has_cursor || memcmp(id->bytes, scan->cursor.bytes, IDEM_ID_SIZE) > 0);
}

/* All slots that the scan must look at, in the order of their ids, in new memory. */
static int slots_sort(const struct idem_backend *store, const struct idem_scan *scan,
                      struct idem_slot ***ret_slots, size_t *ret_count)
{
    struct idem_slot **slots = idem_malloc((store->table.count + 1) * sizeof(struct idem_slot *));
    size_t count = 0;

    if (!slots)
        return IDEM_ERR_NOMEM;
    for (size_t i = 0; i < store->table.buckets_count; i++)
        for (struct idem_slot *slot = store->table.buckets[i]; slot; slot = slot->next)
            if (scan_reaches(scan, &slot->id))
                slots[count++] = slot;
    qsort(slots, count, sizeof(struct idem_slot *), slot_compare);
    *ret_slots = slots;
    *ret_count = count;
    return IDEM_OK;
}

static int scan(struct idem_backend *store, struct idem_op *op)
{
    struct idem_page page = {0};
    struct idem_slot **slots;
    size_t count;
    int error = slots_sort(store, &op->in.scan, &slots, &count);

    if (error)
        return error;
    for (size_t i = 0; i < count && !error && !op->out.more; i++) {
        struct idem_bytes blob = idem_slot_blob(slots[i]);
        struct idem_record record;
        bool damaged = idem_record_decode(blob, &record) != 0;

        if (!damaged && !idem_scan_matches(&op->in.scan, &record, op->out.now_us))
            continue;
        if (idem_page_is_full(&page, op->in.scan.limit)) {
            op->out.more = true;
        } else if (damaged) {
            error = idem_scan_damage(op, &slots[i]->id);
        } else {
            op->out.next = record.id;
            error = idem_page_add(&page, &record, blob, op->out.now_us);
        }
    }
    idem_free(slots);
    if (error) {
        idem_page_free(&page);
        return error;
    }
    op->out.page = page.records;
    op->out.count = page.count;
    op->result = IDEM_RESULT_OK;
    return IDEM_OK;
}

static int audit(struct idem_backend *store, struct idem_op *op)
{
    struct idem_audit_page page;
    bool more = false;
    int error = idem_audit_page_init(&page, op->in.audit.limit);

    if (error)
        return error;
    for (struct entry *entry = store->audit_first; entry && !more; entry = entry->next) {
        if (entry->at_us <= op->in.audit.after_us)
            continue;
        more = page.count == op->in.audit.limit;
        if (!more)
            error =
                idem_audit_page_add(&page, idem_bytes_make(entry->blob, entry->size), entry->at_us);
        assert(!error);
    }
    idem_audit_page_finish(&page, more, op);
    return IDEM_OK;
}

static int op_apply(struct idem_backend *store, struct idem_op *op, int64_t now_us)
{
    op->out.now_us = now_us;
    switch (op->kind) {
    case IDEM_OP_SCAN:
        return scan(store, op);
    case IDEM_OP_SWEEP:
        return sweep(store, op);
    case IDEM_OP_AUDIT:
        return audit(store, op);
    default:
        return record_apply(store, op, now_us);
    }
}

static int memory_apply(struct idem_backend *store, struct idem_op *const *ops, size_t count,
                        struct idem_message *message)
{
    int64_t now_us = idem_clock_now_us(store->clock);
    int error = IDEM_OK;

    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < count && !error; i++)
        error = op_apply(store, ops[i], now_us);
    pthread_mutex_unlock(&store->lock);
    if (error)
        idem_message_set(message, "the memory store: %s", idem_error_text(error));
    return error;
}

static int memory_peek(struct idem_backend *store, struct idem_op *get)
{
    int64_t now_us = idem_clock_now_us(store->clock);
    int error;

    pthread_mutex_lock(&store->lock);
    error = record_apply(store, get, now_us);
    pthread_mutex_unlock(&store->lock);
    return error;
}

static size_t memory_describe(struct idem_backend *store, struct idem_store_fact *facts, size_t max)
{
    struct idem_store_fact all[] = {{.name = "backend", .value = "memory"},
                                    {.name = "durability",
                                     .value = "none: all is lost when the "
                                              "process ends"},
                                    {.name = "size"},
                                    {.name = "used"},
                                    {.name = "records"},
                                    {.name = "claims"}};
    uint64_t left;
    size_t count = sizeof all / sizeof all[0];

    pthread_mutex_lock(&store->lock);
    snprintf(all[2].value, sizeof all[2].value, "%llu bytes", (unsigned long long)store->size);
    snprintf(all[3].value, sizeof all[3].value, "%llu bytes",
             (unsigned long long)store->table.bytes);
    snprintf(all[4].value, sizeof all[4].value, "%zu", store->table.count);
    left = bytes_left(store);
    snprintf(all[5].value, sizeof all[5].value,
             "%s: %llu bytes are free, of which %llu are for verdicts",
             left > store->reserve ? "taken" : "refused", (unsigned long long)left,
             (unsigned long long)store->reserve);
    pthread_mutex_unlock(&store->lock);
    if (count > max)
        count = max;
    memcpy(facts, all, count * sizeof all[0]);
    return count;
}

/* Nothing was there before, ever. */
static bool memory_is_new(const struct idem_backend *store)
{
    (void)store;
    return true;
}

/* As for LMDB: only over what has expired, and the self-test's own. */
static int memory_adopt(struct idem_backend *store, const struct idem_salt *salt,
                        struct idem_message *message)
{
    int64_t now_us = idem_clock_now_us(store->clock);
    bool held = false;

    (void)salt; /* the front keeps it */
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->table.buckets_count; i++) {
        for (struct idem_slot *slot = store->table.buckets[i]; slot; slot = slot->next) {
            struct idem_record record;

            held |= idem_record_decode(idem_slot_blob(slot), &record) ||
                    (record.kind != IDEM_KIND_SELFTEST && !idem_record_expired_at(&record, now_us));
        }
    }
    pthread_mutex_unlock(&store->lock);
    if (!held)
        return IDEM_OK;
    idem_message_set(message, "the memory store holds records of its own, made under another salt");
    return IDEM_ERR_INVALID;
}

static const char *const schemes[] = {"memory", NULL};

const struct idem_backend_ops idem_backend_memory = {
    .schemes = schemes,
    .check = memory_check,
    .open = memory_open,
    .close = memory_close,
    .apply = memory_apply,
    .peek = memory_peek,
    .describe = memory_describe,
    .is_new = memory_is_new,
    .adopt = memory_adopt,
};
