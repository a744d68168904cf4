/*
 * Batches in which ids come again: a batch comes to what its ops come to one by one, in whatever
 * order they stand, however many there are, and whatever else stands between them.
 */
#include <stdio.h>
#include <string.h>

#include "contract.h"

#define STEPS  5
#define ORDERS 120 /* of five steps */
#define BODY   2048

/* What happens to one id, by two owners; A's claim is there before. */
enum step { A_COMPLETES, A_FAILS, B_CLAIMS, B_COMPLETES, IS_READ };

static uint8_t body[BODY];

static void step_fill(struct idem_op *op, enum step step, const char *key)
{
    const char *owner = step == B_CLAIMS || step == B_COMPLETES ? "B" : "A";

    memset(op, 0, sizeof *op);
    op->id = id_of(key);
    if (step == B_CLAIMS) {
        op->kind = IDEM_OP_CLAIM;
        op->in.claim.kind = IDEM_KIND_HTTP;
        op->in.claim.owner = owner_of(owner);
        op->in.claim.lease_us = LEASE;
        op->in.claim.ttl_us = TTL;
        op->in.claim.unknown_ttl_us = UNKNOWN_TTL;
    } else if (step == IS_READ) {
        op->kind = IDEM_OP_GET;
    } else {
        op->kind = step == A_FAILS ? IDEM_OP_FAIL : IDEM_OP_COMPLETE;
        op->in.verdict.owner = owner_of(owner);
        op->in.verdict.ttl_us = TTL;
        op->in.verdict.lease_us = LEASE;
        if (op->kind == IDEM_OP_COMPLETE)
            op->in.verdict.answer = (struct idem_answer){
                .status = 200, .body = idem_bytes_make(body, step == A_COMPLETES ? 1 : BODY)};
    }
}

/* The order with this number: what is left is taken by what is left of the number. */
static void order_make(unsigned number, enum step ret_steps[STEPS])
{
    enum step left[STEPS] = {A_COMPLETES, A_FAILS, B_CLAIMS, B_COMPLETES, IS_READ};

    for (unsigned i = 0, count = STEPS; i < STEPS; i++, count--) {
        unsigned taken = number % count;

        number /= count;
        ret_steps[i] = left[taken];
        memmove(&left[taken], &left[taken + 1], (count - taken - 1) * sizeof left[0]);
    }
}

static void apply_all(struct world *world, struct idem_op *ops, size_t count)
{
    struct idem_op *list[IDEM_BATCH_MAX];
    struct idem_message message = {""};

    assert_true(count <= IDEM_BATCH_MAX);
    for (size_t i = 0; i < count; i++)
        list[i] = &ops[i];
    if (idem_store_apply(world->store, list, count, &message))
        fail_msg("a batch of %zu: %s", count, message.text);
}

static void same_outcome(const struct idem_op *batched, const struct idem_op *single)
{
    const struct idem_record *a = &batched->out.found.record, *b = &single->out.found.record;

    assert_string_equal(idem_result_text(batched->result), idem_result_text(single->result));
    assert_int_equal(batched->out.attempt, single->out.attempt);
    assert_int_equal(batched->out.found.memory != NULL, single->out.found.memory != NULL);
    if (!batched->out.found.memory)
        return;
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->attempt, b->attempt);
    assert_memory_equal(a->owner.bytes, b->owner.bytes, IDEM_OWNER_SIZE);
    assert_bytes(a->answer.body, b->answer.body);
}

/* So many orders in one batch, their ids alternating, and one by one under other ids. */
static void orders_compare(struct world *world, unsigned first, unsigned count)
{
    struct idem_op *batch = calloc((size_t)count * STEPS, sizeof *batch);

    assert_non_null(batch);
    for (unsigned order = 0; order < count; order++) {
        enum step steps[STEPS];
        char key[32];

        snprintf(key, sizeof key, "batched %u", first + order);
        expect(claim(world, key, "A"), ACQUIRED);
        order_make(first + order, steps);
        for (unsigned i = 0; i < STEPS; i++)
            step_fill(&batch[i * count + order], steps[i], key); /* ids alternate */
    }
    apply_all(world, batch, (size_t)count * STEPS);
    for (unsigned order = 0; order < count; order++) {
        enum step steps[STEPS];
        char key[32];

        snprintf(key, sizeof key, "single %u", first + order);
        expect(claim(world, key, "A"), ACQUIRED);
        order_make(first + order, steps);
        for (unsigned i = 0; i < STEPS; i++) {
            struct idem_op single;

            step_fill(&single, steps[i], key);
            apply_all(world, &single, 1);
            same_outcome(&batch[i * count + order], &single);
            idem_op_deinit(&single);
        }
    }
    for (unsigned i = 0; i < count * STEPS; i++)
        idem_op_deinit(&batch[i]);
    free(batch);
}

