/*
 * idem-bench-store URL [COMMITS]: how fast a store is without a gateway around it.
 *
 *   1. Through the library: batches of 1, 8 and 64 claims of new ids, each COMMITS times (default
 *      200): the median time of a batch in milliseconds, and claims a second.
 *   2. Through the executor, which makes the batches itself: so many claims are kept waiting or
 *      under way at any time, for as many claims in all: claims a second.
 *
 * Prints one JSON object.
 */
#include <idem/executor.h>

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"

#define COMMITS_DEFAULT 200
#define COMMITS_MAX     100000
#define WARM_UP         8
#define BATCH_MAX       64

/* Sizes of a usual request: a UUID as key, a short path. */
struct claim {
    char key[48];
    struct idem_op op;
    struct idem_job job; /* through the executor; its op is used then */
};

/* A stretch of claims through the executor. */
struct stretch {
    struct idem_executor *executor;
    uint64_t run;
    size_t left; /* claims not submitted yet */
    size_t under_way;
    int error;
};

static struct stretch stretch;

static const size_t batches[] = {1, 8, 64};

#define BATCHES_COUNT (sizeof batches / sizeof batches[0])

static struct claim claims[BATCH_MAX];
static struct idem_op *ops[BATCH_MAX];
static uint64_t serial;

static double now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void claim_fill(struct claim *claim, uint64_t run)
{
    struct idem_claim *in = &claim->op.in.claim;
    int size = snprintf(claim->key, sizeof claim->key, "%08llx-bench-0000-%012llx-%06llx",
                        (unsigned long long)(run & 0xffffffff), (unsigned long long)serial,
                        (unsigned long long)(serial * 7919 % 0xffffff));

    memset(&claim->op, 0, sizeof claim->op);
    claim->op.kind = IDEM_OP_CLAIM;
    in->kind = IDEM_KIND_HTTP;
    in->key = idem_bytes_make(claim->key, (size_t)size);
    in->method = idem_bytes_from_text("POST");
    in->path = idem_bytes_from_text("/payments");
    in->fingerprint.algorithm = IDEM_FINGERPRINT_RAW;
    memcpy(in->fingerprint.bytes, &serial, sizeof serial);
    memcpy(in->owner.bytes, &serial, sizeof serial);
    in->lease_us = 10 * IDEM_SECOND_US;
    in->unknown_ttl_us = INT64_C(30) * 86400 * IDEM_SECOND_US;
    in->ttl_us = INT64_C(86400) * IDEM_SECOND_US;
    claim->op.id = idem_id_make(in->kind, in->scope, in->key);
    serial++;
}

