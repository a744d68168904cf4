/* The words for the numbers, for people, logs and SQL. */
#include <idem/op.h>
#include <idem/policy.h>

#define TEXT_COUNT(texts) (sizeof(texts) / sizeof(texts)[0])

static const char *text_at(const char *const *texts, size_t count, int number,
                           const char *otherwise)
{
    if (number < 0 || (size_t)number >= count || texts[number] == NULL)
        return otherwise;
    return texts[number];
}

const char *idem_kind_text(enum idem_kind kind)
{
    static const char *const texts[] = {
        [IDEM_KIND_HTTP] = "http",         [IDEM_KIND_MESSAGE] = "message",
        [IDEM_KIND_LOCK] = "lock",         [IDEM_KIND_TOKEN] = "token",
        [IDEM_KIND_JOB] = "job",           [IDEM_KIND_TX] = "tx",
        [IDEM_KIND_SELFTEST] = "selftest",
    };

    return text_at(texts, TEXT_COUNT(texts), (int)kind, NULL);
}

const char *idem_state_text(enum idem_state state)
{
    static const char *const texts[IDEM_STATE_COUNT] = {
        [IDEM_STATE_PROCESSING] = "processing",
        [IDEM_STATE_COMPLETED] = "completed",
        [IDEM_STATE_FAILED] = "failed",
        [IDEM_STATE_UNKNOWN] = "unknown",
    };

    return text_at(texts, TEXT_COUNT(texts), (int)state, NULL);
}

const char *idem_reason_text(enum idem_reason reason)
{
    static const char *const texts[] = {
        [IDEM_REASON_NONE] = "none",           [IDEM_REASON_UNANSWERED] = "unanswered",
        [IDEM_REASON_TRUNCATED] = "truncated", [IDEM_REASON_STATUS] = "status",
        [IDEM_REASON_DECLARED] = "declared",   [IDEM_REASON_ABORTED] = "aborted",
        [IDEM_REASON_TOO_LARGE] = "too_large", [IDEM_REASON_NO_ROOM] = "no_room",
        [IDEM_REASON_RESOLVED] = "resolved",   [IDEM_REASON_REPLACED] = "replaced",
        [IDEM_REASON_INVALID] = "invalid",
    };

    return text_at(texts, TEXT_COUNT(texts), (int)reason, "none");
}

const char *idem_outcome_text(enum idem_outcome outcome)
{
    static const char *const texts[] = {
        [IDEM_OUTCOME_UNSET] = "unset",
        [IDEM_OUTCOME_FINAL] = "final",
        [IDEM_OUTCOME_FAILED] = "failed",
        [IDEM_OUTCOME_UNKNOWN] = "unknown",
    };

    return text_at(texts, TEXT_COUNT(texts), (int)outcome, "unset");
}

const char *idem_op_kind_text(enum idem_op_kind kind)
{
    static const char *const texts[] = {
        [IDEM_OP_CLAIM] = "claim", [IDEM_OP_RENEW] = "renew",     [IDEM_OP_COMPLETE] = "complete",
        [IDEM_OP_FAIL] = "fail",   [IDEM_OP_ABANDON] = "abandon", [IDEM_OP_GET] = "get",
        [IDEM_OP_SCAN] = "scan",   [IDEM_OP_RESOLVE] = "resolve", [IDEM_OP_FORGET] = "forget",
        [IDEM_OP_SWEEP] = "sweep", [IDEM_OP_AUDIT] = "audit",     [IDEM_OP_PUT] = "put",
    };

    return text_at(texts, TEXT_COUNT(texts), (int)kind, "none");
}

const char *idem_result_text(enum idem_result result)
{
    static const char *const texts[IDEM_RESULT_COUNT] = {
        [IDEM_RESULT_NONE] = "none",           [IDEM_RESULT_OK] = "ok",
        [IDEM_RESULT_ACQUIRED] = "acquired",   [IDEM_RESULT_IN_PROGRESS] = "in_progress",
        [IDEM_RESULT_COMPLETED] = "completed", [IDEM_RESULT_UNKNOWN] = "unknown",
        [IDEM_RESULT_MISMATCH] = "mismatch",   [IDEM_RESULT_OTHER_PRINCIPAL] = "other_principal",
        [IDEM_RESULT_ENDED] = "ended",         [IDEM_RESULT_FULL] = "full",
        [IDEM_RESULT_LOST] = "lost",           [IDEM_RESULT_FOUND] = "found",
        [IDEM_RESULT_ABSENT] = "absent",       [IDEM_RESULT_CHANGED] = "changed",
        [IDEM_RESULT_REFUSED] = "refused",     [IDEM_RESULT_CORRUPT] = "corrupt",
    };

    return text_at(texts, TEXT_COUNT(texts), (int)result, "none");
}
