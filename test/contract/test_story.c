/*
 * Stories: a few who want different things of one id at once, each by a handle of its own. Whoever
 * comes first, what they come to together must be something that one order of them explains; each
 * rule names what it is.
 *
 * A story is told on several ids at once, again and again, and each time one of those who meet
 * begins a little later, so that they meet at every point of each other's way.
 */
#include <stdio.h>
#include <string.h>

#include "field.h"

#define TELLS   24
#define STEP_US 30 /* by which the delays grow */

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
    for (unsigned i = 0; i < CREW_MAX / story->racers; i++) {
        const char *key = race_key(first + i);

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
    unsigned keys = CREW_MAX / (unsigned)story->racers;

    for (unsigned tell = 0; tell < TELLS; tell++) {
        uint64_t fences[CREW_MAX];

        story_begin(story, field, tell * keys, fences);
        story_delay(story, field, tell);
        field_run(field);
        for (unsigned i = 0; i < keys; i++)
            story->judge(world, race_key(tell * keys + i), &field->ops[i * story->racers],
                         fences[i]);
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
    (void)fence;
    enter_renew(field, key, "A", 3 * LEASE);
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

static const struct rule rules[] = {
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
};

const struct chapter chapter_story = {"stories", rules, COUNT(rules)};
