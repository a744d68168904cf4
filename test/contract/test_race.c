/*
 * Races: ops that meet on one id, each by a handle of its own. Whoever comes first, what they come
 * to together must be something that one order of them explains; each rule names what it is.
 *
 * A story is such a meeting. It is told on several ids at once, again and again, and each time one
 * of those who meet begins a little later, so that they meet at every point of each other's way.
 */
#include <stdio.h>
#include <string.h>

#include "crew.h"

#define RACERS  16
#define ROUNDS  15
#define TELLS   40 /* of a story */
#define STEP_US 20 /* by which its delays grow */

/* The ops of one race; what they hold is released by the next race and at the end. */
struct field {
    struct crew crew;
    struct idem_op ops[RACERS];
    unsigned delays_us[RACERS];
    size_t count;
};

static const char *key_of(unsigned number)
{
    static char keys[2 * RACERS][32];
    static unsigned next;
    char *key = keys[next++ % COUNT(keys)];

    snprintf(key, sizeof keys[0], "race %u", number);
    return key;
}

static struct field *field_open(struct world *world)
{
    static struct field field;

    memset(&field, 0, sizeof field);
    crew_open(&field.crew, world, RACERS);
    return &field;
}

static void field_clear(struct field *field)
{
    for (size_t i = 0; i < field->count; i++)
        idem_op_deinit(&field->ops[i]);
    field->count = 0;
    memset(field->delays_us, 0, sizeof field->delays_us);
}

static void field_close(struct field *field)
{
    field_clear(field);
    crew_close(&field->crew);
}

static void field_run(struct field *field)
{
    crew_race(&field->crew, field->ops, field->delays_us, field->count);
}

/* Puts an op into the field as the world's helpers make it. */
static struct idem_op *enter(struct field *field, const struct idem_op *op)
{
    struct idem_op *entered = &field->ops[field->count++];

    *entered = *op;
    return entered;
}

static void enter_claim(struct field *field, const char *key, const char *owner,
                        enum idem_take_unknown take, uint64_t fence)
{
    struct idem_op *op = claim_make(field->crew.world, key, owner);

    op->in.claim.take = take;
    op->in.claim.take_fence = fence;
    enter(field, op);
}

static void enter_verdict(struct field *field, enum idem_op_kind kind, const char *key,
                          const char *owner)
{
    struct idem_op *op = verdict_make(field->crew.world, kind, key, owner);

    if (kind == IDEM_OP_COMPLETE)
        op->in.verdict.answer = answer_of(owner);
    enter(field, op);
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

/* --- many claimants ------------------------------------------------------------------------- */

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
    enter_claimants(field, key, RACERS, take, fence);
    field_run(field);
    winner = sole_winner(field, RACERS);
    assert_true(winner->out.fence > fence);
    return winner;
}

static void one_claimant_takes_an_abandoned(void **state)
{
    struct world *world = *state;
    struct field *field = field_open(world);

    for (unsigned round = 0; round < ROUNDS; round++) {
        const char *key = key_of(round);
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
        const char *key = key_of(round);
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
        const char *key = key_of(round);
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
        const char *key = key_of(round);
        uint64_t fence = claim(world, key, "A")->out.fence;
        struct idem_op *winner;

        complete(world, key, "A", "old");
        advance(world, TTL);
        field_clear(field);
        enter_claimants(field, key, RACERS / 2, IDEM_TAKE_NONE, 0);
        while (field->count < RACERS)
            enter(field, op_make(world, IDEM_OP_SWEEP, NULL))->in.sweep.limit = 100;
        field_run(field);
        winner = sole_winner(field, RACERS / 2);
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
        for (unsigned i = 0; i < RACERS; i++)
            enter_claim(field, key_of(round), "A", IDEM_TAKE_NONE, 0);
        field_run(field);
        for (unsigned i = 0; i < RACERS; i++) {
            expect(&field->ops[i], ACQUIRED);
            assert_int_equal(field->ops[i].out.attempt, 1);
            assert_int_equal(field->ops[i].out.fence, field->ops[0].out.fence);
        }
    }
    field_close(field);
}

