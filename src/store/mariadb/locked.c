/*
 * The long way, which every op can go:
 *
 *   1. START TRANSACTION; the rows, FOR UPDATE, in the order of their ids; then, with those locked,
 *      the clock and what the meta row says
 *   2. the rules, op by op, on the records in memory
 *   3. INSERT, UPDATE, DELETE, the audit, the guard, the meta row; COMMIT
 *
 * At READ COMMITTED a row that is not there cannot be locked. When another connection inserts it
 * meanwhile, the INSERT meets it and all is rolled back. A row that was inserted and removed again
 * meanwhile leaves the raised mark only, which is looked at before COMMIT as guess.c tells.
 *
 * Every claim asks for the meta row, so it is not locked before step 3, and last: not while this
 * process may stand still, nor while others are waited for. Of two that number entries of the audit
 * alike the second meets the first's, and all of it is rolled back.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "store/audit.h"
#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

/* One id, and its ops. */
struct entry {
    struct idem_mariadb_item *items;
    size_t count;
    bool stored;  /* its row is there */
    bool damaged; /* but is no record */
    bool present; /* there is a record now, after the ops so far */
    bool written; /* which differs from the row's */
    bool fenced;  /* its fence was made here */
    unsigned columns;
    int64_t sweep_us;
    struct idem_record record;
};

/* An entry that the audit is to get, in the order of the batch. */
struct noted {
    unsigned at;
    struct idem_audit_entry entry; /* views into the op */
};

struct locked {
    struct idem_mariadb_batch *batch;
    struct entry *entries;
    size_t count;
    bool answers; /* some op may want one */
    MYSQL_RES *rows;
    int64_t now_us;
    uint64_t fence_floor, fence_floor_seen;
    uint64_t audit_number; /* of the last entry */
    int64_t audit_us;
    struct noted *notes;
    size_t note_count;
};

static bool needs_meta(const struct idem_op *op)
{
    return op->kind == IDEM_OP_RESOLVE || op->kind == IDEM_OP_FORGET;
}

/* One entry an id that has an op left. */
static int entries_collect(struct locked *locked)
{
    struct idem_mariadb_batch *batch = locked->batch;

    locked->entries = idem_calloc(batch->count, sizeof *locked->entries);
    locked->notes = idem_calloc(batch->count, sizeof *locked->notes);
    if (!locked->entries || !locked->notes)
        return IDEM_ERR_NOMEM;
    for (size_t i = 0; i < batch->count; i++) {
        struct idem_mariadb_item *item = &batch->items[i];
        const struct idem_op *op = item->op;
        struct entry *last = locked->count ? &locked->entries[locked->count - 1] : NULL;

        if (item->done)
            continue;
        locked->answers |= op->kind == IDEM_OP_CLAIM || op->kind == IDEM_OP_GET;
        if (last && idem_id_equal(&last->items->op->id, &op->id))
            last->count++;
        else
            locked->entries[locked->count++] = (struct entry){.items = item, .count = 1};
    }
    return IDEM_OK;
}

static void ids_add(const struct locked *locked, bool (*wanted)(const struct entry *entry),
                    struct idem_mariadb_text *text)
{
    bool any = false;

    for (size_t i = 0; i < locked->count; i++) {
        if (wanted && !wanted(&locked->entries[i]))
            continue;
        if (any)
            idem_mariadb_text_add(text, ",");
        idem_mariadb_text_id(text, &locked->entries[i].items->op->id);
        any = true;
    }
}

static void rows_text(const struct locked *locked, struct idem_mariadb_text *text)
{
    idem_mariadb_text_clear(text);
    idem_mariadb_text_add(text, "START TRANSACTION;SELECT ");
    idem_mariadb_row_columns(text, locked->answers);
    idem_mariadb_text_add(text, " FROM " IDEM_MARIADB_KEYS " FORCE INDEX(PRIMARY)WHERE id IN(");
    ids_add(locked, NULL, text);
    idem_mariadb_text_add(text, ")FOR UPDATE;SELECT ");
    idem_mariadb_text_now(text, locked->batch->store);
    idem_mariadb_text_add(text, ",fence_floor,audit_number,audit_us");
    idem_mariadb_text_meta(text, locked->batch->store);
}

