/*
 * The MariaDB and MySQL store's own types, shared by its files:
 *
 *   mariadb.c   the backend's functions: open, close, apply, adopt
 *   options.c   the URL
 *   link.c      one connection and its budget of time: connect, query, fail
 *   fault.c     what the number of a failure means
 *   session.c   what a connection is set to, and what the server must be to be trusted
 *   text.c      statements as text
 *   prepared.c  statements that the server has read before, and their values
 *   row.c       a row of the table from and to a record
 *   batch.c     one batch: what is tried in which order, and when it is repeated
 *   guess.c     the usual ops in one round trip, each on a condition
 *   look.c      ops that turn out to write nothing
 *   locked.c    the rest, with the rows locked
 *   sweep.c     removing what has expired
 *   scan.c      pages of records
 *   audit.c     who resolved or forgot what
 *   space.c     how large the tables are
 *   schema.c    migrating
 *   describe.c  what `idem store check` shows
 *
 * Functions return 0, an outcome of `enum idem_mariadb_outcome`, or an error with its sentence in
 * the link's `fault`.
 */
#ifndef IDEM_STORE_MARIADB_STORE_H
#define IDEM_STORE_MARIADB_STORE_H

#include <idem/store.h>
#include <mysql.h>
#include <sys/types.h>

#include "core/transition.h"
#include "store/backend.h"
#include "store/server.h"

#define IDEM_MARIADB_PORT         3306
#define IDEM_MARIADB_SCHEMA       1          /* the version that this build needs */
#define IDEM_MARIADB_PACKET_MIN   (1u << 20) /* what max_allowed_packet must be at least */
#define IDEM_MARIADB_PATH_SIZE    256
#define IDEM_MARIADB_DATABASE_MAX 64
#define IDEM_MARIADB_VERSION_SIZE 64

#define IDEM_MARIADB_KEYS  "idempotency_keys"
#define IDEM_MARIADB_AUDIT "idempotency_audit"
#define IDEM_MARIADB_META  "idempotency_meta"
#define IDEM_MARIADB_VIEW  "idempotency_readable"

/* The server's clock in microseconds: of the statement's start, and of no time zone. */
#define IDEM_MARIADB_NOW "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"

/*
 * A statement's clock is that of its start, before it has waited for locks. What was measured by it
 * and is older than this when all is written is measured again: a claim that waited must not come
 * with a lease that is over.
 */
#define IDEM_MARIADB_FRESH_US IDEM_SECOND_US

/*
 * Every statement on several ids names the index: on a small table the optimizer would rather read
 * all of it, and wait for rows that are none of its business. Of the two forms of DELETE only the
 * one for many tables takes that.
 */
#define IDEM_MARIADB_DELETE \
    "DELETE gone FROM " IDEM_MARIADB_KEYS " AS gone FORCE INDEX(PRIMARY)WHERE "

/* What a query came to, when it is nobody's fault. The caller repeats, or makes do with less. */
enum idem_mariadb_outcome {
    IDEM_MARIADB_AGAIN = 1,     /* another was faster, or a deadlock: rolled back, repeat */
    IDEM_MARIADB_LOST = 2,      /* the connection is gone, and nobody knows what was done */
    IDEM_MARIADB_FULL = 3,      /* no room for what was to be written: rolled back */
    IDEM_MARIADB_NO_TABLES = 4, /* or none that this build can use */
};

enum idem_mariadb_tls {
    IDEM_MARIADB_TLS_OFF,
    IDEM_MARIADB_TLS_ON,     /* encrypted; the server is not asked who it is */
    IDEM_MARIADB_TLS_VERIFY, /* and its certificate must be the host's */
};

struct idem_mariadb_options {
    struct idem_server server;
    int64_t timeout_us;
    uint64_t size; /* bytes that the tables may take before claims are refused; 0: no bound */
    bool sync;
    enum idem_mariadb_tls tls;
    char socket[IDEM_MARIADB_PATH_SIZE]; /* empty: TCP */
    char ssl_ca[IDEM_MARIADB_PATH_SIZE]; /* empty: the system's */
};

#define IDEM_MARIADB_VALUES_MAX   40
#define IDEM_MARIADB_PREPARED_MAX 8
#define IDEM_MARIADB_TOLD_COLUMNS 2 /* of a row that a statement gives */

