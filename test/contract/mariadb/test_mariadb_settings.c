/* The server's own settings: those that must not matter, and those that must be refused. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "store/mariadb/mariadb_store.h"
#include "support.h"

static int64_t host_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec / 1000;
}

/* Keys that a collation, a trimmed end, a quote or a C string would take for one another. */
static const struct idem_bytes keys[] = {
    {(const uint8_t *)"key", 3},      {(const uint8_t *)"KEY", 3},
    {(const uint8_t *)"key ", 4},     {(const uint8_t *)"key\0", 4},
    {(const uint8_t *)"key\0\0", 5},  {(const uint8_t *)"k\xc3\xa9y", 4},
    {(const uint8_t *)"k\xe9y", 3},   {(const uint8_t *)"key\xff", 4},
    {(const uint8_t *)"ke\\'y", 5},   {(const uint8_t *)"ke'\"`y", 6},
    {(const uint8_t *)"\\", 1},       {(const uint8_t *)"'; DROP TABLE x; --", 19},
    {(const uint8_t *)"\xbf\x27", 2}, {(const uint8_t *)"%s%n", 4},
    {(const uint8_t *)"", 0},         {(const uint8_t *)"\0", 1},
};

static void keys_are_bytes(struct idem_store *store)
{
    struct idem_op ops[COUNT(keys)];
    uint8_t body[COUNT(keys)];

    for (size_t i = 0; i < COUNT(keys); i++) {
        op_claim(&ops[i], "", "A");
        ops[i].id = idem_id_make(IDEM_KIND_HTTP, text("scope"), keys[i]);
        ops[i].in.claim.key = keys[i];
        ops[i].in.claim.path = keys[i];
    }
    assert_int_equal(apply_batch(store, ops, COUNT(keys), NULL), IDEM_OK);
    for (size_t i = 0; i < COUNT(keys); i++) {
        struct idem_id id = ops[i].id;

        expect(&ops[i], ACQUIRED);
        op_verdict(&ops[i], IDEM_OP_COMPLETE, "", "A", idem_bytes_make(&body[i], 1));
        ops[i].id = id;
        body[i] = (uint8_t)(i * 17);
    }
    assert_int_equal(apply_batch(store, ops, COUNT(keys), NULL), IDEM_OK);
    for (size_t i = 0; i < COUNT(keys); i++) {
        struct idem_op op;

        expect(&ops[i], OK);
        op_get(&op, "");
        op.id = ops[i].id;
        assert_int_equal(applied(store, &op), IDEM_RESULT_FOUND);
        assert_bytes(op.out.found.record.key, keys[i]);
        assert_bytes(op.out.found.record.path, keys[i]);
        assert_bytes(op.out.found.record.answer.body, idem_bytes_make(&body[i], 1));
        idem_op_deinit(&op);
    }
}

static void time_is_the_servers(struct idem_store *store)
{
    int64_t before_us = host_now_us();
    struct idem_op op;

    op_claim(&op, "when", "A");
    assert_int_equal(applied(store, &op), IDEM_RESULT_ACQUIRED);
    assert_in_range(op.out.now_us, before_us, host_now_us());
    op_get(&op, "when");
    assert_int_equal(applied(store, &op), IDEM_RESULT_FOUND);
    assert_in_range(op.out.found.record.created_us, before_us, host_now_us());
    assert_int_equal(op.out.found.record.lease_until_us, op.out.found.record.created_us + LEASE);
    assert_int_equal(op.out.found.record.fence, op.out.found.record.created_us);
    idem_op_deinit(&op);
    assert_int_equal(claimed(store, "when", "B"), IDEM_RESULT_IN_PROGRESS);
}

