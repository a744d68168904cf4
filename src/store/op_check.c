#include "store/op_check.h"

#include <idem/limits.h>

static const char *claim_fault(const struct idem_claim *in)
{
    if (!idem_kind_text(in->kind))
        return "its kind is none of those known";
    if (in->scope.size > IDEM_SCOPE_SIZE_MAX)
        return "its scope is too long";
    if (in->key.size > IDEM_KEY_SIZE_MAX)
        return "its key is too long";
    if (in->fingerprint.algorithm > IDEM_FINGERPRINT_RAW)
        return "its fingerprint's algorithm is none of those known";
    if (in->lease_us < 0 || in->lease_us > IDEM_LEASE_US_MAX)
        return "its lease is negative or longer than a day";
    if (in->ttl_us < 0 || in->unknown_ttl_us < 0)
        return "its ttl is negative";
    if (in->take > IDEM_TAKE_ANY)
        return "its way to take an unknown is none of those known";
    return NULL;
}

static const char *renew_fault(const struct idem_renew *in)
{
    if (in->lease_us < 0 || in->lease_us > IDEM_LEASE_US_MAX)
        return "its lease is negative or longer than a day";
    return in->unknown_ttl_us < 0 ? "its ttl is negative" : NULL;
}

/* The codec knows what an answer may be; an otherwise empty record asks it. */
static const char *answer_fault(const struct idem_answer *answer)
{
    struct idem_record record = {
        .kind = IDEM_KIND_HTTP,
        .state = IDEM_STATE_COMPLETED,
        .answer = *answer,
    };
    size_t size;

    return idem_record_size(&record, &size) ? "its answer has no valid status, a damaged header "
                                              "block or a part over its maximum"
                                            : NULL;
}

static const char *verdict_fault(enum idem_op_kind kind, const struct idem_verdict *in)
{
    if (kind == IDEM_OP_ABANDON)
        return !idem_reason_is_unknown(in->reason) ? "its reason is none of those of an unknown"
                                                   : NULL;
    if (in->ttl_us < 0)
        return "its ttl is negative";
    if (kind == IDEM_OP_COMPLETE)
        return answer_fault(&in->answer);
    if (in->lease_us < 0 || in->lease_us > IDEM_LEASE_US_MAX)
        return "its lease is negative or longer than a day";
    return NULL;
}

static const char *people_fault(struct idem_bytes who, struct idem_bytes why)
{
    if (who.size > IDEM_WHO_SIZE_MAX)
        return "the name of who asks is too long";
    return why.size > IDEM_WHY_SIZE_MAX ? "the reason why is too long" : NULL;
}

static const char *resolve_fault(const struct idem_resolve *in)
{
    /* Without status and tombstone it is "executed, no answer known", which the rules complete. */
    bool told = in->answer.status != 0 || in->answer.tombstone != IDEM_REASON_NONE;
    const char *fault = people_fault(in->who, in->why);

    if (!fault && in->ttl_us < 0)
        fault = "its ttl is negative";
    if (!fault && in->completed && told)
        fault = answer_fault(&in->answer);
    return fault;
}

static const char *limit_fault(uint32_t limit)
{
    return limit < 1 || limit > IDEM_SCAN_MAX ? "its limit is not between 1 and the maximum" : NULL;
}

/* A record that is copied must be one that the codec takes; its state has no say in that. */
static const char *put_fault(const struct idem_op *op)
{
    const struct idem_record *record = &op->in.put.record;
    size_t size;

    if (!idem_id_equal(&record->id, &op->id))
        return "its record has another id";
    return idem_record_size(record, &size) ? "its record has a part over its maximum or a number "
                                             "that is none of those known"
                                           : NULL;
}

static const char *op_fault(const struct idem_op *op)
{
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        return claim_fault(&op->in.claim);
    case IDEM_OP_RENEW:
        return renew_fault(&op->in.renew);
    case IDEM_OP_COMPLETE:
    case IDEM_OP_FAIL:
    case IDEM_OP_ABANDON:
        return verdict_fault(op->kind, &op->in.verdict);
    case IDEM_OP_GET:
        return op->in.get.match && op->in.get.fingerprint.algorithm > IDEM_FINGERPRINT_RAW
                   ? "its fingerprint's algorithm is none of those known"
                   : NULL;
    case IDEM_OP_RESOLVE:
        return resolve_fault(&op->in.resolve);
    case IDEM_OP_FORGET:
        return people_fault(op->in.forget.who, op->in.forget.why);
    case IDEM_OP_SCAN:
        return op->in.scan.prefix_digits > 2 * IDEM_ID_SIZE ? "its prefix is longer than an id"
                                                            : limit_fault(op->in.scan.limit);
    case IDEM_OP_AUDIT:
        return limit_fault(op->in.audit.limit);
    case IDEM_OP_PUT:
        return put_fault(op);
    case IDEM_OP_SWEEP:
        return op->in.sweep.limit < 1 ? "its limit is 0" : NULL;
    }
    return "its kind is none of those known";
}

int idem_op_check(const struct idem_op *op, struct idem_message *message)
{
    const char *fault = op_fault(op);

    if (!fault)
        return IDEM_OK;
    idem_message_set(message, "the op \"%s\" is not allowed: %s", idem_op_kind_text(op->kind),
                     fault);
    return IDEM_ERR_INVALID;
}
