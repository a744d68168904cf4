/*
 * How much room there is. A store that is nearly full refuses claims and still takes every verdict,
 * which needs two bounds to be watched:
 *
 *   the map     what was never used of it (above the high-water mark), and what the free list holds
 *   the device  the file is given its room ahead of the high-water mark, by at least the reserve,
 * so that a device that others fill up does not take away what verdicts need
 *
 * The room ahead also makes the file longer, not only its share of the device: LMDB does not write
 * pages that a transaction used and gave up again, so that a sound file could end before its
 * high-water mark and could not be told from one that was cut off.
 *
 * The free list is counted only when the rest of the map is small, and then not in every batch: in
 * between, what is written is taken off the last count.
 */
#define _GNU_SOURCE /* fallocate */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/lmdb/lmdb_store.h"

#define OP_PAGES    32 /* that one op may touch in all trees: copied, split, and their free list */
#define SWEPT_PAGES 16 /* that removing one record may touch */
#define BATCH_PAGES 64 /* that a commit touches whatever it holds */
#define COUNT_EVERY 16 /* batches */
#define STEP_SHARE  16 /* of the reserve: how much more than needed is set aside at a time */
#define STEP_MIN    (UINT64_C(1) << 20)

void idem_lmdb_space_init(struct idem_backend *store, uint64_t high_water)
{
    struct idem_lmdb_space *space = &store->space;
    MDB_stat status;

    memset(space, 0, sizeof *space);
    space->page_size = mdb_env_stat(store->env, &status) ? 4096 : status.ms_psize;
    space->high_water = high_water;
    space->preallocates = !store->filesystem.copies_on_write;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t above(uint64_t end, uint64_t start)
{
    return end > start ? end - start : 0;
}

/* An upper bound of what the batch may use of the file. */
static uint64_t batch_bound(const struct idem_lmdb_space *space, struct idem_op *const *ops,
                            size_t count)
{
    uint64_t bound = (BATCH_PAGES + OP_PAGES * (uint64_t)count) * space->page_size;

    for (size_t i = 0; i < count; i++) {
        if (ops[i]->kind == IDEM_OP_COMPLETE)
            bound += ops[i]->in.verdict.answer.body.size + ops[i]->in.verdict.answer.headers.size;
        else if (ops[i]->kind == IDEM_OP_RESOLVE)
            bound += ops[i]->in.resolve.answer.body.size + ops[i]->in.resolve.answer.headers.size;
        else if (ops[i]->kind == IDEM_OP_SWEEP)
            bound += SWEPT_PAGES * (uint64_t)ops[i]->in.sweep.limit * space->page_size;
    }
    return bound;
}

static int allocate(int fd, uint64_t start, uint64_t end)
{
    int result;

    do
        result = fallocate(fd, 0, (off_t)start, (off_t)(end - start));
    while (result && errno == EINTR);
    return result ? errno : 0;
}

/* Makes the file long enough without asking for room. Under the write lock: it never gets shorter.
 */
static int length_extend(struct idem_lmdb_space *space, int fd, uint64_t end)
{
    struct stat file;

    if (end <= space->size_end)
        return 0;
    if (fstat(fd, &file))
        return errno;
    if ((uint64_t)file.st_size < end && ftruncate(fd, (off_t)end))
        return errno;
    space->size_end = end;
    return 0;
}

static int backing_extend(struct idem_lmdb_space *space, int fd, uint64_t end)
{
    int code = allocate(fd, space->backed_end, end);

    if (code == 0) {
        space->backed_end = end;
        space->device_full = false;
        if (space->size_end < end)
            space->size_end = end;
    } else if (code == ENOSPC || code == EDQUOT) {
        space->device_full = true;
        space->extend_in = COUNT_EVERY;
    } else if (code == EOPNOTSUPP || code == ENOSYS) {
        space->preallocates = false;
    } else {
        return code;
    }
    return 0;
}

/* Sees to it that the file has its length, and its room where the file system can promise it. */
static int extend(struct idem_backend *store, uint64_t bound)
{
    struct idem_lmdb_space *space = &store->space;
    uint64_t share = store->options.reserve / STEP_SHARE;
    uint64_t step = share > STEP_MIN ? share : STEP_MIN;
    uint64_t backed = space->high_water + store->options.reserve;
    uint64_t backed_end = smaller(space->map_end, (backed + step) / step * step);
    mdb_filehandle_t fd;
    int code = mdb_env_get_fd(store->env, &fd);

    backed = smaller(backed, space->map_end);
    if (!code && space->preallocates && space->backed_end < backed && space->extend_in == 0)
        code = backing_extend(space, fd, backed_end);
    if (!code)
        code = length_extend(space, fd, smaller(backed + bound, space->map_end));
    if (space->extend_in > 0)
        space->extend_in--;
    return code;
}

/* Bytes above the high-water mark that can be had, from the map and from the device. */
static uint64_t room_ahead(struct idem_backend *store)
{
    struct idem_lmdb_space *space = &store->space;
    uint64_t ahead = above(space->map_end, space->high_water);
    struct statvfs device;

    if (space->preallocates)
        return space->device_full ? smaller(ahead, above(space->backed_end, space->high_water))
                                  : ahead;
    if (statvfs(store->directory, &device))
        return ahead;
    return smaller(ahead, (uint64_t)device.f_bavail * device.f_frsize);
}

bool idem_lmdb_space_is_out(const struct idem_backend *store)
{
    struct statvfs device;

    if (statvfs(store->directory, &device))
        return false;
    return (uint64_t)device.f_bavail * device.f_frsize < store->options.reserve;
}

/* The free list is LMDB's database 0: a list of pages for each transaction, its length first. */
int idem_lmdb_space_free(struct idem_backend *store, uint64_t *ret_bytes)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    uint64_t pages = 0;
    int code = idem_lmdb_txn_begin(store, true, &store->read_txn);

    if (code)
        return code;
    code = mdb_cursor_open(store->read_txn, 0, &cursor);
    if (!code) {
        while (!(code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT))) {
            size_t length;

            memcpy(&length, value.mv_data, sizeof length);
            pages += length;
        }
        mdb_cursor_close(cursor);
    }
    mdb_txn_reset(store->read_txn);
    if (code != MDB_NOTFOUND)
        return code;
    *ret_bytes = pages * store->space.page_size;
    return 0;
}

