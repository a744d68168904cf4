/*
 * One op on one id: find it, let idem_transition() decide, write what it says.
 *
 * A claim is mostly for an id that is not there. So it is put at once, on condition that nothing is
 * in its place; only when something is, that is looked at. One search of the tree either way.
 */
#include <errno.h>

#include "base/cursor.h"
#include "base/memory.h"
#include "core/transition.h"
#include "store/keep.h"
#include "store/lmdb/lmdb_store.h"

static const char fence_name[] = "fence";

int idem_lmdb_fence_floor_read(struct idem_lmdb_batch *batch)
{
    MDB_val key = idem_lmdb_value(fence_name, sizeof fence_name);
    MDB_val value;
    struct idem_reader reader;
    int code;

    if (batch->floor_known)
        return 0;
    code = mdb_get(batch->txn, batch->store->meta, &key, &value);
    if (code && code != MDB_NOTFOUND)
        return code;
    if (code == 0) {
        if (value.mv_size != 8)
            return MDB_CORRUPTED;
        idem_reader_init(&reader, idem_bytes_make(value.mv_data, value.mv_size));
        batch->fence_floor = idem_read_u64(&reader);
    }
    batch->floor_known = true;
    return 0;
}

void idem_lmdb_fence_floor_raise(struct idem_lmdb_batch *batch, uint64_t fence)
{
    if (fence <= batch->fence_floor)
        return;
    batch->fence_floor = fence;
    batch->floor_raised = true;
}

int idem_lmdb_fence_floor_write(struct idem_lmdb_batch *batch)
{
    uint8_t bytes[8];
    MDB_val key = idem_lmdb_value(fence_name, sizeof fence_name);
    MDB_val value = idem_lmdb_value(bytes, sizeof bytes);
    struct idem_writer writer;

    if (!batch->floor_raised)
        return 0;
    idem_writer_init(&writer, bytes, sizeof bytes);
    idem_write_u64(&writer, batch->fence_floor);
    return mdb_put(batch->txn, batch->store->meta, &key, &value, 0);
}

/* False when the blob is damaged, or is the record of another id. */
static bool record_read(MDB_val blob, const struct idem_id *id, struct idem_record *ret_record)
{
    return !idem_record_decode(idem_bytes_make(blob.mv_data, blob.mv_size), ret_record) &&
           idem_id_equal(&ret_record->id, id);
}

static int record_find(struct idem_lmdb_batch *batch, const struct idem_id *id, MDB_val *ret_value)
{
    MDB_val key = idem_lmdb_value(id->bytes, IDEM_ID_SIZE);

    return mdb_cursor_get(batch->records, &key, ret_value, MDB_SET);
}

static void written(struct idem_lmdb_batch *batch, size_t size)
{
    batch->written = true;
    idem_lmdb_space_use(batch, size);
}

/* Encodes in place. MDB_KEYEXIST: something is there; the cursor stands on it, *ret_found is it. */
static int record_insert(struct idem_lmdb_batch *batch, const struct idem_record *record,
                         MDB_val *ret_found)
{
    MDB_val key = idem_lmdb_value(record->id.bytes, IDEM_ID_SIZE);
    MDB_val value = {0, NULL};
    int code;

    if (idem_record_size(record, &value.mv_size))
        return EINVAL;
    code = mdb_cursor_put(batch->records, &key, &value, MDB_NOOVERWRITE | MDB_RESERVE);
    if (code == MDB_KEYEXIST)
        *ret_found = value;
    if (code)
        return code;
    idem_record_encode(record, value.mv_data, value.mv_size);
    written(batch, value.mv_size);
    return 0;
}

static int scratch_grow(struct idem_backend *store, size_t size)
{
    uint8_t *grown;

    if (size <= store->scratch_size)
        return 0;
    grown = idem_realloc(store->scratch, size);
    if (!grown)
        return ENOMEM;
    store->scratch = grown;
    store->scratch_size = size;
    return 0;
}

/*
 * Writes over what the cursor stands on. The record views into that very place, so it is encoded
 * elsewhere first.
 */
