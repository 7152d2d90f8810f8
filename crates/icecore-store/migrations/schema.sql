-- The schema of both databases, version 15.
--
-- SQLite runs this file as it stands. For PostgreSQL the types are renamed, and
-- `postgres/extras.sql` adds what only it needs. Backup, restore and migration copy the tables
-- below in this order, in which no table refers to a later one.
--
-- To change the schema: change it here, raise the version in `src/tables.rs`, and add the step
-- from the version before to `history/`, for both databases. Released steps are never edited.
-- Tests compare stores created from this file with stores brought forward by `history/`.
--
-- The tenant leads every key, so its rows lie together and no statement crosses tenants by
-- accident. A table whose `tenant` is a number or a name belongs to tenants; one without belongs
-- to everybody. `@memory` says which of a tenant's rows the backup of one memory takes: a
-- condition in which ?1 is the tenant and ?2 the memory, `by session` for the rows of its
-- sessions, `every row`, or `nothing`. `@moves never` marks what stays with its store.
--
-- `src/tables.rs` reads this file line by line: one column or constraint per line.

-- What the store knows about itself.
-- @moves never
CREATE TABLE notes (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per lease, of all tenants together. Every write under a lease compares `token`,
-- which rises with each new holder. A row outlives its lease; it then has no holder.
-- @moves never
CREATE TABLE leases (
    name   TEXT NOT NULL PRIMARY KEY,
    holder TEXT,
    token  INTEGER NOT NULL,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The sizes by which spans were cut, shared by all tenants.
-- @memory every row
CREATE TABLE policies (
    policy     INTEGER PRIMARY KEY,
    micro      INTEGER NOT NULL,
    mini       INTEGER NOT NULL,
    macro      INTEGER NOT NULL,
    max_tokens INTEGER NOT NULL,
    UNIQUE (micro, mini, macro, max_tokens)
) STRICT;

-- `tenant` is a random number. `position` is the only counter of the tenant's log; `sessions`
-- is the last session number given. `secrets_version` rises when a secret is added or removed,
-- `dream_losses` when dreams are lost. `index_lost` is 1 while the index file is missing because
-- something in it was forgotten.
--
-- `kept_turns` counts turns that were neither erased nor expired. `kept_bytes` adds up bodies as
-- they lie in their tier, entries with their tags, and versions of files. The `used_` columns
-- count what was used on `used_day`, in days since 1970.
-- @memory every row
CREATE TABLE tenants (
    tenant          INTEGER PRIMARY KEY,
    name            TEXT NOT NULL UNIQUE,
    sealed_key      BLOB NOT NULL,
    position        INTEGER NOT NULL DEFAULT 0,
    sessions        INTEGER NOT NULL DEFAULT 0,
    secrets_version INTEGER NOT NULL DEFAULT 1,
    index_lost      INTEGER NOT NULL DEFAULT 0,
    dream_losses    INTEGER NOT NULL DEFAULT 0,
    kept_turns      INTEGER NOT NULL DEFAULT 0,
    kept_bytes      INTEGER NOT NULL DEFAULT 0,
    used_day        INTEGER NOT NULL DEFAULT 0,
    used_requests   INTEGER NOT NULL DEFAULT 0,
    used_tokens     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX tenants_index_lost ON tenants (tenant) WHERE index_lost = 1;

-- The memories. `summaries` and `facts` are the last numbers given. Facts were drawn from turns
-- up to `facts_through`; entries were compared with commitments up to `looked_through`. Entries
-- that ended at or before `entries_from` may be deleted. `dreamer` may dream in the memory until
-- `dreamer_until`. `dreams_lost` is the largest budget of the dreams that were lost when something
-- was forgotten; it is NULL again after the next dream.
-- @memory scope = ?2
CREATE TABLE scopes (
    tenant         INTEGER NOT NULL REFERENCES tenants,
    scope          INTEGER NOT NULL,
    memory         TEXT NOT NULL,
    epoch          INTEGER NOT NULL DEFAULT 0,
    summaries      INTEGER NOT NULL DEFAULT 0,
    facts          INTEGER NOT NULL DEFAULT 0,
    facts_through  INTEGER NOT NULL DEFAULT 0,
    entries_from   INTEGER NOT NULL DEFAULT 0,
    looked_through INTEGER NOT NULL DEFAULT 0,
    dreamer        TEXT,
    dreamer_until  INTEGER,
    dreams_lost    INTEGER,
    PRIMARY KEY (tenant, scope),
    UNIQUE (tenant, memory)
) STRICT, WITHOUT ROWID;
CREATE INDEX scopes_dreams_lost ON scopes (tenant, scope) WHERE dreams_lost IS NOT NULL;

-- Forgetting a session clears `name`; the keyed hash of the name stays.
-- @memory scope = ?2
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
CREATE INDEX sessions_by_scope ON sessions (tenant, scope, session);

-- The open tail of a branch, and how far each layer has been derived. A dream has read the
-- branch's own turns up to `dreamed_through`.
-- @memory by session
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
    dreamed_through INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session, branch),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX branches_unsettled ON branches (tenant, session, branch) WHERE unsettled = 1;
CREATE INDEX branches_undreamt ON branches (tenant, session, branch)
    WHERE dreamed_through < length;

-- Who spoke in a session, by keyed hash: finds the sessions of a data subject.
-- @memory by session
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
-- @memory by session
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
CREATE INDEX turns_expired ON turns (tenant, session) WHERE flags & 12 = 8;

-- The turns in order of position, one row per append: turn `first_seq + n` of the session has
-- position `first + n`. `turn.appended` events are read from here.
--
-- `runs_by_scope` is unique so that SQLite knows its order and does not sort.
-- @memory scope = ?2
CREATE TABLE runs (
    tenant    INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    session   INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    scope     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, first)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX runs_by_scope ON runs (tenant, scope, first);

-- Hot bodies: a turn's fields as JSON.
-- @memory by session
CREATE TABLE bodies (
    tenant  INTEGER NOT NULL,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (tenant, session, seq)
) STRICT, WITHOUT ROWID;

-- The spans. level: 0 micro, 1 mini, 2 macro.
-- @memory by session
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

-- Warm bodies, one per micro. format: 0 CTF, 1 JSONL; packed: 1 if zstd.
-- @memory by session
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
-- @memory by session
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

-- Derived: the summary of a chunk. packed: 1 if zstd. `number` is the memory's next whenever a
-- summary is written.
-- @memory by session
CREATE TABLE summaries (
    tenant  INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    level   INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    packed  INTEGER NOT NULL,
    summary BLOB NOT NULL,
    scope   INTEGER NOT NULL DEFAULT 0,
    number  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session, branch, level, first)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX summaries_by_number ON summaries (tenant, scope, number);

-- Derived: what turns state. `subject` is normalised; `fact` is subject, attribute, value, text
-- and quote as JSON.
-- @memory scope = ?2
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

-- A person's latest verdict on a fact, by the fact's key. `session` and `seq` name the quoted
-- turn, unless the person stated the fact.
-- @memory scope = ?2
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
CREATE INDEX verdicts_by_source ON verdicts (tenant, session, seq)
    WHERE session IS NOT NULL;
CREATE INDEX verdicts_by_position ON verdicts (tenant, scope, position);

-- Long-term entries, valid from position `began` up to `ended`. `derived` is 1 for an entry made
-- of others. A superseded entry has `ended` without `ended_at` and names its `successor`; it is
-- valid again after `superseded_until`, when the last entry of the chain that supersedes it
-- expires. `overtaken` is 1 where the successor says something else: such an entry is also valid
-- again when its successor is deleted or erased; any other is deleted with its successor.
--
-- `entries_shown` and `entries_back` together hold the valid entries, and cover the queries that
-- count them.
-- @memory scope = ?2
CREATE TABLE entries (
    tenant           INTEGER NOT NULL,
    scope            INTEGER NOT NULL,
    id               TEXT NOT NULL,
    content          BLOB NOT NULL,
    tags             TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    expires_at       INTEGER,
    began            INTEGER NOT NULL,
    ended            INTEGER,
    ended_at         INTEGER,
    derived          INTEGER NOT NULL DEFAULT 0,
    successor        TEXT,
    superseded_until INTEGER,
    overtaken        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, scope, id),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX entries_by_began ON entries (tenant, scope, began);
CREATE INDEX entries_by_time ON entries (tenant, scope, created_at, began);
CREATE INDEX entries_ended ON entries (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX entries_expiring ON entries (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX entries_by_successor ON entries (tenant, scope, successor)
    WHERE successor IS NOT NULL;
CREATE INDEX entries_shown ON entries (tenant, scope, created_at, began, expires_at, ended)
    WHERE ended IS NULL;
CREATE INDEX entries_back ON entries (tenant, scope, superseded_until, created_at, expires_at)
    WHERE superseded_until IS NOT NULL;

-- Which derived entries quote which others. Rows stay until either entry is deleted, even after
-- the derived entry has ended.
-- @memory scope = ?2
CREATE TABLE entry_quotes (
    tenant INTEGER NOT NULL,
    scope  INTEGER NOT NULL,
    source TEXT NOT NULL,
    output TEXT NOT NULL,
    PRIMARY KEY (tenant, scope, source, output)
) STRICT, WITHOUT ROWID;
CREATE INDEX entry_quotes_by_output ON entry_quotes (tenant, scope, output, source);

-- Every mutation except appended turns. Payloads hold no content.
-- @memory scope = ?2
CREATE TABLE log (
    tenant   INTEGER NOT NULL,
    position INTEGER NOT NULL,
    scope    INTEGER,
    at       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    payload  TEXT NOT NULL,
    PRIMARY KEY (tenant, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX log_by_scope ON log (tenant, scope, position);

-- How many secrets were redacted in a turn, an entry or a verdict, by kind.
-- The `+` keeps SQLite from an index that would sort every page anew.
-- @memory +scope = ?2
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

-- Intentions that wait for a condition. The text of the intention is an entry. state: 0 pending,
-- 1 fired, 2 cancelled, 3 void. While pending, `due_at` is set for a time, `tag` and `mentions`
-- for a predicate. `position` is where it was made.
-- @memory scope = ?2
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
CREATE INDEX commitments_due ON commitments (due_at)
    WHERE state = 0 AND due_at IS NOT NULL;
CREATE INDEX commitments_waiting ON commitments (tenant, scope, position)
    WHERE state = 0 AND due_at IS NULL;
CREATE INDEX commitments_pending ON commitments (tenant, scope) WHERE state = 0;
CREATE INDEX commitments_settled ON commitments (settled_at) WHERE state != 0;
CREATE INDEX commitments_made ON commitments (tenant, position);
CREATE INDEX commitments_by_entry ON commitments (tenant, scope, entry);

-- A dream, by its run. state: `in-force`, `superseded`, `undone`, `erased`. `archive` is the
-- address of its archive; `section` is its part of the index file; `source_ids` maps ids to
-- sources. Both are JSON, and empty once the dream is undone or erased. `position` is that of
-- `memory.compacted`.
-- @memory scope = ?2
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
-- @memory by session
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

-- Archives of dreams, by address. The body is an object beside the packs, called `name`. Without
-- `sealed_key` it is unreadable.
-- @memory scope = ?2
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

-- Either `cron` with its `timezone`, or `once_at`. Every instant up to `handled_through` has a tick
-- or was counted as missed; `next_at` is the one after, and `fires_at` adds the jitter. Both are
-- NULL when no instant is left. After failures nothing runs before `not_before`.
-- @memory scope = ?2
CREATE TABLE schedules (
    tenant          INTEGER NOT NULL,
    scope           INTEGER NOT NULL,
    id              TEXT NOT NULL,
    task            TEXT NOT NULL,
    cron            TEXT,
    timezone        TEXT NOT NULL,
    once_at         INTEGER,
    budget          INTEGER,
    catch_up        TEXT NOT NULL,
    jitter          INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    paused          INTEGER NOT NULL DEFAULT 0,
    handled_through INTEGER NOT NULL,
    next_at         INTEGER,
    fires_at        INTEGER,
    failures        INTEGER NOT NULL DEFAULT 0,
    not_before      INTEGER,
    missed          INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (fires_at)
    WHERE paused = 0 AND fires_at IS NOT NULL;
CREATE INDEX schedules_handled ON schedules (handled_through)
    WHERE paused = 0 AND fires_at IS NOT NULL;
CREATE INDEX schedules_over ON schedules (handled_through) WHERE fires_at IS NULL;

-- One row per instant of a schedule, on whichever host. `outcome` is NULL while it runs; its
-- `holder` last reported at `heartbeat`. `missed` counts missed instants before it, which have no
-- rows.
-- @memory schedule IN (SELECT id FROM schedules WHERE tenant = ?1 AND scope = ?2)
CREATE TABLE ticks (
    tenant     INTEGER NOT NULL,
    schedule   TEXT NOT NULL,
    at         INTEGER NOT NULL,
    outcome    TEXT,
    run        TEXT,
    error      TEXT,
    holder     TEXT,
    heartbeat  INTEGER,
    attempts   INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    missed     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, schedule, at),
    FOREIGN KEY (tenant, schedule) REFERENCES schedules (tenant, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX ticks_running ON ticks (heartbeat) WHERE outcome IS NULL;
CREATE INDEX ticks_ended ON ticks (ended_at) WHERE ended_at IS NOT NULL;

-- A handoff replaces the history of a branch up to `through`, and of what the branch forked from:
-- the model sees the handoff, the system prompt and the turns in `kept` (their `seq` as JSON).
-- `previous` is the handoff it replaced on the same path, and is deleted with it. `position` is
-- that of `session.compacted`.
-- @memory by session
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

-- The provider's latest token count of what a model saw of a branch: up to the turn whose `seq`
-- is `through`, beginning with `handoff`. `counted` is our own count of the same.
-- @memory by session
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

-- A model's answer, by the keyed hash of the request and the model. `session` is NULL when the
-- request was about several sessions, or about entries. Derived, but expensive: dropping what is
-- derived keeps it.
-- @memory scope = ?2
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

-- What model calls cost on a day, in days since 1970, and what reuse saved. No content.
-- @memory scope = ?2
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

-- The turn of a client's message, by the keyed hash of that message and all before it: finds the
-- session of a client that sends its whole history. One row per session and hash. A row outlives
-- the turn's body, so a forgotten message is recognised when a client sends it again, and stays
-- forgotten. `answered` is 1 if one of these messages is an answer that went through us; messages
-- that a client may have made up do not prove whose history it is. `hollow` is 1 for a turn
-- without words, for a message that was forgotten elsewhere and came again.
-- @memory scope = ?2
CREATE TABLE links (
    tenant   INTEGER NOT NULL,
    scope    INTEGER NOT NULL,
    link     BLOB NOT NULL,
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    answered INTEGER NOT NULL CHECK (answered IN (0, 1)),
    hollow   INTEGER NOT NULL CHECK (hollow IN (0, 1)),
    PRIMARY KEY (tenant, scope, link, session),
    FOREIGN KEY (tenant, session, seq) REFERENCES turns (tenant, session, seq)
) STRICT, WITHOUT ROWID;

-- The text that recall put before a message when the message was first sent, repeated byte for
-- byte whenever it is sent again. It may quote anything of its memory, so it is used only while
-- `epoch` is still the memory's.
-- @memory scope = ?2
CREATE TABLE recalled (
    tenant  INTEGER NOT NULL,
    scope   INTEGER NOT NULL,
    link    BLOB NOT NULL,
    session INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (tenant, scope, link, session),
    FOREIGN KEY (tenant, scope, link, session) REFERENCES links (tenant, scope, link, session)
) STRICT, WITHOUT ROWID;

-- Registered secrets, sealed with the tenant's key. `number` is the tenant's `secrets_version`
-- at which the value was added, so no number is given twice.
-- @memory nothing
CREATE TABLE secrets (
    tenant   INTEGER NOT NULL REFERENCES tenants,
    name     TEXT NOT NULL,
    number   INTEGER NOT NULL,
    sealed   BLOB NOT NULL,
    added_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, number)
) STRICT, WITHOUT ROWID;

-- The versions of workspace files; the newest is the file. `digest` is the SHA-256 of `content`,
-- `hidden` counts redactions by kind, as JSON. `position` is that of the log record. `content` is
-- last so that a list does not read it.
-- @memory nothing
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

-- Final outcomes under callers' idempotency keys.
-- @memory nothing
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

-- Runs of workflows. `files` are the paths and versions that a run began with, `variables` what it
-- ended with, both JSON that names entries and never quotes them. `events` counts its events. A
-- run past its retention keeps its id, owner, times and `expired_at` until it is deleted. A
-- replay names the run that it repeats as its `source`.
-- @memory nothing
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
CREATE INDEX workflow_runs_expired ON workflow_runs (expired_at)
    WHERE expired_at IS NOT NULL;
CREATE INDEX workflow_runs_by_source ON workflow_runs (tenant, source)
    WHERE source IS NOT NULL;

-- The events of a run, in order. Payloads hold no content.
-- @memory nothing
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

-- Looked up by `hash` before the tenant is known; `tenant` is the tenant's name. `name` is a
-- redacted label.
-- @memory nothing
CREATE TABLE api_keys (
    hash       BLOB PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    tenant     TEXT NOT NULL,
    role       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    name       TEXT,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at, id);
