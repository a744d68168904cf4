/*
 * The front of every store: URLs, the self-test on backends that are broken in one way each, and
 * what happens when memory runs out.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "contract.h"
#include "ops.h"
#include "store/front.h"
#include "store/server.h"

static void urls_are_read(void **state)
{
    struct idem_url *url = malloc(sizeof *url);

    (void)state;
    assert_non_null(url);
    assert_int_equal(idem_url_parse("lmdb:/a%20b%3fc/d?size=1g&sync=off", url, NULL), IDEM_OK);
    assert_string_equal(url->scheme, "lmdb");
    assert_string_equal(url->place, "/a b?c/d");
    assert_int_equal(url->option_count, 2);
    assert_string_equal(idem_url_option(url, "size"), "1g");
    assert_string_equal(idem_url_option(url, "sync"), "off");
    assert_null(idem_url_option(url, "siz"));
    assert_int_equal(idem_url_parse("x:", url, NULL), IDEM_OK);
    assert_string_equal(url->place, "");
    assert_int_equal(url->option_count, 0);
    assert_int_equal(idem_url_parse("x:y?a=b%26c%3Dd=e", url, NULL), IDEM_OK);
    assert_string_equal(idem_url_option(url, "a"), "b&c=d=e");
    assert_int_equal(idem_url_parse("x:?", url, NULL), IDEM_OK);
    free(url);
}

/* A URL is shown in logs and on screens. */
static void passwords_are_not_shown(void **state)
{
    static const char *const texts[][2] = {
        {"redis://h:6379/0?prefix=p", "redis://h:6379/0?prefix=p"},
        {"redis://user@h", "redis://user@h"},
        {"redis://user:secret@h:1,g:2/0?timeout=1s", "redis://user:***@h:1,g:2/0?timeout=1s"},
        {"redis://:secret@h", "redis://:***@h"},
        {"redis://:@h", "redis://:***@h"},
        {"postgresql://u:secret/with?all@of:them#@h/db", "postgresql://u:***@h/db"},
        {"mariadb://u:secret?more@h/db", "mariadb://u:***@h/db"},
        {"redis+unix:/run/r.sock?user=u&password=secret&x=1",
         "redis+unix:/run/r.sock?user=u&password=***&***"},
        {"redis+sentinel://h/m?sentinel_password=secret",
         "redis+sentinel://h/m?sentinel_password=***"},
        {"postgresql://u@h/d?passfile=/etc/p&x=1", "postgresql://u@h/d?passfile=/etc/p&x=1"},
        {"postgresql://u@h/d?passfiles=secret", "postgresql://u@h/d?passfiles=***"},
        {"lmdb:/srv/a:b@c", "lmdb:/srv/a:b@c"},
        {"memory:", "memory:"},
    };
    char shown[64];

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        idem_store_url_redact(texts[i][0], shown, sizeof shown);
        assert_string_equal(shown, texts[i][1]);
        for (size_t size = 1; size < sizeof shown; size++) {
            idem_store_url_redact(texts[i][0], shown, size);
            assert_int_equal(strlen(shown), strnlen(texts[i][1], size - 1));
            assert_null(strstr(shown, "secret"));
        }
    }
}

/* Nor in a sentence about a URL whose password is not escaped as it should be. */
static void passwords_are_not_told(void **state)
{
    static const char *const texts[] = {
        "redis//u:secret@h",         "u:secret@h/db",           "redis://u:secret/2@h",
        "redis://u:secret?2@h",      "redis://u:1secret/2@h:1", "postgresql://u:secret/x@h/db",
        "mariadb://u:x?secret@h/db", "redis://u:%secret@h",     "mysql://u:x?y=secret&z@h/db",
        "redis://u:12/secret@h",
    };
    struct idem_url *url = malloc(sizeof *url);
    struct idem_server *server = malloc(sizeof *server);

    (void)state;
    assert_true(url && server);
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct idem_message message = {""};
        int error = idem_url_parse(texts[i], url, &message);

        if (!error)
            error = idem_server_parse(url, 1, server, &message);
        if (error != IDEM_ERR_INVALID || message.text[0] == '\0')
            fail_msg("\"%s\" was taken, or nothing was said", texts[i]);
        if (strstr(message.text, "secret"))
            fail_msg("\"%s\" is told: %s", texts[i], message.text);
    }
    free(server);
    free(url);
}

