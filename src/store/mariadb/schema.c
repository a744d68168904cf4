/*
 * The tables, forward and back. DDL is no transaction here, so each step may be repeated, and the
 * order of steps is such that what a crash leaves half-way is told apart from a whole schema:
 * forward the meta row with its version comes last, back the keys go first. A schema counts as
 * there when all of its tables are.
 *
 * A named lock lets one migrate at a time.
 */
#include <mysqld_error.h>
#include <stdio.h>

#include "store/mariadb/mariadb_store.h"

#define MIGRATE_US (600 * IDEM_SECOND_US) /* DDL on large tables takes its time */
#define LOCK_S     "60"
#define OURS       "idem: " /* how the comment of each of idem's tables begins */

static const char *const tables[] = {IDEM_MARIADB_KEYS, IDEM_MARIADB_AUDIT, IDEM_MARIADB_META};

enum {
    TABLE_KEYS,
    TABLE_AUDIT,
    TABLE_META,
    TABLE_COUNT,
};

struct migrating {
    struct idem_mariadb_options options;
    struct idem_mariadb_link link;
    struct idem_mariadb_text text;
    struct idem_mariadb_facts facts;
    bool there[TABLE_COUNT], foreign[TABLE_COUNT];
    bool view, index;            /* are there */
    bool view_taken;             /* what has the view's name is none */
    bool view_ours, view_hidden; /* it reads idem's keys; its text is not for this user to see */
    bool row;                    /* of the meta table */
    bool keys;                   /* there is a record */
    bool locked;                 /* the named lock is ours */
    uint64_t version;            /* what the meta row says */
};

static int run(struct migrating *migrating, const char *words, idem_mariadb_take *take)
{
    idem_mariadb_text_clear(&migrating->text);
    idem_mariadb_text_add(&migrating->text, words);
    return idem_mariadb_query(&migrating->link, &migrating->text, take, migrating);
}

static void word_add(struct idem_mariadb_text *text, const char *word, bool *any)
{
    idem_mariadb_text_add(text, *any ? ",'" : "ENUM('");
    idem_mariadb_text_add(text, word);
    idem_mariadb_text_add(text, "'");
    *any = true;
}

/* The words in the order of their numbers, from 1 on: a column holds the record's own number. */
static void kinds_add(struct idem_mariadb_text *text)
{
    bool any = false;

    for (int i = IDEM_KIND_HTTP; i <= IDEM_KIND_SELFTEST; i++)
        word_add(text, idem_kind_text((enum idem_kind)i), &any);
    idem_mariadb_text_add(text, ")");
}

static void states_add(struct idem_mariadb_text *text)
{
    bool any = false;

    for (int i = IDEM_STATE_PROCESSING; i < IDEM_STATE_COUNT; i++)
        word_add(text, idem_state_text((enum idem_state)i), &any);
    idem_mariadb_text_add(text, ")");
}

static void reasons_add(struct idem_mariadb_text *text)
{
    bool any = false;

    for (int i = IDEM_REASON_UNANSWERED; i <= IDEM_REASON_INVALID; i++)
        word_add(text, idem_reason_text((enum idem_reason)i), &any);
    idem_mariadb_text_add(text, ")");
}

static void keys_table_add(struct idem_mariadb_text *text)
{
    idem_mariadb_text_add(text, "CREATE TABLE IF NOT EXISTS " IDEM_MARIADB_KEYS
                                "(id BINARY(32)NOT NULL PRIMARY KEY,kind ");
    kinds_add(text);
    idem_mariadb_text_add(text, "NULL,scope VARBINARY(1024)NOT NULL,`key` VARBINARY(1024)NOT NULL,"
                                "method VARBINARY(32)NOT NULL,path VARBINARY(2048)NOT NULL,"
                                "fingerprint_algorithm TINYINT UNSIGNED NOT NULL,"
                                "fingerprint BINARY(32)NOT NULL,principal BINARY(32)NULL,state ");
    states_add(text);
    idem_mariadb_text_add(text, "NOT NULL,reason ");
    reasons_add(text);
    idem_mariadb_text_add(text,
                          "NULL,owner BINARY(16)NOT NULL,fence BIGINT UNSIGNED NOT NULL,"
                          "attempt INT UNSIGNED NOT NULL,lease_us BIGINT NOT NULL,"
                          "lease_until_us BIGINT NOT NULL,created_us BIGINT NOT NULL,"
                          "updated_us BIGINT NOT NULL,expires_us BIGINT NOT NULL,"
                          "status SMALLINT UNSIGNED NOT NULL,flags SMALLINT UNSIGNED NOT NULL,"
                          "tombstone ");
    reasons_add(text);
    idem_mariadb_text_add(text, "NULL,resolved_by VARBINARY(128)NOT NULL,"
                                "resolved_why VARBINARY(512)NOT NULL,resolved_us BIGINT NOT NULL,"
                                "headers MEDIUMBLOB NOT NULL,body LONGBLOB NOT NULL,"
                                "sweep_us BIGINT NOT NULL,KEY sweep(sweep_us))ENGINE=InnoDB "
                                "ROW_FORMAT=DYNAMIC DEFAULT CHARSET=ascii COMMENT='" OURS
                                "one row a key, times in microseconds since 1970 UTC'");
}

