//! What is due in a memory: where it is, oldest first, without its content.

use std::collections::BTreeMap;

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::time::Millis;
use icecore_store::{
    ChunkQuery, ChunkRecord, DreamSpan, DueBranch, TurnQuery, TurnState, Undreamt,
};

use crate::error::{MemoryError, Result};
use crate::memory::Memory;
use crate::worker::Settled;

/// Entries listed at once.
const ENTRIES_A_PAGE: usize = 5_000;

/// Branches, chunks and turns listed at once.
const A_PAGE: usize = 500;

/// So many entries are listed; further ones are counted.
const MOST_LISTED: usize = 1_000_000;

/// Something that is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueItem {
    /// When it came, or what came before it in its branch.
    pub(super) at: Millis,
    pub(super) what: What,
}

/// What it is, and where.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Entry(Position),
    Turn { id: TurnId, branch: Branch, ordinal: Ordinal },
    Chunk { id: ChunkId, first_seq: Seq, tokens: u64 },
}

impl What {
    /// Its branch and its first turn there; none of an entry.
    fn place(&self) -> Option<((SessionNo, Branch), Ordinal)> {
        match self {
            What::Entry(_) => None,
            What::Turn { id, branch, ordinal } => Some(((id.session, *branch), *ordinal)),
            What::Chunk { id, .. } => Some(((id.session, id.branch), id.first)),
        }
    }
}

/// All that is due.
#[derive(Debug, Default)]
pub(super) struct AllDue {
    /// Oldest first.
    pub(super) items: Vec<DueItem>,
    /// Further entries, which were counted only.
    pub(super) beyond: u64,
    branches: Vec<Undreamt>,
}

impl AllDue {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.beyond == 0
    }

    /// The turns that are read with the first so many items, and with what lies between
    /// them and is not there any more.
    pub(super) fn spans(&self, read: usize) -> Vec<DreamSpan> {
        let mut unread: BTreeMap<(SessionNo, Branch), Ordinal> = BTreeMap::new();
        for (branch, first) in self.items[read..].iter().filter_map(|item| item.what.place()) {
            let known = unread.entry(branch).or_insert(first);
            *known = first.min(*known);
        }
        let span = |due: &Undreamt| {
            let stop = unread.get(&(due.session, due.branch));
            let through = stop.map_or(due.through, |first| Ordinal(first.0.saturating_sub(1)));
            let Undreamt { session, branch, after, .. } = *due;
            (through > after).then_some(DreamSpan { session, branch, after, through })
        };
        self.branches.iter().filter_map(span).collect()
    }
}

impl Memory {
    /// All that is due in a memory, or these entries.
    pub(super) async fn all_due(
        &self,
        scope: &Scope,
        only: Option<&[String]>,
        now: Millis,
    ) -> Result<AllDue> {
        let mut due = AllDue::default();
        match only {
            Some(ids) => self.named_entries(scope, ids, now, &mut due).await?,
            None => {
                self.due_entries(scope, now, &mut due).await?;
                self.due_branches(scope, &mut due).await?;
            }
        }
        due.items.sort_by_key(|item| (item.at, order(&item.what)));
        Ok(due)
    }

    async fn named_entries(
        &self,
        scope: &Scope,
        ids: &[String],
        now: Millis,
        due: &mut AllDue,
    ) -> Result<()> {
        for id in ids {
            let found = self.inner.store.entry(scope, id, None, now).await?;
            let Some(entry) = found.filter(|entry| entry.successor.is_none()) else {
                let memory = scope.memory().to_owned();
                let id = self.shown_name(scope.tenant(), id).into_string();
                return Err(MemoryError::NotFound { id, memory });
            };
            due.items.push(DueItem { at: entry.created_at, what: What::Entry(entry.began) });
        }
        Ok(())
    }

    async fn due_entries(&self, scope: &Scope, now: Millis, due: &mut AllDue) -> Result<()> {
        let mut after = None;
        loop {
            let store = &self.inner.store;
            let places = store.undreamt_entries(scope, after, now, ENTRIES_A_PAGE).await?;
            for place in &places {
                match due.items.len() < MOST_LISTED {
                    true => due
                        .items
                        .push(DueItem { at: place.created_at, what: What::Entry(place.began) }),
                    false => due.beyond += 1,
                }
            }
            after = places.last().copied();
            if places.len() < ENTRIES_A_PAGE {
                return Ok(());
            }
        }
    }

    async fn due_branches(&self, scope: &Scope, due: &mut AllDue) -> Result<()> {
        let mut after = None;
        loop {
            let found = self.inner.store.undreamt_branches(scope, after, A_PAGE).await?;
            for branch in &found {
                let mut items = Vec::new();
                self.due_turns(scope, branch, &mut items).await?;
                // What came later in a branch is later, whatever its clock says.
                let mut at = Millis(i64::MIN);
                for item in &mut items {
                    at = at.max(item.at);
                    item.at = at;
                }
                due.items.extend(items);
            }
            after = found.last().map(|last| (last.session, last.branch));
            let is_last = found.len() < A_PAGE;
            due.branches.extend(found);
            if is_last {
                return Ok(());
            }
        }
    }

