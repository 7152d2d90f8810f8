//! Dreams, their archives, and what becomes of them when something that they read goes.

use std::collections::BTreeSet;

use icecore_domain::compaction::COMMITMENT_TAG;
use icecore_domain::dream::Checksum;
use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Branch, Ordinal, Position, Principal, Scope, SessionNo, Tenant, TurnId};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;

use super::state::{EntryState, State, TenantState, stored_text};
use super::{commitments, derivation, entries, erase, facts, runs, secrets, workspace};
use crate::dreams::{INDEX_FILES, MAX_LEASE_MILLIS, lost as lost_payload, undone};
use crate::error::StoreError;
use crate::store::*;
use crate::told::Again;

/// A dream, and the turns that it read.
#[derive(Clone)]
pub(super) struct KnownDream {
    record: DreamRecord,
    spans: Vec<DreamSpan>,
}

impl KnownDream {
    fn is_of(&self, memory: &str) -> bool {
        self.record.scope.memory() == memory
    }

    /// Whether it is in force, or one that is was made on top of it.
    fn counts(&self) -> bool {
        matches!(self.record.state, DreamState::InForce | DreamState::Superseded)
    }

    fn read_any(&self, turns: &[(SessionNo, Branch, Ordinal)]) -> bool {
        let holds =
            |span: &DreamSpan, (session, branch, ordinal): &(SessionNo, Branch, Ordinal)| {
                let is_there = span.after < *ordinal && *ordinal <= span.through;
                span.session == *session && span.branch == *branch && is_there
            };
        self.spans.iter().any(|span| turns.iter().any(|turn| holds(span, turn)))
    }

    fn take_back(&mut self, state: DreamState) {
        let record = &mut self.record;
        record.state = state;
        (record.section, record.source_ids) = (stored_text(""), stored_text(""));
    }
}

// Leases

pub(super) fn lease(state: &mut State, scope: &Scope, lease: Lease, now: Millis) -> bool {
    let Some(known) = state.scope_mut(scope) else { return true };
    let most = Millis(now.0.saturating_add(MAX_LEASE_MILLIS));
    let is_taken =
        |other: &Lease| other.holder != lease.holder && other.until > now && other.until <= most;
    if known.dreamer.as_ref().is_some_and(is_taken) {
        return false;
    }
    known.dreamer = Some(lease);
    true
}

pub(super) fn release(state: &mut State, scope: &Scope, holder: &str) {
    let Some(known) = state.scope_mut(scope) else { return };
    known.dreamer.take_if(|lease| lease.holder == holder);
}

// What is due

pub(super) fn undreamt_entries(
    state: &State,
    scope: &Scope,
    after: Option<EntryPlace>,
    now: Millis,
    limit: usize,
) -> Vec<EntryPlace> {
    let Some(tenant) = state.tenant(scope.tenant()) else { return Vec::new() };
    let output = in_force(tenant, scope.memory()).map(|dream| dream.record.output.as_str());
    let is_intention = |entry: &EntryRecord| {
        let mut made = tenant.commitments.iter().filter(|one| one.scope == *scope);
        made.any(|one| one.entry == entry.id)
            || entry.tags.iter().any(|tag| tag.as_str() == COMMITMENT_TAG)
    };
    let is_due = |entry: &&EntryState| {
        let record = &entry.record;
        let stays = entry.in_force_now(now) && record.expires_at.is_none();
        stays && Some(record.id.as_str()) != output && !is_intention(record)
    };
    let places = state.entries(scope).filter(is_due).map(|entry| entry.record.place());
    let mut found: Vec<EntryPlace> = places.filter(|place| Some(*place) > after).collect();
    found.sort();
    found.truncate(limit);
    found
}

fn read_through(tenant: &TenantState, session: SessionNo, branch: Branch) -> Ordinal {
    let counting = tenant.dreams.iter().filter(|dream| dream.counts());
    let spans = counting.flat_map(|dream| &dream.spans);
    let mine = spans.filter(|span| span.session == session && span.branch == branch);
    mine.map(|span| span.through).max().unwrap_or(Ordinal(0))
}

