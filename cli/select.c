/* Select: see select.h. */
#include "select.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "cli.h"
#include "hint.h"

/* Records in one page. Small: each may carry an answer of IDEM_BODY_SIZE_MAX. */
#define PAGE_RECORDS 64

int idem_select_apply(struct idem_store *store, struct idem_op *op, struct idem_message *message)
{
    struct idem_op *const ops[] = {op};

    message->text[0] = '\0';
    int error = idem_store_apply(store, ops, 1, message);

    if (error != IDEM_OK && message->text[0] == '\0') {
        idem_message_set(message, "the store failed: %s", idem_error_text(error));
    }
    return error;
}

static bool word_is(const char *word, size_t size, const char *known)
{
    return known != NULL && strlen(known) == size && memcmp(known, word, size) == 0;
}

/* A place where a state should be: in `idem gateway`, --state names a directory. */
static void place_tell(const char *place, struct idem_message *message)
{
    const char *path = strncmp(place, "lmdb:", 5) == 0 ? place + 5 : place;
    char file[PATH_MAX];
    bool store = snprintf(file, sizeof file, "%s/data.mdb", path) < (int)sizeof file &&
                 access(file, F_OK) == 0;

    idem_message_set(message,
                     "--state takes states (processing, completed, failed, unknown). A store is "
                     "named by --store lmdb:%.200s%s",
                     path, store || path != place ? "" : "/store");
}

static int states_parse(const char *text, uint32_t *ret_states, struct idem_message *message)
{
    uint32_t states = 0;

    /* A word that is empty is no state either: an empty list must not come to mean all. */
    for (const char *next = text; next != NULL;) {
        size_t size = strcspn(next, ",");
        int state = 1;

        while (state < IDEM_STATE_COUNT &&
               !word_is(next, size, idem_state_text((enum idem_state)state))) {
            state++;
        }
        if (state == IDEM_STATE_COUNT && strchr(text, '/') != NULL) {
            place_tell(text, message);
            return IDEM_ERR_INVALID;
        }
        if (state == IDEM_STATE_COUNT) {
            idem_message_set(message,
                             "\"%.*s\" is no state; they are processing, completed, failed "
                             "and unknown",
                             (int)(size < 40 ? size : 40), next);
            return IDEM_ERR_INVALID;
        }
        states |= UINT32_C(1) << state;
        next = next[size] == ',' ? next + size + 1 : NULL;
    }
    *ret_states = states;
    return IDEM_OK;
}

static int kind_parse(const char *text, enum idem_kind *ret_kind, struct idem_message *message)
{
    for (int kind = IDEM_KIND_HTTP; kind < IDEM_KIND_SELFTEST; kind++) {
        if (word_is(text, strlen(text), idem_kind_text((enum idem_kind)kind))) {
            *ret_kind = (enum idem_kind)kind;
            return IDEM_OK;
        }
    }
    idem_message_set(message,
                     "\"%.40s\" is no kind; they are http, message, lock, token, job and tx", text);
    return IDEM_ERR_INVALID;
}

