//! Writes that fail, each in turn, and what the next attempt finds.

use std::sync::Arc;

use icecore::ingest::Content;
use icecore::knowledge::{FactQuery, NewEntryRequest};
use icecore::{
    Clock, ContextRequest, ForgetRequest, Memory, MemoryBuilder, Millis, Principal, Scope, Seq,
    Tenant,
};
use icecore_store::hooks::Failing;
use icecore_store::testing::Counting;
use icecore_store::{Packs, Store};

use crate::support::{Bench, HandClock, START, me, numbered, text};

struct Faulty {
    inner: Store,
    packs: Packs,
}

impl Faulty {
    fn new() -> Self {
        Self { inner: Store::in_memory([1; 32]), packs: Packs::in_memory() }
    }

    async fn memory(&self, store: Store) -> (Memory, Scope) {
        let memory = MemoryBuilder::default().over(store, self.packs.clone(), None);
        let scope =
            memory.scope(&Principal::local_operator(Tenant::new("t").unwrap()), "m").await.unwrap();
        (memory, scope)
    }
}

/// What turns out to be secret in the middle of a life.
const SECRET: &str = "kumquat4711zebra";

/// The whole life of a session: append, settle, forget, rescan, settle.
async fn live(memory: &Memory, scope: &Scope) -> Result<(), icecore::MemoryError> {
    let settle = async || match memory.settle(|_, _| {}).await?.failed {
        0 => Ok(()),
        _ => Err(icecore::MemoryError::Internal("a branch was interrupted".to_owned())),
    };
    let mut turns = numbered(130);
    turns[1].content = Content::Text("I live in Porto.".to_owned());
    turns[2].content = Content::Text("I live in Lisbon.".to_owned());
    turns[3].content = Content::Text(format!("The code is {SECRET}."));
    turns[125].content = Content::Text(format!("It was {SECRET}."));
    memory.remember(scope, "s", turns).await?;
    settle().await?;
    let me = Principal::local_operator(scope.tenant().clone());
    memory.forget(&me, None, &ForgetRequest::Subject("Mira".into()), false).await?;
    memory.add_secret(scope.tenant(), "code", SECRET.to_owned().into(), false).await?;
    memory.rescan(&me, false, |_, _| {}).await?;
    settle().await
}

/// What a reader sees in the end.
async fn seen(memory: &Memory, scope: &Scope) -> (Vec<String>, Vec<String>, Vec<String>) {
    let turns = memory.turns(scope, "s", Seq(0), 500).await.unwrap();
    let chunks = memory.chunks(scope, None).await.unwrap();
    let shown = |chunk: &icecore::layers::ChunkInfo| {
        format!("{} {} {:?}", chunk.id, chunk.tier, chunk.summary)
    };
    let query = FactQuery { all: true, ..FactQuery::default() };
    let facts = memory.facts(scope, &query).await.unwrap();
    let facts = facts.iter().map(|fact| format!("{} {}", fact.text, fact.sources.len()));
    (turns.iter().map(text).collect(), chunks.iter().map(shown).collect(), facts.collect())
}

#[tokio::test]
async fn a_life_interrupted_at_any_write_ends_the_same() {
    let clean = Faulty::new();
    let (memory, scope) = clean.memory(clean.inner.clone()).await;
    live(&memory, &scope).await.unwrap();
    let expected = seen(&memory, &scope).await;
    assert_eq!(expected.2, ["Firn lives in Porto. 1"]);
    let told: Vec<&String> = expected.0.iter().filter(|text| text.contains("code]")).collect();
    assert_eq!(told, ["The code is [REDACTED:code].", "It was [REDACTED:code]."]);

    let mut nth = 1;
    loop {
        let mut finished = true;
        for is_lost_answer in [false, true] {
            let faulty = Faulty::new();
            let failing = Failing::at(nth, is_lost_answer);
            let (memory, scope) = faulty.memory(faulty.inner.hooked(failing)).await;
            if live(&memory, &scope).await.is_err() {
                finished = false;
                // A new process tries again.
                let (memory, scope) = faulty.memory(faulty.inner.clone()).await;
                live(&memory, &scope).await.unwrap();
            }
            let (memory, scope) = faulty.memory(faulty.inner.clone()).await;
            assert_eq!(
                seen(&memory, &scope).await,
                expected,
                "write {nth}, lost answer: {is_lost_answer}"
            );
            let report = memory.check(false, |_, _| {}).await.unwrap();
            assert_eq!(report.problems, Vec::<String>::new(), "write {nth}");
        }
        if finished {
            break;
        }
        nth += 1;
    }
    assert!(nth > 10, "only {nth} writes were interrupted");
}

