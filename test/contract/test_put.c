/*
 * Putting: a store is filled from another one, again and again until the gateways have moved. What
 * was recorded on either side since must never be lost to an older copy.
 */
#include <stdio.h>
#include <string.h>

#include "contract.h"

/* A record taken out of the store, with memory of its own. */
struct taken {
    struct idem_record record;
    uint8_t blob[4096];
};

static struct taken *take(struct world *world, const char *key)
{
    static struct taken takens[8];
    static size_t next;
    struct taken *taken = &takens[next++ % COUNT(takens)];
    const struct idem_record *record = record_of(world, key);
    size_t size;

    assert_int_equal(idem_record_size(record, &size), 0);
    assert_true(size <= sizeof taken->blob);
    idem_record_encode(record, taken->blob, size);
    assert_int_equal(idem_record_decode(idem_bytes_make(taken->blob, size), &taken->record), 0);
    return taken;
}

static struct idem_op *put(struct world *world, const struct taken *taken)
{
    struct idem_op *op = op_make(world, IDEM_OP_PUT, NULL);

    op->id = taken->record.id;
    op->in.put.record = taken->record;
    return run(world, op);
}

static void assert_there(struct world *world, const char *key, const struct taken *taken)
{
    const struct idem_record *record = record_of(world, key);

    assert_int_equal(record->state, taken->record.state);
    assert_int_equal(record->reason, taken->record.reason);
    assert_memory_equal(record->owner.bytes, taken->record.owner.bytes, IDEM_OWNER_SIZE);
    assert_int_equal(record->fence, taken->record.fence);
    assert_int_equal(record->attempt, taken->record.attempt);
    assert_int_equal(record->lease_us, taken->record.lease_us);
    assert_int_equal(record->lease_until_us, taken->record.lease_until_us);
    assert_int_equal(record->created_us, taken->record.created_us);
    assert_int_equal(record->updated_us, taken->record.updated_us);
    assert_int_equal(record->expires_us, taken->record.expires_us);
    assert_int_equal(record->answer.status, taken->record.answer.status);
    assert_int_equal(record->answer.flags, taken->record.answer.flags);
    assert_int_equal(record->answer.tombstone, taken->record.answer.tombstone);
    assert_bytes(record->answer.headers, taken->record.answer.headers);
    assert_bytes(record->answer.body, taken->record.answer.body);
    assert_bytes(record->scope, taken->record.scope);
    assert_bytes(record->key, taken->record.key);
    assert_bytes(record->method, taken->record.method);
    assert_bytes(record->path, taken->record.path);
    assert_bytes(record->resolution.who, taken->record.resolution.who);
    assert_bytes(record->resolution.why, taken->record.resolution.why);
    assert_int_equal(record->resolution.at_us, taken->record.resolution.at_us);
}

static void test_as_it_is(void **state)
{
    struct world *world = *state;
    const struct taken *taken;

    claim(world, "k", "a");
    complete(world, "k", "a", "made");
    taken = take(world, "k");
    forget(world, "k", false);
    advance(world, SECOND);
    expect(put(world, taken), OK);
    assert_there(world, "k", taken);
    expect(claim(world, "k", "b"), COMPLETED);
    expect(put(world, taken), OK); /* the very same again */
    assert_there(world, "k", taken);
}

/* Every state that a record can be in, with what belongs to it. */
static void test_each_state(void **state)
{
    struct world *world = *state;
    static const char *const keys[] = {"processing", "failed", "unknown", "resolved"};
    const struct taken *taken[COUNT(keys)];

    for (size_t i = 0; i < COUNT(keys); i++)
        claim(world, keys[i], "a");
    fail_claim(world, "failed", "a");
    abandon(world, "unknown", "a");
    abandon(world, "resolved", "a");
    expect(run(world, resolve_make(world, "resolved")), OK);
    for (size_t i = 0; i < COUNT(keys); i++) {
        taken[i] = take(world, keys[i]);
        expect(forget(world, keys[i], true), OK);
    }
    for (size_t i = 0; i < COUNT(keys); i++) {
        expect(put(world, taken[i]), OK);
        assert_there(world, keys[i], taken[i]);
    }
    expect(claim(world, "processing", "b"), IN_PROGRESS);
    expect(complete(world, "processing", "a", "made"), OK); /* its owner still is */
    expect(claim(world, "failed", "b"), ACQUIRED);
    expect(claim(world, "unknown", "b"), UNKNOWN);
}

static void test_earlier_state_of_the_same_claim(void **state)
{
    struct world *world = *state;
    const struct taken *early, *late;

    claim(world, "k", "a");
    early = take(world, "k");
    advance(world, SECOND);
    complete(world, "k", "a", "made");
    late = take(world, "k");
    forget(world, "k", false);
    expect(put(world, early), OK);
    expect(put(world, late), OK);
    assert_there(world, "k", late);
    expect(put(world, early), CHANGED);
    assert_there(world, "k", late);
}

