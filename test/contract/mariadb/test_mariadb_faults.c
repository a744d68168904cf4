/* Connections that break, servers that stop or stand still, memory that runs out. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../claimant.h"
#include "../killer.h"
#include "base/memory.h"
#include "support.h"

#define KEYS 100

static void killed_between_batches(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(database, "", url);
    store = store_make(url);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    sql_kill(database);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    sql_kill(database);
    assert_int_equal(completed(store, "k", "A", "paid"), IDEM_RESULT_OK);
    sql_kill(database);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_COMPLETED);
    idem_store_close(store);
}

/* Whatever the killer cuts off, each key is acquired by its one claimant and completed by it. */
static void killed_within_batches(void **state)
{
    const char *database = database_name();
    struct killer killer;
    char url[URL_SIZE], key[32];
    struct idem_store *store;

    (void)state;
    url_make(database, "?timeout=20s", url);
    store = store_make(url);
    killer_begin(&killer, sql_kill, database);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        killer_aim(&killer);
        assert_int_equal(claimed(store, key, "A"), IDEM_RESULT_ACQUIRED);
        killer_aim(&killer);
        assert_int_equal(claimed(store, key, "B"), IDEM_RESULT_IN_PROGRESS);
        killer_aim(&killer);
        assert_int_equal(completed(store, key, "A", key), IDEM_RESULT_OK);
        killer_aim(&killer);
        assert_int_equal(claimed(store, key, "B"), IDEM_RESULT_COMPLETED);
    }
    killer_end(&killer);
    assert_true(killer.kills > 0);
    idem_store_close(store);
    assert_int_equal(sql_number(database,
                                "SELECT COUNT(*) FROM idempotency_keys WHERE state='completed' "
                                "AND attempt=1"),
                     KEYS);
}

/* Within the time allowed a restart is a pause, after a crash too, and nothing is forgotten. */
static void server_restarts_under_load(void **state)
{
    static const char *const verbs[] = {"restart", "crash"};
    const char *database = database_name();
    struct claimant claimant;
    char url[URL_SIZE];

    (void)state;
    url_make(database, "?timeout=60s", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    claimant_begin(&claimant, url);
    for (size_t i = 0; i < COUNT(verbs); i++) {
        claimant_await(&claimant, 20);
        control(verbs[i], "mariadb");
        claimant_await(&claimant, 20);
    }
    claimant_end(&claimant);
    assert_int_equal(claimant.failures, 0);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys WHERE "
                                          "state='completed' AND attempt=1"),
                     claimant.count);
}

/* A server that stands still costs the time allowed, and no more. */
static void server_stands_still(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store, *other;
    struct idem_op op;
    int64_t begun_us;

    (void)state;
    url_make(database_name(), "?timeout=300ms", url);
    store = store_make(url);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    control("stop", "mariadb");
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    begun_us = steady_us();
    assert_non_null(strstr(apply_fails(store, &op, IDEM_ERR_TIMEOUT), "timeout="));
    assert_in_range(steady_us() - begun_us, 290000, 1500000);
    begun_us = steady_us();
    apply_fails(store, &op, IDEM_ERR_TIMEOUT);
    assert_int_equal(idem_store_open(url, NULL, &other, NULL), IDEM_ERR_TIMEOUT);
    assert_in_range(steady_us() - begun_us, 590000, 3000000);
    control("cont", "mariadb");
    while (apply(store, &op, NULL))
        assert_true(steady_us() < begun_us + 30 * SECOND);
    expect(&op, OK);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_COMPLETED);
    idem_store_close(store);
}

/* Rows that another transaction holds are waited for within the time allowed. */
static void locked_rows_are_waited_for(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op;
    int64_t begun_us;
    void *held;

    (void)state;
    url_make(database, "?timeout=400ms", url);
    store = store_make(url);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    held = sql_hold(database, "SELECT id FROM idempotency_keys FOR UPDATE");
    assert_int_equal(claimed(store, "other", "A"), IDEM_RESULT_ACQUIRED);
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    begun_us = steady_us();
    apply_fails(store, &op, IDEM_ERR_TIMEOUT);
    assert_in_range(steady_us() - begun_us, 390000, 2000000);
    sql_release(held);
    assert_int_equal(completed(store, "k", "A", "paid"), IDEM_RESULT_OK);
    idem_store_close(store);
}

