/* Verdicts and renewals: what an owner may say, and when it is too late. */
#include <string.h>

#include "contract.h"

static void complete_keeps_answer(void **state)
{
    struct world *world = *state;
    const struct idem_record *record;
    struct idem_op *op;

    claim(world, "k", "A");
    op = complete(world, "k", "A", "paid");
    expect(op, OK);
    assert_false(op->out.tombstoned);
    record = record_of(world, "k");
    assert_int_equal(record->state, IDEM_STATE_COMPLETED);
    assert_int_equal(record->answer.status, 201);
    assert_bytes(record->answer.body, text("paid"));
    assert_int_equal(record->expires_us, op->out.now_us + TTL);
}

static void first_complete_stands(void **state)
{
    struct world *world = *state;
    int64_t expires_us;

    claim(world, "k", "A");
    complete(world, "k", "A", "first");
    expires_us = record_of(world, "k")->expires_us;
    advance(world, SECOND);
    expect(complete(world, "k", "A", "second"), OK);
    assert_bytes(record_of(world, "k")->answer.body, text("first"));
    assert_int_equal(record_of(world, "k")->expires_us, expires_us);
}

static void same_fail_again_is_ok(void **state)
{
    struct world *world = *state;
    int64_t updated_us;

    claim(world, "k", "A");
    expect(fail_claim(world, "k", "A"), OK);
    updated_us = record_of(world, "k")->updated_us;
    advance(world, SECOND);
    expect(fail_claim(world, "k", "A"), OK);
    assert_int_equal(record_of(world, "k")->updated_us, updated_us);
}

static void same_abandon_again_is_ok(void **state)
{
    struct world *world = *state;
    int64_t updated_us;

    claim(world, "k", "A");
    expect(abandon(world, "k", "A"), OK);
    updated_us = record_of(world, "k")->updated_us;
    advance(world, SECOND);
    expect(abandon(world, "k", "A"), OK);
    assert_int_equal(record_of(world, "k")->updated_us, updated_us);
}

static void completed_takes_no_other_verdict(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    complete(world, "k", "A", "paid");
    expect(fail_claim(world, "k", "A"), LOST);
    expect(abandon(world, "k", "A"), LOST);
    expect(renew(world, "k", "A", LEASE), LOST);
    assert_bytes(record_of(world, "k")->answer.body, text("paid"));
}

static void failed_takes_no_other_verdict(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    fail_claim(world, "k", "A");
    expect(complete(world, "k", "A", "paid"), LOST);
    expect(abandon(world, "k", "A"), LOST);
    expect(renew(world, "k", "A", LEASE), LOST);
    assert_int_equal(record_of(world, "k")->state, IDEM_STATE_FAILED);
}

/* Nobody but the owner gets a word in, and trying changes nothing. */
static void all_lost(struct world *world, const char *owner)
{
    struct idem_record before = *record_of(world, "k");
    const struct idem_record *after;

    expect(complete(world, "k", owner, "forged"), LOST);
    expect(fail_claim(world, "k", owner), LOST);
    expect(abandon(world, "k", owner), LOST);
    expect(renew(world, "k", owner, DAY), LOST);
    after = record_of(world, "k");
    assert_int_equal(after->state, before.state);
    assert_int_equal(after->updated_us, before.updated_us);
    assert_int_equal(after->lease_until_us, before.lease_until_us);
    assert_int_equal(after->fence, before.fence);
}

static void others_are_lost(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    all_lost(world, "B");
    abandon(world, "k", "A");
    all_lost(world, "B");
    complete(world, "k", "A", "paid");
    all_lost(world, "B");
}

static void owner_taken_over_is_lost(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    abandon(world, "k", "A");
    claim_taking(world, "k", "B", IDEM_TAKE_ANY, 0);
    all_lost(world, "A");
    complete(world, "k", "B", "paid");
    all_lost(world, "A");
}

static void owner_of_failed_and_taken_is_lost(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    fail_claim(world, "k", "A");
    claim(world, "k", "B");
    all_lost(world, "A");
}

