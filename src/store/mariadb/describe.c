/* What `idem store check` shows. */
#include <stdio.h>

#include "store/facts.h"
#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

static void fact_server(struct idem_facts *facts, const struct idem_mariadb_options *options)
{
    static const char *const encrypted[] = {
        [IDEM_MARIADB_TLS_OFF] = "not encrypted",
        [IDEM_MARIADB_TLS_ON] = "encrypted, its certificate not looked at",
        [IDEM_MARIADB_TLS_VERIFY] = "encrypted, its certificate verified",
    };
    const struct idem_server_host *host = &options->server.hosts[0];

    if (options->socket[0])
        idem_facts_add(facts, "server", "socket %s, database %s", options->socket,
                       options->server.path);
    else
        idem_facts_add(facts, "server", "%s port %u, database %s, %s", host->name,
                       (unsigned)host->port, options->server.path, encrypted[options->tls]);
}

struct measured {
    int64_t now_us;
    uint64_t records, used;
};

static int measured_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct measured *measured = context;
    MYSQL_ROW row = mysql_fetch_row(*result);

    (void)affected;
    if (!row)
        return IDEM_ERR_CORRUPT;
    if (statement == 0)
        return idem_mariadb_instant_read(row[0], &measured->now_us) ? IDEM_OK : IDEM_ERR_CORRUPT;
    return idem_mariadb_number(row[0], &measured->records) &&
                   idem_mariadb_number(row[1], &measured->used)
               ? IDEM_OK
               : IDEM_ERR_CORRUPT;
}

/* The server's clock is read in the middle of a round trip, so half of that is how exact it is. */
static int facts_measured(struct idem_facts *facts, struct idem_backend *store)
{
    struct measured measured = {0};
    int64_t before_us, after_us;
    int error;

    idem_mariadb_text_clear(&store->text);
    idem_mariadb_text_add(&store->text, "SELECT ");
    idem_mariadb_text_now(&store->text, store);
    before_us = idem_clock_now_us(NULL);
    error = idem_mariadb_run(store, measured_take, &measured);
    after_us = idem_clock_now_us(NULL);
    if (error)
        return error;
    idem_facts_add_clock(facts, measured.now_us, before_us, after_us);
    idem_mariadb_text_add(&store->text,
                          ";SELECT CAST(COALESCE(SUM(table_rows),0)AS UNSIGNED),"
                          "CAST(COALESCE(SUM(data_length+index_length),0)AS UNSIGNED)FROM "
                          "information_schema.tables WHERE table_schema=DATABASE()AND table_name "
                          "IN('" IDEM_MARIADB_KEYS "','" IDEM_MARIADB_AUDIT "')");
    error = idem_mariadb_run(store, measured_take, &measured);
    if (error)
        return error;
    idem_facts_add(facts, "records", "about %llu, audit entries included",
                   (unsigned long long)measured.records);
    idem_facts_add(facts, "used", "about %llu bytes", (unsigned long long)measured.used);
    store->space.used = measured.used;
    return IDEM_OK;
}

static void fact_durability(struct idem_facts *facts, const struct idem_backend *store)
{
    const struct idem_mariadb_facts *found = &store->facts;

    idem_facts_add(facts, "durability",
                   "sync=%s; innodb_flush_log_at_trx_commit=%u, binary log %s, sync_binlog=%u, "
                   "doublewrite %s, redo log %s",
                   store->options.sync ? "always" : "off", found->flush,
                   found->log_bin ? "on" : "off", found->sync_binlog,
                   found->doublewrite ? "on" : "off", found->redo_log ? "on" : "off");
}

static void fact_can_lose(struct idem_facts *facts, const struct idem_mariadb_facts *found)
{
    if (!found->redo_log)
        idem_facts_add(facts, "can lose",
                       "everything: without its redo log the server does not start after a crash");
    else if (!found->doublewrite)
        idem_facts_add(facts, "can lose",
                       "everything: without doublewrite a power failure can tear pages");
    else if (found->flush == 0)
        idem_facts_add(
            facts, "can lose",
            "the last second or more when the server or its machine crashes: an operation may "
            "be executed again");
    else if (found->flush != 1)
        idem_facts_add(
            facts, "can lose",
            "the last second or more when the server's machine crashes: an operation may be "
            "executed again");
    else if (found->log_bin && found->sync_binlog != 1)
        idem_facts_add(facts, "can lose",
                       "nothing here; replicas may miss what the binary log lost in a crash of the "
                       "machine, and a failover to one then loses it");
    else
        idem_facts_add(
            facts, "can lose",
            "nothing, as long as the disk keeps what it acknowledged, and no failover goes to "
            "a replica that lags");
}

static void fact_claims(struct idem_facts *facts, const struct idem_backend *store)
{
    unsigned long long size = store->options.size, used = store->space.used;

    if (size == 0)
        idem_facts_add(facts, "claims",
                       "taken, as long as the server's disk has room: no size= is set");
    else if (idem_mariadb_space_has_room(store))
        idem_facts_add(facts, "claims", "taken: the tables take %llu of %llu bytes", used, size);
    else
        idem_facts_add(
            facts, "claims",
            "refused: the tables take %llu bytes, and size= allows %llu: sweep, or raise it", used,
            size);
}

size_t idem_mariadb_describe(struct idem_backend *store, struct idem_store_fact *ret_facts,
                             size_t max)
{
    struct idem_facts facts = {.list = ret_facts, .max = max};
    int error;

    idem_facts_add(&facts, "backend", "mariadb, MariaDB Connector/C %s", mysql_get_client_info());
    fact_server(&facts, &store->options);
    idem_mariadb_budget(store);
    error = idem_mariadb_session_need(store);
    if (!error)
        error = facts_measured(&facts, store);
    if (error) {
        idem_facts_add(&facts, "reachable", "no: %.180s", store->link.fault.text);
        return facts.count;
    }
    idem_facts_add(&facts, "version", "%s", store->facts.version);
    fact_durability(&facts, store);
    fact_can_lose(&facts, &store->facts);
    fact_claims(&facts, store);
    idem_facts_add(&facts, "schema", "version %d", store->facts.schema);
    idem_facts_add(&facts, "largest answer", "%zu bytes: half of max_allowed_packet=%zu",
                   store->facts.packet / 2, store->facts.packet);
    return facts.count;
}
