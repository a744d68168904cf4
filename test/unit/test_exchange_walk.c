/*
 * Every sequence of events, of any length, whether it makes sense or not: from the first state on,
 * every event is fed in every state that was reached, until there is no new one. After each step
 * the promises of exchange.h are checked against what a bystander knows:
 *
 *   1. nothing goes upstream without a claim, nor twice after a byte was sent, nor after a verdict
 *   2. under `probe` nothing goes past an unknown before a whole 404 and a renewal after it
 *   3. `fail` is never said while an earlier attempt may have taken effect
 *   4. nothing goes unguarded where the store has told of another attempt
 *   5. each effect's durable condition holds, and a request ends once
 *   6. there is one claim at a time, none after one that was won, and a take-over names what was
 * seen
 *   7. what a probe found is delivered only when it is recorded
 *   8. whatever happened, an abort leaves no claim without a verdict
 */
#include "exchange_script.h"
#include "unit.h"

#include <stdlib.h>

static const char *const EVENTS[] = {
    "request",
    "tick 20",
    "wake 30",
    "client gone",
    "claim acquired 1 7",
    "claim completed",
    "claim in_progress 1 7",
    "claim in_progress 2 9",
    "claim unknown 1 7",
    "claim unknown 2 9",
    "claim full",
    "claim ended",
    "claim failed",
    "claim refused",
    "renew ok",
    "renew lost",
    "renew failed",
    "complete ok",
    "complete lost",
    "complete failed",
    "fail ok",
    "abandon ok",
    "abandon lost",
    "get completed",
    "get absent",
    "head 201",
    "head 201 final",
    "head 404",
    "head 503",
    "head 503 failed",
    "body 60",
    "end",
    "upstream unsent",
    "upstream truncated",
    "rerouted unsent",
    "rerouted sent 404",
    "rerouted sent 503",
    "aborted unsent",
    "aborted sent",
};

#define EVENT_COUNT (sizeof(EVENTS) / sizeof(EVENTS[0]))

/* What a bystander knows, who sees the events and the effects and not the exchange. */
struct facts {
    bool claiming;       /* a claim was submitted and its result not told */
    bool acquired;       /* one was won */
    bool another;        /* another attempt was seen, running or unknown */
    bool unknown;        /* an unknown one, and nothing has told yet what became of it */
    uint64_t seen_fence; /* of the last unknown that was seen */
    bool probed;         /* the upstream was asked */
    bool probe_404;      /* the last head of its answer was a plain 404 */
    bool cleared;        /* that answer was whole … */
    bool renewing;       /* a renew was submitted and its result not told */
    bool stale;          /* … and this renew was submitted before that */
    bool confirmed;      /* and a renewal after it was ok */
    bool executing;      /* a forward was seen: answers are about it */
    bool sent;           /* the driver told of bytes that left */
    bool verdict;        /* a complete, fail or abandon was submitted */
    bool recorded;       /* and its result came, or a record was read */
    unsigned ends;       /* effects that decide what the client gets */
};

struct place {
    struct idem_exchange exchange;
    struct facts facts;
};

#define PLACES_MAX 65536 /* a power of two */

#define WAIT_US (IDEM_SECOND_US / 40) /* one pause, and a piece of the next */

/* The states that were reached, in the order of reaching, and a hash table of their numbers. */
static struct place places[PLACES_MAX];
static size_t place_count;
static uint32_t place_table[2 * PLACES_MAX]; /* number + 1, 0 is free */
static bool done_reached;

static struct script script; /* steps from place to place; its policy is that of the walk */

static bool has(const char *words, const char *beginning)
{
    return strncmp(words, beginning, strlen(beginning)) == 0;
}

static void learn_claim(struct facts *facts, const char *words)
{
    facts->claiming = false;
    facts->acquired |= has(words, "claim acquired");
    facts->another |= has(words, "claim in_progress") || has(words, "claim unknown");
    if (has(words, "claim unknown")) {
        facts->unknown = true;
        facts->seen_fence = strtoull(strrchr(words, ' '), NULL, 10);
    }
}

static void learn_renew(struct facts *facts, const char *words)
{
    facts->confirmed |= has(words, "renew ok") && facts->cleared && !facts->stale;
    facts->renewing = false;
    facts->stale = false;
}

/* What the upstream answers is about the probe until the request itself was forwarded. */
static void learn_upstream(struct facts *facts, const char *words)
{
    if (facts->executing) {
        facts->sent |= has(words, "upstream truncated") || has(words, "rerouted sent");
        return;
    }
    if (has(words, "head")) {
        facts->probe_404 = has(words, "head 404");
    }
    if (has(words, "end") && facts->probe_404 && facts->probed && !facts->cleared) {
        facts->cleared = true;
        facts->stale = facts->renewing;
    }
}

