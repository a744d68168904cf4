/*
 * One round trip: statements are sent one behind the other without waiting for answers (libpq's
 * pipeline mode), and one Sync message at the end commits them all, or none. A transaction that is
 * never left open between two packets of ours is what pgbouncer can give to any of its
 * connections.
 *
 *   1. the first statement sets, for this transaction alone, how durable its commit is to be, how
 *      long the server may work on it (one that outlives its caller must not act much later), and
 *      that it may not keep to itself that it did not wait for a standby
 *   2. a link that is in doubt asks for a commit that confirms everything before it: by the last
 *      statement, for rows of keys are locked before that of the whole store, here as everywhere
 *   3. results are looked at only when the Sync was answered: before, nothing is certain
 *   4. behind pgbouncer a server may go and come back, or another one take its place, while this
 *      connection stays: what is seen there is in doubt as after any lost connection
 *
 * Sending and receiving go on side by side, because a server that cannot get rid of its answers
 * stops reading.
 */
#include <assert.h>
#include <stdio.h>

#include "store/postgres/postgres_store.h"

void idem_pg_trip_free(struct idem_pg_trip *trip)
{
    for (size_t i = 0; i < trip->count; i++) {
        PQclear(trip->results[i]);
        trip->results[i] = NULL;
    }
    trip->count = 0;
}

/* libpq refuses to go on: the connection was lost, or there is no memory. */
static int trip_lost(struct idem_pg_trip *trip)
{
    struct idem_pg_link *link = trip->link;
    char place[IDEM_PG_PLACE_SIZE];
    const char *reason = link->connection ? PQerrorMessage(link->connection) : "";

    idem_message_set(&link->message, "%s was lost: %.*s",
                     idem_pg_link_place(link, place, sizeof place), (int)strcspn(reason, "\n"),
                     reason);
    link->sqlstate[0] = '\0';
    link->doubtful = true;
    idem_pg_link_close(link);
    idem_pg_trip_free(trip);
    return IDEM_PG_LOST;
}

/* The parameters of a statement, as libpq takes them; NULL formats: all are text. */
struct values {
    int count;
    const Oid *types;
    const char *const *values;
    const int *sizes, *formats;
};

static int statement_send(struct idem_pg_trip *trip, enum idem_pg_named named, const char *sql,
                          const struct values *in)
{
    struct idem_pg_link *link = trip->link;
    int sent;

    if (named != IDEM_PG_NAMED_NONE && link->named)
        sent = PQsendQueryPrepared(link->connection, link->names[named], in->count, in->values,
                                   in->sizes, in->formats, 1);
    else
        sent = PQsendQueryParams(link->connection, sql, in->count, in->types, in->values, in->sizes,
                                 in->formats, 1);
    if (!sent)
        return trip_lost(trip);
    trip->results[trip->count++] = NULL;
    return IDEM_PG_DONE;
}

int idem_pg_trip_send(struct idem_pg_trip *trip, enum idem_pg_named named, const char *sql,
                      struct idem_pg_params *params)
{
    Oid types[IDEM_PG_PARAMS_MAX];
    const char *values[IDEM_PG_PARAMS_MAX];
    int sizes[IDEM_PG_PARAMS_MAX], formats[IDEM_PG_PARAMS_MAX];
    size_t count = params ? params->column_count : 0;

    assert(trip->count < IDEM_PG_STATEMENTS_MAX);
    if (params) {
        idem_pg_params_finish(params);
        if (params->failed) {
            idem_message_set(&trip->link->message, "there is no memory left for a batch");
            idem_pg_link_close(trip->link); /* what was sent before is not to be committed */
            return IDEM_ERR_NOMEM;
        }
    }
    for (size_t i = 0; i < count; i++) {
        const struct idem_pg_column *column = &params->columns[i];

        types[i] = idem_pg_column_type(column);
        values[i] = column->data ? (const char *)column->data : "";
        if (!column->array && column->is_null)
            values[i] = NULL;
        sizes[i] = (int)column->size;
        formats[i] = 1;
    }
    return statement_send(trip, named, sql,
                          &(struct values){(int)count, types, values, sizes, formats});
}

int idem_pg_trip_prepare(struct idem_pg_trip *trip, enum idem_pg_named named, const char *sql)
{
    assert(trip->count < IDEM_PG_STATEMENTS_MAX);
    if (!PQsendPrepare(trip->link->connection, trip->link->names[named], sql, 0, NULL))
        return trip_lost(trip);
    trip->results[trip->count++] = NULL;
    return IDEM_PG_DONE;
}