static int meta_take(struct locked *locked, MYSQL_RES *result)
{
    MYSQL_ROW row = mysql_fetch_row(result);

    if (!row || !idem_mariadb_instant_read(row[0], &locked->now_us) ||
        !idem_mariadb_number(row[1], &locked->fence_floor) ||
        !idem_mariadb_number(row[2], &locked->audit_number) ||
        !idem_mariadb_instant_read(row[3], &locked->audit_us))
        return IDEM_ERR_CORRUPT;
    locked->fence_floor_seen = locked->fence_floor;
    idem_mariadb_floor_seen(locked->batch->store, locked->fence_floor, locked->now_us);
    return IDEM_OK;
}

static int rows_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct locked *locked = context;

    (void)affected;
    if (statement == 2)
        return meta_take(locked, *result);
    if (statement == 1) {
        locked->rows = *result;
        *result = NULL;
    }
    return IDEM_OK;
}

static int entry_compare(const void *key, const void *element)
{
    const struct idem_id *id = key;
    const struct entry *entry = element;

    return memcmp(id->bytes, entry->items->op->id.bytes, IDEM_ID_SIZE);
}

static void rows_read(struct locked *locked)
{
    MYSQL_ROW row;

    while ((row = mysql_fetch_row(locked->rows))) {
        struct idem_id id;
        struct entry *entry;

        if (!idem_mariadb_row_id(locked->rows, row, &id))
            continue;
        entry = bsearch(&id, locked->entries, locked->count, sizeof *entry, entry_compare);
        if (!entry)
            continue;
        entry->stored = true;
        entry->damaged = idem_mariadb_row_read(locked->rows, row, &entry->record) != IDEM_OK;
        entry->present = !entry->damaged;
    }
}

static void audit_note(struct locked *locked, const struct idem_mariadb_item *item,
                       const struct idem_record *was)
{
    struct noted *note = &locked->notes[locked->note_count++];

    note->at = item->at;
    note->entry = idem_audit_entry_make(item->op, was, locked->now_us);
}

static void entry_remove(struct locked *locked, struct entry *entry, uint64_t fence)
{
    if (fence > locked->fence_floor)
        locked->fence_floor = fence;
    entry->present = entry->damaged = false;
    entry->written = true;
}

/* A damaged record is left for a person to look at, who may then forget it by force. */
static void damaged_apply(struct locked *locked, struct entry *entry,
                          const struct idem_mariadb_item *item)
{
    struct idem_op *op = item->op;

    op->out.now_us = locked->now_us;
    op->result = IDEM_RESULT_CORRUPT;
    if (op->kind != IDEM_OP_FORGET || !op->in.forget.force)
        return;
    op->result = IDEM_RESULT_OK;
    audit_note(locked, item, NULL);
    entry_remove(locked, entry, (uint64_t)locked->now_us);
}

/* Over nothing, or what has expired, all is new. */
static unsigned columns_changed(const struct locked *locked, const struct idem_op *op,
                                const struct idem_record *current)
{
    if (!current || idem_record_expired_at(current, locked->now_us))
        return IDEM_MARIADB_COLUMNS_ALL;
    return idem_mariadb_columns_of(op->kind);
}

static void entry_put(struct locked *locked, struct entry *entry, struct idem_op *op,
                      const struct idem_record *current, struct idem_record *record)
{
    enum idem_reason bar = idem_mariadb_answer_bar(locked->batch, record);

    if (bar) {
        if (op->kind == IDEM_OP_PUT) {
            op->result = IDEM_RESULT_FULL; /* a copy is whole or not made */
            return;
        }
        idem_answer_drop(op, record, bar);
    }
    entry->columns |= columns_changed(locked, op, current);
    if (entry->columns & IDEM_MARIADB_COLUMNS_ALL)
        entry->sweep_us = idem_mariadb_sweep_hint(op, record);
    if (!current || current->fence != record->fence)
        entry->fenced = op->kind != IDEM_OP_PUT;
    entry->record = *record;
    entry->present = entry->written = true;
}

static int item_apply(struct locked *locked, struct entry *entry,
                      const struct idem_mariadb_item *item)
{
    struct idem_op *op = item->op;
    struct idem_record before = entry->record;
    const struct idem_record *current = entry->present ? &before : NULL;
    struct idem_transition transition;

    if (entry->damaged) {
        damaged_apply(locked, entry, item);
        return IDEM_OK;
    }
    idem_transition(op, locked->now_us, current, locked->fence_floor,
                    idem_mariadb_room_for(locked->batch, op), &transition);
    if (current && idem_op_wants_record(op))
        return idem_mariadb_record_keep(current, locked->now_us, &op->out.found);
    if (transition.change == IDEM_CHANGE_NONE)
        return IDEM_OK;
    if (current && needs_meta(op) && current->kind != IDEM_KIND_SELFTEST)
        audit_note(locked, item, current);
    if (transition.change == IDEM_CHANGE_PUT)
        entry_put(locked, entry, op, current, &transition.record);
    else
        entry_remove(locked, entry, before.fence);
    return IDEM_OK;
}

