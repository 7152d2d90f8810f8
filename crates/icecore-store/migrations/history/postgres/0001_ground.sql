-- Everything, for PostgreSQL: the tables and columns that SQLite's migrations 0001 to
-- 0012 come to, under the same names. Migrations are added, never edited; from here on
-- each comes for both.
--
-- The tenant leads every key, and every index that is not read across tenants. There are
-- no sequences, no extensions, and no keys across tenants: `branches.policy` names a row
-- of a table that all share, and so is no foreign key. Text is compared by its bytes, as
-- SQLite does. Who sees which rows is said in `walls.sql`, for all tables alike.
--
-- Functions by which statements read the same on both: `max(a, b)` and `min(a, b)` of two
-- numbers, `json_each(text)` with `key` and `value`, `json_extract(text, path)` for a member
-- of an object as text, `json_group_object(text, bigint)`, and `hex(bytea)`.

CREATE TABLE notes (
    name  TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (name)
);

-- `position` is the one counter of a tenant's log; `sessions` the last number given. The
-- number of a tenant is random. `secrets_version` rises whenever a secret is added or
-- removed, `dream_losses` whenever dreams are lost; `index_lost` is 1 while the index file
-- is gone with something that was forgotten.
CREATE TABLE tenants (
    tenant          BIGINT NOT NULL,
    name            TEXT COLLATE "C" NOT NULL,
    sealed_key      BYTEA NOT NULL,
    position        BIGINT NOT NULL DEFAULT 0,
    sessions        BIGINT NOT NULL DEFAULT 0,
    secrets_version BIGINT NOT NULL DEFAULT 1,
    index_lost      BIGINT NOT NULL DEFAULT 0,
    dream_losses    BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant),
    UNIQUE (name)
) WITH (fillfactor = 60);
CREATE INDEX tenants_index_lost ON tenants (tenant) WHERE index_lost = 1;

-- `summaries` and `facts` are the last numbers given; facts were drawn from the turns up to
-- `facts_through`, and entries compared with what commitments wait for up to
-- `looked_through`. Entries that ended at or before `entries_from` may be gone. `dreamer`
-- may dream in the memory until `dreamer_until`; `dreams_lost` is the largest budget of
-- the dreams that were lost with something that was forgotten, until it is dreamt anew.
CREATE TABLE scopes (
    tenant         BIGINT NOT NULL,
    scope          BIGINT NOT NULL,
    memory         TEXT COLLATE "C" NOT NULL,
    epoch          BIGINT NOT NULL DEFAULT 0,
    summaries      BIGINT NOT NULL DEFAULT 0,
    facts          BIGINT NOT NULL DEFAULT 0,
    facts_through  BIGINT NOT NULL DEFAULT 0,
    entries_from   BIGINT NOT NULL DEFAULT 0,
    looked_through BIGINT NOT NULL DEFAULT 0,
    dreamer        TEXT COLLATE "C",
    dreamer_until  BIGINT,
    dreams_lost    BIGINT,
    PRIMARY KEY (tenant, scope),
    UNIQUE (tenant, memory),
    FOREIGN KEY (tenant) REFERENCES tenants (tenant)
) WITH (fillfactor = 60);
CREATE INDEX scopes_dreams_lost ON scopes (tenant, scope) WHERE dreams_lost IS NOT NULL;

-- `name` is gone once the session was forgotten; the keyed hash stays.
CREATE TABLE sessions (
    tenant     BIGINT NOT NULL,
    session    BIGINT NOT NULL,
    scope      BIGINT NOT NULL,
    name       TEXT COLLATE "C",
    name_hash  BYTEA NOT NULL,
    turns      BIGINT NOT NULL,
    tokens     BIGINT NOT NULL,
    last_seq   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    current    BIGINT NOT NULL,
    PRIMARY KEY (tenant, session),
    UNIQUE (tenant, scope, name_hash),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
) WITH (fillfactor = 60);
CREATE INDEX sessions_by_scope ON sessions (tenant, scope, session);

