/*
 * Adopting the salt of another store, before its records are put in: in one transaction that looks
 * for a live record under this store's own salt, and puts the other salt in its place only when
 * there is none. What has expired is as good as absent, so its digests may go stale.
 */
#include "store/lmdb/lmdb_store.h"

/* MDB_KEYEXIST when a live record is there. Damaged ones count: nobody knows what they protect. */
static int records_look(MDB_txn *txn, MDB_dbi records, int64_t now_us)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    int code = mdb_cursor_open(txn, records, &cursor);

    if (code)
        return code;
    code = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
    while (!code) {
        struct idem_record record;

        if (idem_record_decode(idem_bytes_make(value.mv_data, value.mv_size), &record) ||
            (record.kind != IDEM_KIND_SELFTEST && !idem_record_expired_at(&record, now_us)))
            code = MDB_KEYEXIST;
        else
            code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? 0 : code;
}

int idem_lmdb_adopt(struct idem_backend *store, const struct idem_salt *salt, int64_t now_us)
{
    MDB_val key = idem_lmdb_value(IDEM_LMDB_SALT_NAME, sizeof IDEM_LMDB_SALT_NAME);
    MDB_val value = idem_lmdb_value(salt->bytes, sizeof salt->bytes);
    MDB_txn *txn = NULL;
    int code = idem_lmdb_txn_begin(store, false, &txn);

    if (code)
        return code;
    code = records_look(txn, store->records, now_us);
    if (!code)
        code = mdb_put(txn, store->meta, &key, &value, 0);
    if (code) {
        mdb_txn_abort(txn);
        return code;
    }
    code = mdb_txn_commit(txn);
    if (!code)
        store->salt = *salt;
    return code;
}
