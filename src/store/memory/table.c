#include "store/memory/table.h"

#include <assert.h>

#include "base/memory.h"

#define BUCKETS_MIN 64

static struct idem_slot **bucket_of(const struct idem_table *table, const struct idem_id *id)
{
    uint64_t hash;

    memcpy(&hash, id->bytes, sizeof hash);
    return &table->buckets[hash & (table->buckets_count - 1)];
}

int idem_table_init(struct idem_table *table)
{
    memset(table, 0, sizeof *table);
    table->buckets = idem_calloc(BUCKETS_MIN, sizeof *table->buckets);
    if (!table->buckets)
        return IDEM_ERR_NOMEM;
    table->buckets_count = BUCKETS_MIN;
    return IDEM_OK;
}

void idem_table_deinit(struct idem_table *table)
{
    for (size_t i = 0; i < table->buckets_count; i++) {
        struct idem_slot *next;

        for (struct idem_slot *slot = table->buckets[i]; slot; slot = next) {
            next = slot->next;
            idem_free(slot);
        }
    }
    idem_free(table->buckets);
    memset(table, 0, sizeof *table);
}

struct idem_slot *idem_table_find(const struct idem_table *table, const struct idem_id *id)
{
    struct idem_slot *slot = *bucket_of(table, id);

    while (slot && !idem_id_equal(&slot->id, id))
        slot = slot->next;
    return slot;
}

size_t idem_slot_size(size_t blob_size)
{
    return sizeof(struct idem_slot) + blob_size;
}

static void slot_link(struct idem_table *table, struct idem_slot *slot)
{
    struct idem_slot **bucket = bucket_of(table, &slot->id);

    slot->next = *bucket;
    *bucket = slot;
}

/* Keeps buckets short. Without memory for more of them the table is slower, and right. */
static void table_grow(struct idem_table *table)
{
    size_t count = table->buckets_count;
    struct idem_slot **old = table->buckets;
    struct idem_slot **grown;

    if (table->count < count)
        return;
    grown = idem_calloc(2 * count, sizeof *grown);
    if (!grown)
        return;
    table->buckets = grown;
    table->buckets_count = 2 * count;
    for (size_t i = 0; i < count; i++) {
        struct idem_slot *next;

        for (struct idem_slot *slot = old[i]; slot; slot = next) {
            next = slot->next;
            slot_link(table, slot);
        }
    }
    idem_free(old);
}

void idem_table_remove(struct idem_table *table, struct idem_slot *slot)
{
    struct idem_slot **link = bucket_of(table, &slot->id);

    while (*link != slot) {
        assert(*link);
        link = &(*link)->next;
    }
    *link = slot->next;
    table->count--;
    table->bytes -= idem_slot_size(slot->size);
    idem_free(slot);
}

int idem_table_put(struct idem_table *table, const struct idem_record *record)
{
    struct idem_slot *old = idem_table_find(table, &record->id);
    struct idem_slot *slot;
    size_t size;
    int error = idem_record_size(record, &size);

    if (error)
        return error;
    slot = idem_malloc(idem_slot_size(size));
    if (!slot)
        return IDEM_ERR_NOMEM;
    slot->id = record->id;
    slot->size = size;
    idem_record_encode(record, slot->blob, size);
    if (old)
        idem_table_remove(table, old);
    table_grow(table);
    slot_link(table, slot);
    table->count++;
    table->bytes += idem_slot_size(size);
    return IDEM_OK;
}
