//! Dreams: what is due, what is kept of one, and what it is lost with.

use std::sync::Arc;

use icecore_domain::dream::{Checksum, INDEX_PATH};
use icecore_domain::entries::COMMITMENT_TAG;
use icecore_domain::fact::Verdict;
use icecore_domain::ids::{Branch, Ordinal, Position, Principal, Seq, SessionNo, Tenant, TurnId};
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};

use super::commitments::new_commitment;
use super::erasure::subject;
use super::fixtures::*;
use super::runs::{new_run, next};
use super::workspace::file;
use crate::error::StoreError;
use crate::pack::PackKey;
use crate::store::Store;
use crate::*;

const FIRST: &str = "q8Zk2Lm9Xw";
const LATER: Millis = Millis(NOW.0 + 60_000);

fn acme() -> Tenant {
    tenant("acme")
}

fn place() -> Workspace {
    Principal::local_operator(acme()).workspace()
}

async fn put(store: &Store, id: &str) -> EntryRecord {
    put_as(store, id, &format!("content of {id}"), None).await
}

async fn put_as(store: &Store, id: &str, content: &str, expires_at: Option<Millis>) -> EntryRecord {
    let entry = NewEntry {
        id: Some(id.to_owned()),
        content: text(content),
        tags: vec![text(&format!("subject:{id}"))],
        expires_at,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    };
    store.put_entry(&scope(), entry).await.unwrap()
}

fn span(session: SessionNo, after: u64, through: u64) -> DreamSpan {
    let (after, through) = (Ordinal(after), Ordinal(through));
    DreamSpan { session, branch: Branch::MAIN, after, through }
}

pub(crate) fn new_archive(number: u8) -> NewArchive {
    NewArchive {
        checksum: Checksum([number; 32]),
        name: format!("body-{number}"),
        key: PackKey::from_bytes([number; 32]),
        bytes: 100,
        stored_bytes: 40,
        sha256: [number; 32],
    }
}

