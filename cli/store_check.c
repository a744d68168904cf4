/*
 * Store check: `idem store check`, whether a store can be used, what it is, and what its settings
 * can lose: all on one screen, or as one object.
 *
 *   1. open it; opening runs the self-test
 *   2. when its settings are refused, open it once more with less asked of it, only to look at them
 *   3. when it could not be used, find out whether a server is there at all
 *   4. measure a round trip, ask for the facts, and give the verdict
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "args.h"
#include "json.h"
#include "place.h"
#include "printable.h"
#include "reach.h"
#include "select.h"

#define READS 9 /* of which the median is told */

static const char about[] =
    "Opens a store, runs the self-test that a gateway runs when it starts (claim, second claim "
    "refused, complete, read back, expiry set), and tells whether the store can be reached, what "
    "it is, which settings are in force, and what these can lose. A store that cannot keep what "
    "its URL asks for is refused, with the reason and what to do.";

static const char examples[] = "  idem store check\n"
                               "  idem store check lmdb:/srv/idem\n"
                               "  idem store check @/etc/idem/store-url\n"
                               "  idem store check 'redis://10.0.0.5/0?replicas=1' --json\n";

enum verdict {
    VERDICT_GOOD,
    VERDICT_FULL,        /* good, but for new keys: there is no room for them */
    VERDICT_UNAVAILABLE, /* it is not there, or does not answer */
    VERDICT_UNUSABLE,    /* it is there, and does not take us: a log-in, rights, tables */
    VERDICT_REFUSED,     /* we do not take it: its settings are too weak */
    VERDICT_FAILED,
};

static const char *const verdict_words[] = {"good",     "full",    "unavailable",
                                            "unusable", "refused", "failed"};

struct check {
    bool json;
    char shown[IDEM_URL_SIZE_MAX];
    struct idem_message reason; /* empty: none */
    int outcome;                /* of opening and looking */
    enum verdict verdict;
    bool reachable;
    int64_t read_us; /* negative: was not measured */
    size_t count;
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
};

/* --- looking ------------------------------------------------------------------------------- */

static int64_t clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * IDEM_SECOND_US + now.tv_nsec / 1000;
}

static int length_compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

/* The median of some reads of a record that is not there. */
static int read_measure(struct idem_store *store, int64_t *ret_read_us,
                        struct idem_message *message)
{
    int64_t lengths_us[READS];

    for (size_t i = 0; i < READS; i++) {
        struct idem_op get = {.kind = IDEM_OP_GET};
        int64_t begun_us;
        int error;

        randombytes_buf(get.id.bytes, sizeof get.id.bytes);
        begun_us = clock_us();
        error = idem_select_apply(store, &get, message);
        lengths_us[i] = clock_us() - begun_us;
        idem_op_deinit(&get);
        if (error != IDEM_OK) {
            return error;
        }
    }
    qsort(lengths_us, READS, sizeof lengths_us[0], length_compare);
    *ret_read_us = lengths_us[READS / 2];
    return IDEM_OK;
}

static int store_look(struct check *check, struct idem_store *store, struct idem_message *message)
{
    int error = read_measure(store, &check->read_us, message);

    check->count = idem_store_describe(store, check->facts, IDEM_STORE_FACTS_MAX);
    return error;
}

/* The URL with sync=off in place of what it says of sync. False when it does not fit. */
static bool url_relax(const char *url, char ret_url[IDEM_URL_SIZE_MAX])
{
    size_t size = strcspn(url, "?");
    const char *option = url[size] == '?' ? url + size + 1 : "";

    memcpy(ret_url, url, size);
    size += (size_t)snprintf(ret_url + size, IDEM_URL_SIZE_MAX - size, "?sync=off");
    while (*option != '\0' && size < IDEM_URL_SIZE_MAX) {
        int option_size = (int)strcspn(option, "&");

        if (strncmp(option, "sync=", 5) != 0) {
            size += (size_t)snprintf(ret_url + size, IDEM_URL_SIZE_MAX - size, "&%.*s", option_size,
                                     option);
        }
        option += option_size + (option[option_size] == '&');
    }
    return size < IDEM_URL_SIZE_MAX;
}

