/*
 * Looking through the records. Rows in id order promise more than the others, which may show a
 * record twice, in any order, and give pages that are empty though there is more.
 */
#include <stdio.h>
#include <string.h>

#include "contract.h"

#define RECORDS    30
#define ROUNDS_MAX 100000 /* pages until a scan is held to go round in circles */

static struct idem_op *scan_make(struct world *world)
{
    struct idem_op *op = op_make(world, IDEM_OP_SCAN, NULL);

    op->in.scan.limit = IDEM_SCAN_MAX;
    return op;
}

static const char *key_of(size_t number)
{
    static char keys[4][16];
    static unsigned next;
    char *key = keys[next++ % COUNT(keys)];

    snprintf(key, sizeof keys[0], "k%zu", number);
    return key;
}

/* Thirty records: ten running, ten completed, ten failed. */
static void populate(struct world *world)
{
    for (size_t i = 0; i < RECORDS; i++) {
        claim(world, key_of(i), "A");
        if (i % 3 == 1)
            complete(world, key_of(i), "A", "paid");
        if (i % 3 == 2)
            fail_claim(world, key_of(i), "A");
    }
}

static bool is_ordered(const struct world *world)
{
    return world->row->traits & TRAIT_ORDERED;
}

static int order_of(const struct idem_id *a, const struct idem_id *b)
{
    return memcmp(a->bytes, b->bytes, IDEM_ID_SIZE);
}

/* What a walk from the first page to the last one has shown. */
struct walk {
    struct idem_scan filter;                                           /* in */
    void (*visit)(struct world *world, const struct idem_record *one); /* in: for each, or NULL */
    void (*between)(struct world *world, size_t page);                 /* in: after each, or NULL */
    unsigned times[RECORDS];                                           /* out: by number */
    size_t others;                                                     /* out: of other keys */
    size_t distinct;                                                   /* out */
    size_t pages;                                                      /* out */
};

static void walk_note(struct walk *walk, const struct idem_record *record)
{
    for (size_t i = 0; i < RECORDS; i++) {
        if (idem_bytes_equal(record->key, text(key_of(i)))) {
            walk->distinct += walk->times[i] == 0;
            walk->times[i]++;
            return;
        }
    }
    walk->others++;
}

static void page_check(const struct world *world, const struct idem_op *op)
{
    const struct idem_id *last = op->in.scan.has_cursor ? &op->in.scan.cursor : NULL;

    assert_true(op->out.count <= op->in.scan.limit);
    if (!is_ordered(world))
        return;
    for (size_t i = 0; i < op->out.count; i++) {
        const struct idem_id *id = &op->out.page[i].record.id;

        assert_true(!last || order_of(last, id) < 0);
        last = id;
    }
    if (op->out.more && last)
        assert_true(order_of(last, &op->out.next) <= 0);
}

static void walk_run(struct world *world, struct walk *walk)
{
    struct idem_id cursor = {{0}};
    bool more = true;

    while (more) {
        struct idem_op *op = scan_make(world);

        op->in.scan = walk->filter;
        op->in.scan.limit = walk->filter.limit ? walk->filter.limit : IDEM_SCAN_MAX;
        op->in.scan.has_cursor = walk->pages > 0;
        op->in.scan.cursor = cursor;
        expect(run(world, op), OK);
        for (size_t i = 0; i < op->out.count; i++) {
            walk_note(walk, &op->out.page[i].record);
            if (walk->visit)
                walk->visit(world, &op->out.page[i].record);
        }
        page_check(world, op);
        cursor = op->out.next;
        more = op->out.more;
        if (walk->between)
            walk->between(world, walk->pages);
        assert_true(++walk->pages < ROUNDS_MAX);
    }
    if (is_ordered(world))
        for (size_t i = 0; i < RECORDS; i++)
            assert_true(walk->times[i] <= 1);
}

/* How many of the records a filter shows. */
static size_t found(struct world *world, struct idem_scan filter)
{
    struct walk walk = {.filter = filter};

    walk_run(world, &walk);
    return walk.distinct + walk.others;
}