/* Each with what sets it back. */
static const struct {
    const char *odd, *usual;
} settings[] = {
    {"SET GLOBAL sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE,"
     "HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION,NO_ZERO_DATE'",
     "SET GLOBAL sql_mode=DEFAULT"},
    {"SET GLOBAL sql_mode=''", "SET GLOBAL sql_mode=DEFAULT"},
    {"SET GLOBAL sql_mode=''/*M!100300 ,sql_mode='ORACLE'*/", "SET GLOBAL sql_mode=DEFAULT"},
    {"SET GLOBAL time_zone='-11:30'", "SET GLOBAL time_zone='+12:45'"},
    {"SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE",
     "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ"},
    {"SET GLOBAL TRANSACTION READ ONLY", "SET GLOBAL TRANSACTION READ WRITE"},
    {"SET GLOBAL autocommit=0", "SET GLOBAL autocommit=1"},
    {"SET GLOBAL completion_type='CHAIN'", "SET GLOBAL completion_type=DEFAULT"},
    {"SET GLOBAL sql_select_limit=1", "SET GLOBAL sql_select_limit=DEFAULT"},
    {"SET GLOBAL unique_checks=0", "SET GLOBAL unique_checks=1"},
    {"SET GLOBAL sql_safe_updates=1", "SET GLOBAL sql_safe_updates=0"},
    {"SET GLOBAL character_set_server=utf16,collation_server=utf16_general_ci",
     "SET GLOBAL character_set_server=DEFAULT,collation_server=DEFAULT"},
    {"SET GLOBAL innodb_stats_persistent=0", "SET GLOBAL innodb_stats_persistent=1"},
};

static void odd_settings_do_not_matter(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(settings); i++) {
        char url[URL_SIZE];
        struct idem_store *store;

        print_message("%s\n", settings[i].odd);
        url_make(database_name(), "", url);
        sql(NULL, "%s", settings[i].odd);
        store = store_make(url);
        keys_are_bytes(store);
        time_is_the_servers(store);
        idem_store_close(store);
        sql(NULL, "%s", settings[i].usual);
    }
}

static void weak_settings_are_refused(void **state)
{
    const char *database = database_name();
    char url[URL_SIZE], off[URL_SIZE];

    (void)state;
    url_make(database, "", url);
    url_make(database, "?sync=off", off);
    idem_store_close(store_make(url));
    for (int flush = 0; flush <= 2; flush += 2) {
        sql(NULL, "SET GLOBAL innodb_flush_log_at_trx_commit=%d", flush);
        refused(url, IDEM_ERR_UNSAFE, "innodb_flush_log_at_trx_commit=1");
        idem_store_close(store_open(off));
    }
    sql(NULL, "SET GLOBAL innodb_flush_log_at_trx_commit=1;SET GLOBAL read_only=1");
    refused(url, IDEM_ERR_UNAVAILABLE, "read_only");
    refused(off, IDEM_ERR_UNAVAILABLE, "read_only");
    migration_refused(url, IDEM_SCHEMA_LATEST, IDEM_ERR_UNAVAILABLE, "read_only");
    sql(NULL, "SET GLOBAL read_only=0");
    idem_store_close(store_open(url));
}

static bool is_mysql(void)
{
    return sql_number(NULL, "SELECT @@version NOT LIKE '%%MariaDB%%'") == 1;
}

/* MySQL alone can write pages or its redo log in ways that a crash does not forgive. */
static void weak_settings_of_mysql_are_refused(void **state)
{
    char url[URL_SIZE], off[URL_SIZE];
    const char *database = database_name();

    (void)state;
    url_make(database, "", url);
    url_make(database, "?sync=off", off);
    idem_store_close(store_make(url));
    sql(NULL, "SET GLOBAL innodb_doublewrite=DETECT_ONLY");
    refused(url, IDEM_ERR_UNSAFE, "innodb_doublewrite=ON");
    idem_store_close(store_open(off));
    sql(NULL, "SET GLOBAL innodb_doublewrite=DETECT_AND_RECOVER");
    idem_store_close(store_open(url));
    sql(NULL, "SET GLOBAL innodb_doublewrite=ON;ALTER INSTANCE DISABLE INNODB REDO_LOG");
    refused(url, IDEM_ERR_UNSAFE, "ALTER INSTANCE ENABLE INNODB REDO_LOG");
    idem_store_close(store_open(off));
    sql(NULL, "ALTER INSTANCE ENABLE INNODB REDO_LOG");
    idem_store_close(store_open(url));
}

