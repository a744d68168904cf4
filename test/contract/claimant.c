#include "claimant.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "servers.h"

/* Applies until it is applied, as a gateway does with a verdict. */
static void insist(struct claimant *claimant, struct idem_op *op)
{
    struct idem_message message = {""};
    int64_t deadline_us = steady_us() + MINUTE;
    int error;

    while ((error = apply(claimant->store, op, &message)) != 0) {
        if (steady_us() > deadline_us ||
            (error != IDEM_ERR_UNAVAILABLE && error != IDEM_ERR_TIMEOUT))
            fail_msg("%d: %s", error, message.text);
        claimant->failures++;
        (void)poll(NULL, 0, 5);
    }
}

static void *claimant_run(void *argument)
{
    struct claimant *claimant = argument;
    struct idem_op op;
    char key[32];

    while (!__atomic_load_n(&claimant->ended, __ATOMIC_SEQ_CST)) {
        snprintf(key, sizeof key, "k%u", claimant->count);
        op_claim(&op, key, key); /* each key has an owner of its own */
        insist(claimant, &op);
        wanted(op.result, ACQUIRED);
        op_verdict(&op, IDEM_OP_COMPLETE, key, key, text(key));
        insist(claimant, &op);
        wanted(op.result, OK);
        __atomic_fetch_add(&claimant->count, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

void claimant_begin(struct claimant *claimant, const char *url)
{
    memset(claimant, 0, sizeof *claimant);
    claimant->store = store_open(url);
    assert_int_equal(pthread_create(&claimant->thread, NULL, claimant_run, claimant), 0);
}

struct goal {
    const struct claimant *claimant;
    unsigned count;
};

static bool goal_reached(void *context)
{
    const struct goal *goal = context;

    return __atomic_load_n(&goal->claimant->count, __ATOMIC_SEQ_CST) >= goal->count;
}

void claimant_await(const struct claimant *claimant, unsigned more)
{
    struct goal goal = {claimant, __atomic_load_n(&claimant->count, __ATOMIC_SEQ_CST) + more};

    await(goal_reached, &goal, "claims that go through");
}

void claimant_end(struct claimant *claimant)
{
    __atomic_store_n(&claimant->ended, true, __ATOMIC_SEQ_CST);
    pthread_join(claimant->thread, NULL);
    for (unsigned i = 0; i < claimant->count; i++) {
        struct idem_op op;
        char key[32];

        snprintf(key, sizeof key, "k%u", i);
        op_claim(&op, key, "B");
        wanted(applied(claimant->store, &op), COMPLETED);
        assert_int_equal(op.out.found.record.attempt, 1);
        assert_bytes(op.out.found.record.answer.body, text(key));
        idem_op_deinit(&op);
    }
    idem_store_close(claimant->store);
}
