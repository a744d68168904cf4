/*
 * Least privilege: a gateway's own role, with the GRANT statements of docs/guide/store-postgres.md,
 * can do all that a gateway and a person at the command line do, and nothing beside the rules.
 */
#include <stdio.h>
#include <string.h>

#include "support.h"

static char role[64]; /* may nothing but log in, until it is granted something */

/* As in the guide, word by word but for the names. */
static const char *const functions[] = {
    "idempotency_version", "idempotency_salt",         "idempotency_adopt",
    "idempotency_confirm", "idempotency_claim",        "idempotency_claim_lone",
    "idempotency_verdict", "idempotency_verdict_lone", "idempotency_get",
    "idempotency_resolve", "idempotency_forget",       "idempotency_put",
    "idempotency_scan",    "idempotency_audit_page",   "idempotency_sweep",
};

static void grant(const char *schema)
{
    sql("GRANT USAGE ON SCHEMA %s TO %s", schema, role);
    for (size_t i = 0; i < COUNT(functions); i++)
        sql("GRANT EXECUTE ON FUNCTION %s.%s TO %s", schema, functions[i], role);
}

static int role_make(void **state)
{
    (void)state;
    snprintf(role, sizeof role, "gateway_%s", schema_name());
    sql("CREATE ROLE %s LOGIN", role);
    return 0;
}

static int role_drop(void **state)
{
    (void)state;
    sql("DROP OWNED BY %s; DROP ROLE %s", role, role);
    return 0;
}

/* A schema of the owner, granted or not, and the role's URL of it. */
static const char *schema_make(bool granted, char ret_url[URL_SIZE])
{
    const char *schema = schema_name();
    char owner[URL_SIZE];

    url_make(schema, "", owner);
    migrated(owner, IDEM_SCHEMA_LATEST, 0, 2);
    if (granted)
        grant(schema);
    url_make_for(role, schema, "", ret_url);
    return schema;
}

static void schema_end(const char *schema)
{
    sql("DROP SCHEMA %s CASCADE", schema);
}

static void run_one(struct idem_store *store, struct idem_op *op, enum idem_result wanted)
{
    assert_string_equal(idem_result_text(applied(store, op)), idem_result_text(wanted));
    idem_op_deinit(op);
}

static void page_count(struct idem_store *store, enum idem_op_kind kind, size_t wanted)
{
    struct idem_op op = {.kind = kind};

    if (kind == IDEM_OP_SCAN)
        op.in.scan.limit = 10;
    else if (kind == IDEM_OP_AUDIT)
        op.in.audit.limit = 10;
    else
        op.in.sweep.limit = 10;
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_int_equal(op.out.count, wanted);
    idem_op_deinit(&op);
}

