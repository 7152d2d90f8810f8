//! Dreams: who may dream, what is due, what came of it, and taking that back.

pub(crate) mod archives;
pub(crate) mod seal;

use crate::entries::LIVES;
use std::collections::BTreeSet;

use icecore_domain::compaction::COMMITMENT_TAG;
use icecore_domain::dream::Checksum;
use icecore_domain::ids::{Branch, Ordinal, Position, Principal, Scope, SessionNo, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;

use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::entries::derivation::{
    Derivation, DerivationKind, DerivedEntry, EntryPlace, MakePayload, Replaced, Successor,
};
use crate::entries::{EntryRecord, derivation};
use crate::error::{Result, StoreError};
use crate::host::runs::{NewRun, RunStatus, RunStep};
use crate::host::workspace::NewFile;
use crate::host::{runs, workspace};
use crate::pack::PackKey;
use crate::store::Store;
use crate::store::leases::MAX_LEASE_MILLIS;
use crate::{engine, entries, log, scopes, secrets};

/// Who may dream in a memory, until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Whoever took it, by a name that nobody else has.
    pub holder: String,
    /// Afterwards anybody may take it.
    pub until: Millis,
}

/// What a branch has that no dream has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undreamt {
    /// Of which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// Its own turns up to here have been read; 0 if none.
    pub after: Ordinal,
    /// Its last turn.
    pub through: Ordinal,
}

/// Turns of a branch that a dream read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DreamSpan {
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// Those after this.
    pub after: Ordinal,
    /// Up to this.
    pub through: Ordinal,
}

/// How much a dream read and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DreamFigures {
    /// Tokens that it might use.
    pub budget: u64,
    /// The smallest budget that would not have been refused.
    pub minimum: u64,
    /// Tokens of what it read.
    pub input_tokens: u64,
    /// Tokens of what it wrote.
    pub output_tokens: u64,
    /// Sources that it read.
    pub source_count: u64,
    /// Sources that stayed due.
    pub remaining: u64,
    /// Bytes of the sources that it stands for, as they are stored.
    pub bytes_before: u64,
    /// Bytes of what stands for them.
    pub bytes_after: u64,
    /// Lines of the distillate.
    pub lines: u64,
}

/// Who asked for a dream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DreamTrigger {
    /// Somebody, at a door.
    Manual,
    /// A schedule.
    Scheduled,
    /// The host, because something that an earlier one had read was forgotten.
    Anew,
}

impl DreamTrigger {
    const ALL: [DreamTrigger; 3] =
        [DreamTrigger::Manual, DreamTrigger::Scheduled, DreamTrigger::Anew];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            DreamTrigger::Manual => "manual",
            DreamTrigger::Scheduled => "scheduled",
            DreamTrigger::Anew => "anew",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        DreamTrigger::ALL.into_iter().find(|trigger| trigger.as_str() == word)
    }
}

/// An archive whose body has been written.
#[derive(Debug, Clone)]
pub struct NewArchive {
    /// Its address: the SHA-256 of its plaintext.
    pub checksum: Checksum,
    /// The random name of its body.
    pub name: String,
    /// The body's own key.
    pub key: PackKey,
    /// Bytes of the plaintext.
    pub bytes: u64,
    /// Bytes of the body as it lies there.
    pub stored_bytes: u64,
    /// SHA-256 of the body as it lies there.
    pub sha256: [u8; 32],
}

/// The run that a dream is.
#[derive(Debug, Clone)]
pub enum DreamRun {
    /// It is made with its dream, and has ended: all its events are given.
    New(NewRun),
    /// It was made before, and ends with its dream.
    Step(RunStep),
}

impl DreamRun {
    /// The run's id.
    pub fn id(&self) -> &str {
        match self {
            DreamRun::New(run) => &run.id,
            DreamRun::Step(step) => &step.run,
        }
    }
}

/// A dream to keep, all of it or nothing.
#[derive(Clone)]
pub struct NewDream {
    /// Who dreamt it; must still hold the memory's lease.
    pub holder: String,
    /// The run of the dream in force that it was read on top of, if any.
    pub previous: Option<String>,
    /// The scope's epoch when it was read.
    pub epoch: u64,
    /// The run that it is.
    pub run: DreamRun,
    /// Who asked for it.
    pub trigger: DreamTrigger,
    /// What made the distillate.
    pub distiller: String,
    /// The distillate, or its head, as an entry.
    pub output: DerivedEntry,
    /// The entries that it stands for from now on, the previous dream's among them.
    pub entries: Vec<String>,
    /// The turns that it read.
    pub spans: Vec<DreamSpan>,
    /// Its archive.
    pub archive: NewArchive,
    /// How much it read and wrote.
    pub figures: DreamFigures,
    /// The section of the index that tells of it, as JSON without content beyond topics.
    pub section: RedactedText,
    /// Which source is which id, as JSON, in the order of the archive's list.
    pub source_ids: RedactedText,
    /// The index file as it is then, where one is kept.
    pub index: Option<(Workspace, NewFile)>,
    /// Makes the payload of `memory.compacted` from the id of the output. It holds no
    /// content.
    pub payload: MakePayload,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which everything was redacted.
    pub secrets_seen: u64,
}

