//! Dreams: who may dream, what is due, what came of it, and taking that back.

use std::collections::BTreeSet;

use super::engine::{self, Connection, OptionalExtension, Row, params};
use icecore_domain::compaction::COMMITMENT_TAG;
use icecore_domain::dream::Checksum;
use icecore_domain::ids::{Branch, Ordinal, Position, Principal, Scope, SessionNo, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;

use super::entries::LIVES;
use super::rows::ScopeNo;
use super::{Shared, archives, derivation, entries, log, rows, runs, secrets, workspace};
use crate::dreams::{MAX_LEASE_MILLIS, undone};
use crate::error::StoreError;
use crate::store::*;

/// What holds of a dream that counts: the one in force, and those that it was made on
/// top of.
pub(super) const COUNTS: &str = "state IN ('in-force', 'superseded')";

// Leases

pub(super) fn lease(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    lease: &Lease,
    now: Millis,
) -> Result<bool> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(true) };
    c.prepare_cached(
        "UPDATE scopes SET dreamer = ?3, dreamer_until = ?4
         WHERE tenant = ?1 AND scope = ?2
           AND (dreamer IS NULL OR dreamer = ?3 OR dreamer_until <= ?5 OR dreamer_until > ?6)",
    )
    .and_then(|mut q| {
        let most = now.0.saturating_add(MAX_LEASE_MILLIS);
        q.execute(params![no.tenant, no.scope, lease.holder, lease.until.0, now.0, most])
    })
    .map(|taken| taken > 0)
    .map_err(|e| s.failed(e))
}

pub(super) fn release(c: &Connection, s: &Shared, scope: &Scope, holder: &str) -> Result<()> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(()) };
    c.prepare_cached(
        "UPDATE scopes SET dreamer = NULL, dreamer_until = NULL
         WHERE tenant = ?1 AND scope = ?2 AND dreamer = ?3",
    )
    .and_then(|mut q| q.execute(params![no.tenant, no.scope, holder]))
    .map(|_| ())
    .map_err(|e| s.failed(e))
}

fn has_lease(c: &Connection, no: ScopeNo, holder: &str, now: Millis) -> engine::Result<bool> {
    c.prepare_cached(
        "SELECT 1 FROM scopes WHERE tenant = ?1 AND scope = ?2 AND dreamer = ?3
           AND dreamer_until > ?4",
    )?
    .exists(params![no.tenant, no.scope, holder, now.0])
}

// What is due

pub(super) fn undreamt_entries(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    after: Option<EntryPlace>,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryPlace>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let (time, began) = match after {
        Some(place) => (place.created_at.0, rows::number(place.began.0)),
        None => (i64::MIN, i64::MIN),
    };
    c.prepare_cached(&undreamt_sql())
        .and_then(|mut q| {
            let limit = rows::number(limit as u64);
            let values = params![no.tenant, no.scope, now.0, time, began, limit, COMMITMENT_TAG];
            let place = |row: &Row<'_>| {
                let began = Position(row.get::<_, i64>(1)? as u64);
                Ok(EntryPlace { created_at: Millis(row.get(0)?), began })
            };
            q.query_map(values, place)?.collect()
        })
        .map_err(|e| s.failed(e))
}

/// What finds the `?6` oldest entries in force that a dream would read, after a place.
fn undreamt_sql() -> String {
    let of = |index: &str, condition: &str| {
        format!(
            "SELECT created_at AS put_at, began AS place FROM entries INDEXED BY {index}
             WHERE tenant = ?1 AND scope = ?2 AND {condition} AND {LIVES}
               AND (created_at, began) > (?4, ?5) AND expires_at IS NULL
               AND NOT EXISTS (SELECT 1 FROM dreams d INDEXED BY dreams_in_force
                 WHERE d.tenant = ?1 AND d.scope = ?2 AND d.state = 'in-force'
                   AND d.output = entries.id)
               AND NOT EXISTS (SELECT 1 FROM commitments k INDEXED BY commitments_by_entry
                 WHERE k.tenant = ?1 AND k.scope = ?2 AND k.entry = entries.id)
               AND NOT EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?7)"
        )
    };
    let (stayed, back) =
        (of("entries_shown", "ended IS NULL"), of("entries_back", "superseded_until <= ?3"));
    format!("{stayed} UNION ALL {back} ORDER BY put_at, place LIMIT ?6")
}

