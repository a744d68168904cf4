/* The end of records: when they are as good as absent, and when they are gone. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "contract.h"

static void make_completed(struct world *world, const char *key, int64_t ttl_us)
{
    struct idem_op *op;

    expect(claim(world, key, "A"), ACQUIRED);
    op = verdict_make(world, IDEM_OP_COMPLETE, key, "A");
    op->in.verdict.answer = answer_of("paid");
    op->in.verdict.ttl_us = ttl_us;
    expect(run(world, op), OK);
}

/* A store with an expiry of its own has nothing left to sweep. */
static bool is_swept(const struct world *world)
{
    return world->row->traits & TRAIT_SWEPT;
}

/* Sweeps all there is to sweep, which is so many records. */
static void sweeps(struct world *world, size_t count)
{
    assert_int_equal(sweep_all(world), is_swept(world) ? count : 0);
}

static void expired_is_absent(void **state)
{
    struct world *world = *state;
    uint64_t fence;
    struct idem_op *op;

    make_completed(world, "k", TTL);
    fence = record_of(world, "k")->fence;
    advance(world, TTL - 1);
    expect(claim(world, "k", "B"), COMPLETED);
    advance(world, 1);
    expect(get(world, "k"), ABSENT);
    op = claim_make(world, "k", "B");
    op->in.claim.fingerprint = payload_of("another payload");
    op->in.claim.principal = caller_of("mallory");
    expect(run(world, op), ACQUIRED);
    assert_int_equal(op->out.attempt, 1);
    assert_true(op->out.fence > fence);
}

static void ttl_of_nothing(void **state)
{
    struct world *world = *state;

    make_completed(world, "k", 0);
    expect(get(world, "k"), ABSENT);
    expect(claim(world, "k", "B"), ACQUIRED);
}

static void ttl_never(void **state)
{
    struct world *world = *state;

    make_completed(world, "k", IDEM_NEVER_US);
    assert_int_equal(record_of(world, "k")->expires_us, IDEM_NEVER_US);
    advance(world, 100 * 365 * DAY);
    sweeps(world, 0);
    expect(claim(world, "k", "B"), COMPLETED);
}

static void ttl_saturates(void **state)
{
    struct world *world = *state;

    make_completed(world, "k", IDEM_NEVER_US - 1);
    assert_int_equal(record_of(world, "k")->expires_us, IDEM_NEVER_US);
}

static void failed_expires(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    fail_claim(world, "k", "A");
    assert_int_equal(record_of(world, "k")->expires_us, START + TTL);
    advance(world, TTL);
    assert_int_equal(claim(world, "k", "B")->out.attempt, 1);
}

static void unknown_outlives_ttl(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    abandon(world, "k", "A");
    advance(world, LEASE + UNKNOWN_TTL - 1);
    sweep_all(world);
    expect(claim(world, "k", "B"), UNKNOWN);
    advance(world, 1);
    expect(get(world, "k"), ABSENT);
}

static void sweep_removes_expired_only(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    make_completed(world, "short", TTL);
    make_completed(world, "long", 10 * TTL);
    claim(world, "running", "A");
    advance(world, LEASE + TTL);
    op = sweep(world, 100);
    expect(op, OK);
    assert_int_equal(op->out.count, is_swept(world) ? 1 : 0);
    assert_int_equal(op->out.unknown_removed, 0);
    assert_false(op->out.more);
    expect(get(world, "short"), ABSENT);
    expect(get(world, "long"), FOUND);
    expect(get(world, "running"), FOUND);
    advance(world, 10 * TTL);
    sweeps(world, 1);
    advance(world, UNKNOWN_TTL);
    sweeps(world, 1);
    sweeps(world, 0);
}

static void sweep_counts_unknown(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    claim(world, "abandoned", "A");
    abandon(world, "abandoned", "A");
    claim(world, "lapsed", "A");
    make_completed(world, "completed", TTL);
    advance(world, LEASE + UNKNOWN_TTL + SECOND);
    sweep_all(world);
    /* The index may need a second look at those that outlived its first guess. */
    op = get(world, "abandoned");
    expect(op, ABSENT);
    claim(world, "again", "A");
    abandon(world, "again", "A");
    advance(world, LEASE + UNKNOWN_TTL + SECOND);
    op = sweep(world, 100);
    assert_int_equal(op->out.count, 1);
    assert_int_equal(op->out.unknown_removed, 1);
}

