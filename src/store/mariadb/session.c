/*
 * A session is set to what the statements here rely on, whatever the server's own settings are, and
 * told what the server is. It is begun anew after every reconnect, and checked each time: behind
 * the same address there may be another server by then.
 */
#include <stdio.h>

#include "store/mariadb/mariadb_store.h"

/* SKIP LOCKED came with these; MySQL 8.0 was a draft before. */
#define VERSION_MIN_MARIADB 100600
#define VERSION_MIN_MYSQL   80011

#define IDLE_S "60" /* seconds after which MySQL ends a connection that does nothing */

enum {
    STATEMENT_FACTS = 3, /* counted from 0 */
    FACT_COUNT = 11,
};

static unsigned lock_wait_seconds(const struct idem_mariadb_options *options)
{
    return (unsigned)((options->timeout_us + IDEM_SECOND_US - 1) / IDEM_SECOND_US);
}

/*
 * idle_transaction_timeout frees the rows that a gateway holds which stands still between two round
 * trips of one transaction. MySQL has nothing of the kind, so its connections are ended whenever
 * they do nothing for a while: idem connects again. A wait for locks is not idleness.
 *
 * Only MariaDB reads what is in M!, only MySQL what is in !80000 and more.
 */
static void session_text(struct idem_mariadb_text *text, const struct idem_mariadb_options *options)
{
    unsigned seconds = lock_wait_seconds(options);

    idem_mariadb_text_clear(text);
    idem_mariadb_text_add(text, "SET NAMES binary;"
                                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED,READ WRITE;"
                                "SET sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
                                "time_zone='+00:00',autocommit=1,completion_type=0,unique_checks=1,"
                                "sql_select_limit=18446744073709551615,innodb_lock_wait_timeout=");
    idem_mariadb_text_unsigned(text, seconds);
    idem_mariadb_text_add(text, "/*M!100300 ,max_statement_time=0,idle_transaction_timeout=");
    idem_mariadb_text_unsigned(text, seconds);
    idem_mariadb_text_add(text,
                          "*//*!80000 ,max_execution_time=0,information_schema_stats_expiry=0,"
                          "wait_timeout=" IDLE_S "*/;"
                          "SELECT @@version,@@innodb_flush_log_at_trx_commit,@@sync_binlog,"
                          "@@log_bin,@@binlog_format,@@innodb_doublewrite,@@read_only,"
                          "@@innodb_read_only,@@max_allowed_packet,"
                          "1/*!80021 AND COALESCE((SELECT variable_value='ON'FROM "
                          "performance_schema.global_status WHERE variable_name="
                          "'Innodb_redo_log_enabled'),1)*/,SYSDATE(6)>NOW(6)");
}

static bool is_on(const char *value)
{
    return value && strcmp(value, "0") != 0 && strcmp(value, "OFF") != 0;
}

static unsigned number_of(const char *value)
{
    uint64_t number = 0;

    return idem_mariadb_number(value, &number) && number <= UINT32_MAX ? (unsigned)number : 0;
}

static int facts_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct idem_mariadb_facts *facts = context;
    MYSQL_ROW row;

    (void)affected;
    if (statement != STATEMENT_FACTS)
        return IDEM_OK;
    row = *result && mysql_num_fields(*result) == FACT_COUNT ? mysql_fetch_row(*result) : NULL;
    if (!row)
        return IDEM_ERR_CORRUPT;
    snprintf(facts->version, sizeof facts->version, "%s%s",
             row[0] && strstr(row[0], "MariaDB") ? "" : "MySQL ", row[0] ? row[0] : "unknown");
    facts->flush = number_of(row[1]);
    facts->sync_binlog = number_of(row[2]);
    facts->log_bin = is_on(row[3]);
    facts->statement_binlog = facts->log_bin && row[4] && strcmp(row[4], "STATEMENT") == 0;
    facts->doublewrite = is_on(row[5]) && strcmp(row[5], "DETECT_ONLY") != 0;
    facts->read_only = is_on(row[6]) || is_on(row[7]);
    facts->packet = number_of(row[8]);
    facts->redo_log = is_on(row[9]);
    /* SYSDATE() may be set to be the statement's clock like any other. */
    facts->returning = is_on(row[10]) && strstr(facts->version, "MariaDB");
    return IDEM_OK;
}

static int version_check(struct idem_mariadb_link *link, const struct idem_mariadb_facts *facts)
{
    unsigned long version = mysql_get_server_version(link->mysql);
    bool mariadb = strstr(facts->version, "MariaDB") != NULL;

    if (version >= (mariadb ? VERSION_MIN_MARIADB : VERSION_MIN_MYSQL))
        return IDEM_OK;
    return idem_mariadb_fault(link, IDEM_ERR_UNSUPPORTED,
                              "the server's version is %s, and idem needs MariaDB 10.6 or MySQL "
                              "8.0.11 at least: upgrade it",
                              facts->version);
}

int idem_mariadb_session_begin(struct idem_mariadb_link *link,
                               const struct idem_mariadb_options *options,
                               struct idem_mariadb_text *text, struct idem_mariadb_facts *ret_facts)
{
    struct idem_mariadb_facts facts = {.flush = 0};
    int error;

    session_text(text, options);
    error = idem_mariadb_query(link, text, facts_take, &facts);
    if (error == IDEM_ERR_CORRUPT)
        return idem_mariadb_fault(link, error, "the server did not tell its settings");
    if (!error)
        error = version_check(link, &facts);
    if (!error)
        *ret_facts = facts;
    return error;
}