/* The certificates that MySQL makes for itself are in no host's name. */
static void mysql_may_demand_encryption(void **state)
{
    char url[URL_SIZE], encrypted[URL_SIZE], verified[URL_SIZE];
    const char *database = database_name();
    void *held;

    (void)state;
    url_make(database, "", url);
    url_make(database, "?ssl=on", encrypted);
    url_make(database, "?ssl=verify", verified);
    for (size_t i = 0; i < 2; i++) { /* the whole log-in, when the server remembers none before */
        sql(NULL, "FLUSH PRIVILEGES");
        migrated(i ? encrypted : url, IDEM_SCHEMA_LATEST, i ? 1 : 0, 1);
    }
    refused(verified, IDEM_ERR_UNAVAILABLE, "certificate");
    held = sql_hold(NULL, "SET GLOBAL require_secure_transport=1");
    refused(url, IDEM_ERR_UNAVAILABLE, "ssl=verify or ssl=on");
    idem_store_close(store_open(encrypted));
    sql_more(held, "SET GLOBAL require_secure_transport=0");
    sql_release(held);
    idem_store_close(store_open(url));
}

static int number_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    MYSQL_ROW row = mysql_fetch_row(*result);

    (void)statement;
    (void)affected;
    return row && idem_mariadb_number(row[0], context) ? IDEM_OK : IDEM_ERR_CORRUPT;
}

/* The rows of a gateway that stands still within a transaction are freed before long. */
static void standing_still_has_an_end(void **state)
{
    struct idem_mariadb_link link = {.deadline_us = steady_us() + 10 * SECOND};
    struct idem_mariadb_options options;
    struct idem_mariadb_text text = {.data = NULL};
    struct idem_mariadb_facts facts;
    struct idem_url parsed;
    char url[URL_SIZE];
    uint64_t seconds = 0;

    (void)state;
    url_make(database_name(), "?timeout=7s", url);
    assert_int_equal(idem_url_parse(url, &parsed, NULL), IDEM_OK);
    assert_int_equal(idem_mariadb_options_read(&parsed, &options, NULL), IDEM_OK);
    assert_int_equal(idem_mariadb_connect(&link, &options, NULL), IDEM_OK);
    assert_int_equal(idem_mariadb_session_begin(&link, &options, &text, &facts), IDEM_OK);
    idem_mariadb_text_clear(&text);
    idem_mariadb_text_add(
        &text, "SELECT /*M!100300 @@idle_transaction_timeout*//*!80000 @@wait_timeout*/");
    assert_int_equal(idem_mariadb_query(&link, &text, number_take, &seconds), IDEM_OK);
    assert_int_equal(seconds, is_mysql() ? 60 : 7);
    idem_mariadb_text_deinit(&text);
    idem_mariadb_disconnect(&link);
}

