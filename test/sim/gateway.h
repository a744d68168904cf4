/*
 * Gateway: one process with an event loop and an executor, as the nginx worker is one. It takes
 * what has come to it one by one, hands events to exchanges, and executes their effects in order.
 * Between any two of these it may be paused (like SIGSTOP, past its lease if need be) or crash.
 */
#ifndef IDEM_TEST_SIM_GATEWAY_H
#define IDEM_TEST_SIM_GATEWAY_H

#include "sim/world.h"

enum trouble { TROUBLE_JUMP, TROUBLE_PAUSE, TROUBLE_CRASH };

void gateway_begin(struct gateway *gateway, uint8_t number);
void gateway_end(struct world *world, struct gateway *gateway); /* releases what is still there */

/* An item has come; one for an earlier life of the gateway goes nowhere. */
void gateway_receive(struct world *world, const struct event *item);

/* Puts an item behind what the gateway has to do already. */
void gateway_append(struct gateway *gateway, struct event item);

void gateway_pause(struct world *world, struct gateway *gateway);
void gateway_resume(struct world *world, const struct event *event);
void gateway_crash(struct world *world, struct gateway *gateway);
void gateway_restart(struct world *world, const struct event *event);
void gateway_heal(struct world *world, struct gateway *gateway); /* trouble is over */

/* The session that an item is for, or NULL when it has ended. */
struct session *gateway_session(struct gateway *gateway, const struct event *item);

/* Makes an item for a session of this gateway's. */
struct event gateway_item(const struct gateway *gateway, const struct session *session,
                          enum event_kind kind);

/* driver.c: from items to the exchange, and from its effects to the world. */
void driver_item(struct world *world, struct gateway *gateway, const struct event *item);
void driver_effect(struct world *world, struct gateway *gateway, const struct idem_effect *effect);
void driver_step(struct world *world, struct gateway *gateway, struct session *session,
                 const struct idem_event *event);
void driver_settled(struct world *world, struct gateway *gateway); /* all effects are executed */

#endif
