
/*
 * Copyright (C) The idem authors
 *
 * What nginx knows of the upstream side of a request.  This evidence decides
 * the outcome, so each line here is a claim about nginx's upstream module; the
 * system tests hold it to the nginx that they run on.
 */


#include "ngx_http_idempotency_module.h"


static ngx_uint_t ngx_http_idempotency_sent(ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_received(ngx_http_request_t *r);
static ngx_uint_t ngx_http_idempotency_framed_twice(ngx_http_upstream_t *u);


/*
 * Whether any byte of the request may have reached any upstream.  The states
 * survive internal redirects and failover; a live connection has not written
 * its count into its state yet.  u->request_sent is not asked: it is reset on
 * every new connection.
 */

static ngx_uint_t
ngx_http_idempotency_sent(ngx_http_request_t *r)
{
    ngx_uint_t                  i;
    ngx_http_upstream_state_t  *state;

    if (r->upstream
        && r->upstream->peer.connection
        && r->upstream->peer.connection->sent > 0)
    {
        return 1;
    }

    if (r->upstream_states == NULL) {
        return 0;
    }

    state = r->upstream_states->elts;

    for (i = 0; i < r->upstream_states->nelts; i++) {
        if (state[i].bytes_sent > 0 || state[i].bytes_received > 0) {
            return 1;
        }
    }

    return 0;
}


/* whether the last upstream sent anything at all */

static ngx_uint_t
ngx_http_idempotency_received(ngx_http_request_t *r)
{
    return r->upstream && r->upstream->state
           && r->upstream->state->bytes_received > 0;
}


/*
 * Whether the last upstream gave a whole, valid, final answer head.  Status
 * below 200: before nginx 1.29 a 103 counts as the answer, which it is not.
 */

ngx_uint_t
ngx_http_idempotency_answered(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    return u && u->state
           && u->state->header_time != (ngx_msec_t) -1
           && u->headers_in.status_n >= 200;
}


enum idem_evidence
ngx_http_idempotency_evidence(ngx_http_idempotency_ctx_t *ctx)
{
    if (!ngx_http_idempotency_sent(ctx->request)) {
        return IDEM_EVIDENCE_NOT_SENT;
    }

    if (ngx_http_idempotency_answered(ctx->request)) {
        return IDEM_EVIDENCE_TRUNCATED;
    }

    return ngx_http_idempotency_received(ctx->request)
           ? IDEM_EVIDENCE_INVALID : IDEM_EVIDENCE_UNANSWERED;
}


/* two lengths, or a length and chunks: where the answer ends is a guess */

static ngx_uint_t
ngx_http_idempotency_framed_twice(ngx_http_upstream_t *u)
{
    ngx_str_t   name;
    ngx_uint_t  lines;

    ngx_str_set(&name, "Content-Length");

    lines = ngx_http_idempotency_header_find(&u->headers_in.headers, &name,
                                             NULL);

    return lines > 1 || (lines && u->headers_in.chunked);
}


/*
 * Whether the body that just ended, of `size` bytes, is all that the upstream
 * had to say (RFC 9112, 8).  nginx reports success for some that are not.
 */

ngx_uint_t
ngx_http_idempotency_whole(ngx_http_request_t *r, size_t size,
    ngx_uint_t close_delimited)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u->conf->module.len == sizeof("fastcgi") - 1
        && ngx_strncmp(u->conf->module.data, "fastcgi", sizeof("fastcgi") - 1)
           == 0)
    {
        /* FastCGI frames its end, but nginx takes a close for it */

        if (u->buffering ? !u->pipe->upstream_done : u->length != 0) {
            return 0;
        }

        return u->headers_in.content_length_n < 0
               || (off_t) size == u->headers_in.content_length_n;
    }

    if (u->headers_in.status_n == NGX_HTTP_NO_CONTENT
        || u->headers_in.status_n == NGX_HTTP_NOT_MODIFIED)
    {
        return 1;
    }

    if (ngx_http_idempotency_framed_twice(u)) {
        return 0;
    }

    if (u->headers_in.chunked) {
        /* an incomplete last chunk is an error in nginx, too */
        return 1;
    }

    if (u->headers_in.content_length_n >= 0) {
        return (off_t) size == u->headers_in.content_length_n;
    }

    return close_delimited;
}


/* the upstream's own word */

enum idem_outcome
ngx_http_idempotency_declared(ngx_http_request_t *r)
{
    ngx_str_t           name, value;
    ngx_uint_t          lines;
    enum idem_outcome   outcome;

    if (r->upstream == NULL
        || r->upstream->headers_in.headers.part.elts == NULL)
    {
        return IDEM_OUTCOME_UNSET;
    }

    ngx_str_set(&name, "Idempotency-Outcome");

    lines = ngx_http_idempotency_header_find(&r->upstream->headers_in.headers,
                                             &name, &value);
    if (lines == 0) {
        return IDEM_OUTCOME_UNSET;
    }

    outcome = idem_outcome_parse(idem_bytes_make(value.data, value.len));

    if (lines > 1) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "upstream sent \"Idempotency-Outcome\" more than once: "
                      "taken for unknown");

        return IDEM_OUTCOME_UNKNOWN;
    }

    if (outcome == IDEM_OUTCOME_UNSET) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "upstream sent an \"Idempotency-Outcome\" that is not "
                      "one of final, failed, unknown: the status decides");
    }

    return outcome;
}
