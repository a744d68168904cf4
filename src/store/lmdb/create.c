/*
 * The store's file is made once, and an accident is never taken for a beginning:
 *
 *   1. data.mdb is there, with something in it: it is opened, and nothing is ever added to it that
 *      only a new store needs (environment.c)
 *   2. data.mdb is empty, or gone while lock.mdb is there: a store was here and is lost; refused
 *   3. neither is there: the store is made under another name, with version and salt in it, put on
 *      disk, and only then given its name. What bears the name was whole once, so that a process
 *      that is killed while making one leaves nothing behind that looks like 2.
 *
 * One process at a time does 2 and 3. It holds a lock on the directory, which ends with it; what
 * one that was killed left under the other name is replaced by the next.
 */
#define _GNU_SOURCE /* renameat2 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/lmdb/lmdb_store.h"

#define FRESH_NAME "data.mdb.new"

static int lost(const struct idem_backend *store, const char *what, struct idem_message *message)
{
    idem_message_set(message,
                     "the LMDB store in %s is lost: %s. Restore it from a copy. Only if it never "
                     "held a key, remove data.mdb and lock.mdb, and an empty store is made: a "
                     "retry of a request from before would execute again",
                     store->directory, what);
    return IDEM_ERR_CORRUPT;
}

static void path_of(const struct idem_backend *store, const char *name, char *ret_path)
{
    snprintf(ret_path, IDEM_LMDB_PATH_SIZE, "%s/%s", store->directory, name);
}

/* 1 and 2. `*ret_there` false: it may be made. */
static int file_look(const struct idem_backend *store, bool *ret_there,
                     struct idem_message *message)
{
    char data[IDEM_LMDB_PATH_SIZE], lock[IDEM_LMDB_PATH_SIZE];
    struct stat status;

    path_of(store, "data.mdb", data);
    path_of(store, "lock.mdb", lock);
    if (stat(data, &status) == 0) {
        *ret_there = true;
        return status.st_size > 0
                   ? IDEM_OK
                   : lost(store, "data.mdb is empty, as a failed copy leaves it", message);
    }
    if (errno != ENOENT)
        return idem_lmdb_failure(store, errno, message);
    if (lstat(data, &status) == 0)
        return lost(store, "data.mdb is a link, and what it links to is not there", message);
    if (lstat(lock, &status) == 0)
        return lost(store, "data.mdb is gone, while lock.mdb is still there", message);
    if (errno != ENOENT)
        return idem_lmdb_failure(store, errno, message);
    *ret_there = false;
    return IDEM_OK;
}

static int contents_make(MDB_txn *txn)
{
    static const char *const names[] = {"records", "expiry", "audit", "meta"};
    static const uint8_t version = IDEM_LMDB_VERSION;
    struct idem_salt salt;
    MDB_val key, value;
    MDB_dbi database = 0;
    int code = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0] && !code; i++)
        code = mdb_dbi_open(txn, names[i], MDB_CREATE, &database);
    if (code)
        return code;
    key = idem_lmdb_value(IDEM_LMDB_VERSION_NAME, sizeof IDEM_LMDB_VERSION_NAME);
    value = idem_lmdb_value(&version, sizeof version);
    code = mdb_put(txn, database, &key, &value, 0); /* the last one opened: meta */
    if (code)
        return code;
    randombytes_buf(salt.bytes, sizeof salt.bytes);
    key = idem_lmdb_value(IDEM_LMDB_SALT_NAME, sizeof IDEM_LMDB_SALT_NAME);
    value = idem_lmdb_value(salt.bytes, sizeof salt.bytes);
    return mdb_put(txn, database, &key, &value, 0);
}

/* In an environment of its own without LMDB's lock file, since nobody else looks at it yet. */
static int environment_make(MDB_env *env, const struct idem_backend *store, const char *path)
{
    MDB_txn *txn;
    int code = mdb_env_set_mapsize(env, store->options.size);

    if (!code)
        code = mdb_env_set_maxdbs(env, IDEM_LMDB_DATABASES);
    if (!code)
        code = mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NORDAHEAD, 0600);
    if (!code)
        code = mdb_txn_begin(env, NULL, 0, &txn);
    if (code)
        return code;
    code = contents_make(txn);
    if (!code)
        return mdb_txn_commit(
            txn); /* with sync=off too: only once, and what follows relies on it */
    mdb_txn_abort(txn);
    return code;
}

/* Never over a file that came meanwhile: a person who restores one does not take the lock. */
static int name_give(const char *fresh, const char *data)
{
    if (renameat2(AT_FDCWD, fresh, AT_FDCWD, data, RENAME_NOREPLACE) == 0)
        return 0;
    /* Not every file system knows the flag; those that do not are left with a smaller promise. */
    if (errno == EINVAL && access(data, F_OK) && errno == ENOENT)
        return rename(fresh, data) ? errno : 0;
    return errno;
}

/* 3, under the lock. */
static int file_make(struct idem_backend *store)
{
    char fresh[IDEM_LMDB_PATH_SIZE], data[IDEM_LMDB_PATH_SIZE];
    MDB_env *env;
    int code;

    path_of(store, FRESH_NAME, fresh);
    path_of(store, "data.mdb", data);
    if (unlink(fresh) && errno != ENOENT)
        return errno;
    code = mdb_env_create(&env);
    if (code)
        return code;
    code = environment_make(env, store, fresh);
    mdb_env_close(env);
    if (!code) {
        idem_lmdb_file_give(store, FRESH_NAME);
        code = name_give(fresh, data);
        store->made = code == 0;
        if (!code)
            code = idem_lmdb_directory_sync(store->directory);
    }
    if (code)
        (void)unlink(fresh);
    /* LMDB calls a write that a full device cut short an I/O error. */
    return code == EIO && idem_lmdb_space_is_out(store) ? ENOSPC : code;
}

static int absent(const struct idem_backend *store, struct idem_message *message)
{
    idem_message_set(message,
                     "there is no store in %s, and none is to be made (create=no): check the "
                     "path, and that its file system is mounted",
                     store->directory);
    return IDEM_ERR_UNAVAILABLE;
}

/* Waits for another that makes one; the directory is the store's user's alone. */
static int directory_lock(const char *path, int *ret_fd)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = 0;

    if (fd < 0)
        return errno;
    while (flock(fd, LOCK_EX)) {
        if (errno == EINTR)
            continue;
        code = errno;
        close(fd);
        return code;
    }
    *ret_fd = fd;
    return 0;
}

int idem_lmdb_file_need(struct idem_backend *store, struct idem_message *message)
{
    char data[IDEM_LMDB_PATH_SIZE];
    struct stat status;
    bool there = false;
    int fd = -1, error, code;

    path_of(store, "data.mdb", data);
    if (stat(data, &status) == 0)
        return file_look(store, &there, message);
    /* Who makes one makes lock.mdb next: only under the lock do the two tell anything together. */
    code = directory_lock(store->directory, &fd);
    if (code)
        return idem_lmdb_failure(store, code, message);
    error = file_look(store, &there, message);
    if (!error && !there)
        error = store->options.create ? idem_lmdb_failure(store, file_make(store), message)
                                      : absent(store, message);
    close(fd);
    return error;
}
