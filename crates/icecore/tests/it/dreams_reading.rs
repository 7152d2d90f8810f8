//! How dreams read what is due: whatever the worker did, whatever is damaged, and with
//! what people said since.

use icecore::dreams::dream::{Archive, SourceKind};
use icecore::dreams::{Checksum, Dream, DreamRequest};
use icecore::knowledge::NewEntryRequest;
use icecore::settings::DreamSettings;
use icecore::{MemoryError, MemorySettings, RawTurn};

use crate::support::{Bench, me, numbered, said};

async fn put(bench: &Bench, content: &str) -> String {
    let request = NewEntryRequest { content: content.to_owned(), ..NewEntryRequest::default() };
    bench.memory.put_entry(&bench.scope, request).await.unwrap().id
}

async fn try_dream(bench: &Bench, request: DreamRequest) -> Result<Dream, MemoryError> {
    bench.memory.dream(&bench.scope, request, |_| {}).await
}

async fn dream(bench: &Bench) -> Dream {
    try_dream(bench, DreamRequest::manual(None)).await.unwrap()
}

async fn archive(bench: &Bench, checksum: Checksum) -> Archive {
    let bytes = bench.memory.archive(me().tenant(), None, checksum).await.unwrap();
    Archive::parse(&bytes).unwrap()
}

async fn minimum(bench: &Bench, budget: u64) -> u64 {
    match try_dream(bench, DreamRequest::manual(Some(budget))).await {
        Err(MemoryError::TokenBudgetExceeded { minimum, .. }) => minimum,
        other => panic!("{other:?}"),
    }
}

/// Turns of some hundred tokens each.
fn long_turns(count: usize) -> Vec<RawTurn> {
    let told = |n: usize| {
        let sentence = |m: usize| {
            format!("Survey {n}.{m} found {} cracks in the glacier near hut {}.", n * m, n % 9)
        };
        (1..=8).map(sentence).collect::<Vec<_>>().join(" ")
    };
    (1..=count).map(|n| said(n, &told(n))).collect()
}

#[tokio::test]
async fn what_the_worker_has_done_does_not_matter() {
    let usual = MemorySettings::default;
    let hosts = [
        (usual(), true),
        (usual(), false),
        (MemorySettings { hot_chunks: 1, ..usual() }, true),
        (MemorySettings { hot_chunks: 40, ..usual() }, true),
        (MemorySettings { auto_summarize: false, ..usual() }, true),
        (MemorySettings { defer_summarization: false, ..usual() }, true),
    ];
    let mut expected: Option<Vec<(u64, Checksum)>> = None;
    for (at, (settings, settles)) in hosts.into_iter().enumerate() {
        let bench = Bench::with(settings).await;
        bench.add("long", long_turns(112)).await;
        bench.add("short", numbered(37)).await;
        if settles {
            bench.settle().await;
        }
        let mut found = Vec::new();
        for budget in [600, 1_500, 4_000, 8_000, 64_000] {
            let request = DreamRequest::manual(Some(budget));
            let preview = bench.memory.preview_dream(&bench.scope, request).await.unwrap();
            found.push((budget, preview.checksum));
        }
        found.push((minimum(&bench, 1).await, Checksum([0; 32])));
        assert_eq!(*expected.get_or_insert_with(|| found.clone()), found, "host {at}");
    }
}

#[tokio::test]
async fn a_closed_chunk_that_is_still_hot_can_be_read_by_its_summaries() {
    for count in [99, 100] {
        let bench = Bench::new().await;
        bench.add("s", long_turns(count)).await;
        bench.settle().await;
        let done = try_dream(&bench, DreamRequest::manual(Some(8_000))).await.unwrap();
        assert_eq!(done.record.figures.remaining, 0, "{count} turns");
    }
}

#[tokio::test]
async fn a_giant_chunk_does_not_keep_a_small_one_from_being_read_whole() {
    let kinds = |archive: &Archive| {
        let session = archive.sources.iter().filter(|source| source.kind == SourceKind::Mini);
        session.map(|source| source.hash).collect::<Vec<_>>()
    };
    let small = Bench::new().await;
    small.add("small", numbered(25)).await;
    let request = || DreamRequest::manual(Some(8_000));
    let alone = try_dream(&small, request()).await.unwrap();
    let whole = kinds(&archive(&small, alone.record.archive).await);
    assert_eq!(whole.len(), 1);
    let both = Bench::new().await;
    both.add("small", numbered(25)).await;
    let giant = |n: usize| said(n, &"The wind turned north again today. ".repeat(60));
    both.add("zgiant", (1..=100).map(giant).collect()).await;
    let done = try_dream(&both, request()).await.unwrap();
    assert_eq!(kinds(&archive(&both, done.record.archive).await), whole);
}

#[tokio::test]
async fn the_least_budget_does_not_depend_on_the_budget_that_was_tried() {
    let terse = |n: usize| said(n, "Yes.");
    // All of these are worth keeping, so that what stands for them is longer.
    let likes = |n: usize| said(2 * n + 1, &format!("I like figs{n}."));
    let shapes: [Vec<RawTurn>; 4] = [
        (1..=100).map(terse).collect(),
        (1..=10).map(likes).collect(),
        numbered(60),
        long_turns(110),
    ];
    for (at, turns) in shapes.into_iter().enumerate() {
        let bench = Bench::new().await;
        bench.add("s", turns).await;
        put(&bench, "The tents are blue.").await;
        let least = minimum(&bench, 1).await;
        for budget in [least / 2, least - 1] {
            assert_eq!(minimum(&bench, budget.max(1)).await, least, "shape {at}");
        }
        let done = try_dream(&bench, DreamRequest::manual(Some(least))).await.unwrap();
        let figures = done.record.figures;
        assert!(figures.input_tokens + figures.output_tokens <= least, "shape {at}");
    }
}

