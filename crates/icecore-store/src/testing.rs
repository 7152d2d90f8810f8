//! Stores that misbehave or keep count, for tests.
//!
//! Each wraps any store, also one behind `Arc<dyn Store>`, and each other.

mod hook;
mod one_thread;
#[cfg(feature = "postgres")]
pub mod postgres;
mod seeded;

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use icecore_domain::chunk::Level;
use icecore_domain::dream::Checksum;
use icecore_domain::fact::FactKey;
use icecore_domain::identity::{IdentityKey, Link};
use icecore_domain::ids::{
    Branch, Ordinal, Position, Scope, SessionName, SessionNo, Tenant, TurnId,
};
use icecore_domain::redact::{RedactedText, Redactor, Secret, SecretName};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};

use crate::error::StoreError;
use crate::store::*;

pub use hook::{Call, Hook, Seen};
pub use one_thread::{OneThread, is_one_thread};
pub use seeded::SeededNames;
pub(crate) use seeded::draw;

/// Fails at the nth write with [`StoreError::Injected`]; every other works.
pub type FailingStore<S> = Wrapped<S, Failing>;

/// Counts reads, and the rows they answered, by method.
pub type CountingStore<S> = Wrapped<S, Counting>;

/// A store with something done around each call.
pub struct Wrapped<S: ?Sized, H> {
    inner: Arc<S>,
    hook: Arc<H>,
    /// The lease under which it writes.
    fence: Option<Fence>,
}

impl<S: Store + ?Sized, H> Wrapped<S, H> {
    /// Does something around each call.
    pub fn with(inner: Arc<S>, hook: H) -> Self {
        Self::sharing(inner, Arc::new(hook))
    }

    /// As [`Wrapped::with`], with something that others do too.
    pub fn sharing(inner: Arc<S>, hook: Arc<H>) -> Self {
        Self { inner, hook, fence: None }
    }

    /// What is done.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    /// The store inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

// Failing

/// Counts writes and fails at one of them.
pub struct Failing {
    at: u64,
    is_done_first: bool,
    begun: AtomicU64,
    done: AtomicU64,
}

impl<S: Store + ?Sized> FailingStore<S> {
    /// Fails instead of the nth write, counted from 1.
    pub fn instead_of(nth: u64, inner: Arc<S>) -> Self {
        Self::new(inner, nth, false)
    }

    /// Fails after the nth write that worked, as when its answer is lost.
    pub fn after(nth: u64, inner: Arc<S>) -> Self {
        Self::new(inner, nth, true)
    }

    fn new(inner: Arc<S>, at: u64, is_done_first: bool) -> Self {
        let hook = Failing { at, is_done_first, begun: AtomicU64::new(0), done: AtomicU64::new(0) };
        Self::with(inner, hook)
    }

    /// Writes that were tried so far.
    pub fn writes(&self) -> u64 {
        self.hook.begun.load(Ordering::SeqCst)
    }
}

impl Hook for Failing {
    fn before_write(&self) -> Result<()> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        match number == self.at && !self.is_done_first {
            true => Err(StoreError::Injected(number)),
            false => Ok(()),
        }
    }

    fn after_write(&self) -> Result<()> {
        let number = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        match number == self.at && self.is_done_first {
            true => Err(StoreError::Injected(number)),
            false => Ok(()),
        }
    }
}

// Counting

/// Calls of one method, and rows answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadCount {
    /// How often it was called.
    pub calls: u64,
    /// Rows in its answers: elements of a list, 1 for anything else that was there.
    pub rows: u64,
}