static void scan_is_in_id_order(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    populate(world);
    op = run(world, scan_make(world));
    assert_int_equal(op->out.count, RECORDS);
    assert_false(op->out.more);
    for (size_t i = 1; i < op->out.count; i++)
        assert_true(order_of(&op->out.page[i - 1].record.id, &op->out.page[i].record.id) < 0);
}

static void pages_meet(void **state)
{
    static const uint32_t limits[] = {1, 2, 7, 10, 29, 30, 31, IDEM_SCAN_MAX};
    struct world *world = *state;

    populate(world);
    for (size_t i = 0; i < COUNT(limits); i++) {
        assert_int_equal(found(world, (struct idem_scan){.limit = limits[i]}), RECORDS);
        assert_int_equal(
            found(world, (struct idem_scan){.limit = limits[i], .states = 1u << IDEM_STATE_FAILED}),
            RECORDS / 3);
    }
}

/* In id order every page but the last is full, and the last one says that it is. */
static void more_is_exact(void **state)
{
    static const uint32_t limits[] = {1, 7, 10, 29, 30, 31};
    struct world *world = *state;

    populate(world);
    for (size_t i = 0; i < COUNT(limits); i++) {
        struct walk walk = {.filter.limit = limits[i]};

        walk_run(world, &walk);
        assert_int_equal(walk.pages, (RECORDS + limits[i] - 1) / limits[i]);
    }
}

static void cursor_need_not_be_there(void **state)
{
    struct world *world = *state;
    struct idem_op *op;

    populate(world);
    op = scan_make(world);
    op->in.scan.has_cursor = true; /* the id of all zeroes */
    assert_int_equal(run(world, op)->out.count, RECORDS);
    op = scan_make(world);
    op->in.scan.has_cursor = true;
    memset(op->in.scan.cursor.bytes, 0xff, IDEM_ID_SIZE);
    assert_int_equal(run(world, op)->out.count, 0);
    assert_false(op->out.more);
}

static void empty_store_shows_nothing(void **state)
{
    struct world *world = *state;

    assert_int_equal(found(world, (struct idem_scan){.limit = 1}), 0);
}

/* Between two pages new records come, and of ours the one with a number below 20 goes. */
static void come_and_go(struct world *world, size_t page)
{
    char key[32];

    snprintf(key, sizeof key, "new %zu", page);
    claim(world, key, "A");
    if (page < 20)
        forget(world, key_of(page), true);
}

static void what_stays_is_seen_by(struct world *world, uint32_t limit)
{
    struct walk walk = {.filter.limit = limit, .between = come_and_go};

    populate(world);
    walk_run(world, &walk);
    for (size_t i = walk.pages < 20 ? walk.pages : 20; i < RECORDS; i++)
        assert_in_range(walk.times[i], 1, is_ordered(world) ? 1 : walk.pages);
}

static void what_stays_is_seen(void **state)
{
    what_stays_is_seen_by(*state, 3);
}

/* Pages that end within what a store finds at once, where that changes most often. */
static void what_stays_is_seen_one_by_one(void **state)
{
    what_stays_is_seen_by(*state, 1);
}

static void assert_paid(struct world *world, const struct idem_record *record)
{
    (void)world;
    assert_bytes(record->answer.body, text("paid"));
}

static void states_are_filtered(void **state)
{
    struct world *world = *state;
    struct walk walk = {.filter.states = 1u << IDEM_STATE_COMPLETED, .visit = assert_paid};

    populate(world);
    walk_run(world, &walk);
    assert_int_equal(walk.distinct, 10);
    assert_int_equal(found(world, (struct idem_scan){.states = 1u << IDEM_STATE_COMPLETED |
                                                               1u << IDEM_STATE_FAILED}),
                     20);
}

static void assert_unknown(struct world *world, const struct idem_record *record)
{
    (void)world;
    assert_int_equal(record->state, IDEM_STATE_UNKNOWN);
}

