//! The records, and what can be read off them.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::identity::Link;
use icecore_domain::ids::{
    Branch, Ordinal, Position, Principal, Scope, Seq, SessionName, SessionNo, Tenant, TurnId,
};
use icecore_domain::redact::{Hidden, RedactedSummary, RedactedText};
use icecore_domain::time::Millis;
use icecore_domain::turn_jsonl;

use super::api_keys::Keys;
use super::dreams::KnownDream;
use super::handoffs::{KnownAnswer, SpendingKey};
use super::leases::KnownLease;
use super::runs::RunState;
use super::schedules::ScheduleState;
use super::secrets::Registered;
use super::workspace::StoredFile;
use crate::error::StoreError;
use crate::handoffs::{OF_SESSIONS, named, session_of};
use crate::store::*;

#[derive(Default)]
pub(super) struct State {
    /// In the order in which they came.
    pub(super) tenants: Vec<TenantState>,
    pub(super) api_keys: Keys,
    pub(super) notes: BTreeMap<String, String>,
    /// What tenants may keep.
    pub(super) bounds: Bounds,
    /// By name.
    pub(super) leases: BTreeMap<String, KnownLease>,
}

#[derive(Clone)]
pub(super) struct TenantState {
    pub(super) name: Tenant,
    pub(super) position: Position,
    /// In the order in which they came.
    pub(super) scopes: Vec<ScopeState>,
    /// By number, from 1.
    pub(super) sessions: Vec<SessionState>,
    pub(super) entries: Vec<EntryState>,
    /// Which entries were made of which: where the source began, and the other.
    pub(super) quotes: BTreeSet<(Position, Position)>,
    pub(super) log: Vec<LogRecord>,
    pub(super) outcomes: BTreeMap<(String, String), (StoredOutcome, Millis)>,
    pub(super) secrets: Registered,
    /// Every version that is kept, in the order in which they came.
    pub(super) files: Vec<StoredFile>,
    /// In the order in which they came.
    pub(super) runs: Vec<RunState>,
    /// In the order in which they were made.
    pub(super) commitments: Vec<CommitmentRecord>,
    /// In the order in which they were made, with their ticks by instant.
    pub(super) schedules: Vec<ScheduleState>,
    /// In the order in which they were kept.
    pub(super) dreams: Vec<KnownDream>,
    pub(super) archives: Vec<ArchiveRecord>,
    /// In the order in which they were kept.
    pub(super) handoffs: Vec<HandoffRecord>,
    /// By session, branch and model.
    pub(super) usage: BTreeMap<(SessionNo, Branch, String), ViewUsage>,
    /// By the place of the memory and the key.
    pub(super) answers: BTreeMap<(usize, [u8; 32]), KnownAnswer>,
    pub(super) spending: BTreeMap<SpendingKey, Spending>,
    /// Whether the index file went, and was not written again.
    pub(super) index_lost: bool,
    /// How often dreams were lost.
    pub(super) dream_losses: u64,
    /// What was hidden in what got a position, with its memory.
    pub(super) hidden: BTreeMap<Position, (String, Hidden)>,
    /// The last day on which anything was counted, and what.
    pub(super) used: (i64, DayUse),
}

#[derive(Clone, Default)]
pub(super) struct ScopeState {
    pub(super) memory: String,
    pub(super) epoch: u64,
    /// The last number given to a summary.
    pub(super) summaries: u64,
    /// The last number given to a fact.
    pub(super) last_fact: u64,
    pub(super) facts_through: Position,
    /// By number.
    pub(super) facts: Vec<FactRecord>,
    /// By position.
    pub(super) verdicts: Vec<VerdictRecord>,
    /// Entries that ended at or before this may be gone.
    pub(super) entries_from: Position,
    /// Entries up to here were compared with what commitments wait for.
    pub(super) looked_through: Position,
    /// Who may dream in it.
    pub(super) dreamer: Option<Lease>,
    /// The largest budget of its dreams that were lost.
    pub(super) dreams_lost: Option<u64>,
}

#[derive(Clone)]
pub(super) struct LogRecord {
    pub(super) memory: Option<String>,
    pub(super) event: EventRecord,
}

#[derive(Clone)]
pub(super) struct EntryState {
    pub(super) memory: String,
    /// Its successor may have expired.
    pub(super) record: EntryRecord,
    /// From where on it is not in force.
    pub(super) ended: Option<Position>,
    /// When it was deleted.
    pub(super) deleted_at: Option<Millis>,
    /// When its successor has expired, and whatever stands for that.
    pub(super) superseded_until: Option<Millis>,
    /// Whether its successor says something else.
    pub(super) is_overtaken: bool,
}

