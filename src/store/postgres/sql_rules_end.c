/* Made by sql/embed from sql/rules_end.sql: change that, then run it. */
#include "store/postgres/schema.h"

/* clang-format off */
const char *const idem_pg_sql_rules_end[] = {
"DO $$",
"DECLARE",
"    f regprocedure;",
"BEGIN",
"    FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace",
"        WHERE s.nspname = current_schema() AND p.proname LIKE 'idempotency\\_%'",
"        AND p.proname <> 'idempotency_text' LOOP",
"        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);",
"    END LOOP;",
"END $$;",
NULL,
};
