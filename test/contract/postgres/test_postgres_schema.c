/* The schema: made, taken away, made by many at once, and refused where it does not fit. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define VERSION   2 /* what this build needs */
#define PROCESSES 4

static int64_t tables_in(const char *schema)
{
    return sql("SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
               "WHERE n.nspname = '%s' AND c.relkind IN ('r', 'v')",
               schema);
}

static int64_t functions_in(const char *schema)
{
    return sql("SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
               "WHERE n.nspname = '%s'",
               schema);
}

static int64_t schema_is_there(const char *schema)
{
    return sql("SELECT count(*) FROM pg_namespace WHERE nspname = '%s'", schema);
}

static void forward_and_back(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, VERSION);
    assert_int_equal(tables_in(schema), 4);
    migrated(url, IDEM_SCHEMA_LATEST, VERSION, VERSION);
    migrated(url, 1, VERSION, 1);
    assert_int_equal(tables_in(schema), 4);
    assert_int_equal(functions_in(schema), 3);
    migrated(url, VERSION, 1, VERSION);
    migrated(url, 0, VERSION, 0);
    assert_int_equal(tables_in(schema), 0);
    assert_int_equal(schema_is_there(schema), 0);
    migrated(url, 0, 0, 0);
    assert_int_equal(schema_is_there(schema), 0);
}

static void records_outlive_a_step_back(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(schema_name(), "", url);
    store = store_make(url);
    claimed(store, "k", "A");
    completed(store, "k", "A", "paid");
    idem_store_close(store);
    migrated(url, 1, VERSION, 1);
    migrated(url, IDEM_SCHEMA_LATEST, 1, VERSION);
    store = store_open(url);
    assert_false(idem_store_is_new(store));
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_COMPLETED);
    idem_store_close(store);
    migrated(url, 0, VERSION, 0);
}

/* A schema that was there before, or that others use, is not taken away. */
static void schema_of_others_stays(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    sql("CREATE SCHEMA %s", schema);
    migrated(url, IDEM_SCHEMA_LATEST, 0, VERSION);
    migrated(url, 0, VERSION, 0);
    assert_int_equal(schema_is_there(schema), 1);
    sql("DROP SCHEMA %s", schema);
    migrated(url, IDEM_SCHEMA_LATEST, 0, VERSION);
    sql("CREATE TABLE %s.orders (n int)", schema);
    migrated(url, 0, VERSION, 0);
    assert_int_equal(tables_in(schema), 1);
    sql("DROP SCHEMA %s CASCADE", schema);
}

/* Functions that run as their owner must not be where others can put theirs beside them. */
static void a_schema_that_is_open_is_refused(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    sql("CREATE SCHEMA %s", schema);
    sql("GRANT CREATE ON SCHEMA %s TO PUBLIC", schema);
    url_make(schema, "", url);
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNSAFE, "REVOKE CREATE ON SCHEMA");
    assert_int_equal(tables_in(schema), 0);
    sql("REVOKE CREATE ON SCHEMA %s FROM PUBLIC", schema);
    migrated(url, 1, 0, 1);
    sql("GRANT CREATE ON SCHEMA %s TO PUBLIC", schema);
    migration_refused(url, VERSION, IDEM_ERR_UNSAFE, "anybody may create");
    migrated(url, 0, 1, 0);
    sql("DROP SCHEMA %s", schema);
}

static void by_several_at_once(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    pid_t children[PROCESSES];

    (void)state;
    url_make(schema, "timeout=60s", url);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct idem_migration migration;

            _exit(idem_store_migrate(url, IDEM_SCHEMA_LATEST, &migration, NULL) ||
                  migration.to != VERSION);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    migrated(url, 0, VERSION, 0);
}

static void not_migrated_is_told(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    refused(url, IDEM_ERR_UNAVAILABLE, "idem migrate URL");
    sql("CREATE SCHEMA %s", schema);
    refused(url, IDEM_ERR_UNAVAILABLE, "idem migrate URL");
    sql("DROP SCHEMA %s", schema);
}

static void other_versions_are_refused(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    migrated(url, 1, 0, 1);
    refused(url, IDEM_ERR_UNSUPPORTED, "idem migrate URL");
    migrated(url, IDEM_SCHEMA_LATEST, 1, VERSION);
    sql("UPDATE %s.idempotency_meta SET schema_version = 99", schema);
    refused(url, IDEM_ERR_UNSUPPORTED, "version 99");
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNSUPPORTED, "newer build");
    migration_refused(url, 0, IDEM_ERR_UNSUPPORTED, "newer build");
    sql("UPDATE %s.idempotency_meta SET schema_version = %d", schema, VERSION);
    migration_refused(url, VERSION + 1, IDEM_ERR_INVALID, "no schema version");
    migration_refused(url, -2, IDEM_ERR_INVALID, "no schema version");
    migrated(url, 0, VERSION, 0);
}