static void lapsed_shows_as_unknown(void **state)
{
    struct world *world = *state;
    struct walk walk = {.filter.states = 1u << IDEM_STATE_UNKNOWN, .visit = assert_unknown};

    populate(world);
    advance(world, LEASE - 1);
    assert_int_equal(found(world, (struct idem_scan){.states = 1u << IDEM_STATE_PROCESSING}), 10);
    advance(world, 1);
    walk_run(world, &walk);
    assert_int_equal(walk.distinct, 10);
    assert_int_equal(found(world, (struct idem_scan){.states = 1u << IDEM_STATE_PROCESSING}), 0);
}

static void expired_is_not_shown(void **state)
{
    struct world *world = *state;

    populate(world);
    advance(world, TTL);
    assert_int_equal(found(world, (struct idem_scan){.kind = 0}), 10);
}

static void kind_and_scope_are_filtered(void **state)
{
    static const struct {
        struct idem_scan filter;
        const char *scope, *key; /* NULL: nothing is shown */
    } cases[] = {
        {{.kind = IDEM_KIND_JOB}, "", "job"},  {{.kind = IDEM_KIND_HTTP}, "", "k"},
        {{.has_scope = true}, "", "job"},      {{.has_scope = true}, "scope", "k"},
        {{.has_scope = true}, "scop", NULL},   {{.has_scope = true}, "Scope", NULL},
        {{.has_scope = true}, "scope ", NULL}, {{.kind = IDEM_KIND_TX}, "", NULL},
    };
    struct world *world = *state;
    struct idem_op *op = claim_make(world, "job", "A");

    op->in.claim.kind = IDEM_KIND_JOB;
    op->in.claim.scope = idem_bytes_make(NULL, 0);
    run(world, op);
    claim(world, "k", "A");
    for (size_t i = 0; i < COUNT(cases); i++) {
        op = scan_make(world);
        op->in.scan = cases[i].filter;
        op->in.scan.limit = IDEM_SCAN_MAX;
        op->in.scan.scope = text(cases[i].scope);
        assert_int_equal(run(world, op)->out.count, cases[i].key ? 1 : 0);
        if (cases[i].key)
            assert_bytes(op->out.page[0].record.key, text(cases[i].key));
    }
}

static void update_is_filtered(void **state)
{
    static const struct {
        int64_t since_us, before_us;
        size_t count;
    } cases[] = {
        {START, 0, 2},     {START + 1, 0, 1}, {START + 2, 0, 0}, {0, START + 2, 2},
        {0, START + 1, 1}, {0, START, 0},     {START, START, 0}, {START, START + 1, 1},
    };
    struct world *world = *state;

    claim(world, "old", "A");
    advance(world, 1);
    claim(world, "new", "A");
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(found(world, (struct idem_scan){.updated_since_us = cases[i].since_us,
                                                         .updated_before_us = cases[i].before_us}),
                         cases[i].count);
}

/* How many of the ids of populate() begin as this one does. */
static size_t alike(const struct idem_id *id, unsigned digits)
{
    size_t count = 0;

    for (size_t i = 0; i < RECORDS; i++) {
        struct idem_id other = id_of(key_of(i));
        char left[IDEM_ID_TEXT_SIZE], right[IDEM_ID_TEXT_SIZE];

        idem_id_format(id, left);
        idem_id_format(&other, right);
        count += memcmp(left, right, digits) == 0;
    }
    return count;
}

static void prefix_is_filtered(void **state)
{
    struct world *world = *state;

    populate(world);
    for (unsigned digits = 0; digits <= 2 * IDEM_ID_SIZE; digits += digits < 5 ? 1 : 59) {
        for (size_t i = 0; i < RECORDS; i += 7) {
            struct idem_scan filter = {.prefix = id_of(key_of(i)), .prefix_digits = digits};

            for (unsigned d = digits; d < 2 * IDEM_ID_SIZE; d++) /* what is behind has no say */
                filter.prefix.bytes[d / 2] ^= d % 2 ? 0x0a : 0xa0;
            filter.limit = i % 2 ? 1 : IDEM_SCAN_MAX;
            assert_int_equal(found(world, filter), alike(&filter.prefix, digits));
        }
    }
}

