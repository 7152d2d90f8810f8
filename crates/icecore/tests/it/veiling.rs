//! Reading much, or what was stored before a secret was registered, without holding
//! others up.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use icecore::knowledge::{EntryQuery, NewEntryRequest};
use icecore::layers::Tier;
use icecore::{Memory, MemoryBuilder, Principal, RawTurn, Scope, Seq, Tenant};
use icecore_store::testing::Counting;
use icecore_store::{Packs, Store};

use crate::support::text;

const VALUE: &str = "kumquat4711zebraParade";

/// More than is redacted at once.
const LARGE: usize = 32 << 10;

/// A memory over a store that never keeps anybody waiting.
async fn memory() -> (Memory, Scope, Arc<Counting>) {
    let counting = Counting::new();
    let store = Store::in_memory([1; 32]).hooked(counting.clone());
    let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
    let scope = memory.scope(&me(), "m").await.unwrap();
    (memory, scope, counting)
}

fn me() -> Principal {
    Principal::local_operator(Tenant::new("t").unwrap())
}

fn telling(bytes: usize) -> String {
    format!("{VALUE} {}", "word ".repeat(bytes / 5))
}

/// Runs `test` where a single thread does what is not for the async one.
fn with_one_thread_aside(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(test);
}

/// What `work` answers, and whether the async thread did all of it at once. The
/// thread aside is kept busy until that is known.
async fn watched<T>(work: impl Future<Output = T>) -> (T, bool) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || released.recv());
    let mut work = pin!(work);
    let first = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(release);
    match first {
        Poll::Ready(done) => (done, true),
        Poll::Pending => (work.await, false),
    }
}

#[test]
fn what_is_large_is_redacted_beside_the_thread_that_reads_it() {
    with_one_thread_aside(redact_much());
}

async fn redact_much() {
    let (memory, scope, _) = memory().await;
    for (name, bytes) in [("small", 10), ("large", LARGE)] {
        let turn = RawTurn::new("user", telling(bytes));
        memory.remember(&scope, name, vec![turn]).await.unwrap();
        let entry = NewEntryRequest {
            content: telling(bytes),
            tags: vec![name.to_owned()],
            ..NewEntryRequest::default()
        };
        memory.put_entry(&scope, entry).await.unwrap();
    }
    memory.add_secret(me().tenant(), "fruit", VALUE.to_owned().into(), false).await.unwrap();
    for (name, is_small) in [("small", true), ("large", false)] {
        let (turns, at_once) = watched(memory.turns(&scope, name, Seq(0), 9)).await;
        assert!(text(&turns.unwrap()[0]).starts_with("[REDACTED:fruit] "));
        assert_eq!(at_once, is_small, "turns, {name}");
        let query = EntryQuery { tag: Some(name.to_owned()), ..EntryQuery::default() };
        let (entries, at_once) = watched(memory.entries(&scope, &query)).await;
        assert!(entries.unwrap().entries[0].content.as_str().starts_with("[REDACTED:fruit] "));
        assert_eq!(at_once, is_small, "entries, {name}");
    }
}

#[test]
fn what_is_large_is_decoded_beside_the_thread_that_reads_it() {
    with_one_thread_aside(decode_much());
}

async fn decode_much() {
    let (memory, scope, _) = memory().await;
    for (name, words) in [("small", 1), ("large", 400)] {
        // Different words, which no format can say in short.
        let word = |n: usize, word: usize| format!("{n} {} ", (n * words + word) * 7919);
        let said = |n| (0..words).map(|nth| word(n, nth)).collect::<String>();
        let turn = |n| RawTurn::new("user", said(n));
        memory.remember(&scope, name, (0..60).map(turn).collect()).await.unwrap();
    }
    memory.settle(|_, _| {}).await.unwrap();
    for (name, is_small) in [("small", true), ("large", false)] {
        let (turns, at_once) = watched(memory.turns(&scope, name, Seq(0), 10)).await;
        let turns = turns.unwrap();
        assert!(turns.len() == 10 && turns.iter().all(|turn| turn.tier == Tier::Warm));
        assert!(turns.iter().enumerate().all(|(n, turn)| text(turn).starts_with(&format!("{n} "))));
        assert_eq!(at_once, is_small, "{name}");
    }
}
