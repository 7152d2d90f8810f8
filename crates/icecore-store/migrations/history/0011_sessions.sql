-- Sessions that outgrow a model's window, and models that talk.

-- A handoff: a mark in the history of a branch. Of what lies at or before `through`, and
-- of what the branch forked from, a model sees the handoff, the system prompt and the
-- turns in `kept`, which is a list of their `seq`, as JSON. `previous` is the one that
-- was in force on the path before it; with that it goes. `position` is that of
-- `session.compacted`.
CREATE TABLE handoffs (
    tenant        INTEGER NOT NULL,
    session       INTEGER NOT NULL,
    branch        INTEGER NOT NULL,
    position      INTEGER NOT NULL,
    id            TEXT NOT NULL,
    number        INTEGER NOT NULL,
    through       INTEGER NOT NULL,
    kept          TEXT NOT NULL,
    text          TEXT NOT NULL,
    tokens        INTEGER NOT NULL,
    tokens_before INTEGER NOT NULL,
    tokens_after  INTEGER NOT NULL,
    made_by       TEXT NOT NULL,
    trigger       TEXT NOT NULL,
    previous      TEXT,
    version       INTEGER NOT NULL DEFAULT 1,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant, session, branch, position),
    FOREIGN KEY (tenant, session, branch) REFERENCES branches (tenant, session, branch)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX handoffs_by_id ON handoffs (tenant, id);

-- What a provider counted last for what a model sees of a branch, up to the turn whose
-- `seq` is `through`, beginning with `handoff`; `counted` is the same as we count.
CREATE TABLE view_usage (
    tenant  INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    model   TEXT NOT NULL,
    through INTEGER NOT NULL,
    handoff TEXT,
    tokens  INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    PRIMARY KEY (tenant, session, branch, model),
    FOREIGN KEY (tenant, session, branch) REFERENCES branches (tenant, session, branch)
) STRICT, WITHOUT ROWID;

-- What a model answered, by the keyed hash of what it was asked and of what it is. One
-- without a session was about several, or about entries. Derived, but dear: it stays
-- when what was derived is dropped.
CREATE TABLE answers (
    tenant     INTEGER NOT NULL,
    scope      INTEGER NOT NULL,
    key        BLOB NOT NULL,
    session    INTEGER,
    text       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, scope, key),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX answers_by_session ON answers (tenant, scope, session);

-- What models cost on a day, in days since 1970, and what that saved. No words.
CREATE TABLE spending (
    tenant       INTEGER NOT NULL,
    scope        INTEGER NOT NULL,
    day          INTEGER NOT NULL,
    purpose      TEXT NOT NULL,
    model        TEXT NOT NULL,
    calls        INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    reused       INTEGER NOT NULL,
    input        INTEGER NOT NULL,
    cached_input INTEGER NOT NULL,
    output       INTEGER NOT NULL,
    cost         INTEGER NOT NULL,
    saved        INTEGER NOT NULL,
    PRIMARY KEY (tenant, scope, day, purpose, model),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

CREATE INDEX spending_by_day ON spending (tenant, day);
