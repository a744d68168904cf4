
/*
 * Copyright (C) The idem authors
 *
 * Capture and hold: the upstream's own answer, before gzip and add_header, is
 * copied and kept back until the store has recorded it.
 *
 *   1. header filter: the header is captured and not passed on
 *   2. body filter: the body is copied and consumed, r->buffered keeps the
 *      request open, NGX_AGAIN parks it
 *   3. the exchange decides: the answer, a record's or a refusal
 *   4. ngx_http_output_filter(r, NULL) comes through here once more, and this
 *      time the header and everything held go out
 *
 * An answer over the maximum is copied up to there; what comes then stays in
 * its own buffers, unconsumed, so that the upstream is not read any further.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_idempotency_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idempotency_bypassed(ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_hide_word(ngx_http_request_t *r);
static void ngx_http_idempotency_hide_marks(ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_mark(ngx_http_idempotency_ctx_t *ctx,
    char *mark, char *text);
static ngx_int_t ngx_http_idempotency_output(ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_output_captured(
    ngx_http_idempotency_ctx_t *ctx);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


/* the ends of nginx's filter chains when a configuration was last taken */

static struct {
    ngx_http_output_header_filter_pt  header;
    ngx_http_output_body_filter_pt    body;
    ngx_http_request_body_filter_pt   request_body;
} ngx_http_idempotency_chains;


static ngx_int_t
ngx_http_idempotency_header_filter(ngx_http_request_t *r)
{
    ngx_int_t                    rc;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = r == r->main ? ngx_http_idempotency_get_ctx(r) : NULL;

    if (ctx == NULL) {
        ngx_http_idempotency_hide_word(r);
        return ngx_http_next_header_filter(r);
    }

    if (ctx->flowing) {
        return ngx_http_next_header_filter(r);
    }

    if (ctx->outcome == NGX_HTTP_IDEMPOTENCY_BYPASSED) {
        return ngx_http_idempotency_bypassed(ctx);
    }

    if (ctx->held) {
        /* a second header, of an error after the first: the first stands */
        return NGX_OK;
    }

    if (ctx->exchange.state != IDEM_EXCHANGE_EXECUTING) {
        ctx->flowing = 1;
        return ngx_http_next_header_filter(r);
    }

    if (r->headers_out.status == NGX_HTTP_SWITCHING_PROTOCOLS) {
        /* no answer that could be kept; whoever asks again is told "unknown" */
        ctx->flowing = 1;
        ngx_http_idempotency_abort(ctx);
        return ngx_http_next_header_filter(r);
    }

    ctx->held = 1;
    r->buffered |= NGX_HTTP_IDEMPOTENCY_BUFFERED;
    r->filter_need_in_memory = 1;
    r->allow_ranges = 0;

    ngx_http_idempotency_hide_marks(ctx);

    ctx->filtering = 1;
    rc = ngx_http_idempotency_head(ctx);
    ctx->filtering = 0;

    if (rc == NGX_OK && ctx->released && r->header_only) {
        /* decided at once, and no body will come by */
        return ngx_http_idempotency_output(ctx);
    }

    return rc;
}


/* not guarded, and the client is told */

static ngx_int_t
ngx_http_idempotency_bypassed(ngx_http_idempotency_ctx_t *ctx)
{
    ctx->flowing = 1;
    ngx_http_idempotency_hide_marks(ctx);

    if (ngx_http_idempotency_mark(ctx, "Idempotency-Bypassed", "true")
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(ctx->request);
}


/* the upstream says its word to idem, also where a request is not guarded */

static void
ngx_http_idempotency_hide_word(ngx_http_request_t *r)
{
    ngx_http_idempotency_loc_conf_t  *conf;

    static ngx_str_t  name = ngx_string("Idempotency-Outcome");

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idempotency_module);

    if (conf->store) {
        ngx_http_idempotency_header_hide(&r->headers_out.headers, &name);
    }
}


/* what only idem says to clients, and what the upstream says only to idem */

static void
ngx_http_idempotency_hide_marks(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_uint_t           i;
    ngx_http_request_t  *r;

    static ngx_str_t  marks[] = {
        ngx_string("Idempotency-Outcome"),
        ngx_string("Idempotency-Recorded"),
        ngx_string("Idempotency-Bypassed"),
        ngx_string("Idempotent-Replayed"),
        ngx_null_string
    };

    r = ctx->request;

    for (i = 0; marks[i].len; i++) {
        ngx_http_idempotency_header_hide(&r->headers_out.headers, &marks[i]);
    }

    ngx_http_idempotency_header_hide(&r->headers_out.headers,
                                     &ctx->conf->replay_header);
}


static ngx_int_t
ngx_http_idempotency_mark(ngx_http_idempotency_ctx_t *ctx, char *mark,
    char *text)
{
    ngx_str_t  name, value;

    name.data = (u_char *) mark;
    name.len = ngx_strlen(mark);
    value.data = (u_char *) text;
    value.len = ngx_strlen(text);

    return ngx_http_idempotency_header_push(ctx->request,
                                       &ctx->request->headers_out.headers,
                                       &name, &value);
}


static ngx_int_t
ngx_http_idempotency_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t                    rc;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = r == r->main ? ngx_http_idempotency_get_ctx(r) : NULL;

    if (ctx == NULL || ctx->flowing || !ctx->held) {
        return ngx_http_next_body_filter(r, in);
    }

    ctx->filtering = 1;
    rc = ngx_http_idempotency_body(ctx, in);
    ctx->filtering = 0;

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (ctx->released) {
        return ngx_http_idempotency_output(ctx);
    }

    return NGX_AGAIN;
}


