//! Dreams: what they come to, twice the same; what bounds them; and what a crash leaves.

use std::sync::Arc;

use icecore::dreams::dream::{Archive, INDEX_PATH, MemoryIndex};
use icecore::dreams::{Checksum, Dream, DreamPhase, DreamQuery, DreamRequest, DreamState};
use icecore::knowledge::{EntryQuery, NewEntryRequest};
use icecore::settings::DreamSettings;
use icecore::{
    Clock, Memory, MemoryBuilder, MemoryError, MemorySettings, RawTurn, Scope, SearchRequest,
};
use icecore_store::hooks::Failing;
use icecore_store::{Packs, RunStatus, Store};
use serde_json::Value;

use crate::support::{Bench, HandClock, START, file, me, numbered, put_file, said};

fn saying(content: &str) -> NewEntryRequest {
    NewEntryRequest { content: content.to_owned(), ..NewEntryRequest::default() }
}

async fn put(bench: &Bench, contents: &[&str]) {
    for content in contents {
        bench.memory.put_entry(&bench.scope, saying(content)).await.unwrap();
    }
}

async fn try_dream(bench: &Bench, budget: Option<u64>) -> Result<Dream, MemoryError> {
    bench.memory.dream(&bench.scope, DreamRequest::manual(budget), |_| {}).await
}

async fn dream(bench: &Bench) -> Dream {
    try_dream(bench, None).await.unwrap()
}

async fn archive(bench: &Bench, checksum: Checksum) -> Archive {
    let bytes = bench.memory.archive(me().tenant(), None, checksum).await.unwrap();
    assert_eq!(Checksum::of(&bytes), checksum);
    Archive::parse(&bytes).unwrap()
}

async fn listed(memory: &Memory, scope: &Scope) -> Vec<String> {
    let query = EntryQuery { limit: 500, ..EntryQuery::default() };
    let listed = memory.entries(scope, &query).await.unwrap().entries;
    listed.into_iter().map(|entry| entry.content.into_string()).collect()
}

async fn index(bench: &Bench) -> Option<MemoryIndex> {
    let file = file(&bench.memory, &me(), INDEX_PATH, None).await?;
    Some(MemoryIndex::read(&file.content).unwrap())
}

const ENTRIES: [&str; 5] = [
    "The build server is called Osprey.",
    "Mira prefers tea over coffee.",
    "Deploys happen on Tuesdays only.",
    "Always answer in short sentences.",
    "The glacier expedition needs eleven tents.",
];

/// Three sessions: one with closed chunks, one with an open tail, one without own times.
fn sessions() -> Vec<(&'static str, Vec<RawTurn>)> {
    let own = |turn: RawTurn, n: usize| RawTurn { id: Some(format!("o{n}")), ..turn };
    let mut moved = vec![
        own(said(1, "I live in Porto."), 1),
        own(said(2, "Noted."), 2),
        own(said(3, "I moved. I live in Lisbon now."), 3),
    ];
    moved.push(own(said(5, "We decided to use Rust for the ferry project."), 5));
    let timeless = vec![
        RawTurn::new("user", "My sister is called Ines. Yesterday we met her."),
        RawTurn::new("assistant", "How nice that you met."),
    ];
    vec![("long", numbered(37)), ("moved", moved), ("timeless", timeless)]
}

/// The checksum of a dream of the corpus that was put in some order at some time.
async fn checksum_of(order: &[usize], at: i64, settles: bool, budget: Option<u64>) -> Checksum {
    let bench = Bench::new().await;
    bench.clock.move_to(START + at);
    let sessions = sessions();
    for (step, which) in order.iter().enumerate() {
        bench.clock.move_to(START + at + step as i64 * 1_000);
        match sessions.get(*which) {
            Some((name, turns)) => bench.add(name, turns.clone()).await,
            None => put(&bench, &[ENTRIES[which - sessions.len()]]).await,
        }
        if settles {
            bench.settle().await;
        }
    }
    let done = try_dream(&bench, budget).await.unwrap();
    assert_eq!(done.record.figures.remaining, 0);
    bench.check().await;
    done.record.archive
}

const ORDERS: [[usize; 8]; 3] =
    [[0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0], [3, 0, 5, 2, 7, 1, 4, 6]];

