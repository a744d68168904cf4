/* Statements by name: a connection has them where no pooler is between, and can do without. */
#include <stdio.h>
#include <string.h>

#include "store/postgres/postgres_store.h"
#include "support.h"

/* Migrates and opens the store itself, below its front, so that its connection can be reached. */
static struct idem_backend *backend_make(const char *text)
{
    static struct idem_url url;
    struct idem_backend *backend = NULL;
    struct idem_message message = {{0}};
    struct idem_salt salt;

    idem_store_close(store_make(text));
    assert_int_equal(idem_url_parse(text, &url, &message), IDEM_OK);
    assert_int_equal(idem_backend_postgres.open(&url, NULL, &backend, &salt, &message), IDEM_OK);
    return backend;
}

/* Says something on the store's own connection. */
static void say(struct idem_backend *backend, const char *words)
{
    struct idem_pg_trip trip = {.link = &backend->link, .deadline_us = INT64_MAX};

    assert_int_equal(idem_pg_trip_send(&trip, IDEM_PG_NAMED_NONE, words, NULL), IDEM_PG_DONE);
    assert_int_equal(idem_pg_trip_end(&trip), IDEM_PG_DONE);
    idem_pg_trip_free(&trip);
}

static enum idem_result claim_below(struct idem_backend *backend, const char *key,
                                    const char *owner)
{
    struct idem_op op;
    struct idem_op *ops[] = {&op};
    struct idem_message message = {{0}};
    enum idem_result result;

    op_claim(&op, key, owner);
    if (idem_pg_apply(backend, ops, 1, &message))
        fail_msg("%s", message.text);
    result = op.result;
    idem_op_deinit(&op);
    return result;
}

/* Claims must see what was committed meanwhile, whatever becomes of the session's default. */
static void isolation_that_changes_is_noticed(void **state)
{
    static const char *const levels[] = {"REPEATABLE READ", "SERIALIZABLE"};
    char url[URL_SIZE], words[128];

    (void)state;
    for (size_t i = 0; i < COUNT(levels); i++) {
        struct idem_backend *backend;

        url_make(schema_name(), "", url);
        backend = backend_make(url);
        assert_int_equal(claim_below(backend, "k", "A"), IDEM_RESULT_ACQUIRED);
        assert_false(backend->link.set_isolation);
        snprintf(words, sizeof words,
                 "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL %s", levels[i]);
        say(backend, words);
        assert_int_equal(claim_below(backend, "l", "A"), IDEM_RESULT_ACQUIRED);
        assert_true(backend->link.set_isolation);
        idem_backend_postgres.close(backend);
    }
}

static void statements_that_are_gone_are_parsed_again(void **state)
{
    char url[URL_SIZE];
    struct idem_backend *backend;

    (void)state;
    url_make(schema_name(), "", url);
    backend = backend_make(url);
    assert_true(backend->link.named);
    assert_int_equal(claim_below(backend, "k", "A"), IDEM_RESULT_ACQUIRED);
    say(backend, "DEALLOCATE ALL");
    assert_int_equal(claim_below(backend, "k", "B"), IDEM_RESULT_IN_PROGRESS);
    assert_false(backend->link.named);
    assert_int_equal(claim_below(backend, "l", "B"), IDEM_RESULT_ACQUIRED);
    idem_backend_postgres.close(backend);
}

/* The functions that they call go and come back, with a type of another number. */
static void statements_outlive_a_migration(void **state)
{
    char url[URL_SIZE];
    struct idem_backend *backend;

    (void)state;
    url_make(schema_name(), "", url);
    backend = backend_make(url);
    assert_int_equal(claim_below(backend, "k", "A"), IDEM_RESULT_ACQUIRED);
    migrated(url, 1, IDEM_PG_SCHEMA_VERSION, 1);
    migrated(url, IDEM_PG_SCHEMA_VERSION, 1, IDEM_PG_SCHEMA_VERSION);
    assert_int_equal(claim_below(backend, "k", "B"), IDEM_RESULT_IN_PROGRESS);
    assert_int_equal(claim_below(backend, "l", "B"), IDEM_RESULT_ACQUIRED);
    idem_backend_postgres.close(backend);
}

static void another_connection_has_its_own(void **state)
{
    char url[URL_SIZE];
    struct idem_backend *one, *other;

    (void)state;
    url_make(schema_name(), "", url);
    one = backend_make(url);
    other = backend_make(url);
    assert_string_not_equal(one->link.names[IDEM_PG_NAMED_CLAIM],
                            other->link.names[IDEM_PG_NAMED_CLAIM]);
    idem_backend_postgres.close(one);
    idem_backend_postgres.close(other);
}

static void a_pooler_is_noticed(void **state)
{
    char url[URL_SIZE];
    struct idem_backend *backend;

    (void)state;
    snprintf(url, sizeof url, "%s", getenv("IDEM_TEST_PGBOUNCER"));
    backend = backend_make(url);
    assert_false(backend->link.named);
    assert_int_equal(claim_below(backend, "k", "A"), IDEM_RESULT_ACQUIRED);
    idem_backend_postgres.close(backend);
}

static void a_function_that_is_missing_is_told(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store = NULL;
    struct idem_message message = {{0}};

    (void)state;
    url_make(schema, "", url);
    idem_store_close(store_make(url));
    sql("DROP FUNCTION \"%s\".idempotency_verdict", schema);
    assert_int_equal(idem_store_open(url, NULL, &store, &message), IDEM_ERR_UNAVAILABLE);
    assert_non_null(strstr(message.text, "lacks functions of idem"));
    assert_non_null(strstr(message.text, "idem migrate"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isolation_that_changes_is_noticed),
        cmocka_unit_test(statements_that_are_gone_are_parsed_again),
        cmocka_unit_test(statements_outlive_a_migration),
        cmocka_unit_test(another_connection_has_its_own),
        cmocka_unit_test(a_pooler_is_noticed),
        cmocka_unit_test(a_function_that_is_missing_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
