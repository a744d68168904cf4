-- Renewing, and the three verdicts. Most are completes of a record that awaits its owner's word:
-- those are one UPDATE.

-- What one of them comes to that meets this; `write` when it changes the record, `trace` when it
-- is a fail on an absent id.
CREATE OR REPLACE FUNCTION idempotency_verdict_word(
    r idempotency_result, at timestamptz, p_op text, p_owner bytea
) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_state text := idempotency_state(r, at);
BEGIN
    IF v_state IS NULL AND p_op = 'fail' THEN
        RETURN 'trace';
    ELSIF v_state IS NULL OR r.owner <> p_owner THEN
        RETURN 'lost';
    ELSIF p_op = 'renew' THEN
        RETURN CASE v_state WHEN 'processing' THEN 'write' ELSE 'lost' END;
    ELSIF p_op = 'abandon' AND r.state = 'unknown' THEN
        RETURN 'ok'; -- the same word again
    ELSIF v_state IN ('processing', 'unknown') THEN
        RETURN 'write';
    ELSIF (p_op = 'complete' AND v_state = 'completed')
        OR (p_op = 'fail' AND v_state = 'failed') THEN
        RETURN 'ok'; -- the first one stands, and this is it
    ELSE
        RETURN 'lost';
    END IF;
END $$;

