/*
 * LMDB's environment, opened in this order:
 *
 *   1. the file is there, or is made (create.c)
 *   2. map size, readers, and a last word should LMDB find its own file inconsistent
 *   3. open: LMDB checks the header
 *   4. the file must be as long as its header says, or reading it would end the process
 *   5. files made by root are given to the owner of the directory
 *   6. readers of dead processes are cleared
 *   7. the pages nearest to the header must be pages (pages.c), for the same reason as 4
 *   8. one transaction reads version and salt, and sets room aside
 *   9. with sync=always the names of new files are made as durable as what is in them
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/lmdb/lmdb_store.h"

#define READERS_MAX 512 /* two for each process that has the store open */
#define STREAMS     3   /* standard input, output and error have the lowest numbers */

/* LMDB aborts the process after this, rightly: what it would do next to the file is not known. */
static void environment_assert(MDB_env *env, const char *text)
{
    const struct idem_backend *store = mdb_env_get_userctx(env);

    fprintf(stderr,
            "idem: the LMDB store in %s is damaged (%s). Stop everything that uses it, move "
            "the directory aside and restore it; without it, keys that were used may execute "
            "again.\n",
            store->directory, text);
}

static int corrupt(const struct idem_backend *store, const char *what, struct idem_message *message)
{
    idem_message_set(message,
                     "the LMDB store in %s is damaged: %s. Restore the directory from a "
                     "copy, or move it aside to begin with an empty store; then no key used before "
                     "is protected: a retry of an old request would execute again",
                     store->directory, what);
    return IDEM_ERR_CORRUPT;
}

static int denied(const struct idem_backend *store, struct idem_message *message)
{
    char user[64];

    idem_lmdb_user_name(user, sizeof user);
    idem_message_set(message,
                     "user %s may not read and write the files in %s: give them to that "
                     "user (chown), or run as their owner",
                     user, store->directory);
    return IDEM_ERR_UNAVAILABLE;
}

static int failure_other(const struct idem_backend *store, int code, struct idem_message *message)
{
    idem_message_set(message, "the LMDB store in %s failed: %s", store->directory,
                     mdb_strerror(code));
    return IDEM_ERR_IO;
}

int idem_lmdb_failure(const struct idem_backend *store, int code, struct idem_message *message)
{
    switch (code) {
    case 0:
        return IDEM_OK;
    case ENOMEM:
        idem_message_set(message,
                         "the LMDB store in %s: there is not enough memory (a map of this "
                         "size also needs address space, see ulimit -v)",
                         store->directory);
        return IDEM_ERR_NOMEM;
    case EINVAL:
        idem_message_set(message, "the LMDB store in %s refused an argument", store->directory);
        return IDEM_ERR_INVALID;
    case EACCES:
    case EPERM:
    case EROFS:
        return denied(store, message);
    case ENOSPC:
    case EDQUOT:
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
        idem_message_set(message,
                         "the LMDB store in %s is full, even for a verdict: raise size in "
                         "its URL, or make room on the device",
                         store->directory);
        return IDEM_ERR_FULL;
    case MDB_READERS_FULL:
        idem_message_set(message, "the LMDB store in %s is open in too many processes (%d)",
                         store->directory, READERS_MAX / 2);
        return IDEM_ERR_UNAVAILABLE;
    case MDB_INVALID:
        return corrupt(store, "data.mdb is not a file that LMDB wrote", message);
    case MDB_VERSION_MISMATCH:
        return corrupt(store, "data.mdb was written by another version of LMDB", message);
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INCOMPATIBLE:
    case MDB_BAD_VALSIZE:
        return corrupt(store, mdb_strerror(code), message);
    default:
        return failure_other(store, code, message);
    }
}

static int txn_begin_once(struct idem_backend *store, bool read_only, MDB_txn **txn)
{
    if (read_only && *txn)
        return mdb_txn_renew(*txn);
    return mdb_txn_begin(store->env, NULL, read_only ? MDB_RDONLY : 0, txn);
}

int idem_lmdb_txn_begin(struct idem_backend *store, bool read_only, MDB_txn **txn)
{
    int code = txn_begin_once(store, read_only, txn);

    if (code == MDB_READERS_FULL) {
        int dead;

        mdb_reader_check(store->env, &dead);
        code = txn_begin_once(store, read_only, txn);
    }
    if (code == MDB_MAP_RESIZED) {
        /* Another process was given a larger size. No peek may look while the map moves. */
        pthread_mutex_lock(&store->lock);
        code = mdb_env_set_mapsize(store->env, 0);
        pthread_mutex_unlock(&store->lock);
        if (!code)
            code = txn_begin_once(store, read_only, txn);
    }
    return code;
}

/* A file that ends before the last page it should have would kill the reader (SIGBUS). */
static int length_check(struct idem_backend *store, struct idem_message *message)
{
    MDB_envinfo info;
    MDB_stat status;
    struct stat file;
    mdb_filehandle_t fd;

    if (mdb_env_info(store->env, &info) || mdb_env_stat(store->env, &status) ||
        mdb_env_get_fd(store->env, &fd) || fstat(fd, &file))
        return idem_lmdb_failure(store, errno, message);
    idem_lmdb_space_init(store, (uint64_t)(info.me_last_pgno + 1) * status.ms_psize);
    if ((uint64_t)file.st_size < store->space.high_water)
        return corrupt(store,
                       "data.mdb is shorter than it says itself, so it was cut off or not "
                       "copied whole",
                       message);
    return IDEM_OK;
}

static int databases_open(struct idem_backend *store, MDB_txn *txn)
{
    int code = mdb_dbi_open(txn, "records", 0, &store->records);

    if (!code)
        code = mdb_dbi_open(txn, "expiry", 0, &store->expiry);
    if (!code)
        code = mdb_dbi_open(txn, "meta", 0, &store->meta);
    if (!code)
        code = mdb_dbi_open(txn, "audit", 0, &store->audit);
    return code;
}

