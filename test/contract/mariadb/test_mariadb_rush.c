/*
 * Many connections on few keys: 4 processes of 4 threads, each with a handle of its own, claim,
 * give back, complete, let expire and forget the same ids, in batches and one by one, while one
 * more sweeps. At any moment an id has one holder, and its fences grow whatever happens to its row.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define PROCESSES 4
#define THREADS   4
#define IDS       24
#define BATCH     8
#define ROUNDS    80

#define LEASE_RUSH (45 * SECOND)

/* What all processes see. */
struct arena {
    char url[URL_SIZE];
    int holders[IDS];     /* who acquired it and has not given it up: 0 or 1 */
    uint64_t fences[IDS]; /* the highest that was acquired */
    unsigned acquired, swept, faults;
    int ended;
    char fault[256]; /* the first */
};

struct worker {
    struct arena *arena;
    unsigned number, seed, made;
    struct idem_store *store;
    struct idem_op ops[BATCH], *list[BATCH];
    size_t count; /* of claims in this round */
    unsigned ids[BATCH];
    char names[BATCH][16]; /* of ids */
    char owners[BATCH][16];
};

static void fault(struct arena *arena, const char *what)
{
    if (__atomic_fetch_add(&arena->faults, 1, __ATOMIC_SEQ_CST) == 0)
        snprintf(arena->fault, sizeof arena->fault, "%s", what);
}

static unsigned next_random(unsigned *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static void batch_apply(struct worker *worker, size_t count)
{
    struct idem_message message = {""};

    if (count > 0 && idem_store_apply(worker->store, worker->list, count, &message))
        fault(worker->arena, message.text);
}

/* Claims distinct ids in no order, or one. */
static void claims_fill(struct worker *worker)
{
    unsigned first = next_random(&worker->seed), step = 1 + 2 * (first % 2);

    worker->count = next_random(&worker->seed) % 2 ? BATCH : 1;
    for (unsigned i = 0; i < worker->count; i++) {
        worker->ids[i] = (first + i * (step == 1 ? 1 : 5)) % IDS;
        snprintf(worker->names[i], sizeof worker->names[i], "id %u", worker->ids[i]);
        snprintf(worker->owners[i], sizeof worker->owners[i], "%u.%u", worker->number,
                 worker->made++);
        op_claim(&worker->ops[i], worker->names[i], worker->owners[i]);
        worker->ops[i].in.claim.lease_us = LEASE_RUSH;
        worker->ops[i].in.claim.ttl_us = 0;
        worker->list[i] = &worker->ops[i];
    }
}

static void acquired(struct worker *worker, unsigned id, uint64_t fence)
{
    struct arena *arena = worker->arena;

    if (__atomic_fetch_add(&arena->holders[id], 1, __ATOMIC_SEQ_CST) != 0)
        fault(arena, "an id was acquired while another held it");
    if (fence <= __atomic_exchange_n(&arena->fences[id], fence, __ATOMIC_SEQ_CST))
        fault(arena, "a fence did not grow");
    __atomic_fetch_add(&arena->acquired, 1, __ATOMIC_SEQ_CST);
}

/* One way to end each claim that was won: failed, completed for no time, or forgotten. */
static size_t ends_fill(struct worker *worker)
{
    size_t count = 0;

    for (unsigned i = 0; i < worker->count; i++) {
        struct idem_op *op = &worker->ops[i];
        unsigned how = next_random(&worker->seed) % 3;

        if (op->result != IDEM_RESULT_ACQUIRED)
            continue;
        acquired(worker, worker->ids[i], op->out.fence);
        op_verdict(op, how == 0 ? IDEM_OP_FAIL : IDEM_OP_COMPLETE, worker->names[i],
                   worker->owners[i], text("paid"));
        op->in.verdict.ttl_us = how == 0 ? TTL : 0;
        if (how == 2) {
            memset(op, 0, sizeof *op);
            op->kind = IDEM_OP_FORGET;
            op->id = id_of(worker->names[i]);
            op->in.forget.force = true;
        }
        /* Before it is given back: from then on another may have it. */
        __atomic_fetch_sub(&worker->arena->holders[worker->ids[i]], 1, __ATOMIC_SEQ_CST);
        worker->list[count++] = op;
    }
    return count;
}

static void round_run(struct worker *worker)
{
    size_t count;

    claims_fill(worker);
    batch_apply(worker, worker->count);
    for (unsigned i = 0; i < worker->count; i++)
        if (worker->ops[i].result != IDEM_RESULT_ACQUIRED &&
            worker->ops[i].result != IDEM_RESULT_IN_PROGRESS &&
            worker->ops[i].result != IDEM_RESULT_COMPLETED)
            fault(worker->arena, idem_result_text(worker->ops[i].result));
    count = ends_fill(worker);
    batch_apply(worker, count);
    for (size_t i = 0; i < count; i++)
        if (worker->list[i]->result != IDEM_RESULT_OK)
            fault(worker->arena, "an end was refused");
    for (unsigned i = 0; i < worker->count; i++)
        idem_op_deinit(&worker->ops[i]);
}

static void *worker_run(void *argument)
{
    struct worker *worker = argument;

    struct idem_message message = {""};

    if (idem_store_open(worker->arena->url, NULL, &worker->store, &message)) {
        fault(worker->arena, message.text);
        return NULL;
    }
    for (unsigned i = 0; i < ROUNDS && !worker->arena->faults; i++)
        round_run(worker);
    idem_store_close(worker->store);
    return NULL;
}

static int process_run(struct arena *arena, unsigned number)
{
    struct worker *workers = calloc(THREADS, sizeof *workers);
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].arena = arena;
        workers[i].number = number * THREADS + i;
        workers[i].seed = 2654435761u * (workers[i].number + 1);
        if (pthread_create(&threads[i], NULL, worker_run, &workers[i]))
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    free(workers);
    return 0;
}

