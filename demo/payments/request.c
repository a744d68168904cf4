/*
 * jansson checks the body and reads its strings. It would turn `100.10` into a binary float,
 * though, and a float is not what the client wrote. Therefore the amount's literal is found in the
 * text once more, by a scanner that may be small because jansson has already proved the text to be
 * valid JSON without a member that stands twice; money.c then reads the literal digit by digit.
 */
#include "request.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>

static void fault_add(struct request_faults *faults, const char *field, const char *detail)
{
    assert(faults->count < REQUEST_FAULTS_MAX);
    faults->items[faults->count++] = (struct request_fault){field, detail};
}

static bool space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* `at` is at an opening quote. Returns the position after the closing one. */
static size_t string_skip(struct idem_bytes text, size_t at)
{
    for (at++; at < text.size && text.data[at] != '"'; at++)
        if (text.data[at] == '\\')
            at++;
    return at + 1;
}

static size_t space_skip(struct idem_bytes text, size_t at)
{
    while (at < text.size && space(text.data[at]))
        at++;
    return at;
}

/* The number that starts at `at`, or an empty view when something else does. */
static struct idem_bytes number_at(struct idem_bytes text, size_t at)
{
    size_t size = 0;

    while (at + size < text.size && text.data[at + size] &&
           strchr("+-.0123456789eE", text.data[at + size]))
        size++;
    if (size > 0 && (text.data[at] == 'e' || text.data[at] == 'E'))
        size = 0;
    return idem_bytes_make(text.data + at, size);
}

struct idem_bytes request_number_literal(struct idem_bytes text, const char *name)
{
    struct idem_bytes wanted = idem_bytes_from_text(name);
    unsigned depth = 0;
    size_t at = 0, end;

    while (at < text.size) {
        uint8_t byte = text.data[at];

        if (byte != '"') {
            depth += byte == '{' || byte == '[';
            depth -= byte == '}' || byte == ']';
            at++;
            continue;
        }
        end = string_skip(text, at);
        if (end > text.size)
            break;
        /* In the top-level object a string before a colon is the name of a member. */
        struct idem_bytes string = idem_bytes_make(text.data + at + 1, end - at - 2);
        at = space_skip(text, end);
        if (depth == 1 && at < text.size && text.data[at] == ':' &&
            idem_bytes_equal(string, wanted))
            return number_at(text, space_skip(text, at + 1));
    }
    return idem_bytes_make(NULL, 0);
}

static bool printable(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return true;
}

/* Copies a string member of 1 to size - 1 bytes without control characters. False when it is not.
 */
static bool string_copy(const json_t *value, char *ret_text, size_t size)
{
    size_t length = json_string_length(value);

    if (!json_is_string(value) || length == 0 || length >= size ||
        !printable(json_string_value(value), length))
        return false;
    memcpy(ret_text, json_string_value(value), length + 1);
    return true;
}

static const char *amount_text(int outcome)
{
    switch (outcome) {
    case MONEY_NOT_POSITIVE:
        return "must be more than zero";
    case MONEY_TOO_PRECISE:
        return "has more decimals than the currency";
    case MONEY_TOO_LARGE:
        return "is over the maximum of 999999999999 of the currency's smallest units";
    default:
        return "must be a JSON number, its name written without escapes";
    }
}

static void amount_read(const json_t *body, struct idem_bytes text, bool currency_known,
                        struct payment_order *order, struct request_faults *faults)
{
    /* Without a currency only what no currency allows can be told. */
    struct currency widest = {"", MONEY_DECIMALS_MAX};
    const json_t *value = json_object_get(body, "amount");
    int outcome;

    if (!value) {
        fault_add(faults, "amount", "is missing");
        return;
    }
    outcome = json_is_number(value)
                  ? money_parse(request_number_literal(text, "amount"),
                                currency_known ? &order->currency : &widest, &order->amount_minor)
                  : MONEY_MALFORMED;
    if (outcome)
        fault_add(faults, "amount", amount_text(outcome));
}

static bool currency_read(const json_t *body, struct payment_order *order,
                          struct request_faults *faults)
{
    const json_t *value = json_object_get(body, "currency");

    if (json_is_string(value) &&
        currency_find(idem_bytes_make(json_string_value(value), json_string_length(value)),
                      &order->currency))
        return true;
    fault_add(faults, "currency",
              value ? "must be the ISO 4217 code of a currency in use, such as CNY" : "is missing");
    return false;
}

/* The merchant's pair: both or neither, for half of it would guard nothing. */
static void merchant_read(const json_t *body, struct payment_order *order,
                          struct request_faults *faults)
{
    const json_t *id = json_object_get(body, "merchant_id");
    const json_t *number = json_object_get(body, "merchant_order_no");

    if (id && !string_copy(id, order->merchant_id, sizeof(order->merchant_id)))
        fault_add(faults, "merchant_id",
                  "must be a string of 1 to 32 bytes without control characters");
    if (number && !string_copy(number, order->merchant_order_no, sizeof(order->merchant_order_no)))
        fault_add(faults, "merchant_order_no",
                  "must be a string of 1 to 64 bytes without control characters");
    if (id && !number)
        fault_add(faults, "merchant_order_no", "is missing: it goes together with merchant_id");
    if (number && !id)
        fault_add(faults, "merchant_id", "is missing: it goes together with merchant_order_no");
}

static void members_read(const json_t *body, struct idem_bytes text, struct payment_order *order,
                         struct request_faults *faults)
{
    const json_t *order_id = json_object_get(body, "order_id");
    bool currency_known;

    if (!order_id)
        fault_add(faults, "order_id", "is missing");
    else if (!string_copy(order_id, order->order_id, sizeof(order->order_id)))
        fault_add(faults, "order_id",
                  "must be a string of 1 to 64 bytes without control characters");
    currency_known = currency_read(body, order, faults);
    amount_read(body, text, currency_known, order, faults);
    merchant_read(body, order, faults);
}

int request_parse(struct idem_bytes body, struct payment_order *ret_order,
                  struct request_faults *ret_faults)
{
    struct request_faults faults = {0};
    struct payment_order order = {.order_id = ""};
    json_error_t error;
    json_t *json;

    if (body.size == 0) {
        snprintf(ret_faults->syntax, sizeof(ret_faults->syntax), "the body is empty");
        return REQUEST_NOT_JSON;
    }
    /* Integers as reals: an amount of twenty digits is too large, not a syntax error. */
    json = json_loadb((const char *)body.data, body.size,
                      JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (!json && json_error_code(&error) == json_error_out_of_memory)
        return IDEM_ERR_NOMEM;
    if (!json_is_object(json)) {
        if (json)
            snprintf(faults.syntax, sizeof(faults.syntax), "the body must be a JSON object");
        else
            snprintf(faults.syntax, sizeof(faults.syntax), "line %d, column %d: %s", error.line,
                     error.column, error.text);
        json_decref(json);
        *ret_faults = faults;
        return REQUEST_NOT_JSON;
    }
    members_read(json, body, &order, &faults);
    json_decref(json);
    if (faults.count > 0) {
        *ret_faults = faults;
        return REQUEST_INVALID;
    }
    *ret_order = order;
    return 0;
}
