-- From schema version 1 to nothing. Every record goes.
DROP VIEW idempotency_records;
DROP FUNCTION idempotency_text(bytea), idempotency_version();
DROP TABLE idempotency_keys, idempotency_audit, idempotency_meta;
