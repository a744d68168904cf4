/*
 * Twins: every other store beside the memory store, with the same clock and salt, given the same
 * random ops. They must say the same, and now and then both are looked through from end to end.
 * Prints its seed; give it as an argument to walk that one again.
 *
 * Fences are not compared: they are above those of what was removed, which each store does in its
 * own time. So each twin is told of the fences, and given the copies, that it showed itself.
 */
#include <stdio.h>
#include <string.h>

#include "contract.h"

#define IDS       40
#define OWNERS    5
#define BATCH_MAX 24
#define BATCHES   500
#define BODY_MAX  30000
#define LOOK_EACH 40   /* batches between two looks through all there is */
#define AUDIT_MAX 4000 /* entries that a walk may leave */

#define SEEDS        30
#define SEEDS_SERVER 5

/* A record as it was shown, with memory of its own. */
struct copy {
    struct idem_record record;
    void *blob; /* NULL: none was shown yet */
};

struct twin {
    struct world *world;
    struct idem_op ops[BATCH_MAX];
    uint64_t seen[IDS];       /* the fence that an `unknown` named last */
    int64_t updated_us[IDS];  /* and the update that a get showed */
    struct copy copies[IDS];  /* what a get showed, to be put back later */
    struct copy scanned[IDS]; /* what a walk through the store has shown */
    struct idem_audit_entry entries[AUDIT_MAX];
    size_t entry_count;
};

static uint8_t body[BODY_MAX];
static unsigned results[IDEM_OP_COUNT][IDEM_RESULT_COUNT]; /* how often each was seen */

static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

static const char *name_of(const char *kind, uint32_t number)
{
    static char names[8][32];
    static unsigned next;
    char *name = names[next++ % 8];

    snprintf(name, sizeof names[0], "%s %u", kind, (unsigned)number);
    return name;
}

static struct idem_id id_numbered(uint32_t number)
{
    return id_of(name_of("id", number));
}

static void copy_free(struct copy *copy)
{
    free(copy->blob);
    memset(copy, 0, sizeof *copy);
}

static void copy_make(struct copy *copy, const struct idem_record *record)
{
    size_t size;

    copy_free(copy);
    assert_int_equal(idem_record_size(record, &size), IDEM_OK);
    copy->blob = malloc(size);
    assert_non_null(copy->blob);
    idem_record_encode(record, copy->blob, size);
    assert_int_equal(idem_record_decode(idem_bytes_make(copy->blob, size), &copy->record), IDEM_OK);
}

static void claim_fill(struct idem_op *op, const struct twin *twin, uint32_t id, uint32_t dice)
{
    struct idem_claim *in = &op->in.claim;

    in->kind = IDEM_KIND_HTTP;
    in->scope = idem_bytes_make(body, dice % 50);
    in->key = idem_bytes_make(body, dice % 70);
    in->method = idem_bytes_make(body, dice % 5);
    in->path = idem_bytes_make(body, dice / 50 % 1500);
    in->fingerprint = payload_of(dice % 11 == 0 ? "other" : "payload");
    in->principal = caller_of(dice % 13 == 0 ? "mallory" : "alice");
    in->owner = owner_of(name_of("owner", dice % OWNERS));
    in->lease_us = LEASE;
    in->unknown_ttl_us = dice % 3 ? 5 * MINUTE : IDEM_NEVER_US;
    in->ttl_us = dice % 7 ? MINUTE : IDEM_NEVER_US;
    in->take = (enum idem_take_unknown)(dice / 3 % 3);
    in->take_fence = twin->seen[id];
}

static void verdict_fill(struct idem_op *op, uint32_t dice)
{
    static const int64_t ttls[] = {0, SECOND, MINUTE, HOUR, IDEM_NEVER_US};
    struct idem_verdict *in = &op->in.verdict;

    in->owner = owner_of(name_of("owner", dice % OWNERS));
    in->ttl_us = ttls[dice / 5 % COUNT(ttls)];
    in->lease_us = LEASE;
    in->reason = op->kind == IDEM_OP_ABANDON ? IDEM_REASON_TRUNCATED : IDEM_REASON_NONE;
    if (op->kind == IDEM_OP_COMPLETE)
        in->answer = (struct idem_answer){
            .status = 200, .body = idem_bytes_make(body, dice % 4 ? dice % 900 : dice % BODY_MAX)};
}