/* Without its one row the tables are no store any more, and no migration makes them one. */
static void lost_meta_is_told(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, VERSION);
    sql("DELETE FROM %s.idempotency_meta", schema);
    refused(url, IDEM_ERR_CORRUPT, "restore it from a backup");
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_CORRUPT, "begin a new store");
    migration_refused(url, 0, IDEM_ERR_CORRUPT, "begin a new store");
    sql("DROP SCHEMA %s CASCADE", schema);
}

/* A handle that is open while the schema changes under it stops, and says why. */
static void changed_under_an_open_store(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(schema_name(), "", url);
    store = store_make(url);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    migrated(url, 1, VERSION, 1);
    claim_fails(store, "k", IDEM_ERR_UNAVAILABLE);
    migrated(url, IDEM_SCHEMA_LATEST, 1, VERSION);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    idem_store_close(store);
    migrated(url, 0, VERSION, 0);
}

/* What a store says whose salt is no longer the one behind its URL. */
static void replaced(struct idem_store *store, struct idem_op *op)
{
    assert_non_null(
        strstr(apply_fails(store, op, IDEM_ERR_UNSAFE), "no longer the one that was opened"));
}

static void replaced_for_all(struct idem_store *store, const char *known)
{
    struct idem_op op, put;

    op_claim(&op, known, "B");
    replaced(store, &op);
    op_claim(&op, "new to both", "B");
    replaced(store, &op);
    op_get(&op, known);
    op.in.get.match = true;
    op.in.get.fingerprint = payload_of("payload");
    op.in.get.principal = caller_of("alice");
    replaced(store, &op);
    op_get(&op, known);
    assert_int_equal(applied(store, &op), IDEM_RESULT_FOUND);
    op_blank(&put, IDEM_OP_PUT, known);
    put.id.bytes[0] ^= 1;
    put.in.put.record = op.out.found.record;
    put.in.put.record.id = put.id;
    apply_fails(store, &put, IDEM_ERR_UNSAFE);
    idem_op_deinit(&op);
}

/* Its tables are thrown away and made anew while it runs: what was claimed is not known there. */
static void made_anew_under_an_open_store(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *old, *fresh;
    struct idem_op op;

    (void)state;
    url_make(schema, "", url);
    old = store_make(url);
    assert_int_equal(claimed(old, "k", "A"), IDEM_RESULT_ACQUIRED);
    sql("DROP SCHEMA %s CASCADE", schema);
    migrated(url, IDEM_SCHEMA_LATEST, 0, VERSION);
    op_claim(&op, "k", "A");
    replaced(old, &op);
    fresh = store_open(url);
    assert_int_equal(claimed(fresh, "k", "A"), IDEM_RESULT_ACQUIRED);
    replaced_for_all(old, "k");
    assert_int_equal(claimed(fresh, "new to both", "A"), IDEM_RESULT_ACQUIRED);
    idem_store_close(old);
    idem_store_close(fresh);
    migrated(url, 0, VERSION, 0);
}

/* All rows are thrown away under it, or only the one that tells what store it is. */
static void emptied_under_an_open_store(void **state)
{
    static const char *const emptied[] = {"idempotency_meta", "idempotency_keys, idempotency_meta"};

    (void)state;
    for (size_t i = 0; i < sizeof emptied / sizeof emptied[0]; i++) {
        const char *schema = schema_name();
        char url[URL_SIZE];
        struct idem_store *store;
        struct idem_op op;

        url_make(schema, "", url);
        store = store_make(url);
        assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
        sql("SET search_path = %s; TRUNCATE %s", schema, emptied[i]);
        op_claim(&op, "new to both", "B");
        replaced(store, &op);
        assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_keys WHERE state = 'processing' "
                             "AND key = 'new to both'",
                             schema),
                         0);
        idem_store_close(store);
        sql("DROP SCHEMA %s CASCADE", schema);
    }
}

/* Another process copies records into it from a store with another salt. */
static void adopted_under_an_open_store(void **state)
{
    struct idem_salt salt = {{1, 2, 3}};
    struct idem_message message = {""};
    char url[URL_SIZE];
    struct idem_store *old, *copier;

    (void)state;
    url_make(schema_name(), "", url);
    old = store_make(url);
    copier = store_open(url);
    assert_int_equal(idem_store_adopt(copier, &salt, &message), IDEM_OK);
    assert_int_equal(claimed(copier, "k", "A"), IDEM_RESULT_ACQUIRED);
    replaced_for_all(old, "k");
    assert_int_equal(claimed(copier, "new to both", "A"), IDEM_RESULT_ACQUIRED);
    idem_store_close(old);
    idem_store_close(copier);
    migrated(url, 0, VERSION, 0);
}

static void a_table_of_others_is_left(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    sql("CREATE SCHEMA %s; CREATE TABLE %s.idempotency_keys (request_id text)", schema, schema);
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "schema=");
    assert_int_equal(tables_in(schema), 1);
    refused(url, IDEM_ERR_UNAVAILABLE, "idem migrate URL");
    sql("DROP SCHEMA %s CASCADE", schema);
}