static void audit_table_add(struct idem_mariadb_text *text)
{
    idem_mariadb_text_add(text, "CREATE TABLE IF NOT EXISTS " IDEM_MARIADB_AUDIT
                                "(number BIGINT UNSIGNED NOT NULL PRIMARY KEY,"
                                "at_us BIGINT NOT NULL,id BINARY(32)NOT NULL,"
                                "what ENUM('resolve','forget')NOT NULL,was ");
    states_add(text);
    idem_mariadb_text_add(text,
                          "NULL,fence BIGINT UNSIGNED NOT NULL,who VARBINARY(128)NOT NULL,"
                          "why VARBINARY(512)NOT NULL,UNIQUE KEY at_us(at_us))ENGINE=InnoDB "
                          "DEFAULT CHARSET=ascii COMMENT='" OURS "who resolved or forgot a key'");
}

static void meta_table_add(struct idem_mariadb_text *text)
{
    idem_mariadb_text_add(text, "CREATE TABLE IF NOT EXISTS " IDEM_MARIADB_META
                                "(one TINYINT NOT NULL PRIMARY KEY,schema_version INT NOT NULL,"
                                "salt BINARY(32)NULL,fence_floor BIGINT UNSIGNED NOT NULL,"
                                "audit_number BIGINT UNSIGNED NOT NULL,audit_us BIGINT NOT NULL)"
                                "ENGINE=InnoDB DEFAULT CHARSET=ascii COMMENT='" OURS
                                "one row about the store'");
}

static void instant_column_add(struct idem_mariadb_text *text, const char *column, const char *name)
{
    idem_mariadb_text_add(text, ",CAST('1970-01-01' AS DATETIME(6))+INTERVAL NULLIF(");
    idem_mariadb_text_add(text, column);
    idem_mariadb_text_add(text, ",9223372036854775807)MICROSECOND AS ");
    idem_mariadb_text_add(text, name);
}

static void text_column_add(struct idem_mariadb_text *text, const char *column)
{
    idem_mariadb_text_add(text, ",CONVERT(");
    idem_mariadb_text_add(text, column);
    idem_mariadb_text_add(text, " USING utf8mb4)AS ");
    idem_mariadb_text_add(text, column);
}

/* The table for people: text as text, instants in UTC, NULL for never. */
static void view_add(struct idem_mariadb_text *text)
{
    idem_mariadb_text_add(text, "CREATE OR REPLACE SQL SECURITY INVOKER VIEW " IDEM_MARIADB_VIEW
                                " AS SELECT LOWER(HEX(id))AS id,kind");
    text_column_add(text, "scope");
    text_column_add(text, "`key`");
    text_column_add(text, "method");
    text_column_add(text, "path");
    idem_mariadb_text_add(text, ",state,reason,LOWER(HEX(owner))AS owner,fence,attempt");
    instant_column_add(text, "lease_until_us", "lease_until");
    instant_column_add(text, "created_us", "created_at");
    instant_column_add(text, "updated_us", "updated_at");
    instant_column_add(text, "expires_us", "expires_at");
    idem_mariadb_text_add(text, ",status,tombstone,OCTET_LENGTH(body)AS body_size");
    text_column_add(text, "resolved_by");
    text_column_add(text, "resolved_why");
    idem_mariadb_text_add(text, " FROM " IDEM_MARIADB_KEYS);
}

static int step(struct migrating *migrating, void (*add)(struct idem_mariadb_text *text))
{
    idem_mariadb_text_clear(&migrating->text);
    add(&migrating->text);
    return idem_mariadb_query(&migrating->link, &migrating->text, NULL, NULL);
}

