//! Random histories on two stores, of different engines: every answer and everything
//! that can be read must be the same, also after opening the store again.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use icecore_domain::chunk::Level;
use icecore_domain::cut::CutPolicy;
use icecore_domain::dream::INDEX_PATH;
use icecore_domain::fact::{RedactedFact, Verdict};
use icecore_domain::ids::{Branch, Ordinal, Position, Principal, Scope, Seq, SessionNo, TurnId};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{Hidden, RedactedJson, Redactor, Secret, SecretName};
use icecore_domain::time::Millis;
use proptest::prelude::*;

use crate::contract::commitments::new_commitment;
use crate::contract::dreams::{new_archive, new_dream};
use crate::contract::fixtures::*;
use crate::contract::links::{chain, following};
use crate::contract::new_file;
use crate::contract::runs::{new_run, next, write};
use crate::pack::PackKey;
use crate::store::Store;
use crate::*;

/// A turn as drawn; numbers stand for few ids, texts and names, so that they meet.
#[derive(Debug, Clone)]
pub(crate) struct Drawn {
    id: Option<u8>,
    content: u8,
    parents: Option<Vec<u8>>,
    name: Option<u8>,
    tokens: u32,
    occurrence: u32,
    at: i64,
    hidden: u8,
}

/// What clients say: little, so that their histories meet.
const MESSAGES: [&str; 2] = ["hello", "go on"];

/// Hides some of the few names, values and contents that are drawn.
static RETELLING: LazyLock<Arc<Redactor>> = LazyLock::new(|| {
    redactor_of(&[
        "session-1", "session-2", "this one 1", "this one 2", "content 1", "Added 1 main",
    ])
});

/// Where something happens; numbers are taken modulo what is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    scope: u8,
    session: u8,
    branch: u8,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Append { place: Place, turns: Vec<Drawn>, insist: bool, policy: bool, claim: Option<u8> },
    Follow { place: Place, messages: Vec<u8>, known: usize },
    Recall { place: Place, message: u8, stale: bool },
    Warm { place: Place, micros: usize },
    Cool { place: Place, body: u8 },
    Erase { place: Place, picks: Vec<u8>, forget_name: bool },
    Summarize { place: Place, level: u8, count: usize },
    Settle { place: Place },
    DropDerived { place: Place },
    ExpireOldest,
    UnsettleAll,
    Put { place: Place, id: u8, expires: bool },
    End { place: Place, id: u8 },
    Derive { place: Place, picks: Vec<u8>, first_stays: bool, expires: bool },
    Purge { place: Place, at: u8 },
    EraseEntries { place: Place, by: u8 },
    Draw { place: Place, picks: Vec<u8> },
    Judge { place: Place, value: u8, verdict: u8, quotes: Option<u8> },
    EraseFacts { place: Place, by: u8, quoting: Vec<u8> },
    PutSecret { place: Place, name: u8, value: u8, rotate: bool },
    RemoveSecret { place: Place, name: u8 },
    Rewrite { place: Place, picks: Vec<u8> },
    Retell { place: Place },
    Begin { place: Place, id: u8, fork: bool },
    Advance { place: Place, id: u8, status: u8, writes: Vec<u8>, sets: u8 },
    LetGo { at: u8 },
    Commit { place: Place, id: u8, is_new: bool, condition: u8 },
    Fulfil { place: Place, pick: u8, how: u8 },
    Dream { place: Place, picks: Vec<u8>, carries: bool, is_step: bool, index: bool },
    Wake { place: Place, how: u8 },
    HandOff { place: Place, through: u8, stale: bool },
    EditHandoff { place: Place, pick: u8, version: u8 },
    Count { place: Place, model: u8, of_handoff: bool },
    Answer { place: Place, key: u8, of_session: bool },
    Spend { place: Place, day: u8, purpose: u8 },
    Lease { name: u8, holder: u8, at: u8, token: u8, gives_back: bool },
}

fn scopes() -> [Scope; 3] {
    [scope(), scope_of("acme", "diary"), scope_of("rival", "notes")]
}

// Drawing

fn drawn() -> impl Strategy<Value = Drawn> {
    let parents = prop::option::weighted(0.06, prop::collection::vec(0_u8..6, 0..3));
    let tokens = prop::sample::select(vec![0_u32, 10, 10, 10, 60, 150]);
    (
        prop::option::weighted(0.3, 0_u8..6),
        0_u8..12,
        parents,
        prop::option::of(0_u8..2),
        tokens,
        0_u32..3,
        0_i64..5,
        prop::sample::select(vec![0_u8, 0, 0, 1, 2, 3]),
    )
        .prop_map(|(id, content, parents, name, tokens, occurrence, at, hidden)| Drawn {
            id,
            // An id that comes again mostly comes with the same body.
            content: id.filter(|_| content > 0).unwrap_or(content % 4),
            parents,
            name: if id.is_some() { None } else { name },
            tokens,
            occurrence,
            at,
            hidden,
        })
}

