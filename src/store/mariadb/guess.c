/*
 * The usual ops in one round trip.
 *
 * What a claim usually finds is nothing, and what a verdict or a renewal finds is its own claim. So
 * the rules (idem_transition) are asked what the op does to that, at the instant 0; what they say
 * is written relative to the server's clock, and only where the server finds what was supposed:
 *
 *   SELECT the clock, the next fence INTO @n,@f
 *   START TRANSACTION
 *   INSERT IGNORE …             claims: does nothing where a row is
 *   UPDATE … WHERE …            verdicts, renewals: one each, does nothing where the row is another
 *   SELECT @n,@f,the guard
 *   COMMIT
 *
 * What the server counts says where the guess was right. If one of several claims was wrong it does
 * not say which: all are looked at then, and each finds its own row as "the same claim again".
 *
 * The guard is for a fence. A row that another connection removes while this one waits to insert it
 * may have had a fence above @f, if the clock was stepped back; its removal raises the mark in the
 * same transaction. So the mark is read again after the insert, and when it has reached @f a
 * subquery of two rows ends the batch before COMMIT: it rolls back, and goes the long way. So it
 * does when @n is old by then: a lease is given from when it was got, and not from when the wait
 * began; nor is one renewed that ended during the wait.
 */
#include <assert.h>

#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

/* Above this an instant that is written relative to the clock might overflow in the server. */
#define RELATIVE_MAX (INT64_MAX / 2)

/* One multi-statement in the making, and what came of it. */
struct guess {
    struct idem_mariadb_batch *batch;
    struct idem_mariadb_item *claims[IDEM_BATCH_MAX], *others[IDEM_BATCH_MAX];
    unsigned claim_count, other_count;
    unsigned first; /* the number of the first statement that writes */
    uint64_t inserted;
    bool matched[IDEM_BATCH_MAX]; /* by the number among the others */
    int64_t now_us;
    uint64_t fence;
};

/* What a verdict or renewal is supposed to find: its owner's claim, running. */
static struct idem_record supposed(const struct idem_op *op, int64_t now_us)
{
    struct idem_record record = {
        .id = op->id,
        .kind = IDEM_KIND_HTTP,
        .state = IDEM_STATE_PROCESSING,
        .owner = op->kind == IDEM_OP_RENEW ? op->in.renew.owner : op->in.verdict.owner,
        .fence = 1,
        .attempt = 1,
        .lease_us = 1,
        .lease_until_us = now_us + 1,
        .expires_us = IDEM_NEVER_US,
    };

    return record;
}

/* Asks the rules, as if all was as supposed. */
static void suppose(const struct idem_mariadb_batch *batch, struct idem_op *op, int64_t now_us,
                    uint64_t fence_floor, struct idem_transition *ret_transition)
{
    struct idem_record record;

    if (op->kind == IDEM_OP_CLAIM) {
        idem_transition(op, now_us, NULL, fence_floor, true, ret_transition);
    } else {
        record = supposed(op, now_us);
        idem_transition(op, now_us, &record, fence_floor, true, ret_transition);
    }
    assert(ret_transition->change == IDEM_CHANGE_PUT);
    if (!idem_mariadb_answer_fits(batch, &ret_transition->record))
        idem_answer_drop(op, &ret_transition->record);
}

static bool is_near(int64_t length_us)
{
    return length_us == IDEM_NEVER_US || length_us <= RELATIVE_MAX;
}

/* False for what cannot be written on a condition this simple. */
static bool can_guess(const struct idem_mariadb_batch *batch, const struct idem_mariadb_item *item)
{
    const struct idem_op *op = item->op;

    if (item->done || item->repeated)
        return false;
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        return idem_mariadb_room_for(batch, op) && is_near(op->in.claim.unknown_ttl_us) &&
               is_near(op->in.claim.ttl_us);
    case IDEM_OP_RENEW:
        return op->in.renew.lease_us > 1 && is_near(op->in.renew.unknown_ttl_us);
    case IDEM_OP_COMPLETE:
    case IDEM_OP_FAIL:
        return is_near(op->in.verdict.ttl_us);
    case IDEM_OP_ABANDON:
        return true;
    default:
        return false;
    }
}

