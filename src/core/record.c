#include <idem/record.h>

bool idem_reason_is_unknown(enum idem_reason reason)
{
    return reason == IDEM_REASON_INVALID ||
           ((int)reason >= IDEM_REASON_NONE && reason <= IDEM_REASON_ABORTED);
}

bool idem_record_expired_at(const struct idem_record *record, int64_t now_us)
{
    return record->expires_us != IDEM_NEVER_US && now_us >= record->expires_us;
}

bool idem_record_lapsed_at(const struct idem_record *record, int64_t now_us)
{
    uint64_t ahead_us;

    if (now_us >= record->lease_until_us)
        return true;
    /* Unsigned, because the distance of two instants need not fit a signed number. */
    ahead_us = (uint64_t)record->lease_until_us - (uint64_t)now_us;
    /*
     * A claim or renewal made by this clock ends at most one lease ahead. Twice that leaves room
     * for a small step back, which must not end a claim that is being worked on; a large one must
     * not keep the key of a dead owner busy until the clock has caught up.
     */
    return record->lease_us < 0 || ahead_us > 2 * (uint64_t)record->lease_us;
}

enum idem_state idem_record_state_at(const struct idem_record *record, int64_t now_us)
{
    if (record->state == IDEM_STATE_PROCESSING && idem_record_lapsed_at(record, now_us))
        return IDEM_STATE_UNKNOWN;
    return record->state;
}

int64_t idem_record_unknown_since_us(const struct idem_record *record)
{
    /* An abandoned record has a reason and was last written then; a lapsed one has neither. */
    if (record->state == IDEM_STATE_UNKNOWN && record->reason != IDEM_REASON_NONE)
        return record->updated_us;
    return record->lease_until_us;
}
