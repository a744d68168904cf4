/*
 * What the scripts have in common. They say in Lua what core/transition.c says in C, and the
 * contract suite holds both to the same rules.
 *
 * A script is given KEYS[1], the record, and KEYS[2], the salt. It answers a letter, the server's
 * clock, and up to three numbers ('>c1I8I8I4I8': letter, now, fence, attempt, one more), which
 * reply.c reads:
 *
 *   A acquired   P in progress   C completed   U unknown   M mismatch   S somebody else's
 *   E ended      K ok            L lost        F found     N nothing    D it differs
 *   R refused    X damaged
 *
 * States are the numbers of enum idem_state, and 0 for nothing. A record that was forgotten is
 * kept as state 0 for a while, for its fence. Instants are microseconds; 2^53, from which on a
 * number is not exact, is never reached, and what would is 2^63: never.
 *
 * Scripts that begin with "#!lua flags=allow-oom" may write when Redis is over maxmemory: those
 * are the verdicts. Without that line a script runs, and fails with OOM at its first write:
 * claim and put, which answer from what is there, and are refused when they would add to it.
 */
#ifndef IDEM_STORE_REDIS_SCRIPT_TEXT_H
#define IDEM_STORE_REDIS_SCRIPT_TEXT_H

#define LUA_ALLOW_OOM "#!lua flags=allow-oom\n"

/*
 * Nothing is looked at, let alone written, unless this is still the store that was opened: its salt
 * begins as the last argument says. A part is enough to know it by, and leaves the rest a secret:
 * arguments are shown by MONITOR and by the slow log. In a cluster the salt is in another slot:
 * there is no KEYS[2], and batch.c asks for it.
 */
#define IDEM_REDIS_PROOF_SIZE 8
#define IDEM_REDIS_ERROR_SALT "IDEMSALT" /* the first word of that answer */

#define LUA_SAME "if KEYS[2] and " LUA_SALT_DIFFERS("KEYS[2]")

#define LUA_SALT_DIFFERS(key)                                                       \
    "redis.pcall('GETRANGE', " key ", '0', '7') ~= ARGV[#ARGV] then\n"              \
    "  return redis.error_reply('" IDEM_REDIS_ERROR_SALT " it is another store')\n" \
    "end\n"

#define LUA_NOW                      \
    "local t = redis.call('TIME')\n" \
    "local now = t[1] * 1000000 + t[2]\n"

/* The head of a record, then its owner: IDEM_REDIS_HEAD_SIZE and 16 bytes. */
#define LUA_HEAD  "'>BBBI8I4I8I8I8I8I8'"
#define LUA_OWNED "'>BBBI8I4I8I8I8I8I8c16'"

/*
 * Reads the record. `was` is its state as it was written, `state` the state now: an expired record
 * is nothing, a claim whose lease ended, or ends further ahead than twice its length, is unknown.
 */
#define LUA_RECORD "local old = redis.call('GET', KEYS[1])\n" LUA_RECORD_OF_OLD

#define LUA_RECORD_OF_OLD                                                                 \
    "local state, was = 0, 0\n"                                                           \
    "local _, reason, fence, attempt, lease, till, created, updated, expires, owner\n"    \
    "if old then\n"                                                                       \
    "  if #old < 137 or old:byte() ~= 1 then return struct.pack('>c1I8', 'X', now) end\n" \
    "  _, was, reason, fence, attempt, lease, till, created, updated, expires, owner =\n" \
    "    struct.unpack(" LUA_OWNED ", old)\n"                                             \
    "  if was ~= 0 and #old < 158 then return struct.pack('>c1I8', 'X', now) end\n"       \
    "  state = now < expires and was or 0\n"                                              \
    "  if state == 1 and (now >= till or till - now > 2 * lease) then state = 4 end\n"    \
    "end\n"

/* The end of a length of time from now. */
#define LUA_AFTER                                                      \
    "local function after(instant, length)\n"                          \
    "  local sum = instant + length\n"                                 \
    "  return sum < 9007199254740992 and sum or 9223372036854775808\n" \
    "end\n"

/* Writes a record. Redis counts milliseconds: rounded up, so that none goes before its time. */
#define LUA_KEEP                                                \
    "local function keep(record, expires)\n"                    \
    "  if expires < 9007199254740992 then\n"                    \
    "    redis.call('SET', KEYS[1], record, 'PXAT',\n"          \
    "      string.format('%.0f', math.ceil(expires / 1000)))\n" \
    "  else\n"                                                  \
    "    redis.call('SET', KEYS[1], record)\n"                  \
    "  end\n"                                                   \
    "end\n"

/*
 * A script that comes to write nothing runs on a replica as well, which may lag behind, or was a
 * master until a moment ago. So it asks for something that a replica refuses, and that changes
 * nothing: no expiry is as late. Only then: after a write Redis lets all others pass that it should
 * refuse over maxmemory. What else a server has against writing does not matter here.
 */
#define LUA_REFUSAL                                                                       \
    "local function refusal()\n"                                                          \
    "  local reply = redis.pcall('PEXPIREAT', KEYS[1], '9007199254740992', 'XX', 'LT')\n" \
    "  if type(reply) == 'table' and reply.err:find('^READONLY') then return reply end\n" \
    "end\n"

/*
 * The audit entry of what a person did, in the form of store/audit.h: ARGV[2] is who and why,
 * ARGV[3] the id. Its own id is the instant, made distinct and ascending. A cluster has no
 * KEYS[3]: the stream is in another slot there.
 */
#define LUA_AUDIT                                                                                  \
    "local function audit(what, was, fence)\n"                                                     \
    "  if not KEYS[3] then return end\n"                                                           \
    "  local entry = ARGV[3] .. struct.pack('>BBI8', what, was, fence) .. ARGV[2]\n" LUA_AUDIT_ADD \
    "  add(KEYS[3], entry)\n"                                                                      \
    "end\n"

#define LUA_AUDIT_ADD                                              \
    "local function add(stream, entry)\n"                          \
    "  local at = now\n"                                           \
    "  local about = redis.pcall('XINFO', 'STREAM', stream)\n"     \
    "  for i = 1, #about, 2 do\n"                                  \
    "    if about[i] == 'last-generated-id' then\n"                \
    "      local last = tonumber(about[i + 1]:match('^%d+'))\n"    \
    "      if last >= at then at = last + 1 end\n"                 \
    "    end\n"                                                    \
    "  end\n"                                                      \
    "  return redis.call('XADD', stream, 'MAXLEN', '=', 100000,\n" \
    "    string.format('%.0f-0', at), 'e', entry)\n"               \
    "end\n"

extern const char idem_redis_script_claim[], idem_redis_script_renew[],
    idem_redis_script_complete[], idem_redis_script_fail[], idem_redis_script_abandon[],
    idem_redis_script_get[], idem_redis_script_resolve[], idem_redis_script_forget[],
    idem_redis_script_put[], idem_redis_script_audit[], idem_redis_script_audit_add[],
    idem_redis_script_sweep[], idem_redis_script_undo[], idem_redis_script_mark[],
    idem_redis_script_adopt[];

#endif
