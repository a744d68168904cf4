/* The tables: made, removed, made by several at once, and found in every state a crash may leave.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static void there_and_back(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(database, "", url);
    migrated(url, 0, 0, 0); /* nothing is there, and nothing is made to be removed */
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    migrated(url, 1, 1, 1);
    store = store_open(url);
    assert_true(idem_store_is_new(store));
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    idem_store_close(store);
    migrated(url, IDEM_SCHEMA_LATEST, 1, 1);
    store = store_open(url);
    assert_false(idem_store_is_new(store));
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_IN_PROGRESS);
    idem_store_close(store);
    migrated(url, 0, 1, 0);
    migrated(url, 0, 0, 0);
    assert_int_equal(sql_number(NULL,
                                "SELECT COUNT(*) FROM information_schema.tables WHERE "
                                "table_schema='%s'",
                                database),
                     0);
    store = store_make(url);
    assert_true(idem_store_is_new(store));
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_ACQUIRED);
    idem_store_close(store);
}

static void no_such_version(void **state)
{
    char url[URL_SIZE];

    (void)state;
    url_make(database_name(), "", url);
    migration_refused(url, 2, IDEM_ERR_INVALID, "schema version 2");
    migration_refused(url, -7, IDEM_ERR_INVALID, "schema version -7");
}

static void several_at_once(void **state)
{
    char url[URL_SIZE];
    pid_t children[6];

    (void)state;
    url_make(database_name(), "", url);
    for (size_t i = 0; i < COUNT(children); i++) {
        struct idem_migration migration;

        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            _exit(idem_store_migrate(url, IDEM_SCHEMA_LATEST, &migration, NULL) ? 1 : 0);
    }
    for (size_t i = 0; i < COUNT(children); i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    migrated(url, IDEM_SCHEMA_LATEST, 1, 1);
    idem_store_close(store_open(url));
}

/* What a crash between two steps leaves, forward and back, and what comes of it. */
static void half_way(void **state)
{
    static const char *const missing[] = {
        "DROP TABLE idempotency_meta",
        "DROP TABLE idempotency_meta;DROP VIEW idempotency_readable",
        "DROP TABLE idempotency_meta,idempotency_audit",
        "DROP TABLE idempotency_meta,idempotency_audit;DROP VIEW idempotency_readable",
        "DELETE FROM idempotency_meta",
        "DROP TABLE idempotency_keys",
        "DROP TABLE idempotency_keys;DROP VIEW idempotency_readable",
        "DROP TABLE idempotency_keys,idempotency_audit;DROP VIEW idempotency_readable",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(missing); i++) {
        const char *database = database_name();
        char url[URL_SIZE];
        struct idem_store *store;

        url_make(database, "", url);
        idem_store_close(store_make(url));
        sql(database, "%s", missing[i]);
        refused(url, strstr(missing[i], "DROP") ? IDEM_ERR_UNAVAILABLE : IDEM_ERR_UNSUPPORTED,
                "idem migrate URL");
        if (i % 2)
            migrated(url, 0, 0, 0);
        store = store_make(url);
        assert_true(idem_store_is_new(store));
        assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
        idem_store_close(store);
    }
}

/* Keys whose salt is lost protect nothing any more: that must not pass for a new store. */
static void keys_without_their_salt(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(database, "", url);
    store = store_make(url);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    idem_store_close(store);
    sql(database, "DROP TABLE idempotency_meta");
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_CORRUPT, "holds keys");
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys"), 1);
}

/* The table of the same name that many people have made from an article. */
static void table_of_others(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];

    (void)state;
    url_make(database, "", url);
    sql(NULL,
        "CREATE DATABASE %s;CREATE TABLE %s.idempotency_keys(request_id VARCHAR(64)PRIMARY KEY)",
        database, database);
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "not idem's");
    migration_refused(url, 0, IDEM_ERR_UNAVAILABLE, "not idem's");
    refused(url, IDEM_ERR_UNAVAILABLE, "idem migrate URL");
}

