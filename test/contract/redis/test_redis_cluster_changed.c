/*
 * A cluster that is another store by now. Its salt is on one node and its records are on all: each
 * round of a batch looks at the salt along with what it does. Run with the real clock.
 */
#include <stdio.h>
#include <string.h>

#include "changed.h"
#include "nodes.h"

#define KEYS 60 /* enough for every node to have some */

static char keys[KEYS][16];

static void flush_all(void)
{
    for (int number = 1; number <= NODES / 2; number++)
        told(node_port(number), "FLUSHALL");
}

static long long keys_count(void)
{
    long long count = 0;

    for (int number = 1; number <= NODES / 2; number++)
        count += told(node_port(number), "DBSIZE");
    return count;
}

/* Claims all keys in one batch. */
static int claim_all(struct idem_store *store, const char *owner, struct idem_op ops[KEYS],
                     struct idem_message *ret_message)
{
    for (size_t i = 0; i < KEYS; i++)
        op_claim(&ops[i], keys[i], owner);
    return apply_batch(store, ops, KEYS, ret_message);
}

static void all_fail(struct idem_store *store, const char *owner)
{
    static struct idem_op ops[KEYS];
    struct idem_message message = {""};
    int64_t begun_us = steady_us();

    assert_int_equal(claim_all(store, owner, ops, &message), IDEM_ERR_UNSAFE);
    assert_true(steady_us() - begun_us < 10 * SECOND); /* not when its time is over */
    assert_non_null(strstr(message.text, "no longer holds the store"));
    for (size_t i = 0; i < KEYS; i++)
        wanted(ops[i].result, NONE);
}

static void all_are(struct idem_store *store, const char *owner, enum idem_result result)
{
    static struct idem_op ops[KEYS];
    struct idem_message message = {""};

    if (claim_all(store, owner, ops, &message))
        fail_msg("%s", message.text);
    for (size_t i = 0; i < KEYS; i++)
        assert_string_equal(idem_result_text(ops[i].result), idem_result_text(result));
}

/* Nothing is acknowledged, and what was claimed meanwhile, on nodes that know of no salt, is gone.
 */
static void old_handle_is_of_no_use(const char *url, struct idem_store *old)
{
    long long before = keys_count();
    struct idem_store *store;

    all_fail(old, "A");
    assert_int_equal(keys_count(), before);
    every_op_fails(old);
    store = store_open(url);
    all_are(store, "B", IDEM_RESULT_ACQUIRED);
    all_fail(old, "A");
    all_are(store, "C", IDEM_RESULT_IN_PROGRESS);
    idem_store_close(old);
    old = store_open(url);
    all_are(old, "A", IDEM_RESULT_IN_PROGRESS);
    idem_store_close(old);
    idem_store_close(store);
}

static void flushed_under_a_handle(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=20s", url);
    store = store_open(url);
    all_are(store, "A", IDEM_RESULT_ACQUIRED);
    flush_all();
    old_handle_is_of_no_use(url, store);
}

static void adopted_under_a_handle(void **state)
{
    struct idem_salt other = {{1, 2, 3}};
    char url[URL_SIZE];
    struct idem_store *store, *copying;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=20s", url);
    store = store_open(url);
    copying = store_open(url);
    assert_int_equal(idem_store_adopt(copying, &other, NULL), 0);
    idem_store_close(copying);
    old_handle_is_of_no_use(url, store);
}

/* From one slot to another. */
static void key_rename(const char *from, const char *to)
{
    redisReply *value = ask(node_port(slot_server(key_slot(from))), "GET %s", from);

    assert_int_equal(value->type, REDIS_REPLY_STRING);
    told(node_port(slot_server(key_slot(to))), "SET %s %b", to, value->str, value->len);
    told(node_port(slot_server(key_slot(from))), "DEL %s", from);
    freeReplyObject(value);
}

