//! A hook that fails at one write.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::error::{Result, StoreError};
use crate::hooks::{Call, Hook};

/// Counts writes and fails at one of them with [`StoreError::Injected`].
pub struct Failing {
    at: u64,
    is_done_first: bool,
    begun: AtomicU64,
    done: AtomicU64,
}

impl Failing {
    /// Fails instead of the nth write, counted from 1.
    pub fn instead_of(nth: u64) -> Arc<Self> {
        Self::at(nth, false)
    }

    /// Fails after the nth write that worked, as when its answer is lost.
    pub fn after(nth: u64) -> Arc<Self> {
        Self::at(nth, true)
    }

    /// Fails after the nth write that worked, or instead of it.
    pub fn at(nth: u64, is_done_first: bool) -> Arc<Self> {
        Arc::new(Self { at: nth, is_done_first, begun: AtomicU64::new(0), done: AtomicU64::new(0) })
    }

    /// Writes that were tried so far.
    pub fn writes(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    fn count(&self, counter: &AtomicU64, is_done: bool, call: Call<'_>) -> Result<()> {
        let number = if call.writes { counter.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
        match call.writes && number == self.at && self.is_done_first == is_done {
            true => Err(StoreError::Injected(number)),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Hook for Failing {
    async fn before(&self, call: Call<'_>, _: &mut (dyn Any + Send)) -> Result<()> {
        self.count(&self.begun, false, call)
    }

    async fn after(&self, call: Call<'_>) -> Result<()> {
        self.count(&self.done, true, call)
    }
}
