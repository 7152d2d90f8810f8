//! What a query asks for, read once before anything is looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use icecore_domain::time::Millis;
use regex::Regex;

use crate::analysis;
use crate::document::SpeakerNo;
use crate::lemma::is_stopword;
use crate::snapshot::Snapshot;

/// Terms of a query that are looked up at most; of more, the rarest.
pub const MAX_TERMS: usize = 32;

/// A name is recognised by its beginning from this many letters on.
const NICKNAME_CHARS: usize = 3;

/// A query as it is understood.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// What is looked up, without names of speakers, each once.
    pub(crate) terms: Vec<String>,
    /// The same in the order of the query, for pairs of neighbouring words.
    pub(crate) sequence: Vec<String>,
    /// Whose words are asked for, in the order in which they are named.
    pub(crate) speakers: Vec<SpeakerNo>,
    /// Days that the query names.
    pub(crate) dates: Dates,
    /// What kind of answer it wants.
    pub(crate) cues: Cues,
    meaning: String,
    /// The query's own word for each term.
    shown: BTreeMap<String, String>,
}

/// What kind of answer a query wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cues {
    /// Somebody asks about themselves.
    pub(crate) first_person: bool,
    pub(crate) when: bool,
    /// Help with a task, for which standing wishes matter.
    pub(crate) request: bool,
    /// Something that is described and not named.
    pub(crate) description: bool,
}

impl Plan {
    /// Reads a query against a scope's speakers.
    pub fn read(snapshot: &Snapshot, query: &str) -> Self {
        let named = named_speakers(snapshot.speakers(), query);
        let names: BTreeSet<&str> = named.iter().map(|named| named.word.as_str()).collect();
        let words = analysis::words(query);
        let surface = |word: &analysis::Word| query[word.range.clone()].to_lowercase();
        let is_name = |word: &analysis::Word| {
            let surface = surface(word);
            names.contains(surface.trim_end_matches("'s").trim_end_matches("’s"))
        };
        let sequence: Vec<String> =
            words.iter().filter(|word| !is_name(word)).map(|word| word.term.clone()).collect();
        let mut seen = BTreeSet::new();
        let terms = sequence.iter().filter(|term| seen.insert(term.as_str())).cloned().collect();
        let mut shown = BTreeMap::new();
        for word in &words {
            shown.entry(word.term.clone()).or_insert_with(|| surface(word));
        }
        let mut speakers: Vec<SpeakerNo> = Vec::new();
        for named in &named {
            if !speakers.contains(&named.speaker) {
                speakers.push(named.speaker);
            }
        }
        Self {
            terms,
            sequence,
            cues: Cues::read(query, speakers.is_empty()),
            speakers,
            shown,
            dates: Dates::read(query),
            meaning: without_names(query, &words, is_name),
        }
    }

    /// The query's own word for a term.
    pub(crate) fn word(&self, term: &str) -> String {
        self.shown.get(term).cloned().unwrap_or_else(|| term.to_owned())
    }

    /// The query without the names of speakers: who speaks is a signal of its
    /// own, and a name draws a vector to every turn that calls somebody by it.
    pub fn meaning(&self) -> &str {
        &self.meaning
    }
}

impl Plan {
    /// How many pairs of neighbouring words it shares with a text, up to three of
    /// them, from 0 to 1. Words that say nothing do not part neighbours.
    pub(crate) fn pairs_in(&self, text: &str) -> f32 {
        let wanted: BTreeSet<(&str, &str)> =
            self.sequence.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        if wanted.is_empty() {
            return 0.0;
        }
        let words = analysis::terms(text);
        let held: BTreeSet<(&str, &str)> = words
            .windows(2)
            .map(|pair| (pair[0].as_str(), pair[1].as_str()))
            .filter(|pair| wanted.contains(pair))
            .collect();
        held.len().min(MAX_PAIRS) as f32 / MAX_PAIRS as f32
    }
}

impl Plan {
    /// Where in a text the sentence begins that holds most of the query's terms.
    pub fn focus(&self, text: &str) -> usize {
        let wanted: BTreeSet<&str> = self.terms.iter().map(String::as_str).collect();
        let (mut best, mut start) = ((0, 0), 0);
        let ends = analysis::sentence_ends(text).map(|(end, _)| end);
        for end in ends.chain([text.len()]) {
            let sentence = &text[start..end];
            let terms: BTreeSet<String> = analysis::terms(sentence).into_iter().collect();
            let held = terms.iter().filter(|term| wanted.contains(term.as_str())).count();
            if held > best.0 {
                best = (held, start + sentence.len() - sentence.trim_start().len());
            }
            start = end;
        }
        best.1
    }
}

impl Plan {
    /// Whether the query describes somebody or something instead of naming them,
    /// as in "the person who took over": then who that is must be found first.
    pub fn describes(&self) -> bool {
        self.cues.description
    }

