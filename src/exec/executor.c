/*
 * Executor: the owner's side. The thread's side is worker.c.
 *
 * The owner is an event loop with thousands of jobs a second. So: one mutex, held for a few pointer
 * writes; the thread is signalled only when it sleeps; the eventfd is written only when there was
 * nothing to collect; no allocation for a job; a peek takes no lock at all.
 */
#include "exec/state.h"

#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/memory.h"

void idem_executor_destroy(struct idem_executor *executor)
{
    idem_store_close(executor->store);
    idem_op_deinit(&executor->sweep);
    if (executor->event_fd >= 0)
        (void)close(executor->event_fd);
    (void)pthread_mutex_destroy(&executor->trace_lock);
    (void)pthread_cond_destroy(&executor->told);
    (void)pthread_cond_destroy(&executor->work);
    (void)pthread_mutex_destroy(&executor->lock);
    idem_free(executor->url);
    idem_free(executor);
}

static void options_complete(struct idem_executor_options *options)
{
    if (options->claims_max == 0)
        options->claims_max = IDEM_QUEUE_MAX;
    if (options->settle_us_max <= 0)
        options->settle_us_max = IDEM_SETTLE_US_DEFAULT;
    if (options->sweep_us == 0)
        options->sweep_us = IDEM_SECOND_US;
}

static int locks_init(struct idem_executor *executor)
{
    if (pthread_mutex_init(&executor->lock, NULL))
        return IDEM_ERR_NOMEM;
    if (pthread_mutex_init(&executor->trace_lock, NULL))
        goto no_trace_lock;
    if (idem_condition_init(&executor->work))
        goto no_work;
    if (idem_condition_init(&executor->told))
        goto no_told;
    return 0;

no_told:
    (void)pthread_cond_destroy(&executor->work);
no_work:
    (void)pthread_mutex_destroy(&executor->trace_lock);
no_trace_lock:
    (void)pthread_mutex_destroy(&executor->lock);
    return IDEM_ERR_NOMEM;
}

/* A signal for the process must find one of its own threads: they know what to do with it. */
static int thread_start(struct idem_executor *executor)
{
    sigset_t all, before;
    int failed;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&executor->thread, NULL, idem_executor_main, executor);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? IDEM_ERR_NOMEM : 0;
}

static int executor_make(const char *url, const struct idem_executor_options *options,
                         struct idem_executor **ret_executor)
{
    struct idem_executor *executor = idem_calloc(1, sizeof *executor);
    size_t url_size = strlen(url) + 1;

    if (!executor)
        return IDEM_ERR_NOMEM;
    executor->url = idem_malloc(url_size);
    if (!executor->url || locks_init(executor)) {
        idem_free(executor->url);
        idem_free(executor);
        return IDEM_ERR_NOMEM;
    }
    memcpy(executor->url, url, url_size);
    if (options)
        executor->options = *options;
    options_complete(&executor->options);
    executor->expiry_us = IDEM_NEVER_US;
    idem_settle_init(&executor->settle);
    executor->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    *ret_executor = executor;
    return 0;
}

int idem_executor_new(const char *url, const struct idem_executor_options *options,
                      struct idem_executor **ret_executor, struct idem_message *message)
{
    struct idem_executor *executor = NULL;
    int error = idem_store_url_check(url, NULL, message);

    if (error)
        return error;
    error = executor_make(url, options, &executor);
    if (error) {
        idem_message_set(message, "not enough memory for an executor");
        return error;
    }
    if (executor->event_fd < 0) {
        idem_message_set(message, "no eventfd: raise the limit of open files");
        error = IDEM_ERR_IO;
    } else if (thread_start(executor)) {
        idem_message_set(message, "cannot start a thread: raise the limit of processes");
        error = IDEM_ERR_NOMEM;
    }
    if (error) {
        idem_executor_destroy(executor);
        return error;
    }
    *ret_executor = executor;
    return 0;
}

int idem_executor_wait_open(struct idem_executor *executor, int64_t wait_us_max,
                            struct idem_message *message)
{
    int64_t until_us = idem_monotonic_after_us(wait_us_max);
    int error;

    (void)pthread_mutex_lock(&executor->lock);
    while (!executor->open_tried && idem_monotonic_us() < until_us)
        idem_condition_wait(&executor->told, &executor->lock, until_us);
    if (executor->counters.open)
        error = 0;
    else if (executor->open_tried)
        error = executor->open_error;
    else
        error = IDEM_ERR_TIMEOUT;
    if (error == IDEM_ERR_TIMEOUT && !executor->open_tried)
        idem_message_set(message, "the store is still being opened");
    else if (error)
        idem_message_set(message, "%s", executor->open_message.text);
    (void)pthread_mutex_unlock(&executor->lock);
    return error;
}