pub(super) fn undreamt_branches(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    after: Option<(SessionNo, Branch)>,
    limit: usize,
) -> Result<Vec<Undreamt>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let (session, branch) = match after {
        Some((session, branch)) => (rows::number(session.0), i64::from(branch.0)),
        None => (0, -1),
    };
    c.prepare_cached(UNDREAMT_BRANCHES)
        .and_then(|mut q| {
            let limit = rows::number(limit as u64);
            q.query_map([no.tenant, no.scope, session, branch, limit], |row| {
                Ok(Undreamt {
                    session: SessionNo(row.get::<_, i64>(0)? as u64),
                    branch: Branch(row.get(1)?),
                    after: Ordinal(row.get::<_, i64>(2)? as u64),
                    through: Ordinal(row.get::<_, i64>(3)? as u64),
                })
            })?
            .collect()
        })
        .map_err(|e| s.failed(e))
}

const UNDREAMT_BRANCHES: &str = "SELECT b.session, b.branch, b.dreamed_through, b.length
     FROM sessions o INDEXED BY sessions_by_scope
     CROSS JOIN branches b INDEXED BY branches_undreamt
       ON b.tenant = o.tenant AND b.session = o.session AND b.dreamed_through < b.length
     WHERE o.tenant = ?1 AND o.scope = ?2 AND o.session >= ?3
       AND (b.session, b.branch) > (?3, ?4)
     ORDER BY o.session, b.branch LIMIT ?5";

// Keeping one

pub(super) fn keep(c: &Connection, s: &Shared, scope: &Scope, dream: NewDream) -> Result<Kept> {
    secrets::refuse_changed(c, s, scope.tenant(), dream.secrets_seen)?;
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Kept::LeaseLost) };
    if !has_lease(c, no, &dream.holder, dream.now).map_err(|e| s.failed(e))? {
        return Ok(Kept::LeaseLost);
    }
    refuse_foreign(scope, dream.index.as_ref())?;
    if !is_as_read(c, no, &dream).map_err(|e| s.failed(e))? {
        return Ok(Kept::Changed);
    }
    let NewDream { run, previous, output, entries, payload, now, secrets_seen, .. } = dream.clone();
    let replaced = |id| Replaced { id, by: Successor::Output(0), is_overtaken: false };
    let derivation = Derivation {
        outputs: vec![output],
        replaced: entries.into_iter().map(replaced).collect(),
        kind: DerivationKind::Compacted,
        payload,
        now,
        secrets_seen,
    };
    let Some(expiries) = derivation::still_there(c, s, Some(no), &derivation)? else {
        return Ok(Kept::Changed);
    };
    // From here on it is done, or an error that undoes it.
    if !keep_run(c, s, scope, run)? {
        return Ok(Kept::Changed);
    }
    let derived = derivation::write(c, s, scope, derivation, expiries)?;
    archives::keep(c, s, scope, no, dream.run.id(), &dream.archive, now)?;
    let index_updated = dream.index.is_some();
    if let Some((place, file)) = dream.index.clone() {
        workspace::put(c, s, &place, file)?;
    }
    let output = derived.outputs.into_iter().next();
    let output = output.ok_or_else(|| rows::damaged(s, "a dream has no entry"))?;
    let keep = || {
        if let Some(previous) = &previous {
            set_state(c, no.tenant, previous, DreamState::Superseded)?;
        }
        let number = next_number(c, no)?;
        let record = DreamRecord {
            run: dream.run.id().to_owned(),
            scope: scope.clone(),
            number: number as u64,
            state: DreamState::InForce,
            previous,
            trigger: dream.trigger,
            distiller: dream.distiller.clone(),
            output: output.id.clone(),
            archive: dream.archive.checksum,
            figures: dream.figures,
            section: dream.section.clone(),
            source_ids: dream.source_ids.clone(),
            index_updated,
            position: derived.position,
            created_at: now,
        };
        insert(c, no, &record)?;
        for span in &dream.spans {
            put_span(c, no, &record.run, span)?;
        }
        Ok(record)
    };
    let record = keep().map_err(|e: engine::Error| s.failed(e))?;
    let kept =
        KeptDream { dream: record, output, payload: derived.payload, position: derived.position };
    Ok(Kept::Done(Box::new(kept)))
}

