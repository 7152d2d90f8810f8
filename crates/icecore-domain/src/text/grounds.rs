//! Whether sources bear out what is said of them.

use std::collections::BTreeSet;

use super::dates::{self, MONTHS};
use super::words::{for_each_word, is_unspaced};
use crate::time::Millis;

/// Of the words that carry a line, so many in a hundred must be its sources' own.
const OWN_WORDS_PERCENT: usize = 40;

/// Words that need no source: sentences begin with them and are joined by them.
const ORDINARY: &[&str] = &[
    "a", "about", "according", "after", "again", "agreed", "all", "also", "although", "always",
    "an", "and", "any", "are", "as", "asked", "at", "avoid", "be", "because", "been", "before",
    "being", "both", "but", "by", "can", "chose", "confirmed", "could", "currently", "decided",
    "did", "do", "does", "don", "due", "during", "each", "either", "every", "everyone", "first",
    "following", "for", "from", "had", "has", "have", "he", "her", "his", "how", "i", "if", "in",
    "instead", "into", "is", "it", "its", "keep", "last", "likes", "lives", "may", "might", "more",
    "most", "must", "my", "neither", "never", "next", "no", "nobody", "none", "not", "nothing",
    "now", "of", "on", "once", "one", "only", "open", "or", "our", "over", "people", "plans",
    "planned", "prefers", "previously", "she", "should", "since", "so", "some", "still", "than",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to",
    "under", "unless", "until", "use", "used", "user", "users", "uses", "wants", "was", "we",
    "were", "what", "when", "where", "which", "while", "who", "whose", "why", "will", "with",
    "without", "works", "would", "yes", "yet", "you", "your",
];

/// Numbers by their words; `7` and `seven` count as the same.
const NUMBER_WORDS: &[(&str, u32)] = &[
    ("zero", 0),
    ("one", 1),
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("eleven", 11),
    ("twelve", 12),
    ("thirteen", 13),
    ("fourteen", 14),
    ("fifteen", 15),
    ("sixteen", 16),
    ("seventeen", 17),
    ("eighteen", 18),
    ("nineteen", 19),
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("fifty", 50),
    ("sixty", 60),
    ("seventy", 70),
    ("eighty", 80),
    ("ninety", 90),
    ("hundred", 100),
    ("thousand", 1_000),
    ("million", 1_000_000),
];

/// Words before `May` that make it the month.
const BEFORE_A_MONTH: &[&str] = &[
    "by", "during", "early", "from", "in", "last", "late", "mid", "next", "of", "on", "since",
    "this", "until",
];

/// So many words from a month's name stand the day and the year that belong to it.
const NEAR_A_MONTH: usize = 2;

/// What a source says that a line may rest on.
#[derive(Default)]
pub(crate) struct Grounds {
    words: BTreeSet<String>,
    numbers: BTreeSet<String>,
    /// Numbers of several runs of digits: `3.5`, `10:30`.
    joined: BTreeSet<String>,
    dates: BTreeSet<Date>,
}

/// A date, or the known part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Date {
    year: Option<u32>,
    /// From 1.
    month: u32,
    day: Option<u32>,
}

impl Grounds {
    /// What a text says, with the days on which its parts were said and those that they name.
    pub(crate) fn of_parts<'a>(
        text: &str,
        parts: impl Iterator<Item = (&'a str, Option<Millis>)>,
    ) -> Self {
        let mut grounds = Self::of_texts(&[text]);
        for (part, at) in parts {
            if let Some(at) = at {
                grounds.add_date(at);
                for when in dates::resolve(part, at) {
                    grounds.add_date(when.from);
                    grounds.add_date(Millis(when.to.0 - 1));
                }
            }
        }
        grounds
    }

    /// What some texts say, all together.
    pub(crate) fn of_texts(texts: &[&str]) -> Self {
        let mut grounds = Self::default();
        texts.iter().for_each(|text| grounds.add(text));
        grounds
    }

    fn add(&mut self, text: &str) {
        for word in words_of(text) {
            let lower = word.text.to_lowercase();
            self.numbers.extend(number_of_word(&lower).map(|number| number.to_string()));
            self.numbers.extend(numbers_of(&lower));
            self.words.insert(stem(&lower).to_owned());
            if word.text == MAY {
                self.words.insert(MAY.to_owned());
            }
        }
        self.joined.extend(joined_numbers(text));
        self.dates.extend(iso_dates(text));
        self.dates.extend(dates_near_months(text));
    }

    /// A date's year, month and day, as numbers and by the month's name.
    fn add_date(&mut self, at: Millis) {
        let Some(date) = iso_dates(&at.to_date()).into_iter().next() else { return };
        let fields = [date.year, Some(date.month), date.day];
        self.numbers.extend(fields.into_iter().flatten().map(|field| field.to_string()));
        let name =
            (date.month as usize).checked_sub(1).and_then(|month| MONTHS.get(month)).copied();
        self.words.extend(name.map(|name| stem(name).to_owned()));
        if name == Some("may") {
            self.words.insert(MAY.to_owned());
        }
        self.dates.insert(date);
    }