static int entries_apply(struct locked *locked)
{
    int error = IDEM_OK;

    for (size_t e = 0; e < locked->count; e++)
        for (size_t i = 0; i < locked->entries[e].count && !error; i++)
            error = item_apply(locked, &locked->entries[e], &locked->entries[e].items[i]);
    return error;
}

static bool is_inserted(const struct entry *entry)
{
    return entry->written && entry->present && !entry->stored;
}

static bool is_deleted(const struct entry *entry)
{
    return entry->written && !entry->present && entry->stored;
}

static bool is_updated(const struct entry *entry)
{
    return entry->written && entry->present && entry->stored;
}

/* The least fence that was made here for a row that could not be locked; UINT64_MAX for none. */
static uint64_t inserts_text(const struct locked *locked, struct idem_mariadb_text *text)
{
    uint64_t fence = UINT64_MAX;
    bool any = false;

    for (size_t i = 0; i < locked->count; i++) {
        const struct entry *entry = &locked->entries[i];

        if (!is_inserted(entry))
            continue;
        idem_mariadb_text_add(text, any ? "," : "INSERT INTO " IDEM_MARIADB_KEYS);
        if (!any) {
            idem_mariadb_row_names(text);
            idem_mariadb_text_add(text, "VALUES");
        }
        idem_mariadb_row_values(text, &entry->record, entry->sweep_us, NULL);
        if (entry->fenced && entry->record.fence < fence)
            fence = entry->record.fence;
        any = true;
    }
    if (any)
        idem_mariadb_text_add(text, ";");
    return fence;
}

static void updates_text(const struct locked *locked, struct idem_mariadb_text *text)
{
    for (size_t i = 0; i < locked->count; i++) {
        const struct entry *entry = &locked->entries[i];

        if (!is_updated(entry))
            continue;
        idem_mariadb_row_update(text, &entry->record, entry->columns, entry->sweep_us, NULL);
        idem_mariadb_text_add(text, " WHERE id=");
        idem_mariadb_text_id(text, &entry->record.id);
        idem_mariadb_text_add(text, ";");
    }
}

static void deletes_text(const struct locked *locked, struct idem_mariadb_text *text)
{
    bool any = false;

    for (size_t i = 0; i < locked->count; i++)
        any |= is_deleted(&locked->entries[i]);
    if (!any)
        return;
    idem_mariadb_text_add(text, IDEM_MARIADB_DELETE "id IN(");
    ids_add(locked, is_deleted, text);
    idem_mariadb_text_add(text, ");");
}

static int note_compare(const void *a, const void *b)
{
    const struct noted *left = a, *right = b;

    return left->at < right->at ? -1 : left->at > right->at;
}

/* Instants are made distinct and ascending, so that a page can go on after the last one's. */
static void note_text(struct locked *locked, const struct idem_audit_entry *entry,
                      struct idem_mariadb_text *text)
{
    locked->audit_us = locked->audit_us >= entry->at_us ? locked->audit_us + 1 : entry->at_us;
    idem_mariadb_text_add(text, "(");
    idem_mariadb_text_unsigned(text, ++locked->audit_number);
    idem_mariadb_text_add(text, ",");
    idem_mariadb_text_signed(text, locked->audit_us);
    idem_mariadb_text_add(text, ",");
    idem_mariadb_text_id(text, &entry->id);
    idem_mariadb_text_add(text, entry->what == IDEM_OP_RESOLVE ? ",'resolve'," : ",'forget',");
    if (entry->was)
        idem_mariadb_text_unsigned(text, (uint64_t)entry->was);
    else
        idem_mariadb_text_add(text, "NULL");
    idem_mariadb_text_add(text, ",");
    idem_mariadb_text_unsigned(text, entry->fence);
    idem_mariadb_text_add(text, ",");
    idem_mariadb_text_bytes(text, entry->who);
    idem_mariadb_text_add(text, ",");
    idem_mariadb_text_bytes(text, entry->why);
    idem_mariadb_text_add(text, ")");
}

