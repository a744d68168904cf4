/*
 * Printable: bytes from outside, made safe for a terminal. Keys, scopes, headers and bodies come
 * from clients and upstreams; written raw, they could move the cursor, hide rows or forge output.
 */
#ifndef IDEM_CLI_PRINTABLE_H
#define IDEM_CLI_PRINTABLE_H

#include <stdio.h>

#include <idem/bytes.h>
#include <idem/error.h>

/*
 * The size of the UTF-8 sequence at the start (RFC 3629: no overlong forms, no surrogates), and its
 * code point; 0 when there is none.
 */
size_t idem_utf8_take(struct idem_bytes bytes, uint32_t *ret_point);

/* True when all bytes are UTF-8. */
bool idem_utf8_valid(struct idem_bytes bytes);

/*
 * Writes the bytes in one line: valid UTF-8 as it is, controls (C0, C1, DEL, and the invisible
 * marks that turn the direction of text) and all other bytes as \n, \t, \xHH; a backslash doubled,
 * so that nothing is ambiguous. At most `columns_max` code points, then "…"; 0 means all.
 *
 * *ret_text is allocated; the caller frees it with idem_free. IDEM_ERR_NOMEM.
 */
IDEM_MUST_CHECK int idem_printable_make(struct idem_bytes bytes, size_t columns_max,
                                        char **ret_text);

/*
 * For sentences, which may quote what came from outside: the same escapes, except that lines end
 * where they did and that a backslash stands as it is. One writes at most `size` bytes, terminator
 * included, the other prints.
 */
void idem_printable_cut(const char *text, char *ret_text, size_t size);
void idem_printable_write(FILE *stream, const char *text);

/* Columns that a text made above takes: its code points. */
size_t idem_printable_columns(const char *text);

#endif