#[derive(Clone)]
pub(super) struct SessionState {
    pub(super) no: SessionNo,
    pub(super) memory: String,
    pub(super) name: Option<SessionName>,
    pub(super) name_hash: [u8; 16],
    pub(super) updated_at: Millis,
    pub(super) current: Branch,
    pub(super) branches: BTreeMap<Branch, BranchState>,
    /// By `seq`, from 1.
    pub(super) turns: Vec<StoredTurn>,
}

#[derive(Clone)]
pub(super) struct StoredTurn {
    pub(super) row: TurnRow,
    pub(super) speaker: Option<[u8; 16]>,
    pub(super) appended_at: Millis,
    pub(super) link: Option<Link>,
    /// Whether an answer that went through us stands there or before.
    pub(super) is_answered: bool,
    /// Whether it has no words, because they were forgotten elsewhere.
    pub(super) is_hollow: bool,
    /// What memory put before it, and the epoch of that.
    pub(super) recalled: Option<(u64, RedactedText)>,
}

/// Where a turn is.
pub(super) fn place_of(row: &TurnRow) -> TurnPlace {
    TurnPlace { id: row.id, branch: row.branch, ordinal: row.ordinal, state: row.state }
}

impl SessionState {
    /// The turn that has a link.
    pub(super) fn linked(&self, link: Link) -> Option<LinkedTurn> {
        let found = self.turns.iter().find(|turn| turn.link == Some(link))?;
        let branch = self.branches.get(&found.row.branch)?;
        let is_head = branch.record.tail.length == found.row.ordinal.0;
        let (is_answered, is_hollow) = (found.is_answered, found.is_hollow);
        Some(LinkedTurn { link, place: place_of(&found.row), is_head, is_answered, is_hollow })
    }
}

#[derive(Clone)]
pub(super) struct BranchState {
    pub(super) record: BranchRecord,
    pub(super) unsettled: bool,
    /// Of all levels, in the order in which they were cut.
    pub(super) chunks: Vec<ChunkState>,
    /// By the first ordinal of the micro.
    pub(super) texts: BTreeMap<Ordinal, TextBody>,
    /// By the first ordinal of the macro.
    pub(super) packs: BTreeMap<Ordinal, PackState>,
}

#[derive(Clone)]
pub(super) struct ChunkState {
    pub(super) id: ChunkId,
    pub(super) first_seq: Seq,
    pub(super) last_seq: Seq,
    pub(super) revision: u32,
    /// With its number.
    pub(super) summary: Option<(u64, RedactedSummary)>,
}

#[derive(Clone)]
pub(super) struct PackState {
    pub(super) last: Ordinal,
    pub(super) pack: NewPack,
    pub(super) created_at: Millis,
}

impl State {
    pub(super) fn tenant(&self, tenant: &Tenant) -> Option<&TenantState> {
        self.tenants.iter().find(|known| known.name == *tenant)
    }

    pub(super) fn tenant_mut(&mut self, tenant: &Tenant) -> Option<&mut TenantState> {
        self.tenants.iter_mut().find(|known| known.name == *tenant)
    }

    pub(super) fn ensure_tenant(&mut self, tenant: &Tenant) -> &mut TenantState {
        let at = match self.tenants.iter().position(|known| known.name == *tenant) {
            Some(at) => at,
            None => {
                self.tenants.push(TenantState::new(tenant.clone()));
                self.tenants.len() - 1
            }
        };
        &mut self.tenants[at]
    }

    pub(super) fn ensure_scope(&mut self, scope: &Scope) -> &mut TenantState {
        let tenant = self.ensure_tenant(scope.tenant());
        if !tenant.scopes.iter().any(|known| known.memory == scope.memory()) {
            let memory = scope.memory().to_owned();
            tenant.scopes.push(ScopeState { memory, ..ScopeState::default() });
        }
        tenant
    }

    pub(super) fn scope(&self, scope: &Scope) -> Option<&ScopeState> {
        self.tenant(scope.tenant())?.scopes.iter().find(|known| known.memory == scope.memory())
    }

    pub(super) fn scope_mut(&mut self, scope: &Scope) -> Option<&mut ScopeState> {
        let scopes = &mut self.tenant_mut(scope.tenant())?.scopes;
        scopes.iter_mut().find(|known| known.memory == scope.memory())
    }