/* Keys that were not there are new ones: so is the salt. */
static int version_write(struct migrating *migrating, bool keys_were_there)
{
    struct idem_mariadb_text *text = &migrating->text;

    idem_mariadb_text_clear(text);
    idem_mariadb_text_add(text, "INSERT INTO " IDEM_MARIADB_META
                                "(one,schema_version,salt,fence_floor,audit_number,audit_us)"
                                "VALUES(1,");
    idem_mariadb_text_unsigned(text, IDEM_MARIADB_SCHEMA);
    idem_mariadb_text_add(text, ",NULL,0,0,0)ON DUPLICATE KEY UPDATE schema_version=");
    idem_mariadb_text_unsigned(text, IDEM_MARIADB_SCHEMA);
    if (!keys_were_there)
        idem_mariadb_text_add(text, ",salt=NULL");
    return idem_mariadb_query(&migrating->link, text, NULL, NULL);
}

/* A table that was there has every column; what was in a lost one nobody can make again. */
static int columns_check(struct migrating *migrating)
{
    static const char *const wanted[] = {
        "SELECT id,kind,scope,`key`,method,path,fingerprint_algorithm,fingerprint,principal,state,"
        "reason,owner,fence,attempt,lease_us,lease_until_us,created_us,updated_us,expires_us,"
        "status,flags,tombstone,resolved_by,resolved_why,resolved_us,headers,body,sweep_us "
        "FROM " IDEM_MARIADB_KEYS " LIMIT 0",
        "SELECT number,at_us,id,what,was,fence,who,why FROM " IDEM_MARIADB_AUDIT " LIMIT 0",
        "SELECT one,schema_version,salt,fence_floor,audit_number,audit_us FROM " IDEM_MARIADB_META
        " LIMIT 0",
    };

    for (size_t i = 0; i < TABLE_COUNT; i++) {
        int error = run(migrating, wanted[i], NULL);

        if (error == IDEM_MARIADB_NO_TABLES)
            return idem_mariadb_fault(
                &migrating->link, IDEM_ERR_UNAVAILABLE,
                "the table %s in the database %s is not as idem makes it, for "
                "a column is missing: restore it from a backup, or name "
                "another database in the store URL",
                tables[i], migrating->options.server.path);
        if (error)
            return error;
    }
    return IDEM_OK;
}

static int index_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct migrating *migrating = context;

    (void)statement;
    (void)affected;
    migrating->index = mysql_num_rows(*result) > 0;
    return IDEM_OK;
}

/* Without it a sweep reads every key. */
static int index_need(struct migrating *migrating)
{
    int error = run(migrating,
                    "SELECT 1 FROM information_schema.statistics WHERE table_schema=DATABASE()AND "
                    "table_name='" IDEM_MARIADB_KEYS "' AND index_name='sweep'",
                    index_take);

    if (error || migrating->index)
        return error;
    return run(migrating, "CREATE INDEX sweep ON " IDEM_MARIADB_KEYS "(sweep_us)", NULL);
}

static int forward(struct migrating *migrating)
{
    int error = step(migrating, keys_table_add);

    if (!error)
        error = step(migrating, audit_table_add);
    if (!error)
        error = step(migrating, meta_table_add);
    if (!error)
        error = columns_check(migrating);
    if (!error)
        error = index_need(migrating);
    if (!error)
        error = step(migrating, view_add);
    return error ? error : version_write(migrating, migrating->there[TABLE_KEYS]);
}

static int back(struct migrating *migrating)
{
    static const char *const steps[] = {
        "DROP TABLE IF EXISTS " IDEM_MARIADB_KEYS,
        "DROP VIEW IF EXISTS " IDEM_MARIADB_VIEW,
        "DROP TABLE IF EXISTS " IDEM_MARIADB_AUDIT,
        "DROP TABLE IF EXISTS " IDEM_MARIADB_META,
    };
    int error = IDEM_OK;

    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !error; i++)
        error = run(migrating, steps[i], NULL);
    return error;
}

static int tables_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct migrating *migrating = context;
    MYSQL_ROW row;

    (void)statement;
    (void)affected;
    while ((row = mysql_fetch_row(*result))) {
        if (row[0] && strcmp(row[0], IDEM_MARIADB_VIEW) == 0) {
            migrating->view = true;
            migrating->view_taken = !row[2] || strcmp(row[2], "VIEW") != 0;
        }
        for (size_t i = 0; i < TABLE_COUNT; i++) {
            if (!row[0] || strcmp(row[0], tables[i]) != 0)
                continue;
            migrating->there[i] = true;
            migrating->foreign[i] = !row[1] || strncmp(row[1], OURS, strlen(OURS)) != 0;
        }
    }
    return IDEM_OK;
}

