#include "store/redis/script_text.h"

/*
 * ARGV[1]  owner, lease, unknown_ttl
 *
 * Never moves a lease back. When the old end stands, so does the old length: a lease that ends
 * further ahead than twice its length would count as lapsed.
 */
const char idem_redis_script_renew[] = LUA_ALLOW_OOM LUA_SAME LUA_NOW LUA_RECORD LUA_AFTER LUA_KEEP
    "local mine, length, unknown_ttl = struct.unpack('>c16I8I8', ARGV[1])\n"
    "if state ~= 1 or owner ~= mine then return struct.pack('>c1I8', 'L', now) end\n"
    "if now + length > till then till, lease = now + length, length end\n"
    "expires = after(till, unknown_ttl)\n"
    "keep(struct.pack(" LUA_HEAD ", 1, 1, 0, fence, attempt, lease, till, created, now, expires)\n"
    "  .. old:sub(56), expires)\n"
    "return struct.pack('>c1I8', 'K', now)\n";
