-- From schema version 1 to nothing. Every record goes.
DROP VIEW IF EXISTS idempotency_records;
DROP FUNCTION IF EXISTS idempotency_text(bytea), idempotency_version(), idempotency_rules();
DROP TABLE IF EXISTS idempotency_keys, idempotency_audit, idempotency_meta;
