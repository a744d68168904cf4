/* What only the LMDB store does when it is opened: what it refuses, and with which words. */
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"
#include "store/lmdb/filesystem.h"

static const struct row *lmdb_row(void)
{
    for (size_t i = 0; i < rows_count; i++)
        if (strcmp(rows[i].name, "lmdb") == 0)
            return &rows[i];
    fail_msg("there is no row for LMDB");
    return NULL;
}

static int setup(void **state)
{
    *state = (void *)(uintptr_t)lmdb_row();
    return world_setup(state);
}

static void options_are_checked(void **state)
{
    static const struct {
        const char *url;
        const char *words;
    } cases[] = {
        {"lmdb:", "needs a directory"},
        {"lmdb:?size=1g", "needs a directory"},
        {"lmdb:/tmp/x?size=0", "size=0 is not allowed"},
        {"lmdb:/tmp/x?size=1048575", "from 1024k"},
        {"lmdb:/tmp/x?size=99999g", "to 16384g"},
        {"lmdb:/tmp/x?size=1t", "size=1t is not allowed"},
        {"lmdb:/tmp/x?size=", "size= is not allowed"},
        {"lmdb:/tmp/x?size=-1g", "size=-1g is not allowed"},
        {"lmdb:/tmp/x?sync=maybe", "sync=always"},
        {"lmdb:/tmp/x?reserve=1k", "reserve=1k is not allowed"},
        {"lmdb:/tmp/x?size=2m&reserve=2m", "at most half"},
        {"lmdb:/tmp/x?create=maybe", "create=no"},
        {"lmdb:/tmp/x?speed=9", "no option \"speed\""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct idem_message message = {""};

        refused(cases[i].url, IDEM_ERR_INVALID, cases[i].words);
        assert_int_equal(idem_store_url_check(cases[i].url, NULL, &message), IDEM_ERR_INVALID);
        assert_non_null(strstr(message.text, cases[i].words));
    }
    assert_int_equal(access("/tmp/x", F_OK), -1);
}

static void missing_parent_is_named(void **state)
{
    (void)state;
    refused("lmdb:/nonexistent/idem/store", IDEM_ERR_UNAVAILABLE, "/nonexistent/idem/store");
}

static void file_is_no_directory(void **state)
{
    struct world *world = *state;
    char url[160];

    snprintf(url, sizeof url, "lmdb:%s/data.mdb", world->directory);
    refused(url, IDEM_ERR_INVALID, "is not a directory");
}

static unsigned mode_of(const char *directory, const char *name)
{
    struct stat status;
    char path[256];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_int_equal(stat(path, &status), 0);
    return status.st_mode & 07777;
}

static void files_are_private(void **state)
{
    struct world *world = *state;
    char url[160], path[160];
    struct idem_store *store;
    mode_t mask = umask(0);

    snprintf(path, sizeof path, "%s/made", world->directory);
    snprintf(url, sizeof url, "lmdb:%s/made", world->directory);
    assert_int_equal(idem_store_open(url, NULL, &store, NULL), IDEM_OK);
    umask(mask);
    idem_store_close(store);
    assert_int_equal(mode_of(path, "."), 0700);
    assert_int_equal(mode_of(path, "data.mdb"), 0600);
    assert_int_equal(mode_of(path, "lock.mdb"), 0600);
    snprintf(path, sizeof path, "%s/made/data.mdb", world->directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/made/lock.mdb", world->directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/made", world->directory);
    assert_int_equal(rmdir(path), 0);
}

/* Runs in a child, so that it may give up its rights. Exits 0 when all is as it should be. */
static void in_child(void (*check)(struct world *), struct world *world)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        check(world);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void denied_in_child(struct world *world)
{
    struct idem_message message = {""};
    struct idem_store *store;
    const struct passwd *nobody = getpwnam("nobody");
    int error;

    /* Root may do anything, so the check is made as somebody else. */
    if (geteuid() == 0 && (!nobody || setuid(nobody->pw_uid)))
        _exit(2);
    error = idem_store_open(world->url, NULL, &store, &message);
    if (error != IDEM_ERR_UNAVAILABLE || !strstr(message.text, world->directory))
        _exit(3);
    if (!strstr(message.text, getpwuid(geteuid())->pw_name))
        _exit(4);
}

static void denied_names_directory_and_user(void **state)
{
    struct world *world = *state;

    world_close(world);
    assert_int_equal(chmod(world->directory, 0500), 0);
    in_child(denied_in_child, world);
    assert_int_equal(chmod(world->directory, 0755), 0);
    in_child(denied_in_child, world);
    assert_int_equal(chmod(world->directory, 0700), 0);
}

/* What is printed goes nowhere, and least of all into the store. */
static void without_streams_in_child(struct world *world)
{
    static const char noise[] = "printed";
    struct idem_store *store;

    for (int stream = 0; stream < 3; stream++)
        close(stream);
    if (idem_store_open(world->url, NULL, &store, NULL))
        _exit(2);
    for (int stream = 0; stream < 3; stream++)
        if (write(stream, noise, sizeof noise) >= 0 || fcntl(stream, F_GETFD) >= 0)
            _exit(3);
    idem_store_close(store);
}

static void closed_streams_are_not_the_store(void **state)
{
    struct world *world = *state;

    world_close(world);
    in_child(without_streams_in_child, world);
}

static void second_handle_is_refused(void **state)
{
    struct world *world = *state;
    char url[160];

    refused(world->url, IDEM_ERR_INVALID, "open in this process already");
    snprintf(url, sizeof url, "lmdb:%s/../%s", world->directory, strrchr(world->directory, '/'));
    refused(url, IDEM_ERR_INVALID, "open in this process already");
    expect(claim(world, "k", "A"), ACQUIRED);
    world_reopen(world);
    expect(claim(world, "k", "B"), IN_PROGRESS);
}

static void forked_handle_in_child(struct world *world)
{
    struct idem_op op = {.kind = IDEM_OP_GET};
    struct idem_op *ops[] = {&op};
    struct idem_message message = {""};
    struct idem_store *own;

    if (idem_store_apply(world->store, ops, 1, &message) != IDEM_ERR_INVALID ||
        !strstr(message.text, "fork"))
        _exit(2);
    if (idem_store_peek(world->store, &op) != IDEM_ERR_INVALID)
        _exit(3);
    if (idem_store_open(world->url, NULL, &own, &message))
        _exit(4);
    if (idem_store_apply(own, ops, 1, &message) || op.result != IDEM_RESULT_ABSENT)
        _exit(5);
    idem_store_close(own);
    idem_store_close(world->store);
}

static void forked_handle_is_refused(void **state)
{
    struct world *world = *state;

    claim(world, "before", "A");
    in_child(forked_handle_in_child, world);
    expect(claim(world, "before", "B"), IN_PROGRESS);
    expect(claim(world, "after", "A"), ACQUIRED);
    refused(world->url, IDEM_ERR_INVALID, "open in this process already");
}

static void network_filesystems_are_refused(void **state)
{
    static const unsigned long refused_magics[] = {
        0x6969,     0x517b,     0xfe534d42, 0xff534d42, 0x00c36400, 0x01021997, 0x65735546,
        0x5346414f, 0x0bd00bd0, 0x47504653, 0x01161970, 0x7461636f, 0x73757245, 0x19830326,
    };
    static const unsigned long allowed_magics[] = {
        0xef53, 0x58465342, 0x9123683e, 0x2fc12fc1, 0xf2f52010, 0x01021994, 0x794c7630, 0xdeadbeef,
    };

    (void)state;
    for (size_t i = 0; i < COUNT(refused_magics); i++)
        assert_true(idem_filesystem_find(refused_magics[i]).refused);
    for (size_t i = 0; i < COUNT(allowed_magics); i++)
        assert_false(idem_filesystem_find(allowed_magics[i]).refused);
    /* As a kernel with a signed f_type says it. */
    assert_true(idem_filesystem_find(0xffffffffff534d42).refused);
}

/* The value of a fact, "" when there is none. */
static const char *fact(const struct idem_store_fact *facts, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(facts[i].name, name) == 0)
            return facts[i].value;
    return "";
}

