
/*
 * Copyright (C) The idem authors
 *
 * Stores in a worker: one executor each, its eventfd among nginx's events, and
 * the jobs on it.
 *
 * A job owns its memory, so that it may outlive the request: the request's
 * cleanup takes the back pointer away and the job goes on alone.  While such
 * jobs are left, a timer keeps a leaving worker alive, bounded.
 */


#include "ngx_http_idempotency_module.h"


#define NGX_HTTP_IDEMPOTENCY_TRACE_LINES  16


/* lines from the executor's thread, which must not touch nginx's log */

typedef struct {
    pthread_mutex_t       lock;
    ngx_uint_t            count;
    ngx_uint_t            lost;
    int                   errors[NGX_HTTP_IDEMPOTENCY_TRACE_LINES];
    struct idem_message   lines[NGX_HTTP_IDEMPOTENCY_TRACE_LINES];
} ngx_http_idempotency_trace_t;


static void ngx_http_idempotency_trace(void *data, int error,
    const char *text);
static void ngx_http_idempotency_trace_flush(
    ngx_http_idempotency_store_t *store);
static ngx_int_t ngx_http_idempotency_store_listen(ngx_cycle_t *cycle,
    ngx_http_idempotency_store_t *store);
static void ngx_http_idempotency_collect_handler(ngx_event_t *ev);
static void ngx_http_idempotency_housekeeping(ngx_event_t *ev);
static void ngx_http_idempotency_drain(ngx_event_t *ev);
static void ngx_http_idempotency_notify(struct idem_job *job,
    enum idem_job_event event);
static void ngx_http_idempotency_job_free(ngx_http_idempotency_job_t *job);
static void ngx_http_idempotency_own_claim(u_char *p, struct idem_claim *claim);
static ngx_http_idempotency_job_t *ngx_http_idempotency_job_create(
    ngx_http_idempotency_ctx_t *ctx, struct idem_effect *effect);


static void
ngx_http_idempotency_trace(void *data, int error, const char *text)
{
    ngx_http_idempotency_trace_t  *trace = data;

    pthread_mutex_lock(&trace->lock);

    if (trace->count < NGX_HTTP_IDEMPOTENCY_TRACE_LINES) {
        trace->errors[trace->count] = error;
        ngx_cpystrn((u_char *) trace->lines[trace->count].text, (u_char *) text,
                    IDEM_MESSAGE_SIZE_MAX);
        trace->count++;

    } else {
        trace->lost++;
    }

    pthread_mutex_unlock(&trace->lock);
}


static void
ngx_http_idempotency_trace_flush(ngx_http_idempotency_store_t *store)
{
    ngx_uint_t                     i, level;
    ngx_http_idempotency_trace_t  *trace = store->trace;

    pthread_mutex_lock(&trace->lock);

    for (i = 0; i < trace->count; i++) {
        level = trace->errors[i] ? NGX_LOG_ERR : NGX_LOG_WARN;

        ngx_log_error(level, ngx_cycle->log, 0,
                      "idempotency store %V: %s", &store->label,
                      trace->lines[i].text);
    }

    if (trace->lost) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "idempotency store %V: %ui more messages",
                      &store->label, trace->lost);
    }

    trace->count = 0;
    trace->lost = 0;

    pthread_mutex_unlock(&trace->lock);
}


ngx_int_t
ngx_http_idempotency_store_init(ngx_cycle_t *cycle,
    ngx_http_idempotency_store_t *store)
{
    struct idem_message            message;
    struct idem_executor_options   options;
    ngx_http_idempotency_trace_t  *trace;

    trace = ngx_pcalloc(cycle->pool, sizeof(ngx_http_idempotency_trace_t));
    if (trace == NULL) {
        return NGX_ERROR;
    }

    pthread_mutex_init(&trace->lock, NULL);
    store->trace = trace;

    ngx_memzero(&options, sizeof(struct idem_executor_options));
    options.trace = ngx_http_idempotency_trace;
    options.context = trace;

    if (idem_executor_new((char *) store->url.data, &options, &store->executor,
                          &message)
        != IDEM_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                      "idempotency store %V: %s", &store->label,
                      message.text);
        return NGX_ERROR;
    }

    /*
     * A local store is open before the first request comes.  One that is not
     * is opened by the thread as soon as it can be; requests get 503 meanwhile.
     * For a server nobody waits here: it may be slow to answer, and locations
     * that are not guarded have nothing to do with it.
     */

    if (!store->remote
        && idem_executor_wait_open(store->executor, IDEM_SECOND_US, &message)
           != IDEM_OK)
    {
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                      "idempotency store %V is not open yet, guarded "
                      "requests are refused until it is: %s",
                      &store->label, message.text);
    }

    store->housekeeping.handler = ngx_http_idempotency_housekeeping;
    store->housekeeping.data = store;
    store->housekeeping.log = cycle->log;
    store->housekeeping.cancelable = 1;
    ngx_add_timer(&store->housekeeping, 1000);

    store->drain.handler = ngx_http_idempotency_drain;
    store->drain.data = store;
    store->drain.log = cycle->log;

    return ngx_http_idempotency_store_listen(cycle, store);
}


