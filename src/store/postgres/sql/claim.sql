-- Claiming. Most claims are of new ids: they go in with one INSERT, alone or as a batch.

-- What a claim comes to that meets this; `take` when it may have the id.
CREATE OR REPLACE FUNCTION idempotency_claim_word(
    r idempotency_result, at timestamptz, p_fingerprint bytea, p_principal bytea, p_owner bytea,
    p_take bigint
) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_state text := idempotency_state(r, at);
    v_trace boolean := v_state = 'failed' AND substr(r.fingerprint, 1, 1) = decode('00', 'hex');
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

-- One claim of an id that is there, or of any when there is no room for new ones.
CREATE OR REPLACE FUNCTION idempotency_claim_known(
    p_n integer, p_room boolean, p_salt bytea, p_id bytea, p_kind text, p_scope bytea,
    p_key bytea, p_method bytea, p_path bytea, p_fingerprint bytea, p_principal bytea,
    p_owner bytea, p_lease interval, p_unknown_ttl interval, p_ttl interval, p_take bigint
) RETURNS idempotency_result LANGUAGE plpgsql AS $$
DECLARE
    o idempotency_result;
    v_there boolean;
    v_lock boolean;
    v_live boolean;
    v_until timestamptz;
    v_expires timestamptz;
    v_above bigint;
BEGIN
    FOREACH v_lock IN ARRAY ARRAY[false, true] LOOP
        IF v_lock THEN
            SELECT p_n, NULL, NULL, k.* INTO o FROM idempotency_keys k WHERE k.id = p_id
            FOR UPDATE;
        ELSE
            SELECT p_n, NULL, NULL, k.* INTO o FROM idempotency_keys k WHERE k.id = p_id;
        END IF;
        v_there := FOUND;
        o.n := p_n;
        o.at := clock_timestamp();
        o.result := 'take';
        IF v_there THEN
            o.result := idempotency_claim_word(o, o.at, p_fingerprint, p_principal, p_owner,
                p_take);
        END IF;
        IF o.result = 'take' AND NOT p_room THEN
            o.result := 'full';
        ELSIF o.result IN ('mismatch', 'other_principal') THEN
            PERFORM idempotency_floor(p_salt);
        END IF;
        EXIT WHEN o.result <> 'take' OR NOT v_there;
    END LOOP;
    IF o.result = 'take' AND NOT v_there THEN
        RAISE EXCEPTION 'this id was removed while it was claimed' USING ERRCODE = '40001';
    ELSIF o.result = 'take' THEN
        v_until := idempotency_after(o.at, p_lease);
        v_expires := idempotency_after(v_until, p_unknown_ttl);
        v_live := idempotency_state(o, o.at) IS NOT NULL;
        o.fence := greatest(idempotency_above(o.fence), idempotency_us(o.at));
        o.attempt := CASE WHEN v_live THEN least(o.attempt + 1, 4294967295) ELSE 1 END;
        UPDATE idempotency_keys k SET kind = p_kind, scope = p_scope, key = p_key,
            method = p_method, path = p_path, fingerprint = p_fingerprint,
            principal = p_principal, state = 'processing', reason = NULL, owner = p_owner,
            fence = o.fence, attempt = o.attempt, lease = p_lease, lease_until = v_until,
            created_at = CASE WHEN v_live THEN k.created_at ELSE o.at END,
            updated_at = o.at, expires_at = v_expires,
            sweep_at = least(idempotency_guess(o.at, p_lease, p_ttl), v_expires),
            status = NULL, flags = NULL, tombstone = NULL, headers = NULL, body = NULL,
            resolved_by = NULL, resolved_why = NULL, resolved_at = NULL
        WHERE k.id = p_id;
        v_above := idempotency_floor(p_salt);
        IF v_above > o.fence THEN
            UPDATE idempotency_keys k SET fence = v_above WHERE k.id = p_id;
            o.fence := v_above;
        END IF;
        o.result := 'acquired';
    END IF;
    IF o.result <> 'completed' THEN
        o.headers := NULL;
        o.body := NULL;
    END IF;
    RETURN o;
END $$;