static int record_replace(struct idem_lmdb_batch *batch, const struct idem_record *record)
{
    MDB_val key = idem_lmdb_value(record->id.bytes, IDEM_ID_SIZE);
    MDB_val value;
    size_t size;
    int code;

    if (idem_record_size(record, &size))
        return EINVAL;
    code = scratch_grow(batch->store, size);
    if (code)
        return code;
    idem_record_encode(record, batch->store->scratch, size);
    value = idem_lmdb_value(batch->store->scratch, size);
    code = mdb_cursor_put(batch->records, &key, &value, MDB_CURRENT);
    if (!code)
        written(batch, size);
    return code;
}

static int64_t add_saturated(int64_t instant_us, int64_t length_us)
{
    return length_us > IDEM_NEVER_US - instant_us ? IDEM_NEVER_US : instant_us + length_us;
}

/*
 * When the sweeper is to look at a record that begins its life: for a claim when its answer will
 * have expired at the latest, if all goes as it should. When it goes otherwise, or the record is
 * renewed, the sweeper finds it alive and moves the entry. A record that a verdict lets expire
 * earlier is as good as absent from then on; only its room comes back later.
 */
static int64_t index_instant(const struct idem_op *op, const struct idem_record *record)
{
    const struct idem_claim *in = &op->in.claim;

    if (op->kind != IDEM_OP_CLAIM)
        return record->expires_us;
    return add_saturated(record->lease_until_us,
                         in->ttl_us < in->unknown_ttl_us ? in->ttl_us : in->unknown_ttl_us);
}

/*
 * Keeps this true: a record that expires at all has an entry in the index, at whatever instant. One
 * that is claimed anew after it expired has that of its earlier life, which the sweeper will move.
 * A second entry, which only a forgotten id can get, goes when the sweeper meets it.
 */
static int index_update(struct idem_lmdb_batch *batch, const struct idem_op *op,
                        const struct idem_record *current, const struct idem_record *record)
{
    if (!current)
        return idem_lmdb_expiry_add(batch, &op->id, index_instant(op, record));
    if (current->expires_us == IDEM_NEVER_US)
        return idem_lmdb_expiry_add(batch, &op->id, record->expires_us);
    return 0;
}

static int record_put(struct idem_lmdb_batch *batch, struct idem_op *op,
                      const struct idem_record *current, struct idem_record *record)
{
    MDB_val found;
    int code;

    if (!idem_lmdb_space_fits(batch, idem_answer_size(record))) {
        if (op->kind == IDEM_OP_PUT) { /* a copy is whole or not made */
            op->result = IDEM_RESULT_FULL;
            return 0;
        }
        idem_answer_drop(op, record, IDEM_REASON_NO_ROOM);
    }
    code = current ? record_replace(batch, record) : record_insert(batch, record, &found);
    return code ? code : index_update(batch, op, current, record);
}

/* `record` is NULL when it is damaged: its fence is not known, and the clock stands in for it. */
static int record_delete(struct idem_lmdb_batch *batch, const struct idem_record *record)
{
    int code = idem_lmdb_fence_floor_read(batch);

    if (code)
        return code;
    idem_lmdb_fence_floor_raise(batch, record ? record->fence : (uint64_t)batch->now_us);
    batch->written = true;
    batch->removed = true;
    return mdb_cursor_del(batch->records, 0);
}

static bool leaves_audit(const struct idem_op *op, const struct idem_record *current)
{
    return (op->kind == IDEM_OP_RESOLVE || op->kind == IDEM_OP_FORGET) && current &&
           current->kind != IDEM_KIND_SELFTEST;
}

/*
 * The audit comes last: putting an entry may move pages to disk, and the record that is written
 * views into one.
 */
static int change_apply(struct idem_lmdb_batch *batch, struct idem_op *op,
                        const struct idem_record *current, struct idem_transition *transition)
{
    int code = 0;

    if (transition->change == IDEM_CHANGE_PUT)
        code = record_put(batch, op, current, &transition->record);
    else if (transition->change == IDEM_CHANGE_DELETE)
        code = record_delete(batch, current);
    if (code || transition->change == IDEM_CHANGE_NONE || !leaves_audit(op, current))
        return code;
    return idem_lmdb_audit_add(batch, op, current);
}

