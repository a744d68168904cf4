/*
 * Store copy: `idem store copy`, moves the records of a store to another one.
 *
 *   1. the target takes over the source's salt, or refuses: digests made under two salts never
 * match
 *   2. page by page: what the target has already is looked at first, the rest is put in batches
 *   3. what was found, copied and left is counted, and what a person must still do is told
 *
 * Repeating it is safe, and so is interrupting it: a put is whole or not made, and what is there
 * already is left. It is meant to be run twice: while the gateways still use the source, and once
 * more, quickly, when they have been stopped.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "base/memory.h"
#include "crash.h"
#include "hint.h"
#include "interrupt.h"
#include "json.h"
#include "place.h"
#include "printable.h"
#include "same.h"
#include "select.h"

#define PAGE_RECORDS    64
#define BATCH_BYTES_MAX (4u << 20) /* a statement or a pipeline must not become too large */
#define PROGRESS_S      2
#define SAME_SENTENCE   "FROM and TO are the same store; nothing was copied"

static const char about[] =
    "Copies every live record of the store FROM into the store TO, answers and all, so that the "
    "gateways can go on with TO: retries are then answered from there. Safe to repeat and to "
    "interrupt; what TO has already is left. Copy while the gateways still run on FROM, stop them, "
    "copy once more, and start them on TO. TO must be empty or have been copied to from FROM, and "
    "no gateway may use it before.";

static const char examples[] =
    "  idem store copy lmdb:/var/lib/idem/store redis://10.0.0.5/0 --dry-run\n"
    "  idem store copy lmdb:/var/lib/idem/store @/etc/idem/store-url\n";

struct copying {
    const char *from_option, *to_option;
    bool dry_run, json;
    char from_shown[IDEM_URL_SIZE_MAX], to_shown[IDEM_URL_SIZE_MAX];
    struct idem_store *from, *to;

    /* what came of the records that were found */
    int64_t found, copied, present, changed, expired, processing;
    struct idem_damaged damaged_from, damaged_to; /* at the source, at the target */
    bool full;

    struct idem_op ops[PAGE_RECORDS];
    struct idem_op *batch[PAGE_RECORDS];
    size_t batch_count, batch_bytes;
    time_t told_s;
};

/* --- one page ------------------------------------------------------------------------------ */

static size_t record_bytes(const struct idem_record *record)
{
    return record->answer.headers.size + record->answer.body.size;
}

static int batch_apply(struct copying *copying, struct idem_message *message)
{
    int error;

    message->text[0] = '\0';
    error = idem_store_apply(copying->to, copying->batch, copying->batch_count, message);
    if (error != IDEM_OK && message->text[0] == '\0') {
        idem_message_set(message, "%s", idem_error_text(error));
    }
    return error;
}

static void batch_clear(struct copying *copying)
{
    for (size_t i = 0; i < copying->batch_count; i++) {
        idem_op_deinit(copying->batch[i]);
    }
    copying->batch_count = copying->batch_bytes = 0;
}

static struct idem_op *batch_add(struct copying *copying, enum idem_op_kind kind,
                                 const struct idem_record *record)
{
    struct idem_op *op = &copying->ops[copying->batch_count];

    *op = (struct idem_op){.kind = kind, .id = record->id};
    if (kind == IDEM_OP_PUT) {
        op->in.put.record = *record;
        copying->batch_bytes += record_bytes(record);
    }
    copying->batch[copying->batch_count++] = op;
    return op;
}

static int put_count(struct copying *copying, const struct idem_op *put)
{
    switch (put->result) {
    case IDEM_RESULT_OK:
        copying->copied++;
        return IDEM_OK;
    case IDEM_RESULT_CHANGED:
        copying->changed++;
        return IDEM_OK;
    case IDEM_RESULT_FULL:
        copying->full = true;
        return IDEM_OK;
    default: /* what is there is damaged, and stands until a person has looked at it */
        return idem_damaged_add(&copying->damaged_to, &put->id);
    }
}