/*
 * The sweeper looks at a record when its lease and ttl are over, as the claim knew them. Its clock
 * is ahead by as much: what has expired goes at once, and nothing else has. (Not so far that it
 * would take the records of a self-test for expired, which live a minute.)
 */
static int64_t ahead_us(void *context)
{
    struct timespec now;

    (void)context;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec / 1000 + LEASE_RUSH + 5 * SECOND;
}

static int sweeper_run(struct arena *arena)
{
    struct idem_clock clock = {ahead_us, NULL};
    struct idem_store *store;

    if (idem_store_open(arena->url, &clock, &store, NULL))
        return 1;
    while (!__atomic_load_n(&arena->ended, __ATOMIC_SEQ_CST)) {
        struct idem_op op, *list = &op;

        memset(&op, 0, sizeof op);
        op.kind = IDEM_OP_SWEEP;
        op.in.sweep.limit = 10;
        if (idem_store_apply(store, &list, 1, NULL))
            fault(arena, "a sweep failed");
        arena->swept += (unsigned)op.out.count;
    }
    idem_store_close(store);
    return 0;
}

static pid_t child_run(struct arena *arena, unsigned number)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        _exit(number == PROCESSES ? sweeper_run(arena) : process_run(arena, number));
    return child;
}

static void child_await(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void one_holder_at_a_time(void **state)
{
    static const char deadlocks[] = "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'";
    struct arena *arena =
        mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[PROCESSES + 1];
    int64_t before, begun_us = steady_us();

    (void)state;
    assert_true(arena != MAP_FAILED);
    url_make(database_name(), "?timeout=60s", arena->url);
    migrated(arena->url, IDEM_SCHEMA_LATEST, 0, 1);
    idem_store_close(store_open(arena->url));
    before = sql_number(NULL, deadlocks);
    for (unsigned i = 0; i <= PROCESSES; i++)
        children[i] = child_run(arena, i);
    for (unsigned i = 0; i < PROCESSES; i++)
        child_await(children[i]);
    __atomic_store_n(&arena->ended, 1, __ATOMIC_SEQ_CST);
    child_await(children[PROCESSES]);
    print_message("%d batches of up to %d in %.1f s: %u acquired, %u swept, %lld deadlocks\n",
                  2 * PROCESSES * THREADS * ROUNDS, BATCH, (double)(steady_us() - begun_us) / 1e6,
                  arena->acquired, arena->swept, (long long)(sql_number(NULL, deadlocks) - before));
    if (arena->faults)
        fail_msg("%u faults: %s", arena->faults, arena->fault);
    assert_true(arena->acquired > 100 && arena->swept > 10);
    munmap(arena, sizeof *arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_holder_at_a_time),
    };

    return cmocka_run_group_tests_name("mariadb: rush", tests, NULL, NULL);
}
