/*
 * The PostgreSQL store, from the outside in:
 *
 *   postgres.c   the vtable: checks, opening, closing
 *   options.c    a URL as settings
 *   link.c       one connection that is never waited on for longer than a deadline
 *   trip.c       one round trip: several statements, one transaction
 *   fault.c      what an error of the server means
 *   param.c      parameters: arrays, one element an op
 *   result.c     rows as records
 *   batch.c      a batch of ops as round trips, repeated when the connection is lost
 *   call.c       each kind of op as a row of parameters, and its row of the result
 *   keep.c       scans, sweeps and pages of the audit
 *   space.c      when the store counts as full
 *   vacuum.c     giving the room of swept records back in time
 *   describe.c   what `idem store check` shows
 *   schema.c     migration
 *   sql/         the schema and the rules, in SQL
 */
#ifndef IDEM_STORE_POSTGRES_STORE_H
#define IDEM_STORE_POSTGRES_STORE_H

#include <libpq-fe.h>

#include "store/backend.h"
#include "store/server.h"

#define IDEM_PG_SCHEMA_VERSION 2 /* the one that this build needs */
#define IDEM_PG_SCHEMA_MAX     63
#define IDEM_PG_SERVER_MIN     120000 /* the first with plan_cache_mode */
#define IDEM_PG_PORT           5432

/* --- options.c --- */

#define IDEM_PG_PAIRS_MAX 48

struct idem_pg_settings {
    int64_t timeout_us;
    uint64_t size; /* 0: no bound */
    bool sync;
    bool vacuum; /* clean up behind sweeps, where this role may */
    char schema[IDEM_PG_SCHEMA_MAX + 1];
    struct idem_server server;
    size_t pair_count; /* what libpq is given beside host and port */
    const char *keywords[IDEM_PG_PAIRS_MAX], *values[IDEM_PG_PAIRS_MAX];
    char memory[IDEM_URL_SIZE_MAX];
};

/* IDEM_ERR_INVALID with a sentence. Copies what it keeps. */
IDEM_MUST_CHECK int idem_pg_settings_read(const struct idem_url *url,
                                          struct idem_pg_settings *ret_settings,
                                          struct idem_message *message);

/* --- fault.c --- */

/* What became of a round trip, beside the negative errors, which are final. */
enum idem_pg_outcome {
    IDEM_PG_DONE = 0,
    IDEM_PG_AGAIN = 1, /* rolled back for no fault of its own: repeat it */
    IDEM_PG_LOST = 2,  /* the connection is no good, and it may have been applied: connect again */
    IDEM_PG_FULL = 3,  /* the server's disk is full; rolled back */
};

#define IDEM_PG_STATE_SIZE  6       /* an SQLSTATE and its terminator */
#define IDEM_PG_STATE_SALT  "ID001" /* from idempotency_floor(): the store has another salt */
#define IDEM_PG_STATE_BLIND "ID002" /* from there too: the transaction is not READ COMMITTED */

/* The outcome that an SQLSTATE stands for: one of the above, or a negative error. */
int idem_pg_fault_judge(const char *sqlstate);

/* The server's own sentence, first line only, for a message. */
void idem_pg_fault_text(const PGresult *result, char *ret_text, size_t size);

/* Statements that are parsed and planned once a connection, for they are asked all the time. */
enum idem_pg_named {
    IDEM_PG_NAMED_NONE, /* parsed each time */
    IDEM_PG_NAMED_GUARD,
    IDEM_PG_NAMED_CLAIM,
    IDEM_PG_NAMED_CLAIM_LONE,
    IDEM_PG_NAMED_VERDICT,
    IDEM_PG_NAMED_VERDICT_LONE,
    IDEM_PG_NAMED_GET,
    IDEM_PG_NAMED_COUNT,
};

#define IDEM_PG_NAME_SIZE 32

/* --- link.c --- */

struct idem_pg_link {
    const struct idem_pg_settings *settings;
    PGconn *connection; /* NULL: none */
    size_t host;        /* the one that is connected, or to be tried first */
    bool doubtful;      /* something was done whose durability nobody confirmed */
    bool warned;        /* the commit of this round trip did not wait for its standby */
    int64_t started_us; /* when the server was started, by its own clock */
    bool set_isolation; /* its default is not READ COMMITTED */
    bool direct;        /* no pooler is between */
    bool named;         /* the connection has statements, by these names */
    char names[IDEM_PG_NAMED_COUNT][IDEM_PG_NAME_SIZE];
    char sync_word[16];                /* for synchronous_commit */
    char sqlstate[IDEM_PG_STATE_SIZE]; /* of the last failure; empty: not from the server */
    struct idem_message message;       /* what the last failure was */
};

