/*
 * Store: where records live. One blocking function over a batch.
 *
 * Each op is atomic on its own; ops on one id apply in order; when idem_store_apply() returns 0,
 * everything reported done is durable to the degree that the URL asks for. Batching is what makes
 * every backend fast: one transaction, pipeline or round trip for all ops that waited meanwhile.
 */
#ifndef IDEM_STORE_H
#define IDEM_STORE_H

#include <idem/op.h>

struct idem_store;

/* A clock that a test or the simulator may turn; NULL is the host's. Servers use their own. */
struct idem_clock {
    int64_t (*now_us)(void *context);
    void *context;
};

/*
 * Opens the store that a URL names:
 *   memory:[?size=1g]   one process, nothing kept
 *   lmdb:DIR[?OPTIONS]  embedded; local file system, one host
 *                       size=16g   the most it may grow to
 *                       sync=always|off
 *                       reserve=   bytes that claims leave to verdicts; by default a sixteenth of
 *                                  the size or of the device, at most 64m
 *                       create=yes|no
 *   redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?OPTIONS]   rediss:// with TLS
 *   redis+unix:SOCKET[?OPTIONS]
 *   redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT],…/MASTER[/DATABASE][?OPTIONS]
 *   redis+cluster://[USER[:PASSWORD]@]HOST[:PORT],…[?OPTIONS]
 *   postgresql://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE[?OPTIONS]
 *   mariadb://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE[?OPTIONS]   mysql: is the same
 *                       timeout=5s   connecting, or one call, takes no longer
 *                       sync=always|off
 *                       more are listed with each store in docs/guide/stores.md
 *
 * Checks that the store can keep what it promises and runs the self-test on a reserved id: claim,
 * second claim refused, complete, read back, expiry set. Refuses to open when any of it fails.
 *
 * LMDB: a file system that is shared over a network is IDEM_ERR_UNSAFE, and so is all of FUSE,
 * which cannot be told apart from one. The data file takes its `reserve` on the device at once, so
 * that verdicts get in when others have filled the device.
 *
 * LMDB: a directory with neither data.mdb nor lock.mdb is given a new, empty store, in one step
 * that is done or not; with create=no it is IDEM_ERR_UNAVAILABLE. An empty data.mdb, or a lock.mdb
 * alone, is a store that was lost: IDEM_ERR_CORRUPT, never a new store.
 *
 * A server store reconnects by itself, once in a call and within its time-out; a call that fails
 * all the same is IDEM_ERR_UNAVAILABLE or _TIMEOUT, and the next call connects again.
 *
 * IDEM_ERR_INVALID (the URL), _UNSUPPORTED, _UNAVAILABLE, _UNSAFE, _SELFTEST, _CORRUPT, _FULL,
 * _NOMEM, _IO; a sentence in *message. LMDB: at most one open handle per directory and process,
 * opened after fork; a second is IDEM_ERR_INVALID.
 */
IDEM_MUST_CHECK int idem_store_open(const char *url, const struct idem_clock *clock,
                                    struct idem_store **ret_store, struct idem_message *message);

/*
 * True when this opening made the store: no key from before is protected. Of processes that open
 * one store at once, one made it. Any thread.
 */
bool idem_store_is_new(const struct idem_store *store);

/* Flushes nothing: what was applied is as durable as it gets. NULL is fine. */
void idem_store_close(struct idem_store *store);

/*
 * Applies `count` ops (at most IDEM_BATCH_MAX), in order as far as one id is concerned. Ops that
 * were applied before are applied again: call idem_op_deinit() first.
 *
 * 0: every op has a result. Negative: the store failed, no result is to be trusted, and whether any
 * op was applied is unknown; repeating is safe (idempotence per owner). One thread at a time.
 *
 * IDEM_ERR_UNSAFE: behind the handle there is another store than the one that was opened. Its salt
 * has gone, with the data or alone, or is another's; digests that are made with the old one match
 * nothing there. A server is looked at with each call that claims, compares or puts, and none is
 * acknowledged from then on. Who wants to go on closes the handle and opens the URL again.
 */
