-- Entries that end: when, so that their content can go once nobody reads the past
-- any more, and how far back the past can still be read.

ALTER TABLE entries ADD COLUMN ended_at INTEGER;

-- Entries that ended at or before this position may be gone.
ALTER TABLE scopes ADD COLUMN entries_from INTEGER NOT NULL DEFAULT 0;

-- Newest first, as a list reads them.
CREATE INDEX entries_by_time ON entries (tenant, scope, created_at, began);

-- What is due to go, of whatever tenant.
CREATE INDEX entries_ended ON entries (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX entries_expiring ON entries (expires_at) WHERE expires_at IS NOT NULL;
