/* What a person may do: resolve, forget, and see who did. */
#include <stdio.h>
#include <string.h>

#include "contract.h"

#define AUDIT_MAX 100000 /* entries that a store keeps */

static void make_unknown(struct world *world)
{
    claim(world, "k", "A");
    abandon(world, "k", "A");
}

static void resolve_with_answer(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_unknown(world);
    op = resolve_make(world, "k");
    op->in.resolve.completed = true;
    op->in.resolve.answer = answer_of("from the bank");
    expect(run(world, op), OK);
    op = claim(world, "k", "B");
    expect(op, COMPLETED);
    assert_bytes(op->out.found.record.answer.body, text("from the bank"));
    assert_int_equal(op->out.found.record.expires_us, op->out.now_us + TTL);
}

static void resolve_without_answer(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_unknown(world);
    op = resolve_make(world, "k");
    op->in.resolve.completed = true;
    expect(run(world, op), OK);
    op = claim(world, "k", "B");
    expect(op, COMPLETED);
    assert_int_equal(op->out.found.record.answer.tombstone, IDEM_REASON_RESOLVED);
    assert_int_equal(op->out.found.record.answer.status, 0);
}

static void resolve_with_empty_answer(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_unknown(world);
    op = resolve_make(world, "k");
    op->in.resolve.completed = true;
    op->in.resolve.answer.status = 204;
    expect(run(world, op), OK);
    op = claim(world, "k", "B");
    expect(op, COMPLETED);
    assert_int_equal(op->out.found.record.answer.tombstone, IDEM_REASON_NONE);
    assert_int_equal(op->out.found.record.answer.status, 204);
}

static void resolve_failed_lets_next_execute(void **state)
{
    struct world *world = *state;
    uint64_t fence;
    struct idem_op *op;

    make_unknown(world);
    fence = record_of(world, "k")->fence;
    expect(run(world, resolve_make(world, "k")), OK);
    op = claim(world, "k", "B");
    expect(op, ACQUIRED);
    assert_int_equal(op->out.attempt, 2);
    assert_true(op->out.fence > fence);
    assert_int_equal(record_of(world, "k")->resolution.who.size, 0);
}

static void resolve_keeps_who_and_why(void **state)
{
    struct world *world = *state;
    const struct idem_record *record;

    make_unknown(world);
    run(world, resolve_make(world, "k"));
    record = record_of(world, "k");
    assert_bytes(record->resolution.who, text("dana"));
    assert_bytes(record->resolution.why, text("asked the bank"));
    assert_true(record->resolution.at_us > 0);
}

static void resolve_fences_off_late_owner(void **state)
{
    struct world *world = *state;

    make_unknown(world);
    run(world, resolve_make(world, "k"));
    expect(complete(world, "k", "A", "late"), LOST);
    expect(fail_claim(world, "k", "A"), LOST);
    expect(abandon(world, "k", "A"), LOST);
    expect(renew(world, "k", "A", LEASE), LOST);
    assert_int_equal(record_of(world, "k")->state, IDEM_STATE_FAILED);
}

static void resolve_compares_what_was_seen(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_unknown(world);
    op = resolve_make(world, "k");
    op->in.resolve.fence++;
    expect(run(world, op), CHANGED);
    op = resolve_make(world, "k");
    op->in.resolve.updated_us--;
    op->in.resolve.force = true;
    expect(run(world, op), CHANGED);
    assert_int_equal(record_of(world, "k")->state, IDEM_STATE_UNKNOWN);
}

static void resolve_again_is_ok(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_unknown(world);
    op = resolve_make(world, "k");
    expect(run(world, op), OK);
    idem_op_deinit(op);
    expect(run(world, op), OK);
}

static void resolve_of_absent(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_unknown(world);
    op = resolve_make(world, "k");
    forget(world, "k", false);
    expect(run(world, op), ABSENT);
}

static void resolve_is_for_unknown(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    claim(world, "k", "A");
    expect(run(world, resolve_make(world, "k")), REFUSED);
    fail_claim(world, "k", "A");
    expect(run(world, resolve_make(world, "k")), REFUSED);
    claim(world, "k", "B");
    complete(world, "k", "B", "paid");
    expect(run(world, resolve_make(world, "k")), REFUSED);
    assert_bytes(record_of(world, "k")->answer.body, text("paid"));
    op = resolve_make(world, "k");
    op->in.resolve.force = true;
    expect(run(world, op), OK);
    assert_int_equal(record_of(world, "k")->state, IDEM_STATE_FAILED);
}

