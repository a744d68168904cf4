/*
 * One batch, as one pipeline to each server that it concerns:
 *
 *   1. fill     ops in order, each as a command to the node of its key
 *   2. send     to every node, before any reply is read
 *   3. receive  the replies, in the same order
 *
 * and again, with what was redirected or has another stage to go, until all is done. Ops on one id
 * keep their order: they go over one connection, and when one of them has to go again, so have
 * those behind it. (What they did meanwhile is found again: each knows its owner.)
 *
 * With `replicas` each pipeline ends with a write and WAIT: what was answered is then known to that
 * many replicas, and so is what was only read.
 *
 * Nothing is answered from a store that has another salt by now. Scripts see to that themselves,
 * unless the salt is out of their reach:
 *
 *   in a cluster   every round takes a look at it along, whose answer counts for the whole round;
 *                  when it is another one, what was written anew meanwhile goes again
 *   after a scan   a look of its own
 */
#include <assert.h>
#include <sodium.h>
#include <stdio.h>

#include "store/redis/redis_store.h"
#include "store/redis/script_text.h"

#define WINDOW_BYTES  (4u << 20) /* of commands on their way at once */
#define REDIRECTS_MAX 16

#define WAIT_MARGIN_MS 200

static void item_restart(struct idem_backend *store, struct idem_redis_item *item)
{
    idem_op_deinit(item->op);
    item->stage =
        idem_redis_person_staged(store, item->op) ? IDEM_REDIS_STAGE_LOOK : IDEM_REDIS_STAGE_ACT;
    item->done = item->again = item->acted = item->asking = false;
    item->entry[0] = '\0';
    item->ask.port = 0;
}

void idem_redis_items_begin(struct idem_backend *store, struct idem_op *const *ops, size_t count)
{
    store->item_count = count;
    for (size_t i = 0; i < count; i++) {
        store->items[i].op = ops[i];
        if (ops[i]->kind == IDEM_OP_FORGET)
            randombytes_buf(store->items[i].token.bytes, IDEM_OWNER_SIZE);
    }
}

void idem_redis_items_reset(struct idem_backend *store)
{
    for (size_t i = 0; i < store->item_count; i++) {
        item_restart(store, &store->items[i]);
        store->items[i].redirects = 0;
    }
    store->check_op = (struct idem_op){.kind = IDEM_OP_SWEEP, .in.sweep.limit = 1};
    store->check = (struct idem_redis_item){.op = &store->check_op, .done = true};
}

static struct idem_redis_item *item_next(struct idem_backend *store)
{
    for (size_t i = 0; i < store->item_count; i++)
        if (!store->items[i].done)
            return &store->items[i];
    return store->check.done ? NULL : &store->check;
}

/* Ids whose later ops must wait for the next window. */
struct held {
    const struct idem_id *ids[IDEM_BATCH_MAX];
    size_t count;
};

static bool is_held(const struct held *held, const struct idem_id *id)
{
    for (size_t i = 0; i < held->count; i++)
        if (idem_id_equal(held->ids[i], id))
            return true;
    return false;
}

static bool has_id(const struct idem_op *op)
{
    return op->kind != IDEM_OP_SCAN && op->kind != IDEM_OP_SWEEP && op->kind != IDEM_OP_AUDIT;
}

static int node_find(struct idem_backend *store, struct idem_redis_item *item, int64_t deadline_us,
                     struct idem_redis_node **ret_node, struct idem_redis_trouble *trouble)
{
    char key[IDEM_REDIS_KEY_MAX];
    struct idem_redis_node *node;
    int error;

    item->asking = item->ask.port != 0;
    if (!item->asking) {
        idem_redis_op_key(store, item, key);
        return idem_redis_route(store, key, deadline_us, ret_node, trouble);
    }
    error = idem_redis_node_add(store, &item->ask, &node, trouble);
    item->ask.port = 0;
    if (!error)
        error = idem_redis_route_connect(store, node, deadline_us, trouble);
    if (!error)
        *ret_node = node;
    return error;
}