-- The sizes that cuts were made by.
CREATE TABLE policies (
    policy     BIGINT NOT NULL,
    micro      BIGINT NOT NULL,
    mini       BIGINT NOT NULL,
    macro      BIGINT NOT NULL,
    max_tokens BIGINT NOT NULL,
    PRIMARY KEY (policy),
    UNIQUE (micro, mini, macro, max_tokens)
);

-- The open tail of a branch, and how far each layer has been derived.
CREATE TABLE branches (
    tenant          BIGINT NOT NULL,
    session         BIGINT NOT NULL,
    branch          BIGINT NOT NULL,
    fork_branch     BIGINT,
    fork_ordinal    BIGINT,
    policy          BIGINT NOT NULL,
    length          BIGINT NOT NULL,
    head_seq        BIGINT NOT NULL,
    micro_first     BIGINT NOT NULL,
    mini_first      BIGINT NOT NULL,
    macro_first     BIGINT NOT NULL,
    micro_first_seq BIGINT NOT NULL,
    mini_first_seq  BIGINT NOT NULL,
    macro_first_seq BIGINT NOT NULL,
    micro_tokens    BIGINT NOT NULL,
    mini_tokens     BIGINT NOT NULL,
    macro_tokens    BIGINT NOT NULL,
    warm_through    BIGINT NOT NULL DEFAULT 0,
    cold_through    BIGINT NOT NULL DEFAULT 0,
    micro_through   BIGINT NOT NULL DEFAULT 0,
    mini_through    BIGINT NOT NULL DEFAULT 0,
    macro_through   BIGINT NOT NULL DEFAULT 0,
    version         BIGINT NOT NULL DEFAULT 1,
    unsettled       BIGINT NOT NULL DEFAULT 1,
    dreamed_through BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session, branch),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, session)
) WITH (fillfactor = 60);
CREATE INDEX branches_unsettled ON branches (tenant, session, branch) WHERE unsettled = 1;
CREATE INDEX branches_undreamt ON branches (tenant, session, branch)
    WHERE dreamed_through < length;

-- Who spoke in a session, by keyed hash: how a subject is found.
CREATE TABLE speakers (
    tenant    BIGINT NOT NULL,
    session   BIGINT NOT NULL,
    speaker   BIGINT NOT NULL,
    name_hash BYTEA NOT NULL,
    PRIMARY KEY (tenant, session, speaker),
    UNIQUE (tenant, session, name_hash)
);

-- flags: 1 the client gave an id, 2 its line named the session, 4 erased, 8 expired.
-- A tombstone keeps seq, position, lookup and identity.
CREATE TABLE turns (
    tenant   BIGINT NOT NULL,
    session  BIGINT NOT NULL,
    seq      BIGINT NOT NULL,
    position BIGINT NOT NULL,
    branch   BIGINT NOT NULL,
    ordinal  BIGINT NOT NULL,
    speaker  BIGINT NOT NULL,
    tokens   BIGINT NOT NULL,
    flags    BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    lookup   BIGINT NOT NULL,
    identity BYTEA NOT NULL,
    PRIMARY KEY (tenant, session, seq),
    FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, session)
);
CREATE INDEX turns_by_lookup ON turns (tenant, session, lookup);
CREATE INDEX turns_expired ON turns (tenant, session) WHERE flags & 12 = 8;

-- The turns in order of position, a row for each append: turn `first_seq + n` of
-- the session has position `first + n`. This is what `turn.appended` is read from.
CREATE TABLE runs (
    tenant    BIGINT NOT NULL,
    first     BIGINT NOT NULL,
    session   BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    count     BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    scope     BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, first)
);
CREATE UNIQUE INDEX runs_by_scope ON runs (tenant, scope, first);

-- Hot bodies: a turn's fields as JSON.
CREATE TABLE bodies (
    tenant  BIGINT NOT NULL,
    session BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    body    BYTEA NOT NULL,
    PRIMARY KEY (tenant, session, seq)
);

