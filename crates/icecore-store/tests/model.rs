//! The store beside a small model of what it promises about turns: their order, their
//! identity, the branches they lie on, the cuts they complete, and what an erasure leaves.
//!
//! The model is written from the contract alone and shares no code with the store. Random
//! histories run on both, and after every step everything that the model knows must be
//! what the store answers.

#![cfg(test)]

use std::collections::BTreeMap;

use icecore_domain::chunk::Level;
use icecore_domain::cut::CutPolicy;
use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{
    Branch, Ordinal, Position, Principal, Scope, Seq, SessionName, SessionNo, Tenant, TurnId,
};
use icecore_domain::redact::{Hidden, Redactor};
use icecore_domain::time::Millis;
use icecore_domain::turn::{Content, RawTurn};
use icecore_store::{
    AppendBatch, BodyPlace, ChunkQuery, Erasure, NewTurn, Outcome, ParentRef, Store, TurnQuery,
    TurnState,
};
use proptest::prelude::*;

/// Small enough that a few turns complete chunks of every level.
const SIZES: CutPolicy =
    CutPolicy { micro_turns: 3, mini_turns: 5, macro_turns: 10, micro_max_tokens: 100 };

const NOW: Millis = Millis(1_700_000_000_000);

const SESSIONS: [&str; 2] = ["one", "two"];

// What happens

/// A turn to append. Small numbers stand for ids and texts, so that they meet.
#[derive(Debug, Clone)]
struct Draw {
    id: Option<u8>,
    text: u8,
    tokens: u32,
    /// For a turn without id: the caller counted so many with this text.
    occurrence: u32,
    /// The id of the turn that it follows, for a turn without id.
    parent: Option<u8>,
}

#[derive(Debug, Clone)]
enum Step {
    Append {
        session: usize,
        turns: Vec<Draw>,
        insist: bool,
    },
    /// Erases the turns of one branch at these places, modulo how many there are.
    Erase {
        session: usize,
        branch: u8,
        picks: Vec<u8>,
    },
}

