/* List: `idem list`, the records of a store, or with --audit who settled what. */
#include <stdio.h>

#include "args.h"
#include "grid.h"
#include "json.h"
#include "place.h"
#include "select.h"
#include "view.h"
#include "when.h"

#define LIST_DEFAULT    100
#define LIST_MAX        1000000
#define SHORT_ID_DIGITS 16 /* enough to be unique, and it leaves room for the key */
#define KEY_COLUMNS     40
#define PATH_COLUMNS    40
#define WHY_COLUMNS     60
#define AUDIT_PAGE      500

struct listing {
    struct idem_select select;
    const char *store;
    int64_t limit;
    bool audit, json;

    struct idem_grid grid;
    int64_t printed;
    struct idem_damaged damaged;
};

static const char about[] =
    "Lists the records of a store, in the order of their ids (Redis has an order of its own). A "
    "claim whose lease has ended shows as unknown. With --audit: who resolved or forgot which "
    "record, when and why, oldest first.";

static const char examples[] =
    "  idem list --state unknown                 what a person must look at\n"
    "  idem list --scope tenant-7 --since 2h     what one tenant did lately\n"
    "  idem list --state unknown --json          the same for a program\n"
    "  idem list --audit --since 30d\n";

/* --- records ------------------------------------------------------------------------------- */

static int row_status(struct listing *listing, const struct idem_record *record)
{
    char status[24] = "-";

    if (record->state == IDEM_STATE_COMPLETED) {
        if (record->answer.tombstone != IDEM_REASON_NONE) {
            return idem_grid_text(&listing->grid, "not kept");
        }
        snprintf(status, sizeof status, "%u", (unsigned)record->answer.status);
    }
    return idem_grid_text(&listing->grid, status);
}

static int row_request(struct listing *listing, const struct idem_record *record)
{
    char request[IDEM_METHOD_SIZE_MAX + 1 + IDEM_PATH_SIZE_MAX];
    size_t method_size = record->method.size;
    size_t path_size = record->path.size;

    if (method_size > IDEM_METHOD_SIZE_MAX || path_size > IDEM_PATH_SIZE_MAX || method_size == 0) {
        return idem_grid_text(&listing->grid, "-");
    }
    memcpy(request, record->method.data, method_size);
    request[method_size] = ' ';
    if (path_size > 0) {
        memcpy(request + method_size + 1, record->path.data, path_size);
    }
    return idem_grid_bytes(&listing->grid, idem_bytes_make(request, method_size + 1 + path_size),
                           PATH_COLUMNS);
}

static int row_add(struct listing *listing, const struct idem_record *record)
{
    struct idem_grid *grid = &listing->grid;
    char id[IDEM_ID_TEXT_SIZE];
    char updated[IDEM_INSTANT_TEXT_SIZE];
    char attempt[24];
    int error;

    idem_id_format(&record->id, id);
    id[SHORT_ID_DIGITS] = '\0';
    snprintf(attempt, sizeof attempt, "%lu", (unsigned long)record->attempt);
    error = idem_grid_text(grid, id);
    error = error ? error : idem_grid_text(grid, idem_state_text(record->state));
    error = error ? error : idem_grid_text(grid, idem_instant_format(record->updated_us, updated));
    error = error ? error : idem_grid_text(grid, attempt);
    error = error ? error : row_status(listing, record);
    error = error ? error : idem_grid_bytes(grid, record->scope, KEY_COLUMNS);
    error = error ? error : idem_grid_bytes(grid, record->key, KEY_COLUMNS);
    return error ? error : row_request(listing, record);
}

static int record_visit(void *context, const struct idem_record *record)
{
    struct listing *listing = context;
    json_t *object;
    int error;

    listing->printed++;
    if (!listing->json) {
        return row_add(listing, record);
    }
    error = idem_view_json(record, false, &object);
    if (error == IDEM_OK) {
        fputs(listing->printed == 1 ? "\n" : ",\n", stdout);
        error = idem_json_print(object, true);
        json_decref(object);
    }
    /* Who read has gone away. */
    return error == IDEM_OK && ferror(stdout) ? IDEM_VISIT_STOP : error;
}

/* JSON is written as the pages come, so that a long list needs no memory. */
static int records_json_end(struct listing *listing, const struct idem_visit *walk,
                            const char *last)
{
    json_t *damaged = idem_damaged_json(&listing->damaged);
    int error;

    printf("%s],\"more\":%s,\"last\":", listing->printed > 0 ? "\n" : "",
           walk->more ? "true" : "false");
    printf(listing->printed > 0 ? "\"%s\"" : "null", last);
    fputs(",\"damaged\":", stdout);
    error = damaged != NULL ? idem_json_print(damaged, true) : IDEM_ERR_NOMEM;
    fputs(error != IDEM_OK ? "null}\n" : "}\n", stdout);
    json_decref(damaged);
    return error;
}