static int puts_apply(struct copying *copying, struct idem_message *message)
{
    int error = IDEM_OK;

    if (copying->batch_count > 0 && !copying->dry_run) {
        error = batch_apply(copying, message);
    }
    for (size_t i = 0; i < copying->batch_count && error == IDEM_OK; i++) {
        if (copying->dry_run) {
            copying->copied++;
        } else {
            error = put_count(copying, copying->batch[i]);
        }
    }
    batch_clear(copying);
    if (error == IDEM_OK && copying->full) {
        idem_message_set(message,
                         "%s has no room for more records: make it larger, and run this "
                         "again; what was copied stays",
                         copying->to_shown);
        error = IDEM_ERR_FULL;
    }
    return error;
}

/* What two copies of one state have in common; answers never change without one of these. */
static bool record_same(const struct idem_record *a, const struct idem_record *b)
{
    return a->state == b->state && a->fence == b->fence && idem_owner_equal(&a->owner, &b->owner) &&
           a->updated_us == b->updated_us && a->expires_us == b->expires_us &&
           a->answer.status == b->answer.status && a->answer.tombstone == b->answer.tombstone &&
           record_bytes(a) == record_bytes(b);
}

/* Which of the page's records the target needs; the others are counted. */
static int page_sift(struct copying *copying, const struct idem_op *scan, bool needed[PAGE_RECORDS],
                     size_t first, size_t count, struct idem_message *message)
{
    int error;

    for (size_t i = 0; i < count; i++) {
        (void)batch_add(copying, IDEM_OP_GET, &scan->out.page[first + i].record);
    }
    error = batch_apply(copying, message);
    for (size_t i = 0; i < count && error == IDEM_OK; i++) {
        const struct idem_record *record = &scan->out.page[first + i].record;
        const struct idem_op *get = copying->batch[i];

        needed[i] = false;
        if (record->kind == IDEM_KIND_SELFTEST) {
            continue;
        }
        copying->found++;
        copying->processing += record->state == IDEM_STATE_PROCESSING;
        if (idem_record_expired_at(record, get->out.now_us)) {
            copying->expired++;
        } else if (get->result == IDEM_RESULT_CORRUPT) {
            error = idem_damaged_add(&copying->damaged_to, &record->id);
        } else if (get->result == IDEM_RESULT_FOUND &&
                   record_same(&get->out.found.record, record)) {
            copying->present++;
        } else if (get->result == IDEM_RESULT_FOUND && copying->dry_run) {
            copying->changed++;
        } else {
            needed[i] = true;
        }
    }
    batch_clear(copying);
    return error;
}

/* At most PAGE_RECORDS records of the page, from `first` on. */
static int page_part_copy(struct copying *copying, const struct idem_op *scan, size_t first,
                          size_t count, struct idem_message *message)
{
    bool needed[PAGE_RECORDS];
    int error = page_sift(copying, scan, needed, first, count, message);

    for (size_t i = 0; i < count && error == IDEM_OK; i++) {
        if (!needed[i]) {
            continue;
        }
        (void)batch_add(copying, IDEM_OP_PUT, &scan->out.page[first + i].record);
        if (copying->batch_bytes >= BATCH_BYTES_MAX) {
            error = puts_apply(copying, message);
        }
    }
    return error != IDEM_OK ? error : puts_apply(copying, message);
}

/* A store may exceed the limit of a page a little. */
static int page_copy(struct copying *copying, const struct idem_op *scan,
                     struct idem_message *message)
{
    int error = IDEM_OK;

    for (size_t first = 0; first < scan->out.count && error == IDEM_OK; first += PAGE_RECORDS) {
        size_t left = scan->out.count - first;

        error = page_part_copy(copying, scan, first, left < PAGE_RECORDS ? left : PAGE_RECORDS,
                               message);
    }
    return error != IDEM_OK ? error : idem_damaged_add_scan(&copying->damaged_from, scan);
}

/* --- the whole ----------------------------------------------------------------------------- */

static void progress_tell(struct copying *copying)
{
    time_t now_s = time(NULL);

    if (now_s - copying->told_s >= PROGRESS_S && isatty(STDERR_FILENO)) {
        idem_say_note("%lld found, %lld copied so far", (long long)copying->found,
                      (long long)copying->copied);
        copying->told_s = now_s;
    }
}

