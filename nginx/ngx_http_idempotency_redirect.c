
/*
 * Copyright (C) The idem authors
 *
 * Internal redirects of a request that already has an exchange: try_files,
 * error_page, X-Accel-Redirect.  One that executes may have the request only if
 * nobody has had it yet, and only where it is guarded too, for only there was
 * it checked that the request cannot be sent twice.
 */


#include "ngx_http_idempotency_module.h"


static ngx_uint_t ngx_http_idempotency_page(ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_reroute_event(
    ngx_http_idempotency_ctx_t *ctx, struct idem_event *event);
static ngx_int_t ngx_http_idempotency_reroute(ngx_http_idempotency_ctx_t *ctx);


/* the phases run for a request that already has an exchange */

ngx_int_t
ngx_http_idempotency_again(ngx_http_idempotency_ctx_t *ctx)
{
    if (ctx->resume) {
        ctx->resume = 0;
        return NGX_DECLINED;
    }

    if (ctx->outcome == NGX_HTTP_IDEMPOTENCY_BYPASSED) {
        return NGX_DECLINED;
    }

    if (ctx->exchange.state != IDEM_EXCHANGE_EXECUTING) {
        ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                      "idempotency: a redirect of a request that is \"%s\" is "
                      "refused", idem_exchange_state_text(ctx->exchange.state));
        return ngx_http_idempotency_internal_error(ctx->request);
    }

    if (ngx_http_idempotency_page(ctx)) {
        return NGX_DECLINED;
    }

    return ngx_http_idempotency_reroute(ctx);
}


/*
 * A file may answer: what error_page asks for by GET, or the operation itself
 * where no upstream was asked yet.  A page from an upstream may not, not even
 * by GET: the body and the key would go along, and by "proxy_method" or by its
 * own will the upstream might execute it.
 */

static ngx_uint_t
ngx_http_idempotency_page(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    return r->content_handler == NULL
           && (r->method != ctx->method || r->upstream == NULL);
}


static void
ngx_http_idempotency_reroute_event(ngx_http_idempotency_ctx_t *ctx,
    struct idem_event *event)
{
    char                             *why;
    ngx_http_request_t               *r;
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_idempotency_loc_conf_t  *conf;

    r = ctx->request;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    conf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    ngx_memzero(event, sizeof(struct idem_event));
    event->kind = IDEM_EVENT_REROUTED;
    event->evidence = ngx_http_idempotency_evidence(ctx);

    if (ngx_http_idempotency_answered(r)) {
        event->status = r->upstream->headers_in.status_n;
        event->declared = ngx_http_idempotency_declared(r);
    }

    if (event->evidence != IDEM_EVIDENCE_NOT_SENT) {
        why = "for it was sent to an upstream already";

    } else if (r->method != ctx->method) {
        why = "for it would be another request there";
        event->kind = IDEM_EVENT_UPSTREAM_FAILED;

    } else if (conf->store != ctx->conf->store) {
        why = "which is not guarded by the same store and might send it "
              "twice: say \"idempotency\" there, too";
        event->kind = IDEM_EVENT_UPSTREAM_FAILED;

    } else if (r->content_handler == NULL) {
        why = "which leads to no upstream";
        event->kind = IDEM_EVENT_UPSTREAM_FAILED;

    } else {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "a guarded request is not sent through the location \"%V\", "
                  "%s", &clcf->name, why);
}


static ngx_int_t
ngx_http_idempotency_reroute(ngx_http_idempotency_ctx_t *ctx)
{
    struct idem_event    event;
    ngx_http_request_t  *r;

    r = ctx->request;

    ngx_http_idempotency_reroute_event(ctx, &event);

    r->write_event_handler = ngx_http_request_empty_handler;

    /* the step may end the request: hold it until we are out of here */

    r->main->count++;
    ctx->handling = 1;

    ngx_http_idempotency_step(ctx, &event);

    ctx->handling = 0;

    if (ctx->resume) {
        ctx->resume = 0;
        r->main->count--;
        r->write_event_handler = ngx_http_core_run_phases;
        return NGX_DECLINED;
    }

    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}
