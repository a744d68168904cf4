/* Policy `wait`: who waits claims again, and gets what the claim brings. */
#include "exchange_script.h"
#include "unit.h"

static struct script x;

static int waiting(void **state)
{
    (void)state;
    script_init(&x);
    x.policy.wait_us = 5 * IDEM_SECOND_US;
    script_restart(&x);
    return 0;
}

static void until_waiting(void)
{
    STEP(&x, "request", "claim");
    STEP(&x, "claim in_progress 1 7", "timer 20 ms");
}

static void test_the_answer_comes_from_the_record(void **state)
{
    (void)state;
    until_waiting();
    STEP(&x, "tick 20", "claim");
    STEP(&x, "claim in_progress 1 7", "timer 40 ms");
    STEP(&x, "tick 61", "claim");
    STEP(&x, "claim completed", "replay");
}

static void test_pauses_double_up_to_a_second(void **state)
{
    static const char *const TIMERS[] = {
        "timer 40 ms",  "timer 80 ms",   "timer 160 ms",  "timer 320 ms",
        "timer 640 ms", "timer 1000 ms", "timer 1000 ms",
    };

    (void)state;
    until_waiting();
    for (size_t i = 0; i < sizeof(TIMERS) / sizeof(TIMERS[0]); i++) {
        STEP(&x, "tick 100", "claim");
        STEP(&x, "claim in_progress 1 7", TIMERS[i]);
    }
}

/* The last pause ends when the time does, and the claim after it is the last. */
static void test_waiting_ends(void **state)
{
    (void)state;
    until_waiting();
    STEP(&x, "tick 4970", "claim");
    STEP(&x, "claim in_progress 1 7", "timer 30 ms");
    STEP(&x, "tick 5000", "claim");
    STEP(&x, "claim in_progress 1 7", "refuse in-progress 409");
    assert_int_equal(x.effects.items[0].problem.retry_after_s, 1);

    waiting(NULL);
    until_waiting();
    STEP(&x, "tick 9000", "claim");
    STEP(&x, "claim completed", "replay");
}

/* A driver's clock that tells less than before does not prolong it. */
static void test_time_does_not_run_back(void **state)
{
    (void)state;
    until_waiting();
    STEP(&x, "tick 4990", "claim");
    STEP(&x, "claim in_progress 1 7", "timer 10 ms");
    STEP(&x, "tick 3", "claim");
    STEP(&x, "claim in_progress 1 7", "timer 10 ms");
}

static void test_a_wake_claims_at_once(void **state)
{
    (void)state;
    until_waiting();
    STEP(&x, "tick 20", "claim");
    STEP(&x, "claim in_progress 1 7", "timer 40 ms");
    STEP(&x, "wake 33", "claim");
    STEP(&x, "claim completed", "replay");
}

/* The claim under way may have been too early to see why it was woken. */
static void test_a_wake_during_the_claim_makes_the_next_pause_short(void **state)
{
    (void)state;
    until_waiting();
    STEP(&x, "tick 20", "claim");
    STEP(&x, "claim in_progress 1 7", "timer 40 ms");
    STEP(&x, "tick 60", "claim");
    STEP(&x, "wake 61", "-");
    STEP(&x, "claim in_progress 1 7", "timer 20 ms");
}

/* The first run failed, another waiter has the claim now: this one is told so. */
static void test_one_waiter_executes_after_a_failed_run(void **state)
{
    (void)state;
    until_waiting();
    STEP(&x, "tick 20", "claim");
    STEP(&x, "claim acquired 2 9", "timer 3000 ms, forward 2 9");

    waiting(NULL);
    until_waiting();
    STEP(&x, "tick 20", "claim");
    STEP(&x, "claim in_progress 2 9", "refuse in-progress 409");
}

