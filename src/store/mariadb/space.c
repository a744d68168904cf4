/*
 * How large the tables are, asked now and then, and only when the URL sets a bound. The figure is
 * InnoDB's own: it follows what was written after a while, and what was removed once that was
 * purged. So the bound is soft; what matters is that claims end before the disk does.
 */
#include "store/mariadb/mariadb_store.h"

#define CHECK_US IDEM_SECOND_US

static int space_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    uint64_t *ret_used = context;
    MYSQL_ROW row = *result ? mysql_fetch_row(*result) : NULL;

    (void)statement;
    (void)affected;
    return row && idem_mariadb_number(row[0], ret_used) ? IDEM_OK : IDEM_ERR_CORRUPT;
}

int idem_mariadb_space_look(struct idem_backend *store)
{
    struct idem_mariadb_space *space = &store->space;
    int64_t now_us = idem_mariadb_steady_us();
    uint64_t used;
    int error;

    if (store->options.size == 0 || (space->checked_us && now_us < space->checked_us + CHECK_US))
        return IDEM_OK;
    idem_mariadb_text_clear(&store->text);
    idem_mariadb_text_add(&store->text,
                          "SELECT CAST(COALESCE(SUM(data_length+index_length),0)AS UNSIGNED)FROM "
                          "information_schema.tables WHERE table_schema=DATABASE()AND table_name "
                          "IN('" IDEM_MARIADB_KEYS "','" IDEM_MARIADB_AUDIT "')");
    error = idem_mariadb_run(store, space_take, &used);
    if (error == IDEM_ERR_CORRUPT)
        return idem_mariadb_fault(&store->link, error,
                                  "the MariaDB server did not tell how large the tables are");
    if (error)
        return error;
    space->used = used;
    space->checked_us = now_us;
    return IDEM_OK;
}

bool idem_mariadb_space_has_room(const struct idem_backend *store)
{
    return store->options.size == 0 || store->space.used < store->options.size;
}