/* Those that only a server of its own could have: what is made of what it tells. */
static void each_fact_is_judged(void **state)
{
    struct idem_mariadb_facts good = {
        .flush = 1, .doublewrite = true, .redo_log = true, .packet = 16u << 20};
    struct idem_mariadb_options always = {.sync = true}, off = {.sync = false};
    struct idem_mariadb_link link = {.mysql = NULL};
    struct idem_mariadb_facts facts = good;

    (void)state;
    assert_int_equal(idem_mariadb_session_check(&link, &always, &facts), IDEM_OK);
    facts.doublewrite = false;
    assert_int_equal(idem_mariadb_session_check(&link, &always, &facts), IDEM_ERR_UNSAFE);
    assert_non_null(strstr(link.fault.text, "innodb_doublewrite=ON"));
    assert_int_equal(idem_mariadb_session_check(&link, &off, &facts), IDEM_OK);
    facts = good;
    facts.redo_log = false;
    assert_int_equal(idem_mariadb_session_check(&link, &always, &facts), IDEM_ERR_UNSAFE);
    assert_non_null(strstr(link.fault.text, "ENABLE INNODB REDO_LOG"));
    assert_int_equal(idem_mariadb_session_check(&link, &off, &facts), IDEM_OK);
    facts = good;
    facts.log_bin = true;
    assert_int_equal(idem_mariadb_session_check(&link, &always, &facts), IDEM_ERR_UNSAFE);
    assert_non_null(strstr(link.fault.text, "sync_binlog=1"));
    assert_int_equal(idem_mariadb_session_check(&link, &off, &facts), IDEM_OK);
    facts.sync_binlog = 1;
    assert_int_equal(idem_mariadb_session_check(&link, &always, &facts), IDEM_OK);
    facts.statement_binlog = true;
    assert_int_equal(idem_mariadb_session_check(&link, &off, &facts), IDEM_ERR_UNSAFE);
    assert_non_null(strstr(link.fault.text, "binlog_format"));
    facts = good;
    facts.packet = 65536;
    assert_int_equal(idem_mariadb_session_check(&link, &off, &facts), IDEM_ERR_UNSAFE);
    assert_non_null(strstr(link.fault.text, "max_allowed_packet"));
}

/* One that fits to the byte is kept, one that does not is a tombstone, and the batch goes on. */
static void packets_bound_answers(void **state)
{
    size_t packet = 1u << 20;
    uint8_t *body = calloc(1, packet);
    char url[URL_SIZE], key[32];
    struct idem_store *store;

    (void)state;
    assert_non_null(body);
    sql(NULL, "SET GLOBAL max_allowed_packet=%zu", packet);
    url_make(database_name(), "", url);
    store = store_make(url);
    for (size_t size = packet / 2 - 16384, i = 0; size < packet; size += 4093, i++) {
        struct idem_op op, more, *list[2] = {&more, &op};

        snprintf(key, sizeof key, "k%zu", i);
        assert_int_equal(claimed(store, key, "A"), IDEM_RESULT_ACQUIRED);
        op_verdict(&op, IDEM_OP_COMPLETE, key, "A", idem_bytes_make(body, size));
        op_claim(&more, "one more", "A");
        assert_int_equal(idem_store_apply(store, list, 2, NULL), IDEM_OK);
        expect(&op, OK);
        assert_int_equal(op.out.tombstoned, size > packet / 2 - 9000);
        assert_int_equal(op.out.oversized, size > packet / 2 - 9000);
        op_get(&op, key);
        assert_int_equal(applied(store, &op), IDEM_RESULT_FOUND);
        assert_int_equal(op.out.found.record.answer.tombstone,
                         size > packet / 2 - 9000 ? IDEM_REASON_TOO_LARGE : IDEM_REASON_NONE);
        assert_true(size > packet / 2 - 9000 || op.out.found.record.answer.body.size == size);
        idem_op_deinit(&op);
    }
    free(body);
    idem_store_close(store);
    sql(NULL, "SET GLOBAL max_allowed_packet=%u", 256u << 20);
}

