/* A store that is full: no new claims, every verdict, and nothing live is lost. */
#include <stdio.h>
#include <string.h>

#include "contract.h"

#define KEYS_MAX  20000
#define BODY_SIZE 1500

static char body[BODY_SIZE + 1];

static const char *key_of(char *memory, size_t size, unsigned number)
{
    snprintf(memory, size, "key %u", number);
    return memory;
}

/* A body that tells whose it is. */
static const char *body_of(unsigned number)
{
    memset(body, 'x', BODY_SIZE);
    snprintf(body, sizeof body, "answer %u", number);
    body[strlen(body)] = 'x';
    body[BODY_SIZE] = '\0';
    return body;
}

/* Opens the row's smallest store in place of the large one. */
static void world_shrink(struct world *world)
{
    world_close(world);
    world_open(world, world->row->bounded);
}

/*
 * Claims and completes keys until a claim is refused, with `held` more claims that still run.
 * Returns how many were completed; the running ones have the numbers after KEYS_MAX.
 */
static unsigned fill(struct world *world, unsigned held)
{
    char key[32];
    unsigned number;

    for (unsigned i = 0; i < held; i++)
        expect(claim(world, key_of(key, sizeof key, KEYS_MAX + i), "A"), ACQUIRED);
    for (number = 0; number < KEYS_MAX; number++) {
        struct idem_op *op = claim(world, key_of(key, sizeof key, number), "A");

        if (op->result == IDEM_RESULT_FULL)
            break;
        expect(op, ACQUIRED);
        expect(complete(world, key, "A", body_of(number)), OK);
    }
    assert_in_range(number, 10, KEYS_MAX - 1);
    return number;
}

/* All that was completed is still there; an answer may only have been left out when it was told. */
static void all_are_there(struct world *world, unsigned count)
{
    char key[32];

    for (unsigned i = 0; i < count; i++) {
        struct idem_op *op = claim(world, key_of(key, sizeof key, i), "B");

        expect(op, COMPLETED);
        if (op->out.found.record.answer.tombstone == IDEM_REASON_NONE)
            assert_bytes(op->out.found.record.answer.body, text(body_of(i)));
        else
            assert_int_equal(op->out.found.record.answer.tombstone, IDEM_REASON_NO_ROOM);
    }
}

static void full_refuses_claims_only(void **state)
{
    struct world *world = *state;
    unsigned count;

    world_shrink(world);
    count = fill(world, 0);
    expect(claim(world, "one more", "A"), FULL);
    expect(get(world, "one more"), ABSENT);
    all_are_there(world, count);
}

static void full_takes_every_verdict(void **state)
{
    struct world *world = *state;
    struct idem_op *completed = NULL;
    char key[32];
    unsigned count;

    world_shrink(world);
    count = fill(world, 60);
    for (unsigned i = 0; i < 60; i++) {
        key_of(key, sizeof key, KEYS_MAX + i);
        expect(renew(world, key, "A", LEASE), OK);
        if (i % 3 == 0)
            expect(fail_claim(world, key, "A"), OK);
        else if (i % 3 == 1)
            expect(abandon(world, key, "A"), OK);
        else
            expect(completed = complete(world, key, "A", body_of(KEYS_MAX + i)), OK);
        /* The reserve is there for a few answers at least. */
        assert_true(i % 3 != 2 || i > 6 || !completed->out.tombstoned);
    }
    all_are_there(world, count);
}

/* Claims many at a time until one is refused: they must not eat into what verdicts need. */
static void batches_leave_the_reserve(void **state)
{
    static uint8_t path[IDEM_PATH_SIZE_MAX];
    struct world *world = *state;
    struct idem_op *ops[WORLD_OPS], *op;
    char keys[WORLD_OPS][32];
    bool full = false;

    world_shrink(world);
    expect(claim(world, "held", "A"), ACQUIRED);
    for (unsigned batch = 0; !full && batch < KEYS_MAX; batch++) {
        for (unsigned i = 0; i < WORLD_OPS; i++) {
            key_of(keys[i], sizeof keys[i], batch * WORLD_OPS + i);
            ops[i] = claim_make(world, keys[i], "A");
            ops[i]->in.claim.path = idem_bytes_make(path, sizeof path);
        }
        assert_int_equal(idem_store_apply(world->store, ops, WORLD_OPS, NULL), IDEM_OK);
        full = ops[WORLD_OPS - 1]->result == IDEM_RESULT_FULL;
    }
    assert_true(full);
    op = complete(world, "held", "A", body_of(0));
    expect(op, OK);
    assert_false(op->out.tombstoned);
}

static void answer_without_room_is_tombstone(void **state)
{
    struct world *world = *state;
    uint8_t *large = calloc(1, 1u << 20);
    struct idem_op *op;

    assert_non_null(large);
    world_shrink(world);
    claim(world, "k", "A");
    op = verdict_make(world, IDEM_OP_COMPLETE, "k", "A");
    op->in.verdict.answer =
        (struct idem_answer){.status = 200, .flags = 3, .body = idem_bytes_make(large, 1u << 20)};
    expect(run(world, op), OK);
    assert_true(op->out.tombstoned);
    assert_int_equal(op->in.verdict.answer.body.size, 1u << 20);
    idem_op_deinit(op);
    expect(run(world, op), OK);
    assert_true(op->out.tombstoned);
    op = claim(world, "k", "B");
    expect(op, COMPLETED);
    assert_int_equal(op->out.found.record.answer.tombstone, IDEM_REASON_NO_ROOM);
    assert_int_equal(op->out.found.record.answer.status, 200);
    assert_int_equal(op->out.found.record.answer.body.size, 0);
    free(large);
}

