//! Whether sources bear out what is said of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::dream::{Line, Source};
use crate::summary::words::{for_each_word, is_unspaced};
use crate::time::Millis;
use crate::when;

/// Of the words that carry a line, so many in a hundred must be its sources' own.
const OWN_WORDS_PERCENT: usize = 40;

/// Words that a sentence may begin with, or be held together by, whatever its sources.
const ORDINARY: &[&str] = &[
    "a",
    "about",
    "according",
    "after",
    "again",
    "agreed",
    "all",
    "also",
    "although",
    "always",
    "an",
    "and",
    "any",
    "are",
    "as",
    "asked",
    "at",
    "avoid",
    "be",
    "because",
    "been",
    "before",
    "being",
    "both",
    "but",
    "by",
    "can",
    "chose",
    "confirmed",
    "could",
    "currently",
    "decided",
    "did",
    "do",
    "does",
    "don",
    "due",
    "during",
    "each",
    "either",
    "every",
    "everyone",
    "first",
    "following",
    "for",
    "from",
    "had",
    "has",
    "have",
    "he",
    "her",
    "his",
    "how",
    "i",
    "if",
    "in",
    "instead",
    "into",
    "is",
    "it",
    "its",
    "keep",
    "last",
    "likes",
    "lives",
    "may",
    "might",
    "more",
    "most",
    "must",
    "my",
    "neither",
    "never",
    "next",
    "no",
    "nobody",
    "none",
    "not",
    "nothing",
    "now",
    "of",
    "on",
    "once",
    "one",
    "only",
    "open",
    "or",
    "our",
    "over",
    "people",
    "plans",
    "planned",
    "prefers",
    "previously",
    "she",
    "should",
    "since",
    "so",
    "some",
    "still",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "to",
    "under",
    "unless",
    "until",
    "use",
    "used",
    "user",
    "users",
    "uses",
    "wants",
    "was",
    "we",
    "were",
    "what",
    "when",
    "where",
    "which",
    "while",
    "who",
    "whose",
    "why",
    "will",
    "with",
    "without",
    "works",
    "would",
    "yes",
    "yet",
    "you",
    "your",
];

/// Small numbers, by the words for them.
const NUMBER_WORDS: &[&str] = &[
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
];

const MONTHS: &[&str] = &[
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// What a source says that a line may rest on.
pub(crate) struct Grounds {
    words: BTreeSet<String>,
    numbers: BTreeSet<String>,
}

impl Grounds {
    pub(crate) fn of(source: &Source) -> Self {
        let Self { mut words, mut numbers } = Self::of_texts(&[&source.text()]);
        for part in &source.parts {
            if let Some(at) = part.at {
                add_date(at, &mut words, &mut numbers);
                for when in when::resolve(&part.text, at) {
                    add_date(when.from, &mut words, &mut numbers);
                    add_date(Millis(when.to.0 - 1), &mut words, &mut numbers);
                }
            }
        }
        Self { words, numbers }
    }

    /// What some texts say, all together.
    pub(crate) fn of_texts(texts: &[&str]) -> Self {
        let mut grounds = Self { words: BTreeSet::new(), numbers: BTreeSet::new() };
        texts.iter().for_each(|text| grounds.add(text));
        grounds
    }

    fn add(&mut self, text: &str) {
        for word in words_of(text) {
            let lower = word.text.to_lowercase();
            if let Some(number) = NUMBER_WORDS.iter().position(|known| *known == lower) {
                self.numbers.insert(number.to_string());
            }
            self.numbers.extend(numbers_of(&lower));
            self.words.insert(stem(&lower).to_owned());
        }
    }
}

/// A date's year, month and day, as numbers and by the month's name.
fn add_date(at: Millis, words: &mut BTreeSet<String>, numbers: &mut BTreeSet<String>) {
    let date = at.to_date();
    for (place, field) in date.split('-').enumerate() {
        let number = field.trim_start_matches('0');
        numbers.insert(number.to_owned());
        if let (1, Ok(month)) = (place, number.parse::<usize>()) {
            let name = month.checked_sub(1).and_then(|month| MONTHS.get(month));
            words.extend(name.map(|name| stem(name).to_owned()));
        }
    }
}

/// Whether every name, number and date of a text is in the sources, and enough of its
/// other words.
pub(crate) fn bear_out<'a>(text: &str, sources: impl Iterator<Item = &'a Grounds> + Clone) -> bool {
    is_borne_out(text, sources, &[])
}

/// As [`bear_out`], but these words, which stand in order, need no source either.
pub(crate) fn bear_out_but(text: &str, source: &Grounds, free: &[&str]) -> bool {
    is_borne_out(text, std::iter::once(source), free)
}

