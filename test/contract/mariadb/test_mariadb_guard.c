/*
 * What happens while a claim waits, or between its round trips, must not make it less than it says:
 * its fence is the highest of its id, and its lease begins when it was got. And while one waits, or
 * stands still, others go on.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "support.h"

#define HIGH   UINT64_C(9000000000000000) /* a fence from a clock that is far ahead */
#define CLAIMS 2

/* One claim in the form that the server has, one in the other's, or several in a batch. */
struct form {
    bool returning;
    size_t count;
};

static struct form lone = {true, 1}, plain = {false, 1}, several = {false, CLAIMS};

static struct idem_store *store_new(const char *database, const struct form *form)
{
    char url[URL_SIZE];

    url_make(database, "?timeout=30s", url);
    return store_make_form(url, NULL, form->returning);
}

/* Ops that are applied by a thread of their own. */
struct waiting {
    struct idem_store *store;
    struct idem_op ops[CLAIMS];
    size_t count;
    pthread_t thread;
};

static void *waiting_run(void *argument)
{
    struct waiting *waiting = argument;
    struct idem_op *list[CLAIMS] = {NULL};

    for (size_t i = 0; i < waiting->count; i++)
        list[i] = &waiting->ops[i];
    assert_int_equal(idem_store_apply(waiting->store, list, waiting->count, NULL), IDEM_OK);
    return NULL;
}

/*
 * Until somebody waits for a row, and for so long. The server shows who waits as of some time ago,
 * unless nobody has asked for 100 ms.
 */
static void lock_wait_await(int64_t length_us)
{
    int64_t begun_us = steady_us();

    do {
        poll(NULL, 0, 150);
    } while (sql_number(NULL, "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE "
                              "trx_state='LOCK WAIT'") == 0 ||
             steady_us() < begun_us + length_us);
}

/* Claims of "k", and of others beside it, on a store where A has claimed "k". */
static void claims_begin(struct waiting *waiting, const char *database, const struct form *form)
{
    static const char *const keys[CLAIMS] = {"k", "beside"};

    waiting->store = store_new(database, form);
    waiting->count = form->count;
    assert_int_equal(claimed(waiting->store, "k", "A"), IDEM_RESULT_ACQUIRED);
    for (size_t i = 0; i < form->count && i < CLAIMS; i++)
        op_claim(&waiting->ops[i], keys[i], "B");
}

/* Applies the ops, which have to wait for the rows that the statements hold, for so long. */
static void waiting_apply(struct waiting *waiting, const char *database, const char *statements,
                          int64_t length_us)
{
    void *held = sql_hold(database, statements);

    assert_int_equal(pthread_create(&waiting->thread, NULL, waiting_run, waiting), 0);
    lock_wait_await(length_us);
    sql_commit(held);
    pthread_join(waiting->thread, NULL);
}

/*
 * A row with a fence from a clock that was ahead is removed while a claim waits to take its place:
 * the mark that the removal raises counts, though it came after the claim had begun.
 */
static void fence_grows_past_a_removal_under_way(void **state)
{
    const char *database = database_name();
    struct waiting waiting;
    char text[256];

    claims_begin(&waiting, database, *state);
    snprintf(text, sizeof text,
             "DELETE FROM idempotency_keys;UPDATE idempotency_meta SET fence_floor=%llu",
             (unsigned long long)HIGH);
    waiting_apply(&waiting, database, text, 0);
    for (size_t i = 0; i < waiting.count; i++) {
        expect(&waiting.ops[i], ACQUIRED);
        assert_true(waiting.ops[i].out.fence > HIGH);
    }
    idem_store_close(waiting.store);
}

/* A lease is given from when it was got, however long the row was waited for. */
static void lease_begins_after_the_wait(void **state)
{
    const char *database = database_name();
    struct waiting waiting;

    claims_begin(&waiting, database, *state);
    for (size_t i = 0; i < waiting.count; i++)
        waiting.ops[i].in.claim.lease_us = 20 * SECOND;
    waiting_apply(&waiting, database, "DELETE FROM idempotency_keys", 3 * SECOND);
    for (size_t i = 0; i < waiting.count; i++)
        expect(&waiting.ops[i], ACQUIRED);
    assert_true(sql_number(database,
                           "SELECT MIN(lease_until_us)-TIMESTAMPDIFF(MICROSECOND,"
                           "'1970-01-01',UTC_TIMESTAMP(6))FROM idempotency_keys") > 18500000);
    idem_store_close(waiting.store);
}

