/*
 * What others do to the same rows at the same time, and what the server refuses: locks, deadlocks,
 * serialization failures, a poisoned op, a full disk, a standby that is not waited for.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

static char schema[40], url[URL_SIZE];

static struct idem_store *fresh(const char *options)
{
    snprintf(schema, sizeof schema, "%s", schema_name());
    url_make(schema, options, url);
    return store_make(url);
}

static void end(struct idem_store *store)
{
    idem_store_close(store);
    sql("DROP SCHEMA %s CASCADE", schema);
}

static bool is_yes(void *question)
{
    return sql(question, schema) != 0;
}

/* Waits until SQL says yes. */
static void await_yes(const char *question)
{
    await(is_yes, (void *)question, question);
}

static const char *hex_of(const char *key)
{
    static char texts[4][IDEM_ID_TEXT_SIZE];
    static unsigned next;
    struct idem_id id = id_of(key);
    char *text_of = texts[next++ % 4];

    idem_id_format(&id, text_of);
    return text_of;
}

/* An op that a thread applies, because it will have to wait. */
struct waiter {
    struct idem_store *store;
    struct idem_op *ops[2];
    size_t count;
    int error;
};

static void *waiter_run(void *argument)
{
    struct waiter *waiter = argument;

    waiter->error = idem_store_apply(waiter->store, waiter->ops, waiter->count, NULL);
    return NULL;
}

static const char waits[] = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                            "AND query LIKE '%%%s%%' AND pid <> pg_backend_pid()";

/* The time of a verdict is after its wait for the row, not before. */
static void locked_row_is_waited_for(void **state)
{
    struct idem_store *store = fresh("timeout=30s");
    PGconn *other = sql_connect("idem");
    struct idem_op op;
    struct waiter waiter = {store, {&op}, 1, 0};
    pthread_t thread;
    int64_t released_us;

    (void)state;
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    sql_state(other, "BEGIN; SELECT FROM %s.idempotency_keys FOR UPDATE", schema);
    op_verdict(&op, IDEM_OP_FAIL, "k", "A", text(""));
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, &waiter), 0);
    await_yes(waits);
    released_us = sql("SELECT extract(epoch FROM clock_timestamp()) * 1000000");
    sql_state(other, "COMMIT");
    pthread_join(thread, NULL);
    assert_int_equal(waiter.error, IDEM_OK);
    assert_int_equal(op.result, IDEM_RESULT_OK);
    assert_true(op.out.now_us >= released_us);
    idem_op_deinit(&op);
    PQfinish(other);
    end(store);
}

/* A complete that was done is told so, though its record has expired while the batch waited. */
static void completed_before_a_wait_is_ok(void **state)
{
    struct idem_store *store = fresh("timeout=30s");
    PGconn *other = sql_connect("idem");
    bool ascending = strcmp(hex_of("a"), hex_of("b")) < 0;
    const char *first = ascending ? "a" : "b", *second = ascending ? "b" : "a";
    struct idem_op renew, complete;
    struct waiter waiter = {store, {&renew, &complete}, 2, 0};
    pthread_t thread;

    (void)state;
    claimed(store, first, "A");
    claimed(store, second, "A");
    sql_state(other, "BEGIN; SELECT FROM %s.idempotency_keys WHERE id = '\\x%s' FOR UPDATE", schema,
              hex_of(first));
    op_renew(&renew, first, "A", LEASE);
    op_verdict(&complete, IDEM_OP_COMPLETE, second, "A", text("paid"));
    complete.in.verdict.ttl_us = 1;
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, &waiter), 0);
    await_yes(waits);
    sql_state(other, "COMMIT");
    pthread_join(thread, NULL);
    assert_int_equal(waiter.error, IDEM_OK);
    assert_int_equal(renew.result, IDEM_RESULT_OK);
    assert_int_equal(complete.result, IDEM_RESULT_OK);
    PQfinish(other);
    end(store);
}

