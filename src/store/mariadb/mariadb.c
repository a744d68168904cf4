/*
 * The MariaDB and MySQL store. What the front calls; mariadb_store.h says where the rest is.
 */
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/mariadb/mariadb_store.h"

#define PAUSE_US_MIN (IDEM_SECOND_US / 100)
#define PAUSE_US_MAX (IDEM_SECOND_US / 4)

static int mariadb_check(const struct idem_url *url, char **ret_directory,
                         struct idem_message *message)
{
    struct idem_mariadb_options options;
    int error = idem_mariadb_options_read(url, &options, message);

    if (!error)
        *ret_directory = NULL;
    return error;
}

void idem_mariadb_budget(struct idem_backend *store)
{
    store->link.deadline_us = idem_mariadb_steady_us() + store->options.timeout_us;
}

int idem_mariadb_run(struct idem_backend *store, idem_mariadb_take *take, void *context)
{
    return idem_mariadb_query(&store->link, &store->text, take, context);
}

/* What the caller is told; an outcome that nothing helped against is an error by now. */
static int failure_tell(const struct idem_backend *store, int error, struct idem_message *message)
{
    if (!error)
        return IDEM_OK;
    idem_message_set(message, "%s", store->link.fault.text);
    if (error == IDEM_MARIADB_FULL)
        return IDEM_ERR_FULL;
    return error > 0 ? IDEM_ERR_UNAVAILABLE : error;
}

/*
 * Does it, and again when the connection was lost, with growing pauses, as long as the budget
 * lasts. Whatever was done before is done again: each op knows its own traces.
 */
static int with_connection(struct idem_backend *store,
                           int (*act)(struct idem_backend *store, void *context), void *context)
{
    int64_t pause_us = PAUSE_US_MIN;
    int error;

    for (;;) {
        error = idem_mariadb_session_need(store);
        if (!error)
            error = act(store, context);
        if (error != IDEM_MARIADB_LOST || idem_mariadb_steady_us() >= store->link.deadline_us)
            return error;
        idem_mariadb_pause(&store->link, pause_us);
        pause_us = pause_us < PAUSE_US_MAX ? 2 * pause_us : PAUSE_US_MAX;
    }
}

static int affected_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    uint64_t *ret_affected = context;

    (void)statement;
    (void)result;
    *ret_affected = affected;
    return IDEM_OK;
}

/* Of processes that open a new store at once one gives it its salt, and all read it then. */
static int salt_need(struct idem_backend *store)
{
    struct idem_salt fresh;
    uint64_t affected = 0;
    int error;

    if (store->facts.has_salt) {
        store->salt = store->facts.salt;
        return IDEM_OK;
    }
    randombytes_buf(fresh.bytes, sizeof fresh.bytes);
    idem_mariadb_text_clear(&store->text);
    idem_mariadb_text_add(&store->text, "UPDATE " IDEM_MARIADB_META " SET salt=");
    idem_mariadb_text_bytes(&store->text, idem_bytes_make(fresh.bytes, sizeof fresh.bytes));
    idem_mariadb_text_add(&store->text, " WHERE one=1 AND salt IS NULL");
    error = idem_mariadb_run(store, affected_take, &affected);
    if (error)
        return error;
    if (affected == 1) {
        store->salt = fresh;
        store->made = true;
        return IDEM_OK;
    }
    /* Somebody was faster: look again. */
    idem_mariadb_disconnect(&store->link);
    return IDEM_MARIADB_AGAIN;
}

/* One try: whoever opens a store has ideas of its own about when to try again. */
static int store_begin(struct idem_backend *store)
{
    int error;

    idem_mariadb_budget(store);
    do {
        error = idem_mariadb_session_need(store);
        if (!error)
            error = salt_need(store);
    } while (error == IDEM_MARIADB_AGAIN && idem_mariadb_steady_us() < store->link.deadline_us);
    return error;
}

static void mariadb_close(struct idem_backend *store)
{
    /* In a child after fork the connection is its parent's: the server must not hear of its end. */
    if (store->pid == getpid())
        idem_mariadb_disconnect(&store->link);
    idem_mariadb_text_deinit(&store->text);
    sodium_memzero(store->options.server.password, sizeof store->options.server.password);
    idem_free(store);
}

static int mariadb_open(const struct idem_url *url, const struct idem_clock *clock,
                        struct idem_backend **ret_backend, struct idem_salt *ret_salt,
                        struct idem_message *message)
{
    struct idem_backend *store = idem_calloc(1, sizeof *store);
    int error;

