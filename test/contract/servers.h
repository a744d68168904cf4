/* The servers that a test runs beside: turning them off and on, and waiting for what they do. */
#ifndef IDEM_TEST_SERVERS_H
#define IDEM_TEST_SERVERS_H

#include "contract.h"

/* "stop", "cont", "restart" … of a server ("postgres", "cluster-1" …); test/servers/control.py. */
void control(const char *verb, const char *server);

/* A socket that takes connections on a free port of this host, where nobody says a word. */
int listener_open(int *ret_port);

/* A clock that no test turns. */
int64_t steady_us(void);

/* Polls until the condition holds; fails the test, naming it, after a minute. */
void await(bool (*holds)(void *context), void *context, const char *what);

#endif