static void both_claimed(struct idem_store *store, const char *owner)
{
    struct idem_op done, running, *ops[] = {&done, &running};

    op_claim(&done, "done", owner);
    op_claim(&running, "running", owner);
    assert_int_equal(idem_store_apply(store, ops, COUNT(ops), NULL), IDEM_OK);
    assert_int_equal(done.result, IDEM_RESULT_COMPLETED);
    assert_int_equal(running.result, IDEM_RESULT_IN_PROGRESS);
    idem_op_deinit(&done);
    idem_op_deinit(&running);
}

/* Nobody can hold a key's claims up by looking at its row, or by being about to change it. */
static void replay_waits_for_nobody(void **state)
{
    static const char *const holds[] = {
        "BEGIN; SELECT FROM %s.idempotency_keys FOR UPDATE",
        "BEGIN; UPDATE %s.idempotency_keys SET path = path",
        "BEGIN; DELETE FROM %s.idempotency_keys",
    };
    struct idem_store *store = fresh("timeout=2s");
    PGconn *other = sql_connect("idem");

    (void)state;
    claimed(store, "done", "A");
    completed(store, "done", "A", "paid");
    claimed(store, "running", "A");
    for (size_t i = 0; i < COUNT(holds); i++) {
        sql_state(other, holds[i], schema);
        assert_int_equal(claimed(store, "done", "B"), IDEM_RESULT_COMPLETED);
        assert_int_equal(claimed(store, "running", "B"), IDEM_RESULT_IN_PROGRESS);
        assert_int_equal(claimed(store, "running", "A"), IDEM_RESULT_ACQUIRED);
        both_claimed(store, "B");
        sql_state(other, "ROLLBACK");
    }
    PQfinish(other);
    end(store);
}

/* An op that timed out must not be applied by the server when its caller has long gone. */
static void timed_out_op_is_not_applied_later(void **state)
{
    struct idem_store *store = fresh("timeout=500ms");
    PGconn *other = sql_connect("idem");
    struct idem_op op;

    (void)state;
    claimed(store, "k", "A");
    sql_state(other, "BEGIN; SELECT FROM %s.idempotency_keys FOR UPDATE", schema);
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("late"));
    assert_int_equal(apply(store, &op, NULL), IDEM_ERR_TIMEOUT);
    await_yes(
        "SELECT 1 - count(*) FROM pg_stat_activity WHERE query LIKE '%%%s%%' AND state = 'active' "
        "AND pid <> pg_backend_pid()");
    sql_state(other, "COMMIT");
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_IN_PROGRESS);
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    idem_op_deinit(&op);
    PQfinish(other);
    end(store);
}

/*
 * The store waits for a row of another transaction, which then wants one of the store's: the server
 * ends one of both. When it was the store's it is repeated; the other one goes on in any case.
 */
static void deadlock_is_repeated(void **state)
{
    struct idem_store *store = fresh("timeout=60s");
    PGconn *other = sql_connect("idem");
    struct idem_op ops[2];
    struct waiter waiter = {store, {&ops[0], &ops[1]}, 2, 0};
    bool ascending = strcmp(hex_of("a"), hex_of("b")) < 0;
    const char *first = hex_of(ascending ? "a" : "b"), *last = hex_of(ascending ? "b" : "a");
    pthread_t thread;

    (void)state;
    claimed(store, "a", "A");
    claimed(store, "b", "A");
    op_verdict(&ops[0], IDEM_OP_FAIL, "a", "A", text(""));
    op_verdict(&ops[1], IDEM_OP_FAIL, "b", "A", text(""));
    sql_state(other,
              "BEGIN; SET LOCAL deadlock_timeout = '60s'; SELECT FROM %s.idempotency_keys "
              "WHERE id = '\\x%s' FOR UPDATE",
              schema, last);
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, &waiter), 0);
    await_yes(waits);
    assert_string_equal(sql_state(other,
                                  "SELECT FROM %s.idempotency_keys WHERE id = '\\x%s' FOR "
                                  "UPDATE",
                                  schema, first),
                        "00000");
    sql_state(other, "COMMIT");
    pthread_join(thread, NULL);
    PQfinish(other);
    assert_int_equal(waiter.error, IDEM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops[i].result, IDEM_RESULT_OK);
        idem_op_deinit(&ops[i]);
    }
    await_yes("SELECT (deadlocks > 0 AND '%s' <> '')::int FROM pg_stat_database WHERE datname = "
              "current_database()");
    end(store);
}