#[tokio::test]
async fn equal_sources_and_budgets_give_equal_bytes() {
    for budget in [None, Some(900)] {
        let expected = checksum_of(&ORDERS[0], 0, true, budget).await;
        for order in &ORDERS[1..] {
            assert_eq!(checksum_of(order, 0, true, budget).await, expected, "{order:?}");
        }
        let years = 3 * 365 * 86_400_000;
        assert_eq!(checksum_of(&ORDERS[2], years, true, budget).await, expected, "another clock");
        assert_eq!(checksum_of(&ORDERS[1], 5, false, budget).await, expected, "no worker");
    }
    let (ample, tight) =
        (checksum_of(&ORDERS[0], 0, true, None).await, checksum_of(&ORDERS[0], 0, true, Some(900)));
    assert_ne!(ample, tight.await, "the budget is part of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn the_number_of_threads_does_not_matter() {
    let here = checksum_of(&ORDERS[2], 77, true, None).await;
    let there = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(checksum_of(&ORDERS[0], 0, true, None))
    });
    assert_eq!(there.join().unwrap(), here);
}

/// Run by the next test, in another environment.
#[tokio::test]
#[ignore = "tells another process what it came to"]
async fn tells_its_checksum() {
    println!("checksum {}", checksum_of(&ORDERS[1], 0, true, None).await);
}

#[tokio::test]
async fn time_zone_and_language_do_not_matter() {
    let here = checksum_of(&ORDERS[0], 0, true, None).await.to_string();
    for (zone, language) in [("Asia/Kathmandu", "tr_TR.UTF-8"), ("America/St_Johns", "C")] {
        let told = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dreams::tells_its_checksum", "--ignored", "--nocapture"])
            .env("TZ", zone)
            .env("LANG", language)
            .env("LC_ALL", language)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains(&format!("checksum {here}")), "{zone}: {told}");
    }
}

#[tokio::test]
async fn a_dream_distils_entries_and_turns_into_an_entry_an_archive_and_the_index() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    for (name, turns) in sessions() {
        bench.add(name, turns).await;
    }
    let mut phases = Vec::new();
    let request = DreamRequest::manual(None);
    let done = bench.memory.dream(&bench.scope, request, |told| phases.push(told)).await.unwrap();
    let words: Vec<DreamPhase> = phases.iter().map(|told| told.phase).collect();
    for phase in [DreamPhase::Looking, DreamPhase::Reading, DreamPhase::Distilling] {
        assert!(words.contains(&phase), "{words:?}");
    }
    assert_eq!(words[words.len() - 2..], [DreamPhase::Sealing, DreamPhase::Keeping]);
    let figures = done.record.figures;
    assert!(figures.input_tokens + figures.output_tokens <= figures.budget);
    assert_eq!(phases.last().unwrap().tokens, figures.input_tokens + figures.output_tokens);
    assert_eq!(figures.remaining, 0);

    // The archive holds no id and no clock.
    let archive = archive(&bench, done.record.archive).await;
    let text = archive.distillate.text();
    let plain = String::from_utf8(archive.to_bytes()).unwrap();
    for told in ["Lisbon", "Osprey", "short sentences", "Ines"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(!plain.contains("2025-12-31"), "the host's clock resolved `yesterday`: {plain}");
    assert!(!plain.contains("mem-") && !plain.contains(&done.record.run), "{plain}");

    // One entry stands for all of them.
    assert_eq!(listed(&bench.memory, &bench.scope).await, std::slice::from_ref(&text));
    let entry = bench.memory.entry(&bench.scope, &done.record.output, None).await.unwrap();
    let tags: Vec<&str> = entry.tags.iter().map(|tag| tag.as_str()).collect();
    assert_eq!(tags, [format!("compacted-from:{}", done.record.run).as_str(), "distillate"]);

    let payload: Value = serde_json::from_str(&done.payload).unwrap();
    assert_eq!(payload["outputId"], done.record.output);
    assert_eq!(payload["trigger"], "host-managed");
    assert_eq!(payload["byteSize"], text.len());
    let used = figures.input_tokens + figures.output_tokens;
    assert_eq!(
        payload["distillation"],
        serde_json::json!({"tokenBudget": 64_000, "tokensUsed": used, "indexUpdated": true})
    );

    // The run has ended, with its events.
    let store = icecore::extend::store(&bench.memory);
    let run = store.run(me().tenant(), &done.record.run).await.unwrap().unwrap();
    assert_eq!((run.status, run.workflow.as_str()), (RunStatus::Completed, "icecore.dream"));
    let events = store.run_events(me().tenant(), &run.id, None, 50).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let expected = [
        "run.started", "node.started", "memory.written", "memory.compacted", "node.completed",
        "run.completed",
    ];
    assert_eq!(kinds, expected);

    let index = index(&bench).await.unwrap();
    let section = &index.memories[0];
    assert_eq!(
        (section.memory.as_str(), section.output.as_str()),
        ("m", done.record.output.as_str())
    );
    assert_eq!(section.archives[0].checksum, done.record.archive);
    assert_eq!(section.archives[0].lines, archive.distillate.lines.len() as u64);
    assert!(!section.topics.is_empty());
    bench.check().await;
}

