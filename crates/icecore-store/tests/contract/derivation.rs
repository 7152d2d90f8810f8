//! Entries that stand for others: what is in force, and what goes with what.

use std::sync::Arc;

use icecore_domain::ids::Position;
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

async fn put(store: &Store, id: &str, expires_at: Option<i64>) -> EntryRecord {
    let entry = NewEntry {
        id: Some(id.to_owned()),
        content: text(&format!("content of {id}")),
        tags: vec![text(&format!("tag {id}"))],
        expires_at: expires_at.map(Millis),
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    };
    store.put_entry(&scope(), entry).await.unwrap()
}

fn output(expires_at: Option<i64>) -> DerivedEntry {
    let expires_at = expires_at.map(Millis);
    DerivedEntry {
        id: None,
        content: text("in short"),
        tags: vec![text("made")],
        expires_at,
        hidden: Hidden::new(),
    }
}

fn derivation(outputs: Vec<DerivedEntry>, replaced: &[(&str, Successor)]) -> Derivation {
    let replaced = replaced.iter().map(|(id, by)| Replaced {
        id: (*id).to_owned(),
        by: by.clone(),
        is_overtaken: false,
    });
    Derivation {
        outputs,
        replaced: replaced.collect(),
        kind: DerivationKind::Compacted,
        payload: Arc::new(|ids| serde_json::json!({ "outputs": ids })),
        now: NOW,
        secrets_seen: 1,
    }
}

fn kept(id: &str) -> Successor {
    Successor::Kept(id.to_owned())
}

/// Lets entries stand for others that say something else.
async fn overtake(store: &Store, outputs: Vec<DerivedEntry>, replaced: &[(&str, Successor)]) {
    let mut derivation = derivation(outputs, replaced);
    derivation.replaced.iter_mut().for_each(|one| one.is_overtaken = true);
    store.derive_entries(&scope(), derivation).await.unwrap().unwrap();
}

/// Writes one entry in place of some; answers it.
async fn press(store: &Store, ids: &[&str], expires_at: Option<i64>) -> EntryRecord {
    let replaced: Vec<_> = ids.iter().map(|id| (*id, Successor::Output(0))).collect();
    let derivation = derivation(vec![output(expires_at)], &replaced);
    let mut derived = store.derive_entries(&scope(), derivation).await.unwrap().unwrap();
    derived.outputs.remove(0)
}

/// Entries in force are found oldest first too, all at once and one after the other.
async fn assert_backwards(store: &Store, found: &[EntryRecord], now: Millis) {
    let expected: Vec<EntryPlace> = found.iter().rev().map(EntryRecord::place).collect();
    assert_eq!(store.oldest_places(&scope(), None, now, 99).await.unwrap(), expected);
    let mut stepped: Vec<EntryPlace> = Vec::new();
    loop {
        let after = stepped.last().copied();
        let next = store.oldest_places(&scope(), after, now, 1).await.unwrap();
        match next[..] {
            [place] => stepped.push(place),
            [] => break,
            _ => panic!("{next:?}"),
        }
    }
    assert_eq!(stepped, expected);
}

/// Ids in force, newest first, those of ours as `made`.
async fn ids(store: &Store, filter: &EntryFilter, now: i64) -> String {
    let found = store.entries(&scope(), filter, Millis(now), 99).await.unwrap();
    assert!(found.iter().all(|entry| entry.successor.is_none()));
    let places: Vec<Position> = found.iter().map(|entry| entry.began).collect();
    assert_eq!(store.entry_places(&scope(), filter, Millis(now)).await.unwrap(), places);
    let read = store.entries_at(&scope(), &places, filter, Millis(now)).await.unwrap();
    assert_eq!(read, found, "read one by one");
    if *filter == EntryFilter::default() {
        assert_backwards(store, &found, Millis(now)).await;
    }
    let stats = store.stats(scope().tenant(), None, Millis(now)).await.unwrap();
    assert!(filter.at.is_some() || filter.tag.is_some() || stats.entries == found.len() as u64);
    let name = |entry: EntryRecord| if entry.derived { "made".to_owned() } else { entry.id };
    found.into_iter().map(name).collect::<Vec<_>>().join(" ")
}

async fn shown(store: &Store, now: i64) -> String {
    ids(store, &EntryFilter::default(), now).await
}

fn as_of(at: Position) -> EntryFilter {
    EntryFilter { at: Some(at), ..EntryFilter::default() }
}

async fn entry(store: &Store, id: &str, now: i64) -> Option<EntryRecord> {
    store.entry(&scope(), id, None, Millis(now)).await.unwrap()
}

/// What stands for an entry that is read by id.
async fn by(store: &Store, id: &str, now: i64) -> Option<String> {
    entry(store, id, now).await.unwrap().successor
}

