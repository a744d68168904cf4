/*
 * Twins: every other store beside the memory store, with the same clock, given the same random ops.
 * They must say the same. Prints its seed; give it as an argument to walk that one again.
 */
#include <stdio.h>
#include <string.h>

#include "contract.h"

#define IDS       40
#define OWNERS    5
#define BATCH_MAX 24
#define BATCHES   500
#define BODY_MAX  30000

struct twin {
    struct world *world;
    struct idem_op ops[BATCH_MAX];
    uint64_t seen[IDS];      /* the fence that an `unknown` named last */
    int64_t updated_us[IDS]; /* and the update that a get showed */
};

static uint8_t body[BODY_MAX];
static unsigned results[IDEM_RESULT_COUNT]; /* how often each was seen */

static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static const char *name_of(const char *kind, uint32_t number)
{
    static char names[8][32];
    static unsigned next;
    char *name = names[next++ % 8];

    snprintf(name, sizeof names[0], "%s %u", kind, (unsigned)number);
    return name;
}

static void claim_fill(struct idem_op *op, const struct twin *twin, uint32_t id, uint32_t dice)
{
    struct idem_claim *in = &op->in.claim;

    in->kind = IDEM_KIND_HTTP;
    in->scope = idem_bytes_make(body, dice % 50);
    in->path = idem_bytes_make(body, dice / 50 % 1500);
    in->fingerprint = payload_of(dice % 11 == 0 ? "other" : "payload");
    in->principal = caller_of(dice % 13 == 0 ? "mallory" : "alice");
    in->owner = owner_of(name_of("owner", dice % OWNERS));
    in->lease_us = LEASE;
    in->unknown_ttl_us = dice % 3 ? 5 * MINUTE : IDEM_NEVER_US;
    in->ttl_us = dice % 7 ? MINUTE : IDEM_NEVER_US;
    in->take = (enum idem_take_unknown)(dice / 3 % 3);
    in->take_fence = twin->seen[id];
}

static void verdict_fill(struct idem_op *op, uint32_t dice)
{
    static const int64_t ttls[] = {0, SECOND, MINUTE, HOUR, IDEM_NEVER_US};
    struct idem_verdict *in = &op->in.verdict;

    in->owner = owner_of(name_of("owner", dice % OWNERS));
    in->ttl_us = ttls[dice / 5 % COUNT(ttls)];
    in->lease_us = LEASE;
    in->reason = op->kind == IDEM_OP_ABANDON ? IDEM_REASON_TRUNCATED : IDEM_REASON_NONE;
    if (op->kind == IDEM_OP_COMPLETE)
        in->answer = (struct idem_answer){
            .status = 200, .body = idem_bytes_make(body, dice % 4 ? dice % 900 : dice % BODY_MAX)};
}

static void resolve_fill(struct idem_op *op, const struct twin *twin, uint32_t id, uint32_t dice)
{
    struct idem_resolve *in = &op->in.resolve;

    in->fence = twin->seen[id];
    in->updated_us = twin->updated_us[id];
    in->completed = dice % 2;
    in->ttl_us = dice % 3 ? MINUTE : IDEM_NEVER_US;
    in->owner = owner_of(name_of("person", dice));
    in->why = idem_bytes_make(body, dice % IDEM_WHY_SIZE_MAX);
    in->force = dice % 5 == 0;
}

/* The same op for every twin, but for what this store itself has told before. */
static void op_fill(struct idem_op *op, const struct twin *twin, uint32_t seed)
{
    static const enum idem_op_kind kinds[] = {
        IDEM_OP_CLAIM,    IDEM_OP_CLAIM, IDEM_OP_CLAIM,   IDEM_OP_CLAIM,   IDEM_OP_COMPLETE,
        IDEM_OP_COMPLETE, IDEM_OP_FAIL,  IDEM_OP_FAIL,    IDEM_OP_ABANDON, IDEM_OP_RENEW,
        IDEM_OP_GET,      IDEM_OP_GET,   IDEM_OP_RESOLVE, IDEM_OP_FORGET,  IDEM_OP_SWEEP,
    };
    uint32_t id = next_random(&seed) % IDS;
    uint32_t dice = next_random(&seed);

    memset(op, 0, sizeof *op);
    op->kind = kinds[next_random(&seed) % COUNT(kinds)];
    op->id = id_of(name_of("id", id));
    if (op->kind == IDEM_OP_CLAIM) {
        claim_fill(op, twin, id, dice);
    } else if (op->kind == IDEM_OP_RENEW) {
        op->in.renew.owner = owner_of(name_of("owner", dice % OWNERS));
        op->in.renew.lease_us = (int64_t)(dice % (2 * LEASE));
        op->in.renew.unknown_ttl_us = dice % 3 ? 5 * MINUTE : IDEM_NEVER_US;
    } else if (op->kind == IDEM_OP_RESOLVE) {
        resolve_fill(op, twin, id, dice);
    } else if (op->kind == IDEM_OP_FORGET) {
        op->in.forget.force = dice % 3 == 0;
    } else if (op->kind == IDEM_OP_SWEEP) {
        op->in.sweep.limit = 1 + dice % 8;
    } else if (op->kind != IDEM_OP_GET) {
        verdict_fill(op, dice);
    }
}

