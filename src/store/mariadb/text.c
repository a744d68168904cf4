/*
 * Statements as text. Whatever comes from outside goes in as x'…': the server reads hex digits as
 * bytes whatever its modes and character sets are, and nothing in them can end the literal.
 */
#include <stdio.h>

#include "base/memory.h"
#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

#define CAPACITY_MIN  4096
#define CAPACITY_KEPT (1u << 20) /* bytes kept from one batch to the next */

void idem_mariadb_text_deinit(struct idem_mariadb_text *text)
{
    idem_free(text->data);
    memset(text, 0, sizeof *text);
}

void idem_mariadb_text_clear(struct idem_mariadb_text *text)
{
    if (text->capacity > CAPACITY_KEPT)
        idem_mariadb_text_deinit(text);
    text->size = 0;
    text->statements = 0;
    text->values = NULL;
    text->failed = false;
}

/* Where so many more bytes go, or NULL. */
static char *text_grow(struct idem_mariadb_text *text, size_t size)
{
    size_t capacity = text->capacity ? text->capacity : CAPACITY_MIN;
    char *grown;

    if (text->failed)
        return NULL;
    while (capacity - text->size < size)
        capacity *= 2;
    if (capacity > text->capacity) {
        grown = idem_realloc(text->data, capacity);
        if (!grown) {
            text->failed = true;
            return NULL;
        }
        text->data = grown;
        text->capacity = capacity;
    }
    text->size += size;
    return text->data + text->size - size;
}

void idem_mariadb_text_add(struct idem_mariadb_text *text, const char *words)
{
    size_t size = strlen(words);
    char *place = text_grow(text, size);

    if (place)
        memcpy(place, words, size);
}

void idem_mariadb_text_signed(struct idem_mariadb_text *text, int64_t number)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%lld", (long long)number);
    idem_mariadb_text_add(text, digits);
}

void idem_mariadb_text_unsigned(struct idem_mariadb_text *text, uint64_t number)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    idem_mariadb_text_add(text, digits);
}

void idem_mariadb_text_value(struct idem_mariadb_text *text, uint64_t number)
{
    if (text->values) {
        idem_mariadb_text_add(text, "?");
        idem_mariadb_value_number(text->values, number);
    } else {
        idem_mariadb_text_unsigned(text, number);
    }
}

static void text_hex(struct idem_mariadb_text *text, struct idem_bytes bytes)
{
    static const char digits[] = "0123456789abcdef";
    char *place = text_grow(text, 2 * bytes.size + 3);

    if (!place)
        return;
    *place++ = 'x';
    *place++ = '\'';
    for (size_t i = 0; i < bytes.size; i++) {
        *place++ = digits[bytes.data[i] >> 4];
        *place++ = digits[bytes.data[i] & 15];
    }
    *place = '\'';
}

void idem_mariadb_text_bytes(struct idem_mariadb_text *text, struct idem_bytes bytes)
{
    if (text->values) {
        idem_mariadb_text_add(text, "?");
        idem_mariadb_value_bytes(text->values, bytes);
    } else {
        text_hex(text, bytes);
    }
}

void idem_mariadb_text_id(struct idem_mariadb_text *text, const struct idem_id *id)
{
    idem_mariadb_text_bytes(text, idem_bytes_make(id->bytes, IDEM_ID_SIZE));
}

void idem_mariadb_text_meta(struct idem_mariadb_text *text, const struct idem_backend *store)
{
    idem_mariadb_text_add(text, " FROM " IDEM_MARIADB_META " WHERE one=1 AND salt=");
    idem_mariadb_text_bytes(text, idem_bytes_make(store->salt.bytes, IDEM_SALT_SIZE));
}

void idem_mariadb_text_now(struct idem_mariadb_text *text, const struct idem_backend *store)
{
    if (store->clock)
        idem_mariadb_text_signed(text, idem_clock_now_us(store->clock));
    else
        idem_mariadb_text_add(text, IDEM_MARIADB_NOW);
}

void idem_mariadb_text_fence(struct idem_mariadb_text *text, const char *now, uint64_t fence)
{
    if (fence <= 1) { /* no clock is before that */
        idem_mariadb_text_add(text, now);
        return;
    }
    idem_mariadb_text_add(text, "GREATEST(");
    idem_mariadb_text_add(text, now);
    idem_mariadb_text_add(text, ",");
    idem_mariadb_text_value(text, fence);
    idem_mariadb_text_add(text, ")");
}
