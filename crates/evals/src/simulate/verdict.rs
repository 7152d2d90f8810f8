//! What must hold at the end of a history, whatever happened in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use icecore::ids::Position;
use icecore::knowledge::{EntryQuery, FactQuery};
use icecore::maintenance::EventRecord;
use icecore::{Memory, MemoryError, Scope, Seq, StoredTurn};
use icecore_host::commitments::{CommitmentQuery, CommitmentState};
use icecore_store::TurnQuery;

use super::client::everything;
use super::ledger::{Fate, Given, marks_in};
use super::world::{MEMORY, World};

/// Without faults everything settles within so many seconds.
const SETTLING_SECONDS: u64 = 180;

/// Waits until nothing is due any more; false if that does not come.
pub async fn settles(world: &World, followers: &[Follower]) -> bool {
    for _ in 0..SETTLING_SECONDS * 2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        match is_settled(world, followers).await {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => {
                world.story.break_promise(format_args!("the store fails: {error:?}"));
                return false;
            }
        }
    }
    world
        .story
        .break_promise(format_args!("not all is settled after {SETTLING_SECONDS} s of calm"));
    false
}

/// A tenant and the events that were seen of it.
pub type Follower = (usize, Arc<std::sync::Mutex<Vec<EventRecord>>>);

