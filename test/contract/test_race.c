/*
 * Races: ops that meet on one id, each by a handle of its own. Whoever comes first, what they come
 * to together must be something that one order of them explains; each rule names what it is.
 */
#include <stdio.h>
#include <string.h>

#include "crew.h"

#define RACERS 16
#define ROUNDS 15

static const char *key_of(unsigned round)
{
    static char keys[4][32];
    static unsigned next;
    char *key = keys[next++ % COUNT(keys)];

    snprintf(key, sizeof keys[0], "race %u", round);
    return key;
}

static const char *name_of(unsigned number)
{
    static char names[RACERS + 1][32];
    char *name = names[number % COUNT(names)];

    snprintf(name, sizeof names[0], "racer %u", number);
    return name;
}

/* The ops of one race; what they hold is released by the next race and at the end. */
struct field {
    struct crew crew;
    struct idem_op ops[RACERS];
    size_t count;
};

static void field_clear(struct field *field)
{
    for (size_t i = 0; i < field->count; i++)
        idem_op_deinit(&field->ops[i]);
    field->count = 0;
}

/* Puts an op into the field as the world's helpers make it. */
static struct idem_op *enter(struct field *field, const struct idem_op *op)
{
    struct idem_op *entered = &field->ops[field->count++];

    *entered = *op;
    return entered;
}

static struct idem_op *enter_claim(struct field *field, const char *key, const char *owner,
                                   enum idem_take_unknown take, uint64_t fence)
{
    struct idem_op *op = claim_make(field->crew.world, key, owner);

    op->in.claim.take = take;
    op->in.claim.take_fence = fence;
    return enter(field, op);
}

static struct idem_op *enter_verdict(struct field *field, enum idem_op_kind kind, const char *key,
                                     const char *owner)
{
    struct idem_op *op = verdict_make(field->crew.world, kind, key, owner);

    if (kind == IDEM_OP_COMPLETE)
        op->in.verdict.answer = answer_of(owner);
    return enter(field, op);
}

static void field_run(struct field *field)
{
    crew_race(&field->crew, field->ops, field->count);
}

static struct field *field_open(struct world *world)
{
    static struct field field;

    memset(&field, 0, sizeof field);
    crew_open(&field.crew, world, RACERS);
    return &field;
}

static void field_close(struct field *field)
{
    field_clear(field);
    crew_close(&field->crew);
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

/* All claim the id at once, naming the fence that an `unknown` told; no owner is used twice. */
static struct idem_op *take_over(struct field *field, const char *key, enum idem_take_unknown take,
                                 uint64_t fence)
{
    static unsigned owners;

    field_clear(field);
    for (unsigned i = 0; i < RACERS; i++)
        enter_claim(field, key, name_of(owners++), take, fence);
    field_run(field);
    return sole_winner(field, RACERS);
}

/* Whoever had the record before it was taken has nothing more to say. */
static void is_fenced_off(struct world *world, const char *key, const char *owner)
{
    expect(complete(world, key, owner, "late"), LOST);
    expect(fail_claim(world, key, owner), LOST);
    expect(abandon(world, key, owner), LOST);
    expect(renew(world, key, owner, LEASE), LOST);
    expect(claim(world, key, owner), IN_PROGRESS);
}

static void one_claimant_takes_an_abandoned(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        struct idem_op *winner;

        expect(abandon(world, key, "A"), OK);
        winner = take_over(field, key, IDEM_TAKE_FENCE, fence);
        assert_int_equal(winner->out.attempt, 2);
        assert_true(winner->out.fence > fence);
        is_fenced_off(world, key, "A");
    }
    field_close(field);
}

