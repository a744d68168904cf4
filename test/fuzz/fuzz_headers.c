/*
 * Header blocks: whatever lines are read, written again they are the bytes that were read, and what
 * is left over is what was not.
 */
#include "fuzz.h"

#include <idem/record.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct idem_bytes rest = idem_bytes_make(data, size), name, value;
    uint8_t *again = malloc(size > 0 ? size : 1);
    size_t written = 0;

    FUZZ_CHECK(again != NULL);
    while (idem_headers_next(&rest, &name, &value)) {
        size_t grown = idem_headers_append(again, written, size, name, value);

        FUZZ_CHECK(grown > written);
        FUZZ_CHECK(grown == size - rest.size);
        written = grown;
    }
    FUZZ_CHECK(written + rest.size == size);
    FUZZ_CHECK(written == 0 || memcmp(again, data, written) == 0);
    free(again);
    return 0;
}