fn refuse_foreign(scope: &Scope, index: Option<&(Workspace, NewFile)>) -> Result<()> {
    match index {
        Some((workspace, _)) if workspace.tenant() != scope.tenant() => {
            Err(StoreError::OtherTenant)
        }
        _ => Ok(()),
    }
}

/// Whether the memory is as it was when the dream was read.
fn is_as_read(c: &Connection, no: ScopeNo, dream: &NewDream) -> engine::Result<bool> {
    let epoch: i64 = c
        .prepare_cached("SELECT epoch FROM scopes WHERE tenant = ?1 AND scope = ?2")?
        .query_row([no.tenant, no.scope], |row| row.get(0))?;
    let is_taken = c
        .prepare_cached("SELECT 1 FROM dreams WHERE tenant = ?1 AND run = ?2")?
        .exists(params![no.tenant, dream.run.id()])?;
    if is_taken || epoch as u64 != dream.epoch || in_force(c, no)? != dream.previous {
        return Ok(false);
    }
    let branches: BTreeSet<_> =
        dream.spans.iter().map(|span| (span.session, span.branch)).collect();
    if branches.len() < dream.spans.len() {
        return Ok(false);
    }
    let mut is_unread = c.prepare_cached(
        "SELECT 1 FROM branches b
         JOIN sessions o ON o.tenant = b.tenant AND o.session = b.session AND o.scope = ?2
         WHERE b.tenant = ?1 AND b.session = ?3 AND b.branch = ?4 AND b.dreamed_through = ?5
           AND ?5 <= ?6 AND ?6 <= b.length",
    )?;
    for span in &dream.spans {
        let (session, branch) = (rows::number(span.session.0), i64::from(span.branch.0));
        let (after, through) = (rows::number(span.after.0), rows::number(span.through.0));
        if !is_unread.exists([no.tenant, no.scope, session, branch, after, through])? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The run of the dream in force.
fn in_force(c: &Connection, no: ScopeNo) -> engine::Result<Option<String>> {
    c.prepare_cached(
        "SELECT run FROM dreams INDEXED BY dreams_in_force
         WHERE tenant = ?1 AND scope = ?2 AND state = 'in-force'",
    )?
    .query_row([no.tenant, no.scope], |row| row.get(0))
    .optional()
}

/// Makes the run, or lets it go on; false if it went on by itself.
fn keep_run(c: &Connection, s: &Shared, scope: &Scope, run: DreamRun) -> Result<bool> {
    let tenant = scope.tenant();
    match run {
        DreamRun::New(run) => {
            let place = Principal::local_operator(tenant.clone()).workspace();
            runs::create_as(c, s, &place, run, RunStatus::Completed).map(|_| true)
        }
        DreamRun::Step(step) => runs::step(c, s, tenant, step).map(|run| run.is_some()),
    }
}

fn next_number(c: &Connection, no: ScopeNo) -> engine::Result<i64> {
    c.prepare_cached(
        "SELECT coalesce(max(number), 0) + 1 FROM dreams WHERE tenant = ?1 AND scope = ?2",
    )?
    .query_row([no.tenant, no.scope], |row| row.get(0))
}

fn insert(c: &Connection, no: ScopeNo, dream: &DreamRecord) -> engine::Result<()> {
    let figures = &dream.figures;
    c.prepare_cached(
        "INSERT INTO dreams (tenant, run, scope, number, state, previous, trigger, distiller,
             output, archive, budget, minimum, input_tokens, output_tokens, source_count,
             remaining, bytes_before, bytes_after, lines, index_updated, position, created_at,
             section, source_ids)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
             ?19, ?20, ?21, ?22, ?23, ?24)",
    )?
    .execute(params![
        no.tenant,
        dream.run,
        no.scope,
        rows::number(dream.number),
        dream.state.as_str(),
        dream.previous,
        dream.trigger.as_str(),
        dream.distiller,
        dream.output,
        dream.archive.0.as_slice(),
        rows::number(figures.budget),
        rows::number(figures.minimum),
        rows::number(figures.input_tokens),
        rows::number(figures.output_tokens),
        rows::number(figures.source_count),
        rows::number(figures.remaining),
        rows::number(figures.bytes_before),
        rows::number(figures.bytes_after),
        rows::number(figures.lines),
        dream.index_updated,
        rows::number(dream.position.0),
        dream.created_at.0,
        dream.section.as_str(),
        dream.source_ids.as_str(),
    ])?;
    Ok(())
}

