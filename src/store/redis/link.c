/*
 * One connection, never waited on for longer than a deadline. hiredis connects, keeps what has come
 * and reads replies out of it; between its calls the socket is polled here, because its own
 * time-outs are of one read, and a server that sends a byte now and then would hold a batch for
 * ever.
 *
 * What cannot be written at once is written in slices, so that hiredis, which moves the rest of
 * its buffer to the front after each write, has little to move.
 */
#define _GNU_SOURCE /* sigtimedwait */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "store/redis/redis_store.h"

#define SLICE_SIZE (256u << 10)

int64_t idem_redis_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000;
}

int idem_redis_trouble_set(struct idem_redis_trouble *trouble, int error, bool again,
                           const char *format, ...)
{
    va_list arguments;

    trouble->error = error;
    trouble->again = again;
    va_start(arguments, format);
    vsnprintf(trouble->message.text, sizeof trouble->message.text, format, arguments);
    va_end(arguments);
    return error;
}

int idem_redis_trouble_memory(struct idem_redis_trouble *trouble)
{
    return idem_redis_trouble_set(trouble, IDEM_ERR_NOMEM, false,
                                  "there is no memory left to talk to Redis");
}

void idem_redis_address_format(const struct idem_redis_address *address,
                               char ret_text[IDEM_REDIS_PLACE_SIZE])
{
    if (address->port == 0)
        snprintf(ret_text, IDEM_REDIS_PLACE_SIZE, "%s", address->host);
    else
        snprintf(ret_text, IDEM_REDIS_PLACE_SIZE, "%s:%u", address->host, (unsigned)address->port);
}