/* And one that ended during the wait is not renewed. */
static void lease_that_ended_is_not_renewed(void **state)
{
    const char *database = database_name();
    struct waiting waiting = {.store = store_new(database, &lone), .count = 1};
    struct idem_op *op = &waiting.ops[0];

    (void)state;
    op_claim(op, "k", "A");
    op->in.claim.lease_us = 2 * SECOND;
    assert_int_equal(applied(waiting.store, op), IDEM_RESULT_ACQUIRED);
    memset(op, 0, sizeof *op);
    op->kind = IDEM_OP_RENEW;
    op->id = id_of("k");
    op->in.renew = (struct idem_renew){owner_of("A"), MINUTE, UNKNOWN_TTL};
    waiting_apply(&waiting, database, "SELECT id FROM idempotency_keys FOR UPDATE", 3 * SECOND);
    expect(op, LOST);
    idem_store_close(waiting.store);
}

/* Another salt is another store, in which nothing is written. */
static void another_store_is_noticed(void **state)
{
    const char *database = database_name();
    struct waiting waiting;
    struct idem_op *list[CLAIMS] = {NULL};

    claims_begin(&waiting, database, *state);
    for (size_t i = 0; i < waiting.count; i++)
        list[i] = &waiting.ops[i];
    sql(database, "DELETE FROM idempotency_keys;UPDATE idempotency_meta SET salt=REVERSE(salt)");
    assert_int_equal(idem_store_apply(waiting.store, list, waiting.count, NULL), IDEM_ERR_UNSAFE);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys"), 0);
    idem_store_close(waiting.store);
}

/* A claim that waits has not locked the mark, which others want to raise. */
static void who_waits_holds_up_no_removal(void **state)
{
    const char *database = database_name();
    struct waiting waiting;
    void *held;

    claims_begin(&waiting, database, *state);
    held = sql_hold(database, "DELETE FROM idempotency_keys");
    assert_int_equal(pthread_create(&waiting.thread, NULL, waiting_run, &waiting), 0);
    lock_wait_await(0);
    sql(database, "SET innodb_lock_wait_timeout=1;"
                  "UPDATE idempotency_meta SET fence_floor=fence_floor+1");
    sql_commit(held);
    pthread_join(waiting.thread, NULL);
    expect(&waiting.ops[0], ACQUIRED);
    idem_store_close(waiting.store);
}

/* What is done whenever a store asks its clock, which it does between two round trips. */
struct between {
    const char *database;
    struct idem_store *other;
    uint64_t mark;
    int left; /* how often */
};

static int64_t host_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec / 1000;
}

#define ASKS 3 /* times that the long way asks for the clock: the last is for its guard */

/* Raises the mark, as a removal does. */
static int64_t raising_now_us(void *context)
{
    struct between *between = context;

    if (between->left > 0) {
        between->left--;
        between->mark += 1000;
        sql(between->database, "UPDATE idempotency_meta SET fence_floor=%llu",
            (unsigned long long)between->mark);
    }
    return host_now_us();
}

static struct idem_store *store_between(struct between *between, int64_t (*now_us)(void *context))
{
    struct idem_clock clock = {now_us, between};
    static struct idem_clock clocks[4]; /* for as long as the stores are open */
    static size_t count;
    char url[URL_SIZE];

    clocks[count] = clock;
    between->database = database_name();
    url_make(between->database, "", url);
    return store_make_form(url, &clocks[count++], true);
}

/* Several ops on one id go the long way, which reads the mark a round trip before it writes. */
static void the_long_way_is_guarded_too(void **state)
{
    struct between between = {.mark = HIGH};
    struct idem_store *store = store_between(&between, raising_now_us);
    struct idem_op ops[2], *list[2] = {&ops[0], &ops[1]};
    int64_t before;

    (void)state;
    op_claim(&ops[0], "k", "A");
    op_claim(&ops[1], "k", "B");
    before = sql_number(NULL, "SHOW GLOBAL STATUS LIKE 'Com_rollback'");
    between.left = ASKS;
    assert_int_equal(idem_store_apply(store, list, 2, NULL), IDEM_OK);
    expect(&ops[0], ACQUIRED);
    expect(&ops[1], IN_PROGRESS);
    assert_int_equal(ops[0].out.fence, between.mark + 1);
    assert_int_equal(sql_number(NULL, "SHOW GLOBAL STATUS LIKE 'Com_rollback'") - before, 1);
    idem_store_close(store);
}

