/*
 * One connection to a server that takes writes. libpq is used without blocking: between its calls
 * the socket is polled here, so that nothing takes longer than the deadline of the whole call. A
 * connection that let a deadline pass is closed and never used again: what was asked on it may
 * still come.
 *
 *   1. the hosts of the URL are tried in turn, from the one that served last, each with its share
 *      of the time that is left; one that is a standby is passed over
 *   2. in one round trip the server is asked what it is, and which schema version it has
 *   3. settings that cannot keep what the URL asks for are refused (design 5.3)
 *   4. where no pooler is between, the connection is given its statements
 *
 * Nothing else is set for the session: behind pgbouncer the next transaction has another one.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include "store/postgres/postgres_store.h"

#define HOST_PAIRS 2 /* host and port */

int64_t idem_pg_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000;
}

void idem_pg_link_init(struct idem_pg_link *link, const struct idem_pg_settings *settings)
{
    memset(link, 0, sizeof *link);
    link->settings = settings;
    link->doubtful = true;
    snprintf(link->sync_word, sizeof link->sync_word, "on");
}

void idem_pg_link_close(struct idem_pg_link *link)
{
    PQfinish(link->connection);
    link->connection = NULL;
}

const char *idem_pg_link_place(const struct idem_pg_link *link, char *ret_text, size_t size)
{
    const struct idem_server_host *host = &link->settings->server.hosts[link->host];

    snprintf(ret_text, size, "the PostgreSQL server at %s:%u", host->name, (unsigned)host->port);
    return ret_text;
}

static int link_timeout(struct idem_pg_link *link)
{
    char place[IDEM_PG_PLACE_SIZE];

    idem_message_set(&link->message, "%s did not answer within %lld ms",
                     idem_pg_link_place(link, place, sizeof place),
                     (long long)(link->settings->timeout_us / 1000));
    link->sqlstate[0] = '\0';
    link->doubtful = true;
    idem_pg_link_close(link);
    return IDEM_ERR_TIMEOUT;
}

int idem_pg_link_await(struct idem_pg_link *link, bool write, int64_t deadline_us)
{
    struct pollfd polled = {.fd = PQsocket(link->connection),
                            .events = (short)(POLLIN | (write ? POLLOUT : 0))};

    for (;;) {
        int64_t left_us = deadline_us - idem_pg_now_us();
        int ready;

        if (left_us <= 0)
            return link_timeout(link);
        ready = poll(&polled, 1, (int)(left_us / 1000 + 1));
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return IDEM_PG_DONE; /* libpq will find out what is wrong */
    }
}

/*
 * Where a server asks for a password and there is none: what to do. libpq passes over a file that
 * it may not read, or that others may, and over one in the home of another user.
 */
static const char *password_advice(const struct idem_pg_link *link)
{
    const struct idem_pg_settings *settings = link->settings;

    if (!PQconnectionNeedsPassword(link->connection))
        return "";
    for (size_t i = 0; i < settings->pair_count; i++)
        if (strcmp(settings->keywords[i], "passfile") == 0)
            return ". See that the user of this process may read the file of passfile=, that "
                   "nobody else may, and that a line of it is for this server, database and user";
    return ". Write it into the store's URL, or name by passfile= a file that the user of this "
           "process may read, and nobody else";
}

/* The reason that libpq gives, without its line breaks; it names host and user, never a password.
 */
static int link_lost(struct idem_pg_link *link)
{
    char place[IDEM_PG_PLACE_SIZE];
    char reason[256];
    size_t size = 0;

    for (const char *text = PQerrorMessage(link->connection); *text && size < sizeof reason - 1;
         text++)
        reason[size++] = *text == '\n' ? ' ' : *text;
    while (size > 0 && reason[size - 1] == ' ')
        size--;
    reason[size] = '\0';
    idem_message_set(&link->message, "%s cannot be used: %s%s",
                     idem_pg_link_place(link, place, sizeof place),
                     size > 0 ? reason : "the connection was closed", password_advice(link));
    link->sqlstate[0] = '\0';
    link->doubtful = true;
    idem_pg_link_close(link);
    return IDEM_PG_LOST;
}

/*
 * A commit that stops waiting for its standby says so by a warning, and has no SQLSTATE of its own
 * for that: it is known by the function that gives it. Whose name is missing is taken for it.
 */
static void notice_receive(void *argument, const PGresult *result)
{
    struct idem_pg_link *link = argument;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);

    if (severity && strcmp(severity, "WARNING") == 0 &&
        (!function || strcmp(function, "SyncRepWaitForLSN") == 0))
        link->warned = true;
}

