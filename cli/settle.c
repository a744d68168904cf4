/* Settle: see settle.h. */
#include "settle.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "grid.h"
#include "hint.h"
#include "json.h"
#include "place.h"
#include "view.h"
#include "when.h"

#define BULK_MAX        1000000
#define SHORT_ID_DIGITS 16
#define KEY_COLUMNS     60

/* How many records came to what. */
struct tally {
    int64_t done, changed, refused, absent;
};

struct settling {
    struct idem_settle *settle;
    struct idem_store *store;
    struct idem_message *message;
    struct tally tally;
    int64_t listed;
};

/* --- options ------------------------------------------------------------------------------- */

void idem_settle_options(struct idem_settle *settle, struct idem_option *ret_options)
{
    struct idem_select *select = &settle->select;
    const struct idem_option options[IDEM_SETTLE_OPTIONS] = {
        {"key", IDEM_OPTION_TEXT, "KEY", "the record of this key, in place of an id", &select->key},
        {"scope", IDEM_OPTION_ANY_TEXT, "SCOPE",
         "with --key: whose key it is; with --state: only this scope", &select->scope},
        {"kind", IDEM_OPTION_TEXT, "KIND",
         "with --key: the kind of key (default: http); with --state: only this kind",
         &select->kind},
        {"state", IDEM_OPTION_TEXT, "STATES",
         "many records: all that are in one of these states, separated by commas", &select->states},
        {"since", IDEM_OPTION_INSTANT, "TIME",
         "with --state: only what was updated at or after TIME", &select->since_us},
        {"before", IDEM_OPTION_INSTANT, "TIME", "with --state: only what was updated before TIME",
         &select->before_us},
        {"fence", IDEM_OPTION_COUNT, "N",
         "only if the record's fence is still N, the one that you looked at", &settle->fence},
        {"who", IDEM_OPTION_TEXT, "NAME", "who decides this (default: your login name)",
         &settle->who},
        {"why", IDEM_OPTION_TEXT, "TEXT", "why; kept with the record and in the audit trail",
         &settle->why},
        {"force", IDEM_OPTION_FLAG, NULL, "also where the record's state forbids it",
         &settle->force},
        {"dry-run", IDEM_OPTION_FLAG, NULL, "only show what would be done", &settle->dry_run},
        {"store", IDEM_OPTION_TEXT, "URL",
         "the store (default: $IDEM_STORE, else the one in the state directory)", &settle->store},
        {"json", IDEM_OPTION_FLAG, NULL, "print one JSON object", &settle->json},
    };

    memcpy(ret_options, options, sizeof options);
}

/* The person behind root, if sudo tells; a login name; or the bare number. */
static const char *login_name(char ret_name[IDEM_WHO_SIZE_MAX + 1])
{
    const char *sudo = getuid() == 0 ? getenv("SUDO_USER") : NULL;
    const struct passwd *entry;

    if (sudo != NULL && sudo[0] != '\0') {
        snprintf(ret_name, IDEM_WHO_SIZE_MAX + 1, "%s", sudo);
        return ret_name;
    }
    if (getlogin_r(ret_name, IDEM_WHO_SIZE_MAX + 1) == 0 && ret_name[0] != '\0') {
        return ret_name;
    }
    entry = getpwuid(getuid());
    if (entry != NULL) {
        snprintf(ret_name, IDEM_WHO_SIZE_MAX + 1, "%s", entry->pw_name);
    } else {
        snprintf(ret_name, IDEM_WHO_SIZE_MAX + 1, "uid %u", (unsigned)getuid());
    }
    return ret_name;
}

static int which_check(const struct idem_settle *settle, const struct idem_usage *usage)
{
    const struct idem_select *select = &settle->select;
    int ways = (settle->id != NULL) + (select->key != NULL) + (select->states != NULL);

    if (ways != 1) {
        return idem_args_wrong(usage, "say which: an ID, or --key KEY, or many by --state STATES");
    }
    if (settle->id != NULL && (select->scope != NULL || select->kind != NULL)) {
        return idem_args_wrong(usage, "--scope and --kind go with --key or --state");
    }
    if (select->states == NULL && (select->since_us != 0 || select->before_us != 0)) {
        return idem_args_wrong(usage, "--since and --before go with --state");
    }
    if (select->states != NULL && settle->fence >= 0) {
        return idem_args_wrong(usage, "--fence names one record's; it does not go with --state");
    }
    return IDEM_EXIT_OK;
}

