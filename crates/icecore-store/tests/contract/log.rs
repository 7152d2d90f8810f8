//! Events, entries, kept answers, keys, notes.

use icecore_domain::ids::Position;
use icecore_domain::ids::{Seq, TurnId};
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
        tags: vec![text("plan"), text("subject:Ana")],
        expires_at: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    }
}

async fn put(store: &Store, id: &str) -> EntryRecord {
    store.put_entry(&scope(), entry(id)).await.unwrap()
}

async fn events(store: &Store, memory: Option<&str>, after: u64, limit: usize) -> String {
    let found = store.events(scope().tenant(), memory, Position(after), limit).await.unwrap();
    found.iter().map(|e| format!("{} {}", e.position, e.kind)).collect::<Vec<_>>().join(", ")
}

pub(super) async fn events_merge_turns_and_records_in_order(store: &Store) {
    add(store, "s", &say_many(2)).await;
    put(store, "e1").await;
    add(store, "t", &say_many(1)).await;
    put(store, "e2").await;
    assert_eq!(
        events(store, None, 0, 9).await,
        "1 turn.appended, 2 turn.appended, 3 memory.written, 4 turn.appended, 5 memory.written"
    );
    let all = store.events(scope().tenant(), None, Position(0), 9).await.unwrap();
    assert!(all.iter().all(|event| event.at == NOW));
    let payload: serde_json::Value = serde_json::from_str(&all[3].payload).unwrap();
    let expected = serde_json::json!({
        "memoryRef": "notes", "session": "t", "seq": 1, "branch": "main", "turnId": "turn-2.1",
    });
    assert_eq!(payload, expected);
    assert_eq!(store.events(&tenant("rival"), None, Position(0), 9).await.unwrap(), []);
}

