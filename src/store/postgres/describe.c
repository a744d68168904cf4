/* What `idem store check` shows of a PostgreSQL store: what is in force, and what that can lose. */
#include <stdio.h>

#include "store/keep.h"
#include "store/postgres/postgres_store.h"

/* The columns of the question below. */
enum fact_field {
    FACT_VERSION,
    FACT_CLOCK,
    FACT_COMMIT,
    FACT_FSYNC,
    FACT_PAGES,
    FACT_STANDBY,
    FACT_SIZE,
    FACT_RECORDS,
    FACT_NAPTIME,
};

static const char question[] =
    "SELECT current_setting('server_version')::text, clock_timestamp(), "
    "current_setting('synchronous_commit')::text, current_setting('fsync')::text, "
    "current_setting('full_page_writes')::text, current_setting('synchronous_standby_names')::text,"
    " pg_total_relation_size('\"%s\".idempotency_keys'), "
    "(SELECT n_live_tup FROM pg_stat_all_tables WHERE relid = '\"%s\".idempotency_keys'::regclass),"
    " current_setting('autovacuum')::text || ', every ' || current_setting('autovacuum_naptime')";

/* The facts in the making. */
struct facts {
    struct idem_store_fact *list;
    size_t count, max;
};

static char *fact_add(struct facts *facts, const char *name)
{
    static char none[sizeof facts->list->value];
    struct idem_store_fact *fact = &facts->list[facts->count];

    if (facts->count == facts->max)
        return none;
    facts->count++;
    fact->name = name;
    fact->value[0] = '\0';
    return fact->value;
}

#define FACT_SIZE_MAX sizeof((struct idem_store_fact *)NULL)->value

static void text_copy(const PGresult *result, int column, char *ret_text, size_t size)
{
    struct idem_bytes cell = idem_pg_cell_bytes(result, 0, column);

    snprintf(ret_text, size, "%.*s", (int)cell.size, (const char *)cell.data);
}

static void loss_tell(const struct idem_backend *store, const PGresult *result, char *ret_text)
{
    bool sync = store->settings.sync;
    bool standby = idem_pg_cell_bytes(result, 0, FACT_STANDBY).size > 0;
    const char *words;

    if (!idem_pg_cell_is(result, 0, FACT_FSYNC, "on") ||
        !idem_pg_cell_is(result, 0, FACT_PAGES, "on"))
        words = "a crash of the server's host can lose or damage everything";
    else if (!sync)
        words = "a crash of the server can lose what was answered in about the last 0.6 s: keys "
                "may then be executed again (sync=off)";
    else if (!standby)
        words = "nothing in a crash. A failover to a standby can lose what was answered last: it "
                "is not synchronous. So can the loss of the server's disk";
    else
        words = "nothing, as long as a failover goes to a synchronous standby";
    snprintf(ret_text, FACT_SIZE_MAX, "%s", words);
}

static void durability_tell(const struct idem_backend *store, const PGresult *result,
                            char *ret_text)
{
    char fsync[16], pages[16], standby[64];

    text_copy(result, FACT_FSYNC, fsync, sizeof fsync);
    text_copy(result, FACT_PAGES, pages, sizeof pages);
    text_copy(result, FACT_STANDBY, standby, sizeof standby);
    snprintf(ret_text, FACT_SIZE_MAX,
             "sync=%s: synchronous_commit=%s in each transaction; fsync=%s, full_page_writes=%s, "
             "synchronous_standby_names=%.30s",
             store->settings.sync ? "always" : "off",
             store->settings.sync ? store->link.sync_word : "off", fsync, pages, standby);
}

static void claims_tell(const struct idem_backend *store, char *ret_text)
{
    struct idem_pg_room room = idem_pg_space_room(&store->space, 1);

    if (!room.claims)
        snprintf(ret_text, FACT_SIZE_MAX,
                 "refused: table and indexes take more than size=, or the server's disk is full");
    else if (store->space.limit == 0)
        snprintf(ret_text, FACT_SIZE_MAX, "taken as long as the server has room: no size= is set");
    else
        snprintf(ret_text, FACT_SIZE_MAX, "taken until table and indexes take %llu bytes",
                 (unsigned long long)store->space.limit);
}

static void server_facts(struct idem_backend *store, const PGresult *result, int64_t asked_us,
                         int64_t answered_us, struct facts *facts)
{
    bool failed = false;
    int64_t server_us = idem_pg_cell_instant(result, 0, FACT_CLOCK, &failed);
    uint64_t size = (uint64_t)idem_pg_cell_number(result, 0, FACT_SIZE, &failed);

    text_copy(result, FACT_VERSION, fact_add(facts, "version"), FACT_SIZE_MAX);
    snprintf(fact_add(facts, "clock difference"), FACT_SIZE_MAX, "%+.1f ms",
             (double)(server_us - (asked_us + answered_us) / 2) / 1000.0);
    durability_tell(store, result, fact_add(facts, "durability"));
    loss_tell(store, result, fact_add(facts, "can lose"));
    idem_pg_space_looked(&store->space, size);
    claims_tell(store, fact_add(facts, "claims"));
    snprintf(fact_add(facts, "schema"), FACT_SIZE_MAX, "%s, version %d", store->settings.schema,
             IDEM_PG_SCHEMA_VERSION);
    snprintf(fact_add(facts, "size"), FACT_SIZE_MAX,
             "%llu bytes in table and indexes, about %lld records", (unsigned long long)size,
             (long long)idem_pg_cell_number(result, 0, FACT_RECORDS, &failed));
    text_copy(result, FACT_NAPTIME, fact_add(facts, "autovacuum"), FACT_SIZE_MAX);
}

size_t idem_pg_describe(struct idem_backend *store, struct idem_store_fact *list, size_t max)
{
    int64_t deadline_us = idem_pg_now_us() + store->settings.timeout_us;
    struct facts facts = {list, 0, max};
    struct idem_pg_trip trip = {0};
    char sql[sizeof question + 2 * IDEM_PG_SCHEMA_MAX], place[IDEM_PG_PLACE_SIZE];
    int version = PQlibVersion();
    int64_t asked_us;
    int error = idem_pg_link_connect(&store->link, true, deadline_us);

    snprintf(sql, sizeof sql, question, store->settings.schema, store->settings.schema);
    snprintf(fact_add(&facts, "backend"), FACT_SIZE_MAX, "postgresql, libpq %d.%d", version / 10000,
             version % 10000);
    snprintf(fact_add(&facts, "server"), FACT_SIZE_MAX, "%.120s, database \"%.50s\"",
             idem_pg_link_place(&store->link, place, sizeof place), store->settings.server.path);
    asked_us = idem_clock_now_us(NULL);
    if (!error)
        error = idem_pg_ask(&trip, &store->link, sql, NULL, false, deadline_us);
    if (error)
        snprintf(fact_add(&facts, "trouble"), FACT_SIZE_MAX, "%.190s", store->link.message.text);
    else
        server_facts(store, trip.results[trip.preface], asked_us, idem_clock_now_us(NULL), &facts);
    idem_pg_trip_free(&trip);
    return facts.count;
}