-- p_salt: that of fingerprints and principals. p_take: NULL takes no unknown over, -1 any, another
-- number the one with that fence.
--
-- As a function of its own because a batch of one is the rule, and arrays a third of its work (docs/adr/0010).
CREATE OR REPLACE FUNCTION idempotency_claim_lone(
    p_room boolean, p_salt bytea, p_id bytea, p_kind text, p_scope bytea, p_key bytea,
    p_method bytea, p_path bytea, p_fingerprint bytea, p_principal bytea, p_owner bytea,
    p_lease interval, p_unknown_ttl interval, p_ttl interval, p_take bigint
) RETURNS idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_room boolean := p_room OR p_kind = 'selftest';
    o idempotency_result;
    v_until timestamptz;
    v_expires timestamptz;
    v_above bigint;
BEGIN
    IF v_room THEN
        o.at := clock_timestamp();
        o.fence := greatest(idempotency_us(o.at), 1);
        v_until := idempotency_after(o.at, p_lease);
        v_expires := idempotency_after(v_until, p_unknown_ttl);
        INSERT INTO idempotency_keys (id, kind, scope, key, method, path, fingerprint, principal,
            state, owner, fence, attempt, lease, lease_until, created_at, updated_at,
            expires_at, sweep_at)
        SELECT p_id, p_kind, p_scope, p_key, p_method, p_path, p_fingerprint, p_principal,
            'processing', p_owner, o.fence, 1, p_lease, v_until, o.at, o.at,
            v_expires, least(idempotency_guess(o.at, p_lease, p_ttl), v_expires)
        -- Without this it would wait for whoever changes a row that is there.
        WHERE NOT EXISTS (SELECT FROM idempotency_keys k WHERE k.id = p_id)
        ON CONFLICT (id) DO NOTHING;
        IF FOUND THEN
            v_above := idempotency_floor(p_salt);
            IF v_above > o.fence THEN
                UPDATE idempotency_keys k SET fence = v_above WHERE k.id = p_id;
                o.fence := v_above;
            END IF;
            o.n := 1;
            o.attempt := 1;
            o.result := 'acquired';
            RETURN o;
        END IF;
    END IF;
    RETURN idempotency_claim_known(1, v_room, p_salt, p_id, p_kind, p_scope, p_key, p_method,
        p_path, p_fingerprint, p_principal, p_owner, p_lease, p_unknown_ttl, p_ttl, p_take);
END $$;

-- The same of several.
CREATE OR REPLACE FUNCTION idempotency_claim(
    p_room boolean, p_salt bytea[], p_id bytea[], p_kind text[], p_scope bytea[],
    p_key bytea[], p_method bytea[], p_path bytea[], p_fingerprint bytea[],
    p_principal bytea[], p_owner bytea[], p_lease interval[], p_unknown_ttl interval[],
    p_ttl interval[], p_take bigint[]
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
    IF p_room OR 'selftest' = ANY (p_kind) THEN
        SELECT coalesce(array_agg(k.id), '{}') INTO v_known
        FROM idempotency_keys k WHERE k.id = ANY (p_id);
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
        WHERE p_id[i] <> ALL (v_known) AND (p_room OR p_kind[i] = 'selftest')
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
        o.fence := greatest(v_fence, idempotency_floor(p_salt[1]));
        IF o.fence > v_fence THEN
            UPDATE idempotency_keys k SET fence = o.fence
            FROM generate_series(1, cardinality(p_id)) AS i
            WHERE k.id = p_id[i] AND p_id[i] <> ALL (v_known);
        END IF;
        RETURN NEXT o;
    END IF;
    IF v_count < cardinality(p_id) THEN
        FOR i IN 1 .. cardinality(p_id) LOOP
            CONTINUE WHEN v_count > 0 AND p_id[i] <> ALL (v_known);
            RETURN NEXT idempotency_claim_known(i, p_room OR p_kind[i] = 'selftest', p_salt[i],
                p_id[i], p_kind[i], p_scope[i], p_key[i], p_method[i], p_path[i],
                p_fingerprint[i], p_principal[i], p_owner[i], p_lease[i], p_unknown_ttl[i],
                p_ttl[i], p_take[i]);
        END LOOP;
    END IF;
END $$;
