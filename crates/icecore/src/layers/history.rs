//! Reading back: sessions, turns, views, chunks, what is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use icecore_domain::chunk::{ChunkId, Level, Tier};
use icecore_domain::handoff::message_tokens;
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, Tenant, TurnId};
use icecore_domain::redact::RedactedTurn;
use icecore_domain::summary::Summary;
use icecore_domain::time::Millis;
use icecore_domain::turn::Content;
use icecore_store::{
    BranchRecord, ChunkQuery, ChunkRecord, EntryRecord, EventRecord, SessionRecord, TurnQuery,
    TurnRow, TurnState,
};

use crate::base::INLINE_BYTES;
use crate::error::{MemoryError, Result, off_thread};
use crate::layers::Layers;

/// A session as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its name.
    pub session: String,
    /// Turns that are there.
    pub turns: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Its branches, main first.
    pub branches: Vec<Branch>,
    /// The last `seq` given.
    pub last_seq: Seq,
    /// When it was last appended to.
    pub updated_at: Millis,
}

/// A turn with where and how it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTurn {
    /// The client's id, or ours.
    pub id: String,
    /// The session's name.
    pub session: String,
    /// Append order in the session.
    pub seq: Seq,
    /// Number in the tenant's log.
    pub position: Position,
    /// Its branch.
    pub branch: Branch,
    /// Its place in the branch.
    pub ordinal: Ordinal,
    /// Tokens of its searchable text.
    pub tokens: u32,
    /// Its own timestamp, or when it was appended.
    pub at: Millis,
    /// Whether its line named the session.
    pub session_given: bool,
    /// How it is kept.
    pub tier: Tier,
    /// Its fields; gone if it has expired.
    pub turn: Option<RedactedTurn>,
}

/// A view of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// What it shows, in order.
    pub messages: Vec<ViewMessage>,
    /// Tokens of the messages: of their text and tool calls.
    pub tokens: u64,
}

/// A message of a view.
pub type ViewMessage = StoredTurn;

/// A chunk with its place in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Its id.
    pub id: ChunkId,
    /// The session's name.
    pub session: String,
    /// How its turns are kept.
    pub tier: Tier,
    /// `seq` of its first turn.
    pub first_seq: Seq,
    /// `seq` of its last turn.
    pub last_seq: Seq,
    /// Tokens of its turns.
    pub tokens: u64,
    /// Turns of it that are there.
    pub turns: u64,
    /// What stands for it, once derived.
    pub summary: Option<Summary>,
    /// The chunk above, once that is closed.
    pub parent: Option<ChunkId>,
    /// The chunks below.
    pub children: Vec<ChunkId>,
}

/// What an id names.
#[derive(Debug, Clone)]
pub enum Found {
    /// A turn.
    Turn(Box<StoredTurn>),
    /// A chunk and its turns.
    Chunk(Box<ChunkInfo>, Vec<StoredTurn>),
    /// An entry.
    Entry(EntryRecord),
}

/// Sessions and turns are read in pages of this size.
pub(crate) const PAGE: usize = 500;

/// So many bodies are fetched at once where their sizes are not known before.
const FETCHED: usize = 16;

/// Turns that were read, as long as there is room for them.
struct Gathered {
    turns: Vec<StoredTurn>,
    bytes: usize,
    most: usize,
}

impl Gathered {
    fn new(most: usize) -> Self {
        Self { turns: Vec::new(), bytes: 0, most }
    }

    /// Adds turns up to the first without room; the very first always has. Answers
    /// whether all were added.
    fn add(&mut self, turns: Vec<StoredTurn>) -> bool {
        for turn in turns {
            let size = turn.turn.as_ref().map_or(0, |turn| turn.fields().byte_count());
            let bytes = self.bytes.saturating_add(size);
            if bytes > self.most && !self.turns.is_empty() {
                return false;
            }
            self.bytes = bytes;
            self.turns.push(turn);
        }
        true
    }

    /// Whether the first alone was too much.
    fn is_over(&self) -> bool {
        self.bytes > self.most
    }
}

