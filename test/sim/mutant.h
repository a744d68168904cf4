/*
 * Mutants: variants of the protocol that are broken on purpose, each in one place, around the real
 * code. Every one must be caught by a checker, and every checker must catch one: this is how the
 * checkers are known to see.
 *
 * Each hook does nothing unless its mutant is chosen.
 */
#ifndef IDEM_TEST_SIM_MUTANT_H
#define IDEM_TEST_SIM_MUTANT_H

#include "sim/world.h"

/* By name; 0 is none, and -1 means that there is no such. */
int mutant_find(const char *name);
size_t mutant_count(void); /* numbers 1 to this */
const char *mutant_name(unsigned mutant);
const char *mutant_text(unsigned mutant);
int mutant_checker(unsigned mutant); /* that must catch it */

/* The store: in place of idem_store_apply(). */
int mutant_apply(struct world *world, struct idem_op *const *ops, size_t count);
int mutant_peek(struct world *world, struct idem_op *get);

/* The driver: before an event goes into the exchange, and before its effects are executed. */
void mutant_event(struct world *world, const struct session *session, const struct event *item,
                  struct idem_event *event, struct idem_op *op);
void mutant_effects(struct world *world, const struct session *session,
                    enum idem_exchange_state before, const struct idem_event *event,
                    struct idem_effects *effects);
void mutant_answer(struct world *world, struct answer *answer);
const struct idem_id *mutant_id(const struct world *world, const struct request *request);

/* The executor and the upstream. */
bool mutant_forgets_verdicts(const struct world *world);
bool mutant_breaks_promise(const struct world *world);

#endif
