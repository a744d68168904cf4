/*
 * The front of every store:
 *
 *   1. a URL names the backend; one that this build lacks is told apart from one that nobody knows
 *   2. ops are checked before any backend sees them
 *   3. fingerprints and principals are salted on the way in and put back on the way out, so that
 * the caller's op can be applied again and is never salted twice
 *   4. a store that fails its self-test is not opened
 *   5. what a store says of its claims is held against what became of the last ones
 */
#include <idem/store.h>

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "store/front.h"
#include "store/op_check.h"

/* The digests of one op as the caller gave them. */
struct plain {
    struct idem_fingerprint fingerprint;
    struct idem_principal principal;
};

struct idem_store {
    const struct idem_backend_ops *ops;
    struct idem_backend *backend;
    struct idem_salt salt;
    struct plain plains[IDEM_BATCH_MAX]; /* of the batch that is being applied */
    bool claims_refused;                 /* the last ones, for want of room */
};

static const struct idem_backend_ops *const backends[] = {
    &idem_backend_memory,   &idem_backend_lmdb,    &idem_backend_redis,
    &idem_backend_postgres, &idem_backend_mariadb,
};

#define BACKENDS_COUNT (sizeof backends / sizeof backends[0])

static bool backend_has_scheme(const struct idem_backend_ops *ops, const char *scheme)
{
    for (const char *const *known = ops->schemes; *known; known++)
        if (strcmp(*known, scheme) == 0)
            return true;
    return false;
}

static int backend_find(const struct idem_url *url, const struct idem_backend_ops **ret_ops,
                        struct idem_message *message)
{
    for (size_t i = 0; i < BACKENDS_COUNT; i++) {
        if (!backend_has_scheme(backends[i], url->scheme))
            continue;
        if (!backends[i]->open) {
            idem_message_set(message,
                             "this build of idem has no %s store: install its client "
                             "library and build again, or choose another store",
                             url->scheme);
            return IDEM_ERR_UNSUPPORTED;
        }
        *ret_ops = backends[i];
        return IDEM_OK;
    }
    idem_message_set(message,
                     "idem knows no store \"%s:\": write lmdb:DIRECTORY, redis://HOST, "
                     "postgresql://HOST/DATABASE, mariadb://HOST/DATABASE or memory:",
                     url->scheme);
    return IDEM_ERR_UNSUPPORTED;
}

/* Parses the URL into new memory, too large for a stack frame, and finds its backend. */
static int url_read(const char *text, struct idem_url **ret_url,
                    const struct idem_backend_ops **ret_ops, struct idem_message *message)
{
    struct idem_url *url = idem_malloc(sizeof *url);
    int error;

    if (!url) {
        idem_message_set(message, "there is no memory left to open a store");
        return IDEM_ERR_NOMEM;
    }
    error = idem_url_parse(text, url, message);
    if (!error)
        error = backend_find(url, ret_ops, message);
    if (error)
        idem_free(url);
    else
        *ret_url = url;
    return error;
}

int64_t idem_store_url_timeout_us(const char *url)
{
    struct idem_url *parsed = idem_malloc(sizeof *parsed);
    int64_t timeout_us = IDEM_STORE_TIMEOUT_US;

    if (parsed &&
        (idem_url_parse(url, parsed, NULL) || idem_url_timeout_us(parsed, &timeout_us, NULL)))
        timeout_us = IDEM_STORE_TIMEOUT_US;
    idem_free(parsed);
    return timeout_us;
}

int idem_store_migrate(const char *url, int version, struct idem_migration *ret_migration,
                       struct idem_message *message)
{
    const struct idem_backend_ops *ops;
    struct idem_url *parsed;
    int error = url_read(url, &parsed, &ops, message);

