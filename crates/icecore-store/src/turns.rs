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

use crate::error::StoreError;
use crate::log::Outcome;
use crate::outcomes::{Claim, Effect};

/// What an append is that follows a message which its session does not have.
pub(crate) fn no_earlier_message(session: &SessionName) -> StoreError {
    let (parent, session) = ("the message before", session.as_str().to_owned());
    StoreError::NoParent { index: 0, parent: parent.to_owned(), session }
}

/// A turn ready to be stored. What a client sent is not: this does not compile,
///
/// ```compile_fail,E0308
/// # fn with(other: icecore_store::NewTurn) {
/// use icecore_domain::turn::RawTurn;
/// let turn = icecore_store::NewTurn { turn: RawTurn::new("user", "hello"), ..other };
/// # }
/// ```
///
/// and what a redactor made of it is:
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
    /// Its fields.
    pub turn: RedactedTurn,
    /// From its raw body.
    pub identity: TurnIdentity,
    /// Keyed hash of its raw `name`, by which a subject is found.
    pub speaker: Option<[u8; 16]>,
    /// Lookups of its raw `parentIds`.
    pub parents: Vec<ParentRef>,
    /// Tokens of its searchable text.
    pub tokens: u32,
    /// Its own timestamp, or the time of the append.
    pub at: Millis,
    /// For a turn without id: it is the nth with this body, counted by the
    /// caller. 0: it is a new turn whatever is there.
    pub occurrence: u32,
    /// Whether its line named the session.
    pub session_given: bool,
    /// What was hidden in it.
    pub hidden: Hidden,
    /// By what it is known in a client's history.
    pub link: Option<Link>,
    /// Whether it is an answer that went through us; of turns with a link.
    pub is_answer: bool,
    /// Whether it stands without words for a message that was forgotten; of turns with a
    /// link.
    pub is_hollow: bool,
}

/// A parent as named by a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentRef {
    /// How an error names it.
    pub shown: String,
    /// If it is a client's id.
    pub lookup: i64,
    /// If it is one of ours.
    pub ours: Option<TurnId>,
}

/// Turns for one session.
pub struct AppendBatch {
    /// Which.
    pub session: SessionName,
    /// What.
    pub turns: Vec<NewTurn>,
    /// What the first turn with a link follows; without, that begins a tree.
    pub after: Option<Link>,
    /// Adds turns even if they were forgotten.
    pub insist: bool,
    /// Sizes for the next macro.
    pub policy: CutPolicy,
    /// The time of the append.
    pub now: Millis,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim>,
    /// The version of the tenant's secrets with which name and turns were redacted.
    pub secrets_seen: u64,
}

/// The answer to an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The session's number; 0 when an empty batch was for a session that is not.
    pub session: SessionNo,
    /// For each turn of the batch, in order.
    pub turns: Vec<AppendedTurn>,
    /// The last position given.
    pub position: Position,
}

/// One turn of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedTurn {
    /// What became of it.
    pub outcome: Outcome,
    /// Where it is.
    pub seq: Seq,
    /// On which branch.
    pub branch: Branch,
    /// Which of the branch's own turns it is.
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

/// What memory puts before a message.
#[derive(Debug, Clone)]
pub struct NewRecalled {
    /// The session that holds the message.
    pub session: SessionNo,
    /// The message.
    pub link: Link,
    /// The memory's epoch as it was before anything was read that it tells of.
    pub epoch: u64,
    /// What it says.
    pub text: RedactedText,
    /// The version of the tenant's secrets that it was redacted with.
    pub secrets_seen: u64,
}

/// Of one link, turns of so many sessions are answered.
pub const MOST_LINKED: usize = 64;

/// Where a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnPlace {
    /// Session and `seq`.
    pub id: TurnId,
    /// Which branch it belongs to.
    pub branch: Branch,
    /// Which of the branch's own turns it is.
    pub ordinal: Ordinal,
    /// Whether it is there.
    pub state: TurnState,
}

/// A turn that was found by its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkedTurn {
    /// The link.
    pub link: Link,
    /// Where the turn is.
    pub place: TurnPlace,
    /// Whether it is the last of its branch.
    pub is_head: bool,
    /// Whether an answer of [`NewTurn::is_answer`] stands there or before, on this path or
    /// on another of the same messages.
    pub is_answered: bool,
    /// Whether it has no words, because they were forgotten elsewhere.
    pub is_hollow: bool,
}

