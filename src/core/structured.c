#include "core/structured.h"

#include "base/ascii.h"

/* Takes one byte if it is the one given. */
static bool accept(struct idem_reader *reader, char wanted)
{
    if (idem_reader_peek(reader) != wanted)
        return false;
    idem_read_u8(reader);
    return true;
}

static void expect(struct idem_reader *reader, char wanted)
{
    if (!accept(reader, wanted))
        idem_reader_fail(reader);
}

/* RFC 9651, 4.2.5: "Parsing a String". */
struct idem_structured_string idem_structured_read_string(struct idem_reader *reader)
{
    struct idem_structured_string string = {{NULL, 0}, 0};
    const uint8_t *first;

    expect(reader, '"');
    first = reader->next;
    while (!reader->failed) {
        int c = idem_reader_peek(reader);

        if (c == '"') {
            string.escaped = idem_bytes_make(first, (size_t)(reader->next - first));
            idem_read_u8(reader);
            return string;
        }
        if (c < 0x20 || c > 0x7e) /* the end of input, too: a String has both its quotes */
            break;
        idem_read_u8(reader);
        if (c == '\\' && !accept(reader, '"') && !accept(reader, '\\'))
            break;
        string.size++;
    }
    idem_reader_fail(reader);
    return (struct idem_structured_string){{NULL, 0}, 0};
}

void idem_structured_unescape(const struct idem_structured_string *string, uint8_t *ret_bytes)
{
    const uint8_t *next = string->escaped.data;

    for (size_t i = 0; i < string->size; i++) {
        if (*next == '\\')
            next++;
        ret_bytes[i] = *next++;
    }
}

/*
 * RFC 9651, 4.2.4: "Parsing an Integer or Decimal". At most 15 digits, or 12 before the point and
 * 1 to 3 behind it.
 */
static void skip_number(struct idem_reader *reader, bool decimal_allowed)
{
    unsigned whole = 0, fraction = 0;

    accept(reader, '-');
    for (; idem_is_digit(idem_reader_peek(reader)); whole++)
        idem_read_u8(reader);
    if (whole == 0 || whole > 15)
        idem_reader_fail(reader);
    if (!decimal_allowed || !accept(reader, '.'))
        return;
    for (; idem_is_digit(idem_reader_peek(reader)); fraction++)
        idem_read_u8(reader);
    if (whole > 12 || fraction == 0 || fraction > 3)
        idem_reader_fail(reader);
}

