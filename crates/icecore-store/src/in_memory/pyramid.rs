//! Where bodies are, moving them down a tier, summaries, packs.

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Tenant};
use icecore_domain::time::Millis;

use super::state::{BranchState, ChunkState, PackState, SessionState, State, TenantState};
use crate::store::*;

pub(super) fn bodies(
    scope: &Scope,
    session: &SessionState,
    branch: Branch,
    wanted: impl Fn(&ChunkId) -> bool,
) -> Vec<MicroBody> {
    let micros = session.chunks(branch, Level::Micro);
    micros
        .filter(|chunk| wanted(&chunk.id))
        .map(|chunk| MicroBody {
            id: chunk.id,
            revision: chunk.revision,
            first_seq: chunk.first_seq,
            last_seq: chunk.last_seq,
            place: place(scope, session, chunk),
        })
        .collect()
}

fn place(scope: &Scope, session: &SessionState, micro: &ChunkState) -> BodyPlace {
    let branch = &session.branches[&micro.id.branch];
    if micro.id.last > branch.record.warm_through {
        return BodyPlace::Rows;
    }
    if let Some(text) = branch.texts.get(&micro.id.first) {
        return BodyPlace::Text(text.clone());
    }
    let covers =
        |first: &Ordinal, pack: &PackState| *first <= micro.id.first && micro.id.last <= pack.last;
    let pack = branch.packs.iter().find(|(first, pack)| covers(first, pack));
    match pack {
        Some((first, pack)) if session.chunk_record(micro).turns > 0 => {
            BodyPlace::Pack(pack_record(scope, session, micro.id.branch, *first, pack))
        }
        _ => BodyPlace::Gone,
    }
}

fn pack_record(
    scope: &Scope,
    session: &SessionState,
    branch: Branch,
    first: Ordinal,
    pack: &PackState,
) -> PackRecord {
    let NewPack { name, key, bytes, sha256 } = pack.pack.clone();
    let (session, last, created_at) = (session.no, pack.last, pack.created_at);
    let id = ChunkId { session, branch, level: Level::Macro, first, last };
    PackRecord { scope: scope.clone(), id, name, key, bytes, sha256, created_at }
}

pub(super) fn packs(state: &State, tenant: Option<&Tenant>) -> Vec<PackRecord> {
    let mut packs = Vec::new();
    for owner in state.tenants.iter().filter(|t| tenant.is_none_or(|name| t.name == *name)) {
        for session in &owner.sessions {
            let scope = owner.scope(&session.memory);
            for (branch, state) in &session.branches {
                let found = state.packs.iter();
                packs.extend(found.map(|(f, p)| pack_record(&scope, session, *branch, *f, p)));
            }
        }
    }
    packs
}

pub(super) fn expire_pack(state: &mut State, pack: &PackRecord, now: Millis) {
    let Some(branch) = state.branch_mut(&pack.scope, pack.id.session, pack.id.branch) else {
        return;
    };
    if branch.packs.get(&pack.id.first).is_some_and(|known| known.pack.name == pack.name) {
        branch.packs.remove(&pack.id.first);
        mark_expired(state, &pack.scope, pack.id, now);
        state.ensure_scope(&pack.scope).lose_recalled(Some(pack.scope.memory()));
    }
}

fn mark_expired(state: &mut State, scope: &Scope, id: ChunkId, now: Millis) {
    let Some(session) = state.session_mut(scope, id.session) else { return };
    let mut turns = 0;
    for row in session.turns.iter_mut().map(|turn| &mut turn.row) {
        let inside = row.branch == id.branch && (id.first..=id.last).contains(&row.ordinal);
        if inside && row.state == TurnState::Present {
            row.state = TurnState::Expired;
            turns += 1;
        }
    }
    if turns > 0 {
        let payload = serde_json::json!({ "chunk": id.to_string(), "turns": turns }).to_string();
        state.ensure_scope(scope).record(Some(scope.memory()), "memory.expired", payload, now);
    }
}

/// Whether the micros are there, of this branch, and as they were read.
pub(super) fn unrevised<'a>(
    branch: &BranchState,
    mut micros: impl Iterator<Item = (&'a ChunkId, u32)>,
) -> bool {
    micros.all(|(id, revision)| {
        let known = branch.chunks.iter().find(|chunk| chunk.id == *id);
        id.level == Level::Micro && known.is_some_and(|chunk| chunk.revision == revision)
    })
}

/// Whether the chunks follow each other from just after `from`.
fn follow_on<'a>(from: Ordinal, ids: impl Iterator<Item = &'a ChunkId>) -> bool {
    let mut end = from.0;
    ids.into_iter().all(|id| {
        let follows = id.first.0 == end + 1;
        end = id.last.0;
        follows
    })
}