static void items_part(struct guess *guess)
{
    struct idem_mariadb_batch *batch = guess->batch;

    for (size_t i = 0; i < batch->count; i++) {
        struct idem_mariadb_item *item = &batch->items[i];

        if (!can_guess(batch, item))
            continue;
        if (item->op->kind == IDEM_OP_CLAIM)
            guess->claims[guess->claim_count++] = item;
        else
            guess->others[guess->other_count++] = item;
    }
}

/* Not SET with a subquery: that locks the row that it reads, and would wait for a sweep. */
static void clock_text(const struct guess *guess, struct idem_mariadb_text *text)
{
    const struct idem_backend *store = guess->batch->store;

    idem_mariadb_text_add(text, guess->claim_count > 0 ? "SELECT " : "SET @n=");
    idem_mariadb_text_now(text, store);
    if (guess->claim_count == 0)
        return;
    idem_mariadb_text_add(text, ",GREATEST(");
    idem_mariadb_text_now(text, store);
    idem_mariadb_text_add(text, ",LEAST(fence_floor,18446744073709551614)+1)INTO @n,@f");
    idem_mariadb_text_meta(text, store);
}

static void claims_text(struct guess *guess, struct idem_mariadb_text *text)
{
    idem_mariadb_text_add(text, ";INSERT IGNORE INTO " IDEM_MARIADB_KEYS);
    idem_mariadb_row_names(text);
    idem_mariadb_text_add(text, "VALUES");
    for (unsigned i = 0; i < guess->claim_count; i++) {
        struct idem_op *op = guess->claims[i]->op;
        struct idem_transition transition;

        suppose(guess->batch, op, 0, 0, &transition);
        if (i > 0)
            idem_mariadb_text_add(text, ",");
        idem_mariadb_row_values(text, &transition.record,
                                idem_mariadb_sweep_hint(op, &transition.record), true);
    }
}

/* When the rules would say what they say of the record that was supposed. */
static void condition_text(const struct idem_op *op, struct idem_mariadb_text *text)
{
    if (op->kind == IDEM_OP_COMPLETE || op->kind == IDEM_OP_FAIL) {
        idem_mariadb_text_add(text, " AND state IN(");
        idem_mariadb_text_unsigned(text, IDEM_STATE_PROCESSING);
        idem_mariadb_text_add(text, ",");
        idem_mariadb_text_unsigned(text, IDEM_STATE_UNKNOWN);
        idem_mariadb_text_add(text, ")");
        return;
    }
    idem_mariadb_text_add(text, " AND state=");
    idem_mariadb_text_unsigned(text, IDEM_STATE_PROCESSING);
    if (op->kind != IDEM_OP_RENEW)
        return;
    /* It runs, by a lease that this clock may have given, and that ends earlier than the new one.
     */
    idem_mariadb_text_add(text, " AND lease_until_us>@n AND lease_until_us-@n<=lease_us AND "
                                "lease_until_us<@n+");
    idem_mariadb_text_signed(text, op->in.renew.lease_us);
}

static void other_text(struct guess *guess, struct idem_op *op, struct idem_mariadb_text *text)
{
    struct idem_transition transition;
    const struct idem_record *record = &transition.record;

    suppose(guess->batch, op, 0, 0, &transition);
    idem_mariadb_text_add(text, ";");
    idem_mariadb_row_update(text, record, idem_mariadb_columns_of(op->kind), 0, true);
    idem_mariadb_text_add(text, " WHERE id=");
    idem_mariadb_text_id(text, &op->id);
    idem_mariadb_text_add(text, " AND owner=");
    idem_mariadb_text_bytes(text, idem_bytes_make(record->owner.bytes, IDEM_OWNER_SIZE));
    idem_mariadb_text_add(text, " AND expires_us>@n");
    condition_text(op, text);
}

