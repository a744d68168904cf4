/*
 * Problem: what a refused client is told, as application/problem+json (RFC 9457).
 *
 * One type URI a kind. The member `retry` says in one word what the client may do: "same-key",
 * "new-key" or "no". Nothing here ever reveals the other request.
 */
#ifndef IDEM_PROBLEM_H
#define IDEM_PROBLEM_H

#include <idem/bytes.h>
#include <idem/error.h>

enum idem_problem_kind {
    IDEM_PROBLEM_NONE = 0,
    IDEM_PROBLEM_KEY_MISSING,          /* 400 */
    IDEM_PROBLEM_KEY_MALFORMED,        /* 400 */
    IDEM_PROBLEM_KEY_REUSED,           /* 422: same key, another request */
    IDEM_PROBLEM_OTHER_CALLER,         /* 403: same key, another credential */
    IDEM_PROBLEM_IN_PROGRESS,          /* 409 */
    IDEM_PROBLEM_OUTCOME_UNKNOWN,      /* 409 */
    IDEM_PROBLEM_ANSWER_NOT_KEPT,      /* 409: executed, the answer is gone */
    IDEM_PROBLEM_STORE_UNAVAILABLE,    /* 503 */
    IDEM_PROBLEM_STORE_FULL,           /* 503 */
    IDEM_PROBLEM_UPSTREAM_UNREACHABLE, /* 502: nothing was sent */
    IDEM_PROBLEM_UPSTREAM_UNANSWERED,  /* 502: sent, no or not the whole answer */
    IDEM_PROBLEM_COUNT
};

struct idem_problem {
    enum idem_problem_kind kind;
    unsigned status;          /* what the default is replaced by when not 0 */
    unsigned retry_after_s;   /* 0: no Retry-After */
    unsigned original_status; /* ANSWER_NOT_KEPT: the status that the first request got, or 0 */
    const char *detail;       /* a constant sentence instead of the kind's own, or NULL */
};

#define IDEM_PROBLEM_SIZE_MAX     1024 /* bytes in the JSON body */
#define IDEM_PROBLEM_CONTENT_TYPE "application/problem+json"

/* The problem of a kind, with its default status and Retry-After. */
struct idem_problem idem_problem_make(enum idem_problem_kind kind);

/* Type URI ("urn:idem:problem:in-progress"), title, and the retry word, constants of the kind. */
const char *idem_problem_type(enum idem_problem_kind kind);
const char *idem_problem_title(enum idem_problem_kind kind);
const char *idem_problem_retry(enum idem_problem_kind kind);

/* Writes the JSON body without a terminator. Returns its size, at most IDEM_PROBLEM_SIZE_MAX. */
size_t idem_problem_format(const struct idem_problem *problem, char *ret_body);

#endif
