-- From schema version 2 to 1: the rules go, the records stay.
DROP FUNCTION IF EXISTS idempotency_claim, idempotency_claim_lone, idempotency_claim_known,
    idempotency_claim_word, idempotency_verdict, idempotency_verdict_lone,
    idempotency_verdict_any, idempotency_verdict_write, idempotency_verdict_word,
    idempotency_trace, idempotency_floor, idempotency_get, idempotency_resolve,
    idempotency_forget, idempotency_audit_add, idempotency_audit_page, idempotency_scan,
    idempotency_sweep, idempotency_put, idempotency_adopt, idempotency_salt,
    idempotency_confirm, idempotency_guess, idempotency_sweep_at, idempotency_above,
    idempotency_us, idempotency_after, idempotency_state;
DROP TYPE IF EXISTS idempotency_result;
UPDATE idempotency_meta SET rules = NULL;
