/* What `idem store check` tells of a Redis store. */
#include <stdio.h>
#include <stdlib.h>

#include "store/facts.h"
#include "store/keep.h"
#include "store/redis/redis_store.h"

/* A sweep is told the store's clock, and removes nothing. */
static void facts_clock(struct idem_facts *facts, struct idem_backend *store, int64_t deadline_us)
{
    struct idem_op op = {.kind = IDEM_OP_SWEEP, .in.sweep.limit = 1};
    struct idem_op *const ops[] = {&op};
    struct idem_redis_trouble trouble;
    int64_t asked_us = idem_clock_now_us(NULL);

    idem_redis_items_begin(store, ops, 1);
    idem_redis_items_reset(store);
    if (!idem_redis_batch_run(store, deadline_us, &trouble))
        idem_facts_add_clock(facts, op.out.now_us, asked_us, idem_clock_now_us(NULL));
    idem_op_deinit(&op);
}

static void facts_place(struct idem_facts *facts, const struct idem_backend *store)
{
    const struct idem_redis_options *options = &store->options;
    char place[IDEM_REDIS_PLACE_SIZE];

    idem_redis_address_format(&store->nodes[0]->address, place);
    if (options->topology == IDEM_REDIS_CLUSTER)
        idem_facts_add(facts, "server", "a cluster of %zu masters, the first at %.100s",
                       store->node_count, place);
    else if (options->topology == IDEM_REDIS_SENTINEL)
        idem_facts_add(facts, "server", "%.100s, which %zu sentinels name as master \"%.40s\"",
                       place, options->server.host_count, options->master);
    else
        idem_facts_add(facts, "server", "%.150s, database %u", place, options->database);
}

/* What is said of all nodes is what is true of the weakest. */
struct weakest {
    bool aof, aof_always, bounded;
    char fsync[16];
    unsigned replicas, replicas_min;
    uint64_t room;
};

static void weakest_find(const struct idem_backend *store, struct weakest *ret_weakest)
{
    struct weakest weakest = {.aof = true,
                              .aof_always = true,
                              .replicas = UINT32_MAX,
                              .replicas_min = UINT32_MAX,
                              .room = UINT64_MAX};

    for (size_t i = 0; i < store->node_count; i++) {
        const struct idem_redis_settings *settings = &store->nodes[i]->settings;
        bool always = strcmp(settings->fsync, "always") == 0 && !settings->fsync_suspended;
        uint64_t room = settings->maxmemory > settings->used_memory
                            ? settings->maxmemory - settings->used_memory
                            : 0;

        weakest.aof = weakest.aof && settings->aof;
        weakest.aof_always = weakest.aof_always && always;
        if (!always || weakest.fsync[0] == '\0')
            snprintf(weakest.fsync, sizeof weakest.fsync, "%s", settings->fsync);
        if (settings->replicas < weakest.replicas)
            weakest.replicas = settings->replicas;
        if (settings->replicas_min < weakest.replicas_min)
            weakest.replicas_min = settings->replicas_min;
        if (settings->maxmemory > 0 && room < weakest.room)
            weakest.room = room;
        weakest.bounded = weakest.bounded || settings->maxmemory > 0;
    }
    *ret_weakest = weakest;
}

static void facts_durability(struct idem_facts *facts, const struct idem_backend *store,
                             const struct weakest *weakest)
{
    bool everysec = strcmp(weakest->fsync, "everysec") == 0;
    const char *lost = "what the system had not written of its log, some 30 seconds";

    idem_facts_add(facts, "durability", "sync=%s: appendonly %s, appendfsync %s",
                   store->options.sync ? "always" : "off", weakest->aof ? "yes" : "no",
                   weakest->fsync[0] ? weakest->fsync : "not shown");
    if (!weakest->aof)
        lost = "all keys since the last snapshot, or all keys";
    else if (weakest->aof_always)
        lost = "nothing, as long as the disk keeps what it acknowledged";
    else if (everysec)
        lost = "what was acknowledged in the last second (two when the disk is slow)";
    else if (weakest->fsync[0] == '\0')
        lost = "what it had not flushed: its appendfsync is not shown";
    if (weakest->replicas == 0 && store->options.topology == IDEM_REDIS_SINGLE)
        idem_facts_add(facts, "can lose", "in a crash: %s", lost);
    else
        idem_facts_add(
            facts, "can lose",
            "in a crash: %s; in a failover: acknowledged keys that the new master had not "
            "got%s",
            lost, store->options.replicas > 0 ? ", rarely, even with replicas=" : "");
}

static void facts_replication(struct idem_facts *facts, const struct idem_backend *store,
                              const struct weakest *weakest)
{
    idem_facts_add(facts, "replicas",
                   "%u connected; each call waits for %u (replicas=), and Redis asks "
                   "for %u to write (min-replicas-to-write)",
                   weakest->replicas, store->options.replicas, weakest->replicas_min);
}

static void facts_room(struct idem_facts *facts, const struct weakest *weakest)
{
    idem_facts_add(facts, "eviction", "noeviction");
    if (!weakest->bounded)
        idem_facts_add(facts, "claims",
                       "taken, without a bound: maxmemory is not set, and a host "
                       "without memory left ends Redis");
    else if (weakest->room == 0)
        idem_facts_add(facts, "claims",
                       "refused: used memory is over maxmemory; raise it, or wait until "
                       "keys expire");
    else
        idem_facts_add(facts, "claims", "taken: %llu bytes are free below maxmemory",
                       (unsigned long long)weakest->room);
}

/* Every node is asked anew: connections may be old. */
static bool nodes_refresh(struct idem_backend *store, int64_t deadline_us)
{
    struct idem_redis_trouble trouble;

    idem_redis_route_drop(store, true);
    if (idem_redis_route_prepare(store, deadline_us, &trouble))
        return false;
    for (size_t i = 0; i < store->node_count; i++)
        if (idem_redis_route_connect(store, store->nodes[i], deadline_us, &trouble))
            return false;
    return true;
}

size_t idem_redis_describe(struct idem_backend *store, struct idem_store_fact *ret_facts,
                           size_t max)
{
    int64_t deadline_us = idem_redis_now_us() + store->options.timeout_us;
    struct idem_facts facts = {.list = ret_facts, .max = max};
    struct idem_redis_quiet quiet;
    struct weakest weakest;

    idem_facts_add(&facts, "backend", "redis, hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR,
                   HIREDIS_PATCH);
    idem_redis_quiet_begin(&quiet);
    if (nodes_refresh(store, deadline_us)) {
        const struct idem_redis_settings *settings = &store->nodes[0]->settings;

        facts_place(&facts, store);
        idem_facts_add(&facts, "version", "%s %s", settings->valkey ? "Valkey, as Redis" : "Redis",
                       settings->version);
        facts_clock(&facts, store, deadline_us);
        weakest_find(store, &weakest);
        facts_durability(&facts, store, &weakest);
        facts_room(&facts, &weakest);
        facts_replication(&facts, store, &weakest);
        idem_facts_add(&facts, "prefix", "%s", store->options.prefix);
    }
    idem_redis_quiet_end(&quiet);
    return facts.count;
}
