#include "api.h"

#include <stdio.h>
#include <strings.h>

#define PAYMENTS_PATH "/api/v1/payments"
#define REFUND_SUFFIX "/refund"

/* What a path names. */
enum route { ROUTE_NONE, ROUTE_PAYMENTS, ROUTE_PAYMENT, ROUTE_REFUND };

static enum route route_find(const char *path, char ret_payment_no[PAYMENT_NO_SIZE])
{
    const size_t number_size = PAYMENT_NO_SIZE - 1;
    const char *number, *rest;

    if (strncmp(path, PAYMENTS_PATH, strlen(PAYMENTS_PATH)) != 0)
        return ROUTE_NONE;
    rest = path + strlen(PAYMENTS_PATH);
    if (*rest == '\0')
        return ROUTE_PAYMENTS;
    number = rest + 1;
    if (*rest != '/' || strnlen(number, number_size) < number_size ||
        memchr(number, '/', number_size))
        return ROUTE_NONE;
    memcpy(ret_payment_no, number, number_size);
    ret_payment_no[number_size] = '\0';
    rest = number + number_size;
    if (*rest == '\0')
        return ROUTE_PAYMENT;
    return strcmp(rest, REFUND_SUFFIX) == 0 ? ROUTE_REFUND : ROUTE_NONE;
}

/* "application/json", any case, parameters ignored: JSON is UTF-8 whatever they say (RFC 8259, 8).
 */
static bool content_type_is_json(const char *value)
{
    static const char json[] = "application/json";

    if (!value || strncasecmp(value, json, strlen(json)) != 0)
        return false;
    value += strlen(json);
    value += strspn(value, " \t");
    return *value == '\0' || *value == ';';
}

static const char *key_problem(const struct api_request *request, struct idem_key *ret_key)
{
    int outcome;

    if (request->key_lines > 1)
        return "there is more than one Idempotency-Key line";
    outcome = idem_key_parse(idem_bytes_from_text(request->key), IDEM_KEY_LENIENT,
                             IDEM_KEY_SIZE_DEFAULT, ret_key);
    return outcome ? idem_key_outcome_text(outcome) : NULL;
}

static void answer_error(struct answer *answer, int error)
{
    fprintf(stderr, "payments: %s\n", idem_error_text(error));
    answer_problem(answer, error == IDEM_ERR_UNAVAILABLE ? PROBLEM_UNAVAILABLE : PROBLEM_INTERNAL,
                   "Nothing was booked.", NULL);
}

static void answer_outcome(struct answer *answer, int outcome)
{
    switch (outcome) {
    case PAYMENT_ABSENT:
        answer_problem(answer, PROBLEM_NOT_FOUND, "There is no payment of that number.", NULL);
        break;
    case PAYMENT_KEY_REUSED:
        answer_problem(answer, PROBLEM_KEY_USED, "Use a new key for another payment.", NULL);
        break;
    case PAYMENT_MERCHANT_ORDER_TAKEN:
        /* The body names the merchant, but nothing proves that the caller is it: the number of the
         * payment that is there is not told. */
        answer_problem(answer, PROBLEM_MERCHANT_ORDER,
                       "merchant_id and merchant_order_no together name one payment.", NULL);
        break;
    case PAYMENT_NOT_ALLOWED:
        answer_problem(answer, PROBLEM_STATUS, "Only a payment in status success can be refunded.",
                       NULL);
        break;
    case PAYMENT_UNSURE:
        answer_problem(answer, PROBLEM_UNSURE, "Look the order up before trying again.", NULL);
        break;
    default:
        answer_error(answer, outcome);
    }
}

static void payments_post(struct database *database, const struct api_request *request,
                          struct answer *ret_answer)
{
    struct request_faults faults;
    struct payment_order order;
    struct payment payment;
    struct idem_key key;
    const char *detail = request->key ? key_problem(request, &key) : NULL;
    int outcome;

    if (detail) {
        answer_problem(ret_answer, PROBLEM_KEY, detail, NULL);
        return;
    }
    if (!content_type_is_json(request->content_type)) {
        answer_problem(ret_answer, PROBLEM_NOT_JSON_TYPE, NULL, NULL);
        return;
    }
    outcome = request_parse(request->body, &order, &faults);
    if (outcome == REQUEST_NOT_JSON) {
        answer_problem(ret_answer, PROBLEM_NOT_JSON, faults.syntax, NULL);
        return;
    }
    if (outcome == REQUEST_INVALID) {
        answer_problem(ret_answer, PROBLEM_INVALID, "See errors for each member.", &faults);
        return;
    }
    if (outcome == 0)
        outcome = payment_create(database, &order, request->key ? &key : NULL, &payment);
    if (outcome != 0 && outcome != PAYMENT_EXISTING) {
        answer_outcome(ret_answer, outcome);
        return;
    }
    answer_payment(ret_answer, outcome == 0 ? 201 : 200, &payment);
    snprintf(ret_answer->location, sizeof(ret_answer->location), PAYMENTS_PATH "/%s",
             payment.payment_no);
}

static void payment_get(struct database *database, const char *payment_no,
                        struct answer *ret_answer)
{
    struct payment payment;
    int outcome = payment_find(database, payment_no, &payment);

    if (outcome)
        answer_outcome(ret_answer, outcome);
    else
        answer_payment(ret_answer, 200, &payment);
}

static void refund_post(struct database *database, const char *payment_no,
                        struct answer *ret_answer)
{
    struct payment payment;
    int outcome = payment_refund(database, payment_no, &payment);

    if (outcome)
        answer_outcome(ret_answer, outcome);
    else
        answer_payment(ret_answer, 200, &payment);
}

static bool method_is(const struct api_request *request, const char *method)
{
    return strcmp(request->method, method) == 0;
}

void api_answer(struct database *database, const struct api_request *request,
                struct answer *ret_answer)
{
    char payment_no[PAYMENT_NO_SIZE];
    enum route route = route_find(request->path, payment_no);
    bool reading = method_is(request, "GET") || method_is(request, "HEAD");

    if (route == ROUTE_NONE) {
        answer_problem(ret_answer, PROBLEM_NOT_FOUND, NULL, NULL);
    } else if (route == ROUTE_PAYMENT ? !reading : !method_is(request, "POST")) {
        answer_problem(ret_answer, PROBLEM_METHOD_NOT_ALLOWED, NULL, NULL);
        ret_answer->allow = route == ROUTE_PAYMENT ? "GET, HEAD" : "POST";
    } else if (request->too_large) {
        answer_problem(ret_answer, PROBLEM_TOO_LARGE, "At most 65536 bytes are read.", NULL);
    } else if (route == ROUTE_PAYMENTS) {
        payments_post(database, request, ret_answer);
    } else if (route == ROUTE_PAYMENT) {
        payment_get(database, payment_no, ret_answer);
    } else {
        refund_post(database, payment_no, ret_answer);
    }
}
