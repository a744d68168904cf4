/*
 * News: how a job's end reaches its owner.
 *
 * A job with something to tell is linked into one list, under the lock. The eventfd is written only
 * when that list was empty, after unlocking: the owner reads the eventfd first and takes the whole
 * list then, so a job that it misses has been put into an empty list and rings again.
 *
 * A verdict may get its result while its DELAYED is still in the list or being told. It is then
 * only marked `over`; _collect tells DONE instead of DELAYED, or puts it back for another round.
 */
#include "exec/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void idem_job_tell_locked(struct idem_executor *executor, struct idem_job *job)
{
    job->telling = true;
    job->next_news = NULL;
    if (executor->news_last)
        executor->news_last->next_news = job;
    else
        executor->news_first = job;
    if (!executor->news_last)
        executor->ring = true;
    executor->news_last = job;
}

void idem_job_finish_locked(struct idem_executor *executor, struct idem_job *job, int error)
{
    job->outcome = error;
    job->over = true;
    if (!error)
        executor->counters.ops++;
    else if (job_is_verdict(job))
        executor->counters.dropped++;
    if (!job->telling)
        idem_job_tell_locked(executor, job);
}

/* These say something about the op that no repeating will change. */
static bool error_is_lasting(int error)
{
    return error == IDEM_ERR_INVALID || error == IDEM_ERR_UNSUPPORTED;
}

/* A verdict is kept while it is young enough; any other job ends with the error. */
void idem_job_fail_locked(struct idem_executor *executor, struct idem_job *job, int error)
{
    int64_t now_us = idem_monotonic_us();
    bool first = job->repeats == 0;

    if (!job_is_verdict(job) || error_is_lasting(error) ||
        now_us - job->submitted_us >= executor->options.settle_us_max) {
        idem_job_finish_locked(executor, job, error);
        return;
    }
    job->repeats++;
    idem_settle_keep(&executor->settle, job, now_us, executor->options.settle_us_max);
    if (!first)
        return;
    job->outcome = error;
    executor->counters.delayed++;
    idem_job_tell_locked(executor, job);
}

void idem_executor_unlock(struct idem_executor *executor)
{
    const uint64_t one = 1;
    bool ring = executor->ring;

    executor->ring = false;
    if (executor->stopping && ring)
        (void)pthread_cond_signal(&executor->told);
    (void)pthread_mutex_unlock(&executor->lock);
    /* Cannot fail: the counter is read back to 0 long before it is full. */
    if (ring && write(executor->event_fd, &one, sizeof one) != (ssize_t)sizeof one)
        return;
}

static void queue_finish(struct idem_executor *executor, struct idem_job_queue *queue)
{
    for (struct idem_job *job; (job = job_queue_take(queue)) != NULL;)
        idem_job_finish_locked(executor, job, IDEM_ERR_UNAVAILABLE);
}

/* Ends every job that is not inside the store. */
void idem_executor_finish_rest_locked(struct idem_executor *executor)
{
    idem_settle_hurry(&executor->settle);
    idem_settle_take_due(&executor->settle, 0, &executor->due);
    queue_finish(executor, &executor->due);
    queue_finish(executor, &executor->taken);
    queue_finish(executor, &executor->waiting);
    executor->claims_waiting = 0;
    executor->counters.settling = 0;
}

void idem_executor_trace(struct idem_executor *executor, int error, const char *format, ...)
{
    char text[IDEM_MESSAGE_SIZE_MAX + 64];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* _free takes the callback away under the same lock, so that a thread left behind is silent. */
    (void)pthread_mutex_lock(&executor->trace_lock);
    if (executor->options.trace)
        executor->options.trace(executor->options.context, error, text);
    (void)pthread_mutex_unlock(&executor->trace_lock);
}