int idem_settle_check(struct idem_settle *settle, const struct idem_usage *usage,
                      const struct idem_operands *operands)
{
    struct idem_message message;
    struct idem_scan scan;
    int status;

    settle->id = operands->count > 0 ? operands->items[0] : NULL;
    status = which_check(settle, usage);
    if (status != IDEM_EXIT_OK) {
        return status;
    }
    if (settle->who == NULL) {
        settle->who = login_name(settle->login);
    }
    if (settle->who[0] == '\0' || strlen(settle->who) > IDEM_WHO_SIZE_MAX) {
        return idem_args_wrong(usage, "--who takes 1 to %d bytes", IDEM_WHO_SIZE_MAX);
    }
    if (settle->why == NULL && !settle->dry_run) {
        return idem_args_wrong(usage, "--why TEXT is needed: a decision about money has a reason, "
                                      "and others will ask");
    }
    if (settle->why != NULL &&
        (settle->why[0] == '\0' || strlen(settle->why) > IDEM_WHY_SIZE_MAX)) {
        return idem_args_wrong(usage, "--why takes 1 to %d bytes", IDEM_WHY_SIZE_MAX);
    }
    if (idem_select_filter(&settle->select, &scan, &message) != IDEM_OK ||
        idem_select_check(&settle->select, settle->id, &message) != IDEM_OK) {
        return idem_args_wrong(usage, "%s", message.text);
    }
    return IDEM_EXIT_OK;
}

/* --- one record ---------------------------------------------------------------------------- */

/* What would come of it, judged by the record that was read: the word of a dry run. */
static enum idem_result result_expected(const struct idem_settle *settle, enum idem_state state)
{
    return settle->force || settle->allows(state) ? IDEM_RESULT_OK : IDEM_RESULT_REFUSED;
}

/* Until when the op, once applied, keeps its record; 0 when it leaves none. */
static int64_t op_until(const struct idem_op *op)
{
    int64_t ttl_us = op->in.resolve.ttl_us;

    if (op->kind != IDEM_OP_RESOLVE) {
        return 0;
    }
    return ttl_us < IDEM_NEVER_US - op->out.now_us ? op->out.now_us + ttl_us : IDEM_NEVER_US;
}

static int record_settle(struct settling *settling, const struct idem_record *seen,
                         enum idem_result *ret_result)
{
    struct idem_settle *settle = settling->settle;
    struct idem_op op = {.id = seen->id};
    int error;

    if (settle->fence >= 0 && (uint64_t)settle->fence != seen->fence) {
        *ret_result = IDEM_RESULT_CHANGED;
        return IDEM_OK;
    }
    settle->fill(settle->context, seen, &op);
    if (settle->dry_run) {
        op.out.now_us = idem_instant_now_us();
        settle->until_us = op_until(&op);
        *ret_result = result_expected(settle, seen->state);
        return IDEM_OK;
    }
    error = idem_select_apply(settling->store, &op, settling->message);
    if (error == IDEM_OK) {
        *ret_result = op.result;
        settle->until_us = op_until(&op);
        settle->cut = op.out.tombstoned;
        settle->oversized = op.out.oversized;
    }
    idem_op_deinit(&op);
    return error;
}

static void tally_add(struct tally *tally, enum idem_result result)
{
    switch (result) {
    case IDEM_RESULT_OK:
        tally->done++;
        break;
    case IDEM_RESULT_CHANGED:
        tally->changed++;
        break;
    case IDEM_RESULT_ABSENT:
        tally->absent++;
        break;
    default:
        tally->refused++;
        break;
    }
}

static int tally_exit(const struct tally *tally)
{
    if (tally->changed + tally->refused > 0) {
        return IDEM_EXIT_REFUSED;
    }
    return tally->absent > 0 ? IDEM_EXIT_ABSENT : IDEM_EXIT_OK;
}

static const char *result_word(const struct idem_settle *settle, enum idem_result result)
{
    if (result == IDEM_RESULT_OK) {
        return settle->dry_run ? settle->would_do : settle->done;
    }
    return idem_result_text(result);
}

static int result_json(struct settling *settling, const struct idem_record *seen,
                       enum idem_result result)
{
    char id[IDEM_ID_TEXT_SIZE];
    json_t *object = json_object();
    int bad = object == NULL;