/* A '&' in a password makes options of its end, which no sentence may name. */
static void ends_of_passwords_are_not_told(void **state)
{
    static const char *const texts[] = {
        "redis+unix:/r?user=u&password=a&secret",
        "redis+unix:/r?user=u&password=a&secret=x",
        "redis+unix:/r?user=u&password=a&timeout=secret",
        "redis+unix:/r?user=u&password=a&x&secret=1",
        "redis+unix:/r?password=a&timeout=1s&secret=x&secret=y",
        "redis+sentinel://h/m?sentinel_password=a&secret=x",
        "postgresql://h/d?password=a&schema=secret!",
        "postgresql://h/d?password=a&sync=secret",
        "mariadb://h/d?password=a&secret=x",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct idem_message messages[2] = {{""}, {""}};
        struct idem_store *store = NULL;
        char shown[128];

        assert_int_not_equal(idem_store_open(texts[i], NULL, &store, &messages[0]), IDEM_OK);
        assert_int_not_equal(idem_store_url_check(texts[i], NULL, &messages[1]), IDEM_OK);
        for (size_t m = 0; m < COUNT(messages); m++)
            if (!messages[m].text[0] || strstr(messages[m].text, "secret"))
                fail_msg("\"%s\" is told: %s", texts[i], messages[m].text);
        idem_store_url_redact(texts[i], shown, sizeof shown);
        assert_null(strstr(shown, "secret"));
    }
}

static void bad_urls_are_refused(void **state)
{
    static const char *const texts[] = {
        "",         "lmdb",          ":",           "LMDB:/x", "9p:/x",
        "lm db:/x", "x:%",           "x:%4",        "x:%zz",   "x:a%00b",
        "x:y?a",    "x:y?=b",        "x:y?a=1&a=2", "x:y?a=%", "x:y?a=1&",
        "x:y?&a=1", "x:y?%61=1&a=2",
    };
    struct idem_url *url = malloc(sizeof *url);
    char longest[IDEM_URL_SIZE_MAX + 2];

    (void)state;
    assert_non_null(url);
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct idem_message message = {""};
        int error = idem_url_parse(texts[i], url, &message);

        if (strcmp(texts[i], "x:y?a=1&") == 0)
            assert_int_equal(error, IDEM_OK); /* an '&' too many at the end does no harm */
        else if (error != IDEM_ERR_INVALID || message.text[0] == '\0')
            fail_msg("\"%s\" was taken, or nothing was said", texts[i]);
    }
    memset(longest, 'y', sizeof longest);
    memcpy(longest, "x:", 2);
    longest[IDEM_URL_SIZE_MAX] = '\0';
    assert_int_equal(idem_url_parse(longest, url, NULL), IDEM_ERR_INVALID);
    longest[IDEM_URL_SIZE_MAX - 1] = '\0';
    assert_int_equal(idem_url_parse(longest, url, NULL), IDEM_OK);
    assert_int_equal(strlen(url->place), IDEM_URL_SIZE_MAX - 3);
    free(url);
}

static void too_many_options_are_refused(void **state)
{
    struct idem_url *url = malloc(sizeof *url);
    char text[512] = "x:y?";

    (void)state;
    assert_non_null(url);
    for (int i = 0; i < IDEM_URL_OPTIONS_MAX; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "o%d=%d&", i, i);
    assert_int_equal(idem_url_parse(text, url, NULL), IDEM_OK);
    assert_string_equal(idem_url_option(url, "o15"), "15");
    snprintf(text + strlen(text), sizeof text - strlen(text), "one=more");
    assert_int_equal(idem_url_parse(text, url, NULL), IDEM_ERR_INVALID);
    free(url);
}

