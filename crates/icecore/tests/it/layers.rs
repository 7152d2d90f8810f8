//! How turns settle into layers, branch, and come back.

use icecore::layers::{Level, Tier};
use icecore::{ContextRequest, MemoryError, MemorySettings, RawTurn, Seq};
use proptest::prelude::*;

use crate::support::{Bench, me, numbered, said, text};

#[tokio::test]
async fn layers_of_250_turns() {
    let bench = Bench::new().await;
    bench.talk("s", 250).await;
    let stats = bench.memory.stats(bench.scope.tenant(), Some("m")).await.unwrap();
    assert_eq!(stats.pending, 0);
    assert_eq!(stats.store.chunks, [30, 10, 2]);
    assert_eq!(stats.store.tier_turns, [15, 35, 200]);
    assert_eq!(stats.store.packs, 2);
    assert_eq!(stats.store.tier_tokens.iter().sum::<u64>(), stats.store.tokens);
    // Every chunk that left the hot tier has its summary.
    assert_eq!(stats.store.summaries, [28, 9, 2]);
    bench.check().await;
}

#[tokio::test]
async fn settling_again_changes_nothing_and_reindex_gives_the_same_bytes() {
    let bench = Bench::new().await;
    bench.talk("s", 230).await;
    let before = bench.memory.chunks(&bench.scope, None).await.unwrap();
    let again = bench.memory.settle(|_, _| {}).await.unwrap();
    assert_eq!(again, icecore::layers::Settled::default());
    bench.memory.reindex(&bench.scope, |_, _| {}).await.unwrap();
    assert_eq!(bench.memory.chunks(&bench.scope, None).await.unwrap(), before);
}

#[tokio::test]
async fn a_memory_fed_turn_by_turn_equals_one_fed_at_once() {
    let (one, two) = (Bench::new().await, Bench::new().await);
    for turn in numbered(220) {
        one.add("s", vec![turn]).await;
        one.settle().await;
    }
    two.talk("s", 220).await;
    let chunks = |bench: &Bench| {
        let (memory, scope) = (bench.memory.clone(), bench.scope.clone());
        async move { memory.chunks(&scope, None).await.unwrap() }
    };
    assert_eq!(chunks(&one).await, chunks(&two).await);
    assert_eq!(one.texts("s").await, two.texts("s").await);
}

#[tokio::test]
async fn forks_share_their_ancestors_and_have_trees_of_their_own() {
    let bench = Bench::new().await;
    bench.talk("s", 40).await;
    let mut fork = said(100, "A different answer.");
    fork.parent_ids = Some(vec!["n15".to_owned()]);
    bench.add("s", vec![fork]).await;
    let more = (101..130).map(|n| said(n, &format!("On the fork, {n}."))).collect();
    bench.add("s", more).await;
    bench.settle().await;

    let view = async |branch: &str| {
        let view = bench.memory.view(&bench.scope, "s", Some(branch)).await.unwrap();
        view.messages.iter().map(|turn| turn.id.clone()).collect::<Vec<_>>()
    };
    let ids =
        |range: std::ops::RangeInclusive<usize>| range.map(|n| format!("n{n}")).collect::<Vec<_>>();
    assert_eq!(view("main").await, ids(1..=40));
    assert_eq!(view("fork-1").await, [ids(1..=15), ids(100..=129)].concat());
    let info = bench.memory.sessions(&bench.scope).await.unwrap().remove(0);
    assert_eq!(info.branches.iter().map(|b| b.to_string()).collect::<Vec<_>>(), ["main", "fork-1"]);

    let context = bench
        .memory
        .context(
            &bench.scope,
            ContextRequest { branch: Some("main".into()), ..ContextRequest::of_session("s", 4000) },
        )
        .await
        .unwrap();
    assert!(context.text.contains("Number 40 ") && !context.text.contains("On the fork"));
    bench.check().await;
}

#[tokio::test]
async fn unknown_names_are_errors_that_say_so() {
    let bench = Bench::new().await;
    bench.talk("s", 3).await;
    let error = bench.memory.turns(&bench.scope, "nope", Seq(0), 1).await.unwrap_err();
    assert!(matches!(error, MemoryError::NoSession { .. }));
    assert_eq!(error.hint().as_deref(), Some("`icecore sessions` lists what is there"));
    let error = bench.memory.view(&bench.scope, "s", Some("fork-9")).await.unwrap_err();
    assert!(matches!(error, MemoryError::NoBranch { .. }));
    for id in ["nope", "micro-9.0.1-10", "micro-1.0.2-9", "turn-1.99"] {
        let error = bench.memory.find(&bench.scope, id).await.unwrap_err();
        assert!(matches!(error, MemoryError::NotFound { .. }), "{id}: {error}");
    }
}

#[tokio::test]
async fn everything_has_an_id_that_finds_it() {
    let bench = Bench::new().await;
    bench.talk("s", 125).await;
    bench.add("s", vec![RawTurn::new("user", "no id of my own")]).await;
    for turn in bench.turns("s").await {
        let found = bench.memory.find(&bench.scope, &turn.id).await.unwrap();
        let icecore::layers::Found::Turn(found) = found else { panic!("{found:?}") };
        assert_eq!(*found, turn);
    }
    for chunk in bench.memory.chunks(&bench.scope, None).await.unwrap() {
        let found = bench.memory.find(&bench.scope, &chunk.id.to_string()).await.unwrap();
        let icecore::layers::Found::Chunk(found, turns) = found else { panic!("{found:?}") };
        assert_eq!((found.id, turns.len() as u64), (chunk.id, chunk.turns));
    }
}

