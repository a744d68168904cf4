/* Made by sql/embed from sql/rules_end.sql: change that, then run it. */
#include "store/postgres/schema.h"

/* clang-format off */
const char *const idem_pg_sql_rules_end[] = {
"DO $$",
"DECLARE",
"    f regprocedure;",
"BEGIN",
"    SELECT p.oid INTO f FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace",
"        AND starts_with(p.proname, 'idempotency_')",
"        AND p.xmin <> (txid_current() % 4294967296)::text::xid LIMIT 1;",
"    IF FOUND THEN",
"        RAISE EXCEPTION",
"            'the function % is not idem''s: drop it, or move it to another schema', f;",
"    END IF;",
"END $$;",
"DO $$",
"DECLARE",
"    f regprocedure;",
"BEGIN",
"    FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace",
"        WHERE s.nspname = current_schema() AND starts_with(p.proname, 'idempotency_')",
"        AND p.proname <> 'idempotency_text' LOOP",
"        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);",
"    END LOOP;",
"END $$;",
"UPDATE idempotency_meta SET rules = idempotency_rules()",
"WHERE rules IS DISTINCT FROM idempotency_rules();",
NULL,
};
