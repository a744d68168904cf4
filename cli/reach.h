/* Reach: whether a server takes connections where a store's URL says that it is. */
#ifndef IDEM_CLI_REACH_H
#define IDEM_CLI_REACH_H

#include <stdbool.h>

/*
 * Connects, and hangs up: so a server that is away is told apart from one that is there and refuses
 * us, by its log-in or for lack of tables. Of several hosts one is enough. False for a store that
 * is no server.
 */
bool idem_reach(const char *url);

#endif
