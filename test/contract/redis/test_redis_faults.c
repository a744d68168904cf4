/* Connections that break, servers that stop, stand still or forget scripts. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../claimant.h"
#include "../killer.h"
#include "base/memory.h"
#include "store/redis/redis_store.h"
#include "support.h"

#define BATCH 200

static int port;

static void scripts_are_loaded_again(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    told(port, "SCRIPT FLUSH");
    wanted(claimed(store, "k", "A"), ACQUIRED);
    told(port, "SCRIPT FLUSH");
    wanted(completed(store, "k", "A", "paid"), OK);
    wanted(claimed(store, "k", "B"), COMPLETED);
    idem_store_close(store);
}

/* Ops on one id keep their order though the first of them finds no script. */
static void order_survives_lost_scripts(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op ops[4];

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    told(port, "SCRIPT FLUSH");
    op_claim(&ops[0], "k", "A");
    op_claim(&ops[1], "k", "B");
    op_verdict(&ops[2], IDEM_OP_FAIL, "k", "A", text(""));
    op_claim(&ops[3], "k", "C");
    assert_int_equal(apply_batch(store, ops, COUNT(ops), NULL), 0);
    wanted(ops[0].result, ACQUIRED);
    wanted(ops[1].result, IN_PROGRESS);
    wanted(ops[2].result, OK);
    wanted(ops[3].result, ACQUIRED);
    idem_store_close(store);
}

/* The server knows the script of the second op and not that of the first: both go again. */
static void order_survives_a_script_that_is_there(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op ops[2];

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    told(port, "SCRIPT FLUSH");
    told(port, "SCRIPT LOAD %s", idem_redis_script_texts[IDEM_REDIS_SCRIPT_GET]);
    op_claim(&ops[0], "k", "A");
    op_get(&ops[1], "k");
    assert_int_equal(apply_batch(store, ops, COUNT(ops), NULL), 0);
    wanted(ops[0].result, ACQUIRED);
    wanted(ops[1].result, FOUND);
    idem_op_deinit(&ops[1]);
    idem_store_close(store);
}

static int64_t connections_kill(const char *name)
{
    (void)name; /* the server has no other clients */
    return told(port, "CLIENT KILL TYPE normal SKIPME yes");
}

static void killed_between_batches(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    connections_kill(NULL);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    connections_kill(NULL);
    wanted(completed(store, "k", "A", "paid"), OK);
    connections_kill(NULL);
    wanted(claimed(store, "k", "B"), COMPLETED);
    idem_store_close(store);
}

static void batch_run(struct idem_store *store, struct killer *killer, struct idem_op *ops)
{
    struct idem_message message = {""};

    killer_aim(killer);
    if (apply_batch(store, ops, BATCH, &message))
        fail_msg("%s", message.text);
}

/* Each key is acquired by its first claimant and completed by it, whatever is cut off. */
static void round_run(struct idem_store *store, struct killer *killer, unsigned number)
{
    static struct idem_op ops[BATCH];
    static char keys[BATCH / 2][32];

    for (unsigned i = 0; i < BATCH / 2; i++) {
        snprintf(keys[i], sizeof keys[i], "%u.%u", number, i);
        op_claim(&ops[2 * i], keys[i], "A");
        op_claim(&ops[2 * i + 1], keys[i], "B");
    }
    batch_run(store, killer, ops);
    for (unsigned i = 0; i < BATCH / 2; i++) {
        wanted(ops[2 * i].result, ACQUIRED);
        assert_int_equal(ops[2 * i].out.attempt, 1);
        wanted(ops[2 * i + 1].result, IN_PROGRESS);
        op_verdict(&ops[2 * i], IDEM_OP_COMPLETE, keys[i], "A", text(keys[i]));
        op_claim(&ops[2 * i + 1], keys[i], "B");
    }
    batch_run(store, killer, ops);
    for (unsigned i = 0; i < BATCH / 2; i++) {
        wanted(ops[2 * i].result, OK);
        wanted(ops[2 * i + 1].result, COMPLETED);
        assert_bytes(ops[2 * i + 1].out.found.record.answer.body, text(keys[i]));
        idem_op_deinit(&ops[2 * i + 1]);
    }
}

static void killed_within_batches(void **state)
{
    struct killer killer;
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=30s", url);
    store = store_open(url);
    killer_begin(&killer, connections_kill, NULL);
    for (unsigned number = 0; number < 100; number++)
        round_run(store, &killer, number);
    killer_end(&killer);
    assert_true(killer.kills > 20);
    idem_store_close(store);
}

