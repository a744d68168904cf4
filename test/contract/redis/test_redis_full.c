/* A Redis that is over its maxmemory, and records that go by their own expiry. */
#include <stdio.h>
#include <string.h>

#include "support.h"

#define KEYS_MAX  20000
#define ROOM      (2u << 20)
#define BODY_SIZE 4000
#define HELD      60

static int port;
static char body[BODY_SIZE + 1];

static const char *key_of(unsigned number)
{
    static char keys[4][32];
    static unsigned next;
    char *key = keys[next++ % COUNT(keys)];

    snprintf(key, sizeof keys[0], "key %u", number);
    return key;
}

/* Bounds the memory a little above what is used now. */
static void bound_set(void)
{
    long long used = strtoll(info_of(port, "memory", "used_memory"), NULL, 10);

    told(port, "CONFIG SET maxmemory %lld", used + ROOM);
}

static int bound_unset(void **state)
{
    (void)state;
    told(port, "CONFIG SET maxmemory 0");
    told(port, "FLUSHALL");
    return 0;
}

/* Claims and completes until a claim is refused; returns how many were completed. */
static unsigned fill(struct idem_store *store)
{
    unsigned number = 0;

    bound_set();
    for (;; number++) {
        enum idem_result result = claimed(store, key_of(number), "A");

        if (result == IDEM_RESULT_FULL)
            break;
        wanted(result, ACQUIRED);
        wanted(completed(store, key_of(number), "A", body), OK);
        assert_true(number < KEYS_MAX);
    }
    assert_true(number > 10);
    return number;
}

static void all_are_there(struct idem_store *store, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct idem_op op;

        op_claim(&op, key_of(i), "B");
        wanted(applied(store, &op), COMPLETED);
        assert_bytes(op.out.found.record.answer.body, text(body));
        idem_op_deinit(&op);
    }
}

static void claims_held(struct idem_store *store, unsigned from, unsigned count)
{
    for (unsigned i = from; i < from + count; i++)
        wanted(claimed(store, key_of(i), "A"), ACQUIRED);
}

static void full_refuses_claims_only(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    unsigned count;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    claims_held(store, KEYS_MAX, 1);
    count = fill(store);
    wanted(claimed(store, "one more", "A"), FULL);
    wanted(got(store, "one more"), ABSENT);
    wanted(claimed(store, key_of(KEYS_MAX), "B"), IN_PROGRESS);
    wanted(claimed(store, key_of(KEYS_MAX), "A"), ACQUIRED);
    all_are_there(store, count);
    idem_store_close(store);
}

static void renew_applied(struct idem_store *store, const char *key)
{
    struct idem_op op;

    op_renew(&op, key, "A", op_lease_us + MINUTE);
    wanted(applied(store, &op), OK);
}

/* Whole answers, too: they may go beyond maxmemory. */
static void full_takes_every_verdict(void **state)
{
    static const enum idem_op_kind kinds[] = {IDEM_OP_FAIL, IDEM_OP_ABANDON, IDEM_OP_COMPLETE};
    char url[URL_SIZE];
    struct idem_store *store;
    unsigned count;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    claims_held(store, KEYS_MAX, HELD);
    count = fill(store);
    for (unsigned i = 0; i < HELD; i++) {
        struct idem_op op;

        renew_applied(store, key_of(KEYS_MAX + i));
        op_verdict(&op, kinds[i % 3], key_of(KEYS_MAX + i), "A", text(body));
        wanted(applied(store, &op), OK);
        assert_false(op.out.tombstoned);
    }
    all_are_there(store, count);
    for (unsigned i = 2; i < HELD; i += 3)
        wanted(claimed(store, key_of(KEYS_MAX + i), "B"), COMPLETED);
    wanted(claimed(store, key_of(KEYS_MAX), "B"), FULL);        /* failed: would execute */
    wanted(claimed(store, key_of(KEYS_MAX + 1), "B"), UNKNOWN); /* abandoned: would not */
    idem_store_close(store);
}

static void batch_on_full_store_is_parted(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op ops[8];

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    claims_held(store, KEYS_MAX, 4);
    fill(store);
    for (unsigned i = 0; i < COUNT(ops); i += 2) {
        op_verdict(&ops[i], IDEM_OP_COMPLETE, key_of(KEYS_MAX + i / 2), "A", text("paid"));
        op_claim(&ops[i + 1], "one more", "A");
    }
    assert_int_equal(apply_batch(store, ops, COUNT(ops), NULL), 0);
    for (unsigned i = 0; i < COUNT(ops); i += 2) {
        wanted(ops[i].result, OK);
        wanted(ops[i + 1].result, FULL);
    }
    idem_store_close(store);
}

/* What a person does gets in, and so does the fail of a claim that nobody saw. */
static void full_lets_people_act(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    fill(store);
    op_verdict(&op, IDEM_OP_FAIL, "never seen", "A", text(""));
    wanted(applied(store, &op), OK);
    op_forget(&op, key_of(0), false);
    wanted(applied(store, &op), OK);
    idem_store_close(store);
}