/* --- stories -------------------------------------------------------------------------------- */

struct story {
    size_t racers;                                        /* who meet on one id */
    bool (*before)(struct world *world, const char *key); /* what has happened to it */
    void (*enter)(struct field *field, const char *key, uint64_t fence);
    void (*judge)(struct world *world, const char *key, const struct idem_op *racers,
                  uint64_t fence);
};

/* The fence of each id, before. */
static void story_begin(const struct story *story, struct field *field, unsigned first,
                        uint64_t *ret_fences)
{
    struct world *world = field->crew.world;

    field_clear(field);
    for (unsigned i = 0; i < RACERS / story->racers; i++) {
        const char *key = key_of(first + i);

        ret_fences[i] = story->before(world, key) ? record_of(world, key)->fence : 0;
        story->enter(field, key, ret_fences[i]);
    }
    advance(world, 1); /* a change at the very instant that was seen could not be told from none */
}

/* Those who meet begin one after the other, first in one order, then in the other. */
static void story_delay(const struct story *story, struct field *field, unsigned tell)
{
    for (size_t i = 0; i < field->count; i++) {
        size_t place = i % story->racers;

        if (tell % 2)
            place = story->racers - 1 - place;
        field->delays_us[i] = (unsigned)place * (tell / 2) * STEP_US;
    }
}

static void story_tell(struct world *world, const struct story *story)
{
    struct field *field = field_open(world);
    unsigned keys = RACERS / (unsigned)story->racers;

    for (unsigned tell = 0; tell < TELLS; tell++) {
        uint64_t fences[RACERS];

        story_begin(story, field, tell * keys, fences);
        story_delay(story, field, tell);
        field_run(field);
        for (unsigned i = 0; i < keys; i++)
            story->judge(world, key_of(tell * keys + i), &field->ops[i * story->racers], fences[i]);
    }
    field_close(field);
}

static bool was_absent(struct world *world, const char *key)
{
    (void)world;
    (void)key;
    return false;
}

static bool was_claimed(struct world *world, const char *key)
{
    expect(claim(world, key, "A"), ACQUIRED);
    return true;
}

static bool was_abandoned(struct world *world, const char *key)
{
    expect(claim(world, key, "A"), ACQUIRED);
    expect(abandon(world, key, "A"), OK);
    return true;
}

/* The late owner's complete meets a take-over: one of them has the record, and the other is told.
 */
static void late_enter(struct field *field, const char *key, uint64_t fence)
{
    enter_verdict(field, IDEM_OP_COMPLETE, key, "A");
    enter_claim(field, key, "B", IDEM_TAKE_FENCE, fence);
}

static void late_judge(struct world *world, const char *key, const struct idem_op *racers,
                       uint64_t fence)
{
    const struct idem_op *late = &racers[0], *taker = &racers[1];

    if (late->result == IDEM_RESULT_OK) {
        expect(taker, COMPLETED);
        assert_bytes(taker->out.found.record.answer.body, text("A"));
        assert_bytes(record_of(world, key)->answer.body, text("A"));
    } else {
        expect(late, LOST);
        expect(taker, ACQUIRED);
        assert_true(taker->out.fence > fence);
        expect(complete(world, key, "A", "late"), LOST);
        expect(complete(world, key, "B", "B"), OK);
    }
}

static void late_complete_meets_take_over(void **state)
{
    static const struct story story = {2, was_abandoned, late_enter, late_judge};

    story_tell(*state, &story);
}

/* An owner that speaks twice at once, by a retry in the background: the first word stands. */
static void words_enter(struct field *field, const char *key, uint64_t fence)
{
    (void)fence;
    enter_verdict(field, IDEM_OP_COMPLETE, key, "A");
    enter_verdict(field, IDEM_OP_FAIL, key, "A");
}