static int item_send(struct idem_backend *store, struct idem_redis_item *item, int64_t deadline_us,
                     size_t *bytes, struct idem_redis_trouble *trouble)
{
    static const char *const asking_words[] = {"ASKING", NULL};
    struct idem_redis_node *node;
    size_t before;
    int error = node_find(store, item, deadline_us, &node, trouble);

    if (error)
        return error;
    before = node->request.size;
    if (item->asking)
        idem_redis_request_texts(&node->request, asking_words);
    error = idem_redis_op_encode(store, item, &node->request, trouble);
    if (error)
        return error;
    assert(node->sent_count < sizeof node->sent / sizeof node->sent[0]);
    node->sent[node->sent_count++] = item;
    *bytes += node->request.size - before;
    return IDEM_OK;
}

/* 1. A scan has round trips of its own, and ends the window before it. */
static int window_fill(struct idem_backend *store, int64_t deadline_us,
                       struct idem_redis_trouble *trouble)
{
    struct held held = {.count = 0};
    size_t bytes = 0;

    for (size_t i = 0; i < store->item_count && bytes < WINDOW_BYTES; i++) {
        struct idem_redis_item *item = &store->items[i];
        int error;

        if (item->done || (has_id(item->op) && is_held(&held, &item->op->id)))
            continue;
        if (item->op->kind == IDEM_OP_SCAN)
            break;
        if (idem_redis_person_staged(store, item->op))
            held.ids[held.count++] = &item->op->id;
        error = item_send(store, item, deadline_us, &bytes, trouble);
        if (error)
            return error;
    }
    return store->check.done ? IDEM_OK
                             : item_send(store, &store->check, deadline_us, &bytes, trouble);
}

/*
 * Shorter than our own patience, so that the count comes and not a time-out; Redis looks at its
 * clock ten times a second only. 0 would be for ever.
 */
static int64_t wait_ms(int64_t left_us)
{
    int64_t left_ms = left_us / 1000;
    int64_t wait = left_ms > 2 * WAIT_MARGIN_MS ? left_ms - WAIT_MARGIN_MS : left_ms / 2;

    return wait > 0 ? wait : 1;
}

static void wait_append(const struct idem_backend *store, struct idem_redis_node *node,
                        int64_t deadline_us)
{
    struct idem_redis_request *request = &node->request;
    int64_t left_us = deadline_us - idem_redis_now_us();

    idem_redis_request_begin(request, 4);
    idem_redis_request_text(request, "EVALSHA");
    idem_redis_request_text(request, store->scripts.sha[IDEM_REDIS_SCRIPT_MARK]);
    idem_redis_request_text(request, "1");
    idem_redis_request_text(request, node->mark);
    idem_redis_request_begin(request, 3);
    idem_redis_request_text(request, "WAIT");
    idem_redis_request_number(request, store->options.replicas);
    idem_redis_request_number(request, (uint64_t)wait_ms(left_us));
}

/* 2. */
static int window_send(struct idem_backend *store, int64_t deadline_us,
                       struct idem_redis_trouble *trouble)
{
    for (size_t i = 0; i < store->node_count; i++) {
        struct idem_redis_node *node = store->nodes[i];
        int error;

        if (node->sent_count == 0)
            continue;
        if (store->options.replicas > 0)
            wait_append(store, node, deadline_us);
        error = idem_redis_link_send(&node->link, &node->request, deadline_us, trouble);
        idem_redis_request_clear(&node->request);
        if (error)
            return error;
    }
    return IDEM_OK;
}

/* The item goes again, to where the reply says. *ret_scripts: once the scripts are loaded. */
static int item_redirect(struct idem_backend *store, struct idem_redis_item *item,
                         enum idem_redis_redirect redirect, unsigned slot,
                         const struct idem_redis_address *address, bool *ret_scripts,
                         struct idem_redis_trouble *trouble)
{
    item->again = true;
    if (++item->redirects > REDIRECTS_MAX)
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, true,
                                      "the nodes of the Redis cluster do not agree on slot %u: see "
                                      "`redis-cli --cluster check`",
                                      slot);
    if (redirect == IDEM_REDIS_REDIRECT_SCRIPTS)
        *ret_scripts = true;
    else if (redirect == IDEM_REDIS_REDIRECT_ASK)
        item->ask = *address;
    else
        return idem_redis_cluster_moved(store, slot, address, trouble);
    return IDEM_OK;
}