#[tokio::test]
async fn over_what_has_not_changed_the_dream_before_stands() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    let first = dream(&bench).await;
    assert!(!first.unchanged);
    let again = dream(&bench).await;
    assert!(again.unchanged);
    assert_eq!((&again.record, &again.payload), (&first.record, &first.payload));
    // The budget is looked at first.
    let minimum = first.record.figures.minimum;
    assert!(try_dream(&bench, Some(minimum)).await.unwrap().unchanged);
    let refused = try_dream(&bench, Some(minimum - 1)).await.unwrap_err();
    assert!(
        matches!(refused, MemoryError::TokenBudgetExceeded { minimum: told, .. } if told == minimum),
        "{refused}"
    );
    let preview =
        bench.memory.preview_dream(&bench.scope, DreamRequest::manual(None)).await.unwrap();
    assert!(preview.unchanged);
    assert_eq!(preview.checksum, first.record.archive);

    // What comes next carries what was.
    put(&bench, &["The tents are blue."]).await;
    let next = dream(&bench).await;
    assert_eq!(next.record.previous.as_deref(), Some(first.record.run.as_str()));
    assert_eq!(next.record.figures.source_count, 1);
    let text = archive(&bench, next.record.archive).await.distillate.text();
    assert!(text.contains("blue") && text.contains("Osprey"), "{text}");
    assert_eq!(index(&bench).await.unwrap().memories[0].archives.len(), 2);
    assert_eq!(listed(&bench.memory, &bench.scope).await, [text]);
    bench.check().await;
}

#[tokio::test]
async fn what_does_not_fit_stays_due_and_the_next_dream_goes_on_there() {
    let settings = MemorySettings {
        dreams: DreamSettings { output_tokens: 200, ..DreamSettings::default() },
        ..MemorySettings::default()
    };
    let bench = Bench::with(settings).await;
    for n in 0..60 {
        bench.clock.move_to(START + n * 1_000);
        let told = format!("Station {n} of the northern line keeps {} spare lamps.", n * 7);
        put(&bench, &[&told]).await;
        bench.add("talk", vec![said(n as usize + 1, &format!("Remark {n} on lamps."))]).await;
    }
    let (mut left, mut seen) = (u64::MAX, 0);
    while left > 0 {
        let done = try_dream(&bench, Some(900)).await.unwrap();
        let figures = done.record.figures;
        assert!(figures.input_tokens + figures.output_tokens <= 900, "{figures:?}");
        assert!(figures.source_count > 0 && figures.remaining < left, "{figures:?}");
        left = figures.remaining;
        seen += figures.source_count;
        bench.check().await;
    }
    assert!(seen > 60, "all entries, and the turns or the chunks that hold them: {seen}");
    assert_eq!(listed(&bench.memory, &bench.scope).await.len(), 1);
    assert!(try_dream(&bench, Some(900)).await.unwrap().unchanged);
}