static void words_judge(struct world *world, const char *key, const struct idem_op *racers,
                        uint64_t fence)
{
    const struct idem_record *record = record_of(world, key);

    assert_int_equal(record->fence, fence);
    if (racers[0].result == IDEM_RESULT_OK) {
        expect(&racers[1], LOST);
        assert_int_equal(record->state, IDEM_STATE_COMPLETED);
        assert_bytes(record->answer.body, text("A"));
    } else {
        expect(&racers[0], LOST);
        expect(&racers[1], OK);
        assert_int_equal(record->state, IDEM_STATE_FAILED);
    }
}

static void verdicts_of_one_owner_meet(void **state)
{
    static const struct story story = {2, was_claimed, words_enter, words_judge};

    story_tell(*state, &story);
}

/* A last word meets an abandon, which never takes it back. */
static void left_enter(struct field *field, const char *key, uint64_t fence)
{
    (void)fence;
    enter_verdict(field, IDEM_OP_COMPLETE, key, "A");
    enter_verdict(field, IDEM_OP_ABANDON, key, "A");
}

static void left_judge(struct world *world, const char *key, const struct idem_op *racers,
                       uint64_t fence)
{
    (void)fence;
    expect(&racers[0], OK);
    assert_true(racers[1].result == IDEM_RESULT_OK || racers[1].result == IDEM_RESULT_LOST);
    assert_int_equal(record_of(world, key)->state, IDEM_STATE_COMPLETED);
}

static void complete_meets_abandon(void **state)
{
    static const struct story story = {2, was_claimed, left_enter, left_judge};

    story_tell(*state, &story);
}

/* A renew meets the complete of the same owner, and does not make the record run again. */
static void renewal_enter(struct field *field, const char *key, uint64_t fence)
{
    struct idem_op *op = op_make(field->crew.world, IDEM_OP_RENEW, key);

    (void)fence;
    op->in.renew.owner = owner_of("A");
    op->in.renew.lease_us = 3 * LEASE;
    op->in.renew.unknown_ttl_us = UNKNOWN_TTL;
    enter(field, op);
    enter_verdict(field, IDEM_OP_COMPLETE, key, "A");
}

static void renewal_judge(struct world *world, const char *key, const struct idem_op *racers,
                          uint64_t fence)
{
    (void)fence;
    assert_true(racers[0].result == IDEM_RESULT_OK || racers[0].result == IDEM_RESULT_LOST);
    expect(&racers[1], OK);
    assert_int_equal(record_of(world, key)->state, IDEM_STATE_COMPLETED);
    assert_int_equal(record_of(world, key)->expires_us, racers[1].out.now_us + TTL);
}

static void renew_meets_complete(void **state)
{
    static const struct story story = {2, was_claimed, renewal_enter, renewal_judge};

    story_tell(*state, &story);
}

/* A claim whose reply was lost meets its repetition, and the fail that is to undo it. */
static void ambiguous_enter(struct field *field, const char *key, uint64_t fence)
{
    (void)fence;
    enter_claim(field, key, "A", IDEM_TAKE_NONE, 0);
    enter_verdict(field, IDEM_OP_FAIL, key, "A");
    enter_claim(field, key, "A", IDEM_TAKE_NONE, 0);
}

static void ambiguous_judge(struct world *world, const char *key, const struct idem_op *racers,
                            uint64_t fence)
{
    (void)fence;
    for (size_t i = 0; i < 3; i += 2)
        assert_true(racers[i].result == IDEM_RESULT_ACQUIRED ||
                    racers[i].result == IDEM_RESULT_ENDED);
    if (racers[0].result == racers[2].result)
        assert_int_equal(racers[0].out.fence, racers[2].out.fence);
    expect(&racers[1], OK);
    assert_int_equal(record_of(world, key)->state, IDEM_STATE_FAILED);
    expect(claim(world, key, "A"), ENDED);
    expect(claim(world, key, "B"), ACQUIRED);
}

static void ambiguous_claim_meets_its_fail(void **state)
{
    static const struct story story = {3, was_absent, ambiguous_enter, ambiguous_judge};

    story_tell(*state, &story);
}

