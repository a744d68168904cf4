/*
 * Copyright (C) The idem authors
 *
 * A module for tests: it reads the request body in the access phase, as modules
 * for scripts and firewalls do, so that others find it read already.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


typedef struct {
    ngx_flag_t  enable;
} ngx_http_early_body_loc_conf_t;


typedef struct {
    ngx_uint_t  done;
} ngx_http_early_body_ctx_t;


static ngx_int_t ngx_http_early_body_handler(ngx_http_request_t *r);
static void ngx_http_early_body_read(ngx_http_request_t *r);
static void *ngx_http_early_body_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_early_body_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_early_body_init(ngx_conf_t *cf);


static ngx_command_t  ngx_http_early_body_commands[] = {

    { ngx_string("early_body"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_early_body_loc_conf_t, enable),
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_early_body_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_early_body_init,              /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_early_body_create_loc_conf,   /* create location configuration */
    ngx_http_early_body_merge_loc_conf     /* merge location configuration */
};


ngx_module_t  ngx_http_early_body_module = {
    NGX_MODULE_V1,
    &ngx_http_early_body_module_ctx,       /* module context */
    ngx_http_early_body_commands,          /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


/* what nginx's configure would write: the file is compiled on its own */

ngx_module_t *ngx_modules[] = {
    &ngx_http_early_body_module,
    NULL
};

char *ngx_module_names[] = {
    "ngx_http_early_body_module",
    NULL
};

char *ngx_module_order[] = {
    NULL
};


static ngx_int_t
ngx_http_early_body_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_early_body_ctx_t       *ctx;
    ngx_http_early_body_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_early_body_module);

    if (!conf->enable) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_early_body_module);

    if (ctx) {
        return ctx->done ? NGX_DECLINED : NGX_DONE;
    }

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_early_body_ctx_t));
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ngx_http_set_ctx(r, ctx, ngx_http_early_body_module);

    rc = ngx_http_read_client_request_body(r, ngx_http_early_body_read);
    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}


static void
ngx_http_early_body_read(ngx_http_request_t *r)
{
    ngx_http_early_body_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_early_body_module);
    ctx->done = 1;

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "early body: read, %s",
                  r->request_body->temp_file ? "in a file" : "in memory");

    r->preserve_body = 1;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


static void *
ngx_http_early_body_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_early_body_loc_conf_t  *conf;

    conf = ngx_palloc(cf->pool, sizeof(ngx_http_early_body_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->enable = NGX_CONF_UNSET;

    return conf;
}


static char *
ngx_http_early_body_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_early_body_loc_conf_t  *prev = parent;
    ngx_http_early_body_loc_conf_t  *conf = child;

    ngx_conf_merge_value(conf->enable, prev->enable, 0);

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_early_body_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_ACCESS_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_early_body_handler;

    return NGX_OK;
}
