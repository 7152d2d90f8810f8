//! What tests do around the calls of a store: fail, count, delay, plant bugs.
//!
//! Exists in debug builds alone, so that no release binary can hold any of it, whatever
//! is built beside it.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;

use crate::engine::tx::Isolation;
use crate::error::Result;
use crate::store::leases::Fence;
#[cfg(any(test, feature = "testing"))]
pub use crate::testing::Failing;

/// A call of a store.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub op: &'static str,
    /// Whether it may change something.
    pub writes: bool,
    /// Whose rows it is about.
    pub of: &'a Isolation,
    /// The lease under which it writes.
    pub fence: Option<&'a Fence>,
}

/// What is done around calls. Arguments are those of the operation where it has any that a
/// hook may want, else `()`.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Before a call, for as long as it takes to get there; an error prevents it.
    async fn before(&self, _call: Call<'_>, _args: &mut (dyn Any + Send)) -> Result<()> {
        Ok(())
    }

    /// Right after a call that worked; may change the answer.
    fn answered(&self, _call: Call<'_>, _args: &dyn Any, _answer: &mut dyn Any) {}

    /// After a call that worked, for as long as the answer takes; an error hides it.
    async fn after(&self, _call: Call<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether writes check their lease.
    fn keeps_fences(&self) -> bool {
        true
    }

    /// Whose rows a read is about instead.
    fn reads_of(&self, _op: &'static str, of: Isolation) -> Isolation {
        of
    }
}

/// The hooks of a store, the innermost first.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Vec<Arc<dyn Hook>>);

impl Hooks {
    pub(crate) fn with(&self, hook: Arc<dyn Hook>) -> Self {
        let mut hooks = self.0.clone();
        hooks.push(hook);
        Self(hooks)
    }

    pub(crate) async fn before_read(&self, op: &'static str, of: Isolation) -> Result<Isolation> {
        let of = self.0.iter().rev().fold(of, |of, hook| hook.reads_of(op, of));
        for hook in self.0.iter().rev() {
            hook.before(Call { op, writes: false, of: &of, fence: None }, &mut ()).await?;
        }
        Ok(of)
    }

    pub(crate) async fn after_read<T: Send + 'static>(
        &self,
        op: &'static str,
        of: &Isolation,
        answer: T,
    ) -> Result<T> {
        self.after(Call { op, writes: false, of, fence: None }, &(), answer).await
    }

    pub(crate) async fn before_write<A: Send + 'static>(
        &self,
        op: &'static str,
        of: &Isolation,
        mut args: A,
        fence: Option<Fence>,
    ) -> Result<(A, Option<Fence>)> {
        for hook in self.0.iter().rev() {
            let call = Call { op, writes: true, of, fence: fence.as_ref() };
            hook.before(call, &mut args).await?;
        }
        let is_kept = self.0.iter().all(|hook| hook.keeps_fences());
        Ok((args, fence.filter(|_| is_kept)))
    }

    pub(crate) async fn after_write<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        op: &'static str,
        of: &Isolation,
        args: &A,
        fence: Option<&Fence>,
        answer: T,
    ) -> Result<T> {
        self.after(Call { op, writes: true, of, fence }, args, answer).await
    }

    async fn after<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        call: Call<'_>,
        args: &A,
        mut answer: T,
    ) -> Result<T> {
        for hook in &self.0 {
            hook.answered(call, args, &mut answer);
            hook.after(call).await?;
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;
    use crate::store::Store;

    async fn notes(store: &Store) -> Vec<bool> {
        let mut written = Vec::new();
        for name in ["a", "b", "c"] {
            written.push(store.put_note(name, "x").await.is_ok());
        }
        written
    }

    #[tokio::test]
    async fn fails_once_instead_of_or_after_a_write() {
        let there = async |store: &Store| store.note("b").await.unwrap().is_some();
        let inner = Store::in_memory([1; 32]);
        let failing = Failing::instead_of(2);
        assert_eq!(notes(&inner.hooked(failing.clone())).await, [true, false, true]);
        assert!(!there(&inner).await);
        assert_eq!(failing.writes(), 3);

        let failing = inner.hooked(Failing::after(2));
        assert_eq!(notes(&failing).await, [true, false, true]);
        assert!(there(&inner).await);
        assert!(inner.note("c").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_its_operation_alone() {
        let dir = tempfile::tempdir().unwrap();
        for store in [Store::in_memory([1; 32]), Store::open(dir.path(), None).unwrap()] {
            let panics = store
                .write(Isolation::Global, "bad", |tx| -> Result<()> {
                    tx.run("INSERT INTO notes (name, value) VALUES ('left', 'x')", [])?;
                    panic!("a fault of ours")
                })
                .await;
            assert!(matches!(panics, Err(StoreError::Panicked { op: "bad" })), "{panics:?}");
            let panics = store.read(Isolation::Global, "bad", |_| -> Result<()> { panic!() }).await;
            assert!(matches!(panics, Err(StoreError::Panicked { op: "bad" })), "{panics:?}");
            assert_eq!(store.timings().panics, 2);
            // The next ones work, and what the first had written is gone.
            store.put_note("next", "x").await.unwrap();
            assert_eq!(store.note("left").await.unwrap(), None);
            assert_eq!(store.note("next").await.unwrap().as_deref(), Some("x"));
        }
    }
}
