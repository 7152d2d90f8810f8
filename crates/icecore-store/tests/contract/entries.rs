//! Long-term entries: their order, their end, and what is left of them then.

use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

fn entry(id: &str) -> NewEntry {
    NewEntry {
        id: Some(id.to_owned()),
        content: text(&format!("content of {id}")),
        tags: Vec::new(),
        expires_at: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    }
}

async fn put(store: &Store, entry: NewEntry) -> EntryRecord {
    store.put_entry(&scope(), entry).await.unwrap()
}

fn as_of(at: Position) -> EntryFilter {
    EntryFilter { at: Some(at), ..EntryFilter::default() }
}

async fn ids_in(store: &Store, scope: &Scope, filter: &EntryFilter, now: Millis) -> String {
    let found = store.entries(scope, filter, now, 99).await.unwrap();
    let places: Vec<Position> = found.iter().map(|entry| entry.began).collect();
    assert_eq!(store.entry_places(scope, filter, now).await.unwrap(), places);
    let at = store.entries_at(scope, &places, filter, now).await.unwrap();
    assert_eq!(at, found, "read one by one");
    for entry in &found {
        let read = store.entry(scope, &entry.id, filter.at, now).await.unwrap();
        assert_eq!(read.as_ref(), Some(entry));
    }
    found.into_iter().map(|entry| entry.id).collect::<Vec<_>>().join(" ")
}

async fn ids(store: &Store, filter: &EntryFilter) -> String {
    ids_in(store, &scope(), filter, NOW).await
}

async fn all(store: &Store) -> String {
    ids(store, &EntryFilter::default()).await
}

pub(super) async fn an_entry_gets_an_id_of_ours(store: &Store) {
    let unnamed = || NewEntry { id: None, ..entry("x") };
    let first = put(store, unnamed()).await;
    let second = put(store, unnamed()).await;
    let other = store.put_entry(&scope_of("acme", "diary"), unnamed()).await.unwrap();
    let rival = store.put_entry(&scope_of("rival", "notes"), unnamed()).await.unwrap();
    let ids = [&first, &second, &other, &rival].map(|entry| entry.id.clone());
    for (at, id) in ids.iter().enumerate() {
        assert!(id.starts_with("e-") && id.len() == 22, "{id}");
        assert!(!ids[..at].contains(id), "{id} is given twice");
    }
    let found = store.entry(&scope(), &first.id, None, NOW).await.unwrap();
    assert_eq!(found, Some(first));
}

pub(super) async fn entries_are_listed_newest_first(store: &Store) {
    // The clock was set back before the last, and stood still before that.
    for (id, at) in [("a", 10), ("b", 30), ("c", 30), ("d", 20)] {
        put(store, NewEntry { now: Millis(at), ..entry(id) }).await;
    }
    assert_eq!(all(store).await, "c b d a");
    let two = store.entries(&scope(), &EntryFilter::default(), NOW, 2).await.unwrap();
    assert_eq!(two.iter().map(|entry| entry.id.as_str()).collect::<String>(), "cb");
    assert_eq!(ids_in(store, &scope_of("rival", "notes"), &EntryFilter::default(), NOW).await, "");
}

pub(super) async fn entries_are_found_by_tag(store: &Store) {
    let tagged = |id, tags: &[&str]| NewEntry {
        tags: tags.iter().map(|tag| text(tag)).collect(),
        ..entry(id)
    };
    put(store, tagged("a", &["odd", "plan"])).await;
    put(store, tagged("b", &["even"])).await;
    put(store, tagged("c", &["plan", "odd", "odd one"])).await;
    let with = |tag: &str| EntryFilter { tag: Some(text(tag)), ..EntryFilter::default() };
    assert_eq!(ids(store, &with("odd")).await, "c a");
    assert_eq!(ids(store, &with("plan")).await, "c a");
    assert_eq!(ids(store, &with("od")).await, "");
    assert_eq!(ids(store, &with("Odd")).await, "");
    assert_eq!(ids(store, &with("odd one")).await, "c");
    assert_eq!(ids(store, &with("%")).await, "");
    // The tag is looked for before the limit is reached.
    let found = store.entries(&scope(), &with("even"), NOW, 1).await.unwrap();
    assert_eq!(found[0].id, "b");
}

