//! Commitments: what they wait for, that they fire once, and what ends them.

use std::sync::Arc;

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

use super::erasure::subject;
use super::fixtures::*;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

const FIRST: &str = "q8Zk2Lm9Xw";

fn acme() -> Tenant {
    tenant("acme")
}

pub(super) fn entry(id: Option<&str>) -> NewEntry {
    NewEntry {
        id: id.map(str::to_owned),
        content: text("call Ana"),
        tags: Vec::new(),
        expires_at: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    }
}

pub(crate) fn new_commitment(intention: Intention, condition: Condition) -> NewCommitment {
    NewCommitment {
        intention,
        condition,
        now: NOW,
        secrets_seen: 1,
        most_pending: 99,
        most_pending_tenant: 99,
        claim: None,
    }
}

fn at(moment: i64) -> Condition {
    Condition::Time(Millis(moment))
}

fn once(tag: Option<&str>, mentions: Option<&str>) -> Condition {
    Condition::Predicate { tag: tag.map(text), mentions: mentions.map(text) }
}

fn intend(id: &str, condition: Condition) -> NewCommitment {
    new_commitment(Intention::New(entry(Some(id))), condition)
}

async fn commit(store: &Store, commitment: NewCommitment) -> CommitmentRecord {
    store.put_commitment(&scope(), commitment).await.unwrap()
}

async fn read(store: &Store, id: &str) -> Option<CommitmentRecord> {
    store.commitment(&acme(), id).await.unwrap()
}

async fn put(store: &Store, id: &str) -> EntryRecord {
    store.put_entry(&scope(), entry(Some(id))).await.unwrap()
}

async fn fire(store: &Store, id: &str) -> Option<Fired> {
    store.fire_commitment(&acme(), id, None, NOW).await.unwrap()
}

/// How a commitment stands, and when it was settled.
async fn state(store: &Store, id: &str) -> (CommitmentState, Option<Millis>) {
    let found = read(store, id).await.unwrap();
    (found.state, found.settled_at)
}

/// Kinds of the log.
async fn kinds(store: &Store) -> String {
    let found = store.events(&acme(), Some("notes"), Position(0), 99).await.unwrap();
    found.into_iter().map(|event| event.kind).collect::<Vec<_>>().join(" ")
}

/// Entries that the commitments are of, in order.
fn of(found: &[CommitmentRecord]) -> String {
    found.iter().map(|one| one.entry.as_str()).collect::<Vec<_>>().join(" ")
}

async fn listed(store: &Store, query: CommitmentQuery) -> String {
    of(&store.commitments(&acme(), &query).await.unwrap())
}

fn of_memory(memory: &str, limit: usize) -> CommitmentQuery {
    CommitmentQuery { memory: Some(memory.to_owned()), ..CommitmentQuery::newest(limit) }
}

fn look(through: u64, fulfilled: &[(&str, &str)]) -> Look {
    let fulfilled = fulfilled.iter().map(|(commitment, because)| Fulfilled {
        commitment: (*commitment).to_owned(),
        because: (*because).to_owned(),
    });
    Look { through: Position(through), fulfilled: fulfilled.collect(), now: NOW }
}

