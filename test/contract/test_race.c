/*
 * Races: many who want the same of one id at once, each by a handle of its own: one of them gets
 * it, and the others are told so.
 */
#include <stdio.h>
#include <string.h>

#include "field.h"

#define ROUNDS 15
#define TURNS  40 /* of the clock, while others meet */

/* Whoever had the record before it was taken has nothing more to say. */
static void is_fenced_off(struct world *world, const char *key, const char *owner)
{
    expect(complete(world, key, owner, "late"), LOST);
    expect(fail_claim(world, key, owner), LOST);
    expect(abandon(world, key, owner), LOST);
    expect(renew(world, key, owner, LEASE), LOST);
    expect(claim(world, key, owner), IN_PROGRESS);
}

/* Of these claims exactly one is acquired; the others are told that it runs. Returns the winner. */
static struct idem_op *sole_winner(struct field *field, size_t count)
{
    struct idem_op *winner = NULL;

    for (size_t i = 0; i < count; i++) {
        if (field->ops[i].result != IDEM_RESULT_ACQUIRED)
            continue;
        assert_null(winner);
        winner = &field->ops[i];
    }
    assert_non_null(winner);
    for (size_t i = 0; i < count; i++) {
        if (&field->ops[i] == winner)
            continue;
        expect(&field->ops[i], IN_PROGRESS);
        assert_int_equal(field->ops[i].out.fence, winner->out.fence);
        assert_int_equal(field->ops[i].out.attempt, winner->out.attempt);
    }
    return winner;
}

/* Enters claims by owners that were never seen before. */
static void enter_claimants(struct field *field, const char *key, size_t count,
                            enum idem_take_unknown take, uint64_t fence)
{
    static unsigned owners;
    char name[16];

    while (field->count < count) {
        snprintf(name, sizeof name, "racer %u", owners++);
        enter_claim(field, key, name, take, fence);
    }
}

static struct idem_op *take_over(struct field *field, const char *key, enum idem_take_unknown take,
                                 uint64_t fence)
{
    struct idem_op *winner;

    field_clear(field);
    enter_claimants(field, key, CREW_MAX, take, fence);
    field_run(field);
    winner = sole_winner(field, CREW_MAX);
    assert_true(winner->out.fence > fence);
    return winner;
}

static void one_claimant_takes_an_abandoned(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = race_key(round);
        uint64_t fence = claim(world, key, "A")->out.fence;

        expect(abandon(world, key, "A"), OK);
        assert_int_equal(take_over(field, key, IDEM_TAKE_FENCE, fence)->out.attempt, 2);
        is_fenced_off(world, key, "A");
    }
    field_close(field);
}

static void one_claimant_takes_a_lapsed(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = race_key(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        enum idem_take_unknown take = round % 2 ? IDEM_TAKE_ANY : IDEM_TAKE_FENCE;

        advance(world, LEASE);
        assert_int_equal(take_over(field, key, take, fence)->out.attempt, 2);
        is_fenced_off(world, key, "A");
    }
    field_close(field);
}

/* One id is taken over again and again; a fence that was seen once is good for one take-over. */
static void fence_grows_with_each_take_over(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);
    uint64_t fence = claim(world, "k", "A")->out.fence;

    for (unsigned round = 0; round < ROUNDS; round++) {
        const struct idem_op *winner;
        struct idem_op *op;

        advance(world, LEASE);
        winner = take_over(field, "k", IDEM_TAKE_FENCE, fence);
        assert_int_equal(winner->out.attempt, 2 + round);
        advance(world, LEASE);
        op = claim_taking(world, "k", "too late", IDEM_TAKE_FENCE, fence);
        expect(op, UNKNOWN);
        assert_int_equal(op->out.fence, winner->out.fence);
        fence = winner->out.fence;
    }
    field_close(field);
}

static void one_claimant_takes_a_failed(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = race_key(round);
        uint64_t fence = claim(world, key, "A")->out.fence;

        expect(fail_claim(world, key, "A"), OK);
        assert_int_equal(take_over(field, key, IDEM_TAKE_NONE, fence)->out.attempt, 2);
        is_fenced_off(world, key, "A");
    }
    field_close(field);
}