/* The columns of the first statement, as far as they are looked at. */
enum guard_field { GUARD_STARTED = 3 };

static int guard_send(struct idem_pg_trip *trip, bool sync, int64_t work_us)
{
    int64_t left_us = trip->deadline_us - idem_pg_now_us();
    int64_t left_ms = (left_us < work_us ? left_us : work_us) / 1000;
    char milliseconds[24];
    const char *words[] = {sync ? trip->link->sync_word : "off", milliseconds};

    snprintf(milliseconds, sizeof milliseconds, "%lld", (long long)(left_ms > 1 ? left_ms : 1));
    return statement_send(trip, IDEM_PG_NAMED_GUARD, idem_pg_guard_sql,
                          &(struct values){.count = 2, .values = words});
}

int idem_pg_trip_begin(struct idem_pg_trip *trip, struct idem_pg_link *link, bool sync,
                       int64_t work_us, int64_t deadline_us)
{
    int outcome = IDEM_PG_DONE;

    *trip = (struct idem_pg_trip){.link = link, .deadline_us = deadline_us, .guarded = true};
    if (link->set_isolation)
        outcome = idem_pg_trip_send(trip, IDEM_PG_NAMED_NONE,
                                    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", NULL);
    if (!outcome)
        outcome = guard_send(trip, sync, work_us);
    trip->confirms = sync && link->doubtful;
    trip->preface = trip->count;
    return outcome;
}

static int confirm_send(struct idem_pg_trip *trip)
{
    char sql[IDEM_PG_SQL_SIZE];

    snprintf(sql, sizeof sql, "SELECT \"%s\".idempotency_confirm()", trip->link->settings->schema);
    return idem_pg_trip_send(trip, IDEM_PG_NAMED_NONE, sql, NULL);
}

/* Sends what is left and takes in what has come, until a result is there or nothing is to be sent.
 */
static int result_await(struct idem_pg_trip *trip)
{
    PGconn *connection = trip->link->connection;

    for (;;) {
        int unsent = PQflush(connection);
        int error;

        if (unsent < 0)
            return trip_lost(trip);
        if (!PQisBusy(connection))
            return IDEM_PG_DONE;
        error = idem_pg_link_await(trip->link, unsent > 0, trip->deadline_us);
        if (error) {
            idem_pg_trip_free(trip);
            return error;
        }
        if (!PQconsumeInput(connection))
            return trip_lost(trip);
    }
}

/* True when the server does not have a statement, or has it otherwise: it is not asked by name any
 * more. */
static bool names_refused(struct idem_pg_link *link)
{
    bool named = link->named;

    if (strcmp(link->sqlstate, "26000") != 0 && strcmp(link->sqlstate, "0A000") != 0)
        return false;
    link->named = false;
    return named;
}

/* True when the session's default was another one than when it was connected: it is set each time
 * from then on. */
static bool isolation_refused(struct idem_pg_link *link)
{
    if (strcmp(link->sqlstate, IDEM_PG_STATE_BLIND) != 0)
        return false;
    link->set_isolation = true;
    return true;
}

/* A sentence that says what to do, for what a person can mend; false for others. */
static bool failure_explain(struct idem_pg_link *link, const char *reason)
{
    char place[IDEM_PG_PLACE_SIZE];

    if (strcmp(link->sqlstate, "42501") == 0)
        idem_message_set(&link->message,
                         "the role of the store's URL may not do what a gateway does: %s. GRANT it "
                         "what docs/guide/store-postgres.md lists",
                         reason);
    else if (strcmp(link->sqlstate, "42883") == 0)
        idem_message_set(&link->message,
                         "the schema \"%s\" lacks functions of idem, or has those of another "
                         "build: run `idem migrate URL` as the role that owns them",
                         link->settings->schema);
    else if (strcmp(link->sqlstate, "57014") == 0)
        idem_message_set(&link->message,
                         "%s ended a statement: %s. It took longer than timeout= in the store URL, "
                         "or than the statement_timeout that the server sets for this role",
                         idem_pg_link_place(link, place, sizeof place), reason);
    else if (strcmp(link->sqlstate, IDEM_PG_STATE_SALT) == 0)
        idem_message_set(&link->message,
                         "the store behind this URL is no longer the one that was opened: its "
                         "tables were emptied or made anew, or have taken over another store's "
                         "records. Keys from before are not protected any more");
    else
        return false;
    return true;
}

/* Remembers the first failure of the round trip; those behind it are only "aborted". */
static int failure_note(struct idem_pg_link *link, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    char place[IDEM_PG_PLACE_SIZE];
    char reason[256];

    snprintf(link->sqlstate, sizeof link->sqlstate, "%s", state ? state : "");
    idem_pg_fault_text(result, reason, sizeof reason);
    if (!failure_explain(link, reason))
        idem_message_set(&link->message, "%s refused: %s%s%s%s",
                         idem_pg_link_place(link, place, sizeof place), reason,
                         state ? " (SQLSTATE " : "", state ? state : "", state ? ")" : "");
    if (names_refused(link) || isolation_refused(link))
        return IDEM_PG_AGAIN;
    return state ? idem_pg_fault_judge(state) : IDEM_PG_LOST;
}

/* One answer of the stream; sets *ret_last when it is that of the Sync. */
static int result_take(struct idem_pg_trip *trip, size_t *index, int *failure, bool *ret_last)
{
    int error = result_await(trip);
    PGresult *result;

    if (error)
        return error;
    result = PQgetResult(trip->link->connection);
    if (!result) {
        (*index)++; /* the end of one statement's answers */
        return *index > trip->count + 1 ? trip_lost(trip) : IDEM_PG_DONE;
    }
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        *ret_last = true;
        PQclear(result);
        return IDEM_PG_DONE;
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
        if (*index < trip->count && !trip->results[*index]) {
            trip->results[*index] = result;
            return IDEM_PG_DONE;
        }
        PQclear(result);
        return IDEM_PG_DONE;
    case PGRES_PIPELINE_ABORTED:
        PQclear(result);
        return IDEM_PG_DONE;
    default:
        if (!*failure)
            *failure = failure_note(trip->link, result);
        PQclear(result);
        if (PQstatus(trip->link->connection) == CONNECTION_BAD) {
            trip->link->doubtful = true;
            idem_pg_link_close(trip->link);
            idem_pg_trip_free(trip);
            return *failure < 0 ? *failure : IDEM_PG_LOST;
        }
        return IDEM_PG_DONE;
    }
}