/// A session as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub no: SessionNo,
    /// Its name; gone if it was forgotten.
    pub name: Option<SessionName>,
    /// Turns that are there.
    pub turns: u64,
    /// Their tokens.
    pub tokens: u64,
    /// The last `seq` given.
    pub last_seq: Seq,
    /// When it was last appended to.
    pub updated_at: Millis,
    /// The branch of the last turn, which the next continues.
    pub current: Branch,
    /// Its branches, main first.
    pub branches: Vec<BranchRecord>,
}

/// A branch and how far its layers have been derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchRecord {
    /// Which.
    pub branch: Branch,
    /// Where it forked off: the parent branch and the last turn shared.
    pub fork: Option<(Branch, Ordinal)>,
    /// Its end: what is open there.
    pub tail: OpenTail,
    /// The last turn's `seq`.
    pub head_seq: Seq,
    /// Micros ending here or before are warm or cold.
    pub warm_through: Ordinal,
    /// Micros ending here or before are cold.
    pub cold_through: Ordinal,
    /// Chunks of each level (micro, mini, macro) ending here or before have
    /// their summaries, or had nothing to summarise.
    pub summarized_through: [Ordinal; 3],
    /// Rises with every change.
    pub version: u64,
}

/// Which turns to read.
#[derive(Debug, Clone, Copy)]
pub struct TurnQuery {
    /// Of which session.
    pub session: SessionNo,
    /// Only of this branch's own turns.
    pub branch: Option<Branch>,
    /// Exclusive.
    pub after: Seq,
    /// Inclusive.
    pub through: Seq,
    /// Only what was there at this position.
    pub as_of: Option<Position>,
    /// The newest of them instead of the oldest; the answer is in order anyway.
    pub newest: bool,
    /// At most so many.
    pub limit: usize,
    /// No further ones, in the order they are looked for, once those found have so
    /// many bytes in their rows.
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

    /// Whether the rows so far, which have so many bytes, are all it wants; counts
    /// this one to them.
    pub(crate) fn is_full(&self, so_far: &mut usize, row: &TurnRow) -> bool {
        let full = *so_far >= self.bytes;
        *so_far = so_far.saturating_add(row.byte_count());
        full
    }
}

impl TurnRow {
    /// Where it is in its session.
    pub fn place(&self) -> (SessionNo, Branch, Ordinal) {
        (self.id.session, self.branch, self.ordinal)
    }

    /// Whether its body is elsewhere than in its row.
    pub fn lacks_body(&self) -> bool {
        self.body.is_none() && self.state == TurnState::Present
    }

    /// Bytes of the body in its row.
    pub fn byte_count(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.fields().byte_count())
    }
}

/// How a turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnState {
    /// It is there.
    Present,
    /// A tombstone: forgotten on request.
    Erased,
    /// Its body was let go by retention.
    Expired,
}

/// A turn's row, with its body while that is hot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// Session and `seq`.
    pub id: TurnId,
    /// In the tenant's log.
    pub position: Position,
    /// Which branch it belongs to.
    pub branch: Branch,
    /// Which of the branch's own turns it is.
    pub ordinal: Ordinal,
    /// Tokens of its searchable text.
    pub tokens: u32,
    /// Its own timestamp, or the time of the append.
    pub at: Millis,
    /// Identity of the raw body.
    pub identity: TurnIdentity,
    /// Whether the client gave an id.
    pub has_client_id: bool,
    /// Whether its line named the session.
    pub session_given: bool,
    /// Whether it is there.
    pub state: TurnState,
    /// Its fields, if they are in its row.
    pub body: Option<RedactedTurn>,
}

/// Where a scope stands: what an index compares itself with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeHead {
    /// Where it last got a turn, or an entry that has not been erased.
    pub position: Position,
    /// The last number given to a summary.
    pub summaries: u64,
    /// The last number given to a fact.
    pub facts: u64,
    /// Where the last verdict was put that has not been erased.
    pub verdicts: Position,
    /// Rises when anything is erased.
    pub epoch: u64,
}