static void every_order_is_kept(void **state)
{
    struct world *world = *state;
    unsigned at_once = IDEM_BATCH_MAX / STEPS;

    memset(body, 'b', sizeof body);
    for (unsigned first = 0; first < ORDERS; first += at_once)
        orders_compare(world, first, ORDERS - first < at_once ? ORDERS - first : at_once);
}

/* One id through its whole life, as often as the largest batch can tell it. */
static void one_id_fills_a_batch(void **state)
{
    static const enum step life[] = {B_CLAIMS, A_FAILS, B_COMPLETES, IS_READ};
    struct world *world = *state;
    struct idem_op *ops = calloc(IDEM_BATCH_MAX, sizeof *ops);

    assert_non_null(ops);
    memset(body, 'b', sizeof body);
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++)
        step_fill(&ops[i], life[i % COUNT(life)], "k");
    apply_all(world, ops, IDEM_BATCH_MAX);
    for (size_t i = 0; i < IDEM_BATCH_MAX; i += COUNT(life)) {
        if (i == 0)
            expect(&ops[i], ACQUIRED);
        else
            expect(&ops[i], ENDED);
        expect(&ops[i + 1], LOST);
        expect(&ops[i + 2], OK);
        expect(&ops[i + 3], FOUND);
        assert_int_equal(ops[i + 3].out.found.record.answer.body.size, BODY);
    }
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++)
        idem_op_deinit(&ops[i]);
    free(ops);
}

/* Claims, completes and reads of as many ids as fit; answers from empty to a page and more. */
static void largest_batch_of_everything(void **state)
{
    struct world *world = *state;
    struct idem_op *ops = calloc(IDEM_BATCH_MAX, sizeof *ops);
    size_t ids = IDEM_BATCH_MAX / 3;

    assert_non_null(ops);
    memset(body, 'b', sizeof body);
    for (size_t i = 0; i < ids; i++) {
        char key[32];

        snprintf(key, sizeof key, "large %zu", i);
        step_fill(&ops[i], B_CLAIMS, key);
        step_fill(&ops[2 * ids - 1 - i], B_COMPLETES, key);
        ops[2 * ids - 1 - i].in.verdict.answer.body.size = i * BODY / ids;
        step_fill(&ops[2 * ids + i], IS_READ, key);
    }
    apply_all(world, ops, 3 * ids);
    for (size_t i = 0; i < ids; i++) {
        expect(&ops[i], ACQUIRED);
        expect(&ops[ids + i], OK);
        expect(&ops[2 * ids + i], FOUND);
        assert_int_equal(ops[2 * ids + i].out.found.record.answer.body.size, i * BODY / ids);
    }
    for (size_t i = 0; i < 3 * ids; i++)
        idem_op_deinit(&ops[i]);
    free(ops);
}

/* Ids that differ in their last bit, or in their first, are two all the same. */
static void neighbours_do_not_meet(void **state)
{
    struct world *world = *state;
    struct idem_op ops[3];

    for (size_t i = 0; i < COUNT(ops); i++)
        step_fill(&ops[i], B_CLAIMS, "k");
    ops[1].id.bytes[IDEM_ID_SIZE - 1] ^= 1;
    ops[2].id.bytes[0] ^= 0x80;
    apply_all(world, ops, COUNT(ops));
    for (size_t i = 0; i < COUNT(ops); i++) {
        expect(&ops[i], ACQUIRED);
        assert_int_equal(ops[i].out.attempt, 1);
    }
}

static const struct rule rules[] = {
    {"a batch comes to what its ops come to one by one, in every order", every_order_is_kept, 0},
    {"one id may fill the largest batch", one_id_fills_a_batch, 0},
    {"the largest batch may hold everything", largest_batch_of_everything, 0},
    {"ids that differ in one bit are two", neighbours_do_not_meet, 0},
};

const struct chapter chapter_order = {"orders", rules, COUNT(rules)};
