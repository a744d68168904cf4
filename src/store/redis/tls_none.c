/* In place of tls.c where hiredis knows no TLS: it came with hiredis 1.0. */
#include "store/redis/redis_store.h"

const bool idem_redis_tls_known = false;

int idem_redis_tls_start(redisContext *context, const struct idem_redis_options *options,
                         const char *host, struct idem_redis_trouble *trouble)
{
    (void)context;
    (void)options;
    (void)host;
    return idem_redis_trouble_set(trouble, IDEM_ERR_UNSUPPORTED, false,
                                  "this build of idem has no TLS to Redis");
}