static ngx_int_t
ngx_http_idempotency_store_listen(ngx_cycle_t *cycle,
    ngx_http_idempotency_store_t *store)
{
    int                fd;
    ngx_event_t       *rev;
    ngx_connection_t  *c;

    fd = dup(idem_executor_fd(store->executor));
    if (fd == -1) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno, "dup() failed");
        return NGX_ERROR;
    }

    c = ngx_get_connection(fd, cycle->log);
    if (c == NULL) {
        (void) close(fd);
        return NGX_ERROR;
    }

    c->data = store;
    store->connection = c;

    rev = c->read;
    rev->log = cycle->log;
    rev->handler = ngx_http_idempotency_collect_handler;

    return ngx_handle_read_event(rev, 0);
}


static void
ngx_http_idempotency_collect_handler(ngx_event_t *ev)
{
    ngx_connection_t              *c;
    ngx_http_idempotency_store_t  *store;

    c = ev->data;
    store = c->data;

    (void) idem_executor_collect(store->executor);

    ev->ready = 0;

    if (ngx_handle_read_event(ev, 0) != NGX_OK) {
        ngx_log_error(NGX_LOG_ALERT, ev->log, 0,
                      "idempotency store %V: no events any more",
                      &store->label);
    }
}


static void
ngx_http_idempotency_housekeeping(ngx_event_t *ev)
{
    ngx_http_idempotency_store_t  *store = ev->data;

    ngx_http_idempotency_trace_flush(store);

    /* claims that wait behind a store that hangs end in here */

    (void) idem_executor_collect(store->executor);

    if (!ngx_exiting && !ngx_terminate) {
        ngx_add_timer(ev, 1000);
    }
}


/* runs as long as there are jobs that nobody waits for */

static void
ngx_http_idempotency_drain(ngx_event_t *ev)
{
    ngx_http_idempotency_store_t  *store = ev->data;

    if (store->background == 0) {
        return;
    }

    if (!ngx_exiting) {
        store->drain_until = ngx_current_msec
                             + NGX_HTTP_IDEMPOTENCY_DRAIN_TIMEOUT;

    } else if ((ngx_msec_int_t) (ngx_current_msec - store->drain_until) > 0) {
        ngx_log_error(NGX_LOG_ERR, ev->log, 0,
                      "idempotency store %V: leaving with %ui verdicts "
                      "unrecorded, their keys will answer \"outcome unknown\"",
                      &store->label, store->background);
        return;
    }

    ngx_add_timer(ev, 100);
}


void
ngx_http_idempotency_store_exit(ngx_http_idempotency_store_t *store,
    ngx_msec_t wait)
{
    if (store->executor == NULL) {
        return;
    }

    idem_executor_free(store->executor, (int64_t) wait * 1000);
    store->executor = NULL;

    ngx_http_idempotency_trace_flush(store);

    if (store->connection) {
        ngx_close_connection(store->connection);
        store->connection = NULL;
    }
}


void
ngx_http_idempotency_answer_free(ngx_http_idempotency_answer_t *answer)
{
    if (answer == NULL || --answer->refs) {
        return;
    }

    if (answer->headers) {
        ngx_free(answer->headers);
    }

    if (answer->body) {
        ngx_free(answer->body);
    }

    ngx_free(answer);
}


static void
ngx_http_idempotency_job_free(ngx_http_idempotency_job_t *job)
{
    if (job->ctx) {
        ngx_queue_remove(&job->queue);

    } else {
        job->store->background--;
    }

    idem_op_deinit(&job->job.op);
    ngx_http_idempotency_answer_free(job->answer);
    ngx_free(job);
}


static void
ngx_http_idempotency_notify(struct idem_job *idem_job,
    enum idem_job_event event)
{
    ngx_connection_t            *c;
    ngx_http_idempotency_ctx_t  *ctx;
    ngx_http_idempotency_job_t  *job = (ngx_http_idempotency_job_t *) idem_job;

    ctx = job->ctx;

    if (ctx == NULL) {
        if (event == IDEM_JOB_DONE) {
            ngx_http_idempotency_job_free(job);
        }

        return;
    }

    /* the step may finish the request, and with it ctx */

    c = ctx->request->connection;
    ngx_http_set_log_request(c->log, ctx->request);

