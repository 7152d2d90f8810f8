//! Reading what was stored before a secret was registered, without holding others up.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use icecore::{
    EntryQuery, FileWrite, Memory, MemoryBuilder, NewEntryRequest, Principal, RawTurn, Scope, Seq,
    Store, Tenant,
};
use icecore_store::testing::CountingStore;
use icecore_store::{MemoryStore, Packs};

use crate::support::text;

const VALUE: &str = "kumquat4711zebraParade";

/// More than is redacted at once.
const LARGE: usize = 32 << 10;

/// A memory over a store that never keeps anybody waiting.
async fn memory() -> (Memory, Scope, Arc<CountingStore<MemoryStore>>) {
    let store = Arc::new(CountingStore::new(Arc::new(MemoryStore::new([1; 32]))));
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let memory = MemoryBuilder::default().over(shared, Packs::in_memory(), None);
    let scope = memory.scope(&me(), "m").await.unwrap();
    (memory, scope, store)
}

fn me() -> Principal {
    Principal::local_operator(Tenant::new("t").unwrap())
}

fn telling(bytes: usize) -> String {
    format!("{VALUE} {}", "word ".repeat(bytes / 5))
}

/// What `work` answers, and whether the thread did all of it at once.
async fn watched<T>(work: impl Future<Output = T>) -> (T, bool) {
    let mut work = pin!(work);
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(done) => (done, true),
        std::task::Poll::Pending => (work.await, false),
    }
}

#[tokio::test]
async fn what_is_large_is_redacted_beside_the_thread_that_reads_it() {
    let (memory, scope, _) = memory().await;
    for (name, bytes) in [("small", 10), ("large", LARGE)] {
        let turn = RawTurn::new("user", &telling(bytes));
        memory.remember(&scope, name, vec![turn]).await.unwrap();
        let entry = NewEntryRequest {
            content: telling(bytes),
            tags: vec![name.to_owned()],
            ..NewEntryRequest::default()
        };
        memory.put_entry(&scope, entry).await.unwrap();
        let file =
            FileWrite { path: name.to_owned(), content: telling(bytes), ..FileWrite::default() };
        memory.put_file(&me(), file).await.unwrap();
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
        let (file, at_once) = watched(memory.file(&me(), name, None)).await;
        assert!(file.unwrap().content.starts_with("[REDACTED:fruit] "));
        assert_eq!(at_once, is_small, "file, {name}");
    }
}

#[tokio::test]
async fn a_list_of_files_reads_no_content() {
    let (memory, _, store) = memory().await;
    for number in 0..9 {
        let file = FileWrite {
            path: format!("{number}.md"),
            content: telling(10),
            content_type: (number == 0).then(|| format!("text/{VALUE}")),
            ..FileWrite::default()
        };
        memory.put_file(&me(), file).await.unwrap();
    }
    memory.add_secret(me().tenant(), "fruit", VALUE.to_owned().into(), false).await.unwrap();
    store.take_reads();
    let listed = memory.files(&me(), "").await.unwrap();
    assert_eq!(listed.len(), 9);
    assert!(listed.iter().all(|info| info.content_type == "text/markdown"), "{listed:?}");
    assert_eq!(store.take_reads().get("file"), None);
}
