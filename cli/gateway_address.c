/* Gateway, addresses: see gateway.h. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway.h"

#define CONNECT_MS_MAX 2000

/* --- parsing ------------------------------------------------------------------------------- */

static bool is_port(const char *text)
{
    size_t size = strspn(text, "0123456789");
    unsigned long port = 0;

    if (size == 0 || size >= IDEM_PORT_SIZE || text[size] != '\0') {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        port = port * 10 + (unsigned long)(text[i] - '0');
    }
    return port >= 1 && port <= 65535;
}

/*
 * Splits "HOST:PORT" or "[V6]:PORT"; an absent ":PORT" leaves the port empty. Names are letters,
 * digits, dots, dashes and underscores, so that nothing of them has a meaning in a configuration.
 */
static bool host_split(const char *text, char ret_host[IDEM_HOST_SIZE_MAX],
                       char ret_port[IDEM_PORT_SIZE])
{
    static const char name_set[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    bool bracket = text[0] == '[';
    const char *host = text + bracket;
    size_t size = strspn(host, bracket ? "0123456789abcdefABCDEF:." : name_set);
    const char *rest = host + size;

    if (size == 0 || size >= IDEM_HOST_SIZE_MAX || (bracket && *rest++ != ']')) {
        return false;
    }
    if (*rest == ':') {
        if (!is_port(rest + 1)) {
            return false;
        }
        memcpy(ret_port, rest + 1, strlen(rest + 1) + 1);
    } else if (*rest == '\0') {
        ret_port[0] = '\0';
    } else {
        return false;
    }
    memcpy(ret_host, host, size);
    ret_host[size] = '\0';
    return true;
}

static int host_lookup(const char *host, const char *port, bool passive,
                       struct addrinfo **ret_found, struct idem_message *message)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int error;

    hints.ai_flags |= passive ? AI_PASSIVE : 0;
    error = getaddrinfo(host, port, &hints, ret_found);
    if (error != 0) {
        idem_message_set(message, "%s",
                         error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
        return IDEM_ERR_UNAVAILABLE;
    }
    return IDEM_OK;
}

int idem_listen_parse(const char *text, struct idem_listen *ret_listen,
                      struct idem_message *message)
{
    bool any = text[0] == ':' || text[0] == '*';
    const char *colon = text + (text[0] == '*');
    char host[IDEM_HOST_SIZE_MAX] = "0.0.0.0";
    struct idem_listen listen = {0};
    struct idem_message reason;
    struct addrinfo *found;
    bool good;

    if (any) {
        good = *colon == ':' && is_port(colon + 1);
        snprintf(listen.port, sizeof listen.port, "%s", good ? colon + 1 : "");
    } else {
        good = host_split(text, host, listen.port) && listen.port[0] != '\0';
    }
    if (!good) {
        idem_message_set(message,
                         "--listen %.200s: write ADDR:PORT, as in 127.0.0.1:8080, "
                         "[::1]:8080, or :8080 for every IPv4 address; ports are 1 to 65535",
                         text);
        return IDEM_ERR_INVALID;
    }
    if (host_lookup(host, listen.port, true, &found, &reason) != IDEM_OK) {
        idem_message_set(message, "--listen %.200s: %s", text, reason.text);
        return IDEM_ERR_UNAVAILABLE;
    }
    memcpy(&listen.address, found->ai_addr, found->ai_addrlen);
    listen.address_size = found->ai_addrlen;
    /* The number that was looked up, so that nginx and the probe mean the same address. */
    good = getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, NULL, 0,
                       NI_NUMERICHOST) == 0;
    snprintf(listen.text, sizeof listen.text, found->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
             host, listen.port);
    freeaddrinfo(found);
    if (!good) {
        idem_message_set(message, "--listen %.200s: the address cannot be written", text);
        return IDEM_ERR_INVALID;
    }
    *ret_listen = listen;
    return IDEM_OK;
}

/* A socket file. What has a meaning in nginx's configuration is not for its name. */
static int upstream_local(const char *text, const char *path, struct idem_upstream *ret_upstream,
                          struct idem_message *message)
{
    const size_t size_max = sizeof((struct sockaddr_un *)0)->sun_path;
    size_t size = strlen(path);