static void resolve_fill(struct idem_op *op, const struct twin *twin, uint32_t id, uint32_t dice)
{
    struct idem_resolve *in = &op->in.resolve;

    in->fence = twin->seen[id];
    in->updated_us = twin->updated_us[id];
    in->completed = dice % 2;
    in->ttl_us = dice % 3 ? MINUTE : IDEM_NEVER_US;
    in->owner = owner_of(name_of("person", dice));
    in->who = idem_bytes_make(body, dice % IDEM_WHO_SIZE_MAX);
    in->why = idem_bytes_make(body, dice % IDEM_WHY_SIZE_MAX);
    in->force = dice % 5 == 0;
}

/* A copy as it was shown, or as the source might have changed it since. */
static void put_fill(struct idem_op *op, const struct twin *twin, uint32_t id, uint32_t dice)
{
    struct idem_record *record = &op->in.put.record;

    if (!twin->copies[id].blob) {
        op->kind = IDEM_OP_GET;
        return;
    }
    *record = twin->copies[id].record;
    if (dice % 3 == 0)
        record->updated_us += (int64_t)(dice % MINUTE);
    if (dice % 5 == 0)
        record->owner = owner_of(name_of("owner", dice % OWNERS));
    if (dice % 7 == 0)
        record->expires_us = record->updated_us + (int64_t)(dice % HOUR);
}

/* The same op for every twin, but for what this store itself has told before. */
static void op_fill(struct idem_op *op, const struct twin *twin, uint32_t seed)
{
    static const enum idem_op_kind kinds[] = {
        IDEM_OP_CLAIM,    IDEM_OP_CLAIM,    IDEM_OP_CLAIM, IDEM_OP_CLAIM,
        IDEM_OP_COMPLETE, IDEM_OP_COMPLETE, IDEM_OP_FAIL,  IDEM_OP_FAIL,
        IDEM_OP_ABANDON,  IDEM_OP_RENEW,    IDEM_OP_GET,   IDEM_OP_GET,
        IDEM_OP_RESOLVE,  IDEM_OP_FORGET,   IDEM_OP_SWEEP, IDEM_OP_PUT,
    };
    uint32_t id = next_random(&seed) % IDS;
    uint32_t dice = next_random(&seed);

    memset(op, 0, sizeof *op);
    op->kind = kinds[next_random(&seed) % COUNT(kinds)];
    op->id = id_numbered(id);
    if (op->kind == IDEM_OP_PUT) {
        put_fill(op, twin, id, dice);
    } else if (op->kind == IDEM_OP_CLAIM) {
        claim_fill(op, twin, id, dice);
    } else if (op->kind == IDEM_OP_RENEW) {
        op->in.renew.owner = owner_of(name_of("owner", dice % OWNERS));
        op->in.renew.lease_us = (int64_t)(dice % (2 * LEASE));
        op->in.renew.unknown_ttl_us = dice % 3 ? 5 * MINUTE : IDEM_NEVER_US;
    } else if (op->kind == IDEM_OP_RESOLVE) {
        resolve_fill(op, twin, id, dice);
    } else if (op->kind == IDEM_OP_FORGET) {
        op->in.forget.force = dice % 3 == 0;
    } else if (op->kind == IDEM_OP_SWEEP) {
        op->in.sweep.limit = 1 + dice % 8;
    } else if (op->kind != IDEM_OP_GET) {
        verdict_fill(op, dice);
    }
}

static void twin_apply(struct twin *twin, const uint32_t *seeds, size_t count)
{
    struct idem_op *list[BATCH_MAX];
    struct idem_message message = {""};

    for (size_t i = 0; i < count; i++) {
        list[i] = &twin->ops[i];
        op_fill(list[i], twin, seeds[i]);
    }
    if (idem_store_apply(twin->world->store, list, count, &message))
        fail_msg("%s: %s", twin->world->row->name, message.text);
    for (size_t i = 0; i < count; i++) {
        uint32_t seed = seeds[i], id = next_random(&seed) % IDS;

        if (list[i]->result == IDEM_RESULT_UNKNOWN)
            twin->seen[id] = list[i]->out.fence;
        if (list[i]->kind == IDEM_OP_GET && list[i]->result == IDEM_RESULT_FOUND) {
            twin->seen[id] = list[i]->out.found.record.fence;
            twin->updated_us[id] = list[i]->out.found.record.updated_us;
            copy_make(&twin->copies[id], &list[i]->out.found.record);
        }
    }
}

