/*
 * One connection and its budget of time.
 *
 * The client library's own time-outs are whole seconds and begin anew with each packet, so its
 * non-blocking calls are used: each gives back what it waits for, and the wait here ends with the
 * budget. A socket whose time is up is shut down and the call resumed: it fails by itself then, and
 * frees what it holds. Such a connection is never used again.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "store/mariadb/mariadb_store.h"

#define PACKET_SIZE_MIN 11 /* bytes that tell of a statement that is done: a header, and counts */
#define GATHER_MS       1

static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void library_begin(void)
{
    (void)mysql_library_init(0, NULL, NULL);
}

int64_t idem_mariadb_steady_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000;
}

/* Milliseconds until the budget ends, rounded up; 0 when it is over. */
static int budget_left_ms(const struct idem_mariadb_link *link)
{
    int64_t left_us = link->deadline_us - idem_mariadb_steady_us();

    return left_us > 0 ? (int)((left_us + 999) / 1000) : 0;
}

void idem_mariadb_pause(struct idem_mariadb_link *link, int64_t length_us)
{
    int left_ms = budget_left_ms(link);
    int length_ms = (int)((length_us + 999) / 1000);

    (void)!poll(NULL, 0, length_ms < left_ms ? length_ms : left_ms);
}

int idem_mariadb_fault(struct idem_mariadb_link *link, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(link->fault.text, sizeof link->fault.text, format, arguments);
    va_end(arguments);
    return error;
}