pub(super) fn undreamt_branches(
    state: &State,
    scope: &Scope,
    after: Option<(SessionNo, Branch)>,
    limit: usize,
) -> Vec<Undreamt> {
    let Some(tenant) = state.tenant(scope.tenant()) else { return Vec::new() };
    let mut found = Vec::new();
    for session in tenant.sessions_of(Some(scope.memory())) {
        for (branch, known) in &session.branches {
            let read = read_through(tenant, session.no, *branch);
            let through = Ordinal(known.record.tail.length);
            if read < through && Some((session.no, *branch)) > after {
                found.push(Undreamt { session: session.no, branch: *branch, after: read, through });
            }
        }
    }
    found.truncate(limit);
    found
}

// Keeping one

/// The dream of a memory that is in force.
fn in_force<'a>(tenant: &'a TenantState, memory: &str) -> Option<&'a KnownDream> {
    let mut mine = tenant.dreams.iter().filter(|dream| dream.is_of(memory));
    mine.find(|dream| dream.record.state == DreamState::InForce)
}

fn find_mut<'a>(tenant: &'a mut TenantState, run: &str) -> Option<&'a mut KnownDream> {
    tenant.dreams.iter_mut().find(|dream| dream.record.run == run)
}

fn set_state(tenant: &mut TenantState, run: Option<&String>, state: DreamState) {
    if let Some(dream) = run.and_then(|run| find_mut(tenant, run)) {
        dream.record.state = state;
    }
}

pub(super) fn keep(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    dream: NewDream,
) -> Result<Kept> {
    let before = state.tenant(scope.tenant()).cloned();
    let kept = try_to_keep(state, key, scope, dream);
    if !matches!(kept, Ok(Kept::Done(_))) {
        put_back(state, scope.tenant(), before);
    }
    kept
}

/// Lets a tenant be as it was.
fn put_back(state: &mut State, tenant: &Tenant, before: Option<TenantState>) {
    match before {
        Some(before) => *state.ensure_tenant(tenant) = before,
        None => state.tenants.retain(|known| known.name != *tenant),
    }
}

fn try_to_keep(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    dream: NewDream,
) -> Result<Kept> {
    let NewDream { run, previous, output, entries, payload, now, secrets_seen, .. } = dream.clone();
    secrets::refuse_changed(state, scope.tenant(), secrets_seen)?;
    let holds = |lease: &Lease| lease.holder == dream.holder && lease.until > now;
    let lease = state.scope(scope).and_then(|known| known.dreamer.as_ref());
    if !lease.is_some_and(holds) {
        return Ok(Kept::LeaseLost);
    }
    refuse_foreign(scope, dream.index.as_ref())?;
    if !is_as_read(state, scope, &dream) {
        return Ok(Kept::Changed);
    }
    let replaced = |id| Replaced { id, by: Successor::Output(0), is_overtaken: false };
    let derivation = Derivation {
        outputs: vec![output],
        replaced: entries.into_iter().map(replaced).collect(),
        kind: DerivationKind::Compacted,
        payload,
        now,
        secrets_seen,
    };
    let is_there = derivation::is_still_there(state, scope, &derivation);
    if !is_there || !keep_run(state, key, scope, run)? {
        return Ok(Kept::Changed);
    }
    let Some(mut derived) = derivation::derive(state, key, scope, derivation)? else {
        return Ok(Kept::Changed);
    };
    let output = derived.outputs.remove(0);
    if let Some((place, file)) = dream.index.clone() {
        workspace::put(state, &place, file)?;
    }
    let tenant = state.ensure_scope(scope);
    keep_archive(tenant, scope, &dream);
    let mine = tenant.dreams.iter().filter(|known| known.is_of(scope.memory()));
    let last = mine.map(|known| known.record.number).max().unwrap_or(0);
    set_state(tenant, previous.as_ref(), DreamState::Superseded);
    let record = DreamRecord {
        run: dream.run.id().to_owned(),
        scope: scope.clone(),
        number: last + 1,
        state: DreamState::InForce,
        previous,
        trigger: dream.trigger,
        distiller: dream.distiller,
        output: output.id.clone(),
        archive: dream.archive.checksum,
        figures: dream.figures,
        section: dream.section,
        source_ids: dream.source_ids,
        index_updated: dream.index.is_some(),
        position: derived.position,
        created_at: now,
    };
    tenant.dreams.push(KnownDream { record: record.clone(), spans: dream.spans });
    let (payload, position) = (derived.payload, derived.position);
    Ok(Kept::Done(Box::new(KeptDream { dream: record, output, payload, position })))
}

fn refuse_foreign(scope: &Scope, index: Option<&(Workspace, NewFile)>) -> Result<()> {
    match index.is_some_and(|(workspace, _)| workspace.tenant() != scope.tenant()) {
        true => Err(StoreError::OtherTenant),
        false => Ok(()),
    }
}