async fn sources(store: &Store, id: &str, now: i64) -> String {
    let found = store.sources_of(&scope(), id, Millis(now)).await.unwrap();
    assert!(found.iter().all(|entry| entry.successor.as_deref() == Some(id)));
    found.into_iter().map(|entry| entry.id).collect::<Vec<_>>().join(" ")
}

async fn kinds_after(store: &Store, after: Position) -> String {
    let events = store.events(scope().tenant(), Some("notes"), after, 99).await.unwrap();
    events.into_iter().map(|event| event.kind).collect::<Vec<_>>().join(" ")
}

async fn end(store: &Store, id: &str, now: i64) -> bool {
    store.end_entry(&scope(), id, Millis(now)).await.unwrap()
}

async fn erase(store: &Store, selector: Selector) -> u64 {
    erase_at(store, selector, NOW.0).await
}

async fn erase_at(store: &Store, selector: Selector, now: i64) -> u64 {
    let now = Millis(now);
    let dry = store.erase_entries(&scope(), &selector, true, now).await.unwrap();
    let erased = store.erase_entries(&scope(), &selector, false, now).await.unwrap();
    assert_eq!(dry, erased, "{selector:?}");
    erased
}

const LATE: i64 = NOW.0 + 1_000;

pub(super) async fn a_derived_entry_stands_for_others(store: &Store) {
    for id in ["a", "b", "c"] {
        put(store, id, None).await;
    }
    let before = store.head(scope().tenant()).await.unwrap();
    let replaced = [("a", Successor::Output(0)), ("c", Successor::Output(1))];
    let two = derivation(vec![output(None), output(None)], &replaced);
    let derived = store.derive_entries(&scope(), two).await.unwrap().unwrap();
    let [first, second] = &derived.outputs[..] else { panic!("{derived:?}") };
    assert!(first.id.starts_with("e-") && first.id.len() == 22 && first.id != second.id);
    assert!(first.derived && first.began < second.began && first.created_at == NOW);
    assert_eq!(entry(store, &first.id, LATE).await.as_ref(), Some(first));

    assert_eq!(shown(store, LATE).await, "made made b");
    let of_tag = EntryFilter { tag: Some(text("tag a")), ..EntryFilter::default() };
    assert_eq!(ids(store, &of_tag, LATE).await, "");
    // Whoever names one of the others is told what stands for it.
    assert_eq!(by(store, "a", LATE).await.as_ref(), Some(&first.id));
    assert_eq!(by(store, "c", LATE).await.as_ref(), Some(&second.id));
    assert_eq!(by(store, "b", LATE).await, None);
    assert_eq!(sources(store, &first.id, LATE).await, "a");
    assert_eq!(sources(store, "b", LATE).await, "");
    // An index is made of them too: they may be in force again.
    let after = store.entries_after(&scope(), Position(0), NOW, 9).await.unwrap();
    assert_eq!(after.len(), 5);
    assert_eq!(after[0].successor.as_ref(), Some(&first.id));

    // At every position, one of the two is seen.
    assert_eq!(ids(store, &as_of(before), LATE).await, "c b a");
    assert_eq!(ids(store, &as_of(first.began), LATE).await, "made c b");
    assert_eq!(ids(store, &as_of(derived.position), LATE).await, "made made b");
    let then = store.entry(&scope(), "a", Some(before), NOW).await.unwrap().unwrap();
    assert_eq!(then.successor, None);
    assert_eq!(store.entry(&scope(), "a", Some(derived.position), NOW).await.unwrap(), None);

    let events = store.events(scope().tenant(), Some("notes"), before, 9).await.unwrap();
    assert_eq!(kinds_after(store, before).await, "memory.written memory.written memory.compacted");
    assert_eq!((events[2].position, &events[2].payload), (derived.position, &derived.payload));
    let payload = serde_json::json!({ "outputs": [first.id, second.id] }).to_string();
    assert_eq!(derived.payload, payload);
    // Nothing of that takes anything away for good.
    assert_eq!(store.due_entries(Millis(i64::MAX), Millis(i64::MAX), 9).await.unwrap(), []);
    assert_eq!(store.scope_head(&scope()).await.unwrap().epoch, 0);
    clean(store).await;
}

