/*
 * Dice: the one source of chance in a run. The same seed throws the same numbers on every machine,
 * so that a run can be told again by its number.
 */
#ifndef IDEM_TEST_SIM_DICE_H
#define IDEM_TEST_SIM_DICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dice {
    uint64_t state;
};

/* A counter that is stirred well: every seed, 0 as well, begins a row of its own. */
static inline uint64_t dice_next(struct dice *dice)
{
    uint64_t mixed = (dice->state += UINT64_C(0x9e3779b97f4a7c15));

    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/* 0 to count - 1; count is not 0. The bias of the remainder does not matter here. */
static inline unsigned dice_below(struct dice *dice, unsigned count)
{
    return (unsigned)(dice_next(dice) % count);
}

/* low to high, both possible. */
static inline int64_t dice_range(struct dice *dice, int64_t low, int64_t high)
{
    return low + (int64_t)(dice_next(dice) % (uint64_t)(high - low + 1));
}

/* True in so many of a thousand throws. */
static inline bool dice_chance(struct dice *dice, unsigned permille)
{
    return permille > 0 && dice_below(dice, 1000) < permille;
}

#endif