/* A server whose settings are too weak shows which they are to who asks for less. */
static void store_look_relaxed(struct check *check, const char *url)
{
    char relaxed[IDEM_URL_SIZE_MAX];
    struct idem_message ignored;
    struct idem_store *store = NULL;

    if (strlen(url) + sizeof "?sync=off" < IDEM_URL_SIZE_MAX && url_relax(url, relaxed) &&
        idem_store_open(relaxed, NULL, &store, &ignored) == IDEM_OK) {
        (void)!store_look(check, store, &ignored);
    }
    idem_store_close(store);
}

/* After an outcome that is not IDEM_OK. An embedded store is there when it can be looked into. */
static bool store_is_there(int outcome, const char *url, bool embedded)
{
    switch (outcome) {
    case IDEM_ERR_UNSAFE:
    case IDEM_ERR_SELFTEST:
    case IDEM_ERR_CORRUPT:
    case IDEM_ERR_FULL:
        return true;
    case IDEM_ERR_TIMEOUT:
    case IDEM_ERR_NOMEM:
        return false;
    default: /* said by the server, or by the system in its stead */
        return !embedded && idem_reach(url);
    }
}

static void trouble_look(struct check *check, int outcome, const char *option)
{
    char url[IDEM_URL_SIZE_MAX];
    struct idem_message ignored;
    char *directory = NULL;

    if (idem_place_store(option, url, &ignored) == IDEM_OK &&
        idem_store_url_check(url, &directory, &ignored) == IDEM_OK) {
        check->reachable = store_is_there(outcome, url, directory != NULL);
        if (outcome == IDEM_ERR_UNSAFE && directory == NULL) {
            store_look_relaxed(check, url);
        }
    }
    free(directory); /* malloc'd, says idem_store_url_check */
}

static enum verdict verdict_of(int outcome, bool reachable)
{
    switch (outcome) {
    case IDEM_OK:
        return VERDICT_GOOD;
    case IDEM_ERR_UNAVAILABLE:
    case IDEM_ERR_TIMEOUT:
        return reachable ? VERDICT_UNUSABLE : VERDICT_UNAVAILABLE;
    case IDEM_ERR_UNSUPPORTED: /* another version of the tables, or of the server */
        return VERDICT_UNUSABLE;
    case IDEM_ERR_UNSAFE:
    case IDEM_ERR_SELFTEST:
        return VERDICT_REFUSED;
    default:
        return VERDICT_FAILED;
    }
}

/* A full store works: it is good for all but new keys. */
static bool claims_are_refused(const struct check *check)
{
    for (size_t i = 0; i < check->count; i++) {
        if (strcmp(check->facts[i].name, "claims") == 0) {
            return strncmp(check->facts[i].value, "refused", strlen("refused")) == 0;
        }
    }
    return false;
}

/* --- telling ------------------------------------------------------------------------------- */

/* The facts that stores have in common come first, in the order of store.h. */
static size_t fact_rank(const struct idem_store_fact *fact)
{
    static const char *const common[] = {"backend",    "server",   "version", "clock difference",
                                         "durability", "can lose", "claims"};
    size_t rank = 0;

    while (rank < sizeof common / sizeof common[0] && strcmp(fact->name, common[rank]) != 0) {
        rank++;
    }
    return rank;
}

/* Insertion keeps the store's own order among the others. */
static void facts_sort(struct check *check)
{
    for (size_t i = 1; i < check->count; i++) {
        struct idem_store_fact fact = check->facts[i];
        size_t place = i;

        while (place > 0 && fact_rank(&check->facts[place - 1]) > fact_rank(&fact)) {
            check->facts[place] = check->facts[place - 1];
            place--;
        }
        check->facts[place] = fact;
    }
}

static const char *self_test_words(const struct check *check)
{
    if (check->verdict == VERDICT_GOOD || check->verdict == VERDICT_FULL) {
        return "passed";
    }
    return check->outcome == IDEM_ERR_SELFTEST ? "failed" : NULL;
}

