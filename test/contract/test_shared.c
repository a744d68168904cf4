/* Threads on one handle, processes on one store: one winner for each id. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"

#define THREADS   4
#define PROCESSES 4
#define KEYS      200

struct contest {
    struct idem_store *store;
    pthread_mutex_t *lock; /* NULL: nobody else uses this handle */
    unsigned char *won;    /* by key: how many claims were acquired */
    unsigned number;
    int failed;
};

/* One contestant: claims each key, and completes those that it wins. */
static void contestant_fill(struct idem_op *op, enum idem_op_kind kind, unsigned key,
                            unsigned number)
{
    char name[32];

    memset(op, 0, sizeof *op);
    op->kind = kind;
    snprintf(name, sizeof name, "contested %u", key);
    op->id = id_of(name);
    snprintf(name, sizeof name, "c%u.%u", number, key);
    if (kind == IDEM_OP_CLAIM) {
        op->in.claim.kind = IDEM_KIND_HTTP;
        op->in.claim.owner = owner_of(name);
        op->in.claim.lease_us = 5 * MINUTE;
        op->in.claim.ttl_us = TTL;
        op->in.claim.unknown_ttl_us = UNKNOWN_TTL;
    } else {
        op->in.verdict.owner = owner_of(name);
        op->in.verdict.answer.status = (uint16_t)(200 + number);
        op->in.verdict.ttl_us = TTL;
    }
}

static int contest_apply(struct contest *contest, struct idem_op *op)
{
    int error;

    if (contest->lock)
        pthread_mutex_lock(contest->lock);
    error = idem_store_apply(contest->store, &op, 1, NULL);
    if (contest->lock)
        pthread_mutex_unlock(contest->lock);
    return error;
}

static void *contest_run(void *argument)
{
    struct contest *contest = argument;
    struct idem_op op;

    for (unsigned key = 0; key < KEYS; key++) {
        contestant_fill(&op, IDEM_OP_CLAIM, key, contest->number);
        if (contest_apply(contest, &op))
            contest->failed = 1;
        if (op.result == IDEM_RESULT_ACQUIRED) {
            __atomic_fetch_add(&contest->won[key], 1, __ATOMIC_SEQ_CST);
            contestant_fill(&op, IDEM_OP_COMPLETE, key, contest->number);
            if (contest_apply(contest, &op) || op.result != IDEM_RESULT_OK)
                contest->failed = 1;
        } else if (op.result != IDEM_RESULT_IN_PROGRESS && op.result != IDEM_RESULT_COMPLETED) {
            contest->failed = 1;
        }
        idem_op_deinit(&op);
    }
    return NULL;
}

static void each_was_won_once(const unsigned char *won)
{
    for (unsigned key = 0; key < KEYS; key++)
        assert_int_equal(won[key], 1);
}

static void threads_find_one_winner(void **state)
{
    struct world *world = *state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned char won[KEYS] = {0};
    struct contest contests[THREADS];
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        contests[i] = (struct contest){world->store, &lock, won, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, contest_run, &contests[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(contests[i].failed, 0);
    }
    each_was_won_once(won);
}

/* Peeks from a second thread until every key is completed. */
static void *peeker_run(void *argument)
{
    struct contest *contest = argument;

    for (unsigned key = 0; key < KEYS; key++) {
        bool completed = false;

        while (!completed && !contest->failed) {
            struct idem_op op;
            int error;

            contestant_fill(&op, IDEM_OP_COMPLETE, key, 0);
            op.kind = IDEM_OP_GET;
            memset(&op.in, 0, sizeof op.in);
            op.in.get.match = true;
            error = idem_store_peek(contest->store, &op);
            if (error && error != IDEM_ERR_UNSUPPORTED)
                contest->failed = 1;
            completed = error == IDEM_ERR_UNSUPPORTED
                            ? key < KEYS - 1
                            : op.result == IDEM_RESULT_FOUND &&
                                  op.out.found.record.state == IDEM_STATE_COMPLETED;
            if (completed && !error)
                contest->failed |= op.out.found.record.answer.status != 200;
            idem_op_deinit(&op);
        }
    }
    return NULL;
}

static void peeks_run_beside_applies(void **state)
{
    struct world *world = *state;
    unsigned char won[KEYS] = {0};
    struct contest writer = {world->store, NULL, won, 0, 0};
    struct contest reader = {world->store, NULL, won, 1, 0};
    struct idem_op *probe = op_make(world, IDEM_OP_GET, "k");
    pthread_t thread;

    if (!peek(world, probe))
        return; /* this store has no such path */
    assert_int_equal(pthread_create(&thread, NULL, peeker_run, &reader), 0);
    contest_run(&writer);
    pthread_join(thread, NULL);
    assert_int_equal(writer.failed, 0);
    assert_int_equal(reader.failed, 0);
}

/* A process of its own, with a handle of its own, opened after the fork and not before. */
static int process_run(struct world *world, unsigned number, unsigned char *won)
{
    struct contest contest = {.number = number, .won = won};

    if (idem_store_open(world->url, &world->clock, &contest.store, NULL))
        return 2;
    contest_run(&contest);
    idem_store_close(contest.store);
    return contest.failed;
}

static void processes_find_one_winner(void **state)
{
    struct world *world = *state;
    unsigned char *won =
        mmap(NULL, KEYS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[PROCESSES];

    assert_true(won != MAP_FAILED);
    world_close(world);
    for (unsigned i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            _exit(process_run(world, i, won));
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    each_was_won_once(won);
    munmap(won, KEYS);
    world_open(world, "");
    for (unsigned key = 0; key < KEYS; key++) {
        char name[32];

        snprintf(name, sizeof name, "contested %u", key);
        assert_int_equal(record_of(world, name)->state, IDEM_STATE_COMPLETED);
    }
}

static const struct rule rules[] = {
    {"threads that share a handle find one winner for each id", threads_find_one_winner, 0},
    {"peeks run beside applies and see whole records", peeks_run_beside_applies, 0},
    {"processes that share a store find one winner for each id", processes_find_one_winner,
     TRAIT_SHARED},
};

const struct chapter chapter_shared = {"sharing", rules, COUNT(rules)};
