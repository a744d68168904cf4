/*
 * Checkers: what must hold in every run (design 2 and 11), watched from outside. They see ops as
 * they are applied, effects as they are executed, and answers as they are released; of each id they
 * keep a track of their own, which owes nothing to the core.
 */
#ifndef IDEM_TEST_SIM_CHECKER_H
#define IDEM_TEST_SIM_CHECKER_H

#include "sim/world.h"

/* name in the report, what it holds */
#define CHECKER_LIST(X)                                                                         \
    X(ONCE, "once", "at most one execution with effect per id until its key expires")           \
    X(START, "start", "no execution starts while an earlier one is unknown or final (hold)")    \
    X(SAME, "same", "every replay is the first recorded answer; none contradicts another")      \
    X(STUCK, "stuck", "after a lease without trouble every key gets a definite verdict")        \
    X(LOST, "lost", "a verdict that was taken stays; one that was not is repeated")             \
    X(LEAK, "leak", "no answer for another scope, key, payload or caller")                      \
    X(DURABLE, "durable", "nothing goes upstream without a durable claim with that fence")      \
    X(RECORDED, "recorded", "an answer leaves after it was recorded, or is marked")             \
    X(TRUTH, "truth", "what is recorded is true: failed is without effect, completed is final") \
    X(FENCE, "fence", "fences of an id grow with each claim")                                   \
    X(OWNER, "owner", "only who holds a record changes it, and nobody holds it twice")          \
    X(TAKEOVER, "takeover", "what is unknown is taken over only as the policy says")            \
    X(WAITER, "waiter", "an answer comes from one's own claim; one waiter executes")            \
    X(HANG, "hang", "every request is answered, once")                                          \
    X(WORLD, "world", "the simulation itself is sound")

enum checker {
    CHECKER_NONE,
#define CHECKER_NAME(name, text, what) CHECKER_##name,
    CHECKER_LIST(CHECKER_NAME)
#undef CHECKER_NAME
        CHECKER_COUNT
};

const char *checker_name(int checker);
const char *checker_what(int checker);

/* The first finding ends the run. */
void check_broken(struct world *world, enum checker checker, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* checker_store.c: an op has been applied, for this request or NOBODY; it has its result. */
void check_applied(struct world *world, const struct idem_op *op, uint16_t asker);

/* The driver has heard an op's result, or that there is none. */
void check_heard(struct world *world, uint16_t request, const struct idem_event *event);

/* It submits a verdict; `held` is the execution whose answer it has, or NOBODY. */
void check_submitted(struct world *world, uint16_t request, enum idem_op_kind verdict,
                     uint16_t held);

/* An effect is about to be executed for this request. */
void check_effect(struct world *world, uint16_t request, const struct idem_effect *effect);

/* A byte of the request has left for the upstream; it has taken effect there. */
void check_sent(struct world *world, uint16_t execution);
void check_happened(struct world *world, uint16_t execution);

/* An answer is released: from the record, or the one that was held. */
void check_replayed(struct world *world, uint16_t request, const struct answer *answer);
void check_delivered(struct world *world, uint16_t request, uint16_t execution, bool unrecorded);

/* Ends of phases, and the verdict on a request of the last one: true when it is definite. */
void check_quiet(struct world *world);
bool check_verdict(struct world *world, uint16_t request, bool last_try);
void check_end(struct world *world);

/* What the evidence, or a whole answer, says of the operation; not the core's own opinion. */
enum idem_outcome check_outcome(unsigned status, enum idem_outcome declared);

#endif