static void facts_are_told(void **state)
{
    struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    struct world *world = *state;
    size_t count;

    claim(world, "k", "A");
    count = idem_store_describe(world->store, facts, IDEM_STORE_FACTS_MAX);
    assert_string_equal(fact(facts, count, "directory"), world->directory);
    assert_string_equal(fact(facts, count, "records"), "1");
    assert_non_null(strstr(fact(facts, count, "durability"), "sync=always"));
    assert_non_null(strstr(fact(facts, count, "backend"), "LMDB"));
    assert_non_null(strstr(fact(facts, count, "size"), "17179869184"));
    assert_non_null(strstr(fact(facts, count, "new"), "no earlier key is protected"));
    assert_non_null(strstr(fact(facts, count, "claims"), "taken"));
    assert_int_equal(idem_store_describe(world->store, facts, 2), 2);
    world_close(world);
    world_open(world, "?sync=off");
    count = idem_store_describe(world->store, facts, IDEM_STORE_FACTS_MAX);
    assert_non_null(strstr(fact(facts, count, "can lose"), "power failure"));
    assert_non_null(strstr(fact(facts, count, "new"), "it was there before"));
}

#define RACERS 4
#define MADE   64 /* beside a result */

/* Waits for the others at the line, makes the store with them, and claims what they claim. */
static void race_in_child(struct world *world, int line, int answer)
{
    struct idem_store *store;
    struct idem_op *op = claim_make(world, "k", "?");
    char byte;

    snprintf((char *)op->in.claim.owner.bytes, IDEM_OWNER_SIZE, "p%d", (int)getpid());
    if (read(line, &byte, 1) != 0 || idem_store_open(world->url, NULL, &store, NULL) ||
        idem_store_apply(store, &op, 1, NULL))
        _exit(2);
    byte = (char)(op->result | (idem_store_is_new(store) ? MADE : 0));
    if (write(answer, &byte, 1) != 1)
        _exit(3);
    idem_store_close(store);
    _exit(0);
}