static void view_of_others(void **state)
{
    static const char *const theirs[][2] = {{"VIEW", "AS SELECT 'idempotency_keys' AS theirs"},
                                            {"TABLE", "(theirs INT)"}};

    (void)state;
    for (size_t i = 0; i < COUNT(theirs); i++) {
        const char *database = database_name();
        char url[URL_SIZE];

        url_make(database, "", url);
        sql(NULL, "CREATE DATABASE %s;CREATE %s %s.idempotency_readable %s", database, theirs[i][0],
            database, theirs[i][1]);
        migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "not idem's");
        migration_refused(url, 0, IDEM_ERR_UNAVAILABLE, "rename it");
        assert_int_equal(sql_number(NULL,
                                    "SELECT COUNT(*) FROM information_schema.tables WHERE "
                                    "table_schema='%s'",
                                    database),
                         1);
        sql(database, "RENAME TABLE idempotency_readable TO theirs");
        migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
        sql(database, "DROP VIEW idempotency_readable;"
                      "RENAME TABLE theirs TO idempotency_readable");
        migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "not idem's");
        migration_refused(url, 0, IDEM_ERR_UNAVAILABLE, "not idem's");
        sql(database, "RENAME TABLE idempotency_readable TO theirs");
        migrated(url, 0, 1, 0);
        sql(NULL, "DROP DATABASE %s", database);
    }
}

/* Whose view it is cannot be told by who may not see it: nothing is replaced on a guess. */
static void view_that_may_not_be_seen(void **state)
{
    const char *database = database_name(), *user = database_name();
    char url[URL_SIZE], own[URL_SIZE];

    (void)state;
    url_make(database, "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    sql(NULL,
        "CREATE USER '%s'@'%%' IDENTIFIED BY 'secret';GRANT ALL ON %s.* TO '%s'@'%%';"
        "REVOKE SHOW VIEW ON %s.* FROM '%s'@'%%'",
        user, database, user, database, user);
    url_make_for(user, "secret", database, "", own);
    migration_refused(own, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "SHOW VIEW");
    sql(NULL, "GRANT SHOW VIEW ON %s.* TO '%s'@'%%'", database, user);
    migrated(own, IDEM_SCHEMA_LATEST, 1, 1);
    migrated(own, 0, 1, 0);
    migrated(own, IDEM_SCHEMA_LATEST, 0, 1);
    sql(NULL, "REVOKE SHOW VIEW ON %s.* FROM '%s'@'%%'", database, user);
    migrated(own, IDEM_SCHEMA_LATEST, 1, 1); /* it is the user's own */
    migrated(own, 0, 1, 0);
    sql(NULL, "DROP USER '%s'@'%%'", user);
}

/* That of another version, or changed by hand. */
static void view_with_other_columns(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];

    (void)state;
    url_make(database, "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    sql(database, "CREATE OR REPLACE VIEW idempotency_readable AS SELECT id,state,7 AS more FROM "
                  "idempotency_keys");
    migrated(url, IDEM_SCHEMA_LATEST, 1, 1);
    assert_int_equal(sql_number(database, "SELECT COUNT(body_size) FROM idempotency_readable"), 0);
    migrated(url, 0, 1, 0);
}

static void another_version(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];

    (void)state;
    url_make(database, "", url);
    refused(url, IDEM_ERR_UNAVAILABLE, "idem migrate URL"); /* later they may be there */
    idem_store_close(store_make(url));
    sql(database, "UPDATE idempotency_meta SET schema_version=2");
    refused(url, IDEM_ERR_UNSUPPORTED, "idem migrate URL");
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNSUPPORTED, "newer idem");
    sql(database, "UPDATE idempotency_meta SET schema_version=0");
    refused(url, IDEM_ERR_UNSUPPORTED, "idem migrate URL");
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    idem_store_close(store_open(url));
}

/* The grants of docs/guide/store-mariadb.md, and nothing else. */
static void user_create(const char *user, const char *database)
{
    sql(NULL,
        "CREATE USER '%s'@'%%' IDENTIFIED BY 'secret of %s';"
        "GRANT SELECT,INSERT,UPDATE,DELETE ON %s.idempotency_keys TO '%s'@'%%';"
        "GRANT SELECT,INSERT,DELETE ON %s.idempotency_audit TO '%s'@'%%';"
        "GRANT SELECT,UPDATE ON %s.idempotency_meta TO '%s'@'%%'",
        user, user, database, user, database, user, database, user);
}

