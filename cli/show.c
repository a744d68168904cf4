/* Show: `idem show`, everything that is known of one record. */
#include <stdio.h>

#include "args.h"
#include "json.h"
#include "place.h"
#include "select.h"
#include "view.h"

struct show {
    struct idem_select select;
    const char *id, *store;
    bool json, body;
};

static const char about[] =
    "Shows one record: what it stands for, its state and what that means for the next request, and "
    "the answer that is kept. Name it by its id, by the first digits of it, or by its key.";

static const char examples[] =
    "  idem show 3f2a9c\n"
    "  idem show --key order_20260413001_pay_user123 --scope tenant-7\n"
    "  idem show 3f2a9c --body > answer.json     the kept body, byte by byte\n";

static int record_show(const struct show *show, const struct idem_op *get)
{
    const struct idem_record *record = &get->out.found.record;
    json_t *object;
    int error;

    if (show->body) {
        if (record->state != IDEM_STATE_COMPLETED || record->answer.tombstone != IDEM_REASON_NONE) {
            idem_say_error("the record has no kept answer; without --body the command says why");
            return IDEM_EXIT_ABSENT;
        }
        fwrite(record->answer.body.data, 1, record->answer.body.size, stdout);
        return IDEM_EXIT_OK;
    }
    if (!show->json) {
        error = idem_view_print(record, get->out.now_us);
    } else {
        error = idem_view_json(record, true, &object);
        if (error == IDEM_OK) {
            error = idem_json_print(object, false);
            json_decref(object);
        }
    }
    if (error != IDEM_OK) {
        idem_say_error("%s", idem_error_text(error));
        return IDEM_EXIT_FAILURE;
    }
    return IDEM_EXIT_OK;
}

static int show_run(const struct show *show)
{
    char shown[IDEM_URL_SIZE_MAX];
    struct idem_message message;
    struct idem_store *store = NULL;
    struct idem_op get = {0};
    struct idem_id id;
    int status;
    int outcome = idem_place_open(show->store, false, shown, &store, &message);

    if (outcome != IDEM_OK) {
        idem_say_error("%s", message.text);
        return idem_place_exit(outcome);
    }
    outcome = idem_select_id(store, &show->select, show->id, &id, &message);
    if (outcome == IDEM_OK) {
        outcome = idem_select_record(store, &id, &get, &message);
    }
    if (outcome == IDEM_OK) {
        status = record_show(show, &get);
    } else {
        idem_say_error("%s", message.text);
        status = idem_select_exit(outcome);
    }
    idem_op_deinit(&get);
    idem_place_close(store);
    return idem_say_end(status);
}

int idem_command_show(int argc, char **argv)
{
    struct show show = {0};
    const struct idem_option options[] = {
        {"store", IDEM_OPTION_TEXT, "URL",
         "the store (default: $IDEM_STORE, else the one in the state directory)", &show.store},
        {"key", IDEM_OPTION_TEXT, "KEY", "the record of this key, in place of an id",
         &show.select.key},
        {"scope", IDEM_OPTION_ANY_TEXT, "SCOPE", "whose key it is (default: the empty scope)",
         &show.select.scope},
        {"kind", IDEM_OPTION_TEXT, "KIND", "the kind of key (default: http)", &show.select.kind},
        {"body", IDEM_OPTION_FLAG, NULL, "write the kept body and nothing else", &show.body},
        {"json", IDEM_OPTION_FLAG, NULL, "print one JSON object", &show.json},
    };
    const struct idem_usage usage = {"show",  "ID | --key KEY [OPTION]...",       about, examples,
                                     options, sizeof options / sizeof options[0], 1};
    struct idem_operands operands;
    struct idem_message message;
    int outcome = idem_args_parse(&usage, argc, argv, &operands);

    if (outcome != IDEM_OK) {
        return idem_args_exit(outcome);
    }
    show.id = operands.count > 0 ? operands.items[0] : NULL;
    if ((show.id == NULL) == (show.select.key == NULL)) {
        return idem_args_wrong(&usage, "name one record: an ID, or --key KEY");
    }
    if (show.id != NULL && (show.select.scope != NULL || show.select.kind != NULL)) {
        return idem_args_wrong(&usage, "--scope and --kind go with --key; an id says both already");
    }
    if (show.json && show.body) {
        return idem_args_wrong(&usage, "--json and --body exclude each other");
    }
    if (idem_select_check(&show.select, show.id, &message) != IDEM_OK) {
        return idem_args_wrong(&usage, "%s", message.text);
    }
    return show_run(&show);
}