/* Two people and the late owner settle one unknown: one of them does. */
static void people_enter(struct field *field, const char *key, uint64_t fence)
{
    struct idem_op *op = resolve_make(field->crew.world, key);

    (void)fence;
    enter(field, op)->in.resolve.owner = owner_of("dana");
    enter_verdict(field, IDEM_OP_COMPLETE, key, "A");
    op = enter(field, op);
    op->in.resolve.owner = owner_of("eli");
    op->in.resolve.completed = true;
}

static void people_judge(struct world *world, const char *key, const struct idem_op *racers,
                         uint64_t fence)
{
    const struct idem_op *dana = &racers[0], *late = &racers[1], *eli = &racers[2];
    size_t settled = 0;

    for (size_t i = 0; i < 3; i++)
        settled += racers[i].result == IDEM_RESULT_OK;
    assert_int_equal(settled, 1);
    if (dana->result != IDEM_RESULT_OK)
        expect(dana, CHANGED);
    if (eli->result != IDEM_RESULT_OK)
        expect(eli, CHANGED);
    if (late->result != IDEM_RESULT_OK)
        expect(late, LOST);
    assert_int_equal(record_of(world, key)->fence, fence);
    assert_int_equal(record_of(world, key)->state,
                     dana->result == IDEM_RESULT_OK ? IDEM_STATE_FAILED : IDEM_STATE_COMPLETED);
}

static void people_meet_the_late_owner(void **state)
{
    static const struct story story = {3, was_abandoned, people_enter, people_judge};

    story_tell(*state, &story);
}

/* Forget meets a take-over: forgotten first, it is a new key; taken first, it runs and stays. */
static void forget_enter(struct field *field, const char *key, uint64_t fence)
{
    enter(field, op_make(field->crew.world, IDEM_OP_FORGET, key));
    enter_claim(field, key, "B", IDEM_TAKE_FENCE, fence);
}

static void forget_judge(struct world *world, const char *key, const struct idem_op *racers,
                         uint64_t fence)
{
    const struct idem_op *gone = &racers[0], *taker = &racers[1];

    expect(taker, ACQUIRED);
    assert_true(taker->out.fence > fence);
    if (gone->result == IDEM_RESULT_OK) {
        assert_int_equal(taker->out.attempt, 1);
    } else {
        expect(gone, REFUSED);
        assert_int_equal(taker->out.attempt, 2);
    }
    assert_int_equal(record_of(world, key)->fence, taker->out.fence);
}

static void forget_meets_take_over(void **state)
{
    static const struct story story = {2, was_abandoned, forget_enter, forget_judge};

    story_tell(*state, &story);
}

/* --- others --------------------------------------------------------------------------------- */

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

    for (unsigned round = 0; round < TELLS; round++) {
        const char *key = key_of(round);
        struct turn turn = {.world = world, .renew = &field->ops[0], .claim = &field->ops[2]};

        claim(world, key, "A");
        field_clear(field);
        renewal_enter(field, key, 0);
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
    {"a late complete and a take-over: one of them has the record", late_complete_meets_take_over,
     TRAIT_CLOCK},
    {"of an owner's verdicts that meet the first stands", verdicts_of_one_owner_meet, TRAIT_CLOCK},
    {"an abandon takes no answer back", complete_meets_abandon, TRAIT_CLOCK},
    {"a renew makes nothing run again", renew_meets_complete, TRAIT_CLOCK},
    {"a claim, its repetition and its fail may come in any order", ambiguous_claim_meets_its_fail,
     TRAIT_CLOCK},
    {"of people and a late owner who settle one unknown one does", people_meet_the_late_owner,
     TRAIT_CLOCK},
    {"a forget and a take-over never leave a claim without its record", forget_meets_take_over,
     TRAIT_CLOCK},
    {"a renew that is ok holds against every take-over", renew_meets_take_over, TRAIT_CLOCK},
    {"nothing late of a claim that was failed hurts who runs now", late_words_of_an_ambiguous_claim,
     0},
};

const struct chapter chapter_race = {"races", rules, COUNT(rules)};
