
/*
 * Copyright (C) The idem authors
 *
 * The values of directives.  Each command's "post" is a sentence that says what
 * is allowed; every refusal names the directive and ends with it.
 */


#include "ngx_http_idempotency_module.h"


static char *ngx_http_idempotency_bad_value(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value);
static char *ngx_http_idempotency_bad_count(ngx_conf_t *cf,
    ngx_command_t *cmd);
static char *ngx_http_idempotency_compile(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_complex_value_t **cv);
static ngx_uint_t ngx_http_idempotency_token(ngx_str_t *value);
static ngx_uint_t ngx_http_idempotency_is(ngx_str_t *value, const char *word);


#define NGX_HTTP_IDEMPOTENCY_MSEC_MAX                                         \
    ((ngx_int_t) (IDEM_TTL_US_MAX / 1000))


static char *
ngx_http_idempotency_bad_value(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, allowed: %s",
                       value, &cmd->name, (char *) cmd->post);
    return NGX_CONF_ERROR;
}


static char *
ngx_http_idempotency_bad_count(ngx_conf_t *cf, ngx_command_t *cmd)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid number of arguments in \"%V\" directive, "
                       "allowed: %s", &cmd->name, (char *) cmd->post);
    return NGX_CONF_ERROR;
}


static ngx_uint_t
ngx_http_idempotency_is(ngx_str_t *value, const char *word)
{
    return value->len == ngx_strlen(word)
           && ngx_strncmp(value->data, word, value->len) == 0;
}


/* RFC 9110, 5.6.2 */

static ngx_uint_t
ngx_http_idempotency_token(ngx_str_t *value)
{
    u_char  *p, *last;

    last = value->data + value->len;

    for (p = value->data; p < last; p++) {
        if (*p <= ' ' || *p >= 0x7f || ngx_strchr("\"(),/:;<=>?@[\\]{}", *p)) {
            return 0;
        }
    }

    return value->len != 0;
}


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


