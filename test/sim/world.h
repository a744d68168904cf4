/*
 * World: everything there is in one run, and the queue of what happens next.
 *
 * Time is a number that jumps from one event to the next; nothing here waits. Actors (gateways,
 * clients, the store, the upstream, a person, trouble) put events into the queue, and handle them
 * when their instant has come. All chance comes from one row of dice, so a run is its seed.
 *
 * The phases of a run:
 *   1. active: clients send, faults happen
 *   2. quiet: faults have stopped; what is under way comes to its end
 *   3. final: each request that was ever sent is sent once more, one after the other, and must get
 *      a definite verdict
 */
#ifndef IDEM_TEST_SIM_WORLD_H
#define IDEM_TEST_SIM_WORLD_H

#include <idem/exchange.h>
#include <idem/store.h>

#include "exec/state.h"
#include "sim/cover.h"
#include "sim/dice.h"
#include "sim/plan.h"

#define REQUESTS_MAX   160
#define EXECUTIONS_MAX 320 /* runs of an operation at the upstream, and probes */
#define MESSAGES_MAX   192 /* batches on their way to the store */
#define SESSIONS_MAX   16  /* exchanges in one gateway */
#define JOBS_MAX       96  /* ops in one gateway's executor */
#define BATCH_MAX      6   /* ops in one batch */
#define EVENTS_MAX     1024
#define INBOX_MAX      256
#define NOBODY         UINT16_MAX

enum event_kind {
    /* for a gateway, which handles them one by one (gateway.c) */
    ITEM_REQUEST,      /* index: request */
    ITEM_CLIENT_GONE,  /* session */
    ITEM_ABORT,        /* session: the driver has to destroy it */
    ITEM_TICK,         /* session, number: the timer's */
    ITEM_WAKE,         /* session; index: the execution of whoever wakes it, or NOBODY */
    ITEM_DEADLINE,     /* session, number: the wait's */
    ITEM_CONNECTED,    /* index: execution; its bytes may leave */
    ITEM_REFUSED,      /* index: execution; nothing was sent */
    ITEM_REROUTED,     /* index: execution */
    ITEM_HEAD,         /* index: execution */
    ITEM_BODY,         /* index: execution; number: bytes */
    ITEM_END,          /* index: execution */
    ITEM_FAILED,       /* index: execution; what: evidence */
    ITEM_LATE,         /* index: execution; the time for its answer is over */
    ITEM_REPLY,        /* index: message */
    ITEM_CALL_TIMEOUT, /* number: call */
    ITEM_SENDER_WAKE,  /* kept verdicts are due */
    ITEM_JOB,          /* index: job; what: enum idem_job_event */
    /* for the others */
    EVENT_CLIENT,     /* index: client; number: its turn */
    EVENT_ANSWER,     /* index: request */
    EVENT_ARRIVAL,    /* index: message, at the store */
    EVENT_UPSTREAM,   /* index: execution, at the upstream */
    EVENT_WORKED,     /* index: execution; its effect, if any, happens now */
    EVENT_RESUME,     /* gateway */
    EVENT_RESTART,    /* gateway */
    EVENT_TROUBLE,    /* something breaks */
    EVENT_DOWN,       /* the store, until */
    EVENT_UP,         /* then */
    EVENT_FULL,       /* the store, until */
    EVENT_ROOM,       /* then */
    EVENT_SWEEP,      /* expired records are removed */
    EVENT_LOOK,       /* a person looks at what is unknown */
    EVENT_SETTLE,     /* and settles it */
    EVENT_QUIET,      /* phase 2 */
    EVENT_FINAL,      /* phase 3 */
    EVENT_FINAL_NEXT, /* its next request */
};

#define ITEM_LAST ITEM_JOB

struct event {
    int64_t at_us;
    uint32_t order; /* of two at one instant the earlier made is first */
    uint8_t kind;
    uint8_t gateway;
    uint8_t session;
    uint8_t what;
    uint16_t index;
    uint32_t life;       /* of the gateway: a restarted one does not get it */
    uint32_t generation; /* of the session */
    uint32_t number;
};

/* An answer's bytes, which live as long as the run. */
struct answer {
    uint16_t status;
    enum idem_reason tombstone;
    struct idem_bytes headers, body;
};

/* One request of one client, and what the checkers know of it. Its number is in its owner. */
struct request {
    uint8_t client, scope, key, payload, principal;
    uint8_t id; /* which of the world's ids it means */
    uint8_t gateway;
    uint8_t session;
    uint32_t gateway_life, generation;
    struct idem_owner owner;
    bool final_phase;

