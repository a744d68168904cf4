#include "support.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct idem_message told;

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

struct idem_store *store_open(const char *url)
{
    struct idem_message message = {""};
    struct idem_store *store = NULL;

    if (idem_store_open(url, NULL, &store, &message))
        fail_msg("%s: %s", url, message.text);
    return store;
}

struct idem_store *store_make(const char *url)
{
    struct idem_message message = {""};
    struct idem_migration migration;

    if (idem_store_migrate(url, IDEM_SCHEMA_LATEST, &migration, &message))
        fail_msg("%s: %s", url, message.text);
    return store_open(url);
}

void migrated(const char *url, int version, int from, int to)
{
    struct idem_message message = {""};
    struct idem_migration migration = {.from = -1, .to = -1};

    if (idem_store_migrate(url, version, &migration, &message))
        fail_msg("%s: %s", url, message.text);
    assert_int_equal(migration.from, from);
    assert_int_equal(migration.to, to);
}

void migration_refused(const char *url, int version, int wanted, const char *words)
{
    struct idem_message message = {""};
    struct idem_migration migration;
    int error = idem_store_migrate(url, version, &migration, &message);

    if (error != wanted || !strstr(message.text, words))
        fail_msg("%d \"%s\" instead of %d \"%s\"", error, message.text, wanted, words);
}

void op_claim(struct idem_op *op, const char *key, const char *owner)
{
    struct idem_claim *in = &op->in.claim;

    memset(op, 0, sizeof *op);
    op->kind = IDEM_OP_CLAIM;
    op->id = id_of(key);
    in->kind = IDEM_KIND_HTTP;
    in->scope = text("scope");
    in->key = text(key);
    in->method = text("POST");
    in->path = text("/payments");
    in->fingerprint = payload_of("payload");
    in->principal = caller_of("alice");
    in->owner = owner_of(owner);
    in->lease_us = LEASE;
    in->ttl_us = TTL;
    in->unknown_ttl_us = UNKNOWN_TTL;
}

void op_verdict(struct idem_op *op, enum idem_op_kind kind, const char *key, const char *owner,
                struct idem_bytes body)
{
    struct idem_verdict *in = &op->in.verdict;

    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->id = id_of(key);
    in->owner = owner_of(owner);
    in->answer.status = 201;
    in->answer.body = body;
    in->ttl_us = TTL;
    in->lease_us = LEASE;
}

void op_get(struct idem_op *op, const char *key)
{
    memset(op, 0, sizeof *op);
    op->kind = IDEM_OP_GET;
    op->id = id_of(key);
}

int apply(struct idem_store *store, struct idem_op *op)
{
    told.text[0] = '\0';
    return idem_store_apply(store, &op, 1, &told);
}

enum idem_result applied(struct idem_store *store, struct idem_op *op)
{
    if (apply(store, op))
        fail_msg("%s: %s", idem_op_kind_text(op->kind), told.text);
    return op->result;
}

enum idem_result claimed(struct idem_store *store, const char *key, const char *owner)
{
    struct idem_op op;
    enum idem_result result;

    op_claim(&op, key, owner);
    result = applied(store, &op);
    idem_op_deinit(&op);
    return result;
}

enum idem_result completed(struct idem_store *store, const char *key, const char *owner,
                           const char *body)
{
    struct idem_op op;
    enum idem_result result;

    op_verdict(&op, IDEM_OP_COMPLETE, key, owner, text(body));
    result = applied(store, &op);
    idem_op_deinit(&op);
    return result;
}

void control(const char *verb)
{
    const char *program = getenv("IDEM_TEST_CONTROL");
    pid_t child;
    int status;

    assert_non_null(program);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(program, program, verb, "postgres", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int64_t steady_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec / 1000;
}

int64_t waiting_for(const char *what)
{
    return sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = '%s' OR wait_event = "
               "'%s'",
               what, what);
}