fn put_span(c: &Connection, no: ScopeNo, run: &str, span: &DreamSpan) -> engine::Result<()> {
    let (session, branch) = (rows::number(span.session.0), span.branch.0);
    let (after, through) = (rows::number(span.after.0), rows::number(span.through.0));
    c.prepare_cached(
        "INSERT INTO dream_spans (tenant, session, branch, run, after, through)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![no.tenant, session, branch, run, after, through])?;
    read_through(c, no.tenant, (session, i64::from(branch)), through)
}

fn read_through(
    c: &Connection,
    tenant: i64,
    (session, branch): (i64, i64),
    through: i64,
) -> engine::Result<()> {
    c.prepare_cached(
        "UPDATE branches SET dreamed_through = ?4 WHERE tenant = ?1 AND session = ?2 AND branch = ?3",
    )?
    .execute([tenant, session, branch, through])?;
    Ok(())
}

/// The turns that a dream read count as unread.
pub(super) fn unread(c: &Connection, tenant: i64, run: &str) -> engine::Result<()> {
    let spans: Vec<(i64, i64, i64)> = c
        .prepare_cached(
            "SELECT session, branch, after FROM dream_spans INDEXED BY dream_spans_by_run
             WHERE tenant = ?1 AND run = ?2",
        )?
        .query_map(params![tenant, run], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<engine::Result<_>>()?;
    for (session, branch, after) in spans {
        read_through(c, tenant, (session, branch), after)?;
    }
    Ok(())
}

pub(super) fn set_state(
    c: &Connection,
    tenant: i64,
    run: &str,
    state: DreamState,
) -> engine::Result<()> {
    c.prepare_cached("UPDATE dreams SET state = ?3 WHERE tenant = ?1 AND run = ?2")?
        .execute(params![tenant, run, state.as_str()])?;
    Ok(())
}

/// Lets a dream count no more, and tell nothing.
pub(super) fn take_back(
    c: &Connection,
    tenant: i64,
    run: &str,
    state: DreamState,
) -> engine::Result<()> {
    c.prepare_cached(
        "UPDATE dreams SET state = ?3, section = '', source_ids = ''
         WHERE tenant = ?1 AND run = ?2",
    )?
    .execute(params![tenant, run, state.as_str()])?;
    Ok(())
}

// Taking one back

pub(super) fn undo(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    run: &str,
    index: Option<(Workspace, NewFile)>,
    now: Millis,
) -> Result<Option<DreamRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(None) };
    refuse_foreign(scope, index.as_ref())?;
    let is_it = |dream: &DreamRecord| dream.scope == *scope && dream.state == DreamState::InForce;
    let Some(dream) = get(c, s, scope.tenant(), run)?.filter(is_it) else { return Ok(None) };
    let mut last = Some(dream.clone());
    while let Some(dream) = last {
        undo_one(c, (scope, no), &dream, now).map_err(|e| s.failed(e))?;
        let Some(previous) = &dream.previous else { break };
        last = get(c, s, scope.tenant(), previous)?;
        let Some(before) = &last else { break };
        // One whose archive is gone could not be read on top of: it goes as well.
        if archives::has_key(c, no, &before.archive.0).map_err(|e| s.failed(e))? {
            set_state(c, no.tenant, previous, DreamState::InForce).map_err(|e| s.failed(e))?;
            break;
        }
    }
    if let Some((place, file)) = index {
        workspace::put(c, s, &place, file)?;
    }
    let tell = || {
        let payload = undone(scope, run, &dream.output);
        log::record(c, no.tenant, Some(no.scope), "dream.undone", &payload, now)?;
        // As of an earlier position both would be seen.
        entries::keep_from(c, no, 0)?;
        c.execute(
            "UPDATE scopes SET epoch = epoch + 1 WHERE tenant = ?1 AND scope = ?2",
            [no.tenant, no.scope],
        )
    };
    tell().map_err(|e: engine::Error| s.failed(e))?;
    get(c, s, scope.tenant(), run)
}

