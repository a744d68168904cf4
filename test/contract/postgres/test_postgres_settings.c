/* What a URL may say, what settings of the server are too weak, and how much fits. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

static void schema_drop(const char *schema)
{
    sql("DROP SCHEMA %s CASCADE", schema);
}

static void url_refused(const char *url, const char *words)
{
    struct idem_message message = {""};

    assert_int_equal(idem_store_url_check(url, NULL, &message), IDEM_ERR_INVALID);
    if (!strstr(message.text, words))
        fail_msg("%s: \"%s\" does not say \"%s\"", url, message.text, words);
    assert_null(strstr(message.text, "hunter2"));
}

static void urls_are_read_strictly(void **state)
{
    (void)state;
    url_refused("postgresql://h/db?sink=off", "it takes timeout, sync, size");
    url_refused("postgresql://h/db?options=-csearch_path", "it takes timeout");
    url_refused("postgresql://h/db?target_session_attrs=any", "it takes timeout");
    url_refused("postgresql://h/db?sync=maybe", "sync=always or sync=off");
    url_refused("postgresql://h/db?vacuum=yes", "vacuum=auto or vacuum=off");
    url_refused("postgresql://h/db?size=12", "at least 1m");
    url_refused("postgresql://h/db?schema=pg_catalog", "small letters");
    url_refused("postgresql://h/db?schema=a%22b", "small letters");
    url_refused("postgresql://h/db?schema=Idem", "small letters");
    url_refused("postgresql://h/db?timeout=soon", "timeout");
    url_refused("postgresql://u:hunter2@h", "names no database");
    url_refused("postgresql://u:hunter2@h/db?port=5433", "leave one of them out");
    url_refused("postgresql:///db?host=", "host= is empty");
    url_refused("postgresql:///db?host=/run&port=65536", "port=65536");
    url_refused("postgresql:///db", "no host");
    url_refused("postgresql:h/db", "no \"//\"");
    assert_int_equal(idem_store_url_check("postgres://u:p@[::1]:5433,b/db?sslmode=verify-full&"
                                          "sslrootcert=/etc/ca.pem&application_name=x",
                                          NULL, NULL),
                     IDEM_OK);
    assert_int_equal(
        idem_store_url_check("postgresql:///db?host=/run/postgresql&port=5433", NULL, NULL),
        IDEM_OK);
}

/* By the socket in the server's folder, which has the port in its name. */
static void socket_is_used(void **state)
{
    const char *folder = getenv("IDEM_TEST_POSTGRES_FOLDER"), *port = getenv("IDEM_TEST_POSTGRES_"
                                                                             "PORT");
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    assert_non_null(folder);
    assert_non_null(port);
    snprintf(url, sizeof url, "postgresql://idem@/idem?host=%s&port=%s&schema=%s", folder, port,
             schema);
    store = store_make(url);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(sql("SELECT count(*) FROM pg_stat_activity WHERE client_addr IS NULL AND "
                         "application_name = 'idem'"),
                     1);
    idem_store_close(store);
    schema_drop(schema);
}

/* libpq's own sentences are passed on; none of them has the password. */
static void password_is_never_told(void **state)
{
    const char *at = strrchr(getenv("IDEM_TEST_POSTGRES"), '@');
    char url[URL_SIZE];
    struct idem_message message = {""};
    struct idem_store *store = NULL;

    (void)state;
    snprintf(url, sizeof url, "postgresql://nobody:hunter2%s", at);
    assert_int_equal(idem_store_open(url, NULL, &store, &message), IDEM_ERR_UNAVAILABLE);
    assert_null(strstr(message.text, "hunter2"));
    assert_non_null(strstr(message.text, "nobody"));
}

/* Sets a setting of the whole server, and waits until it is in force. */
static void setting_set(const char *name, const char *value)
{
    int64_t until_us = steady_us() + MINUTE;

    sql("ALTER SYSTEM SET %s = '%s'", name, value);
    sql("SELECT pg_reload_conf()");
    while (!sql("SELECT (current_setting('%s') = '%s')::int", name, value)) {
        assert_true(steady_us() < until_us);
        (void)poll(NULL, 0, 5);
    }
}

static void weak_settings_are_refused(void **state)
{
    static const char *const names[] = {"fsync", "full_page_writes"};
    const char *schema = schema_name();
    char url[URL_SIZE], lax[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    url_make(schema, "sync=off", lax);
    idem_store_close(store_make(url));
    for (size_t i = 0; i < COUNT(names); i++) {
        setting_set(names[i], "off");
        refused(url, IDEM_ERR_UNSAFE, names[i]);
        idem_store_close(store_open(lax));
        setting_set(names[i], "on");
        idem_store_close(store_open(url));
    }
    schema_drop(schema);
}

/* Notes synchronous_commit, as it is while a record is written, in a column of that record. */
static void commit_setting_spy(const char *schema)
{
    sql("SET search_path = %s; CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
        "NEW.resolved_why = convert_to(current_setting('synchronous_commit'), 'UTF8'); RETURN "
        "NEW; END$$; CREATE TRIGGER spy BEFORE INSERT ON idempotency_keys FOR EACH ROW EXECUTE "
        "FUNCTION spy()",
        schema);
}

static void durability_is_asked_for(const char *server, const char *options, const char *wanted)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store;

    sql("ALTER ROLE idem SET synchronous_commit = '%s'", server);
    url_make(schema, options, url);
    store = store_make(url);
    commit_setting_spy(schema);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(
        sql("SELECT count(*) FROM %s.idempotency_keys WHERE resolved_why = '%s'", schema, wanted),
        1);
    idem_store_close(store);
    sql("ALTER ROLE idem RESET synchronous_commit");
    schema_drop(schema);
}

