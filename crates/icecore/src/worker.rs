//! The worker: derives what is due, moves what has aged.
//!
//! What is due is computed from the store, never queued: a crash at any
//! instruction costs a delay and nothing else. Every step is one transaction
//! that checks whether the branch is still as it was read; two workers at once
//! waste some work and break nothing. So that they need not, hosts share tenants
//! and the rest out among them by leases; what a person asks for waits for none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Ordinal, Scope, Seq, SessionNo, Tenant};
use icecore_domain::redact::{RedactedTurn, Redactor};
use icecore_domain::summary::{self, Summary};
use icecore_domain::summary::{RedactedSummary, model::SummaryTask};
use icecore_domain::text::Said;
use icecore_domain::tier::micros_kept_hot;
use icecore_domain::time::Millis;
use icecore_store::{
    BodyPlace, BranchRecord, ChunkQuery, ChunkRecord, ColdBody, ColdDemotion, DueBranch, Fence,
    MicroBody, NewPack, PackKey, PackMember, Packs, StoreError, SummaryBatch, TextFormat,
    TurnQuery, TurnState, WarmDemotion, build_pack,
};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bodies::{damaged, decode_text, encode, with_packs};
use crate::error::{MemoryError, Result, not_redacted, off_thread};
use crate::leases::{COMPACTION, REDREAMING, SWEEPING};
use crate::memory::{Inner, Memory};
use crate::models::{About, Made, Purpose};
use crate::redream::Waits;
use crate::secrets::TenantRedactor;
use crate::settings::{ColdFormat, WarmFormat};

/// Micros worked on in one step.
const MICROS_A_STEP: usize = 64;

/// A step reads at most about this many tokens of turns.
const TOKENS_A_STEP: u64 = 1_000_000;

/// Minis or macros summarized in one step.
const CHUNKS_A_STEP: usize = 32;

/// Macros packed in one step.
const MACROS_A_STEP: usize = 8;

/// Branches asked for at once.
const BRANCHES_A_ROUND: usize = 64;

/// Tenants whose branches are settled side by side.
pub const TENANTS_AT_ONCE: usize = 8;

/// Branches that a tenant has settled in one turn, one step of each, where models are
/// asked.
const BRANCHES_A_TURN: usize = 4;

/// Without a wake the worker looks this often: another process may have written.
const POLL: Duration = Duration::from_secs(1);

/// After a failure it waits this long.
const RETRY: Duration = Duration::from_secs(5);

/// What is due by time alone is looked for this often, however much else is due.
const UPKEEP: Duration = Duration::from_secs(1);

/// How often packs that a crash left behind are looked for.
const SWEEP: Duration = Duration::from_secs(3600);

/// How often memories are looked for that have many entries.
const COMPACTIONS: Duration = Duration::from_secs(10);

/// How often archives are looked for that are past their retention.
const ARCHIVE_RETENTION: Duration = Duration::from_secs(600);

/// How often memories are looked for whose dreams were lost and not dreamt anew.
const REDREAMS: Duration = Duration::from_secs(10);

/// How often indexes are let go that are more than `index.cache_bytes`.
const INDEX_SHRINKS: Duration = Duration::from_secs(60);

/// How often it is looked whether another process has registered a secret.
const RESCANS: Duration = Duration::from_secs(30);

/// Packs that retention lets go in one round.
const EXPIRED_A_ROUND: usize = 64;

const DAY_MILLIS: i64 = 24 * 3600 * 1000;

/// What a round of work did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Branches that were brought up to date.
    pub branches: u64,
    /// Micros that became warm.
    pub warmed: u64,
    /// Macros that became cold.
    pub cooled: u64,
    /// Summaries made.
    pub summaries: u64,
    /// Packs and archives that retention let go.
    pub expired: u64,
    /// Entries that had expired or ended, and are gone.
    pub purged: u64,
    /// Branches whose work failed and stays due.
    pub failed: u64,
}

impl Settled {
    fn did_something(&self) -> bool {
        self.warmed + self.cooled + self.summaries + self.expired + self.purged > 0
    }

    /// Adds what a turn did to the layers.
    fn add(&mut self, turn: &Settled) {
        self.warmed += turn.warmed;
        self.cooled += turn.cooled;
        self.summaries += turn.summaries;
    }
}

/// The turns of tenants.
#[derive(Default)]
struct Turns {
    under_way: JoinSet<Result<Turn>>,
    /// Those that have one.
    busy: BTreeSet<Tenant>,
    /// Those that had one since all had.
    served: BTreeSet<Tenant>,
    /// What failed and is not tried again now.
    failed: Vec<DueBranch>,
    /// Whether other hosts may settle tenants too.
    is_shared: bool,
}

/// A turn that a tenant had.
struct Turn {
    tenant: Tenant,
    done: Settled,
    failed: Vec<DueBranch>,
}

/// How far a branch was brought.
enum Reached {
    /// It is up to date in this version.
    Version(u64),
    /// It is not there any more.
    Gone,
    /// It stays due.
    Unfinished,
}

impl Memory {
    /// Does all that is due, of every tenant, and returns when nothing is.
    /// `tell` hears after each branch how many are done and how many are left.
    pub async fn settle(&self, tell: impl FnMut(u64, u64)) -> Result<Settled> {
        let mut done = self.settle_branches(tell, |_| true, false).await?;
        done.expired = self.expire().await? + self.expire_archives().await?;
        done.purged = self.purge_entries().await?;
        if done.did_something() {
            self.inner.store.tidy().await?;
        }
        Ok(done)
    }

