/*
 * A look at the rows, with nothing locked: what each op would do to what is there. Those that write
 * nothing have their result by it; the state that it was told from was the row's at that moment.
 */
#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

struct look {
    struct idem_mariadb_batch *batch;
    MYSQL_RES *rows;
    int64_t now_us;
    uint64_t fence_floor;
};

/* An op that is sure to write, or that others on its id may come before, has nothing to look for.
 */
static bool is_wanted(const struct idem_mariadb_item *item)
{
    enum idem_op_kind kind = item->op->kind;

    return !item->done && !item->repeated && kind != IDEM_OP_RESOLVE && kind != IDEM_OP_FORGET &&
           kind != IDEM_OP_PUT;
}

/* False when no op wants a look. */
static bool look_text(const struct idem_mariadb_batch *batch, struct idem_mariadb_text *text)
{
    bool answers = false, any = false;

    for (size_t i = 0; i < batch->count; i++) {
        enum idem_op_kind kind = batch->items[i].op->kind;

        answers |= is_wanted(&batch->items[i]) && (kind == IDEM_OP_CLAIM || kind == IDEM_OP_GET);
    }
    idem_mariadb_text_clear(text);
    idem_mariadb_text_add(text, "SELECT ");
    idem_mariadb_row_columns(text, answers);
    idem_mariadb_text_add(text, " FROM " IDEM_MARIADB_KEYS " FORCE INDEX(PRIMARY)WHERE id IN(");
    for (size_t i = 0; i < batch->count; i++) {
        const struct idem_mariadb_item *item = &batch->items[i];

        if (!is_wanted(item) ||
            (i > 0 && is_wanted(item - 1) && idem_id_equal(&item->op->id, &(item - 1)->op->id)))
            continue;
        if (any)
            idem_mariadb_text_add(text, ",");
        idem_mariadb_text_id(text, &item->op->id);
        any = true;
    }
    idem_mariadb_text_add(text, ");SELECT ");
    idem_mariadb_text_now(text, batch->store);
    idem_mariadb_text_add(text, ",fence_floor");
    idem_mariadb_text_meta(text, batch->store);
    return any;
}

static int look_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct look *look = context;
    MYSQL_ROW row;

    (void)affected;
    if (statement == 0) {
        look->rows = *result;
        *result = NULL;
        return IDEM_OK;
    }
    row = mysql_fetch_row(*result);
    if (!row || !idem_mariadb_instant_read(row[0], &look->now_us) ||
        !idem_mariadb_number(row[1], &look->fence_floor))
        return IDEM_ERR_CORRUPT;
    idem_mariadb_floor_seen(look->batch->store, look->fence_floor, look->now_us);
    return IDEM_OK;
}

/* `record` is NULL for nothing. False in *ret_same: the op would write, and is left as it was. */
static int item_decide(const struct look *look, struct idem_mariadb_item *item,
                       const struct idem_record *record, bool *ret_same)
{
    struct idem_op *op = item->op;
    struct idem_transition transition;

    idem_transition(op, look->now_us, record, look->fence_floor,
                    idem_mariadb_room_for(look->batch, op), &transition);
    *ret_same = transition.change == IDEM_CHANGE_NONE;
    if (!*ret_same) {
        idem_op_deinit(op);
        return IDEM_OK;
    }
    if (record && idem_op_wants_record(op) &&
        idem_mariadb_record_keep(record, look->now_us, &op->out.found))
        return IDEM_ERR_NOMEM;
    item->done = true;
    return IDEM_OK;
}

/* All ops on the id of this item, which is the first of them. */
static int id_decide(const struct look *look, struct idem_mariadb_item *item,
                     const struct idem_record *record)
{
    const struct idem_mariadb_item *end = look->batch->items + look->batch->count;
    const struct idem_id id = item->op->id;
    bool same = true;
    int error = IDEM_OK;

    for (; item < end && idem_id_equal(&item->op->id, &id) && !error; item++) {
        item->seen = true;
        if (same && is_wanted(item))
            error = item_decide(look, item, record, &same);
    }
    return error;
}

static void id_corrupt(const struct look *look, struct idem_mariadb_item *item)
{
    const struct idem_mariadb_item *end = look->batch->items + look->batch->count;
    const struct idem_id id = item->op->id;

    for (; item < end && idem_id_equal(&item->op->id, &id); item++) {
        item->seen = true;
        if (!is_wanted(item))
            continue;
        item->op->result = IDEM_RESULT_CORRUPT;
        item->op->out.now_us = look->now_us;
        item->done = true;
    }
}

static int rows_decide(const struct look *look)
{
    MYSQL_ROW row;
    int error = IDEM_OK;

    while (!error && (row = mysql_fetch_row(look->rows))) {
        struct idem_record record;
        struct idem_id id;
        struct idem_mariadb_item *item;

        if (!idem_mariadb_row_id(look->rows, row, &id))
            continue;
        item = idem_mariadb_item_find(look->batch, &id);
        if (!item)
            continue;
        if (idem_mariadb_row_read(look->rows, row, &record))
            id_corrupt(look, item);
        else
            error = id_decide(look, item, &record);
    }
    return error;
}

static int absent_decide(const struct look *look)
{
    int error = IDEM_OK;

    for (size_t i = 0; i < look->batch->count && !error; i++) {
        struct idem_mariadb_item *item = &look->batch->items[i];

        if (is_wanted(item) && !item->seen)
            error = id_decide(look, item, NULL);
    }
    return error;
}

int idem_mariadb_look(struct idem_mariadb_batch *batch)
{
    struct idem_mariadb_link *link = &batch->store->link;
    struct look look = {.batch = batch};
    int error;

    if (!look_text(batch, &batch->store->text))
        return IDEM_OK;
    error = idem_mariadb_run(batch->store, look_take, &look);
    if (!error)
        error = rows_decide(&look);
    if (!error)
        error = absent_decide(&look);
    mysql_free_result(look.rows);
    if (error == IDEM_ERR_CORRUPT)
        return idem_mariadb_replaced(batch->store);
    if (error == IDEM_ERR_NOMEM)
        return idem_mariadb_fault(link, error, "there is no memory left for what was found");
    return error;
}
