/* A cluster whose slots move and whose masters die while ops run. Run with the real clock. */
#include <stdio.h>
#include <string.h>

#include "../claimant.h"
#include "nodes.h"
#include "support.h"

#define BATCH 120

static void ops_go_to_every_node(void **state)
{
    static struct idem_op ops[BATCH];
    static char keys[BATCH / 3][32];
    struct idem_op scan = {.kind = IDEM_OP_SCAN, .in.scan.limit = IDEM_SCAN_MAX};
    char url[URL_SIZE];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "", url);
    store = store_open(url);
    for (unsigned i = 0; i < BATCH / 3; i++) {
        snprintf(keys[i], sizeof keys[i], "k%u", i);
        op_claim(&ops[3 * i], keys[i], "A");
        op_claim(&ops[3 * i + 1], keys[i], "B");
        op_verdict(&ops[3 * i + 2], IDEM_OP_COMPLETE, keys[i], "A", text(keys[i]));
    }
    assert_int_equal(apply_batch(store, ops, BATCH, NULL), 0);
    for (unsigned i = 0; i < BATCH / 3; i++) {
        wanted(ops[3 * i].result, ACQUIRED);
        wanted(ops[3 * i + 1].result, IN_PROGRESS);
        wanted(ops[3 * i + 2].result, OK);
    }
    wanted(applied(store, &scan), OK);
    assert_int_equal(scan.out.count, BATCH / 3);
    idem_op_deinit(&scan);
    idem_store_close(store);
}

/* In every step of a move: what is still there, what is gone already, and what is new. */
static void ops_follow_a_slot_that_moves(void **state)
{
    char url[URL_SIZE];
    struct idem_store *store;
    unsigned slot;
    int from, to;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    slot = slot_of(url, "k");
    from = slot_server(slot);
    to = from % 3 + 1;
    move_begin(slot, from, to);
    wanted(claimed(store, "k", "A"), ACQUIRED); /* still there */
    move_keys(slot, from, to);
    wanted(claimed(store, "k", "A"), ACQUIRED); /* ASK */
    wanted(completed(store, "k", "A", "paid"), OK);
    wanted(claimed(store, "k", "B"), COMPLETED);
    move_end(slot, from, to);
    wanted(claimed(store, "k", "B"), COMPLETED); /* MOVED */
    wanted(got(store, "k"), FOUND);
    idem_store_close(store);
    store = store_open(url);
    wanted(claimed(store, "k", "B"), COMPLETED);
    move_begin(slot, to, from);
    move_keys(slot, to, from);
    move_end(slot, to, from);
    wanted(claimed(store, "k", "B"), COMPLETED);
    idem_store_close(store);
}

/* Several ops on one id in one batch keep their order while its slot is on the move. */
static void order_survives_a_move(void **state)
{
    struct idem_op ops[5];
    char url[URL_SIZE];
    struct idem_store *store;
    unsigned slot;
    int from, to;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "", url);
    store = store_open(url);
    slot = slot_of(url, "k");
    from = slot_server(slot);
    to = from % 3 + 1;
    move_begin(slot, from, to);
    op_claim(&ops[0], "k", "A");
    op_claim(&ops[1], "k", "B");
    op_verdict(&ops[2], IDEM_OP_FAIL, "k", "A", text(""));
    op_forget(&ops[3], "k", false);
    op_claim(&ops[4], "k", "C");
    assert_int_equal(apply_batch(store, ops, COUNT(ops), NULL), 0);
    wanted(ops[0].result, ACQUIRED);
    wanted(ops[1].result, IN_PROGRESS);
    wanted(ops[2].result, OK);
    wanted(ops[3].result, OK);
    wanted(ops[4].result, ACQUIRED);
    assert_int_equal(ops[4].out.attempt, 1);
    move_keys(slot, from, to);
    move_end(slot, from, to);
    idem_store_close(store);
}

/* Slots that hold keys move there and back under load: nothing fails, nothing is done twice. */
static void slots_move_under_load(void **state)
{
    struct claimant claimant;
    char url[URL_SIZE], key[32];

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=20s", url);
    claimant_begin(&claimant, url);
    for (unsigned i = 0; i < 30; i++) {
        unsigned slot;
        int from, to;

        claimant_await(&claimant, 5);
        snprintf(key, sizeof key, "k%u", i / 2 * 5);
        slot = slot_of(url, key);
        from = slot_server(slot);
        to = from % 3 + 1;
        move_begin(slot, from, to);
        claimant_await(&claimant, 5);
        move_keys(slot, from, to);
        move_end(slot, from, to);
    }
    claimant_end(&claimant);
    assert_int_equal(claimant.failures, 0);
}