impl Layers {
    /// Sessions of a memory, in the order they began.
    pub async fn sessions(&self, scope: &Scope) -> Result<Vec<SessionInfo>> {
        let veil = self.veil(scope).await?;
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let mut page = self.store.sessions(scope, after, PAGE).await?;
            after = page.last().map(|record| record.no);
            let is_last = page.len() < PAGE;
            if let Some(veil) = &veil {
                page.iter_mut().try_for_each(|record| veil.session(record))?;
            }
            found.extend(page.into_iter().map(session_info));
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Turns of a session after `after`, in order of `seq`. What was erased is
    /// left out.
    pub async fn turns(
        &self,
        scope: &Scope,
        session: &str,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredTurn>> {
        self.turns_within(scope, session, after, limit, usize::MAX).await
    }

    /// As [`Layers::turns`], but only as many, from the first, as have so many bytes
    /// together; one at least.
    pub async fn turns_within(
        &self,
        scope: &Scope,
        session: &str,
        after: Seq,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<StoredTurn>> {
        let record = self.session_record(scope, session).await?;
        let mut found = Gathered::new(bytes);
        let mut after = after;
        while found.turns.len() < limit {
            let wanted = limit - found.turns.len();
            let query = TurnQuery { after, bytes, ..TurnQuery::all(record.no, wanted) };
            let rows = self.store.turns(scope, &query).await?;
            let Some(last) = rows.last() else { break };
            after = last.id.seq;
            let is_last = bytes == usize::MAX && rows.len() < wanted;
            if !self.gather(scope, &record, rows, &mut found).await? || is_last {
                break;
            }
        }
        Ok(found.turns)
    }

    /// Adds rows as turns while they have room; answers whether all had. What stands
    /// in their rows is at hand, the rest is fetched a few at a time.
    async fn gather(
        &self,
        scope: &Scope,
        session: &SessionRecord,
        rows: Vec<TurnRow>,
        found: &mut Gathered,
    ) -> Result<bool> {
        let is_at_hand = rows.iter().all(|row| row.body.is_some());
        let piece = match is_at_hand || found.most == usize::MAX {
            true => rows.len().max(1),
            false => FETCHED,
        };
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let piece = rows.by_ref().take(piece).collect();
            if !found.add(self.stored(scope, session, piece).await?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Rows as turns, with their bodies, without the erased.
    pub(crate) async fn stored(
        &self,
        scope: &Scope,
        session: &SessionRecord,
        rows: Vec<TurnRow>,
    ) -> Result<Vec<StoredTurn>> {
        let rows = self.hydrate(scope, rows).await?;
        Ok(rows.into_iter().map(|row| stored_turn(session, row)).collect())
    }

    /// What a person sees of a branch: every turn, in order, ancestors first.
    pub async fn view(&self, scope: &Scope, session: &str, branch: Option<&str>) -> Result<View> {
        self.view_within(scope, session, branch, usize::MAX).await
    }

    /// As [`Layers::view`], unless it has more than so many bytes.
    pub async fn view_within(
        &self,
        scope: &Scope,
        session: &str,
        branch: Option<&str>,
        bytes: usize,
    ) -> Result<View> {
        let record = self.session_record(scope, session).await?;
        let branch = self.branch_of(scope, &record, session, branch)?;
        let messages = self.along(scope, &record, &lineage(&record, branch), bytes).await?;
        let (messages, counts) = self.counted(scope, messages).await?;
        Ok(View { messages, tokens: counts.iter().sum() })
    }

    /// All turns along a path, in order, unless they have more than so many bytes.
    pub(crate) async fn along(
        &self,
        scope: &Scope,
        record: &SessionRecord,
        path: &[(Branch, Ordinal)],
        bytes: usize,
    ) -> Result<Vec<StoredTurn>> {
        let mut found = Gathered::new(bytes);
        for (branch, through) in path {
            let mut after = Seq(0);
            loop {
                let query = TurnQuery {
                    branch: Some(*branch),
                    after,
                    bytes: bytes.saturating_add(1),
                    ..TurnQuery::all(record.no, PAGE)
                };
                let mut rows = self.store.turns(scope, &query).await?;
                let Some(last) = rows.last() else { break };
                after = last.id.seq;
                let is_short = bytes == usize::MAX && rows.len() < PAGE;
                let is_last = is_short || last.ordinal >= *through;
                rows.retain(|row| row.ordinal <= *through);
                if !self.gather(scope, record, rows, &mut found).await? || found.is_over() {
                    return Err(MemoryError::TooMuch { bytes });
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(found.turns)
    }

    /// Rows as turns, unless they have more than so many bytes.
    pub(crate) async fn stored_within(
        &self,
        scope: &Scope,
        record: &SessionRecord,
        rows: Vec<TurnRow>,
        bytes: usize,
    ) -> Result<Vec<StoredTurn>> {
        let mut found = Gathered::new(bytes);
        match self.gather(scope, record, rows, &mut found).await? && !found.is_over() {
            true => Ok(found.turns),
            false => Err(MemoryError::TooMuch { bytes }),
        }
    }

    /// Turns with the tokens that each has in a view. What has expired has none.
    pub(crate) async fn counted(
        &self,
        scope: &Scope,
        turns: Vec<StoredTurn>,
    ) -> Result<(Vec<StoredTurn>, Vec<u64>)> {
        let is_veiled = self.veil(scope).await?.is_some();
        let counter = Arc::clone(&self.counter);
        let count = move |turn: &StoredTurn| {
            let Some(fields) = turn.turn.as_ref().map(RedactedTurn::fields) else { return 0 };
            // What was counted when it came need not be counted again.
            let is_plain =
                matches!(fields.content, Content::Text(_)) && fields.tool_calls.is_none();
            match is_plain && !is_veiled {
                true => u64::from(turn.tokens),
                false => message_tokens(fields, counter.as_ref()),
            }
        };
        let bytes: usize = turns.iter().filter_map(|turn| turn.turn.as_ref()).map(body_bytes).sum();
        if bytes <= INLINE_BYTES {
            let counts = turns.iter().map(count).collect();
            return Ok((turns, counts));
        }
        off_thread(move || {
            let counts = turns.iter().map(count).collect();
            (turns, counts)
        })
        .await
    }

    /// A `seq` at or soon after that of a branch's ordinal, so that reading
    /// backwards from a fork does not begin at the far end of its parent.
    pub(crate) async fn last_seq(
        &self,
        scope: &Scope,
        session: &SessionRecord,
        branch: Branch,
        ordinal: Ordinal,
    ) -> Result<Seq> {
        let record = session.branches.iter().find(|record| record.branch == branch);
        let end = Seq(u64::MAX >> 1);
        let Some(tail) = record.map(|record| &record.tail).filter(|tail| ordinal.0 < tail.length)
        else {
            return Ok(end);
        };
        let query = ChunkQuery {
            through: Ordinal(ordinal.0 + u64::from(tail.policy.micro_turns)),
            newest: true,
            ..ChunkQuery::all(session.no, branch, Level::Micro, 1)
        };
        let found = self.store.chunks(scope, &query).await?;
        let reaches = |chunk: &&ChunkRecord| chunk.id.last >= ordinal;
        Ok(found.first().filter(reaches).map_or(end, |chunk| chunk.last_seq))
    }

    /// The branch of that name, or the one that was last appended to.
    pub(crate) fn branch_of(
        &self,
        scope: &Scope,
        record: &SessionRecord,
        session: &str,
        name: Option<&str>,
    ) -> Result<Branch> {
        let Some(name) = name else { return Ok(record.current) };
        let named = Branch::parse(name)
            .filter(|branch| record.branches.iter().any(|b| b.branch == *branch));
        named.ok_or_else(|| MemoryError::NoBranch {
            session: self.shown(scope.tenant(), session).into_string(),
            branch: self.shown(scope.tenant(), name).into_string(),
        })
    }

    /// Chunks of a session, or of all sessions: micros, then minis, then macros
    /// of each branch, in order.
    pub async fn chunks(&self, scope: &Scope, session: Option<&str>) -> Result<Vec<ChunkInfo>> {
        let records = match session {
            Some(session) => vec![self.session_record(scope, session).await?],
            None => {
                let mut all = Vec::new();
                let mut after = None;
                loop {
                    let page = self.store.sessions(scope, after, PAGE).await?;
                    after = page.last().map(|record| record.no);
                    let is_last = page.len() < PAGE;
                    all.extend(page);
                    if is_last {
                        break all;
                    }
                }
            }
        };
        let mut found = Vec::new();
        for record in &records {
            for branch in &record.branches {
                found.extend(self.branch_chunks(scope, record, branch).await?);
            }
        }
        Ok(found)
    }

    async fn branch_chunks(
        &self,
        scope: &Scope,
        record: &SessionRecord,
        branch: &BranchRecord,
    ) -> Result<Vec<ChunkInfo>> {
        let mut levels = BTreeMap::new();
        for level in Level::ALL {
            let query = ChunkQuery::all(record.no, branch.branch, level, usize::MAX >> 1);
            let chunks = self.store.chunks(scope, &query).await?;
            levels.insert(level, self.veil_chunks(scope, chunks).await?);
        }
        let none = Vec::new();
        let of = |level: Level| levels.get(&level).unwrap_or(&none);
        let info = |chunk: &ChunkRecord| {
            let (above, below) = match chunk.id.level {
                Level::Micro => (Some(Level::Mini), None),
                Level::Mini => (Some(Level::Macro), Some(Level::Micro)),
                Level::Macro => (None, Some(Level::Mini)),
            };
            let holds = |outer: &ChunkId, inner: &ChunkId| {
                outer.first <= inner.first && inner.last <= outer.last
            };
            let parent = above.and_then(|level| {
                let at = of(level).partition_point(|outer| outer.id.last < chunk.id.last);
                of(level).get(at).map(|outer| outer.id).filter(|outer| holds(outer, &chunk.id))
            });
            let children = below.map_or_else(Vec::new, |level| {
                let from = of(level).partition_point(|inner| inner.id.first < chunk.id.first);
                let inner = of(level)[from..].iter().map(|inner| inner.id);
                inner.take_while(|inner| holds(&chunk.id, inner)).collect()
            });
            chunk_info(record, branch, chunk, parent, children)
        };
        Ok(Level::ALL.into_iter().flat_map(|level| of(level).iter().map(info)).collect())
    }

    /// One chunk.
    pub async fn chunk(&self, scope: &Scope, id: &str) -> Result<ChunkInfo> {
        let (record, branch, id) = self.find_chunk(scope, id).await?;
        let all = self.branch_chunks(scope, &record, &branch).await?;
        all.into_iter()
            .find(|chunk| chunk.id == id)
            .ok_or_else(|| self.not_found(scope, &id.to_string()))
    }

    async fn find_chunk(
        &self,
        scope: &Scope,
        id: &str,
    ) -> Result<(SessionRecord, BranchRecord, ChunkId)> {
        let missing = || self.not_found(scope, id);
        let parsed = ChunkId::parse(id).ok_or_else(missing)?;
        let record =
            self.store.session_by_number(scope, parsed.session).await?.ok_or_else(missing)?;
        let branch = record
            .branches
            .iter()
            .find(|b| b.branch == parsed.branch)
            .cloned()
            .ok_or_else(missing)?;
        let query = ChunkQuery {
            from: parsed.first,
            through: parsed.last,
            ..ChunkQuery::all(parsed.session, parsed.branch, parsed.level, 1)
        };
        let found = self.store.chunks(scope, &query).await?;
        match found.first().is_some_and(|chunk| chunk.id == parsed) {
            true => Ok((record, branch, parsed)),
            false => Err(missing()),
        }
    }

    pub(crate) fn not_found(&self, scope: &Scope, id: &str) -> MemoryError {
        let id = self.shown(scope.tenant(), id).into_string();
        MemoryError::NotFound { id, memory: scope.memory().to_owned() }
    }

    /// Exactly the turns of a chunk, from whatever tier, without the erased.
    pub async fn expand(&self, scope: &Scope, id: &str) -> Result<Vec<StoredTurn>> {
        self.expand_within(scope, id, usize::MAX).await
    }

    /// As [`Layers::expand`], unless they have more than so many bytes.
    pub async fn expand_within(
        &self,
        scope: &Scope,
        id: &str,
        bytes: usize,
    ) -> Result<Vec<StoredTurn>> {
        let (record, _, id) = self.find_chunk(scope, id).await?;
        let chunks = ChunkQuery {
            from: id.first,
            through: id.last,
            ..ChunkQuery::all(id.session, id.branch, id.level, 1)
        };
        let Some(chunk) = self.store.chunks(scope, &chunks).await?.into_iter().next() else {
            return Err(self.not_found(scope, &id.to_string()));
        };
        let query = TurnQuery {
            branch: Some(id.branch),
            after: Seq(chunk.first_seq.0 - 1),
            through: chunk.last_seq,
            bytes: bytes.saturating_add(1),
            ..TurnQuery::all(id.session, usize::MAX >> 1)
        };
        let mut rows = self.store.turns(scope, &query).await?;
        let at_hand = rows.iter().fold(0, |sum: usize, row| sum.saturating_add(row.byte_count()));
        if at_hand > bytes {
            return Err(MemoryError::TooMuch { bytes });
        }
        rows.retain(|row| id.first <= row.ordinal && row.ordinal <= id.last);
        if rows.iter().any(|row| row.state == TurnState::Expired) {
            return Err(MemoryError::Expired { chunk: id.to_string() });
        }
        self.stored_within(scope, &record, rows, bytes).await
    }

    pub(crate) async fn find_turn(&self, scope: &Scope, id: &str) -> Result<Option<StoredTurn>> {
        let lookup = self.identity_key(scope.tenant()).await?.lookup_of_id(id);
        let mut after: Option<SessionNo> = None;
        loop {
            let page = self.store.sessions(scope, after, PAGE).await?;
            for record in &page {
                let mut rows = self.store.turns_by_lookup(scope, record.no, lookup).await?;
                rows.retain(|row| row.has_client_id);
                if let Some(turn) = self.stored(scope, record, rows).await?.into_iter().next() {
                    return Ok(Some(turn));
                }
            }
            after = page.last().map(|record| record.no);
            if page.len() < PAGE {
                break;
            }
        }
        let Some(ours) = TurnId::parse(id) else { return Ok(None) };
        let Some(record) = self.store.session_by_number(scope, ours.session).await? else {
            return Ok(None);
        };
        let query = TurnQuery {
            after: Seq(ours.seq.0.saturating_sub(1)),
            through: ours.seq,
            ..TurnQuery::all(ours.session, 1)
        };
        let rows = self.store.turns(scope, &query).await?;
        Ok(self.stored(scope, &record, rows).await?.into_iter().next())
    }

    /// Events of a tenant after a position, in order, without any content.
    pub async fn events(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        after: Position,
        limit: usize,
    ) -> Result<Vec<EventRecord>> {
        let mut events = self.store.events(tenant, memory, after, limit).await?;
        if let Some(veil) = self.veil_of(tenant).await? {
            events.iter_mut().for_each(|event| veil.event(event));
        }
        Ok(events)
    }

    /// The position of the last event of a tenant.
    pub async fn head(&self, tenant: &Tenant) -> Result<Position> {
        Ok(self.store.head(tenant).await?)
    }
}

fn body_bytes(turn: &RedactedTurn) -> usize {
    turn.fields().byte_count()
}

fn session_info(record: SessionRecord) -> SessionInfo {
    SessionInfo {
        session: record.name.map(|name| name.as_str().to_owned()).unwrap_or_default(),
        turns: record.turns,
        tokens: record.tokens,
        branches: record.branches.iter().map(|branch| branch.branch).collect(),
        last_seq: record.last_seq,
        updated_at: record.updated_at,
    }
}

pub(crate) fn tier_of(branch: &BranchRecord, last: Ordinal) -> Tier {
    if last <= branch.cold_through {
        Tier::Cold
    } else if last <= branch.warm_through {
        Tier::Warm
    } else {
        Tier::Hot
    }
}

pub(crate) fn stored_turn(session: &SessionRecord, row: TurnRow) -> StoredTurn {
    let branch = session.branches.iter().find(|branch| branch.branch == row.branch);
    let client_id = row.body.as_ref().and_then(|turn| turn.fields().id.clone());
    StoredTurn {
        id: client_id.unwrap_or_else(|| row.id.to_string()),
        session: session.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
        seq: row.id.seq,
        position: row.position,
        branch: row.branch,
        ordinal: row.ordinal,
        tokens: row.tokens,
        at: row.at,
        session_given: row.session_given,
        tier: branch.map_or(Tier::Hot, |branch| tier_of(branch, row.ordinal)),
        turn: row.body,
    }
}

fn chunk_info(
    session: &SessionRecord,
    branch: &BranchRecord,
    chunk: &ChunkRecord,
    parent: Option<ChunkId>,
    children: Vec<ChunkId>,
) -> ChunkInfo {
    ChunkInfo {
        id: chunk.id,
        session: session.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
        tier: tier_of(branch, chunk.id.last),
        first_seq: chunk.first_seq,
        last_seq: chunk.last_seq,
        tokens: chunk.tokens,
        turns: chunk.turns,
        summary: chunk.summary.as_ref().map(|summary| summary.parts().clone()),
        parent,
        children,
    }
}

/// The branches that a branch grew from, root first, each with the last ordinal
/// that is shared; the branch itself without end.
pub(crate) fn lineage(session: &SessionRecord, branch: Branch) -> Vec<(Branch, Ordinal)> {
    let mut path = vec![(branch, Ordinal(u64::MAX >> 1))];
    let fork =
        |branch: Branch| session.branches.iter().find(|b| b.branch == branch).and_then(|b| b.fork);
    while let Some((parent, at)) = path.last().and_then(|(branch, _)| fork(*branch)) {
        // A fork always has a larger number than what it forks from.
        if path.len() > session.branches.len() {
            break;
        }
        path.push((parent, at));
    }
    path.reverse();
    path
}
