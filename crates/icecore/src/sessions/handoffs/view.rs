//! Reading the API view of a branch, without what its handoff stands for.

use icecore_domain::handoff::{Message, request_tokens};
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::RedactedTurn;
use icecore_store::{HandoffRecord, SessionRecord, TurnQuery, TurnRow};

use super::{ApiView, HandoffInfo};
use crate::error::{MemoryError, Result};
use crate::layers::history::{PAGE, StoredTurn, lineage};
use crate::sessions::Sessions;

/// Turns read at once while looking for the end of a system prompt.
const SYSTEM_PAGE: usize = 4;

/// Turns read at once while looking for what came after a handoff; the next time twice
/// as many.
const FIRST_PAGE: usize = 16;

/// A branch as it was read, and by what it is known whether it is still so.
pub(super) struct Reading {
    pub(super) session: SessionRecord,
    pub(super) branch: Branch,
    /// Branches root first, each with its last ordinal that was read.
    pub(super) path: Vec<(Branch, Ordinal)>,
    /// The branch's last turn.
    pub(super) head: Seq,
    /// The memory's epoch, from before anything was read.
    pub(super) epoch: u64,
    /// The handoff in force, as it may be shown.
    pub(super) handoff: Option<HandoffRecord>,
    /// Turns that came after it.
    pub(super) later: usize,
    pub(super) view: ApiView,
    /// Tokens of each message but the handoff, the system prompt's first.
    pub(super) counts: Vec<u64>,
}

impl Reading {
    /// The branch's last ordinal.
    pub(super) fn through(&self) -> Ordinal {
        self.path.last().map_or(Ordinal(0), |(_, through)| *through)
    }

    /// The turns that are there, the system prompt's first.
    pub(super) fn turns(&self) -> impl Iterator<Item = &StoredTurn> {
        self.view.system.iter().chain(&self.view.turns)
    }

    /// The view without its handoff, as it is planned with.
    pub(super) fn messages(&self) -> Vec<Message> {
        let body = |(turn, tokens): (&StoredTurn, &u64)| {
            Some(Message { turn: turn.turn.clone()?, tokens: *tokens })
        };
        self.turns().zip(&self.counts).filter_map(body).collect()
    }

    /// Tokens of the handoff.
    pub(super) fn handoff_tokens(&self) -> u64 {
        self.view.handoff.as_ref().map_or(0, |handoff| handoff.tokens)
    }

    /// Tokens of the view as a request, as we count.
    pub(super) fn request_tokens(&self, beside: u64) -> u64 {
        // A handoff without text is no message.
        let messages = self.counts.len() + usize::from(self.handoff_tokens() > 0);
        request_tokens(messages as u64, self.view.tokens).saturating_add(beside)
    }

    /// Turns along the path, those that were erased among them.
    pub(super) fn length(&self) -> u64 {
        self.path.iter().map(|(_, through)| through.0).sum()
    }
}

/// The message that a handoff is.
pub(super) fn handoff_message(handoff: &HandoffInfo) -> RedactedTurn {
    RedactedTurn::saying("user", handoff.text.clone())
}

/// Whether a turn belongs to the system prompt, as long as it stands before all others.
fn is_system(turn: &StoredTurn) -> bool {
    let role = turn.turn.as_ref().map(|turn| turn.fields().role.as_str());
    matches!(role, Some("system" | "developer"))
}

impl Sessions {
    /// Reads the API view of a branch, unless it has more than so many bytes.
    pub(super) async fn read_branch(
        &self,
        scope: &Scope,
        session: &str,
        branch: Option<&str>,
        bytes: usize,
    ) -> Result<Reading> {
        self.read_branch_to(scope, session, branch, None, bytes).await
    }

    /// The same, as if the branch ended at a turn.
    pub(super) async fn read_branch_to(
        &self,
        scope: &Scope,
        session: &str,
        branch: Option<&str>,
        end: Option<Ordinal>,
        bytes: usize,
    ) -> Result<Reading> {
        let epoch = self.store.scope_head(scope).await?.epoch;
        let record = self.session_record(scope, session).await?;
        let branch = self.branch_of(scope, &record, session, branch)?;
        let path = path_of(&record, branch, end);
        let head = record.branches.iter().find(|found| found.branch == branch);
        let head = head.map_or(Seq(0), |found| found.head_seq);
        let handoff = self.handoff_on(scope, record.no, &path).await?;
        let (mut turns, system, later) = match &handoff {
            None => {
                let turns = self.along(scope, &record, &path, bytes).await?;
                let system = turns.iter().take_while(|turn| is_system(turn)).count();
                let later = turns.len() - system;
                (turns, system, later)
            }
            Some(handoff) => {
                let mut turns = self.system_prompt(scope, &record, &path).await?;
                let system = turns.len();
                turns.extend(self.kept(scope, &record, handoff).await?);
                let after = after(&path, handoff);
                let mut later = 0;
                for (branch, from, through) in after {
                    let rows = self.rows_between(scope, &record, branch, (from, through), bytes);
                    let found = self.stored_within(scope, &record, rows.await?, bytes).await?;
                    later += found.len();
                    turns.extend(found);
                }
                (turns, system, later)
            }
        };
        // What has expired is not there.
        turns.retain(|turn| turn.turn.is_some());
        let (mut turns, counts) = self.counted(scope, turns).await?;
        let size = |turn: &StoredTurn| turn.turn.as_ref().map_or(0, |t| t.fields().byte_count());
        let told = handoff.as_ref().map_or(0, |handoff| handoff.text.as_str().len());
        let sum = turns.iter().fold(told, |sum, turn| sum.saturating_add(size(turn)));
        if sum > bytes {
            return Err(MemoryError::TooMuch { bytes });
        }
        let rest = turns.split_off(system.min(turns.len()));
        let info = handoff.as_ref().map(|handoff| self.handoff_info(handoff));
        let tokens = counts.iter().sum::<u64>() + info.as_ref().map_or(0, |info| info.tokens);
        let view = ApiView { system: turns, handoff: info, turns: rest, tokens };
        Ok(Reading { session: record, branch, path, head, epoch, handoff, later, view, counts })
    }

