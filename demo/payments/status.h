/*
 * Status: the life of a payment.
 *
 *     pending ──▶ paying ──▶ success ──▶ refunded
 *      │   ▲        │
 *      ▼   │        ▼
 *   closed └───── failed
 *
 * Every change of a payment's status asks this table first and is then written by a statement that
 * names the status it leaves (payment_move in payments.c), so that of two that race one finds
 * nothing to change.
 */
#ifndef PAYMENTS_STATUS_H
#define PAYMENTS_STATUS_H

#include <idem/bytes.h>
#include <idem/error.h>

enum payment_status {
    PAYMENT_PENDING,  /* known, nothing has moved */
    PAYMENT_PAYING,   /* the money is on its way */
    PAYMENT_SUCCESS,  /* booked */
    PAYMENT_FAILED,   /* nothing was moved; may be tried again */
    PAYMENT_REFUNDED, /* booked back; an end */
    PAYMENT_CLOSED,   /* given up before anything moved; an end */
    PAYMENT_STATUS_COUNT
};

/* The word that the database and the API use: "pending". Never NULL. */
const char *payment_status_text(enum payment_status status);

/* Reads such a word. False when it is none. */
IDEM_MUST_CHECK bool payment_status_parse(struct idem_bytes text, enum payment_status *ret_status);

/* True when the table allows the move. */
bool payment_status_may_move(enum payment_status from, enum payment_status to);

#endif
