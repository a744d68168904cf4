
/*
 * Copyright (C) The idem authors
 *
 * Whose request it is, and what makes two requests the same.
 */


#include "ngx_http_idempotency_module.h"


#define NGX_HTTP_IDEMPOTENCY_CREDENTIALS  4


static ngx_int_t ngx_http_idempotency_joined(ngx_http_request_t *r,
    ngx_str_t *name, struct idem_bytes *joined);
static void ngx_http_idempotency_certificate(ngx_http_request_t *r,
    struct idem_bytes *certificate);


/* scope, and what makes two requests the same, up to the body */

ngx_int_t
ngx_http_idempotency_fields(ngx_http_idempotency_ctx_t *ctx)
{
    ngx_uint_t                        i;
    ngx_str_t                         value[4];
    ngx_http_request_t               *r;
    ngx_http_idempotency_loc_conf_t  *conf;

    r = ctx->request;
    conf = ctx->conf;

    if (conf->scope
        && ngx_http_complex_value(r, conf->scope, &ctx->scope) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->scope.len > IDEM_SCOPE_SIZE_MAX) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "\"idempotency_scope\" gives %uz bytes, %d are allowed",
                      ctx->scope.len, IDEM_SCOPE_SIZE_MAX);
        return NGX_ERROR;
    }

    idem_fingerprinter_init(&ctx->fingerprinter, IDEM_FINGERPRINT_RAW);

    if (conf->fingerprint) {
        if (ngx_http_complex_value(r, conf->fingerprint, &value[0]) != NGX_OK) {
            return NGX_ERROR;
        }

        idem_fingerprinter_field(&ctx->fingerprinter,
                                 idem_bytes_make(value[0].data, value[0].len));
        return NGX_OK;
    }

    ngx_memzero(value, sizeof(value));

    value[0] = r->method_name;
    value[1] = r->headers_in.server;
    value[2] = r->unparsed_uri;

    if (r->headers_in.content_type) {
        value[3] = r->headers_in.content_type->value;
    }

    for (i = 0; i < 4; i++) {
        idem_fingerprinter_field(&ctx->fingerprinter,
                                 idem_bytes_make(value[i].data, value[i].len));
    }

    return NGX_OK;
}


/* a body that another module has read before: from memory, or from its file */

ngx_int_t
ngx_http_idempotency_hash_body(ngx_http_idempotency_ctx_t *ctx)
{
    u_char        piece[4096];
    off_t         offset;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    for (cl = ctx->request->request_body->bufs; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            idem_fingerprinter_body(&ctx->fingerprinter,
                                    idem_bytes_make(b->pos, b->last - b->pos));
            continue;
        }

        for (offset = b->file_pos; offset < b->file_last; offset += n) {
            n = ngx_read_file(b->file, piece,
                              ngx_min((off_t) sizeof(piece),
                                      b->file_last - offset),
                              offset);
            if (n <= 0) {
                return NGX_ERROR;
            }

            idem_fingerprinter_body(&ctx->fingerprinter,
                                    idem_bytes_make(piece, n));
        }
    }

    return NGX_OK;
}


/* all lines of one header as one credential; absent is not the same as empty */

static ngx_int_t
ngx_http_idempotency_joined(ngx_http_request_t *r, ngx_str_t *name,
    struct idem_bytes *joined)
{
    size_t            size;
    u_char           *p;
    ngx_uint_t        i, count;
    ngx_str_t         value;
    ngx_table_elt_t  *h;
    ngx_list_part_t  *part;

    count = ngx_http_idempotency_header_find(&r->headers_in.headers, name,
                                             &value);
    if (count == 0) {
        *joined = idem_bytes_make(NULL, 0);
        return NGX_OK;
    }

    if (count == 1) {
        *joined = idem_bytes_make(value.len ? value.data : name->data,
                                  value.len);
        return NGX_OK;
    }

    size = 0;
    p = NULL;

    for ( ;; ) {
        for (part = &r->headers_in.headers.part; part; part = part->next) {
            h = part->elts;

            for (i = 0; i < part->nelts; i++) {
                if (h[i].key.len != name->len
                    || ngx_strncasecmp(h[i].key.data, name->data, name->len)
                       != 0)
                {
                    continue;
                }

                if (p) {
                    p = ngx_cpymem(p, h[i].value.data, h[i].value.len);
                    *p++ = LF;

                } else {
                    size += h[i].value.len + 1;
                }
            }
        }

        if (p) {
            *joined = idem_bytes_make(p - size, size);
            return NGX_OK;
        }

        p = ngx_pnalloc(r->pool, size);
        if (p == NULL) {
            return NGX_ERROR;
        }
    }
}


ngx_int_t
ngx_http_idempotency_principal(ngx_http_idempotency_ctx_t *ctx,
    struct idem_principal *principal)
{
    ngx_str_t            value;
    ngx_uint_t           i;
    struct idem_bytes    credentials[NGX_HTTP_IDEMPOTENCY_CREDENTIALS];
    ngx_http_request_t  *r;

    static ngx_str_t  names[] = {
        ngx_string("Authorization"),
        ngx_string("Cookie"),
        ngx_string("X-Api-Key")
    };

    r = ctx->request;
    ngx_memzero(credentials, sizeof(credentials));

    if (ctx->conf->credential_off) {
        *principal = idem_principal_make(credentials, 0);
        return NGX_OK;
    }

    if (ctx->conf->credential) {
        if (ngx_http_complex_value(r, ctx->conf->credential, &value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (value.len) {
            credentials[0] = idem_bytes_make(value.data, value.len);
        }

        *principal = idem_principal_make(credentials, 1);
        return NGX_OK;
    }

    for (i = 0; i < 3; i++) {
        if (ngx_http_idempotency_joined(r, &names[i], &credentials[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ngx_http_idempotency_certificate(r, &credentials[3]);

    *principal = idem_principal_make(credentials,
                                     NGX_HTTP_IDEMPOTENCY_CREDENTIALS);
    return NGX_OK;
}


/* of the client, where nginx asked for one */

static void
ngx_http_idempotency_certificate(ngx_http_request_t *r,
    struct idem_bytes *certificate)
{
    ngx_str_t                   name;
    ngx_http_variable_value_t  *vv;

    if (r->http_connection == NULL || !r->http_connection->ssl) {
        return;
    }

    ngx_str_set(&name, "ssl_client_raw_cert");

    vv = ngx_http_get_variable(r, &name, ngx_hash_key(name.data, name.len));

    if (vv && !vv->not_found && vv->len) {
        *certificate = idem_bytes_make(vv->data, vv->len);
    }
}
