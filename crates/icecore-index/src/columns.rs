//! What is known of each document besides its words and vectors: columns in
//! memory, all of them, committed or not.

use std::collections::{HashMap, HashSet};

use icecore_domain::ids::{Branch, SessionNo};
use icecore_domain::time::Millis;

use crate::document::{Doc, Role, Source, SpeakerNo};

/// One document's line through all columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub source: Source,
    pub at: Millis,
    pub role: Role,
    pub speaker: Option<String>,
    pub signs: u32,
    pub length: u32,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Columns {
    sources: Vec<Source>,
    at: Vec<Millis>,
    roles: Vec<Role>,
    speakers: Vec<Option<std::num::NonZeroU32>>,
    signs: Vec<u32>,
    lengths: Vec<u32>,
    names: Vec<String>,
    lookups: Lookups,
}

/// What follows from the columns, for finding a document by what it is.
#[derive(Debug, Default, Clone)]
struct Lookups {
    name_numbers: HashMap<String, SpeakerNo>,
    /// Turns of a session's branch, by `seq`.
    turns: HashMap<(SessionNo, Branch), Vec<Doc>>,
    others: HashMap<Source, Doc>,
    /// Documents whose source was fed again later.
    superseded: HashSet<Doc>,
    turn_count: u64,
    turn_length: u64,
}

impl Columns {
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// About how many bytes it takes: the columns, and a number or two for each document
    /// by which it is found.
    pub fn memory_bytes(&self) -> usize {
        let one =
            size_of::<Source>() + size_of::<Millis>() + size_of::<Role>() + 3 * size_of::<u32>();
        self.len() * (one + 2 * size_of::<u64>())
    }

    pub fn push(&mut self, record: Record) -> Doc {
        let doc = self.len() as Doc;
        let speaker = record.speaker.map(|name| self.name_number(name));
        self.sources.push(record.source);
        self.at.push(record.at);
        self.roles.push(record.role);
        self.speakers.push(speaker.and_then(|number| std::num::NonZeroU32::new(number + 1)));
        self.signs.push(record.signs);
        self.lengths.push(record.length);
        self.look_up(doc);
        doc
    }

    fn name_number(&mut self, name: String) -> SpeakerNo {
        if let Some(number) = self.lookups.name_numbers.get(&name) {
            return *number;
        }
        let number = self.names.len() as SpeakerNo;
        self.names.push(name.clone());
        self.lookups.name_numbers.insert(name, number);
        number
    }

    /// Adds a document, whose columns are there, to the lookups.
    fn look_up(&mut self, doc: Doc) {
        let source = self.source(doc);
        let before = match source {
            Source::Turn { session, branch, .. } => {
                self.lookups.turn_count += 1;
                self.lookups.turn_length += u64::from(self.length(doc));
                let turns = self.lookups.turns.entry((session, branch)).or_default();
                place(turns, &self.sources, doc)
            }
            _ => self.lookups.others.insert(source, doc),
        };
        self.lookups.superseded.extend(before);
    }

    #[cfg(test)]
    pub fn record(&self, doc: Doc) -> Record {
        Record {
            source: self.source(doc),
            at: self.at(doc),
            role: self.role(doc),
            speaker: self.speaker(doc).map(|number| self.names[number as usize].clone()),
            signs: self.signs(doc),
            length: self.length(doc),
        }
    }

    pub fn source(&self, doc: Doc) -> Source {
        self.sources[doc as usize]
    }

    pub fn at(&self, doc: Doc) -> Millis {
        self.at[doc as usize]
    }

    pub fn role(&self, doc: Doc) -> Role {
        self.roles[doc as usize]
    }

    pub fn speaker(&self, doc: Doc) -> Option<SpeakerNo> {
        self.speakers[doc as usize].map(|number| number.get() - 1)
    }

    pub fn signs(&self, doc: Doc) -> u32 {
        self.signs[doc as usize]
    }

    pub fn all_signs(&self) -> &[u32] {
        &self.signs
    }

    pub fn length(&self, doc: Doc) -> u32 {
        self.lengths[doc as usize]
    }

    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn superseded(&self, doc: Doc) -> bool {
        self.lookups.superseded.contains(&doc)
    }

    pub fn turn_count(&self) -> u64 {
        self.lookups.turn_count
    }

    pub fn average_length(&self) -> f64 {
        match self.lookups.turn_count {
            0 => 0.0,
            count => self.lookups.turn_length as f64 / count as f64,
        }
    }

    pub fn turns_of(&self, session: SessionNo, branch: Branch) -> &[Doc] {
        self.lookups.turns.get(&(session, branch)).map_or(&[], Vec::as_slice)
    }

    pub fn doc_of(&self, source: Source) -> Option<Doc> {
        match source {
            Source::Turn { session, branch, .. } => {
                let turns = self.turns_of(session, branch);
                find(turns, &self.sources, source).ok().map(|place| turns[place])
            }
            _ => self.lookups.others.get(&source).copied(),
        }
    }

    pub fn neighbour(&self, doc: Doc, offset: i32) -> Option<Doc> {
        let source = self.source(doc);
        let Source::Turn { session, branch, .. } = source else { return None };
        let turns = self.turns_of(session, branch);
        let place = find(turns, &self.sources, source).ok()?;
        turns.get(place.checked_add_signed(offset as isize)?).copied()
    }
}

/// Where the turn `source` stands, or would, among the turns of its branch.
fn find(turns: &[Doc], sources: &[Source], source: Source) -> Result<usize, usize> {
    turns.binary_search_by(|doc| sources[*doc as usize].cmp(&source))
}

/// Puts a turn in its place; returns the one that stood there for the same turn.
fn place(turns: &mut Vec<Doc>, sources: &[Source], doc: Doc) -> Option<Doc> {
    let source = sources[doc as usize];
    // Nearly always a turn is the newest of its branch.
    if turns.last().is_none_or(|last| sources[*last as usize] < source) {
        turns.push(doc);
        return None;
    }
    match find(turns, sources, source) {
        Ok(place) => Some(std::mem::replace(&mut turns[place], doc)),
        Err(place) => {
            turns.insert(place, doc);
            None
        }
    }
}
