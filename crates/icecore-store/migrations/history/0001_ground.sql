-- The ground state. Migrations are added, never edited.
--
-- The tenant leads every key. Numbers stand for names inside, so that rows are
-- small and a name can be forgotten in one place.

CREATE TABLE notes (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- `position` is the one counter of a tenant's log; `sessions` the last number given.
CREATE TABLE tenants (
    tenant     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    sealed_key BLOB NOT NULL,
    position   INTEGER NOT NULL DEFAULT 0,
    sessions   INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE scopes (
    tenant INTEGER NOT NULL REFERENCES tenants,
    scope  INTEGER NOT NULL,
    memory TEXT NOT NULL,
    epoch  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, scope),
    UNIQUE (tenant, memory)
) STRICT, WITHOUT ROWID;

-- `name` is gone once the session was forgotten; the keyed hash stays.
CREATE TABLE sessions (
    tenant     INTEGER NOT NULL,
    session    INTEGER NOT NULL,
    scope      INTEGER NOT NULL,
    name       TEXT,
    name_hash  BLOB NOT NULL,
    turns      INTEGER NOT NULL,
    tokens     INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    current    INTEGER NOT NULL,
    PRIMARY KEY (tenant, session),
    UNIQUE (tenant, scope, name_hash),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

-- The sizes that cuts were made by.
CREATE TABLE policies (
    policy     INTEGER PRIMARY KEY,
    micro      INTEGER NOT NULL,
    mini       INTEGER NOT NULL,
    macro      INTEGER NOT NULL,
    max_tokens INTEGER NOT NULL,
    UNIQUE (micro, mini, macro, max_tokens)
) STRICT;

-- The open tail of a branch, and how far each layer has been derived.
CREATE TABLE branches (
    tenant          INTEGER NOT NULL,
    session         INTEGER NOT NULL,
    branch          INTEGER NOT NULL,
    fork_branch     INTEGER,
    fork_ordinal    INTEGER,
    policy          INTEGER NOT NULL REFERENCES policies,
    length          INTEGER NOT NULL,
    head_seq        INTEGER NOT NULL,
    micro_first     INTEGER NOT NULL,
    mini_first      INTEGER NOT NULL,
    macro_first     INTEGER NOT NULL,
    micro_first_seq INTEGER NOT NULL,
    mini_first_seq  INTEGER NOT NULL,
    macro_first_seq INTEGER NOT NULL,
    micro_tokens    INTEGER NOT NULL,
    mini_tokens     INTEGER NOT NULL,
    macro_tokens    INTEGER NOT NULL,
    warm_through    INTEGER NOT NULL DEFAULT 0,
    cold_through    INTEGER NOT NULL DEFAULT 0,
    micro_through   INTEGER NOT NULL DEFAULT 0,
    mini_through    INTEGER NOT NULL DEFAULT 0,
    macro_through   INTEGER NOT NULL DEFAULT 0,
    version         INTEGER NOT NULL DEFAULT 1,
    unsettled       INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant, session, branch),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX branches_unsettled ON branches (tenant, session, branch) WHERE unsettled = 1;

-- Who spoke in a session, by keyed hash: how a subject is found.
CREATE TABLE speakers (
    tenant    INTEGER NOT NULL,
    session   INTEGER NOT NULL,
    speaker   INTEGER NOT NULL,
    name_hash BLOB NOT NULL,
    PRIMARY KEY (tenant, session, speaker),
    UNIQUE (tenant, session, name_hash)
) STRICT, WITHOUT ROWID;

-- flags: 1 the client gave an id, 2 its line named the session, 4 erased, 8 expired.
-- A tombstone keeps seq, position, lookup and identity.
CREATE TABLE turns (
    tenant   INTEGER NOT NULL,
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    position INTEGER NOT NULL,
    branch   INTEGER NOT NULL,
    ordinal  INTEGER NOT NULL,
    speaker  INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    flags    INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    lookup   INTEGER NOT NULL,
    identity BLOB NOT NULL,
    PRIMARY KEY (tenant, session, seq),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX turns_by_lookup ON turns (tenant, session, lookup);

-- Few or none, and counted often.
CREATE INDEX turns_expired ON turns (tenant, session) WHERE flags & 12 = 8;

-- The turns in order of position, a row for each append: turn `first_seq + n` of
-- the session has position `first + n`. This is what `turn.appended` is read from.
CREATE TABLE runs (
    tenant    INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    session   INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (tenant, first)
) STRICT, WITHOUT ROWID;

-- Hot bodies: a turn's fields as JSON.
CREATE TABLE bodies (
    tenant  INTEGER NOT NULL,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (tenant, session, seq)
) STRICT, WITHOUT ROWID;

-- The cuts. level: 0 micro, 1 mini, 2 macro.
CREATE TABLE chunks (
    tenant    INTEGER NOT NULL,
    session   INTEGER NOT NULL,
    branch    INTEGER NOT NULL,
    level     INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    turns     INTEGER NOT NULL,
    tokens    INTEGER NOT NULL,
    revision  INTEGER NOT NULL DEFAULT 0,
    policy    INTEGER NOT NULL,
    PRIMARY KEY (tenant, session, branch, level, first),
    FOREIGN KEY (tenant, session, branch) REFERENCES branches (tenant, session, branch)
        DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;

-- Warm bodies, one a micro. format: 0 CTF, 1 JSONL; packed: 1 if zstd.
CREATE TABLE texts (
    tenant  INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    format  INTEGER NOT NULL,
    packed  INTEGER NOT NULL,
    text    BLOB NOT NULL,
    PRIMARY KEY (tenant, session, branch, first)
) STRICT, WITHOUT ROWID;

-- Cold bodies: the pack of a macro.
CREATE TABLE packs (
    tenant     INTEGER NOT NULL,
    session    INTEGER NOT NULL,
    branch     INTEGER NOT NULL,
    first      INTEGER NOT NULL,
    last       INTEGER NOT NULL,
    name       TEXT NOT NULL,
    sealed_key BLOB NOT NULL,
    bytes      INTEGER NOT NULL,
    sha256     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, session, branch, first)
) STRICT, WITHOUT ROWID;

-- Derived: what stands for a chunk. packed: 1 if zstd.
CREATE TABLE summaries (
    tenant  INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    level   INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    packed  INTEGER NOT NULL,
    summary BLOB NOT NULL,
    PRIMARY KEY (tenant, session, branch, level, first)
) STRICT, WITHOUT ROWID;

-- Long-term entries, with the positions between which they are in force.
CREATE TABLE entries (
    tenant     INTEGER NOT NULL,
    scope      INTEGER NOT NULL,
    id         TEXT NOT NULL,
    content    BLOB NOT NULL,
    tags       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    began      INTEGER NOT NULL,
    ended      INTEGER,
    PRIMARY KEY (tenant, scope, id),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;

-- Every mutation but the turns themselves. Payloads hold no content.
CREATE TABLE log (
    tenant   INTEGER NOT NULL,
    position INTEGER NOT NULL,
    scope    INTEGER,
    at       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    payload  TEXT NOT NULL,
    PRIMARY KEY (tenant, position)
) STRICT, WITHOUT ROWID;

-- The one table that is looked up before the tenant is known.
CREATE TABLE api_keys (
    hash       BLOB PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    tenant     TEXT NOT NULL,
    role       TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Final outcomes under callers' idempotency keys.
CREATE TABLE outcomes (
    tenant    INTEGER NOT NULL,
    operation TEXT NOT NULL,
    key       TEXT NOT NULL,
    request   BLOB NOT NULL,
    status    INTEGER NOT NULL,
    body      BLOB NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (tenant, operation, key)
) STRICT, WITHOUT ROWID;
