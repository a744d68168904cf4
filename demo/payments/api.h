/*
 * API: one whole request in, one answer out. Knows paths, methods and payments, and nothing of
 * sockets.
 *
 *     POST      /api/v1/payments                       make a payment
 *     GET HEAD  /api/v1/payments/{payment_no}          look at it
 *     POST      /api/v1/payments/{payment_no}/refund   book it back
 */
#ifndef PAYMENTS_API_H
#define PAYMENTS_API_H

#include "answer.h"

struct api_request {
    const char *method, *path;
    const char *content_type; /* or NULL */
    const char *key;          /* the first Idempotency-Key line, or NULL */
    unsigned key_lines;       /* how many of them there are */
    bool too_large;           /* the body is over the maximum and was not kept */
    struct idem_bytes body;
};

/* Never fails: whatever goes wrong is an answer. An answer without memory for a body has none. */
void api_answer(struct database *database, const struct api_request *request,
                struct answer *ret_answer);

#endif
