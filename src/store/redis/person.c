/*
 * What a person does leaves an audit entry. Where one script reaches both the record and the
 * audit, both change at once. In a cluster they are in different slots, so the entry goes first:
 *
 *   1. look      the script says whether it would act, and on what, and does nothing
 *   2. record    if it would, its entry is written
 *   3. act       the op itself, which compares again
 *   4. take back if it did not act after all, the entry is removed
 *
 * So nothing is ever done without an entry; a crash between 2 and 3 leaves an entry of what was
 * meant and not done. Other ops on the same id wait until all steps are through (batch.c).
 */
#include <stdio.h>

#include "store/redis/redis_store.h"

bool idem_redis_person_staged(const struct idem_backend *store, const struct idem_op *op)
{
    return store->options.topology == IDEM_REDIS_CLUSTER &&
           (op->kind == IDEM_OP_RESOLVE || op->kind == IDEM_OP_FORGET);
}

/* The op was applied: is its entry still right? */
void idem_redis_person_acted(struct idem_redis_item *item)
{
    item->done = item->entry[0] == '\0' || item->acted;
    if (!item->done)
        item->stage = IDEM_REDIS_STAGE_TAKE_BACK;
}

/* An op that would not act has its result already. */
static void person_looked(struct idem_redis_item *item)
{
    if (item->acted) {
        item->stage = IDEM_REDIS_STAGE_RECORD;
    } else if (item->op->result == IDEM_RESULT_OK) {
        item->stage = IDEM_REDIS_STAGE_ACT; /* without an entry: the self-test, or done before */
    } else {
        item->done = true;
    }
    if (!item->done)
        item->op->result = IDEM_RESULT_NONE;
}

int idem_redis_person_reply(struct idem_redis_item *item, const redisReply *reply,
                            const char *place, struct idem_redis_trouble *trouble)
{
    int error;

    if (item->stage == IDEM_REDIS_STAGE_TAKE_BACK) {
        if (reply->type != REDIS_REPLY_INTEGER)
            return idem_redis_reply_trouble(reply, place, trouble);
        item->done = true;
        return IDEM_OK;
    }
    if (item->stage == IDEM_REDIS_STAGE_RECORD) {
        if (reply->type != REDIS_REPLY_STRING || reply->len >= sizeof item->entry)
            return idem_redis_reply_trouble(reply, place, trouble);
        memcpy(item->entry, reply->str, reply->len + 1);
        item->stage = IDEM_REDIS_STAGE_ACT;
        return IDEM_OK;
    }
    error = idem_redis_reply_read(item, reply, place, trouble);
    if (!error)
        person_looked(item);
    return error;
}