static int item_receive(struct idem_backend *store, struct idem_redis_item *item,
                        const redisReply *reply, const struct idem_redis_node *node,
                        bool *ret_scripts, struct idem_redis_trouble *trouble)
{
    enum idem_redis_redirect redirect = IDEM_REDIS_REDIRECT_NONE;
    struct idem_redis_address address;
    unsigned slot = 0;
    int error;

    if (reply->type == REDIS_REPLY_ERROR)
        redirect = idem_redis_reply_redirect(reply, node->address.host, &slot, &address);
    if (redirect == IDEM_REDIS_REDIRECT_SCRIPTS ||
        (redirect != IDEM_REDIS_REDIRECT_NONE && store->options.topology == IDEM_REDIS_CLUSTER))
        return item_redirect(store, item, redirect, slot, &address, ret_scripts, trouble);
    if (idem_redis_reply_is_error(reply, IDEM_REDIS_ERROR_SALT)) {
        store->differs = true;
        return idem_redis_salt_differs(store, node, trouble);
    }
    if (item->stage == IDEM_REDIS_STAGE_UNDO) {
        item->done = true; /* whatever came of it */
        return IDEM_OK;
    }
    if (item->stage != IDEM_REDIS_STAGE_ACT)
        return idem_redis_person_reply(item, reply, node->link.place, trouble);
    error = idem_redis_reply_read(item, reply, node->link.place, trouble);
    if (!error)
        idem_redis_person_acted(item);
    return error;
}

/* The replies to the mark and to WAIT. */
static int wait_receive(const struct idem_backend *store, struct idem_redis_node *node,
                        int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    redisReply *mark, *count;
    int error = idem_redis_link_receive(&node->link, deadline_us, &mark, trouble);

    if (error)
        return error;
    error = idem_redis_link_receive(&node->link, deadline_us, &count, trouble);
    if (error) {
        freeReplyObject(mark);
        return error;
    }
    if (mark->type == REDIS_REPLY_ERROR) {
        error = idem_redis_reply_trouble(mark, node->link.place, trouble);
        if (idem_redis_reply_is_error(mark, "NOSCRIPT") || idem_redis_reply_is_error(mark, "MOVED"))
            trouble->again = true; /* a new connection sets it right */
    } else if (count->type != REDIS_REPLY_INTEGER) {
        error = idem_redis_reply_trouble(count, node->link.place, trouble);
    } else if (count->integer < (long long)store->options.replicas) {
        error = idem_redis_trouble_set(
            trouble, IDEM_ERR_UNAVAILABLE, false,
            "%lld of the %u replicas that replicas= asks for have what Redis at %s was told: see "
            "that they run and are connected",
            count->integer, store->options.replicas, node->link.place);
    }
    freeReplyObject(mark);
    freeReplyObject(count);
    return error;
}

/* One reply to an item, behind that to its ASKING. Negative: the connection is lost. */
static int reply_take(struct idem_redis_node *node, const struct idem_redis_item *item,
                      int64_t deadline_us, redisReply **ret_reply,
                      struct idem_redis_trouble *trouble)
{
    int error;

    if (item->asking) {
        error = idem_redis_link_receive(&node->link, deadline_us, ret_reply, trouble);
        if (error)
            return error;
        freeReplyObject(*ret_reply);
    }
    return idem_redis_link_receive(&node->link, deadline_us, ret_reply, trouble);
}

/* What comes of two troubles: the first, unless the later one is that the store is another. */
static int trouble_join(int first, struct idem_redis_trouble *trouble, int error,
                        const struct idem_redis_trouble *later)
{
    if (!error || (first && error != IDEM_ERR_UNSAFE))
        return first;
    *trouble = *later;
    return error;
}

/* What is the matter with one item is told once all replies have been read. Whatever may be mended
 * by going elsewhere ends the connection. */
static int node_receive(struct idem_backend *store, struct idem_redis_node *node,
                        int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    struct idem_redis_trouble later;
    bool scripts = false;
    int first = IDEM_OK;

    for (size_t i = 0; i < node->sent_count; i++) {
        struct idem_redis_item *item = node->sent[i];
        redisReply *reply;
        int error = reply_take(node, item, deadline_us, &reply, trouble);

        if (error)
            return error;
        error = item_receive(store, item, reply, node, &scripts, &later);
        freeReplyObject(reply);
        first = trouble_join(first, trouble, error, &later);
    }
    if (store->options.replicas > 0)
        first =
            trouble_join(first, trouble, wait_receive(store, node, deadline_us, &later), &later);
    node->sent_count = 0;
    if (first && trouble->again) {
        idem_redis_link_close(&node->link);
        store->map_stale = true;
    } else if (!first && scripts) {
        first = idem_redis_login_scripts(&node->link, &store->scripts, deadline_us, trouble);
    }
    return first;
}

