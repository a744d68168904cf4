/*
 * The statements that a gateway asks all the time are parsed and planned once a connection, and not
 * with each claim.
 *
 *   1. only where no pooler is between: one in transaction mode gives the next transaction another
 *      server process, which does not know them. The process that answers is then not the one
 *      that the connection was made to
 *   2. a name is this connection's alone: a process that somebody else used before can at most
 *      not have it, and never mean another statement by it
 *   3. a statement that the server does not have any more, or whose columns have changed since, is
 *      rolled back, and from then on parsed each time until another connection is made
 */
#include <sodium.h>
#include <stdio.h>

#include "store/postgres/postgres_store.h"

const char idem_pg_guard_sql[] =
    "SELECT set_config('synchronous_commit',$1,true),set_config('statement_timeout',$2,true),"
    "set_config('client_min_messages','warning',true),pg_postmaster_start_time()";

/* The groups of ops that are asked all the time. */
static const struct {
    enum idem_pg_named named;
    enum idem_pg_group group;
    bool lone;
    const char *first;
} calls[] = {
    {IDEM_PG_NAMED_CLAIM, IDEM_PG_CLAIM, false, "true"},
    {IDEM_PG_NAMED_CLAIM_LONE, IDEM_PG_CLAIM, true, "true"},
    {IDEM_PG_NAMED_VERDICT, IDEM_PG_VERDICT, false, ""},
    {IDEM_PG_NAMED_VERDICT_LONE, IDEM_PG_VERDICT, true, ""},
    {IDEM_PG_NAMED_GET, IDEM_PG_GET, false, ""},
};

enum idem_pg_named idem_pg_named_call(enum idem_pg_group group, bool lone, const char *first)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (calls[i].group == group && calls[i].lone == lone && strcmp(calls[i].first, first) == 0)
            return calls[i].named;
    return IDEM_PG_NAMED_NONE;
}

int idem_pg_named_prepare(struct idem_pg_link *link, int64_t deadline_us)
{
    struct idem_pg_trip trip = {.link = link, .deadline_us = deadline_us};
    char sql[IDEM_PG_SQL_SIZE];
    uint8_t bytes[8];
    char token[2 * sizeof bytes + 1];
    int outcome;

    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(token, sizeof token, bytes, sizeof bytes);
    for (size_t i = 0; i < IDEM_PG_NAMED_COUNT; i++)
        snprintf(link->names[i], sizeof link->names[i], "idem_%s_%zu", token, i);
    outcome = idem_pg_trip_prepare(&trip, IDEM_PG_NAMED_GUARD, idem_pg_guard_sql);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0] && !outcome; i++) {
        idem_pg_call_sql(link->settings->schema, calls[i].group, calls[i].lone, calls[i].first,
                         sql);
        outcome = idem_pg_trip_prepare(&trip, calls[i].named, sql);
    }
    if (!outcome)
        outcome = idem_pg_trip_end(&trip);
    idem_pg_trip_free(&trip);
    link->named = !outcome;
    return outcome;
}
