#include "store/redis/script_text.h"

/*
 * ARGV[1]  owner, fence and updated that were seen, ttl, completed, force, look
 * ARGV[2]  who and why     ARGV[3]  id     ARGV[4]  answer, empty unless completed
 * KEYS[3]  the audit, unless in a cluster
 *
 * With look it says what it would do, and does nothing. The last number of its answer is 1 when it
 * acts: the same resolve again does not. 8 is IDEM_OP_RESOLVE.
 */
const char idem_redis_script_resolve[] =
    LUA_ALLOW_OOM LUA_SAME LUA_NOW LUA_RECORD LUA_AFTER LUA_KEEP LUA_AUDIT
    "local mine, seen, at, ttl, completed, force, look =\n"
    "  struct.unpack('>c16I8I8I8BBB', ARGV[1])\n"
    "local function say(letter, acts)\n"
    "  return struct.pack('>c1I8I8I4I8', letter, now, fence or 0, state, acts)\n"
    "end\n"
    "if state == 0 then return say('N', 0) end\n"
    "if owner == mine then return say('K', 0) end\n"
    "if fence ~= seen or updated ~= at then return say('D', 0) end\n"
    "if state ~= 4 and force == 0 then return say('R', 0) end\n"
    "if look == 1 then return say('K', 1) end\n"
    "audit(8, state, fence)\n"
    "local size, next = struct.unpack('>I2', old, 138)\n"
    "expires = after(now, ttl)\n"
    "keep(struct.pack(" LUA_HEAD ", 1, completed == 1 and 2 or 3, 0, fence, attempt, lease, till,\n"
    "  created, now, expires) .. mine .. old:sub(72, next + size - 1)\n"
    "  .. struct.pack('>I2I8', 8 + #ARGV[2], now) .. ARGV[2] .. ARGV[4], expires)\n"
    "return say('K', 1)\n";