static void test_what_else_a_waiter_may_find(void **state)
{
    static const char *const CASES[][2] = {
        {"claim unknown 1 7", "refuse outcome-unknown 409"},
        {"claim tombstone", "refuse answer-not-kept 409"},
        {"claim mismatch", "refuse key-reused 422"},
        {"claim other_principal", "refuse other-caller 403"},
        {"claim full", "refuse store-full 503"},
        {"claim ended", "fail in background, refuse store-unavailable 503"},
        {"claim refused", "refuse store-unavailable 503"},
        {"claim failed", "fail in background, refuse store-unavailable 503"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        waiting(NULL);
        until_waiting();
        STEP(&x, "tick 20", "claim");
        STEP(&x, CASES[i][0], CASES[i][1]);
    }
}

/* Another runs, that is known: losing sight of the store is no reason to run as well. */
static void test_a_waiter_never_goes_unguarded(void **state)
{
    static const char *const CASES[][2] = {
        {"claim full", "refuse store-full 503"},
        {"claim refused", "refuse store-unavailable 503"},
        {"claim failed", "fail in background, refuse store-unavailable 503"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        waiting(NULL);
        x.policy.fail_open = true;
        script_restart(&x);
        until_waiting();
        STEP(&x, "tick 20", "claim");
        STEP(&x, CASES[i][0], CASES[i][1]);
    }
}

static void test_nothing_is_claimed_while_waiting(void **state)
{
    (void)state;
    until_waiting();
    STEP(&x, "aborted unsent", "-");
    assert_int_equal(x.exchange.state, IDEM_EXCHANGE_DONE);

    waiting(NULL);
    until_waiting();
    STEP(&x, "client gone", "-");
    assert_int_equal(x.exchange.state, IDEM_EXCHANGE_DONE);
    STEP(&x, "tick 20", "-");
}

static void test_who_is_gone_does_not_wait_but_executes(void **state)
{
    (void)state;
    STEP(&x, "request", "claim");
    STEP(&x, "client gone", "-");
    STEP(&x, "claim in_progress 1 7", "refuse in-progress 409");

    waiting(NULL);
    until_waiting();
    STEP(&x, "tick 20", "claim");
    STEP(&x, "client gone", "-");
    STEP(&x, "claim acquired 2 9", "timer 3000 ms, forward 2 9");
}

static void test_a_claim_made_while_waiting_is_undone_by_an_abort(void **state)
{
    (void)state;
    until_waiting();
    STEP(&x, "tick 20", "claim");
    STEP(&x, "aborted unsent", "fail in background");
}

/* All of them under one name, and none but the last can have won. */
static void test_every_claim_has_the_same_owner(void **state)
{
    struct idem_op first, second;

    (void)state;
    STEP(&x, "request", "claim");
    idem_exchange_op(&x.exchange, &x.effects.items[0], &first);
    STEP(&x, "claim in_progress 1 7", "timer 20 ms");
    STEP(&x, "tick 20", "claim");
    idem_exchange_op(&x.exchange, &x.effects.items[0], &second);
    assert_true(idem_owner_equal(&first.in.claim.owner, &second.in.claim.owner));
    assert_memory_equal(&first.in.claim, &second.in.claim, sizeof(first.in.claim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_answer_comes_from_the_record, waiting),
        cmocka_unit_test_setup(test_pauses_double_up_to_a_second, waiting),
        cmocka_unit_test_setup(test_waiting_ends, waiting),
        cmocka_unit_test_setup(test_time_does_not_run_back, waiting),
        cmocka_unit_test_setup(test_a_wake_claims_at_once, waiting),
        cmocka_unit_test_setup(test_a_wake_during_the_claim_makes_the_next_pause_short, waiting),
        cmocka_unit_test_setup(test_one_waiter_executes_after_a_failed_run, waiting),
        cmocka_unit_test_setup(test_what_else_a_waiter_may_find, waiting),
        cmocka_unit_test_setup(test_a_waiter_never_goes_unguarded, waiting),
        cmocka_unit_test_setup(test_nothing_is_claimed_while_waiting, waiting),
        cmocka_unit_test_setup(test_who_is_gone_does_not_wait_but_executes, waiting),
        cmocka_unit_test_setup(test_a_claim_made_while_waiting_is_undone_by_an_abort, waiting),
        cmocka_unit_test_setup(test_every_claim_has_the_same_owner, waiting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
