/*
 * Memory: the one allocator seam. Everything that idem allocates outside nginx comes from here, so
 * that a test can make each allocation fail in turn. Semantics are those of malloc and free.
 */
#ifndef IDEM_BASE_MEMORY_H
#define IDEM_BASE_MEMORY_H

#include <stddef.h>

void *idem_malloc(size_t size);
void *idem_calloc(size_t count, size_t size);
void *idem_realloc(void *memory, size_t size);
void idem_free(void *memory);

/*
 * For tests: the n-th allocation from now on fails, once (1 = the next; 0 = none). Not thread-safe.
 * Returns how many allocations were made since the last call.
 */
size_t idem_memory_fail_at(size_t n);

#endif