/* Makes a trigger that fails as told: `when` decides on NEW, `times` how often. */
static void sabotage(const char *when, const char *state, int times)
{
    sql("SET search_path = %s; CREATE SEQUENCE failures; CREATE FUNCTION sabotage() RETURNS "
        "trigger "
        "LANGUAGE plpgsql SET search_path FROM CURRENT AS $$BEGIN IF (%s) AND nextval('failures') "
        "<= %d THEN RAISE EXCEPTION 'sabotage' USING ERRCODE = '%s'; END IF; RETURN NEW; END$$; "
        "CREATE TRIGGER sabotage BEFORE INSERT OR UPDATE ON idempotency_keys FOR EACH ROW EXECUTE "
        "FUNCTION sabotage()",
        schema, when, times, state);
}

static void serialization_failure_is_repeated(void **state)
{
    struct idem_store *store = fresh("timeout=30s");

    (void)state;
    sabotage("true", "40001", 3);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(sql("SELECT last_value FROM %s.failures", schema), 4);
    end(store);
}

/* A server whose sessions begin SERIALIZABLE is used READ COMMITTED, as the rules are written for.
 */
static void other_isolation_is_not_used(void **state)
{
    struct idem_store *store;

    (void)state;
    sql("ALTER ROLE idem SET default_transaction_isolation = 'serializable'");
    store = fresh("");
    sql("SET search_path = %s; CREATE FUNCTION level() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
        "NEW.resolved_why = convert_to(current_setting('transaction_isolation'), 'UTF8'); RETURN "
        "NEW; END$$; CREATE TRIGGER level BEFORE INSERT ON idempotency_keys FOR EACH ROW EXECUTE "
        "FUNCTION level()",
        schema);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_keys WHERE resolved_why = 'read "
                         "committed'",
                         schema),
                     1);
    sql("ALTER ROLE idem RESET default_transaction_isolation");
    end(store);
}

/* One op that the server refuses is found out by applying them one by one, and harms no other. */
static void poisoned_op_is_told_apart(void **state)
{
    struct idem_store *store = fresh("");
    struct idem_op ops[3];
    struct idem_op *list[3] = {&ops[0], &ops[1], &ops[2]};

    (void)state;
    sabotage("NEW.key = 'poison'", "22000", 1000);
    op_claim(&ops[0], "good", "A");
    op_claim(&ops[1], "poison", "A");
    op_claim(&ops[2], "also good", "A");
    assert_int_equal(idem_store_apply(store, list, 3, NULL), IDEM_ERR_INVALID);
    for (int i = 0; i < 3; i++)
        assert_int_equal(apply(store, list[i], NULL), i == 1 ? IDEM_ERR_INVALID : IDEM_OK);
    assert_int_equal(ops[0].result, IDEM_RESULT_ACQUIRED);
    assert_int_equal(ops[2].result, IDEM_RESULT_ACQUIRED);
    end(store);
}