/* 3. From all of them, so that it is known what each has done. */
static int window_receive(struct idem_backend *store, int64_t deadline_us,
                          struct idem_redis_trouble *trouble)
{
    struct idem_redis_trouble later;
    int first = IDEM_OK;

    for (size_t i = 0; i < store->node_count; i++) {
        int error = IDEM_OK;

        if (store->nodes[i]->sent_count > 0)
            error = node_receive(store, store->nodes[i], deadline_us, &later);
        first = trouble_join(first, trouble, error, &later);
    }
    return first;
}

/* What was redirected goes again, and with it what follows on the same id. */
static void items_follow(struct idem_backend *store)
{
    for (size_t i = 0; i < store->item_count; i++) {
        if (!store->items[i].again)
            continue;
        store->items[i].again = false;
        for (size_t k = i + 1; k < store->item_count; k++) {
            struct idem_redis_item *later = &store->items[k];

            if (has_id(later->op) && idem_id_equal(&later->op->id, &store->items[i].op->id) &&
                later->entry[0] == '\0')
                item_restart(store, later);
        }
    }
}

static int scan_run(struct idem_backend *store, struct idem_redis_item *item, int64_t deadline_us,
                    struct idem_redis_trouble *trouble)
{
    int error = idem_redis_scan(store, item->op, deadline_us, trouble);

    item->done = error == IDEM_OK;
    store->check.done = false;
    return error;
}

static int window_run(struct idem_backend *store, int64_t deadline_us,
                      struct idem_redis_trouble *trouble)
{
    int error = window_fill(store, deadline_us, trouble);

    if (!error)
        error = window_send(store, deadline_us, trouble);
    if (!error)
        error = window_receive(store, deadline_us, trouble);
    if (error)
        idem_redis_route_drop(store, false);
    return error;
}

/* Did it write a record where there was none? Of a `fail` and a `put` that is not known. */
static bool wrote_anew(const struct idem_op *op)
{
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        return op->result == IDEM_RESULT_ACQUIRED && op->out.attempt == 1;
    case IDEM_OP_FAIL:
    case IDEM_OP_PUT:
        return op->result == IDEM_RESULT_OK;
    default:
        return false;
    }
}

/*
 * Records that match nothing in the new store would refuse whoever sends these requests again, and
 * would keep that store from being opened. What was taken over stays: it was there before.
 */
static void records_undo(struct idem_backend *store, int64_t deadline_us)
{
    struct idem_redis_trouble ignored;

    for (size_t i = 0; i < store->item_count; i++) {
        struct idem_redis_item *item = &store->items[i];
        bool anew = wrote_anew(item->op);

        item_restart(store, item);
        item->done = !anew;
        item->stage = IDEM_REDIS_STAGE_UNDO;
        if (item->op->kind == IDEM_OP_PUT)
            item->fence = item->op->in.put.record.fence;
    }
    store->check.done = true;
    while (item_next(store) && !window_run(store, deadline_us, &ignored)) {
    }
}

int idem_redis_batch_run(struct idem_backend *store, int64_t deadline_us,
                         struct idem_redis_trouble *trouble)
{
    bool checked = store->options.topology == IDEM_REDIS_CLUSTER;
    struct idem_redis_item *item;
    int error = IDEM_OK;

    store->differs = false;
    while (!error && (item = item_next(store))) {
        if (item->op->kind == IDEM_OP_SCAN) {
            error = scan_run(store, item, deadline_us, trouble);
            continue;
        }
        store->check.done = store->check.done && !checked;
        error = window_run(store, deadline_us, trouble);
        if (!error)
            items_follow(store);
    }
    for (size_t i = 0; !error && i < store->node_count; i++)
        store->nodes[i]->worked = store->nodes[i]->link.context != NULL;
    if (store->differs && checked)
        records_undo(store, deadline_us);
    return error;
}
