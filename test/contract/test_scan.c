/* Looking through the records. */
#include <stdio.h>
#include <string.h>

#include "contract.h"

static struct idem_op *scan_make(struct world *world)
{
    struct idem_op *op = op_make(world, IDEM_OP_SCAN, NULL);

    op->in.scan.limit = IDEM_SCAN_MAX;
    return op;
}

static size_t scan_count(struct world *world, struct idem_op *op)
{
    expect(run(world, op), OK);
    return op->out.count;
}

/* Thirty records: ten running, ten completed, ten failed. */
static void populate(struct world *world)
{
    char key[16];

    for (int i = 0; i < 30; i++) {
        snprintf(key, sizeof key, "k%d", i);
        claim(world, key, "A");
        if (i % 3 == 1)
            complete(world, key, "A", "paid");
        if (i % 3 == 2)
            fail_claim(world, key, "A");
    }
}

static int order_of(const struct idem_id *a, const struct idem_id *b)
{
    return memcmp(a->bytes, b->bytes, IDEM_ID_SIZE);
}

static void scan_is_in_id_order(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    populate(world);
    op = scan_make(world);
    assert_int_equal(scan_count(world, op), 30);
    assert_false(op->out.more);
    for (size_t i = 1; i < op->out.count; i++)
        assert_true(order_of(&op->out.page[i - 1].record.id, &op->out.page[i].record.id) < 0);
}

static void pages_meet(void **state)
{
    static const uint32_t limits[] = {1, 7, 10, 29, 30, 31};
    struct world *world = *state;

    populate(world);
    for (size_t i = 0; i < COUNT(limits); i++) {
        struct idem_id last = {{0}};
        size_t seen = 0;
        bool more = true;

        while (more) {
            struct idem_op *op = scan_make(world);

            op->in.scan.limit = limits[i];
            op->in.scan.has_cursor = seen > 0;
            op->in.scan.cursor = last;
            assert_in_range(scan_count(world, op), 1, limits[i]);
            for (size_t r = 0; r < op->out.count; r++) {
                assert_true(seen + r == 0 || order_of(&last, &op->out.page[r].record.id) < 0);
                last = op->out.page[r].record.id;
            }
            seen += op->out.count;
            more = op->out.more;
            assert_true(more == (seen < 30));
        }
        assert_int_equal(seen, 30);
    }
}

static void cursor_need_not_be_there(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    populate(world);
    op = scan_make(world);
    op->in.scan.has_cursor = true; /* the id of all zeroes */
    assert_int_equal(scan_count(world, op), 30);
    op = scan_make(world);
    op->in.scan.has_cursor = true;
    memset(op->in.scan.cursor.bytes, 0xff, IDEM_ID_SIZE);
    assert_int_equal(scan_count(world, op), 0);
    assert_false(op->out.more);
}

static void states_are_filtered(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    populate(world);
    op = scan_make(world);
    op->in.scan.states = 1u << IDEM_STATE_COMPLETED;
    assert_int_equal(scan_count(world, op), 10);
    for (size_t i = 0; i < op->out.count; i++)
        assert_bytes(op->out.page[i].record.answer.body, text("paid"));
    op = scan_make(world);
    op->in.scan.states = 1u << IDEM_STATE_COMPLETED | 1u << IDEM_STATE_FAILED;
    assert_int_equal(scan_count(world, op), 20);
}

static void lapsed_shows_as_unknown(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    populate(world);
    advance(world, LEASE);
    op = scan_make(world);
    op->in.scan.states = 1u << IDEM_STATE_UNKNOWN;
    assert_int_equal(scan_count(world, op), 10);
    for (size_t i = 0; i < op->out.count; i++)
        assert_int_equal(op->out.page[i].record.state, IDEM_STATE_UNKNOWN);
    op = scan_make(world);
    op->in.scan.states = 1u << IDEM_STATE_PROCESSING;
    assert_int_equal(scan_count(world, op), 0);
}

static void expired_is_not_shown(void **state)
{
    struct world *world = *state;

    populate(world);
    advance(world, TTL);
    assert_int_equal(scan_count(world, scan_make(world)), 10);
}

