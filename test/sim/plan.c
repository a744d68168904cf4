#include "sim/plan.h"

#include "sim/world.h"

/* Half of the runs are spared this kind of trouble. */
static unsigned some(struct dice *dice, unsigned most)
{
    return dice_chance(dice, 500) ? 0 : 1 + dice_below(dice, most);
}

static void policy_draw(struct dice *dice, int64_t lease_us, struct idem_policy *policy)
{
    unsigned way = dice_below(dice, 100);

    idem_policy_init(policy);
    policy->lease_us = lease_us;
    policy->unknown = way < 40   ? IDEM_UNKNOWN_HOLD
                      : way < 58 ? IDEM_UNKNOWN_RETRY
                                 : IDEM_UNKNOWN_PROBE;
    if (dice_chance(dice, 300))
        policy->ttl_us = dice_range(dice, lease_us, 4 * lease_us);
    else if (dice_chance(dice, 150))
        policy->ttl_us = IDEM_NEVER_US;
    if (dice_chance(dice, 100))
        policy->unknown_ttl_us = dice_range(dice, lease_us, 4 * lease_us);
    if (dice_chance(dice, 350))
        policy->body_size_max = 50;
    if (dice_chance(dice, 500))
        policy->wait_us = dice_range(dice, lease_us / 5, 5 * lease_us / 2);
    policy->fail_open = dice_chance(dice, 50);
}

static void times_draw(struct dice *dice, struct plan *plan)
{
    int64_t lease_us = plan->lease_us;

    plan->delay_us =
        dice_range(dice, lease_us / 1000, lease_us / (dice_chance(dice, 250) ? 4 : 20));
    plan->call_us = 2 * plan->delay_us + dice_range(dice, lease_us / 8, lease_us / 2);
    plan->deadline_us = 2 * plan->delay_us + dice_range(dice, lease_us / 8, lease_us);
    plan->upstream_us = 6 * plan->delay_us + dice_range(dice, lease_us / 3, 2 * lease_us);
    plan->patience_us = dice_range(dice, lease_us / 4, 3 * lease_us);
    plan->late_us = plan->upstream_us + 3 * lease_us / 2;
    plan->active_us = dice_range(dice, 3, 8) * lease_us;
}

static void faults_draw(struct dice *dice, struct plan *plan)
{
    plan->lose = some(dice, 150);
    plan->cut = some(dice, 150);
    plan->late = some(dice, 100);
    plan->duplicate = some(dice, 100);
    plan->repeat = some(dice, 100);
    plan->partial = some(dice, 300);
    plan->pause = some(dice, 25);
    plan->crash = some(dice, 15);
    plan->trouble = dice_chance(dice, 150) ? 0 : (unsigned)dice_range(dice, 100, 900);
    plan->gone = some(dice, 900);
    plan->abort = some(dice, 150);
    plan->payload = some(dice, 200);
    plan->principal = some(dice, 300);
    plan->downs = some(dice, 2);
    plan->fulls = dice_chance(dice, 100) ? 1 : 0;
    plan->jumps = some(dice, 3);
    plan->jumps_far = dice_chance(dice, 250);
    plan->sweeps = some(dice, 4);
}

/* Only clients and the upstream misbehave: no lease ends by itself. */
static void calm_down(struct plan *plan)
{
    plan->calm = true;
    plan->lose = plan->cut = plan->late = plan->duplicate = plan->repeat = plan->partial = 0;
    plan->pause = plan->crash = plan->downs = plan->jumps = 0;
    plan->delay_us = plan->lease_us / 100;
}

/*
 * What the upstream can give: under retry it executes a key once; under probe it promises, or the
 * route waits until what was sent must have come to its end. Then nothing may be late beyond that,
 * neither a gateway that was paused nor a clock that has run ahead.
 */
