-- What an API key is called, and when it ends.

-- A label, redacted.
ALTER TABLE api_keys ADD COLUMN name TEXT;
ALTER TABLE api_keys ADD COLUMN expires_at INTEGER;
ALTER TABLE api_keys ADD COLUMN revoked_at INTEGER;

CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at, id);