impl std::fmt::Debug for NewDream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewDream")
            .field("run", &self.run.id())
            .field("archive", &self.archive.checksum)
            .finish_non_exhaustive()
    }
}

/// What became of a dream that was to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// It is kept.
    Done(Box<KeptDream>),
    /// What it was read from is not so any more, or its run has gone on: nothing was
    /// done.
    Changed,
    /// Somebody else has the lease: nothing was done.
    LeaseLost,
}

/// A dream that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDream {
    /// The dream.
    pub dream: DreamRecord,
    /// The entry that it wrote.
    pub output: EntryRecord,
    /// The payload of `memory.compacted`.
    pub payload: String,
    /// Where that is in the log.
    pub position: Position,
}

/// How a dream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DreamState {
    /// It is the memory's newest, and answers.
    InForce,
    /// A newer one was made of it.
    Superseded,
    /// It was taken back.
    Undone,
    /// Something that it had read was forgotten, and it with that.
    Erased,
}

impl DreamState {
    const ALL: [DreamState; 4] =
        [DreamState::InForce, DreamState::Superseded, DreamState::Undone, DreamState::Erased];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            DreamState::InForce => "in-force",
            DreamState::Superseded => "superseded",
            DreamState::Undone => "undone",
            DreamState::Erased => "erased",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        DreamState::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// A dream as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamRecord {
    /// The run that it is.
    pub run: String,
    /// In which memory.
    pub scope: Scope,
    /// Which of the memory's dreams it is, from 1.
    pub number: u64,
    /// How it stands.
    pub state: DreamState,
    /// The dream that it was made on top of.
    pub previous: Option<String>,
    /// Who asked for it.
    pub trigger: DreamTrigger,
    /// What made the distillate.
    pub distiller: String,
    /// The entry that it wrote.
    pub output: String,
    /// Its archive's address.
    pub archive: Checksum,
    /// How much it read and wrote.
    pub figures: DreamFigures,
    /// The section of the index that tells of it; empty once it is undone or erased.
    pub section: RedactedText,
    /// Which source is which id; empty once it is undone or erased.
    pub source_ids: RedactedText,
    /// Whether it changed the index.
    pub index_updated: bool,
    /// Where `memory.compacted` is in the log.
    pub position: Position,
    /// When it was kept.
    pub created_at: Millis,
}

/// An archive as kept.
#[derive(Debug, Clone)]
pub struct ArchiveRecord {
    /// In which memory.
    pub scope: Scope,
    /// Its address.
    pub checksum: Checksum,
    /// The run of the last dream that came to it.
    pub run: String,
    /// The name of its body.
    pub name: String,
    /// The body's key; none once it was erased or is past its retention.
    pub key: Option<PackKey>,
    /// Bytes of the plaintext.
    pub bytes: u64,
    /// Bytes of the body as it lies there.
    pub stored_bytes: u64,
    /// SHA-256 of the body as it lies there.
    pub sha256: [u8; 32],
    /// When it was written first.
    pub created_at: Millis,
    /// When its key was destroyed because something in it was forgotten.
    pub erased_at: Option<Millis>,
    /// When its key was destroyed because it was past its retention, or taken back.
    pub expired_at: Option<Millis>,
}

/// Which dreams are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DreamQuery {
    /// Of one memory; without, of the tenant.
    pub memory: Option<String>,
    /// Only those in force.
    pub in_force: bool,
    /// Only those before this one in the list.
    pub before: Option<Position>,
    /// At most so many.
    pub limit: usize,
}

/// A memory whose dreams were lost with something that was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamDue {
    /// Which.
    pub scope: Scope,
    /// The largest budget of those that were lost.
    pub budget: u64,
    /// The scope's epoch, which rises when more is lost.
    pub epoch: u64,
}

/// The payload of `dream.undone`.
pub(crate) fn undone(scope: &Scope, run: &str, output: &str) -> String {
    let payload =
        serde_json::json!({ "memoryRef": scope.memory(), "runId": run, "memoryId": output });
    payload.to_string()
}

