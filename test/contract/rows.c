#include "contract.h"

/* The stores. A server store is a row whose URL comes from where its server was started. */
const struct row rows[] = {
    {
        .name = "memory",
        .traits = TRAIT_CLOCK | TRAIT_BOUND,
        .url = "memory:%.0s%s",
        .bounded = "?size=256k",
    },
    {
        .name = "lmdb",
        .traits = TRAIT_CLOCK | TRAIT_BOUND | TRAIT_KEPT | TRAIT_SHARED,
        .url = "lmdb:%s%s",
        .bounded = "?size=1m&sync=off",
    },
};

const size_t rows_count = COUNT(rows);