    /// Settles branches until none is due, which with writers that never stop is
    /// never, or until `goes_on` says so of what was done. Tenants have their turns side
    /// by side: whoever waits for a model holds up nobody else. `keeps_looking`: what
    /// becomes due meanwhile is found before those under way are done, and tenants that
    /// another host settles are left to it.
    async fn settle_branches(
        &self,
        mut tell: impl FnMut(u64, u64),
        goes_on: impl Fn(&Settled) -> bool,
        keeps_looking: bool,
    ) -> Result<Settled> {
        self.notice_settings().await?;
        let mut done = Settled::default();
        let mut turns = Turns { is_shared: keeps_looking, ..Turns::default() };
        let (telling, mut told) = mpsc::unbounded_channel();
        // Counted once there is anything: an idle host asks as little as it can.
        let mut left = None;
        let mut tried = Instant::now();
        let (mut looks, mut is_going) = (true, true);
        loop {
            if looks && is_going {
                self.begin_turns(&mut turns, &telling).await?;
            }
            if left.is_none() && !turns.under_way.is_empty() {
                left = Some(self.inner.store.unsettled_count(None, None).await?);
            }
            looks = true;
            tokio::select! {
                biased;
                Some(()) = told.recv() => {
                    looks = false;
                    done.branches += 1;
                    let rest = left.unwrap_or_default().saturating_sub(1);
                    left = Some(rest);
                    tell(done.branches, rest);
                }
                ended = turns.under_way.join_next() => {
                    let Some(ended) = ended else { break };
                    let ended = ended.map_err(|error| MemoryError::Internal(error.to_string()))??;
                    turns.busy.remove(&ended.tenant);
                    turns.failed.extend(ended.failed);
                    done.add(&ended.done);
                    is_going = goes_on(&done);
                    left = Some(self.inner.store.unsettled_count(None, None).await?);
                    self.write_spending().await;
                }
                () = self.inner.wake.notified(), if keeps_looking => {}
                () = tokio::time::sleep(POLL), if keeps_looking => {
                    is_going = goes_on(&done);
                    if tried.elapsed() >= RETRY {
                        turns.failed.clear();
                        tried = Instant::now();
                    }
                }
            }
        }
        self.write_spending().await;
        done.failed = turns.failed.len() as u64;
        Ok(done)
    }

    /// Gives tenants that have something due and no turn theirs, as many as may have one
    /// at once; those first that had none yet.
    async fn begin_turns(
        &self,
        turns: &mut Turns,
        telling: &mpsc::UnboundedSender<()>,
    ) -> Result<()> {
        // Where models are asked a turn is small, so that others have theirs soon.
        let most = match self.has_summary_models() {
            true => BRANCHES_A_TURN,
            false => BRANCHES_A_ROUND,
        };
        let mut empty: Vec<Tenant> = Vec::new();
        while turns.busy.len() < TENANTS_AT_ONCE {
            let passed: Vec<Tenant> =
                turns.busy.iter().chain(&turns.served).chain(&empty).cloned().collect();
            let limit = most + turns.failed.len();
            let mut due = self.inner.store.unsettled_beside(&passed, limit).await?;
            let Some(tenant) = due.first().map(|branch| branch.scope.tenant().clone()) else {
                if turns.served.is_empty() {
                    break;
                }
                turns.served.clear();
                continue;
            };
            due.retain(|branch| !turns.failed.contains(branch));
            due.truncate(most);
            if due.is_empty() {
                empty.push(tenant);
                continue;
            }
            let fence = match turns.is_shared {
                true => match self.take_tenant(&tenant, TENANTS_AT_ONCE).await? {
                    Some(fence) => Some(fence),
                    None => {
                        empty.push(tenant);
                        continue;
                    }
                },
                false => None,
            };
            turns.served.insert(tenant.clone());
            turns.busy.insert(tenant.clone());
            let (memory, telling) = (self.clone(), telling.clone());
            turns.under_way.spawn(async move {
                memory.settling_turn_under(fence, tenant, due, telling).await
            });
        }
        Ok(())
    }

    /// Some branches of one tenant, under its lease where there is one.
    async fn settling_turn_under(
        &self,
        fence: Option<Fence>,
        tenant: Tenant,
        due: Vec<DueBranch>,
        telling: mpsc::UnboundedSender<()>,
    ) -> Result<Turn> {
        let Some(fence) = fence else { return self.settling_turn(tenant, due, telling).await };
        let of = tenant.clone();
        let turn = self
            .while_held(fence, async |memory| memory.settling_turn(tenant, due, telling).await)
            .await?;
        // What was not done is left to the host that has the tenant now.
        Ok(turn.unwrap_or(Turn { tenant: of, done: Settled::default(), failed: Vec::new() }))
    }

    /// Some branches of one tenant.
    async fn settling_turn(
        &self,
        tenant: Tenant,
        due: Vec<DueBranch>,
        telling: mpsc::UnboundedSender<()>,
    ) -> Result<Turn> {
        let mut turn = Turn { tenant, done: Settled::default(), failed: Vec::new() };
        let scopes: BTreeSet<Scope> = due.iter().map(|branch| branch.scope.clone()).collect();
        let pressing = async {
            let mut settled = Vec::new();
            for branch in due {
                // A damaged branch must not keep the others from being settled.
                match self.settle_branch(&branch, &mut turn.done).await {
                    Ok(Reached::Unfinished) => continue,
                    Ok(Reached::Gone) => {}
                    Ok(Reached::Version(version)) => settled.push((branch, version)),
                    Err(error @ MemoryError::Store(StoreError::LeaseLost { .. })) => {
                        return Err(error);
                    }
                    Err(error) => {
                        tracing::warn!(scope = %branch.scope, session = branch.session.0, error = %error,
                            "derived work of a branch failed and will be tried again");
                        turn.failed.push(branch);
                    }
                }
                // Nobody may listen any more.
                telling.send(()).ok();
            }
            Ok(settled)
        };
        // Words and vectors are made beside the layers, from the same turns.
        let (settled, mut undrawn) = tokio::join!(pressing, self.index_scopes(&scopes));
        let settled = settled?;
        // Turns came while that went on, and their branches count them already.
        for scope in &scopes {
            if !undrawn.contains(scope) && !self.has_drawn_facts(scope).await {
                undrawn.insert(scope.clone());
            }
        }
        // Only what can also be found counts as settled.
        for (due, version) in settled {
            if undrawn.contains(&due.scope) {
                turn.failed.push(due);
                continue;
            }
            self.inner.store.settle(&due.scope, due.session, due.branch, version).await?;
        }
        // Summaries and facts that were made meanwhile.
        self.index_scopes(&scopes).await;
        Ok(turn)
    }

