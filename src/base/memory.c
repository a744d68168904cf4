#include "base/memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/*
 * Counted with atomics, so that threads under test do not race on the counters; which of two
 * concurrent allocations is the n-th is chance, hence "not thread-safe" in the header.
 */
static atomic_size_t made;
static atomic_size_t fails_at;

/* Counts one allocation and tells whether it is the one to fail. */
static bool allocation_fails(void)
{
    size_t number = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
    size_t chosen = atomic_load_explicit(&fails_at, memory_order_relaxed);

    return chosen != 0 && number == chosen;
}

void *idem_malloc(size_t size)
{
    return allocation_fails() ? NULL : malloc(size);
}

void *idem_calloc(size_t count, size_t size)
{
    return allocation_fails() ? NULL : calloc(count, size);
}

void *idem_realloc(void *memory, size_t size)
{
    return allocation_fails() ? NULL : realloc(memory, size);
}

void idem_free(void *memory)
{
    free(memory);
}

size_t idem_memory_fail_at(size_t n)
{
    atomic_store_explicit(&fails_at, n, memory_order_relaxed);
    return atomic_exchange_explicit(&made, 0, memory_order_relaxed);
}