pub(super) async fn paging_misses_nothing(store: &Store) {
    for n in 0..5 {
        add(store, &format!("s{}", n % 2), &say_many(n + 1)).await;
        put(store, &format!("e{n}")).await;
    }
    let all = store.events(scope().tenant(), None, Position(0), 100).await.unwrap();
    assert_eq!(all.iter().map(|e| e.position.0).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    for limit in 1..7 {
        let (mut paged, mut after) = (Vec::new(), Position(0));
        loop {
            let page = store.events(scope().tenant(), None, after, limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = last.position;
            paged.extend(page);
        }
        assert_eq!(paged, all, "by {limit}");
    }
    assert_eq!(events(store, None, u64::MAX, 9).await, "");
}

pub(super) async fn events_can_be_of_one_memory(store: &Store) {
    let diary = scope_of("acme", "diary");
    add(store, "s", &say_many(1)).await;
    store.append(&diary, batch("s", &say_many(2))).await.unwrap();
    put(store, "e").await;
    store.put_entry(&diary, entry("e")).await.unwrap();
    assert_eq!(events(store, Some("notes"), 0, 9).await, "1 turn.appended, 4 memory.written");
    assert_eq!(
        events(store, Some("diary"), 0, 9).await,
        "2 turn.appended, 3 turn.appended, 5 memory.written"
    );
    assert_eq!(events(store, Some("diary"), 2, 1).await, "3 turn.appended");
    assert_eq!(events(store, Some("nowhere"), 0, 9).await, "");
}

pub(super) async fn events_hold_no_content(store: &Store) {
    let session = add(store, "s", &[say("a private word").id("private").by("private")]).await;
    put(store, "e").await;
    erase(store, session, &[1]).await;
    for event in store.events(scope().tenant(), None, Position(0), 9).await.unwrap() {
        assert!(!event.payload.contains("private"), "{}", event.payload);
        assert!(!event.payload.contains("content of"), "{}", event.payload);
    }
}

pub(super) async fn an_erasure_is_logged(store: &Store) {
    let session = add(store, "s", &say_many(2)).await;
    let mut erasure =
        erasing(store, &scope(), session, icecore_domain::ids::Branch::MAIN, &[1, 2]).await;
    erasure.forget_name = true;
    assert!(store.erase(&scope(), erasure).await.unwrap());
    let payload = "{\"turns\":2}".to_owned();
    let position =
        store.log(&scope(), LogKind::Forgotten, payload.clone(), Millis(7)).await.unwrap();
    assert_eq!(position, Position(3));
    let found = store.events(scope().tenant(), Some("notes"), Position(0), 9).await.unwrap();
    // The turns' own events stay, without the name.
    assert_eq!(found.len(), 3);
    assert!(found[0].payload.contains("\"session\":null"));
    let (kind, at) = ("memory.forgotten".to_owned(), Millis(7));
    assert_eq!(found[2], EventRecord { position, at, kind, payload });
    store.log(&scope(), LogKind::Rescanned, "{}".to_owned(), NOW).await.unwrap();
    assert_eq!(events(store, None, 3, 9).await, "4 memory.rescanned");
}

pub(super) async fn entries_are_put_and_listed(store: &Store) {
    let first = put(store, "b").await;
    add(store, "s", &say_many(3)).await;
    let second = put(store, "a").await;
    assert_eq!((first.began, second.began), (Position(1), Position(5)));
    assert_eq!((&first.content, first.created_at), (&text("content of b"), NOW));
    assert_eq!(store.entry(&scope(), "b", None, NOW).await.unwrap(), Some(first.clone()));
    assert_eq!(store.entry(&scope(), "c", None, NOW).await.unwrap(), None);
    assert_eq!(store.entry(&scope_of("acme", "diary"), "b", None, NOW).await.unwrap(), None);
    assert_eq!(store.entry(&scope_of("rival", "notes"), "b", None, NOW).await.unwrap(), None);
    let listed = async |at: Option<u64>, limit| {
        let filter = EntryFilter { at: at.map(Position), ..EntryFilter::default() };
        let found = store.entries(&scope(), &filter, NOW, limit).await.unwrap();
        found.into_iter().map(|entry| entry.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 9).await, ["a", "b"]);
    assert_eq!(listed(None, 1).await, ["a"]);
    assert_eq!(listed(Some(4), 9).await, ["b"]);
    assert_eq!(listed(Some(5), 9).await, ["a", "b"]);
    assert_eq!(listed(Some(u64::MAX), 9).await, ["a", "b"]);
    assert_eq!(listed(Some(0), 9).await, [""; 0]);
    assert_eq!(stats(store).await.entries, 2);

    let twice = store.put_entry(&scope(), entry("a")).await;
    assert!(matches!(twice, Err(StoreError::EntryExists { id }) if id == "a"));
    assert_eq!(store.head(scope().tenant()).await.unwrap(), Position(5));
}

pub(super) async fn entries_expire_and_are_erased(store: &Store) {
    let at = |millis| NewEntry { now: Millis(millis), ..entry(&format!("at {millis}")) };
    store.put_entry(&scope(), NewEntry { expires_at: Some(Millis(50)), ..at(10) }).await.unwrap();
    let in_force =
        async |now| store.entry(&scope(), "at 10", None, Millis(now)).await.unwrap().is_some();
    assert!(in_force(49).await);
    assert!(!in_force(50).await);
    let all = EntryFilter::default();
    assert_eq!(store.entries(&scope(), &all, Millis(50), 9).await.unwrap(), []);

    store.put_entry(&scope(), at(20)).await.unwrap();
    store.put_entry(&scope(), NewEntry { tags: Vec::new(), ..at(30) }).await.unwrap();
    store
        .put_entry(&scope(), NewEntry { tags: vec![text("subject:Ben")], ..at(40) })
        .await
        .unwrap();
    let erase =
        async |selector, dry| store.erase_entries(&scope(), &selector, dry, NOW).await.unwrap();
    let subject = |name: &str| Selector::Subject {
        hash: key().hash_name("name", name),
        tag: text(&format!("subject:{name}")),
    };
    let count = async || store.entries(&scope(), &all, Millis(0), 9).await.unwrap().len();
    assert_eq!(erase(Selector::Before(Millis(40)), true).await, 3);
    assert_eq!(erase(Selector::Session(session_name("s")), false).await, 0);
    assert_eq!((count().await, stats(store).await.epoch), (4, 0));
    assert_eq!(erase(subject("Ana"), false).await, 2);
    assert_eq!(erase(subject("An"), false).await, 0);
    assert_eq!((count().await, stats(store).await.epoch), (2, 1));
    assert_eq!(erase(Selector::Entry("at 40".to_owned()), false).await, 1);
    assert_eq!(erase(Selector::Before(Millis(30)), false).await, 0);
    assert_eq!(erase(Selector::Before(Millis(31)), false).await, 1);
    assert_eq!((count().await, stats(store).await.epoch), (0, 3));
    put(store, "quoted").await;
    let (operation, key) = ("PUT /memory".to_owned(), "k".to_owned());
    let body = OutcomeBody::Text("content of quoted".to_owned());
    let outcome = NewOutcome { claim: Claim { operation, key, request: [1; 32], code: 200 }, body };
    store.put_outcome(scope().tenant(), outcome, NOW).await.unwrap();
    assert_eq!(erase(Selector::Entry("quoted".to_owned()), false).await, 1);
    let kept = store.outcome(scope().tenant(), "PUT /memory", "k", NOW).await.unwrap();
    assert_eq!(kept, None, "it quoted what was erased");
    let other = store.erase_entries(&scope_of("rival", "x"), &subject("Ana"), false, NOW).await;
    assert_eq!(other.unwrap(), 0);
    clean(store).await;
}

fn claimed(turns: &[Say], key: &str, now: Millis) -> AppendBatch {
    let claim = Claim {
        operation: "POST /turns".to_owned(),
        key: key.to_owned(),
        request: [9; 32],
        code: 201,
    };
    AppendBatch { claim: Some(claim), now, ..batch("s", turns) }
}

pub(super) async fn a_claim_is_kept_with_its_effect(store: &Store) {
    let outcome =
        async |key| store.outcome(scope().tenant(), "POST /turns", key, NOW).await.unwrap();
    let appended = store.append(&scope(), claimed(&say_many(2), "k", NOW)).await.unwrap();
    let kept = outcome("k").await.unwrap();
    assert_eq!((kept.request, kept.code), ([9; 32], 201));
    let ids = [1, 2]
        .map(|seq| format!("\"{}\"", TurnId { session: appended.session, seq: Seq(seq) }))
        .join(",");
    let counts = r#""firstSeq":1,"lastSeq":2,"added":2,"known":0,"forgotten":0"#;
    assert_eq!(kept.body, format!("{{\"turnIds\":[{ids}],{counts}}}"));
    let again = store.append(&scope(), claimed(&say_many(2), "k", NOW)).await;
    assert!(matches!(again, Err(StoreError::ClaimTaken)));
    assert_eq!(rows(store, appended.session).await.len(), 2);
    // What fails keeps no outcome either.
    let failing = [say("x").after(&["gone"])];
    assert!(store.append(&scope(), claimed(&failing, "f", NOW)).await.is_err());
    assert_eq!(outcome("f").await, None);
    let other = store.outcome(&tenant("rival"), "POST /turns", "k", NOW).await.unwrap();
    assert_eq!(other, None);
    let other = store.outcome(scope().tenant(), "POST /forget", "k", NOW).await.unwrap();
    assert_eq!(other, None);
}

pub(super) async fn outcomes_are_kept_for_a_day(store: &Store) {
    store.append(&scope(), claimed(&say_many(1), "k", NOW)).await.unwrap();
    let kept = async |after| {
        let now = Millis(NOW.0 + after);
        store.outcome(scope().tenant(), "POST /turns", "k", now).await.unwrap().is_some()
    };
    assert!(kept(OUTCOME_KEPT_MILLIS - 1).await);
    assert!(!kept(OUTCOME_KEPT_MILLIS).await);
    let later = |after| claimed(&say_many(1), "k", Millis(NOW.0 + after));
    assert!(store.append(&scope(), later(OUTCOME_KEPT_MILLIS - 1)).await.is_err());
    assert!(store.append(&scope(), later(OUTCOME_KEPT_MILLIS)).await.is_ok());
    assert!(kept(OUTCOME_KEPT_MILLIS + 1).await);

    let (operation, key) = ("POST /forget".to_owned(), "k".to_owned());
    let body = OutcomeBody::Ids("receipt".to_owned());
    let outcome = NewOutcome { claim: Claim { operation, key, request: [2; 32], code: 200 }, body };
    store.put_outcome(&tenant("new"), outcome, NOW).await.unwrap();
    let found = store.outcome(&tenant("new"), "POST /forget", "k", NOW).await.unwrap().unwrap();
    assert_eq!((found.request, found.code, found.body.as_str()), ([2; 32], 200, "receipt"));
}

pub(super) async fn what_is_of_a_tenant_alone_is_logged(store: &Store) {
    let (acme, payload) = (tenant("acme"), r#"{"reason":"role"}"#.to_owned());
    let at = store.log(&acme, LogKind::Denied, payload.clone(), NOW).await.unwrap();
    assert_eq!(events(store, None, 0, 9).await, format!("{at} auth.denied"));
    assert_eq!(events(store, Some("notes"), 0, 9).await, "");
    let found = store.events(&acme, None, Position(0), 9).await.unwrap();
    assert_eq!((&found[0].payload, found[0].at), (&payload, NOW));
    assert!(store.scopes(&acme).await.unwrap().is_empty(), "no memory is made for it");
}

pub(super) async fn notes_are_kept(store: &Store) {
    assert_eq!(store.note("shape").await.unwrap(), None);
    store.put_note("shape", "round").await.unwrap();
    store.put_note("shape", "square").await.unwrap();
    assert_eq!(store.note("shape").await.unwrap().as_deref(), Some("square"));
    store.tidy().await.unwrap();
    assert_eq!(store.note("shape").await.unwrap().as_deref(), Some("square"));
}

pub(super) async fn the_first_note_stands(store: &Store) {
    let (one, two) = tokio::join!(store.note_once("id", "one"), store.note_once("id", "two"));
    let first = one.unwrap();
    assert_eq!(first, two.unwrap());
    assert_eq!(store.note_once("id", "three").await.unwrap(), first);
    assert_eq!(store.note("id").await.unwrap(), Some(first));
    store.put_note("id", "four").await.unwrap();
    assert_eq!(store.note_once("id", "five").await.unwrap(), "four");
}

pub(super) async fn what_is_there_outlasts_a_scrub(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    warm(store, session, 8).await;
    erase(store, session, &[1, 2, 9]).await;
    let before = (rows(store, session).await, places(store, session).await);
    store.scrub().await.unwrap();
    assert_eq!((rows(store, session).await, places(store, session).await), before);
    let next = try_add(store, "s", &[say("next")]).await.unwrap();
    assert_eq!(shown(&next), "Added 10 main");
    clean(store).await;
}

pub(super) async fn counts_of_work_only_grow(store: &Store) {
    let counts = || {
        let timings = store.timings();
        [timings.reads.count(), timings.writes.count(), timings.committed_writes]
    };
    let before = counts();
    store.put_note("shape", "round").await.unwrap();
    store.note("shape").await.unwrap();
    assert_eq!(counts(), before.map(|count| count + 1));
    assert_eq!(store.timings().queue_depth, 0);
}
