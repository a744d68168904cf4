#include "store/redis/script_text.h"

/*
 * ARGV[1]  owner, reason
 *
 * Does not move the expiry. The same word again changes nothing.
 */
const char idem_redis_script_abandon[] = LUA_ALLOW_OOM LUA_SAME LUA_NOW LUA_RECORD LUA_KEEP
    "local mine, why = struct.unpack('>c16B', ARGV[1])\n"
    "if (state ~= 1 and state ~= 4) or owner ~= mine then\n"
    "  return struct.pack('>c1I8', 'L', now)\n"
    "end\n"
    "if was ~= 4 then\n"
    "  keep(struct.pack(" LUA_HEAD
    ", 1, 4, why, fence, attempt, lease, till, created, now, expires)\n"
    "    .. old:sub(56), expires)\n"
    "end\n"
    "return struct.pack('>c1I8', 'K', now)\n";
