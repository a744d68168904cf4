/*
 * Damaged: the records that a command came upon and could not read, to be told by their ids.
 */
#ifndef IDEM_CLI_DAMAGED_H
#define IDEM_CLI_DAMAGED_H

#include <jansson.h>

#include <idem/op.h>

/* Starts as zeroes; released with idem_damaged_deinit. */
struct idem_damaged {
    struct idem_id *ids; /* in their order, each once */
    size_t count, capacity;
    size_t nameless; /* what stands where an id should is none */
};

void idem_damaged_deinit(struct idem_damaged *damaged);

/* One more; one that is known already counts once. IDEM_ERR_NOMEM. */
IDEM_MUST_CHECK int idem_damaged_add(struct idem_damaged *damaged, const struct idem_id *id);

/* Those that a scan has passed over. IDEM_ERR_NOMEM. */
IDEM_MUST_CHECK int idem_damaged_add_scan(struct idem_damaged *damaged, const struct idem_op *scan);

size_t idem_damaged_number(const struct idem_damaged *damaged);

/*
 * A sentence on the error stream, when there are any: how many they are, `words`, the first ids,
 * and what to type for each. "2 damaged records were left out: 4f2a…, …" for "left out".
 */
void idem_damaged_tell(const struct idem_damaged *damaged, const char *words);

/* All ids as an array of strings; NULL when there is no memory. */
json_t *idem_damaged_json(const struct idem_damaged *damaged);

#endif
