/*
 * Ascii: character classes of protocols, which never depend on a locale as <ctype.h> does.
 * Each takes a byte, or -1 for "no byte", which belongs to no class.
 */
#ifndef IDEM_BASE_ASCII_H
#define IDEM_BASE_ASCII_H

#include <stdbool.h>

static inline bool idem_is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static inline bool idem_is_lower(int c)
{
    return c >= 'a' && c <= 'z';
}

static inline bool idem_is_alpha(int c)
{
    return idem_is_lower(c) || (c >= 'A' && c <= 'Z');
}

/* VCHAR of RFC 5234: what leaves a mark on paper. */
static inline bool idem_is_visible(int c)
{
    return c > 0x20 && c < 0x7f;
}

static inline int idem_to_lower(int c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* The value of a hex digit of either case, or -1. */
static inline int idem_hex_value(int c)
{
    if (idem_is_digit(c))
        return c - '0';
    c = idem_to_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
