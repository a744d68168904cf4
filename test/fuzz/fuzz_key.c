/*
 * Keys: the first byte chooses the maximum, the rest is a field value.
 *
 *   1. what strict takes lenient takes too, as the same key
 *   2. a key is 1 to size_max bytes of printable ASCII
 *   3. written as a String again it is the same key
 *   4. anything but OK leaves the key untouched
 */
#include "fuzz.h"

#include <idem/key.h>

static int parse(struct idem_bytes field, enum idem_key_syntax syntax, size_t size_max,
                 struct idem_key *ret_key)
{
    struct idem_key before;
    int outcome;

    memset(ret_key, 0xa5, sizeof *ret_key);
    before = *ret_key;
    outcome = idem_key_parse(field, syntax, size_max, ret_key);
    FUZZ_CHECK(outcome >= IDEM_OK && outcome <= IDEM_KEY_MALFORMED);
    if (outcome != IDEM_OK) {
        FUZZ_CHECK(memcmp(ret_key, &before, sizeof before) == 0);
        return outcome;
    }
    FUZZ_CHECK(ret_key->size > 0 && ret_key->size <= size_max);
    for (size_t i = 0; i < ret_key->size; i++)
        FUZZ_CHECK(ret_key->bytes[i] >= 0x20 && ret_key->bytes[i] <= 0x7e);
    return outcome;
}

/* RFC 9651, 4.1.6: "Serializing a String". */
static void check_rewritten(const struct idem_key *key)
{
    uint8_t field[2 * IDEM_KEY_SIZE_MAX + 2];
    struct idem_key again;
    size_t size = 0;

    field[size++] = '"';
    for (size_t i = 0; i < key->size; i++) {
        if (key->bytes[i] == '"' || key->bytes[i] == '\\')
            field[size++] = '\\';
        field[size++] = key->bytes[i];
    }
    field[size++] = '"';
    FUZZ_CHECK(parse(idem_bytes_make(field, size), IDEM_KEY_STRICT, key->size, &again) == IDEM_OK);
    FUZZ_CHECK(idem_bytes_equal(idem_key_view(key), idem_key_view(&again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct idem_key strict, lenient;
    struct idem_bytes field;
    size_t size_max;
    int outcome;

    if (size == 0)
        return 0;
    size_max = data[0] == 0xff ? IDEM_KEY_SIZE_MAX : data[0];
    field = idem_bytes_make(data + 1, size - 1);
    outcome = parse(field, IDEM_KEY_LENIENT, size_max, &lenient);
    if (outcome == IDEM_OK)
        check_rewritten(&lenient);
    if (parse(field, IDEM_KEY_STRICT, size_max, &strict) == IDEM_OK) {
        FUZZ_CHECK(outcome == IDEM_OK);
        FUZZ_CHECK(idem_bytes_equal(idem_key_view(&strict), idem_key_view(&lenient)));
    }
    return 0;
}
