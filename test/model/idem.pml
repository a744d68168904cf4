/*
 * The protocol of idem, for spin: one id, two gateways, two clients that send their request again
 * until they know. test/model/run checks every variant; docs/guide/model.md says what is modelled
 * and what is not.
 *
 *   the store     src/core/transition.c   its functions, each an atomic step
 *   Exchange      src/core/exchange.c     one guarded request; the labels are its states, and the
 *                                         comments name the handlers
 *   settling      src/exec/settle.c       a verdict that has no result yet is repeated
 *   World         everybody else          time, network, upstream, kill -9
 *
 * Chosen with -D:
 *   HOLD | PROBE | RETRY   idempotency_unknown
 *   PROMISE        the upstream keeps the probe's promise: what has a lower fence than it answered
 *                  404 to takes no effect any more
 *   SETTLE         for upstreams that cannot promise: a probe waits until nothing of the attempt
 *                  that is unknown can be on its way
 *   DEDUPLICATES   the upstream has one effect a key, whoever asks
 *   FAULTS=n       at most n faults
 *   REQUESTS=n     at least as many as so many faults can make clients send
 *   BREAK_…        a broken protocol, which has to be caught
 */
#define SLOTS 9 /* REQUESTS, at most 8, are numbered from 1 */

/* enum idem_state */
mtype:record_state = { absent, processing, completed, failed, unknown };
/* enum idem_take_unknown */
mtype:take_unknown = { take_none, take_fence, take_any };
/* of enum idem_op_kind, the verdicts */
mtype:op_kind = { complete, fail, abandon };
/* enum idem_result */
mtype:op_result = { acquired, in_progress, is_completed, is_unknown, ended, ok, lost };
/* what the upstream said */
mtype:upstream_word = { silence, final, no_effect };
/* what a client is told: an answer, a failure, "outcome unknown", or to ask again */
mtype:client_word = { answer, failure, unclear, nothing_yet };

/* The record. Its fence outlives it, as the store's high-water mark does. */
mtype:record_state state = absent;
byte owner, fence;
byte kept;    /* COMPLETED: the answer */
bool lapsed;  /* PROCESSING: the lease has ended */
bool phantom; /* FAILED: left by a `fail` on an absent id, for one lease */

#define RUNNING    (state == processing && !lapsed) /* idem_record_state_at() */
#define IS_UNKNOWN (state == unknown || (state == processing && lapsed))

/* The upstream: how often the operation took effect, the highest fence that it answered 404 to. */
byte effects, promised;

/* The requests, by number; the number names the owner too. */
byte begun;           /* how many there are */
byte fence_of[SLOTS]; /* of the claim that it acquired */
bool on_first[SLOTS]; /* which of the gateways serves it */
bool alive[SLOTS];    /* its exchange goes on … */
bool killed[SLOTS];   /* … or dies with its gateway */
bool ready[SLOTS];    /* about to be sent */
byte on_way[SLOTS];   /* sent with this fence, and not seen by the upstream yet */
mtype:upstream_word word[SLOTS]; /* what the upstream answered */

/* Ops whose sender stopped waiting: the store applies them when it pleases the network. */
bool late_claim[SLOTS], late_verdict[SLOTS];
mtype:take_unknown late_take[SLOTS];
mtype:op_kind late_op[SLOTS];
byte late_seen[SLOTS], late_answer[SLOTS];

/* The clients: the answer that they were told, and who of them knows what became of it. */
byte told;
bool knows[2];

/* Of use within one step alone: no part of a state, but where spin cannot tell. */
#ifndef BREADTH_FIRST
#define SCRATCH hidden
#else
#define SCRATCH
#endif
SCRATCH mtype:op_result result; /* of the op that is applied */
SCRATCH byte x;

/* FAULT is passed first where something goes wrong, or where a client asks more than it has to. */
byte faults = FAULTS;
#define FAULT faults > 0 -> faults--

/* ---- the store */

/* claim_acquire() */
inline acquire(who)
{
    fence++;
    state = processing;
    owner = who;
    lapsed = false;
    phantom = false;
    fence_of[who] = fence;
    printf("request %d: acquired, fence %d\n", who, fence)
}

/* claim_unknown(): a take-over names the fence that was seen. */
#ifdef BREAK_TAKE_OVER_UNNAMED
#define MAY_TAKE(take, seen) (take != take_none)
#else
#define MAY_TAKE(take, seen) (take == take_any || (take == take_fence && seen == fence))
#endif

