/*
 * A fuzz target is one function that takes any bytes and aborts when a property does not hold.
 * libFuzzer calls it with bytes of its own making, corpus.c with those of files.
 */
#ifndef IDEM_TEST_FUZZ_H
#define IDEM_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stays on whatever NDEBUG says: a target without its checks finds nothing but crashes. */
#define FUZZ_CHECK(holds)                                                              \
    do {                                                                               \
        if (!(holds)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds); \
            abort();                                                                   \
        }                                                                              \
    } while (0)

#endif
