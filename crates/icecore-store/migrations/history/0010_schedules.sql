-- What is done by itself, and when. `cron` with its `timezone`, or `once_at`. Every
-- instant up to `handled_through` has its tick or was counted as missed; `next_at` is
-- the one after, and `fires_at` the same with its jitter, NULL once nothing comes any
-- more. After failures nothing runs before `not_before`.
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

CREATE INDEX schedules_due ON schedules (fires_at) WHERE paused = 0 AND fires_at IS NOT NULL;
CREATE INDEX schedules_handled ON schedules (handled_through)
    WHERE paused = 0 AND fires_at IS NOT NULL;
CREATE INDEX schedules_over ON schedules (handled_through) WHERE fires_at IS NULL;

-- One for each instant of a schedule, whoever handles it. `outcome` is NULL while it
-- runs; then `holder` gave its last sign at `heartbeat`. `missed` are those before it
-- that were missed and have no row.
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