static void verdicts(struct idem_store *store)
{
    struct idem_op op;

    claimed(store, "a", "A");
    claimed(store, "b", "A");
    claimed(store, "c", "A");
    op_verdict(&op, IDEM_OP_COMPLETE, "a", "A", text("paid"));
    run_one(store, &op, IDEM_RESULT_OK);
    op_verdict(&op, IDEM_OP_FAIL, "b", "A", text(""));
    run_one(store, &op, IDEM_RESULT_OK);
    op_verdict(&op, IDEM_OP_ABANDON, "c", "A", text(""));
    op.in.verdict.answer.status = 0;
    run_one(store, &op, IDEM_RESULT_OK);
    op_verdict(&op, IDEM_OP_FAIL, "never claimed", "A", text(""));
    run_one(store, &op, IDEM_RESULT_OK);
    assert_int_equal(claimed(store, "a", "B"), IDEM_RESULT_COMPLETED);
    assert_int_equal(claimed(store, "b", "B"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(claimed(store, "c", "B"), IDEM_RESULT_UNKNOWN);
}

static void people(struct idem_store *store)
{
    struct idem_op op;
    uint64_t fence;
    int64_t updated_us;

    op_get(&op, "c");
    assert_int_equal(applied(store, &op), IDEM_RESULT_FOUND);
    fence = op.out.found.record.fence;
    updated_us = op.out.found.record.updated_us;
    idem_op_deinit(&op);
    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_RESOLVE;
    op.id = id_of("c");
    op.in.resolve.fence = fence;
    op.in.resolve.updated_us = updated_us;
    op.in.resolve.owner = owner_of("dana");
    op.in.resolve.who = text("dana");
    op.in.resolve.ttl_us = TTL;
    run_one(store, &op, IDEM_RESULT_OK);
    op_forget(&op, "a", false);
    run_one(store, &op, IDEM_RESULT_OK);
}

static void a_granted_role_can_do_everything(void **state)
{
    char url[URL_SIZE];
    const char *schema = schema_make(true, url);
    struct idem_store *store = store_open(url);
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    struct idem_salt salt = {{1}};
    size_t count;

    (void)state;
    assert_int_equal(idem_store_adopt(store, &salt, NULL), IDEM_OK);
    verdicts(store);
    people(store);
    page_count(store, IDEM_OP_SCAN, 3);
    page_count(store, IDEM_OP_AUDIT, 2);
    page_count(store, IDEM_OP_SWEEP, 0);
    count = idem_store_describe(store, facts, IDEM_STORE_FACTS_MAX);
    for (size_t i = 0; i < count; i++)
        assert_string_not_equal(facts[i].name, "trouble");
    idem_store_close(store);
    schema_end(schema);
}

static void copies_can_be_put(void **state)
{
    char url[URL_SIZE];
    const char *schema = schema_make(true, url);
    struct idem_store *store = store_open(url);
    struct idem_op get, op = {.kind = IDEM_OP_PUT};

    (void)state;
    claimed(store, "k", "A");
    completed(store, "k", "A", "paid");
    op_get(&get, "k");
    assert_int_equal(applied(store, &get), IDEM_RESULT_FOUND);
    op.id = get.id;
    op.in.put.record = get.out.found.record;
    run_one(store, &op, IDEM_RESULT_OK);
    idem_op_deinit(&get);
    idem_store_close(store);
    schema_end(schema);
}

/* Every table directly, and every function that is not for gateways. */
static void a_granted_role_can_do_nothing_else(void **state)
{
    static const char *const forbidden[] = {
        "SELECT salt FROM %s.idempotency_meta",
        "SELECT * FROM %s.idempotency_keys",
        "SELECT * FROM %s.idempotency_records",
        "SELECT * FROM %s.idempotency_audit",
        "UPDATE %s.idempotency_keys SET state = 'failed'",
        "DELETE FROM %s.idempotency_keys",
        "DELETE FROM %s.idempotency_audit",
        "INSERT INTO %s.idempotency_meta (schema_version) VALUES (3)",
        "TRUNCATE %s.idempotency_keys",
        "DROP TABLE %s.idempotency_keys",
        "CREATE TABLE %s.mine (n int)",
        "SELECT %s.idempotency_audit_add('forget', '', '', 1, '', '')",
        "SELECT %s.idempotency_floor('')",
    };
    char url[URL_SIZE];
    const char *schema = schema_make(true, url);
    PGconn *connection = sql_connect(role);

    (void)state;
    for (size_t i = 0; i < COUNT(forbidden); i++) {
        char statement[256];

        snprintf(statement, sizeof statement, forbidden[i], schema);
        if (strcmp(sql_state(connection, "%s", statement), "42501") != 0)
            fail_msg("%s was not forbidden", statement);
    }
    PQfinish(connection);
    schema_end(schema);
}

/* What these functions call is what migration has made, whatever else the role's path leads to. */
static void a_role_cannot_put_its_own_beneath(void **state)
{
    char url[URL_SIZE];
    const char *schema = schema_make(true, url);
    PGconn *connection = sql_connect(role);
    struct idem_store *store;

    (void)state;
    sql("CREATE SCHEMA %s AUTHORIZATION %s", role, role);
    assert_string_equal(
        sql_state(connection,
                  "CREATE FUNCTION %s.idempotency_us(timestamptz) RETURNS bigint LANGUAGE sql AS "
                  "'SELECT 1::bigint'; CREATE TABLE %s.idempotency_meta (salt bytea);"
                  "SET search_path = %s, %s; CREATE TEMP TABLE idempotency_keys (id bytea);"
                  "SELECT %s.idempotency_confirm()",
                  role, role, role, schema, schema),
        "00000");
    PQfinish(connection);
    sql("ALTER ROLE %s SET search_path = %s, %s", role, role, schema);
    store = store_open(url);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    idem_store_close(store);
    schema_end(schema);
    sql("ALTER ROLE %s RESET search_path; DROP SCHEMA %s CASCADE", role, role);
}

static void a_role_without_grants_is_told(void **state)
{
    char url[URL_SIZE];
    const char *schema = schema_make(false, url);

    (void)state;
    refused(url, IDEM_ERR_UNAVAILABLE, "GRANT");
    sql("GRANT USAGE ON SCHEMA %s TO %s", schema, role);
    refused(url, IDEM_ERR_UNAVAILABLE, "GRANT");
    sql("GRANT EXECUTE ON FUNCTION %s.idempotency_version TO %s", schema, role);
    refused(url, IDEM_ERR_UNAVAILABLE, "GRANT");
    schema_end(schema);
}

static void a_role_may_not_migrate(void **state)
{
    char url[URL_SIZE];
    const char *schema = schema_make(true, url);

    (void)state;
    migration_refused(url, 0, IDEM_ERR_UNAVAILABLE, "may not migrate");
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_meta", schema), 1);
    schema_end(schema);
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "may not migrate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_granted_role_can_do_everything),
        cmocka_unit_test(copies_can_be_put),
        cmocka_unit_test(a_granted_role_can_do_nothing_else),
        cmocka_unit_test(a_role_cannot_put_its_own_beneath),
        cmocka_unit_test(a_role_without_grants_is_told),
        cmocka_unit_test(a_role_may_not_migrate),
    };

    return cmocka_run_group_tests_name("a role that may little", tests, role_make, role_drop);
}
