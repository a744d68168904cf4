/* Made by sql/embed from sql/rules_drop.sql: change that, then run it. */
#include "store/postgres/schema.h"

/* clang-format off */
const char *const idem_pg_sql_rules_drop[] = {
"DROP FUNCTION IF EXISTS idempotency_claim, idempotency_claim_lone, idempotency_claim_known,",
"    idempotency_claim_word, idempotency_verdict, idempotency_verdict_lone,",
"    idempotency_verdict_any, idempotency_verdict_write, idempotency_verdict_word,",
"    idempotency_trace, idempotency_floor, idempotency_get, idempotency_resolve,",
"    idempotency_forget, idempotency_audit_add, idempotency_audit_page, idempotency_scan,",
"    idempotency_sweep, idempotency_put, idempotency_adopt, idempotency_salt,",
"    idempotency_confirm, idempotency_guess, idempotency_sweep_at, idempotency_above,",
"    idempotency_us, idempotency_after, idempotency_state;",
"DROP TYPE IF EXISTS idempotency_result;",
"UPDATE idempotency_meta SET rules = NULL;",
NULL,
};