static void records_compare(const struct idem_record *a, const struct idem_record *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->attempt, b->attempt);
    assert_int_equal(a->reason, b->reason);
    assert_true(idem_owner_equal(&a->owner, &b->owner));
    assert_true(idem_fingerprint_equal(&a->fingerprint, &b->fingerprint));
    assert_true(idem_principal_equal(&a->principal, &b->principal));
    assert_int_equal(a->created_us, b->created_us);
    assert_int_equal(a->updated_us, b->updated_us);
    assert_int_equal(a->lease_us, b->lease_us);
    assert_int_equal(a->lease_until_us, b->lease_until_us);
    assert_int_equal(a->expires_us, b->expires_us);
    assert_int_equal(a->answer.status, b->answer.status);
    assert_int_equal(a->answer.flags, b->answer.flags);
    assert_int_equal(a->answer.tombstone, b->answer.tombstone);
    assert_int_equal(a->resolution.at_us, b->resolution.at_us);
    assert_bytes(a->scope, b->scope);
    assert_bytes(a->key, b->key);
    assert_bytes(a->method, b->method);
    assert_bytes(a->path, b->path);
    assert_bytes(a->answer.headers, b->answer.headers);
    assert_bytes(a->answer.body, b->answer.body);
    assert_bytes(a->resolution.who, b->resolution.who);
    assert_bytes(a->resolution.why, b->resolution.why);
}

static void ops_compare(const struct idem_op *a, const struct idem_op *b)
{
    if (a->kind == IDEM_OP_SWEEP)
        return; /* a store may find what has expired in its own time */
    assert_string_equal(idem_result_text(a->result), idem_result_text(b->result));
    assert_int_equal(a->out.attempt, b->out.attempt);
    assert_int_equal(a->out.since_us, b->out.since_us);
    assert_int_equal(a->out.retry_after_us, b->out.retry_after_us);
    assert_int_equal(a->out.tombstoned, b->out.tombstoned);
    assert_int_equal(a->out.found.memory != NULL, b->out.found.memory != NULL);
    if (a->out.found.memory)
        records_compare(&a->out.found.record, &b->out.found.record);
}

static void scan_note(struct twin *twin, const struct idem_record *record)
{
    for (uint32_t id = 0; id < IDS; id++) {
        struct idem_id known = id_numbered(id);

        if (!idem_id_equal(&known, &record->id))
            continue;
        if (twin->scanned[id].blob)
            assert_false(twin->world->row->traits & TRAIT_ORDERED); /* shown twice */
        copy_make(&twin->scanned[id], record);
        return;
    }
    fail_msg("%s shows a record that nobody made", twin->world->row->name);
}

/* Walks all pages of a scan. Returns how many records were shown in the first one. */
static size_t twin_scan(struct twin *twin, struct idem_scan filter)
{
    size_t first = 0;
    bool more = true;

    for (uint32_t id = 0; id < IDS; id++)
        copy_free(&twin->scanned[id]);
    for (size_t page = 0; more; page++) {
        struct idem_op *op = op_make(twin->world, IDEM_OP_SCAN, NULL);

        op->in.scan = filter;
        op->in.scan.has_cursor = page > 0;
        expect(run(twin->world, op), OK);
        for (size_t i = 0; i < op->out.count; i++)
            scan_note(twin, &op->out.page[i].record);
        filter.cursor = op->out.next;
        more = op->out.more;
        first = page == 0 ? op->out.count : first;
    }
    return first;
}