    /// The topmost closed chunks of what is due in a branch, and the turns that are in
    /// none.
    async fn due_turns(
        &self,
        scope: &Scope,
        due: &Undreamt,
        items: &mut Vec<DueItem>,
    ) -> Result<()> {
        self.settle_due(scope, due).await;
        let whole = Ordinal(due.after.0 + 1);
        let mut steps = vec![Step::Range(whole, due.through, Some(Level::Macro))];
        while let Some(step) = steps.pop() {
            let (first, last, level) = match step {
                Step::Items(found) => {
                    items.extend(found);
                    continue;
                }
                Step::Range(first, last, _) if first > last => continue,
                Step::Range(first, last, level) => (first, last, level),
            };
            let Some(level) = level else {
                self.turns_between(scope, due, first, last, items).await?;
                continue;
            };
            let finer = match level {
                Level::Macro => Some(Level::Mini),
                Level::Mini => Some(Level::Micro),
                Level::Micro => None,
            };
            let closed = self.closed(scope, due, level, first, last).await?;
            match closed.ends() {
                None => steps.push(Step::Range(first, last, finer)),
                // The last is the next: what is before, the chunks, what is after.
                Some((begin, end)) => steps.extend([
                    Step::Range(Ordinal(end.0 + 1), last, finer),
                    Step::Items(closed.items),
                    Step::Range(first, Ordinal(begin.0.saturating_sub(1)), finer),
                ]),
            }
        }
        Ok(())
    }

    /// Makes the summaries that are due in a branch, so that a dream does not depend on
    /// whether the worker came by.
    async fn settle_due(&self, scope: &Scope, due: &Undreamt) {
        let branch = DueBranch { scope: scope.clone(), session: due.session, branch: due.branch };
        if let Err(error) = self.settle_branch(&branch, &mut Settled::default()).await {
            tracing::warn!(%scope, %error, "a dream reads a branch as far as it is summarized");
        }
    }

    /// The closed chunks of a level in a range.
    async fn closed(
        &self,
        scope: &Scope,
        due: &Undreamt,
        level: Level,
        first: Ordinal,
        last: Ordinal,
    ) -> Result<Closed> {
        let mut closed = Closed::default();
        let mut from = first;
        loop {
            let query = ChunkQuery {
                from,
                through: last,
                ..ChunkQuery::all(due.session, due.branch, level, A_PAGE)
            };
            let found = self.inner.store.chunks(scope, &query).await?;
            found.iter().for_each(|chunk| closed.add(chunk));
            match found.last() {
                Some(end) if found.len() == A_PAGE => from = Ordinal(end.id.last.0 + 1),
                _ => return Ok(closed),
            }
        }
    }

    /// The turns of a range that are there.
    async fn turns_between(
        &self,
        scope: &Scope,
        due: &Undreamt,
        first: Ordinal,
        last: Ordinal,
        items: &mut Vec<DueItem>,
    ) -> Result<()> {
        // A turn's number in its session is no smaller than that in its branch.
        let mut after = Seq(first.0.saturating_sub(1));
        loop {
            let query = TurnQuery {
                branch: Some(due.branch),
                after,
                ..TurnQuery::all(due.session, A_PAGE)
            };
            let rows = self.inner.store.turns(scope, &query).await?;
            for row in rows.iter().filter(|row| row.state == TurnState::Present) {
                if first <= row.ordinal && row.ordinal <= last {
                    let (id, branch, ordinal) = (row.id, row.branch, row.ordinal);
                    items.push(DueItem { at: row.at, what: What::Turn { id, branch, ordinal } });
                }
            }
            match rows.last() {
                Some(end) if rows.len() == A_PAGE && end.ordinal < last => after = end.id.seq,
                _ => return Ok(()),
            }
        }
    }
}

/// What is next in the decomposition of a branch.
enum Step {
    /// Chunks of this level, or without one turns.
    Range(Ordinal, Ordinal, Option<Level>),
    Items(Vec<DueItem>),
}

/// Closed chunks that follow each other.
#[derive(Default)]
struct Closed {
    first: Option<Ordinal>,
    last: Option<Ordinal>,
    /// Those that hold something.
    items: Vec<DueItem>,
}

impl Closed {
    fn add(&mut self, chunk: &ChunkRecord) {
        let ChunkRecord { id, first_seq, tokens, first_at, turns, .. } = *chunk;
        self.first = self.first.or(Some(id.first));
        self.last = Some(id.last);
        if turns > 0 {
            self.items.push(DueItem { at: first_at, what: What::Chunk { id, first_seq, tokens } });
        }
    }

    fn ends(&self) -> Option<(Ordinal, Ordinal)> {
        self.first.zip(self.last)
    }
}

/// What decides between things of one moment.
fn order(what: &What) -> (u8, u64, u64, u64) {
    match what {
        What::Entry(began) => (0, began.0, 0, 0),
        What::Turn { id, branch, ordinal } => (1, id.session.0, branch.0.into(), ordinal.0),
        What::Chunk { id, .. } => (1, id.session.0, id.branch.0.into(), id.first.0),
    }
}
