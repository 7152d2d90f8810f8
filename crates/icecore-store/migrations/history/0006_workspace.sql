-- Files that agents share beside the memory.

-- The versions of a file that are kept; the last is the file. `digest` is the
-- SHA-256 of `content`, `hidden` counts what was hidden in it, by kind, as JSON.
-- `position` is that of the record in the log. The content stands last, so that a
-- list reads past none of it.
CREATE TABLE files (
    tenant       INTEGER NOT NULL REFERENCES tenants,
    workspace    TEXT NOT NULL,
    path         TEXT NOT NULL,
    version      INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    digest       BLOB NOT NULL,
    hidden       TEXT NOT NULL,
    content      BLOB NOT NULL,
    PRIMARY KEY (tenant, workspace, path, version)
) STRICT, WITHOUT ROWID;
