
/*
 * Copyright (C) The idem authors
 *
 * Plain values of directives: times, sizes, words, statuses, names.  Each
 * command's "post" is a sentence that says what is allowed; every refusal names
 * the directive and ends with it.
 */


#include "ngx_http_idempotency_module.h"


#define NGX_HTTP_IDEMPOTENCY_MSEC_MAX                                         \
    ((ngx_int_t) (IDEM_TTL_US_MAX / 1000))


char *
ngx_http_idempotency_bad_value(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, allowed: %s",
                       value, &cmd->name, (char *) cmd->post);
    return NGX_CONF_ERROR;
}


char *
ngx_http_idempotency_bad_count(ngx_conf_t *cf, ngx_command_t *cmd)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid number of arguments in \"%V\" directive, "
                       "allowed: %s", &cmd->name, (char *) cmd->post);
    return NGX_CONF_ERROR;
}


ngx_uint_t
ngx_http_idempotency_is(ngx_str_t *value, const char *word)
{
    return value->len == ngx_strlen(word)
           && ngx_strncmp(value->data, word, value->len) == 0;
}


/* RFC 9110, 5.6.2 */

ngx_uint_t
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
