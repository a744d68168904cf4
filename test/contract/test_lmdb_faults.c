/*
 * The LMDB store on a disk that fails. This program defines the system calls that write, so that
 * liblmdb finds these and not the C library's: a device of limited size, and errors on demand.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "contract.h"

/* The device. Bytes below `backed` of the data file have their room; there is none past `size`. */
static struct {
    off_t size;  /* 0: as large as the real one */
    off_t total; /* 0: so large that no store will mind */
    off_t backed;
    bool no_fallocate;
    bool fills_late; /* it is not seen to be full until something is written */
    int sync_errno;  /* what fdatasync says */
    int meta_errno;  /* what a write to the first two pages says */
    unsigned syncs, writes;
    unsigned refusals; /* writes that found no room */
} device;

static off_t larger(off_t a, off_t b)
{
    return a > b ? a : b;
}

static int refuse(int error)
{
    device.refusals++;
    errno = error;
    return -1;
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    if (device.no_fallocate) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (device.size && offset + length > device.size)
        return refuse(ENOSPC);
    device.backed = larger(device.backed, offset + length);
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

/* Room for a write up to `end`: set aside before, or taken now. */
static bool device_has(off_t end)
{
    if (device.size && end > larger(device.backed, device.size))
        return false;
    device.backed = larger(device.backed, end);
    return true;
}

/* The name that liblmdb calls; in this program, built for large files, pwrite is another one. */
ssize_t device_pwrite(int fd, const void *bytes, size_t size, off_t offset) __asm__("pwrite");

ssize_t device_pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    device.writes++;
    if (device.meta_errno && offset < 2 * 4096 && size < 4096)
        return refuse(device.meta_errno);
    if (!device_has(offset + (off_t)size))
        return refuse(ENOSPC);
    return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    off_t end = lseek(fd, 0, SEEK_CUR);

    for (int i = 0; i < count; i++)
        end += (off_t)parts[i].iov_len;
    if (!device_has(end))
        return refuse(ENOSPC);
    return syscall(SYS_writev, fd, parts, count);
}