/* More than fits into one packet, though each op does. */
static void large_batches_are_parted(void **state)
{
    struct idem_op *ops = calloc(IDEM_BATCH_MAX, sizeof *ops);
    static uint8_t path[IDEM_PATH_SIZE_MAX];
    char(*names)[16] = calloc(IDEM_BATCH_MAX, sizeof *names);
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    assert_non_null(ops);
    assert_non_null(names);
    sql(NULL, "SET GLOBAL max_allowed_packet=1048576");
    url_make(database_name(), "", url);
    store = store_make(url);
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++) {
        snprintf(names[i], sizeof names[i], "k%zu", i);
        op_claim(&ops[i], names[i], "A");
        ops[i].in.claim.path = idem_bytes_make(path, sizeof path);
    }
    assert_int_equal(apply_batch(store, ops, IDEM_BATCH_MAX, NULL), IDEM_OK);
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++) {
        expect(&ops[i], ACQUIRED);
        op_verdict(&ops[i], IDEM_OP_COMPLETE, names[i], "A", idem_bytes_make(path, 1500));
    }
    assert_int_equal(apply_batch(store, ops, IDEM_BATCH_MAX, NULL), IDEM_OK);
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++)
        expect(&ops[i], OK);
    idem_store_close(store);
    sql(NULL, "SET GLOBAL max_allowed_packet=%u", 256u << 20);
    free(names);
    free(ops);
}

static void urls_are_read_with_care(void **state)
{
    static const struct {
        const char *url, *words;
    } bad[] = {
        {"mariadb://h", "name a database"},
        {"mariadb://h/a%60b", "name a database"},
        {"mariadb://h/a/b", "name a database"},
        {"mariadb://h/MySQL", "the server's own"},
        {"mariadb://h/information_schema", "the server's own"},
        {"mysql://h,i/db", "one host"},
        {"mariadb://h/db?sync=maybe", "sync=always or sync=off"},
        {"mariadb://h/db?size=12", "at least 1m"},
        {"mariadb://h/db?timeout=0s", "timeout"},
        {"mariadb://h/db?socket=here", "whole path"},
        {"mariadb://h/db?ssl=yes", "ssl=verify"},
        {"mariadb://h/db?charset=utf8", "it takes timeout, sync, size, socket, ssl and ssl_ca"},
        {"mariadb:h/db", "//"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        refused(bad[i].url, IDEM_ERR_INVALID, bad[i].words);
    refused("mariadb://h:secret@127.0.0.1:1/db?timeout=100ms", IDEM_ERR_UNAVAILABLE, "reached");
}

/* Whatever host the URL names: it is not asked for. */
static void socket_is_taken(void **state)
{
    const char *socket = getenv("IDEM_TEST_MARIADB_SOCKET");
    char url[URL_SIZE], elsewhere[URL_SIZE], options[256];
    struct idem_store *store;
    const char *at;

    (void)state;
    assert_non_null(socket);
    snprintf(options, sizeof options, "?socket=%s&timeout=2s", socket);
    url_make(database_name(), options, url);
    store = store_make(url);
    keys_are_bytes(store);
    idem_store_close(store);

    at = strchr(url, '@');
    assert_non_null(at);
    snprintf(elsewhere, sizeof elsewhere, "%.*s@nowhere.invalid%s", (int)(at - url), url,
             strchr(at, '/'));
    idem_store_close(store_open(elsewhere));
    snprintf(options, sizeof options, "?socket=%s-not&timeout=2s", socket);
    url_make(database_name(), options, url);
    refused(url, IDEM_ERR_UNAVAILABLE, "cannot be reached");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_settings_do_not_matter), cmocka_unit_test(weak_settings_are_refused),
        cmocka_unit_test(standing_still_has_an_end),  cmocka_unit_test(each_fact_is_judged),
        cmocka_unit_test(packets_bound_answers),      cmocka_unit_test(large_batches_are_parted),
        cmocka_unit_test(urls_are_read_with_care),    cmocka_unit_test(socket_is_taken),
    };
    const struct CMUnitTest of_mysql[] = {
        cmocka_unit_test(weak_settings_of_mysql_are_refused),
        cmocka_unit_test(mysql_may_demand_encryption),
    };
    int failed = cmocka_run_group_tests_name("mariadb: settings", tests, NULL, NULL);

    if (is_mysql())
        failed += cmocka_run_group_tests_name("mysql: settings", of_mysql, NULL, NULL);
    return failed;
}
