/*
 * Keep: what the stores that keep blobs have in common.
 */
#ifndef IDEM_STORE_KEEP_H
#define IDEM_STORE_KEEP_H

#include <idem/store.h>

/* The clock's instant, never before 1970. NULL is the host's clock. */
int64_t idem_clock_now_us(const struct idem_clock *clock);

/*
 * Copies a record with the blob that its views point into, for out.found or a page; the copy's
 * state is the one at `now_us`. IDEM_ERR_NOMEM leaves *ret_kept untouched.
 */
IDEM_MUST_CHECK int idem_record_keep(const struct idem_record *record, struct idem_bytes blob,
                                     int64_t now_us, struct idem_kept_record *ret_kept);

/* True when the op is to give a copy of the record that it met. */
static inline bool idem_op_wants_record(const struct idem_op *op)
{
    return op->result == IDEM_RESULT_FOUND ||
           (op->kind == IDEM_OP_CLAIM && op->result == IDEM_RESULT_COMPLETED);
}

/* True when the id begins with the digits that the scan asks for. */
bool idem_scan_takes_id(const struct idem_scan *scan, const struct idem_id *id);

/*
 * Where a scan in id order begins: at the least id of its prefix, or at the cursor, which is then
 * not to be shown itself (*ret_exclusive).
 */
struct idem_id idem_scan_start(const struct idem_scan *scan, bool *ret_exclusive);

/* True when a scan's filters take the record; an expired one is as good as absent. */
bool idem_scan_matches(const struct idem_scan *scan, const struct idem_record *record,
                       int64_t now_us);

/* Notes a record that the scan passes over; `id` is NULL when it has none that is one. */
IDEM_MUST_CHECK int idem_scan_damage(struct idem_op *op, const struct idem_id *id);

/*
 * Turns the answer of a COMPLETED record into a tombstone, and the op's word too: NO_ROOM, or
 * TOO_LARGE for one that the store would not take however empty it was.
 */
void idem_answer_drop(struct idem_op *op, struct idem_record *record, enum idem_reason reason);

/* Bytes of the answer that the record would keep. */
static inline size_t idem_answer_size(const struct idem_record *record)
{
    return record->answer.headers.size + record->answer.body.size;
}

/* A scan's page in the making: grown as records come, within a maximum of bytes. */
struct idem_page {
    struct idem_kept_record *records;
    size_t count, capacity;
    size_t bytes;
};

#define IDEM_PAGE_BYTES_MAX \
    (64u << 20) /* a page ends early past this, but never before one record */

IDEM_MUST_CHECK int idem_page_add(struct idem_page *page, const struct idem_record *record,
                                  struct idem_bytes blob, int64_t now_us);
bool idem_page_is_full(const struct idem_page *page, uint32_t limit);
void idem_page_free(struct idem_page *page);

#endif
