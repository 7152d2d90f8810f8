//! Storing a dream in one step, and taking it back.

use std::collections::BTreeSet;

use icecore_domain::ids::{Branch, Ordinal, Position, Principal, Scope, SessionNo};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;
use serde_json::json;

use super::archives::{self, NewArchive};
use super::{DreamFigures, DreamRecord, DreamState, DreamTrigger};
use crate::engine::prelude::*;
use crate::entries::derivation::{
    self, Derivation, DerivationKind, DerivedEntry, MakePayload, Replaced, Successor,
};
use crate::entries::{self, EntryRecord};
use crate::host::runs::{self, NewRun, RunStatus, RunStep};
use crate::host::workspace::{self, NewFile};
use crate::store::Store;
use crate::turns::rows;
use crate::{log, scopes, secrets};

#[derive(Clone)]
pub struct NewDream {
    /// Must hold the memory's lease.
    pub holder: String,
    /// The run of the dream in force when it was read, which the new one supersedes.
    pub previous: Option<String>,
    pub epoch: u64,
    pub run: DreamRun,
    pub trigger: DreamTrigger,
    /// The program or model that wrote the distillate.
    pub distiller: String,
    /// The entry that holds the distillate, or its head.
    pub output: DerivedEntry,
    /// Entries that the output supersedes, that of the previous dream among them.
    pub entries: Vec<String>,
    pub spans: Vec<DreamSpan>,
    pub archive: NewArchive,
    pub figures: DreamFigures,
    /// Its section of the index, as JSON without content beyond topics.
    pub section: RedactedText,
    /// The ids of its sources, as JSON, in the order of the archive's list.
    pub source_ids: RedactedText,
    pub index: Option<(Workspace, NewFile)>,
    /// Makes the content-free payload of `memory.compacted` from the id of the output.
    pub payload: MakePayload,
    pub now: Millis,
    pub secrets_seen: u64,
}

#[derive(Debug, Clone)]
pub enum DreamRun {
    /// A run to store, completed, with all its events.
    New(NewRun),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DreamSpan {
    pub session: SessionNo,
    pub branch: Branch,
    /// Exclusive; 0 from the first turn on.
    pub after: Ordinal,
    pub through: Ordinal,
}

record! {
    DreamSpan { session, branch, after, through }
}

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
    pub payload: String,
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
        self.write(scope, "undo_dream", move |tx| {
            let scope = tx.scope()?;
            let Some(no) = tx.scope_no()? else { return Ok(None) };
            refuse_foreign(tx, index.as_ref())?;
            let is_it =
                |dream: &DreamRecord| dream.scope == *scope && dream.state == DreamState::InForce;
            let Some(dream) = super::get(tx, &run)?.filter(is_it) else { return Ok(None) };
            undo_one(tx, no, &dream, now)?;
            let mut previous = dream.previous;
            while let Some(run) = previous {
                let Some(before) = super::get(tx, &run)? else { break };
                if archives::has_key(tx, no, &before.archive)? {
                    set_state(tx, no.tenant, &run, DreamState::InForce)?;
                    break;
                }
                // Without its archive no dream could be made on top of it.
                undo_one(tx, no, &before, now)?;
                previous = before.previous;
            }
            put_index(tx, index.as_ref())?;
            let payload =
                json!({ "memoryRef": scope.memory(), "runId": run, "memoryId": dream.output })
                    .to_string();
            log::record(tx, no.tenant, Some(no.scope), "dream.undone", &payload, now)?;
            // As of an earlier position, the output and what it superseded would both show.
            entries::keep_from(tx, no, 0)?;
            rows::bump_epoch(tx, no)?;
            super::get(tx, &run)
        })
        .await
    }
}

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
    for DreamSpan { session, branch, after, through } in &dream.spans {
        let (tenant, run) = (no.tenant, &record.run);
        tx.insert("dream_spans", fields! { tenant, session, branch, run, after, through })?;
        tx.change(
            "UPDATE branches SET dreamed_through = ?4
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3",
            params![tenant, session, branch, through],
        )?;
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

fn is_as_read(tx: &Tx<'_>, no: ScopeNo, dream: &NewDream) -> Result<bool> {
    let epoch: u64 = scopes::field(tx, no, "epoch")?;
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
    let last: i64 = tx.one(
        "SELECT coalesce(max(number), 0) FROM dreams WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope],
        column,
    )?;
    let row = fields! {
        tenant: no.tenant,
        run: dream.run.id(),
        scope: no.scope,
        number: last + 1,
        state: DreamState::InForce,
        previous: dream.previous,
        trigger: dream.trigger,
        distiller: dream.distiller,
        output: output,
        archive: dream.archive.checksum,
        budget: figures.budget,
        minimum: figures.minimum,
        input_tokens: figures.input_tokens,
        output_tokens: figures.output_tokens,
        source_count: figures.source_count,
        remaining: figures.remaining,
        bytes_before: figures.bytes_before,
        bytes_after: figures.bytes_after,
        lines: figures.lines,
        index_updated: dream.index.is_some(),
        position: position,
        created_at: dream.now,
        section: dream.section,
        source_ids: dream.source_ids,
    };
    tx.insert("dreams", row)?;
    super::get(tx, dream.run.id())?.ok_or_else(|| tx.damaged("a dream is not there"))
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
    tx.change(
        "UPDATE branches AS b SET dreamed_through = p.after FROM dream_spans p
         WHERE b.tenant = ?1 AND p.tenant = ?1 AND p.run = ?2
           AND p.session = b.session AND p.branch = b.branch",
        params![tenant, run],
    )
}

pub(crate) fn set_state(tx: &Tx<'_>, tenant: i64, run: &str, state: DreamState) -> Result<()> {
    let sql = "UPDATE dreams SET state = ?3 WHERE tenant = ?1 AND run = ?2";
    tx.change(sql, params![tenant, run, state])
}

/// Sets the state of a dream that no longer counts, and clears its texts.
pub(crate) fn take_back(tx: &Tx<'_>, tenant: i64, run: &str, state: DreamState) -> Result<()> {
    tx.change(
        "UPDATE dreams SET state = ?3, section = '', source_ids = ''
         WHERE tenant = ?1 AND run = ?2",
        params![tenant, run, state],
    )
}
