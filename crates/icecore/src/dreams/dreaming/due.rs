//! What is due in a memory: where it is, oldest first, without its content.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::time::Millis;
use icecore_store::{ChunkQuery, ChunkRecord, DreamSpan, TurnQuery, TurnState, Undreamt};

use crate::dreams::Dreams;
use crate::error::{MemoryError, Result};

/// Entries listed at once.
const ENTRIES_A_PAGE: usize = 5_000;

/// Branches, chunks and turns listed at once.
const A_PAGE: usize = 500;

/// So many entries are listed, and so many turns and chunks; further ones are counted.
const MOST_LISTED: usize = 1_000_000;

/// Of a branch that is not listed so many turns are counted as one source.
const TURNS_A_SOURCE: u64 = 10;

/// A branch, and the first turn in it that is not read.
type Place = ((SessionNo, Branch), Ordinal);

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
    pub(super) fn place(&self) -> Option<Place> {
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
    /// Further sources, which were counted only.
    pub(super) beyond: u64,
    branches: Vec<Undreamt>,
    /// Where branches go on with what is not among the items and stays due.
    left: Vec<Place>,
}

impl AllDue {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.beyond == 0
    }

    /// Leaves items due that cannot be read, and in their branches all that comes
    /// after: a branch is read in order. Answers which of the items stay.
    pub(super) fn pass_over(&mut self, unreadable: &[bool]) -> Vec<bool> {
        let mut stops: BTreeMap<(SessionNo, Branch), Ordinal> = BTreeMap::new();
        let hit = self.items.iter().zip(unreadable).filter(|(_, is_hit)| **is_hit);
        for (branch, first) in hit.filter_map(|(item, _)| item.what.place()) {
            let known = stops.entry(branch).or_insert(first);
            *known = first.min(*known);
        }
        let is_left = |item: &DueItem| {
            let place = item.what.place();
            place.is_some_and(|(branch, first)| {
                stops.get(&branch).is_some_and(|stop| *stop <= first)
            })
        };
        let stays: Vec<bool> = self.items.iter().map(|item| !is_left(item)).collect();
        self.items.retain(|item| !is_left(item));
        self.left.extend(stops.iter().map(|(branch, first)| (*branch, *first)));
        stays
    }

    /// The turns that are read with the first so many items, and with what lies between
    /// them and is not there any more.
    pub(super) fn spans(&self, read: usize) -> Vec<DreamSpan> {
        let mut unread: BTreeMap<(SessionNo, Branch), Ordinal> = BTreeMap::new();
        let places = self.items[read..].iter().filter_map(|item| item.what.place());
        for (branch, first) in places.chain(self.left.iter().copied()) {
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

impl Dreams {
    /// All that is due in a memory, or these entries.
    pub(super) async fn all_due(
        &self,
        scope: &Scope,
        only: Option<&[String]>,
        now: Millis,
    ) -> Result<AllDue> {
        self.most_due(scope, only, now, MOST_LISTED).await
    }

    /// The same, of which so many entries and so many turns and chunks are listed.
    async fn most_due(
        &self,
        scope: &Scope,
        only: Option<&[String]>,
        now: Millis,
        most: usize,
    ) -> Result<AllDue> {
        let mut due = AllDue::default();
        match only {
            Some(ids) => self.named_entries(scope, ids, now, &mut due).await?,
            None => {
                self.due_entries(scope, now, most, &mut due).await?;
                self.due_branches(scope, most, &mut due).await?;
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
        let mut named = BTreeSet::new();
        for id in ids.iter().filter(|id| named.insert(id.as_str())) {
            let found = self.store.entry(scope, id, None, now).await?;
            let Some(entry) = found.filter(|entry| entry.successor.is_none()) else {
                let memory = scope.memory().to_owned();
                let id = self.shown_name(scope.tenant(), id).into_string();
                return Err(MemoryError::NotFound { id, memory });
            };
            due.items.push(DueItem { at: entry.created_at, what: What::Entry(entry.began) });
        }
        Ok(())
    }

    async fn due_entries(
        &self,
        scope: &Scope,
        now: Millis,
        most: usize,
        due: &mut AllDue,
    ) -> Result<()> {
        let mut after = None;
        loop {
            let store = &self.store;
            let places = store.undreamt_entries(scope, after, now, ENTRIES_A_PAGE).await?;
            for place in &places {
                match due.items.len() < most {
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

    async fn due_branches(&self, scope: &Scope, most: usize, due: &mut AllDue) -> Result<()> {
        let (mut after, mut room) = (None, most);
        loop {
            let found = self.store.undreamt_branches(scope, after, A_PAGE).await?;
            after = found.last().map(|last| (last.session, last.branch));
            let is_last = found.len() < A_PAGE;
            for branch in found {
                if room == 0 {
                    due.beyond += (branch.through.0 - branch.after.0).div_ceil(TURNS_A_SOURCE);
                    continue;
                }
                let mut items = Vec::new();
                self.due_turns(scope, &branch, &mut items).await?;
                // What came later in a branch is later, whatever its clock says.
                let mut at = Millis(i64::MIN);
                for item in &mut items {
                    at = at.max(item.at);
                    item.at = at;
                }
                let further = items.split_off(items.len().min(room));
                due.left.extend(further.first().and_then(|item| item.what.place()));
                due.beyond += further.len() as u64;
                room -= items.len();
                due.items.extend(items);
                due.branches.push(branch);
            }
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
        let whole = Ordinal(due.after.0 + 1);
        // Most sessions are short: what holds no micro holds nothing above one.
        let query = ChunkQuery {
            from: whole,
            through: due.through,
            ..ChunkQuery::all(due.session, due.branch, Level::Micro, 1)
        };
        let has_chunks = !self.store.chunks(scope, &query).await?.is_empty();
        let level = has_chunks.then_some(Level::Macro);
        let mut steps = vec![Step::Range(whole, due.through, level)];
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
            let found = self.store.chunks(scope, &query).await?;
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
            let rows = self.store.turns(scope, &query).await?;
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

#[cfg(test)]
mod tests {
    use icecore_domain::ids::{Principal, Tenant};
    use icecore_domain::turn::RawTurn;
    use icecore_store::{Packs, Store};

    use super::*;
    use crate::memory::MemoryBuilder;

    #[tokio::test]
    async fn what_is_not_listed_is_counted_and_stays_due() {
        let store = Store::in_memory([1; 32]);
        let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
        let me = Principal::local_operator(Tenant::new("t").unwrap());
        let scope = memory.scope(&me, "m").await.unwrap();
        for session in 0..6 {
            let turns = (0..3).map(|n| RawTurn::new("user", format!("Remark {session}.{n}.")));
            memory.remember(&scope, &format!("s{session}"), turns.collect()).await.unwrap();
        }
        let now = memory.now();
        let all = memory.all_due(&scope, None, now).await.unwrap();
        assert_eq!((all.items.len(), all.beyond, all.spans(18).len()), (18, 0, 6));
        // Two sessions, and two turns of the third; one turn and three sessions more.
        let some = memory.most_due(&scope, None, now, 8).await.unwrap();
        assert_eq!((some.items.len(), some.beyond), (8, 4));
        let through: Vec<u64> = some.spans(8).iter().map(|span| span.through.0).collect();
        assert_eq!(through, [3, 3, 2]);
    }

    #[tokio::test]
    async fn after_what_cannot_be_read_a_branch_stays_due() {
        let store = Store::in_memory([1; 32]);
        let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
        let me = Principal::local_operator(Tenant::new("t").unwrap());
        let scope = memory.scope(&me, "m").await.unwrap();
        for session in ["a", "b"] {
            let turns = (0..3).map(|n| RawTurn::new("user", format!("Remark {n}.")));
            memory.remember(&scope, session, turns.collect()).await.unwrap();
        }
        let mut due = memory.all_due(&scope, None, memory.now()).await.unwrap();
        let hit =
            |item: &DueItem| item.what.place().is_some_and(|((no, _), at)| (no.0, at.0) == (1, 2));
        let unreadable: Vec<bool> = due.items.iter().map(hit).collect();
        assert_eq!(unreadable.iter().filter(|is_hit| **is_hit).count(), 1);
        let stays = due.pass_over(&unreadable);
        assert_eq!((stays.iter().filter(|stays| **stays).count(), due.items.len()), (4, 4));
        let mut through: Vec<(u64, u64)> =
            due.spans(4).iter().map(|span| (span.session.0, span.through.0)).collect();
        through.sort_unstable();
        assert_eq!(through, [(1, 1), (2, 3)]);
    }
}
