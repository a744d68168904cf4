/* Sweep: `idem sweep`, removes what has expired. A running gateway does it by itself. */
#include <stdio.h>

#include "args.h"
#include "place.h"
#include "select.h"

#define SWEEP_BATCH 1000

static const char about[] =
    "Removes the records that have expired. A running gateway sweeps by itself; this is for a "
    "store "
    "that nothing runs on, or to make room now. Unknown records that nobody settled for their "
    "whole "
    "life (30 days unless the gateway says otherwise) are removed too, and counted apart.";

static const char examples[] = "  idem sweep\n"
                               "  idem sweep --store lmdb:/srv/idem --limit 10000 --json\n";

struct sweeping {
    const char *store;
    int64_t limit;
    bool json;
    int64_t removed, unknown;
    bool more;
};

static int sweep_all(struct sweeping *sweeping, struct idem_store *store,
                     struct idem_message *message)
{
    int error = IDEM_OK;

    sweeping->more = true;
    while (sweeping->more && error == IDEM_OK && sweeping->removed < sweeping->limit) {
        int64_t left = sweeping->limit - sweeping->removed;
        struct idem_op op = {.kind = IDEM_OP_SWEEP};

        op.in.sweep.limit = (uint32_t)(left < SWEEP_BATCH ? left : SWEEP_BATCH);
        error = idem_select_apply(store, &op, message);
        if (error == IDEM_OK) {
            sweeping->removed += (int64_t)op.out.count;
            sweeping->unknown += (int64_t)op.out.unknown_removed;
            sweeping->more = op.out.more;
        }
        idem_op_deinit(&op);
    }
    return error;
}

static void sweep_tell(const struct sweeping *sweeping, int error)
{
    if (sweeping->json) {
        printf("{\"removed\":%lld,\"unknown_removed\":%lld,\"more\":%s}\n",
               (long long)sweeping->removed, (long long)sweeping->unknown,
               sweeping->more ? "true" : "false");
        return;
    }
    printf("removed %lld expired records", (long long)sweeping->removed);
    if (sweeping->unknown > 0) {
        printf(", %lld of them never settled", (long long)sweeping->unknown);
    }
    puts(error == IDEM_OK && sweeping->more ? "; there are more" : "");
}

static int sweep_run(struct sweeping *sweeping)
{
    char shown[IDEM_URL_SIZE_MAX];
    struct idem_message message;
    struct idem_store *store = NULL;
    int error = idem_place_open(sweeping->store, false, shown, &store, &message);

    if (error == IDEM_OK) {
        error = sweep_all(sweeping, store, &message);
        /* What was removed before a failure is removed. */
        sweep_tell(sweeping, error);
    }
    idem_place_close(store);
    if (error != IDEM_OK) {
        idem_say_error("%s", message.text);
        return idem_say_end(idem_place_exit(error));
    }
    return idem_say_end(IDEM_EXIT_OK);
}

int idem_command_sweep(int argc, char **argv)
{
    struct sweeping sweeping = {.limit = INT64_MAX};
    const struct idem_option options[] = {
        {"store", IDEM_OPTION_TEXT, "URL",
         "the store (default: $IDEM_STORE, else the one in the state directory)", &sweeping.store},
        {"limit", IDEM_OPTION_COUNT, "N", "remove N at most (default: all)", &sweeping.limit},
        {"json", IDEM_OPTION_FLAG, NULL, "print one JSON object", &sweeping.json},
    };
    const struct idem_usage usage = {
        "sweep", "[OPTION]...", about, examples, options, sizeof options / sizeof options[0], 0};
    struct idem_operands operands;
    int outcome = idem_args_parse(&usage, argc, argv, &operands);

    if (outcome != IDEM_OK) {
        return idem_args_exit(outcome);
    }
    if (sweeping.limit < 1) {
        return idem_args_wrong(&usage, "--limit takes 1 or more");
    }
    return sweep_run(&sweeping);
}
