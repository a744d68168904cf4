/*
 * churn URL [KEYS [TTL_S [BATCH [RATE]]]]: many short-lived keys on a PostgreSQL store. Shows, in
 * figures, that the table stays in proportion to what lives in it, and that sweeping does not delay
 * claims.
 *
 * Claims KEYS ids (2 000 000), BATCH (64) at once, and completes each in the next batch, with an
 * answer of a usual size that lives TTL_S (30) seconds; RATE keys a second, or as fast as it can.
 * Sweeps as the executor does: once a second,
 * a hundred records at a time between two batches, as long as there is more. Prints one line a few
 * seconds, and one JSON object at the end:
 *
 *   ratio_max     table and indexes, in parts of the rows that live at that moment (their own
 *                 bytes, without any index), the most that was seen once the first keys had expired
 *   ratio_peak    the same at the end, in parts of the most that has lived at once
 *   sweep_ms_max  the longest sweep; a claim that comes meanwhile waits for so long
 *   batch_ms_…    how long a batch took, after a sweep and otherwise
 */
#define _GNU_SOURCE
#include <libpq-fe.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <idem/store.h>

#define BATCH_MAX    256
#define SAMPLE_EVERY 10.0 /* seconds */
#define SWEEP_EVERY  1.0
#define SWEEP_LIMIT  100 /* as the executor's */
#define SAMPLES_MAX  4000000
#define QUERY_SIZE   512

/* Durations, for percentiles. */
struct times {
    float *list;
    size_t count;
};

struct churn {
    struct idem_store *store;
    PGconn *watcher;
    char schema[64];
    double ttl_s, rate, started, swept_at, sampled_at;
    size_t batch;
    uint64_t claimed, removed;
    struct idem_op ops[2 * BATCH_MAX];
    struct idem_id ids[2][BATCH_MAX]; /* claimed in this batch, and in the one before */
    struct idem_owner owners[2][BATCH_MAX];
    char keys[BATCH_MAX][48];
    uint8_t body[220], headers[96];
    size_t headers_size;
    struct times plain, after_sweep, sweeps;
    double ratio_max, live_max, total;
    bool more;
};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    fprintf(stderr, "churn: %s\n", what);
    exit(1);
}

static void times_add(struct times *times, double seconds)
{
    if (!times->list)
        times->list = malloc(SAMPLES_MAX * sizeof *times->list);
    if (!times->list)
        fail("no memory");
    if (times->count < SAMPLES_MAX)
        times->list[times->count++] = (float)(seconds * 1e3);
}

static int float_compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static double times_at(struct times *times, double part)
{
    if (times->count == 0)
        return 0;
    qsort(times->list, times->count, sizeof *times->list, float_compare);
    return times->list[(size_t)(part * (double)(times->count - 1))];
}

static double apply(struct churn *churn, struct idem_op *const *ops, size_t count)
{
    struct idem_message message = {""};
    double begun = now_s();

    if (idem_store_apply(churn->store, ops, count, &message))
        fail(message.text);
    return now_s() - begun;
}

static void claim_fill(struct churn *churn, size_t i, size_t turn)
{
    struct idem_op *op = &churn->ops[i];
    struct idem_claim *in = &op->in.claim;
    int size = snprintf(churn->keys[i], sizeof churn->keys[i], "%08x-churn-%020llx",
                        (unsigned)randombytes_random(), (unsigned long long)churn->claimed + i);

    memset(op, 0, sizeof *op);
    op->kind = IDEM_OP_CLAIM;
    in->kind = IDEM_KIND_HTTP;
    in->scope = idem_bytes_from_text("tenant");
    in->key = idem_bytes_make(churn->keys[i], (size_t)size);
    in->method = idem_bytes_from_text("POST");
    in->path = idem_bytes_from_text("/payments");
    in->fingerprint.algorithm = IDEM_FINGERPRINT_RAW;
    in->principal.present = true;
    randombytes_buf(in->owner.bytes, sizeof in->owner.bytes);
    in->lease_us = 10 * IDEM_SECOND_US;
    in->ttl_us = (int64_t)(churn->ttl_s * 1e6);
    in->unknown_ttl_us = INT64_C(30) * 86400 * IDEM_SECOND_US;
    op->id = idem_id_make(in->kind, in->scope, in->key);
    churn->ids[turn][i] = op->id;
    churn->owners[turn][i] = in->owner;
}

