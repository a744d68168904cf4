/* A thread that ends the connections of a store, once for each batch that is begun. */
#ifndef IDEM_TEST_KILLER_H
#define IDEM_TEST_KILLER_H

#include <pthread.h>

#include "contract.h"

/* Ends all of idem's connections, of which the name tells; how many there were. */
typedef int64_t killer_kill(const char *name);

struct killer {
    killer_kill *kill;
    const char *name;
    unsigned begun; /* batches */
    unsigned kills; /* times that there was a connection to end */
    bool ended;
    pthread_t thread;
};

void killer_begin(struct killer *killer, killer_kill *kill, const char *name);
void killer_aim(struct killer *killer); /* before each batch, which is cut off then or soon */
void killer_end(struct killer *killer);

#endif
