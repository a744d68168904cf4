/*
 * Clients: they send requests with few keys, so that these collide; retry after time-outs and
 * refusals, on any gateway; give up; hang up; and sometimes reuse a key for another payload.
 */
#ifndef IDEM_TEST_SIM_CLIENT_H
#define IDEM_TEST_SIM_CLIENT_H

#include "sim/world.h"

void clients_begin(struct world *world);
void client_act(struct world *world, const struct event *event);
void client_answered(struct world *world, const struct event *event);

/* The last phase: every request once more. */
void client_final_begin(struct world *world);
void client_final_next(struct world *world);

/* The gateway closes the client's connection: answered, or (lost) without an answer. */
void client_close(struct world *world, uint16_t request, bool lost);

#endif
