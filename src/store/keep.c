#include "store/keep.h"

#include <time.h>

#include "base/memory.h"

int64_t idem_clock_now_us(const struct idem_clock *clock)
{
    int64_t now_us;

    if (clock) {
        now_us = clock->now_us(clock->context);
    } else {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        now_us = (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000;
    }
    return now_us > 0 ? now_us : 0;
}

/* Moves a view from the blob to its copy. */
static void view_rebase(struct idem_bytes *view, struct idem_bytes blob, const uint8_t *copy)
{
    if (view->size > 0)
        view->data = copy + (view->data - blob.data);
}

int idem_record_keep(const struct idem_record *record, struct idem_bytes blob, int64_t now_us,
                     struct idem_kept_record *ret_kept)
{
    uint8_t *copy = idem_malloc(blob.size);
    struct idem_record *kept = &ret_kept->record;

    if (!copy)
        return IDEM_ERR_NOMEM;
    memcpy(copy, blob.data, blob.size);
    *kept = *record;
    view_rebase(&kept->scope, blob, copy);
    view_rebase(&kept->key, blob, copy);
    view_rebase(&kept->method, blob, copy);
    view_rebase(&kept->path, blob, copy);
    view_rebase(&kept->answer.headers, blob, copy);
    view_rebase(&kept->answer.body, blob, copy);
    view_rebase(&kept->resolution.who, blob, copy);
    view_rebase(&kept->resolution.why, blob, copy);
    kept->state = idem_record_state_at(record, now_us);
    ret_kept->memory = copy;
    return IDEM_OK;
}

bool idem_scan_takes_id(const struct idem_scan *scan, const struct idem_id *id)
{
    size_t whole = scan->prefix_digits / 2;

    return memcmp(id->bytes, scan->prefix.bytes, whole) == 0 &&
           (scan->prefix_digits % 2 == 0 ||
            id->bytes[whole] >> 4 == scan->prefix.bytes[whole] >> 4);
}

struct idem_id idem_scan_start(const struct idem_scan *scan, bool *ret_exclusive)
{
    size_t whole = scan->prefix_digits / 2;
    struct idem_id first = {{0}};

    memcpy(first.bytes, scan->prefix.bytes, whole);
    if (scan->prefix_digits % 2 != 0)
        first.bytes[whole] = scan->prefix.bytes[whole] & 0xf0;
    *ret_exclusive = scan->has_cursor && memcmp(scan->cursor.bytes, first.bytes, IDEM_ID_SIZE) >= 0;
    return *ret_exclusive ? scan->cursor : first;
}

bool idem_scan_matches(const struct idem_scan *scan, const struct idem_record *record,
                       int64_t now_us)
{
    if (idem_record_expired_at(record, now_us))
        return false;
    if (scan->states && !(scan->states & (1u << idem_record_state_at(record, now_us))))
        return false;
    if (scan->kind && scan->kind != record->kind)
        return false;
    if (!idem_scan_takes_id(scan, &record->id))
        return false;
    if (scan->has_scope && !idem_bytes_equal(scan->scope, record->scope))
        return false;
    if (scan->updated_since_us && record->updated_us < scan->updated_since_us)
        return false;
    return !scan->updated_before_us || record->updated_us < scan->updated_before_us;
}

int idem_scan_damage(struct idem_op *op, const struct idem_id *id)
{
    size_t count = op->out.damaged_id_count;

    /* The array has room for a power of two. */
    if (id && (count & (count - 1)) == 0) {
        struct idem_id *grown =
            idem_realloc(op->out.damaged_ids, (count > 0 ? 2 * count : 1) * sizeof *grown);

        if (!grown)
            return IDEM_ERR_NOMEM;
        op->out.damaged_ids = grown;
    }
    if (id)
        op->out.damaged_ids[op->out.damaged_id_count++] = *id;
    op->out.damaged++;
    return IDEM_OK;
}

void idem_answer_drop(struct idem_op *op, struct idem_record *record, enum idem_reason reason)
{
    record->answer.tombstone = reason;
    record->answer.headers = idem_bytes_make(NULL, 0);
    record->answer.body = idem_bytes_make(NULL, 0);
    op->out.tombstoned = true;
    op->out.oversized = reason == IDEM_REASON_TOO_LARGE;
}

int idem_page_add(struct idem_page *page, const struct idem_record *record, struct idem_bytes blob,
                  int64_t now_us)
{
    int error;

    if (page->count == page->capacity) {
        size_t capacity = page->capacity ? 2 * page->capacity : 16;
        struct idem_kept_record *grown =
            idem_realloc(page->records, capacity * sizeof *page->records);

        if (!grown)
            return IDEM_ERR_NOMEM;
        page->records = grown;
        page->capacity = capacity;
    }
    error = idem_record_keep(record, blob, now_us, &page->records[page->count]);
    if (error)
        return error;
    page->count++;
    page->bytes += blob.size;
    return IDEM_OK;
}

bool idem_page_is_full(const struct idem_page *page, uint32_t limit)
{
    return page->count >= limit || page->bytes >= IDEM_PAGE_BYTES_MAX;
}

void idem_page_free(struct idem_page *page)
{
    for (size_t i = 0; i < page->count; i++)
        idem_free(page->records[i].memory);
    idem_free(page->records);
    memset(page, 0, sizeof *page);
}
