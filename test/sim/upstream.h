/*
 * Upstream: the service that does the real work, and everything that can go wrong with it. It may
 * refuse, die before or after the effect, be late with it, answer with any status, cut its answer
 * short, declare the outcome, and be asked what became of a key.
 *
 * Policy retry: it executes a key once and repeats its answer. Policy probe: having answered 404 to
 * a probe with a fence it ignores requests with lower ones (unless the run is about `settle`).
 */
#ifndef IDEM_TEST_SIM_UPSTREAM_H
#define IDEM_TEST_SIM_UPSTREAM_H

#include "sim/world.h"

/* The gateway opens a connection; what comes of it is told by items. */
uint16_t upstream_connect(struct world *world, struct gateway *gateway, struct session *session,
                          const struct idem_effect *effect);

/* Its bytes leave now. */
void upstream_send(struct world *world, uint16_t number);
void upstream_arrival(struct world *world, uint16_t number);
void upstream_worked(struct world *world, uint16_t number);

/* True when it may still have an effect. */
bool upstream_is_open(const struct execution *execution);

#endif
