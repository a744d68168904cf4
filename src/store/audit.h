/*
 * Audit: one entry for each record that a person resolved or forgot, in the binary form that stores
 * of blobs keep. Its instant is the key and not part of it.
 */
#ifndef IDEM_STORE_AUDIT_H
#define IDEM_STORE_AUDIT_H

#include <idem/op.h>

#define IDEM_AUDIT_ENTRIES_MAX 100000 /* the oldest go first */
#define IDEM_AUDIT_SIZE_MAX    (IDEM_ID_SIZE + 2 + 8 + 4 + IDEM_WHO_SIZE_MAX + IDEM_WHY_SIZE_MAX)

/*
 * The entry that a resolve or forget which was just applied leaves, views into the op. `was` is the
 * record that it met, NULL when that was damaged.
 */
struct idem_audit_entry idem_audit_entry_make(const struct idem_op *op,
                                              const struct idem_record *was, int64_t at_us);

/* Writes the entry and returns its size, at most IDEM_AUDIT_SIZE_MAX. */
size_t idem_audit_encode(const struct idem_audit_entry *entry, uint8_t *ret_blob);

/* Views into the blob. IDEM_ERR_CORRUPT when it is no whole entry. */
IDEM_MUST_CHECK int idem_audit_decode(struct idem_bytes blob, int64_t at_us,
                                      struct idem_audit_entry *ret_entry);

/* A page of entries in the making: give it blobs in order, then move it into the op, or free it. */
struct idem_audit_page {
    struct idem_audit_entry *entries;
    uint8_t *memory;
    size_t count, count_max;
};

IDEM_MUST_CHECK int idem_audit_page_init(struct idem_audit_page *page, uint32_t limit);
IDEM_MUST_CHECK int idem_audit_page_add(struct idem_audit_page *page, struct idem_bytes blob,
                                        int64_t at_us);
void idem_audit_page_finish(struct idem_audit_page *page, bool more, struct idem_op *op);
void idem_audit_page_free(struct idem_audit_page *page);

#endif