static void scans_compare(struct twin *twins, uint32_t dice)
{
    struct idem_scan filter = {
        .states = dice % 4 ? 0 : 1u << (1 + dice / 4 % 4),
        .prefix = id_numbered(dice % IDS),
        .prefix_digits = dice / 16 % 3,
        .limit = 1 + dice / 64 % 20,
    };
    size_t first[2];

    for (size_t t = 0; t < 2; t++)
        first[t] = twin_scan(&twins[t], filter);
    if (twins[1].world->row->traits & TRAIT_ORDERED)
        assert_int_equal(first[0], first[1]);
    for (uint32_t id = 0; id < IDS; id++) {
        const struct copy *a = &twins[0].scanned[id], *b = &twins[1].scanned[id];

        assert_int_equal(a->blob != NULL, b->blob != NULL);
        if (a->blob)
            records_compare(&a->record, &b->record);
    }
}

/* Reads the whole audit; what was said why is the same for all, so its size is kept alone. */
static void twin_audit(struct twin *twin, uint32_t limit)
{
    int64_t after_us = -1;
    bool more = true;

    twin->entry_count = 0;
    while (more) {
        struct idem_op *op = op_make(twin->world, IDEM_OP_AUDIT, NULL);

        op->in.audit.after_us = after_us;
        op->in.audit.limit = limit;
        expect(run(twin->world, op), OK);
        for (size_t i = 0; i < op->out.count; i++) {
            assert_true(op->out.entries[i].at_us > after_us);
            assert_true(twin->entry_count < AUDIT_MAX);
            after_us = op->out.entries[i].at_us;
            twin->entries[twin->entry_count] = op->out.entries[i];
            twin->entries[twin->entry_count++].why.data = NULL;
        }
        assert_true(op->out.count > 0 || !op->out.more);
        more = op->out.more;
    }
}

/* By id; of one id in the order in which it was told. */
static int entry_order(const void *a, const void *b)
{
    const struct idem_audit_entry *left = a, *right = b;
    int order = memcmp(left->id.bytes, right->id.bytes, IDEM_ID_SIZE);

    return order ? order : (left->at_us > right->at_us) - (left->at_us < right->at_us);
}

static void audits_compare(struct twin *twins, uint32_t dice)
{
    for (size_t t = 0; t < 2; t++) {
        twin_audit(&twins[t], 1 + dice % IDEM_SCAN_MAX);
        qsort(twins[t].entries, twins[t].entry_count, sizeof twins[t].entries[0], entry_order);
    }
    assert_int_equal(twins[0].entry_count, twins[1].entry_count);
    for (size_t i = 0; i < twins[0].entry_count; i++) {
        const struct idem_audit_entry *a = &twins[0].entries[i], *b = &twins[1].entries[i];

        assert_true(idem_id_equal(&a->id, &b->id));
        assert_int_equal(a->what, b->what);
        assert_int_equal(a->was, b->was);
        assert_int_equal(a->why.size, b->why.size);
    }
}

static void twins_step(struct twin *twins, int batch, uint32_t *seed)
{
    uint32_t seeds[BATCH_MAX];
    size_t count = 1 + next_random(seed) % BATCH_MAX;
    int64_t step_us = (int64_t)(next_random(seed) % (2 * LEASE));

    for (size_t i = 0; i < count; i++)
        seeds[i] = next_random(seed);
    for (size_t t = 0; t < 2; t++) {
        advance(twins[t].world, batch % 50 == 49 ? HOUR : step_us);
        twin_apply(&twins[t], seeds, count);
    }
    for (size_t i = 0; i < count; i++) {
        ops_compare(&twins[0].ops[i], &twins[1].ops[i]);
        results[twins[0].ops[i].kind][twins[0].ops[i].result]++;
        idem_op_deinit(&twins[0].ops[i]);
        idem_op_deinit(&twins[1].ops[i]);
    }
}

static void twins_walk(struct twin *twins, uint32_t seed)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        twins_step(twins, batch, &seed);
        if (batch % LOOK_EACH == 0)
            scans_compare(twins, next_random(&seed));
        if (batch % (5 * LOOK_EACH) == 0)
            audits_compare(twins, next_random(&seed));
    }
}