/* Whatever the role's default is: a weaker one is raised, a stronger one stays. */
static void commits_are_synchronous(void **state)
{
    (void)state;
    durability_is_asked_for("off", "", "on");
    durability_is_asked_for("local", "", "on");
    durability_is_asked_for("remote_apply", "", "remote_apply");
    durability_is_asked_for("remote_write", "", "on");
    durability_is_asked_for("on", "sync=off", "off");
}

static size_t facts_with(struct idem_store *store, const char *name, const char *words)
{
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    size_t count = idem_store_describe(store, facts, IDEM_STORE_FACTS_MAX), found = 0;

    for (size_t i = 0; i < count; i++)
        found += strcmp(facts[i].name, name) == 0 && strstr(facts[i].value, words);
    return found;
}

/* How a role wants names to be written changes nothing of what the functions are. */
static void names_may_be_quoted(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];

    (void)state;
    url_make(schema, "", url);
    idem_store_close(store_make(url));
    sql("ALTER ROLE idem SET quote_all_identifiers = on");
    idem_store_close(store_open(url));
    idem_store_close(store_make(url));
    sql("ALTER ROLE idem RESET quote_all_identifiers");
    idem_store_close(store_open(url));
    schema_drop(schema);
}

static void facts_are_told(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make(schema, "", url);
    store = store_make(url);
    assert_int_equal(facts_with(store, "backend", "libpq"), 1);
    assert_int_equal(facts_with(store, "server", "127.0.0.1"), 1);
    assert_int_equal(facts_with(store, "clock difference", " ms"), 1);
    assert_int_equal(facts_with(store, "durability", "synchronous_commit=on"), 1);
    assert_int_equal(facts_with(store, "durability", "fsync=on, full_page_writes=on"), 1);
    assert_int_equal(facts_with(store, "can lose", "failover"), 1);
    assert_int_equal(facts_with(store, "claims", "taken"), 1);
    assert_int_equal(facts_with(store, "schema", schema), 1);
    idem_store_close(store);
    url_make(schema, "sync=off", url);
    store = store_open(url);
    assert_int_equal(facts_with(store, "durability", "synchronous_commit=off"), 1);
    assert_int_equal(facts_with(store, "can lose", "crash"), 1);
    idem_store_close(store);
    schema_drop(schema);
}

/* Claims and completes keys with large answers until a claim finds no room. Returns how many. */
static int fill(struct idem_store *store, const char *name, struct idem_bytes body)
{
    for (int count = 0; count < 1000; count++) {
        struct idem_op op;
        char key[32];

        snprintf(key, sizeof key, "%s %d", name, count);
        /* The size is looked at once a second. */
        if (claimed(store, key, "A") == IDEM_RESULT_FULL)
            return count;
        op_verdict(&op, IDEM_OP_COMPLETE, key, "A", body);
        assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
        idem_op_deinit(&op);
        (void)poll(NULL, 0, 10);
    }
    fail_msg("it was never full");
    return 0;
}