    /* What the store was seen to do for its owner, and what its driver has heard (checker.c). */
    bool acquired, told_completed, verdict_ok;
    bool orphan;            /* acquired when it had been given back: nobody drives it */
    bool heard_gone;        /* that its claim is not its own any more */
    bool heard_lost;        /* its verdict was lost … */
    enum idem_state looked; /* … and the record that it found then, or 0 */
    bool heard_look;
    bool probed;
    uint8_t renews, renews_heard; /* submitted, and come to an end */
    uint8_t renews_probed;        /* submitted when the probe's answer had ended */
    bool saw_unknown, saw_running, saw_two;
    uint64_t fence, unknown_fence, running_fence;
    uint64_t fence_before; /* of its claim in an earlier life of the key, or 0 */
    uint32_t attempt, key_life, told_life;
    struct answer expected;            /* with told_completed */
    enum idem_op_kind verdict;         /* submitted, or 0 */
    bool verdict_applied, fail_needed; /* by the store; ambiguous claims must be undone */
    uint32_t verdict_life;             /* of the gateway that submitted it */

    /* What became of it (client.c). */
    bool over;    /* the client's connection is closed: answered, or lost */
    bool lost;    /* closed without an answer */
    bool gone;    /* the client does not wait any more */
    bool refused; /* with: */
    struct idem_problem problem;
    struct answer answer; /* otherwise */
    bool unrecorded;
};

enum ending {
    ENDING_WHOLE,
    ENDING_NONE,     /* the connection breaks before an answer */
    ENDING_CUT,      /* and within one */
    ENDING_CLOSE,    /* only the close says that the body is over */
    ENDING_INVALID,  /* bytes that are no HTTP */
    ENDING_REFUSED,  /* there is no connection */
    ENDING_REROUTED, /* nor here, but another handler may have it */
    ENDING_REPLACED, /* answered, and another handler wants to answer instead */
};

/* How the upstream deals with one request (upstream.c). */
struct manner {
    const char *name;
    uint16_t status;
    uint8_t effect; /* never, always, or as the dice fall */
    enum idem_outcome declared;
    enum ending ending;
    bool late;       /* the effect may come when nobody waits any more */
    bool large;      /* a body over what is kept */
    bool silent;     /* its size is not announced */
    uint16_t weight; /* how often */
};

struct execution {
    uint16_t request;
    uint8_t gateway, session, id;
    uint32_t gateway_life, generation;
    uint32_t key_life;
    uint64_t fence;
    uint32_t attempt;
    bool probe, bypass;
    const struct manner *manner;

    /* the gateway's side */
    bool sent;       /* a byte has left */
    bool head;       /* an answer has begun */
    bool closed;     /* nothing that comes from it is heard any more */
    bool no_effect;  /* the gateway was told, rightly, that it had none */
    bool settled;    /* a person has said, rightly, that it had none */
    bool answered;   /* whole */
    int64_t late_us; /* when it stops waiting */

    /* the upstream's side */
    bool arrived, worked;
    bool effect;
    uint16_t of; /* whose answer it gives: its own, or that of the one that had the effect */
    struct answer answer; /* what it sends */
    struct answer truth;  /* what it says whenever it is asked again */
    enum idem_outcome declared;
    uint8_t headers[96];
};

/* A batch on its way to the store. Sized for the sender's calls; see store_faults.c. */
struct message {
    bool used, lose, cut;
    bool orphan;     /* nobody waits for what it brings … */
    bool stray;      /* … and its sender may have been answered before it arrives */
    uint8_t partial; /* only so many ops are applied, then it fails */
    uint8_t gateway;
    uint32_t life, call;
    size_t count;
    uint16_t askers[BATCH_MAX]; /* the request that each op is for, or NOBODY */
    struct idem_op ops[BATCH_MAX];
    int error;
};

struct job {
    struct idem_job job; /* first */
    bool used, delayed;
    uint8_t session;
    uint16_t request;    /* or NOBODY */
    uint32_t generation; /* 0: nobody waits */
};

/* The executor of one gateway (sender.c). */
struct sender {
    struct job jobs[JOBS_MAX];
    struct idem_job_queue waiting, taken, due;
    struct idem_settle settle;
    bool busy;     /* a call is under way */
    bool of_due;   /* with the repeats */
    bool single;   /* op by op after a failure that one op may have brought about */
    bool closed;   /* the store is known to be away: claims end at once */
    uint32_t call; /* number of the call under way */
    uint16_t batch[BATCH_MAX];
    size_t batch_count;
    int64_t wake_us; /* the earliest wake-up that was asked for */
};

/* One exchange in a gateway, with what its driver keeps. */
struct session {
    bool used, answered, bypassed;
    uint32_t generation;
    struct idem_exchange exchange;
    uint16_t request;
    uint16_t execution; /* what the upstream is asked now, or NOBODY */
    uint16_t held;      /* whose answer is held, or NOBODY */
    int64_t begun_us;
    enum idem_op_kind waiting; /* for the result of this op */
    uint32_t wait_number, timer_number;
};

enum gateway_state { GATEWAY_UP, GATEWAY_PAUSED, GATEWAY_DOWN };

