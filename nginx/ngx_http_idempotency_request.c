
/*
 * Copyright (C) The idem authors
 *
 * From the request to the REQUEST event, in the precontent phase: after
 * authentication and rate limits, before anything is sent anywhere.
 *
 *   1. what only idem may say to the upstream is taken off the request
 *   2. the key is validated, before the body is read
 *   3. the body is read whole and hashed on the way
 *   4. the exchange begins; the phases run on when it says "forward"
 *   5. an internal redirect comes here again, see redirect.c
 */


#include "ngx_http_idempotency_module.h"

#include <sodium.h>


static ngx_int_t ngx_http_idempotency_key(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf, struct idem_key *key);
static ngx_int_t ngx_http_idempotency_key_value(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf, ngx_str_t *value,
    struct idem_problem *problem);
static ngx_http_idempotency_ctx_t *ngx_http_idempotency_create_ctx(
    ngx_http_request_t *r, ngx_http_idempotency_loc_conf_t *conf,
    struct idem_key *key);
static ngx_int_t ngx_http_idempotency_tell_key(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_read(ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_request_body_filter(
    ngx_http_request_t *r, ngx_chain_t *in);
static void ngx_http_idempotency_body_handler(ngx_http_request_t *r);


static ngx_http_request_body_filter_pt   ngx_http_next_request_body_filter;


static ngx_str_t  ngx_http_idempotency_key_name =
                                                ngx_string("Idempotency-Key");
static ngx_str_t  ngx_http_idempotency_attempt_name =
                                            ngx_string("Idempotency-Attempt");
static ngx_str_t  ngx_http_idempotency_fence_name =
                                              ngx_string("Idempotency-Fence");


/*
 * Internal redirects and filter_finalize wipe the contexts of all modules; ours
 * is found again by its cleanup.
 */

ngx_http_idempotency_ctx_t *
ngx_http_idempotency_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    if (ctx || !(r->internal || r->filter_finalize)) {
        return ctx;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_idempotency_cleanup) {
            ngx_http_set_ctx(r, cln->data, ngx_http_idempotency_module);
            return cln->data;
        }
    }

    return NULL;
}


/* nothing was claimed; and no error_page may send the request anywhere */

ngx_int_t
ngx_http_idempotency_internal_error(ngx_http_request_t *r)
{
    r->error_page = 1;

    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}


ngx_int_t
ngx_http_idempotency_handler(ngx_http_request_t *r)
{
    ngx_int_t                          rc;
    struct idem_key                    key;
    struct idem_problem                problem;
    ngx_http_idempotency_ctx_t        *ctx;
    ngx_http_idempotency_loc_conf_t   *conf;
    ngx_http_idempotency_main_conf_t  *imcf;

    if (r != r->main || r->post_action) {
        return NGX_DECLINED;
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (conf->store == NULL && !r->internal) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idempotency_get_ctx(r);
    if (ctx) {
        return ngx_http_idempotency_again(ctx);
    }

    if (conf->store == NULL || !(r->method & conf->methods)) {
        return NGX_DECLINED;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idempotency_module);

    if (imcf->broken) {
        problem = idem_problem_make(IDEM_PROBLEM_STORE_UNAVAILABLE);
        return ngx_http_idempotency_refuse(r, &problem);
    }

    if (ngx_http_idempotency_header_remove(r, &r->headers_in.headers,
                                           &ngx_http_idempotency_attempt_name)
            != NGX_OK
        || ngx_http_idempotency_header_remove(r, &r->headers_in.headers,
                                              &ngx_http_idempotency_fence_name)
               != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_idempotency_key(r, conf, &key);
    if (rc != NGX_OK) {
        return rc;
    }

    ctx = ngx_http_idempotency_create_ctx(r, conf, &key);
    if (ctx == NULL || ngx_http_idempotency_fields(ctx) != NGX_OK) {
        return ngx_http_idempotency_internal_error(r);
    }

    return ngx_http_idempotency_read(ctx);
}


/* NGX_OK: there is a key; anything else is to be returned */

static ngx_int_t
ngx_http_idempotency_key(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf, struct idem_key *key)
{
    int                   rc;
    ngx_str_t             value;
    struct idem_problem   problem;

    rc = ngx_http_idempotency_key_value(r, conf, &value, &problem);

    if (rc == NGX_DECLINED) {

        if (!conf->key->required) {
            return NGX_DECLINED;
        }

        problem = idem_problem_make(IDEM_PROBLEM_KEY_MISSING);
        return ngx_http_idempotency_refuse(r, &problem);
    }

    if (rc == NGX_ABORT) {
        return ngx_http_idempotency_refuse(r, &problem);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    rc = idem_key_parse(idem_bytes_make(value.data, value.len),
                        conf->key->syntax, conf->key->max, key);

    if (rc != IDEM_OK) {
        problem = idem_problem_make(IDEM_PROBLEM_KEY_MALFORMED);
        problem.detail = idem_key_outcome_text(rc);
        return ngx_http_idempotency_refuse(r, &problem);
    }

    return NGX_OK;
}


/*
 * Of a header the lines are counted by their exact name: the variable shows the
 * first or joins them, depending on nginx's version, and takes "_" for "-".
 * NGX_DECLINED: no key; NGX_ABORT: refuse with the problem.
 */

static ngx_int_t
ngx_http_idempotency_key_value(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf, ngx_str_t *value,
    struct idem_problem *problem)
{
    ngx_uint_t  lines;

    if (conf->key->header.len == 0) {

        if (ngx_http_complex_value(r, conf->key->value, value) != NGX_OK) {
            return NGX_ERROR;
        }

        return value->len ? NGX_OK : NGX_DECLINED;
    }

    lines = ngx_http_idempotency_header_find(&r->headers_in.headers,
                                             &conf->key->header, value);

    if (lines > 1) {
        *problem = idem_problem_make(IDEM_PROBLEM_KEY_MALFORMED);
        problem->detail = "The request has more than one line with a key; "
                          "send exactly one.";
        return NGX_ABORT;
    }

    return lines ? NGX_OK : NGX_DECLINED;
}


static ngx_http_idempotency_ctx_t *
ngx_http_idempotency_create_ctx(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf, struct idem_key *key)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_idempotency_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_idempotency_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_idempotency_ctx_t));

    ctx->request = r;
    ctx->conf = conf;
    ctx->http_version = r->http_version;
    ctx->method = r->method;

    ctx->key.len = key->size;
    ctx->key.data = ngx_pnalloc(r->pool, key->size);
    if (ctx->key.data == NULL) {
        return NULL;
    }

    ngx_memcpy(ctx->key.data, key->bytes, key->size);

    ngx_http_idempotency_start(ctx);

    cln->handler = ngx_http_idempotency_cleanup;
    ngx_http_set_ctx(r, ctx, ngx_http_idempotency_module);

    return ctx;
}