/* What was there before the salt went stays as it is, also when it would have been taken over. */
static void what_was_there_stays(void **state)
{
    struct idem_op op;
    char url[URL_SIZE], salt[URL_SIZE], kept[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=20s", url);
    snprintf(salt, sizeof salt, "%ssalt", prefix_of(url));
    snprintf(kept, sizeof kept, "%skept", prefix_of(url));
    store = store_open(url);
    for (size_t i = 0; i < KEYS; i++) {
        wanted(claimed(store, keys[i], "A"), ACQUIRED);
        op_verdict(&op, IDEM_OP_ABANDON, keys[i], "A", text(""));
        wanted(applied(store, &op), OK);
    }
    key_rename(salt, kept);
    for (size_t i = 0; i < KEYS; i++) {
        op_claim(&op, keys[i], "B");
        op.in.claim.take = IDEM_TAKE_ANY;
        assert_int_equal(apply(store, &op, NULL), IDEM_ERR_UNSAFE);
    }
    key_rename(kept, salt);
    for (size_t i = 0; i < KEYS; i++)
        wanted(got(store, keys[i]), FOUND);
    idem_store_close(store);
}

static void gateways_agree_after_a_flush(void **state)
{
    char url[URL_SIZE];

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=20s", url);
    (void)gateways_agree(url, flush_all, KEYS);
}

/* A move of the salt's own slot is followed. */
static void salt_moves(void **state)
{
    char url[URL_SIZE], salt[URL_SIZE];
    struct idem_store *store;
    unsigned slot;
    int from, to;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=20s", url);
    snprintf(salt, sizeof salt, "%ssalt", prefix_of(url));
    store = store_open(url);
    slot = key_slot(salt);
    from = slot_server(slot);
    to = from % 3 + 1;
    move_begin(slot, from, to);
    all_are(store, "A", IDEM_RESULT_ACQUIRED);
    move_keys(slot, from, to);
    all_are(store, "A", IDEM_RESULT_ACQUIRED); /* ASK */
    move_end(slot, from, to);
    all_are(store, "A", IDEM_RESULT_ACQUIRED); /* MOVED */
    all_are(store, "B", IDEM_RESULT_IN_PROGRESS);
    idem_store_close(store);
}

/* The largest batch, all of it to the node that is asked for the salt along. */
static void full_batch_to_the_salt(void **state)
{
    static struct idem_op ops[IDEM_BATCH_MAX];
    char url[URL_SIZE], salt[URL_SIZE];
    struct idem_store *store;
    size_t i = 0;
    int home;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=20s", url);
    snprintf(salt, sizeof salt, "%ssalt", prefix_of(url));
    store = store_open(url);
    home = slot_server(key_slot(salt));
    while (slot_server(slot_of(url, keys[i])) != home)
        i++;
    for (size_t k = 0; k < IDEM_BATCH_MAX; k++)
        op_claim(&ops[k], keys[i], k == 0 ? "A" : "B");
    assert_int_equal(apply_batch(store, ops, IDEM_BATCH_MAX, NULL), 0);
    wanted(ops[0].result, ACQUIRED);
    for (size_t k = 1; k < IDEM_BATCH_MAX; k++)
        wanted(ops[k].result, IN_PROGRESS);
    idem_store_close(store);
}

/* Without the node that has the salt nothing is acknowledged, whoever else is there. */
static void salt_that_does_not_answer(void **state)
{
    char url[URL_SIZE], salt[URL_SIZE];
    struct idem_store *store;
    size_t i = 0;
    int home;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=400ms", url);
    snprintf(salt, sizeof salt, "%ssalt", prefix_of(url));
    store = store_open(url);
    home = slot_server(key_slot(salt));
    while (slot_server(slot_of(url, keys[i])) == home)
        i++;
    wanted(claimed(store, keys[i], "A"), ACQUIRED);
    control("stop", node_name(home));
    claim_fails(store, keys[i], IDEM_ERR_TIMEOUT);
    control("cont", node_name(home));
    idem_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flushed_under_a_handle),
        cmocka_unit_test(adopted_under_a_handle),
        cmocka_unit_test(what_was_there_stays),
        cmocka_unit_test(gateways_agree_after_a_flush),
        cmocka_unit_test(salt_moves),
        cmocka_unit_test(full_batch_to_the_salt),
        cmocka_unit_test(salt_that_does_not_answer),
    };

    op_lease_us = 5 * MINUTE;
    for (size_t i = 0; i < KEYS; i++)
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
    return cmocka_run_group_tests_name("redis cluster, changed", tests, NULL, NULL);
}
