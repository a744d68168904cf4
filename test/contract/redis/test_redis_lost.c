/* A reply that is lost: the op was applied, is repeated, and is answered as the first time. */
#include <stdio.h>
#include <string.h>

#include "../relay.h"
#include "support.h"

static struct relay relay;
static struct idem_store *store;
static char url[URL_SIZE];

static int relay_setup(void **state)
{
    (void)state;
    relay_begin(&relay, port_of("redis"), NULL);
    url_make("IDEM_TEST_REDIS", "?timeout=20s", url);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?timeout=20s&prefix=%s", relay.port,
             prefix_of(url));
    store = store_open(url);
    return 0;
}

static int relay_teardown(void **state)
{
    (void)state;
    idem_store_close(store);
    relay_end(&relay);
    return 0;
}

/* Applies the op, whose first reply is lost. */
static enum idem_result lost(struct idem_op *op)
{
    unsigned losses = relay.losses;
    enum idem_result result;

    relay_arm(&relay);
    result = applied(store, op);
    assert_int_equal(relay.losses, losses + 1);
    return result;
}

static void claim_is_acquired_once(void **state)
{
    struct idem_op op;
    uint64_t fence;

    (void)state;
    op_claim(&op, "k", "A");
    wanted(lost(&op), ACQUIRED);
    assert_int_equal(op.out.attempt, 1);
    fence = op.out.fence;
    wanted(applied(store, &op), ACQUIRED);
    assert_true(op.out.fence == fence);
    wanted(claimed(store, "k", "B"), IN_PROGRESS);
}

static void take_over_is_acquired_once(void **state)
{
    struct idem_op op;

    (void)state;
    wanted(claimed(store, "k", "A"), ACQUIRED);
    op_verdict(&op, IDEM_OP_ABANDON, "k", "A", text(""));
    op.in.verdict.reason = IDEM_REASON_UNANSWERED;
    wanted(lost(&op), OK);
    op_claim(&op, "k", "B");
    op.in.claim.take = IDEM_TAKE_ANY;
    wanted(lost(&op), ACQUIRED);
    assert_int_equal(op.out.attempt, 2);
    wanted(claimed(store, "k", "A"), IN_PROGRESS);
}

static void verdicts_are_ok(void **state)
{
    struct idem_op op;

    (void)state;
    wanted(claimed(store, "k", "A"), ACQUIRED);
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text("paid"));
    wanted(lost(&op), OK);
    op_claim(&op, "k", "B");
    wanted(lost(&op), COMPLETED);
    assert_bytes(op.out.found.record.answer.body, text("paid"));
    idem_op_deinit(&op);
    wanted(claimed(store, "l", "A"), ACQUIRED);
    op_verdict(&op, IDEM_OP_FAIL, "l", "A", text(""));
    wanted(lost(&op), OK);
    op_verdict(&op, IDEM_OP_FAIL, "never seen", "A", text(""));
    wanted(lost(&op), OK);
    wanted(claimed(store, "never seen", "A"), ENDED);
}

static size_t audit_count(void)
{
    struct idem_op op = {.kind = IDEM_OP_AUDIT, .in.audit.limit = 10};
    size_t count;

    wanted(applied(store, &op), OK);
    count = op.out.count;
    idem_op_deinit(&op);
    return count;
}

static void forget_is_ok_and_audited_once(void **state)
{
    struct idem_op op;

    (void)state;
    wanted(claimed(store, "k", "A"), ACQUIRED);
    op_forget(&op, "k", true);
    wanted(lost(&op), OK);
    wanted(applied(store, &op), ABSENT); /* another one, later, does not know it */
    assert_int_equal(audit_count(), 1);
}

static void resolve_is_ok_and_audited_once(void **state)
{
    struct idem_op op, get;

    (void)state;
    wanted(claimed(store, "k", "A"), ACQUIRED);
    op_verdict(&op, IDEM_OP_ABANDON, "k", "A", text(""));
    wanted(applied(store, &op), OK);
    op_get(&get, "k");
    wanted(applied(store, &get), FOUND);
    op_blank(&op, IDEM_OP_RESOLVE, "k");
    op.in.resolve = (struct idem_resolve){.fence = get.out.found.record.fence,
                                          .updated_us = get.out.found.record.updated_us,
                                          .ttl_us = TTL,
                                          .owner = owner_of("person")};
    wanted(lost(&op), OK);
    assert_int_equal(audit_count(), 1);
    idem_op_deinit(&get);
    wanted(claimed(store, "k", "B"), ACQUIRED);
}

static void put_is_ok(void **state)
{
    struct idem_op op, get;

    (void)state;
    wanted(claimed(store, "k", "A"), ACQUIRED);
    op_get(&get, "k");
    wanted(applied(store, &get), FOUND);
    op_forget(&op, "k", true);
    wanted(applied(store, &op), OK);
    op.kind = IDEM_OP_PUT;
    op.in.put.record = get.out.found.record;
    wanted(lost(&op), OK);
    wanted(claimed(store, "k", "A"), ACQUIRED);
    idem_op_deinit(&get);
}

static void pages_are_whole(void **state)
{
    struct idem_op op = {.kind = IDEM_OP_SCAN, .in.scan.limit = 100};
    char key[32];

    (void)state;
    for (unsigned i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "k%u", i);
        wanted(claimed(store, key, "A"), ACQUIRED);
    }
    wanted(lost(&op), OK);
    assert_int_equal(op.out.count, 50);
    idem_op_deinit(&op);
}

/* The peer goes while much is on its way to it: an error that is repeated, and no signal. */
static void large_answers_go_again(void **state)
{
    size_t size = 8u << 20;
    char *body = malloc(size + 1);
    struct idem_op op;

    (void)state;
    assert_non_null(body);
    memset(body, 'x', size);
    body[size] = '\0';
    wanted(claimed(store, "k", "A"), ACQUIRED);
    told(port_of("redis"), "CLIENT KILL TYPE normal SKIPME yes");
    op_verdict(&op, IDEM_OP_COMPLETE, "k", "A", text(body));
    wanted(applied(store, &op), OK);
    op_claim(&op, "k", "B");
    wanted(lost(&op), COMPLETED);
    assert_bytes(op.out.found.record.answer.body, text(body));
    idem_op_deinit(&op);
    free(body);
}

#define relayed(test) cmocka_unit_test_setup_teardown(test, relay_setup, relay_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        relayed(claim_is_acquired_once),
        relayed(take_over_is_acquired_once),
        relayed(verdicts_are_ok),
        relayed(forget_is_ok_and_audited_once),
        relayed(resolve_is_ok_and_audited_once),
        relayed(put_is_ok),
        relayed(pages_are_whole),
        relayed(large_answers_go_again),
    };

    op_lease_us = 5 * MINUTE;
    return cmocka_run_group_tests_name("redis, replies that are lost", tests, NULL, NULL);
}
