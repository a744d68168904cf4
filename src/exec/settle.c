/*
 * Settle: the verdicts that the store could not take, kept until it does.
 *
 * Each is repeated with growing pauses until it has a result or is older than settle_us_max. The
 * order of jobs on one id, which the contract promises, is kept like this:
 *
 *   1. While nothing fails there is one queue, first in, first out. A `fail` that was submitted
 *      while its owner's claim still waits is applied after that claim.
 *   2. A claim is never repeated, so a verdict of its owner, submitted later, cannot be overtaken
 *      by it inside this process. Inside a network (the claim was sent, its result lost, and it
 *      arrives late) the store answers it `ended`: that is what fail on an absent id is for.
 *   3. A kept verdict goes first: before a new job on its id is applied, the verdict is repeated,
 *      due or not. So a retry of the client finds the answer as soon as the store works again.
 *   4. If even that fails, nothing of the same owner passes it: a verdict is kept behind it and a
 *      claim refused. Only a renew may pass: it prolongs what the verdict ends, and if the verdict
 *      was applied after all, it is `lost`.
 *   5. A job of another owner may then pass, as it could from another gateway, which no queue here
 *      can hold back. The record decides by owner and fence: the passing claim finds the record in
 *      progress, unknown or failed, and if it takes it over the late verdict is `lost`.
 *
 * Repeating is safe although it is not known whether the verdict was applied the time before: the
 * same verdict again by the same owner is `ok` and changes nothing, and once another owner holds
 * the record it is `lost` (design 5.2).
 *
 * The table is hashed by id. Verdicts on one id stand in one bucket in the order of submission, and
 * share the instant of their next repeat, so that they leave and come back together, in that order.
 */
#include "exec/state.h"

static size_t bucket_index(const struct idem_id *id)
{
    return id->bytes[0] % IDEM_SETTLE_BUCKETS; /* an id is a digest: any byte of it spreads well */
}

static int64_t pause_us(unsigned repeats)
{
    int64_t pause = IDEM_SETTLE_PAUSE_US_MIN;

    while (--repeats > 0 && pause < IDEM_SETTLE_PAUSE_US_MAX)
        pause *= 2;
    return pause < IDEM_SETTLE_PAUSE_US_MAX ? pause : IDEM_SETTLE_PAUSE_US_MAX;
}

void idem_settle_init(struct idem_settle *settle)
{
    *settle = (struct idem_settle){.due_us = IDEM_NEVER_US};
}

/* `repeats` has been counted up already. */
void idem_settle_keep(struct idem_settle *settle, struct idem_job *job, int64_t now_us,
                      int64_t settle_us_max)
{
    struct idem_job_queue *bucket = &settle->buckets[bucket_index(&job->op.id)];
    const struct idem_job *earlier = bucket->first;
    int64_t age_us = now_us - job->submitted_us, pause = pause_us(job->repeats);

    while (earlier && !idem_id_equal(&earlier->op.id, &job->op.id))
        earlier = earlier->next;
    if (pause > settle_us_max - age_us)
        pause = settle_us_max - age_us; /* the last repeat comes just in time */
    job->due_us = earlier ? earlier->due_us : now_us + pause;
    job_queue_append(bucket, job);
    settle->count++;
    if (job->due_us < settle->due_us)
        settle->due_us = job->due_us;
}

/* The store is back, or there is no time left: all of them are due. */
void idem_settle_hurry(struct idem_settle *settle)
{
    if (settle->count == 0)
        return;
    for (size_t i = 0; i < IDEM_SETTLE_BUCKETS; i++)
        for (struct idem_job *job = settle->buckets[i].first; job; job = job->next)
            job->due_us = 0;
    settle->due_us = 0;
}

static const struct idem_owner *job_owner(const struct idem_job *job)
{
    if (job->op.kind == IDEM_OP_CLAIM)
        return &job->op.in.claim.owner;
    return job_is_verdict(job) ? &job->op.in.verdict.owner : NULL;
}

bool idem_settle_blocks(const struct idem_settle *settle, const struct idem_job *job)
{
    const struct idem_owner *owner = job_owner(job);
    const struct idem_job *kept;

    if (settle->count == 0 || !owner)
        return false;
    kept = settle->buckets[bucket_index(&job->op.id)].first;
    for (; kept; kept = kept->next)
        if (idem_id_equal(&kept->op.id, &job->op.id) && idem_owner_equal(job_owner(kept), owner))
            return true;
    return false;
}

void idem_settle_take_due(struct idem_settle *settle, int64_t now_us, struct idem_job_queue *due)
{
    int64_t next_us = IDEM_NEVER_US;

    if (now_us < settle->due_us)
        return;
    for (size_t i = 0; i < IDEM_SETTLE_BUCKETS; i++) {
        struct idem_job_queue all = settle->buckets[i], kept = {0};

        for (struct idem_job *job; (job = job_queue_take(&all)) != NULL;) {
            bool now = job->due_us <= now_us;

            job_queue_append(now ? due : &kept, job);
            settle->count -= now;
            if (!now && job->due_us < next_us)
                next_us = job->due_us;
        }
        settle->buckets[i] = kept;
    }
    settle->due_us = next_us;
}

void idem_settle_take_id(struct idem_settle *settle, const struct idem_id *id,
                         struct idem_job_queue *due)
{
    struct idem_job_queue *bucket = &settle->buckets[bucket_index(id)];
    struct idem_job_queue all = *bucket, kept = {0};

    for (struct idem_job *job; (job = job_queue_take(&all)) != NULL;) {
        bool now = idem_id_equal(&job->op.id, id);

        job_queue_append(now ? due : &kept, job);
        settle->count -= now;
    }
    *bucket = kept;
}