/* 53100 is what the server says when its disk is full. */
static void full_disk_refuses_claims_only(void **state)
{
    struct idem_store *store = fresh("");
    struct idem_op ops[2];
    struct idem_op *list[2] = {&ops[0], &ops[1]};

    (void)state;
    claimed(store, "running", "A");
    sabotage("NEW.state = 'processing'", "53100", 1);
    op_claim(&ops[0], "new", "A");
    op_verdict(&ops[1], IDEM_OP_COMPLETE, "running", "A", text("paid"));
    assert_int_equal(idem_store_apply(store, list, 2, NULL), IDEM_OK);
    assert_int_equal(ops[0].result, IDEM_RESULT_FULL);
    assert_int_equal(ops[1].result, IDEM_RESULT_OK);
    assert_false(ops[1].out.tombstoned);
    assert_int_equal(claimed(store, "new", "A"), IDEM_RESULT_FULL); /* not asked for a while */
    assert_int_equal(claimed(store, "running", "B"), IDEM_RESULT_COMPLETED);
    end(store);
}

static void answer_without_room_is_a_tombstone(void **state)
{
    struct idem_store *store = fresh("");
    struct idem_op op;

    (void)state;
    claimed(store, "k", "A");
    sabotage("NEW.body IS NOT NULL", "53100", 1000);
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_true(op.out.tombstoned);
    idem_op_deinit(&op);
    op_claim(&op, "k", "B");
    assert_int_equal(applied(store, &op), IDEM_RESULT_COMPLETED);
    assert_int_equal(op.out.found.record.answer.tombstone, IDEM_REASON_NO_ROOM);
    assert_int_equal(op.out.found.record.answer.status, 201);
    idem_op_deinit(&op);
    end(store);
}

static void disk_without_any_room_is_an_error(void **state)
{
    struct idem_store *store = fresh("");
    struct idem_op op;

    (void)state;
    claimed(store, "k", "A");
    sabotage("true", "53100", 1000);
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    assert_int_equal(apply(store, &op, NULL), IDEM_ERR_FULL);
    end(store);
}

/* A commit waits for standbys only when the checkpointer has told all others that there are any. */
static bool commit_waits(void *connection)
{
    char words[128];
    PGresult *result;

    if (PQconsumeInput(connection) && PQisBusy(connection))
        return sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = "
                   "%d",
                   PQbackendPID(connection)) != 0;
    while ((result = PQgetResult(connection)))
        PQclear(result);
    snprintf(words, sizeof words, "UPDATE %s.idempotency_meta SET fence_floor = fence_floor",
             schema);
    assert_int_equal(PQsendQuery(connection, words), 1);
    return false;
}

static void await_standbys(void)
{
    PGconn *other = sql_connect("idem");

    await(commit_waits, other, "a commit to wait for a standby");
    sql("SELECT pg_cancel_backend(%d)", PQbackendPID(other));
    PQfinish(other);
}

/* A commit that stopped waiting for its standby is durable nowhere but here: never told as done. */
static void standby_that_is_not_waited_for(void **state)
{
    static const char stuck[] = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE "
                                "wait_event = 'SyncRep' AND '%s' <> ''";
    struct idem_store *store;
    struct idem_op op;
    struct waiter waiter = {NULL, {&op}, 1, 0};
    pthread_t thread;

    (void)state;
    sql("ALTER DATABASE idem SET client_min_messages = error"); /* it is told all the same */
    waiter.store = store = fresh("timeout=1s");
    sql("ALTER DATABASE idem RESET client_min_messages");
    sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    sql("SELECT pg_reload_conf()");
    await_yes(
        "SELECT (current_setting('synchronous_standby_names') = 'nobody' AND '%s' <> '')::int");
    await_standbys();
    op_claim(&op, "k", "A");
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, &waiter), 0);
    await_yes(stuck); /* the wait of the commit is broken off … */
    pthread_join(thread, NULL);
    assert_int_not_equal(waiter.error, IDEM_OK);
    op_claim(&op, "k", "A"); /* … and the claim is there to be seen, but not known to be safe */
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_keys", schema), 1);
    assert_int_not_equal(apply(store, &op, NULL), IDEM_OK);
    sql("ALTER SYSTEM RESET synchronous_standby_names");
    sql("SELECT pg_reload_conf()");
    await_yes("SELECT (current_setting('synchronous_standby_names') = '' AND '%s' <> 'x')::int");
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    end(store);
}

