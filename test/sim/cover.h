/*
 * Cover: which situations a run has met. A simulator that never meets the cases shows nothing, so
 * a large number of runs must have met all of those that are marked.
 */
#ifndef IDEM_TEST_SIM_COVER_H
#define IDEM_TEST_SIM_COVER_H

#include <idem/exchange.h>

/* name, what it is called in the report */
#define COVER_LIST(X)                                                              \
    X(POLICY_HOLD, "policy: hold")                                                 \
    X(POLICY_RETRY, "policy: retry")                                               \
    X(POLICY_PROBE, "policy: probe")                                               \
    X(POLICY_SETTLE, "policy: probe with settle")                                  \
    X(POLICY_TRUST, "policy: probe with trust")                                    \
    X(POLICY_WAIT, "policy: wait")                                                 \
    X(POLICY_OPEN, "policy: fail open")                                            \
    X(STORE_LOST, "store: batch never applied")                                    \
    X(STORE_CUT, "store: applied, the reply lost")                                 \
    X(STORE_LATE, "store: applied when the sender had given up")                   \
    X(STORE_DUPLICATE, "store: batch applied twice")                               \
    X(STORE_REPEATED, "store: batch repeated within one call")                     \
    X(STORE_PARTIAL, "store: half of a batch applied")                             \
    X(STORE_DOWN, "store: down")                                                   \
    X(STORE_FULL, "store: full")                                                   \
    X(STORE_PEEK, "store: read past the executor")                                 \
    X(STORE_BATCH, "store: batch of several ops")                                  \
    X(CLOCK_BACK, "clock: stepped back")                                           \
    X(CLOCK_FORWARD, "clock: stepped forward")                                     \
    X(CLOCK_FAR, "clock: stepped past the life of records")                        \
    X(GATEWAY_PAUSED, "gateway: paused")                                           \
    X(GATEWAY_PAUSED_EFFECTS, "gateway: paused between two effects")               \
    X(GATEWAY_CRASHED, "gateway: crashed")                                         \
    X(GATEWAY_CRASHED_EFFECTS, "gateway: crashed between two effects")             \
    X(GATEWAY_KEPT, "gateway: verdict kept and repeated")                          \
    X(GATEWAY_ABORTED, "gateway: exchange destroyed")                              \
    X(CLIENT_GAVE_UP, "client: gave up waiting")                                   \
    X(CLIENT_GONE, "client: hung up")                                              \
    X(CLIENT_OTHER_PAYLOAD, "client: key reused for another payload")              \
    X(CLIENT_OTHER_CALLER, "client: key used by another caller")                   \
    X(UPSTREAM_REFUSED, "upstream: refused the connection")                        \
    X(UPSTREAM_REROUTED, "upstream: another handler took over")                    \
    X(UPSTREAM_REPLACED, "upstream: answer replaced by another handler")           \
    X(UPSTREAM_DIED_BEFORE, "upstream: died before the effect")                    \
    X(UPSTREAM_DIED_AFTER, "upstream: died after the effect")                      \
    X(UPSTREAM_TIMED_OUT, "upstream: too late with its answer")                    \
    X(UPSTREAM_LATE_EFFECT, "upstream: effect after the gateway gave up")          \
    X(UPSTREAM_CUT, "upstream: answer cut short")                                  \
    X(UPSTREAM_CLOSED, "upstream: answer ends by closing")                         \
    X(UPSTREAM_INVALID, "upstream: no HTTP")                                       \
    X(UPSTREAM_DECLARED, "upstream: declared the outcome")                         \
    X(UPSTREAM_LARGE, "upstream: answer over the maximum")                         \
    X(UPSTREAM_DEDUP, "upstream: executed this key before")                        \
    X(UPSTREAM_STALE, "upstream: fence below its promise")                         \
    X(PROBE_FOUND, "probe: upstream has executed it")                              \
    X(PROBE_ABSENT, "probe: upstream promises, or says, it has not")               \
    X(PROBE_BUSY, "probe: upstream is still at it")                                \
    X(PROBE_FAILED, "probe: no answer that tells")                                 \
    X(PROBE_TOO_LATE, "probe: not executed, and the claim was lost meanwhile")     \
    X(PERSON_COMPLETED, "person: settled as executed")                             \
    X(PERSON_FAILED, "person: settled as not executed")                            \
    X(PERSON_CHANGED, "person: record changed meanwhile")                          \
    X(PERSON_FORGOT, "person: forgot a record")                                    \
    X(KEY_EXPIRED, "key: began anew after it expired")                             \
    X(KEY_TAKEN_OVER, "key: unknown taken over")                                   \
    X(KEY_FAILED_AGAIN, "key: executed again after a failure")                     \
    X(CLAIM_LATE, "claim: arrived after its own fail")                             \
    X(CLAIM_ORPHAN, "claim: acquired so late that nobody wants it, and it lapses") \
    X(VERDICT_LATE, "verdict: taken from the owner of a lapsed lease")             \
    X(DELIVER_RECORDED, "deliver: recorded")                                       \
    X(DELIVER_UNRECORDED, "deliver: told as unrecorded")                           \
    X(DELIVER_OVERFLOW, "deliver: more than is kept")                              \
    X(DELIVER_PROBED, "deliver: what a probe found")                               \
    X(WAITER_REPLAYED, "waiter: answered by its own claim")                        \
    X(WAITER_EXECUTED, "waiter: executed after a failed run")                      \
    X(WAITER_GAVE_WAY, "waiter: gave way to another")                              \
    X(WAITER_WOKEN, "waiter: woken")                                               \
    X(FINAL_ANSWER, "final: answer")                                               \
    X(FINAL_UNKNOWN, "final: outcome unknown")                                     \
    X(FINAL_REFUSED, "final: key reused or other caller")                          \
    X(FINAL_NOT_KEPT, "final: answer not kept")

enum cover_situation {
#define COVER_NAME(name, text) COVER_##name,
    COVER_LIST(COVER_NAME)
#undef COVER_NAME
        COVER_COUNT
};

/* What one run has met. */
struct cover {
    bool situations[COVER_COUNT];
    bool results[IDEM_OP_COUNT][IDEM_RESULT_COUNT];
    bool effects[IDEM_EFFECT_PROBE + 1];
    bool events[IDEM_EXCHANGE_STATE_COUNT][IDEM_EVENT_KIND_COUNT];
    bool problems[IDEM_PROBLEM_COUNT];
};

/* Adds a run to the totals. */
void cover_add(const struct cover *cover);

/* Prints in how many runs each was met. */
void cover_report(uint64_t runs);

/* Prints what was never met though it should have been; how many that is. */
unsigned cover_missing(void);

#endif
