//! Forgotten means gone, and stays gone.

use icecore::formats::json::JsonText;
use icecore::ids::Position;
use icecore::layers::{Level, Tier};
use icecore::{Append, ForgetRequest, Millis, RawTurn, TurnInput};
use icecore_store::{NewFork, NewRun, RunStatus, RunStep, RunValue, RunVariable};

use crate::support::{Bench, START, me, numbered, said, text};

/// Whether any file below the bench's directory holds the bytes.
pub(crate) fn on_disk(bench: &Bench, needle: &str) -> Vec<std::path::PathBuf> {
    fn walk(dir: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => walk(&path, files),
                path => files.push(path),
            }
        }
    }
    let mut files = Vec::new();
    walk(bench.dir.path(), &mut files);
    let holds = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
    };
    files.into_iter().filter(holds).collect()
}

async fn forget(bench: &Bench, request: ForgetRequest) -> icecore::Receipt {
    let receipt = bench.memory.forget(&me(), None, &request, false).await.unwrap();
    bench.settle().await;
    bench.check().await;
    receipt
}

#[tokio::test]
async fn a_session_is_gone_from_every_file_and_tier() {
    let bench = Bench::new().await;
    bench.talk("keep", 130).await;
    let secret = (1..=130).map(|n| said(n, &format!("zanzibarquux word {n}"))).collect();
    bench.add("pellucid-session", secret).await;
    bench.settle().await;
    assert!(!on_disk(&bench, "zanzibarquux").is_empty());
    assert!(!on_disk(&bench, "pellucid-session").is_empty());

    let receipt = forget(&bench, ForgetRequest::Session("pellucid-session".into())).await;
    assert_eq!((receipt.erased.turns, receipt.erased.packs), (130, 1));
    assert_eq!(on_disk(&bench, "zanzibarquux"), Vec::<std::path::PathBuf>::new());
    assert_eq!(on_disk(&bench, "pellucid-session"), Vec::<std::path::PathBuf>::new());
    assert!(
        bench.memory.turns(&bench.scope, "pellucid-session", icecore::Seq(0), 1).await.is_err()
    );
    assert_eq!(bench.texts("keep").await.len(), 130);
    let events = bench.memory.events(me().tenant(), None, Position(0), 1000).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == "memory.forgotten").count(), 1);
}

#[tokio::test]
async fn a_resent_history_does_not_bring_it_back_unless_one_insists() {
    let bench = Bench::new().await;
    bench.talk("s", 30).await;
    forget(&bench, ForgetRequest::Session("s".into())).await;
    let again = bench.memory.remember(&bench.scope, "s", numbered(30)).await.unwrap();
    assert_eq!((again.added, again.known, again.forgotten), (0, 0, 30));
    assert!(bench.memory.sessions(&bench.scope).await.unwrap().is_empty());

    let turns = numbered(30).into_iter().map(TurnInput::from).collect();
    let append = Append { session: "s".into(), turns, insist: true, claim: None };
    assert_eq!(bench.memory.append(&bench.scope, append).await.unwrap().added, 30);
    let again = bench.memory.remember(&bench.scope, "s", numbered(30)).await.unwrap();
    assert_eq!((again.added, again.known, again.forgotten), (0, 30, 0));
    bench.settle().await;
    bench.check().await;
}