static void sweep_keeps_to_limit(void **state)
{
    struct world *world = *state;
    char key[16];
    size_t removed = 0;
    struct idem_op *op;

    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%d", i);
        make_completed(world, key, TTL);
    }
    advance(world, LEASE + TTL + SECOND);
    do {
        op = sweep(world, 3);
        assert_in_range(op->out.count, 0, 3);
        assert_true(op->out.more || op->out.count + removed == 10);
        removed += op->out.count;
    } while (op->out.more);
    assert_int_equal(removed, 10);
}

static void sweep_checks_again(void **state)
{
    struct world *world = *state;
    int i;

    /* A claim that is renewed and renewed outlives every guess about it. */
    claim(world, "k", "A");
    for (i = 0; i < 40; i++) {
        advance(world, LEASE / 2);
        expect(renew(world, "k", "A", LEASE), OK);
    }
    advance(world, LEASE + UNKNOWN_TTL - 1);
    sweeps(world, 0);
    expect(complete(world, "k", "A", "late"), OK);
    advance(world, TTL - 1);
    sweeps(world, 0);
    expect(claim(world, "k", "B"), COMPLETED);
    advance(world, UNKNOWN_TTL);
    sweeps(world, 1);
}

static void claimed_anew_is_swept_in_its_time(void **state)
{
    struct world *world = *state;

    make_completed(world, "k", TTL);
    advance(world, TTL);
    make_completed(world, "k", TTL); /* over an expired record that nobody swept */
    advance(world, TTL - 1);
    sweeps(world, 0);
    expect(get(world, "k"), FOUND);
    advance(world, LEASE + 1);
    sweeps(world, 1);
}

static void forgotten_and_claimed_is_swept_in_its_time(void **state)
{
    struct world *world = *state;

    make_completed(world, "k", TTL);
    advance(world, MINUTE);
    forget(world, "k", false);
    make_completed(world, "k", TTL);
    advance(world, TTL - 1);
    sweeps(world, 0);
    expect(get(world, "k"), FOUND);
    advance(world, LEASE + 1);
    sweeps(world, 1);
}

static void failed_and_claimed_is_swept_in_its_time(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    fail_claim(world, "k", "A");
    make_completed(world, "other", TTL);
    advance(world, TTL / 2);
    expect(claim(world, "k", "B"), ACQUIRED);
    expect(complete(world, "k", "B", "paid"), OK);
    advance(world, TTL / 2 + LEASE);
    sweeps(world, 1); /* the other */
    expect(get(world, "k"), FOUND);
    advance(world, TTL / 2);
    sweeps(world, 1);
}

static void kept_for_ever_then_resolved_is_swept(void **state)
{
    struct world *world = *state;
    struct idem_op *op = claim_make(world, "k", "A");

    op->in.claim.ttl_us = IDEM_NEVER_US;
    op->in.claim.unknown_ttl_us = IDEM_NEVER_US;
    expect(run(world, op), ACQUIRED);
    advance(world, 365 * DAY);
    sweeps(world, 0);
    op = resolve_make(world, "k");
    op->in.resolve.ttl_us = TTL;
    expect(run(world, op), OK);
    advance(world, TTL + SECOND);
    sweeps(world, 1);
}

static void fail_of_absent_is_swept(void **state)
{
    struct world *world = *state;

    fail_claim(world, "k", "A");
    advance(world, LEASE - 1);
    sweeps(world, 0);
    advance(world, SECOND);
    sweeps(world, 1);
}

static void fence_grows_across_sweep(void **state)
{
    struct world *world = *state;
    uint64_t fence;

    make_completed(world, "k", TTL);
    fence = record_of(world, "k")->fence;
    advance(world, LEASE + TTL + SECOND);
    sweeps(world, 1);
    advance(world, -DAY);
    assert_true(claim(world, "k", "B")->out.fence > fence);
}

static void fence_grows_across_reopening(void **state)
{
    struct world *world = *state;
    uint64_t fence = claim(world, "k", "A")->out.fence;

    forget(world, "k", true);
    world_reopen(world);
    advance(world, -DAY);
    assert_true(claim(world, "k", "B")->out.fence > fence);
}

/* The clock runs on, and nothing is left of the record but what its fence must respect. */
static void fence_grows_across_expiry(void **state)
{
    struct world *world = *state;
    uint64_t fence;

    make_completed(world, "k", TTL);
    fence = record_of(world, "k")->fence;
    advance(world, TTL);
    sweep_all(world);
    assert_true(claim(world, "k", "B")->out.fence > fence);
}