async fn is_settled(world: &World, followers: &[Follower]) -> Result<bool, MemoryError> {
    let (store, memory) = (&world.store, world.bystander());
    if store.unsettled_count(None, None).await? > 0
        || !store.lost_dreams(1).await?.is_empty()
        || !store.lost_indexes(1).await?.is_empty()
        || !store.due_commitments(memory.now(), 1).await?.is_empty()
    {
        return Ok(false);
    }
    for (tenant, seen) in followers {
        let head = store.head(&world.tenant(*tenant)).await?;
        let events =
            store.events(&world.tenant(*tenant), None, Position(0), usize::MAX >> 1).await?;
        let seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len();
        if head.0 > 0 && seen < events.len() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks at everything, once all hosts have stopped.
pub async fn judge(world: &World, followers: &[Follower]) {
    if let Err(error) = judge_all(world, followers).await {
        world.story.break_promise(format_args!("what is there cannot be read: {error:?}"));
    }
}

async fn judge_all(world: &World, followers: &[Follower]) -> Result<(), MemoryError> {
    let memory = world.bystander();
    for tenant in 0..world.plan.tenants {
        let scope = memory.scope(&world.principal(tenant), MEMORY).await?;
        turns(world, &memory, &scope, tenant).await?;
        texts(world, &memory, &scope, tenant).await?;
        commitments(world, tenant).await?;
        ticks(world, tenant).await?;
        derived(world, &memory, &scope).await?;
    }
    for (tenant, seen) in followers {
        followed(world, *tenant, seen).await?;
    }
    let report = memory.check(false, |_, _| {}).await?;
    for problem in &report.problems {
        world.story.break_promise(format_args!("check says: {problem}"));
    }
    Ok(())
}

/// Acknowledged means there, once, in order; forgotten means gone.
async fn turns(
    world: &World,
    memory: &Memory,
    scope: &Scope,
    tenant: usize,
) -> Result<(), MemoryError> {
    let mut found: BTreeMap<String, (String, Seq)> = BTreeMap::new();
    for session in memory.sessions(scope).await? {
        let turns = memory.turns(scope, &session.session, Seq(0), usize::MAX >> 1).await?;
        for turn in &turns {
            for mark in marks_in(&text_of(turn)) {
                let place = (session.session.clone(), turn.seq);
                if let Some(other) = found.insert(mark.clone(), place) {
                    world
                        .story
                        .break_promise(format_args!("{mark} is there twice, also at {other:?}"));
                }
            }
        }
        dense(world, memory, scope, &session.session).await?;
    }
    let given = world.ledger.all();
    let mut last: BTreeMap<(usize, &str), (u64, Seq)> = BTreeMap::new();
    let mut in_order: Vec<(&String, &Given)> = given.iter().collect();
    in_order.sort_by_key(|(_, given)| (given.client, given.batch));
    let of_tenant = in_order.into_iter().filter(|(_, given)| given.tenant == tenant);
    for (mark, given) in of_tenant {
        let Some(session) = given.session.as_deref() else { continue };
        let there = found.get(mark);
        match (given.fate, there) {
            (Fate::Acknowledged, None) if !given.is_doubtful => {
                world
                    .story
                    .break_promise(format_args!("{mark} was acknowledged and is lost: {given:?}"));
            }
            (Fate::Gone { .. }, Some(place)) => {
                world.story.break_promise(format_args!("{mark} was forgotten and is at {place:?}"));
            }
            (Fate::Acknowledged, Some((_, seq))) if !given.is_doubtful => {
                let before = last.get(&(given.client, session)).copied();
                if before.is_some_and(|(batch, other)| batch < given.batch && other > *seq) {
                    world.story.break_promise(format_args!(
                        "{mark} is before what was acknowledged earlier"
                    ));
                }
                let newest = before.map_or(*seq, |(_, other)| other.max(*seq));
                last.insert((given.client, session), (given.batch, newest));
            }
            _ => {}
        }
    }
    Ok(())
}

fn text_of(turn: &StoredTurn) -> String {
    turn.turn.as_ref().map(|turn| turn.fields().content.text().into_owned()).unwrap_or_default()
}

/// Every `seq` from 1 on is given, and positions rise with it.
async fn dense(
    world: &World,
    memory: &Memory,
    scope: &Scope,
    name: &str,
) -> Result<(), MemoryError> {
    let name = icecore::ids::SessionName::new(icecore::privacy::Redactor::standard().name(name))?;
    let Some(session) = icecore::extend::store(memory).session(scope, &name).await? else {
        return Ok(());
    };
    let rows = icecore::extend::store(memory)
        .turns(scope, &TurnQuery::all(session.no, usize::MAX >> 1))
        .await?;
    for (place, row) in rows.iter().enumerate() {
        if row.id.seq.0 != place as u64 + 1 {
            world.story.break_promise(format_args!("seq {} follows {place} turns", row.id.seq.0));
        }
    }
    if !rows.is_sorted_by(|one, next| one.position < next.position) {
        world.story.break_promise(format_args!("positions of {scope} do not rise"));
    }
    Ok(())
}

/// Nothing that is shown was forgotten, or is another's.
async fn texts(
    world: &World,
    memory: &Memory,
    scope: &Scope,
    tenant: usize,
) -> Result<(), MemoryError> {
    let since = world.ledger.now();
    let shown = match everything(memory, scope).await {
        Err(MemoryError::NoSession { .. }) => Vec::new(),
        shown => shown?,
    };
    for (how, text) in &shown {
        world.ledger.read(tenant, since, text, how);
    }
    let mut given = BTreeSet::new();
    let entries = memory.entries(scope, &EntryQuery::default()).await?.entries;
    for entry in entries.iter().filter(|entry| !entry.derived) {
        for mark in marks_in(entry.content.as_str()) {
            if !given.insert(mark.clone()) {
                world.story.break_promise(format_args!("{mark} was put twice"));
            }
        }
    }
    Ok(())
}

/// What fired did so once, and nothing is left that should have.
async fn commitments(world: &World, tenant: usize) -> Result<(), MemoryError> {
    let name = world.tenant(tenant);
    let events = world.store.events(&name, None, Position(0), usize::MAX >> 1).await?;
    let fired = |id: &str| {
        let is_of =
            |event: &&EventRecord| event.kind == "commitment.fired" && event.payload.contains(id);
        events.iter().filter(is_of).count()
    };
    for one in world.store.commitments(&name, &CommitmentQuery::newest(1_000)).await? {
        let times = fired(&one.id);
        let expected = usize::from(one.state == CommitmentState::Fired);
        if times != expected {
            world.story.break_promise(format_args!("{:?} fired {times} times", one.id));
        }
    }
    Ok(())
}

/// Every instant has one tick, and what it made is there.
async fn ticks(world: &World, tenant: usize) -> Result<(), MemoryError> {
    let name = world.tenant(tenant);
    let mut runs = BTreeSet::new();
    for schedule in world.store.schedules(&name, None).await? {
        let ticks = world.store.ticks(&name, &schedule.id, 10_000).await?;
        let unfinished = ticks.iter().filter(|tick| tick.outcome.is_none()).count();
        if unfinished > 1 {
            world
                .story
                .break_promise(format_args!("{} runs {unfinished} times at once", schedule.id));
        }
        for run in ticks.iter().filter_map(|tick| tick.run.clone()) {
            if !runs.insert(run.clone()) {
                world.story.break_promise(format_args!("two ticks made {run}"));
            }
        }
    }
    Ok(())
}

/// One host alone derives the same again.
async fn derived(world: &World, memory: &Memory, scope: &Scope) -> Result<(), MemoryError> {
    memory.settle(|_, _| {}).await?;
    let before = all_derived(memory, scope).await?;
    memory.reindex(scope, |_, _| {}).await?;
    let after = all_derived(memory, scope).await?;
    for line in before.symmetric_difference(&after) {
        let whose = if before.contains(line) { "hosts derived" } else { "one host derives" };
        world.story.break_promise(format_args!("{whose} {line}"));
    }
    Ok(())
}

async fn all_derived(memory: &Memory, scope: &Scope) -> Result<BTreeSet<String>, MemoryError> {
    let mut lines = BTreeSet::new();
    for chunk in memory.chunks(scope, None).await? {
        lines.insert(format!("{:?} {:?}", chunk.id, chunk.summary));
    }
    let all = FactQuery { all: true, ..FactQuery::default() };
    for fact in memory.facts(scope, &all).await? {
        lines.insert(format!("{fact:?}"));
    }
    Ok(lines)
}

/// A follower has seen every event once, in order.
async fn followed(
    world: &World,
    tenant: usize,
    seen: &std::sync::Mutex<Vec<EventRecord>>,
) -> Result<(), MemoryError> {
    let seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    let name = world.tenant(tenant);
    let through = seen.last().map_or(Position(0), |event| event.position);
    let mut all = world.store.events(&name, None, Position(0), usize::MAX >> 1).await?;
    all.retain(|event| event.position <= through);
    let place = |event: &EventRecord| (event.position, event.kind.clone());
    let (seen, all): (Vec<_>, Vec<_>) =
        (seen.iter().map(place).collect(), all.iter().map(place).collect());
    if seen != all {
        let differs = seen.iter().zip(&all).position(|(one, other)| one != other);
        world.story.break_promise(format_args!(
            "a follower of {} saw {} of {} events, and other ones from {differs:?} on",
            name.as_str(),
            seen.len(),
            all.len()
        ));
    }
    Ok(())
}
