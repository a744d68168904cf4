/*
 * Asking the upstream what became of an unknown, under a claim that took it over (design 6).
 *
 *   1. PROBE goes out; the lease is renewed while the upstream thinks.
 *   2. The head of what it answers says what the answer can be worth; the end, that it is whole.
 *   3. "Not executed": the store is asked once more whether the claim still stands, and only then
 *      is the request forwarded. Whoever was held up for longer than the lease must not send it:
 *      another may have asked, and sent it, meanwhile.
 *   4. "This is the answer": it is recorded and delivered like one.
 *   5. Anything else: abandoned again. Never `fail`: an earlier attempt may have taken effect.
 */
#include "core/exchange_parts.h"

void idem_exchange_probe(struct idem_exchange *x, struct idem_effects *effects)
{
    struct idem_effect *effect;

    idem_exchange_move(x, IDEM_EXCHANGE_PROBING);
    idem_effects_timer(effects, x->claim.lease_us / 3);
    effect = idem_effects_add(effects, IDEM_EFFECT_PROBE, IDEM_DURABLE_CLAIM);
    effect->attempt = x->attempt;
    effect->fence = x->fence;
}

/* Nobody is any wiser: the client is told so once the record says it again. */
static void still_unknown(struct idem_exchange *x, struct idem_effects *effects,
                          enum idem_reason reason)
{
    x->failure = idem_problem_make(IDEM_PROBLEM_OUTCOME_UNKNOWN);
    idem_exchange_record(x, effects, IDEM_OUTCOME_UNKNOWN, reason);
}

/* What the answer to a probe is worth once it is whole. */
static enum idem_outcome outcome_of(const struct idem_exchange *x, unsigned status,
                                    enum idem_outcome declared)
{
    bool undeclared = declared == IDEM_OUTCOME_UNSET;

    if (status == 404 && (undeclared || declared == IDEM_OUTCOME_FAILED)) {
        return IDEM_OUTCOME_FAILED;
    }
    if (status / 100 == 2 && (declared == IDEM_OUTCOME_FINAL || (undeclared && x->policy->trust))) {
        return IDEM_OUTCOME_FINAL;
    }
    return IDEM_OUTCOME_UNKNOWN;
}

/* "Not executed" in more bytes than an answer may have is not waited for. */
static void too_large(struct idem_exchange *x, struct idem_effects *effects)
{
    if (x->outcome == IDEM_OUTCOME_FINAL) {
        idem_exchange_overflow(x, effects);
    } else {
        still_unknown(x, effects, IDEM_REASON_STATUS);
    }
}

void idem_exchange_on_probe_head(struct idem_exchange *x, const struct idem_event *event,
                                 struct idem_effects *effects)
{
    unsigned decisive = event->own_status ? event->own_status : event->status;

    x->answer_status = event->status;
    x->outcome = outcome_of(x, decisive, event->declared);
    x->body_size = 0;
    if (x->outcome == IDEM_OUTCOME_UNKNOWN) {
        still_unknown(x, effects,
                      event->declared == IDEM_OUTCOME_UNSET ? IDEM_REASON_STATUS
                                                            : IDEM_REASON_DECLARED);
    } else if (event->length > 0 && (uint64_t)event->length > x->policy->body_size_max) {
        too_large(x, effects);
    }
}

void idem_exchange_on_probe_body(struct idem_exchange *x, const struct idem_event *event,
                                 struct idem_effects *effects)
{
    if (x->outcome == IDEM_OUTCOME_UNSET) {
        return;
    }
    x->body_size += event->size;
    if (x->body_size > x->policy->body_size_max) {
        too_large(x, effects);
    }
}

void idem_exchange_on_probe_end(struct idem_exchange *x, const struct idem_event *event,
                                struct idem_effects *effects)
{
    if (x->outcome == IDEM_OUTCOME_FINAL) {
        idem_exchange_record(x, effects, IDEM_OUTCOME_FINAL, IDEM_REASON_NONE);
    } else if (x->outcome == IDEM_OUTCOME_FAILED) {
        idem_exchange_move(x, IDEM_EXCHANGE_CONFIRMING);
        x->confirm_after = x->renewing;
        idem_exchange_renew(x, effects);
    }
}

/* UPSTREAM_FAILED or REROUTED: a probe that reached nobody was not answered either. */
void idem_exchange_on_probe_failed(struct idem_exchange *x, const struct idem_event *event,
                                   struct idem_effects *effects)
{
    enum idem_reason reason = idem_exchange_reason_of(event->evidence);

    still_unknown(x, effects, reason == IDEM_REASON_NONE ? IDEM_REASON_UNANSWERED : reason);
}

void idem_exchange_on_probe_aborted(struct idem_exchange *x, const struct idem_event *event,
                                    struct idem_effects *effects)
{
    x->verdict = IDEM_OP_ABANDON;
    x->reason = IDEM_REASON_ABORTED;
    idem_effects_store(effects, IDEM_OP_ABANDON, true);
    idem_exchange_move(x, IDEM_EXCHANGE_DONE);
}

/*
 * A renewal that was under way when the probe's answer ended tells nothing: its result may have
 * lain about for as long as this process was held up. The one that counts is asked for after it.
 */
static bool is_confirmation(struct idem_exchange *x, struct idem_effects *effects)
{
    bool counts = !x->confirm_after;

    x->renewing = false;
    x->confirm_after = false;
    if (!counts) {
        idem_exchange_renew(x, effects);
    }
    return counts;
}

/* The claim stands: what was unknown is known to have had no effect, and this attempt begins. */
static void confirmed(struct idem_exchange *x, struct idem_effects *effects)
{
    idem_exchange_execute(x, effects);
    x->unknown_before = false;
    x->outcome = IDEM_OUTCOME_UNSET; /* of the probe's answer */
}

void idem_exchange_on_confirm_result(struct idem_exchange *x, const struct idem_event *event,
                                     struct idem_effects *effects)
{
    if (event->op->kind != IDEM_OP_RENEW || !is_confirmation(x, effects)) {
        return;
    }
    if (event->op->result == IDEM_RESULT_OK) {
        confirmed(x, effects);
    } else {
        still_unknown(x, effects, IDEM_REASON_ABORTED);
    }
}

void idem_exchange_on_confirm_failed(struct idem_exchange *x, const struct idem_event *event,
                                     struct idem_effects *effects)
{
    if (event->op_kind == IDEM_OP_RENEW && is_confirmation(x, effects)) {
        still_unknown(x, effects, IDEM_REASON_ABORTED);
    }
}