int fdatasync(int fd)
{
    device.syncs++;
    if (device.sync_errno) {
        errno = device.sync_errno;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

int statvfs(const char *path, struct statvfs *ret_status)
{
    (void)path;
    memset(ret_status, 0, sizeof *ret_status);
    ret_status->f_frsize = 1;
    ret_status->f_blocks = device.total ? (fsblkcnt_t)device.total : (fsblkcnt_t)1 << 40;
    ret_status->f_bavail = device.size && !device.fills_late
                               ? (fsblkcnt_t)larger(0, device.size - device.backed)
                               : (fsblkcnt_t)1 << 40;
    return 0;
}

static int setup(void **state)
{
    memset(&device, 0, sizeof device);
    for (size_t i = 0; i < rows_count; i++)
        if (strcmp(rows[i].name, "lmdb") == 0)
            *state = (void *)(uintptr_t)&rows[i];
    return world_setup(state);
}

static int teardown(void **state)
{
    memset(&device, 0, sizeof device);
    return world_teardown(state);
}

/* A store that was never on another device than this one. */
static void world_begin(struct world *world, const char *options)
{
    world_close(world);
    world_unlink(world);
    device.backed = 0;
    world_open(world, options);
}

#define BODY_SIZE 3000
#define HELD      20
#define LARGE     (200 << 10)

static const char *key_of(unsigned number)
{
    static char keys[4][32];
    static unsigned next;
    char *key = keys[next++ % 4];

    snprintf(key, sizeof keys[0], "key %u", number);
    return key;
}

static const char *body_of(unsigned number)
{
    static char body[BODY_SIZE + 1];

    memset(body, 'a' + (int)(number % 26), BODY_SIZE);
    return body;
}

/* Fills a store on a device that is smaller than its map. Returns how many were completed. */
static unsigned fill_device(struct world *world, unsigned held)
{
    unsigned number;

    for (unsigned i = 0; i < held; i++)
        expect(claim(world, key_of(100000 + i), "A"), ACQUIRED);
    for (number = 0; number < 100000; number++) {
        struct idem_op *op = claim(world, key_of(number), "A");

        if (op->result == IDEM_RESULT_FULL)
            break;
        expect(op, ACQUIRED);
        expect(complete(world, key_of(number), "A", body_of(number)), OK);
    }
    assert_in_range(number, 10, 99999);
    return number;
}

static void all_are_there(struct world *world, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct idem_op *op = claim(world, key_of(i), "B");

        expect(op, COMPLETED);
        if (op->out.found.record.answer.tombstone == IDEM_REASON_NONE)
            assert_bytes(op->out.found.record.answer.body, text(body_of(i)));
    }
}

static void device_fills_up(void **state)
{
    struct world *world = *state;
    unsigned count;

    world_begin(world, "?size=1g&reserve=256k");
    device.size = 2 << 20;
    count = fill_device(world, HELD);
    for (unsigned i = 0; i < HELD; i++) {
        struct idem_op *op = complete(world, key_of(100000 + i), "A", body_of(i));

        expect(op, OK);
        assert_false(op->out.tombstoned); /* the reserve was set aside for these */
    }
    assert_true(device.refusals > 0);
    all_are_there(world, count);
    world_reopen(world);
    all_are_there(world, count);
    expect(claim(world, "one more", "A"), FULL);
    device.size = 0; /* somebody made room */
    for (unsigned i = 0; i < 40; i++)
        claim(world, "one more", "A");
    expect(claim(world, "one more", "A"), ACQUIRED);
}

static void device_cannot_set_room_aside(void **state)
{
    struct world *world = *state;
    unsigned count;

    device.no_fallocate = true;
    world_begin(world, "?size=1g&reserve=256k");
    device.size = 2 << 20;
    count = fill_device(world, HELD);
    for (unsigned i = 0; i < HELD; i++)
        expect(complete(world, key_of(100000 + i), "A", "small"), OK);
    all_are_there(world, count);
}

/* LMDB does not write pages that one batch uses and gives up: the file must not look cut off. */
static void unwritten_pages_are_no_damage(void **state)
{
    static uint8_t large[LARGE];
    struct world *world = *state;
    struct idem_op *ops[3];

    device.no_fallocate = true;
    world_begin(world, "?size=1g&reserve=128k");
    for (unsigned i = 0; i < 10; i++) {
        ops[0] = claim_make(world, "k", "A");
        ops[1] = verdict_make(world, IDEM_OP_COMPLETE, "k", "A");
        ops[1]->in.verdict.answer =
            (struct idem_answer){.status = 200, .body = idem_bytes_make(large, LARGE)};
        ops[2] = op_make(world, IDEM_OP_FORGET, "k");
        assert_int_equal(idem_store_apply(world->store, ops, 3, NULL), IDEM_OK);
        expect(ops[2], OK);
        world_reopen(world);
    }
}

/* Others take the room that was not set aside, between two batches. */
static void device_fills_up_at_once(void **state)
{
    struct world *world = *state;
    struct idem_message message = {""};
    static uint8_t large[LARGE];
    struct idem_op *ops[4];
    unsigned count = 50;

    device.no_fallocate = true;
    world_begin(world, "?size=1g&reserve=256k");
    for (unsigned i = 0; i < count; i++) {
        expect(claim(world, key_of(i), "A"), ACQUIRED);
        expect(complete(world, key_of(i), "A", body_of(i)), OK);
    }
    expect(claim(world, "held", "A"), ACQUIRED);
    expect(claim(world, "held too", "A"), ACQUIRED);
    device.size = device.backed;
    device.fills_late = true;
    for (unsigned i = 0; i < 2; i++)
        ops[i] = claim_make(world, key_of(1000 + i), "A");
    ops[2] = verdict_make(world, IDEM_OP_COMPLETE, "held", "A");
    ops[2]->in.verdict.answer =
        (struct idem_answer){.status = 200, .body = idem_bytes_make(large, LARGE)};
    ops[3] = verdict_make(world, IDEM_OP_FAIL, "held too", "A");
    assert_int_equal(idem_store_apply(world->store, ops, 4, &message), IDEM_OK);
    for (unsigned i = 0; i < 2; i++) /* those that need no new page still fit */
        assert_true(ops[i]->result == IDEM_RESULT_FULL || ops[i]->result == IDEM_RESULT_ACQUIRED);
    expect(ops[2], OK);
    assert_true(ops[2]->out.tombstoned);
    expect(ops[3], OK);
    assert_true(device.refusals > 0);
    all_are_there(world, count);
}

static void failed_sync_is_an_error(void **state)
{
    struct world *world = *state;
    struct idem_message message = {""};
    struct idem_op *op = claim_make(world, "k", "A");

    device.sync_errno = EIO;
    assert_int_equal(idem_store_apply(world->store, &op, 1, &message), IDEM_ERR_IO);
    assert_true(strlen(message.text) > 0);
    expect(get(world, "k"), ABSENT);
    device.sync_errno = 0;
    expect(run(world, op), ACQUIRED);
    expect(claim(world, "k", "B"), IN_PROGRESS);
}

static void failed_header_mends_itself(void **state)
{
    struct world *world = *state;
    struct idem_message message = {""};
    struct idem_op *op = claim_make(world, "k", "A");

    expect(claim(world, "before", "A"), ACQUIRED);
    expect(peek(world, op_make(world, IDEM_OP_GET, "before")), FOUND);
    device.meta_errno = EIO;
    assert_true(idem_store_apply(world->store, &op, 1, &message) < 0);
    assert_true(idem_store_apply(world->store, &op, 1, &message) < 0);
    device.meta_errno = 0;
    for (int i = 0; i < 3; i++)
        if (idem_store_apply(world->store, &op, 1, &message) == 0)
            break;
    expect(op, ACQUIRED);
    expect(claim(world, "before", "B"), IN_PROGRESS);
    expect(peek(world, op_make(world, IDEM_OP_GET, "before")), FOUND);
}

static void always_means_always(void **state)
{
    struct world *world = *state;
    unsigned syncs = device.syncs;

    expect(claim(world, "k", "A"), ACQUIRED);
    assert_true(device.writes > 0);
    assert_true(device.syncs > syncs);
    syncs = device.syncs;
    expect(complete(world, "k", "A", "paid"), OK);
    assert_true(device.syncs > syncs);
    syncs = device.syncs;
    expect(claim(world, "k", "B"), COMPLETED);
    expect(get(world, "k"), FOUND);
    assert_int_equal(device.syncs, syncs); /* nothing was written */
    world_close(world);
    world_open(world, "?sync=off");
    syncs = device.syncs;
    expect(claim(world, "k2", "A"), ACQUIRED);
    assert_int_equal(device.syncs, syncs);
}

static void batch_is_one_commit(void **state)
{
    struct world *world = *state;
    struct idem_op *ops[10];
    unsigned syncs = device.syncs;

    for (unsigned i = 0; i < 10; i++)
        ops[i] = claim_make(world, key_of(i % 4), "A");
    assert_int_equal(idem_store_apply(world->store, ops, 10, NULL), IDEM_OK);
    assert_int_equal(device.syncs - syncs, 1);
}

/* The value of a fact, "" when there is none. */
static const char *fact_of(struct world *world, const char *name)
{
    static struct idem_store_fact facts[IDEM_STORE_FACTS_MAX];
    size_t count = idem_store_describe(world->store, facts, IDEM_STORE_FACTS_MAX);

    for (size_t i = 0; i < count; i++)
        if (strcmp(facts[i].name, name) == 0)
            return facts[i].value;
    return "";
}

static void small_device_has_small_reserve(void **state)
{
    static const struct {
        off_t total;
        const char *url;
        const char *reserve;
    } cases[] = {
        {0, "", "67108864 bytes"},
        {(off_t)256 << 20, "", "16777216 bytes"},
        {16 << 20, "", "1048576 bytes"},
        {1 << 20, "", "131072 bytes"},
        {16 << 20, "?size=8m", "524288 bytes"},
        {16 << 20, "?reserve=4m", "4194304 bytes"},
    };
    struct world *world = *state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        device.total = cases[i].total;
        world_begin(world, cases[i].url);
        assert_string_equal(fact_of(world, "reserve for verdicts"), cases[i].reserve);
    }
}

