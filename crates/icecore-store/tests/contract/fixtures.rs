//! Turns to add, and the moves that a worker would make.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::cut::CutPolicy;
use icecore_domain::fact::{FactKind, RedactedFact};
use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{
    Branch, Ordinal, Principal, Scope, Seq, SessionName, SessionNo, Tenant, TurnId,
};
use icecore_domain::redact::{Hidden, RedactedText, Redactor, Secret, SecretName, TagKey};
use icecore_domain::summary::{RedactedSummary, Summary};
use icecore_domain::time::Millis;
use icecore_domain::turn::{Content, RawTurn};

use crate::error::Result;
use crate::error::StoreError;
use crate::pack::PackKey;
use crate::store::Store;
use crate::*;

/// Building one takes longer than most tests.
static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::standard);

/// Small sizes, so that a few turns make a pyramid.
pub(crate) const SMALL: CutPolicy =
    CutPolicy { micro_turns: 2, mini_turns: 4, macro_turns: 8, micro_max_tokens: 100 };

/// The time of every append, unless a test says otherwise.
pub(crate) const NOW: Millis = Millis(1_700_000_000_000);

pub(crate) fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

pub(crate) fn scope_of(tenant_name: &str, memory: &str) -> Scope {
    Principal::local_operator(tenant(tenant_name)).scope(text(memory)).unwrap()
}

/// The scope of most tests.
pub(crate) fn scope() -> Scope {
    scope_of("acme", "notes")
}

pub(crate) fn text(text: &str) -> RedactedText {
    REDACTOR.text(text)
}

pub(crate) fn session_name(name: &str) -> SessionName {
    SessionName::new(text(name)).unwrap()
}

pub(crate) fn secret(name: &str, value: &str) -> Secret {
    let value = zeroize::Zeroizing::new(value.to_owned());
    Secret::new(SecretName::new(name).unwrap(), value).unwrap()
}

/// The caller's key for identities. Stores take identities as given.
pub(crate) fn key() -> IdentityKey {
    IdentityKey::new([7; 32])
}

/// A turn in the making.
#[derive(Debug, Clone)]
pub(crate) struct Say {
    raw: RawTurn,
    tokens: u32,
    at: Millis,
    occurrence: u32,
    hidden: Hidden,
}

pub(crate) fn say(content: &str) -> Say {
    Say {
        raw: RawTurn::new("user", content),
        tokens: 10,
        at: NOW,
        occurrence: 0,
        hidden: Hidden::new(),
    }
}

/// Turns that each say something else.
pub(crate) fn say_many(count: usize) -> Vec<Say> {
    (1..=count).map(|n| say(&format!("line {n}"))).collect()
}

impl Say {
    pub(crate) fn id(mut self, id: &str) -> Self {
        self.raw.id = Some(id.to_owned());
        self
    }

    pub(crate) fn by(mut self, name: &str) -> Self {
        self.raw.name = Some(name.to_owned());
        self
    }

    pub(crate) fn after(mut self, parents: &[&str]) -> Self {
        self.raw.parent_ids = Some(parents.iter().map(|id| (*id).to_owned()).collect());
        self
    }

    pub(crate) fn nth(mut self, occurrence: u32) -> Self {
        self.occurrence = occurrence;
        self
    }

    pub(crate) fn tokens(mut self, tokens: u32) -> Self {
        self.tokens = tokens;
        self
    }

    pub(crate) fn hiding(mut self, kind: &str, count: u64) -> Self {
        self.hidden.insert(kind.to_owned(), count);
        self
    }

    pub(crate) fn at(mut self, at: i64) -> Self {
        self.at = Millis(at);
        self
    }