    if (error)
        return error;
    if (ops->migrate)
        error = ops->migrate(parsed, version, ret_migration, message);
    else
        *ret_migration = (struct idem_migration){.from = 0};
    if (error == IDEM_ERR_INVALID)
        idem_url_hide(parsed, message);
    idem_free(parsed);
    return error;
}

int idem_store_url_check(const char *url, char **ret_directory, struct idem_message *message)
{
    const struct idem_backend_ops *ops;
    struct idem_url *parsed;
    char *directory = NULL;
    int error = url_read(url, &parsed, &ops, message);

    if (error)
        return error;
    error = ops->check(parsed, &directory, message);
    if (error == IDEM_ERR_INVALID)
        idem_url_hide(parsed, message);
    idem_free(parsed);
    if (error)
        return error;
    if (ret_directory)
        *ret_directory = directory;
    else
        idem_free(directory);
    return IDEM_OK;
}

int idem_store_open_backend(const struct idem_backend_ops *ops, const struct idem_url *url,
                            const struct idem_clock *clock, struct idem_store **ret_store,
                            struct idem_message *message)
{
    struct idem_store *store = idem_calloc(1, sizeof *store);
    int error;

    if (!store) {
        idem_message_set(message, "there is no memory left to open a store");
        return IDEM_ERR_NOMEM;
    }
    store->ops = ops;
    error = ops->open(url, clock, &store->backend, &store->salt, message);
    if (error) {
        idem_free(store);
        return error;
    }
    error = idem_store_selftest(store, message);
    if (error)
        idem_store_close(store);
    else
        *ret_store = store;
    return error;
}

int idem_store_open(const char *url, const struct idem_clock *clock, struct idem_store **ret_store,
                    struct idem_message *message)
{
    const struct idem_backend_ops *ops;
    struct idem_url *parsed;
    int error = url_read(url, &parsed, &ops, message);

    if (error)
        return error;
    error = idem_store_open_backend(ops, parsed, clock, ret_store, message);
    if (error == IDEM_ERR_INVALID)
        idem_url_hide(parsed, message);
    idem_free(parsed);
    return error;
}

void idem_store_close(struct idem_store *store)
{
    if (!store)
        return;
    store->ops->close(store->backend);
    idem_free(store);
}

/* Where an op carries digests; false when it carries none that a store compares. */
static bool op_digests(struct idem_op *op, struct idem_fingerprint **ret_fingerprint,
                       struct idem_principal **ret_principal)
{
    if (op->kind == IDEM_OP_CLAIM) {
        *ret_fingerprint = &op->in.claim.fingerprint;
        *ret_principal = &op->in.claim.principal;
        return true;
    }
    if (op->kind == IDEM_OP_GET && op->in.get.match) {
        *ret_fingerprint = &op->in.get.fingerprint;
        *ret_principal = &op->in.get.principal;
        return true;
    }
    return false;
}

static void op_salt(struct idem_op *op, const struct idem_salt *salt, struct plain *ret_plain)
{
    struct idem_fingerprint *fingerprint;
    struct idem_principal *principal;

    if (!op_digests(op, &fingerprint, &principal))
        return;
    ret_plain->fingerprint = *fingerprint;
    ret_plain->principal = *principal;
    *fingerprint = idem_fingerprint_salt(&ret_plain->fingerprint, salt);
    *principal = idem_principal_salt(&ret_plain->principal, salt);
}

static void op_unsalt(struct idem_op *op, const struct plain *plain)
{
    struct idem_fingerprint *fingerprint;
    struct idem_principal *principal;

    if (!op_digests(op, &fingerprint, &principal))
        return;
    *fingerprint = plain->fingerprint;
    *principal = plain->principal;
}

static int ops_check(struct idem_op *const *ops, size_t count, struct idem_message *message)
{
    if (count > IDEM_BATCH_MAX) {
        idem_message_set(message, "a batch of %zu ops is over the maximum of %d", count,
                         IDEM_BATCH_MAX);
        return IDEM_ERR_INVALID;
    }
    for (size_t i = 0; i < count; i++) {
        int error = idem_op_check(ops[i], message);

        if (error)
            return error;
    }
    return IDEM_OK;
}

