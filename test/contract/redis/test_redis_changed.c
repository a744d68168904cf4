/* Servers that are no longer what they were when the store was opened: a replica, empty, or another
 * store by now, whether the connection stays or not. */
#include <stdio.h>
#include <string.h>

#include "changed.h"

static int port;

static void replica_takes_no_writes(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=500ms", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    told(port, "REPLICAOF 127.0.0.1 1");
    assert_non_null(strstr(claim_fails(store, "l", IDEM_ERR_UNAVAILABLE), "replica"));
    refused(url, IDEM_ERR_UNAVAILABLE, "replica");
    told(port, "REPLICAOF NO ONE");
    wanted(claimed(store, "l", "A"), ACQUIRED);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_store_close(store);
}

/* Nor does it answer from what it has, which may be old: not even what would write nothing. */
static void replica_answers_nothing(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op, put = {.kind = IDEM_OP_PUT, .id = id_of("k")};

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=200ms", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    wanted(completed(store, "k", "A", "paid"), OK);
    wanted(claimed(store, "l", "A"), ACQUIRED);
    op_get(&op, "k");
    wanted(applied(store, &op), FOUND);
    put.in.put.record = op.out.found.record;
    wanted(applied(store, &put), OK);
    for (unsigned i = 0; i < 4; i++) {
        struct idem_op claim;
        bool lost = i % 2 != 0; /* A's own claim, whose reply may have been lost */

        op_claim(&claim, lost ? "l" : "k", lost ? "A" : "B");
        told(port, "REPLICAOF 127.0.0.1 1"); /* over the connection of before */
        assert_int_equal(apply(store, i < 2 ? &claim : &put, NULL), IDEM_ERR_UNAVAILABLE);
        told(port, "REPLICAOF NO ONE");
        assert_int_equal(applied(store, &claim),
                         lost ? IDEM_RESULT_ACQUIRED : IDEM_RESULT_COMPLETED);
        idem_op_deinit(&claim);
    }
    idem_op_deinit(&op);
    idem_store_close(store);
}

/* A server that comes back empty is not taken for the one that was there. */
static void lost_data_is_told(void **state)
{
    char url[URL_SIZE], salt[URL_SIZE];
    struct idem_store *store, *other;

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=500ms", url);
    snprintf(salt, sizeof salt, "%ssalt", prefix_of(url));
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    told(port, "DEL %s %s", salt, record_key(url, "k"));
    told(port, "CLIENT KILL TYPE normal SKIPME yes");
    assert_non_null(strstr(claim_fails(store, "k", IDEM_ERR_UNSAFE), "no longer holds the store"));
    other = store_open(url);
    assert_true(idem_store_is_new(other));
    claim_fails(store, "k", IDEM_ERR_UNSAFE); /* with another salt neither */
    wanted(claimed(other, "k", "B"), ACQUIRED);
    idem_store_close(other);
    idem_store_close(store);
}

/* Says nothing, does nothing: whatever another handle does with the same keys. */
static void old_handle_is_of_no_use(const char *url, struct idem_store *old)
{
    long long keys = told(port, "DBSIZE");
    struct idem_store *store;
    redisReply *before, *after;

    every_op_fails(old);
    assert_int_equal(told(port, "DBSIZE"), keys);
    store = store_open(url);
    wanted(claimed(store, "k", "B"), ACQUIRED);
    before = ask(port, "GET %s", record_key(url, "k"));
    every_op_fails(old);
    after = ask(port, "GET %s", record_key(url, "k"));
    assert_int_equal(after->len, before->len);
    assert_memory_equal(after->str, before->str, before->len);
    freeReplyObject(before);
    freeReplyObject(after);
    idem_store_close(old);
    old = store_open(url);
    wanted(claimed(old, "k", "A"), IN_PROGRESS);
    wanted(completed(store, "k", "B", "paid"), OK);
    wanted(claimed(old, "k", "A"), COMPLETED);
    idem_store_close(old);
    idem_store_close(store);
}

static void flushed_under_a_handle(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    told(port, "FLUSHALL");
    old_handle_is_of_no_use(url, store);
}

/* As `idem store copy` does with a target that a gateway uses already. */
static void adopted_under_a_handle(void **state)
{
    struct idem_salt other = {{1, 2, 3}};
    char url[URL_SIZE];
    struct idem_store *store, *copying;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    copying = store_open(url);
    assert_int_equal(idem_store_adopt(copying, &other, NULL), 0);
    wanted(claimed(copying, "copied", "A"), ACQUIRED);
    old_handle_is_of_no_use(url, store);
    idem_store_close(copying);
}

/* Records that have lost their salt: nobody goes on with them. */
static void salt_removed_under_a_handle(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    told(port, "RENAME %ssalt %skept", prefix_of(url), prefix_of(url));
    every_op_fails(store);
    refused(url, IDEM_ERR_CORRUPT, "their salt");
    told(port, "RPUSH %ssalt other", prefix_of(url)); /* of no kind that could be compared */
    every_op_fails(store);
    told(port, "RENAME %skept %ssalt", prefix_of(url), prefix_of(url));
    wanted(claimed(store, "k", "A"), ACQUIRED); /* it is the one that was opened */
    wanted(claimed(store, "k", "B"), IN_PROGRESS);
    idem_store_close(store);
}

static long long connections(void)
{
    return strtoll(info_of(port, "stats", "total_connections_received"), NULL, 10);
}

/*
 * What an old connection leads to may be a master that was demoted. A new one is made and asked,
 * once, before the store is said to be another.
 */
static void another_connection_is_asked_once(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    long long before;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    told(port, "FLUSHALL");
    before = connections();
    claim_fails(store, "k", IDEM_ERR_UNSAFE);
    assert_int_equal(connections() - before, 2); /* one of them is this test's own */
    claim_fails(store, "k", IDEM_ERR_UNSAFE);
    assert_int_equal(connections() - before, 3);
    idem_store_close(store);
}

/* A large batch fails whole, and leaves nothing. */
static void no_part_of_a_batch_is_applied(void **state)
{
    static struct idem_op ops[IDEM_BATCH_MAX];
    static char keys[IDEM_BATCH_MAX][16];
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    told(port, "FLUSHALL");
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        op_claim(&ops[i], keys[i], "A");
    }
    assert_int_equal(apply_batch(store, ops, IDEM_BATCH_MAX, NULL), IDEM_ERR_UNSAFE);
    for (size_t i = 0; i < IDEM_BATCH_MAX; i++)
        wanted(ops[i].result, NONE);
    assert_int_equal(told(port, "DBSIZE"), 0);
    idem_store_close(store);
}

static void flush(void)
{
    told(port, "FLUSHALL");
}

static void gateways_agree_after_a_flush(void **state)
{
    char url[URL_SIZE];

    (void)state;
    url_make("IDEM_TEST_REDIS", "?timeout=20s", url);
    assert_int_equal(gateways_agree(url, flush, 12), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replica_takes_no_writes),
        cmocka_unit_test(replica_answers_nothing),
        cmocka_unit_test(lost_data_is_told),
        cmocka_unit_test(flushed_under_a_handle),
        cmocka_unit_test(adopted_under_a_handle),
        cmocka_unit_test(salt_removed_under_a_handle),
        cmocka_unit_test(another_connection_is_asked_once),
        cmocka_unit_test(no_part_of_a_batch_is_applied),
        cmocka_unit_test(gateways_agree_after_a_flush),
    };

    op_lease_us = 5 * MINUTE;
    port = port_of("redis");
    return cmocka_run_group_tests_name("redis changed", tests, NULL, NULL);
}
