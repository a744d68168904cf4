/*
 * Gateway: the parts of `idem gateway`.
 *
 *   gateway.c            options, and the order of things
 *   gateway_address.c    --listen and --upstream
 *   gateway_directive.c  --set
 *   gateway_conf.c       the nginx configuration
 *   gateway_state.c      the state directory, its lock, the worker's user, the store's directory
 *   gateway_find.c       where nginx and the module are
 *   gateway_alerts.c     what nginx's master says of its workers
 *   gateway_run.c        nginx -t, nginx, signals, the end
 */
#ifndef IDEM_CLI_GATEWAY_H
#define IDEM_CLI_GATEWAY_H

#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "args.h"

#define IDEM_HOST_SIZE_MAX 256 /* a name or address, terminator included */
#define IDEM_PORT_SIZE     6   /* "65535" */
#define IDEM_WORKERS_MAX   256

/* Where to listen: as nginx writes it, and as the system takes it. */
struct idem_listen {
    char text[IDEM_HOST_SIZE_MAX + IDEM_PORT_SIZE + 3];
    char port[IDEM_PORT_SIZE];
    struct sockaddr_storage address;
    socklen_t address_size;
};

/* Who answers. A socket file has a path and no port. */
struct idem_upstream {
    bool tls;
    bool local;                    /* a socket file */
    char host[IDEM_HOST_SIZE_MAX]; /* IPv6 without brackets */
    char port[IDEM_PORT_SIZE];
    char path[PATH_MAX]; /* local */
};

/* One directive of --set: its name and first argument, so that a default can make way for it. */
struct idem_directive {
    char name[64];
    char first[64]; /* empty when there is none or it is longer */
};

#define IDEM_DIRECTIVES_MAX 256

struct idem_gateway {
    /* what the options said */
    const char *listen_text, *upstream_text, *store, *state_option, *user, *module_option,
        *nginx_option, *log_level;
    const char *access_log; /* once planned: absolute, "-" or syslog: */
    struct idem_text_list set;
    bool required, print_conf;
    int64_t workers, drain_us, keepalive_us;

    /* what follows from them */
    struct idem_listen listen;
    struct idem_upstream upstream;
    struct idem_directive directives[IDEM_DIRECTIVES_MAX];
    size_t directive_count;
    char state[PATH_MAX];                /* absolute, without a slash at its end */
    char store_url[IDEM_URL_SIZE_MAX];   /* may hold a password: never shown */
    char store_shown[IDEM_URL_SIZE_MAX]; /* the same for people */
    char store_hint[IDEM_URL_SIZE_MAX];  /* as a hint names it */
    char store_directory[PATH_MAX];      /* of an embedded store, else empty */
    bool store_own;                      /* it is the one in the state directory */
    char module[PATH_MAX];
    char nginx[PATH_MAX];
    char access_log_path[PATH_MAX];
    char authorities[PATH_MAX]; /* certificates to check the upstream's with, or empty */
    bool as_root;
    char worker_user[64], worker_group[64]; /* as_root */
    uid_t worker_uid;
    gid_t worker_gid;
};

/* --- gateway_address.c --------------------------------------------------------------------- */

/* Reads "ADDR:PORT", "[::1]:PORT", "*:PORT" or ":PORT". IDEM_ERR_INVALID with a sentence. */
IDEM_MUST_CHECK int idem_listen_parse(const char *text, struct idem_listen *ret_listen,
                                      struct idem_message *message);

/* Binds it for a moment: 0 when a gateway could listen there, else a sentence. */
IDEM_MUST_CHECK int idem_listen_probe(const struct idem_listen *listen,
                                      struct idem_message *message);

/* Reads http://HOST[:PORT][/], https://HOST[:PORT][/] or unix:PATH. */
IDEM_MUST_CHECK int idem_upstream_parse(const char *text, struct idem_upstream *ret_upstream,
                                        struct idem_message *message);

/* Outcome of idem_upstream_probe besides IDEM_OK. */
#define IDEM_UPSTREAM_SILENT 1 /* its name is known, but nothing listens there now */

/* Looks its name up and tries to connect. IDEM_ERR_UNAVAILABLE when the name is unknown. */
IDEM_MUST_CHECK int idem_upstream_probe(const struct idem_upstream *upstream,
                                        struct idem_message *message);

/* True when requests to the upstream would come in at the gateway itself, and so on for ever. */
bool idem_upstream_is_listen(const struct idem_upstream *upstream,
                             const struct idem_listen *listen);

