/*
 * Worker: the executor's thread. Again and again, one round:
 *
 *   1. Take the waiting jobs, at most a batch of them; end those that waited too long.
 *   2. While the store is closed: end them at once, keep the verdicts, and open it when due. From
 *      its first failure until it is open again claims are not even queued (executor.c).
 *   3. Repeat the kept verdicts that are due or whose id a new job is about to touch (settle.c).
 *   4. Apply the new jobs as one batch, but for those that have waited too long by now.
 *   5. Sweep a little when due. As long as there is more to sweep, rounds alternate: one batch of
 *      jobs, one small sweep.
 *
 * A batch that fails with an error that one op may have brought about is applied again op by op, so
 * that one poisoned op does not take the others with it; repeating is safe (owner idempotence).
 */
#include <sched.h>

#include "exec/state.h"

#define LINGER_US 100 /* about two wake-ups of a thread */

/* No sweeping without a store, nor when there is little time left. */
static int64_t sweep_due_us(const struct idem_executor *executor)
{
    return executor->store && !executor->hurried ? executor->sweep_due_us : IDEM_NEVER_US;
}

/* Until when there is nothing to do unless a job comes. */
static int64_t wake_us(const struct idem_executor *executor)
{
    int64_t wake = executor->store ? sweep_due_us(executor) : executor->open_due_us;

    return executor->settle.due_us < wake ? executor->settle.due_us : wake;
}

/*
 * After a lone job the next is often close behind: the verdict of the claim that was just applied,
 * in a gateway with little to do. Looking for it a little longer costs less than being woken. With
 * more to do it is the other way round: the processor is wanted elsewhere.
 */
static void work_linger(struct idem_executor *executor)
{
    int64_t until_us = idem_monotonic_us() + LINGER_US;
    bool idle = executor->lone;

    executor->lone = false;
    while (idle && idem_monotonic_us() < until_us) {
        (void)sched_yield();
        (void)pthread_mutex_lock(&executor->lock);
        idle = !executor->waiting.first && !executor->stopping && !executor->ending;
        (void)pthread_mutex_unlock(&executor->lock);
    }
}

/* Sleeps until there is something to do; false when the thread is to end. */
static bool work_await(struct idem_executor *executor)
{
    int64_t until_us = wake_us(executor);
    bool ending;

    work_linger(executor);
    (void)pthread_mutex_lock(&executor->lock);
    while (!executor->ending && !executor->waiting.first &&
           executor->stopping == executor->hurried && idem_monotonic_us() < until_us) {
        executor->sleeping = true;
        idem_condition_wait(&executor->work, &executor->lock, until_us);
        executor->sleeping = false;
    }
    if (executor->stopping && !executor->hurried) {
        executor->hurried = true;
        executor->open_due_us = 0;
        idem_settle_hurry(&executor->settle);
    }
    ending = executor->ending;
    (void)pthread_mutex_unlock(&executor->lock);
    return !ending;
}

static void waiting_take(struct idem_executor *executor)
{
    int64_t now_us = idem_monotonic_us();
    struct idem_job *job;

    (void)pthread_mutex_lock(&executor->lock);
    while (executor->taken.count < IDEM_BATCH_MAX &&
           (job = job_queue_take(&executor->waiting)) != NULL) {
        executor->claims_waiting -= job_is_bounded(job);
        if (job_expiry_us(job) <= now_us)
            idem_job_finish_locked(executor, job, IDEM_ERR_TIMEOUT);
        else
            job_queue_append(&executor->taken, job);
    }
    idem_executor_unlock(executor);
    executor->lone = executor->taken.count == 1;
}

/* Ends or keeps every job of the queue. */
static void queue_fail(struct idem_executor *executor, struct idem_job_queue *queue, int error)
{
    if (!queue->first)
        return;
    (void)pthread_mutex_lock(&executor->lock);
    for (struct idem_job *job; (job = job_queue_take(queue)) != NULL;)
        idem_job_fail_locked(executor, job, error);
    executor->counters.settling = executor->settle.count;
    idem_executor_unlock(executor);
}

/*
 * Moves jobs from the queue into the batch, except those that a kept verdict blocks, and those
 * whose time ran out while the calls before took theirs.
 */
