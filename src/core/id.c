#include <idem/id.h>

#include "base/ascii.h"
#include "core/hash.h"

_Static_assert(IDEM_ID_SIZE == crypto_hash_sha256_BYTES, "an id is a SHA-256 digest");

/*
 * SHA-256( u64 1 ‖ kind ‖ u64 size ‖ scope ‖ u64 size ‖ key ), numbers big-endian. Stored and
 * computed by other languages too (SQL functions): never change it.
 */
struct idem_id idem_id_make(enum idem_kind kind, struct idem_bytes scope, struct idem_bytes key)
{
    crypto_hash_sha256_state state;
    uint8_t number = (uint8_t)kind;
    struct idem_id id;

    crypto_hash_sha256_init(&state);
    idem_hash_part(&state, idem_bytes_make(&number, 1));
    idem_hash_part(&state, scope);
    idem_hash_part(&state, key);
    crypto_hash_sha256_final(&state, id.bytes);
    return id;
}

bool idem_id_equal(const struct idem_id *a, const struct idem_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void idem_id_format(const struct idem_id *id, char ret_text[IDEM_ID_TEXT_SIZE])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < IDEM_ID_SIZE; i++) {
        ret_text[2 * i] = digits[id->bytes[i] >> 4];
        ret_text[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    ret_text[IDEM_ID_TEXT_SIZE - 1] = '\0';
}

int idem_id_parse(struct idem_bytes text, struct idem_id *ret_id)
{
    struct idem_id id;

    if (text.size != IDEM_ID_TEXT_SIZE - 1)
        return IDEM_ERR_INVALID;
    for (size_t i = 0; i < IDEM_ID_SIZE; i++) {
        int high = idem_hex_value(text.data[2 * i]);
        int low = idem_hex_value(text.data[2 * i + 1]);

        if (high < 0 || low < 0)
            return IDEM_ERR_INVALID;
        id.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret_id = id;
    return IDEM_OK;
}

bool idem_owner_equal(const struct idem_owner *a, const struct idem_owner *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
