#include "status.h"

#include <assert.h>

static const char *const words[PAYMENT_STATUS_COUNT] = {
    [PAYMENT_PENDING] = "pending", [PAYMENT_PAYING] = "paying",     [PAYMENT_SUCCESS] = "success",
    [PAYMENT_FAILED] = "failed",   [PAYMENT_REFUNDED] = "refunded", [PAYMENT_CLOSED] = "closed",
};

#define TO(status) (1u << (status))

/* From each status, the set of those it may move to. An end has none. */
static const unsigned moves[PAYMENT_STATUS_COUNT] = {
    [PAYMENT_PENDING] = TO(PAYMENT_PAYING) | TO(PAYMENT_CLOSED),
    [PAYMENT_PAYING] = TO(PAYMENT_SUCCESS) | TO(PAYMENT_FAILED),
    [PAYMENT_SUCCESS] = TO(PAYMENT_REFUNDED),
    [PAYMENT_FAILED] = TO(PAYMENT_PENDING),
    [PAYMENT_REFUNDED] = 0,
    [PAYMENT_CLOSED] = 0,
};

const char *payment_status_text(enum payment_status status)
{
    assert(status < PAYMENT_STATUS_COUNT);
    return words[status];
}

bool payment_status_parse(struct idem_bytes text, enum payment_status *ret_status)
{
    for (unsigned i = 0; i < PAYMENT_STATUS_COUNT; i++) {
        if (!idem_bytes_equal(text, idem_bytes_from_text(words[i])))
            continue;
        *ret_status = (enum payment_status)i;
        return true;
    }
    return false;
}

bool payment_status_may_move(enum payment_status from, enum payment_status to)
{
    assert(from < PAYMENT_STATUS_COUNT && to < PAYMENT_STATUS_COUNT);
    return (moves[from] & TO(to)) != 0;
}
