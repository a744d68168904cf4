#include "relay.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "servers.h"

static int server_connect(int port)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&place, sizeof place), 0);
    return fd;
}

static bool pass(int from, int to, relay_rewrite *rewrite)
{
    static uint8_t bytes[RELAY_BYTES_MAX];
    ssize_t got = recv(from, bytes, sizeof bytes, 0), put = 0;

    if (got > 0 && rewrite)
        got = (ssize_t)rewrite(bytes, (size_t)got);
    while (got > 0 && put < got) {
        ssize_t sent = send(to, bytes + put, (size_t)(got - put), MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        put += sent;
    }
    return got > 0;
}

/* Until one side closes, a reply is to be lost, or the relay ends. */
static void connection_run(struct relay *relay, int client)
{
    int server = server_connect(relay->server_port);
    struct pollfd ends[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    bool open = true;

    while (open && !__atomic_load_n(&relay->ended, __ATOMIC_SEQ_CST)) {
        if (poll(ends, 2, 10) <= 0)
            continue;
        if (ends[1].revents && __atomic_exchange_n(&relay->armed, false, __ATOMIC_SEQ_CST)) {
            relay->losses++;
            break;
        }
        if (ends[0].revents)
            open = pass(client, server, relay->rewrite);
        if (open && ends[1].revents)
            open = pass(server, client, NULL);
    }
    close(server);
    close(client);
}

/* One connection after the other: a store has one. */
static void *relay_run(void *argument)
{
    struct relay *relay = argument;
    struct pollfd listener = {.fd = relay->listener, .events = POLLIN};

    while (!__atomic_load_n(&relay->ended, __ATOMIC_SEQ_CST))
        if (poll(&listener, 1, 10) > 0)
            connection_run(relay, accept(relay->listener, NULL, NULL));
    return NULL;
}

void relay_begin(struct relay *relay, int server_port, relay_rewrite *rewrite)
{
    memset(relay, 0, sizeof *relay);
    relay->server_port = server_port;
    relay->rewrite = rewrite;
    relay->listener = listener_open(&relay->port);
    assert_int_equal(pthread_create(&relay->thread, NULL, relay_run, relay), 0);
}

void relay_arm(struct relay *relay)
{
    __atomic_store_n(&relay->armed, true, __ATOMIC_SEQ_CST);
}

void relay_end(struct relay *relay)
{
    __atomic_store_n(&relay->ended, true, __ATOMIC_SEQ_CST);
    pthread_join(relay->thread, NULL);
    close(relay->listener);
}