    pub(super) fn facts(&self, scope: &Scope) -> &[FactRecord] {
        self.scope(scope).map_or(&[], |scope| &scope.facts)
    }

    /// A turn of the scope.
    pub(super) fn turn(&self, scope: &Scope, id: TurnId) -> Option<&TurnRow> {
        let session = self.session(scope, id.session)?;
        session.turns.iter().map(|turn| &turn.row).find(|row| row.id == id)
    }

    pub(super) fn sessions_in(&self, scope: &Scope) -> impl Iterator<Item = &SessionState> {
        let sessions = self.tenant(scope.tenant()).into_iter().flat_map(|t| &t.sessions);
        sessions.filter(|session| session.memory == scope.memory())
    }

    pub(super) fn session(&self, scope: &Scope, no: SessionNo) -> Option<&SessionState> {
        self.sessions_in(scope).find(|session| session.no == no)
    }

    pub(super) fn session_mut(
        &mut self,
        scope: &Scope,
        no: SessionNo,
    ) -> Option<&mut SessionState> {
        let sessions = &mut self.tenant_mut(scope.tenant())?.sessions;
        sessions.iter_mut().find(|session| session.no == no && session.memory == scope.memory())
    }

    pub(super) fn branch_mut(
        &mut self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
    ) -> Option<&mut BranchState> {
        self.session_mut(scope, session)?.branches.get_mut(&branch)
    }

    pub(super) fn branches_mut(&mut self) -> impl Iterator<Item = &mut BranchState> {
        let sessions = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.sessions);
        sessions.flat_map(|session| session.branches.values_mut())
    }

    /// Refuses a claim whose key was used by another request.
    pub(super) fn refuse_taken<T>(
        &self,
        tenant: &Tenant,
        claim: Option<&Claim<T>>,
        now: Millis,
    ) -> Result<()> {
        let taken =
            claim.and_then(|claim| self.tenant(tenant)?.outcome(&claim.operation, &claim.key, now));
        if taken.is_some() { Err(StoreError::ClaimTaken) } else { Ok(()) }
    }

    pub(super) fn entries(&self, scope: &Scope) -> impl Iterator<Item = &EntryState> {
        let entries = self.tenant(scope.tenant()).into_iter().flat_map(|t| &t.entries);
        entries.filter(|entry| entry.memory == scope.memory())
    }
}

impl TenantState {
    fn new(name: Tenant) -> Self {
        Self {
            name,
            position: Position(0),
            scopes: Vec::new(),
            sessions: Vec::new(),
            entries: Vec::new(),
            quotes: BTreeSet::new(),
            log: Vec::new(),
            outcomes: BTreeMap::new(),
            secrets: Registered::default(),
            files: Vec::new(),
            runs: Vec::new(),
            commitments: Vec::new(),
            schedules: Vec::new(),
            dreams: Vec::new(),
            archives: Vec::new(),
            handoffs: Vec::new(),
            usage: BTreeMap::new(),
            answers: BTreeMap::new(),
            spending: BTreeMap::new(),
            index_lost: false,
            dream_losses: 0,
            hidden: BTreeMap::new(),
            used: (0, DayUse::default()),
        }
    }

    /// The scope of a memory that is there.
    pub(super) fn scope(&self, memory: &str) -> Scope {
        let memory = stored_text(memory);
        let scope = Principal::local_operator(self.name.clone()).scope(memory);
        scope.expect("the name was that of a scope")
    }

    pub(super) fn record(
        &mut self,
        memory: Option<&str>,
        kind: &str,
        payload: String,
        at: Millis,
    ) -> Position {
        self.position.0 += 1;
        let (position, kind) = (self.position, kind.to_owned());
        let event = EventRecord { position, at, kind, payload };
        self.log.push(LogRecord { memory: memory.map(str::to_owned), event });
        position
    }

    pub(super) fn add_hidden(&mut self, memory: &str, position: Position, hidden: Hidden) {
        for (kind, count) in hidden {
            let (_, counts) = self.hidden.entry(position).or_default();
            *counts.entry(kind).or_default() += count;
        }
        if let Some((of, _)) = self.hidden.get_mut(&position) {
            memory.clone_into(of);
        }
    }

