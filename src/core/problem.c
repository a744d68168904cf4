/*
 * RFC 9457, 3.1: each kind has a type of its own, and a title that never changes with the
 * occurrence. `detail` says what to do next; programs read `retry` instead.
 */
#include <idem/problem.h>

#include <stdio.h>

#include "base/cursor.h"

struct problem_kind {
    const char *type, *title, *retry;
    unsigned status;
    unsigned retry_after_s;
    const char *detail;
};

#define TYPE(word) "urn:idem:problem:" word

/*
 * The retry word answers one question: with which key may the client send this request again, so
 * that nothing is executed twice? "new-key" is said only where nothing was executed under the key
 * for this request. Where the first request may still be running or may have taken effect the word
 * is "same-key": a client that took a new key there would execute twice.
 */
static const struct problem_kind kinds[IDEM_PROBLEM_COUNT] = {
    [IDEM_PROBLEM_NONE] =
        {
            .type = "about:blank",
            .title = "No problem",
            .retry = "no",
            .status = 200,
            .detail = "There is nothing to report.",
        },
    [IDEM_PROBLEM_KEY_MISSING] =
        {
            .type = TYPE("key-missing"),
            .title = "Idempotency-Key is missing",
            .retry = "new-key",
            .status = 400,
            .detail = "This operation needs an Idempotency-Key, and nothing was executed. Send "
                      "the request with a key that is unique to this operation, such as a "
                      "UUID, and use the same key for every retry of it.",
        },
    [IDEM_PROBLEM_KEY_MALFORMED] =
        {
            .type = TYPE("key-malformed"),
            .title = "Idempotency-Key is malformed",
            .retry = "new-key",
            .status = 400,
            .detail = "The Idempotency-Key could not be read, and nothing was executed. Send "
                      "exactly one key, such as a UUID in double quotes.",
        },
    [IDEM_PROBLEM_KEY_REUSED] =
        {
            .type = TYPE("key-reused"),
            .title = "Idempotency-Key was used for another request",
            .retry = "new-key",
            .status = 422,
            .detail = "This key belongs to a different request, and this one was not executed. "
                      "If it is a new operation, send it with a new key. If it is meant as a "
                      "retry, send exactly what was sent first, with the same key.",
        },
    [IDEM_PROBLEM_OTHER_CALLER] =
        {
            .type = TYPE("other-caller"),
            .title = "Idempotency-Key belongs to another caller",
            .retry = "no",
            .status = 403,
            .detail = "This key was first used with another credential, and this request was "
                      "not executed. Retry an operation with the credential that began it, and "
                      "give your own operations keys that nobody can guess.",
        },
    [IDEM_PROBLEM_IN_PROGRESS] =
        {
            .type = TYPE("in-progress"),
            .title = "A request with this key is in progress",
            .retry = "same-key",
            .status = 409,
            .retry_after_s = 1,
            .detail = "The operation is still being executed. Wait, then send the same request "
                      "with the same key to get its answer. Do not use a new key: that could "
                      "execute it twice.",
        },
    [IDEM_PROBLEM_OUTCOME_UNKNOWN] =
        {
            .type = TYPE("outcome-unknown"),
            .title = "The outcome is not known",
            .retry = "same-key",
            .status = 409,
            .retry_after_s = 30,
            .detail = "The operation was started and may have taken effect, but its outcome is "
                      "not known yet. Send the same request with the same key later, or look "
                      "the operation up. Do not use a new key: that could execute it twice.",
        },
    [IDEM_PROBLEM_ANSWER_NOT_KEPT] =
        {
            .type = TYPE("answer-not-kept"),
            .title = "The operation is done and its answer was not kept",
            .retry = "no",
            .status = 409,
            .detail = "The operation has been executed and will not be executed again, but its "
                      "answer can no longer be given. Do not send it again; look its result up.",
        },
    [IDEM_PROBLEM_STORE_UNAVAILABLE] =
        {
            .type = TYPE("store-unavailable"),
            .title = "The record of requests is unavailable",
            .retry = "same-key",
            .status = 503,
            .retry_after_s = 1,
            .detail = "The request was not sent on, because it cannot be recorded at the "
                      "moment. Send the same request with the same key again.",
        },
    [IDEM_PROBLEM_STORE_FULL] =
        {
            .type = TYPE("store-full"),
            .title = "The record of requests is full",
            .retry = "same-key",
            .status = 503,
            .retry_after_s = 30,
            .detail = "The request was not sent on, because there is no room to record it. "
                      "Send the same request with the same key later.",
        },
    [IDEM_PROBLEM_UPSTREAM_UNREACHABLE] =
        {
            .type = TYPE("upstream-unreachable"),
            .title = "The service cannot be reached",
            .retry = "same-key",
            .status = 502,
            .retry_after_s = 1,
            .detail = "The service could not be reached, and nothing was executed. Send the "
                      "same request with the same key again.",
        },
    [IDEM_PROBLEM_UPSTREAM_UNANSWERED] =
        {
            .type = TYPE("upstream-unanswered"),
            .title = "The service gave no whole answer",
            .retry = "same-key",
            .status = 502,
            .retry_after_s = 1,
            .detail = "The request was sent to the service, no whole answer came back, and it "
                      "may have taken effect. Send the same request with the same key to learn "
                      "more. Do not use a new key: that could execute it twice.",
        },
};

