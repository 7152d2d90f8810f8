//! The `o200k_base` vocabulary, whole, inside the binary.

use bpe_openai::Tokenizer;
use icecore_domain::tokens::TokenCounter;

/// Counts as OpenAI's `o200k_base` does, special tokens as ordinary text.
pub struct O200k {
    tokenizer: &'static Tokenizer,
}

impl Default for O200k {
    fn default() -> Self {
        Self { tokenizer: bpe_openai::o200k_base() }
    }
}

impl std::fmt::Debug for O200k {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("O200k")
    }
}

impl TokenCounter for O200k {
    fn name(&self) -> &'static str {
        "o200k_base"
    }

    fn count(&self, text: &str) -> u32 {
        self.tokenizer.count(text).try_into().unwrap_or(u32::MAX)
    }

    fn prefix<'a>(&self, text: &'a str, limit: u32) -> &'a str {
        // No prefix within the limit is longer than this, however long the text.
        let longest = (limit as usize).saturating_mul(MAX_TOKEN_BYTES);
        let text = &text[..text.floor_char_boundary(longest)];
        if self.count(text) <= limit {
            return text;
        }
        // A cut inside a token may need more tokens than the whole did, so step
        // back until it fits.
        let mut end = self.guess(text, limit);
        while self.count(&text[..end]) > limit {
            end = text.floor_char_boundary(end - 1);
        }
        &text[..end]
    }
}

/// No token of the vocabulary is longer.
const MAX_TOKEN_BYTES: usize = 128;

impl O200k {
    /// The byte length of the first `limit` tokens of `text`.
    fn guess(&self, text: &str, limit: u32) -> usize {
        let tokens = self.tokenizer.encode(text);
        let head = &tokens[..(limit as usize).min(tokens.len())];
        let bytes: usize = head.iter().map(|token| self.tokenizer.bpe.token_len(*token)).sum();
        text.floor_char_boundary(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_as_the_vocabulary_does() {
        let counter = O200k::default();
        assert_eq!(counter.count(""), 0);
        assert_eq!(counter.count("hello world"), 2);
        assert_eq!(counter.count("<|endoftext|>"), 7);
    }

    #[test]
    fn no_token_is_longer_than_we_think() {
        let bpe = &bpe_openai::o200k_base().bpe;
        let longest = (0..bpe.num_tokens() as u32).map(|token| bpe.token_len(token)).max();
        assert_eq!(longest, Some(MAX_TOKEN_BYTES));
    }

    #[test]
    fn a_prefix_fits_and_is_the_longest_by_tokens() {
        let counter = O200k::default();
        let texts = [
            "The quick brown fox jumps.",
            "今日は会議の後で資料を送ります。",
            "👍🏽👍🏽👍🏽",
            "aaaaaaaaaaaaaaaa",
        ];
        for text in texts {
            let whole = counter.count(text);
            for limit in 0..=whole {
                let prefix = counter.prefix(text, limit);
                assert!(text.starts_with(prefix));
                assert!(counter.count(prefix) <= limit, "{text} {limit}");
            }
            assert_eq!(counter.prefix(text, whole), text);
        }
    }
}