static void resolve_by_force_ends_running_claim(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    claim(world, "k", "A");
    op = resolve_make(world, "k");
    op->in.resolve.force = true;
    op->in.resolve.completed = true;
    op->in.resolve.answer = answer_of("by hand");
    expect(run(world, op), OK);
    expect(complete(world, "k", "A", "late"), LOST);
    assert_bytes(record_of(world, "k")->answer.body, text("by hand"));
}

static void resolve_of_lapsed(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, LEASE);
    expect(run(world, resolve_make(world, "k")), OK);
    expect(claim(world, "k", "B"), ACQUIRED);
}

static void forget_makes_absent(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    complete(world, "k", "A", "paid");
    expect(forget(world, "k", false), OK);
    expect(get(world, "k"), ABSENT);
    expect(forget(world, "k", false), ABSENT);
    expect(claim(world, "k", "B"), ACQUIRED);
}

static void forget_of_running_is_refused(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    expect(forget(world, "k", false), REFUSED);
    expect(claim(world, "k", "B"), IN_PROGRESS);
    expect(forget(world, "k", true), OK);
    expect(complete(world, "k", "A", "late"), LOST);
    expect(get(world, "k"), ABSENT);
}

static void forget_of_unknown_and_failed(void **state)
{
    struct world *world = *state;

    make_unknown(world);
    expect(forget(world, "k", false), OK);
    claim(world, "k", "B");
    fail_claim(world, "k", "B");
    expect(forget(world, "k", false), OK);
    expect(get(world, "k"), ABSENT);
}

static void fence_grows_across_forget(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    forget(world, "k", true);
    advance(world, 1);
    assert_true(claim(world, "k", "B")->out.fence > fence);
}

static void fence_grows_across_forget_and_step_back(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    forget(world, "k", true);
    advance(world, -DAY);
    assert_true(claim(world, "k", "B")->out.fence > fence);
}

static struct idem_op *audit(struct world *world, int64_t after_us, uint32_t limit)
{
    struct idem_op *op = op_make(world, IDEM_OP_AUDIT, NULL);

    op->in.audit.after_us = after_us;
    op->in.audit.limit = limit;
    return run(world, op);
}

static void audit_tells_who_did_what(void **state)
{
    struct world *world = *state;
    struct idem_id id = id_of("k");
    const struct idem_audit_entry *entries;
    uint64_t fence;
    struct idem_op *op;

    make_unknown(world);
    fence = record_of(world, "k")->fence;
    run(world, resolve_make(world, "k"));
    forget(world, "k", false);
    op = audit(world, 0, 10);
    expect(op, OK);
    assert_int_equal(op->out.count, 2);
    assert_false(op->out.more);
    entries = op->out.entries;
    assert_int_equal(entries[0].what, IDEM_OP_RESOLVE);
    assert_int_equal(entries[0].was, IDEM_STATE_UNKNOWN);
    assert_int_equal(entries[0].fence, fence);
    assert_true(idem_id_equal(&entries[0].id, &id));
    assert_bytes(entries[0].who, text("dana"));
    assert_bytes(entries[0].why, text("asked the bank"));
    assert_int_equal(entries[1].what, IDEM_OP_FORGET);
    assert_int_equal(entries[1].was, IDEM_STATE_FAILED);
    assert_bytes(entries[1].why, text("a test"));
    assert_true(entries[1].at_us > entries[0].at_us);
}

static void audit_says_nothing_of_refusals(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    forget(world, "k", false);
    run(world, resolve_make(world, "k"));
    forget(world, "other", false);
    assert_int_equal(audit(world, 0, 10)->out.count, 0);
}

static void audit_pages_meet(void **state)
{
    static const char *const keys[] = {"a", "b", "c", "d", "e"};
    struct world *world = *state;
    int64_t after_us = 0;

    for (size_t i = 0; i < COUNT(keys); i++) {
        claim(world, keys[i], "A");
        forget(world, keys[i], true);
    }
    for (size_t i = 0; i < COUNT(keys); i++) {
        struct idem_op *op = audit(world, after_us, 1);
        struct idem_id id = id_of(keys[i]);

        assert_int_equal(op->out.count, 1);
        assert_true(idem_id_equal(&op->out.entries[0].id, &id));
        assert_int_equal(op->out.more, i + 1 < COUNT(keys));
        after_us = op->out.entries[0].at_us;
    }
    assert_int_equal(audit(world, after_us, 1)->out.count, 0);
}

