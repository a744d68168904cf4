/*
 * State: what the files of the executor share. Nothing outside src/exec includes it.
 *
 * Two threads: the owner's (executor.c) and the executor's own (worker.c). Every field stands under
 * the heading that says who may touch it and how.
 *
 * A job is in exactly one of these places, linked by `next`: waiting, taken, due, the batch, the
 * settle table, or nowhere (it is the caller's). Independently of that it can be in the list of
 * news, linked by `next_news`, when there is something to tell its owner.
 */
#ifndef IDEM_EXEC_STATE_H
#define IDEM_EXEC_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include <idem/executor.h>

/* Records in one sweep: what a waiting job may be delayed by. */
#define IDEM_SWEEP_LIMIT 100

#define IDEM_SETTLE_BUCKETS      256
#define IDEM_SETTLE_PAUSE_US_MIN INT64_C(10000)
#define IDEM_SETTLE_PAUSE_US_MAX IDEM_SECOND_US
#define IDEM_SETTLE_US_DEFAULT   (INT64_C(3600) * IDEM_SECOND_US)

#define IDEM_OPEN_PAUSE_US_MIN INT64_C(100000)
#define IDEM_OPEN_PAUSE_US_MAX (2 * IDEM_SECOND_US)

/*
 * So many applies fail in a row, and the store is closed and opened afresh. One that timed out is
 * enough: the next would hold everybody up for as long, while an opening holds up nobody.
 */
#define IDEM_APPLY_FAILURES_MAX 3

/* So long without a failure, and "available again" is told. */
#define IDEM_CALM_US IDEM_SECOND_US

/* At most one line in so long tells that an answer was not kept. */
#define IDEM_TOMBSTONE_PAUSE_US IDEM_SECOND_US

/* So long _free waits for the thread to come back from the store. */
#define IDEM_END_GRACE_US (3 * IDEM_SECOND_US / 10)

/* Outcome of the thread's functions that enter the store: the owner has given the thread up. */
#define IDEM_LEFT_BEHIND 1

struct idem_job_queue {
    struct idem_job *first, *last;
    size_t count;
};

/* Verdicts that wait for their next repeat; see settle.c. */
struct idem_settle {
    struct idem_job_queue buckets[IDEM_SETTLE_BUCKETS];
    size_t count;
    int64_t due_us; /* of the earliest, or earlier */
};

/* Answers that were not kept, of one reason. */
struct idem_unkept {
    uint64_t count;    /* since the last line about one */
    int64_t told_us;   /* when that was; 0: never */
    struct idem_id id; /* of the latest */
};

/* What was seen of a store that has no room, and what was told of it; see room.c. */
struct idem_room {
    size_t batch_refused, batch_taken; /* claims in batches, not told yet */
    bool full;                         /* the refusing was told */
    uint64_t refused;                  /* claims, since then */
    int64_t refused_us;                /* when the last was */
    struct idem_unkept no_room, oversized;
};

enum idem_peek_state {
    IDEM_PEEK_IDLE,
    IDEM_PEEK_BUSY,    /* the owner is looking into the published store */
    IDEM_PEEK_AWAITED, /* and the thread waits for it to finish */
};

struct idem_executor {
    /* Fixed when the thread starts. */
    char *url;
    struct idem_executor_options options; /* defaults filled in; trace: under trace_lock */
    int event_fd;
    pthread_t thread;

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t work; /* the thread sleeps on it */
    pthread_cond_t told; /* the owner sleeps on it, in _wait_open and _free only */
    struct idem_job_queue waiting;
    size_t claims_waiting; /* claims and gets among them */
    int64_t expiry_us;     /* no waiting job times out before */
    struct idem_job *news_first, *news_last;
    bool ring;         /* news came into the empty list: write the eventfd after unlocking */
    size_t unfinished; /* jobs handed over and not yet DONE */
    bool sleeping;     /* the thread wants to be signalled */
    bool stopping;     /* _free drains */
    bool ending;       /* the thread is to end now */
    bool ended;        /* it has, and touches nothing any more */
    bool closed;       /* no more jobs */
    bool away;         /* the store failed and is not open again: claims and gets end at once */
    bool in_store;     /* the thread is inside the store with the batch */
    bool left_behind;  /* the owner does not wait for it any longer … */
    bool released;     /* … and touches nothing any more */
    bool peek_over;
    bool open_tried;
    int open_error;
    struct idem_message open_message;
    struct idem_executor_counters counters;

    pthread_mutex_t trace_lock;

    /* Shared without a lock; see idem_executor_peek(). */
    _Atomic(struct idem_store *) published;
    _Atomic(int) peek_state;

