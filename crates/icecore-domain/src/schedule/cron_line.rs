//! A cron line: five fields, or six with seconds first, in a time zone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;

use super::Zone;
use crate::time::Millis;

/// Characters of a line.
pub const MAX_LINE_CHARS: usize = 256;

const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// A field of a cron line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The first of six.
    Second,
    /// Minutes of an hour.
    Minute,
    /// Hours of a day.
    Hour,
    /// Days of a month.
    DayOfMonth,
    /// Months of a year.
    Month,
    /// Days of a week.
    DayOfWeek,
}

impl Field {
    pub const ALL: [Field; 6] = [
        Field::Second,
        Field::Minute,
        Field::Hour,
        Field::DayOfMonth,
        Field::Month,
        Field::DayOfWeek,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Field::Second => "second",
            Field::Minute => "minute",
            Field::Hour => "hour",
            Field::DayOfMonth => "day of month",
            Field::Month => "month",
            Field::DayOfWeek => "day of week",
        }
    }

    /// What may stand in it.
    pub fn allowed(self) -> &'static str {
        match self {
            Field::Second | Field::Minute => "0-59, `*`, lists `1,2`, ranges `1-5`, steps `*/5`",
            Field::Hour => "0-23, `*`, lists `1,2`, ranges `1-5`, steps `*/5`",
            Field::DayOfMonth => {
                "1-31, `*`, lists, ranges, steps, `L` (the last day), `15W` (the nearest weekday)"
            }
            Field::Month => "1-12 or JAN-DEC, `*`, lists, ranges, steps",
            Field::DayOfWeek => {
                "0-7 or SUN-SAT (0 and 7 are Sunday), `*`, lists, ranges, steps, `5#2` (the second Friday), `5#L` (the last)"
            }
        }
    }

    /// Whether a word may stand in it, in capitals.
    fn knows(self, word: &str) -> bool {
        match self {
            Field::Second | Field::Minute | Field::Hour => false,
            Field::DayOfMonth => matches!(word, "L" | "W" | "LW"),
            Field::Month => MONTHS.contains(&word),
            Field::DayOfWeek => word == "L" || DAYS.contains(&word),
        }
    }
}

/// Invalid cron expression or time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    #[error("a cron line has at most {MAX_LINE_CHARS} characters")]
    TooLong,
    #[error(
        "a cron line has five fields (minute, hour, day of month, month, day of week) or six with the second first, and `{line}` has {count}"
    )]
    Fields { line: String, count: usize },
    #[error(
        "`{word}` is no cron line: @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually are"
    )]
    Nickname { word: String },
    #[error("the {} field of the cron line is `{text}`: allowed are {}", .field.as_str(), .field.allowed())]
    Field {
        field: Field,
        text: String,
        /// Where in the line, in characters.
        place: Range<usize>,
    },
    #[error(
        "the {} field of the cron line is `{text}`: a range goes up, so write `{instead}`", .field.as_str()
    )]
    Backwards {
        field: Field,
        text: String,
        instead: String,
        /// Where in the line, in characters.
        place: Range<usize>,
    },
    /// Days that never come, like the 30th of February.
    #[error(
        "the day of month field of the cron line is `{text}`: no month that the line names has such a day, so it would never be due"
    )]
    Never {
        text: String,
        /// Where in the line, in characters.
        place: Range<usize>,
    },
    #[error("there is no time zone `{name}`{}", meant(.nearest.as_deref()))]
    Zone { name: String, nearest: Option<String> },
}

fn meant(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => ": use an IANA name like `Europe/Berlin` or `UTC`".to_owned(),
    }
}

impl ScheduleError {
    /// The characters of the line that are wrong.
    pub fn place(&self) -> Option<Range<usize>> {
        match self {
            ScheduleError::Field { place, .. }
            | ScheduleError::Backwards { place, .. }
            | ScheduleError::Never { place, .. } => Some(place.clone()),
            _ => None,
        }
    }

    /// Which field is wrong.
    pub fn field(&self) -> Option<Field> {
        match self {
            ScheduleError::Field { field, .. } | ScheduleError::Backwards { field, .. } => {
                Some(*field)
            }
            ScheduleError::Never { .. } => Some(Field::DayOfMonth),
            _ => None,
        }
    }
}

/// A cron line in a time zone.
///
/// What daylight saving does to it: a line that names one second, one minute and one
/// hour fires once a day, in a gap right after it, and of an hour that comes twice the
/// first time. Any other line fires at each real instant that its fields name: not in a
/// gap, and both times in an hour that comes twice.
#[derive(Clone)]
pub struct CronLine {
    text: String,
    zone: Zone,
    cron: Arc<Cron>,
}

impl fmt::Debug for CronLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CronLine({} {})", self.text, self.zone.name())
    }
}

impl PartialEq for CronLine {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.zone.name()) == (&other.text, other.zone.name())
    }
}

impl Eq for CronLine {}

