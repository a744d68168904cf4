/*
 * Which server has a key, and a connection to it. Alone: the one in the URL. With Sentinel: the
 * one that the sentinels name, asked again for every new connection. In a cluster: by the slot map,
 * which is read again when a node was lost or said that a slot has moved.
 */
#include <assert.h>
#include <stdio.h>

#include "base/memory.h"
#include "store/redis/redis_store.h"

#define REDIRECTS_MAX 16

void idem_redis_node_free(struct idem_redis_node *node)
{
    idem_redis_link_close(&node->link);
    idem_redis_request_deinit(&node->request);
    idem_free(node);
}

int idem_redis_node_add(struct idem_backend *store, const struct idem_redis_address *address,
                        struct idem_redis_node **ret_node, struct idem_redis_trouble *trouble)
{
    struct idem_redis_node *node;

    for (size_t i = 0; i < store->node_count; i++) {
        if (idem_redis_address_equal(&store->nodes[i]->address, address)) {
            *ret_node = store->nodes[i];
            return IDEM_OK;
        }
    }
    if (store->node_count == IDEM_REDIS_NODES_MAX)
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNSUPPORTED, false,
                                      "the Redis cluster has more than %d masters",
                                      IDEM_REDIS_NODES_MAX);
    node = idem_calloc(1, sizeof *node);
    if (!node)
        return idem_redis_trouble_memory(trouble);
    node->address = *address;
    idem_redis_key_named(&store->options, "mark", node->mark);
    store->nodes[store->node_count++] = node;
    *ret_node = node;
    return IDEM_OK;
}

/* The server that the URL names. */
static struct idem_redis_address address_of(const struct idem_redis_options *options)
{
    struct idem_redis_address address = {.port = 0};

    if (options->socket[0] != '\0') {
        snprintf(address.host, sizeof address.host, "%s", options->socket);
    } else {
        snprintf(address.host, sizeof address.host, "%s", options->server.hosts[0].name);
        address.port = options->server.hosts[0].port;
    }
    return address;
}

/* The one node of a store that is no cluster. */
static int single_prepare(struct idem_backend *store, int64_t deadline_us,
                          struct idem_redis_trouble *trouble)
{
    struct idem_redis_address address;
    struct idem_redis_node *node;
    int error = IDEM_OK;

    if (store->node_count > 0 && store->nodes[0]->link.context)
        return IDEM_OK;
    if (store->options.topology == IDEM_REDIS_SENTINEL)
        error = idem_redis_sentinel_find(&store->options, deadline_us, &address, trouble);
    else
        address = address_of(&store->options);
    if (error)
        return error;
    if (store->node_count > 0)
        store->nodes[0]->address = address;
    else
        error = idem_redis_node_add(store, &address, &node, trouble);
    return error;
}

int idem_redis_route_prepare(struct idem_backend *store, int64_t deadline_us,
                             struct idem_redis_trouble *trouble)
{
    if (store->options.topology != IDEM_REDIS_CLUSTER)
        return single_prepare(store, deadline_us, trouble);
    if (store->slots && !store->map_stale)
        return IDEM_OK;
    return idem_redis_cluster_read(store, deadline_us, trouble);
}

int idem_redis_route_connect(struct idem_backend *store, struct idem_redis_node *node,
                             int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    int error;

    if (node->link.context)
        return IDEM_OK;
    node->worked = false;
    error =
        idem_redis_link_open(&node->link, &store->options, &node->address, deadline_us, trouble);
    if (!error)
        error = idem_redis_login(&node->link, &store->options, deadline_us, &node->settings,
                                 &store->scripts, trouble);
    if (error)
        store->map_stale = true;
    return error;
}

int idem_redis_route(struct idem_backend *store, const char *key, int64_t deadline_us,
                     struct idem_redis_node **ret_node, struct idem_redis_trouble *trouble)
{
    struct idem_redis_node *node;
    int error = idem_redis_route_prepare(store, deadline_us, trouble);