fn is_borne_out<'a>(
    text: &str,
    sources: impl Iterator<Item = &'a Grounds> + Clone,
    free: &[&str],
) -> bool {
    let has_word = |word: &str| sources.clone().any(|grounds| grounds.words.contains(word));
    let has_number = |number: &str| sources.clone().any(|grounds| grounds.numbers.contains(number));
    let (mut carrying, mut own) = (0, 0);
    for word in words_of(text) {
        let lower = word.text.to_lowercase();
        if !numbers_of(&lower).all(|number| has_number(&number)) {
            return false;
        }
        let is_known = has_word(stem(&lower));
        let is_ordinary =
            ORDINARY.contains(&lower.as_str()) || free.binary_search(&lower.as_str()).is_ok();
        let is_name = word.is_capital && !is_ordinary && lower.chars().any(char::is_alphabetic);
        if is_name && !is_known {
            return false;
        }
        if !is_ordinary {
            carrying += 1;
            own += usize::from(is_known || lower.chars().all(|c| c.is_ascii_digit()));
        }
    }
    own > 0 && own * 100 >= carrying * OWN_WORDS_PERCENT
}

/// The own time of the part that a line is nearest to.
pub(super) fn said_at<'a>(text: &str, sources: impl Iterator<Item = &'a Source>) -> Option<Millis> {
    let stems = |text: &str| -> BTreeSet<String> {
        words_of(text).map(|word| stem(&word.text.to_lowercase()).to_owned()).collect()
    };
    let wanted = stems(text);
    let parts = sources.flat_map(|source| &source.parts);
    let timed = parts.filter_map(|part| Some((part, part.at?)));
    let near = timed.map(|(part, at)| (stems(&part.text).intersection(&wanted).count(), at));
    near.max().map(|(_, at)| at)
}

/// The places of lines, best first: instructions and what is true now before the rest of
/// equal worth, rare words before common ones, and a source that nothing stands for yet
/// before others.
pub(super) fn by_worth(lines: &[Line]) -> Vec<usize> {
    let stems: Vec<BTreeSet<String>> = lines
        .iter()
        .map(|line| {
            let words = words_of(&line.text).map(|word| word.text.to_lowercase());
            let carrying = words.filter(|word| !ORDINARY.contains(&word.as_str()));
            carrying.map(|word| stem(&word).to_owned()).collect()
        })
        .collect();
    let mut in_lines: BTreeMap<&str, u64> = BTreeMap::new();
    stems.iter().flatten().for_each(|word| *in_lines.entry(word).or_default() += 1);
    // Whole numbers alone: no rounding that another machine does otherwise.
    let worth = |place: usize| -> u64 {
        let rare: u64 = stems[place].iter().map(|word| 1_000 / in_lines[word.as_str()]).sum();
        let section = match lines[place].section {
            crate::dream::Section::Preferences => 3,
            crate::dream::Section::Now | crate::dream::Section::Decisions => 2,
            _ => 1,
        };
        rare * section / (stems[place].len().max(1) as u64)
    };
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|place| (std::cmp::Reverse(worth(*place)), *place));
    let mut told = BTreeSet::new();
    let (first, rest): (Vec<usize>, Vec<usize>) = order
        .into_iter()
        .partition(|place| lines[*place].sources.iter().any(|source| told.insert(*source)));
    first.into_iter().chain(rest).collect()
}

struct Word<'a> {
    text: &'a str,
    is_capital: bool,
}

/// Runs of letters and digits; what joins digits (`1,200`, `3.5`, `2024-05-07`) or letters
/// (`O'Brien`) belongs to neither. Of scripts without spaces, each two letters.
fn words_of(text: &str) -> impl Iterator<Item = Word<'_>> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.flat_map(|word| {
        let pairs = if word.contains(is_unspaced) { pairs_of(word) } else { vec![word] };
        pairs.into_iter().map(|text: &str| {
            let is_capital = text.starts_with(char::is_uppercase);
            Word { text, is_capital }
        })
    })
}

/// The words and pairs of letters of a run that has letters of a script without spaces.
fn pairs_of(run: &str) -> Vec<&str> {
    let mut pairs = Vec::new();
    for_each_word(run, |word| pairs.push(word.text));
    pairs
}

/// The runs of digits of a word, without leading zeros.
fn numbers_of(word: &str) -> impl Iterator<Item = String> {
    let runs = word.split(|c: char| !c.is_numeric()).filter(|run| !run.is_empty());
    runs.map(|run| match run.trim_start_matches('0') {
        "" => "0".to_owned(),
        run => run.to_owned(),
    })
}

/// A word without its ending, roughly: what is compared must only be cut alike.
fn stem(word: &str) -> &str {
    for ending in ["ing", "ied", "ies", "ed", "es", "s", "e", "y"] {
        if let Some(root) = word.strip_suffix(ending)
            && root.chars().count() >= 3
        {
            return root;
        }
    }
    word
}
