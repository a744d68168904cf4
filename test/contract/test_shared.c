/* Threads and processes on one store: one winner for each id, whose answer everybody is given. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "crew.h"

#define THREADS   16
#define PROCESSES 4
#define KEYS      120
#define BATCH     12
#define ROUNDS    20 /* on one id */
#define MEETING_S 60 /* one that the others wait for has died */

/* What is known of each key, by all contestants. */
struct contest {
    unsigned char won[KEYS];    /* how many claims were acquired */
    unsigned char winner[KEYS]; /* who acquired it */
    unsigned failed;            /* results that must not be */
};

static void claim_fill(struct idem_op *op, unsigned key, unsigned number)
{
    char name[32];

    memset(op, 0, sizeof *op);
    op->kind = IDEM_OP_CLAIM;
    snprintf(name, sizeof name, "contested %u", key);
    op->id = id_of(name);
    snprintf(name, sizeof name, "c%u.%u", number, key);
    op->in.claim.kind = IDEM_KIND_HTTP;
    op->in.claim.owner = owner_of(name);
    op->in.claim.lease_us = 5 * MINUTE;
    op->in.claim.ttl_us = TTL;
    op->in.claim.unknown_ttl_us = UNKNOWN_TTL;
}

/* Each contestant's answer is its own: 200 and its number. */
static void complete_fill(struct idem_op *op, const struct idem_op *claim, unsigned number)
{
    memset(op, 0, sizeof *op);
    op->kind = IDEM_OP_COMPLETE;
    op->id = claim->id;
    op->in.verdict.owner = claim->in.claim.owner;
    op->in.verdict.answer.status = (uint16_t)(200 + number);
    op->in.verdict.ttl_us = TTL;
}

static void failed(struct contest *contest)
{
    __atomic_fetch_add(&contest->failed, 1, __ATOMIC_SEQ_CST);
}

/* A claim's result; true when it was won, and is to be completed. */
static bool claim_judge(struct contest *contest, const struct idem_op *op, unsigned key,
                        unsigned number)
{
    if (op->result == IDEM_RESULT_ACQUIRED) {
        __atomic_fetch_add(&contest->won[key], 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&contest->winner[key], (unsigned char)number, __ATOMIC_SEQ_CST);
        return true;
    }
    if (op->result == IDEM_RESULT_COMPLETED) {
        unsigned winner = __atomic_load_n(&contest->winner[key], __ATOMIC_SEQ_CST);

        if (op->out.found.record.answer.status != 200 + winner)
            failed(contest);
    } else if (op->result != IDEM_RESULT_IN_PROGRESS) {
        failed(contest);
    }
    return false;
}

static void contest_judge(struct world *world, const struct contest *contest, unsigned keys)
{
    assert_int_equal(contest->failed, 0);
    for (unsigned key = 0; key < keys; key++) {
        char name[32];

        assert_int_equal(contest->won[key], 1);
        snprintf(name, sizeof name, "contested %u", key);
        assert_int_equal(record_of(world, name)->state, IDEM_STATE_COMPLETED);
        assert_int_equal(record_of(world, name)->answer.status, 200 + contest->winner[key]);
        assert_int_equal(record_of(world, name)->attempt, 1);
    }
}

/* Claims each key by itself, in the same order as everybody, and completes what it wins. */
static void single_work(struct member *member, void *context)
{
    struct contest *contest = context;
    struct idem_op claim, complete;

    for (unsigned key = 0; key < KEYS; key++) {
        claim_fill(&claim, key, member->number);
        member_apply(member, &claim, 1);
        if (claim_judge(contest, &claim, key, member->number)) {
            complete_fill(&complete, &claim, member->number);
            member_apply(member, &complete, 1);
            if (complete.result != IDEM_RESULT_OK)
                failed(contest);
        }
        idem_op_deinit(&claim);
    }
}

/* The keys in an order of this contestant's own, so that batches hold the same ids crosswise. */
static unsigned key_shuffled(unsigned position, unsigned number)
{
    static const unsigned steps[] = {1, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 119};

    return (position * steps[number % COUNT(steps)] + 5 * number) % KEYS;
}

static void batch_work(struct member *member, void *context)
{
    struct contest *contest = context;

    for (unsigned first = 0; first < KEYS; first += BATCH) {
        struct idem_op claims[BATCH], completes[BATCH];
        size_t won = 0;

        for (unsigned i = 0; i < BATCH; i++)
            claim_fill(&claims[i], key_shuffled(first + i, member->number), member->number);
        member_apply(member, claims, BATCH);
        for (unsigned i = 0; i < BATCH; i++) {
            unsigned key = key_shuffled(first + i, member->number);

            if (claim_judge(contest, &claims[i], key, member->number))
                complete_fill(&completes[won++], &claims[i], member->number);
            idem_op_deinit(&claims[i]);
        }
        if (won > 0)
            member_apply(member, completes, won);
        for (size_t i = 0; i < won; i++)
            if (completes[i].result != IDEM_RESULT_OK)
                failed(contest);
    }
}

static void threads_contest(struct world *world, void (*work)(struct member *member, void *context))
{
    struct contest contest = {.failed = 0};
    struct crew crew;

    crew_open(&crew, world, THREADS);
    crew_run(&crew, work, &contest);
    crew_close(&crew);
    contest_judge(world, &contest, KEYS);
}

static void threads_find_one_winner(void **state)
{
    threads_contest(*state, single_work);
}

