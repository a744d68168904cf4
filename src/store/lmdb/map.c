/*
 * Pages of the file that were read through the map stay in the process's page table. They are the
 * kernel's cache and cost nothing to lose, but they count as the process's memory, up to the whole
 * file. So the table is emptied after so many page faults; what is still needed comes back from the
 * cache without a read, and a store that is smaller than that is never bothered.
 *
 * LMDB does not tell where its map is. It follows from any value in it: the page that holds the
 * value begins with its own number, and page 0 with a mark that only LMDB's files have, which is
 * looked at before anything is given back.
 */
#define _GNU_SOURCE /* madvise, RUSAGE_THREAD */
#include <sys/mman.h>
#include <sys/resource.h>

#include "store/lmdb/lmdb_store.h"

#define FAULTS_MAX 256 /* the kernel maps up to 64 KiB around each: 16 MiB */
#define CALLS      4   /* between two looks at the number of faults */

#define PAGE_HEADER_SIZE 16 /* bytes before the mark on page 0 */
#define MARK             0xBEEFC0DEu

/* Where the map begins, or NULL. The transaction keeps the map in its place meanwhile. */
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

void idem_lmdb_map_touched(struct idem_backend *store, MDB_txn *txn,
                           struct idem_lmdb_touched *touched)
{
    struct rusage usage;
    MDB_envinfo info;
    void *base;

    if (++touched->calls % CALLS != 0 || getrusage(RUSAGE_THREAD, &usage))
        return;
    if (usage.ru_minflt - touched->faults < FAULTS_MAX)
        return;
    touched->faults = usage.ru_minflt;
    base = map_base(store, txn);
    if (!base || mdb_env_info(store->env, &info))
        return;
    /* A hint: where it is not taken, nothing is lost but the tidy figure. */
    (void)madvise(base, (size_t)(info.me_last_pgno + 1) * store->space.page_size, MADV_DONTNEED);
}
