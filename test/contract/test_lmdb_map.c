/* The pages of a large file that were read do not stay with the process. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "contract.h"

#define ANSWERS   200
#define BODY_SIZE (256 << 10)
#define MIB       1024 /* KiB */
#define WAIT_S    60   /* only a broken test sees its end */

static uint8_t body[BODY_SIZE];

static int setup(void **state)
{
    for (size_t i = 0; i < rows_count; i++)
        if (strcmp(rows[i].name, "lmdb") == 0)
            *state = (void *)(uintptr_t)&rows[i];
    return world_setup(state);
}

/* KiB of data.mdb that this process has in its page table. */
static unsigned long mapped_kib(const struct world *world)
{
    char line[512], path[WORLD_PATH_SIZE];
    FILE *maps = fopen("/proc/self/smaps", "r");
    unsigned long kib = 0, begin, end;
    bool ours = false;

    assert_non_null(maps);
    world_path(world, "data.mdb", path);
    while (fgets(line, sizeof line, maps)) {
        char *rest;

        begin = strtoul(line, &rest, 16);
        if (rest != line && *rest == '-') {
            end = strtoul(rest + 1, NULL, 16);
            ours = end > begin && strstr(line, path);
        } else if (ours && strncmp(line, "Rss:", 4) == 0) {
            kib += strtoul(line + 4, NULL, 10);
        }
    }
    assert_int_equal(fclose(maps), 0);
    return kib;
}

static const char *key_of(char *memory, size_t size, unsigned number)
{
    snprintf(memory, size, "key %u", number);
    return memory;
}

static void answers_write(struct world *world)
{
    char key[32];

    for (unsigned i = 0; i < ANSWERS; i++) {
        struct idem_op *op;

        expect(claim(world, key_of(key, sizeof key, i), "A"), ACQUIRED);
        memset(body, 'a' + (int)(i % 26), sizeof body);
        op = verdict_make(world, IDEM_OP_COMPLETE, key, "A");
        op->in.verdict.answer =
            (struct idem_answer){.status = 200, .body = idem_bytes_make(body, sizeof body)};
        expect(run(world, op), OK);
    }
}

/* By peeks: a second thread reads while the first has nothing to do. */
static void answers_read(struct world *world)
{
    char key[32];

    for (unsigned i = 0; i < ANSWERS; i++) {
        struct idem_op *op = peek(world, op_make(world, IDEM_OP_GET, key_of(key, sizeof key, i)));

        expect(op, FOUND);
        memset(body, 'a' + (int)(i % 26), sizeof body);
        assert_bytes(op->out.found.record.answer.body, idem_bytes_make(body, sizeof body));
    }
}

static void pages_are_given_back(void **state)
{
    struct world *world = *state;
    time_t begun;

    world_close(world);
    world_open(world, "?size=256m&sync=off");
    answers_write(world);
    for (unsigned round = 0; round < 2; round++) {
        answers_read(world);
        assert_in_range(mapped_kib(world), 40 * MIB, 256 * MIB);
        begun = time(NULL);
        while (mapped_kib(world) > 16 * MIB) {
            assert_true(time(NULL) - begun < WAIT_S);
            sweep(world, 1); /* what the executor does when it has nothing to do */
            (void)sched_yield();
        }
    }
    answers_read(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"pages of a large store are given back", pages_are_given_back, setup, world_teardown,
         NULL},
    };

    return cmocka_run_group_tests_name("lmdb: map", tests, NULL, NULL);
}
