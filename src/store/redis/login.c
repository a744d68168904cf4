/*
 * A new connection:
 *
 *   1. AUTH
 *   2. INFO and CONFIG GET: settings.c judges the server by them
 *   3. SELECT
 *   4. SCRIPT LOAD
 *
 * Each is one round trip. It is done for every connection, because behind an address there may be
 * another server than before: a replica that was promoted may be set up differently.
 */
#include <stdio.h>

#include "store/redis/redis_store.h"

/* Receives the reply to one of several commands. *ret_reply is NULL when it was an error reply,
 * which becomes the trouble if there is none yet. */
static int reply_take(struct idem_redis_link *link, int64_t deadline_us, redisReply **ret_reply,
                      struct idem_redis_trouble *trouble)
{
    redisReply *reply = NULL;
    int error = idem_redis_link_receive(link, deadline_us, &reply, trouble);

    if (error)
        return error;
    if (reply->type == REDIS_REPLY_ERROR) {
        error = idem_redis_reply_trouble(reply, link->place, trouble);
        freeReplyObject(reply);
        return error;
    }
    *ret_reply = reply;
    return IDEM_OK;
}

/* Servers may tell a command again that they do not know. Their first word says what is wrong. */
static void secret_mask(char *words, const char *secret)
{
    size_t size = strlen(secret);

    for (words = strchr(words, ' '); words && (words = strstr(words, secret)); words += size)
        memset(words, '*', size);
}

/* `secret`, if not empty, is in no message. */
static int command_run(struct idem_redis_link *link, const char *const *words, const char *secret,
                       int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    redisReply *reply = NULL;
    int error = idem_redis_link_ask(link, words, deadline_us, &reply, trouble);

    if (error)
        return error;
    if (reply->type == REDIS_REPLY_ERROR && secret[0] != '\0')
        secret_mask(reply->str, secret);
    if (reply->type == REDIS_REPLY_ERROR)
        error = idem_redis_reply_trouble(reply, link->place, trouble);
    freeReplyObject(reply);
    return error;
}

int idem_redis_authenticate(struct idem_redis_link *link, const char *user, const char *password,
                            int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    const char *const words[] = {"AUTH", user, password, NULL};
    const char *const words_default[] = {"AUTH", password, NULL};

    if (password[0] == '\0')
        return IDEM_OK;
    return command_run(link, user[0] ? words : words_default, password, deadline_us, trouble);
}

static int database_select(struct idem_redis_link *link, const struct idem_redis_options *options,
                           int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    char number[16];
    const char *const words[] = {"SELECT", number, NULL};

    if (options->database == 0)
        return IDEM_OK;
    snprintf(number, sizeof number, "%u", options->database);
    return command_run(link, words, "", deadline_us, trouble);
}

/* INFO must be allowed, unless it says LOADING; CONFIG need not be. */
static int settings_see(struct idem_redis_link *link, int64_t deadline_us,
                        struct idem_redis_settings *settings, struct idem_redis_trouble *trouble)
{
    static const char *const info_words[] = {"INFO", NULL};
    static const char *const config_words[] = {"CONFIG",
                                               "GET",
                                               "maxmemory-policy",
                                               "appendonly",
                                               "appendfsync",
                                               "no-appendfsync-on-rewrite",
                                               "min-replicas-to-write",
                                               NULL};
    redisReply *reply = NULL;
    int error = idem_redis_link_ask(link, info_words, deadline_us, &reply, trouble);

    if (error)
        return error;
    if (reply->type == REDIS_REPLY_STRING)
        idem_redis_settings_info(settings, reply);
    else if (!idem_redis_reply_is_error(reply, "NOPERM"))
        error = idem_redis_reply_trouble(reply, link->place, trouble);
    freeReplyObject(reply);
    if (error)
        return error;
    error = idem_redis_link_ask(link, config_words, deadline_us, &reply, trouble);
    if (error)
        return error;
    if (reply->type == REDIS_REPLY_ARRAY)
        idem_redis_settings_config(settings, reply);
    freeReplyObject(reply);
    return IDEM_OK;
}

static int script_loaded(struct idem_redis_link *link, int64_t deadline_us, char *sha,
                         struct idem_redis_trouble *trouble)
{
    redisReply *reply = NULL;
    int error = reply_take(link, deadline_us, &reply, trouble);

    if (error)
        return error;
    if (reply->type == REDIS_REPLY_STRING && reply->len == IDEM_REDIS_SHA_SIZE)
        memcpy(sha, reply->str, IDEM_REDIS_SHA_SIZE + 1);
    else
        error = idem_redis_reply_trouble(reply, link->place, trouble);
    freeReplyObject(reply);
    return error;
}

int idem_redis_login_scripts(struct idem_redis_link *link, struct idem_redis_scripts *scripts,
                             int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    struct idem_redis_request request = {0};
    int error;

    for (size_t i = 0; i < IDEM_REDIS_SCRIPT_COUNT; i++) {
        const char *const words[] = {"SCRIPT", "LOAD", idem_redis_script_texts[i], NULL};

        idem_redis_request_texts(&request, words);
    }
    error = idem_redis_link_send(link, &request, deadline_us, trouble);
    idem_redis_request_deinit(&request);
    for (size_t i = 0; !error && i < IDEM_REDIS_SCRIPT_COUNT; i++)
        error = script_loaded(link, deadline_us, scripts->sha[i], trouble);
    if (error)
        idem_redis_link_close(link); /* replies may be left in it */
    return error;
}

/* A Sentinel that was taken for Redis is told as such, though it may refuse Redis's password. */
int idem_redis_login_begin(struct idem_redis_link *link, const struct idem_redis_options *options,
                           int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    struct idem_redis_settings settings = {0};
    struct idem_redis_trouble ignored;
    int error = idem_redis_authenticate(link, options->server.user, options->server.password,
                                        deadline_us, trouble);

    if (error && link->context && !settings_see(link, deadline_us, &settings, &ignored) &&
        settings.sentinel)
        error = idem_redis_sentinel_met(link->place, trouble);
    return error;
}

int idem_redis_login(struct idem_redis_link *link, const struct idem_redis_options *options,
                     int64_t deadline_us, struct idem_redis_settings *ret_settings,
                     struct idem_redis_scripts *scripts, struct idem_redis_trouble *trouble)
{
    struct idem_redis_settings settings = {0};
    int error = idem_redis_login_begin(link, options, deadline_us, trouble);

    if (!error)
        error = settings_see(link, deadline_us, &settings, trouble);
    if (!error)
        error = idem_redis_settings_judge(&settings, options, link->place, trouble);
    if (!error)
        error = database_select(link, options, deadline_us, trouble);
    if (!error)
        error = idem_redis_login_scripts(link, scripts, deadline_us, trouble);
    if (error)
        idem_redis_link_close(link);
    else
        *ret_settings = settings;
    return error;
}
