
/*
 * Copyright (C) The idem authors
 *
 * Whether a declared store could be used, as far as the master can tell before
 * the workers open it.
 */


#include "ngx_http_idempotency_module.h"


static char *ngx_http_idempotency_check_memory(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static char *ngx_http_idempotency_check_directory(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static char *ngx_http_idempotency_check_existing(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_file_info_t *fi);
static char *ngx_http_idempotency_check_parent(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static void ngx_http_idempotency_own_files(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static ngx_uint_t ngx_http_idempotency_has_data(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store);
static u_char *ngx_http_idempotency_file_name(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_uint_t i);


/*
 * Whether the store could be used, as far as the master can tell: its directory
 * and what is in it.  A store that is away for now is not an error.
 */

char *
ngx_http_idempotency_check_store(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    int                   rc;
    struct idem_store    *opened;
    struct idem_message   message;

    if (store->directory.len == 0) {
        return ngx_http_idempotency_check_memory(cf, store);
    }

    if (ngx_http_idempotency_check_directory(cf, store) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (!ngx_http_idempotency_has_data(cf, store)) {
        return NGX_CONF_OK;
    }

    rc = idem_store_open((char *) store->url.data, NULL, &opened, &message);

    if (rc == IDEM_OK) {
        idem_store_close(opened);
        ngx_http_idempotency_own_files(cf, store);
        return NGX_CONF_OK;
    }

    ngx_http_idempotency_own_files(cf, store);

    if (rc == IDEM_ERR_UNAVAILABLE || rc == IDEM_ERR_FULL) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"idempotency_store %V\": %s", &store->name,
                           message.text);
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"idempotency_store %V\": %s",
                       &store->name, message.text);
    return NGX_CONF_ERROR;
}


/* a store in memory is one per worker: with two of them there is no guard */

static char *
ngx_http_idempotency_check_memory(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    ngx_core_conf_t  *ccf;

    if (ngx_strncmp(store->url.data, "memory:", sizeof("memory:") - 1) != 0) {
        return NGX_CONF_OK;
    }

    ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                           ngx_core_module);

    if (ccf->worker_processes != 1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store %V\": \"memory:\" is not "
                           "shared between workers; say \"worker_processes 1\" "
                           "above the http block, or use \"lmdb:\"",
                           &store->name);
        return NGX_CONF_ERROR;
    }

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "\"idempotency_store %V\": \"memory:\" forgets its "
                       "records when nginx is reloaded or stopped",
                       &store->name);

    return NGX_CONF_OK;
}


/* nginx makes the directory and gives it to the workers' user */

static char *
ngx_http_idempotency_check_directory(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    ngx_path_t       *path;
    ngx_file_info_t   fi;

    path = ngx_pcalloc(cf->pool, sizeof(ngx_path_t));
    if (path == NULL) {
        return NGX_CONF_ERROR;
    }

    path->name = store->directory;
    path->conf_file = cf->conf_file->file.name.data;
    path->line = cf->conf_file->line;

    if (ngx_add_path(cf, &path) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ngx_file_info(store->directory.data, &fi) == NGX_FILE_ERROR) {
        return ngx_http_idempotency_check_parent(cf, store);
    }

    return ngx_http_idempotency_check_existing(cf, store, &fi);
}


static char *
ngx_http_idempotency_check_existing(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_file_info_t *fi)
{
    if (!ngx_is_dir(fi)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"idempotency_store %V\": \"%V\" is not a "
                           "directory; name one that is, or that can be made",
                           &store->name, &store->directory);
        return NGX_CONF_ERROR;
    }

    if (geteuid() != 0
        && access((char *) store->directory.data, R_OK|W_OK|X_OK) == -1)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "\"idempotency_store %V\": the directory \"%V\" "
                           "must be readable and writable for this user",
                           &store->name, &store->directory);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idempotency_check_parent(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    u_char     *p;
    ngx_str_t   parent;

    parent.len = store->directory.len;
    parent.data = ngx_pstrdup(cf->pool, &store->directory);
    if (parent.data == NULL) {
        return NGX_CONF_ERROR;
    }

    p = parent.data + parent.len;

    while (p > parent.data && *--p != '/') { /* void */ }

    if (p == parent.data) {
        return NGX_CONF_OK;
    }

    *p = '\0';

    if (access((char *) parent.data, W_OK|X_OK) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "\"idempotency_store %V\": the directory \"%V\" "
                           "does not exist and cannot be made in \"%s\"; make "
                           "it and give it to the workers' user",
                           &store->name, &store->directory, parent.data);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* either file: a lock without data is a store that lost its data */

static ngx_uint_t
ngx_http_idempotency_has_data(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    u_char           *name;
    ngx_uint_t        i;
    ngx_file_info_t   fi;

    for (i = 0; i < 2; i++) {
        name = ngx_http_idempotency_file_name(cf, store, i);

        if (name && ngx_file_info(name, &fi) != NGX_FILE_ERROR) {
            return 1;
        }
    }

    return 0;
}


static u_char *
ngx_http_idempotency_file_name(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store, ngx_uint_t i)
{
    u_char  *name;

    static const char  *files[] = { "data.mdb", "lock.mdb" };

    name = ngx_pnalloc(cf->pool, store->directory.len + sizeof("/data.mdb"));
    if (name == NULL) {
        return NULL;
    }

    ngx_sprintf(name, "%V/%s%Z", &store->directory, files[i]);

    return name;
}


/* what this check made as root belongs to whom the directory belongs to */

static void
ngx_http_idempotency_own_files(ngx_conf_t *cf,
    ngx_http_idempotency_store_t *store)
{
    u_char           *name;
    ngx_uint_t        i;
    ngx_file_info_t   directory, file;

    if (geteuid() != 0
        || ngx_file_info(store->directory.data, &directory) == NGX_FILE_ERROR
        || directory.st_uid == 0)
    {
        return;
    }

    for (i = 0; i < 2; i++) {
        name = ngx_http_idempotency_file_name(cf, store, i);

        if (name == NULL
            || ngx_file_info(name, &file) == NGX_FILE_ERROR
            || file.st_uid == directory.st_uid)
        {
            continue;
        }

        if (chown((char *) name, directory.st_uid, directory.st_gid) == -1) {
            ngx_conf_log_error(NGX_LOG_WARN, cf, ngx_errno,
                               "chown(\"%s\") failed", name);
        }
    }
}
