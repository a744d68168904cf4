/*
 * The URL of a Redis store, as one of
 *
 *   redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]      rediss:// the same with TLS
 *   redis+unix:SOCKET
 *   redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT],…/MASTER[/DATABASE]
 *   redis+cluster://[USER[:PASSWORD]@]HOST[:PORT],…
 *
 * and its options, which the table below names.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/redis/redis_store.h"

#define PORT_REDIS    6379
#define PORT_SENTINEL 26379
#define DATABASE_MAX  1000000 /* more than any server is set up for */

static int fault(struct idem_message *message, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int fault(struct idem_message *message, const char *format, ...)
{
    char text[IDEM_MESSAGE_SIZE_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    idem_message_set(message, "%s", text);
    return IDEM_ERR_INVALID;
}

/* A number of plain digits, or -1. */
static long number_parse(const char *text, long max)
{
    char *end;
    unsigned long number;

    if (text[0] < '0' || text[0] > '9')
        return -1;
    number = strtoul(text, &end, 10);
    return *end != '\0' || number > (unsigned long)max ? -1 : (long)number;
}

static int text_keep(const char *name, const char *value, char *ret_text, size_t size,
                     struct idem_message *message)
{
    if (strlen(value) >= size)
        return fault(message, "the store URL's %s is longer than %zu bytes", name, size - 1);
    memcpy(ret_text, value, strlen(value) + 1);
    return IDEM_OK;
}

static int sync_read(struct idem_redis_options *options, const char *value,
                     struct idem_message *message)
{
    options->sync = strcmp(value, "always") == 0;
    if (!options->sync && strcmp(value, "off") != 0)
        return fault(message, "sync=%s is not allowed: write sync=always or sync=off", value);
    return IDEM_OK;
}

/*
 * A prefix is part of the pattern that a scan asks for, and of the key that a cluster hashes: what
 * means something to either is not allowed.
 */
static int prefix_read(struct idem_redis_options *options, const char *value,
                       struct idem_message *message)
{
    size_t plain = strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 ":._-/");

    if (value[0] == '\0' || value[plain] != '\0' || plain > IDEM_REDIS_PREFIX_MAX)
        return fault(message,
                     "prefix=%.80s is not allowed: write 1 to %d letters, digits and : . _ - /",
                     value, IDEM_REDIS_PREFIX_MAX);
    return text_keep("prefix", value, options->prefix, sizeof options->prefix, message);
}

static int replicas_read(struct idem_redis_options *options, const char *value,
                         struct idem_message *message)
{
    long number = number_parse(value, IDEM_REDIS_REPLICAS_MAX);

    if (number < 0)
        return fault(message, "replicas=%s is not allowed: write a number from 0 to %d", value,
                     IDEM_REDIS_REPLICAS_MAX);
    options->replicas = (unsigned)number;
    return IDEM_OK;
}

static int database_read(struct idem_redis_options *options, const char *value,
                         struct idem_message *message)
{
    long number = number_parse(value, DATABASE_MAX);

    if (number < 0)
        return fault(message,
                     "the store URL's database \"%s\" is not a number: Redis numbers them from 0",
                     value);
    if (number > 0 && options->topology == IDEM_REDIS_CLUSTER)
        return fault(message, "a Redis cluster has database 0 only: leave the database away");
    options->database = (unsigned)number;
    return IDEM_OK;
}

static int tls_read(struct idem_redis_options *options, const char *value,
                    struct idem_message *message)
{
    options->tls = strcmp(value, "on") == 0;
    if (!options->tls && strcmp(value, "off") != 0)
        return fault(message, "tls=%s is not allowed: write tls=on or tls=off", value);
    return IDEM_OK;
}

/* Options with a text as their value: where it goes. */
static char *text_place(struct idem_redis_options *options, const char *name)
{
    const struct {
        const char *name;
        char *place;
    } places[] = {
        {"user", options->server.user},
        {"password", options->server.password},
        {"sentinel_user", options->sentinel_user},
        {"sentinel_password", options->sentinel_password},
        {"tls_ca", options->tls_ca},
        {"tls_cert", options->tls_cert},
        {"tls_key", options->tls_key},
    };

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (strcmp(places[i].name, name) == 0)
            return places[i].place;
    return NULL;
}

static int option_read(struct idem_redis_options *options, const struct idem_url_option *option,
                       struct idem_message *message)
{
    static const struct {
        const char *name;
        int (*read)(struct idem_redis_options *options, const char *value,
                    struct idem_message *message);
    } readers[] = {{"sync", sync_read},
                   {"prefix", prefix_read},
                   {"replicas", replicas_read},
                   {"database", database_read},
                   {"tls", tls_read}};
    char *place = text_place(options, option->name);

    if (place)
        return text_keep(option->name, option->value, place, IDEM_SERVER_TEXT_MAX, message);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (strcmp(readers[i].name, option->name) == 0)
            return readers[i].read(options, option->value, message);
    if (strcmp(option->name, "timeout") == 0)
        return IDEM_OK; /* read already */
    return fault(message,
                 "a Redis store has no option \"%s\": it takes timeout, sync, prefix, replicas, "
                 "user, password, database, sentinel_user, sentinel_password, tls, tls_ca, "
                 "tls_cert and tls_key",
                 option->name);
}

/* What stands after the hosts: a database, the name of a master, or both. */
static int path_read(struct idem_redis_options *options, struct idem_message *message)
{
    char *path = options->server.path;
    char *database = path;

    if (options->topology == IDEM_REDIS_SENTINEL) {
        size_t size = strcspn(path, "/");

        database = path[size] == '/' ? path + size + 1 : path + size;
        path[size] = '\0';
        if (size == 0)
            return fault(message, "the store URL names no master: write redis+sentinel://HOST/NAME "
                                  "with the name that the sentinels know it by");
        memcpy(options->master, path, size + 1);
    }
    return database[0] == '\0' ? IDEM_OK : database_read(options, database, message);
}

static int place_read(struct idem_redis_options *options, const struct idem_url *url,
                      struct idem_message *message)
{
    bool sentinel = options->topology == IDEM_REDIS_SENTINEL;
    int error =
        idem_server_parse(url, sentinel ? PORT_SENTINEL : PORT_REDIS, &options->server, message);

    if (!error)
        error = path_read(options, message);
    if (!error && options->topology == IDEM_REDIS_SINGLE && options->server.host_count > 1)
        error = fault(message,
                      "%s: names one host; several are for redis+sentinel: and "
                      "redis+cluster:",
                      url->scheme);
    return error;
}

static int socket_read(struct idem_redis_options *options, const struct idem_url *url,
                       struct idem_message *message)
{
    if (url->place[0] != '/')
        return fault(message, "redis+unix: needs the path of a socket: write "
                              "redis+unix:/run/redis/redis.sock");
    return text_keep("socket", url->place, options->socket, sizeof options->socket, message);
}

static void scheme_read(struct idem_redis_options *options, const char *scheme)
{
    if (strcmp(scheme, "redis+sentinel") == 0)
        options->topology = IDEM_REDIS_SENTINEL;
    else if (strcmp(scheme, "redis+cluster") == 0)
        options->topology = IDEM_REDIS_CLUSTER;
    else
        options->topology = IDEM_REDIS_SINGLE;
    options->tls = strcmp(scheme, "rediss") == 0;
}

/* What must not be asked for together. */
static int options_judge(const struct idem_redis_options *options, struct idem_message *message)
{
    if (options->tls && !idem_redis_tls_known) {
        idem_message_set(message, "this build of idem has no TLS to Redis: install libhiredis 1.0 "
                                  "or later with its SSL part and build again");
        return IDEM_ERR_UNSUPPORTED;
    }
    if (options->server.user[0] != '\0' && options->server.password[0] == '\0')
        return fault(message, "the store URL names the user \"%s\" without a password",
                     options->server.user);
    if ((options->tls_cert[0] == '\0') != (options->tls_key[0] == '\0'))
        return fault(message, "tls_cert and tls_key go together: name both or neither");
    return IDEM_OK;
}

int idem_redis_options_read(const struct idem_url *url, struct idem_redis_options *ret_options,
                            struct idem_message *message)
{
    struct idem_redis_options *options = ret_options;
    bool is_socket = strcmp(url->scheme, "redis+unix") == 0;
    int error;

    memset(options, 0, sizeof *options);
    options->sync = true;
    memcpy(options->prefix, "idem:", sizeof "idem:");
    scheme_read(options, url->scheme);
    error = is_socket ? socket_read(options, url, message) : place_read(options, url, message);
    if (!error)
        error = idem_url_timeout_us(url, &options->timeout_us, message);
    for (size_t i = 0; !error && i < url->option_count; i++)
        error = option_read(options, &url->options[i], message);
    return error ? error : options_judge(options, message);
}
