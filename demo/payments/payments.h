/*
 * Payments: making a payment once, finding it, and booking it back.
 *
 *   1. one transaction: the row, its moves pending → paying → success, and both ledger entries
 *   2. the key that the gateway forwards stands in a UNIQUE column: the second line of defence. A
 *      request that comes with it again gets the payment that is there, and books nothing
 *   3. (merchant_id, merchant_order_no) is UNIQUE too: a merchant's order is paid once, whatever
 * the key; order_id alone is not, an order may be paid in parts
 */
#ifndef PAYMENTS_PAYMENTS_H
#define PAYMENTS_PAYMENTS_H

#include <idem/key.h>

#include "database.h"
#include "money.h"
#include "status.h"

#define PAYMENT_NO_SIZE            28 /* "PAY", 24 hex digits, terminator */
#define ORDER_ID_SIZE_MAX          64
#define MERCHANT_ID_SIZE_MAX       32
#define MERCHANT_ORDER_NO_SIZE_MAX 64
#define PAYMENT_TIME_SIZE          32

/* What a client orders: text fields are terminated, empty when absent. */
struct payment_order {
    char order_id[ORDER_ID_SIZE_MAX + 1];
    char merchant_id[MERCHANT_ID_SIZE_MAX + 1];
    char merchant_order_no[MERCHANT_ORDER_NO_SIZE_MAX + 1];
    int64_t amount_minor;
    struct currency currency;
};

struct payment {
    int64_t id;
    char payment_no[PAYMENT_NO_SIZE];
    struct payment_order order;
    enum payment_status status;
    char created_at[PAYMENT_TIME_SIZE]; /* RFC 3339, UTC */
    char updated_at[PAYMENT_TIME_SIZE];
};

/* Outcomes besides 0. */
enum payment_outcome {
    PAYMENT_EXISTING = 1,         /* the key made this payment before; *ret_payment is set */
    PAYMENT_KEY_REUSED,           /* the key made another payment before */
    PAYMENT_MERCHANT_ORDER_TAKEN, /* another payment has this merchant's order number */
    PAYMENT_ABSENT,               /* there is none of that number */
    PAYMENT_NOT_ALLOWED,          /* its status does not allow this */
    PAYMENT_UNSURE,               /* the system failed in the commit: nobody can tell */
};

/* `key` NULL: the client sent none, and nothing but the merchant's order guards against a repeat.
 */
IDEM_MUST_CHECK int payment_create(struct database *database, const struct payment_order *order,
                                   const struct idem_key *key, struct payment *ret_payment);

IDEM_MUST_CHECK int payment_find(struct database *database, const char *payment_no,
                                 struct payment *ret_payment);

/* Books the whole payment back. Doing it again changes nothing and answers the same. */
IDEM_MUST_CHECK int payment_refund(struct database *database, const char *payment_no,
                                   struct payment *ret_payment);

#endif