PGconn *idem_pg_connection_start(const struct idem_pg_link *link)
{
    const struct idem_pg_settings *settings = link->settings;
    const struct idem_server_host *host = &settings->server.hosts[link->host];
    char port[8];
    const char *keywords[IDEM_PG_PAIRS_MAX + HOST_PAIRS + 1] = {"host", "port"};
    const char *values[IDEM_PG_PAIRS_MAX + HOST_PAIRS + 1] = {host->name, port};

    snprintf(port, sizeof port, "%u", (unsigned)host->port);
    memcpy(keywords + HOST_PAIRS, settings->keywords, settings->pair_count * sizeof keywords[0]);
    memcpy(values + HOST_PAIRS, settings->values, settings->pair_count * sizeof values[0]);
    keywords[HOST_PAIRS + settings->pair_count] = NULL;
    return PQconnectStartParams(keywords, values, 0);
}

static int host_connect(struct idem_pg_link *link, int64_t deadline_us)
{
    PostgresPollingStatusType wanted = PGRES_POLLING_WRITING;

    link->connection = idem_pg_connection_start(link);
    if (!link->connection) {
        idem_message_set(&link->message, "there is no memory left for a connection");
        return IDEM_ERR_NOMEM;
    }
    link->doubtful = true;
    link->named = false;
    PQsetNoticeReceiver(link->connection, notice_receive, link);
    if (PQstatus(link->connection) == CONNECTION_BAD)
        return link_lost(link);
    while (wanted != PGRES_POLLING_OK) {
        int error = idem_pg_link_await(link, wanted == PGRES_POLLING_WRITING, deadline_us);

        if (error)
            return error;
        wanted = PQconnectPoll(link->connection);
        if (wanted == PGRES_POLLING_FAILED)
            return link_lost(link);
    }
    if (PQsetnonblocking(link->connection, 1) || !PQenterPipelineMode(link->connection))
        return link_lost(link);
    return IDEM_PG_DONE;
}

/* What the server is asked before anything else; the columns are named in server_judge. */
static const char server_question[] =
    "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', "
    "current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on', "
    "current_setting('synchronous_commit')::text, "
    "current_setting('transaction_isolation') = 'read committed', pg_backend_pid()";

static bool cell_true(const PGresult *result, int column)
{
    struct idem_bytes cell = idem_pg_cell_bytes(result, 0, column);

    return cell.size == 1 && cell.data[0] != 0;
}

static int refuse(struct idem_pg_link *link, int error, const char *why)
{
    char place[IDEM_PG_PLACE_SIZE];

    idem_message_set(&link->message, "%s %s", idem_pg_link_place(link, place, sizeof place), why);
    link->sqlstate[0] = '\0';
    return error;
}

static int server_judge(struct idem_pg_link *link, const PGresult *result)
{
    bool stronger = idem_pg_cell_is(result, 0, 4, "remote_apply");
    bool failed = false;

    if (PQserverVersion(link->connection) < IDEM_PG_SERVER_MIN)
        return refuse(link, IDEM_ERR_UNSUPPORTED, "is older than PostgreSQL 12: update it");
    if (cell_true(result, 0))
        return refuse(link, IDEM_PG_LOST,
                      "is a standby, which takes no writes: name the primary, or all hosts as "
                      "//HOST1,HOST2/DATABASE");
    if (cell_true(result, 1))
        return refuse(link, IDEM_PG_LOST,
                      "is read only (default_transaction_read_only): set it to off for this "
                      "database and role");
    if (link->settings->sync && !cell_true(result, 2))
        return refuse(link, IDEM_ERR_UNSAFE,
                      "has fsync=off and would lose records in a crash: set fsync=on, or open the "
                      "store with sync=off");
    if (link->settings->sync && !cell_true(result, 3))
        return refuse(link, IDEM_ERR_UNSAFE,
                      "has full_page_writes=off and may be damaged by a crash: set it on, or open "
                      "the store with sync=off");
    snprintf(link->sync_word, sizeof link->sync_word, "%s", stronger ? "remote_apply" : "on");
    link->set_isolation = !cell_true(result, 5);
    link->direct =
        idem_pg_cell_number(result, 0, 6, &failed) == PQbackendPID(link->connection) && !failed;
    return IDEM_PG_DONE;
}

