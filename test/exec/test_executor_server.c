/*
 * The executor on a store that is a server: an opening may hang, a call may take all of its time,
 * and nobody may have to wait for either longer than they want to.
 */
#include "scene.h"

#include <stdlib.h>
#include <time.h>

#define BRIEF_US INT64_C(50000)

static bool instant_passed(void *context)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000 > *(int64_t *)context;
}

static void await_expiry(const struct probe *probe)
{
    int64_t expiry_us = probe->job.submitted_us + probe->job.wait_us_max;

    scene_await(instant_passed, &expiry_us);
}

/* Ended without the thread, which hangs: the fd rings, and the store never saw it. */
static void assert_refused_at_once(struct idem_executor *executor, struct probe *probe)
{
    scene_submit(executor, probe);
    assert_true(scene_rings(executor));
    assert_int_equal(idem_executor_collect(executor), 1);
    assert_int_equal(probe->done, 1);
    assert_int_equal(probe->job.error, IDEM_ERR_UNAVAILABLE);
    assert_true(probe->job.not_applied);
}

static bool open_again(void *context)
{
    return idem_executor_counters(context).open;
}

/* One call that timed out is enough: the next would hold everybody up for as long. */
static void test_time_out_closes_at_once(void **state)
{
    struct idem_executor *executor;
    struct scene_trace traces[8];
    struct probe claim, fail;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_fail_applies(IDEM_ERR_TIMEOUT, 1, false);
    probe_claim(&claim, 1, 1);
    scene_submit(executor, &claim);
    scene_await_done(executor, &claim);
    assert_int_equal(claim.job.error, IDEM_ERR_TIMEOUT);
    assert_false(claim.job.not_applied); /* nobody knows */
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    assert_int_equal(scene_run(executor, &fail), IDEM_RESULT_OK);
    assert_int_equal(faults_opens(), 2);
    assert_int_equal(faults_closes(), 1);
    assert_true(scene_traces(traces, COUNT(traces)) >= 2);
    assert_int_equal(traces[1].error, IDEM_ERR_TIMEOUT);
    assert_string_equal(traces[1].text, "store unavailable: the test makes it fail");
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* While the store is opened again, which may take all of its time, claims and gets do not wait. */
static void test_nobody_waits_for_an_opening_that_hangs(void **state)
{
    struct idem_executor *executor;
    struct probe first, claim, get, fail, later;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_hold_opens();
    faults_fail_applies(IDEM_ERR_TIMEOUT, 1, false);
    probe_claim(&first, 1, 1);
    scene_submit(executor, &first);
    scene_await_done(executor, &first);
    faults_await_held();
    probe_claim(&claim, 2, 2);
    assert_refused_at_once(executor, &claim);
    probe_get(&get, 2);
    assert_refused_at_once(executor, &get);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1); /* verdicts always get in */
    scene_submit(executor, &fail);
    assert_int_equal(idem_executor_collect(executor), 0);
    assert_false(idem_executor_counters(executor).open);
    faults_release();
    scene_await_done(executor, &fail);
    assert_int_equal(fail.job.error, 0);
    scene_await(open_again, executor);
    probe_claim(&later, 2, 3);
    assert_int_equal(scene_run(executor, &later), IDEM_RESULT_ACQUIRED);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* Between two openings that fail it is the same. */
static void test_nobody_waits_between_openings(void **state)
{
    struct idem_executor *executor;
    struct idem_message message = {{0}};
    struct probe claim;

    (void)state;
    faults_reset();
    faults_fail_opens(IDEM_ERR_UNAVAILABLE, 1000000);
    executor = scene_start_closed(NULL);
    assert_int_equal(idem_executor_wait_open(executor, SCENE_WAIT_US, &message),
                     IDEM_ERR_UNAVAILABLE);
    probe_claim(&claim, 1, 1);
    assert_refused_at_once(executor, &claim);
    idem_executor_free(executor, 1000);
}

/* The first claims wait for the first opening, each as long as it wants to. */
static void test_first_opening(void **state)
{
    struct idem_executor *executor;
    struct probe brief, patient;

    (void)state;
    faults_reset();
    faults_hold_opens();
    executor = scene_start_closed(NULL);
    faults_await_held();
    probe_claim(&brief, 1, 1);
    brief.job.wait_us_max = BRIEF_US;
    probe_claim(&patient, 2, 2);
    patient.job.wait_us_max = SCENE_WAIT_US;
    scene_submit(executor, &brief);
    scene_submit(executor, &patient);
    await_expiry(&brief);
    assert_int_equal(idem_executor_collect(executor), 1);
    assert_int_equal(brief.job.error, IDEM_ERR_TIMEOUT);
    assert_true(brief.job.not_applied);
    faults_release();
    scene_await_done(executor, &patient);
    assert_int_equal(patient.job.error, 0);
    assert_int_equal(patient.job.op.result, IDEM_RESULT_ACQUIRED);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* A claim that the thread took in time, and then could not come to in time, never reaches it. */
static void test_late_claim_is_not_applied(void **state)
{
    struct idem_executor *executor;
    struct probe fail, claim;
    struct faults_entry log[64];
    size_t count;
    bool taken = false;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_poison(1, IDEM_ERR_FULL);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, &fail);
    scene_await_delayed(executor, &fail);
    while (!taken) {
        faults_hold_applies();
        probe_claim(&claim, 1, 2);
        claim.job.wait_us_max = 10 * BRIEF_US;
        scene_submit(executor, &claim); /* the kept verdict on its id is repeated first … */
        faults_await_held();
        taken = idem_executor_counters(executor).waiting == 0;
        if (taken)
            await_expiry(&claim); /* … and takes its time */
        faults_release();
        scene_await_done(executor, &claim);
    }
    assert_int_equal(claim.job.error, IDEM_ERR_TIMEOUT);
    assert_true(claim.job.not_applied);
    count = faults_log(log, COUNT(log));
    assert_int_equal(log[count - 1].kind, IDEM_OP_FAIL);
    faults_poison(1, 0);
    scene_await_done(executor, &fail);
    assert_int_equal(fail.job.error, 0);
    idem_executor_free(executor, SCENE_WAIT_US);
}

static bool closed_once(void *context)
{
    (void)context;
    return faults_closes() == 1;
}

/* The end does not wait for an opening after a failure either, and every job is told. */
static void test_free_while_opening_again_hangs(void **state)
{
    struct idem_executor *executor;
    struct probe *first = calloc(1, sizeof *first), *fail = calloc(1, sizeof *fail);

    (void)state;
    assert_true(first && fail);
    faults_reset();
    executor = scene_start(NULL);
    faults_hold_opens();
    faults_fail_applies(IDEM_ERR_TIMEOUT, 1, false);
    probe_verdict(fail, IDEM_OP_FAIL, 1, 1);
    scene_submit(executor, fail);
    scene_await_delayed(executor, fail);
    faults_await_held();
    probe_claim(first, 2, 2);
    assert_refused_at_once(executor, first);
    assert_true(closed_once(NULL));
    idem_executor_free(executor, 1000);
    assert_int_equal(fail->done, 1); /* it was not inside the store: it is known to be left */
    assert_int_equal(fail->job.error, IDEM_ERR_UNAVAILABLE);
    free(first);
    free(fail);
    faults_fail_opens(IDEM_ERR_UNAVAILABLE, 1);
    faults_release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_out_closes_at_once),
        cmocka_unit_test(test_nobody_waits_for_an_opening_that_hangs),
        cmocka_unit_test(test_nobody_waits_between_openings),
        cmocka_unit_test(test_first_opening),
        cmocka_unit_test(test_late_claim_is_not_applied),
        cmocka_unit_test(test_free_while_opening_again_hangs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