static void prefix_of_nothing_shows_nothing(void **state)
{
    struct world *world = *state;
    struct idem_scan filter = {.prefix = id_of("k0"), .prefix_digits = 2 * IDEM_ID_SIZE};

    populate(world);
    filter.prefix.bytes[IDEM_ID_SIZE - 1] ^= 1;
    assert_int_equal(found(world, filter), 0);
    memset(&filter.prefix, 0xff, sizeof filter.prefix);
    assert_int_equal(found(world, filter), 0);
    filter.prefix_digits = 1;
    assert_int_equal(found(world, filter), alike(&filter.prefix, 1));
}

/* A page holds at most 64 MiB and the record that passes it, on every row. */
static void page_of_large_records_ends_early(void **state)
{
    struct world *world = *state;
    struct walk walk = {.filter.limit = IDEM_SCAN_MAX};
    size_t size = 40u << 20;
    uint8_t *body = calloc(1, size);

    assert_non_null(body);
    for (size_t i = 0; i < 3; i++) {
        struct idem_op *op;

        claim(world, key_of(i), "A");
        op = verdict_make(world, IDEM_OP_COMPLETE, key_of(i), "A");
        op->in.verdict.answer =
            (struct idem_answer){.status = 200, .body = idem_bytes_make(body, size)};
        expect(run(world, op), OK);
        assert_false(op->out.tombstoned);
    }
    free(body);
    walk_run(world, &walk);
    assert_int_equal(walk.distinct, 3);
    assert_true(walk.pages >= 2);
}

/* On a server two stores may live side by side; embedded ones are two anyway. */
static void other_store_is_not_seen(void **state)
{
    struct world *world = *state;
    void *beside = (void *)(uintptr_t)world->row;
    struct world *other;

    populate(world);
    assert_int_equal(world_setup(&beside), 0);
    other = beside;
    assert_int_equal(found(other, (struct idem_scan){.kind = 0}), 0);
    expect(claim(other, "k0", "B"), ACQUIRED);
    expect(claim(other, "of the other alone", "B"), ACQUIRED);
    expect(forget(other, "k1", true), ABSENT);
    assert_int_equal(found(other, (struct idem_scan){.kind = 0}), 2);
    assert_int_equal(found(world, (struct idem_scan){.kind = 0}), RECORDS);
    expect(complete(world, "k0", "A", "A's"), OK);
    expect(complete(other, "k0", "B", "B's"), OK);
    assert_bytes(record_of(world, "k0")->answer.body, text("A's"));
    assert_int_equal(world_teardown(&beside), 0);
}

static const struct rule rules[] = {
    {"a scan is in id order", scan_is_in_id_order, TRAIT_ORDERED},
    {"pages of a scan meet without a gap, filtered or not", pages_meet, 0},
    {"pages in id order are full, and more is exact", more_is_exact, TRAIT_ORDERED},
    {"the cursor of a scan in id order need not be there", cursor_need_not_be_there, TRAIT_ORDERED},
    {"a scan of an empty store shows nothing", empty_store_shows_nothing, 0},
    {"a scan shows what stays while other records come and go", what_stays_is_seen, 0},
    {"a scan of one record a page shows what stays, too", what_stays_is_seen_one_by_one, 0},
    {"a scan filters by state", states_are_filtered, 0},
    {"a scan shows a lapsed lease as unknown", lapsed_shows_as_unknown, TRAIT_CLOCK},
    {"a scan does not show what has expired", expired_is_not_shown, TRAIT_CLOCK},
    {"a scan filters by kind and by scope, the empty one too", kind_and_scope_are_filtered, 0},
    {"a scan filters by the last update, to the microsecond", update_is_filtered, TRAIT_CLOCK},
    {"a scan filters by the first digits of the id", prefix_is_filtered, 0},
    {"a scan for digits that no id has shows nothing", prefix_of_nothing_shows_nothing, 0},
    {"a store beside this one is not seen", other_store_is_not_seen, 0},
    {"a page of large records ends early", page_of_large_records_ends_early, 0},
};

const struct chapter chapter_scan = {"scans", rules, COUNT(rules)};
