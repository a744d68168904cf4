#include "store/redis/script_text.h"

/*
 * ARGV[1]  owner, ttl
 * ARGV[2]  answer
 *
 * A lapsed or abandoned record takes its own owner's word. The first one stands; when it is told
 * again, the fifth byte of the answer that is kept says whether it was left out.
 */
const char idem_redis_script_complete[] =
    LUA_ALLOW_OOM LUA_SAME LUA_NOW LUA_RECORD LUA_AFTER LUA_KEEP
    "local mine, ttl = struct.unpack('>c16I8', ARGV[1])\n"
    "if state == 0 or state == 3 or owner ~= mine then\n"
    "  return struct.pack('>c1I8', 'L', now)\n"
    "end\n"
    "local left_out = ARGV[2]:byte(5)\n"
    "if state == 2 then\n"
    "  local size, next = struct.unpack('>I2', old, 138)\n"
    "  size, next = struct.unpack('>I2', old, next + size)\n"
    "  left_out = old:byte(next + size + 4)\n"
    "  if not left_out then return struct.pack('>c1I8', 'X', now) end\n"
    "else\n"
    "  expires = after(now, ttl)\n"
    "  keep(struct.pack(" LUA_HEAD
    ", 1, 2, 0, fence, attempt, lease, till, created, now, expires)\n"
    "    .. old:sub(56) .. ARGV[2], expires)\n"
    "end\n"
    "return struct.pack('>c1I8I8I4I8', 'K', now, fence, attempt, left_out)\n";
