#include "sim/sender.h"

#include <assert.h>

#include "sim/gateway.h"
#include "sim/mutant.h"
#include "sim/store_faults.h"

#define CLAIMS_MAX    5 /* that may wait: few, so that some are refused */
#define SETTLE_US_MAX (INT64_C(3600) * IDEM_SECOND_US)

void sender_begin(struct sender *sender)
{
    for (size_t i = 0; i < JOBS_MAX; i++)
        sender->jobs[i].used = false;
    sender->waiting = sender->taken = sender->due = (struct idem_job_queue){0};
    idem_settle_init(&sender->settle);
    sender->busy = sender->closed = false;
    sender->call = 0;
    sender->batch_count = 0;
    sender->wake_us = IDEM_NEVER_US;
}

void sender_drop(struct sender *sender)
{
    uint32_t call = sender->call;

    for (size_t i = 0; i < JOBS_MAX; i++)
        if (sender->jobs[i].used)
            idem_op_deinit(&sender->jobs[i].job.op);
    sender_begin(sender);
    sender->call = call;
}

static struct job *job_new(struct sender *sender, const struct gateway *gateway,
                           const struct session *session, const struct idem_op *op)
{
    struct job *job = sender->jobs;

    while (job < sender->jobs + JOBS_MAX && job->used)
        job++;
    assert(job < sender->jobs + JOBS_MAX);
    *job = (struct job){.used = true, .request = NOBODY};
    job->job.op = *op;
    if (session) {
        job->session = (uint8_t)(session - gateway->sessions);
        job->generation = session->generation;
        job->request = session->request;
    }
    return job;
}

static uint16_t job_number(const struct sender *sender, const struct idem_job *job)
{
    return (uint16_t)((const struct job *)job - sender->jobs);
}

static void job_tell(struct gateway *gateway, struct idem_job *job, enum idem_job_event event)
{
    struct event item = gateway_item(gateway, NULL, ITEM_JOB);

    item.index = job_number(&gateway->sender, job);
    item.what = (uint8_t)event;
    gateway_append(gateway, item);
}

static void job_finish(struct gateway *gateway, struct idem_job *job, int error)
{
    job->error = error;
    job->not_applied = error && !job->reached;
    job_tell(gateway, job, IDEM_JOB_DONE);
}

/* A verdict is kept, and its delay told once; anything else ends. */
static void job_fail(struct world *world, struct gateway *gateway, struct idem_job *idem_job,
                     int error)
{
    struct job *job = (struct job *)idem_job;

    if (!job_is_verdict(idem_job) || mutant_forgets_verdicts(world)) {
        job_finish(gateway, idem_job, error);
        return;
    }
    idem_job->repeats++;
    idem_settle_keep(&gateway->sender.settle, idem_job, world->now_us, SETTLE_US_MAX);
    if (!job->delayed)
        job_tell(gateway, idem_job, IDEM_JOB_DELAYED);
    job->delayed = true;
}

static void queue_fail(struct world *world, struct gateway *gateway, struct idem_job_queue *queue,
                       int error)
{
    for (struct idem_job *job; (job = job_queue_take(queue)) != NULL;)
        job_fail(world, gateway, job, error);
}

/* Sends the next batch of this queue, unless nothing of it may go. */
static void batch_send(struct world *world, struct gateway *gateway, struct idem_job_queue *queue)
{
    struct sender *sender = &gateway->sender;
    size_t limit = sender->single ? 1 : BATCH_MAX;
    struct idem_job_queue blocked = {0};
    struct message *message;
    struct idem_job *job;
    uint16_t number;
    struct event timeout;

    sender->batch_count = 0;
    while (sender->batch_count < limit && (job = job_queue_take(queue)) != NULL) {
        if (idem_settle_blocks(&sender->settle, job)) {
            job_queue_append(&blocked, job);
            continue;
        }
        job->reached = true;
        sender->batch[sender->batch_count++] = job_number(sender, job);
    }
    queue_fail(world, gateway, &blocked, IDEM_ERR_UNAVAILABLE);
    if (sender->batch_count == 0)
        return;

    number = store_message_new(world);
    message = &world->messages[number];
    message->gateway = gateway->number;
    message->life = gateway->life;
    message->call = ++sender->call;
    message->count = sender->batch_count;
    for (size_t i = 0; i < message->count; i++) {
        message->ops[i] = sender->jobs[sender->batch[i]].job.op;
        message->askers[i] = sender->jobs[sender->batch[i]].request;
    }
    world->cover.situations[COVER_STORE_BATCH] |= message->count > 1;
    sender->busy = true;
    timeout = gateway_item(gateway, NULL, ITEM_CALL_TIMEOUT);
    timeout.number = sender->call;
    world_in(world, world->plan.call_us, timeout);
    store_send(world, number);
}

/* While the store is closed nothing reaches it: claims end at once, verdicts are kept. */
static void round_closed(struct world *world, struct gateway *gateway)
{
    struct sender *sender = &gateway->sender;

    idem_settle_take_due(&sender->settle, world->now_us, &sender->due);
    queue_fail(world, gateway, &sender->due, IDEM_ERR_UNAVAILABLE);
    queue_fail(world, gateway, &sender->taken, IDEM_ERR_UNAVAILABLE);
}

