/*
 * Id: the one name of a record, SHA-256 over (kind, scope, key), each length-prefixed, so that no
 * two triples share one and no store sees the bytes of a key as part of a path or a statement.
 */
#ifndef IDEM_ID_H
#define IDEM_ID_H

#include <idem/bytes.h>
#include <idem/error.h>

#define IDEM_ID_SIZE      32
#define IDEM_ID_TEXT_SIZE (2 * IDEM_ID_SIZE + 1) /* lower-case hex and a terminator */

struct idem_id {
    uint8_t bytes[IDEM_ID_SIZE];
};

/* What a record stands for. The numbers are stored: never change them. */
enum idem_kind {
    IDEM_KIND_HTTP = 1,
    IDEM_KIND_MESSAGE = 2,
    IDEM_KIND_LOCK = 3,
    IDEM_KIND_TOKEN = 4,
    IDEM_KIND_JOB = 5,
    IDEM_KIND_TX = 6,
    IDEM_KIND_SELFTEST = 7, /* reserved: the record that a store proves itself with when opened */
};

/* Lower-case word for a kind ("http"), or NULL for a number that is none. */
const char *idem_kind_text(enum idem_kind kind);

/* Computes the id. Deterministic, thread-safe, cannot fail. */
struct idem_id idem_id_make(enum idem_kind kind, struct idem_bytes scope, struct idem_bytes key);

bool idem_id_equal(const struct idem_id *a, const struct idem_id *b);

/* Writes 64 hex digits and a terminator. */
void idem_id_format(const struct idem_id *id, char ret_text[IDEM_ID_TEXT_SIZE]);

/* Reads exactly 64 hex digits, either case. IDEM_ERR_INVALID otherwise. */
IDEM_MUST_CHECK int idem_id_parse(struct idem_bytes text, struct idem_id *ret_id);

/* The 16 fresh random bytes that name one attempt. Made by the driver, never reused. */
#define IDEM_OWNER_SIZE 16

struct idem_owner {
    uint8_t bytes[IDEM_OWNER_SIZE];
};

bool idem_owner_equal(const struct idem_owner *a, const struct idem_owner *b);

#endif