-- The cuts. level: 0 micro, 1 mini, 2 macro.
CREATE TABLE chunks (
    tenant    BIGINT NOT NULL,
    session   BIGINT NOT NULL,
    branch    BIGINT NOT NULL,
    level     BIGINT NOT NULL,
    first     BIGINT NOT NULL,
    last      BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq  BIGINT NOT NULL,
    turns     BIGINT NOT NULL,
    tokens    BIGINT NOT NULL,
    revision  BIGINT NOT NULL DEFAULT 0,
    policy    BIGINT NOT NULL,
    PRIMARY KEY (tenant, session, branch, level, first),
    FOREIGN KEY (tenant, session, branch) REFERENCES branches (tenant, session, branch)
        DEFERRABLE INITIALLY DEFERRED
);

-- Warm bodies, one a micro. format: 0 CTF, 1 JSONL; packed: 1 if zstd.
CREATE TABLE texts (
    tenant  BIGINT NOT NULL,
    session BIGINT NOT NULL,
    branch  BIGINT NOT NULL,
    first   BIGINT NOT NULL,
    format  BIGINT NOT NULL,
    packed  BIGINT NOT NULL,
    text    BYTEA NOT NULL,
    PRIMARY KEY (tenant, session, branch, first)
);

-- Cold bodies: the pack of a macro.
CREATE TABLE packs (
    tenant     BIGINT NOT NULL,
    session    BIGINT NOT NULL,
    branch     BIGINT NOT NULL,
    first      BIGINT NOT NULL,
    last       BIGINT NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    sealed_key BYTEA NOT NULL,
    bytes      BIGINT NOT NULL,
    sha256     BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, session, branch, first)
);

-- Derived: what stands for a chunk. packed: 1 if zstd.
CREATE TABLE summaries (
    tenant  BIGINT NOT NULL,
    session BIGINT NOT NULL,
    branch  BIGINT NOT NULL,
    level   BIGINT NOT NULL,
    first   BIGINT NOT NULL,
    packed  BIGINT NOT NULL,
    summary BYTEA NOT NULL,
    scope   BIGINT NOT NULL DEFAULT 0,
    number  BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session, branch, level, first)
);
CREATE UNIQUE INDEX summaries_by_number ON summaries (tenant, scope, number);

-- Long-term entries, with the positions between which they are in force. `derived` is 1
-- for one that was made of others. One that another stands for has `ended` without
-- `ended_at`, and names that other as its `successor`; it is in force again once
-- `superseded_until` is past, or where it is `overtaken`, when the successor goes.
CREATE TABLE entries (
    tenant           BIGINT NOT NULL,
    scope            BIGINT NOT NULL,
    id               TEXT COLLATE "C" NOT NULL,
    content          BYTEA NOT NULL,
    tags             TEXT COLLATE "C" NOT NULL,
    created_at       BIGINT NOT NULL,
    expires_at       BIGINT,
    began            BIGINT NOT NULL,
    ended            BIGINT,
    ended_at         BIGINT,
    derived          BIGINT NOT NULL DEFAULT 0,
    successor        TEXT COLLATE "C",
    superseded_until BIGINT,
    overtaken        BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, scope, id),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
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

-- Every mutation but the turns themselves. Payloads hold no content.
CREATE TABLE log (
    tenant   BIGINT NOT NULL,
    position BIGINT NOT NULL,
    scope    BIGINT,
    at       BIGINT NOT NULL,
    kind     TEXT COLLATE "C" NOT NULL,
    payload  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, position)
);
CREATE INDEX log_by_scope ON log (tenant, scope, position);

-- The one table that is looked up before the tenant is known.
CREATE TABLE api_keys (
    hash       BYTEA NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    tenant     TEXT COLLATE "C" NOT NULL,
    role       TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    name       TEXT COLLATE "C",
    expires_at BIGINT,
    revoked_at BIGINT,
    PRIMARY KEY (hash),
    UNIQUE (id)
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at, id);

