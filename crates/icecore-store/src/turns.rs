//! Turns: the messages of sessions, with the branches that they lie on.

pub(crate) mod append;
pub(crate) mod links;
pub(crate) mod recalled;
pub(crate) mod rows;

use icecore_domain::cut::{CutPolicy, OpenTail};
use icecore_domain::identity::{Link, TurnIdentity};
use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionName, SessionNo, TurnId};
use icecore_domain::redact::{Hidden, RedactedText, RedactedTurn};
use icecore_domain::time::Millis;

use serde_json::{Value as Json, json};

use crate::log::Outcome;
use crate::outcomes::{Claim, Effect};

/// A turn ready to be stored. It cannot be made of what a client sent,
///
/// ```compile_fail,E0308
/// # fn with(other: icecore_store::NewTurn) {
/// use icecore_domain::turn::RawTurn;
/// let turn = icecore_store::NewTurn { turn: RawTurn::new("user", "hello"), ..other };
/// # }
/// ```
///
/// only of what a redactor returned:
///
/// ```
/// # fn with(other: icecore_store::NewTurn) {
/// use icecore_domain::{redact::Redactor, turn::RawTurn};
/// let turn = Redactor::standard().turn(RawTurn::new("user", "hello"));
/// let turn = icecore_store::NewTurn { turn, ..other };
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct NewTurn {
    pub turn: RedactedTurn,
    pub identity: TurnIdentity,
    /// Keyed hash of the raw `name`, by which a subject is found.
    pub speaker: Option<[u8; 16]>,
    /// Lookups of the raw `parentIds`.
    pub parents: Vec<ParentRef>,
    pub tokens: u32,
    /// Its own timestamp, or the time of the append.
    pub at: Millis,
    /// For a turn without id: it is the nth with this body, counted by the caller. With 0
    /// it is always added as a new turn.
    pub occurrence: u32,
    pub session_given: bool,
    pub hidden: Hidden,
    /// What identifies it in a client's history.
    pub link: Option<Link>,
    /// For turns with a link: whether it is an answer that went through us.
    pub is_answer: bool,
    /// For turns with a link: whether it takes the place of a forgotten message, without
    /// its words.
    pub is_hollow: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentRef {
    /// How an error names it.
    pub shown: String,
    /// If it is a client's id.
    pub lookup: i64,
    /// If it is one of our ids.
    pub ours: Option<TurnId>,
}

pub struct AppendBatch {
    pub session: SessionName,
    pub turns: Vec<NewTurn>,
    /// What the first turn with a link follows; without it that turn begins a tree.
    pub after: Option<Link>,
    /// Adds turns even if they were forgotten.
    pub insist: bool,
    /// Sizes for the next macro.
    pub policy: CutPolicy,
    pub now: Millis,
    pub claim: Option<Claim>,
    /// The version of the tenant's secrets with which name and turns were redacted.
    pub secrets_seen: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// 0 after an empty batch for a session that does not exist.
    pub session: SessionNo,
    pub turns: Vec<AppendedTurn>,
    pub position: Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedTurn {
    pub outcome: Outcome,
    pub seq: Seq,
    pub branch: Branch,
    pub ordinal: Ordinal,
}

impl Effect for Appended {
    fn ids(&self) -> Json {
        let count = |wanted| self.turns.iter().filter(|turn| turn.outcome == wanted).count();
        let seqs = || self.turns.iter().map(|turn| turn.seq);
        let id = |seq| TurnId { session: self.session, seq }.to_string();
        json!({
            "turnIds": seqs().map(id).collect::<Vec<_>>(),
            "firstSeq": seqs().min().unwrap_or_default().0,
            "lastSeq": seqs().max().unwrap_or_default().0,
            "added": count(Outcome::Added),
            "known": count(Outcome::Known),
            "forgotten": count(Outcome::Forgotten),
        })
    }
}

#[derive(Debug, Clone)]
pub struct NewRecalled {
    pub session: SessionNo,
    pub link: Link,
    /// The memory's epoch, read before anything that the text tells of.
    pub epoch: u64,
    pub text: RedactedText,
    pub secrets_seen: u64,
}

/// For each link, turns of at most this many sessions are returned.
pub const MOST_LINKED: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnPlace {
    pub id: TurnId,
    pub branch: Branch,
    pub ordinal: Ordinal,
    pub state: TurnState,
}

/// A turn that was found by its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkedTurn {
    pub link: Link,
    pub place: TurnPlace,
    pub is_head: bool,
    /// Whether it or a turn before it is an answer as in [`NewTurn::is_answer`], on this
    /// path or on another of the same messages.
    pub is_answered: bool,
    /// Whether it has no words, because they were forgotten elsewhere.
    pub is_hollow: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    pub no: SessionNo,
    /// Absent once the session was forgotten.
    pub name: Option<SessionName>,
    /// Turns without tombstones.
    pub turns: u64,
    pub tokens: u64,
    pub last_seq: Seq,
    pub updated_at: Millis,
    /// The branch of the last turn, which the next continues.
    pub current: Branch,
    pub branches: Vec<BranchRecord>,
}

/// A branch, and how far its layers have been derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchRecord {
    pub branch: Branch,
    /// Where it forked off: the parent branch and the last turn shared.
    pub fork: Option<(Branch, Ordinal)>,
    pub tail: OpenTail,
    pub head_seq: Seq,
    /// Watermark: micros ending here or before are warm or cold.
    pub warm_through: Ordinal,
    /// Watermark: micros ending here or before are cold.
    pub cold_through: Ordinal,
    /// Watermarks of micro, mini and macro: chunks ending here or before have their
    /// summaries, or had nothing to summarise.
    pub summarized_through: [Ordinal; 3],
    pub version: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct TurnQuery {
    pub session: SessionNo,
    /// Only this branch's own turns.
    pub branch: Option<Branch>,
    /// Exclusive.
    pub after: Seq,
    pub through: Seq,
    /// Only turns that existed at this position.
    pub as_of: Option<Position>,
    /// Finds the newest instead of the oldest; the answer is in order of `seq` anyway.
    pub newest: bool,
    pub limit: usize,
    /// Stops once the bodies found, in the order of the search, have this many bytes.
    pub bytes: usize,
}

impl TurnQuery {
    /// All turns of a session, up to `limit`.
    pub fn all(session: SessionNo, limit: usize) -> Self {
        Self {
            session,
            branch: None,
            after: Seq(0),
            through: Seq(u64::MAX >> 1),
            as_of: None,
            newest: false,
            limit,
            bytes: usize::MAX,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnState {
    Present,
    /// A tombstone: forgotten on request.
    Erased,
    /// Retention deleted its body.
    Expired,
}

/// A turn's row, with its body while that is hot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    pub id: TurnId,
    pub position: Position,
    pub branch: Branch,
    pub ordinal: Ordinal,
    pub tokens: u32,
    /// Its own timestamp, or the time of the append.
    pub at: Millis,
    pub identity: TurnIdentity,
    pub has_client_id: bool,
    pub session_given: bool,
    pub state: TurnState,
    /// Absent if the body is warm, cold or gone.
    pub body: Option<RedactedTurn>,
}

impl TurnRow {
    pub fn place(&self) -> (SessionNo, Branch, Ordinal) {
        (self.id.session, self.branch, self.ordinal)
    }

    pub fn lacks_body(&self) -> bool {
        self.body.is_none() && self.state == TurnState::Present
    }

    pub fn byte_count(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.fields().byte_count())
    }
}

/// The newest state of a scope, with which an index compares its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeHead {
    /// The position of its last turn, or of its last entry that has not been erased.
    pub position: Position,
    pub summaries: u64,
    pub facts: u64,
    /// The position of its last verdict that has not been erased.
    pub verdicts: Position,
    /// Rises when anything is erased.
    pub epoch: u64,
}