#[tokio::test]
async fn budgets_are_kept_to_the_token() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    bench.add("s", numbered(30)).await;
    let refused = try_dream(&bench, Some(0)).await.unwrap_err();
    assert!(matches!(refused, MemoryError::NoBudget { budget: 0 }), "{refused}");
    let refused = try_dream(&bench, Some(1)).await.unwrap_err();
    let MemoryError::TokenBudgetExceeded { budget: 1, minimum, .. } = refused else {
        panic!("{refused}")
    };
    let refused = try_dream(&bench, Some(minimum - 1)).await.unwrap_err();
    assert!(
        matches!(refused, MemoryError::TokenBudgetExceeded { minimum: told, .. } if told == minimum)
    );
    // Nothing was written for any of them.
    assert_eq!(listed(&bench.memory, &bench.scope).await.len(), ENTRIES.len());
    assert!(index(&bench).await.is_none());
    assert!(bench.memory.archives(me().tenant(), None).await.unwrap().is_empty());

    let done = try_dream(&bench, Some(minimum)).await.unwrap();
    let figures = done.record.figures;
    assert!(figures.input_tokens + figures.output_tokens <= minimum, "{figures:?}");
    assert!(figures.remaining > 0);
    bench.memory.undo_dream(me().tenant(), &done.record.run).await.unwrap();
    let done = try_dream(&bench, Some(10_000_000)).await.unwrap();
    assert_eq!(done.record.figures.budget, 64_000, "clamped");
}

#[tokio::test]
async fn a_memory_with_nothing_in_it_is_not_distilled() {
    let bench = Bench::new().await;
    for _ in 0..2 {
        let refused = dream_error(&bench).await;
        assert!(matches!(refused, MemoryError::NothingToDream { .. }), "{refused}");
    }
    let preview = bench.memory.preview_dream(&bench.scope, DreamRequest::manual(None)).await;
    assert!(matches!(preview, Err(MemoryError::NothingToDream { .. })));
}

async fn dream_error(bench: &Bench) -> MemoryError {
    try_dream(bench, None).await.unwrap_err()
}

#[tokio::test]
async fn one_gigantic_entry_is_read_by_its_sentences() {
    let settings = MemorySettings {
        entries: icecore::settings::EntrySettings {
            bytes: 1 << 20,
            ..MemorySettings::default().entries
        },
        ..MemorySettings::default()
    };
    let bench = Bench::with(settings).await;
    let long: String =
        (0..9_000).map(|n| format!("Harbour {n} has {} cranes and a keeper. ", n * 3)).collect();
    put(&bench, &[&long]).await;
    let done = try_dream(&bench, Some(2_000)).await.unwrap();
    let figures = done.record.figures;
    assert_eq!((figures.source_count, figures.remaining), (1, 0));
    assert!(figures.input_tokens + figures.output_tokens <= 2_000, "{figures:?}");
    assert!(archive(&bench, done.record.archive).await.distillate.text().contains("Harbour"));
    // One long word has no sentences.
    let bench = Bench::with(bench_settings()).await;
    put(&bench, &[&"x".repeat(900_000)]).await;
    let done = try_dream(&bench, Some(2_000)).await.unwrap();
    assert_eq!(done.record.figures.remaining, 0);
}

fn bench_settings() -> MemorySettings {
    MemorySettings {
        entries: icecore::settings::EntrySettings {
            bytes: 1 << 20,
            ..MemorySettings::default().entries
        },
        ..MemorySettings::default()
    }
}

