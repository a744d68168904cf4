/* Resolve: `idem resolve`, a person's verdict on a record whose outcome nobody knows. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <idem/policy.h>

#include "base/memory.h"
#include "settle.h"
#include "when.h"

#define OWN_OPTIONS 6

struct resolve {
    struct idem_settle settle;
    bool failed, completed;
    int64_t status; /* negative: not given */
    const char *body;
    struct idem_text_list headers;
    int64_t ttl_us; /* negative: not given */

    struct idem_answer answer;
    uint8_t *headers_memory, *body_memory;
};

static const char about[] =
    "Settles a record whose outcome is unknown. Find out first, from the upstream, whether the "
    "operation took effect. --failed: it did not, and the next request with the key executes. "
    "--completed: it did; retries get the answer given here, or are told that it was executed. A "
    "request that was still under way can never overwrite the verdict.";

static const char examples[] =
    "  idem resolve 3f2a9c --failed --why 'not in the ledger, ticket 4711'\n"
    "  idem resolve 3f2a9c --completed --why 'charged, see ch_88' \\\n"
    "      --status 201 --header 'Content-Type: application/json' --body answer.json\n"
    "  idem resolve --state unknown --since 2h --scope tenant-7 --failed --dry-run\n";

/* --- the answer ---------------------------------------------------------------------------- */

/* RFC 9110, 5.6.2: the characters of a token, which a field name is. */
static bool is_token(const char *text, size_t size)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

        if (!letter && (c == '\0' || strchr(marks, c) == NULL)) {
            return false;
        }
    }
    return size > 0;
}

/*
 * Fields that the gateway never keeps: made anew for each message (RFC 9110, 7.6.1 and 6.6.1),
 * meant for one client only, or orders to nginx. A test compares them with the module's own list.
 */
static bool is_never_kept(const char *name, size_t size)
{
    static const char *const names[] = {"Authentication-Info",
                                        "Connection",
                                        "Content-Length",
                                        "Date",
                                        "Idempotency-Bypassed",
                                        "Idempotency-Outcome",
                                        "Idempotency-Recorded",
                                        "Idempotent-Replayed",
                                        "Keep-Alive",
                                        "Proxy-Authenticate",
                                        "Proxy-Authentication-Info",
                                        "Proxy-Connection",
                                        "Server",
                                        "Set-Cookie",
                                        "Set-Cookie2",
                                        "TE",
                                        "Trailer",
                                        "Transfer-Encoding",
                                        "Upgrade",
                                        "WWW-Authenticate",
                                        "X-Pad"};
    static const char orders[] = "X-Accel-";

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == size && strncasecmp(names[i], name, size) == 0) {
            return true;
        }
    }
    return size >= sizeof orders - 1 && strncasecmp(name, orders, sizeof orders - 1) == 0;
}

static int header_add(struct resolve *resolve, const struct idem_usage *usage, const char *line,
                      size_t *size)
{
    size_t name_size = strcspn(line, ":");
    const char *value = line + name_size + (line[name_size] == ':');
    size_t value_size;
    size_t grown;

    value += strspn(value, " \t");
    value_size = strlen(value);
    while (value_size > 0 && (value[value_size - 1] == ' ' || value[value_size - 1] == '\t')) {
        value_size--;
    }
    if (line[name_size] != ':' || !is_token(line, name_size)) {
        return idem_args_wrong(usage, "--header: \"%s\" is not of the form 'Name: value'", line);
    }
    for (size_t i = 0; i < value_size; i++) {
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7F) {
            return idem_args_wrong(usage, "--header: the value of %.*s has a control character",
                                   (int)name_size, line);
        }
    }
    if (is_never_kept(line, name_size)) {
        return idem_args_wrong(usage,
                               "--header: %.*s is no part of what a gateway keeps; leave it out",
                               (int)name_size, line);
    }
    grown =
        idem_headers_append(resolve->headers_memory, *size, IDEM_HEADERS_SIZE_MAX,
                            idem_bytes_make(line, name_size), idem_bytes_make(value, value_size));
    if (grown == 0) {
        return idem_args_wrong(usage, "--header: all lines together are over %d bytes",
                               IDEM_HEADERS_SIZE_MAX);
    }
    *size = grown;
    return IDEM_EXIT_OK;
}