/* A row that somebody holds is passed over by a sweep; what it was changed to meanwhile counts. */
static void sweep_leaves_what_has_moved(void **state)
{
    struct idem_store *store = fresh("timeout=5s");
    PGconn *other = sql_connect("idem");
    struct idem_op op, sweep = {.kind = IDEM_OP_SWEEP, .in.sweep.limit = 10};

    (void)state;
    claimed(store, "k", "A");
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    op.in.verdict.ttl_us = 0; /* expires at once */
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    sql_state(other, "BEGIN; UPDATE %s.idempotency_keys SET expires_at = 'infinity'", schema);
    assert_int_equal(applied(store, &sweep), IDEM_RESULT_OK);
    assert_int_equal(sweep.out.count, 0);
    sql_state(other, "COMMIT");
    PQfinish(other);
    assert_int_equal(applied(store, &sweep), IDEM_RESULT_OK);
    assert_int_equal(sweep.out.count, 0);
    assert_false(sweep.out.more);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_COMPLETED);
    assert_int_equal(
        sql("SELECT count(*) FROM %s.idempotency_keys WHERE sweep_at = 'infinity'", schema), 1);
    end(store);
}

static int64_t index_number(const char *column)
{
    return sql("SELECT %s FROM pg_stat_user_indexes WHERE schemaname = '%s' AND indexrelname = "
               "'idempotency_keys_sweep'",
               column, schema);
}

/* Sweeps until the server has counted that many scans of the index: it does so once a second. */
static void sweep_until_counted(struct idem_store *store, int64_t scans)
{
    int64_t until_us = steady_us() + MINUTE;

    while (index_number("idx_scan") < scans) {
        struct idem_op sweep = {.kind = IDEM_OP_SWEEP, .in.sweep.limit = 1000};

        assert_true(steady_us() < until_us);
        assert_int_equal(applied(store, &sweep), IDEM_RESULT_OK);
        assert_int_equal(sweep.out.count, 0);
        (void)poll(NULL, 0, 50);
    }
}

#define EXPIRED 20000

/*
 * Somebody's old snapshot keeps what was swept from being cleaned up. A sweep is quick all the
 * same: it goes on where the last one has got to, and does not look at the dead.
 */
static void sweeps_do_not_walk_over_the_dead(void **state)
{
    struct idem_store *store = fresh("timeout=20s&vacuum=off");
    PGconn *other = sql_connect("idem");
    struct idem_op sweep = {.kind = IDEM_OP_SWEEP, .in.sweep.limit = 1000};
    int64_t scans, reads;

    (void)state;
    sql_state(other, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    claimed(store, "k", "A");
    sql("SET search_path = %s; INSERT INTO idempotency_keys SELECT sha256(int4send(i)), kind, "
        "scope, key, method, path, fingerprint, principal, 'failed', reason, owner, fence, attempt,"
        " lease, lease_until, created_at, updated_at, now() - interval '1 hour', now() - interval "
        "'1 hour' + i * interval '1 ms' FROM idempotency_keys, generate_series(1, %d) i",
        schema, EXPIRED);
    for (int i = 0; i < EXPIRED / 1000; i++) {
        assert_int_equal(applied(store, &sweep), IDEM_RESULT_OK);
        assert_int_equal(sweep.out.count, 1000);
        assert_int_equal(sweep.out.more, i < EXPIRED / 1000 - 1);
    }
    sweep_until_counted(store, EXPIRED / 1000);
    scans = index_number("idx_scan");
    reads = index_number("idx_tup_read");
    sweep_until_counted(store, scans + 5);
    assert_true(index_number("idx_tup_read") - reads <
                (index_number("idx_scan") - scans) * EXPIRED / 10);
    PQfinish(other);
    end(store);
}

/*
 * After a lost connection a call makes sure of what was done before it, by writing the row of the
 * whole store; it locks rows of keys before that, as sweeps do, or each would wait for the other.
 */
static void keys_are_locked_before_the_store(void **state)
{
    struct idem_store *store = fresh("timeout=30s&application_name=mine");
    PGconn *other = sql_connect("idem");
    struct idem_op op;
    struct waiter waiter = {store, {&op}, 1, 0};
    pthread_t thread;

    (void)state;
    claimed(store, "k", "A");
    sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = "
        "'mine'");
    sql_state(other, "BEGIN; SELECT FROM %s.idempotency_keys FOR UPDATE", schema);
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, &waiter), 0);
    await_yes(waits);
    assert_string_equal(sql_state(other,
                                  "SET LOCAL lock_timeout = '500ms'; UPDATE %s.idempotency_meta "
                                  "SET fence_floor = fence_floor",
                                  schema),
                        "00000");
    sql_state(other, "COMMIT");
    pthread_join(thread, NULL);
    assert_int_equal(waiter.error, IDEM_OK);
    assert_int_equal(op.result, IDEM_RESULT_OK);
    idem_op_deinit(&op);
    PQfinish(other);
    end(store);
}

