/*
 * The expiry index: one entry a record, its key a big-endian instant and the id, written when the
 * record begins its life and not touched by what happens to it later. Entries come in time order,
 * so that they are appended to the last page of the tree; an index in random order would cost a
 * third of the store's throughput.
 *
 * The sweeper walks the entries whose instant has passed and looks at the record behind each:
 *
 *   absent       the entry goes
 *   expired      both go
 *   not expired  the entry moves to the instant at which the record will expire
 */
#include "base/cursor.h"
#include "store/keep.h"
#include "store/lmdb/lmdb_store.h"

#define KEY_SIZE  (8 + IDEM_ID_SIZE)
#define STEPS_MAX 1024 /* entries that one sweep looks at, however many it may remove */

static void key_encode(int64_t instant_us, const struct idem_id *id, uint8_t ret_key[KEY_SIZE])
{
    struct idem_writer writer;

    idem_writer_init(&writer, ret_key, KEY_SIZE);
    idem_write_u64(&writer, (uint64_t)instant_us);
    idem_write_bytes(&writer, idem_bytes_make(id->bytes, IDEM_ID_SIZE));
}

static int cursor_need(struct idem_lmdb_batch *batch)
{
    if (batch->expiry)
        return 0;
    return mdb_cursor_open(batch->txn, batch->store->expiry, &batch->expiry);
}

int idem_lmdb_expiry_add(struct idem_lmdb_batch *batch, const struct idem_id *id,
                         int64_t instant_us)
{
    uint8_t bytes[KEY_SIZE];
    MDB_val key = idem_lmdb_value(bytes, sizeof bytes);
    MDB_val nothing = idem_lmdb_value("", 0);
    int code;

    if (instant_us == IDEM_NEVER_US)
        return 0;
    /* All ops of a batch have one clock: a microsecond more for each keeps them in order. */
    if (instant_us < IDEM_NEVER_US - IDEM_BATCH_MAX)
        instant_us += batch->indexed++ % IDEM_BATCH_MAX;
    key_encode(instant_us, id, bytes);
    code = cursor_need(batch);
    if (code)
        return code;
    code = mdb_cursor_put(batch->expiry, &key, &nothing, MDB_APPEND);
    if (code == MDB_KEYEXIST)
        code = mdb_cursor_put(batch->expiry, &key, &nothing, 0);
    batch->written = true;
    idem_lmdb_space_use(batch, KEY_SIZE);
    return code;
}

static int record_remove(struct idem_lmdb_batch *batch, struct idem_op *op,
                         const struct idem_record *record)
{
    int code = idem_lmdb_fence_floor_read(batch);

    if (code)
        return code;
    idem_lmdb_fence_floor_raise(batch, record->fence);
    op->out.count++;
    if (idem_record_state_at(record, batch->now_us) == IDEM_STATE_UNKNOWN)
        op->out.unknown_removed++;
    return mdb_cursor_del(batch->records, 0);
}

/* Looks at the record of an entry that is gone already. */
static int entry_settle(struct idem_lmdb_batch *batch, struct idem_op *op, const struct idem_id *id)
{
    MDB_val key = idem_lmdb_value(id->bytes, IDEM_ID_SIZE);
    MDB_val value;
    struct idem_bytes blob;
    struct idem_record record;
    int64_t expires_us;
    int code = mdb_cursor_get(batch->records, &key, &value, MDB_SET);

    if (code)
        return code == MDB_NOTFOUND ? 0 : code;
    blob = idem_bytes_make(value.mv_data, value.mv_size);
    if (idem_record_peek_expiry(blob, &expires_us))
        return 0; /* damaged: left for a person to look at */
    if (expires_us > batch->now_us)
        return idem_lmdb_expiry_add(batch, id, expires_us);
    if (idem_record_decode(blob, &record))
        return 0;
    return record_remove(batch, op, &record);
}

/* Takes the first entry off the index if its instant has passed; MDB_NOTFOUND when none has. */
static int entry_take(struct idem_lmdb_batch *batch, struct idem_id *ret_id)
{
    MDB_val key, nothing;
    struct idem_reader reader;
    int64_t instant_us;
    int code = mdb_cursor_get(batch->expiry, &key, &nothing, MDB_FIRST);

    if (code)
        return code;
    if (key.mv_size != KEY_SIZE)
        return MDB_CORRUPTED;
    idem_reader_init(&reader, idem_bytes_make(key.mv_data, key.mv_size));
    instant_us = (int64_t)idem_read_u64(&reader);
    if (instant_us > batch->now_us)
        return MDB_NOTFOUND;
    memcpy(ret_id->bytes, idem_read_bytes(&reader, IDEM_ID_SIZE).data, IDEM_ID_SIZE);
    return mdb_cursor_del(batch->expiry, 0);
}

int idem_lmdb_sweep(struct idem_lmdb_batch *batch, struct idem_op *op)
{
    uint32_t steps = op->in.sweep.limit < STEPS_MAX ? op->in.sweep.limit : STEPS_MAX;
    struct idem_id id;
    int code = cursor_need(batch);
    int dead;

    op->out.now_us = batch->now_us;
    op->out.more = true;
    for (uint32_t i = 0; i < steps && !code && op->out.more; i++) {
        code = entry_take(batch, &id);
        if (code == MDB_NOTFOUND) {
            op->out.more = false;
            code = 0;
        } else if (!code) {
            batch->written = true;
            batch->removed = true;
            code = entry_settle(batch, op, &id);
        }
    }
    /* A reader that died holds on to pages that were freed since. */
    mdb_reader_check(batch->store->env, &dead);
    op->result = IDEM_RESULT_OK;
    return code;
}