fn draw() -> impl Strategy<Value = Draw> {
    let id = prop::option::weighted(0.5, 0..6_u8);
    let parent = prop::option::weighted(0.2, 0..6_u8);
    (id, 0..4_u8, 1..60_u32, 0..3_u32, parent).prop_map(|(id, text, tokens, occurrence, parent)| {
        let parent = parent.filter(|_| id.is_none());
        let occurrence = if id.is_some() || parent.is_some() { 0 } else { occurrence };
        Draw { id, text, tokens, occurrence, parent }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let session = 0..SESSIONS.len();
    prop_oneof![
        4 => (session.clone(), prop::collection::vec(draw(), 1..9), any::<bool>())
            .prop_map(|(session, turns, insist)| Step::Append { session, turns, insist }),
        1 => (session, 0..3_u8, prop::collection::vec(any::<u8>(), 1..4))
            .prop_map(|(session, branch, picks)| Step::Erase { session, branch, picks }),
    ]
}

// The model

#[derive(Debug, Clone, Default)]
struct Model {
    sessions: BTreeMap<usize, Session>,
    /// The tenant's last position.
    position: u64,
    epoch: u64,
}

#[derive(Debug, Clone, Default)]
struct Session {
    turns: Vec<Turn>,
    branches: Vec<Tail>,
    /// The branch that a turn without parents goes on.
    current: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct Turn {
    id: Option<u8>,
    text: u8,
    parent: Option<u8>,
    tokens: u32,
    branch: usize,
    ordinal: u64,
    is_erased: bool,
}

/// The open end of a branch, and the chunks behind it.
#[derive(Debug, Clone, Default)]
struct Tail {
    length: u64,
    micro: u64,
    micro_tokens: u32,
    mini: u64,
    /// Level, first and last ordinal, in the order of the cuts.
    chunks: Vec<(Level, u64, u64)>,
}

/// What became of a turn: its outcome, and where it lies.
type Fate = (Outcome, usize, usize, u64);

impl Session {
    /// What a batch does to the session; `None` if it is refused as a whole.
    fn append(&mut self, batch: &[Draw], insist: bool) -> Option<Vec<Fate>> {
        batch.iter().map(|turn| self.append_one(turn, insist)).collect()
    }

    fn append_one(&mut self, turn: &Draw, insist: bool) -> Option<Fate> {
        if let Some((outcome, at)) = self.recognise(turn, insist)? {
            let known = &self.turns[at];
            return Some((outcome, at + 1, known.branch, known.ordinal));
        }
        let branch = self.branch_for(turn)?;
        if self.branches.len() == branch {
            self.branches.push(Tail::default());
        }
        let ordinal = self.branches[branch].push(turn.tokens);
        self.current = branch;
        let Draw { id, text, parent, tokens, .. } = *turn;
        self.turns.push(Turn { id, text, parent, tokens, branch, ordinal, is_erased: false });
        Some((Outcome::Added, self.turns.len(), branch, ordinal))
    }

    /// The stored turn that this one is. The outer `None` refuses it: its id is taken by a
    /// turn that says something else.
    fn recognise(&self, turn: &Draw, insist: bool) -> Option<Option<(Outcome, usize)>> {
        let places = |is_wanted: &dyn Fn(&Turn) -> bool| {
            let found = self.turns.iter().enumerate().filter(|(_, known)| is_wanted(known));
            found.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let asked = (turn.id, turn.text, turn.parent);
        let is_same = |known: &Turn| (known.id, known.text, known.parent) == asked;
        let nth = match (turn.id, turn.occurrence) {
            (Some(id), _) => {
                let is_other = |known: &Turn| {
                    known.id == Some(id) && known.text != turn.text && !known.is_erased
                };
                if !places(&is_other).is_empty() {
                    return None;
                }
                0
            }
            (None, 0) => return Some(None),
            (None, counted) => counted as usize - 1,
        };
        let present = places(&|known| is_same(known) && !known.is_erased);
        let erased = places(&|known| is_same(known) && known.is_erased);
        let known = present.get(nth).map(|at| (Outcome::Known, *at));
        let forgotten = || {
            let at = erased.get(nth.checked_sub(present.len())?)?;
            (!insist).then_some((Outcome::Forgotten, *at))
        };
        Some(known.or_else(forgotten))
    }

    fn erase(&mut self, at: usize) {
        let turn = &mut self.turns[at];
        turn.is_erased = true;
        // What is gone does not fill the open micro.
        let tail = &mut self.branches[turn.branch];
        if turn.ordinal > tail.micro {
            tail.micro_tokens -= turn.tokens;
        }
    }

    /// The branch that a new turn lies on. `None`: the parent that it names is not there.
    fn branch_for(&self, turn: &Draw) -> Option<usize> {
        let Some(parent) = turn.parent else { return Some(self.current) };
        let bearers = || self.turns.iter().filter(|known| known.id == Some(parent));
        let present = bearers().rfind(|known| !known.is_erased);
        let parent = present.or_else(|| bearers().next_back())?;
        let is_head = self.branches[parent.branch].length == parent.ordinal;
        Some(if is_head { parent.branch } else { self.branches.len() })
    }
}

impl Tail {
    /// Adds a turn, cuts the chunks that it completes, and answers its ordinal.
    fn push(&mut self, tokens: u32) -> u64 {
        // One that would burst the open micro leaves it to those before.
        if self.length > self.micro && self.micro_tokens + tokens > SIZES.micro_max_tokens {
            self.cut_micro();
        }
        self.length += 1;
        self.micro_tokens += tokens;
        let is_mini = self.length - self.mini == u64::from(SIZES.mini_turns);
        let is_full = self.length - self.micro == u64::from(SIZES.micro_turns);
        if is_mini || is_full || self.micro_tokens >= SIZES.micro_max_tokens {
            self.cut_micro();
        }
        if is_mini {
            self.chunks.push((Level::Mini, self.mini + 1, self.length));
            self.mini = self.length;
        }
        if self.length.is_multiple_of(u64::from(SIZES.macro_turns)) {
            let first = self.length + 1 - u64::from(SIZES.macro_turns);
            self.chunks.push((Level::Macro, first, self.length));
        }
        self.length
    }

    fn cut_micro(&mut self) {
        self.chunks.push((Level::Micro, self.micro + 1, self.length));
        (self.micro, self.micro_tokens) = (self.length, 0);
    }
}

// The store

struct Host {
    store: Store,
    redactor: Redactor,
    key: IdentityKey,
    scope: Scope,
    numbers: BTreeMap<usize, SessionNo>,
}

impl Host {
    fn new(store: Store) -> Self {
        let redactor = Redactor::standard();
        let tenant = Tenant::new("acme").unwrap();
        let scope = Principal::local_operator(tenant).scope(redactor.text("notes")).unwrap();
        let (key, numbers) = (IdentityKey::new([9; 32]), BTreeMap::new());
        Self { store, redactor, key, scope, numbers }
    }

    fn turn(&self, draw: &Draw) -> NewTurn {
        let mut raw = RawTurn::new("user", text_of(draw.text));
        raw.id = draw.id.map(name_of);
        raw.parent_ids = draw.parent.map(|parent| vec![name_of(parent)]);
        let parent = |id: &String| ParentRef {
            shown: id.clone(),
            lookup: self.key.lookup_of_id(id),
            ours: None,
        };
        NewTurn {
            identity: self.key.identify(&raw),
            parents: raw.parent_ids.iter().flatten().map(parent).collect(),
            turn: self.redactor.turn(raw),
            speaker: None,
            tokens: draw.tokens,
            at: NOW,
            occurrence: draw.occurrence,
            session_given: false,
            hidden: Hidden::new(),
            link: None,
            is_answer: false,
            is_hollow: false,
        }
    }

    async fn append(&mut self, session: usize, turns: &[Draw], insist: bool) -> Option<Vec<Fate>> {
        let batch = AppendBatch {
            session: SessionName::new(self.redactor.text(SESSIONS[session])).unwrap(),
            turns: turns.iter().map(|turn| self.turn(turn)).collect(),
            after: None,
            insist,
            policy: SIZES,
            now: NOW,
            claim: None,
            secrets_seen: 1,
        };
        let appended = self.store.append(&self.scope, batch).await.ok()?;
        self.numbers.insert(session, appended.session);
        let fates = appended.turns.iter().map(|turn| {
            let (seq, branch) = (turn.seq.0 as usize, turn.branch.0 as usize);
            (turn.outcome, seq, branch, turn.ordinal.0)
        });
        Some(fates.collect())
    }

    async fn erase(&self, session: usize, branch: usize, seqs: Vec<Seq>) {
        let (session, branch) = (self.numbers[&session], Branch(branch as u32));
        let rows = self.rows(session).await;
        let goes = |seq: &Seq| seqs.contains(seq);
        let last = Ordinal(u64::MAX >> 1);
        let bodies =
            self.store.bodies(&self.scope, session, branch, Ordinal(1), last).await.unwrap();
        let (mut micros, mut emptied) = (Vec::new(), Vec::new());
        for body in bodies {
            assert!(matches!(body.place, BodyPlace::Rows), "nothing was demoted");
            let inside = rows.iter().filter(|row| {
                row.branch == branch && (body.id.first..=body.id.last).contains(&row.ordinal)
            });
            let inside: Vec<_> = inside.collect();
            if inside.iter().any(|row| goes(&row.id.seq)) {
                micros.push((body.id, body.revision, None));
                let is_left = |row: &&&icecore_store::TurnRow| {
                    row.state == TurnState::Present && !goes(&row.id.seq)
                };
                if !inside.iter().any(|row| is_left(&row)) {
                    emptied.push((body.id.first, body.id.last));
                }
            }
        }
        let (packs, forget_name, now) = (Vec::new(), false, NOW);
        let erasure = Erasure { session, branch, seqs, emptied, forget_name, micros, packs, now };
        assert!(self.store.erase(&self.scope, erasure).await.unwrap());
    }

    async fn rows(&self, session: SessionNo) -> Vec<icecore_store::TurnRow> {
        self.store.turns(&self.scope, &TurnQuery::all(session, 10_000)).await.unwrap()
    }

    /// Compares all that the model knows with what the store answers.
    async fn compare(&self, model: &Model) {
        let head = self.store.scope_head(&self.scope).await.unwrap();
        assert_eq!(head.epoch, model.epoch, "the epoch rises with every erasure");
        let tenant_head = self.store.head(self.scope.tenant()).await.unwrap();
        assert_eq!(tenant_head, Position(model.position));
        let mut positions = Vec::new();
        for (name, session) in &model.sessions {
            let number = self.numbers[name];
            let rows = self.rows(number).await;
            assert_eq!(rows.len(), session.turns.len());
            for (at, (row, turn)) in rows.iter().zip(&session.turns).enumerate() {
                assert_eq!(row.id, TurnId { session: number, seq: Seq(at as u64 + 1) });
                assert_eq!(row.branch, Branch(turn.branch as u32));
                assert_eq!(row.ordinal, Ordinal(turn.ordinal));
                assert_eq!(row.state == TurnState::Erased, turn.is_erased);
                let text = row.body.as_ref().map(|body| &body.fields().content);
                let expected = (!turn.is_erased).then(|| Content::Text(text_of(turn.text)));
                assert_eq!(text, expected.as_ref(), "of seq {}", row.id.seq);
            }
            assert!(rows.is_sorted_by(|one, next| one.position < next.position));
            positions.extend(rows.iter().map(|row| row.position));
            self.compare_chunks(number, session).await;
        }
        positions.sort();
        positions.dedup();
        let count: usize = model.sessions.values().map(|session| session.turns.len()).sum();
        assert_eq!(positions.len(), count, "no two turns share a position");
        assert!(positions.last().is_none_or(|last| *last <= tenant_head));
    }

    async fn compare_chunks(&self, number: SessionNo, session: &Session) {
        for (branch, tail) in session.branches.iter().enumerate() {
            for level in Level::ALL {
                let query = ChunkQuery::all(number, Branch(branch as u32), level, 10_000);
                let chunks = self.store.chunks(&self.scope, &query).await.unwrap();
                let expected: Vec<_> = tail.chunks.iter().filter(|(of, ..)| *of == level).collect();
                assert_eq!(chunks.len(), expected.len(), "{level:?} of branch {branch}");
                for (chunk, (_, first, last)) in chunks.iter().zip(expected) {
                    assert_eq!((chunk.id.first.0, chunk.id.last.0), (*first, *last));
                    let left = session.turns.iter().filter(|turn| {
                        let is_inside = (*first..=*last).contains(&turn.ordinal);
                        turn.branch == branch && is_inside && !turn.is_erased
                    });
                    let (count, tokens) =
                        left.fold((0, 0), |(n, sum), turn| (n + 1, sum + u64::from(turn.tokens)));
                    assert_eq!((chunk.turns, chunk.tokens), (count, tokens), "{:?}", chunk.id);
                }
            }
        }
    }
}

fn text_of(text: u8) -> String {
    format!("text {text}")
}

fn name_of(id: u8) -> String {
    format!("id-{id}")
}

/// Runs one history on the model and on a store.
async fn run(store: Store, steps: Vec<Step>) {
    let (mut model, mut host) = (Model::default(), Host::new(store));
    for step in steps {
        match step {
            Step::Append { session, turns, insist } => {
                let mut next = model.sessions.get(&session).cloned().unwrap_or_default();
                let expected = next.append(&turns, insist);
                let found = host.append(session, &turns, insist).await;
                assert_eq!(found, expected, "{turns:?}");
                let is_added = |fate: &&Fate| fate.0 == Outcome::Added;
                let added = expected.iter().flatten().filter(is_added).count();
                model.position += added as u64;
                if expected.is_some() {
                    model.sessions.insert(session, next);
                }
            }
            Step::Erase { session, branch, picks } => {
                let Some(known) = model.sessions.get_mut(&session) else { continue };
                let branch = usize::from(branch) % known.branches.len();
                let own: Vec<usize> = (0..known.turns.len())
                    .filter(|at| known.turns[*at].branch == branch && !known.turns[*at].is_erased)
                    .collect();
                let mut picked: Vec<usize> = picks
                    .iter()
                    .filter_map(|pick| own.get(usize::from(*pick).checked_rem(own.len())?))
                    .copied()
                    .collect();
                picked.sort_unstable();
                picked.dedup();
                if picked.is_empty() {
                    continue;
                }
                let seqs = picked.iter().map(|at| Seq(*at as u64 + 1)).collect();
                host.erase(session, branch, seqs).await;
                for at in picked {
                    known.erase(at);
                }
                model.epoch += 1;
            }
        }
        host.compare(&model).await;
    }
    assert_eq!(host.store.check().await.unwrap(), Vec::<String>::new());
}

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_says(steps in prop::collection::vec(step(), 1..25)) {
        block_on(run(Store::in_memory([4; 32]), steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn so_does_a_store_on_disk(steps in prop::collection::vec(step(), 1..15)) {
        let dir = tempfile::tempdir().unwrap();
        block_on(run(Store::open(dir.path(), None).unwrap(), steps));
    }
}
