
/*
 * Copyright (C) The idem authors
 *
 * The module itself: where it hooks into nginx, and a worker's beginning and
 * end.
 */


#include "ngx_http_idempotency_module.h"

#include <sodium.h>


static ngx_int_t ngx_http_idempotency_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_idempotency_postconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_idempotency_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_idempotency_init_process(ngx_cycle_t *cycle);
static void ngx_http_idempotency_exit_process(ngx_cycle_t *cycle);


static ngx_http_module_t  ngx_http_idempotency_module_ctx = {
    ngx_http_idempotency_preconfiguration, /* preconfiguration */
    ngx_http_idempotency_postconfiguration, /* postconfiguration */

    ngx_http_idempotency_create_main_conf, /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_idempotency_create_loc_conf,  /* create location configuration */
    ngx_http_idempotency_merge_loc_conf    /* merge location configuration */
};


ngx_module_t  ngx_http_idempotency_module = {
    NGX_MODULE_V1,
    &ngx_http_idempotency_module_ctx,      /* module context */
    ngx_http_idempotency_commands,         /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_idempotency_init_module,      /* init module */
    ngx_http_idempotency_init_process,     /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_idempotency_exit_process,     /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_idempotency_preconfiguration(ngx_conf_t *cf)
{
    if (sodium_init() < 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency: libsodium cannot be used: this system "
                           "gives no random bytes");
        return NGX_ERROR;
    }

    if (ngx_http_idempotency_find_peers(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_add_variables(cf);
}


static ngx_int_t
ngx_http_idempotency_postconfiguration(ngx_conf_t *cf)
{
    ngx_uint_t                         i;
    ngx_http_handler_pt               *h;
    ngx_http_core_main_conf_t         *cmcf;
    ngx_http_idempotency_store_t      *store;
    ngx_http_idempotency_main_conf_t  *imcf;

    /* before anything can fail: the old workers' successors need them */

    ngx_http_idempotency_request_init();
    ngx_http_idempotency_filter_init();

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    store = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (ngx_http_idempotency_check_store(cf, &store[i]) != NGX_CONF_OK) {
            return NGX_ERROR;
        }
    }

    if (imcf->guards == 0) {
        return NGX_OK;
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idempotency_handler;

    return NGX_OK;
}


/* a configuration is taken */

static ngx_int_t
ngx_http_idempotency_init_module(ngx_cycle_t *cycle)
{
    ngx_http_idempotency_filter_remember();

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                         i;
    ngx_http_idempotency_store_t      *store;
    ngx_http_idempotency_main_conf_t  *imcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_idempotency_module);
    if (imcf == NULL) {
        return NGX_OK;
    }

    ngx_queue_init(&imcf->live);

    if (!ngx_http_idempotency_filter_intact()) {
        imcf->broken = 1;

        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                      "idempotency: the last reload failed half way and left "
                      "this nginx without its filters; guarded requests are "
                      "refused until a reload succeeds");
    }

    store = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (ngx_http_idempotency_store_init(cycle, &store[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * A worker that is told to stop at once runs no cleanups: the exchanges that
 * are still alive get their verdicts here.  Those whose answer is there and
 * waits to be recorded keep their jobs: the executor tells each what became of
 * it before it ends, and the answer goes out, recorded or not.
 */

static void
ngx_http_idempotency_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                         i;
    ngx_queue_t                       *q, *next;
    ngx_msec_t                         until;
    ngx_msec_int_t                     left;
    ngx_http_idempotency_ctx_t        *ctx;
    ngx_http_idempotency_store_t      *store;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_idempotency_module);

    if (imcf == NULL || imcf->live.next == NULL) {
        return;
    }

    for (q = ngx_queue_head(&imcf->live);
         q != ngx_queue_sentinel(&imcf->live);
         q = next)
    {
        next = ngx_queue_next(q);
        ctx = ngx_queue_data(q, ngx_http_idempotency_ctx_t, live);

        if (ctx->waiting && ctx->waiting != IDEM_OP_CLAIM) {
            continue;
        }

        ngx_http_idempotency_abort(ctx);
        ngx_http_idempotency_jobs_detach(ctx);
    }

    store = imcf->stores.elts;

    ngx_time_update();
    until = ngx_current_msec + NGX_HTTP_IDEMPOTENCY_EXIT_TIMEOUT;

    for (i = 0; i < imcf->stores.nelts; i++) {
        ngx_time_update();
        left = (ngx_msec_int_t) (until - ngx_current_msec);

        ngx_http_idempotency_store_exit(&store[i], ngx_max(left, 0));
    }
}
