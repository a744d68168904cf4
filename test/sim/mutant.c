#include "sim/mutant.h"

int mutant_find(const char *name)
{
    return *name ? -1 : 0;
}
size_t mutant_count(void)
{
    return 0;
}
int mutant_apply(struct world *world, struct idem_op *const *ops, size_t count)
{
    return idem_store_apply(world->store, ops, count, NULL);
}
int mutant_peek(struct world *world, struct idem_op *get)
{
    return idem_store_peek(world->store, get);
}
void mutant_event(struct world *world, const struct session *session, const struct event *item,
                  struct idem_event *event, struct idem_op *op)
{
}
void mutant_effects(struct world *world, const struct session *session,
                    enum idem_exchange_state before, const struct idem_event *event,
                    struct idem_effects *effects)
{
}
void mutant_answer(struct world *world, struct answer *answer)
{
}
const struct idem_id *mutant_id(const struct world *world, const struct request *request)
{
    return world_id(request->id);
}
bool mutant_forgets_verdicts(const struct world *world)
{
    return false;
}
bool mutant_breaks_promise(const struct world *world)
{
    return false;
}