/*
 * While the body is read an error must not be redirected: there is no exchange
 * yet that could keep it from an upstream.
 */

static ngx_int_t
ngx_http_idempotency_read(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    ctx->error_page = r->error_page;
    r->error_page = 1;

    if (r->discard_body || r->reading_body) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "another module took the request body before it could be "
                      "hashed, the request is refused");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (r->request_body == NULL) {
        ctx->hashing = 1;

    } else if (ngx_http_idempotency_hash_body(ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_read_client_request_body(r,
                                           ngx_http_idempotency_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}


/* every byte of the body comes by here, whether it ends in memory or a file */

static ngx_int_t
ngx_http_idempotency_request_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in)
{
    ngx_buf_t                   *b;
    ngx_chain_t                 *cl;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    if (ctx && ctx->hashing) {
        for (cl = in; cl; cl = cl->next) {
            b = cl->buf;

            idem_fingerprinter_body(&ctx->fingerprinter,
                                    idem_bytes_make(b->pos, b->last - b->pos));
        }
    }

    return ngx_http_next_request_body_filter(r, in);
}


/* the request is whole: the exchange begins */

static void
ngx_http_idempotency_body_handler(ngx_http_request_t *r)
{
    size_t                       path;
    struct idem_id               id;
    struct idem_claim            claim;
    struct idem_event            event;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    ctx->hashing = 0;
    r->error_page = ctx->error_page;
    r->preserve_body = 1;
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_memzero(&claim, sizeof(struct idem_claim));

    if (ngx_http_idempotency_principal(ctx, &claim.principal) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    path = ngx_min(r->uri.len, IDEM_PATH_SIZE_MAX);

    claim.kind = IDEM_KIND_HTTP;
    claim.scope = idem_bytes_make(ctx->scope.data, ctx->scope.len);
    claim.key = idem_bytes_make(ctx->key.data, ctx->key.len);
    claim.method = idem_bytes_make(r->method_name.data,
                                   ngx_min(r->method_name.len,
                                           IDEM_METHOD_SIZE_MAX));
    claim.path = idem_bytes_make(r->uri.data, path);

    idem_fingerprinter_end(&ctx->fingerprinter, &claim.fingerprint);
    randombytes_buf(claim.owner.bytes, IDEM_OWNER_SIZE);

    id = idem_id_make(claim.kind, claim.scope, claim.key);

    idem_exchange_init(&ctx->exchange, &ctx->conf->policy, &id, &claim);

    ngx_memzero(&event, sizeof(struct idem_event));
    event.kind = IDEM_EVENT_REQUEST;

    ngx_http_idempotency_step(ctx, &event);
}


/* adds what the upstream may know, once; the client's own words are gone */

ngx_int_t
ngx_http_idempotency_tell_upstream(ngx_http_idempotency_ctx_t *ctx,
    uint32_t attempt, uint64_t fence)
{
    u_char              *p;
    ngx_str_t            a, f;
    ngx_list_t          *list;
    ngx_http_request_t  *r;

    if (ctx->told) {
        return NGX_OK;
    }

    ctx->told = 1;
    r = ctx->request;
    list = &r->headers_in.headers;

    p = ngx_pnalloc(r->pool, 2 * NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    a.data = p;
    a.len = ngx_sprintf(p, "%uD", attempt) - p;

    f.data = p + NGX_INT64_LEN;
    f.len = ngx_sprintf(f.data, "%uL", fence) - f.data;

    if (ngx_http_idempotency_header_push(r, list,
                                         &ngx_http_idempotency_attempt_name, &a)
            != NGX_OK
        || ngx_http_idempotency_header_push(r, list,
                                            &ngx_http_idempotency_fence_name,
                                            &f)
               != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_tell_key(ctx);
}


/* a key that came elsewhere is told in its usual place */

static ngx_int_t
ngx_http_idempotency_tell_key(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_str_t           *name, *header;
    ngx_list_t          *list;
    ngx_http_request_t  *r;

    r = ctx->request;
    list = &r->headers_in.headers;
    name = &ngx_http_idempotency_key_name;
    header = &ctx->conf->key->header;

    if (header->len == name->len
        && ngx_strncasecmp(header->data, name->data, name->len) == 0)
    {
        return NGX_OK;
    }

    if (ngx_http_idempotency_header_remove(r, list, name) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idempotency_header_push(r, list, name, &ctx->key);
}


void
ngx_http_idempotency_request_init(void)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_idempotency_request_body_filter;
}
