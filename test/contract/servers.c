#include "servers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_US (60 * SECOND)

void control(const char *verb, const char *server)
{
    const char *program = getenv("IDEM_TEST_CONTROL");
    pid_t child;
    int status;

    if (!program)
        fail_msg("IDEM_TEST_CONTROL is not set: run this through test/servers/with");
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDOUT_FILENO); /* the process id is for others */
        if (open("/dev/null", O_WRONLY) == STDOUT_FILENO)
            execl(program, program, verb, server, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int listener_open(int *ret_port)
{
    struct sockaddr_in place = {.sin_family = AF_INET};
    socklen_t size = sizeof place;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(listener >= 0);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(listener, (struct sockaddr *)&place, size), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&place, &size), 0);
    *ret_port = ntohs(place.sin_port);
    return listener;
}

int64_t steady_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec / 1000;
}

void await(bool (*holds)(void *context), void *context, const char *what)
{
    int64_t deadline_us = steady_us() + PATIENCE_US;

    while (!holds(context)) {
        if (steady_us() > deadline_us)
            fail_msg("waited in vain for: %s", what);
        (void)poll(NULL, 0, 10);
    }
}