static void learn_event(struct facts *facts, const char *words)
{
    if (has(words, "claim") && facts->claiming) {
        learn_claim(facts, words);
    } else if (has(words, "renew") && facts->renewing) {
        learn_renew(facts, words);
    }
    learn_upstream(facts, words);
    facts->sent |= has(words, "aborted sent");
    facts->recorded |= facts->verdict && strstr(words, " ok") != NULL;
    facts->recorded |= strstr(words, "completed") != NULL;
}

static void check_store(struct facts *facts, const struct idem_effect *effect)
{
    struct idem_op op;

    idem_exchange_op(&script.exchange, effect, &op);
    switch (op.kind) {
    case IDEM_OP_CLAIM:
        assert_false(facts->claiming);
        assert_false(facts->acquired);
        assert_false(facts->verdict);
        facts->claiming = true;
        assert_true(op.in.claim.take == IDEM_TAKE_NONE || facts->unknown);
        assert_true(op.in.claim.take != IDEM_TAKE_ANY ||
                    script.policy.unknown == IDEM_UNKNOWN_RETRY);
        assert_true(op.in.claim.take != IDEM_TAKE_FENCE ||
                    (script.policy.unknown == IDEM_UNKNOWN_PROBE &&
                     op.in.claim.take_fence == facts->seen_fence));
        return;
    case IDEM_OP_RENEW:
        assert_true(facts->acquired);
        assert_false(facts->renewing);
        facts->renewing = true;
        return;
    case IDEM_OP_FAIL:
        assert_true(!facts->unknown || facts->confirmed);
        break;
    case IDEM_OP_GET:
        assert_true(facts->verdict);
        return;
    default:
        break;
    }
    assert_false(facts->verdict);
    assert_true(facts->acquired || effect->background);
    facts->verdict = true;
}

static void check_forward(struct facts *facts, const struct idem_effect *effect)
{
    bool past_unknown = facts->unknown && script.policy.unknown != IDEM_UNKNOWN_RETRY;

    assert_true(facts->acquired);
    assert_false(facts->verdict);
    assert_false(facts->sent);
    assert_int_equal(effect->requires, IDEM_DURABLE_CLAIM);
    assert_true(!past_unknown || (facts->cleared && facts->confirmed));
    facts->executing = true;
}

static void check_probe(struct facts *facts, const struct idem_effect *effect)
{
    assert_int_equal(script.policy.unknown, IDEM_UNKNOWN_PROBE);
    assert_true(facts->acquired);
    assert_true(facts->unknown);
    assert_false(facts->probed);
    assert_false(facts->executing);
    assert_int_equal(effect->requires, IDEM_DURABLE_CLAIM);
    facts->probed = true;
}

static void check_end(struct facts *facts, const struct idem_effect *effect)
{
    facts->ends++;
    assert_int_equal(facts->ends, 1);
    if (effect->kind == IDEM_EFFECT_BYPASS) {
        assert_true(script.policy.fail_open);
        assert_false(facts->another);
        assert_false(facts->acquired);
    }
    if (effect->kind == IDEM_EFFECT_DELIVER && effect->unrecorded) {
        assert_true(!facts->probed || facts->executing);
    }
    if (effect->requires == IDEM_DURABLE_VERDICT ||
        (effect->kind == IDEM_EFFECT_DELIVER && !effect->unrecorded)) {
        assert_true(facts->recorded);
    }
}

static void check_effect(struct facts *facts, const struct idem_effect *effect)
{
    switch (effect->kind) {
    case IDEM_EFFECT_STORE:
        check_store(facts, effect);
        return;
    case IDEM_EFFECT_FORWARD:
        check_forward(facts, effect);
        return;
    case IDEM_EFFECT_PROBE:
        check_probe(facts, effect);
        return;
    case IDEM_EFFECT_TIMER:
        assert_true(effect->delay_us > 0);
        return;
    default:
        check_end(facts, effect);
    }
}

/* A claim that was won, or may have been, is never left to lapse; no other end is silent. */
static void check_done(const struct place *before, const struct facts *now, const char *words)
{
    bool maybe_won = before->facts.claiming && (has(words, "claim failed") ||
                                                has(words, "claim ended") || has(words, "aborted"));
    bool silent = has(words, "aborted") ||
                  (has(words, "client gone") && before->exchange.state == IDEM_EXCHANGE_WAITING);

    assert_true(!(now->acquired || maybe_won) || now->verdict);
    assert_int_equal(now->ends, silent ? 0 : 1);
}