fn is_as_read(state: &State, scope: &Scope, dream: &NewDream) -> bool {
    let (Some(tenant), Some(known)) = (state.tenant(scope.tenant()), state.scope(scope)) else {
        return false;
    };
    let previous = in_force(tenant, scope.memory()).map(|dream| &dream.record.run);
    let is_taken = tenant.dreams.iter().any(|known| known.record.run == dream.run.id());
    let is_unread = |span: &DreamSpan| {
        let same =
            |other: &&DreamSpan| (other.session, other.branch) == (span.session, span.branch);
        let session = state.session(scope, span.session);
        let branch = session.and_then(|session| session.branches.get(&span.branch));
        branch.is_some_and(|branch| span.through.0 <= branch.record.tail.length)
            && span.after <= span.through
            && span.after == read_through(tenant, span.session, span.branch)
            && dream.spans.iter().filter(same).count() == 1
    };
    !is_taken
        && known.epoch == dream.epoch
        && previous == dream.previous.as_ref()
        && dream.spans.iter().all(is_unread)
}

fn keep_run(state: &mut State, key: &IdentityKey, scope: &Scope, run: DreamRun) -> Result<bool> {
    let tenant = scope.tenant();
    match run {
        DreamRun::New(run) => {
            let place = Principal::local_operator(tenant.clone()).workspace();
            runs::create_as(state, &place, run, RunStatus::Completed).map(|_| true)
        }
        DreamRun::Step(step) => runs::step(state, key, tenant, step).map(|run| run.is_some()),
    }
}

fn keep_archive(tenant: &mut TenantState, scope: &Scope, dream: &NewDream) {
    let NewArchive { checksum, name, key, bytes, stored_bytes, sha256 } = dream.archive.clone();
    let run = dream.run.id().to_owned();
    let is_it = |known: &ArchiveRecord| known.scope == *scope && known.checksum == checksum;
    let known = tenant.archives.iter_mut().find(|known| is_it(known));
    if let Some(known) = known.filter(|known| known.key.is_some()) {
        known.run = run;
        return;
    }
    tenant.archives.retain(|known| !is_it(known));
    tenant.archives.push(ArchiveRecord {
        scope: scope.clone(),
        checksum,
        run,
        name,
        key: Some(key),
        bytes,
        stored_bytes,
        sha256,
        created_at: dream.now,
        erased_at: None,
        expired_at: None,
    });
}

// Taking one back

pub(super) fn undo(
    state: &mut State,
    scope: &Scope,
    run: &str,
    index: Option<(Workspace, NewFile)>,
    now: Millis,
) -> Result<Option<DreamRecord>> {
    let before = state.tenant(scope.tenant()).cloned();
    let undone = try_to_undo(state, scope, run, index, now);
    if undone.is_err() {
        put_back(state, scope.tenant(), before);
    }
    undone
}

fn try_to_undo(
    state: &mut State,
    scope: &Scope,
    run: &str,
    index: Option<(Workspace, NewFile)>,
    now: Millis,
) -> Result<Option<DreamRecord>> {
    if state.scope(scope).is_none() {
        return Ok(None);
    }
    refuse_foreign(scope, index.as_ref())?;
    let memory = scope.memory();
    let tenant = state.ensure_scope(scope);
    let Some(dream) = in_force(tenant, memory).filter(|dream| dream.record.run == run).cloned()
    else {
        return Ok(None);
    };
    let mut last = Some(dream.clone());
    while let Some(one) = last {
        undo_one(tenant, scope, &one, now);
        last = one.record.previous.and_then(|run| find_mut(tenant, &run).cloned());
        // One whose archive is gone could not be read on top of.
        if let Some(previous) = last.take_if(|dream| has_key(tenant, dream)) {
            set_state(tenant, Some(&previous.record.run), DreamState::InForce);
        }
    }
    if let Some((place, file)) = index {
        workspace::put(state, &place, file)?;
    }
    let tenant = state.ensure_scope(scope);
    let payload = undone(scope, run, &dream.record.output);
    let position = tenant.record(Some(memory), "dream.undone", payload, now);
    tenant.keep_entries_from(memory, position);
    if let Some(known) = state.scope_mut(scope) {
        known.epoch += 1;
    }
    Ok(get(state, scope.tenant(), run))
}

