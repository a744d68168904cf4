-- Nobody may call any of it but the owner, until a GRANT says so (docs/guide/store-postgres.md).
-- idempotency_text knows nothing: who may read the view may call it.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
        WHERE s.nspname = current_schema() AND p.proname LIKE 'idempotency\_%'
        AND p.proname <> 'idempotency_text' LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
    END LOOP;
END $$;
