/*
 * Exchange: one guarded request from arrival to answer. The heart of the core.
 *
 * A pure state machine: an event goes in, effects come out, nothing else happens. It does no I/O
 * and knows no clock, no randomness and no bytes of any answer: the driver (nginx module, blocking
 * driver, simulator) holds those and executes the effects in order.
 *
 *   1. REQUEST            → store claim
 *   2. claim acquired     → forward; renew at a third of the lease while the upstream works
 *   3. answer whole       → its outcome → store complete, fail or abandon; the answer is held
 *   4. verdict recorded   → deliver
 *   5. anything else      → the one refusal that is true, never an execution
 *
 * Policy `wait`: a claim that finds another in progress is made again after a pause, or as soon as
 * the driver says WAKE, until the time allowed is over. Who waits never takes an answer from
 * whoever woke it: the claim itself brings it. When another than the one first seen runs, it gives
 * up: after a failed first run one waiter executes, and the rest are told that it is in progress.
 * One whose client is gone gives up as well.
 *
 * Policies `retry` and `probe`: the first claim takes nothing over. One that finds UNKNOWN is made
 * again as a take-over, once. From then on it is known that an earlier attempt may have taken
 * effect, and while that is so the claim is never given back by `fail`, and nothing goes unguarded.
 *
 * Policy `retry` takes any, and forwards. What was not sent, or failed, leaves the record unknown
 * as it was, in the upstream's own word too: the earlier attempt may still be running.
 *
 * Policy `probe` names the fence that was seen, so that there is one prober a key over all
 * gateways. Under that claim the upstream is asked (PROBE), and what it answers decides:
 *   404, whole, not declared otherwise         → not executed: forwarded, once the store has
 *                                                confirmed (renew) that the claim still stands
 *   2xx, whole, declared final (or `trust`)    → this is the answer: recorded and delivered
 *   anything else                              → abandoned again, still unknown
 * What a probe found is delivered only once it is recorded under the claim; otherwise the outcome
 * stays unknown to this client, because the key may be another caller's by then.
 * With `settle` nothing is taken over, and nothing probed, until so long after the abandonment.
 * `settle` must be longer than a request can be under way to the upstream, and than a gateway can
 * be held up (stopped, swapped out) between two steps.
 *
 * Whatever happens, the last event is IDEM_EVENT_ABORTED (or the exchange is DONE), and no path
 * leaves a claim without a verdict. At most one FORWARD is emitted after a byte reached an
 * upstream.
 */
#ifndef IDEM_EXCHANGE_H
#define IDEM_EXCHANGE_H

#include <idem/op.h>
#include <idem/policy.h>
#include <idem/problem.h>

enum idem_exchange_state {
    IDEM_EXCHANGE_IDLE,       /* nothing happened yet */
    IDEM_EXCHANGE_CLAIMING,   /* claim submitted */
    IDEM_EXCHANGE_WAITING,    /* another runs; the claim is made again */
    IDEM_EXCHANGE_PROBING,    /* claim held after a take-over; the upstream is being asked */
    IDEM_EXCHANGE_CONFIRMING, /* it said "not executed": asking the store if the claim stands */
    IDEM_EXCHANGE_EXECUTING,  /* claim held; the request may go, or has gone, upstream */
    IDEM_EXCHANGE_RECORDING,  /* verdict submitted, the answer held */
    IDEM_EXCHANGE_LOOKING,    /* verdict was lost: reading what the record says now */
    IDEM_EXCHANGE_DONE,       /* the client's fate is decided */
    IDEM_EXCHANGE_STATE_COUNT
};

const char *idem_exchange_state_text(enum idem_exchange_state state);

enum idem_event_kind {
    IDEM_EVENT_REQUEST,         /* the request is whole and hashed */
    IDEM_EVENT_STORE_RESULT,    /* an op of this exchange has a result */
    IDEM_EVENT_STORE_FAILED,    /* it has none: refused, failed or timed out */
    IDEM_EVENT_ANSWER_HEAD,     /* the upstream's own final status line and headers */
    IDEM_EVENT_ANSWER_BODY,     /* some of its body */
    IDEM_EVENT_ANSWER_END,      /* its body is whole */
    IDEM_EVENT_UPSTREAM_FAILED, /* no whole answer will come */
    IDEM_EVENT_REROUTED,        /* another handler that executes wants the request */
    IDEM_EVENT_CLIENT_GONE,     /* nobody waits any more; a guarded request goes on, a WAITING one
                                   ends without an effect */
    IDEM_EVENT_TICK,            /* the timer asked for has run out */
    IDEM_EVENT_WAKE,            /* WAITING: the record may have changed; never carries an answer */
    IDEM_EVENT_ABORTED,         /* the driver destroys the exchange; always allowed */
    IDEM_EVENT_KIND_COUNT
};

/* What the driver knows about the upstream side: the evidence that decides the outcome (design 6).
 */
enum idem_evidence {
    IDEM_EVIDENCE_NOT_SENT,   /* no byte of the request reached any upstream */
    IDEM_EVIDENCE_UNANSWERED, /* a byte may have, and no answer came */
    IDEM_EVIDENCE_TRUNCATED,  /* an answer began and was cut short */
    IDEM_EVIDENCE_INVALID,    /* bytes came back that are no final answer of HTTP */
};

