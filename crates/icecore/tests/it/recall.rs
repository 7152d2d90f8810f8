//! Finding what was said, and packing it within a budget.

use icecore::ingest::{Content, Timestamp};
use icecore::models::TokenCounter;
use icecore::recall::{DocKind, Mode};
use icecore::{ContextRequest, Memory, MemorySettings, RawTurn, SearchRequest};
use icecore_models::O200k;
use proptest::prelude::*;

use crate::support::{Bench, me};

fn said(name: &str, at: &str, text: &str) -> RawTurn {
    RawTurn {
        name: Some(name.to_owned()),
        timestamp: Some(Timestamp::parse(at).unwrap()),
        ..RawTurn::new("user", text)
    }
}

/// Ids of the turns that a query finds, best first.
async fn found(bench: &Bench, query: &str, mode: Mode) -> Vec<String> {
    let request = SearchRequest { mode, ..SearchRequest::new(query) };
    let hits = bench.memory.search(&bench.scope, &request).await.unwrap().hits;
    hits.into_iter().map(|hit| hit.text).collect()
}

async fn talk_of_two() -> Bench {
    let bench = Bench::new().await;
    let turns = vec![
        said("Ana", "2023-05-08T10:00:00Z", "Hi Ben! How was your weekend?"),
        said("Ben", "2023-05-08T10:01:00Z", "Great, I went sailing with my brother on Saturday."),
        said("Ana", "2023-05-08T10:02:00Z", "Nice! I spent mine baking bread."),
        said("Ben", "2023-05-08T10:03:00Z", "What kind of flour do you use?"),
        said("Ana", "2023-05-08T10:04:00Z", "Rye, mostly. My grandmother taught me."),
    ];
    bench.add("spring", turns).await;
    let turns = vec![
        said("Ben", "2023-08-20T10:00:00Z", "I sold the boat yesterday."),
        said("Ana", "2023-08-20T10:01:00Z", "Oh no, why?"),
        said("Ben", "2023-08-20T10:02:00Z", "The mooring fees became too expensive."),
    ];
    bench.add("summer", turns).await;
    bench
}

#[tokio::test]
async fn a_turn_is_found_as_soon_as_it_is_acknowledged_and_gone_once_it_is_erased() {
    let bench = talk_of_two().await;
    for mode in [Mode::Hybrid, Mode::Lexical] {
        assert_eq!(
            found(&bench, "Why did Ben sell his boat?", mode).await[0],
            "I sold the boat yesterday."
        );
    }
    assert!(!found(&bench, "sailing", Mode::Semantic).await.is_empty());
    let request = icecore::ForgetRequest::Session("summer".to_owned());
    bench.memory.forget(&me(), Some("m"), &request, false).await.unwrap();
    for mode in [Mode::Hybrid, Mode::Lexical, Mode::Semantic] {
        let found = found(&bench, "sold the boat, mooring fees", mode).await;
        assert!(
            found.iter().all(|text| !text.contains("boat") && !text.contains("mooring")),
            "{found:?}"
        );
    }
}

#[tokio::test]
async fn who_when_and_neighbours_count() {
    let bench = talk_of_two().await;
    let first = found(&bench, "What flour does Ana use for her bread?", Mode::Hybrid).await;
    assert_eq!(first[0], "Rye, mostly. My grandmother taught me.");
    let first = found(&bench, "What happened in August 2023?", Mode::Hybrid).await;
    assert!(first[0].contains("boat"), "{first:?}");
}

#[tokio::test]
async fn filters_narrow_a_search() {
    let bench = talk_of_two().await;
    let mut request = SearchRequest::new("boat sailing bread");
    request.session = Some("spring".to_owned());
    let hits = bench.memory.search(&bench.scope, &request).await.unwrap().hits;
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit.session.as_deref() == Some("spring")));
    request.session = None;
    request.after = Some(Timestamp::parse("2023-07-01T00:00:00Z").unwrap().at());
    let hits = bench.memory.search(&bench.scope, &request).await.unwrap().hits;
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit.session.as_deref() == Some("summer")));
    request.kinds = vec![DocKind::Entry];
    assert!(bench.memory.search(&bench.scope, &request).await.unwrap().hits.is_empty());
}

#[tokio::test]
async fn odd_queries_are_answered_or_refused_in_words() {
    let bench = talk_of_two().await;
    let search =
        async |query: &str| bench.memory.search(&bench.scope, &SearchRequest::new(query)).await;
    assert_eq!(search(" \n").await.unwrap_err().to_string(), "the query is empty");
    let long = "boat flour ".repeat(10_000);
    for query in [
        "the of and", "Was hast du gebacken?", "🙂🙂", "a:b AND (c OR \"", "\u{0}\u{7}\u{1b}[2J",
        &long,
    ] {
        search(query).await.unwrap();
    }
    let request = SearchRequest { limit: 0, ..SearchRequest::new("boat") };
    let error = bench.memory.search(&bench.scope, &request).await.unwrap_err();
    assert_eq!(error.to_string(), "`limit` must be from 1 to 500, not 0");
    let empty = bench.memory.scope(&me(), "nothing").await.unwrap();
    assert!(
        bench.memory.search(&empty, &SearchRequest::new("boat")).await.unwrap().hits.is_empty()
    );
}

