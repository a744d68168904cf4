#include "store/redis/script_text.h"

/*
 * KEYS[1]  the audit, a stream whose entries have their instant as id
 * ARGV[1]  the first id     ARGV[2]  how many at most
 */
const char idem_redis_script_audit[] =
    LUA_ALLOW_OOM LUA_NOW "return { struct.pack('>c1I8', 'K', now),\n"
                          "  redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2]) }\n";

/* In a cluster: ARGV[1] is the entry. Answers its id. */
const char idem_redis_script_audit_add[] =
    LUA_ALLOW_OOM LUA_NOW LUA_AUDIT_ADD "return add(KEYS[1], ARGV[1])\n";

/* Not of an op: writes something, so that a WAIT after it waits for all that was written before,
 * by others too. */
const char idem_redis_script_mark[] = LUA_ALLOW_OOM "redis.call('SET', KEYS[1], '')\n"
                                                    "return 1\n";

/* Not of an op: KEYS[1] is the salt, which becomes ARGV[2] if it is ARGV[1]. */
const char idem_redis_script_adopt[] =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
    "redis.call('SET', KEYS[1], ARGV[2])\n"
    "return 1\n";