    /// Names in a text that the query does not have: words with a capital, beside
    /// each other or inside a sentence, in order, each once.
    pub fn new_names(&self, text: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for run in CAPITALS.find_iter(text) {
            let is_inside = run.as_str().contains(' ') || {
                let before = text[..run.start()].trim_end();
                !before.is_empty() && !before.ends_with(['.', '!', '?', ':', '\n', '"', '“'])
            };
            for word in run.as_str().split(' ').filter(|_| is_inside) {
                let known = |term: &String| self.terms.contains(term);
                let is_new = analysis::terms(word).iter().any(|term| !known(term))
                    && !CALENDAR.is_match(word);
                if is_new && !found.iter().any(|name| name == word) {
                    found.push(word.to_owned());
                }
            }
        }
        found
    }
}

/// More pairs than this say no more.
const MAX_PAIRS: usize = 3;

struct Named {
    speaker: SpeakerNo,
    /// The query's word for them, in lower case.
    word: String,
}

/// The speakers that a query names, by a part of their name or its beginning.
fn named_speakers(speakers: &[String], query: &str) -> Vec<Named> {
    let words: Vec<(String, bool)> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= NICKNAME_CHARS)
        .map(|word| (word.to_lowercase(), word.starts_with(char::is_uppercase)))
        .collect();
    let mut found: Vec<(usize, Named)> = Vec::new();
    for (number, name) in speakers.iter().enumerate() {
        let lower = name.to_lowercase();
        for part in lower.split(|c: char| !c.is_alphanumeric()) {
            if part.chars().count() < NICKNAME_CHARS {
                continue;
            }
            let is_meant = |(word, is_capital): &(String, bool)| {
                word == part
                    || (*is_capital && part.starts_with(word.as_str()) && !is_stopword(word))
            };
            for (place, (word, _)) in words.iter().enumerate().filter(|(_, word)| is_meant(word)) {
                found.push((place, Named { speaker: number as SpeakerNo, word: word.clone() }));
            }
        }
    }
    found.sort_by_key(|(place, named)| (*place, named.speaker));
    found.into_iter().map(|(_, named)| named).collect()
}

fn without_names(
    query: &str,
    words: &[analysis::Word],
    is_name: impl Fn(&analysis::Word) -> bool,
) -> String {
    let mut kept = String::with_capacity(query.len());
    let mut end = 0;
    for word in words.iter().filter(|word| is_name(word)) {
        kept.push_str(&query[end..word.range.start]);
        end = word.range.end;
    }
    kept.push_str(&query[end..]);
    if kept.chars().any(char::is_alphanumeric) { kept } else { query.to_owned() }
}

impl Cues {
    fn read(query: &str, nobody_named: bool) -> Self {
        let assistant = ASSISTANT_SAID.is_match(query);
        Self {
            first_person: nobody_named && !assistant && FIRST_PERSON.is_match(query),
            when: WHEN.is_match(query),
            request: REQUEST.is_match(query),
            description: DESCRIPTION.is_match(query),
        }
    }
}

/// Months, years and days that a query names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Dates {
    months: Vec<i8>,
    years: Vec<i16>,
    days: Vec<i8>,
}

/// Something is told some days after it happened, and planned a few before.
const TOLD_AFTER_DAYS: i32 = 14;
const PLANNED_BEFORE_DAYS: i32 = 3;
const NEARNESS_DAYS: f32 = 20.0;

impl Dates {
    fn read(query: &str) -> Self {
        let months: Vec<i8> = MONTH
            .captures_iter(query)
            .filter_map(|found| found.iter().skip(1).position(|month| month.is_some()))
            .map(|month| month as i8 + 1)
            .collect();
        let numbers = |pattern: &LazyLock<Regex>| -> Vec<i16> {
            let all = pattern.captures_iter(query);
            all.filter_map(|found| found.get(1)?.as_str().parse().ok()).collect()
        };
        let mut days: Vec<i8> = Vec::new();
        if !months.is_empty() {
            days.extend(
                numbers(&DAY).iter().filter(|day| (1..=31).contains(*day)).map(|day| *day as i8),
            );
        }
        Self { months, years: numbers(&YEAR), days }
    }

    /// Whether the query names any day.
    pub(crate) fn is_empty(&self) -> bool {
        self.months.is_empty() && self.years.is_empty()
    }

    /// How well a moment fits what the query names, from 0 to 1.
    pub(crate) fn fit(&self, at: Millis) -> f32 {
        let Ok(moment) = jiff::Timestamp::from_millisecond(at.0) else { return 0.0 };
        let date = jiff::tz::TimeZone::UTC.to_datetime(moment).date();
        if self.months.is_empty() {
            return if self.years.contains(&date.year()) { 0.3 } else { 0.0 };
        }
        let mut best = 0.0_f32;
        for &month in &self.months {
            let own = [date.year()];
            for &year in if self.years.is_empty() { &own[..] } else { &self.years[..] } {
                best = best.max(self.fit_month(date, year, month));
            }
        }
        best
    }