    pub(crate) fn turn(&self) -> NewTurn {
        let parent = |id: &String| ParentRef {
            shown: id.clone(),
            lookup: key().lookup_of_id(id),
            ours: TurnId::parse(id),
        };
        NewTurn {
            turn: REDACTOR.turn(self.raw.clone()),
            identity: key().identify(&self.raw),
            speaker: self.raw.name.as_ref().map(|name| key().hash_name("name", name)),
            parents: self.raw.parent_ids.iter().flatten().map(parent).collect(),
            tokens: self.tokens,
            at: self.at,
            occurrence: self.occurrence,
            session_given: false,
            hidden: self.hidden.clone(),
            link: None,
            is_answer: false,
            is_hollow: false,
        }
    }
}

pub(crate) fn batch(session: &str, turns: &[Say]) -> AppendBatch {
    AppendBatch {
        session: session_name(session),
        turns: turns.iter().map(Say::turn).collect(),
        after: None,
        insist: false,
        policy: SMALL,
        now: NOW,
        claim: None,
        secrets_seen: 1,
    }
}

pub(crate) async fn try_add(store: &Store, session: &str, turns: &[Say]) -> Result<Appended> {
    store.append(&scope(), batch(session, turns)).await
}

/// Adds turns in the usual scope, and answers the session's number.
pub(crate) async fn add(store: &Store, session: &str, turns: &[Say]) -> SessionNo {
    try_add(store, session, turns).await.unwrap().session
}