struct gateway {
    uint8_t number;
    enum gateway_state state;
    uint32_t life;
    struct event inbox[INBOX_MAX];
    size_t inbox_first, inbox_count;
    /* The step under way: its effects are executed one by one. */
    bool stepping;
    uint8_t session;
    uint32_t generation;
    struct event item;
    struct idem_event event;
    struct idem_op op; /* what event.op points to */
    struct idem_effects effects;
    size_t next;
    struct session sessions[SESSIONS_MAX];
    struct sender sender;
};

struct client {
    uint8_t principal;
    uint32_t turn;
    uint16_t request; /* that it waits for, or NOBODY */
    uint8_t scope, key, payload;
    uint8_t tries, intents;
};

/* What the checkers know of one id (checker.c). */
struct track {
    enum idem_state state; /* 0: nothing is there */
    bool phantom, bypassed;
    bool over;       /* the next claim begins a new life */
    uint16_t holder; /* request, or NOBODY for a person */
    uint8_t payload, principal;
    uint32_t life; /* grows when the key begins anew */
    uint64_t fence, fence_max;
    int64_t lease_us, lease_until_us;
    int64_t expires_us, expires_last_us; /* not before the one, and not after the other */
    int64_t abandoned_us;                /* when UNKNOWN */
    uint16_t told_to;                    /* the last request that got a final answer, or NOBODY */
    struct answer recorded, told;
    unsigned effects; /* in this life */
    uint16_t effect_of;
    uint16_t kept_of;  /* whose answer an upstream that executes a key once keeps */
    uint64_t promised; /* the upstream's: lower fences can no longer take effect */
};

#define IDS_MAX (SCOPES_MAX * KEYS_MAX)

struct variant { /* a request that is sent again in the end */
    uint8_t client, scope, key, payload, principal;
};

struct world {
    uint64_t seed;
    struct dice dice;
    struct plan plan;
    struct idem_policy policy;
    unsigned mutant;
    bool mutant_rows[IDS_MAX]; /* ids with a row that was never swept (mutant_store.c) */
    bool tracing;

    int64_t now_us;
    int64_t clock_offset_us; /* of the store's clock */
    int64_t clock_max_us;    /* the latest that it has told */
    struct idem_clock clock;
    struct idem_store *store;
    bool quiet, final, store_down, store_full;
    bool stray; /* the batch that is being applied is one */
    int64_t quiet_us, final_us;

    struct event events[EVENTS_MAX];
    size_t event_count;
    uint32_t event_order;
    uint64_t steps;
    uint64_t digest; /* of everything that happened: the same for the same seed */

    struct gateway gateways[GATEWAYS_MAX];
    struct client clients[CLIENTS_MAX];
    struct track tracks[IDS_MAX];
    struct request requests[REQUESTS_MAX];
    size_t request_count;
    struct execution executions[EXECUTIONS_MAX];
    size_t execution_count;
    struct message messages[MESSAGES_MAX];
    struct variant variants[REQUESTS_MAX];
    size_t variant_count, variant_next;
    unsigned variant_tries;
    uint16_t final_request;

    /* a person's look at a record (person.c) */
    struct idem_id look_id;
    uint64_t look_fence;
    int64_t look_updated_us;

    struct cover cover;
    int broken;        /* enum checker of the first one that found something, or 0 */
    char finding[400]; /* what it found */
};

/* One run from its seed to its end. False when a checker found something: see world->broken. */
bool world_run(struct world *world, uint64_t seed, unsigned mutant, bool tracing);

/* Puts an event into the queue. */
void world_at(struct world *world, int64_t at_us, struct event event);
void world_in(struct world *world, int64_t delay_us, struct event event);

/* The store's clock now. */
int64_t world_store_now_us(const struct world *world);

/* A line of the story, when somebody wants to read it. */
void world_tell(const struct world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The names of things in the story. */
const char *world_id_text(const struct world *world, unsigned id);

/* The digests and ids that requests are made of: the same in every run. */
const struct idem_id *world_id(unsigned id);
struct idem_fingerprint world_fingerprint(unsigned payload);
struct idem_principal world_principal(const struct world *world, unsigned principal);
struct idem_bytes world_scope(unsigned scope);
struct idem_bytes world_key(unsigned key);

/* Which of the world's ids it is, or IDS_MAX. */
unsigned world_id_find(const struct idem_id *id);

/* The request whose owner it is, or whose op; NOBODY for a person's, a sweep, … */
uint16_t world_owner_request(const struct world *world, const struct idem_owner *owner);
uint16_t world_op_request(const struct world *world, const struct idem_op *op);

static inline bool answer_equal(const struct answer *a, const struct answer *b)
{
    return a->status == b->status && a->tombstone == b->tombstone &&
           idem_bytes_equal(a->headers, b->headers) && idem_bytes_equal(a->body, b->body);
}

#endif
