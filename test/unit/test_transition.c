/*
 * The transition by itself: the table of allowed moves against a list of its own, arithmetic at the
 * ends of the scale, and a long random walk on which nothing may happen that must never happen.
 */
#include "core/transition.h"

#include <stdio.h>

#include "unit.h"

#define SECOND IDEM_SECOND_US
#define NOW    (INT64_C(1700000000) * SECOND)
#define LEASE  (10 * SECOND)

enum { ABSENT = 0, PROCESSING = 1, COMPLETED = 2, FAILED = 3, UNKNOWN = 4 };

/* The diagram of record.h as a list. */
static const struct {
    enum idem_op_kind op;
    int from, to;
} moves[] = {
    {IDEM_OP_CLAIM, ABSENT, PROCESSING},
    {IDEM_OP_CLAIM, FAILED, PROCESSING},
    {IDEM_OP_CLAIM, UNKNOWN, PROCESSING},
    {IDEM_OP_RENEW, PROCESSING, PROCESSING},
    {IDEM_OP_COMPLETE, PROCESSING, COMPLETED},
    {IDEM_OP_COMPLETE, UNKNOWN, COMPLETED},
    {IDEM_OP_FAIL, ABSENT, FAILED},
    {IDEM_OP_FAIL, PROCESSING, FAILED},
    {IDEM_OP_FAIL, UNKNOWN, FAILED},
    {IDEM_OP_ABANDON, PROCESSING, UNKNOWN},
    {IDEM_OP_ABANDON, UNKNOWN, UNKNOWN},
    {IDEM_OP_RESOLVE, PROCESSING, COMPLETED},
    {IDEM_OP_RESOLVE, COMPLETED, COMPLETED},
    {IDEM_OP_RESOLVE, FAILED, COMPLETED},
    {IDEM_OP_RESOLVE, UNKNOWN, COMPLETED},
    {IDEM_OP_RESOLVE, PROCESSING, FAILED},
    {IDEM_OP_RESOLVE, COMPLETED, FAILED},
    {IDEM_OP_RESOLVE, FAILED, FAILED},
    {IDEM_OP_RESOLVE, UNKNOWN, FAILED},
    {IDEM_OP_FORGET, PROCESSING, ABSENT},
    {IDEM_OP_FORGET, COMPLETED, ABSENT},
    {IDEM_OP_FORGET, FAILED, ABSENT},
    {IDEM_OP_FORGET, UNKNOWN, ABSENT},
};

static bool is_listed(int op, int from, int to)
{
    for (size_t i = 0; i < COUNT(moves); i++)
        if ((int)moves[i].op == op && moves[i].from == from && moves[i].to == to)
            return true;
    return false;
}

static void test_table(void **state)
{
    (void)state;
    for (int op = -1; op <= IDEM_OP_COUNT; op++)
        for (int from = -1; from <= IDEM_STATE_COUNT; from++)
            for (int to = -1; to <= IDEM_STATE_COUNT; to++)
                if (idem_transition_allowed((enum idem_op_kind)op, from, to) !=
                    is_listed(op, from, to))
                    fail_msg("%d: %d to %d", op, from, to);
}

static struct idem_owner owner_of(uint8_t name)
{
    struct idem_owner owner = {{name, 1, 2, 3}};

    return owner;
}

static struct idem_op claim_of(uint8_t owner)
{
    struct idem_op op = {.kind = IDEM_OP_CLAIM};

    op.in.claim.kind = IDEM_KIND_HTTP;
    op.in.claim.key = TEXT("k");
    op.in.claim.fingerprint.algorithm = IDEM_FINGERPRINT_RAW;
    op.in.claim.owner = owner_of(owner);
    op.in.claim.lease_us = LEASE;
    op.in.claim.unknown_ttl_us = 100 * LEASE;
    op.in.claim.ttl_us = 10 * LEASE;
    return op;
}

static struct idem_op verdict_of(enum idem_op_kind kind, uint8_t owner)
{
    struct idem_op op = {.kind = kind};