/// Takes one dream back, and puts none in force.
fn undo_one(tenant: &mut TenantState, scope: &Scope, dream: &KnownDream, now: Millis) {
    let memory = scope.memory();
    let mine = tenant.entries.iter().filter(|entry| entry.memory == memory);
    let output = mine.map(|entry| &entry.record).find(|entry| entry.id == dream.record.output);
    if let Some(output) = output.map(|entry| entry.began) {
        let how = derivation::Going::Undoing;
        let ending = derivation::going_with(tenant, memory, &[output], now, how);
        entries::end_all(tenant, scope, output, ending, now);
    }
    if let Some(dream) = find_mut(tenant, &dream.record.run) {
        dream.take_back(DreamState::Undone);
    }
    let_archive_go(tenant, memory, dream.record.archive, |known| known.expired_at = Some(now));
}

/// Whether the archive of a dream can be read.
fn has_key(tenant: &TenantState, dream: &KnownDream) -> bool {
    let mine = tenant.archives.iter().filter(|known| known.scope == dream.record.scope);
    mine.filter(|known| known.checksum == dream.record.archive).any(|known| known.key.is_some())
}

/// Destroys the key of an archive, unless a dream that counts came to it.
fn let_archive_go(
    tenant: &mut TenantState,
    memory: &str,
    checksum: Checksum,
    mark: impl Fn(&mut ArchiveRecord),
) {
    let mut counting = tenant.dreams.iter().filter(|dream| dream.counts() && dream.is_of(memory));
    if counting.any(|dream| dream.record.archive == checksum) {
        return;
    }
    for known in &mut tenant.archives {
        let is_it = known.scope.memory() == memory && known.checksum == checksum;
        if is_it && known.key.take().is_some() {
            mark(known);
        }
    }
}

// Records

pub(super) fn get(state: &State, tenant: &Tenant, run: &str) -> Option<DreamRecord> {
    let dreams = &state.tenant(tenant)?.dreams;
    let found = dreams.iter().find(|dream| dream.record.run == run);
    found.map(|dream| dream.record.clone())
}

pub(super) fn list(state: &State, tenant: &Tenant, query: &DreamQuery) -> Vec<DreamRecord> {
    let dreams = state.tenant(tenant).into_iter().flat_map(|tenant| &tenant.dreams);
    let is_wanted = |record: &&DreamRecord| {
        let in_force = !query.in_force || record.state == DreamState::InForce;
        let in_memory = query.memory.as_deref().is_none_or(|name| name == record.scope.memory());
        in_force && in_memory && query.before.is_none_or(|before| record.position < before)
    };
    let mut found: Vec<DreamRecord> =
        dreams.map(|dream| &dream.record).filter(is_wanted).cloned().collect();
    found.sort_by_key(|record| std::cmp::Reverse(record.position));
    found.truncate(query.limit);
    found
}

pub(super) fn tokens(state: &State, tenant: &Tenant, since: Millis) -> u64 {
    let dreams = state.tenant(tenant).into_iter().flat_map(|tenant| &tenant.dreams);
    let records = dreams.map(|dream| &dream.record).filter(|record| record.created_at >= since);
    records.map(|record| record.figures.input_tokens + record.figures.output_tokens).sum()
}

/// In the order of the tenants, their memories and the addresses.
pub(super) fn archives(state: &State, tenant: Option<&Tenant>) -> Vec<ArchiveRecord> {
    let tenants =
        state.tenants.iter().filter(|known| tenant.is_none_or(|name| known.name == *name));
    let mut found = Vec::new();
    for known in tenants {
        for scope in &known.scopes {
            let mine = known.archives.iter().filter(|one| one.scope.memory() == scope.memory);
            let mut mine: Vec<ArchiveRecord> = mine.cloned().collect();
            mine.sort_by_key(|archive| archive.checksum);
            found.extend(mine);
        }
    }
    found
}

pub(super) fn expire(state: &mut State, scope: &Scope, checksum: Checksum, now: Millis) -> bool {
    let Some(tenant) = state.tenant_mut(scope.tenant()) else { return false };
    if in_force(tenant, scope.memory()).is_some_and(|dream| dream.record.archive == checksum) {
        return false;
    }
    let is_it = |known: &&mut ArchiveRecord| known.scope == *scope && known.checksum == checksum;
    let Some(known) = tenant.archives.iter_mut().find(is_it) else { return false };
    let is_new = known.key.take().is_some();
    if is_new {
        known.expired_at = Some(now);
    }
    is_new
}