/* What is not there any more must not pass for the store that was opened, connected or not. */
static void another_store_behind_the_url(void **state)
{
    (void)state;
    for (int connected = 0; connected <= 1; connected++) {
        const char *database = database_name();
        char url[URL_SIZE];
        struct idem_store *store;
        struct idem_op op;

        url_make(database, "?timeout=1s", url);
        store = store_make(url);
        assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
        migrated(url, 0, 1, 0);
        migrated(url, 1, 0, 1);
        idem_store_close(store_open(url));
        if (!connected)
            sql_kill(database);
        op_claim(&op, "k", "B");
        assert_non_null(strstr(apply_fails(store, &op, IDEM_ERR_UNSAFE), "no longer the one"));
        assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys"), 0);
        op_verdict(&op, IDEM_OP_FAIL, "k", "A", text(""));
        apply_fails(store, &op, IDEM_ERR_UNSAFE);
        idem_store_close(store);
    }
}

static void meta_row_is_lost(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(database, "", url);
    store = store_make(url);
    sql(database, "DELETE FROM idempotency_meta");
    claim_fails(store, "k", IDEM_ERR_UNSAFE);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys"), 0);
    idem_store_close(store);
}

/* A row that is no record is neither answered from nor executed again. */
static void damaged_row(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op;

    (void)state;
    url_make(database, "", url);
    store = store_make(url);
    claimed(store, "k", "A");
    completed(store, "k", "A", "paid");
    sql(database, "SET sql_mode='';UPDATE idempotency_keys SET status=7");
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_CORRUPT);
    assert_int_equal(got(store, "k"), IDEM_RESULT_CORRUPT);
    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_SCAN;
    op.in.scan.limit = 10;
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_int_equal(op.out.count, 0);
    assert_int_equal(op.out.damaged, 1);
    assert_int_equal(op.out.damaged_id_count, 1);
    assert_memory_equal(op.out.damaged_ids[0].bytes, id_of("k").bytes, IDEM_ID_SIZE);
    idem_op_deinit(&op);
    op_forget(&op, "k", false);
    assert_int_equal(applied(store, &op), IDEM_RESULT_CORRUPT);
    op.in.forget.force = true;
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_ACQUIRED);
    idem_store_close(store);
}

/* Claim, verdict, the long way (two ops on one id), a look, a scan and a sweep. */
static int memory_round(struct idem_store *store)
{
    struct idem_op ops[6];
    int error;

    op_claim(&ops[0], "a", "A");
    op_verdict(&ops[1], IDEM_OP_COMPLETE, "a", "A", text("paid"));
    op_claim(&ops[2], "b", "A");
    op_get(&ops[3], "a");
    memset(&ops[4], 0, 2 * sizeof ops[4]);
    ops[4].kind = IDEM_OP_SCAN;
    ops[4].in.scan.limit = 10;
    ops[5].kind = IDEM_OP_AUDIT;
    ops[5].in.audit.limit = 10;
    error = apply_batch(store, ops, COUNT(ops), NULL);
    for (size_t i = 0; i < COUNT(ops); i++)
        idem_op_deinit(&ops[i]);
    return error;
}

static void each_allocation_fails(void **state)
{
    char url[URL_SIZE];
    bool done = false;

    (void)state;
    url_make(database_name(), "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    for (size_t n = 1; !done; n++) {
        struct idem_store *store = NULL;
        int error;

        idem_memory_fail_at(n);
        error = idem_store_open(url, NULL, &store, NULL);
        if (!error)
            error = memory_round(store);
        done = idem_memory_fail_at(0) < n;
        assert_true(error == IDEM_OK || error == IDEM_ERR_NOMEM);
        assert_true(error == IDEM_ERR_NOMEM || done);
        if (store) {
            assert_int_equal(memory_round(store), IDEM_OK);
            idem_store_close(store);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_between_batches),
        cmocka_unit_test(killed_within_batches),
        cmocka_unit_test(server_restarts_under_load),
        cmocka_unit_test(server_stands_still),
        cmocka_unit_test(locked_rows_are_waited_for),
        cmocka_unit_test(another_store_behind_the_url),
        cmocka_unit_test(meta_row_is_lost),
        cmocka_unit_test(damaged_row),
        cmocka_unit_test(each_allocation_fails),
    };

    return cmocka_run_group_tests_name("mariadb: faults", tests, NULL, NULL);
}