    if (!store) {
        idem_message_set(message, "there is no memory left to open a store");
        return IDEM_ERR_NOMEM;
    }
    store->pid = getpid();
    store->clock = clock;
    error = idem_mariadb_options_read(url, &store->options, message);
    if (!error)
        error = failure_tell(store, store_begin(store), message);
    if (error) {
        mariadb_close(store);
        return error;
    }
    *ret_salt = store->salt;
    *ret_backend = store;
    return IDEM_OK;
}

static int forked(const struct idem_backend *store, struct idem_message *message)
{
    if (store->pid == getpid())
        return IDEM_OK;
    idem_message_set(message, "the MariaDB store was opened before a fork and cannot be used after "
                              "it: open it in the child");
    return IDEM_ERR_INVALID;
}

static int batch_act(struct idem_backend *store, void *context)
{
    (void)store;
    return idem_mariadb_batch_run(context);
}

static int mariadb_apply(struct idem_backend *store, struct idem_op *const *ops, size_t count,
                         struct idem_message *message)
{
    struct idem_mariadb_item items[IDEM_BATCH_MAX];
    struct idem_mariadb_batch batch;
    int error = forked(store, message);

    if (error)
        return error;
    idem_mariadb_batch_begin(&batch, store, ops, count, items);
    idem_mariadb_budget(store);
    return failure_tell(store, with_connection(store, batch_act, &batch), message);
}

static bool mariadb_is_new(const struct idem_backend *store)
{
    return store->made;
}

static int adopt_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    bool *ret_holds = context;

    (void)statement;
    (void)affected;
    if (*result && mysql_num_rows(*result) > 0 && mysql_num_fields(*result) == 2)
        *ret_holds = true;
    return IDEM_OK;
}

/* With the salt's row locked: nobody can adopt another one meanwhile. */
static int adopt_act(struct idem_backend *store, void *context)
{
    const struct idem_salt *salt = context;
    struct idem_mariadb_text *text = &store->text;
    bool holds = false;
    int error;

    idem_mariadb_text_clear(text);
    idem_mariadb_text_add(text, "START TRANSACTION;SELECT one FROM " IDEM_MARIADB_META
                                " WHERE one=1 FOR UPDATE;SELECT id,kind FROM " IDEM_MARIADB_KEYS
                                " WHERE (kind IS NULL OR kind<>");
    idem_mariadb_text_unsigned(text, IDEM_KIND_SELFTEST);
    idem_mariadb_text_add(text, ")AND expires_us>");
    idem_mariadb_text_now(text, store);
    idem_mariadb_text_add(text, " LIMIT 1");
    error = idem_mariadb_run(store, adopt_take, &holds);
    if (error)
        return error;
    idem_mariadb_text_clear(text);
    if (holds) {
        idem_mariadb_text_add(text, "ROLLBACK");
    } else {
        idem_mariadb_text_add(text, "UPDATE " IDEM_MARIADB_META " SET salt=");
        idem_mariadb_text_bytes(text, idem_bytes_make(salt->bytes, sizeof salt->bytes));
        idem_mariadb_text_add(text, " WHERE one=1;COMMIT");
    }
    error = idem_mariadb_run(store, NULL, NULL);
    if (!error && holds)
        error = idem_mariadb_fault(&store->link, IDEM_ERR_INVALID,
                                   "the MariaDB store holds records under a salt of its own: copy "
                                   "into an empty store");
    return error;
}

static int mariadb_adopt(struct idem_backend *store, const struct idem_salt *salt,
                         struct idem_message *message)
{
    struct idem_salt wanted = *salt;
    int error = forked(store, message);

    if (error)
        return error;
    idem_mariadb_budget(store);
    error = failure_tell(store, with_connection(store, adopt_act, &wanted), message);
    if (!error)
        store->salt = wanted;
    return error;
}

static const char *const schemes[] = {"mariadb", "mysql", NULL};

const struct idem_backend_ops idem_backend_mariadb = {
    .schemes = schemes,
    .check = mariadb_check,
    .open = mariadb_open,
    .close = mariadb_close,
    .apply = mariadb_apply,
    .describe = idem_mariadb_describe,
    .is_new = mariadb_is_new,
    .adopt = mariadb_adopt,
    .migrate = idem_mariadb_migrate,
};