/* What the server said of itself while it did this: DONE, or AGAIN when that leaves a doubt. */
static int server_watch(struct idem_pg_trip *trip)
{
    struct idem_pg_link *link = trip->link;
    bool failed = false;
    int64_t started_us = link->started_us;

    if (trip->guarded)
        started_us =
            idem_pg_cell_instant(trip->results[trip->preface - 1], 0, GUARD_STARTED, &failed);
    if (link->warned) {
        link->doubtful = true;
        idem_message_set(&link->message,
                         "the server did not wait for its standby: whether it is durable there is "
                         "not known");
        return IDEM_PG_AGAIN;
    }
    if (started_us != link->started_us) {
        link->started_us = started_us;
        if (!link->doubtful) {
            link->doubtful = true;
            idem_message_set(&link->message, "the server was started anew, or is another one");
            return IDEM_PG_AGAIN;
        }
    }
    return IDEM_PG_DONE;
}

int idem_pg_trip_end(struct idem_pg_trip *trip)
{
    struct idem_pg_link *link = trip->link;
    size_t index = 0;
    bool last = false;
    int failure = trip->confirms ? confirm_send(trip) : IDEM_PG_DONE;

    if (failure)
        return failure;
    link->warned = false;
    if (!PQpipelineSync(link->connection))
        return trip_lost(trip);
    while (!last) {
        int error = result_take(trip, &index, &failure, &last);

        if (error)
            return error;
    }
    for (size_t i = 0; i < trip->count && !failure; i++)
        if (!trip->results[i])
            failure = trip_lost(trip);
    if (!failure)
        failure = server_watch(trip);
    if (failure) {
        idem_pg_trip_free(trip);
    } else if (trip->confirms) {
        link->doubtful = false;
        PQclear(trip->results[--trip->count]); /* the caller's own is the last one */
        trip->results[trip->count] = NULL;
    }
    return failure;
}

int idem_pg_ask(struct idem_pg_trip *trip, struct idem_pg_link *link, const char *sql,
                struct idem_pg_params *params, bool sync, int64_t deadline_us)
{
    int outcome = idem_pg_trip_begin(trip, link, sync, INT64_MAX, deadline_us);

    if (!outcome)
        outcome = idem_pg_trip_send(trip, IDEM_PG_NAMED_NONE, sql, params);
    if (!outcome)
        outcome = idem_pg_trip_end(trip);
    if (outcome == IDEM_PG_LOST)
        idem_pg_link_close(link);
    return outcome == IDEM_PG_FULL ? IDEM_ERR_FULL : outcome > 0 ? IDEM_ERR_UNAVAILABLE : outcome;
}