    /// Whether a known date agrees with this one and is at least as precise.
    fn has_date(&self, date: &Date) -> bool {
        let has_year = |year: u32| self.numbers.contains(&year.to_string());
        self.dates.iter().any(|known| {
            let is_year = match (date.year, known.year) {
                (Some(told), Some(known)) => told == known,
                // The year stands elsewhere.
                (Some(told), None) => has_year(told),
                (None, _) => true,
            };
            is_year && known.month == date.month && (date.day.is_none() || known.day == date.day)
        })
    }
}

/// The month, which is not the word that somebody may do something.
const MAY: &str = "May";

fn number_of_word(lower: &str) -> Option<u32> {
    NUMBER_WORDS.iter().find(|(word, _)| *word == lower).map(|(_, number)| *number)
}

/// The month that a word names, from 1.
fn month_of(lower: &str) -> Option<u32> {
    MONTHS.iter().position(|month| *month == lower).map(|place| place as u32 + 1)
}

/// The day of a month that a word may be: `3`, `3rd`.
fn day_of(word: &str) -> Option<u32> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let rest = &word[digits.len()..];
    let is_day = (1..=2).contains(&digits.len())
        && ["", "st", "nd", "rd", "th"].contains(&rest.to_lowercase().as_str());
    let day = digits.parse().ok().filter(|_| is_day);
    day.filter(|day| (1..=31).contains(day))
}

fn year_of(word: &str) -> Option<u32> {
    let is_year = word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| is_year)
}

/// Dates that are written `2025-03-03`.
fn iso_dates(text: &str) -> Vec<Date> {
    let runs = text.split(|c: char| !c.is_ascii_digit() && c != '-');
    let date = |run: &str| {
        let fields: Vec<&str> = run.split('-').filter(|field| !field.is_empty()).collect();
        let [year, month, day] = fields[..] else { return None };
        let month = month.parse().ok().filter(|month| (1..=12).contains(month))?;
        Some(Date { year: Some(year_of(year)?), month, day: Some(day_of(day)?) })
    };
    runs.filter_map(date).collect()
}

/// Every date that the numbers near a month's name can make with it.
fn dates_near_months(text: &str) -> Vec<Date> {
    let words: Vec<&str> = words_of(text).map(|word| word.text).collect();
    let mut dates = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let Some(month) = month_of(&word.to_lowercase()) else { continue };
        let end = (place + NEAR_A_MONTH + 1).min(words.len());
        let near = &words[place.saturating_sub(NEAR_A_MONTH)..end];
        let all = |found: Vec<u32>| -> Vec<Option<u32>> {
            if found.is_empty() { vec![None] } else { found.into_iter().map(Some).collect() }
        };
        let years = all(near.iter().filter_map(|word| year_of(word)).collect());
        let days = all(near.iter().filter_map(|word| day_of(word)).collect());
        for year in &years {
            dates.extend(days.iter().map(|day| Date { year: *year, month, day: *day }));
        }
    }
    dates
}

/// The dates that a line states: a month's name with a day or a year at it, or in digits.
fn stated_dates(text: &str) -> Vec<Date> {
    let words: Vec<&str> = words_of(text).map(|word| word.text).collect();
    let mut dates = iso_dates(text);
    for (place, word) in words.iter().enumerate() {
        let Some(month) = month_of(&word.to_lowercase()).filter(|_| is_capital(word)) else {
            continue;
        };
        let at = |step: isize| place.checked_add_signed(step).and_then(|at| words.get(at)).copied();
        let before = match at(-1) {
            Some("of") => at(-2).and_then(day_of),
            word => word.and_then(day_of),
        };
        let (day, year) = match (before, at(1).and_then(day_of)) {
            (None, Some(day)) => (Some(day), at(2).and_then(year_of)),
            (day, _) => (day, at(1).and_then(year_of)),
        };
        if day.is_some() || year.is_some() {
            dates.push(Date { year, month, day });
        }
    }
    dates
}

/// Runs of digits with a point, comma or colon between them, each as one; what only parts
/// thousands is left out of them.
fn joined_numbers(text: &str) -> Vec<String> {
    let runs = text.split(|c: char| !c.is_ascii_digit() && !['.', ',', ':'].contains(&c));
    let whole = |run: &str| {
        let run = run.trim_matches(['.', ',', ':']);
        let groups: Vec<&str> = run.split(',').collect();
        let parts_thousands = groups.len() > 1
            && groups[1..].iter().all(|group| group.split('.').next().unwrap_or("").len() == 3);
        let run = if parts_thousands { groups.concat() } else { run.to_owned() };
        let fields: Vec<&str> = run.split(['.', ',', ':']).filter(|one| !one.is_empty()).collect();
        (parts_thousands || fields.len() > 1).then(|| fields.join("."))
    };
    runs.filter_map(whole).collect()
}

