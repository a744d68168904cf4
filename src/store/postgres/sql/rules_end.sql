-- Every one was written just now. What was not is somebody else's, and by its name could be called
-- in the place of one of these.
DO $$
DECLARE
    f regprocedure;
BEGIN
    SELECT p.oid INTO f FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
        AND starts_with(p.proname, 'idempotency_')
        AND p.xmin <> (txid_current() % 4294967296)::text::xid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION
            'the function % is not idem''s: drop it, or move it to another schema', f;
    END IF;
END $$;

-- Nobody may call any of it but the owner, until a GRANT says so (docs/guide/store-postgres.md).
-- idempotency_text knows nothing: who may read the view may call it.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
        WHERE s.nspname = current_schema() AND starts_with(p.proname, 'idempotency_')
        AND p.proname <> 'idempotency_text' LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
    END LOOP;
END $$;

-- This is what they are.
UPDATE idempotency_meta SET rules = idempotency_rules()
WHERE rules IS DISTINCT FROM idempotency_rules();
