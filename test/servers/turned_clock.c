/*
 * A clock that tests turn: preloaded into a real server, it answers every question for the time of
 * day from a file that the test writes, so that "an hour later" takes no hour.
 *
 * IDEM_TURNED_CLOCK names the file: one int64 in the host's byte order, microseconds since 1970, at
 * which time stands still; 0 lets the real time show. The file is mapped, so that a new value shows
 * at the next question. The monotonic clock, which servers measure their pauses with, runs on.
 *
 * A timer is set from that time of day too: PostgreSQL asks for the few microseconds that are left,
 * is told at their end that as much is left as before, and would do nothing else any more. While
 * the clock is turned, no timer is therefore shorter than TIMER_US_MIN.
 *
 * Nothing here allocates: servers with an allocator of their own ask for the time while they set
 * that allocator up.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_US    INT64_C(1000000)
#define TIMER_US_MIN 10000

static const int64_t *turned;

__attribute__((constructor)) static void turned_open(void)
{
    const char *path = getenv("IDEM_TURNED_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map;

    if (fd < 0)
        return;
    map = mmap(NULL, sizeof *turned, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        turned = map;
}

/* The instant that the test has set, or 0. */
static int64_t turned_us(void)
{
    return turned ? __atomic_load_n(turned, __ATOMIC_SEQ_CST) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    int64_t now_us = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? turned_us() : 0;

    if (now_us == 0)
        return (int)syscall(SYS_clock_gettime, clock, ret_time);
    ret_time->tv_sec = now_us / SECOND_US;
    ret_time->tv_nsec = now_us % SECOND_US * 1000;
    return 0;
}

int gettimeofday(struct timeval *ret_time, void *zone)
{
    struct timespec now;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    ret_time->tv_sec = now.tv_sec;
    ret_time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *ret_time)
{
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now))
        return (time_t)-1;
    if (ret_time)
        *ret_time = now.tv_sec;
    return now.tv_sec;
}

int setitimer(__itimer_which_t which, const struct itimerval *wanted, struct itimerval *ret_before)
{
    struct itimerval timer = *wanted;
    bool set = timer.it_value.tv_sec > 0 || timer.it_value.tv_usec > 0;

    if (turned_us() != 0 && set && timer.it_value.tv_sec == 0 &&
        timer.it_value.tv_usec < TIMER_US_MIN)
        timer.it_value.tv_usec = TIMER_US_MIN;
    return (int)syscall(SYS_setitimer, which, &timer, ret_before);
}
