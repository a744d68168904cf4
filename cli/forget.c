/* Forget: `idem forget`, removes records, so that the next request with their key executes. */
#include "settle.h"

static const char about[] =
    "Removes a record, or many. The next request with its key is then executed as if it were the "
    "first: forget only what may happen again, or never happened. A running request is left alone "
    "unless --force is given. Who did it and why stays in the audit trail: idem list --audit.";

static const char examples[] =
    "  idem forget 3f2a9c --why 'test data'\n"
    "  idem forget --key order_7_pay_9 --scope tenant-7 --why 'order cancelled'\n"
    "  idem forget --state failed --before 7d --dry-run\n";

static bool state_allows(enum idem_state state)
{
    return state != IDEM_STATE_PROCESSING;
}

static void forget_fill(void *context, const struct idem_record *seen, struct idem_op *ret_op)
{
    const struct idem_settle *settle = context;

    ret_op->kind = IDEM_OP_FORGET;
    ret_op->id = seen->id;
    ret_op->in.forget = (struct idem_forget){
        .who = idem_bytes_from_text(settle->who),
        .why = idem_bytes_from_text(settle->why),
        .force = settle->force,
    };
}

int idem_command_forget(int argc, char **argv)
{
    struct idem_settle settle = {
        .fence = -1,
        .done = "forgotten",
        .would_do = "would forget",
        .only = "records that are not running",
        .effect = "the next request with this key is executed as if it were the first",
        .allows = state_allows,
        .fill = forget_fill,
        .context = &settle,
    };
    struct idem_option options[IDEM_SETTLE_OPTIONS];
    const struct idem_usage usage = {
        "forget", "ID | --key KEY | --state STATES, --why TEXT [OPTION]...",
        about,    examples,
        options,  IDEM_SETTLE_OPTIONS,
        1};
    struct idem_operands operands;
    int outcome;

    idem_settle_options(&settle, options);
    outcome = idem_args_parse(&usage, argc, argv, &operands);
    if (outcome != IDEM_OK) {
        return idem_args_exit(outcome);
    }
    outcome = idem_settle_check(&settle, &usage, &operands);
    return outcome != IDEM_EXIT_OK ? outcome : idem_settle_run(&settle);
}
