#include "store/redis/script_text.h"

/*
 * ARGV[1]  lease, unknown_ttl, take, take_fence
 * ARGV[2]  owner, fingerprint, principal, and the rest of the record
 * ARGV[3]  seconds to keep it for, as text: a little more than lease and unknown_ttl, as to write
 *          the exact instant here would take as long as a command
 *
 * Most claims are of an id that is not there: one SET asks for what is there and takes the id if
 * that is nothing. A server that may not write now refuses it, even if there is something; one that
 * is only over maxmemory still answers from what it has. No flags: see script_text.h.
 */
const char idem_redis_script_claim[] = LUA_SAME LUA_NOW
    "local lease, unknown_ttl, take, take_fence = struct.unpack('>I8I8BI8', ARGV[1])\n"
    "local till = now + lease\n"
    "local expires = till + unknown_ttl\n"
    "local never = expires >= 9007199254740992\n"
    "if never then expires = 9223372036854775808 end\n"
    "local function keep(call, fence, attempt, created, ...)\n"
    "  local record = struct.pack(" LUA_HEAD ", 1, 1, 0, fence, attempt, lease, till, created,\n"
    "    now, expires) .. ARGV[2]\n"
    "  if never then return call('SET', KEYS[1], record, ...) end\n"
    "  return call('SET', KEYS[1], record, 'EX', ARGV[3], ...)\n"
    "end\n"
    "local old = keep(redis.pcall, now, 1, now, 'NX', 'GET')\n"
    "if not old then return struct.pack('>c1I8I8I4I8', 'A', now, now, 1, 0) end\n"
    "local whole = old\n"
    "if type(old) == 'table' then\n"
    "  if not old.err:find('^OOM') then return old end\n"
    "  whole, old = nil, redis.call('GETRANGE', KEYS[1], 0, 136)\n"
    "  if old == '' then return redis.error_reply('OOM no room for a claim') end\n"
    "end\n"
    "if #old < 137 or old:byte() ~= 1 then return struct.pack('>c1I8', 'X', now) end\n"
    "local _, state, reason, last, tries, length, ends, born, updated, over, owner, payload,\n"
    "  caller = struct.unpack('>BBBI8I4I8I8I8I8I8c16c33c33', old)\n"
    "local fence, attempt, created = math.max(last + 1, now), 1, now\n"
    "if state ~= 0 and now < over then\n"
    "  local function say(letter, more)\n"
    "    return struct.pack('>c1I8I8I4I8', letter, now, last, tries, more)\n"
    "  end\n"
    "  if state == 1 and (now >= ends or ends - now > 2 * length) then state = 4 end\n"
    /* A failed record without fingerprint stands for a claim that was never seen. */
    "  if payload ~= ARGV[2]:sub(17, 49) and (state ~= 3 or payload:byte() ~= 0) then\n"
    "    return say('M', 0)\n"
    "  end\n"
    "  if owner == ARGV[2]:sub(1, 16) then return say(state == 1 and 'A' or 'E', 0) end\n"
    "  if state ~= 3 then\n"
    "    if caller ~= ARGV[2]:sub(50, 82) then return say('S', 0) end\n"
    "    if state == 1 then return say('P', ends - now) end\n"
    "    if state == 2 then return { say('C', 0), whole or redis.call('GET', KEYS[1]) } end\n"
    "    if take ~= 2 and (take ~= 1 or take_fence ~= last) then\n"
    /* An abandoned record has a reason and was last written then; a lapsed one has none. */
    "      return say('U', reason ~= 0 and updated or ends)\n"
    "    end\n"
    "  end\n"
    "  attempt = tries < 4294967295 and tries + 1 or tries\n"
    "  created = born\n"
    "end\n"
    "keep(redis.call, fence, attempt, created)\n"
    "return struct.pack('>c1I8I8I4I8', 'A', now, fence, attempt, 0)\n";
