/*
 * The self-test, in five batches on an id of a kind of its own, with a random key, so that two
 * processes that open one store at once do not meet:
 *
 *   1. claim               → acquired
 *   2. another's claim     → in progress
 *      complete            → ok
 *   3. get, same request   → found: completed, the same answer, the expiry as asked
 *      get, other payload  → mismatch
 *      another's claim     → completed
 *   4. forget              → ok
 *   5. get                 → absent
 *
 * What a batch wrote is asked for in the next one: of its own a store may tell what it remembers,
 * which need not be what it has.
 *
 * A full store passes: it refuses the first claim, which is right, and must open, or nothing in it
 * could be settled or swept. Should the process die half-way, the record expires by itself.
 */
#include <sodium.h>

#include "store/front.h"

#define TTL_US          (60 * IDEM_SECOND_US)
#define LEASE_US        (10 * IDEM_SECOND_US)
#define OPS_MAX         3              /* in one batch */
#define EXPIRY_SLACK_US IDEM_SECOND_US /* stores may round instants to whole seconds */

static const char answer_body[] = "idem self-test \0 with a NUL";
static const char answer_header_name[] = "X-Idem";

struct selftest {
    struct idem_store *store;
    struct idem_message *message;
    struct idem_id id;
    struct idem_op ops[OPS_MAX];
    uint8_t key[16];
    uint8_t headers[64];
    struct idem_answer answer;
    struct idem_fingerprint fingerprint;
    struct idem_owner owner;
    int64_t expires_us; /* what was asked for with the verdict */
    bool tombstoned;
};

static int fault(struct selftest *test, const char *what)
{
    idem_message_set(test->message,
                     "the store failed its self-test: %s. It cannot be trusted with keys; check "
                     "that nothing else writes to it, and its version",
                     what);
    return IDEM_ERR_SELFTEST;
}

static int apply(struct selftest *test, size_t count)
{
    struct idem_op *ops[OPS_MAX] = {&test->ops[0], &test->ops[1], &test->ops[2]};

    return idem_store_apply(test->store, ops, count, test->message);
}

/* Releases what the last batch found and begins a new one. */
static struct idem_op *ops_reset(struct selftest *test)
{
    for (size_t i = 0; i < OPS_MAX; i++) {
        idem_op_deinit(&test->ops[i]);
        memset(&test->ops[i], 0, sizeof test->ops[i]);
        test->ops[i].id = test->id;
    }
    return test->ops;
}

static void claim_fill(struct selftest *test, struct idem_op *op)
{
    struct idem_claim *in = &op->in.claim;

    op->kind = IDEM_OP_CLAIM;
    in->kind = IDEM_KIND_SELFTEST;
    in->key = idem_bytes_make(test->key, sizeof test->key);
    in->method = idem_bytes_from_text("SELFTEST");
    in->fingerprint = test->fingerprint;
    in->lease_us = LEASE_US;
    in->unknown_ttl_us = TTL_US;
    in->ttl_us = TTL_US;
    randombytes_buf(in->owner.bytes, sizeof in->owner.bytes);
}

static void get_fill(struct selftest *test, struct idem_op *op)
{
    op->kind = IDEM_OP_GET;
    op->in.get.match = true;
    op->in.get.fingerprint = test->fingerprint;
}

/* 1: IDEM_RESULT_FULL in *ret_first ends the test well. */
static int claim_run(struct selftest *test, enum idem_result *ret_first)
{
    struct idem_op *ops = ops_reset(test);
    int error;

    claim_fill(test, &ops[0]);
    test->owner = ops[0].in.claim.owner;
    error = apply(test, 1);
    if (error)
        return error;
    *ret_first = ops[0].result;
    if (ops[0].result == IDEM_RESULT_FULL)
        return IDEM_OK;
    if (ops[0].result != IDEM_RESULT_ACQUIRED || ops[0].out.attempt != 1 || ops[0].out.fence == 0)
        return fault(test, "a new id was not acquired");
    return IDEM_OK;
}

/* 2 */
static int complete_run(struct selftest *test)
{
    struct idem_op *ops = ops_reset(test);
    int error;

    claim_fill(test, &ops[0]);
    ops[1].kind = IDEM_OP_COMPLETE;
    ops[1].in.verdict.owner = test->owner;
    ops[1].in.verdict.answer = test->answer;
    ops[1].in.verdict.ttl_us = TTL_US;
    error = apply(test, 2);
    if (error)
        return error;
    if (ops[0].result != IDEM_RESULT_IN_PROGRESS)
        return fault(test, "a second claim was not refused while the first ran");
    if (ops[1].result != IDEM_RESULT_OK)
        return fault(test, "a claim could not be completed by its owner");
    test->expires_us = ops[1].out.now_us + TTL_US;
    test->tombstoned = ops[1].out.tombstoned;
    return IDEM_OK;
}

