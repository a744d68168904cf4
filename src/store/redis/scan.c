/*
 * Looking through the records: SCAN over one node after the other, with the records of each step
 * fetched in one pipeline. The cursor of a page, 32 bytes, is
 *
 *   u8 version, u16 number of the node, u64 Redis's cursor there, u32 hash of the slot map, u32
 *   hash of the node's run id, u16 count of the step there, u64 hash of its keys that are through,
 *   zeroes
 *
 * because Redis's cursor means something to that very process only, and a map that has changed
 * would skip what has moved. Then the scan must begin again, and says so.
 *
 * Redis's cursor cannot go on in the middle of what a step gives, so a page that is full there
 * takes the same step once more, its keys in their order, and leaves out those that are through. As
 * long as nothing in the step changes they are the first ones, and their hash is found. When it is
 * not found, the step is taken from its beginning, bucket by bucket so that it ends in any case: a
 * record may be shown twice then, and none is missed.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cursor.h"
#include "core/record_codec.h"
#include "store/keep.h"
#include "store/redis/redis_store.h"

#define VERSION    2
#define COUNT_MAX  512 /* keys that a step asks for */
#define STEPS_MAX  64  /* of one page, even when none has a match: other ops wait meanwhile */
#define DIGITS_MAX (2 * IDEM_ID_SIZE)

struct scan {
    struct idem_backend *store;
    struct idem_op *op;
    int64_t deadline_us;
    struct idem_redis_trouble *trouble;
    struct idem_page page;
    size_t node;     /* where it is */
    uint64_t cursor; /* Redis's; 0 at the beginning of a node */
    unsigned count;  /* of the next step */
    uint64_t done;   /* hash of its keys that are through; 0 when it begins with the first */
    bool ended;      /* all nodes are through */
    bool page_ended; /* no more in this page */
    char pattern[IDEM_REDIS_KEY_MAX + 2];
};

static uint64_t text_hash(const char *text)
{
    return idem_record_checksum(idem_bytes_from_text(text));
}

static int begin_again(struct scan *scan)
{
    return idem_redis_trouble_set(scan->trouble, IDEM_ERR_UNAVAILABLE, false,
                                  "the servers of this store have changed since the scan began, so "
                                  "that it cannot go on: begin it again");
}

static int node_connect(struct scan *scan)
{
    return idem_redis_route_connect(scan->store, scan->store->nodes[scan->node], scan->deadline_us,
                                    scan->trouble);
}

static int cursor_read(struct scan *scan, const struct idem_id *id)
{
    struct idem_reader reader;
    uint32_t map, run;
    unsigned count;
    int error;

    idem_reader_init(&reader, idem_bytes_make(id->bytes, IDEM_ID_SIZE));
    if (idem_read_u8(&reader) != VERSION)
        return idem_redis_trouble_set(scan->trouble, IDEM_ERR_INVALID, false,
                                      "that is no place where a scan of a Redis store ended: give "
                                      "the one that the page before has told, from this store");
    scan->node = idem_read_u16(&reader);
    scan->cursor = idem_read_u64(&reader);
    map = idem_read_u32(&reader);
    run = idem_read_u32(&reader);
    count = idem_read_u16(&reader);
    scan->done = idem_read_u64(&reader);
    if (count > 0 && count <= COUNT_MAX)
        scan->count = count;
    if (map != (uint32_t)scan->store->map_hash || scan->node >= scan->store->node_count)
        return begin_again(scan);
    error = node_connect(scan);
    if (!error && scan->cursor != 0 &&
        run != (uint32_t)text_hash(scan->store->nodes[scan->node]->settings.run_id))
        error = begin_again(scan);
    return error;
}

static struct idem_id cursor_write(const struct scan *scan)
{
    struct idem_writer writer;
    struct idem_id id = {{0}};
    const struct idem_redis_node *node = scan->store->nodes[scan->node];