/*
 * On the Chatham Islands (+12:45) summer time ended at 2024-04-06T14:00:00Z, and the hour before
 * that came again: whoever counts in local time meets every instant of it twice.
 */
#define SUMMER_ENDS (INT64_C(1712412000) * SECOND)

static void zone_set(const char *zone)
{
    setenv("TZ", zone, 1);
    setenv("PGTZ", zone, 1); /* what libpq would tell the server of it */
    tzset();
}

static void instants_know_no_zone(void **state)
{
    struct world *world = *state;
    const struct idem_record *record;
    int64_t claimed_us = SUMMER_ENDS - HOUR / 2 + 123457;

    zone_set("Pacific/Chatham");
    world_reopen(world);
    advance(world, claimed_us - START);
    claim(world, "k", "A");
    record = record_of(world, "k");
    assert_int_equal(record->created_us, claimed_us);
    assert_int_equal(record->lease_until_us, claimed_us + LEASE);
    assert_int_equal(record->expires_us, claimed_us + LEASE + UNKNOWN_TTL);
    advance(world, 1);
    expect(complete(world, "k", "A", "paid"), OK);
    zone_set("America/St_Johns");
    world_reopen(world);
    record = record_of(world, "k");
    assert_int_equal(record->updated_us, claimed_us + 1);
    assert_int_equal(record->expires_us, claimed_us + 1 + TTL);
    advance(world, TTL - 1); /* the same time of day again, on those islands */
    expect(claim(world, "k", "B"), COMPLETED);
    sweeps(world, 0);
    advance(world, 1);
    expect(claim(world, "k", "B"), ACQUIRED);
    unsetenv("TZ");
    unsetenv("PGTZ");
    tzset();
}

static void opening_leaves_nothing(void **state)
{
    struct world *world = *state;
    struct idem_op *op = op_make(world, IDEM_OP_SCAN, NULL);

    op->in.scan.limit = 10;
    assert_int_equal(run(world, op)->out.count, 0);
    advance(world, DAY);
    sweeps(world, 0);
}

static const struct rule rules[] = {
    {"an expired id is as good as absent", expired_is_absent, TRAIT_CLOCK},
    {"0 is a value: a ttl of nothing expires at once", ttl_of_nothing, 0},
    {"a ttl of never never expires", ttl_never, TRAIT_CLOCK},
    {"a ttl beyond the end of time is never", ttl_saturates, 0},
    {"a failed record expires after its ttl", failed_expires, TRAIT_CLOCK},
    {"an unknown never expires by ttl, only by its own", unknown_outlives_ttl, TRAIT_CLOCK},
    {"sweep removes what has expired and nothing else", sweep_removes_expired_only, TRAIT_CLOCK},
    {"sweep counts the unknown among the removed", sweep_counts_unknown, TRAIT_CLOCK | TRAIT_SWEPT},
    {"sweep keeps to its limit and says when there is more", sweep_keeps_to_limit,
     TRAIT_CLOCK | TRAIT_SWEPT},
    {"sweep checks expiry again inside the delete", sweep_checks_again, TRAIT_CLOCK},
    {"an expired id that is claimed anew is swept in its time", claimed_anew_is_swept_in_its_time,
     TRAIT_CLOCK},
    {"a forgotten id that is claimed anew is swept in its time",
     forgotten_and_claimed_is_swept_in_its_time, TRAIT_CLOCK},
    {"a failed id that is claimed anew is swept in its time",
     failed_and_claimed_is_swept_in_its_time, TRAIT_CLOCK},
    {"a record kept for ever and then given an end is swept", kept_for_ever_then_resolved_is_swept,
     TRAIT_CLOCK},
    {"the trace of a fail on an absent id is swept", fail_of_absent_is_swept, TRAIT_CLOCK},
    {"the fence grows across a sweep even if the clock steps back", fence_grows_across_sweep,
     TRAIT_CLOCK | TRAIT_FLOOR},
    {"the fence grows across reopening even if the clock steps back", fence_grows_across_reopening,
     TRAIT_CLOCK | TRAIT_KEPT | TRAIT_FLOOR},
    {"a fence grows across expiry", fence_grows_across_expiry, TRAIT_CLOCK},
    {"instants are the same in every time zone, over a change of summer time too",
     instants_know_no_zone, TRAIT_CLOCK | TRAIT_KEPT},
    {"opening a store leaves nothing behind", opening_leaves_nothing, TRAIT_CLOCK},
};

const struct chapter chapter_expiry = {"expiry", rules, COUNT(rules)};
