/*
 * Money: an amount is a whole number of a currency's smallest unit, never a floating-point number.
 *
 * JSON writes an amount as a number: `100.00`, `1e2`. Its literal is read here digit by digit, so
 * that what is booked is exactly what was written: 0.1 + 0.2 has no place in a ledger.
 */
#ifndef PAYMENTS_MONEY_H
#define PAYMENTS_MONEY_H

#include <idem/bytes.h>
#include <idem/error.h>

/* The most that one payment may move, in minor units: twelve digits, as DECIMAL(12, 2) holds. */
#define MONEY_MINOR_MAX INT64_C(999999999999)

#define MONEY_DECIMALS_MAX 4  /* of any currency in the table */
#define MONEY_TEXT_SIZE    24 /* bytes in a formatted amount, terminator included */

struct currency {
    char code[4];      /* ISO 4217, upper case, terminated */
    unsigned decimals; /* digits after the point: JPY 0, CNY 2, KWD 3 */
};

/* Outcomes of money_parse besides 0. */
enum money_outcome {
    MONEY_MALFORMED = 1, /* not a number of the JSON grammar (RFC 8259, 6) */
    MONEY_NOT_POSITIVE,  /* zero, or below it */
    MONEY_TOO_PRECISE,   /* it has a fraction of the smallest unit */
    MONEY_TOO_LARGE,     /* over MONEY_MINOR_MAX */
};

/* Finds an active ISO 4217 currency by its exact code. False when there is none of that name. */
IDEM_MUST_CHECK bool currency_find(struct idem_bytes code, struct currency *ret_currency);

/*
 * Reads the literal of a JSON number as minor units of the currency. The value decides, not its
 * spelling: in CNY `1e2`, `100`, `100.0` and `100.000` are all 10000 fen, `0.001` is too precise.
 * Pure. 0 and *ret_minor, or a money_outcome.
 */
IDEM_MUST_CHECK int money_parse(struct idem_bytes literal, const struct currency *currency,
                                int64_t *ret_minor);

/* Writes minor units with exactly the currency's decimals: "100.00", "100", "0.005". */
void money_format(int64_t minor, const struct currency *currency, char ret_text[MONEY_TEXT_SIZE]);

#endif