    idem_writer_init(&writer, id.bytes, sizeof id.bytes);
    idem_write_u8(&writer, VERSION);
    idem_write_u16(&writer, (uint16_t)scan->node);
    idem_write_u64(&writer, scan->cursor);
    idem_write_u32(&writer, (uint32_t)scan->store->map_hash);
    idem_write_u32(&writer, scan->cursor ? (uint32_t)text_hash(node->settings.run_id) : 0);
    idem_write_u16(&writer, scan->done ? (uint16_t)scan->count : 0);
    idem_write_u64(&writer, scan->done);
    return id;
}

/* "idem:4f2*". A prefix of ours has nothing that means something to a pattern. */
static void pattern_make(struct scan *scan)
{
    const struct idem_scan *in = &scan->op->in.scan;
    const char *prefix = scan->store->options.prefix;
    char digits[IDEM_ID_TEXT_SIZE];

    idem_id_format(&in->prefix, digits);
    digits[in->prefix_digits < DIGITS_MAX ? in->prefix_digits : DIGITS_MAX] = '\0';
    snprintf(scan->pattern, sizeof scan->pattern, "%s%s*", prefix, digits);
}

/* The id in a key of ours; false for other keys under the prefix. */
static bool key_read(const struct scan *scan, const redisReply *key, struct idem_id *ret_id)
{
    size_t prefix = strlen(scan->store->options.prefix);

    return key->type == REDIS_REPLY_STRING && key->len == prefix + DIGITS_MAX &&
           idem_id_parse(idem_bytes_make(key->str + prefix, DIGITS_MAX), ret_id) == IDEM_OK;
}

static int key_compare(const void *a, const void *b)
{
    const redisReply *left = *(redisReply *const *)a, *right = *(redisReply *const *)b;
    size_t size = left->len < right->len ? left->len : right->len;
    int order = size > 0 ? memcmp(left->str, right->str, size) : 0;

    return order ? order : (left->len > right->len) - (left->len < right->len);
}

/* The hash of the keys up to this one, from that of those before it, which is 0 for none. */
static uint64_t key_hash(uint64_t before, const redisReply *key)
{
    uint64_t hash = idem_record_checksum(idem_bytes_make(key->str, key->len));

    return (before ^ hash) * UINT64_C(0x9e3779b97f4a7c15); /* odd, so that no bit gets lost */
}

/* Sends `SCAN cursor MATCH pattern COUNT n`. *ret_reply is what it found, the keys in order. */
static int step_ask(struct scan *scan, redisReply **ret_reply)
{
    char cursor[24], count[16];
    const char *const words[] = {"SCAN", cursor, "MATCH", scan->pattern, "COUNT", count, NULL};
    struct idem_redis_link *link = &scan->store->nodes[scan->node]->link;
    redisReply *reply = NULL;
    int error;

    snprintf(cursor, sizeof cursor, "%llu", (unsigned long long)scan->cursor);
    snprintf(count, sizeof count, "%u", scan->count);
    error = idem_redis_link_ask(link, words, scan->deadline_us, &reply, scan->trouble);
    if (error)
        return error;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        reply->element[0]->type == REDIS_REPLY_STRING &&
        reply->element[1]->type == REDIS_REPLY_ARRAY) {
        if (reply->element[1]->elements > 1) /* of none there is no array */
            qsort(reply->element[1]->element, reply->element[1]->elements, sizeof(redisReply *),
                  key_compare);
        *ret_reply = reply;
        return IDEM_OK;
    }
    error = idem_redis_reply_trouble(reply, link->place, scan->trouble);
    freeReplyObject(reply);
    return error;
}

/* How many of the step's keys are through; false when that cannot be told any more. */
static bool step_resume(const struct scan *scan, const redisReply *keys, size_t *ret_first)
{
    uint64_t hash = 0;
    size_t first = 0;

    while (hash != scan->done && first < keys->elements)
        hash = key_hash(hash, keys->element[first++]);
    *ret_first = first;
    return hash == scan->done;
}

