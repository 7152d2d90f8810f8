//! The contract kept by statements: each operation in a transaction of the engine's.

use std::sync::Arc;

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

use super::engine::Connection;
use super::{
    Engine, Shared, Size, Tables, Wall, answers, api_keys, append, archives, commitments,
    derivation, dream_loss, dreams, entries, erase, facts, handoffs, health, leases, links, log,
    pyramid, recalled, rewrite, rows, runs, schedules, secrets, told, usage, workspace,
};
use crate::store::*;
use crate::timings::StoreTimings;

/// Rows that are few when they are read by their keys.
const FEW: usize = 32;

/// A store over an engine.
pub struct SqlStore<E> {
    engine: Arc<E>,
    /// The lease under which it writes.
    fence: Option<Fence>,
}

impl<E: Engine> SqlStore<E> {
    pub(crate) fn over(engine: E) -> Self {
        Self { engine: Arc::new(engine), fence: None }
    }

    pub(crate) fn engine(&self) -> &E {
        &self.engine
    }

    /// Runs `act` in a transaction that is durable when this resolves, if the lease is
    /// still held under which it writes.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        wall: Wall,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Some(fence) = self.fence.clone() else { return self.engine.write(wall, act).await };
        self.engine
            .write(wall, move |c, s| {
                leases::refuse_lost(c, s, &fence)?;
                act(c, s)
            })
            .await
    }

    /// Runs `act` over one snapshot.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        wall: Wall,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.engine.read(wall, Size::Many, act).await
    }

    /// As [`SqlStore::read`], for a few rows by their keys.
    async fn look<T: Send + 'static>(
        &self,
        wall: Wall,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.engine.read(wall, Size::Few, act).await
    }

    /// Reads that many rows by their keys.
    async fn fetch<T: Send + 'static>(
        &self,
        wall: Wall,
        rows: usize,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let size = if rows <= FEW { Size::Few } else { Size::Many };
        self.engine.read(wall, size, act).await
    }
}

#[async_trait]
impl<E: Engine> Store for SqlStore<E> {
    async fn identity_key(&self, tenant: &Tenant) -> Result<IdentityKey> {
        let name = tenant.clone();
        let known =
            self.read(Wall::tenant(tenant), move |c, s| rows::tenant_key(c, s, &name)).await?;
        if let Some(key) = known {
            return Ok(key.identity_key());
        }
        let name = tenant.clone();
        self.write(Wall::tenant(tenant), move |c, s| {
            rows::ensure_tenant(c, s, &name).map(|(_, key)| key.identity_key())
        })
        .await
    }

