/* Store: `idem store check`, what a store is and what its settings can lose. */
#include <stdio.h>

#include "args.h"
#include "json.h"
#include "place.h"

static const char about[] =
    "Opens a store, runs the self-test that a gateway runs when it starts (claim, second claim "
    "refused, complete, read back, expiry set), and tells what the store is and what its settings "
    "can lose. A store that cannot keep its promise is refused, with the reason.";

static const char examples[] = "  idem store check\n"
                               "  idem store check lmdb:/srv/idem\n"
                               "  idem store check 'lmdb:/srv/idem?sync=off' --create\n";

static int facts_json(const char *url, const struct idem_store_fact *facts, size_t count)
{
    json_t *object = json_object();
    json_t *list = json_object();
    int bad = object == NULL || list == NULL;

    if (bad == 0) {
        bad |= idem_json_set_text(object, "store", url);
        bad |= idem_json_set_text(object, "self_test", "passed");
        for (size_t i = 0; i < count; i++) {
            bad |= idem_json_set_text(list, facts[i].name, facts[i].value);
        }
        /* Shared, not given away: both references are dropped below. */
        bad |= json_object_set(object, "facts", list);
        bad |= bad == 0 ? idem_json_print(object, false) : 0;
    }
    json_decref(list);
    json_decref(object);
    return bad != 0 ? IDEM_ERR_NOMEM : IDEM_OK;
}

static void facts_print(const char *url, const struct idem_store_fact *facts, size_t count)
{
    int width = (int)strlen("self-test");

    for (size_t i = 0; i < count; i++) {
        int size = (int)strlen(facts[i].name);

        width = size > width ? size : width;
    }
    printf("%-*s  %s\n", width, "store", url);
    printf("%-*s  passed: claim, second claim refused, complete, read back, expiry\n", width,
           "self-test");
    for (size_t i = 0; i < count; i++) {
        printf("%-*s  %s\n", width, facts[i].name, facts[i].value);
    }
}

static int check_run(const char *option, bool create, bool json)
{
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    char url[IDEM_URL_SIZE_MAX];
    struct idem_message message;
    struct idem_store *store = NULL;
    size_t count;
    int error = idem_place_open(option, create, url, &store, &message);

    if (error != IDEM_OK) {
        idem_say_error("%s", message.text);
        return idem_place_exit(error);
    }
    count = idem_store_describe(store, facts, IDEM_STORE_FACTS_MAX);
    if (json) {
        error = facts_json(url, facts, count);
    } else {
        facts_print(url, facts, count);
    }
    idem_place_close(store);
    if (error != IDEM_OK) {
        idem_say_error("%s", idem_error_text(error));
        return IDEM_EXIT_FAILURE;
    }
    return idem_say_end(IDEM_EXIT_OK);
}

int idem_command_store_check(int argc, char **argv)
{
    const char *url = NULL;
    bool create = false;
    bool json = false;
    const struct idem_option options[] = {
        {"store", IDEM_OPTION_TEXT, "URL",
         "the store (default: $IDEM_STORE, else the one in the state directory)", &url},
        {"create", IDEM_OPTION_FLAG, NULL, "make the store if it does not exist", &create},
        {"json", IDEM_OPTION_FLAG, NULL, "print one JSON object", &json},
    };
    const struct idem_usage usage = {"store check",
                                     "[URL] [OPTION]...",
                                     about,
                                     examples,
                                     options,
                                     sizeof options / sizeof options[0],
                                     1};
    struct idem_operands operands;
    int outcome = idem_args_parse(&usage, argc, argv, &operands);

    if (outcome != IDEM_OK) {
        return idem_args_exit(outcome);
    }
    if (operands.count > 0 && url != NULL) {
        return idem_args_wrong(&usage, "name the store once: as URL or by --store URL");
    }
    return check_run(operands.count > 0 ? operands.items[0] : url, create, json);
}