static size_t place_hash(const struct place *place)
{
    const uint8_t *bytes = (const uint8_t *)place;
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */

    for (size_t i = 0; i < sizeof(*place); i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return (size_t)(hash ^ (hash >> 32));
}

/* Remembers the place if it is new. */
static void place_reach(const struct place *place)
{
    const size_t size = sizeof(place_table) / sizeof(place_table[0]);
    size_t slot = place_hash(place) % size;

    for (; place_table[slot] != 0; slot = (slot + 1) % size) {
        if (memcmp(&places[place_table[slot] - 1], place, sizeof(*place)) == 0) {
            return;
        }
    }
    assert_true(place_count < PLACES_MAX);
    places[place_count++] = *place;
    place_table[slot] = (uint32_t)place_count;
}

/* Once the claim is won nobody asks how it came: places that differ in that alone are one. */
static void place_simplify(struct place *place)
{
    if (place->facts.acquired) {
        place->facts.seen_fence = 0;
        place->exchange.client_gone = false;
        place->exchange.wait_fence = 0;
        place->exchange.waited_us = 0;
        place->exchange.pause_us = 0;
    }
}

static void step(const struct place *from, const char *words)
{
    struct place to;

    memset(&to, 0, sizeof(to));
    to.facts = from->facts;
    script.exchange = from->exchange;
    (void)script_feed(&script, words);
    learn_event(&to.facts, words);
    for (size_t i = 0; i < script.effects.count; i++) {
        check_effect(&to.facts, &script.effects.items[i]);
    }
    if (script.exchange.state == IDEM_EXCHANGE_DONE && from->exchange.state != IDEM_EXCHANGE_DONE) {
        check_done(from, &to.facts, words);
    }
    assert_true(!has(words, "aborted") || script.exchange.state == IDEM_EXCHANGE_DONE);
    if (from->exchange.state == IDEM_EXCHANGE_DONE) {
        assert_int_equal(script.effects.count, 0);
    }
    /* No event has a handler once it is done: one such place is as good as all. */
    if (script.exchange.state != IDEM_EXCHANGE_DONE || !done_reached) {
        done_reached |= script.exchange.state == IDEM_EXCHANGE_DONE;
        memcpy(&to.exchange, &script.exchange, sizeof(to.exchange));
        place_simplify(&to);
        place_reach(&to);
    }
}

/* How many of the exchange's states were reached at all. */
static unsigned states_reached(void)
{
    unsigned set = 0, count = 0;

    for (size_t i = 0; i < place_count; i++) {
        set |= 1u << places[i].exchange.state;
    }
    for (; set != 0; set &= set - 1) {
        count++;
    }
    return count;
}

static void walk(enum idem_unknown_policy unknown, int64_t wait_us, bool fail_open,
                 unsigned states_expected)
{
    struct place first;

    memset(&first, 0, sizeof(first));
    memset(place_table, 0, sizeof(place_table));
    place_count = 0;
    done_reached = false;
    script_init(&script);
    script.policy.unknown = unknown;
    script.policy.wait_us = wait_us;
    script.policy.fail_open = fail_open;
    script_restart(&script);
    memcpy(&first.exchange, &script.exchange, sizeof(first.exchange));
    place_reach(&first);
    for (size_t at = 0; at < place_count; at++) {
        for (size_t i = 0; i < EVENT_COUNT; i++) {
            step(&places[at], EVENTS[i]);
        }
    }
    print_message("%zu places, %zu steps\n", place_count, place_count * EVENT_COUNT);
    assert_int_equal(states_reached(), states_expected);
}

/* idle, claiming, executing, recording, looking, done; then waiting; then the two of a probe. */
static void test_hold(void **state)
{
    (void)state;
    walk(IDEM_UNKNOWN_HOLD, 0, false, 6);
    walk(IDEM_UNKNOWN_HOLD, 0, true, 6);
    walk(IDEM_UNKNOWN_HOLD, WAIT_US, true, 7);
}

static void test_retry(void **state)
{
    (void)state;
    walk(IDEM_UNKNOWN_RETRY, 0, false, 6);
    walk(IDEM_UNKNOWN_RETRY, WAIT_US, true, 7);
}

static void test_probe(void **state)
{
    (void)state;
    walk(IDEM_UNKNOWN_PROBE, 0, false, 8);
    walk(IDEM_UNKNOWN_PROBE, WAIT_US, true, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hold),
        cmocka_unit_test(test_retry),
        cmocka_unit_test(test_probe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