static void twin_apply(struct twin *twin, const uint32_t *seeds, size_t count)
{
    struct idem_op *list[BATCH_MAX];
    struct idem_message message = {""};

    for (size_t i = 0; i < count; i++) {
        list[i] = &twin->ops[i];
        op_fill(list[i], twin, seeds[i]);
    }
    if (idem_store_apply(twin->world->store, list, count, &message))
        fail_msg("%s: %s", twin->world->row->name, message.text);
    for (size_t i = 0; i < count; i++) {
        uint32_t seed = seeds[i], id = next_random(&seed) % IDS;

        if (list[i]->result == IDEM_RESULT_UNKNOWN)
            twin->seen[id] = list[i]->out.fence;
        if (list[i]->kind == IDEM_OP_GET && list[i]->result == IDEM_RESULT_FOUND) {
            twin->seen[id] = list[i]->out.found.record.fence;
            twin->updated_us[id] = list[i]->out.found.record.updated_us;
        }
    }
}

static void records_compare(const struct idem_record *a, const struct idem_record *b)
{
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->attempt, b->attempt);
    assert_int_equal(a->reason, b->reason);
    assert_true(idem_owner_equal(&a->owner, &b->owner));
    assert_int_equal(a->created_us, b->created_us);
    assert_int_equal(a->updated_us, b->updated_us);
    assert_int_equal(a->lease_until_us, b->lease_until_us);
    assert_int_equal(a->expires_us, b->expires_us);
    assert_int_equal(a->answer.status, b->answer.status);
    assert_int_equal(a->answer.tombstone, b->answer.tombstone);
    assert_bytes(a->scope, b->scope);
    assert_bytes(a->path, b->path);
    assert_bytes(a->answer.body, b->answer.body);
    assert_bytes(a->resolution.why, b->resolution.why);
}

static void ops_compare(const struct idem_op *a, const struct idem_op *b)
{
    if (a->kind == IDEM_OP_SWEEP)
        return; /* a store may find what has expired in its own time */
    assert_string_equal(idem_result_text(a->result), idem_result_text(b->result));
    assert_int_equal(a->out.attempt, b->out.attempt);
    assert_int_equal(a->out.since_us, b->out.since_us);
    assert_int_equal(a->out.retry_after_us, b->out.retry_after_us);
    assert_int_equal(a->out.tombstoned, b->out.tombstoned);
    assert_int_equal(a->out.found.memory != NULL, b->out.found.memory != NULL);
    if (a->out.found.memory)
        records_compare(&a->out.found.record, &b->out.found.record);
}

static void twins_walk(struct twin *twins, uint32_t seed)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        uint32_t seeds[BATCH_MAX];
        size_t count = 1 + next_random(&seed) % BATCH_MAX;
        int64_t step_us = (int64_t)(next_random(&seed) % (2 * LEASE));

        for (size_t i = 0; i < count; i++)
            seeds[i] = next_random(&seed);
        for (size_t t = 0; t < 2; t++) {
            advance(twins[t].world, batch % 50 == 49 ? HOUR : step_us);
            twin_apply(&twins[t], seeds, count);
        }
        for (size_t i = 0; i < count; i++) {
            ops_compare(&twins[0].ops[i], &twins[1].ops[i]);
            results[twins[0].ops[i].result]++;
            idem_op_deinit(&twins[0].ops[i]);
            idem_op_deinit(&twins[1].ops[i]);
        }
    }
}

/* In the end both hold the same, and all that can expire is swept from both. */
static void twins_end(struct twin *twins)
{
    size_t counts[2];

    for (size_t t = 0; t < 2; t++) {
        struct idem_op *op;

        advance(twins[t].world, DAY);
        sweep_all(twins[t].world);
        op = op_make(twins[t].world, IDEM_OP_SCAN, NULL);
        op->in.scan.limit = IDEM_SCAN_MAX;
        counts[t] = run(twins[t].world, op)->out.count;
        for (size_t i = 0; i < op->out.count; i++)
            assert_true(op->out.page[i].record.expires_us == IDEM_NEVER_US);
    }
    assert_int_equal(counts[0], counts[1]);
}

static void walk(const struct row *row, uint32_t seed)
{
    struct twin *twins = calloc(2, sizeof *twins);
    void *states[2] = {(void *)(uintptr_t)row_find("memory"), (void *)(uintptr_t)row};

    assert_non_null(twins);
    for (size_t t = 0; t < 2; t++) {
        world_setup(&states[t]);
        twins[t].world = states[t];
        world_close(states[t]);
        world_open(states[t], row->traits & TRAIT_KEPT && t ? "?sync=off" : "");
    }
    twins_walk(twins, seed);
    twins_end(twins);
    for (size_t t = 0; t < 2; t++)
        world_teardown(&states[t]);
    free(twins);
}

/* A walk that never came to a result has shown nothing about it. Full and corrupt are for others.
 */
static void results_check(void)
{
    for (int r = IDEM_RESULT_OK; r < IDEM_RESULT_COUNT; r++)
        if (results[r] == 0 && r != IDEM_RESULT_FULL && r != IDEM_RESULT_CORRUPT)
            fail_msg("no op was ever %s", idem_result_text((enum idem_result)r));
}

static const char *only_row;
static uint32_t only_seed;

static void twins_say_the_same(void **state)
{
    const struct row *row = row_find(only_row);

    (void)state;
    for (uint32_t seed = 1; seed <= 30; seed++) {
        if (only_seed && seed != only_seed)
            continue;
        print_message("%s, seed %u\n", row->name, (unsigned)seed);
        walk(row, seed * 2654435761u);
    }
    if (!only_seed)
        results_check();
}

/* test_twins ROW [SEED] */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twins_say_the_same),
    };

    only_row = argc > 1 ? argv[1] : "lmdb";
    if (argc > 2)
        only_seed = (uint32_t)strtoul(argv[2], NULL, 10);
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (uint8_t)(i * 7 + i / 256);
    return cmocka_run_group_tests_name(only_row, tests, NULL, NULL);
}