pub(super) async fn one_that_stays_can_stand_for_another(store: &Store) {
    for (id, expires_at) in [("a", None), ("b", Some(LATE)), ("c", None)] {
        put(store, id, expires_at).await;
    }
    let before = store.head(scope().tenant()).await.unwrap();
    let same = Derivation {
        kind: DerivationKind::Consolidated,
        ..derivation(Vec::new(), &[("a", kept("b"))])
    };
    let derived = store.derive_entries(&scope(), same).await.unwrap().unwrap();
    assert_eq!((derived.outputs.len(), derived.position.0), (0, before.0 + 1));
    assert_eq!(kinds_after(store, before).await, "agent.memory.consolidated");
    assert_eq!(shown(store, LATE - 1).await, "c b");
    assert_eq!(sources(store, "b", LATE - 1).await, "a");
    // It stays when what it stands for is deleted: it quotes nothing.
    assert_eq!(shown(store, LATE).await, "c a");
    assert!(end(store, "a", LATE - 1).await);
    assert_eq!(
        (shown(store, LATE - 1).await.as_str(), shown(store, LATE).await.as_str()),
        ("c b", "c")
    );
    clean(store).await;
}

pub(super) async fn nothing_is_derived_of_what_is_not_in_force(store: &Store) {
    for (id, expires_at) in [("a", None), ("b", None), ("short", Some(NOW.0)), ("gone", None)] {
        put(store, id, expires_at).await;
    }
    end(store, "gone", 1).await;
    let out = Successor::Output(0);
    let mut refused: Vec<Vec<(&str, Successor)>> = vec![
        vec![("a", out.clone()), ("gone", out.clone())],
        vec![("short", out.clone())],
        vec![("never", out.clone())],
        vec![("a", kept("gone"))],
        vec![("a", kept("never"))],
        vec![("a", out.clone()), ("a", out.clone())],
        vec![("a", out.clone()), ("b", kept("a"))],
        vec![("a", kept("a"))],
        vec![("a", Successor::Output(1))],
    ];
    let head = store.head(scope().tenant()).await.unwrap();
    for replaced in &refused {
        let refused = derivation(vec![output(None)], replaced);
        assert_eq!(store.derive_entries(&scope(), refused).await.unwrap(), None, "{replaced:?}");
    }
    assert_eq!(store.head(scope().tenant()).await.unwrap(), head);
    assert_eq!(shown(store, LATE).await, "b a");
    for other in [scope_of("acme", "diary"), scope_of("new", "notes")] {
        let refused = derivation(vec![output(None)], &refused[7]);
        assert_eq!(store.derive_entries(&other, refused).await.unwrap(), None);
        assert_eq!(store.scope_head(&other).await.unwrap(), ScopeHead::default());
    }
    let made = press(store, &["a"], None).await;
    refused.push(vec![("a", out)]);
    refused.push(vec![("b", kept("a"))]);
    for replaced in &refused {
        let refused = derivation(vec![output(None)], replaced);
        assert_eq!(store.derive_entries(&scope(), refused).await.unwrap(), None, "{replaced:?}");
    }
    // Text that was redacted with other secrets is not stored.
    let stale = Derivation { secrets_seen: 7, ..derivation(vec![output(None)], &[]) };
    let stale = store.derive_entries(&scope(), stale).await;
    assert!(matches!(stale, Err(StoreError::SecretsChanged)));
    assert_eq!(by(store, "a", LATE).await, Some(made.id));
}

pub(super) async fn what_expires_shows_what_it_stood_for(store: &Store) {
    for (id, expires_at) in [("a", None), ("b", Some(LATE + 20)), ("c", None)] {
        put(store, id, expires_at).await;
    }
    // It cannot outlive what it quotes.
    let made = press(store, &["a", "b"], None).await;
    assert_eq!(made.expires_at, Some(Millis(LATE + 20)));
    let other = press(store, &[&made.id, "c"], Some(LATE)).await;
    assert_eq!(other.expires_at, Some(Millis(LATE)));
    let last = store.head(scope().tenant()).await.unwrap();
    for (now, expected) in [
        (LATE - 1, "made"),
        (LATE, "made c"),
        (LATE + 19, "made c"),
        (LATE + 20, "c a"),
        (LATE + 21, "c a"),
    ] {
        assert_eq!(shown(store, now).await, expected, "{now}");
        assert_eq!(ids(store, &as_of(last), now).await, expected, "{now}");
    }
    assert_eq!(sources(store, &other.id, LATE - 1).await, format!("c {}", made.id));
    assert_eq!(sources(store, &made.id, LATE - 1).await, "a b");
    assert_eq!(sources(store, &other.id, LATE).await, "");
    assert_eq!(by(store, &made.id, LATE).await, None);
    assert_eq!(by(store, "a", LATE + 19).await, Some(made.id.clone()));
    assert_eq!(by(store, "a", LATE + 20).await, None);

    // A purge changes nothing of that.
    assert_eq!(store.due_entries(Millis(LATE), Millis(0), 9).await.unwrap(), [scope()]);
    let purge = async |now, limit| {
        store.purge_entries(&scope(), Millis(now), Millis(0), limit).await.unwrap()
    };
    assert_eq!(purge(LATE, 9).await, 1);
    assert_eq!(
        (shown(store, LATE).await.as_str(), shown(store, LATE + 20).await.as_str()),
        ("made c", "c a")
    );
    clean(store).await;
    assert_eq!(ids(store, &as_of(last), LATE + 20).await, "c a");
    assert_eq!(
        (purge(LATE + 20, 1).await, purge(LATE + 20, 1).await, purge(LATE + 20, 1).await),
        (1, 1, 0)
    );
    assert_eq!(shown(store, LATE + 20).await, "c a");
    // Nobody could read what has expired: the past is whole.
    assert_eq!(ids(store, &as_of(Position(1)), LATE + 20).await, "a");
    clean(store).await;
}