/* An owner who repeats a claim needs no room: a refusal in the same batch says more. */
static void claims_see(struct idem_store *store, struct idem_op *const *ops, size_t count)
{
    bool refused = false, taken = false;

    for (size_t i = 0; i < count; i++) {
        refused |= ops[i]->kind == IDEM_OP_CLAIM && ops[i]->result == IDEM_RESULT_FULL;
        taken |= ops[i]->kind == IDEM_OP_CLAIM && ops[i]->result == IDEM_RESULT_ACQUIRED;
    }
    if (refused || taken)
        store->claims_refused = refused;
}

int idem_store_apply(struct idem_store *store, struct idem_op *const *ops, size_t count,
                     struct idem_message *message)
{
    int error = ops_check(ops, count, message);

    if (error || count == 0)
        return error;
    for (size_t i = 0; i < count; i++)
        op_salt(ops[i], &store->salt, &store->plains[i]);
    error = store->ops->apply(store->backend, ops, count, message);
    for (size_t i = 0; i < count; i++) {
        op_unsalt(ops[i], &store->plains[i]);
        if (error)
            idem_op_deinit(ops[i]); /* what a failed batch found must not be trusted, nor leak */
        else
            assert(ops[i]->result != IDEM_RESULT_NONE);
    }
    if (!error)
        claims_see(store, ops, count);
    return error;
}

int idem_store_peek(struct idem_store *store, struct idem_op *get)
{
    struct plain plain;
    int error;

    if (!store->ops->peek)
        return IDEM_ERR_UNSUPPORTED;
    if (get->kind != IDEM_OP_GET || idem_op_check(get, NULL))
        return IDEM_ERR_INVALID;
    op_salt(get, &store->salt, &plain);
    error = store->ops->peek(store->backend, get);
    op_unsalt(get, &plain);
    if (error)
        idem_op_deinit(get);
    return error;
}

/* A store knows its bounds, and not always the disk's: what became of the last claims counts. */
static void claims_amend(const struct idem_store *store, struct idem_store_fact *facts,
                         size_t count)
{
    for (size_t i = 0; i < count && store->claims_refused; i++)
        if (strcmp(facts[i].name, "claims") == 0 && strncmp(facts[i].value, "taken", 5) == 0)
            snprintf(facts[i].value, sizeof facts[i].value,
                     "refused: there was no room for the last new key; make room on the server's "
                     "disk or in its memory, or raise the bound that is set");
}

size_t idem_store_describe(struct idem_store *store, struct idem_store_fact *facts, size_t max)
{
    size_t count = store->ops->describe(store->backend, facts, max);

    claims_amend(store, facts, count);
    if (count == max)
        return count;
    facts[count].name = "new";
    snprintf(facts[count].value, sizeof facts[count].value, "%s",
             idem_store_is_new(store) ? "yes: made by this opening, no earlier key is protected"
                                      : "no: it was there before");
    return count + 1;
}

bool idem_store_is_new(const struct idem_store *store)
{
    return store->ops->is_new(store->backend);
}

struct idem_salt idem_store_salt(const struct idem_store *store)
{
    return store->salt;
}

int idem_store_adopt(struct idem_store *store, const struct idem_salt *salt,
                     struct idem_message *message)
{
    int error;

    if (sodium_memcmp(store->salt.bytes, salt->bytes, sizeof salt->bytes) == 0)
        return IDEM_OK;
    if (!store->ops->adopt) {
        idem_message_set(message, "records cannot be copied into a %s store",
                         store->ops->schemes[0]);
        return IDEM_ERR_UNSUPPORTED;
    }
    error = store->ops->adopt(store->backend, salt, message);
    if (!error)
        store->salt = *salt;
    return error;
}
