#include "support.h"

#include <mysql.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/front.h"
#include "store/mariadb/mariadb_store.h"

static const char *server_url(void)
{
    const char *url = getenv("IDEM_TEST_MARIADB");

    if (!url)
        fail_msg("IDEM_TEST_MARIADB is not set: run this through test/servers/with");
    return url;
}

/* "HOST:PORT" */
static const char *server_place(void)
{
    const char *at = strrchr(server_url(), '@');

    assert_non_null(at);
    return at + 1;
}

void url_make(const char *database, const char *options, char ret_url[URL_SIZE])
{
    snprintf(ret_url, URL_SIZE, "%s/%s%s", server_url(), database, options);
}

void url_make_for(const char *user, const char *password, const char *database, const char *options,
                  char ret_url[URL_SIZE])
{
    snprintf(ret_url, URL_SIZE, "mariadb://%s:%s@%s/%s%s", user, password, server_place(), database,
             options);
}

void url_make_through(int port, const char *database, char ret_url[URL_SIZE])
{
    int head = (int)(server_place() - server_url());

    snprintf(ret_url, URL_SIZE, "%.*s127.0.0.1:%d/%s", head, server_url(), port, database);
}

int server_port(void)
{
    const char *colon = strrchr(server_place(), ':');

    assert_non_null(colon);
    return (int)strtol(colon + 1, NULL, 10);
}

const char *database_name(void)
{
    static char names[8][32];
    static unsigned next;
    char *name = names[next % 8];

    snprintf(name, sizeof names[0], "t%ld_%u", (long)getpid(), next++);
    return name;
}

static MYSQL *sql_connect(const char *database)
{
    MYSQL *mysql = mysql_init(NULL);
    unsigned int protocol = MYSQL_PROTOCOL_TCP;
    struct idem_url *url = malloc(sizeof *url);
    struct idem_server server;

    assert_non_null(mysql);
    assert_non_null(url);
    assert_int_equal(idem_url_parse(server_url(), url, NULL), IDEM_OK);
    assert_int_equal(idem_server_parse(url, 3306, &server, NULL), IDEM_OK);
    free(url);
    mysql_optionsv(mysql, MYSQL_OPT_PROTOCOL, &protocol);
    if (!mysql_real_connect(mysql, server.hosts[0].name, server.user, server.password, database,
                            server.hosts[0].port, NULL, CLIENT_MULTI_STATEMENTS))
        fail_msg("%s", mysql_error(mysql));
    return mysql;
}

/* Runs all statements; the last number seen, or -1. */
static int64_t sql_run(MYSQL *mysql, const char *text)
{
    int64_t number = -1;

    if (mysql_real_query(mysql, text, strlen(text)))
        fail_msg("%s: %s", text, mysql_error(mysql));
    for (;;) {
        MYSQL_RES *result = mysql_store_result(mysql);
        MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
        unsigned columns = result ? mysql_num_fields(result) : 0;
        int next;

        if (row && row[columns - 1])
            number = strtoll(row[columns - 1], NULL, 10);
        mysql_free_result(result);
        next = mysql_next_result(mysql);
        if (next > 0)
            fail_msg("%s: %s", text, mysql_error(mysql));
        if (next < 0)
            return number;
    }
}

void sql(const char *database, const char *format, ...)
{
    MYSQL *mysql = sql_connect(database);
    char text[4096];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sql_run(mysql, text);
    mysql_close(mysql);
}

int64_t sql_number(const char *database, const char *format, ...)
{
    MYSQL *mysql = sql_connect(database);
    char text[4096];
    va_list arguments;
    int64_t number;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    number = sql_run(mysql, text);
    mysql_close(mysql);
    return number;
}

/* One that has ended meanwhile is no failure, and is not counted. */
static int64_t kill_one(MYSQL *mysql, const char *id)
{
    char text[64];

    snprintf(text, sizeof text, "KILL %s", id);
    if (!mysql_real_query(mysql, text, strlen(text)))
        return 1;
    if (mysql_errno(mysql) != ER_NO_SUCH_THREAD)
        fail_msg("%s: %s", text, mysql_error(mysql));
    return 0;
}

int64_t sql_kill(const char *database)
{
    static const char text[] = "SHOW PROCESSLIST"; /* id, user, host, database … */
    MYSQL *mysql = sql_connect(NULL);
    int64_t count = 0;
    MYSQL_RES *result;
    MYSQL_ROW row;

    if (mysql_real_query(mysql, text, sizeof text - 1))
        fail_msg("%s: %s", text, mysql_error(mysql));
    result = mysql_store_result(mysql);
    assert_non_null(result);
    while ((row = mysql_fetch_row(result)))
        if (row[3] && strcmp(row[3], database) == 0)
            count += kill_one(mysql, row[0]);
    mysql_free_result(result);
    mysql_close(mysql);
    return count;
}

void *sql_hold(const char *database, const char *statements)
{
    MYSQL *mysql = sql_connect(database);

    sql_run(mysql, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION");
    sql_run(mysql, statements);
    return mysql;
}

void sql_more(void *held, const char *statements)
{
    sql_run(held, statements);
}

void sql_commit(void *held)
{
    sql_run(held, "COMMIT");
    mysql_close(held);
}

void sql_release(void *held)
{
    mysql_close(held);
}

struct idem_store *store_make(const char *url)
{
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    return store_open(url);
}

/* Opens as it is, and then has less. */
static int plain_open(const struct idem_url *url, const struct idem_clock *clock,
                      struct idem_backend **ret_backend, struct idem_salt *ret_salt,
                      struct idem_message *message)
{
    int error = idem_backend_mariadb.open(url, clock, ret_backend, ret_salt, message);

    if (!error)
        (*ret_backend)->facts.returning = false;
    return error;
}

struct idem_store *store_make_form(const char *url, const struct idem_clock *clock, bool returning)
{
    static struct idem_backend_ops plain; /* for as long as the store is open */
    struct idem_message message = {""};
    struct idem_store *store;
    struct idem_url parsed;

    plain = idem_backend_mariadb;
    plain.open = plain_open;
    migrated(url, IDEM_SCHEMA_LATEST, 0, 1);
    assert_int_equal(idem_url_parse(url, &parsed, NULL), IDEM_OK);
    if (idem_store_open_backend(returning ? &idem_backend_mariadb : &plain, &parsed, clock, &store,
                                &message))
        fail_msg("%s: %s", url, message.text);
    return store;
}

bool server_has_returning(void)
{
    return sql_number(NULL, "SELECT @@version LIKE '%%MariaDB%%'") == 1;
}
