//! Writes that fail, each in turn, and what the next attempt finds.

use std::sync::Arc;

use icecore::{
    ContextRequest, ForgetRequest, Memory, MemoryBuilder, Principal, Scope, Seq, Store, Tenant,
};
use icecore_store::testing::{CountingStore, FailingStore};
use icecore_store::{MemoryStore, Packs};

use crate::support::{numbered, text};

struct Faulty {
    inner: Arc<dyn Store>,
    packs: Packs,
}

impl Faulty {
    fn new() -> Self {
        Self { inner: Arc::new(MemoryStore::new([1; 32])), packs: Packs::in_memory() }
    }

    fn memory(&self, store: Arc<dyn Store>) -> (Memory, Scope) {
        let memory = MemoryBuilder::default().over(store, self.packs.clone(), None);
        let scope =
            memory.scope(&Principal::local_operator(Tenant::new("t").unwrap()), "m").unwrap();
        (memory, scope)
    }
}

/// The whole life of a session: append, settle, forget, settle.
async fn live(memory: &Memory, scope: &Scope) -> Result<(), icecore::MemoryError> {
    memory.remember(scope, "s", numbered(130)).await?;
    memory.settle(|_, _| {}).await?;
    let me = Principal::local_operator(scope.tenant().clone());
    memory.forget(&me, None, &ForgetRequest::Subject("Mira".into()), false).await?;
    memory.settle(|_, _| {}).await?;
    Ok(())
}

/// What a reader sees in the end.
async fn seen(memory: &Memory, scope: &Scope) -> (Vec<String>, Vec<String>) {
    let turns = memory.turns(scope, "s", Seq(0), 500).await.unwrap();
    let chunks = memory.chunks(scope, None).await.unwrap();
    let shown =
        |chunk: &icecore::ChunkInfo| format!("{} {} {:?}", chunk.id, chunk.tier, chunk.summary);
    (turns.iter().map(text).collect(), chunks.iter().map(shown).collect())
}

#[tokio::test]
async fn a_life_interrupted_at_any_write_ends_the_same() {
    let clean = Faulty::new();
    let (memory, scope) = clean.memory(Arc::clone(&clean.inner));
    live(&memory, &scope).await.unwrap();
    let expected = seen(&memory, &scope).await;

    let mut nth = 1;
    loop {
        let mut finished = true;
        for is_lost_answer in [false, true] {
            let faulty = Faulty::new();
            let store = match is_lost_answer {
                true => FailingStore::after(nth, Arc::clone(&faulty.inner)),
                false => FailingStore::instead_of(nth, Arc::clone(&faulty.inner)),
            };
            let (memory, scope) = faulty.memory(Arc::new(store));
            if live(&memory, &scope).await.is_err() {
                finished = false;
                // A new process tries again.
                let (memory, scope) = faulty.memory(Arc::clone(&faulty.inner));
                live(&memory, &scope).await.unwrap();
            }
            let (memory, scope) = faulty.memory(Arc::clone(&faulty.inner));
            assert_eq!(
                seen(&memory, &scope).await,
                expected,
                "write {nth}, lost answer: {is_lost_answer}"
            );
            let report = memory.check(true, |_, _| {}).await.unwrap();
            assert_eq!(report.problems, Vec::<String>::new(), "write {nth}");
            assert_eq!(memory.check(false, |_, _| {}).await.unwrap().orphans, 0);
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
        let (memory, scope) = clean.memory(Arc::clone(&clean.inner));
        memory.remember(&scope, "s", numbered(turns)).await.unwrap();
        memory.settle(|_, _| {}).await.unwrap();
        let counting = Arc::new(CountingStore::new(Arc::clone(&clean.inner)));
        let (memory, scope) = clean.memory(Arc::clone(&counting) as Arc<dyn Store>);
        memory.context(&scope, ContextRequest::of_session("s", 500)).await.unwrap();
        counting.take_reads().values().map(|count| count.rows).sum::<u64>()
    };
    let (short, long) = (reads(400).await, reads(1600).await);
    assert!(long <= short + 200, "{short} rows at 400 turns, {long} at 1600");
}