    /// Works in the background until `stop` resolves.
    pub async fn work_until(&self, stop: impl Future<Output = ()>) {
        self.work(stop, true).await;
    }

    /// As [`Memory::work_until`], where nobody may write: nothing is compacted.
    pub async fn keep_until(&self, stop: impl Future<Output = ()>) {
        self.work(stop, false).await;
    }

    async fn work(&self, stop: impl Future<Output = ()>, writes: bool) {
        let (closing, closed) = watch::channel(false);
        let is_untidy = AtomicBool::new(false);
        let stopping = async {
            stop.await;
            closing.send_replace(true);
        };
        // Side by side: writers may never let all be settled.
        tokio::join!(
            stopping,
            self.settle_until(closed.clone(), &is_untidy),
            self.keep_up_until(closed.clone(), &is_untidy),
            async {
                if writes {
                    tokio::join!(self.compact_until(closed.clone()), self.redream_until(closed));
                }
            },
        );
        self.give_back_all().await;
    }

    /// Settles branches as they come.
    async fn settle_until(&self, mut closed: watch::Receiver<bool>, is_untidy: &AtomicBool) {
        loop {
            let goes_on = |done: &Settled| {
                is_untidy.fetch_or(done.did_something(), Ordering::Relaxed);
                !*closed.borrow()
            };
            let pause = match self.settle_branches(|_, _| {}, goes_on, true).await {
                Ok(done) if done.failed == 0 => POLL,
                Ok(_) => RETRY,
                Err(error) => {
                    tracing::warn!(error = %error, "derived work failed, will try again");
                    RETRY
                }
            };
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = self.inner.wake.notified(), if pause == POLL => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does what is due by time alone.
    async fn keep_up_until(&self, mut closed: watch::Receiver<bool>, is_untidy: &AtomicBool) {
        let (mut sweep, mut rescans) = (Every::new(SWEEP), Every::new(RESCANS));
        let mut retention = Every::new(ARCHIVE_RETENTION);
        let mut shrinks = Every::new(INDEX_SHRINKS);
        let mut told = BTreeMap::new();
        loop {
            if sweep.is_due()
                && let Err(error) =
                    self.on_duty(SWEEPING, async |memory| memory.sweep_all().await).await
            {
                tracing::warn!(error = %error, "whether anything is to be removed could not be told");
            }
            if retention.is_due()
                && let Err(error) =
                    self.on_duty(SWEEPING, async |memory| memory.expire_archives().await).await
            {
                tracing::warn!(error = %error, "archives past their retention could not be let go");
            }
            if shrinks.is_due()
                && let Err(error) = self.shrink_indexes().await
            {
                tracing::warn!(error = %error, "indexes that are too much could not be let go");
            }
            if rescans.is_due() {
                self.tell_of_rescans(&mut told).await;
            }
            let pause = match self.keep_up(is_untidy).await {
                Ok(()) => UPKEEP,
                Err(error) => {
                    tracing::warn!(error = %error, "what is past its time could not be removed, will try again");
                    RETRY
                }
            };
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Removes what crashes left, and outcomes that nobody asks for any more.
    async fn sweep_all(&self) -> Result<()> {
        if let Err(error) = self.sweep().await {
            tracing::warn!(error = %error, "packs that a crash left could not be removed");
        }
        if let Err(error) = self.inner.store.purge_outcomes(self.now()).await {
            tracing::warn!(error = %error, "old outcomes could not be removed");
        }
        Ok(())
    }

    /// Lets go of what is past its time, where no other host does, and gives its space
    /// back.
    async fn keep_up(&self, is_untidy: &AtomicBool) -> Result<()> {
        let mut gone = 0;
        if self.has_past_packs().await? || self.has_past_entries().await? {
            let letting_go =
                async |memory: Memory| Ok(memory.expire().await? + memory.purge_entries().await?);
            gone = self.on_duty(SWEEPING, letting_go).await?.unwrap_or_default();
        }
        if is_untidy.swap(false, Ordering::Relaxed) || gone > 0 {
            self.inner.store.tidy().await?;
        }
        Ok(())
    }

    /// Compacts crowded memories, however long that takes, beside all else.
    async fn compact_until(&self, mut closed: watch::Receiver<bool>) {
        loop {
            if let Err(error) = self.compact_in_turn(&closed).await {
                tracing::warn!(error = %error, "crowded memories could not be found, will look again");
            }
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = tokio::time::sleep(COMPACTIONS) => {}
            }
        }
    }

    async fn compact_in_turn(&self, closed: &watch::Receiver<bool>) -> Result<()> {
        if self.has_crowded_memories().await? {
            let goes_on = || !*closed.borrow();
            self.on_duty(COMPACTION, async |memory| memory.compact_while(goes_on).await).await?;
        }
        Ok(())
    }

    /// Dreams anew what was lost with something that was forgotten, where whoever forgot
    /// it could not.
    async fn redream_until(&self, mut closed: watch::Receiver<bool>) {
        let mut waiting = Waits::default();
        loop {
            if let Err(error) = self.redream_in_turn(&mut waiting).await {
                tracing::warn!(error = %error, "what was lost with something forgotten could not be distilled anew, will try again");
            }
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = tokio::time::sleep(REDREAMS) => {}
            }
        }
    }

    async fn redream_in_turn(&self, waiting: &mut Waits) -> Result<()> {
        if self.has_lost_dreams().await? {
            self.on_duty(REDREAMING, async |memory| memory.redream(None, waiting).await).await?;
        }
        Ok(())
    }

    /// Says which tenants should be rescanned; see [`Memory::new_rescans`].
    async fn tell_of_rescans(&self, told: &mut BTreeMap<Tenant, u64>) {
        match self.new_rescans(told).await {
            Ok(found) => {
                for (tenant, texts) in found {
                    tracing::warn!(
                        tenant = tenant.as_str(),
                        texts,
                        "secrets were registered after texts were stored: these are redacted whenever they are read, until `icecore redact --rescan`"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(error = %error, "whether a rescan is due could not be read");
            }
        }
    }

    /// Brings one branch up to date, step by step; by one step, where models are asked.
    #[tracing::instrument(level = "debug", skip_all, fields(session = due.session.0))]
    async fn settle_branch(&self, due: &DueBranch, done: &mut Settled) -> Result<Reached> {
        loop {
            let Some(branch) = self.inner.store.branch(&due.scope, due.session, due.branch).await?
            else {
                return Ok(Reached::Gone);
            };
            let work =
                Work { memory: self, scope: &due.scope, session: due.session, branch: &branch };
            let stepped = work.micros(done).await?
                || work.upper_summaries(Level::Mini, done).await?
                || work.upper_summaries(Level::Macro, done).await?
                || work.cool(done).await?;
            match stepped {
                false => return Ok(Reached::Version(branch.version)),
                true if self.has_summary_models() => return Ok(Reached::Unfinished),
                true => {}
            }
        }
    }

    /// Packs that were written before this are past `cold_retention_days`.
    fn packs_kept_since(&self) -> Option<Millis> {
        let days = i64::from(self.inner.settings.cold_retention_days);
        (days > 0).then(|| Millis(self.now().0 - days * DAY_MILLIS))
    }

    async fn has_past_packs(&self) -> Result<bool> {
        let Some(before) = self.packs_kept_since() else { return Ok(false) };
        Ok(!self.inner.store.packs_older_than(before, 1).await?.is_empty())
    }

    /// Lets go of cold bodies that are past `cold_retention_days`.
    async fn expire(&self) -> Result<u64> {
        let Some(before) = self.packs_kept_since() else { return Ok(0) };
        let now = self.inner.clock.now();
        let mut expired = 0;
        loop {
            let packs = self.inner.store.packs_older_than(before, EXPIRED_A_ROUND).await?;
            if packs.is_empty() {
                return Ok(expired);
            }
            for pack in packs {
                self.inner.store.expire_pack(&pack, now).await?;
                let_go(&self.inner.packs, &pack.name).await?;
                expired += 1;
            }
        }
    }

    /// Drops all that is derived of a memory and derives it again.
    #[tracing::instrument(skip_all)]
    pub async fn reindex(&self, scope: &Scope, tell: impl FnMut(u64, u64)) -> Result<Settled> {
        self.inner.store.drop_derived(scope).await?;
        self.drop_index(scope).await?;
        let settled = self.settle(tell).await?;
        // What is too little for files is read now all the same, so that a
        // failure shows here and not at the next search.
        self.caught_up(scope).await?;
        Ok(settled)
    }
}

/// Something to do now and then.
struct Every {
    pause: Duration,
    done: Option<Instant>,
}

impl Every {
    fn new(pause: Duration) -> Self {
        Self { pause, done: None }
    }

    /// Whether it is time again; the first time at once.
    fn is_due(&mut self) -> bool {
        let is_due = self.done.is_none_or(|at| at.elapsed() >= self.pause);
        if is_due {
            self.done = Some(Instant::now());
        }
        is_due
    }
}

/// One branch as it was read, and what to do about it.
struct Work<'a> {
    memory: &'a Memory,
    scope: &'a Scope,
    session: SessionNo,
    branch: &'a BranchRecord,
}

impl Work<'_> {
    fn inner(&self) -> &Arc<Inner> {
        &self.memory.inner
    }

    fn query(&self, level: Level, from: Ordinal, through: Ordinal, limit: usize) -> ChunkQuery {
        ChunkQuery {
            from,
            through,
            ..ChunkQuery::all(self.session, self.branch.branch, level, limit)
        }
    }

    /// What models are asked about.
    fn about(&self, epoch: u64) -> About<'_> {
        let (scope, session) = (self.scope, Some(self.session));
        About { scope, session, epoch, purpose: Purpose::Summary }
    }

    /// The memory's epoch, where models are asked.
    async fn epoch(&self) -> Result<u64> {
        match self.memory.has_summary_models() {
            true => Ok(self.inner().store.scope_head(self.scope).await?.epoch),
            false => Ok(0),
        }
    }

    /// The last ordinal that is to leave the hot tier.
    async fn warm_through(&self) -> Result<Ordinal> {
        let settings = &self.inner().settings;
        let last_closed = Ordinal(self.branch.tail.micro_first - 1);
        let mut query =
            self.query(Level::Micro, Ordinal(0), last_closed, settings.hot_chunks as usize);
        query.newest = true;
        let young = self.inner().store.chunks(self.scope, &query).await?;
        let tokens = young.iter().rev().map(|chunk| chunk.tokens);
        let kept = micros_kept_hot(
            tokens, self.branch.tail.micro_tokens, settings.hot_chunks, settings.hot_max_tokens,
        );
        Ok(match kept {
            0 => last_closed,
            kept => Ordinal(young[young.len() - kept].id.first.0 - 1),
        })
    }

    /// Summarizes and demotes the oldest micros that are due.
    #[tracing::instrument(level = "debug", skip_all)]
    async fn micros(&self, done: &mut Settled) -> Result<bool> {
        let settings = &self.inner().settings;
        let warm_through = self.warm_through().await?.max(self.branch.warm_through);
        let sum_through = match (settings.auto_summarize, settings.defer_summarization) {
            (false, _) => Ordinal(0),
            (true, true) => warm_through,
            (true, false) => Ordinal(self.branch.tail.micro_first - 1),
        };
        let summarized = self.branch.summarized_through[0];
        let from = match (sum_through > summarized, warm_through > self.branch.warm_through) {
            (false, false) => return Ok(false),
            (true, false) => summarized,
            (false, true) => self.branch.warm_through,
            (true, true) => summarized.min(self.branch.warm_through),
        };
        let through = sum_through.max(warm_through);
        let query = self.query(Level::Micro, Ordinal(from.0 + 1), through, MICROS_A_STEP);
        let chunks = bounded(self.inner().store.chunks(self.scope, &query).await?);
        let Some(last) = chunks.last() else { return Ok(false) };
        // What has its summary and its place already need not be read: after an
        // erasure that is nearly all.
        let lacks_summary = |chunk: &ChunkRecord| {
            chunk.summary.is_none() && chunk.id.last > summarized && chunk.id.last <= sum_through
        };
        let needed: Vec<ChunkRecord> = chunks
            .iter()
            .filter(|chunk| lacks_summary(chunk) || chunk.id.last > self.branch.warm_through)
            .cloned()
            .collect();
        let epoch = self.epoch().await?;
        let micros = Arc::new(self.read(&needed).await?);

        let inner = Arc::clone(self.inner());
        let TenantRedactor { redactor, version } =
            self.memory.deriving_redactor(self.scope).await?;
        let warm_from = self.branch.warm_through;
        let (pressed, by) = (Arc::clone(&micros), redactor.clone());
        let (summaries, texts) = off_thread(move || {
            press(&inner, &by, &pressed, summarized, sum_through, warm_from, warm_through)
        })
        .await??;
        if let Some((id, _, _)) = texts.last() {
            let last = id.last;
            let count = texts.len() as u64;
            let demotion = WarmDemotion {
                session: self.session,
                branch: self.branch.branch,
                seen_through: self.branch.warm_through,
                micros: texts,
            };
            if !self.inner().store.demote_to_warm(self.scope, demotion).await? {
                return Ok(true);
            }
            tracing::debug!(scope = %self.scope, through = last.0, "demoted to warm");
            done.warmed += count;
        }
        let reached = last.id.last.min(sum_through);
        if reached > summarized {
            let summaries = self.micros_by_models(&redactor, summaries, &micros, epoch).await?;
            done.summaries += self.put(Level::Micro, reached, summaries, version).await?;
        }
        Ok(true)
    }

    /// Summaries of micros by models, where there are any.
    async fn micros_by_models(
        &self,
        redactor: &Redactor,
        made: Vec<Made>,
        micros: &[Micro],
        epoch: u64,
    ) -> Result<Vec<Made>> {
        if !self.memory.has_summary_models() || made.is_empty() {
            return Ok(made);
        }
        let wants_facts = self.inner().settings.auto_extract_facts;
        let task = |(id, _, _): &Made| {
            let micro = micros.iter().find(|micro| micro.id == *id)?;
            let turns: Vec<_> = micro.turns.iter().map(|(at, turn)| (*at, turn)).collect();
            let budget = summary::summary_budget(Level::Micro, micro.tokens);
            Some(with_said(&turns, |said| SummaryTask::of_turns(said, budget, wants_facts)))
        };
        let tasks: Vec<SummaryTask> = made.iter().filter_map(task).collect();
        self.memory.by_models(self.about(epoch), redactor, made, tasks).await
    }

    /// Micros with their turns, from rows, text or packs.
    async fn read(&self, chunks: &[ChunkRecord]) -> Result<Vec<Micro>> {
        with_packs(|| self.read_found(chunks)).await
    }

    async fn read_found(&self, chunks: &[ChunkRecord]) -> Result<Vec<Micro>> {
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
            return Ok(Vec::new());
        };
        let (session, branch) = (self.session, self.branch.branch);
        let (from, through) = (first.id.first, last.id.last);
        let query = TurnQuery {
            branch: Some(branch),
            after: Seq(first.first_seq.0 - 1),
            through: last.last_seq,
            ..TurnQuery::all(session, usize::MAX >> 1)
        };
        let read = self.inner().store.read(self.scope, "micros", move |tx| {
            Ok((tx.bodies(session, branch, from, through)?, tx.turns(&query)?))
        });
        let (mut bodies, rows) = read.await?;
        let is_needed = |body: &MicroBody| {
            chunks.binary_search_by_key(&body.id.first, |chunk| chunk.id.first).is_ok()
        };
        bodies.retain(is_needed);
        let mut turns = self.memory.read_micros(&bodies).await?;
        let mut times = BTreeMap::new();
        for row in rows {
            if row.state == TurnState::Present {
                times.insert(row.ordinal, row.at);
                if let Some(body) = row.body {
                    turns.entry(row.ordinal).or_insert(body);
                }
            }
        }
        let mut micros = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let range = chunk.id.first..=chunk.id.last;
            if !turns
                .range(range.clone())
                .map(|(at, _)| at)
                .eq(times.range(range.clone()).map(|(at, _)| at))
            {
                let reason = "its rows and its body do not agree";
                return Err(damaged(&chunk.id.to_string(), reason));
            }
            let turns = turns.range(range.clone()).map(|(_, turn)| turn.clone());
            let times = times.range(range).map(|(_, at)| *at);
            micros.push(Micro {
                id: chunk.id,
                revision: chunk.revision,
                tokens: chunk.tokens,
                has_summary: chunk.summary.is_some(),
                turns: times.zip(turns).collect(),
            });
        }
        Ok(micros)
    }

    async fn put(
        &self,
        level: Level,
        through: Ordinal,
        summaries: Vec<(ChunkId, u32, RedactedSummary)>,
        secrets_seen: u64,
    ) -> Result<u64> {
        let count = summaries.len() as u64;
        let batch = SummaryBatch {
            session: self.session,
            branch: self.branch.branch,
            level,
            seen_through: self.branch.summarized_through[level_index(level)],
            through,
            summaries,
            secrets_seen,
        };
        match self.inner().store.put_summaries(self.scope, batch).await {
            // They are made again, with what was registered meanwhile.
            Err(StoreError::SecretsChanged) => Ok(0),
            done => Ok(done.map(|()| count)?),
        }
    }

    /// Summarizes minis or macros whose children all have been.
    #[tracing::instrument(level = "debug", skip_all)]
    async fn upper_summaries(&self, level: Level, done: &mut Settled) -> Result<bool> {
        let below = match level {
            Level::Macro => Level::Mini,
            _ => Level::Micro,
        };
        let summarized = self.branch.summarized_through[level_index(level)];
        let ready = self.branch.summarized_through[level_index(below)];
        if ready <= summarized {
            return Ok(false);
        }
        let epoch = self.epoch().await?;
        let query = self.query(level, Ordinal(summarized.0 + 1), ready, CHUNKS_A_STEP);
        let chunks = self.inner().store.chunks(self.scope, &query).await?;
        let Some(last) = chunks.last().map(|chunk| chunk.id.last) else { return Ok(false) };
        let query = self.query(below, chunks[0].id.first, last, usize::MAX >> 1);
        let children = self.inner().store.chunks(self.scope, &query).await?;
        let inner = Arc::clone(self.inner());
        let TenantRedactor { redactor, version } =
            self.memory.deriving_redactor(self.scope).await?;
        let has_models = self.memory.has_summary_models();
        let by = redactor.clone();
        let summaries = off_thread(move || {
            let of = |chunk: &ChunkRecord| {
                if chunk.summary.is_some() {
                    return None;
                }
                let inside = |child: &&ChunkRecord| {
                    chunk.id.first <= child.id.first && child.id.last <= chunk.id.last
                };
                let parts: Vec<&Summary> = children
                    .iter()
                    .filter(inside)
                    .filter_map(|child| Some(child.summary.as_ref()?.parts()))
                    .collect();
                if parts.is_empty() {
                    return None;
                }
                let made = summarize_above(&inner, &by, level, chunk.tokens, &parts);
                let budget = summary::summary_budget(level, chunk.tokens);
                let wants_facts = inner.settings.auto_extract_facts;
                let task = has_models
                    .then(|| SummaryTask::of_children(level, &parts, budget, wants_facts));
                Some(made.map(|summary| ((chunk.id, chunk.revision, summary), task)))
            };
            chunks.iter().filter_map(of).collect::<Result<Vec<_>>>()
        })
        .await??;
        let (made, tasks): (Vec<Made>, Vec<_>) = summaries.into_iter().unzip();
        let tasks = tasks.into_iter().flatten().collect();
        let summaries = self.memory.by_models(self.about(epoch), &redactor, made, tasks).await?;
        done.summaries += self.put(level, last, summaries, version).await?;
        Ok(true)
    }

    /// Packs the oldest macros whose micros are all warm.
    #[tracing::instrument(level = "debug", skip_all)]
    async fn cool(&self, done: &mut Settled) -> Result<bool> {
        let from = Ordinal(self.branch.cold_through.0 + 1);
        let query = self.query(Level::Macro, from, self.branch.warm_through, MACROS_A_STEP);
        let macros = bounded(self.inner().store.chunks(self.scope, &query).await?);
        // Packs are written side by side, and then swapped in one by one.
        let mut writing = Vec::new();
        for chunk in &macros {
            writing.push(self.begin_cooling(chunk).await?);
        }
        let mut seen_through = self.branch.cold_through;
        let mut is_stale = false;
        for (chunk, cooling) in macros.iter().zip(writing) {
            let pack = match cooling.writing {
                Some(task) => {
                    Some(task.await.map_err(|error| MemoryError::Internal(error.to_string()))??)
                }
                None => None,
            };
            if is_stale || !self.swap(chunk, cooling.micros, seen_through, pack.clone()).await? {
                // Somebody was faster; ours are orphans.
                is_stale = true;
                if let Some(pack) = pack {
                    let_go(&self.inner().packs, &pack.name).await?;
                }
                continue;
            }
            seen_through = chunk.id.last;
            done.cooled += 1;
        }
        Ok(!macros.is_empty())
    }

    /// Reads a macro's texts and begins to write them as a pack, if it is to
    /// have one.
    async fn begin_cooling(&self, chunk: &ChunkRecord) -> Result<Cooling> {
        let (first, last) = (chunk.id.first, chunk.id.last);
        let store = &self.inner().store;
        let bodies =
            store.bodies(self.scope, self.session, self.branch.branch, first, last).await?;
        let members: Vec<PackMember> = bodies.iter().filter_map(member).collect();
        let settings = &self.inner().settings;
        let is_packed = settings.archive_cold_content
            && settings.cold_format == ColdFormat::SummaryOnly
            && !members.is_empty();
        let packs = self.inner().packs.clone();
        let writing =
            is_packed.then(|| tokio::spawn(async move { write_pack(&packs, members).await }));
        let micros = bodies.iter().map(|body| (body.id, body.revision)).collect();
        Ok(Cooling { micros, writing })
    }

    /// Lets a macro's texts go for its pack, if nothing has changed meanwhile.
    async fn swap(
        &self,
        chunk: &ChunkRecord,
        micros: Vec<(ChunkId, u32)>,
        seen_through: Ordinal,
        pack: Option<NewPack>,
    ) -> Result<bool> {
        let demotion = ColdDemotion {
            id: chunk.id,
            seen_through,
            micros,
            body: match pack {
                Some(pack) => ColdBody::Pack(pack),
                None if self.inner().settings.archive_cold_content => ColdBody::StaysText,
                None => ColdBody::Dropped,
            },
            now: self.inner().clock.now(),
        };
        Ok(self.inner().store.demote_to_cold(self.scope, demotion).await?)
    }
}

