//! Looks for the keywords of all kinds at once.
//!
//! Nearly every place in a text begins no keyword, and a look at three bytes says
//! so. An automaton over a thousand keywords takes 20 ms to build, which every run
//! of the program would pay, and reads no faster; see `docs/decisions/0004`.

/// Bytes by which a keyword is first found.
const GRAM_BYTES: usize = 3;

/// Hashes of grams; a bit for each fits the nearest cache.
const HASH_BITS: u32 = 16;
const HASHES: usize = 1 << HASH_BITS;

/// Keywords in any case of their ASCII letters.
pub(super) struct Keywords {
    words: Vec<&'static str>,
    /// A bit for each hash: whether any keyword begins with such a gram.
    begins: Box<[u64; HASHES / 64]>,
    /// The words of each hash: those in `by_hash` from one entry to the next.
    offsets: Vec<u16>,
    by_hash: Vec<u16>,
    /// Words that are shorter than a gram; only personal data has such.
    short: Vec<u16>,
}

impl Keywords {
    /// Words are known by their place in `words`.
    pub(super) fn new(words: Vec<&'static str>) -> Self {
        assert!(u16::try_from(words.len()).is_ok(), "the table's keywords can be numbered");
        let numbered = || (0_u16..).zip(&words);
        let is_short = |word: &str| word.len() < GRAM_BYTES;
        let short: Vec<u16> =
            numbered().filter(|(_, word)| is_short(word)).map(|(number, _)| number).collect();
        let mut hashed: Vec<(usize, u16)> = numbered()
            .filter(|(_, word)| !is_short(word))
            .map(|(number, word)| (hash(word.as_bytes()), number))
            .collect();
        hashed.sort();
        let mut begins = Box::new([0; HASHES / 64]);
        hashed.iter().for_each(|(hash, _)| begins[hash / 64] |= 1 << (hash % 64));
        let offset = |hash: usize| hashed.partition_point(|(other, _)| *other < hash) as u16;
        Self {
            short,
            begins,
            offsets: (0..=HASHES).map(offset).collect(),
            by_hash: hashed.into_iter().map(|(_, number)| number).collect(),
            words,
        }
    }

    /// Reports where each keyword begins and which it is, those of three bytes and
    /// more in order of place, then the shorter ones.
    pub(super) fn find(&self, text: &[u8], tell: &mut dyn FnMut(usize, usize)) {
        let mut from = 0;
        while let Some(at) = self.next(text, from) {
            let hash = hash(&text[at..]);
            let (first, end) = (self.offsets[hash], self.offsets[hash + 1]);
            self.compare(&self.by_hash[usize::from(first)..usize::from(end)], text, at, tell);
            from = at + 1;
        }
        if !self.short.is_empty() {
            (0..text.len()).for_each(|at| self.compare(&self.short, text, at, tell));
        }
    }

    /// The next place that may begin a keyword. Nearly all the time is spent here.
    fn next(&self, text: &[u8], from: usize) -> Option<usize> {
        let may_begin = |gram: &[u8]| {
            let hash = hash(gram);
            self.begins[hash / 64] >> (hash % 64) & 1 == 1
        };
        text[from..].windows(GRAM_BYTES).position(may_begin).map(|at| from + at)
    }

    /// Whether any keyword is there.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        let mut is_in = false;
        self.find(text, &mut |_, _| is_in = true);
        is_in
    }

    /// Every keyword.
    pub(super) fn words(&self) -> &[&'static str] {
        &self.words
    }

    fn compare(&self, numbers: &[u16], text: &[u8], at: usize, tell: &mut dyn FnMut(usize, usize)) {
        for number in numbers {
            let number = usize::from(*number);
            let word = self.words[number].as_bytes();
            let there = text.get(at..at + word.len());
            if there.is_some_and(|there| there.eq_ignore_ascii_case(word)) {
                tell(at, number);
            }
        }
    }
}

/// A hash of the first bytes that does not know case. It takes some other bytes
/// for each other too, which comparing sorts out.
#[inline(always)]
fn hash(gram: &[u8]) -> usize {
    let lower = u32::from_le_bytes([gram[0], gram[1], gram[2], 0]) | 0x0020_2020;
    (lower.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: [&str; 9] =
        ["token", "tok", "to", "@", "пароль", "://", "-----BEGIN", "ken to", "ok"];

    fn found(text: &str) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        Keywords::new(WORDS.to_vec()).find(text.as_bytes(), &mut |at, word| found.push((at, word)));
        found.sort();
        found
    }

    #[test]
    fn words_are_found_in_any_case_and_overlapping() {
        assert_eq!(
            found("A ToKen tok@"),
            [(2, 0), (2, 1), (2, 2), (3, 8), (4, 7), (8, 1), (8, 2), (9, 8), (11, 3)]
        );
        assert_eq!(found("пароль"), [(0, 4)]);
        assert_eq!(found(""), []);
        assert_eq!(found("@"), [(0, 3)]);
    }

    proptest! {
        #[test]
        fn as_looking_for_one_after_the_other(text in "(?i)(token|tok|to|@|пароль|://|-----begin|ken to|ok|[ -~é]){0,12}") {
            let mut expected = Vec::new();
            for (number, word) in WORDS.iter().enumerate() {
                for at in 0..text.len() {
                    let there = text.as_bytes().get(at..at + word.len());
                    if there.is_some_and(|there| there.eq_ignore_ascii_case(word.as_bytes())) {
                        expected.push((at, number));
                    }
                }
            }
            expected.sort();
            prop_assert_eq!(found(&text), expected);
        }
    }
}