#[tokio::test]
async fn new_sizes_begin_at_the_next_macro_and_old_cuts_stay() {
    let bench = Bench::new().await;
    bench.talk("s", 130).await;
    let before = bench.chunks("s", Level::Micro).await;
    let mut settings = MemorySettings::default();
    settings.cuts.micro_turns = 5;
    let bench = bench.reopen_with(settings).await;
    bench.add("s", (131..=220).map(|n| said(n, "more")).collect()).await;
    bench.settle().await;
    let after = bench.chunks("s", Level::Micro).await;
    let lengths: Vec<u64> = after.iter().map(|chunk| chunk.id.turn_count()).collect();
    assert_eq!(
        after[..before.len()].iter().map(|c| c.id).collect::<Vec<_>>(),
        before.iter().map(|c| c.id).collect::<Vec<_>>()
    );
    assert_eq!(lengths[lengths.len() - 4..], [5, 5, 5, 5]);
    bench.check().await;
}

#[tokio::test]
async fn cold_formats_and_archiving_do_what_they_say() {
    let kept = MemorySettings {
        cold_format: icecore::settings::ColdFormat::Ctf,
        ..MemorySettings::default()
    };
    let bench = Bench::with(kept).await;
    bench.talk("s", 130).await;
    assert_eq!(bench.memory.stats(bench.scope.tenant(), None).await.unwrap().store.packs, 0);
    assert_eq!(bench.turns("s").await[0].tier, Tier::Cold);
    assert_eq!(text(&bench.turns("s").await[0]), "Number 1 speaks of glacier 1.");
    bench.check().await;

    let dropped = MemorySettings { archive_cold_content: false, ..MemorySettings::default() };
    let bench = Bench::with(dropped).await;
    bench.talk("s", 130).await;
    assert!(bench.turns("s").await[0].turn.is_none());
    let stats = bench.memory.stats(bench.scope.tenant(), None).await.unwrap();
    assert_eq!((stats.store.packs, stats.store.expired), (0, 100));
    bench.check().await;
}

#[tokio::test]
async fn auto_summarize_and_auto_extract_facts_are_read() {
    let bench =
        Bench::with(MemorySettings { auto_summarize: false, ..MemorySettings::default() }).await;
    bench.talk("s", 130).await;
    assert!(
        bench
            .memory
            .chunks(&bench.scope, None)
            .await
            .unwrap()
            .iter()
            .all(|chunk| chunk.summary.is_none())
    );

    let facts = async |auto_extract_facts| {
        let bench =
            Bench::with(MemorySettings { auto_extract_facts, ..MemorySettings::default() }).await;
        let turns = (1..=60).map(|n| {
            said(
                n,
                &format!("I prefer route {n} over the pass, and we decided to leave on {n} May."),
            )
        });
        bench.add("s", turns.collect()).await;
        bench.settle().await;
        let chunks = bench.memory.chunks(&bench.scope, None).await.unwrap();
        chunks
            .iter()
            .filter_map(|chunk| chunk.summary.as_ref())
            .map(|summary| summary.key_facts.len())
            .sum::<usize>()
    };
    assert!(facts(true).await > 0);
    assert_eq!(facts(false).await, 0);
}

#[tokio::test]
async fn tenants_and_memories_are_apart() {
    let bench = Bench::new().await;
    bench.talk("s", 12).await;
    let other = bench.memory.scope(&me(), "other").await.unwrap();
    let stranger = icecore::Principal::local_operator(icecore::Tenant::new("stranger").unwrap());
    let stranger = bench.memory.scope(&stranger, "m").await.unwrap();
    let chunk = bench.memory.chunks(&bench.scope, None).await.unwrap()[0].id.to_string();
    for scope in [other, stranger] {
        assert!(bench.memory.sessions(&scope).await.unwrap().is_empty());
        assert!(bench.memory.turns(&scope, "s", Seq(0), 10).await.is_err());
        assert!(bench.memory.expand(&scope, &chunk).await.is_err());
        assert!(bench.memory.find(&scope, "n1").await.is_err());
        assert!(bench.memory.find(&scope, "turn-1.1").await.is_err());
        let context = bench
            .memory
            .context(&scope, ContextRequest { budget: 100, ..Default::default() })
            .await
            .unwrap();
        assert_eq!(context.text, "");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever is said, in whatever batches, comes back exactly, from any tier.
    #[test]
    fn any_turns_in_the_same_turns_out(
        texts in prop::collection::vec("(?s).{0,60}", 1..180),
        sizes in prop::collection::vec(1_usize..40, 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new().await;
            let turns: Vec<RawTurn> = texts.iter().enumerate().map(|(n, text)| said(n + 1, text)).collect();
            let expected: Vec<String> = {
                let redactor = icecore::privacy::Redactor::standard();
                texts.iter().map(|text| redactor.text(text).into_string()).collect()
            };
            let mut rest = turns.as_slice();
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (batch, tail) = rest.split_at((*size).min(rest.len()));
                bench.add("s", batch.to_vec()).await;
                if size % 3 == 0 { bench.settle().await; }
                rest = tail;
            }
            bench.settle().await;
            assert_eq!(bench.texts("s").await, expected);
            for budget in [0, 1, 17, 200, 3000] {
                let context = bench.memory.context(&bench.scope, ContextRequest::of_session("s", budget)).await.unwrap();
                assert!(context.tokens <= budget);
                assert_eq!(context.tokens, bench.memory.counter().count(&context.text));
            }
            bench.check().await;
        });
    }
}