static int check_json(const struct check *check)
{
    const char *reason = check->reason.text[0] != '\0' ? check->reason.text : NULL;
    json_t *object = json_object();
    json_t *facts = json_object();
    int bad = object == NULL || facts == NULL;

    if (bad == 0) {
        bad |= idem_json_set_text(object, "store", check->shown);
        bad |= idem_json_set_text(object, "verdict", verdict_words[check->verdict]);
        bad |= idem_json_set_text(object, "reason", reason);
        bad |= idem_json_set_flag(object, "reachable", check->reachable);
        bad |= check->read_us >= 0 ? idem_json_set_number(object, "read_us", check->read_us)
                                   : idem_json_set_owned(object, "read_us", json_null());
        bad |= idem_json_set_text(object, "self_test", self_test_words(check));
        for (size_t i = 0; i < check->count; i++) {
            bad |= idem_json_set_text(facts, check->facts[i].name, check->facts[i].value);
        }
        /* Shared, not given away: both references are dropped below. */
        bad |= json_object_set(object, "facts", facts);
        bad |= bad == 0 ? idem_json_print(object, false) : 0;
    }
    json_decref(facts);
    json_decref(object);
    return bad != 0 ? IDEM_ERR_NOMEM : IDEM_OK;
}

/* A server may say anything of itself. */
static void line_print(int width, const char *name, const char *value)
{
    printf("%-*s  ", width, name);
    idem_printable_write(stdout, value);
    putchar('\n');
}

static void check_print(const struct check *check)
{
    const char *self_test = self_test_words(check);
    int width = (int)strlen("self-test");

    for (size_t i = 0; i < check->count; i++) {
        int size = (int)strlen(check->facts[i].name);

        width = size > width ? size : width;
    }
    line_print(width, "store", check->shown);
    if (check->read_us >= 0) {
        printf("%-*s  yes: a read takes %.2f ms\n", width, "reachable",
               (double)check->read_us / 1000);
    } else {
        line_print(width, "reachable", check->reachable ? "yes, but it cannot be used" : "no");
    }
    if (self_test != NULL) {
        printf("%-*s  %s: %s\n", width, "self-test", self_test,
               check->verdict == VERDICT_FULL
                   ? "as far as a full store takes claims"
                   : "claim, second claim refused, complete, read back, expiry");
    }
    for (size_t i = 0; i < check->count; i++) {
        line_print(width, check->facts[i].name, check->facts[i].value);
    }
    line_print(width, "verdict", verdict_words[check->verdict]);
}

static int check_tell(struct check *check)
{
    int error = IDEM_OK;

    facts_sort(check);
    if (check->json) {
        error = check_json(check);
    } else {
        check_print(check);
    }
    if (error != IDEM_OK) {
        idem_say_error("%s", idem_error_text(error));
        return IDEM_EXIT_FAILURE;
    }
    return idem_say_end(IDEM_EXIT_OK);
}

/* --- the command --------------------------------------------------------------------------- */

static int check_run(const char *option, bool create, bool json)
{
    static struct check check;
    struct idem_store *store = NULL;
    int outcome, told;

    check.json = json;
    check.read_us = -1;
    outcome = idem_place_open(option, create, check.shown, &store, &check.reason);
    if (outcome == IDEM_PLACE_WRONG) {
        idem_say_error("%s", check.reason.text);
        return idem_place_exit(outcome);
    }
    if (outcome == IDEM_OK) {
        check.reachable = true;
        outcome = store_look(&check, store, &check.reason);
    }
    if (outcome != IDEM_OK) {
        trouble_look(&check, outcome, option);
    }
    check.outcome = outcome;
    check.verdict = verdict_of(outcome, check.reachable);
    if (check.verdict == VERDICT_GOOD && claims_are_refused(&check)) {
        check.verdict = VERDICT_FULL;
    }
    told = check_tell(&check);
    idem_place_close(store);
    if (outcome != IDEM_OK) {
        idem_say_error("%s", check.reason.text);
        return idem_place_exit(outcome);
    }
    return told;
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
