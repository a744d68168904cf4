/* Claims: who may execute. */
#include <stdio.h>
#include <string.h>

#include "contract.h"

static void absent_is_acquired(void **state)
{
    struct world *world = *state;
    struct idem_op *op = claim(world, "k", "A");

    expect(op, ACQUIRED);
    assert_int_equal(op->out.attempt, 1);
}

static void fence_is_near_clock(void **state)
{
    struct world *world = *state;
    struct idem_op *op = claim(world, "k", "A");

    assert_true(op->out.fence >= (uint64_t)op->out.now_us);
}

static void record_is_kept(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;
    const struct idem_record *record = record_of(world, "k");
    struct idem_owner owner = owner_of("A");

    assert_int_equal(record->kind, IDEM_KIND_HTTP);
    assert_bytes(record->scope, text("scope"));
    assert_bytes(record->key, text("k"));
    assert_bytes(record->method, text("POST"));
    assert_bytes(record->path, text("/charges"));
    assert_int_equal(record->state, IDEM_STATE_PROCESSING);
    assert_true(idem_owner_equal(&record->owner, &owner));
    assert_int_equal(record->fence, fence);
    assert_int_equal(record->attempt, 1);
    assert_int_equal(record->lease_us, LEASE);
}

static void second_is_in_progress(void **state)
{
    struct world *world = *state;
    struct idem_op *op = claim(world, "k", "A");
    uint64_t fence = op->out.fence;

    expect(op, ACQUIRED);
    op = claim(world, "k", "B");
    expect(op, IN_PROGRESS);
    assert_in_range(op->out.retry_after_us, 1, LEASE);
    assert_true(op->out.fence == fence); /* by these who waits sees which attempt runs */
    assert_int_equal(op->out.attempt, 1);
}

static void retry_after_is_rest_of_lease(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, 4 * SECOND);
    assert_int_equal(claim(world, "k", "B")->out.retry_after_us, 6 * SECOND);
}

static void same_claim_again_is_same_acquired(void **state)
{
    struct world *world = *state;
    struct idem_op *first = claim(world, "k", "A");
    int64_t until_us = record_of(world, "k")->lease_until_us;
    struct idem_op *again = claim(world, "k", "A");

    expect(again, ACQUIRED);
    assert_int_equal(again->out.fence, first->out.fence);
    assert_int_equal(again->out.attempt, first->out.attempt);
    assert_int_equal(record_of(world, "k")->lease_until_us, until_us);
}

static void same_op_applied_twice_is_salted_once(void **state)
{
    struct world *world = *state;
    struct idem_op *op = run(world, claim_make(world, "k", "A"));
    struct idem_fingerprint payload = payload_of("payload");
    struct idem_principal caller = caller_of("alice");

    expect(op, ACQUIRED);
    assert_true(idem_fingerprint_equal(&op->in.claim.fingerprint, &payload));
    assert_true(idem_principal_equal(&op->in.claim.principal, &caller));
    idem_op_deinit(op);
    expect(run(world, op), ACQUIRED);
}

static void digests_are_kept_salted(void **state)
{
    struct world *world = *state;
    struct idem_fingerprint payload = payload_of("payload");
    struct idem_principal caller = caller_of("alice");
    const struct idem_record *record;

    claim(world, "k", "A");
    record = record_of(world, "k");
    assert_memory_not_equal(record->fingerprint.bytes, payload.bytes, IDEM_DIGEST_SIZE);
    assert_memory_not_equal(record->principal.bytes, caller.bytes, IDEM_DIGEST_SIZE);
}

static void same_claim_after_complete_is_ended(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    complete(world, "k", "A", "ok");
    expect(claim(world, "k", "A"), ENDED);
}

static void same_claim_after_fail_is_ended(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    fail_claim(world, "k", "A");
    expect(claim(world, "k", "A"), ENDED);
}

static void same_claim_after_abandon_is_ended(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    abandon(world, "k", "A");
    expect(claim(world, "k", "A"), ENDED);
    expect(claim_taking(world, "k", "A", IDEM_TAKE_ANY, 0), ENDED);
}

static void same_claim_after_lapse_is_ended(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, LEASE);
    expect(claim(world, "k", "A"), ENDED);
    expect(claim_taking(world, "k", "A", IDEM_TAKE_ANY, 0), ENDED);
}

