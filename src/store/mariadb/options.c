/* The URL: mariadb://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE[?OPTIONS]. */
#include <stdio.h>
#include <strings.h>

#include "store/mariadb/mariadb_store.h"

#define SIZE_MIN (UINT64_C(1) << 20) /* empty tables take a sixteenth of this */

static int invalid(struct idem_message *message, const char *name, const char *value,
                   const char *hint)
{
    idem_message_set(message, "%s=%s is not allowed: write %s", name, value, hint);
    return IDEM_ERR_INVALID;
}

static int path_read(const char *name, const char *value, char *ret_path,
                     struct idem_message *message)
{
    if (value[0] != '/' || strlen(value) >= IDEM_MARIADB_PATH_SIZE)
        return invalid(message, name, value, "the whole path of a file, at most 255 bytes");
    snprintf(ret_path, IDEM_MARIADB_PATH_SIZE, "%s", value);
    return IDEM_OK;
}

static int sync_read(const char *value, struct idem_mariadb_options *options,
                     struct idem_message *message)
{
    options->sync = strcmp(value, "always") == 0;
    if (!options->sync && strcmp(value, "off") != 0)
        return invalid(message, "sync", value, "sync=always or sync=off");
    return IDEM_OK;
}

static int size_read(const char *value, struct idem_mariadb_options *options,
                     struct idem_message *message)
{
    if (idem_size_parse(value, &options->size) || options->size < SIZE_MIN)
        return invalid(message, "size", value, "at least 1m, such as 512m or 16g");
    return IDEM_OK;
}

static int tls_read(const char *value, struct idem_mariadb_options *options,
                    struct idem_message *message)
{
    static const char *const words[] = {
        [IDEM_MARIADB_TLS_OFF] = "off",
        [IDEM_MARIADB_TLS_ON] = "on",
        [IDEM_MARIADB_TLS_VERIFY] = "verify",
    };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(value, words[i]) == 0) {
            options->tls = (enum idem_mariadb_tls)i;
            return IDEM_OK;
        }
    }
    return invalid(message, "ssl", value,
                   "ssl=verify, ssl=on (encrypted, but to whoever answers) or ssl=off");
}

static int option_read(const struct idem_url *url, const struct idem_url_option *option,
                       struct idem_mariadb_options *options, struct idem_message *message)
{
    if (strcmp(option->name, "timeout") == 0)
        return idem_url_timeout_us(url, &options->timeout_us, message);
    if (strcmp(option->name, "sync") == 0)
        return sync_read(option->value, options, message);
    if (strcmp(option->name, "size") == 0)
        return size_read(option->value, options, message);
    if (strcmp(option->name, "socket") == 0)
        return path_read("socket", option->value, options->socket, message);
    if (strcmp(option->name, "ssl_ca") == 0)
        return path_read("ssl_ca", option->value, options->ssl_ca, message);
    if (strcmp(option->name, "ssl") == 0)
        return tls_read(option->value, options, message);
    idem_message_set(message,
                     "the %s store has no option \"%s\": it takes timeout, sync, size, socket, ssl "
                     "and ssl_ca",
                     url->scheme, option->name);
    return IDEM_ERR_INVALID;
}

/* A name that needs no quoting rules to be the same in every server and in every message. */
static bool database_is_plain(const char *name)
{
    size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$");

    return size > 0 && size <= IDEM_MARIADB_DATABASE_MAX && name[size] == '\0';
}

/* The server's own: no place for tables of others. */
static bool database_is_servers(const char *name)
{
    static const char *const names[] = {"mysql", "sys", "information_schema", "performance_schema"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

static int server_check(const struct idem_url *url, const struct idem_mariadb_options *options,
                        struct idem_message *message)
{
    if (!database_is_plain(options->server.path)) {
        idem_message_set(message,
                         "the store URL must name a database after the host, 1 to %d letters, "
                         "digits, '_', '-' or '$': write %s://HOST/DATABASE",
                         IDEM_MARIADB_DATABASE_MAX, url->scheme);
        return IDEM_ERR_INVALID;
    }
    if (database_is_servers(options->server.path)) {
        idem_message_set(message,
                         "the database %s is the server's own: give idem one of its own, "
                         "%s://HOST/DATABASE",
                         options->server.path, url->scheme);
        return IDEM_ERR_INVALID;
    }
    if (options->server.host_count > 1) {
        idem_message_set(message,
                         "the %s store takes one host: two servers are two stores, unless a proxy "
                         "or a moving address in front of them says which one counts",
                         url->scheme);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

int idem_mariadb_options_read(const struct idem_url *url, struct idem_mariadb_options *ret_options,
                              struct idem_message *message)
{
    struct idem_mariadb_options options = {.timeout_us = IDEM_STORE_TIMEOUT_US, .sync = true};
    int error = idem_server_parse(url, IDEM_MARIADB_PORT, &options.server, message);

    if (!error)
        error = server_check(url, &options, message);
    for (size_t i = 0; i < url->option_count && !error; i++)
        error = option_read(url, &url->options[i], &options, message);
    if (error)
        return error;
    /* Who names the authority wants the certificate looked at. */
    if (options.ssl_ca[0] && !idem_url_option(url, "ssl"))
        options.tls = IDEM_MARIADB_TLS_VERIFY;
    *ret_options = options;
    return IDEM_OK;
}