    fn fit_month(&self, date: jiff::civil::Date, year: i16, month: i8) -> f32 {
        if self.days.is_empty() {
            let is_next = date.month() == month % 12 + 1 && date.day() <= 15;
            return match date.year() == year {
                true if date.month() == month => 1.0,
                true if is_next => 0.5,
                _ => 0.0,
            };
        }
        let near = |day: &i8| {
            let named = jiff::civil::Date::new(year, month, *day).ok()?;
            let after = date.since(named).ok()?.get_days();
            let is_near = (-PLANNED_BEFORE_DAYS..=TOLD_AFTER_DAYS).contains(&after);
            is_near.then(|| 1.0 - after.max(-2 * after) as f32 / NEARNESS_DAYS)
        };
        self.days.iter().filter_map(near).fold(0.0, f32::max)
    }
}

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("our own patterns are well formed")
}

/// One group for each month. `May` and `March` are also other words: they count
/// with a capital, or beside a number or a word such as `in`.
static MONTH: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x)
        \b(?:(?i:(january))|(?i:(february))|(March|(?i:(?:in|of|on|during|by|since|until|\d+(?:st|nd|rd|th)?,?)\ march|march\ (?:\d|of\b)))
        |(?i:(april))|(May|(?i:(?:in|of|on|during|by|since|until|\d+(?:st|nd|rd|th)?,?)\ may|may\ (?:\d|of\b)))
        |(?i:(june))|(?i:(july))|(?i:(august))|(?i:(september))|(?i:(october))|(?i:(november))|(?i:(december)))",
    )
});
static YEAR: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b((?:19|20)\d\d)\b"));
static DAY: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(\d{1,2})(?:st|nd|rd|th)?\b"));
static FIRST_PERSON: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(?:i|my|me|mine|i['’](?:m|ve|d|ll)|we|our|us)\b"));
static ASSISTANT_SAID: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:did|have|had) you\b|\byou (?:said|told|recommended|suggested|mentioned|gave|explained|provided|advised|proposed|described)\b|\byour (?:recommendation|suggestion|advice|explanation|answer|response)s?\b",
    )
});
static WHEN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bwhen\b|what (?:date|day|month|year|time)|how long|how (?:many|much) (?:days|weeks|months|years|time)|which (?:month|year|day)",
    )
});
static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^(?:hey|hi|ok|so|please)?[, ]*(?:can|could|would|will) you |\bhow (?:do|can|should|would|could) i\b|\b(?:would|do|can) you (?:suggest|recommend|think|advise|help)\b|\bwhat (?:\w+ ){0,5}(?:should|would|could|can) (?:i|you)\b|\bwhat are (?:some|the)\b|\bwhich \w+ (?:should|would|are|do)\b|\bi(?:['’]m| am) (?:planning|about to|looking|trying|thinking|working|updating|applying|going|considering|starting|preparing)\b|\bhelp me\b|\bshow me\b|\bwalk me\b|\bexplain\b",
    )
});
static DESCRIPTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(?:the|a|an) (?:\w+ ){1,2}(?:who|whose|whom|which|that|where)\b")
});
static CALENDAR: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July|August|September|October|November|December)$",
    )
});
static CAPITALS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b\p{Lu}\p{Ll}{2,}(?: \p{Lu}\p{Ll}{2,})*\b"));

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(query: &str) -> Plan {
        let index = crate::Index::open(None, crate::IndexSettings::default());
        let person = icecore_domain::ids::Principal::local_operator(
            icecore_domain::ids::Tenant::new("me").unwrap(),
        );
        let redactor = icecore_domain::redact::Redactor::standard();
        let scope = index.scope(&person.scope(redactor.text("m")).unwrap()).unwrap();
        Plan::read(&scope.read(), query)
    }

    #[test]
    fn a_description_is_told_from_a_name() {
        assert!(plan("What does the person who took over from Jonah eat?").describes());
        assert!(!plan("What does Jonah eat, and who cooks?").describes());
        let names = plan("Who took over from Jonah?")
            .new_names("Jonah is ill. Sigrún Dalberg takes over, she is from Bergen. Good!");
        assert_eq!(names, ["Sigrún", "Dalberg", "Bergen"]);
    }

    #[test]
    fn dates_fit_the_days_around_them() {
        let fit =
            |query: &str, at: &str| Dates::read(query).fit(Millis::parse_rfc3339(at).unwrap());
        assert_eq!(fit("What happened in May 2023?", "2023-05-08T10:00:00Z"), 1.0);
        assert_eq!(fit("What happened in May 2023?", "2023-06-08T10:00:00Z"), 0.5);
        assert_eq!(fit("What happened in May 2023?", "2022-05-08T10:00:00Z"), 0.0);
        assert_eq!(fit("on 7 May, 2023", "2023-05-07T10:00:00Z"), 1.0);
        assert!(fit("on 7 May, 2023", "2023-05-09T10:00:00Z") > 0.8);
        assert_eq!(fit("since 2022", "2022-01-01T10:00:00Z"), 0.3);
        assert!(Dates::read("You may march on").is_empty());
    }
}