static void owner_taken_over_never_acquires(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    abandon(world, "k", "A");
    expect(claim_taking(world, "k", "B", IDEM_TAKE_ANY, 0), ACQUIRED);
    expect(claim(world, "k", "A"), IN_PROGRESS);
}

static void failed_is_taken_at_once(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;
    struct idem_op *op;

    fail_claim(world, "k", "A");
    op = claim(world, "k", "B");
    expect(op, ACQUIRED);
    assert_int_equal(op->out.attempt, 2);
    assert_true(op->out.fence > fence);
}

static void creation_is_that_of_first_attempt(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, SECOND);
    fail_claim(world, "k", "A");
    claim(world, "k", "B");
    assert_int_equal(record_of(world, "k")->created_us, START);
    abandon(world, "k", "B");
    claim_taking(world, "k", "C", IDEM_TAKE_ANY, 0);
    assert_int_equal(record_of(world, "k")->created_us, START);
    assert_int_equal(record_of(world, "k")->updated_us, START + SECOND);
    assert_int_equal(record_of(world, "k")->attempt, 3);
}

static void failed_takes_new_principal(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    claim(world, "k", "A");
    fail_claim(world, "k", "A");
    op = claim_make(world, "k", "B");
    op->in.claim.principal = caller_of("alice with a fresh token");
    expect(run(world, op), ACQUIRED);
    expect(claim(world, "k", "C"), OTHER_PRINCIPAL);
    op = claim_make(world, "k", "C");
    op->in.claim.principal = caller_of("alice with a fresh token");
    expect(run(world, op), IN_PROGRESS);
}

static void lapsed_is_unknown(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;
    struct idem_op *op;

    advance(world, LEASE - 1);
    expect(claim(world, "k", "B"), IN_PROGRESS);
    advance(world, 1);
    op = claim(world, "k", "B");
    expect(op, UNKNOWN);
    assert_int_equal(op->out.since_us, START + LEASE);
    assert_int_equal(op->out.fence, fence);
    assert_int_equal(op->out.attempt, 1);
}

static void abandoned_is_unknown(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;
    int64_t abandoned_us = abandon(world, "k", "A")->out.now_us;
    struct idem_op *op = claim(world, "k", "B");

    expect(op, UNKNOWN);
    assert_int_equal(op->out.since_us, abandoned_us);
    assert_int_equal(op->out.fence, fence);
    assert_int_equal(record_of(world, "k")->reason, IDEM_REASON_UNANSWERED);
}

static void take_over_names_fence(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;
    struct idem_op *op;

    abandon(world, "k", "A");
    op = claim_taking(world, "k", "B", IDEM_TAKE_FENCE, fence);
    expect(op, ACQUIRED);
    assert_int_equal(op->out.attempt, 2);
    assert_true(op->out.fence > fence);
}

/* What a request that waits, and then takes over, does: one owner, claim after claim. */
static void who_got_nothing_claims_again(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    expect(claim(world, "k", "B"), IN_PROGRESS);
    expect(claim(world, "k", "B"), IN_PROGRESS);
    abandon(world, "k", "A");
    expect(claim(world, "k", "B"), UNKNOWN);
    expect(claim_taking(world, "k", "B", IDEM_TAKE_FENCE, fence), ACQUIRED);
    expect(renew(world, "k", "B", LEASE), OK);
    expect(complete(world, "k", "B", "paid"), OK);

    claim(world, "k2", "A");
    expect(claim(world, "k2", "B"), IN_PROGRESS);
    fail_claim(world, "k2", "A");
    expect(claim(world, "k2", "B"), ACQUIRED);
    expect(claim(world, "k2", "A"), IN_PROGRESS);
}

static void take_over_of_other_fence_is_unknown(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    abandon(world, "k", "A");
    expect(claim_taking(world, "k", "B", IDEM_TAKE_FENCE, fence - 1), UNKNOWN);
    expect(claim_taking(world, "k", "B", IDEM_TAKE_FENCE, fence + 1), UNKNOWN);
    expect(claim_taking(world, "k", "B", IDEM_TAKE_FENCE, 0), UNKNOWN);
}