static void sizes_are_read(void **state)
{
    static const struct {
        const char *text;
        uint64_t size;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"64k", 65536},
        {"16M", 16777216},
        {"16g", UINT64_C(17179869184)},
        {"18446744073709551615", UINT64_MAX},
        {"17179869183g", UINT64_C(17179869183) << 30},
    };
    static const char *const bad[] = {
        "",
        "k",
        "1kb",
        "1 k",
        "-1",
        "+1",
        "0x10",
        "1.5g",
        "18446744073709551616",
        "17179869184g",
        "99999999999999999999999",
    };
    uint64_t size;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(idem_size_parse(good[i].text, &size), IDEM_OK);
        assert_true(size == good[i].size);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(idem_size_parse(bad[i], &size), IDEM_ERR_INVALID);
}

static void schemes_are_known_or_not(void **state)
{
    struct idem_message message = {""};
    struct idem_store *store;
    char *directory = NULL;

    (void)state;
    assert_int_equal(idem_store_open("floppy:a", NULL, &store, &message), IDEM_ERR_UNSUPPORTED);
    assert_non_null(strstr(message.text, "floppy"));
    assert_int_equal(idem_store_url_check("lmdb:/var/lib/i%20dem?size=1g", &directory, &message),
                     IDEM_OK);
    assert_string_equal(directory, "/var/lib/i dem");
    free(directory);
    assert_int_equal(idem_store_url_check("memory:?size=1m", &directory, &message), IDEM_OK);
    assert_null(directory);
    assert_int_equal(idem_store_url_check("memory:x", NULL, &message), IDEM_ERR_INVALID);
    assert_int_equal(idem_store_url_check("memory:?size=1", NULL, &message), IDEM_ERR_INVALID);
    assert_int_equal(idem_store_url_check("memory:?sync=off", NULL, &message), IDEM_ERR_INVALID);
}

/* A backend that does all as the memory store does, but for one thing. */
static void (*sabotage)(struct idem_op *op);
static int sabotage_error;
static bool loses_what_is_written; /* after the batch: in it all looks as it should */

static int lose(struct idem_backend *backend, const struct idem_op *written)
{
    struct idem_op op = {.kind = IDEM_OP_FORGET, .id = written->id, .in.forget.force = true};
    struct idem_op *list[] = {&op};
    int error = idem_backend_memory.apply(backend, list, 1, NULL);

    idem_op_deinit(&op);
    return error;
}

static int broken_apply(struct idem_backend *backend, struct idem_op *const *ops, size_t count,
                        struct idem_message *message)
{
    int error = idem_backend_memory.apply(backend, ops, count, message);

    for (size_t i = 0; i < count && !error && sabotage; i++)
        sabotage(ops[i]);
    for (size_t i = 0; i < count && !error && loses_what_is_written; i++)
        if (ops[i]->kind == IDEM_OP_COMPLETE)
            error = lose(backend, ops[i]);
    return error ? error : sabotage_error;
}

static int broken_open(struct idem_store **ret_store, struct idem_message *message)
{
    struct idem_backend_ops ops = idem_backend_memory;
    static struct idem_backend_ops kept;
    struct idem_url url = {.scheme = "memory", .place = ""};

    ops.apply = broken_apply;
    kept = ops;
    return idem_store_open_backend(&kept, &url, NULL, ret_store, message);
}

static void gives_everybody_the_claim(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_IN_PROGRESS)
        op->result = IDEM_RESULT_ACQUIRED;
}

static void gives_nobody_the_claim(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_ACQUIRED)
        op->result = IDEM_RESULT_IN_PROGRESS;
}

static void forgets_to_compare(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_MISMATCH)
        op->result = IDEM_RESULT_FOUND;
}

static void loses_bodies(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_FOUND)
        op->out.found.record.answer.body.size = 0;
}

static void cuts_bodies_at_nul(struct idem_op *op)
{
    struct idem_bytes *body = &op->out.found.record.answer.body;
    const uint8_t *nul = body->size ? memchr(body->data, 0, body->size) : NULL;

    if (op->result == IDEM_RESULT_FOUND && nul)
        body->size = (size_t)(nul - body->data);
}

static void loses_headers(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_FOUND)
        op->out.found.record.answer.headers.size = 0;
}

static void expires_in_milliseconds(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_FOUND)
        op->out.found.record.expires_us /= 1000;
}