/* The server keeps a view with the names of its tables in full, as in `shop`.`orders`. */
static int view_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct migrating *migrating = context;
    MYSQL_ROW row = mysql_fetch_row(*result);

    (void)statement;
    (void)affected;
    migrating->view_ours = row && row[0] && strcmp(row[0], "1") == 0;
    migrating->view_hidden = row && (!row[1] || strcmp(row[1], "1") == 0);
    return IDEM_OK;
}

static int version_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct migrating *migrating = context;
    MYSQL_ROW row = mysql_fetch_row(*result);

    (void)statement;
    (void)affected;
    migrating->row = row && idem_mariadb_number(row[0], &migrating->version);
    return IDEM_OK;
}

static int keys_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct migrating *migrating = context;

    (void)statement;
    (void)affected;
    migrating->keys = mysql_num_rows(*result) > 0;
    return IDEM_OK;
}

/* What has the name of the view for people is made again and dropped, so it must be idem's. */
static int view_check(struct migrating *migrating)
{
    const char *database = migrating->options.server.path;

    if (!migrating->view || (migrating->view_ours && !migrating->view_taken))
        return IDEM_OK;
    if (!migrating->view_taken && migrating->view_hidden)
        return idem_mariadb_fault(&migrating->link, IDEM_ERR_UNAVAILABLE,
                                  "this user may not see what the view " IDEM_MARIADB_VIEW
                                  " in the database %s is: GRANT SELECT, SHOW VIEW on it, or "
                                  "migrate as the user who made it",
                                  database);
    return idem_mariadb_fault(&migrating->link, IDEM_ERR_UNAVAILABLE,
                              "the database %s has a %s " IDEM_MARIADB_VIEW
                              " that is not idem's, and idem's view has that name: rename it, or "
                              "name another database in the store URL",
                              database, migrating->view_taken ? "table" : "view");
}

static int foreign_check(struct migrating *migrating)
{
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (migrating->foreign[i])
            return idem_mariadb_fault(&migrating->link, IDEM_ERR_UNAVAILABLE,
                                      "the database %s has a table %s that is not idem's: name "
                                      "another database in the store URL",
                                      migrating->options.server.path, tables[i]);
    if (migrating->there[TABLE_KEYS] && migrating->keys && !migrating->row)
        return idem_mariadb_fault(&migrating->link, IDEM_ERR_CORRUPT,
                                  "the table " IDEM_MARIADB_KEYS
                                  " holds keys, but the row of " IDEM_MARIADB_META
                                  " that they need is lost: restore it from a "
                                  "backup, or drop the tables and begin a new store");
    if (migrating->row && migrating->version > IDEM_MARIADB_SCHEMA)
        return idem_mariadb_fault(&migrating->link, IDEM_ERR_UNSUPPORTED,
                                  "idem's tables have version %llu, made by a newer idem: run its "
                                  "`idem migrate`",
                                  (unsigned long long)migrating->version);
    return IDEM_OK;
}

/* What is there, and whether it is all. */
static int look(struct migrating *migrating, int *ret_version)
{
    int error;

    memset(migrating->there, 0, sizeof migrating->there);
    memset(migrating->foreign, 0, sizeof migrating->foreign);
    migrating->row = migrating->keys = migrating->view = false;
    migrating->view_ours = migrating->view_taken = migrating->view_hidden = false;
    error = run(migrating,
                "SELECT table_name,table_comment,table_type FROM information_schema.tables WHERE "
                "table_schema=DATABASE()AND table_name LIKE 'idempotency%'",
                tables_take);
    if (!error && migrating->there[TABLE_META] && !migrating->foreign[TABLE_META])
        error = run(migrating, "SELECT schema_version FROM " IDEM_MARIADB_META " WHERE one=1",
                    version_take);
    if (!error && migrating->there[TABLE_KEYS] && !migrating->foreign[TABLE_KEYS])
        error = run(migrating, "SELECT 1 FROM " IDEM_MARIADB_KEYS " LIMIT 1", keys_take);
    if (!error && migrating->view && !migrating->view_taken)
        error = run(migrating,
                    "SELECT LOCATE(CONCAT('`',DATABASE(),'`.`" IDEM_MARIADB_KEYS "`'),"
                    "view_definition)>0,view_definition='' FROM information_schema.views WHERE "
                    "table_schema=DATABASE()AND table_name='" IDEM_MARIADB_VIEW "'",
                    view_take);
    if (!error)
        error = foreign_check(migrating);
    if (!error)
        error = view_check(migrating);
    if (error)
        return error;
    *ret_version = migrating->row && migrating->there[TABLE_KEYS] && migrating->there[TABLE_AUDIT]
                       ? (int)migrating->version
                       : 0;
    return IDEM_OK;
}

