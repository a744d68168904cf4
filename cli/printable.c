/* Printable: see printable.h. */
#include "printable.h"

#include "base/memory.h"

#define ESCAPE_SIZE_MAX 4 /* \xHH */
#define PIECE_SIZE_MAX  (4 * ESCAPE_SIZE_MAX)
#define ELLIPSIS        "\xE2\x80\xA6"

static bool is_continuation(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* The size that a first byte announces, and the least code point that needs it. */
static size_t utf8_size(uint8_t first, uint32_t *ret_least)
{
    if (first < 0x80) {
        *ret_least = 0;
        return 1;
    }
    if ((first & 0xE0) == 0xC0) {
        *ret_least = 0x80;
        return 2;
    }
    if ((first & 0xF0) == 0xE0) {
        *ret_least = 0x800;
        return 3;
    }
    if ((first & 0xF8) == 0xF0) {
        *ret_least = 0x10000;
        return 4;
    }
    return 0;
}

size_t idem_utf8_take(struct idem_bytes bytes, uint32_t *ret_point)
{
    uint32_t least = 0;
    uint32_t point;
    size_t size;

    if (bytes.size == 0) {
        return 0;
    }
    size = utf8_size(bytes.data[0], &least);
    if (size == 0 || size > bytes.size) {
        return 0;
    }
    point = size == 1 ? bytes.data[0] : bytes.data[0] & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (!is_continuation(bytes.data[i])) {
            return 0;
        }
        point = point << 6 | (bytes.data[i] & 0x3Fu);
    }
    /* RFC 3629, 3: the shortest form only, no surrogates, nothing past U+10FFFF. */
    if (point < least || (point >= 0xD800 && point <= 0xDFFF) || point > 0x10FFFF) {
        return 0;
    }
    *ret_point = point;
    return size;
}

bool idem_utf8_valid(struct idem_bytes bytes)
{
    uint32_t point;

    while (bytes.size > 0) {
        size_t size = idem_utf8_take(bytes, &point);

        if (size == 0) {
            return false;
        }
        bytes.data += size;
        bytes.size -= size;
    }
    return true;
}

/* Controls, and the marks of Unicode that reorder or hide what stands beside them. */
static bool is_dangerous(uint32_t point)
{
    return point < 0x20 || (point >= 0x7F && point <= 0x9F) ||
           (point >= 0x200B && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
           (point >= 0x2060 && point <= 0x206F) || point == 0xFEFF;
}

static size_t escape_byte(uint8_t byte, char *out)
{
    static const char digits[] = "0123456789abcdef";
    static const char plain[] = "\n\t\r\\";
    static const char letters[] = "ntr\\";
    const char *found = byte != '\0' ? strchr(plain, byte) : NULL;

    out[0] = '\\';
    if (found != NULL) {
        out[1] = letters[found - plain];
        return 2;
    }
    out[1] = 'x';
    out[2] = digits[byte >> 4];
    out[3] = digits[byte & 15];
    return 4;
}

/* Writes the first code point or byte of *rest at `out` and takes it off. */
static size_t printable_take(struct idem_bytes *rest, char *out)
{
    uint32_t point = 0;
    size_t size = idem_utf8_take(*rest, &point);
    size_t written = 0;

    if (size == 0) {
        size = 1;
        written = escape_byte(rest->data[0], out);
    } else if (is_dangerous(point) || point == '\\') {
        for (size_t i = 0; i < size; i++) {
            written += escape_byte(rest->data[i], out + written);
        }
    } else {
        memcpy(out, rest->data, size);
        written = size;
    }
    rest->data += size;
    rest->size -= size;
    return written;
}

int idem_printable_make(struct idem_bytes bytes, size_t columns_max, char **ret_text)
{
    struct idem_bytes rest = bytes;
    size_t columns = 0;
    size_t size = 0;
    char *text = idem_malloc(bytes.size * ESCAPE_SIZE_MAX + sizeof ELLIPSIS);

    if (text == NULL) {
        return IDEM_ERR_NOMEM;
    }
    while (rest.size > 0) {
        char piece[PIECE_SIZE_MAX + 1];
        size_t piece_size = printable_take(&rest, piece);
        size_t piece_columns;

        piece[piece_size] = '\0';
        piece_columns = idem_printable_columns(piece);
        if (columns_max != 0 &&
            columns + piece_columns > columns_max - (rest.size > 0 && columns_max > 1)) {
            memcpy(text + size, ELLIPSIS, sizeof ELLIPSIS - 1);
            size += sizeof ELLIPSIS - 1;
            break;
        }
        memcpy(text + size, piece, piece_size);
        size += piece_size;
        columns += piece_columns;
    }
    text[size] = '\0';
    *ret_text = text;
    return IDEM_OK;
}

/* The same for a sentence. */
static size_t sentence_take(struct idem_bytes *rest, char *out)
{
    if (strchr("\n\t\\", rest->data[0]) == NULL) {
        return printable_take(rest, out);
    }
    out[0] = (char)rest->data[0];
    *rest = idem_bytes_make(rest->data + 1, rest->size - 1);
    return 1;
}

void idem_printable_cut(const char *text, char *ret_text, size_t size)
{
    struct idem_bytes rest = idem_bytes_from_text(text);
    char piece[PIECE_SIZE_MAX];
    size_t written = 0;

    while (rest.size > 0) {
        size_t piece_size = sentence_take(&rest, piece);

        if (written + piece_size >= size) {
            break;
        }
        memcpy(ret_text + written, piece, piece_size);
        written += piece_size;
    }
    ret_text[written] = '\0';
}

void idem_printable_write(FILE *stream, const char *text)
{
    struct idem_bytes rest = idem_bytes_from_text(text);
    char piece[PIECE_SIZE_MAX];

    while (rest.size > 0) {
        size_t piece_size = sentence_take(&rest, piece);

        fwrite(piece, 1, piece_size, stream);
    }
}

size_t idem_printable_columns(const char *text)
{
    size_t columns = 0;

    for (; *text != '\0'; text++) {
        columns += !is_continuation((uint8_t)*text);
    }
    return columns;
}
