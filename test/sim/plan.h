/*
 * Plan: what one run is about. Each run has some kinds of trouble and not others, and each in its
 * own measure: what hides behind frequent trouble is found in the runs that are spared it.
 */
#ifndef IDEM_TEST_SIM_PLAN_H
#define IDEM_TEST_SIM_PLAN_H

#include <idem/policy.h>

#include "sim/cover.h"
#include "sim/dice.h"

#define GATEWAYS_MAX   3
#define CLIENTS_MAX    4
#define SCOPES_MAX     2
#define KEYS_MAX       3
#define PAYLOADS_MAX   2
#define PRINCIPALS_MAX 3

struct plan {
    unsigned gateways, clients, scopes, keys;
    unsigned callers;     /* credentials that clients begin with */
    bool credentials;     /* callers differ by credential; otherwise the scope tells them apart */
    bool dedup;           /* the upstream executes a key once (policy retry) */
    bool promise;         /* and keeps the probe's promise */
    bool peek;            /* completed records are read without the executor */
    bool close_delimited; /* a body that ends by closing is trusted */
    bool calm;            /* neither store nor gateways know trouble */

    /* lengths of time, in µs */
    int64_t lease_us;
    int64_t call_us;     /* a call of the store takes no longer */
    int64_t deadline_us; /* the driver waits no longer for a result */
    int64_t upstream_us; /* nor for the upstream's answer */
    int64_t patience_us; /* nor the client for its own */
    int64_t delay_us;    /* of one message, at most */
    int64_t late_us;     /* of one that is late, and of an effect that is */
    int64_t active_us;   /* how long there is trouble */

    /* chances, of a thousand */
    unsigned lose, cut, late, duplicate, repeat, partial; /* each call of the store */
    unsigned pause, crash;                                /* each step and effect of a gateway */
    unsigned trouble;   /* the upstream: how often it does not just answer */
    unsigned gone;      /* a client that gives up closes its connection */
    unsigned abort;     /* each request is destroyed by its gateway at some time */
    unsigned payload;   /* each new intent: another payload, … */
    unsigned principal; /* … another credential */
    unsigned downs, fulls, jumps, sweeps, looks; /* how many in the run */
    bool jumps_far;                              /* past the life of records */
};

/* Throws a plan and the route's policy. */
void plan_draw(struct dice *dice, struct plan *ret_plan, struct idem_policy *ret_policy,
               struct cover *cover);

/* The plan as the first lines of the story. */
struct world;
void plan_tell(const struct world *world);

#endif