#[tokio::test]
async fn without_vectors_words_go_on_and_say_so() {
    let settings = MemorySettings { auto_embed: false, ..MemorySettings::default() };
    let bench = Bench::with(settings).await;
    bench.add("s", vec![RawTurn::new("user", "The boat is sold.")]).await;
    let hits = bench.memory.search(&bench.scope, &SearchRequest::new("boat")).await.unwrap();
    assert_eq!(hits.hits.len(), 1);
    assert_eq!(hits.notices, ["searched by words alone: no embedding model is at hand"]);
    let request = SearchRequest { mode: Mode::Semantic, ..SearchRequest::new("boat") };
    let error = bench.memory.search(&bench.scope, &request).await.unwrap_err();
    assert!(error.to_string().starts_with("there are no vectors to search by"), "{error}");
}

#[tokio::test]
async fn the_same_line_a_thousand_times_is_one_hit() {
    let bench = Bench::new().await;
    bench.add("s", vec![RawTurn::new("user", "ok, sounds good"); 1_500]).await;
    bench.settle().await;
    let hits = found(&bench, "sounds good", Mode::Hybrid).await;
    assert_eq!(hits, ["ok, sounds good"]);
}

#[tokio::test]
async fn committed_and_fresh_turns_rank_alike() {
    let bench = Bench::new().await;
    let turns: Vec<RawTurn> = (0..2_500)
        .map(|n| {
            RawTurn::new(
                "user",
                format!(
                    "note {n}: the {} of item {} is {}",
                    ["price", "colour", "age"][n % 3],
                    n % 97,
                    n * 7 % 1000
                ),
            )
        })
        .collect();
    bench.add("s", turns).await;
    let query = "what is the colour of item 42?";
    let fresh = found(&bench, query, Mode::Hybrid).await;
    bench.settle().await;
    let settled: Vec<String> = found(&bench, query, Mode::Hybrid).await;
    let bench = bench.reopen().await;
    let reopened = found(&bench, query, Mode::Hybrid).await;
    assert_eq!(settled, reopened);
    assert!(fresh[0].contains("colour of item 42"), "{}", fresh[0]);
    assert!(settled[0].contains("colour of item 42"), "{}", settled[0]);
}

#[tokio::test]
async fn a_turn_of_a_mebibyte_is_found_and_cut_around_what_matters() {
    let bench = Bench::new().await;
    let filler = "Nothing of note happened on that day either. ".repeat(11_000);
    let text = format!("{filler} The spare key lies under the blue flower pot. {filler}");
    bench.add("s", vec![RawTurn::new("user", text)]).await;
    let request = ContextRequest {
        query: Some("Where is the spare key?".to_owned()),
        budget: 120,
        ..ContextRequest::default()
    };
    let context = bench.memory.context(&bench.scope, request).await.unwrap();
    assert!(context.tokens <= 120);
    assert!(
        context.text.contains("The spare key lies under the blue flower pot."),
        "{}",
        context.text
    );
}

fn texts() -> impl Strategy<Value = Vec<(u8, String)>> {
    let word = prop::sample::select(vec![
        "boat", "rye", "bread", "Ana", "Ben", "sold", "May", "2023", "I", "prefer", "always",
        "the", "why?", "naïve", "氷河", "👍🏽", "<|endoftext|>", "\n\n", "always cite it when I ask",
        "x",
    ]);
    let text = prop::collection::vec(word, 0..30).prop_map(|words| words.join(" "));
    prop::collection::vec((0..4_u8, text), 0..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_context_never_exceeds_its_budget(
        turns in texts(),
        query in prop::option::of("(boat|rye|May 2023|Ana|Why did Ben sell it\\?|how do I bake){0,3}"),
        budget in prop_oneof![0_u32..40, 0_u32..2_000, 1_u32..=32_000],
        settles in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let memory = Memory::in_memory();
            let scope = memory.scope(&me(), "m").await.unwrap();
            for (session, text) in &turns {
                let turn = RawTurn { content: Content::Text(text.clone()), ..RawTurn::new("user", "") };
                memory.remember(&scope, &format!("s{session}"), vec![turn]).await.unwrap();
            }
            if settles {
                memory.settle(|_, _| {}).await.unwrap();
            }
            let request = ContextRequest { query, budget, ..ContextRequest::default() };
            let context = memory.context(&scope, request.clone()).await.unwrap();
            assert!(context.tokens <= budget, "{} of {budget}", context.tokens);
            assert_eq!(context.tokens, O200k::default().count(&context.text));
            let mut ids: Vec<&str> = context.items.iter().map(|item| item.id.as_str()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), context.items.len());
            assert_eq!(memory.context(&scope, request).await.unwrap(), context, "equal input, equal text");
        });
    }
}