/* RFC 9110, 5.6.2. */
static bool is_tchar(int c)
{
    return idem_is_alpha(c) || idem_is_digit(c) || (c > 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* RFC 9651, 4.2.6: "Parsing a Token". The caller has seen that it begins with a letter or `*`. */
static void skip_token(struct idem_reader *reader)
{
    int c;

    do {
        idem_read_u8(reader);
        c = idem_reader_peek(reader);
    } while (is_tchar(c) || c == ':' || c == '/');
}

/*
 * RFC 9651, 4.2.7: "Parsing a Byte Sequence". Missing padding is no fault and neither are non-zero
 * pad bits; a length that no base64 has, or padding before the end, is.
 */
static void skip_byte_sequence(struct idem_reader *reader)
{
    size_t digits = 0, pads = 0;

    expect(reader, ':');
    for (;; digits++) {
        int c = idem_reader_peek(reader);

        if (!idem_is_alpha(c) && !idem_is_digit(c) && c != '+' && c != '/')
            break;
        idem_read_u8(reader);
    }
    while (accept(reader, '='))
        pads++;
    expect(reader, ':');
    if (digits % 4 == 1 || (pads > 0 && pads != (4 - digits % 4) % 4))
        idem_reader_fail(reader);
}

/* RFC 9651, 4.2.8: "Parsing a Boolean". */
static void skip_boolean(struct idem_reader *reader)
{
    expect(reader, '?');
    if (!accept(reader, '0'))
        expect(reader, '1');
}

/*
 * UTF-8 as of RFC 3629, section 4, a byte at a time: `left` continuation bytes are to come, the
 * next one between `low` and `high`, which rules out overlong forms, surrogates and what is past
 * U+10FFFF.
 */
struct utf8 {
    unsigned left;
    uint8_t low, high;
    bool valid;
};

static void utf8_lead(struct utf8 *utf8, uint8_t byte)
{
    utf8->low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    utf8->high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    if (byte < 0x80)
        utf8->left = 0;
    else if (byte >= 0xc2 && byte <= 0xdf)
        utf8->left = 1;
    else if (byte >= 0xe0 && byte <= 0xef)
        utf8->left = 2;
    else if (byte >= 0xf0 && byte <= 0xf4)
        utf8->left = 3;
    else
        utf8->valid = false;
}

static void utf8_feed(struct utf8 *utf8, uint8_t byte)
{
    if (utf8->left == 0) {
        utf8_lead(utf8, byte);
        return;
    }
    if (byte < utf8->low || byte > utf8->high)
        utf8->valid = false;
    utf8->low = 0x80;
    utf8->high = 0xbf;
    utf8->left--;
}

/* Two lower-case hex digits. */
static uint8_t read_percent_digits(struct idem_reader *reader)
{
    uint8_t value = 0;

    for (int i = 0; i < 2; i++) {
        int c = idem_reader_peek(reader);

        if (!idem_is_digit(c) && !(c >= 'a' && c <= 'f')) {
            idem_reader_fail(reader);
            return 0;
        }
        value = (uint8_t)(value << 4 | idem_hex_value(idem_read_u8(reader)));
    }
    return value;
}

/* RFC 9651, 4.2.10: "Parsing a Display String". Percent-encoded UTF-8. */
static void skip_display_string(struct idem_reader *reader)
{
    struct utf8 utf8 = {.left = 0, .valid = true};

    expect(reader, '%');
    expect(reader, '"');
    while (!reader->failed && !accept(reader, '"')) {
        int c = idem_reader_peek(reader);

        if (c < 0x20 || c > 0x7e) {
            idem_reader_fail(reader);
            return;
        }
        idem_read_u8(reader);
        utf8_feed(&utf8, c == '%' ? read_percent_digits(reader) : (uint8_t)c);
    }
    if (!utf8.valid || utf8.left > 0)
        idem_reader_fail(reader);
}

/* RFC 9651, 4.2.3.1: "Parsing a Bare Item". The first byte tells the type. */
static void skip_bare_item(struct idem_reader *reader)
{
    int c = idem_reader_peek(reader);

    if (c == '-' || idem_is_digit(c))
        skip_number(reader, true);
    else if (c == '"')
        (void)idem_structured_read_string(reader);
    else if (c == '*' || idem_is_alpha(c))
        skip_token(reader);
    else if (c == ':')
        skip_byte_sequence(reader);
    else if (c == '?')
        skip_boolean(reader);
    else if (accept(reader, '@')) /* 4.2.9: a Date is an Integer behind an @ */
        skip_number(reader, false);
    else if (c == '%')
        skip_display_string(reader);
    else
        idem_reader_fail(reader);
}

/* RFC 9651, 4.2.3.3: "Parsing a Key", the name of a parameter. */
static void skip_parameter_key(struct idem_reader *reader)
{
    int c = idem_reader_peek(reader);

    if (!idem_is_lower(c) && c != '*') {
        idem_reader_fail(reader);
        return;
    }
    do {
        idem_read_u8(reader);
        c = idem_reader_peek(reader);
    } while (idem_is_lower(c) || idem_is_digit(c) || c == '_' || c == '-' || c == '.' || c == '*');
}

void idem_structured_skip_parameters(struct idem_reader *reader)
{
    while (accept(reader, ';')) {
        while (accept(reader, ' '))
            continue;
        skip_parameter_key(reader);
        if (accept(reader, '='))
            skip_bare_item(reader);
    }
}
