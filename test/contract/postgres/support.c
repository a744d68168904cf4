#include "support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *server_url(void)
{
    const char *url = getenv("IDEM_TEST_POSTGRES");

    if (!url)
        fail_msg("IDEM_TEST_POSTGRES is not set: run this through test/servers/with");
    return url;
}

const char *schema_name(void)
{
    static char names[8][32];
    static unsigned next;
    char *name = names[next % 8];

    snprintf(name, sizeof names[0], "t%ld_%u", (long)getpid(), next++);
    return name;
}

void url_make(const char *schema, const char *options, char ret_url[URL_SIZE])
{
    snprintf(ret_url, URL_SIZE, "%s?schema=%s%s%s", server_url(), schema, options[0] ? "&" : "",
             options);
}

void url_make_for(const char *user, const char *schema, const char *options, char ret_url[URL_SIZE])
{
    const char *at = strrchr(server_url(), '@');

    assert_non_null(at);
    snprintf(ret_url, URL_SIZE, "postgresql://%s%s?schema=%s%s%s", user, at, schema,
             options[0] ? "&" : "", options);
}

static void notice_drop(void *argument, const char *text)
{
    (void)argument;
    (void)text;
}

static PGconn *connect_to(const char *url)
{
    PGconn *connection = PQconnectdb(url);

    if (PQstatus(connection) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(connection));
    PQsetNoticeProcessor(connection, notice_drop, NULL);
    return connection;
}

PGconn *sql_connect(const char *user)
{
    const char *at = strrchr(server_url(), '@');
    char url[URL_SIZE];

    snprintf(url, sizeof url, "postgresql://%s%s", user, at);
    return connect_to(url);
}

int64_t sql(const char *format, ...)
{
    PGconn *connection = connect_to(server_url());
    char text[4096];
    va_list arguments;
    PGresult *result;
    int64_t number = 0;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    result = PQexec(connection, text);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", text, PQerrorMessage(connection));
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
        number = strtoll(PQgetvalue(result, PQntuples(result) - 1, 0), NULL, 10);
    PQclear(result);
    PQfinish(connection);
    return number;
}

const char *sql_state(PGconn *connection, const char *format, ...)
{
    static char state[8];
    char text[4096];
    va_list arguments;
    PGresult *result;
    const char *found;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    result = PQexec(connection, text);
    found = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(state, sizeof state, "%s", found ? found : "00000");
    PQclear(result);
    return state;
}

struct idem_store *store_make(const char *url)
{
    struct idem_message message = {""};
    struct idem_migration migration;

    if (idem_store_migrate(url, IDEM_SCHEMA_LATEST, &migration, &message))
        fail_msg("%s: %s", url, message.text);
    return store_open(url);
}

int64_t waiting_for(const char *what)
{
    return sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = '%s' OR wait_event = "
               "'%s'",
               what, what);
}
