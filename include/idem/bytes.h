/*
 * Bytes: a borrowed view of memory, the only way that text and binary data cross the API.
 *
 * A view owns nothing. It is valid as long as the memory behind it; every function that takes one
 * borrows it for the call and copies what it keeps, unless its declaration says otherwise.
 * Views are bytes, not C strings: they may hold NUL and have no terminator.
 */
#ifndef IDEM_BYTES_H
#define IDEM_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct idem_bytes {
    const uint8_t *data; /* may be NULL only when size is 0 */
    size_t size;         /* in bytes */
};

/* A view of a C string without its terminator. NULL gives the empty view. */
static inline struct idem_bytes idem_bytes_from_text(const char *text)
{
    struct idem_bytes view = {(const uint8_t *)text, text ? strlen(text) : 0};

    return view;
}

/* A view of `size` bytes at `data`. */
static inline struct idem_bytes idem_bytes_make(const void *data, size_t size)
{
    struct idem_bytes view = {(const uint8_t *)data, size};

    return view;
}

/* True when both views hold the same bytes. Not constant-time: never use it on secrets. */
static inline bool idem_bytes_equal(struct idem_bytes a, struct idem_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* The view without the spaces and tabs at either end: OWS (RFC 9110, 5.6.3). */
static inline struct idem_bytes idem_bytes_trim(struct idem_bytes view)
{
    while (view.size > 0 && (view.data[0] == ' ' || view.data[0] == '\t')) {
        view.data++;
        view.size--;
    }
    while (view.size > 0 && (view.data[view.size - 1] == ' ' || view.data[view.size - 1] == '\t'))
        view.size--;
    return view;
}

#endif
