/* A master that fails over to its replica while ops run. Run with the real clock. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../claimant.h"
#include "support.h"

static int master_port(void)
{
    redisReply *reply = ask(port_of("sentinel-2"), "SENTINEL GET-MASTER-ADDR-BY-NAME main");
    int port = (int)strtol(reply->element[1]->str, NULL, 10);

    freeReplyObject(reply);
    return port;
}

static bool master_has_changed(void *context)
{
    return master_port() != *(const int *)context;
}

/* The name of the server that is the master, and of the other one. */
static const char *server_of(int port)
{
    return port == port_of("sentinel-master") ? "sentinel-master" : "sentinel-replica";
}

static bool replica_follows(void *context)
{
    (void)context;
    return strcmp(info_of(master_port(), "replication", "connected_slaves"), "1") == 0;
}

/*
 * One replica, and every call waits for it: whichever of the two is the master has all that was
 * acknowledged. While there is no replica nothing is acknowledged.
 */
static void killed_master_loses_nothing_acknowledged(void **state)
{
    struct claimant claimant;
    char url[URL_SIZE];
    int before = master_port();

    (void)state;
    await(replica_follows, NULL, "a replica that follows");
    url_make("IDEM_TEST_SENTINEL", "?replicas=1&timeout=2s", url);
    claimant_begin(&claimant, url);
    claimant_await(&claimant, 200);
    control("kill", server_of(before));
    await(master_has_changed, &before, "another master");
    url_make("IDEM_TEST_SENTINEL", "?replicas=1&timeout=500ms", url);
    refused(url, IDEM_ERR_UNAVAILABLE, "0 of the 1 replicas");
    control("start", server_of(before));
    claimant_await(&claimant, 200);
    claimant_end(&claimant);
    assert_true(claimant.failures > 0);
}

static void planned_failover_is_followed(void **state)
{
    struct claimant claimant;
    char url[URL_SIZE];
    int before = master_port();

    (void)state;
    await(replica_follows, NULL, "a replica that follows");
    url_make("IDEM_TEST_SENTINEL", "?replicas=1&timeout=5s", url);
    claimant_begin(&claimant, url);
    claimant_await(&claimant, 100);
    told(port_of("sentinel-2"), "SENTINEL FAILOVER main");
    await(master_has_changed, &before, "another master");
    claimant_await(&claimant, 100);
    claimant_end(&claimant);
}

static void *claim_run(void *argument)
{
    struct idem_store *store = argument;
    struct idem_op op;

    op_claim(&op, "waits", "A");
    return apply(store, &op, NULL) == IDEM_OK && op.result == IDEM_RESULT_ACQUIRED ? store : NULL;
}

static bool somebody_waits(void *context)
{
    return strcmp(info_of(*(const int *)context, "clients", "blocked_clients"), "0") != 0;
}

/* A master that is demoted turns away who waits for its replicas; those ask the next one. */
static void a_wait_that_is_broken_off_is_repeated(void **state)
{
    int master = master_port();
    bool first = master == port_of("sentinel-master");
    const char *replica = first ? "sentinel-replica" : "sentinel-master";
    char url[URL_SIZE];
    struct idem_store *store;
    pthread_t thread;
    void *done = NULL;

    (void)state;
    await(replica_follows, NULL, "a replica that follows");
    snprintf(url, sizeof url,
             "redis://127.0.0.1:%d?replicas=1&timeout=30s&prefix=broken-off:", master);
    store = store_open(url);
    control("stop", replica);
    assert_int_equal(pthread_create(&thread, NULL, claim_run, store), 0);
    await(somebody_waits, &master, "a claim that waits");
    told(master, "REPLICAOF 127.0.0.1 1");
    told(master, "REPLICAOF NO ONE");
    control("cont", replica);
    pthread_join(thread, &done);
    assert_ptr_equal(done, store);
    idem_store_close(store);
}

static void a_sentinel_that_hangs_is_passed_over(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    int64_t begun_us = steady_us();

    (void)state;
    url_make("IDEM_TEST_SENTINEL", "?timeout=4s", url);
    control("stop", "sentinel-1");
    store = store_open(url);
    assert_true(steady_us() - begun_us < 4 * SECOND);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    control("cont", "sentinel-1");
    idem_store_close(store);
}

static void an_unknown_master_is_told(void **state)
{
    char url[URL_SIZE];

    (void)state;
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%d/other?timeout=300ms",
             port_of("sentinel-1"));
    refused(url, IDEM_ERR_UNAVAILABLE, "knows no master");
}

/* The sentinels ask for a password: the store's own, or one that is for them alone. */
static void sentinels_may_ask_for_a_password(void **state)
{
    static const char *const names[] = {"sentinel-1", "sentinel-2", "sentinel-3"};
    char url[URL_SIZE], with[URL_SIZE + 64];

    (void)state;
    url_make("IDEM_TEST_SENTINEL", "?timeout=2s", url);
    for (size_t i = 0; i < COUNT(names); i++)
        told(port_of(names[i]), "ACL SETUSER guest on >guest-word +@all");
    snprintf(with, sizeof with, "%s&sentinel_user=guest&sentinel_password=guest-word", url);
    idem_store_close(store_open(with));
    snprintf(with, sizeof with, "%s&sentinel_user=guest&sentinel_password=wrong-word", url);
    refused(with, IDEM_ERR_UNAVAILABLE, "user or the password");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sentinel_that_hangs_is_passed_over),
        cmocka_unit_test(an_unknown_master_is_told),
        cmocka_unit_test(sentinels_may_ask_for_a_password),
        cmocka_unit_test(killed_master_loses_nothing_acknowledged),
        cmocka_unit_test(planned_failover_is_followed),
        cmocka_unit_test(a_wait_that_is_broken_off_is_repeated),
    };

    op_lease_us = 5 * MINUTE;
    return cmocka_run_group_tests_name("redis sentinel", tests, NULL, NULL);
}
