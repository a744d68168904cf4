
/*
 * Copyright (C) The idem authors
 *
 * Directives, their defaults, and how they are inherited.
 */


#include "ngx_http_idempotency_module.h"


static void ngx_http_idempotency_merge_sources(
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static void ngx_http_idempotency_merge_values(
    ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_find_store(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_merge_policy(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);
static char *ngx_http_idempotency_merge_hide(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf);


#define NGX_HTTP_IDEMPOTENCY_ANYWHERE                                         \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_HTTP_LIF_CONF  \
    |NGX_HTTP_LMT_CONF|NGX_CONF_ANY

#define ngx_http_idempotency_allowed(text)  (void *) text


ngx_command_t  ngx_http_idempotency_commands[] = {

    { ngx_string("idempotency_store"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_ANY,
      ngx_http_idempotency_set_store,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("a name other than \"off\" and a store URL, "
          "such as \"main lmdb:/var/lib/idem/store\"") },

    { ngx_string("idempotency"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_guard,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("the name of an \"idempotency_store\", or "
          "\"off\"") },

    { ngx_string("idempotency_key"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_key,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("a value such as $http_idempotency_key, "
          "then any of \"required\", \"strict\" and \"max=N\" with N from 1 to "
          "1024") },

    { ngx_string("idempotency_scope"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_scope,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("one value that nginx itself has "
          "authenticated, such as $remote_user") },

    { ngx_string("idempotency_credential"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_credential,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("one value that tells callers apart, such "
          "as $http_authorization, or \"off\"") },

    { ngx_string("idempotency_methods"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_methods,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("one or more of POST PATCH PUT DELETE") },

    { ngx_string("idempotency_fingerprint"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_fingerprint,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("\"raw\", and if wanted one value in place "
          "of method, host, URI and content type") },

    { ngx_string("idempotency_ttl"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_ttl,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, ttl),
      ngx_http_idempotency_allowed("a time from 100ms to 36500d, such as 24h, "
          "or \"never\"") },

    { ngx_string("idempotency_lease"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, lease),
      ngx_http_idempotency_allowed("a time from 100ms to 1d, such as 10s") },

    { ngx_string("idempotency_unknown_ttl"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, unknown_ttl),
      ngx_http_idempotency_allowed("a time from 100ms to 36500d, such as "
          "30d") },

    { ngx_string("idempotency_in_flight"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_word,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, in_flight),
      ngx_http_idempotency_allowed("reject") },

    { ngx_string("idempotency_unknown"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_word,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, unknown),
      ngx_http_idempotency_allowed("hold retry") },

    { ngx_string("idempotency_outcome"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_outcome,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("one or more statuses from 200 to 599 or "
          "classes such as 5xx, then one of final failed unknown") },

    { ngx_string("idempotency_body_max"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_body_max,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("a size from 0 to 64m, such as 1m") },

    { ngx_string("idempotency_close_delimited"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_word,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, close_delimited),
      ngx_http_idempotency_allowed("on off") },

    { ngx_string("idempotency_hide_header"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_hide,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("one or more header names, which are not "
          "kept besides those that never are") },

    { ngx_string("idempotency_replay_header"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_header,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      ngx_http_idempotency_allowed("one header name, such as "
          "Idempotent-Replayed") },

    { ngx_string("idempotency_replay_status"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, replay_status),
      ngx_http_idempotency_allowed("\"same\", or a status from 200 to 299 that "
          "may have a body, told in place of a recorded 2xx") },

    { ngx_string("idempotency_mismatch_status"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, mismatch_status),
      ngx_http_idempotency_allowed("a status from 400 to 499, such as 422") },

    { ngx_string("idempotency_fail"),
      NGX_HTTP_IDEMPOTENCY_ANYWHERE,
      ngx_http_idempotency_set_word,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_idempotency_loc_conf_t, fail),
      ngx_http_idempotency_allowed("closed open") },

      ngx_null_command
};


/* never kept: of one connection, one exchange, or made anew for each answer */

static ngx_str_t  ngx_http_idempotency_never_kept[] = {
    ngx_string("Connection"),
    ngx_string("Keep-Alive"),
    ngx_string("Proxy-Connection"),
    ngx_string("TE"),
    ngx_string("Trailer"),
    ngx_string("Transfer-Encoding"),
    ngx_string("Upgrade"),
    ngx_string("Proxy-Authenticate"),
    ngx_string("Proxy-Authentication-Info"),
    ngx_string("Authentication-Info"),
    ngx_string("WWW-Authenticate"),
    ngx_string("Set-Cookie"),
    ngx_string("Content-Length"),
    ngx_string("Date"),
    ngx_string("Server"),
    ngx_string("Idempotency-Outcome"),
    ngx_null_string
};


void *
ngx_http_idempotency_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_main_conf_t));
    if (imcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&imcf->stores, cf->pool, 4,
                       sizeof(ngx_http_idempotency_store_t))
        != NGX_OK)
    {
        return NULL;
    }

    return imcf;
}


void *
ngx_http_idempotency_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_idempotency_loc_conf_t  *conf;

    /*
     * set by ngx_pcalloc():
     *
     *     conf->store_name = { 0, NULL };
     *     conf->store = NULL;
     *     conf->credential_off = 0;
     *     conf->methods = 0;
     *     conf->replay_header = { 0, NULL };
     */

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idempotency_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->key = NGX_CONF_UNSET_PTR;
    conf->scope = NGX_CONF_UNSET_PTR;
    conf->credential = NGX_CONF_UNSET_PTR;
    conf->fingerprint = NGX_CONF_UNSET_PTR;
    conf->ttl = NGX_CONF_UNSET_MSEC;
    conf->lease = NGX_CONF_UNSET_MSEC;
    conf->unknown_ttl = NGX_CONF_UNSET_MSEC;
    conf->body_max = NGX_CONF_UNSET_SIZE;
    conf->in_flight = NGX_CONF_UNSET_UINT;
    conf->unknown = NGX_CONF_UNSET_UINT;
    conf->outcomes = NGX_CONF_UNSET_PTR;
    conf->close_delimited = NGX_CONF_UNSET_UINT;
    conf->hide_headers = NGX_CONF_UNSET_PTR;
    conf->replay_status = NGX_CONF_UNSET_UINT;
    conf->mismatch_status = NGX_CONF_UNSET_UINT;
    conf->fail = NGX_CONF_UNSET_UINT;

    return conf;
}


char *
ngx_http_idempotency_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_idempotency_loc_conf_t  *conf = child;

    ngx_http_idempotency_merge_sources(parent, conf);
    ngx_http_idempotency_merge_values(parent, conf);

    if (ngx_http_idempotency_find_store(cf, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->store == NULL) {
        return NGX_CONF_OK;
    }

    if (ngx_http_idempotency_merge_hide(cf, conf) != NGX_CONF_OK
        || ngx_http_idempotency_merge_policy(cf, conf) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_idempotency_check_location(cf, conf);
}


static void
ngx_http_idempotency_merge_sources(ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    static ngx_http_idempotency_key_t  key = {
        NULL, ngx_string("Idempotency-Key"), IDEM_KEY_SIZE_DEFAULT,
        IDEM_KEY_LENIENT, 0
    };

    if (conf->store_name.data == NULL) {
        conf->store_name = prev->store_name;
    }

    if (conf->credential == NGX_CONF_UNSET_PTR) {
        conf->credential_off = prev->credential_off;
    }

    ngx_conf_merge_ptr_value(conf->key, prev->key, &key);
    ngx_conf_merge_ptr_value(conf->scope, prev->scope, NULL);
    ngx_conf_merge_ptr_value(conf->credential, prev->credential, NULL);
    ngx_conf_merge_ptr_value(conf->fingerprint, prev->fingerprint, NULL);
}


static void
ngx_http_idempotency_merge_values(ngx_http_idempotency_loc_conf_t *prev,
    ngx_http_idempotency_loc_conf_t *conf)
{
    if (conf->methods == 0) {
        conf->methods = prev->methods ? prev->methods
                                      : NGX_HTTP_POST|NGX_HTTP_PATCH;
    }

    ngx_conf_merge_msec_value(conf->ttl, prev->ttl,
                              IDEM_TTL_US_DEFAULT / 1000);
    ngx_conf_merge_msec_value(conf->lease, prev->lease,
                              IDEM_LEASE_US_DEFAULT / 1000);
    ngx_conf_merge_msec_value(conf->unknown_ttl, prev->unknown_ttl,
                              IDEM_UNKNOWN_TTL_US_DEFAULT / 1000);
    ngx_conf_merge_size_value(conf->body_max, prev->body_max,
                              IDEM_BODY_SIZE_DEFAULT);
    ngx_conf_merge_uint_value(conf->in_flight, prev->in_flight, 0);
    ngx_conf_merge_uint_value(conf->unknown, prev->unknown,
                              NGX_HTTP_IDEMPOTENCY_HOLD);
    ngx_conf_merge_ptr_value(conf->outcomes, prev->outcomes, NULL);
    ngx_conf_merge_uint_value(conf->close_delimited, prev->close_delimited,
                              NGX_HTTP_IDEMPOTENCY_OFF);
    ngx_conf_merge_ptr_value(conf->hide_headers, prev->hide_headers, NULL);
    ngx_conf_merge_str_value(conf->replay_header, prev->replay_header,
                             "Idempotent-Replayed");
    ngx_conf_merge_uint_value(conf->replay_status, prev->replay_status, 0);
    ngx_conf_merge_uint_value(conf->mismatch_status, prev->mismatch_status,
                              422);
    ngx_conf_merge_uint_value(conf->fail, prev->fail,
                              NGX_HTTP_IDEMPOTENCY_CLOSED);
}


static char *
ngx_http_idempotency_find_store(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_http_idempotency_main_conf_t  *imcf;

    if (conf->store_name.data == NULL
        || ngx_http_idempotency_is(&conf->store_name, "off"))
    {
        return NGX_CONF_OK;
    }

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    conf->store = ngx_http_idempotency_store_by_name(imcf, &conf->store_name);

    if (conf->store) {
        imcf->guards++;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"idempotency %V\" names no store, allowed: \"off\" or "
                       "a name declared by \"idempotency_store\" in the http "
                       "block", &conf->store_name);
    return NGX_CONF_ERROR;
}


static char *
ngx_http_idempotency_merge_policy(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_uint_t                    i;
    struct idem_policy           *policy;
    ngx_http_idempotency_rule_t  *rule;

    policy = &conf->policy;

    idem_policy_init(policy);

    policy->ttl_us = conf->ttl ? (int64_t) conf->ttl * 1000 : IDEM_NEVER_US;
    policy->lease_us = (int64_t) conf->lease * 1000;
    policy->unknown_ttl_us = (int64_t) conf->unknown_ttl * 1000;
    policy->body_size_max = conf->body_max;
    policy->fail_open = conf->fail == NGX_HTTP_IDEMPOTENCY_OPEN;
    policy->unknown = conf->unknown == NGX_HTTP_IDEMPOTENCY_RETRY
                      ? IDEM_UNKNOWN_RETRY : IDEM_UNKNOWN_HOLD;

    if (conf->outcomes == NULL) {
        return NGX_CONF_OK;
    }

    rule = conf->outcomes->elts;

    for (i = 0; i < conf->outcomes->nelts; i++) {
        if (idem_policy_set_outcome(policy,
                                    idem_bytes_make(rule[i].statuses.data,
                                                    rule[i].statuses.len),
                                    rule[i].outcome)
            != IDEM_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_merge_hide(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_str_t    *name, *own;
    ngx_uint_t    i;
    ngx_array_t  *all;

    all = ngx_array_create(cf->pool, 20, sizeof(ngx_str_t));
    if (all == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; ngx_http_idempotency_never_kept[i].len; i++) {
        name = ngx_array_push(all);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = ngx_http_idempotency_never_kept[i];
    }

    if (conf->hide_headers) {
        own = conf->hide_headers->elts;

        for (i = 0; i < conf->hide_headers->nelts; i++) {
            name = ngx_array_push(all);
            if (name == NULL) {
                return NGX_CONF_ERROR;
            }

            *name = own[i];
        }
    }

    conf->hidden = all;

    return NGX_CONF_OK;
}