static void guard_text(const struct guess *guess, struct idem_mariadb_text *text)
{
    const struct idem_backend *store = guess->batch->store;

    idem_mariadb_text_add(text, guess->claim_count > 0 ? ",@f,IF(" : ",NULL,IF(");
    if (guess->claim_count > 0) {
        idem_mariadb_text_add(text, "(SELECT fence_floor");
        idem_mariadb_text_meta(text, store);
        idem_mariadb_text_add(text, ")<@f AND ");
    }
    idem_mariadb_text_now(text, store);
    idem_mariadb_text_add(text, "<@n+");
    idem_mariadb_text_signed(text, IDEM_MARIADB_FRESH_US);
    idem_mariadb_text_add(text, IDEM_MARIADB_OR_AGAIN);
}

/* A single verdict is a transaction by itself, and may be as late as it likes. */
static bool needs_transaction(const struct guess *guess)
{
    return guess->claim_count > 0 || guess->other_count > 1 ||
           guess->others[0]->op->kind == IDEM_OP_RENEW;
}

static void guess_text(struct guess *guess, struct idem_mariadb_text *text)
{
    bool transaction = needs_transaction(guess);

    idem_mariadb_text_clear(text);
    clock_text(guess, text);
    if (transaction)
        idem_mariadb_text_add(text, ";START TRANSACTION");
    guess->first = transaction ? 2 : 1;
    if (guess->claim_count > 0)
        claims_text(guess, text);
    for (unsigned i = 0; i < guess->other_count; i++)
        other_text(guess, guess->others[i]->op, text);
    idem_mariadb_text_add(text, ";SELECT @n");
    if (transaction) {
        guard_text(guess, text);
        idem_mariadb_text_add(text, ";COMMIT");
    }
}

static int told_take(struct guess *guess, MYSQL_RES *result)
{
    MYSQL_ROW row = mysql_fetch_row(result);

    if (!row || !idem_mariadb_instant_read(row[0], &guess->now_us))
        return IDEM_ERR_CORRUPT;
    if (guess->claim_count > 0 && !idem_mariadb_number(row[1], &guess->fence))
        return IDEM_ERR_CORRUPT;
    return IDEM_OK;
}

static int guess_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct guess *guess = context;
    unsigned first_other = guess->first + (guess->claim_count > 0);

    if (*result)
        return told_take(guess, *result);
    if (statement == guess->first && guess->claim_count > 0)
        guess->inserted = affected;
    else if (statement >= first_other && statement < first_other + guess->other_count)
        guess->matched[statement - first_other] = affected == 1;
    return IDEM_OK;
}

/* Tells the op what has come about: the rules again, with what is known by now. */
static void item_finish(const struct guess *guess, struct idem_mariadb_item *item)
{
    struct idem_transition transition;

    idem_op_deinit(item->op);
    suppose(guess->batch, item->op, guess->now_us, guess->fence - 1, &transition);
    assert(item->op->kind != IDEM_OP_CLAIM || item->op->out.fence == guess->fence);
    item->done = true;
}

static void guess_finish(struct guess *guess)
{
    for (unsigned i = 0; i < guess->claim_count; i++) {
        if (guess->inserted == guess->claim_count)
            item_finish(guess, guess->claims[i]);
        else
            idem_op_deinit(guess->claims[i]->op);
    }
    for (unsigned i = 0; i < guess->other_count; i++) {
        if (guess->matched[i])
            item_finish(guess, guess->others[i]);
        else
            idem_op_deinit(guess->others[i]->op);
    }
}

int idem_mariadb_guess(struct idem_mariadb_batch *batch)
{
    struct guess guess = {.batch = batch, .fence = 1};
    int error;

    items_part(&guess);
    if (guess.claim_count + guess.other_count == 0)
        return IDEM_OK;
    guess_text(&guess, &batch->store->text);
    error = idem_mariadb_run(batch->store, guess_take, &guess);
    if (error == IDEM_ERR_CORRUPT)
        return idem_mariadb_replaced(batch->store);
    if (!error)
        guess_finish(&guess);
    return error;
}
