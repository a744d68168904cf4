#include "money.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/*
 * A number of RFC 8259, 6, taken apart:  [-] digits [. digits] [e [+-] digits]
 * Its value is `whole` and `fraction` written one after the other, times ten to the `exponent` less
 * the number of digits in `fraction`.
 */
struct number {
    bool negative;
    struct idem_bytes whole, fraction;
    int exponent;
};

/* An exponent beyond this is as good as infinite: no body holds that many digits to make up for it.
 */
#define EXPONENT_MAX 1000000

static struct idem_bytes digits_take(struct idem_bytes *rest)
{
    struct idem_bytes digits = {rest->data, 0};

    while (digits.size < rest->size && rest->data[digits.size] >= '0' &&
           rest->data[digits.size] <= '9')
        digits.size++;
    if (digits.size > 0) {
        rest->data += digits.size;
        rest->size -= digits.size;
    }
    return digits;
}

static bool byte_take(struct idem_bytes *rest, const char *any_of)
{
    if (rest->size == 0 || rest->data[0] == '\0' || !strchr(any_of, rest->data[0]))
        return false;
    rest->data++;
    rest->size--;
    return true;
}

static bool exponent_take(struct idem_bytes *rest, int *ret_exponent)
{
    bool negative = rest->size > 0 && rest->data[0] == '-';
    struct idem_bytes digits;
    int exponent = 0;

    (void)byte_take(rest, "+-");
    digits = digits_take(rest);
    for (size_t i = 0; i < digits.size && exponent < EXPONENT_MAX; i++)
        exponent = exponent * 10 + (digits.data[i] - '0');
    if (exponent > EXPONENT_MAX)
        exponent = EXPONENT_MAX;
    *ret_exponent = negative ? -exponent : exponent;
    return digits.size > 0;
}

static bool number_split(struct idem_bytes literal, struct number *ret_number)
{
    struct number number = {.negative = byte_take(&literal, "-")};

    number.whole = digits_take(&literal);
    if (number.whole.size == 0 || (number.whole.size > 1 && number.whole.data[0] == '0'))
        return false;
    if (byte_take(&literal, ".")) {
        number.fraction = digits_take(&literal);
        if (number.fraction.size == 0)
            return false;
    }
    if (byte_take(&literal, "eE") && !exponent_take(&literal, &number.exponent))
        return false;
    *ret_number = number;
    return literal.size == 0;
}

/* The i-th digit of `whole` and `fraction` written one after the other. */
static int number_digit(const struct number *number, size_t i)
{
    if (i < number->whole.size)
        return number->whole.data[i] - '0';
    assert(number->fraction.data && i - number->whole.size < number->fraction.size);
    return number->fraction.data[i - number->whole.size] - '0';
}

/* Appends one decimal digit, staying at or below the maximum. */
static bool minor_append(int64_t *minor, int digit)
{
    if (*minor > (MONEY_MINOR_MAX - digit) / 10)
        return false;
    *minor = *minor * 10 + digit;
    return true;
}

int money_parse(struct idem_bytes literal, const struct currency *currency, int64_t *ret_minor)
{
    struct number number;
    int64_t shift, minor = 0;
    size_t used;

    if (!number_split(literal, &number))
        return MONEY_MALFORMED;

    /* Zeros at the end carry no value: without them what is left tells the precision. */
    used = number.whole.size + number.fraction.size;
    while (used > 0 && number_digit(&number, used - 1) == 0)
        used--;
    if (used == 0 || number.negative)
        return MONEY_NOT_POSITIVE;

    /* The value in minor units is the `used` digits times ten to the `shift`. */
    shift = (int64_t)number.whole.size - (int64_t)used + number.exponent + currency->decimals;
    if (shift < 0)
        return MONEY_TOO_PRECISE;
    for (size_t i = 0; i < used; i++)
        if (!minor_append(&minor, number_digit(&number, i)))
            return MONEY_TOO_LARGE;
    for (; shift > 0; shift--)
        if (!minor_append(&minor, 0))
            return MONEY_TOO_LARGE;
    *ret_minor = minor;
    return 0;
}

void money_format(int64_t minor, const struct currency *currency, char ret_text[MONEY_TEXT_SIZE])
{
    int64_t unit = 1;
    int written;

    assert(minor >= 0 && minor <= MONEY_MINOR_MAX && currency->decimals <= MONEY_DECIMALS_MAX);
    for (unsigned i = 0; i < currency->decimals; i++)
        unit *= 10;
    if (currency->decimals == 0)
        written = snprintf(ret_text, MONEY_TEXT_SIZE, "%" PRId64, minor);
    else
        written = snprintf(ret_text, MONEY_TEXT_SIZE, "%" PRId64 ".%0*" PRId64, minor / unit,
                           (int)currency->decimals, minor % unit);
    assert(written > 0 && written < MONEY_TEXT_SIZE);
}