pub(super) async fn an_ended_entry_is_gone_at_once(store: &Store) {
    let first = put(store, entry("a")).await;
    put(store, entry("b")).await;
    assert!(store.end_entry(&scope(), "a", Millis(7)).await.unwrap());
    assert_eq!(all(store).await, "b");
    assert_eq!(store.entry(&scope(), "a", None, NOW).await.unwrap(), None);
    assert_eq!(
        store.entries_at(&scope(), &[first.began], &EntryFilter::default(), NOW).await.unwrap(),
        []
    );
    let after = store.entries_after(&scope(), Position(0), NOW, 9).await.unwrap();
    assert_eq!(after.len(), 1);
    assert_eq!(stats(store).await.entries, 1);
    let events = store.events(scope().tenant(), Some("notes"), Position(2), 9).await.unwrap();
    assert_eq!(
        (events.len(), events[0].kind.as_str(), events[0].at),
        (1, "memory.deleted", Millis(7))
    );
    assert_eq!(events[0].payload, r#"{"memoryRef":"notes","memoryId":"a"}"#);

    // It is there once, in its own memory, while it is in force.
    for (scope, id) in [(scope(), "a"), (scope(), "c"), (scope_of("rival", "notes"), "b")] {
        assert!(!store.end_entry(&scope, id, NOW).await.unwrap(), "{id}");
    }
    put(store, NewEntry { expires_at: Some(Millis(5)), now: Millis(1), ..entry("short") }).await;
    assert!(!store.end_entry(&scope(), "short", Millis(5)).await.unwrap());
    assert!(store.end_entry(&scope(), "short", Millis(4)).await.unwrap());
    // Its id is not free before it is purged.
    let again = store.put_entry(&scope(), entry("a")).await;
    assert!(matches!(again, Err(StoreError::EntryExists { .. })));
    assert_eq!(store.scope_head(&scope()).await.unwrap().epoch, 0);
    clean(store).await;
}

pub(super) async fn the_past_can_be_read_until_it_is_purged(store: &Store) {
    let a = put(store, entry("a")).await.began;
    let b = put(store, entry("b")).await.began;
    store.end_entry(&scope(), "a", Millis(100)).await.unwrap();
    let end = store.head(scope().tenant()).await.unwrap();
    put(store, entry("c")).await;
    let shown = async |at| ids(store, &as_of(at)).await;
    assert_eq!(shown(Position(0)).await, "");
    assert_eq!(shown(a).await, "a");
    assert_eq!(shown(b).await, "b a");
    assert_eq!(shown(end).await, "b");
    assert_eq!(shown(Position(u64::MAX)).await, "c b");
    assert_eq!(store.entry(&scope(), "c", Some(end), NOW).await.unwrap(), None);

    assert_eq!(store.purge_entries(&scope(), Millis(200), Millis(100), 9).await.unwrap(), 1);
    let is_refused =
        |error: StoreError| matches!(error, StoreError::SnapshotGone { oldest } if oldest == end);
    assert!(is_refused(store.entries(&scope(), &as_of(b), NOW, 9).await.unwrap_err()));
    assert!(is_refused(store.entry_places(&scope(), &as_of(b), NOW).await.unwrap_err()));
    assert!(is_refused(store.entry(&scope(), "b", Some(b), NOW).await.unwrap_err()));
    assert!(is_refused(store.entries_at(&scope(), &[b], &as_of(a), NOW).await.unwrap_err()));
    assert_eq!(shown(end).await, "b");
    assert_eq!(all(store).await, "c b");
    clean(store).await;
}

pub(super) async fn what_expired_is_never_read(store: &Store) {
    let short = NewEntry { expires_at: Some(Millis(50)), now: Millis(10), ..entry("short") };
    let began = put(store, short).await.began;
    for filter in [EntryFilter::default(), as_of(began)] {
        assert_eq!(ids_in(store, &scope(), &filter, Millis(49)).await, "short");
        assert_eq!(ids_in(store, &scope(), &filter, Millis(50)).await, "");
        let read = store.entry(&scope(), "short", filter.at, Millis(50)).await.unwrap();
        assert_eq!(read, None);
        let read = store.entries_at(&scope(), &[began], &filter, Millis(50)).await.unwrap();
        assert_eq!(read, []);
    }
    let count = async |now| store.stats(scope().tenant(), None, Millis(now)).await.unwrap().entries;
    assert_eq!((count(49).await, count(50).await), (1, 0));
}

pub(super) async fn the_expired_and_the_long_ended_are_purged(store: &Store) {
    let hidden = Hidden::from([("jwt".to_owned(), 2)]);
    let short = NewEntry { expires_at: Some(Millis(50)), hidden, ..entry("short") };
    put(store, short).await;
    for id in ["ended", "later", "stays"] {
        put(store, entry(id)).await;
    }
    store.end_entry(&scope(), "ended", Millis(30)).await.unwrap();
    store.end_entry(&scope(), "later", Millis(40)).await.unwrap();
    let diary = scope_of("rival", "diary");
    let other = NewEntry { expires_at: Some(Millis(50)), ..entry("other") };
    store.put_entry(&diary, other).await.unwrap();
    let due = async |now, ended_by, limit| {
        store.due_entries(Millis(now), Millis(ended_by), limit).await.unwrap()
    };
    assert_eq!(due(49, 29, 9).await, []);
    assert_eq!(due(49, 30, 9).await, [scope()]);
    assert_eq!(due(50, 29, 9).await, [scope(), diary.clone()]);
    assert_eq!(due(50, 29, 1).await, [scope()]);

    let purge = async |now, ended_by, limit| {
        store.purge_entries(&scope(), Millis(now), Millis(ended_by), limit).await.unwrap()
    };
    let before = store.head(scope().tenant()).await.unwrap();
    assert_eq!(purge(49, 29, 9).await, 0);
    assert_eq!(store.head(scope().tenant()).await.unwrap(), before);
    assert_eq!(stats(store).await.hidden.len(), 1);
    assert_eq!(purge(50, 30, 1).await, 1);
    assert_eq!(stats(store).await.hidden.len(), 0);
    assert_eq!(purge(50, 30, 9).await, 1);
    assert_eq!(purge(50, 30, 9).await, 0);
    assert_eq!(all(store).await, "stays");
    let events = store.events(scope().tenant(), Some("notes"), before, 9).await.unwrap();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].kind, "memory.expired");
    assert_eq!(events[0].payload, r#"{"memoryRef":"notes","entries":1}"#);
    // An index must notice what goes.
    assert_eq!(store.scope_head(&scope()).await.unwrap().epoch, 2);
    assert_eq!(store.scope_head(&diary).await.unwrap().epoch, 0);
    assert_eq!(due(50, 40, 9).await, [scope(), diary]);
    assert_eq!(store.purge_entries(&scope_of("new", "x"), NOW, NOW, 9).await.unwrap(), 0);
    clean(store).await;
}

