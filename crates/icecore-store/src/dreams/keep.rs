//! Storing a dream in one step, and taking it back.

use std::collections::BTreeSet;

use icecore_domain::ids::{Branch, Ordinal, Position, Principal, Scope, SessionNo};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;
use serde_json::json;

use super::archives::{self, NewArchive};
use super::{COLUMNS, DreamFigures, DreamRecord, DreamState, DreamTrigger};
use crate::engine::tx::{ScopeNo, Tx};
use crate::engine::{column, params, tuple};
use crate::entries::derivation::{
    self, Derivation, DerivationKind, DerivedEntry, MakePayload, Replaced, Successor,
};
use crate::entries::{self, EntryRecord};
use crate::error::{Result, StoreError};
use crate::host::runs::{self, NewRun, RunStatus, RunStep};
use crate::host::workspace::{self, NewFile};
use crate::store::Store;
use crate::{log, secrets};

#[derive(Clone)]
pub struct NewDream {
    /// Must hold the memory's lease.
    pub holder: String,
    /// The run of the dream in force when it was read, which the new one supersedes.
    pub previous: Option<String>,
    /// The memory's epoch when it was read.
    pub epoch: u64,
    pub run: DreamRun,
    pub trigger: DreamTrigger,
    /// The program or model that wrote the distillate.
    pub distiller: String,
    /// The entry that holds the distillate, or its head.
    pub output: DerivedEntry,
    /// Entries that the output supersedes, that of the previous dream among them.
    pub entries: Vec<String>,
    /// The turns that it read.
    pub spans: Vec<DreamSpan>,
    pub archive: NewArchive,
    pub figures: DreamFigures,
    /// Its section of the index, as JSON without content beyond topics.
    pub section: RedactedText,
    /// The ids of its sources, as JSON, in the order of the archive's list.
    pub source_ids: RedactedText,
    /// The new version of the index file, where there is one.
    pub index: Option<(Workspace, NewFile)>,
    /// Makes the content-free payload of `memory.compacted` from the id of the output.
    pub payload: MakePayload,
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

/// The run that a dream is.
#[derive(Debug, Clone)]
pub enum DreamRun {
    /// A run to store, completed, with all its events.
    New(NewRun),
    /// The last step of a stored run.
    Step(RunStep),
}

impl DreamRun {
    pub fn id(&self) -> &str {
        match self {
            DreamRun::New(run) => &run.id,
            DreamRun::Step(step) => &step.run,
        }
    }
}

/// Turns of a branch that a dream read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DreamSpan {
    pub session: SessionNo,
    pub branch: Branch,
    /// Exclusive; 0 from the first turn on.
    pub after: Ordinal,
    /// Inclusive.
    pub through: Ordinal,
}

/// The outcome of [`Store::keep_dream`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    Done(Box<KeptDream>),
    /// What was read has changed, or the run has gone on; nothing was done.
    Changed,
    /// Somebody else has the lease; nothing was done.
    LeaseLost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDream {
    pub dream: DreamRecord,
    pub output: EntryRecord,
    /// The payload of `memory.compacted`.
    pub payload: String,
    /// The position of `memory.compacted` in the log.
    pub position: Position,
}

impl Store {
    /// Stores a dream under the memory's lease, all in one step: its entry in place of
    /// others as with [`Store::derive_entries`], how far turns have been read, the archive,
    /// the index file as with [`Store::put_file`], the run, and the records
    /// `memory.written`, `memory.compacted` and `workspace.updated`. The dream before it is
    /// superseded. If the memory has an archive with this address and its key, that one
    /// stays and the new body is not used.
    ///
    /// It may be [`StoreError::FileConflict`], [`StoreError::TooManyFiles`] or, as with an
    /// append, [`StoreError::SecretsChanged`].
    pub async fn keep_dream(&self, scope: &Scope, dream: NewDream) -> Result<Kept> {
        self.write_with(scope, "keep_dream", dream, keep).await
    }

    /// Takes back the dream in force: its entry ends, what that superseded is in force
    /// again, its turns count as unread, and the index file is written where one is given.
    /// The key of its archive is destroyed, unless another dream that counts has the same
    /// archive. The dream before it is in force, or taken back too if the key of its
    /// archive is gone, as after its retention.
    ///
    /// The scope's epoch rises, and earlier positions cannot be read as of any more. Logs
    /// `dream.undone` with ids alone. Returns `None`, and does nothing, if the run's dream
    /// is not the one in force.
    pub async fn undo_dream(
        &self,
        scope: &Scope,
        run: &str,
        index: Option<(Workspace, NewFile)>,
        now: Millis,
    ) -> Result<Option<DreamRecord>> {
        let run = run.to_owned();
        self.write(scope, "undo_dream", move |tx| undo(tx, &run, index.as_ref(), now)).await
    }
}

// Storing