static int records_end(struct listing *listing, const struct idem_visit *walk)
{
    char last[IDEM_ID_TEXT_SIZE];

    idem_id_format(&walk->next, last);
    if (listing->json) {
        return records_json_end(listing, walk, last);
    }
    idem_grid_print(&listing->grid);
    if (listing->printed == 0) {
        fprintf(stderr, "no records match\n");
    } else if (walk->more) {
        fprintf(stderr, "there are more: --limit N, or --after %s\n", last);
    }
    return IDEM_OK;
}

static int records_list(struct listing *listing, const struct idem_scan *scan,
                        struct idem_store *store, struct idem_message *message)
{
    static const char *const titles[] = {"ID",     "STATE", "UPDATED", "TRY",
                                         "STATUS", "SCOPE", "KEY",     "REQUEST"};
    struct idem_visit walk = {.max = listing->limit,
                              .visit = record_visit,
                              .context = listing,
                              .damaged = &listing->damaged};
    int error, ended = IDEM_OK;

    idem_grid_init(&listing->grid, titles, sizeof titles / sizeof titles[0]);
    if (listing->json) {
        fputs("{\"records\":[", stdout);
    }
    error = idem_select_visit(store, scan, &walk, message);
    /* After a failure half-way the object is whole all the same, and says that there is more. */
    if (error == IDEM_OK || listing->json) {
        ended = records_end(listing, &walk);
    }
    idem_grid_deinit(&listing->grid);
    return error != IDEM_OK ? error : ended;
}

/* --- audit --------------------------------------------------------------------------------- */

static int entry_row(struct listing *listing, const struct idem_audit_entry *entry)
{
    struct idem_grid *grid = &listing->grid;
    char id[IDEM_ID_TEXT_SIZE];
    char at[IDEM_INSTANT_TEXT_SIZE];
    const char *was = idem_state_text(entry->was);
    int error;

    idem_id_format(&entry->id, id);
    id[SHORT_ID_DIGITS] = '\0';
    error = idem_grid_text(grid, idem_instant_format(entry->at_us, at));
    error = error ? error : idem_grid_text(grid, idem_op_kind_text(entry->what));
    error = error ? error : idem_grid_text(grid, id);
    error = error ? error : idem_grid_text(grid, was ? was : "-");
    error = error ? error : idem_grid_bytes(grid, entry->who, KEY_COLUMNS);
    return error ? error : idem_grid_bytes(grid, entry->why, WHY_COLUMNS);
}

static int entry_json(struct listing *listing, const struct idem_audit_entry *entry)
{
    char id[IDEM_ID_TEXT_SIZE];
    json_t *object = json_object();
    int bad = object == NULL;

    idem_id_format(&entry->id, id);
    if (bad == 0) {
        bad |= idem_json_set_instant(object, "at", entry->at_us);
        bad |= idem_json_set_text(object, "what", idem_op_kind_text(entry->what));
        bad |= idem_json_set_text(object, "id", id);
        bad |= idem_json_set_text(object, "was", idem_state_text(entry->was));
        bad |= idem_json_set_number(object, "fence", (int64_t)entry->fence);
        bad |= idem_json_set_bytes(object, "who", entry->who);
        bad |= idem_json_set_bytes(object, "why", entry->why);
        fputs(listing->printed == 1 ? "\n" : ",\n", stdout);
        bad |= bad == 0 ? idem_json_print(object, true) : 0;
    }
    json_decref(object);
    return bad != 0 ? IDEM_ERR_NOMEM : IDEM_OK;
}

static int audit_page(struct listing *listing, struct idem_op *op)
{
    int error = IDEM_OK;

    for (size_t i = 0; i < op->out.count && error == IDEM_OK; i++) {
        listing->printed++;
        error = listing->json ? entry_json(listing, &op->out.entries[i])
                              : entry_row(listing, &op->out.entries[i]);
        op->in.audit.after_us = op->out.entries[i].at_us;
    }
    return error;
}

static int audit_list(struct listing *listing, struct idem_store *store,
                      struct idem_message *message)
{
    static const char *const titles[] = {"AT", "WHAT", "ID", "WAS", "WHO", "WHY"};
    struct idem_op op = {.kind = IDEM_OP_AUDIT};
    bool more = true;
    int error = IDEM_OK;

