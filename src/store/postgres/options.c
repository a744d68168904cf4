/*
 * A URL as settings. The options that are idem's own are read here, those that libpq knows are
 * passed on, and anything else is an error: an option that is misspelt must not be left out in
 * silence. What idem decides itself (which host takes writes, how long connecting may take) is no
 * option.
 */
#define _GNU_SOURCE /* memrchr */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "store/postgres/postgres_store.h"

#define SIZE_MIN (UINT64_C(1) << 20)

/* libpq's own, by its names. */
static const char *const passed[] = {
    "application_name",
    "channel_binding",
    "gssencmode",
    "gsslib",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "passfile",
    "require_auth",
    "requirepeer",
    "sslcert",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkey",
    "sslmode",
    "sslpassword",
    "sslrootcert",
    "sslsni",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "tcp_user_timeout",
};

#define PASSED_COUNT (sizeof passed / sizeof passed[0])

/* Where the settings' own copies of texts go. */
struct keeper {
    struct idem_pg_settings *settings;
    size_t used;
    struct idem_message *message;
};

static int pair_keep(struct keeper *keeper, const char *keyword, const char *value)
{
    struct idem_pg_settings *settings = keeper->settings;
    size_t size = strlen(value) + 1;

    if (size > sizeof settings->memory - keeper->used ||
        settings->pair_count == IDEM_PG_PAIRS_MAX) {
        idem_message_set(keeper->message, "the store URL's options are too long");
        return IDEM_ERR_INVALID;
    }
    memcpy(settings->memory + keeper->used, value, size);
    settings->keywords[settings->pair_count] = keyword;
    settings->values[settings->pair_count++] = settings->memory + keeper->used;
    keeper->used += size;
    return IDEM_OK;
}

/* An option that is `on`, by its word for that, or off. */
static int switch_read(const struct idem_url_option *option, const char *on, bool *ret_is_on,
                       struct idem_message *message)
{
    if (strcmp(option->value, on) != 0 && strcmp(option->value, "off") != 0) {
        idem_message_set(message, "%s=%s is not known: write %s=%s or %s=off", option->name,
                         option->value, option->name, on, option->name);
        return IDEM_ERR_INVALID;
    }
    *ret_is_on = strcmp(option->value, on) == 0;
    return IDEM_OK;
}

static int size_read(const char *text, uint64_t *ret_size, struct idem_message *message)
{
    if (idem_size_parse(text, ret_size) || *ret_size < SIZE_MIN) {
        idem_message_set(message, "size=%s is not allowed: write at least 1m, such as 16g", text);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

/* Plain names only: they go into SQL, and a person has to type them. */
static int schema_read(const char *text, char ret_schema[IDEM_PG_SCHEMA_MAX + 1],
                       struct idem_message *message)
{
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");

    if (size == 0 || text[size] != '\0' || size > IDEM_PG_SCHEMA_MAX ||
        (text[0] >= '0' && text[0] <= '9') || strncmp(text, "pg_", 3) == 0) {
        idem_message_set(message,
                         "schema=%s is not allowed: write a name of small letters, digits and "
                         "underscores, such as schema=idem",
                         text);
        return IDEM_ERR_INVALID;
    }
    snprintf(ret_schema, IDEM_PG_SCHEMA_MAX + 1, "%s", text);
    return IDEM_OK;
}

static int host_read(const char *text, struct idem_server_host *ret_host,
                     struct idem_message *message)
{
    if (text[0] == '\0' || strlen(text) >= sizeof ret_host->name) {
        idem_message_set(message, "host= is empty or too long: write a name, or the directory of "
                                  "the server's socket, such as host=/run/postgresql");
        return IDEM_ERR_INVALID;
    }
    snprintf(ret_host->name, sizeof ret_host->name, "%s", text);
    return IDEM_OK;
}

static int port_read(const char *text, struct idem_server_host *ret_host,
                     struct idem_message *message)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || port == 0 || port > UINT16_MAX) {
        idem_message_set(message, "port=%s is not a number from 1 to 65535", text);
        return IDEM_ERR_INVALID;
    }
    ret_host->port = (uint16_t)port;
    return IDEM_OK;
}

