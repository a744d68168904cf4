/*
 * When the store counts as full. Two bounds, both for claims only:
 *
 *   size=        what table and indexes may take together, looked at now and then. Files of
 *                PostgreSQL do not shrink when records go, their pages are used again: so over
 *                the bound there is room for as many new records as have been removed since.
 *   the disk     when the server says that it is full, claims are refused for a while, and then
 *                one batch tries again
 *
 * Verdicts always get in. An answer is kept as long as no more than a reserve on top of `size` is
 * used, and becomes a tombstone beyond that.
 */
#include "store/postgres/postgres_store.h"

#define LOOK_EVERY_US IDEM_SECOND_US
#define DISK_FULL_US  (5 * IDEM_SECOND_US)
#define RESERVE_SHARE 16
#define RESERVE_MAX   (UINT64_C(64) << 20)

static uint64_t reserve(const struct idem_pg_space *space)
{
    uint64_t share = space->limit / RESERVE_SHARE;

    return share < RESERVE_MAX ? share : RESERVE_MAX;
}

bool idem_pg_space_is_due(const struct idem_pg_space *space)
{
    return space->limit > 0 && idem_pg_now_us() >= space->look_us;
}

static bool is_over(const struct idem_pg_space *space)
{
    return space->limit > 0 && space->used > space->limit;
}

struct idem_pg_room idem_pg_space_room(const struct idem_pg_space *space, size_t claims)
{
    bool disk = idem_pg_now_us() >= space->full_us;

    return (struct idem_pg_room){
        .claims = disk && (!is_over(space) || space->credit >= (int64_t)claims),
        .answers = space->limit == 0 || space->used <= space->limit + reserve(space),
    };
}

void idem_pg_space_disk_full(struct idem_pg_space *space)
{
    space->full_us = idem_pg_now_us() + DISK_FULL_US;
}

void idem_pg_space_looked(struct idem_pg_space *space, uint64_t used)
{
    space->used = used;
    space->look_us = idem_pg_now_us() + LOOK_EVERY_US;
    if (!is_over(space))
        space->credit = 0;
}

void idem_pg_space_count(struct idem_pg_space *space, size_t added, size_t removed)
{
    if (is_over(space))
        space->credit += (int64_t)removed - (int64_t)added;
}
