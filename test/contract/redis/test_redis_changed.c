/* Servers that are no longer what they were when the store was opened: a replica, or empty. */
#include <stdio.h>
#include <string.h>

#include "support.h"

static int port;

/* A claim that must fail; its sentence. */
static const char *claim_fails(struct idem_store *store, const char *key, int wanted_error)
{
    static struct idem_message message;
    struct idem_op op;

    message.text[0] = '\0';
    op_claim(&op, key, "A");
    assert_int_equal(apply(store, &op, &message), wanted_error);
    return message.text;
}

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
    memset(&op, 0, sizeof op);
    op.kind = IDEM_OP_GET;
    op.id = id_of("k");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replica_takes_no_writes),
        cmocka_unit_test(replica_answers_nothing),
        cmocka_unit_test(lost_data_is_told),
    };

    port = port_of("redis");
    return cmocka_run_group_tests_name("redis changed", tests, NULL, NULL);
}
