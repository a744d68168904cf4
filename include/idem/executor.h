/*
 * Executor: runs ops on a store in a thread of its own, many at a time.
 *
 * A queue, one thread, an eventfd. The thread opens the store, then again and again takes all
 * waiting jobs (up to IDEM_BATCH_MAX) and applies them as one batch. An event loop submits jobs
 * without blocking and collects finished ones when the eventfd becomes readable.
 *
 * Bounds apply to claims only: past the maximum they are refused at once. Verdicts always get in,
 * and one that the store could not take is repeated in the background with growing pauses until it
 * has a result, bounded by `settle_us_max` and counted.
 *
 * Functions are to be called from one thread, the one that created the executor.
 */
#ifndef IDEM_EXECUTOR_H
#define IDEM_EXECUTOR_H

#include <idem/store.h>

struct idem_executor;
struct idem_job;

enum idem_job_event {
    IDEM_JOB_DONE,    /* final: `error` and, if that is 0, op.result are set; the job is the caller's */
    IDEM_JOB_DELAYED, /* a verdict's first failure (`error`): the executor keeps it and repeats it */
};

/*
 * One op under way. Embedded in memory that the caller allocates and that lives until DONE; the
 * memory behind the op's views too. Zero it, fill op and notify, submit.
 */
struct idem_job {
    struct idem_op op;
    void (*notify)(struct idem_job *job, enum idem_job_event event); /* called by _collect */
    int64_t wait_us_max; /* not started within this time: DONE with IDEM_ERR_TIMEOUT, never applied;
                            0 = no limit. Ignored for verdicts. */
    int error;           /* 0 or negative, see above */
    bool not_applied;    /* with an error: the op is known never to have reached the store */

    /* the executor's own */
    struct idem_job *next;
    int64_t submitted_us;
    int64_t due_us;
    unsigned repeats;
    enum idem_job_event event;
};

struct idem_executor_options {
    size_t claims_max;     /* waiting claims (and gets); 0 = IDEM_QUEUE_MAX */
    int64_t settle_us_max; /* how long a verdict is repeated; 0 = one hour */
    int64_t sweep_us;      /* pause between sweeps; 0 = one second, negative = never */
    const struct idem_clock *clock;
    /* One callback for everything worth telling: from the executor's thread, must not block. */
    void (*trace)(void *context, int error, const char *text);
    void *context;
};

struct idem_executor_counters {
    uint64_t batches, ops, failures, delayed, dropped, swept, unknown_swept;
    size_t waiting;
    bool open; /* the store is open */
};

/*
 * Starts the thread, with all signals blocked in it. The URL is checked here (IDEM_ERR_INVALID,
 * _UNSUPPORTED); the store is opened by the thread, again and again with growing pauses if need be,
 * and until it is open claims end with IDEM_ERR_UNAVAILABLE.
 */
IDEM_MUST_CHECK int idem_executor_new(const char *url, const struct idem_executor_options *options,
                                      struct idem_executor **ret_executor,
                                      struct idem_message *message);

/* Waits at most `wait_us_max` for the store to be open or to have failed once: 0 or that error. */
IDEM_MUST_CHECK int idem_executor_wait_open(struct idem_executor *executor, int64_t wait_us_max,
                                            struct idem_message *message);

/*
 * Hands a job over. 0: it is the executor's until DONE. IDEM_ERR_BUSY (claims and gets only): too
 * much is waiting, the job is still the caller's and nothing was done.
 */
IDEM_MUST_CHECK int idem_executor_submit(struct idem_executor *executor, struct idem_job *job);

/* Readable when something may be collected. Owned by the executor: do not close it. */
int idem_executor_fd(const struct idem_executor *executor);

/* Calls notify of every finished job, on this thread. Returns how many. */
size_t idem_executor_collect(struct idem_executor *executor);

/* idem_store_peek on the executor's store; IDEM_ERR_UNAVAILABLE while it is not open. */
IDEM_MUST_CHECK int idem_executor_peek(struct idem_executor *executor, struct idem_op *get);

struct idem_executor_counters idem_executor_counters(struct idem_executor *executor);

/*
 * Stops: applies what is waiting for at most `wait_us_max`, collects (notify is called for every
 * job, the unfinished ones with IDEM_ERR_UNAVAILABLE), ends the thread, closes the store, frees.
 * A thread that hangs in the store past the limit is left behind. NULL is fine.
 */
void idem_executor_free(struct idem_executor *executor, int64_t wait_us_max);

#endif
