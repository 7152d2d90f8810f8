//! Reading files that were stored before a secret was registered, without holding others up.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use icecore::MemoryBuilder;
use icecore_host::Host;
use icecore_host::workspace::FileWrite;
use icecore_store::testing::Counting;
use icecore_store::{Packs, Store};

use crate::bench::me;

const VALUE: &str = "kumquat4711zebraParade";

/// More than is redacted at once.
const LARGE: usize = 32 << 10;

/// A host over a store that never keeps anybody waiting.
fn host() -> (Host, Arc<Counting>) {
    let counting = Counting::new();
    let store = Store::in_memory([1; 32]).hooked(counting.clone());
    let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
    (Host::from(memory), counting)
}

async fn register(host: &Host) {
    host.memory.add_secret(me().tenant(), "fruit", VALUE.to_owned().into(), false).await.unwrap();
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
    let (host, _) = host();
    for (name, bytes) in [("small", 10), ("large", LARGE)] {
        let file =
            FileWrite { path: name.to_owned(), content: telling(bytes), ..FileWrite::default() };
        host.files.put(&me(), file).await.unwrap();
    }
    register(&host).await;
    for (name, is_small) in [("small", true), ("large", false)] {
        let (file, at_once) = watched(host.files.get(&me(), name, None)).await;
        assert!(file.unwrap().content.starts_with("[REDACTED:fruit] "));
        assert_eq!(at_once, is_small, "file, {name}");
    }
}

#[tokio::test]
async fn a_list_of_files_reads_no_content() {
    let (host, store) = host();
    for number in 0..9 {
        let file = FileWrite {
            path: format!("{number}.md"),
            content: telling(10),
            content_type: (number == 0).then(|| format!("text/{VALUE}")),
            ..FileWrite::default()
        };
        host.files.put(&me(), file).await.unwrap();
    }
    register(&host).await;
    store.take_reads();
    let listed = host.files.list(&me(), "").await.unwrap();
    assert_eq!(listed.len(), 9);
    assert!(listed.iter().all(|info| info.content_type == "text/markdown"), "{listed:?}");
    assert_eq!(store.take_reads().get("file"), None);
}
