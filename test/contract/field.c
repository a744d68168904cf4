#include "field.h"

#include <stdio.h>
#include <string.h>

const char *race_key(unsigned number)
{
    static char keys[2 * CREW_MAX][32];
    static unsigned next;
    char *key = keys[next++ % COUNT(keys)];

    snprintf(key, sizeof keys[0], "race %u", number);
    return key;
}

struct field *field_open(struct world *world)
{
    static struct field field;

    memset(&field, 0, sizeof field);
    crew_open(&field.crew, world, CREW_MAX);
    return &field;
}

void field_clear(struct field *field)
{
    for (size_t i = 0; i < field->count; i++)
        idem_op_deinit(&field->ops[i]);
    field->count = 0;
    memset(field->delays_us, 0, sizeof field->delays_us);
}

void field_close(struct field *field)
{
    field_clear(field);
    crew_close(&field->crew);
}

void field_run(struct field *field)
{
    crew_race(&field->crew, field->ops, field->delays_us, field->count);
}

struct idem_op *enter(struct field *field, const struct idem_op *op)
{
    struct idem_op *entered = &field->ops[field->count++];

    *entered = *op;
    return entered;
}

void enter_claim(struct field *field, const char *key, const char *owner,
                 enum idem_take_unknown take, uint64_t fence)
{
    struct idem_op *op = claim_make(field->crew.world, key, owner);

    op->in.claim.take = take;
    op->in.claim.take_fence = fence;
    enter(field, op);
}

void enter_verdict(struct field *field, enum idem_op_kind kind, const char *key, const char *owner)
{
    struct idem_op *op = verdict_make(field->crew.world, kind, key, owner);

    if (kind == IDEM_OP_COMPLETE)
        op->in.verdict.answer = answer_of(owner);
    enter(field, op);
}

void enter_renew(struct field *field, const char *key, const char *owner, int64_t lease_us)
{
    struct idem_op *op = op_make(field->crew.world, IDEM_OP_RENEW, key);

    op->in.renew.owner = owner_of(owner);
    op->in.renew.lease_us = lease_us;
    op->in.renew.unknown_ttl_us = UNKNOWN_TTL;
    enter(field, op);
}