static const struct problem_kind *kind_find(enum idem_problem_kind kind)
{
    return &kinds[(unsigned)kind < IDEM_PROBLEM_COUNT ? kind : IDEM_PROBLEM_NONE];
}

struct idem_problem idem_problem_make(enum idem_problem_kind kind)
{
    const struct problem_kind *found = kind_find(kind);

    return (struct idem_problem){
        .kind = kind,
        .status = found->status,
        .retry_after_s = found->retry_after_s,
    };
}

const char *idem_problem_type(enum idem_problem_kind kind)
{
    return kind_find(kind)->type;
}

const char *idem_problem_title(enum idem_problem_kind kind)
{
    return kind_find(kind)->title;
}

const char *idem_problem_retry(enum idem_problem_kind kind)
{
    return kind_find(kind)->retry;
}

static void put(struct idem_writer *writer, const char *text)
{
    idem_write_bytes(writer, idem_bytes_from_text(text));
}

/* Writes one byte as JSON wants it inside a string (RFC 8259, 7); the size of what that takes. */
static size_t escape(uint8_t byte, char ret_text[7])
{
    if (byte == '"' || byte == '\\')
        return (size_t)snprintf(ret_text, 7, "\\%c", byte);
    if (byte < 0x20)
        return (size_t)snprintf(ret_text, 7, "\\u%04x", byte);
    ret_text[0] = (char)byte;
    return 1;
}

/* How many bytes make the UTF-8 character at `text`. */
static size_t character_size(const uint8_t *text)
{
    size_t size = 1;

    while ((text[size] & 0xc0) == 0x80)
        size++;
    return size;
}

/* Writes the text escaped, cut between two characters so that `reserve` bytes stay free. */
static void put_escaped(struct idem_writer *writer, const char *text, size_t reserve)
{
    const uint8_t *next = (const uint8_t *)text;

    while (*next != '\0') {
        size_t size = character_size(next);
        char escaped[7];
        size_t escaped_size = escape(*next, escaped);

        if (escaped_size + size - 1 + reserve > writer->left)
            return;
        idem_write_bytes(writer, idem_bytes_make(escaped, escaped_size));
        idem_write_bytes(writer, idem_bytes_make(next + 1, size - 1));
        next += size;
    }
}

/* What comes behind the detail, whose length alone is not ours to choose. */
static size_t tail_format(const struct idem_problem *problem, char *ret_text, size_t capacity)
{
    const char *retry = kind_find(problem->kind)->retry;

    if (problem->original_status != 0)
        return (size_t)snprintf(ret_text, capacity, "\",\"retry\":\"%s\",\"original_status\":%u}",
                                retry, problem->original_status);
    return (size_t)snprintf(ret_text, capacity, "\",\"retry\":\"%s\"}", retry);
}

size_t idem_problem_format(const struct idem_problem *problem, char *ret_body)
{
    const struct problem_kind *kind = kind_find(problem->kind);
    char status[16], tail[96];
    size_t tail_size = tail_format(problem, tail, sizeof tail);
    struct idem_writer writer;

    snprintf(status, sizeof status, "%u", problem->status != 0 ? problem->status : kind->status);
    idem_writer_init(&writer, ret_body, IDEM_PROBLEM_SIZE_MAX);
    put(&writer, "{\"type\":\"");
    put(&writer, kind->type);
    put(&writer, "\",\"title\":\"");
    put(&writer, kind->title);
    put(&writer, "\",\"status\":");
    put(&writer, status);
    put(&writer, ",\"detail\":\"");
    put_escaped(&writer, problem->detail != NULL ? problem->detail : kind->detail, tail_size);
    put(&writer, tail);
    return IDEM_PROBLEM_SIZE_MAX - writer.left;
}