fn is_capital(word: &str) -> bool {
    word.starts_with(char::is_uppercase)
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
    if !joined_numbers(text).iter().all(|number| {
        sources.clone().any(|grounds| grounds.joined.contains(number)) || has_number(number)
    }) {
        return false;
    }
    if !stated_dates(text).iter().all(|date| sources.clone().any(|grounds| grounds.has_date(date)))
    {
        return false;
    }
    let (mut carrying, mut own) = (0, 0);
    let mut before = String::new();
    let mut words = words_of(text).peekable();
    while let Some(word) = words.next() {
        let lower = word.text.to_lowercase();
        if !numbers_of(&lower).all(|number| has_number(&number)) {
            return false;
        }
        // `one` is often no number.
        let number = number_of_word(&lower).filter(|number| *number != 1);
        if number.is_some_and(|number| !has_number(&number.to_string())) {
            return false;
        }
        let has_digits = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        let is_may = word.text == MAY
            && (BEFORE_A_MONTH.contains(&before.as_str())
                || has_digits(&before)
                || words.peek().is_some_and(|next| has_digits(next.text)));
        if is_may && !has_word(MAY) {
            return false;
        }
        before.clone_from(&lower);
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

/// The words of a text without their endings.
pub(crate) fn stems(text: &str) -> BTreeSet<String> {
    words_of(text).map(|word| stem(&word.text.to_lowercase()).to_owned()).collect()
}

/// The same without ordinary words.
pub(crate) fn carrying_stems(text: &str) -> BTreeSet<String> {
    let words = words_of(text).map(|word| word.text.to_lowercase());
    let carrying = words.filter(|word| !ORDINARY.contains(&word.as_str()));
    carrying.map(|word| stem(&word).to_owned()).collect()
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
        pairs.into_iter().map(|text: &str| Word { text, is_capital: is_capital(text) })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(source: &str, line: &str) -> bool {
        bear_out(line, std::iter::once(&Grounds::of_texts(&[source])))
    }

    #[test]
    fn numbers_are_borne_out_in_digits_and_in_words() {
        let source = "Ana keeps 7 cats and two dogs in the house.";
        for line in ["Ana keeps seven cats.", "Ana keeps 2 dogs.", "Ana keeps one of the cats."] {
            assert!(holds(source, line), "{line}");
        }
        for line in ["Ana keeps eight cats.", "Ana keeps twelve dogs.", "Ana keeps thirty cats."] {
            assert!(!holds(source, line), "{line}");
        }
    }

    #[test]
    fn the_month_may_is_no_ordinary_word() {
        let source = "Ana may move to Porto with 12 boxes.";
        assert!(holds(source, "Ana may move to Porto."));
        assert!(holds(source, "May Ana move to Porto?"));
        for line in
            ["Ana moves to Porto in May.", "Ana moves to Porto on May 12.", "Ana moves 12 May."]
        {
            assert!(!holds(source, line), "{line}");
        }
        assert!(holds("Ana moves to Porto in May.", "Ana moves to Porto in May."));
    }

    #[test]
    fn parts_of_two_dates_make_no_third() {
        let source =
            "Ana moved on 3 March 2025 and Bo moved on May 5, 2024; since 2023-11-09 both plan it.";
        for line in [
            "Ana moved on 3 March 2025.",
            "Ana moved on March 3, 2025.",
            "Ana moved on the 3rd of March.",
            "Bo moved on 2024-05-05.",
            "Bo moved in May 2024.",
            "Both plan it since 2023-11-09.",
        ] {
            assert!(holds(source, line), "{line}");
        }
        for line in [
            "Ana moved on 5 March 2025.",
            "Ana moved on 3 May 2025.",
            "Ana moved on March 3, 2024.",
            "Ana moved on 3 March 2023.",
            "Ana moved on 2025-05-03.",
            "Bo moved in May 2025.",
            "Both plan it since 2023-11-03.",
        ] {
            assert!(!holds(source, line), "{line}");
        }
    }

    #[test]
    fn a_number_with_a_point_is_one() {
        let source = "The pump takes 3.5 bar and 5 litres at 10:30, and costs 1,200 euros.";
        for line in ["The pump takes 3.5 bar.", "The pump costs 1,200 euros.", "The pump at 10:30."]
        {
            assert!(holds(source, line), "{line}");
        }
        for line in ["The pump takes 5.3 bar.", "The pump takes 5.5 litres.", "The pump at 10:05."]
        {
            assert!(!holds(source, line), "{line}");
        }
    }
}
