
/*
 * Copyright (C) The idem authors
 *
 * Capture: what the held answer is, copied for the store and told to the
 * exchange.
 */


#include "ngx_http_idempotency_module.h"


static void ngx_http_idempotency_log_overflow(ngx_http_idempotency_ctx_t *ctx);
static void ngx_http_idempotency_head_event(ngx_http_idempotency_ctx_t *ctx,
    struct idem_event *event);
static ngx_int_t ngx_http_idempotency_capture_head(
    ngx_http_idempotency_ctx_t *ctx);
static ngx_int_t ngx_http_idempotency_collect(ngx_http_idempotency_ctx_t *ctx,
    ngx_chain_t *in, ngx_uint_t *last);
static ngx_int_t ngx_http_idempotency_copy(ngx_http_idempotency_ctx_t *ctx,
    ngx_buf_t *b);
static void ngx_http_idempotency_end(ngx_http_idempotency_ctx_t *ctx);
static ngx_uint_t ngx_http_idempotency_cut_short(ngx_http_request_t *r,
    ngx_chain_t *in);
static void ngx_http_idempotency_failed(ngx_http_idempotency_ctx_t *ctx,
    enum idem_evidence evidence);


/*
 * Whose answer it is decides its outcome: the upstream's own status, also where
 * nginx was told to show another status or another page in its place.  Recorded
 * is what the client sees.
 */

static void
ngx_http_idempotency_head_event(ngx_http_idempotency_ctx_t *ctx,
    struct idem_event *event)
{
    ngx_http_request_t   *r;
    ngx_http_upstream_t  *u;

    r = ctx->request;
    u = r->upstream;

    ngx_memzero(event, sizeof(struct idem_event));
    event->kind = IDEM_EVENT_ANSWER_HEAD;
    event->status = r->headers_out.status;
    event->length = r->headers_out.content_length_n;

    if (u) {
        ctx->upstreams = u->cleanup != NULL;
        event->own_status = u->headers_in.status_n;
        event->declared = ngx_http_idempotency_declared(r);
    }
}


ngx_int_t
ngx_http_idempotency_head(ngx_http_idempotency_ctx_t *ctx)
{
    struct idem_event    event;
    ngx_http_request_t  *r;

    r = ctx->request;

    if (r->upstream && !ngx_http_idempotency_answered(r)) {
        ngx_http_idempotency_failed(ctx, ngx_http_idempotency_evidence(ctx));
        return NGX_OK;
    }

    ngx_http_idempotency_head_event(ctx, &event);

    switch (ngx_http_idempotency_capture_head(ctx)) {

    case NGX_OK:
        break;

    case NGX_DECLINED:
        /* does not fit a record: as if the body were too large */
        event.length = INT64_MAX;
        break;

    default:
        /* the request ends here, its cleanup gives the verdict */
        return NGX_ERROR;
    }

    ngx_http_idempotency_step(ctx, &event);
    ngx_http_idempotency_log_overflow(ctx);

    if (r->header_only && ctx->exchange.state == IDEM_EXCHANGE_EXECUTING) {
        /* a handler that has no body to send will not say so */
        ngx_http_idempotency_end(ctx);
    }

    return NGX_OK;
}


/* said once, when it shows: a retry will not get this answer */

static void
ngx_http_idempotency_log_overflow(ngx_http_idempotency_ctx_t *ctx)
{
    char  id[IDEM_ID_TEXT_SIZE];

    if (!ctx->exchange.overflow || ctx->exchange.outcome != IDEM_OUTCOME_FINAL)
    {
        return;
    }

    idem_id_format(&ctx->exchange.id, id);

    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                  "idempotency: the answer is larger than "
                  "\"idempotency_body_max\", or its header than a record can "
                  "hold; it is delivered and not kept, id %s", id);
}


static void
ngx_http_idempotency_failed(ngx_http_idempotency_ctx_t *ctx,
    enum idem_evidence evidence)
{
    struct idem_event  event;

    ctx->failed = 1;

    ngx_memzero(&event, sizeof(struct idem_event));
    event.kind = IDEM_EVENT_UPSTREAM_FAILED;
    event.evidence = evidence;
    event.status = ctx->request->headers_out.status;

    ngx_http_idempotency_step(ctx, &event);
}