static void verdicts_overflow_into_tombstones(void **state)
{
    struct world *world = *state;
    unsigned tombstones = 0;
    char key[32];

    world_shrink(world);
    fill(world, 100);
    for (unsigned i = 0; i < 100; i++) {
        struct idem_op *op =
            complete(world, key_of(key, sizeof key, KEYS_MAX + i), "A", body_of(KEYS_MAX + i));

        expect(op, OK);
        tombstones += op->out.tombstoned;
    }
    assert_in_range(tombstones, 1, 100);
}

static void batch_on_full_store_is_parted(void **state)
{
    struct world *world = *state;
    struct idem_op *ops[8];
    struct idem_message message = {""};
    char key[32];

    world_shrink(world);
    fill(world, 4);
    for (unsigned i = 0; i < 4; i++) {
        key_of(key, sizeof key, KEYS_MAX + i);
        ops[2 * i] = verdict_make(world, IDEM_OP_COMPLETE, key, "A");
        ops[2 * i]->in.verdict.answer = answer_of("paid");
        key_of(key, sizeof key, 2 * KEYS_MAX + i);
        ops[2 * i + 1] = claim_make(world, key, "A");
    }
    assert_int_equal(idem_store_apply(world->store, ops, 8, &message), IDEM_OK);
    for (unsigned i = 0; i < 4; i++) {
        expect(ops[2 * i], OK);
        expect(ops[2 * i + 1], FULL);
    }
}

static void full_refuses_retries_too_but_answers(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    world_shrink(world);
    claim(world, "failed", "A");
    fail_claim(world, "failed", "A");
    claim(world, "running", "A");
    fill(world, 0);
    op = claim(world, "failed", "B");
    assert_true(op->result == IDEM_RESULT_FULL || op->result == IDEM_RESULT_ACQUIRED);
    expect(claim(world, "running", "B"), IN_PROGRESS);
    expect(claim(world, "running", "A"), ACQUIRED);
}

static void room_comes_back_after_sweep(void **state)
{
    struct world *world = *state;
    unsigned count, again;

    world_shrink(world);
    count = fill(world, 0);
    advance(world, LEASE + TTL + SECOND);
    assert_int_equal(sweep_all(world), count);
    again = fill(world, 0);
    assert_in_range(again, count / 2, 2 * count);
    all_are_there(world, again);
}

static void room_comes_back_after_forget(void **state)
{
    struct world *world = *state;
    unsigned count;
    char key[32];

    world_shrink(world);
    count = fill(world, 0);
    for (unsigned i = 0; i < count / 2; i++)
        expect(forget(world, key_of(key, sizeof key, i), false), OK);
    expect(claim(world, "one more", "A"), ACQUIRED);
}

static void full_store_opens(void **state)
{
    struct world *world = *state;
    unsigned count;

    world_shrink(world);
    count = fill(world, 1);
    world_reopen(world);
    expect(claim(world, "one more", "A"), FULL);
    all_are_there(world, count);
}

static void size_can_be_raised(void **state)
{
    struct world *world = *state;
    unsigned count;

    world_shrink(world);
    count = fill(world, 0);
    world_close(world);
    world_open(world, "?size=64m");
    expect(claim(world, "one more", "A"), ACQUIRED);
    all_are_there(world, count);
}

static const struct rule rules[] = {
    {"a full store refuses claims and keeps what is live", full_refuses_claims_only, TRAIT_BOUND},
    {"a full store lets every verdict in", full_takes_every_verdict, TRAIT_BOUND},
    {"claims in large batches leave the reserve to verdicts", batches_leave_the_reserve,
     TRAIT_BOUND},
    {"an answer that does not fit becomes a tombstone", answer_without_room_is_tombstone,
     TRAIT_BOUND},
    {"when the reserve runs low answers become tombstones", verdicts_overflow_into_tombstones,
     TRAIT_BOUND},
    {"in a batch on a full store claims are refused and verdicts get in",
     batch_on_full_store_is_parted, TRAIT_BOUND},
    {"a full store still answers for what it has", full_refuses_retries_too_but_answers,
     TRAIT_BOUND},
    {"room comes back after a sweep", room_comes_back_after_sweep, TRAIT_BOUND | TRAIT_CLOCK},
    {"room comes back after forget", room_comes_back_after_forget, TRAIT_BOUND},
    {"a full store opens, and is still full", full_store_opens, TRAIT_BOUND | TRAIT_KEPT},
    {"a full store that is given more room takes claims again", size_can_be_raised,
     TRAIT_BOUND | TRAIT_KEPT},
};

const struct chapter chapter_full = {"a full store", rules, COUNT(rules)};