    if (bad == 0) {
        idem_id_format(&seen->id, id);
        bad |= idem_json_set_text(object, "id", id);
        bad |= idem_json_set_bytes(object, "key", seen->key);
        bad |= idem_json_set_text(object, "was", idem_state_text(seen->state));
        bad |= idem_json_set_text(object, "result", result_word(settling->settle, result));
        if (result == IDEM_RESULT_OK && settling->settle->until_us > 0) {
            bad |= idem_json_set_instant(object, "kept_until", settling->settle->until_us);
        }
        fputs(settling->listed++ == 0 ? "\n" : ",\n", stdout);
        bad |= bad == 0 ? idem_json_print(object, true) : 0;
    }
    json_decref(object);
    return bad != 0 ? IDEM_ERR_NOMEM : IDEM_OK;
}

static void done_say(const struct idem_settle *settle)
{
    char until[IDEM_INSTANT_TEXT_SIZE];

    printf("\n%s: %s", result_word(settle, IDEM_RESULT_OK), settle->effect);
    if (settle->until_us == IDEM_NEVER_US) {
        printf("; kept for ever");
    } else if (settle->until_us > 0) {
        printf("; kept until %s, from when on the key is a new one (--ttl says how long)",
               idem_instant_format(settle->until_us, until));
    }
    putchar('\n');
    if (settle->cut) {
        idem_say_warning("the store %s: retries are told that it was executed and that the answer "
                         "is not kept",
                         settle->oversized ? "does not take an answer as large as this"
                                           : "has no room for the answer");
    }
}

static void result_say(const struct idem_settle *settle, enum idem_result result,
                       const struct idem_record *seen)
{
    const char *word = idem_state_text(seen->state);
    char command[IDEM_ID_TEXT_SIZE + 8] = "show ";
    char hint[IDEM_HINT_SIZE];

    switch (result) {
    case IDEM_RESULT_OK:
        done_say(settle);
        break;
    case IDEM_RESULT_CHANGED:
        idem_id_format(&seen->id, command + strlen("show "));
        idem_say_error("the record is not the one that was looked at any more; nothing was done. "
                       "Look again: %s",
                       idem_hint_make(command, hint));
        break;
    case IDEM_RESULT_ABSENT:
        idem_say_error("the record went away meanwhile; nothing was done");
        break;
    default:
        idem_say_error("the record is %s, and this is for %s; nothing was done. --force does it "
                       "all the same",
                       word ? word : "in no known state", settle->only);
        break;
    }
}

static int single_settle(struct settling *settling, const struct idem_op *get)
{
    const struct idem_record *seen = &get->out.found.record;
    struct idem_settle *settle = settling->settle;
    enum idem_result result = IDEM_RESULT_NONE;
    int error = settle->json ? IDEM_OK : idem_view_print(seen, get->out.now_us);

    if (error == IDEM_OK) {
        error = record_settle(settling, seen, &result);
    }
    if (error != IDEM_OK) {
        return error;
    }
    tally_add(&settling->tally, result);
    if (settle->json) {
        return result_json(settling, seen, result);
    }
    result_say(settle, result, seen);
    return IDEM_OK;
}

/* A damaged record cannot be read; that is a reason to forget it, so a forced forget goes on. */
static int damaged_settle(struct settling *settling, const struct idem_id *id)
{
    struct idem_settle *settle = settling->settle;
    const struct idem_record seen = {.id = *id};
    enum idem_result result = IDEM_RESULT_NONE;
    int error;

    if (!settle->force) {
        idem_say_error("%s", settling->message->text);
        settling->tally.refused++;
        return IDEM_OK;
    }
    error = record_settle(settling, &seen, &result);
    if (error != IDEM_OK) {
        return error;
    }
    tally_add(&settling->tally, result);
    if (settle->json) {
        return result_json(settling, &seen, result);
    }
    result_say(settle, result, &seen);
    return IDEM_OK;
}

