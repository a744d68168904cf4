/* The usual ops in one round trip: what they cost, what they write, and what ends them. */
#include <stdio.h>
#include <string.h>

#include "store/mariadb/mariadb_store.h"
#include "support.h"

/* Statements of the server by their kinds, as it counts them. */
static const char *const kinds[] = {"begin",      "insert", "update",  "select",
                                    "set_option", "commit", "rollback"};

enum { BEGIN, INSERT, UPDATE, SELECT, SET, COMMIT, ROLLBACK, KINDS };

struct counts {
    int64_t of[KINDS];
};

static struct counts counts_take(void)
{
    struct counts counts;

    for (size_t i = 0; i < KINDS; i++)
        counts.of[i] = sql_number(NULL, "SHOW GLOBAL STATUS LIKE 'Com_%s'", kinds[i]);
    return counts;
}

static void counts_expect(const struct counts *before, struct counts wanted)
{
    struct counts now = counts_take();

    for (size_t i = 0; i < KINDS; i++)
        if (now.of[i] - before->of[i] != wanted.of[i])
            fail_msg("%lld of %s, and not %lld", (long long)(now.of[i] - before->of[i]), kinds[i],
                     (long long)wanted.of[i]);
}

/* The forms that a lone claim may take: INSERT … RETURNING, or a transaction. */
static bool forms[] = {true, false};

static struct idem_store *store_new(const char *database, void **state)
{
    char url[URL_SIZE];

    url_make(database, "", url);
    return store_make_form(url, NULL, *(bool *)*state);
}

static struct counts claim_counts(void **state)
{
    if (*(bool *)*state && server_has_returning())
        return (struct counts){{[INSERT] = 1}};
    return (struct counts){{[BEGIN] = 1, [INSERT] = 1, [SELECT] = 1, [COMMIT] = 1}};
}

static void all_apply(struct idem_store *store, struct idem_op *ops, size_t count,
                      enum idem_result wanted)
{
    struct idem_op *list[IDEM_BATCH_MAX];

    for (size_t i = 0; i < count; i++)
        list[i] = &ops[i];
    assert_int_equal(idem_store_apply(store, list, count, NULL), IDEM_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ops[i].result, wanted);
}

/* Each statement of a request costs its caller time: a lone verdict is one. */
static void usual_ops_are_few_statements(void **state)
{
    static const struct counts verdict = {{[UPDATE] = 1}};
    static const struct counts renewal = {
        {[SET] = 1, [BEGIN] = 1, [UPDATE] = 1, [SELECT] = 1, [COMMIT] = 1}};
    static const struct counts three = {
        {[SET] = 1, [BEGIN] = 1, [INSERT] = 1, [UPDATE] = 1, [SELECT] = 1, [COMMIT] = 1}};
    static const enum idem_op_kind verdicts[] = {IDEM_OP_COMPLETE, IDEM_OP_FAIL, IDEM_OP_ABANDON};
    struct idem_store *store = store_new(database_name(), state);
    const struct counts claim = claim_counts(state);
    struct counts before;
    struct idem_op ops[3];
    char key[8];

    for (size_t i = 0; i < COUNT(verdicts); i++) {
        snprintf(key, sizeof key, "k%zu", i);
        before = counts_take();
        assert_int_equal(claimed(store, key, "A"), IDEM_RESULT_ACQUIRED);
        counts_expect(&before, claim);
        op_verdict(&ops[0], verdicts[i], key, "A", text(""));
        ops[0].in.verdict.reason = IDEM_REASON_UNANSWERED;
        before = counts_take();
        all_apply(store, ops, 1, IDEM_RESULT_OK);
        counts_expect(&before, verdict);
    }
    assert_int_equal(claimed(store, "a", "A"), IDEM_RESULT_ACQUIRED);
    memset(&ops[0], 0, sizeof ops[0]);
    ops[0].kind = IDEM_OP_RENEW;
    ops[0].id = id_of("a");
    ops[0].in.renew = (struct idem_renew){owner_of("A"), MINUTE, UNKNOWN_TTL};
    before = counts_take();
    all_apply(store, ops, 1, IDEM_RESULT_OK);
    counts_expect(&before, renewal);
    op_verdict(&ops[0], IDEM_OP_COMPLETE, "a", "A", text("paid"));
    op_claim(&ops[1], "b", "A");
    op_claim(&ops[2], "c", "A");
    before = counts_take();
    assert_int_equal(
        idem_store_apply(store, (struct idem_op *[]){&ops[0], &ops[1], &ops[2]}, 3, NULL), IDEM_OK);
    counts_expect(&before, three);
    expect(&ops[0], OK);
    expect(&ops[1], ACQUIRED);
    expect(&ops[2], ACQUIRED);
    idem_store_close(store);
}

