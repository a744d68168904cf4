/* A store that is another by now: what a handle says that was opened before, and what a gateway
 * with its executor makes of it. */
#ifndef IDEM_TEST_REDIS_CHANGED_H
#define IDEM_TEST_REDIS_CHANGED_H

#include <idem/executor.h>

#include "support.h"

/* A claim that must fail; its sentence, valid until the next call. */
const char *claim_fails(struct idem_store *store, const char *key, int wanted_error);

/* One op of each kind, alone: each must fail as unsafe, and find nothing. */
void every_op_fails(struct idem_store *store);

struct gateway {
    struct idem_executor *executor;
    unsigned failures; /* claims that failed, and were sent again */
};

void gateway_begin(struct gateway *gateway, const char *url);
enum idem_result gateway_claims(struct gateway *gateway, const char *key, const char *owner);
void gateway_end(struct gateway *gateway);

#endif
