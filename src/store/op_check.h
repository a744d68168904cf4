/*
 * What every op must be before any store sees it: sizes within limits.h, numbers that mean
 * something.
 */
#ifndef IDEM_STORE_OP_CHECK_H
#define IDEM_STORE_OP_CHECK_H

#include <idem/op.h>

/* IDEM_ERR_INVALID with a sentence when the op's inputs are not allowed. */
IDEM_MUST_CHECK int idem_op_check(const struct idem_op *op, struct idem_message *message);

#endif