pub(super) async fn a_commitment_is_made_with_its_intention(store: &Store) {
    assert_eq!(read(store, "c-1").await, None);
    assert!(store.tenants().await.unwrap().is_empty(), "asking makes no tenant");
    let hidden = Hidden::from([("jwt".to_owned(), 1)]);
    let intention = NewEntry { hidden: hidden.clone(), ..entry(None) };
    let first = commit(store, new_commitment(Intention::New(intention), at(5))).await;
    let kept = store.entry(&scope(), &first.entry, None, NOW).await.unwrap().unwrap();
    assert_eq!((kept.content.as_str(), kept.began), ("call Ana", Position(1)));
    assert_eq!(stats(store).await.hidden, hidden);
    assert!(first.id.starts_with("c-") && first.id.len() == 22, "{}", first.id);
    assert_eq!((first.state, first.created_at), (CommitmentState::Pending, NOW));
    assert_eq!((first.settled_at, first.made), (None, Position(2)));
    assert_eq!((&first.scope, &first.condition), (&scope(), &at(5)));
    assert_eq!(read(store, &first.id).await, Some(first.clone()));
    let known = Intention::Entry(first.entry.clone());
    let second = commit(store, new_commitment(known, once(Some("t"), Some("w")))).await;
    assert_eq!((second.entry, second.made), (first.entry.clone(), Position(3)));
    assert_ne!(second.id, first.id);
    assert_eq!(second.condition, once(Some("t"), Some("w")));
    assert_eq!(kinds(store).await, "memory.written commitment.made commitment.made");
    let log = store.events(&acme(), None, Position(1), 9).await.unwrap();
    let payload = serde_json::json!({
        "memoryRef": "notes",
        "commitmentId": first.id,
        "memoryId": first.entry,
        "condition": "time",
    });
    assert_eq!(log[0].payload, payload.to_string());
    // Nothing of it is another tenant's.
    let rival = tenant("rival");
    assert_eq!(store.commitment(&rival, &first.id).await.unwrap(), None);
    assert_eq!(store.fire_commitment(&rival, &first.id, None, NOW).await.unwrap(), None);
    assert!(!store.cancel_commitment(&rival, &first.id, NOW).await.unwrap());
    let theirs = scope_of("rival", "notes");
    assert_eq!(store.look_through(&theirs, &look(99, &[(&first.id, "e")])).await.unwrap(), []);
    assert_eq!(read(store, &first.id).await, Some(first));
    assert_eq!(store.tenants().await.unwrap(), [acme()]);
    // The first thing that a tenant does may be this.
    let entry = NewEntry { secrets_seen: 0, ..entry(None) };
    let new = NewCommitment { secrets_seen: 0, ..new_commitment(Intention::New(entry), at(5)) };
    store.put_commitment(&scope_of("new", "notes"), new).await.unwrap();
    clean(store).await;
}

pub(super) async fn a_refused_commitment_leaves_nothing(store: &Store) {
    put(store, "taken").await;
    put(store, "ended").await;
    store.end_entry(&scope(), "ended", NOW).await.unwrap();
    let expired = NewEntry { expires_at: Some(NOW), ..entry(Some("expired")) };
    store.put_entry(&scope(), expired).await.unwrap();
    store.put_entry(&scope_of("acme", "diary"), entry(Some("elsewhere"))).await.unwrap();
    let head = store.head(&acme()).await.unwrap();
    let refused = async |commitment| {
        let error = store.put_commitment(&scope(), commitment).await.unwrap_err();
        assert_eq!(store.head(&acme()).await.unwrap(), head);
        assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "");
        error
    };
    for id in ["no such", "ended", "expired", "elsewhere"] {
        let error = refused(new_commitment(Intention::Entry(id.to_owned()), at(5))).await;
        assert!(matches!(error, StoreError::NoIntention { id: found } if found == id));
    }
    let error = refused(intend("taken", at(5))).await;
    assert!(matches!(error, StoreError::EntryExists { .. }));
    let error = refused(NewCommitment { secrets_seen: 2, ..intend("a", at(5)) }).await;
    assert!(matches!(error, StoreError::SecretsChanged));
    let stale = NewEntry { secrets_seen: 2, ..entry(Some("a")) };
    let error = refused(new_commitment(Intention::New(stale), at(5))).await;
    assert!(matches!(error, StoreError::SecretsChanged));
    let nobody = new_commitment(Intention::Entry("x".to_owned()), at(5));
    assert!(store.put_commitment(&scope_of("new", "notes"), nobody).await.is_err());
    assert_eq!(store.tenants().await.unwrap(), [acme()]);
    clean(store).await;
}

pub(super) async fn a_memory_has_so_many_pending(store: &Store) {
    let two = |id| NewCommitment { most_pending: 2, ..intend(id, at(5)) };
    let a = commit(store, two("a")).await;
    commit(store, two("b")).await;
    let error = store.put_commitment(&scope(), two("c")).await.unwrap_err();
    assert!(matches!(error, StoreError::TooManyCommitments { most: 2 }));
    assert_eq!(store.entry(&scope(), "c", None, NOW).await.unwrap(), None);
    // Other memories are not counted, nor what has been settled.
    store.put_commitment(&scope_of("acme", "diary"), two("c")).await.unwrap();
    assert!(store.cancel_commitment(&acme(), &a.id, NOW).await.unwrap());
    commit(store, two("c")).await;
    // Nor are other tenants', while all memories of one count.
    let four = |id| NewCommitment { most_pending_tenant: 4, ..intend(id, at(5)) };
    commit(store, four("d")).await;
    for memory in ["notes", "diary", "new"] {
        let error = store.put_commitment(&scope_of("acme", memory), four("e")).await.unwrap_err();
        assert!(matches!(error, StoreError::TooManyTenantCommitments { most: 4 }));
    }
    store.put_commitment(&scope_of("rival", "notes"), four("e")).await.unwrap();
    for refused in [
        NewCommitment { most_pending: 0, ..intend("f", at(5)) },
        NewCommitment { most_pending_tenant: 0, ..intend("f", at(5)) },
    ] {
        store.put_commitment(&scope_of("nobody", "notes"), refused).await.unwrap_err();
    }
    clean(store).await;
}