/* "HOST:PORT" or "unix:PATH" as nginx takes it; "[v6]:port" where needed. */
void idem_upstream_format(const struct idem_upstream *upstream, char *ret_text, size_t size);

/* --- gateway_directive.c ------------------------------------------------------------------- */

/*
 * Checks what was given to --set: whole directives, each ended by a semicolon, no braces, no
 * comments, quotes closed, so that it can neither leave the guarded location nor swallow what comes
 * after it. Appends what it names to the gateway's list. nginx judges the rest.
 */
IDEM_MUST_CHECK int idem_directive_parse(const char *text, struct idem_gateway *gateway,
                                         struct idem_message *message);

/* True when --set names this directive, with this first argument in any case unless it is NULL. */
bool idem_directive_given(const struct idem_gateway *gateway, const char *name, const char *first);

/* --- gateway_conf.c ------------------------------------------------------------------------ */

/*
 * Writes the whole configuration, `shown` without a password in the store's URL. Errors of the
 * stream are the caller's to check.
 */
void idem_gateway_conf(const struct idem_gateway *gateway, bool shown, FILE *out);

#define IDEM_GATEWAY_CONF   "nginx.conf" /* all in the state directory */
#define IDEM_GATEWAY_PID    "nginx.pid"
#define IDEM_GATEWAY_LOCK   "gateway.lock"
#define IDEM_GATEWAY_SOCKET "gateway.sock" /* answers 204 once a worker is up */
#define IDEM_GATEWAY_ALERTS "alerts.sock"  /* takes what nginx's master has to say */

/* --- gateway_state.c ----------------------------------------------------------------------- */

/* Chooses the state directory, the store and the worker's user. Nothing is made yet. */
IDEM_MUST_CHECK int idem_gateway_plan(struct idem_gateway *gateway, struct idem_message *message);

/*
 * Makes the state directory and takes its lock. *ret_lock stays open, in nginx too, until both are
 * gone: a second gateway on the directory is refused as long as any process of the first lives.
 */
IDEM_MUST_CHECK int idem_gateway_state(const struct idem_gateway *gateway, int *ret_lock,
                                       struct idem_message *message);

/*
 * Makes the store's directory, gives it to the worker's user where that is safe, and opens the
 * store for a moment as that user, in a process of its own: what it says there is the truth.
 * Tells when it made a store anew, and when the store refuses new keys already. A server that
 * cannot be reached now is told of only: what is not guarded must be served all the same.
 */
IDEM_MUST_CHECK int idem_gateway_store(const struct idem_gateway *gateway,
                                       struct idem_message *message);

/* Writes the configuration into the state directory, whole or not at all. */
IDEM_MUST_CHECK int idem_gateway_write_conf(const struct idem_gateway *gateway,
                                            struct idem_message *message);

/* --- gateway_find.c ------------------------------------------------------------------------ */

IDEM_MUST_CHECK int idem_gateway_find_nginx(struct idem_gateway *gateway,
                                            struct idem_message *message);
IDEM_MUST_CHECK int idem_gateway_find_module(struct idem_gateway *gateway,
                                             struct idem_message *message);
IDEM_MUST_CHECK int idem_gateway_find_authorities(struct idem_gateway *gateway,
                                                  struct idem_message *message);

/* --- gateway_alerts.c ---------------------------------------------------------------------- */

/*
 * Makes the socket, in the current directory, which is the state directory by now. IDEM_ERR_IO, and
 * errno.
 */
IDEM_MUST_CHECK int idem_gateway_alerts_open(const struct idem_gateway *gateway, int *ret_alerts);

enum idem_alert {
    IDEM_ALERT_NONE,    /* none waits */
    IDEM_ALERT_OTHER,   /* about something else */
    IDEM_ALERT_CRASHED, /* a worker was ended by a signal; another takes its place */
    IDEM_ALERT_LAST,    /* a worker could not start, and no other will take its place */
};

/* Takes the next one. Does not wait. *ret_signal is written for IDEM_ALERT_CRASHED. */
enum idem_alert idem_gateway_alert_take(int alerts, pid_t master, int *ret_signal);

/* --- gateway_run.c ------------------------------------------------------------------------- */

/* nginx -t; its own sentence when it refuses. */
IDEM_MUST_CHECK int idem_gateway_test(const struct idem_gateway *gateway,
                                      struct idem_message *message);

/* Runs nginx until it ends. Returns the exit status of the command. */
int idem_gateway_run(const struct idem_gateway *gateway);

#endif