static void facts_tell_why_claims_are_refused(void **state)
{
    struct world *world = *state;

    world_begin(world, "?size=1g&reserve=256k");
    assert_non_null(strstr(fact_of(world, "claims"), "taken"));
    device.size = 2 << 20;
    fill_device(world, 0);
    assert_non_null(strstr(fact_of(world, "claims"), "refused"));
    assert_non_null(strstr(fact_of(world, "claims"), "more than the 262144"));
    assert_non_null(strstr(fact_of(world, "claims"), "make room on the device"));
    world_begin(world, "?size=1m&reserve=128k");
    device.size = 0;
    fill_device(world, 0);
    assert_non_null(strstr(fact_of(world, "claims"), "raise size"));
}

/* A first start on a device without room leaves nothing that looks like a lost store. */
static void making_fails_without_a_trace(void **state)
{
    struct world *world = *state;
    char path[WORLD_PATH_SIZE];

    world_close(world);
    world_unlink(world);
    device.backed = 0;
    device.size = 10000;
    refused(world->url, IDEM_ERR_FULL, "make room");
    world_path(world, "data.mdb.new", path);
    assert_int_equal(access(path, F_OK), -1);
    device.size = 0;
    world_open(world, "");
    assert_true(idem_store_is_new(world->store));
    expect(claim(world, "k", "A"), ACQUIRED);
}

#define RULE(words, check)                  \
    {                                       \
        words, check, setup, teardown, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE("on a device that fills up claims are refused and verdicts get in", device_fills_up),
        RULE("so it is where the file system cannot set room aside", device_cannot_set_room_aside),
        RULE("a device that is full from one moment to the next loses nothing",
             device_fills_up_at_once),
        RULE("pages that were never written are no damage", unwritten_pages_are_no_damage),
        RULE("a failed sync is an error, and nothing was done", failed_sync_is_an_error),
        RULE("a header that could not be written mends itself", failed_header_mends_itself),
        RULE("sync=always syncs before it answers, sync=off never does", always_means_always),
        RULE("a batch is one commit", batch_is_one_commit),
        RULE("a small device has a small reserve", small_device_has_small_reserve),
        RULE("the facts tell why claims are refused", facts_tell_why_claims_are_refused),
        RULE("a store that could not be made leaves nothing behind", making_fails_without_a_trace),
    };

    return cmocka_run_group_tests_name("lmdb: faults", tests, NULL, NULL);
}
