/*
 * Migration, in one transaction under an advisory lock, so that it is done or not, and several may
 * ask for it at once:
 *
 *   1. BEGIN; the lock; what version is there?
 *   2. one script a step, forward or back, each leaving its version in the meta table; none where
 *      the version is the one that is wanted: then what may be made again is, for somebody may have
 *      dropped or changed it
 *   3. COMMIT
 *
 * Scripts are many statements, which only the simple protocol takes: this connection leaves
 * pipeline mode, and is closed in the end. A transaction-level lock works through pgbouncer too.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "store/postgres/postgres_store.h"
#include "store/postgres/schema.h"

#define SCRIPTS_MAX 7

/* The steps: versions[v] leads from v to v + 1, and back. What is in `again` may be run once more.
 */
static const struct {
    const char *const *once[SCRIPTS_MAX + 1];
    const char *const *again[SCRIPTS_MAX + 1];
    const char *const *back[SCRIPTS_MAX + 1];
} versions[IDEM_PG_SCHEMA_VERSION] = {
    {{idem_pg_sql_tables}, {idem_pg_sql_parts}, {idem_pg_sql_tables_drop}},
    {{NULL},
     {idem_pg_sql_parts, idem_pg_sql_common, idem_pg_sql_claim, idem_pg_sql_verdict,
      idem_pg_sql_people, idem_pg_sql_keep, idem_pg_sql_rules_end},
     {idem_pg_sql_rules_drop}},
};

/* What one migration needs. */
struct work {
    struct idem_pg_link link;
    struct idem_pg_settings settings;
    int64_t deadline_us;
    int from, at, to;
    bool made_schema; /* by a migration, this one or an earlier one */
    bool mended;      /* something had been dropped or changed */
};

static int failure_tell(struct work *work, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *schema = work->settings.schema;
    char reason[256];
    int outcome = idem_pg_fault_judge(state ? state : "08006");

    idem_pg_fault_text(result, reason, sizeof reason);
    if (state && (strcmp(state, "42703") == 0 || strcmp(state, "42P01") == 0))
        idem_message_set(&work->link.message,
                         "the tables in the schema \"%s\" are not as idem makes them: %s. Restore "
                         "them from a backup, or name another schema with the option schema=",
                         schema, reason);
    else if (state && (strcmp(state, "42P07") == 0 || strcmp(state, "42710") == 0 ||
                       strcmp(state, "42723") == 0))
        idem_message_set(&work->link.message,
                         "the schema \"%s\" holds something of the same name that idem did not "
                         "make: %s. Name another schema with the option schema=",
                         schema, reason);
    else if (state && strcmp(state, "42501") == 0)
        idem_message_set(&work->link.message,
                         "this role may not migrate the schema \"%s\": %s. Use the role that owns "
                         "it, or one that may create it",
                         schema, reason);
    else
        idem_message_set(&work->link.message, "the migration of \"%s\" was refused: %s%s%s", schema,
                         reason, state ? ", SQLSTATE " : "", state ? state : "");
    return outcome > 0 ? IDEM_ERR_UNAVAILABLE : outcome;
}

/* Runs SQL by the simple protocol; the last rows, if wanted, are the caller's to clear. */
static int sql_run(struct work *work, const char *sql, PGresult **ret_result)
{
    PGconn *connection = work->link.connection;
    int error = IDEM_OK;

    if (!PQsendQuery(connection, sql))
        return failure_tell(work, NULL);
    for (;;) {
        int unsent = PQflush(connection);
        PGresult *result;

        if (unsent < 0)
            return failure_tell(work, NULL);
        if (PQisBusy(connection)) {
            int waited = idem_pg_link_await(&work->link, unsent > 0, work->deadline_us);

            if (waited)
                return waited;
            if (!PQconsumeInput(connection))
                return failure_tell(work, NULL);
            continue;
        }
        result = PQgetResult(connection);
        if (!result)
            return error;
        if (PQresultStatus(result) == PGRES_TUPLES_OK && ret_result) {
            PQclear(*ret_result);
            *ret_result = result;
            continue;
        }
        if (PQresultStatus(result) == PGRES_FATAL_ERROR && !error)
            error = failure_tell(work, result);
        PQclear(result);
    }
}

/* The first cell of the last rows as a number; `otherwise` where there is none. */
static int number_ask(struct work *work, const char *sql, int otherwise, int *ret_number)
{
    PGresult *result = NULL;
    int error = sql_run(work, sql, &result);

    if (!error)
        *ret_number = PQntuples(result) > 0 && !PQgetisnull(result, 0, 0)
                          ? (int)strtol(PQgetvalue(result, 0, 0), NULL, 10)
                          : otherwise;
    PQclear(result);
    return error;
}

/* Joins a script's lines. The caller frees. */
static char *script_text(const char *const *lines)
{
    size_t size = 1, used = 0;
    char *text;

    for (size_t i = 0; lines[i]; i++)
        size += strlen(lines[i]) + 1;
    text = idem_malloc(size);
    if (!text)
        return NULL;
    for (size_t i = 0; lines[i]; i++)
        used += (size_t)snprintf(text + used, size - used, "%s\n", lines[i]);
    return text;
}