static void batches_find_one_winner(void **state)
{
    threads_contest(*state, batch_work);
}

static void one_id_has_one_winner(void **state)
{
    struct world *world = *state;
    struct contest contest = {.failed = 0};
    struct crew crew;

    crew_open(&crew, world, THREADS);
    for (unsigned key = 0; key < ROUNDS; key++) {
        struct idem_op claims[THREADS];
        uint64_t fence = 0;

        for (unsigned i = 0; i < THREADS; i++)
            claim_fill(&claims[i], key, i);
        crew_race(&crew, claims, NULL, THREADS);
        for (unsigned i = 0; i < THREADS; i++)
            if (claim_judge(&contest, &claims[i], key, i))
                fence = claims[i].out.fence;
        assert_int_equal(contest.won[key], 1);
        for (unsigned i = 0; i < THREADS; i++)
            assert_int_equal(claims[i].out.fence, fence); /* the others were told the winner's */
    }
    assert_int_equal(contest.failed, 0);
    crew_close(&crew);
}

/* Peeks from a second thread until every key is completed. */
struct peeker {
    struct idem_store *store;
    struct contest *contest;
};

static bool peek_once(struct peeker *peeker, unsigned key)
{
    struct idem_op op;
    bool completed;

    claim_fill(&op, key, 0);
    op.kind = IDEM_OP_GET;
    memset(&op.in, 0, sizeof op.in);
    op.in.get.match = true;
    if (idem_store_peek(peeker->store, &op))
        failed(peeker->contest);
    completed = op.result == IDEM_RESULT_FOUND && op.out.found.record.state == IDEM_STATE_COMPLETED;
    if (completed && op.out.found.record.answer.status != 200)
        failed(peeker->contest);
    idem_op_deinit(&op);
    return completed;
}

static void *peeker_run(void *argument)
{
    struct peeker *peeker = argument;

    for (unsigned key = 0; key < KEYS; key++)
        while (!peek_once(peeker, key) &&
               __atomic_load_n(&peeker->contest->failed, __ATOMIC_SEQ_CST) == 0) {
        }
    return NULL;
}

static void peeks_run_beside_applies(void **state)
{
    struct world *world = *state;
    struct contest contest = {.failed = 0};
    struct crew crew = {.world = world};
    struct member writer = {.crew = &crew, .store = world->store};
    struct peeker peeker = {world->store, &contest};
    pthread_t thread;

    if (!peek(world, op_make(world, IDEM_OP_GET, "k")))
        return; /* this store has no such path */
    assert_int_equal(pthread_create(&thread, NULL, peeker_run, &peeker), 0);
    single_work(&writer, &contest);
    pthread_join(thread, NULL);
    assert_int_equal(writer.error, 0);
    contest_judge(world, &contest, KEYS);
}

/* A process contests as a crew of one. */
static int process_contest(struct idem_store *store, unsigned number, void *context)
{
    struct crew crew = {.count = 1};
    struct member member = {.crew = &crew, .number = number, .store = store};

    (number % 2 ? batch_work : single_work)(&member, context);
    if (member.error)
        print_error("process %u: %s\n", number, member.message.text);
    return member.error != 0;
}

static void processes_find_one_winner(void **state)
{
    struct world *world = *state;
    struct contest *contest = processes_calloc(sizeof *contest);

    processes_run(world, PROCESSES, process_contest, contest);
    contest_judge(world, contest, KEYS);
    processes_free(contest, sizeof *contest);
}

/* All processes claim one id after the other, at the same moment as near as they can. */
struct meeting {
    struct contest contest;
    unsigned arrived[ROUNDS];
};

static bool all_arrive(unsigned *arrived)
{
    time_t begun = time(NULL);

    __atomic_fetch_add(arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) < PROCESSES) {
        if (time(NULL) - begun > MEETING_S)
            return false;
        sched_yield();
    }
    return true;
}

static int process_meet(struct idem_store *store, unsigned number, void *context)
{
    struct meeting *meeting = context;

    for (unsigned key = 0; key < ROUNDS; key++) {
        struct idem_op claim, *list = &claim;

        claim_fill(&claim, key, number);
        if (!all_arrive(&meeting->arrived[key]) || idem_store_apply(store, &list, 1, NULL))
            return 1;
        claim_judge(&meeting->contest, &claim, key, number);
        idem_op_deinit(&claim);
    }
    return 0;
}

static void processes_meet_on_one_id(void **state)
{
    struct world *world = *state;
    struct meeting *meeting = processes_calloc(sizeof *meeting);

    processes_run(world, PROCESSES, process_meet, meeting);
    assert_int_equal(meeting->contest.failed, 0);
    for (unsigned key = 0; key < ROUNDS; key++)
        assert_int_equal(meeting->contest.won[key], 1);
    processes_free(meeting, sizeof *meeting);
}

static const struct rule rules[] = {
    {"threads find one winner for each of many ids", threads_find_one_winner, 0},
    {"threads whose batches cross find one winner for each id", batches_find_one_winner, 0},
    {"threads that claim one id at once find one winner, and all are told its fence",
     one_id_has_one_winner, 0},
    {"peeks run beside applies and see whole records", peeks_run_beside_applies, 0},
    {"processes find one winner for each of many ids", processes_find_one_winner, TRAIT_SHARED},
    {"processes that claim one id at once find one winner", processes_meet_on_one_id, TRAIT_SHARED},
};

const struct chapter chapter_shared = {"sharing", rules, COUNT(rules)};
