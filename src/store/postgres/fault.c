/*
 * What an error of the server means. Decided by SQLSTATE alone: sentences are in the server's
 * language.
 */
#include <stdio.h>

#include "store/postgres/postgres_store.h"

/* A whole SQLSTATE, or the two characters of its class; the first that fits counts. */
static const struct {
    const char *state;
    int outcome;
} meanings[] = {
    {"40001", IDEM_PG_AGAIN},    /* serialization failure */
    {"40P01", IDEM_PG_AGAIN},    /* deadlock */
    {"40", IDEM_PG_AGAIN},       /* other rollbacks */
    {"25006", IDEM_PG_LOST},     /* read only: it is a standby now */
    {"25P03", IDEM_PG_LOST},     /* idle in transaction: a pause between packets */
    {"57014", IDEM_ERR_TIMEOUT}, /* statement_timeout, or somebody cancelled it */
    {"55P03", IDEM_ERR_TIMEOUT}, /* lock_timeout */
    {"57", IDEM_PG_LOST},        /* shutting down, crashed, starting up, dropped */
    {"08", IDEM_PG_LOST},        /* connection exceptions */
    {"53100", IDEM_PG_FULL},     /* disk full */
    {"53200", IDEM_ERR_NOMEM},   /* out of memory */
    {"53", IDEM_PG_LOST},        /* too many connections */
    {"54", IDEM_ERR_INVALID},    /* program limits: too large */
    {"22", IDEM_ERR_INVALID},    /* data exceptions */
    {"23", IDEM_ERR_INVALID},    /* constraints */
    {IDEM_PG_STATE_SALT, IDEM_ERR_UNSAFE},
    {"XX001", IDEM_ERR_CORRUPT}, /* data corrupted */
    {"XX002", IDEM_ERR_CORRUPT}, /* index corrupted */
    {"58", IDEM_ERR_IO},         /* I/O errors */
};

int idem_pg_fault_judge(const char *sqlstate)
{
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (strncmp(sqlstate, meanings[i].state, strlen(meanings[i].state)) == 0)
            return meanings[i].outcome;
    return IDEM_ERR_UNAVAILABLE;
}

void idem_pg_fault_text(const PGresult *result, char *ret_text, size_t size)
{
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    if (!text || !text[0])
        text = PQresultErrorMessage(result);
    if (!text || !text[0])
        text = "no reason was given";
    snprintf(ret_text, size, "%.*s", (int)strcspn(text, "\n"), text);
}
