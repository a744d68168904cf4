/*
 * The LMDB store: embedded, local, one host. What the front calls; lmdb_store.h says where the rest
 * is.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/backend.h"
#include "store/facts.h"
#include "store/keep.h"
#include "store/lmdb/lmdb_store.h"

static char *text_copy(const char *text)
{
    char *copy = idem_malloc(strlen(text) + 1);

    if (copy)
        memcpy(copy, text, strlen(text) + 1);
    return copy;
}

static int memory_failure(struct idem_message *message)
{
    idem_message_set(message, "there is no memory left to open a store");
    return IDEM_ERR_NOMEM;
}

static int lmdb_check(const struct idem_url *url, char **ret_directory,
                      struct idem_message *message)
{
    struct idem_lmdb_options options;
    char *directory;
    int error = idem_lmdb_options_read(url, &options, message);

    if (error)
        return error;
    directory = text_copy(url->place);
    if (!directory)
        return memory_failure(message);
    *ret_directory = directory;
    return IDEM_OK;
}

static void store_free(struct idem_backend *store)
{
    pthread_mutex_destroy(&store->lock);
    idem_free(store->scratch);
    idem_free(store->directory);
    idem_free(store);
}

/* Recursive, because the environment is opened again under it, and that may replace the map too. */
static void lock_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static int lmdb_open(const struct idem_url *url, const struct idem_clock *clock,
                     struct idem_backend **ret_backend, struct idem_salt *ret_salt,
                     struct idem_message *message)
{
    struct idem_lmdb_options options;
    struct idem_backend *store;
    int error = idem_lmdb_options_read(url, &options, message);

    if (error)
        return error;
    store = idem_calloc(1, sizeof *store);
    if (!store)
        return memory_failure(message);
    lock_init(&store->lock);
    store->options = options;
    store->clock = clock;
    store->pid = getpid();
    store->directory = text_copy(url->place);
    error =
        store->directory ? idem_lmdb_directory_prepare(store, message) : memory_failure(message);
    if (!error) {
        idem_lmdb_reserve_choose(store);
        error = idem_lmdb_directory_enter(store, message);
    }
    if (error) {
        store_free(store);
        return error;
    }
    error = idem_lmdb_environment_open(store, message);
    if (error) {
        idem_lmdb_directory_leave(store);
        store_free(store);
        return error;
    }
    *ret_salt = store->salt;
    *ret_backend = store;
    return IDEM_OK;
}

/* In a child after fork LMDB's handles are its parent's: they are let be, not closed. */
static void lmdb_close(struct idem_backend *store)
{
    idem_lmdb_directory_leave(store);
    if (store->pid == getpid())
        idem_lmdb_environment_close(store);
    store_free(store);
}

static int forked(const struct idem_backend *store, struct idem_message *message)
{
    idem_message_set(message,
                     "the LMDB store in %s was opened before a fork and cannot be used "
                     "after it: open it in the child",
                     store->directory);
    return IDEM_ERR_INVALID;
}

/* LMDB gives its environment up when it cannot tell what the file holds; a new one can. */
static void environment_drop(struct idem_backend *store)
{
    pthread_mutex_lock(&store->lock);
    idem_lmdb_environment_close(store);
    pthread_mutex_unlock(&store->lock);
}

static int environment_need(struct idem_backend *store, struct idem_message *message)
{
    int error = IDEM_OK;

    if (store->env)
        return IDEM_OK;
    pthread_mutex_lock(&store->lock);
    error = idem_lmdb_environment_open(store, message);
    pthread_mutex_unlock(&store->lock);
    return error;
}

static int lmdb_apply(struct idem_backend *store, struct idem_op *const *ops, size_t count,
                      struct idem_message *message)
{
    int error, code;

    if (store->pid != getpid())
        return forked(store, message);
    error = environment_need(store, message);
    if (error)
        return error;
    code = idem_lmdb_batch_apply(store, ops, count);
    if (code == MDB_PANIC)
        environment_drop(store);
    else if (!code)
        idem_lmdb_map_tidy(store);
    return idem_lmdb_failure(store, code, message);
}

static int peek_locked(struct idem_backend *store, struct idem_op *get)
{
    MDB_txn **txn = &store->peek_txn;
    int code;

    if (!store->env)
        return IDEM_ERR_UNAVAILABLE;
    code = *txn ? mdb_txn_renew(*txn) : mdb_txn_begin(store->env, NULL, MDB_RDONLY, txn);
    if (code)
        return IDEM_ERR_UNSUPPORTED; /* the long way knows how to mend it */
    code = idem_lmdb_record_get(store, *txn, get);
    mdb_txn_reset(*txn);
    return idem_lmdb_failure(store, code, NULL);
}

static int lmdb_peek(struct idem_backend *store, struct idem_op *get)
{
    int error;

    if (store->pid != getpid())
        return IDEM_ERR_INVALID;
    /* Taken only while the map is replaced: go the long way rather than wait. */
    if (pthread_mutex_trylock(&store->lock))
        return IDEM_ERR_UNSUPPORTED;
    error = peek_locked(store, get);
    pthread_mutex_unlock(&store->lock);
    return error;
}

