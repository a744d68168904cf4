/* Reach: see reach.h. */
#include "reach.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/memory.h"
#include "gateway.h"
#include "store/server.h"

/* The ports that the stores take when the URL names none. 0: the place is a socket file. */
static const struct {
    const char *scheme;
    uint16_t port;
} schemes[] = {
    {"redis", 6379},           {"rediss", 6379},        {"redis+unix", 0},
    {"redis+sentinel", 26379}, {"redis+cluster", 6379}, {"postgresql", 5432},
    {"postgres", 5432},        {"mariadb", 3306},       {"mysql", 3306},
};

static bool place_reach(struct idem_upstream *place)
{
    struct idem_message ignored;

    return idem_upstream_probe(place, &ignored) == IDEM_OK;
}

static bool file_reach(const char *path)
{
    struct idem_upstream place = {.local = true};
    int size = snprintf(place.path, sizeof place.path, "%s", path);

    return size > 0 && (size_t)size < sizeof((struct sockaddr_un *)0)->sun_path &&
           place_reach(&place);
}

static bool host_reach(const char *name, uint16_t port)
{
    struct idem_upstream place = {.local = false};
    char file[IDEM_SERVER_TEXT_MAX + 32];

    if (name[0] == '/') { /* libpq's way to name the directory of a socket */
        snprintf(file, sizeof file, "%s/.s.PGSQL.%u", name, (unsigned)port);
        return file_reach(file);
    }
    snprintf(place.host, sizeof place.host, "%s", name);
    snprintf(place.port, sizeof place.port, "%u", (unsigned)port);
    return place_reach(&place);
}

/* libpq's way to name the one host by options. */
static bool options_reach(const struct idem_url *url, const char *host, uint16_t port)
{
    const char *other = idem_url_option(url, "port");

    return host_reach(host, other != NULL ? (uint16_t)strtoul(other, NULL, 10) : port);
}

static bool url_reach(const struct idem_url *url, uint16_t port)
{
    const char *socket = port == 0 ? url->place : idem_url_option(url, "socket");
    const char *host = idem_url_option(url, "host");
    struct idem_message ignored;
    struct idem_server server;

    if (socket != NULL) {
        return file_reach(socket);
    }
    if (host != NULL) {
        return options_reach(url, host, port);
    }
    if (idem_server_parse(url, port, &server, &ignored) != IDEM_OK) {
        return false;
    }
    for (size_t i = 0; i < server.host_count; i++) {
        if (host_reach(server.hosts[i].name, server.hosts[i].port)) {
            return true;
        }
    }
    return false;
}

bool idem_reach(const char *text)
{
    struct idem_url *url = idem_malloc(sizeof *url);
    struct idem_message ignored;
    bool reached = false;

    if (url == NULL || idem_url_parse(text, url, &ignored) != IDEM_OK) {
        idem_free(url);
        return false;
    }
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strcmp(url->scheme, schemes[i].scheme) == 0) {
            reached = url_reach(url, schemes[i].port);
        }
    }
    sodium_memzero(url, sizeof *url); /* a password is in it */
    idem_free(url);
    return reached;
}
