/* An LMDB store whose files were damaged, cut, emptied or lost: never a new one, never a crash. */
#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"

static int setup(void **state)
{
    for (size_t i = 0; i < rows_count; i++)
        if (strcmp(rows[i].name, "lmdb") == 0)
            *state = (void *)(uintptr_t)&rows[i];
    return world_setup(state);
}

/* Opening must say what to do, and must not touch what it could not read. */
static void refused_untouched(struct world *world, const char *words)
{
    struct stat before, after;
    char path[WORLD_PATH_SIZE];

    world_path(world, "data.mdb", path);
    assert_int_equal(stat(path, &before), 0);
    refused(world->url, IDEM_ERR_CORRUPT, words);
    refused(world->url, IDEM_ERR_CORRUPT, world->directory);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

static void cut_off_file_is_corrupt(void **state)
{
    static const off_t sizes[] = {100000, 40000, 9000, 8192, 5000, 100};
    struct world *world = *state;
    char path[WORLD_PATH_SIZE], key[16];

    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "k%d", i);
        claim(world, key, "A");
    }
    world_close(world);
    world_path(world, "data.mdb", path);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_int_equal(truncate(path, sizes[i]), 0);
        refused_untouched(world, "move it aside");
    }
    world_unlink(world);
    world_open(world, "");
}

static void overwrite(const char *path, off_t offset, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, offset), (ssize_t)size);
    assert_int_equal(close(fd), 0);
}

static void other_file_is_corrupt(void **state)
{
    struct world *world = *state;
    char path[WORLD_PATH_SIZE], garbage[8192];

    world_close(world);
    world_path(world, "data.mdb", path);
    memset(garbage, 'g', sizeof garbage);
    overwrite(path, 0, garbage, sizeof garbage);
    refused_untouched(world, "move it aside");
    world_unlink(world);
    world_open(world, "");
}

/* As `: > data.mdb` or a copy on a full device leaves it. */
static void empty_file_is_a_lost_store(void **state)
{
    struct world *world = *state;
    char path[WORLD_PATH_SIZE];

    expect(claim(world, "k", "A"), ACQUIRED);
    world_close(world);
    world_path(world, "data.mdb", path);
    assert_int_equal(truncate(path, 0), 0);
    refused_untouched(world, "data.mdb is empty");
    refused_untouched(world, "remove data.mdb and lock.mdb");
    world_path(world, "lock.mdb", path);
    assert_int_equal(unlink(path), 0);
    refused_untouched(world, "data.mdb is empty");
    assert_int_equal(access(path, F_OK), -1);
    world_unlink(world);
    world_open(world, "");
    assert_true(idem_store_is_new(world->store));
    expect(claim(world, "k", "A"), ACQUIRED);
}

static void missing_file_is_a_lost_store(void **state)
{
    struct world *world = *state;
    char path[WORLD_PATH_SIZE], url[WORLD_PATH_SIZE + 16];

    world_close(world);
    world_path(world, "data.mdb", path);
    assert_int_equal(unlink(path), 0);
    snprintf(url, sizeof url, "lmdb:%s?create=no", world->directory);
    refused(world->url, IDEM_ERR_CORRUPT, "data.mdb is gone");
    refused(url, IDEM_ERR_CORRUPT, "data.mdb is gone");
    assert_int_equal(access(path, F_OK), -1);
    world_unlink(world);
    assert_int_equal(symlink("/nonexistent/disk/data.mdb", path), 0);
    refused(world->url, IDEM_ERR_CORRUPT, "what it links to is not there");
}

/* In a child: a signal ends it, and is not taken for a failed test. */
static void signals_restore(void)
{
    static const int signals[] = {SIGBUS, SIGSEGV, SIGABRT, SIGFPE, SIGILL};

    for (size_t i = 0; i < COUNT(signals); i++)
        signal(signals[i], SIG_DFL);
}

/* A process truncates the file while another uses it, which ends that one, however. */
static void write_until_it_ends(struct world *world, int ready)
{
    struct idem_store *store;
    char key[32];

    signals_restore();
    if (idem_store_open(world->url, NULL, &store, NULL))
        _exit(2);
    for (unsigned i = 0;; i++) {
        struct idem_op *op;

        snprintf(key, sizeof key, "k%u", i);
        op = claim_make(world, key, "A");
        if (idem_store_apply(store, &op, 1, NULL))
            _exit(1);
        if (i == 10 && write(ready, "!", 1) != 1)
            _exit(3);
    }
}