/* A damaged record is left for a person to look at, who may then forget it by force. */
static int damaged_apply(struct idem_lmdb_batch *batch, struct idem_op *op)
{
    int code;

    op->result = IDEM_RESULT_CORRUPT;
    if (op->kind != IDEM_OP_FORGET || !op->in.forget.force)
        return 0;
    op->result = IDEM_RESULT_OK;
    code = record_delete(batch, NULL);
    return code ? code : idem_lmdb_audit_add(batch, op, NULL);
}

static int kept(const struct idem_record *current, MDB_val blob, struct idem_op *op)
{
    int error = idem_record_keep(current, idem_bytes_make(blob.mv_data, blob.mv_size),
                                 op->out.now_us, &op->out.found);

    return error ? ENOMEM : 0;
}

/* The self-test cleans up after itself and must not fail for want of room. */
static bool room_for(const struct idem_lmdb_batch *batch, const struct idem_op *op)
{
    return idem_lmdb_space_has_room(batch) ||
           (!batch->tight && op->kind == IDEM_OP_CLAIM && op->in.claim.kind == IDEM_KIND_SELFTEST);
}

/* The op on what is there, on which the cursor stands; NULL for nothing. */
static int found_apply(struct idem_lmdb_batch *batch, struct idem_op *op, const MDB_val *found)
{
    struct idem_transition transition;
    struct idem_record current;
    const struct idem_record *there = NULL;
    int code;

    op->out.now_us = batch->now_us;
    if (found) {
        if (!record_read(*found, &op->id, &current))
            return damaged_apply(batch, op);
        there = &current;
    }
    code = idem_lmdb_fence_floor_read(batch);
    if (code)
        return code;
    idem_transition(op, batch->now_us, there, batch->fence_floor, room_for(batch, op), &transition);
    if (there && idem_op_wants_record(op))
        return kept(there, *found, op);
    return change_apply(batch, op, there, &transition);
}

static int record_update(struct idem_lmdb_batch *batch, struct idem_op *op)
{
    MDB_val found;
    int code = record_find(batch, &op->id, &found);

    if (code && code != MDB_NOTFOUND)
        return code;
    return found_apply(batch, op, code ? NULL : &found);
}

static int record_claim(struct idem_lmdb_batch *batch, struct idem_op *op)
{
    struct idem_transition transition;
    MDB_val found;
    int code;

    if (!room_for(batch, op))
        return record_update(batch, op);
    code = idem_lmdb_fence_floor_read(batch);
    if (code)
        return code;
    idem_transition(op, batch->now_us, NULL, batch->fence_floor, true, &transition);
    code = record_insert(batch, &transition.record, &found);
    if (code == MDB_KEYEXIST) {
        idem_op_deinit(op); /* it was not absent after all */
        return found_apply(batch, op, &found);
    }
    return code ? code : index_update(batch, op, NULL, &transition.record);
}

int idem_lmdb_record_apply(struct idem_lmdb_batch *batch, struct idem_op *op)
{
    return op->kind == IDEM_OP_CLAIM ? record_claim(batch, op) : record_update(batch, op);
}

int idem_lmdb_record_get(struct idem_backend *store, MDB_txn *txn, struct idem_op *get)
{
    struct idem_transition transition;
    struct idem_record current;
    MDB_val key = idem_lmdb_value(get->id.bytes, IDEM_ID_SIZE);
    MDB_val found;
    int64_t now_us = idem_clock_now_us(store->clock);
    int code = mdb_get(txn, store->records, &key, &found);

    if (code && code != MDB_NOTFOUND)
        return code;
    get->out.now_us = now_us;
    if (!code && !record_read(found, &get->id, &current)) {
        get->result = IDEM_RESULT_CORRUPT;
        return 0;
    }
    idem_transition(get, now_us, code ? NULL : &current, 0, false, &transition);
    return idem_op_wants_record(get) ? kept(&current, found, get) : 0;
}