static int unknown_option(const char *name, struct idem_message *message)
{
    char known[IDEM_MESSAGE_SIZE_MAX] = "";
    size_t used = 0;

    for (size_t i = 0; i < PASSED_COUNT; i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", passed[i]);
    idem_message_set(message,
                     "the PostgreSQL store has no option \"%.40s\": it takes timeout, sync, size, "
                     "schema, vacuum, host, port, and libpq's %s",
                     name, known);
    return IDEM_ERR_INVALID;
}

static int option_read(struct keeper *keeper, const struct idem_url_option *option)
{
    struct idem_pg_settings *settings = keeper->settings;
    struct idem_message *message = keeper->message;

    if (strcmp(option->name, "timeout") == 0)
        return IDEM_OK; /* read by idem_url_timeout_us */
    if (strcmp(option->name, "sync") == 0)
        return switch_read(option, "always", &settings->sync, message);
    if (strcmp(option->name, "vacuum") == 0)
        return switch_read(option, "auto", &settings->vacuum, message);
    if (strcmp(option->name, "size") == 0)
        return size_read(option->value, &settings->size, message);
    if (strcmp(option->name, "schema") == 0)
        return schema_read(option->value, settings->schema, message);
    if (strcmp(option->name, "host") == 0)
        return host_read(option->value, &settings->server.hosts[0], message);
    if (strcmp(option->name, "port") == 0)
        return port_read(option->value, &settings->server.hosts[0], message);
    for (size_t i = 0; i < PASSED_COUNT; i++)
        if (strcmp(option->name, passed[i]) == 0)
            return pair_keep(keeper, passed[i], option->value);
    return unknown_option(option->name, message);
}

/* Where a host would begin in "//[USER[:PASSWORD]@]HOST…", when none is there; otherwise NULL. */
static const char *host_missing(const char *place)
{
    size_t size;
    const char *at;

    if (strncmp(place, "//", 2) != 0)
        return NULL;
    place += 2;
    size = strcspn(place, "/");
    at = memrchr(place, '@', size);
    at = at ? at + 1 : place;
    return at == place + size ? at : NULL;
}

/* libpq's way to write "by the options": postgresql:///DATABASE?host=DIRECTORY. */
static int server_read(const struct idem_url *url, struct idem_server *ret_server,
                       struct idem_message *message)
{
    const char *missing = host_missing(url->raw_place);
    struct idem_url *named;
    char *place;
    size_t size;
    int error;

    if (!missing && (idem_url_option(url, "host") || idem_url_option(url, "port"))) {
        idem_message_set(message, "the store URL names a host and has an option for one as well: "
                                  "leave one of them out");
        return IDEM_ERR_INVALID;
    }
    if (!missing || !idem_url_option(url, "host"))
        return idem_server_parse(url, IDEM_PG_PORT, ret_server, message);
    size = strlen(url->raw_place) + sizeof "localhost";
    named = idem_malloc(sizeof *named);
    place = idem_malloc(size);
    error = named && place ? IDEM_OK : IDEM_ERR_NOMEM;
    if (!error) {
        snprintf(place, size, "%.*slocalhost%s", (int)(missing - url->raw_place), url->raw_place,
                 missing);
        *named = *url;
        named->raw_place = place;
        error = idem_server_parse(named, IDEM_PG_PORT, ret_server, message);
    } else {
        idem_message_set(message, "there is no memory left to read a store URL");
    }
    idem_free(place);
    idem_free(named);
    return error;
}

/* What is told to every server in the same way. */
static int pairs_keep(struct keeper *keeper)
{
    struct idem_pg_settings *settings = keeper->settings;
    const struct idem_server *server = &settings->server;
    int error = pair_keep(keeper, "dbname", server->path);

    if (!error && server->user[0])
        error = pair_keep(keeper, "user", server->user);
    if (!error && server->password[0])
        error = pair_keep(keeper, "password", server->password);
    if (!error)
        error = pair_keep(keeper, "client_encoding", "UTF8");
    if (!error)
        error = pair_keep(keeper, "fallback_application_name", "idem");
    return error;
}

int idem_pg_settings_read(const struct idem_url *url, struct idem_pg_settings *ret_settings,
                          struct idem_message *message)
{
    struct keeper keeper = {.settings = ret_settings, .message = message};
    int error;

    memset(ret_settings, 0, sizeof *ret_settings);
    ret_settings->sync = ret_settings->vacuum = true;
    snprintf(ret_settings->schema, sizeof ret_settings->schema, "public");
    error = server_read(url, &ret_settings->server, message);
    if (error)
        return error;
    if (ret_settings->server.path[0] == '\0' || strchr(ret_settings->server.path, '/')) {
        idem_message_set(message, "the store URL names %s: write postgresql://HOST/DATABASE",
                         ret_settings->server.path[0]
                             ? "a database with a slash, which is not taken"
                             : "no database");
        return IDEM_ERR_INVALID;
    }
    error = idem_url_timeout_us(url, &ret_settings->timeout_us, message);
    if (!error)
        error = pairs_keep(&keeper);
    for (size_t i = 0; i < url->option_count && !error; i++)
        error = option_read(&keeper, &url->options[i]);
    return error;
}