pub(super) async fn what_is_back_can_be_replaced_again(store: &Store) {
    put(store, "a", None).await;
    press(store, &["a"], Some(NOW.0 + 1)).await;
    let again = Derivation {
        now: Millis(NOW.0 + 1),
        ..derivation(vec![output(None)], &[("a", Successor::Output(0))])
    };
    let made = store.derive_entries(&scope(), again).await.unwrap().unwrap().outputs.remove(0);
    assert_eq!(shown(store, LATE).await, "made");
    // What expired lets go of nothing that is another's by now.
    assert_eq!(store.purge_entries(&scope(), Millis(LATE), Millis(0), 9).await.unwrap(), 1);
    assert_eq!(by(store, "a", LATE).await, Some(made.id));
    assert_eq!(shown(store, LATE).await, "made");
    clean(store).await;
}

pub(super) async fn a_deleted_entry_takes_what_it_stands_for(store: &Store) {
    for id in ["a", "b", "c", "d"] {
        put(store, id, None).await;
    }
    let made = press(store, &["a", "b"], None).await;
    let other = press(store, &[&made.id, "c"], None).await;
    let before = store.head(scope().tenant()).await.unwrap();
    assert!(end(store, &other.id, 50).await);
    assert_eq!(kinds_after(store, before).await, ["memory.deleted"; 5].join(" "));
    let events = store.events(scope().tenant(), Some("notes"), before, 9).await.unwrap();
    let payload = format!(r#"{{"memoryRef":"notes","memoryId":"{}"}}"#, other.id);
    assert_eq!(events[0].payload, payload);
    assert_eq!(shown(store, LATE).await, "d");
    for id in ["a", "b", "c", &made.id, &other.id] {
        assert_eq!(entry(store, id, LATE).await, None, "{id}");
        assert!(!end(store, id, 50).await);
    }
    // Who reads the past sees what there was then.
    assert_eq!(ids(store, &as_of(before), LATE).await, "made d");
    assert_eq!(ids(store, &as_of(Position(3)), LATE).await, "c b a");
    let gone = store.purge_entries(&scope(), Millis(60), Millis(50), 9).await.unwrap();
    assert_eq!((gone, shown(store, LATE).await.as_str()), (5, "d"));
    clean(store).await;
}

pub(super) async fn what_was_overtaken_comes_back(store: &Store) {
    for id in ["a", "b", "c", "d"] {
        put(store, id, None).await;
    }
    // What says the same goes along, what says something else does not.
    overtake(store, Vec::new(), &[("a", kept("b"))]).await;
    let same = derivation(Vec::new(), &[("c", kept("b"))]);
    store.derive_entries(&scope(), same).await.unwrap().unwrap();
    assert_eq!(shown(store, LATE).await, "d b");
    let before = store.head(scope().tenant()).await.unwrap();
    assert!(end(store, "b", 50).await);
    assert_eq!(kinds_after(store, before).await, "memory.deleted memory.deleted");
    assert_eq!((shown(store, LATE).await.as_str(), by(store, "a", LATE).await), ("d a", None));
    clean(store).await;

    // So it is with an erasure, and where another stands for what stood for it.
    overtake(store, Vec::new(), &[("a", kept("d"))]).await;
    let made = press(store, &["d"], None).await;
    assert_eq!(erase(store, Selector::Entry(made.id)).await, 2);
    assert_eq!(shown(store, LATE).await, "a");
    clean(store).await;

    // What is written in its place does not quote it, and need not end with it.
    put(store, "short", Some(LATE)).await;
    overtake(store, vec![output(None)], &[("short", Successor::Output(0))]).await;
    assert_eq!(shown(store, LATE).await, "made a");
    assert!(end(store, "short", 50).await);
    assert_eq!(shown(store, LATE).await, "made a");
    assert_eq!(erase(store, Selector::Entry("short".to_owned())).await, 1);
    assert_eq!(shown(store, LATE).await, "made a");
    clean(store).await;
}

/// The entries `first`, `second` and `third`, each overtaken by the next.
async fn overtaken_twice(store: &Store, second: Option<i64>, third: Option<i64>) {
    for (id, expires_at) in [("first", None), ("second", second), ("third", third)] {
        put(store, id, expires_at).await;
    }
    overtake(store, Vec::new(), &[("first", kept("second"))]).await;
    overtake(store, Vec::new(), &[("second", kept("third"))]).await;
    assert_eq!(shown(store, LATE - 1).await, "third");
}

async fn erase_all(store: &Store) {
    erase(store, Selector::Before(Millis(i64::MAX))).await;
    assert_eq!(shown(store, NOW.0).await, "");
    clean(store).await;
}

pub(super) async fn a_value_comes_back_only_after_all_later_ones(store: &Store) {
    // By expiry, before and after a purge, in either order.
    for (second, third, expected) in [
        (Some(LATE), None, ["third", "third", "third"]),
        (Some(LATE), Some(LATE + 20), ["third", "third", "first"]),
        (Some(LATE + 20), Some(LATE), ["second", "second", "first"]),
        (None, Some(LATE), ["second", "second", "second"]),
    ] {
        overtaken_twice(store, second, third).await;
        for is_purged in [false, true] {
            for (now, expected) in [LATE, LATE + 19, LATE + 20].into_iter().zip(expected) {
                if is_purged {
                    store.purge_entries(&scope(), Millis(now), Millis(0), 9).await.unwrap();
                }
                assert_eq!(shown(store, now).await, expected, "{second:?} {third:?} {now}");
                clean(store).await;
            }
        }
        erase_all(store).await;
    }
    let one = |id: &str| Selector::Entry(id.to_owned());
    // By deletion and by erasure of the middle one; then the last brings the first.
    for is_erased in [false, true] {
        overtaken_twice(store, Some(LATE), None).await;
        let seen = store.head(scope().tenant()).await.unwrap();
        match is_erased {
            true => assert_eq!(erase(store, one("second")).await, 1),
            false => assert!(end(store, "second", 50).await),
        }
        assert_eq!(
            (shown(store, 50).await, shown(store, LATE).await),
            ("third".into(), "third".into())
        );
        assert_eq!(by(store, "first", 50).await.as_deref(), Some("third"));
        if !is_erased {
            assert_eq!(ids(store, &as_of(seen), 50).await, "third");
        }
        clean(store).await;
        assert!(end(store, "third", 50).await);
        assert_eq!(shown(store, 50).await, "first");
        clean(store).await;
        erase_all(store).await;
    }
    // The last one goes: the middle one hides the first for as long as it lives.
    for is_erased in [false, true] {
        overtaken_twice(store, Some(LATE), None).await;
        match is_erased {
            true => assert_eq!(erase(store, one("third")).await, 1),
            false => assert!(end(store, "third", 50).await),
        }
        assert_eq!(
            (shown(store, 50).await, shown(store, LATE).await),
            ("second".into(), "first".into())
        );
        clean(store).await;
        erase_all(store).await;
    }
    // So it is with what one was made of that was overtaken.
    for (id, expires_at) in [("short", Some(LATE)), ("long", None), ("new", None)] {
        put(store, id, expires_at).await;
    }
    let made = press(store, &["short", "long"], None).await;
    overtake(store, Vec::new(), &[(&made.id, kept("new"))]).await;
    assert_eq!(shown(store, LATE).await, "new");
    assert!(end(store, "short", 50).await);
    assert_eq!(
        (shown(store, 50).await.as_str(), by(store, "long", 50).await.as_deref()),
        ("new", Some("new"))
    );
    clean(store).await;
    // It says something else: the other comes back when it goes.
    assert!(end(store, "new", 50).await);
    assert_eq!(shown(store, 50).await, "long");
    clean(store).await;
}

pub(super) async fn what_ended_with_an_entry_is_forgotten_with_it(store: &Store) {
    for id in ["a", "b", "c", "d"] {
        put(store, id, None).await;
    }
    let made = press(store, &["a", "b"], None).await;
    assert!(end(store, &made.id, 50).await);
    assert_eq!(erase(store, Selector::Entry(made.id)).await, 3);
    clean(store).await;
    // Also what said the same, by way of others, and in one that has expired.
    put(store, "short", Some(LATE)).await;
    for (id, by) in [("c", "short"), ("short", "d")] {
        let same = derivation(Vec::new(), &[(id, kept(by))]);
        store.derive_entries(&scope(), same).await.unwrap().unwrap();
    }
    assert_eq!(shown(store, LATE).await, "d");
    assert!(end(store, "d", LATE).await);
    assert_eq!(shown(store, LATE).await, "");
    assert_eq!(erase_at(store, Selector::Entry("d".to_owned()), LATE).await, 3);
    clean(store).await;
    // What is in force, or ended for itself, is not said by what ended beside it.
    for id in ["a", "b", "c", "d"] {
        put(store, id, None).await;
    }
    let made = press(store, &["a", "b"], None).await;
    let same = derivation(Vec::new(), &[("c", kept("d"))]);
    store.derive_entries(&scope(), same).await.unwrap().unwrap();
    assert!(end(store, "a", 50).await && end(store, "c", 50).await);
    assert_eq!(erase(store, Selector::Entry(made.id)).await, 2);
    assert_eq!(erase(store, Selector::Entry("c".to_owned())).await, 1);
    assert_eq!(shown(store, LATE).await, "d b");
    clean(store).await;
}

pub(super) async fn a_deletion_that_brings_back_raises_the_epoch(store: &Store) {
    for id in ["a", "b", "c"] {
        put(store, id, None).await;
    }
    let epoch = async || store.scope_head(&scope()).await.unwrap().epoch;
    overtake(store, Vec::new(), &[("a", kept("b"))]).await;
    assert!(end(store, "c", 50).await);
    assert_eq!(epoch().await, 0);
    assert!(end(store, "b", 50).await);
    assert_eq!((shown(store, LATE).await.as_str(), epoch().await), ("a", 1));
}

pub(super) async fn no_reader_sees_an_entry_beside_what_stands_for_it(store: &Store) {
    for id in ["a", "b", "c"] {
        put(store, id, None).await;
    }
    press(store, &["a", "b"], None).await;
    let seen = store.head(scope().tenant()).await.unwrap();
    assert_eq!(ids(store, &as_of(seen), LATE).await, "made c");
    // Nothing comes back: the past stays as it was.
    assert!(end(store, "c", 50).await);
    assert_eq!(ids(store, &as_of(seen), LATE).await, "made c");
    assert_eq!(ids(store, &as_of(Position(2)), LATE).await, "b a");
    // What is in force again would be in the past, too.
    assert!(end(store, "a", 50).await);
    let last = store.head(scope().tenant()).await.unwrap();
    assert_eq!(ids(store, &as_of(last), LATE).await, "b");
    for at in [Position(2), seen, Position(last.0 - 1)] {
        let gone = store.entries(&scope(), &as_of(at), Millis(LATE), 9).await.unwrap_err();
        assert!(matches!(gone, StoreError::SnapshotGone { oldest } if oldest == last), "{gone}");
    }
    clean(store).await;
}

pub(super) async fn what_has_expired_takes_nothing_with_it(store: &Store) {
    for id in ["a", "b", "c"] {
        put(store, id, None).await;
    }
    let made = press(store, &["a", "b"], Some(LATE)).await;
    let id = || Selector::Entry(made.id.clone());
    let dry = store.erase_entries(&scope(), &id(), true, Millis(LATE - 1)).await.unwrap();
    assert_eq!((dry, shown(store, LATE).await.as_str()), (3, "c b a"));
    assert_eq!(erase_at(store, id(), LATE).await, 1);
    assert_eq!(shown(store, LATE).await, "c b a");
    clean(store).await;
}

pub(super) async fn what_quotes_a_rewritten_entry_is_dropped(store: &Store) {
    for id in ["a", "b", "c", "delta", "e"] {
        put(store, id, None).await;
    }
    let hidden = Hidden::from([("jwt".to_owned(), 2)]);
    let counted = DerivedEntry { hidden, ..output(None) };
    let pressed = derivation(vec![counted], &["a", "b"].map(|id| (id, Successor::Output(0))));
    let derived = store.derive_entries(&scope(), pressed).await.unwrap().unwrap();
    let first = &derived.outputs[0];
    let second = press(store, &[&first.id, "c"], None).await;
    // One that only gets another tag says what it said.
    let third = press(store, &["delta"], None).await;
    assert_eq!(shown(store, LATE).await, "made made e");
    let head = store.head(scope().tenant()).await.unwrap();
    let epoch = store.scope_head(&scope()).await.unwrap().epoch;

    let redactor = redactor_of(&["content of a", "tag delta"]);
    let retell = async || {
        store
            .rewrite_stored_text(scope().tenant(), Arc::clone(&redactor), Millis(LATE))
            .await
            .unwrap()
    };
    let told = retell().await;
    assert_eq!((told.entries, told.derived, told.touched), (2, 2, vec![scope()]));
    assert_eq!(shown(store, LATE).await, "made e c b a");
    assert_eq!(entry(store, "a", LATE).await.unwrap().content, redactor.text("content of a"));
    assert_eq!(sources(store, &third.id, LATE).await, "delta");
    for gone in [&first.id, &second.id] {
        assert_eq!(entry(store, gone, LATE).await, None);
    }
    assert_eq!(stats(store).await.hidden.get("jwt"), None);
    assert_eq!(store.scope_head(&scope()).await.unwrap().epoch, epoch + 1);
    let past = store.entries(&scope(), &as_of(head), Millis(LATE), 9).await;
    assert!(matches!(past, Err(StoreError::SnapshotGone { .. })));
    assert_eq!(retell().await, RewriteCounts::default());
    clean(store).await;
}

pub(super) async fn a_deleted_entry_takes_what_quotes_it(store: &Store) {
    for id in ["a", "b", "c", "d"] {
        put(store, id, None).await;
    }
    let made = press(store, &["a", "b"], None).await;
    let other = press(store, &[&made.id, "c"], None).await;
    let before = store.head(scope().tenant()).await.unwrap();
    let erasures = store.erasures(scope().tenant(), before, NOW).await.unwrap();
    assert!(end(store, "a", 50).await);
    assert_eq!(kinds_after(store, before).await, ["memory.deleted"; 3].join(" "));
    assert_ne!(store.erasures(scope().tenant(), before, NOW).await.unwrap(), erasures);
    // What they were made of besides is in force again.
    assert_eq!(shown(store, LATE).await, "d c b");
    assert_eq!((by(store, "b", LATE).await, by(store, "c", LATE).await), (None, None));
    assert_eq!(entry(store, &made.id, LATE).await, None);
    assert_eq!(entry(store, &other.id, LATE).await, None);
    clean(store).await;

    // They are kept for who reads the past, and quote it: forgetting finds them.
    assert_eq!(erase(store, Selector::Entry("b".to_owned())).await, 3);
    assert_eq!(shown(store, LATE).await, "d c");
    assert_eq!(store.purge_entries(&scope(), Millis(60), Millis(50), 9).await.unwrap(), 1);
    clean(store).await;
}

pub(super) async fn a_deletion_reaches_down_and_up(store: &Store) {
    for id in ["a", "b", "c"] {
        put(store, id, None).await;
    }
    let made = press(store, &["a", "b"], None).await;
    press(store, &[&made.id, "c"], None).await;
    assert!(end(store, &made.id, 50).await);
    assert_eq!(shown(store, LATE).await, "c");
    assert_eq!((entry(store, "a", LATE).await, entry(store, "b", LATE).await), (None, None));
    clean(store).await;
}

pub(super) async fn an_erasure_takes_what_quotes_it(store: &Store) {
    for id in ["a", "b", "c", "d"] {
        put(store, id, None).await;
    }
    let hidden = Hidden::from([("jwt".to_owned(), 2)]);
    let counted = DerivedEntry { hidden, ..output(None) };
    let replaced = [("a", Successor::Output(0)), ("b", Successor::Output(0))];
    let made = derivation(vec![counted], &replaced);
    let made = store.derive_entries(&scope(), made).await.unwrap().unwrap().outputs.remove(0);
    assert_eq!(stats(store).await.hidden.len(), 1);
    press(store, &[&made.id, "c"], None).await;
    let subject = Selector::Subject { hash: [0; 16], tag: text("tag b") };
    assert_eq!(erase(store, subject).await, 3);
    assert_eq!((shown(store, LATE).await.as_str(), stats(store).await.hidden.len()), ("d c a", 0));
    clean(store).await;
    // Its words may be in one that has expired and is not purged.
    press(store, &["a", "c"], Some(NOW.0 + 1)).await;
    assert_eq!(shown(store, LATE).await, "d c a");
    assert_eq!(erase(store, Selector::Entry("a".to_owned())).await, 2);
    assert_eq!(shown(store, LATE).await, "d c");
    clean(store).await;
}

pub(super) async fn an_erased_entry_takes_what_it_stands_for(store: &Store) {
    for id in ["a", "b", "c", "d"] {
        put(store, id, None).await;
    }
    let made = press(store, &["a", "b"], None).await;
    let same = derivation(Vec::new(), &[("c", kept("d"))]);
    store.derive_entries(&scope(), same).await.unwrap().unwrap();
    assert_eq!(shown(store, LATE).await, "made d");
    // By a tag, only what has it.
    let subject = Selector::Subject { hash: [0; 16], tag: text("tag d") };
    assert_eq!(erase(store, subject).await, 1);
    assert_eq!(shown(store, LATE).await, "made c");
    assert_eq!(erase(store, Selector::Entry(made.id)).await, 3);
    assert_eq!(shown(store, LATE).await, "c");
    assert_eq!(erase(store, Selector::Before(Millis(LATE))).await, 1);
    clean(store).await;
}

pub(super) async fn own_entries_are_seen_although_they_are_later(store: &Store) {
    let at = put(store, "a", None).await.began;
    for id in ["b", "c", "d"] {
        put(store, id, None).await;
    }
    put(store, "short", Some(LATE)).await;
    let own = |ids: &[&str]| EntryFilter {
        own: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..as_of(at)
    };
    assert_eq!(ids(store, &own(&[]), NOW.0).await, "a");
    assert_eq!(ids(store, &own(&["c", "never", "short"]), NOW.0).await, "short c a");
    assert_eq!(ids(store, &own(&["c", "short"]), LATE).await, "c a");
    let tagged = EntryFilter { tag: Some(text("tag c")), ..own(&["b", "c"]) };
    assert_eq!(ids(store, &tagged, NOW.0).await, "c");
    // What others make of them later is not seen.
    press(store, &["a", "c"], None).await;
    assert_eq!(ids(store, &own(&["c"]), NOW.0).await, "c a");
    let now = EntryFilter { at: None, ..own(&["c"]) };
    assert_eq!(ids(store, &now, NOW.0).await, "made short d b");
}

pub(super) async fn crowded_memories_are_found(store: &Store) {
    for (tenant, memory, count) in [("acme", "notes", 3), ("acme", "diary", 2), ("rival", "x", 4)] {
        for at in 0..count {
            let entry = NewEntry {
                id: Some(format!("{at}")),
                content: text("said"),
                tags: Vec::new(),
                expires_at: (at == 2).then_some(Millis(90)),
                now: Millis(10 * at),
                secrets_seen: 1,
                hidden: Hidden::new(),
                claim: None,
            };
            store.put_entry(&scope_of(tenant, memory), entry).await.unwrap();
        }
    }
    let found = async |count, quiet: i64, now: i64, limit| {
        let found = store.crowded_memories(count, Millis(quiet), Millis(now), limit).await;
        let mut found = found.unwrap();
        // Which tenant comes first is the store's to say.
        found.sort_by(|a, b| a.tenant().cmp(b.tenant()));
        found.iter().map(|scope| scope.memory().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found(2, 30, 40, 9).await, "notes diary x");
    assert_eq!(found(2, 30, 40, 1).await.split(' ').count(), 1);
    assert_eq!(found(3, 30, 40, 9).await, "notes x");
    assert_eq!(found(3, 20, 40, 9).await, "notes");
    assert_eq!(found(3, 30, 90, 9).await, "x");
    assert_eq!(found(5, 30, 40, 9).await, "");
    // What another stands for is not counted, nor what has ended.
    let now = Millis(40);
    let pressed = Derivation {
        now,
        ..derivation(
            vec![output(None)],
            &[("0", Successor::Output(0)), ("1", Successor::Output(0))],
        )
    };
    store.derive_entries(&scope(), pressed).await.unwrap().unwrap();
    assert_eq!(found(3, 40, 40, 9).await, "x");
    assert_eq!(
        (found(2, 30, 40, 9).await, found(2, 40, 40, 9).await),
        ("diary x".into(), "notes diary x".into())
    );
    store.end_entry(&scope_of("rival", "x"), "3", now).await.unwrap();
    assert_eq!(found(3, 30, 40, 9).await, "x");
    assert_eq!(found(4, 30, 40, 9).await, "");
}

/// A derivation that fails left the old, one whose answer is lost left the new.
#[cfg(test)]
pub(super) async fn deriving_is_one_step(store: Store) {
    use crate::store::hooks::Failing;
    put(&store, "a", None).await;
    put(&store, "b", None).await;
    for (is_done, before, after) in [(false, "b a", "b a"), (true, "b a", "made")] {
        let failing = match is_done {
            false => store.hooked(Failing::instead_of(1)),
            true => store.hooked(Failing::after(1)),
        };
        assert_eq!(shown(&store, LATE).await, before);
        let replaced = [("a", Successor::Output(0)), ("b", Successor::Output(0))];
        let derivation = derivation(vec![output(None)], &replaced);
        assert!(failing.derive_entries(&scope(), derivation).await.is_err());
        assert_eq!(shown(&store, LATE).await, after);
        clean(&store).await;
    }
    for (is_done, after) in [(false, "made"), (true, "b")] {
        let failing = match is_done {
            false => store.hooked(Failing::instead_of(1)),
            true => store.hooked(Failing::after(1)),
        };
        assert!(failing.end_entry(&scope(), "a", NOW).await.is_err());
        assert_eq!(shown(&store, LATE).await, after);
        clean(&store).await;
    }
}
