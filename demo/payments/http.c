#include "http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "base/memory.h"

#define ADDRESS_SIZE 128

struct http_server {
    struct MHD_Daemon *daemon;
    struct database *database;
    char url[ADDRESS_SIZE + 32];
    pthread_mutex_t lock;
    pthread_cond_t idle;
    unsigned active; /* requests begun and not completed; under the lock */
};

/* One request while its body arrives. */
struct call {
    uint8_t *body;
    uint64_t size; /* bytes that came, kept or not */
};

static void active_add(struct http_server *server, int change)
{
    pthread_mutex_lock(&server->lock);
    server->active += (unsigned)change;
    if (server->active == 0)
        pthread_cond_signal(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

static struct call *call_begin(struct http_server *server)
{
    struct call *call = idem_calloc(1, sizeof(*call));

    if (call)
        active_add(server, 1);
    return call;
}

static void call_completed(void *context, struct MHD_Connection *connection, void **request,
                           enum MHD_RequestTerminationCode code)
{
    struct call *call = *request;

    if (!call)
        return;
    *request = NULL;
    idem_free(call->body);
    idem_free(call);
    active_add(context, -1);
}

/* False when the connection is to be closed: too much is coming, or memory ran out. */
static bool call_take(struct call *call, const char *piece, size_t size)
{
    if (!call->body)
        call->body = idem_malloc(HTTP_BODY_SIZE_MAX);
    if (!call->body || call->size + size > HTTP_DISCARD_SIZE_MAX)
        return false;
    if (call->size + size <= HTTP_BODY_SIZE_MAX)
        memcpy(call->body + call->size, piece, size);
    call->size += size;
    return true;
}

static void header_add(struct MHD_Response *response, const char *name, const char *value)
{
    if (value && value[0] && MHD_add_response_header(response, name, value) != MHD_YES)
        fprintf(stderr, "payments: no memory for header %s\n", name);
}

static enum MHD_Result answer_send(struct MHD_Connection *connection, const struct answer *answer)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(answer->body_size, answer->body, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    header_add(response, "Content-Type", answer->content_type);
    header_add(response, "Location", answer->location);
    header_add(response, "Allow", answer->allow);
    header_add(response, "Idempotency-Outcome", answer->outcome);
    header_add(response, "Retry-After", answer->retry_after);
    result = MHD_queue_response(connection, answer->status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result key_count(void *context, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    struct api_request *request = context;

    if (strcasecmp(name, "Idempotency-Key") == 0) {
        request->key_lines++;
        if (!request->key)
            request->key = value ? value : "";
    }
    return MHD_YES;
}

static enum MHD_Result call_answer(struct http_server *server, struct MHD_Connection *connection,
                                   const struct call *call, struct api_request *request)
{
    struct answer answer;
    enum MHD_Result result;

    request->content_type =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Type");
    MHD_get_connection_values(connection, MHD_HEADER_KIND, key_count, request);
    if (call->size > HTTP_BODY_SIZE_MAX)
        request->too_large = true;
    else
        request->body = idem_bytes_make(call->body, call->size);
    api_answer(server->database, request, &answer);
    result = answer_send(connection, &answer);
    answer_deinit(&answer);
    return result;
}

/* True when the client waits for leave to send more than will be kept: it need not send it. */
static bool body_unwanted(struct MHD_Connection *connection)
{
    const char *expect = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Expect");
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");

    return expect && length && strtoull(length, NULL, 10) > HTTP_BODY_SIZE_MAX;
}

static enum MHD_Result call_step(void *context, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_size, void **state)
{
    struct http_server *server = context;
    struct api_request request = {.method = method, .path = url};
    struct call *call = *state;

    if (!call) {
        call = call_begin(server);
        if (!call)
            return MHD_NO;
        *state = call;
        if (!body_unwanted(connection))
            return MHD_YES;
        request.too_large = true;
    } else if (*upload_size > 0) {
        if (!call_take(call, upload, *upload_size))
            return MHD_NO;
        *upload_size = 0;
        return MHD_YES;
    }
    return call_answer(server, connection, call, &request);
}

/* Splits "HOST:PORT" or "[HOST]:PORT" and resolves it without asking any server. */
static int address_resolve(const char *listen, char ret_host[ADDRESS_SIZE],
                           struct addrinfo **ret_address, struct idem_message *message)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    const char *colon = strrchr(listen, ':');
    const char *host = listen;
    size_t size = colon ? (size_t)(colon - listen) : 0;

    if (size > 2 && host[0] == '[' && host[size - 1] == ']') {
        host++;
        size -= 2;
    }
    if (size > 0 && size < ADDRESS_SIZE) {
        memcpy(ret_host, host, size);
        ret_host[size] = '\0';
        if (getaddrinfo(ret_host, colon + 1, &hints, ret_address) == 0)
            return 0;
    }
    idem_message_set(message, "cannot listen on %s: write ADDRESS:PORT, such as 127.0.0.1:8081",
                     listen);
    return IDEM_ERR_INVALID;
}

static int daemon_start(struct http_server *server, const struct addrinfo *address)
{
    unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC |
                     (address->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0);

    errno = 0;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, call_step, server, MHD_OPTION_SOCK_ADDR, address->ai_addr,
        MHD_OPTION_NOTIFY_COMPLETED, call_completed, server, MHD_OPTION_CONNECTION_LIMIT,
        HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_S_MAX, MHD_OPTION_END);
    return server->daemon ? 0 : IDEM_ERR_UNAVAILABLE;
}

static void server_sync_init(struct http_server *server)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->idle, &attributes);
    pthread_condattr_destroy(&attributes);
}