/// The payload of `dream.lost`.
pub(crate) fn lost_event(scope: &Scope, runs: usize) -> String {
    serde_json::json!({ "memoryRef": scope.memory(), "runs": runs }).to_string()
}

/// What holds of a dream that counts: the one in force, and those that it was made on
/// top of.
pub(crate) const COUNTS: &str = "state IN ('in-force', 'superseded')";

// Leases

pub(crate) fn lease(tx: &Tx<'_>, scope: &Scope, lease: &Lease, now: Millis) -> Result<bool> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(true) };
    tx.prepare_cached(
        "UPDATE scopes SET dreamer = ?3, dreamer_until = ?4
         WHERE tenant = ?1 AND scope = ?2
           AND (dreamer IS NULL OR dreamer = ?3 OR dreamer_until <= ?5 OR dreamer_until > ?6)",
    )
    .and_then(|mut q| {
        let most = now.0.saturating_add(MAX_LEASE_MILLIS);
        q.execute(params![no.tenant, no.scope, lease.holder, lease.until.0, now.0, most])
    })
    .map(|taken| taken > 0)
}

pub(crate) fn release(tx: &Tx<'_>, scope: &Scope, holder: &str) -> Result<()> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(()) };
    tx.prepare_cached(
        "UPDATE scopes SET dreamer = NULL, dreamer_until = NULL
         WHERE tenant = ?1 AND scope = ?2 AND dreamer = ?3",
    )
    .and_then(|mut q| q.execute(params![no.tenant, no.scope, holder]))
    .map(|_| ())
}

fn has_lease(tx: &Tx<'_>, no: ScopeNo, holder: &str, now: Millis) -> Result<bool> {
    tx.prepare_cached(
        "SELECT 1 FROM scopes WHERE tenant = ?1 AND scope = ?2 AND dreamer = ?3
           AND dreamer_until > ?4",
    )?
    .exists(params![no.tenant, no.scope, holder, now.0])
}

// What is due

pub(crate) fn undreamt_entries(
    tx: &Tx<'_>,
    scope: &Scope,
    after: Option<EntryPlace>,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryPlace>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let (time, began) = match after {
        Some(place) => (place.created_at.0, engine::number(place.began.0)),
        None => (i64::MIN, i64::MIN),
    };
    tx.prepare_cached(&undreamt_sql()).and_then(|mut q| {
        let limit = engine::number(limit as u64);
        let values = params![no.tenant, no.scope, now.0, time, began, limit, COMMITMENT_TAG];
        let place = |row: &Row<'_>| {
            let began = Position(row.get::<_, i64>(1)? as u64);
            Ok(EntryPlace { created_at: Millis(row.get(0)?), began })
        };
        q.query_map(values, place)?.collect()
    })
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