IDEM_MUST_CHECK int idem_store_apply(struct idem_store *store, struct idem_op *const *ops,
                                     size_t count, struct idem_message *message);

/*
 * Applies one `get` without waiting, from a second thread if need be (always the same one), while
 * another applies. Sees what is durable. IDEM_ERR_UNSUPPORTED where the backend has no such path:
 * the caller then goes the long way. Every check that a claim makes is made here too.
 */
IDEM_MUST_CHECK int idem_store_peek(struct idem_store *store, struct idem_op *get);

/*
 * For `idem store copy`. The salt is the store's secret: never shown, never logged. Adopting gives
 * an empty store the salt of another, so that records can be put into it as they are; the same salt
 * again is fine. IDEM_ERR_INVALID when the store holds records under another salt, and
 * IDEM_ERR_UNSUPPORTED for a backend that cannot. Handles opened before are of no use afterwards: a
 * server's answer IDEM_ERR_UNSAFE, LMDB's do not see the change. Copy before gateways use the
 * target. Same thread rule as apply.
 */
struct idem_salt idem_store_salt(const struct idem_store *store);
IDEM_MUST_CHECK int idem_store_adopt(struct idem_store *store, const struct idem_salt *salt,
                                     struct idem_message *message);

/*
 * Brings the schema of an SQL store to a version, forward or back, in one transaction where the
 * engine can; back to 0 removes everything. IDEM_SCHEMA_LATEST is the one that this build needs.
 * Fine to repeat, and by several at once, also while gateways run: at the version that is wanted,
 * what can be made again and was dropped or changed by hand is mended. Stores without a schema: 0,
 * with from == to == 0.
 */
#define IDEM_SCHEMA_LATEST (-1)

struct idem_migration {
    int from, to; /* versions; 0: nothing is there */
    bool mended;  /* from == to, and not all of it was there as it should be */
};

IDEM_MUST_CHECK int idem_store_migrate(const char *url, int version,
                                       struct idem_migration *ret_migration,
                                       struct idem_message *message);

/*
 * What `idem store check` shows: name and value pairs, all views borrowed from the store. Names
 * that stores have in common are the same words, and are shown in this order before any others:
 *   backend           "lmdb, LMDB 0.9.24": the store, and its client library
 *   server            where it is, in words, without a password
 *   version           of the server
 *   clock difference  its clock minus this host's: "+0.8 ms"
 *   durability        what the URL asks for (sync=), and the settings in force that decide it
 *   can lose          in words, what these settings can lose; "nothing, as long as …"
 *   claims            "taken…", or "refused…" with the reason: the store has no room for new keys
 * "clock difference", "can lose" and "claims" are sentences for people, the rest is up to the
 * store.
 */
struct idem_store_fact {
    const char *name; /* "durability" */
    char value[192];  /* "every verdict is on disk before it is answered" */
};

#define IDEM_STORE_FACTS_MAX 24

/* Fills at most `max` facts and returns how many there are. Same thread rule as apply. */
size_t idem_store_describe(struct idem_store *store, struct idem_store_fact *facts, size_t max);

/*
 * How long a call of this store may take: the URL's `timeout` option, or IDEM_STORE_TIMEOUT_US. A
 * URL that cannot be read has the default.
 */
#define IDEM_STORE_TIMEOUT_US     (5 * IDEM_SECOND_US)
#define IDEM_STORE_TIMEOUT_US_MIN (IDEM_SECOND_US / 100)
#define IDEM_STORE_TIMEOUT_US_MAX (600 * IDEM_SECOND_US)

int64_t idem_store_url_timeout_us(const char *url);

/* The URL for people: a password in it is written as "***". Cut at `size`, always terminated. */
void idem_store_url_redact(const char *url, char *ret_text, size_t size);

/*
 * Checks a URL's syntax, and that this build has the backend, without opening anything: for a
 * configuration test. *ret_directory, if wanted, is the directory that an embedded store needs
 * (malloc'd, the caller frees it) or NULL.
 */
IDEM_MUST_CHECK int idem_store_url_check(const char *url, char **ret_directory,
                                         struct idem_message *message);

#endif
