/*
 * Server: the place of a store that is reached over a network:
 *   //[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…][/PATH]
 * Each part is percent-decoded after it was split off, so that a password may hold any character. A
 * host may be an IPv6 address in brackets.
 */
#ifndef IDEM_STORE_SERVER_H
#define IDEM_STORE_SERVER_H

#include "store/url.h"

#define IDEM_SERVER_HOSTS_MAX 16
#define IDEM_SERVER_TEXT_MAX  256 /* bytes of a user, a password, a host or the path */

struct idem_server_host {
    char name[IDEM_SERVER_TEXT_MAX];
    uint16_t port; /* the default one where the URL names none */
};

struct idem_server {
    char user[IDEM_SERVER_TEXT_MAX]; /* empty: none was given; so for the others */
    char password[IDEM_SERVER_TEXT_MAX];
    char path[IDEM_SERVER_TEXT_MAX]; /* without its first '/' */
    struct idem_server_host hosts[IDEM_SERVER_HOSTS_MAX];
    size_t host_count; /* at least 1 */
};

/* IDEM_ERR_INVALID with a sentence that never holds the password. */
IDEM_MUST_CHECK int idem_server_parse(const struct idem_url *url, uint16_t port_default,
                                      struct idem_server *ret_server, struct idem_message *message);

#endif