static int records_copy(struct copying *copying, struct idem_message *message)
{
    struct idem_op scan = {.kind = IDEM_OP_SCAN, .in.scan.limit = PAGE_RECORDS};
    bool more = true;
    int error = IDEM_OK;

    copying->told_s = time(NULL);
    while (more && error == IDEM_OK) {
        if (idem_interrupt_noted()) {
            idem_message_set(message, "interrupted; what was copied stays, and running this again "
                                      "copies the rest");
            return IDEM_ERR_UNAVAILABLE;
        }
        error = idem_select_apply(copying->from, &scan, message);
        if (error == IDEM_OK) {
            error = page_copy(copying, &scan, message);
            more = scan.out.more;
            scan.in.scan.cursor = scan.out.next;
            scan.in.scan.has_cursor = true;
        }
        idem_op_deinit(&scan);
        progress_tell(copying);
    }
    return error;
}

static bool salts_equal(const struct copying *copying)
{
    struct idem_salt from = idem_store_salt(copying->from), to = idem_store_salt(copying->to);

    return memcmp(from.bytes, to.bytes, sizeof from.bytes) == 0;
}

/* A dry run changes no salt, so it looks for what would make the change be refused. */
static int salt_try(struct copying *copying, struct idem_message *message)
{
    struct idem_op scan = {.kind = IDEM_OP_SCAN, .in.scan.limit = 1};
    int error;

    if (salts_equal(copying)) {
        return IDEM_OK;
    }
    error = idem_select_apply(copying->to, &scan, message);
    if (error == IDEM_OK && scan.out.count > 0) {
        idem_message_set(message, "it holds records of its own, made under another salt");
        error = IDEM_ERR_INVALID;
    }
    idem_op_deinit(&scan);
    return error;
}

static int salt_settle(struct copying *copying, struct idem_message *message)
{
    struct idem_salt salt = idem_store_salt(copying->from);
    struct idem_message reason = {{0}};
    int error = copying->dry_run ? salt_try(copying, &reason)
                                 : idem_store_adopt(copying->to, &salt, &reason);

    if (error == IDEM_ERR_INVALID) {
        idem_message_set(message,
                         "%s cannot take these records: %s. Name a target that is empty, or one "
                         "that was copied to from this very source",
                         copying->to_shown, reason.text);
    } else if (error != IDEM_OK) {
        idem_message_set(message, "%s: %s", copying->to_shown,
                         reason.text[0] != '\0' ? reason.text : idem_error_text(error));
    }
    return error;
}

/* --- telling ------------------------------------------------------------------------------- */

struct count {
    const char *name, *words;
    int64_t number;
};

#define COUNTS 7

static int64_t damaged_number(const struct copying *copying)
{
    return (int64_t)(idem_damaged_number(&copying->damaged_from) +
                     idem_damaged_number(&copying->damaged_to));
}

static void counts_make(const struct copying *copying, struct count ret_counts[COUNTS])
{
    const struct count counts[COUNTS] = {
        {"found", "found at the source", copying->found},
        {"copied", copying->dry_run ? "would be copied" : "copied", copying->copied},
        {"already_there", "already there", copying->present},
        {"changed", copying->dry_run ? "there in another state" : "newer at the target, left",
         copying->changed},
        {"expired", "expired meanwhile", copying->expired},
        {"damaged", "damaged, not copied", damaged_number(copying)},
        {"processing", "being processed at the source", copying->processing},
    };

    memcpy(ret_counts, counts, sizeof counts);
}

static int copying_json(const struct copying *copying, bool whole)
{
    struct count counts[COUNTS];
    json_t *object = json_object();
    int bad = object == NULL;

    counts_make(copying, counts);
    if (bad == 0) {
        bad |= idem_json_set_text(object, "from", copying->from_shown);
        bad |= idem_json_set_text(object, "to", copying->to_shown);
        bad |= idem_json_set_flag(object, "dry_run", copying->dry_run);
        bad |= idem_json_set_flag(object, "whole", whole);
        for (size_t i = 0; i < COUNTS; i++) {
            bad |= idem_json_set_number(object, counts[i].name, counts[i].number);
        }
        bad |=
            idem_json_set_owned(object, "damaged_from", idem_damaged_json(&copying->damaged_from));
        bad |= idem_json_set_owned(object, "damaged_to", idem_damaged_json(&copying->damaged_to));
        bad |= bad == 0 ? idem_json_print(object, false) : 0;
    }
    json_decref(object);
    return bad != 0 ? IDEM_ERR_NOMEM : IDEM_OK;
}

