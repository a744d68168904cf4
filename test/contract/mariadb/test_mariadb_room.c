/* Room: the bound of the URL, and what a sweep does and leaves. */
#include <stdio.h>
#include <string.h>

#include "support.h"

#define FILL_MAX 100000 /* the size is looked at once a second, however quick the store is */

static const char *key_of(unsigned number)
{
    static char key[32];

    snprintf(key, sizeof key, "k%u", number);
    return key;
}

/* InnoDB's figure follows by itself after a while; here it is asked to. */
static void size_is_known(const char *database)
{
    sql(database, "ANALYZE TABLE idempotency_keys");
}

static void fill(struct idem_store *store, const char *database, char *body)
{
    unsigned number;

    for (number = 0; number < FILL_MAX; number++) {
        enum idem_result result = claimed(store, key_of(number), "A");

        if (result == IDEM_RESULT_FULL)
            break;
        assert_int_equal(result, IDEM_RESULT_ACQUIRED);
        assert_int_equal(completed(store, key_of(number), "A", body), IDEM_RESULT_OK);
        if (number % 50 == 49)
            size_is_known(database);
    }
    assert_in_range(number, 20, FILL_MAX - 1);
}

/* Sweeps until there is no more. */
static size_t swept(struct idem_store *store)
{
    struct idem_op op;
    size_t removed = 0;

    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_SWEEP;
    op.in.sweep.limit = 100;
    do {
        assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
        removed += op.out.count;
    } while (op.out.more);
    return removed;
}

static struct idem_store *store_at(const char *url, const struct idem_clock *clock)
{
    struct idem_message message = {""};
    struct idem_store *store;

    if (idem_store_open(url, clock, &store, &message))
        fail_msg("%s", message.text);
    return store;
}

static int64_t clock_now(void *context)
{
    return *(int64_t *)context;
}

/* Full for claims, never for verdicts; and there is room again once what has expired is gone. */
static void full_and_not_full(void **state)
{
    const char *database = database_name();
    int64_t now_us = START;
    struct idem_clock clock = {clock_now, &now_us};
    char url[URL_SIZE], *body = calloc(1, 8001);
    struct idem_store *store;
    int64_t begun_us;

    (void)state;
    assert_non_null(body);
    memset(body, 'x', 8000);
    url_make(database, "?size=2m", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    store = store_at(url, &clock);
    assert_int_equal(claimed(store, "running", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(claimed(store, "failed", "A"), IDEM_RESULT_ACQUIRED);
    fill(store, database, body);
    assert_int_equal(claimed(store, "another", "A"), IDEM_RESULT_FULL);
    assert_int_equal(claimed(store, "running", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(claimed(store, "running", "B"), IDEM_RESULT_IN_PROGRESS);
    assert_int_equal(claimed(store, key_of(0), "B"), IDEM_RESULT_COMPLETED);
    assert_int_equal(completed(store, "running", "A", body), IDEM_RESULT_OK);
    idem_store_close(store);
    store = store_at(url, &clock); /* a full store opens */
    assert_int_equal(claimed(store, "another", "A"), IDEM_RESULT_FULL);
    now_us += TTL + LEASE;
    assert_true(swept(store) > 20);
    begun_us = steady_us();
    while (claimed(store, "another", "A") == IDEM_RESULT_FULL) {
        size_is_known(database);
        assert_true(steady_us() < begun_us + 60 * SECOND);
    }
    idem_store_close(store);
    free(body);
}

/* A sweep waits for nobody: a row that somebody holds is passed over, and swept the next time. */
static void locked_rows_are_passed_over(void **state)
{
    const char *database = database_name();
    int64_t now_us = START, begun_us;
    struct idem_clock clock = {clock_now, &now_us};
    char url[URL_SIZE], text[128];
    struct idem_store *store;
    void *held;

    (void)state;
    url_make(database, "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    store = store_at(url, &clock);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(claimed(store, key_of(i), "A"), IDEM_RESULT_ACQUIRED);
        assert_int_equal(completed(store, key_of(i), "A", "paid"), IDEM_RESULT_OK);
    }
    now_us += LEASE + TTL;
    snprintf(text, sizeof text, "SELECT id FROM idempotency_keys WHERE `key`='%s' FOR UPDATE",
             key_of(3));
    held = sql_hold(database, text);
    begun_us = steady_us();
    assert_int_equal(swept(store), 9);
    assert_true(steady_us() < begun_us + IDEM_STORE_TIMEOUT_US);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys"), 1);
    sql_release(held);
    while (swept(store) == 0) /* until the server has noticed */
        assert_true(steady_us() < begun_us + 60 * SECOND);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys"), 0);
    idem_store_close(store);
}

/* The index says when to look, never what to remove. */
static void the_hint_decides_nothing(void **state)
{
    const char *database = database_name();
    int64_t now_us = START;
    struct idem_clock clock = {clock_now, &now_us};
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(database, "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    store = store_at(url, &clock);
    assert_int_equal(claimed(store, "completed", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(completed(store, "completed", "A", "paid"), IDEM_RESULT_OK);
    assert_int_equal(claimed(store, "running", "A"), IDEM_RESULT_ACQUIRED);
    sql(database, "UPDATE idempotency_keys SET sweep_us=0");
    assert_int_equal(swept(store), 0);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys WHERE "
                                          "sweep_us=expires_us"),
                     1);
    now_us += TTL;
    assert_int_equal(swept(store), 1);
    now_us += LEASE + UNKNOWN_TTL;
    assert_int_equal(swept(store), 1);
    idem_store_close(store);
}

/* An operation that ran for longer than its answer is kept: the answer goes in its time, too. */
static void what_ended_late_goes_in_time(void **state)
{
    const char *database = database_name();
    int64_t now_us = START;
    struct idem_clock clock = {clock_now, &now_us};
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(database, "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    store = store_at(url, &clock);
    assert_int_equal(claimed(store, "late", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(claimed(store, "never", "A"), IDEM_RESULT_ACQUIRED);
    now_us += LEASE + TTL;
    assert_int_equal(swept(store), 0);
    assert_int_equal(completed(store, "late", "A", "paid"), IDEM_RESULT_OK);
    now_us += TTL;
    assert_int_equal(swept(store), 1);
    now_us = START + LEASE + UNKNOWN_TTL;
    assert_int_equal(swept(store), 1);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys"), 0);
    idem_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_and_not_full),
        cmocka_unit_test(locked_rows_are_passed_over),
        cmocka_unit_test(the_hint_decides_nothing),
        cmocka_unit_test(what_ended_late_goes_in_time),
    };

    return cmocka_run_group_tests_name("mariadb: room", tests, NULL, NULL);
}
