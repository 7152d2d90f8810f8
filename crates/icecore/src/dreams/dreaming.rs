//! Dreams: what is due in a memory, distilled under a hard budget into an archive that
//! anybody can make again, byte for byte.
//!
//! Lease, snapshot, plan, distil, redact, seal, keep: the archive's body is written
//! first, and everything else in one step after it. Whoever is killed at any point
//! leaves the old state, and whoever tries again comes to the same bytes.

mod draft;
mod due;
mod keep;
mod layers;
mod lease;
mod reading;

use icecore_domain::dream::{Archive, Checksum, Distillate};
use icecore_domain::ids::{Scope, Tenant};
use icecore_store::{DreamQuery, DreamRecord, DreamState, DreamTrigger, StoreError};

use crate::dreams::Dreams;
use crate::error::{MemoryError, Result};
use crate::privacy::secrets::swapped;
use draft::{Asked, Drafted};
use keep::Step;

/// The workflow whose runs are dreams.
pub const DREAM_WORKFLOW: &str = "icecore.dream";

/// What a dream is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamRequest {
    /// Tokens that it may read and write together; no more than `max_token_budget`,
    /// which is the default.
    pub budget: Option<u64>,
    /// Tokens that it may write; by default 8,000, or an eighth of the budget where that
    /// is more. No more than `output_tokens`.
    pub output_tokens: Option<u64>,
    /// Who asks.
    pub trigger: DreamTrigger,
    /// The id of its run; without, one is made up. A run of this id that is there
    /// already, and has not ended, is the dream's own, and ends with it.
    pub run: Option<String>,
    /// Who asks, by an opaque id, as runs have it.
    pub principal: String,
    /// Only these entries, nothing else, and not what an earlier dream came to: that
    /// begins a chain of its own, so that no other dream may be in force.
    pub only: Option<Vec<String>>,
    /// Whether the index is written.
    pub index: bool,
}

impl DreamRequest {
    /// A dream that somebody asks for.
    pub fn manual(budget: Option<u64>) -> Self {
        Self {
            budget,
            output_tokens: None,
            trigger: DreamTrigger::Manual,
            run: None,
            principal: "operator".to_owned(),
            only: None,
            index: true,
        }
    }
}

/// How far a dream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DreamProgress {
    /// What it does.
    pub phase: DreamPhase,
    /// Tokens that it has read and written so far.
    pub tokens: u64,
    /// Tokens that it may use.
    pub budget: u64,
}

/// What a dream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DreamPhase {
    /// It finds out what is due.
    Looking,
    /// It reads its sources.
    Reading,
    /// It distils them.
    Distilling,
    /// It seals the archive.
    Sealing,
    /// It writes everything else.
    Keeping,
}

impl DreamPhase {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            DreamPhase::Looking => "looking",
            DreamPhase::Reading => "reading",
            DreamPhase::Distilling => "distilling",
            DreamPhase::Sealing => "sealing",
            DreamPhase::Keeping => "keeping",
        }
    }
}

/// What came of a dream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dream {
    /// The dream as kept; the one before, if nothing was due.
    pub record: DreamRecord,
    /// Whether nothing was due, so that the one before stands.
    pub unchanged: bool,
    /// The payload of its `memory.compacted`.
    pub payload: String,
}

/// What would come of a dream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamPreview {
    /// Whether nothing is due.
    pub unchanged: bool,
    /// The archive as it would be.
    pub archive: Archive,
    /// Its address.
    pub checksum: Checksum,
    /// What the last dream came to.
    pub before: Option<Distillate>,
    /// Tokens that it may use.
    pub budget: u64,
    /// Tokens of what it reads.
    pub input_tokens: u64,
    /// Tokens of what it writes.
    pub output_tokens: u64,
    /// Sources that it reads.
    pub source_count: u64,
    /// Sources that would stay due.
    pub remaining: u64,
    /// The smallest budget that would not be refused.
    pub minimum: u64,
}

/// Who hears how far a dream is.
type Tell<'a> = dyn FnMut(DreamProgress) + Send + 'a;

impl Dreams {
    /// Dreams: distils what is due in a memory. `tell` hears how far it is. Nothing is
    /// written where the budget is too small. Once this resolves it survives a crash.
    #[tracing::instrument(skip_all, fields(%scope))]
    pub async fn dream(
        &self,
        scope: &Scope,
        mut request: DreamRequest,
        mut tell: impl FnMut(DreamProgress) + Send,
    ) -> Result<Dream> {
        let asked = self.asked(&request)?;
        if let Some(run) = &mut request.run {
            let redactor = self.redactor(scope.tenant()).await?.redactor;
            *run = redactor.name(run).into_string();
        }
        if let Some(done) = self.dreamt_before(scope, &request).await? {
            return Ok(done);
        }
        let lease = self.hold_dream(scope).await?;
        let done = self.dream_held(scope, &request, asked, &lease.holder, &mut tell).await;
        lease.let_go().await;
        done
    }

