//! Dates in running text, as spans of time.
//!
//! "7 May 2023", "last Saturday", "two weeks ago": each is found where it stands
//! and resolved against the moment at which it was said. All days are days in
//! UTC, weeks begin on Monday, seasons are those of the north. A form that could
//! mean two moments ("on Friday", "in May") takes the one that the verbs around
//! it point to, else the nearer.

mod calendar;
mod words;

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use crate::time::Millis;
use calendar::{Day, Unit};
pub use words::{MONTHS, WEEKDAYS};
use words::{Token, amount, month, season, unit, weekday};

/// Only so much of a text is read for dates.
pub const MAX_READ_BYTES: usize = 32 << 10;

/// A time that a text names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    /// Where in the text, in bytes.
    pub span: Range<usize>,
    pub from: Millis,
    pub to: Millis,
    /// Whether it says something else when said on another day.
    pub relative: bool,
}

impl When {
    /// The span as people write it: `2023-05-07`, `2023-05`, `2023`, or the first
    /// and the last day.
    pub fn label(&self) -> String {
        let (first, last) = (self.from.to_date(), Millis(self.to.0 - 1).to_date());
        let (year, month) = (first.get(..4), first.get(..7));
        if first == last {
            return first;
        }
        match (self.to.0 - self.from.0) / calendar::DAY_MS {
            365..=366 if first.ends_with("-01-01") => year.unwrap_or(&first).to_owned(),
            28..=31 if first.ends_with("-01") => month.unwrap_or(&first).to_owned(),
            _ => format!("{first} to {last}"),
        }
    }
}

/// Every time has one of these in it; most sentences have none, and are not read.
static MARKS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let marks = [
        "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "day", "week", "month", "year",
        "morning", "afternoon", "evening", "night", "tomorrow", "spring", "summer", "autumn",
        "fall", "winter", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct",
        "nov", "dec",
    ];
    let finder = AhoCorasick::builder().ascii_case_insensitive(true).build(marks);
    finder.expect("the table is small")
});

/// The times that `text` names, in order, as understood at `at`.
pub fn resolve(text: &str, at: Millis) -> Vec<When> {
    if !MARKS.is_match(text) {
        return Vec::new();
    }
    let Some(today) = Day::of(at) else { return Vec::new() };
    let tokens = words::tokens(text, MAX_READ_BYTES);
    let reader = Reader { text, tokens: &tokens, today };
    let mut found = Vec::new();
    let mut next = 0;
    while next < tokens.len() {
        match reader.read(next) {
            Some(read) => {
                let span = tokens[next].start..tokens[next + read.count - 1].end;
                let (from, to) = (read.from.start(), read.to.start());
                if from < to {
                    found.push(When { span, from, to, relative: read.relative });
                }
                next += read.count;
            }
            None => next += 1,
        }
    }
    found
}

/// A year between 1900 and 2099.
pub(crate) fn has_year(sentence: &str) -> bool {
    let bytes = sentence.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    bytes.windows(4).enumerate().any(|(at, year)| {
        (year.starts_with(b"19") || year.starts_with(b"20"))
            && year.iter().all(u8::is_ascii_digit)
            && !digit(at + 4)
            && (at == 0 || !digit(at - 1))
    })
}

/// A date read from some tokens.
#[derive(Debug, Clone, Copy)]
struct Read {
    count: usize,
    from: Day,
    to: Day,
    relative: bool,
}

impl Read {
    fn fixed(count: usize, (from, to): (Day, Day)) -> Option<Read> {
        Some(Read { count, from, to, relative: false })
    }

    fn relative(count: usize, (from, to): (Day, Day)) -> Option<Read> {
        Some(Read { count, from, to, relative: true })
    }
}

/// Where the words around a date point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lean {
    Back,
    Ahead,
    Neither,
}

struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
    today: Day,
}

