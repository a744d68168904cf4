/*
 * Mutants: variants of the protocol that are broken on purpose, each in one place, around the real
 * code. Every one must be caught by a checker, and every checker must catch one: that is how the
 * checkers are known to see.
 *
 * The hooks below do nothing unless their mutant is chosen.
 */
#ifndef IDEM_TEST_SIM_MUTANT_H
#define IDEM_TEST_SIM_MUTANT_H

#include "sim/checker.h"
#include "sim/world.h"

/* name, option, who must catch it, what it does wrong */
#define MUTANT_LIST(X)                                                                            \
    X(TAKE_ANY, "take-any", TAKEOVER, "takes an unknown over without the fence that was seen")    \
    X(LAPSED_AGAIN, "lapsed-again", TAKEOVER,                                                     \
      "executes again once a lease has lapsed, under hold")                                       \
    X(UNKNOWN_ALWAYS, "unknown-always", STUCK, "abandons a claim under which nothing was sent")   \
    X(NEVER_TAKES, "never-takes", STUCK, "never takes over what the policy says it should")       \
    X(LATE_OWNER, "late-owner", OWNER, "lets a late owner overwrite after a take-over")           \
    X(RENEW_LAPSED, "renew-lapsed", OWNER, "renews a lease that has lapsed or was taken over")    \
    X(NEVER_RENEWS, "never-renews", LOST, "does not renew its lease while the upstream works")    \
    X(NO_PHANTOM, "no-phantom", OWNER, "a fail leaves nothing for its own late claim to find")    \
    X(TTL_ON_LIVE, "ttl-on-live", TAKEOVER, "lets a running or unknown record expire by its ttl") \
    X(NO_PRINCIPAL, "no-principal", LEAK, "does not compare the principal")                       \
    X(NO_FINGERPRINT, "no-fingerprint", LEAK, "does not compare the fingerprint")                 \
    X(HEARSAY, "hearsay", LEAK, "delivers what a probe found though it is not recorded")          \
    X(NO_SCOPE, "no-scope", LEAK, "makes the id without the scope")                               \
    X(EXPIRED_BLOCKS, "expired-blocks", STUCK, "an expired row blocks its key until it is swept") \
    X(FORGETS, "forgets", LOST, "reports an answer as recorded that it does not keep")            \
    X(LATER_FAILS, "later-fails", TRUTH, "a later attempt that fails says so of the earlier one") \
    X(FINAL_ALWAYS, "final-always", TRUTH, "records a failed answer as final")                    \
    X(SAME_FENCE, "same-fence", FENCE, "gives a take-over the fence of the attempt before")       \
    X(OTHER_BYTES, "other-bytes", SAME, "loses a repeated header line of a replay")               \
    X(NO_LOOK, "no-look", SAME, "a lost verdict is not followed by a look at the record")         \
    X(EARLY_FORWARD, "early-forward", DURABLE, "forwards before the claim's result is known")     \
    X(BLIND_FORWARD, "blind-forward", DURABLE, "forwards when the claim's result was lost")       \
    X(EARLY_RELEASE, "early-release", RECORDED, "releases an answer before it is recorded")       \
    X(OWN_ANSWER, "own-answer", RECORDED, "answers with its own answer when the verdict is lost") \
    X(UNANSWERED_FAILS, "unanswered-fails", START, "takes no answer for no effect")               \
    X(GONE_FAILS, "gone-fails", TRUTH, "gives the claim back when the client hangs up")           \
    X(PROBE_SKIPPED, "probe-skipped", ONCE, "executes after a take-over without asking")          \
    X(PROBE_FAILS, "probe-fails", TRUTH, "a probe that comes to nothing fails, not abandons")     \
    X(NO_PROMISE, "no-promise", ONCE, "the upstream answers 404 and does not keep the promise")   \
    X(NO_SETTLE, "no-settle", ONCE, "a 404 counts before it has settled")                         \
    X(TRUSTS_ALL, "trusts-all", SAME, "takes any 2xx of a probe for the answer")                  \
    X(WAKER_ANSWERS, "waker-answers", WAITER, "answers a waiter with what its waker got")         \
    X(HERD, "herd", WAITER, "a waiter does not see that another runs by now")                     \
    X(NOT_UNDONE, "not-undone", LOST, "does not give back a claim whose result was lost")         \
    X(NOT_REPEATED, "not-repeated", LOST, "does not repeat a verdict that failed")                \
    X(DEAF, "deaf", HANG, "does not hear that an op has failed")

enum mutant {
    MUTANT_NONE,
#define MUTANT_NAME(name, text, checker, what) MUTANT_##name,
    MUTANT_LIST(MUTANT_NAME)
#undef MUTANT_NAME
        MUTANT_COUNT
};

/* By the name of its option; MUTANT_COUNT when there is none such. */
unsigned mutant_find(const char *name);
const char *mutant_name(unsigned mutant);
const char *mutant_what(unsigned mutant);
enum checker mutant_checker(unsigned mutant); /* that must catch it */

/* mutant_store.c: in place of idem_store_apply() and idem_store_peek(). */
int mutant_apply(struct world *world, struct idem_op *const *ops, size_t count);
int mutant_peek(struct world *world, struct idem_op *get);

/* The driver: before an event goes into the exchange, and before its effects are executed. */
void mutant_event(struct world *world, const struct session *session, const struct event *item,
                  struct idem_event *event, struct idem_op *op);
void mutant_effects(struct world *world, const struct session *session,
                    enum idem_exchange_state before, const struct idem_event *event,
                    struct idem_effects *effects);
void mutant_answer(const struct world *world, struct answer *answer);
const struct idem_id *mutant_id(const struct world *world, const struct request *request);

/* The executor and the upstream. */
bool mutant_forgets_verdicts(const struct world *world);
bool mutant_breaks_promise(const struct world *world);

#endif