static int headers_make(struct resolve *resolve, const struct idem_usage *usage)
{
    size_t size = 0;

    if (resolve->headers.count == 0) {
        return IDEM_EXIT_OK;
    }
    resolve->headers_memory = idem_malloc(IDEM_HEADERS_SIZE_MAX);
    if (resolve->headers_memory == NULL) {
        idem_say_error("%s", idem_error_text(IDEM_ERR_NOMEM));
        return IDEM_EXIT_FAILURE;
    }
    for (size_t i = 0; i < resolve->headers.count; i++) {
        int status = header_add(resolve, usage, resolve->headers.items[i], &size);

        if (status != IDEM_EXIT_OK) {
            return status;
        }
    }
    resolve->answer.headers = idem_bytes_make(resolve->headers_memory, size);
    return IDEM_EXIT_OK;
}

/* Reads to the end of the file into memory that grows; pipes have no size to ask for. */
static int body_read(struct resolve *resolve, int file)
{
    size_t capacity = 0;
    size_t size = 0;
    ssize_t got = 1;

    while (got > 0) {
        if (size == capacity) {
            uint8_t *memory;

            capacity = capacity == 0 ? 65536 : 2 * capacity;
            memory = idem_realloc(resolve->body_memory, capacity);
            if (memory == NULL) {
                return IDEM_ERR_NOMEM;
            }
            resolve->body_memory = memory;
        }
        got = read(file, resolve->body_memory + size, capacity - size);
        if (got < 0) {
            return IDEM_ERR_IO;
        }
        size += (size_t)got;
        if (size > IDEM_BODY_SIZE_MAX) {
            return IDEM_ERR_FULL;
        }
    }
    resolve->answer.body = idem_bytes_make(resolve->body_memory, size);
    return IDEM_OK;
}

static int body_make(struct resolve *resolve)
{
    bool standard_input = resolve->body != NULL && strcmp(resolve->body, "-") == 0;
    int file = STDIN_FILENO;
    int error;

    if (resolve->body == NULL) {
        return IDEM_EXIT_OK;
    }
    if (!standard_input) {
        file = open(resolve->body, O_RDONLY | O_CLOEXEC);
        if (file < 0) {
            idem_say_error("--body: %s: %s", resolve->body, strerror(errno));
            return IDEM_EXIT_FAILURE;
        }
    }
    error = body_read(resolve, file);
    if (error == IDEM_ERR_FULL) {
        idem_say_error("--body: %s is over %u bytes, the most that a record keeps", resolve->body,
                       IDEM_BODY_SIZE_MAX);
    } else if (error != IDEM_OK) {
        idem_say_error("--body: %s: %s", resolve->body,
                       error == IDEM_ERR_IO ? strerror(errno) : idem_error_text(error));
    }
    if (!standard_input) {
        close(file);
    }
    return error == IDEM_OK ? IDEM_EXIT_OK : IDEM_EXIT_FAILURE;
}

/* --- the command --------------------------------------------------------------------------- */

static bool state_allows(enum idem_state state)
{
    return state == IDEM_STATE_UNKNOWN;
}

/* A verdict must not end the protection that the record had anyway. */
static int64_t ttl_choose(const struct resolve *resolve, const struct idem_record *seen)
{
    int64_t left_us;

    if (resolve->ttl_us >= 0) {
        return resolve->ttl_us;
    }
    if (seen->expires_us == IDEM_NEVER_US) {
        return IDEM_NEVER_US;
    }
    left_us = seen->expires_us - idem_instant_now_us();
    return left_us > IDEM_TTL_US_DEFAULT ? left_us : IDEM_TTL_US_DEFAULT;
}

static void resolve_fill(void *context, const struct idem_record *seen, struct idem_op *ret_op)
{
    const struct resolve *resolve = context;
    struct idem_resolve *in = &ret_op->in.resolve;

    ret_op->kind = IDEM_OP_RESOLVE;
    ret_op->id = seen->id;
    *in = (struct idem_resolve){
        .fence = seen->fence,
        .updated_us = seen->updated_us,
        .completed = resolve->completed,
        .answer = resolve->answer,
        .ttl_us = ttl_choose(resolve, seen),
        .who = idem_bytes_from_text(resolve->settle.who),
        .why = idem_bytes_from_text(resolve->settle.why),
        .force = resolve->settle.force,
    };
    randombytes_buf(in->owner.bytes, sizeof in->owner.bytes);
}

/* RFC 9110, 15.3.5, 15.3.6 and 15.4.5. */
static bool has_no_content(int64_t status)
{
    return status == 204 || status == 205 || status == 304;
}

