/* Made by sql/embed from sql/tables_drop.sql: change that, then run it. */
#include "store/postgres/schema.h"

/* clang-format off */
const char *const idem_pg_sql_tables_drop[] = {
"DROP VIEW IF EXISTS idempotency_records;",
"DROP FUNCTION IF EXISTS idempotency_text(bytea), idempotency_version(), idempotency_rules();",
"DROP TABLE IF EXISTS idempotency_keys, idempotency_audit, idempotency_meta;",
NULL,
};
