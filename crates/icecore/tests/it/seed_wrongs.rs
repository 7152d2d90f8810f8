//! Right where the seed is wrong: each of these was seen by running the seed's
//! own implementation, and is named for what it did.

use icecore::ingest::Timestamp;
use icecore::layers::{Level, Tier};
use icecore::settings::WarmFormat;
use icecore::{ContextRequest, MemoryError, MemorySettings, RawTurn};

use crate::support::{Bench, START, numbered, said, text};

fn ranges(chunks: &[icecore::layers::ChunkInfo]) -> Vec<(u64, u64)> {
    chunks.iter().map(|chunk| (chunk.id.first.0, chunk.id.last.0)).collect()
}

#[tokio::test]
async fn minis_came_only_every_50_turns_and_left_60_of_100_turns_out() {
    let bench = Bench::new().await;
    bench.talk("s", 100).await;
    assert_eq!(
        ranges(&bench.chunks("s", Level::Mini).await),
        [(1, 25), (26, 50), (51, 75), (76, 100)]
    );
}

#[tokio::test]
async fn there_was_no_macro_at_100_turns() {
    let bench = Bench::new().await;
    bench.talk("s", 100).await;
    assert_eq!(ranges(&bench.chunks("s", Level::Macro).await), [(1, 100)]);
}

#[tokio::test]
async fn a_macro_claimed_turns_that_its_children_lacked() {
    let bench = Bench::new().await;
    bench.talk("s", 300).await;
    for level in [Level::Mini, Level::Macro] {
        for chunk in bench.chunks("s", level).await {
            let mut next = chunk.id.first.0;
            for child in &chunk.children {
                assert_eq!(child.first.0, next);
                next = child.last.0 + 1;
            }
            assert_eq!(next, chunk.id.last.0 + 1, "{}", chunk.id);
        }
    }
}

#[tokio::test]
async fn minis_and_macros_were_not_expandable() {
    let bench = Bench::new().await;
    bench.talk("s", 230).await;
    let expected = numbered(230);
    let chunks = bench.memory.chunks(&bench.scope, Some("s")).await.unwrap();
    let tiers: std::collections::BTreeSet<_> = chunks.iter().map(|chunk| chunk.tier).collect();
    assert_eq!(tiers.into_iter().collect::<Vec<_>>(), [Tier::Hot, Tier::Warm, Tier::Cold]);
    for chunk in chunks {
        let turns = bench.memory.expand(&bench.scope, &chunk.id.to_string()).await.unwrap();
        let range = chunk.id.first.0 as usize - 1..chunk.id.last.0 as usize;
        let found: Vec<RawTurn> =
            turns.into_iter().map(|turn| turn.turn.unwrap().into_fields()).collect();
        assert_eq!(found, expected[range], "{}", chunk.id);
    }
}

#[tokio::test]
async fn the_open_tail_was_missing_from_the_window_and_lost_on_restart() {
    let bench = Bench::new().await;
    bench.talk("s", 107).await;
    let bench = bench.reopen().await;
    let context =
        bench.memory.context(&bench.scope, ContextRequest::of_session("s", 2000)).await.unwrap();
    for n in 101..=107 {
        assert!(context.text.contains(&format!("Number {n} ")), "turn {n} is missing");
    }
    assert_eq!(bench.texts("s").await.len(), 107);
}

#[tokio::test]
async fn parent_links_were_not_saved() {
    let bench = Bench::new().await;
    bench.talk("s", 125).await;
    let bench = bench.reopen().await;
    for (level, above) in [(Level::Micro, Level::Mini), (Level::Mini, Level::Macro)] {
        let parents = bench.chunks("s", above).await;
        for chunk in bench.chunks("s", level).await {
            let holds = |p: &&icecore::layers::ChunkInfo| {
                p.id.first <= chunk.id.first && chunk.id.last <= p.id.last
            };
            assert_eq!(chunk.parent, parents.iter().find(holds).map(|p| p.id), "{}", chunk.id);
            if let Some(parent) = parents.iter().find(holds) {
                assert!(parent.children.contains(&chunk.id));
            }
        }
    }
}