int64_t idem_pg_now_us(void);
void idem_pg_link_init(struct idem_pg_link *link, const struct idem_pg_settings *settings);
void idem_pg_link_close(struct idem_pg_link *link); /* stays usable */

/* "the PostgreSQL server at HOST:PORT": for messages. */
const char *idem_pg_link_place(const struct idem_pg_link *link, char *ret_text, size_t size);

/* IDEM_ERR_CORRUPT and its sentence: the row with version and salt is gone, the tables are there.
 */
IDEM_MUST_CHECK int idem_pg_meta_lost(struct idem_pg_link *link);
#define IDEM_PG_PLACE_SIZE (IDEM_SERVER_TEXT_MAX + 48)

/* Begins to connect to the link's host, for others to go on with. NULL: no memory. */
PGconn *idem_pg_connection_start(const struct idem_pg_link *link);

/* Connects, if need be, to the first host that takes writes. DONE, LOST or an error. */
IDEM_MUST_CHECK int idem_pg_link_connect(struct idem_pg_link *link, bool with_schema,
                                         int64_t deadline_us);

/* Waits until the socket can be read, or written as well. DONE, or IDEM_ERR_TIMEOUT with the
 * connection closed. */
IDEM_MUST_CHECK int idem_pg_link_await(struct idem_pg_link *link, bool write, int64_t deadline_us);

/* --- param.c --- */

#define IDEM_PG_PARAMS_MAX 32

struct idem_pg_column {
    Oid element;
    bool array;   /* every element with its size before it */
    bool is_null; /* the one value, where there is no array */
    uint8_t *data;
    size_t size, capacity;
};

/* Parameters in the making: one row an op, each column an array; or one row of plain values. */
struct idem_pg_params {
    struct idem_pg_column columns[IDEM_PG_PARAMS_MAX];
    size_t column, column_count; /* the next of this row; how many a row has */
    size_t row_count;
    bool failed; /* an allocation did */
};

void idem_pg_params_free(struct idem_pg_params *params);
void idem_pg_params_begin(struct idem_pg_params *params, bool arrays);
void idem_pg_row_end(struct idem_pg_params *params);
void idem_pg_params_finish(struct idem_pg_params *params);
Oid idem_pg_column_type(const struct idem_pg_column *column);
size_t idem_pg_params_bytes(const struct idem_pg_params *params);

void idem_pg_put_bytes(struct idem_pg_params *params, struct idem_bytes bytes);
void idem_pg_put_text(struct idem_pg_params *params, const char *text); /* NULL is NULL */
void idem_pg_put_bool(struct idem_pg_params *params, bool value);
void idem_pg_put_int2(struct idem_pg_params *params, int value);
void idem_pg_put_int4(struct idem_pg_params *params, int64_t value);
void idem_pg_put_int8(struct idem_pg_params *params, uint64_t value); /* saturates */
void idem_pg_put_int8_signed(struct idem_pg_params *params, int64_t value);
void idem_pg_put_instant(struct idem_pg_params *params, int64_t at_us);
void idem_pg_put_length(struct idem_pg_params *params, int64_t length_us);
void idem_pg_put_null(struct idem_pg_params *params, Oid element);

#define IDEM_PG_BYTEA       17 /* OIDs of pg_type.dat, the same in every server */
#define IDEM_PG_INT8        20
#define IDEM_PG_INT2        21
#define IDEM_PG_INT4        23
#define IDEM_PG_TEXT        25
#define IDEM_PG_TIMESTAMPTZ 1184

/* --- trip.c --- */

#define IDEM_PG_STATEMENTS_MAX 72

struct idem_pg_trip {
    struct idem_pg_link *link;
    int64_t deadline_us;
    bool confirms;  /* its commit makes certain what was in doubt */
    bool guarded;   /* statement preface - 1 sets how it is to be done */
    size_t preface; /* statements before the caller's first */
    size_t count;
    PGresult *results[IDEM_PG_STATEMENTS_MAX]; /* of each statement sent, in order */
};

/*
 * A round trip: begin, any number of sends, end. The server works no longer than `work_us` on one
 * statement. Everything is one transaction, which is committed
 * when end returns DONE; only then are its results to be looked at. All return DONE, another
 * outcome or an error, which the link's message explains; then there are no results.
 */
IDEM_MUST_CHECK int idem_pg_trip_begin(struct idem_pg_trip *trip, struct idem_pg_link *link,
                                       bool sync, int64_t work_us, int64_t deadline_us);
IDEM_MUST_CHECK int idem_pg_trip_send(struct idem_pg_trip *trip, enum idem_pg_named named,
                                      const char *sql, struct idem_pg_params *params);