-- Final outcomes under callers' idempotency keys.
CREATE TABLE outcomes (
    tenant    BIGINT NOT NULL,
    operation TEXT COLLATE "C" NOT NULL,
    key       TEXT COLLATE "C" NOT NULL,
    request   BYTEA NOT NULL,
    status    BIGINT NOT NULL,
    body      BYTEA NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (tenant, operation, key)
);

-- Derived: what turns say that is worth keeping. `subject` is the subject
-- normalised; `fact` is subject, attribute, value, text and quote as JSON.
CREATE TABLE facts (
    tenant      BIGINT NOT NULL,
    scope       BIGINT NOT NULL,
    number      BIGINT NOT NULL,
    key         BYTEA NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    subject     TEXT COLLATE "C" NOT NULL,
    fact        BYTEA NOT NULL,
    valid_from  BIGINT NOT NULL,
    session     BIGINT NOT NULL,
    seq         BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, scope, number),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX facts_by_source ON facts (tenant, session, seq);
CREATE INDEX facts_by_key ON facts (tenant, scope, key);

-- What a person thinks of a fact: the last word on each key. `session` and `seq`
-- name the turn that is quoted, unless the person told it.
CREATE TABLE verdicts (
    tenant     BIGINT NOT NULL,
    scope      BIGINT NOT NULL,
    key        BYTEA NOT NULL,
    verdict    TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    fact       BYTEA NOT NULL,
    valid_from BIGINT NOT NULL,
    session    BIGINT,
    seq        BIGINT,
    at         BIGINT NOT NULL,
    position   BIGINT NOT NULL,
    PRIMARY KEY (tenant, scope, key),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX verdicts_by_source ON verdicts (tenant, session, seq)
    WHERE session IS NOT NULL;
CREATE INDEX verdicts_by_position ON verdicts (tenant, scope, position);

-- The values, sealed with the tenant's key. `number` is the tenant's version with
-- which the value came, so that none is given twice.
CREATE TABLE secrets (
    tenant   BIGINT NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    number   BIGINT NOT NULL,
    sealed   BYTEA NOT NULL,
    added_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name, number),
    FOREIGN KEY (tenant) REFERENCES tenants (tenant)
);

-- Secrets hidden in a turn, an entry or a verdict, by kind: counts and no values.
CREATE TABLE hidden (
    tenant   BIGINT NOT NULL,
    position BIGINT NOT NULL,
    scope    BIGINT NOT NULL,
    kind     TEXT COLLATE "C" NOT NULL,
    count    BIGINT NOT NULL,
    PRIMARY KEY (tenant, position, kind),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX hidden_by_scope ON hidden (tenant, scope, kind, count);

-- The versions of a file that are kept; the last is the file. `digest` is the
-- SHA-256 of `content`, `hidden` counts what was hidden in it, by kind, as JSON.
-- `position` is that of the record in the log. The content stands last, so that a
-- list reads past none of it.
CREATE TABLE files (
    tenant       BIGINT NOT NULL,
    workspace    TEXT COLLATE "C" NOT NULL,
    path         TEXT COLLATE "C" NOT NULL,
    version      BIGINT NOT NULL,
    position     BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    content_type TEXT COLLATE "C" NOT NULL,
    digest       BYTEA NOT NULL,
    hidden       TEXT COLLATE "C" NOT NULL,
    content      BYTEA NOT NULL,
    PRIMARY KEY (tenant, workspace, path, version),
    FOREIGN KEY (tenant) REFERENCES tenants (tenant)
);

-- Which derived entries quote which others. A derived entry that ended stands for
-- nothing any more, and still quotes what it was made of: this stays until one of
-- them is gone.
CREATE TABLE entry_quotes (
    tenant BIGINT NOT NULL,
    scope  BIGINT NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    output TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, scope, source, output)
);
CREATE INDEX entry_quotes_by_output ON entry_quotes (tenant, scope, output, source);