fn keep(tx: &Tx<'_>, dream: &NewDream) -> Result<Kept> {
    let scope = tx.scope()?;
    secrets::refuse_changed(tx, scope.tenant(), dream.secrets_seen)?;
    let Some(no) = tx.scope_no()? else { return Ok(Kept::LeaseLost) };
    let has_lease = tx.finds(
        "SELECT 1 FROM scopes WHERE tenant = ?1 AND scope = ?2 AND dreamer = ?3
           AND dreamer_until > ?4",
        params![no.tenant, no.scope, dream.holder, dream.now],
    )?;
    if !has_lease {
        return Ok(Kept::LeaseLost);
    }
    refuse_foreign(tx, dream.index.as_ref())?;
    if !is_as_read(tx, no, dream)? {
        return Ok(Kept::Changed);
    }
    let replaced =
        |id: &String| Replaced { id: id.clone(), by: Successor::Output(0), is_overtaken: false };
    let derivation = Derivation {
        outputs: vec![dream.output.clone()],
        replaced: dream.entries.iter().map(replaced).collect(),
        kind: DerivationKind::Compacted,
        payload: dream.payload.clone(),
        now: dream.now,
        secrets_seen: dream.secrets_seen,
    };
    let Some(expiries) = derivation::still_there(tx, Some(no), &derivation)? else {
        return Ok(Kept::Changed);
    };
    // The first write, and the last that may find something changed.
    if !keep_run(tx, dream.run.clone())? {
        return Ok(Kept::Changed);
    }
    let derived = derivation::write(tx, scope, derivation, expiries)?;
    archives::keep(tx, no, dream.run.id(), &dream.archive, dream.now)?;
    put_index(tx, dream.index.as_ref())?;
    let output = derived.outputs.into_iter().next();
    let output = output.ok_or_else(|| tx.damaged("a dream has no entry"))?;
    if let Some(previous) = &dream.previous {
        set_state(tx, no.tenant, previous, DreamState::Superseded)?;
    }
    let record = insert(tx, no, dream, &output.id, derived.position)?;
    for span in &dream.spans {
        put_span(tx, no.tenant, &record.run, span)?;
    }
    let (payload, position) = (derived.payload, derived.position);
    Ok(Kept::Done(Box::new(KeptDream { dream: record, output, payload, position })))
}

fn refuse_foreign(tx: &Tx<'_>, index: Option<&(Workspace, NewFile)>) -> Result<()> {
    let tenant = tx.tenant()?;
    if index.is_some_and(|(workspace, _)| workspace.tenant() != tenant) {
        return Err(StoreError::OtherTenant);
    }
    Ok(())
}

