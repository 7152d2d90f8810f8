-- What recall reads by: turns and entries of a scope in order of position, numbers
-- for summaries and facts, and what people think of facts.

-- A scope's turns in order, in however many sessions they are. Its index is unique
-- so that SQLite knows turns read by it to be in order, and sorts nothing.
ALTER TABLE runs ADD COLUMN scope INTEGER NOT NULL DEFAULT 0;

UPDATE runs SET scope = (SELECT o.scope FROM sessions o
    WHERE o.tenant = runs.tenant AND o.session = runs.session);

CREATE UNIQUE INDEX runs_by_scope ON runs (tenant, scope, first);

CREATE INDEX entries_by_began ON entries (tenant, scope, began);

-- The last numbers given, and how far facts have been drawn from the turns.
ALTER TABLE scopes ADD COLUMN summaries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE scopes ADD COLUMN facts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE scopes ADD COLUMN facts_through INTEGER NOT NULL DEFAULT 0;

-- `number` is the scope's next whenever a summary is written.
ALTER TABLE summaries ADD COLUMN scope INTEGER NOT NULL DEFAULT 0;
ALTER TABLE summaries ADD COLUMN number INTEGER NOT NULL DEFAULT 0;

UPDATE summaries SET scope = n.scope, number = n.number
FROM (SELECT m.tenant, m.session, m.branch, m.level, m.first, o.scope,
             row_number() OVER (PARTITION BY m.tenant, o.scope
                 ORDER BY m.session, m.branch, m.level, m.first) AS number
      FROM summaries m JOIN sessions o ON o.tenant = m.tenant AND o.session = m.session) n
WHERE summaries.tenant = n.tenant AND summaries.session = n.session
  AND summaries.branch = n.branch AND summaries.level = n.level AND summaries.first = n.first;

CREATE UNIQUE INDEX summaries_by_number ON summaries (tenant, scope, number);

UPDATE scopes SET summaries = (SELECT coalesce(max(m.number), 0) FROM summaries m
    WHERE m.tenant = scopes.tenant AND m.scope = scopes.scope);

-- Derived: what turns say that is worth keeping. `subject` is the subject
-- normalised; `fact` is subject, attribute, value, text and quote as JSON.
CREATE TABLE facts (
    tenant      INTEGER NOT NULL,
    scope       INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    key         BLOB NOT NULL,
    kind        TEXT NOT NULL,
    subject     TEXT NOT NULL,
    fact        BLOB NOT NULL,
    valid_from  INTEGER NOT NULL,
    session     INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, scope, number),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX facts_by_source ON facts (tenant, session, seq);
CREATE INDEX facts_by_key ON facts (tenant, scope, key);

-- What a person thinks of a fact: the last word on each key. `session` and `seq`
-- name the turn that is quoted, unless the person told it.
CREATE TABLE verdicts (
    tenant     INTEGER NOT NULL,
    scope      INTEGER NOT NULL,
    key        BLOB NOT NULL,
    verdict    TEXT NOT NULL,
    kind       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    fact       BLOB NOT NULL,
    valid_from INTEGER NOT NULL,
    session    INTEGER,
    seq        INTEGER,
    at         INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    PRIMARY KEY (tenant, scope, key),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX verdicts_by_source ON verdicts (tenant, session, seq) WHERE session IS NOT NULL;
CREATE INDEX verdicts_by_position ON verdicts (tenant, scope, position);