-- Runs of workflows. `files` are the paths and versions that it began with,
-- `variables` what it ended with, both as JSON; entries are named there, and never
-- quoted. `events` counts its events. A run past its retention keeps its id, its
-- owner and its times, and `expired_at`, until it goes for good. One that repeats
-- another names it as its `source`.
CREATE TABLE workflow_runs (
    tenant     BIGINT NOT NULL,
    run        TEXT COLLATE "C" NOT NULL,
    workspace  TEXT COLLATE "C" NOT NULL,
    principal  TEXT COLLATE "C" NOT NULL,
    workflow   TEXT COLLATE "C" NOT NULL,
    status     TEXT COLLATE "C" NOT NULL,
    position   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT,
    expired_at BIGINT,
    events     BIGINT NOT NULL,
    source     TEXT COLLATE "C",
    from_seq   BIGINT,
    error      TEXT COLLATE "C",
    inputs     TEXT COLLATE "C" NOT NULL,
    files      TEXT COLLATE "C" NOT NULL,
    variables  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, run),
    FOREIGN KEY (tenant) REFERENCES tenants (tenant)
);
CREATE INDEX workflow_runs_open ON workflow_runs (tenant, created_at, run)
    WHERE ended_at IS NULL;
CREATE INDEX workflow_runs_ended ON workflow_runs (ended_at)
    WHERE ended_at IS NOT NULL AND expired_at IS NULL;
CREATE INDEX workflow_runs_expired ON workflow_runs (expired_at)
    WHERE expired_at IS NOT NULL;
CREATE INDEX workflow_runs_by_source ON workflow_runs (tenant, source)
    WHERE source IS NOT NULL;

-- What happened in a run, in order. Payloads hold no content.
CREATE TABLE run_events (
    tenant   BIGINT NOT NULL,
    run      TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    kind     TEXT COLLATE "C" NOT NULL,
    node     TEXT COLLATE "C",
    cause    TEXT COLLATE "C",
    payload  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, run, sequence)
);