static void copying_print(const struct copying *copying)
{
    struct count counts[COUNTS];

    counts_make(copying, counts);
    fputs("from ", stdout);
    idem_printable_write(stdout, copying->from_shown);
    fputs("\nto   ", stdout);
    idem_printable_write(stdout, copying->to_shown);
    putchar('\n');
    for (size_t i = 0; i < COUNTS; i++) {
        printf("%10lld  %s\n", (long long)counts[i].number, counts[i].words);
    }
}

/* What a person must still do, or may be surprised by. */
static void remarks_tell(const struct copying *copying)
{
    if (copying->processing > 0) {
        idem_say_warning("requests are still being processed at the source (%lld): stop its "
                         "gateways and copy once more, or their outcome will be unknown at the "
                         "target",
                         (long long)copying->processing);
    }
    if (copying->changed > 0 && !copying->dry_run) {
        idem_say_note("some records had a newer or another state at the target (%lld), which was "
                      "left",
                      (long long)copying->changed);
    }
}

/* Each by commands that name the store that it is in. */
static void damaged_tell(const struct copying *copying)
{
    char hint[IDEM_URL_SIZE_MAX];

    idem_hint_store(idem_place_hint(copying->from_option, copying->from_shown, hint));
    idem_damaged_tell(&copying->damaged_from,
                      "not copied, and at the target nothing protects their keys");
    idem_hint_store(idem_place_hint(copying->to_option, copying->to_shown, hint));
    idem_damaged_tell(&copying->damaged_to, "left at the target and not copied over");
    idem_hint_store(NULL); /* it was borrowed */
}

static int copying_end(struct copying *copying, int error, const struct idem_message *message)
{
    int status = IDEM_EXIT_OK;

    if (copying->json && copying_json(copying, error == IDEM_OK) != IDEM_OK) {
        idem_say_error("%s", idem_error_text(IDEM_ERR_NOMEM));
        return IDEM_EXIT_FAILURE;
    }
    if (!copying->json) {
        copying_print(copying);
    }
    if (error != IDEM_OK) {
        idem_say_error("stopped: %s",
                       message->text[0] != '\0' ? message->text : idem_error_text(error));
        status = idem_place_exit(error);
    } else if (damaged_number(copying) > 0) {
        damaged_tell(copying);
        status = IDEM_EXIT_FAILURE;
    }
    if (error == IDEM_OK) {
        remarks_tell(copying);
    }
    return idem_say_end(status);
}

/* --- the command --------------------------------------------------------------------------- */

/* For a dry run into a directory without a store: an empty one that nothing is put into. */
static int stand_in_open(struct copying *copying, int error, struct idem_message *message)
{
    char url[IDEM_URL_SIZE_MAX];
    struct idem_message ignored;
    char *directory = NULL;
    char file[PATH_MAX];
    bool absent = false;

    if (idem_place_store(copying->to_option, url, &ignored) == IDEM_OK &&
        idem_store_url_check(url, &directory, &ignored) == IDEM_OK && directory != NULL) {
        int size = snprintf(file, sizeof file, "%s/data.mdb", directory);

        absent =
            size > 0 && (size_t)size < sizeof file && access(file, F_OK) != 0 && errno == ENOENT;
    }
    free(directory); /* malloc'd, says idem_store_url_check */
    return absent ? idem_store_open("memory:", NULL, &copying->to, message) : error;
}

static int target_open(struct copying *copying, struct idem_message *message)
{
    int error = idem_place_open(copying->to_option, !copying->dry_run, copying->to_shown,
                                &copying->to, message);

    /* Another copy from the same source may have given it that one's salt in the middle of this. */
    if (error == IDEM_ERR_UNSAFE) {
        error = idem_place_open(copying->to_option, !copying->dry_run, copying->to_shown,
                                &copying->to, message);
    }
    return error;
}

