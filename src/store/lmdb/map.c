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
#define _GNU_SOURCE /* madvise, mincore, CLOCK_MONOTONIC_COARSE */
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <unistd.h>

#include "store/lmdb/format.h"
#include "store/lmdb/lmdb_store.h"

#define FAULTS_MAX 256 /* the kernel maps up to 64 KiB around each: 16 MiB */
#define PAUSE_S    1

/* Never read an address that was computed from what stands in a file, unless there is memory. */
static bool is_mapped(uintptr_t page)
{
    unsigned char resident;

    return mincore((void *)page, 1, &resident) == 0;
}

/*
 * Where the map begins, or NULL. Only the thread that applies ever replaces the map, and calls
 * this. The map begins at a page of the machine: in a file whose pages are larger, made on another
 * machine, a value's page cannot be told from its address.
 */
static void *map_base(struct idem_backend *store, MDB_txn *txn, size_t last)
{
    uintptr_t page_size = store->space.page_size, page, base;
    MDB_val key = idem_lmdb_value(IDEM_LMDB_SALT_NAME, sizeof IDEM_LMDB_SALT_NAME);
    MDB_val value;
    size_t number;
    uint32_t mark;

    if (page_size > (uintptr_t)sysconf(_SC_PAGESIZE) || mdb_get(txn, store->meta, &key, &value))
        return NULL;
    page = (uintptr_t)value.mv_data / page_size * page_size;
    memcpy(&number, (const void *)page, sizeof number);
    base = page - number * page_size;
    if (number > last || number > page / page_size || !is_mapped(base))
        return NULL;
    memcpy(&mark, (const uint8_t *)base + sizeof(struct idem_lmdb_page), sizeof mark);
    return mark == IDEM_LMDB_MARK ? (void *)base : NULL;
}

/* True when it is time, and worth it. */
static bool is_due(struct idem_lmdb_touched *touched)
{
    struct timespec now;
    struct rusage usage;
    long faults;

    if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) || now.tv_sec - touched->at_s < PAUSE_S)
        return false;
    touched->at_s = now.tv_sec;
    if (getrusage(RUSAGE_SELF, &usage))
        return false;
    faults = usage.ru_minflt + usage.ru_majflt; /* from the cache, and from the device */
    if (faults - touched->faults < FAULTS_MAX)
        return false;
    touched->faults = faults;
    return true;
}

void idem_lmdb_map_tidy(struct idem_backend *store)
{
    MDB_envinfo info;
    size_t size;
    void *base;

    if (!is_due(&store->touched) || idem_lmdb_txn_begin(store, true, &store->read_txn))
        return;
    base = mdb_env_info(store->env, &info) ? NULL
                                           : map_base(store, store->read_txn, info.me_last_pgno);
    mdb_txn_reset(store->read_txn);
    if (!base)
        return;
    /* What LMDB tells is the latest snapshot's, which may be of a larger map than ours. */
    size = (size_t)(info.me_last_pgno + 1) * store->space.page_size;
    if (size > info.me_mapsize)
        size = info.me_mapsize;
    /* A hint: where it is not taken, nothing is lost but the tidy figure. */
    (void)madvise(base, size, MADV_DONTNEED);
}