/* In the end both hold the same, and all that can expire is swept from both. */
static void twins_end(struct twin *twins)
{
    audits_compare(twins, 99);
    for (size_t t = 0; t < 2; t++) {
        advance(twins[t].world, DAY);
        sweep_all(twins[t].world);
    }
    scans_compare(twins, 0);
    for (uint32_t id = 0; id < IDS; id++)
        if (twins[1].scanned[id].blob)
            assert_true(twins[1].scanned[id].record.expires_us == IDEM_NEVER_US);
}

static void twin_free(struct twin *twin)
{
    for (uint32_t id = 0; id < IDS; id++) {
        copy_free(&twin->copies[id]);
        copy_free(&twin->scanned[id]);
    }
}

static void walk(const struct row *row, uint32_t seed)
{
    struct twin *twins = calloc(2, sizeof *twins);
    void *states[2] = {(void *)(uintptr_t)row_find("memory"), (void *)(uintptr_t)row};
    struct idem_salt salt;

    assert_non_null(twins);
    for (size_t t = 0; t < 2; t++) {
        world_setup(&states[t]);
        twins[t].world = states[t];
        world_close(states[t]);
        world_open(states[t], row->traits & TRAIT_KEPT && t ? "?sync=off" : "");
    }
    salt = idem_store_salt(twins[0].world->store);
    assert_int_equal(idem_store_adopt(twins[1].world->store, &salt, NULL), IDEM_OK);
    twins_walk(twins, seed);
    twins_end(twins);
    for (size_t t = 0; t < 2; t++) {
        twin_free(&twins[t]);
        world_teardown(&states[t]);
    }
    free(twins);
}

/* What the ops may come to, but for FULL and CORRUPT, which are for others to show. */
#define RESULT(name) (1u << IDEM_RESULT_##name)
static const unsigned results_wanted[IDEM_OP_COUNT] = {
    [IDEM_OP_CLAIM] = RESULT(ACQUIRED) | RESULT(IN_PROGRESS) | RESULT(COMPLETED) | RESULT(UNKNOWN) |
                      RESULT(MISMATCH) | RESULT(OTHER_PRINCIPAL) | RESULT(ENDED),
    [IDEM_OP_RENEW] = RESULT(OK) | RESULT(LOST),
    [IDEM_OP_COMPLETE] = RESULT(OK) | RESULT(LOST),
    [IDEM_OP_FAIL] = RESULT(OK) | RESULT(LOST),
    [IDEM_OP_ABANDON] = RESULT(OK) | RESULT(LOST),
    [IDEM_OP_GET] = RESULT(FOUND) | RESULT(ABSENT),
    [IDEM_OP_RESOLVE] = RESULT(OK) | RESULT(CHANGED) | RESULT(ABSENT) | RESULT(REFUSED),
    [IDEM_OP_FORGET] = RESULT(OK) | RESULT(ABSENT) | RESULT(REFUSED),
    [IDEM_OP_PUT] = RESULT(OK) | RESULT(CHANGED),
};

/* Walks that never came to a result have shown nothing about it. */
static void results_check(void)
{
    for (int kind = 0; kind < IDEM_OP_COUNT; kind++)
        for (int result = 0; result < IDEM_RESULT_COUNT; result++)
            if (results_wanted[kind] & 1u << result && results[kind][result] == 0)
                fail_msg("no %s was ever %s", idem_op_kind_text((enum idem_op_kind)kind),
                         idem_result_text((enum idem_result)result));
}

static const char *only_row;
static uint32_t only_seed;

static void twins_say_the_same(void **state)
{
    const struct row *row = row_find(only_row);

    (void)state;
    for (uint32_t seed = 1; seed <= (row->server ? SEEDS_SERVER : SEEDS); seed++) {
        if (only_seed && seed != only_seed)
            continue;
        print_message("%s, seed %u\n", row->name, (unsigned)seed);
        walk(row, seed * 2654435761u);
    }
    if (!only_seed)
        results_check();
}

/* test_twins ROW [SEED] */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twins_say_the_same),
    };

    only_row = argc > 1 ? argv[1] : "lmdb";
    if (argc > 2)
        only_seed = (uint32_t)strtoul(argv[2], NULL, 10);
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (uint8_t)(i * 7 + i / 256);
    return cmocka_run_group_tests_name(only_row, tests, NULL, NULL);
}
