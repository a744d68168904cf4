-- Schema version 1: the tables. search_path is the schema that they are made in.

-- One row for each id. Read it with the view idempotency_records, which shows text as text and a
-- lapsed lease as what it is: unknown.
CREATE TABLE idempotency_keys (
    id           bytea PRIMARY KEY,       -- SHA-256 of kind, scope and key
    kind         text,                    -- NULL: the trace of a fail whose claim was never seen
    scope        bytea NOT NULL,
    key          bytea NOT NULL,          -- keys are bytes
    method       bytea NOT NULL,
    path         bytea NOT NULL,
    fingerprint  bytea NOT NULL,          -- algorithm (1 byte), salted SHA-256
    principal    bytea,                   -- salted SHA-256; NULL: a caller without a credential
    state        text NOT NULL,           -- processing, completed, failed or unknown
    reason       text,                    -- why it is unknown; NULL: only the lease has lapsed
    owner        bytea NOT NULL,          -- 16 random bytes that name this attempt
    fence        bigint NOT NULL,
    attempt      bigint NOT NULL,
    lease        interval NOT NULL,
    lease_until  timestamptz NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,    -- infinity: never
    sweep_at     timestamptz NOT NULL,    -- when a sweep looks at it: a guess made by the claim
    status       smallint,                -- of the answer, 0 in a tombstone without one
    flags        integer,
    tombstone    text,                    -- why the answer is not kept; NULL: it is
    headers      bytea,                   -- header lines in order, repeats kept
    body         bytea,
    resolved_by  bytea,
    resolved_why bytea,
    resolved_at  timestamptz
    -- No CHECK: the server would read its text anew for each statement (docs/adr/0010). Only
    -- functions write here, and who reads a row looks at every value.
) WITH (
    -- A verdict is a new version of its row: room for it on the same page makes it a HOT update,
    -- which touches no index.
    fillfactor = 75,
    -- Rows come and go all the time: clean up early, at full speed, and keep the pages.
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2,
    vacuum_truncate = off,
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_cost_delay = 0,
    toast.vacuum_truncate = off
);

-- Who resolved or forgot what.
CREATE TABLE idempotency_audit (
    number bigint PRIMARY KEY,            -- without gaps: the oldest go first
    at     timestamptz NOT NULL UNIQUE,
    id     bytea NOT NULL,
    what   text NOT NULL CHECK (what IN ('resolve', 'forget')),
    was    text NOT NULL,                 -- the state that it met
    fence  bigint NOT NULL,
    who    bytea NOT NULL,
    why    bytea NOT NULL
);

-- What belongs to the store as a whole.
CREATE TABLE idempotency_meta (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    schema_version integer NOT NULL,
    rules          bytea,                 -- what the functions are: idempotency_rules()
    made_schema    boolean NOT NULL DEFAULT false,        -- and not found it there
    salt           bytea,                 -- NULL: the store was never opened. Never show it.
    fence_floor    bigint NOT NULL DEFAULT 0,             -- highest fence of all that is gone
    swept_at       timestamptz NOT NULL DEFAULT '-infinity', -- sweeps have got this far
    audit_number   bigint NOT NULL DEFAULT 0,             -- of the last entry
    audit_at       timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 10);

INSERT INTO idempotency_meta (schema_version) VALUES (1);
