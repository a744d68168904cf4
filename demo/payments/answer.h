/*
 * Answer: what goes back to the client, as plain data; http.c puts it on the wire.
 */
#ifndef PAYMENTS_ANSWER_H
#define PAYMENTS_ANSWER_H

#include "payments.h"
#include "request.h"

#define ANSWER_LOCATION_SIZE 64

struct answer {
    unsigned status;
    const char *content_type;
    const char *allow;   /* 405, or NULL */
    const char *outcome; /* Idempotency-Outcome: the upstream's own word to the gateway, or NULL */
    const char *retry_after;             /* or NULL */
    char location[ANSWER_LOCATION_SIZE]; /* empty when there is none */
    char *body;                          /* owned, from idem_malloc; NULL when memory ran out */
    size_t body_size;
};

/* What may be wrong with a request, as RFC 9457 problem kinds. */
enum problem {
    PROBLEM_NOT_FOUND,          /* 404 */
    PROBLEM_METHOD_NOT_ALLOWED, /* 405 */
    PROBLEM_TOO_LARGE,          /* 413 */
    PROBLEM_NOT_JSON_TYPE,      /* 415 */
    PROBLEM_NOT_JSON,           /* 400 */
    PROBLEM_INVALID,            /* 400, with `errors` */
    PROBLEM_KEY,                /* 400 */
    PROBLEM_KEY_USED,           /* 422 */
    PROBLEM_MERCHANT_ORDER,     /* 409 */
    PROBLEM_STATUS,             /* 409 */
    PROBLEM_UNAVAILABLE,        /* 503 */
    PROBLEM_INTERNAL,           /* 500: nothing was booked */
    PROBLEM_UNSURE,             /* 500: nobody can tell */
    PROBLEM_COUNT
};

/* Makes the answer of a payment. Releases nothing: answers are made once. */
void answer_payment(struct answer *ret_answer, unsigned status, const struct payment *payment);

/* Makes the answer of a problem. `detail` may be NULL, `faults` too. */
void answer_problem(struct answer *ret_answer, enum problem problem, const char *detail,
                    const struct request_faults *faults);

void answer_deinit(struct answer *answer);

#endif
