/* What every unit test needs. cmocka.h wants the four standard headers before it, in this order. */
#ifndef IDEM_TEST_UNIT_H
#define IDEM_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <idem/bytes.h>
#include <stdlib.h>

/* A view of a literal, which may hold NUL. For initializers; TEXT is the same as an expression. */
#define LITERAL(text)                             \
    {                                             \
        (const uint8_t *)(text), sizeof(text) - 1 \
    }
#define TEXT(text) idem_bytes_make((text), sizeof(text) - 1)

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/*
 * A copy in a heap block that ends where the bytes end, so that a sanitizer or valgrind sees one
 * byte too many being read. The caller frees it.
 */
static inline uint8_t *unit_copy(struct idem_bytes bytes)
{
    uint8_t *copy = malloc(bytes.size > 0 ? bytes.size : 1);

    assert_non_null(copy);
    if (bytes.size > 0)
        memcpy(copy, bytes.data, bytes.size);
    return copy;
}

static inline void unit_assert_bytes(struct idem_bytes got, struct idem_bytes wanted)
{
    assert_int_equal(got.size, wanted.size);
    if (wanted.size > 0)
        assert_memory_equal(got.data, wanted.data, wanted.size);
}

#endif
