#include "faults.h"

#include <idem/store.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

int __real_idem_store_open(const char *url, const struct idem_clock *clock,
                           struct idem_store **ret_store, struct idem_message *message);
int __real_idem_store_apply(struct idem_store *store, struct idem_op *const *ops, size_t count,
                            struct idem_message *message);
int __real_idem_store_peek(struct idem_store *store, struct idem_op *get);
void __real_idem_store_close(struct idem_store *store);

int __wrap_idem_store_open(const char *url, const struct idem_clock *clock,
                           struct idem_store **ret_store, struct idem_message *message);
int __wrap_idem_store_apply(struct idem_store *store, struct idem_op *const *ops, size_t count,
                            struct idem_message *message);
int __wrap_idem_store_peek(struct idem_store *store, struct idem_op *get);
void __wrap_idem_store_close(struct idem_store *store);

struct failing {
    int error;
    unsigned count;
    bool after;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Thread_local bool opening; /* the self-test's calls go straight through */

static struct {
    bool hold_applies, hold_opens;
    unsigned held;
    struct failing applies, opens;
    uint8_t poison_id;
    int poison_error;
    struct faults_entry log[FAULTS_LOG_MAX];
    size_t log_count;
    unsigned batches, open_count, close_count;
    bool signal_open;
    unsigned failures, peeks_until, peeking;
    bool close_in_peek;
    unsigned permille, random, in_a_row;
} faults;

void faults_reset(void)
{
    pthread_mutex_lock(&lock);
    memset(&faults, 0, sizeof faults);
    pthread_mutex_unlock(&lock);
}

static void hold_set(bool applies, bool opens)
{
    pthread_mutex_lock(&lock);
    faults.hold_applies = applies;
    faults.hold_opens = opens;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void faults_hold_applies(void)
{
    hold_set(true, false);
}

void faults_hold_opens(void)
{
    hold_set(false, true);
}

void faults_release(void)
{
    hold_set(false, false);
}

void faults_await_held(void)
{
    pthread_mutex_lock(&lock);
    while (faults.held == 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void faults_fail_applies(int error, unsigned count, bool after)
{
    pthread_mutex_lock(&lock);
    faults.applies = (struct failing){error, count, after};
    pthread_mutex_unlock(&lock);
}

void faults_fail_opens(int error, unsigned count)
{
    pthread_mutex_lock(&lock);
    faults.opens = (struct failing){error, count, false};
    pthread_mutex_unlock(&lock);
}

void faults_fail_some(unsigned permille, unsigned seed)
{
    pthread_mutex_lock(&lock);
    faults.permille = permille;
    faults.random = seed;
    pthread_mutex_unlock(&lock);
}

void faults_poison(uint8_t id, int error)
{
    pthread_mutex_lock(&lock);
    faults.poison_id = id;
    faults.poison_error = error;
    pthread_mutex_unlock(&lock);
}

void faults_hold_peeks(unsigned count)
{
    pthread_mutex_lock(&lock);
    faults.peeks_until = faults.failures + count;
    pthread_mutex_unlock(&lock);
}

size_t faults_log(struct faults_entry *ret_entries, size_t max)
{
    size_t count;

    pthread_mutex_lock(&lock);
    count = faults.log_count < max ? faults.log_count : max;
    memcpy(ret_entries, faults.log, count * sizeof *ret_entries);
    pthread_mutex_unlock(&lock);
    return count;
}

static unsigned number_read(const unsigned *number)
{
    unsigned value;

    pthread_mutex_lock(&lock);
    value = *number;
    pthread_mutex_unlock(&lock);
    return value;
}

unsigned faults_batches(void)
{
    return number_read(&faults.batches);
}

unsigned faults_opens(void)
{
    return number_read(&faults.open_count);
}

unsigned faults_closes(void)
{
    return number_read(&faults.close_count);
}

static bool flag_read(const bool *flag)
{
    bool value;

    pthread_mutex_lock(&lock);
    value = *flag;
    pthread_mutex_unlock(&lock);
    return value;
}

bool faults_saw_signal_open(void)
{
    return flag_read(&faults.signal_open);
}

bool faults_saw_close_in_peek(void)
{
    return flag_read(&faults.close_in_peek);
}

static void hold_locked(const bool *hold)
{
    if (!*hold)
        return;
    faults.held++;
    pthread_cond_broadcast(&changed);
    while (*hold)
        pthread_cond_wait(&changed, &lock);
    faults.held--;
}

static int failing_take_locked(struct failing *failing)
{
    if (failing->count == 0)
        return 0;
    failing->count--;
    return failing->error;
}

static void signals_look_locked(void)
{
    sigset_t blocked;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (!sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGCHLD) ||
        !sigismember(&blocked, SIGHUP) || !sigismember(&blocked, SIGALRM))
        faults.signal_open = true;
}

static uint8_t op_owner(const struct idem_op *op)
{
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        return op->in.claim.owner.bytes[0];
    case IDEM_OP_RENEW:
        return op->in.renew.owner.bytes[0];
    case IDEM_OP_COMPLETE:
    case IDEM_OP_FAIL:
    case IDEM_OP_ABANDON:
        return op->in.verdict.owner.bytes[0];
    default:
        return 0;
    }
}

static void log_locked(struct idem_op *const *ops, size_t count, int error)
{
    for (size_t i = 0; i < count && faults.log_count < FAULTS_LOG_MAX; i++)
        faults.log[faults.log_count++] = (struct faults_entry){
            ops[i]->kind, ops[i]->id.bytes[0], op_owner(ops[i]), faults.batches, error};
    faults.batches++;
    faults.failures += error != 0;
    pthread_cond_broadcast(&changed);
}

static int poison_find_locked(struct idem_op *const *ops, size_t count)
{
    for (size_t i = 0; faults.poison_error && i < count; i++)
        if (ops[i]->id.bytes[0] == faults.poison_id)
            return faults.poison_error;
    return 0;
}

/* Draws from a small generator: the same seed gives the same faults for the same batches. */
static int some_locked(bool *ret_after)
{
    static const int errors[] = {IDEM_ERR_IO, IDEM_ERR_UNAVAILABLE, IDEM_ERR_FULL, IDEM_ERR_NOMEM};
    unsigned number;

    faults.random = faults.random * 1103515245u + 12345u;
    number = faults.random >> 12;
    if (number % 1000 >= faults.permille || faults.in_a_row == 2) {
        faults.in_a_row = 0;
        return 0;
    }
    faults.in_a_row++;
    *ret_after = number / 1000 % 2 == 0;
    return errors[number / 2000 % 4];
}

int __wrap_idem_store_open(const char *url, const struct idem_clock *clock,
                           struct idem_store **ret_store, struct idem_message *message)
{
    int error;

    pthread_mutex_lock(&lock);
    signals_look_locked();
    hold_locked(&faults.hold_opens);
    faults.open_count++;
    error = failing_take_locked(&faults.opens);
    pthread_mutex_unlock(&lock);
    if (error) {
        idem_message_set(message, "the test does not let it open");
        return error;
    }
    opening = true;
    error = __real_idem_store_open(url, clock, ret_store, message);
    opening = false;
    return error;
}

int __wrap_idem_store_apply(struct idem_store *store, struct idem_op *const *ops, size_t count,
                            struct idem_message *message)
{
    bool after;
    int error;

    if (opening)
        return __real_idem_store_apply(store, ops, count, message);
    pthread_mutex_lock(&lock);
    signals_look_locked();
    hold_locked(&faults.hold_applies);
    after = faults.applies.after;
    error = failing_take_locked(&faults.applies);
    if (!error)
        error = poison_find_locked(ops, count);
    if (!error)
        error = some_locked(&after);
    log_locked(ops, count, error);
    pthread_mutex_unlock(&lock);
    if (error)
        idem_message_set(message, "the test makes it fail");
    if (!error || after) {
        int real = __real_idem_store_apply(store, ops, count, message);

        error = error ? error : real;
    }
    return error;
}

/* After the wait the thread is on its way to close the store; the yields let it arrive there. */
int __wrap_idem_store_peek(struct idem_store *store, struct idem_op *get)
{
    int error;

    pthread_mutex_lock(&lock);
    faults.peeking++;
    while (faults.failures < faults.peeks_until)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < 1000; i++)
        (void)sched_yield();
    error = __real_idem_store_peek(store, get);
    pthread_mutex_lock(&lock);
    faults.peeking--;
    pthread_mutex_unlock(&lock);
    return error;
}

void __wrap_idem_store_close(struct idem_store *store)
{
    if (!store)
        return;
    if (!opening) {
        pthread_mutex_lock(&lock);
        faults.close_count++;
        faults.close_in_peek |= faults.peeking > 0;
        pthread_mutex_unlock(&lock);
    }
    __real_idem_store_close(store);
}