static void never_expires(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_FOUND)
        op->out.found.record.expires_us = IDEM_NEVER_US;
}

static void loses_verdicts(struct idem_op *op)
{
    if (op->kind == IDEM_OP_COMPLETE)
        op->result = IDEM_RESULT_LOST;
}

static void finds_nothing(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_FOUND) {
        idem_op_deinit(op);
        op->result = IDEM_RESULT_ABSENT;
    }
}

static void keeps_what_is_forgotten(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_ABSENT)
        op->result = IDEM_RESULT_FOUND;
}

static void executes_completed_again(struct idem_op *op)
{
    if (op->kind == IDEM_OP_CLAIM && op->result == IDEM_RESULT_COMPLETED)
        op->result = IDEM_RESULT_ACQUIRED;
}

static void mixes_owners_up(struct idem_op *op)
{
    if (op->result == IDEM_RESULT_FOUND)
        op->out.found.record.owner.bytes[3] ^= 1;
}

static void broken_backends_are_refused(void **state)
{
    static void (*const sabotages[])(struct idem_op *) = {
        gives_everybody_the_claim,
        gives_nobody_the_claim,
        forgets_to_compare,
        loses_bodies,
        cuts_bodies_at_nul,
        loses_headers,
        expires_in_milliseconds,
        never_expires,
        loses_verdicts,
        finds_nothing,
        keeps_what_is_forgotten,
        executes_completed_again,
        mixes_owners_up,
    };

    (void)state;
    for (size_t i = 0; i < COUNT(sabotages); i++) {
        struct idem_message message = {""};
        struct idem_store *store = NULL;
        int error;

        sabotage = sabotages[i];
        error = broken_open(&store, &message);
        if (error != IDEM_ERR_SELFTEST || store || !strstr(message.text, "self-test"))
            fail_msg("sabotage %zu: %d, \"%s\"", i, error, message.text);
    }
    sabotage = NULL;
}

/* What was told in the batch that wrote is not what the store has. */
static void a_store_is_read_back(void **state)
{
    struct idem_message message = {""};
    struct idem_store *store = NULL;

    (void)state;
    loses_what_is_written = true;
    assert_int_equal(broken_open(&store, &message), IDEM_ERR_SELFTEST);
    assert_non_null(strstr(message.text, "a completed record was not found"));
    loses_what_is_written = false;
}

static void sound_backend_is_taken(void **state)
{
    struct idem_store *store = NULL;

    (void)state;
    assert_int_equal(broken_open(&store, NULL), IDEM_OK);
    idem_store_close(store);
}

static void failing_backend_is_passed_up(void **state)
{
    struct idem_store *store = NULL;

    (void)state;
    sabotage_error = IDEM_ERR_UNAVAILABLE;
    assert_int_equal(broken_open(&store, NULL), IDEM_ERR_UNAVAILABLE);
    assert_null(store);
    sabotage_error = 0;
}

static void says_full(struct idem_op *op)
{
    if (op->kind == IDEM_OP_CLAIM)
        op->result = IDEM_RESULT_FULL;
}

static bool says_of_claims(struct idem_store *store, const char *word)
{
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    size_t count = idem_store_describe(store, facts, COUNT(facts));

    for (size_t i = 0; i < count; i++)
        if (strcmp(facts[i].name, "claims") == 0)
            return strncmp(facts[i].value, word, strlen(word)) == 0;
    return false;
}

/* It opens, and is told as full whatever it says of itself, until it takes a claim. */
static void full_backend_is_taken(void **state)
{
    struct idem_store *store = NULL;
    struct idem_op op, *ops[] = {&op};

    (void)state;
    sabotage = says_full;
    assert_int_equal(broken_open(&store, NULL), IDEM_OK);
    assert_true(says_of_claims(store, "refused: "));
    op_get(&op, "k");
    assert_int_equal(idem_store_apply(store, ops, 1, NULL), IDEM_OK);
    assert_true(says_of_claims(store, "refused: "));
    sabotage = NULL;
    op_claim(&op, "k", "A");
    assert_int_equal(idem_store_apply(store, ops, 1, NULL), IDEM_OK);
    assert_true(says_of_claims(store, "taken"));
    idem_store_close(store);
}