/* claim() */
inline store_claim(who, take, seen, ret)
{
    if
    :: state == absent -> acquire(who); ret = acquired
    :: state != absent && owner == who ->
        if
        :: RUNNING -> ret = acquired
        :: else -> ret = ended
        fi
    :: state == failed && owner != who -> acquire(who); ret = acquired
    :: RUNNING && owner != who -> ret = in_progress
    :: IS_UNKNOWN && owner != who ->
        if
        :: MAY_TAKE(take, seen) -> acquire(who); ret = acquired
        :: else -> ret = is_unknown
        fi
    :: state == completed && owner != who -> ret = is_completed
    fi
}

/* verdict_owned(), verdict_awaited() */
#ifdef BREAK_OWNER_NOT_COMPARED
#define OWNED(who) (state != absent)
#else
#define OWNED(who) (state != absent && owner == who)
#endif
#define AWAITED (state == processing || state == unknown)

/* move(), of a verdict */
inline move(who, next)
{
    assert(state != completed);     /* a recorded answer never changes … */
    assert(fence_of[who] == fence); /* … and who was fenced off writes nothing */
    state = next;
    lapsed = false;
    printf("request %d: recorded as %e\n", who, next)
}

/* complete(), fail(), fail_phantom(), abandon() */
inline store_verdict(who, op, given, ret)
{
    if
    :: op == complete && OWNED(who) && AWAITED -> move(who, completed); kept = given; ret = ok
    :: op == complete && OWNED(who) && state == completed -> ret = ok
    :: op == fail && OWNED(who) && AWAITED ->
        assert(effects == 0); /* FAILED is known not to have taken effect */
        move(who, failed);
        ret = ok
    :: op == fail && OWNED(who) && state == failed -> ret = ok
    :: op == fail && state == absent -> 
        state = failed;
        owner = who;
        phantom = true;
        printf("request %d: recorded as failed, before its claim\n", who);
        ret = ok
    :: op == abandon && OWNED(who) && state == processing -> move(who, unknown); ret = ok
    :: op == abandon && OWNED(who) && state == unknown -> ret = ok
    :: else -> ret = lost
    fi
}

/* ---- the clients */

inline client_asks(client)
{
    if
    :: begun < REQUESTS ->
        begun++;
        alive[begun] = true;
        if
        :: on_first[begun] = true
        :: begun > 1 -> on_first[begun] = false /* the first one names the gateways */
        fi;
        printf("request %d: sent by client %d\n", begun, client);
        run Exchange(begun, client)
    :: else -> assert(false) /* REQUESTS is too low for so many FAULTS */
    fi
}

/*
 * Every answer from the record is the record's, and the same. One that could not be recorded is
 * told as such, and is the same under `hold`; else another attempt may be the one that is recorded.
 */
inline client_told(client, what, recorded)
{
    if
    :: what == answer && recorded ->
        assert(state == completed && kept == value);
        assert(told == 0 || told == value);
        told = value
    :: what == answer && !recorded ->
#ifdef HOLD
        assert(told == 0 || told == value);
        told = value
#else
        skip
#endif
    :: else
    fi;
    replied = true;
    printf("request %d: client %d is told %e\n", me, client, what);
    if
    :: what == nothing_yet -> client_asks(client)
    :: what != nothing_yet -> knows[client] = true
    :: what != nothing_yet && faults > 0 -> faults--; client_asks(client)
    fi
}

/* ---- one guarded request */

/* `settle`: something of the attempt that was found unknown may still reach the upstream. */
#define LOOSE(x) ((ready[x] && fence_of[x] == seen) || on_way[x] == seen)
#define UNSETTLED (LOOSE(1) || LOOSE(2) || LOOSE(3) || LOOSE(4) || LOOSE(5) || LOOSE(6) || \
                   LOOSE(7) || LOOSE(8))

/* What the executor does with a verdict that got no result: it comes late, and is repeated. */
inline verdict_late(me)
{
    late_verdict[me] = true;
    late_op[me] = verdict;
    late_answer[me] = value
}

inline exchange_ends(me)
{
    alive[me] = false;
    on_first[me] = false;
    ready[me] = false;
    word[me] = silence;
    take = take_none;
    before = false;
    replied = false;
    verdict = 0;
    reply = 0;
    seen = 0;
    value = 0
}

