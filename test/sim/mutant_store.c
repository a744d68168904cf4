/*
 * Mutants of the store: what goes in, and what comes out, is not what the real one does.
 */
#include "sim/mutant.h"

static int real_apply(struct world *world, struct idem_op *op)
{
    return idem_store_apply(world->store, &op, 1, NULL);
}

/* What the store really holds of an id; false when that is nothing. */
static bool record_look(struct world *world, const struct idem_id *id, struct idem_op *ret_get)
{
    *ret_get = (struct idem_op){.kind = IDEM_OP_GET, .id = *id};
    return real_apply(world, ret_get) == 0 && ret_get->result == IDEM_RESULT_FOUND;
}

/* Writes the answer into whatever is there. */
static void overwrite(struct world *world, struct idem_op *complete)
{
    struct idem_op get, op = {.kind = IDEM_OP_RESOLVE, .id = complete->id};
    struct idem_resolve *in = &op.in.resolve;

    if (record_look(world, &complete->id, &get)) {
        in->fence = get.out.found.record.fence;
        in->updated_us = get.out.found.record.updated_us;
        in->completed = in->force = true;
        in->answer = complete->in.verdict.answer;
        in->ttl_us = complete->in.verdict.ttl_us;
        in->owner = complete->in.verdict.owner;
        if (real_apply(world, &op) == 0 && op.result == IDEM_RESULT_OK)
            complete->result = IDEM_RESULT_OK;
    }
    idem_op_deinit(&get);
}

/* The digests that this mutant does not look at. */
static void digests_blur(const struct world *world, struct idem_op *op)
{
    bool claim = op->kind == IDEM_OP_CLAIM;

    if (!claim && op->kind != IDEM_OP_GET)
        return;
    if (world->mutant == MUTANT_NO_PRINCIPAL)
        *(claim ? &op->in.claim.principal : &op->in.get.principal) = (struct idem_principal){0};
    if (world->mutant == MUTANT_NO_FINGERPRINT)
        *(claim ? &op->in.claim.fingerprint : &op->in.get.fingerprint) = world_fingerprint(0);
}

static void claim_change(const struct world *world, struct idem_claim *claim)
{
    int64_t live_us = claim->ttl_us == IDEM_NEVER_US ? IDEM_TTL_US_MAX : claim->ttl_us;

    switch (world->mutant) {
    case MUTANT_TAKE_ANY:
        if (claim->take == IDEM_TAKE_FENCE)
            claim->take = IDEM_TAKE_ANY;
        break;
    case MUTANT_LAPSED_AGAIN:
        if (world->policy.unknown == IDEM_UNKNOWN_HOLD)
            claim->take = IDEM_TAKE_ANY;
        break;
    case MUTANT_NEVER_TAKES:
        claim->take = IDEM_TAKE_NONE;
        break;
    case MUTANT_TTL_ON_LIVE:
        claim->unknown_ttl_us = live_us > claim->lease_us ? live_us - claim->lease_us : 0;
        break;
    default:
        break;
    }
}

/* An INSERT that meets the old row, and a SELECT that leaves it out. */
static bool claim_blocked(struct world *world, struct idem_op *op)
{
    unsigned id = world_id_find(&op->id);
    struct idem_op get;
    bool found;

    if (world->mutant != MUTANT_EXPIRED_BLOCKS || id == IDS_MAX || !world->mutant_rows[id])
        return false;
    found = record_look(world, &op->id, &get);
    idem_op_deinit(&get);
    if (found)
        return false;
    op->result = IDEM_RESULT_IN_PROGRESS;
    op->out.now_us = world_store_now_us(world);
    return true;
}

/* Answers in place of the store, or not. */
static bool op_withheld(struct world *world, struct idem_op *op)
{
    struct idem_op get;
    bool found;

    if (op->kind == IDEM_OP_CLAIM)
        return claim_blocked(world, op);
    if (world->mutant == MUTANT_FORGETS && op->kind == IDEM_OP_COMPLETE) {
        op->result = IDEM_RESULT_OK;
        op->out.now_us = world_store_now_us(world);
        return true;
    }
    if (world->mutant == MUTANT_NO_PHANTOM && op->kind == IDEM_OP_FAIL) {
        found = record_look(world, &op->id, &get);
        idem_op_deinit(&get);
        if (found)
            return false;
        op->result = IDEM_RESULT_OK;
        op->out.now_us = world_store_now_us(world);
        return true;
    }
    return false;
}

static void result_change(struct world *world, struct idem_op *op)
{
    unsigned id = world_id_find(&op->id);

    if (id < IDS_MAX && op->kind == IDEM_OP_COMPLETE && op->result == IDEM_RESULT_OK)
        world->mutant_rows[id] = true;
    if (op->kind == IDEM_OP_SWEEP)
        memset(world->mutant_rows, 0, sizeof world->mutant_rows);
    if (world->mutant == MUTANT_LATE_OWNER && op->kind == IDEM_OP_COMPLETE &&
        op->result == IDEM_RESULT_LOST)
        overwrite(world, op);
    if (world->mutant == MUTANT_RENEW_LAPSED && op->kind == IDEM_OP_RENEW)
        op->result = IDEM_RESULT_OK;
    if (world->mutant == MUTANT_SAME_FENCE && op->result == IDEM_RESULT_ACQUIRED &&
        op->out.attempt > 1)
        op->out.fence = world->tracks[id].fence;
}

static int op_apply(struct world *world, struct idem_op *op)
{
    struct idem_op changed = *op;
    int error;

    if (op_withheld(world, op))
        return 0;
    digests_blur(world, &changed);
    if (op->kind == IDEM_OP_CLAIM)
        claim_change(world, &changed.in.claim);
    if (op->kind == IDEM_OP_RENEW && world->mutant == MUTANT_TTL_ON_LIVE)
        changed.in.renew.unknown_ttl_us = 0;
    error = real_apply(world, &changed);
    op->result = changed.result;
    op->out = changed.out;
    if (!error)
        result_change(world, op);
    return error;
}

int mutant_apply(struct world *world, struct idem_op *const *ops, size_t count)
{
    int error = 0;

    if (world->mutant == MUTANT_NONE)
        return idem_store_apply(world->store, ops, count, NULL);
    for (size_t i = 0; i < count && !error; i++)
        error = op_apply(world, ops[i]);
    return error;
}

int mutant_peek(struct world *world, struct idem_op *get)
{
    struct idem_op changed = *get;
    int error;

    digests_blur(world, &changed);
    error = idem_store_peek(world->store, &changed);
    get->result = changed.result;
    get->out = changed.out;
    return error;
}