static void truncated_in_use_is_a_lost_store(void **state)
{
    struct world *world = *state;
    char path[WORLD_PATH_SIZE], byte;
    int ready[2], status;
    pid_t child;

    world_close(world);
    assert_int_equal(pipe(ready), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        write_until_it_ends(world, ready[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    world_path(world, "data.mdb", path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    refused(world->url, IDEM_ERR_CORRUPT, world->directory);
    refused(world->url, IDEM_ERR_CORRUPT, world->directory);
}

/* What LMDB makes of an empty file by itself: its own two pages, and nothing of idem's. */
static void file_without_a_store_is_corrupt(void **state)
{
    struct world *world = *state;
    char path[WORLD_PATH_SIZE];
    MDB_env *env;

    world_close(world);
    world_path(world, "data.mdb", path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_open(env, world->directory, 0, 0600), 0);
    mdb_env_close(env);
    refused(world->url, IDEM_ERR_CORRUPT, "holds no idem store");
    refused(world->url, IDEM_ERR_CORRUPT, "holds no idem store");
}

static void no_store_is_made_where_none_is_wanted(void **state)
{
    struct world *world = *state;
    char path[WORLD_PATH_SIZE], url[WORLD_PATH_SIZE + 16];

    world_close(world);
    world_open(world, "?create=no");
    assert_false(idem_store_is_new(world->store));
    world_reopen(world);
    world_close(world);
    world_unlink(world);
    refused(world->url, IDEM_ERR_UNAVAILABLE, "create=no");
    snprintf(url, sizeof url, "lmdb:%s/deeper?create=no", world->directory);
    refused(url, IDEM_ERR_UNAVAILABLE, "no such directory");
    world_path(world, "deeper", path);
    assert_int_equal(access(path, F_OK), -1);
    world_path(world, "lock.mdb", path);
    assert_int_equal(access(path, F_OK), -1);
    world_path(world, "data.mdb", path);
    assert_int_equal(access(path, F_OK), -1);
}

/* Kills a process in the midst of making a store; true when it was seen to be there. */
static bool maker_kill(struct world *world)
{
    char path[WORLD_PATH_SIZE];
    struct idem_store *store;
    bool seen = false, over = false;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        _exit(idem_store_open(world->url, NULL, &store, NULL) ? 1 : 0);
    world_path(world, "data.mdb.new", path);
    while (!seen && !over) {
        seen = access(path, F_OK) == 0;
        over = waitpid(child, NULL, WNOHANG) == child;
    }
    if (!over) {
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    return seen;
}

static void killed_makers_leave_no_lost_store(void **state)
{
    struct world *world = *state;
    char path[WORLD_PATH_SIZE];
    unsigned seen = 0;

    for (unsigned i = 0; i < 50; i++) {
        world_close(world);
        world_unlink(world);
        seen += maker_kill(world);
        world_open(world, "");
        expect(claim(world, "k", "A"), ACQUIRED);
    }
    assert_true(seen > 0);
    world_path(world, "data.mdb.new", path);
    assert_int_equal(access(path, F_OK), -1);
}

#define DAMAGED_PAGES 64
#define KEYS          300

#define EXIT_WORKS   10 /* exit codes that nothing else ends with */
#define EXIT_CORRUPT 11

/* In a child, since it may end by a signal. True when the store was refused as corrupt. */
static bool store_use(struct world *world)
{
    char key[16];
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        int error;

        signals_restore();
        error = idem_store_open(world->url, &world->clock, &world->store, NULL);
        if (error)
            _exit(error == IDEM_ERR_CORRUPT ? EXIT_CORRUPT : 1);
        for (unsigned i = 0; i < 2 * KEYS; i++) {
            snprintf(key, sizeof key, "k%u", i);
            claim(world, key, "B");
        }
        sweep_all(world);
        _exit(EXIT_WORKS);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status))
        fail_msg("ended by signal %d", WTERMSIG(status));
    assert_in_range(WEXITSTATUS(status), EXIT_WORKS, EXIT_CORRUPT);
    return WEXITSTATUS(status) == EXIT_CORRUPT;
}

/* One file for each try, since a store that works is written to. */
static void file_write(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    assert_int_equal(close(fd), 0);
}

static void overwritten_pages_are_corrupt(void **state)
{
    static uint8_t bytes[4 << 20];
    static const int fillings[] = {0, 0xff, 'g'};
    struct world *world = *state;
    char path[WORLD_PATH_SIZE], key[16];
    uint8_t page[4096];
    unsigned corrupt = 0;
    int fd;

    world_close(world);
    world_unlink(world);
    world_open(world, "?size=4m&reserve=128k&sync=off");
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%u", i);
        claim(world, key, "A");
    }
    world_close(world);
    world_path(world, "data.mdb", path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_in_range(read(fd, bytes, sizeof bytes), DAMAGED_PAGES * sizeof page, sizeof bytes);
    close(fd);
    for (unsigned i = 2; i < DAMAGED_PAGES; i++) {
        uint8_t *there = bytes + i * sizeof page;

        memcpy(page, there, sizeof page);
        for (size_t j = 0; j < COUNT(fillings); j++) {
            memset(there, fillings[j], sizeof page);
            file_write(path, bytes, sizeof bytes);
            corrupt += store_use(world);
        }
        memcpy(there, page, sizeof page);
    }
    assert_true(corrupt > DAMAGED_PAGES / 2); /* some are not in use */
    file_write(path, bytes, sizeof bytes);
    assert_false(store_use(world));
}

/* Flips one bit behind each place where `needle` is found in the data file. */
static unsigned damage(const struct world *world, const char *needle, size_t ahead)
{
    static char bytes[1 << 20];
    char path[WORLD_PATH_SIZE];
    ssize_t size;
    unsigned found = 0;
    int fd;

    world_path(world, "data.mdb", path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    size = read(fd, bytes, sizeof bytes);
    assert_int_equal(close(fd), 0);
    for (ssize_t i = 0; i + (ssize_t)strlen(needle) + (ssize_t)ahead < size; i++) {
        if (memcmp(bytes + i, needle, strlen(needle)) != 0)
            continue;
        bytes[i + (ssize_t)ahead] ^= 1;
        overwrite(path, i + (off_t)ahead, &bytes[i + (ssize_t)ahead], 1);
        found++;
    }
    return found;
}

static void damaged_record_is_left_alone(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    claim(world, "k", "A");
    complete(world, "k", "A", "a very particular answer");
    claim(world, "other", "A");
    world_close(world);
    assert_in_range(damage(world, "a very particular answer", 5), 1, 10);
    world_open(world, "");
    expect(claim(world, "k", "B"), CORRUPT);
    expect(claim(world, "k", "A"), CORRUPT);
    expect(complete(world, "k", "A", "another"), CORRUPT);
    expect(fail_claim(world, "k", "A"), CORRUPT);
    expect(get(world, "k"), CORRUPT);
    expect(forget(world, "k", false), CORRUPT);
    op = peek(world, op_make(world, IDEM_OP_GET, "k"));
    expect(op, CORRUPT);
    expect(claim(world, "other", "B"), IN_PROGRESS);
    op = op_make(world, IDEM_OP_SCAN, NULL);
    op->in.scan.limit = 10;
    assert_int_equal(run(world, op)->out.count, 1);
    advance(world, 365 * DAY);
    sweep_all(world);
    expect(claim(world, "k", "B"), CORRUPT);
    expect(forget(world, "k", true), OK);
    expect(claim(world, "k", "B"), ACQUIRED);
}

#define RULE(words, check)                        \
    {                                             \
        words, check, setup, world_teardown, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE("a file that was cut off is corrupt", cut_off_file_is_corrupt),
        RULE("a file that LMDB did not write is corrupt", other_file_is_corrupt),
        RULE("an empty file is a lost store, not a new one", empty_file_is_a_lost_store),
        RULE("a lock file alone is a lost store, not a new one", missing_file_is_a_lost_store),
        RULE("a file that is emptied while in use is a lost store",
             truncated_in_use_is_a_lost_store),
        RULE("a file of LMDB's without a store in it is corrupt", file_without_a_store_is_corrupt),
        RULE("with create=no nothing is made", no_store_is_made_where_none_is_wanted),
        RULE("a process killed while making a store leaves no lost one",
             killed_makers_leave_no_lost_store),
        RULE("pages that were written over are corrupt, and end no process",
             overwritten_pages_are_corrupt),
        RULE("a damaged record is told and left alone", damaged_record_is_left_alone),
    };

    return cmocka_run_group_tests_name("lmdb: damage", tests, NULL, NULL);
}
