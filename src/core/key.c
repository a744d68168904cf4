/*
 * How a field value becomes a key:
 *
 *   1. white space around it is not part of it               RFC 9110, 5.5
 *   2. it begins with a quote: an Item that is a String      RFC 9651, 4.2 and 4.2.5
 *   3. else, lenient only: visible ASCII without the bytes that would make it a list, a parameter
 *      or half a String, so that nothing is a key by accident
 *   4. an empty key and one over the maximum are refused, never cut
 */
#include <idem/key.h>

#include <assert.h>

#include "base/ascii.h"
#include "core/structured.h"

static int size_check(size_t size, size_t size_max)
{
    if (size == 0)
        return IDEM_KEY_EMPTY;
    return size > size_max ? IDEM_KEY_TOO_LONG : IDEM_OK;
}

/* RFC 9651, 4.2, steps 5 to 8, for an Item: the bare item, its parameters, and nothing behind. */
static int string_parse(struct idem_bytes value, size_t size_max, struct idem_key *ret_key)
{
    struct idem_structured_string string;
    struct idem_reader reader;
    int outcome;

    idem_reader_init(&reader, value);
    string = idem_structured_read_string(&reader);
    idem_structured_skip_parameters(&reader);
    if (reader.failed || reader.left > 0)
        return IDEM_KEY_MALFORMED;
    outcome = size_check(string.size, size_max);
    if (outcome != IDEM_OK)
        return outcome;
    idem_structured_unescape(&string, ret_key->bytes);
    ret_key->size = string.size;
    return IDEM_OK;
}

static bool bare_allows(uint8_t byte)
{
    return idem_is_visible(byte) && byte != '"' && byte != ',' && byte != ';' && byte != '\\';
}

static int bare_parse(struct idem_bytes value, size_t size_max, struct idem_key *ret_key)
{
    int outcome;

    for (size_t i = 0; i < value.size; i++)
        if (!bare_allows(value.data[i]))
            return IDEM_KEY_MALFORMED;
    outcome = size_check(value.size, size_max);
    if (outcome != IDEM_OK)
        return outcome;
    memcpy(ret_key->bytes, value.data, value.size);
    ret_key->size = value.size;
    return IDEM_OK;
}

int idem_key_parse(struct idem_bytes field, enum idem_key_syntax syntax, size_t size_max,
                   struct idem_key *ret_key)
{
    struct idem_bytes value = idem_bytes_trim(field);

    assert(size_max <= IDEM_KEY_SIZE_MAX);
    if (value.size == 0)
        return IDEM_KEY_EMPTY;
    if (value.data[0] == '"')
        return string_parse(value, size_max, ret_key);
    if (syntax == IDEM_KEY_STRICT)
        return IDEM_KEY_MALFORMED;
    return bare_parse(value, size_max, ret_key);
}

const char *idem_key_outcome_text(int outcome)
{
    switch (outcome) {
    case IDEM_OK:
        return "The Idempotency-Key is well-formed.";
    case IDEM_KEY_EMPTY:
        return "The Idempotency-Key is empty. Send a value that is unique to this operation, "
               "such as a UUID, and use it again for every retry.";
    case IDEM_KEY_TOO_LONG:
        return "The Idempotency-Key is longer than this service accepts. Send a shorter value that "
               "is unique to this operation, such as a UUID.";
    default:
        return "The Idempotency-Key is not well-formed. Send one value in double quotes, such as "
               "\"8e03978e-40d5-43e8-bc93-6894a57f9324\".";
    }
}