proctype Exchange(byte me; byte client)
{
    mtype:take_unknown take = take_none; /* the first claim takes nothing over */
    mtype:op_kind verdict;
    mtype:client_word reply;
    bool before;  /* unknown_before: an earlier attempt may have taken effect */
    byte seen;    /* the fence of the UNKNOWN that was found */
    byte value;   /* the answer in hand */
    bool replied; /* the client does not wait any more */

    {
        skip;

claiming: /* idem_exchange_on_request(), _on_claim_result() */
        atomic {
            if
            :: store_claim(me, take, seen, result)
            :: FAULT;
                late_claim[me] = true;
                late_take[me] = take;
                late_seen[me] = seen;
                printf("request %d: the claim gets no result\n", me);
                if
                :: goto claiming /* the store repeats it: once, within the call */
                :: goto claim_failed
                fi
            fi;
            if
            :: result == acquired ->
                take = take_none;
                seen = 0;
#if defined(PROBE) && !defined(BREAK_NEVER_PROBED)
                if
                :: before -> goto probing
                :: else
                fi;
#endif
                ready[me] = true;
                goto executing
            :: result == is_completed ->
                value = kept;
                client_told(client, answer, true);
                exchange_ends(me);
                goto over
            :: result == in_progress -> goto waiting
            :: result == is_unknown -> seen = fence; goto found_unknown
            :: result == ended -> goto claim_failed
            fi
        }

found_unknown: /* on_unknown() */
        atomic {
            if
#if defined(RETRY) || defined(BREAK_UNKNOWN_EXECUTED)
            :: !before -> before = true; take = take_any; goto claiming
            :: before ->
#elif defined(SETTLE)
            :: !before && !UNSETTLED -> before = true; take = take_fence; goto claiming
            :: !before && UNSETTLED -> goto unsettled
            :: before -> /* once an exchange */
#elif defined(PROBE)
            :: !before -> before = true; take = take_fence; goto claiming
            :: before -> /* once an exchange */
#else
            :: true ->
#endif
                client_told(client, unclear, false);
                exchange_ends(me);
                goto over
            fi
        }

/*
 * The client is told "in progress", or "outcome unknown" and when to come back, and comes back; or
 * the exchange waits for it. As long as the record is what it was, claiming again changes nothing;
 * so the next claim is the first one that would find something else. Its owner may be the same, as
 * the claims before got nothing.
 */
waiting:
        atomic {
            if
#ifdef BREAK_WAITS_FOR_EVER
            :: RUNNING && owner != me -> goto waiting
#endif
            :: !(RUNNING && owner != me) && take == take_fence -> take = take_none; goto claiming
            :: !(RUNNING && owner != me) && take != take_fence -> goto claiming
            fi
        }

unsettled:
        atomic { !UNSETTLED || !IS_UNKNOWN || seen != fence -> seen = 0; goto claiming }

claim_failed: /* idem_exchange_on_claim_failed(), undo_claim(): such a claim is never forwarded,
                 though it may have been won */
        atomic {
#ifdef BREAK_LOST_CLAIM_FORWARDED
            ready[me] = true; fence_of[me] = fence; goto executing;
#endif
            if
#ifndef BREAK_TAKE_OVER_UNDONE_BY_FAIL
            :: before -> verdict = abandon
#endif
            :: else -> verdict = fail
            fi;
            client_told(client, nothing_yet, false);
            goto settling
        }

probing: /* idem_exchange_probe(); and what is said to it, _on_probe_end() */
        atomic {
            if
            :: effects > 0 -> verdict = complete; value = me + SLOTS; reply = answer; goto recording
            :: effects == 0 ->
#ifdef PROMISE
                if
                :: promised < fence_of[me] -> promised = fence_of[me]
                :: else
                fi;
#endif
                printf("request %d: probed with fence %d: 404\n", me, fence_of[me])
            :: FAULT; goto still_unknown
            fi
        }

confirming: /* 404; idem_exchange_on_confirm_result(): does the claim still stand? */
        atomic {
            if
#ifndef BREAK_NOT_CONFIRMED
            :: RUNNING && owner == me -> before = false; ready[me] = true; goto executing
            :: !(RUNNING && owner == me) -> goto still_unknown
            :: FAULT; goto still_unknown
#else
            :: before = false; ready[me] = true; goto executing
#endif
            fi
        }

still_unknown:
        atomic {
#ifdef BREAK_PROBER_FAILS
            verdict = fail;
#else
            verdict = abandon;
#endif
            reply = unclear;
            goto recording
        }

executing: /* idem_exchange_execute() */
        if
        :: atomic {
                ready[me] = false;
                on_way[me] = fence_of[me];
                printf("request %d: forwarded, fence %d\n", me, fence_of[me])
            }
        :: atomic { /* NOT_SENT */
                FAULT;
                ready[me] = false;
                reply = nothing_yet;
                goto had_no_effect
            }
        fi;
        if
        :: atomic { word[me] == final -> verdict = complete; value = me; reply = answer }
        :: atomic { word[me] == no_effect -> reply = failure; goto had_no_effect }
        :: atomic { /* UNANSWERED, TRUNCATED */
                FAULT;
                verdict = abandon;
                reply = nothing_yet;
                printf("request %d: no answer\n", me)
            }
        fi;
        goto recording;

had_no_effect: /* outcome_of(): this attempt had none */
        atomic {
            if
            :: before -> verdict = abandon
            :: else -> verdict = fail
            fi
        }

recording: /* idem_exchange_on_verdict_result(), _on_verdict_failed() */
        atomic {
            if
            :: store_verdict(me, verdict, value, result);
                if
                :: result == ok ->
                    client_told(client, reply, true);
                    exchange_ends(me);
                    goto over
                :: result == lost -> goto looking
                fi
            :: FAULT;
                verdict_late(me);
                client_told(client, reply, false);
                goto settling
            fi
        }

looking: /* idem_exchange_on_look_result(), _on_look_failed() */
        atomic {
            if
            :: state == completed -> value = kept; client_told(client, answer, true)
            :: RUNNING -> client_told(client, nothing_yet, false)
            :: IS_UNKNOWN -> client_told(client, unclear, false)
            :: state == failed || state == absent -> client_told(client, reply, false)
            :: FAULT; client_told(client, reply, false)
            fi;
            exchange_ends(me);
            goto over
        }

settling: /* idem_settle_take_due() */
        atomic {
            if
            :: store_verdict(me, verdict, value, result); exchange_ends(me)
            :: FAULT; verdict_late(me); goto settling
            fi
        }

over:   skip

    } unless {
        atomic { /* its gateway was killed */
            killed[me] ->
            killed[me] = false;
            if
            :: replied
            :: else -> client_asks(client)
            fi;
            exchange_ends(me)
        }
    }
}

