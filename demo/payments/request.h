/*
 * Request: the JSON body of `POST /api/v1/payments` becomes a payment_order, or a list of what is
 * wrong with it, one entry a member, so that a client can mend everything at once.
 */
#ifndef PAYMENTS_REQUEST_H
#define PAYMENTS_REQUEST_H

#include "payments.h"

#define REQUEST_FAULTS_MAX 8

struct request_fault {
    const char *field;
    const char *detail; /* a sentence that says what is allowed */
};

struct request_faults {
    size_t count;
    struct request_fault items[REQUEST_FAULTS_MAX];
    char syntax[256]; /* REQUEST_NOT_JSON: where and what */
};

/* Outcomes besides 0. */
enum request_outcome {
    REQUEST_NOT_JSON =
        1,           /* not a JSON object, or a member stands in it twice; `syntax` says where */
    REQUEST_INVALID, /* a member is wrong or missing: `items` */
};

/*
 * Members that are not known are ignored. 0 and *ret_order; an outcome and *ret_faults; negative
 * when memory ran out.
 */
IDEM_MUST_CHECK int request_parse(struct idem_bytes body, struct payment_order *ret_order,
                                  struct request_faults *ret_faults);

/*
 * The literal of a number that is a member of the top-level object, as it stands in `text`; empty
 * when there is none of that name, or it is no number, or its name is written with escapes. `text`
 * must be valid JSON. Exported for its test.
 */
struct idem_bytes request_number_literal(struct idem_bytes text, const char *name);

#endif