static int stores_open(struct copying *copying, struct idem_message *message)
{
    int error =
        idem_place_open(copying->from_option, false, copying->from_shown, &copying->from, message);

    if (error == IDEM_OK) {
        error = target_open(copying, message);
    }
    if (error == IDEM_ERR_UNAVAILABLE && copying->dry_run && copying->from != NULL) {
        error = stand_in_open(copying, error, message);
    }
    if (error == IDEM_OK) {
        idem_crash_guard(STDERR_FILENO, "%s: " IDEM_CRASH_SENTENCE "\n", idem_say_speaker(),
                         "FROM or TO");
    }
    return error;
}

/* Another copy from the same source may have done it since TO was opened here: look once more. */
static int salt_settle_again(struct copying *copying, struct idem_message *message)
{
    struct idem_message ignored;
    int error = salt_settle(copying, message);

    if (error == IDEM_OK || copying->dry_run) {
        return error;
    }
    idem_store_close(copying->to);
    copying->to = NULL;
    return target_open(copying, &ignored) == IDEM_OK && salts_equal(copying) ? IDEM_OK : error;
}

/* Whether records may be copied from the one to the other at all. */
static int stores_judge(struct copying *copying)
{
    struct idem_message message = {{0}};
    bool same = false;
    int error = IDEM_OK;

    if (salts_equal(copying)) {
        error = idem_same_tried(copying->to, copying->from, &same, &message);
    }
    if (same) {
        idem_say_error(SAME_SENTENCE);
        return IDEM_EXIT_USAGE;
    }
    if (error == IDEM_OK) {
        error = salt_settle_again(copying, &message);
    }
    if (error != IDEM_OK) {
        idem_say_error("%s", message.text);
        return error == IDEM_ERR_INVALID ? IDEM_EXIT_REFUSED : IDEM_EXIT_FAILURE;
    }
    return IDEM_EXIT_OK;
}

static int copy_run(struct copying *copying)
{
    struct idem_message message = {{0}};
    int status, error;

    idem_interrupt_take();
    error = stores_open(copying, &message);

    if (error != IDEM_OK) {
        idem_say_error("%s", message.text);
        status = idem_place_exit(error);
    } else {
        status = stores_judge(copying);
        if (status == IDEM_EXIT_OK) {
            error = records_copy(copying, &message);
            status = copying_end(copying, error, &message);
        }
    }
    idem_store_close(copying->from);
    idem_place_close(copying->to);
    return status;
}

int idem_command_store_copy(int argc, char **argv)
{
    struct copying *copying = idem_calloc(1, sizeof *copying);
    bool dry_run = false;
    bool json = false;
    const struct idem_option options[] = {
        {"dry-run", IDEM_OPTION_FLAG, NULL, "count only; put nothing", &dry_run},
        {"json", IDEM_OPTION_FLAG, NULL, "print one JSON object", &json},
    };
    const struct idem_usage usage = {"store copy",
                                     "FROM TO [OPTION]...",
                                     about,
                                     examples,
                                     options,
                                     sizeof options / sizeof options[0],
                                     2};
    struct idem_operands operands;
    int status = idem_args_parse(&usage, argc, argv, &operands);

    if (copying == NULL) {
        idem_say_error("%s", idem_error_text(IDEM_ERR_NOMEM));
        return IDEM_EXIT_FAILURE;
    }
    if (status != IDEM_OK) {
        status = idem_args_exit(status);
    } else if (operands.count != 2) {
        status = idem_args_wrong(&usage, "name two stores: FROM, and the one to copy it to");
    } else {
        copying->from_option = operands.items[0];
        copying->to_option = operands.items[1];
        copying->dry_run = dry_run;
        copying->json = json;
        status = idem_same_named(copying->from_option, copying->to_option)
                     ? idem_args_wrong(&usage, SAME_SENTENCE)
                     : copy_run(copying);
    }
    idem_damaged_deinit(&copying->damaged_from);
    idem_damaged_deinit(&copying->damaged_to);
    idem_free(copying);
    return status;
}
