#define _GNU_SOURCE /* nftw */

#include "scene.h"

#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;
static struct scene_trace traces[SCENE_TRACE_MAX];
static size_t trace_count;

static void trace_keep(void *context, int error, const char *text)
{
    (void)context;
    pthread_mutex_lock(&trace_lock);
    if (trace_count < SCENE_TRACE_MAX) {
        traces[trace_count].error = error;
        (void)snprintf(traces[trace_count].text, sizeof traces[0].text, "%s", text);
        trace_count++;
    }
    pthread_mutex_unlock(&trace_lock);
}

size_t scene_traces(struct scene_trace *ret_traces, size_t max)
{
    size_t count;

    pthread_mutex_lock(&trace_lock);
    count = trace_count < max ? trace_count : max;
    memcpy(ret_traces, traces, count * sizeof *ret_traces);
    pthread_mutex_unlock(&trace_lock);
    return count;
}

static struct idem_executor *start(const char *url, struct idem_executor_options *options)
{
    struct idem_executor_options plain = {.sweep_us = -1};
    struct idem_executor *executor = NULL;
    struct idem_message message = {{0}};

    pthread_mutex_lock(&trace_lock);
    trace_count = 0;
    pthread_mutex_unlock(&trace_lock);
    if (!options)
        options = &plain;
    options->trace = trace_keep;
    assert_int_equal(idem_executor_new(url, options, &executor, &message), 0);
    return executor;
}

static void await_open(struct idem_executor *executor)
{
    struct idem_message message = {{0}};

    assert_int_equal(idem_executor_wait_open(executor, SCENE_WAIT_US, &message), 0);
}

struct idem_executor *scene_start_closed(struct idem_executor_options *options)
{
    return start("memory:", options);
}

struct idem_executor *scene_start_url(const char *url, struct idem_executor_options *options)
{
    struct idem_executor *executor = start(url, options);

    await_open(executor);
    return executor;
}

struct idem_executor *scene_start(struct idem_executor_options *options)
{
    struct idem_executor *executor = scene_start_closed(options);

    await_open(executor);
    return executor;
}

static char lmdb_directory[32];

struct idem_executor *scene_start_lmdb_again(struct idem_executor_options *options)
{
    char url[128];

    (void)snprintf(url, sizeof url, "lmdb:%s?sync=off&size=64m", lmdb_directory);
    return scene_start_url(url, options);
}

struct idem_executor *scene_start_lmdb(struct idem_executor_options *options)
{
    if (idem_store_url_check("lmdb:/tmp/idem-exec", NULL, NULL) == IDEM_ERR_UNSUPPORTED)
        return NULL;
    (void)snprintf(lmdb_directory, sizeof lmdb_directory, "/tmp/idem-exec-XXXXXX");
    assert_non_null(mkdtemp(lmdb_directory));
    return scene_start_lmdb_again(options);
}

static int entry_remove(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status;
    (void)type;
    (void)ftw;
    return remove(path);
}

void scene_remove_lmdb(void)
{
    assert_int_equal(nftw(lmdb_directory, entry_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void probe_notify(struct idem_job *job, enum idem_job_event event)
{
    struct probe *probe = (struct probe *)job; /* its first member */

    assert_int_equal(probe->done, 0);
    if (event == IDEM_JOB_DELAYED) {
        probe->delayed++;
        probe->delayed_error = job->error;
        return;
    }
    probe->done++;
    if (probe->then)
        probe->then(probe);
}

static void probe_init(struct probe *probe, enum idem_op_kind kind, uint8_t id)
{
    memset(probe, 0, sizeof *probe);
    probe->job.notify = probe_notify;
    probe->job.op.kind = kind;
    memset(probe->job.op.id.bytes, 0x5a, sizeof probe->job.op.id.bytes);
    probe->job.op.id.bytes[0] = id;
}

void probe_claim(struct probe *probe, uint8_t id, uint8_t owner)
{
    struct idem_claim *claim = &probe->job.op.in.claim;

    probe_init(probe, IDEM_OP_CLAIM, id);
    claim->kind = IDEM_KIND_HTTP;
    claim->key = TEXT("key");
    claim->owner.bytes[0] = owner;
    claim->lease_us = 3600 * IDEM_SECOND_US;
    claim->unknown_ttl_us = 86400 * IDEM_SECOND_US;
    claim->ttl_us = 86400 * IDEM_SECOND_US;
}

void probe_verdict(struct probe *probe, enum idem_op_kind kind, uint8_t id, uint8_t owner)
{
    struct idem_verdict *verdict = &probe->job.op.in.verdict;

    probe_init(probe, kind, id);
    verdict->owner.bytes[0] = owner;
    verdict->ttl_us = 86400 * IDEM_SECOND_US;
    verdict->lease_us = 3600 * IDEM_SECOND_US;
    if (kind == IDEM_OP_COMPLETE)
        verdict->answer = (struct idem_answer){.status = 201, .body = TEXT("made")};
    if (kind == IDEM_OP_ABANDON)
        verdict->reason = IDEM_REASON_UNANSWERED;
}

void probe_get(struct probe *probe, uint8_t id)
{
    probe_init(probe, IDEM_OP_GET, id);
}

void probe_release(struct probe *probe)
{
    idem_op_deinit(&probe->job.op);
}

void scene_submit(struct idem_executor *executor, struct probe *probe)
{
    assert_int_equal(idem_executor_submit(executor, &probe->job), 0);
}

static void await_count(struct idem_executor *executor, const unsigned *count)
{
    struct pollfd descriptor = {.fd = idem_executor_fd(executor), .events = POLLIN};

    while (*count == 0) {
        assert_int_equal(poll(&descriptor, 1, (int)(SCENE_WAIT_US / 1000)), 1);
        (void)idem_executor_collect(executor);
    }
}

void scene_await_done(struct idem_executor *executor, const struct probe *probe)
{
    await_count(executor, &probe->done);
}

void scene_await_delayed(struct idem_executor *executor, const struct probe *probe)
{
    await_count(executor, &probe->delayed);
}

enum idem_result scene_run(struct idem_executor *executor, struct probe *probe)
{
    scene_submit(executor, probe);
    scene_await_done(executor, probe);
    assert_int_equal(probe->job.error, 0);
    return probe->job.op.result;
}

bool scene_rings(struct idem_executor *executor)
{
    struct pollfd descriptor = {.fd = idem_executor_fd(executor), .events = POLLIN};

    return poll(&descriptor, 1, 0) == 1;
}

void scene_await(bool (*holds)(void *context), void *context)
{
    time_t begun = time(NULL);

    while (!holds(context)) {
        assert_true(time(NULL) - begun < (time_t)(SCENE_WAIT_US / IDEM_SECOND_US));
        (void)sched_yield();
    }
}
