//! Tokens of messages, counted once while they come again and again.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use icecore_domain::handoff::message_tokens;
use icecore_domain::identity::Link;

use super::ClientMessage;
use crate::base::INLINE_BYTES;
use crate::error::{Result, off_thread};
use crate::sessions::Sessions;

/// So many counts are remembered at least, and twice as many at most.
const REMEMBERED: usize = 1 << 15;

/// What a count is remembered by: a message's link and its bytes. A client may send along
/// what it is not recognised by, such as what a model thought, and leave it out again.
type Counted = (Link, usize);

/// Tokens of messages, of this process. What was not asked for while as
/// many others were is forgotten.
#[derive(Debug, Default)]
pub(crate) struct MessageCounts(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: BTreeMap<Counted, u64>,
    old: BTreeMap<Counted, u64>,
}

impl Generations {
    fn get(&mut self, message: Counted) -> Option<u64> {
        if let Some(tokens) = self.young.get(&message) {
            return Some(*tokens);
        }
        let tokens = *self.old.get(&message)?;
        self.put(message, tokens);
        Some(tokens)
    }

    fn put(&mut self, message: Counted, tokens: u64) {
        if self.young.len() >= REMEMBERED {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(message, tokens);
    }
}

impl MessageCounts {
    fn of(&self, messages: &[Counted]) -> Vec<Option<u64>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages.iter().map(|message| known.get(*message)).collect()
    }

    fn put(&self, message: Counted, tokens: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(message, tokens);
    }
}

impl Sessions {
    /// Tokens of these messages, which have these links.
    pub(super) async fn message_counts(
        &self,
        links: &[Link],
        messages: &[&ClientMessage],
    ) -> Result<Vec<u64>> {
        let bytes = messages.iter().map(|message| message.turn.byte_count());
        let counted: Vec<Counted> = links.iter().copied().zip(bytes).collect();
        let known = self.message_counts.of(&counted);
        let new: Vec<usize> = (0..links.len()).filter(|at| known[*at].is_none()).collect();
        let bytes: usize = new.iter().map(|at| counted[*at].1).sum();
        let counts: Vec<u64> = match bytes <= INLINE_BYTES {
            true => {
                let counter = self.counter.as_ref();
                new.iter().map(|at| message_tokens(&messages[*at].turn, counter)).collect()
            }
            false => {
                let counter = Arc::clone(&self.counter);
                let turns: Vec<_> = new.iter().map(|at| messages[*at].turn.clone()).collect();
                let count = move || {
                    turns.iter().map(|turn| message_tokens(turn, counter.as_ref())).collect()
                };
                off_thread(count).await?
            }
        };
        let mut all = known;
        for (at, tokens) in new.into_iter().zip(counts) {
            self.message_counts.put(counted[at], tokens);
            all[at] = Some(tokens);
        }
        Ok(all.into_iter().map(Option::unwrap_or_default).collect())
    }
}

#[cfg(test)]
mod tests {
    use icecore_domain::identity::IdentityKey;

    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let key = IdentityKey::new([1; 32]);
        let link = |n: u64| (key.next_link(key.first_link(), &n.to_be_bytes()), 1);
        let counts = MessageCounts::default();
        counts.put(link(0), 7);
        counts.put(link(1), 8);
        for n in 2..=3 * REMEMBERED as u64 {
            counts.put(link(n), n);
            assert_eq!(counts.of(&[link(0)]), [Some(7)], "{n}");
        }
        assert_eq!(counts.of(&[link(1)]), [None]);
        // The same message with more bytes is counted anew.
        let (same, bytes) = link(0);
        assert_eq!(counts.of(&[(same, bytes + 1)]), [None]);
        let known = counts.0.lock().unwrap();
        assert!(known.young.len() + known.old.len() <= 2 * REMEMBERED);
    }
}