/* Sends `verb key` for each key from `first` on that is of a record. */
static int keys_send(struct scan *scan, const redisReply *keys, size_t first, const char *verb)
{
    struct idem_redis_request request = {0};
    struct idem_id id;
    int error;

    for (size_t i = first; i < keys->elements; i++) {
        const char *const words[] = {verb, keys->element[i]->str, NULL};

        if (key_read(scan, keys->element[i], &id))
            idem_redis_request_texts(&request, words);
    }
    error = idem_redis_link_send(&scan->store->nodes[scan->node]->link, &request, scan->deadline_us,
                                 scan->trouble);
    idem_redis_request_deinit(&request);
    return error;
}

static int reply_receive(struct scan *scan, redisReply **ret_reply)
{
    return idem_redis_link_receive(&scan->store->nodes[scan->node]->link, scan->deadline_us,
                                   ret_reply, scan->trouble);
}

/* How many bytes the records of these keys are. */
static int step_measure(struct scan *scan, const redisReply *keys, size_t first, size_t *ret_bytes)
{
    struct idem_id id;
    int error = keys_send(scan, keys, first, "STRLEN");

    *ret_bytes = 0;
    for (size_t i = first; !error && i < keys->elements; i++) {
        redisReply *reply = NULL;

        if (!key_read(scan, keys->element[i], &id))
            continue;
        error = reply_receive(scan, &reply);
        if (error)
            break;
        if (reply->type == REDIS_REPLY_INTEGER)
            *ret_bytes += (size_t)reply->integer;
        freeReplyObject(reply);
    }
    return error;
}

static int record_visit(struct scan *scan, const struct idem_id *id, const redisReply *reply)
{
    struct idem_bytes blob = idem_bytes_make(reply->str, reply->len);
    struct idem_record record;
    bool gone = false;

    if (reply->type == REDIS_REPLY_NIL)
        return IDEM_OK; /* it went between two commands */
    if (reply->type != REDIS_REPLY_STRING && !idem_redis_reply_is_error(reply, "WRONGTYPE"))
        return idem_redis_reply_trouble(reply, scan->store->nodes[scan->node]->link.place,
                                        scan->trouble);
    if (reply->type != REDIS_REPLY_STRING || idem_redis_record_decode(id, blob, &record, &gone))
        return idem_scan_damage(scan->op, id) ? idem_redis_trouble_memory(scan->trouble) : IDEM_OK;
    if (gone || !idem_scan_matches(&scan->op->in.scan, &record, scan->op->out.now_us))
        return IDEM_OK;
    if (idem_page_add(&scan->page, &record, blob, scan->op->out.now_us))
        return idem_redis_trouble_memory(scan->trouble);
    return IDEM_OK;
}

/*
 * Visits the records of the keys from *first on until the page is full; *first is then the first
 * that is left. All replies are read, whatever comes of one, so that none is left in the
 * connection.
 */
static int step_fetch(struct scan *scan, const redisReply *keys, size_t *first)
{
    struct idem_id id;
    int error = keys_send(scan, keys, *first, "GET"), failed = IDEM_OK;
    bool full = false;

    for (size_t i = *first; !error && i < keys->elements; i++) {
        redisReply *reply = NULL;

        full = full || idem_page_is_full(&scan->page, scan->op->in.scan.limit);
        *first += !full;
        if (!key_read(scan, keys->element[i], &id))
            continue;
        error = reply_receive(scan, &reply);
        if (!error && !failed && !full)
            failed = record_visit(scan, &id, reply);
        freeReplyObject(reply);
    }
    return error ? error : failed;
}

/* Goes on behind a step; behind the last one of a node, to the next. */
static void step_take(struct scan *scan, const redisReply *reply)
{
    scan->cursor = strtoull(reply->element[0]->str, NULL, 10);
    scan->done = 0;
    if (scan->cursor == 0)
        scan->node++;
    scan->ended = scan->node == scan->store->node_count;
}

/*
 * Keys to look at next: as many as are likely to hold those that are missing, by how many of the
 * keys of the step before had a record to show, so that few are looked at in vain.
 */
static void step_choose(struct scan *scan, size_t shown)
{
    size_t limit = scan->op->in.scan.limit;
    size_t missing = scan->page.count < limit ? limit - scan->page.count : 0;
    size_t count = shown > 0 ? scan->count * missing / shown : 2 * scan->count;

    if (count > COUNT_MAX)
        count = COUNT_MAX;
    scan->count = count > 0 ? (unsigned)count : 1;
}

