/* Connections that break, servers that stop, stand still, or take no writes. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../claimant.h"
#include "../killer.h"
#include "support.h"

#define KEYS 100

/* Ends all of idem's connections for this schema, which the URLs name as the application. */
static int64_t kill_all(const char *schema)
{
    return sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = "
        "'%s'",
        schema);
}

static struct idem_store *named_make(const char *schema, const char *options, char url[URL_SIZE])
{
    char all[128];

    snprintf(all, sizeof all, "application_name=%s%s", schema, options);
    url_make(schema, all, url);
    return store_make(url);
}

static void end(struct idem_store *store, const char *schema)
{
    idem_store_close(store);
    sql("DROP SCHEMA %s CASCADE", schema);
}

static void killed_between_batches(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store = named_make(schema, "", url);

    (void)state;
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    kill_all(schema);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    kill_all(schema);
    assert_int_equal(completed(store, "k", "A", "paid"), IDEM_RESULT_OK);
    kill_all(schema);
    assert_int_equal(claimed(store, "k", "B"), IDEM_RESULT_COMPLETED);
    end(store, schema);
}

/* Whatever the killer cuts off, each key is acquired by its one claimant and completed by it. */
static void killed_within_batches(void **state)
{
    const char *schema = schema_name();
    struct killer killer;
    char url[URL_SIZE], key[32];
    struct idem_store *store = named_make(schema, "&timeout=30s", url);

    (void)state;
    killer_begin(&killer, kill_all, schema);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        killer_aim(&killer);
        assert_int_equal(claimed(store, key, "A"), IDEM_RESULT_ACQUIRED);
        killer_aim(&killer);
        assert_int_equal(completed(store, key, "A", key), IDEM_RESULT_OK);
    }
    killer_end(&killer);
    assert_true(killer.kills > 0);
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_keys WHERE state = 'completed' AND "
                         "attempt = 1 AND body = key",
                         schema),
                     KEYS);
    end(store, schema);
}

/* Keys are claimed and completed all the time while the server goes away and comes back. */
static void restarted_under_load(void **state)
{
    static const char *const verbs[] = {"restart", "crash"};
    const char *schema = schema_name();
    struct claimant claimant;
    char url[URL_SIZE];

    (void)state;
    idem_store_close(named_make(schema, "&timeout=60s", url));
    claimant_begin(&claimant, url);
    for (size_t i = 0; i < COUNT(verbs); i++) {
        claimant_await(&claimant, 20);
        control(verbs[i], "postgres");
        claimant_await(&claimant, 20);
    }
    claimant_end(&claimant);
    assert_int_equal(claimant.failures, 0);
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_keys WHERE state = 'completed' AND "
                         "attempt = 1 AND body = key",
                         schema),
                     claimant.count);
    sql("DROP SCHEMA %s CASCADE", schema);
}

/* A call that must end with an error in about the time that its URL allows. */
static void takes_its_time(int error, int wanted, int64_t begun_us, int64_t timeout_us)
{
    int64_t took_us = steady_us() - begun_us;

    assert_int_equal(error, wanted);
    assert_true(took_us >= timeout_us / 2);
    if (took_us > timeout_us + 2 * SECOND)
        fail_msg("it took %lld ms", (long long)(took_us / 1000));
}

static void hung_server_times_out(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store = named_make(schema, "&timeout=400ms", url), *other = NULL;
    struct idem_message message = {""};
    struct idem_op op;
    int64_t begun_us;

    (void)state;
    control("stop", "postgres");
    op_claim(&op, "k", "A");
    begun_us = steady_us();
    takes_its_time(apply(store, &op, &message), IDEM_ERR_TIMEOUT, begun_us, 400000);
    assert_non_null(strstr(message.text, "did not answer"));
    begun_us = steady_us();
    takes_its_time(apply(store, &op, NULL), IDEM_ERR_TIMEOUT, begun_us, 400000);
    begun_us = steady_us();
    takes_its_time(idem_store_open(url, NULL, &other, NULL), IDEM_ERR_TIMEOUT, begun_us, 400000);
    control("cont", "postgres");
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    end(store, schema);
}

static void absent_server_is_told(void **state)
{
    char url[URL_SIZE];
    const char *schema = schema_name();
    struct idem_store *store = named_make(schema, "&timeout=400ms", url);
    int64_t begun_us;

    (void)state;
    control("end", "postgres");
    begun_us = steady_us();
    assert_true(strlen(claim_fails(store, "k", IDEM_ERR_UNAVAILABLE)) > 20);
    assert_true(steady_us() - begun_us < 2 * SECOND);
    refused(url, IDEM_ERR_UNAVAILABLE, "cannot be used");
    control("start", "postgres");
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    end(store, schema);
}

/* Of several hosts the one that serves is found, past one that is silent and one that is not there.
 */
static void hosts_are_tried_in_turn(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE], many[2 * URL_SIZE];
    struct idem_store *store = named_make(schema, "&timeout=3s", url);
    const char *at = strchr(url, '@');
    int silent, gone, silent_port, gone_port;

    (void)state;
    idem_store_close(store);
    silent = listener_open(&silent_port);
    gone = listener_open(&gone_port);
    close(gone);
    assert_non_null(at);
    snprintf(many, sizeof many, "%.*s127.0.0.1:%d,127.0.0.1:%d,%s", (int)(at + 1 - url), url,
             silent_port, gone_port, at + 1);
    store = store_open(many);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    kill_all(schema);
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    close(silent);
    end(store, schema);
}

/* A server with this file in its data is a standby, here one without a primary. */
static void standby_file(bool there)
{
    const char *folder = getenv("IDEM_TEST_POSTGRES_FOLDER");
    char path[512];

    assert_non_null(folder);
    snprintf(path, sizeof path, "%s/data/standby.signal", folder);
    if (there) {
        FILE *file = fopen(path, "w");

        assert_non_null(file);
        fclose(file);
        assert_int_equal(chmod(path, 0666), 0);
    } else {
        unlink(path);
    }
}

static void standby_is_refused(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store = named_make(schema, "&timeout=1s", url);

    (void)state;
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    control("end", "postgres");
    standby_file(true);
    control("start", "postgres");
    refused(url, IDEM_ERR_UNAVAILABLE, "is a standby");
    assert_non_null(strstr(claim_fails(store, "k", IDEM_ERR_UNAVAILABLE), "is a standby"));
    /* The failover: the standby becomes the primary, and the open store goes on with it. */
    sql("SELECT pg_promote()");
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    standby_file(false);
    end(store, schema);
}

static void read_only_is_refused(void **state)
{
    const char *schema = schema_name();
    char url[URL_SIZE];
    struct idem_store *store = named_make(schema, "&timeout=1s", url);

    (void)state;
    sql("ALTER ROLE idem SET default_transaction_read_only = on");
    refused(url, IDEM_ERR_UNAVAILABLE, "read only");
    kill_all(schema);
    claim_fails(store, "k", IDEM_ERR_UNAVAILABLE);
    sql("BEGIN READ WRITE; ALTER ROLE idem RESET default_transaction_read_only; COMMIT");
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    end(store, schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_between_batches), cmocka_unit_test(killed_within_batches),
        cmocka_unit_test(restarted_under_load),   cmocka_unit_test(hung_server_times_out),
        cmocka_unit_test(absent_server_is_told),  cmocka_unit_test(hosts_are_tried_in_turn),
        cmocka_unit_test(standby_is_refused),     cmocka_unit_test(read_only_is_refused),
    };

    return cmocka_run_group_tests_name("a PostgreSQL server that goes away", tests, NULL, NULL);
}
