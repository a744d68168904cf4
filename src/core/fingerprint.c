/*
 * What is hashed, in order, numbers as big-endian u64:
 *
 *   1. the algorithm
 *   2. each field: its size, its bytes
 *   3. the body's bytes
 *   4. the body's size
 *
 * Read from its end this splits in one way only: the last number says where the body begins, and
 * what is before it is a row of sized fields. So no two requests share an input, although the
 * body's size need not be known when its first piece comes.
 */
#include <idem/fingerprint.h>

#include <assert.h>

#include "core/hash.h"

_Static_assert(IDEM_DIGEST_SIZE == crypto_hash_sha256_BYTES, "a digest is SHA-256");
_Static_assert(IDEM_DIGEST_SIZE == crypto_auth_hmacsha256_BYTES, "and so is a salted one");
_Static_assert(IDEM_SALT_SIZE == crypto_auth_hmacsha256_KEYBYTES, "a salt is an HMAC key");
_Static_assert(sizeof(crypto_hash_sha256_state) <= sizeof((struct idem_fingerprinter *)0)->state,
               "the state must fit");
_Static_assert(_Alignof(crypto_hash_sha256_state) <= 8, "and be aligned");

static crypto_hash_sha256_state *hash_state(struct idem_fingerprinter *f)
{
    return (crypto_hash_sha256_state *)(void *)f->state;
}

void idem_fingerprinter_init(struct idem_fingerprinter *f,
                             enum idem_fingerprint_algorithm algorithm)
{
    memset(f, 0, sizeof *f);
    f->algorithm = (uint8_t)algorithm;
    crypto_hash_sha256_init(hash_state(f));
    idem_hash_u64(hash_state(f), f->algorithm);
}

void idem_fingerprinter_field(struct idem_fingerprinter *f, struct idem_bytes field)
{
    /* A field behind the body would make the split above ambiguous. */
    assert(f->body_size == 0);
    idem_hash_part(hash_state(f), field);
}

void idem_fingerprinter_body(struct idem_fingerprinter *f, struct idem_bytes piece)
{
    idem_hash_bytes(hash_state(f), piece);
    f->body_size += piece.size;
}

void idem_fingerprinter_end(struct idem_fingerprinter *f, struct idem_fingerprint *ret_fingerprint)
{
    memset(ret_fingerprint, 0, sizeof *ret_fingerprint);
    ret_fingerprint->algorithm = f->algorithm;
    if (f->algorithm != IDEM_FINGERPRINT_NONE) {
        idem_hash_u64(hash_state(f), f->body_size);
        crypto_hash_sha256_final(hash_state(f), ret_fingerprint->bytes);
    }
    /* The state still holds up to 64 bytes of the body. */
    sodium_memzero(f, sizeof *f);
}

static bool credential_absent(struct idem_bytes credential)
{
    return credential.data == NULL && credential.size == 0;
}

struct idem_principal idem_principal_make(const struct idem_bytes *credentials, size_t count)
{
    struct idem_principal principal = {0};
    crypto_hash_sha256_state state;

    crypto_hash_sha256_init(&state);
    for (size_t i = 0; i < count; i++) {
        bool absent = credential_absent(credentials[i]);

        idem_hash_u64(&state, absent ? 0 : 1);
        idem_hash_part(&state, credentials[i]);
        principal.present = principal.present || !absent;
    }
    if (principal.present)
        crypto_hash_sha256_final(&state, principal.bytes);
    sodium_memzero(&state, sizeof state);
    return principal;
}

bool idem_fingerprint_equal(const struct idem_fingerprint *a, const struct idem_fingerprint *b)
{
    if (a->algorithm != b->algorithm)
        return false;
    return a->algorithm == IDEM_FINGERPRINT_NONE ||
           sodium_memcmp(a->bytes, b->bytes, IDEM_DIGEST_SIZE) == 0;
}

bool idem_principal_equal(const struct idem_principal *a, const struct idem_principal *b)
{
    if (a->present != b->present)
        return false;
    return !a->present || sodium_memcmp(a->bytes, b->bytes, IDEM_DIGEST_SIZE) == 0;
}

/*
 * HMAC-SHA256( salt, purpose ‖ digest ). The purpose keeps the two uses of one salt apart: a body
 * that happens to hash like a credential must not show in a copy of the store.
 */
static void digest_salt(const char *purpose, const uint8_t plain[IDEM_DIGEST_SIZE],
                        const struct idem_salt *salt, uint8_t ret_salted[IDEM_DIGEST_SIZE])
{
    crypto_auth_hmacsha256_state state;

    crypto_auth_hmacsha256_init(&state, salt->bytes, IDEM_SALT_SIZE);
    crypto_auth_hmacsha256_update(&state, (const uint8_t *)purpose, strlen(purpose));
    crypto_auth_hmacsha256_update(&state, plain, IDEM_DIGEST_SIZE);
    crypto_auth_hmacsha256_final(&state, ret_salted);
    sodium_memzero(&state, sizeof state);
}

struct idem_fingerprint idem_fingerprint_salt(const struct idem_fingerprint *plain,
                                              const struct idem_salt *salt)
{
    struct idem_fingerprint salted = {.algorithm = plain->algorithm};

    if (plain->algorithm != IDEM_FINGERPRINT_NONE)
        digest_salt("idem fingerprint", plain->bytes, salt, salted.bytes);
    return salted;
}

struct idem_principal idem_principal_salt(const struct idem_principal *plain,
                                          const struct idem_salt *salt)
{
    struct idem_principal salted = {.present = plain->present};

    if (plain->present)
        digest_salt("idem principal", plain->bytes, salt, salted.bytes);
    return salted;
}
