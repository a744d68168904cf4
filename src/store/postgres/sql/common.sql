-- Schema version 2: the rules of a record's life, as src/core/transition.c tells them in C; the
-- contract suite holds both to the same words. In all functions:
--
--   1. An id is read without a lock first. What changes nothing is answered from that: a replay
--      writes nothing, locks no row and waits for none.
--   2. What changes something locks the row, then asks for the time, then judges again.
--   3. An expired row is as good as absent; only its fence is still respected.
--   4. Rows are locked in ascending order of their ids, so that two batches do not wait for each
--      other; ids come in that order, but to resolve and forget. An id occurs once in a call. New
--      ids of a batch are added before old ones are taken up: should two batches meet over that,
--      the server ends one of them, which is repeated.
--   5. Results are rows numbered by the op's place in the arrays, from 1. Row 0 speaks for every
--      op that has no row of its own.
--
-- Functions that gateways call run as the owner of the schema: a gateway's own role needs EXECUTE
-- on them and nothing else, and can do to a record what these rules allow and no more. Their
-- plans are made once a session, so they must not depend on how full the table was then: the
-- settings leave the planner the indexes only.

-- What an op came to, and what it met; of an answer only where the op may see it.
DO $$
BEGIN
    IF to_regtype('idempotency_result') IS NULL THEN
        CREATE TYPE idempotency_result AS (
            n            integer,
            result       text,
            at           timestamptz,             -- the store's clock
            id           bytea,
            kind         text,
            scope        bytea,
            key          bytea,
            method       bytea,
            path         bytea,
            fingerprint  bytea,
            principal    bytea,
            state        text,                    -- as stored
            reason       text,
            owner        bytea,
            fence        bigint,
            attempt      bigint,
            lease        interval,
            lease_until  timestamptz,
            created_at   timestamptz,
            updated_at   timestamptz,
            expires_at   timestamptz,
            sweep_at     timestamptz,
            status       smallint,
            flags        integer,
            tombstone    text,
            headers      bytea,
            body         bytea,
            resolved_by  bytea,
            resolved_why bytea,
            resolved_at  timestamptz
        );
    END IF;
END $$;

-- The state at an instant: NULL for absent, and unknown for a lease that has lapsed. A lease that
-- ends further ahead than twice its length counts as lapsed: the clock was stepped back.
CREATE OR REPLACE FUNCTION idempotency_state(r idempotency_result, at timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN r.id IS NULL OR r.expires_at <= at THEN NULL
        WHEN r.state = 'processing'
            AND (r.lease_until <= at OR r.lease_until > at + r.lease + r.lease) THEN 'unknown'
        ELSE r.state END
$$;

-- An instant so much later; infinity where that is beyond the last instant that idem counts
-- (9223372036854775806 microseconds after 1970).
CREATE OR REPLACE FUNCTION idempotency_after(at timestamptz, length interval) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN at > '294247-01-10 04:00:54.775806+00'::timestamptz - length
        THEN 'infinity' ELSE at + length END
$$;

-- Microseconds since 1970, exactly. STABLE as what it asks is: only then it is put in the place of
-- its call, and is not a query of its own each time.
CREATE OR REPLACE FUNCTION idempotency_us(at timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM at) * 1000000)::bigint
$$;

CREATE OR REPLACE FUNCTION idempotency_above(fence bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN fence = 9223372036854775807 THEN fence ELSE fence + 1 END
$$;

-- When a claim thinks that its record will have expired, should it be completed soon. A sweep
-- that comes too early costs an index entry, one that comes too late costs room.
CREATE OR REPLACE FUNCTION idempotency_guess(at timestamptz, lease interval, ttl interval)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT idempotency_after(at + least(lease, interval '1 second'), ttl)
$$;

-- When to sweep a record that now expires then: the claim's guess stands while it is good, for to
-- move it costs an index entry.
CREATE OR REPLACE FUNCTION idempotency_sweep_at(guess timestamptz, expires timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN expires < guess - interval '1 second' THEN expires ELSE guess END
$$;

-- A commit that waits for everything before it to be as durable as the setting asks: asked for
-- after a lost connection or a wait that was broken off, when what is seen may not be durable yet.
CREATE OR REPLACE FUNCTION idempotency_confirm() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE idempotency_meta SET fence_floor = fence_floor WHERE one
$$;

-- The store's salt: the one that is there, or the proposed one where there is none yet.
CREATE OR REPLACE FUNCTION idempotency_salt(proposed bytea, OUT salt bytea, OUT made boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE idempotency_meta m SET salt = proposed WHERE one AND m.salt IS NULL;
    made := FOUND;
    SELECT m.salt INTO salt FROM idempotency_meta m WHERE one;
END $$;

-- The lowest fence that is above all that is gone. Fails when the row is gone that tells it, or the
-- caller's digests were made under another salt: since it opened the store, that was emptied or
-- made anew, or has adopted another one's records.
-- p_salt is the SHA-256 of the salt; NULL: no digest plays a part.
--
-- To be asked after a write: only then has whoever removed the id before committed, and from then
-- on until this transaction's end no salt can be adopted. And by a transaction that sees what was
-- committed meanwhile: the default of a session can change at any time.
CREATE OR REPLACE FUNCTION idempotency_floor(p_salt bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_above bigint;
    v_other boolean;
    v_blind boolean;
BEGIN
    SELECT idempotency_above(fence_floor), sha256(salt) IS DISTINCT FROM p_salt,
        current_setting('transaction_isolation') <> 'read committed'
    INTO v_above, v_other, v_blind FROM idempotency_meta WHERE one;
    IF v_blind THEN
        RAISE EXCEPTION 'another isolation level' USING ERRCODE = 'ID002';
    END IF;
    IF NOT FOUND OR (v_other AND p_salt IS NOT NULL) THEN
        RAISE EXCEPTION 'another salt' USING ERRCODE = 'ID001';
    END IF;
    RETURN v_above;
END $$;

-- Takes over another store's salt; false when records are here that were made under this one.
CREATE OR REPLACE FUNCTION idempotency_adopt(other bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    LOCK TABLE idempotency_keys IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM idempotency_keys WHERE expires_at > clock_timestamp()
               AND kind IS DISTINCT FROM 'selftest') THEN
        RETURN false;
    END IF;
    UPDATE idempotency_meta SET salt = other WHERE one;
    RETURN true;
END $$;