static int script_run(struct work *work, const char *const *lines)
{
    char *text = script_text(lines);
    int error;

    if (!text) {
        idem_message_set(&work->link.message, "there is no memory left for a migration");
        return IDEM_ERR_NOMEM;
    }
    error = sql_run(work, text, NULL);
    idem_free(text);
    return error;
}

static int scripts_run(struct work *work, const char *const *const *scripts)
{
    int error = IDEM_OK;

    for (size_t i = 0; scripts[i] && !error; i++)
        error = script_run(work, scripts[i]);
    return error;
}

/* Tables without the one that says whose they are; a migration back would pass them over. */
static int tables_judge(struct work *work)
{
    const char *schema = work->settings.schema;
    char sql[IDEM_PG_SQL_SIZE];
    int there = 0;
    int error;

    snprintf(sql, sizeof sql,
             "SELECT (coalesce(to_regclass('\"%s\".idempotency_keys'),"
             " to_regclass('\"%s\".idempotency_audit')) IS NOT NULL)::int",
             schema, schema);
    error = number_ask(work, sql, 0, &there);
    if (error || !there)
        return error;
    idem_message_set(
        &work->link.message,
        "the schema \"%s\" holds a table idempotency_keys or idempotency_audit, and no "
        "idempotency_meta that would make them idem's. Name another schema with the "
        "option schema=; if they are idem's, restore them from a backup",
        schema);
    return IDEM_ERR_UNAVAILABLE;
}

/*
 * What has the name of the view for people is made again and dropped, so it must be idem's: a view
 * of idem's keys, whatever its columns. Somebody else's reads other tables, or is no view.
 */
static int view_judge(struct work *work)
{
    const char *schema = work->settings.schema;
    char sql[4 * IDEM_PG_SQL_SIZE];
    int foreign = 0;
    int error;

    snprintf(sql, sizeof sql,
             "SELECT CASE WHEN c.relkind <> 'v' THEN 1 ELSE 2 END FROM pg_class c"
             " WHERE c.relnamespace = to_regnamespace('\"%s\"')"
             " AND c.relname = 'idempotency_records' AND NOT (c.relkind = 'v' AND EXISTS ("
             "SELECT FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid"
             " AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass"
             " WHERE r.ev_class = c.oid AND d.refobjid = to_regclass('\"%s\".idempotency_keys')))",
             schema, schema);
    error = number_ask(work, sql, 0, &foreign);
    if (error || !foreign)
        return error;
    idem_message_set(&work->link.message,
                     "the schema \"%s\" holds %s idempotency_records that idem did not make, and "
                     "idem's view has that name: rename it, or name another schema with the "
                     "option schema=",
                     schema, foreign == 1 ? "something that is no view," : "a view");
    return IDEM_ERR_UNAVAILABLE;
}

/* Step 1. */
static int version_read(struct work *work)
{
    const char *schema = work->settings.schema;
    char sql[4 * IDEM_PG_SQL_SIZE];
    int there = 0, made = 0;
    int error;

    snprintf(sql, sizeof sql,
             "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
             "SET LOCAL statement_timeout = %lld; SET LOCAL synchronous_commit = on;"
             "SELECT pg_advisory_xact_lock(hashtextextended('idem migrate %s', 0));",
             (long long)(work->settings.timeout_us / 1000), schema);
    error = sql_run(work, sql, NULL);
    snprintf(sql, sizeof sql,
             "SELECT (to_regclass('\"%s\".idempotency_meta') IS NOT NULL)::int"
             "     + (to_regnamespace('\"%s\"') IS NOT NULL)::int",
             schema, schema);
    if (!error)
        error = number_ask(work, sql, 0, &there);
    if (!error && there == 0) {
        snprintf(sql, sizeof sql, "CREATE SCHEMA \"%s\"", schema);
        if (work->to > 0)
            error = sql_run(work, sql, NULL);
        work->made_schema = true;
    }
    if (!error && there == 1)
        error = tables_judge(work);
    snprintf(sql, sizeof sql, "SET LOCAL search_path = \"%s\", pg_temp", schema);
    if (!error)
        error = sql_run(work, sql, NULL);
    if (!error && there == 2)
        error = number_ask(work, "SELECT schema_version FROM idempotency_meta", -1, &work->from);
    if (!error && work->from < 0)
        error = idem_pg_meta_lost(&work->link);
    if (!error && there == 2) {
        error = number_ask(work, "SELECT made_schema::int FROM idempotency_meta", 0, &made);
        work->made_schema = made;
    }
    work->at = work->from;
    return error;
}

static int version_note(struct work *work)
{
    char sql[IDEM_PG_SQL_SIZE];

    snprintf(sql, sizeof sql, "UPDATE idempotency_meta SET schema_version = %d, made_schema = %s",
             work->at, work->made_schema ? "true" : "false");
    return work->at > 0 ? sql_run(work, sql, NULL) : IDEM_OK;
}