/* What stands in a statement's place for a question mark each. Bytes are borrowed. */
struct idem_mariadb_values {
    unsigned columns; /* of the rows that are its answer: IDEM_MARIADB_TOLD_COLUMNS; 0: no rows */
    unsigned count;
    MYSQL_BIND binds[IDEM_MARIADB_VALUES_MAX];
    unsigned long sizes[IDEM_MARIADB_VALUES_MAX];
    uint64_t numbers[IDEM_MARIADB_VALUES_MAX];
};

/* A statement in the making. What did not fit in memory is told once, when it is sent. */
struct idem_mariadb_text {
    char *data;
    size_t size, capacity;
    unsigned statements; /* that are answered by one packet each; 0: others too, or not counted */
    bool failed;
    struct idem_mariadb_values *values; /* where values go; NULL: into the text */
};

/* See prepared.c. */
struct idem_mariadb_prepared {
    MYSQL_STMT *statement; /* NULL: none */
    char *text;
    size_t size;
};

/* One connection. `mysql` is NULL while there is none. */
struct idem_mariadb_link {
    MYSQL *mysql;
    int64_t deadline_us; /* by the host's steady clock: nothing waits longer */
    unsigned awaited;    /* packets that a query still has to be answered by, if that is known */
    bool timed_out;
    struct idem_mariadb_prepared prepared[IDEM_MARIADB_PREPARED_MAX];
    unsigned prepared_next; /* the place for the next one */
    bool unprepared;        /* this connection goes without */
    unsigned code;          /* of the last failure: the server's or the client library's number */
    struct idem_message fault;
};

/* What a session finds when it begins. */
struct idem_mariadb_facts {
    char version[IDEM_MARIADB_VERSION_SIZE]; /* with the name of what it is */
    unsigned flush;                          /* innodb_flush_log_at_trx_commit */
    unsigned sync_binlog;
    bool log_bin, statement_binlog, doublewrite, redo_log, read_only;
    bool returning; /* INSERT can tell of rows that it has written, and of the clock by then */
    size_t packet;  /* max_allowed_packet */
    int schema;     /* version; 0: there is none */
    bool has_salt;
    struct idem_salt salt;
};

/* See space.c. */
struct idem_mariadb_space {
    uint64_t used;      /* bytes of the tables, when that was last asked */
    int64_t checked_us; /* when, by the steady clock; 0: never */
};

struct idem_backend {
    struct idem_mariadb_options options;
    const struct idem_clock *clock; /* NULL: the server's */
    struct idem_mariadb_link link;
    struct idem_mariadb_text text;
    struct idem_mariadb_facts facts;
    struct idem_mariadb_space space;
    struct idem_salt salt;
    uint64_t fence_floor; /* the mark, if the clock was behind it when it was last seen; else 0 */
    bool made;            /* by this opening: it is new */
    pid_t pid;
};

/* One op of a batch. */
struct idem_mariadb_item {
    struct idem_op *op;
    unsigned at;   /* where it stands in the batch */
    bool repeated; /* its id has other ops in this batch */
    bool mixed;    /* and not all of them are claims or gets */
    bool seen;     /* look.c: its row was there */
    bool done;     /* it has its result, and that is durable */
};

/* How much is to be written, once it turned out that there is no room for all. */
enum idem_mariadb_tight {
    IDEM_MARIADB_ROOMY,
    IDEM_MARIADB_NO_CLAIMS,
    IDEM_MARIADB_NO_ANSWERS,
};

/* Items on ids in the order of their ids, those of one id in the batch's. */
struct idem_mariadb_batch {
    struct idem_backend *store;
    struct idem_mariadb_item *items;
    size_t count;
    bool room;
    enum idem_mariadb_tight tight;
};

/* options.c */
IDEM_MUST_CHECK int idem_mariadb_options_read(const struct idem_url *url,
                                              struct idem_mariadb_options *ret_options,
                                              struct idem_message *message);

/* link.c. A result that `take` wants to keep it sets to NULL; its failure closes the connection. */
typedef int idem_mariadb_take(void *context, unsigned statement, MYSQL_RES **result,
                              uint64_t affected);

int64_t idem_mariadb_steady_us(void);
void idem_mariadb_pause(struct idem_mariadb_link *link, int64_t length_us);
IDEM_MUST_CHECK int idem_mariadb_connect(struct idem_mariadb_link *link,
                                         const struct idem_mariadb_options *options,
                                         const char *database);
void idem_mariadb_disconnect(struct idem_mariadb_link *link);

