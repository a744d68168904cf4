/* The executor while the store fails, and its end. */
#include "scene.h"

#include <stdlib.h>

static bool settling_none(void *context)
{
    return idem_executor_counters(context).settling == 0;
}

/* The verdict is told to be delayed, repeated, and done; a claim of the same batch just fails. */
static void test_delayed_then_done(void **state)
{
    struct idem_executor *executor;
    struct probe first, claim, complete, other;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    probe_claim(&claim, 1, 1);
    assert_int_equal(scene_run(executor, &claim), IDEM_RESULT_ACQUIRED);
    faults_hold_applies();
    probe_get(&first, 9);
    scene_submit(executor, &first);
    faults_await_held();
    probe_verdict(&complete, IDEM_OP_COMPLETE, 1, 1);
    probe_claim(&other, 2, 2);
    scene_submit(executor, &complete);
    scene_submit(executor, &other);
    faults_fail_applies(IDEM_ERR_UNAVAILABLE, 3, false); /* `first` fails too */
    faults_release();
    scene_await_delayed(executor, &complete);
    assert_int_equal(complete.delayed_error, IDEM_ERR_UNAVAILABLE);
    scene_await_done(executor, &other);
    assert_int_equal(other.job.error, IDEM_ERR_UNAVAILABLE);
    assert_false(other.job.not_applied); /* it was in a batch that failed: nobody knows */
    scene_await_done(executor, &complete);
    assert_int_equal(complete.job.error, 0);
    assert_int_equal(complete.delayed, 1);
    assert_int_equal(idem_executor_counters(executor).delayed, 1);
    assert_int_equal(idem_executor_counters(executor).dropped, 0);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* The store applied the verdict although it said that it failed: the repeat is as good. */
static void test_applied_but_failed(void **state)
{
    struct idem_executor *executor;
    struct probe claim, complete, get;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    probe_claim(&claim, 1, 1);
    assert_int_equal(scene_run(executor, &claim), IDEM_RESULT_ACQUIRED);
    faults_fail_applies(IDEM_ERR_UNAVAILABLE, 2, true);
    probe_verdict(&complete, IDEM_OP_COMPLETE, 1, 1);
    assert_int_equal(scene_run(executor, &complete), IDEM_RESULT_OK);
    probe_get(&get, 1);
    assert_int_equal(scene_run(executor, &get), IDEM_RESULT_FOUND);
    assert_int_equal(get.job.op.out.found.record.state, IDEM_STATE_COMPLETED);
    probe_release(&get);
    idem_executor_free(executor, SCENE_WAIT_US);
}

static void test_settle_bound(void **state)
{
    struct idem_executor_options options = {.sweep_us = -1, .settle_us_max = 50000};
    struct idem_executor *executor;
    struct probe fail;

    (void)state;
    faults_reset();
    executor = scene_start(&options);
    faults_poison(1, IDEM_ERR_FULL);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, &fail);
    scene_await_done(executor, &fail);
    assert_int_equal(fail.job.error, IDEM_ERR_FULL);
    assert_false(fail.job.not_applied);
    assert_true(faults_batches() > 2); /* 10, 20, 20 ms: more than once, and not without a pause */
    assert_true(faults_batches() < 8);
    assert_int_equal(idem_executor_counters(executor).dropped, 1);
    assert_int_equal(idem_executor_counters(executor).settling, 0);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* A new claim does not overtake the kept verdict on its id, however long its pause has become. */
static void test_kept_goes_first(void **state)
{
    struct idem_executor *executor;
    struct probe claim, complete, again;
    struct faults_entry log[64];
    size_t count;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    probe_claim(&claim, 1, 1);
    assert_int_equal(scene_run(executor, &claim), IDEM_RESULT_ACQUIRED);
    faults_poison(1, IDEM_ERR_FULL);
    probe_verdict(&complete, IDEM_OP_COMPLETE, 1, 1);
    scene_submit(executor, &complete);
    scene_await_delayed(executor, &complete);
    faults_hold_applies();
    faults_await_held(); /* inside its next repeat: the claim cannot be taken before that fails */
    probe_claim(&again, 1, 2);
    scene_submit(executor, &again);
    faults_poison(1, 0);
    faults_fail_applies(IDEM_ERR_FULL, 1, false);
    faults_release();
    scene_await_done(executor, &again);
    assert_int_equal(again.job.op.result, IDEM_RESULT_COMPLETED);
    assert_int_equal(complete.job.op.result, IDEM_RESULT_OK);
    count = faults_log(log, COUNT(log));
    assert_int_equal(log[count - 2].kind, IDEM_OP_COMPLETE);
    assert_int_equal(log[count - 1].kind, IDEM_OP_CLAIM);
    probe_release(&again);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* While it cannot be recorded, nothing of its owner passes; another owner may. */
static void test_owner_keeps_order(void **state)
{
    struct idem_executor *executor;
    struct probe fail, abandon, same, other;
    struct faults_entry log[256];
    size_t count;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_poison(1, IDEM_ERR_FULL);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, &fail);
    scene_await_delayed(executor, &fail);
    probe_verdict(&abandon, IDEM_OP_ABANDON, 1, 1);
    probe_claim(&same, 1, 1);
    probe_claim(&other, 1, 2);
    scene_submit(executor, &abandon);
    scene_await_delayed(executor, &abandon);
    scene_submit(executor, &same);
    scene_await_done(executor, &same);
    assert_int_equal(same.job.error, IDEM_ERR_UNAVAILABLE);
    assert_true(same.job.not_applied);
    scene_submit(executor, &other);
    scene_await_done(executor, &other);
    assert_int_equal(other.job.error, IDEM_ERR_FULL); /* it did reach the store */
    assert_false(other.job.not_applied);
    faults_poison(1, 0);
    scene_await_done(executor, &fail);
    scene_await_done(executor, &abandon);
    count = faults_log(log, COUNT(log));
    assert_true(count < COUNT(log));
    assert_int_equal(log[count - 2].kind, IDEM_OP_FAIL);
    assert_int_equal(log[count - 1].kind, IDEM_OP_ABANDON);
    for (size_t i = 0; i < count; i++) /* never alone: only ever behind its owner's fail */
        assert_true(log[i].kind != IDEM_OP_ABANDON || log[i - 1].kind == IDEM_OP_FAIL);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* One op that the store cannot take does not take the others with it. */
static void test_poison(void **state)
{
    struct idem_executor *executor;
    struct probe first, probes[8];

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_hold_applies();
    probe_get(&first, 9);
    scene_submit(executor, &first);
    faults_await_held();
    for (uint8_t i = 0; i < COUNT(probes); i++) {
        probe_claim(&probes[i], (uint8_t)(20 + i), i);
        scene_submit(executor, &probes[i]);
    }
    faults_poison(23, IDEM_ERR_INVALID);
    faults_release();
    scene_await_done(executor, &probes[7]);
    for (uint8_t i = 0; i < COUNT(probes); i++) {
        assert_int_equal(probes[i].done, 1);
        assert_int_equal(probes[i].job.error, i == 3 ? IDEM_ERR_INVALID : 0);
        if (i != 3)
            assert_int_equal(probes[i].job.op.result, IDEM_RESULT_ACQUIRED);
    }
    assert_int_equal(faults_closes(), 0);
    idem_executor_free(executor, SCENE_WAIT_US);
}

static void test_invalid_verdict_is_not_repeated(void **state)
{
    struct idem_executor *executor;
    struct probe fail;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    fail.job.op.in.verdict.ttl_us = -1;
    scene_submit(executor, &fail);
    scene_await_done(executor, &fail);
    assert_int_equal(fail.job.error, IDEM_ERR_INVALID);
    assert_int_equal(fail.delayed, 0);
    assert_int_equal(idem_executor_counters(executor).dropped, 1);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* Closed: claims end at once, verdicts wait; one line when it fails, one when it is back. */
static void test_closed_store(void **state)
{
    struct idem_executor *executor;
    struct idem_message message = {{0}};
    struct scene_trace traces[8];
    struct probe claims[3], fail;

    (void)state;
    faults_reset();
    faults_fail_opens(IDEM_ERR_IO, 2);
    executor = scene_start_closed(NULL);
    assert_int_equal(idem_executor_wait_open(executor, SCENE_WAIT_US, &message), IDEM_ERR_IO);
    assert_string_equal(message.text, "the test does not let it open");
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, &fail);
    for (uint8_t i = 0; i < COUNT(claims); i++) {
        probe_claim(&claims[i], 2, 2);
        scene_submit(executor, &claims[i]);
        scene_await_done(executor, &claims[i]);
        assert_true(claims[i].job.error == 0 || claims[i].job.error == IDEM_ERR_UNAVAILABLE);
        assert_int_equal(claims[i].job.not_applied, claims[i].job.error != 0);
    }
    assert_int_equal(claims[0].job.error, IDEM_ERR_UNAVAILABLE);
    scene_await_done(executor, &fail);
    assert_int_equal(fail.job.error, 0);
    assert_int_equal(fail.delayed, 1);
    assert_int_equal(faults_opens(), 3);
    assert_int_equal(scene_traces(traces, COUNT(traces)), 3); /* the last: it is new */
    assert_int_equal(traces[0].error, IDEM_ERR_IO);
    assert_string_equal(traces[0].text, "store unavailable: the test does not let it open");
    assert_int_equal(traces[1].error, 0);
    idem_executor_free(executor, SCENE_WAIT_US);
}

static bool reopened(void *context)
{
    return faults_opens() == 2 && idem_executor_counters(context).open;
}

static void test_reopen_when_corrupt(void **state)
{
    struct idem_executor *executor;
    struct probe claim;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_fail_applies(IDEM_ERR_CORRUPT, 1, false);
    probe_claim(&claim, 1, 1);
    scene_submit(executor, &claim);
    scene_await_done(executor, &claim);
    assert_int_equal(claim.job.error, IDEM_ERR_CORRUPT);
    scene_await(reopened, executor);
    assert_int_equal(faults_closes(), 1);
    probe_claim(&claim, 1, 1);
    assert_int_equal(scene_run(executor, &claim), IDEM_RESULT_ACQUIRED);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* The owner looks into the store at the very moment at which the thread wants to close it. */
static void test_no_close_during_a_peek(void **state)
{
    struct idem_executor *executor;
    struct probe claim;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    for (unsigned round = 1; round <= 5; round++) {
        struct idem_op get = {.kind = IDEM_OP_GET};
        int error;

        faults_fail_applies(IDEM_ERR_CORRUPT, 1, false);
        faults_hold_peeks(1);
        probe_claim(&claim, 1, 1);
        scene_submit(executor, &claim);
        error = idem_executor_peek(executor, &get);
        assert_true(error == 0 || error == IDEM_ERR_UNSUPPORTED || error == IDEM_ERR_UNAVAILABLE);
        idem_op_deinit(&get);
        scene_await_done(executor, &claim);
        assert_int_equal(claim.job.error, IDEM_ERR_CORRUPT);
        while (faults_opens() <= round || !idem_executor_counters(executor).open) {
            error = idem_executor_peek(executor, &get); /* and while it closes and opens */
            assert_true(error == 0 || error == IDEM_ERR_UNSUPPORTED ||
                        error == IDEM_ERR_UNAVAILABLE);
            idem_op_deinit(&get);
        }
        assert_int_equal(faults_closes(), round);
    }
    assert_false(faults_saw_close_in_peek());
    idem_executor_free(executor, SCENE_WAIT_US);
}

static void test_reopen_when_failing(void **state)
{
    struct idem_executor *executor;
    struct probe fail;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_fail_applies(IDEM_ERR_IO, 3, false);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, &fail);
    scene_await_done(executor, &fail);
    assert_int_equal(fail.job.error, 0);
    assert_int_equal(faults_opens(), 2);
    assert_int_equal(faults_closes(), 1);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* What waits is applied before the end, and everybody is told. */
static void test_free_applies(void **state)
{
    static struct probe probes[600];
    struct idem_executor *executor;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    for (size_t i = 0; i < COUNT(probes); i++) {
        probe_verdict(&probes[i], IDEM_OP_FAIL, (uint8_t)i, 1);
        probes[i].job.op.id.bytes[1] = (uint8_t)(i >> 8);
        scene_submit(executor, &probes[i]);
    }
    idem_executor_free(executor, SCENE_WAIT_US);
    for (size_t i = 0; i < COUNT(probes); i++) {
        assert_int_equal(probes[i].done, 1);
        assert_int_equal(probes[i].job.error, 0);
    }
    assert_int_equal(faults_closes(), 1);
}

static void test_free_with_kept_verdicts(void **state)
{
    struct idem_executor *executor;
    struct probe kept, fresh;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_poison(1, IDEM_ERR_FULL);
    probe_verdict(&kept, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, &kept);
    scene_await_delayed(executor, &kept);
    probe_verdict(&fresh, IDEM_OP_FAIL, 2, 2);
    scene_submit(executor, &fresh);
    idem_executor_free(executor, 30000);
    assert_int_equal(fresh.done, 1);
    assert_int_equal(fresh.job.error, 0);
    assert_int_equal(kept.done, 1);
    assert_int_equal(kept.job.error, IDEM_ERR_UNAVAILABLE);
    assert_false(kept.job.not_applied);
}

static void test_free_with_closed_store(void **state)
{
    struct idem_executor *executor;
    struct probe fail, claim;

    (void)state;
    faults_reset();
    faults_fail_opens(IDEM_ERR_IO, 1000000);
    executor = scene_start_closed(NULL);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    probe_claim(&claim, 2, 2);
    scene_submit(executor, &fail);
    scene_submit(executor, &claim);
    idem_executor_free(executor, 20000);
    assert_int_equal(fail.done, 1);
    assert_int_equal(fail.job.error, IDEM_ERR_UNAVAILABLE);
    assert_true(fail.job.not_applied);
    assert_int_equal(claim.done, 1);
    assert_true(claim.job.not_applied);
    assert_int_equal(faults_closes(), 0);
}

static bool closed_once(void *context)
{
    (void)context;
    return faults_closes() == 1;
}

/* A thread that hangs in the store is left behind, and cleans up when it comes back. */
static void test_free_with_hung_store(void **state)
{
    struct idem_executor *executor;
    struct probe *inside = calloc(1, sizeof *inside); /* must stay: see idem_executor_free() */
    struct probe *waiting = calloc(1, sizeof *waiting), *claim = calloc(1, sizeof *claim);

    (void)state;
    assert_true(inside && waiting && claim);
    faults_reset();
    executor = scene_start(NULL);
    faults_hold_applies();
    probe_verdict(inside, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, inside);
    faults_await_held();
    probe_verdict(waiting, IDEM_OP_FAIL, 2, 2);
    probe_claim(claim, 3, 3);
    scene_submit(executor, waiting);
    scene_submit(executor, claim);
    idem_executor_free(executor, 1000);
    assert_int_equal(inside->done, 0);
    assert_int_equal(inside->delayed, 1);
    assert_int_equal(inside->delayed_error, IDEM_ERR_UNAVAILABLE);
    assert_int_equal(waiting->done, 1);
    assert_int_equal(waiting->job.error, IDEM_ERR_UNAVAILABLE);
    assert_true(waiting->job.not_applied);
    assert_int_equal(claim->done, 1);
    assert_true(claim->job.not_applied);
    free(waiting);
    free(claim);
    faults_release();
    scene_await(closed_once, NULL);
    assert_int_equal(inside->done, 0);
    free(inside); /* the thread is through with it */
}

static void test_free_with_hung_opening(void **state)
{
    struct idem_executor *executor;
    struct probe *claim = calloc(1, sizeof *claim);

    (void)state;
    assert_non_null(claim);
    faults_reset();
    faults_hold_opens();
    executor = scene_start_closed(NULL);
    faults_await_held();
    probe_claim(claim, 1, 1);
    scene_submit(executor, claim);
    idem_executor_free(executor, 1000);
    assert_int_equal(claim->done, 1);
    assert_int_equal(claim->job.error, IDEM_ERR_UNAVAILABLE);
    assert_true(claim->job.not_applied);
    free(claim);
    faults_release();
    scene_await(closed_once, NULL);
}

static void submit_refused(struct probe *probe)
{
    struct probe *next = probe->context;

    probe->done += (unsigned)(idem_executor_submit(next->context, &next->job) != 0);
}

/* A notify of the last phase may try to submit: the job stays with the caller. */
static void test_free_refuses_jobs(void **state)
{
    struct idem_executor *executor;
    struct probe claim, fail;

    (void)state;
    faults_reset();
    faults_hold_opens();
    executor = scene_start_closed(NULL);
    faults_await_held();
    probe_claim(&claim, 1, 1);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    claim.then = submit_refused;
    claim.context = &fail;
    fail.context = executor;
    scene_submit(executor, &claim);
    idem_executor_free(executor, 0);
    assert_int_equal(claim.done, 2);
    assert_int_equal(fail.done, 0);
    faults_release();
    scene_await(closed_once, NULL);
}

static void test_counts(void **state)
{
    struct idem_executor *executor;
    struct probe fail;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_poison(1, IDEM_ERR_FULL);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, &fail);
    scene_await_delayed(executor, &fail);
    assert_true(idem_executor_counters(executor).failures > 0);
    assert_int_equal(idem_executor_counters(executor).delayed, 1);
    faults_poison(1, 0);
    scene_await_done(executor, &fail);
    scene_await(settling_none, executor);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* What one id goes through in the storm: a claim, and when that is known, its verdict. */
struct voyage {
    struct probe claim, verdict, get;
    struct idem_executor *executor;
    bool claimed;
};

static void voyage_verdict(struct probe *claim)
{
    struct voyage *voyage = claim->context;
    enum idem_op_kind kind = IDEM_OP_COMPLETE;
    uint8_t id = claim->job.op.id.bytes[0];

    voyage->claimed = claim->job.error == 0;
    if (!voyage->claimed)
        kind = IDEM_OP_FAIL; /* whether it was applied is unknown */
    else
        assert_int_equal(claim->job.op.result, IDEM_RESULT_ACQUIRED);
    probe_verdict(&voyage->verdict, kind, id, id);
    voyage->verdict.job.op.id = claim->job.op.id;
    scene_submit(voyage->executor, &voyage->verdict);
}

/*
 * One call in five fails, before or after it reached the store. Every verdict is recorded all the
 * same, exactly as given.
 */
static void test_storm(void **state)
{
    static struct voyage voyages[2000];
    struct idem_executor *executor;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_fail_some(200, 7);
    for (size_t i = 0; i < COUNT(voyages); i++) {
        struct voyage *voyage = &voyages[i];

        voyage->executor = executor;
        probe_claim(&voyage->claim, (uint8_t)i, (uint8_t)i);
        voyage->claim.job.op.id.bytes[1] = (uint8_t)(i >> 8);
        voyage->claim.then = voyage_verdict;
        voyage->claim.context = voyage;
        scene_submit(executor, &voyage->claim);
        if (i % 16 == 0)
            (void)idem_executor_collect(executor);
    }
    for (size_t i = 0; i < COUNT(voyages); i++) {
        scene_await_done(executor, &voyages[i].claim);
        scene_await_done(executor, &voyages[i].verdict);
        assert_int_equal(voyages[i].verdict.job.error, 0);
        assert_int_equal(voyages[i].verdict.job.op.result, IDEM_RESULT_OK);
    }
    faults_fail_some(0, 0);
    for (size_t i = 0; i < COUNT(voyages); i++) {
        struct probe *get = &voyages[i].get;

        probe_get(get, (uint8_t)i);
        get->job.op.id = voyages[i].claim.job.op.id;
        assert_int_equal(scene_run(executor, get), IDEM_RESULT_FOUND);
        assert_int_equal(get->job.op.out.found.record.state,
                         voyages[i].claimed ? IDEM_STATE_COMPLETED : IDEM_STATE_FAILED);
        probe_release(get);
    }
    assert_true(idem_executor_counters(executor).failures > 0);
    assert_int_equal(idem_executor_counters(executor).dropped, 0);
    assert_int_equal(faults_closes(), 0);
    idem_executor_free(executor, SCENE_WAIT_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delayed_then_done),
        cmocka_unit_test(test_applied_but_failed),
        cmocka_unit_test(test_settle_bound),
        cmocka_unit_test(test_kept_goes_first),
        cmocka_unit_test(test_owner_keeps_order),
        cmocka_unit_test(test_poison),
        cmocka_unit_test(test_invalid_verdict_is_not_repeated),
        cmocka_unit_test(test_closed_store),
        cmocka_unit_test(test_reopen_when_corrupt),
        cmocka_unit_test(test_no_close_during_a_peek),
        cmocka_unit_test(test_reopen_when_failing),
        cmocka_unit_test(test_free_applies),
        cmocka_unit_test(test_free_with_kept_verdicts),
        cmocka_unit_test(test_free_with_closed_store),
        cmocka_unit_test(test_free_with_hung_store),
        cmocka_unit_test(test_free_with_hung_opening),
        cmocka_unit_test(test_free_refuses_jobs),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_storm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