static void size_is_kept_to(void **state)
{
    static uint8_t body[200000];
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op, sweep = {.kind = IDEM_OP_SWEEP, .in.sweep.limit = 1000};
    int count;

    (void)state;
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (uint8_t)(i * i >> 7); /* nothing that compression could shrink to nothing */
    url_make(schema, "size=4m", url);
    store = store_make(url);
    claimed(store, "running", "A");
    count = fill(store, "k", idem_bytes_make(body, sizeof body));
    assert_true(count > 5);
    assert_int_equal(facts_with(store, "claims", "refused"), 1);
    assert_int_equal(claimed(store, "running", "B"), IDEM_RESULT_IN_PROGRESS);
    assert_int_equal(claimed(store, "k 0", "B"), IDEM_RESULT_COMPLETED);
    op_verdict(&op, IDEM_OP_COMPLETE, "running", "A", text("paid"));
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    idem_op_deinit(&op);
    idem_store_close(store);
    store = store_open(url); /* a full store opens, and is still full once it has looked */
    assert_int_equal(facts_with(store, "claims", "refused"), 1);
    assert_int_equal(claimed(store, "one more", "A"), IDEM_RESULT_FULL);
    /* For each record that goes there is room for one. */
    sql("UPDATE %s.idempotency_keys SET expires_at = clock_timestamp(), sweep_at = "
        "clock_timestamp() WHERE key IN ('k 0', 'k 1')",
        schema);
    assert_int_equal(applied(store, &sweep), IDEM_RESULT_OK);
    assert_int_equal(sweep.out.count, 2);
    assert_int_equal(claimed(store, "one more", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(claimed(store, "two more", "A"), IDEM_RESULT_ACQUIRED);
    assert_int_equal(claimed(store, "three more", "A"), IDEM_RESULT_FULL);
    idem_store_close(store);
    schema_drop(schema);
}

/* The largest answer there may be, and a batch of large ones, which takes several round trips. */
static void large_answers_fit(void **state)
{
    static const size_t sizes[] = {IDEM_BODY_SIZE_MAX, 9u << 20, 9u << 20, 9u << 20};
    const char *schema = schema_name();
    char url[URL_SIZE], key[8];
    uint8_t *body = calloc(1, IDEM_BODY_SIZE_MAX);
    struct idem_op ops[COUNT(sizes)], get;
    struct idem_op *list[COUNT(sizes)];
    struct idem_store *store;

    (void)state;
    assert_non_null(body);
    body[0] = 1;
    body[IDEM_BODY_SIZE_MAX - 1] = 2;
    url_make(schema, "timeout=60s", url);
    store = store_make(url);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        snprintf(key, sizeof key, "k%zu", i);
        claimed(store, key, "A");
        list[i] = &ops[i];
        op_verdict(&ops[i], IDEM_OP_COMPLETE, key, "A", idem_bytes_make(body, sizes[i]));
    }
    assert_int_equal(idem_store_apply(store, list, COUNT(sizes), NULL), IDEM_OK);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        snprintf(key, sizeof key, "k%zu", i);
        assert_int_equal(ops[i].result, IDEM_RESULT_OK);
        idem_op_deinit(&ops[i]);
        op_get(&get, key);
        assert_int_equal(applied(store, &get), IDEM_RESULT_FOUND);
        assert_bytes(get.out.found.record.answer.body, idem_bytes_make(body, sizes[i]));
        idem_op_deinit(&get);
    }
    free(body);
    idem_store_close(store);
    schema_drop(schema);
}

/* A server that warns of other things than durability is as good as another one. */
static void warnings_are_no_doubts(void **state)
{
    static const char *const settings[][2] = {
        {"standard_conforming_strings", "off"},       {"session_preload_libraries", "auto_explain"},
        {"auto_explain.log_min_duration", "0"},       {"auto_explain.log_level", "warning"},
        {"auto_explain.log_nested_statements", "on"},
    };
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    for (size_t i = 0; i < COUNT(settings); i++)
        sql("LOAD 'auto_explain'; ALTER DATABASE idem SET %s = %s", settings[i][0], settings[i][1]);
    url_make(schema, "", url);
    store = store_make(url);
    claimed(store, "k", "A");
    assert_int_equal(completed(store, "k", "A", "paid"), IDEM_RESULT_OK);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_COMPLETED);
    idem_store_close(store);
    sql("ALTER DATABASE idem RESET ALL");
    schema_drop(schema);
}

/* Answers that somebody has spoilt are neither told nor executed again. */
static void damaged_records_are_told(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op = {.kind = IDEM_OP_SCAN, .in.scan.limit = 10};

    (void)state;
    url_make(schema, "", url);
    store = store_make(url);
    claimed(store, "k", "A");
    completed(store, "k", "A", "paid");
    sql("UPDATE %s.idempotency_keys SET headers = '\\x01'", schema);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_CORRUPT);
    sql("UPDATE %s.idempotency_keys SET headers = '', fingerprint = '\\x01'", schema);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_CORRUPT); /* and no "mismatch" */
    sql("UPDATE %s.idempotency_keys SET state = 'failed', fingerprint = ''", schema);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_CORRUPT);
    sql("UPDATE %s.idempotency_keys SET state = 'completed'", schema);
    sql("UPDATE %s.idempotency_keys SET headers = '\\x01'", schema);
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_int_equal(op.out.count, 0);
    assert_int_equal(op.out.damaged, 1);
    assert_int_equal(op.out.damaged_id_count, 1);
    assert_memory_equal(op.out.damaged_ids[0].bytes, id_of("k").bytes, IDEM_ID_SIZE);
    idem_op_deinit(&op);
    op = (struct idem_op){.kind = IDEM_OP_FORGET, .id = id_of("k"), .in.forget.force = true};
    assert_int_equal(applied(store, &op), IDEM_RESULT_OK);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_ACQUIRED);
    idem_store_close(store);
    schema_drop(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_read_strictly),  cmocka_unit_test(socket_is_used),
        cmocka_unit_test(password_is_never_told),  cmocka_unit_test(weak_settings_are_refused),
        cmocka_unit_test(commits_are_synchronous), cmocka_unit_test(names_may_be_quoted),
        cmocka_unit_test(facts_are_told),          cmocka_unit_test(size_is_kept_to),
        cmocka_unit_test(large_answers_fit),       cmocka_unit_test(damaged_records_are_told),
        cmocka_unit_test(warnings_are_no_doubts),
    };

    return cmocka_run_group_tests_name("settings of a PostgreSQL store", tests, NULL, NULL);
}
