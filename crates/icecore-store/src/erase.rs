pub(crate) mod dreams;
pub(crate) mod entries;
pub(crate) mod facts;
pub(crate) mod rewrite;
pub(crate) mod turns;

use icecore_domain::chunk::ChunkId;
use icecore_domain::fact::normalise;
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionName, SessionNo};
use icecore_domain::redact::{Hidden, RedactedText, RedactedTurn};
use icecore_domain::time::Millis;

use crate::layers::{NewPack, TextBody};

/// What to erase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// A whole session.
    Session(SessionName),
    /// Turns by the keyed hash of their `name`; entries by the tag `subject:NAME`;
    /// facts and verdicts by their subject, normalised as in their keys.
    Subject {
        /// Hash of the name as identities are hashed.
        hash: [u8; 16],
        /// The tag that an entry would have, redacted.
        tag: RedactedText,
    },
    /// Turns, entries, facts and verdicts whose own time is before this.
    Before(Millis),
    /// One entry; or, by a fact's id, all that say it.
    Entry(String),
}

impl Selector {
    /// The subject as facts and verdicts have it, if there is one.
    pub(crate) fn subject(&self) -> Option<String> {
        let Selector::Subject { tag, .. } = self else { return None };
        let name = tag.as_str().strip_prefix("subject:")?;
        Some(normalise(name)).filter(|name| !name.is_empty())
    }
}

/// Turns of one session that are to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Whose.
    pub scope: Scope,
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// The turns, in order.
    pub turns: Vec<(Seq, Ordinal)>,
    /// Whether that is the whole session, name and all.
    pub whole_session: bool,
}

/// An erasure in one branch of a session.
#[derive(Debug, Clone)]
pub struct Erasure {
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// Which turns.
    pub seqs: Vec<Seq>,
    /// Ranges of ordinals of which nothing is left afterwards.
    pub emptied: Vec<(Ordinal, Ordinal)>,
    /// Also forget the session's name, if no turn of it is left.
    pub forget_name: bool,
    /// Micros that hold any of them, with revision as read and, for those whose
    /// body is text, the text without them.
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
    /// Macros whose pack held any of them: the old pack's name and the new pack,
    /// if anything is left.
    pub packs: Vec<(ChunkId, String, Option<NewPack>)>,
    /// When.
    pub now: Millis,
}

impl Erasure {
    /// Whether every turn of the range goes, as far as the caller knows.
    pub fn covers(&self, first: Ordinal, last: Ordinal) -> bool {
        self.seen().covers(first, last)
    }

    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen {
            session: self.session,
            branch: self.branch,
            seqs: self.seqs.clone(),
            micros: &self.micros,
            packs: self.packs.iter().map(|(id, old, _)| (id, old.as_str())).collect(),
            emptied: &self.emptied,
        }
    }
}

/// Bodies of one branch of a session to be put anew.
#[derive(Debug, Clone)]
pub struct Rewrite {
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// Which turns, each once.
    pub turns: Vec<RewrittenTurn>,
    /// Micros that hold any of them, with revision as read and, for those whose
    /// body is text, the new text.
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
    /// Macros whose pack held any of them: the old pack's name and the new pack.
    pub packs: Vec<(ChunkId, String, NewPack)>,
    /// When.
    pub now: Millis,
}

/// A turn in which more is hidden than was.
#[derive(Debug, Clone)]
pub struct RewrittenTurn {
    /// Which.
    pub seq: Seq,
    /// Tokens of its searchable text now.
    pub tokens: u32,
    /// What is hidden now and was not; added to its counts.
    pub hidden: Hidden,
    /// Its fields, if they are in its row.
    pub body: Option<RedactedTurn>,
}

impl Rewrite {
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen {
            session: self.session,
            branch: self.branch,
            seqs: self.turns.iter().map(|turn| turn.seq).collect(),
            micros: &self.micros,
            packs: self.packs.iter().map(|(id, old, _)| (id, old.as_str())).collect(),
            emptied: &[],
        }
    }
}

/// What a change to bodies of one branch was put together from.
pub(crate) struct Seen<'a> {
    pub(crate) session: SessionNo,
    pub(crate) branch: Branch,
    /// The turns that change.
    pub(crate) seqs: Vec<Seq>,
    pub(crate) micros: &'a [(ChunkId, u32, Option<TextBody>)],
    /// The macros whose packs change, with the packs' names.
    pub(crate) packs: Vec<(&'a ChunkId, &'a str)>,
    /// Ranges of ordinals of which nothing is left afterwards.
    pub(crate) emptied: &'a [(Ordinal, Ordinal)],
}

impl Seen<'_> {
    /// Whether nothing of the range is left afterwards.
    pub(crate) fn covers(&self, first: Ordinal, last: Ordinal) -> bool {
        self.emptied.iter().any(|(from, to)| *from <= first && last <= *to)
    }
}