static void claim_is_written(const char *database, const struct idem_op *op, const char *key)
{
    char hex[2 * IDEM_ID_SIZE + 1];

    for (size_t i = 0; i < IDEM_ID_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", id_of(key).bytes[i]);
    assert_int_equal(
        sql_number(database,
                   "SELECT COUNT(*) FROM idempotency_keys WHERE id=x'%s' AND created_us=%lld AND "
                   "updated_us=%lld AND fence=%llu AND fence=created_us AND lease_us=%lld AND "
                   "lease_until_us=created_us+%lld AND expires_us=lease_until_us+%lld AND "
                   "sweep_us=lease_until_us+%lld",
                   hex, (long long)op->out.now_us, (long long)op->out.now_us,
                   (unsigned long long)op->out.fence, (long long)LEASE, (long long)LEASE,
                   (long long)UNKNOWN_TTL, (long long)TTL),
        1);
}

/*
 * One op or several: what is told is what was written, and all instants of a row are from one,
 * which the server's clock showed meanwhile. Also where assignments would see a row as it was.
 */
static void what_is_told_is_written(void **state)
{
    static const char *const keys[] = {"a", "b", "c"};
    const char *database = database_name();
    struct idem_store *store;
    struct idem_op ops[COUNT(keys)];
    int64_t begun_us;

    sql(NULL, "SET GLOBAL sql_mode=''/*M!100305 ,sql_mode='SIMULTANEOUS_ASSIGNMENT'*/");
    store = store_new(database, state);
    for (size_t count = 1; count <= COUNT(keys); count++) {
        begun_us = sql_number(NULL, "SELECT " IDEM_MARIADB_NOW);
        for (size_t i = 0; i < count; i++)
            op_claim(&ops[i], keys[i], "A");
        all_apply(store, ops, count, IDEM_RESULT_ACQUIRED);
        for (size_t i = 0; i < count; i++) {
            claim_is_written(database, &ops[i], keys[i]);
            assert_in_range(ops[i].out.now_us, begun_us,
                            sql_number(NULL, "SELECT " IDEM_MARIADB_NOW));
            op_verdict(&ops[i], IDEM_OP_COMPLETE, keys[i], "A", text("paid"));
        }
        all_apply(store, ops, count, IDEM_RESULT_OK);
        assert_int_equal(sql_number(database,
                                    "SELECT COUNT(*) FROM idempotency_keys WHERE updated_us=%lld "
                                    "AND expires_us=updated_us+%lld AND created_us<updated_us AND "
                                    "lease_until_us=created_us+%lld",
                                    (long long)ops[0].out.now_us, (long long)TTL, (long long)LEASE),
                         count);
        sql(database, "DELETE FROM idempotency_keys");
    }
    sql(NULL, "SET GLOBAL sql_mode=DEFAULT");
    idem_store_close(store);
}

/* Claims until one has seen the mark, or has not; returns the last one's fence. */
static uint64_t fence_of(struct idem_store *store, const char *key, struct counts wanted)
{
    struct counts before = counts_take();
    struct idem_op op;

    op_claim(&op, key, "A");
    assert_int_equal(applied(store, &op), IDEM_RESULT_ACQUIRED);
    counts_expect(&before, wanted);
    return op.out.fence;
}

/*
 * A claim does not read the mark before it writes. With a clock that was stepped back behind it the
 * first one goes the long way, and those that follow go above what that has seen.
 */
static void a_clock_behind_the_mark(void **state)
{
    /* The guess that is rolled back; a look at row and mark; row, mark, insert and guard. */
    struct counts usual = claim_counts(state);
    struct counts longer = {{[BEGIN] = 1 + usual.of[BEGIN],
                             [INSERT] = 2,
                             [SELECT] = 5 + usual.of[SELECT],
                             [COMMIT] = 1,
                             [ROLLBACK] = usual.of[BEGIN]}};
    const uint64_t high = UINT64_C(9000000000000000);
    const char *database = database_name();
    struct idem_store *store = store_new(database, state);
    struct idem_op op;
    uint64_t fence;

    sql(database, "UPDATE idempotency_meta SET fence_floor=%llu", (unsigned long long)high);
    assert_int_equal(fence_of(store, "a", longer), high + 1);
    assert_int_equal(fence_of(store, "b", usual), high + 1);
    sql(database, "UPDATE idempotency_meta SET fence_floor=%llu", (unsigned long long)high + 5);
    assert_int_equal(fence_of(store, "c", longer), high + 6);
    assert_int_equal(fence_of(store, "d", usual), high + 6);
    sql(database, "UPDATE idempotency_meta SET fence_floor=5");
    assert_int_equal(fence_of(store, "e", usual), high + 6);
    op_get(&op, "absent");
    assert_int_equal(applied(store, &op), IDEM_RESULT_ABSENT);
    fence = fence_of(store, "f", usual);
    assert_true(fence < high);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys WHERE "
                                          "fence=created_us"),
                     1);
    idem_store_close(store);
}

