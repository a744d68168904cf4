/* Connections that break, servers that stop, stand still, or take no writes. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

#define KEYS 100

/* Ends all of idem's connections for this schema; the URLs name it as the application. */
static void kill_all(const char *schema)
{
    sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = "
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

struct killer {
    const char *schema;
    unsigned ops; /* begun so far */
    int ended;
};

/* Kills once an op, which is under way then, or just about to be. */
static void *killer_run(void *argument)
{
    struct killer *killer = argument;
    unsigned seen = 0;

    while (!__atomic_load_n(&killer->ended, __ATOMIC_SEQ_CST)) {
        unsigned ops = __atomic_load_n(&killer->ops, __ATOMIC_SEQ_CST);

        if (ops != seen)
            kill_all(killer->schema);
        else
            sched_yield();
        seen = ops;
    }
    return NULL;
}

/* Whatever the killer cuts off, each key is acquired by its one claimant and completed by it. */
static void killed_within_batches(void **state)
{
    struct killer killer = {.schema = schema_name()};
    char url[URL_SIZE], key[32];
    struct idem_store *store = named_make(killer.schema, "&timeout=30s", url);
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, killer_run, &killer), 0);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        __atomic_fetch_add(&killer.ops, 1, __ATOMIC_SEQ_CST);
        assert_int_equal(claimed(store, key, "A"), IDEM_RESULT_ACQUIRED);
        __atomic_fetch_add(&killer.ops, 1, __ATOMIC_SEQ_CST);
        assert_int_equal(completed(store, key, "A", key), IDEM_RESULT_OK);
    }
    __atomic_store_n(&killer.ended, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_keys WHERE state = 'completed' AND "
                         "attempt = 1 AND body = key",
                         killer.schema),
                     KEYS);
    end(store, killer.schema);
}

struct restarter {
    const char *verb;
    int done;
};

static void *restarter_run(void *argument)
{
    struct restarter *restarter = argument;

    control(restarter->verb);
    __atomic_store_n(&restarter->done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Keys are claimed and completed all the time while the server goes away and comes back. */
static void restarted_under_load(void **state)
{
    static const char *const verbs[] = {"restart", "crash"};
    const char *schema = schema_name();
    char url[URL_SIZE], key[32];
    struct idem_store *store = named_make(schema, "&timeout=60s", url);
    int count = 0;

    (void)state;
    for (size_t v = 0; v < COUNT(verbs); v++) {
        struct restarter restarter = {verbs[v], 0};
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, restarter_run, &restarter), 0);
        for (int last = 0; last < 2; last += __atomic_load_n(&restarter.done, __ATOMIC_SEQ_CST)) {
            snprintf(key, sizeof key, "k%d", count++);
            assert_int_equal(claimed(store, key, "A"), IDEM_RESULT_ACQUIRED);
            assert_int_equal(completed(store, key, "A", key), IDEM_RESULT_OK);
        }
        pthread_join(thread, NULL);
    }
    assert_int_equal(sql("SELECT count(*) FROM %s.idempotency_keys WHERE state = 'completed' AND "
                         "attempt = 1 AND body = key",
                         schema),
                     count);
    end(store, schema);
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
    struct idem_op op;
    int64_t begun_us;

    (void)state;
    control("stop");
    op_claim(&op, "k", "A");
    begun_us = steady_us();
    takes_its_time(apply(store, &op), IDEM_ERR_TIMEOUT, begun_us, 400000);
    assert_non_null(strstr(told.text, "did not answer"));
    begun_us = steady_us();
    takes_its_time(apply(store, &op), IDEM_ERR_TIMEOUT, begun_us, 400000);
    begun_us = steady_us();
    takes_its_time(idem_store_open(url, NULL, &other, NULL), IDEM_ERR_TIMEOUT, begun_us, 400000);
    control("cont");
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    end(store, schema);
}

static void absent_server_is_told(void **state)
{
    char url[URL_SIZE];
    const char *schema = schema_name();
    struct idem_store *store = named_make(schema, "&timeout=400ms", url);
    struct idem_op op;
    int64_t begun_us = 0;

    (void)state;
    control("end");
    op_claim(&op, "k", "A");
    begun_us = steady_us();
    assert_int_equal(apply(store, &op), IDEM_ERR_UNAVAILABLE);
    assert_true(steady_us() - begun_us < 2 * SECOND);
    assert_true(strlen(told.text) > 20);
    refused(url, IDEM_ERR_UNAVAILABLE, "cannot be used");
    control("start");
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    end(store, schema);
}

/* A socket that takes connections and never says a word. Returns its port. */
static int silent_listen(int *ret_socket)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *ret_socket = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(*ret_socket >= 0);
    assert_int_equal(bind(*ret_socket, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(*ret_socket, 8), 0);
    assert_int_equal(getsockname(*ret_socket, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
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
    silent_port = silent_listen(&silent);
    gone_port = silent_listen(&gone);
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
    struct idem_op op;

    (void)state;
    assert_int_equal(claimed(store, "k", "A"), IDEM_RESULT_ACQUIRED);
    control("end");
    standby_file(true);
    control("start");
    refused(url, IDEM_ERR_UNAVAILABLE, "is a standby");
    op_claim(&op, "k", "A");
    assert_int_equal(apply(store, &op), IDEM_ERR_UNAVAILABLE);
    assert_non_null(strstr(told.text, "is a standby"));
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
    struct idem_op op;

    (void)state;
    sql("ALTER ROLE idem SET default_transaction_read_only = on");
    refused(url, IDEM_ERR_UNAVAILABLE, "read only");
    kill_all(schema);
    op_claim(&op, "k", "A");
    assert_int_equal(apply(store, &op), IDEM_ERR_UNAVAILABLE);
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