static void one_take_over_of_two_wins(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    abandon(world, "k", "A");
    expect(claim_taking(world, "k", "B", IDEM_TAKE_FENCE, fence), ACQUIRED);
    expect(claim_taking(world, "k", "C", IDEM_TAKE_FENCE, fence), IN_PROGRESS);
    abandon(world, "k", "B");
    expect(claim_taking(world, "k", "C", IDEM_TAKE_FENCE, fence), UNKNOWN);
}

static void any_takes_an_unknown(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    abandon(world, "k", "A");
    expect(claim_taking(world, "k", "B", IDEM_TAKE_ANY, 0), ACQUIRED);
}

static void any_takes_a_lapsed(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, LEASE);
    expect(claim_taking(world, "k", "B", IDEM_TAKE_ANY, 0), ACQUIRED);
}

static void any_does_not_take_a_running(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    expect(claim_taking(world, "k", "B", IDEM_TAKE_ANY, 0), IN_PROGRESS);
    expect(claim_taking(world, "k", "B", IDEM_TAKE_FENCE, fence), IN_PROGRESS);
}

static void any_does_not_take_a_completed(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    complete(world, "k", "A", "ok");
    expect(claim_taking(world, "k", "B", IDEM_TAKE_ANY, 0), COMPLETED);
    expect(claim_taking(world, "k", "B", IDEM_TAKE_FENCE, fence), COMPLETED);
}

static void completed_gives_record(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    claim(world, "k", "A");
    complete(world, "k", "A", "paid");
    op = claim(world, "k", "B");
    expect(op, COMPLETED);
    assert_int_equal(op->out.found.record.answer.status, 201);
    assert_bytes(op->out.found.record.answer.headers, answer_of("").headers);
    assert_bytes(op->out.found.record.answer.body, text("paid"));
}

static void found_stays_as_it_was(void **state)
{
    struct world *world = *state;
    struct idem_op found;
    char key[16];

    claim(world, "k", "A");
    complete(world, "k", "A", "paid");
    found = *claim_make(world, "k", "B");
    expect(run(world, &found), COMPLETED);
    forget(world, "k", false);
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "other %d", i);
        claim(world, key, "A");
        complete(world, key, "A", "else");
    }
    world_close(world);
    assert_bytes(found.out.found.record.key, text("k"));
    assert_bytes(found.out.found.record.path, text("/charges"));
    assert_bytes(found.out.found.record.answer.headers, answer_of("").headers);
    assert_bytes(found.out.found.record.answer.body, text("paid"));
    idem_op_deinit(&found);
    world_open(world, "");
}

static void lease_too_far_ahead_is_lapsed(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, -LEASE - 1);
    expect(claim(world, "k", "B"), UNKNOWN);
    expect(claim_taking(world, "k", "B", IDEM_TAKE_ANY, 0), ACQUIRED);
}

static void small_step_back_ends_nothing(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, -LEASE);
    expect(claim(world, "k", "B"), IN_PROGRESS);
    expect(claim(world, "k", "A"), ACQUIRED);
}

static void fence_grows_when_clock_steps_back(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    fail_claim(world, "k", "A");
    advance(world, -DAY);
    assert_int_equal(claim(world, "k", "B")->out.fence, fence + 1);
}

static void claim_sets_expiry(void **state)
{
    struct world *world = *state;
    struct idem_op *op = claim(world, "k", "A");
    const struct idem_record *record = record_of(world, "k");

    assert_int_equal(record->lease_until_us, op->out.now_us + LEASE);
    assert_int_equal(record->expires_us, op->out.now_us + LEASE + UNKNOWN_TTL);
}

static void lease_of_nothing_lapses_at_once(void **state)
{
    struct world *world = *state;
    struct idem_op *op = claim_make(world, "k", "A");

    op->in.claim.lease_us = 0;
    expect(run(world, op), ACQUIRED);
    expect(claim(world, "k", "B"), UNKNOWN);
}

