//! Words cut into pieces of a vocabulary, longest match first.
//!
//! The vocabulary stays where it is, in the model's bytes; a table of hashes
//! beside it finds a piece in one probe, and is built in under a millisecond.

use crate::words::for_each_word;

/// What a piece that goes on a word begins with.
const CONTINUES: &[u8] = b"##";

/// A vocabulary and the way to find its pieces.
pub(crate) struct WordPiece {
    /// Where each piece lies in the vocabulary's bytes.
    spans: Box<[Span]>,
    /// Open addressing in a power of two: the upper half is of the hash, the lower a number plus one.
    slots: Box<[u64]>,
    /// No piece is longer.
    longest_piece: usize,
    /// In characters. A word beyond it has no pieces.
    longest_word: usize,
    /// The piece for words without pieces, if the model has one.
    #[cfg(feature = "local-models")]
    unknown: Option<u32>,
}

/// Pieces found, with room to work that is kept from text to text.
#[derive(Default)]
pub(crate) struct Pieces {
    pub(crate) numbers: Vec<u32>,
    hashes: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl WordPiece {
    /// Reads a vocabulary of one piece a line. Of two equal pieces the later counts.
    pub(crate) fn new(vocabulary: &[u8], longest_word: usize) -> Self {
        let mut start = 0;
        let spans: Box<[Span]> = vocabulary
            .split(|byte| *byte == b'\n')
            .map(|piece| {
                let span = Span { start, end: start + piece.len() as u32 };
                start = span.end + 1;
                span
            })
            .collect();
        let longest_piece = spans.iter().map(|span| span.end - span.start).max().unwrap_or(0);
        let slots = vec![0; (spans.len() * 2).next_power_of_two()].into_boxed_slice();
        let longest_piece = longest_piece as usize;
        let mut new = Self {
            spans,
            slots,
            longest_piece,
            longest_word,
            #[cfg(feature = "local-models")]
            unknown: None,
        };
        for number in 0..new.spans.len() {
            new.insert(vocabulary, number as u32);
        }
        new
    }

    /// The same, with a piece for every word that has none.
    #[cfg(feature = "local-models")]
    pub(crate) fn with_unknown(mut self, vocabulary: &[u8], piece: &str) -> Self {
        self.unknown = self.number(vocabulary, piece);
        self
    }

    /// The number of a piece.
    #[cfg(feature = "local-models")]
    pub(crate) fn number(&self, vocabulary: &[u8], piece: &str) -> Option<u32> {
        let hash = piece.bytes().fold(HASH_START, step);
        self.find(vocabulary, hash, &[], piece.as_bytes())
    }

    /// How many pieces there are.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Finds the pieces of `text` in order, at most `limit`. A word with a part
    /// that is no piece adds nothing.
    pub(crate) fn pieces(&self, vocabulary: &[u8], text: &str, limit: usize, found: &mut Pieces) {
        found.numbers.clear();
        for_each_word(text, self.longest_word, |word| {
            self.split(vocabulary, word, found);
            found.numbers.len() < limit
        });
        found.numbers.truncate(limit);
    }

    fn split(&self, vocabulary: &[u8], word: &[u8], found: &mut Pieces) {
        let before = found.numbers.len();
        let mut rest = word;
        let mut lead: &[u8] = &[];
        while !rest.is_empty() {
            let matched = self.longest_match(vocabulary, lead, rest, &mut found.hashes);
            let Some((number, length)) = matched else {
                found.numbers.truncate(before);
                #[cfg(feature = "local-models")]
                found.numbers.extend(self.unknown);
                return;
            };
            found.numbers.push(number);
            rest = &rest[length..];
            lead = CONTINUES;
        }
    }

    /// The longest piece that is `lead` and then a prefix of `rest`.
    fn longest_match(
        &self,
        vocabulary: &[u8],
        lead: &[u8],
        rest: &[u8],
        hashes: &mut Vec<u64>,
    ) -> Option<(u32, usize)> {
        let reach = rest.len().min(self.longest_piece.saturating_sub(lead.len()));
        let start = lead.iter().fold(HASH_START, |hash, byte| step(hash, *byte));

        // Most words are one piece: try the whole before hashing every prefix.
        let whole = rest[..reach].iter().fold(start, |hash, byte| step(hash, *byte));
        if let Some(number) = self.find(vocabulary, whole, lead, &rest[..reach]) {
            return Some((number, reach));
        }
        // A cut inside a character matches no piece, since pieces are whole text.
        let shorter = &rest[..reach.saturating_sub(1)];
        hashes.clear();
        hashes.extend(shorter.iter().scan(start, |hash, byte| {
            *hash = step(*hash, *byte);
            Some(*hash)
        }));
        (1..=shorter.len()).rev().find_map(|length| {
            let number = self.find(vocabulary, hashes[length - 1], lead, &rest[..length])?;
            Some((number, length))
        })
    }

    fn find(&self, vocabulary: &[u8], hash: u64, lead: &[u8], rest: &[u8]) -> Option<u32> {
        let (mut at, tag) = self.place(hash);
        while self.slots[at] != 0 {
            let slot = self.slots[at];
            let number = slot as u32 - 1;
            if slot >> 32 == tag && self.is_piece(vocabulary, number, lead, rest) {
                return Some(number);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        None
    }

    fn is_piece(&self, vocabulary: &[u8], number: u32, lead: &[u8], rest: &[u8]) -> bool {
        let span = self.spans[number as usize];
        let piece = &vocabulary[span.start as usize..span.end as usize];
        piece.strip_prefix(lead) == Some(rest)
    }

    fn insert(&mut self, vocabulary: &[u8], number: u32) {
        let span = self.spans[number as usize];
        let piece = &vocabulary[span.start as usize..span.end as usize];
        let hash = piece.iter().fold(HASH_START, |hash, byte| step(hash, *byte));
        let (mut at, tag) = self.place(hash);
        while self.slots[at] != 0 {
            let other = self.slots[at];
            if other >> 32 == tag && self.is_piece(vocabulary, other as u32 - 1, &[], piece) {
                break;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = tag << 32 | u64::from(number + 1);
    }

    /// Where to look for a hash, and what marks it there.
    fn place(&self, hash: u64) -> (usize, u64) {
        let mixed = (hash ^ (hash >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed >> 20) as usize & (self.slots.len() - 1), mixed >> 32)
    }
}

const HASH_START: u64 = 0xCBF2_9CE4_8422_2325;

/// One step of FNV-1a: every prefix of a word gets its hash on the way.
fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOCABULARY: &str = "[UNK]\nun\nunder\n##der\n##stand\n##s\nstand\n!\n東\n##é\nun";

    fn pieces(text: &str) -> Vec<&'static str> {
        let pieces = WordPiece::new(VOCABULARY.as_bytes(), 100);
        let mut found = Pieces::default();
        pieces.pieces(VOCABULARY.as_bytes(), text, 5, &mut found);
        let list: Vec<&str> = VOCABULARY.split('\n').collect();
        found.numbers.iter().map(|number| list[*number as usize]).collect()
    }

    #[test]
    fn the_longest_piece_is_taken_first() {
        assert_eq!(pieces("Understands!"), ["under", "##stand", "##s", "!"]);
        assert_eq!(pieces("un stand"), ["un", "stand"]);
        assert_eq!(pieces("東東"), ["東", "東"]);
    }

    #[test]
    fn a_word_with_an_unknown_part_has_no_pieces() {
        assert_eq!(pieces("understandable [UNK] un"), ["un"]);
        assert_eq!(pieces("##s ?"), ["##s"; 0]);
        assert_eq!(pieces(""), ["##s"; 0]);
    }

    #[test]
    fn the_limit_cuts_inside_a_word() {
        assert_eq!(pieces("! ! ! understands"), ["!", "!", "!", "under", "##stand"]);
    }

    #[test]
    fn of_equal_pieces_the_later_counts() {
        let pieces = WordPiece::new(VOCABULARY.as_bytes(), 100);
        let mut found = Pieces::default();
        pieces.pieces(VOCABULARY.as_bytes(), "un", 5, &mut found);
        assert_eq!((found.numbers, pieces.len()), (vec![10], 11));
    }
}
