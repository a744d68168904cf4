/*
 * Where the master is (Sentinel's guide for clients):
 *
 *   1. ask the sentinels in turn for the address of the master by its name
 *   2. connect there, and see that it says it is a master: login.c does
 *   3. when the connection is lost, or the server turns out to be a replica, begin anew
 *
 * A sentinel that does not answer is given its share of the time and no more. A password is shown
 * to a sentinel only when it is meant for sentinels, or asked for.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis_store.h"

static int master_ask(struct idem_redis_link *link, const struct idem_redis_options *options,
                      int64_t deadline_us, redisReply **ret_reply,
                      struct idem_redis_trouble *trouble)
{
    const char *const words[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", options->master, NULL};

    return idem_redis_link_ask(link, words, deadline_us, ret_reply, trouble);
}

/* The sentinel wants a password: the store's own, then the question again. */
static int master_ask_again(struct idem_redis_link *link, const struct idem_redis_options *options,
                            int64_t deadline_us, redisReply **ret_reply,
                            struct idem_redis_trouble *trouble)
{
    int error = idem_redis_authenticate(link, options->server.user, options->server.password,
                                        deadline_us, trouble);

    return error ? error : master_ask(link, options, deadline_us, ret_reply, trouble);
}

static int address_read(const struct idem_redis_link *link, const redisReply *reply,
                        const struct idem_redis_options *options,
                        struct idem_redis_address *ret_address, struct idem_redis_trouble *trouble)
{
    unsigned long port;

    if (idem_redis_reply_is_unknown(reply))
        return idem_redis_sentinel_missed(link->place, reply, trouble);
    if (reply->type == REDIS_REPLY_NIL || idem_redis_reply_is_error(reply, "IDONTKNOW"))
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, true,
                                      "the sentinel at %s knows no master \"%.64s\": see the name "
                                      "in its configuration",
                                      link->place, options->master);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return idem_redis_reply_trouble(reply, link->place, trouble);
    port = strtoul(reply->element[1]->str, NULL, 10);
    if (port < 1 || port > UINT16_MAX || reply->element[0]->len >= sizeof ret_address->host)
        return idem_redis_reply_trouble(reply, link->place, trouble);
    snprintf(ret_address->host, sizeof ret_address->host, "%s", reply->element[0]->str);
    ret_address->port = (uint16_t)port;
    return IDEM_OK;
}

static int sentinel_ask(const struct idem_redis_options *options,
                        const struct idem_redis_address *sentinel, int64_t deadline_us,
                        struct idem_redis_address *ret_address, struct idem_redis_trouble *trouble)
{
    struct idem_redis_link link = {0};
    redisReply *reply = NULL;
    int error = idem_redis_link_open(&link, options, sentinel, deadline_us, trouble);

    if (!error)
        error = idem_redis_authenticate(&link, options->sentinel_user, options->sentinel_password,
                                        deadline_us, trouble);
    if (!error)
        error = master_ask(&link, options, deadline_us, &reply, trouble);
    if (!error && idem_redis_reply_is_error(reply, "NOAUTH") &&
        options->sentinel_password[0] == '\0' && options->server.password[0] != '\0') {
        freeReplyObject(reply);
        reply = NULL;
        error = master_ask_again(&link, options, deadline_us, &reply, trouble);
    }
    if (!error)
        error = address_read(&link, reply, options, ret_address, trouble);
    if (reply)
        freeReplyObject(reply);
    idem_redis_link_close(&link);
    return error;
}

int idem_redis_sentinel_find(const struct idem_redis_options *options, int64_t deadline_us,
                             struct idem_redis_address *ret_address,
                             struct idem_redis_trouble *trouble)
{
    size_t count = options->server.host_count;
    bool again = false;
    int error = IDEM_ERR_UNAVAILABLE;

    for (size_t i = 0; i < count; i++) {
        int64_t now_us = idem_redis_now_us();
        int64_t share_us = (deadline_us - now_us) / (int64_t)(count - i + 1);
        struct idem_redis_address sentinel = {.port = options->server.hosts[i].port};

        snprintf(sentinel.host, sizeof sentinel.host, "%s", options->server.hosts[i].name);
        error = sentinel_ask(options, &sentinel, now_us + share_us, ret_address, trouble);
        if (!error)
            break;
        again = again || trouble->again;
        trouble->again = again; /* the others may answer another time */
    }
    return error;
}