// What was lost

pub(super) fn lost(state: &State, limit: usize) -> Vec<DreamDue> {
    let mut found = Vec::new();
    for tenant in &state.tenants {
        for known in &tenant.scopes {
            let scope = tenant.scope(&known.memory);
            let due = |budget| DreamDue { scope, budget, epoch: known.epoch };
            found.extend(known.dreams_lost.map(due));
        }
    }
    found.truncate(limit);
    found
}

pub(super) fn settle_lost(state: &mut State, due: &DreamDue) {
    if let Some(known) = state.scope_mut(&due.scope) {
        known.dreams_lost.take_if(|_| known.epoch == due.epoch);
    }
}

pub(super) fn lost_indexes(state: &State, limit: usize) -> Vec<Tenant> {
    let lost = state.tenants.iter().filter(|tenant| tenant.index_lost);
    lost.map(|tenant| tenant.name.clone()).take(limit).collect()
}

/// Dreams of a memory that something touches, by their numbers.
pub(super) type Touched = BTreeSet<u64>;

/// How that which touches dreams goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    /// It is deleted: entries that have ended stay.
    Deleted,
    /// Its words go for good.
    Erased,
}

fn touched(tenant: &TenantState, memory: &str, is_it: impl Fn(&KnownDream) -> bool) -> Touched {
    let mine = tenant.dreams.iter().filter(|dream| dream.is_of(memory));
    mine.filter(|dream| is_it(dream)).map(|dream| dream.record.number).collect()
}

/// The dreams that wrote these entries.
pub(super) fn by_entries(tenant: &TenantState, memory: &str, ids: &BTreeSet<String>) -> Touched {
    touched(tenant, memory, |dream| ids.contains(&dream.record.output))
}

/// The dreams that read any of these turns.
pub(super) fn by_turns(
    tenant: &TenantState,
    memory: &str,
    turns: &[(SessionNo, Branch, Ordinal)],
) -> Touched {
    touched(tenant, memory, |dream| dream.read_any(turns))
}

/// The dreams that were kept after a position.
pub(super) fn after(tenant: &TenantState, memory: &str, position: Option<Position>) -> Touched {
    let is_later = |dream: &KnownDream| position.is_some_and(|at| dream.record.position > at);
    touched(tenant, memory, is_later)
}

/// The dreams that tell of something that is to be hidden.
pub(super) fn telling(tenant: &TenantState, memory: &str, again: &Again<'_>) -> Touched {
    touched(tenant, memory, |dream| {
        let DreamRecord { section, source_ids, .. } = &dream.record;
        [section, source_ids].iter().any(|text| again.json(text.as_str()).is_some())
    })
}

/// The ids of entries by where they began.
pub(super) fn ids_of(tenant: &TenantState, began: &BTreeSet<Position>) -> BTreeSet<String> {
    let entries = tenant.entries.iter().map(|entry| &entry.record);
    let found = entries.filter(|entry| began.contains(&entry.began));
    found.map(|entry| entry.id.clone()).collect()
}

/// The numbers of the dreams that go with those that are touched: all that count from
/// the first of them on, those before it whose archives are gone, and what else is
/// touched.
fn falling(tenant: &TenantState, memory: &str, first: &Touched) -> Touched {
    let counted =
        touched(tenant, memory, |dream| dream.counts() && first.contains(&dream.record.number));
    let from = counted.first().copied().map(|from| {
        let earlier = |dream: &KnownDream| dream.counts() && dream.record.number < from;
        let earlier = touched(tenant, memory, earlier);
        let readable = touched(tenant, memory, |dream| has_key(tenant, dream));
        let gone = earlier.iter().rev().take_while(|number| !readable.contains(number));
        gone.last().copied().unwrap_or(from)
    });
    touched(tenant, memory, |dream| {
        let number = dream.record.number;
        first.contains(&number) || from.is_some_and(|from| number >= from)
    })
}

