/*
 * What people look through: the records in id order, and the audit in the order of its entries.
 */
#include <errno.h>

#include "base/cursor.h"
#include "store/audit.h"
#include "store/keep.h"
#include "store/lmdb/lmdb_store.h"

#define EXAMINED_MAX 100000 /* records that a scan looks through for one page */

/* Positions the cursor on the first record that the scan may show. */
static int scan_first(MDB_cursor *cursor, const struct idem_scan *scan, MDB_val *ret_key,
                      MDB_val *ret_value)
{
    bool exclusive;
    struct idem_id start = idem_scan_start(scan, &exclusive);
    int code;

    *ret_key = idem_lmdb_value(start.bytes, IDEM_ID_SIZE);
    code = mdb_cursor_get(cursor, ret_key, ret_value, MDB_SET_RANGE);
    if (!code && exclusive && ret_key->mv_size == IDEM_ID_SIZE &&
        memcmp(ret_key->mv_data, start.bytes, IDEM_ID_SIZE) == 0)
        code = mdb_cursor_get(cursor, ret_key, ret_value, MDB_NEXT);
    return code;
}

/*
 * Adds the record if it matches. Damaged ones have nothing to show but their ids. A full page
 * leaves the record to the next one, so that none is counted twice.
 */
static int scan_visit(struct idem_page *page, struct idem_op *op, const struct idem_id *id,
                      const MDB_val *value)
{
    struct idem_bytes blob = idem_bytes_make(value->mv_data, value->mv_size);
    struct idem_record record;
    bool damaged = idem_record_decode(blob, &record) != 0;
    bool shown = damaged || idem_scan_matches(&op->in.scan, &record, op->out.now_us);

    if (shown && idem_page_is_full(page, op->in.scan.limit)) {
        op->out.more = true;
        return 0;
    }
    op->out.next = *id;
    if (damaged)
        return idem_scan_damage(op, id) ? ENOMEM : 0;
    return shown && idem_page_add(page, &record, blob, op->out.now_us) ? ENOMEM : 0;
}

static int scan_walk(struct idem_lmdb_batch *batch, struct idem_op *op, struct idem_page *page)
{
    MDB_val key, value;
    int code = scan_first(batch->records, &op->in.scan, &key, &value);

    for (size_t examined = 0; !code; examined++) {
        struct idem_id id;

        if (key.mv_size != IDEM_ID_SIZE)
            return MDB_CORRUPTED;
        memcpy(id.bytes, key.mv_data, IDEM_ID_SIZE);
        if (!idem_scan_takes_id(&op->in.scan, &id))
            return 0; /* behind the prefix */
        if (examined == EXAMINED_MAX) {
            op->out.more = true;
            return 0;
        }
        code = scan_visit(page, op, &id, &value);
        if (op->out.more)
            return 0;
        if (!code)
            code = mdb_cursor_get(batch->records, &key, &value, MDB_NEXT);
    }
    return code == MDB_NOTFOUND ? 0 : code;
}

int idem_lmdb_scan(struct idem_lmdb_batch *batch, struct idem_op *op)
{
    struct idem_page page = {0};
    int code;

    op->out.now_us = batch->now_us;
    code = scan_walk(batch, op, &page);
    if (code) {
        idem_page_free(&page);
        return code;
    }
    op->out.page = page.records;
    op->out.count = page.count;
    op->result = IDEM_RESULT_OK;
    return 0;
}

static void instant_encode(int64_t instant_us, uint8_t ret_bytes[8])
{
    struct idem_writer writer;

    idem_writer_init(&writer, ret_bytes, 8);
    idem_write_u64(&writer, (uint64_t)instant_us);
}

static int64_t instant_decode(const MDB_val *key)
{
    struct idem_reader reader;

    idem_reader_init(&reader, idem_bytes_make(key->mv_data, key->mv_size));
    return (int64_t)idem_read_u64(&reader);
}

/* Instants are made distinct and ascending, so that a page can go on after the last one's. */
static int audit_instant(struct idem_lmdb_batch *batch, MDB_cursor *cursor, int64_t *ret_at_us)
{
    MDB_val key, value;
    int code = mdb_cursor_get(cursor, &key, &value, MDB_LAST);

    *ret_at_us = batch->now_us;
    if (code)
        return code == MDB_NOTFOUND ? 0 : code;
    if (instant_decode(&key) >= batch->now_us)
        *ret_at_us = instant_decode(&key) + 1;
    return 0;
}

/* The audit has a maximum like everything else: the oldest entry makes way. */
static int audit_trim(struct idem_lmdb_batch *batch, MDB_cursor *cursor)
{
    MDB_val key, value;
    MDB_stat status;
    int code = mdb_stat(batch->txn, batch->store->audit, &status);

    if (code || status.ms_entries < IDEM_AUDIT_ENTRIES_MAX)
        return code;
    code = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
    return code ? code : mdb_cursor_del(cursor, 0);
}

int idem_lmdb_audit_add(struct idem_lmdb_batch *batch, const struct idem_op *op,
                        const struct idem_record *was)
{
    struct idem_audit_entry entry;
    uint8_t key_bytes[8], blob[IDEM_AUDIT_SIZE_MAX];
    MDB_val key = idem_lmdb_value(key_bytes, sizeof key_bytes);
    MDB_val value;
    MDB_cursor *cursor;
    int64_t at_us;
    int code = mdb_cursor_open(batch->txn, batch->store->audit, &cursor);

    if (code)
        return code;
    code = audit_trim(batch, cursor);
    if (!code)
        code = audit_instant(batch, cursor, &at_us);
    if (!code) {
        entry = idem_audit_entry_make(op, was, at_us);
        instant_encode(at_us, key_bytes);
        value = idem_lmdb_value(blob, idem_audit_encode(&entry, blob));
        code = mdb_cursor_put(cursor, &key, &value, MDB_APPEND);
        batch->written = true;
        idem_lmdb_space_use(batch, value.mv_size);
    }
    mdb_cursor_close(cursor);
    return code;
}

static int audit_collect(MDB_cursor *cursor, const struct idem_op *op, struct idem_audit_page *page,
                         bool *ret_more)
{
    uint8_t bytes[8];
    MDB_val key = idem_lmdb_value(bytes, sizeof bytes);
    MDB_val value;
    int64_t after_us = op->in.audit.after_us < 0 ? -1 : op->in.audit.after_us;
    int code;

    *ret_more = false;
    if (after_us == INT64_MAX)
        return 0;
    instant_encode(after_us + 1, bytes);
    code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    while (!code) {
        *ret_more = page->count == op->in.audit.limit;
        if (*ret_more)
            return 0;
        if (idem_audit_page_add(page, idem_bytes_make(value.mv_data, value.mv_size),
                                instant_decode(&key)))
            return MDB_CORRUPTED;
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    return code == MDB_NOTFOUND ? 0 : code;
}

int idem_lmdb_audit_list(struct idem_lmdb_batch *batch, struct idem_op *op)
{
    struct idem_audit_page page;
    MDB_cursor *cursor;
    bool more;
    int code;

    op->out.now_us = batch->now_us;
    if (idem_audit_page_init(&page, op->in.audit.limit))
        return ENOMEM;
    code = mdb_cursor_open(batch->txn, batch->store->audit, &cursor);
    if (!code) {
        code = audit_collect(cursor, op, &page, &more);
        mdb_cursor_close(cursor);
    }
    if (code)
        idem_audit_page_free(&page);
    else
        idem_audit_page_finish(&page, more, op);
    return code;
}