static int single_run(struct settling *settling)
{
    struct idem_settle *settle = settling->settle;
    struct idem_op get = {0};
    struct idem_id id;
    int outcome =
        idem_select_id(settling->store, &settle->select, settle->id, &id, settling->message);

    if (outcome == IDEM_OK) {
        outcome = idem_select_record(settling->store, &id, &get, settling->message);
    }
    if (outcome == IDEM_OK) {
        outcome = single_settle(settling, &get);
    } else if (outcome == IDEM_SELECT_DAMAGED) {
        outcome = damaged_settle(settling, &id);
    } else if (outcome == IDEM_SELECT_ABSENT) {
        idem_say_error("%s", settling->message->text);
        settling->tally.absent++;
        outcome = IDEM_OK;
    }
    idem_op_deinit(&get);
    return outcome;
}

/* --- many records -------------------------------------------------------------------------- */

static int bulk_visit(void *context, const struct idem_record *seen)
{
    struct settling *settling = context;
    enum idem_result result = IDEM_RESULT_NONE;
    char id[IDEM_ID_TEXT_SIZE];
    char until[IDEM_INSTANT_TEXT_SIZE];
    struct idem_grid row;
    int error = record_settle(settling, seen, &result);

    if (error != IDEM_OK) {
        return error;
    }
    tally_add(&settling->tally, result);
    if (settling->settle->json) {
        return result_json(settling, seen, result);
    }
    idem_id_format(&seen->id, id);
    id[SHORT_ID_DIGITS] = '\0';
    idem_grid_init(&row, (const char *const[]){"KEY"}, 1);
    error = idem_grid_bytes(&row, seen->key, KEY_COLUMNS);
    if (error == IDEM_OK) {
        printf("%-16s  %-10s  %s  %s", result_word(settling->settle, result),
               idem_state_text(seen->state), id, row.cells[0]);
        if (result == IDEM_RESULT_OK && settling->settle->until_us > 0) {
            printf("  until %s", idem_instant_format(settling->settle->until_us, until));
        }
        putchar('\n');
    }
    idem_grid_deinit(&row);
    return error;
}

static int bulk_run(struct settling *settling)
{
    struct idem_visit walk = {.max = BULK_MAX, .visit = bulk_visit, .context = settling};
    struct idem_scan scan;
    int error = idem_select_filter(&settling->settle->select, &scan, settling->message);

    if (error == IDEM_OK) {
        error = idem_select_visit(settling->store, &scan, &walk, settling->message);
    }
    if (error == IDEM_OK && !settling->settle->json) {
        const struct tally *tally = &settling->tally;

        printf("%lld %s, %lld refused, %lld changed, %lld gone\n", (long long)tally->done,
               settling->settle->dry_run ? settling->settle->would_do : settling->settle->done,
               (long long)tally->refused, (long long)tally->changed, (long long)tally->absent);
        fputs(walk.more ? "there are more: run it again\n" : "", stdout);
    }
    return error;
}

/* --- the run ------------------------------------------------------------------------------- */

static int settling_run(struct settling *settling)
{
    const struct idem_settle *settle = settling->settle;
    const struct tally *tally = &settling->tally;
    int error;

    if (settle->json) {
        printf("{\"dry_run\":%s,\"records\":[", settle->dry_run ? "true" : "false");
    }
    error = settle->select.states != NULL ? bulk_run(settling) : single_run(settling);
    if (settle->json) {
        /* Also after a failure half-way: what was settled before it is settled. */
        printf("%s],\"whole\":%s,\"done\":%lld,\"refused\":%lld,\"changed\":%lld,"
               "\"absent\":%lld}\n",
               settling->listed > 0 ? "\n" : "", error == IDEM_OK ? "true" : "false",
               (long long)tally->done, (long long)tally->refused, (long long)tally->changed,
               (long long)tally->absent);
    }
    return error;
}

int idem_settle_run(struct idem_settle *settle)
{
    char shown[IDEM_URL_SIZE_MAX];
    struct idem_message message;
    struct settling settling = {.settle = settle, .message = &message};
    int outcome = idem_place_open(settle->store, false, shown, &settling.store, &message);

    if (outcome != IDEM_OK) {
        idem_say_error("%s", message.text);
        return idem_place_exit(outcome);
    }
    idem_message_set(&message, "%s", idem_error_text(IDEM_ERR_NOMEM));
    outcome = settling_run(&settling);
    idem_place_close(settling.store);
    if (outcome != IDEM_OK) {
        idem_say_error("%s", message.text);
        return idem_say_end(idem_select_exit(outcome));
    }
    return idem_say_end(tally_exit(&settling.tally));
}
