-- Dreams: what a memory came to, what it was made of, and where that lies.

-- Who may dream in a memory, until when; and the largest budget of the dreams that were
-- lost with something that was forgotten, until it is dreamt anew.
ALTER TABLE scopes ADD COLUMN dreamer TEXT;
ALTER TABLE scopes ADD COLUMN dreamer_until INTEGER;
ALTER TABLE scopes ADD COLUMN dreams_lost INTEGER;

CREATE INDEX scopes_dreams_lost ON scopes (tenant, scope) WHERE dreams_lost IS NOT NULL;

-- 1 while the tenant's index file is gone with something that was forgotten, and not
-- written again.
ALTER TABLE tenants ADD COLUMN index_lost INTEGER NOT NULL DEFAULT 0;

-- Rises whenever dreams of the tenant are lost, so that nothing is written that was made
-- of them before.
ALTER TABLE tenants ADD COLUMN dream_losses INTEGER NOT NULL DEFAULT 0;

CREATE INDEX tenants_index_lost ON tenants (tenant) WHERE index_lost = 1;

-- Up to here the branch's own turns have been read by a dream.
ALTER TABLE branches ADD COLUMN dreamed_through INTEGER NOT NULL DEFAULT 0;

CREATE INDEX sessions_by_scope ON sessions (tenant, scope, session);

CREATE INDEX branches_undreamt ON branches (tenant, session, branch)
    WHERE dreamed_through < length;

-- A dream, by its run. state: `in-force`, `superseded`, `undone`, `erased`. `archive` is
-- the address of what it came to, `section` what the index says of it, `source_ids`
-- which source is which id, both as JSON and empty once it is undone or erased.
-- `position` is that of `memory.compacted`.
CREATE TABLE dreams (
    tenant        INTEGER NOT NULL,
    run           TEXT NOT NULL,
    scope         INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    state         TEXT NOT NULL,
    previous      TEXT,
    trigger       TEXT NOT NULL,
    distiller     TEXT NOT NULL,
    output        TEXT NOT NULL,
    archive       BLOB NOT NULL,
    budget        INTEGER NOT NULL,
    minimum       INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    source_count  INTEGER NOT NULL,
    remaining     INTEGER NOT NULL,
    bytes_before  INTEGER NOT NULL,
    bytes_after   INTEGER NOT NULL,
    lines         INTEGER NOT NULL,
    index_updated INTEGER NOT NULL,
    position      INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    section       TEXT NOT NULL,
    source_ids    TEXT NOT NULL,
    PRIMARY KEY (tenant, run),
    UNIQUE (tenant, scope, number),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX dreams_in_force ON dreams (tenant, scope) WHERE state = 'in-force';
CREATE INDEX dreams_by_position ON dreams (tenant, position);
CREATE INDEX dreams_by_output ON dreams (tenant, scope, output);
CREATE INDEX dreams_by_archive ON dreams (tenant, scope, archive);
CREATE INDEX dreams_by_time ON dreams (tenant, created_at, input_tokens, output_tokens);

-- The turns of a branch that a dream read: those after `after`, up to `through`.
CREATE TABLE dream_spans (
    tenant  INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    run     TEXT NOT NULL,
    after   INTEGER NOT NULL,
    through INTEGER NOT NULL,
    PRIMARY KEY (tenant, session, branch, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX dream_spans_by_run ON dream_spans (tenant, run);

-- What dreams came to, by its address. The body lies beside the packs, under `name`;
-- without its key nobody reads it.
CREATE TABLE archives (
    tenant       INTEGER NOT NULL,
    scope        INTEGER NOT NULL,
    checksum     BLOB NOT NULL,
    run          TEXT NOT NULL,
    name         TEXT NOT NULL,
    sealed_key   BLOB,
    bytes        INTEGER NOT NULL,
    stored_bytes INTEGER NOT NULL,
    sha256       BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    erased_at    INTEGER,
    expired_at   INTEGER,
    PRIMARY KEY (tenant, scope, checksum),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX archives_by_address ON archives (tenant, checksum);