static void batch_fill(struct idem_executor *executor, struct idem_job_queue *queue, size_t limit)
{
    struct idem_job_queue blocked = {0}, late = {0};
    int64_t now_us = idem_monotonic_us();
    struct idem_job *job;

    executor->batch_count = 0;
    while (executor->batch_count < limit && (job = job_queue_take(queue)) != NULL) {
        if (!job->reached && job_expiry_us(job) <= now_us) {
            job_queue_append(&late, job);
            continue;
        }
        if (idem_settle_blocks(&executor->settle, job)) {
            job_queue_append(&blocked, job);
            continue;
        }
        job->reached = true;
        executor->batch[executor->batch_count] = job;
        executor->ops[executor->batch_count++] = &job->op;
    }
    queue_fail(executor, &blocked, IDEM_ERR_UNAVAILABLE);
    queue_fail(executor, &late, IDEM_ERR_TIMEOUT);
}

/* Empties the batch: back to the front of the queue, in order. */
static void batch_put_back(struct idem_executor *executor, struct idem_job_queue *queue)
{
    struct idem_job_queue rest = *queue;

    *queue = (struct idem_job_queue){0};
    for (size_t i = 0; i < executor->batch_count; i++)
        job_queue_append(queue, executor->batch[i]);
    for (struct idem_job *job; (job = job_queue_take(&rest)) != NULL;)
        job_queue_append(queue, job);
    executor->batch_count = 0;
}

static void batch_end(struct idem_executor *executor, int error)
{
    (void)pthread_mutex_lock(&executor->lock);
    executor->counters.batches++;
    for (size_t i = 0; i < executor->batch_count; i++) {
        if (error)
            idem_job_fail_locked(executor, executor->batch[i], error);
        else
            idem_job_finish_locked(executor, executor->batch[i], 0);
    }
    executor->counters.settling = executor->settle.count;
    idem_executor_unlock(executor);
    executor->batch_count = 0;
}

/* 0, the store's error, or IDEM_LEFT_BEHIND. */
static int ops_apply(struct idem_executor *executor, struct idem_op *const *ops, size_t count,
                     struct idem_message *ret_message)
{
    int error;

    ret_message->text[0] = '\0';
    idem_executor_enter_store(executor);
    error = idem_store_apply(executor->store, ops, count, ret_message);
    if (idem_executor_leave_store(executor))
        return IDEM_LEFT_BEHIND;
    if (!error)
        return 0;
    for (size_t i = 0; i < count; i++)
        idem_op_deinit(ops[i]);
    (void)pthread_mutex_lock(&executor->lock);
    executor->counters.failures++;
    (void)pthread_mutex_unlock(&executor->lock);
    return error;
}

/*
 * Applies a queue, batch by batch. 0 when the store worked, even if it refused single ops; its
 * error when it did not, all jobs then being ended or kept; IDEM_LEFT_BEHIND.
 */
static int queue_apply(struct idem_executor *executor, struct idem_job_queue *queue)
{
    size_t limit = IDEM_BATCH_MAX;
    struct idem_message message;

    while (queue->first) {
        bool split;
        int error, left = 0;

        batch_fill(executor, queue, limit);
        if (executor->batch_count == 0)
            continue;
        error = ops_apply(executor, executor->ops, executor->batch_count, &message);
        if (error == IDEM_LEFT_BEHIND)
            return error;
        if (!error)
            idem_executor_room_gather(executor);
        split = idem_error_is_of_one_op(error) && executor->batch_count > 1;
        if (split)
            batch_put_back(executor, queue);
        else
            batch_end(executor, error);
        limit = split ? 1 : limit;
        if (!error) {
            idem_executor_apply_worked(executor);
            left = idem_executor_room_tell(executor);
        } else {
            if (!idem_error_is_of_one_op(error))
                queue_fail(executor, queue, error);
            left = idem_executor_apply_failed(executor, error, message.text);
        }
        if (left)
            return left;
        if (error && !idem_error_is_of_one_op(error))
            return error;
    }
    return 0;
}

