
/*
 * Copyright (C) The idem authors
 *
 * What "nginx -t" refuses because it would break the guarantee, and what a
 * guarded location changes in nginx's own settings without being asked.
 *
 * The modules that send requests on are found by name.  Their location
 * configurations begin with ngx_http_upstream_conf_t, which is checked by its
 * member "module"; private settings are read through the command that sets
 * them.  Their handlers are static, so each one's own "*_pass" is run once on a
 * scratch configuration to see what it installs.
 */


#include "ngx_http_idempotency_module.h"


typedef struct {
    const char  *module;
    const char  *name;
    ngx_str_t    pass;
    unsigned     refused:1;
} ngx_http_idempotency_peer_name_t;


static ngx_int_t ngx_http_idempotency_find_peer(ngx_conf_t *cf,
    const ngx_http_idempotency_peer_name_t *name,
    ngx_http_idempotency_peer_t *peer);
static ngx_int_t ngx_http_idempotency_scratch_pass(ngx_conf_t *cf,
    const ngx_http_idempotency_peer_name_t *name,
    ngx_http_idempotency_peer_t *peer, ngx_command_t *cmd);
static ngx_command_t *ngx_http_idempotency_find_command(ngx_module_t *module,
    const char *name);
static char *ngx_http_idempotency_check_peer(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf, ngx_uint_t i, ngx_uint_t serves);
static char *ngx_http_idempotency_refuse_peer(ngx_conf_t *cf,
    const ngx_http_idempotency_peer_name_t *name);
static char *ngx_http_idempotency_check_upstream(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_upstream_conf_t *uc,
    const ngx_http_idempotency_peer_name_t *name);
static char *ngx_http_idempotency_check_headers(ngx_conf_t *cf,
    ngx_module_t *module, void *plcf);
static char *ngx_http_idempotency_check_version(ngx_conf_t *cf,
    ngx_module_t *module, void *plcf);


static const ngx_http_idempotency_peer_name_t
    ngx_http_idempotency_peer_names[NGX_HTTP_IDEMPOTENCY_PEERS] =
{
    { "ngx_http_proxy_module", "proxy", ngx_string("proxy_pass"), 0 },
    { "ngx_http_fastcgi_module", "fastcgi", ngx_string("fastcgi_pass"), 0 },
    { "ngx_http_uwsgi_module", "uwsgi", ngx_string("uwsgi_pass"), 0 },
    { "ngx_http_scgi_module", "scgi", ngx_string("scgi_pass"), 0 },
    { "ngx_http_grpc_module", "grpc", ngx_string("grpc_pass"), 1 },
};