bool idem_redis_address_equal(const struct idem_redis_address *a,
                              const struct idem_redis_address *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

void idem_redis_quiet_begin(struct idem_redis_quiet *quiet)
{
    sigset_t pipe, before;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    quiet->blocked =
        pthread_sigmask(SIG_BLOCK, &pipe, &before) == 0 && !sigismember(&before, SIGPIPE);
}

/* Takes the signal that a write may have left, which would come through now. */
void idem_redis_quiet_end(const struct idem_redis_quiet *quiet)
{
    static const struct timespec at_once = {0, 0};
    sigset_t pipe;

    if (!quiet->blocked)
        return;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (sigtimedwait(&pipe, NULL, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_UNBLOCK, &pipe, NULL);
}

void idem_redis_link_close(struct idem_redis_link *link)
{
    if (link->context)
        redisFree(link->context);
    link->context = NULL;
}

static int link_timed_out(struct idem_redis_link *link, struct idem_redis_trouble *trouble)
{
    idem_redis_link_close(link);
    return idem_redis_trouble_set(trouble, IDEM_ERR_TIMEOUT, true,
                                  "Redis at %s did not answer in time: see %swhether it hangs or "
                                  "is overloaded, or raise timeout in the store's URL",
                                  link->place, link->heard ? "" : "that it is Redis, ");
}

/* The connection is lost, as hiredis says. */
static int link_lost(struct idem_redis_link *link, struct idem_redis_trouble *trouble)
{
    int error = link->context->err == REDIS_ERR_OOM ? IDEM_ERR_NOMEM : IDEM_ERR_UNAVAILABLE;

    if (link->context->err == REDIS_ERR_PROTOCOL)
        idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, false,
                               "what listens at %s is no Redis: see the host and the port in the "
                               "store's URL (%s)",
                               link->place, link->context->errstr);
    else if (!link->heard && error == IDEM_ERR_UNAVAILABLE)
        idem_redis_trouble_set(trouble, error, true,
                               "what listens at %s ends connections without an answer: see that it "
                               "is Redis, and write rediss: or tls=on if it takes TLS only (%s)",
                               link->place, link->context->errstr);
    else
        idem_redis_trouble_set(trouble, error, true, "the connection to Redis at %s was lost: %s",
                               link->place, link->context->errstr);
    idem_redis_link_close(link);
    return trouble->error;
}

/* Waits for one of the events. */
static int link_wait(struct idem_redis_link *link, short events, int64_t deadline_us,
                     short *ret_events, struct idem_redis_trouble *trouble)
{
    struct pollfd socket = {.fd = link->context->fd, .events = events};
    int count;

    do {
        int64_t left_us = deadline_us - idem_redis_now_us();

        if (left_us <= 0)
            return link_timed_out(link, trouble);
        count = poll(&socket, 1, (int)((left_us + 999) / 1000));
    } while (count == 0 || (count < 0 && errno == EINTR));
    *ret_events = socket.revents;
    return IDEM_OK;
}

static int link_connected(struct idem_redis_link *link, const struct idem_redis_options *options,
                          const struct idem_redis_address *address, int64_t deadline_us,
                          struct idem_redis_trouble *trouble)
{
    redisContext *context = link->context;
    int error = IDEM_OK;

    if (options->tls && address->port != 0) {
        int64_t left_us = deadline_us - idem_redis_now_us();
        struct timeval left = {left_us / IDEM_SECOND_US, left_us % IDEM_SECOND_US};

        if (left_us <= 0)
            return link_timed_out(link, trouble);
        redisSetTimeout(context, left);
        error = idem_redis_tls_start(context, options, address->host, trouble);
    }
    if (error) {
        idem_redis_link_close(link);
        return error;
    }
    if (address->port != 0)
        redisEnableKeepAlive(context);
    if (fcntl(context->fd, F_SETFL, fcntl(context->fd, F_GETFL) | O_NONBLOCK) < 0) {
        idem_redis_link_close(link);
        return idem_redis_trouble_set(trouble, IDEM_ERR_IO, false,
                                      "the connection to Redis at %s cannot be set up: %s",
                                      link->place, strerror(errno));
    }
    context->flags &= ~REDIS_BLOCK;
    return IDEM_OK;
}

static int link_refused(struct idem_redis_link *link, struct idem_redis_trouble *trouble)
{
    const redisContext *context = link->context;
    bool late = context && context->err == REDIS_ERR_IO && errno == ETIMEDOUT;

    idem_redis_trouble_set(trouble, late ? IDEM_ERR_TIMEOUT : IDEM_ERR_UNAVAILABLE, true,
                           "Redis at %s cannot be reached: see that it runs there and accepts "
                           "connections from here (%s)",
                           link->place, context ? context->errstr : "no memory");
    idem_redis_link_close(link);
    return trouble->error;
}

int idem_redis_link_open(struct idem_redis_link *link, const struct idem_redis_options *options,
                         const struct idem_redis_address *address, int64_t deadline_us,
                         struct idem_redis_trouble *trouble)
{
    int64_t left_us = deadline_us - idem_redis_now_us();
    struct timeval left = {left_us / IDEM_SECOND_US, left_us % IDEM_SECOND_US};

    idem_redis_link_close(link);
    link->heard = false;
    idem_redis_address_format(address, link->place);
    if (left_us < 1000) /* hiredis counts milliseconds, and 0 is for ever */
        return link_timed_out(link, trouble);
    if (address->port == 0)
        link->context = redisConnectUnixWithTimeout(address->host, left);
    else
        link->context = redisConnectWithTimeout(address->host, address->port, left);
    if (!link->context || link->context->err)
        return link_refused(link, trouble);
    return link_connected(link, options, address, deadline_us, trouble);
}

/* Writes what hiredis holds; takes in what comes meanwhile, so that neither side waits for the
 * other. */
static int link_flush(struct idem_redis_link *link, int64_t deadline_us,
                      struct idem_redis_trouble *trouble)
{
    int done = 0;

    for (;;) {
        short events;
        int error;

        if (redisBufferWrite(link->context, &done) != REDIS_OK)
            return link_lost(link, trouble);
        if (done)
            return IDEM_OK;
        error = link_wait(link, POLLIN | POLLOUT, deadline_us, &events, trouble);
        if (error)
            return error;
        if ((events & POLLIN) && redisBufferRead(link->context) != REDIS_OK)
            return link_lost(link, trouble);
    }
}

int idem_redis_link_send(struct idem_redis_link *link, const struct idem_redis_request *request,
                         int64_t deadline_us, struct idem_redis_trouble *trouble)
{
    if (request->failed)
        return idem_redis_trouble_memory(trouble);
    if (!link->context) /* a cluster's map was asked for over it, and it broke */
        return idem_redis_trouble_set(trouble, IDEM_ERR_UNAVAILABLE, true,
                                      "the connection to Redis at %s was lost", link->place);
    for (size_t sent = 0; sent < request->size;) {
        size_t size = request->size - sent < SLICE_SIZE ? request->size - sent : SLICE_SIZE;
        int error;

        if (redisAppendFormattedCommand(link->context, (const char *)request->bytes + sent, size) !=
            REDIS_OK)
            return link_lost(link, trouble);
        error = link_flush(link, deadline_us, trouble);
        if (error)
            return error;
        sent += size;
    }
    return IDEM_OK;
}

int idem_redis_link_receive(struct idem_redis_link *link, int64_t deadline_us,
                            redisReply **ret_reply, struct idem_redis_trouble *trouble)
{
    for (;;) {
        void *reply = NULL;
        short events;
        int error;

        if (redisGetReplyFromReader(link->context, &reply) != REDIS_OK)
            return link_lost(link, trouble);
        if (reply) {
            link->heard = true;
            *ret_reply = reply;
            return IDEM_OK;
        }
        error = link_wait(link, POLLIN, deadline_us, &events, trouble);
        if (error)
            return error;
        if (redisBufferRead(link->context) != REDIS_OK)
            return link_lost(link, trouble);
    }
}

int idem_redis_link_ask(struct idem_redis_link *link, const char *const *words, int64_t deadline_us,
                        redisReply **ret_reply, struct idem_redis_trouble *trouble)
{
    struct idem_redis_request request = {0};
    int error;

    idem_redis_request_texts(&request, words);
    error = idem_redis_link_send(link, &request, deadline_us, trouble);
    idem_redis_request_deinit(&request);
    return error ? error : idem_redis_link_receive(link, deadline_us, ret_reply, trouble);
}
