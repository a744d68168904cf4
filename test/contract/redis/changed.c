#include "changed.h"

#include <idem/executor.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static void op_of_kind(struct idem_op *op, enum idem_op_kind kind, const struct idem_record *record)
{
    static const struct idem_scan all = {.limit = 10};
    static const struct idem_sweep some = {.limit = 10};
    static const struct idem_audit entries = {.limit = 10};

    op_verdict(op, kind, "k", "A", text("paid"));
    if (kind == IDEM_OP_CLAIM) {
        op_claim(op, "k", "A");
    } else if (kind == IDEM_OP_FORGET) {
        op_forget(op, "k", true);
    } else if (kind != IDEM_OP_COMPLETE && kind != IDEM_OP_FAIL && kind != IDEM_OP_ABANDON) {
        memset(&op->in, 0, sizeof op->in);
        if (kind == IDEM_OP_RENEW)
            op_renew(op, "k", "A", LEASE);
        else if (kind == IDEM_OP_SCAN)
            op->in.scan = all;
        else if (kind == IDEM_OP_SWEEP)
            op->in.sweep = some;
        else if (kind == IDEM_OP_AUDIT)
            op->in.audit = entries;
        else if (kind == IDEM_OP_RESOLVE)
            op->in.resolve = (struct idem_resolve){.force = true, .owner = owner_of("person")};
        else if (kind == IDEM_OP_PUT)
            op->in.put.record = *record;
    }
}

void every_op_fails(struct idem_store *store)
{
    struct idem_store *memory = store_open("memory:");
    struct idem_op get, op;

    wanted(claimed(memory, "k", "A"), ACQUIRED);
    op_of_kind(&get, IDEM_OP_GET, NULL);
    wanted(applied(memory, &get), FOUND);
    for (enum idem_op_kind kind = IDEM_OP_CLAIM; kind < IDEM_OP_COUNT; kind++) {
        const char *sentence;

        op_of_kind(&op, kind, &get.out.found.record);
        sentence = apply_fails(store, &op, IDEM_ERR_UNSAFE);
        if (!strstr(sentence, "no longer holds the store"))
            fail_msg("%s: %s", idem_op_kind_text(kind), sentence);
    }
    idem_op_deinit(&get);
    idem_store_close(memory);
}

struct gateway {
    struct idem_executor *executor;
    unsigned failures; /* claims that failed, and were sent again */
};

static void gateway_begin(struct gateway *gateway, const char *url)
{
    static const struct idem_executor_options options = {.sweep_us = -1};
    struct idem_message message = {""};

    gateway->failures = 0;
    if (idem_executor_new(url, &options, &gateway->executor, &message) ||
        idem_executor_wait_open(gateway->executor, MINUTE, &message))
        fail_msg("%s: %s", url, message.text);
}

struct asked {
    struct idem_job job; /* first */
    bool done;
};

static void asked_notify(struct idem_job *job, enum idem_job_event event)
{
    ((struct asked *)job)->done = event == IDEM_JOB_DONE;
}

/* What came of one claim: 0 or negative. */
static int claim_once(struct gateway *gateway, struct asked *asked, const char *key,
                      const char *owner)
{
    struct pollfd news = {.fd = idem_executor_fd(gateway->executor), .events = POLLIN};
    int error;

    memset(asked, 0, sizeof *asked);
    op_claim(&asked->job.op, key, owner);
    asked->job.notify = asked_notify;
    error = idem_executor_submit(gateway->executor, &asked->job);
    if (error)
        return error;
    while (!asked->done) {
        (void)poll(&news, 1, 1000);
        (void)idem_executor_collect(gateway->executor);
    }
    return asked->job.error;
}

/* As a client does that is told to come again. */
static enum idem_result gateway_claims(struct gateway *gateway, const char *key, const char *owner)
{
    int64_t deadline_us = steady_us() + MINUTE;
    struct asked asked;
    enum idem_result result;

    while (claim_once(gateway, &asked, key, owner)) {
        gateway->failures++;
        if (steady_us() > deadline_us)
            fail_msg("claims of \"%s\" go on failing: %d", key, asked.job.error);
        (void)poll(NULL, 0, 10);
    }
    result = asked.job.op.result;
    idem_op_deinit(&asked.job.op);
    return result;
}

static void gateway_end(struct gateway *gateway)
{
    idem_executor_free(gateway->executor, SECOND);
}

/* One of the three acquires the key, and the others know of it. */
static void one_executes(struct gateway gateways[3], unsigned first, const char *key)
{
    wanted(gateway_claims(&gateways[first % 3], key, "A"), ACQUIRED);
    wanted(gateway_claims(&gateways[(first + 1) % 3], key, "B"), IN_PROGRESS);
    wanted(gateway_claims(&gateways[(first + 2) % 3], key, "C"), IN_PROGRESS);
}

unsigned gateways_agree(const char *url, void (*flush)(void), unsigned count)
{
    struct gateway gateways[3];
    char key[32];

    gateway_begin(&gateways[0], url);
    gateway_begin(&gateways[1], url);
    wanted(gateway_claims(&gateways[0], "before", "A"), ACQUIRED);
    wanted(gateway_claims(&gateways[1], "before", "B"), IN_PROGRESS);
    flush();
    gateway_begin(&gateways[2], url);
    for (unsigned i = 0; i < count; i++) {
        snprintf(key, sizeof key, "k%u", i);
        one_executes(gateways, i, key);
    }
    assert_true(gateways[0].failures > 0);
    assert_true(gateways[1].failures > 0);
    for (size_t i = 0; i < COUNT(gateways); i++)
        gateway_end(&gateways[i]);
    return gateways[2].failures;
}