static int record_check(struct selftest *test, const struct idem_record *record)
{
    if (record->state != IDEM_STATE_COMPLETED || !idem_owner_equal(&record->owner, &test->owner))
        return fault(test, "a completed record was not read back as such");
    if (record->expires_us < test->expires_us - EXPIRY_SLACK_US ||
        record->expires_us > test->expires_us + EXPIRY_SLACK_US)
        return fault(test, "the expiry of a completed record was not set as asked");
    if (test->tombstoned)
        return IDEM_OK;
    if (record->answer.status != test->answer.status ||
        !idem_bytes_equal(record->answer.headers, test->answer.headers) ||
        !idem_bytes_equal(record->answer.body, test->answer.body))
        return fault(test, "an answer was not read back as it was written");
    return IDEM_OK;
}

/* 3 */
static int read_back_run(struct selftest *test)
{
    struct idem_op *ops = ops_reset(test);
    int error;

    get_fill(test, &ops[0]);
    get_fill(test, &ops[1]);
    ops[1].in.get.fingerprint.bytes[0] ^= 1;
    claim_fill(test, &ops[2]);
    error = apply(test, 3);
    if (error)
        return error;
    if (ops[0].result != IDEM_RESULT_FOUND)
        return fault(test, "a completed record was not found");
    if (ops[1].result != IDEM_RESULT_MISMATCH)
        return fault(test, "another payload under the same key was not told apart");
    if (ops[2].result != IDEM_RESULT_COMPLETED)
        return fault(test, "a claim on a completed record was not answered from it");
    return record_check(test, &ops[0].out.found.record);
}

/* 4 and 5: also what cleans up after a fault, so it takes any result. */
static int forget_run(struct selftest *test)
{
    struct idem_op *ops = ops_reset(test);
    enum idem_result forgotten;
    int error;

    ops[0].kind = IDEM_OP_FORGET;
    ops[0].in.forget.force = true;
    error = apply(test, 1);
    if (error)
        return error;
    forgotten = ops[0].result;
    ops = ops_reset(test);
    ops[0].kind = IDEM_OP_GET;
    error = apply(test, 1);
    if (error)
        return error;
    if (forgotten != IDEM_RESULT_OK || ops[0].result != IDEM_RESULT_ABSENT)
        return fault(test, "a record could not be removed");
    return IDEM_OK;
}

static void selftest_init(struct selftest *test)
{
    size_t size;

    randombytes_buf(test->key, sizeof test->key);
    randombytes_buf(test->fingerprint.bytes, sizeof test->fingerprint.bytes);
    test->fingerprint.algorithm = IDEM_FINGERPRINT_RAW;
    test->id = idem_id_make(IDEM_KIND_SELFTEST, idem_bytes_make(NULL, 0),
                            idem_bytes_make(test->key, sizeof test->key));
    size = idem_headers_append(test->headers, 0, sizeof test->headers,
                               idem_bytes_from_text(answer_header_name), idem_bytes_from_text("1"));
    test->answer.status = 200;
    test->answer.headers = idem_bytes_make(test->headers, size);
    test->answer.body = idem_bytes_make(answer_body, sizeof answer_body);
}

int idem_store_selftest(struct idem_store *store, struct idem_message *message)
{
    struct selftest test = {.store = store, .message = message};
    enum idem_result first = IDEM_RESULT_NONE;
    int error;

    if (sodium_init() < 0) {
        idem_message_set(message, "libsodium cannot be used: the system gives no random numbers");
        return IDEM_ERR_UNAVAILABLE;
    }
    selftest_init(&test);
    error = claim_run(&test, &first);
    if (!error && first != IDEM_RESULT_FULL) {
        error = complete_run(&test);
        if (!error)
            error = read_back_run(&test);
        if (!error) {
            error = forget_run(&test);
        } else if (error == IDEM_ERR_SELFTEST) {
            test.message = NULL; /* the first fault is the one to tell */
            (void)!forget_run(&test);
        }
    }
    ops_reset(&test);
    return error;
}