#[tokio::test]
async fn duplicates_become_one_line_and_secrets_none() {
    let bench = Bench::new().await;
    put(&bench, &["The ferry leaves at noon."; 40]).await;
    let done = dream(&bench).await;
    let made = archive(&bench, done.record.archive).await;
    assert_eq!(made.distillate.lines.len(), 1, "{:?}", made.distillate);
    assert_eq!((made.sources.len(), done.record.figures.source_count), (40, 40));

    let bench = Bench::new().await;
    let kind =
        icecore::privacy::Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap();
    let tokens: Vec<String> = (0..5).map(|n| kind.sample(n)).collect();
    put(&bench, &tokens.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let done = dream(&bench).await;
    let plain = String::from_utf8(archive(&bench, done.record.archive).await.to_bytes()).unwrap();
    assert!(tokens.iter().all(|token| !plain.contains(token.as_str())), "{plain}");
    bench.check().await;
}

#[tokio::test]
async fn a_distillate_too_long_for_an_entry_is_cut_and_says_where_the_rest_is() {
    let settings = MemorySettings {
        entries: icecore::settings::EntrySettings {
            bytes: 400,
            ..MemorySettings::default().entries
        },
        ..MemorySettings::default()
    };
    let bench = Bench::with(settings).await;
    for n in 0..30 {
        put(&bench, &[&format!("Pier {n} is rented by company number {}.", n * 13)]).await;
    }
    let done = dream(&bench).await;
    let whole = archive(&bench, done.record.archive).await.distillate.text();
    let entry = bench.memory.entry(&bench.scope, &done.record.output, None).await.unwrap();
    let content = entry.content.as_str();
    assert!(whole.len() > 400 && content.len() <= 400, "{content}");
    let (head, last) = content.rsplit_once('\n').unwrap();
    assert!(whole.starts_with(head) && head.contains("Pier"), "{content}");
    assert!(last.contains(&done.record.archive.to_string()), "{content}");
}

#[tokio::test]
async fn undone_everything_is_as_it_was() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    bench.add("moved", sessions().remove(1).1).await;
    bench.settle().await;
    let find = || async {
        let found = bench.memory.search(&bench.scope, &SearchRequest::new("Osprey")).await;
        found.unwrap().hits.iter().map(|hit| hit.text.clone()).collect::<Vec<_>>()
    };
    let before = (listed(&bench.memory, &bench.scope).await, find().await);
    let first = dream(&bench).await;
    bench.settle().await;
    assert_ne!(listed(&bench.memory, &bench.scope).await, before.0);
    put(&bench, &["The tents are blue."]).await;
    let between = listed(&bench.memory, &bench.scope).await;
    let second = dream(&bench).await;

    let refused = bench.memory.undo_dream(me().tenant(), &first.record.run).await.unwrap_err();
    assert!(refused.to_string().contains("undo that first"), "{refused}");
    let refused = bench.memory.undo_dream(me().tenant(), "dream-none").await.unwrap_err();
    assert!(matches!(refused, MemoryError::NoDream { .. }), "{refused}");

    bench.memory.undo_dream(me().tenant(), &second.record.run).await.unwrap();
    assert_eq!(listed(&bench.memory, &bench.scope).await, between);
    let section = index(&bench).await.unwrap().memories.remove(0);
    assert_eq!(section.archives[0].checksum, first.record.archive);
    // Dreamt again it comes to the same.
    assert_eq!(dream(&bench).await.record.archive, second.record.archive);
    for _ in 0..2 {
        let query = DreamQuery { in_force: true, limit: 9, ..DreamQuery::default() };
        let in_force = bench.memory.dreams(me().tenant(), &query).await.unwrap();
        assert_eq!(in_force.len(), 1);
        bench.memory.undo_dream(me().tenant(), &in_force[0].run).await.unwrap();
        bench.check().await;
    }
    bench.settle().await;
    let mut after = listed(&bench.memory, &bench.scope).await;
    after.retain(|content| content != "The tents are blue.");
    assert_eq!((after, find().await), before);
    assert_eq!(index(&bench).await, Some(MemoryIndex::default()));
    let again = bench.memory.undo_dream(me().tenant(), &first.record.run).await.unwrap_err();
    assert!(matches!(again, MemoryError::NotUndone { .. }), "{again}");
    let state = bench.memory.dream_record(me().tenant(), &first.record.run).await.unwrap();
    assert_eq!(state.unwrap().state, DreamState::Undone);
    // All is due again: turns, too.
    let text = archive(&bench, dream(&bench).await.record.archive).await.distillate.text();
    assert!(text.contains("Lisbon") && text.contains("blue"), "{text}");
}

