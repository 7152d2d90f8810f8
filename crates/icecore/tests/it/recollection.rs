//! The next session answers from what was distilled of those before.

use icecore::context::{WindowItem, WindowKind};
use icecore::dreams::DreamRequest;
use icecore::dreams::dream::INDEX_PATH;
use icecore::privacy::Redactor;
use icecore::settings::DreamSettings;
use icecore::{Context, ContextRequest, MemoryError, MemorySettings};
use icecore_domain::workspace::FilePath;
use icecore_store::Expect;

use crate::support::{Bench, me, numbered, put_file, said};

async fn bench() -> Bench {
    let bench = Bench::new().await;
    let mut turns = numbered(40);
    turns[3] = said(4, "Please always answer in short sentences.");
    turns[6] = said(7, "My sister is called Ines and lives in Lisbon.");
    bench.add("first", turns).await;
    bench.settle().await;
    bench.memory.dream(&bench.scope, DreamRequest::manual(None), |_| {}).await.unwrap();
    bench
}

async fn context(
    bench: &Bench,
    session: Option<&str>,
    query: Option<&str>,
    budget: u32,
) -> Context {
    let request = ContextRequest {
        session: session.map(str::to_owned),
        query: query.map(str::to_owned),
        budget,
        ..ContextRequest::default()
    };
    let context = bench.memory.context(&bench.scope, request).await.unwrap();
    assert!(context.tokens <= budget, "{}", context.text);
    context
}

fn distilled(context: &Context) -> Vec<&WindowItem> {
    context.items.iter().filter(|item| item.kind == WindowKind::Distillate).collect()
}

#[tokio::test]
async fn the_next_session_answers_from_the_index() {
    let bench = bench().await;
    let asked = "Where does my sister live?";
    let told = context(&bench, Some("second"), Some(asked), 400).await;
    let lines = distilled(&told);
    assert!(lines.iter().any(|line| line.text.contains("Lisbon")), "{}", told.text);
    for line in &lines {
        assert!(!line.sources.is_empty() && line.kind.as_str() == "distillate", "{line:?}");
        assert!(line.id.contains('#'), "{line:?}");
    }
    let tokens: u32 = lines.iter().map(|line| line.tokens).sum();
    assert!(tokens <= 400 * 15 / 100, "{tokens}");

    // What no line is about is looked for in the turns of other sessions all the same.
    let told = context(&bench, Some("second"), Some("What does number 12 speak of?"), 400).await;
    assert!(told.items.iter().any(|item| item.kind == WindowKind::Turn), "{}", told.text);

    // Also once it has its first turn.
    bench.add("second", vec![said(1, "Good morning.")]).await;
    let told = context(&bench, Some("second"), Some(asked), 400).await;
    assert!(told.text.contains("Good morning."), "{}", told.text);

    let path = FilePath::new(Redactor::standard().text(INDEX_PATH)).unwrap();
    let (store, now) = (icecore::extend::store(&bench.memory), bench.memory.now());
    assert!(store.delete_file(&me().workspace(), &path, Expect::Anything, now).await.unwrap());
    let told = context(&bench, Some("second"), Some(asked), 400).await;
    assert_eq!(distilled(&told).len(), 0, "without the index nothing comes from there");
}

#[tokio::test]
async fn without_a_question_instructions_come_first() {
    let bench = bench().await;
    let told = context(&bench, Some("second"), None, 300).await;
    let lines = distilled(&told);
    assert!(lines.iter().any(|line| line.text.contains("short sentences")), "{}", told.text);
    assert_eq!(lines.len(), told.items.len());
    // And where no session is named.
    let told = context(&bench, None, None, 300).await;
    assert!(!distilled(&told).is_empty(), "{}", told.text);
    assert!(told.items.iter().any(|item| item.kind == WindowKind::Turn), "{}", told.text);
    // A session that has turns enough needs none.
    let told = context(&bench, Some("first"), None, 300).await;
    assert!(distilled(&told).is_empty(), "{}", told.text);
}

#[tokio::test]
async fn a_session_that_begins_is_unknown_only_where_nothing_was_distilled() {
    let bench = Bench::new().await;
    bench.add("first", numbered(5)).await;
    let request = ContextRequest::of_session("second", 300);
    let told = bench.memory.context(&bench.scope, request.clone()).await.unwrap_err();
    assert!(matches!(told, MemoryError::NoSession { .. }), "{told}");
    bench.memory.dream(&bench.scope, DreamRequest::manual(None), |_| {}).await.unwrap();
    let told = bench.memory.context(&bench.scope, request.clone()).await.unwrap();
    assert!(!told.items.is_empty());
    let dreams = DreamSettings { context_percent: 0, ..DreamSettings::default() };
    let bench = bench.reopen_with(MemorySettings { dreams, ..MemorySettings::default() }).await;
    assert!(bench.memory.context(&bench.scope, request).await.is_err());
}

#[tokio::test]
async fn a_damaged_archive_costs_its_lines_alone() {
    let bench = bench().await;
    let dir = bench.dir.path().join("archives");
    let body = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&body).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&body, bytes).unwrap();
    let bench = bench.reopen().await;
    let told = context(&bench, None, Some("Where does my sister live?"), 400).await;
    assert!(distilled(&told).is_empty());
    assert!(told.text.contains("Lisbon"), "turns answer still: {}", told.text);
    assert!(told.notices.iter().any(|notice| notice.contains("damaged")), "{:?}", told.notices);
}

#[tokio::test]
async fn an_index_that_somebody_else_wrote_leads_nowhere() {
    let bench = bench().await;
    let index = r#"{"format":"icecore-memory-index/1","memories":{"m":{}}}"#;
    put_file(&bench.memory, &me(), INDEX_PATH, index).await;
    let told = context(&bench, None, None, 400).await;
    assert!(distilled(&told).is_empty());
}
