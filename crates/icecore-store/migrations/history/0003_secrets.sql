-- Secrets that a tenant registered, and how much was hidden in what.

-- Rises whenever a secret is added or removed: what was redacted with an earlier
-- version must be redacted again before it is written.
ALTER TABLE tenants ADD COLUMN secrets_version INTEGER NOT NULL DEFAULT 1;

-- The values, sealed with the tenant's key. `number` is the tenant's version with
-- which the value came, so that none is given twice.
CREATE TABLE secrets (
    tenant   INTEGER NOT NULL REFERENCES tenants,
    name     TEXT NOT NULL,
    number   INTEGER NOT NULL,
    sealed   BLOB NOT NULL,
    added_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, number)
) STRICT, WITHOUT ROWID;

-- Secrets hidden in a turn, an entry or a verdict, by kind: counts and no values.
CREATE TABLE hidden (
    tenant   INTEGER NOT NULL,
    position INTEGER NOT NULL,
    scope    INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (tenant, position, kind),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX hidden_by_scope ON hidden (tenant, scope, kind, count);