/// Counts of reads by method.
#[derive(Default)]
pub struct Counting(Mutex<BTreeMap<&'static str, ReadCount>>);

impl<S: Store + ?Sized> CountingStore<S> {
    /// Counts from nothing.
    pub fn new(inner: Arc<S>) -> Self {
        Self::with(inner, Counting::default())
    }

    /// Reads since the beginning or the last call of this, by method.
    pub fn take_reads(&self) -> BTreeMap<&'static str, ReadCount> {
        std::mem::take(&mut *self.hook.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Hook for Counting {
    fn after_read(&self, method: &'static str, rows: usize) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(method).or_default();
        count.calls += 1;
        count.rows += rows as u64;
    }
}

/// How many rows an answer has.
trait Rows {
    fn rows(&self) -> usize {
        1
    }
}

impl<T> Rows for Vec<T> {
    fn rows(&self) -> usize {
        self.len()
    }
}

impl<T, U> Rows for (Vec<T>, Vec<U>) {
    fn rows(&self) -> usize {
        self.0.len() + self.1.len()
    }
}

impl<T> Rows for Option<T> {
    fn rows(&self) -> usize {
        usize::from(self.is_some())
    }
}

impl Rows for u64 {}
impl Rows for RunRecord {}
impl Rows for Position {}
impl Rows for IdentityKey {}
impl Rows for StoreStats {}
impl Rows for ScopeHead {}

impl Rows for Watch {
    fn rows(&self) -> usize {
        self.waiting.len()
    }
}

impl Rows for Erasures {}
impl Rows for Usage {}
impl Rows for AllUsage {}

impl Rows for TenantSecrets {
    fn rows(&self) -> usize {
        self.secrets.len()
    }
}

// Passing on

macro_rules! read {
    ($self:ident.$method:ident($($argument:expr),*)) => {{
        let call = Call { method: stringify!($method), writes: false };
        $self.hook.before(call).await?;
        let answer = $self.inner.$method($($argument),*).await?;
        $self.hook.after_read(call.method, answer.rows());
        $self.hook.after(call).await?;
        Ok(answer)
    }};
}

macro_rules! write {
    ($self:ident.$method:ident($($argument:expr),*)) => {{
        write!($self.$method($($argument),*), |_answer| {})
    }};
    ($self:ident.$method:ident($($argument:expr),*), $seeing:expr) => {{
        write!($self.$method($($argument),*), || ready(Ok(())), $seeing)
    }};
    ($self:ident.$method:ident($($argument:expr),*), $first:expr, $seeing:expr) => {{
        let call = Call { method: stringify!($method), writes: true };
        $self.hook.before_write()?;
        $self.hook.before(call).await?;
        done_first($first).await?;
        let answer = $self.inner.$method($($argument),*).await?;
        $self.hook.see(Seen::Wrote { fence: $self.fence.as_ref(), method: call.method });
        seen(&answer, $seeing);
        $self.hook.after_write()?;
        $self.hook.after(call).await?;
        Ok(answer)
    }};
}

/// Does something before a call.
async fn done_first<T, W: Future<Output = Result<T>>>(first: impl FnOnce() -> W) -> Result<T> {
    first().await
}

/// Looks at an answer.
fn seen<T>(answer: &T, seeing: impl FnOnce(&T)) {
    seeing(answer);
}

#[async_trait]
impl<S: Store + ?Sized + 'static, H: Hook> Store for Wrapped<S, H> {
    async fn identity_key(&self, tenant: &Tenant) -> Result<IdentityKey> {
        read!(self.identity_key(tenant))
    }

    async fn put_secret(
        &self,
        tenant: &Tenant,
        secret: Secret,
        rotate: bool,
        now: Millis,
    ) -> Result<SecretRecord> {
        write!(self.put_secret(tenant, secret, rotate, now))
    }

    async fn remove_secret(&self, tenant: &Tenant, name: &SecretName, now: Millis) -> Result<bool> {
        write!(self.remove_secret(tenant, name, now))
    }

    async fn secrets(&self, tenant: &Tenant) -> Result<TenantSecrets> {
        read!(self.secrets(tenant))
    }

    async fn secret_records(&self, tenant: &Tenant) -> Result<Vec<SecretRecord>> {
        read!(self.secret_records(tenant))
    }

    async fn secrets_version(&self, tenant: &Tenant) -> Result<u64> {
        read!(self.secrets_version(tenant))
    }

    async fn append(&self, scope: &Scope, batch: AppendBatch) -> Result<Appended> {
        let batch = self.hook.append(batch);
        write!(self.append(scope, batch))
    }

    async fn session(&self, scope: &Scope, name: &SessionName) -> Result<Option<SessionRecord>> {
        read!(self.session(scope, name))
    }

    async fn session_by_number(
        &self,
        scope: &Scope,
        no: SessionNo,
    ) -> Result<Option<SessionRecord>> {
        read!(self.session_by_number(scope, no))
    }

    async fn sessions_at(&self, scope: &Scope, nos: &[SessionNo]) -> Result<Vec<SessionRecord>> {
        read!(self.sessions_at(scope, nos))
    }

    async fn sessions(
        &self,
        scope: &Scope,
        after: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        read!(self.sessions(scope, after, limit))
    }

    async fn recent_sessions(&self, scope: &Scope, limit: usize) -> Result<Vec<SessionRecord>> {
        read!(self.recent_sessions(scope, limit))
    }

    async fn turns(&self, scope: &Scope, query: &TurnQuery) -> Result<Vec<TurnRow>> {
        read!(self.turns(scope, query))
    }

    async fn turns_by_lookup(
        &self,
        scope: &Scope,
        session: SessionNo,
        lookup: i64,
    ) -> Result<Vec<TurnRow>> {
        read!(self.turns_by_lookup(scope, session, lookup))
    }

    async fn scope_head(&self, scope: &Scope) -> Result<ScopeHead> {
        let head: Result<ScopeHead> = read!(self.scope_head(scope));
        Ok(self.hook.scope_head(scope, head?))
    }

    async fn turns_after(
        &self,
        scope: &Scope,
        after: Position,
        limit: usize,
    ) -> Result<Vec<TurnRow>> {
        let scope = &self.hook.reads_of(scope);
        read!(self.turns_after(scope, after, limit))
    }

    async fn turns_at(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
        read!(self.turns_at(scope, ids))
    }

    async fn whole_turns_at(
        &self,
        scope: &Scope,
        ids: &[TurnId],
    ) -> Result<(Vec<TurnRow>, Vec<MicroBody>)> {
        read!(self.whole_turns_at(scope, ids))
    }

    async fn linked(
        &self,
        scope: &Scope,
        links: &[Link],
        session: Option<SessionNo>,
    ) -> Result<Vec<LinkedTurn>> {
        read!(self.linked(scope, links, session))
    }

    async fn places(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnPlace>> {
        read!(self.places(scope, ids))
    }

    async fn put_recalled(&self, scope: &Scope, recalled: NewRecalled) -> Result<bool> {
        write!(self.put_recalled(scope, recalled))
    }

    async fn recalled(
        &self,
        scope: &Scope,
        session: SessionNo,
        links: &[Link],
    ) -> Result<Vec<(Link, RedactedText)>> {
        read!(self.recalled(scope, session, links))
    }

    async fn chunks(&self, scope: &Scope, query: &ChunkQuery) -> Result<Vec<ChunkRecord>> {
        read!(self.chunks(scope, query))
    }

    async fn bodies(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        first: Ordinal,
        last: Ordinal,
    ) -> Result<Vec<MicroBody>> {
        read!(self.bodies(scope, session, branch, first, last))
    }

    async fn bodies_at(
        &self,
        scope: &Scope,
        places: &[(SessionNo, Branch, Ordinal)],
    ) -> Result<Vec<MicroBody>> {
        read!(self.bodies_at(scope, places))
    }

    async fn chunks_at(
        &self,
        scope: &Scope,
        ids: &[(SessionNo, Branch, Level, Ordinal)],
    ) -> Result<Vec<ChunkRecord>> {
        read!(self.chunks_at(scope, ids))
    }

    async fn summaries_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, ChunkRecord)>> {
        read!(self.summaries_after(scope, after, limit))
    }

    async fn unsettled(&self, limit: usize) -> Result<Vec<DueBranch>> {
        read!(self.unsettled(limit))
    }

    async fn unsettled_beside(&self, tenants: &[Tenant], limit: usize) -> Result<Vec<DueBranch>> {
        read!(self.unsettled_beside(tenants, limit))
    }

    async fn unsettled_count(&self, tenant: Option<&Tenant>, memory: Option<&str>) -> Result<u64> {
        read!(self.unsettled_count(tenant, memory))
    }

    async fn branch(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
    ) -> Result<Option<BranchRecord>> {
        read!(self.branch(scope, session, branch))
    }

    async fn settle(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        seen: u64,
    ) -> Result<()> {
        write!(self.settle(scope, session, branch, seen))
    }

    async fn unsettle_all(&self) -> Result<()> {
        write!(self.unsettle_all())
    }

    async fn demote_to_warm(&self, scope: &Scope, demotion: WarmDemotion) -> Result<bool> {
        write!(self.demote_to_warm(scope, demotion))
    }

    async fn demote_to_cold(&self, scope: &Scope, demotion: ColdDemotion) -> Result<bool> {
        write!(self.demote_to_cold(scope, demotion))
    }

    async fn put_summaries(&self, scope: &Scope, summaries: SummaryBatch) -> Result<()> {
        write!(self.put_summaries(scope, summaries))
    }

    async fn drop_derived(&self, scope: &Scope) -> Result<u64> {
        write!(self.drop_derived(scope))
    }

    async fn put_facts(&self, scope: &Scope, batch: FactBatch) -> Result<bool> {
        write!(self.put_facts(scope, batch))
    }

    async fn facts_through(&self, scope: &Scope) -> Result<Position> {
        read!(self.facts_through(scope))
    }

    async fn facts(&self, scope: &Scope) -> Result<Vec<FactRecord>> {
        read!(self.facts(scope))
    }

    async fn facts_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<FactRecord>> {
        read!(self.facts_after(scope, after, limit))
    }

    async fn facts_at(&self, scope: &Scope, numbers: &[u64]) -> Result<Vec<FactRecord>> {
        read!(self.facts_at(scope, numbers))
    }

    async fn facts_of(&self, scope: &Scope, key: FactKey) -> Result<Vec<FactRecord>> {
        read!(self.facts_of(scope, key))
    }

    async fn put_verdict(&self, scope: &Scope, verdict: NewVerdict) -> Result<Position> {
        write!(self.put_verdict(scope, verdict))
    }

    async fn verdicts(&self, scope: &Scope) -> Result<Vec<VerdictRecord>> {
        read!(self.verdicts(scope))
    }

    async fn erase_facts(
        &self,
        scope: &Scope,
        selector: &Selector,
        quoting: &[TurnId],
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        write!(self.erase_facts(scope, selector, quoting, dry_run, now))
    }

    async fn packs_older_than(&self, before: Millis, limit: usize) -> Result<Vec<PackRecord>> {
        read!(self.packs_older_than(before, limit))
    }

    async fn packs(&self, tenant: Option<&Tenant>) -> Result<Vec<PackRecord>> {
        read!(self.packs(tenant))
    }

    async fn expire_pack(&self, pack: &PackRecord, now: Millis) -> Result<()> {
        write!(self.expire_pack(pack, now))
    }

    async fn select(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Selected>> {
        read!(self.select(tenant, memory, selector))
    }

    async fn erase(&self, scope: &Scope, erasure: Erasure) -> Result<bool> {
        write!(self.erase(scope, erasure))
    }

    async fn rewrite(&self, scope: &Scope, rewrite: Rewrite) -> Result<bool> {
        write!(self.rewrite(scope, rewrite))
    }

    async fn rewrite_told(
        &self,
        tenant: &Tenant,
        redactor: Arc<Redactor>,
        now: Millis,
    ) -> Result<Told> {
        write!(self.rewrite_told(tenant, redactor, now))
    }

    async fn log(
        &self,
        scope: &Scope,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        write!(self.log(scope, kind, payload, now))
    }

    async fn log_of_tenant(
        &self,
        tenant: &Tenant,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        write!(self.log_of_tenant(tenant, kind, payload, now))
    }

    async fn put_entry(&self, scope: &Scope, entry: NewEntry) -> Result<EntryRecord> {
        write!(self.put_entry(scope, entry))
    }

    async fn entry(
        &self,
        scope: &Scope,
        id: &str,
        at: Option<Position>,
        now: Millis,
    ) -> Result<Option<EntryRecord>> {
        read!(self.entry(scope, id, at, now))
    }

    async fn entries(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        let scope = &self.hook.reads_of(scope);
        read!(self.entries(scope, filter, now, limit))
    }

    async fn entry_places(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<Position>> {
        read!(self.entry_places(scope, filter, now))
    }

    async fn entries_after(
        &self,
        scope: &Scope,
        after: Position,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        read!(self.entries_after(scope, after, now, limit))
    }

    async fn entries_at(
        &self,
        scope: &Scope,
        began: &[Position],
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        read!(self.entries_at(scope, began, filter, now))
    }

    async fn end_entry(&self, scope: &Scope, id: &str, now: Millis) -> Result<bool> {
        write!(self.end_entry(scope, id, now))
    }

    async fn due_entries(&self, now: Millis, ended_by: Millis, limit: usize) -> Result<Vec<Scope>> {
        read!(self.due_entries(now, ended_by, limit))
    }

    async fn purge_entries(
        &self,
        scope: &Scope,
        now: Millis,
        ended_by: Millis,
        limit: usize,
    ) -> Result<u64> {
        write!(self.purge_entries(scope, now, ended_by, limit))
    }

    async fn erase_entries(
        &self,
        scope: &Scope,
        selector: &Selector,
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        write!(self.erase_entries(scope, selector, dry_run, now))
    }

    async fn derive_entries(
        &self,
        scope: &Scope,
        derivation: Derivation,
    ) -> Result<Option<Derived>> {
        write!(self.derive_entries(scope, derivation))
    }

    async fn sources_of(&self, scope: &Scope, id: &str, now: Millis) -> Result<Vec<EntryRecord>> {
        read!(self.sources_of(scope, id, now))
    }

    async fn crowded_memories(
        &self,
        count: u64,
        quiet_since: Millis,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<Scope>> {
        read!(self.crowded_memories(count, quiet_since, now, limit))
    }

    async fn oldest_places(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        read!(self.oldest_places(scope, after, now, limit))
    }

    // Dreams

    async fn lease_dream(&self, scope: &Scope, lease: Lease, now: Millis) -> Result<bool> {
        let holder = &lease.holder.clone();
        write!(self.lease_dream(scope, lease, now), |is_taken: &bool| {
            if *is_taken {
                self.hook.see(Seen::DreamLeased { scope, holder });
            }
        })
    }

    async fn release_dream(&self, scope: &Scope, holder: &str) -> Result<()> {
        write!(self.release_dream(scope, holder))
    }

    async fn undreamt_entries(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        read!(self.undreamt_entries(scope, after, now, limit))
    }

    async fn undreamt_branches(
        &self,
        scope: &Scope,
        after: Option<(SessionNo, Branch)>,
        limit: usize,
    ) -> Result<Vec<Undreamt>> {
        read!(self.undreamt_branches(scope, after, limit))
    }

    async fn keep_dream(&self, scope: &Scope, dream: NewDream) -> Result<Kept> {
        let (holder, now) = (&dream.holder.clone(), dream.now);
        let stolen = || async {
            let lease = Lease { holder: holder.clone(), until: Millis(now.0 + 1) };
            match self.hook.checks_dreamers() {
                true => Ok(true),
                false => self.inner.lease_dream(scope, lease, Millis(i64::MAX / 2)).await,
            }
        };
        write!(self.keep_dream(scope, dream), stolen, |kept: &Kept| {
            if matches!(kept, Kept::Done(_)) {
                self.hook.see(Seen::DreamKept { scope, holder });
            }
        })
    }

    async fn undo_dream(
        &self,
        scope: &Scope,
        run: &str,
        index: Option<(Workspace, NewFile)>,
        now: Millis,
    ) -> Result<Option<DreamRecord>> {
        write!(self.undo_dream(scope, run, index, now))
    }

    async fn dream(&self, tenant: &Tenant, run: &str) -> Result<Option<DreamRecord>> {
        read!(self.dream(tenant, run))
    }

    async fn dreams(&self, tenant: &Tenant, query: &DreamQuery) -> Result<Vec<DreamRecord>> {
        read!(self.dreams(tenant, query))
    }

    async fn dreamt_tokens(&self, tenant: &Tenant, since: Millis) -> Result<u64> {
        read!(self.dreamt_tokens(tenant, since))
    }

    async fn archives(&self, tenant: Option<&Tenant>) -> Result<Vec<ArchiveRecord>> {
        read!(self.archives(tenant))
    }

    async fn archives_at(&self, tenant: &Tenant, checksum: Checksum) -> Result<Vec<ArchiveRecord>> {
        read!(self.archives_at(tenant, checksum))
    }

    async fn expire_archive(&self, scope: &Scope, checksum: Checksum, now: Millis) -> Result<bool> {
        write!(self.expire_archive(scope, checksum, now))
    }

    async fn archives_lost_with(
        &self,
        scope: &Scope,
        selector: &Selector,
        turns: &[TurnId],
        now: Millis,
    ) -> Result<u64> {
        read!(self.archives_lost_with(scope, selector, turns, now))
    }

    async fn lost_dreams(&self, limit: usize) -> Result<Vec<DreamDue>> {
        read!(self.lost_dreams(limit))
    }

    async fn settle_lost_dreams(&self, due: &DreamDue) -> Result<()> {
        write!(self.settle_lost_dreams(due))
    }

    async fn note_lost_dreams(&self, scope: &Scope, budget: u64) -> Result<()> {
        write!(self.note_lost_dreams(scope, budget))
    }

    async fn dream_losses(&self, tenant: &Tenant) -> Result<u64> {
        read!(self.dream_losses(tenant))
    }

    async fn settle_lost_index(&self, tenant: &Tenant, losses: u64) -> Result<()> {
        write!(self.settle_lost_index(tenant, losses))
    }

    async fn lost_indexes(&self, limit: usize) -> Result<Vec<Tenant>> {
        read!(self.lost_indexes(limit))
    }

    // Handoffs and what models answered

    async fn put_handoff(&self, scope: &Scope, handoff: NewHandoff) -> Result<KeptHandoff> {
        write!(self.put_handoff(scope, handoff))
    }

    async fn handoff(
        &self,
        scope: &Scope,
        session: SessionNo,
        path: &[(Branch, Ordinal)],
    ) -> Result<Option<HandoffRecord>> {
        read!(self.handoff(scope, session, path))
    }

    async fn handoffs(&self, scope: &Scope, session: SessionNo) -> Result<Vec<HandoffRecord>> {
        read!(self.handoffs(scope, session))
    }

    async fn edit_handoff(&self, scope: &Scope, edit: HandoffEdit) -> Result<KeptHandoff> {
        write!(self.edit_handoff(scope, edit))
    }

    async fn handoffs_lost_with(&self, scope: &Scope, turns: &[TurnId]) -> Result<u64> {
        read!(self.handoffs_lost_with(scope, turns))
    }

    async fn put_usage(&self, scope: &Scope, usage: ViewUsage) -> Result<()> {
        write!(self.put_usage(scope, usage))
    }

    async fn usage(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        model: &str,
    ) -> Result<Option<ViewUsage>> {
        read!(self.usage(scope, session, branch, model))
    }

    async fn put_answer(&self, scope: &Scope, answer: NewAnswer) -> Result<()> {
        write!(self.put_answer(scope, answer))
    }

    async fn answer(&self, scope: &Scope, key: &[u8; 32]) -> Result<Option<RedactedText>> {
        read!(self.answer(scope, key))
    }

    async fn add_spending(&self, scope: &Scope, spent: Vec<Spending>) -> Result<()> {
        write!(self.add_spending(scope, spent))
    }

    async fn spending(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        since_day: i64,
    ) -> Result<Vec<Spending>> {
        read!(self.spending(tenant, memory, since_day))
    }

    async fn create_run(&self, workspace: &Workspace, run: NewRun) -> Result<RunRecord> {
        write!(self.create_run(workspace, run))
    }

    async fn fork_run(&self, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>> {
        write!(self.fork_run(tenant, fork))
    }

    async fn run(&self, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>> {
        read!(self.run(tenant, id))
    }

    async fn step_run(&self, tenant: &Tenant, step: RunStep) -> Result<Option<RunRecord>> {
        write!(self.step_run(tenant, step))
    }

    async fn run_events(
        &self,
        tenant: &Tenant,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunEventRecord>> {
        read!(self.run_events(tenant, id, after, limit))
    }

    async fn unfinished_runs(&self, limit: usize) -> Result<Vec<(Tenant, String)>> {
        read!(self.unfinished_runs(limit))
    }

    async fn expire_runs(&self, ended_by: Millis, now: Millis, limit: usize) -> Result<u64> {
        write!(self.expire_runs(ended_by, now, limit))
    }

    async fn erase_runs(
        &self,
        tenant: &Tenant,
        before: Millis,
        now: Millis,
        dry_run: bool,
    ) -> Result<u64> {
        write!(self.erase_runs(tenant, before, now, dry_run))
    }

    async fn purge_runs(&self, expired_by: Millis, limit: usize) -> Result<u64> {
        write!(self.purge_runs(expired_by, limit))
    }

    // Schedules

    async fn put_schedule(&self, scope: &Scope, schedule: NewSchedule) -> Result<ScheduleRecord> {
        write!(self.put_schedule(scope, schedule))
    }

    async fn schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        read!(self.schedule(tenant, id))
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
    ) -> Result<Vec<ScheduleRecord>> {
        read!(self.schedules(tenant, memory))
    }

    async fn remove_schedule(&self, tenant: &Tenant, id: &str) -> Result<bool> {
        write!(self.remove_schedule(tenant, id))
    }

    async fn pause_schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        write!(self.pause_schedule(tenant, id))
    }

    async fn resume_schedule(
        &self,
        tenant: &Tenant,
        id: &str,
        handled_through: Millis,
        next: Option<NextTick>,
    ) -> Result<Option<ScheduleRecord>> {
        write!(self.resume_schedule(tenant, id, handled_through, next))
    }

    async fn due_schedules(&self, now: Millis, limit: usize) -> Result<Vec<ScheduleRecord>> {
        read!(self.due_schedules(now, limit))
    }

    async fn claim_ticks(&self, tenant: &Tenant, id: &str, claim: TickClaim) -> Result<Claimed> {
        let asked = &claim.clone();
        let said = |claimed: Claimed| self.hook.claimed(id, asked, claimed);
        let claimed: Result<Claimed> =
            write!(self.claim_ticks(tenant, id, claim), |claimed: &Claimed| {
                if let Claimed::Run(tick) = said(claimed.clone()) {
                    let (at, holder) = (tick.at, &asked.holder);
                    self.hook.see(Seen::TickClaimed { schedule: id, at, holder });
                }
            });
        Ok(said(claimed?))
    }

    async fn beat_tick(
        &self,
        tenant: &Tenant,
        id: &str,
        at: Millis,
        holder: &str,
        now: Millis,
    ) -> Result<bool> {
        write!(self.beat_tick(tenant, id, at, holder, now))
    }

    async fn end_tick(&self, tenant: &Tenant, id: &str, at: Millis, end: TickEnd) -> Result<bool> {
        let holder = &end.holder.clone();
        write!(self.end_tick(tenant, id, at, end), |is_ended: &bool| {
            if *is_ended {
                self.hook.see(Seen::TickEnded { schedule: id, at, holder });
            }
        })
    }

    async fn take_over_tick(
        &self,
        holder: &str,
        dead_since: Millis,
        now: Millis,
    ) -> Result<Option<TakenOver>> {
        write!(self.take_over_tick(holder, dead_since, now), |taken: &Option<TakenOver>| {
            if let Some(TakenOver { schedule, tick }) = taken {
                let (schedule, at) = (&schedule.id, tick.at);
                self.hook.see(Seen::TickTakenOver { schedule, at, holder });
            }
        })
    }

    async fn ticks(&self, tenant: &Tenant, id: &str, limit: usize) -> Result<Vec<TickRecord>> {
        read!(self.ticks(tenant, id, limit))
    }

    async fn purge_ticks(&self, ended_by: Millis, limit: usize) -> Result<u64> {
        write!(self.purge_ticks(ended_by, limit))
    }

    async fn trim_ticks(&self, most: u64, limit: usize) -> Result<u64> {
        write!(self.trim_ticks(most, limit))
    }

    async fn put_commitment(
        &self,
        scope: &Scope,
        commitment: NewCommitment,
    ) -> Result<CommitmentRecord> {
        write!(self.put_commitment(scope, commitment))
    }

    async fn commitment(&self, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
        read!(self.commitment(tenant, id))
    }

    async fn commitments(
        &self,
        tenant: &Tenant,
        query: &CommitmentQuery,
    ) -> Result<Vec<CommitmentRecord>> {
        read!(self.commitments(tenant, query))
    }

    async fn due_commitments(&self, now: Millis, limit: usize) -> Result<Vec<CommitmentRecord>> {
        read!(self.due_commitments(now, limit))
    }

    async fn waiting_memories(
        &self,
        after: Option<&Tenant>,
        except: &[Scope],
        limit: usize,
    ) -> Result<Vec<Scope>> {
        read!(self.waiting_memories(after, except, limit))
    }

    async fn watch(&self, scope: &Scope) -> Result<Watch> {
        read!(self.watch(scope))
    }

    async fn look_through(&self, scope: &Scope, look: &Look) -> Result<Vec<Fired>> {
        write!(self.look_through(scope, look))
    }

    async fn fire_commitment(
        &self,
        tenant: &Tenant,
        id: &str,
        because: Option<&str>,
        now: Millis,
    ) -> Result<Option<Fired>> {
        write!(self.fire_commitment(tenant, id, because, now))
    }

    async fn cancel_commitment(&self, tenant: &Tenant, id: &str, now: Millis) -> Result<bool> {
        write!(self.cancel_commitment(tenant, id, now))
    }

    async fn purge_commitments(&self, settled_by: Millis, limit: usize) -> Result<u64> {
        write!(self.purge_commitments(settled_by, limit))
    }

    async fn put_file(&self, workspace: &Workspace, file: NewFile) -> Result<FileRecord> {
        write!(self.put_file(workspace, file))
    }

    async fn file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        version: Option<u64>,
    ) -> Result<Option<FileRecord>> {
        read!(self.file(workspace, path, version))
    }

    async fn files(&self, workspace: &Workspace, prefix: &str) -> Result<Vec<FileHead>> {
        read!(self.files(workspace, prefix))
    }

    async fn delete_file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        expect: Expect,
        now: Millis,
    ) -> Result<bool> {
        write!(self.delete_file(workspace, path, expect, now))
    }

    async fn events(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        after: Position,
        limit: usize,
    ) -> Result<Vec<EventRecord>> {
        let events: Result<Vec<EventRecord>> = read!(self.events(tenant, memory, after, limit));
        Ok(self.hook.events(events?))
    }

    async fn head(&self, tenant: &Tenant) -> Result<Position> {
        read!(self.head(tenant))
    }

    async fn erasures(&self, tenant: &Tenant, after: Position, now: Millis) -> Result<Erasures> {
        read!(self.erasures(tenant, after, now))
    }

    async fn put_api_key(&self, key: ApiKeyRecord, hash: [u8; 32], by: KeyActor) -> Result<()> {
        write!(self.put_api_key(key, hash, by))
    }

    async fn api_key(&self, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>> {
        read!(self.api_key(hash))
    }

    async fn api_keys(&self, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>> {
        read!(self.api_keys(tenant))
    }

    async fn revoke_api_key(&self, revocation: KeyRevocation) -> Result<Option<ApiKeyRecord>> {
        write!(self.revoke_api_key(revocation))
    }

    async fn rotate_api_key(&self, rotation: KeyRotation) -> Result<Option<RotatedKey>> {
        write!(self.rotate_api_key(rotation))
    }

    async fn outcome(
        &self,
        tenant: &Tenant,
        operation: &str,
        key: &str,
        now: Millis,
    ) -> Result<Option<StoredOutcome>> {
        read!(self.outcome(tenant, operation, key, now))
    }

    async fn put_outcome(&self, tenant: &Tenant, outcome: NewOutcome, now: Millis) -> Result<()> {
        write!(self.put_outcome(tenant, outcome, now))
    }

    async fn purge_outcomes(&self, now: Millis) -> Result<u64> {
        write!(self.purge_outcomes(now))
    }

    async fn lease(
        &self,
        name: &str,
        holder: &str,
        until: Millis,
        now: Millis,
    ) -> Result<Option<Fence>> {
        write!(self.lease(name, holder, until, now), |taken: &Option<Fence>| {
            if let Some(fence) = taken {
                self.hook.see(Seen::Leased(fence));
            }
        })
    }

    async fn release(&self, fence: &Fence) -> Result<()> {
        write!(self.release(fence), |()| self.hook.see(Seen::Released(fence)))
    }

    fn fenced(&self, fence: Fence) -> Arc<dyn Store> {
        let (hook, held) = (Arc::clone(&self.hook), Some(fence.clone()));
        match hook.keeps_fences() {
            true => Arc::new(Wrapped { inner: self.inner.fenced(fence), hook, fence: held }),
            false => Arc::new(Wrapped { inner: Arc::clone(&self.inner), hook, fence: held }),
        }
    }

    async fn stats(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        now: Millis,
    ) -> Result<StoreStats> {
        read!(self.stats(tenant, memory, now))
    }

    async fn scopes(&self, tenant: &Tenant) -> Result<Vec<Scope>> {
        read!(self.scopes(tenant))
    }

    async fn tenants(&self) -> Result<Vec<Tenant>> {
        read!(self.tenants())
    }

    async fn check(&self) -> Result<Vec<String>> {
        read!(self.check())
    }

    fn set_bounds(&self, bounds: Bounds) {
        self.inner.set_bounds(bounds);
    }

    async fn tenant_usage(&self, tenant: &Tenant, day: i64) -> Result<Usage> {
        read!(self.tenant_usage(tenant, day))
    }

    async fn all_usage(&self, day: i64) -> Result<AllUsage> {
        read!(self.all_usage(day))
    }

    async fn count_use(&self, tenant: &Tenant, day: i64, more: DayUse) -> Result<DayUse> {
        write!(self.count_use(tenant, day, more))
    }

    async fn recount_usage(&self) -> Result<u64> {
        write!(self.recount_usage())
    }

    async fn put_note(&self, name: &str, value: &str) -> Result<()> {
        write!(self.put_note(name, value))
    }

    async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        write!(self.note_once(name, value))
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        read!(self.note(name))
    }

    async fn tidy(&self) -> Result<bool> {
        write!(self.tidy())
    }

    async fn scrub(&self) -> Result<()> {
        write!(self.scrub())
    }

    fn tables(&self) -> Option<&dyn crate::Tables> {
        self.inner.tables()
    }

    fn timings(&self) -> crate::timings::StoreTimings {
        self.inner.timings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    async fn notes(store: &dyn Store) -> Vec<bool> {
        let mut written = Vec::new();
        for name in ["a", "b", "c"] {
            written.push(store.put_note(name, "x").await.is_ok());
        }
        written
    }

    #[tokio::test]
    async fn fails_once_instead_of_or_after_a_write() {
        let there = async |store: &MemoryStore| store.note("b").await.unwrap().is_some();
        let inner = Arc::new(MemoryStore::new([1; 32]));
        let failing = FailingStore::instead_of(2, Arc::clone(&inner));
        assert_eq!(notes(&failing).await, [true, false, true]);
        assert!(!there(&inner).await);
        assert_eq!(failing.writes(), 3);

        let failing = FailingStore::after(2, Arc::clone(&inner));
        assert_eq!(notes(&failing).await, [true, false, true]);
        assert!(there(&inner).await);
        assert!(failing.inner().note("c").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn reads_and_rows_are_counted_by_method() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new([1; 32]));
        let counting = CountingStore::new(inner);
        notes(&counting).await;
        for name in ["a", "nowhere"] {
            counting.note(name).await.unwrap();
        }
        counting.tenants().await.unwrap();
        let reads: Vec<_> = counting.take_reads().into_iter().collect();
        let count = |calls, rows| ReadCount { calls, rows };
        assert_eq!(reads, [("note", count(2, 1)), ("tenants", count(1, 0))]);
        assert!(counting.take_reads().is_empty());
    }
}