/* The view of people: who reads it is not waited for, and a changed one is made anew. */
static void a_view_is_made_anew_where_it_differs(void **state)
{
    static const char *const changed[] = {"id", "id, kind, 7 AS more"};
    const char *schema = schema_name();
    PGconn *reader = sql_connect("idem");
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "timeout=2s", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, VERSION);
    sql_state(reader, "BEGIN; SELECT FROM %s.idempotency_records", schema);
    migrated(url, IDEM_SCHEMA_LATEST, VERSION, VERSION);
    PQfinish(reader);
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) {
        sql("DROP VIEW %s.idempotency_records; CREATE VIEW %s.idempotency_records AS SELECT %s "
            "FROM %s.idempotency_keys",
            schema, schema, changed[i], schema);
        migrated(url, IDEM_SCHEMA_LATEST, VERSION, VERSION);
        assert_int_equal(sql("SELECT count(body_size) FROM %s.idempotency_records", schema), 0);
        assert_int_equal(tables_in(schema), 4);
    }
    migrated(url, 0, VERSION, 0);
}

/* What has the view's name and is somebody else's stays as it is, forward, back and in between. */
static void a_view_of_others_stays(void **state)
{
    static const char *const kinds[][2] = {{"VIEW", "AS SELECT 7 AS theirs"},
                                           {"TABLE", "(theirs integer)"},
                                           {"MATERIALIZED VIEW", "AS SELECT 7 AS theirs"},
                                           {"SEQUENCE", ""}};
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        sql("CREATE SCHEMA %s; CREATE %s %s.idempotency_records %s", schema, kinds[i][0], schema,
            kinds[i][1]);
        migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "idem did not make");
        assert_int_equal(functions_in(schema), 0);
        migrated(url, 0, 0, 0);
        sql("ALTER %s %s.idempotency_records RENAME TO theirs", kinds[i][0], schema);
        migrated(url, IDEM_SCHEMA_LATEST, 0, VERSION);
        sql("DROP VIEW %s.idempotency_records; ALTER %s %s.theirs RENAME TO idempotency_records",
            schema, kinds[i][0], schema);
        migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "rename it");
        migration_refused(url, 0, IDEM_ERR_UNAVAILABLE, "schema=");
        sql("ALTER %s %s.idempotency_records RENAME TO theirs", kinds[i][0], schema);
        migrated(url, 0, VERSION, 0);
        sql("DROP SCHEMA %s CASCADE", schema);
    }
}

static void first_opening_makes_the_salt(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *first, *second;
    struct idem_salt a, b;

    (void)state;
    url_make(schema, "", url);
    first = store_make(url);
    second = store_open(url);
    assert_true(idem_store_is_new(first));
    assert_false(idem_store_is_new(second));
    a = idem_store_salt(first);
    b = idem_store_salt(second);
    assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
    idem_store_close(first);
    idem_store_close(second);
    migrated(url, 0, VERSION, 0);
}

/* People read the table: words, instants, text where it is text. */
static void people_can_read_it(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op;

    (void)state;
    url_make(schema, "", url);
    store = store_make(url);
    op_claim(&op, "k", "A");
    op.in.claim.key = idem_bytes_make("a\xff\0b", 4);
    op.in.claim.scope = text("caf\xc3\xa9");
    assert_int_equal(applied(store, &op), IDEM_RESULT_ACQUIRED);
    idem_op_deinit(&op);
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_records WHERE state = 'processing' "
                         "AND kind = 'http' AND method = 'POST' AND path = '/charges' AND scope = "
                         "U&'caf\\00e9' AND key = 'a\\377\\000b' AND lease = interval '10 seconds' "
                         "AND lease_until - created_at = lease",
                         schema),
                     1);
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_keys WHERE state = 'processing' AND "
                         "expires_at - lease_until = interval '24 hours'",
                         schema),
                     1);
    idem_store_close(store);
    migrated(url, 0, VERSION, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_and_back),
        cmocka_unit_test(records_outlive_a_step_back),
        cmocka_unit_test(schema_of_others_stays),
        cmocka_unit_test(a_schema_that_is_open_is_refused),
        cmocka_unit_test(by_several_at_once),
        cmocka_unit_test(not_migrated_is_told),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(lost_meta_is_told),
        cmocka_unit_test(changed_under_an_open_store),
        cmocka_unit_test(made_anew_under_an_open_store),
        cmocka_unit_test(emptied_under_an_open_store),
        cmocka_unit_test(adopted_under_an_open_store),
        cmocka_unit_test(a_table_of_others_is_left),
        cmocka_unit_test(a_view_is_made_anew_where_it_differs),
        cmocka_unit_test(a_view_of_others_stays),
        cmocka_unit_test(first_opening_makes_the_salt),
        cmocka_unit_test(people_can_read_it),
    };

    return cmocka_run_group_tests_name("the schema of a PostgreSQL store", tests, NULL, NULL);
}
