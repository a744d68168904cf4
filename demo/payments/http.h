/*
 * HTTP: the service's socket, on libmicrohttpd. One thread reads requests, asks api.c and writes
 * answers; the database belongs to that thread while the server runs.
 */
#ifndef PAYMENTS_HTTP_H
#define PAYMENTS_HTTP_H

#include "database.h"

#define HTTP_BODY_SIZE_MAX    65536      /* bytes of a request body that are kept */
#define HTTP_DISCARD_SIZE_MAX (8u << 20) /* bytes of a larger one that are read before closing */
#define HTTP_CONNECTIONS_MAX  1024
#define HTTP_IDLE_S_MAX       75 /* a gateway's keep-alive should end before ours */
#define HTTP_DRAIN_S_MAX      5

struct http_server;

/*
 * Listens on `listen`: "127.0.0.1:8081", "[::1]:0"; port 0 lets the system choose.
 * IDEM_ERR_INVALID (the text), _UNAVAILABLE (the port is taken, and the like), _NOMEM.
 */
IDEM_MUST_CHECK int http_server_new(const char *listen, struct database *database,
                                    struct http_server **ret_server, struct idem_message *message);

/* "http://127.0.0.1:8081", with the port that is really listened on. Lives as long as the server.
 */
const char *http_server_url(const struct http_server *server);

/* Stops listening, lets requests under way end for at most HTTP_DRAIN_S_MAX, closes the rest. */
void http_server_free(struct http_server *server);

#endif
