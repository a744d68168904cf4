/* The executor while the store works: batches, order, bounds, time-outs, news, peeks, sweeps. */
#include "scene.h"

#include <poll.h>
#include <stdatomic.h>
#include <time.h>

#include "base/memory.h"

#define MANY 1000

static void test_one_life(void **state)
{
    struct idem_executor *executor;
    struct probe claim, complete, again, get;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    probe_claim(&claim, 1, 10);
    probe_verdict(&complete, IDEM_OP_COMPLETE, 1, 10);
    probe_claim(&again, 1, 11);
    probe_get(&get, 1);
    assert_int_equal(scene_run(executor, &claim), IDEM_RESULT_ACQUIRED);
    assert_int_equal(scene_run(executor, &complete), IDEM_RESULT_OK);
    assert_int_equal(scene_run(executor, &again), IDEM_RESULT_COMPLETED);
    unit_assert_bytes(again.job.op.out.found.record.answer.body, TEXT("made"));
    assert_int_equal(scene_run(executor, &get), IDEM_RESULT_FOUND);
    assert_false(claim.job.not_applied || complete.job.not_applied);
    assert_int_equal(idem_executor_counters(executor).ops, 4);
    assert_true(idem_executor_counters(executor).open);
    assert_false(faults_saw_signal_open());
    probe_release(&again);
    probe_release(&get);
    idem_executor_free(executor, SCENE_WAIT_US);
    assert_int_equal(faults_closes(), 1);
}

/* What waits together is applied together. */
static void test_batches(void **state)
{
    static struct probe probes[MANY];
    struct idem_executor *executor;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_hold_applies();
    for (size_t i = 0; i < MANY; i++) {
        probe_claim(&probes[i], (uint8_t)i, (uint8_t)i);
        probes[i].job.op.id.bytes[1] = (uint8_t)(i >> 8);
        scene_submit(executor, &probes[i]);
        if (i == 0)
            faults_await_held(); /* it is alone in the first batch, all others wait */
    }
    assert_int_equal(idem_executor_counters(executor).waiting, MANY - 1);
    faults_release();
    for (size_t i = 0; i < MANY; i++) {
        scene_await_done(executor, &probes[i]);
        assert_int_equal(probes[i].job.error, 0);
        assert_int_equal(probes[i].job.op.result, IDEM_RESULT_ACQUIRED);
    }
    assert_int_equal(faults_batches(), 1 + (MANY - 1 + IDEM_BATCH_MAX - 1) / IDEM_BATCH_MAX);
    assert_int_equal(idem_executor_counters(executor).batches, faults_batches());
    assert_int_equal(idem_executor_counters(executor).waiting, 0);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* A fail that is submitted while its owner's claim still waits comes after it. */
static void test_order(void **state)
{
    struct idem_executor *executor;
    struct probe first, claim, fail, next, late;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_hold_applies();
    probe_get(&first, 9);
    scene_submit(executor, &first);
    faults_await_held();
    probe_claim(&claim, 1, 10);
    probe_verdict(&fail, IDEM_OP_FAIL, 1, 10);
    probe_claim(&next, 1, 11);
    probe_claim(&late, 1, 10);
    scene_submit(executor, &claim);
    scene_submit(executor, &fail);
    scene_submit(executor, &next);
    scene_submit(executor, &late);
    faults_release();
    scene_await_done(executor, &late);
    assert_int_equal(claim.job.op.result, IDEM_RESULT_ACQUIRED);
    assert_int_equal(fail.job.op.result, IDEM_RESULT_OK);
    assert_int_equal(next.job.op.result, IDEM_RESULT_ACQUIRED);
    assert_int_equal(next.job.op.out.attempt, 2);
    assert_int_not_equal(late.job.op.result, IDEM_RESULT_ACQUIRED);
    idem_executor_free(executor, SCENE_WAIT_US);
}

static void test_bounds(void **state)
{
    struct idem_executor_options options = {.sweep_us = -1, .claims_max = 3};
    struct idem_executor *executor;
    struct probe first, claims[3], refused, get, verdict;

    (void)state;
    faults_reset();
    executor = scene_start(&options);
    faults_hold_applies();
    probe_get(&first, 9);
    scene_submit(executor, &first);
    faults_await_held();
    for (uint8_t i = 0; i < 3; i++) {
        probe_claim(&claims[i], i, i);
        scene_submit(executor, &claims[i]);
    }
    probe_claim(&refused, 7, 7);
    probe_get(&get, 7);
    probe_verdict(&verdict, IDEM_OP_FAIL, 8, 8);
    assert_int_equal(idem_executor_submit(executor, &refused.job), IDEM_ERR_BUSY);
    assert_int_equal(idem_executor_submit(executor, &get.job), IDEM_ERR_BUSY);
    assert_int_equal(idem_executor_submit(executor, &verdict.job), 0);
    faults_release();
    scene_await_done(executor, &verdict);
    assert_int_equal(refused.done + get.done, 0);
    assert_int_equal(scene_run(executor, &refused), IDEM_RESULT_ACQUIRED); /* room again */
    idem_executor_free(executor, SCENE_WAIT_US);
}

static bool instant_passed(void *context)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000 > *(int64_t *)context;
}