static void abandoned_takes_late_complete(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    abandon(world, "k", "A");
    expect(complete(world, "k", "A", "late"), OK);
    assert_bytes(record_of(world, "k")->answer.body, text("late"));
    assert_int_equal(record_of(world, "k")->reason, IDEM_REASON_NONE);
}

static void abandoned_takes_late_fail(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    abandon(world, "k", "A");
    expect(fail_claim(world, "k", "A"), OK);
    expect(claim(world, "k", "B"), ACQUIRED);
}

static void lapsed_takes_late_complete(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, 3 * LEASE);
    expect(complete(world, "k", "A", "late"), OK);
    expect(claim(world, "k", "B"), COMPLETED);
}

static void lapsed_takes_late_fail(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, 3 * LEASE);
    expect(fail_claim(world, "k", "A"), OK);
    expect(claim(world, "k", "B"), ACQUIRED);
}

static void lapsed_takes_late_abandon(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, 3 * LEASE);
    expect(abandon(world, "k", "A"), OK);
    assert_int_equal(record_of(world, "k")->reason, IDEM_REASON_UNANSWERED);
    expect(claim(world, "k", "B"), UNKNOWN);
}

static void abandon_keeps_its_reason(void **state)
{
    static const enum idem_reason reasons[] = {
        IDEM_REASON_NONE,     IDEM_REASON_UNANSWERED, IDEM_REASON_TRUNCATED, IDEM_REASON_STATUS,
        IDEM_REASON_DECLARED, IDEM_REASON_ABORTED,    IDEM_REASON_INVALID,
    };
    struct world *world = *state;
    char key[] = "k0";

    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++, key[1]++) {
        struct idem_op *op;

        claim(world, key, "A");
        op = verdict_make(world, IDEM_OP_ABANDON, key, "A");
        op->in.verdict.reason = reasons[i];
        expect(run(world, op), OK);
        assert_int_equal(record_of(world, key)->reason, reasons[i]);
    }
}

static void abandon_keeps_expiry(void **state)
{
    struct world *world = *state;
    int64_t expires_us;

    claim(world, "k", "A");
    expires_us = record_of(world, "k")->expires_us;
    advance(world, SECOND);
    abandon(world, "k", "A");
    assert_int_equal(record_of(world, "k")->expires_us, expires_us);
}

static void nothing_comes_of_absent(void **state)
{
    struct world *world = *state;

    expect(complete(world, "k", "A", "paid"), LOST);
    expect(renew(world, "k", "A", LEASE), LOST);
    expect(abandon(world, "k", "A"), LOST);
    expect(get(world, "k"), ABSENT);
}

static void fail_of_absent_ends_late_claim(void **state)
{
    struct world *world = *state;

    expect(fail_claim(world, "k", "A"), OK);
    expect(claim(world, "k", "A"), ENDED);
    expect(fail_claim(world, "k", "A"), OK);
    expect(claim(world, "k", "A"), ENDED);
}

static void fail_of_absent_bars_nobody_else(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    fail_claim(world, "k", "A");
    op = claim_make(world, "k", "B");
    op->in.claim.fingerprint = payload_of("whatever");
    op->in.claim.principal = caller_of("whoever");
    expect(run(world, op), ACQUIRED);
    assert_int_equal(op->out.attempt, 1);
    expect(claim(world, "k", "A"), MISMATCH);
    assert_bytes(record_of(world, "k")->key, text("k"));
}

static void fail_of_absent_lasts_one_lease(void **state)
{
    struct world *world = *state;

    fail_claim(world, "k", "A");
    assert_int_equal(record_of(world, "k")->expires_us, START + LEASE);
    advance(world, LEASE - 1);
    expect(claim(world, "k", "A"), ENDED);
    advance(world, 1);
    expect(get(world, "k"), ABSENT);
}

