#include "exec/state.h"

#include <time.h>

int64_t idem_monotonic_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000;
}

int64_t idem_monotonic_after_us(int64_t wait_us)
{
    int64_t now_us = idem_monotonic_us();

    if (wait_us <= 0)
        return now_us;
    return wait_us < IDEM_NEVER_US - now_us ? now_us + wait_us : IDEM_NEVER_US;
}

int idem_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int failed;

    if (pthread_condattr_init(&attributes))
        return IDEM_ERR_NOMEM;
    failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!failed)
        failed = pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return failed ? IDEM_ERR_NOMEM : 0;
}

void idem_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_us)
{
    struct timespec until;

    if (until_us == IDEM_NEVER_US) {
        (void)pthread_cond_wait(condition, lock);
        return;
    }
    if (until_us < 0)
        until_us = 0;
    until.tv_sec = (time_t)(until_us / IDEM_SECOND_US);
    until.tv_nsec = (long)(until_us % IDEM_SECOND_US) * 1000;
    (void)pthread_cond_timedwait(condition, lock, &until);
}