pub(super) fn demote_to_warm(session: &mut SessionState, demotion: WarmDemotion) -> bool {
    let Some(branch) = session.branches.get_mut(&demotion.branch) else { return false };
    let Some(last) = demotion.micros.last().map(|(id, _, _)| id.last) else { return false };
    let seen = demotion.seen_through;
    if branch.record.warm_through != seen
        || !unrevised(branch, demotion.micros.iter().map(|(id, revision, _)| (id, *revision)))
        || !follow_on(seen, demotion.micros.iter().map(|(id, _, _)| id))
    {
        return false;
    }
    for (id, _, body) in demotion.micros {
        if let Some(body) = body {
            branch.texts.insert(id.first, body);
        }
    }
    branch.record.warm_through = last;
    branch.record.version += 1;
    for row in session.turns.iter_mut().map(|turn| &mut turn.row) {
        if row.branch == demotion.branch && row.ordinal > seen && row.ordinal <= last {
            row.body = None;
        }
    }
    true
}

pub(super) fn demote_to_cold(state: &mut State, scope: &Scope, demotion: ColdDemotion) -> bool {
    let ColdDemotion { id, seen_through, micros, body, now } = demotion;
    let Some(branch) = state.branch_mut(scope, id.session, id.branch) else { return false };
    if branch.record.cold_through != seen_through
        || branch.record.warm_through < id.last
        || id.level != Level::Macro
        || !branch.chunks.iter().any(|chunk| chunk.id == id)
        || !follow_on(seen_through, [id].iter())
        || !unrevised(branch, micros.iter().map(|(id, revision)| (id, *revision)))
    {
        return false;
    }
    branch.record.cold_through = id.last;
    branch.record.version += 1;
    if !matches!(body, ColdBody::StaysText) {
        branch.texts.retain(|first, _| *first < id.first || *first > id.last);
    }
    match body {
        ColdBody::Pack(pack) => {
            branch.packs.insert(id.first, PackState { last: id.last, pack, created_at: now });
        }
        ColdBody::StaysText => {}
        ColdBody::Dropped => mark_expired(state, scope, id, now),
    }
    true
}

pub(super) fn put_summaries(state: &mut State, scope: &Scope, batch: SummaryBatch) {
    let last = state.scope(scope).map_or(0, |scope| scope.summaries);
    let Some(branch) = state.branch_mut(scope, batch.session, batch.branch) else { return };
    let given = put_in_branch(branch, batch, last);
    if let Some(scope) = state.scope_mut(scope) {
        scope.summaries += given;
    }
}

/// Puts summaries with the numbers after `last`, and answers how many.
fn put_in_branch(branch: &mut BranchState, batch: SummaryBatch, last: u64) -> u64 {
    let watermark = &mut branch.record.summarized_through[batch.level as usize];
    let chunks = &mut branch.chunks;
    let unrevised = batch.summaries.iter().all(|(id, revision, _)| {
        let known = chunks.iter().find(|chunk| chunk.id == *id);
        id.level == batch.level && known.is_some_and(|chunk| chunk.revision == *revision)
    });
    if *watermark != batch.seen_through || !unrevised {
        return 0;
    }
    *watermark = batch.through;
    branch.record.version += 1;
    let given = batch.summaries.len() as u64;
    for (number, (id, _, summary)) in (last + 1..).zip(batch.summaries) {
        if let Some(chunk) = chunks.iter_mut().find(|chunk| chunk.id == id) {
            chunk.summary = Some((number, summary));
        }
    }
    given
}

pub(super) fn drop_derived(state: &mut State, scope: &Scope) -> u64 {
    let Some(tenant) = state.tenant_mut(scope.tenant()) else { return 0 };
    let dropped = drop_all(tenant, scope.memory());
    if dropped > 0 {
        tenant.raise_epoch(scope.memory());
    }
    dropped
}

/// Has everything that is derived in a memory made anew.
pub(super) fn drop_all(tenant: &mut TenantState, memory: &str) -> u64 {
    let mut dropped = 0;
    for session in tenant.sessions.iter_mut().filter(|session| session.memory == memory) {
        for branch in session.branches.values_mut() {
            for chunk in &mut branch.chunks {
                dropped += u64::from(chunk.summary.take().is_some());
            }
            branch.record.summarized_through = [Ordinal(0); 3];
            branch.record.version += 1;
            branch.unsettled = true;
        }
    }
    for scope in tenant.scopes.iter_mut().filter(|scope| scope.memory == memory) {
        dropped += scope.facts.drain(..).count() as u64;
        scope.facts_through = Position(0);
    }
    dropped
}

pub(super) fn unsettled(state: &State) -> Vec<DueBranch> {
    let mut due = Vec::new();
    for tenant in &state.tenants {
        for session in &tenant.sessions {
            let scope = tenant.scope(&session.memory);
            let branches = session.branches.values().filter(|branch| branch.unsettled);
            due.extend(branches.map(|branch| DueBranch {
                scope: scope.clone(),
                session: session.no,
                branch: branch.record.branch,
            }));
        }
    }
    due
}