-- Leaves FAILED for one lease on an id whose claim was not seen: should that claim still come, it
-- finds its owner there, and ends. False when another one is quicker. r is what is there: nothing,
-- or an expired record that is locked.
CREATE OR REPLACE FUNCTION idempotency_trace(
    r idempotency_result, at timestamptz, p_id bytea, p_owner bytea, p_lease interval
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_fence bigint := greatest(coalesce(idempotency_above(r.fence), 1), idempotency_us(at));
    v_above bigint;
    v_expires timestamptz := idempotency_after(at, p_lease);
BEGIN
    INSERT INTO idempotency_keys AS k (id, scope, key, method, path, fingerprint, state, owner,
        fence, attempt, lease, lease_until, created_at, updated_at, expires_at, sweep_at)
    VALUES (p_id, '', '', '', '', decode(repeat('00', 33), 'hex'), 'failed', p_owner,
        v_fence, 0, p_lease, at, at, at, v_expires, v_expires)
    ON CONFLICT (id) DO UPDATE SET kind = NULL, scope = '', key = '', method = '', path = '',
        fingerprint = excluded.fingerprint, principal = NULL, state = 'failed', reason = NULL,
        owner = excluded.owner, fence = excluded.fence, attempt = 0, lease = excluded.lease,
        lease_until = at, created_at = at, updated_at = at, expires_at = excluded.expires_at,
        sweep_at = excluded.sweep_at, status = NULL, flags = NULL, tombstone = NULL,
        headers = NULL, body = NULL, resolved_by = NULL, resolved_why = NULL, resolved_at = NULL
        WHERE r.id IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_above := idempotency_floor(NULL);
    UPDATE idempotency_keys k SET fence = v_above WHERE k.id = p_id AND v_above > v_fence;
    RETURN true;
END $$;

-- Writes what idempotency_verdict_word has allowed into a record that is locked.
CREATE OR REPLACE FUNCTION idempotency_verdict_write(
    r idempotency_result, at timestamptz, p_op text, p_ttl interval, p_lease interval,
    p_unknown_ttl interval, p_reason text, p_status smallint, p_flags integer,
    p_tombstone text, p_headers bytea, p_body bytea
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_until timestamptz := r.lease_until;
    v_lease interval := r.lease;
    v_expires timestamptz := r.expires_at;
BEGIN
    IF p_op = 'renew' THEN
        -- Never back. When the old end stands, so does the old length.
        IF idempotency_after(at, p_lease) > v_until THEN
            v_until := idempotency_after(at, p_lease);
            v_lease := p_lease;
        END IF;
        v_expires := idempotency_after(v_until, p_unknown_ttl);
    ELSIF p_op <> 'abandon' THEN
        v_expires := idempotency_after(at, p_ttl);
    END IF;
    UPDATE idempotency_keys k SET
        state = CASE p_op WHEN 'renew' THEN 'processing' WHEN 'complete' THEN 'completed'
            WHEN 'fail' THEN 'failed' ELSE 'unknown' END,
        reason = p_reason, lease = v_lease, lease_until = v_until, updated_at = at,
        expires_at = v_expires,
        sweep_at = idempotency_sweep_at(k.sweep_at, v_expires),
        status = p_status, flags = p_flags, tombstone = p_tombstone, headers = p_headers,
        body = p_body
    WHERE k.id = r.id;
END $$;

-- One of them, with everything that it can meet. A record that is completed by now is told the
-- same: it is the same word again. For that it must have lived on after p_asked, and may have
-- expired since, as after a wait for another row.
CREATE OR REPLACE FUNCTION idempotency_verdict_any(
    p_n integer, p_asked timestamptz, p_op text, p_id bytea, p_owner bytea, p_ttl interval,
    p_lease interval, p_unknown_ttl interval, p_reason text, p_status smallint, p_flags integer,
    p_tombstone text, p_headers bytea, p_body bytea
) RETURNS idempotency_result LANGUAGE plpgsql AS $$
DECLARE
    o idempotency_result;
    v_lock boolean := false;
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
        o.result := idempotency_verdict_word(o, o.at, p_op, p_owner);
        IF o.result = 'lost' AND p_op = 'complete' AND o.owner = p_owner
            AND o.state = 'completed' AND o.expires_at > p_asked THEN
            o.result := 'ok';
        END IF;
        o.headers := NULL;
        o.body := NULL;
        IF o.result IN ('ok', 'lost') THEN
            RETURN o;
        ELSIF o.id IS NOT NULL AND NOT v_lock THEN
            v_lock := true;
        ELSIF o.result = 'write' THEN
            PERFORM idempotency_verdict_write(o, o.at, p_op, p_ttl, p_lease, p_unknown_ttl,
                p_reason, p_status, p_flags, p_tombstone, p_headers, p_body);
            o.result := 'ok';
            o.tombstone := p_tombstone;
            RETURN o;
        ELSIF idempotency_trace(o, o.at, p_id, p_owner, p_lease) THEN
            o.result := 'ok';
            RETURN o;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'this id is claimed and removed again and again' USING ERRCODE = '40001';
END $$;

-- p_op: renew, complete, fail or abandon. A complete has a status, 0 for none.
--
-- Should a row be locked by another one, its instants are those before the wait: its life ends that
-- much earlier, never later. Who it belongs to is looked at again after the wait.
CREATE OR REPLACE FUNCTION idempotency_verdict_lone(
    p_op text, p_id bytea, p_owner bytea, p_ttl interval, p_lease interval,
    p_unknown_ttl interval, p_reason text, p_status smallint, p_flags integer,
    p_tombstone text, p_headers bytea, p_body bytea
) RETURNS idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_expires timestamptz;
    o idempotency_result;
BEGIN
    IF p_op = 'complete' AND p_ttl > interval '0' THEN
        v_expires := idempotency_after(v_now, p_ttl);
        UPDATE idempotency_keys k SET state = 'completed', reason = NULL, updated_at = v_now,
            expires_at = v_expires, sweep_at = idempotency_sweep_at(k.sweep_at, v_expires),
            status = p_status, flags = p_flags, tombstone = p_tombstone, headers = p_headers,
            body = p_body
        WHERE k.id = p_id AND k.owner = p_owner AND k.state IN ('processing', 'unknown')
            AND k.expires_at > v_now;
        IF FOUND THEN
            o.n := 1;
            o.result := 'ok';
            o.at := v_now;
            o.tombstone := p_tombstone;
            RETURN o;
        END IF;
    END IF;
    RETURN idempotency_verdict_any(1, v_now, p_op, p_id, p_owner, p_ttl, p_lease, p_unknown_ttl,
        p_reason, p_status, p_flags, p_tombstone, p_headers, p_body);
END $$;

-- The same of several.
CREATE OR REPLACE FUNCTION idempotency_verdict(
    p_op text[], p_id bytea[], p_owner bytea[], p_ttl interval[], p_lease interval[],
    p_unknown_ttl interval[], p_reason text[], p_status smallint[], p_flags integer[],
    p_tombstone text[], p_headers bytea[], p_body bytea[]
) RETURNS SETOF idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_count bigint;
    o idempotency_result;
BEGIN
    UPDATE idempotency_keys k SET state = 'completed', reason = NULL, updated_at = v_now,
        expires_at = idempotency_after(v_now, p_ttl[i]),
        sweep_at = idempotency_sweep_at(k.sweep_at, idempotency_after(v_now, p_ttl[i])),
        status = p_status[i], flags = p_flags[i], tombstone = p_tombstone[i],
        headers = p_headers[i], body = p_body[i]
    FROM generate_series(1, cardinality(p_id)) AS i
    WHERE k.id = p_id[i] AND p_op[i] = 'complete' AND k.owner = p_owner[i]
        AND k.state IN ('processing', 'unknown') AND k.expires_at > v_now
        AND p_ttl[i] > interval '0';
    GET DIAGNOSTICS v_count = ROW_COUNT;
    o.n := 0;
    o.result := 'ok';
    o.at := v_now;
    RETURN NEXT o;
    IF v_count < cardinality(p_id) THEN
        FOR i IN 1 .. cardinality(p_id) LOOP
            RETURN NEXT idempotency_verdict_any(i, v_now, p_op[i], p_id[i], p_owner[i], p_ttl[i],
                p_lease[i], p_unknown_ttl[i], p_reason[i], p_status[i], p_flags[i],
                p_tombstone[i], p_headers[i], p_body[i]);
        END LOOP;
    END IF;
END $$;
