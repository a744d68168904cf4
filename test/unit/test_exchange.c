/* The exchange as scripts: what comes in on the left, what it makes of it on the right. */
#include "exchange_script.h"
#include "unit.h"

static struct script x;

static int fresh(void **state)
{
    (void)state;
    script_init(&x);
    return 0;
}

/* The way to the upstream, which most scripts begin with. */
static void until_forwarded(void)
{
    STEP(&x, "request", "claim");
    STEP(&x, "claim acquired 1 7", "timer 3000 ms, forward 1 7");
}

static void test_first_execution(void **state)
{
    (void)state;
    until_forwarded();
    STEP(&x, "head 201", "-");
    STEP(&x, "body 60", "-");
    STEP(&x, "body 40", "-");
    STEP(&x, "end", "complete");
    STEP(&x, "complete ok", "deliver");
    STEP(&x, "aborted sent", "-");
}

static void test_replay(void **state)
{
    (void)state;
    STEP(&x, "request", "claim");
    STEP(&x, "claim completed", "replay");
    STEP(&x, "aborted unsent", "-");
}

static void test_refusals_of_a_claim(void **state)
{
    static const char *const CASES[][2] = {
        {"claim in_progress", "refuse in-progress 409"},
        {"claim unknown", "refuse outcome-unknown 409"},
        {"claim mismatch", "refuse key-reused 422"},
        {"claim other_principal", "refuse other-caller 403"},
        {"claim tombstone", "refuse answer-not-kept 409"},
        {"claim full", "refuse store-full 503"},
        {"claim ended", "fail in background, refuse store-unavailable 503"},
        {"claim corrupt", "refuse store-unavailable 503"},
        {"claim refused", "refuse store-unavailable 503"},
        {"claim failed", "fail in background, refuse store-unavailable 503"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        script_init(&x);
        STEP(&x, "request", "claim");
        STEP(&x, CASES[i][0], CASES[i][1]);
        STEP(&x, "aborted unsent", "-");
    }
}

static void test_fail_open_is_for_a_store_that_cannot_guard(void **state)
{
    static const char *const CASES[][2] = {
        {"claim full", "bypass"},
        {"claim refused", "bypass"},
        {"claim failed", "fail in background, bypass"},
        {"claim corrupt", "refuse store-unavailable 503"},
        {"claim in_progress", "refuse in-progress 409"},
        {"claim mismatch", "refuse key-reused 422"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        script_init(&x);
        x.policy.fail_open = true;
        script_restart(&x);
        STEP(&x, "request", "claim");
        STEP(&x, CASES[i][0], CASES[i][1]);
    }
}

static void test_tombstone_tells_the_first_status(void **state)
{
    (void)state;
    STEP(&x, "request", "claim");
    STEP(&x, "claim tombstone", "refuse answer-not-kept 409");
    assert_int_equal(x.effects.items[0].problem.original_status, 201);
}

static void test_a_late_claim_is_not_forwarded(void **state)
{
    (void)state;
    STEP(&x, "request", "claim");
    STEP(&x, "claim failed", "fail in background, refuse store-unavailable 503");
    STEP(&x, "claim acquired 1 7", "-");
}

static void test_renewal(void **state)
{
    (void)state;
    until_forwarded();
    STEP(&x, "tick", "renew");
    STEP(&x, "renew ok", "timer 3000 ms");
    STEP(&x, "tick", "renew");
    STEP(&x, "renew failed", "timer 1500 ms");
    STEP(&x, "tick", "renew");
    STEP(&x, "renew lost", "-");
    STEP(&x, "head 200", "-");
    STEP(&x, "end", "complete");
    STEP(&x, "tick", "-");
    STEP(&x, "renew ok", "-");
    STEP(&x, "complete ok", "deliver");
}

static void test_status_decides_the_verdict(void **state)
{
    static const char *const CASES[][2] = {
        {"head 200", "complete"},
        {"head 302", "complete"},
        {"head 402", "complete"},
        {"head 409", "complete"},
        {"head 401", "fail"},
        {"head 429", "fail"},
        {"head 500", "fail"},
        {"head 503", "fail"},
        {"head 502", "abandon"},
        {"head 504", "abandon"},
        {"head 103", "abandon"},
        {"head 500 final", "complete"},
        {"head 201 failed", "fail"},
        {"head 201 unknown", "abandon"},
        {"head 504 failed", "fail"},
        {"head 200 own=503", "fail"},
        {"head 502 own=402", "complete"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        script_init(&x);
        until_forwarded();
        STEP(&x, CASES[i][0], "-");
        STEP(&x, "end", CASES[i][1]);
    }
}

static void test_evidence_decides_when_no_answer_comes(void **state)
{
    (void)state;
    until_forwarded();
    STEP(&x, "upstream unsent", "fail");
    STEP(&x, "fail ok", "refuse upstream-unreachable 502");

    script_init(&x);
    until_forwarded();
    STEP(&x, "upstream unanswered 504", "abandon");
    assert_int_equal(x.exchange.reason, IDEM_REASON_UNANSWERED);
    STEP(&x, "abandon ok", "refuse upstream-unanswered 504");

    script_init(&x);
    until_forwarded();
    STEP(&x, "upstream invalid", "abandon");
    assert_int_equal(x.exchange.reason, IDEM_REASON_INVALID);
    STEP(&x, "abandon ok", "refuse upstream-unanswered 502");

    script_init(&x);
    until_forwarded();
    STEP(&x, "head 200", "-");
    STEP(&x, "body 10", "-");
    STEP(&x, "upstream truncated", "abandon");
    assert_int_equal(x.exchange.reason, IDEM_REASON_TRUNCATED);
    STEP(&x, "abandon ok", "refuse upstream-unanswered 502");
}

static void test_overflow_is_recorded_before_a_byte_leaves(void **state)
{
    struct idem_op op;

    (void)state;
    until_forwarded();
    STEP(&x, "head 200", "-");
    STEP(&x, "body 100", "-");
    STEP(&x, "body 1", "complete");
    idem_exchange_op(&x.exchange, &x.effects.items[0], &op);
    assert_int_equal(op.in.verdict.answer.tombstone, IDEM_REASON_TOO_LARGE);
    assert_int_equal(op.in.verdict.answer.status, 200);
    STEP(&x, "body 5000", "-");
    STEP(&x, "complete ok", "deliver");
    STEP(&x, "end", "-");

    script_init(&x);
    until_forwarded();
    STEP(&x, "head 200 length=101", "complete");
    assert_true(x.exchange.overflow);

    script_init(&x);
    until_forwarded();
    STEP(&x, "head 503 length=101", "fail");
}

static void test_an_answer_at_the_maximum_is_kept(void **state)
{
    struct idem_op op;

    (void)state;
    until_forwarded();
    STEP(&x, "head 200 length=100", "-");
    STEP(&x, "body 100", "-");
    STEP(&x, "end", "complete");
    idem_exchange_op(&x.exchange, &x.effects.items[0], &op);
    assert_int_equal(op.in.verdict.answer.tombstone, IDEM_REASON_NONE);
}

/* Somebody took the record over, or settled it: the record is what the client gets. */
static void test_lost_answers_from_the_record(void **state)
{
    static const char *const CASES[][2] = {
        {"get completed", "replay"},
        {"get tombstone", "refuse answer-not-kept 409"},
        {"get processing", "refuse in-progress 409"},
        {"get unknown", "refuse outcome-unknown 409"},
        {"get released", "deliver unrecorded"},
        {"get absent", "deliver unrecorded"},
        {"get mismatch", "deliver unrecorded"},
        {"get failed", "deliver unrecorded"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        script_init(&x);
        until_forwarded();
        STEP(&x, "head 201", "-");
        STEP(&x, "end", "complete");
        STEP(&x, "complete lost", "get");
        STEP(&x, CASES[i][0], CASES[i][1]);
    }
}

static void test_a_verdict_that_the_store_did_not_take_is_told(void **state)
{
    (void)state;
    until_forwarded();
    STEP(&x, "head 201", "-");
    STEP(&x, "end", "complete");
    STEP(&x, "complete failed", "deliver unrecorded");
    STEP(&x, "complete ok", "-");
}

static void test_the_client_may_go(void **state)
{
    (void)state;
    until_forwarded();
    STEP(&x, "client gone", "-");
    STEP(&x, "head 201", "-");
    STEP(&x, "end", "complete");
    STEP(&x, "client gone", "-");
    STEP(&x, "complete ok", "deliver");
}

static void test_no_path_leaves_a_claim_without_a_verdict(void **state)
{
    (void)state;
    STEP(&x, "aborted unsent", "-");

    script_init(&x);
    STEP(&x, "request", "claim");
    STEP(&x, "aborted unsent", "fail in background");

    script_init(&x);
    until_forwarded();
    STEP(&x, "aborted unsent", "fail in background");

    script_init(&x);
    until_forwarded();
    STEP(&x, "aborted sent", "abandon in background");
    assert_int_equal(x.exchange.reason, IDEM_REASON_ABORTED);
}

static void test_a_second_upstream_gets_only_what_the_first_did_not(void **state)
{
    (void)state;
    until_forwarded();
    STEP(&x, "rerouted unsent", "forward 1 7");
    STEP(&x, "rerouted unsent", "forward 1 7");
    STEP(&x, "rerouted sent", "abandon");
    STEP(&x, "abandon ok", "refuse upstream-unanswered 502");

    script_init(&x);
    until_forwarded();
    STEP(&x, "rerouted sent 503", "fail");
    STEP(&x, "fail ok", "refuse upstream-unanswered 502");

    script_init(&x);
    until_forwarded();
    STEP(&x, "rerouted sent 404", "complete");
    STEP(&x, "complete ok", "refuse answer-not-kept 409");
}

static void test_a_lost_claim_is_not_given_to_another_upstream(void **state)
{
    (void)state;
    until_forwarded();
    STEP(&x, "tick", "renew");
    STEP(&x, "renew lost", "-");
    STEP(&x, "rerouted unsent", "fail");
    STEP(&x, "fail lost", "get");
    STEP(&x, "get completed", "replay");
}

static void test_one_renewal_at_a_time(void **state)
{
    (void)state;
    until_forwarded();
    STEP(&x, "tick", "renew");
    STEP(&x, "tick", "-");
    STEP(&x, "renew ok", "timer 3000 ms");
    STEP(&x, "tick", "renew");
}

static void test_ops_carry_what_the_policy_says(void **state)
{
    struct idem_op op;

    (void)state;
    x.policy.ttl_us = 5;
    x.policy.unknown_ttl_us = 6;
    x.policy.unknown = IDEM_UNKNOWN_RETRY;
    script_restart(&x);

    STEP(&x, "request", "claim");
    idem_exchange_op(&x.exchange, &x.effects.items[0], &op);
    assert_int_equal(op.kind, IDEM_OP_CLAIM);
    assert_int_equal(op.in.claim.lease_us, x.policy.lease_us);
    assert_int_equal(op.in.claim.ttl_us, 5);
    assert_int_equal(op.in.claim.unknown_ttl_us, 6);
    assert_int_equal(op.in.claim.take, IDEM_TAKE_NONE);

    STEP(&x, "claim acquired 2 9", "timer 3000 ms, forward 2 9");
    STEP(&x, "upstream unsent", "fail");
    idem_exchange_op(&x.exchange, &x.effects.items[0], &op);
    assert_int_equal(op.in.verdict.ttl_us, 5);
    assert_int_equal(op.in.verdict.lease_us, x.policy.lease_us);
    assert_true(idem_owner_equal(&op.in.verdict.owner, &x.exchange.claim.owner));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_first_execution, fresh),
        cmocka_unit_test_setup(test_replay, fresh),
        cmocka_unit_test_setup(test_refusals_of_a_claim, fresh),
        cmocka_unit_test_setup(test_fail_open_is_for_a_store_that_cannot_guard, fresh),
        cmocka_unit_test_setup(test_tombstone_tells_the_first_status, fresh),
        cmocka_unit_test_setup(test_a_late_claim_is_not_forwarded, fresh),
        cmocka_unit_test_setup(test_renewal, fresh),
        cmocka_unit_test_setup(test_status_decides_the_verdict, fresh),
        cmocka_unit_test_setup(test_evidence_decides_when_no_answer_comes, fresh),
        cmocka_unit_test_setup(test_overflow_is_recorded_before_a_byte_leaves, fresh),
        cmocka_unit_test_setup(test_an_answer_at_the_maximum_is_kept, fresh),
        cmocka_unit_test_setup(test_lost_answers_from_the_record, fresh),
        cmocka_unit_test_setup(test_a_verdict_that_the_store_did_not_take_is_told, fresh),
        cmocka_unit_test_setup(test_the_client_may_go, fresh),
        cmocka_unit_test_setup(test_no_path_leaves_a_claim_without_a_verdict, fresh),
        cmocka_unit_test_setup(test_a_second_upstream_gets_only_what_the_first_did_not, fresh),
        cmocka_unit_test_setup(test_a_lost_claim_is_not_given_to_another_upstream, fresh),
        cmocka_unit_test_setup(test_one_renewal_at_a_time, fresh),
        cmocka_unit_test_setup(test_ops_carry_what_the_policy_says, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