/* With a call under way, its end comes first. */
static void wake_schedule(struct world *world, struct gateway *gateway)
{
    struct sender *sender = &gateway->sender;

    if (sender->busy || sender->settle.due_us >= sender->wake_us)
        return;
    sender->wake_us = sender->settle.due_us;
    world_at(world, sender->wake_us, gateway_item(gateway, NULL, ITEM_SENDER_WAKE));
}

/* One round after the other: the repeats first, then what is new. */
static void sender_run(struct world *world, struct gateway *gateway)
{
    struct sender *sender = &gateway->sender;

    while (!sender->busy) {
        if (sender->due.first) {
            sender->of_due = true;
            batch_send(world, gateway, &sender->due);
        } else if (sender->taken.first) {
            sender->of_due = false;
            batch_send(world, gateway, &sender->taken);
        } else {
            sender->single = false;
            for (struct idem_job *job; (job = job_queue_take(&sender->waiting)) != NULL;)
                job_queue_append(&sender->taken, job);
            if (sender->closed) {
                sender->closed = world->store_down;
                if (sender->closed)
                    round_closed(world, gateway);
            }
            idem_settle_take_due(&sender->settle, world->now_us, &sender->due);
            for (const struct idem_job *job = sender->taken.first; job; job = job->next)
                idem_settle_take_id(&sender->settle, &job->op.id, &sender->due);
            if (!sender->due.first && !sender->taken.first)
                break;
        }
    }
    wake_schedule(world, gateway);
}

void sender_submit(struct world *world, struct gateway *gateway, const struct session *session,
                   const struct idem_op *op)
{
    struct sender *sender = &gateway->sender;
    struct job *job = job_new(sender, gateway, session, op);

    job->job.submitted_us = world->now_us;
    if (job_is_bounded(&job->job) && sender->waiting.count >= CLAIMS_MAX) {
        job_finish(gateway, &job->job, IDEM_ERR_BUSY);
        return;
    }
    job_queue_append(&sender->waiting, &job->job);
    sender_run(world, gateway);
}

void sender_finished(struct gateway *gateway, const struct session *session, struct idem_op *op)
{
    struct job *job = job_new(&gateway->sender, gateway, session, op);

    job_finish(gateway, &job->job, 0);
    memset(op, 0, sizeof *op);
}

/* The call failed: whether any of its ops was applied is not known. */
static void batch_failed(struct world *world, struct gateway *gateway, int error)
{
    struct sender *sender = &gateway->sender;
    bool of_one = error == IDEM_ERR_NOMEM;
    struct idem_job_queue *queue = sender->of_due ? &sender->due : &sender->taken;
    struct idem_job_queue again = {0}, rest = *queue;

    if (of_one && sender->batch_count > 1) {
        for (size_t i = 0; i < sender->batch_count; i++)
            job_queue_append(&again, &sender->jobs[sender->batch[i]].job);
        for (struct idem_job *job; (job = job_queue_take(&rest)) != NULL;)
            job_queue_append(&again, job);
        *queue = again;
        sender->single = true;
        return;
    }
    for (size_t i = 0; i < sender->batch_count; i++)
        job_fail(world, gateway, &sender->jobs[sender->batch[i]].job, error);
    if (of_one)
        return;
    queue_fail(world, gateway, &sender->due, error);
    queue_fail(world, gateway, &sender->taken, error);
    sender->closed = world->store_down && dice_chance(&world->dice, 500);
}

void sender_reply(struct world *world, struct gateway *gateway, const struct event *item)
{
    struct sender *sender = &gateway->sender;
    struct message *message = &world->messages[item->index];

    if (sender->busy && message->call == sender->call) {
        sender->busy = false;
        if (message->error)
            batch_failed(world, gateway, message->error);
        for (size_t i = 0; i < message->count && !message->error; i++) {
            struct job *job = &sender->jobs[sender->batch[i]];

            job->job.op = message->ops[i]; /* with what it owns */
            memset(&message->ops[i], 0, sizeof message->ops[i]);
            job_finish(gateway, &job->job, 0);
        }
    }
    store_message_free(world, item->index);
    sender_run(world, gateway);
}

void sender_timeout(struct world *world, struct gateway *gateway, const struct event *item)
{
    struct sender *sender = &gateway->sender;

    if (!sender->busy || item->number != sender->call)
        return;
    sender->busy = false;
    batch_failed(world, gateway, IDEM_ERR_TIMEOUT);
    sender_run(world, gateway);
}

void sender_wake(struct world *world, struct gateway *gateway)
{
    gateway->sender.wake_us = IDEM_NEVER_US;
    sender_run(world, gateway);
}

void sender_release(struct sender *sender, uint16_t job)
{
    idem_op_deinit(&sender->jobs[job].job.op);
    sender->jobs[job].used = false;
}

bool sender_is_idle(const struct sender *sender)
{
    return !sender->busy && sender->waiting.count == 0 && sender->taken.count == 0 &&
           sender->due.count == 0 && sender->settle.count == 0;
}