/* With appendfsync always nothing that was acknowledged is lost, not even in a crash. */
static void server_restarts_under_load(void **state)
{
    static const char *const verbs[] = {"restart", "crash", "crash"};
    struct claimant claimant;
    char url[URL_SIZE];

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=60s", url);
    claimant_begin(&claimant, url);
    for (size_t i = 0; i < COUNT(verbs); i++) {
        claimant_await(&claimant, 50);
        control(verbs[i], "redis");
    }
    claimant_await(&claimant, 50);
    claimant_end(&claimant);
    assert_int_equal(claimant.failures, 0);
}

/* As claim_fails(), within a time. */
static const char *claim_fails_within(struct idem_store *store, const char *key, int wanted_error,
                                      int64_t within_us)
{
    int64_t begun_us = steady_us();
    const char *sentence = claim_fails(store, key, wanted_error);

    if (steady_us() - begun_us > within_us)
        fail_msg("it took %lld us", (long long)(steady_us() - begun_us));
    return sentence;
}

static void standing_still_is_a_timeout(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    int64_t begun_us;

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=300ms", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    control("stop", "redis");
    begun_us = steady_us();
    claim_fails_within(store, "l", IDEM_ERR_TIMEOUT, 2 * SECOND);
    assert_true(steady_us() - begun_us >= 300 * 1000);
    claim_fails_within(store, "l", IDEM_ERR_TIMEOUT, 2 * SECOND);
    refused(url, IDEM_ERR_TIMEOUT, "did not answer in time");
    control("cont", "redis");
    /* Replies of before are not taken for those of now. */
    wanted(claimed(store, "m", "A"), ACQUIRED);
    wanted(claimed(store, "k", "B"), IN_PROGRESS);
    wanted(claimed(store, "l", "A"), ACQUIRED);
    idem_store_close(store);
}

/* The first call waits for it, those after it do not. */
static void gone_is_told_at_once(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    int64_t begun_us;

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=700ms", url);
    store = store_open(url);
    control("end", "redis");
    begun_us = steady_us();
    claim_fails_within(store, "k", IDEM_ERR_UNAVAILABLE, 2 * SECOND);
    assert_true(steady_us() - begun_us > 150 * 1000); /* it has tried again and again */
    begun_us = steady_us();
    claim_fails_within(store, "k", IDEM_ERR_UNAVAILABLE, SECOND / 2);
    refused(url, IDEM_ERR_UNAVAILABLE, "cannot be reached");
    control("start", "redis");
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_store_close(store);
}

/* An endless script of somebody else's, until it is killed. */
static void *hog_run(void *argument)
{
    (void)argument;
    freeReplyObject(ask(port, "EVAL %s 0", "while true do end"));
    return NULL;
}

static bool is_busy(void *context)
{
    redisReply *reply = ask(port, "GET none");
    bool busy = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSY", 4) == 0;

    (void)context;
    freeReplyObject(reply);
    return busy;
}

static void busy_server_is_waited_for(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    pthread_t thread;

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=500ms", url);
    store = store_open(url);
    told(port, "CONFIG SET busy-reply-threshold 50");
    assert_int_equal(pthread_create(&thread, NULL, hog_run, NULL), 0);
    await(is_busy, NULL, "a server that is busy");
    assert_non_null(
        strstr(claim_fails_within(store, "k", IDEM_ERR_UNAVAILABLE, 2 * SECOND), "script"));
    told(port, "SCRIPT KILL");
    pthread_join(thread, NULL);
    told(port, "CONFIG SET busy-reply-threshold 5000");
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_store_close(store);
}

static void missing_replicas_fail_the_call(void **state)
{
    char url[URL_SIZE];
    struct idem_message message = {""};
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "?replicas=1&timeout=400ms", url);
    refused(url, IDEM_ERR_UNAVAILABLE, "0 of the 1 replicas");
    url_make("IDEM_TEST_REDIS", "?replicas=0&timeout=400ms", url);
    assert_int_equal(idem_store_open(url, NULL, &store, &message), 0);
    told(port, "CONFIG SET min-replicas-to-write 1");
    assert_non_null(
        strstr(claim_fails_within(store, "k", IDEM_ERR_UNAVAILABLE, 2 * SECOND), "min-replicas"));
    told(port, "CONFIG SET min-replicas-to-write 0");
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_store_close(store);
}

