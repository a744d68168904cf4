-- What keeps the store: pages of records and of the audit, sweeping, copying.

-- Records in the order of their ids. Looks at no more than p_look rows, so that a filter that
-- takes few does not take long. The last row says `more` or `ok`, and the id to go on after.
-- p_kind: '' for all.
CREATE OR REPLACE FUNCTION idempotency_scan(
    p_state text[], p_from bytea, p_after boolean, p_to bytea, p_kind text, p_has_scope boolean,
    p_scope bytea, p_updated_since timestamptz, p_updated_before timestamptz, p_limit integer,
    p_look integer, p_bytes bigint
) RETURNS SETOF idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    o idempotency_result;
    v_now timestamptz := clock_timestamp();
    v_looked integer := 0;
    v_count integer := 0;
    v_bytes bigint := 0;
    v_last bytea;
    v_more boolean := false;
BEGIN
    FOR o IN
        SELECT 1, 'found', v_now, k.* FROM idempotency_keys k
        WHERE k.id >= p_from AND k.id <= p_to ORDER BY k.id LIMIT p_look + 2
    LOOP
        CONTINUE WHEN p_after AND o.id = p_from;
        IF v_looked = p_look THEN
            v_more := true;
            EXIT;
        END IF;
        IF o.expires_at <= v_now
            OR idempotency_state(o, v_now) <> ALL (p_state)
            OR (p_kind <> '' AND o.kind IS DISTINCT FROM p_kind)
            OR (p_has_scope AND o.scope <> p_scope)
            OR o.updated_at < p_updated_since OR o.updated_at >= p_updated_before THEN
            v_looked := v_looked + 1;
            v_last := o.id;
            CONTINUE;
        END IF;
        IF v_count = p_limit OR v_bytes >= p_bytes THEN
            v_more := true;
            EXIT;
        END IF;
        v_looked := v_looked + 1;
        v_last := o.id;
        v_count := v_count + 1;
        v_bytes := v_bytes + octet_length(o.key) + octet_length(o.scope) + octet_length(o.path)
            + coalesce(octet_length(o.headers), 0) + coalesce(octet_length(o.body), 0) + 256;
        RETURN NEXT o;
    END LOOP;
    o := NULL;
    o.n := 0;
    o.result := CASE WHEN v_more THEN 'more' ELSE 'ok' END;
    o.at := v_now;
    o.id := v_last;
    RETURN NEXT o;
END $$;

