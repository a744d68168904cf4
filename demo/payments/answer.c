#include "answer.h"

#include <assert.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/memory.h"

/* Bytes in any answer: text fields hold at most 64, each of them at most six when escaped. */
#define BODY_SIZE_MAX 4096

/* A JSON text in the making. Past the end, or when memory ran out, `failed` is set and stays. */
struct text {
    char *data;
    size_t size;
    bool failed;
};

static void text_add(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void text_add(struct text *text, const char *format, ...)
{
    va_list arguments;
    int size;

    if (text->failed)
        return;
    va_start(arguments, format);
    size = vsnprintf(text->data + text->size, BODY_SIZE_MAX - text->size, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= BODY_SIZE_MAX - text->size)
        text->failed = true;
    else
        text->size += (size_t)size;
}

/* Adds `"name":"value"` with the value escaped by jansson; `value` is UTF-8. */
static void text_add_string(struct text *text, const char *name, const char *value)
{
    json_t *string = json_string(value);
    size_t size;

    text_add(text, "\"%s\":", name);
    if (!string) {
        text->failed = true;
    } else if (!text->failed) {
        size = json_dumpb(string, text->data + text->size, BODY_SIZE_MAX - text->size,
                          JSON_ENCODE_ANY);
        if (size == 0 || size >= BODY_SIZE_MAX - text->size)
            text->failed = true;
        else
            text->size += size;
    }
    json_decref(string);
}

static void text_begin(struct text *text)
{
    *text = (struct text){.data = idem_malloc(BODY_SIZE_MAX)};
    text->failed = text->data == NULL;
}

static void text_end(struct text *text, struct answer *answer)
{
    if (text->failed) {
        idem_free(text->data);
        return;
    }
    answer->body = text->data;
    answer->body_size = text->size;
}

void answer_payment(struct answer *ret_answer, unsigned status, const struct payment *payment)
{
    const struct payment_order *order = &payment->order;
    char amount[MONEY_TEXT_SIZE];
    struct text text;

    *ret_answer =
        (struct answer){.status = status, .content_type = "application/json", .outcome = "final"};
    money_format(order->amount_minor, &order->currency, amount);

    text_begin(&text);
    text_add(&text, "{\"payment_no\":\"%s\",\"status\":\"%s\",", payment->payment_no,
             payment_status_text(payment->status));
    text_add_string(&text, "order_id", order->order_id);
    if (order->merchant_id[0]) {
        text_add(&text, ",");
        text_add_string(&text, "merchant_id", order->merchant_id);
        text_add(&text, ",");
        text_add_string(&text, "merchant_order_no", order->merchant_order_no);
    }
    text_add(&text,
             ",\"amount\":%s,\"currency\":\"%s\",\"created_at\":\"%s\",\"updated_at\":\"%s\"}\n",
             amount, order->currency.code, payment->created_at, payment->updated_at);
    text_end(&text, ret_answer);
}

struct problem_kind {
    unsigned status;
    const char *name, *title;
    const char *retry; /* what the client may do: "same-key", "new-key", "no" */
    const char *outcome, *retry_after;
};

static const struct problem_kind kinds[PROBLEM_COUNT] = {
    [PROBLEM_NOT_FOUND] = {404, "not-found", "There is nothing here", "no", "final", NULL},
    [PROBLEM_METHOD_NOT_ALLOWED] = {405, "method-not-allowed", "The method is not allowed here",
                                    "no", "final", NULL},
    [PROBLEM_TOO_LARGE] = {413, "too-large", "The body is too large", "new-key", "final", NULL},
    [PROBLEM_NOT_JSON_TYPE] = {415, "unsupported-media-type", "The body must be application/json",
                               "new-key", "final", NULL},
    [PROBLEM_NOT_JSON] = {400, "not-json", "The body is not valid JSON", "new-key", "final", NULL},
    [PROBLEM_INVALID] = {400, "invalid-payment", "The payment is not valid", "new-key", "final",
                         NULL},
    [PROBLEM_KEY] = {400, "key-malformed", "The Idempotency-Key is not valid", "new-key", "final",
                     NULL},
    [PROBLEM_KEY_USED] = {422, "key-reused", "The Idempotency-Key was used for another payment",
                          "new-key", "final", NULL},
    [PROBLEM_MERCHANT_ORDER] = {409, "merchant-order-taken",
                                "The merchant's order has a payment already", "no", "final", NULL},
    [PROBLEM_STATUS] = {409, "not-refundable", "The payment cannot be refunded in its status", "no",
                        "final", NULL},
    [PROBLEM_UNAVAILABLE] = {503, "unavailable", "The database is busy", "same-key", "failed", "1"},
    [PROBLEM_INTERNAL] = {500, "internal", "The payment could not be recorded", "same-key",
                          "failed", NULL},
    [PROBLEM_UNSURE] = {500, "unsure", "It is not known whether the payment was recorded", "no",
                        "unknown", NULL},
};

void answer_problem(struct answer *ret_answer, enum problem problem, const char *detail,
                    const struct request_faults *faults)
{
    const struct problem_kind *kind = &kinds[problem];
    struct text text;

    assert(problem < PROBLEM_COUNT);
    *ret_answer = (struct answer){.status = kind->status,
                                  .content_type = "application/problem+json",
                                  .outcome = kind->outcome,
                                  .retry_after = kind->retry_after};
    text_begin(&text);
    text_add(&text, "{\"type\":\"urn:idem:demo:problem:%s\",\"title\":\"%s\",\"status\":%u,",
             kind->name, kind->title, kind->status);
    if (detail) {
        text_add_string(&text, "detail", detail);
        text_add(&text, ",");
    }
    text_add(&text, "\"retry\":\"%s\"", kind->retry);
    for (size_t i = 0; faults && i < faults->count; i++) {
        text_add(&text, i == 0 ? ",\"errors\":[{" : ",{");
        text_add_string(&text, "field", faults->items[i].field);
        text_add(&text, ",");
        text_add_string(&text, "detail", faults->items[i].detail);
        text_add(&text, i + 1 == faults->count ? "}]" : "}");
    }
    text_add(&text, "}\n");
    text_end(&text, ret_answer);
}

void answer_deinit(struct answer *answer)
{
    idem_free(answer->body);
    answer->body = NULL;
}
