/* Who resolved or forgot what, a page at a time. */
#include "store/audit.h"
#include "store/mariadb/mariadb_store.h"

struct listing {
    struct idem_op *op;
    struct idem_audit_page page;
    bool more;
};

enum {
    ENTRY_AT,
    ENTRY_ID,
    ENTRY_WHAT,
    ENTRY_WAS,
    ENTRY_FENCE,
    ENTRY_WHO,
    ENTRY_WHY,
};

static int entry_add(struct listing *listing, MYSQL_ROW row, const unsigned long *sizes)
{
    uint8_t blob[IDEM_AUDIT_SIZE_MAX];
    struct idem_audit_entry entry = {.what = IDEM_OP_FORGET};
    uint64_t was = 0;

    if (!idem_mariadb_instant_read(row[ENTRY_AT], &entry.at_us) || !row[ENTRY_ID] ||
        sizes[ENTRY_ID] != IDEM_ID_SIZE || !row[ENTRY_WHAT] ||
        !idem_mariadb_number(row[ENTRY_FENCE], &entry.fence) || !row[ENTRY_WHO] ||
        sizes[ENTRY_WHO] > IDEM_WHO_SIZE_MAX || !row[ENTRY_WHY] ||
        sizes[ENTRY_WHY] > IDEM_WHY_SIZE_MAX)
        return IDEM_ERR_CORRUPT;
    if (row[ENTRY_WAS] && (!idem_mariadb_number(row[ENTRY_WAS], &was) || was >= IDEM_STATE_COUNT))
        return IDEM_ERR_CORRUPT;
    memcpy(entry.id.bytes, row[ENTRY_ID], IDEM_ID_SIZE);
    if (strcmp(row[ENTRY_WHAT], "resolve") == 0)
        entry.what = IDEM_OP_RESOLVE;
    entry.was = (enum idem_state)was;
    entry.who = idem_bytes_make(row[ENTRY_WHO], sizes[ENTRY_WHO]);
    entry.why = idem_bytes_make(row[ENTRY_WHY], sizes[ENTRY_WHY]);
    return idem_audit_page_add(&listing->page,
                               idem_bytes_make(blob, idem_audit_encode(&entry, blob)), entry.at_us);
}

static int listing_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct listing *listing = context;
    MYSQL_ROW row;

    (void)affected;
    if (statement == 0) {
        row = mysql_fetch_row(*result);
        return row && idem_mariadb_instant_read(row[0], &listing->op->out.now_us)
                   ? IDEM_OK
                   : IDEM_ERR_CORRUPT;
    }
    while ((row = mysql_fetch_row(*result))) {
        int error;

        if (listing->page.count == listing->op->in.audit.limit) {
            listing->more = true;
            break;
        }
        error = entry_add(listing, row, mysql_fetch_lengths(*result));
        if (error)
            return error;
    }
    return IDEM_OK;
}

int idem_mariadb_audit(struct idem_backend *store, struct idem_op *op)
{
    struct idem_mariadb_text *text = &store->text;
    struct listing listing = {.op = op};
    int error = idem_audit_page_init(&listing.page, op->in.audit.limit);

    if (error)
        return idem_mariadb_fault(&store->link, error, "there is no memory left for a page");
    idem_mariadb_text_clear(text);
    idem_mariadb_text_add(text, "SELECT ");
    idem_mariadb_text_now(text, store);
    idem_mariadb_text_add(text, ";SELECT at_us,id,what,was+0,fence,who,why FROM " IDEM_MARIADB_AUDIT
                                " WHERE at_us>");
    idem_mariadb_text_signed(text, op->in.audit.after_us);
    idem_mariadb_text_add(text, " ORDER BY at_us LIMIT ");
    idem_mariadb_text_unsigned(text, op->in.audit.limit + 1);
    error = idem_mariadb_run(store, listing_take, &listing);
    if (error) {
        idem_audit_page_free(&listing.page);
        return error == IDEM_ERR_CORRUPT
                   ? idem_mariadb_fault(&store->link, error,
                                        "the table " IDEM_MARIADB_AUDIT " holds an entry that is "
                                        "none of idem's")
                   : error;
    }
    idem_audit_page_finish(&listing.page, listing.more, op);
    return IDEM_OK;
}
