//! Erasing and rewriting what is stored: the requests, and what they were prepared from.

pub(crate) mod dreams;
pub(crate) mod entries;
pub(crate) mod facts;
pub(crate) mod rewrite;
pub(crate) mod turns;

use icecore_domain::chunk::ChunkId;
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionName, SessionNo};
use icecore_domain::redact::{Hidden, RedactedText, RedactedTurn};
use icecore_domain::text::normalise;
use icecore_domain::time::Millis;

use crate::layers::{NewPack, TextBody};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    Session(SessionName),
    /// Turns by the keyed hash of their `name`; entries by the tag `subject:NAME`;
    /// facts and verdicts by their subject, normalised as in their keys.
    Subject {
        /// Hash of the name, made as identities are.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    pub scope: Scope,
    pub session: SessionNo,
    pub branch: Branch,
    pub turns: Vec<(Seq, Ordinal)>,
    /// Whether that is the whole session, name and all.
    pub whole_session: bool,
}

#[derive(Debug, Clone)]
pub struct Erasure {
    pub session: SessionNo,
    pub branch: Branch,
    pub seqs: Vec<Seq>,
    /// Ranges of ordinals of which nothing is left afterwards.
    pub emptied: Vec<(Ordinal, Ordinal)>,
    /// Also forget the session's name, if no turn of it is left.
    pub forget_name: bool,
    /// Micros that hold any of the turns, with revision as read and, for those whose
    /// body is text, the text without them.
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
    /// Macros whose pack held any of the turns: the old pack's name and the new pack,
    /// if anything is left.
    pub packs: Vec<(ChunkId, String, Option<NewPack>)>,
    pub now: Millis,
}

impl Erasure {
    fn seen(&self) -> Seen<'_> {
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

#[derive(Debug, Clone)]
pub struct Rewrite {
    pub session: SessionNo,
    pub branch: Branch,
    pub turns: Vec<RewrittenTurn>,
    /// Micros that hold any of the turns, with revision as read and, for those whose
    /// body is text, the new text.
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
    /// Macros whose pack held any of the turns: the old pack's name and the new pack.
    pub packs: Vec<(ChunkId, String, NewPack)>,
    pub now: Millis,
}

/// A turn in which more is hidden than before.
#[derive(Debug, Clone)]
pub struct RewrittenTurn {
    pub seq: Seq,
    /// Tokens of its searchable text now.
    pub tokens: u32,
    /// What is newly hidden; added to its counts.
    pub hidden: Hidden,
    pub body: Option<RedactedTurn>,
}

impl Rewrite {
    fn seen(&self) -> Seen<'_> {
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

/// What a change to bodies of one branch was prepared from.
struct Seen<'a> {
    session: SessionNo,
    branch: Branch,
    seqs: Vec<Seq>,
    micros: &'a [(ChunkId, u32, Option<TextBody>)],
    /// The macros whose packs change, with the packs' names.
    packs: Vec<(&'a ChunkId, &'a str)>,
    /// Ranges of ordinals of which nothing is left afterwards.
    emptied: &'a [(Ordinal, Ordinal)],
}
