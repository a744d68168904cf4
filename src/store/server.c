/*
 * The place is split from the outside in: user and password before the last '@' of what comes
 * before the first '/', then the hosts at each ',', then a host's port at its last ':'.
 * Percent-escapes are decoded last, in each part.
 */
#define _GNU_SOURCE /* memrchr */
#include "store/server.h"

#include <string.h>

#include "base/ascii.h"

#define ESCAPES "':' as %%3A, '/' as %%2F, '?' as %%3F and '@' as %%40"

/* A stretch of the URL's text that is not decoded yet. */
struct part {
    const char *text;
    size_t size;
};

/* Decodes into memory of IDEM_SERVER_TEXT_MAX bytes, as a C string. */
static int part_decode(struct part part, const char *what, char *ret_text,
                       struct idem_message *message)
{
    size_t written = 0;

    for (size_t i = 0; i < part.size; i++) {
        int c = (unsigned char)part.text[i];

        if (c == '%') {
            int high = i + 2 < part.size ? idem_hex_value((unsigned char)part.text[i + 1]) : -1;
            int low = i + 2 < part.size ? idem_hex_value((unsigned char)part.text[i + 2]) : -1;

            c = high < 0 || low < 0 ? 0 : 16 * high + low;
            i += 2;
        }
        if (c == 0 || written + 1 == IDEM_SERVER_TEXT_MAX) {
            idem_message_set(message,
                             "the store URL's %s is longer than %d bytes, or has a '%%' that is "
                             "not followed by two hex digits other than 00",
                             what, IDEM_SERVER_TEXT_MAX - 1);
            return IDEM_ERR_INVALID;
        }
        ret_text[written++] = (char)c;
    }
    ret_text[written] = '\0';
    return IDEM_OK;
}

/* Takes what stands before the separator off *rest; all of it when there is no separator. */
static struct part part_take(struct part *rest, char separator)
{
    const char *end = memchr(rest->text, separator, rest->size);
    struct part part = {rest->text, end ? (size_t)(end - rest->text) : rest->size};
    size_t taken = end ? part.size + 1 : part.size;

    rest->text += taken;
    rest->size -= taken;
    return part;
}

static int port_parse(struct part part, uint16_t *ret_port, struct idem_message *message)
{
    unsigned long port = 0;

    for (size_t i = 0; i < part.size && port <= UINT16_MAX; i++) {
        if (part.text[i] < '0' || part.text[i] > '9') {
            port = UINT16_MAX + 1ul;
            break;
        }
        port = 10 * port + (unsigned long)(part.text[i] - '0');
    }
    if (part.size == 0 || port == 0 || port > UINT16_MAX) {
        /* Not told: it may be a part of a password. */
        idem_message_set(message, "the store URL has a port that is not a number from 1 to 65535. "
                                  "In a password write " ESCAPES);
        return IDEM_ERR_INVALID;
    }
    *ret_port = (uint16_t)port;
    return IDEM_OK;
}

static bool part_has(struct part part, const char *any)
{
    for (size_t i = 0; i < part.size; i++)
        if (strchr(any, part.text[i]))
            return true;
    return false;
}

/* "name", "name:port", "[address]" or "[address]:port". */
static int host_parse(struct part part, uint16_t port_default, struct idem_server_host *ret_host,
                      struct idem_message *message)
{
    struct part name = part, port = {NULL, 0};
    const char *colon = memrchr(part.text, ':', part.size);
    const char *bracket = memrchr(part.text, ']', part.size);
    int error;

    ret_host->port = port_default;
    if (colon && (!bracket || colon > bracket)) {
        name.size = (size_t)(colon - part.text);
        port = (struct part){colon + 1, part.size - name.size - 1};
        error = port_parse(port, &ret_host->port, message);
        if (error)
            return error;
    }
    if (name.size >= 2 && name.text[0] == '[' && name.text[name.size - 1] == ']')
        name = (struct part){name.text + 1, name.size - 2};
    else if (part_has(name, ":[]")) {
        idem_message_set(message, "the store URL's host is no name: write an IPv6 address as "
                                  "[ADDRESS] or [ADDRESS]:PORT");
        return IDEM_ERR_INVALID;
    }
    if (name.size == 0) {
        idem_message_set(message,
                         "the store URL names no host: write //HOST:PORT after the scheme");
        return IDEM_ERR_INVALID;
    }
    return part_decode(name, "host", ret_host->name, message);
}

static int hosts_parse(struct part rest, uint16_t port_default, struct idem_server *server,
                       struct idem_message *message)
{
    server->host_count = 0;
    do {
        int error;

        if (server->host_count == IDEM_SERVER_HOSTS_MAX) {
            idem_message_set(message, "the store URL names more than %d hosts",
                             IDEM_SERVER_HOSTS_MAX);
            return IDEM_ERR_INVALID;
        }
        error = host_parse(part_take(&rest, ','), port_default, &server->hosts[server->host_count],
                           message);
        if (error)
            return error;
        server->host_count++;
    } while (rest.size > 0);
    return IDEM_OK;
}

static int credentials_parse(struct part part, struct idem_server *server,
                             struct idem_message *message)
{
    struct part user = part_take(&part, ':');
    int error = part_decode(user, "user", server->user, message);

    return error ? error : part_decode(part, "password", server->password, message);
}

int idem_server_parse(const struct idem_url *url, uint16_t port_default,
                      struct idem_server *ret_server, struct idem_message *message)
{
    struct part rest = {url->raw_place, strlen(url->raw_place)};
    struct part authority;
    const char *at;
    int error = IDEM_OK;

    if (strncmp(rest.text, "//", 2) != 0) {
        idem_message_set(message, "the store URL has no \"//\": write %s://HOST:PORT", url->scheme);
        return IDEM_ERR_INVALID;
    }
    rest.text += 2;
    rest.size -= 2;
    authority = part_take(&rest, '/');
    memset(ret_server, 0, sizeof *ret_server);
    at = memrchr(authority.text, '@', authority.size);
    if (at) {
        struct part credentials = {authority.text, (size_t)(at - authority.text)};

        authority.text = at + 1;
        authority.size -= credentials.size + 1;
        error = credentials_parse(credentials, ret_server, message);
    }
    if (!at && memchr(rest.text, '@', rest.size)) {
        idem_message_set(message, "the store URL has an '@' behind the first '/'. In a password or "
                                  "a path write " ESCAPES);
        error = IDEM_ERR_INVALID;
    }
    if (!error)
        error = hosts_parse(authority, port_default, ret_server, message);
    return error ? error : part_decode(rest, "path", ret_server->path, message);
}
