/*
 * Store faults: the real memory store behind a network that loses, delays, doubles and reorders,
 * and a clock that somebody steps. Every op goes through idem_store_apply(), past the mutant, and
 * is then shown to the checkers.
 */
#ifndef IDEM_TEST_SIM_STORE_FAULTS_H
#define IDEM_TEST_SIM_STORE_FAULTS_H

#include "sim/world.h"

/* Sends a batch; the message is freed by whoever takes the reply. Returns its number. */
uint16_t store_message_new(struct world *world);
void store_message_free(struct world *world, uint16_t number);
void store_send(struct world *world, uint16_t number);
void store_arrival(struct world *world, uint16_t number);

/* Applies one op here and now, without a network: a person's, a sweep. */
int store_apply_now(struct world *world, struct idem_op *op);

/* A gateway on the same host reads a record past its executor; false when it cannot. */
bool store_peek(struct world *world, struct idem_op *get, uint16_t asker);

void store_down(struct world *world);
void store_up(struct world *world);
void store_fill(struct world *world);
void store_room(struct world *world);
void store_sweep(struct world *world);
void store_removed(struct world *world); /* a record was */
void store_clock_jump(struct world *world);
void store_end(struct world *world); /* drops what is still on its way */

#endif