/// Takes one dream back, and puts none in force.
fn undo_one(
    c: &Connection,
    (scope, no): (&Scope, ScopeNo),
    dream: &DreamRecord,
    now: Millis,
) -> engine::Result<()> {
    let ending = derivation::with_what_quotes(c, no, &dream.output, BTreeSet::new(), now)?;
    entries::end_all(c, scope, no, &ending, now)?;
    unread(c, no.tenant, &dream.run)?;
    take_back(c, no.tenant, &dream.run, DreamState::Undone)?;
    archives::let_go(c, no, &dream.archive, archives::Why::Undone, now)
}

// Records

const COLUMNS: &str = "run, scope, number, state, previous, trigger, distiller, output, archive,
    budget, minimum, input_tokens, output_tokens, source_count, remaining, bytes_before,
    bytes_after, lines, index_updated, position, created_at, section, source_ids";

/// A dream's row, before its memory has its name.
struct DreamRow {
    scope: i64,
    state: String,
    trigger: String,
    archive: Vec<u8>,
    record: RecordParts,
}

/// What a row says by itself.
struct RecordParts {
    run: String,
    number: u64,
    previous: Option<String>,
    distiller: String,
    output: String,
    figures: DreamFigures,
    section: RedactedText,
    source_ids: RedactedText,
    index_updated: bool,
    position: Position,
    created_at: Millis,
}

#[expect(clippy::disallowed_methods, reason = "dreams come from our own rows")]
fn read_row(row: &Row<'_>) -> engine::Result<DreamRow> {
    let number = |column: usize| row.get::<_, i64>(column).map(|number| number as u64);
    Ok(DreamRow {
        scope: row.get(1)?,
        state: row.get(3)?,
        trigger: row.get(5)?,
        archive: row.get(8)?,
        record: RecordParts {
            run: row.get(0)?,
            number: number(2)?,
            previous: row.get(4)?,
            distiller: row.get(6)?,
            output: row.get(7)?,
            figures: DreamFigures {
                budget: number(9)?,
                minimum: number(10)?,
                input_tokens: number(11)?,
                output_tokens: number(12)?,
                source_count: number(13)?,
                remaining: number(14)?,
                bytes_before: number(15)?,
                bytes_after: number(16)?,
                lines: number(17)?,
            },
            index_updated: row.get(18)?,
            position: Position(number(19)?),
            created_at: Millis(row.get(20)?),
            section: RedactedText::read_back(row.get(21)?),
            source_ids: RedactedText::read_back(row.get(22)?),
        },
    })
}

