//! What is fed into an index, and the words it is found by.

use icecore_domain::chunk::Level;
use icecore_domain::embed::Vector;
use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionNo};
use icecore_domain::text::dates::{MONTHS, WEEKDAYS};
use icecore_domain::time::Millis;

use crate::analysis;

/// Number of a document in its scope's index, dense, in the order of feeding.
pub type Doc = u32;

/// Place of a name in [`crate::Snapshot::speakers`].
pub type SpeakerNo = u32;

/// Something that can be found.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// What it is, and where the store keeps it. A document with the source of
    /// an older one takes its place.
    pub source: Source,
    /// When it was said, or since when it holds.
    pub at: Millis,
    /// Who speaks, as a role.
    pub role: Role,
    /// Who speaks, by name.
    pub speaker: Option<String>,
    /// Bits that mean something to the caller.
    pub signs: u32,
    /// The text, which is indexed and not stored.
    pub text: String,
    /// One vector for each passage, all by one model. Those of zeros are left out.
    pub vectors: Vec<Vector>,
}

/// What a document is, by the store's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A turn of a conversation.
    Turn {
        session: SessionNo,
        seq: Seq,
        branch: Branch,
    },
    /// The summary of a chunk.
    Summary {
        session: SessionNo,
        branch: Branch,
        level: Level,
        /// First turn of the chunk.
        first: Ordinal,
    },
    /// An entry that somebody put.
    Entry {
        /// Where in the log it was put first.
        began: Position,
    },
    Fact {
        number: u64,
    },
}

/// What a document is, without saying which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocKind {
    Turn,
    /// A summary of a chunk.
    Summary,
    Entry,
    Fact,
}

icecore_domain::words!(DocKind {
    Turn = "turn", Summary = "summary", Entry = "entry", Fact = "fact",
});

impl Source {
    /// What kind of thing it is.
    pub fn kind(&self) -> DocKind {
        match self {
            Source::Turn { .. } => DocKind::Turn,
            Source::Summary { .. } => DocKind::Summary,
            Source::Entry { .. } => DocKind::Entry,
            Source::Fact { .. } => DocKind::Fact,
        }
    }
}

/// Who speaks, as far as ranking cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Role {
    User,
    Assistant,
    /// The host's instructions.
    System,
    /// What a tool answered.
    Tool,
    /// A role of the host's own.
    Other,
    /// Not said by anybody.
    #[default]
    None,
}

impl Role {
    pub(crate) const ALL: [Role; 6] =
        [Role::User, Role::Assistant, Role::System, Role::Tool, Role::Other, Role::None];
}

/// Which words of a document a term is looked up among.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Its text: [`analysis::terms`].
    Content,
    /// The name of its speaker: [`analysis::names`].
    Name,
    /// Its time: `may`, `2024`, `1`, `2024-05-01` and `wednesday`.
    Date,
}

impl Field {
    /// Terms of all fields live in one dictionary; this keeps them apart.
    fn letter(self) -> char {
        match self {
            Field::Content => 'c',
            Field::Name => 'n',
            Field::Date => 'd',
        }
    }

    /// What a term of this field is called in the dictionary.
    pub(crate) fn key(self, term: &str) -> String {
        let mut key = String::with_capacity(term.len() + 1);
        key.push(self.letter());
        key.push_str(term);
        key
    }
}

/// What a document is found by: keys with repetitions, and how many of them are
/// content.
pub(crate) fn keys(document: &Document) -> (Vec<String>, u32) {
    let content = analysis::terms(&document.text);
    let length = content.len() as u32;
    let names = document.speaker.as_deref().map(analysis::names).unwrap_or_default();
    let fields =
        [(Field::Content, content), (Field::Name, names), (Field::Date, date_words(document.at))];
    let keys = fields.iter().flat_map(|(field, terms)| terms.iter().map(|term| field.key(term)));
    (keys.collect(), length)
}

/// How people name a day, in UTC. A moment outside the calendar has no names.
pub fn date_words(at: Millis) -> Vec<String> {
    let Ok(moment) = jiff::Timestamp::from_millisecond(at.0) else { return Vec::new() };
    let date = jiff::tz::TimeZone::UTC.to_datetime(moment).date();
    vec![
        MONTHS[date.month() as usize - 1].to_owned(),
        date.year().to_string(),
        date.day().to_string(),
        date.to_string(),
        WEEKDAYS[date.weekday().to_monday_zero_offset() as usize].to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_the_names_people_use() {
        let at = Millis::parse_rfc3339("2024-05-01T23:59:59Z").unwrap();
        assert_eq!(date_words(at), ["may", "2024", "1", "2024-05-01", "wednesday"]);
        assert_eq!(date_words(Millis(i64::MAX)), Vec::<String>::new());
    }
}