    /// Keeps the counts of what is still there.
    pub(super) fn prune_hidden(&mut self) {
        let rows = self.sessions.iter().flat_map(|session| &session.turns).map(|turn| &turn.row);
        let rows = rows.filter(|row| row.state != TurnState::Erased);
        let verdicts = self.scopes.iter().flat_map(|scope| &scope.verdicts);
        let there: BTreeSet<Position> = rows
            .map(|row| row.position)
            .chain(self.entries.iter().map(|entry| entry.record.began))
            .chain(verdicts.map(|verdict| verdict.position))
            .collect();
        self.hidden.retain(|position, _| there.contains(position));
    }

    /// Lets nobody read entries as of an earlier position.
    pub(super) fn keep_entries_from(&mut self, memory: &str, oldest: Position) {
        for scope in self.scopes.iter_mut().filter(|scope| scope.memory == memory) {
            scope.entries_from = scope.entries_from.max(oldest);
        }
    }

    /// Lets go of what memory put before messages, in one memory or in all.
    pub(super) fn lose_recalled(&mut self, memory: Option<&str>) {
        let is_of = |session: &&mut SessionState| memory.is_none_or(|of| session.memory == of);
        let sessions = self.sessions.iter_mut().filter(is_of);
        sessions.flat_map(|session| &mut session.turns).for_each(|turn| turn.recalled = None);
    }

    pub(super) fn raise_epoch(&mut self, memory: &str) {
        self.scopes.iter_mut().filter(|s| s.memory == memory).for_each(|s| s.epoch += 1);
        // Answers kept for retries may quote what was erased; those that hold ids stay.
        self.outcomes.retain(|(operation, _), _| !may_quote(operation));
    }

    /// All events in order, of one memory or of all.
    pub(super) fn events(&self, memory: Option<&str>) -> Vec<EventRecord> {
        let records = self
            .log
            .iter()
            .filter(|record| memory.is_none_or(|memory| record.memory.as_deref() == Some(memory)));
        let mut events: Vec<EventRecord> =
            records.map(|record| self.with_session(record.event.clone())).collect();
        for session in self.sessions_of(memory) {
            events.extend(session.turns.iter().map(|turn| {
                let hidden = self.hidden.get(&turn.row.position).map(|(_, hidden)| hidden);
                session.event(turn, hidden.unwrap_or(&Hidden::new()))
            }));
        }
        events.sort_by_key(|event| event.position);
        events
    }

    /// An event with the name of its session in the place of the number.
    fn with_session(&self, mut event: EventRecord) -> EventRecord {
        let is_of_session = OF_SESSIONS.contains(&event.kind.as_str());
        if let Some(no) = session_of(&event.payload).filter(|_| is_of_session) {
            let session = self.sessions.iter().find(|session| session.no == no);
            let name = session.and_then(|session| session.name.as_ref());
            event.payload = named(&event.payload, name.map(SessionName::as_str));
        }
        event
    }

    pub(super) fn sessions_of<'a>(
        &'a self,
        memory: Option<&'a str>,
    ) -> impl Iterator<Item = &'a SessionState> {
        self.sessions.iter().filter(move |s| memory.is_none_or(|memory| s.memory == memory))
    }

    pub(super) fn outcome(
        &self,
        operation: &str,
        key: &str,
        now: Millis,
    ) -> Option<&StoredOutcome> {
        let (outcome, at) = self.outcomes.get(&(operation.to_owned(), key.to_owned()))?;
        (at.0 > now.0 - OUTCOME_KEPT_MILLIS).then_some(outcome)
    }

    pub(super) fn put_outcome(&mut self, outcome: NewOutcome, now: Millis) {
        // Those that are past go with it, also for one whose clock is behind.
        self.outcomes.retain(|_, (_, at)| at.0 > now.0 - OUTCOME_KEPT_MILLIS);
        let NewOutcome { operation, key, request, status, body } = outcome;
        self.outcomes.retain(|_, (_, at)| at.0 > now.0 - OUTCOME_KEPT_MILLIS);
        self.outcomes.insert((operation, key), (StoredOutcome { request, status, body }, now));
    }

    pub(super) fn stats(&self, memory: Option<&str>, now: Millis) -> StoreStats {
        let mut stats = StoreStats::default();
        for session in self.sessions_of(memory) {
            session.add_to(&mut stats);
        }
        let in_memory = |name: &str| memory.is_none_or(|memory| name == memory);
        let entries = self.entries.iter().filter(|entry| in_memory(&entry.memory));
        stats.entries = entries.filter(|entry| entry.in_force_now(now)).count() as u64;
        for scope in self.scopes.iter().filter(|scope| in_memory(&scope.memory)) {
            stats.epoch += scope.epoch;
            stats.facts += scope.facts.len() as u64;
            stats.verdicts += scope.verdicts.len() as u64;
        }
        for (_, hidden) in self.hidden.values().filter(|(memory, _)| in_memory(memory)) {
            for (kind, count) in hidden {
                *stats.hidden.entry(kind.clone()).or_default() += count;
            }
        }
        if memory.is_none() {
            super::workspace::add_to(&self.files, &mut stats);
        }
        stats
    }

    pub(super) fn check(&self) -> Vec<String> {
        let mut findings: Vec<String> =
            self.sessions.iter().flat_map(SessionState::check).collect();
        findings.extend(super::handoffs::check(self));
        findings
    }
}