fn outcome(operation: &str) -> NewOutcome {
    let (operation, key) = (operation.to_owned(), "k".to_owned());
    let body = OutcomeBody::Ids("answer".to_owned());
    NewOutcome { claim: Claim { operation, key, request: [1; 32], code: 200 }, body }
}

pub(super) async fn a_purge_leaves_other_answers_alone(store: &Store) {
    put(store, NewEntry { expires_at: Some(Millis(5)), ..entry("short") }).await;
    store.put_outcome(scope().tenant(), outcome("POST /forget"), NOW).await.unwrap();
    assert_eq!(store.purge_entries(&scope(), NOW, NOW, 9).await.unwrap(), 1);
    let kept = store.outcome(scope().tenant(), "POST /forget", "k", NOW).await.unwrap();
    assert!(kept.is_some());
}

pub(super) async fn an_entry_keeps_its_claim(store: &Store) {
    let claimed = |id: &str| NewEntry {
        claim: Some(Claim {
            operation: "POST /entries".to_owned(),
            key: "k".to_owned(),
            request: [3; 32],
            code: 201,
        }),
        ..entry(id)
    };
    put(store, entry("taken")).await;
    let kept = async || store.outcome(scope().tenant(), "POST /entries", "k", NOW).await.unwrap();
    // What fails keeps no outcome.
    assert!(store.put_entry(&scope(), claimed("taken")).await.is_err());
    assert_eq!(kept().await, None);
    put(store, claimed("a")).await;
    let body = format!(r#"{{"id":"a","createdAt":{},"expiresAt":null}}"#, NOW.0);
    assert_eq!(kept().await, Some(StoredOutcome { request: [3; 32], code: 201, body }));
    let again = store.put_entry(&scope(), claimed("b")).await;
    assert!(matches!(again, Err(StoreError::ClaimTaken)));
    assert_eq!(all(store).await, "a taken");
    // A retry must not bring back what was erased.
    store.erase_entries(&scope(), &Selector::Entry("a".to_owned()), false, NOW).await.unwrap();
    assert!(kept().await.is_some());
}

pub(super) async fn old_outcomes_are_purged(store: &Store) {
    for (name, at) in [("acme", 0), ("rival", 0), ("rival", 5)] {
        let operation = format!("POST /{at}");
        store.put_outcome(&tenant(name), outcome(&operation), Millis(at)).await.unwrap();
    }
    let purge = async |at| store.purge_outcomes(Millis(OUTCOME_KEPT_MILLIS + at)).await.unwrap();
    assert_eq!(purge(-1).await, 0);
    assert_eq!(purge(0).await, 2);
    let kept = store.outcome(&tenant("rival"), "POST /5", "k", Millis(5)).await.unwrap();
    assert!(kept.is_some());
}

pub(super) async fn an_erasure_ends_the_past(store: &Store) {
    put(store, entry("a")).await;
    let b = put(store, entry("b")).await.began;
    assert_eq!(ids(store, &as_of(b)).await, "b a");
    let erase = async |dry_run| {
        let selector = Selector::Entry("a".to_owned());
        store.erase_entries(&scope(), &selector, dry_run, NOW).await.unwrap()
    };
    assert_eq!(erase(true).await, 1);
    assert_eq!(ids(store, &as_of(b)).await, "b a");
    assert_eq!(erase(false).await, 1);
    let gone = store.entries(&scope(), &as_of(b), NOW, 9).await.unwrap_err();
    assert!(matches!(gone, StoreError::SnapshotGone { oldest } if oldest.0 == b.0 + 1));
    assert_eq!(erase(false).await, 0);
    let c = put(store, entry("c")).await.began;
    assert_eq!((ids(store, &as_of(c)).await, all(store).await), ("c b".into(), "c b".into()));
    clean(store).await;
}

pub(super) async fn what_has_gone_can_be_told(store: &Store) {
    let acme = scope().tenant().clone();
    let none = store.erasures(&tenant("new"), Position(0), NOW).await.unwrap();
    assert_eq!(none, Erasures::default());
    let short = NewEntry { expires_at: Some(Millis(50)), now: Millis(10), ..entry("short") };
    put(store, short).await;
    for id in ["a", "b"] {
        put(store, NewEntry { now: Millis(10), ..entry(id) }).await;
    }
    let after = store.head(&acme).await.unwrap();
    let told = async |now| store.erasures(&acme, after, Millis(now)).await.unwrap();
    let mut seen = vec![told(20).await];
    // What is added takes nothing away.
    put(store, NewEntry { now: Millis(20), ..entry("c") }).await;
    add(store, "s", &say_many(3)).await;
    assert_eq!(told(20).await, seen[0]);
    seen.push(told(50).await);
    store.end_entry(&scope(), "a", Millis(60)).await.unwrap();
    seen.push(told(60).await);
    store.purge_entries(&scope(), Millis(70), Millis(70), 9).await.unwrap();
    seen.push(told(70).await);
    store.erase_entries(&scope(), &Selector::Entry("b".to_owned()), false, NOW).await.unwrap();
    seen.push(told(70).await);
    let is_new = |(at, told): (usize, &Erasures)| !seen[..at].contains(told);
    assert!(seen.iter().enumerate().all(is_new), "{seen:?}");
    assert_eq!(told(70).await, seen[4]);
    // Nothing of this is another tenant's.
    assert_eq!(store.erasures(&tenant("rival"), Position(0), Millis(70)).await.unwrap(), none);
}
