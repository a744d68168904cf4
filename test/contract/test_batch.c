/* Many ops at once. */
#include <stdio.h>
#include <string.h>

#include "contract.h"

static int apply_all(struct world *world, struct idem_op **ops, size_t count)
{
    struct idem_message message;

    return idem_store_apply(world->store, ops, count, &message);
}

static void ops_on_one_id_apply_in_order(void **state)
{
    struct world *world = *state;
    struct idem_op *ops[10];

    ops[0] = claim_make(world, "k", "A");
    ops[1] = claim_make(world, "k", "B");
    ops[2] = verdict_make(world, IDEM_OP_FAIL, "k", "A");
    ops[3] = claim_make(world, "k", "A");
    ops[4] = claim_make(world, "k", "C");
    ops[5] = verdict_make(world, IDEM_OP_COMPLETE, "k", "A");
    ops[5]->in.verdict.answer = answer_of("A's");
    ops[6] = verdict_make(world, IDEM_OP_COMPLETE, "k", "C");
    ops[6]->in.verdict.answer = answer_of("C's");
    ops[7] = op_make(world, IDEM_OP_GET, "k");
    ops[8] = op_make(world, IDEM_OP_FORGET, "k");
    ops[9] = op_make(world, IDEM_OP_GET, "k");
    assert_int_equal(apply_all(world, ops, 10), IDEM_OK);
    expect(ops[0], ACQUIRED);
    expect(ops[1], IN_PROGRESS);
    expect(ops[2], OK);
    expect(ops[3], ENDED);
    expect(ops[4], ACQUIRED);
    assert_int_equal(ops[4]->out.attempt, 2);
    expect(ops[5], LOST);
    expect(ops[6], OK);
    expect(ops[7], FOUND);
    assert_bytes(ops[7]->out.found.record.answer.body, text("C's"));
    expect(ops[8], OK);
    expect(ops[9], ABSENT);
}

static void one_claim_of_many_wins(void **state)
{
    struct world *world = *state;
    struct idem_op *ops[WORLD_OPS];
    char owner[16];

    for (int i = 0; i < WORLD_OPS; i++) {
        snprintf(owner, sizeof owner, "owner %d", i);
        ops[i] = claim_make(world, "k", owner);
    }
    assert_int_equal(apply_all(world, ops, WORLD_OPS), IDEM_OK);
    expect(ops[0], ACQUIRED);
    for (int i = 1; i < WORLD_OPS; i++)
        expect(ops[i], IN_PROGRESS);
}

static void fill_claims(struct idem_op *ops, struct idem_op **list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char key[32];

        snprintf(key, sizeof key, "many %zu", i);
        ops[i].kind = IDEM_OP_CLAIM;
        ops[i].id = id_of(key);
        ops[i].in.claim.kind = IDEM_KIND_HTTP;
        ops[i].in.claim.owner = owner_of(key + 5);
        ops[i].in.claim.lease_us = LEASE;
        ops[i].in.claim.ttl_us = TTL;
        ops[i].in.claim.unknown_ttl_us = UNKNOWN_TTL;
        list[i] = &ops[i];
    }
}

static void largest_batch_is_taken(void **state)
{
    struct world *world = *state;
    struct idem_op *ops = calloc(IDEM_BATCH_MAX + 1, sizeof *ops);
    struct idem_op **list = calloc(IDEM_BATCH_MAX + 1, sizeof(struct idem_op *));

    assert_non_null(ops);
    assert_non_null(list);
    fill_claims(ops, list, IDEM_BATCH_MAX + 1);
    assert_int_equal(apply_all(world, list, IDEM_BATCH_MAX + 1), IDEM_ERR_INVALID);
    expect(get(world, "many 0"), ABSENT);
    assert_int_equal(apply_all(world, list, IDEM_BATCH_MAX), IDEM_OK);
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++)
        expect(&ops[i], ACQUIRED);
    expect(get(world, "many 511"), FOUND);
    free(list);
    free(ops);
}

static void empty_batch_is_taken(void **state)
{
    struct world *world = *state;

    assert_int_equal(apply_all(world, NULL, 0), IDEM_OK);
}

/* Spoils one claim and one complete in every way that is not allowed. */
static void spoil(struct idem_op *op, int how)
{
    static uint8_t long_key[IDEM_KEY_SIZE_MAX + 1];

    if (how == 0)
        op->in.claim.key = idem_bytes_make(long_key, sizeof long_key);
    else if (how == 1)
        op->in.claim.lease_us = -1;
    else if (how == 2)
        op->in.claim.ttl_us = -1;
    else if (how == 3)
        op->in.claim.kind = (enum idem_kind)99;
    else if (how == 4)
        op->in.claim.lease_us = IDEM_LEASE_US_MAX + 1;
    else if (how == 5)
        op->in.claim.fingerprint.algorithm = 200;
    else
        op->kind = (enum idem_op_kind)99;
}

static void batch_with_a_bad_op_does_nothing(void **state)
{
    struct world *world = *state;

    for (int how = 0; how < 7; how++) {
        struct idem_op *ops[2] = {claim_make(world, "good", "A"), claim_make(world, "bad", "A")};

        spoil(ops[1], how);
        assert_int_equal(apply_all(world, ops, 2), IDEM_ERR_INVALID);
        expect(get(world, "good"), ABSENT);
    }
}

static void bad_answers_are_refused(void **state)
{
    struct world *world = *state;
    struct idem_answer bad[] = {
        {.status = 0},
        {.status = 99},
        {.status = 200, .headers = text("no header block")},
        {.status = 200, .tombstone = IDEM_REASON_TOO_LARGE, .body = text("kept after all")},
        {.status = 200, .tombstone = IDEM_REASON_UNANSWERED},
    };

    claim(world, "k", "A");
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct idem_op *op = verdict_make(world, IDEM_OP_COMPLETE, "k", "A");

        op->in.verdict.answer = bad[i];
        assert_int_equal(apply_all(world, &op, 1), IDEM_ERR_INVALID);
    }
    expect(claim(world, "k", "B"), IN_PROGRESS);
}

static void clock_is_told(void **state)
{
    struct world *world = *state;

    assert_int_equal(claim(world, "k", "A")->out.now_us, START);
    advance(world, SECOND);
    assert_int_equal(get(world, "k")->out.now_us, START + SECOND);
    assert_int_equal(sweep(world, 1)->out.now_us, START + SECOND);
}

static const struct rule rules[] = {
    {"ops on one id apply in order", ops_on_one_id_apply_in_order, 0},
    {"of many claims in one batch one wins", one_claim_of_many_wins, 0},
    {"the largest batch is taken, and none larger", largest_batch_is_taken, 0},
    {"an empty batch is taken", empty_batch_is_taken, 0},
    {"a batch with an op that is not allowed does nothing", batch_with_a_bad_op_does_nothing, 0},
    {"answers that are none are refused", bad_answers_are_refused, 0},
    {"every op is told the store's clock", clock_is_told, TRAIT_CLOCK},
};

const struct chapter chapter_batch = {"batches", rules, COUNT(rules)};