/// The `number`th dream, which reads nothing yet.
pub(crate) fn new_dream(number: u8, previous: Option<&str>) -> NewDream {
    NewDream {
        holder: "me".to_owned(),
        previous: previous.map(str::to_owned),
        epoch: 0,
        run: DreamRun::New(new_run(&format!("dream-{number}"))),
        trigger: DreamTrigger::Manual,
        distiller: "extractive-1".to_owned(),
        output: DerivedEntry {
            id: None,
            content: text(&format!("dreamt {number}")),
            tags: vec![text(&format!("compacted-from:dream-{number}"))],
            expires_at: None,
            hidden: Hidden::new(),
        },
        entries: Vec::new(),
        spans: Vec::new(),
        archive: new_archive(number),
        figures: DreamFigures {
            budget: 1000 * u64::from(number),
            minimum: 10,
            input_tokens: 70,
            output_tokens: 7,
            source_count: 3,
            remaining: 1,
            bytes_before: 500,
            bytes_after: 50,
            lines: 4,
        },
        section: text(&format!(r#"{{"topics":["topic {number}"]}}"#)),
        source_ids: text(r#"["a"]"#),
        index: None,
        payload: Arc::new(|ids| serde_json::json!({ "outputs": ids })),
        now: NOW,
        secrets_seen: 1,
    }
}

fn index(content: &str) -> Option<(Workspace, NewFile)> {
    Some((place(), file(INDEX_PATH, content)))
}

async fn lease(store: &Store, holder: &str, now: Millis) -> bool {
    let lease = Lease { holder: holder.to_owned(), until: Millis(now.0 + 1000) };
    store.lease_dream(&scope(), lease, now).await.unwrap()
}

async fn epoch(store: &Store) -> u64 {
    store.scope_head(&scope()).await.unwrap().epoch
}

/// Keeps a dream as of now.
async fn keep(store: &Store, dream: NewDream) -> KeptDream {
    assert!(lease(store, "me", NOW).await);
    let dream = NewDream { epoch: epoch(store).await, ..dream };
    match store.keep_dream(&scope(), dream).await.unwrap() {
        Kept::Done(kept) => *kept,
        other => panic!("{other:?}"),
    }
}

async fn record(store: &Store, run: &str) -> DreamRecord {
    store.dream(&acme(), run).await.unwrap().unwrap()
}

async fn state(store: &Store, run: &str) -> DreamState {
    record(store, run).await.state
}

/// Ids in force, oldest first; outputs by what they say.
async fn in_force(store: &Store) -> String {
    let found = store.entries(&scope(), &EntryFilter::default(), NOW, 99).await.unwrap();
    let name = |entry: &EntryRecord| match entry.derived {
        true => entry.content.to_string(),
        false => entry.id.clone(),
    };
    found.iter().rev().map(name).collect::<Vec<_>>().join(", ")
}

async fn kinds_after(store: &Store, after: Position) -> String {
    let found = store.events(&acme(), None, after, 99).await.unwrap();
    found.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>().join(" ")
}

/// `1-9` for each branch with turns that are due, after session and branch.
async fn due(store: &Store) -> String {
    let found = store.undreamt_branches(&scope(), None, 99).await.unwrap();
    let show = |one: &Undreamt| {
        format!("{}.{} {}-{}", one.session.0, one.branch, one.after.0 + 1, one.through.0)
    };
    found.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// The dreams of a memory, oldest first, by number and state, with `+` for a key.
async fn shown(store: &Store) -> String {
    let query = DreamQuery { limit: 99, ..DreamQuery::default() };
    let found = store.dreams(&acme(), &query).await.unwrap();
    let archives = store.archives(Some(&acme())).await.unwrap();
    let show = |dream: &DreamRecord| {
        let of = archives.iter().find(|archive| archive.checksum == dream.archive).unwrap();
        let key = if of.key.is_some() { "+" } else { "" };
        format!("{}{key} {}", dream.number, dream.state.as_str())
    };
    found.iter().rev().map(show).collect::<Vec<_>>().join(", ")
}

/// Three dreams, one on top of the other: of entry `a` and the first two turns, of entry
/// `b`, and of entry `c` and the next two turns. The index tells of them.
async fn three(store: &Store) -> SessionNo {
    let session = add(store, "s", &say_many(6)).await;
    let mut previous: Option<KeptDream> = None;
    for (number, id) in (1..).zip(["a", "b", "c"]) {
        put(store, id).await;
        let spans = match number {
            1 => vec![span(session, 0, 2)],
            2 => Vec::new(),
            _ => vec![span(session, 2, 4)],
        };
        let (run, output) =
            previous.as_ref().map(|last| (last.dream.run.as_str(), &last.output.id)).unzip();
        let entries = output.cloned().into_iter().chain([id.to_owned()]).collect();
        let index = index(&format!("index {number}"));
        let dream = NewDream { entries, spans, index, ..new_dream(number, run) };
        previous = Some(keep(store, dream).await);
    }
    assert_eq!(shown(store).await, "1+ superseded, 2+ superseded, 3+ in-force");
    assert_eq!(in_force(store).await, "dreamt 3");
    assert_eq!(due(store).await, format!("{}.main 5-6", session.0));
    session
}

pub(super) async fn one_dreams_at_a_time(store: &Store) {
    assert!(lease(store, "me", NOW).await, "of a memory that is not there nothing is kept");
    assert!(memories(store, &acme()).await.is_empty());
    put(store, "a").await;
    let other = "another";
    assert!(lease(store, "me", NOW).await);
    assert!(!lease(store, other, Millis(NOW.0 + 999)).await);
    assert!(lease(store, "me", Millis(NOW.0 + 999)).await, "it is renewed");
    assert!(!lease(store, other, Millis(NOW.0 + 1500)).await);
    assert!(lease(store, other, Millis(NOW.0 + 1999)).await, "a dead holder's is taken");
    store.release_dream(&scope(), "me").await.unwrap();
    assert!(!lease(store, "me", Millis(NOW.0 + 1999)).await);
    store.release_dream(&scope(), other).await.unwrap();
    assert!(lease(store, "me", Millis(NOW.0 + 1999)).await);
    store.release_dream(&scope_of("rival", "notes"), "me").await.unwrap();
    // Its clock was a year ahead.
    let wrong = Lease { holder: "me".to_owned(), until: Millis(NOW.0 + 31_536_000_000) };
    assert!(store.lease_dream(&scope(), wrong, Millis(NOW.0 + 1999)).await.unwrap());
    assert!(lease(store, other, NOW).await, "nobody's lease is that long");
}

pub(super) async fn what_is_due_to_be_dreamt_is_found(store: &Store) {
    assert!(store.undreamt_entries(&scope(), None, NOW, 9).await.unwrap().is_empty());
    assert!(store.undreamt_branches(&scope(), None, 9).await.unwrap().is_empty());
    let a = put(store, "a").await;
    put_as(store, "ends", "content", Some(LATER)).await;
    let tags = vec![text(COMMITMENT_TAG)];
    let tagged = NewEntry { tags, ..super::runs::write("notes", "tagged").entry };
    store.put_entry(&scope(), tagged).await.unwrap();
    let intention = Intention::New(super::runs::write("notes", "intention").entry);
    let waiting = new_commitment(intention, Condition::Time(LATER));
    store.put_commitment(&scope(), waiting).await.unwrap();
    let b = put(store, "b").await;
    let dreamt =
        keep(store, NewDream { entries: vec!["a".to_owned()], ..new_dream(1, None) }).await;
    assert_eq!(in_force(store).await, "ends, tagged, intention, b, dreamt 1");
    let c = put(store, "c").await;
    let due_now =
        async |after, limit| store.undreamt_entries(&scope(), after, NOW, limit).await.unwrap();
    assert_eq!(due_now(None, 9).await, [b.place(), c.place()]);
    assert_eq!(due_now(None, 1).await, [b.place()]);
    assert_eq!(due_now(Some(b.place()), 9).await, [c.place()]);
    // What an earlier dream wrote is an entry like any other.
    keep(store, new_dream(2, Some("dream-1"))).await;
    assert_eq!(due_now(None, 9).await, [b.place(), dreamt.output.place(), c.place()]);
    store.undo_dream(&scope(), "dream-2", None, NOW).await.unwrap().unwrap();
    store.undo_dream(&scope(), "dream-1", None, NOW).await.unwrap().unwrap();
    assert_eq!(due_now(None, 9).await, [a.place(), b.place(), c.place()]);

    let one = add(store, "one", &say_many(3)).await;
    let two = add(store, "two", &[say("x").id("x"), say("y").id("y")]).await;
    add(store, "two", &[say("z").id("z").after(&["x"])]).await;
    store.append(&scope_of("acme", "diary"), batch("one", &say_many(3))).await.unwrap();
    let (one_no, two_no) = (one.0, two.0);
    let all = format!("{one_no}.main 1-3, {two_no}.main 1-2, {two_no}.1 1-1");
    assert_eq!(due(store).await, all.replace(".1 ", &format!(".{} ", Branch(1))));
    keep(store, NewDream { spans: vec![span(one, 0, 3)], ..new_dream(3, None) }).await;
    keep(store, NewDream { spans: vec![span(two, 0, 1)], ..new_dream(4, Some("dream-3")) }).await;
    let left = store.undreamt_branches(&scope(), None, 1).await.unwrap();
    let (session, branch) = (two, Branch::MAIN);
    let (after, through) = (Ordinal(1), Ordinal(2));
    assert_eq!(left, [Undreamt { session, branch, after, through }]);
    let rest = store.undreamt_branches(&scope(), Some((two, branch)), 9).await.unwrap();
    assert_eq!(rest.iter().map(|one| one.branch).collect::<Vec<_>>(), [Branch(1)]);
    add(store, "one", &say_many(5)[3..]).await;
    assert!(due(store).await.starts_with(&format!("{one_no}.main 4-5")));
    clean(store).await;
}

pub(super) async fn a_dream_is_kept_with_all_it_says(store: &Store) {
    let session = add(store, "s", &say_many(4)).await;
    put(store, "a").await;
    put(store, "b").await;
    let before = store.head(&acme()).await.unwrap();
    let entries = vec!["a".to_owned()];
    let spans = vec![span(session, 0, 3)];
    let dream = NewDream { entries, spans, index: index("index"), ..new_dream(1, None) };
    let kept = keep(store, dream.clone()).await;
    assert_eq!(
        kinds_after(store, before).await,
        "memory.written memory.compacted workspace.updated"
    );
    assert_eq!(kept.position, Position(before.0 + 2));
    assert_eq!(kept.payload, serde_json::json!({ "outputs": [kept.output.id] }).to_string());
    let expected = DreamRecord {
        run: "dream-1".to_owned(),
        scope: scope(),
        number: 1,
        state: DreamState::InForce,
        previous: None,
        trigger: DreamTrigger::Manual,
        distiller: "extractive-1".to_owned(),
        output: kept.output.id.clone(),
        archive: Checksum([1; 32]),
        figures: dream.figures,
        section: dream.section,
        source_ids: dream.source_ids,
        index_updated: true,
        position: kept.position,
        created_at: NOW,
    };
    assert_eq!(kept.dream, expected);
    assert_eq!(record(store, "dream-1").await, expected);
    assert_eq!(in_force(store).await, "b, dreamt 1");
    let sources = store.sources_of(&scope(), &kept.output.id, NOW).await.unwrap();
    assert_eq!(sources.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(due(store).await, format!("{}.main 4-4", session.0));

    let archive = store.archives_at(&acme(), Checksum([1; 32])).await.unwrap().remove(0);
    assert_eq!((archive.scope, archive.run.as_str()), (scope(), "dream-1"));
    assert_eq!(archive.key.unwrap().as_bytes(), &[1; 32]);
    assert_eq!((archive.name.as_str(), archive.bytes, archive.stored_bytes), ("body-1", 100, 40));
    assert_eq!((archive.sha256, archive.created_at), ([1; 32], NOW));
    assert_eq!((archive.erased_at, archive.expired_at), (None, None));
    assert!(store.archives_at(&tenant("rival"), Checksum([1; 32])).await.unwrap().is_empty());

    let run = store.run(&acme(), "dream-1").await.unwrap().unwrap();
    assert_eq!((run.status, run.ended_at), (RunStatus::Completed, Some(NOW)));
    assert_eq!((run.position, run.events), (before, 1));
    let path = FilePath::new(text(INDEX_PATH)).unwrap();
    let written = store.file(&place(), &path, None).await.unwrap().unwrap();
    assert_eq!((written.head.version, written.content.as_str()), (1, "index"));
    clean(store).await;
}

pub(super) async fn a_dream_compares_before_it_is_kept(store: &Store) {
    let session = add(store, "s", &say_many(4)).await;
    put(store, "a").await;
    put(store, "b").await;
    let (entries, spans) = (vec!["a".to_owned()], vec![span(session, 0, 2)]);
    let first = NewDream { entries, spans, ..new_dream(1, None) };
    let untaken = store.keep_dream(&scope(), first.clone()).await.unwrap();
    assert_eq!(untaken, Kept::LeaseLost, "without a lease");
    keep(store, first).await;
    store.create_run(&place(), new_run("open")).await.unwrap();
    let before = store.head(&acme()).await.unwrap();
    let good = NewDream { epoch: 0, ..new_dream(2, Some("dream-1")) };
    let step = |seen| DreamRun::Step(next("open", seen, RunStatus::Completed));
    let lost = [
        NewDream { holder: "another".to_owned(), ..good.clone() },
        NewDream { now: Millis(NOW.0 + 1000), ..good.clone() },
    ];
    for dream in lost {
        assert_eq!(store.keep_dream(&scope(), dream).await.unwrap(), Kept::LeaseLost);
    }
    let of = |spans: &[DreamSpan]| NewDream { spans: spans.to_vec(), ..good.clone() };
    let by = |ids: &[&str]| NewDream {
        entries: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..good.clone()
    };
    let other = store.append(&scope_of("acme", "diary"), batch("d", &say_many(2))).await.unwrap();
    let changed = [
        NewDream { previous: None, ..good.clone() },
        NewDream { previous: Some("dream-9".to_owned()), ..good.clone() },
        NewDream { epoch: 1, ..good.clone() },
        by(&["a"]),
        by(&["b", "b"]),
        by(&["none"]),
        of(&[span(session, 0, 3)]),
        of(&[span(session, 2, 5)]),
        of(&[span(session, 2, 1)]),
        of(&[span(session, 2, 3), span(session, 2, 4)]),
        of(&[span(SessionNo(99), 0, 1)]),
        of(&[span(other.session, 0, 1)]),
        NewDream { run: step(7), ..good.clone() },
        NewDream { run: DreamRun::New(new_run("dream-1")), ..good.clone() },
    ];
    for dream in changed {
        let kept = store.keep_dream(&scope(), dream.clone()).await.unwrap();
        assert_eq!(kept, Kept::Changed, "{:?} {:?}", dream.entries, dream.spans);
    }
    assert_eq!(kinds_after(store, before).await, "turn.appended turn.appended");
    assert_eq!(shown(store).await, "1+ in-force");
    assert_eq!(store.run(&acme(), "dream-2").await.unwrap(), None);
    assert_eq!(in_force(store).await, "b, dreamt 1");
    clean(store).await;
    keep(store, NewDream { run: step(1), ..good }).await;
}

pub(super) async fn a_refused_dream_leaves_nothing(store: &Store) {
    let session = add(store, "s", &say_many(4)).await;
    put(store, "a").await;
    store.put_file(&place(), file("other.md", "text")).await.unwrap();
    assert!(lease(store, "me", NOW).await);
    let before = store.head(&acme()).await.unwrap();
    let good = NewDream {
        entries: vec!["a".to_owned()],
        spans: vec![span(session, 0, 2)],
        ..new_dream(1, None)
    };
    let index = |file| Some((place(), file));
    let here = || file(INDEX_PATH, "index");
    let expecting = NewFile { expect: Expect::Present, ..here() };
    let refused =
        store.keep_dream(&scope(), NewDream { index: index(expecting), ..good.clone() }).await;
    assert!(matches!(refused, Err(StoreError::FileConflict { current: 0 })));
    let crowded = NewFile { most_files: 1, ..here() };
    let refused =
        store.keep_dream(&scope(), NewDream { index: index(crowded), ..good.clone() }).await;
    assert!(matches!(refused, Err(StoreError::TooManyFiles { most: 1 })));
    let refused = store.keep_dream(&scope(), NewDream { secrets_seen: 7, ..good.clone() }).await;
    assert!(matches!(refused, Err(StoreError::SecretsChanged)));
    let of_rival = Principal::local_operator(tenant("rival")).workspace();
    let foreign = NewDream { index: Some((of_rival, here())), ..good.clone() };
    let refused = store.keep_dream(&scope(), foreign).await;
    assert!(matches!(refused, Err(StoreError::OtherTenant)));
    assert_eq!(store.head(&acme()).await.unwrap(), before);
    assert_eq!(store.dream(&acme(), "dream-1").await.unwrap(), None);
    assert_eq!(store.run(&acme(), "dream-1").await.unwrap(), None);
    assert!(store.archives(None).await.unwrap().is_empty());
    assert_eq!(
        (in_force(store).await, due(store).await),
        ("a".to_owned(), format!("{}.main 1-4", session.0))
    );
    clean(store).await;
    keep(store, NewDream { index: index(here()), ..good }).await;
}

pub(super) async fn a_run_that_was_made_before_ends_with_its_dream(store: &Store) {
    put(store, "a").await;
    store.create_run(&place(), new_run("mine")).await.unwrap();
    let run = DreamRun::Step(next("mine", 1, RunStatus::Completed));
    let kept =
        keep(store, NewDream { run, entries: vec!["a".to_owned()], ..new_dream(1, None) }).await;
    assert_eq!(kept.dream.run, "mine");
    let run = store.run(&acme(), "mine").await.unwrap().unwrap();
    assert_eq!((run.status, run.events), (RunStatus::Completed, 2));
    let archive = store.archives(None).await.unwrap().remove(0);
    assert_eq!(archive.run, "mine");
    clean(store).await;
}

pub(super) async fn an_archive_that_is_there_stays(store: &Store) {
    put(store, "a").await;
    put(store, "b").await;
    keep(store, NewDream { entries: vec!["a".to_owned()], ..new_dream(1, None) }).await;
    let same = NewArchive { name: "another".to_owned(), ..new_archive(1) };
    let again =
        NewDream { archive: same, entries: vec!["b".to_owned()], ..new_dream(2, Some("dream-1")) };
    keep(store, again.clone()).await;
    let kept = store.archives(None).await.unwrap();
    let name = |archive: &ArchiveRecord| format!("{} {}", archive.name, archive.run);
    assert_eq!(kept.iter().map(name).collect::<Vec<_>>(), ["body-1 dream-2"]);
    // As long as another dream came to it, its key stays.
    store.undo_dream(&scope(), "dream-2", None, LATER).await.unwrap().unwrap();
    assert_eq!(shown(store).await, "1+ in-force, 2+ undone");
    store.undo_dream(&scope(), "dream-1", None, LATER).await.unwrap().unwrap();
    let gone = store.archives(None).await.unwrap().remove(0);
    assert!(gone.key.is_none());
    assert_eq!((gone.erased_at, gone.expired_at), (None, Some(LATER)));
    // Without its key it is of no use: the new body takes its place.
    let run = DreamRun::New(new_run("dream-3"));
    keep(store, NewDream { run, previous: None, now: NOW, ..again }).await;
    let kept = store.archives(None).await.unwrap();
    assert_eq!(kept.iter().map(name).collect::<Vec<_>>(), ["another dream-3"]);
    assert_eq!((kept[0].key.is_some(), kept[0].expired_at), (true, None));
    clean(store).await;
}

pub(super) async fn a_dream_is_taken_back(store: &Store) {
    let session = three(store).await;
    for run in ["dream-1", "dream-2", "none"] {
        assert_eq!(store.undo_dream(&scope(), run, None, LATER).await.unwrap(), None);
    }
    let elsewhere = scope_of("acme", "diary");
    assert_eq!(store.undo_dream(&elsewhere, "dream-3", None, LATER).await.unwrap(), None);
    let (before, then) = (store.head(&acme()).await.unwrap(), epoch(store).await);
    let output = record(store, "dream-3").await.output;
    let undone = store.undo_dream(&scope(), "dream-3", index("index 4"), LATER).await.unwrap();
    assert_eq!(undone, Some(record(store, "dream-3").await));
    let undone = undone.unwrap();
    assert_eq!((undone.section.as_str(), undone.source_ids.as_str()), ("", ""));
    assert_eq!(shown(store).await, "1+ superseded, 2+ in-force, 3 undone");
    assert_eq!(in_force(store).await, "dreamt 2, c");
    assert_eq!(due(store).await, format!("{}.main 3-6", session.0));
    assert_eq!(epoch(store).await, then + 1);
    assert_eq!(kinds_after(store, before).await, "memory.deleted workspace.updated dream.undone");
    let told = store.events(&acme(), Some("notes"), before, 9).await.unwrap().pop().unwrap();
    let payload =
        serde_json::json!({ "memoryRef": "notes", "runId": "dream-3", "memoryId": output });
    assert_eq!(told.payload, payload.to_string());
    let then = EntryFilter { at: Some(before), ..EntryFilter::default() };
    let past = store.entries(&scope(), &then, NOW, 9).await;
    assert!(matches!(past, Err(StoreError::SnapshotGone { .. })), "both would be seen there");
    clean(store).await;

    // A file that is not as expected keeps it from being taken back.
    let absent = NewFile { expect: Expect::Absent, ..file(INDEX_PATH, "index") };
    let refused = store.undo_dream(&scope(), "dream-2", Some((place(), absent)), LATER).await;
    assert!(matches!(refused, Err(StoreError::FileConflict { current: 4 })));
    assert_eq!(in_force(store).await, "dreamt 2, c");
    store.undo_dream(&scope(), "dream-2", None, LATER).await.unwrap().unwrap();
    store.undo_dream(&scope(), "dream-1", None, LATER).await.unwrap().unwrap();
    assert_eq!(
        (in_force(store).await.as_str(), due(store).await),
        ("a, b, c", format!("{}.main 1-6", session.0))
    );
    assert_eq!(shown(store).await, "1 undone, 2 undone, 3 undone");
    assert!(store.lost_dreams(9).await.unwrap().is_empty());
    clean(store).await;
    keep(store, NewDream { run: DreamRun::New(new_run("anew")), ..new_dream(1, None) }).await;
    assert_eq!(record(store, "anew").await.number, 4);
}

pub(super) async fn nothing_is_written_that_was_read_before_a_loss(store: &Store) {
    put(store, "a").await;
    put(store, "b").await;
    let losses = store.dream_losses(&acme()).await.unwrap();
    let index = |last, losses| {
        let expect = Expect::Unlost { last, losses };
        Some((place(), NewFile { expect, ..file(INDEX_PATH, "index") }))
    };
    let first = NewDream { entries: vec!["a".to_owned()], ..new_dream(1, None) };
    keep(store, NewDream { index: index(None, losses), ..first }).await;
    assert_eq!(store.dream_losses(&acme()).await.unwrap(), losses);
    let a = Selector::Entry("a".to_owned());
    store.erase_entries(&scope(), &a, false, NOW).await.unwrap();
    // No file was there before, and none is: only the count tells.
    assert_eq!(store.dream_losses(&acme()).await.unwrap(), losses + 1);
    assert_eq!(store.lost_indexes(9).await.unwrap(), [acme()]);
    let (_, stale) = index(None, losses).unwrap();
    let refused = store.put_file(&place(), stale).await;
    assert!(matches!(refused, Err(StoreError::FileConflict { current: 0 })));
    store.settle_lost_index(&acme(), losses).await.unwrap();
    assert_eq!(store.lost_indexes(9).await.unwrap(), [acme()]);
    store.settle_lost_index(&acme(), losses + 1).await.unwrap();
    assert!(store.lost_indexes(9).await.unwrap().is_empty());
    let second = NewDream {
        run: DreamRun::New(new_run("anew")),
        epoch: epoch(store).await,
        entries: vec!["b".to_owned()],
        ..new_dream(1, None)
    };
    assert!(lease(store, "me", NOW).await);
    let stale = NewDream { index: index(None, losses), ..second.clone() };
    let refused = store.keep_dream(&scope(), stale).await;
    assert!(matches!(refused, Err(StoreError::FileConflict { current: 0 })));
    keep(store, NewDream { index: index(None, losses + 1), ..second }).await;
    store.note_lost_dreams(&scope(), 7).await.unwrap();
    store.note_lost_dreams(&scope(), 3).await.unwrap();
    let noted = store.lost_dreams(9).await.unwrap();
    assert_eq!(noted.iter().map(|due| due.budget).collect::<Vec<_>>(), [1_000]);
    store.note_lost_dreams(&scope(), 5_000).await.unwrap();
    assert_eq!(store.lost_dreams(9).await.unwrap()[0].budget, 5_000);
}

pub(super) async fn what_was_made_of_a_dream_goes_with_it(store: &Store) {
    put(store, "a").await;
    let kept = keep(store, NewDream { entries: vec!["a".to_owned()], ..new_dream(1, None) }).await;
    put(store, "b").await;
    let replaced = [kept.output.id.clone(), "b".to_owned()].map(|id| Replaced {
        id,
        by: Successor::Output(0),
        is_overtaken: false,
    });
    let pressed = Derivation {
        outputs: vec![DerivedEntry { content: text("pressed"), ..new_dream(1, None).output }],
        replaced: replaced.to_vec(),
        kind: DerivationKind::Compacted,
        payload: Arc::new(|ids| serde_json::json!({ "outputs": ids })),
        now: NOW,
        secrets_seen: 1,
    };
    store.derive_entries(&scope(), pressed).await.unwrap().unwrap();
    assert_eq!(in_force(store).await, "pressed");
    store.undo_dream(&scope(), "dream-1", None, NOW).await.unwrap().unwrap();
    assert_eq!(in_force(store).await, "a, b");
    clean(store).await;
}

pub(super) async fn a_forgotten_turn_takes_dreams_along(store: &Store) {
    let session = three(store).await;
    let (before, then) = (store.head(&acme()).await.unwrap(), epoch(store).await);
    // Nobody has dreamt of it.
    erase(store, session, &[5]).await;
    assert_eq!(in_force(store).await, "dreamt 3");
    let turn = |seq| TurnId { session, seq: Seq(seq) };
    let none = subject("nobody");
    let count = async |turns: &[TurnId]| {
        store.archives_lost_with(&scope(), &none, turns, NOW).await.unwrap()
    };
    assert_eq!(
        (count(&[turn(5)]).await, count(&[turn(3)]).await, count(&[turn(1), turn(4)]).await),
        (0, 1, 3)
    );
    erase(store, session, &[3]).await;
    assert_eq!(shown(store).await, "1+ superseded, 2+ in-force, 3 erased");
    assert_eq!(in_force(store).await, "dreamt 2, c");
    assert_eq!(due(store).await, format!("{}.main 3-6", session.0));
    assert_eq!(kinds_after(store, before).await, "workspace.updated dream.lost");
    assert_eq!(epoch(store).await, then + 3);
    let told = store.events(&acme(), Some("notes"), before, 9).await.unwrap().pop().unwrap();
    assert_eq!(told.payload, r#"{"memoryRef":"notes","runs":1}"#);
    let gone = record(store, "dream-3").await;
    assert_eq!((gone.section.as_str(), gone.source_ids.as_str()), ("", ""));
    let archive = store.archives_at(&acme(), gone.archive).await.unwrap().remove(0);
    assert_eq!((archive.erased_at, archive.expired_at), (Some(NOW), None));
    assert!(store.files(&place(), "").await.unwrap().is_empty());
    clean(store).await;

    erase(store, session, &[2]).await;
    assert_eq!(shown(store).await, "1 erased, 2 erased, 3 erased");
    assert_eq!(in_force(store).await, "a, b, c");
    assert_eq!(due(store).await, format!("{}.main 1-6", session.0));
    let lost = DreamDue { scope: scope(), budget: 3000, epoch: epoch(store).await };
    assert_eq!(store.lost_dreams(9).await.unwrap(), std::slice::from_ref(&lost));
    let stale = DreamDue { epoch: lost.epoch - 1, ..lost.clone() };
    store.settle_lost_dreams(&stale).await.unwrap();
    assert_eq!(
        store.lost_dreams(9).await.unwrap(),
        std::slice::from_ref(&lost),
        "more was lost since"
    );
    store.settle_lost_dreams(&lost).await.unwrap();
    assert!(store.lost_dreams(9).await.unwrap().is_empty());
    clean(store).await;
}

pub(super) async fn a_dream_without_its_archive_does_not_come_back(store: &Store) {
    let session = three(store).await;
    assert!(store.expire_archive(&scope(), Checksum([2; 32]), NOW).await.unwrap());
    let undone = store.undo_dream(&scope(), "dream-3", index("index 1"), NOW).await.unwrap();
    assert_eq!(undone.unwrap().run, "dream-3");
    assert_eq!(shown(store).await, "1+ in-force, 2 undone, 3 undone");
    assert_eq!(in_force(store).await, "dreamt 1, b, c");
    assert_eq!(due(store).await, format!("{}.main 3-6", session.0));
    clean(store).await;
}

pub(super) async fn a_dream_without_its_archive_is_lost_with_the_next(store: &Store) {
    let session = three(store).await;
    for number in [1, 2] {
        assert!(store.expire_archive(&scope(), Checksum([number; 32]), NOW).await.unwrap());
    }
    let turn = TurnId { session, seq: Seq(3) };
    let selector = Selector::Entry("none".to_owned());
    let counted = store.archives_lost_with(&scope(), &selector, &[turn], NOW).await.unwrap();
    assert_eq!(counted, 1);
    erase(store, session, &[3]).await;
    assert_eq!(shown(store).await, "1 erased, 2 erased, 3 erased");
    assert_eq!(in_force(store).await, "a, b, c");
    assert_eq!(due(store).await, format!("{}.main 1-6", session.0));
    clean(store).await;
}

pub(super) async fn what_an_undone_dream_told_goes_with_what_it_read(store: &Store) {
    let session = three(store).await;
    store.undo_dream(&scope(), "dream-3", index("index 2"), NOW).await.unwrap().unwrap();
    erase(store, session, &[3]).await;
    assert_eq!(shown(store).await, "1+ superseded, 2+ in-force, 3 undone");
    assert!(store.files(&place(), "").await.unwrap().is_empty(), "an old version told of it");
    assert_eq!(store.lost_indexes(9).await.unwrap(), [acme()]);
    clean(store).await;
}

pub(super) async fn a_rewritten_turn_takes_dreams_along(store: &Store) {
    let session = three(store).await;
    rewrite(store, session, &[6]).await;
    assert_eq!(in_force(store).await, "dreamt 3");
    rewrite(store, session, &[4]).await;
    assert_eq!(shown(store).await, "1+ superseded, 2+ in-force, 3 erased");
    assert_eq!(in_force(store).await, "dreamt 2, c");
    clean(store).await;
}

pub(super) async fn a_deleted_entry_takes_dreams_along(store: &Store) {
    let session = three(store).await;
    assert!(store.end_entry(&scope(), "b", LATER).await.unwrap());
    assert_eq!(shown(store).await, "1+ in-force, 2 erased, 3 erased");
    assert_eq!(in_force(store).await, "dreamt 1, c");
    assert_eq!(due(store).await, format!("{}.main 3-6", session.0));
    let lost = store.lost_dreams(9).await.unwrap();
    assert_eq!(lost, [DreamDue { scope: scope(), budget: 3000, epoch: epoch(store).await }]);
    assert_eq!(store.purge_entries(&scope(), LATER, LATER, 99).await.unwrap(), 3);
    clean(store).await;

    // What a dream wrote takes what it stands for, as any entry that was made of others.
    let output = record(store, "dream-1").await.output;
    assert!(store.end_entry(&scope(), &output, LATER).await.unwrap());
    assert_eq!(shown(store).await, "1 erased, 2 erased, 3 erased");
    assert_eq!(in_force(store).await, "c");
    clean(store).await;
}

pub(super) async fn an_erased_entry_takes_dreams_along(store: &Store) {
    let session = three(store).await;
    let by_tag = subject("c");
    let ahead = store.archives_lost_with(&scope(), &by_tag, &[], NOW).await.unwrap();
    assert_eq!(ahead, 1);
    assert_eq!(store.erase_entries(&scope(), &by_tag, true, NOW).await.unwrap(), 2);
    assert_eq!(in_force(store).await, "dreamt 3");
    assert_eq!(store.erase_entries(&scope(), &by_tag, false, NOW).await.unwrap(), 2);
    assert_eq!(shown(store).await, "1+ superseded, 2+ in-force, 3 erased");
    assert_eq!(in_force(store).await, "dreamt 2");
    assert_eq!(due(store).await, format!("{}.main 3-6", session.0));
    clean(store).await;
    let by_id = Selector::Entry("a".to_owned());
    let ahead = store.archives_lost_with(&scope(), &by_id, &[], NOW).await.unwrap();
    assert_eq!(ahead, 2);
    assert_eq!(store.erase_entries(&scope(), &by_id, false, NOW).await.unwrap(), 3);
    assert_eq!(shown(store).await, "1 erased, 2 erased, 3 erased");
    assert_eq!(in_force(store).await, "b");
    clean(store).await;
}

pub(super) async fn forgotten_facts_take_dreams_along(store: &Store) {
    let session = three(store).await;
    let turn = |seq| TurnId { session, seq: Seq(seq) };
    let batch = FactBatch {
        seen_through: Position(0),
        through: Position(9),
        facts: vec![
            drawn_fact(fact("Ana", "one"), turn(3)),
            drawn_fact(fact("Bea", "two"), turn(6)),
        ],
        secrets_seen: 1,
    };
    assert!(store.put_facts(&scope(), batch).await.unwrap());
    let judge = async |subject: &str| {
        let verdict = NewVerdict {
            fact: fact(subject, "known"),
            verdict: Verdict::Added,
            source: None,
            now: NOW,
            secrets_seen: 1,
            hidden: Hidden::new(),
        };
        store.put_verdict(&scope(), verdict).await.unwrap();
    };
    judge("Cid").await;
    for (name, ahead) in [("Bea", 0), ("Cid", 0), ("Ana", 1)] {
        let lost = store.archives_lost_with(&scope(), &subject(name), &[], NOW).await.unwrap();
        assert_eq!(lost, ahead, "{name}");
        store.erase_facts(&scope(), &subject(name), &[], true, NOW).await.unwrap();
        assert_eq!(state(store, "dream-2").await, DreamState::Superseded);
        store.erase_facts(&scope(), &subject(name), &[], false, NOW).await.unwrap();
        let expected = if ahead == 0 { DreamState::Superseded } else { DreamState::InForce };
        assert_eq!(state(store, "dream-2").await, expected, "{name}");
    }
    clean(store).await;

    // A dream may have read what was told before it.
    judge("Dan").await;
    let run = DreamRun::New(new_run("dream-4"));
    keep(store, NewDream { run, ..new_dream(4, Some("dream-2")) }).await;
    judge("Eva").await;
    store.erase_facts(&scope(), &subject("Eva"), &[], false, NOW).await.unwrap();
    assert_eq!(state(store, "dream-4").await, DreamState::InForce);
    assert_eq!(store.archives_lost_with(&scope(), &subject("Dan"), &[], NOW).await.unwrap(), 1);
    store.erase_facts(&scope(), &subject("Dan"), &[], false, NOW).await.unwrap();
    assert_eq!(state(store, "dream-4").await, DreamState::Erased);
    assert_eq!(state(store, "dream-2").await, DreamState::InForce);
    clean(store).await;
}

pub(super) async fn what_was_taken_back_is_forgotten_too(store: &Store) {
    let session = three(store).await;
    let output = record(store, "dream-3").await.output;
    store.undo_dream(&scope(), "dream-3", None, NOW).await.unwrap().unwrap();
    let by_id = Selector::Entry(output);
    let is_kept = async || store.erase_entries(&scope(), &by_id, true, NOW).await.unwrap() > 0;
    assert!(is_kept().await, "for those who read the past");
    erase(store, session, &[4]).await;
    assert!(!is_kept().await, "it had the turn's words");
    assert_eq!(shown(store).await, "1+ superseded, 2+ in-force, 3 undone");
    assert!(store.lost_dreams(9).await.unwrap().is_empty());
    clean(store).await;
}

pub(super) async fn a_lost_index_is_missed_until_it_is_written(store: &Store) {
    let session = three(store).await;
    store.put_file(&place(), file("MEMORY-INDEX.md", "index")).await.unwrap();
    store.put_file(&place(), file("mine.md", "mine")).await.unwrap();
    assert!(store.lost_indexes(9).await.unwrap().is_empty());
    erase(store, session, &[1]).await;
    let left = store.files(&place(), "").await.unwrap();
    assert_eq!(left.iter().map(|head| head.path.as_str()).collect::<Vec<_>>(), ["mine.md"]);
    assert_eq!(store.lost_indexes(9).await.unwrap(), [acme()]);
    store.put_file(&place(), file("mine.md", "other")).await.unwrap();
    assert_eq!(store.lost_indexes(9).await.unwrap(), [acme()]);
    store.put_file(&place(), file(INDEX_PATH, "anew")).await.unwrap();
    assert!(store.lost_indexes(9).await.unwrap().is_empty());
    let dream = NewDream { index: index("index"), ..new_dream(4, None) };
    keep(store, NewDream { spans: vec![span(session, 0, 6)], ..dream }).await;
    erase(store, session, &[6]).await;
    assert_eq!(store.lost_indexes(9).await.unwrap(), [acme()]);
    keep(store, NewDream { index: index("index"), ..new_dream(5, None) }).await;
    assert!(store.lost_indexes(9).await.unwrap().is_empty());
    clean(store).await;
}

pub(super) async fn an_archive_past_its_retention_goes(store: &Store) {
    three(store).await;
    let expire = async |number: u8| {
        store.expire_archive(&scope(), Checksum([number; 32]), LATER).await.unwrap()
    };
    assert!(!expire(3).await, "the one in force stays");
    assert!(!expire(9).await);
    assert!(expire(1).await);
    assert!(!expire(1).await, "once");
    assert_eq!(shown(store).await, "1 superseded, 2+ superseded, 3+ in-force");
    let gone = store.archives_at(&acme(), Checksum([1; 32])).await.unwrap().remove(0);
    assert_eq!((gone.erased_at, gone.expired_at), (None, Some(LATER)));
    let by_id = Selector::Entry("a".to_owned());
    assert_eq!(store.archives_lost_with(&scope(), &by_id, &[], NOW).await.unwrap(), 2);
    clean(store).await;
}

pub(super) async fn dreams_are_listed_newest_first(store: &Store) {
    three(store).await;
    let diary = scope_of("acme", "diary");
    let entry = NewEntry { id: None, ..super::runs::write("diary", "d").entry };
    store.put_entry(&diary, entry).await.unwrap();
    let (holder, until) = ("me".to_owned(), LATER);
    assert!(store.lease_dream(&diary, Lease { holder, until }, NOW).await.unwrap());
    let now = Millis(NOW.0 + 5);
    let other = NewDream { now, archive: new_archive(3), ..new_dream(4, None) };
    assert!(matches!(store.keep_dream(&diary, other).await.unwrap(), Kept::Done(_)));
    let runs = async |query: &DreamQuery| {
        let found = store.dreams(&acme(), query).await.unwrap();
        found.iter().map(|dream| dream.run.clone()).collect::<Vec<_>>().join(" ")
    };
    let all = DreamQuery { limit: 9, ..DreamQuery::default() };
    assert_eq!(runs(&all).await, "dream-4 dream-3 dream-2 dream-1");
    assert_eq!(runs(&DreamQuery { limit: 2, ..all.clone() }).await, "dream-4 dream-3");
    let before = Some(record(store, "dream-3").await.position);
    assert_eq!(runs(&DreamQuery { before, ..all.clone() }).await, "dream-2 dream-1");
    let of_notes = DreamQuery { memory: Some("notes".to_owned()), ..all.clone() };
    assert_eq!(runs(&of_notes).await, "dream-3 dream-2 dream-1");
    assert_eq!(runs(&DreamQuery { before, ..of_notes.clone() }).await, "dream-2 dream-1");
    assert_eq!(runs(&DreamQuery { in_force: true, ..of_notes }).await, "dream-3");
    assert_eq!(runs(&DreamQuery { in_force: true, ..all.clone() }).await, "dream-4 dream-3");
    let of_none = DreamQuery { memory: Some("none".to_owned()), ..all.clone() };
    assert_eq!(runs(&of_none).await, "");
    assert!(store.dreams(&tenant("rival"), &all).await.unwrap().is_empty());
    assert_eq!(store.dream(&tenant("rival"), "dream-1").await.unwrap(), None);

    let tokens = async |since| store.dreamt_tokens(&acme(), since).await.unwrap();
    assert_eq!((tokens(NOW).await, tokens(now).await, tokens(LATER).await), (4 * 77, 77, 0));
    let addresses = |archives: Vec<ArchiveRecord>| {
        let show = |one: &ArchiveRecord| format!("{} {}", one.scope.memory(), one.checksum.0[0]);
        archives.iter().map(show).collect::<Vec<_>>().join(", ")
    };
    let all = addresses(store.archives(None).await.unwrap());
    assert_eq!(all, "diary 3, notes 1, notes 2, notes 3");
    assert_eq!(addresses(store.archives(Some(&tenant("rival"))).await.unwrap()), "");
    let same = store.archives_at(&acme(), Checksum([3; 32])).await.unwrap();
    assert_eq!(addresses(same), "notes 3, diary 3");
    clean(store).await;
}

pub(super) async fn dreams_are_redacted_again(store: &Store) {
    let tells = |what: &str| text(&format!(r#"{{"topics":["{what}"]}}"#));
    let retell = async |values: &[&str]| {
        store.rewrite_stored_text(&acme(), redactor_of(values), LATER).await.unwrap()
    };
    for id in ["a", "b", "c"] {
        put_as(store, id, &format!("of {id} Pv4tRb7Ncs-{id}"), None).await;
    }
    let of = |id: &str| vec![id.to_owned()];
    keep(store, NewDream { entries: of("a"), ..new_dream(1, None) }).await;
    let dream = new_dream(2, Some("dream-1"));
    keep(store, NewDream { entries: of("b"), section: tells(FIRST), ..dream }).await;
    let dream =
        NewDream { entries: of("c"), index: index("index"), ..new_dream(3, Some("dream-2")) };
    let output = DerivedEntry { content: text("with Zz81kQpLm2"), ..dream.output.clone() };
    keep(store, NewDream { output, ..dream }).await;

    assert_eq!(retell(&["never-told-1"]).await.derived, 0);
    assert_eq!(shown(store).await, "1+ superseded, 2+ superseded, 3+ in-force");
    // An entry of a dream that has something to hide.
    let told = retell(&["Zz81kQpLm2"]).await;
    assert_eq!((told.derived, told.touched.len()), (1, 1));
    assert_eq!(shown(store).await, "1+ superseded, 2+ in-force, 3 erased");
    assert!(store.files(&place(), "").await.unwrap().is_empty());
    // What the index says of one.
    assert_eq!(retell(&[FIRST]).await.derived, 1);
    assert_eq!(shown(store).await, "1+ in-force, 2 erased, 3 erased");
    // A source.
    assert_eq!(retell(&["Pv4tRb7Ncs-a"]).await.derived, 1);
    assert_eq!(shown(store).await, "1 erased, 2 erased, 3 erased");
    assert_eq!(in_force(store).await, "a, b, c");
    let lost = store.lost_dreams(9).await.unwrap();
    assert_eq!(lost, [DreamDue { scope: scope(), budget: 3000, epoch: epoch(store).await }]);
    clean(store).await;
}

/// A dream that fails to be kept left nothing, one whose answer is lost is kept whole.
#[cfg(test)]
pub(super) async fn keeping_is_one_step(store: Store) {
    use crate::store::hooks::Failing;
    put(&store, "a").await;
    assert!(lease(&store, "me", NOW).await);
    for is_done in [false, true] {
        let failing = match is_done {
            false => store.hooked(Failing::instead_of(1)),
            true => store.hooked(Failing::after(1)),
        };
        let before = store.head(&acme()).await.unwrap();
        let dream = NewDream { entries: vec!["a".to_owned()], ..new_dream(1, None) };
        assert!(failing.keep_dream(&scope(), dream).await.is_err());
        assert_eq!(store.head(&acme()).await.unwrap() != before, is_done);
        assert_eq!(store.archives(None).await.unwrap().len(), usize::from(is_done));
        assert_eq!(in_force(&store).await, if is_done { "dreamt 1" } else { "a" });
        clean(&store).await;
    }
}
