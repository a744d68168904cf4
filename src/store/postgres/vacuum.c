/*
 * Cleaning up behind sweeps. PostgreSQL keeps the room of what was removed until VACUUM gives it
 * back, and its autovacuum comes by once in autovacuum_naptime, a minute unless told otherwise.
 * Where keys live for seconds, a minute's worth of them is many times what lives. So a store whose
 * role owns the table starts a VACUUM itself, on a connection of its own that nobody ever waits
 * for:
 *
 *   idle        until enough was swept, or written by keys that live shortly, and not too soon
 *   connecting  a connection is being made
 *   asking      whether this role may, and whether what is gone is much beside what lives
 *   working     the VACUUM runs; one that is at work already (SKIP_LOCKED) is left to it
 *
 * A step is made after each batch, and takes no longer than a look at a socket. Whatever goes wrong
 * ends in idle: this is a help, and nothing that anybody relies on.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/postgres/postgres_store.h"

#define DEAD_MIN         4000
#define LOOK_EVERY_US    (IDEM_SECOND_US / 50)
#define EVERY_US         (2 * IDEM_SECOND_US)
#define AFTER_REFUSAL_US (600 * IDEM_SECOND_US)
#define WORK_US_MAX      (3600 * IDEM_SECOND_US)

/* How many dead rows there are above what is tolerated; NULL: this role is not the owner. */
static const char question[] = "SELECT CASE WHEN pg_has_role(c.relowner, 'USAGE') "
                               "THEN s.n_dead_tup - 2000 - s.n_live_tup / 5 END "
                               "FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid "
                               "WHERE c.oid = '\"%s\".idempotency_keys'::regclass";

void idem_pg_vacuum_count(struct idem_pg_vacuum *vacuum, size_t dead)
{
    vacuum->dead += dead;
}

void idem_pg_vacuum_close(struct idem_pg_vacuum *vacuum)
{
    PQfinish(vacuum->connection);
    vacuum->connection = NULL;
    vacuum->step = IDEM_PG_VACUUM_IDLE;
}

static void vacuum_rest(struct idem_pg_vacuum *vacuum, int64_t length_us)
{
    idem_pg_vacuum_close(vacuum);
    vacuum->due_us = idem_pg_now_us() + length_us;
}

static void vacuum_send(struct idem_pg_vacuum *vacuum, const char *format, const char *schema,
                        enum idem_pg_vacuum_step step)
{
    char sql[sizeof question + IDEM_PG_SCHEMA_MAX];

    snprintf(sql, sizeof sql, format, schema);
    vacuum->step = step;
    if (!PQsendQuery(vacuum->connection, sql))
        vacuum_rest(vacuum, EVERY_US);
}

/* libpq blocks when it is asked to go on before the socket is ready for that. */
static void connect_step(struct idem_pg_vacuum *vacuum, const char *schema)
{
    struct pollfd polled = {.fd = PQsocket(vacuum->connection),
                            .events = vacuum->reads ? POLLIN : POLLOUT};
    PostgresPollingStatusType wanted;

    if (poll(&polled, 1, 0) <= 0)
        return;
    wanted = PQconnectPoll(vacuum->connection);
    vacuum->reads = wanted == PGRES_POLLING_READING;
    if (wanted == PGRES_POLLING_FAILED)
        vacuum_rest(vacuum, AFTER_REFUSAL_US);
    if (wanted != PGRES_POLLING_OK)
        return;
    PQsetnonblocking(vacuum->connection, 1);
    vacuum_send(vacuum, question, schema, IDEM_PG_VACUUM_ASKING);
}

/* Begins the VACUUM, or waits until as many more were swept as are missing. */
static void question_answered(struct idem_pg_vacuum *vacuum, const char *schema,
                              const char *surplus)
{
    long long number = surplus ? strtoll(surplus, NULL, 10) : 0;

    vacuum->dead = 0;
    vacuum->needed = number < -DEAD_MIN ? (size_t)-number : DEAD_MIN;
    if (!surplus)
        vacuum_rest(vacuum, AFTER_REFUSAL_US);
    else if (number < 0)
        vacuum_rest(vacuum, EVERY_US);
    else
        vacuum_send(vacuum, "VACUUM (SKIP_LOCKED, TRUNCATE FALSE) \"%s\".idempotency_keys", schema,
                    IDEM_PG_VACUUM_WORKING);
}

/* The answer to the question, or the end of the VACUUM. */
static void answer_step(struct idem_pg_vacuum *vacuum, const char *schema)
{
    PGresult *result, *last = NULL;

    if (PQflush(vacuum->connection) < 0 || !PQconsumeInput(vacuum->connection)) {
        vacuum_rest(vacuum, EVERY_US);
        return;
    }
    if (PQisBusy(vacuum->connection))
        return;
    while ((result = PQgetResult(vacuum->connection)) != NULL) {
        PQclear(last);
        last = result;
    }
    if (vacuum->step == IDEM_PG_VACUUM_WORKING)
        vacuum_rest(vacuum, EVERY_US);
    else
        question_answered(vacuum, schema,
                          PQntuples(last) == 1 && !PQgetisnull(last, 0, 0) ? PQgetvalue(last, 0, 0)
                                                                           : NULL);
    PQclear(last);
}

void idem_pg_vacuum_step(struct idem_pg_vacuum *vacuum, const struct idem_pg_link *link)
{
    const char *schema = link->settings->schema;
    int64_t now_us;

    if (!link->settings->vacuum || (vacuum->step == IDEM_PG_VACUUM_IDLE &&
                                    vacuum->dead < (vacuum->needed ? vacuum->needed : DEAD_MIN)))
        return;
    now_us = idem_pg_now_us();
    if (now_us < vacuum->due_us)
        return;
    vacuum->due_us = now_us + LOOK_EVERY_US;
    switch (vacuum->step) {
    case IDEM_PG_VACUUM_IDLE:
        vacuum->connection = idem_pg_connection_start(link);
        vacuum->step = IDEM_PG_VACUUM_CONNECTING;
        vacuum->reads = false;
        vacuum->until_us = now_us + WORK_US_MAX;
        if (!vacuum->connection || PQstatus(vacuum->connection) == CONNECTION_BAD)
            vacuum_rest(vacuum, AFTER_REFUSAL_US);
        return;
    case IDEM_PG_VACUUM_CONNECTING:
        connect_step(vacuum, schema);
        break;
    case IDEM_PG_VACUUM_ASKING:
    case IDEM_PG_VACUUM_WORKING:
        answer_step(vacuum, schema);
        break;
    }
    if (vacuum->step != IDEM_PG_VACUUM_IDLE && now_us >= vacuum->until_us)
        vacuum_rest(vacuum, AFTER_REFUSAL_US);
}