    if (path[0] != '/' || size >= size_max || strpbrk(path, "\"'\\$;{}#: \t\r\n") != NULL) {
        idem_message_set(message,
                         "--upstream %.200s: write unix:/PATH, at most %zu bytes of path, without "
                         "blanks, quotes, colons, braces and any of $ ; # \\",
                         text, size_max - 1);
        return IDEM_ERR_INVALID;
    }
    ret_upstream->local = true;
    memcpy(ret_upstream->path, path, size + 1);
    return IDEM_OK;
}

/* "HOST[:PORT][/]", after the scheme. */
static int upstream_remote(const char *text, const char *rest, struct idem_upstream *ret_upstream,
                           struct idem_message *message)
{
    char authority[IDEM_HOST_SIZE_MAX + IDEM_PORT_SIZE + 3] = "";
    size_t size = strcspn(rest, "/?#");

    if (size < sizeof authority) {
        memcpy(authority, rest, size);
    }
    if (!host_split(authority, ret_upstream->host, ret_upstream->port)) {
        idem_message_set(message,
                         "--upstream %.200s: write http://HOST:PORT, https://HOST:PORT or "
                         "unix:/PATH",
                         text);
        return IDEM_ERR_INVALID;
    }
    if (rest[size] != '\0' && strcmp(rest + size, "/") != 0) {
        idem_message_set(message,
                         "--upstream %.200s: leave the path out; the gateway passes the client's "
                         "own on, unchanged",
                         text);
        return IDEM_ERR_INVALID;
    }
    if (ret_upstream->port[0] == '\0') {
        memcpy(ret_upstream->port, ret_upstream->tls ? "443" : "80", ret_upstream->tls ? 4 : 3);
    }
    return IDEM_OK;
}

int idem_upstream_parse(const char *text, struct idem_upstream *ret_upstream,
                        struct idem_message *message)
{
    struct idem_upstream upstream = {0};
    int error;

    if (strncmp(text, "unix:", 5) == 0) {
        error = upstream_local(text, text + 5, &upstream, message);
    } else if (strncmp(text, "http://unix:", 12) == 0) {
        error = upstream_local(text, text + 12, &upstream, message);
    } else if (strncmp(text, "https://", 8) == 0) {
        upstream.tls = true;
        error = upstream_remote(text, text + 8, &upstream, message);
    } else {
        /* Without a scheme there is nothing after it, which is refused as such. */
        error = upstream_remote(text, strncmp(text, "http://", 7) == 0 ? text + 7 : "", &upstream,
                                message);
    }
    if (error == IDEM_OK) {
        *ret_upstream = upstream;
    }
    return error;
}

void idem_upstream_format(const struct idem_upstream *upstream, char *ret_text, size_t size)
{
    if (upstream->local) {
        snprintf(ret_text, size, "unix:%s", upstream->path);
    } else {
        bool v6 = strchr(upstream->host, ':') != NULL;

        snprintf(ret_text, size, "%s%s%s:%s", v6 ? "[" : "", upstream->host, v6 ? "]" : "",
                 upstream->port);
    }
}

/* Any process may bind an address of this machine, with a port of the system's choice. */
static bool is_of_this_machine(const struct sockaddr *address, socklen_t size)
{
    struct sockaddr_storage local = {0};
    int probe = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good;

    memcpy(&local, address, size);
    if (address->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)&local)->sin6_port = 0;
    } else {
        ((struct sockaddr_in *)&local)->sin_port = 0;
    }
    good = probe >= 0 && bind(probe, (const struct sockaddr *)&local, size) == 0;
    if (probe >= 0) {
        close(probe);
    }
    return good;
}

/* The bytes of an IP address, without its port. */
static const void *address_bytes(const struct sockaddr *address, size_t *ret_size)
{
    if (address->sa_family == AF_INET6) {
        *ret_size = sizeof(struct in6_addr);
        return &((const struct sockaddr_in6 *)address)->sin6_addr;
    }
    *ret_size = sizeof(struct in_addr);
    return &((const struct sockaddr_in *)address)->sin_addr;
}

static bool is_any(const struct sockaddr *address)
{
    static const uint8_t zeroes[sizeof(struct in6_addr)] = {0};
    size_t size;
    const void *bytes = address_bytes(address, &size);

    return memcmp(bytes, zeroes, size) == 0;
}

