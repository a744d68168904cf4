/*
 * Opening: the store comes and goes, in the executor's thread.
 *
 *   1. Opening is tried until it works, with pauses that grow from 100 ms to 2 s.
 *   2. An open store is published for the owner's peeks. It is closed only after it has been
 *      withdrawn and the owner is seen outside of it: a flag each way, no lock on the owner's side.
 *   3. A store that says it is corrupt, that timed out, or that fails several times in a row with
 * an error that is not one op's own fault, is closed and opened afresh: its self-test tells whether
 *      it works. Until then claims end at once: nobody waits for a store that is known to be away.
 *   4. Every stay inside the store is marked, so that _free can tell a thread that hangs there. An
 *      opening may take as long as any call: names are looked up, connections made, a server asked.
 */
#include "exec/state.h"

static int64_t pause_us(unsigned repeats)
{
    int64_t pause = IDEM_OPEN_PAUSE_US_MIN;

    while (repeats-- > 0 && pause < IDEM_OPEN_PAUSE_US_MAX)
        pause *= 2;
    return pause < IDEM_OPEN_PAUSE_US_MAX ? pause : IDEM_OPEN_PAUSE_US_MAX;
}

void idem_executor_enter_store(struct idem_executor *executor)
{
    (void)pthread_mutex_lock(&executor->lock);
    executor->in_store = true;
    (void)pthread_cond_signal(&executor->told);
    (void)pthread_mutex_unlock(&executor->lock);
}

int idem_executor_leave_store(struct idem_executor *executor)
{
    bool left_behind;

    (void)pthread_mutex_lock(&executor->lock);
    executor->in_store = false;
    left_behind = executor->left_behind;
    (void)pthread_mutex_unlock(&executor->lock);
    return left_behind ? IDEM_LEFT_BEHIND : 0;
}

/* True for errors that one op may have brought about: the others deserve a try without it. */
bool idem_error_is_of_one_op(int error)
{
    return error == IDEM_ERR_NOMEM || error == IDEM_ERR_INVALID || error == IDEM_ERR_FULL ||
           error == IDEM_ERR_UNSUPPORTED;
}

static void condition_failed(struct idem_executor *executor, int error, const char *sentence)
{
    executor->failed_us = idem_monotonic_us();
    if (executor->condition == error)
        return;
    executor->condition = error;
    idem_executor_trace(executor, error, "%s: %s",
                        idem_error_is_of_one_op(error) ? "store refused an operation"
                                                       : "store unavailable",
                        sentence[0] ? sentence : idem_error_text(error));
}

static void condition_worked(struct idem_executor *executor)
{
    if (executor->condition == 0)
        return;
    executor->condition = 0;
    idem_executor_trace(executor, 0, "store available again");
}

static void opening_publish(struct idem_executor *executor, struct idem_store *store, int error,
                            const struct idem_message *message)
{
    executor->store = store;
    atomic_store(&executor->published, store); /* first: who is told "open" may peek at once */
    (void)pthread_mutex_lock(&executor->lock);
    executor->open_tried = true;
    executor->open_error = error;
    executor->open_message = *message;
    executor->away = error != 0;
    executor->counters.open = error == 0;
    (void)pthread_cond_signal(&executor->told);
    (void)pthread_mutex_unlock(&executor->lock);
}

int idem_executor_open_store(struct idem_executor *executor)
{
    struct idem_message message = {{0}};
    struct idem_store *store = NULL;
    int error;

    idem_executor_enter_store(executor);
    error = idem_store_open(executor->url, executor->options.clock, &store, &message);
    if (idem_executor_leave_store(executor)) {
        executor->store = store; /* for idem_executor_destroy() */
        return IDEM_LEFT_BEHIND;
    }
    opening_publish(executor, store, error, &message);
    if (error) {
        executor->opens_failed++;
        executor->open_due_us = idem_monotonic_us() + pause_us(executor->open_repeats++);
        condition_failed(executor, error, message.text);
        return error;
    }
    if (executor->opens_failed > 0)
        condition_worked(executor);
    if (idem_store_is_new(store))
        idem_executor_trace(executor, 0, "made a new, empty store: no earlier key is protected");
    executor->opens_failed = 0;
    executor->applies_failed = 0;
    executor->sweep_due_us = executor->options.sweep_us < 0
                                 ? IDEM_NEVER_US
                                 : idem_monotonic_us() + executor->options.sweep_us;
    idem_settle_hurry(&executor->settle);
    return 0;
}

/* From now on no peek is inside the store. The owner's side is idem_executor_peek(). */
static void store_withdraw(struct idem_executor *executor)
{
    int busy = IDEM_PEEK_BUSY;

    atomic_store(&executor->published, NULL);
    if (!atomic_compare_exchange_strong(&executor->peek_state, &busy, IDEM_PEEK_AWAITED))
        return; /* a peek that begins now finds nothing published */
    (void)pthread_mutex_lock(&executor->lock);
    while (!executor->peek_over)
        idem_condition_wait(&executor->work, &executor->lock, IDEM_NEVER_US);
    executor->peek_over = false;
    (void)pthread_mutex_unlock(&executor->lock);
}

int idem_executor_close_store(struct idem_executor *executor)
{
    struct idem_store *store = executor->store;

    if (!store)
        return 0;
    store_withdraw(executor);
    executor->store = NULL;
    (void)pthread_mutex_lock(&executor->lock);
    executor->counters.open = false;
    (void)pthread_mutex_unlock(&executor->lock);
    idem_executor_enter_store(executor);
    idem_store_close(store);
    return idem_executor_leave_store(executor);
}

int idem_executor_apply_failed(struct idem_executor *executor, int error, const char *sentence)
{
    condition_failed(executor, error, sentence);
    if (idem_error_is_of_one_op(error))
        return 0;
    executor->applies_failed++;
    if (error != IDEM_ERR_CORRUPT && error != IDEM_ERR_TIMEOUT && error != IDEM_ERR_UNSAFE &&
        executor->applies_failed < IDEM_APPLY_FAILURES_MAX)
        return 0;
    executor->applies_failed = 0;
    executor->open_due_us = idem_monotonic_us() + pause_us(executor->open_repeats++);
    (void)pthread_mutex_lock(&executor->lock);
    executor->open_error = error;
    executor->away = true;
    (void)pthread_mutex_unlock(&executor->lock);
    return idem_executor_close_store(executor);
}

/* "Again" only after a while without a failure: a full store would be told of twice a batch. */
void idem_executor_apply_worked(struct idem_executor *executor)
{
    executor->applies_failed = 0;
    executor->open_repeats = 0;
    if (executor->condition && executor->settle.count == 0 &&
        idem_monotonic_us() - executor->failed_us >= IDEM_CALM_US)
        condition_worked(executor);
}