pub(super) async fn a_commitment_keeps_its_claim(store: &Store) {
    let claimed = |id| NewCommitment {
        claim: Some(Claim {
            operation: "POST /commitments".to_owned(),
            key: "k".to_owned(),
            request: [3; 32],
            code: 201,
        }),
        ..intend(id, at(5))
    };
    put(store, "taken").await;
    let kept = async || {
        let found = store.outcome(&acme(), "POST /commitments", "k", NOW).await.unwrap();
        found.map(|outcome| outcome.body)
    };
    assert!(store.put_commitment(&scope(), claimed("taken")).await.is_err());
    assert_eq!(kept().await, None);
    let made = commit(store, claimed("a")).await;
    assert_eq!(kept().await, Some(format!(r#"{{"id":"{}"}}"#, made.id)));
    let again = store.put_commitment(&scope(), claimed("b")).await;
    assert!(matches!(again, Err(StoreError::ClaimTaken)));
    assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "a");
}

pub(super) async fn commitments_are_listed_newest_first(store: &Store) {
    // The clock was set back, which changes nothing.
    for (id, now) in [("a", 9), ("b", 7), ("c", 8)] {
        commit(store, NewCommitment { now: Millis(now), ..intend(id, at(5)) }).await;
    }
    store.put_commitment(&scope_of("acme", "diary"), intend("d", at(5))).await.unwrap();
    store.put_commitment(&scope_of("rival", "notes"), intend("e", at(5))).await.unwrap();
    assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "d c b a");
    assert_eq!(listed(store, CommitmentQuery::newest(2)).await, "d c");
    assert_eq!(listed(store, CommitmentQuery::newest(0)).await, "");
    assert_eq!(listed(store, of_memory("notes", 2)).await, "c b");
    assert_eq!(listed(store, of_memory("no such", 9)).await, "");
    assert_eq!(store.commitments(&tenant("new"), &CommitmentQuery::newest(9)).await.unwrap(), []);
}

pub(super) async fn commitments_are_listed_page_by_page(store: &Store) {
    let mut ids = Vec::new();
    for id in ["a", "b", "c", "d", "e"] {
        ids.push(commit(store, intend(id, once(Some("t"), None))).await.id);
    }
    store.put_commitment(&scope_of("acme", "diary"), intend("f", at(5))).await.unwrap();
    fire(store, &ids[1]).await.unwrap();
    store.cancel_commitment(&acme(), &ids[3], NOW).await.unwrap();
    store.end_entry(&scope(), "e", NOW).await.unwrap();
    fire(store, &ids[4]).await;
    let states = [
        (CommitmentState::Pending, "f c a"),
        (CommitmentState::Fired, "b"),
        (CommitmentState::Cancelled, "d"),
        (CommitmentState::Void, "e"),
    ];
    for (state, expected) in states {
        let query = CommitmentQuery { state: Some(state), ..CommitmentQuery::newest(9) };
        assert_eq!(listed(store, query).await, expected, "{state:?}");
    }
    let before = |id: &str, limit| CommitmentQuery {
        before: Some(id.to_owned()),
        ..CommitmentQuery::newest(limit)
    };
    assert_eq!(listed(store, before(&ids[3], 2)).await, "c b");
    assert_eq!(listed(store, before(&ids[0], 2)).await, "");
    assert_eq!(listed(store, before("no such", 9)).await, "");
    let state = Some(CommitmentState::Pending);
    assert_eq!(listed(store, CommitmentQuery { state, ..before(&ids[2], 9) }).await, "a");
    let memory = Some("diary".to_owned());
    assert_eq!(listed(store, CommitmentQuery { memory, ..before(&ids[4], 9) }).await, "");
    // One that another tenant made is none of theirs.
    let theirs = store.commitments(&tenant("rival"), &before(&ids[4], 9)).await.unwrap();
    assert_eq!(theirs, []);
}

pub(super) async fn commitments_are_due_by_their_moment(store: &Store) {
    for (id, moment) in [("b", 7), ("a", 5), ("late", 9)] {
        commit(store, intend(id, at(moment))).await;
    }
    commit(store, intend("waits", once(None, Some("x")))).await;
    store.put_commitment(&scope_of("rival", "notes"), intend("r", at(8))).await.unwrap();
    let due = async |now, limit| of(&store.due_commitments(Millis(now), limit).await.unwrap());
    assert_eq!(due(4, 9).await, "");
    assert_eq!(due(5, 9).await, "a");
    assert_eq!(due(7, 9).await, "a b");
    assert_eq!(due(8, 9).await, "a r b", "every tenant has its turn");
    assert_eq!(due(8, 2).await, "a r");
    let first = store.due_commitments(Millis(8), 1).await.unwrap().remove(0);
    fire(store, &first.id).await.unwrap();
    assert_eq!(due(8, 9).await, "b r");
}

pub(super) async fn a_commitment_waits_for_an_entry(store: &Store) {
    let waiting = async || store.waiting_memories(None, &[], 9).await.unwrap();
    let empty = store.watch(&scope()).await.unwrap();
    assert_eq!((empty.waiting.len(), empty.after, empty.through), (0, Position(0), Position(0)));
    put(store, "before").await;
    let one = commit(store, intend("a", once(Some("t"), None))).await;
    commit(store, intend("timed", at(5))).await;
    // The intention of another is an entry like all others; its own is not.
    assert_eq!(waiting().await, [scope()]);
    let head = store.head(&acme()).await.unwrap();
    let watch = store.watch(&scope()).await.unwrap();
    assert_eq!((of(&watch.waiting).as_str(), watch.after, watch.through), ("a", one.made, head));
    assert_eq!(store.look_through(&scope(), &look(head.0, &[])).await.unwrap(), []);
    assert_eq!(waiting().await, []);
    assert_eq!(store.watch(&scope()).await.unwrap().after, head);
    store.put_entry(&scope_of("acme", "diary"), entry(Some("elsewhere"))).await.unwrap();
    assert_eq!(waiting().await, []);
    put(store, "c").await;
    // One that is made later looks at what is put later.
    let later = commit(store, intend("later", once(None, Some("w")))).await;
    assert_eq!(store.watch(&scope()).await.unwrap().after, head);
    put(store, "d").await;
    assert_eq!(waiting().await, [scope()]);
    let fulfilled = [(one.id.as_str(), "c"), ("no such", "d")];
    let fired = store.look_through(&scope(), &look(later.made.0, &fulfilled)).await.unwrap();
    let payload = serde_json::json!({
        "commitmentId": one.id,
        "memoryRef": "notes",
        "condition": "predicate",
        "memoryId": "a",
        "triggerId": "c",
    });
    assert_eq!(fired.len(), 1);
    assert_eq!((&fired[0].commitment, &fired[0].payload), (&one.id, &payload.to_string()));
    // What was looked at stays so, and what fired has fired.
    assert_eq!(store.look_through(&scope(), &look(1, &fulfilled)).await.unwrap(), []);
    let watch = store.watch(&scope()).await.unwrap();
    assert_eq!((of(&watch.waiting).as_str(), watch.after), ("later", later.made));
    assert_eq!(waiting().await, [scope()], "it has not looked at the last");
    clean(store).await;
}

pub(super) async fn tenants_wait_in_turn(store: &Store) {
    let memories = [("acme", "a"), ("acme", "b"), ("rival", "a"), ("other", "a")];
    for (tenant, memory) in memories {
        let new = intend("i", once(Some("t"), None));
        store.put_commitment(&scope_of(tenant, memory), new).await.unwrap();
    }
    let put = async |tenant, memory, id| {
        store.put_entry(&scope_of(tenant, memory), entry(Some(id))).await.unwrap().began
    };
    put("acme", "b", "1").await;
    let last = put("acme", "a", "1").await;
    put("other", "a", "1").await;
    put("rival", "a", "1").await;
    let waiting = async |after: Option<&str>, except: &[Scope], limit| {
        let after = after.map(tenant);
        let found = store.waiting_memories(after.as_ref(), except, limit).await.unwrap();
        let name = |scope: &Scope| format!("{} {}", scope.tenant().as_str(), scope.memory());
        found.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(waiting(None, &[], 9).await, "acme a, rival a, other a");
    assert_eq!(waiting(None, &[], 2).await, "acme a, rival a");
    assert_eq!(waiting(Some("rival"), &[], 9).await, "other a");
    assert_eq!(waiting(Some("other"), &[], 9).await, "");
    assert_eq!(waiting(Some("unknown"), &[], 1).await, "acme a");
    let except = [scope_of("acme", "a"), scope_of("rival", "a"), scope_of("no", "such")];
    assert_eq!(waiting(None, &except, 9).await, "acme b, other a");
    // Whoever is further behind comes first, however much is put elsewhere.
    store.look_through(&scope_of("acme", "a"), &look(last.0, &[])).await.unwrap();
    put("acme", "a", "2").await;
    assert_eq!(waiting(None, &[], 1).await, "acme b");
    let head = store.head(&acme()).await.unwrap();
    store.look_through(&scope_of("acme", "b"), &look(head.0, &[])).await.unwrap();
    assert_eq!(waiting(None, &[], 1).await, "acme a");
    clean(store).await;
}

pub(super) async fn a_commitment_fires_once(store: &Store) {
    let one = commit(store, intend("a", at(5))).await;
    let acme = acme();
    let fire = |now| store.fire_commitment(&acme, &one.id, None, Millis(now));
    let (a, b, c) = tokio::join!(fire(6), fire(6), fire(6));
    let fired: Vec<Fired> = [a, b, c].into_iter().filter_map(|fired| fired.unwrap()).collect();
    assert_eq!(fired.len(), 1);
    assert_eq!(kinds(store).await, "memory.written commitment.made commitment.fired");
    let log = store.events(&acme, None, Position(2), 9).await.unwrap();
    assert_eq!((log[0].position, &log[0].payload), (fired[0].position, &fired[0].payload));
    assert!(!fired[0].payload.contains("triggerId"));
    assert!(fire(7).await.unwrap().is_none());
    assert!(!store.cancel_commitment(&acme, &one.id, Millis(8)).await.unwrap());
    assert_eq!(state(store, &one.id).await, (CommitmentState::Fired, Some(Millis(6))));
    assert_eq!(store.fire_commitment(&acme, "no such", None, NOW).await.unwrap(), None);
    // The intention is left as it is.
    assert!(store.entry(&scope(), "a", None, NOW).await.unwrap().is_some());
    clean(store).await;
}

pub(super) async fn a_cancelled_commitment_stays_so(store: &Store) {
    let one = commit(store, intend("a", at(5))).await;
    assert!(store.cancel_commitment(&acme(), &one.id, Millis(4)).await.unwrap());
    assert!(!store.cancel_commitment(&acme(), &one.id, Millis(5)).await.unwrap());
    assert_eq!(fire(store, &one.id).await, None);
    assert_eq!(store.due_commitments(NOW, 9).await.unwrap(), []);
    assert_eq!(state(store, &one.id).await, (CommitmentState::Cancelled, Some(Millis(4))));
    assert_eq!(kinds(store).await, "memory.written commitment.made commitment.cancelled");
    let log = store.events(&acme(), None, Position(2), 9).await.unwrap();
    let payload = serde_json::json!({
        "memoryRef": "notes", "commitmentId": one.id, "memoryId": "a",
    });
    assert_eq!(log[0].payload, payload.to_string());
    clean(store).await;
}

pub(super) async fn without_its_intention_it_is_void(store: &Store) {
    let ended = commit(store, intend("ended", at(5))).await;
    let purged = commit(store, intend("purged", once(Some("t"), Some("w")))).await;
    let short = NewEntry { expires_at: Some(Millis(50)), now: Millis(1), ..entry(Some("short")) };
    let short = commit(store, new_commitment(Intention::New(short), at(5))).await;
    store.end_entry(&scope(), "purged", Millis(1)).await.unwrap();
    store.purge_entries(&scope(), Millis(1), Millis(1), 9).await.unwrap();
    assert_eq!(state(store, &purged.id).await, (CommitmentState::Void, Some(Millis(1))));
    assert_eq!(read(store, &purged.id).await.unwrap().condition, once(None, None));
    store.end_entry(&scope(), "ended", NOW).await.unwrap();
    let head = store.head(&acme()).await.unwrap();
    for one in [&ended, &short] {
        assert_eq!(fire(store, &one.id).await, None);
        assert_eq!(state(store, &one.id).await, (CommitmentState::Void, Some(NOW)));
        assert!(!store.cancel_commitment(&acme(), &one.id, NOW).await.unwrap());
    }
    assert_eq!(store.head(&acme()).await.unwrap(), head, "nothing is logged");
    assert_eq!(store.due_commitments(NOW, 9).await.unwrap(), []);
    clean(store).await;
}

pub(super) async fn an_intention_may_be_stood_for(store: &Store) {
    let one = commit(store, intend("a", at(5))).await;
    put(store, "b").await;
    let derivation = Derivation {
        outputs: vec![DerivedEntry {
            id: None,
            content: text("in short"),
            tags: Vec::new(),
            expires_at: None,
            hidden: Hidden::new(),
        }],
        replaced: ["a", "b"]
            .map(|id| Replaced { id: id.to_owned(), by: Successor::Output(0), is_overtaken: false })
            .to_vec(),
        kind: DerivationKind::Compacted,
        payload: Arc::new(|ids| serde_json::json!({ "outputs": ids })),
        now: NOW,
        secrets_seen: 1,
    };
    let derived = store.derive_entries(&scope(), derivation).await.unwrap().unwrap();
    // It is not in force, so that nobody commits to it any more.
    let again = new_commitment(Intention::Entry("a".to_owned()), at(5));
    let error = store.put_commitment(&scope(), again).await.unwrap_err();
    assert!(matches!(error, StoreError::NoIntention { .. }));
    let made = Intention::Entry(derived.outputs[0].id.clone());
    let made = commit(store, new_commitment(made, at(5))).await;
    assert!(fire(store, &one.id).await.unwrap().payload.contains(r#""memoryId":"a""#));
    // What was made of the erased goes with it, and so does what waits for it.
    let by_id = Selector::Entry("b".to_owned());
    store.erase_entries(&scope(), &by_id, false, NOW).await.unwrap();
    assert_eq!(read(store, &made.id).await, None);
    assert!(read(store, &one.id).await.is_some());
    clean(store).await;
}

pub(super) async fn a_commitment_goes_with_its_intention(store: &Store) {
    let mut made = Vec::new();
    for id in ["a", "b"] {
        made.push(commit(store, intend(id, once(Some("t"), Some("w")))).await);
    }
    fire(store, &made[0].id).await.unwrap();
    let elsewhere = scope_of("acme", "diary");
    store.put_commitment(&elsewhere, intend("a", at(5))).await.unwrap();
    let by_id = Selector::Entry("a".to_owned());
    store.erase_entries(&scope(), &by_id, true, NOW).await.unwrap();
    assert!(read(store, &made[0].id).await.is_some());
    assert_eq!(store.erase_entries(&scope(), &by_id, false, NOW).await.unwrap(), 1);
    assert_eq!(read(store, &made[0].id).await, None);
    assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "a b");
    assert_eq!(listed(store, of_memory("diary", 9)).await, "a");
    clean(store).await;
}

pub(super) async fn a_settled_commitment_tells_nothing(store: &Store) {
    let mut ids = Vec::new();
    for id in ["fired", "cancelled", "void", "pending"] {
        ids.push(commit(store, intend(id, once(Some("t"), Some("w")))).await.id);
    }
    fire(store, &ids[0]).await.unwrap();
    store.cancel_commitment(&acme(), &ids[1], NOW).await.unwrap();
    store.end_entry(&scope(), "void", NOW).await.unwrap();
    fire(store, &ids[2]).await;
    for id in &ids[..3] {
        assert_eq!(read(store, id).await.unwrap().condition, once(None, None));
    }
    assert_eq!(read(store, &ids[3]).await.unwrap().condition, once(Some("t"), Some("w")));
    clean(store).await;
}

pub(super) async fn a_settled_commitment_is_let_go(store: &Store) {
    let mut ids = Vec::new();
    for id in ["a", "b", "c", "pending"] {
        ids.push(commit(store, intend(id, at(5))).await.id);
    }
    let theirs = scope_of("rival", "notes");
    let other = store.put_commitment(&theirs, intend("r", at(5))).await.unwrap();
    for (id, now) in [(&ids[0], 7), (&ids[1], 8), (&ids[2], 9)] {
        store.fire_commitment(&acme(), id, None, Millis(now)).await.unwrap().unwrap();
    }
    store.cancel_commitment(&tenant("rival"), &other.id, Millis(6)).await.unwrap();
    let purge = async |by, limit| store.purge_commitments(Millis(by), limit).await.unwrap();
    assert_eq!(purge(5, 9).await, 0);
    assert_eq!(purge(8, 2).await, 2);
    assert_eq!(store.commitment(&tenant("rival"), &other.id).await.unwrap(), None);
    assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "pending c b");
    assert_eq!(purge(8, 2).await, 1);
    assert_eq!(purge(8, 2).await, 0);
    assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "pending c");
    clean(store).await;
}

pub(super) async fn what_is_waited_for_is_forgotten(store: &Store) {
    let (ana, bo) = (once(Some("subject:ana"), Some("w")), once(Some("subject:bo"), None));
    for (id, condition, now) in [("a", &ana, 5), ("b", &bo, 5), ("c", &at(9), 7)] {
        commit(store, NewCommitment { now: Millis(now), ..intend(id, condition.clone()) }).await;
    }
    store.put_commitment(&scope_of("acme", "diary"), intend("d", ana.clone())).await.unwrap();
    let erase = async |selector: &Selector, dry_run| {
        store.erase_entries(&scope(), selector, dry_run, NOW).await.unwrap()
    };
    // The intentions are not tagged, and stay.
    assert_eq!(erase(&subject("ana"), true).await, 0);
    assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "d c b a");
    assert_eq!(erase(&subject("ana"), false).await, 0);
    assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "d c b");
    assert!(store.entry(&scope(), "a", None, NOW).await.unwrap().is_some());
    let session = Selector::Session(session_name("s"));
    assert_eq!(erase(&session, false).await, 0);
    // Its intention is of another time than it is.
    assert_eq!(erase(&Selector::Before(Millis(6)), false).await, 0);
    assert_eq!(listed(store, CommitmentQuery::newest(9)).await, "d c");
    clean(store).await;
}