int idem_executor_submit(struct idem_executor *executor, struct idem_job *job)
{
    bool bounded = job_is_bounded(job), wake;
    int64_t expiry_us;

    job->error = 0;
    job->not_applied = false;
    job->repeats = 0;
    job->outcome = 0;
    job->reached = job->over = job->telling = false;
    job->submitted_us = idem_monotonic_us();
    expiry_us = job_expiry_us(job);

    (void)pthread_mutex_lock(&executor->lock);
    if (executor->closed || (bounded && executor->claims_waiting >= executor->options.claims_max)) {
        int error = executor->closed ? IDEM_ERR_UNAVAILABLE : IDEM_ERR_BUSY;

        (void)pthread_mutex_unlock(&executor->lock);
        return error;
    }
    executor->unfinished++;
    if (bounded && executor->away) { /* the thread may be held up in an opening: say so at once */
        idem_job_finish_locked(executor, job, IDEM_ERR_UNAVAILABLE);
        idem_executor_unlock(executor);
        return 0;
    }
    job_queue_append(&executor->waiting, job);
    executor->claims_waiting += bounded;
    if (expiry_us < executor->expiry_us)
        executor->expiry_us = expiry_us;
    wake = executor->sleeping;
    executor->sleeping = false;
    (void)pthread_mutex_unlock(&executor->lock);
    if (wake)
        (void)pthread_cond_signal(&executor->work);
    return 0;
}

int idem_executor_fd(const struct idem_executor *executor)
{
    return executor->event_fd;
}

/* The thread does the same when it takes jobs; here it is done for a thread that does not come. */
static void waiting_expire_locked(struct idem_executor *executor, int64_t now_us)
{
    struct idem_job_queue all = executor->waiting;
    struct idem_job *job;

    if (now_us < executor->expiry_us)
        return;
    executor->waiting = (struct idem_job_queue){0};
    executor->expiry_us = IDEM_NEVER_US;
    while ((job = job_queue_take(&all)) != NULL) {
        int64_t expiry_us = job_expiry_us(job);

        if (expiry_us <= now_us) {
            executor->claims_waiting--;
            idem_job_finish_locked(executor, job, IDEM_ERR_TIMEOUT);
            continue;
        }
        if (expiry_us < executor->expiry_us)
            executor->expiry_us = expiry_us;
        job_queue_append(&executor->waiting, job);
    }
}

/* Takes the list of news; what the owner may see of each job is copied while the lock is held. */
static struct idem_job *news_take(struct idem_executor *executor)
{
    struct idem_job *first;

    (void)pthread_mutex_lock(&executor->lock);
    waiting_expire_locked(executor, idem_monotonic_us());
    first = executor->news_first;
    executor->news_first = executor->news_last = NULL;
    executor->ring = false;
    for (struct idem_job *job = first; job; job = job->next_news) {
        job->error = job->outcome;
        if (!job->over)
            continue;
        job->not_applied = job->error && !job->reached;
        job->telling = false;
        executor->unfinished--;
    }
    (void)pthread_mutex_unlock(&executor->lock);
    return first;
}

/* Those that were told DELAYED: one that came to its end meanwhile is news again. */
static void news_return(struct idem_executor *executor, struct idem_job *delayed)
{
    if (!delayed)
        return;
    (void)pthread_mutex_lock(&executor->lock);
    for (struct idem_job *job = delayed, *next; job; job = next) {
        next = job->next_news;
        job->telling = false;
        if (job->over)
            idem_job_tell_locked(executor, job);
    }
    idem_executor_unlock(executor);
}

size_t idem_executor_collect(struct idem_executor *executor)
{
    struct idem_job *job, *delayed = NULL;
    uint64_t rings;
    size_t count = 0;

    if (read(executor->event_fd, &rings, sizeof rings) < 0)
        rings = 0; /* nobody rang: the caller came by itself */
    job = news_take(executor);
    while (job) {
        struct idem_job *next = job->next_news;
        bool over = !job->telling;

        if (!over) {
            job->next_news = delayed;
            delayed = job;
        }
        job->notify(job, over ? IDEM_JOB_DONE : IDEM_JOB_DELAYED);
        count++;
        job = next;
    }
    news_return(executor, delayed);
    return count;
}

