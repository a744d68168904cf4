/*
 * Table: encoded records by id, in memory. Ids are SHA-256, so their own first bytes are the hash.
 */
#ifndef IDEM_STORE_MEMORY_TABLE_H
#define IDEM_STORE_MEMORY_TABLE_H

#include <idem/record.h>

struct idem_slot {
    struct idem_slot *next; /* in the same bucket */
    struct idem_id id;
    size_t size;
    uint8_t blob[];
};

struct idem_table {
    struct idem_slot **buckets;
    size_t buckets_count; /* a power of two */
    size_t count;
    uint64_t bytes; /* of all slots, their heads included */
};

IDEM_MUST_CHECK int idem_table_init(struct idem_table *table);
void idem_table_deinit(struct idem_table *table);

struct idem_slot *idem_table_find(const struct idem_table *table, const struct idem_id *id);

/* What a blob of this size takes. */
size_t idem_slot_size(size_t blob_size);

/*
 * Encodes the record into a new slot and only then lets go of the old one of that id, so that the
 * record may view into it. IDEM_ERR_NOMEM, IDEM_ERR_INVALID: nothing changed.
 */
IDEM_MUST_CHECK int idem_table_put(struct idem_table *table, const struct idem_record *record);

/* Removes the slot, which must be there. */
void idem_table_remove(struct idem_table *table, struct idem_slot *slot);

static inline struct idem_bytes idem_slot_blob(const struct idem_slot *slot)
{
    return idem_bytes_make(slot->blob, slot->size);
}

#endif