/* Takes the keys from `first` on into the page; it goes on behind them, in the step or after it. */
static int step_show(struct scan *scan, const redisReply *reply, size_t first)
{
    const redisReply *keys = reply->element[1];
    size_t before = scan->page.count;
    int error = step_fetch(scan, keys, &first);

    if (error)
        return error;
    if (first == keys->elements) {
        step_take(scan, reply);
        step_choose(scan, scan->page.count - before);
        return IDEM_OK;
    }
    scan->page_ended = true;
    scan->done = 0;
    for (size_t i = 0; i < first; i++)
        scan->done = key_hash(scan->done, keys->element[i]);
    return IDEM_OK;
}

/*
 * One step. When its records are too many bytes for this page, the page ends before it; when it is
 * the first, or is not what the page before saw of it, it is taken again bucket by bucket.
 */
static int step_run(struct scan *scan)
{
    redisReply *reply = NULL;
    size_t bytes, first;
    int error = node_connect(scan);

    if (!error)
        error = step_ask(scan, &reply);
    if (error)
        return error;
    if (!step_resume(scan, reply->element[1], &first)) {
        scan->done = 0;
        scan->count = 1;
        freeReplyObject(reply);
        return IDEM_OK;
    }
    error = step_measure(scan, reply->element[1], first, &bytes);
    if (!error && scan->page.bytes + bytes > IDEM_PAGE_BYTES_MAX &&
        (scan->page.count > 0 || scan->count > 1)) {
        scan->page_ended = scan->page.count > 0;
        scan->done = 0;
        scan->count = 1;
    } else if (!error) {
        error = step_show(scan, reply, first);
    }
    freeReplyObject(reply);
    return error;
}

/* The clock by which records have expired. */
static int clock_read(struct scan *scan)
{
    static const char *const words[] = {"TIME", NULL};
    struct idem_redis_link *link = &scan->store->nodes[scan->node]->link;
    redisReply *reply = NULL;
    int error = idem_redis_link_ask(link, words, scan->deadline_us, &reply, scan->trouble);

    if (error)
        return error;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        scan->op->out.now_us = (int64_t)strtoll(reply->element[0]->str, NULL, 10) * IDEM_SECOND_US +
                               strtoll(reply->element[1]->str, NULL, 10);
    else
        error = idem_redis_reply_trouble(reply, link->place, scan->trouble);
    freeReplyObject(reply);
    return error;
}

static int scan_begin(struct scan *scan)
{
    const struct idem_scan *in = &scan->op->in.scan;
    int error = idem_redis_route_prepare(scan->store, scan->deadline_us, scan->trouble);

    if (!error && in->has_cursor)
        error = cursor_read(scan, &in->cursor);
    if (!error)
        error = node_connect(scan);
    if (!error)
        error = clock_read(scan);
    pattern_make(scan);
    return error;
}

int idem_redis_scan(struct idem_backend *store, struct idem_op *op, int64_t deadline_us,
                    struct idem_redis_trouble *trouble)
{
    struct scan scan = {.store = store,
                        .op = op,
                        .deadline_us = deadline_us,
                        .trouble = trouble,
                        .count = op->in.scan.limit < COUNT_MAX ? op->in.scan.limit : COUNT_MAX};
    int error = scan_begin(&scan);

    for (unsigned steps = 0; !error && !scan.ended && !scan.page_ended && steps < STEPS_MAX &&
                             !idem_page_is_full(&scan.page, op->in.scan.limit);
         steps++) {
        error = step_run(&scan);
    }
    if (error) {
        idem_page_free(&scan.page);
        return error;
    }
    op->out.more = !scan.ended;
    if (op->out.more)
        op->out.next = cursor_write(&scan);
    op->out.page = scan.page.records;
    op->out.count = scan.page.count;
    op->result = IDEM_RESULT_OK;
    return IDEM_OK;
}
