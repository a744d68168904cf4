/*
 * The salt: 32 random bytes in a key of their own, made once by whoever opens a new store first.
 * Records without a salt are a store that was damaged: with a new one, nothing in it would match.
 */
#include <sodium.h>

#include "store/redis/redis_store.h"
#include "store/redis/script_text.h"

/* GET: *ret_found false when there is none. */
static int salt_read(struct idem_backend *store, const char *key, int64_t deadline_us,
                     struct idem_salt *ret_salt, bool *ret_found,
                     struct idem_redis_trouble *trouble)
{
    const char *const words[] = {"GET", key, NULL};
    struct idem_redis_request request = {0};
    struct idem_redis_node *node;
    redisReply *reply;
    int error;

    idem_redis_request_texts(&request, words);
    error = idem_redis_route_ask(store, key, &request, deadline_us, &reply, &node, trouble);
    idem_redis_request_deinit(&request);
    if (error)
        return error;
    *ret_found = reply->type != REDIS_REPLY_NIL;
    if (reply->type == REDIS_REPLY_STRING && reply->len == IDEM_SALT_SIZE)
        memcpy(ret_salt->bytes, reply->str, IDEM_SALT_SIZE);
    else if (reply->type == REDIS_REPLY_STRING || idem_redis_reply_is_error(reply, "WRONGTYPE"))
        error = idem_redis_trouble_set(trouble, IDEM_ERR_CORRUPT, false,
                                       "the key %s in Redis at %s holds something that idem did "
                                       "not write: name another prefix in the store's URL",
                                       key, node->link.place);
    else if (*ret_found)
        error = idem_redis_reply_trouble(reply, node->link.place, trouble);
    freeReplyObject(reply);
    return error;
}

/*
 * A record, whoever made it. Where they are all that a store has, one is found at once, so that to
 * be thorough is only for when other keys may be many.
 */
static int record_exists(struct idem_backend *store, bool thorough, int64_t deadline_us,
                         bool *ret_exists, struct idem_redis_trouble *trouble)
{
    struct idem_op op = {.kind = IDEM_OP_SCAN, .in.scan.limit = 1};
    int error;

    *ret_exists = false;
    do {
        struct idem_id next;

        error = idem_redis_scan(store, &op, deadline_us, trouble);
        if (error)
            break;
        *ret_exists = op.out.damaged > 0;
        for (size_t i = 0; i < op.out.count; i++)
            *ret_exists |= op.out.page[i].record.kind != IDEM_KIND_SELFTEST;
        op.in.scan.has_cursor = op.out.more;
        next = op.out.next;
        idem_op_deinit(&op);
        op.in.scan.cursor = next;
    } while (thorough && !*ret_exists && op.in.scan.has_cursor);
    idem_op_deinit(&op);
    return error;
}

/* SET NX: *ret_made is false when somebody was quicker. */
static int salt_make(struct idem_backend *store, const char *key, int64_t deadline_us,
                     bool *ret_made, struct idem_redis_trouble *trouble)
{
    struct idem_redis_request request = {0};
    struct idem_salt salt;
    struct idem_redis_node *node;
    redisReply *reply;
    int error;

    randombytes_buf(salt.bytes, sizeof salt.bytes);
    idem_redis_request_begin(&request, 4);
    idem_redis_request_text(&request, "SET");
    idem_redis_request_text(&request, key);
    idem_redis_request_bytes(&request, idem_bytes_make(salt.bytes, sizeof salt.bytes));
    idem_redis_request_text(&request, "NX");
    error = idem_redis_route_ask(store, key, &request, deadline_us, &reply, &node, trouble);
    idem_redis_request_deinit(&request);
    sodium_memzero(&salt, sizeof salt);
    if (error)
        return error;
    *ret_made = reply->type == REDIS_REPLY_STATUS;
    if (!*ret_made && reply->type != REDIS_REPLY_NIL)
        error = idem_redis_reply_trouble(reply, node->link.place, trouble);
    freeReplyObject(reply);
    return error;
}

/*
 * The store's salt from now on, once as many replicas as the URL asks for have it: by a batch,
 * which waits for them.
 */
static int salt_take(struct idem_backend *store, const struct idem_salt *salt, int64_t deadline_us,
                     struct idem_redis_trouble *trouble)
{
    struct idem_op op = {.kind = IDEM_OP_SWEEP, .in.sweep.limit = 1}; /* goes where the salt is */
    struct idem_op *const ops[] = {&op};
    struct idem_salt before = store->salt;
    int error = IDEM_OK;

    store->salt = *salt;
    if (store->options.replicas > 0) {
        idem_redis_items_begin(store, ops, 1);
        idem_redis_items_reset(store);
        error = idem_redis_batch_run(store, deadline_us, trouble);
        idem_op_deinit(&op);
    }
    if (error)
        store->salt = before;
    return error;
}