fn whole(c: &Connection, s: &Shared, tenant: i64, row: DreamRow) -> Result<DreamRecord> {
    let (Some(state), Some(trigger), Ok(archive)) = (
        DreamState::parse(&row.state),
        DreamTrigger::parse(&row.trigger),
        <[u8; 32]>::try_from(row.archive),
    ) else {
        return Err(rows::damaged(s, "the row of a dream is not valid"));
    };
    let of = row.record;
    Ok(DreamRecord {
        run: of.run,
        scope: rows::scope_of(c, s, tenant, row.scope)?,
        number: of.number,
        state,
        previous: of.previous,
        trigger,
        distiller: of.distiller,
        output: of.output,
        archive: Checksum(archive),
        figures: of.figures,
        section: of.section,
        source_ids: of.source_ids,
        index_updated: of.index_updated,
        position: of.position,
        created_at: of.created_at,
    })
}

/// What the dreams of a memory tell, by their numbers.
pub(super) fn texts(c: &Connection, no: ScopeNo) -> engine::Result<Vec<(i64, [String; 2])>> {
    c.prepare_cached(
        "SELECT number, section, source_ids FROM dreams
         WHERE tenant = ?1 AND scope = ?2 AND (section != '' OR source_ids != '')
         ORDER BY number",
    )?
    .query_map([no.tenant, no.scope], |row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?])))?
    .collect()
}

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    run: &str,
) -> Result<Option<DreamRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(None) };
    c.prepare_cached(&format!("SELECT {COLUMNS} FROM dreams WHERE tenant = ?1 AND run = ?2"))
        .and_then(|mut q| q.query_row(params![no, run], read_row).optional())
        .map_err(|e| s.failed(e))?
        .map(|row| whole(c, s, no, row))
        .transpose()
}

pub(super) fn list(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    query: &DreamQuery,
) -> Result<Vec<DreamRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    // Of one memory, positions rise with the numbers.
    let (source, order) = match (&query.memory, query.in_force) {
        (_, true) => ("dreams INDEXED BY dreams_in_force", "position"),
        (Some(_), false) => ("dreams", "number"),
        (None, false) => ("dreams INDEXED BY dreams_by_position", "position"),
    };
    let of_memory = match query.memory {
        Some(_) => "scope = (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2)",
        None => "?2 IS NULL",
    };
    let in_force = if query.in_force { "state = 'in-force'" } else { "1 = 1" };
    let found: Vec<DreamRow> = c
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM {source} WHERE tenant = ?1 AND {of_memory} AND {in_force}
               AND position < ?3 ORDER BY {order} DESC LIMIT ?4"
        ))
        .and_then(|mut q| {
            let before = query.before.map_or(i64::MAX, |before| rows::number(before.0));
            let limit = rows::number(query.limit as u64);
            q.query_map(params![no, query.memory, before, limit], read_row)?.collect()
        })
        .map_err(|e| s.failed(e))?;
    found.into_iter().map(|row| whole(c, s, no, row)).collect()
}

pub(super) fn tokens(c: &Connection, s: &Shared, tenant: &Tenant, since: Millis) -> Result<u64> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(0) };
    c.prepare_cached(
        "SELECT coalesce(sum(input_tokens + output_tokens), 0)
         FROM dreams INDEXED BY dreams_by_time WHERE tenant = ?1 AND created_at >= ?2",
    )
    .and_then(|mut q| q.query_row([no, since.0], |row| row.get::<_, i64>(0)))
    .map(|tokens| tokens as u64)
    .map_err(|e| s.failed(e))
}

// What was lost

