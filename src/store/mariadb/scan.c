/*
 * A page of records in id order, in two steps. First the rows without their answers, many at once,
 * until one more than the page may hold matches: so `more` is exact. Then whole rows, few at once
 * while they are large; one that has gone or changed since is left out. Either step may come upon
 * damaged rows; those behind the page are the next one's to tell.
 */
#include "base/memory.h"
#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

#define CHUNK       2000       /* rows in one look without answers */
#define GROUP_MAX   128        /* whole rows read at once */
#define GROUP_BYTES (1u << 20) /* more than this, and the next group is a single row */
#define RECORD_SIZE 512        /* what a record takes besides its answer, about */

struct scanning {
    struct idem_backend *store;
    struct idem_op *op;
    const struct idem_scan *in;
    struct idem_id *ids; /* of those that match: one more than the limit */
    size_t id_count;
    struct idem_id from; /* where the next look begins */
    bool exclusive;
    bool ended; /* there are no more rows */
    struct idem_page page;
    size_t group_bytes;
};

/* The least id above all that begin with the prefix; false when there is none. */
static bool prefix_end(const struct idem_scan *in, struct idem_id *ret_end)
{
    unsigned digits = in->prefix_digits;

    *ret_end = in->prefix;
    memset(ret_end->bytes + (digits + 1) / 2, 0, IDEM_ID_SIZE - (digits + 1) / 2);
    if (digits % 2 != 0)
        ret_end->bytes[digits / 2] &= 0xf0;
    while (digits-- > 0) {
        uint8_t *byte = &ret_end->bytes[digits / 2];

        *byte = (uint8_t)(*byte + (digits % 2 ? 1 : 16));
        if ((digits % 2 ? *byte & 0x0f : *byte & 0xf0) != 0)
            return true;
    }
    return false;
}

/* States as they are stored: a lapsed PROCESSING is an unknown. */
static void states_text(const struct idem_scan *in, struct idem_mariadb_text *text)
{
    uint32_t states = in->states;
    bool any = false;

    if (states == 0)
        return;
    if (states & (1u << IDEM_STATE_UNKNOWN))
        states |= 1u << IDEM_STATE_PROCESSING;
    idem_mariadb_text_add(text, " AND state IN(");
    for (unsigned s = IDEM_STATE_PROCESSING; s < IDEM_STATE_COUNT; s++) {
        if (!(states & (1u << s)))
            continue;
        idem_mariadb_text_add(text, any ? "," : "");
        idem_mariadb_text_unsigned(text, s);
        any = true;
    }
    idem_mariadb_text_add(text, any ? ")" : "NULL)");
}

static void instant_text(struct idem_mariadb_text *text, const char *words, int64_t instant_us)
{
    if (instant_us == 0)
        return;
    idem_mariadb_text_add(text, words);
    idem_mariadb_text_signed(text, instant_us);
}

static void filters_text(const struct scanning *scanning, struct idem_mariadb_text *text)
{
    const struct idem_scan *in = scanning->in;
    struct idem_id end;

    idem_mariadb_text_add(text, scanning->exclusive ? " WHERE id>" : " WHERE id>=");
    idem_mariadb_text_id(text, &scanning->from);
    if (prefix_end(in, &end)) {
        idem_mariadb_text_add(text, " AND id<");
        idem_mariadb_text_id(text, &end);
    }
    idem_mariadb_text_add(text, " AND expires_us>");
    idem_mariadb_text_now(text, scanning->store);
    states_text(in, text);
    if (in->kind) {
        idem_mariadb_text_add(text, " AND kind=");
        idem_mariadb_text_unsigned(text, in->kind);
    }
    if (in->has_scope) {
        idem_mariadb_text_add(text, " AND scope=");
        idem_mariadb_text_bytes(text, in->scope);
    }
    instant_text(text, " AND updated_us>=", in->updated_since_us);
    instant_text(text, " AND updated_us<", in->updated_before_us);
}

static void select_text(struct scanning *scanning, bool answers)
{
    struct idem_mariadb_text *text = &scanning->store->text;

    idem_mariadb_text_clear(text);
    idem_mariadb_text_add(text, "SELECT ");
    idem_mariadb_text_now(text, scanning->store);
    idem_mariadb_text_add(text, ";SELECT ");
    idem_mariadb_row_columns(text, answers);
    idem_mariadb_text_add(text, " FROM " IDEM_MARIADB_KEYS " FORCE INDEX(PRIMARY)");
}

static int now_take(struct scanning *scanning, MYSQL_RES *result)
{
    MYSQL_ROW row = mysql_fetch_row(result);

    return row && idem_mariadb_instant_read(row[0], &scanning->op->out.now_us) ? IDEM_OK
                                                                               : IDEM_ERR_CORRUPT;
}

static int look_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct scanning *scanning = context;
    MYSQL_ROW row;

    (void)affected;
    if (statement == 0)
        return now_take(scanning, *result);
    scanning->ended = mysql_num_rows(*result) < CHUNK;
    while (scanning->id_count <= scanning->in->limit && (row = mysql_fetch_row(*result))) {
        struct idem_record record;

        if (!idem_mariadb_row_id(*result, row, &scanning->from))
            return IDEM_ERR_CORRUPT;
        scanning->exclusive = true;
        if (idem_mariadb_row_read(*result, row, &record)) {
            if (idem_scan_damage(scanning->op, &scanning->from))
                return IDEM_ERR_NOMEM;
        } else if (idem_scan_matches(scanning->in, &record, scanning->op->out.now_us))
            scanning->ids[scanning->id_count++] = record.id;
    }
    return IDEM_OK;
}