static int salt_lost(const char *key, struct idem_redis_trouble *trouble)
{
    return idem_redis_trouble_set(trouble, IDEM_ERR_CORRUPT, false,
                                  "Redis holds records of idem, but their salt, the key %s, is "
                                  "gone: restore it from a backup, or name another prefix in the "
                                  "store's URL and begin anew",
                                  key);
}

/* A new store: whoever is quicker makes the salt. */
static int salt_begin(struct idem_backend *store, const char *key, int64_t deadline_us,
                      struct idem_salt *salt, struct idem_redis_trouble *trouble)
{
    bool exists = false, found = false;
    int error = record_exists(store, false, deadline_us, &exists, trouble);

    if (!error && exists) { /* of who was quicker? */
        error = salt_read(store, key, deadline_us, salt, &found, trouble);
        if (!error && !found)
            error = salt_lost(key, trouble);
        return error;
    }
    if (!error)
        error = salt_make(store, key, deadline_us, &store->made, trouble);
    if (!error)
        error = salt_read(store, key, deadline_us, salt, &found, trouble);
    if (!error && !found)
        error = salt_lost(key, trouble);
    return error;
}

int idem_redis_salt_keep(struct idem_backend *store, int64_t deadline_us,
                         struct idem_salt *ret_salt, struct idem_redis_trouble *trouble)
{
    char key[IDEM_REDIS_KEY_MAX];
    struct idem_salt salt = {{0}};
    bool found = false;
    int error;

    idem_redis_key_named(&store->options, IDEM_REDIS_NAME_SALT, key);
    error = salt_read(store, key, deadline_us, &salt, &found, trouble);
    if (!error && !found)
        error = salt_begin(store, key, deadline_us, &salt, trouble);
    if (!error)
        error = salt_take(store, &salt, deadline_us, trouble);
    if (!error)
        *ret_salt = salt;
    return error;
}

/*
 * A connection that has worked may be to a server that is no longer the one that a new connection
 * leads to, such as a master that was demoted. So it is made anew, and asked there, once.
 */
int idem_redis_salt_differs(const struct idem_backend *store, const struct idem_redis_node *node,
                            struct idem_redis_trouble *trouble)
{
    char key[IDEM_REDIS_KEY_MAX];

    idem_redis_key_named(&store->options, IDEM_REDIS_NAME_SALT, key);
    return idem_redis_trouble_set(trouble, IDEM_ERR_UNSAFE, node->worked,
                                  "Redis at %s no longer holds the store that was opened: its key "
                                  "%s has gone or is another's, and keys from before are not "
                                  "protected any more",
                                  node->link.place, key);
}

/* Another's salt in place of our own, if it is still ours. */
static int salt_exchange(struct idem_backend *store, const struct idem_salt *salt,
                         int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    struct idem_redis_request request = {0};
    char key[IDEM_REDIS_KEY_MAX];
    struct idem_redis_node *node;
    redisReply *reply;
    int error;

    idem_redis_key_named(&store->options, IDEM_REDIS_NAME_SALT, key);
    idem_redis_request_begin(&request, 6);
    idem_redis_request_text(&request, "EVAL");
    idem_redis_request_text(&request, idem_redis_script_adopt);
    idem_redis_request_text(&request, "1");
    idem_redis_request_text(&request, key);
    idem_redis_request_bytes(&request, idem_bytes_make(store->salt.bytes, IDEM_SALT_SIZE));
    idem_redis_request_bytes(&request, idem_bytes_make(salt->bytes, IDEM_SALT_SIZE));
    error = idem_redis_route_ask(store, key, &request, deadline_us, &reply, &node, trouble);
    if (request.bytes)
        sodium_memzero(request.bytes, request.size);
    idem_redis_request_deinit(&request);
    if (error)
        return error;
    if (reply->type != REDIS_REPLY_INTEGER)
        error = idem_redis_reply_trouble(reply, node->link.place, trouble);
    else if (reply->integer != 1)
        error = idem_redis_trouble_set(trouble, IDEM_ERR_INVALID, false,
                                       "somebody else has changed this store's salt meanwhile: "
                                       "open it again");
    freeReplyObject(reply);
    return error;
}

int idem_redis_salt_adopt(struct idem_backend *store, const struct idem_salt *salt,
                          int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    bool exists;
    int error = record_exists(store, true, deadline_us, &exists, trouble);

    if (!error && exists)
        error = idem_redis_trouble_set(trouble, IDEM_ERR_INVALID, false,
                                       "this Redis store holds records of its own, made under "
                                       "another salt: copy into one without, such as one with "
                                       "another prefix");
    if (!error)
        error = salt_exchange(store, salt, deadline_us, trouble);
    return error ? error : salt_take(store, salt, deadline_us, trouble);
}
