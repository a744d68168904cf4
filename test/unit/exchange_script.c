#include "exchange_script.h"

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

static struct idem_claim claim_of_a_payment(void)
{
    return (struct idem_claim){
        .kind = IDEM_KIND_HTTP,
        .scope = idem_bytes_from_text("shop"),
        .key = idem_bytes_from_text("k-1"),
        .method = idem_bytes_from_text("POST"),
        .path = idem_bytes_from_text("/payments"),
        .fingerprint = {.algorithm = IDEM_FINGERPRINT_RAW, .bytes = {1}},
        .principal = {.present = true, .bytes = {2}},
        .owner = {.bytes = {3}},
    };
}

void script_restart(struct script *script)
{
    struct idem_claim claim = claim_of_a_payment();
    struct idem_id id = idem_id_make(claim.kind, claim.scope, claim.key);

    idem_exchange_init(&script->exchange, &script->policy, &id, &claim);
}

void script_init(struct script *script)
{
    memset(script, 0, sizeof(*script));
    idem_policy_init(&script->policy);
    script->policy.lease_us = 9 * IDEM_SECOND_US;
    script->policy.body_size_max = 100;
    script_restart(script);
}

/* ---- words to an event */

static const struct {
    const char *word;
    enum idem_op_kind kind;
} OPS[] = {
    {"claim", IDEM_OP_CLAIM}, {"renew", IDEM_OP_RENEW},     {"complete", IDEM_OP_COMPLETE},
    {"fail", IDEM_OP_FAIL},   {"abandon", IDEM_OP_ABANDON}, {"get", IDEM_OP_GET},
};

static const struct {
    const char *word;
    enum idem_result result;
    enum idem_state state; /* of the record found */
} RESULTS[] = {
    {"acquired", IDEM_RESULT_ACQUIRED, 0},
    {"in_progress", IDEM_RESULT_IN_PROGRESS, 0},
    {"mismatch", IDEM_RESULT_MISMATCH, 0},
    {"other_principal", IDEM_RESULT_OTHER_PRINCIPAL, 0},
    {"full", IDEM_RESULT_FULL, 0},
    {"ended", IDEM_RESULT_ENDED, 0},
    {"corrupt", IDEM_RESULT_CORRUPT, 0},
    {"ok", IDEM_RESULT_OK, 0},
    {"lost", IDEM_RESULT_LOST, 0},
    {"absent", IDEM_RESULT_ABSENT, 0},
    {"completed", IDEM_RESULT_FOUND, IDEM_STATE_COMPLETED},
    {"tombstone", IDEM_RESULT_FOUND, IDEM_STATE_COMPLETED},
    {"processing", IDEM_RESULT_FOUND, IDEM_STATE_PROCESSING},
    {"unknown", IDEM_RESULT_FOUND, IDEM_STATE_UNKNOWN},
    {"released", IDEM_RESULT_FOUND, IDEM_STATE_FAILED},
};

static bool first_is(const char *words, const char *word)
{
    size_t size = strlen(word);

    return strncmp(words, word, size) == 0 && (words[size] == ' ' || words[size] == '\0');
}

static const char *after(const char *words)
{
    const char *space = strchr(words, ' ');

    return space ? space + 1 : "";
}

#define NOW_US (INT64_C(1000) * IDEM_SECOND_US) /* the store's clock, which stands still */

static int64_t ago_us(const char *words)
{
    const char *ago = strstr(words, "ago=");

    return ago ? strtoll(ago + strlen("ago="), NULL, 10) * IDEM_SECOND_US : 0;
}

/* What a get finds, a claim answers by itself. */
static enum idem_result result_of_claim(enum idem_result result, enum idem_state state)
{
    if (result != IDEM_RESULT_FOUND) {
        return result;
    }
    return state == IDEM_STATE_COMPLETED ? IDEM_RESULT_COMPLETED : IDEM_RESULT_UNKNOWN;
}

static bool store_event(struct script *script, enum idem_op_kind kind, const char *word,
                        struct idem_event *event)
{
    if (first_is(word, "failed") || first_is(word, "refused")) {
        *event = (struct idem_event){.kind = IDEM_EVENT_STORE_FAILED, .op_kind = kind};
        event->not_applied = first_is(word, "refused");
        return true;
    }
    for (size_t i = 0; i < sizeof(RESULTS) / sizeof(RESULTS[0]); i++) {
        if (!first_is(word, RESULTS[i].word)) {
            continue;
        }
        script->op = (struct idem_op){.kind = kind, .result = RESULTS[i].result};
        script->op.out.attempt = (uint32_t)strtoul(after(word), NULL, 10);
        script->op.out.fence = strtoull(after(after(word)), NULL, 10);
        script->op.out.now_us = NOW_US;
        script->op.out.since_us = NOW_US - ago_us(word);
        script->op.out.found.record.state = RESULTS[i].state;
        script->op.out.found.record.answer.status = 201;
        if (first_is(word, "tombstone")) {
            script->op.out.found.record.answer.tombstone = IDEM_REASON_TOO_LARGE;
        }
        if (kind == IDEM_OP_CLAIM) {
            script->op.result = result_of_claim(RESULTS[i].result, RESULTS[i].state);
        }
        *event = (struct idem_event){.kind = IDEM_EVENT_STORE_RESULT, .op = &script->op};
        return true;
    }
    return false;
}