    op.in.verdict.owner = owner_of(owner);
    op.in.verdict.ttl_us = 10 * LEASE;
    op.in.verdict.lease_us = LEASE;
    if (kind == IDEM_OP_COMPLETE)
        op.in.verdict.answer.status = 200;
    return op;
}

/* A store of one record. */
struct shelf {
    struct idem_record record;
    bool there;
    uint64_t floor; /* the highest fence that was removed */
};

/* Applies to what is there, and takes the change over. */
static enum idem_result step(struct shelf *shelf, struct idem_op *op, int64_t now_us)
{
    struct idem_transition transition;

    idem_transition(op, now_us, shelf->there ? &shelf->record : NULL, shelf->floor, true,
                    &transition);
    if (transition.change == IDEM_CHANGE_PUT) {
        assert_int_equal(transition.created, !shelf->there);
        shelf->record = transition.record;
        shelf->there = true;
    } else if (transition.change == IDEM_CHANGE_DELETE) {
        assert_true(shelf->there);
        shelf->there = false;
        if (shelf->record.fence > shelf->floor)
            shelf->floor = shelf->record.fence;
    }
    return op->result;
}

static void test_fence(void **state)
{
    static const struct {
        uint64_t floor, previous; /* previous 0: nothing there */
        int64_t now_us;
        uint64_t wanted;
    } cases[] = {
        {0, 0, 1000, 1000},       {999, 0, 1000, 1000},  {1000, 0, 1000, 1001},
        {5000, 0, 1000, 5001},    {0, 0, 0, 1},          {7, 2000, 1000, 2001},
        {3000, 2000, 1000, 3001}, {0, 2000, 9000, 9000}, {UINT64_MAX, 0, 1000, UINT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct idem_record previous = {.kind = IDEM_KIND_HTTP,
                                       .state = IDEM_STATE_FAILED,
                                       .attempt = 1,
                                       .fence = cases[i].previous,
                                       .expires_us = IDEM_NEVER_US};
        struct idem_transition transition;
        struct idem_op op = claim_of(1);

        idem_transition(&op, cases[i].now_us, cases[i].previous ? &previous : NULL, cases[i].floor,
                        true, &transition);
        assert_int_equal(op.result, IDEM_RESULT_ACQUIRED);
        assert_true(op.out.fence == cases[i].wanted);
        assert_true(transition.record.fence == cases[i].wanted);
    }
}

static void test_expired_fence_is_respected(void **state)
{
    struct idem_record expired = {.kind = IDEM_KIND_HTTP,
                                  .state = IDEM_STATE_COMPLETED,
                                  .attempt = 7,
                                  .fence = 3 * (uint64_t)NOW,
                                  .expires_us = NOW};
    struct idem_transition transition;
    struct idem_op op = claim_of(1);

    (void)state;
    idem_transition(&op, NOW, &expired, 0, true, &transition);
    assert_int_equal(op.result, IDEM_RESULT_ACQUIRED);
    assert_int_equal(op.out.attempt, 1);
    assert_true(op.out.fence == 3 * (uint64_t)NOW + 1);
    assert_false(transition.created);
}

static void test_times_saturate(void **state)
{
    struct shelf shelf = {0};
    struct idem_op op = claim_of(1);

    (void)state;
    op.in.claim.unknown_ttl_us = IDEM_NEVER_US;
    step(&shelf, &op, NOW);
    assert_true(shelf.record.expires_us == IDEM_NEVER_US);
    assert_true(shelf.record.lease_until_us == NOW + LEASE);
    op = verdict_of(IDEM_OP_COMPLETE, 1);
    op.in.verdict.ttl_us = IDEM_NEVER_US - NOW;
    step(&shelf, &op, NOW);
    assert_true(shelf.record.expires_us == IDEM_NEVER_US);
    op = verdict_of(IDEM_OP_COMPLETE, 1);
    shelf.there = false;
    op = claim_of(1);
    step(&shelf, &op, NOW);
    op = verdict_of(IDEM_OP_COMPLETE, 1);
    op.in.verdict.ttl_us = IDEM_NEVER_US - NOW - 1;
    step(&shelf, &op, NOW);
    assert_true(shelf.record.expires_us == IDEM_NEVER_US - 1);
}

static void test_attempts_saturate(void **state)
{
    struct shelf shelf = {0};
    struct idem_op op = claim_of(1);

    (void)state;
    step(&shelf, &op, NOW);
    op = verdict_of(IDEM_OP_FAIL, 1);
    step(&shelf, &op, NOW);
    shelf.record.attempt = UINT32_MAX;
    op = claim_of(2);
    assert_int_equal(step(&shelf, &op, NOW), IDEM_RESULT_ACQUIRED);
    assert_int_equal(shelf.record.attempt, UINT32_MAX);
}

/* What is there when a copy is put: a record of owner 1 with fence 50, updated a second ago. */
static struct idem_record record_put_over(enum idem_state state, int64_t lease_until_us)
{
    struct idem_record record = {
        .kind = IDEM_KIND_HTTP,
        .state = state,
        .owner = owner_of(1),
        .fence = 50,
        .attempt = 1,
        .lease_us = LEASE,
        .lease_until_us = lease_until_us,
        .updated_us = NOW - SECOND,
        .expires_us = NOW + LEASE,
    };

    record.answer.status = state == IDEM_STATE_COMPLETED ? 200 : 0;
    return record;
}

static void test_put(void **state)
{
    enum { OLD = -1, SAME = 0, NEW = 1 };
    static const struct {
        int there; /* its state, or ABSENT */
        bool lapsed;
        int owner, fence, updated; /* of the copy, beside it */
        enum idem_result wanted;
        bool written;
    } cases[] = {
        {ABSENT, false, 1, SAME, SAME, IDEM_RESULT_OK, true},
        {PROCESSING, false, 1, SAME, SAME, IDEM_RESULT_OK, false}, /* the very same */
        {COMPLETED, false, 1, SAME, SAME, IDEM_RESULT_OK, false},
        {PROCESSING, false, 1, SAME, NEW, IDEM_RESULT_OK, true}, /* what it became since */
        {PROCESSING, false, 2, SAME, NEW, IDEM_RESULT_OK, true}, /* a person settled it */
        {COMPLETED, false, 2, SAME, NEW, IDEM_RESULT_OK, true},
        {PROCESSING, false, 1, SAME, OLD, IDEM_RESULT_CHANGED, false},
        {COMPLETED, false, 1, SAME, OLD, IDEM_RESULT_CHANGED, false},
        {PROCESSING, false, 2, SAME, SAME, IDEM_RESULT_CHANGED, false},
        {FAILED, false, 2, NEW, NEW, IDEM_RESULT_OK, true}, /* it was taken up there */
        {FAILED, false, 2, NEW, OLD, IDEM_RESULT_OK, true},
        {UNKNOWN, false, 2, NEW, NEW, IDEM_RESULT_OK, true},
        {PROCESSING, true, 2, NEW, NEW, IDEM_RESULT_OK, true},
        {PROCESSING, false, 2, NEW, NEW, IDEM_RESULT_CHANGED, false}, /* it runs */
        {COMPLETED, false, 2, NEW, NEW, IDEM_RESULT_CHANGED, false},  /* it has an answer */
        {FAILED, false, 2, OLD, NEW, IDEM_RESULT_CHANGED, false},
        {UNKNOWN, false, 1, OLD, NEW, IDEM_RESULT_CHANGED, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct idem_record there =
            record_put_over((enum idem_state)cases[i].there, cases[i].lapsed ? NOW : NOW + LEASE);
        struct idem_op op = {.kind = IDEM_OP_PUT};
        struct idem_transition transition;

        op.in.put.record = record_put_over(IDEM_STATE_COMPLETED, NOW);
        op.in.put.record.owner = owner_of((uint8_t)cases[i].owner);
        op.in.put.record.fence += (uint64_t)(int64_t)cases[i].fence;
        op.in.put.record.updated_us += cases[i].updated;
        idem_transition(&op, NOW, cases[i].there ? &there : NULL, 0, true, &transition);
        if (op.result != cases[i].wanted ||
            (transition.change == IDEM_CHANGE_PUT) != cases[i].written)
            fail_msg("case %zu: %s", i, idem_result_text(op.result));
        if (cases[i].written)
            assert_int_equal(transition.record.fence, op.in.put.record.fence);
    }
}

static void test_put_over_expired(void **state)
{
    struct idem_record there = record_put_over(IDEM_STATE_COMPLETED, NOW);
    struct idem_op op = {.kind = IDEM_OP_PUT};
    struct idem_transition transition;

    (void)state;
    op.in.put.record = record_put_over(IDEM_STATE_PROCESSING, NOW + LEASE);
    op.in.put.record.fence = 3;
    idem_transition(&op, there.expires_us - 1, &there, 0, true, &transition);
    assert_int_equal(op.result, IDEM_RESULT_CHANGED);
    idem_transition(&op, there.expires_us, &there, 0, false, &transition);
    assert_int_equal(op.result, IDEM_RESULT_FULL);
    assert_int_equal(transition.change, IDEM_CHANGE_NONE);
    idem_transition(&op, there.expires_us, &there, 0, true, &transition);
    assert_int_equal(op.result, IDEM_RESULT_OK);
    assert_int_equal(transition.change, IDEM_CHANGE_PUT);
    assert_false(transition.created); /* something is there that must make way */
}

/* Without room: whatever would start an execution is refused, all else goes on. */
static void test_no_room(void **state)
{
    struct shelf shelf = {0};
    struct idem_transition transition;
    struct idem_op op = claim_of(1);

    (void)state;
    idem_transition(&op, NOW, NULL, 0, false, &transition);
    assert_int_equal(op.result, IDEM_RESULT_FULL);
    assert_int_equal(transition.change, IDEM_CHANGE_NONE);
    op = claim_of(1);
    step(&shelf, &op, NOW);
    op = claim_of(2);
    idem_transition(&op, NOW, &shelf.record, 0, false, &transition);
    assert_int_equal(op.result, IDEM_RESULT_IN_PROGRESS);
    op = claim_of(1);
    idem_transition(&op, NOW, &shelf.record, 0, false, &transition);
    assert_int_equal(op.result, IDEM_RESULT_ACQUIRED);
    assert_int_equal(transition.change, IDEM_CHANGE_NONE);
    op = verdict_of(IDEM_OP_COMPLETE, 1);
    idem_transition(&op, NOW, &shelf.record, 0, false, &transition);
    assert_int_equal(op.result, IDEM_RESULT_OK);
    assert_int_equal(transition.change, IDEM_CHANGE_PUT);
}

/* A generator of its own, so that a failing walk can be walked again. */
static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static struct idem_op random_op(uint32_t *seed, const struct shelf *shelf)
{
    static const enum idem_op_kind kinds[] = {
        IDEM_OP_CLAIM, IDEM_OP_CLAIM,   IDEM_OP_CLAIM, IDEM_OP_RENEW,   IDEM_OP_COMPLETE,
        IDEM_OP_FAIL,  IDEM_OP_ABANDON, IDEM_OP_GET,   IDEM_OP_RESOLVE, IDEM_OP_FORGET};
    enum idem_op_kind kind = kinds[next_random(seed) % COUNT(kinds)];
    uint8_t owner = (uint8_t)(1 + next_random(seed) % 6);
    struct idem_op op = {.kind = kind};

    if (kind == IDEM_OP_CLAIM) {
        op = claim_of(owner);
        op.in.claim.take = (enum idem_take_unknown)(next_random(seed) % 3);
        op.in.claim.take_fence = next_random(seed) % 2 ? shelf->record.fence : 17;
    } else if (kind == IDEM_OP_RENEW) {
        op.in.renew.owner = owner_of(owner);
        op.in.renew.lease_us = (int64_t)(next_random(seed) % (2 * LEASE));
        op.in.renew.unknown_ttl_us = 100 * LEASE;
    } else if (kind == IDEM_OP_RESOLVE) {
        op.in.resolve.fence = shelf->record.fence;
        op.in.resolve.updated_us = shelf->record.updated_us;
        op.in.resolve.completed = next_random(seed) % 2;
        op.in.resolve.ttl_us = 10 * LEASE;
        op.in.resolve.owner = owner_of((uint8_t)(100 + next_random(seed) % 100));
        op.in.resolve.force = next_random(seed) % 8 == 0;
    } else if (kind == IDEM_OP_FORGET) {
        op.in.forget.force = next_random(seed) % 8 == 0;
    } else if (kind != IDEM_OP_GET) {
        op = verdict_of(kind, owner);
    }
    return op;
}

static void walk_check(const struct idem_op *op, const struct shelf *old, const struct shelf *new,
                       uint64_t fence_max, int64_t now_us)
{
    const struct idem_record *before = &old->record, *after = &new->record;
    bool live = old->there && !idem_record_expired_at(before, now_us);
    int from = live ? (int)idem_record_state_at(before, now_us) : ABSENT;
    bool repeated = from == PROCESSING && idem_owner_equal(&before->owner, &op->in.claim.owner);

    if (op->kind == IDEM_OP_CLAIM && op->result == IDEM_RESULT_ACQUIRED) {
        assert_true(new->there && after->state == IDEM_STATE_PROCESSING);
        assert_true(from == ABSENT || from == FAILED || from == UNKNOWN || repeated);
        assert_true(from != UNKNOWN || op->in.claim.take != IDEM_TAKE_NONE);
        assert_true(repeated ? after->fence == before->fence : after->fence > fence_max);
    }
    if (op->kind == IDEM_OP_CLAIM && op->result == IDEM_RESULT_ENDED)
        assert_true(live && idem_owner_equal(&before->owner, &op->in.claim.owner) && !repeated);
    if (from == COMPLETED && op->kind != IDEM_OP_RESOLVE && op->kind != IDEM_OP_FORGET)
        assert_true(new->there && after->state == IDEM_STATE_COMPLETED &&
                    after->updated_us == before->updated_us);
    if (op->kind == IDEM_OP_RENEW && op->result == IDEM_RESULT_OK)
        assert_true(from == PROCESSING && after->lease_until_us >= before->lease_until_us &&
                    !idem_record_lapsed_at(after, now_us));
    if (op->kind == IDEM_OP_GET)
        assert_int_equal(op->result, live ? IDEM_RESULT_FOUND : IDEM_RESULT_ABSENT);
}

static void walk(uint32_t seed)
{
    struct shelf shelf = {0};
    int64_t now_us = NOW;
    uint64_t fence_max = 0;

    for (int i = 0; i < 20000; i++) {
        struct idem_op op = random_op(&seed, &shelf);
        struct shelf before = shelf;

        now_us += next_random(&seed) % 16 == 0 ? LEASE : (int64_t)(next_random(&seed) % SECOND);
        if (next_random(&seed) % 64 == 0)
            now_us -= LEASE / 2;
        step(&shelf, &op, now_us);
        walk_check(&op, &before, &shelf, fence_max, now_us);
        if (shelf.there && shelf.record.fence > fence_max)
            fence_max = shelf.record.fence;
    }
}

static void test_walks(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        print_message("walk %u\n", seed);
        walk(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_expired_fence_is_respected),
        cmocka_unit_test(test_times_saturate),
        cmocka_unit_test(test_attempts_saturate),
        cmocka_unit_test(test_put),
        cmocka_unit_test(test_put_over_expired),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_walks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
