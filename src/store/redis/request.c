/* A command is "*WORDS" and then each word as "$SIZE", a line break, its bytes, a line break. */
#include <stdio.h>

#include "base/memory.h"
#include "store/redis/redis_store.h"

#define CAPACITY_MIN 4096
#define KEPT_MAX     (1u << 20) /* a buffer that grew past this is given back */

void idem_redis_request_deinit(struct idem_redis_request *request)
{
    idem_free(request->bytes);
    memset(request, 0, sizeof *request);
}

void idem_redis_request_clear(struct idem_redis_request *request)
{
    if (request->capacity > KEPT_MAX)
        idem_redis_request_deinit(request);
    request->size = 0;
    request->failed = false;
}

/* Room for `size` more bytes, or NULL; the bytes count as written. */
static uint8_t *request_extend(struct idem_redis_request *request, size_t size)
{
    uint8_t *place;

    if (request->failed)
        return NULL;
    if (request->capacity - request->size < size) {
        size_t capacity = request->capacity ? request->capacity : CAPACITY_MIN;
        uint8_t *grown;

        while (capacity - request->size < size)
            capacity *= 2;
        grown = idem_realloc(request->bytes, capacity);
        request->failed = !grown;
        if (!grown)
            return NULL;
        request->bytes = grown;
        request->capacity = capacity;
    }
    place = request->bytes + request->size;
    request->size += size;
    return place;
}

/* "*12\r\n" or "$12\r\n" */
static void request_count(struct idem_redis_request *request, char sort, size_t count)
{
    char digits[24];
    size_t first = sizeof digits;
    uint8_t *place;

    digits[--first] = '\n';
    digits[--first] = '\r';
    do {
        digits[--first] = (char)('0' + count % 10);
        count /= 10;
    } while (count > 0);
    digits[--first] = sort;
    place = request_extend(request, sizeof digits - first);
    if (place)
        memcpy(place, digits + first, sizeof digits - first);
}

void idem_redis_request_begin(struct idem_redis_request *request, size_t words)
{
    request_count(request, '*', words);
}

uint8_t *idem_redis_request_word(struct idem_redis_request *request, size_t size)
{
    uint8_t *place;

    request_count(request, '$', size);
    place = request_extend(request, size + 2);
    if (place) {
        place[size] = '\r';
        place[size + 1] = '\n';
    }
    return place;
}

void idem_redis_request_bytes(struct idem_redis_request *request, struct idem_bytes word)
{
    uint8_t *place = idem_redis_request_word(request, word.size);

    if (place && word.size > 0)
        memcpy(place, word.data, word.size);
}

void idem_redis_request_text(struct idem_redis_request *request, const char *word)
{
    idem_redis_request_bytes(request, idem_bytes_from_text(word));
}

void idem_redis_request_number(struct idem_redis_request *request, uint64_t word)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)word);
    idem_redis_request_text(request, text);
}

void idem_redis_request_texts(struct idem_redis_request *request, const char *const *words)
{
    size_t count = 0;

    while (words[count])
        count++;
    idem_redis_request_begin(request, count);
    for (size_t i = 0; i < count; i++)
        idem_redis_request_text(request, words[i]);
}
