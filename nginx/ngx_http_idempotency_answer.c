
/*
 * Copyright (C) The idem authors
 *
 * Answers that idem gives itself: refusals (RFC 9457) and replays.
 */


#include "ngx_http_idempotency_module.h"


static ngx_int_t ngx_http_idempotency_problem(ngx_http_request_t *r,
    struct idem_problem *problem, ngx_str_t *body);
static ngx_http_idempotency_outcome_e ngx_http_idempotency_problem_outcome(
    enum idem_problem_kind kind);
static void ngx_http_idempotency_refuse_handler(ngx_http_request_t *r);
static void ngx_http_idempotency_record_free(void *data);
static ngx_int_t ngx_http_idempotency_restore(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf, const struct idem_answer *answer);


/* writes the problem into headers_out, whatever stood there, and the body */

static ngx_int_t
ngx_http_idempotency_problem(ngx_http_request_t *r,
    struct idem_problem *problem, ngx_str_t *body)
{
    u_char     *p;
    ngx_str_t   name, value;

    body->data = ngx_pnalloc(r->pool, IDEM_PROBLEM_SIZE_MAX);
    if (body->data == NULL) {
        return NGX_ERROR;
    }

    body->len = idem_problem_format(problem, (char *) body->data);

    ngx_http_clean_header(r);

    r->disable_not_modified = 1;
    r->allow_ranges = 0;
    r->err_status = 0;
    r->headers_out.status = problem->status;
    r->headers_out.content_length_n = body->len;

    if (problem->status == 422) {
        /* nginx has no words for this one (RFC 9110, 15.5.21) */
        ngx_str_set(&r->headers_out.status_line, "422 Unprocessable Content");
    }

    ngx_str_set(&r->headers_out.content_type, IDEM_PROBLEM_CONTENT_TYPE);
    r->headers_out.content_type_len = r->headers_out.content_type.len;

    if (problem->retry_after_s == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    value.len = ngx_sprintf(p, "%ui", (ngx_uint_t) problem->retry_after_s) - p;
    ngx_str_set(&name, "Retry-After");

    return ngx_http_idempotency_header_push(r, &r->headers_out.headers, &name,
                                            &value);
}


static ngx_http_idempotency_outcome_e
ngx_http_idempotency_problem_outcome(enum idem_problem_kind kind)
{
    switch (kind) {
    case IDEM_PROBLEM_IN_PROGRESS:
        return NGX_HTTP_IDEMPOTENCY_IN_PROGRESS;

    case IDEM_PROBLEM_KEY_REUSED:
        return NGX_HTTP_IDEMPOTENCY_MISMATCH;

    case IDEM_PROBLEM_OUTCOME_UNKNOWN:
        return NGX_HTTP_IDEMPOTENCY_UNKNOWN;

    case IDEM_PROBLEM_UPSTREAM_UNREACHABLE:
    case IDEM_PROBLEM_UPSTREAM_UNANSWERED:
        return NGX_HTTP_IDEMPOTENCY_EXECUTED;

    default:
        return NGX_HTTP_IDEMPOTENCY_REFUSED;
    }
}


/*
 * Refuses before the body is read, so without a "100 Continue" (RFC 9110,
 * 10.1.1).  A status is never returned to the phase engine: error_page might
 * send the request to an upstream.
 */

ngx_int_t
ngx_http_idempotency_refuse(ngx_http_request_t *r,
    struct idem_problem *problem)
{
    ngx_int_t                    rc;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_idempotency_ctx_t));
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ctx->request = r;
    ctx->refusal = *problem;
    ctx->outcome = NGX_HTTP_IDEMPOTENCY_REFUSED;
    ngx_http_set_ctx(r, ctx, ngx_http_idempotency_module);

#if (NGX_HTTP_V2)

    /*
     * A stream that is reset while the client still sends costs many clients
     * the answer, so a body that is on its way is read first.
     */

    if (r->stream && !r->stream->in_closed && r->headers_in.expect == NULL) {
        r->error_page = 1;

        rc = ngx_http_read_client_request_body(r,
                                         ngx_http_idempotency_refuse_handler);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            return rc;
        }

        ngx_http_finalize_request(r, NGX_DONE);
        return NGX_DONE;
    }

#endif

    r->expect_tested = 1;

    if (r->headers_in.expect) {
        r->keepalive = 0;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_idempotency_refuse_handler(r);

    return NGX_DONE;
}


static void
ngx_http_idempotency_refuse_handler(ngx_http_request_t *r)
{
    ngx_str_t                    body;
    ngx_http_idempotency_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idempotency_module);

    if (ngx_http_idempotency_problem(r, &ctx->refusal, &body) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    ngx_http_idempotency_send(ctx, &body);
}


void
ngx_http_idempotency_refuse_exchange(ngx_http_idempotency_ctx_t *ctx,
    struct idem_problem *problem)
{
    ngx_str_t            body;
    ngx_http_request_t  *r;

    r = ctx->request;
    ctx->outcome = ngx_http_idempotency_problem_outcome(problem->kind);

    if (problem->kind == IDEM_PROBLEM_KEY_REUSED) {
        problem->status = ctx->conf->mismatch_status;
    }

    if (ngx_http_idempotency_problem(r, problem, &body) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    ngx_http_idempotency_send(ctx, &body);
}


static void
ngx_http_idempotency_record_free(void *data)
{
    struct idem_op  *op = data;

    idem_op_deinit(op);
}


/* the headers of the answer, which says that it is a replay */

static ngx_int_t
ngx_http_idempotency_restore(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf, const struct idem_answer *answer)
{
    ngx_str_t  value;

    ngx_http_clean_header(r);

    r->disable_not_modified = 1;
    r->allow_ranges = 0;
    r->err_status = 0;
    r->headers_out.status = answer->status;

    if (conf->replay_status && answer->status >= 200 && answer->status < 300) {
        /* only what succeeded may be told as another success */
        r->headers_out.status = conf->replay_status;
    }

    if (answer->status != NGX_HTTP_NO_CONTENT
        && answer->status != NGX_HTTP_NOT_MODIFIED)
    {
        r->headers_out.content_length_n = answer->body.size;
    }

    if (ngx_http_idempotency_headers_restore(r, answer) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_str_set(&value, "true");

    return ngx_http_idempotency_header_push(r, &r->headers_out.headers,
                                            &conf->replay_header, &value);
}


/* takes the record out of the op and keeps it as long as the request */

void
ngx_http_idempotency_replay(ngx_http_idempotency_ctx_t *ctx,
    struct idem_op *op)
{
    ngx_str_t                  body;
    struct idem_op            *kept;
    ngx_pool_cleanup_t        *cln;
    ngx_http_request_t        *r;
    const struct idem_answer  *answer;

    r = ctx->request;
    ctx->outcome = NGX_HTTP_IDEMPOTENCY_REPLAYED;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(struct idem_op));
    if (cln == NULL) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    kept = cln->data;
    *kept = *op;
    ngx_memzero(&op->out, sizeof(op->out));
    cln->handler = ngx_http_idempotency_record_free;

    answer = &kept->out.found.record.answer;

    if (ngx_http_idempotency_restore(r, ctx->conf, answer) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    body.data = (u_char *) answer->body.data;
    body.len = answer->body.size;

    ngx_http_idempotency_send(ctx, &body);
}