/* A person resolved it at the source after it was copied: the fence is the same, the owner is not.
 */
static void test_resolved_since(void **state)
{
    struct world *world = *state;
    const struct taken *lost, *resolved;

    claim(world, "k", "a");
    abandon(world, "k", "a");
    lost = take(world, "k");
    advance(world, SECOND);
    expect(run(world, resolve_make(world, "k")), OK);
    resolved = take(world, "k");
    forget(world, "k", false);
    expect(put(world, lost), OK);
    expect(put(world, resolved), OK);
    assert_there(world, "k", resolved);
    expect(put(world, lost), CHANGED);
    assert_there(world, "k", resolved);
}

/* The source has executed it again meanwhile: the old outcome must not make it execute once more.
 */
static void test_taken_up_since(void **state)
{
    struct world *world = *state;
    const struct taken *failed, *done;

    claim(world, "k", "a");
    fail_claim(world, "k", "a");
    failed = take(world, "k");
    advance(world, SECOND);
    claim(world, "k", "b");
    complete(world, "k", "b", "made");
    done = take(world, "k");
    forget(world, "k", false);
    expect(put(world, failed), OK);
    expect(put(world, done), OK);
    assert_there(world, "k", done);
    expect(put(world, failed), CHANGED);
    assert_there(world, "k", done);
}

static void test_lapsed_here_taken_up_there(void **state)
{
    struct world *world = *state;
    const struct taken *running, *later;

    claim(world, "k", "a");
    running = take(world, "k");
    advance(world, 2 * LEASE);
    expect(claim_taking(world, "k", "b", IDEM_TAKE_ANY, 0), ACQUIRED);
    later = take(world, "k");
    forget(world, "k", true);
    expect(put(world, running), OK);
    expect(put(world, later), OK); /* the lease had lapsed: it is unknown here */
    assert_there(world, "k", later);
}

/* A later claim stands over no answer, and over nothing that runs. */
static void test_what_stands(void **state)
{
    struct world *world = *state;
    struct taken *later;

    claim(world, "k", "a");
    later = take(world, "k");
    later->record.fence += 10;
    later->record.owner = owner_of("b");
    later->record.updated_us += SECOND;
    expect(put(world, later), CHANGED);
    complete(world, "k", "a", "made");
    expect(put(world, later), CHANGED);
    later->record.fence -= 20; /* an earlier claim stands over nothing at all */
    expect(put(world, later), CHANGED);
    assert_int_equal(record_of(world, "k")->state, IDEM_STATE_COMPLETED);
    expect(forget(world, "k", false), OK);
    expect(put(world, later), OK);
}

/* What ran at the source when it was copied goes on here: it lapses, and its owner may still speak.
 */
static void test_running_lapses_here(void **state)
{
    struct world *world = *state;
    const struct taken *taken;
    struct idem_op *op;

    claim(world, "k", "a");
    taken = take(world, "k");
    forget(world, "k", true);
    advance(world, LEASE / 2);
    expect(put(world, taken), OK);
    expect(renew(world, "k", "a", LEASE / 4), OK);
    expect(claim(world, "k", "a"), ACQUIRED); /* the same claim again */
    advance(world, LEASE / 2 - 1);
    expect(claim(world, "k", "b"), IN_PROGRESS);
    advance(world, 1);
    op = claim(world, "k", "b");
    expect(op, UNKNOWN);
    assert_int_equal(op->out.since_us, taken->record.lease_until_us);
    assert_int_equal(op->out.fence, taken->record.fence);
    expect(put(world, taken), CHANGED); /* renewed since */
    expect(renew(world, "k", "a", LEASE), LOST);
    expect(complete(world, "k", "a", "late"), OK);
    op = claim(world, "k", "b");
    expect(op, COMPLETED);
    assert_bytes(op->out.found.record.answer.body, text("late"));
}

/* A copied claim is one like every other: its fence is above what it replaced, and grows. */
static void test_fence_goes_on(void **state)
{
    struct world *world = *state;
    const struct taken *taken;
    struct idem_op *op;

    claim(world, "k", "a");
    abandon(world, "k", "a");
    taken = take(world, "k");
    forget(world, "k", false);
    expect(put(world, taken), OK);
    op = claim_taking(world, "k", "b", IDEM_TAKE_FENCE, taken->record.fence);
    expect(op, ACQUIRED);
    assert_int_equal(op->out.attempt, 2);
    assert_true(op->out.fence > taken->record.fence);
    expect(put(world, taken), CHANGED);
    expect(complete(world, "k", "a", "late"), LOST);
    expect(complete(world, "k", "b", "b's"), OK);
}

