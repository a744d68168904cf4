/*
 * kill -9 while writing, again and again: what was acknowledged is there, nothing is half there,
 * and the lock of the dead holds up nobody.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"

#define ROUNDS  25
#define WRITERS 2
#define BATCH   8

/* What each writer has acknowledged, shared with the parent. */
struct progress {
    volatile unsigned claimed; /* batches */
    volatile unsigned completed;
    volatile int failed;
};

static void name_of(char *memory, size_t size, unsigned writer, unsigned round, unsigned number)
{
    snprintf(memory, size, "w%u r%u n%u", writer, round, number);
}

static void body_of(char *memory, size_t size, unsigned writer, unsigned number)
{
    memset(memory, 'a' + (int)(writer + number) % 26, size - 1);
    memory[size - 1] = '\0';
}

static bool batch_apply(struct idem_store *store, struct idem_op *ops, enum idem_result wanted)
{
    struct idem_op *list[BATCH];
    bool good;

    for (size_t i = 0; i < BATCH; i++)
        list[i] = &ops[i];
    good = idem_store_apply(store, list, BATCH, NULL) == 0;
    for (size_t i = 0; i < BATCH; i++) {
        good = good && ops[i].result == wanted;
        idem_op_deinit(&ops[i]);
    }
    return good;
}

static bool claims_write(struct idem_store *store, unsigned writer, unsigned round, unsigned batch)
{
    struct idem_op ops[BATCH] = {0};
    char names[BATCH][32];

    for (unsigned i = 0; i < BATCH; i++) {
        name_of(names[i], sizeof names[i], writer, round, batch * BATCH + i);
        ops[i].kind = IDEM_OP_CLAIM;
        ops[i].id = id_of(names[i]);
        ops[i].in.claim.kind = IDEM_KIND_HTTP;
        ops[i].in.claim.key = text(names[i]);
        ops[i].in.claim.owner = owner_of(names[i]);
        ops[i].in.claim.lease_us = HOUR;
        ops[i].in.claim.ttl_us = TTL;
        ops[i].in.claim.unknown_ttl_us = UNKNOWN_TTL;
    }
    return batch_apply(store, ops, IDEM_RESULT_ACQUIRED);
}

static bool verdicts_write(struct idem_store *store, unsigned writer, unsigned round,
                           unsigned batch)
{
    struct idem_op ops[BATCH] = {0};
    char name[32], bodies[BATCH][700];

    for (unsigned i = 0; i < BATCH; i++) {
        name_of(name, sizeof name, writer, round, batch * BATCH + i);
        body_of(bodies[i], sizeof bodies[i], writer, batch * BATCH + i);
        ops[i].kind = IDEM_OP_COMPLETE;
        ops[i].id = id_of(name);
        ops[i].in.verdict.owner = owner_of(name);
        ops[i].in.verdict.ttl_us = TTL;
        ops[i].in.verdict.answer.status = 200;
        ops[i].in.verdict.answer.body = text(bodies[i]);
    }
    return batch_apply(store, ops, IDEM_RESULT_OK);
}

/* Writes until it is killed. */
static void writer_run(const char *url, struct progress *progress, unsigned writer, unsigned round)
{
    struct idem_store *store;

    if (idem_store_open(url, NULL, &store, NULL)) {
        progress->failed = 1;
        _exit(1);
    }
    for (unsigned batch = 0;; batch++) {
        if (!claims_write(store, writer, round, batch))
            progress->failed = 1;
        progress->claimed = batch + 1;
        if (!verdicts_write(store, writer, round, batch))
            progress->failed = 1;
        progress->completed = batch + 1;
    }
}

static void record_check(struct world *world, const struct progress *progress, unsigned writer,
                         unsigned round, unsigned number)
{
    char name[32], body[700];
    struct idem_op *op;

    name_of(name, sizeof name, writer, round, number);
    body_of(body, sizeof body, writer, number);
    op = get(world, name);
    if (number / BATCH < progress->completed) {
        expect(op, FOUND);
        assert_int_equal(op->out.found.record.state, IDEM_STATE_COMPLETED);
        assert_bytes(op->out.found.record.answer.body, text(body));
    } else if (number / BATCH < progress->claimed) {
        expect(op, FOUND);
    } else {
        assert_true(op->result == IDEM_RESULT_FOUND || op->result == IDEM_RESULT_ABSENT);
    }
}

static void round_check(struct world *world, const struct progress *progress, unsigned round)
{
    for (unsigned writer = 0; writer < WRITERS; writer++) {
        assert_int_equal(progress[writer].failed, 0);
        for (unsigned i = 0; i < (progress[writer].claimed + 1) * BATCH; i++)
            record_check(world, &progress[writer], writer, round, i);
    }
}

/* Waits until the writer has done so many batches, or is gone. */
static void wait_for(const struct progress *progress, unsigned batches, pid_t writer)
{
    while (progress->completed < batches && !progress->failed)
        if (waitpid(writer, NULL, WNOHANG) == writer)
            fail_msg("a writer ended by itself");
}

static void round_run(struct world *world, struct progress *progress, unsigned round)
{
    pid_t writers[WRITERS];

    memset(progress, 0, WRITERS * sizeof *progress);
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = fork();
        assert_true(writers[i] >= 0);
        if (writers[i] == 0)
            writer_run(world->url, &progress[i], i, round);
    }
    /* The first dies in the midst of its work; the other must go on. */
    wait_for(&progress[0], 3 + round % 5, writers[0]);
    kill(writers[0], SIGKILL);
    assert_int_equal(waitpid(writers[0], NULL, 0), writers[0]);
    wait_for(&progress[1], progress[1].completed + 3, writers[1]);
    kill(writers[1], SIGKILL);
    assert_int_equal(waitpid(writers[1], NULL, 0), writers[1]);
}

static int64_t real_now(void *context)
{
    struct timespec now;

    (void)context;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec / 1000;
}

static void killed_writers(struct world *world, const char *options)
{
    struct progress *progress = mmap(NULL, WRITERS * sizeof *progress, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(progress != MAP_FAILED);
    world->clock.now_us = real_now;
    world_close(world);
    for (unsigned round = 0; round < ROUNDS; round++) {
        world->row->url(world, options, world->url, sizeof world->url);
        round_run(world, progress, round);
        world_open(world, options);
        round_check(world, progress, round);
        expect(claim(world, "afterwards", "A"), ACQUIRED);
        expect(forget(world, "afterwards", true), OK);
        world_close(world);
    }
    munmap(progress, WRITERS * sizeof *progress);
    world_open(world, "");
}

static void killed_with_sync(void **state)
{
    killed_writers(*state, "?sync=always");
}

static void killed_without_sync(void **state)
{
    killed_writers(*state, "?sync=off");
}

static int setup(void **state)
{
    for (size_t i = 0; i < rows_count; i++)
        if (strcmp(rows[i].name, "lmdb") == 0)
            *state = (void *)(uintptr_t)&rows[i];
    return world_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_with_sync, setup, world_teardown),
        cmocka_unit_test_setup_teardown(killed_without_sync, setup, world_teardown),
    };

    return cmocka_run_group_tests_name("lmdb: crashes", tests, NULL, NULL);
}
