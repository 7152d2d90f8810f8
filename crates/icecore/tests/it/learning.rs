//! Facts: drawn, superseded, judged, forgotten.

use icecore::knowledge::{FactInfo, FactKind, FactQuery, FactStatus};
use icecore::recall::DocKind;
use icecore::{ForgetRequest, Memory, MemoryError, RawTurn, SearchRequest};

use crate::support::{Bench, START, me, numbered, said};

async fn facts(bench: &Bench, all: bool) -> Vec<FactInfo> {
    let query = FactQuery { all, ..FactQuery::default() };
    bench.memory.facts(&bench.scope, &query).await.unwrap()
}

async fn shown(bench: &Bench, all: bool) -> Vec<(String, &'static str)> {
    let one = |fact: FactInfo| (fact.text, fact.status.as_str());
    facts(bench, all).await.into_iter().map(one).collect()
}

async fn found(bench: &Bench, query: &str) -> Vec<String> {
    let request = SearchRequest { kinds: vec![DocKind::Fact], ..SearchRequest::new(query) };
    let hits = bench.memory.search(&bench.scope, &request).await.unwrap().hits;
    hits.into_iter().map(|hit| hit.text).collect()
}

fn pair(text: &str, status: &'static str) -> (String, &'static str) {
    (text.to_owned(), status)
}

#[tokio::test]
async fn a_newer_value_takes_the_place_of_an_older() {
    let bench = Bench::new().await;
    bench.add("s", vec![said(1, "I live in Lisbon.")]).await;
    bench.settle().await;
    assert_eq!(found(&bench, "where does Mira live").await, ["Mira lives in Lisbon."]);
    bench.add("s", vec![said(3, "I live in Porto.")]).await;
    bench.settle().await;
    assert_eq!(shown(&bench, false).await, [pair("Mira lives in Porto.", "auto")]);
    assert_eq!(
        shown(&bench, true).await,
        [pair("Mira lives in Lisbon.", "superseded"), pair("Mira lives in Porto.", "auto")]
    );
    let old = facts(&bench, true).await.remove(0);
    assert_eq!(old.valid_to.map(|at| at.0), Some(START + 3 * 60_000));
    assert_eq!((old.sources[0].turn_id.as_str(), old.kind), ("n1", FactKind::Identity));
    assert_eq!(old.sources[0].quote, "I live in Lisbon");
    assert_eq!(found(&bench, "where does Mira live").await, ["Mira lives in Porto."]);
}

#[tokio::test]
async fn what_was_rejected_does_not_come_back() {
    let bench = Bench::new().await;
    bench.add("s", vec![said(1, "I prefer tabs over spaces.")]).await;
    bench.settle().await;
    let id = facts(&bench, false).await[0].id.clone();
    let rejected = bench.memory.reject(&bench.scope, &id).await.unwrap();
    assert_eq!((rejected.status, &rejected.id), (FactStatus::Rejected, &id));
    for _ in 0..2 {
        assert_eq!(facts(&bench, false).await, []);
        assert_eq!(facts(&bench, true).await[0].status, FactStatus::Rejected);
        assert_eq!(found(&bench, "tabs over spaces").await, Vec::<String>::new());
        bench.memory.reindex(&bench.scope, |_, _| {}).await.unwrap();
    }
    let confirmed = bench.memory.confirm(&bench.scope, &id).await.unwrap();
    assert_eq!(confirmed.status, FactStatus::Confirmed);
    assert_eq!(found(&bench, "tabs over spaces").await.len(), 1);
}

#[tokio::test]
async fn what_a_person_tells_is_found_and_outweighs_what_was_said_before() {
    let bench = Bench::new().await;
    bench.add("s", vec![said(1, "I live in Lisbon.")]).await;
    bench.settle().await;
    bench.clock.move_to(START + 3_600_000);
    let told = bench.memory.learn(&bench.scope, "I live in Faro.", None, Some("Mira")).await;
    assert_eq!(told.unwrap()[0].status, FactStatus::Confirmed);
    assert_eq!(found(&bench, "where does Mira live").await, ["Mira lives in Faro."]);
    let text = "The staging cluster is called Firnspiegel";
    let told = bench.memory.learn(&bench.scope, text, None, None).await.unwrap();
    assert_eq!((told[0].text.as_str(), told[0].subject.as_str()), (text, "user"));
    assert_eq!(found(&bench, "staging cluster").await[0], text);
    bench.memory.reject(&bench.scope, &told[0].id).await.unwrap();
    assert!(!found(&bench, "staging cluster").await.contains(&text.to_owned()));
}

#[tokio::test]
async fn what_recall_put_into_a_prompt_is_not_learned() {
    let bench = Bench::new().await;
    bench.add("s", vec![said(1, "I live in Lisbon.")]).await;
    bench.settle().await;
    let echo = "<icecore-context>\nI live in Porto.\n</icecore-context>\nWhat next?";
    bench.add("s", vec![said(3, echo)]).await;
    bench.add("s", vec![said(5, "[2026-01-01]\nMira: I live in Braga.\n\nAnd now?")]).await;
    bench.settle().await;
    assert_eq!(shown(&bench, true).await, [pair("Mira lives in Lisbon.", "auto")]);
}

#[tokio::test]
async fn unknown_ids_and_empty_facts_are_refused() {
    let bench = Bench::new().await;
    for id in ["fact-0123456789abcdef", "nonsense", ""] {
        let error = bench.memory.reject(&bench.scope, id).await.unwrap_err();
        assert!(matches!(error, MemoryError::NotFound { .. }), "{error}");
    }
    let long = "x".repeat(icecore::knowledge::MAX_FACT_CHARS + 1);
    for text in [" \n", long.as_str()] {
        let error = bench.memory.learn(&bench.scope, text, None, None).await.unwrap_err();
        assert!(matches!(error, MemoryError::FactLength { .. }), "{error}");
    }
}

fn below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn forgetting_takes_facts_and_index_files_along() {
    let dir = tempfile::tempdir().unwrap();
    let index = icecore_index::IndexSettings { tail_docs: 10, ..Default::default() };
    let memory = Memory::builder().index(index).open(dir.path()).await.unwrap();
    let scope = memory.scope(&me(), "m").await.unwrap();
    let mut turns = numbered(40);
    turns
        .push(RawTurn { name: Some("Zoe".into()), ..RawTurn::new("user", "I live in Quelimane.") });
    memory.remember(&scope, "s", turns).await.unwrap();
    memory.settle(|_, _| {}).await.unwrap();
    assert!(!below(&dir.path().join("index")).is_empty());
    let subject = ForgetRequest::Subject("Zoe".into());
    let dry = memory.forget(&me(), None, &subject, true).await.unwrap();
    assert_eq!((dry.erased.turns, dry.erased.facts, dry.erased.vectors), (1, 1, 1));
    assert!(!below(&dir.path().join("index")).is_empty());
    let receipt = memory.forget(&me(), None, &subject, false).await.unwrap();
    assert_eq!(receipt.erased, dry.erased);
    assert_eq!(below(&dir.path().join("index")), Vec::<std::path::PathBuf>::new());
    memory.settle(|_, _| {}).await.unwrap();
    let query = FactQuery { all: true, ..FactQuery::default() };
    assert_eq!(memory.facts(&scope, &query).await.unwrap(), []);
    let holds = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).unwrap().to_ascii_lowercase();
        bytes.windows(9).any(|window| window == b"quelimane")
    };
    assert!(!below(dir.path()).iter().any(holds));
}