#[tokio::test]
async fn a_subject_goes_from_every_tier_and_the_rest_stays_exactly() {
    let bench = Bench::new().await;
    bench.talk("s", 230).await;
    let before = bench.chunks("s", Level::Macro).await;
    let receipt = forget(&bench, ForgetRequest::Subject("Mira".into())).await;
    assert_eq!((receipt.erased.turns, receipt.erased.packs), (115, 2));
    let turns = bench.turns("s").await;
    let expected: Vec<_> =
        numbered(230).into_iter().filter(|turn| turn.name.as_deref() == Some("Firn")).collect();
    assert_eq!(
        turns.iter().map(|turn| turn.turn.clone().unwrap().into_fields()).collect::<Vec<_>>(),
        expected
    );
    // Places stay: nothing is cut or numbered again.
    assert_eq!(
        turns.iter().map(|turn| turn.seq.0).collect::<Vec<_>>(),
        (2..=230).step_by(2).collect::<Vec<_>>()
    );
    let after = bench.chunks("s", Level::Macro).await;
    assert_eq!(
        after.iter().map(|c| c.id).collect::<Vec<_>>(),
        before.iter().map(|c| c.id).collect::<Vec<_>>()
    );
    for chunk in bench.memory.chunks(&bench.scope, None).await.unwrap() {
        let said =
            chunk.summary.map(|s| format!("{} {:?}", s.text, s.key_facts)).unwrap_or_default();
        assert!(!said.contains("Mira"), "{}: {said}", chunk.id);
        if chunk.tier != Tier::Hot {
            assert!(!said.is_empty(), "{} was not summarized anew", chunk.id);
        }
    }
    let again = bench.memory.remember(&bench.scope, "s", numbered(230)).await.unwrap();
    assert_eq!((again.added, again.known, again.forgotten), (0, 115, 115));
}

#[tokio::test]
async fn before_a_time_and_then_everything() {
    let bench = Bench::new().await;
    bench.talk("s", 230).await;
    let cut = Millis(START + 151 * 60_000);
    let dry = bench.memory.forget(&me(), None, &ForgetRequest::Before(cut), true).await.unwrap();
    assert_eq!((dry.erased.turns, dry.dry_run), (150, true));
    assert_eq!(bench.texts("s").await.len(), 230);
    let receipt = forget(&bench, ForgetRequest::Before(cut)).await;
    assert_eq!(receipt.erased, dry.erased);
    assert_eq!(bench.texts("s").await.len(), 80);
    assert_eq!(bench.turns("s").await[0].seq.0, 151);
    let receipt = forget(&bench, ForgetRequest::Before(cut)).await;
    assert_eq!(receipt.erased.turns, 0);
    bench.add("s", (300..420).map(|n| said(n, "still going on")).collect()).await;
    bench.settle().await;
    bench.check().await;
}

#[tokio::test]
async fn what_runs_held_is_in_no_file_any_more() {
    let bench = Bench::new().await;
    let memory = &bench.memory;
    let note = "a lighthouse on Skomvær";
    let known = memory.redactor(me().tenant()).await.unwrap();
    let json = || {
        let json = serde_json::json!({ "note": note }).to_string();
        known.redactor.redacted_json(&JsonText::parse(&json).unwrap())
    };
    let (store, now) = (icecore::extend::store(memory), memory.now());
    let run = NewRun {
        id: "r".to_owned(),
        workflow: "w".to_owned(),
        principal: "key-1".to_owned(),
        inputs: json(),
        events: Vec::new(),
        most_unfinished: 9,
        now,
        secrets_seen: known.version,
        claim: None,
    };
    store.create_run(&me().workspace(), run).await.unwrap();
    let known = memory.redactor(me().tenant()).await.unwrap();
    let step = RunStep {
        run: "r".to_owned(),
        seen: 0,
        writes: Vec::new(),
        events: Vec::new(),
        variables: vec![RunVariable { name: "note".to_owned(), value: RunValue::Json(json()) }],
        status: RunStatus::Completed,
        error: None,
        now,
        secrets_seen: known.version,
    };
    store.step_run(me().tenant(), step).await.unwrap().unwrap();
    let fork =
        NewFork { id: "f".to_owned(), source: "r".to_owned(), from_seq: 0, now, claim: None };
    store.fork_run(me().tenant(), fork).await.unwrap().unwrap();
    assert!(!on_disk(&bench, note).is_empty());
    let after = Millis(memory.now().0 + 1);
    assert_eq!(forget(&bench, ForgetRequest::Before(after)).await.erased.runs, 2);
    assert_eq!(on_disk(&bench, note), Vec::<std::path::PathBuf>::new());
    let fork = store.run(me().tenant(), "f").await.unwrap();
    assert!(fork.is_some(), "that it was there is known");
}

