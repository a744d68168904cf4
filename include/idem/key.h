/*
 * Key: what the client sent in `Idempotency-Key`, as bytes.
 *
 * The expired draft draft-ietf-httpapi-idempotency-key-header (2.1) makes the field an RFC 9651
 * String, that is, quoted. Nearly every client in use sends it bare. Lenient syntax therefore takes
 * both, and `abc` and `"abc"` are one key; strict syntax takes the String only.
 */
#ifndef IDEM_KEY_H
#define IDEM_KEY_H

#include <idem/bytes.h>
#include <idem/error.h>

enum idem_key_syntax {
    IDEM_KEY_LENIENT, /* the same, or 1 or more bytes of visible ASCII other than `"` `,` `;` `\` */
    IDEM_KEY_STRICT,  /* an RFC 9651 Item whose bare item is a String; its parameters are ignored */
};

/* Outcomes of idem_key_parse besides IDEM_OK. */
enum idem_key_outcome {
    IDEM_KEY_EMPTY = 1,     /* nothing, only white space, or `""` */
    IDEM_KEY_TOO_LONG = 2,  /* more than size_max bytes once unquoted */
    IDEM_KEY_MALFORMED = 3, /* not of the syntax */
};

struct idem_key {
    size_t size;
    uint8_t bytes[IDEM_KEY_SIZE_MAX];
};

/*
 * Reads one field value (a single field line; a caller that saw two lines refuses them itself).
 * Spaces and tabs around the value are not part of it (RFC 9110, 5.5). A String is unescaped, so
 * that `"a\"b"` is the key a"b. size_max is at most IDEM_KEY_SIZE_MAX.
 * Pure and thread-safe. On any outcome but IDEM_OK *ret_key is untouched.
 */
IDEM_MUST_CHECK int idem_key_parse(struct idem_bytes field, enum idem_key_syntax syntax,
                                   size_t size_max, struct idem_key *ret_key);

/* A sentence for the client that names what is wrong: for the `detail` of the refusal. */
const char *idem_key_outcome_text(int outcome);

static inline struct idem_bytes idem_key_view(const struct idem_key *key)
{
    return idem_bytes_make(key->bytes, key->size);
}

#endif
