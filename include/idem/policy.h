/*
 * Policy: what one guarded route has decided. Plain data, copied freely, no resources.
 */
#ifndef IDEM_POLICY_H
#define IDEM_POLICY_H

#include <idem/bytes.h>
#include <idem/error.h>

/* What an answer says about its operation. */
enum idem_outcome {
    IDEM_OUTCOME_UNSET = 0,
    IDEM_OUTCOME_FINAL = 1,   /* it took effect, or never will: recorded and replayed */
    IDEM_OUTCOME_FAILED = 2,  /* it did not take effect: the next request executes */
    IDEM_OUTCOME_UNKNOWN = 3, /* nobody here can tell: held */
};

const char *idem_outcome_text(enum idem_outcome outcome); /* "final" … */

/* Reads "final", "failed" or "unknown", any case, blanks around it ignored. UNSET for the rest. */
enum idem_outcome idem_outcome_parse(struct idem_bytes text);

enum idem_unknown_policy {
    IDEM_UNKNOWN_HOLD,  /* answered 409 until a person, or the late owner, settles it */
    IDEM_UNKNOWN_RETRY, /* executed again: for upstreams that deduplicate by the forwarded key */
    IDEM_UNKNOWN_PROBE, /* the upstream is asked what became of it, under a claim of one's own */
};

struct idem_policy {
    int64_t ttl_us; /* from completion; IDEM_NEVER_US allowed */
    int64_t lease_us;
    int64_t unknown_ttl_us;
    uint64_t body_size_max; /* bytes of an answer body that are kept */
    enum idem_unknown_policy unknown;
    int64_t settle_us; /* probe: a 404 counts only so long after the abandonment, longer than a
                          request can be under way and a gateway be held up; 0: the upstream
                          promises that lower fences can no longer take effect */
    bool trust;        /* probe: a 2xx is the answer even without Idempotency-Outcome: final */
    int64_t wait_us;   /* how long a request waits for one that runs; 0: it is refused at once */
    bool fail_open;    /* the store is down: pass unguarded */
    uint8_t outcomes[600]; /* enum idem_outcome by status; UNSET below 100 */
};

#define IDEM_TTL_US_DEFAULT         (INT64_C(86400) * 1000000)
#define IDEM_LEASE_US_DEFAULT       (INT64_C(10) * 1000000)
#define IDEM_UNKNOWN_TTL_US_DEFAULT (INT64_C(30) * 86400 * 1000000)
#define IDEM_BODY_SIZE_DEFAULT      (UINT64_C(1) << 20)

#define IDEM_WAIT_US_MAX (INT64_C(3600) * 1000000)

/*
 * The defaults of design 6 and 8: 2xx 3xx 4xx final, but 401 403 407 408 425 429 failed; 5xx
 * failed, but 502 504 unknown; 1xx unknown. What is unknown is held, and nobody waits.
 */
void idem_policy_init(struct idem_policy *policy);

/*
 * Whether the parts are within their limits and fit together. IDEM_ERR_INVALID with a sentence that
 * says what is allowed.
 */
IDEM_MUST_CHECK int idem_policy_check(const struct idem_policy *policy,
                                      struct idem_message *message);

/*
 * Applies one rule of `idempotency_outcome`: a status ("409") or class ("5xx", any case).
 * IDEM_ERR_INVALID when `statuses` is neither, or outside 200 to 599.
 */
IDEM_MUST_CHECK int idem_policy_set_outcome(struct idem_policy *policy, struct idem_bytes statuses,
                                            enum idem_outcome outcome);

/* The outcome of an answer: the upstream's own word if it gave one, else by status. Never UNSET. */
enum idem_outcome idem_policy_outcome(const struct idem_policy *policy, unsigned status,
                                      enum idem_outcome declared);

#endif
