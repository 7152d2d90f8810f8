//! Tokens of what stands beside a history.
//!
//! A system prompt and tools may be long, and come with every request: each is counted
//! once. Only hashes are held.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use icecore::Memory;
use sha2::{Digest, Sha256};

use super::asked::Asked;
use crate::app::Shared;
use crate::error::ApiError;
use crate::work::beside;

/// Texts that are shorter are counted at once.
const LEAST_BYTES: usize = 1 << 10;

/// No more texts than these are known; beyond, it begins anew.
const MOST: usize = 1_024;

/// A request, and the tokens of all that stands beside its history. A long prompt is
/// counted beside the async threads.
pub(super) async fn of(app: &Shared, asked: Asked) -> Result<(Asked, u64), ApiError> {
    let app = Shared::clone(app);
    let bytes = asked.beside().map(str::len).sum();
    let count = move || {
        let tokens = app.proxy.counts.of(&app.memory, &asked);
        (asked, tokens)
    };
    beside(bytes, count).await
}

/// What was counted so far, by hash.
#[derive(Default)]
pub(super) struct Counts(Mutex<BTreeMap<[u8; 32], u64>>);

impl Counts {
    fn of(&self, memory: &Memory, asked: &Asked) -> u64 {
        asked.beside().map(|text| self.count(memory, text)).sum()
    }

    fn count(&self, memory: &Memory, text: &str) -> u64 {
        let count = || u64::from(memory.counter().count(text));
        if text.len() < LEAST_BYTES {
            return count();
        }
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tokens) = known().get(&hash) {
            return *tokens;
        }
        let tokens = count();
        let mut known = known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(hash, tokens);
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_prompt_holds_up_no_thread_of_others() {
        let (_close, closing) = tokio::sync::watch::channel(false);
        let limits = crate::limits::Limits::default();
        let app =
            crate::app::App::new(Memory::in_memory(), limits, ([127, 0, 0, 1], 0).into(), closing);
        for (words, is_long) in [(10, false), (100_000, true)] {
            let prompt = "a word ".repeat(words);
            let body =
                format!(r#"{{"system":"{prompt}","messages":[{{"role":"user","content":"a"}}]}}"#);
            let asked = Asked::read(icecore::models::Protocol::Anthropic, body.into()).unwrap();
            let expected = u64::from(app.memory.counter().count(&format!("\"{prompt}\"")));
            let counting = of(&app, asked);
            tokio::pin!(counting);
            // On the one thread that there is, another has its turn first only if this
            // one waits.
            let first = tokio::select! {
                biased;
                counted = &mut counting => Some(counted),
                () = std::future::ready(()) => None,
            };
            assert_eq!(first.is_none(), is_long);
            let (_, tokens) = match first {
                Some(counted) => counted.unwrap(),
                None => counting.await.unwrap(),
            };
            assert_eq!(tokens, expected);
        }
    }

    #[test]
    fn long_texts_are_counted_once_and_few_are_held() {
        let (memory, counts) = (Memory::in_memory(), Counts::default());
        let long = |n: usize| format!("tool {n} ").repeat(200);
        let expected = u64::from(memory.counter().count(&long(1)));
        for _ in 0..2 {
            assert_eq!(counts.count(&memory, &long(1)), expected);
        }
        assert_eq!(counts.count(&memory, "short"), 1);
        assert_eq!(counts.0.lock().unwrap().len(), 1);
        for n in 0..MOST + 5 {
            let hash = Sha256::digest(n.to_be_bytes()).into();
            counts.0.lock().unwrap().insert(hash, 1);
        }
        counts.count(&memory, &long(2));
        assert_eq!(counts.0.lock().unwrap().len(), 1);
    }
}
