#include "store/redis/script_text.h"

/*
 * ARGV[1]  fingerprint, principal; empty: not to be compared
 *
 * Writes nothing. The flag keeps it running when Redis is over maxmemory, and without "no-writes"
 * a replica, which may lag behind, does not answer it.
 */
const char idem_redis_script_get[] = LUA_ALLOW_OOM LUA_SAME LUA_NOW LUA_RECORD
    "if state == 0 then return struct.pack('>c1I8', 'N', now) end\n"
    "if ARGV[1] ~= '' then\n"
    "  local payload = old:sub(72, 104)\n"
    "  if payload ~= ARGV[1]:sub(1, 33) and (state ~= 3 or payload:byte() ~= 0) then\n"
    "    return struct.pack('>c1I8', 'M', now)\n"
    "  end\n"
    "  if state ~= 3 and old:sub(105, 137) ~= ARGV[1]:sub(34, 66) then\n"
    "    return struct.pack('>c1I8', 'S', now)\n"
    "  end\n"
    "end\n"
    "return { struct.pack('>c1I8', 'F', now), old }\n";