static void facts_durability(struct idem_facts *facts, const struct idem_backend *store)
{
    if (store->options.sync) {
        idem_facts_add(facts, "durability", "sync=always: what was answered is on disk first");
        idem_facts_add(facts, "can lose",
                       "nothing, as long as the disk keeps what it acknowledged");
    } else {
        idem_facts_add(facts, "durability", "sync=off: the system writes to disk when it likes");
        idem_facts_add(facts, "can lose",
                       "a power failure or system crash can lose keys and damage the "
                       "store; a crash of idem alone loses nothing");
    }
}

static void facts_room(struct idem_facts *facts, struct idem_backend *store)
{
    MDB_envinfo info;
    uint64_t page = store->space.page_size;
    uint64_t free_bytes = 0;

    if (mdb_env_info(store->env, &info) || idem_lmdb_space_free(store, &free_bytes))
        return;
    idem_facts_add(facts, "size", "%zu bytes", info.me_mapsize);
    idem_facts_add(facts, "used", "%llu bytes",
                   (unsigned long long)((info.me_last_pgno + 1) * page - free_bytes));
    idem_facts_add(facts, "free inside the file", "%llu bytes", (unsigned long long)free_bytes);
    idem_facts_add(facts, "reserve for verdicts", "%llu bytes%s",
                   (unsigned long long)store->options.reserve,
                   store->space.device_full ? ", the device is full" : "");
    idem_facts_add(facts, "readers", "%u of %u", info.me_numreaders, info.me_maxreaders);
}

static void facts_claims(struct idem_facts *facts, struct idem_backend *store)
{
    unsigned long long reserve = store->options.reserve, available;
    uint64_t bytes = 0;

    if (idem_lmdb_space_look(store, &bytes))
        return;
    available = bytes;
    if (available > reserve)
        idem_facts_add(facts, "claims",
                       "taken: %llu bytes are free, of which %llu are for verdicts", available,
                       reserve);
    else
        idem_facts_add(
            facts, "claims",
            "refused: %llu bytes are free, and a claim needs more than the %llu that are for "
            "verdicts; %s",
            available, reserve,
            store->space.device_full ? "make room on the device" : "raise size in its URL");
}

static void facts_counts(struct idem_facts *facts, struct idem_backend *store)
{
    MDB_stat records, expiry, audit;

    if (idem_lmdb_txn_begin(store, true, &store->read_txn))
        return;
    if (!mdb_stat(store->read_txn, store->records, &records) &&
        !mdb_stat(store->read_txn, store->expiry, &expiry) &&
        !mdb_stat(store->read_txn, store->audit, &audit)) {
        idem_facts_add(facts, "records", "%zu", records.ms_entries);
        idem_facts_add(facts, "expiry entries", "%zu", expiry.ms_entries);
        idem_facts_add(facts, "audit entries", "%zu", audit.ms_entries);
    }
    mdb_txn_reset(store->read_txn);
}

static size_t lmdb_describe(struct idem_backend *store, struct idem_store_fact *ret_facts,
                            size_t max)
{
    struct idem_facts facts = {.list = ret_facts, .max = max};

    idem_facts_add(&facts, "backend", "lmdb, %s", mdb_version(NULL, NULL, NULL));
    idem_facts_add(&facts, "directory", "%s", store->directory);
    idem_facts_add(&facts, "file system", "%s%s", store->filesystem.name,
                   store->space.preallocates ? "" : ", which cannot set room aside");
    facts_durability(&facts, store);
    idem_facts_add(&facts, "shared by", "processes of this host, in one PID namespace");
    if (store->env && store->pid == getpid()) {
        facts_counts(&facts, store);
        facts_room(&facts, store);
        facts_claims(&facts, store);
    }
    return facts.count;
}

static bool lmdb_is_new(const struct idem_backend *store)
{
    return store->made;
}

static int lmdb_adopt(struct idem_backend *store, const struct idem_salt *salt,
                      struct idem_message *message)
{
    int error, code;

    if (store->pid != getpid())
        return forked(store, message);
    error = environment_need(store, message);
    if (error)
        return error;
    code = idem_lmdb_adopt(store, salt, idem_clock_now_us(store->clock));
    if (code == MDB_KEYEXIST) {
        idem_message_set(message,
                         "the LMDB store in %s holds records of its own, made under another salt: "
                         "copy into a directory that holds none",
                         store->directory);
        return IDEM_ERR_INVALID;
    }
    return idem_lmdb_failure(store, code, message);
}

static const char *const schemes[] = {"lmdb", NULL};

const struct idem_backend_ops idem_backend_lmdb = {
    .schemes = schemes,
    .check = lmdb_check,
    .open = lmdb_open,
    .close = lmdb_close,
    .apply = lmdb_apply,
    .peek = lmdb_peek,
    .describe = lmdb_describe,
    .is_new = lmdb_is_new,
    .adopt = lmdb_adopt,
};