static int unsafe(struct idem_mariadb_link *link, const char *setting, const char *wanted)
{
    return idem_mariadb_fault(link, IDEM_ERR_UNSAFE,
                              "the MariaDB server could lose what it acknowledged: %s. %s, or "
                              "say sync=off in the store URL if that may be lost",
                              setting, wanted);
}

int idem_mariadb_session_check(struct idem_mariadb_link *link,
                               const struct idem_mariadb_options *options,
                               const struct idem_mariadb_facts *facts)
{
    if (facts->read_only)
        return idem_mariadb_fault(link, IDEM_ERR_UNAVAILABLE,
                                  "the MariaDB server is read_only, a replica perhaps: name the "
                                  "one that takes writes in the store URL");
    if (facts->statement_binlog)
        return idem_mariadb_fault(link, IDEM_ERR_UNSAFE,
                                  "the MariaDB server logs statements, which cannot be combined "
                                  "with READ COMMITTED: set binlog_format=ROW or MIXED");
    if (facts->packet < IDEM_MARIADB_PACKET_MIN)
        return idem_mariadb_fault(link, IDEM_ERR_UNSAFE,
                                  "the MariaDB server's max_allowed_packet is %zu bytes: set it to "
                                  "at least 1M, and to twice the largest answer that is to be kept",
                                  facts->packet);
    if (!options->sync)
        return IDEM_OK;
    if (facts->flush != 1)
        return unsafe(link, "innodb_flush_log_at_trx_commit is not 1",
                      "Set innodb_flush_log_at_trx_commit=1");
    if (facts->log_bin && facts->sync_binlog != 1)
        return unsafe(link, "its binary log is on, and sync_binlog is not 1", "Set sync_binlog=1");
    if (!facts->doublewrite)
        return unsafe(link, "innodb_doublewrite is off", "Set innodb_doublewrite=ON");
    if (!facts->redo_log)
        return unsafe(link, "its redo log is off", "Run ALTER INSTANCE ENABLE INNODB REDO_LOG");
    return IDEM_OK;
}

static int meta_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct idem_mariadb_facts *facts = context;
    MYSQL_ROW row = *result ? mysql_fetch_row(*result) : NULL;
    unsigned long *sizes = row ? mysql_fetch_lengths(*result) : NULL;

    (void)affected;
    if (statement > 0 || !row)
        return IDEM_OK; /* the tables are there, but not their version: half-migrated */
    facts->schema = (int)number_of(row[0]);
    facts->has_salt = row[1] && sizes[1] == IDEM_SALT_SIZE;
    if (facts->has_salt)
        memcpy(facts->salt.bytes, row[1], IDEM_SALT_SIZE);
    return IDEM_OK;
}

static bool is_opening(const struct idem_backend *store)
{
    static const struct idem_salt none;

    return memcmp(&store->salt, &none, sizeof none) == 0;
}

/* The tables must be there, all of them. */
static int meta_read(struct idem_backend *store, struct idem_mariadb_facts *facts)
{
    int error;

    idem_mariadb_text_clear(&store->text);
    idem_mariadb_text_add(&store->text,
                          "SELECT schema_version,salt FROM " IDEM_MARIADB_META " WHERE one=1;"
                          "SELECT id FROM " IDEM_MARIADB_KEYS " LIMIT 0;"
                          "SELECT number FROM " IDEM_MARIADB_AUDIT " LIMIT 0");
    error = idem_mariadb_query(&store->link, &store->text, meta_take, facts);
    if (error || facts->schema == IDEM_MARIADB_SCHEMA)
        return error;
    /* Later, when somebody migrates while gateways run, it is a store that is away. */
    return idem_mariadb_fault(&store->link,
                              is_opening(store) ? IDEM_ERR_UNSUPPORTED : IDEM_MARIADB_NO_TABLES,
                              "idem's tables have version %d, and this build of idem needs %d: run "
                              "`idem migrate URL` with this store's URL, from the newest idem that "
                              "uses it",
                              facts->schema, IDEM_MARIADB_SCHEMA);
}

int idem_mariadb_replaced(struct idem_backend *store)
{
    return idem_mariadb_fault(&store->link, IDEM_ERR_UNSAFE,
                              "the store behind this URL is no longer the one that was opened: its "
                              "row in " IDEM_MARIADB_META
                              " has gone or is another's, and keys from "
                              "before are not protected any more");
}

/* Another salt is another store: what was claimed in the one is not known to the other. */
static int same_store_check(struct idem_backend *store, const struct idem_mariadb_facts *facts)
{
    if (is_opening(store) ||
        (facts->has_salt && memcmp(&store->salt, &facts->salt, sizeof store->salt) == 0))
        return IDEM_OK;
    return idem_mariadb_replaced(store);
}

int idem_mariadb_session_need(struct idem_backend *store)
{
    struct idem_mariadb_link *link = &store->link;
    struct idem_mariadb_facts facts = {.flush = 0};
    int error;

    if (link->mysql)
        return IDEM_OK;
    error = idem_mariadb_connect(link, &store->options, store->options.server.path);
    if (!error)
        error = idem_mariadb_session_begin(link, &store->options, &store->text, &facts);
    if (!error)
        error = idem_mariadb_session_check(link, &store->options, &facts);
    if (!error)
        error = meta_read(store, &facts);
    if (!error)
        error = same_store_check(store, &facts);
    if (!error) {
        store->facts = facts;
        return IDEM_OK;
    }
    idem_mariadb_disconnect(link);
    return error;
}
