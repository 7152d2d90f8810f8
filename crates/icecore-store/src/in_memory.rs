//! The store as plain records in memory: the oracle that others are compared with.
//!
//! Everything that can be counted is counted when asked, and nothing is fast.
//! It keeps the whole contract but durability, and is no home for a memory.

mod api_keys;
mod append;
mod commitments;
mod derivation;
mod dreams;
mod entries;
mod erase;
mod facts;
mod handoffs;
mod leases;
mod pyramid;
mod rewrite;
mod runs;
mod schedules;
mod secrets;
mod state;
mod told;
mod usage;
mod workspace;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::dream::Checksum;
use icecore_domain::fact::FactKey;
use icecore_domain::identity::{IdentityKey, Link};
use icecore_domain::ids::{
    Branch, Ordinal, Position, Scope, SessionName, SessionNo, Tenant, TurnId,
};
use icecore_domain::redact::{RedactedText, Redactor, Secret, SecretName, TagKey};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};
use sha2::{Digest, Sha256};

use crate::store::*;
use state::{EntryState, State, TenantState};

/// A store in memory.
pub struct MemoryStore {
    seed: [u8; 32],
    state: Arc<RwLock<State>>,
    /// The lease under which it writes.
    fence: Option<Fence>,
}

impl MemoryStore {
    /// An empty store. Tenants' keys follow from `seed`, so equal seeds and equal
    /// calls give equal stores.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, state: Arc::default(), fence: None }
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there, to be changed, if the lease is still held under which it is.
    fn writing(&self) -> Result<RwLockWriteGuard<'_, State>> {
        let state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(fence) = &self.fence {
            leases::refuse_lost(&state, fence)?;
        }
        Ok(state)
    }

    fn key_of(&self, tenant: &Tenant) -> IdentityKey {
        IdentityKey::new(self.derive("", tenant))
    }

    fn derive(&self, label: &str, tenant: &Tenant) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.seed);
        hash.update(label);
        hash.update(tenant.as_str().as_bytes());
        hash.finalize().into()
    }

    fn hash_of(&self, tenant: &Tenant, name: &SessionName) -> [u8; 16] {
        self.key_of(tenant).hash_name("session", name.as_str())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn identity_key(&self, tenant: &Tenant) -> Result<IdentityKey> {
        self.writing()?.ensure_tenant(tenant);
        Ok(self.key_of(tenant))
    }

    async fn put_secret(
        &self,
        tenant: &Tenant,
        secret: Secret,
        rotate: bool,
        now: Millis,
    ) -> Result<SecretRecord> {
        secrets::put(&mut *self.writing()?, tenant, secret, rotate, now)
    }

    async fn remove_secret(&self, tenant: &Tenant, name: &SecretName, now: Millis) -> Result<bool> {
        Ok(secrets::remove(&mut *self.writing()?, tenant, name, now))
    }

    async fn secrets(&self, tenant: &Tenant) -> Result<TenantSecrets> {
        let state = self.state();
        let known = state.tenant(tenant);
        Ok(TenantSecrets {
            version: known.map_or(0, |known| known.secrets.version),
            tag_key: known
                .map_or_else(TagKey::default, |_| TagKey::new(self.derive("/tag/", tenant))),
            secrets: known.map(|known| known.secrets.opened()).unwrap_or_default(),
        })
    }

    async fn secret_records(&self, tenant: &Tenant) -> Result<Vec<SecretRecord>> {
        let state = self.state();
        Ok(state.tenant(tenant).map(|known| known.secrets.records()).unwrap_or_default())
    }

    async fn secrets_version(&self, tenant: &Tenant) -> Result<u64> {
        Ok(self.state().tenant(tenant).map_or(0, |known| known.secrets.version))
    }

    async fn append(&self, scope: &Scope, batch: AppendBatch) -> Result<Appended> {
        let hash = self.hash_of(scope.tenant(), &batch.session);
        append::append(&mut *self.writing()?, scope, hash, batch)
    }

    async fn session(&self, scope: &Scope, name: &SessionName) -> Result<Option<SessionRecord>> {
        let hash = self.hash_of(scope.tenant(), name);
        let state = self.state();
        let found = state.sessions_in(scope).find(|s| s.name_hash == hash && s.name.is_some());
        Ok(found.map(state::SessionState::record))
    }

    async fn session_by_number(
        &self,
        scope: &Scope,
        no: SessionNo,
    ) -> Result<Option<SessionRecord>> {
        Ok(self.state().session(scope, no).map(state::SessionState::record))
    }

    async fn sessions_at(&self, scope: &Scope, nos: &[SessionNo]) -> Result<Vec<SessionRecord>> {
        let state = self.state();
        let found = nos.iter().filter_map(|no| state.session(scope, *no));
        Ok(found.map(state::SessionState::record).collect())
    }

    async fn sessions(
        &self,
        scope: &Scope,
        after: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        let state = self.state();
        let listed = state
            .sessions_in(scope)
            .filter(|session| session.name.is_some() && Some(session.no) > after);
        Ok(listed.take(limit).map(state::SessionState::record).collect())
    }

    async fn recent_sessions(&self, scope: &Scope, limit: usize) -> Result<Vec<SessionRecord>> {
        let state = self.state();
        let named = state.sessions_in(scope).filter(|session| session.name.is_some());
        let mut records: Vec<SessionRecord> = named.map(state::SessionState::record).collect();
        records.sort_by_key(|record| std::cmp::Reverse((record.updated_at, record.no)));
        records.truncate(limit);
        Ok(records)
    }

    async fn turns(&self, scope: &Scope, query: &TurnQuery) -> Result<Vec<TurnRow>> {
        let state = self.state();
        let Some(session) = state.session(scope, query.session) else { return Ok(Vec::new()) };
        let mut bytes = 0;
        let wanted = session.turns.iter().map(|turn| &turn.row).filter(|row| {
            row.id.seq > query.after
                && row.id.seq <= query.through
                && query.branch.is_none_or(|branch| row.branch == branch)
                && query.as_of.is_none_or(|position| row.position <= position)
        });
        let mut rows = some_of(wanted.cloned().collect(), query.newest, query.limit);
        if query.newest {
            rows.reverse();
        }
        let full = rows.iter().position(|row| query.is_full(&mut bytes, row));
        rows.truncate(full.unwrap_or(rows.len()));
        if query.newest {
            rows.reverse();
        }
        Ok(rows)
    }

    async fn turns_by_lookup(
        &self,
        scope: &Scope,
        session: SessionNo,
        lookup: i64,
    ) -> Result<Vec<TurnRow>> {
        let state = self.state();
        let Some(session) = state.session(scope, session) else { return Ok(Vec::new()) };
        let rows = session.turns.iter().map(|turn| &turn.row);
        Ok(rows.filter(|row| row.identity.lookup == lookup).cloned().collect())
    }

    async fn scope_head(&self, scope: &Scope) -> Result<ScopeHead> {
        Ok(facts::scope_head(&self.state(), scope))
    }

    async fn turns_after(
        &self,
        scope: &Scope,
        after: Position,
        limit: usize,
    ) -> Result<Vec<TurnRow>> {
        let state = self.state();
        let turns = state.sessions_in(scope).flat_map(|session| &session.turns);
        let rows = turns.map(|turn| &turn.row).filter(|row| row.position > after);
        let mut rows: Vec<TurnRow> = rows.cloned().collect();
        rows.sort_by_key(|row| row.position);
        rows.truncate(limit);
        Ok(rows)
    }

    async fn turns_at(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
        let state = self.state();
        Ok(ids.iter().filter_map(|id| state.turn(scope, *id).cloned()).collect())
    }

    async fn whole_turns_at(
        &self,
        scope: &Scope,
        ids: &[TurnId],
    ) -> Result<(Vec<TurnRow>, Vec<MicroBody>)> {
        let turns = self.turns_at(scope, ids).await?;
        let places: Vec<_> =
            turns.iter().filter(|row| row.lacks_body()).map(TurnRow::place).collect();
        let bodies = self.bodies_at(scope, &places).await?;
        Ok((turns, bodies))
    }

    async fn linked(
        &self,
        scope: &Scope,
        links: &[Link],
        session: Option<SessionNo>,
    ) -> Result<Vec<LinkedTurn>> {
        let state = self.state();
        let mut sessions: Vec<&state::SessionState> = state.sessions_in(scope).collect();
        sessions.retain(|one| session.is_none_or(|session| one.no == session));
        sessions.sort_by_key(|one| std::cmp::Reverse(one.no));
        let of = |link: &Link| {
            let found = sessions.iter().filter_map(|session| session.linked(*link));
            found.take(MOST_LINKED).collect::<Vec<_>>()
        };
        Ok(links.iter().flat_map(of).collect())
    }

    async fn places(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnPlace>> {
        let state = self.state();
        let rows = ids.iter().filter_map(|id| state.turn(scope, *id));
        Ok(rows.map(state::place_of).collect())
    }

    async fn put_recalled(&self, scope: &Scope, recalled: NewRecalled) -> Result<bool> {
        let mut state = self.writing()?;
        secrets::refuse_changed(&state, scope.tenant(), recalled.secrets_seen)?;
        let epoch = state.scope(scope).map_or(0, |known| known.epoch);
        let Some(session) = state.session_mut(scope, recalled.session) else { return Ok(false) };
        let turn = session.turns.iter_mut().find(|turn| turn.link == Some(recalled.link));
        let is_new = |turn: &&mut state::StoredTurn| {
            turn.recalled.as_ref().is_none_or(|(of, _)| *of != recalled.epoch)
        };
        match turn.filter(is_new) {
            Some(turn) if epoch == recalled.epoch => {
                turn.recalled = Some((recalled.epoch, recalled.text));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn recalled(
        &self,
        scope: &Scope,
        session: SessionNo,
        links: &[Link],
    ) -> Result<Vec<(Link, RedactedText)>> {
        let state = self.state();
        let epoch = state.scope(scope).map_or(0, |known| known.epoch);
        let Some(session) = state.session(scope, session) else { return Ok(Vec::new()) };
        let of = |link: &Link| {
            let turn = session.turns.iter().find(|turn| turn.link == Some(*link))?;
            let (_, text) = turn.recalled.as_ref().filter(|(of, _)| *of == epoch)?;
            Some((*link, text.clone()))
        };
        Ok(links.iter().filter_map(of).collect())
    }

    async fn chunks(&self, scope: &Scope, query: &ChunkQuery) -> Result<Vec<ChunkRecord>> {
        let state = self.state();
        let Some(session) = state.session(scope, query.session) else { return Ok(Vec::new()) };
        let wanted = session.chunks(query.branch, query.level);
        let wanted = wanted
            .filter(|chunk| chunk.id.first >= query.from && chunk.id.last <= query.through)
            .map(|chunk| session.chunk_record(chunk));
        Ok(some_of(wanted.collect(), query.newest, query.limit))
    }

    async fn bodies(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        first: Ordinal,
        last: Ordinal,
    ) -> Result<Vec<MicroBody>> {
        let state = self.state();
        let Some(session) = state.session(scope, session) else { return Ok(Vec::new()) };
        let overlaps = |id: &ChunkId| id.first <= last && id.last >= first;
        Ok(pyramid::bodies(scope, session, branch, overlaps))
    }

    async fn bodies_at(
        &self,
        scope: &Scope,
        places: &[(SessionNo, Branch, Ordinal)],
    ) -> Result<Vec<MicroBody>> {
        let state = self.state();
        let mut branches: Vec<_> = places.iter().map(|(session, of, _)| (*session, *of)).collect();
        branches.sort_unstable();
        branches.dedup();
        let mut found = Vec::new();
        for (no, branch) in branches {
            let Some(session) = state.session(scope, no) else { continue };
            let holds = |id: &ChunkId| {
                let holds = |at: &Ordinal| (id.first..=id.last).contains(at);
                places.iter().any(|(of, on, at)| (*of, *on) == (no, branch) && holds(at))
            };
            found.extend(pyramid::bodies(scope, session, branch, holds));
        }
        Ok(found)
    }

    async fn chunks_at(
        &self,
        scope: &Scope,
        ids: &[(SessionNo, Branch, Level, Ordinal)],
    ) -> Result<Vec<ChunkRecord>> {
        let state = self.state();
        let find = |(session, branch, level, first): &(SessionNo, Branch, Level, Ordinal)| {
            let session = state.session(scope, *session)?;
            let chunk = session.chunks(*branch, *level).find(|chunk| chunk.id.first == *first)?;
            Some(session.chunk_record(chunk))
        };
        Ok(ids.iter().filter_map(find).collect())
    }

    async fn summaries_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, ChunkRecord)>> {
        let state = self.state();
        let mut found = Vec::new();
        for session in state.sessions_in(scope) {
            for chunk in session.branches.values().flat_map(|branch| &branch.chunks) {
                let number = chunk.summary.as_ref().map_or(0, |(number, _)| *number);
                if number > after {
                    found.push((number, session.chunk_record(chunk)));
                }
            }
        }
        found.sort_by_key(|(number, _)| *number);
        found.truncate(limit);
        Ok(found)
    }

    async fn unsettled(&self, limit: usize) -> Result<Vec<DueBranch>> {
        let mut due = pyramid::unsettled(&self.state());
        due.truncate(limit);
        Ok(due)
    }

    async fn unsettled_beside(&self, tenants: &[Tenant], limit: usize) -> Result<Vec<DueBranch>> {
        let mut due = pyramid::unsettled(&self.state());
        due.retain(|branch| !tenants.contains(branch.scope.tenant()));
        let first = due.first().map(|branch| branch.scope.tenant().clone());
        due.retain(|branch| Some(branch.scope.tenant()) == first.as_ref());
        due.truncate(limit);
        Ok(due)
    }

    async fn unsettled_count(&self, tenant: Option<&Tenant>, memory: Option<&str>) -> Result<u64> {
        let due = pyramid::unsettled(&self.state());
        let counted = due.iter().filter(|due| {
            tenant.is_none_or(|tenant| due.scope.tenant() == tenant)
                && memory.is_none_or(|memory| due.scope.memory() == memory)
        });
        Ok(counted.count() as u64)
    }

    async fn branch(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
    ) -> Result<Option<BranchRecord>> {
        let state = self.state();
        let found = state.session(scope, session).and_then(|s| s.branches.get(&branch));
        Ok(found.map(|found| found.record.clone()))
    }

    async fn settle(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        seen: u64,
    ) -> Result<()> {
        let mut state = self.writing()?;
        let found = state.branch_mut(scope, session, branch);
        if let Some(found) = found.filter(|found| found.record.version == seen) {
            found.unsettled = false;
        }
        Ok(())
    }

    async fn unsettle_all(&self) -> Result<()> {
        let mut state = self.writing()?;
        state.branches_mut().for_each(|branch| branch.unsettled = true);
        Ok(())
    }

    async fn demote_to_warm(&self, scope: &Scope, demotion: WarmDemotion) -> Result<bool> {
        let mut state = self.writing()?;
        let session = state.session_mut(scope, demotion.session);
        Ok(session.is_some_and(|session| pyramid::demote_to_warm(session, demotion)))
    }

    async fn demote_to_cold(&self, scope: &Scope, demotion: ColdDemotion) -> Result<bool> {
        Ok(pyramid::demote_to_cold(&mut *self.writing()?, scope, demotion))
    }

    async fn put_summaries(&self, scope: &Scope, summaries: SummaryBatch) -> Result<()> {
        let mut state = self.writing()?;
        if state.branch_mut(scope, summaries.session, summaries.branch).is_some() {
            secrets::refuse_changed(&state, scope.tenant(), summaries.secrets_seen)?;
        }
        pyramid::put_summaries(&mut state, scope, summaries);
        Ok(())
    }

    async fn drop_derived(&self, scope: &Scope) -> Result<u64> {
        Ok(pyramid::drop_derived(&mut *self.writing()?, scope))
    }

    async fn put_facts(&self, scope: &Scope, batch: FactBatch) -> Result<bool> {
        let mut state = self.writing()?;
        if state.scope(scope).is_some() {
            secrets::refuse_changed(&state, scope.tenant(), batch.secrets_seen)?;
        }
        Ok(facts::put(&mut state, scope, batch))
    }

    async fn facts_through(&self, scope: &Scope) -> Result<Position> {
        Ok(self.state().scope(scope).map(|scope| scope.facts_through).unwrap_or_default())
    }

    async fn facts(&self, scope: &Scope) -> Result<Vec<FactRecord>> {
        Ok(self.state().facts(scope).to_vec())
    }

    async fn facts_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<FactRecord>> {
        let state = self.state();
        let found = state.facts(scope).iter().filter(|fact| fact.number > after);
        Ok(found.take(limit).cloned().collect())
    }

    async fn facts_at(&self, scope: &Scope, numbers: &[u64]) -> Result<Vec<FactRecord>> {
        let state = self.state();
        let find = |number: &u64| state.facts(scope).iter().find(|fact| fact.number == *number);
        Ok(numbers.iter().filter_map(find).cloned().collect())
    }

    async fn facts_of(&self, scope: &Scope, key: FactKey) -> Result<Vec<FactRecord>> {
        let state = self.state();
        let found = state.facts(scope).iter().filter(|fact| fact.fact.key() == key);
        Ok(found.cloned().collect())
    }

    async fn put_verdict(&self, scope: &Scope, verdict: NewVerdict) -> Result<Position> {
        facts::put_verdict(&mut *self.writing()?, scope, verdict)
    }

    async fn verdicts(&self, scope: &Scope) -> Result<Vec<VerdictRecord>> {
        let state = self.state();
        Ok(state.scope(scope).map(|scope| scope.verdicts.clone()).unwrap_or_default())
    }

    async fn erase_facts(
        &self,
        scope: &Scope,
        selector: &Selector,
        quoting: &[TurnId],
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        Ok(facts::erase(&mut *self.writing()?, scope, selector, quoting, dry_run, now))
    }

    async fn packs_older_than(&self, before: Millis, limit: usize) -> Result<Vec<PackRecord>> {
        let mut packs = pyramid::packs(&self.state(), None);
        packs.retain(|pack| pack.created_at < before);
        packs.sort_by_key(|pack| pack.created_at);
        packs.truncate(limit);
        Ok(packs)
    }

    async fn packs(&self, tenant: Option<&Tenant>) -> Result<Vec<PackRecord>> {
        Ok(pyramid::packs(&self.state(), tenant))
    }

    async fn expire_pack(&self, pack: &PackRecord, now: Millis) -> Result<()> {
        pyramid::expire_pack(&mut *self.writing()?, pack, now);
        Ok(())
    }

    async fn select(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Selected>> {
        let hash = match selector {
            Selector::Session(name) => self.hash_of(tenant, name),
            _ => [0; 16],
        };
        Ok(erase::select(&self.state(), tenant, memory, selector, hash))
    }

    async fn erase(&self, scope: &Scope, erasure: Erasure) -> Result<bool> {
        Ok(erase::erase(&mut *self.writing()?, scope, erasure))
    }

    async fn rewrite(&self, scope: &Scope, rewrite: Rewrite) -> Result<bool> {
        Ok(rewrite::rewrite(&mut *self.writing()?, scope, &rewrite))
    }

    async fn rewrite_told(
        &self,
        tenant: &Tenant,
        redactor: Arc<Redactor>,
        now: Millis,
    ) -> Result<Told> {
        let key = self.key_of(tenant);
        let mut state = self.writing()?;
        let known = state.tenant_mut(tenant);
        let told = known.map(|known| told::rewrite(known, &key, &redactor, now));
        let mut told = told.unwrap_or_default();
        api_keys::retell(&mut state.api_keys, tenant, &redactor, &mut told);
        Ok(told)
    }

    async fn log(
        &self,
        scope: &Scope,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        let mut state = self.writing()?;
        let tenant = state.ensure_scope(scope);
        Ok(tenant.record(Some(scope.memory()), kind.as_str(), payload, now))
    }

    async fn log_of_tenant(
        &self,
        tenant: &Tenant,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        let mut state = self.writing()?;
        Ok(state.ensure_tenant(tenant).record(None, kind.as_str(), payload, now))
    }

    async fn put_entry(&self, scope: &Scope, entry: NewEntry) -> Result<EntryRecord> {
        entries::put(&mut *self.writing()?, &self.key_of(scope.tenant()), scope, entry)
    }

    async fn entry(
        &self,
        scope: &Scope,
        id: &str,
        at: Option<Position>,
        now: Millis,
    ) -> Result<Option<EntryRecord>> {
        let state = self.state();
        entries::refuse_purged(&state, scope, at)?;
        let found = state.entries(scope).find(|entry| entry.record.id == id);
        Ok(match at {
            None => found.filter(|entry| entry.is_kept(now)).map(|entry| entry.record_now(now)),
            at => {
                let filter = EntryFilter { at, ..EntryFilter::default() };
                let found = found.filter(|entry| entry.in_force(&filter, now));
                found.map(EntryState::in_force_record)
            }
        })
    }

    async fn entries(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        let mut found = entries::newest(&self.state(), scope, filter, now)?;
        found.truncate(limit);
        Ok(found)
    }

    async fn entry_places(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<Position>> {
        let found = entries::newest(&self.state(), scope, filter, now)?;
        Ok(found.into_iter().map(|entry| entry.began).collect())
    }

    async fn entries_after(
        &self,
        scope: &Scope,
        after: Position,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        let state = self.state();
        let found =
            state.entries(scope).filter(|entry| entry.is_kept(now) && entry.record.began > after);
        Ok(found.take(limit).map(|entry| entry.record_now(now)).collect())
    }

    async fn entries_at(
        &self,
        scope: &Scope,
        began: &[Position],
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let found = entries::newest(&self.state(), scope, filter, now)?;
        let find = |began: &Position| found.iter().find(|entry| entry.began == *began).cloned();
        Ok(began.iter().filter_map(find).collect())
    }

    async fn end_entry(&self, scope: &Scope, id: &str, now: Millis) -> Result<bool> {
        Ok(entries::end(&mut *self.writing()?, scope, id, now))
    }

    async fn due_entries(&self, now: Millis, ended_by: Millis, limit: usize) -> Result<Vec<Scope>> {
        Ok(entries::due(&self.state(), now, ended_by, limit))
    }

    async fn purge_entries(
        &self,
        scope: &Scope,
        now: Millis,
        ended_by: Millis,
        limit: usize,
    ) -> Result<u64> {
        Ok(entries::purge(&mut *self.writing()?, scope, now, ended_by, limit))
    }

    async fn erase_entries(
        &self,
        scope: &Scope,
        selector: &Selector,
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        Ok(erase::erase_entries(&mut *self.writing()?, scope, selector, dry_run, now))
    }

    async fn derive_entries(
        &self,
        scope: &Scope,
        derivation: Derivation,
    ) -> Result<Option<Derived>> {
        derivation::derive(&mut *self.writing()?, &self.key_of(scope.tenant()), scope, derivation)
    }

    async fn sources_of(&self, scope: &Scope, id: &str, now: Millis) -> Result<Vec<EntryRecord>> {
        derivation::sources(&self.state(), scope, id, now)
    }

    async fn crowded_memories(
        &self,
        count: u64,
        quiet_since: Millis,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<Scope>> {
        derivation::crowded(&self.state(), count, quiet_since, now, limit)
    }

    async fn oldest_places(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        derivation::oldest_places(&self.state(), scope, after, now, limit)
    }

    // Dreams

    async fn lease_dream(&self, scope: &Scope, lease: Lease, now: Millis) -> Result<bool> {
        Ok(dreams::lease(&mut *self.writing()?, scope, lease, now))
    }

    async fn release_dream(&self, scope: &Scope, holder: &str) -> Result<()> {
        dreams::release(&mut *self.writing()?, scope, holder);
        Ok(())
    }

    async fn undreamt_entries(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        Ok(dreams::undreamt_entries(&self.state(), scope, after, now, limit))
    }

    async fn undreamt_branches(
        &self,
        scope: &Scope,
        after: Option<(SessionNo, Branch)>,
        limit: usize,
    ) -> Result<Vec<Undreamt>> {
        Ok(dreams::undreamt_branches(&self.state(), scope, after, limit))
    }

    async fn keep_dream(&self, scope: &Scope, dream: NewDream) -> Result<Kept> {
        dreams::keep(&mut *self.writing()?, &self.key_of(scope.tenant()), scope, dream)
    }

    async fn undo_dream(
        &self,
        scope: &Scope,
        run: &str,
        index: Option<(Workspace, NewFile)>,
        now: Millis,
    ) -> Result<Option<DreamRecord>> {
        dreams::undo(&mut *self.writing()?, scope, run, index, now)
    }

    async fn dream(&self, tenant: &Tenant, run: &str) -> Result<Option<DreamRecord>> {
        Ok(dreams::get(&self.state(), tenant, run))
    }

    async fn dreams(&self, tenant: &Tenant, query: &DreamQuery) -> Result<Vec<DreamRecord>> {
        Ok(dreams::list(&self.state(), tenant, query))
    }

    async fn dreamt_tokens(&self, tenant: &Tenant, since: Millis) -> Result<u64> {
        Ok(dreams::tokens(&self.state(), tenant, since))
    }

    async fn archives(&self, tenant: Option<&Tenant>) -> Result<Vec<ArchiveRecord>> {
        let mut found = dreams::archives(&self.state(), tenant);
        found.sort_by_key(|archive| std::cmp::Reverse(archive.created_at));
        Ok(found)
    }

    async fn archives_at(&self, tenant: &Tenant, checksum: Checksum) -> Result<Vec<ArchiveRecord>> {
        let mut found = dreams::archives(&self.state(), Some(tenant));
        found.retain(|archive| archive.checksum == checksum);
        Ok(found)
    }

    async fn expire_archive(&self, scope: &Scope, checksum: Checksum, now: Millis) -> Result<bool> {
        Ok(dreams::expire(&mut *self.writing()?, scope, checksum, now))
    }

    async fn archives_lost_with(
        &self,
        scope: &Scope,
        selector: &Selector,
        turns: &[TurnId],
        now: Millis,
    ) -> Result<u64> {
        Ok(dreams::count(&self.state(), scope, selector, turns, now))
    }

    async fn lost_dreams(&self, limit: usize) -> Result<Vec<DreamDue>> {
        Ok(dreams::lost(&self.state(), limit))
    }

    async fn settle_lost_dreams(&self, due: &DreamDue) -> Result<()> {
        dreams::settle_lost(&mut *self.writing()?, due);
        Ok(())
    }

    async fn note_lost_dreams(&self, scope: &Scope, budget: u64) -> Result<()> {
        if let Some(known) = self.writing()?.scope_mut(scope) {
            known.dreams_lost = known.dreams_lost.max(Some(budget));
        }
        Ok(())
    }

    async fn dream_losses(&self, tenant: &Tenant) -> Result<u64> {
        Ok(self.state().tenant(tenant).map_or(0, |tenant| tenant.dream_losses))
    }

    async fn settle_lost_index(&self, tenant: &Tenant, losses: u64) -> Result<()> {
        if let Some(tenant) = self.writing()?.tenant_mut(tenant) {
            tenant.index_lost &= tenant.dream_losses != losses;
        }
        Ok(())
    }

    async fn lost_indexes(&self, limit: usize) -> Result<Vec<Tenant>> {
        Ok(dreams::lost_indexes(&self.state(), limit))
    }

    // Handoffs and what models answered

    async fn put_handoff(&self, scope: &Scope, handoff: NewHandoff) -> Result<KeptHandoff> {
        handoffs::put(&mut *self.writing()?, &self.key_of(scope.tenant()), scope, handoff)
    }

    async fn handoff(
        &self,
        scope: &Scope,
        session: SessionNo,
        path: &[(Branch, Ordinal)],
    ) -> Result<Option<HandoffRecord>> {
        Ok(handoffs::on_path(&self.state(), scope, session, path))
    }

    async fn handoffs(&self, scope: &Scope, session: SessionNo) -> Result<Vec<HandoffRecord>> {
        Ok(handoffs::of_session(&self.state(), scope, session))
    }

    async fn edit_handoff(&self, scope: &Scope, edit: HandoffEdit) -> Result<KeptHandoff> {
        handoffs::edit(&mut *self.writing()?, scope, edit)
    }

    async fn handoffs_lost_with(&self, scope: &Scope, turns: &[TurnId]) -> Result<u64> {
        Ok(handoffs::lost_with(&self.state(), scope, turns))
    }

    async fn put_usage(&self, scope: &Scope, usage: ViewUsage) -> Result<()> {
        handoffs::put_usage(&mut *self.writing()?, scope, usage);
        Ok(())
    }

    async fn usage(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        model: &str,
    ) -> Result<Option<ViewUsage>> {
        Ok(handoffs::usage(&self.state(), scope, session, branch, model))
    }

    async fn put_answer(&self, scope: &Scope, answer: NewAnswer) -> Result<()> {
        handoffs::put_answer(&mut *self.writing()?, scope, answer)
    }

    async fn answer(&self, scope: &Scope, key: &[u8; 32]) -> Result<Option<RedactedText>> {
        Ok(handoffs::answer(&self.state(), scope, key))
    }

    async fn add_spending(&self, scope: &Scope, spent: Vec<Spending>) -> Result<()> {
        handoffs::spend(&mut *self.writing()?, scope, spent);
        Ok(())
    }

    async fn spending(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        since_day: i64,
    ) -> Result<Vec<Spending>> {
        Ok(handoffs::spent(&self.state(), tenant, memory, since_day))
    }

    async fn create_run(&self, workspace: &Workspace, run: NewRun) -> Result<RunRecord> {
        runs::create(&mut *self.writing()?, workspace, run)
    }

    async fn fork_run(&self, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>> {
        runs::fork(&mut *self.writing()?, tenant, fork)
    }

    async fn run(&self, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>> {
        runs::get(&self.state(), tenant, id)
    }

    async fn step_run(&self, tenant: &Tenant, step: RunStep) -> Result<Option<RunRecord>> {
        runs::step(&mut *self.writing()?, &self.key_of(tenant), tenant, step)
    }

    async fn run_events(
        &self,
        tenant: &Tenant,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunEventRecord>> {
        runs::events(&self.state(), tenant, id, after, limit)
    }

    async fn unfinished_runs(&self, limit: usize) -> Result<Vec<(Tenant, String)>> {
        runs::unfinished(&self.state(), limit)
    }

    async fn expire_runs(&self, ended_by: Millis, now: Millis, limit: usize) -> Result<u64> {
        runs::expire(&mut *self.writing()?, ended_by, now, limit)
    }

    async fn erase_runs(
        &self,
        tenant: &Tenant,
        before: Millis,
        now: Millis,
        dry_run: bool,
    ) -> Result<u64> {
        runs::erase(&mut *self.writing()?, tenant, before, now, dry_run)
    }

    async fn purge_runs(&self, expired_by: Millis, limit: usize) -> Result<u64> {
        runs::purge(&mut *self.writing()?, expired_by, limit)
    }

    // Schedules

    async fn put_schedule(&self, scope: &Scope, schedule: NewSchedule) -> Result<ScheduleRecord> {
        schedules::put(&mut *self.writing()?, scope, schedule)
    }

    async fn schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        Ok(schedules::get(&self.state(), tenant, id))
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
    ) -> Result<Vec<ScheduleRecord>> {
        Ok(schedules::list(&self.state(), tenant, memory))
    }

    async fn remove_schedule(&self, tenant: &Tenant, id: &str) -> Result<bool> {
        Ok(schedules::remove(&mut *self.writing()?, tenant, id))
    }

    async fn pause_schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        Ok(schedules::pause(&mut *self.writing()?, tenant, id))
    }

    async fn resume_schedule(
        &self,
        tenant: &Tenant,
        id: &str,
        handled_through: Millis,
        next: Option<NextTick>,
    ) -> Result<Option<ScheduleRecord>> {
        Ok(schedules::resume(&mut *self.writing()?, tenant, id, handled_through, next))
    }

    async fn due_schedules(&self, now: Millis, limit: usize) -> Result<Vec<ScheduleRecord>> {
        Ok(schedules::due(&self.state(), now, limit))
    }

    async fn claim_ticks(&self, tenant: &Tenant, id: &str, claim: TickClaim) -> Result<Claimed> {
        Ok(schedules::claim(&mut *self.writing()?, tenant, id, &claim))
    }

    async fn beat_tick(
        &self,
        tenant: &Tenant,
        id: &str,
        at: Millis,
        holder: &str,
        now: Millis,
    ) -> Result<bool> {
        Ok(schedules::beat(&mut *self.writing()?, tenant, id, at, holder, now))
    }

    async fn end_tick(&self, tenant: &Tenant, id: &str, at: Millis, end: TickEnd) -> Result<bool> {
        Ok(schedules::end(&mut *self.writing()?, tenant, id, at, &end))
    }

    async fn take_over_tick(
        &self,
        holder: &str,
        dead_since: Millis,
        now: Millis,
    ) -> Result<Option<TakenOver>> {
        Ok(schedules::take_over(&mut *self.writing()?, holder, dead_since, now))
    }

    async fn ticks(&self, tenant: &Tenant, id: &str, limit: usize) -> Result<Vec<TickRecord>> {
        Ok(schedules::ticks(&self.state(), tenant, id, limit))
    }

    async fn purge_ticks(&self, ended_by: Millis, limit: usize) -> Result<u64> {
        Ok(schedules::purge(&mut *self.writing()?, ended_by, limit))
    }

    async fn trim_ticks(&self, most: u64, limit: usize) -> Result<u64> {
        Ok(schedules::trim(&mut *self.writing()?, most, limit))
    }

    async fn put_commitment(
        &self,
        scope: &Scope,
        commitment: NewCommitment,
    ) -> Result<CommitmentRecord> {
        commitments::put(&mut *self.writing()?, &self.key_of(scope.tenant()), scope, commitment)
    }

    async fn commitment(&self, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
        commitments::get(&self.state(), tenant, id)
    }

    async fn commitments(
        &self,
        tenant: &Tenant,
        query: &CommitmentQuery,
    ) -> Result<Vec<CommitmentRecord>> {
        commitments::list(&self.state(), tenant, query)
    }

    async fn due_commitments(&self, now: Millis, limit: usize) -> Result<Vec<CommitmentRecord>> {
        commitments::due(&self.state(), now, limit)
    }

    async fn waiting_memories(
        &self,
        after: Option<&Tenant>,
        except: &[Scope],
        limit: usize,
    ) -> Result<Vec<Scope>> {
        commitments::waiting(&self.state(), after, except, limit)
    }

    async fn watch(&self, scope: &Scope) -> Result<Watch> {
        commitments::watch(&self.state(), scope)
    }

    async fn look_through(&self, scope: &Scope, look: &Look) -> Result<Vec<Fired>> {
        commitments::look_through(&mut *self.writing()?, scope, look)
    }

    async fn fire_commitment(
        &self,
        tenant: &Tenant,
        id: &str,
        because: Option<&str>,
        now: Millis,
    ) -> Result<Option<Fired>> {
        commitments::fire(&mut *self.writing()?, tenant, id, because, now)
    }

    async fn cancel_commitment(&self, tenant: &Tenant, id: &str, now: Millis) -> Result<bool> {
        commitments::cancel(&mut *self.writing()?, tenant, id, now)
    }

    async fn purge_commitments(&self, settled_by: Millis, limit: usize) -> Result<u64> {
        Ok(commitments::purge(&mut *self.writing()?, settled_by, limit))
    }

    async fn put_file(&self, workspace: &Workspace, file: NewFile) -> Result<FileRecord> {
        workspace::put(&mut *self.writing()?, workspace, file)
    }

    async fn file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        version: Option<u64>,
    ) -> Result<Option<FileRecord>> {
        Ok(workspace::get(&self.state(), workspace, path, version))
    }

    async fn files(&self, workspace: &Workspace, prefix: &str) -> Result<Vec<FileHead>> {
        Ok(workspace::list(&self.state(), workspace, prefix))
    }

    async fn delete_file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        expect: Expect,
        now: Millis,
    ) -> Result<bool> {
        workspace::delete(&mut *self.writing()?, workspace, path, expect, now)
    }

    async fn events(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        after: Position,
        limit: usize,
    ) -> Result<Vec<EventRecord>> {
        let state = self.state();
        let Some(tenant) = state.tenant(tenant) else { return Ok(Vec::new()) };
        let mut events = tenant.events(memory);
        events.retain(|event| event.position > after);
        events.truncate(limit);
        Ok(events)
    }

    async fn head(&self, tenant: &Tenant) -> Result<Position> {
        Ok(self.state().tenant(tenant).map_or(Position(0), |tenant| tenant.position))
    }

    async fn erasures(&self, tenant: &Tenant, after: Position, now: Millis) -> Result<Erasures> {
        let state = self.state();
        let Some(tenant) = state.tenant(tenant) else { return Ok(Erasures::default()) };
        let since = tenant.log.iter().map(|record| &record.event);
        let ended = since.filter(|e| e.position > after && ENDING.contains(&e.kind.as_str()));
        let is_over =
            |entry: &&EntryState| entry.record.expires_at.is_some_and(|expires| expires <= now);
        Ok(Erasures {
            epoch: tenant.scopes.iter().map(|scope| scope.epoch).sum(),
            ended: ended.count() as u64,
            expired: tenant.entries.iter().filter(is_over).count() as u64,
        })
    }

    async fn put_api_key(&self, key: ApiKeyRecord, hash: [u8; 32], by: KeyActor) -> Result<()> {
        api_keys::put(&mut *self.writing()?, key, hash, &by)
    }

    async fn api_key(&self, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>> {
        Ok(self.state().api_keys.get(hash).cloned())
    }

    async fn api_keys(&self, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>> {
        Ok(api_keys::list(&self.state().api_keys, tenant))
    }

    async fn revoke_api_key(&self, revocation: KeyRevocation) -> Result<Option<ApiKeyRecord>> {
        api_keys::revoke(&mut *self.writing()?, &revocation)
    }

    async fn rotate_api_key(&self, rotation: KeyRotation) -> Result<Option<RotatedKey>> {
        api_keys::rotate(&mut *self.writing()?, &rotation)
    }

    async fn outcome(
        &self,
        tenant: &Tenant,
        operation: &str,
        key: &str,
        now: Millis,
    ) -> Result<Option<StoredOutcome>> {
        let state = self.state();
        let found = state.tenant(tenant).and_then(|tenant| tenant.outcome(operation, key, now));
        Ok(found.cloned())
    }

    async fn put_outcome(&self, tenant: &Tenant, outcome: NewOutcome, now: Millis) -> Result<()> {
        self.writing()?.ensure_tenant(tenant).put_outcome(outcome, now);
        Ok(())
    }

    async fn purge_outcomes(&self, now: Millis) -> Result<u64> {
        let mut state = self.writing()?;
        let purged = state.tenants.iter_mut().map(|tenant| {
            let before = tenant.outcomes.len();
            tenant.outcomes.retain(|_, (_, at)| at.0 > now.0 - OUTCOME_KEPT_MILLIS);
            (before - tenant.outcomes.len()) as u64
        });
        Ok(purged.sum())
    }

    async fn lease(
        &self,
        name: &str,
        holder: &str,
        until: Millis,
        now: Millis,
    ) -> Result<Option<Fence>> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        Ok(leases::take(&mut state, name, holder, until, now))
    }

    async fn release(&self, fence: &Fence) -> Result<()> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        leases::release(&mut state, fence);
        Ok(())
    }

    fn fenced(&self, fence: Fence) -> Arc<dyn Store> {
        Arc::new(Self { seed: self.seed, state: Arc::clone(&self.state), fence: Some(fence) })
    }

    async fn stats(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        now: Millis,
    ) -> Result<StoreStats> {
        let state = self.state();
        Ok(state.tenant(tenant).map(|tenant| tenant.stats(memory, now)).unwrap_or_default())
    }

    async fn scopes(&self, tenant: &Tenant) -> Result<Vec<Scope>> {
        let state = self.state();
        let Some(tenant) = state.tenant(tenant) else { return Ok(Vec::new()) };
        let mut scopes: Vec<Scope> =
            tenant.scopes.iter().map(|scope| tenant.scope(&scope.memory)).collect();
        scopes.sort_by(|a, b| a.memory().cmp(b.memory()));
        Ok(scopes)
    }

    async fn tenants(&self) -> Result<Vec<Tenant>> {
        let mut tenants: Vec<Tenant> =
            self.state().tenants.iter().map(|t| t.name.clone()).collect();
        tenants.sort();
        Ok(tenants)
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(self.state().tenants.iter().flat_map(TenantState::check).collect())
    }

    fn set_bounds(&self, bounds: Bounds) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).bounds = bounds;
    }

    async fn tenant_usage(&self, tenant: &Tenant, day: i64) -> Result<Usage> {
        Ok(self.state().tenant(tenant).map(|known| known.usage(day)).unwrap_or_default())
    }

    async fn all_usage(&self, day: i64) -> Result<AllUsage> {
        let state = self.state();
        let mut all = AllUsage { tenants: state.tenants.len() as u64, ..AllUsage::default() };
        for one in state.tenants.iter().map(|tenant| tenant.usage(day)) {
            all.sum.turns += one.turns;
            all.sum.bytes += one.bytes;
            all.sum.day.add(one.day);
        }
        Ok(all)
    }

    async fn count_use(&self, tenant: &Tenant, day: i64, more: DayUse) -> Result<DayUse> {
        Ok(self.writing()?.ensure_tenant(tenant).count_day(day, more))
    }

    async fn recount_usage(&self) -> Result<u64> {
        Ok(0)
    }

    async fn put_note(&self, name: &str, value: &str) -> Result<()> {
        self.writing()?.notes.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        let mut state = self.writing()?;
        Ok(state.notes.entry(name.to_owned()).or_insert_with(|| value.to_owned()).clone())
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        Ok(self.state().notes.get(name).cloned())
    }

    async fn tidy(&self) -> Result<bool> {
        Ok(true)
    }

    async fn scrub(&self) -> Result<()> {
        Ok(())
    }
}

/// The first or the last `limit` of what is there, in order.
fn some_of<T>(mut all: Vec<T>, newest: bool, limit: usize) -> Vec<T> {
    if newest {
        all.drain(..all.len().saturating_sub(limit));
    }
    all.truncate(limit);
    all
}