static void a_scan_does_not_go_on_in_another_map(void **state)
{
    struct idem_op op = {.kind = IDEM_OP_SCAN, .in.scan.limit = 1};
    struct idem_message message = {""};
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_id next;
    int from, to;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    wanted(claimed(store, "l", "A"), ACQUIRED);
    wanted(claimed(store, "m", "A"), ACQUIRED);
    wanted(applied(store, &op), OK);
    assert_true(op.out.more);
    next = op.out.next;
    idem_op_deinit(&op);
    from = slot_server(0);
    to = from % 3 + 1;
    move_begin(0, from, to);
    move_keys(0, from, to);
    move_end(0, from, to);
    idem_store_close(store);
    store = store_open(url);
    op.in.scan.has_cursor = true;
    op.in.scan.cursor = next;
    assert_int_equal(apply(store, &op, &message), IDEM_ERR_UNAVAILABLE);
    assert_non_null(strstr(message.text, "begin it again"));
    idem_store_close(store);
}

/* What a person did is in the audit, wherever the record and the audit live. */
static void people_are_audited_across_nodes(void **state)
{
    struct idem_op op, audit = {.kind = IDEM_OP_AUDIT, .in.audit.limit = IDEM_SCAN_MAX};
    char url[URL_SIZE], key[32];
    struct idem_store *store;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "", url);
    store = store_open(url);
    for (unsigned i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "k%u", i);
        wanted(claimed(store, key, "A"), ACQUIRED);
        op_forget(&op, key, false);
        wanted(applied(store, &op), REFUSED);
        op_forget(&op, key, true);
        wanted(applied(store, &op), OK);
    }
    wanted(applied(store, &audit), OK);
    assert_int_equal(audit.out.count, 20);
    idem_op_deinit(&audit);
    idem_store_close(store);
}

static void a_node_is_no_lone_server(void **state)
{
    char url[URL_SIZE];

    (void)state;
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?timeout=1s", node_port(1));
    refused(url, IDEM_ERR_INVALID, "redis+cluster");
}

static void a_node_that_hangs_is_a_timeout(void **state)
{
    struct idem_message message = {""};
    int64_t begun_us;
    char url[URL_SIZE];
    struct idem_store *store;
    struct idem_op op;
    int node;

    (void)state;
    url_make("IDEM_TEST_CLUSTER", "?timeout=400ms", url);
    store = store_open(url);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    node = slot_server(slot_of(url, "k"));
    control("stop", node_name(node));
    begun_us = steady_us();
    op_claim(&op, "k", "A");
    assert_int_equal(apply(store, &op, &message), IDEM_ERR_TIMEOUT);
    assert_true(steady_us() - begun_us < 2 * SECOND);
    control("cont", node_name(node));
    idem_store_close(store);
}

/* Replicas that follow their masters, as the masters count them. */
static bool replicas_follow(void *context)
{
    int count = 0;

    (void)context;
    for (int number = 1; number <= NODES; number++)
        if (strcmp(info_of(node_port(number), "replication", "role"), "master") == 0)
            count +=
                strcmp(info_of(node_port(number), "replication", "connected_slaves"), "1") == 0;
    return count == NODES / 2;
}

struct succession {
    unsigned slot;
    int before, asked;
};

static bool slot_has_a_new_owner(void *context)
{
    const struct succession *succession = context;
    int owner = slot_owner(succession->slot, succession->asked);

    return owner != 0 && owner != succession->before;
}

/* Every call waits for the one replica that each master has: it is the one that is promoted. */
static void killed_master_loses_nothing_acknowledged(void **state)
{
    struct claimant claimant;
    struct succession succession;
    char url[URL_SIZE];

    (void)state;
    await(replicas_follow, NULL, "replicas that follow");
    url_make("IDEM_TEST_CLUSTER", "?replicas=1&timeout=2s", url);
    claimant_begin(&claimant, url);
    succession.slot = slot_of(url, "k0");
    succession.before = slot_server(succession.slot);
    succession.asked = succession.before % 3 + 1;
    claimant_await(&claimant, 200);
    control("kill", node_name(succession.before));
    await(slot_has_a_new_owner, &succession, "a replica that is promoted");
    control("start", node_name(succession.before));
    claimant_await(&claimant, 200);
    claimant_end(&claimant);
    assert_true(claimant.failures > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_go_to_every_node),
        cmocka_unit_test(ops_follow_a_slot_that_moves),
        cmocka_unit_test(order_survives_a_move),
        cmocka_unit_test(slots_move_under_load),
        cmocka_unit_test(a_scan_does_not_go_on_in_another_map),
        cmocka_unit_test(people_are_audited_across_nodes),
        cmocka_unit_test(a_node_is_no_lone_server),
        cmocka_unit_test(a_node_that_hangs_is_a_timeout),
        cmocka_unit_test(killed_master_loses_nothing_acknowledged),
    };

    op_lease_us = 5 * MINUTE;
    return cmocka_run_group_tests_name("redis cluster", tests, NULL, NULL);
}