#[tokio::test]
async fn the_index_has_a_section_for_each_memory_and_is_mended() {
    let settings = MemorySettings {
        dreams: DreamSettings { index_markdown: true, ..DreamSettings::default() },
        ..MemorySettings::default()
    };
    let bench = Bench::with(settings).await;
    let other = bench.memory.scope(&me(), "other").await.unwrap();
    put(&bench, &ENTRIES).await;
    bench.memory.put_entry(&other, saying("Figs are ripe in August.")).await.unwrap();
    let first = dream(&bench).await;
    let second = bench.memory.dream(&other, DreamRequest::manual(None), |_| {}).await.unwrap();
    let sections = |index: &MemoryIndex| -> Vec<(String, Checksum)> {
        let section = |section: &icecore::dreams::dream::MemorySection| {
            (section.memory.clone(), section.archives[0].checksum)
        };
        index.memories.iter().map(section).collect()
    };
    let expected =
        [("m".to_owned(), first.record.archive), ("other".to_owned(), second.record.archive)];
    assert_eq!(sections(&index(&bench).await.unwrap()), expected);
    let readable = file(&bench.memory, &me(), "MEMORY-INDEX.md", None).await.unwrap().content;
    for (name, checksum) in &expected {
        assert!(readable.contains(&format!("## {name}\n")), "{readable}");
        assert!(readable.contains(&checksum.to_string()), "{readable}");
    }
    // Somebody writes something else there.
    put_file(&bench.memory, &me(), INDEX_PATH, "# My notes").await;
    put(&bench, &["The tents are blue."]).await;
    let third = dream(&bench).await;
    let mended = index(&bench).await.unwrap();
    assert_eq!(mended.memories[0].archives[0].checksum, third.record.archive);
    assert_eq!(mended.memories[1].archives[0].checksum, second.record.archive);
    // It is the third version: what was dreamt, the notes, what was dreamt; and one for
    // the other memory.
    assert_eq!(file(&bench.memory, &me(), INDEX_PATH, None).await.unwrap().version, 4);

    // Where nobody wants it there is none.
    let request = DreamRequest { index: false, ..DreamRequest::manual(None) };
    put(&bench, &["The poles are red."]).await;
    let quiet = bench.memory.dream(&bench.scope, request, |_| {}).await.unwrap();
    assert!(!quiet.record.index_updated);
    assert_eq!(file(&bench.memory, &me(), INDEX_PATH, None).await.unwrap().version, 4);
}

#[tokio::test]
async fn what_is_forgotten_is_in_no_version_of_the_readable_index() {
    let settings = MemorySettings {
        dreams: DreamSettings { index_markdown: true, ..DreamSettings::default() },
        ..MemorySettings::default()
    };
    let bench = Bench::with(settings).await;
    put(&bench, &["Figs are ripe in August."]).await;
    let told = saying("The velociraptor enclosure needs a velociraptor keeper.");
    let entry = bench.memory.put_entry(&bench.scope, told).await.unwrap();
    dream(&bench).await;
    put(&bench, &["Figs are sold in September."]).await;
    dream(&bench).await;
    let path = "MEMORY-INDEX.md";
    let readable = file(&bench.memory, &me(), path, None).await.unwrap();
    assert!(readable.content.contains("velociraptor"), "{}", readable.content);
    assert_eq!(readable.version, 2);
    assert!(file(&bench.memory, &me(), path, Some(1)).await.is_none());
    let request = icecore::ForgetRequest::Entry(entry.id);
    bench.memory.forget(&me(), Some("m"), &request, false).await.unwrap();
    for path in [path, INDEX_PATH] {
        let left = file(&bench.memory, &me(), path, None).await.unwrap();
        assert!(!left.content.contains("velociraptor"), "{path}: {}", left.content);
        assert_eq!(left.version, 1);
    }
    let text = listed(&bench.memory, &bench.scope).await.join("\n");
    assert!(text.contains("Figs") && !text.contains("velociraptor"), "{text}");
    bench.check().await;
}

#[tokio::test]
async fn a_preview_writes_nothing_and_tells_what_would_come() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    let head = icecore::extend::store(&bench.memory).head(me().tenant()).await.unwrap();
    let request = DreamRequest::manual(None);
    let preview = bench.memory.preview_dream(&bench.scope, request).await.unwrap();
    assert_eq!(icecore::extend::store(&bench.memory).head(me().tenant()).await.unwrap(), head);
    assert!(!preview.unchanged && preview.before.is_none());
    let done = dream(&bench).await;
    assert_eq!(done.record.archive, preview.checksum);
    assert_eq!(done.record.figures.input_tokens, preview.input_tokens);
    put(&bench, &["The tents are blue."]).await;
    let preview =
        bench.memory.preview_dream(&bench.scope, DreamRequest::manual(None)).await.unwrap();
    assert!(preview.before.unwrap().text().contains("Osprey"));
}

