//! What a memory has done since it was opened, in numbers without content.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use icecore_domain::redact::{Hidden, Redactor, pii_kinds};
use icecore_store::Spending;

use crate::base::Base;
use crate::base::Purpose;

/// Under which the secrets that tenants registered are counted: their names are
/// the tenants' own.
const REGISTERED: &str = "registered";

/// Counts that only grow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Turns that were added.
    pub turns: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Searches that were answered.
    pub searches: u64,
    /// Contexts that were built.
    pub contexts: u64,
    /// Their tokens.
    pub context_tokens: u64,
    /// Secrets that were hidden in what was written, by kind; those that tenants
    /// registered are one kind, `registered`. Kinds that were not met are left out.
    pub hidden: BTreeMap<&'static str, u64>,
    /// What models were asked, by what for; what for none was asked is left out.
    pub models: BTreeMap<&'static str, ModelCounts>,
    /// How often something was done without a model that one was set up for.
    pub model_fallbacks: u64,
    /// Tokens that contexts and views did not have to hold, thanks to what stands for
    /// them.
    pub saved_tokens: u64,
}

/// What models were asked for one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelCounts {
    /// Requests that were sent.
    pub calls: u64,
    /// Of these, how many brought no usable answer.
    pub failed: u64,
    /// Answers that were at hand and cost nothing.
    pub reused: u64,
    /// Tokens read.
    pub input: u64,
    /// Of these, from a cache.
    pub cached_input: u64,
    /// Tokens written.
    pub output: u64,
    /// Millionths of the currency.
    pub cost: u64,
}

/// [`Counters`] that every clone of a memory adds to.
pub(crate) struct Counting {
    turns: AtomicU64,
    tokens: AtomicU64,
    searches: AtomicU64,
    contexts: AtomicU64,
    context_tokens: AtomicU64,
    /// One for each kind there can be, so that counting needs no lock.
    hidden: BTreeMap<&'static str, AtomicU64>,
    models: Mutex<BTreeMap<&'static str, ModelCounts>>,
    model_fallbacks: AtomicU64,
    saved_tokens: AtomicU64,
}

impl Default for Counting {
    fn default() -> Self {
        let kinds = Redactor::kinds().iter().chain(pii_kinds()).map(|kind| kind.id);
        let kinds = kinds.chain([REGISTERED]);
        Self {
            turns: AtomicU64::default(),
            tokens: AtomicU64::default(),
            searches: AtomicU64::default(),
            contexts: AtomicU64::default(),
            context_tokens: AtomicU64::default(),
            hidden: kinds.map(|kind| (kind, AtomicU64::default())).collect(),
            models: Mutex::default(),
            model_fallbacks: AtomicU64::default(),
            saved_tokens: AtomicU64::default(),
        }
    }
}

impl Counting {
    pub(crate) fn turns(&self, turns: u64, tokens: u64) {
        self.turns.fetch_add(turns, Ordering::Relaxed);
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    pub(crate) fn search(&self) {
        self.searches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn context(&self, tokens: u32) {
        self.contexts.fetch_add(1, Ordering::Relaxed);
        self.context_tokens.fetch_add(u64::from(tokens), Ordering::Relaxed);
    }

    /// Counts what was hidden in something that is stored now.
    pub(crate) fn hidden(&self, hidden: &Hidden) {
        for (name, count) in hidden {
            let slot = self.hidden.get(name.as_str()).or_else(|| self.hidden.get(REGISTERED));
            if let Some(slot) = slot {
                slot.fetch_add(*count, Ordering::Relaxed);
            }
        }
    }

    /// Counts what a model was asked.
    pub(crate) fn asked(&self, purpose: Purpose, spent: &Spending) {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = models.entry(purpose.as_str()).or_default();
        for (count, more) in [
            (&mut counts.calls, spent.calls),
            (&mut counts.failed, spent.failed),
            (&mut counts.reused, spent.reused),
            (&mut counts.input, spent.input),
            (&mut counts.cached_input, spent.cached_input),
            (&mut counts.output, spent.output),
            (&mut counts.cost, spent.cost),
        ] {
            *count = count.saturating_add(more);
        }
    }

    /// Counts something that was done without the model that was set up for it.
    pub(crate) fn fallback(&self) {
        self.model_fallbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts tokens that did not have to be held.
    pub(crate) fn saved(&self, tokens: u64) {
        self.saved_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    fn read(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let hidden = self.hidden.iter().map(|(kind, count)| (*kind, read(count)));
        Counters {
            turns: read(&self.turns),
            tokens: read(&self.tokens),
            searches: read(&self.searches),
            contexts: read(&self.contexts),
            context_tokens: read(&self.context_tokens),
            hidden: hidden.filter(|(_, count)| *count > 0).collect(),
            models: self.models.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            model_fallbacks: read(&self.model_fallbacks),
            saved_tokens: read(&self.saved_tokens),
        }
    }
}

impl Base {
    /// What this memory and its clones have done since they were opened.
    pub fn counters(&self) -> Counters {
        self.counters.read()
    }
}

#[cfg(test)]
mod tests {
    use icecore_domain::ids::{Principal, Tenant};
    use icecore_domain::turn::RawTurn;
    use zeroize::Zeroizing;

    use super::*;
    use crate::ContextRequest;
    use crate::SearchRequest;
    use crate::memory::Memory;

    #[tokio::test]
    async fn work_is_counted_once_and_without_names() {
        let memory = Memory::in_memory();
        let tenant = Tenant::new("t").unwrap();
        let secret = ["saxifrage", "7042", "kestrel"].join("-");
        memory.add_secret(&tenant, "plant", Zeroizing::new(secret.clone()), false).await.unwrap();
        let scope = memory.scope(&Principal::local_operator(tenant), "notes").await.unwrap();
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let mut turn = RawTurn::new("user", format!("{token} {token} {secret}"));
        turn.id = Some("one".to_owned());
        // The second time it is known, and counts for nothing.
        for _ in 0..2 {
            memory.remember(&scope, "s", vec![turn.clone()]).await.unwrap();
        }
        memory.search(&scope, &SearchRequest::new("what?")).await.unwrap();
        let context = memory.context(&scope, ContextRequest::of_session("s", 100)).await.unwrap();
        let counters = memory.counters();
        assert_eq!((counters.turns, counters.searches, counters.contexts), (1, 1, 1));
        assert!(counters.tokens > 0);
        assert_eq!(counters.context_tokens, u64::from(context.tokens));
        let hidden: Vec<_> = counters.hidden.into_iter().collect();
        assert_eq!(hidden, [("github-token", 2), (REGISTERED, 1)]);
    }
}
