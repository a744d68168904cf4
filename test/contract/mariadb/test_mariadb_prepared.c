/* Statements of lone ops are prepared, where the server takes that; and say what they say. */
#include <mysql.h>
#include <stdio.h>
#include <string.h>

#include "../relay.h"
#include "store/mariadb/mariadb_store.h"
#include "support.h"

static int64_t status(const char *name)
{
    return sql_number(NULL, "SHOW GLOBAL STATUS LIKE '%s'", name);
}

static struct idem_store *store_new(const char *database)
{
    char url[URL_SIZE];

    url_make(database, "", url);
    return store_make(url);
}

/* Transactions that a lone claim is: with MySQL it cannot do without. */
static int64_t claim_begins(void)
{
    return server_has_returning() ? 0 : 1;
}

/* A claim and its verdict, alone each. */
static void pair_apply(struct idem_store *store, const char *key)
{
    assert_int_equal(claimed(store, key, "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(claimed(store, key, "B"), IDEM_RESULT_IN_PROGRESS);
    assert_int_equal(completed(store, key, "A", "paid"), IDEM_RESULT_OK);
    assert_int_equal(claimed(store, key, "B"), IDEM_RESULT_COMPLETED);
}

static void prepared_once_a_connection(void **state)
{
    struct idem_store *store = store_new(database_name());
    int64_t prepared, executed;
    char key[8];

    (void)state;
    pair_apply(store, "first");
    prepared = status("Com_stmt_prepare");
    executed = status("Com_stmt_execute");
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%d", i);
        pair_apply(store, key);
    }
    assert_int_equal(status("Com_stmt_prepare") - prepared, 0);
    /* A transaction cannot be prepared. */
    assert_int_equal(status("Com_stmt_execute") - executed, claim_begins() ? 10 : 40);
    idem_store_close(store);
    assert_int_equal(status("Prepared_stmt_count"), 0);
}

/* Verdicts of as many shapes as there are: by the reason, and by whether the answer ends. */
static void shapes_apply(struct idem_store *store, int round)
{
    for (int reason = IDEM_REASON_NONE; reason <= IDEM_REASON_INVALID; reason++) {
        bool unknown = idem_reason_is_unknown((enum idem_reason)reason);
        enum idem_op_kind kind = unknown ? IDEM_OP_ABANDON : IDEM_OP_COMPLETE;
        struct idem_op op;
        char key[16];

        snprintf(key, sizeof key, "k%d.%d", round, reason);
        assert_int_equal(claimed(store, key, "A"), IDEM_RESULT_ACQUIRED);
        op_verdict(&op, kind, key, "A", text(""));
        if (unknown)
            op.in.verdict.reason = (enum idem_reason)reason;
        else
            op.in.verdict.answer.tombstone = (enum idem_reason)reason;
        assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
        op_get(&op, key);
        assert_int_equal(applied(store, &op), IDEM_RESULT_FOUND);
        assert_int_equal(
            unknown ? op.out.found.record.reason : op.out.found.record.answer.tombstone, reason);
        idem_op_deinit(&op);
        assert_in_range(status("Prepared_stmt_count"), 1, IDEM_MARIADB_PREPARED_MAX);
    }
}

/* More shapes than are kept: each is there when it is needed, and there are never more. */
static void latest_few_are_kept(void **state)
{
    struct idem_store *store = store_new(database_name());
    int64_t prepared = status("Com_stmt_prepare");

    (void)state;
    shapes_apply(store, 0);
    shapes_apply(store, 1);
    assert_true(status("Com_stmt_prepare") - prepared > IDEM_MARIADB_PREPARED_MAX);
    idem_store_close(store);
}

/* From the start, and when the server takes no more. */
static void goes_without(void **state)
{
    struct idem_store *store;
    struct idem_op op;
    int64_t begun;

    (void)state;
    sql(NULL, "SET GLOBAL max_prepared_stmt_count=0");
    store = store_new(database_name());
    pair_apply(store, "k");
    begun = status("Com_begin");
    assert_int_equal(claimed(store, "l", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(completed(store, "l", "A", "paid"), IDEM_RESULT_OK);
    assert_int_equal(status("Com_begin") - begun, claim_begins());
    assert_int_equal(status("Prepared_stmt_count"), 0);
    idem_store_close(store);
    sql(NULL, "SET GLOBAL max_prepared_stmt_count=16382");
    store = store_new(database_name());
    pair_apply(store, "k");
    sql(NULL, "SET GLOBAL max_prepared_stmt_count=0");
    assert_int_equal(claimed(store, "l", "A"), IDEM_RESULT_ACQUIRED);
    op_verdict(&op, IDEM_OP_FAIL, "l", "A", text(""));
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    pair_apply(store, "m");
    sql(NULL, "SET GLOBAL max_prepared_stmt_count=16382");
    idem_store_close(store);
}

#define HEAD_SIZE 4 /* of a packet: its size, and a number; the command follows */

/* In a packet's place the query that makes the server answer as something in between might. */
static size_t query_put(uint8_t *bytes, const char *query)
{
    size_t size = 1 + strlen(query);

    memset(bytes, 0, HEAD_SIZE);
    bytes[0] = (uint8_t)size;
    bytes[HEAD_SIZE] = COM_QUERY;
    memcpy(bytes + HEAD_SIZE + 1, query, size - 1);
    return HEAD_SIZE + size;
}

static bool is_command(const uint8_t *bytes, size_t size, enum enum_server_command command)
{
    return size > HEAD_SIZE && bytes[HEAD_SIZE] == command;
}

static size_t refuse_to_prepare(uint8_t *bytes, size_t size)
{
    if (is_command(bytes, size, COM_STMT_PREPARE))
        return query_put(bytes, "what is this?");
    return size;
}

static size_t prepare_something_else(uint8_t *bytes, size_t size)
{
    static const char other[] = "SELECT 1";

    if (!is_command(bytes, size, COM_STMT_PREPARE))
        return size;
    size = query_put(bytes, other);
    bytes[HEAD_SIZE] = COM_STMT_PREPARE;
    return size;
}

/* A proxy need not know of prepared statements, and says so in words of its own, if at all. */
static void goes_without_through_a_proxy(void **state)
{
    static relay_rewrite *const proxies[] = {refuse_to_prepare, prepare_something_else};

    (void)state;
    for (size_t i = 0; i < COUNT(proxies); i++) {
        char url[URL_SIZE];
        struct relay relay;
        struct idem_store *store;

        relay_begin(&relay, server_port(), proxies[i]);
        url_make_through(relay.port, database_name(), url);
        store = store_make(url);
        pair_apply(store, "k");
        pair_apply(store, "l");
        idem_store_close(store);
        relay_end(&relay);
    }
}

static unsigned others; /* answers that are to be something else */

static size_t answer_something_else(uint8_t *bytes, size_t size)
{
    if (!is_command(bytes, size, COM_STMT_EXECUTE) || others == 0)
        return size;
    others--;
    return query_put(bytes, "SELECT 1,2,3,4,5,6,7,8");
}

/* Whether a statement was executed is then not known: it fails, and the next one has a connection
 * of its own. */
static void an_answer_of_something_else(void **state)
{
    char url[URL_SIZE];
    struct relay relay;
    struct idem_store *store;
    struct idem_op op;

    (void)state;
    relay_begin(&relay, server_port(), answer_something_else);
    url_make_through(relay.port, database_name(), url);
    store = store_make(url);
    others = 1;
    if (server_has_returning())
        assert_non_null(strstr(claim_fails(store, "k", IDEM_ERR_UNAVAILABLE), "other columns"));
    others = 0;
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    others = 1;
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    assert_non_null(strstr(apply_fails(store, &op, IDEM_ERR_UNAVAILABLE), "other columns"));
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_IN_PROGRESS);
    assert_int_equal(completed(store, "k", "A", "paid"), IDEM_RESULT_OK);
    idem_store_close(store);
    relay_end(&relay);
}

/* What is prepared is not what it was prepared for any more. */
static void tables_change_meanwhile(void **state)
{
    const char *database = database_name();
    struct idem_store *store = store_new(database);

    (void)state;
    pair_apply(store, "k");
    sql(database, "ALTER TABLE idempotency_keys ADD COLUMN note INT NULL FIRST");
    pair_apply(store, "l");
    sql(database, "ALTER TABLE idempotency_keys DROP COLUMN note;"
                  "ALTER TABLE idempotency_meta ADD COLUMN note INT NULL;"
                  "FLUSH TABLES");
    pair_apply(store, "m");
    idem_store_close(store);
}

/* Bytes that end a text, an escape, a statement or a value elsewhere. */
static void bytes_are_bytes(void **state)
{
    static const struct idem_bytes samples[] = {
        {(const uint8_t *)"", 0},           {(const uint8_t *)"\0", 1},
        {(const uint8_t *)"?", 1},          {(const uint8_t *)"a\0?'\\\"\xff\xbf\x27", 9},
        {(const uint8_t *)"k\xc3\xa9y", 4}, {(const uint8_t *)"%s%n ", 5},
    };
    struct idem_store *store = store_new(database_name());

    (void)state;
    for (size_t i = 0; i < COUNT(samples); i++) {
        struct idem_id id = idem_id_make(IDEM_KIND_HTTP, text("scope"), samples[i]);
        struct idem_op op;

        op_claim(&op, "", "A");
        op.id = id;
        op.in.claim.key = op.in.claim.scope = op.in.claim.path = samples[i];
        op.in.claim.principal.present = i % 2;
        memset(op.in.claim.principal.bytes, (int)i, IDEM_DIGEST_SIZE);
        assert_int_equal(applied(store, &op), IDEM_RESULT_ACQUIRED);
        op_verdict(&op, IDEM_OP_COMPLETE, "", "A", samples[i]);
        op.id = id;
        assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
        op_get(&op, "");
        op.id = id;
        assert_int_equal(applied(store, &op), IDEM_RESULT_FOUND);
        assert_bytes(op.out.found.record.key, samples[i]);
        assert_bytes(op.out.found.record.scope, samples[i]);
        assert_bytes(op.out.found.record.path, samples[i]);
        assert_bytes(op.out.found.record.answer.body, samples[i]);
        assert_int_equal(op.out.found.record.principal.present, i % 2);
        idem_op_deinit(&op);
    }
    idem_store_close(store);
}

/* What never ends is a number of its own, not one that is added to the clock and is too much. */
static void never_is_never(void **state)
{
    const char *database = database_name();
    struct idem_store *store = store_new(database);
    int64_t begun = status("Com_begin");
    struct idem_op op;

    (void)state;
    op_claim(&op, "k", "A");
    op.in.claim.ttl_us = op.in.claim.unknown_ttl_us = IDEM_NEVER_US;
    assert_int_equal(applied(store, &op), IDEM_RESULT_ACQUIRED);
    assert_int_equal(sql_number(database,
                                "SELECT COUNT(*) FROM idempotency_keys WHERE "
                                "expires_us=9223372036854775807 AND "
                                "sweep_us=9223372036854775807 AND "
                                "lease_until_us=created_us+%lld",
                                (long long)LEASE),
                     1);
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_int_equal(sql_number(database,
                                "SELECT COUNT(*) FROM idempotency_keys WHERE "
                                "expires_us=updated_us+%lld AND sweep_us=expires_us",
                                (long long)TTL),
                     1);
    assert_int_equal(status("Com_begin") - begun, claim_begins());
    idem_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_once_a_connection),
        cmocka_unit_test(latest_few_are_kept),
        cmocka_unit_test(goes_without),
        cmocka_unit_test(goes_without_through_a_proxy),
        cmocka_unit_test(an_answer_of_something_else),
        cmocka_unit_test(tables_change_meanwhile),
        cmocka_unit_test(bytes_are_bytes),
        cmocka_unit_test(never_is_never),
    };

    return cmocka_run_group_tests_name("mariadb: prepared", tests, NULL, NULL);
}