/* Claims a key, and finds it again under its own id, with key, scope and path as they were. */
static void key_comes_back(struct world *world, struct idem_bytes key)
{
    struct idem_id id = idem_id_make(IDEM_KIND_HTTP, key, key);
    struct idem_op *op = claim_make(world, "", "A");

    op->in.claim.key = key;
    op->in.claim.scope = key;
    op->in.claim.path = key;
    op->id = id;
    expect(run(world, op), ACQUIRED);
    op = op_make(world, IDEM_OP_GET, NULL);
    op->id = id;
    expect(run(world, op), FOUND);
    assert_bytes(op->out.found.record.key, key);
    assert_bytes(op->out.found.record.scope, key);
    assert_bytes(op->out.found.record.path, key);
}

static void keys_are_bytes(void **state)
{
    static const char *const keys[] = {"a", "a\0", "a\0b", "A", "\xff\xfe", "", "\xc3\xa9"};
    static const size_t sizes[] = {1, 2, 3, 1, 2, 0, 2};
    struct world *world = *state;

    for (size_t i = 0; i < COUNT(keys); i++)
        key_comes_back(world, idem_bytes_make(keys[i], sizes[i]));
}

static void apply_many(struct world *world, struct idem_op *ops, size_t count)
{
    struct idem_op *list[IDEM_BATCH_MAX];

    for (size_t i = 0; i < count; i++)
        list[i] = &ops[i];
    assert_int_equal(idem_store_apply(world->store, list, count, NULL), IDEM_OK);
}

/* Each byte by itself and between others, in one batch, and all of them at once. */
static void keys_of_every_byte(void **state)
{
    static struct idem_op ops[512];
    static uint8_t keys[512][3], all[256];
    struct world *world = *state;

    for (unsigned i = 0; i < COUNT(ops); i++) {
        struct idem_bytes key = idem_bytes_make(keys[i], i % 2 ? 3 : 1);

        memset(keys[i], '|', sizeof keys[i]);
        keys[i][i % 2] = all[i / 2] = (uint8_t)(i / 2);
        ops[i] = *claim_make(world, "", "A");
        ops[i].id = idem_id_make(IDEM_KIND_HTTP, key, key);
        ops[i].in.claim.key = ops[i].in.claim.scope = ops[i].in.claim.path = key;
    }
    apply_many(world, ops, COUNT(ops));
    for (unsigned i = 0; i < COUNT(ops); i++) {
        struct idem_id id = ops[i].id;

        expect(&ops[i], ACQUIRED);
        ops[i] = (struct idem_op){.kind = IDEM_OP_GET, .id = id};
    }
    apply_many(world, ops, COUNT(ops));
    for (unsigned i = 0; i < COUNT(ops); i++) {
        struct idem_bytes key = idem_bytes_make(keys[i], i % 2 ? 3 : 1);

        expect(&ops[i], FOUND);
        assert_bytes(ops[i].out.found.record.key, key);
        assert_bytes(ops[i].out.found.record.scope, key);
        assert_bytes(ops[i].out.found.record.path, key);
        idem_op_deinit(&ops[i]);
    }
    key_comes_back(world, idem_bytes_make(all, sizeof all));
}

static void longest_fields_are_kept(void **state)
{
    static uint8_t bytes[2 * IDEM_PATH_SIZE_MAX];
    struct world *world = *state;
    struct idem_op *op = claim_make(world, "k", "A");
    const struct idem_record *record;

    memset(bytes, 'x', sizeof bytes);
    op->in.claim.scope = idem_bytes_make(bytes, IDEM_SCOPE_SIZE_MAX);
    op->in.claim.key = idem_bytes_make(bytes, IDEM_KEY_SIZE_MAX);
    op->in.claim.method = idem_bytes_make(bytes, 2 * IDEM_METHOD_SIZE_MAX);
    op->in.claim.path = idem_bytes_make(bytes, 2 * IDEM_PATH_SIZE_MAX);
    expect(run(world, op), ACQUIRED);
    record = record_of(world, "k");
    assert_int_equal(record->scope.size, IDEM_SCOPE_SIZE_MAX);
    assert_int_equal(record->key.size, IDEM_KEY_SIZE_MAX);
    assert_int_equal(record->method.size, IDEM_METHOD_SIZE_MAX);
    assert_int_equal(record->path.size, IDEM_PATH_SIZE_MAX);
}

static void keys_do_not_meet(void **state)
{
    struct world *world = *state;

    expect(claim(world, "k1", "A"), ACQUIRED);
    expect(claim(world, "k2", "B"), ACQUIRED);
    complete(world, "k1", "A", "one");
    expect(claim(world, "k2", "C"), IN_PROGRESS);
}

