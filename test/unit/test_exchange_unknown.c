/* Policies `retry` and `probe`: what is done, and what is never done, where an attempt is unknown.
 */
#include "exchange_script.h"
#include "unit.h"

static struct script x;

static void begin(enum idem_unknown_policy unknown)
{
    script_init(&x);
    x.policy.unknown = unknown;
    script_restart(&x);
}

static int probe(void **state)
{
    (void)state;
    begin(IDEM_UNKNOWN_PROBE);
    return 0;
}

static int retry(void **state)
{
    (void)state;
    begin(IDEM_UNKNOWN_RETRY);
    return 0;
}

static void until_probing(void)
{
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking 7");
    STEP(&x, "claim acquired 2 9", "timer 3000 ms, probe 2 9");
    assert_int_equal(x.effects.items[1].requires, IDEM_DURABLE_CLAIM);
}

static void until_confirming(void)
{
    until_probing();
    STEP(&x, "head 404", "-");
    STEP(&x, "end", "renew");
}

static void until_taken_by_retry(void)
{
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking any");
    STEP(&x, "claim acquired 2 9", "timer 3000 ms, forward 2 9");
}

/* ---- probe */

static void test_not_executed_is_executed_now(void **state)
{
    (void)state;
    until_confirming();
    STEP(&x, "renew ok", "timer 3000 ms, forward 2 9");
    assert_int_equal(x.effects.items[1].requires, IDEM_DURABLE_CLAIM);
    STEP(&x, "head 201", "-");
    STEP(&x, "end", "complete");
    STEP(&x, "complete ok", "deliver");
}

/* The probe's own bytes count for nothing in what follows. */
static void test_the_execution_begins_afresh(void **state)
{
    (void)state;
    until_probing();
    STEP(&x, "head 404", "-");
    STEP(&x, "body 90", "-");
    STEP(&x, "end", "renew");
    STEP(&x, "renew ok", "timer 3000 ms, forward 2 9");
    STEP(&x, "body 90", "-");
    STEP(&x, "end", "-");
    STEP(&x, "head 200", "-");
    STEP(&x, "body 90", "-");
    STEP(&x, "end", "complete");
}

static void test_the_answer_of_a_probe_is_recorded_and_delivered(void **state)
{
    struct idem_op op;

    (void)state;
    until_probing();
    STEP(&x, "head 201 final", "-");
    STEP(&x, "body 100", "-");
    STEP(&x, "end", "complete");
    idem_exchange_op(&x.exchange, &x.effects.items[0], &op);
    assert_int_equal(op.in.verdict.answer.status, 201);
    assert_int_equal(op.in.verdict.answer.tombstone, IDEM_REASON_NONE);
    STEP(&x, "complete ok", "deliver");
}

/* Unrecorded it may be another caller's, who has got the key since this claim was lost. */
static void test_the_answer_of_a_probe_is_never_delivered_unrecorded(void **state)
{
    static const char *const LOOKS[] = {"get absent", "get released", "get failed"};

    (void)state;
    until_probing();
    STEP(&x, "head 201 final", "-");
    STEP(&x, "end", "complete");
    STEP(&x, "complete failed", "refuse outcome-unknown 409");

    for (size_t i = 0; i < sizeof(LOOKS) / sizeof(LOOKS[0]); i++) {
        probe(NULL);
        until_probing();
        STEP(&x, "head 201 final", "-");
        STEP(&x, "end", "complete");
        STEP(&x, "complete lost", "get");
        STEP(&x, LOOKS[i], "refuse outcome-unknown 409");
    }

    probe(NULL);
    until_probing();
    STEP(&x, "head 201 final", "-");
    STEP(&x, "body 101", "complete");
    STEP(&x, "complete failed", "refuse outcome-unknown 409");

    /* The request's own answer, after the probe has cleared the way, is. */
    probe(NULL);
    until_confirming();
    STEP(&x, "renew ok", "timer 3000 ms, forward 2 9");
    STEP(&x, "head 201", "-");
    STEP(&x, "end", "complete");
    STEP(&x, "complete failed", "deliver unrecorded");
}

static void test_an_answer_over_the_maximum_is_a_tombstone(void **state)
{
    struct idem_op op;

    (void)state;
    until_probing();
    STEP(&x, "head 200 final", "-");
    STEP(&x, "body 101", "complete");
    idem_exchange_op(&x.exchange, &x.effects.items[0], &op);
    assert_int_equal(op.in.verdict.answer.tombstone, IDEM_REASON_TOO_LARGE);
    STEP(&x, "complete ok", "deliver");

    probe(NULL);
    x.policy.trust = true;
    until_probing();
    STEP(&x, "head 200 length=101", "complete");
    assert_true(x.exchange.overflow);
}