/* ---- everybody else */

/* The upstream sees a request: it takes effect, or is answered as one that did not. */
inline upstream_sees(x)
{
    if
#ifdef PROMISE
    :: on_way[x] < promised -> word[x] = no_effect
    :: on_way[x] >= promised ->
#else
    :: true ->
#endif
        if
#ifdef DEDUPLICATES
        :: effects > 0
        :: effects == 0 -> effects++
#else
        :: effects++
#endif
        fi;
        printf("request %d: takes effect at the upstream\n", x);
        assert(effects <= 1); /* at most once */
        word[x] = final
    :: word[x] = no_effect
    fi;
    on_way[x] = 0;
    if
    :: alive[x]
    :: else -> word[x] = silence
    fi
}

#define SERVED(x, first) (alive[x] && on_first[x] == first)
#define SERVES(first) (SERVED(1, first) || SERVED(2, first) || SERVED(3, first) || \
                       SERVED(4, first) || SERVED(5, first) || SERVED(6, first) || \
                       SERVED(7, first) || SERVED(8, first))

/* kill -9 of a gateway; it is started again at once. */
inline kill(first)
{
    printf("a gateway is killed\n");
    d_step {
        for (x : 1 .. SLOTS - 1) {
            if
            :: alive[x] && on_first[x] == first ->
                alive[x] = false;
                killed[x] = true;
                on_first[x] = false;
                ready[x] = false;
                word[x] = silence
            :: else
            fi
        }
    }
}

#define REQUEST(x) \
    :: atomic { on_way[x] != 0 -> upstream_sees(x) } \
    :: atomic { late_claim[x] -> late_claim[x] = false; \
                store_claim(x, late_take[x], late_seen[x], result); \
                late_take[x] = 0; late_seen[x] = 0 } \
    :: atomic { late_verdict[x] -> late_verdict[x] = false; \
                store_verdict(x, late_op[x], late_answer[x], result); \
                late_op[x] = 0; late_answer[x] = 0 }

#define LAPSES printf("request %d: the lease lapses\n", owner)

active proctype World()
{
    atomic { client_asks(0); client_asks(1) }
end:
    do
    REQUEST(1)
    REQUEST(2)
    REQUEST(3)
    REQUEST(4)
    REQUEST(5)
    REQUEST(6)
#if REQUESTS > 6
    REQUEST(7)
    REQUEST(8)
#endif
#ifndef BREAK_NEVER_LAPSES
    :: atomic { RUNNING && !alive[owner] -> lapsed = true; LAPSES }
    :: atomic { RUNNING && alive[owner] && faults > 0 -> faults--; lapsed = true; LAPSES }
#endif
    :: atomic { phantom -> state = absent; phantom = false; owner = 0 }
    :: atomic { SERVES(true) && faults > 0 -> faults--; kill(true) }
    :: atomic { SERVES(false) && faults > 0 -> faults--; kill(false) }
    :: timeout -> assert(knows[0] && knows[1]); break
    od
}
