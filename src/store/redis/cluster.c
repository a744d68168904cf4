/*
 * The slot map of a cluster, as CLUSTER SLOTS tells it: ranges of slots, each with its master
 * first. Any node tells the whole map, but one that is cut off may tell an old one; then MOVED sets
 * it right, slot by slot, and the map is read again before the next batch.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "store/redis/redis_store.h"

#define SHARE       3
#define MARKS_TRIED 200000 /* numbers that are looked through for one in a slot of each node */

/* Clears the map, so that nodes without slots can be told. */
static int map_begin(struct idem_backend *store, struct idem_redis_trouble *trouble)
{
    if (!store->slots)
        store->slots = idem_calloc(IDEM_REDIS_SLOTS, sizeof *store->slots);
    if (!store->slots)
        return idem_redis_trouble_memory(trouble);
    memset(store->slots, 0, IDEM_REDIS_SLOTS * sizeof *store->slots);
    store->map_stale = true;
    for (size_t i = 0; i < store->node_count; i++)
        store->nodes[i]->slots = 0;
    return IDEM_OK;
}

static size_t node_index(const struct idem_backend *store, const struct idem_redis_node *node)
{
    size_t i = 0;

    while (store->nodes[i] != node)
        i++;
    return i;
}

/* [first, last, [host, port, …], …]: a host that is not told is the one that answers. */
static int range_read(struct idem_backend *store, const redisReply *range, const char *place,
                      const char *host, struct idem_redis_trouble *trouble)
{
    const redisReply *master = range->elements > 2 ? range->element[2] : NULL;
    struct idem_redis_address address;
    struct idem_redis_node *node;
    int error;

    if (!master || master->type != REDIS_REPLY_ARRAY || master->elements < 2 ||
        range->element[0]->type != REDIS_REPLY_INTEGER ||
        range->element[1]->type != REDIS_REPLY_INTEGER ||
        master->element[1]->type != REDIS_REPLY_INTEGER || range->element[0]->integer < 0 ||
        range->element[1]->integer >= IDEM_REDIS_SLOTS)
        return idem_redis_reply_trouble(range, place, trouble);
    if (master->element[0]->type == REDIS_REPLY_STRING && master->element[0]->len > 0 &&
        strcmp(master->element[0]->str, "?") != 0)
        host = master->element[0]->str;
    snprintf(address.host, sizeof address.host, "%s", host);
    address.port = (uint16_t)master->element[1]->integer;
    error = idem_redis_node_add(store, &address, &node, trouble);
    for (long long slot = range->element[0]->integer; !error && slot <= range->element[1]->integer;
         slot++) {
        store->slots[slot] = (uint16_t)(node_index(store, node) + 1);
        node->slots++;
    }
    return error;
}

static int address_order(const struct idem_redis_address *a, const struct idem_redis_address *b)
{
    int order = strcmp(a->host, b->host);

    return order ? order : (a->port > b->port) - (a->port < b->port);
}

static int node_compare(const void *a, const void *b)
{
    struct idem_redis_node *const *left = a;
    struct idem_redis_node *const *right = b;

    return address_order(&(*left)->address, &(*right)->address);
}

/* Frees nodes that serve nothing, and puts the others in the order of their addresses, which is the
 * order that scans go in. */
static void nodes_tidy(struct idem_backend *store)
{
    struct idem_redis_node *before[IDEM_REDIS_NODES_MAX];
    uint16_t now[IDEM_REDIS_NODES_MAX] = {0};
    size_t count = store->node_count, kept = 0;

    memcpy(before, store->nodes, sizeof before);
    for (size_t i = 0; i < count; i++)
        if (before[i]->slots > 0)
            store->nodes[kept++] = before[i];
    store->node_count = kept;
    qsort(store->nodes, kept, sizeof(struct idem_redis_node *), node_compare);
    for (size_t i = 0; i < count; i++) {
        if (before[i]->slots > 0)
            now[i] = (uint16_t)(node_index(store, before[i]) + 1);
        else
            idem_redis_node_free(before[i]);
    }
    for (size_t slot = 0; slot < IDEM_REDIS_SLOTS; slot++)
        if (store->slots[slot] != 0)
            store->slots[slot] = now[store->slots[slot] - 1];
}

/* A number that stands for the map: FNV-1a over the server of each slot. */
static uint64_t map_hash(const struct idem_backend *store)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t slot = 0; slot < IDEM_REDIS_SLOTS; slot++) {
        uint16_t index = store->slots[slot];
        const struct idem_redis_address *address = index ? &store->nodes[index - 1]->address : NULL;

        for (const char *c = address ? address->host : ""; *c; c++)
            hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
        hash = (hash ^ (address ? address->port : 0)) * UINT64_C(1099511628211);
    }
    return hash;
}

