/*
 * Fingerprint: what makes two requests "the same", and principal: who asks.
 *
 * Both are SHA-256 digests made here from the request and salted by the store (HMAC-SHA256 with a
 * random value that the store keeps) before they are compared or written, so that a copy of the
 * store does not let anybody test guesses of a body or of a credential. The store compares both
 * on every path; nothing else in idem does.
 */
#ifndef IDEM_FINGERPRINT_H
#define IDEM_FINGERPRINT_H

#include <idem/bytes.h>
#include <idem/error.h>

#define IDEM_DIGEST_SIZE 32

/* How the body went in. Stored with the digest, so that two ways never match each other. */
enum idem_fingerprint_algorithm {
    IDEM_FINGERPRINT_NONE = 0, /* no fingerprint: kinds that have no payload */
    IDEM_FINGERPRINT_RAW = 1,  /* fields, then the body as received */
};

struct idem_fingerprint {
    uint8_t algorithm;
    uint8_t bytes[IDEM_DIGEST_SIZE];
};

/* May be empty: a caller without any credential. Empty and non-empty differ. */
struct idem_principal {
    bool present;
    uint8_t bytes[IDEM_DIGEST_SIZE];
};

/*
 * A fingerprint in the making. Feed every field, then the body in any number of pieces, then end
 * it once. Fields are length-prefixed, the body is closed by its length: ("ab","c") differs from
 * ("a","bc"), and a field from a body. Lives where the caller puts it; holds no resources.
 */
struct idem_fingerprinter {
    _Alignas(8) uint8_t state[128]; /* what any allocator aligns to */
    uint64_t body_size;
    uint8_t algorithm;
};

void idem_fingerprinter_init(struct idem_fingerprinter *f,
                             enum idem_fingerprint_algorithm algorithm);
void idem_fingerprinter_field(struct idem_fingerprinter *f, struct idem_bytes field);
void idem_fingerprinter_body(struct idem_fingerprinter *f, struct idem_bytes piece);
void idem_fingerprinter_end(struct idem_fingerprinter *f, struct idem_fingerprint *ret_fingerprint);

/*
 * The principal of a request: a digest over its credentials in the caller's order, each
 * length-prefixed, an absent one distinct from an empty one (data NULL and size 0 is absent). When
 * all are absent the principal is empty.
 */
struct idem_principal idem_principal_make(const struct idem_bytes *credentials, size_t count);

/* Constant-time comparisons. */
bool idem_fingerprint_equal(const struct idem_fingerprint *a, const struct idem_fingerprint *b);
bool idem_principal_equal(const struct idem_principal *a, const struct idem_principal *b);

/* The salt of a store, and what it makes of a digest. Only stores call these. */
#define IDEM_SALT_SIZE 32

struct idem_salt {
    uint8_t bytes[IDEM_SALT_SIZE];
};

struct idem_fingerprint idem_fingerprint_salt(const struct idem_fingerprint *plain,
                                              const struct idem_salt *salt);
struct idem_principal idem_principal_salt(const struct idem_principal *plain,
                                          const struct idem_salt *salt);

#endif