static int verdict_check(const struct resolve *resolve, const struct idem_usage *usage)
{
    bool detail = resolve->body != NULL || resolve->headers.count > 0;

    if (resolve->failed == resolve->completed) {
        return idem_args_wrong(usage, "say what happened: --failed (it was not executed) or "
                                      "--completed (it was)");
    }
    if (resolve->failed && (detail || resolve->status >= 0)) {
        return idem_args_wrong(usage, "--status, --header and --body go with --completed");
    }
    if (detail && resolve->status < 0) {
        return idem_args_wrong(usage, "--header and --body need --status N, the status of the "
                                      "answer");
    }
    if (resolve->status >= 0 && (resolve->status < 200 || resolve->status > 599)) {
        return idem_args_wrong(usage, "--status takes 200 to 599");
    }
    if (resolve->body != NULL && has_no_content(resolve->status)) {
        return idem_args_wrong(usage,
                               "an answer with status %lld has no body (RFC 9110); leave "
                               "--body out",
                               (long long)resolve->status);
    }
    if (resolve->ttl_us == 0) {
        return idem_args_wrong(usage, "--ttl takes a length of time over zero, or never");
    }
    return IDEM_EXIT_OK;
}

static int answer_make(struct resolve *resolve, const struct idem_usage *usage)
{
    int status = headers_make(resolve, usage);

    if (status == IDEM_EXIT_OK) {
        status = body_make(resolve);
    }
    if (resolve->status < 0) {
        resolve->answer.tombstone = IDEM_REASON_RESOLVED;
    } else {
        resolve->answer.status = (uint16_t)resolve->status;
    }
    if (resolve->failed) {
        resolve->answer = (struct idem_answer){0};
        resolve->settle.effect = "the next request with this key executes";
    } else if (resolve->status < 0) {
        resolve->settle.effect = "retries are told that it was executed and that the answer is not "
                                 "kept; they are not executed";
    } else {
        resolve->settle.effect = "retries get this answer; they are not executed";
    }
    return status;
}

static void own_options(struct resolve *resolve, struct idem_option *ret_options)
{
    const struct idem_option options[OWN_OPTIONS] = {
        {"failed", IDEM_OPTION_FLAG, NULL, "it did not take effect", &resolve->failed},
        {"completed", IDEM_OPTION_FLAG, NULL, "it took effect", &resolve->completed},
        {"status", IDEM_OPTION_COUNT, "N", "status of the answer that retries get",
         &resolve->status},
        {"header", IDEM_OPTION_LIST, "'NAME: VALUE'", "a header line of it; may be repeated",
         &resolve->headers},
        {"body", IDEM_OPTION_TEXT, "FILE", "its body; - is standard input", &resolve->body},
        {"ttl", IDEM_OPTION_DURATION, "T",
         "how long the verdict is kept, or never (default: 24h, or for as long as the record would "
         "have been if that is longer)",
         &resolve->ttl_us},
    };

    memcpy(ret_options, options, sizeof options);
    idem_settle_options(&resolve->settle, ret_options + OWN_OPTIONS);
}

static int resolve_run(struct resolve *resolve, const struct idem_usage *usage,
                       const struct idem_operands *operands)
{
    int status = verdict_check(resolve, usage);

    if (status == IDEM_EXIT_OK) {
        status = idem_settle_check(&resolve->settle, usage, operands);
    }
    if (status == IDEM_EXIT_OK) {
        status = answer_make(resolve, usage);
    }
    if (status == IDEM_EXIT_OK && sodium_init() < 0) {
        idem_say_error("the system gives no random bytes");
        status = IDEM_EXIT_FAILURE;
    }
    return status != IDEM_EXIT_OK ? status : idem_settle_run(&resolve->settle);
}

int idem_command_resolve(int argc, char **argv)
{
    struct resolve resolve = {
        .status = -1,
        .ttl_us = -1,
        .settle = {.fence = -1,
                   .done = "resolved",
                   .would_do = "would resolve",
                   .only = "unknown records",
                   .allows = state_allows,
                   .fill = resolve_fill,
                   .context = &resolve},
    };
    struct idem_option options[OWN_OPTIONS + IDEM_SETTLE_OPTIONS];
    const struct idem_usage usage = {
        "resolve",
        "ID | --key KEY | --state STATES, --failed | --completed, --why TEXT [OPTION]...",
        about,
        examples,
        options,
        sizeof options / sizeof options[0],
        1};
    struct idem_operands operands;
    int outcome;

    own_options(&resolve, options);
    outcome = idem_args_parse(&usage, argc, argv, &operands);
    outcome =
        outcome != IDEM_OK ? idem_args_exit(outcome) : resolve_run(&resolve, &usage, &operands);
    idem_free(resolve.headers_memory);
    idem_free(resolve.body_memory);
    return outcome;
}
