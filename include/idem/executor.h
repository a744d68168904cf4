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
    IDEM_JOB_DONE,    /* final: `error` and, if that is 0, op.result are set; the job is the
                         caller's again */
    IDEM_JOB_DELAYED, /* no result for now (`error`): the executor keeps the job, a verdict, and
                         repeats it. Told at most once, and not at all if DONE comes before it
                         could be collected */
};

/*
 * One op under way. Embedded in memory that the caller allocates and that lives until DONE; the
 * memory behind the op's views too. Zero it, fill op and notify, submit. Between submission and
 * DONE the caller may read op.kind, op.id and, in notify, `error`; all else is in motion.
 */
struct idem_job {
    struct idem_op op;
    void (*notify)(struct idem_job *job, enum idem_job_event event); /* called by _collect */
    int64_t wait_us_max; /* not started within this time: DONE with IDEM_ERR_TIMEOUT, never applied;
                            0 = no limit. For claims and gets; ignored for all others. */
    int error;           /* 0 or negative, see above */
    bool not_applied;    /* with an error: the op is known never to have reached the store */

    /* the executor's own */
    struct idem_job *next;
    struct idem_job *next_news;
    int64_t submitted_us;
    int64_t due_us;
    unsigned repeats;
    int outcome;  /* what `error` will be */
    bool reached; /* given to the store at least once */
    bool over;    /* `outcome` is final */
    bool telling; /* in the list of news, or being told */
};

struct idem_executor_options {
    size_t claims_max;              /* waiting claims (and gets); 0 = IDEM_QUEUE_MAX */
    int64_t settle_us_max;          /* how long a verdict is repeated; 0 = one hour */
    int64_t sweep_us;               /* pause between sweeps; 0 = one second, negative = never */
    const struct idem_clock *clock; /* the store's; NULL = the host's. Must outlive the store. */
    /*
     * One callback for everything worth telling, from the executor's thread; it must not block.
     * Each change of condition is told once: `error` negative when the store stops working, or has
     * no room for claims or for an answer; 0 when it works again, or for a plain remark, such as
     * that the store that was opened is a new one.
     */
    void (*trace)(void *context, int error, const char *text);
    void *context;
};

struct idem_executor_counters {
    uint64_t batches;       /* calls of the store that ended jobs, or told them to be delayed */
    uint64_t ops;           /* jobs that got a result */
    uint64_t failures;      /* calls of the store that failed, openings not counted */
    uint64_t delayed;       /* verdicts that failed at first and were kept */
    uint64_t dropped;       /* verdicts given up without a result */
    uint64_t swept;         /* records removed by sweeping */
    uint64_t unknown_swept; /* those of them that were UNKNOWN */
    size_t waiting;         /* jobs not yet taken by the thread */
    size_t settling;        /* verdicts kept and repeated at this moment */
    bool open;              /* the store is open */
};

/*
 * Starts the thread, with all signals blocked in it. The URL is checked here (IDEM_ERR_INVALID,
 * _UNSUPPORTED); the store is opened by the thread, again and again with growing pauses if need be.
 * Claims wait for the first opening; once that, or a store that was open, has failed, they end with
 * IDEM_ERR_UNAVAILABLE at once until it is open.
 */
IDEM_MUST_CHECK int idem_executor_new(const char *url, const struct idem_executor_options *options,
                                      struct idem_executor **ret_executor,
                                      struct idem_message *message);

/* Waits at most `wait_us_max` for the store to be open or to have failed once: 0 or that error. */
IDEM_MUST_CHECK int idem_executor_wait_open(struct idem_executor *executor, int64_t wait_us_max,
                                            struct idem_message *message);

/*
 * Hands a job over. 0: it is the executor's until DONE. Jobs on one id are applied in the order of
 * submission. Otherwise the job is still the caller's and nothing was done: IDEM_ERR_BUSY (claims
 * and gets only), too much is waiting; IDEM_ERR_UNAVAILABLE, submitted from a notify that the last
 * phase of idem_executor_free() called.
 */
IDEM_MUST_CHECK int idem_executor_submit(struct idem_executor *executor, struct idem_job *job);

/* Readable when something may be collected. Owned by the executor: do not close it. */
int idem_executor_fd(const struct idem_executor *executor);

/*
 * Calls notify for everything there is to tell, on this thread; notify may submit, but not collect
 * or free. Returns how many calls. Also ends the claims and gets that have waited too long while
 * the thread was held up in the store, which the fd does not announce: a caller with a deadline for
 * a job calls this when the deadline has come.
 */
size_t idem_executor_collect(struct idem_executor *executor);

/* idem_store_peek on the executor's store; IDEM_ERR_UNAVAILABLE while it is not open. */
IDEM_MUST_CHECK int idem_executor_peek(struct idem_executor *executor, struct idem_op *get);

struct idem_executor_counters idem_executor_counters(struct idem_executor *executor);

/*
 * Stops: applies what is waiting for at most `wait_us_max`, collects (notify is called for every
 * job, the unfinished ones with IDEM_ERR_UNAVAILABLE), ends the thread, closes the store, frees.
 * NULL is fine.
 *
 * A thread that is still inside the store 0.3 seconds after the limit is left behind: it cleans up
 * if it ever comes back. The jobs that it has with it, claims too, are told IDEM_JOB_DELAYED with
 * IDEM_ERR_UNAVAILABLE (unless told before) and never DONE: they, and what they view, must stay in
 * place for the rest of the process.
 */
void idem_executor_free(struct idem_executor *executor, int64_t wait_us_max);

#endif
