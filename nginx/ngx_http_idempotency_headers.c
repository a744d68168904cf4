
/*
 * Copyright (C) The idem authors
 *
 * Header lists: finding, adding and removing lines by exact name, and what of
 * an answer's headers is kept and given again.
 */


#include "ngx_http_idempotency_module.h"


typedef struct {
    ngx_list_part_t  *part;
    ngx_uint_t        i;
} ngx_http_idempotency_line_t;


static ngx_table_elt_t *ngx_http_idempotency_line(
    ngx_http_idempotency_line_t *line);
static ngx_uint_t ngx_http_idempotency_name_is(ngx_str_t *name,
    ngx_str_t *other);
static ngx_int_t ngx_http_idempotency_take_out(ngx_http_request_t *r,
    ngx_list_t *list, ngx_list_part_t *part, ngx_uint_t i);
static ngx_uint_t ngx_http_idempotency_hidden(
    ngx_http_idempotency_loc_conf_t *conf, ngx_str_t *connection,
    ngx_str_t *name);
static size_t ngx_http_idempotency_append(
    ngx_http_idempotency_answer_t *answer, size_t size, size_t capacity,
    ngx_str_t *name, ngx_str_t *value);
static ngx_int_t ngx_http_idempotency_headers_write(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_answer_t *answer, size_t capacity);
static ngx_int_t ngx_http_idempotency_restore_line(ngx_http_request_t *r,
    ngx_str_t *name, ngx_str_t *value, ngx_uint_t location);
static void ngx_http_idempotency_restore_type(ngx_http_request_t *r,
    ngx_str_t *value);


static ngx_str_t  ngx_http_idempotency_content_type =
                                                 ngx_string("Content-Type");


/* the line that the iterator stands at, NULL at the end */

static ngx_table_elt_t *
ngx_http_idempotency_line(ngx_http_idempotency_line_t *line)
{
    while (line->part && line->i >= line->part->nelts) {
        line->part = line->part->next;
        line->i = 0;
    }

    if (line->part == NULL) {
        return NULL;
    }

    return (ngx_table_elt_t *) line->part->elts + line->i;
}


static ngx_uint_t
ngx_http_idempotency_name_is(ngx_str_t *name, ngx_str_t *other)
{
    return name->len == other->len
           && ngx_strncasecmp(name->data, other->data, name->len) == 0;
}


/* counts the lines of that very name; the value is the first one's */

ngx_uint_t
ngx_http_idempotency_header_find(ngx_list_t *list, ngx_str_t *name,
    ngx_str_t *value)
{
    ngx_uint_t                    count;
    ngx_table_elt_t              *h;
    ngx_http_idempotency_line_t   line = { &list->part, 0 };

    count = 0;

    for ( ;; line.i++) {
        h = ngx_http_idempotency_line(&line);
        if (h == NULL) {
            return count;
        }

        if (h->hash && ngx_http_idempotency_name_is(&h->key, name)) {
            if (count++ == 0 && value) {
                *value = h->value;
            }
        }
    }
}


/* lines of an answer are not taken out but turned off */

void
ngx_http_idempotency_header_hide(ngx_list_t *list, ngx_str_t *name)
{
    ngx_table_elt_t              *h;
    ngx_http_idempotency_line_t   line = { &list->part, 0 };

    for ( ;; line.i++) {
        h = ngx_http_idempotency_line(&line);
        if (h == NULL) {
            return;
        }

        if (ngx_http_idempotency_name_is(&h->key, name)) {
            h->hash = 0;
        }
    }
}


ngx_int_t
ngx_http_idempotency_header_push(ngx_http_request_t *r, ngx_list_t *list,
    ngx_str_t *name, ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(list);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));
    h->key = *name;
    h->value = *value;

    h->lowcase_key = ngx_pnalloc(r->pool, name->len);
    if (h->lowcase_key == NULL) {
        h->hash = 0;
        return NGX_ERROR;
    }

    h->hash = ngx_hash_strlow(h->lowcase_key, name->data, name->len);

    return NGX_OK;
}


/*
 * Takes one element out of a list.  Elements must not move, as others point at
 * them: a part is shortened, shifted or split.  No part may become empty, since
 * nginx's loops look at a next part's first element unasked.  And as a push
 * trusts that the last part has room for "nalloc" elements, that is lowered to
 * what the last part has now, so that the next push takes a new part.
 */