static void complete_fill(struct churn *churn, struct idem_op *op, size_t i, size_t turn)
{
    struct idem_verdict *in = &op->in.verdict;

    memset(op, 0, sizeof *op);
    op->kind = IDEM_OP_COMPLETE;
    op->id = churn->ids[turn][i];
    in->owner = churn->owners[turn][i];
    in->ttl_us = (int64_t)(churn->ttl_s * 1e6);
    in->answer.status = 201;
    in->answer.headers = idem_bytes_make(churn->headers, churn->headers_size);
    in->answer.body = idem_bytes_make(churn->body, sizeof churn->body);
}

/* Claims a batch, and completes the one before. */
static void batch_run(struct churn *churn, size_t turn, bool complete, bool swept)
{
    struct idem_op *list[2 * BATCH_MAX];
    size_t count = churn->batch * (complete ? 2 : 1);

    for (size_t i = 0; i < churn->batch; i++) {
        claim_fill(churn, i, turn);
        list[i] = &churn->ops[i];
        if (complete) {
            list[churn->batch + i] = &churn->ops[churn->batch + i];
            complete_fill(churn, list[churn->batch + i], i, !turn);
        }
    }
    times_add(swept ? &churn->after_sweep : &churn->plain, apply(churn, list, count));
    for (size_t i = 0; i < count; i++) {
        if (list[i]->result != (i < churn->batch ? IDEM_RESULT_ACQUIRED : IDEM_RESULT_OK))
            fail("an op came to something else");
        idem_op_deinit(list[i]);
    }
    churn->claimed += churn->batch;
}

/* Keeps to the rate. */
static void rate_keep(const struct churn *churn)
{
    double early_s =
        churn->rate > 0 ? churn->started + (double)churn->claimed / churn->rate - now_s() : 0;

    if (early_s > 0)
        (void)poll(NULL, 0, (int)(early_s * 1e3 + 1));
}

static bool sweep_run(struct churn *churn)
{
    struct idem_op op = {.kind = IDEM_OP_SWEEP, .in.sweep.limit = SWEEP_LIMIT}, *list = &op;

    if (!churn->more && now_s() - churn->swept_at < SWEEP_EVERY)
        return false;
    times_add(&churn->sweeps, apply(churn, &list, 1));
    churn->more = op.out.more;
    churn->removed += op.out.count;
    if (!churn->more)
        churn->swept_at = now_s();
    return true;
}

static double number_ask(struct churn *churn, const char *format)
{
    char query[QUERY_SIZE];
    PGresult *result;
    double number;

    snprintf(query, sizeof query, format, churn->schema);
    result = PQexec(churn->watcher, query);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail(PQresultErrorMessage(result));
    number = strtod(PQgetvalue(result, 0, 0), NULL);
    PQclear(result);
    return number;
}

static void sample(struct churn *churn, bool last)
{
    double live, total, heap, dead;

    if (!last && now_s() - churn->sampled_at < SAMPLE_EVERY)
        return;
    total = number_ask(churn, "SELECT pg_total_relation_size('%s.idempotency_keys')");
    heap = number_ask(churn, "SELECT pg_table_size('%s.idempotency_keys')");
    dead = number_ask(churn, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = "
                             "'idempotency_keys' AND schemaname = '%s'");
    live = number_ask(churn, "SELECT coalesce(sum(pg_column_size(k.*)), 0) FROM "
                             "%s.idempotency_keys k WHERE expires_at > clock_timestamp()");
    if (now_s() - churn->started > 2 * churn->ttl_s + 10 && total / live > churn->ratio_max)
        churn->ratio_max = total / live;
    churn->live_max = live > churn->live_max ? live : churn->live_max;
    churn->total = total;
    fprintf(stderr,
            "%6.0f s %8llu claimed %8llu removed, table %5.0f MB, indexes %4.0f MB, live %4.0f MB,"
            " dead rows %7.0f, ratio %.2f\n",
            now_s() - churn->started, (unsigned long long)churn->claimed,
            (unsigned long long)churn->removed, heap / 1e6, (total - heap) / 1e6, live / 1e6, dead,
            total / live);
    churn->sampled_at = now_s();
}