#[tokio::test]
async fn one_turn_in_each_tier() {
    let bench = Bench::new().await;
    let mut turns = numbered(230);
    for n in [50, 205, 229] {
        turns[n].name = Some("Wanderer".to_owned());
        turns[n].content = icecore::ingest::Content::Text("zanzibarquux".to_owned());
    }
    bench.add("s", turns).await;
    bench.settle().await;
    let turns = bench.turns("s").await;
    assert_eq!([50, 205, 229].map(|n| turns[n].tier), [Tier::Cold, Tier::Warm, Tier::Hot]);
    let receipt = forget(&bench, ForgetRequest::Subject("Wanderer".into())).await;
    assert_eq!((receipt.erased.turns, receipt.erased.packs), (3, 1));
    assert_eq!(bench.texts("s").await.len(), 227);
    assert_eq!(on_disk(&bench, "zanzibarquux"), Vec::<std::path::PathBuf>::new());
    assert!(bench.turns("s").await.iter().all(|turn| !text(turn).contains("zanzibarquux")));
}

#[tokio::test]
async fn a_receipt_can_be_checked() {
    let bench = Bench::new().await;
    bench.talk("s", 5).await;
    let receipt = forget(&bench, ForgetRequest::Session("s".into())).await;
    assert_eq!(
        receipt.statement(),
        "icecore erasure by session at 2026-01-01T00:00:00Z: 5 turns, 0 entries, 0 chunks, 0 facts, 0 vectors, 0 packs, 0 runs, 0 archives, 0 handoffs"
    );
    assert_eq!(receipt.id, format!("forget-{}", &receipt.sha256[..16]));
}

#[tokio::test]
async fn an_open_session_goes_on_after_part_of_it_was_forgotten() {
    let bench = Bench::new().await;
    bench
        .add("s", vec![RawTurn { name: Some("Ann".into()), ..RawTurn::new("user", "mine") }])
        .await;
    bench.add("s", vec![RawTurn::new("user", "yours")]).await;
    forget(&bench, ForgetRequest::Subject("Ann".into())).await;
    bench.add("s", numbered(40)).await;
    bench.settle().await;
    assert_eq!(bench.texts("s").await.len(), 41);
    bench.check().await;
}

#[tokio::test]
async fn a_damaged_pack_does_not_keep_the_rest_from_being_forgotten() {
    let bench = Bench::new().await;
    bench.talk("damaged", 130).await;
    let pack =
        std::fs::read_dir(bench.dir.path().join("packs")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&pack, "not a pack").unwrap();
    bench.talk("sound", 130).await;
    let asked = ForgetRequest::Subject("Mira".into());
    let error = bench.memory.forget(&me(), None, &asked, false).await.unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(
        bench.turns("sound").await.iter().all(|turn| turn.id[1..].parse::<u32>().unwrap() % 2 == 0)
    );
    // A session that goes whole needs no reading.
    let receipt = forget(&bench, ForgetRequest::Session("damaged".into())).await;
    assert_eq!(receipt.erased.turns, 130);
}

#[tokio::test]
async fn an_erasure_makes_anew_only_what_it_touched() {
    let bench = Bench::new().await;
    let mut turns = numbered(330);
    turns[4].name = Some("Wanderer".to_owned());
    bench.add("s", turns).await;
    bench.settle().await;
    let receipt = bench
        .memory
        .forget(&me(), None, &ForgetRequest::Subject("Wanderer".into()), false)
        .await
        .unwrap();
    assert_eq!((receipt.erased.turns, receipt.erased.chunks), (1, 1));
    let settled = bench.memory.settle(|_, _| {}).await.unwrap();
    // Its micro, mini and macro.
    assert_eq!(settled.summaries, 3);
    bench.check().await;
}
