#include <idem/policy.h>

#include "base/ascii.h"

#define STATUS_MIN 100 /* RFC 9110, 15: three digits, the first one 1 to 5 */
#define STATUS_END 600

static bool text_equals(struct idem_bytes text, const char *lower)
{
    if (text.size != strlen(lower))
        return false;
    for (size_t i = 0; i < text.size; i++)
        if (idem_to_lower(text.data[i]) != lower[i])
            return false;
    return true;
}

enum idem_outcome idem_outcome_parse(struct idem_bytes text)
{
    text = idem_bytes_trim(text);
    if (text_equals(text, "final"))
        return IDEM_OUTCOME_FINAL;
    if (text_equals(text, "failed"))
        return IDEM_OUTCOME_FAILED;
    if (text_equals(text, "unknown"))
        return IDEM_OUTCOME_UNKNOWN;
    return IDEM_OUTCOME_UNSET;
}

static void outcomes_fill(struct idem_policy *policy, unsigned first, unsigned end,
                          enum idem_outcome outcome)
{
    for (unsigned status = first; status < end; status++)
        policy->outcomes[status] = (uint8_t)outcome;
}

void idem_policy_init(struct idem_policy *policy)
{
    /* Refused before it took effect: a credential, a proxy's credential, a slow request, too early,
     * too often. Each may be sent again as it is, or with a fresh credential. */
    static const uint16_t failed[] = {401, 403, 407, 408, 425, 429};
    /* A hop behind the upstream lost sight of the request. */
    static const uint16_t unknown[] = {502, 504};

    memset(policy, 0, sizeof *policy);
    policy->ttl_us = IDEM_TTL_US_DEFAULT;
    policy->lease_us = IDEM_LEASE_US_DEFAULT;
    policy->unknown_ttl_us = IDEM_UNKNOWN_TTL_US_DEFAULT;
    policy->body_size_max = IDEM_BODY_SIZE_DEFAULT;
    policy->unknown = IDEM_UNKNOWN_HOLD;
    outcomes_fill(policy, STATUS_MIN, 200, IDEM_OUTCOME_UNKNOWN);
    outcomes_fill(policy, 200, 500, IDEM_OUTCOME_FINAL);
    outcomes_fill(policy, 500, STATUS_END, IDEM_OUTCOME_FAILED);
    for (size_t i = 0; i < sizeof failed / sizeof failed[0]; i++)
        policy->outcomes[failed[i]] = IDEM_OUTCOME_FAILED;
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        policy->outcomes[unknown[i]] = IDEM_OUTCOME_UNKNOWN;
}

static bool ttl_valid(int64_t ttl_us)
{
    return ttl_us == IDEM_NEVER_US || (ttl_us > 0 && ttl_us <= IDEM_TTL_US_MAX);
}

static const char *lengths_breach(const struct idem_policy *policy)
{
    if (!ttl_valid(policy->ttl_us) || !ttl_valid(policy->unknown_ttl_us))
        return "a ttl is longer than nothing, and at most 100 years or for ever";
    if (policy->lease_us < IDEM_LEASE_US_MIN || policy->lease_us > IDEM_LEASE_US_MAX)
        return "a lease lasts from a tenth of a second to a day";
    if (policy->wait_us < 0 || policy->wait_us > IDEM_WAIT_US_MAX)
        return "a request waits for one that runs for at most an hour";
    if (policy->body_size_max > IDEM_BODY_SIZE_MAX)
        return "an answer body of at most 64 megabytes is kept";
    return NULL;
}

/* What only a probe has use for, and that a probe comes before the record is gone. */
static const char *unknown_breach(const struct idem_policy *policy)
{
    if (policy->unknown < IDEM_UNKNOWN_HOLD || policy->unknown > IDEM_UNKNOWN_PROBE)
        return "what is unknown is held, retried or probed";
    if (policy->unknown != IDEM_UNKNOWN_PROBE && (policy->settle_us != 0 || policy->trust))
        return "to settle and to trust are for a probe: name what to ask, or leave them out";
    if (policy->settle_us < 0 || policy->settle_us >= policy->unknown_ttl_us)
        return "what is unknown is kept for longer than it takes to settle: a longer ttl for "
               "unknowns, or less time to settle";
    return NULL;
}

int idem_policy_check(const struct idem_policy *policy, struct idem_message *message)
{
    const char *breach = lengths_breach(policy);

    if (breach == NULL)
        breach = unknown_breach(policy);
    if (breach == NULL)
        return IDEM_OK;
    idem_message_set(message, "%s", breach);
    return IDEM_ERR_INVALID;
}

static bool outcome_valid(enum idem_outcome outcome)
{
    return outcome == IDEM_OUTCOME_FINAL || outcome == IDEM_OUTCOME_FAILED ||
           outcome == IDEM_OUTCOME_UNKNOWN;
}

/* "409" is 409 to 410, "4xx" is 400 to 500. */
static int statuses_parse(struct idem_bytes text, unsigned *ret_first, unsigned *ret_end)
{
    unsigned hundreds;

    if (text.size != 3 || text.data[0] < '2' || text.data[0] > '5')
        return IDEM_ERR_INVALID;
    hundreds = 100u * (unsigned)(text.data[0] - '0');
    if (idem_to_lower(text.data[1]) == 'x' && idem_to_lower(text.data[2]) == 'x') {
        *ret_first = hundreds;
        *ret_end = hundreds + 100;
        return IDEM_OK;
    }
    if (!idem_is_digit(text.data[1]) || !idem_is_digit(text.data[2]))
        return IDEM_ERR_INVALID;
    *ret_first = hundreds + 10u * (unsigned)(text.data[1] - '0') + (unsigned)(text.data[2] - '0');
    *ret_end = *ret_first + 1;
    return IDEM_OK;
}

int idem_policy_set_outcome(struct idem_policy *policy, struct idem_bytes statuses,
                            enum idem_outcome outcome)
{
    unsigned first, end;
    int error = statuses_parse(statuses, &first, &end);

    if (error != IDEM_OK)
        return error;
    if (!outcome_valid(outcome))
        return IDEM_ERR_INVALID;
    outcomes_fill(policy, first, end, outcome);
    return IDEM_OK;
}

enum idem_outcome idem_policy_outcome(const struct idem_policy *policy, unsigned status,
                                      enum idem_outcome declared)
{
    if (outcome_valid(declared))
        return declared;
    /* An answer with a status that HTTP does not have tells nothing about its operation. */
    if (status < STATUS_MIN || status >= STATUS_END)
        return IDEM_OUTCOME_UNKNOWN;
    if (policy->outcomes[status] == IDEM_OUTCOME_UNSET)
        return IDEM_OUTCOME_UNKNOWN;
    return (enum idem_outcome)policy->outcomes[status];
}