impl EntryState {
    pub(super) fn new(memory: &str, record: EntryRecord) -> Self {
        let (memory, ended) = (memory.to_owned(), None);
        Self {
            memory,
            record,
            ended,
            deleted_at: None,
            superseded_until: None,
            is_overtaken: false,
        }
    }

    pub(super) fn lives(&self, now: Millis) -> bool {
        self.record.expires_at.is_none_or(|at| at > now)
    }

    /// Whether another stands for it.
    pub(super) fn is_superseded(&self, now: Millis) -> bool {
        self.record.successor.is_some() && self.superseded_until.is_none_or(|until| until > now)
    }

    pub(super) fn in_force_now(&self, now: Millis) -> bool {
        self.lives(now) && self.deleted_at.is_none() && !self.is_superseded(now)
    }

    /// Whether it is read by id: in force, or another stands for it.
    pub(super) fn is_kept(&self, now: Millis) -> bool {
        self.lives(now) && self.deleted_at.is_none()
    }

    /// Whether a filter's position, if it has one, is one at which it is in force.
    pub(super) fn in_force(&self, filter: &EntryFilter, now: Millis) -> bool {
        let Some(at) = filter.at else { return self.in_force_now(now) };
        let has_begun = self.record.began <= at || filter.own.contains(&self.record.id);
        let is_back = self.record.successor.is_some() && !self.is_superseded(now);
        let has_ended = self.ended.is_some_and(|end| end <= at) && !is_back;
        has_begun && !has_ended && self.lives(now)
    }

    /// As it is read where it is in force.
    pub(super) fn in_force_record(&self) -> EntryRecord {
        EntryRecord { successor: None, ..self.record.clone() }
    }

    /// As it is read now.
    pub(super) fn record_now(&self, now: Millis) -> EntryRecord {
        if self.is_superseded(now) { self.record.clone() } else { self.in_force_record() }
    }

    /// Nothing stands for it any more.
    pub(super) fn restore(&mut self) {
        self.stand_alone();
        self.ended = None;
    }

    /// Nothing stands for it, in force or not.
    pub(super) fn stand_alone(&mut self) {
        self.record.successor = None;
        (self.superseded_until, self.is_overtaken) = (None, false);
    }
}

impl SessionState {
    pub(super) fn record(&self) -> SessionRecord {
        let there = || self.turns.iter().filter(|turn| turn.row.state != TurnState::Erased);
        SessionRecord {
            no: self.no,
            name: self.name.clone(),
            turns: there().count() as u64,
            tokens: there().map(|turn| u64::from(turn.row.tokens)).sum(),
            last_seq: Seq(self.turns.len() as u64),
            updated_at: self.updated_at,
            current: self.current,
            branches: self.branches.values().map(|branch| branch.record.clone()).collect(),
        }
    }

    /// The branch's own turns in a range of ordinals, tombstones too.
    pub(super) fn range(
        &self,
        branch: Branch,
        first: Ordinal,
        last: Ordinal,
    ) -> impl Iterator<Item = &TurnRow> {
        let rows = self.turns.iter().map(|turn| &turn.row);
        rows.filter(move |row| row.branch == branch && (first..=last).contains(&row.ordinal))
    }

    pub(super) fn chunks(&self, branch: Branch, level: Level) -> impl Iterator<Item = &ChunkState> {
        let chunks = self.branches.get(&branch).into_iter().flat_map(|branch| &branch.chunks);
        chunks.filter(move |chunk| chunk.id.level == level)
    }

