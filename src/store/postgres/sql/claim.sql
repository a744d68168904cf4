-- Claiming. Most claims are of new ids: those go in with one INSERT.

-- What a claim comes to that meets this; `take` when it may have the id.
CREATE FUNCTION idempotency_claim_word(
    r idempotency_result, at timestamptz, p_fingerprint bytea, p_principal bytea, p_owner bytea,
    p_take bigint
) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_state text := idempotency_state(r, at);
    v_trace boolean := v_state = 'failed' AND get_byte(r.fingerprint, 0) = 0;
BEGIN
    IF v_state IS NULL THEN
        RETURN 'take';
    ELSIF r.fingerprint <> p_fingerprint AND NOT v_trace THEN
        RETURN 'mismatch';
    ELSIF r.owner = p_owner THEN
        RETURN CASE v_state WHEN 'processing' THEN 'acquired' ELSE 'ended' END;
    ELSIF v_state = 'failed' THEN
        RETURN 'take';
    ELSIF r.principal IS DISTINCT FROM p_principal THEN
        RETURN 'other_principal';
    ELSIF v_state = 'processing' THEN
        RETURN 'in_progress';
    ELSIF v_state = 'unknown' THEN
        RETURN CASE WHEN p_take = -1 OR p_take = r.fence THEN 'take' ELSE 'unknown' END;
    ELSE
        RETURN 'completed';
    END IF;
END $$;

