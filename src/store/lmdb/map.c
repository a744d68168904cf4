/*
 * Pages of the file that were read through the map stay in the process's page table. They are the
 * kernel's cache and cost nothing to lose, but they count as the process's memory, up to the whole
 * file. So once a second the table is emptied, if there were many page faults; what is still needed
 * comes back from the cache without a read, and a small store is never bothered. Not more often: at
 * full load each op would fault, which was measured to cost a quarter of the throughput.
 *
 * LMDB does not tell where its map is. It follows from any value in it: the page that holds the
 * value begins with its own number, and page 0 with a mark that only LMDB's files have, which is
 * looked at before anything is given back.
 */
#define _GNU_SOURCE /* madvise, CLOCK_MONOTONIC_COARSE */
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "store/lmdb/lmdb_store.h"

#define FAULTS_MAX 256 /* the kernel maps up to 64 KiB around each: 16 MiB */
#define PAUSE_S    1

#define PAGE_HEADER_SIZE 16 /* bytes before the mark on page 0 */
#define MARK             0xBEEFC0DEu

/* Where the map begins, or NULL. Only the thread that applies ever replaces the map, and calls
 * this. */
static void *map_base(struct idem_backend *store, MDB_txn *txn)
{
    uintptr_t page_size = store->space.page_size, page, base;
    MDB_val key = idem_lmdb_value(IDEM_LMDB_SALT_NAME, sizeof IDEM_LMDB_SALT_NAME);
    MDB_val value;
    size_t number;
    uint32_t mark;

    if (mdb_get(txn, store->meta, &key, &value))
        return NULL;
    page = (uintptr_t)value.mv_data / page_size * page_size;
    memcpy(&number, (const void *)page, sizeof number);
    if (number > page / page_size)
        return NULL;
    base = page - number * page_size;
    memcpy(&mark, (const uint8_t *)base + PAGE_HEADER_SIZE, sizeof mark);
    return mark == MARK ? (void *)base : NULL;
}

/* True when it is time, and worth it. */
static bool is_due(struct idem_lmdb_touched *touched)
{
    struct timespec now;
    struct rusage usage;

    if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) || now.tv_sec - touched->at_s < PAUSE_S)
        return false;
    touched->at_s = now.tv_sec;
    if (getrusage(RUSAGE_SELF, &usage) || usage.ru_minflt - touched->faults < FAULTS_MAX)
        return false;
    touched->faults = usage.ru_minflt;
    return true;
}

void idem_lmdb_map_tidy(struct idem_backend *store)
{
    MDB_envinfo info;
    void *base;

    if (!is_due(&store->touched) || idem_lmdb_txn_begin(store, true, &store->read_txn))
        return;
    base = map_base(store, store->read_txn);
    mdb_txn_reset(store->read_txn);
    if (!base || mdb_env_info(store->env, &info))
        return;
    /* A hint: where it is not taken, nothing is lost but the tidy figure. */
    (void)madvise(base, (size_t)(info.me_last_pgno + 1) * store->space.page_size, MADV_DONTNEED);
}
