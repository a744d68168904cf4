-- Schema version 1, and all that follow: what may be made again at any time, also while gateways
-- run. `idem migrate` does so when it finds its version.

-- Bytes for people: as text where they are text, otherwise with escapes.
CREATE OR REPLACE FUNCTION idempotency_text(bytes bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN others THEN
    RETURN encode(bytes, 'escape');
END $$;

-- The view is made anew only where it differs: that waits for all who read it.
DO $do$
DECLARE
    v_view text := $view$
SELECT encode(id, 'hex') AS id, kind, idempotency_text(scope) AS scope,
    idempotency_text(key) AS key, idempotency_text(method) AS method,
    idempotency_text(path) AS path,
    CASE WHEN state = 'processing' AND (lease_until <= clock_timestamp()
            OR lease_until > clock_timestamp() + lease + lease)
        THEN 'unknown' ELSE state END AS state,
    reason, fence, attempt, lease, lease_until, created_at, updated_at, expires_at, status,
    tombstone, octet_length(body) AS body_size, idempotency_text(resolved_by) AS resolved_by,
    idempotency_text(resolved_why) AS resolved_why, resolved_at
FROM idempotency_keys
WHERE expires_at > clock_timestamp() $view$;
BEGIN
    EXECUTE 'CREATE VIEW idempotency_records_wanted AS' || v_view;
    IF pg_get_viewdef(to_regclass('idempotency_records'))
        IS DISTINCT FROM pg_get_viewdef('idempotency_records_wanted'::regclass) THEN
        BEGIN
            EXECUTE 'CREATE OR REPLACE VIEW idempotency_records AS' || v_view;
        EXCEPTION WHEN invalid_table_definition THEN -- it has other columns
            DROP VIEW idempotency_records;
            EXECUTE 'CREATE VIEW idempotency_records AS' || v_view;
        END;
    END IF;
    DROP VIEW idempotency_records_wanted;
END $do$;

-- What the functions of this schema are, in short. That of the schema's own is kept beside its
-- version, so one that was dropped, replaced or put beside them by hand is noticed.
CREATE OR REPLACE FUNCTION idempotency_rules() RETURNS bytea
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET quote_all_identifiers = off AS $$
    SELECT sha256(convert_to(string_agg(
        concat_ws(' ', p.oid::regprocedure::text, p.prosecdef, p.provolatile, p.prosrc),
        ' ' ORDER BY p.oid::regprocedure::text COLLATE "C"), 'UTF8'))
    FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = current_schema()::regnamespace
        AND starts_with(p.proname, 'idempotency_')
$$;
REVOKE ALL ON FUNCTION idempotency_rules() FROM PUBLIC;

-- Always there, in every version: what a gateway asks before anything else.
CREATE OR REPLACE FUNCTION idempotency_version() RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    m idempotency_meta;
BEGIN
    SELECT * INTO m FROM idempotency_meta WHERE one;
    IF m.rules <> idempotency_rules() OR to_regclass('idempotency_keys') IS NULL
        OR to_regclass('idempotency_audit') IS NULL THEN
        RAISE EXCEPTION 'the schema "%" lacks functions of idem or tables, or has others in '
            'their place: run `idem migrate URL` as the role that owns them', current_schema()
            USING ERRCODE = '55000';
    END IF;
    RETURN m.schema_version;
END $$;
REVOKE ALL ON FUNCTION idempotency_version() FROM PUBLIC;

-- Every column is there; nothing can make one again.
DO $$
BEGIN
    PERFORM id, kind, scope, key, method, path, fingerprint, principal, state, reason, owner,
        fence, attempt, lease, lease_until, created_at, updated_at, expires_at, sweep_at, status,
        flags, tombstone, headers, body, resolved_by, resolved_why, resolved_at
    FROM idempotency_keys LIMIT 0;
    PERFORM number, at, id, what, was, fence, who, why FROM idempotency_audit LIMIT 0;
    PERFORM one, schema_version, rules, made_schema, salt, fence_floor, swept_at, audit_number,
        audit_at
    FROM idempotency_meta LIMIT 0;
END $$;

-- Last, for whoever writes waits from then on until all of this is done.
--
-- In the order of time, so that claims append to it and sweeps eat it from the front. It is on the
-- guess and not on expires_at: a verdict moves expires_at and would have to write here as well.
DO $$
BEGIN
    IF to_regclass('idempotency_keys_sweep') IS NULL THEN
        CREATE INDEX idempotency_keys_sweep ON idempotency_keys (sweep_at);
    END IF;
END $$;