/// A macro on its way into a pack.
struct Cooling {
    /// Its micros with the revisions that were read.
    micros: Vec<(ChunkId, u32)>,
    writing: Option<tokio::task::JoinHandle<Result<NewPack>>>,
}

/// A micro in hand.
struct Micro {
    id: ChunkId,
    revision: u32,
    tokens: u64,
    has_summary: bool,
    turns: Vec<(Millis, RedactedTurn)>,
}

type Pressed =
    (Vec<(ChunkId, u32, RedactedSummary)>, Vec<(ChunkId, u32, Option<icecore_store::TextBody>)>);

/// Makes summaries of the micros in `sum_from..=sum_through` and text of those
/// in `warm_from..=warm_through`.
fn press(
    inner: &Inner,
    redactor: &Redactor,
    micros: &[Micro],
    sum_from: Ordinal,
    sum_through: Ordinal,
    warm_from: Ordinal,
    warm_through: Ordinal,
) -> Result<Pressed> {
    let format = match inner.settings.warm_format {
        WarmFormat::Ctf => TextFormat::Ctf,
        WarmFormat::Json => TextFormat::Jsonl,
    };
    let (mut summaries, mut texts) = (Vec::new(), Vec::new());
    for micro in micros {
        let last = micro.id.last;
        let is_due = last > sum_from && last <= sum_through && !micro.has_summary;
        if is_due && !micro.turns.is_empty() {
            let turns: Vec<_> = micro.turns.iter().map(|(at, turn)| (*at, turn)).collect();
            let summary = summarize_micro(inner, redactor, micro.tokens, &turns)?;
            summaries.push((micro.id, micro.revision, summary));
        }
        if last > warm_from && last <= warm_through {
            let turns: Vec<RedactedTurn> =
                micro.turns.iter().map(|(_, turn)| turn.clone()).collect();
            let text = match turns.is_empty() {
                true => None,
                false => Some(encode(&micro.id, format, &turns)?),
            };
            texts.push((micro.id, micro.revision, text));
        }
    }
    Ok((summaries, texts))
}

