#include "store/redis/script_text.h"

/*
 * ARGV[1]  a whole record
 *
 * Of one fence the later change stands. A later claim stands over the outcome that it took up:
 * what is failed or unknown here. No flags: see script_text.h.
 */
const char idem_redis_script_put[] = LUA_SAME LUA_NOW LUA_REFUSAL LUA_RECORD LUA_KEEP
    "local _, _, _, new, _, _, _, _, changed, ends, mine = struct.unpack(" LUA_OWNED ", ARGV[1])\n"
    "if state ~= 0 then\n"
    "  if fence == new and updated == changed and owner == mine then\n"
    "    return refusal() or struct.pack('>c1I8', 'K', now)\n"
    "  end\n"
    "  local stands = fence < new and (state == 3 or state == 4)\n"
    "  if fence == new then stands = updated < changed end\n"
    "  if not stands then return refusal() or struct.pack('>c1I8', 'D', now) end\n"
    "end\n"
    "keep(ARGV[1], ends)\n"
    "return struct.pack('>c1I8', 'K', now)\n";