IDEM_MUST_CHECK int idem_pg_trip_prepare(struct idem_pg_trip *trip, enum idem_pg_named named,
                                         const char *sql); /* its result says nothing */
IDEM_MUST_CHECK int idem_pg_trip_end(struct idem_pg_trip *trip);
void idem_pg_trip_free(struct idem_pg_trip *trip);

/* A round trip of one statement, made once: 0 or a negative error. Its result is results[preface].
 */
IDEM_MUST_CHECK int idem_pg_ask(struct idem_pg_trip *trip, struct idem_pg_link *link,
                                const char *sql, struct idem_pg_params *params, bool sync,
                                int64_t deadline_us);

/* --- result.c --- */

/* The columns of idempotency_result, in order. */
enum idem_pg_field {
    IDEM_PG_N,
    IDEM_PG_RESULT,
    IDEM_PG_AT,
    IDEM_PG_ID,
    IDEM_PG_KIND,
    IDEM_PG_SCOPE,
    IDEM_PG_KEY,
    IDEM_PG_METHOD,
    IDEM_PG_PATH,
    IDEM_PG_FINGERPRINT,
    IDEM_PG_PRINCIPAL,
    IDEM_PG_STATE,
    IDEM_PG_REASON,
    IDEM_PG_OWNER,
    IDEM_PG_FENCE,
    IDEM_PG_ATTEMPT,
    IDEM_PG_LEASE,
    IDEM_PG_LEASE_UNTIL,
    IDEM_PG_CREATED_AT,
    IDEM_PG_UPDATED_AT,
    IDEM_PG_EXPIRES_AT,
    IDEM_PG_SWEEP_AT,
    IDEM_PG_STATUS,
    IDEM_PG_FLAGS,
    IDEM_PG_TOMBSTONE,
    IDEM_PG_HEADERS,
    IDEM_PG_BODY,
    IDEM_PG_RESOLVED_BY,
    IDEM_PG_RESOLVED_WHY,
    IDEM_PG_RESOLVED_AT,
    IDEM_PG_FIELD_COUNT,
};

/* Cells, 0 or empty for NULL; *failed is set, and never cleared, when one has another size. */
int64_t idem_pg_cell_number(const PGresult *result, int row, int column, bool *failed);
int64_t idem_pg_cell_instant(const PGresult *result, int row, int column, bool *failed);
int64_t idem_pg_cell_length(const PGresult *result, int row, int column, bool *failed);
struct idem_bytes idem_pg_cell_bytes(const PGresult *result, int row, int column);
bool idem_pg_cell_is(const PGresult *result, int row, int column, const char *word);

/*
 * The record of a row, as views into the result. IDEM_ERR_CORRUPT when a cell is none that these
 * rules write.
 */
IDEM_MUST_CHECK int idem_pg_record_view(const PGresult *result, int row,
                                        struct idem_record *ret_record);

/* A copy with memory of its own, its state as at that instant. IDEM_ERR_NOMEM. */
IDEM_MUST_CHECK int idem_pg_record_keep(const struct idem_record *record, int64_t now_us,
                                        struct idem_kept_record *ret_kept);
size_t idem_pg_record_bytes(const struct idem_record *record);

/* --- space.c --- */

struct idem_pg_space {
    uint64_t limit;  /* 0: none */
    uint64_t used;   /* table and indexes, when last looked */
    int64_t credit;  /* records removed since it was over the limit: as many may come */
    int64_t look_us; /* when to look again */
    int64_t full_us; /* until when the disk counts as full */
};

/* How the store stands while statements are made. */
struct idem_pg_room {
    bool claims;  /* new ids are taken */
    bool answers; /* answers are kept */
};

bool idem_pg_space_is_due(const struct idem_pg_space *space); /* to be looked at */
void idem_pg_space_looked(struct idem_pg_space *space, uint64_t used);
struct idem_pg_room idem_pg_space_room(const struct idem_pg_space *space, size_t claims);
void idem_pg_space_disk_full(struct idem_pg_space *space);
void idem_pg_space_count(struct idem_pg_space *space, size_t added, size_t removed);

/* --- vacuum.c --- */

enum idem_pg_vacuum_step {
    IDEM_PG_VACUUM_IDLE,
    IDEM_PG_VACUUM_CONNECTING,
    IDEM_PG_VACUUM_ASKING,
    IDEM_PG_VACUUM_WORKING,
};

struct idem_pg_vacuum {
    enum idem_pg_vacuum_step step;
    bool reads; /* what connecting waits for is to be read, and not room to write */
    PGconn *connection;
    size_t dead, needed;      /* dead rows left since the last time; how many it takes */
    int64_t due_us, until_us; /* when to look again; when to give up */
};