static void report(struct churn *churn)
{
    double hot = number_ask(churn, "SELECT round(n_tup_hot_upd::numeric / greatest(n_tup_upd, 1), "
                                   "3) FROM pg_stat_user_tables WHERE relname = "
                                   "'idempotency_keys' AND schemaname = '%s'");
    double seconds = now_s() - churn->started;

    printf("{\"keys\": %llu, \"keys_per_s\": %.0f, \"ratio_max\": %.2f, "
           "\"ratio_peak\": %.2f, \"hot_updates\": %.3f, "
           "\"sweeps\": %zu, \"sweep_ms_p50\": %.2f, \"sweep_ms_p99\": %.2f, "
           "\"sweep_ms_max\": %.2f, \"batch_ms_p50\": %.2f, \"batch_ms_p99\": %.2f, "
           "\"batch_ms_max\": %.2f, \"batch_after_sweep_ms_p50\": %.2f, "
           "\"batch_after_sweep_ms_p99\": %.2f, \"batch_after_sweep_ms_max\": %.2f}\n",
           (unsigned long long)churn->claimed, (double)churn->claimed / seconds, churn->ratio_max,
           churn->total / churn->live_max, hot, churn->sweeps.count, times_at(&churn->sweeps, 0.5),
           times_at(&churn->sweeps, 0.99), times_at(&churn->sweeps, 1),
           times_at(&churn->plain, 0.5), times_at(&churn->plain, 0.99), times_at(&churn->plain, 1),
           times_at(&churn->after_sweep, 0.5), times_at(&churn->after_sweep, 0.99),
           times_at(&churn->after_sweep, 1));
}

/* The watcher has a connection of its own; the store's URL without its options is libpq's. */
static void watcher_open(struct churn *churn, const char *url)
{
    char text[512];

    snprintf(text, sizeof text, "%.*s", (int)strcspn(url, "?"), url);
    churn->watcher = PQconnectdb(text);
    if (PQstatus(churn->watcher) != CONNECTION_OK)
        fail(PQerrorMessage(churn->watcher));
}

int main(int count, char **arguments)
{
    static struct churn churn;
    uint64_t keys = count > 2 ? strtoull(arguments[2], NULL, 10) : 2000000;
    struct idem_message message = {""};
    struct idem_migration migration;
    char url[600];
    bool swept = false;

    if (count < 2)
        fail("usage: churn URL [KEYS [TTL_S [BATCH [RATE]]]]");
    churn.ttl_s = count > 3 ? strtod(arguments[3], NULL) : 30;
    churn.batch = count > 4 ? strtoul(arguments[4], NULL, 10) : 64;
    churn.rate = count > 5 ? strtod(arguments[5], NULL) : 0;
    if (churn.batch < 1 || churn.batch > BATCH_MAX || sodium_init() < 0)
        fail("the batch is not between 1 and 256");
    snprintf(churn.schema, sizeof churn.schema, "churn");
    snprintf(url, sizeof url, "%s%cschema=%s&timeout=60s", arguments[1],
             strchr(arguments[1], '?') ? '&' : '?', churn.schema);
    randombytes_buf(churn.body, sizeof churn.body);
    churn.headers_size = idem_headers_append(
        churn.headers, 0, sizeof churn.headers, idem_bytes_from_text("Content-Type"),
        idem_bytes_from_text("application/json; charset=utf-8"));
    if (idem_store_migrate(url, IDEM_SCHEMA_LATEST, &migration, &message) ||
        idem_store_open(url, NULL, &churn.store, &message))
        fail(message.text);
    watcher_open(&churn, arguments[1]);
    churn.started = churn.sampled_at = churn.swept_at = now_s();
    for (size_t turn = 0; churn.claimed < keys; turn = !turn) {
        batch_run(&churn, turn, churn.claimed > 0, swept);
        swept = sweep_run(&churn);
        rate_keep(&churn);
        sample(&churn, false);
    }
    sample(&churn, true);
    report(&churn);
    PQfinish(churn.watcher);
    idem_store_close(churn.store);
    return 0;
}
