/*
 * The usual ops in one round trip.
 *
 * What a claim usually finds is nothing, and what a verdict or a renewal finds is its own claim. So
 * the rules (idem_transition) are asked what the op does to that, at the instant 0; what they say
 * is written relative to the server's clock, and only where the server finds what was supposed. A
 * batch is
 *
 *   SET @n=the clock
 *   START TRANSACTION
 *   INSERT IGNORE …             claims: does nothing where a row is
 *   UPDATE … WHERE …            verdicts, renewals: one each, does nothing where the row is another
 *   SELECT the guard
 *   COMMIT
 *
 * and most of what a lone op takes is what each statement costs, however little it does: the server
 * reads it, sends a packet, and wakes who waits for that. So a lone op goes by its statement's own
 * clock instead of @n; and a lone verdict, which nothing has to guard, is its UPDATE alone, which
 * is prepared (prepared.c). The clock is written as LAST_INSERT_ID(the clock), which the server
 * tells with the statement's count, and which the guard can name.
 *
 * The counts say where the guess was right. If one of several claims was wrong they do not say
 * which: all are looked at then, and each finds its own row as "the same claim again".
 *
 * A claim's fence is the clock. Nothing is read before it is written; what it rests on is guarded
 * by a look at the meta row after the insert, in the same transaction. The guard holds
 *
 *   when the store is still the one that was opened
 *   when no fence as high as this was given to a row that was removed. A row that another
 *     connection removes while this one waits to insert may have had one, if the clock was stepped
 *     back; the removal raises the mark in its own transaction.
 *   when the clock is not old by now: a lease is given from when it was got, and not from when a
 *     wait began; nor is one renewed that ended during the wait.
 *
 * If not, an error ends the batch before COMMIT: it rolls back, and goes the long way.
 *
 * Where INSERT has RETURNING (MariaDB) a lone claim is that alone, prepared too, and its guard what
 * it returns. There the look at the meta row locks it, as every read of an INSERT does, until the
 * commit that follows at once. It is made after the insert, and not before, when the claim may have
 * to wait for others: the key is named by a column of the new row, whose attempt is 1. (If a server
 * made it before all the same, nobody could raise the mark meanwhile: right too, but a claim that
 * waits would hold up removals.)
 */
#include <assert.h>
#include <stdio.h>

#include "store/keep.h"
#include "store/mariadb/mariadb_store.h"

/* Above this an instant that is written relative to the clock might overflow in the server. */
#define RELATIVE_MAX (INT64_MAX / 2)

#define CLOCK_SIZE 96

/* One multi-statement in the making, and what came of it. */
struct guess {
    struct idem_mariadb_batch *batch;
    struct idem_mariadb_item *claims[IDEM_BATCH_MAX], *others[IDEM_BATCH_MAX];
    unsigned claim_count, other_count;
    bool lone;
    char now[CLOCK_SIZE];        /* how the clock is written */
    char first[CLOCK_SIZE + 16]; /* and so that it is told */
    unsigned statements;
    unsigned first_claim, first_other; /* the numbers of their statements */
    struct idem_mariadb_values values; /* of a lone op's statement */
    struct idem_transition transition; /* what they are borrowed from */
    uint64_t fence;                    /* of the claims, if the clock is not above it */
    uint64_t inserted;
    bool matched[IDEM_BATCH_MAX]; /* by the number among the others */
    int64_t now_us;
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
                    struct idem_transition *ret_transition)
{
    uint64_t fence_floor = batch->store->fence_floor;
    struct idem_record record;
    enum idem_reason bar;