#[tokio::test]
async fn chunk_order_was_lost_on_reload() {
    let bench = Bench::new().await;
    bench.talk("s", 250).await;
    let before = bench.memory.chunks(&bench.scope, Some("s")).await.unwrap();
    let bench = bench.reopen().await;
    let after = bench.memory.chunks(&bench.scope, Some("s")).await.unwrap();
    assert_eq!(before, after);
    let micros = ranges(&bench.chunks("s", Level::Micro).await);
    assert!(micros.is_sorted() && micros.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0));
}

#[tokio::test]
async fn a_hot_chunk_larger_than_the_budget_was_skipped_so_that_the_context_was_empty() {
    let bench = Bench::new().await;
    bench.add("s", vec![said(1, &"a long story about ice ".repeat(400))]).await;
    for budget in [20, 50, 200, 1000] {
        let context = bench
            .memory
            .context(&bench.scope, ContextRequest::of_session("s", budget))
            .await
            .unwrap();
        assert!(context.text.contains("a long story"), "at {budget}: {}", context.text);
        assert!(context.tokens <= budget);
    }
}

#[tokio::test]
async fn budgets_were_counted_in_words_so_that_text_without_spaces_overran() {
    let bench = Bench::new().await;
    let samples =
        ["氷河は雪が積もって固まったものです。", "aGVsbG8gd29ybGQhISEhISEhISE=", "👍🏽👍🏽👍🏽"];
    let turns = (1..=60).map(|n| said(n, &samples[n % 3].repeat(20))).collect();
    bench.add("s", turns).await;
    bench.settle().await;
    for budget in (0..600).step_by(7).chain([1000, 5000, 100_000]) {
        let context = bench
            .memory
            .context(&bench.scope, ContextRequest::of_session("s", budget))
            .await
            .unwrap();
        assert!(context.tokens <= budget);
        assert_eq!(context.tokens, bench.memory.counter().count(&context.text));
    }
}

#[tokio::test]
async fn hot_max_tokens_was_never_read() {
    let settings =
        MemorySettings { hot_max_tokens: 300, hot_chunks: 5, ..MemorySettings::default() };
    let bench = Bench::with(settings).await;
    bench.talk("s", 60).await;
    let hot = bench.turns("s").await.into_iter().filter(|turn| turn.tier == Tier::Hot);
    let tokens: u64 = hot.map(|turn| u64::from(turn.tokens)).sum();
    assert!(tokens <= 300 && tokens > 100, "{tokens} tokens are hot");
}