int http_server_new(const char *listen, struct database *database, struct http_server **ret_server,
                    struct idem_message *message)
{
    struct addrinfo *address;
    struct http_server *server;
    char host[ADDRESS_SIZE];
    const union MHD_DaemonInfo *port;
    int error = address_resolve(listen, host, &address, message);

    if (error)
        return error;
    server = idem_calloc(1, sizeof(*server));
    if (!server) {
        freeaddrinfo(address);
        return IDEM_ERR_NOMEM;
    }
    server->database = database;
    server_sync_init(server);
    error = daemon_start(server, address);
    if (error) {
        idem_message_set(message, "cannot listen on %s: %s", listen,
                         errno ? strerror(errno) : "the address cannot be used");
        http_server_free(server);
        server = NULL;
    } else {
        port = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
        snprintf(server->url, sizeof(server->url),
                 address->ai_family == AF_INET6 ? "http://[%s]:%u" : "http://%s:%u", host,
                 port ? port->port : 0u);
        *ret_server = server;
    }
    freeaddrinfo(address);
    return error;
}

const char *http_server_url(const struct http_server *server)
{
    return server->url;
}

/* Waits until no request is under way, at most HTTP_DRAIN_S_MAX. */
static void server_drain(struct http_server *server)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += HTTP_DRAIN_S_MAX;
    pthread_mutex_lock(&server->lock);
    while (server->active > 0 && pthread_cond_timedwait(&server->idle, &server->lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&server->lock);
}

void http_server_free(struct http_server *server)
{
    if (!server)
        return;
    if (server->daemon) {
        MHD_socket listening = MHD_quiesce_daemon(server->daemon);

        /* New clients are refused from here on. The descriptor itself stays, for the daemon's
         * thread may be about to use it. */
        if (listening != MHD_INVALID_SOCKET)
            shutdown(listening, SHUT_RDWR);
        server_drain(server);
        MHD_stop_daemon(server->daemon);
        if (listening != MHD_INVALID_SOCKET)
            close(listening);
    }
    pthread_cond_destroy(&server->idle);
    pthread_mutex_destroy(&server->lock);
    idem_free(server);
}
