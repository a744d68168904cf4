/*
 * Ledger: double entry. What leaves one account arrives in another, in the same transaction, so
 * that the entries of every payment, and of the whole ledger, add up to zero.
 */
#ifndef PAYMENTS_LEDGER_H
#define PAYMENTS_LEDGER_H

#include "payments.h"

/*
 * Books the payment's amount from the clearing account of its currency (what the channel owes us)
 * to the merchant's account, or back. Called inside a transaction. The database refuses a second
 * booking of the same kind for one payment.
 */
IDEM_MUST_CHECK int ledger_book_payment(struct database *database, const struct payment *payment);
IDEM_MUST_CHECK int ledger_book_refund(struct database *database, const struct payment *payment);

#endif
