/* What the executor tells of a store that is new, or full. */
#include "scene.h"

#include <stdlib.h>
#include <time.h>

/* How many lines hold these words; the last of them in *ret_line, if there is one. */
static size_t lines_with(const char *words, struct scene_trace *ret_line)
{
    static struct scene_trace traces[SCENE_TRACE_MAX];
    size_t count = scene_traces(traces, COUNT(traces)), found = 0;

    for (size_t i = 0; i < count; i++) {
        if (!strstr(traces[i].text, words))
            continue;
        *ret_line = traces[i];
        found++;
    }
    return found;
}

static void forget(struct idem_executor *executor, uint8_t id)
{
    struct probe probe;

    probe_get(&probe, id);
    probe.job.op.kind = IDEM_OP_FORGET;
    probe.job.op.in.forget.who = probe.job.op.in.forget.why = TEXT("test");
    probe.job.op.in.forget.force = true;
    (void)scene_run(executor, &probe);
    probe_release(&probe);
}

static enum idem_result claim(struct idem_executor *executor, uint8_t id)
{
    struct probe probe;
    enum idem_result result;

    probe_claim(&probe, id, id);
    result = scene_run(executor, &probe);
    probe_release(&probe);
    return result;
}

static bool is_told_new(void *context)
{
    return lines_with("made a new, empty store", context) > 0;
}

static void test_new_store_is_told(void **state)
{
    struct idem_executor *executor;
    struct scene_trace line = {0};
    struct probe complete;

    (void)state;
    faults_reset();
    executor = scene_start(NULL);
    scene_await(is_told_new, &line);
    assert_int_equal(line.error, 0);
    assert_non_null(strstr(line.text, "no earlier key is protected"));
    /* A store in memory that was closed because it failed is a new one too. */
    faults_fail_applies(IDEM_ERR_CORRUPT, 1, false);
    probe_verdict(&complete, IDEM_OP_FAIL, 1, 1);
    assert_int_equal(scene_run(executor, &complete), IDEM_RESULT_OK);
    assert_int_equal(lines_with("made a new, empty store", &line), 2);
    idem_executor_free(executor, SCENE_WAIT_US);
}

static void test_old_store_is_not_new(void **state)
{
    struct idem_executor *executor = scene_start_lmdb(NULL);
    struct scene_trace line;

    (void)state;
    if (!executor)
        skip();
    assert_int_equal(claim(executor, 1), IDEM_RESULT_ACQUIRED);
    assert_int_equal(lines_with("made a new, empty store", &line), 1);
    idem_executor_free(executor, SCENE_WAIT_US);
    executor = scene_start_lmdb_again(NULL);
    assert_int_equal(claim(executor, 1), IDEM_RESULT_ACQUIRED); /* by the same owner */
    assert_int_equal(lines_with("made a new, empty store", &line), 0);
    idem_executor_free(executor, SCENE_WAIT_US);
    scene_remove_lmdb();
}

/* Claims until one is refused. Returns the id of that one. */
static uint8_t fill(struct idem_executor *executor)
{
    uint8_t id = 1;

    while (id < 255 && claim(executor, id) == IDEM_RESULT_ACQUIRED)
        id++;
    assert_in_range(id, 2, 254);
    return id;
}

static void test_full_store_is_told_once(void **state)
{
    struct idem_executor *executor;
    struct scene_trace line = {0};
    uint8_t refused;

    (void)state;
    faults_reset();
    executor = scene_start_url("memory:?size=64k", NULL);
    refused = fill(executor);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(claim(executor, refused), IDEM_RESULT_FULL);
    assert_int_equal(lines_with("store full", &line), 1);
    assert_int_equal(line.error, IDEM_ERR_FULL);
    assert_non_null(strstr(line.text, "claims refused: "));
    assert_non_null(strstr(line.text, "bytes are free"));
    while (lines_with("takes claims again", &line) == 0) {
        forget(executor, 1);
        forget(executor, refused);
        (void)claim(executor, refused);
    }
    assert_int_equal(line.error, 0);
    assert_non_null(strstr(line.text, "; 21 were refused"));
    for (unsigned i = 0; i < 20; i++) {
        forget(executor, refused);
        assert_int_equal(claim(executor, refused), IDEM_RESULT_ACQUIRED);
    }
    assert_int_equal(lines_with("takes claims again", &line), 1);
    assert_int_equal(lines_with("store full", &line), 1);
    idem_executor_free(executor, SCENE_WAIT_US);
}

/* Answers told of in all lines about answers that were not kept. */
static unsigned long answers_told(size_t *ret_lines)
{
    static struct scene_trace traces[SCENE_TRACE_MAX];
    size_t count = scene_traces(traces, COUNT(traces));
    unsigned long sum = 0;

    *ret_lines = 0;
    for (size_t i = 0; i < count; i++) {
        const char *number = strchr(traces[i].text, '(');

        if (!strstr(traces[i].text, "no room for the answer"))
            continue;
        assert_non_null(number);
        sum += strtoul(number + 1, NULL, 10);
        (*ret_lines)++;
    }
    return sum;
}

static void test_lost_answers_are_told_in_measure(void **state)
{
    static uint8_t body[1 << 16];
    struct idem_executor *executor;
    struct scene_trace line = {0};
    int64_t begun_s = time(NULL);
    char id[IDEM_ID_TEXT_SIZE];
    struct probe probe;
    size_t lines;

    (void)state;
    faults_reset();
    executor = scene_start_url("memory:?size=64k", NULL);
    for (uint8_t i = 1; i <= 20; i++) {
        assert_int_equal(claim(executor, i), IDEM_RESULT_ACQUIRED);
        probe_verdict(&probe, IDEM_OP_COMPLETE, i, i);
        probe.job.op.in.verdict.answer.body = idem_bytes_make(body, sizeof body);
        assert_int_equal(scene_run(executor, &probe), IDEM_RESULT_OK);
        assert_true(probe.job.op.out.tombstoned);
        if (i > 1)
            continue;
        probe_get(&probe, 1);
        (void)scene_run(executor, &probe); /* the thread has told by now */
        probe_release(&probe);
        idem_id_format(&probe.job.op.id, id);
        assert_int_equal(lines_with("no room for the answer", &line), 1);
        assert_int_equal(line.error, IDEM_ERR_FULL);
        assert_non_null(strstr(line.text, id));
    }
    while (answers_told(&lines) < 20) {
        probe_get(&probe, 100);
        (void)scene_run(executor, &probe);
    }
    assert_int_equal(answers_told(&lines), 20);
    assert_in_range(lines, 2, (size_t)(time(NULL) - begun_s) + 2);
    idem_executor_free(executor, SCENE_WAIT_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_store_is_told),
        cmocka_unit_test(test_old_store_is_not_new),
        cmocka_unit_test(test_full_store_is_told_once),
        cmocka_unit_test(test_lost_answers_are_told_in_measure),
    };

    return cmocka_run_group_tests_name("executor: room", tests, NULL, NULL);
}
