/*
 * A scan of the LMDB store looks at so many records a page at most, and at none outside of the
 * prefix that was asked for. Damaged records are looked at: a scan counts them.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "contract.h"

#define MANY     100512 /* more than a page may look at */
#define LOOKS    100000
#define BATCHES  ((MANY + IDEM_BATCH_MAX - 1) / IDEM_BATCH_MAX)
#define FILE_MAX (1u << 20)

static int setup(void **state)
{
    *state = (void *)(uintptr_t)row_find("lmdb");
    return world_setup(state);
}

/* So many claims, on ids that are their own numbers, in id order. */
static void claim_many(struct world *world)
{
    static struct idem_op ops[IDEM_BATCH_MAX];
    struct idem_op *list[IDEM_BATCH_MAX];

    for (unsigned batch = 0; batch < BATCHES; batch++) {
        for (unsigned i = 0; i < IDEM_BATCH_MAX; i++) {
            unsigned number = batch * IDEM_BATCH_MAX + i;
            struct idem_op *op = &ops[i];

            memset(op, 0, sizeof *op);
            op->kind = IDEM_OP_CLAIM;
            for (unsigned byte = 0; byte < 4; byte++)
                op->id.bytes[byte] = (uint8_t)(number >> (24 - 8 * byte));
            op->in.claim.kind = number + 1 == MANY ? IDEM_KIND_JOB : IDEM_KIND_HTTP;
            op->in.claim.owner = owner_of("A");
            op->in.claim.lease_us = LEASE;
            op->in.claim.ttl_us = TTL;
            op->in.claim.unknown_ttl_us = UNKNOWN_TTL;
            list[i] = op;
        }
        assert_int_equal(idem_store_apply(world->store, list, IDEM_BATCH_MAX, NULL), IDEM_OK);
    }
}

static void page_may_be_empty_though_there_is_more(void **state)
{
    struct world *world = *state;
    struct idem_op *op;
    struct idem_id next;

    world_close(world);
    world_open(world, "?sync=off");
    claim_many(world);
    op = op_make(world, IDEM_OP_SCAN, NULL);
    op->in.scan.kind = IDEM_KIND_JOB;
    op->in.scan.limit = 10;
    expect(run(world, op), OK);
    assert_int_equal(op->out.count, 0);
    assert_true(op->out.more);
    next = op->out.next;
    assert_int_equal(next.bytes[1] << 16 | next.bytes[2] << 8 | next.bytes[3], LOOKS - 1);
    op = op_make(world, IDEM_OP_SCAN, NULL);
    op->in.scan.kind = IDEM_KIND_JOB;
    op->in.scan.limit = 10;
    op->in.scan.has_cursor = true;
    op->in.scan.cursor = next;
    expect(run(world, op), OK);
    assert_int_equal(op->out.count, 1);
    assert_false(op->out.more);
}

/* A prefix is found without a look at what stands before it, however much that is. */
static void prefix_is_found_at_once(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    world_close(world);
    world_open(world, "?sync=off");
    claim_many(world);
    op = op_make(world, IDEM_OP_SCAN, NULL);
    op->in.scan.kind = IDEM_KIND_JOB;
    op->in.scan.limit = 10;
    op->in.scan.prefix_digits = 6;
    op->in.scan.prefix.bytes[1] = (MANY - 1) >> 16;
    op->in.scan.prefix.bytes[2] = (MANY - 1) >> 8 & 0xff;
    expect(run(world, op), OK);
    assert_int_equal(op->out.count, 1);
    assert_false(op->out.more);
}

/* Flips a bit behind each place in the data file where the text is found. */
static void damage(const struct world *world, const char *text)
{
    static char bytes[FILE_MAX];
    char path[WORLD_PATH_SIZE];
    size_t size, found = 0;
    FILE *file;

    world_path(world, "data.mdb", path);
    file = fopen(path, "r+b");
    assert_non_null(file);
    size = fread(bytes, 1, sizeof bytes, file);
    for (size_t i = 0; i + strlen(text) < size; i++) {
        if (memcmp(bytes + i, text, strlen(text)) != 0)
            continue;
        bytes[i] ^= 1;
        assert_int_equal(fseek(file, (long)i, SEEK_SET), 0);
        assert_int_equal(fwrite(bytes + i, 1, 1, file), 1);
        found++;
    }
    assert_int_equal(fclose(file), 0);
    assert_true(found > 0);
}

static size_t damaged_in(struct world *world, struct idem_id prefix, unsigned digits)
{
    struct idem_op *op = op_make(world, IDEM_OP_SCAN, NULL);

    op->in.scan.limit = 10;
    op->in.scan.prefix = prefix;
    op->in.scan.prefix_digits = digits;
    expect(run(world, op), OK);
    assert_false(op->out.more);
    return op->out.damaged;
}

static void damaged_records_are_counted_where_they_are(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    claim(world, "k", "A");
    complete(world, "k", "A", "a very particular answer");
    claim(world, "other", "A");
    world_close(world);
    damage(world, "a very particular answer");
    world_open(world, "");
    op = op_make(world, IDEM_OP_SCAN, NULL);
    op->in.scan.limit = 2;
    expect(run(world, op), OK);
    assert_int_equal(op->out.count, 1);
    assert_false(op->out.more);
    assert_int_equal(op->out.damaged, 1);
    assert_int_equal(op->out.damaged_id_count, 1);
    assert_memory_equal(op->out.damaged_ids[0].bytes, id_of("k").bytes, IDEM_ID_SIZE);
    assert_int_equal(damaged_in(world, id_of("k"), 2 * IDEM_ID_SIZE), 1);
    assert_int_equal(damaged_in(world, id_of("other"), 2 * IDEM_ID_SIZE), 0);
}

#define RULE(words, check)                        \
    {                                             \
        words, check, setup, world_teardown, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE("a page may be empty though there is more", page_may_be_empty_though_there_is_more),
        RULE("a prefix is found at once", prefix_is_found_at_once),
        RULE("damaged records are counted where they are",
             damaged_records_are_counted_where_they_are),
    };

    return cmocka_run_group_tests_name("lmdb: scans", tests, NULL, NULL);
}