static void kind_and_scope_are_filtered(void **state)
{
    struct world *world = *state;
    struct idem_op *op = claim_make(world, "job", "A");

    op->in.claim.kind = IDEM_KIND_JOB;
    op->in.claim.scope = idem_bytes_make(NULL, 0);
    run(world, op);
    claim(world, "k", "A");
    op = scan_make(world);
    op->in.scan.kind = IDEM_KIND_JOB;
    assert_int_equal(scan_count(world, op), 1);
    assert_bytes(op->out.page[0].record.key, text("job"));
    op = scan_make(world);
    op->in.scan.has_scope = true;
    assert_int_equal(scan_count(world, op), 1);
    assert_bytes(op->out.page[0].record.key, text("job"));
    op = scan_make(world);
    op->in.scan.has_scope = true;
    op->in.scan.scope = text("scope");
    assert_int_equal(scan_count(world, op), 1);
    assert_bytes(op->out.page[0].record.key, text("k"));
    op = scan_make(world);
    op->in.scan.has_scope = true;
    op->in.scan.scope = text("scop");
    assert_int_equal(scan_count(world, op), 0);
}

static void update_is_filtered(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    claim(world, "old", "A");
    advance(world, SECOND);
    claim(world, "new", "A");
    op = scan_make(world);
    op->in.scan.updated_since_us = START + SECOND;
    assert_int_equal(scan_count(world, op), 1);
    assert_bytes(op->out.page[0].record.key, text("new"));
    op = scan_make(world);
    op->in.scan.updated_before_us = START + SECOND;
    assert_int_equal(scan_count(world, op), 1);
    assert_bytes(op->out.page[0].record.key, text("old"));
}

static void page_of_large_records_ends_early(void **state)
{
    static const char *const keys[] = {"a", "b", "c"};
    struct world *world = *state;
    size_t size = 40u << 20;
    uint8_t *body = calloc(1, size);
    struct idem_op *op;
    struct idem_id last;

    assert_non_null(body);
    for (size_t i = 0; i < COUNT(keys); i++) {
        claim(world, keys[i], "A");
        op = verdict_make(world, IDEM_OP_COMPLETE, keys[i], "A");
        op->in.verdict.answer =
            (struct idem_answer){.status = 200, .body = idem_bytes_make(body, size)};
        expect(run(world, op), OK);
        assert_false(op->out.tombstoned);
    }
    free(body);
    op = scan_make(world);
    assert_int_equal(scan_count(world, op), 2);
    assert_true(op->out.more);
    assert_int_equal(op->out.page[1].record.answer.body.size, size);
    last = op->out.page[1].record.id;
    op = scan_make(world);
    op->in.scan.has_cursor = true;
    op->in.scan.cursor = last;
    assert_int_equal(scan_count(world, op), 1);
    assert_false(op->out.more);
}

static void filtered_pages_meet(void **state)
{
    struct world *world = *state;
    struct idem_id last = {{0}};
    size_t seen = 0;
    bool more = true;

    populate(world);
    while (more) {
        struct idem_op *op = scan_make(world);

        op->in.scan.states = 1u << IDEM_STATE_FAILED;
        op->in.scan.limit = 3;
        op->in.scan.has_cursor = seen > 0;
        op->in.scan.cursor = last;
        seen += scan_count(world, op);
        last = op->out.page[op->out.count - 1].record.id;
        more = op->out.more;
        assert_true(more == (seen < 10));
    }
    assert_int_equal(seen, 10);
}

static const struct rule rules[] = {
    {"a scan is in id order", scan_is_in_id_order, 0},
    {"pages of a scan meet without a gap, and more is exact", pages_meet, 0},
    {"the cursor of a scan need not be there", cursor_need_not_be_there, 0},
    {"a scan filters by state", states_are_filtered, 0},
    {"a scan shows a lapsed lease as unknown", lapsed_shows_as_unknown, TRAIT_CLOCK},
    {"a scan does not show what has expired", expired_is_not_shown, TRAIT_CLOCK},
    {"a scan filters by kind and by scope, the empty one too", kind_and_scope_are_filtered, 0},
    {"a scan filters by the last update", update_is_filtered, TRAIT_CLOCK},
    {"a page of large records ends early", page_of_large_records_ends_early, 0},
    {"pages of a filtered scan meet", filtered_pages_meet, 0},
};

const struct chapter chapter_scan = {"scans", rules, COUNT(rules)};
