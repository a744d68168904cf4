/*
 * The Redis store: what the front calls. redis_store.h says where the rest is.
 *
 * A call ends within the URL's timeout. While that lasts, a batch that was lost on the way (a
 * connection that broke, a server that starts or has become a replica) is repeated whole, over new
 * connections, which is safe because every op knows its owner. Once a call has ended without
 * getting through, those after it try once only, until one does: a server that is down does not
 * keep everybody waiting for it.
 */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/backend.h"
#include "store/redis/redis_store.h"

#define PAUSE_US_FIRST (10 * IDEM_SECOND_US / 1000)
#define PAUSE_US_MAX   (IDEM_SECOND_US / 2)

static int memory_failure(struct idem_message *message)
{
    idem_message_set(message, "there is no memory left to open a store");
    return IDEM_ERR_NOMEM;
}

static int redis_check(const struct idem_url *url, char **ret_directory,
                       struct idem_message *message)
{
    struct idem_redis_options *options = idem_malloc(sizeof *options);
    int error;

    if (!options)
        return memory_failure(message);
    error = idem_redis_options_read(url, options, message);
    idem_free(options);
    if (!error)
        *ret_directory = NULL;
    return error;
}

static void redis_close(struct idem_backend *store)
{
    for (size_t i = 0; i < store->node_count; i++)
        idem_redis_node_free(store->nodes[i]);
    idem_free(store->slots);
    idem_free(store);
}

/* Something that may be repeated: it fails as its trouble says, or is done. */
typedef int attempted(struct idem_backend *store, int64_t deadline_us, void *context,
                      struct idem_redis_trouble *trouble);

/* Waits before the next attempt; false when the time is up. */
static bool pause_take(int64_t *pause_us, int64_t deadline_us)
{
    int64_t left_us = deadline_us - idem_redis_now_us();

    if (left_us <= *pause_us)
        return false;
    (void)poll(NULL, 0, (int)(*pause_us / 1000));
    *pause_us = 2 * *pause_us < PAUSE_US_MAX ? 2 * *pause_us : PAUSE_US_MAX;
    return true;
}

static int attempts_run(struct idem_backend *store, bool patient, attempted *attempt, void *context,
                        struct idem_message *message)
{
    int64_t deadline_us = idem_redis_now_us() + store->options.timeout_us;
    int64_t pause_us = PAUSE_US_FIRST;
    struct idem_redis_trouble trouble;
    struct idem_redis_quiet quiet;
    int error;

    idem_redis_quiet_begin(&quiet);
    do {
        error = attempt(store, deadline_us, context, &trouble);
    } while (error && trouble.again && patient && pause_take(&pause_us, deadline_us));
    idem_redis_quiet_end(&quiet);
    store->down = error && trouble.again;
    if (error)
        idem_message_set(message, "%s", trouble.message.text);
    return error;
}

static int open_attempt(struct idem_backend *store, int64_t deadline_us, void *context,
                        struct idem_redis_trouble *trouble)
{
    return idem_redis_salt_keep(store, deadline_us, context, trouble);
}

static int redis_open(const struct idem_url *url, const struct idem_clock *clock,
                      struct idem_backend **ret_backend, struct idem_salt *ret_salt,
                      struct idem_message *message)
{
    struct idem_backend *store = idem_calloc(1, sizeof *store);
    int error;

    (void)clock; /* time is Redis's own */
    if (!store)
        return memory_failure(message);
    store->pid = getpid();
    error = idem_redis_options_read(url, &store->options, message);
    /* Behind one address a wrong one is told at once; several may be about to change over. */
    if (!error)
        error = attempts_run(store, store->options.topology != IDEM_REDIS_SINGLE, open_attempt,
                             ret_salt, message);
    if (error)
        redis_close(store);
    else
        *ret_backend = store;
    return error;
}

static int forked(struct idem_message *message)
{
    idem_message_set(message, "the Redis store was opened before a fork and cannot be used after "
                              "it: open it in the child");
    return IDEM_ERR_INVALID;
}

/* What an attempt before has found is not to be trusted, nor to be leaked. */
static int apply_attempt(struct idem_backend *store, int64_t deadline_us, void *context,
                         struct idem_redis_trouble *trouble)
{
    (void)context;
    idem_redis_items_reset(store);
    return idem_redis_batch_run(store, deadline_us, trouble);
}

static int redis_apply(struct idem_backend *store, struct idem_op *const *ops, size_t count,
                       struct idem_message *message)
{
    if (store->pid != getpid())
        return forked(message);
    idem_redis_items_begin(store, ops, count);
    return attempts_run(store, !store->down, apply_attempt, NULL, message);
}

static int adopt_attempt(struct idem_backend *store, int64_t deadline_us, void *context,
                         struct idem_redis_trouble *trouble)
{
    return idem_redis_salt_adopt(store, context, deadline_us, trouble);
}

static int redis_adopt(struct idem_backend *store, const struct idem_salt *salt,
                       struct idem_message *message)
{
    struct idem_salt copy = *salt;

    if (store->pid != getpid())
        return forked(message);
    return attempts_run(store, false, adopt_attempt, &copy, message);
}

static bool redis_is_new(const struct idem_backend *store)
{
    return store->made;
}

static const char *const schemes[] = {"redis",          "rediss",        "redis+unix",
                                      "redis+sentinel", "redis+cluster", NULL};

const struct idem_backend_ops idem_backend_redis = {
    .schemes = schemes,
    .check = redis_check,
    .open = redis_open,
    .close = redis_close,
    .apply = redis_apply,
    .describe = idem_redis_describe,
    .is_new = redis_is_new,
    .adopt = redis_adopt,
};
