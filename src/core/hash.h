/*
 * Hash: SHA-256 over parts that cannot run into each other. Each part goes in behind its length as
 * a big-endian u64, so that ("ab", "c") and ("a", "bc") differ.
 *
 * libsodium's hash, MAC and comparison functions are pure and need no sodium_init(), which only
 * seeds the random generator and picks faster code for other primitives.
 */
#ifndef IDEM_CORE_HASH_H
#define IDEM_CORE_HASH_H

#include <idem/bytes.h>
#include <sodium.h>

static inline void idem_hash_bytes(crypto_hash_sha256_state *state, struct idem_bytes bytes)
{
    /* libsodium copies from the pointer even when the size is 0, and NULL is no place to copy from.
     */
    if (bytes.size > 0)
        crypto_hash_sha256_update(state, bytes.data, bytes.size);
}

static inline void idem_hash_u64(crypto_hash_sha256_state *state, uint64_t value)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> 8 * (7 - i));
    crypto_hash_sha256_update(state, bytes, sizeof bytes);
}

static inline void idem_hash_part(crypto_hash_sha256_state *state, struct idem_bytes part)
{
    idem_hash_u64(state, part.size);
    idem_hash_bytes(state, part);
}

#endif
