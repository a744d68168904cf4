/*
 * The store's outside: opening, closing, and what the front asks. Opening connects once, without
 * repeating: who is told that the server cannot be reached can decide when to try again.
 */
#include <sodium.h>
#include <stdio.h>

#include "base/memory.h"
#include "store/postgres/postgres_store.h"

static int postgres_check(const struct idem_url *url, char **ret_directory,
                          struct idem_message *message)
{
    struct idem_pg_settings *settings = idem_malloc(sizeof *settings);
    int error;

    if (!settings) {
        idem_message_set(message, "there is no memory left to read a store URL");
        return IDEM_ERR_NOMEM;
    }
    error = idem_pg_settings_read(url, settings, message);
    sodium_memzero(settings, sizeof *settings);
    idem_free(settings);
    if (!error)
        *ret_directory = NULL;
    return error;
}

static void postgres_close(struct idem_backend *store)
{
    if (!store)
        return;
    idem_pg_vacuum_close(&store->vacuum);
    idem_pg_link_close(&store->link);
    idem_pg_params_free(&store->params);
    sodium_memzero(&store->settings, sizeof store->settings); /* a password is in it */
    idem_free(store);
}

/* The columns of idempotency_salt. */
enum salt_field { SALT_BYTES, SALT_MADE };

static void salt_keep(struct idem_backend *store, const struct idem_salt *salt)
{
    crypto_hash_sha256(store->salt_digest, salt->bytes, sizeof salt->bytes);
}

/* The store's salt; the first opening of all makes it. Durable whatever the URL asks for. */
static int salt_read(struct idem_backend *store, int64_t deadline_us, struct idem_salt *ret_salt)
{
    struct idem_salt proposed;
    struct idem_pg_trip trip = {0};
    char sql[IDEM_PG_SQL_SIZE];
    int error;

    randombytes_buf(proposed.bytes, sizeof proposed.bytes);
    snprintf(sql, sizeof sql, "SELECT * FROM \"%s\".idempotency_salt($1)", store->settings.schema);
    idem_pg_params_begin(&store->params, false);
    idem_pg_put_bytes(&store->params, idem_bytes_make(proposed.bytes, sizeof proposed.bytes));
    idem_pg_row_end(&store->params);
    error = idem_pg_ask(&trip, &store->link, sql, &store->params, true, deadline_us);
    if (!error) {
        const PGresult *result = trip.results[trip.preface];
        struct idem_bytes salt = idem_pg_cell_bytes(result, 0, SALT_BYTES);
        bool failed = salt.size != sizeof ret_salt->bytes;

        store->is_new = idem_pg_cell_number(result, 0, SALT_MADE, &failed) != 0;
        if (!failed)
            memcpy(ret_salt->bytes, salt.data, sizeof ret_salt->bytes);
        else
            error = IDEM_ERR_CORRUPT;
    }
    if (!error)
        salt_keep(store, ret_salt);
    if (error == IDEM_ERR_CORRUPT)
        idem_message_set(&store->link.message,
                         "the store's salt in \"%s\".idempotency_meta is "
                         "damaged: bring back a copy of that table",
                         store->settings.schema);
    idem_pg_trip_free(&trip);
    return error;
}

static int server_open(struct idem_backend *store, struct idem_salt *ret_salt)
{
    int64_t deadline_us = idem_pg_now_us() + store->settings.timeout_us;
    int outcome = idem_pg_link_connect(&store->link, true, deadline_us);

    if (outcome)
        return outcome > 0 ? IDEM_ERR_UNAVAILABLE : outcome;
    return salt_read(store, deadline_us, ret_salt);
}

/* The clock is the server's: one that a test turns is not looked at. */
static int postgres_open(const struct idem_url *url, const struct idem_clock *clock,
                         struct idem_backend **ret_backend, struct idem_salt *ret_salt,
                         struct idem_message *message)
{
    struct idem_backend *store = idem_calloc(1, sizeof *store);
    int error;

    (void)clock;
    if (!store) {
        idem_message_set(message, "there is no memory left to open a store");
        return IDEM_ERR_NOMEM;
    }
    idem_pg_link_init(&store->link, &store->settings);
    error = idem_pg_settings_read(url, &store->settings, message);
    if (error) {
        postgres_close(store);
        return error;
    }
    store->space.limit = store->settings.size;
    error = server_open(store, ret_salt);
    if (error) {
        if (message)
            *message = store->link.message;
        postgres_close(store);
        return error;
    }
    *ret_backend = store;
    return IDEM_OK;
}

static bool postgres_is_new(const struct idem_backend *store)
{
    return store->is_new;
}

static int postgres_adopt(struct idem_backend *store, const struct idem_salt *salt,
                          struct idem_message *message)
{
    int64_t deadline_us = idem_pg_now_us() + store->settings.timeout_us;
    struct idem_pg_trip trip = {0};
    char sql[IDEM_PG_SQL_SIZE];
    bool failed = false;
    int error = idem_pg_link_connect(&store->link, true, deadline_us);

    snprintf(sql, sizeof sql, "SELECT \"%s\".idempotency_adopt($1)", store->settings.schema);
    idem_pg_params_begin(&store->params, false);
    idem_pg_put_bytes(&store->params, idem_bytes_make(salt->bytes, sizeof salt->bytes));
    idem_pg_row_end(&store->params);
    if (!error)
        error = idem_pg_ask(&trip, &store->link, sql, &store->params, true, deadline_us);
    if (!error && !idem_pg_cell_number(trip.results[trip.preface], 0, 0, &failed)) {
        idem_message_set(&store->link.message,
                         "the schema \"%s\" holds records of its own, made under another salt",
                         store->settings.schema);
        error = IDEM_ERR_INVALID;
    }
    if (!error)
        salt_keep(store, salt);
    idem_pg_trip_free(&trip);
    if (error && message)
        *message = store->link.message;
    return error > 0 ? IDEM_ERR_UNAVAILABLE : error;
}

static const char *const schemes[] = {"postgresql", "postgres", NULL};

const struct idem_backend_ops idem_backend_postgres = {
    .schemes = schemes,
    .check = postgres_check,
    .open = postgres_open,
    .close = postgres_close,
    .apply = idem_pg_apply,
    .describe = idem_pg_describe,
    .is_new = postgres_is_new,
    .adopt = postgres_adopt,
    .migrate = idem_pg_migrate,
};