/// Whether the memory is as it was when the dream was read.
fn is_as_read(tx: &Tx<'_>, no: ScopeNo, dream: &NewDream) -> Result<bool> {
    let epoch: u64 = tx.one(
        "SELECT epoch FROM scopes WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope],
        column,
    )?;
    let in_force: Option<String> = tx.first(
        "SELECT run FROM dreams INDEXED BY dreams_in_force
         WHERE tenant = ?1 AND scope = ?2 AND state = 'in-force'",
        [no.tenant, no.scope],
        column,
    )?;
    let is_taken = tx.finds(
        "SELECT 1 FROM dreams WHERE tenant = ?1 AND run = ?2",
        params![no.tenant, dream.run.id()],
    )?;
    if is_taken || epoch != dream.epoch || in_force != dream.previous {
        return Ok(false);
    }
    let branches: BTreeSet<_> =
        dream.spans.iter().map(|span| (span.session, span.branch)).collect();
    if branches.len() < dream.spans.len() {
        return Ok(false);
    }
    for DreamSpan { session, branch, after, through } in &dream.spans {
        let is_unread = tx.finds(
            "SELECT 1 FROM branches b
             JOIN sessions o ON o.tenant = b.tenant AND o.session = b.session AND o.scope = ?2
             WHERE b.tenant = ?1 AND b.session = ?3 AND b.branch = ?4 AND b.dreamed_through = ?5
               AND ?5 <= ?6 AND ?6 <= b.length",
            params![no.tenant, no.scope, session, branch, after, through],
        )?;
        if !is_unread {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Stores the run or its last step; `false` if the run has gone on.
fn keep_run(tx: &Tx<'_>, run: DreamRun) -> Result<bool> {
    let tenant = tx.tenant()?;
    match run {
        DreamRun::New(run) => {
            let place = Principal::local_operator(tenant.clone()).workspace();
            runs::create_as(tx, &place, run, RunStatus::Completed)?;
            Ok(true)
        }
        DreamRun::Step(step) => Ok(runs::step(tx, tenant, step)?.is_some()),
    }
}

fn put_index(tx: &Tx<'_>, index: Option<&(Workspace, NewFile)>) -> Result<()> {
    if let Some((place, file)) = index {
        workspace::put(tx, place, file.clone())?;
    }
    Ok(())
}

fn insert(
    tx: &Tx<'_>,
    no: ScopeNo,
    dream: &NewDream,
    output: &str,
    position: Position,
) -> Result<DreamRecord> {
    let figures = &dream.figures;
    let sql = format!(
        "INSERT INTO dreams (tenant, run, scope, number, state, previous, trigger, distiller,
             output, archive, budget, minimum, input_tokens, output_tokens, source_count,
             remaining, bytes_before, bytes_after, lines, index_updated, position, created_at,
             section, source_ids)
         SELECT ?1, ?2, ?3, coalesce(max(number), 0) + 1, 'in-force', ?4, ?5, ?6, ?7, ?8, ?9, ?10,
             ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22
         FROM dreams WHERE tenant = ?1 AND scope = ?3
         RETURNING {COLUMNS}"
    );
    let values = params![
        no.tenant,
        dream.run.id(),
        no.scope,
        dream.previous,
        dream.trigger.as_str(),
        dream.distiller,
        output,
        dream.archive.checksum.0,
        figures.budget,
        figures.minimum,
        figures.input_tokens,
        figures.output_tokens,
        figures.source_count,
        figures.remaining,
        figures.bytes_before,
        figures.bytes_after,
        figures.lines,
        dream.index.is_some(),
        position,
        dream.now,
        dream.section.as_str(),
        dream.source_ids.as_str(),
    ];
    tx.one(&sql, values, |row| super::read(tx, no.tenant, row))
}

fn put_span(tx: &Tx<'_>, tenant: i64, run: &str, span: &DreamSpan) -> Result<()> {
    let DreamSpan { session, branch, after, through } = *span;
    tx.run(
        "INSERT INTO dream_spans (tenant, session, branch, run, after, through)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![tenant, session, branch, run, after, through],
    )?;
    set_read_through(tx, tenant, (session, branch), through)
}

fn set_read_through(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (SessionNo, Branch),
    through: Ordinal,
) -> Result<()> {
    tx.run(
        "UPDATE branches SET dreamed_through = ?4
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3",
        params![tenant, session, branch, through],
    )?;
    Ok(())
}

// Taking back

fn undo(
    tx: &Tx<'_>,
    run: &str,
    index: Option<&(Workspace, NewFile)>,
    now: Millis,
) -> Result<Option<DreamRecord>> {
    let scope = tx.scope()?;
    let Some(no) = tx.scope_no()? else { return Ok(None) };
    refuse_foreign(tx, index)?;
    let is_it = |dream: &DreamRecord| dream.scope == *scope && dream.state == DreamState::InForce;
    let Some(dream) = super::get(tx, run)?.filter(is_it) else { return Ok(None) };
    undo_one(tx, no, &dream, now)?;
    let mut previous = dream.previous;
    while let Some(run) = previous {
        let Some(before) = super::get(tx, &run)? else { break };
        if archives::has_key(tx, no, &before.archive.0)? {
            set_state(tx, no.tenant, &run, DreamState::InForce)?;
            break;
        }
        // Without its archive no dream could be made on top of it.
        undo_one(tx, no, &before, now)?;
        previous = before.previous;
    }
    put_index(tx, index)?;
    let payload =
        json!({ "memoryRef": scope.memory(), "runId": run, "memoryId": dream.output }).to_string();
    log::record(tx, no.tenant, Some(no.scope), "dream.undone", &payload, now)?;
    // As of an earlier position, the output and what it superseded would both show.
    entries::keep_from(tx, no, 0)?;
    tx.run(
        "UPDATE scopes SET epoch = epoch + 1 WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope],
    )?;
    super::get(tx, run)
}

/// Takes one dream back, and puts none in force.
fn undo_one(tx: &Tx<'_>, no: ScopeNo, dream: &DreamRecord, now: Millis) -> Result<()> {
    let ending = derivation::with_what_quotes(tx, no, &dream.output, BTreeSet::new(), now)?;
    entries::end_all(tx, tx.scope()?, no, &ending, now)?;
    unread(tx, no.tenant, &dream.run)?;
    take_back(tx, no.tenant, &dream.run, DreamState::Undone)?;
    archives::let_go(tx, no, &dream.archive, archives::Why::Undone, now)
}

/// Makes the turns that a dream read count as unread.
pub(crate) fn unread(tx: &Tx<'_>, tenant: i64, run: &str) -> Result<()> {
    let spans: Vec<(SessionNo, Branch, Ordinal)> = tx.all(
        "SELECT session, branch, after FROM dream_spans INDEXED BY dream_spans_by_run
         WHERE tenant = ?1 AND run = ?2",
        params![tenant, run],
        tuple,
    )?;
    for (session, branch, after) in spans {
        set_read_through(tx, tenant, (session, branch), after)?;
    }
    Ok(())
}

pub(crate) fn set_state(tx: &Tx<'_>, tenant: i64, run: &str, state: DreamState) -> Result<()> {
    let sql = "UPDATE dreams SET state = ?3 WHERE tenant = ?1 AND run = ?2";
    tx.run(sql, params![tenant, run, state.as_str()])?;
    Ok(())
}

/// Sets the state of a dream that no longer counts, and clears its texts.
pub(crate) fn take_back(tx: &Tx<'_>, tenant: i64, run: &str, state: DreamState) -> Result<()> {
    tx.run(
        "UPDATE dreams SET state = ?3, section = '', source_ids = ''
         WHERE tenant = ?1 AND run = ?2",
        params![tenant, run, state.as_str()],
    )?;
    Ok(())
}