#[tokio::test]
async fn warm_format_was_never_read() {
    for warm_format in [WarmFormat::Ctf, WarmFormat::Json] {
        let bench = Bench::with(MemorySettings { warm_format, ..MemorySettings::default() }).await;
        bench.talk("s", 160).await;
        let session = bench.memory.sessions(&bench.scope).await.unwrap().remove(0);
        assert_eq!(session.turns, 160);
        let no =
            icecore::extend::store(&bench.memory).sessions(&bench.scope, None, 1).await.unwrap()[0]
                .no;
        let bodies = icecore::extend::store(&bench.memory)
            .bodies(
                &bench.scope,
                no,
                icecore::ids::Branch::MAIN,
                icecore::ids::Ordinal(101),
                icecore::ids::Ordinal(120),
            )
            .await
            .unwrap();
        for body in bodies {
            let icecore::layers::BodyPlace::Text(text) = body.place else {
                panic!("{:?}", body.place)
            };
            let is_ctf = text.text.as_str().starts_with("#CTF v2");
            assert_eq!(is_ctf, warm_format == WarmFormat::Ctf);
        }
        assert_eq!(
            bench.texts("s").await,
            numbered(160).iter().map(|t| t.content.text().into_owned()).collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn defer_summarization_was_never_read() {
    let summarized = async |defer_summarization| {
        let bench =
            Bench::with(MemorySettings { defer_summarization, ..MemorySettings::default() }).await;
        bench.talk("s", 60).await;
        let micros = bench.chunks("s", Level::Micro).await;
        micros
            .iter()
            .filter(|chunk| chunk.summary.is_some())
            .map(|chunk| chunk.tier)
            .collect::<Vec<_>>()
    };
    assert!(summarized(true).await.iter().all(|tier| *tier == Tier::Warm));
    assert!(summarized(false).await.contains(&Tier::Hot));
}

#[tokio::test]
async fn retention_deleted_nothing() {
    const DAY: i64 = 24 * 3600 * 1000;
    let settings = MemorySettings { cold_retention_days: 30, ..MemorySettings::default() };
    let bench = Bench::with(settings).await;
    bench.talk("s", 130).await;
    let packs = |bench: &Bench| std::fs::read_dir(bench.dir.path().join("packs")).unwrap().count();
    assert_eq!(packs(&bench), 1);
    bench.clock.move_to(START + 29 * DAY);
    bench.settle().await;
    assert_eq!(packs(&bench), 1);
    bench.clock.move_to(START + 31 * DAY);
    bench.settle().await;
    assert_eq!(packs(&bench), 0);
    let macro_id = bench.chunks("s", Level::Macro).await[0].id.to_string();
    let expanded = bench.memory.expand(&bench.scope, &macro_id).await;
    assert!(matches!(expanded, Err(MemoryError::Expired { .. })), "{expanded:?}");
    assert!(bench.chunks("s", Level::Macro).await[0].summary.is_some());
    assert_eq!(bench.turns("s").await.iter().filter(|turn| turn.turn.is_some()).count(), 30);
    bench.check().await;
}

#[tokio::test]
async fn a_torn_chunk_file_made_its_turns_vanish() {
    let bench = Bench::new().await;
    bench.talk("s", 130).await;
    let pack =
        std::fs::read_dir(bench.dir.path().join("packs")).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&pack).unwrap();
    std::fs::write(&pack, &whole[..whole.len() / 2]).unwrap();
    let read = bench.memory.turns(&bench.scope, "s", icecore::Seq(0), 500).await;
    assert!(read.unwrap_err().to_string().contains("damaged"));
    let report = bench.memory.check(false, |_, _| {}).await.unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(
        report.problems[0].contains("damaged") && report.problems[0].contains("turns 1 to 100")
    );
    std::fs::write(&pack, whole).unwrap();
    bench.check().await;
}

#[tokio::test]
async fn ids_collided_between_sessions() {
    let bench = Bench::new().await;
    bench.talk("a", 30).await;
    bench.talk("b", 30).await;
    let all = bench.memory.chunks(&bench.scope, None).await.unwrap();
    let ids: std::collections::BTreeSet<_> = all.iter().map(|chunk| chunk.id).collect();
    assert_eq!(ids.len(), all.len());
    let of_b = all.iter().find(|chunk| chunk.session == "b").unwrap();
    assert!(
        bench
            .memory
            .expand(&bench.scope, &of_b.id.to_string())
            .await
            .unwrap()
            .iter()
            .all(|t| t.session == "b")
    );
}

#[tokio::test]
async fn repeated_ok_turns_were_dropped() {
    let bench = Bench::new().await;
    bench.add("s", vec![RawTurn::new("user", "ok"), RawTurn::new("user", "ok")]).await;
    bench.add("s", vec![RawTurn::new("user", "ok")]).await;
    assert_eq!(bench.texts("s").await, ["ok", "ok", "ok"]);
}

#[tokio::test]
async fn all_old_turns_were_appended_again_on_each_add() {
    let bench = Bench::new().await;
    for n in 1..=40 {
        bench.add("s", vec![said(n, "hello")]).await;
        bench.settle().await;
    }
    let seqs: Vec<u64> = bench.turns("s").await.iter().map(|turn| turn.seq.0).collect();
    assert_eq!(seqs, (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn importing_old_history_demoted_everything_at_once() {
    let bench = Bench::new().await;
    let old = |n: usize| RawTurn {
        timestamp: Some(Timestamp::parse(format!("1999-01-{:02}T00:00:00Z", n % 28 + 1)).unwrap()),
        ..said(n, "long ago")
    };
    bench.add("s", (1..=45).map(old).collect()).await;
    bench.settle().await;
    let hot = bench.turns("s").await.iter().filter(|turn| turn.tier == Tier::Hot).count();
    // Two closed micros (26 to 35, 36 to 45) and no open tail.
    assert_eq!(hot, 20);
}

#[tokio::test]
async fn archived_chunks_expanded_to_nothing() {
    let bench = Bench::new().await;
    bench.talk("s", 125).await;
    let cold: Vec<_> =
        bench.turns("s").await.into_iter().filter(|turn| turn.tier == Tier::Cold).collect();
    assert_eq!(cold.len(), 100);
    assert!(cold.iter().all(|turn| text(turn).starts_with("Number ")));
}