/* Half of the time allowed is for looking: a page may be empty though there is more. */
static int ids_find(struct scanning *scanning)
{
    struct idem_backend *store = scanning->store;
    int64_t until_us = store->link.deadline_us - store->options.timeout_us / 2;
    int error = IDEM_OK;

    while (!error && !scanning->ended && scanning->id_count <= scanning->in->limit &&
           idem_mariadb_steady_us() < until_us) {
        select_text(scanning, false);
        filters_text(scanning, &store->text);
        idem_mariadb_text_add(&store->text, " ORDER BY id LIMIT ");
        idem_mariadb_text_unsigned(&store->text, CHUNK);
        error = idem_mariadb_run(store, look_take, scanning);
    }
    return error;
}

static int group_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct scanning *scanning = context;
    struct idem_page *page = &scanning->page;
    int64_t now_us;
    MYSQL_ROW row;

    (void)affected;
    if (statement == 0)
        return now_take(scanning, *result);
    now_us = scanning->op->out.now_us;
    while (!idem_page_is_full(page, scanning->in->limit) && (row = mysql_fetch_row(*result))) {
        struct idem_record record;
        struct idem_id id;
        size_t size;

        if (!idem_mariadb_row_id(*result, row, &id))
            return IDEM_ERR_CORRUPT;
        if (idem_mariadb_row_read(*result, row, &record)) {
            if (idem_scan_damage(scanning->op, &id))
                return IDEM_ERR_NOMEM;
            continue;
        }
        if (!idem_scan_matches(scanning->in, &record, now_us))
            continue;
        if (idem_mariadb_record_keep(&record, now_us, &page->records[page->count]))
            return IDEM_ERR_NOMEM;
        size = idem_answer_size(&record) + RECORD_SIZE;
        page->count++;
        page->bytes += size;
        scanning->group_bytes += size;
    }
    return IDEM_OK;
}

static int group_read(struct scanning *scanning, size_t first, size_t count)
{
    struct idem_mariadb_text *text = &scanning->store->text;

    select_text(scanning, true);
    idem_mariadb_text_add(text, " WHERE id IN(");
    for (size_t i = 0; i < count; i++) {
        idem_mariadb_text_add(text, i ? "," : "");
        idem_mariadb_text_id(text, &scanning->ids[first + i]);
    }
    idem_mariadb_text_add(text, ")ORDER BY id");
    scanning->group_bytes = 0;
    return idem_mariadb_run(scanning->store, group_take, scanning);
}

/* What stands behind the place where the next page goes on is met there again. */
static void damage_cut(struct idem_op *op)
{
    size_t kept = 0;

    for (size_t i = 0; i < op->out.damaged_id_count; i++) {
        const struct idem_id *id = &op->out.damaged_ids[i];

        if (memcmp(id->bytes, op->out.next.bytes, IDEM_ID_SIZE) <= 0)
            op->out.damaged_ids[kept++] = *id;
    }
    op->out.damaged = op->out.damaged_id_count = kept;
}

/* Where the next page goes on, and whether there is one. */
static void page_end(struct scanning *scanning, size_t wanted)
{
    const struct idem_page *page = &scanning->page;
    struct idem_op *op = scanning->op;

    if (idem_page_is_full(page, scanning->in->limit)) {
        op->out.next = page->records[page->count - 1].record.id;
        op->out.more = !scanning->ended ||
                       !idem_id_equal(&op->out.next, &scanning->ids[scanning->id_count - 1]);
    } else if (scanning->id_count > wanted) { /* some of those that were found have gone */
        op->out.next = scanning->ids[wanted - 1];
        op->out.more = true;
    } else {
        op->out.next = scanning->from;
        op->out.more = !scanning->ended;
    }
}

/* The records of the ids found, until the page is full. */
static int page_read(struct scanning *scanning)
{
    uint32_t limit = scanning->in->limit;
    size_t wanted = scanning->id_count < limit ? scanning->id_count : limit;
    size_t group = 1;
    int error = IDEM_OK;

    for (size_t first = 0, count; first < wanted && !error; first += count) {
        if (idem_page_is_full(&scanning->page, limit))
            break;
        count = wanted - first < group ? wanted - first : group;
        error = group_read(scanning, first, count);
        if (scanning->group_bytes > GROUP_BYTES)
            group = 1;
        else if (group < GROUP_MAX)
            group *= 2;
    }
    page_end(scanning, wanted);
    if (scanning->op->out.more)
        damage_cut(scanning->op);
    return error;
}

static int scan_run(struct scanning *scanning)
{
    uint32_t limit = scanning->in->limit;
    int error;

    scanning->ids = idem_calloc(limit + 1, sizeof *scanning->ids);
    scanning->page.records = idem_calloc(limit, sizeof *scanning->page.records);
    if (!scanning->ids || !scanning->page.records)
        return IDEM_ERR_NOMEM;
    scanning->page.capacity = limit;
    error = ids_find(scanning);
    return error ? error : page_read(scanning);
}

int idem_mariadb_scan(struct idem_backend *store, struct idem_op *op)
{
    struct scanning scanning = {.store = store, .op = op, .in = &op->in.scan};
    int error;

    scanning.from = idem_scan_start(scanning.in, &scanning.exclusive);
    error = scan_run(&scanning);
    idem_free(scanning.ids);
    if (error) {
        idem_page_free(&scanning.page);
        if (error == IDEM_ERR_NOMEM)
            return idem_mariadb_fault(&store->link, error, "there is no memory left for a page");
        if (error == IDEM_ERR_CORRUPT)
            return idem_mariadb_fault(&store->link, error,
                                      "the table " IDEM_MARIADB_KEYS " holds an id that is none");
        return error;
    }
    op->out.page = scanning.page.records;
    op->out.count = scanning.page.count;
    op->result = IDEM_RESULT_OK;
    return IDEM_OK;
}
