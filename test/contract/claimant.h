/* Who claims and completes one key after the other while a test does things to the servers. */
#ifndef IDEM_TEST_CLAIMANT_H
#define IDEM_TEST_CLAIMANT_H

#include <pthread.h>

#include "ops.h"

struct claimant {
    struct idem_store *store;
    unsigned count;    /* keys that are done: "k0", "k1" … */
    unsigned failures; /* calls that failed, and were repeated until they went through */
    bool ended;
    pthread_t thread;
};

void claimant_begin(struct claimant *claimant, const char *url);
void claimant_await(const struct claimant *claimant, unsigned more); /* so many keys more */

/* Ends it, then sees that all that was acknowledged is there and was executed once; closes. */
void claimant_end(struct claimant *claimant);

#endif