/// What became of each turn, as `Added 1 main, Known 2 fork-1`.
pub(crate) fn shown(appended: &Appended) -> String {
    let show = |turn: &AppendedTurn| format!("{:?} {} {}", turn.outcome, turn.seq, turn.branch);
    appended.turns.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// The error of an append in a few words.
pub(crate) fn refused(result: Result<Appended>) -> String {
    match result.unwrap_err() {
        StoreError::Conflict { index, id, .. } => format!("conflict {index} {id}"),
        StoreError::NoParent { index, parent, .. } => format!("no parent {index} {parent}"),
        StoreError::Cycle { index, id } => format!("cycle {index} {id}"),
        StoreError::ParentLater { index, parent } => format!("parent later {index} {parent}"),
        other => other.to_string(),
    }
}

pub(crate) async fn rows(store: &Store, session: SessionNo) -> Vec<TurnRow> {
    store.turns(&scope(), &TurnQuery::all(session, 10_000)).await.unwrap()
}

/// The text that a row says, while it is hot.
pub(crate) fn content(row: &TurnRow) -> String {
    match row.body.as_ref().map(|body| &body.fields().content) {
        Some(Content::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

pub(crate) async fn chunks(store: &Store, session: SessionNo, level: Level) -> Vec<ChunkRecord> {
    let query = ChunkQuery::all(session, Branch::MAIN, level, 10_000);
    store.chunks(&scope(), &query).await.unwrap()
}

/// Ranges of ordinals of all chunks of the main branch, as `1-2 3-4 / 1-4 /`.
pub(crate) async fn ranges(store: &Store, session: SessionNo) -> String {
    let mut shown = Vec::new();
    for level in Level::ALL {
        let ids = chunks(store, session, level).await;
        let ids: Vec<_> = ids.iter().map(|c| format!("{}-{}", c.id.first, c.id.last)).collect();
        shown.push(ids.join(" "));
    }
    shown.join(" / ")
}

pub(crate) async fn all_bodies(store: &Store, session: SessionNo) -> Vec<MicroBody> {
    let through = Ordinal(u64::MAX >> 1);
    store.bodies(&scope(), session, Branch::MAIN, Ordinal(1), through).await.unwrap()
}

/// Where the bodies of the main branch are, as `1-2 pack p1, 3-4 rows`.
pub(crate) async fn places(store: &Store, session: SessionNo) -> String {
    let show = |body: &MicroBody| {
        let place = match &body.place {
            BodyPlace::Rows => "rows".to_owned(),
            BodyPlace::Text(text) => format!("text {:?}", text.text.as_str()),
            BodyPlace::Pack(pack) => format!("pack {}", pack.name),
            BodyPlace::Gone => "gone".to_owned(),
        };
        format!("{}-{} {place}", body.id.first, body.id.last)
    };
    all_bodies(store, session).await.iter().map(show).collect::<Vec<_>>().join(", ")
}

pub(crate) async fn branch(store: &Store, session: SessionNo) -> BranchRecord {
    store.branch(&scope(), session, Branch::MAIN).await.unwrap().unwrap()
}

pub(crate) async fn stats(store: &Store) -> StoreStats {
    store.stats(scope().tenant(), Some(scope().memory()), NOW).await.unwrap()
}

/// Nothing is broken.
pub(crate) async fn clean(store: &Store) {
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

// Moves

pub(crate) fn text_body(body: &str) -> TextBody {
    TextBody { format: TextFormat::Ctf, text: text(body) }
}

/// What moves micros that are in rows and end at `through` or before. Their
/// text is a line a turn: its `seq` and what it says.
pub(crate) async fn warming(
    store: &Store,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    through: u64,
) -> Option<WarmDemotion> {
    let seen_through = store.branch(scope, session, branch).await.unwrap()?.warm_through;
    let first = Ordinal(seen_through.0 + 1);
    let bodies = store.bodies(scope, session, branch, first, Ordinal(through)).await.unwrap();
    let mut micros = Vec::new();
    for body in bodies.into_iter().filter(|body| body.id.last.0 <= through) {
        let query = TurnQuery {
            branch: Some(branch),
            after: Seq(body.first_seq.0 - 1),
            through: body.last_seq,
            ..TurnQuery::all(session, 10_000)
        };
        let mut lines = String::new();
        for row in store.turns(scope, &query).await.unwrap() {
            if row.state == TurnState::Present {
                writeln!(lines, "{} {}", row.id.seq, content(&row)).unwrap();
            }
        }
        let text = (!lines.is_empty()).then(|| text_body(&lines));
        micros.push((body.id, body.revision, text));
    }
    Some(WarmDemotion { session, branch, seen_through, micros })
}

pub(crate) async fn warm(store: &Store, session: SessionNo, through: u64) {
    let demotion = warming(store, &scope(), session, Branch::MAIN, through).await.unwrap();
    assert!(store.demote_to_warm(&scope(), demotion).await.unwrap());
}

pub(crate) fn new_pack(name: &str) -> NewPack {
    let key = PackKey::from_bytes([name.len() as u8; 32]);
    NewPack { name: name.to_owned(), key, bytes: 1000, sha256: [5; 32] }
}

/// What moves the next macro down.
pub(crate) async fn cooling(
    store: &Store,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    body: ColdBody,
) -> Option<ColdDemotion> {
    let seen_through = store.branch(scope, session, branch).await.unwrap()?.cold_through;
    let from = Ordinal(seen_through.0 + 1);
    let query = ChunkQuery { from, ..ChunkQuery::all(session, branch, Level::Macro, 1) };
    let id = store.chunks(scope, &query).await.unwrap().first()?.id;
    let bodies = store.bodies(scope, session, branch, id.first, id.last).await.unwrap();
    let micros = bodies.into_iter().map(|body| (body.id, body.revision)).collect();
    Some(ColdDemotion { id, seen_through, micros, body, now: NOW })
}

pub(crate) async fn cool(store: &Store, session: SessionNo, body: ColdBody) -> ChunkId {
    let demotion = cooling(store, &scope(), session, Branch::MAIN, body).await.unwrap();
    let id = demotion.id;
    assert!(store.demote_to_cold(&scope(), demotion).await.unwrap());
    id
}

/// What erases turns of a branch, as a caller would put it together.
pub(crate) async fn erasing(
    store: &Store,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    seqs: &[u64],
) -> Erasure {
    let query = TurnQuery { branch: Some(branch), ..TurnQuery::all(session, 10_000) };
    let own = store.turns(scope, &query).await.unwrap();
    let goes = |row: &TurnRow| seqs.contains(&row.id.seq.0);
    let is_left = |row: &TurnRow| row.state != TurnState::Erased && !goes(row);
    let inside = |row: &TurnRow, id: &ChunkId| (id.first..=id.last).contains(&row.ordinal);
    let through = Ordinal(u64::MAX >> 1);
    let bodies = store.bodies(scope, session, branch, Ordinal(1), through).await.unwrap();
    let (mut micros, mut emptied, mut packs) = (Vec::new(), Vec::new(), Vec::new());
    for body in bodies {
        if !own.iter().any(|row| goes(row) && inside(row, &body.id)) {
            continue;
        }
        if !own.iter().any(|row| is_left(row) && inside(row, &body.id)) {
            emptied.push((body.id.first, body.id.last));
        }
        let text = match body.place {
            BodyPlace::Text(body) => without(&body, seqs),
            BodyPlace::Pack(pack) => {
                let any_left = own.iter().any(|row| is_left(row) && inside(row, &pack.id));
                let next = any_left.then(|| new_pack(&format!("{}+", pack.name)));
                if !packs.iter().any(|(id, _, _)| *id == pack.id) {
                    packs.push((pack.id, pack.name, next));
                }
                None
            }
            BodyPlace::Rows | BodyPlace::Gone => None,
        };
        micros.push((body.id, body.revision, text));
    }
    let seqs = seqs.iter().map(|seq| Seq(*seq)).collect();
    Erasure { session, branch, seqs, emptied, forget_name: false, micros, packs, now: NOW }
}

fn without(body: &TextBody, seqs: &[u64]) -> Option<TextBody> {
    let goes = |line: &str| seqs.iter().any(|seq| line.starts_with(&format!("{seq} ")));
    let left: String =
        body.text.as_str().split_inclusive('\n').filter(|line| !goes(line)).collect();
    (!left.is_empty()).then(|| text_body(&left))
}

/// Erases turns of the main branch of a session in the usual scope.
pub(crate) async fn erase(store: &Store, session: SessionNo, seqs: &[u64]) {
    let erasure = erasing(store, &scope(), session, Branch::MAIN, seqs).await;
    assert!(store.erase(&scope(), erasure).await.unwrap());
}

pub(crate) fn summary(text: &str) -> RedactedSummary {
    let (themes, key_facts) = (vec!["theme".to_owned()], vec!["fact".to_owned()]);
    REDACTOR.summary(Summary { text: text.to_owned(), themes, key_facts }).unwrap()
}

/// Summaries of all chunks of a level of the main branch that have none.
pub(crate) async fn summing(store: &Store, session: SessionNo, level: Level) -> SummaryBatch {
    summing_of(store, &scope(), session, Branch::MAIN, level).await
}

pub(crate) async fn summing_of(
    store: &Store,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    level: Level,
) -> SummaryBatch {
    let record = store.branch(scope, session, branch).await.unwrap().unwrap();
    let seen_through = record.summarized_through[level as usize];
    let query = ChunkQuery::all(session, branch, level, 10_000);
    let mut due = store.chunks(scope, &query).await.unwrap();
    due.retain(|chunk| chunk.id.first > seen_through);
    SummaryBatch {
        session,
        branch,
        level,
        seen_through,
        through: due.last().map_or(seen_through, |chunk| chunk.id.last),
        summaries: due
            .into_iter()
            .map(|chunk| (chunk.id, chunk.revision, summary(&format!("of {}", chunk.id))))
            .collect(),
        secrets_seen: store.secrets_version(scope.tenant()).await.unwrap(),
    }
}

pub(crate) async fn summarize(store: &Store, session: SessionNo) {
    for level in Level::ALL {
        let batch = summing(store, session, level).await;
        store.put_summaries(&scope(), batch).await.unwrap();
    }
}

// Facts

/// That somebody is something.
pub(crate) fn fact(subject: &str, value: &str) -> RedactedFact {
    RedactedFact {
        kind: FactKind::Identity,
        subject: text(subject),
        attribute: text("is"),
        value: text(value),
        text: text(&format!("{subject} is {value}")),
        quote: text(&format!("I am {value}")),
        valid_from: NOW,
    }
}

pub(crate) fn drawn_fact(fact: RedactedFact, source: TurnId) -> NewFact {
    NewFact { fact, source, at: NOW, recorded_at: NOW }
}

// Rewriting

/// What a rewritten turn says.
pub(crate) const REWRITTEN: &str = "[REDACTED:db]";

/// What puts turns of a branch anew, as a caller would put it together.
pub(crate) async fn rewriting(
    store: &Store,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    seqs: &[u64],
) -> Rewrite {
    let query = TurnQuery { branch: Some(branch), ..TurnQuery::all(session, 10_000) };
    let mut own = store.turns(scope, &query).await.unwrap();
    own.retain(|row| row.state == TurnState::Present && seqs.contains(&row.id.seq.0));
    let through = Ordinal(u64::MAX >> 1);
    let bodies = store.bodies(scope, session, branch, Ordinal(1), through).await.unwrap();
    let (mut micros, mut packs) = (Vec::new(), Vec::new());
    for body in bodies {
        let holds = |row: &TurnRow| (body.id.first..=body.id.last).contains(&row.ordinal);
        if !own.iter().any(holds) {
            continue;
        }
        let text = match body.place {
            BodyPlace::Text(body) => Some(replaced(&body, seqs)),
            BodyPlace::Pack(pack) => {
                let next = new_pack(&format!("{}*", pack.name));
                if !packs.iter().any(|(id, _, _)| *id == pack.id) {
                    packs.push((pack.id, pack.name, next));
                }
                None
            }
            BodyPlace::Rows | BodyPlace::Gone => None,
        };
        micros.push((body.id, body.revision, text));
    }
    let turns = own.iter().map(rewritten).collect();
    Rewrite { session, branch, turns, micros, packs, now: Millis(NOW.0 + 9) }
}

fn rewritten(row: &TurnRow) -> RewrittenTurn {
    let body = row.body.clone().map(|body| {
        let content = Content::Text(REWRITTEN.to_owned());
        REDACTOR.turn(RawTurn { content, ..body.into_fields() })
    });
    let hidden = Hidden::from([("db".to_owned(), 1)]);
    RewrittenTurn { seq: row.id.seq, tokens: 3, hidden, body }
}

fn replaced(body: &TextBody, seqs: &[u64]) -> TextBody {
    let replace = |line: &str| {
        let seq = seqs.iter().find(|seq| line.starts_with(&format!("{seq} ")));
        seq.map_or_else(|| format!("{line}\n"), |seq| format!("{seq} {REWRITTEN}\n"))
    };
    text_body(&body.text.as_str().lines().map(replace).collect::<String>())
}

/// Rewrites turns of the main branch of a session in the usual scope.
pub(crate) async fn rewrite(store: &Store, session: SessionNo, seqs: &[u64]) {
    let rewrite = rewriting(store, &scope(), session, Branch::MAIN, seqs).await;
    assert!(store.rewrite(&scope(), rewrite).await.unwrap());
}

/// A redactor that hides these values as `v1`, `v2` and so on.
pub(crate) fn redactor_of(values: &[&str]) -> Arc<Redactor> {
    let named = (1..).zip(values).map(|(n, value)| secret(&format!("v{n}"), value));
    Arc::new(REDACTOR.for_tenant(&named.collect::<Vec<_>>(), TagKey::default()))
}

/// The names of a tenant's memories.
pub(crate) async fn memories(store: &Store, tenant: &Tenant) -> Vec<String> {
    let scopes = store.scopes(tenant).await.unwrap();
    scopes.iter().map(|scope| scope.memory().to_owned()).collect()
}

/// The unsettled branches of every tenant, one tenant after the other.
pub(crate) async fn unsettled(store: &Store) -> Vec<DueBranch> {
    let (mut tenants, mut found) = (Vec::new(), Vec::new());
    loop {
        let next = store.unsettled_beside(&tenants, 99).await.unwrap();
        let Some(first) = next.first() else { return found };
        tenants.push(first.scope.tenant().clone());
        found.extend(next);
    }
}