/* the answer is decided: what is held goes out, or what replaces it */

void
ngx_http_idempotency_release(ngx_http_idempotency_ctx_t *ctx,
    ngx_uint_t unrecorded)
{
    ngx_http_request_t  *r;

    r = ctx->request;

    if (unrecorded) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      ctx->exchange.owned
                      ? "idempotency store %V: the upstream answered, and "
                        "the answer is delivered before it is recorded"
                      : "idempotency store %V: the upstream answered, and "
                        "the answer is delivered though its record was settled "
                        "or forgotten meanwhile",
                      &ctx->conf->store->label);

        (void) ngx_http_idempotency_mark(ctx, "Idempotency-Recorded", "false");
    }

    ctx->released = 1;

    if (ctx->filtering) {
        return;
    }

    if (ctx->replaced && r->upstream && r->upstream->cleanup) {

        /* nobody wants what the upstream may still say */

        r->main->count++;
        (*r->upstream->cleanup)(r);

        ngx_http_finalize_request(r, ngx_http_output_filter(r, NULL));
        return;
    }

    if (ngx_http_output_filter(r, NULL) == NGX_ERROR) {

        /* the client is gone, and nobody else would end the upstream */

        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    r->write_event_handler(r);
}


static ngx_int_t
ngx_http_idempotency_output(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    ctx->flowing = 1;
    r->buffered &= ~NGX_HTTP_IDEMPOTENCY_BUFFERED;

    if (!ctx->replaced && r->headers_out.status == NGX_HTTP_NO_CONTENT) {
        /* RFC 9110, 8.6 */
        ngx_http_clear_content_length(r);

    } else if (!ctx->replaced && !ctx->exchange.overflow
               && r->headers_out.status != NGX_HTTP_NOT_MODIFIED)
    {
        ngx_http_clear_content_length(r);
        r->headers_out.content_length_n = ctx->answer->body_size;
    }

    rc = ngx_http_next_header_filter(r);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc > NGX_OK) {
        return ngx_http_filter_finalize_request(r,
                                            &ngx_http_idempotency_module, rc);
    }

    if (r->header_only) {
        return rc;
    }

    if (ctx->replaced) {
        return ngx_http_next_body_filter(r, ctx->replacement);
    }

    return ngx_http_idempotency_output_captured(ctx);
}


static ngx_int_t
ngx_http_idempotency_output_captured(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (ctx->exchange.overflow && ctx->answer->body_size == 0) {
        return ngx_http_next_body_filter(ctx->request, ctx->pending);
    }

    b = ngx_calloc_buf(ctx->request->pool);
    cl = ngx_alloc_chain_link(ctx->request->pool);
    if (b == NULL || cl == NULL) {
        return NGX_ERROR;
    }

    b->pos = ctx->answer->body;
    b->last = b->pos + ctx->answer->body_size;
    b->memory = ctx->answer->body_size != 0;
    b->last_buf = !ctx->exchange.overflow;
    b->last_in_chain = ctx->pending == NULL;

    cl->buf = b;
    cl->next = ctx->pending;
    ctx->pending = NULL;

    return ngx_http_next_body_filter(ctx->request, cl);
}


/*
 * Sends what stands in headers_out and the body: in place of a held answer, or
 * as the answer of a request that never reached a content handler.
 */

void
ngx_http_idempotency_send(ngx_http_idempotency_ctx_t *ctx, ngx_str_t *body)
{
    ngx_int_t            rc;
    ngx_buf_t           *b;
    ngx_chain_t         *cl;
    ngx_http_request_t  *r;

    r = ctx->request;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);
    if (b == NULL || cl == NULL) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    b->pos = body->data;
    b->last = body->data + body->len;
    b->memory = body->len != 0;
    b->last_buf = 1;
    b->last_in_chain = 1;

    cl->buf = b;
    cl->next = NULL;

    /* an answer that is none sets HTTP/0.9, for the client too */

    if (ctx->http_version) {
        r->http_version = ctx->http_version;
    }

    if (ctx->held) {
        ctx->replaced = 1;
        ctx->replacement = cl;
        ngx_http_idempotency_release(ctx, 0);
        return;
    }

    ctx->flowing = 1;

    rc = ngx_http_send_header(r);

    if (rc == NGX_OK && !r->header_only) {
        rc = ngx_http_output_filter(r, cl);
    }

    ngx_http_finalize_request(r, rc);
}


void
ngx_http_idempotency_filter_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_idempotency_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_idempotency_body_filter;
}


/*
 * The chains are globals of the process, which each parse of a configuration
 * builds anew.  A reload that fails half way leaves the master with chains that
 * may lack our filters, and a worker that it respawns inherits them.
 */

void
ngx_http_idempotency_filter_remember(void)
{
    ngx_http_idempotency_chains.header = ngx_http_top_header_filter;
    ngx_http_idempotency_chains.body = ngx_http_top_body_filter;
    ngx_http_idempotency_chains.request_body = ngx_http_top_request_body_filter;
}


ngx_uint_t
ngx_http_idempotency_filter_intact(void)
{
    return ngx_http_idempotency_chains.header == ngx_http_top_header_filter
           && ngx_http_idempotency_chains.body == ngx_http_top_body_filter
           && ngx_http_idempotency_chains.request_body
              == ngx_http_top_request_body_filter;
}
