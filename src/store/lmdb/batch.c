/*
 * One transaction around a batch. When it does not fit, nothing of it was done; it is then applied
 * in halves, down to single ops, and an op that does not fit alone is applied once more `tight`:
 * claims are refused, answers become tombstones. Records that are live are never removed for it.
 */
#include <errno.h>

#include "base/memory.h"
#include "store/keep.h"
#include "store/lmdb/lmdb_store.h"

#define SCRATCH_KEPT_MAX (1u << 20) /* bytes kept from one batch to the next */

bool idem_lmdb_is_full(int code)
{
    return code == MDB_MAP_FULL || code == MDB_TXN_FULL || code == ENOSPC || code == EDQUOT;
}

static bool op_reads_only(const struct idem_op *op)
{
    return op->kind == IDEM_OP_GET || op->kind == IDEM_OP_SCAN || op->kind == IDEM_OP_AUDIT;
}

static int op_apply(struct idem_lmdb_batch *batch, struct idem_op *op)
{
    switch (op->kind) {
    case IDEM_OP_SCAN:
        return idem_lmdb_scan(batch, op);
    case IDEM_OP_SWEEP:
        return idem_lmdb_sweep(batch, op);
    case IDEM_OP_AUDIT:
        return idem_lmdb_audit_list(batch, op);
    default:
        return idem_lmdb_record_apply(batch, op);
    }
}

static void batch_abort(struct idem_lmdb_batch *batch)
{
    /* LMDB closes the cursors of a writing transaction itself, and only those. */
    if (!batch->read_only) {
        mdb_txn_abort(batch->txn);
        return;
    }
    if (batch->records)
        mdb_cursor_close(batch->records);
    mdb_txn_reset(batch->txn);
}

static int batch_begin(struct idem_lmdb_batch *batch, struct idem_op *const *ops, size_t count)
{
    struct idem_backend *store = batch->store;
    MDB_txn **txn = batch->read_only ? &store->read_txn : &batch->txn;
    int code = idem_lmdb_txn_begin(store, batch->read_only, txn);

    if (code)
        return code;
    batch->txn = *txn;
    /* Now, not before: the wait for another process's transaction is over. */
    batch->now_us = idem_clock_now_us(store->clock);
    if (!batch->read_only)
        code = idem_lmdb_space_begin(batch, ops, count);
    if (!code)
        code = mdb_cursor_open(batch->txn, store->records, &batch->records);
    if (code)
        batch_abort(batch);
    return code;
}

static int batch_end(struct idem_lmdb_batch *batch)
{
    int code;

    if (!batch->written) {
        batch_abort(batch);
        return 0;
    }
    code = idem_lmdb_fence_floor_write(batch);
    if (code) {
        batch_abort(batch);
        return code;
    }
    code = mdb_txn_commit(batch->txn);
    if (!code)
        idem_lmdb_space_end(batch);
    /* LMDB calls a write that a full device cut short an I/O error. */
    return code == EIO && idem_lmdb_space_is_out(batch->store) ? ENOSPC : code;
}

static bool ops_read_only(struct idem_op *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!op_reads_only(ops[i]))
            return false;
    return true;
}

/* All ops in one transaction. On failure nothing was done and no op has a result. */
static int batch_run(struct idem_backend *store, struct idem_op *const *ops, size_t count,
                     bool tight)
{
    struct idem_lmdb_batch batch = {
        .store = store,
        .read_only = ops_read_only(ops, count),
        .tight = tight,
    };
    int code = batch_begin(&batch, ops, count);

    if (code)
        return code;
    for (size_t i = 0; i < count && !code; i++)
        code = op_apply(&batch, ops[i]);
    if (code)
        batch_abort(&batch);
    else
        code = batch_end(&batch);
    if (code)
        for (size_t i = 0; i < count; i++)
            idem_op_deinit(ops[i]);
    return code;
}

/* One op that did not fit, once more with as little as can be. */
static int op_run_tight(struct idem_backend *store, struct idem_op *op)
{
    int code = batch_run(store, &op, 1, true);

    if (!idem_lmdb_is_full(code))
        return code;
    /* A sweep that cannot even copy the pages on its way is not the store's failure: later. */
    if (op->kind == IDEM_OP_SWEEP) {
        op->result = IDEM_RESULT_OK;
        op->out.now_us = idem_clock_now_us(store->clock);
        return 0;
    }
    return code;
}

static int batch_split(struct idem_backend *store, struct idem_op *const *ops, size_t count)
{
    int code = batch_run(store, ops, count, false);

    if (!idem_lmdb_is_full(code))
        return code;
    if (count == 1)
        return op_run_tight(store, ops[0]);
    code = batch_split(store, ops, count / 2);
    return code ? code : batch_split(store, ops + count / 2, count - count / 2);
}

int idem_lmdb_batch_apply(struct idem_backend *store, struct idem_op *const *ops, size_t count)
{
    int code = batch_split(store, ops, count);

    if (store->scratch_size > SCRATCH_KEPT_MAX) {
        idem_free(store->scratch);
        store->scratch = NULL;
        store->scratch_size = 0;
    }
    return code;
}