static void one_claimant_takes_a_lapsed(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        struct idem_op *winner;

        advance(world, LEASE);
        winner = take_over(field, key, round % 2 ? IDEM_TAKE_ANY : IDEM_TAKE_FENCE, fence);
        assert_int_equal(winner->out.attempt, 2);
        assert_true(winner->out.fence > fence);
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
        assert_true(winner->out.fence > fence);
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
        const char *key = key_of(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        struct idem_op *winner;

        expect(fail_claim(world, key, "A"), OK);
        winner = take_over(field, key, IDEM_TAKE_NONE, 0);
        assert_int_equal(winner->out.attempt, 2);
        assert_true(winner->out.fence > fence);
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
        const char *key = key_of(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        struct idem_op *winner;

        complete(world, key, "A", "old");
        advance(world, TTL);
        field_clear(field);
        for (unsigned i = 0; i < RACERS / 2; i++)
            enter_claim(field, key, name_of(i), IDEM_TAKE_NONE, 0);
        while (field->count < RACERS) {
            struct idem_op *op = op_make(world, IDEM_OP_SWEEP, NULL);

            op->in.sweep.limit = 100;
            enter(field, op);
        }
        field_run(field);
        winner = sole_winner(field, RACERS / 2);
        assert_int_equal(winner->out.attempt, 1);
        assert_true(winner->out.fence > fence);
        assert_int_equal(record_of(world, key)->fence, winner->out.fence);
    }
    field_close(field);
}

/* The late owner's complete meets a take-over: one of them has the record, and the other is told.
 */
static void late_complete_meets_take_over(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        struct idem_op *late, *taker;

        abandon(world, key, "A");
        field_clear(field);
        late = enter_verdict(field, IDEM_OP_COMPLETE, key, "A");
        taker = enter_claim(field, key, "B", IDEM_TAKE_FENCE, fence);
        field_run(field);
        if (late->result == IDEM_RESULT_OK) {
            expect(taker, COMPLETED);
            assert_bytes(taker->out.found.record.answer.body, text("A"));
            assert_bytes(record_of(world, key)->answer.body, text("A"));
        } else {
            expect(late, LOST);
            expect(taker, ACQUIRED);
            is_fenced_off(world, key, "A");
            expect(complete(world, key, "B", "B"), OK);
        }
    }
    field_close(field);
}

/* An owner that speaks twice at once, by a retry in the background: the first of them stands. */
static void verdicts_of_one_owner_meet(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);
        struct idem_op *done, *failed, *left;
        const struct idem_record *record;

        claim(world, key, "A");
        field_clear(field);
        done = enter_verdict(field, IDEM_OP_COMPLETE, key, "A");
        failed = enter_verdict(field, IDEM_OP_FAIL, key, "A");
        left = enter_verdict(field, IDEM_OP_ABANDON, key, "A");
        field_run(field);
        record = record_of(world, key);
        assert_true(left->result == IDEM_RESULT_OK || left->result == IDEM_RESULT_LOST);
        if (record->state == IDEM_STATE_COMPLETED) {
            expect(done, OK);
            expect(failed, LOST);
        } else {
            assert_int_equal(record->state, IDEM_STATE_FAILED);
            expect(failed, OK);
            expect(done, LOST);
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

    for (unsigned round = 0; round < 2 * ROUNDS; round++) {
        const char *key = key_of(round);
        struct turn turn = {.world = world};
        struct idem_op *op;

        claim(world, key, "A");
        field_clear(field);
        op = op_make(world, IDEM_OP_RENEW, key);
        op->in.renew.owner = owner_of("A");
        op->in.renew.lease_us = 3 * LEASE;
        op->in.renew.unknown_ttl_us = UNKNOWN_TTL;
        turn.renew = enter(field, op);
        turn.claim = enter_claim(field, key, "B", IDEM_TAKE_ANY, 0);
        crew_run(&field->crew, turn_work, &turn);
        if (turn.claim->result == IDEM_RESULT_ACQUIRED) {
            expect(turn.renew, LOST);
            is_fenced_off(world, key, "A");
        } else {
            expect(turn.claim, IN_PROGRESS);
            expect(complete(world, key, "A", "A"), OK); /* late or not, it is its own */
        }
    }
    field_close(field);
}

/* A claim whose reply was lost meets the fail that is to undo it, and its own repetition. */
static void ambiguous_claim_meets_its_fail(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);
        struct idem_op *first, *again, *fail;

        field_clear(field);
        first = enter_claim(field, key, "A", IDEM_TAKE_NONE, 0);
        again = enter_claim(field, key, "A", IDEM_TAKE_NONE, 0);
        fail = enter_verdict(field, IDEM_OP_FAIL, key, "A");
        field_run(field);
        expect(fail, OK);
        if (first->result == IDEM_RESULT_ACQUIRED && again->result == IDEM_RESULT_ACQUIRED)
            assert_int_equal(first->out.fence, again->out.fence);
        assert_true(first->result == IDEM_RESULT_ACQUIRED || first->result == IDEM_RESULT_ENDED);
        assert_true(again->result == IDEM_RESULT_ACQUIRED || again->result == IDEM_RESULT_ENDED);
        assert_int_equal(record_of(world, key)->state, IDEM_STATE_FAILED);
        expect(claim(world, key, "A"), ENDED);
        expect(claim(world, key, "B"), ACQUIRED);
    }
    field_close(field);
}