pub(crate) fn undreamt_branches(
    tx: &Tx<'_>,
    scope: &Scope,
    after: Option<(SessionNo, Branch)>,
    limit: usize,
) -> Result<Vec<Undreamt>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let (session, branch) = match after {
        Some((session, branch)) => (engine::number(session.0), i64::from(branch.0)),
        None => (0, -1),
    };
    tx.prepare_cached(UNDREAMT_BRANCHES).and_then(|mut q| {
        let limit = engine::number(limit as u64);
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
}

const UNDREAMT_BRANCHES: &str = "SELECT b.session, b.branch, b.dreamed_through, b.length
     FROM sessions o INDEXED BY sessions_by_scope
     CROSS JOIN branches b INDEXED BY branches_undreamt
       ON b.tenant = o.tenant AND b.session = o.session AND b.dreamed_through < b.length
     WHERE o.tenant = ?1 AND o.scope = ?2 AND o.session >= ?3
       AND (b.session, b.branch) > (?3, ?4)
     ORDER BY o.session, b.branch LIMIT ?5";

// Keeping one

pub(crate) fn keep(tx: &Tx<'_>, scope: &Scope, dream: NewDream) -> Result<Kept> {
    secrets::refuse_changed(tx, scope.tenant(), dream.secrets_seen)?;
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Kept::LeaseLost) };
    if !has_lease(tx, no, &dream.holder, dream.now)? {
        return Ok(Kept::LeaseLost);
    }
    refuse_foreign(scope, dream.index.as_ref())?;
    if !is_as_read(tx, no, &dream)? {
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
    let Some(expiries) = derivation::still_there(tx, Some(no), &derivation)? else {
        return Ok(Kept::Changed);
    };
    // From here on it is done, or an error that undoes it.
    if !keep_run(tx, scope, run)? {
        return Ok(Kept::Changed);
    }
    let derived = derivation::write(tx, scope, derivation, expiries)?;
    archives::keep(tx, scope, no, dream.run.id(), &dream.archive, now)?;
    let index_updated = dream.index.is_some();
    if let Some((place, file)) = dream.index.clone() {
        workspace::put(tx, &place, file)?;
    }
    let output = derived.outputs.into_iter().next();
    let output = output.ok_or_else(|| tx.damaged("a dream has no entry"))?;
    let keep = || -> Result<_> {
        if let Some(previous) = &previous {
            set_state(tx, no.tenant, previous, DreamState::Superseded)?;
        }
        let number = next_number(tx, no)?;
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
        insert(tx, no, &record)?;
        for span in &dream.spans {
            put_span(tx, no, &record.run, span)?;
        }
        Ok(record)
    };
    let record = keep()?;
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
fn is_as_read(tx: &Tx<'_>, no: ScopeNo, dream: &NewDream) -> Result<bool> {
    let epoch: i64 = tx
        .prepare_cached("SELECT epoch FROM scopes WHERE tenant = ?1 AND scope = ?2")?
        .query_row([no.tenant, no.scope], |row| row.get(0))?;
    let is_taken = tx
        .prepare_cached("SELECT 1 FROM dreams WHERE tenant = ?1 AND run = ?2")?
        .exists(params![no.tenant, dream.run.id()])?;
    if is_taken || epoch as u64 != dream.epoch || in_force(tx, no)? != dream.previous {
        return Ok(false);
    }
    let branches: BTreeSet<_> =
        dream.spans.iter().map(|span| (span.session, span.branch)).collect();
    if branches.len() < dream.spans.len() {
        return Ok(false);
    }
    let mut is_unread = tx.prepare_cached(
        "SELECT 1 FROM branches b
         JOIN sessions o ON o.tenant = b.tenant AND o.session = b.session AND o.scope = ?2
         WHERE b.tenant = ?1 AND b.session = ?3 AND b.branch = ?4 AND b.dreamed_through = ?5
           AND ?5 <= ?6 AND ?6 <= b.length",
    )?;
    for span in &dream.spans {
        let (session, branch) = (engine::number(span.session.0), i64::from(span.branch.0));
        let (after, through) = (engine::number(span.after.0), engine::number(span.through.0));
        if !is_unread.exists([no.tenant, no.scope, session, branch, after, through])? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The run of the dream in force.
fn in_force(tx: &Tx<'_>, no: ScopeNo) -> Result<Option<String>> {
    tx.prepare_cached(
        "SELECT run FROM dreams INDEXED BY dreams_in_force
         WHERE tenant = ?1 AND scope = ?2 AND state = 'in-force'",
    )?
    .query_row([no.tenant, no.scope], |row| row.get(0))
    .optional()
}

/// Makes the run, or lets it go on; false if it went on by itself.
fn keep_run(tx: &Tx<'_>, scope: &Scope, run: DreamRun) -> Result<bool> {
    let tenant = scope.tenant();
    match run {
        DreamRun::New(run) => {
            let place = Principal::local_operator(tenant.clone()).workspace();
            runs::create_as(tx, &place, run, RunStatus::Completed).map(|_| true)
        }
        DreamRun::Step(step) => runs::step(tx, tenant, step).map(|run| run.is_some()),
    }
}

fn next_number(tx: &Tx<'_>, no: ScopeNo) -> Result<i64> {
    tx.prepare_cached(
        "SELECT coalesce(max(number), 0) + 1 FROM dreams WHERE tenant = ?1 AND scope = ?2",
    )?
    .query_row([no.tenant, no.scope], |row| row.get(0))
}

fn insert(tx: &Tx<'_>, no: ScopeNo, dream: &DreamRecord) -> Result<()> {
    let figures = &dream.figures;
    tx.prepare_cached(
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
        engine::number(dream.number),
        dream.state.as_str(),
        dream.previous,
        dream.trigger.as_str(),
        dream.distiller,
        dream.output,
        dream.archive.0.as_slice(),
        engine::number(figures.budget),
        engine::number(figures.minimum),
        engine::number(figures.input_tokens),
        engine::number(figures.output_tokens),
        engine::number(figures.source_count),
        engine::number(figures.remaining),
        engine::number(figures.bytes_before),
        engine::number(figures.bytes_after),
        engine::number(figures.lines),
        dream.index_updated,
        engine::number(dream.position.0),
        dream.created_at.0,
        dream.section.as_str(),
        dream.source_ids.as_str(),
    ])?;
    Ok(())
}

fn put_span(tx: &Tx<'_>, no: ScopeNo, run: &str, span: &DreamSpan) -> Result<()> {
    let (session, branch) = (engine::number(span.session.0), span.branch.0);
    let (after, through) = (engine::number(span.after.0), engine::number(span.through.0));
    tx.prepare_cached(
        "INSERT INTO dream_spans (tenant, session, branch, run, after, through)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![no.tenant, session, branch, run, after, through])?;
    read_through(tx, no.tenant, (session, i64::from(branch)), through)
}

fn read_through(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (i64, i64),
    through: i64,
) -> Result<()> {
    tx.prepare_cached(
        "UPDATE branches SET dreamed_through = ?4 WHERE tenant = ?1 AND session = ?2 AND branch = ?3",
    )?
    .execute([tenant, session, branch, through])?;
    Ok(())
}

/// The turns that a dream read count as unread.
pub(crate) fn unread(tx: &Tx<'_>, tenant: i64, run: &str) -> Result<()> {
    let spans: Vec<(i64, i64, i64)> = tx
        .prepare_cached(
            "SELECT session, branch, after FROM dream_spans INDEXED BY dream_spans_by_run
             WHERE tenant = ?1 AND run = ?2",
        )?
        .query_map(params![tenant, run], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_>>()?;
    for (session, branch, after) in spans {
        read_through(tx, tenant, (session, branch), after)?;
    }
    Ok(())
}

pub(crate) fn set_state(tx: &Tx<'_>, tenant: i64, run: &str, state: DreamState) -> Result<()> {
    tx.prepare_cached("UPDATE dreams SET state = ?3 WHERE tenant = ?1 AND run = ?2")?
        .execute(params![tenant, run, state.as_str()])?;
    Ok(())
}

/// Lets a dream count no more, and tell nothing.
pub(crate) fn take_back(tx: &Tx<'_>, tenant: i64, run: &str, state: DreamState) -> Result<()> {
    tx.prepare_cached(
        "UPDATE dreams SET state = ?3, section = '', source_ids = ''
         WHERE tenant = ?1 AND run = ?2",
    )?
    .execute(params![tenant, run, state.as_str()])?;
    Ok(())
}

// Taking one back

pub(crate) fn undo(
    tx: &Tx<'_>,
    scope: &Scope,
    run: &str,
    index: Option<(Workspace, NewFile)>,
    now: Millis,
) -> Result<Option<DreamRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(None) };
    refuse_foreign(scope, index.as_ref())?;
    let is_it = |dream: &DreamRecord| dream.scope == *scope && dream.state == DreamState::InForce;
    let Some(dream) = get(tx, scope.tenant(), run)?.filter(is_it) else { return Ok(None) };
    let mut last = Some(dream.clone());
    while let Some(dream) = last {
        undo_one(tx, (scope, no), &dream, now)?;
        let Some(previous) = &dream.previous else { break };
        last = get(tx, scope.tenant(), previous)?;
        let Some(before) = &last else { break };
        // One whose archive is gone could not be read on top of: it goes as well.
        if archives::has_key(tx, no, &before.archive.0)? {
            set_state(tx, no.tenant, previous, DreamState::InForce)?;
            break;
        }
    }
    if let Some((place, file)) = index {
        workspace::put(tx, &place, file)?;
    }
    let tell = || -> Result<_> {
        let payload = undone(scope, run, &dream.output);
        log::record(tx, no.tenant, Some(no.scope), "dream.undone", &payload, now)?;
        // As of an earlier position both would be seen.
        entries::keep_from(tx, no, 0)?;
        tx.execute(
            "UPDATE scopes SET epoch = epoch + 1 WHERE tenant = ?1 AND scope = ?2",
            [no.tenant, no.scope],
        )
    };
    tell()?;
    get(tx, scope.tenant(), run)
}

/// Takes one dream back, and puts none in force.
fn undo_one(
    tx: &Tx<'_>,
    (scope, no): (&Scope, ScopeNo),
    dream: &DreamRecord,
    now: Millis,
) -> Result<()> {
    let ending = derivation::with_what_quotes(tx, no, &dream.output, BTreeSet::new(), now)?;
    entries::end_all(tx, scope, no, &ending, now)?;
    unread(tx, no.tenant, &dream.run)?;
    take_back(tx, no.tenant, &dream.run, DreamState::Undone)?;
    archives::let_go(tx, no, &dream.archive, archives::Why::Undone, now)
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
fn read_row(row: &Row<'_>) -> Result<DreamRow> {
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

fn whole(tx: &Tx<'_>, tenant: i64, row: DreamRow) -> Result<DreamRecord> {
    let (Some(state), Some(trigger), Ok(archive)) = (
        DreamState::parse(&row.state),
        DreamTrigger::parse(&row.trigger),
        <[u8; 32]>::try_from(row.archive),
    ) else {
        return Err(tx.damaged("the row of a dream is not valid"));
    };
    let of = row.record;
    Ok(DreamRecord {
        run: of.run,
        scope: scopes::scope_of(tx, tenant, row.scope)?,
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
pub(crate) fn texts(tx: &Tx<'_>, no: ScopeNo) -> Result<Vec<(i64, [String; 2])>> {
    tx.prepare_cached(
        "SELECT number, section, source_ids FROM dreams
         WHERE tenant = ?1 AND scope = ?2 AND (section != '' OR source_ids != '')
         ORDER BY number",
    )?
    .query_map([no.tenant, no.scope], |row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?])))?
    .collect()
}

pub(crate) fn get(tx: &Tx<'_>, tenant: &Tenant, run: &str) -> Result<Option<DreamRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(None) };
    tx.prepare_cached(&format!("SELECT {COLUMNS} FROM dreams WHERE tenant = ?1 AND run = ?2"))
        .and_then(|mut q| q.query_row(params![no, run], read_row).optional())?
        .map(|row| whole(tx, no, row))
        .transpose()
}

pub(crate) fn list(tx: &Tx<'_>, tenant: &Tenant, query: &DreamQuery) -> Result<Vec<DreamRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
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
    let found: Vec<DreamRow> = tx
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM {source} WHERE tenant = ?1 AND {of_memory} AND {in_force}
               AND position < ?3 ORDER BY {order} DESC LIMIT ?4"
        ))
        .and_then(|mut q| {
            let before = query.before.map_or(i64::MAX, |before| engine::number(before.0));
            let limit = engine::number(query.limit as u64);
            q.query_map(params![no, query.memory, before, limit], read_row)?.collect()
        })?;
    found.into_iter().map(|row| whole(tx, no, row)).collect()
}

pub(crate) fn tokens(tx: &Tx<'_>, tenant: &Tenant, since: Millis) -> Result<u64> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(0) };
    tx.prepare_cached(
        "SELECT coalesce(sum(input_tokens + output_tokens), 0)
         FROM dreams INDEXED BY dreams_by_time WHERE tenant = ?1 AND created_at >= ?2",
    )
    .and_then(|mut q| q.query_row([no, since.0], |row| row.get::<_, i64>(0)))
    .map(|tokens| tokens as u64)
}

// What was lost

pub(crate) fn lost(tx: &Tx<'_>, limit: usize) -> Result<Vec<DreamDue>> {
    let found: Vec<(i64, i64, i64, i64)> = tx
        .prepare_cached(
            "SELECT tenant, scope, dreams_lost, epoch FROM scopes INDEXED BY scopes_dreams_lost
             WHERE dreams_lost IS NOT NULL ORDER BY tenant, scope LIMIT ?1",
        )
        .and_then(|mut q| {
            let limit = engine::number(limit as u64);
            let place = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            q.query_map([limit], place)?.collect()
        })?;
    let due = |(tenant, scope, budget, epoch): (i64, i64, i64, i64)| {
        let scope = scopes::scope_of(tx, tenant, scope)?;
        Ok(DreamDue { scope, budget: budget as u64, epoch: epoch as u64 })
    };
    found.into_iter().map(due).collect()
}

pub(crate) fn settle_lost(tx: &Tx<'_>, due: &DreamDue) -> Result<()> {
    let Some(no) = scopes::scope_no(tx, &due.scope)? else { return Ok(()) };
    let losing =
        "UPDATE scopes SET dreams_lost = NULL WHERE tenant = ?1 AND scope = ?2 AND epoch = ?3";
    tx.prepare_cached(losing)
        .and_then(|mut q| q.execute([no.tenant, no.scope, engine::number(due.epoch)]))
        .map(|_| ())
}

pub(crate) fn note_lost(tx: &Tx<'_>, scope: &Scope, budget: u64) -> Result<()> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(()) };
    tx.prepare_cached(
        "UPDATE scopes SET dreams_lost = max(coalesce(dreams_lost, 0), ?3)
         WHERE tenant = ?1 AND scope = ?2",
    )
    .and_then(|mut q| q.execute([no.tenant, no.scope, engine::number(budget)]))
    .map(|_| ())
}

pub(crate) fn losses_of(tx: &Tx<'_>, tenant: &Tenant) -> Result<u64> {
    match scopes::tenant_no(tx, tenant)? {
        Some(no) => workspace::losses(tx, no),
        None => Ok(0),
    }
}

pub(crate) fn settle_lost_index(tx: &Tx<'_>, tenant: &Tenant, losses: u64) -> Result<()> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(()) };
    tx.prepare_cached("UPDATE tenants SET index_lost = 0 WHERE tenant = ?1 AND dream_losses = ?2")
        .and_then(|mut q| q.execute([no, engine::number(losses)]))
        .map(|_| ())
}

pub(crate) fn lost_indexes(tx: &Tx<'_>, limit: usize) -> Result<Vec<Tenant>> {
    let names: Vec<String> = tx
        .prepare_cached(
            "SELECT name FROM tenants INDEXED BY tenants_index_lost
             WHERE index_lost = 1 ORDER BY tenant LIMIT ?1",
        )
        .and_then(|mut q| {
            q.query_map([engine::number(limit as u64)], |row| row.get(0))?.collect()
        })?;
    let named =
        |name| Tenant::new(name).map_err(|_| tx.damaged("a stored name of a tenant is not valid"));
    names.into_iter().map(named).collect()
}

impl Store {
    /// Takes or renews the lease to dream in a memory: false while another holder's
    /// is not past. Of a memory that is not there nothing is kept, and it stays so.
    pub async fn lease_dream(&self, scope: &Scope, lease: Lease, now: Millis) -> Result<bool> {
        let scope = scope.clone();
        let of = Isolation::from(&scope);
        self.write_with(of, "lease_dream", lease, move |tx, lease| {
            self::lease(tx, &scope, lease, now)
        })
        .await
    }

    /// Gives a lease back; of a holder that does not have it, nothing.
    pub async fn release_dream(&self, scope: &Scope, holder: &str) -> Result<()> {
        let (scope, holder) = (scope.clone(), holder.to_owned());
        self.write(Isolation::from(&scope), "release_dream", move |tx| release(tx, &scope, &holder))
            .await
    }

    /// Where the first `limit` entries are that a dream would read, oldest first, after
    /// a place in their order: those in force that do not end by themselves, are no
    /// intentions and are not what the dream in force wrote.
    pub async fn undreamt_entries(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "undreamt_entries", move |tx| {
            undreamt_entries(tx, &scope, after, now, limit)
        })
        .await
    }

    /// Branches of a memory with turns that no dream has read, by session and branch,
    /// after one of them.
    pub async fn undreamt_branches(
        &self,
        scope: &Scope,
        after: Option<(SessionNo, Branch)>,
        limit: usize,
    ) -> Result<Vec<Undreamt>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "undreamt_branches", move |tx| {
            undreamt_branches(tx, &scope, after, limit)
        })
        .await
    }

    /// Keeps a dream, all in one step: the entry in place of others as with
    /// [`Store::derive_entries`], how far turns have been read, the archive, the index
    /// file as with [`Store::put_file`], the run, and the records `memory.written`,
    /// `memory.compacted` and `workspace.updated`. The dream before it is superseded. An
    /// archive of the memory that has the address already, with its key, stays as it is,
    /// and the new body is not used. It may be [`StoreError::FileConflict`],
    /// [`StoreError::TooManyFiles`] or, as with an append,
    /// [`StoreError::SecretsChanged`]; then too nothing was done.
    pub async fn keep_dream(&self, scope: &Scope, dream: NewDream) -> Result<Kept> {
        let scope = scope.clone();
        let of = Isolation::from(&scope);
        self.write_with(of, "keep_dream", dream, move |tx, dream| keep(tx, &scope, dream.clone()))
            .await
    }

    /// Takes back the dream in force: its entry ends, with its record; what it stands
    /// for is in force again, its turns count as unread, the one before it is in force, or
    /// is taken back too if its archive is gone;
    /// the index file is written where one is given. Its archive's key goes unless
    /// another dream in force or superseded came to the same. Positions before cannot
    /// be read as of any more, and the scope's epoch rises. Logs `dream.undone` with ids
    /// alone. Nothing is answered, and nothing done, when the run's dream is not the one
    /// in force. The archive of the one before may be past its retention.
    pub async fn undo_dream(
        &self,
        scope: &Scope,
        run: &str,
        index: Option<(Workspace, NewFile)>,
        now: Millis,
    ) -> Result<Option<DreamRecord>> {
        let (scope, run) = (scope.clone(), run.to_owned());
        self.write(Isolation::from(&scope), "undo_dream", move |tx| {
            undo(tx, &scope, &run, index.clone(), now)
        })
        .await
    }

    /// A dream of a tenant by its run.
    pub async fn dream(&self, tenant: &Tenant, run: &str) -> Result<Option<DreamRecord>> {
        let (tenant, run) = (tenant.clone(), run.to_owned());
        self.read(Isolation::from(&tenant), "dream", move |tx| get(tx, &tenant, &run)).await
    }

    /// Dreams of a tenant, newest first.
    pub async fn dreams(&self, tenant: &Tenant, query: &DreamQuery) -> Result<Vec<DreamRecord>> {
        let (tenant, query) = (tenant.clone(), query.clone());
        self.read(Isolation::from(&tenant), "dreams", move |tx| list(tx, &tenant, &query)).await
    }

    /// Tokens that dreams of a tenant used, read and written together, since a moment.
    pub async fn dreamt_tokens(&self, tenant: &Tenant, since: Millis) -> Result<u64> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "dreamt_tokens", move |tx| tokens(tx, &tenant, since))
            .await
    }

    /// Memories, of any tenant, whose dreams were lost with something that was
    /// forgotten, deleted or rewritten. With these go: their entries, what those stood
    /// for being in force again; all dreams of the memory after the first that was
    /// touched; their archives' keys, unless a dream that stays came to the same; and the
    /// tenant's index file with all its versions. Their turns count as unread, the dream
    /// before them is in force, and `dream.lost` is logged. What touches a dream is: a
    /// turn that it read, or a fact drawn from one; an entry that it was made of, or that
    /// it wrote; a verdict that was there when it was kept; and what it tells itself,
    /// where that is redacted again.
    pub async fn lost_dreams(&self, limit: usize) -> Result<Vec<DreamDue>> {
        self.read(Isolation::Global, "lost_dreams", move |tx| lost(tx, limit)).await
    }

    /// Notes that a memory has been dreamt anew, or has nothing to dream of; not if its
    /// epoch has risen, for then more may have been lost.
    pub async fn settle_lost_dreams(&self, due: &DreamDue) -> Result<()> {
        let due = due.clone();
        self.write(Isolation::from(&due.scope), "settle_lost_dreams", move |tx| {
            settle_lost(tx, &due)
        })
        .await
    }

    /// Notes that a memory is to be dreamt anew with this budget, or the larger one that
    /// was noted before.
    pub async fn note_lost_dreams(&self, scope: &Scope, budget: u64) -> Result<()> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "note_lost_dreams", move |tx| {
            note_lost(tx, &scope, budget)
        })
        .await
    }

    /// How often dreams of a tenant were lost, with something that was forgotten or put
    /// anew. Whoever writes what dreams came to reads this first, and has the store
    /// compare it: see [`Expect::Unlost`].
    pub async fn dream_losses(&self, tenant: &Tenant) -> Result<u64> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "dream_losses", move |tx| losses_of(tx, &tenant)).await
    }

    /// Tenants whose index file went and has not been written again.
    pub async fn lost_indexes(&self, limit: usize) -> Result<Vec<Tenant>> {
        self.read(Isolation::Global, "lost_indexes", move |tx| lost_indexes(tx, limit)).await
    }

    /// Notes that the index file of a tenant is not to be written again; not if dreams
    /// were lost since so many losses.
    pub async fn settle_lost_index(&self, tenant: &Tenant, losses: u64) -> Result<()> {
        let tenant = tenant.clone();
        self.write(Isolation::from(&tenant), "settle_lost_index", move |tx| {
            settle_lost_index(tx, &tenant, losses)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::contract::dreams::new_dream;
    use crate::contract::fixtures::*;
    use crate::engine::tx::Isolation;

    /// What a look for what is due does must not grow with what is not due.
    #[tokio::test]
    async fn what_is_due_is_found_without_a_scan() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        for (sql, index) in [
            (undreamt_sql(), "SEARCH entries USING INDEX entries_shown"),
            (UNDREAMT_BRANCHES.to_owned(), "SEARCH b USING INDEX branches_undreamt"),
        ] {
            let steps = store.read(Isolation::Global, "test", move |tx| tx.plan(&sql));
            let steps = steps.await.unwrap();
            assert!(steps.iter().any(|step| step.starts_with(index)), "{steps:?}");
            let is_scan = |step: &&String| step.starts_with("SCAN") && !step.contains("json_each");
            assert_eq!(steps.iter().find(is_scan), None, "{steps:?}");
        }
    }

    /// A store with two dreams, one on top of the other.
    async fn dreamt(dir: &std::path::Path) -> Store {
        let store = Store::open(dir, None).unwrap();
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
                .write(Isolation::Global, "test", move |tx| tx.execute_batch(change))
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
                .write(Isolation::Global, "test", move |tx| tx.execute_batch(change))
                .await
                .unwrap();
            let dream = store.dream(&tenant("acme"), "dream-2").await;
            let archives = store.archives(None).await;
            assert_eq!((dream.is_err(), archives.is_err()), (is_dream, !is_dream), "{change}");
        }
    }
}