pub(super) fn lost(c: &Connection, s: &Shared, limit: usize) -> Result<Vec<DreamDue>> {
    let found: Vec<(i64, i64, i64, i64)> = c
        .prepare_cached(
            "SELECT tenant, scope, dreams_lost, epoch FROM scopes INDEXED BY scopes_dreams_lost
             WHERE dreams_lost IS NOT NULL ORDER BY tenant, scope LIMIT ?1",
        )
        .and_then(|mut q| {
            let limit = rows::number(limit as u64);
            let place = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            q.query_map([limit], place)?.collect()
        })
        .map_err(|e| s.failed(e))?;
    let due = |(tenant, scope, budget, epoch): (i64, i64, i64, i64)| {
        let scope = rows::scope_of(c, s, tenant, scope)?;
        Ok(DreamDue { scope, budget: budget as u64, epoch: epoch as u64 })
    };
    found.into_iter().map(due).collect()
}

pub(super) fn settle_lost(c: &Connection, s: &Shared, due: &DreamDue) -> Result<()> {
    let Some(no) = rows::scope_no(c, s, &due.scope)? else { return Ok(()) };
    let losing =
        "UPDATE scopes SET dreams_lost = NULL WHERE tenant = ?1 AND scope = ?2 AND epoch = ?3";
    c.prepare_cached(losing)
        .and_then(|mut q| q.execute([no.tenant, no.scope, rows::number(due.epoch)]))
        .map(|_| ())
        .map_err(|e| s.failed(e))
}

pub(super) fn note_lost(c: &Connection, s: &Shared, scope: &Scope, budget: u64) -> Result<()> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(()) };
    c.prepare_cached(
        "UPDATE scopes SET dreams_lost = max(coalesce(dreams_lost, 0), ?3)
         WHERE tenant = ?1 AND scope = ?2",
    )
    .and_then(|mut q| q.execute([no.tenant, no.scope, rows::number(budget)]))
    .map(|_| ())
    .map_err(|e| s.failed(e))
}

/// How often dreams of a tenant were lost.
pub(super) fn losses(c: &Connection, tenant: i64) -> engine::Result<u64> {
    c.prepare_cached("SELECT dream_losses FROM tenants WHERE tenant = ?1")?
        .query_row([tenant], |row| row.get::<_, i64>(0))
        .map(|losses| losses as u64)
}

pub(super) fn losses_of(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<u64> {
    match rows::tenant_no(c, s, tenant)? {
        Some(no) => losses(c, no).map_err(|e| s.failed(e)),
        None => Ok(0),
    }
}

pub(super) fn settle_lost_index(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    losses: u64,
) -> Result<()> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(()) };
    c.prepare_cached("UPDATE tenants SET index_lost = 0 WHERE tenant = ?1 AND dream_losses = ?2")
        .and_then(|mut q| q.execute([no, rows::number(losses)]))
        .map(|_| ())
        .map_err(|e| s.failed(e))
}