static ngx_int_t
ngx_http_idempotency_capture_head(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_http_request_t             *r;
    ngx_http_idempotency_answer_t  *answer;

    r = ctx->request;

    answer = ngx_alloc(sizeof(ngx_http_idempotency_answer_t),
                       r->connection->log);
    if (answer == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(answer, sizeof(ngx_http_idempotency_answer_t));
    answer->refs = 1;
    ctx->answer = answer;

    return ngx_http_idempotency_headers_capture(r, ctx->conf, answer);
}


/* a piece of the held body; its end, or that it has none, is told too */

ngx_int_t
ngx_http_idempotency_body(ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_uint_t  last;

    if (ngx_http_idempotency_collect(ctx, in, &last) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->exchange.state != IDEM_EXCHANGE_EXECUTING) {
        return NGX_OK;
    }

    if (last) {
        ngx_http_idempotency_end(ctx);

    } else if (ctx->upstreams
               && ngx_http_idempotency_cut_short(ctx->request, in))
    {
        ngx_http_idempotency_failed(ctx, ngx_http_idempotency_evidence(ctx));
    }

    return NGX_OK;
}


/*
 * Copies what is kept, consumes what nobody needs, and leaves alone what is to
 * flow through later.
 */

static ngx_int_t
ngx_http_idempotency_collect(ngx_http_idempotency_ctx_t *ctx, ngx_chain_t *in,
    ngx_uint_t *last)
{
    ngx_buf_t           *b;
    ngx_chain_t         *cl;
    struct idem_event    event;

    *last = 0;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (ctx->exchange.overflow && !ctx->failed) {
            return ngx_chain_add_copy(ctx->request->pool, &ctx->pending, cl);
        }

        if (b->last_buf) {
            *last = 1;
        }

        if (ngx_buf_size(b) == 0) {
            continue;
        }

        if (ctx->exchange.state == IDEM_EXCHANGE_EXECUTING) {

            if (ngx_http_idempotency_copy(ctx, b) != NGX_OK) {
                return NGX_ERROR;
            }

            ngx_memzero(&event, sizeof(struct idem_event));
            event.kind = IDEM_EVENT_ANSWER_BODY;
            event.size = b->last - b->pos;

            ngx_http_idempotency_step(ctx, &event);
            ngx_http_idempotency_log_overflow(ctx);
        }

        b->pos = b->last;
        b->file_pos = b->file_last;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_copy(ngx_http_idempotency_ctx_t *ctx, ngx_buf_t *b)
{
    size_t                          size, capacity;
    off_t                           length;
    u_char                         *body;
    ngx_http_idempotency_answer_t  *answer;

    if (!ngx_buf_in_memory(b)) {
        ngx_log_error(NGX_LOG_ALERT, ctx->request->connection->log, 0,
                      "idempotency: an answer's body is not in memory");
        return NGX_ERROR;
    }

    answer = ctx->answer;
    size = b->last - b->pos;

    if (answer->body_size + size > answer->body_capacity) {

        length = ctx->request->headers_out.content_length_n;

        capacity = ngx_max(answer->body_size + size,
                           answer->body_capacity * 2);

        if (length > 0 && (size_t) length <= ctx->conf->body_max) {
            capacity = ngx_max(capacity, (size_t) length);
        }

        body = ngx_alloc(capacity, ctx->request->connection->log);
        if (body == NULL) {
            return NGX_ERROR;
        }

        if (answer->body) {
            ngx_memcpy(body, answer->body, answer->body_size);
            ngx_free(answer->body);
        }

        answer->body = body;
        answer->body_capacity = capacity;
    }

    ngx_memcpy(answer->body + answer->body_size, b->pos, size);
    answer->body_size += size;

    return NGX_OK;
}


static void
ngx_http_idempotency_end(ngx_http_idempotency_ctx_t *ctx)
{
    struct idem_event  event;

    if (ctx->upstreams
        && !ngx_http_idempotency_whole(ctx->request, ctx->answer->body_size,
                                       ctx->conf->close_delimited
                                           == NGX_HTTP_IDEMPOTENCY_ON))
    {
        ngx_http_idempotency_failed(ctx, ngx_http_idempotency_evidence(ctx));
        return;
    }

    ngx_memzero(&event, sizeof(struct idem_event));
    event.kind = IDEM_EVENT_ANSWER_END;

    ngx_http_idempotency_step(ctx, &event);
}


/* a failed upstream ends with a flush and no last buffer */

static ngx_uint_t
ngx_http_idempotency_cut_short(ngx_http_request_t *r, ngx_chain_t *in)
{
    return in && in->next == NULL
           && in->buf->flush && ngx_buf_size(in->buf) == 0
           && r->upstream->cleanup == NULL;
}
