#include "store/redis/script_text.h"

/*
 * ARGV[1]  lease, unknown_ttl, take, take_fence
 * ARGV[2]  owner, fingerprint, principal, and the rest of the record
 *
 * Reads no more of the record than head and identity, unless it is the answer. No flags: see
 * script_text.h.
 */
const char idem_redis_script_claim[] = LUA_NOW LUA_REFUSAL
    "local lease, unknown_ttl, take, take_fence = struct.unpack('>I8I8BI8', ARGV[1])\n"
    "local fence, attempt, created = now, 1, now\n"
    "local old = redis.call('GETRANGE', KEYS[1], 0, 136)\n"
    "if old ~= '' then\n"
    "  if #old < 137 or old:byte() ~= 1 then return struct.pack('>c1I8', 'X', now) end\n"
    "  local _, state, reason, last, tries, length, till, born, updated, expires,\n"
    "    owner, payload, caller = struct.unpack('>BBBI8I4I8I8I8I8I8c16c33c33', old)\n"
    "  if last >= now then fence = last + 1 end\n"
    "  if state ~= 0 and now < expires then\n"
    "    local function say(letter, more)\n"
    "      local said = refusal() or struct.pack('>c1I8I8I4I8', letter, now, last, tries, more)\n"
    "      if letter ~= 'C' or type(said) == 'table' then return said end\n"
    "      return { said, redis.call('GET', KEYS[1]) }\n"
    "    end\n"
    "    if state == 1 and (now >= till or till - now > 2 * length) then state = 4 end\n"
    /* A failed record without fingerprint stands for a claim that was never seen. */
    "    if payload ~= ARGV[2]:sub(17, 49) and (state ~= 3 or payload:byte() ~= 0) then\n"
    "      return say('M', 0)\n"
    "    end\n"
    "    if owner == ARGV[2]:sub(1, 16) then return say(state == 1 and 'A' or 'E', 0) end\n"
    "    if state ~= 3 then\n"
    "      if caller ~= ARGV[2]:sub(50, 82) then return say('S', 0) end\n"
    "      if state == 1 then return say('P', till - now) end\n"
    "      if state == 2 then return say('C', 0) end\n"
    "      if take ~= 2 and (take ~= 1 or take_fence ~= last) then\n"
    /* An abandoned record has a reason and was last written then; a lapsed one has none. */
    "        return say('U', reason ~= 0 and updated or till)\n"
    "      end\n"
    "    end\n"
    "    attempt = tries < 4294967295 and tries + 1 or tries\n"
    "    created = born\n"
    "  end\n"
    "end\n"
    "local till = now + lease\n"
    "local expires = till + unknown_ttl\n"
    /* A key that is there and empty was damaged: it is not written over. */
    "local only = old == '' and 'NX' or 'XX'\n"
    "local written\n"
    "if expires < 9007199254740992 then\n"
    "  written = redis.call('SET', KEYS[1], struct.pack(" LUA_HEAD ", 1, 1, 0, fence, attempt,\n"
    "    lease, till, created, now, expires) .. ARGV[2], only,\n"
    "    'PXAT', string.format('%.0f', math.ceil(expires / 1000)))\n"
    "else\n"
    "  written = redis.call('SET', KEYS[1], struct.pack(" LUA_HEAD ", 1, 1, 0, fence, attempt,\n"
    "    lease, till, created, now, 9223372036854775808) .. ARGV[2], only)\n"
    "end\n"
    "return struct.pack('>c1I8I8I4I8', written and 'A' or 'X', now, fence, attempt, 0)\n";