CREATE OR REPLACE FUNCTION idempotency_audit_page(p_after timestamptz, p_limit integer)
RETURNS TABLE (at timestamptz, id bytea, what text, was text, fence bigint, who bytea, why bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
    SELECT a.at, a.id, a.what, a.was, a.fence, a.who, a.why
    FROM idempotency_audit a WHERE a.at > p_after ORDER BY a.at LIMIT p_limit + 1
$$;

-- Removes what has expired: at most p_limit records, and at most p_bytes of answers once there is
-- one. Rows that others hold are left to a later sweep: a sweep waits for nobody. A record that
-- outlives the guess of its claim gets a better one.
--
-- A sweep goes on where the last one, of whatever gateway, has got to: behind that lie index
-- entries of rows that are gone, and as long as somebody's old snapshot might still see those, to
-- walk past them takes time. p_from: begin there instead, for what was left behind.
CREATE OR REPLACE FUNCTION idempotency_sweep(
    p_from timestamptz, p_limit integer, p_bytes bigint,
    OUT at timestamptz, OUT removed bigint, OUT unknown_removed bigint, OUT more boolean,
    OUT reached timestamptz
) LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    m idempotency_meta;
    v_fence bigint;
    v_now timestamptz := clock_timestamp();
    v_from timestamptz := p_from;
BEGIN
    at := v_now;
    IF v_from IS NULL THEN
        SELECT * INTO m FROM idempotency_meta WHERE one;
        v_from := CASE WHEN m.swept_at > v_now THEN '-infinity' -- the clock was stepped back
            ELSE m.swept_at END;
    END IF;
    WITH due AS MATERIALIZED (
        SELECT k.ctid AS place, k.sweep_at AS due_at,
            coalesce(octet_length(k.body), 0) AS size
        FROM idempotency_keys k WHERE k.sweep_at <= v_now AND k.sweep_at >= v_from
        ORDER BY k.sweep_at LIMIT p_limit + 1 FOR UPDATE SKIP LOCKED
    ), part AS MATERIALIZED (
        SELECT d.place, d.due_at FROM (
            SELECT due.*, row_number() OVER run AS number, sum(size) OVER run - size AS before
            FROM due WINDOW run AS (ORDER BY due_at ROWS UNBOUNDED PRECEDING)) AS d
        WHERE d.number <= p_limit AND d.before < p_bytes
    ), gone AS (
        DELETE FROM idempotency_keys k USING part
        WHERE k.ctid = part.place AND k.expires_at <= v_now
        RETURNING k.fence, k.state = 'unknown' OR k.state = 'processing'
            AND (k.lease_until <= v_now OR k.lease_until > v_now + k.lease + k.lease) AS unknown
    ), moved AS (
        UPDATE idempotency_keys k SET sweep_at = k.expires_at FROM part
        WHERE k.ctid = part.place AND k.expires_at > v_now
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM gone WHERE unknown),
        (SELECT max(fence) FROM gone), (SELECT count(*) FROM due) > (SELECT count(*) FROM part),
        (SELECT max(due_at) FROM part)
    INTO removed, unknown_removed, v_fence, more, reached;
    IF reached IS NOT NULL THEN
        UPDATE idempotency_meta SET fence_floor = greatest(fence_floor, v_fence),
            swept_at = CASE WHEN swept_at > v_now THEN reached
                ELSE greatest(swept_at, reached) END
        WHERE one;
    END IF;
END $$;

-- Copies records in as they are.
CREATE OR REPLACE FUNCTION idempotency_put(
    p_room boolean, p_salt bytea[], p_id bytea[], p_kind text[], p_scope bytea[],
    p_key bytea[], p_method bytea[], p_path bytea[], p_fingerprint bytea[],
    p_principal bytea[], p_state text[], p_reason text[], p_owner bytea[], p_fence bigint[],
    p_attempt bigint[], p_lease interval[], p_lease_until timestamptz[],
    p_created_at timestamptz[], p_updated_at timestamptz[], p_expires_at timestamptz[],
    p_status smallint[], p_flags integer[], p_tombstone text[], p_headers bytea[],
    p_body bytea[], p_resolved_by bytea[], p_resolved_why bytea[], p_resolved_at timestamptz[]
) RETURNS SETOF idempotency_result LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    o idempotency_result;
    v_state text;
BEGIN
    FOR i IN 1 .. cardinality(p_id) LOOP
        -- Nothing there is locked by writing it; only then can it be judged.
        INSERT INTO idempotency_keys
        SELECT p_id[i], p_kind[i], p_scope[i], p_key[i], p_method[i], p_path[i],
            p_fingerprint[i], p_principal[i], p_state[i], p_reason[i], p_owner[i], p_fence[i],
            p_attempt[i], p_lease[i], p_lease_until[i], p_created_at[i], p_updated_at[i],
            p_expires_at[i], greatest(p_expires_at[i], clock_timestamp()), p_status[i],
            p_flags[i], p_tombstone[i], p_headers[i], p_body[i], p_resolved_by[i],
            p_resolved_why[i], p_resolved_at[i]
        WHERE p_room
        ON CONFLICT (id) DO NOTHING;
        IF FOUND THEN
            o := NULL;
            o.n := i;
            o.result := 'ok';
            o.at := clock_timestamp();
            RETURN NEXT o;
            CONTINUE;
        END IF;
        SELECT i, NULL, NULL, k.* INTO o FROM idempotency_keys k WHERE k.id = p_id[i] FOR UPDATE;
        o.n := i;
        o.at := clock_timestamp();
        v_state := idempotency_state(o, o.at);
        o.result := CASE
            WHEN o.id IS NULL AND p_room THEN 'again' -- removed just now
            WHEN v_state IS NOT NULL AND o.fence = p_fence[i] AND o.updated_at = p_updated_at[i]
                AND o.owner = p_owner[i] THEN 'ok'
            WHEN v_state IS NOT NULL AND o.fence = p_fence[i]
                AND o.updated_at >= p_updated_at[i] THEN 'changed'
            WHEN v_state IS NOT NULL AND o.fence <> p_fence[i]
                AND (o.fence > p_fence[i] OR v_state NOT IN ('failed', 'unknown')) THEN 'changed'
            WHEN NOT p_room THEN 'full'
            ELSE 'write' END;
        IF o.result = 'again' THEN
            RAISE EXCEPTION 'this id was removed while it was put' USING ERRCODE = '40001';
        ELSIF o.result = 'write' THEN
            UPDATE idempotency_keys k SET kind = p_kind[i], scope = p_scope[i], key = p_key[i],
                method = p_method[i], path = p_path[i], fingerprint = p_fingerprint[i],
                principal = p_principal[i], state = p_state[i], reason = p_reason[i],
                owner = p_owner[i], fence = p_fence[i], attempt = p_attempt[i],
                lease = p_lease[i], lease_until = p_lease_until[i],
                created_at = p_created_at[i], updated_at = p_updated_at[i],
                expires_at = p_expires_at[i],
                sweep_at = greatest(p_expires_at[i], clock_timestamp()),
                status = p_status[i], flags = p_flags[i], tombstone = p_tombstone[i],
                headers = p_headers[i], body = p_body[i], resolved_by = p_resolved_by[i],
                resolved_why = p_resolved_why[i], resolved_at = p_resolved_at[i]
            WHERE k.id = p_id[i];
            o.result := 'ok';
        END IF;
        o.headers := NULL;
        o.body := NULL;
        RETURN NEXT o;
    END LOOP;
    PERFORM idempotency_floor(p_salt[1]);
END $$;