    if (error)
        return error;
    node = store->nodes[0];
    if (store->options.topology == IDEM_REDIS_CLUSTER) {
        unsigned slot = idem_redis_slot(key);

        if (store->slots[slot] == 0) {
            store->map_stale = true;
            return idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, true,
                                          "no node of the Redis cluster serves slot %u: see "
                                          "`redis-cli cluster slots`",
                                          slot);
        }
        node = store->nodes[store->slots[slot] - 1];
    }
    error = idem_redis_route_connect(store, node, deadline_us, trouble);
    if (!error)
        *ret_node = node;
    return error;
}

void idem_redis_route_drop(struct idem_backend *store, bool all)
{
    for (size_t i = 0; i < store->node_count; i++) {
        struct idem_redis_node *node = store->nodes[i];

        if (all || node->sent_count > 0)
            idem_redis_link_close(&node->link);
        node->sent_count = 0;
        idem_redis_request_clear(&node->request);
    }
}

/* One command, sent to a node that is connected. */
static int node_ask(struct idem_redis_node *node, const struct idem_redis_request *request,
                    bool asking, int64_t deadline_us, redisReply **ret_reply,
                    struct idem_redis_trouble *trouble)
{
    static const char *const words[] = {"ASKING", NULL};
    redisReply *ignored;
    int error = IDEM_OK;

    if (asking) {
        error = idem_redis_link_ask(&node->link, words, deadline_us, &ignored, trouble);
        if (!error)
            freeReplyObject(ignored);
    }
    if (!error)
        error = idem_redis_link_send(&node->link, request, deadline_us, trouble);
    return error ? error : idem_redis_link_receive(&node->link, deadline_us, ret_reply, trouble);
}

/* Where a reply sends its command: *ret_node NULL for nowhere else. */
static int redirect_follow(struct idem_backend *store, const redisReply *reply,
                           const struct idem_redis_node *from, bool *ret_asking,
                           struct idem_redis_node **ret_node, struct idem_redis_trouble *trouble)
{
    struct idem_redis_address address;
    enum idem_redis_redirect redirect;
    unsigned slot;
    int error = IDEM_OK;

    *ret_node = NULL;
    if (store->options.topology != IDEM_REDIS_CLUSTER)
        return IDEM_OK;
    redirect = idem_redis_reply_redirect(reply, from->address.host, &slot, &address);
    if (redirect == IDEM_REDIS_REDIRECT_MOVED)
        error = idem_redis_cluster_moved(store, slot, &address, trouble);
    if (!error && redirect != IDEM_REDIS_REDIRECT_NONE)
        error = idem_redis_node_add(store, &address, ret_node, trouble);
    *ret_asking = redirect == IDEM_REDIS_REDIRECT_ASK;
    return error;
}

int idem_redis_route_ask(struct idem_backend *store, const char *key,
                         const struct idem_redis_request *request, int64_t deadline_us,
                         redisReply **ret_reply, struct idem_redis_node **ret_node,
                         struct idem_redis_trouble *trouble)
{
    struct idem_redis_node *node, *next;
    redisReply *reply;
    bool asking = false;
    int error = idem_redis_route(store, key, deadline_us, &node, trouble);

    for (int i = 0; !error && i < REDIRECTS_MAX; i++) {
        error = node_ask(node, request, asking, deadline_us, &reply, trouble);
        if (error)
            break;
        error = redirect_follow(store, reply, node, &asking, &next, trouble);
        if (!error && !next) {
            *ret_reply = reply;
            *ret_node = node;
            return IDEM_OK;
        }
        freeReplyObject(reply);
        if (!error)
            error = idem_redis_route_connect(store, next, deadline_us, trouble);
        node = next;
    }
    if (!error)
        error = idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, true,
                                       "the nodes of the Redis cluster do not agree on a slot: see "
                                       "`redis-cli --cluster check`");
    return error;
}