/* Ended by _collect while the thread is held up; the store never sees it. */
static void test_time_out_while_held_up(void **state)
{
    struct idem_executor *executor;
    struct probe first, brief, patient, verdict;
    struct faults_entry log[8];
    int64_t expiry_us;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_hold_applies();
    probe_get(&first, 9);
    scene_submit(executor, &first);
    faults_await_held();
    probe_claim(&brief, 1, 1);
    brief.job.wait_us_max = 1000;
    probe_claim(&patient, 2, 2);
    patient.job.wait_us_max = SCENE_WAIT_US;
    probe_verdict(&verdict, IDEM_OP_FAIL, 3, 3);
    verdict.job.wait_us_max = 1;
    scene_submit(executor, &patient);
    scene_submit(executor, &brief);
    scene_submit(executor, &verdict);
    expiry_us = brief.job.submitted_us + 1000;
    scene_await(instant_passed, &expiry_us);
    assert_int_equal(idem_executor_collect(executor), 1);
    assert_int_equal(brief.done, 1);
    assert_int_equal(brief.job.error, IDEM_ERR_TIMEOUT);
    assert_true(brief.job.not_applied);
    faults_release();
    scene_await_done(executor, &verdict);
    assert_int_equal(patient.job.op.result, IDEM_RESULT_ACQUIRED);
    assert_int_equal(faults_log(log, COUNT(log)), 3);
    assert_int_equal(log[1].id, 2);
    assert_int_equal(log[2].id, 3);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* Ended by the thread, when it comes to it too late. */
static void test_time_out_when_taken(void **state)
{
    struct idem_executor *executor;
    struct probe first, brief;
    int64_t expiry_us;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    faults_hold_applies();
    probe_get(&first, 9);
    scene_submit(executor, &first);
    faults_await_held();
    probe_claim(&brief, 1, 1);
    brief.job.wait_us_max = 1000;
    scene_submit(executor, &brief);
    expiry_us = brief.job.submitted_us + 1000;
    scene_await(instant_passed, &expiry_us);
    faults_release();
    scene_await_done(executor, &brief);
    assert_int_equal(brief.job.error, IDEM_ERR_TIMEOUT);
    assert_true(brief.job.not_applied);
    assert_int_equal(faults_batches(), 1);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* One ring for any number of jobs, none when nothing happened. */
static void test_ring(void **state)
{
    struct idem_executor *executor;
    struct probe first, second;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    assert_false(scene_rings(executor));
    assert_int_equal(idem_executor_collect(executor), 0);
    probe_get(&first, 1);
    probe_get(&second, 2);
    scene_submit(executor, &first);
    scene_submit(executor, &second);
    scene_await_done(executor, &first);
    scene_await_done(executor, &second);
    /* A ring may be late, after the job was collected by an earlier one: it finds nothing. */
    if (scene_rings(executor))
        assert_int_equal(idem_executor_collect(executor), 0);
    assert_false(scene_rings(executor));
    idem_executor_free(executor, SCENE_WAIT_US);
}

static void submit_next(struct probe *probe)
{
    struct probe *next = probe->context;

    assert_int_equal(idem_executor_submit(next->context, &next->job), 0);
}

static void test_submit_from_notify(void **state)
{
    struct idem_executor *executor;
    struct probe claim, complete;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    probe_claim(&claim, 1, 1);
    probe_verdict(&complete, IDEM_OP_COMPLETE, 1, 1);
    claim.then = submit_next;
    claim.context = &complete;
    complete.context = executor;
    scene_submit(executor, &claim);
    scene_await_done(executor, &complete);
    assert_int_equal(complete.job.op.result, IDEM_RESULT_OK);
    idem_executor_free(executor, SCENE_WAIT_US);
}

static void test_peek(void **state)
{
    struct idem_executor *executor;
    struct probe claim, complete;
    struct idem_op get = {.kind = IDEM_OP_GET};

    (void)state;
    faults_reset();
    faults_hold_opens();
    executor = scene_start_closed(NULL);
    faults_await_held();
    assert_int_equal(idem_executor_peek(executor, &get), IDEM_ERR_UNAVAILABLE);
    assert_int_equal(idem_executor_wait_open(executor, 1, NULL), IDEM_ERR_TIMEOUT);
    faults_release();
    assert_int_equal(idem_executor_wait_open(executor, SCENE_WAIT_US, NULL), 0);
    probe_claim(&claim, 1, 1);
    probe_verdict(&complete, IDEM_OP_COMPLETE, 1, 1);
    assert_int_equal(scene_run(executor, &claim), IDEM_RESULT_ACQUIRED);
    assert_int_equal(scene_run(executor, &complete), IDEM_RESULT_OK);
    get.id = claim.job.op.id;
    if (idem_executor_peek(executor, &get) != IDEM_ERR_UNSUPPORTED) {
        assert_int_equal(get.result, IDEM_RESULT_FOUND);
        unit_assert_bytes(get.out.found.record.answer.body, TEXT("made"));
    }
    idem_op_deinit(&get);
    idem_executor_free(executor, SCENE_WAIT_US);
}

static _Atomic(int64_t) turned_us = INT64_C(1700000000000000);

static int64_t turned_now_us(void *context)
{
    (void)context;
    return turned_us;
}

static bool all_swept(void *context)
{
    return idem_executor_counters(context).swept >= 250;
}

/* 250 expired records go in three sweeps without a pause between them. */
static void test_sweeps(void **state)
{
    static struct probe probes[250];
    const struct idem_clock clock = {.now_us = turned_now_us};
    struct idem_executor_options options = {.sweep_us = 1000, .clock = &clock};
    struct idem_executor *executor;
    struct probe get;

    (void)state;
    faults_reset();
    executor = scene_start(&options);
    for (size_t i = 0; i < COUNT(probes); i++) {
        probe_claim(&probes[i], (uint8_t)i, 1);
        scene_submit(executor, &probes[i]);
    }
    for (size_t i = 0; i < COUNT(probes); i++)
        scene_await_done(executor, &probes[i]);
    assert_int_equal(idem_executor_counters(executor).swept, 0);
    turned_us += INT64_C(365) * 86400 * IDEM_SECOND_US;
    scene_await(all_swept, executor);
    assert_int_equal(idem_executor_counters(executor).swept, 250);
    assert_int_equal(idem_executor_counters(executor).unknown_swept, 250);
    probe_get(&get, 1);
    assert_int_equal(scene_run(executor, &get), IDEM_RESULT_ABSENT);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* Claims and verdicts in the thread, peeks here, sweeps in between: for ThreadSanitizer above all.
 */
static void test_peeks_while_applying(void **state)
{
    enum { ROUNDS = 40, WIDTH = 50 };
    static struct probe claims[WIDTH], completes[WIDTH];
    struct idem_executor_options options = {.sweep_us = 1};
    struct idem_executor *executor;

    (void)state;
    faults_reset();
    executor = scene_start_lmdb(&options);
    if (!executor)
        skip();
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (uint8_t i = 0; i < WIDTH; i++) {
            probe_claim(&claims[i], i, i);
            probe_verdict(&completes[i], IDEM_OP_COMPLETE, i, i);
            claims[i].job.op.id.bytes[1] = completes[i].job.op.id.bytes[1] = (uint8_t)round;
            scene_submit(executor, &claims[i]);
            scene_submit(executor, &completes[i]);
        }
        while (completes[WIDTH - 1].done == 0) {
            struct idem_op get = {.kind = IDEM_OP_GET, .id = claims[round].job.op.id};

            assert_int_equal(idem_executor_peek(executor, &get), 0);
            if (get.result == IDEM_RESULT_FOUND &&
                get.out.found.record.state == IDEM_STATE_COMPLETED)
                unit_assert_bytes(get.out.found.record.answer.body, TEXT("made"));
            idem_op_deinit(&get);
            (void)idem_executor_collect(executor);
        }
        for (uint8_t i = 0; i < WIDTH; i++) {
            assert_int_equal(claims[i].job.op.result, IDEM_RESULT_ACQUIRED);
            assert_int_equal(completes[i].job.op.result, IDEM_RESULT_OK);
        }
    }
    assert_true(idem_executor_counters(executor).ops == (uint64_t)2 * ROUNDS * WIDTH);
    idem_executor_free(executor, SCENE_WAIT_US);
    scene_remove_lmdb();
}

static void test_refusals(void **state)
{
    struct idem_executor *executor = NULL;
    struct idem_message message = {{0}};

    (void)state;
    assert_int_equal(idem_executor_new("nonsense:", NULL, &executor, &message),
                     IDEM_ERR_UNSUPPORTED);
    assert_true(message.text[0]);
    assert_true(idem_executor_new("", NULL, &executor, &message) < 0);
    assert_null(executor);
    idem_executor_free(NULL, 0);
}

/* Every allocation before the thread starts is made to fail in turn. */
static void test_no_memory(void **state)
{
    struct idem_executor *executor = NULL;
    struct idem_message message = {{0}};
    size_t n;
    int error = IDEM_ERR_NOMEM;

    (void)state;
    faults_reset();
    faults_hold_opens(); /* the thread allocates nothing */
    for (n = 1; error; n++) {
        (void)idem_memory_fail_at(n);
        error = idem_executor_new("memory:", NULL, &executor, &message);
        if (error)
            assert_int_equal(error, IDEM_ERR_NOMEM);
    }
    assert_true(n > 3);
    (void)idem_memory_fail_at(0);
    faults_release();
    idem_executor_free(executor, SCENE_WAIT_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_life),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_time_out_while_held_up),
        cmocka_unit_test(test_time_out_when_taken),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_submit_from_notify),
        cmocka_unit_test(test_peek),
        cmocka_unit_test(test_sweeps),
        cmocka_unit_test(test_peeks_while_applying),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