/* Somebody else's data where a record should be. */
static void foreign_data_is_corrupt(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op = {.kind = IDEM_OP_SCAN, .in.scan.limit = 10};

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    told(port, "SET %s nonsense", record_key(url, "text"));
    told(port, "RPUSH %s nonsense", record_key(url, "list"));
    wanted(claimed(store, "text", "A"), CORRUPT);
    wanted(got(store, "text"), CORRUPT);
    wanted(completed(store, "text", "A", "paid"), CORRUPT);
    wanted(claimed(store, "list", "A"), CORRUPT);
    wanted(got(store, "list"), CORRUPT);
    wanted(applied(store, &op), OK);
    assert_int_equal(op.out.count, 0);
    assert_int_equal(op.out.damaged, 2);
    assert_int_equal(op.out.damaged_id_count, 2);
    idem_op_deinit(&op);
    op_forget(&op, "list", false);
    wanted(applied(store, &op), CORRUPT);
    op_forget(&op, "list", true);
    wanted(applied(store, &op), OK);
    wanted(claimed(store, "list", "A"), ACQUIRED);
    idem_store_close(store);
}

/* Keys of nobody, so many that the server makes its table larger, or smaller again. */
static void table_resize(bool larger)
{
    told(port, "EVAL %s 0",
         larger ? "for i = 1, 4000 do redis.call('SET', 'nobody' .. i, '') end return 0"
                : "for i = 1, 4000 do redis.call('DEL', 'nobody' .. i) end return 0");
}

/* One page of the scan; notes the keys it shows. False when there is no more. */
static bool page_next(struct idem_store *store, struct idem_op *scan, unsigned *times, size_t keys)
{
    bool more;

    wanted(applied(store, scan), OK);
    assert_true(scan->out.count <= scan->in.scan.limit);
    for (size_t i = 0; i < scan->out.count; i++) {
        char key[8] = "";

        assert_in_range(scan->out.page[i].record.key.size, 1, sizeof key - 1);
        memcpy(key, scan->out.page[i].record.key.data, scan->out.page[i].record.key.size);
        assert_in_range(strtoul(key, NULL, 10), 0, keys - 1);
        times[strtoul(key, NULL, 10)]++;
    }
    more = scan->out.more;
    scan->in.scan.cursor = scan->out.next;
    scan->in.scan.has_cursor = true;
    idem_op_deinit(scan);
    return more;
}

/* Pages that end within a bucket, which is another one when the next page begins. */
static void scan_goes_on_in_a_table_of_another_size(void **state)
{
    enum { KEYS = 300 };
    char url[URL_SIZE], key[8];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%u", i);
        wanted(claimed(store, key, "A"), ACQUIRED);
    }
    for (uint32_t limit = 1; limit <= 50; limit += 7) {
        struct idem_op scan = {.kind = IDEM_OP_SCAN, .in.scan.limit = limit};
        unsigned times[KEYS] = {0}, page = 0;

        while (page_next(store, &scan, times, KEYS)) {
            if (++page % 20 == 2 || limit > 8)
                table_resize(page % 40 == 2 || (limit > 8 && page % 2 == 0));
            assert_true(page < 10 * KEYS);
        }
        table_resize(false);
        for (unsigned i = 0; i < KEYS; i++)
            assert_true(times[i] > 0);
    }
    idem_store_close(store);
}

/* An answer of which a byte was changed is not given out. */
static void damaged_answer_is_not_given_out(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    wanted(completed(store, "k", "A", "100 EUR"), OK);
    wanted(claimed(store, "k", "B"), COMPLETED);
    told(port, "SETRANGE %s %lld 9", record_key(url, "k"),
         told(port, "STRLEN %s", record_key(url, "k")) - 8 - 7);
    wanted(claimed(store, "k", "B"), CORRUPT);
    wanted(got(store, "k"), CORRUPT);
    idem_store_close(store);
}