pub(super) fn lost_indexes(c: &Connection, s: &Shared, limit: usize) -> Result<Vec<Tenant>> {
    let names: Vec<String> = c
        .prepare_cached(
            "SELECT name FROM tenants INDEXED BY tenants_index_lost
             WHERE index_lost = 1 ORDER BY tenant LIMIT ?1",
        )
        .and_then(|mut q| q.query_map([rows::number(limit as u64)], |row| row.get(0))?.collect())
        .map_err(|e| s.failed(e))?;
    let named = |name| {
        Tenant::new(name).map_err(|_| rows::damaged(s, "a stored name of a tenant is not valid"))
    };
    names.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use crate::contract::dreams::new_dream;
    use crate::contract::fixtures::*;
    use crate::sql::Wall;

    /// What a look for what is due does must not grow with what is not due.
    #[tokio::test]
    async fn what_is_due_is_found_without_a_scan() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), None).unwrap();
        for (sql, index) in [
            (undreamt_sql(), "SEARCH entries USING INDEX entries_shown"),
            (UNDREAMT_BRANCHES.to_owned(), "SEARCH b USING INDEX branches_undreamt"),
        ] {
            let steps =
                store.read(Wall::Everyone, move |c, s| c.plan(&sql).map_err(|e| s.failed(e)));
            let steps = steps.await.unwrap();
            assert!(steps.iter().any(|step| step.starts_with(index)), "{steps:?}");
            let is_scan = |step: &&String| step.starts_with("SCAN") && !step.contains("json_each");
            assert_eq!(steps.iter().find(is_scan), None, "{steps:?}");
        }
    }

    /// A store with two dreams, one on top of the other.
    async fn dreamt(dir: &std::path::Path) -> SqliteStore {
        let store = SqliteStore::open(dir, None).unwrap();
        let session = add(&store, "s", &say_many(4)).await;
        let mut previous = None;
        for number in 1..3 {
            let lease = Lease { holder: "me".to_owned(), until: Millis(NOW.0 + 1) };
            assert!(store.lease_dream(&scope(), lease, NOW).await.unwrap());
            let (after, through) = (Ordinal(u64::from(number) - 1), Ordinal(u64::from(number)));
            let span = DreamSpan { session, branch: Branch::MAIN, after, through };
            let new = NewDream { spans: vec![span], ..new_dream(number, previous.as_deref()) };
            let Kept::Done(kept) = store.keep_dream(&scope(), new).await.unwrap() else {
                panic!("nothing is in its way")
            };
            previous = Some(kept.dream.run);
        }
        clean(&store).await;
        store
    }

    #[tokio::test]
    async fn damaged_dreams_are_found() {
        let checksum = "01".repeat(32);
        for (change, finding) in [
            (
                "UPDATE dreams SET state = 'in-force'",
                "dreams of a memory are no chain: run dream-1".to_owned(),
            ),
            (
                "UPDATE dreams SET previous = NULL",
                "dreams of a memory are no chain: run dream-2".to_owned(),
            ),
            (
                "UPDATE branches SET dreamed_through = 1",
                "a branch's turns count as read that no dream read: session 1 branch 0".to_owned(),
            ),
            (
                "DELETE FROM dreams WHERE number = 2",
                "what a dream read is of no dream: run dream-2".to_owned(),
            ),
            (
                "DELETE FROM entries WHERE began > 5",
                "what a dream wrote is not there: run dream-2".to_owned(),
            ),
            (
                "UPDATE dreams SET state = 'erased' WHERE number = 2",
                "a dream that was lost or taken back tells of its sources: run dream-2".to_owned(),
            ),
            (
                "UPDATE archives SET sealed_key = NULL WHERE checksum < x'02'",
                format!("an archive's key does not fit its state: archive {checksum}"),
            ),
            (
                "DELETE FROM archives WHERE run = 'dream-2'",
                "an archive's key does not fit its state: run dream-2".to_owned(),
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = dreamt(dir.path()).await;
            store
                .write(Wall::Everyone, move |c, s| c.execute_batch(change).map_err(|e| s.failed(e)))
                .await
                .unwrap();
            let findings = store.check().await.unwrap();
            assert!(findings.contains(&finding), "{finding}: {findings:?}");
        }
    }

    #[tokio::test]
    async fn a_damaged_row_is_told() {
        for (change, is_dream) in [
            ("UPDATE dreams SET state = 'asleep'", true),
            ("UPDATE dreams SET archive = x'00'", true),
            ("UPDATE archives SET sealed_key = x'00'", false),
            ("UPDATE archives SET checksum = x'00' WHERE run = 'dream-2'", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = dreamt(dir.path()).await;
            store
                .write(Wall::Everyone, move |c, s| c.execute_batch(change).map_err(|e| s.failed(e)))
                .await
                .unwrap();
            let dream = store.dream(&tenant("acme"), "dream-2").await;
            let archives = store.archives(None).await;
            assert_eq!((dream.is_err(), archives.is_err()), (is_dream, !is_dream), "{change}");
        }
    }
}