char *
ngx_http_idempotency_set_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                              *directory;
    ngx_str_t                         *value;
    ngx_uint_t                         i;
    struct idem_message                message;
    ngx_http_idempotency_store_t      *store;
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

    store = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (store[i].name.len == value[1].len
            && ngx_strncmp(store[i].name.data, value[1].data, value[1].len)
               == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate store \"%V\" in \"%V\" directive, "
                               "allowed: each name once", &value[1],
                               &cmd->name);
            return NGX_CONF_ERROR;
        }
    }

    if (idem_store_url_check((char *) value[2].data, &directory, &message)
        != IDEM_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive: %s; "
                           "allowed: %s", &value[2], &cmd->name, message.text,
                           (char *) cmd->post);
        return NGX_CONF_ERROR;
    }

    if (directory && directory[0] != '/') {
        free(directory);

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive: the "
                           "directory must begin with \"/\"; allowed: %s",
                           &value[2], &cmd->name, (char *) cmd->post);
        return NGX_CONF_ERROR;
    }

    store = ngx_array_push(&imcf->stores);
    if (store == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(store, sizeof(ngx_http_idempotency_store_t));
    store->name = value[1];
    store->url = value[2];

    if (directory) {
        store->directory.len = ngx_strlen(directory);
        store->directory.data = ngx_pnalloc(cf->pool,
                                            store->directory.len + 1);
        if (store->directory.data == NULL) {
            return NGX_CONF_ERROR;
        }

        ngx_memcpy(store->directory.data, directory, store->directory.len + 1);
        free(directory);
    }

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

char *
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
ngx_http_idempotency_set_methods(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_str_t                        *value;
    ngx_uint_t                        i, m;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    static const struct {
        const char  *name;
        ngx_uint_t   bit;
    } methods[] = {
        { "POST", NGX_HTTP_POST },
        { "PATCH", NGX_HTTP_PATCH },
        { "PUT", NGX_HTTP_PUT },
        { "DELETE", NGX_HTTP_DELETE },
        { NULL, 0 }
    };

    if (ilcf->methods) {
        return "is duplicate";
    }

    if (cf->args->nelts < 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        for (m = 0; methods[m].name; m++) {
            if (ngx_http_idempotency_is(&value[i], methods[m].name)) {
                ilcf->methods |= methods[m].bit;
                break;
            }
        }

        if (methods[m].name == NULL) {
            return ngx_http_idempotency_bad_value(cf, cmd, &value[i]);
        }
    }

    return NGX_CONF_OK;
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


char *
ngx_http_idempotency_set_time(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_int_t    time;
    ngx_str_t   *value;
    ngx_msec_t  *field;

    field = (ngx_msec_t *) (p + cmd->offset);

    if (*field != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    if (cf->args->nelts != 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;
    time = ngx_parse_time(&value[1], 0);

    if (time == NGX_ERROR
        || time < (ngx_int_t) (IDEM_LEASE_US_MIN / 1000)
        || time > NGX_HTTP_IDEMPOTENCY_MSEC_MAX
        || (field == &((ngx_http_idempotency_loc_conf_t *) conf)->lease
            && time > (ngx_int_t) (IDEM_LEASE_US_MAX / 1000)))
    {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    *field = time;

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_set_ttl(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                        *value;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    value = cf->args->elts;

    if (ilcf->ttl == NGX_CONF_UNSET_MSEC
        && cf->args->nelts == 2
        && ngx_http_idempotency_is(&value[1], "never"))
    {
        ilcf->ttl = 0;
        return NGX_CONF_OK;
    }

    return ngx_http_idempotency_set_time(cf, cmd, conf);
}


/* the allowed words stand in "post", one of them is the value, by its place */

char *
ngx_http_idempotency_set_word(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    u_char      *word, *end;
    ngx_str_t   *value;
    ngx_uint_t  *field, i;

    field = (ngx_uint_t *) (p + cmd->offset);

    if (*field != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    if (cf->args->nelts != 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;
    word = cmd->post;

    for (i = 0; *word; i++) {
        end = word;

        while (*end && *end != ' ') { end++; }

        if (value[1].len == (size_t) (end - word)
            && ngx_strncmp(value[1].data, word, value[1].len) == 0)
        {
            *field = i;
            return NGX_CONF_OK;
        }

        word = *end ? end + 1 : end;
    }

    return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
}


char *
ngx_http_idempotency_set_outcome(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_str_t                        *value, *last;
    ngx_uint_t                        i;
    struct idem_policy                policy;
    enum idem_outcome                 outcome;
    ngx_http_idempotency_rule_t      *rule;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (cf->args->nelts < 3) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;
    last = &value[cf->args->nelts - 1];

    outcome = idem_outcome_parse(idem_bytes_make(last->data, last->len));
    if (outcome == IDEM_OUTCOME_UNSET) {
        return ngx_http_idempotency_bad_value(cf, cmd, last);
    }

    if (ilcf->outcomes == NGX_CONF_UNSET_PTR) {
        ilcf->outcomes = ngx_array_create(cf->pool, 4,
                                          sizeof(ngx_http_idempotency_rule_t));
        if (ilcf->outcomes == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    idem_policy_init(&policy);

    for (i = 1; i < cf->args->nelts - 1; i++) {

        if (idem_policy_set_outcome(&policy,
                                    idem_bytes_make(value[i].data,
                                                    value[i].len),
                                    outcome)
            != IDEM_OK)
        {
            return ngx_http_idempotency_bad_value(cf, cmd, &value[i]);
        }

        rule = ngx_array_push(ilcf->outcomes);
        if (rule == NULL) {
            return NGX_CONF_ERROR;
        }

        rule->statuses = value[i];
        rule->outcome = outcome;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_set_body_max(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ssize_t                           size;
    ngx_str_t                        *value;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (ilcf->body_max != NGX_CONF_UNSET_SIZE) {
        return "is duplicate";
    }

    if (cf->args->nelts != 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;
    size = ngx_parse_size(&value[1]);

    if (size == NGX_ERROR || size > (ssize_t) IDEM_BODY_SIZE_MAX) {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    ilcf->body_max = size;

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_set_hide(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                        *value, *name;
    ngx_uint_t                        i;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (cf->args->nelts < 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    if (ilcf->hide_headers == NGX_CONF_UNSET_PTR) {
        ilcf->hide_headers = ngx_array_create(cf->pool, 4, sizeof(ngx_str_t));
        if (ilcf->hide_headers == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        if (!ngx_http_idempotency_token(&value[i])) {
            return ngx_http_idempotency_bad_value(cf, cmd, &value[i]);
        }

        name = ngx_array_push(ilcf->hide_headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idempotency_set_header(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                        *value;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (ilcf->replay_header.data) {
        return "is duplicate";
    }

    if (cf->args->nelts != 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;

    if (!ngx_http_idempotency_token(&value[1])) {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    ilcf->replay_header = value[1];

    return NGX_CONF_OK;
}


/* a status of the hundred that the default belongs to */

char *
ngx_http_idempotency_set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t                         status, hundred;
    ngx_str_t                        *value;
    ngx_uint_t                       *field;
    ngx_http_idempotency_loc_conf_t  *ilcf = conf;

    if (cmd->offset
        == offsetof(ngx_http_idempotency_loc_conf_t, replay_status))
    {
        field = &ilcf->replay_status;
        hundred = 2;

    } else {
        field = &ilcf->mismatch_status;
        hundred = 4;
    }

    if (*field != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    if (cf->args->nelts != 2) {
        return ngx_http_idempotency_bad_count(cf, cmd);
    }

    value = cf->args->elts;

    if (hundred == 2 && ngx_http_idempotency_is(&value[1], "same")) {
        *field = 0;
        return NGX_CONF_OK;
    }

    status = ngx_atoi(value[1].data, value[1].len);

    if (status == NGX_ERROR
        || status / 100 != hundred
        || status == NGX_HTTP_NO_CONTENT || status == 205
        || status == NGX_HTTP_PARTIAL_CONTENT)
    {
        return ngx_http_idempotency_bad_value(cf, cmd, &value[1]);
    }

    *field = status;

    return NGX_CONF_OK;
}