static void every_op(struct idem_store *store)
{
    struct idem_op op;

    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(completed(store, "k", "A", "paid"), IDEM_RESULT_OK);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_COMPLETED);
    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_FORGET;
    op.id = id_of("k");
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    op_verdict(&op, IDEM_OP_FAIL, "gone", "A", text(""));
    op.in.verdict.lease_us = 0;
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_SWEEP;
    op.in.sweep.limit = 10;
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_int_equal(op.out.count, 1);
    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_SCAN;
    op.in.scan.limit = 10;
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    idem_op_deinit(&op);
    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_AUDIT;
    op.in.audit.limit = 10;
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_int_equal(op.out.count, 1);
    idem_op_deinit(&op);
}

static void least_privilege(void **state)
{
    const char *database = database_name(), *user = database_name();
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    char url[URL_SIZE], password[64];
    struct idem_store *store;
    struct idem_salt salt = {{1}};

    (void)state;
    url_make(database, "", url);
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    user_create(user, database);
    snprintf(password, sizeof password, "secret%%20of%%20%s", user);
    url_make_for(user, password, database, "?size=1g", url);
    store = store_open(url);
    assert_int_equal(idem_store_adopt(store, &salt, NULL), IDEM_OK);
    every_op(store);
    assert_true(idem_store_describe(store, facts, IDEM_STORE_FACTS_MAX) >= 8);
    for (size_t i = 0; facts[i].name && strcmp(facts[i].name, "new") != 0; i++)
        assert_string_not_equal(facts[i].name, "reachable");
    idem_store_close(store);
    migration_refused(url, 0, IDEM_ERR_UNAVAILABLE, "refuses");
    sql(NULL, "REVOKE UPDATE ON %s.idempotency_keys FROM '%s'@'%%'", database, user);
    refused(url, IDEM_ERR_UNAVAILABLE, "docs/guide/store-mariadb.md");
    url_make_for(user, "wrong", database, "", url);
    refused(url, IDEM_ERR_UNAVAILABLE, "refuses");
    sql(NULL, "DROP USER '%s'@'%%'", user);
}

/* The words of the articles, and times as a person reads them. */
static void people_can_read_it(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op;

    (void)state;
    url_make(database, "", url);
    store = store_make(url);
    claimed(store, "processing", "A");
    claimed(store, "completed", "A");
    completed(store, "completed", "A", "paid");
    claimed(store, "failed", "A");
    op_verdict(&op, IDEM_OP_FAIL, "failed", "A", text(""));
    applied(store, &op);
    claimed(store, "unknown", "A");
    op_verdict(&op, IDEM_OP_ABANDON, "unknown", "A", text(""));
    op.in.verdict.reason = IDEM_REASON_TRUNCATED;
    applied(store, &op);
    op_claim(&op, "never", "A");
    op.in.claim.unknown_ttl_us = IDEM_NEVER_US;
    applied(store, &op);
    idem_store_close(store);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_keys WHERE state="
                                          "CONVERT(`key` USING utf8mb4)"),
                     4);
    assert_int_equal(
        sql_number(database, "SELECT COUNT(*) FROM idempotency_readable WHERE kind='http' AND "
                             "method='POST' AND path='/charges' AND scope='scope' AND "
                             "ABS(TIMESTAMPDIFF(SECOND,created_at,UTC_TIMESTAMP(6)))<60 AND "
                             "lease_until=created_at+INTERVAL 10 SECOND AND expires_at>created_at"),
        4);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_readable WHERE "
                                          "`key`='never' AND expires_at IS NULL"),
                     1);
    assert_int_equal(sql_number(database, "SELECT COUNT(*) FROM idempotency_readable WHERE "
                                          "state='unknown' AND reason='truncated'"),
                     1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(no_such_version),
        cmocka_unit_test(several_at_once),
        cmocka_unit_test(half_way),
        cmocka_unit_test(keys_without_their_salt),
        cmocka_unit_test(table_of_others),
        cmocka_unit_test(view_of_others),
        cmocka_unit_test(view_with_other_columns),
        cmocka_unit_test(view_that_may_not_be_seen),
        cmocka_unit_test(another_version),
        cmocka_unit_test(least_privilege),
        cmocka_unit_test(people_can_read_it),
    };

    return cmocka_run_group_tests_name("mariadb: schema", tests, NULL, NULL);
}