static enum idem_evidence evidence_of(const char *word)
{
    if (first_is(word, "unsent")) {
        return IDEM_EVIDENCE_NOT_SENT;
    }
    if (first_is(word, "invalid")) {
        return IDEM_EVIDENCE_INVALID;
    }
    return first_is(word, "truncated") ? IDEM_EVIDENCE_TRUNCATED : IDEM_EVIDENCE_UNANSWERED;
}

static void head_event(const char *rest, struct idem_event *event)
{
    const char *length = strstr(rest, "length=");
    const char *own = strstr(rest, "own=");
    char *end;

    event->kind = IDEM_EVENT_ANSWER_HEAD;
    event->status = (unsigned)strtoul(rest, &end, 10);
    event->length = length ? strtoll(length + strlen("length="), NULL, 10) : -1;
    event->own_status = own ? (unsigned)strtoul(own + strlen("own="), NULL, 10) : 0;
    if (*end == ' ' && !length && !own) {
        event->declared = idem_outcome_parse(idem_bytes_from_text(end + 1));
        assert_int_not_equal(event->declared, IDEM_OUTCOME_UNSET);
    }
}

static bool plain_event(const char *words, struct idem_event *event)
{
    static const struct {
        const char *word;
        enum idem_event_kind kind;
    } PLAIN[] = {
        {"request", IDEM_EVENT_REQUEST},    {"end", IDEM_EVENT_ANSWER_END},
        {"tick", IDEM_EVENT_TICK},          {"wake", IDEM_EVENT_WAKE},
        {"client", IDEM_EVENT_CLIENT_GONE}, {"aborted", IDEM_EVENT_ABORTED},
        {"rerouted", IDEM_EVENT_REROUTED},  {"upstream", IDEM_EVENT_UPSTREAM_FAILED},
        {"body", IDEM_EVENT_ANSWER_BODY},
    };

    for (size_t i = 0; i < sizeof(PLAIN) / sizeof(PLAIN[0]); i++) {
        if (first_is(words, PLAIN[i].word)) {
            event->kind = PLAIN[i].kind;
            event->evidence = evidence_of(after(words));
            event->size = strtoul(after(words), NULL, 10);
            event->status = (unsigned)strtoul(after(after(words)), NULL, 10);
            event->elapsed_us = strtoll(after(words), NULL, 10) * 1000;
            return true;
        }
    }
    return false;
}

/* ---- effects to a trace */

static void print_store(const struct idem_exchange *exchange, const struct idem_effect *effect,
                        char *text, size_t size)
{
    struct idem_op op;

    idem_exchange_op(exchange, effect, &op);
    assert_int_equal(op.kind, effect->op_kind);
    if (op.kind == IDEM_OP_CLAIM && op.in.claim.take == IDEM_TAKE_ANY) {
        snprintf(text, size, "claim taking any");
    } else if (op.kind == IDEM_OP_CLAIM && op.in.claim.take == IDEM_TAKE_FENCE) {
        snprintf(text, size, "claim taking %llu", (unsigned long long)op.in.claim.take_fence);
    } else {
        snprintf(text, size, "%s%s", idem_op_kind_text(effect->op_kind),
                 effect->background ? " in background" : "");
    }
}

static void print_effect(const struct idem_exchange *exchange, const struct idem_effect *effect,
                         char *text, size_t size)
{
    switch (effect->kind) {
    case IDEM_EFFECT_STORE:
        print_store(exchange, effect, text, size);
        break;
    case IDEM_EFFECT_FORWARD:
        snprintf(text, size, "forward %u %llu", effect->attempt, (unsigned long long)effect->fence);
        break;
    case IDEM_EFFECT_PROBE:
        snprintf(text, size, "probe %u %llu", effect->attempt, (unsigned long long)effect->fence);
        break;
    case IDEM_EFFECT_REFUSE:
        snprintf(text, size, "refuse %s %u",
                 idem_problem_type(effect->problem.kind) + strlen("urn:idem:problem:"),
                 effect->problem.status);
        break;
    case IDEM_EFFECT_TIMER:
        snprintf(text, size, "timer %lld ms", (long long)effect->delay_us / 1000);
        break;
    case IDEM_EFFECT_BYPASS:
        snprintf(text, size, "bypass");
        break;
    case IDEM_EFFECT_REPLAY:
        snprintf(text, size, "replay");
        break;
    case IDEM_EFFECT_DELIVER:
        snprintf(text, size, "deliver%s", effect->unrecorded ? " unrecorded" : "");
        break;
    }
}

const char *script_feed(struct script *script, const char *words)
{
    struct idem_event event = {0};
    bool known = plain_event(words, &event);
    size_t used = 0;

    if (first_is(words, "head")) {
        head_event(after(words), &event);
        known = true;
    }
    for (size_t i = 0; !known && i < sizeof(OPS) / sizeof(OPS[0]); i++) {
        if (first_is(words, OPS[i].word)) {
            known = store_event(script, OPS[i].kind, after(words), &event);
        }
    }
    if (!known) {
        fail_msg("no such event: %s", words);
    }

    idem_exchange_step(&script->exchange, &event, &script->effects);

    snprintf(script->trace, sizeof(script->trace), "-");
    for (size_t i = 0; i < script->effects.count; i++) {
        used += (size_t)snprintf(script->trace + used, sizeof(script->trace) - used, "%s",
                                 i ? ", " : "");
        print_effect(&script->exchange, &script->effects.items[i], script->trace + used,
                     sizeof(script->trace) - used);
        used = strlen(script->trace);
    }
    return script->trace;
}
