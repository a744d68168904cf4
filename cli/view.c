/* View: see view.h. */
#include "view.h"

#include <stdio.h>

#include "base/memory.h"
#include "json.h"
#include "printable.h"
#include "when.h"

/* --- for people ---------------------------------------------------------------------------- */

static void line_text(const char *name, const char *value)
{
    printf("%-12s %s\n", name, value);
}

static int line_bytes(const char *name, struct idem_bytes value)
{
    char *text;
    int error = idem_printable_make(value, 0, &text);

    if (error == IDEM_OK) {
        line_text(name, text);
        idem_free(text);
    }
    return error;
}

/* "2026-04-13T08:00:00Z (2h 5m ago)" */
static void line_instant(const char *name, int64_t instant_us, int64_t now_us)
{
    char instant[IDEM_INSTANT_TEXT_SIZE];
    char distance[IDEM_INSTANT_TEXT_SIZE];
    bool past = instant_us <= now_us;

    idem_instant_format(instant_us, instant);
    if (instant_us == IDEM_NEVER_US) {
        line_text(name, instant);
        return;
    }
    idem_duration_format(past ? now_us - instant_us : instant_us - now_us, distance);
    printf("%-12s %s (%s%s%s)\n", name, instant, past ? "" : "in ", distance, past ? " ago" : "");
}

static int headers_print(struct idem_bytes headers)
{
    struct idem_bytes name, value;

    while (idem_headers_next(&headers, &name, &value)) {
        char *name_text;
        char *value_text = NULL;
        int error = idem_printable_make(name, 0, &name_text);

        if (error != IDEM_OK) {
            return error;
        }
        error = idem_printable_make(value, 0, &value_text);
        if (error == IDEM_OK) {
            printf("  %s: %s\n", name_text, value_text);
            idem_free(value_text);
        }
        idem_free(name_text);
        if (error != IDEM_OK) {
            return error;
        }
    }
    return IDEM_OK;
}

/* Cuts a long body, between two characters if it is text. */
static struct idem_bytes body_cut(struct idem_bytes body)
{
    size_t size = IDEM_VIEW_BODY_MAX;

    if (body.size <= IDEM_VIEW_BODY_MAX) {
        return body;
    }
    while (size > IDEM_VIEW_BODY_MAX - 4 && (body.data[size] & 0xC0) == 0x80) {
        size--;
    }
    return idem_bytes_make(body.data, size);
}

static int body_print(struct idem_bytes body)
{
    struct idem_bytes shown = body_cut(body);
    char *text;
    int error = idem_printable_make(shown, 0, &text);

    if (error != IDEM_OK) {
        return error;
    }
    printf("\n  %s\n", text);
    idem_free(text);
    if (shown.size < body.size) {
        printf("  (%zu bytes more; --body writes them all)\n", body.size - shown.size);
    }
    return IDEM_OK;
}

static int answer_print(const struct idem_answer *answer)
{
    int error;

    if (answer->tombstone != IDEM_REASON_NONE) {
        printf("%-12s not kept (%s)", "answer", idem_reason_text(answer->tombstone));
        if (answer->status != 0) {
            printf(", its status was %u", (unsigned)answer->status);
        }
        putchar('\n');
        return IDEM_OK;
    }
    printf("%-12s %u, %zu bytes of body\n", "answer", (unsigned)answer->status, answer->body.size);
    error = headers_print(answer->headers);
    return error == IDEM_OK && answer->body.size > 0 ? body_print(answer->body) : error;
}

static int resolution_print(const struct idem_resolution *resolution, int64_t now_us)
{
    int error = line_bytes("settled by", resolution->who);

    if (error == IDEM_OK) {
        error = line_bytes("because", resolution->why);
        line_instant("settled", resolution->at_us, now_us);
    }
    return error;
}

/* What the state means for the next request, which is why one looks at a record. */
static const char *state_meaning(const struct idem_record *record)
{
    switch (record->state) {
    case IDEM_STATE_PROCESSING:
        return "a request is being executed; others with its key are refused meanwhile";
    case IDEM_STATE_COMPLETED:
        return "executed; retries are answered from this record";
    case IDEM_STATE_FAILED:
        return "not executed; the next request with its key executes";
    case IDEM_STATE_UNKNOWN:
        return "nobody knows whether it was executed; find out, then `idem resolve`";
    }
    return "";
}

static int names_print(const struct idem_record *record)
{
    char id[IDEM_ID_TEXT_SIZE];
    int error;

    idem_id_format(&record->id, id);
    line_text("id", id);
    line_text("kind", idem_kind_text(record->kind) ? idem_kind_text(record->kind) : "?");
    error = line_bytes("scope", record->scope);
    if (error == IDEM_OK) {
        error = line_bytes("key", record->key);
    }
    if (error == IDEM_OK && record->method.size + record->path.size > 0) {
        error = line_bytes("method", record->method);
        if (error == IDEM_OK) {
            error = line_bytes("path", record->path);
        }
    }
    return error;
}