fn place() -> impl Strategy<Value = Place> {
    let scope = prop::sample::select(vec![0_u8, 0, 0, 0, 0, 0, 1, 2]);
    let mostly_first = || prop::sample::select(vec![0_u8, 0, 0, 0, 1, 2]);
    (scope, mostly_first(), mostly_first()).prop_map(|(scope, session, branch)| Place {
        scope,
        session,
        branch,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let claim = prop::option::weighted(0.1, 0_u8..3);
    let turns = prop::collection::vec(drawn(), 0..9);
    prop_oneof![
        10 => (place(), turns, any::<bool>(), prop::bool::weighted(0.2), claim).prop_map(
            |(place, turns, insist, policy, claim)| Step::Append { place, turns, insist, policy, claim }
        ),
        6 => (place(), prop::collection::vec(0_u8..2, 1..6), 0_usize..4)
            .prop_map(|(place, messages, known)| Step::Follow { place, messages, known }),
        2 => (place(), 0_u8..2, any::<bool>())
            .prop_map(|(place, message, stale)| Step::Recall { place, message, stale }),
        6 => (place(), 1_usize..9).prop_map(|(place, micros)| Step::Warm { place, micros }),
        5 => (place(), 0_u8..6).prop_map(|(place, body)| Step::Cool { place, body }),
        5 => (place(), prop::collection::vec(any::<u8>(), 0..4), prop::bool::weighted(0.1))
            .prop_map(|(place, picks, forget_name)| Step::Erase { place, picks, forget_name }),
        3 => (place(), 0_u8..3, 1_usize..5)
            .prop_map(|(place, level, count)| Step::Summarize { place, level, count }),
        2 => place().prop_map(|place| Step::Settle { place }),
        1 => place().prop_map(|place| Step::DropDerived { place }),
        1 => Just(Step::ExpireOldest),
        1 => Just(Step::UnsettleAll),
        4 => (place(), 0_u8..4, any::<bool>())
            .prop_map(|(place, id, expires)| Step::Put { place, id, expires }),
        2 => (place(), 0_u8..4).prop_map(|(place, id)| Step::End { place, id }),
        2 => (place(), prop::collection::vec(0_u8..6, 1..4), any::<bool>(), any::<bool>())
            .prop_map(|(place, picks, first_stays, expires)| Step::Derive { place, picks, first_stays, expires }),
        1 => (place(), 0_u8..4).prop_map(|(place, at)| Step::Purge { place, at }),
        1 => (place(), 0_u8..3).prop_map(|(place, by)| Step::EraseEntries { place, by }),
        3 => (place(), prop::collection::vec(any::<u8>(), 0..3))
            .prop_map(|(place, picks)| Step::Draw { place, picks }),
        2 => (place(), 0_u8..4, 0_u8..3, prop::option::of(any::<u8>())).prop_map(
            |(place, value, verdict, quotes)| Step::Judge { place, value, verdict, quotes }
        ),
        1 => (place(), 0_u8..5, prop::collection::vec(any::<u8>(), 0..3))
            .prop_map(|(place, by, quoting)| Step::EraseFacts { place, by, quoting }),
        1 => (place(), 0_u8..3, 0_u8..5, any::<bool>()).prop_map(
            |(place, name, value, rotate)| Step::PutSecret { place, name, value, rotate }
        ),
        1 => (place(), 0_u8..3).prop_map(|(place, name)| Step::RemoveSecret { place, name }),
        4 => (place(), prop::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(place, picks)| Step::Rewrite { place, picks }),
        1 => place().prop_map(|place| Step::Retell { place }),
        3 => (place(), 0_u8..4, prop::bool::weighted(0.4))
            .prop_map(|(place, id, fork)| Step::Begin { place, id, fork }),
        4 => (place(), 0_u8..4, 0_u8..5, prop::collection::vec(0_u8..6, 0..3), 0_u8..6).prop_map(
            |(place, id, status, writes, sets)| Step::Advance { place, id, status, writes, sets }
        ),
        1 => (0_u8..4).prop_map(|at| Step::LetGo { at }),
        3 => (place(), 0_u8..6, any::<bool>(), 0_u8..4).prop_map(
            |(place, id, is_new, condition)| Step::Commit { place, id, is_new, condition }
        ),
        3 => (place(), any::<u8>(), 0_u8..4)
            .prop_map(|(place, pick, how)| Step::Fulfil { place, pick, how }),
        7 => (
            place(),
            prop::collection::vec(any::<u8>(), 0..5),
            prop::bool::weighted(0.8),
            prop::bool::weighted(0.2),
            any::<bool>(),
        )
            .prop_map(|(place, picks, carries, is_step, index)| Step::Dream { place, picks, carries, is_step, index }),
        2 => (place(), 0_u8..6).prop_map(|(place, how)| Step::Wake { place, how }),
        7 => (place(), any::<u8>(), prop::bool::weighted(0.1))
            .prop_map(|(place, through, stale)| Step::HandOff { place, through, stale }),
        2 => (place(), any::<u8>(), 0_u8..3)
            .prop_map(|(place, pick, version)| Step::EditHandoff { place, pick, version }),
        2 => (place(), 0_u8..2, any::<bool>())
            .prop_map(|(place, model, of_handoff)| Step::Count { place, model, of_handoff }),
        3 => (place(), 0_u8..4, any::<bool>())
            .prop_map(|(place, key, of_session)| Step::Answer { place, key, of_session }),
        1 => (place(), 0_u8..3, 0_u8..2)
            .prop_map(|(place, day, purpose)| Step::Spend { place, day, purpose }),
        3 => (0_u8..2, 0_u8..3, 0_u8..9, 0_u8..5, prop::bool::weighted(0.3)).prop_map(
            |(name, holder, at, token, gives_back)| Step::Lease { name, holder, at, token, gives_back }
        ),
    ]
}

// Doing

/// What is about to be done, put together from what one store answered.
enum Act {
    Nothing,
    Append(AppendBatch),
    Recall(NewRecalled),
    Warm(WarmDemotion),
    Cool(ColdDemotion),
    Erase(Erasure),
    Summarize(SummaryBatch),
    Settle(SessionNo, Branch, u64),
    DropDerived,
    Expire(PackRecord),
    UnsettleAll,
    Put(NewEntry),
    End(String),
    Derive(Derivation),
    Purge(Millis),
    EraseEntries(Selector),
    Draw(FactBatch),
    Judge(NewVerdict),
    EraseFacts(Selector, Vec<TurnId>),
    PutSecret(Secret, bool),
    RemoveSecret(SecretName),
    Rewrite(Rewrite),
    Retell,
    Begin(NewRun),
    Fork(NewFork),
    Advance(RunStep),
    LetGo(Millis),
    Commit(NewCommitment),
    Fulfil(String, u8),
    Dream(Box<NewDream>),
    Wake(Option<DreamRecord>, u8),
    HandOff(Box<NewHandoff>),
    EditHandoff(HandoffEdit),
    Count(ViewUsage),
    Answer(NewAnswer),
    Spend(Vec<Spending>),
    Lease { fence: Fence, holder: String, at: Millis, gives_back: bool },
}

fn say_drawn(drawn: &Drawn) -> Say {
    let mut turn = say(&format!("text {} ", drawn.content).repeat(9));
    turn = turn.tokens(drawn.tokens).nth(drawn.occurrence).at(drawn.at);
    if let Some(id) = drawn.id {
        turn = turn.id(&format!("id-{id}"));
    }
    for (kind, count) in drawn_hidden(drawn.hidden) {
        turn = turn.hiding(&kind, count);
    }
    if let Some(name) = drawn.name {
        turn = turn.by(&format!("name-{name}"));
    }
    if let Some(parents) = &drawn.parents {
        // The last stands for one of our own ids.
        let name = |id: &u8| if *id == 5 { "turn-1.2".to_owned() } else { format!("id-{id}") };
        let parents: Vec<String> = parents.iter().map(name).collect();
        turn = turn.after(&parents.iter().map(String::as_str).collect::<Vec<_>>());
    }
    turn
}

fn drawn_hidden(pick: u8) -> Hidden {
    (0..pick % 3).map(|kind| (format!("kind-{kind}"), u64::from(pick))).collect()
}

/// One of few secrets; some names would tell the values of others.
fn drawn_secret(name: u8, value: u8) -> Secret {
    let names = ["db", "mail", "is-hunter-of-2"];
    let values = ["q8Zk2Lm9Xw", "Pv4tRb7Ncs", "hunter-of-2", "mail]x-9Kw2", "Zz81kQpLm2"];
    let value = if name == 2 && value == 2 { "never-told-1" } else { values[value as usize] };
    secret(names[name as usize], value)
}

fn batch_of(place: &Place, turns: &[Drawn], insist: bool, policy: bool) -> AppendBatch {
    let turns: Vec<Say> = turns.iter().map(say_drawn).collect();
    let other = CutPolicy { micro_turns: 3, mini_turns: 3, macro_turns: 6, micro_max_tokens: 70 };
    let policy = if policy { other } else { SMALL };
    AppendBatch { insist, policy, ..batch(&format!("session-{}", place.session), &turns) }
}

/// A derivation from entries in force, one of which may be named twice. It is made
/// before anything expires.
async fn deriving(
    store: &Store,
    place: &Place,
    picks: &[u8],
    first_stays: bool,
    expires: bool,
) -> Derivation {
    let (scope, now) = (&scopes()[place.scope as usize], Millis(3));
    let found = store.entries(scope, &EntryFilter::default(), now, 9).await.unwrap();
    let name = |pick: &u8| match found.get(*pick as usize % found.len().max(1)) {
        Some(entry) if *pick < 5 => entry.id.clone(),
        _ => "entry-1".to_owned(),
    };
    let ids: Vec<String> = picks.iter().map(name).collect();
    let output = |pick: &u8| DerivedEntry {
        id: None,
        content: text(&format!("made of {} q8Zk2Lm9Xw", ids.len())),
        tags: vec![text(&format!("subject:name-{}", pick % 2))],
        expires_at: expires.then_some(NOW),
        hidden: drawn_hidden(*pick),
    };
    let replaced = |(place, id): (usize, &String)| Replaced {
        id: id.clone(),
        by: match first_stays {
            true => Successor::Kept(ids[0].clone()),
            false => Successor::Output(place % 2),
        },
        is_overtaken: picks[place].is_multiple_of(3),
    };
    Derivation {
        outputs: if first_stays { Vec::new() } else { picks.iter().take(2).map(output).collect() },
        replaced: ids.iter().enumerate().skip(usize::from(first_stays)).map(replaced).collect(),
        kind: if first_stays { DerivationKind::Consolidated } else { DerivationKind::Compacted },
        payload: Arc::new(|ids| serde_json::json!({ "outputs": ids })),
        now,
        secrets_seen: store.secrets_version(scope.tenant()).await.unwrap(),
    }
}

/// A dream of some of what is due, as of before anything expires.
async fn dreaming(
    store: &Store,
    number: usize,
    place: &Place,
    picks: &[u8],
    (carries, is_step, index): (bool, bool, bool),
) -> NewDream {
    let (scope, now) = (&scopes()[place.scope as usize], Millis(3));
    let last = in_force(store, scope).await;
    let secrets_seen = store.secrets_version(scope.tenant()).await.unwrap();
    let due = store.undreamt_entries(scope, None, now, 9).await.unwrap();
    let began: Vec<Position> = due.iter().map(|place| place.began).collect();
    let found = store.entries_at(scope, &began, &EntryFilter::default(), now).await.unwrap();
    let mut entries: Vec<String> = found.into_iter().map(|entry| entry.id).collect();
    entries.truncate(picks.len());
    if let Some(last) = last.as_ref().filter(|_| carries) {
        let output = store.entry(scope, &last.output, None, now).await.unwrap();
        entries.extend(output.filter(|entry| entry.successor.is_none()).map(|entry| entry.id));
    }
    let branches = store.undreamt_branches(scope, None, 9).await.unwrap();
    let span = |(one, pick): (Undreamt, &u8)| DreamSpan {
        session: one.session,
        branch: one.branch,
        after: one.after,
        // Sometimes beyond its end.
        through: Ordinal(one.after.0 + 1 + u64::from(*pick) % (one.through.0 - one.after.0 + 1)),
    };
    let spans = branches.into_iter().zip(picks).map(span).collect();
    let pick = picks.first().copied().unwrap_or_default();
    let new = new_dream(pick % 5, last.as_ref().map(|last| last.run.as_str()));
    let run = match is_step {
        true => {
            let run = store.run(scope.tenant(), "run-1").await.unwrap();
            let events = run.map_or(0, |run| run.events);
            DreamRun::Step(RunStep { secrets_seen, ..next("run-1", events, RunStatus::Completed) })
        }
        false => DreamRun::New(NewRun { secrets_seen, ..new_run(&format!("dream-{number}")) }),
    };
    let workspace = Principal::local_operator(scope.tenant().clone()).workspace();
    let file = || NewFile { secrets_seen, ..new_file(INDEX_PATH, &format!("index {pick}")) };
    NewDream {
        epoch: store.scope_head(scope).await.unwrap().epoch,
        run,
        entries,
        spans,
        section: text(&format!("{{\"topics\":[\"content {}\"]}}", pick % 4)),
        index: index.then(|| (workspace, file())),
        now,
        secrets_seen,
        ..new
    }
}

/// The path to the end of a branch.
fn path_of(session: &SessionRecord, branch: Branch) -> Vec<(Branch, Ordinal)> {
    let mut path = vec![(branch, Ordinal(u64::MAX >> 1))];
    let fork = |of: Branch| session.branches.iter().find(|one| one.branch == of)?.fork;
    while let Some(fork) = path.last().and_then(|(branch, _)| fork(*branch)) {
        path.push(fork);
    }
    path.reverse();
    path
}

/// A handoff of a branch, sometimes beyond its end, and some with words to hide.
async fn handing_off(
    store: &Store,
    scope: &Scope,
    (session, branch): (&SessionRecord, Branch),
    through: u8,
    stale: bool,
) -> NewHandoff {
    let path = path_of(session, branch);
    let previous = store.handoff(scope, session.no, &path).await.unwrap();
    let record = session.branches.iter().find(|one| one.branch == branch).unwrap();
    let query = TurnQuery { branch: Some(branch), ..TurnQuery::all(session.no, 999) };
    let own = store.turns(scope, &query).await.unwrap();
    let last = Ordinal(u64::from(through) % (record.tail.length + 2));
    let kept = own.iter().filter(|row| row.ordinal <= last && row.ordinal.0.is_multiple_of(3));
    NewHandoff {
        session: session.no,
        branch,
        seen_head: Seq(record.head_seq.0 + u64::from(stale)),
        seen_previous: previous.map(|previous| previous.id),
        epoch: store.scope_head(scope).await.unwrap().epoch,
        through: last,
        kept: kept.map(|row| row.id.seq).collect(),
        text: text(&format!("content {}", through % 5)),
        tokens: u64::from(through),
        tokens_before: 9,
        tokens_after: 4,
        made_by: "heuristic".to_owned(),
        trigger: HandoffTrigger::ALL[usize::from(through) % 3],
        secrets_seen: store.secrets_version(scope.tenant()).await.unwrap(),
        now: Millis(i64::from(through)),
    }
}

/// The dream in force.
async fn in_force(store: &Store, scope: &Scope) -> Option<DreamRecord> {
    let memory = Some(scope.memory().to_owned());
    let query = DreamQuery { memory, in_force: true, before: None, limit: 2 };
    let mut found = store.dreams(scope.tenant(), &query).await.unwrap();
    assert!(found.len() < 2, "{found:?}");
    found.pop()
}

async fn prepare(store: &Store, number: usize, step: &Step) -> Act {
    let find = async |place: &Place| {
        let scope = &scopes()[place.scope as usize];
        let sessions = store.sessions(scope, None, 9).await.unwrap();
        let session = sessions.get(place.session as usize % sessions.len().max(1))?.clone();
        let branch = Branch(u32::from(place.branch) % session.branches.len() as u32);
        Some((scope.clone(), session, branch))
    };
    let seen = async |place: &Place| {
        store.secrets_version(scopes()[place.scope as usize].tenant()).await.unwrap()
    };
    match step {
        Step::Append { place, turns, insist, policy, claim } => {
            let mut batch = batch_of(place, turns, *insist, *policy);
            batch.secrets_seen = seen(place).await;
            batch.claim = claim.map(|key| Claim {
                operation: "POST /turns".to_owned(),
                key: key.to_string(),
                request: [key; 32],
                code: 201,
            });
            Act::Append(batch)
        }
        Step::Follow { place, messages, known } => {
            let messages: Vec<&str> = messages.iter().map(|n| MESSAGES[*n as usize]).collect();
            let known = (*known).min(messages.len());
            let mut batch = following(&format!("session-{}", place.session), &messages, known);
            // Some of them are answers.
            batch.turns.iter_mut().for_each(|turn| turn.is_answer = known % 2 == 1);
            batch.secrets_seen = seen(place).await;
            Act::Append(batch)
        }
        Step::Recall { place, message, stale } => {
            let Some((scope, session, _)) = find(place).await else { return Act::Nothing };
            let epoch = store.scope_head(&scope).await.unwrap().epoch;
            Act::Recall(NewRecalled {
                session: session.no,
                link: chain(&[MESSAGES[*message as usize]])[0],
                epoch: epoch + u64::from(*stale),
                text: text(&format!("recalled at {epoch}")),
                secrets_seen: seen(place).await,
            })
        }
        Step::Warm { place, micros } => {
            let Some((scope, session, branch)) = find(place).await else { return Act::Nothing };
            let through = u64::MAX >> 1;
            let all = warming(store, &scope, session.no, branch, through).await;
            all.map_or(Act::Nothing, |mut demotion| {
                demotion.micros.truncate(*micros);
                Act::Warm(demotion)
            })
        }
        Step::Cool { place, body } => {
            let Some((scope, session, branch)) = find(place).await else { return Act::Nothing };
            let body = match body {
                0 => ColdBody::StaysText,
                1 => ColdBody::Dropped,
                _ => ColdBody::Pack(new_pack(&format!("pack-{number}"))),
            };
            let demotion = cooling(store, &scope, session.no, branch, body).await;
            demotion.map_or(Act::Nothing, |mut demotion| {
                demotion.now = Millis(1000 - number as i64);
                Act::Cool(demotion)
            })
        }
        Step::Erase { place, picks, forget_name } => {
            let Some((scope, session, branch)) = find(place).await else { return Act::Nothing };
            let seq = |pick: &u8| u64::from(*pick) % (session.last_seq.0 + 2);
            let seqs: Vec<u64> = picks.iter().map(seq).collect();
            let mut erasure = erasing(store, &scope, session.no, branch, &seqs).await;
            erasure.forget_name = *forget_name;
            Act::Erase(erasure)
        }
        Step::Summarize { place, level, count } => {
            let Some((scope, session, branch)) = find(place).await else { return Act::Nothing };
            let level = Level::ALL[*level as usize];
            let mut batch = summing_of(store, &scope, session.no, branch, level).await;
            batch.summaries.truncate(*count);
            if let Some((id, _, _)) = batch.summaries.last() {
                batch.through = id.last;
            }
            Act::Summarize(batch)
        }
        Step::Settle { place } => match find(place).await {
            Some((_, session, branch)) => {
                let version = session.branches[branch.0 as usize].version;
                Act::Settle(session.no, branch, version)
            }
            None => Act::Nothing,
        },
        Step::DropDerived { .. } => Act::DropDerived,
        Step::ExpireOldest => {
            let oldest = store.packs_older_than(Millis(i64::MAX), 1).await.unwrap().pop();
            oldest.map_or(Act::Nothing, Act::Expire)
        }
        Step::UnsettleAll => Act::UnsettleAll,
        Step::Put { place, id, expires } => Act::Put(NewEntry {
            id: Some(format!("entry-{id}")),
            content: text(&format!("content {id}")),
            tags: vec![text(&format!("subject:name-{}", id % 2))],
            expires_at: expires.then_some(NOW),
            now: Millis(i64::from(*id)),
            secrets_seen: seen(place).await,
            hidden: drawn_hidden(*id),
            claim: (*id == 3).then(|| Claim {
                operation: "POST /entries".to_owned(),
                key: "0".to_owned(),
                request: [9; 32],
                code: 201,
            }),
        }),
        Step::End { id, .. } => Act::End(format!("entry-{id}")),
        Step::Derive { place, picks, first_stays, expires } => {
            Act::Derive(deriving(store, place, picks, *first_stays, *expires).await)
        }
        Step::Purge { at, .. } => Act::Purge(Millis(i64::from(*at))),
        Step::EraseEntries { by, .. } => Act::EraseEntries(match by {
            0 => Selector::Entry("entry-0".to_owned()),
            1 => Selector::Before(Millis(2)),
            _ => subject("name-1"),
        }),
        Step::Draw { place, picks } => {
            let Some((scope, session, _)) = find(place).await else { return Act::Nothing };
            let seen_through = store.facts_through(&scope).await.unwrap();
            let draw = |pick: &u8| drawn_fact(drawn_about(*pick), picked(&session, *pick));
            let through = Position(seen_through.0 + 1);
            let facts = picks.iter().map(draw).collect();
            let secrets_seen = seen(place).await;
            Act::Draw(FactBatch { seen_through, through, facts, secrets_seen })
        }
        Step::Judge { place, value, verdict, quotes } => {
            let Some((_, session, _)) = find(place).await else { return Act::Nothing };
            let verdicts = [Verdict::Added, Verdict::Confirmed, Verdict::Rejected];
            Act::Judge(NewVerdict {
                fact: drawn_about(*value),
                verdict: verdicts[*verdict as usize],
                source: quotes.map(|pick| picked(&session, pick)),
                now: Millis(i64::from(*value)),
                secrets_seen: seen(place).await,
                hidden: drawn_hidden(*value),
            })
        }
        Step::EraseFacts { place, by, quoting } => {
            let Some((_, session, _)) = find(place).await else { return Act::Nothing };
            let quoting = quoting.iter().map(|pick| picked(&session, *pick)).collect();
            let selector = match by {
                0 => Selector::Entry(drawn_about(1).key().to_string()),
                1 => Selector::Before(Millis(2)),
                2 => Selector::Session(session_name("session-0")),
                3 => subject("?"),
                _ => subject("NAME 1"),
            };
            Act::EraseFacts(selector, quoting)
        }
        Step::Rewrite { place, picks } => {
            let Some((scope, session, branch)) = find(place).await else { return Act::Nothing };
            let seqs: BTreeSet<u64> =
                picks.iter().map(|pick| u64::from(*pick) % (session.last_seq.0 + 2)).collect();
            let seqs: Vec<u64> = seqs.into_iter().collect();
            Act::Rewrite(rewriting(store, &scope, session.no, branch, &seqs).await)
        }
        Step::Retell { .. } => Act::Retell,
        Step::Begin { id, fork: true, .. } => Act::Fork(NewFork {
            id: format!("run-{id}"),
            source: format!("run-{}", id / 2),
            from_seq: 1,
            now: Millis(number as i64),
            claim: None,
        }),
        Step::Begin { place, id, .. } => Act::Begin(NewRun {
            id: format!("run-{id}"),
            workflow: format!("content {id}"),
            inputs: drawn_json(*id),
            most_unfinished: 3,
            now: Millis(number as i64 / 3),
            secrets_seen: seen(place).await,
            ..new_run("")
        }),
        Step::Advance { place, id, status, writes, sets } => {
            let (scope, id) = (&scopes()[place.scope as usize], format!("run-{id}"));
            let run = store.run(scope.tenant(), &id).await.unwrap();
            let secrets_seen = seen(place).await;
            let write = |pick: &u8| RunWrite {
                scope: scope.clone(),
                entry: NewEntry { secrets_seen, ..drawn_entry(*pick) },
                node: format!("node {pick}"),
                agent: (*pick == 2).then(|| "agent".to_owned()),
            };
            let message = format!("content {sets}");
            Act::Advance(RunStep {
                writes: writes.iter().map(write).collect(),
                variables: (0..*sets).step_by(2).map(drawn_variable).collect(),
                error: (*status == 3).then(|| RunError { code: "c".to_owned(), message }),
                now: Millis(i64::from(*sets)),
                secrets_seen,
                ..next(&id, run.map_or(0, |run| run.events), drawn_status(*status))
            })
        }
        Step::LetGo { at } => Act::LetGo(Millis(i64::from(*at))),
        Step::Commit { place, id, is_new, condition } => {
            let secrets_seen = seen(place).await;
            let entry = NewEntry { secrets_seen, ..drawn_entry(*id) };
            let intention = match is_new {
                true => Intention::New(entry),
                false => Intention::Entry(format!("entry-{id}")),
            };
            let condition = match condition {
                0 | 1 => Condition::Time(Millis(i64::from(*condition))),
                _ => Condition::Predicate {
                    tag: Some(text("content 1")),
                    mentions: (*condition == 3).then(|| text("w")),
                },
            };
            let (now, most_pending) = (Millis(i64::from(*id)), 4);
            let new = new_commitment(intention, condition);
            Act::Commit(NewCommitment { now, secrets_seen, most_pending, ..new })
        }
        Step::Fulfil { place, pick, how } => {
            let tenant = scopes()[place.scope as usize].tenant().clone();
            let known = store.commitments(&tenant, &CommitmentQuery::newest(9)).await.unwrap();
            match known.get(*pick as usize % known.len().max(1)) {
                Some(one) => Act::Fulfil(one.id.clone(), *how),
                None => Act::Nothing,
            }
        }
        Step::Dream { place, picks, carries, is_step, index } => {
            let how = (*carries, *is_step, *index);
            Act::Dream(Box::new(dreaming(store, number, place, picks, how).await))
        }
        Step::Wake { place, how } => {
            Act::Wake(in_force(store, &scopes()[place.scope as usize]).await, *how)
        }
        Step::HandOff { place, through, stale } => {
            let Some((scope, session, branch)) = find(place).await else { return Act::Nothing };
            let at = (&session, branch);
            let new = handing_off(store, &scope, at, *through, *stale).await;
            Act::HandOff(Box::new(new))
        }
        Step::EditHandoff { place, pick, version } => {
            let Some((scope, session, branch)) = find(place).await else { return Act::Nothing };
            let known = store.handoffs(&scope, session.no).await.unwrap();
            let one = known.get(*pick as usize % known.len().max(1));
            Act::EditHandoff(HandoffEdit {
                session: session.no,
                branch,
                id: one.map_or("none".to_owned(), |one| one.id.clone()),
                seen_version: one.map_or(0, |one| one.version) + u64::from(*version) / 2,
                text: text(&format!("content {}", pick % 4)),
                tokens: u64::from(*pick),
                tokens_after: u64::from(*pick),
                secrets_seen: seen(place).await,
                now: Millis(i64::from(*pick)),
            })
        }
        Step::Count { place, model, of_handoff } => {
            let Some((scope, session, branch)) = find(place).await else { return Act::Nothing };
            let path = path_of(&session, branch);
            let known = store.handoff(&scope, session.no, &path).await.unwrap();
            Act::Count(ViewUsage {
                session: session.no,
                branch,
                model: format!("model {model}"),
                through: session.last_seq,
                handoff: known.filter(|_| *of_handoff).map(|known| known.id),
                tokens: number as u64,
                counted: u64::from(*model),
            })
        }
        Step::Answer { place, key, of_session } => {
            let scope = &scopes()[place.scope as usize];
            let session = find(place).await.filter(|_| *of_session);
            Act::Answer(NewAnswer {
                key: [*key; 32],
                session: session.map(|(_, session, _)| session.no),
                epoch: store.scope_head(scope).await.unwrap().epoch,
                text: text(&format!("content {}", number % 4)),
                secrets_seen: seen(place).await,
                now: Millis(number as i64),
            })
        }
        Step::Spend { day, purpose, .. } => {
            let one = Spending {
                day: i64::from(*day),
                purpose: format!("purpose {purpose}"),
                model: format!("model {}", number % 2),
                calls: number as u64,
                saved: 7,
                ..Spending::default()
            };
            Act::Spend(vec![one.clone(), Spending { day: 1, ..one }])
        }
        Step::Lease { name, holder, at, token, gives_back } => Act::Lease {
            fence: Fence { name: format!("lease-{name}"), token: u64::from(*token) },
            holder: format!("host-{holder}"),
            at: Millis(i64::from(*at)),
            gives_back: *gives_back,
        },
        Step::PutSecret { name, value, rotate, .. } => {
            Act::PutSecret(drawn_secret(*name, *value), *rotate)
        }
        Step::RemoveSecret { name, .. } => Act::RemoveSecret(drawn_secret(*name, 4).name().clone()),
    }
}

/// One of few values.
fn drawn_json(pick: u8) -> RedactedJson {
    let value = format!(r#"{{ "said": ["content {pick}", {pick}.50] }}"#);
    redactor_of(&[]).redacted_json(&JsonText::parse(&value).unwrap())
}

/// An entry that a run or a commitment puts.
fn drawn_entry(pick: u8) -> NewEntry {
    NewEntry {
        hidden: drawn_hidden(pick),
        expires_at: (pick == 4).then_some(NOW),
        ..write("notes", &format!("entry-{pick}")).entry
    }
}

fn drawn_status(pick: u8) -> RunStatus {
    [
        RunStatus::Pending,
        RunStatus::Running,
        RunStatus::Completed,
        RunStatus::Failed,
        RunStatus::Cancelled,
    ][pick as usize]
}

fn drawn_variable(pick: u8) -> RunVariable {
    let entry =
        EntryRef { memory_ref: "notes".to_owned(), memory_id: format!("entry-{}", pick % 3) };
    let value = match pick {
        0 | 1 => RunValue::Json(drawn_json(pick + 1)),
        2 => RunValue::Entry(entry),
        3 => RunValue::Entries(vec![entry.clone(), entry]),
        _ => RunValue::Content(entry),
    };
    RunVariable { name: format!("content {}", pick % 3), value }
}

/// A text in which ids of commitments, which follow from the store's own key, are all
/// the same.
fn masked(text: String) -> String {
    let mut parts = text.split("\"c-");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_id = part.len() >= 20 && part.as_bytes()[..20].iter().all(u8::is_ascii_hexdigit);
        out.push_str("\"c-");
        out.push_str(if is_id { &part[20..] } else { part });
    }
    out
}

/// One of few facts.
fn drawn_about(pick: u8) -> RedactedFact {
    fact(&format!("name-{}", pick % 2), &format!("this one {}", pick % 3))
}

/// A turn of the session, or one that is not.
fn picked(session: &SessionRecord, pick: u8) -> TurnId {
    let seq = Seq(1 + u64::from(pick) % (session.last_seq.0 + 1));
    TurnId { session: session.no, seq }
}

fn subject(name: &str) -> Selector {
    let tag = text(&format!("subject:{name}"));
    Selector::Subject { hash: key().hash_name("name", name), tag }
}

fn scope_of_step(step: &Step) -> Scope {
    let place = match step {
        Step::Append { place, .. }
        | Step::Follow { place, .. }
        | Step::Recall { place, .. }
        | Step::Warm { place, .. }
        | Step::Cool { place, .. }
        | Step::Erase { place, .. }
        | Step::Summarize { place, .. }
        | Step::Settle { place }
        | Step::DropDerived { place }
        | Step::Put { place, .. }
        | Step::End { place, .. }
        | Step::Derive { place, .. }
        | Step::Purge { place, .. }
        | Step::EraseEntries { place, .. }
        | Step::Draw { place, .. }
        | Step::Judge { place, .. }
        | Step::EraseFacts { place, .. }
        | Step::PutSecret { place, .. }
        | Step::RemoveSecret { place, .. }
        | Step::Rewrite { place, .. }
        | Step::Begin { place, .. }
        | Step::Advance { place, .. }
        | Step::Commit { place, .. }
        | Step::Fulfil { place, .. }
        | Step::Dream { place, .. }
        | Step::Wake { place, .. }
        | Step::HandOff { place, .. }
        | Step::EditHandoff { place, .. }
        | Step::Count { place, .. }
        | Step::Answer { place, .. }
        | Step::Spend { place, .. }
        | Step::Retell { place } => place.scope,
        Step::ExpireOldest | Step::UnsettleAll | Step::LetGo { .. } | Step::Lease { .. } => 0,
    };
    scopes()[place as usize].clone()
}

/// Does it, and answers what the store did, in words.
async fn perform(store: &Store, scope: &Scope, act: Act) -> String {
    match act {
        Act::Nothing => "nothing to do".to_owned(),
        Act::Append(batch) => format!("{:?}", store.append(scope, batch).await),
        Act::Warm(demotion) => format!("{:?}", store.demote_to_warm(scope, demotion).await),
        Act::Cool(demotion) => format!("{:?}", store.demote_to_cold(scope, demotion).await),
        Act::Erase(erasure) => {
            let turn = |seq: &Seq| TurnId { session: erasure.session, seq: *seq };
            let of_branch = |row: &TurnRow| row.branch == erasure.branch;
            let turns: Vec<TurnId> = erasure.seqs.iter().map(turn).collect();
            let mut rows = store.turns_at(scope, &turns).await.unwrap();
            rows.retain(of_branch);
            let turns: Vec<TurnId> = rows.iter().map(|row| row.id).collect();
            let ahead = store.handoffs_lost_with(scope, &turns).await.unwrap() as usize;
            let session = erasure.session;
            let before = store.handoffs(scope, session).await.unwrap().len();
            let erased = store.erase(scope, erasure).await;
            let after = store.handoffs(scope, session).await.unwrap().len();
            let lost = if matches!(erased, Ok(true)) { ahead } else { 0 };
            assert_eq!(before - after, lost, "as was counted ahead");
            format!("{erased:?}")
        }
        Act::Summarize(batch) => format!("{:?}", store.put_summaries(scope, batch).await),
        Act::Settle(session, branch, seen) => {
            format!("{:?}", store.settle(scope, session, branch, seen).await)
        }
        Act::DropDerived => format!("{:?}", store.drop_derived(scope).await),
        Act::Expire(pack) => format!("{:?}", store.expire_pack(&pack, NOW).await),
        Act::UnsettleAll => format!("{:?}", store.unsettle_all().await),
        Act::Put(entry) => format!("{:?}", store.put_entry(scope, entry).await),
        // A position is as good a moment as any.
        Act::End(id) => {
            let now = Millis(store.head(scope.tenant()).await.unwrap().0 as i64 % 4);
            format!("{:?}", store.end_entry(scope, &id, now).await)
        }
        Act::Derive(derivation) => {
            format!("{:?}", store.derive_entries(scope, derivation).await)
        }
        Act::Purge(at) => {
            // What expires does so at `NOW`.
            let now = if at == Millis(3) { NOW } else { Millis(0) };
            let due = store.due_entries(now, at, 9).await;
            format!("{due:?} {:?}", store.purge_entries(scope, now, at, 2).await)
        }
        Act::EraseEntries(selector) => {
            // What has expired stands for nothing.
            let is_late = store.head(scope.tenant()).await.unwrap().0.is_multiple_of(2);
            let now = if is_late { NOW } else { Millis(3) };
            let dry = store.erase_entries(scope, &selector, true, now).await;
            let ahead = store.archives_lost_with(scope, &selector, &[], now).await.unwrap();
            let before = keys(store, scope).await;
            let gone = store.erase_entries(scope, &selector, false, now).await;
            let facts = store.erase_facts(scope, &selector, &[], false, now).await;
            assert_eq!(before - keys(store, scope).await, ahead, "as was counted ahead");
            format!("{dry:?} {gone:?} {facts:?} {ahead}")
        }
        Act::Draw(batch) => format!("{:?}", store.put_facts(scope, batch).await),
        Act::Judge(verdict) => format!("{:?}", store.put_verdict(scope, verdict).await),
        Act::EraseFacts(selector, quoting) => {
            let dry = store.erase_facts(scope, &selector, &quoting, true, NOW).await;
            let ahead = store.archives_lost_with(scope, &selector, &quoting, NOW).await;
            format!(
                "{dry:?} {ahead:?} {:?}",
                store.erase_facts(scope, &selector, &quoting, false, NOW).await
            )
        }
        Act::PutSecret(secret, rotate) => {
            format!("{:?}", store.put_secret(scope.tenant(), secret, rotate, NOW).await)
        }
        Act::Rewrite(rewrite) => format!("{:?}", store.rewrite(scope, rewrite).await),
        Act::Retell => {
            let told = store.rewrite_stored_text(scope.tenant(), Arc::clone(&RETELLING), NOW).await;
            format!("{told:?}")
        }
        Act::RemoveSecret(name) => {
            format!("{:?}", store.remove_secret(scope.tenant(), &name, NOW).await)
        }
        Act::Begin(run) => {
            let workspace = Principal::local_operator(scope.tenant().clone()).workspace();
            format!("{:?}", store.create_run(&workspace, run).await)
        }
        Act::Fork(fork) => format!("{:?}", store.fork_run(scope.tenant(), fork).await),
        Act::Advance(step) => format!("{:?}", store.step_run(scope.tenant(), step).await),
        Act::LetGo(at) => {
            let dry = store.erase_runs(scope.tenant(), at, NOW, true).await;
            let erased = store.erase_runs(scope.tenant(), at, NOW, at.0 == 3).await;
            let expired = store.expire_runs(at, NOW, 2).await;
            let runs = store.purge_runs(NOW, 1).await;
            let commitments = store.purge_commitments(at, 99).await;
            format!("{dry:?} {erased:?} {expired:?} {runs:?} {commitments:?}")
        }
        Act::Dream(dream) => {
            let lease = Lease { holder: dream.holder.clone(), until: NOW };
            assert!(store.lease_dream(scope, lease, dream.now).await.unwrap());
            format!("{:?}", store.keep_dream(scope, *dream).await)
        }
        Act::Wake(last, how) => {
            let run = last.as_ref().map_or("none", |last| last.run.as_str()).to_owned();
            let output = last.as_ref().map_or("none", |last| last.output.as_str()).to_owned();
            let now = Millis(3);
            match how {
                0 | 1 => format!("{:?}", store.undo_dream(scope, &run, None, now).await),
                2 => {
                    let checksum = new_archive(1).checksum;
                    format!("{:?}", store.expire_archive(scope, checksum, now).await)
                }
                3 => format!("{:?}", store.end_entry(scope, &output, now).await),
                4 => {
                    let selector = Selector::Entry(output);
                    format!("{:?}", store.erase_entries(scope, &selector, false, now).await)
                }
                _ => match store.lost_dreams(1).await.unwrap().pop() {
                    Some(due) => format!("{:?}", store.settle_lost_dreams(&due).await),
                    None => "nothing was lost".to_owned(),
                },
            }
        }
        Act::HandOff(new) => format!("{:?}", store.put_handoff(scope, *new).await),
        Act::EditHandoff(edit) => format!("{:?}", store.edit_handoff(scope, edit).await),
        Act::Recall(recalled) => format!("{:?}", store.put_recalled(scope, recalled).await),
        Act::Count(usage) => format!("{:?}", store.put_usage(scope, usage).await),
        Act::Answer(answer) => format!("{:?}", store.put_answer(scope, answer).await),
        Act::Spend(spent) => format!("{:?}", store.add_spending(scope, spent).await),
        Act::Lease { fence, holder, at, gives_back } => {
            let until = Millis(at.0 + 3);
            let taken = store.lease(&fence.name, &holder, until, at).await;
            let written = store.fenced(fence.clone()).add_spending(scope, Vec::new()).await;
            let released = match gives_back {
                true => store.release(&fence).await,
                false => Ok(()),
            };
            format!("{taken:?} {written:?} {released:?}")
        }
        Act::Commit(new) => masked(format!("{:?}", store.put_commitment(scope, new).await)),
        Act::Fulfil(id, how) => {
            let tenant = scope.tenant();
            masked(match how {
                0 => format!("{:?}", store.cancel_commitment(tenant, &id, Millis(3)).await),
                1 => {
                    let through = store.head(tenant).await.unwrap();
                    let because = "entry-1".to_owned();
                    let fulfilled = vec![Fulfilled { commitment: id, because }];
                    let look = Look { through, fulfilled, now: NOW };
                    let fired = store.look_through(scope, &look).await.unwrap();
                    format!("{fired:?}").replace("\\\"", "\"")
                }
                _ => {
                    let because = (how == 2).then_some("entry-1");
                    let fired = store.fire_commitment(tenant, &id, because, NOW).await.unwrap();
                    format!("{fired:?}").replace("\\\"", "\"")
                }
            })
        }
    }
}

/// How many archives of a memory have their keys.
async fn keys(store: &Store, scope: &Scope) -> u64 {
    let found = store.archives(Some(scope.tenant())).await.unwrap();
    found.iter().filter(|one| one.scope == *scope && one.key.is_some()).count() as u64
}

// Looking

/// Everything that can be read, a line each.
async fn view(store: &Store) -> Vec<String> {
    let mut lines = Vec::new();
    let mut see = |what: String| lines.push(what);
    see(format!("{:?}", store.tenants().await.unwrap()));
    see(format!("{:?}", unsettled(store).await));
    for pack in store.packs(None).await.unwrap() {
        see(format!("{pack:?} {:?}", pack.key.as_bytes()));
    }
    see(format!("{:?}", store.packs_older_than(Millis(999), 2).await.unwrap()));
    see(format!("{:?}", store.crowded_memories(2, Millis(3), NOW, 9).await.unwrap()));
    see(format!("{:?}", store.unfinished_runs(3).await.unwrap()));
    for archive in store.archives(None).await.unwrap() {
        see(format!("{archive:?} {:?}", archive.key.as_ref().map(PackKey::as_bytes)));
    }
    see(format!("{:?}", store.lost_dreams(2).await.unwrap()));
    see(format!("{:?}", store.lost_indexes(2).await.unwrap()));
    see(format!("{:?}", store.waiting_memories(None, &[], 3).await.unwrap()));
    let after = tenant("acme");
    see(format!("{:?}", store.waiting_memories(Some(&after), &[], 3).await.unwrap()));
    // Of those of one moment the ids decide, which are not the same.
    for moment in [0, 1] {
        see(format!("{:?}", store.due_commitments(Millis(moment), 99).await.unwrap().len()));
    }
    for tenant in [tenant("acme"), tenant("rival")] {
        see(format!("{:?}", store.head(&tenant).await.unwrap()));
        see(format!("{:?}", store.scopes(&tenant).await.unwrap()));
        for day in 0..3 {
            see(format!("{:?}", store.tenant_usage(&tenant, day).await.unwrap()));
        }
        let secrets = store.secrets(&tenant).await.unwrap();
        let values: Vec<&str> = secrets.secrets.iter().map(Secret::value).collect();
        see(format!("{} {secrets:?} {values:?}", store.secrets_version(&tenant).await.unwrap()));
        see(format!("{:?}", store.secret_records(&tenant).await.unwrap()));
        for memory in [None, Some("notes"), Some("diary")] {
            see(format!("{:?}", store.spending(&tenant, memory, 1).await.unwrap()));
            let mut stats = store.stats(&tenant, memory, NOW).await.unwrap();
            // Kept compressed in one of them.
            (stats.tier_bytes, stats.summary_bytes) = ([stats.tier_bytes[0], 0, 0], 0);
            see(format!("{stats:?}"));
            let tiers: u64 = stats.tier_turns.iter().sum();
            assert_eq!((tiers, stats.tier_tokens.iter().sum()), (stats.turns, stats.tokens));
            see(format!("{}", store.unsettled_count(Some(&tenant), memory).await.unwrap()));
            let beside = store.unsettled_beside(std::slice::from_ref(&tenant), 2).await.unwrap();
            see(format!("{beside:?}"));
            for after in [0, 7] {
                for event in store.events(&tenant, memory, Position(after), 50).await.unwrap() {
                    see(masked(format!("{event:?}").replace("\\\"", "\"")));
                }
            }
            let session = Selector::Session(session_name("session-0"));
            for selector in [session, subject("name-0"), Selector::Before(Millis(2))] {
                see(format!("{:?}", store.select(&tenant, memory, &selector).await.unwrap()));
            }
        }
        for id in ["run-0", "run-1", "run-2", "run-3"] {
            see(format!("{:?}", store.run(&tenant, id).await.unwrap()));
            see(format!("{:?}", store.run_events(&tenant, id, None, 99).await.unwrap()));
            see(format!("{:?}", store.run_events(&tenant, id, Some(1), 2).await.unwrap()));
        }
        for (memory, state) in [(None, None), (Some("diary"), Some(CommitmentState::Pending))] {
            let memory = memory.map(str::to_owned);
            let query = CommitmentQuery { memory, state, ..CommitmentQuery::newest(9) };
            let made = store.commitments(&tenant, &query).await.unwrap();
            if let Some(first) = made.first() {
                let query = CommitmentQuery { before: Some(first.id.clone()), ..query };
                let before = store.commitments(&tenant, &query).await.unwrap();
                see(masked(format!("{before:?}")));
            }
            see(masked(format!("{made:?}")));
        }
        for (memory, before) in [(None, None), (Some("notes"), Some(Position(30)))] {
            let memory = memory.map(str::to_owned);
            let query = DreamQuery { memory, in_force: false, before, limit: 9 };
            for dream in store.dreams(&tenant, &query).await.unwrap() {
                assert_eq!(store.dream(&tenant, &dream.run).await.unwrap(), Some(dream.clone()));
                see(format!("{dream:?}"));
            }
        }
        see(format!("{:?}", store.dreamt_tokens(&tenant, Millis(3)).await.unwrap()));
        let checksum = new_archive(1).checksum;
        see(format!("{:?}", store.archives_at(&tenant, checksum).await.unwrap()));
        let workspace = Principal::local_operator(tenant.clone()).workspace();
        see(format!("{:?}", store.files(&workspace, "").await.unwrap()));
        for key in ["0", "1", "2"] {
            see(format!("{:?}", store.outcome(&tenant, "POST /turns", key, NOW).await.unwrap()));
            see(format!("{:?}", store.outcome(&tenant, "POST /entries", key, NOW).await.unwrap()));
        }
    }
    for scope in scopes() {
        for key in 0..4_u8 {
            see(format!("{:?}", store.answer(&scope, &[key; 32]).await.unwrap()));
        }
        see(masked(format!("{:?}", store.watch(&scope).await.unwrap())));
        for at in [None, Some(Position(9))] {
            for tag in [None, Some(text("subject:name-1"))] {
                let filter = EntryFilter { at, tag, own: Vec::new() };
                see(format!("{:?}", store.entries(&scope, &filter, NOW, 9).await));
                see(format!("{:?}", store.entry_places(&scope, &filter, NOW).await));
            }
            see(format!("{:?}", store.entry(&scope, "entry-1", at, NOW).await));
        }
        let first = store.undreamt_branches(&scope, None, 1).await.unwrap();
        let after = first.last().map(|one| (one.session, one.branch));
        let rest = store.undreamt_branches(&scope, after, 9).await.unwrap();
        see(format!("{first:?} {rest:?}"));
        for now in [Millis(3), NOW] {
            let first = store.undreamt_entries(&scope, None, now, 2).await.unwrap();
            let after = first.last().copied();
            let rest = store.undreamt_entries(&scope, after, now, 99).await.unwrap();
            see(format!("{first:?} {rest:?}"));
            let first = store.oldest_places(&scope, None, now, 3).await.unwrap();
            let rest = store.oldest_places(&scope, first.last().copied(), now, 99).await.unwrap();
            see(format!("{first:?} {rest:?}"));
            let kept = store.entries_after(&scope, Position(0), now, 99).await.unwrap();
            for entry in &kept {
                see(format!("{:?}", store.sources_of(&scope, &entry.id, now).await.unwrap()));
            }
            let own = kept.into_iter().map(|entry| entry.id).collect();
            let filter = EntryFilter { at: Some(Position(5)), tag: None, own };
            see(format!("{:?}", store.entries(&scope, &filter, now, 9).await));
        }
        view_recall(store, &scope).await.into_iter().for_each(&mut see);
        see(format!("{:?}", store.sessions(&scope, None, 9).await.unwrap()));
        see(format!("{:?}", store.recent_sessions(&scope, 2).await.unwrap()));
        // Forgotten ones too.
        for no in (1..6).map(SessionNo) {
            if let Some(session) = store.session_by_number(&scope, no).await.unwrap() {
                view_session(store, &scope, &session).await.into_iter().for_each(&mut see);
            }
        }
    }
    lines
}

/// What an index of the scope would read.
async fn view_recall(store: &Store, scope: &Scope) -> Vec<String> {
    let mut lines = vec![format!("{:?}", store.scope_head(scope).await.unwrap())];
    for (after, limit) in [(0, 99), (5, 3)] {
        let position = Position(after);
        lines.push(format!("{:?}", store.turns_after(scope, position, limit).await.unwrap()));
        let entries = store.entries_after(scope, position, NOW, limit).await.unwrap();
        lines.push(format!("{entries:?}"));
        lines.push(format!("{:?}", store.summaries_after(scope, after, limit).await.unwrap()));
        lines.push(format!("{:?}", store.facts_after(scope, after, limit).await.unwrap()));
    }
    let positions = [9, 3, 12, 6].map(Position);
    for at in [None, Some(Position(9))] {
        let filter = EntryFilter { at, ..EntryFilter::default() };
        lines.push(format!("{:?}", store.entries_at(scope, &positions, &filter, NOW).await));
    }
    let turn = |(session, seq)| TurnId { session: SessionNo(session), seq: Seq(seq) };
    let turns = [(2, 1), (1, 7), (1, 2), (3, 1)].map(turn);
    lines.push(format!("{:?}", store.turns_at(scope, &turns).await.unwrap()));
    for known in 1..=4 {
        for pick in 0..1_usize << known {
            let messages: Vec<&str> = (0..known).map(|at| MESSAGES[pick >> at & 1]).collect();
            let links = chain(&messages);
            let last = &links[known - 1..];
            lines.push(format!("{:?}", store.linked(scope, last, None).await.unwrap()));
            let one = Some(SessionNo(1));
            lines.push(format!("{:?}", store.linked(scope, last, one).await.unwrap()));
            for no in [1, 2, 3].map(SessionNo) {
                lines.push(format!("{:?}", store.recalled(scope, no, last).await.unwrap()));
            }
        }
    }
    lines.push(format!("{:?}", store.places(scope, &turns).await.unwrap()));
    let chunk = |(session, level, first)| {
        (SessionNo(session), Branch::MAIN, Level::ALL[level], Ordinal(first))
    };
    let chunks = [(1, 1, 5), (2, 0, 1), (1, 0, 3), (1, 2, 1)].map(chunk);
    lines.push(format!("{:?}", store.chunks_at(scope, &chunks).await.unwrap()));
    lines.push(format!("{:?}", store.facts_through(scope).await.unwrap()));
    lines.push(format!("{:?}", store.facts(scope).await.unwrap()));
    lines.push(format!("{:?}", store.facts_at(scope, &[4, 1, 2]).await.unwrap()));
    lines.push(format!("{:?}", store.verdicts(scope).await.unwrap()));
    lines
}

async fn view_session(store: &Store, scope: &Scope, session: &SessionRecord) -> Vec<String> {
    let no = session.no;
    let mut lines = vec![format!("{session:?}")];
    for row in store.turns(scope, &TurnQuery::all(no, 999)).await.unwrap() {
        lines.push(format!("{row:?}"));
    }
    let query = TurnQuery {
        after: Seq(1),
        as_of: Some(Position(20)),
        newest: true,
        branch: Some(Branch::MAIN),
        ..TurnQuery::all(no, 3)
    };
    lines.push(format!("{:?}", store.turns(scope, &query).await.unwrap()));
    let lookup = key().lookup_of_id("id-1");
    lines.push(format!("{:?}", store.turns_by_lookup(scope, no, lookup).await.unwrap()));
    lines.push(format!("{:?}", store.handoffs(scope, no).await.unwrap()));
    for branch in session.branches.iter().map(|branch| branch.branch) {
        let path = path_of(session, branch);
        lines.push(format!("{:?}", store.handoff(scope, no, &path).await.unwrap()));
        for model in ["model 0", "model 1"] {
            lines.push(format!("{:?}", store.usage(scope, no, branch, model).await.unwrap()));
        }
        for level in Level::ALL {
            let query = ChunkQuery::all(no, branch, level, 99);
            for chunk in store.chunks(scope, &query).await.unwrap() {
                lines.push(format!("{chunk:?}"));
            }
        }
        for (first, last) in [(1, 99), (3, 5)] {
            let (first, last) = (Ordinal(first), Ordinal(last));
            for body in store.bodies(scope, no, branch, first, last).await.unwrap() {
                lines.push(format!("{body:?}"));
            }
        }
        let places = [17, 3, 8, 4, 1].map(|at| (no, branch, Ordinal(at)));
        for body in store.bodies_at(scope, &places).await.unwrap() {
            lines.push(format!("{body:?}"));
        }
    }
    lines
}

/// A line with ids of ours as they come, for each store makes its own.
fn numbered(line: &str) -> String {
    numbered_of("h-", &numbered_of("e-", line))
}

fn numbered_of(prefix: &str, line: &str) -> String {
    const HEX: usize = 20;
    let mut known: Vec<&str> = Vec::new();
    let mut parts = line.split(prefix);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let id = part.get(..HEX).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(id) = id else {
            plain += &format!("{prefix}{part}");
            continue;
        };
        let number = known.iter().position(|other| *other == id).unwrap_or(known.len());
        if number == known.len() {
            known.push(id);
        }
        plain += &format!("{prefix}{number}{}", &part[HEX..]);
    }
    plain
}

fn assert_same(tried: &[String], reference: &[String], when: &str) {
    for (is, should_be) in tried.iter().zip(reference) {
        assert_eq!(numbered(is), numbered(should_be), "{when}");
    }
    assert_eq!(tried.len(), reference.len(), "{when}");
}

/// Runs a history, begun with some plain turns, on both. A step marked late is put together before the one
/// ahead of it is done, as by a worker that was overtaken.
async fn run(tried: &Store, plain: usize, steps: &[(bool, Step)]) -> Vec<String> {
    let reference = Store::in_memory([1; 32]);
    for store in [tried, &reference] {
        add(store, "session-0", &say_many(plain)).await;
    }
    let mut late: Option<(usize, Act, Act)> = None;
    for (number, (is_late, step)) in steps.iter().enumerate() {
        let acts = match late.take().filter(|(prepared, _, _)| *prepared == number) {
            Some((_, a, b)) => (a, b),
            None => (prepare(tried, number, step).await, prepare(&reference, number, step).await),
        };
        if let Some((true, next)) = steps.get(number + 1) {
            let (a, b) =
                (prepare(tried, number, next).await, prepare(&reference, number, next).await);
            late = Some((number + 1, a, b));
        }
        let scope = scope_of_step(step);
        let is = perform(tried, &scope, acts.0).await;
        let should_be = perform(&reference, &scope, acts.1).await;
        assert_same(&[is], &[should_be], &format!("step {number} (late: {is_late}): {step:?}"));
    }
    let should_be = view(&reference).await;
    assert_same(&view(tried).await, &should_be, "at the end");
    clean(tried).await;
    clean(&reference).await;
    should_be
}

/// Random histories, for tests elsewhere.
pub(crate) fn histories() -> impl Strategy<Value = (usize, Vec<Step>)> {
    (0_usize..24, prop::collection::vec(step(), 5..48))
}

/// Lives one of them.
pub(crate) async fn live(store: &Store, plain: usize, steps: &[Step]) {
    add(store, "session-0", &say_many(plain)).await;
    for (number, step) in steps.iter().enumerate() {
        let act = prepare(store, number, step).await;
        perform(store, &scope_of_step(step), act).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        max_shrink_iters: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_file_is_like_memory(
        plain in 0_usize..24,
        steps in prop::collection::vec((prop::bool::weighted(0.3), step()), 5..48),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), None).unwrap();
        let should_be = runtime.block_on(run(&open(), plain, &steps));
        assert_same(&runtime.block_on(view(&open())), &should_be, "opened again");
    }
}

#[cfg(feature = "postgres")]
proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8,
        max_shrink_iters: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn postgres_is_like_sqlite(
        plain in 0_usize..24,
        steps in prop::collection::vec((prop::bool::weighted(0.3), step()), 5..48),
    ) {
        use crate::testing::postgres::prepared_database;
        use crate::PostgresOptions;
        let Some(database) = prepared_database() else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let open = || {
            let (options, key) = (PostgresOptions::default(), "1a".repeat(32));
            Store::connect(database.url(), options, &key).unwrap()
        };
        let should_be = runtime.block_on(run(&open(), plain, &steps));
        assert_same(&runtime.block_on(view(&open())), &should_be, "opened again");
    }
}