static bool addresses_meet(const struct sockaddr *to, socklen_t to_size, const struct sockaddr *at)
{
    const void *to_bytes, *at_bytes;
    size_t size;

    if (to->sa_family != at->sa_family) {
        return false;
    }
    /* Connecting to "any" address means this machine. */
    if (is_any(at) || is_any(to)) {
        return is_of_this_machine(to, to_size);
    }
    to_bytes = address_bytes(to, &size);
    at_bytes = address_bytes(at, &size);
    return memcmp(to_bytes, at_bytes, size) == 0;
}

bool idem_upstream_is_listen(const struct idem_upstream *upstream, const struct idem_listen *listen)
{
    const struct sockaddr *at = (const struct sockaddr *)&listen->address;
    struct addrinfo *found;
    struct idem_message unused;
    bool same = false;

    if (upstream->local || strtoul(upstream->port, NULL, 10) != strtoul(listen->port, NULL, 10) ||
        host_lookup(upstream->host, upstream->port, false, &found, &unused) != IDEM_OK) {
        return false;
    }
    for (const struct addrinfo *one = found; one != NULL && !same; one = one->ai_next) {
        same = addresses_meet(one->ai_addr, one->ai_addrlen, at);
    }
    freeaddrinfo(found);
    return same;
}

/* --- trying -------------------------------------------------------------------------------- */

static const char *bind_advice(int reason)
{
    switch (reason) {
    case EADDRINUSE:
        return "another program listens there already; stop it or choose another port";
    case EADDRNOTAVAIL:
        return "this machine has no such address";
    case EACCES:
        return "this user may not listen there; ports below 1024 need root or "
               "CAP_NET_BIND_SERVICE";
    default:
        return strerror(reason);
    }
}

int idem_listen_probe(const struct idem_listen *listen, struct idem_message *message)
{
    const int on = 1;
    int reason = 0;
    int probe = socket(listen->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (probe < 0) {
        reason = errno;
    } else {
        /* The options that nginx sets, so that the answer is the one that nginx will get. */
        (void)setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (listen->address.ss_family == AF_INET6) {
            (void)setsockopt(probe, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        }
        if (bind(probe, (const struct sockaddr *)&listen->address, listen->address_size) != 0) {
            reason = errno;
        }
        close(probe);
    }
    if (reason != 0) {
        idem_message_set(message, "cannot listen on %s: %s", listen->text, bind_advice(reason));
        return IDEM_ERR_UNAVAILABLE;
    }
    return IDEM_OK;
}

/* Connects and hangs up. 0, or the errno. */
static int connect_try(const struct sockaddr *address, socklen_t size)
{
    int probe = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd ready = {.fd = probe, .events = POLLOUT};
    int reason = 0;
    socklen_t reason_size = sizeof reason;

    if (probe < 0) {
        return errno;
    }
    if (connect(probe, address, size) != 0) {
        reason = errno;
        if (reason == EINPROGRESS) {
            reason = poll(&ready, 1, CONNECT_MS_MAX) == 1 ? 0 : ETIMEDOUT;
            if (reason == 0) {
                (void)getsockopt(probe, SOL_SOCKET, SO_ERROR, &reason, &reason_size);
            }
        }
    }
    close(probe);
    return reason;
}

int idem_upstream_probe(const struct idem_upstream *upstream, struct idem_message *message)
{
    struct sockaddr_un file = {.sun_family = AF_UNIX};
    struct addrinfo *found;
    struct idem_message why;
    int reason;

    if (upstream->local) {
        memcpy(file.sun_path, upstream->path, strlen(upstream->path) + 1);
        reason = connect_try((const struct sockaddr *)&file, sizeof file);
    } else {
        if (host_lookup(upstream->host, upstream->port, false, &found, &why) != IDEM_OK) {
            idem_message_set(message, "the upstream's name %s is not known: %s", upstream->host,
                             why.text);
            return IDEM_ERR_UNAVAILABLE;
        }
        reason = EHOSTUNREACH;
        for (struct addrinfo *at = found; at != NULL && reason != 0; at = at->ai_next) {
            reason = connect_try(at->ai_addr, at->ai_addrlen);
        }
        freeaddrinfo(found);
    }
    if (reason != 0) {
        idem_message_set(message, "%s", strerror(reason));
        return IDEM_UPSTREAM_SILENT;
    }
    return IDEM_OK;
}