/* Waits for what a call of the library asked for; returns what has happened, in its words. */
int idem_mariadb_wait(struct idem_mariadb_link *link, int wanted);
IDEM_MUST_CHECK int idem_mariadb_query(struct idem_mariadb_link *link,
                                       const struct idem_mariadb_text *text,
                                       idem_mariadb_take *take, void *context);
IDEM_MUST_CHECK int idem_mariadb_fault(struct idem_mariadb_link *link, int error,
                                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* prepared.c */

/* What a statement came to: the rows that it changed, and what it told by LAST_INSERT_ID(); or the
 * rows that it gave, and what the first began with. */
struct idem_mariadb_told {
    uint64_t count;
    int64_t number;
};

void idem_mariadb_value_bytes(struct idem_mariadb_values *values, struct idem_bytes bytes);
void idem_mariadb_value_number(struct idem_mariadb_values *values, uint64_t number);

/* Runs one statement by its values, which is a transaction by itself. */
IDEM_MUST_CHECK int idem_mariadb_execute(struct idem_mariadb_link *link,
                                         const struct idem_mariadb_text *text,
                                         struct idem_mariadb_told *ret_told);

/* With the connection closed. */
void idem_mariadb_prepared_forget(struct idem_mariadb_link *link);

/* fault.c: what the number of a failure means. */
IDEM_MUST_CHECK int idem_mariadb_failure(struct idem_mariadb_link *link, unsigned code,
                                         const char *words);

/* session.c */
IDEM_MUST_CHECK int idem_mariadb_session_begin(struct idem_mariadb_link *link,
                                               const struct idem_mariadb_options *options,
                                               struct idem_mariadb_text *text,
                                               struct idem_mariadb_facts *ret_facts);
IDEM_MUST_CHECK int idem_mariadb_session_check(struct idem_mariadb_link *link,
                                               const struct idem_mariadb_options *options,
                                               const struct idem_mariadb_facts *facts);
IDEM_MUST_CHECK int idem_mariadb_session_need(struct idem_backend *store);

/* There is no meta row, or another one: its fault. */
IDEM_MUST_CHECK int idem_mariadb_replaced(struct idem_backend *store);

/* text.c */
void idem_mariadb_text_deinit(struct idem_mariadb_text *text);
void idem_mariadb_text_clear(struct idem_mariadb_text *text);
void idem_mariadb_text_add(struct idem_mariadb_text *text, const char *words);
void idem_mariadb_text_signed(struct idem_mariadb_text *text, int64_t number);
void idem_mariadb_text_unsigned(struct idem_mariadb_text *text, uint64_t number);

/* A question mark where values go elsewhere; else digits, and x'..'. */
void idem_mariadb_text_value(struct idem_mariadb_text *text, uint64_t number);
void idem_mariadb_text_bytes(struct idem_mariadb_text *text, struct idem_bytes bytes);
void idem_mariadb_text_id(struct idem_mariadb_text *text, const struct idem_id *id);

/* " FROM … WHERE …": the meta row, if it is still that of the store that was opened. */
void idem_mariadb_text_meta(struct idem_mariadb_text *text, const struct idem_backend *store);
/*
 * Around a condition: an expression that ends the statement, and with it the batch, unless it
 * holds. That there is no such number as e to the power of 999 is an error in every mode of the
 * server, and the cheapest that an expression can run into.
 */
#define IDEM_MARIADB_ONLY_IF  "EXP(IF("
#define IDEM_MARIADB_OR_AGAIN ",0,999))"
void idem_mariadb_text_now(struct idem_mariadb_text *text, const struct idem_backend *store);

/* The later of an instant that is written as `now`, and `fence`. */
void idem_mariadb_text_fence(struct idem_mariadb_text *text, const char *now, uint64_t fence);

/* mariadb.c: ends the link's patience so long from now. */
void idem_mariadb_budget(struct idem_backend *store);
IDEM_MUST_CHECK int idem_mariadb_run(struct idem_backend *store, idem_mariadb_take *take,
                                     void *context);

/* row.c */

/* Sets of columns that change together. */
enum {
    IDEM_MARIADB_COLUMNS_STATE = 1, /* state, reason, updated */
    IDEM_MARIADB_COLUMNS_LEASE = 2,
    IDEM_MARIADB_COLUMNS_EXPIRY = 4, /* expires, and the hint to the sweeper if there was none */
    IDEM_MARIADB_COLUMNS_ANSWER = 8,
    IDEM_MARIADB_COLUMNS_PERSON = 16, /* owner and resolution */
    IDEM_MARIADB_COLUMNS_ALL = 32,
};

/* Those that an op may change in a record that it finds. */
unsigned idem_mariadb_columns_of(enum idem_op_kind kind);

/* The columns to read; without answers, headers and body are read as empty. */
void idem_mariadb_row_columns(struct idem_mariadb_text *text, bool answers);

/* Views into the result. IDEM_ERR_CORRUPT when it is no record; *ret_id is set all the same. */
IDEM_MUST_CHECK int idem_mariadb_row_read(MYSQL_RES *result, MYSQL_ROW row,
                                          struct idem_record *ret_record);

/* The id of a row whose first column it is; false when it is none. */
bool idem_mariadb_row_id(MYSQL_RES *result, MYSQL_ROW row, struct idem_id *ret_id);

/* Digits only; NULL is no number. */
bool idem_mariadb_number(const char *text, uint64_t *ret_number);
bool idem_mariadb_instant_read(const char *text, int64_t *ret_instant_us);

/* How the server's clock is written in one row. */
struct idem_mariadb_clock {
    const char *first; /* where it stands first: in created_us of a new row, in updated_us of one */
    const char *again; /* in what comes after that */
};

/*
 * "(column,…)", "(value,…)" and "UPDATE … SET column=value,…". With a clock the record was made at
 * the instant 0, its instants are written as so much after the clock's, and its fence is the
 * clock's unless its own is higher. The first instant in a row is the clock's own.
 */
void idem_mariadb_row_names(struct idem_mariadb_text *text);
void idem_mariadb_row_values(struct idem_mariadb_text *text, const struct idem_record *record,
                             int64_t sweep_us, const struct idem_mariadb_clock *clock);
void idem_mariadb_row_update(struct idem_mariadb_text *text, const struct idem_record *record,
                             unsigned columns, int64_t sweep_us,
                             const struct idem_mariadb_clock *clock);

/* When the sweeper is to look at a record that begins its life. */
int64_t idem_mariadb_sweep_hint(const struct idem_op *op, const struct idem_record *record);

/* Copies a record with all that it views. */
IDEM_MUST_CHECK int idem_mariadb_record_keep(const struct idem_record *record, int64_t now_us,
                                             struct idem_kept_record *ret_kept);

/* batch.c */
void idem_mariadb_batch_begin(struct idem_mariadb_batch *batch, struct idem_backend *store,
                              struct idem_op *const *ops, size_t count,
                              struct idem_mariadb_item items[IDEM_BATCH_MAX]);
IDEM_MUST_CHECK int idem_mariadb_batch_run(struct idem_mariadb_batch *batch);
bool idem_mariadb_room_for(const struct idem_mariadb_batch *batch, const struct idem_op *op);
enum idem_reason idem_mariadb_answer_bar(const struct idem_mariadb_batch *batch,
                                         const struct idem_record *record);

/* What was seen of the mark that outlives removed rows. */
void idem_mariadb_floor_seen(struct idem_backend *store, uint64_t fence_floor, int64_t now_us);

/* The first item of an id, or NULL. */
struct idem_mariadb_item *idem_mariadb_item_find(const struct idem_mariadb_batch *batch,
                                                 const struct idem_id *id);

/* guess.c, look.c, locked.c: each takes the items that are not done, and marks those that are. */
IDEM_MUST_CHECK int idem_mariadb_guess(struct idem_mariadb_batch *batch);
IDEM_MUST_CHECK int idem_mariadb_look(struct idem_mariadb_batch *batch);
IDEM_MUST_CHECK int idem_mariadb_locked(struct idem_mariadb_batch *batch);

/* sweep.c, scan.c, audit.c */
IDEM_MUST_CHECK int idem_mariadb_sweep(struct idem_backend *store, struct idem_op *op);
IDEM_MUST_CHECK int idem_mariadb_scan(struct idem_backend *store, struct idem_op *op);
IDEM_MUST_CHECK int idem_mariadb_audit(struct idem_backend *store, struct idem_op *op);

/* space.c */
IDEM_MUST_CHECK int idem_mariadb_space_look(struct idem_backend *store);
bool idem_mariadb_space_has_room(const struct idem_backend *store);

/* schema.c */
int idem_mariadb_migrate(const struct idem_url *url, int version,
                         struct idem_migration *ret_migration, struct idem_message *message);

/* describe.c */
size_t idem_mariadb_describe(struct idem_backend *store, struct idem_store_fact *facts, size_t max);

#endif
