
/*
 * Copyright (C) The idem authors
 *
 * Directives that name something: a store, or where a request's key, scope,
 * credential and fingerprint come from.
 */


#include "ngx_http_idempotency_module.h"


static char *ngx_http_idempotency_store_label(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static char *ngx_http_idempotency_bad_url(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *url, const char *reason);
static char *ngx_http_idempotency_store_place(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_http_idempotency_store_t *store);
static char *ngx_http_idempotency_key_source(ngx_conf_t *cf,
    ngx_http_idempotency_key_t *key, ngx_str_t *value);
static char *ngx_http_idempotency_compile(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_complex_value_t **cv);


static char *
ngx_http_idempotency_compile(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_complex_value_t **cv)
{
    ngx_http_compile_complex_value_t  ccv;

    *cv = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (*cv == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));
    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = *cv;

    return ngx_http_compile_complex_value(&ccv) == NGX_OK ? NGX_CONF_OK
                                                          : NGX_CONF_ERROR;
}


ngx_http_idempotency_store_t *
ngx_http_idempotency_store_by_name(ngx_http_idempotency_main_conf_t *imcf,
    ngx_str_t *name)
{
    ngx_uint_t                     i;
    ngx_http_idempotency_store_t  *store;

    store = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (store[i].name.len == name->len
            && ngx_strncmp(store[i].name.data, name->data, name->len) == 0)
        {
            return &store[i];
        }
    }

    return NULL;
}


/* what the log calls a store: its name, and where its server is */

static char *
ngx_http_idempotency_store_label(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    u_char  *p, place[NGX_HTTP_IDEMPOTENCY_PLACE_SIZE];

    idem_store_url_redact((char *) store->url.data, (char *) place,
                          sizeof(place));

    p = ngx_pnalloc(cf->pool, store->name.len + sizeof("\"\" ()")
                              + sizeof(place));
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    store->label.data = p;

    if (store->remote) {
        place[strcspn((char *) place, "?")] = '\0';
        p = ngx_sprintf(p, "\"%V\" (%s)", &store->name, place);

    } else {
        p = ngx_sprintf(p, "\"%V\"", &store->name);
    }

    store->label.len = p - store->label.data;

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_bad_url(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *url, const char *reason)
{
    u_char  place[IDEM_URL_SIZE_MAX];

    idem_store_url_redact((char *) url->data, (char *) place, sizeof(place));

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%s\" in \"%V\" directive: %s; "
                       "allowed: %s", place, &cmd->name, reason,
                       (char *) cmd->post);

    return NGX_CONF_ERROR;
}


/*
 * Where the records are, and how long a result may take.  The directory of an
 * embedded store is moved into nginx's memory.  Nothing is opened here.
 */

static char *
ngx_http_idempotency_store_place(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_idempotency_store_t *store)
{
    char                 *directory;
    ngx_str_t             text;
    struct idem_message   message;

    if (idem_store_url_check((char *) store->url.data, &directory, &message)
        != IDEM_OK)
    {
        return ngx_http_idempotency_bad_url(cf, cmd, &store->url,
                                            message.text);
    }

    store->timeout = idem_store_url_timeout_us((char *) store->url.data) / 1000;

    if (directory == NULL) {
        store->remote = ngx_strncmp(store->url.data, "memory:",
                                    sizeof("memory:") - 1)
                        != 0;
        return ngx_http_idempotency_store_label(cf, store);
    }

    text.data = (u_char *) directory;
    text.len = ngx_strlen(directory) + 1;

    store->directory.data = ngx_pstrdup(cf->pool, &text);
    store->directory.len = text.len - 1;

    free(directory);

    if (store->directory.data == NULL) {
        return NGX_CONF_ERROR;
    }

    if (store->directory.data[0] != '/') {
        return ngx_http_idempotency_bad_url(cf, cmd, &store->url,
                                    "the directory must begin with \"/\"");
    }

    return ngx_http_idempotency_store_label(cf, store);
}


