#include "store/redis/script_text.h"

/*
 * ARGV[1]  force, look, token
 * ARGV[2]  who and why     ARGV[3]  id
 * KEYS[3]  the audit, unless in a cluster
 *
 * A damaged record goes by force. What is forgotten leaves its fence for as long as it would have
 * been there, at most 30 days, and the token, so that a repetition after a lost reply is answered
 * the same; a record of the self-test (kind 7) leaves nothing. 9 is IDEM_OP_FORGET.
 */
const char idem_redis_script_forget[] = LUA_ALLOW_OOM LUA_SAME LUA_NOW LUA_AUDIT
    "local force, look, token = struct.unpack('>BBc16', ARGV[1])\n"
    "local old = redis.pcall('GET', KEYS[1])\n"
    "if old and (type(old) ~= 'string' or #old < 137 or old:byte() ~= 1) then\n"
    "  if force == 0 then return struct.pack('>c1I8', 'X', now) end\n"
    "  if look == 0 then\n"
    "    audit(9, 0, 0)\n"
    "    redis.call('DEL', KEYS[1])\n"
    "  end\n"
    "  return struct.pack('>c1I8I8I4I8', 'K', now, 0, 0, 1)\n"
    "end\n" LUA_RECORD_OF_OLD LUA_KEEP "local function say(letter, acts)\n"
    "  return struct.pack('>c1I8I8I4I8', letter, now, fence or 0, state, acts)\n"
    "end\n"
    "if old and was == 0 and owner == token then return say('K', 0) end\n"
    "if state == 0 then return say('N', 0) end\n"
    "if state == 1 and force == 0 then return say('R', 0) end\n"
    "local leaves = old:byte(140) ~= 7\n"
    "if look == 1 then return say('K', leaves and 1 or 0) end\n"
    "if not leaves then\n"
    "  redis.call('DEL', KEYS[1])\n"
    "  return say('K', 0)\n"
    "end\n"
    "audit(9, state, fence)\n"
    "keep(struct.pack(" LUA_HEAD ", 1, 0, 0, fence, 0, 0, now, now, now, expires)\n"
    "  .. token .. string.rep('\\0', 66), math.min(expires, now + 2592000000000))\n"
    "return say('K', 1)\n";