static void fail_of_expired_is_fail_of_absent(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    complete(world, "k", "A", "paid");
    advance(world, TTL);
    expect(fail_claim(world, "k", "B"), OK);
    expect(claim(world, "k", "B"), ENDED);
    expect(claim(world, "k", "C"), ACQUIRED);
}

static void complete_of_expired_is_lost(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, LEASE + UNKNOWN_TTL);
    expect(complete(world, "k", "A", "paid"), LOST);
    expect(renew(world, "k", "A", LEASE), LOST);
    expect(abandon(world, "k", "A"), LOST);
    expect(get(world, "k"), ABSENT);
}

static void renew_moves_lease(void **state)
{
    struct world *world = *state;
    const struct idem_record *record;

    claim(world, "k", "A");
    advance(world, 6 * SECOND);
    expect(renew(world, "k", "A", LEASE), OK);
    record = record_of(world, "k");
    assert_int_equal(record->lease_until_us, START + 6 * SECOND + LEASE);
    assert_int_equal(record->expires_us, START + 6 * SECOND + LEASE + UNKNOWN_TTL);
    advance(world, 6 * SECOND);
    expect(claim(world, "k", "B"), IN_PROGRESS);
}

static void renew_never_moves_lease_back(void **state)
{
    struct world *world = *state;
    int64_t until_us;

    claim(world, "k", "A");
    until_us = record_of(world, "k")->lease_until_us;
    expect(renew(world, "k", "A", SECOND / 10), OK);
    assert_int_equal(record_of(world, "k")->lease_until_us, until_us);
    assert_int_equal(record_of(world, "k")->state, IDEM_STATE_PROCESSING);
    advance(world, -SECOND);
    expect(renew(world, "k", "A", LEASE), OK);
    assert_int_equal(record_of(world, "k")->lease_until_us, until_us);
}

static void renew_of_lapsed_is_lost(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    advance(world, LEASE);
    expect(renew(world, "k", "A", LEASE), LOST);
    expect(claim(world, "k", "B"), UNKNOWN);
}

static void renew_of_abandoned_is_lost(void **state)
{
    struct world *world = *state;

    claim(world, "k", "A");
    abandon(world, "k", "A");
    expect(renew(world, "k", "A", LEASE), LOST);
}

/* Completes "k" with an answer and expects it back byte by byte. */
static void answer_comes_back(struct world *world, struct idem_answer answer)
{
    struct idem_op *op = verdict_make(world, IDEM_OP_COMPLETE, "k", "A");
    const struct idem_answer *kept;

    expect(claim(world, "k", "A"), ACQUIRED);
    op->in.verdict.answer = answer;
    expect(run(world, op), OK);
    kept = &record_of(world, "k")->answer;
    assert_int_equal(kept->status, answer.status);
    assert_int_equal(kept->flags, answer.flags);
    assert_int_equal(kept->tombstone, answer.tombstone);
    assert_bytes(kept->headers, answer.headers);
    assert_bytes(kept->body, answer.body);
    expect(forget(world, "k", false), OK);
}

static void empty_answers_are_answers(void **state)
{
    struct world *world = *state;

    answer_comes_back(world, (struct idem_answer){.status = 204});
    answer_comes_back(world, (struct idem_answer){.status = 200, .flags = 0xffff});
}

static void answers_are_bytes(void **state)
{
    static const uint8_t body[] = {0, 1, 2, '\n', '\r', 0, 0xff, 0xfe, 0};
    uint8_t headers[256];
    size_t size = 0;
    struct world *world = *state;

    size = idem_headers_append(headers, size, sizeof headers, text("Set-Thing"), text("b"));
    size = idem_headers_append(headers, size, sizeof headers, text("X"), text(""));
    size = idem_headers_append(headers, size, sizeof headers, text("Set-Thing"), text("a\xe9"));
    answer_comes_back(world, (struct idem_answer){.status = 418,
                                                  .headers = idem_bytes_make(headers, size),
                                                  .body = idem_bytes_make(body, sizeof body)});
}