/* What a guard holds must not be told: the salt is in it. */
static void a_guard_is_not_told(void **state)
{
    struct idem_mariadb_link link = {.deadline_us = steady_us() + 10 * SECOND};
    struct idem_mariadb_options options;
    struct idem_mariadb_text text = {.data = NULL};
    struct idem_url parsed;
    char url[URL_SIZE];

    (void)state;
    url_make(database_name(), "", url);
    assert_int_equal(idem_url_parse(url, &parsed, NULL), IDEM_OK);
    assert_int_equal(idem_mariadb_options_read(&parsed, &options, NULL), IDEM_OK);
    assert_int_equal(idem_mariadb_connect(&link, &options, NULL), IDEM_OK);
    idem_mariadb_text_add(&text, "SELECT " IDEM_MARIADB_ONLY_IF
                                 "'secret'=CONNECTION_ID()" IDEM_MARIADB_OR_AGAIN);
    assert_int_equal(idem_mariadb_query(&link, &text, NULL, NULL), IDEM_MARIADB_AGAIN);
    assert_null(strstr(link.fault.text, "secret"));
    assert_null(strstr(link.fault.text, "CONNECTION_ID"));
    idem_mariadb_text_deinit(&text);
    idem_mariadb_disconnect(&link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(usual_ops_are_few_statements, &forms[0]),
        cmocka_unit_test_prestate(usual_ops_are_few_statements, &forms[1]),
        cmocka_unit_test_prestate(what_is_told_is_written, &forms[0]),
        cmocka_unit_test_prestate(what_is_told_is_written, &forms[1]),
        cmocka_unit_test_prestate(a_clock_behind_the_mark, &forms[0]),
        cmocka_unit_test_prestate(a_clock_behind_the_mark, &forms[1]),
        cmocka_unit_test(a_guard_is_not_told),
    };

    return cmocka_run_group_tests_name("mariadb: guess", tests, NULL, NULL);
}