static int lock_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct migrating *migrating = context;
    MYSQL_ROW row = mysql_fetch_row(*result);

    (void)statement;
    (void)affected;
    migrating->locked = row && row[0] && strcmp(row[0], "1") == 0;
    return IDEM_OK;
}

static int lock(struct migrating *migrating)
{
    int error =
        run(migrating, "SELECT GET_LOCK(CONCAT('idem.',LEFT(SHA2(DATABASE(),256),40))," LOCK_S ")",
            lock_take);

    if (error || migrating->locked)
        return error;
    return idem_mariadb_fault(&migrating->link, IDEM_ERR_UNAVAILABLE,
                              "another `idem migrate` has been at this database for " LOCK_S
                              " seconds: wait for it to end, and run this one again");
}

/* Which may have to be made first. False in *ret_there: it is not there, and need not be. */
static int database_enter(struct migrating *migrating, bool make, bool *ret_there)
{
    const char *name = migrating->options.server.path;
    char words[IDEM_SERVER_TEXT_MAX + 64];
    int error;

    *ret_there = true;
    snprintf(words, sizeof words, "USE `%s`", name);
    error = run(migrating, words, NULL);
    if (!error || migrating->link.code != ER_BAD_DB_ERROR)
        return error;
    if (!make) {
        *ret_there = false;
        return IDEM_OK;
    }
    snprintf(words, sizeof words, "CREATE DATABASE IF NOT EXISTS `%s`", name);
    error = run(migrating, words, NULL);
    snprintf(words, sizeof words, "USE `%s`", name);
    return error ? error : run(migrating, words, NULL);
}

static int migrate(struct migrating *migrating, int wanted, struct idem_migration *ret_migration)
{
    struct idem_mariadb_link *link = &migrating->link;
    struct idem_migration migration = {.from = 0};
    bool there = false;
    int error;

    error = idem_mariadb_connect(link, &migrating->options, NULL);
    if (!error)
        error = idem_mariadb_session_begin(link, &migrating->options, &migrating->text,
                                           &migrating->facts);
    if (!error && migrating->facts.read_only)
        error = idem_mariadb_fault(link, IDEM_ERR_UNAVAILABLE,
                                   "the MariaDB server is read_only: name the one that takes "
                                   "writes in the store URL");
    link->deadline_us = idem_mariadb_steady_us() + MIGRATE_US;
    if (!error)
        error = database_enter(migrating, wanted > 0, &there);
    if (!error && there)
        error = lock(migrating);
    if (!error && there)
        error = look(migrating, &migration.from);
    if (!error && there)
        error = wanted > 0 ? forward(migrating) : back(migrating);
    migration.mended = there && !(migrating->view && migrating->index);
    if (!error && there)
        error = look(migrating, &migration.to);
    migration.mended &= migration.to > 0 && migration.from == migration.to;
    if (!error)
        *ret_migration = migration;
    return error;
}

int idem_mariadb_migrate(const struct idem_url *url, int version,
                         struct idem_migration *ret_migration, struct idem_message *message)
{
    struct migrating migrating = {.locked = false};
    int wanted = version == IDEM_SCHEMA_LATEST ? IDEM_MARIADB_SCHEMA : version;
    int error = idem_mariadb_options_read(url, &migrating.options, message);

    if (error)
        return error;
    if (wanted < 0 || wanted > IDEM_MARIADB_SCHEMA) {
        idem_message_set(message,
                         "there is no schema version %d: this build of idem knows 1 to %d, and 0 "
                         "removes everything",
                         version, IDEM_MARIADB_SCHEMA);
        return IDEM_ERR_INVALID;
    }
    migrating.link.deadline_us = idem_mariadb_steady_us() + migrating.options.timeout_us;
    error = migrate(&migrating, wanted, ret_migration);
    if (error)
        idem_message_set(message, "%s", migrating.link.fault.text);
    idem_mariadb_disconnect(&migrating.link); /* which gives the named lock back */
    idem_mariadb_text_deinit(&migrating.text);
    return error > 0 ? IDEM_ERR_UNAVAILABLE : error;
}