/* Step 3. */
static int kept_apply(struct idem_executor *executor)
{
    idem_settle_take_due(&executor->settle, idem_monotonic_us(), &executor->due);
    for (const struct idem_job *job = executor->taken.first; job && executor->settle.count > 0;
         job = job->next)
        idem_settle_take_id(&executor->settle, &job->op.id, &executor->due);
    return queue_apply(executor, &executor->due);
}

static void sweep_end(struct idem_executor *executor)
{
    const struct idem_op *op = &executor->sweep;
    bool more = op->out.more && op->out.count > 0; /* no progress: no hurry */
    int64_t pause_us = more ? 0 : executor->options.sweep_us;

    executor->sweep_due_us = idem_monotonic_us() + pause_us;
    (void)pthread_mutex_lock(&executor->lock);
    executor->counters.swept += op->out.count;
    executor->counters.unknown_swept += op->out.unknown_removed;
    (void)pthread_mutex_unlock(&executor->lock);
    if (op->out.unknown_removed > 0)
        idem_executor_trace(executor, 0,
                            "%zu records of unknown outcome were never settled and are removed",
                            op->out.unknown_removed);
}

/* Step 5. */
static int sweep_apply(struct idem_executor *executor)
{
    struct idem_message message;
    struct idem_op *op = &executor->sweep;
    int error;

    *op = (struct idem_op){.kind = IDEM_OP_SWEEP, .in.sweep.limit = IDEM_SWEEP_LIMIT};
    error = ops_apply(executor, &op, 1, &message);
    if (error == IDEM_LEFT_BEHIND)
        return error;
    if (error) {
        executor->sweep_due_us = idem_monotonic_us() + executor->options.sweep_us;
        return idem_executor_apply_failed(executor, error, message.text);
    }
    idem_executor_apply_worked(executor);
    sweep_end(executor);
    idem_op_deinit(op);
    return idem_executor_room_tell(executor); /* what was held back for a while */
}

/* Steps 3 to 5. Errors have been dealt with when it returns: 0 or IDEM_LEFT_BEHIND. */
static int round_open(struct idem_executor *executor)
{
    int error = kept_apply(executor);

    if (error < 0)
        queue_fail(executor, &executor->taken, error);
    else if (!error)
        error = queue_apply(executor, &executor->taken);
    if (error == IDEM_LEFT_BEHIND)
        return error;
    if (idem_monotonic_us() >= sweep_due_us(executor))
        return sweep_apply(executor);
    return 0;
}

/* Step 2. The first jobs of all wait for the first opening; later ones end at once. */
static int round_closed(struct idem_executor *executor)
{
    int error = 0;

    if (executor->opens_failed > 0 || executor->open_repeats > 0) {
        waiting_take(executor);
        idem_settle_take_due(&executor->settle, idem_monotonic_us(), &executor->due);
        queue_fail(executor, &executor->due, IDEM_ERR_UNAVAILABLE);
        queue_fail(executor, &executor->taken, IDEM_ERR_UNAVAILABLE);
    }
    if (idem_monotonic_us() >= executor->open_due_us)
        error = idem_executor_open_store(executor);
    return error == IDEM_LEFT_BEHIND ? error : 0;
}

static int round_run(struct idem_executor *executor)
{
    if (!executor->store) {
        int left = round_closed(executor);

        if (left || !executor->store)
            return left;
    }
    waiting_take(executor);
    return round_open(executor);
}

/* The owner is gone, or about to be: everything but the jobs that it left here is the thread's. */
static void left_behind_clean(struct idem_executor *executor)
{
    (void)pthread_mutex_lock(&executor->lock);
    while (!executor->released)
        idem_condition_wait(&executor->work, &executor->lock, IDEM_NEVER_US);
    (void)pthread_mutex_unlock(&executor->lock);
    idem_executor_destroy(executor);
}

void *idem_executor_main(void *argument)
{
    struct idem_executor *executor = argument;
    int left = 0;

    while (!left && work_await(executor))
        left = round_run(executor);
    if (!left)
        left = idem_executor_close_store(executor);
    if (left) {
        left_behind_clean(executor);
        return NULL;
    }
    (void)pthread_mutex_lock(&executor->lock);
    idem_executor_finish_rest_locked(executor);
    executor->ended = true;
    (void)pthread_cond_signal(&executor->told);
    idem_executor_unlock(executor);
    return NULL;
}