/* The audit has a maximum like everything else: the oldest entries make way. */
static void audit_text(struct locked *locked, struct idem_mariadb_text *text)
{
    if (locked->note_count == 0)
        return;
    qsort(locked->notes, locked->note_count, sizeof *locked->notes, note_compare);
    idem_mariadb_text_add(text, "INSERT INTO " IDEM_MARIADB_AUDIT
                                "(number,at_us,id,what,was,fence,who,why)VALUES");
    for (size_t i = 0; i < locked->note_count; i++) {
        idem_mariadb_text_add(text, i ? "," : "");
        note_text(locked, &locked->notes[i].entry, text);
    }
    idem_mariadb_text_add(text, ";");
    if (locked->audit_number <= IDEM_AUDIT_ENTRIES_MAX)
        return;
    idem_mariadb_text_add(text, "DELETE FROM " IDEM_MARIADB_AUDIT " WHERE number<=");
    idem_mariadb_text_unsigned(text, locked->audit_number - IDEM_AUDIT_ENTRIES_MAX);
    idem_mariadb_text_add(text, ";");
}

static bool writes_meta(const struct locked *locked)
{
    return locked->note_count > 0 || locked->fence_floor != locked->fence_floor_seen;
}

static void meta_text(const struct locked *locked, struct idem_mariadb_text *text)
{
    if (!writes_meta(locked))
        return;
    idem_mariadb_text_add(text,
                          "UPDATE " IDEM_MARIADB_META " SET fence_floor=GREATEST(fence_floor,");
    idem_mariadb_text_unsigned(text, locked->fence_floor);
    idem_mariadb_text_add(text, ")");
    if (locked->note_count > 0) {
        idem_mariadb_text_add(text, ",audit_number=");
        idem_mariadb_text_unsigned(text, locked->audit_number);
        idem_mariadb_text_add(text, ",audit_us=");
        idem_mariadb_text_signed(text, locked->audit_us);
    }
    idem_mariadb_text_add(text, " WHERE one=1;");
}

/*
 * As guess.c tells, for the least fence of the new rows; and the store must be the same while the
 * meta row is written.
 */
static void guard_text(const struct locked *locked, uint64_t fence, struct idem_mariadb_text *text)
{
    const struct idem_backend *store = locked->batch->store;

    if (fence == UINT64_MAX && !writes_meta(locked))
        return; /* nothing here depends on it */
    idem_mariadb_text_add(text, "SELECT " IDEM_MARIADB_ONLY_IF "(SELECT fence_floor");
    idem_mariadb_text_meta(text, store);
    if (writes_meta(locked))
        idem_mariadb_text_add(text, " FOR UPDATE");
    idem_mariadb_text_add(text, ")<");
    idem_mariadb_text_unsigned(text, fence);
    if (fence != UINT64_MAX) {
        idem_mariadb_text_add(text, " AND ");
        idem_mariadb_text_now(text, store);
        idem_mariadb_text_add(text, "<");
        idem_mariadb_text_signed(text, locked->now_us + IDEM_MARIADB_FRESH_US);
    }
    idem_mariadb_text_add(text, IDEM_MARIADB_OR_AGAIN "INTO @ok;");
}

static void changes_text(struct locked *locked, struct idem_mariadb_text *text)
{
    uint64_t fence;

    idem_mariadb_text_clear(text);
    fence = inserts_text(locked, text);
    updates_text(locked, text);
    deletes_text(locked, text);
    audit_text(locked, text);
    guard_text(locked, fence, text);
    meta_text(locked, text);
    idem_mariadb_text_add(text, "COMMIT");
}

static int locked_run(struct locked *locked)
{
    struct idem_backend *store = locked->batch->store;
    int error;

    rows_text(locked, &store->text);
    error = idem_mariadb_run(store, rows_take, locked);
    if (error)
        return error;
    rows_read(locked);
    error = entries_apply(locked);
    if (error) {
        idem_mariadb_disconnect(&store->link); /* which rolls back */
        return error;
    }
    changes_text(locked, &store->text);
    return idem_mariadb_run(store, NULL, NULL);
}

int idem_mariadb_locked(struct idem_mariadb_batch *batch)
{
    struct locked locked = {.batch = batch};
    int error = entries_collect(&locked);

    if (!error && locked.count > 0)
        error = locked_run(&locked);
    for (size_t e = 0; e < locked.count && !error; e++)
        for (size_t i = 0; i < locked.entries[e].count; i++)
            locked.entries[e].items[i].done = true;
    mysql_free_result(locked.rows);
    idem_free(locked.notes);
    idem_free(locked.entries);
    if (error == IDEM_ERR_CORRUPT)
        return idem_mariadb_replaced(batch->store);
    if (error == IDEM_ERR_NOMEM)
        return idem_mariadb_fault(&batch->store->link, error,
                                  "there is no memory left for a batch");
    return error;
}