/*
 * No lock: the flag says that the owner is inside, and it is raised before the pointer is read. The
 * thread withdraws the pointer before it reads the flag (opening.c). In any order of these four at
 * least one side sees the other.
 */
int idem_executor_peek(struct idem_executor *executor, struct idem_op *get)
{
    struct idem_store *store;
    int error = IDEM_ERR_UNAVAILABLE;

    atomic_store(&executor->peek_state, IDEM_PEEK_BUSY);
    store = atomic_load(&executor->published);
    if (store)
        error = idem_store_peek(store, get);
    if (atomic_exchange(&executor->peek_state, IDEM_PEEK_IDLE) == IDEM_PEEK_AWAITED) {
        (void)pthread_mutex_lock(&executor->lock);
        executor->peek_over = true;
        (void)pthread_cond_signal(&executor->work);
        (void)pthread_mutex_unlock(&executor->lock);
    }
    return error;
}

struct idem_executor_counters idem_executor_counters(struct idem_executor *executor)
{
    struct idem_executor_counters counters;

    (void)pthread_mutex_lock(&executor->lock);
    counters = executor->counters;
    counters.waiting = executor->waiting.count;
    (void)pthread_mutex_unlock(&executor->lock);
    return counters;
}

/* Collects until nothing is unfinished or the instant has come. */
static void executor_drain(struct idem_executor *executor, int64_t until_us)
{
    bool more = true;

    (void)pthread_mutex_lock(&executor->lock);
    executor->stopping = true;
    (void)pthread_cond_signal(&executor->work);
    (void)pthread_mutex_unlock(&executor->lock);
    while (more) {
        (void)idem_executor_collect(executor);
        (void)pthread_mutex_lock(&executor->lock);
        while (!executor->news_first && executor->unfinished > 0 && idem_monotonic_us() < until_us)
            idem_condition_wait(&executor->told, &executor->lock, until_us);
        more = executor->unfinished > 0 && idem_monotonic_us() < until_us;
        (void)pthread_mutex_unlock(&executor->lock);
    }
}

/* True when the thread has ended; false when it is inside the store and stays there. */
static bool thread_end(struct idem_executor *executor, int64_t until_us)
{
    bool ended;

    (void)pthread_mutex_lock(&executor->lock);
    executor->ending = true;
    executor->closed = true;
    (void)pthread_cond_signal(&executor->work);
    while (!executor->ended && !(executor->in_store && idem_monotonic_us() >= until_us))
        idem_condition_wait(&executor->told, &executor->lock,
                            executor->in_store ? until_us : IDEM_NEVER_US);
    ended = executor->ended;
    executor->left_behind = !ended;
    (void)pthread_mutex_unlock(&executor->lock);
    return ended;
}

/* The thread is inside the store with the batch; everything else is the owner's now. */
static void thread_leave(struct idem_executor *executor)
{
    (void)pthread_mutex_lock(&executor->lock);
    idem_executor_finish_rest_locked(executor);
    for (size_t i = 0; i < executor->batch_count; i++) {
        executor->batch[i]->outcome = IDEM_ERR_UNAVAILABLE;
        if (executor->batch[i]->repeats == 0) /* the others were told before */
            idem_job_tell_locked(executor, executor->batch[i]);
    }
    (void)pthread_mutex_unlock(&executor->lock);
    (void)pthread_mutex_lock(&executor->trace_lock);
    executor->options.trace = NULL;
    (void)pthread_mutex_unlock(&executor->trace_lock);
}

/* From the last unlock on the executor belongs to its thread, which frees it if it comes back. */
static void executor_release(struct idem_executor *executor)
{
    (void)pthread_detach(executor->thread);
    (void)close(executor->event_fd);
    (void)pthread_mutex_lock(&executor->lock);
    executor->event_fd = -1;
    executor->released = true;
    (void)pthread_cond_signal(&executor->work);
    (void)pthread_mutex_unlock(&executor->lock);
}

void idem_executor_free(struct idem_executor *executor, int64_t wait_us_max)
{
    bool ended;

    if (!executor)
        return;
    executor_drain(executor, idem_monotonic_after_us(wait_us_max));
    ended = thread_end(executor, idem_monotonic_after_us(IDEM_END_GRACE_US));
    if (!ended)
        thread_leave(executor);
    while (idem_executor_collect(executor) > 0)
        continue;
    if (!ended) {
        executor_release(executor);
        return;
    }
    (void)pthread_join(executor->thread, NULL);
    idem_executor_destroy(executor);
}