static void acknowledged_survives_reopening(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k1", "A")->out.fence;
    struct idem_op *op;

    claim(world, "k2", "A");
    complete(world, "k2", "A", "paid");
    world_reopen(world);
    op = claim(world, "k1", "A");
    expect(op, ACQUIRED);
    assert_int_equal(op->out.fence, fence);
    op = claim(world, "k2", "B");
    expect(op, COMPLETED);
    assert_bytes(op->out.found.record.answer.body, text("paid"));
}

static const struct rule rules[] = {
    {"an absent id is acquired, as attempt 1", absent_is_acquired, 0},
    {"the fence is never below the store's clock in microseconds", fence_is_near_clock, 0},
    {"a claim keeps what people need to know", record_is_kept, 0},
    {"a second claim is in progress while the first one runs", second_is_in_progress, 0},
    {"in progress tells how long the lease still runs", retry_after_is_rest_of_lease, TRAIT_CLOCK},
    {"the same claim again while its lease runs is the same acquired",
     same_claim_again_is_same_acquired, 0},
    {"an op that is applied twice is salted once", same_op_applied_twice_is_salted_once, 0},
    {"fingerprint and principal are kept salted", digests_are_kept_salted, 0},
    {"the same claim after its complete is ended", same_claim_after_complete_is_ended, 0},
    {"the same claim after its fail is ended", same_claim_after_fail_is_ended, 0},
    {"the same claim after its abandon is ended", same_claim_after_abandon_is_ended, 0},
    {"the same claim after its lease lapsed is ended", same_claim_after_lapse_is_ended,
     TRAIT_CLOCK},
    {"an owner that was taken over never acquires again", owner_taken_over_never_acquires, 0},
    {"failed is taken at once, as the next attempt with a higher fence", failed_is_taken_at_once,
     0},
    {"a record is as old as its first attempt", creation_is_that_of_first_attempt, TRAIT_CLOCK},
    {"failed becomes the new caller's", failed_takes_new_principal, 0},
    {"a lapsed lease is unknown without a writer having to act", lapsed_is_unknown, TRAIT_CLOCK},
    {"an abandoned record is unknown since it was abandoned", abandoned_is_unknown, 0},
    {"a take-over names the fence that was seen", take_over_names_fence, 0},
    {"an owner that got nothing may claim again, and take over", who_got_nothing_claims_again, 0},
    {"a take-over that names another fence is answered unknown",
     take_over_of_other_fence_is_unknown, 0},
    {"of two take-overs that saw one fence only the first wins", one_take_over_of_two_wins, 0},
    {"any takes an unknown whatever its fence", any_takes_an_unknown, 0},
    {"any takes a lapsed lease", any_takes_a_lapsed, TRAIT_CLOCK},
    {"no take-over takes a running lease", any_does_not_take_a_running, 0},
    {"no take-over takes a completed record", any_does_not_take_a_completed, 0},
    {"a claim on a completed record is given its answer", completed_gives_record, 0},
    {"what was found is the caller's, whatever happens to the store", found_stays_as_it_was, 0},
    {"a lease that ends further ahead than twice its length counts as lapsed",
     lease_too_far_ahead_is_lapsed, TRAIT_CLOCK},
    {"a small step back of the clock ends no claim", small_step_back_ends_nothing, TRAIT_CLOCK},
    {"the fence grows even if the clock steps back", fence_grows_when_clock_steps_back,
     TRAIT_CLOCK},
    {"a claim expires its unknown ttl after its lease", claim_sets_expiry, 0},
    {"0 is a value: a lease of nothing lapses at once", lease_of_nothing_lapses_at_once, 0},
    {"keys are bytes", keys_are_bytes, 0},
    {"every byte may stand in a key, a scope and a path", keys_of_every_byte, 0},
    {"the longest fields are kept, method and path cut at their maximum", longest_fields_are_kept,
     0},
    {"two keys never meet", keys_do_not_meet, 0},
    {"what was acknowledged is there after reopening", acknowledged_survives_reopening, TRAIT_KEPT},
};

const struct chapter chapter_claim = {"claims", rules, COUNT(rules)};
