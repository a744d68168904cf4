#include "store/audit.h"

#include <assert.h>

#include "base/cursor.h"
#include "base/memory.h"

struct idem_audit_entry idem_audit_entry_make(const struct idem_op *op,
                                              const struct idem_record *was, int64_t at_us)
{
    bool resolve = op->kind == IDEM_OP_RESOLVE;
    struct idem_audit_entry entry = {
        .at_us = at_us,
        .id = op->id,
        .what = op->kind,
        .who = resolve ? op->in.resolve.who : op->in.forget.who,
        .why = resolve ? op->in.resolve.why : op->in.forget.why,
    };

    if (was) {
        entry.was = idem_record_state_at(was, op->out.now_us);
        entry.fence = was->fence;
    }
    return entry;
}

size_t idem_audit_encode(const struct idem_audit_entry *entry, uint8_t *ret_blob)
{
    struct idem_writer writer;

    idem_writer_init(&writer, ret_blob, IDEM_AUDIT_SIZE_MAX);
    idem_write_bytes(&writer, idem_bytes_make(entry->id.bytes, IDEM_ID_SIZE));
    idem_write_u8(&writer, (uint8_t)entry->what);
    idem_write_u8(&writer, (uint8_t)entry->was);
    idem_write_u64(&writer, entry->fence);
    idem_write_u16(&writer, (uint16_t)entry->who.size);
    idem_write_u16(&writer, (uint16_t)entry->why.size);
    idem_write_bytes(&writer, entry->who);
    idem_write_bytes(&writer, entry->why);
    assert(!writer.failed);
    return IDEM_AUDIT_SIZE_MAX - writer.left;
}

int idem_audit_decode(struct idem_bytes blob, int64_t at_us, struct idem_audit_entry *ret_entry)
{
    struct idem_audit_entry entry = {.at_us = at_us};
    struct idem_reader reader;
    struct idem_bytes id;
    size_t who_size, why_size;

    idem_reader_init(&reader, blob);
    id = idem_read_bytes(&reader, IDEM_ID_SIZE);
    entry.what = (enum idem_op_kind)idem_read_u8(&reader);
    entry.was = (enum idem_state)idem_read_u8(&reader);
    entry.fence = idem_read_u64(&reader);
    who_size = idem_read_u16(&reader);
    why_size = idem_read_u16(&reader);
    entry.who = idem_read_bytes(&reader, who_size);
    entry.why = idem_read_bytes(&reader, why_size);
    if (reader.failed || reader.left > 0 || entry.was >= IDEM_STATE_COUNT ||
        (entry.what != IDEM_OP_RESOLVE && entry.what != IDEM_OP_FORGET))
        return IDEM_ERR_CORRUPT;
    memcpy(entry.id.bytes, id.data, IDEM_ID_SIZE);
    *ret_entry = entry;
    return IDEM_OK;
}

int idem_audit_page_init(struct idem_audit_page *page, uint32_t limit)
{
    memset(page, 0, sizeof *page);
    page->count_max = limit;
    page->entries = idem_calloc(limit, sizeof *page->entries);
    page->memory = idem_malloc((size_t)limit * IDEM_AUDIT_SIZE_MAX);
    if (page->entries && page->memory)
        return IDEM_OK;
    idem_audit_page_free(page);
    return IDEM_ERR_NOMEM;
}

int idem_audit_page_add(struct idem_audit_page *page, struct idem_bytes blob, int64_t at_us)
{
    uint8_t *copy = page->memory + page->count * IDEM_AUDIT_SIZE_MAX;
    int error;

    assert(page->count < page->count_max);
    if (blob.size > IDEM_AUDIT_SIZE_MAX)
        return IDEM_ERR_CORRUPT;
    memcpy(copy, blob.data, blob.size);
    error = idem_audit_decode(idem_bytes_make(copy, blob.size), at_us, &page->entries[page->count]);
    if (!error)
        page->count++;
    return error;
}

void idem_audit_page_finish(struct idem_audit_page *page, bool more, struct idem_op *op)
{
    op->out.entries = page->entries;
    op->out.memory = page->memory;
    op->out.count = page->count;
    op->out.more = more;
    op->result = IDEM_RESULT_OK;
    memset(page, 0, sizeof *page);
}

void idem_audit_page_free(struct idem_audit_page *page)
{
    idem_free(page->entries);
    idem_free(page->memory);
    memset(page, 0, sizeof *page);
}
