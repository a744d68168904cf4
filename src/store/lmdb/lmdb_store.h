/*
 * The LMDB store's own types, shared by its files:
 *
 *   lmdb.c         the backend's functions: open, close, peek, describe
 *   directory.c    may the store live in this directory; one handle a directory and process
 *   create.c       the file: is it there, may it be made, making it
 *   environment.c  LMDB's environment: open it, check it, mend it
 *   pages.c        a look at the pages that LMDB would follow without a look
 *   batch.c        one transaction around a batch; what to do when it does not fit
 *   record.c       one op on one id
 *   expiry.c       the index in time order, and the sweep
 *   space.c        how much room there is
 *   list.c         scan and audit
 *   map.c          pages that the process need not keep
 *   adopt.c        another store's salt, before its records are copied in
 *
 * Functions return 0, an MDB_ code or an errno, as LMDB does; lmdb.c turns them into idem's errors.
 */
#ifndef IDEM_STORE_LMDB_STORE_H
#define IDEM_STORE_LMDB_STORE_H

#include <idem/store.h>
#include <lmdb.h>
#include <pthread.h>
#include <sys/types.h>

#include "store/backend.h"
#include "store/lmdb/filesystem.h"

#define IDEM_LMDB_SIZE_DEFAULT        (UINT64_C(16) << 30)
#define IDEM_LMDB_SIZE_MIN            (UINT64_C(1) << 20)
#define IDEM_LMDB_SIZE_MAX            (UINT64_C(1) << 44)
#define IDEM_LMDB_RESERVE_SHARE       16
#define IDEM_LMDB_RESERVE_DEFAULT_MAX (UINT64_C(64) << 20)
#define IDEM_LMDB_RESERVE_MIN         (UINT64_C(128) << 10) /* a few verdicts and their pages */

#define IDEM_LMDB_VERSION      1
#define IDEM_LMDB_VERSION_NAME "version" /* keys in "meta", terminator included */
#define IDEM_LMDB_SALT_NAME    "salt"
#define IDEM_LMDB_DATABASES    4

#define IDEM_LMDB_PATH_SIZE (IDEM_URL_SIZE_MAX + 32) /* of a file in the directory */

/* When the map was last tidied up, and the process's page faults until then; see map.c. */
struct idem_lmdb_touched {
    time_t at_s;
    long faults;
};

struct idem_lmdb_options {
    uint64_t size;    /* of the map: the most that the store may grow to */
    uint64_t reserve; /* bytes that claims leave to verdicts; 0: to be chosen by the device */
    bool sync;
    bool create; /* a store that is not there is made */
};

/* What is known about room; bytes throughout. See space.c. */
struct idem_lmdb_space {
    uint64_t page_size;
    uint64_t high_water; /* pages below this have been used at least once */
    uint64_t map_end;
    uint64_t backed_end; /* below this the file has its room on the device */
    uint64_t size_end;   /* the file is at least this long */
    uint64_t free_bytes; /* in the free list when it was last counted */
    uint64_t written;    /* since then */
    unsigned count_in;   /* batches until the free list may be counted again */
    unsigned extend_in;  /* batches until the device is asked for room again */
    bool device_full;
    bool preallocates; /* the file system can promise room ahead */
};

struct idem_backend {
    MDB_env *env; /* NULL after it failed; opened again by the next batch */
    MDB_dbi records, expiry, meta, audit;
    MDB_txn *read_txn;    /* of the thread that applies */
    MDB_txn *peek_txn;    /* of the thread that peeks */
    pthread_mutex_t lock; /* held by a peek, and whoever replaces the map or the environment */
    char *directory;
    struct idem_lmdb_options options;
    struct idem_filesystem filesystem;
    const struct idem_clock *clock;
    pid_t pid; /* of the process that opened it: LMDB's handles do not survive a fork */
    dev_t device;
    ino_t inode;
    struct idem_lmdb_space space;
    struct idem_lmdb_touched touched;
    uint8_t *scratch; /* where a record is encoded that replaces the one it views */
    size_t scratch_size;
    struct idem_salt salt;
    bool made; /* by this opening: it is new */
};

/* One batch under way. */
struct idem_lmdb_batch {
    struct idem_backend *store;
    MDB_txn *txn;
    MDB_cursor *records;
    MDB_cursor *expiry; /* opened when first used */
    int64_t now_us;
    uint64_t fence_floor;
    uint64_t available; /* bytes that may still be written */
    unsigned indexed;   /* entries added to the expiry index */
    unsigned audited;   /* entries added to the audit */
    bool read_only;
    bool tight;   /* it did not fit before: no claims, no answers */
    bool written; /* something to commit */
    bool floor_known, floor_raised;
    bool removed; /* room may have come back */
};

/* directory.c */
IDEM_MUST_CHECK int idem_lmdb_options_read(const struct idem_url *url,
                                           struct idem_lmdb_options *ret_options,
                                           struct idem_message *message);
IDEM_MUST_CHECK int idem_lmdb_directory_prepare(struct idem_backend *store,
                                                struct idem_message *message);