    /* --since includes its instant, `after` does not. */
    op.in.audit.after_us = listing->select.since_us > 0 ? listing->select.since_us - 1 : 0;
    idem_grid_init(&listing->grid, titles, sizeof titles / sizeof titles[0]);
    fputs(listing->json ? "{\"audit\":[" : "", stdout);
    while (more && error == IDEM_OK && listing->printed < listing->limit) {
        int64_t left = listing->limit - listing->printed;

        op.in.audit.limit = (uint32_t)(left < AUDIT_PAGE ? left : AUDIT_PAGE);
        error = idem_select_apply(store, &op, message);
        if (error == IDEM_OK) {
            error = audit_page(listing, &op);
            more = op.out.more && op.out.count > 0;
        }
        idem_op_deinit(&op);
    }
    if (listing->json) {
        printf("%s],\"more\":%s}\n", listing->printed > 0 ? "\n" : "", more ? "true" : "false");
    } else if (error == IDEM_OK) {
        idem_grid_print(&listing->grid);
        fputs(listing->printed == 0 ? "nobody has settled anything\n" : "", stderr);
        fputs(more && listing->printed > 0 ? "there is more: --limit N\n" : "", stderr);
    }
    idem_grid_deinit(&listing->grid);
    return error;
}

/* --- the command --------------------------------------------------------------------------- */

static int list_run(struct listing *listing, const struct idem_scan *scan)
{
    char shown[IDEM_URL_SIZE_MAX];
    struct idem_message message;
    struct idem_store *store = NULL;
    int status;
    int error = idem_place_open(listing->store, false, shown, &store, &message);

    if (error == IDEM_OK) {
        idem_message_set(&message, "%s", idem_error_text(IDEM_ERR_NOMEM));
        error = listing->audit ? audit_list(listing, store, &message)
                               : records_list(listing, scan, store, &message);
    }
    idem_place_close(store);
    if (error != IDEM_OK) {
        idem_say_error("%s", message.text);
        status = idem_place_exit(error);
    } else if (idem_damaged_number(&listing->damaged) > 0) {
        idem_damaged_tell(&listing->damaged, "left out");
        status = idem_say_end(IDEM_EXIT_FAILURE);
    } else {
        status = idem_say_end(IDEM_EXIT_OK);
    }
    idem_damaged_deinit(&listing->damaged);
    return status;
}

static int list_check(const struct idem_usage *usage, const struct listing *listing,
                      struct idem_scan *ret_scan)
{
    const struct idem_select *select = &listing->select;
    struct idem_message message;

    if (listing->limit < 1 || listing->limit > LIST_MAX) {
        return idem_args_wrong(usage, "--limit takes 1 to %d", LIST_MAX);
    }
    if (listing->audit && (select->states || select->scope || select->kind || select->after ||
                           select->before_us != 0)) {
        return idem_args_wrong(usage, "--audit goes with --since, --limit and --json only");
    }
    if (idem_select_filter(select, ret_scan, &message) != IDEM_OK) {
        return idem_args_wrong(usage, "%s", message.text);
    }
    return IDEM_EXIT_OK;
}

int idem_command_list(int argc, char **argv)
{
    struct listing list = {.limit = LIST_DEFAULT};
    const struct idem_option options[] = {
        {"store", IDEM_OPTION_TEXT, "URL",
         "the store (default: $IDEM_STORE, else the one in the state directory)", &list.store},
        {"state", IDEM_OPTION_TEXT, "STATES",
         "only these, separated by commas: processing, completed, failed, unknown",
         &list.select.states},
        {"scope", IDEM_OPTION_ANY_TEXT, "SCOPE", "only this scope", &list.select.scope},
        {"kind", IDEM_OPTION_TEXT, "KIND", "only this kind: http, message, lock, token, job, tx",
         &list.select.kind},
        {"since", IDEM_OPTION_INSTANT, "TIME",
         "only what was updated at or after TIME: 2h (ago), 2026-04-13T08:00:00Z",
         &list.select.since_us},
        {"before", IDEM_OPTION_INSTANT, "TIME", "only what was updated before TIME",
         &list.select.before_us},
        {"after", IDEM_OPTION_TEXT, "ID", "go on behind ID, where the page before ended",
         &list.select.after},
        {"limit", IDEM_OPTION_COUNT, "N", "at most N (default 100)", &list.limit},
        {"audit", IDEM_OPTION_FLAG, NULL, "list who settled what instead", &list.audit},
        {"json", IDEM_OPTION_FLAG, NULL, "print one JSON object", &list.json},
    };
    const struct idem_usage usage = {
        "list", "[OPTION]...", about, examples, options, sizeof options / sizeof options[0], 0};
    struct idem_operands operands;
    struct idem_scan scan;
    int outcome = idem_args_parse(&usage, argc, argv, &operands);

    if (outcome != IDEM_OK) {
        return idem_args_exit(outcome);
    }
    outcome = list_check(&usage, &list, &scan);
    return outcome != IDEM_EXIT_OK ? outcome : list_run(&list, &scan);
}
