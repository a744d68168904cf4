/*
 * The contract of every store, as tests. One row is one store; every rule is run on every row that
 * it applies to, with the rule's words as its name. To add a store, add a row in rows.c.
 */
#ifndef IDEM_TEST_CONTRACT_H
#define IDEM_TEST_CONTRACT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <idem/store.h>
#include <stdlib.h>

#define SECOND IDEM_SECOND_US
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

#define LEASE       (10 * SECOND) /* what the helpers below claim with */
#define TTL         HOUR
#define UNKNOWN_TTL DAY
#define START       (INT64_C(1700000000) * SECOND) /* where each world's clock begins */

/* What a row has; a rule names what it needs. */
enum trait {
    TRAIT_NONE = 0,
    TRAIT_CLOCK = 1,    /* its clock can be turned */
    TRAIT_BOUND = 2,    /* it has a size, set by options */
    TRAIT_KEPT = 4,     /* it survives being closed */
    TRAIT_SHARED = 8,   /* processes may share it */
    TRAIT_ORDERED = 16, /* a scan is in id order */
    TRAIT_SERVER = 32,  /* it is reached over a network; its clock is the file in IDEM_TEST_CLOCK */
    TRAIT_SCHEMA = 64,  /* it wants to be migrated first */
    TRAIT_SWEPT = 128,  /* what has expired goes when it is swept; else by an expiry of its own */
    TRAIT_FLOOR = 256,  /* the fence grows across deletion however far the clock steps back */
    TRAIT_LONG = 512,   /* what takes long is run on it, unless another row is the same code */
};

struct world;

struct row {
    const char *name;
    unsigned traits;
    /* The URL of a store of this world's own; options start with a '?', or are empty. */
    void (*url)(const struct world *world, const char *options, char *ret_url, size_t size);
    void (*clean)(void); /* throws away what all worlds have left on a server of ours, or NULL */
    const char *bounded; /* options that make it as small as it may be */
    const char *server;  /* the environment variable that holds the URL of its server */
};

extern const struct row rows[];
extern const size_t rows_count;

const struct row *row_find(const char *name); /* fails the test when there is none */

#define WORLD_OPS 16

/* What a test lives in: a store, a clock, a directory of its own, and the last few ops. */
struct world {
    const struct row *row;
    struct idem_store *store;
    struct idem_clock clock;
    int64_t now_us;
    unsigned number; /* no other world of this process has it */
    char directory[64];
    char url[512];
    struct idem_op ops[WORLD_OPS];
    size_t ops_next;
};

void world_open(struct world *world, const char *options);
void world_close(struct world *world);
void world_reopen(struct world *world);

/* One more handle on the world's store, which the caller closes; not for memory and LMDB. */
struct idem_store *world_handle(struct world *world);

#define WORLD_PATH_SIZE 160
void world_path(const struct world *world, const char *name, char *ret_path);
void world_unlink(const struct world *world); /* the files of a store that is closed */

/* Opens a URL that must be refused; the sentence must hold these words. */
void refused(const char *url, int wanted, const char *words);

int world_setup(void **state); /* initial state: the row */
int world_teardown(void **state);

/* Turns the clock; negative is back. */
void advance(struct world *world, int64_t length_us);
void clock_turn(int64_t instant_us); /* of the servers; 0: it is the host's */

struct idem_bytes text(const char *text);
struct idem_id id_of(const char *key);
struct idem_owner owner_of(const char *name);
struct idem_fingerprint payload_of(const char *name);
struct idem_principal caller_of(const char *name); /* NULL: the empty one */
struct idem_answer answer_of(const char *body);    /* 201, one header line */

/* An op with everything filled in, that the world owns; change what matters, then run it. */
struct idem_op *claim_make(struct world *world, const char *key, const char *owner);
struct idem_op *verdict_make(struct world *world, enum idem_op_kind kind, const char *key,
                             const char *owner);
struct idem_op *op_make(struct world *world, enum idem_op_kind kind, const char *key);
struct idem_op *resolve_make(struct world *world, const char *key); /* of what is there now */

struct idem_op *run(struct world *world, struct idem_op *op);
struct idem_op *peek(struct world *world,
                     struct idem_op *get); /* NULL where there is no such path */

/* Made and run. */
struct idem_op *claim(struct world *world, const char *key, const char *owner);
struct idem_op *claim_taking(struct world *world, const char *key, const char *owner,
                             enum idem_take_unknown take, uint64_t fence);
struct idem_op *renew(struct world *world, const char *key, const char *owner, int64_t lease_us);
struct idem_op *complete(struct world *world, const char *key, const char *owner, const char *body);
struct idem_op *fail_claim(struct world *world, const char *key, const char *owner);
struct idem_op *abandon(struct world *world, const char *key, const char *owner);
struct idem_op *get(struct world *world, const char *key);
struct idem_op *forget(struct world *world, const char *key, bool force);
struct idem_op *sweep(struct world *world, uint32_t limit);

/* The record of an id that must be there; valid until a few ops later. */
const struct idem_record *record_of(struct world *world, const char *key);

/* Sweeps until there is no more to do. Returns how many records went. */
size_t sweep_all(struct world *world);

#define expect(op, wanted) \
    assert_string_equal(idem_result_text((op)->result), idem_result_text(IDEM_RESULT_##wanted))

#define assert_bytes(got, wanted)                                       \
    do {                                                                \
        struct idem_bytes got_ = (got), wanted_ = (wanted);             \
        assert_int_equal(got_.size, wanted_.size);                      \
        if (wanted_.size > 0)                                           \
            assert_memory_equal(got_.data, wanted_.data, wanted_.size); \
    } while (0)

struct rule {
    const char *words;
    void (*check)(void **state);
    unsigned needs; /* traits */
};

struct chapter {
    const char *name;
    const struct rule *rules;
    size_t count;
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

extern const struct chapter chapter_batch, chapter_claim, chapter_compare, chapter_expiry,
    chapter_full, chapter_order, chapter_people, chapter_put, chapter_race, chapter_scan,
    chapter_shared, chapter_story, chapter_verdict;

#endif