ngx_int_t
ngx_http_idempotency_find_peers(ngx_conf_t *cf)
{
    ngx_uint_t                         i;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);

    for (i = 0; i < NGX_HTTP_IDEMPOTENCY_PEERS; i++) {
        if (ngx_http_idempotency_find_peer(cf,
                                           &ngx_http_idempotency_peer_names[i],
                                           &imcf->peers[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idempotency_find_peer(ngx_conf_t *cf,
    const ngx_http_idempotency_peer_name_t *name,
    ngx_http_idempotency_peer_t *peer)
{
    ngx_uint_t      i;
    ngx_command_t  *cmd;

    for (i = 0; cf->cycle->modules[i]; i++) {

        if (ngx_strcmp(cf->cycle->modules[i]->name, name->module) == 0) {
            peer->module = cf->cycle->modules[i];

            cmd = ngx_http_idempotency_find_command(peer->module,
                                                (char *) name->pass.data);
            if (cmd == NULL) {
                return NGX_ERROR;
            }

            return ngx_http_idempotency_scratch_pass(cf, name, peer, cmd);
        }
    }

    return NGX_OK;
}


static ngx_command_t *
ngx_http_idempotency_find_command(ngx_module_t *module, const char *name)
{
    ngx_command_t  *cmd;

    for (cmd = module->commands; cmd && cmd->name.len; cmd++) {
        if (ngx_strcmp(cmd->name.data, name) == 0) {
            return cmd;
        }
    }

    return NULL;
}


/* a "*_pass $host;" in a location that nobody will ever reach */

static ngx_int_t
ngx_http_idempotency_scratch_pass(ngx_conf_t *cf,
    const ngx_http_idempotency_peer_name_t *name,
    ngx_http_idempotency_peer_t *peer, ngx_command_t *cmd)
{
    void                      *conf;
    ngx_str_t                 *value;
    ngx_conf_t                 scratch;
    ngx_http_conf_ctx_t        ctx;
    ngx_http_module_t         *core, *module;
    ngx_http_core_loc_conf_t  *clcf;

    core = ngx_http_core_module.ctx;
    module = peer->module->ctx;

    ctx = *(ngx_http_conf_ctx_t *) cf->ctx;
    ctx.loc_conf = ngx_pcalloc(cf->pool, sizeof(void *) * ngx_http_max_module);
    if (ctx.loc_conf == NULL) {
        return NGX_ERROR;
    }

    scratch = *cf;
    scratch.ctx = &ctx;
    scratch.args = ngx_array_create(cf->pool, 2, sizeof(ngx_str_t));
    if (scratch.args == NULL) {
        return NGX_ERROR;
    }

    clcf = core->create_loc_conf(&scratch);
    conf = module->create_loc_conf(&scratch);
    value = ngx_array_push_n(scratch.args, 2);

    if (clcf == NULL || conf == NULL || value == NULL) {
        return NGX_ERROR;
    }

    ctx.loc_conf[ngx_http_core_module.ctx_index] = clcf;
    ctx.loc_conf[peer->module->ctx_index] = conf;

    value[0] = name->pass;
    ngx_str_set(&value[1], "$host");

    if (cmd->set(&scratch, cmd, conf) != NGX_CONF_OK || clcf->handler == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency: this nginx's \"%V\" is not understood",
                           &name->pass);
        return NGX_ERROR;
    }

    peer->handler = clcf->handler;

    return NGX_OK;
}


char *
ngx_http_idempotency_check_location(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf)
{
    ngx_uint_t                         i, known, serves;
    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_idempotency_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    known = clcf->handler == NULL;

    for (i = 0; i < NGX_HTTP_IDEMPOTENCY_PEERS; i++) {

        if (imcf->peers[i].module == NULL) {
            continue;
        }

        serves = clcf->handler == imcf->peers[i].handler;
        known |= serves;

        if (ngx_http_idempotency_check_peer(cf, conf, i, serves)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    if (!known) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the guarded location \"%V\" is served by a content "
                           "handler that was not tested with \"idempotency\", "
                           "allowed: proxy_pass, fastcgi_pass, uwsgi_pass, "
                           "scgi_pass, or \"idempotency off\" here",
                           &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (clcf->post_action.len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"post_action\" in the guarded location \"%V\" "
                           "would send the request a second time; remove it or "
                           "say \"idempotency off\" here", &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (clcf->handler && conf->scope == NULL) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "the guarded location \"%V\" has no "
                           "\"idempotency_scope\": all its callers share one "
                           "space of keys", &clcf->name);
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_check_peer(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf, ngx_uint_t i, ngx_uint_t serves)
{
    ngx_http_upstream_conf_t                *uc;
    ngx_http_idempotency_main_conf_t        *imcf;
    const ngx_http_idempotency_peer_name_t  *name;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idempotency_module);
    name = &ngx_http_idempotency_peer_names[i];

    if (name->refused) {
        return serves ? ngx_http_idempotency_refuse_peer(cf, name)
                      : NGX_CONF_OK;
    }

    uc = ngx_http_conf_get_module_loc_conf(cf, (*imcf->peers[i].module));

    if (uc->module.len != ngx_strlen(name->name)
        || ngx_strncmp(uc->module.data, name->name, uc->module.len) != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idempotency was built for another nginx than this "
                           "one; build it against this version's sources");
        return NGX_CONF_ERROR;
    }

    /* the operation goes on when the client hangs up */

    uc->ignore_client_abort = 1;

    /* nginx itself protects POST, LOCK and PATCH only, once they were sent */

    if (conf->methods & ~(NGX_HTTP_POST|NGX_HTTP_PATCH)) {
        uc->next_upstream = NGX_CONF_BITMASK_SET|NGX_HTTP_UPSTREAM_FT_OFF;
    }

    if (!serves) {
        return NGX_CONF_OK;
    }

    if (ngx_http_idempotency_check_upstream(cf, conf, uc, name)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_idempotency_check_headers(cf, imcf->peers[i].module, uc)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_idempotency_check_version(cf, imcf->peers[i].module, uc);
}


/* what the upstream is told of the key is not for the configuration to say */

static char *
ngx_http_idempotency_check_headers(ngx_conf_t *cf, ngx_module_t *module,
    void *plcf)
{
    ngx_uint_t       i;
    ngx_array_t     *headers;
    ngx_keyval_t    *header;
    ngx_command_t   *cmd;

    static const size_t  prefix = sizeof("Idempotency-") - 1;

    cmd = ngx_http_idempotency_find_command(module, "proxy_set_header");
    if (cmd == NULL) {
        return NGX_CONF_OK;
    }

    headers = *(ngx_array_t **) ((char *) plcf + cmd->offset);
    if (headers == NULL) {
        return NGX_CONF_OK;
    }

    header = headers->elts;

    for (i = 0; i < headers->nelts; i++) {
        if (header[i].key.len > prefix
            && ngx_strncasecmp(header[i].key.data, (u_char *) "Idempotency-",
                               prefix)
               == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"proxy_set_header %V\" in a guarded location "
                               "would change what the upstream is told of the "
                               "key; remove it", &header[i].key);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_refuse_peer(ngx_conf_t *cf,
    const ngx_http_idempotency_peer_name_t *name)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" cannot be guarded: its outcome comes in "
                       "trailers, which are not understood; say "
                       "\"idempotency off\" in location \"%V\"",
                       &name->pass, &clcf->name);
    return NGX_CONF_ERROR;
}


/* settings that would send a request twice, or answer it from elsewhere */

static char *
ngx_http_idempotency_check_upstream(ngx_conf_t *cf,
    ngx_http_idempotency_loc_conf_t *conf, ngx_http_upstream_conf_t *uc,
    const ngx_http_idempotency_peer_name_t *name)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (uc->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s_next_upstream non_idempotent\" in the guarded "
                           "location \"%V\" would send a request twice; remove "
                           "\"non_idempotent\"", name->name, &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (!uc->pass_request_headers) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s_pass_request_headers off\" in the guarded "
                           "location \"%V\" would keep the key from the "
                           "upstream; remove it", name->name, &clcf->name);
        return NGX_CONF_ERROR;
    }

#if (NGX_HTTP_CACHE)

    if (uc->cache && (uc->cache_methods & conf->methods)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s_cache_methods\" in the guarded location "
                           "\"%V\" has a guarded method, whose answers must "
                           "come from its record only; remove it",
                           name->name, &clcf->name);
        return NGX_CONF_ERROR;
    }

#endif

    return NGX_CONF_OK;
}


/* HTTP/1.0 ends an answer by closing: cut short or whole, nobody can tell */

static char *
ngx_http_idempotency_check_version(ngx_conf_t *cf, ngx_module_t *module,
    void *plcf)
{
    ngx_command_t             *cmd;
    ngx_http_core_loc_conf_t  *clcf;

    cmd = ngx_http_idempotency_find_command(module, "proxy_http_version");

    if (cmd == NULL
        || *(ngx_uint_t *) ((char *) plcf + cmd->offset)
           >= NGX_HTTP_VERSION_11)
    {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "the guarded location \"%V\" speaks HTTP/1.0 to its "
                       "upstream, where a cut answer looks like a whole one; "
                       "add \"proxy_http_version 1.1\"", &clcf->name);
    return NGX_CONF_ERROR;
}
