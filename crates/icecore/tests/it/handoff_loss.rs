//! What becomes of handoffs when turns that they cover are forgotten, or hold a secret.

use icecore::ids::{Branch, Ordinal};
use icecore::privacy::RedactedText;
use icecore::{ForgetRequest, Millis, RawTurn, Seq};
use icecore_store::{
    HandoffEdit, HandoffRecord, HandoffTrigger, KeptHandoff, NewAnswer, NewHandoff, SessionRecord,
};

use crate::forgetting::on_disk;
use crate::support::{Bench, me, numbered, said};

const NOWHERE: Vec<std::path::PathBuf> = Vec::new();

async fn session(bench: &Bench, name: &str) -> SessionRecord {
    let sessions =
        icecore::extend::store(&bench.memory).sessions(&bench.scope, None, 99).await.unwrap();
    let is_it = |one: &SessionRecord| one.name.as_ref().is_some_and(|own| own.as_str() == name);
    sessions.into_iter().find(is_it).unwrap()
}

async fn redacted(bench: &Bench, words: &str) -> RedactedText {
    bench.memory.redactor(me().tenant()).await.unwrap().redactor.text(words)
}

/// Hands off the main branch of a session up to a turn, in words.
async fn hand_off(bench: &Bench, name: &str, through: u64, words: &str) -> HandoffRecord {
    let (store, session) = (icecore::extend::store(&bench.memory), session(bench, name).await);
    let path = [(Branch::MAIN, Ordinal(u64::MAX >> 1))];
    let previous = store.handoff(&bench.scope, session.no, &path).await.unwrap();
    let new = NewHandoff {
        session: session.no,
        branch: Branch::MAIN,
        seen_head: session.branches[0].head_seq,
        seen_previous: previous.map(|previous| previous.id),
        epoch: store.scope_head(&bench.scope).await.unwrap().epoch,
        through: Ordinal(through),
        kept: vec![Seq(1)],
        text: redacted(bench, words).await,
        tokens: 5,
        tokens_before: 9,
        tokens_after: 5,
        made_by: "heuristic".to_owned(),
        trigger: HandoffTrigger::Hand,
        secrets_seen: store.secrets_version(me().tenant()).await.unwrap(),
        now: bench.memory.now(),
    };
    match store.put_handoff(&bench.scope, new).await.unwrap() {
        KeptHandoff::Done(record) => *record,
        KeptHandoff::Changed => panic!("nothing changes meanwhile"),
    }
}

/// Keeps an answer of a model, about a session or about none.
async fn answer(bench: &Bench, key: u8, of: Option<&str>, words: &str) {
    let store = icecore::extend::store(&bench.memory);
    let session = match of {
        Some(name) => Some(session(bench, name).await.no),
        None => None,
    };
    let answer = NewAnswer {
        key: [key; 32],
        session,
        epoch: store.scope_head(&bench.scope).await.unwrap().epoch,
        text: redacted(bench, words).await,
        secrets_seen: store.secrets_version(me().tenant()).await.unwrap(),
        now: bench.memory.now(),
    };
    store.put_answer(&bench.scope, answer).await.unwrap();
}

/// What the handoffs of a session say, oldest first.
async fn words(bench: &Bench, name: &str) -> Vec<String> {
    let no = session(bench, name).await.no;
    let found = icecore::extend::store(&bench.memory).handoffs(&bench.scope, no).await.unwrap();
    found.into_iter().map(|one| one.text.into_string()).collect()
}

