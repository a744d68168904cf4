/*
 * Sender: the executor of one gateway in the world's time. It does what src/exec/worker.c does,
 * with the real table of kept verdicts (src/exec/settle.c): takes all that waits as one batch,
 * repeats kept verdicts first, keeps those that fail, lets nothing of an owner pass them.
 */
#ifndef IDEM_TEST_SIM_SENDER_H
#define IDEM_TEST_SIM_SENDER_H

#include "sim/world.h"

void sender_begin(struct sender *sender);
void sender_drop(struct sender *sender); /* the process is gone, and all of this with it */

/* Hands an op over. `session` NULL: nobody waits. */
void sender_submit(struct world *world, struct gateway *gateway, const struct session *session,
                   const struct idem_op *op);

/* An op that has its result already, and is told like any other. Takes what it owns. */
void sender_finished(struct gateway *gateway, const struct session *session, struct idem_op *op);

void sender_reply(struct world *world, struct gateway *gateway, const struct event *item);
void sender_timeout(struct world *world, struct gateway *gateway, const struct event *item);
void sender_wake(struct world *world, struct gateway *gateway);

/* Takes a job whose end has been told back. */
void sender_release(struct sender *sender, uint16_t job);

/* True when nothing waits, is kept, or is under way. */
bool sender_is_idle(const struct sender *sender);

#endif