impl Reader<'_> {
    /// The date that begins at token `i`, if one does.
    fn read(&self, i: usize) -> Option<Read> {
        self.numeric(i)
            .or_else(|| self.day_and_month(i))
            .or_else(|| self.named_day(i))
            .or_else(|| self.ago(i))
            .or_else(|| self.turned(i))
            .or_else(|| self.month_or_season(i))
            .or_else(|| self.alone(i))
    }

    fn word(&self, i: usize) -> &str {
        self.tokens.get(i).map_or("", |token| token.word.as_str())
    }

    fn words(&self, i: usize, expected: &[&str]) -> bool {
        expected.iter().enumerate().all(|(n, word)| self.word(i + n) == *word)
    }

    /// What stands between token `i` and the next.
    fn gap(&self, i: usize) -> &str {
        match (self.tokens.get(i), self.tokens.get(i + 1)) {
            (Some(this), Some(next)) => &self.text[this.end..next.start],
            _ => "",
        }
    }

    /// Whether tokens `i` and the next are one phrase.
    fn joined(&self, i: usize) -> bool {
        let gap = self.gap(i);
        !gap.is_empty() && gap.len() <= 2 && gap.chars().all(|c| matches!(c, ' ' | ',' | '\u{a0}'))
    }

    fn spaced(&self, i: usize) -> bool {
        matches!(self.gap(i), " " | "-" | "\u{a0}" | "  ")
    }

    /// `2023-05-07`, `2023-05`, `5/7/2023`, `7.5.2023`.
    fn numeric(&self, i: usize) -> Option<Read> {
        let number = |i: usize| self.word(i).parse::<i32>().ok();
        let mark = self.gap(i);
        if i > 0 && !matches!(self.gap(i - 1), "" | " " | "\n") && self.gap(i - 1).len() == 1 {
            let before = self.gap(i - 1);
            if matches!(before, "-" | "/" | ".") && number(i - 1).is_some() {
                return None;
            }
        }
        let (a, b) = (number(i)?, number(i + 1).or_else(|| words::day_of_stamp(self.word(i + 1)))?);
        let year_first = self.word(i).len() == 4;
        if !matches!(mark, "-" | "/" | ".") {
            return None;
        }
        let last = self.word(i + 2);
        let c = number(i + 2).or_else(|| words::day_of_stamp(last));
        if self.gap(i + 1) == mark
            && let Some(c) = c
        {
            let (y, m, d) = match (year_first, mark) {
                (true, _) => (a, b, c),
                (false, _) if last.len() != 4 => return None,
                (false, "/") if a <= 12 => (c, a, b),
                (false, _) => (c, b, a),
            };
            return Read::fixed(3, Day::new(y, m, d)?.whole(Unit::Day)?);
        }
        let is_month = year_first && mark == "-" && self.word(i + 1).len() == 2;
        if is_month && calendar::is_year(a) {
            return Read::fixed(2, Day::new(a, b, 1)?.whole(Unit::Month)?);
        }
        None
    }

    /// `7 May 2023`, `the 7th of May`, `May 7th, 2023`, `May 3-5`.
    fn day_and_month(&self, i: usize) -> Option<Read> {
        let day_first = words::ordinal(self.word(i)).and_then(|day| {
            let of = usize::from(self.word(i + 1) == "of");
            let month = month(self.word(i + 1 + of))?;
            let close = (i..=i + of).all(|at| self.joined(at));
            close.then_some((day, day, month, 2 + of))
        });
        let (first, last, month, count) = day_first.or_else(|| self.month_then_day(i))?;
        let year = self.year_at(i + count - 1);
        let whole = |y: i32| {
            let to = Day::new(y, month, last)?.plus(1, Unit::Day)?;
            Some((Day::new(y, month, first)?, to))
        };
        match year {
            Some((year, more)) => Read::fixed(count + more, whole(year)?),
            None => {
                let (from, to) = self.close(whole).or_else(|| self.nearest(i, count, whole))?;
                Some(Read { count, from, to, relative: true })
            }
        }
    }

    fn month_then_day(&self, i: usize) -> Option<(i32, i32, i32, usize)> {
        let month = month(self.word(i))?;
        let the = usize::from(self.word(i + 1) == "the");
        let day = words::ordinal(self.word(i + 1 + the))?;
        // "in May 5 people came" is rare; "May 5:30" and "May 50" are no days.
        if !(i..=i + the).all(|at| self.joined(at)) || self.gap(i + 1 + the).starts_with(':') {
            return None;
        }
        let count = 2 + the;
        let dash = matches!(self.gap(i + count - 1), "-" | "–" | " - " | " – ");
        match words::ordinal(self.word(i + count)).filter(|last| dash && *last > day) {
            Some(last) => Some((day, last, month, count + 1)),
            None => Some((day, day, month, count)),
        }
    }

    /// The year that follows token `i`, and the tokens it takes.
    fn year_at(&self, i: usize) -> Option<(i32, usize)> {
        let of = usize::from(self.word(i + 1) == "of" || self.word(i + 1) == "in");
        let close = (i..=i + of).all(|at| self.joined(at));
        let year = words::year(self.word(i + 1 + of)).filter(|_| close)?;
        Some((year, 1 + of))
    }

    /// today, yesterday, tonight, this morning, the day before yesterday, weekdays.
    fn named_day(&self, i: usize) -> Option<Read> {
        let day = |count, offset| {
            Read::relative(count, self.today.plus(offset, Unit::Day)?.whole(Unit::Day)?)
        };
        if self.words(i, &["day", "before", "yesterday"]) {
            return day(3, -2);
        }
        if self.words(i, &["day", "after", "tomorrow"]) {
            return day(3, 2);
        }
        let part = |word: &str| matches!(word, "morning" | "afternoon" | "evening" | "night");
        match self.word(i) {
            "today" | "tonight" => return day(1, 0),
            "yesterday" if part(self.word(i + 1)) => return day(2, -1),
            "yesterday" => return day(1, -1),
            "tomorrow" if part(self.word(i + 1)) => return day(2, 1),
            "tomorrow" => return day(1, 1),
            "last" if self.word(i + 1) == "night" => return day(2, -1),
            "this" if part(self.word(i + 1)) => return day(2, 0),
            _ => {}
        }
        let wanted = weekday(self.word(i))?;
        // "every Monday", "my Saturday class": no day of the calendar.
        let before = if i > 0 { self.word(i - 1) } else { "" };
        if matches!(before, "every" | "each" | "my" | "our" | "your" | "most") {
            return None;
        }
        let back = (self.today.weekday() - wanted).rem_euclid(7);
        match self.lean(i, 1) {
            Lean::Ahead => day(1, (7 - back) % 7),
            Lean::Back | Lean::Neither => day(1, -back),
        }
    }

    /// `two weeks ago`, `in three days`, `a month from now`, `the last few years`.
    fn ago(&self, i: usize) -> Option<Read> {
        let ahead = self.word(i) == "in" || self.word(i) == "within";
        let (least, most, count) = self.amount(i + usize::from(ahead))?;
        let end = i + usize::from(ahead) + count;
        let unit = unit(self.word(end))?;
        if (i..end).any(|at| !self.spaced(at)) {
            return None;
        }
        let total = count + 1 + usize::from(ahead);
        let sign = match (self.word(end + 1), ahead) {
            ("ago", false) => -1,
            ("back", false) => -1,
            ("from", false) if self.word(end + 2) == "now" => 1,
            (_, true) if self.word(end + 1) != "of" => 1,
            _ => return None,
        };
        let more = match (self.word(end + 1), ahead) {
            ("from", _) => 2,
            (_, true) => 0,
            _ => 1,
        };
        let (near, far) = (self.around(sign * least, unit)?, self.around(sign * most, unit)?);
        Read::relative(total + more, (near.0.min(far.0), near.1.max(far.1)))
    }

    /// The span that lies `offset` units from today. A week is meant loosely.
    fn around(&self, offset: i32, unit: Unit) -> Option<(Day, Day)> {
        let centre = self.today.plus(offset, unit)?;
        match unit {
            Unit::Week => Some((centre.plus(-3, Unit::Day)?, centre.plus(4, Unit::Day)?)),
            Unit::Weekend => None,
            _ => centre.whole(unit),
        }
    }

    /// At least, at most, and the tokens: `two`, `a couple of`, `a few`, `3`.
    fn amount(&self, i: usize) -> Option<(i32, i32, usize)> {
        let article = usize::from(matches!(self.word(i), "a" | "the"));
        match self.word(i + article) {
            "couple" if self.word(i + article + 1) == "of" => Some((2, 2, article + 2)),
            "couple" => Some((2, 2, article + 1)),
            "few" => Some((2, 5, article + 1)),
            "several" => Some((3, 7, article + 1)),
            word if article == 0 => amount(word).map(|n| (n, n, 1)),
            _ => Some((1, 1, 1)),
        }
    }

    /// `last week`, `next Friday`, `this summer`, `the past two months`.
    fn turned(&self, i: usize) -> Option<Read> {
        let turn = match self.word(i) {
            "last" | "past" | "previous" => -1,
            "this" | "current" => 0,
            "next" | "coming" | "upcoming" | "following" => 1,
            _ => return None,
        };
        if !self.spaced(i) {
            return None;
        }
        let word = self.word(i + 1);
        if let Some(wanted) = weekday(word) {
            return self.turned_weekday(turn, wanted);
        }
        if let Some(wanted) = month(word) {
            return self.turned_part(turn, |year| Day::new(year, wanted, 1)?.whole(Unit::Month));
        }
        if let Some(first) = season(word) {
            return self.turned_part(turn, |year| calendar::season(year, first));
        }
        if turn != 0
            && let Some((_, most, count)) = self.amount(i + 1)
            && let Some(unit) = unit(self.word(i + 1 + count))
        {
            let other = self.today.plus(turn * most, unit)?;
            let today = self.today.whole(Unit::Day)?;
            let span = if turn < 0 { (other, today.1) } else { (today.0, other) };
            return Read::relative(count + 2, span);
        }
        let unit = unit(word)?;
        // "my last day", "this day": a day that is no day of the calendar.
        if unit == Unit::Day || words::is_plural(word) {
            return None;
        }
        Read::relative(2, self.today.whole_turned(turn, unit)?)
    }

    fn turned_weekday(&self, turn: i32, wanted: i32) -> Option<Read> {
        let back = (self.today.weekday() - wanted).rem_euclid(7);
        let offset = match turn {
            -1 if back == 0 => -7,
            -1 => -back,
            0 => (7 - back) % 7,
            _ if back == 0 => 7,
            _ => 7 - back,
        };
        Read::relative(2, self.today.plus(offset, Unit::Day)?.whole(Unit::Day)?)
    }

    /// The last, this or next of something that comes once a year.
    fn turned_part(&self, turn: i32, of: impl Fn(i32) -> Option<(Day, Day)>) -> Option<Read> {
        let year = self.today.year();
        let mut spans = (year - 2..=year + 2).filter_map(of);
        let span = match turn {
            -1 => spans.rfind(|span| span.1 <= self.today)?,
            0 => spans.find(|span| span.1 > self.today)?,
            _ => spans.find(|span| span.0 > self.today)?,
        };
        Read::relative(2, span)
    }

    /// `May 2023`, `in May`, `summer 2022`, `the summer of 2022`, `Q3 2024`.
    fn month_or_season(&self, i: usize) -> Option<Read> {
        if let Some(quarter) = words::quarter(self.word(i))
            && let Some((year, more)) = self.year_at(i)
        {
            let from = Day::new(year, quarter * 3 + 1, 1)?;
            return Read::fixed(1 + more, (from, from.plus(3, Unit::Month)?));
        }
        let (month, season) = (month(self.word(i)), season(self.word(i)));
        let whole = |year: i32| match (month, season) {
            (Some(month), _) => Day::new(year, month, 1)?.whole(Unit::Month),
            (_, Some(first)) => calendar::season(year, first),
            _ => None,
        };
        whole(2000)?;
        if let Some((year, more)) = self.year_at(i) {
            return Read::fixed(1 + more, whole(year)?);
        }
        let before = if i > 0 { self.word(i - 1) } else { "" };
        let told = ["in", "since", "until", "till", "by", "during", "of", "mid", "early", "late"]
            .contains(&before);
        let whole_name = words::is_long_month(self.word(i));
        (told && month.is_some() || whole_name)
            .then(|| self.nearest(i, 1, whole))
            .flatten()
            .and_then(|span| Read::relative(1, span))
    }

    /// A year by itself, a decade, `over the weekend`.
    fn alone(&self, i: usize) -> Option<Read> {
        // Further ahead a number is rather a name or a count.
        const MAX_YEARS_AHEAD: i32 = 25;
        let soon = |year: &i32| *year <= self.today.year() + MAX_YEARS_AHEAD;
        if let Some(year) = words::year(self.word(i)).filter(soon) {
            let from = Day::new(year, 1, 1)?;
            return self
                .is_bare_year(i)
                .then_some(())
                .and_then(|()| Read::fixed(1, (from, from.plus(1, Unit::Year)?)));
        }
        if let Some(year) = words::decade(self.word(i)) {
            let from = Day::new(year, 1, 1)?;
            return Read::fixed(1, (from, from.plus(10, Unit::Year)?));
        }
        let over = i > 0 && matches!(self.word(i - 1), "over" | "at" | "on");
        if over && self.words(i, &["the", "weekend"]) {
            let turn = if self.lean(i, 2) == Lean::Ahead { 0 } else { -1 };
            return Read::relative(2, self.today.whole_turned(turn, Unit::Weekend)?);
        }
        None
    }

    /// Whether a number like a year is one: no price, no count, no part of more.
    fn is_bare_year(&self, i: usize) -> bool {
        let token = &self.tokens[i];
        let before = self.text[..token.start].chars().next_back();
        let mut rest = self.text[token.end..].chars();
        let (after, further) = (rest.next(), rest.next());
        let glued = |c: Option<char>| {
            c.is_some_and(|c| matches!(c, '$' | '€' | '£' | '#' | '/' | '\\' | '_' | '=' | '+'))
        };
        let digits = matches!(after, Some('.' | ',' | ':' | '-'))
            && further.is_some_and(|c| c.is_ascii_digit());
        let part = matches!(before, Some('.' | ',' | ':' | '-' | '@'));
        !glued(before)
            && !glued(after)
            && !part
            && !digits
            && !matches!(after, Some('%' | '°' | '×'))
            && !words::is_counted(self.word(i + 1))
    }

    /// The span that is so near that no verb makes it another year's.
    fn close(&self, of: impl Fn(i32) -> Option<(Day, Day)>) -> Option<(Day, Day)> {
        const CLOSE_DAYS: i32 = 45;
        let year = self.today.year();
        let mut spans = (year - 1..=year + 1).filter_map(of);
        spans.find(|span| span.0.days_from(self.today).abs() <= CLOSE_DAYS)
    }

    /// Of the yearly spans that `of` gives, the one that is meant.
    fn nearest(
        &self,
        i: usize,
        count: usize,
        of: impl Fn(i32) -> Option<(Day, Day)>,
    ) -> Option<(Day, Day)> {
        let year = self.today.year();
        let mut spans = (year - 5..=year + 5).filter_map(&of);
        match self.lean(i, count) {
            Lean::Ahead => spans.find(|span| span.1 > self.today),
            Lean::Back => spans.rfind(|span| span.0 <= self.today),
            Lean::Neither => spans.min_by_key(|span| span.0.days_from(self.today).abs()),
        }
    }

    /// What the words before and after tokens `i..i + count` say of past and future.
    fn lean(&self, i: usize, count: usize) -> Lean {
        const REACH: usize = 10;
        let before = (i.saturating_sub(REACH)..i).rev().take_while(|at| !self.ends_sentence(*at));
        let after = (i + count..(i + count + REACH).min(self.tokens.len()))
            .take_while(|at| *at == 0 || !self.ends_sentence(at - 1));
        for at in before.chain(after) {
            let lean = words::lean(self.word(at));
            if lean != Lean::Neither {
                return lean;
            }
        }
        Lean::Neither
    }

    fn ends_sentence(&self, i: usize) -> bool {
        self.gap(i).contains(['.', '!', '?', '\n'])
    }
}

#[cfg(test)]
mod dates_tests;