/// Loses the dreams that are touched and those after them; answers how many entries
/// went with them.
pub(super) fn lose(
    tenant: &mut TenantState,
    memory: &str,
    touched: &Touched,
    going: Going,
    now: Millis,
) -> u64 {
    let numbers = falling(tenant, memory, touched);
    let is_falling =
        |dream: &&KnownDream| dream.is_of(memory) && numbers.contains(&dream.record.number);
    let falling: Vec<KnownDream> = tenant.dreams.iter().filter(is_falling).cloned().collect();
    tenant.dream_losses += u64::from(!falling.is_empty());
    let dropped = drop_outputs(tenant, memory, &falling, going);
    let lost: Vec<&KnownDream> = falling.iter().filter(|dream| dream.counts()).collect();
    let told =
        |dream: &KnownDream| dream.record.index_updated && dream.record.state != DreamState::Erased;
    if falling.iter().any(told) {
        for path in INDEX_FILES {
            tenant.index_lost |= workspace::delete_all(tenant, path, now);
        }
    }
    let Some(first) = lost.first() else { return dropped };
    for dream in &lost {
        if let Some(dream) = find_mut(tenant, &dream.record.run) {
            dream.take_back(DreamState::Erased);
        }
    }
    set_state(tenant, first.record.previous.as_ref(), DreamState::InForce);
    for dream in &lost {
        let mark = |known: &mut ArchiveRecord| known.erased_at = Some(now);
        let_archive_go(tenant, memory, dream.record.archive, mark);
    }
    let budget = lost.iter().map(|dream| dream.record.figures.budget).max();
    for known in tenant.scopes.iter_mut().filter(|known| known.memory == memory) {
        known.dreams_lost = known.dreams_lost.max(budget);
    }
    let payload = lost_payload(&first.record.scope, lost.len());
    let position = tenant.record(Some(memory), "dream.lost", payload, now);
    tenant.keep_entries_from(memory, position);
    tenant.raise_epoch(memory);
    dropped
}

fn drop_outputs(
    tenant: &mut TenantState,
    memory: &str,
    falling: &[KnownDream],
    going: Going,
) -> u64 {
    let mine = tenant.entries.iter().filter(|entry| entry.memory == memory);
    let goes = |entry: &&EntryState| {
        let wrote = |dream: &KnownDream| dream.record.output == entry.record.id;
        falling.iter().any(wrote) && (entry.deleted_at.is_none() || going == Going::Erased)
    };
    let outputs: Vec<Position> = mine.filter(goes).map(|entry| entry.record.began).collect();
    if outputs.is_empty() {
        return 0;
    }
    let how = derivation::Going::Quoting;
    let dropped = derivation::going_with(tenant, memory, &outputs, Millis(0), how);
    derivation::delete(tenant, memory, &dropped);
    commitments::forget_erased(tenant, memory);
    tenant.keep_entries_from(memory, Position(tenant.position.0 + 1));
    dropped.len() as u64
}

/// How many archives would lose their keys.
pub(super) fn count(
    state: &State,
    scope: &Scope,
    selector: &Selector,
    turns: &[TurnId],
    now: Millis,
) -> u64 {
    let (Some(tenant), Some(known)) = (state.tenant(scope.tenant()), state.scope(scope)) else {
        return 0;
    };
    let memory = scope.memory();
    let going = ids_of(tenant, &erase::erasable(tenant, memory, selector, now));
    let mut first = by_entries(tenant, memory, &going);
    first.extend(facts::touched(tenant, known, selector, turns));
    let places: Vec<_> = turns
        .iter()
        .filter_map(|turn| state.turn(scope, *turn))
        .map(|row| (row.id.session, row.branch, row.ordinal))
        .collect();
    first.extend(by_turns(tenant, memory, &places));
    let numbers = falling(tenant, memory, &first);
    let mine = || tenant.dreams.iter().filter(|dream| dream.is_of(memory) && dream.counts());
    let archives = |goes: bool| {
        let some = mine().filter(move |dream| numbers.contains(&dream.record.number) == goes);
        some.map(|dream| dream.record.archive).collect::<BTreeSet<Checksum>>()
    };
    let (lost, stay) = (archives.clone()(true), archives(false));
    let has_key = |checksum: &&Checksum| {
        let mut known = tenant.archives.iter().filter(|known| known.scope == *scope);
        known.any(|known| known.checksum == **checksum && known.key.is_some())
    };
    lost.difference(&stay).filter(has_key).count() as u64
}

/// Lets the dreams of a memory be of one with another name.
pub(super) fn rename(tenant: &mut TenantState, old: &str, scope: &Scope) {
    let dreams = tenant.dreams.iter_mut().map(|dream| &mut dream.record.scope);
    let archives = tenant.archives.iter_mut().map(|archive| &mut archive.scope);
    let places = dreams.chain(archives).filter(|place| place.memory() == old);
    places.for_each(|place| place.clone_from(scope));
}