/* Many bytes of "not executed" are no reason to wait for all of them, and none to execute. */
static void test_an_endless_404_settles_nothing(void **state)
{
    (void)state;
    until_probing();
    STEP(&x, "head 404 length=101", "abandon");

    probe(NULL);
    until_probing();
    STEP(&x, "head 404", "-");
    STEP(&x, "body 101", "abandon");
    STEP(&x, "end", "-");
}

static void test_what_an_answer_to_a_probe_is_worth(void **state)
{
    static const struct {
        const char *head;
        bool trust;
        const char *at_head, *at_end;
    } CASES[] = {
        {"head 404", false, "-", "renew"},           {"head 404 failed", false, "-", "renew"},
        {"head 200 own=404", false, "-", "renew"},   {"head 404 final", false, "abandon", "-"},
        {"head 404 unknown", false, "abandon", "-"}, {"head 404 own=500", false, "abandon", "-"},
        {"head 200 final", false, "-", "complete"},  {"head 204 final", false, "-", "complete"},
        {"head 200", false, "abandon", "-"},         {"head 200 failed", false, "abandon", "-"},
        {"head 200 unknown", false, "abandon", "-"}, {"head 402 final", false, "abandon", "-"},
        {"head 500 failed", false, "abandon", "-"},  {"head 410", false, "abandon", "-"},
        {"head 503", false, "abandon", "-"},         {"head 302", false, "abandon", "-"},
        {"head 200", true, "-", "complete"},         {"head 200 final", true, "-", "complete"},
        {"head 200 failed", true, "abandon", "-"},   {"head 200 unknown", true, "abandon", "-"},
        {"head 302", true, "abandon", "-"},          {"head 404", true, "-", "renew"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        probe(NULL);
        x.policy.trust = CASES[i].trust;
        until_probing();
        STEP(&x, CASES[i].head, CASES[i].at_head);
        STEP(&x, "end", CASES[i].at_end);
    }
}

static void test_still_unknown_is_told_once_it_is_recorded(void **state)
{
    static const struct {
        const char *event;
        enum idem_reason reason;
    } CASES[] = {
        {"head 500", IDEM_REASON_STATUS},
        {"head 200 unknown", IDEM_REASON_DECLARED},
        {"upstream unsent", IDEM_REASON_UNANSWERED},
        {"upstream unanswered 504", IDEM_REASON_UNANSWERED},
        {"upstream truncated", IDEM_REASON_TRUNCATED},
        {"upstream invalid", IDEM_REASON_INVALID},
        {"rerouted unsent", IDEM_REASON_UNANSWERED},
        {"rerouted sent 404", IDEM_REASON_UNANSWERED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        probe(NULL);
        until_probing();
        STEP(&x, CASES[i].event, "abandon");
        assert_int_equal(x.exchange.reason, CASES[i].reason);
        STEP(&x, "abandon ok", "refuse outcome-unknown 409");
        assert_int_equal(x.effects.items[0].requires, IDEM_DURABLE_VERDICT);
    }
}

/* A 404 that is cut short is no 404. */
static void test_half_a_404_is_no_answer(void **state)
{
    (void)state;
    until_probing();
    STEP(&x, "head 404", "-");
    STEP(&x, "upstream truncated", "abandon");
    STEP(&x, "end", "-");
}

static void test_an_abandon_that_is_lost_tells_what_the_record_says(void **state)
{
    static const char *const CASES[][2] = {
        {"get completed", "replay"},
        {"get processing", "refuse in-progress 409"},
        {"get unknown", "refuse outcome-unknown 409"},
        {"get released", "refuse outcome-unknown 409"},
        {"get absent", "refuse outcome-unknown 409"},
        {"get failed", "refuse outcome-unknown 409"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        probe(NULL);
        until_probing();
        STEP(&x, "head 500", "abandon");
        STEP(&x, "abandon lost", "get");
        STEP(&x, CASES[i][0], CASES[i][1]);
    }
    probe(NULL);
    until_probing();
    STEP(&x, "head 500", "abandon");
    STEP(&x, "abandon failed", "refuse outcome-unknown 409");
}

static void test_the_lease_is_renewed_while_the_upstream_thinks(void **state)
{
    (void)state;
    until_probing();
    STEP(&x, "tick", "renew");
    STEP(&x, "renew ok", "timer 3000 ms");
    STEP(&x, "tick", "renew");
    STEP(&x, "renew failed", "timer 1500 ms");
    STEP(&x, "client gone", "-");
    STEP(&x, "head 200 final", "-");
    STEP(&x, "end", "complete");
}

/* Who lost the claim, or cannot know whether, does not send the request. */
static void test_without_the_claim_nothing_is_forwarded(void **state)
{
    static const char *const CASES[] = {"renew lost", "renew failed", "renew refused"};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        probe(NULL);
        until_confirming();
        STEP(&x, CASES[i], "abandon");
        assert_int_equal(x.exchange.reason, IDEM_REASON_ABORTED);
        STEP(&x, "renew ok", "-");
        STEP(&x, "abandon lost", "get");
        STEP(&x, "get completed", "replay");
    }
    probe(NULL);
    until_probing();
    STEP(&x, "tick", "renew");
    STEP(&x, "renew lost", "-");
    STEP(&x, "head 404", "-");
    STEP(&x, "end", "renew");
    STEP(&x, "renew lost", "abandon");
}

/* A renewal from before the 404 says nothing about the time after it, however late it comes. */
static void test_an_older_renewal_confirms_nothing(void **state)
{
    static const char *const OLDER[] = {"renew ok", "renew failed", "renew lost"};

    (void)state;
    for (size_t i = 0; i < sizeof(OLDER) / sizeof(OLDER[0]); i++) {
        probe(NULL);
        until_probing();
        STEP(&x, "tick", "renew");
        STEP(&x, "head 404", "-");
        STEP(&x, "end", "-");
        STEP(&x, "tick", "-");
        STEP(&x, OLDER[i], "renew");
        STEP(&x, "renew ok", "timer 3000 ms, forward 2 9");
    }
}

static void test_no_prober_leaves_a_claim_without_a_verdict(void **state)
{
    (void)state;
    STEP(&x, "request", "claim");
    STEP(&x, "aborted unsent", "fail in background");

    probe(NULL);
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking 7");
    STEP(&x, "aborted unsent", "abandon in background");

    probe(NULL);
    until_probing();
    STEP(&x, "aborted unsent", "abandon in background");
    assert_int_equal(x.exchange.reason, IDEM_REASON_ABORTED);

    probe(NULL);
    until_confirming();
    STEP(&x, "aborted unsent", "abandon in background");

    probe(NULL);
    until_confirming();
    STEP(&x, "renew ok", "timer 3000 ms, forward 2 9");
    STEP(&x, "aborted unsent", "fail in background");
}

/* The take-over may have worked. Under it nothing was sent, but before it something was. */
static void test_a_take_over_without_a_result_is_never_failed(void **state)
{
    (void)state;
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking 7");
    STEP(&x, "claim failed", "abandon in background, refuse store-unavailable 503");

    probe(NULL);
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking 7");
    STEP(&x, "claim refused", "refuse store-unavailable 503");
}

static void test_what_else_a_take_over_may_find(void **state)
{
    static const char *const CASES[][2] = {
        {"claim unknown 2 9", "refuse outcome-unknown 409"},
        {"claim in_progress 2 9", "refuse in-progress 409"},
        {"claim completed", "replay"},
        {"claim tombstone", "refuse answer-not-kept 409"},
        {"claim full", "refuse store-full 503"},
        {"claim ended", "abandon in background, refuse store-unavailable 503"},
        {"claim mismatch", "refuse key-reused 422"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        probe(NULL);
        x.policy.fail_open = true; /* never where an unknown was seen */
        STEP(&x, "request", "claim");
        STEP(&x, "claim unknown 1 7", "claim taking 7");
        STEP(&x, CASES[i][0], CASES[i][1]);
    }
}

static void test_who_waits_for_another_prober_does_not_probe_after_it(void **state)
{
    (void)state;
    x.policy.wait_us = 5 * IDEM_SECOND_US;
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking 7");
    STEP(&x, "claim in_progress 2 9", "timer 20 ms");
    STEP(&x, "tick 20", "claim");
    STEP(&x, "claim unknown 2 9", "refuse outcome-unknown 409");
}

/* In doubt it asks: what was released meanwhile may have been unknown before. */
static void test_what_is_free_after_an_unknown_is_probed_too(void **state)
{
    (void)state;
    x.policy.wait_us = 5 * IDEM_SECOND_US;
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking 7");
    STEP(&x, "claim in_progress 2 9", "timer 20 ms");
    STEP(&x, "tick 20", "claim");
    STEP(&x, "claim acquired 3 11", "timer 3000 ms, probe 3 11");
}

static void test_a_waiter_probes_what_it_waited_for(void **state)
{
    (void)state;
    x.policy.wait_us = 5 * IDEM_SECOND_US;
    STEP(&x, "request", "claim");
    STEP(&x, "claim in_progress 1 7", "timer 20 ms");
    STEP(&x, "tick 20", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking 7");
    STEP(&x, "claim acquired 2 9", "timer 3000 ms, probe 2 9");
}

static void test_a_fresh_key_is_not_probed(void **state)
{
    (void)state;
    STEP(&x, "request", "claim");
    STEP(&x, "claim acquired 1 7", "timer 3000 ms, forward 1 7");
    STEP(&x, "aborted unsent", "fail in background");
}

static void test_nothing_is_probed_before_it_has_settled(void **state)
{
    static const struct {
        const char *unknown, *trace;
        unsigned retry_after_s;
    } CASES[] = {
        {"claim unknown 1 7 ago=0", "refuse outcome-unknown 409", 60},
        {"claim unknown 1 7 ago=59", "refuse outcome-unknown 409", 1},
        {"claim unknown 1 7 ago=60", "claim taking 7", 0},
        {"claim unknown 1 7 ago=900", "claim taking 7", 0},
        {"claim unknown 1 7 ago=-500", "refuse outcome-unknown 409", 60}, /* a stepped clock */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        probe(NULL);
        x.policy.settle_us = 60 * IDEM_SECOND_US;
        STEP(&x, "request", "claim");
        STEP(&x, CASES[i].unknown, CASES[i].trace);
        assert_int_equal(x.effects.items[0].problem.retry_after_s, CASES[i].retry_after_s);
    }
}

/* ---- retry */

static void test_retry_executes_what_is_unknown(void **state)
{
    (void)state;
    until_taken_by_retry();
    STEP(&x, "head 201", "-");
    STEP(&x, "end", "complete");
    STEP(&x, "complete ok", "deliver");
}

static void test_retry_does_not_wait_to_settle(void **state)
{
    (void)state;
    x.policy.settle_us = 60 * IDEM_SECOND_US;
    until_taken_by_retry();
}

/* "Failed" would be a lie about the attempt before. */
static void test_retry_never_fails_what_it_took_over(void **state)
{
    static const char *const CASES[][2] = {
        {"upstream unsent", "abandon"},
        {"upstream unanswered", "abandon"},
        {"aborted unsent", "abandon in background"},
        {"aborted sent", "abandon in background"},
        {"rerouted sent 503", "abandon"},
        {"rerouted sent 200", "complete"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        retry(NULL);
        until_taken_by_retry();
        STEP(&x, CASES[i][0], CASES[i][1]);
    }
    retry(NULL);
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking any");
    STEP(&x, "claim failed", "abandon in background, refuse store-unavailable 503");
}

static void test_a_failure_does_not_speak_for_the_attempt_before(void **state)
{
    static const char *const CASES[][2] = {
        {"head 503", "abandon"},        {"head 429", "abandon"},
        {"head 401", "abandon"},        {"head 503 failed", "abandon"},
        {"head 200 failed", "abandon"}, {"head 200", "complete"},
        {"head 402", "complete"},       {"head 504", "abandon"},
        {"head 503 final", "complete"}, {"head 200 unknown", "abandon"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        retry(NULL);
        until_taken_by_retry();
        STEP(&x, CASES[i][0], "-");
        STEP(&x, "end", CASES[i][1]);
    }
    retry(NULL);
    until_taken_by_retry();
    STEP(&x, "head 503 failed", "-");
    STEP(&x, "end", "abandon");
    assert_int_equal(x.exchange.reason, IDEM_REASON_STATUS);
    STEP(&x, "abandon ok", "deliver");

    retry(NULL);
    until_taken_by_retry();
    STEP(&x, "head 503 unknown", "-");
    STEP(&x, "end", "abandon");
    assert_int_equal(x.exchange.reason, IDEM_REASON_DECLARED);
}

static void test_nothing_sent_this_time_is_not_told_as_nothing_executed(void **state)
{
    (void)state;
    until_taken_by_retry();
    STEP(&x, "upstream unsent 504", "abandon");
    assert_int_equal(x.exchange.reason, IDEM_REASON_UNANSWERED);
    STEP(&x, "abandon ok", "refuse upstream-unanswered 504");
    assert_non_null(x.effects.items[0].problem.detail);
}

static void test_retry_never_goes_unguarded_past_an_unknown(void **state)
{
    static const char *const CASES[][2] = {
        {"claim full", "refuse store-full 503"},
        {"claim refused", "refuse store-unavailable 503"},
        {"claim failed", "abandon in background, refuse store-unavailable 503"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        retry(NULL);
        x.policy.fail_open = true;
        STEP(&x, "request", "claim");
        STEP(&x, "claim unknown 1 7", "claim taking any");
        STEP(&x, CASES[i][0], CASES[i][1]);
    }
}

/* A first attempt is undone by `fail` as ever, so that its claim, if it comes late, ends. */
static void test_retry_fails_a_first_attempt(void **state)
{
    (void)state;
    STEP(&x, "request", "claim");
    STEP(&x, "claim failed", "fail in background, refuse store-unavailable 503");

    retry(NULL);
    STEP(&x, "request", "claim");
    STEP(&x, "claim acquired 2 9", "timer 3000 ms, forward 2 9"); /* after a failed one */
    STEP(&x, "upstream unsent", "fail");
    STEP(&x, "fail ok", "refuse upstream-unreachable 502");
}

static void test_retry_waits_for_who_was_faster(void **state)
{
    (void)state;
    x.policy.wait_us = 5 * IDEM_SECOND_US;
    STEP(&x, "request", "claim");
    STEP(&x, "claim unknown 1 7", "claim taking any");
    STEP(&x, "claim in_progress 2 9", "timer 20 ms");
    STEP(&x, "tick 20", "claim taking any");
    STEP(&x, "claim in_progress 3 11", "refuse in-progress 409");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_not_executed_is_executed_now, probe),
        cmocka_unit_test_setup(test_the_execution_begins_afresh, probe),
        cmocka_unit_test_setup(test_the_answer_of_a_probe_is_recorded_and_delivered, probe),
        cmocka_unit_test_setup(test_the_answer_of_a_probe_is_never_delivered_unrecorded, probe),
        cmocka_unit_test_setup(test_an_answer_over_the_maximum_is_a_tombstone, probe),
        cmocka_unit_test_setup(test_an_endless_404_settles_nothing, probe),
        cmocka_unit_test_setup(test_what_an_answer_to_a_probe_is_worth, probe),
        cmocka_unit_test_setup(test_still_unknown_is_told_once_it_is_recorded, probe),
        cmocka_unit_test_setup(test_half_a_404_is_no_answer, probe),
        cmocka_unit_test_setup(test_an_abandon_that_is_lost_tells_what_the_record_says, probe),
        cmocka_unit_test_setup(test_the_lease_is_renewed_while_the_upstream_thinks, probe),
        cmocka_unit_test_setup(test_without_the_claim_nothing_is_forwarded, probe),
        cmocka_unit_test_setup(test_an_older_renewal_confirms_nothing, probe),
        cmocka_unit_test_setup(test_no_prober_leaves_a_claim_without_a_verdict, probe),
        cmocka_unit_test_setup(test_a_take_over_without_a_result_is_never_failed, probe),
        cmocka_unit_test_setup(test_what_else_a_take_over_may_find, probe),
        cmocka_unit_test_setup(test_who_waits_for_another_prober_does_not_probe_after_it, probe),
        cmocka_unit_test_setup(test_what_is_free_after_an_unknown_is_probed_too, probe),
        cmocka_unit_test_setup(test_a_waiter_probes_what_it_waited_for, probe),
        cmocka_unit_test_setup(test_a_fresh_key_is_not_probed, probe),
        cmocka_unit_test_setup(test_nothing_is_probed_before_it_has_settled, probe),
        cmocka_unit_test_setup(test_retry_executes_what_is_unknown, retry),
        cmocka_unit_test_setup(test_retry_does_not_wait_to_settle, retry),
        cmocka_unit_test_setup(test_retry_never_fails_what_it_took_over, retry),
        cmocka_unit_test_setup(test_a_failure_does_not_speak_for_the_attempt_before, retry),
        cmocka_unit_test_setup(test_nothing_sent_this_time_is_not_told_as_nothing_executed, retry),
        cmocka_unit_test_setup(test_retry_never_goes_unguarded_past_an_unknown, retry),
        cmocka_unit_test_setup(test_retry_fails_a_first_attempt, retry),
        cmocka_unit_test_setup(test_retry_waits_for_who_was_faster, retry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