/* One life of a store, as far as memory lasts: opened, used for all it can do, closed. */
static int life(struct world *world)
{
    struct idem_op ops[9] = {0};
    struct idem_op *list[9];
    struct idem_store *store;
    int error = idem_store_open(world->url, &world->clock, &store, NULL);

    if (error)
        return error;
    for (size_t i = 0; i < 9; i++) {
        list[i] = &ops[i];
        ops[i].id = id_of("k");
    }
    ops[0].kind = IDEM_OP_CLAIM;
    ops[0].in.claim = claim_make(world, "k", "A")->in.claim;
    ops[1].kind = IDEM_OP_COMPLETE;
    ops[1].in.verdict.owner = owner_of("A");
    ops[1].in.verdict.answer = answer_of("paid");
    ops[1].in.verdict.ttl_us = TTL;
    ops[2].kind = IDEM_OP_GET;
    ops[3].kind = IDEM_OP_CLAIM;
    ops[3].in.claim = claim_make(world, "k", "B")->in.claim;
    ops[4].kind = IDEM_OP_SCAN;
    ops[4].in.scan.limit = 10;
    ops[5].kind = IDEM_OP_FORGET;
    ops[6].kind = IDEM_OP_AUDIT;
    ops[6].in.audit.limit = 10;
    ops[7].kind = IDEM_OP_FAIL;
    ops[7].in.verdict.owner = owner_of("A");
    ops[8].kind = IDEM_OP_SWEEP;
    ops[8].in.sweep.limit = 10;
    error = idem_store_apply(store, list, 9, NULL);
    for (size_t i = 0; i < 9; i++)
        idem_op_deinit(&ops[i]);
    idem_store_close(store);
    return error;
}

/* Makes each allocation fail in turn: no crash, no leak, no half-done store. */
static void every_allocation_may_fail(void **state)
{
    struct world *world = *state;
    size_t made;

    world_close(world);
    idem_memory_fail_at(0);
    assert_int_equal(life(world), IDEM_OK);
    made = idem_memory_fail_at(0);
    assert_in_range(made, 5, 1000);
    for (size_t n = 1; n <= made; n++) {
        int error;

        idem_memory_fail_at(n);
        error = life(world);
        idem_memory_fail_at(0);
        /* A table that cannot grow is still a table, and an answer may be left out. */
        if (error != IDEM_ERR_NOMEM && error != IDEM_OK)
            fail_msg("allocation %zu: %d", n, error);
        assert_int_equal(life(world), IDEM_OK);
    }
    world_open(world, "");
}

static int setup_lmdb(void **state)
{
    *state = (void *)(uintptr_t)row_find("lmdb");
    return world_setup(state);
}

static int setup_memory(void **state)
{
    *state = (void *)(uintptr_t)row_find("memory");
    return world_setup(state);
}

#define RULE(words, check)             \
    {                                  \
        words, check, NULL, NULL, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE("URLs are read", urls_are_read),
        RULE("a URL is shown without its password", passwords_are_not_shown),
        RULE("no sentence about a URL tells its password", passwords_are_not_told),
        RULE("nor what may be the end of a password", ends_of_passwords_are_not_told),
        RULE("what is no URL is refused", bad_urls_are_refused),
        RULE("too many options are refused", too_many_options_are_refused),
        RULE("sizes are read", sizes_are_read),
        RULE("schemes are known or not", schemes_are_known_or_not),
        RULE("the self-test refuses a backend that is broken in any way it looks at",
             broken_backends_are_refused),
        RULE("the self-test reads back what the store has, not what a batch told",
             a_store_is_read_back),
        RULE("the self-test takes a sound backend", sound_backend_is_taken),
        RULE("the self-test passes up what the store fails with", failing_backend_is_passed_up),
        RULE("the self-test takes a full store", full_backend_is_taken),
        {"memory: every allocation may fail", every_allocation_may_fail, setup_memory,
         world_teardown, NULL},
        {"the last row: every allocation may fail", every_allocation_may_fail, setup_lmdb,
         world_teardown, NULL},
    };

    return cmocka_run_group_tests_name("the front", tests, NULL, NULL);
}