static void upstream_draw(struct dice *dice, struct plan *plan, struct idem_policy *policy)
{
    plan->dedup = policy->unknown == IDEM_UNKNOWN_RETRY;
    if (policy->unknown == IDEM_UNKNOWN_PROBE) {
        plan->promise = dice_chance(dice, 700);
        policy->trust = dice_chance(dice, 300);
    }
    if (policy->unknown == IDEM_UNKNOWN_PROBE && !plan->promise) {
        plan->pause = 0;
        policy->settle_us = plan->late_us + plan->deadline_us + plan->call_us + plan->lease_us;
    }
    if (policy->unknown == IDEM_UNKNOWN_HOLD)
        plan->looks = some(dice, 4);
}

static void plan_note(const struct plan *plan, const struct idem_policy *policy,
                      struct cover *cover)
{
    static const enum cover_situation ways[] = {
        [IDEM_UNKNOWN_HOLD] = COVER_POLICY_HOLD,
        [IDEM_UNKNOWN_RETRY] = COVER_POLICY_RETRY,
        [IDEM_UNKNOWN_PROBE] = COVER_POLICY_PROBE,
    };

    cover->situations[ways[policy->unknown]] = true;
    cover->situations[COVER_POLICY_SETTLE] = policy->settle_us > 0;
    cover->situations[COVER_POLICY_TRUST] = policy->trust;
    cover->situations[COVER_POLICY_WAIT] = policy->wait_us > 0;
    cover->situations[COVER_POLICY_OPEN] = policy->fail_open;
}

void plan_draw(struct dice *dice, struct plan *ret_plan, struct idem_policy *ret_policy,
               struct cover *cover)
{
    struct plan *plan = ret_plan;

    *plan = (struct plan){0};
    plan->lease_us = dice_range(dice, IDEM_SECOND_US / 5, 2 * IDEM_SECOND_US);
    plan->gateways = 1 + dice_below(dice, GATEWAYS_MAX);
    plan->clients = (unsigned)dice_range(dice, 2, CLIENTS_MAX);
    plan->scopes = 1 + dice_below(dice, SCOPES_MAX);
    plan->keys = dice_chance(dice, 500) ? 1 : 1 + dice_below(dice, KEYS_MAX);
    plan->callers = 1 + dice_below(dice, 2);
    plan->credentials = dice_chance(dice, 700);
    plan->peek = dice_chance(dice, 300);
    plan->close_delimited = dice_chance(dice, 300);
    policy_draw(dice, plan->lease_us, ret_policy);
    times_draw(dice, plan);
    faults_draw(dice, plan);
    if (dice_chance(dice, 60))
        calm_down(plan);
    upstream_draw(dice, plan, ret_policy);
    plan_note(plan, ret_policy, cover);
}

static double seconds(int64_t length_us)
{
    return (double)length_us / IDEM_SECOND_US;
}

void plan_tell(const struct world *world)
{
    static const char *const ways[] = {"hold", "retry", "probe"};
    const struct plan *plan = &world->plan;
    const struct idem_policy *policy = &world->policy;

    world_tell(world,
               "seed %llu: %u gateways, %u clients, policy %s%s%s, lease %.3f s, wait %.3f s, "
               "settle %.3f s",
               (unsigned long long)world->seed, plan->gateways, plan->clients,
               ways[policy->unknown], policy->trust ? " trust" : "",
               policy->fail_open ? ", fail open" : "", seconds(policy->lease_us),
               seconds(policy->wait_us), seconds(policy->settle_us));
    world_tell(world,
               "ttl %.3f s, unknown_ttl %.3f s, %s, calls %.3f s, upstream %.3f s, late %.3f s",
               policy->ttl_us == IDEM_NEVER_US ? -1.0 : seconds(policy->ttl_us),
               seconds(policy->unknown_ttl_us), plan->credentials ? "credentials" : "scopes alone",
               seconds(plan->call_us), seconds(plan->upstream_us), seconds(plan->late_us));
}