    /* The thread's own; the owner's once the thread has ended or is left behind. */
    struct idem_store *store;
    struct idem_settle settle;
    struct idem_job_queue taken; /* this round's new jobs */
    struct idem_job_queue due;   /* this round's repeats */
    struct idem_job *batch[IDEM_BATCH_MAX];
    struct idem_op *ops[IDEM_BATCH_MAX];
    size_t batch_count;
    bool hurried; /* `stopping` was acted on */
    bool lone;    /* the last round had one new job */
    int64_t open_due_us, sweep_due_us;
    unsigned open_repeats;   /* openings since an apply last worked */
    unsigned opens_failed;   /* in a row */
    unsigned applies_failed; /* in a row */
    int condition;           /* the error that was traced last, 0 once "available again" was */
    int64_t failed_us;
    struct idem_room room;
    struct idem_op sweep;
};

static inline void job_queue_append(struct idem_job_queue *queue, struct idem_job *job)
{
    job->next = NULL;
    if (queue->last)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
    queue->count++;
}

static inline struct idem_job *job_queue_take(struct idem_job_queue *queue)
{
    struct idem_job *job = queue->first;

    if (!job)
        return NULL;
    queue->first = job->next;
    if (!queue->first)
        queue->last = NULL;
    queue->count--;
    job->next = NULL;
    return job;
}

static inline bool job_is_verdict(const struct idem_job *job)
{
    return job->op.kind == IDEM_OP_COMPLETE || job->op.kind == IDEM_OP_FAIL ||
           job->op.kind == IDEM_OP_ABANDON;
}

/* The jobs that may be refused and may time out before they start. */
static inline bool job_is_bounded(const struct idem_job *job)
{
    return job->op.kind == IDEM_OP_CLAIM || job->op.kind == IDEM_OP_GET;
}

/* The instant at which a waiting job times out. */
static inline int64_t job_expiry_us(const struct idem_job *job)
{
    if (!job_is_bounded(job) || job->wait_us_max <= 0 ||
        job->wait_us_max > IDEM_NEVER_US - job->submitted_us)
        return IDEM_NEVER_US;
    return job->submitted_us + job->wait_us_max;
}

/* clock.c: the executor measures its pauses with the monotonic clock, never the store's. */
int64_t idem_monotonic_us(void);
int64_t idem_monotonic_after_us(int64_t wait_us); /* the instant in so long; never overflows */
int idem_condition_init(pthread_cond_t *condition);
/* Sleeps until signalled or until the instant has come (IDEM_NEVER_US: only when signalled). */
void idem_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_us);

/* news.c: telling the owner. The _locked ones are called with `lock` held. */
void idem_job_tell_locked(struct idem_executor *executor, struct idem_job *job);
void idem_job_finish_locked(struct idem_executor *executor, struct idem_job *job, int error);
void idem_job_fail_locked(struct idem_executor *executor, struct idem_job *job, int error);
void idem_executor_unlock(struct idem_executor *executor); /* and rings, if there is reason to */
void idem_executor_finish_rest_locked(struct idem_executor *executor);
void idem_executor_trace(struct idem_executor *executor, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* settle.c */
void idem_settle_init(struct idem_settle *settle);
void idem_settle_keep(struct idem_settle *settle, struct idem_job *job, int64_t now_us,
                      int64_t settle_us_max);
void idem_settle_hurry(struct idem_settle *settle);
bool idem_settle_blocks(const struct idem_settle *settle, const struct idem_job *job);
void idem_settle_take_due(struct idem_settle *settle, int64_t now_us, struct idem_job_queue *due);
void idem_settle_take_id(struct idem_settle *settle, const struct idem_id *id,
                         struct idem_job_queue *due);

/* opening.c: the store comes and goes. Those that return an int may return IDEM_LEFT_BEHIND. */
void idem_executor_enter_store(struct idem_executor *executor);
IDEM_MUST_CHECK int idem_executor_leave_store(struct idem_executor *executor);
IDEM_MUST_CHECK int idem_executor_open_store(struct idem_executor *executor);
IDEM_MUST_CHECK int idem_executor_close_store(struct idem_executor *executor);
IDEM_MUST_CHECK int idem_executor_apply_failed(struct idem_executor *executor, int error,
                                               const char *sentence);
void idem_executor_apply_worked(struct idem_executor *executor);
bool idem_error_is_of_one_op(int error);

/* room.c: looks at the batch that was just applied; tells, when there is time. */
void idem_executor_room_gather(struct idem_executor *executor);
IDEM_MUST_CHECK int idem_executor_room_tell(struct idem_executor *executor);

/* worker.c */
void *idem_executor_main(void *argument);

/* executor.c */
void idem_executor_destroy(struct idem_executor *executor);

#endif
