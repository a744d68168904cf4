-- Looking at one record, and what a person may do to it.

-- An entry of the audit. Entries are made one at a time: instants are distinct and ascending, so
-- that a page can go on after the last one's, and the oldest entries make way. Raises the fence
-- that everything must be above as well.
CREATE OR REPLACE FUNCTION idempotency_audit_add(
    p_what text, p_id bytea, p_was text, p_fence bigint, p_who bytea, p_why bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    m idempotency_meta;
BEGIN
    UPDATE idempotency_meta SET audit_number = audit_number + 1,
        audit_at = greatest(clock_timestamp(), audit_at + interval '1 microsecond')
    WHERE one RETURNING * INTO m;
    INSERT INTO idempotency_audit (number, at, id, what, was, fence, who, why)
    VALUES (m.audit_number, m.audit_at, p_id, p_what, p_was, p_fence, p_who, p_why);
    DELETE FROM idempotency_audit WHERE number <= m.audit_number - 100000;
END $$;

-- p_match: compare with fingerprint and principal, as a claim would.
CREATE OR REPLACE FUNCTION idempotency_get(
    p_salt bytea[], p_id bytea[], p_match boolean[], p_fingerprint bytea[], p_principal bytea[]
) RETURNS SETOF idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    o idempotency_result;
    v_state text;
BEGIN
    FOR i IN 1 .. cardinality(p_id) LOOP
        SELECT i, NULL, NULL, k.* INTO o FROM idempotency_keys k WHERE k.id = p_id[i];
        o.n := i;
        o.at := clock_timestamp();
        v_state := idempotency_state(o, o.at);
        o.result := CASE
            WHEN v_state IS NULL THEN 'absent'
            WHEN NOT p_match[i] THEN 'found'
            WHEN o.fingerprint <> p_fingerprint[i]
                AND NOT (v_state = 'failed'
                    AND substr(o.fingerprint, 1, 1) = decode('00', 'hex')) THEN 'mismatch'
            WHEN v_state <> 'failed' AND o.principal IS DISTINCT FROM p_principal[i]
                THEN 'other_principal'
            ELSE 'found' END;
        IF o.result IN ('mismatch', 'other_principal') THEN
            PERFORM idempotency_floor(p_salt[i]);
        END IF;
        IF o.result <> 'found' THEN
            o.headers := NULL;
            o.body := NULL;
        END IF;
        RETURN NEXT o;
    END LOOP;
END $$;

-- p_completed: it was executed, with this answer; otherwise it was not, and the next claim
-- executes. The record gets a new owner, so that a late one is fenced off.
CREATE OR REPLACE FUNCTION idempotency_resolve(
    p_id bytea[], p_fence bigint[], p_updated_at timestamptz[], p_force boolean[],
    p_completed boolean[], p_owner bytea[], p_ttl interval[], p_status smallint[],
    p_flags integer[], p_tombstone text[], p_headers bytea[], p_body bytea[], p_who bytea[],
    p_why bytea[]
) RETURNS SETOF idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    o idempotency_result;
    v_state text;
    v_expires timestamptz;
BEGIN
    PERFORM k.id FROM idempotency_keys k WHERE k.id = ANY (p_id) ORDER BY k.id FOR UPDATE;
    FOR i IN 1 .. cardinality(p_id) LOOP
        SELECT i, NULL, NULL, k.* INTO o FROM idempotency_keys k WHERE k.id = p_id[i] FOR UPDATE;
        o.n := i;
        o.at := clock_timestamp();
        v_state := idempotency_state(o, o.at);
        o.result := CASE
            WHEN v_state IS NULL THEN 'absent'
            WHEN o.owner = p_owner[i] THEN 'ok' -- this very resolve again
            WHEN o.fence <> p_fence[i] OR o.updated_at <> p_updated_at[i] THEN 'changed'
            WHEN v_state <> 'unknown' AND NOT p_force[i] THEN 'refused'
            ELSE 'write' END;
        IF o.result = 'write' THEN
            v_expires := idempotency_after(o.at, p_ttl[i]);
            UPDATE idempotency_keys k SET
                state = CASE WHEN p_completed[i] THEN 'completed' ELSE 'failed' END,
                reason = NULL, owner = p_owner[i], updated_at = o.at, expires_at = v_expires,
                sweep_at = idempotency_sweep_at(k.sweep_at, v_expires),
                status = p_status[i], flags = p_flags[i], tombstone = p_tombstone[i],
                headers = p_headers[i], body = p_body[i], resolved_by = p_who[i],
                resolved_why = p_why[i], resolved_at = o.at
            WHERE k.id = p_id[i];
            IF o.kind IS DISTINCT FROM 'selftest' THEN
                PERFORM idempotency_audit_add('resolve', p_id[i], v_state, o.fence, p_who[i],
                    p_why[i]);
            END IF;
            o.result := 'ok';
            o.tombstone := p_tombstone[i];
        ELSIF o.result <> 'ok' THEN
            o.tombstone := NULL;
        END IF;
        o.headers := NULL;
        o.body := NULL;
        RETURN NEXT o;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION idempotency_forget(
    p_id bytea[], p_force boolean[], p_who bytea[], p_why bytea[]
)
RETURNS SETOF idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    o idempotency_result;
    v_state text;
BEGIN
    PERFORM k.id FROM idempotency_keys k WHERE k.id = ANY (p_id) ORDER BY k.id FOR UPDATE;
    FOR i IN 1 .. cardinality(p_id) LOOP
        SELECT i, NULL, NULL, k.* INTO o FROM idempotency_keys k WHERE k.id = p_id[i] FOR UPDATE;
        o.n := i;
        o.at := clock_timestamp();
        v_state := idempotency_state(o, o.at);
        o.result := CASE
            WHEN v_state IS NULL THEN 'absent'
            WHEN v_state = 'processing' AND NOT p_force[i] THEN 'refused'
            ELSE 'ok' END;
        IF o.result = 'ok' THEN
            DELETE FROM idempotency_keys k WHERE k.id = p_id[i];
            UPDATE idempotency_meta SET fence_floor = greatest(fence_floor, o.fence) WHERE one;
            IF o.kind IS DISTINCT FROM 'selftest' THEN
                PERFORM idempotency_audit_add('forget', p_id[i], v_state, o.fence, p_who[i],
                    p_why[i]);
            END IF;
        END IF;
        o.headers := NULL;
        o.body := NULL;
        RETURN NEXT o;
    END LOOP;
END $$;
