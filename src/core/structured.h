/*
 * Structured: the part of RFC 9651 (Structured Field Values for HTTP) that a key needs, which is an
 * Item whose bare item is a String, and whatever parameters may follow it.
 *
 * Every function takes from the reader what it names. When the input is not of the grammar the
 * reader has failed; callers look once, at their end.
 */
#ifndef IDEM_CORE_STRUCTURED_H
#define IDEM_CORE_STRUCTURED_H

#include "base/cursor.h"

/* A String as it stands in the field. Valid as long as the field. */
struct idem_structured_string {
    struct idem_bytes escaped; /* what stands between the quotes */
    size_t size;               /* in bytes, once unescaped */
};

/* Takes a String, its quotes included (4.2.5). */
struct idem_structured_string idem_structured_read_string(struct idem_reader *reader);

/* Writes the `size` bytes of the String without its escapes. */
void idem_structured_unescape(const struct idem_structured_string *string, uint8_t *ret_bytes);

/* Takes any number of parameters (4.2.3.2). Their meaning is nobody's here: they are only checked.
 */
void idem_structured_skip_parameters(struct idem_reader *reader);

#endif