-- Intentions that wait for their condition. The intention itself is an entry.
-- state: 0 pending, 1 fired, 2 cancelled, 3 void. `due_at` is set for a time, `tag`
-- and `mentions` for a predicate while it is pending. It was made at `position`.
CREATE TABLE commitments (
    tenant     BIGINT NOT NULL,
    scope      BIGINT NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    entry      TEXT COLLATE "C" NOT NULL,
    state      BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    settled_at BIGINT,
    due_at     BIGINT,
    tag        TEXT COLLATE "C",
    mentions   TEXT COLLATE "C",
    position   BIGINT NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX commitments_due ON commitments (due_at)
    WHERE state = 0 AND due_at IS NOT NULL;
CREATE INDEX commitments_waiting ON commitments (tenant, scope, position)
    WHERE state = 0 AND due_at IS NULL;
CREATE INDEX commitments_pending ON commitments (tenant, scope) WHERE state = 0;
CREATE INDEX commitments_settled ON commitments (settled_at) WHERE state != 0;
CREATE INDEX commitments_made ON commitments (tenant, position);
CREATE INDEX commitments_by_entry ON commitments (tenant, scope, entry);

-- A dream, by its run. state: `in-force`, `superseded`, `undone`, `erased`. `archive` is
-- the address of what it came to, `section` what the index says of it, `source_ids`
-- which source is which id, both as JSON and empty once it is undone or erased.
-- `position` is that of `memory.compacted`.
CREATE TABLE dreams (
    tenant        BIGINT NOT NULL,
    run           TEXT COLLATE "C" NOT NULL,
    scope         BIGINT NOT NULL,
    number        BIGINT NOT NULL,
    state         TEXT COLLATE "C" NOT NULL,
    previous      TEXT COLLATE "C",
    trigger       TEXT COLLATE "C" NOT NULL,
    distiller     TEXT COLLATE "C" NOT NULL,
    output        TEXT COLLATE "C" NOT NULL,
    archive       BYTEA NOT NULL,
    budget        BIGINT NOT NULL,
    minimum       BIGINT NOT NULL,
    input_tokens  BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    source_count  BIGINT NOT NULL,
    remaining     BIGINT NOT NULL,
    bytes_before  BIGINT NOT NULL,
    bytes_after   BIGINT NOT NULL,
    lines         BIGINT NOT NULL,
    index_updated BIGINT NOT NULL,
    position      BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    section       TEXT COLLATE "C" NOT NULL,
    source_ids    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, run),
    UNIQUE (tenant, scope, number),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX dreams_in_force ON dreams (tenant, scope) WHERE state = 'in-force';
CREATE INDEX dreams_by_position ON dreams (tenant, position);
CREATE INDEX dreams_by_output ON dreams (tenant, scope, output);
CREATE INDEX dreams_by_archive ON dreams (tenant, scope, archive);
CREATE INDEX dreams_by_time ON dreams (tenant, created_at, input_tokens, output_tokens);

-- The turns of a branch that a dream read: those after `after`, up to `through`.
CREATE TABLE dream_spans (
    tenant  BIGINT NOT NULL,
    session BIGINT NOT NULL,
    branch  BIGINT NOT NULL,
    run     TEXT COLLATE "C" NOT NULL,
    after   BIGINT NOT NULL,
    through BIGINT NOT NULL,
    PRIMARY KEY (tenant, session, branch, run)
);
CREATE INDEX dream_spans_by_run ON dream_spans (tenant, run);

-- What dreams came to, by its address. The body lies beside the packs, under `name`;
-- without its key nobody reads it.
CREATE TABLE archives (
    tenant       BIGINT NOT NULL,
    scope        BIGINT NOT NULL,
    checksum     BYTEA NOT NULL,
    run          TEXT COLLATE "C" NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    sealed_key   BYTEA,
    bytes        BIGINT NOT NULL,
    stored_bytes BIGINT NOT NULL,
    sha256       BYTEA NOT NULL,
    created_at   BIGINT NOT NULL,
    erased_at    BIGINT,
    expired_at   BIGINT,
    PRIMARY KEY (tenant, scope, checksum),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX archives_by_address ON archives (tenant, checksum);

-- What is done by itself, and when. `cron` with its `timezone`, or `once_at`. Every
-- instant up to `handled_through` has its tick or was counted as missed; `next_at` is
-- the one after, and `fires_at` the same with its jitter, NULL once nothing comes any
-- more. After failures nothing runs before `not_before`.
CREATE TABLE schedules (
    tenant          BIGINT NOT NULL,
    scope           BIGINT NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    task            TEXT COLLATE "C" NOT NULL,
    cron            TEXT COLLATE "C",
    timezone        TEXT COLLATE "C" NOT NULL,
    once_at         BIGINT,
    budget          BIGINT,
    catch_up        TEXT COLLATE "C" NOT NULL,
    jitter          BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    paused          BIGINT NOT NULL DEFAULT 0,
    handled_through BIGINT NOT NULL,
    next_at         BIGINT,
    fires_at        BIGINT,
    failures        BIGINT NOT NULL DEFAULT 0,
    not_before      BIGINT,
    missed          BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX schedules_due ON schedules (fires_at)
    WHERE paused = 0 AND fires_at IS NOT NULL;
CREATE INDEX schedules_handled ON schedules (handled_through)
    WHERE paused = 0 AND fires_at IS NOT NULL;
CREATE INDEX schedules_over ON schedules (handled_through) WHERE fires_at IS NULL;

-- One for each instant of a schedule, whoever handles it. `outcome` is NULL while it
-- runs; then `holder` gave its last sign at `heartbeat`. `missed` are those before it
-- that were missed and have no row.
CREATE TABLE ticks (
    tenant     BIGINT NOT NULL,
    schedule   TEXT COLLATE "C" NOT NULL,
    at         BIGINT NOT NULL,
    outcome    TEXT COLLATE "C",
    run        TEXT COLLATE "C",
    error      TEXT COLLATE "C",
    holder     TEXT COLLATE "C",
    heartbeat  BIGINT,
    attempts   BIGINT NOT NULL DEFAULT 0,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT,
    missed     BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, schedule, at),
    FOREIGN KEY (tenant, schedule) REFERENCES schedules (tenant, id) ON DELETE CASCADE
);
CREATE INDEX ticks_running ON ticks (heartbeat) WHERE outcome IS NULL;
CREATE INDEX ticks_ended ON ticks (ended_at) WHERE ended_at IS NOT NULL;

-- A handoff: a mark in the history of a branch. Of what lies at or before `through`, and
-- of what the branch forked from, a model sees the handoff, the system prompt and the
-- turns in `kept`, which is a list of their `seq`, as JSON. `previous` is the one that
-- was in force on the path before it; with that it goes. `position` is that of
-- `session.compacted`.
CREATE TABLE handoffs (
    tenant        BIGINT NOT NULL,
    session       BIGINT NOT NULL,
    branch        BIGINT NOT NULL,
    position      BIGINT NOT NULL,
    id            TEXT COLLATE "C" NOT NULL,
    number        BIGINT NOT NULL,
    through       BIGINT NOT NULL,
    kept          TEXT COLLATE "C" NOT NULL,
    text          TEXT COLLATE "C" NOT NULL,
    tokens        BIGINT NOT NULL,
    tokens_before BIGINT NOT NULL,
    tokens_after  BIGINT NOT NULL,
    made_by       TEXT COLLATE "C" NOT NULL,
    trigger       TEXT COLLATE "C" NOT NULL,
    previous      TEXT COLLATE "C",
    version       BIGINT NOT NULL DEFAULT 1,
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (tenant, session, branch, position),
    FOREIGN KEY (tenant, session, branch) REFERENCES branches (tenant, session, branch)
);
CREATE UNIQUE INDEX handoffs_by_id ON handoffs (tenant, id);

-- What a provider counted last for what a model sees of a branch, up to the turn whose
-- `seq` is `through`, beginning with `handoff`; `counted` is the same as we count.
CREATE TABLE view_usage (
    tenant  BIGINT NOT NULL,
    session BIGINT NOT NULL,
    branch  BIGINT NOT NULL,
    model   TEXT COLLATE "C" NOT NULL,
    through BIGINT NOT NULL,
    handoff TEXT COLLATE "C",
    tokens  BIGINT NOT NULL,
    counted BIGINT NOT NULL,
    PRIMARY KEY (tenant, session, branch, model),
    FOREIGN KEY (tenant, session, branch) REFERENCES branches (tenant, session, branch)
);

-- What a model answered, by the keyed hash of what it was asked and of what it is. One
-- without a session was about several, or about entries. Derived, but dear: it stays
-- when what was derived is dropped.
CREATE TABLE answers (
    tenant     BIGINT NOT NULL,
    scope      BIGINT NOT NULL,
    key        BYTEA NOT NULL,
    session    BIGINT,
    text       TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, scope, key),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX answers_by_session ON answers (tenant, scope, session);

-- What models cost on a day, in days since 1970, and what that saved. No words.
CREATE TABLE spending (
    tenant       BIGINT NOT NULL,
    scope        BIGINT NOT NULL,
    day          BIGINT NOT NULL,
    purpose      TEXT COLLATE "C" NOT NULL,
    model        TEXT COLLATE "C" NOT NULL,
    calls        BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    reused       BIGINT NOT NULL,
    input        BIGINT NOT NULL,
    cached_input BIGINT NOT NULL,
    output       BIGINT NOT NULL,
    cost         BIGINT NOT NULL,
    saved        BIGINT NOT NULL,
    PRIMARY KEY (tenant, scope, day, purpose, model),
    FOREIGN KEY (tenant, scope) REFERENCES scopes (tenant, scope)
);
CREATE INDEX spending_by_day ON spending (tenant, day);

-- The keyed hash of a message and of all before it, and the turn that it is: a client's
-- history is found by it. In a session each is there once. It outlasts the turn's body:
-- what was forgotten is known again when a client sends it again, and stays forgotten.
-- `answered` tells whether an answer that went through us is among these messages: what a
-- client made up says nothing of whose history it is. `hollow` is a turn without words,
-- for a message that was forgotten elsewhere and came again.
CREATE TABLE links (
    tenant   BIGINT NOT NULL,
    scope    BIGINT NOT NULL,
    link     BYTEA NOT NULL,
    session  BIGINT NOT NULL,
    seq      BIGINT NOT NULL,
    answered BIGINT NOT NULL CHECK (answered IN (0, 1)),
    hollow   BIGINT NOT NULL CHECK (hollow IN (0, 1)),
    PRIMARY KEY (tenant, scope, link, session),
    FOREIGN KEY (tenant, session, seq) REFERENCES turns (tenant, session, seq)
);

-- What memory put before a message when it was first sent, so that it stands there byte
-- for byte as long as the message is sent. It may quote anything of its memory: it holds
-- as long as nothing of that went, which `epoch` tells.
CREATE TABLE recalled (
    tenant  BIGINT NOT NULL,
    scope   BIGINT NOT NULL,
    link    BYTEA NOT NULL,
    session BIGINT NOT NULL,
    epoch   BIGINT NOT NULL,
    text    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, scope, link, session),
    FOREIGN KEY (tenant, scope, link, session) REFERENCES links (tenant, scope, link, session)
);

-- These are compressed before they come here.
ALTER TABLE texts ALTER COLUMN text SET STORAGE EXTERNAL;
ALTER TABLE summaries ALTER COLUMN summary SET STORAGE EXTERNAL;

-- The last commit of each connection, by a random number. Whoever loses a connection while
-- it commits learns from this whether it did. Rows are spread over pages, so that
-- connections do not wait for each other.
CREATE TABLE commits (
    connection BIGINT NOT NULL,
    token      BIGINT NOT NULL,
    at         TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (connection)
) WITH (fillfactor = 10);

-- NULL with NULL, unlike `greatest` and `least`.
CREATE FUNCTION max(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE greatest(a, b) END;

CREATE FUNCTION min(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE least(a, b) END;

-- A JSON document whose escapes for U+0000 and U+0001 stand for what we store in their
-- place: no text of PostgreSQL holds U+0000. A backslash before them that is itself escaped
-- makes them plain letters.
CREATE FUNCTION storable(document TEXT) RETURNS JSON LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN position('\u000' IN document) = 0 THEN document ELSE
        regexp_replace(
            regexp_replace(document,
                '(?<!\\)((?:\\\\)*)\\u0001', '\1\\u0001\\u0002', 'g'),
            '(?<!\\)((?:\\\\)*)\\u0000', '\1\\u0001\\u0001', 'g')
    END::json;

-- The members of an array. `value` is a text as it is, anything else as JSON.
CREATE FUNCTION json_each(document TEXT) RETURNS TABLE (key BIGINT, value TEXT)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 8
BEGIN ATOMIC
    SELECT place - 1, member
    FROM json_array_elements_text(storable(document)) WITH ORDINALITY AS of(member, place);
END;

CREATE FUNCTION json_extract(document TEXT, path TEXT) RETURNS TEXT
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN storable(document) #>> string_to_array(ltrim(path, '$.'), '.');

-- An object of names and numbers.
CREATE FUNCTION json_group_step(members TEXT, name TEXT, value BIGINT) RETURNS TEXT
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN members || CASE WHEN members = '' THEN '' ELSE ',' END
        || to_json(name)::text || ':' || value;

CREATE FUNCTION json_group_end(members TEXT) RETURNS TEXT
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '{' || members || '}';

CREATE AGGREGATE json_group_object(TEXT, BIGINT) (
    SFUNC = json_group_step, STYPE = TEXT, INITCOND = '', FINALFUNC = json_group_end,
    PARALLEL = SAFE
);

CREATE FUNCTION hex(bytes BYTEA) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN upper(encode(bytes, 'hex'));
