
/*
 * Copyright (C) The idem authors
 *
 * Variables, for logs.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_outcome_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_id_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_attempt_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_time_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_idempotency_print_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, size_t size, const char *fmt, ...);


static ngx_http_variable_t  ngx_http_idempotency_variables[] = {

    { ngx_string("idempotency_outcome"), NULL,
      ngx_http_idempotency_outcome_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_id"), NULL,
      ngx_http_idempotency_id_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_attempt"), NULL,
      ngx_http_idempotency_attempt_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("idempotency_store_time"), NULL,
      ngx_http_idempotency_time_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


static ngx_str_t  ngx_http_idempotency_outcomes[] = {
    ngx_string("none"),
    ngx_string("executed"),
    ngx_string("replayed"),
    ngx_string("in_progress"),
    ngx_string("mismatch"),
    ngx_string("unknown"),
    ngx_string("refused"),
    ngx_string("bypassed")
};


static ngx_int_t
ngx_http_idempotency_outcome_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                   *text;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);
    text = &ngx_http_idempotency_outcomes[ctx ? ctx->outcome : 0];

    v->data = text->data;
    v->len = text->len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_print_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, size_t size, const char *fmt, ...)
{
    va_list  args;

    v->data = ngx_pnalloc(r->pool, size);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    va_start(args, fmt);
    v->len = ngx_vslprintf(v->data, v->data + size, fmt, args) - v->data;
    va_end(args);

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_id_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    char                         text[IDEM_ID_TEXT_SIZE];
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    if (ctx == NULL || ctx->exchange.state == IDEM_EXCHANGE_IDLE) {
        v->not_found = 1;
        return NGX_OK;
    }

    idem_id_format(&ctx->exchange.id, text);

    return ngx_http_idempotency_print_variable(r, v, IDEM_ID_TEXT_SIZE, "%s",
                                               text);
}


static ngx_int_t
ngx_http_idempotency_attempt_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    if (ctx == NULL || ctx->exchange.attempt == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_http_idempotency_print_variable(r, v, NGX_INT64_LEN, "%uD",
                                               ctx->exchange.attempt);
}


/* seconds with milliseconds, as $upstream_response_time has them */

static ngx_int_t
ngx_http_idempotency_time_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_idempotency_get_ctx(r->main);

    if (ctx == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    return ngx_http_idempotency_print_variable(r, v, NGX_TIME_T_LEN + 4,
                                               "%T.%03M",
                                               (time_t) ctx->store_time / 1000,
                                               ctx->store_time % 1000);
}


ngx_int_t
ngx_http_idempotency_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_idempotency_variables; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}
