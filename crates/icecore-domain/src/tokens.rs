//! Counting tokens, by a counter with a name.

/// Counts tokens as one vocabulary does.
///
/// The name goes wherever a count is stored or shown, since a count means
/// nothing without it. Special tokens count as ordinary text.
pub trait TokenCounter: Send + Sync {
    /// For example `o200k_base`.
    fn name(&self) -> &'static str;

    /// The exact number of tokens of `text`.
    fn count(&self, text: &str) -> u32;

    /// The longest prefix of `text`, ending between characters, that has at
    /// most `limit` tokens when counted by itself.
    fn prefix<'a>(&self, text: &'a str, limit: u32) -> &'a str;
}

/// One token a character: for tests that need no vocabulary.
#[derive(Debug, Clone, Copy, Default)]
pub struct CharCounter;

impl TokenCounter for CharCounter {
    fn name(&self) -> &'static str {
        "characters"
    }

    fn count(&self, text: &str) -> u32 {
        text.chars().count().try_into().unwrap_or(u32::MAX)
    }

    fn prefix<'a>(&self, text: &'a str, limit: u32) -> &'a str {
        match text.char_indices().nth(limit as usize) {
            Some((end, _)) => &text[..end],
            None => text,
        }
    }
}