IDEM_MUST_CHECK int idem_lmdb_directory_enter(struct idem_backend *store,
                                              struct idem_message *message);
void idem_lmdb_directory_leave(struct idem_backend *store);
IDEM_MUST_CHECK int idem_lmdb_directory_sync(const char *path);
void idem_lmdb_reserve_choose(struct idem_backend *store);
void idem_lmdb_user_name(char *ret_name, size_t size);

/* A file that root made is given to the owner of the directory, or the server could not open it. */
void idem_lmdb_file_give(const struct idem_backend *store, const char *name);

/* create.c: returns 0 when data.mdb is there; makes it if there never was one, and that is allowed.
 */
IDEM_MUST_CHECK int idem_lmdb_file_need(struct idem_backend *store, struct idem_message *message);

/* environment.c */
IDEM_MUST_CHECK int idem_lmdb_environment_open(struct idem_backend *store,
                                               struct idem_message *message);
void idem_lmdb_environment_close(struct idem_backend *store);
int idem_lmdb_failure(const struct idem_backend *store, int code, struct idem_message *message);

/*
 * Begins a transaction; *txn is made, or renewed when it is a read-only one that exists. Adopts a
 * map that another process has made larger.
 */
IDEM_MUST_CHECK int idem_lmdb_txn_begin(struct idem_backend *store, bool read_only, MDB_txn **txn);

/* batch.c */
IDEM_MUST_CHECK int idem_lmdb_batch_apply(struct idem_backend *store, struct idem_op *const *ops,
                                          size_t count);
bool idem_lmdb_is_full(int code);

/* record.c */
IDEM_MUST_CHECK int idem_lmdb_record_apply(struct idem_lmdb_batch *batch, struct idem_op *op);
IDEM_MUST_CHECK int idem_lmdb_record_get(struct idem_backend *store, MDB_txn *txn,
                                         struct idem_op *get);

/* The highest fence that was ever removed, and to tell it of another. */
IDEM_MUST_CHECK int idem_lmdb_fence_floor_read(struct idem_lmdb_batch *batch);
void idem_lmdb_fence_floor_raise(struct idem_lmdb_batch *batch, uint64_t fence);
IDEM_MUST_CHECK int idem_lmdb_fence_floor_write(struct idem_lmdb_batch *batch);

/* expiry.c */
IDEM_MUST_CHECK int idem_lmdb_expiry_add(struct idem_lmdb_batch *batch, const struct idem_id *id,
                                         int64_t instant_us);
IDEM_MUST_CHECK int idem_lmdb_sweep(struct idem_lmdb_batch *batch, struct idem_op *op);

/* space.c */
void idem_lmdb_space_init(struct idem_backend *store, uint64_t high_water);
IDEM_MUST_CHECK int idem_lmdb_space_begin(struct idem_lmdb_batch *batch, struct idem_op *const *ops,
                                          size_t count);
void idem_lmdb_space_end(struct idem_lmdb_batch *batch);
void idem_lmdb_space_use(struct idem_lmdb_batch *batch, size_t size);
bool idem_lmdb_space_is_out(const struct idem_backend *store);
IDEM_MUST_CHECK int idem_lmdb_space_free(struct idem_backend *store, uint64_t *ret_bytes);

/* What a claim would find: bytes that may be written, the free list and the reserve included. */
IDEM_MUST_CHECK int idem_lmdb_space_look(struct idem_backend *store, uint64_t *ret_available);

/* pages.c: MDB_CORRUPTED when a page is not what it must be. Looks at so many pages at most. */
IDEM_MUST_CHECK int idem_lmdb_pages_check(struct idem_backend *store);

/* map.c: gives back what was read through the map, now and then. Between transactions. */
void idem_lmdb_map_tidy(struct idem_backend *store);

static inline MDB_val idem_lmdb_value(const void *data, size_t size)
{
    MDB_val value = {size, (void *)(uintptr_t)data};

    return value;
}

static inline bool idem_lmdb_space_has_room(const struct idem_lmdb_batch *batch)
{
    return !batch->tight && batch->available > batch->store->options.reserve;
}

/* True when the answer may be kept, and half of the reserve is still there for those to come. */
static inline bool idem_lmdb_space_fits(const struct idem_lmdb_batch *batch, size_t size)
{
    uint64_t needed = size + batch->store->options.reserve / 2;

    return size == 0 || (!batch->tight && needed <= batch->available);
}

/* adopt.c: MDB_KEYEXIST when the store holds records under its own salt. */
IDEM_MUST_CHECK int idem_lmdb_adopt(struct idem_backend *store, const struct idem_salt *salt,
                                    int64_t now_us);

/* list.c */
IDEM_MUST_CHECK int idem_lmdb_scan(struct idem_lmdb_batch *batch, struct idem_op *op);
IDEM_MUST_CHECK int idem_lmdb_audit_add(struct idem_lmdb_batch *batch, const struct idem_op *op,
                                        const struct idem_record *was);
IDEM_MUST_CHECK int idem_lmdb_audit_list(struct idem_lmdb_batch *batch, struct idem_op *op);

#endif
