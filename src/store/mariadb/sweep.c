/*
 * Removing what has expired. The index tells which rows to look at; rows that another connection
 * has locked are passed over, so that a sweep waits for nobody. Whether a row has expired is asked
 * of the locked row, and once more inside the delete. The others' hints move to when they will.
 */
#include "store/mariadb/mariadb_store.h"

#define STEPS_MAX 256                     /* rows that one sweep looks at, and at most removes */
#define AGAIN_US  (3600 * IDEM_SECOND_US) /* until an unsettled record is looked at again */

struct sweep {
    struct idem_backend *store;
    struct idem_op *op;
    MYSQL_RES *rows;
    int64_t now_us;
    uint32_t steps;
    uint64_t fence; /* the highest that is removed */
};

/* One row more than may be removed is asked for: whether there is more is then known. */
static void rows_text(const struct sweep *sweep, struct idem_mariadb_text *text)
{
    idem_mariadb_text_clear(text);
    idem_mariadb_text_add(text, "START TRANSACTION;SELECT ");
    idem_mariadb_row_columns(text, false);
    idem_mariadb_text_add(text, " FROM " IDEM_MARIADB_KEYS " FORCE INDEX(sweep)WHERE sweep_us<=");
    idem_mariadb_text_now(text, sweep->store);
    idem_mariadb_text_add(text, " ORDER BY sweep_us LIMIT ");
    idem_mariadb_text_unsigned(text, sweep->steps + 1);
    idem_mariadb_text_add(text, " FOR UPDATE SKIP LOCKED;SELECT ");
    idem_mariadb_text_now(text, sweep->store);
}

static int rows_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct sweep *sweep = context;
    MYSQL_ROW row;

    (void)affected;
    if (statement == 1) {
        sweep->rows = *result;
        *result = NULL;
    } else if (statement == 2) {
        row = mysql_fetch_row(*result);
        if (!row || !idem_mariadb_instant_read(row[0], &sweep->now_us))
            return IDEM_ERR_CORRUPT;
    }
    return IDEM_OK;
}

static void removal_count(struct sweep *sweep, const struct idem_record *record)
{
    sweep->op->out.count++;
    if (idem_record_state_at(record, sweep->now_us) == IDEM_STATE_UNKNOWN)
        sweep->op->out.unknown_removed++;
    if (record->fence > sweep->fence)
        sweep->fence = record->fence;
}

/* Adds the ids of rows that have expired, or of those that have not, to the text. */
static void ids_add(struct sweep *sweep, bool expired, struct idem_mariadb_text *text)
{
    MYSQL_ROW row;
    bool any = false;

    mysql_data_seek(sweep->rows, 0);
    for (uint32_t i = 0; i < sweep->steps && (row = mysql_fetch_row(sweep->rows)); i++) {
        struct idem_record record;
        struct idem_id id;
        bool damaged;

        if (!idem_mariadb_row_id(sweep->rows, row, &id))
            continue;
        damaged = idem_mariadb_row_read(sweep->rows, row, &record) != IDEM_OK;
        /* A damaged one is left for a person to look at. */
        if ((!damaged && idem_record_expired_at(&record, sweep->now_us)) != expired)
            continue;
        if (expired)
            removal_count(sweep, &record);
        idem_mariadb_text_add(text, any ? "," : "");
        idem_mariadb_text_id(text, &id);
        any = true;
    }
    if (!any)
        idem_mariadb_text_add(text, "NULL");
}

/*
 * Of a record without an outcome it is not known when its answer will expire, so it is looked at
 * again before long. A hint that cannot move, because the row is damaged, moves far away: it is not
 * looked at again.
 */
static void changes_text(struct sweep *sweep, struct idem_mariadb_text *text)
{
    idem_mariadb_text_clear(text);
    if (mysql_num_rows(sweep->rows) == 0) {
        idem_mariadb_text_add(text, "COMMIT");
        return;
    }
    idem_mariadb_text_add(text, IDEM_MARIADB_DELETE "id IN(");
    ids_add(sweep, true, text);
    idem_mariadb_text_add(text, ")AND expires_us<=");
    idem_mariadb_text_signed(text, sweep->now_us);
    idem_mariadb_text_add(text, ";UPDATE " IDEM_MARIADB_KEYS
                                " FORCE INDEX(PRIMARY)SET sweep_us=IF(expires_us>");
    idem_mariadb_text_signed(text, sweep->now_us);
    idem_mariadb_text_add(text, ",IF(state IN(");
    idem_mariadb_text_unsigned(text, IDEM_STATE_PROCESSING);
    idem_mariadb_text_add(text, ",");
    idem_mariadb_text_unsigned(text, IDEM_STATE_UNKNOWN);
    idem_mariadb_text_add(text, "),LEAST(expires_us,");
    idem_mariadb_text_signed(text, sweep->now_us + AGAIN_US);
    idem_mariadb_text_add(text, "),expires_us),");
    idem_mariadb_text_signed(text, IDEM_NEVER_US);
    idem_mariadb_text_add(text, ")WHERE id IN(");
    ids_add(sweep, false, text);
    idem_mariadb_text_add(text, ")");
    if (sweep->fence > 0) {
        idem_mariadb_text_add(text, ";UPDATE " IDEM_MARIADB_META
                                    " SET fence_floor=GREATEST(fence_floor,");
        idem_mariadb_text_unsigned(text, sweep->fence);
        idem_mariadb_text_add(text, ")WHERE one=1");
    }
    idem_mariadb_text_add(text, ";COMMIT");
}

int idem_mariadb_sweep(struct idem_backend *store, struct idem_op *op)
{
    struct sweep sweep = {.store = store, .op = op};
    int error;

    sweep.steps = op->in.sweep.limit < STEPS_MAX ? op->in.sweep.limit : STEPS_MAX;
    rows_text(&sweep, &store->text);
    error = idem_mariadb_run(store, rows_take, &sweep);
    if (error) {
        mysql_free_result(sweep.rows);
        return error;
    }
    changes_text(&sweep, &store->text);
    op->out.now_us = sweep.now_us;
    op->out.more = mysql_num_rows(sweep.rows) > sweep.steps;
    mysql_free_result(sweep.rows);
    error = idem_mariadb_run(store, NULL, NULL);
    if (error == IDEM_MARIADB_FULL) { /* a sweep that finds no room for its log: later */
        op->out.count = op->out.unknown_removed = 0;
        op->out.more = false;
        error = IDEM_OK;
    }
    if (!error)
        op->result = IDEM_RESULT_OK;
    return error;
}