/* The same story, told in order: B runs meanwhile, and nothing of A's that comes late hurts it. */
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

/* The same claim by two handles at once: the reply to the first was lost, and it was repeated. */
static void repeated_claim_meets_itself(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);

        field_clear(field);
        for (unsigned i = 0; i < RACERS; i++)
            enter_claim(field, key, "A", IDEM_TAKE_NONE, 0);
        field_run(field);
        for (unsigned i = 0; i < RACERS; i++) {
            expect(&field->ops[i], ACQUIRED);
            assert_int_equal(field->ops[i].out.attempt, 1);
            assert_int_equal(field->ops[i].out.fence, field->ops[0].out.fence);
        }
    }
    field_close(field);
}

/* Two people and the late owner settle one unknown: one of them does. */
static void people_meet_the_late_owner(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);
        struct idem_op *dana, *eli, *late, *op;
        size_t settled;

        claim(world, key, "A");
        abandon(world, key, "A");
        field_clear(field);
        op = resolve_make(world, key);
        dana = enter(field, op);
        dana->in.resolve.owner = owner_of("dana");
        eli = enter(field, op);
        eli->in.resolve.owner = owner_of("eli");
        eli->in.resolve.completed = true;
        late = enter_verdict(field, IDEM_OP_COMPLETE, key, "A");
        advance(world, 1); /* at the very same instant a change would be told as `refused` */
        field_run(field);
        settled = (dana->result == IDEM_RESULT_OK) + (eli->result == IDEM_RESULT_OK) +
                  (late->result == IDEM_RESULT_OK);
        assert_int_equal(settled, 1);
        if (dana->result != IDEM_RESULT_OK)
            expect(dana, CHANGED);
        if (eli->result != IDEM_RESULT_OK)
            expect(eli, CHANGED);
        if (late->result != IDEM_RESULT_OK)
            expect(late, LOST);
        assert_int_equal(record_of(world, key)->state,
                         dana->result == IDEM_RESULT_OK ? IDEM_STATE_FAILED : IDEM_STATE_COMPLETED);
    }
    field_close(field);
}

/* Forget meets a take-over: forgotten first, it is a new key; taken first, it runs and stays. */
static void forget_meets_take_over(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        struct idem_op *gone, *taker;

        abandon(world, key, "A");
        field_clear(field);
        gone = enter(field, op_make(world, IDEM_OP_FORGET, key));
        taker = enter_claim(field, key, "B", IDEM_TAKE_FENCE, fence);
        field_run(field);
        expect(taker, ACQUIRED);
        assert_true(taker->out.fence > fence);
        if (gone->result == IDEM_RESULT_OK)
            assert_int_equal(taker->out.attempt, 1);
        else
            expect(gone, REFUSED);
        assert_int_equal(record_of(world, key)->fence, taker->out.fence);
    }
    field_close(field);
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
    {"a late complete and a take-over: one of them has the record", late_complete_meets_take_over,
     0},
    {"of an owner's verdicts that meet the first stands", verdicts_of_one_owner_meet, 0},
    {"a renew that is ok holds against every take-over", renew_meets_take_over, TRAIT_CLOCK},
    {"a claim, its repetition and its fail may come in any order", ambiguous_claim_meets_its_fail,
     0},
    {"nothing late of a claim that was failed hurts who runs now", late_words_of_an_ambiguous_claim,
     0},
    {"a claim that is repeated while it runs is one claim", repeated_claim_meets_itself, 0},
    {"of people and a late owner who settle one unknown one does", people_meet_the_late_owner, 0},
    {"a forget and a take-over never leave a claim without its record", forget_meets_take_over, 0},
};

const struct chapter chapter_race = {"races", rules, COUNT(rules)};