/* Finds each node a key in a slot of its own. */
static void marks_choose(struct idem_backend *store)
{
    size_t missing = store->node_count;

    for (size_t i = 0; i < store->node_count; i++)
        store->nodes[i]->mark[0] = '\0';
    for (unsigned number = 0; missing > 0 && number < MARKS_TRIED; number++) {
        char name[32], key[IDEM_REDIS_KEY_MAX];
        struct idem_redis_node *node;
        uint16_t index;

        snprintf(name, sizeof name, "mark:{%u}", number);
        idem_redis_key_named(&store->options, name, key);
        index = store->slots[idem_redis_slot(key)];
        node = index ? store->nodes[index - 1] : NULL;
        if (!node || node->mark[0] != '\0')
            continue;
        memcpy(node->mark, key, sizeof key);
        missing--;
    }
}

static int map_read(struct idem_backend *store, const redisReply *reply, const char *place,
                    const char *host, struct idem_redis_trouble *trouble)
{
    int error;

    if (idem_redis_reply_is_unknown(reply))
        return idem_redis_sentinel_met(place, trouble);
    if (idem_redis_reply_is_error(reply, "ERR"))
        return idem_redis_trouble_set(trouble, IDEM_ERR_INVALID, false,
                                      "Redis at %s is no part of a cluster (%.160s): write redis: "
                                      "in the store's URL",
                                      place, reply->str);
    if (reply->type != REDIS_REPLY_ARRAY)
        return idem_redis_reply_trouble(reply, place, trouble);
    if (reply->elements == 0)
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, true,
                                      "the Redis cluster at %s serves no slot: see `redis-cli "
                                      "cluster info`",
                                      place);
    error = map_begin(store, trouble);
    for (size_t i = 0; !error && i < reply->elements; i++)
        error = range_read(store, reply->element[i], place, host, trouble);
    nodes_tidy(store);
    if (error)
        return error;
    store->map_hash = map_hash(store);
    store->map_stale = false;
    if (store->options.replicas > 0)
        marks_choose(store);
    return IDEM_OK;
}

/* Reads the map from one node: over its connection if there is one, else over one for this. */
static int map_ask(struct idem_backend *store, const struct idem_redis_address *address,
                   struct idem_redis_link *known, int64_t deadline_us,
                   struct idem_redis_trouble *trouble)
{
    static const char *const words[] = {"CLUSTER", "SLOTS", NULL};
    const struct idem_redis_options *options = &store->options;
    struct idem_redis_address from = *address; /* its node may be freed */
    char place[IDEM_REDIS_PLACE_SIZE];
    struct idem_redis_link own = {0};
    struct idem_redis_link *link = known && known->context ? known : &own;
    redisReply *reply = NULL;
    int error = IDEM_OK;

    if (link == &own)
        error = idem_redis_link_open(link, options, address, deadline_us, trouble);
    if (!error && link == &own)
        error = idem_redis_login_begin(link, options, deadline_us, trouble);
    if (!error)
        error = idem_redis_link_ask(link, words, deadline_us, &reply, trouble);
    idem_redis_link_close(&own);
    if (!error) {
        idem_redis_address_format(&from, place);
        error = map_read(store, reply, place, from.host, trouble);
        freeReplyObject(reply);
    }
    return error;
}

/*
 * Asks the nodes that are known, connected ones first, then those of the URL, until one tells. A
 * node that does not answer is given a share of the time that is left. (A failure after which it
 * goes on to the next has left the nodes as they were.)
 */
int idem_redis_cluster_read(struct idem_backend *store, int64_t deadline_us,
                            struct idem_redis_trouble *trouble)
{
    size_t nodes = store->node_count, seeds = store->options.server.host_count;
    size_t count = 2 * nodes + seeds;
    int error = IDEM_ERR_UNAVAILABLE;

    for (size_t i = 0; i < count; i++) {
        int64_t now_us = idem_redis_now_us();
        int64_t share_us = (deadline_us - now_us) / SHARE;
        struct idem_redis_node *node = i < 2 * nodes ? store->nodes[i % nodes] : NULL;
        struct idem_redis_address seed = {.port = 0};

        if (node && (node->link.context != NULL) != (i < nodes))
            continue;
        if (!node) {
            const struct idem_server_host *host = &store->options.server.hosts[i - 2 * nodes];

            snprintf(seed.host, sizeof seed.host, "%s", host->name);
            seed.port = host->port;
        }
        error = map_ask(store, node ? &node->address : &seed, node ? &node->link : NULL,
                        now_us + share_us, trouble);
        if (!error || !trouble->again)
            break;
    }
    return error;
}

int idem_redis_cluster_moved(struct idem_backend *store, unsigned slot,
                             const struct idem_redis_address *address,
                             struct idem_redis_trouble *trouble)
{
    struct idem_redis_node *node;
    int error = idem_redis_node_add(store, address, &node, trouble);

    if (error)
        return error;
    store->slots[slot] = (uint16_t)(node_index(store, node) + 1);
    store->map_stale = true;
    return IDEM_OK;
}