pub(super) async fn commitments_are_redacted_again(store: &Store) {
    let memory = scope_of("acme", &format!("of {FIRST}"));
    let told = once(Some(&format!("key:{FIRST}")), Some(&format!("the {FIRST}")));
    let one = store.put_commitment(&memory, intend("a", told)).await.unwrap();
    let plain = once(Some("t"), Some("w"));
    let two = store.put_commitment(&memory, intend("b", plain.clone())).await.unwrap();
    store.put_commitment(&memory, intend("c", at(5))).await.unwrap();
    let redactor = redactor_of(&[FIRST]);
    let told = store.rewrite_stored_text(&acme(), Arc::clone(&redactor), NOW).await.unwrap();
    assert_eq!(told.commitments, 1);
    let now = store.scopes(&acme()).await.unwrap().remove(0);
    let found = read(store, &one.id).await.unwrap();
    assert_eq!(found.scope, now);
    assert_eq!(found.condition, once(Some("key:[REDACTED:v1]"), Some("the [REDACTED:v1]")));
    let found = read(store, &two.id).await.unwrap();
    assert_eq!((found.scope, found.condition), (now.clone(), plain));
    assert_eq!(listed(store, of_memory(now.memory(), 9)).await, "c b a");
    let log = store.events(&acme(), Some(now.memory()), Position(0), 99).await.unwrap();
    let made = log.iter().filter(|event| event.kind == "commitment.made");
    let named = format!(r#""memoryRef":"{}""#, now.memory());
    assert_eq!(made.filter(|event| event.payload.contains(&named)).count(), 3);
    let fired = fire(store, &one.id).await.unwrap();
    assert!(fired.payload.contains(&named));
    assert_eq!(
        store.rewrite_stored_text(&acme(), redactor, NOW).await.unwrap(),
        RewriteCounts::default()
    );
    clean(store).await;
}