#[tokio::test]
async fn a_damaged_pack_costs_its_own_turns_alone() {
    for auto_summarize in [true, false] {
        let settings = MemorySettings { auto_summarize, ..MemorySettings::default() };
        let bench = Bench::with(settings).await;
        bench.talk("damaged", 160).await;
        bench.talk("sound", 12).await;
        put(&bench, "The tents are blue.").await;
        let mut packs = std::fs::read_dir(bench.dir.path().join("packs")).unwrap();
        let pack = packs.next().unwrap().unwrap().path();
        let sound = std::fs::read(&pack).unwrap();
        std::fs::write(&pack, "not a pack").unwrap();
        let bench = bench.reopen().await;
        let done = dream(&bench).await;
        let text = archive(&bench, done.record.archive).await.distillate.text();
        assert!(text.contains("blue"), "{text}");
        // By its summaries it was read; without any it waits for its pack.
        std::fs::write(&pack, sound).unwrap();
        let bench = bench.reopen().await;
        let again = dream(&bench).await;
        assert_eq!(again.unchanged, auto_summarize);
        assert!(dream(&bench).await.unchanged);
    }
}

#[tokio::test]
async fn a_dream_over_chosen_entries_does_not_replace_one_that_is_in_force() {
    let bench = Bench::new().await;
    let one = put(&bench, "Alpha stands alone.").await;
    put(&bench, "Beta follows it.").await;
    let first = dream(&bench).await;
    let two = put(&bench, "Gamma is new.").await;
    let only = |ids: &[&String], budget| DreamRequest {
        only: Some(ids.iter().map(|id| (*id).clone()).collect()),
        ..DreamRequest::manual(budget)
    };
    // The budget is looked at first.
    let refused = try_dream(&bench, only(&[&two], Some(1))).await.unwrap_err();
    assert!(matches!(refused, MemoryError::TokenBudgetExceeded { .. }), "{refused}");
    let refused = try_dream(&bench, only(&[&two], None)).await.unwrap_err();
    assert!(refused.to_string().contains(&format!("undo dream `{}` first", first.record.run)));
    let refused = try_dream(&bench, only(&[&first.record.output], None)).await.unwrap_err();
    assert!(refused.to_string().contains(&first.record.output), "{refused}");
    assert!(matches!(refused, MemoryError::OwnOutput { .. }), "{refused}");
    // It stands for this one, and for another beside it.
    let refused = try_dream(&bench, only(&[&one], None)).await.unwrap_err();
    assert!(matches!(refused, MemoryError::DreamInForce { .. }), "{refused}");

    bench.memory.undo_dream(me().tenant(), &first.record.run).await.unwrap();
    let done = try_dream(&bench, only(&[&two, &two], None)).await.unwrap();
    assert_eq!(done.record.figures.source_count, 1);
    assert_eq!(archive(&bench, done.record.archive).await.sources.len(), 1);
    assert!(try_dream(&bench, only(&[&two], None)).await.unwrap().unchanged);
}

#[tokio::test]
async fn an_archive_says_how_much_might_be_written() {
    let limits = [(None, 8_000, 2_000, 2_000), (None, 8_000, 64_000, 8_000)];
    let fewer = [(None, 200, 64_000, 200), (Some(300), 8_000, 64_000, 300)];
    for (asked, setting, budget, expected) in limits.into_iter().chain(fewer) {
        let dreams = DreamSettings { output_tokens: setting, ..DreamSettings::default() };
        let bench = Bench::with(MemorySettings { dreams, ..MemorySettings::default() }).await;
        put(&bench, "The tents are blue.").await;
        let request = DreamRequest { output_tokens: asked, ..DreamRequest::manual(Some(budget)) };
        let done = try_dream(&bench, request).await.unwrap();
        assert_eq!(archive(&bench, done.record.archive).await.output, expected);
    }
}

#[tokio::test]
async fn what_people_say_about_facts_is_due() {
    let bench = Bench::new().await;
    let learn = |told: &'static str| bench.memory.learn(&bench.scope, told, None, None);
    let ferry = learn("The ferry is called Maria.").await.unwrap();
    let first = dream(&bench).await;
    let told = |dream: &Dream| archive(&bench, dream.record.archive);
    assert!(told(&first).await.distillate.text().contains("Maria"));
    assert_eq!(first.record.figures.source_count, 1);
    assert!(dream(&bench).await.unchanged);

    learn("The harbour is called Lobos.").await.unwrap();
    let second = dream(&bench).await;
    let text = told(&second).await.distillate.text();
    assert!(!second.unchanged && text.contains("Maria") && text.contains("Lobos"), "{text}");

    for fact in &ferry {
        bench.memory.reject(&bench.scope, &fact.id).await.unwrap();
    }
    let third = dream(&bench).await;
    let text = told(&third).await.distillate.text();
    assert!(!third.unchanged && !text.contains("Maria") && text.contains("Lobos"), "{text}");
    assert!(dream(&bench).await.unchanged);
    bench.check().await;
    // Undone, it is due again.
    bench.memory.undo_dream(me().tenant(), &third.record.run).await.unwrap();
    assert_eq!(dream(&bench).await.record.archive, third.record.archive);
}
