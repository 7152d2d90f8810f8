//! The words that dates are made of.

use super::Lean;
use super::calendar::Unit;

/// A run of letters or digits.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub word: String,
    pub start: usize,
    pub end: usize,
}

/// Longer words are no part of a date.
const MAX_WORD_BYTES: usize = 16;

/// The tokens of the first `limit` bytes.
pub(super) fn tokens(text: &str, limit: usize) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (c.is_alphanumeric(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                let word: &str = &text[from..at];
                let word =
                    if word.len() <= MAX_WORD_BYTES { word.to_lowercase() } else { String::new() };
                tokens.push(Token { word, start: from, end: at });
                start = None;
            }
            _ => {}
        }
        if at >= limit {
            break;
        }
    }
    tokens
}

/// The months, by their full names.
pub const MONTHS: [&str; 12] = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
];

/// The days of the week, from Monday.
pub const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The number of a month.
pub(super) fn month(word: &str) -> Option<i32> {
    let word = if word == "sept" { "sep" } else { word };
    (1..).zip(MONTHS).find(|(_, long)| word == *long || word == &long[..3]).map(|(n, _)| n)
}

/// A month's full name that is no other word.
pub(super) fn is_long_month(word: &str) -> bool {
    !matches!(word, "march" | "may") && MONTHS.contains(&word)
}

/// 0 for Monday.
pub(super) fn weekday(word: &str) -> Option<i32> {
    (0..).zip(WEEKDAYS).find(|(_, day)| *day == word).map(|(n, _)| n)
}

/// The month that a season begins with.
pub(super) fn season(word: &str) -> Option<i32> {
    match word {
        "spring" => Some(3),
        "summer" => Some(6),
        "autumn" | "fall" => Some(9),
        "winter" => Some(12),
        _ => None,
    }
}

/// 0 for `q1`.
pub(super) fn quarter(word: &str) -> Option<i32> {
    ["q1", "q2", "q3", "q4"].iter().position(|name| *name == word).map(|n| n as i32)
}

pub(super) fn unit(word: &str) -> Option<Unit> {
    match word {
        "day" | "days" => Some(Unit::Day),
        "week" | "weeks" => Some(Unit::Week),
        "weekend" => Some(Unit::Weekend),
        "month" | "months" => Some(Unit::Month),
        "year" | "years" => Some(Unit::Year),
        _ => None,
    }
}

pub(super) fn is_plural(word: &str) -> bool {
    word.ends_with('s')
}

/// A number in digits or as a word.
pub(super) fn amount(word: &str) -> Option<i32> {
    const WORDS: [&str; 12] = [
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve",
    ];
    if matches!(word, "a" | "an") {
        return Some(1);
    }
    let named = (1..).zip(WORDS).find(|(_, name)| *name == word).map(|(n, _)| n);
    named.or_else(|| word.parse().ok().filter(|n| (1..=999).contains(n)))
}

/// A day of a month: `7`, `7th`, `21st`.
pub(super) fn ordinal(word: &str) -> Option<i32> {
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end));
    let day: i32 = digits.unwrap_or(word).parse().ok()?;
    (1..=31).contains(&day).then_some(day)
}

/// The day at the front of what is left of a timestamp: `07t10`.
pub(super) fn day_of_stamp(word: &str) -> Option<i32> {
    let (day, hour) = word.split_once('t')?;
    (hour.len() == 2 && day.len() == 2).then(|| day.parse().ok())?
}

/// A year in four digits.
pub(super) fn year(word: &str) -> Option<i32> {
    let is_four = word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|year| is_four && (1900..=2099).contains(year))
}

/// `1990s`.
pub(super) fn decade(word: &str) -> Option<i32> {
    year(word.strip_suffix('s')?).filter(|year| year % 10 == 0)
}

/// Whether a word after a number says what was counted.
pub(super) fn is_counted(word: &str) -> bool {
    [
        "people", "dollars", "euros", "pounds", "words", "characters", "tokens", "steps", "rows",
        "lines", "items", "users", "miles", "km", "kb", "mb", "gb", "ms", "px", "kg", "calories",
        "points", "pages", "times", "requests", "records",
    ]
    .contains(&word)
}

/// What a verb or a preposition says of past and future.
pub(super) fn lean(word: &str) -> Lean {
    match word {
        "will" | "ll" | "shall" | "going" | "gonna" | "plan" | "plans" | "planning" | "planned"
        | "scheduled" | "due" | "by" | "until" | "till" | "deadline" | "upcoming" | "starts"
        | "begins" | "tomorrow" | "hope" | "hoping" | "need" | "want" | "should" | "must"
        | "before" | "looking" | "thinking" | "considering" | "attending" => Lean::Ahead,
        "was" | "were" | "did" | "had" | "went" | "got" | "been" | "since" | "ago" | "took"
        | "came" | "saw" | "met" | "made" | "bought" | "began" | "ran" | "gave" | "won"
        | "lost" | "found" | "ve" | "has" | "have" | "happened" | "said" | "told" | "left"
        | "felt" | "wrote" | "read" | "ate" | "drove" | "flew" | "held" | "sold" | "spent" => {
            Lean::Back
        }
        // "moved", "visited", "finished": a verb in the past, mostly.
        _ if word.len() > 4 && word.ends_with("ed") && !word.ends_with("eed") => Lean::Back,
        _ => Lean::Neither,
    }
}