/// The summary of a micro of so many tokens, from its turns.
pub(crate) fn summarize_micro(
    inner: &Inner,
    redactor: &Redactor,
    tokens: u64,
    turns: &[(Millis, &RedactedTurn)],
) -> Result<RedactedSummary> {
    let budget = summary::summary_budget(Level::Micro, tokens);
    let made =
        with_said(turns, |said| summary::summarize_turns(said, budget, inner.counter.as_ref()));
    finish_summary(inner, redactor, made)
}

/// Turns as a summarizer reads them.
fn with_said<T>(turns: &[(Millis, &RedactedTurn)], read: impl FnOnce(&[Said<'_>]) -> T) -> T {
    let texts: Vec<_> = turns.iter().map(|(_, turn)| turn.fields().content.text()).collect();
    let said: Vec<Said<'_>> = turns
        .iter()
        .zip(&texts)
        .map(|((at, turn), text)| Said {
            role: &turn.fields().role,
            name: turn.fields().name.as_deref(),
            text,
            at: *at,
        })
        .collect();
    read(&said)
}

/// The summary of a mini or macro of so many tokens, from those of its children.
pub(crate) fn summarize_above(
    inner: &Inner,
    redactor: &Redactor,
    level: Level,
    tokens: u64,
    children: &[&Summary],
) -> Result<RedactedSummary> {
    let budget = summary::summary_budget(level, tokens);
    let made = summary::summarize_children(children, budget, inner.counter.as_ref());
    finish_summary(inner, redactor, made)
}

/// Derived text is looked at again before it is kept.
fn finish_summary(
    inner: &Inner,
    redactor: &Redactor,
    mut summary: Summary,
) -> Result<RedactedSummary> {
    if !inner.settings.auto_extract_facts {
        summary.key_facts.clear();
    }
    redactor.summary(summary).map_err(not_redacted)
}

fn member(body: &MicroBody) -> Option<PackMember> {
    match &body.place {
        BodyPlace::Text(text) => Some(PackMember {
            id: body.id,
            format: text.format,
            text: text.text.as_str().to_owned(),
        }),
        _ => None,
    }
}

/// Writes a pack, reads it back from where it lies and compares, so that a
/// pointer to it can be trusted.
pub(crate) async fn write_pack(packs: &Packs, members: Vec<PackMember>) -> Result<NewPack> {
    let (bytes, sha256, key, members) = off_thread(move || {
        let key = PackKey::random();
        let bytes = build_pack(&members, &key);
        let sha256 = Sha256::digest(&bytes).into();
        (bytes, sha256, key, members)
    })
    .await?;
    let name = Packs::new_name();
    let size = bytes.len() as u64;
    packs.put(&name, bytes.into()).await?;
    let read = packs.get_lying(&name, &sha256).await?;
    let (check_name, check_key) = (name.clone(), key.clone());
    off_thread(move || {
        let reader = icecore_store::PackReader::open(&check_name, &read, &check_key)?;
        if reader.members()? != members {
            let reason = "it does not read back as it was written".to_owned();
            return Err(MemoryError::Store(StoreError::PackDamaged { name: check_name, reason }));
        }
        for member in &members {
            decode_text(&member.id, member.format, &member.text)?;
        }
        Ok(())
    })
    .await??;
    Ok(NewPack { name, key, bytes: size, sha256 })
}

/// Deletes an object that no row names any more. What is out of reach is left to the
/// sweep: its key is destroyed, or nobody ever had it.
pub(crate) async fn let_go(objects: &Packs, name: &str) -> Result<()> {
    match objects.delete(name).await {
        Err(error) if error.is_out_of_reach() => {
            tracing::warn!(name, %error, "an object that is of no use is left to the sweep");
            Ok(())
        }
        done => Ok(done?),
    }
}

/// As many chunks as a step may read, at least one.
fn bounded(mut chunks: Vec<ChunkRecord>) -> Vec<ChunkRecord> {
    let mut tokens = 0;
    let fits = |chunk: &&ChunkRecord| {
        tokens += chunk.tokens;
        tokens <= TOKENS_A_STEP
    };
    let count = chunks.iter().take_while(fits).count();
    chunks.truncate(count.max(1));
    chunks
}

fn level_index(level: Level) -> usize {
    match level {
        Level::Micro => 0,
        Level::Mini => 1,
        Level::Macro => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use icecore_domain::ids::Principal;
    use icecore_domain::turn::RawTurn;
    use icecore_store::Store;
    use icecore_store::hooks::{Call, Hook};

    use super::*;
    use crate::memory::MemoryBuilder;

    /// Counts the calls of a store by their operation.
    #[derive(Default)]
    struct Calls(Mutex<BTreeMap<&'static str, u64>>);

    impl Calls {
        fn take(&self) -> BTreeMap<&'static str, u64> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    #[async_trait]
    impl Hook for Calls {
        async fn before(
            &self,
            call: Call<'_>,
            _: &mut (dyn Any + Send),
        ) -> icecore_store::Result<()> {
            *self.0.lock().unwrap().entry(call.op).or_default() += 1;
            Ok(())
        }
    }

    async fn memory_of(calls: &Arc<Calls>, tenants: usize) -> (Memory, Vec<Scope>) {
        let store = Store::in_memory([1; 32]).hooked(Arc::clone(calls) as Arc<dyn Hook>);
        let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
        let mut scopes = Vec::new();
        for number in 0..tenants {
            let me = Principal::local_operator(Tenant::new(format!("t{number}")).unwrap());
            let scope = memory.scope(&me, "m").await.unwrap();
            memory.remember(&scope, "s", vec![RawTurn::new("user", "hello")]).await.unwrap();
            scopes.push(scope);
        }
        memory.settle(|_, _| {}).await.unwrap();
        (memory, scopes)
    }

    /// What upkeep asks of the store in a minute in which nothing happens.
    async fn idle(tenants: usize) -> BTreeMap<&'static str, u64> {
        let calls = Arc::new(Calls::default());
        let (memory, _) = memory_of(&calls, tenants).await;
        calls.take();
        memory.work_until(tokio::time::sleep(Duration::from_millis(59_500))).await;
        calls.take()
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_host_asks_little_of_its_store_however_many_tenants_it_has() {
        let (few, many) = (idle(2).await, idle(20).await);
        let sum = |calls: &BTreeMap<_, u64>| calls.values().sum::<u64>();
        // Some are asked at the edge of the minute.
        assert!(sum(&many) < sum(&few) + 20, "{few:?} {many:?}");
        assert!(sum(&many) < 3 * 60, "{many:?}");
    }

    #[tokio::test]
    async fn settling_a_turn_reads_only_the_facts_that_came_since() {
        let calls = Arc::new(Calls::default());
        let (memory, scopes) = memory_of(&calls, 1).await;
        let say = async |text: String| {
            memory.remember(&scopes[0], "s", vec![RawTurn::new("user", &text)]).await.unwrap();
            memory.settle(|_, _| {}).await.unwrap();
        };
        let mut reads = Vec::new();
        for number in 0..6 {
            say(format!("My sister's name is Mara{number}. I live in Lisbon{number}.")).await;
            let read: u64 = ["facts_after", "verdicts"]
                .iter()
                .map(|op| calls.take().remove(op).unwrap_or(0))
                .sum();
            reads.push(read);
        }
        assert_eq!(reads[5], reads[1], "{reads:?}");
    }

    #[tokio::test]
    async fn an_append_asks_for_no_secrets_that_are_at_hand() {
        let calls = Arc::new(Calls::default());
        let (memory, scopes) = memory_of(&calls, 1).await;
        calls.take();
        memory.remember(&scopes[0], "s", vec![RawTurn::new("user", "hi")]).await.unwrap();
        assert_eq!(calls.take(), BTreeMap::from([("append", 1)]));
    }
}