    /// The handoff in force on a path, as it may be shown. Its tokens are those of that.
    pub(crate) async fn handoff_on(
        &self,
        scope: &Scope,
        session: SessionNo,
        path: &[(Branch, Ordinal)],
    ) -> Result<Option<HandoffRecord>> {
        let mut handoff = self.store.handoff(scope, session, path).await?;
        if let Some(handoff) = &mut handoff
            && let Some(veil) = self.veil(scope).await?
        {
            handoff.text = veil.text(&handoff.text);
            handoff.tokens = u64::from(self.counter.count(&handoff.text));
        }
        Ok(handoff)
    }

    /// A handoff as it is shown, counted as it is shown.
    pub(super) fn handoff_info(&self, record: &HandoffRecord) -> HandoffInfo {
        let text = record.text.clone();
        HandoffInfo {
            id: record.id.clone(),
            number: record.number,
            tokens: u64::from(self.counter.count(&text)),
            text,
            tokens_before: record.tokens_before,
            tokens_after: record.tokens_after,
            made_by: record.made_by.clone(),
            trigger: record.trigger,
            version: record.version,
            at: record.at,
        }
    }

    /// The turns before any that is not the system's.
    async fn system_prompt(
        &self,
        scope: &Scope,
        record: &SessionRecord,
        path: &[(Branch, Ordinal)],
    ) -> Result<Vec<StoredTurn>> {
        let mut found = Vec::new();
        for (branch, through) in path {
            let mut after = Seq(0);
            loop {
                let query = TurnQuery {
                    branch: Some(*branch),
                    after,
                    ..TurnQuery::all(record.no, SYSTEM_PAGE)
                };
                let mut rows = self.store.turns(scope, &query).await?;
                let Some(last) = rows.last() else { break };
                after = last.id.seq;
                let is_last = last.ordinal >= *through;
                rows.retain(|row| row.ordinal <= *through);
                for turn in self.stored(scope, record, rows).await? {
                    if !is_system(&turn) {
                        return Ok(found);
                    }
                    found.push(turn);
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// What a handoff left standing, as far as it is there.
    async fn kept(
        &self,
        scope: &Scope,
        record: &SessionRecord,
        handoff: &HandoffRecord,
    ) -> Result<Vec<StoredTurn>> {
        if handoff.kept.is_empty() {
            return Ok(Vec::new());
        }
        let id = |seq: &Seq| TurnId { session: record.no, seq: *seq };
        let ids: Vec<TurnId> = handoff.kept.iter().map(id).collect();
        let rows = self.store.turns_at(scope, &ids).await?;
        self.stored(scope, record, rows).await
    }

    /// Rows of a branch after an ordinal and up to another, in order. What is before is
    /// not read, but for a page.
    async fn rows_between(
        &self,
        scope: &Scope,
        record: &SessionRecord,
        branch: Branch,
        (from, through): (Ordinal, Ordinal),
        bytes: usize,
    ) -> Result<Vec<TurnRow>> {
        let mut pages = Vec::new();
        if from >= through {
            return Ok(pages);
        }
        let mut before = self.last_seq(scope, record, branch, through).await?;
        let (mut size, mut taken) = (FIRST_PAGE, 0_usize);
        let mut found = Vec::new();
        loop {
            let query = TurnQuery {
                branch: Some(branch),
                through: before,
                newest: true,
                bytes: bytes.saturating_add(1),
                ..TurnQuery::all(record.no, size)
            };
            let mut rows = self.store.turns(scope, &query).await?;
            let Some(first) = rows.first() else { break };
            let is_last = first.ordinal.0 <= from.0 + 1;
            before = Seq(first.id.seq.0.saturating_sub(1));
            rows.retain(|row| from < row.ordinal && row.ordinal <= through);
            taken = rows.iter().fold(taken, |sum, row| sum.saturating_add(row.byte_count()));
            if taken > bytes {
                return Err(MemoryError::TooMuch { bytes });
            }
            found.push(rows);
            if is_last {
                break;
            }
            size = (size * 2).min(PAGE);
        }
        pages.extend(found.into_iter().rev().flatten());
        Ok(pages)
    }
}

/// The branches that a branch grew from, root first, each with its last ordinal as the
/// session's record has it: what comes later is not on the path. The branch itself may be
/// taken to end earlier.
fn path_of(record: &SessionRecord, branch: Branch, end: Option<Ordinal>) -> Vec<(Branch, Ordinal)> {
    let mut path = lineage(record, branch);
    let length = record.branches.iter().find(|found| found.branch == branch);
    if let (Some((_, last)), Some(found)) = (path.last_mut(), length) {
        let length = Ordinal(found.tail.length);
        *last = end.map_or(length, |end| end.min(length));
    }
    path
}

/// What of a path comes after a handoff: branches, each after an ordinal and up to one.
fn after(path: &[(Branch, Ordinal)], handoff: &HandoffRecord) -> Vec<(Branch, Ordinal, Ordinal)> {
    let at = path.iter().position(|(branch, _)| *branch == handoff.branch).unwrap_or(0);
    let from = |branch: Branch| match branch == handoff.branch {
        true => handoff.through,
        false => Ordinal(0),
    };
    path[at..].iter().map(|(branch, through)| (*branch, from(*branch), *through)).collect()
}