/* Why the version could not be read, from the link's last failure. */
static int schema_missing(struct idem_pg_link *link, int outcome)
{
    const char *schema = link->settings->schema;
    bool forbidden = strcmp(link->sqlstate, "42501") == 0;
    bool absent = strcmp(link->sqlstate, "42883") == 0 || strcmp(link->sqlstate, "3F000") == 0;

    if (forbidden)
        idem_message_set(&link->message,
                         "the role of the store's URL may not use the schema \"%s\": GRANT it what "
                         "docs/guide/store-postgres.md lists",
                         schema);
    else if (absent)
        idem_message_set(&link->message,
                         "the schema \"%s\" has no tables of idem: run `idem migrate URL` with "
                         "this URL, as the role that is to own them",
                         schema);
    else
        return outcome;
    return IDEM_ERR_UNAVAILABLE;
}

int idem_pg_meta_lost(struct idem_pg_link *link)
{
    idem_message_set(
        &link->message,
        "the row of idempotency_meta in the schema \"%s\" is gone, and with it the salt "
        "that the keys need: restore it from a backup, or drop idem's tables there "
        "(with DROP SCHEMA, if nothing else is in it) and begin a new store with `idem "
        "migrate URL`",
        link->settings->schema);
    return IDEM_ERR_CORRUPT;
}

static int schema_judge(struct idem_pg_link *link, const PGresult *result)
{
    bool failed = false;
    long long version = idem_pg_cell_number(result, 0, 0, &failed);

    if (version == IDEM_PG_SCHEMA_VERSION && !failed)
        return IDEM_PG_DONE;
    if (PQgetisnull(result, 0, 0))
        return idem_pg_meta_lost(link);
    idem_message_set(&link->message,
                     "the schema \"%s\" has version %lld and this build needs version %d: run "
                     "`idem migrate URL` of this build, or use the build that it was made by",
                     link->settings->schema, version, IDEM_PG_SCHEMA_VERSION);
    return IDEM_ERR_UNSUPPORTED;
}

static int server_ask(struct idem_pg_link *link, int64_t deadline_us)
{
    struct idem_pg_trip trip = {.link = link, .deadline_us = deadline_us};
    int outcome = idem_pg_trip_send(&trip, IDEM_PG_NAMED_NONE, server_question, NULL);

    if (!outcome)
        outcome = idem_pg_trip_end(&trip);
    if (!outcome)
        outcome = server_judge(link, trip.results[0]);
    idem_pg_trip_free(&trip);
    return outcome;
}

static int schema_ask(struct idem_pg_link *link, int64_t deadline_us)
{
    struct idem_pg_trip trip = {.link = link, .deadline_us = deadline_us};
    char sql[IDEM_PG_SQL_SIZE];
    int outcome;

    snprintf(sql, sizeof sql, "SELECT \"%s\".idempotency_version()", link->settings->schema);
    outcome = idem_pg_trip_send(&trip, IDEM_PG_NAMED_NONE, sql, NULL);
    if (!outcome)
        outcome = idem_pg_trip_end(&trip);
    if (!outcome)
        outcome = schema_judge(link, trip.results[0]);
    else
        outcome = schema_missing(link, outcome);
    idem_pg_trip_free(&trip);
    return outcome;
}

static int host_try(struct idem_pg_link *link, bool with_schema, int64_t deadline_us)
{
    int outcome = host_connect(link, deadline_us);

    if (!outcome)
        outcome = server_ask(link, deadline_us);
    if (!outcome && with_schema)
        outcome = schema_ask(link, deadline_us);
    if (!outcome && with_schema && link->direct)
        outcome = idem_pg_named_prepare(link, deadline_us);
    if (outcome)
        idem_pg_link_close(link);
    return outcome;
}

int idem_pg_link_connect(struct idem_pg_link *link, bool with_schema, int64_t deadline_us)
{
    size_t count = link->settings->server.host_count;
    int outcome = IDEM_PG_DONE;

    if (link->connection && PQstatus(link->connection) == CONNECTION_OK)
        return IDEM_PG_DONE;
    idem_pg_link_close(link);
    for (size_t left = count; left > 0; left--) {
        int64_t now_us = idem_pg_now_us();
        int64_t share_us = now_us + (deadline_us - now_us) / (int64_t)left;

        outcome = host_try(link, with_schema, share_us);
        if (outcome != IDEM_PG_LOST && outcome != IDEM_ERR_TIMEOUT)
            return outcome; /* connected, or refused for good */
        if (left > 1)
            link->host = (link->host + 1) % count;
    }
    return outcome;
}