    if (event == IDEM_JOB_DELAYED) {

        /* the executor goes on with it; the request does not wait */

        ngx_queue_remove(&job->queue);
        job->ctx = NULL;
        ngx_http_idempotency_hold_worker(job->store);

        ngx_http_idempotency_store_failed(ctx, idem_job->op.kind, 0);

    } else {

        ngx_queue_remove(&job->queue);
        job->ctx = NULL;
        job->store->background++;

        if (idem_job->error) {
            ngx_http_idempotency_store_failed(ctx, idem_job->op.kind,
                                              idem_job->not_applied);

        } else {
            ngx_http_idempotency_store_result(ctx, &idem_job->op);
        }

        ngx_http_idempotency_job_free(job);
    }

    ngx_http_run_posted_requests(c);
}


/* moves the views of a claim into the job's own memory */

static void
ngx_http_idempotency_own_claim(u_char *p, struct idem_claim *claim)
{
    ngx_uint_t          i;
    struct idem_bytes  *views[4];

    views[0] = &claim->scope;
    views[1] = &claim->key;
    views[2] = &claim->method;
    views[3] = &claim->path;

    for (i = 0; i < 4; i++) {
        if (views[i]->size) {
            ngx_memcpy(p, views[i]->data, views[i]->size);
        }

        views[i]->data = p;
        p += views[i]->size;
    }
}


static ngx_http_idempotency_job_t *
ngx_http_idempotency_job_create(ngx_http_idempotency_ctx_t *ctx,
    struct idem_effect *effect)
{
    size_t                       size;
    struct idem_claim           *claim;
    ngx_http_idempotency_job_t  *job;

    size = sizeof(ngx_http_idempotency_job_t);
    claim = &ctx->exchange.claim;

    if (effect->op_kind == IDEM_OP_CLAIM) {
        size += claim->scope.size + claim->key.size + claim->method.size
                + claim->path.size;
    }

    job = ngx_alloc(size, ctx->request->connection->log);
    if (job == NULL) {
        return NULL;
    }

    ngx_memzero(job, sizeof(ngx_http_idempotency_job_t));

    job->store = ctx->conf->store;
    job->job.notify = ngx_http_idempotency_notify;

    /* a little less than the request waits: see the deadline's handler */

    job->job.wait_us_max = (int64_t) job->store->timeout * 900;

    idem_exchange_op(&ctx->exchange, effect, &job->job.op);

    if (effect->op_kind == IDEM_OP_CLAIM) {
        ngx_http_idempotency_own_claim((u_char *) (job + 1),
                                       &job->job.op.in.claim);
    }

    if (effect->op_kind == IDEM_OP_COMPLETE
        && job->job.op.in.verdict.answer.tombstone == IDEM_REASON_NONE)
    {
        struct idem_answer  *answer = &job->job.op.in.verdict.answer;

        job->answer = ctx->answer;
        job->answer->refs++;

        answer->flags = job->answer->flags;
        answer->headers = idem_bytes_make(job->answer->headers,
                                          job->answer->headers_size);
        answer->body = idem_bytes_make(job->answer->body,
                                       job->answer->body_size);
    }

    return job;
}


/* from now on the worker must not leave before the background jobs are done */

void
ngx_http_idempotency_hold_worker(ngx_http_idempotency_store_t *store)
{
    store->background++;

    if (!store->drain.timer_set) {
        store->drain_until = ngx_current_msec
                             + NGX_HTTP_IDEMPOTENCY_DRAIN_TIMEOUT;
        ngx_add_timer(&store->drain, 100);
    }
}


/* NGX_DECLINED: refused at once, the store never saw it */

ngx_int_t
ngx_http_idempotency_submit(ngx_http_idempotency_ctx_t *ctx,
    struct idem_effect *effect)
{
    ngx_http_idempotency_job_t  *job;

    job = ngx_http_idempotency_job_create(ctx, effect);
    if (job == NULL) {
        return NGX_DECLINED;
    }

    if (effect->background) {
        ngx_http_idempotency_hold_worker(job->store);

    } else {
        job->ctx = ctx;
        ngx_queue_insert_tail(&ctx->jobs, &job->queue);
    }

    if (idem_executor_submit(job->store->executor, &job->job) != IDEM_OK) {
        ngx_http_idempotency_job_free(job);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* the request goes away, its jobs stay */

void
ngx_http_idempotency_jobs_detach(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_queue_t                 *q;
    ngx_http_idempotency_job_t  *job;

    while (!ngx_queue_empty(&ctx->jobs)) {
        q = ngx_queue_head(&ctx->jobs);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_http_idempotency_job_t, queue);
        job->ctx = NULL;

        ngx_http_idempotency_hold_worker(job->store);
    }
}