/* One op of each kind on "k", in one batch with a claim of its own id, which must not suffer. */
static void all_ops_apply(struct idem_store *store, unsigned round)
{
    struct idem_op ops[8];
    struct idem_message message = {""};
    char key[32];

    snprintf(key, sizeof key, "sound %u", round);
    op_claim(&ops[0], key, "A");
    op_claim(&ops[1], "k", "B");
    op_verdict(&ops[2], IDEM_OP_COMPLETE, "k", "A", text("paid"));
    op_verdict(&ops[3], IDEM_OP_FAIL, "k", "A", text(""));
    op_verdict(&ops[4], IDEM_OP_ABANDON, "k", "A", text(""));
    op_renew(&ops[5], "k", "A", LEASE);
    op_get(&ops[6], "k");
    op_blank(&ops[7], IDEM_OP_RESOLVE, "k");
    ops[7].in.resolve = (struct idem_resolve){.force = true, .owner = owner_of("person")};
    if (apply_batch(store, ops, COUNT(ops), &message))
        fail_msg("cut at %u: %s", round, message.text);
    wanted(ops[0].result, ACQUIRED);
    wanted(ops[6].result, CORRUPT);
    for (size_t i = 0; i < COUNT(ops); i++)
        idem_op_deinit(&ops[i]);
}

/* Wherever a record is cut off, nobody is answered from it, and no other op fails for it. */
static void cut_records_are_corrupt(void **state)
{
    char url[URL_SIZE], key[160];
    struct idem_store *store;
    redisReply *whole;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    wanted(completed(store, "k", "A", "paid"), OK);
    snprintf(key, sizeof key, "%s", record_key(url, "k"));
    whole = ask(port, "GET %s", key);
    for (size_t size = 0; size < whole->len; size++) {
        told(port, "SET %s %b", key, whole->str, size);
        all_ops_apply(store, (unsigned)size);
    }
    freeReplyObject(whole);
    idem_store_close(store);
}

static void handle_stays_with_its_process(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    pid_t child;
    int status;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct idem_op op;

        op_claim(&op, "k", "A");
        _exit(apply(store, &op, NULL) == IDEM_ERR_INVALID ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_store_close(store);
}

/* Every allocation of a batch fails in turn: an error, and the next batch goes through. */
static void memory_runs_out(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op ops[3];
    size_t n = 0;
    int error;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    wanted(claimed(store, "done", "A"), ACQUIRED);
    wanted(completed(store, "done", "A", "paid"), OK);
    do {
        connections_kill(NULL); /* so that connecting is tried too */
        op_claim(&ops[0], "k", "A");
        op_claim(&ops[1], "done", "B");
        memset(&ops[2], 0, sizeof ops[2]);
        ops[2].kind = IDEM_OP_SCAN;
        ops[2].in.scan.limit = 10;
        idem_memory_fail_at(++n);
        error = apply_batch(store, ops, COUNT(ops), NULL);
        idem_memory_fail_at(0);
        assert_true(error == 0 || error == IDEM_ERR_NOMEM);
        for (size_t i = 0; i < COUNT(ops); i++)
            idem_op_deinit(&ops[i]);
    } while (error);
    assert_true(n > 4);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_store_close(store);
}

static void memory_runs_out_at_opening(void **state)
{
    struct idem_message message = {""};
    struct idem_store *store;
    char url[URL_SIZE];
    size_t n = 0;
    int error;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    do {
        idem_memory_fail_at(++n);
        error = idem_store_open(url, NULL, &store, &message);
        idem_memory_fail_at(0);
        if (error && error != IDEM_ERR_NOMEM)
            fail_msg("allocation %zu: %s", n, message.text);
    } while (error);
    assert_true(n > 6);
    idem_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_are_loaded_again),
        cmocka_unit_test(order_survives_lost_scripts),
        cmocka_unit_test(order_survives_a_script_that_is_there),
        cmocka_unit_test(killed_between_batches),
        cmocka_unit_test(killed_within_batches),
        cmocka_unit_test(server_restarts_under_load),
        cmocka_unit_test(standing_still_is_a_timeout),
        cmocka_unit_test(gone_is_told_at_once),
        cmocka_unit_test(busy_server_is_waited_for),
        cmocka_unit_test(missing_replicas_fail_the_call),
        cmocka_unit_test(foreign_data_is_corrupt),
        cmocka_unit_test(scan_goes_on_in_a_table_of_another_size),
        cmocka_unit_test(damaged_answer_is_not_given_out),
        cmocka_unit_test(cut_records_are_corrupt),
        cmocka_unit_test(handle_stays_with_its_process),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(memory_runs_out_at_opening),
    };

    op_lease_us = 5 * MINUTE;
    port = port_of("redis");
    return cmocka_run_group_tests_name("redis faults", tests, NULL, NULL);
}