/* Step 2. */
static int versions_walk(struct work *work)
{
    int error = IDEM_OK;

    if (work->from > IDEM_PG_SCHEMA_VERSION) {
        idem_message_set(&work->link.message,
                         "the schema \"%s\" has version %d, made by a newer build, and this one "
                         "knows %d: migrate it back with the build that made it",
                         work->settings.schema, work->from, IDEM_PG_SCHEMA_VERSION);
        return IDEM_ERR_UNSUPPORTED;
    }
    while (work->at != work->to && !error) {
        bool forward = work->at < work->to;
        int step = forward ? work->at : work->at - 1;

        error = scripts_run(work, forward ? versions[step].once : versions[step].back);
        if (!error && forward)
            error = scripts_run(work, versions[step].again);
        work->at += forward ? 1 : -1;
        if (!error)
            error = version_note(work);
    }
    return error;
}

/* Step 2 where there is no step to take. */
static int parts_mend(struct work *work)
{
    int differs = 0;
    int error;

    if (work->from != work->to || work->to == 0)
        return IDEM_OK;
    error = number_ask(work,
                       "SELECT (to_regclass('idempotency_records') IS NULL"
                       " OR to_regclass('idempotency_keys_sweep') IS NULL"
                       " OR to_regprocedure('idempotency_rules()') IS NULL)::int",
                       0, &differs);
    if (!error && !differs && work->to > 1)
        error = number_ask(work,
                           "SELECT (rules IS DISTINCT FROM idempotency_rules())::int"
                           " FROM idempotency_meta",
                           0, &differs);
    if (!error)
        error = scripts_run(work, versions[work->to - 1].again);
    work->mended = differs != 0;
    return error;
}

/* Back at nothing, a schema that migration has made goes too, unless others use it. */
static int schema_drop(struct work *work)
{
    char sql[IDEM_PG_SQL_SIZE];

    if (work->from == 0 || work->to > 0 || !work->made_schema)
        return IDEM_OK;
    snprintf(sql, sizeof sql,
             "DO $$ BEGIN DROP SCHEMA \"%s\"; "
             "EXCEPTION WHEN dependent_objects_still_exist THEN NULL; END $$",
             work->settings.schema);
    return sql_run(work, sql, NULL);
}

/*
 * The functions run as their owner. Who may create others beside them could have his own called in
 * place of the server's: one whose arguments fit better is taken, wherever it is.
 */
static int schema_guard(struct work *work)
{
    const char *schema = work->settings.schema;
    char sql[IDEM_PG_SQL_SIZE];
    int open = 0;
    int error;

    if (work->to < work->from || work->to == 0)
        return IDEM_OK;
    snprintf(sql, sizeof sql, "SELECT has_schema_privilege('public', '%s', 'CREATE')::int", schema);
    error = number_ask(work, sql, 0, &open);
    if (error || !open)
        return error;
    idem_message_set(&work->link.message,
                     "anybody may create functions in the schema \"%s\", and could so act as the "
                     "owner of idem's: name another schema, such as schema=idem, or REVOKE CREATE "
                     "ON SCHEMA %s FROM PUBLIC",
                     schema, schema);
    return IDEM_ERR_UNSAFE;
}

static int work_do(struct work *work)
{
    int outcome = idem_pg_link_connect(&work->link, false, work->deadline_us);
    int error;

    if (outcome)
        return outcome > 0 ? IDEM_ERR_UNAVAILABLE : outcome;
    if (!PQexitPipelineMode(work->link.connection))
        return failure_tell(work, NULL);
    error = version_read(work);
    if (!error && (work->from > 0 || work->to > 0))
        error = view_judge(work);
    if (!error)
        error = schema_guard(work);
    if (!error)
        error = versions_walk(work);
    if (!error)
        error = parts_mend(work);
    if (!error)
        error = schema_drop(work);
    return error ? error : sql_run(work, "COMMIT", NULL);
}

int idem_pg_migrate(const struct idem_url *url, int version, struct idem_migration *ret_migration,
                    struct idem_message *message)
{
    struct work *work;
    int error;

    if (version == IDEM_SCHEMA_LATEST)
        version = IDEM_PG_SCHEMA_VERSION;
    if (version < 0 || version > IDEM_PG_SCHEMA_VERSION) {
        idem_message_set(message, "there is no schema version %d: this build knows 0 to %d",
                         version, IDEM_PG_SCHEMA_VERSION);
        return IDEM_ERR_INVALID;
    }
    work = idem_calloc(1, sizeof *work);
    if (!work) {
        idem_message_set(message, "there is no memory left for a migration");
        return IDEM_ERR_NOMEM;
    }
    work->to = version;
    idem_pg_link_init(&work->link, &work->settings);
    error = idem_pg_settings_read(url, &work->settings, &work->link.message);
    work->deadline_us = idem_pg_now_us() + work->settings.timeout_us;
    if (!error)
        error = work_do(work);
    idem_pg_link_close(&work->link); /* rolls back what was not committed */
    if (error && message)
        *message = work->link.message;
    if (!error)
        *ret_migration = (struct idem_migration){work->from, work->to, work->mended};
    sodium_memzero(work, sizeof *work); /* a password is in it */
    idem_free(work);
    return error;
}