-- Gives ids that were just written under a fence one above that of all that is gone, where theirs
-- is not. To be asked after the write: only then has whoever removed the id before committed.
-- p_other are ids among them that were not written.
CREATE FUNCTION idempotency_fence_lift(
    p_fence bigint, p_id bytea[], p_owner bytea[], p_other bytea[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_fence bigint;
BEGIN
    SELECT greatest(p_fence, idempotency_above(fence_floor)) INTO v_fence
    FROM idempotency_meta WHERE one;
    IF v_fence > p_fence THEN
        UPDATE idempotency_keys k SET fence = v_fence
        FROM generate_series(1, cardinality(p_id)) AS i
        WHERE k.id = p_id[i] AND k.owner = p_owner[i] AND k.fence = p_fence
            AND p_id[i] <> ALL (p_other);
    END IF;
    RETURN v_fence;
END $$;

-- One claim, with everything that it can meet.
CREATE FUNCTION idempotency_claim_one(
    p_n integer, p_room boolean, p_id bytea, p_kind text, p_scope bytea, p_key bytea,
    p_method bytea, p_path bytea, p_fingerprint bytea, p_principal bytea, p_owner bytea,
    p_lease interval, p_unknown_ttl interval, p_ttl interval, p_take bigint
) RETURNS idempotency_result LANGUAGE plpgsql AS $$
DECLARE
    o idempotency_result;
    v_lock boolean := false;
    v_live boolean;
    v_until timestamptz;
    v_expires timestamptz;
BEGIN
    FOR v_try IN 1 .. 100 LOOP
        IF v_lock THEN
            SELECT p_n, NULL, NULL, k.* INTO o FROM idempotency_keys k WHERE k.id = p_id
            FOR UPDATE;
        ELSE
            SELECT p_n, NULL, NULL, k.* INTO o FROM idempotency_keys k WHERE k.id = p_id;
        END IF;
        o.n := p_n;
        o.at := clock_timestamp();
        o.result := idempotency_claim_word(o, o.at, p_fingerprint, p_principal, p_owner, p_take);
        IF o.result = 'take' AND NOT p_room THEN
            o.result := 'full';
        END IF;
        IF o.result <> 'take' THEN
            RETURN o;
        END IF;
        IF o.id IS NOT NULL AND NOT v_lock THEN
            v_lock := true;
            CONTINUE;
        END IF;
        v_live := idempotency_state(o, o.at) IS NOT NULL;
        v_until := idempotency_after(o.at, p_lease);
        v_expires := idempotency_after(v_until, p_unknown_ttl);
        o.fence := greatest(coalesce(idempotency_above(o.fence), 1), idempotency_us(o.at));
        o.attempt := CASE WHEN v_live THEN least(o.attempt + 1, 4294967295) ELSE 1 END;
        INSERT INTO idempotency_keys AS k (id, kind, scope, key, method, path, fingerprint,
            principal, state, owner, fence, attempt, lease, lease_until, created_at, updated_at,
            expires_at, sweep_at)
        VALUES (p_id, p_kind, p_scope, p_key, p_method, p_path, p_fingerprint,
            p_principal, 'processing', p_owner, o.fence, o.attempt, p_lease, v_until,
            CASE WHEN v_live THEN o.created_at ELSE o.at END, o.at,
            v_expires, least(idempotency_guess(o.at, p_lease, p_ttl), v_expires))
        ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, scope = excluded.scope,
            key = excluded.key, method = excluded.method, path = excluded.path,
            fingerprint = excluded.fingerprint, principal = excluded.principal,
            state = excluded.state, reason = NULL, owner = excluded.owner,
            fence = excluded.fence, attempt = excluded.attempt, lease = excluded.lease,
            lease_until = excluded.lease_until, created_at = excluded.created_at,
            updated_at = excluded.updated_at, expires_at = excluded.expires_at,
            sweep_at = excluded.sweep_at, status = NULL, flags = NULL, tombstone = NULL,
            headers = NULL, body = NULL, resolved_by = NULL, resolved_why = NULL,
            resolved_at = NULL
            WHERE o.id IS NOT NULL; -- otherwise another one was quicker
        IF FOUND THEN
            o.result := 'acquired';
            o.fence := idempotency_fence_lift(o.fence, ARRAY[p_id], ARRAY[p_owner], '{}');
            RETURN o;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'this id is claimed and removed again and again' USING ERRCODE = '40001';
END $$;

-- p_take: NULL takes no unknown over, -1 any, another number the one with that fence.
CREATE FUNCTION idempotency_claim(
    p_room boolean, p_id bytea[], p_kind text[], p_scope bytea[], p_key bytea[],
    p_method bytea[], p_path bytea[], p_fingerprint bytea[], p_principal bytea[],
    p_owner bytea[], p_lease interval[], p_unknown_ttl interval[], p_ttl interval[],
    p_take bigint[]
) RETURNS SETOF idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_fence bigint := greatest(idempotency_us(v_now), 1);
    v_known bytea[];
    v_count bigint := 0;
    o idempotency_result;
BEGIN
    SELECT coalesce(array_agg(k.id), '{}') INTO v_known
    FROM idempotency_keys k WHERE k.id = ANY (p_id);
    IF p_room THEN
        INSERT INTO idempotency_keys (id, kind, scope, key, method, path, fingerprint, principal,
            state, owner, fence, attempt, lease, lease_until, created_at, updated_at,
            expires_at, sweep_at)
        SELECT p_id[i], p_kind[i], p_scope[i], p_key[i], p_method[i], p_path[i],
            p_fingerprint[i], p_principal[i], 'processing', p_owner[i], v_fence, 1, p_lease[i],
            v_now + p_lease[i], v_now, v_now,
            idempotency_after(v_now + p_lease[i], p_unknown_ttl[i]),
            least(idempotency_guess(v_now, p_lease[i], p_ttl[i]),
                idempotency_after(v_now + p_lease[i], p_unknown_ttl[i]))
        FROM generate_series(1, cardinality(p_id)) AS i
        WHERE p_id[i] <> ALL (v_known)
        ON CONFLICT (id) DO NOTHING;
        GET DIAGNOSTICS v_count = ROW_COUNT;
    END IF;
    IF v_count > 0 THEN
        IF v_count + cardinality(v_known) < cardinality(p_id) THEN
            -- Others were quicker with some. Ours are those with this owner and this instant.
            SELECT array_agg(p_id[i]) INTO v_known
            FROM generate_series(1, cardinality(p_id)) AS i
            WHERE p_id[i] = ANY (v_known) OR NOT EXISTS (SELECT FROM idempotency_keys k
                WHERE k.id = p_id[i] AND k.owner = p_owner[i] AND k.fence = v_fence
                    AND k.created_at = v_now);
        END IF;
        o.n := 0;
        o.result := 'acquired';
        o.at := v_now;
        o.attempt := 1;
        o.fence := idempotency_fence_lift(v_fence, p_id, p_owner, v_known);
        RETURN NEXT o;
    END IF;
    IF v_count < cardinality(p_id) THEN
        FOR i IN 1 .. cardinality(p_id) LOOP
            CONTINUE WHEN v_count > 0 AND p_id[i] <> ALL (v_known);
            o := idempotency_claim_one(i, p_room OR p_kind[i] = 'selftest', p_id[i], p_kind[i],
                p_scope[i], p_key[i], p_method[i], p_path[i], p_fingerprint[i], p_principal[i],
                p_owner[i], p_lease[i], p_unknown_ttl[i], p_ttl[i], p_take[i]);
            IF o.result <> 'completed' THEN
                o.headers := NULL;
                o.body := NULL;
            END IF;
            RETURN NEXT o;
        END LOOP;
    END IF;
END $$;