    if (op->kind == IDEM_OP_CLAIM) {
        idem_transition(op, now_us, NULL, fence_floor, true, ret_transition);
    } else {
        record = supposed(op, now_us);
        idem_transition(op, now_us, &record, fence_floor, true, ret_transition);
    }
    assert(ret_transition->change == IDEM_CHANGE_PUT);
    bar = idem_mariadb_answer_bar(batch, &ret_transition->record);
    if (bar)
        idem_answer_drop(op, &ret_transition->record, bar);
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

/* A renewal tells the clock so often that it goes by the batch's. */
static bool is_lone(const struct guess *guess)
{
    return guess->claim_count + guess->other_count == 1 &&
           (guess->claim_count == 1 || guess->others[0]->op->kind != IDEM_OP_RENEW);
}

static void clock_choose(struct guess *guess)
{
    const struct idem_clock *clock = guess->batch->store->clock;

    guess->lone = is_lone(guess);
    if (!guess->lone)
        snprintf(guess->now, sizeof guess->now, "@n");
    else if (clock)
        snprintf(guess->now, sizeof guess->now, "%lld", (long long)idem_clock_now_us(clock));
    else
        snprintf(guess->now, sizeof guess->now, "%s", IDEM_MARIADB_NOW);
    snprintf(guess->first, sizeof guess->first, "LAST_INSERT_ID(%s)", guess->now);
}

/* In a row, where columns that were written before can be named. */
static struct idem_mariadb_clock clock_of(const struct guess *guess, const char *column)
{
    return (struct idem_mariadb_clock){guess->first, guess->lone ? column : guess->now};
}

/* Returns the statement's number. */
static unsigned statement_begin(struct guess *guess, struct idem_mariadb_text *text,
                                const char *words)
{
    if (guess->statements > 0)
        idem_mariadb_text_add(text, ";");
    idem_mariadb_text_add(text, words);
    return guess->statements++;
}

static void claims_text(struct guess *guess, struct idem_mariadb_text *text)
{
    struct idem_mariadb_clock clock = clock_of(guess, "created_us");

    guess->first_claim = statement_begin(guess, text, "INSERT IGNORE INTO " IDEM_MARIADB_KEYS);
    idem_mariadb_row_names(text);
    idem_mariadb_text_add(text, "VALUES");
    for (unsigned i = 0; i < guess->claim_count; i++) {
        const struct idem_record *record = &guess->transition.record;
        struct idem_op *op = guess->claims[i]->op;

        suppose(guess->batch, op, 0, &guess->transition);
        guess->fence = record->fence;
        if (i > 0)
            idem_mariadb_text_add(text, ",");
        idem_mariadb_row_values(text, record, idem_mariadb_sweep_hint(op, record), &clock);
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
    struct idem_mariadb_clock clock = clock_of(guess, "updated_us");
    const struct idem_record *record = &guess->transition.record;

    suppose(guess->batch, op, 0, &guess->transition);
    (void)statement_begin(guess, text, "");
    idem_mariadb_row_update(text, record, idem_mariadb_columns_of(op->kind), 0, &clock);
    idem_mariadb_text_add(text, " WHERE id=");
    idem_mariadb_text_id(text, &op->id);
    idem_mariadb_text_add(text, " AND owner=");
    idem_mariadb_text_bytes(text, idem_bytes_make(record->owner.bytes, IDEM_OWNER_SIZE));
    idem_mariadb_text_add(text, " AND expires_us>");
    idem_mariadb_text_add(text, guess->now);
    condition_text(op, text);
}

/* Not with SET or DO: these lock the row that a subquery reads, and would wait for a sweep. */
static void guard_text(struct guess *guess, struct idem_mariadb_text *text)
{
    const struct idem_backend *store = guess->batch->store;
    const char *then = guess->lone ? "LAST_INSERT_ID()" : guess->now;

    (void)statement_begin(guess, text, "SELECT " IDEM_MARIADB_ONLY_IF);
    if (guess->claim_count > 0) {
        idem_mariadb_text_add(text, "(SELECT fence_floor");
        idem_mariadb_text_meta(text, store);
        idem_mariadb_text_add(text, ")<");
        idem_mariadb_text_fence(text, then, guess->fence);
        idem_mariadb_text_add(text, " AND ");
    }
    idem_mariadb_text_now(text, store);
    idem_mariadb_text_add(text, "<");
    idem_mariadb_text_add(text, then);
    idem_mariadb_text_add(text, "+");
    idem_mariadb_text_signed(text, IDEM_MARIADB_FRESH_US);
    idem_mariadb_text_add(text, IDEM_MARIADB_OR_AGAIN "INTO @ok");
}

/* The guard of a lone claim. What was asked when its statement began is not the clock by then. */
static void returning_text(struct guess *guess, struct idem_mariadb_text *text)
{
    const struct idem_backend *store = guess->batch->store;

    guess->values.columns = IDEM_MARIADB_TOLD_COLUMNS;
    idem_mariadb_text_add(text, " RETURNING created_us," IDEM_MARIADB_ONLY_IF
                                "(SELECT fence_floor FROM " IDEM_MARIADB_META
                                " WHERE one=attempt AND salt=");
    idem_mariadb_text_bytes(text, idem_bytes_make(store->salt.bytes, IDEM_SALT_SIZE));
    idem_mariadb_text_add(text, ")<fence AND SYSDATE(6)<NOW(6)+INTERVAL ");
    idem_mariadb_text_signed(text, IDEM_MARIADB_FRESH_US);
    idem_mariadb_text_add(text, " MICROSECOND" IDEM_MARIADB_OR_AGAIN "AS ok");
}

static void writes_text(struct guess *guess, struct idem_mariadb_text *text)
{
    if (guess->claim_count > 0)
        claims_text(guess, text);
    guess->first_other = guess->statements;
    for (unsigned i = 0; i < guess->other_count; i++)
        other_text(guess, guess->others[i]->op, text);
}

static void transaction_text(struct guess *guess, struct idem_mariadb_text *text)
{
    if (!guess->lone) {
        (void)statement_begin(guess, text, "SET @n=");
        idem_mariadb_text_now(text, guess->batch->store);
    }
    (void)statement_begin(guess, text, "START TRANSACTION");
    writes_text(guess, text);
    guard_text(guess, text);
    (void)statement_begin(guess, text, "COMMIT");
}

static void guess_text(struct guess *guess, struct idem_mariadb_text *text)
{
    struct idem_backend *store = guess->batch->store;

    idem_mariadb_text_clear(text);
    clock_choose(guess);
    if (guess->lone && (guess->claim_count == 0 || store->facts.returning)) {
        /* With a clock that is not the server's the text is another one each time. */
        if (!store->clock && !store->link.unprepared)
            text->values = &guess->values;
        writes_text(guess, text);
        if (guess->claim_count > 0) /* a verdict may be as late as it likes */
            returning_text(guess, text);
    } else {
        transaction_text(guess, text);
    }
    text->statements = guess->statements;
}

/* Of a claim that was inserted there is a row. */
static int returned_take(struct guess *guess, MYSQL_RES *result)
{
    MYSQL_ROW row = mysql_fetch_row(result);

    guess->inserted = mysql_num_rows(result);
    return !row || idem_mariadb_instant_read(row[0], &guess->now_us) ? IDEM_OK : IDEM_ERR_CORRUPT;
}

static int guess_take(void *context, unsigned statement, MYSQL_RES **result, uint64_t affected)
{
    struct guess *guess = context;
    uint64_t told = mysql_insert_id(guess->batch->store->link.mysql);

    if (*result)
        return returned_take(guess, *result);
    if (guess->claim_count > 0 && statement == guess->first_claim)
        guess->inserted = affected;
    else if (statement >= guess->first_other && statement < guess->first_other + guess->other_count)
        guess->matched[statement - guess->first_other] = affected == 1;
    else
        return IDEM_OK;
    if (affected == 0)
        return IDEM_OK;
    if (told > INT64_MAX)
        return IDEM_ERR_CORRUPT;
    guess->now_us = (int64_t)told;
    return IDEM_OK;
}

/* Tells the op what has come about: the rules again, with what is known by now. */
static void item_finish(const struct guess *guess, struct idem_mariadb_item *item)
{
    struct idem_transition transition;

    idem_op_deinit(item->op);
    suppose(guess->batch, item->op, guess->now_us, &transition);
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

/* Sends the text, or what is left of it when its values are not in it. */
static int guess_run(struct guess *guess)
{
    struct idem_backend *store = guess->batch->store;
    struct idem_mariadb_told told = {.count = 0};
    int error;

    if (!store->text.values)
        return idem_mariadb_run(store, guess_take, guess);
    error = idem_mariadb_execute(&store->link, &store->text, &told);
    if (error || told.count == 0)
        return error;
    if (guess->claim_count > 0)
        guess->inserted = told.count;
    else
        guess->matched[0] = true;
    guess->now_us = told.number;
    return told.number >= 0 ? IDEM_OK : IDEM_ERR_CORRUPT;
}

int idem_mariadb_guess(struct idem_mariadb_batch *batch)
{
    struct guess guess = {.batch = batch};
    int error;

    items_part(&guess);
    if (guess.claim_count + guess.other_count == 0)
        return IDEM_OK;
    guess_text(&guess, &batch->store->text);
    error = guess_run(&guess);
    if (error == IDEM_ERR_CORRUPT)
        return idem_mariadb_fault(&batch->store->link, error,
                                  "the MariaDB server's clock is before 1970: set it");
    if (!error)
        guess_finish(&guess);
    return error;
}