/* Where the answer has no room nothing is put: as a tombstone it would be lost for good. */
static void test_full(void **state)
{
    static uint8_t body[3000];
    struct world *world = *state;
    struct taken *taken;
    char key[32];
    int refused = 0;

    claim(world, "k", "a");
    complete(world, "k", "a", "small");
    taken = take(world, "k");
    world_close(world);
    world_unlink(world);
    world_open(world, world->row->bounded);
    taken->record.answer.body = idem_bytes_make(body, sizeof body);
    for (int i = 0; i < 2000 && refused < 3; i++) {
        struct idem_op *op;

        snprintf(key, sizeof key, "copy %d", i);
        taken->record.id = id_of(key);
        op = put(world, taken);
        if (op->result == IDEM_RESULT_FULL) {
            refused++;
            expect(get(world, key), ABSENT);
        } else {
            expect(op, OK);
            assert_false(op->out.tombstoned);
            assert_int_equal(record_of(world, key)->answer.body.size, sizeof body);
        }
    }
    assert_int_equal(refused, 3);
    expect(get(world, "copy 0"), FOUND); /* nothing made way for what came later */
}

static void test_expired_gives_way(void **state)
{
    struct world *world = *state;
    const struct taken *taken;

    claim(world, "k", "a");
    complete(world, "k", "a", "old");
    advance(world, TTL + SECOND);
    expect(claim(world, "k", "b"), ACQUIRED);
    complete(world, "k", "b", "new");
    taken = take(world, "k");
    forget(world, "k", false);
    claim(world, "k", "c");
    complete(world, "k", "c", "gone");
    advance(world, TTL - SECOND);
    expect(put(world, taken), CHANGED);
    advance(world, 2 * SECOND); /* both have expired: it is put, and as good as absent */
    expect(put(world, taken), OK);
    expect(get(world, "k"), ABSENT);
}

static void test_adopt(void **state)
{
    struct world *world = *state;
    struct idem_message message = {""};
    struct idem_salt own = idem_store_salt(world->store), other = own;

    other.bytes[0] ^= 1;
    claim(world, "gone", "a");
    forget(world, "gone", true);
    assert_int_equal(idem_store_adopt(world->store, &other, &message), 0);
    assert_int_equal(idem_store_adopt(world->store, &other, &message), 0);
    claim(world, "k", "a");
    expect(claim(world, "k", "b"), IN_PROGRESS);
    assert_int_equal(idem_store_adopt(world->store, &own, &message), IDEM_ERR_INVALID);
    assert_true(strlen(message.text) > 20);
    assert_int_equal(idem_store_adopt(world->store, &other, &message), 0);
    assert_memory_equal(idem_store_salt(world->store).bytes, other.bytes, sizeof other.bytes);
}

static void test_adopt_is_kept(void **state)
{
    struct world *world = *state;
    struct idem_message message = {""};
    struct idem_salt other = idem_store_salt(world->store);

    other.bytes[3] ^= 1;
    assert_int_equal(idem_store_adopt(world->store, &other, &message), 0);
    claim(world, "k", "a");
    complete(world, "k", "a", "made");
    world_reopen(world);
    assert_memory_equal(idem_store_salt(world->store).bytes, other.bytes, sizeof other.bytes);
    expect(claim(world, "k", "b"), COMPLETED);
}

static const struct rule rules[] = {
    {"a record is put as it is, and again", test_as_it_is, TRAIT_NONE},
    {"every state can be put", test_each_state, TRAIT_NONE},
    {"an earlier state of the same claim gives way", test_earlier_state_of_the_same_claim,
     TRAIT_CLOCK},
    {"what a person resolved at the source is put over what was copied before", test_resolved_since,
     TRAIT_CLOCK},
    {"what failed here and was executed again at the source gives way", test_taken_up_since,
     TRAIT_CLOCK},
    {"what lapsed here and was taken over at the source gives way", test_lapsed_here_taken_up_there,
     TRAIT_CLOCK},
    {"a later claim stands over no answer and over nothing that runs", test_what_stands,
     TRAIT_NONE},
    {"what ran when it was copied lapses here, and its owner may still speak",
     test_running_lapses_here, TRAIT_CLOCK},
    {"the fence of a copy goes on", test_fence_goes_on, TRAIT_NONE},
    {"a full store takes no copy, and nothing makes way for one", test_full, TRAIT_BOUND},
    {"what has expired gives way", test_expired_gives_way, TRAIT_CLOCK},
    {"a store without records adopts another's salt", test_adopt, TRAIT_NONE},
    {"an adopted salt is kept", test_adopt_is_kept, TRAIT_KEPT},
};

const struct chapter chapter_put = {"put", rules, COUNT(rules)};