static int64_t claiming_now_us(void *context)
{
    struct between *between = context;
    char key[16];

    if (between->left > 0) {
        snprintf(key, sizeof key, "n%d", between->left--);
        assert_int_equal(claimed(between->other, key, "C"), IDEM_RESULT_ACQUIRED);
    }
    return host_now_us();
}

/*
 * Forgets "gone" by the long way, which others go between: it takes two ops on one id for the store
 * to ask its clock there.
 */
static int forget_between(struct between *between, int64_t (*now_us)(void *context))
{
    struct idem_store *store = store_between(between, now_us);
    struct idem_op ops[3], *list[3] = {&ops[0], &ops[1], &ops[2]};
    char url[URL_SIZE];
    int error;

    url_make(between->database, "?timeout=2s", url);
    between->other = store_open(url);
    assert_int_equal(claimed(store, "gone", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(claimed(store, "other", "A"), IDEM_RESULT_ACQUIRED);
    op_forget(&ops[0], "gone", true);
    op_claim(&ops[1], "k", "A");
    op_claim(&ops[2], "k", "B");
    between->left = ASKS;
    error = idem_store_apply(store, list, 3, NULL);
    assert_int_equal(between->left, 0);
    if (!error) {
        expect(&ops[0], OK);
        expect(&ops[1], ACQUIRED);
        expect(&ops[2], IN_PROGRESS);
    }
    idem_store_close(between->other);
    idem_store_close(store);
    return error;
}

/* Who removes and audits may stand still between its round trips: others claim meanwhile. */
static void who_stands_still_holds_up_no_claim(void **state)
{
    struct between between = {.left = 0};

    (void)state;
    assert_int_equal(forget_between(&between, claiming_now_us), IDEM_OK);
    assert_int_equal(sql_number(between.database, "SELECT COUNT(*) FROM idempotency_keys WHERE "
                                                  "`key` LIKE 'n%%'"),
                     ASKS);
}

/* Two who forget at once, having read the same end of the audit: both are in it. */
static int64_t forgetting_now_us(void *context)
{
    struct between *between = context;
    struct idem_op op;

    if (between->left > 0 && --between->left == 0) {
        op_forget(&op, "other", true);
        assert_int_equal(applied(between->other, &op), IDEM_RESULT_OK);
    }
    return host_now_us();
}

static void two_forget_at_once(void **state)
{
    struct between between = {.left = 0};

    (void)state;
    assert_int_equal(forget_between(&between, forgetting_now_us), IDEM_OK);
    assert_int_equal(sql_number(between.database, "SELECT audit_number FROM idempotency_meta"), 2);
    assert_int_equal(sql_number(between.database, "SELECT COUNT(*) FROM idempotency_audit WHERE "
                                                  "what='forget' AND number IN(1,2)"),
                     2);
}

static int64_t salting_now_us(void *context)
{
    struct between *between = context;

    if (between->left > 0 && --between->left == 0)
        sql(between->database, "UPDATE idempotency_meta SET salt=REVERSE(salt)");
    return host_now_us();
}

static void another_store_between_round_trips(void **state)
{
    struct between between = {.left = 0};

    (void)state;
    assert_int_equal(forget_between(&between, salting_now_us), IDEM_ERR_UNSAFE);
    assert_int_equal(sql_number(between.database, "SELECT COUNT(*) FROM idempotency_keys WHERE "
                                                  "`key` IN('gone','other')"),
                     2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(fence_grows_past_a_removal_under_way, &lone),
        cmocka_unit_test_prestate(fence_grows_past_a_removal_under_way, &plain),
        cmocka_unit_test_prestate(fence_grows_past_a_removal_under_way, &several),
        cmocka_unit_test_prestate(lease_begins_after_the_wait, &lone),
        cmocka_unit_test_prestate(lease_begins_after_the_wait, &several),
        cmocka_unit_test(lease_that_ended_is_not_renewed),
        cmocka_unit_test_prestate(another_store_is_noticed, &lone),
        cmocka_unit_test_prestate(another_store_is_noticed, &plain),
        cmocka_unit_test_prestate(another_store_is_noticed, &several),
        cmocka_unit_test_prestate(who_waits_holds_up_no_removal, &lone),
        cmocka_unit_test_prestate(who_waits_holds_up_no_removal, &several),
        cmocka_unit_test(the_long_way_is_guarded_too),
        cmocka_unit_test(who_stands_still_holds_up_no_claim),
        cmocka_unit_test(two_forget_at_once),
        cmocka_unit_test(another_store_between_round_trips),
    };

    return cmocka_run_group_tests_name("mariadb: guard", tests, NULL, NULL);
}
