//! Long-term entries, and what is made of many: one that stands for them
//! ([`compact`]), or the same said once ([`consolidate`]).

pub mod compact;
pub mod consolidate;

use std::collections::BTreeMap;

use crate::time::Millis;

/// The tag of an entry that is an intention: it stays as it is.
pub const COMMITMENT_TAG: &str = "commitment";

/// The tag of what a dream wrote: only the next dream puts another in its place.
pub const DISTILLATE_TAG: &str = "distillate";

/// What the tag of a compacted entry begins with; the name of the run follows.
pub const COMPACTED_FROM: &str = "compacted-from:";

/// An entry as plans read it, its secrets hidden.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    pub id: &'a str,
    pub content: &'a str,
    pub tags: &'a [&'a str],
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
}

impl Entry<'_> {
    /// Whether plans leave it as it is.
    pub fn is_left_alone(&self) -> bool {
        self.tags.contains(&COMMITMENT_TAG) || self.tags.contains(&DISTILLATE_TAG)
    }

    /// Which others it is pressed together with, where entries are kept apart.
    pub fn kind(&self) -> EntryKind {
        EntryKind::new(self.expires_at, self.tags.iter().copied())
    }

    fn is_compacted(&self) -> bool {
        self.tags.iter().any(|tag| tag.starts_with(COMPACTED_FROM))
    }
}

/// What entries have in common that are pressed together where entries are kept apart:
/// the day on which they end, or that they last, and all their tags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryKind {
    end_day: Option<String>,
    tags: Vec<String>,
}

impl EntryKind {
    /// The kind of an entry. Tags that name a run do not count, nor does their order.
    pub fn new<'a>(expires_at: Option<Millis>, tags: impl Iterator<Item = &'a str>) -> Self {
        let tags = tags.filter(|tag| !tag.starts_with(COMPACTED_FROM));
        let mut tags: Vec<String> = tags.map(str::to_owned).collect();
        tags.sort_unstable();
        Self { end_day: expires_at.map(Millis::to_date), tags }
    }

    /// How many tags they have.
    pub fn tag_count(&self) -> usize {
        self.tags.len()
    }
}

/// The entries that plans may change and `is_wanted` accepts, by their tags in any order,
/// each group oldest first.
fn by_tags(entries: &[Entry<'_>], is_wanted: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if !entry.is_left_alone() && is_wanted(at) {
            let mut tags = entry.tags.to_vec();
            tags.sort_unstable();
            groups.entry(tags).or_default().push(at);
        }
    }
    let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
    for group in &mut groups {
        group.sort_by_key(|at| (entries[*at].created_at, entries[*at].id));
    }
    groups
}
