/* What the rules are told with. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contract.h"
#include "ops.h"

static int64_t world_now(void *context)
{
    const struct world *world = context;

    return __atomic_load_n(&world->now_us, __ATOMIC_SEQ_CST); /* another thread may turn it */
}

/* What test/servers/turned_clock.c reads. */
static int64_t *clock_file(void)
{
    static int64_t *clock;
    const char *path = getenv("IDEM_TEST_CLOCK");
    int fd;

    if (clock)
        return clock;
    if (!path)
        fail_msg("IDEM_TEST_CLOCK is not set: run this through test/servers/with");
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    clock = mmap(NULL, sizeof *clock, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(clock != MAP_FAILED);
    close(fd);
    return clock;
}

void clock_turn(int64_t instant_us)
{
    __atomic_store_n(clock_file(), instant_us, __ATOMIC_SEQ_CST);
}

void advance(struct world *world, int64_t length_us)
{
    int64_t now_us = __atomic_add_fetch(&world->now_us, length_us, __ATOMIC_SEQ_CST);

    if (world->row->traits & TRAIT_SERVER)
        clock_turn(now_us);
}

/* Makes the tables of a store that wants them, or (version 0) removes them. */
static void world_migrate(struct world *world, int version)
{
    struct idem_migration migration;
    struct idem_message message = {""};

    if (world->row->traits & TRAIT_SCHEMA &&
        idem_store_migrate(world->url, version, &migration, &message))
        fail_msg("%s: %s", world->url, message.text);
}

struct idem_store *world_handle(struct world *world)
{
    struct idem_message message = {""};
    struct idem_store *store = NULL;

    if (idem_store_open(world->url, &world->clock, &store, &message))
        fail_msg("%s: %s", world->url, message.text);
    return store;
}

void world_open(struct world *world, const char *options)
{
    world->row->url(world, options, world->url, sizeof world->url);
    world_migrate(world, IDEM_SCHEMA_LATEST);
    world->store = world_handle(world);
}

void world_close(struct world *world)
{
    for (size_t i = 0; i < WORLD_OPS; i++)
        idem_op_deinit(&world->ops[i]);
    idem_store_close(world->store);
    world->store = NULL;
}

void world_reopen(struct world *world)
{
    world_close(world);
    world->store = world_handle(world);
}

static unsigned worlds_count;

int world_setup(void **state)
{
    struct world *world = calloc(1, sizeof *world);

    assert_non_null(world);
    world->row = *state;
    world->number = ++worlds_count;
    world->now_us = START;
    advance(world, 0);
    world->clock = (struct idem_clock){world_now, world};
    snprintf(world->directory, sizeof world->directory, "/tmp/idem-contract-XXXXXX");
    assert_non_null(mkdtemp(world->directory));
    world_open(world, "");
    *state = world;
    return 0;
}

void world_path(const struct world *world, const char *name, char *ret_path)
{
    snprintf(ret_path, WORLD_PATH_SIZE, "%s/%s", world->directory, name);
}

void world_unlink(const struct world *world)
{
    static const char *const names[] = {"data.mdb", "lock.mdb"};
    char path[WORLD_PATH_SIZE];

    for (size_t i = 0; i < COUNT(names); i++) {
        world_path(world, names[i], path);
        unlink(path);
    }
}

int world_teardown(void **state)
{
    struct world *world = *state;

    world_close(world);
    world_migrate(world, 0);
    if (world->row->clean)
        world->row->clean();
    world_unlink(world);
    assert_int_equal(rmdir(world->directory), 0);
    free(world);
    return 0;
}

void refused(const char *url, int wanted, const char *words)
{
    struct idem_message message = {""};
    struct idem_store *store = NULL;
    int error = idem_store_open(url, NULL, &store, &message);

    if (error != wanted || store)
        fail_msg("%s: %d (%s) instead of %d", url, error, message.text, wanted);
    if (!strstr(message.text, words))
        fail_msg("%s: \"%s\" does not say \"%s\"", url, message.text, words);
}

struct idem_bytes text(const char *text)
{
    return idem_bytes_from_text(text);
}

struct idem_id id_of(const char *key)
{
    return idem_id_make(IDEM_KIND_HTTP, text("scope"), text(key));
}

struct idem_owner owner_of(const char *name)
{
    struct idem_owner owner = {{0}};

    memcpy(owner.bytes, name, strlen(name) < IDEM_OWNER_SIZE ? strlen(name) : IDEM_OWNER_SIZE);
    return owner;
}

struct idem_fingerprint payload_of(const char *name)
{
    struct idem_fingerprinter fingerprinter;
    struct idem_fingerprint fingerprint;

    idem_fingerprinter_init(&fingerprinter, IDEM_FINGERPRINT_RAW);
    idem_fingerprinter_body(&fingerprinter, text(name));
    idem_fingerprinter_end(&fingerprinter, &fingerprint);
    return fingerprint;
}

struct idem_principal caller_of(const char *name)
{
    struct idem_bytes credential = name ? text(name) : idem_bytes_make(NULL, 0);

    return idem_principal_make(&credential, 1);
}

struct idem_answer answer_of(const char *body)
{
    static uint8_t headers[64];
    size_t size = idem_headers_append(headers, 0, sizeof headers, text("Location"), text("/c/1"));

    return (struct idem_answer){
        .status = 201, .headers = idem_bytes_make(headers, size), .body = text(body)};
}

/* The oldest of the world's ops, released and blank. */
struct idem_op *op_make(struct world *world, enum idem_op_kind kind, const char *key)
{
    struct idem_op *op = &world->ops[world->ops_next++ % WORLD_OPS];

    idem_op_deinit(op);
    memset(op, 0, sizeof *op);
    op->kind = kind;
    if (key)
        op->id = id_of(key);
    return op;
}

struct idem_op *claim_make(struct world *world, const char *key, const char *owner)
{
    struct idem_op *op = op_make(world, IDEM_OP_CLAIM, key);

    op_claim(op, key, owner);
    return op;
}

struct idem_op *verdict_make(struct world *world, enum idem_op_kind kind, const char *key,
                             const char *owner)
{
    struct idem_op *op = op_make(world, kind, key);

    op->in.verdict.owner = owner_of(owner);
    op->in.verdict.ttl_us = TTL;
    op->in.verdict.lease_us = LEASE;
    if (kind == IDEM_OP_ABANDON)
        op->in.verdict.reason = IDEM_REASON_UNANSWERED;
    return op;
}

struct idem_op *resolve_make(struct world *world, const char *key)
{
    const struct idem_record *record = record_of(world, key);
    struct idem_op *op = op_make(world, IDEM_OP_RESOLVE, key);
    struct idem_resolve *in = &op->in.resolve;

    in->fence = record->fence;
    in->updated_us = record->updated_us;
    in->ttl_us = TTL;
    in->owner = owner_of("person");
    in->who = text("dana");
    in->why = text("asked the bank");
    return op;
}

struct idem_op *run(struct world *world, struct idem_op *op)
{
    struct idem_message message = {""};

    if (idem_store_apply(world->store, &op, 1, &message))
        fail_msg("%s: %s", idem_op_kind_text(op->kind), message.text);
    return op;
}

struct idem_op *peek(struct world *world, struct idem_op *get)
{
    int error = idem_store_peek(world->store, get);

    if (error == IDEM_ERR_UNSUPPORTED)
        return NULL;
    assert_int_equal(error, IDEM_OK);
    return get;
}

struct idem_op *claim(struct world *world, const char *key, const char *owner)
{
    return run(world, claim_make(world, key, owner));
}

struct idem_op *claim_taking(struct world *world, const char *key, const char *owner,
                             enum idem_take_unknown take, uint64_t fence)
{
    struct idem_op *op = claim_make(world, key, owner);

    op->in.claim.take = take;
    op->in.claim.take_fence = fence;
    return run(world, op);
}

struct idem_op *renew(struct world *world, const char *key, const char *owner, int64_t lease_us)
{
    struct idem_op *op = op_make(world, IDEM_OP_RENEW, key);

    op->in.renew.owner = owner_of(owner);
    op->in.renew.lease_us = lease_us;
    op->in.renew.unknown_ttl_us = UNKNOWN_TTL;
    return run(world, op);
}

struct idem_op *complete(struct world *world, const char *key, const char *owner, const char *body)
{
    struct idem_op *op = verdict_make(world, IDEM_OP_COMPLETE, key, owner);

    op->in.verdict.answer = answer_of(body);
    return run(world, op);
}

struct idem_op *fail_claim(struct world *world, const char *key, const char *owner)
{
    return run(world, verdict_make(world, IDEM_OP_FAIL, key, owner));
}

struct idem_op *abandon(struct world *world, const char *key, const char *owner)
{
    return run(world, verdict_make(world, IDEM_OP_ABANDON, key, owner));
}

struct idem_op *get(struct world *world, const char *key)
{
    return run(world, op_make(world, IDEM_OP_GET, key));
}

struct idem_op *forget(struct world *world, const char *key, bool force)
{
    struct idem_op *op = op_make(world, IDEM_OP_FORGET, key);

    op->in.forget.who = text("dana");
    op->in.forget.why = text("a test");
    op->in.forget.force = force;
    return run(world, op);
}

struct idem_op *sweep(struct world *world, uint32_t limit)
{
    struct idem_op *op = op_make(world, IDEM_OP_SWEEP, NULL);

    op->in.sweep.limit = limit;
    return run(world, op);
}

size_t sweep_all(struct world *world)
{
    struct idem_op *op;
    size_t removed = 0;

    do {
        op = sweep(world, 100);
        expect(op, OK);
        removed += op->out.count;
    } while (op->out.more);
    return removed;
}

const struct idem_record *record_of(struct world *world, const char *key)
{
    struct idem_op *op = get(world, key);

    expect(op, FOUND);
    return &op->out.found.record;
}
