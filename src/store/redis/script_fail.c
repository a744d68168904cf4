#include "store/redis/script_text.h"

/*
 * ARGV[1]  owner, ttl, lease
 * ARGV[2]  what a record is after its head that nothing is known of but its owner
 *
 * On nothing, it leaves that for one lease: if this owner's claim is still on its way, it will
 * find its owner there, and end.
 */
const char idem_redis_script_fail[] = LUA_ALLOW_OOM LUA_SAME LUA_NOW LUA_RECORD LUA_AFTER LUA_KEEP
    "local mine, ttl, length = struct.unpack('>c16I8I8', ARGV[1])\n"
    "if state == 0 then\n"
    "  if not old or fence < now then fence = now else fence = fence + 1 end\n"
    "  expires = after(now, length)\n"
    "  keep(struct.pack(" LUA_HEAD ", 1, 3, 0, fence, 0, length, now, now, now, expires)\n"
    "    .. ARGV[2], expires)\n"
    "elseif owner ~= mine or state == 2 then\n"
    "  return struct.pack('>c1I8', 'L', now)\n"
    "elseif state ~= 3 then\n"
    "  expires = after(now, ttl)\n"
    "  keep(struct.pack(" LUA_HEAD
    ", 1, 3, 0, fence, attempt, lease, till, created, now, expires)\n"
    "    .. old:sub(56), expires)\n"
    "end\n"
    "return struct.pack('>c1I8', 'K', now)\n";