/* One commit. Negative: the sentence has been printed. */
static int commit_run(struct idem_store *store, size_t batch, uint64_t run, double *ret_ms)
{
    struct idem_message message = {{0}};
    double begun;
    int error;

    for (size_t i = 0; i < batch; i++)
        claim_fill(&claims[i], run);
    begun = now_ms();
    error = idem_store_apply(store, ops, batch, &message);
    *ret_ms = now_ms() - begun;
    for (size_t i = 0; !error && i < batch; i++) {
        if (claims[i].op.result != IDEM_RESULT_ACQUIRED) {
            (void)snprintf(message.text, sizeof message.text, "a claim of a new id was answered %s",
                           idem_result_text(claims[i].op.result));
            error = IDEM_ERR_UNSAFE;
        }
        idem_op_deinit(&claims[i].op);
    }
    if (error)
        (void)fprintf(stderr, "idem-bench-store: %s\n", message.text);
    return error;
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int batch_measure(struct idem_store *store, size_t batch, size_t commits, double *times)
{
    uint64_t run = (uint64_t)time(NULL);
    double total = 0, ignored;

    for (size_t i = 0; i < WARM_UP; i++)
        if (commit_run(store, batch, run, &ignored))
            return 1;
    for (size_t i = 0; i < commits; i++) {
        if (commit_run(store, batch, run, &times[i]))
            return 1;
        total += times[i];
    }
    qsort(times, commits, sizeof *times, double_compare);
    (void)printf("%s\"commit_ms_%zu\": %.4f, \"claims_per_s_%zu\": %.0f", batch > 1 ? ", " : "{",
                 batch, times[commits / 2], batch, (double)(commits * batch) * 1e3 / total);
    return 0;
}

static void job_submit(struct claim *claim);

static void job_notify(struct idem_job *job, enum idem_job_event event)
{
    struct claim *claim = (struct claim *)((char *)job - offsetof(struct claim, job));

    (void)event; /* a claim is told once, when it is done */
    stretch.under_way--;
    if (job->error || job->op.result != IDEM_RESULT_ACQUIRED)
        stretch.error = job->error ? job->error : IDEM_ERR_UNSAFE;
    idem_op_deinit(&job->op);
    if (stretch.left > 0 && !stretch.error)
        job_submit(claim);
}

static void job_submit(struct claim *claim)
{
    claim_fill(claim, stretch.run);
    memset(&claim->job, 0, sizeof claim->job);
    claim->job.op = claim->op;
    claim->job.notify = job_notify;
    stretch.error = idem_executor_submit(stretch.executor, &claim->job);
    if (stretch.error)
        return;
    stretch.left--;
    stretch.under_way++;
}

/* Keeps `window` claims with the executor until `total` were claimed. */
static int window_measure(size_t window, size_t total)
{
    struct pollfd readable = {.fd = idem_executor_fd(stretch.executor), .events = POLLIN};
    double begun = now_ms();

    stretch.left = total;
    for (size_t i = 0; i < window && !stretch.error; i++)
        job_submit(&claims[i]);
    while (stretch.under_way > 0) {
        (void)poll(&readable, 1, -1);
        (void)idem_executor_collect(stretch.executor);
    }
    (void)printf(", \"executor_claims_per_s_%zu\": %.0f", window,
                 (double)total * 1e3 / (now_ms() - begun));
    return stretch.error;
}

static int executor_measure(const char *url, size_t commits)
{
    struct idem_executor_options options = {.sweep_us = -1};
    struct idem_message message = {{0}};

    stretch.run = (uint64_t)time(NULL) + 1;
    if (idem_executor_new(url, &options, &stretch.executor, &message) ||
        idem_executor_wait_open(stretch.executor, 10 * IDEM_SECOND_US, &message)) {
        (void)fprintf(stderr, "idem-bench-store: %s\n", message.text);
        idem_executor_free(stretch.executor, 0);
        return 1;
    }
    for (size_t i = 0; i < BATCHES_COUNT && !stretch.error; i++)
        stretch.error = window_measure(batches[i], commits * batches[i]);
    if (stretch.error)
        (void)fprintf(stderr, "idem-bench-store: through the executor: %s\n",
                      idem_error_text(stretch.error));
    idem_executor_free(stretch.executor, IDEM_SECOND_US);
    return stretch.error != 0;
}

int main(int count, char **arguments)
{
    struct idem_message message = {{0}};
    struct idem_store *store = NULL;
    long commits = count > 2 ? strtol(arguments[2], NULL, 10) : COMMITS_DEFAULT;
    double *times;
    int failed = 0;

    if (count < 2 || commits < 1 || commits > COMMITS_MAX) {
        (void)fprintf(stderr, "usage: idem-bench-store URL [COMMITS]\n");
        return 2;
    }
    if (idem_store_open(arguments[1], NULL, &store, &message)) {
        (void)fprintf(stderr, "idem-bench-store: %s\n", message.text);
        return 1;
    }
    times = idem_calloc((size_t)commits, sizeof *times);
    if (!times)
        failed = 1;
    for (size_t i = 0; i < BATCH_MAX; i++)
        ops[i] = &claims[i].op;
    for (size_t i = 0; !failed && i < BATCHES_COUNT; i++)
        failed = batch_measure(store, batches[i], (size_t)commits, times);
    idem_free(times);
    idem_store_close(store); /* the executor opens one of its own */
    if (!failed)
        failed = executor_measure(arguments[1], (size_t)commits);
    if (!failed)
        (void)printf("}\n");
    return failed;
}