char *
ngx_http_idempotency_set_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                         *value;
    ngx_http_idempotency_store_t      *store, made;
    ngx_http_idempotency_main_conf_t  *imcf = conf;

    if (cf->args->nelts != 3) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;

    if (!ngx_http_idempotency_token(&value[1])
        || ngx_http_idempotency_is(&value[1], "off"))
    {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    if (ngx_http_idempotency_store_by_name(imcf, &value[1])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate store \"%V\" in \"%V\" directive, "
                           "allowed: each name once", &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&made, sizeof(ngx_http_idempotency_store_t));
    made.name = value[1];
    made.url = value[2];

    if (ngx_http_idempotency_store_place(cf, cmd, &made) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    store = ngx_array_push(&imcf->stores);
    if (store == NULL) {
        return NGX_CONF_ERROR;
    }

    *store = made;

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_set_guard(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                        *value;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (cf->args->nelts != 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    if (ilcf->store_name.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (!ngx_http_idempotency_token(&value[1])) {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    ilcf->store_name = value[1];

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_set_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t                         max;
    ngx_str_t                        *value;
    ngx_uint_t                        i;
    ngx_http_idempotency_key_t       *key;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (ilcf->key != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    if (cf->args->nelts < 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;

    key = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_key_t));
    if (key == NULL) {
        return NGX_CONF_ERROR;
    }

    key->max = IDEM_KEY_SIZE_DEFAULT;
    key->syntax = IDEM_KEY_LENIENT;

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_http_idempotency_is(&value[i], "required")) {
            key->required = 1;

        } else if (ngx_http_idempotency_is(&value[i], "strict")) {
            key->syntax = IDEM_KEY_STRICT;

        } else if (ngx_strncmp(value[i].data, "max=", 4) == 0) {
            max = ngx_atoi(value[i].data + 4, value[i].len - 4);

            if (max < 1 || max > IDEM_KEY_SIZE_MAX) {
                return ngx_http_idempotency_bad_value(cf, cmd, &value[i]);
            }

            key->max = max;

        } else {
            return ngx_http_idempotency_bad_value(cf, cmd, &value[i]);
        }
    }

    if (value[1].len == 0 || ngx_strncmp(value[1].data, "body=", 5) == 0) {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    ilcf->key = key;

    return ngx_http_idempotency_key_source(cf, key, &value[1]);
}


/* "$http_name" alone is a header, whose lines are counted */

static char *
ngx_http_idempotency_key_source(ngx_conf_t *cf, ngx_http_idempotency_key_t *key,
    ngx_str_t *value)
{
    u_char      *p;
    ngx_uint_t   i;

    static const size_t  prefix = sizeof("$http_") - 1;

    if (value->len > prefix
        && ngx_strncmp(value->data, "$http_", prefix) == 0)
    {
        key->header.len = value->len - prefix;
        key->header.data = ngx_pnalloc(cf->pool, key->header.len);
        if (key->header.data == NULL) {
            return NGX_CONF_ERROR;
        }

        p = value->data + prefix;

        for (i = 0; i < key->header.len; i++) {
            key->header.data[i] = p[i] == '_' ? '-' : p[i];
        }

        if (ngx_http_idempotency_token(&key->header)
            && ngx_strlchr(key->header.data,
                           key->header.data + key->header.len, '$')
               == NULL)
        {
            return NGX_CONF_OK;
        }

        ngx_str_null(&key->header);
    }

    return ngx_http_idempotency_compile(cf, value, &key->value);
}


char *
ngx_http_idempotency_set_scope(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                        *value;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (ilcf->scope != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    if (cf->args->nelts != 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    return ngx_http_idempotency_compile(cf, &value[1], &ilcf->scope);
}


char *
ngx_http_idempotency_set_credential(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_str_t                        *value;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (ilcf->credential != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    if (cf->args->nelts != 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    if (ngx_http_idempotency_is(&value[1], "off")) {
        ilcf->credential = NULL;
        ilcf->credential_off = 1;
        return NGX_CONF_OK;
    }

    ilcf->credential_off = 0;

    return ngx_http_idempotency_compile(cf, &value[1], &ilcf->credential);
}


char *
ngx_http_idempotency_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_str_t                        *value;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (ilcf->fingerprint != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    if (cf->args->nelts != 2 && cf->args->nelts != 3) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;

    if (!ngx_http_idempotency_is(&value[1], "raw")) {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    if (cf->args->nelts == 2) {
        ilcf->fingerprint = NULL;
        return NGX_CONF_OK;
    }

    if (value[2].len == 0) {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[2]);
    }

    return ngx_http_idempotency_compile(cf, &value[2], &ilcf->fingerprint);
}