    async fn put_secret(
        &self,
        tenant: &Tenant,
        secret: Secret,
        rotate: bool,
        now: Millis,
    ) -> Result<SecretRecord> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| {
            secrets::put(c, s, &tenant, &secret, rotate, now)
        })
        .await
    }

    async fn remove_secret(&self, tenant: &Tenant, name: &SecretName, now: Millis) -> Result<bool> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.write(Wall::tenant(&tenant), move |c, s| secrets::remove(c, s, &tenant, &name, now))
            .await
    }

    async fn secrets(&self, tenant: &Tenant) -> Result<TenantSecrets> {
        let tenant = tenant.clone();
        self.read(Wall::tenant(&tenant), move |c, s| secrets::open_all(c, s, &tenant)).await
    }

    async fn secret_records(&self, tenant: &Tenant) -> Result<Vec<SecretRecord>> {
        let tenant = tenant.clone();
        self.read(Wall::tenant(&tenant), move |c, s| secrets::records(c, s, &tenant)).await
    }

    async fn secrets_version(&self, tenant: &Tenant) -> Result<u64> {
        let tenant = tenant.clone();
        self.look(Wall::tenant(&tenant), move |c, s| secrets::version(c, s, &tenant)).await
    }

    async fn append(&self, scope: &Scope, batch: AppendBatch) -> Result<Appended> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| append::append(c, s, &scope, &batch)).await
    }

    async fn session(&self, scope: &Scope, name: &SessionName) -> Result<Option<SessionRecord>> {
        let (scope, name) = (scope.clone(), name.clone());
        self.look(Wall::scope(&scope), move |c, s| rows::session_by_name(c, s, &scope, &name)).await
    }

    async fn session_by_number(
        &self,
        scope: &Scope,
        no: SessionNo,
    ) -> Result<Option<SessionRecord>> {
        let scope = scope.clone();
        self.look(Wall::scope(&scope), move |c, s| rows::session_by_number(c, s, &scope, no)).await
    }

    async fn sessions_at(&self, scope: &Scope, nos: &[SessionNo]) -> Result<Vec<SessionRecord>> {
        let (scope, nos) = (scope.clone(), nos.to_vec());
        self.fetch(Wall::scope(&scope), nos.len(), move |c, s| {
            rows::sessions_at(c, s, &scope, &nos)
        })
        .await
    }

    async fn sessions(
        &self,
        scope: &Scope,
        after: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| rows::sessions(c, s, &scope, after, limit)).await
    }

    async fn recent_sessions(&self, scope: &Scope, limit: usize) -> Result<Vec<SessionRecord>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| rows::recent_sessions(c, s, &scope, limit)).await
    }

    async fn turns(&self, scope: &Scope, query: &TurnQuery) -> Result<Vec<TurnRow>> {
        let (scope, query) = (scope.clone(), *query);
        self.read(Wall::scope(&scope), move |c, s| rows::turns(c, s, &scope, &query)).await
    }

    async fn turns_by_lookup(
        &self,
        scope: &Scope,
        session: SessionNo,
        lookup: i64,
    ) -> Result<Vec<TurnRow>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| {
            rows::turns_by_lookup(c, s, &scope, session, lookup)
        })
        .await
    }

    async fn scope_head(&self, scope: &Scope) -> Result<ScopeHead> {
        let scope = scope.clone();
        self.look(Wall::scope(&scope), move |c, s| rows::scope_head(c, s, &scope)).await
    }

    async fn turns_after(
        &self,
        scope: &Scope,
        after: Position,
        limit: usize,
    ) -> Result<Vec<TurnRow>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| rows::turns_after(c, s, &scope, after, limit))
            .await
    }

    async fn turns_at(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.fetch(Wall::scope(&scope), ids.len(), move |c, s| rows::turns_at(c, s, &scope, &ids))
            .await
    }

    async fn whole_turns_at(
        &self,
        scope: &Scope,
        ids: &[TurnId],
    ) -> Result<(Vec<TurnRow>, Vec<MicroBody>)> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.read(Wall::scope(&scope), move |c, s| pyramid::whole_turns_at(c, s, &scope, &ids))
            .await
    }

    async fn linked(
        &self,
        scope: &Scope,
        links: &[Link],
        session: Option<SessionNo>,
    ) -> Result<Vec<LinkedTurn>> {
        let (scope, links) = (scope.clone(), links.to_vec());
        self.fetch(Wall::scope(&scope), links.len(), move |c, s| {
            links::find(c, s, &scope, &links, session)
        })
        .await
    }

    async fn places(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnPlace>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.fetch(Wall::scope(&scope), ids.len(), move |c, s| links::places(c, s, &scope, &ids))
            .await
    }

    async fn put_recalled(&self, scope: &Scope, recalled: NewRecalled) -> Result<bool> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| recalled::put(c, s, &scope, &recalled)).await
    }

    async fn recalled(
        &self,
        scope: &Scope,
        session: SessionNo,
        links: &[Link],
    ) -> Result<Vec<(Link, RedactedText)>> {
        let (scope, links) = (scope.clone(), links.to_vec());
        self.fetch(Wall::scope(&scope), links.len(), move |c, s| {
            recalled::get(c, s, &scope, session, &links)
        })
        .await
    }

    async fn chunks(&self, scope: &Scope, query: &ChunkQuery) -> Result<Vec<ChunkRecord>> {
        let (scope, query) = (scope.clone(), *query);
        self.read(Wall::scope(&scope), move |c, s| pyramid::chunks(c, s, &scope, &query)).await
    }

    async fn bodies(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        first: Ordinal,
        last: Ordinal,
    ) -> Result<Vec<MicroBody>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| {
            pyramid::bodies(c, s, &scope, session, branch, first, last)
        })
        .await
    }

    async fn bodies_at(
        &self,
        scope: &Scope,
        places: &[(SessionNo, Branch, Ordinal)],
    ) -> Result<Vec<MicroBody>> {
        let (scope, places) = (scope.clone(), places.to_vec());
        self.read(Wall::scope(&scope), move |c, s| pyramid::bodies_at(c, s, &scope, places.clone()))
            .await
    }

    async fn chunks_at(
        &self,
        scope: &Scope,
        ids: &[(SessionNo, Branch, Level, Ordinal)],
    ) -> Result<Vec<ChunkRecord>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.fetch(Wall::scope(&scope), ids.len(), move |c, s| {
            pyramid::chunks_at(c, s, &scope, &ids)
        })
        .await
    }

    async fn summaries_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, ChunkRecord)>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| {
            pyramid::summaries_after(c, s, &scope, after, limit)
        })
        .await
    }

    async fn unsettled(&self, limit: usize) -> Result<Vec<DueBranch>> {
        self.read(Wall::Everyone, move |c, s| pyramid::unsettled(c, s, limit)).await
    }

    async fn unsettled_beside(&self, tenants: &[Tenant], limit: usize) -> Result<Vec<DueBranch>> {
        let tenants = tenants.to_vec();
        self.read(Wall::Everyone, move |c, s| pyramid::unsettled_beside(c, s, &tenants, limit))
            .await
    }

    async fn unsettled_count(&self, tenant: Option<&Tenant>, memory: Option<&str>) -> Result<u64> {
        let (tenant, memory) = (tenant.cloned(), memory.map(str::to_owned));
        self.read(Wall::around(tenant.as_ref()), move |c, s| {
            pyramid::unsettled_count(c, s, tenant.as_ref(), memory.as_deref())
        })
        .await
    }

    async fn branch(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
    ) -> Result<Option<BranchRecord>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| {
            let found = rows::session_by_number(c, s, &scope, session)?;
            Ok(found.and_then(|found| found.branches.into_iter().find(|b| b.branch == branch)))
        })
        .await
    }

    async fn settle(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        seen: u64,
    ) -> Result<()> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| {
            pyramid::settle(c, s, &scope, session, branch, seen)
        })
        .await
    }

    async fn unsettle_all(&self) -> Result<()> {
        self.write(Wall::Everyone, pyramid::unsettle_all).await
    }

    async fn demote_to_warm(&self, scope: &Scope, demotion: WarmDemotion) -> Result<bool> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| {
            pyramid::demote_to_warm(c, s, &scope, &demotion)
        })
        .await
    }

    async fn demote_to_cold(&self, scope: &Scope, demotion: ColdDemotion) -> Result<bool> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| {
            pyramid::demote_to_cold(c, s, &scope, &demotion)
        })
        .await
    }

    async fn put_summaries(&self, scope: &Scope, summaries: SummaryBatch) -> Result<()> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| {
            pyramid::put_summaries(c, s, &scope, &summaries)
        })
        .await
    }

    async fn drop_derived(&self, scope: &Scope) -> Result<u64> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| pyramid::drop_derived(c, s, &scope)).await
    }

    async fn put_facts(&self, scope: &Scope, batch: FactBatch) -> Result<bool> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| facts::put(c, s, &scope, &batch)).await
    }

    async fn facts_through(&self, scope: &Scope) -> Result<Position> {
        let scope = scope.clone();
        self.look(Wall::scope(&scope), move |c, s| facts::through(c, s, &scope)).await
    }

    async fn facts(&self, scope: &Scope) -> Result<Vec<FactRecord>> {
        self.facts_after(scope, 0, usize::MAX).await
    }

    async fn facts_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<FactRecord>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| facts::after(c, s, &scope, after, limit)).await
    }

    async fn facts_at(&self, scope: &Scope, numbers: &[u64]) -> Result<Vec<FactRecord>> {
        let (scope, numbers) = (scope.clone(), numbers.to_vec());
        self.fetch(Wall::scope(&scope), numbers.len(), move |c, s| {
            facts::at(c, s, &scope, &numbers)
        })
        .await
    }

    async fn facts_of(&self, scope: &Scope, key: FactKey) -> Result<Vec<FactRecord>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| facts::of(c, s, &scope, key)).await
    }

    async fn put_verdict(&self, scope: &Scope, verdict: NewVerdict) -> Result<Position> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| facts::put_verdict(c, s, &scope, &verdict))
            .await
    }

    async fn verdicts(&self, scope: &Scope) -> Result<Vec<VerdictRecord>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| facts::verdicts(c, s, &scope)).await
    }

    async fn erase_facts(
        &self,
        scope: &Scope,
        selector: &Selector,
        quoting: &[TurnId],
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        let (scope, selector, quoting) = (scope.clone(), selector.clone(), quoting.to_vec());
        self.write(Wall::scope(&scope), move |c, s| {
            facts::erase(c, s, &scope, &selector, &quoting, dry_run, now)
        })
        .await
    }

    async fn packs_older_than(&self, before: Millis, limit: usize) -> Result<Vec<PackRecord>> {
        self.read(Wall::Everyone, move |c, s| pyramid::packs(c, s, None, Some(before), limit)).await
    }

    async fn packs(&self, tenant: Option<&Tenant>) -> Result<Vec<PackRecord>> {
        let tenant = tenant.cloned();
        self.read(Wall::around(tenant.as_ref()), move |c, s| {
            pyramid::packs(c, s, tenant.as_ref(), None, usize::MAX >> 1)
        })
        .await
    }

    async fn expire_pack(&self, pack: &PackRecord, now: Millis) -> Result<()> {
        let pack = pack.clone();
        self.write(Wall::scope(&pack.scope), move |c, s| pyramid::expire_pack(c, s, &pack, now))
            .await
    }

    async fn select(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Selected>> {
        let (tenant, memory, selector) =
            (tenant.clone(), memory.map(str::to_owned), selector.clone());
        self.read(Wall::tenant(&tenant), move |c, s| {
            erase::select(c, s, &tenant, memory.as_deref(), &selector)
        })
        .await
    }

    async fn erase(&self, scope: &Scope, erasure: Erasure) -> Result<bool> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| erase::erase(c, s, &scope, &erasure)).await
    }

    async fn rewrite(&self, scope: &Scope, rewrite: Rewrite) -> Result<bool> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| rewrite::rewrite(c, s, &scope, &rewrite)).await
    }

    async fn rewrite_told(
        &self,
        tenant: &Tenant,
        redactor: Arc<Redactor>,
        now: Millis,
    ) -> Result<Told> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| told::rewrite(c, s, &tenant, &redactor, now))
            .await
    }

    async fn log(
        &self,
        scope: &Scope,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| log::put(c, s, &scope, kind, &payload, now))
            .await
    }

    async fn log_of_tenant(
        &self,
        tenant: &Tenant,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| {
            log::put_of_tenant(c, s, &tenant, kind, &payload, now)
        })
        .await
    }

    async fn put_entry(&self, scope: &Scope, entry: NewEntry) -> Result<EntryRecord> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| entries::put(c, s, &scope, entry.clone())).await
    }

    async fn entry(
        &self,
        scope: &Scope,
        id: &str,
        at: Option<Position>,
        now: Millis,
    ) -> Result<Option<EntryRecord>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(Wall::scope(&scope), move |c, s| entries::get(c, s, &scope, &id, at, now)).await
    }

    async fn entries(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.read(Wall::scope(&scope), move |c, s| entries::list(c, s, &scope, &filter, now, limit))
            .await
    }

    async fn entry_places(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<Position>> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.read(Wall::scope(&scope), move |c, s| entries::places(c, s, &scope, &filter, now))
            .await
    }

    async fn entries_after(
        &self,
        scope: &Scope,
        after: Position,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| entries::after(c, s, &scope, after, now, limit))
            .await
    }

    async fn entries_at(
        &self,
        scope: &Scope,
        began: &[Position],
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let (scope, began, filter) = (scope.clone(), began.to_vec(), filter.clone());
        self.fetch(Wall::scope(&scope), began.len(), move |c, s| {
            entries::at(c, s, &scope, &began, &filter, now)
        })
        .await
    }

    async fn end_entry(&self, scope: &Scope, id: &str, now: Millis) -> Result<bool> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.write(Wall::scope(&scope), move |c, s| entries::end(c, s, &scope, &id, now)).await
    }

    async fn due_entries(&self, now: Millis, ended_by: Millis, limit: usize) -> Result<Vec<Scope>> {
        self.read(Wall::Everyone, move |c, s| entries::due(c, s, now, ended_by, limit)).await
    }

    async fn purge_entries(
        &self,
        scope: &Scope,
        now: Millis,
        ended_by: Millis,
        limit: usize,
    ) -> Result<u64> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| {
            entries::purge(c, s, &scope, now, ended_by, limit)
        })
        .await
    }

    async fn erase_entries(
        &self,
        scope: &Scope,
        selector: &Selector,
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        let (scope, selector) = (scope.clone(), selector.clone());
        self.write(Wall::scope(&scope), move |c, s| {
            entries::erase(c, s, &scope, &selector, dry_run, now)
        })
        .await
    }

    async fn derive_entries(
        &self,
        scope: &Scope,
        derivation: Derivation,
    ) -> Result<Option<Derived>> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| {
            derivation::derive(c, s, &scope, derivation.clone())
        })
        .await
    }

    async fn sources_of(&self, scope: &Scope, id: &str, now: Millis) -> Result<Vec<EntryRecord>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(Wall::scope(&scope), move |c, s| derivation::sources(c, s, &scope, &id, now))
            .await
    }

    async fn crowded_memories(
        &self,
        count: u64,
        quiet_since: Millis,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<Scope>> {
        self.read(Wall::Everyone, move |c, s| {
            derivation::crowded(c, s, count, quiet_since, now, limit)
        })
        .await
    }

    async fn oldest_places(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| {
            derivation::oldest_places(c, s, &scope, after, now, limit)
        })
        .await
    }

    // Dreams

    async fn lease_dream(&self, scope: &Scope, lease: Lease, now: Millis) -> Result<bool> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| dreams::lease(c, s, &scope, &lease, now)).await
    }

    async fn release_dream(&self, scope: &Scope, holder: &str) -> Result<()> {
        let (scope, holder) = (scope.clone(), holder.to_owned());
        self.write(Wall::scope(&scope), move |c, s| dreams::release(c, s, &scope, &holder)).await
    }

    async fn undreamt_entries(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| {
            dreams::undreamt_entries(c, s, &scope, after, now, limit)
        })
        .await
    }

    async fn undreamt_branches(
        &self,
        scope: &Scope,
        after: Option<(SessionNo, Branch)>,
        limit: usize,
    ) -> Result<Vec<Undreamt>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| {
            dreams::undreamt_branches(c, s, &scope, after, limit)
        })
        .await
    }

    async fn keep_dream(&self, scope: &Scope, dream: NewDream) -> Result<Kept> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| dreams::keep(c, s, &scope, dream.clone())).await
    }

    async fn undo_dream(
        &self,
        scope: &Scope,
        run: &str,
        index: Option<(Workspace, NewFile)>,
        now: Millis,
    ) -> Result<Option<DreamRecord>> {
        let (scope, run) = (scope.clone(), run.to_owned());
        self.write(Wall::scope(&scope), move |c, s| {
            dreams::undo(c, s, &scope, &run, index.clone(), now)
        })
        .await
    }

    async fn dream(&self, tenant: &Tenant, run: &str) -> Result<Option<DreamRecord>> {
        let (tenant, run) = (tenant.clone(), run.to_owned());
        self.look(Wall::tenant(&tenant), move |c, s| dreams::get(c, s, &tenant, &run)).await
    }

    async fn dreams(&self, tenant: &Tenant, query: &DreamQuery) -> Result<Vec<DreamRecord>> {
        let (tenant, query) = (tenant.clone(), query.clone());
        self.read(Wall::tenant(&tenant), move |c, s| dreams::list(c, s, &tenant, &query)).await
    }

    async fn dreamt_tokens(&self, tenant: &Tenant, since: Millis) -> Result<u64> {
        let tenant = tenant.clone();
        self.read(Wall::tenant(&tenant), move |c, s| dreams::tokens(c, s, &tenant, since)).await
    }

    async fn archives(&self, tenant: Option<&Tenant>) -> Result<Vec<ArchiveRecord>> {
        let tenant = tenant.cloned();
        self.read(Wall::around(tenant.as_ref()), move |c, s| archives::list(c, s, tenant.as_ref()))
            .await
    }

    async fn archives_at(&self, tenant: &Tenant, checksum: Checksum) -> Result<Vec<ArchiveRecord>> {
        let tenant = tenant.clone();
        self.look(Wall::tenant(&tenant), move |c, s| archives::at(c, s, &tenant, checksum)).await
    }

    async fn expire_archive(&self, scope: &Scope, checksum: Checksum, now: Millis) -> Result<bool> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| archives::expire(c, s, &scope, checksum, now))
            .await
    }

    async fn archives_lost_with(
        &self,
        scope: &Scope,
        selector: &Selector,
        turns: &[TurnId],
        now: Millis,
    ) -> Result<u64> {
        let (scope, selector, turns) = (scope.clone(), selector.clone(), turns.to_vec());
        self.read(Wall::scope(&scope), move |c, s| {
            dream_loss::count(c, s, &scope, &selector, &turns, now)
        })
        .await
    }

    async fn lost_dreams(&self, limit: usize) -> Result<Vec<DreamDue>> {
        self.read(Wall::Everyone, move |c, s| dreams::lost(c, s, limit)).await
    }

    async fn settle_lost_dreams(&self, due: &DreamDue) -> Result<()> {
        let due = due.clone();
        self.write(Wall::scope(&due.scope), move |c, s| dreams::settle_lost(c, s, &due)).await
    }

    async fn note_lost_dreams(&self, scope: &Scope, budget: u64) -> Result<()> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| dreams::note_lost(c, s, &scope, budget)).await
    }

    async fn dream_losses(&self, tenant: &Tenant) -> Result<u64> {
        let tenant = tenant.clone();
        self.read(Wall::tenant(&tenant), move |c, s| dreams::losses_of(c, s, &tenant)).await
    }

    async fn settle_lost_index(&self, tenant: &Tenant, losses: u64) -> Result<()> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| {
            dreams::settle_lost_index(c, s, &tenant, losses)
        })
        .await
    }

    async fn lost_indexes(&self, limit: usize) -> Result<Vec<Tenant>> {
        self.read(Wall::Everyone, move |c, s| dreams::lost_indexes(c, s, limit)).await
    }

    // Handoffs and what models answered

    async fn put_handoff(&self, scope: &Scope, handoff: NewHandoff) -> Result<KeptHandoff> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| handoffs::put(c, s, &scope, handoff.clone()))
            .await
    }

    async fn handoff(
        &self,
        scope: &Scope,
        session: SessionNo,
        path: &[(Branch, Ordinal)],
    ) -> Result<Option<HandoffRecord>> {
        let (scope, path) = (scope.clone(), path.to_vec());
        self.look(Wall::scope(&scope), move |c, s| handoffs::on_path(c, s, &scope, session, &path))
            .await
    }

    async fn handoffs(&self, scope: &Scope, session: SessionNo) -> Result<Vec<HandoffRecord>> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| handoffs::of_session(c, s, &scope, session))
            .await
    }

    async fn edit_handoff(&self, scope: &Scope, edit: HandoffEdit) -> Result<KeptHandoff> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| handoffs::edit(c, s, &scope, edit.clone()))
            .await
    }

    async fn handoffs_lost_with(&self, scope: &Scope, turns: &[TurnId]) -> Result<u64> {
        let (scope, turns) = (scope.clone(), turns.to_vec());
        self.read(Wall::scope(&scope), move |c, s| handoffs::lost_with(c, s, &scope, &turns)).await
    }

    async fn put_usage(&self, scope: &Scope, usage: ViewUsage) -> Result<()> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| handoffs::put_usage(c, s, &scope, &usage)).await
    }

    async fn usage(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        model: &str,
    ) -> Result<Option<ViewUsage>> {
        let (scope, model) = (scope.clone(), model.to_owned());
        self.look(Wall::scope(&scope), move |c, s| {
            handoffs::usage(c, s, &scope, session, branch, &model)
        })
        .await
    }

    async fn put_answer(&self, scope: &Scope, answer: NewAnswer) -> Result<()> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| answers::put(c, s, &scope, &answer)).await
    }

    async fn answer(&self, scope: &Scope, key: &[u8; 32]) -> Result<Option<RedactedText>> {
        let (scope, key) = (scope.clone(), *key);
        self.look(Wall::scope(&scope), move |c, s| answers::get(c, s, &scope, &key)).await
    }

    async fn add_spending(&self, scope: &Scope, spent: Vec<Spending>) -> Result<()> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| answers::spend(c, s, &scope, &spent)).await
    }

    async fn spending(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        since_day: i64,
    ) -> Result<Vec<Spending>> {
        let (tenant, memory) = (tenant.clone(), memory.map(str::to_owned));
        self.read(Wall::tenant(&tenant), move |c, s| {
            answers::spent(c, s, &tenant, memory.as_deref(), since_day)
        })
        .await
    }

    async fn create_run(&self, workspace: &Workspace, run: NewRun) -> Result<RunRecord> {
        let workspace = workspace.clone();
        self.write(Wall::tenant(workspace.tenant()), move |c, s| {
            runs::create(c, s, &workspace, run.clone())
        })
        .await
    }

    async fn fork_run(&self, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| runs::fork(c, s, &tenant, fork.clone())).await
    }

    async fn run(&self, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Wall::tenant(&tenant), move |c, s| runs::get(c, s, &tenant, &id)).await
    }

    async fn step_run(&self, tenant: &Tenant, step: RunStep) -> Result<Option<RunRecord>> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| runs::step(c, s, &tenant, step.clone())).await
    }

    async fn run_events(
        &self,
        tenant: &Tenant,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunEventRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Wall::tenant(&tenant), move |c, s| runs::events(c, s, &tenant, &id, after, limit))
            .await
    }

    async fn unfinished_runs(&self, limit: usize) -> Result<Vec<(Tenant, String)>> {
        self.read(Wall::Everyone, move |c, s| runs::unfinished(c, s, limit)).await
    }

    async fn expire_runs(&self, ended_by: Millis, now: Millis, limit: usize) -> Result<u64> {
        self.write(Wall::Everyone, move |c, s| runs::expire(c, s, ended_by, now, limit)).await
    }

    async fn erase_runs(
        &self,
        tenant: &Tenant,
        before: Millis,
        now: Millis,
        dry_run: bool,
    ) -> Result<u64> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| {
            runs::erase(c, s, &tenant, before, now, dry_run)
        })
        .await
    }

    async fn purge_runs(&self, expired_by: Millis, limit: usize) -> Result<u64> {
        self.write(Wall::Everyone, move |c, s| runs::purge(c, s, expired_by, limit)).await
    }

    // Schedules

    async fn put_schedule(&self, scope: &Scope, schedule: NewSchedule) -> Result<ScheduleRecord> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| schedules::put(c, s, &scope, schedule.clone()))
            .await
    }

    async fn schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Wall::tenant(&tenant), move |c, s| schedules::get(c, s, &tenant, &id)).await
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
    ) -> Result<Vec<ScheduleRecord>> {
        let (tenant, memory) = (tenant.clone(), memory.map(str::to_owned));
        self.read(Wall::tenant(&tenant), move |c, s| schedules::list(c, s, &tenant, memory.clone()))
            .await
    }

    async fn remove_schedule(&self, tenant: &Tenant, id: &str) -> Result<bool> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Wall::tenant(&tenant), move |c, s| schedules::remove(c, s, &tenant, &id)).await
    }

    async fn pause_schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Wall::tenant(&tenant), move |c, s| schedules::pause(c, s, &tenant, &id)).await
    }

    async fn resume_schedule(
        &self,
        tenant: &Tenant,
        id: &str,
        handled_through: Millis,
        next: Option<NextTick>,
    ) -> Result<Option<ScheduleRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Wall::tenant(&tenant), move |c, s| {
            schedules::resume(c, s, &tenant, &id, handled_through, next)
        })
        .await
    }

    async fn due_schedules(&self, now: Millis, limit: usize) -> Result<Vec<ScheduleRecord>> {
        self.read(Wall::Everyone, move |c, s| schedules::due(c, s, now, limit)).await
    }

    async fn claim_ticks(&self, tenant: &Tenant, id: &str, claim: TickClaim) -> Result<Claimed> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Wall::tenant(&tenant), move |c, s| schedules::claim(c, s, &tenant, &id, &claim))
            .await
    }

    async fn beat_tick(
        &self,
        tenant: &Tenant,
        id: &str,
        at: Millis,
        holder: &str,
        now: Millis,
    ) -> Result<bool> {
        let (tenant, id, holder) = (tenant.clone(), id.to_owned(), holder.to_owned());
        self.write(Wall::tenant(&tenant), move |c, s| {
            schedules::beat(c, s, &tenant, &id, at, &holder, now)
        })
        .await
    }

    async fn end_tick(&self, tenant: &Tenant, id: &str, at: Millis, end: TickEnd) -> Result<bool> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Wall::tenant(&tenant), move |c, s| schedules::end(c, s, &tenant, &id, at, &end))
            .await
    }

    async fn take_over_tick(
        &self,
        holder: &str,
        dead_since: Millis,
        now: Millis,
    ) -> Result<Option<TakenOver>> {
        let holder = holder.to_owned();
        self.write(Wall::Everyone, move |c, s| schedules::take_over(c, s, &holder, dead_since, now))
            .await
    }

    async fn ticks(&self, tenant: &Tenant, id: &str, limit: usize) -> Result<Vec<TickRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Wall::tenant(&tenant), move |c, s| schedules::ticks(c, s, &tenant, &id, limit))
            .await
    }

    async fn purge_ticks(&self, ended_by: Millis, limit: usize) -> Result<u64> {
        self.write(Wall::Everyone, move |c, s| schedules::purge(c, s, ended_by, limit)).await
    }

    async fn trim_ticks(&self, most: u64, limit: usize) -> Result<u64> {
        self.write(Wall::Everyone, move |c, s| schedules::trim(c, s, most, limit)).await
    }

    async fn put_commitment(
        &self,
        scope: &Scope,
        commitment: NewCommitment,
    ) -> Result<CommitmentRecord> {
        let scope = scope.clone();
        self.write(Wall::scope(&scope), move |c, s| {
            commitments::put(c, s, &scope, commitment.clone())
        })
        .await
    }

    async fn commitment(&self, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Wall::tenant(&tenant), move |c, s| commitments::get(c, s, &tenant, &id)).await
    }

    async fn commitments(
        &self,
        tenant: &Tenant,
        query: &CommitmentQuery,
    ) -> Result<Vec<CommitmentRecord>> {
        let (tenant, query) = (tenant.clone(), query.clone());
        self.read(Wall::tenant(&tenant), move |c, s| {
            commitments::list(c, s, &tenant, query.clone())
        })
        .await
    }

    async fn due_commitments(&self, now: Millis, limit: usize) -> Result<Vec<CommitmentRecord>> {
        self.read(Wall::Everyone, move |c, s| commitments::due(c, s, now, limit)).await
    }

    async fn waiting_memories(
        &self,
        after: Option<&Tenant>,
        except: &[Scope],
        limit: usize,
    ) -> Result<Vec<Scope>> {
        let (after, except) = (after.cloned(), except.to_vec());
        self.read(Wall::Everyone, move |c, s| {
            commitments::waiting(c, s, after.as_ref(), &except, limit)
        })
        .await
    }

    async fn watch(&self, scope: &Scope) -> Result<Watch> {
        let scope = scope.clone();
        self.read(Wall::scope(&scope), move |c, s| commitments::watch(c, s, &scope)).await
    }

    async fn look_through(&self, scope: &Scope, look: &Look) -> Result<Vec<Fired>> {
        let (scope, look) = (scope.clone(), look.clone());
        self.write(Wall::scope(&scope), move |c, s| commitments::look_through(c, s, &scope, &look))
            .await
    }

    async fn fire_commitment(
        &self,
        tenant: &Tenant,
        id: &str,
        because: Option<&str>,
        now: Millis,
    ) -> Result<Option<Fired>> {
        let (tenant, id, because) = (tenant.clone(), id.to_owned(), because.map(str::to_owned));
        self.write(Wall::tenant(&tenant), move |c, s| {
            commitments::fire(c, s, &tenant, &id, because.as_deref(), now)
        })
        .await
    }

    async fn cancel_commitment(&self, tenant: &Tenant, id: &str, now: Millis) -> Result<bool> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Wall::tenant(&tenant), move |c, s| commitments::cancel(c, s, &tenant, &id, now))
            .await
    }

    async fn purge_commitments(&self, settled_by: Millis, limit: usize) -> Result<u64> {
        self.write(Wall::Everyone, move |c, s| commitments::purge(c, s, settled_by, limit)).await
    }

    async fn put_file(&self, workspace: &Workspace, file: NewFile) -> Result<FileRecord> {
        let workspace = workspace.clone();
        self.write(Wall::tenant(workspace.tenant()), move |c, s| {
            workspace::put(c, s, &workspace, file.clone())
        })
        .await
    }

    async fn file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        version: Option<u64>,
    ) -> Result<Option<FileRecord>> {
        let (workspace, path) = (workspace.clone(), path.clone());
        self.read(Wall::tenant(workspace.tenant()), move |c, s| {
            workspace::get(c, s, &workspace, &path, version)
        })
        .await
    }

    async fn files(&self, workspace: &Workspace, prefix: &str) -> Result<Vec<FileHead>> {
        let (workspace, prefix) = (workspace.clone(), prefix.to_owned());
        self.read(Wall::tenant(workspace.tenant()), move |c, s| {
            workspace::list(c, s, &workspace, &prefix)
        })
        .await
    }

    async fn delete_file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        expect: Expect,
        now: Millis,
    ) -> Result<bool> {
        let (workspace, path) = (workspace.clone(), path.clone());
        self.write(Wall::tenant(workspace.tenant()), move |c, s| {
            workspace::delete(c, s, &workspace, &path, expect, now)
        })
        .await
    }

    async fn events(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        after: Position,
        limit: usize,
    ) -> Result<Vec<EventRecord>> {
        let (tenant, memory) = (tenant.clone(), memory.map(str::to_owned));
        self.read(Wall::tenant(&tenant), move |c, s| {
            log::events(c, s, &tenant, memory.as_deref(), after, limit)
        })
        .await
    }

    async fn head(&self, tenant: &Tenant) -> Result<Position> {
        let tenant = tenant.clone();
        self.look(Wall::tenant(&tenant), move |c, s| log::head(c, s, &tenant)).await
    }

    async fn erasures(&self, tenant: &Tenant, after: Position, now: Millis) -> Result<Erasures> {
        let tenant = tenant.clone();
        self.read(Wall::tenant(&tenant), move |c, s| log::erasures(c, s, &tenant, after, now)).await
    }

    async fn put_api_key(&self, key: ApiKeyRecord, hash: [u8; 32], by: KeyActor) -> Result<()> {
        self.write(Wall::Everyone, move |c, s| api_keys::put(c, s, &key, &hash, &by)).await
    }

    async fn api_key(&self, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>> {
        let hash = *hash;
        self.look(Wall::Everyone, move |c, s| api_keys::by_hash(c, s, &hash)).await
    }

    async fn api_keys(&self, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>> {
        let tenant = tenant.cloned();
        self.read(Wall::around(tenant.as_ref()), move |c, s| api_keys::list(c, s, tenant.as_ref()))
            .await
    }

    async fn revoke_api_key(&self, revocation: KeyRevocation) -> Result<Option<ApiKeyRecord>> {
        self.write(Wall::Everyone, move |c, s| api_keys::revoke(c, s, &revocation)).await
    }

    async fn rotate_api_key(&self, rotation: KeyRotation) -> Result<Option<RotatedKey>> {
        self.write(Wall::Everyone, move |c, s| api_keys::rotate(c, s, &rotation)).await
    }

    async fn outcome(
        &self,
        tenant: &Tenant,
        operation: &str,
        key: &str,
        now: Millis,
    ) -> Result<Option<StoredOutcome>> {
        let (tenant, operation, key) = (tenant.clone(), operation.to_owned(), key.to_owned());
        self.look(Wall::tenant(&tenant), move |c, s| {
            log::outcome(c, s, &tenant, &operation, &key, now)
        })
        .await
    }

    async fn put_outcome(&self, tenant: &Tenant, outcome: NewOutcome, now: Millis) -> Result<()> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| {
            log::put_outcome(c, s, &tenant, &outcome, now)
        })
        .await
    }

    async fn purge_outcomes(&self, now: Millis) -> Result<u64> {
        self.write(Wall::Everyone, move |c, s| log::purge_outcomes(c, s, now)).await
    }

    async fn lease(
        &self,
        name: &str,
        holder: &str,
        until: Millis,
        now: Millis,
    ) -> Result<Option<Fence>> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        let wall = Wall::Lease(name.clone());
        let act = move |c: &Connection, s: &Shared| leases::take(c, s, &name, &holder, until, now);
        self.engine.write(wall, act).await
    }

    async fn release(&self, fence: &Fence) -> Result<()> {
        let fence = fence.clone();
        let wall = Wall::Lease(fence.name.clone());
        self.engine.write(wall, move |c, s| leases::release(c, s, &fence)).await
    }

    fn fenced(&self, fence: Fence) -> Arc<dyn Store> {
        Arc::new(Self { engine: Arc::clone(&self.engine), fence: Some(fence) })
    }

    async fn stats(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        now: Millis,
    ) -> Result<StoreStats> {
        let (tenant, memory) = (tenant.clone(), memory.map(str::to_owned));
        self.read(Wall::tenant(&tenant), move |c, s| {
            health::stats(c, s, &tenant, memory.as_deref(), now)
        })
        .await
    }

    async fn scopes(&self, tenant: &Tenant) -> Result<Vec<Scope>> {
        let tenant = tenant.clone();
        self.read(Wall::tenant(&tenant), move |c, s| health::scopes(c, s, &tenant)).await
    }

    async fn tenants(&self) -> Result<Vec<Tenant>> {
        self.read(Wall::Everyone, health::tenants).await
    }

    async fn check(&self) -> Result<Vec<String>> {
        let damage = self.engine.check().await?;
        match damage.is_empty() {
            true => self.read(Wall::Everyone, health::check).await,
            false => Ok(damage),
        }
    }

    fn set_bounds(&self, bounds: Bounds) {
        self.engine.shared().bounds.set(bounds);
    }

    async fn tenant_usage(&self, tenant: &Tenant, day: i64) -> Result<Usage> {
        let tenant = tenant.clone();
        self.look(Wall::tenant(&tenant), move |c, s| usage::usage(c, s, &tenant, day)).await
    }

    async fn all_usage(&self, day: i64) -> Result<AllUsage> {
        self.read(Wall::Everyone, move |c, s| usage::all(c, s, day)).await
    }

    async fn count_use(&self, tenant: &Tenant, day: i64, more: DayUse) -> Result<DayUse> {
        let tenant = tenant.clone();
        self.write(Wall::tenant(&tenant), move |c, s| usage::count(c, s, &tenant, day, more)).await
    }

    async fn recount_usage(&self) -> Result<u64> {
        self.write(Wall::Everyone, usage::recount).await
    }

    async fn put_note(&self, name: &str, value: &str) -> Result<()> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.write(Wall::Everyone, move |c, s| health::put_note(c, s, &name, &value)).await
    }

    async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.write(Wall::Everyone, move |c, s| health::note_once(c, s, &name, &value)).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        let name = name.to_owned();
        self.look(Wall::Everyone, move |c, s| health::note(c, s, &name)).await
    }

    async fn tidy(&self) -> Result<bool> {
        self.engine.tidy().await
    }

    async fn scrub(&self) -> Result<()> {
        self.engine.scrub().await
    }

    fn tables(&self) -> Option<&dyn Tables> {
        Some(self)
    }

    fn timings(&self) -> StoreTimings {
        self.engine.timings()
    }
}