#[tokio::test]
async fn a_handoff_goes_with_a_turn_that_it_covers_to_the_last_byte() {
    let bench = Bench::new().await;
    let mut turns = numbered(20);
    turns[4].name = Some("Wanderer".to_owned());
    turns[4].content = icecore::ingest::Content::Text("zanzibarquux".to_owned());
    bench.add("s", turns).await;
    hand_off(&bench, "s", 3, "before all that").await;
    hand_off(&bench, "s", 8, "they spoke of zanzibarquux").await;
    hand_off(&bench, "s", 12, "and again of zanzibarquux").await;
    answer(&bench, 1, Some("s"), "a summary with zanzibarquux").await;
    answer(&bench, 2, None, "a dream of zanzibarquux").await;
    let asked = ForgetRequest::Subject("Wanderer".into());
    let dry = bench.memory.forget(&me(), None, &asked, true).await.unwrap();
    assert_eq!((dry.erased.turns, dry.erased.handoffs), (1, 2));
    assert_eq!(words(&bench, "s").await.len(), 3);

    let receipt = bench.memory.forget(&me(), None, &asked, false).await.unwrap();
    assert_eq!((receipt.erased.turns, receipt.erased.handoffs), (1, 2));
    assert!(receipt.statement().ends_with(", 2 handoffs"), "{}", receipt.statement());
    assert_eq!(words(&bench, "s").await, ["before all that"]);
    assert_eq!(on_disk(&bench, "zanzibarquux"), NOWHERE);
    bench.settle().await;
    bench.check().await;
}

#[tokio::test]
async fn handoffs_go_with_their_session_and_with_what_is_old() {
    let bench = Bench::new().await;
    bench.add("pellucid", (1..=9).map(|n| said(n, "zanzibarquux")).collect()).await;
    bench.add("other", numbered(9)).await;
    hand_off(&bench, "pellucid", 4, "of zanzibarquux").await;
    hand_off(&bench, "other", 4, "of numbers").await;
    let asked = ForgetRequest::Session("pellucid".into());
    for dry_run in [true, false] {
        let receipt = bench.memory.forget(&me(), None, &asked, dry_run).await.unwrap();
        assert_eq!((receipt.erased.turns, receipt.erased.handoffs), (9, 1));
    }
    assert_eq!(on_disk(&bench, "zanzibarquux"), NOWHERE);
    assert_eq!(on_disk(&bench, "pellucid"), NOWHERE, "also not in what the log says of it");
    assert_eq!(words(&bench, "other").await, ["of numbers"]);

    let asked = ForgetRequest::Before(Millis(i64::MAX));
    let receipt = bench.memory.forget(&me(), None, &asked, false).await.unwrap();
    assert_eq!((receipt.erased.turns, receipt.erased.handoffs), (9, 1));
    assert_eq!(on_disk(&bench, "of numbers"), NOWHERE);
    bench.check().await;
}

#[tokio::test]
async fn a_rescan_leaves_no_secret_in_handoffs_and_answers() {
    let bench = Bench::new().await;
    bench.add("told", numbered(6)).await;
    let mut turns = numbered(6);
    turns[3] = RawTurn::new("user", "The code is kumquat4711zebra.");
    bench.add("said", turns).await;
    hand_off(&bench, "said", 2, "before it").await;
    hand_off(&bench, "said", 5, "half of it is kumquat4711").await;
    let first = hand_off(&bench, "told", 2, "nothing yet").await;
    answer(&bench, 1, Some("told"), "half of it is kumquat").await;
    // A person says it, and what was written since may have a part of it.
    let edit = HandoffEdit {
        session: first.session,
        branch: first.branch,
        id: first.id,
        seen_version: 1,
        text: redacted(&bench, "It is kumquat4711zebra.").await,
        tokens: 5,
        tokens_after: 5,
        secrets_seen: 1,
        now: bench.memory.now(),
    };
    let edited =
        icecore::extend::store(&bench.memory).edit_handoff(&bench.scope, edit).await.unwrap();
    assert_ne!(edited, KeptHandoff::Changed);
    hand_off(&bench, "told", 4, "half of it is 4711zebra").await;
    let value = "kumquat4711zebra".to_owned().into();
    bench.memory.add_secret(me().tenant(), "code", value, false).await.unwrap();
    let done = bench.memory.rescan(&me(), false, |_, _| {}).await.unwrap();
    assert_eq!((done.turns, done.handoffs), (1, 1));
    assert_eq!(words(&bench, "said").await, ["before it"]);
    assert_eq!(words(&bench, "told").await, ["It is [REDACTED:code]."]);
    for part in ["kumquat", "4711"] {
        assert_eq!(on_disk(&bench, part), NOWHERE, "{part}");
    }
    bench.check().await;
}