static void answers_of_every_size(void **state)
{
    static const size_t sizes[] = {1, 500, 2000, 4000, 4096, 5000, 70000, 1u << 20};
    struct world *world = *state;
    uint8_t *body = malloc(1u << 20);

    assert_non_null(body);
    for (size_t i = 0; i < 1u << 20; i++)
        body[i] = (uint8_t)(i * 31 + (i >> 8));
    for (size_t i = 0; i < COUNT(sizes); i++)
        answer_comes_back(
            world, (struct idem_answer){.status = 200, .body = idem_bytes_make(body, sizes[i])});
    free(body);
}

static void tombstones_are_kept(void **state)
{
    struct world *world = *state;

    answer_comes_back(world,
                      (struct idem_answer){.status = 200, .tombstone = IDEM_REASON_TOO_LARGE});
    answer_comes_back(world, (struct idem_answer){.tombstone = IDEM_REASON_TOO_LARGE});
}

static const struct rule rules[] = {
    {"complete keeps the answer, and counts the ttl from then", complete_keeps_answer, 0},
    {"the first complete stands", first_complete_stands, TRAIT_CLOCK},
    {"the same fail again is ok and changes nothing", same_fail_again_is_ok, TRAIT_CLOCK},
    {"the same abandon again is ok and changes nothing", same_abandon_again_is_ok, TRAIT_CLOCK},
    {"a completed record takes no other verdict", completed_takes_no_other_verdict, 0},
    {"a failed record takes no other verdict", failed_takes_no_other_verdict, 0},
    {"nobody but the owner gets a word in", others_are_lost, 0},
    {"an owner that was taken over is lost", owner_taken_over_is_lost, 0},
    {"an owner whose failed record was taken is lost", owner_of_failed_and_taken_is_lost, 0},
    {"an abandoned record takes its own owner's late complete", abandoned_takes_late_complete, 0},
    {"an abandoned record takes its own owner's late fail", abandoned_takes_late_fail, 0},
    {"a lapsed record takes its own owner's late complete", lapsed_takes_late_complete,
     TRAIT_CLOCK},
    {"a lapsed record takes its own owner's late fail", lapsed_takes_late_fail, TRAIT_CLOCK},
    {"a lapsed record takes its own owner's late abandon", lapsed_takes_late_abandon, TRAIT_CLOCK},
    {"abandon keeps every reason that an unknown may have", abandon_keeps_its_reason, 0},
    {"abandon does not move the expiry", abandon_keeps_expiry, TRAIT_CLOCK},
    {"on an absent id complete, abandon and renew are lost and create nothing",
     nothing_comes_of_absent, 0},
    {"fail on an absent id makes the late claim end", fail_of_absent_ends_late_claim, 0},
    {"fail on an absent id bars nobody else", fail_of_absent_bars_nobody_else, 0},
    {"fail on an absent id lasts one lease", fail_of_absent_lasts_one_lease, TRAIT_CLOCK},
    {"fail on an expired id is fail on an absent one", fail_of_expired_is_fail_of_absent,
     TRAIT_CLOCK},
    {"every other verdict on an expired id is lost", complete_of_expired_is_lost, TRAIT_CLOCK},
    {"renew moves lease and expiry", renew_moves_lease, TRAIT_CLOCK},
    {"renew never moves a lease back", renew_never_moves_lease_back, TRAIT_CLOCK},
    {"renew of a lapsed lease is lost", renew_of_lapsed_is_lost, TRAIT_CLOCK},
    {"renew of an abandoned claim is lost", renew_of_abandoned_is_lost, 0},
    {"empty answers are answers", empty_answers_are_answers, 0},
    {"answers are bytes, header lines in order with repeats", answers_are_bytes, 0},
    {"answers of every size come back whole", answers_of_every_size, 0},
    {"tombstones are kept with their reason and status", tombstones_are_kept, 0},
};

const struct chapter chapter_verdict = {"verdicts", rules, COUNT(rules)};