    /// Dreams with the lease in hand.
    async fn dream_held(
        &self,
        scope: &Scope,
        request: &DreamRequest,
        asked: Asked,
        holder: &str,
        tell: &mut Tell<'_>,
    ) -> Result<Dream> {
        // A tenant with too many files goes without an index.
        let mut has_index = request.index && self.index_file.is_some();
        let done = swapped!(async {
            let kept = match self.draft(scope, request, asked, tell).await {
                Ok(Drafted::Unchanged(record)) => return self.unchanged(*record).await.map(Some),
                // A person has said something about a fact meanwhile.
                Ok(Drafted::New(draft))
                    if self.store.scope_head(scope).await?.verdicts != draft.verdicts =>
                {
                    Ok(Step::Changed)
                }
                Ok(Drafted::New(draft)) => {
                    self.keep_draft(scope, request, &draft, holder, has_index, tell).await
                }
                Err(error) => Err(error),
            };
            match kept {
                Ok(Step::Done(dream)) => {
                    self.tell_dream(scope, &dream);
                    Ok(Some(*dream))
                }
                Ok(Step::LeaseLost) => Err(self.under_way(scope)),
                Ok(Step::Changed)
                | Err(MemoryError::EntriesChanged)
                | Err(MemoryError::Store(StoreError::FileConflict { .. })) => Ok(None),
                Err(MemoryError::Store(StoreError::TooManyFiles { most })) if has_index => {
                    tracing::warn!(%scope, most, "a dream goes without an index: there are too many files");
                    has_index = false;
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        });
        done?.ok_or(MemoryError::EntriesChanged)
    }

    /// What a dream would come to. Nothing is written.
    pub async fn preview_dream(
        &self,
        scope: &Scope,
        request: DreamRequest,
    ) -> Result<DreamPreview> {
        let asked = self.asked(&request)?;
        let drafted = swapped!(async {
            match self.draft(scope, &request, asked, &mut |_| {}).await {
                Err(MemoryError::EntriesChanged) => Ok(None),
                drafted => drafted.map(Some),
            }
        });
        match drafted?.ok_or(MemoryError::EntriesChanged)? {
            Drafted::New(draft) => Ok(draft.preview(asked)),
            Drafted::Unchanged(record) => {
                let memory = Some(scope.memory());
                let found = self.find_archive(scope.tenant(), memory, record.archive).await?;
                let archive = Archive::clone(&found.1);
                let figures = record.figures;
                Ok(DreamPreview {
                    unchanged: true,
                    checksum: record.archive,
                    before: Some(archive.distillate.clone()),
                    archive,
                    budget: asked.budget,
                    input_tokens: figures.input_tokens,
                    output_tokens: figures.output_tokens,
                    source_count: figures.source_count,
                    remaining: 0,
                    minimum: figures.minimum,
                })
            }
        }
    }

    /// Takes back a dream, which must be the one in force in its memory.
    pub async fn undo_dream(&self, tenant: &Tenant, run: &str) -> Result<DreamRecord> {
        let undone = swapped!(async {
            let shown = || self.shown_name(tenant, run).into_string();
            let no_dream = || MemoryError::NoDream { run: shown() };
            let record = self.dream_record(tenant, run).await?.ok_or_else(no_dream)?;
            let reason = match record.state {
                DreamState::InForce => None,
                DreamState::Superseded => Some("a newer dream was made of it; undo that first"),
                DreamState::Undone => Some("it was undone already"),
                DreamState::Erased => Some("something that it had read was forgotten"),
            };
            if let Some(reason) = reason {
                let reason = reason.to_owned();
                return Err(MemoryError::NotUndone { run: shown(), reason });
            }
            match self.take_back(&record).await {
                // The index was written meanwhile.
                Err(MemoryError::Store(StoreError::FileConflict { .. })) => Ok(None),
                undone => undone,
            }
        });
        undone?.ok_or(MemoryError::EntriesChanged)
    }

    /// A dream of a tenant by its run.
    pub async fn dream_record(&self, tenant: &Tenant, run: &str) -> Result<Option<DreamRecord>> {
        Ok(self.store.dream(tenant, run).await?)
    }

    /// Dreams of a tenant, newest first.
    pub async fn dreams(&self, tenant: &Tenant, query: &DreamQuery) -> Result<Vec<DreamRecord>> {
        Ok(self.store.dreams(tenant, query).await?)
    }

    /// The dream in force in a memory.
    async fn dream_in_force(&self, scope: &Scope) -> Result<Option<DreamRecord>> {
        let memory = Some(scope.memory().to_owned());
        let query = DreamQuery { memory, in_force: true, before: None, limit: 1 };
        Ok(self.store.dreams(scope.tenant(), &query).await?.pop())
    }

    /// The dream that a run came to earlier, where its caller did not hear of it.
    async fn dreamt_before(&self, scope: &Scope, request: &DreamRequest) -> Result<Option<Dream>> {
        let Some(run) = &request.run else { return Ok(None) };
        match self.dream_record(scope.tenant(), run).await? {
            Some(record) if record.scope == *scope => {
                let payload = self.payload_of(&record).await?;
                Ok(Some(Dream { record, unchanged: false, payload }))
            }
            Some(_) => Err(StoreError::RunExists { id: run.clone() }.into()),
            None => Ok(None),
        }
    }

    /// The dream before, which stands.
    async fn unchanged(&self, record: DreamRecord) -> Result<Dream> {
        let payload = self.payload_of(&record).await?;
        Ok(Dream { record, unchanged: true, payload })
    }

    fn tell_dream(&self, scope: &Scope, dream: &Dream) {
        let DreamRecord { run, figures, position, .. } = &dream.record;
        tracing::info!(
            target: "openwop.memory.compacted",
            %scope,
            run,
            archive = %dream.record.archive,
            source_count = figures.source_count,
            tokens = figures.input_tokens + figures.output_tokens,
            budget = figures.budget,
            remaining = figures.remaining,
            position = position.0,
            trigger = "host-managed",
            "a memory was distilled"
        );
        self.wake.notify_one();
    }
}