#[tokio::test]
async fn only_what_is_named_is_read() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    bench.add("s", numbered(5)).await;
    let mut ids = Vec::new();
    for content in ["Alpha stands alone.", "Beta follows it."] {
        ids.push(bench.memory.put_entry(&bench.scope, saying(content)).await.unwrap().id);
    }
    let only = || DreamRequest { only: Some(ids.clone()), ..DreamRequest::manual(None) };
    let done = bench.memory.dream(&bench.scope, only(), |_| {}).await.unwrap();
    let made = archive(&bench, done.record.archive).await;
    assert_eq!(made.sources.len(), 2);
    assert!(!made.distillate.text().contains("Osprey"));
    assert_eq!(listed(&bench.memory, &bench.scope).await.len(), ENTRIES.len() + 1);
    let again = bench.memory.dream(&bench.scope, only(), |_| {}).await.unwrap();
    assert!(again.unchanged);
    assert_eq!(again.record, done.record);
    let unknown = DreamRequest { only: Some(vec!["nowhere".to_owned()]), ..only() };
    let refused = bench.memory.dream(&bench.scope, unknown, |_| {}).await.unwrap_err();
    assert!(matches!(refused, MemoryError::NotFound { .. }), "{refused}");
}

#[tokio::test]
async fn confirmed_facts_stand_and_rejected_ones_do_not() {
    let bench = Bench::new().await;
    bench.add("moved", sessions().remove(1).1).await;
    bench.settle().await;
    let facts =
        bench.memory.facts(&bench.scope, &icecore::knowledge::FactQuery::default()).await.unwrap();
    let rust = facts.iter().find(|fact| fact.text.contains("Rust"));
    if let Some(fact) = rust {
        bench.memory.confirm(&bench.scope, &fact.id).await.unwrap();
    }
    let told = "The ferry is called Maria.";
    bench.memory.learn(&bench.scope, told, None, None).await.unwrap();
    let text = archive(&bench, dream(&bench).await.record.archive).await.distillate.text();
    assert!(text.contains("Maria"), "{text}");
}

#[tokio::test]
async fn two_dreamers_take_turns() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    let (one, two) = tokio::join!(try_dream(&bench, None), try_dream(&bench, None));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.unchanged, two.unchanged);
    assert_eq!(one.record, two.record);
    // Somebody who holds it and never lets go.
    let lease = icecore_store::Lease {
        holder: "somebody".to_owned(),
        until: icecore::Millis(START + 1_000_000),
    };
    let store = icecore::extend::store(&bench.memory);
    assert!(store.lease_dream(&bench.scope, lease, bench.memory.now()).await.unwrap());
    put(&bench, &["The tents are blue."]).await;
    let refused = dream_error(&bench).await;
    assert!(matches!(refused, MemoryError::DreamUnderWay { .. }), "{refused}");
    bench.clock.move_to(START + 1_000_000);
    dream(&bench).await;
}

#[tokio::test]
async fn a_body_that_cannot_be_written_leaves_everything_as_it_was() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    let dir = bench.dir.path().join("archives");
    std::fs::remove_dir(&dir).unwrap();
    std::fs::write(&dir, "in the way").unwrap();
    dream_error(&bench).await;
    assert_eq!(listed(&bench.memory, &bench.scope).await.len(), ENTRIES.len());
    assert!(index(&bench).await.is_none());
    std::fs::remove_file(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    let done = dream(&bench).await;
    let other = Bench::new().await;
    put(&other, &ENTRIES).await;
    assert_eq!(dream(&other).await.record.archive, done.record.archive);
}

