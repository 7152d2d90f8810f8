-- What the protocol's host needs: entries that stand for others, runs, commitments.

-- `derived` is 1 for an entry that was made of others. An entry that another stands
-- for has `ended` without `ended_at`, and names that other as its `successor`; it
-- is in force again once `superseded_until`, when the last of those that stand for
-- it one after the other expires, is past.
-- `overtaken` is 1 where the successor says something else: then the entry is in
-- force again, too, when the successor is deleted or erased, and else goes with it.
ALTER TABLE entries ADD COLUMN derived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN successor TEXT;
ALTER TABLE entries ADD COLUMN superseded_until INTEGER;
ALTER TABLE entries ADD COLUMN overtaken INTEGER NOT NULL DEFAULT 0;

CREATE INDEX entries_by_successor ON entries (tenant, scope, successor)
    WHERE successor IS NOT NULL;

-- What is in force now: what never ended, and what is back. However much others
-- stand for, a list does not pass over it; and whoever counts them needs no row.
CREATE INDEX entries_shown ON entries (tenant, scope, created_at, began, expires_at, ended)
    WHERE ended IS NULL;
CREATE INDEX entries_back ON entries (tenant, scope, superseded_until, created_at, expires_at)
    WHERE superseded_until IS NOT NULL;

-- Which derived entries quote which others. A derived entry that ended stands for
-- nothing any more, and still quotes what it was made of: this stays until one of
-- them is gone.
CREATE TABLE entry_quotes (
    tenant INTEGER NOT NULL,
    scope  INTEGER NOT NULL,
    source TEXT NOT NULL,
    output TEXT NOT NULL,
    PRIMARY KEY (tenant, scope, source, output)
) STRICT, WITHOUT ROWID;

CREATE INDEX entry_quotes_by_output ON entry_quotes (tenant, scope, output, source);

-- Runs of workflows. `files` are the paths and versions that it began with,
-- `variables` what it ended with, both as JSON; entries are named there, and never
-- quoted. `events` counts its events. A run past its retention keeps its id, its
-- owner and its times, and `expired_at`, until it goes for good. One that repeats
-- another names it as its `source`.
CREATE TABLE workflow_runs (
    tenant     INTEGER NOT NULL REFERENCES tenants,
    run        TEXT NOT NULL,
    workspace  TEXT NOT NULL,
    principal  TEXT NOT NULL,
    workflow   TEXT NOT NULL,
    status     TEXT NOT NULL,
    position   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER,
    expired_at INTEGER,
    events     INTEGER NOT NULL,
    source     TEXT,
    from_seq   INTEGER,
    error      TEXT,
    inputs     TEXT NOT NULL,
    files      TEXT NOT NULL,
    variables  TEXT NOT NULL,
    PRIMARY KEY (tenant, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_runs_open ON workflow_runs (tenant, created_at, run)
    WHERE ended_at IS NULL;
CREATE INDEX workflow_runs_ended ON workflow_runs (ended_at)
    WHERE ended_at IS NOT NULL AND expired_at IS NULL;
CREATE INDEX workflow_runs_expired ON workflow_runs (expired_at) WHERE expired_at IS NOT NULL;
CREATE INDEX workflow_runs_by_source ON workflow_runs (tenant, source)
    WHERE source IS NOT NULL;

-- What happened in a run, in order. Payloads hold no content.
CREATE TABLE run_events (
    tenant   INTEGER NOT NULL,
    run      TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    node     TEXT,
    cause    TEXT,
    payload  TEXT NOT NULL,
    PRIMARY KEY (tenant, run, sequence)
) STRICT, WITHOUT ROWID;

-- Intentions that wait for their condition. The intention itself is an entry.
-- state: 0 pending, 1 fired, 2 cancelled, 3 void. `due_at` is set for a time, `tag`
-- and `mentions` for a predicate while it is pending. It was made at `position`.
CREATE TABLE commitments (
    tenant     INTEGER NOT NULL,
    scope      INTEGER NOT NULL,
    id         TEXT NOT NULL,
    entry      TEXT NOT NULL,
    state      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    settled_at INTEGER,
    due_at     INTEGER,
    tag        TEXT,
    mentions   TEXT,
    position   INTEGER NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX commitments_due ON commitments (due_at) WHERE state = 0 AND due_at IS NOT NULL;
CREATE INDEX commitments_waiting ON commitments (tenant, scope, position)
    WHERE state = 0 AND due_at IS NULL;
CREATE INDEX commitments_pending ON commitments (tenant, scope) WHERE state = 0;
CREATE INDEX commitments_settled ON commitments (settled_at) WHERE state != 0;
CREATE INDEX commitments_made ON commitments (tenant, position);
CREATE INDEX commitments_by_entry ON commitments (tenant, scope, entry);

-- Up to this position, entries of the memory were compared with what its pending
-- commitments wait for.
ALTER TABLE scopes ADD COLUMN looked_through INTEGER NOT NULL DEFAULT 0;
