/* A store that is another by now: what a handle says that was opened before, and what a gateway
 * with its executor makes of it. */
#ifndef IDEM_TEST_REDIS_CHANGED_H
#define IDEM_TEST_REDIS_CHANGED_H

#include "support.h"

/* One op of each kind, alone: each must fail as unsafe, and find nothing. */
void every_op_fails(struct idem_store *store);

/*
 * Two gateways, and a third that comes when all is thrown away: of whatever key they claim then one
 * executes, and the others know of it. Nobody is told that it is another request. Returns how many
 * claims of the third failed at first; some of the others' must.
 */
unsigned gateways_agree(const char *url, void (*flush)(void), unsigned count);

#endif