/* Sweepers meet claimants on an id that has expired: what was claimed anew is never swept. */
static void sweepers_leave_what_is_claimed_anew(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = race_key(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        struct idem_op *winner;

        complete(world, key, "A", "old");
        advance(world, TTL);
        field_clear(field);
        enter_claimants(field, key, CREW_MAX / 2, IDEM_TAKE_NONE, 0);
        while (field->count < CREW_MAX)
            enter(field, op_make(world, IDEM_OP_SWEEP, NULL))->in.sweep.limit = 100;
        field_run(field);
        winner = sole_winner(field, CREW_MAX / 2);
        assert_int_equal(winner->out.attempt, 1);
        assert_true(winner->out.fence > fence);
        assert_int_equal(record_of(world, key)->fence, winner->out.fence);
    }
    field_close(field);
}

/* The same claim by many handles at once: the reply to the first was lost, and it was repeated. */
static void repeated_claim_meets_itself(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        field_clear(field);
        for (unsigned i = 0; i < CREW_MAX; i++)
            enter_claim(field, race_key(round), "A", IDEM_TAKE_NONE, 0);
        field_run(field);
        for (unsigned i = 0; i < CREW_MAX; i++) {
            expect(&field->ops[i], ACQUIRED);
            assert_int_equal(field->ops[i].out.attempt, 1);
            assert_int_equal(field->ops[i].out.fence, field->ops[0].out.fence);
        }
    }
    field_close(field);
}

/* A renew that was told `ok` holds: whoever claims while the clock passes the old end is refused.
 */
struct turn {
    struct world *world;
    struct idem_op *renew, *claim;
};

static void turn_work(struct member *member, void *context)
{
    struct turn *turn = context;

    if (member->number == 0)
        advance(turn->world, LEASE);
    else if (member->number == 1)
        member_apply(member, turn->renew, 1);
    else if (member->number == 2)
        member_apply(member, turn->claim, 1);
}

static void renew_meets_take_over(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < TURNS; round++) {
        const char *key = race_key(round);
        struct turn turn = {.world = world, .renew = &field->ops[0], .claim = &field->ops[1]};

        claim(world, key, "A");
        field_clear(field);
        enter_renew(field, key, "A", 3 * LEASE);
        enter_claim(field, key, "B", IDEM_TAKE_ANY, 0);
        crew_run(&field->crew, turn_work, &turn);
        if (turn.claim->result == IDEM_RESULT_ACQUIRED) {
            expect(turn.renew, LOST);
            expect(complete(world, key, "A", "late"), LOST);
        } else {
            expect(turn.claim, IN_PROGRESS);
            expect(complete(world, key, "A", "A"), OK); /* late or not, it is its own */
        }
    }
    field_close(field);
}

/* An ambiguous claim, told in order: B runs meanwhile, and nothing of A's that is late hurts it. */
static void late_words_of_an_ambiguous_claim(void **state)
{
    struct world *world = *state;

    expect(claim(world, "k", "A"), ACQUIRED); /* applied; the reply never came back */
    expect(fail_claim(world, "k", "A"), OK);
    expect(claim(world, "k", "A"), ENDED);
    expect(claim(world, "k", "B"), ACQUIRED);
    expect(claim(world, "k", "A"), IN_PROGRESS);
    expect(fail_claim(world, "k", "A"), LOST);
    expect(renew(world, "k", "B", LEASE), OK);
    expect(complete(world, "k", "B", "B's"), OK);
    expect(claim(world, "k", "A"), COMPLETED);
    expect(fail_claim(world, "k", "A"), LOST);
    assert_bytes(record_of(world, "k")->answer.body, text("B's"));
}

static const struct rule rules[] = {
    {"of many that take an abandoned record over one wins, and the old owner is fenced off",
     one_claimant_takes_an_abandoned, 0},
    {"of many that take a lapsed record over one wins, and the old owner is fenced off",
     one_claimant_takes_a_lapsed, TRAIT_CLOCK},
    {"a fence that was seen is good for one take-over, and grows with each",
     fence_grows_with_each_take_over, TRAIT_CLOCK},
    {"of many that take a failed record one wins", one_claimant_takes_a_failed, 0},
    {"sweepers leave what is claimed anew", sweepers_leave_what_is_claimed_anew, TRAIT_CLOCK},
    {"a claim that is repeated while it runs is one claim", repeated_claim_meets_itself, 0},
    {"a renew that is ok holds against every take-over", renew_meets_take_over, TRAIT_CLOCK},
    {"nothing late of a claim that was failed hurts who runs now", late_words_of_an_ambiguous_claim,
     0},
};

const struct chapter chapter_race = {"races", rules, COUNT(rules)};