static int size_check(const char *name, const char *value, size_t max, struct idem_message *message)
{
    if (value != NULL && strlen(value) > max) {
        idem_message_set(message, "the %s is over %zu bytes", name, max);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

int idem_select_filter(const struct idem_select *select, struct idem_scan *ret_scan,
                       struct idem_message *message)
{
    struct idem_scan scan = {.limit = PAGE_RECORDS};
    int error = states_parse(select->states, &scan.states, message);

    if (error == IDEM_OK && select->kind != NULL) {
        error = kind_parse(select->kind, &scan.kind, message);
    }
    if (error == IDEM_OK) {
        error = size_check("scope", select->scope, IDEM_SCOPE_SIZE_MAX, message);
    }
    if (error == IDEM_OK && select->after != NULL) {
        error = idem_id_parse(idem_bytes_from_text(select->after), &scan.cursor);
        if (error != IDEM_OK) {
            idem_message_set(message, "--after takes a whole id of %d hex digits",
                             2 * IDEM_ID_SIZE);
        }
        scan.has_cursor = true;
    }
    if (error != IDEM_OK) {
        return error;
    }
    scan.has_scope = select->scope != NULL;
    scan.scope = idem_bytes_from_text(select->scope);
    scan.updated_since_us = select->since_us;
    scan.updated_before_us = select->before_us;
    *ret_scan = scan;
    return IDEM_OK;
}

/* The digits as the filter of a scan; what they leave open is zeroes. */
static int prefix_parse(const char *digits, struct idem_scan *ret_scan)
{
    char padded[IDEM_ID_TEXT_SIZE];

    memset(padded, '0', sizeof padded - 1);
    padded[sizeof padded - 1] = '\0';
    memcpy(padded, digits, strlen(digits));
    ret_scan->prefix_digits = (unsigned)strlen(digits);
    return idem_id_parse(idem_bytes_from_text(padded), &ret_scan->prefix);
}

/* Ids that were found; a store without an order may show one twice. */
struct sole {
    struct idem_id id;
    size_t count;
};

static int sole_visit(void *context, const struct idem_record *record)
{
    struct sole *sole = context;

    if (sole->count > 0 && idem_id_equal(&sole->id, &record->id)) {
        return IDEM_OK;
    }
    sole->id = record->id;
    sole->count++;
    return sole->count > 1 ? IDEM_VISIT_STOP : IDEM_OK;
}

static int prefix_find(struct idem_store *store, const char *digits, struct idem_id *ret_id,
                       struct idem_message *message)
{
    struct idem_scan scan = {.limit = PAGE_RECORDS};
    struct sole sole = {.count = 0};
    struct idem_damaged damaged = {.count = 0};
    struct idem_visit visit = {
        .max = INT64_MAX, .visit = sole_visit, .context = &sole, .damaged = &damaged};
    int outcome = prefix_parse(digits, &scan);

    if (outcome == IDEM_OK) {
        outcome = idem_select_visit(store, &scan, &visit, message);
    }
    if (damaged.count > 0) { /* it has an id like any other */
        sole.id = damaged.ids[0];
        sole.count += damaged.count;
    }
    idem_damaged_deinit(&damaged);
    if (outcome != IDEM_OK) {
        return outcome;
    }
    if (sole.count == 0) {
        idem_message_set(message, "there is no record whose id starts with %s", digits);
        return IDEM_SELECT_ABSENT;
    }
    if (sole.count > 1) {
        idem_message_set(message, "several ids start with %s; give more digits", digits);
        return IDEM_SELECT_AMBIGUOUS;
    }
    *ret_id = sole.id;
    return IDEM_OK;
}

static int digits_check(const char *text, struct idem_message *message)
{
    size_t size = strlen(text);

    if (text[strspn(text, "0123456789abcdefABCDEF")] != '\0') {
        idem_message_set(message, "\"%.80s\" is no id: it has other characters than hex digits",
                         text);
        return IDEM_ERR_INVALID;
    }
    if (size < IDEM_PREFIX_DIGITS_MIN || size > 2 * IDEM_ID_SIZE) {
        idem_message_set(message, "\"%.80s\" is no id: give %d to %d hex digits, or --key K", text,
                         IDEM_PREFIX_DIGITS_MIN, 2 * IDEM_ID_SIZE);
        return IDEM_ERR_INVALID;
    }
    return IDEM_OK;
}

int idem_select_check(const struct idem_select *select, const char *text,
                      struct idem_message *message)
{
    enum idem_kind kind;
    int error = text != NULL ? digits_check(text, message) : IDEM_OK;

    if (error == IDEM_OK && select->kind != NULL) {
        error = kind_parse(select->kind, &kind, message);
    }
    if (error == IDEM_OK) {
        error = size_check("key", select->key, IDEM_KEY_SIZE_MAX, message);
    }
    return error != IDEM_OK ? error
                            : size_check("scope", select->scope, IDEM_SCOPE_SIZE_MAX, message);
}

int idem_select_id(struct idem_store *store, const struct idem_select *select, const char *text,
                   struct idem_id *ret_id, struct idem_message *message)
{
    enum idem_kind kind = IDEM_KIND_HTTP;
    int error = IDEM_OK;

    if (text == NULL) {
        error = select->kind != NULL ? kind_parse(select->kind, &kind, message) : IDEM_OK;
        if (error == IDEM_OK) {
            *ret_id = idem_id_make(kind, idem_bytes_from_text(select->scope),
                                   idem_bytes_from_text(select->key));
        }
        return error;
    }
    return strlen(text) == 2 * IDEM_ID_SIZE ? idem_id_parse(idem_bytes_from_text(text), ret_id)
                                            : prefix_find(store, text, ret_id, message);
}

int idem_select_exit(int outcome)
{
    switch (outcome) {
    case IDEM_SELECT_ABSENT:
        return IDEM_EXIT_ABSENT;
    case IDEM_SELECT_AMBIGUOUS:
        return IDEM_EXIT_USAGE;
    default:
        return IDEM_EXIT_FAILURE;
    }
}

int idem_select_record(struct idem_store *store, const struct idem_id *id, struct idem_op *ret_get,
                       struct idem_message *message)
{
    char text[IDEM_ID_TEXT_SIZE];
    char command[IDEM_ID_TEXT_SIZE + 32];
    char hint[IDEM_HINT_SIZE];
    int error;

    *ret_get = (struct idem_op){.kind = IDEM_OP_GET, .id = *id};
    error = idem_select_apply(store, ret_get, message);
    if (error != IDEM_OK) {
        return error;
    }
    idem_id_format(id, text);
    if (ret_get->result == IDEM_RESULT_FOUND) {
        return IDEM_OK;
    }
    if (ret_get->result == IDEM_RESULT_CORRUPT) {
        snprintf(command, sizeof command, "forget %s --force --why damaged", text);
        idem_message_set(message,
                         "the record %.16s is damaged; this removes it, and the next request with "
                         "its key then executes: %s",
                         text, idem_hint_make(command, hint));
        return IDEM_SELECT_DAMAGED;
    }
    idem_message_set(message, "there is no record %s; it may have expired, or have another scope",
                     text);
    return IDEM_SELECT_ABSENT;
}

/*
 * Visits the records of one page, all of them: the cursor goes on behind the page. What a self-test
 * has put is nobody's record; it may be running, or have been cut off, and goes by itself.
 */
static int page_visit(const struct idem_op *scan, struct idem_visit *visit)
{
    int outcome = IDEM_OK;

    for (size_t i = 0; i < scan->out.count && outcome == IDEM_OK; i++) {
        if (scan->out.page[i].record.kind != IDEM_KIND_SELFTEST) {
            outcome = visit->visit(visit->context, &scan->out.page[i].record);
            visit->visited++;
        }
    }
    return outcome;
}

int idem_select_visit(struct idem_store *store, const struct idem_scan *scan,
                      struct idem_visit *visit, struct idem_message *message)
{
    struct idem_op op = {.kind = IDEM_OP_SCAN, .in.scan = *scan};
    int outcome = IDEM_OK;

    visit->more = true;
    visit->visited = 0;
    visit->next = scan->cursor;
    while (visit->more && outcome == IDEM_OK && visit->visited < visit->max) {
        int64_t left = visit->max - visit->visited;

        op.in.scan.limit = left < scan->limit ? (uint32_t)left : scan->limit;
        outcome = idem_select_apply(store, &op, message);
        if (outcome == IDEM_OK) {
            outcome = page_visit(&op, visit);
            outcome = outcome == IDEM_OK && visit->damaged != NULL
                          ? idem_damaged_add_scan(visit->damaged, &op)
                          : outcome;
            visit->more = op.out.more || outcome == IDEM_VISIT_STOP;
            visit->next = op.out.next;
            op.in.scan.cursor = op.out.next;
            op.in.scan.has_cursor = true;
        }
        idem_op_deinit(&op);
    }
    if (outcome < 0 && message->text[0] == '\0') {
        idem_message_set(message, "%s", idem_error_text(outcome));
    }
    return outcome < 0 ? outcome : IDEM_OK;
}