#[tokio::test]
async fn interrupted_at_any_write_all_is_old_or_new_and_the_retry_comes_to_the_same() {
    let mut expected = None;
    for is_lost_answer in [false, true] {
        for nth in 1.. {
            let inner: Store = Store::in_memory([1; 32]);
            let packs = Packs::in_memory();
            let clock = Arc::new(HandClock::default());
            clock.move_to(START);
            let over = |store: Store| {
                let clock = Arc::clone(&clock) as Arc<dyn Clock>;
                MemoryBuilder::default().clock(clock).over(store, packs.clone(), None)
            };
            let memory = over(inner.clone());
            let scope = memory.scope(&me(), "m").await.unwrap();
            for content in ENTRIES {
                memory.put_entry(&scope, saying(content)).await.unwrap();
            }
            memory.remember(&scope, "moved", sessions().remove(1).1).await.unwrap();
            let before = listed(&memory, &scope).await;
            let failing = Failing::at(nth, is_lost_answer);
            let request = || DreamRequest::manual(None);
            let done = over(inner.hooked(failing)).dream(&scope, request(), |_| {}).await;
            let query = DreamQuery { in_force: true, limit: 9, ..DreamQuery::default() };
            let is_new = !memory.dreams(me().tenant(), &query).await.unwrap().is_empty();
            let after = listed(&memory, &scope).await;
            let has_index = file(&memory, &me(), INDEX_PATH, None).await.is_some();
            assert_eq!(is_new, after != before, "write {nth}");
            assert_eq!(is_new, has_index, "write {nth}");
            // The dead dreamer's lease is past.
            clock.move_to(START + 60_000);
            let again = memory.dream(&scope, request(), |_| {}).await.unwrap();
            assert_eq!(again.unchanged, is_new, "write {nth}");
            let checksum = *expected.get_or_insert(again.record.archive);
            assert_eq!(again.record.archive, checksum, "write {nth}");
            let bytes = memory.archive(me().tenant(), None, checksum).await.unwrap();
            assert_eq!(Checksum::of(&bytes), checksum);
            if done.is_ok() {
                assert!(is_new && nth > 3, "write {nth}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn memories_that_share_an_index_are_distilled_once_each() {
    let bench = Bench::new().await;
    let names: Vec<String> = (0..6).map(|n| format!("memory-{n}")).collect();
    let mut dreams = tokio::task::JoinSet::new();
    for name in &names {
        let scope = bench.memory.scope(&me(), name).await.unwrap();
        for content in ENTRIES {
            bench.memory.put_entry(&scope, saying(content)).await.unwrap();
        }
    }
    for name in &names {
        let scope = bench.memory.scope(&me(), name).await.unwrap();
        let memory = bench.memory.clone();
        dreams.spawn(async move {
            let mut read = 0;
            let tell = |at: icecore::dreams::DreamProgress| {
                read += u32::from(at.phase == DreamPhase::Looking);
            };
            memory.dream(&scope, DreamRequest::manual(None), tell).await.unwrap();
            read
        });
    }
    assert_eq!(dreams.join_all().await, [1; 6]);
    let sections = index(&bench).await.unwrap().memories.into_iter();
    assert_eq!(sections.map(|section| section.memory).collect::<Vec<_>>(), names);
    bench.check().await;
}

#[tokio::test]
async fn a_dream_that_nobody_waits_for_any_more_gives_its_lease_back() {
    let bench = Bench::new().await;
    put(&bench, &ENTRIES).await;
    let (memory, scope) = (bench.memory.clone(), bench.scope.clone());
    let (began, begins) = tokio::sync::oneshot::channel();
    let mut began = Some(began);
    let tell = move |_| {
        if let Some(began) = began.take() {
            began.send(()).unwrap();
        }
    };
    let dreaming =
        tokio::spawn(async move { memory.dream(&scope, DreamRequest::manual(None), tell).await });
    begins.await.unwrap();
    dreaming.abort();
    assert!(dreaming.await.unwrap_err().is_cancelled());
    // The clock stands still, so that the lease would never end.
    assert!(!dream(&bench).await.unchanged);
}

#[tokio::test]
async fn a_budget_that_no_dream_may_have_is_not_advised() {
    let dreams = DreamSettings { max_token_budget: 3, ..DreamSettings::default() };
    let bench = Bench::with(MemorySettings { dreams, ..MemorySettings::default() }).await;
    put(&bench, &ENTRIES).await;
    let refused = dream_error(&bench).await;
    for told in [refused.to_string(), refused.hint().unwrap()] {
        assert!(told.contains("`dreams.max_token_budget`"), "{told}");
        assert!(told.contains("`dreams.min_coverage_percent`"), "{told}");
    }
    let refused = try_dream(&bench, Some(1)).await.unwrap_err();
    assert!(!refused.hint().unwrap().contains("--budget"), "{refused}");
}