/* Gives the ops of a batch, one for each of as many ids. */
static void batch_make(struct idem_op *ops, struct idem_op **list, enum idem_op_kind kind)
{
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++) {
        char key[32];

        snprintf(key, sizeof key, "many %zu", i);
        memset(&ops[i], 0, sizeof ops[i]);
        ops[i].kind = kind;
        ops[i].id = id_of(key);
        list[i] = &ops[i];
    }
}

/* Claims as many ids as a batch takes, and resolves all of them by force, again and again. */
static void resolve_many(struct world *world, size_t count)
{
    static struct idem_op claims[IDEM_BATCH_MAX], ops[IDEM_BATCH_MAX];
    struct idem_op *list[IDEM_BATCH_MAX];

    batch_make(claims, list, IDEM_OP_CLAIM);
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++) {
        claims[i].in.claim.kind = IDEM_KIND_HTTP;
        claims[i].in.claim.lease_us = LEASE;
        claims[i].in.claim.unknown_ttl_us = UNKNOWN_TTL;
    }
    assert_int_equal(idem_store_apply(world->store, list, IDEM_BATCH_MAX, NULL), IDEM_OK);
    for (size_t done = 0; done < count; done += IDEM_BATCH_MAX) {
        size_t left = count - done < IDEM_BATCH_MAX ? count - done : IDEM_BATCH_MAX;

        batch_make(ops, list, IDEM_OP_RESOLVE);
        for (size_t i = 0; i < left; i++) {
            char name[32];

            snprintf(name, sizeof name, "%zu", done + i);
            ops[i].in.resolve.owner = owner_of(name);
            ops[i].in.resolve.fence = claims[i].out.fence;
            ops[i].in.resolve.updated_us = claims[i].out.now_us;
            ops[i].in.resolve.ttl_us = TTL;
            ops[i].in.resolve.force = true;
        }
        assert_int_equal(idem_store_apply(world->store, list, left, NULL), IDEM_OK);
        for (size_t i = 0; i < left; i++)
            expect(&ops[i], OK);
    }
}

static void audit_has_a_maximum(void **state)
{
    struct world *world = *state;
    struct idem_id first = id_of("many 56"); /* of those that remain */
    struct idem_op *op;

    resolve_many(world, AUDIT_MAX + 56);
    op = audit(world, 0, 1);
    assert_int_equal(op->out.count, 1);
    assert_true(idem_id_equal(&op->out.entries[0].id, &first));
}

static void audit_survives_reopening(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    forget(world, "k", true);
    world_reopen(world);
    assert_int_equal(audit(world, 0, 10)->out.count, 1);
}

static const struct rule rules[] = {
    {"resolve gives the answer that a person found", resolve_with_answer, TRAIT_CLOCK},
    {"resolve as completed without an answer leaves a tombstone", resolve_without_answer, 0},
    {"resolve with an empty answer keeps it: it has a status", resolve_with_empty_answer, 0},
    {"resolve as failed lets the next claim execute", resolve_failed_lets_next_execute, 0},
    {"resolve keeps who, why and when", resolve_keeps_who_and_why, 0},
    {"resolve fences a late owner off", resolve_fences_off_late_owner, 0},
    {"resolve is changed when fence or update differ from those seen",
     resolve_compares_what_was_seen, 0},
    {"the same resolve again is ok", resolve_again_is_ok, 0},
    {"resolve of an absent id is absent", resolve_of_absent, 0},
    {"resolve is refused unless unknown or forced", resolve_is_for_unknown, 0},
    {"resolve by force ends a running claim", resolve_by_force_ends_running_claim, 0},
    {"a lapsed lease may be resolved", resolve_of_lapsed, TRAIT_CLOCK},
    {"forget makes an id absent", forget_makes_absent, 0},
    {"forget of a running claim is refused unless forced", forget_of_running_is_refused, 0},
    {"forget takes unknown and failed", forget_of_unknown_and_failed, 0},
    {"the fence grows across forget", fence_grows_across_forget, TRAIT_CLOCK},
    {"the fence grows across forget even if the clock steps back",
     fence_grows_across_forget_and_step_back, TRAIT_CLOCK | TRAIT_FLOOR},
    {"the audit tells who did what to which state", audit_tells_who_did_what, 0},
    {"the audit says nothing of what was refused, nor of the self-test",
     audit_says_nothing_of_refusals, 0},
    {"pages of the audit meet without a gap", audit_pages_meet, 0},
    {"the audit has a maximum: the oldest entries make way", audit_has_a_maximum, TRAIT_LONG},
    {"the audit is there after reopening", audit_survives_reopening, TRAIT_KEPT},
};

const struct chapter chapter_people = {"people", rules, COUNT(rules)};
