#include "store/redis/script_text.h"

/*
 * KEYS[1]  the audit, a stream whose entries have their instant as id
 * ARGV[1]  the first id     ARGV[2]  how many at most
 */
const char idem_redis_script_audit[] = LUA_ALLOW_OOM LUA_SAME LUA_NOW
    "return { struct.pack('>c1I8', 'K', now),\n"
    "  redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2]) }\n";

/* In a cluster: ARGV[1] is the entry. Answers its id. */
const char idem_redis_script_audit_add[] =
    LUA_ALLOW_OOM LUA_NOW LUA_AUDIT_ADD "return add(KEYS[1], ARGV[1])\n";

/* KEYS[1] is the salt. Redis removes by itself what has expired: what remains is to tell the clock,
 * and whether this is still the store. */
const char idem_redis_script_sweep[] = LUA_ALLOW_OOM "if " LUA_SALT_DIFFERS("KEYS[1]") LUA_NOW
    "return struct.pack('>c1I8', 'K', now)\n";

/*
 * In a cluster: ARGV[1] is owner and fence of what was written under a salt that had gone by then.
 * It goes again if it is still that. What `fail` writes on nothing has attempt 0, and a fence that
 * was not told.
 */
const char idem_redis_script_undo[] = LUA_ALLOW_OOM LUA_NOW
    "local mine, last = struct.unpack('>c16I8', ARGV[1])\n"
    "local old = redis.call('GETRANGE', KEYS[1], 0, 70)\n"
    "if old ~= '' then\n"
    "  local _, _, _, fence, attempt, _, _, _, _, _, owner = struct.unpack(" LUA_OWNED ", old)\n"
    "  if owner == mine and (fence == last or attempt == 0) then\n"
    "    redis.call('DEL', KEYS[1])\n"
    "  end\n"
    "end\n"
    "return struct.pack('>c1I8', 'K', now)\n";

/* Not of an op: writes something, so that a WAIT after it waits for all that was written before,
 * by others too. */
const char idem_redis_script_mark[] = LUA_ALLOW_OOM "redis.call('SET', KEYS[1], '')\n"
                                                    "return 1\n";

/* Not of an op: KEYS[1] is the salt, which becomes ARGV[2] if it is ARGV[1]. */
const char idem_redis_script_adopt[] =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
    "redis.call('SET', KEYS[1], ARGV[2])\n"
    "return 1\n";