/* Tells the system how many bytes there must be for the socket to be readable. */
static void readable_from(int socket, unsigned bytes)
{
    int least = (int)bytes;

    (void)setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

/*
 * The server sends a packet for each statement of a batch when that is done. Whoever reads them one
 * by one is woken as often, and where the two share a processor takes it from the server each time.
 * So the socket is not readable before the last packet can be there. An error comes with fewer: the
 * wait for it goes on as usual before long. Returns as poll() does.
 */
static int answers_gather(struct idem_mariadb_link *link, struct pollfd *socket)
{
    int left_ms = budget_left_ms(link);
    int ready;

    readable_from(socket->fd, link->awaited * PACKET_SIZE_MIN);
    ready = poll(socket, 1, left_ms < GATHER_MS ? left_ms : GATHER_MS);
    readable_from(socket->fd, 1);
    return ready;
}

int idem_mariadb_wait(struct idem_mariadb_link *link, int wanted)
{
    struct pollfd socket = {.fd = mysql_get_socket(link->mysql)};
    int ready = 0;

    if (wanted & MYSQL_WAIT_READ)
        socket.events |= POLLIN;
    if (wanted & MYSQL_WAIT_WRITE)
        socket.events |= POLLOUT;
    if (wanted & MYSQL_WAIT_EXCEPT)
        socket.events |= POLLPRI;
    if (wanted == MYSQL_WAIT_READ && link->awaited > 1)
        ready = answers_gather(link, &socket);
    while (ready <= 0) {
        ready = poll(&socket, 1, budget_left_ms(link));
        if (ready >= 0 || errno != EINTR)
            break;
    }
    if (ready > 0)
        return wanted & (MYSQL_WAIT_READ | MYSQL_WAIT_WRITE | MYSQL_WAIT_EXCEPT);
    link->timed_out = true;
    shutdown(socket.fd, SHUT_RDWR);
    return wanted & (MYSQL_WAIT_READ | MYSQL_WAIT_WRITE | MYSQL_WAIT_EXCEPT);
}

void idem_mariadb_disconnect(struct idem_mariadb_link *link)
{
    if (!link->mysql)
        return;
    mysql_close(link->mysql);
    link->mysql = NULL;
    link->awaited = 0;
    idem_mariadb_prepared_forget(link);
}

static void options_set(MYSQL *mysql, const struct idem_mariadb_options *options)
{
    unsigned int protocol = options->socket[0] ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    unsigned int off = 0;
    my_bool yes = 1;

    mysql_optionsv(mysql, MYSQL_OPT_NONBLOCK, NULL);
    mysql_optionsv(mysql, MYSQL_OPT_PROTOCOL, &protocol);
    mysql_optionsv(mysql, MYSQL_OPT_LOCAL_INFILE, &off); /* a server may not ask for files */
    mysql_optionsv(mysql, MYSQL_SET_CHARSET_NAME, "binary");
    if (options->tls == IDEM_MARIADB_TLS_OFF)
        return;
    mysql_optionsv(mysql, MYSQL_OPT_SSL_ENFORCE, &yes);
    if (options->ssl_ca[0])
        mysql_optionsv(mysql, MYSQL_OPT_SSL_CA, options->ssl_ca);
    if (options->tls == IDEM_MARIADB_TLS_VERIFY)
        mysql_optionsv(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
}

/* What the library says of its last call. */
static int connection_failed(struct idem_mariadb_link *link)
{
    return idem_mariadb_failure(link, mysql_errno(link->mysql), mysql_error(link->mysql));
}

int idem_mariadb_connect(struct idem_mariadb_link *link, const struct idem_mariadb_options *options,
                         const char *database)
{
    const struct idem_server *server = &options->server;
    const char *socket = options->socket[0] ? options->socket : NULL;
    /* With any other host the library would go there, and not to the socket. */
    const char *host = socket ? "localhost" : server->hosts[0].name;
    MYSQL *connected = NULL;
    int status;

    pthread_once(&library_once, library_begin);
    link->timed_out = false;
    link->mysql = mysql_init(NULL);
    if (!link->mysql)
        return idem_mariadb_fault(link, IDEM_ERR_NOMEM, "there is no memory left to connect");
    options_set(link->mysql, options);
    status = mysql_real_connect_start(&connected, link->mysql, host, server->user, server->password,
                                      database, server->hosts[0].port, socket,
                                      CLIENT_MULTI_STATEMENTS | CLIENT_FOUND_ROWS);
    while (status)
        status = mysql_real_connect_cont(&connected, link->mysql, idem_mariadb_wait(link, status));
    return connected ? IDEM_OK : connection_failed(link);
}

static bool query_send(struct idem_mariadb_link *link, const char *text, size_t size)
{
    int failed = 0;
    int status = mysql_real_query_start(&failed, link->mysql, text, size);

    while (status)
        status = mysql_real_query_cont(&failed, link->mysql, idem_mariadb_wait(link, status));
    return !failed;
}

/* NULL with a field count of 0 is a statement that has no rows to give. */
static bool result_read(struct idem_mariadb_link *link, MYSQL_RES **ret_result)
{
    int status;

    *ret_result = NULL;
    if (mysql_field_count(link->mysql) == 0)
        return true;
    status = mysql_store_result_start(ret_result, link->mysql);
    while (status)
        status = mysql_store_result_cont(ret_result, link->mysql, idem_mariadb_wait(link, status));
    return *ret_result != NULL;
}

/* 0: there is another result; -1: there is none; more: it failed. */
static int result_next(struct idem_mariadb_link *link)
{
    int outcome = 0;
    int status = mysql_next_result_start(&outcome, link->mysql);

    while (status)
        status = mysql_next_result_cont(&outcome, link->mysql, idem_mariadb_wait(link, status));
    return outcome;
}

/* What failed is rolled back at once; if that fails too, so has the connection. */
static int query_failed(struct idem_mariadb_link *link)
{
    static const char words[] = "ROLLBACK";
    int error = connection_failed(link);

    link->awaited = 0;
    if (link->mysql && !query_send(link, words, sizeof words - 1)) {
        error = connection_failed(link);
        idem_mariadb_disconnect(link);
    }
    return error;
}

int idem_mariadb_query(struct idem_mariadb_link *link, const struct idem_mariadb_text *text,
                       idem_mariadb_take *take, void *context)
{
    int next = 0;

    if (text->failed)
        return idem_mariadb_fault(link, IDEM_ERR_NOMEM, "there is no memory left for a statement");
    if (!link->mysql)
        return idem_mariadb_fault(link, IDEM_MARIADB_LOST, "there is no connection");
    link->awaited = text->statements;
    if (!query_send(link, text->data, text->size))
        return query_failed(link);
    for (unsigned statement = 0; next == 0; statement++) {
        MYSQL_RES *result;
        int error;

        if (link->awaited > 0)
            link->awaited--;
        if (!result_read(link, &result))
            return query_failed(link);
        error = take ? take(context, statement, &result, mysql_affected_rows(link->mysql)) : 0;
        mysql_free_result(result);
        if (error) {
            idem_mariadb_disconnect(link);
            return error;
        }
        next = result_next(link);
    }
    return next > 0 ? query_failed(link) : IDEM_OK;
}