#[tokio::test]
async fn a_context_reads_a_bounded_number_of_rows_however_long_the_session() {
    let reads = async |turns: usize| {
        let clean = Faulty::new();
        let (memory, scope) = clean.memory(clean.inner.clone()).await;
        memory.remember(&scope, "s", numbered(turns)).await.unwrap();
        memory.settle(|_, _| {}).await.unwrap();
        let counting = Counting::new();
        let (memory, scope) = clean.memory(clean.inner.hooked(counting.clone())).await;
        memory.context(&scope, ContextRequest::of_session("s", 500)).await.unwrap();
        counting.take_reads().values().map(|count| count.rows).sum::<u64>()
    };
    let (short, long) = (reads(400).await, reads(1600).await);
    assert!(long <= short + 200, "{short} rows at 400 turns, {long} at 1600");
}

#[tokio::test]
async fn packs_that_a_crash_left_are_removed_once_they_are_old() {
    let bench = Bench::new().await;
    bench.talk("s", 130).await;
    let packs = bench.dir.path().join("packs");
    let orphan = |letter: &str| packs.join(format!("{}.icepack", letter.repeat(32)));
    for letter in ["a", "b"] {
        std::fs::write(orphan(letter), "left by a crash").unwrap();
    }
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    std::fs::File::options().write(true).open(orphan("a")).unwrap().set_modified(long_ago).unwrap();
    let report = bench.memory.check(true, |_, _| {}).await.unwrap();
    assert_eq!((report.is_ok(), report.orphans, report.removed), (true, 2, 1));
    // The young one may be a pack that a worker is about to record.
    assert!(!orphan("a").exists() && orphan("b").exists());
    assert_eq!(bench.texts("s").await.len(), 130);
}

#[tokio::test]
async fn a_damaged_branch_does_not_keep_the_others_from_being_settled() {
    let bench = Bench::new().await;
    bench.talk("damaged", 130).await;
    let pack =
        std::fs::read_dir(bench.dir.path().join("packs")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&pack, "not a pack").unwrap();
    // Dropping what is derived makes the worker read the pack again.
    bench.add("sound", numbered(60)).await;
    let settled = bench.memory.reindex(&bench.scope, |_, _| {}).await.unwrap();
    assert_eq!(settled.failed, 1);
    let sound = bench.memory.chunks(&bench.scope, Some("sound")).await.unwrap();
    assert!(sound.iter().any(|chunk| chunk.summary.is_some()));
    assert_eq!(bench.memory.stats(bench.scope.tenant(), None).await.unwrap().pending, 1);
}

#[tokio::test]
async fn entries_are_purged_while_writers_never_stop() {
    let clock = Arc::new(HandClock::default());
    clock.move_to(START);
    let memory = MemoryBuilder::default().clock(Arc::clone(&clock) as Arc<dyn Clock>).over(
        Faulty::new().inner,
        Packs::in_memory(),
        None,
    );
    let scope = memory.scope(&me(), "m").await.unwrap();
    let writing = async {
        // Each is work that is waited for, and meanwhile comes the next.
        for session in 1.. {
            memory.remember(&scope, &format!("s{session}"), numbered(40)).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let purging = async {
        for _ in 0..2 {
            let expires_at = Some(Millis(memory.now().0 + 1));
            let entry = NewEntryRequest { expires_at, ..NewEntryRequest::default() };
            memory.put_entry(&scope, entry).await.unwrap();
            let kept = memory.entry_settings().snapshot_seconds as i64 * 1_000;
            clock.move_to(memory.now().0 + 1 + kept);
            let now = memory.now();
            while !icecore::extend::store(&memory)
                .due_entries(now, now, 1)
                .await
                .unwrap()
                .is_empty()
            {
                tokio::task::yield_now().await;
            }
        }
    };
    let working = memory.work_until(std::future::pending());
    let all = async {
        tokio::select! {
            () = purging => {}
            () = writing => {}
            () = working => {}
        }
    };
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, all).await.expect("nothing was purged");
}
