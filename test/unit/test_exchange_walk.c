/*
 * Every sequence of events up to a depth, whether it makes sense or not. After each step the
 * promises of exchange.h are checked: nothing goes upstream without a claim, nothing goes twice
 * after a byte was sent, every effect's durable condition holds, and whatever happened, an abort
 * leaves no claim without a verdict.
 */
#include "exchange_script.h"
#include "unit.h"

#define DEPTH 8

static const char *const EVENTS[] = {
    "request",
    "tick",
    "claim acquired 1 7",
    "claim completed",
    "claim in_progress",
    "claim failed",
    "claim refused",
    "renew ok",
    "complete ok",
    "complete lost",
    "complete failed",
    "fail ok",
    "abandon lost",
    "get completed",
    "get absent",
    "head 201",
    "head 503",
    "body 101",
    "end",
    "upstream unsent",
    "upstream truncated",
    "rerouted unsent",
    "rerouted sent 404",
    "aborted sent",
};

#define EVENT_COUNT (sizeof(EVENTS) / sizeof(EVENTS[0]))

struct facts {
    bool claimed;  /* a claim was submitted */
    bool acquired; /* and won */
    bool verdict;  /* a complete, fail or abandon was submitted */
    bool recorded; /* and its result came, or a record was read */
    bool sent;     /* the driver told of bytes that left */
    unsigned ends; /* effects that decide what the client gets */
};

/* A claim has one result; what comes in any other state is too late and means nothing. */
static void learn_event(struct facts *facts, enum idem_exchange_state state, const char *words)
{
    facts->acquired |= state == IDEM_EXCHANGE_CLAIMING && strncmp(words, "claim acquired", 14) == 0;
    facts->sent |= strstr(words, "sent") != NULL && strstr(words, "unsent") == NULL;
    facts->sent |= strstr(words, "truncated") != NULL;
    facts->recorded |= facts->verdict && strstr(words, " ok") != NULL;
    facts->recorded |= strstr(words, "completed") != NULL;
}

static void check_effect(struct facts *facts, const struct idem_effect *effect)
{
    switch (effect->kind) {
    case IDEM_EFFECT_STORE:
        facts->claimed |= effect->op_kind == IDEM_OP_CLAIM;
        facts->verdict |= effect->op_kind >= IDEM_OP_COMPLETE && effect->op_kind <= IDEM_OP_ABANDON;
        return;
    case IDEM_EFFECT_FORWARD:
        assert_true(facts->acquired);
        assert_false(facts->verdict);
        assert_false(facts->sent);
        assert_int_equal(effect->requires, IDEM_DURABLE_CLAIM);
        return;
    case IDEM_EFFECT_TIMER:
        assert_true(effect->delay_us > 0);
        return;
    default:
        facts->ends++;
        assert_int_equal(facts->ends, 1);
        if (effect->requires == IDEM_DURABLE_VERDICT) {
            assert_true(facts->recorded);
        }
        if (effect->kind == IDEM_EFFECT_DELIVER && !effect->unrecorded) {
            assert_true(facts->recorded);
        }
    }
}

static void check_abort(const struct script *script, const struct facts *facts)
{
    struct script copy = *script;
    struct facts after = *facts;

    script_feed(&copy, "aborted sent");
    for (size_t i = 0; i < copy.effects.count; i++) {
        check_effect(&after, &copy.effects.items[i]);
    }
    assert_int_equal(copy.exchange.state, IDEM_EXCHANGE_DONE);
    if (after.acquired) {
        assert_true(after.verdict);
    }
}

static size_t walk(const struct script *script, const struct facts *facts, unsigned depth)
{
    size_t steps = 0;

    for (size_t i = 0; i < EVENT_COUNT; i++) {
        struct script copy = *script;
        struct facts now = *facts;
        enum idem_exchange_state before = copy.exchange.state;

        script_feed(&copy, EVENTS[i]);
        learn_event(&now, before, EVENTS[i]);
        for (size_t e = 0; e < copy.effects.count; e++) {
            check_effect(&now, &copy.effects.items[e]);
        }
        check_abort(&copy, &now);
        steps++;
        /* What changed nothing leads nowhere new. */
        if (depth > 1 && (copy.exchange.state != before || copy.effects.count > 0 ||
                          strncmp(EVENTS[i], "head", 4) == 0)) {
            steps += walk(&copy, &now, depth - 1);
        }
    }
    return steps;
}

static void test_every_sequence_keeps_the_promises(void **state)
{
    struct script script;
    struct facts facts = {0};
    size_t steps;

    (void)state;
    script_init(&script);
    steps = walk(&script, &facts, DEPTH);
    print_message("%zu steps\n", steps);
    assert_true(steps > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sequence_keeps_the_promises),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
