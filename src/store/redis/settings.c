/*
 * What a server showed of itself, and whether it may be trusted with keys (design 5.3). Settings
 * that cannot be seen count as wrong: a store that may evict a claim is none.
 */
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis_store.h"

#define VERSION_MIN 7

/* The value of "name:value\r\n" in an INFO; false when it has no such line. */
static bool info_value(const redisReply *info, const char *name, char *ret_value, size_t size)
{
    size_t name_size = strlen(name);

    for (const char *line = info->str; line; line = strchr(line, '\n')) {
        size_t length;

        line += *line == '\n';
        if (strncmp(line, name, name_size) != 0 || line[name_size] != ':')
            continue;
        line += name_size + 1;
        length = strcspn(line, "\r\n");
        if (length >= size)
            length = size - 1;
        memcpy(ret_value, line, length);
        ret_value[length] = '\0';
        return true;
    }
    return false;
}

static uint64_t info_number(const redisReply *info, const char *name)
{
    char text[32];

    return info_value(info, name, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

static bool info_is(const redisReply *info, const char *name, const char *wanted)
{
    char text[32];

    return info_value(info, name, text, sizeof text) && strcmp(text, wanted) == 0;
}

void idem_redis_settings_info(struct idem_redis_settings *settings, const redisReply *info)
{
    info_value(info, "redis_version", settings->version, sizeof settings->version);
    settings->valkey = info_is(info, "server_name", "valkey");
    settings->sentinel = info_is(info, "redis_mode", "sentinel");
    settings->cluster = info_is(info, "cluster_enabled", "1");
    settings->master = info_is(info, "role", "master");
    info_value(info, "run_id", settings->run_id, sizeof settings->run_id);
    info_value(info, "maxmemory_policy", settings->policy, sizeof settings->policy);
    settings->maxmemory = info_number(info, "maxmemory");
    settings->used_memory = info_number(info, "used_memory");
    settings->aof = info_is(info, "aof_enabled", "1");
    settings->replicas = (unsigned)info_number(info, "connected_slaves");
}

/* CONFIG GET answers names and values in turn. */
void idem_redis_settings_config(struct idem_redis_settings *settings, const redisReply *config)
{
    settings->config_seen = true;
    for (size_t i = 0; i + 1 < config->elements; i += 2) {
        const char *name = config->element[i]->str, *value = config->element[i + 1]->str;

        if (!name || !value)
            continue;
        if (strcmp(name, "maxmemory-policy") == 0)
            snprintf(settings->policy, sizeof settings->policy, "%s", value);
        else if (strcmp(name, "appendonly") == 0)
            settings->aof = strcmp(value, "yes") == 0;
        else if (strcmp(name, "appendfsync") == 0)
            snprintf(settings->fsync, sizeof settings->fsync, "%s", value);
        else if (strcmp(name, "no-appendfsync-on-rewrite") == 0)
            settings->fsync_suspended = strcmp(value, "yes") == 0;
        else if (strcmp(name, "min-replicas-to-write") == 0)
            settings->replicas_min = (unsigned)strtoul(value, NULL, 10);
    }
}

static int judge_version(const struct idem_redis_settings *settings, const char *place,
                         struct idem_redis_trouble *trouble)
{
    if (settings->version[0] == '\0')
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNSAFE, false,
                                      "Redis at %s does not show its version and settings: let "
                                      "this user run INFO",
                                      place);
    if (strtoul(settings->version, NULL, 10) < VERSION_MIN)
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNSUPPORTED, false,
                                      "Redis at %s is version %s: idem needs Redis %d or later, or "
                                      "Valkey",
                                      place, settings->version, VERSION_MIN);
    return IDEM_OK;
}

static int judge_role(const struct idem_redis_settings *settings,
                      const struct idem_redis_options *options, const char *place,
                      struct idem_redis_trouble *trouble)
{
    if (settings->sentinel)
        return idem_redis_sentinel_met(place, trouble);
    if (!settings->master)
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, true,
                                      "Redis at %s is a replica and takes no writes: name the "
                                      "master, or its sentinels by redis+sentinel:",
                                      place);
    if (settings->cluster && options->topology != IDEM_REDIS_CLUSTER)
        return idem_redis_trouble_set(trouble, IDEM_ERR_INVALID, false,
                                      "Redis at %s is part of a cluster: write redis+cluster: in "
                                      "the store's URL",
                                      place);
    if (!settings->cluster && options->topology == IDEM_REDIS_CLUSTER)
        return idem_redis_trouble_set(trouble, IDEM_ERR_INVALID, false,
                                      "Redis at %s is no part of a cluster: write redis: in the "
                                      "store's URL",
                                      place);
    return IDEM_OK;
}

static int judge_policy(const struct idem_redis_settings *settings, const char *place,
                        struct idem_redis_trouble *trouble)
{
    if (settings->policy[0] == '\0')
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNSAFE, false,
                                      "Redis at %s does not show its maxmemory-policy: let this "
                                      "user run CONFIG GET or INFO, because a server that evicts "
                                      "keys would let an operation run twice",
                                      place);
    if (strcmp(settings->policy, "noeviction") != 0)
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNSAFE, false,
                                      "Redis at %s has maxmemory-policy %s and may evict a key, "
                                      "whose operation would then run twice: set maxmemory-policy "
                                      "noeviction",
                                      place, settings->policy);
    return IDEM_OK;
}

/* sync=always: on the disk before it is answered. */
static int judge_sync(const struct idem_redis_settings *settings, const char *place,
                      struct idem_redis_trouble *trouble)
{
    const char *fault = NULL;

    if (!settings->aof)
        fault = "has appendonly no: set appendonly yes and appendfsync always";
    else if (settings->fsync[0] == '\0')
        fault = "does not show its appendfsync: let this user run CONFIG GET";
    else if (strcmp(settings->fsync, "always") != 0)
        fault = "may lose what it acknowledged: set appendfsync always";
    else if (settings->fsync_suspended)
        fault = "does not flush while it rewrites its log: set no-appendfsync-on-rewrite no";
    if (!fault)
        return IDEM_OK;
    return idem_redis_trouble_set(trouble, IDEM_ERR_UNSAFE, false,
                                  "Redis at %s %s, or accept the loss by sync=off in the store's "
                                  "URL",
                                  place, fault);
}

int idem_redis_settings_judge(const struct idem_redis_settings *settings,
                              const struct idem_redis_options *options, const char *place,
                              struct idem_redis_trouble *trouble)
{
    int error = judge_version(settings, place, trouble);

    if (!error)
        error = judge_role(settings, options, place, trouble);
    if (!error)
        error = judge_policy(settings, place, trouble);
    if (!error && options->sync)
        error = judge_sync(settings, place, trouble);
    return error;
}