static int free_count(struct idem_backend *store)
{
    struct idem_lmdb_space *space = &store->space;
    int code = idem_lmdb_space_free(store, &space->free_bytes);

    space->written = 0;
    space->count_in = COUNT_EVERY;
    return code;
}

/* The estimate when the map is nearly used up. */
static int available_estimate(struct idem_lmdb_batch *batch, uint64_t ahead)
{
    struct idem_backend *store = batch->store;
    struct idem_lmdb_space *space = &store->space;
    int code = 0;

    if (space->count_in == 0)
        code = free_count(store);
    else
        space->count_in--;
    batch->available = above(ahead + space->free_bytes, space->written);
    if (!code && batch->available <= store->options.reserve && space->written > 0) {
        /* It may be too dark an estimate: what was written came from above as well. */
        code = free_count(store);
        batch->available = ahead + space->free_bytes;
    }
    return code;
}

int idem_lmdb_space_begin(struct idem_lmdb_batch *batch, struct idem_op *const *ops, size_t count)
{
    struct idem_backend *store = batch->store;
    struct idem_lmdb_space *space = &store->space;
    uint64_t bound = batch_bound(space, ops, count);
    uint64_t ahead;
    MDB_envinfo info;
    int code = mdb_env_info(store->env, &info);

    if (code)
        return code;
    space->high_water = (uint64_t)(info.me_last_pgno + 1) * space->page_size;
    space->map_end = info.me_mapsize / space->page_size * space->page_size;
    code = extend(store, bound);
    if (code)
        return code;
    ahead = room_ahead(store);
    if (ahead > 2 * store->options.reserve + bound) {
        batch->available = ahead;
        return 0;
    }
    return available_estimate(batch, ahead);
}

int idem_lmdb_space_look(struct idem_backend *store, uint64_t *ret_available)
{
    uint64_t free_bytes = 0;
    int code = idem_lmdb_space_free(store, &free_bytes);

    if (!code)
        *ret_available = room_ahead(store) + free_bytes;
    return code;
}

void idem_lmdb_space_use(struct idem_lmdb_batch *batch, size_t size)
{
    uint64_t page = batch->store->space.page_size;
    uint64_t used = size < page / 2 ? size : (size / page + 1) * page;

    batch->available = above(batch->available, used);
    batch->store->space.written += used;
}

void idem_lmdb_space_end(struct idem_lmdb_batch *batch)
{
    if (batch->removed)
        batch->store->space.count_in = 0;
}
