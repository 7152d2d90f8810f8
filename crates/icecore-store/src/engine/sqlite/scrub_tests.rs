//! What is left in the files after an erasure, and who waits for whom.

use std::path::Path;

use icecore_domain::ids::Principal;
use icecore_domain::json::JsonText;
use rusqlite::Connection;

use crate::contract::commitments::new_commitment;
use crate::contract::fixtures::*;
use crate::contract::runs::{new_run, next, write};
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

/// Occurrences of a text in the database's files.
fn found(dir: &Path, text: &str) -> usize {
    let count = |name: &str| {
        let bytes = std::fs::read(dir.join(name)).unwrap_or_default();
        bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    };
    ["icecore.db", "icecore.db-wal", "icecore.db-journal"].into_iter().map(count).sum()
}

fn log_bytes(dir: &Path) -> u64 {
    dir.join("icecore.db-wal").metadata().map_or(0, |file| file.len())
}

/// A reader of another process, that has seen what is there now.
#[expect(clippy::disallowed_methods, reason = "it stands for somebody else's program")]
fn other_reader(dir: &Path) -> Connection {
    let other = Connection::open(dir.join("icecore.db")).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM turns;").unwrap();
    other
}

/// Numbers below `end` that look random and are the same every time.
fn numbers() -> impl FnMut(u64) -> u64 {
    let mut state = 7919_u64;
    move |end| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    }
}

#[tokio::test]
async fn nothing_erased_is_left_in_any_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), None).unwrap();
    let mut number = numbers();
    let mut erased = vec![Vec::new(); 40];
    let mut lengths = [0_u64; 40];
    // Sessions grow side by side with turns of all sizes, so that pages are
    // rebuilt often and stale copies are left in their gaps.
    for _ in 0..400 {
        let at = number(40) as usize;
        let turns: Vec<Say> = (0..=number(25))
            .map(|_| {
                lengths[at] += 1;
                let goes = number(20) == 0;
                erased[at].extend(goes.then_some(lengths[at]));
                let word = if goes { "secretly" } else { "openly" };
                say(&format!("{word} {}", "and so on ".repeat(number(40) as usize)))
            })
            .collect();
        add(&store, &format!("s{at}"), &turns).await;
    }
    for (at, seqs) in erased.iter().enumerate().filter(|(_, seqs)| !seqs.is_empty()) {
        let name = session_name(&format!("s{at}"));
        let record = store.session(&scope(), &name).await.unwrap().unwrap();
        erase(&store, record.no, seqs).await;
    }
    store.tidy().await.unwrap();
    assert!(found(dir.path(), "secretly") > 0, "SQLite left nothing: this proves no more");
    store.scrub().await.unwrap();
    assert_eq!((found(dir.path(), "secretly"), log_bytes(dir.path())), (0, 0));
    assert!(found(dir.path(), "openly") > 4000);
    clean(&store).await;
}

#[tokio::test]
async fn nothing_rewritten_is_left_in_any_file() {
    const VALUE: &str = "q8Zk2Lm9Xw";
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), None).unwrap();
    let memory = scope_of("acme", &format!("of {VALUE}"));
    store.append(&memory, batch(VALUE, &say_many(1))).await.unwrap();
    let turns: Vec<Say> = (0..9).map(|n| say(&format!("{n} is {VALUE}"))).collect();
    let session = add(&store, &format!("about {VALUE}"), &turns).await;
    warm(&store, session, 4).await;
    let entry = NewEntry {
        id: Some("e".to_owned()),
        content: text(VALUE),
        tags: vec![text(&format!("tag {VALUE}"))],
        expires_at: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Default::default(),
        claim: None,
    };
    store.put_entry(&memory, entry).await.unwrap();
    let verdict = NewVerdict {
        fact: fact("Ana", VALUE),
        verdict: icecore_domain::fact::Verdict::Added,
        source: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Default::default(),
    };
    store.put_verdict(&scope(), verdict).await.unwrap();
    let workspace = Principal::local_operator(tenant("acme")).workspace();
    let json = JsonText::parse(&format!("{{\"a\":\"{VALUE}\"}}")).unwrap();
    let inputs = redactor_of(&[]).redacted_json(&json);
    let run = NewRun { inputs: inputs.clone(), workflow: VALUE.to_owned(), ..new_run("r") };
    store.create_run(&workspace, run).await.unwrap();
    let mut written = write("notes", "by r");
    written.scope = memory.clone();
    let variable = RunVariable { name: VALUE.to_owned(), value: RunValue::Json(inputs) };
    let step = RunStep {
        writes: vec![written],
        variables: vec![variable],
        ..next("r", 1, RunStatus::Completed)
    };
    store.step_run(&tenant("acme"), step).await.unwrap().unwrap();
    let waits = Condition::Predicate { tag: Some(text(VALUE)), mentions: Some(text(VALUE)) };
    let intention = Intention::Entry("by r".to_owned());
    store.put_commitment(&memory, new_commitment(intention, waits)).await.unwrap();
    let body = OutcomeBody::Ids(format!("{{\"session\":\"{VALUE}\"}}"));
    let (operation, key) = ("POST /turns".to_owned(), VALUE.to_owned());
    let outcome = NewOutcome { claim: Claim { operation, key, request: [1; 32], code: 201 }, body };
    store.put_outcome(&tenant("acme"), outcome, NOW).await.unwrap();
    for content in [format!("a {VALUE}"), format!("b {VALUE}")] {
        let file = contract::new_file(&format!("of-{VALUE}.md"), &content);
        store.put_file(&workspace, file).await.unwrap();
    }
    assert!(found(dir.path(), VALUE) > 9);
    rewrite(&store, session, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).await;
    store.rewrite_stored_text(&tenant("acme"), redactor_of(&[VALUE]), NOW).await.unwrap();
    store.scrub().await.unwrap();
    // Nor in small letters, as facts keep their subjects.
    for form in [VALUE, &VALUE.to_lowercase()] {
        assert_eq!(found(dir.path(), form), 0, "{form}");
    }
    assert_eq!(rows(&store, session).await.len(), 9);
    clean(&store).await;
}

#[tokio::test]
async fn a_scrub_says_when_others_keep_the_side_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), None).unwrap();
    let session = add(&store, "s", &say_many(9)).await;
    let other = other_reader(dir.path());
    erase(&store, session, &[3]).await;
    let failure = store.scrub().await.unwrap_err();
    assert!(matches!(failure, StoreError::StillRead { .. }), "{failure:?}");
    assert!(failure.hint().is_some());
    drop(other);
    store.scrub().await.unwrap();
    assert_eq!((found(dir.path(), "line 3"), log_bytes(dir.path())), (0, 0));
}

#[tokio::test]
async fn tidying_waits_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), None).unwrap();
    add(&store, "s", &say_many(9)).await;
    let other = other_reader(dir.path());
    add(&store, "t", &say_many(9)).await;
    // It comes back while the other still reads, having left the log to it.
    store.tidy().await.unwrap();
    assert!(log_bytes(dir.path()) > 0);
    drop(other);
    store.tidy().await.unwrap();
    assert_eq!(log_bytes(dir.path()), 0);
}