int idem_view_print(const struct idem_record *record, int64_t now_us)
{
    const char *state = idem_state_text(record->state);
    char lease[IDEM_INSTANT_TEXT_SIZE];
    int error = names_print(record);

    if (error != IDEM_OK) {
        return error;
    }
    printf("%-12s %s (%s)\n", "state", state ? state : "?", state_meaning(record));
    if (record->state == IDEM_STATE_UNKNOWN) {
        line_text("reason", record->reason == IDEM_REASON_NONE ? "the lease ended without a verdict"
                                                               : idem_reason_text(record->reason));
        line_instant("unknown", idem_record_unknown_since_us(record), now_us);
    }
    printf("%-12s %lu\n", "attempt", (unsigned long)record->attempt);
    printf("%-12s %llu\n", "fence", (unsigned long long)record->fence);
    line_text("caller", record->principal.present ? "has a credential" : "has no credential");
    if (record->state == IDEM_STATE_PROCESSING) {
        line_text("lease", idem_duration_format(record->lease_us, lease));
        line_instant("lease ends", record->lease_until_us, now_us);
    }
    line_instant("created", record->created_us, now_us);
    line_instant("updated", record->updated_us, now_us);
    line_instant("expires", record->expires_us, now_us);
    if (record->resolution.at_us != 0) {
        error = resolution_print(&record->resolution, now_us);
    }
    if (error == IDEM_OK && record->state == IDEM_STATE_COMPLETED) {
        error = answer_print(&record->answer);
    }
    return error;
}

/* --- for programs -------------------------------------------------------------------------- */

static int headers_json(struct idem_bytes headers, json_t *list)
{
    struct idem_bytes name, value;

    while (idem_headers_next(&headers, &name, &value)) {
        json_t *line = json_object();

        /* The list owns the line from here on, also when a member cannot be set. */
        if (line == NULL || json_array_append_new(list, line) != 0 ||
            idem_json_set_bytes(line, "name", name) != IDEM_OK ||
            idem_json_set_bytes(line, "value", value) != IDEM_OK) {
            return IDEM_ERR_NOMEM;
        }
    }
    return IDEM_OK;
}

static int answer_json(const struct idem_answer *answer, bool whole, json_t *object)
{
    json_t *headers;
    int bad = 0;

    bad |= answer->status != 0 ? idem_json_set_number(object, "status", answer->status)
                               : idem_json_set_text(object, "status", NULL);
    if (answer->tombstone != IDEM_REASON_NONE) {
        return bad | idem_json_set_text(object, "not_kept", idem_reason_text(answer->tombstone));
    }
    bad |= idem_json_set_number(object, "body_size", (int64_t)answer->body.size);
    if (bad != 0 || !whole) {
        return bad;
    }
    headers = json_array();
    bad |= idem_json_set_owned(object, "headers", headers);
    if (bad == 0) {
        bad |= headers_json(answer->headers, headers);
        bad |= idem_json_set_bytes(object, "body", answer->body);
    }
    return bad;
}

static int resolution_json(const struct idem_resolution *resolution, json_t *object)
{
    int bad = idem_json_set_bytes(object, "who", resolution->who);

    bad |= idem_json_set_bytes(object, "why", resolution->why);
    return bad | idem_json_set_instant(object, "at", resolution->at_us);
}

static int state_json(const struct idem_record *record, json_t *object)
{
    bool unknown = record->state == IDEM_STATE_UNKNOWN;
    int bad = idem_json_set_text(object, "state", idem_state_text(record->state));

    if (unknown) {
        bad |= idem_json_set_text(
            object, "reason",
            record->reason == IDEM_REASON_NONE ? "lapsed" : idem_reason_text(record->reason));
        bad |= idem_json_set_instant(object, "unknown_since", idem_record_unknown_since_us(record));
    }
    bad |= idem_json_set_number(object, "attempt", record->attempt);
    bad |= idem_json_set_number(object, "fence", (int64_t)record->fence);
    bad |= idem_json_set_flag(object, "has_credential", record->principal.present);
    if (record->state == IDEM_STATE_PROCESSING) {
        bad |= idem_json_set_instant(object, "lease_until", record->lease_until_us);
    }
    bad |= idem_json_set_instant(object, "created_at", record->created_us);
    bad |= idem_json_set_instant(object, "updated_at", record->updated_us);
    return bad | idem_json_set_instant(object, "expires_at", record->expires_us);
}

static int record_json(const struct idem_record *record, bool whole, json_t *object)
{
    char id[IDEM_ID_TEXT_SIZE];
    json_t *part;
    int bad;

    idem_id_format(&record->id, id);
    bad = idem_json_set_text(object, "id", id);
    bad |= idem_json_set_text(object, "kind", idem_kind_text(record->kind));
    bad |= idem_json_set_bytes(object, "scope", record->scope);
    bad |= idem_json_set_bytes(object, "key", record->key);
    bad |= idem_json_set_bytes(object, "method", record->method);
    bad |= idem_json_set_bytes(object, "path", record->path);
    bad |= state_json(record, object);
    if (bad == 0 && record->state == IDEM_STATE_COMPLETED) {
        part = json_object();
        bad = idem_json_set_owned(object, "answer", part);
        bad = bad != 0 ? bad : answer_json(&record->answer, whole, part);
    }
    if (bad == 0 && record->resolution.at_us != 0) {
        part = json_object();
        bad = idem_json_set_owned(object, "resolution", part);
        bad = bad != 0 ? bad : resolution_json(&record->resolution, part);
    }
    return bad != 0 ? IDEM_ERR_NOMEM : IDEM_OK;
}

int idem_view_json(const struct idem_record *record, bool whole, json_t **ret_json)
{
    json_t *object = json_object();
    int error;

    if (object == NULL) {
        return IDEM_ERR_NOMEM;
    }
    error = record_json(record, whole, object);
    if (error != IDEM_OK) {
        json_decref(object);
        return error;
    }
    *ret_json = object;
    return IDEM_OK;
}
