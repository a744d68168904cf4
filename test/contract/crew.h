/*
 * A crew: threads that use one store at the same moment. On the rows of servers each has a handle
 * of its own, as gateways have; memory and LMDB have one handle, which the crew shares under a
 * lock.
 */
#ifndef IDEM_TEST_CREW_H
#define IDEM_TEST_CREW_H

#include <pthread.h>

#include "contract.h"

#define CREW_MAX 16

struct crew;

struct member {
    struct crew *crew;
    unsigned number;
    struct idem_store *store;
    int error; /* of the first batch that the store refused */
    struct idem_message message;
};

struct crew {
    struct world *world;
    unsigned count;
    struct member members[CREW_MAX];
    void (*work)(struct member *member, void *context);
    void *context;
    pthread_mutex_t lock;
    pthread_barrier_t start;
    bool shares;
};

void crew_open(struct crew *crew, struct world *world, unsigned count);
void crew_close(struct crew *crew);

/*
 * Has every member do the work, all starting together, and waits for them. Fails the test when the
 * store failed one. The work runs in threads: it must not assert, only note what it saw.
 */
void crew_run(struct crew *crew, void (*work)(struct member *member, void *context), void *context);

/* Applies a batch by the member's handle; an error is noted, and the results are then NONE. */
void member_apply(struct member *member, struct idem_op *ops, size_t count);

/*
 * Has member i apply ops[i], all at once; `count` ops at most as many as members. With `delays_us`
 * member i begins so much later: races over a range of delays meet at every point of each other.
 */
void crew_race(struct crew *crew, struct idem_op *ops, const unsigned *delays_us, size_t count);

/*
 * Runs `work` in `count` processes, each of which opens a handle of its own, and waits for them.
 * The world's own handle is closed meanwhile. What the work returns but 0 fails the test.
 */
void processes_run(struct world *world, unsigned count,
                   int (*work)(struct idem_store *store, unsigned number, void *context),
                   void *context);

/* Memory that processes share, zeroed; the caller gives it back with processes_free. */
void *processes_calloc(size_t size);
void processes_free(void *memory, size_t size);

#endif