    pub(super) fn chunk_record(&self, chunk: &ChunkState) -> ChunkRecord {
        let ChunkState { id, first_seq, last_seq, revision, summary } = chunk.clone();
        let summary = summary.map(|(_, summary)| summary);
        let there = || {
            let turns = self.range(id.branch, id.first, id.last);
            turns.filter(|row| row.state != TurnState::Erased)
        };
        let (turns, tokens) = (there().count() as u64, there().map(|t| u64::from(t.tokens)).sum());
        let first_at = there().next().map(|row| row.at).unwrap_or_default();
        let last_at = there().last().map(|row| row.at).unwrap_or_default();
        ChunkRecord { id, first_seq, last_seq, first_at, last_at, tokens, turns, revision, summary }
    }

    fn event(&self, turn: &StoredTurn, hidden: &Hidden) -> EventRecord {
        let row = &turn.row;
        let payload = serde_json::json!({
            "memoryRef": self.memory,
            "session": self.name.as_ref().map(SessionName::as_str),
            "seq": row.id.seq.0,
            "branch": row.branch.to_string(),
            "turnId": row.id.to_string(),
        });
        EventRecord {
            position: row.position,
            at: turn.appended_at,
            kind: "turn.appended".to_owned(),
            payload: payload_with(payload, hidden),
        }
    }

    /// Which tier a turn is in, and whether it is in the open tail.
    fn tier(&self, row: &TurnRow) -> (usize, bool) {
        let Some(branch) = self.branches.get(&row.branch) else { return (0, false) };
        let closed = self
            .chunks(row.branch, Level::Micro)
            .find(|chunk| (chunk.id.first..=chunk.id.last).contains(&row.ordinal));
        match closed.map(|chunk| chunk.id.last) {
            None => (0, true),
            Some(last) if last <= branch.record.cold_through => (2, false),
            Some(last) if last <= branch.record.warm_through => (1, false),
            Some(_) => (0, false),
        }
    }

    fn add_to(&self, stats: &mut StoreStats) {
        let record = self.record();
        stats.sessions += u64::from(record.turns > 0);
        stats.branches += if record.turns > 0 { self.branches.len() as u64 } else { 0 };
        stats.turns += record.turns;
        stats.tokens += record.tokens;
        for row in self.turns.iter().map(|turn| &turn.row) {
            stats.erased += u64::from(row.state == TurnState::Erased);
            stats.expired += u64::from(row.state == TurnState::Expired);
            if let Some(body) = &row.body {
                stats.tier_bytes[0] += turn_jsonl::write_fields(&[], body.fields()).len() as u64;
            }
            if row.state != TurnState::Erased {
                let (tier, open) = self.tier(row);
                stats.tier_turns[tier] += 1;
                stats.tier_tokens[tier] += u64::from(row.tokens);
                stats.open_turns += u64::from(open);
            }
        }
        for branch in self.branches.values() {
            branch.add_to(stats);
        }
    }

    fn check(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for (at, turn) in self.turns.iter().enumerate() {
            let row = &turn.row;
            let watermark = self.branches.get(&row.branch).map(|b| b.record.warm_through);
            let hot = Some(row.ordinal) > watermark;
            let mut find = |what: &str| findings.push(format!("{what}: {}", row.id));
            if row.id.seq.0 != at as u64 + 1 {
                find("a session's seq is not dense");
            }
            if row.state == TurnState::Present && hot && row.body.is_none() {
                find("a hot turn has no body");
            }
            if (!hot || row.state == TurnState::Erased) && row.body.is_some() {
                find("a body is in two places");
            }
        }
        for branch in self.branches.values() {
            let own = self.turns.iter().filter(|turn| turn.row.branch == branch.record.branch);
            let ordinals = own.map(|turn| turn.row.ordinal.0);
            if !ordinals.eq(1..=branch.record.tail.length) {
                findings.push(format!("a branch's ordinals are not dense: session {}", self.no));
            }
        }
        findings
    }
}

impl BranchState {
    fn add_to(&self, stats: &mut StoreStats) {
        for (first, text) in &self.texts {
            let tier = if *first <= self.record.cold_through { 2 } else { 1 };
            stats.tier_bytes[tier] += text.text.as_str().len() as u64;
        }
        for pack in self.packs.values() {
            stats.packs += 1;
            stats.tier_bytes[2] += pack.pack.bytes;
        }
        for chunk in &self.chunks {
            stats.chunks[chunk.id.level as usize] += 1;
            if let Some((_, summary)) = &chunk.summary {
                stats.summaries[chunk.id.level as usize] += 1;
                stats.summary_bytes += summary.parts().text.len() as u64;
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the text comes from our own records")]
pub(super) fn stored_text(text: &str) -> RedactedText {
    RedactedText::read_back(text.to_owned())
}
