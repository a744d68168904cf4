/* In place of the Redis store in a build without hiredis: the front says so when a URL names it. */
#include "store/backend.h"

static const char *const schemes[] = {"redis",          "rediss",        "redis+unix",
                                      "redis+sentinel", "redis+cluster", NULL};

const struct idem_backend_ops idem_backend_redis = {.schemes = schemes};