impl CronLine {
    /// Reads a line.
    pub fn parse(line: &str, zone: Zone) -> Result<Self, ScheduleError> {
        if line.chars().count() > MAX_LINE_CHARS {
            return Err(ScheduleError::TooLong);
        }
        let trimmed = line.trim();
        let fields = if trimmed.starts_with('@') { expanded(trimmed)? } else { checked(line)? };
        let never = || never(line, &fields);
        let cron = parse(&fields.join(" ")).ok_or_else(never)?;
        let text =
            if trimmed.starts_with('@') { trimmed.to_ascii_lowercase() } else { fields.join(" ") };
        let read = Self { text, zone, cron: Arc::new(cron) };
        // One that is never due is a mistake, and shows whenever one looks.
        match read.next_after(Millis(0)) {
            Some(_) => Ok(read),
            None => Err(never()),
        }
    }

    /// The line, with one space between fields.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The first instant after a moment; none if there is no more.
    pub fn next_after(&self, at: Millis) -> Option<Millis> {
        // Instants are whole seconds.
        let first = at.0.div_euclid(1_000);
        // What is found lies after what is asked for, or it is asked again from later.
        for from in first..first.saturating_add(4) {
            let zoned = Timestamp::from_second(from).ok()?.to_zoned(self.zone.zone().clone());
            let next = self.cron.find_next_occurrence(&zoned, false).ok()?;
            let next = Millis(next.timestamp().as_millisecond());
            if next > at {
                return Some(next);
            }
        }
        None
    }
}

/// What a nickname stands for.
fn expanded(word: &str) -> Result<Vec<String>, ScheduleError> {
    let known = NICKNAMES.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    let Some((_, line)) = known else {
        return Err(ScheduleError::Nickname { word: crate::json::brief(word) });
    };
    Ok(line.split(' ').map(str::to_owned).collect())
}

/// The fields of a line, in capitals, each of which can be read by itself.
fn checked(line: &str) -> Result<Vec<String>, ScheduleError> {
    let places = places(line);
    let skipped = match places.len() {
        5 => 1,
        6 => 0,
        count => {
            return Err(ScheduleError::Fields { line: crate::json::brief(line.trim()), count });
        }
    };
    let letters: Vec<char> = line.chars().collect();
    let mut fields = Vec::new();
    for (field, place) in Field::ALL.into_iter().skip(skipped).zip(places) {
        let text: String = letters[place.clone()].iter().collect();
        fields.push(check(field, &text, place)?);
    }
    Ok(fields)
}

/// Where the fields are, in characters.
fn places(line: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, letter) in line.chars().enumerate() {
        match found.last_mut() {
            _ if letter.is_whitespace() => {}
            Some(last) if last.end == at => last.end = at + 1,
            _ => found.push(at..at + 1),
        }
    }
    found
}

fn check(field: Field, text: &str, place: Range<usize>) -> Result<String, ScheduleError> {
    let wrong =
        || ScheduleError::Field { field, text: crate::json::brief(text), place: place.clone() };
    if !text.is_ascii() || text.split(',').any(str::is_empty) {
        return Err(wrong());
    }
    let field_text = text.to_ascii_uppercase();
    let words = field_text.split(|letter: char| !letter.is_ascii_alphabetic());
    if !words.filter(|word| !word.is_empty()).all(|word| field.knows(word)) {
        return Err(wrong());
    }
    let alone: Vec<&str> = Field::ALL
        .iter()
        .map(|other| if *other == field { field_text.as_str() } else { "*" })
        .collect();
    if parse(&alone.join(" ")).is_none() {
        return Err(backwards(field, &field_text, text, &place).unwrap_or_else(wrong));
    }
    Ok(field_text)
}

/// A range that goes down, where that is all that is wrong.
fn backwards(
    field: Field,
    field_text: &str,
    text: &str,
    place: &Range<usize>,
) -> Option<ScheduleError> {
    let (least, most) = match field {
        Field::Second | Field::Minute => (0, 59),
        Field::Hour => (0, 23),
        Field::DayOfMonth => (1, 31),
        Field::Month => (1, 12),
        Field::DayOfWeek => (0, 6),
    };
    let (from, to) = field_text.split_once('-')?;
    let value = |word: &str| {
        let named = MONTHS.iter().position(|name| *name == word).map(|at| at + 1);
        let number = word.parse().ok().or(named);
        number.or_else(|| DAYS.iter().position(|name| *name == word))
    };
    let (from, to) = (value(from)?, value(to)?);
    if from <= to || from > most || to < least {
        return None;
    }
    let instead = format!("{from}-{most},{least}-{to}");
    Some(ScheduleError::Backwards { field, text: text.to_owned(), instead, place: place.clone() })
}

fn never(line: &str, fields: &[String]) -> ScheduleError {
    let places = places(line);
    let at = fields.len().saturating_sub(3);
    let text = fields.get(at).cloned().unwrap_or_default();
    ScheduleError::Never { text, place: places.get(at).cloned().unwrap_or(0..0) }
}

fn parse(line: &str) -> Option<Cron> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    parser.parse(line).ok()
}

#[cfg(test)]
#[path = "cron_line_tests.rs"]
mod tests;