static void full_store_opens_and_recovers(void **state)
{
    char url[URL_SIZE], other[URL_SIZE];
    struct idem_store *store;
    unsigned count;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    url_make("IDEM_TEST_REDIS", "", other);
    store = store_open(url);
    count = fill(store);
    idem_store_close(store);
    store = store_open(url);
    wanted(claimed(store, "one more", "A"), FULL);
    refused(other, IDEM_ERR_FULL, "maxmemory"); /* a new store needs room for its salt */
    told(port, "CONFIG SET maxmemory 0");
    wanted(claimed(store, "one more", "A"), ACQUIRED);
    all_are_there(store, count);
    idem_store_close(store);
}

/* With replicas= a write ends each batch: it must get in, too. */
static void full_store_still_waits_for_replicas(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_message message = {""};
    struct idem_op op;

    (void)state;
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    fill(store);
    idem_store_close(store);
    snprintf(url + strlen(url), sizeof url - strlen(url), "&replicas=1&timeout=300ms");
    op_claim(&op, "k", "A");
    assert_int_equal(idem_store_open(url, NULL, &store, &message), IDEM_ERR_UNAVAILABLE);
    if (!strstr(message.text, "0 of the 1 replicas"))
        fail_msg("%s", message.text); /* and not that there is no room */
}

/* --- expiry ------------------------------------------------------------------------------- */

/* A key that Redis is asked for is removed if it has expired, else it is there. */
static long long exists(const char *url, const char *key)
{
    return told(port, "EXISTS %s", record_key(url, key));
}

/* Redis counts milliseconds, idem microseconds: the key outlives the record, by a little. */
static void records_go_in_their_own_time(void **state)
{
    int64_t now_us = START + 999;
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    clock_turn(now_us);
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    wanted(completed(store, "k", "A", "paid"), OK);
    clock_turn(now_us + TTL - 1);
    wanted(got(store, "k"), FOUND);
    assert_int_equal(exists(url, "k"), 1);
    clock_turn(now_us + TTL);
    wanted(got(store, "k"), ABSENT);
    clock_turn(now_us + TTL + SECOND / 100);
    assert_int_equal(exists(url, "k"), 0);
    idem_store_close(store);
    clock_turn(0);
}

/* What runs or is unknown goes after its own time only, and a forgotten fence within 30 days. */
static void expiries_are_those_of_states(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op;
    long long late_ms;

    (void)state;
    clock_turn(START);
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    op_claim(&op, "never", "A");
    op.in.claim.unknown_ttl_us = IDEM_NEVER_US;
    wanted(applied(store, &op), ACQUIRED);
    assert_int_equal(told(port, "PEXPIRETIME %s", record_key(url, "never")), -1);
    op_claim(&op, "k", "A");
    op.in.claim.unknown_ttl_us += SECOND - 1;
    wanted(applied(store, &op), ACQUIRED);
    late_ms = told(port, "PEXPIRETIME %s", record_key(url, "k")) -
              (START + op_lease_us + UNKNOWN_TTL + SECOND) / 1000;
    assert_true(late_ms >= 0 && late_ms <= 2000);
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    op.in.verdict.ttl_us = IDEM_NEVER_US;
    wanted(applied(store, &op), OK);
    assert_int_equal(told(port, "PEXPIRETIME %s", record_key(url, "k")), -1);
    op_forget(&op, "k", false);
    wanted(applied(store, &op), OK);
    assert_int_equal(told(port, "PEXPIRETIME %s", record_key(url, "k")), (START + 30 * DAY) / 1000);
    idem_store_close(store);
    clock_turn(0);
}

/* The fence that a forgotten record leaves, though the clock steps back. */
static void fence_grows_across_forget(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op;
    uint64_t fence;

    (void)state;
    clock_turn(START);
    url_make("IDEM_TEST_REDIS", "", url);
    store = store_open(url);
    op_claim(&op, "k", "A");
    wanted(applied(store, &op), ACQUIRED);
    fence = op.out.fence;
    op_forget(&op, "k", true);
    wanted(applied(store, &op), OK);
    clock_turn(START - DAY);
    op_claim(&op, "k", "B");
    wanted(applied(store, &op), ACQUIRED);
    assert_true(op.out.fence == fence + 1);
    assert_int_equal(op.out.attempt, 1);
    idem_store_close(store);
    clock_turn(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(full_refuses_claims_only, bound_unset),
        cmocka_unit_test_teardown(full_takes_every_verdict, bound_unset),
        cmocka_unit_test_teardown(batch_on_full_store_is_parted, bound_unset),
        cmocka_unit_test_teardown(full_lets_people_act, bound_unset),
        cmocka_unit_test_teardown(full_store_opens_and_recovers, bound_unset),
        cmocka_unit_test_teardown(full_store_still_waits_for_replicas, bound_unset),
        cmocka_unit_test(records_go_in_their_own_time),
        cmocka_unit_test(expiries_are_those_of_states),
        cmocka_unit_test(fence_grows_across_forget),
    };

    op_lease_us = 5 * MINUTE;
    port = port_of("redis");
    memset(body, 'x', BODY_SIZE);
    return cmocka_run_group_tests_name("redis, full and expiring", tests, NULL, NULL);
}
