
/*
 * Copyright (C) The idem authors
 *
 * The driver: hands events to the exchange and executes its effects in order.
 *
 * An effect that ends the request frees the context, so it is always the last
 * one of a step (idem/exchange.h), and nothing is touched after it.
 */


#include "ngx_http_idempotency_module.h"


static void ngx_http_idempotency_effect(ngx_http_idempotency_ctx_t *ctx,
    struct idem_event *event, struct idem_effect *effect);
static void ngx_http_idempotency_store_effect(ngx_http_idempotency_ctx_t *ctx,
    struct idem_effect *effect);
static void ngx_http_idempotency_log_unknown(ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_peek(ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_forward(ngx_http_idempotency_ctx_t *ctx,
    struct idem_effect *effect);
static void ngx_http_idempotency_bypass(ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_go_on(ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_answered_by_store(
    ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_timer(ngx_http_idempotency_ctx_t *ctx,
    int64_t delay_us);
static void ngx_http_idempotency_tick_handler(ngx_event_t *ev);
static void ngx_http_idempotency_deadline_handler(ngx_event_t *ev);


void
ngx_http_idempotency_step(ngx_http_idempotency_ctx_t *ctx,
    struct idem_event *event)
{
    size_t               i;
    struct idem_effects  effects;

    idem_exchange_step(&ctx->exchange, event, &effects);

    for (i = 0; i < effects.count; i++) {
        ngx_http_idempotency_effect(ctx, event, &effects.items[i]);
    }
}


static void
ngx_http_idempotency_effect(ngx_http_idempotency_ctx_t *ctx,
    struct idem_event *event, struct idem_effect *effect)
{
    switch (effect->kind) {

    case IDEM_EFFECT_STORE:
        ngx_http_idempotency_store_effect(ctx, effect);
        break;

    case IDEM_EFFECT_TIMER:
        ngx_http_idempotency_timer(ctx, effect->delay_us);
        break;

    case IDEM_EFFECT_FORWARD:
        ngx_http_idempotency_forward(ctx, effect);
        break;

    case IDEM_EFFECT_BYPASS:
        ngx_http_idempotency_bypass(ctx);
        break;

    case IDEM_EFFECT_REPLAY:
        ngx_http_idempotency_replay(ctx, (struct idem_op *) event->op);
        break;

    case IDEM_EFFECT_REFUSE:
        ngx_http_idempotency_refuse_exchange(ctx, &effect->problem);
        break;

    case IDEM_EFFECT_DELIVER:
        ngx_http_idempotency_release(ctx, effect->unrecorded);
        break;

    case IDEM_EFFECT_PROBE:
        /* no directive sets a policy that asks for it */
        break;
    }
}


static void
ngx_http_idempotency_store_effect(ngx_http_idempotency_ctx_t *ctx,
    struct idem_effect *effect)
{
    if (effect->op_kind == IDEM_OP_ABANDON) {
        ngx_http_idempotency_log_unknown(ctx);
    }

    if (effect->background) {
        (void) ngx_http_idempotency_submit(ctx, effect);
        return;
    }

    if (effect->op_kind == IDEM_OP_CLAIM && ngx_http_idempotency_peek(ctx)) {
        return;
    }

    /* a renew has nobody waiting for it */

    if (effect->op_kind != IDEM_OP_RENEW) {
        ctx->waiting = effect->op_kind;
        ctx->waiting_since = ngx_current_msec;
        ngx_add_timer(&ctx->deadline, ctx->conf->store->timeout);
    }

    if (ngx_http_idempotency_submit(ctx, effect) != NGX_OK) {
        ngx_http_idempotency_store_failed(ctx, effect->op_kind, 1);
    }
}


/* the person on call finds the record by this line */

static void
ngx_http_idempotency_log_unknown(ngx_http_idempotency_ctx_t *ctx)
{
    char  id[IDEM_ID_TEXT_SIZE];

    idem_id_format(&ctx->exchange.id, id);

    ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                  "idempotency store \"%V\": outcome unknown (%s), id %s, "
                  "attempt %uD", &ctx->conf->store->name,
                  idem_reason_text(ctx->exchange.reason), id,
                  ctx->exchange.attempt);
}


/*
 * The fast path of a replay: what is recorded and durable is read here and now
 * and stands for the result of the claim, with every check that a claim makes.
 */

static ngx_uint_t
ngx_http_idempotency_peek(ngx_http_idempotency_ctx_t *ctx)
{
    struct idem_op    op;
    struct idem_get  *get;

    ngx_memzero(&op, sizeof(struct idem_op));
    op.kind = IDEM_OP_GET;
    op.id = ctx->exchange.id;

    get = &op.in.get;
    get->match = true;
    get->fingerprint = ctx->exchange.claim.fingerprint;
    get->principal = ctx->exchange.claim.principal;

    if (idem_executor_peek(ctx->conf->store->executor, &op) != IDEM_OK) {
        return 0;
    }

    if (op.result == IDEM_RESULT_FOUND) {
        op.result = op.out.found.record.state == IDEM_STATE_COMPLETED
                    ? IDEM_RESULT_COMPLETED : IDEM_RESULT_NONE;
    }

    switch (op.result) {

    case IDEM_RESULT_COMPLETED:
    case IDEM_RESULT_MISMATCH:
    case IDEM_RESULT_OTHER_PRINCIPAL:
        op.kind = IDEM_OP_CLAIM;
        ngx_http_idempotency_store_result(ctx, &op);
        idem_op_deinit(&op);
        return 1;

    default:
        idem_op_deinit(&op);
        return 0;
    }
}


static void
ngx_http_idempotency_answered_by_store(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->waiting) {
        ctx->store_time += ngx_current_msec - ctx->waiting_since;
        ctx->waiting = 0;
    }

    if (ctx->deadline.timer_set) {
        ngx_del_timer(&ctx->deadline);
    }
}


void
ngx_http_idempotency_store_result(ngx_http_idempotency_ctx_t *ctx,
    struct idem_op *op)
{
    char               id[IDEM_ID_TEXT_SIZE];
    struct idem_event  event;

    if (ctx->waiting == op->kind) {
        ngx_http_idempotency_answered_by_store(ctx);
    }

    if (op->result == IDEM_RESULT_CORRUPT) {
        idem_id_format(&ctx->exchange.id, id);

        ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                      "idempotency store \"%V\" holds a damaged record, id "
                      "%s: its key is refused until a person has looked "
                      "at it", &ctx->conf->store->name, id);
    }

    ngx_memzero(&event, sizeof(struct idem_event));
    event.kind = IDEM_EVENT_STORE_RESULT;
    event.op = op;

    ngx_http_idempotency_step(ctx, &event);
}


void
ngx_http_idempotency_store_failed(ngx_http_idempotency_ctx_t *ctx,
    enum idem_op_kind kind, ngx_uint_t not_applied)
{
    struct idem_event  event;

    if (ctx->waiting == kind) {
        ngx_http_idempotency_answered_by_store(ctx);
    }

    ngx_memzero(&event, sizeof(struct idem_event));
    event.kind = IDEM_EVENT_STORE_FAILED;
    event.op_kind = kind;
    event.not_applied = not_applied;

    ngx_http_idempotency_step(ctx, &event);
}


/* lets the phases run on; inside our own handler they already do */

static void
ngx_http_idempotency_go_on(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_request_t  *r;

    r = ctx->request;
    ctx->resume = 1;

    if (ctx->handling) {
        return;
    }

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


static void
ngx_http_idempotency_forward(ngx_http_idempotency_ctx_t *ctx,
    struct idem_effect *effect)
{
    if (ngx_http_idempotency_tell_upstream(ctx, effect->attempt, effect->fence)
        != NGX_OK)
    {
        /* the cleanup gives the verdict: nothing was sent */
        ngx_http_finalize_request(ctx->request, NGX_ERROR);
        return;
    }

    ctx->outcome = NGX_HTTP_IDEMPOTENCY_EXECUTED;
    ngx_http_idempotency_go_on(ctx);
}


static void
ngx_http_idempotency_bypass(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                  "idempotency store %V cannot be used, the request goes "
                  "unguarded as \"idempotency_fail open\" says",
                  &ctx->conf->store->label);

    ctx->outcome = NGX_HTTP_IDEMPOTENCY_BYPASSED;
    ngx_http_idempotency_go_on(ctx);
}


static void
ngx_http_idempotency_timer(ngx_http_idempotency_ctx_t *ctx, int64_t delay_us)
{
    ngx_add_timer(&ctx->tick, ngx_max((ngx_msec_t) (delay_us / 1000), 1));
}


static void
ngx_http_idempotency_tick_handler(ngx_event_t *ev)
{
    struct idem_event            event;
    ngx_http_idempotency_ctx_t  *ctx = ev->data;

    ngx_http_set_log_request(ev->log, ctx->request);

    ngx_memzero(&event, sizeof(struct idem_event));
    event.kind = IDEM_EVENT_TICK;

    ngx_http_idempotency_step(ctx, &event);
}


/*
 * A claim that still waits in the queue ends as one that the store never saw;
 * nothing has to be taken back then.  Collecting tells others their results
 * too, and what this request is told may be its end.
 */

static void
ngx_http_idempotency_deadline_handler(ngx_event_t *ev)
{
    ngx_uint_t                     gone;
    ngx_connection_t              *c;
    ngx_http_idempotency_ctx_t    *ctx = ev->data;
    ngx_http_idempotency_store_t  *store;

    c = ctx->request->connection;
    store = ctx->conf->store;

    ngx_http_set_log_request(c->log, ctx->request);

    ngx_log_error(NGX_LOG_ERR, c->log, 0,
                  "idempotency store %V gave no result within %M ms",
                  &store->label, store->timeout);

    gone = 0;
    ctx->gone = &gone;

    (void) idem_executor_collect(store->executor);

    if (gone) {
        return;
    }

    ctx->gone = NULL;

    if (ctx->waiting == 0 || ctx->deadline.timer_set) {

        /* it has come, and the next one may have been submitted */

        return;
    }

    ngx_http_set_log_request(c->log, ctx->request);

    ngx_http_idempotency_store_failed(ctx, ctx->waiting, 0);

    ngx_http_run_posted_requests(c);
}


void
ngx_http_idempotency_start(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_log_t                         *log;
    ngx_http_idempotency_main_conf_t  *imcf;

    log = ctx->request->connection->log;
    imcf = ngx_http_get_module_main_conf(ctx->request,
                                         ngx_http_idempotency_module);

    ngx_queue_init(&ctx->jobs);
    ngx_queue_insert_tail(&imcf->live, &ctx->live);

    ctx->tick.handler = ngx_http_idempotency_tick_handler;
    ctx->tick.data = ctx;
    ctx->tick.log = log;

    ctx->deadline.handler = ngx_http_idempotency_deadline_handler;
    ctx->deadline.data = ctx;
    ctx->deadline.log = log;
}


/* no path leaves a claim without a verdict: not even the end of the worker */

void
ngx_http_idempotency_abort(ngx_http_idempotency_ctx_t *ctx)
{
    struct idem_event  event;

    ngx_memzero(&event, sizeof(struct idem_event));
    event.kind = IDEM_EVENT_ABORTED;
    event.evidence = ngx_http_idempotency_evidence(ctx);

    ngx_http_idempotency_step(ctx, &event);
}


void
ngx_http_idempotency_cleanup(void *data)
{
    ngx_http_idempotency_ctx_t  *ctx = data;

    ngx_http_idempotency_abort(ctx);
    ngx_http_idempotency_jobs_detach(ctx);

    ngx_queue_remove(&ctx->live);

    if (ctx->tick.timer_set) {
        ngx_del_timer(&ctx->tick);
    }

    if (ctx->deadline.timer_set) {
        ngx_del_timer(&ctx->deadline);
    }

    ngx_http_idempotency_answer_free(ctx->answer);
    ctx->answer = NULL;

    if (ctx->gone) {
        *ctx->gone = 1;
    }
}