static ngx_int_t
ngx_http_idempotency_take_out(ngx_http_request_t *r, ngx_list_t *list,
    ngx_list_part_t *part, ngx_uint_t i)
{
    ngx_list_part_t  *rest, *prev;

    if (i == 0) {
        part->elts = (u_char *) part->elts + list->size;
        part->nelts--;

    } else if (i == part->nelts - 1) {
        part->nelts--;

    } else {
        rest = ngx_palloc(r->pool, sizeof(ngx_list_part_t));
        if (rest == NULL) {
            return NGX_ERROR;
        }

        rest->elts = (u_char *) part->elts + (i + 1) * list->size;
        rest->nelts = part->nelts - i - 1;
        rest->next = part->next;

        part->nelts = i;
        part->next = rest;

        if (list->last == part) {
            list->last = rest;
        }
    }

    if (part->nelts == 0 && part->next) {
        /* the next part takes this one's place */

        rest = part->next;

        if (list->last == rest) {
            list->last = part;
        }

        *part = *rest;

    } else if (part->nelts == 0 && part != &list->part) {

        for (prev = &list->part; prev->next != part; prev = prev->next) { }

        prev->next = NULL;
        list->last = prev;
    }

    if (list->last->nelts) {
        list->nalloc = list->last->nelts;
        return NGX_OK;
    }

    list->last->elts = ngx_palloc(r->pool, list->nalloc * list->size);

    return list->last->elts ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_idempotency_header_remove(ngx_http_request_t *r, ngx_list_t *list,
    ngx_str_t *name)
{
    ngx_table_elt_t              *h;
    ngx_http_idempotency_line_t   line = { &list->part, 0 };

    for ( ;; ) {
        h = ngx_http_idempotency_line(&line);
        if (h == NULL) {
            return NGX_OK;
        }

        if (!ngx_http_idempotency_name_is(&h->key, name)) {
            line.i++;
            continue;
        }

        if (ngx_http_idempotency_take_out(r, list, line.part, line.i)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        /* parts may have changed places */

        line.part = &list->part;
        line.i = 0;
    }
}


/* what belongs to one connection or one exchange, besides the route's list */

static ngx_uint_t
ngx_http_idempotency_hidden(ngx_http_idempotency_loc_conf_t *conf,
    ngx_str_t *connection, ngx_str_t *name)
{
    u_char      *p, *last;
    ngx_str_t   *hide;
    ngx_uint_t   i;

    if (name->len > sizeof("X-Accel-") - 1
        && ngx_strncasecmp(name->data, (u_char *) "X-Accel-",
                           sizeof("X-Accel-") - 1) == 0)
    {
        return 1;
    }

    hide = conf->hidden->elts;

    for (i = 0; i < conf->hidden->nelts; i++) {
        if (ngx_http_idempotency_name_is(name, &hide[i])) {
            return 1;
        }
    }

    /* RFC 9110, 7.6.1: what Connection names is hop-by-hop too */

    p = connection->data;
    last = p + connection->len;

    while (p < last) {
        u_char  *end = ngx_strlchr(p, last, ',');

        if (end == NULL) {
            end = last;
        }

        while (p < end && (*p == ' ' || *p == '\t')) { p++; }

        if (end - p >= (ssize_t) name->len
            && ngx_strncasecmp(p, name->data, name->len) == 0)
        {
            for (p += name->len; p < end && (*p == ' ' || *p == '\t'); p++) {
                /* void */
            }

            if (p == end) {
                return 1;
            }
        }

        p = end + 1;
    }

    return 0;
}


static size_t
ngx_http_idempotency_append(ngx_http_idempotency_answer_t *answer, size_t size,
    size_t capacity, ngx_str_t *name, ngx_str_t *value)
{
    return idem_headers_append(answer->headers, size, capacity,
                               idem_bytes_make(name->data, name->len),
                               idem_bytes_make(value->data, value->len));
}


/* NGX_DECLINED: more lines than a record can hold */

static ngx_int_t
ngx_http_idempotency_headers_write(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_answer_t *answer, size_t capacity)
{
    size_t                        size;
    ngx_str_t                     name, connection;
    ngx_uint_t                    lines;
    ngx_table_elt_t              *h;
    ngx_http_idempotency_line_t   line = { &r->headers_out.headers.part, 0 };

    /* the upstream's own Connection line is not in headers_out */

    ngx_str_null(&connection);
    ngx_str_set(&name, "Connection");

    if (r->upstream && r->upstream->headers_in.headers.part.elts) {
        (void) ngx_http_idempotency_header_find(
                                          &r->upstream->headers_in.headers,
                                          &name, &connection);
    }

    size = 0;
    lines = 0;

    if (r->headers_out.content_type.len) {
        size = ngx_http_idempotency_append(answer, 0, capacity,
                                           &ngx_http_idempotency_content_type,
                                           &r->headers_out.content_type);
        if (size == 0) {
            return NGX_DECLINED;
        }

        lines++;
    }

    for ( ;; line.i++) {
        h = ngx_http_idempotency_line(&line);
        if (h == NULL) {
            answer->headers_size = size;
            return NGX_OK;
        }

        if (h->hash == 0
            || ngx_http_idempotency_hidden(conf, &connection, &h->key))
        {
            continue;
        }

        size = ngx_http_idempotency_append(answer, size, capacity, &h->key,
                                           &h->value);

        if (size == 0 || ++lines > IDEM_HEADER_LINES_MAX) {
            return NGX_DECLINED;
        }
    }
}


/* NGX_DECLINED: more than a record can hold */

ngx_int_t
ngx_http_idempotency_headers_capture(ngx_http_request_t *r,
    ngx_http_idempotency_loc_conf_t *conf,
    ngx_http_idempotency_answer_t *answer)
{
    size_t                        size;
    ngx_table_elt_t              *h;
    ngx_http_idempotency_line_t   line = { &r->headers_out.headers.part, 0 };

    /* an upper bound: every line, whether it is kept or not */

    size = 64 + r->headers_out.content_type.len;

    for ( ;; line.i++) {
        h = ngx_http_idempotency_line(&line);
        if (h == NULL) {
            break;
        }

        size += 8 + h->key.len + h->value.len;
    }

    if (size > IDEM_HEADERS_SIZE_MAX) {
        return NGX_DECLINED;
    }

    answer->headers = ngx_alloc(size, r->connection->log);
    if (answer->headers == NULL) {
        return NGX_ERROR;
    }

    if (r->headers_out.location) {
        answer->flags |= NGX_HTTP_IDEMPOTENCY_LOCATION;
    }

    return ngx_http_idempotency_headers_write(r, conf, answer, size);
}


static void
ngx_http_idempotency_restore_type(ngx_http_request_t *r, ngx_str_t *value)
{
    u_char  *p, *last;

    r->headers_out.content_type = *value;
    r->headers_out.content_type_len = value->len;
    r->headers_out.content_type_lowcase = NULL;

    /* "; charset=" is told apart, so that the charset filter sees it */

    last = value->data + value->len;

    p = ngx_strlcasestrn(value->data, last, (u_char *) "charset=", 8 - 1);
    if (p == NULL) {
        return;
    }

    r->headers_out.charset.data = p + 8;
    r->headers_out.charset.len = last - (p + 8);

    if (r->headers_out.charset.len > 1 && p[8] == '"' && last[-1] == '"') {
        r->headers_out.charset.data++;
        r->headers_out.charset.len -= 2;
    }

    while (p > value->data && p[-1] != ';') { p--; }

    if (p > value->data) {
        r->headers_out.content_type_len = p - 1 - value->data;
    }
}


static ngx_int_t
ngx_http_idempotency_restore_line(ngx_http_request_t *r, ngx_str_t *name,
    ngx_str_t *value, ngx_uint_t location)
{
    ngx_table_elt_t          *h;
    ngx_http_headers_out_t   *out;

    static ngx_str_t  encoding = ngx_string("Content-Encoding");
    static ngx_str_t  etag = ngx_string("ETag");
    static ngx_str_t  modified = ngx_string("Last-Modified");
    static ngx_str_t  where = ngx_string("Location");

    out = &r->headers_out;

    if (ngx_http_idempotency_name_is(name,
                                     &ngx_http_idempotency_content_type))
    {
        ngx_http_idempotency_restore_type(r, value);
        return NGX_OK;
    }

    if (ngx_http_idempotency_header_push(r, &out->headers, name, value)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    h = (ngx_table_elt_t *) out->headers.last->elts
        + out->headers.last->nelts - 1;

    if (ngx_http_idempotency_name_is(name, &encoding)) {
        out->content_encoding = h;

    } else if (ngx_http_idempotency_name_is(name, &etag)) {
        out->etag = h;

    } else if (ngx_http_idempotency_name_is(name, &modified)) {
        out->last_modified = h;
        out->last_modified_time = ngx_parse_http_time(value->data, value->len);

    } else if (location && ngx_http_idempotency_name_is(name, &where)) {
        out->location = h;
    }

    return NGX_OK;
}


/* the views of the answer must outlive the request */

ngx_int_t
ngx_http_idempotency_headers_restore(ngx_http_request_t *r,
    const struct idem_answer *answer)
{
    ngx_str_t          n, v;
    struct idem_bytes  rest, name, value;

    rest = answer->headers;

    while (idem_headers_next(&rest, &name, &value)) {
        n.data = (u_char *) name.data;
        n.len = name.size;
        v.data = (u_char *) value.data;
        v.len = value.size;

        if (ngx_http_idempotency_restore_line(r, &n, &v,
                         answer->flags & NGX_HTTP_IDEMPOTENCY_LOCATION)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
