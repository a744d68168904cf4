/*
 * Backend: what a store implements. The front (store.c) parses the URL, salts digests, runs the
 * self-test, and calls these; nobody else does.
 */
#ifndef IDEM_STORE_BACKEND_H
#define IDEM_STORE_BACKEND_H

#include <idem/store.h>

#include "store/url.h"

struct idem_backend; /* a backend's own state */

struct idem_backend_ops {
    const char *const *schemes; /* {"lmdb", NULL}: the first is what people are told */

    /* Checks the URL's options; see idem_store_url_check(). */
    int (*check)(const struct idem_url *url, char **ret_directory, struct idem_message *message);

    /* Opens it and reads, or makes and keeps, the salt. */
    int (*open)(const struct idem_url *url, const struct idem_clock *clock,
                struct idem_backend **ret_backend, struct idem_salt *ret_salt,
                struct idem_message *message);
    void (*close)(struct idem_backend *backend);

    /* As idem_store_apply; digests are salted already. */
    int (*apply)(struct idem_backend *backend, struct idem_op *const *ops, size_t count,
                 struct idem_message *message);

    /* As idem_store_peek; NULL where there is no such path. */
    int (*peek)(struct idem_backend *backend, struct idem_op *get);

    size_t (*describe)(struct idem_backend *backend, struct idem_store_fact *facts, size_t max);

    /* As idem_store_is_new. */
    bool (*is_new)(const struct idem_backend *backend);

    /* As idem_store_adopt; NULL where it cannot be done. */
    int (*adopt)(struct idem_backend *backend, const struct idem_salt *salt,
                 struct idem_message *message);

    /* As idem_store_migrate; NULL where there is no schema. */
    int (*migrate)(const struct idem_url *url, int version, struct idem_migration *ret_migration,
                   struct idem_message *message);
};

/* A backend that this build does not have defines the same symbol with NULL functions (none.c). */
extern const struct idem_backend_ops idem_backend_memory;
extern const struct idem_backend_ops idem_backend_lmdb;
extern const struct idem_backend_ops idem_backend_redis;
extern const struct idem_backend_ops idem_backend_postgres;
extern const struct idem_backend_ops idem_backend_mariadb;

#endif