void idem_pg_vacuum_count(struct idem_pg_vacuum *vacuum, size_t dead);
void idem_pg_vacuum_step(struct idem_pg_vacuum *vacuum, const struct idem_pg_link *link);
void idem_pg_vacuum_close(struct idem_pg_vacuum *vacuum);

/* --- the store --- */

struct idem_backend {
    struct idem_pg_settings settings;
    struct idem_pg_link link;
    struct idem_pg_params params; /* of one call at a time; kept for their memory */
    struct idem_pg_space space;
    struct idem_pg_vacuum vacuum;
    uint8_t salt_digest[IDEM_DIGEST_SIZE]; /* by which the server knows the salt as its own */
    int64_t deep_us; /* when a sweep is to begin at the very first record again */
    bool is_new;
};

#define IDEM_PG_SQL_SIZE 320

/* --- call.c --- */

/* What one statement can do for several ops. The order is that in which locks are taken. */
enum idem_pg_group {
    IDEM_PG_VERDICT,
    IDEM_PG_CLAIM,
    IDEM_PG_RESOLVE,
    IDEM_PG_FORGET,
    IDEM_PG_PUT,
    IDEM_PG_GET,
    IDEM_PG_SCAN, /* from here on one op a statement */
    IDEM_PG_AUDIT,
    IDEM_PG_SWEEP,
    IDEM_PG_GROUP_COUNT,
};

enum idem_pg_group idem_pg_call_group(const struct idem_op *op);
size_t idem_pg_call_bytes(const struct idem_op *op); /* about what its parameters take */

/* Adds the op's row to the parameters. */
void idem_pg_call_row(struct idem_backend *store, const struct idem_op *op,
                      const struct idem_pg_room *room);

/* Whether so many ops are asked for by plain values, and not by arrays of them. */
bool idem_pg_call_is_lone(enum idem_pg_group group, size_t count);

/* The group's statement, whose parameters are those of a row after `first`, which is SQL. */
void idem_pg_call_sql(const char *schema, enum idem_pg_group group, bool lone, const char *first,
                      char ret_sql[IDEM_PG_SQL_SIZE]);

/* Gives the ops what their rows of the result say. IDEM_ERR_NOMEM, _CORRUPT. */
IDEM_MUST_CHECK int idem_pg_call_decode(struct idem_backend *store, enum idem_pg_group group,
                                        const PGresult *result, struct idem_op *const *ops,
                                        size_t count, const struct idem_pg_room *room);

/* --- named.c --- */

extern const char idem_pg_guard_sql[];

/* The statement of these words, if a connection can have it by name. */
enum idem_pg_named idem_pg_named_call(enum idem_pg_group group, bool lone, const char *first);

/* A round trip that gives the connection its statements. DONE, another outcome or an error. */
IDEM_MUST_CHECK int idem_pg_named_prepare(struct idem_pg_link *link, int64_t deadline_us);

/* --- keep.c --- */

void idem_pg_scan_states(const struct idem_scan *in, char *ret_sql, size_t size);
void idem_pg_scan_row(struct idem_pg_params *params, const struct idem_scan *in);
IDEM_MUST_CHECK int idem_pg_scan_decode(const PGresult *result, struct idem_op *op);
void idem_pg_audit_row(struct idem_pg_params *params, const struct idem_audit *in);
IDEM_MUST_CHECK int idem_pg_audit_decode(const PGresult *result, struct idem_op *op);
void idem_pg_sweep_row(struct idem_pg_params *params, const struct idem_sweep *in);

/*
 * A deep sweep begins at the very first record, for what others held when sweeps passed by. It may
 * have to walk past what is gone and cannot be cleaned up yet, so its time is bounded.
 */
#define IDEM_PG_DEEP_US (IDEM_SECOND_US / 25)
bool idem_pg_sweep_is_deep(const struct idem_backend *store);
void idem_pg_sweep_deep_done(struct idem_backend *store, bool soon);
IDEM_MUST_CHECK int idem_pg_sweep_decode(struct idem_backend *store, const PGresult *result,
                                         struct idem_op *op);

/* --- batch.c, describe.c, schema.c --- */

IDEM_MUST_CHECK int idem_pg_apply(struct idem_backend *store, struct idem_op *const *ops,
                                  size_t count, struct idem_message *message);
size_t idem_pg_describe(struct idem_backend *store, struct idem_store_fact *facts, size_t max);
IDEM_MUST_CHECK int idem_pg_migrate(const struct idem_url *url, int version,
                                    struct idem_migration *ret_migration,
                                    struct idem_message *message);

#endif