/*
 * Two claims wait for one failed record, which is removed meanwhile: both find nothing there, and
 * one of them may have the id.
 */
static void record_that_goes_is_claimed_once(void **state)
{
    struct idem_store *stores[2] = {fresh("timeout=30s"), store_open(url)};
    PGconn *other = sql_connect("idem");
    struct idem_op ops[2];
    struct waiter waiters[2];
    pthread_t threads[2];
    enum idem_result wanted = IDEM_RESULT_ACQUIRED;

    (void)state;
    assert_int_equal(claimed(stores[0], "k", "A"), IDEM_RESULT_ACQUIRED);
    op_verdict(&ops[0], IDEM_OP_FAIL, "k", "A", text(""));
    assert_int_equal(applied(stores[0], &ops[0]), IDEM_RESULT_OK);
    sql_state(other, "BEGIN; DELETE FROM %s.idempotency_keys", schema);
    for (size_t i = 0; i < 2; i++) {
        op_claim(&ops[i], "k", i == 0 ? "B" : "C");
        waiters[i] = (struct waiter){stores[i], {&ops[i]}, 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, waiter_run, &waiters[i]), 0);
    }
    await_yes("SELECT (count(*) = 2)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
              "AND query LIKE '%%%s%%' AND pid <> pg_backend_pid()");
    sql_state(other, "COMMIT");
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].error, IDEM_OK);
    }
    if (ops[0].result == IDEM_RESULT_ACQUIRED)
        wanted = IDEM_RESULT_IN_PROGRESS;
    else
        assert_int_equal(ops[0].result, IDEM_RESULT_IN_PROGRESS);
    assert_int_equal(ops[1].result, wanted);
    PQfinish(other);
    idem_store_close(stores[1]);
    end(stores[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(locked_row_is_waited_for),
        cmocka_unit_test(completed_before_a_wait_is_ok),
        cmocka_unit_test(replay_waits_for_nobody),
        cmocka_unit_test(timed_out_op_is_not_applied_later),
        cmocka_unit_test(keys_are_locked_before_the_store),
        cmocka_unit_test(record_that_goes_is_claimed_once),
        cmocka_unit_test(deadlock_is_repeated),
        cmocka_unit_test(serialization_failure_is_repeated),
        cmocka_unit_test(other_isolation_is_not_used),
        cmocka_unit_test(poisoned_op_is_told_apart),
        cmocka_unit_test(full_disk_refuses_claims_only),
        cmocka_unit_test(answer_without_room_is_a_tombstone),
        cmocka_unit_test(disk_without_any_room_is_an_error),
        cmocka_unit_test(standby_that_is_not_waited_for),
        cmocka_unit_test(sweep_leaves_what_has_moved),
        cmocka_unit_test(sweeps_do_not_walk_over_the_dead),
    };

    return cmocka_run_group_tests_name("others, and refusals", tests, NULL, NULL);
}