static int version_check(const struct idem_backend *store, MDB_val value,
                         struct idem_message *message)
{
    unsigned version = value.mv_size == 1 ? *(const uint8_t *)value.mv_data : 0;

    if (version == IDEM_LMDB_VERSION)
        return IDEM_OK;
    if (version == 0)
        return corrupt(store, "its version number is damaged", message);
    idem_message_set(message,
                     "the LMDB store in %s has format %u and this idem knows format %d: "
                     "use the idem that wrote it",
                     store->directory, version, IDEM_LMDB_VERSION);
    return IDEM_ERR_UNSUPPORTED;
}

/* A file that LMDB made is no store yet: one without version and salt lost them, or never was one.
 */
static int meta_read(struct idem_backend *store, MDB_txn *txn, struct idem_message *message)
{
    MDB_val key = idem_lmdb_value(IDEM_LMDB_VERSION_NAME, sizeof IDEM_LMDB_VERSION_NAME);
    MDB_val value;
    int code = mdb_get(txn, store->meta, &key, &value);
    int error;

    if (code == MDB_NOTFOUND)
        return corrupt(store, "its version number is missing", message);
    if (code)
        return idem_lmdb_failure(store, code, message);
    error = version_check(store, value, message);
    if (error)
        return error;
    key = idem_lmdb_value(IDEM_LMDB_SALT_NAME, sizeof IDEM_LMDB_SALT_NAME);
    if (mdb_get(txn, store->meta, &key, &value) || value.mv_size != IDEM_SALT_SIZE)
        return corrupt(store, "its salt is missing", message);
    memcpy(store->salt.bytes, value.mv_data, IDEM_SALT_SIZE);
    return IDEM_OK;
}

static int contents_open(struct idem_backend *store, struct idem_message *message)
{
    struct idem_lmdb_batch batch = {.store = store};
    int code = idem_lmdb_txn_begin(store, false, &batch.txn);
    int error;

    if (code)
        return idem_lmdb_failure(store, code, message);
    code = idem_lmdb_space_begin(&batch, NULL, 0);
    if (!code)
        code = databases_open(store, batch.txn);
    if (code == MDB_NOTFOUND)
        error = corrupt(store, "data.mdb holds no idem store", message);
    else if (code)
        error = idem_lmdb_failure(store, code, message);
    else
        error = meta_read(store, batch.txn, message);
    if (error) {
        mdb_txn_abort(batch.txn);
        return error;
    }
    return idem_lmdb_failure(store, mdb_txn_commit(batch.txn), message);
}

static int environment_configure(struct idem_backend *store)
{
    int code = mdb_env_create(&store->env);

    if (code)
        return code;
    mdb_env_set_userctx(store->env, store);
    mdb_env_set_assert(store->env, environment_assert);
    code = mdb_env_set_mapsize(store->env, store->options.size);
    if (!code)
        code = mdb_env_set_maxreaders(store->env, READERS_MAX);
    if (!code)
        code = mdb_env_set_maxdbs(store->env, IDEM_LMDB_DATABASES);
    return code;
}

/* The directory, and its parent, in case it is new itself; that one need not be ours to open. */
static int names_sync(const struct idem_backend *store)
{
    char parent[IDEM_LMDB_PATH_SIZE];

    if (!store->options.sync)
        return 0;
    snprintf(parent, sizeof parent, "%s/..", store->directory);
    (void)!idem_lmdb_directory_sync(parent);
    return idem_lmdb_directory_sync(store->directory);
}

/*
 * A process that closed a standard stream gives its number to the next file that it opens, and what
 * is then printed would be written over the records. Takes those numbers meanwhile; how many.
 */
static size_t streams_hold(int held[STREAMS])
{
    size_t count = 0;
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    while (fd >= 0 && fd < STREAMS) {
        held[count++] = fd;
        fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd >= 0)
        close(fd);
    return count;
}

static int environment_enter(struct idem_backend *store, struct idem_message *message)
{
    unsigned flags = MDB_NOTLS | MDB_NORDAHEAD | (store->options.sync ? 0 : MDB_NOSYNC);
    int held[STREAMS];
    size_t count = streams_hold(held);
    int code = environment_configure(store);

    if (!code)
        code = mdb_env_open(store->env, store->directory, flags, 0600);
    while (count > 0)
        close(held[--count]);
    return idem_lmdb_failure(store, code, message);
}

int idem_lmdb_environment_open(struct idem_backend *store, struct idem_message *message)
{
    int dead;
    int error = idem_lmdb_file_need(store, message);

    if (!error)
        error = environment_enter(store, message);
    if (!error)
        error = length_check(store, message);
    if (!error) {
        idem_lmdb_file_give(store, "data.mdb");
        idem_lmdb_file_give(store, "lock.mdb");
        mdb_reader_check(store->env, &dead);
        error = idem_lmdb_failure(store, idem_lmdb_pages_check(store), message);
    }
    if (!error)
        error = contents_open(store, message);
    if (!error)
        error = idem_lmdb_failure(store, names_sync(store), message);
    /* Opened again after a failure, it is as old as the first time. */
    store->options.create = store->options.create && error;
    if (error)
        idem_lmdb_environment_close(store);
    return error;
}

void idem_lmdb_environment_close(struct idem_backend *store)
{
    if (!store->env)
        return;
    if (store->read_txn)
        mdb_txn_abort(store->read_txn);
    if (store->peek_txn)
        mdb_txn_abort(store->peek_txn);
    store->read_txn = NULL;
    store->peek_txn = NULL;
    mdb_env_close(store->env);
    store->env = NULL;
}