struct idem_event {
    enum idem_event_kind kind;
    const struct idem_op *op;    /* STORE_RESULT: the op; its record stays valid for the call */
    enum idem_op_kind op_kind;   /* STORE_FAILED: which op */
    bool not_applied;            /* STORE_FAILED: the op is known never to have reached the store */
    unsigned status;             /* ANSWER_HEAD; REROUTED: of the answer that was thrown away, or 0;
                                    UPSTREAM_FAILED: the 5xx to tell, 0 for the default */
    unsigned own_status;         /* ANSWER_HEAD: the upstream's own status, which decides, where the
                                    client is shown another; or 0 */
    enum idem_outcome declared;  /* ANSWER_HEAD, REROUTED: Idempotency-Outcome, or UNSET */
    int64_t length;              /* ANSWER_HEAD: bytes of body announced, or -1 */
    size_t size;                 /* ANSWER_BODY: bytes of this piece */
    enum idem_evidence evidence; /* UPSTREAM_FAILED, REROUTED, ABORTED */
    int64_t elapsed_us;          /* TICK, WAKE: since REQUEST, by the driver's steady clock */
};

enum idem_effect_kind {
    IDEM_EFFECT_STORE,   /* submit the op that idem_exchange_op() fills; unless it is a background
                            one, tell its STORE_RESULT or STORE_FAILED, within a bounded time */
    IDEM_EFFECT_FORWARD, /* let the request go upstream, with attempt and fence */
    IDEM_EFFECT_BYPASS,  /* let it go unguarded and say so (fail open) */
    IDEM_EFFECT_REPLAY,  /* answer from the record of the event's op */
    IDEM_EFFECT_REFUSE,  /* answer with the problem */
    IDEM_EFFECT_DELIVER, /* release the held answer; after an overflow, let the rest flow through */
    IDEM_EFFECT_TIMER,   /* (re)arm the one timer; TICK when it runs out */
    IDEM_EFFECT_PROBE,   /* ask the upstream about the key, with attempt and fence; what comes back
                            is told by the ANSWER events, or UPSTREAM_FAILED, and nothing more of it
                            after ANSWER_END */
};

/* What the store must have confirmed before the effect may be executed: the safety argument. */
enum idem_durable {
    IDEM_DURABLE_NOTHING,
    IDEM_DURABLE_CLAIM,   /* this exchange's claim */
    IDEM_DURABLE_VERDICT, /* its complete, fail or abandon, or the record that it answers from */
};

struct idem_effect {
    enum idem_effect_kind kind;
    enum idem_durable requires;
    enum idem_op_kind op_kind;   /* STORE */
    bool background;             /* STORE: nobody waits; repeat until it has a result */
    struct idem_problem problem; /* REFUSE */
    bool unrecorded;             /* DELIVER: the record does not hold this answer: say so */
    uint32_t attempt;            /* FORWARD, PROBE */
    uint64_t fence;              /* FORWARD, PROBE */
    int64_t delay_us;            /* TIMER */
};

#define IDEM_EFFECTS_MAX 3

struct idem_effects {
    size_t count;
    struct idem_effect items[IDEM_EFFECTS_MAX];
};

/*
 * Embedded by the driver: _init, any number of _step, no _deinit (it owns nothing). Fields are the
 * exchange's own: drivers may read them, and never write. `policy` and the views in `claim`
 * are borrowed for the life of the exchange.
 */
struct idem_exchange {
    enum idem_exchange_state state;
    const struct idem_policy *policy;
    struct idem_id id;
    struct idem_claim claim;
    uint64_t fence;
    uint32_t attempt;
    uint64_t body_size; /* of the answer so far */
    unsigned answer_status;
    enum idem_outcome outcome; /* of the answer, once its head is known */
    enum idem_op_kind verdict; /* the one submitted, once RECORDING */
    enum idem_reason reason;
    bool overflow;               /* the answer is over the maximum: only a tombstone is kept */
    bool owned;                  /* the store has not said `lost` */
    bool client_gone;            /* nobody waits for an answer */
    bool unknown_before;         /* an earlier attempt may have taken effect: no `fail` */
    bool renewing;               /* a renew is under way */
    bool renew_lost;             /* one was `lost`: another may have the claim */
    bool confirm_after;          /* CONFIRMING: it is an older one, whose result does not count */
    uint64_t wait_fence;         /* of the claim that is or was waited for, or 0 */
    int64_t waited_us;           /* since REQUEST, as far as was told */
    int64_t pause_us;            /* the last one between two claims, or 0 */
    struct idem_problem failure; /* what to refuse with once the verdict is recorded, if any */
};

/* `claim` carries everything but lease, ttls and take, which come from the policy. */
void idem_exchange_init(struct idem_exchange *exchange, const struct idem_policy *policy,
                        const struct idem_id *id, const struct idem_claim *claim);

/*
 * One step. Every event is allowed in every state; one that comes too late has no effects. Ops may
 * be reported in any order. *ret_effects is written whole.
 */
void idem_exchange_step(struct idem_exchange *exchange, const struct idem_event *event,
                        struct idem_effects *ret_effects);

/*
 * Fills the op of a STORE effect from the exchange. For a complete the driver then sets
 * in.verdict.answer headers, body and flags (unless it is a tombstone already); views of the claim
 * are borrowed from the exchange.
 */
void idem_exchange_op(const struct idem_exchange *exchange, const struct idem_effect *effect,
                      struct idem_op *ret_op);

#endif