/* One race for a store that is not there yet. Returns how many acquired the one id. */
static int race(struct world *world)
{
    pid_t children[RACERS];
    int line[2], answers[2], status, acquired = 0, made = 0;
    char byte;

    assert_int_equal(pipe(line), 0);
    assert_int_equal(pipe(answers), 0);
    for (size_t i = 0; i < RACERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            close(line[1]);
            race_in_child(world, line[0], answers[1]);
        }
    }
    close(line[0]);
    close(line[1]); /* off they go */
    close(answers[1]);
    for (size_t i = 0; i < RACERS; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
        assert_int_equal(read(answers[0], &byte, 1), 1);
        made += byte / MADE;
        byte %= MADE;
        assert_true(byte == IDEM_RESULT_ACQUIRED || byte == IDEM_RESULT_IN_PROGRESS);
        acquired += byte == IDEM_RESULT_ACQUIRED;
    }
    close(answers[0]);
    assert_int_equal(made, 1);
    return acquired;
}

static void makers_meet(void **state)
{
    struct world *world = *state;

    world_close(world);
    for (int i = 0; i < 20; i++) {
        world_unlink(world);
        assert_int_equal(race(world), 1);
    }
    world_open(world, "");
}

/* Another process is given more room and uses it; this one follows. */
static void grow_in_child(struct world *world)
{
    struct world other = *world;
    char key[32];

    snprintf(other.url, sizeof other.url, "lmdb:%s?size=64m&sync=off", world->directory);
    other.clock.context = &other;
    memset(other.ops, 0, sizeof other.ops);
    if (idem_store_open(other.url, &other.clock, &other.store, NULL))
        _exit(2);
    for (int i = 0; i < 4000; i++) {
        snprintf(key, sizeof key, "other %d", i);
        if (claim(&other, key, "A")->result != IDEM_RESULT_ACQUIRED)
            _exit(3);
    }
    world_close(&other);
}

static void larger_map_is_followed(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    world_close(world);
    world_open(world, "?size=1m&sync=off");
    expect(claim(world, "k", "A"), ACQUIRED);
    expect(peek(world, op_make(world, IDEM_OP_GET, "k")), FOUND);
    in_child(grow_in_child, world);
    op = op_make(world, IDEM_OP_GET, "other 3999");
    assert_null(peek(world, op)); /* the long way knows how */
    expect(run(world, op), FOUND);
    expect(peek(world, op_make(world, IDEM_OP_GET, "other 3999")), FOUND);
    expect(claim(world, "k2", "A"), ACQUIRED);
    expect(claim(world, "other 0", "B"), IN_PROGRESS);
}

static void files_of_root_go_to_owner(void **state)
{
    struct world *world = *state;
    const struct passwd *nobody = getpwnam("nobody");
    struct stat status;
    char path[WORLD_PATH_SIZE];

    if (geteuid() != 0 || !nobody)
        return; /* only root makes files that somebody else cannot open */
    world_close(world);
    world_unlink(world);
    assert_int_equal(chown(world->directory, nobody->pw_uid, nobody->pw_gid), 0);
    world_open(world, "");
    world_path(world, "data.mdb", path);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_uid, nobody->pw_uid);
}

#define RULE(words, check)                        \
    {                                             \
        words, check, setup, world_teardown, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE("options are checked, and the sentence says what is allowed", options_are_checked),
        RULE("a missing parent is named", missing_parent_is_named),
        RULE("a file is no directory", file_is_no_directory),
        RULE("directory and files are private to their user", files_are_private),
        RULE("permission denied names directory and user", denied_names_directory_and_user),
        RULE("a closed standard stream does not become the store's file",
             closed_streams_are_not_the_store),
        RULE("a second handle on one directory in one process is refused",
             second_handle_is_refused),
        RULE("a handle that was opened before a fork is refused after it",
             forked_handle_is_refused),
        RULE("network file systems are refused", network_filesystems_are_refused),
        RULE("facts are told", facts_are_told),
        RULE("processes that make a store at once make one store", makers_meet),
        RULE("a map that another process made larger is followed", larger_map_is_followed),
        RULE("files made by root are given to the owner of the directory",
             files_of_root_go_to_owner),
    };

    return cmocka_run_group_tests_name("lmdb: opening", tests, NULL, NULL);
}
