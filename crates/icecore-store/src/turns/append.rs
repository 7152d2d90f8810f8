//! Appending: recognise the turns that are stored, place new ones on a branch, cut chunks,
//! and insert.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::Level;
use icecore_domain::cut::{Cut, CutPolicy, OpenTail};
use icecore_domain::identity::Link;
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo};

use crate::bounds::Change;
use crate::engine::prelude::*;
use crate::log::Outcome;
use crate::store::Store;
use crate::turns::links::LinkedBefore;
use crate::turns::rows::{BranchState, ERASED, HAS_CLIENT_ID, SESSION_GIVEN};
use crate::turns::{
    AppendBatch, Appended, AppendedTurn, BranchRecord, NewTurn, ParentRef, links, rows,
};
use crate::{log, outcomes, secrets, usage};

impl Store {
    /// Appends turns to a session, all or none, in one step with their cuts.
    ///
    /// The session begins with its first turn. `seq` is dense from 1 within it.
    /// A turn whose id is known with the same body, or whose body is stored as the same
    /// occurrence, is answered [`Outcome::Known`] and not added. A known id with another
    /// body is [`StoreError::Conflict`]. A turn that was erased is [`Outcome::Forgotten`]
    /// unless `insist`. A parent that is the head of a branch continues it, any other
    /// forks. Text that was redacted with another version of the secrets is
    /// [`StoreError::SecretsChanged`].
    ///
    /// A turn with a link is recognised by that alone, whatever its id, its parents, and
    /// `insist`: if the session has it, it is [`Outcome::Known`], or [`Outcome::Forgotten`]
    /// if it was erased. The link of a turn that is added is stored in the same step, for
    /// good. The turns of a batch with links are one path: each follows the one before it,
    /// whether that was stored or not, and the first follows [`AppendBatch::after`], or
    /// begins a tree of its own. An `after` that the session does not have is
    /// [`StoreError::NoParent`].
    pub async fn append(&self, scope: &Scope, batch: AppendBatch) -> Result<Appended> {
        self.write_with(scope, "append", batch, append).await
    }
}

fn append(tx: &Tx<'_>, batch: &AppendBatch) -> Result<Appended> {
    secrets::refuse_changed(tx, tx.tenant()?, batch.secrets_seen)?;
    let no = tx.ensure_scope()?;
    outcomes::refuse_taken(tx, no.tenant, batch.claim.as_ref(), batch.now)?;
    let mut session = OpenSession::load(tx, no, batch)?;
    let mut turns = Vec::with_capacity(batch.turns.len());
    for (index, turn) in batch.turns.iter().enumerate() {
        turns.push(session.put(tx, index, turn)?);
    }
    let position = session.finish(tx)?;
    let appended = Appended { session: session.no, turns, position };
    outcomes::put_claimed(tx, no.tenant, batch.claim.as_ref(), &appended, batch.now)?;
    Ok(appended)
}

/// A session while turns are added to it. They are written together at the end: that
/// takes fewer statements, and locks the tenant's counter later.
struct OpenSession<'b> {
    batch: &'b AppendBatch,
    scope: ScopeNo,
    no: SessionNo,
    last_seq: Seq,
    turns: u64,
    tokens: u64,
    current: Branch,
    branches: BTreeMap<Branch, BranchState>,
    touched: Vec<Branch>,
    added: Vec<Added<'b>>,
    chunks: Vec<[Value<'b>; 11]>,
    policy: i64,
    /// The stored turns that this batch may ask for, by lookup.
    known: BTreeMap<i64, Known>,
    links: BTreeMap<Link, LinkedBefore>,
    speakers: BTreeMap<[u8; 16], i64>,
    /// The last turn with a link, which the next one follows.
    followed: Option<Node>,
    /// Whether that turn or one before it is an answer that went through us.
    is_answered: bool,
}

/// A turn's place in the tree of its session.
type Node = (Branch, Ordinal);

struct Added<'b> {
    turn: &'b NewTurn,
    body: Vec<u8>,
    place: AppendedTurn,
    speaker: i64,
    flags: i64,
    is_answered: bool,
}

impl<'b> OpenSession<'b> {
    fn load(tx: &Tx<'_>, scope: ScopeNo, batch: &'b AppendBatch) -> Result<Self> {
        let (_, key) = tx.ensure_tenant()?;
        let hash = rows::session_hash(&key, &batch.session);
        let policy = policy_no(tx, batch.policy)?;
        let found = tx.first(
            "SELECT session, last_seq, turns, tokens, current FROM sessions
             WHERE tenant = ?1 AND scope = ?2 AND name_hash = ?3",
            params![scope.tenant, scope.scope, hash],
            tuple,
        )?;
        let (no, last_seq, turns, tokens, current) = match found {
            Some(found) => found,
            // A session begins with its first turn.
            None if batch.turns.is_empty() => (SessionNo(0), Seq(0), 0, 0, Branch::MAIN),
            None => (new_session(tx, scope, batch, &hash)?, Seq(0), 0, 0, Branch::MAIN),
        };
        let states = rows::branches(tx, scope.tenant, no)?;
        let known = read_known(tx, scope.tenant, no, last_seq, batch)?;
        let links = links::before(tx, scope, no, batch)?;
        let followed = batch.after.map(|link| -> Result<_> {
            let found = links::in_session(tx, scope, no, link)?;
            found.ok_or_else(|| no_parent(0, "the message before", batch))
        });
        let followed = followed.transpose()?;
        Ok(Self {
            batch,
            scope,
            no,
            last_seq,
            turns,
            tokens,
            current,
            branches: states.into_iter().map(|state| (state.record.branch, state)).collect(),
            touched: Vec::new(),
            added: Vec::with_capacity(batch.turns.len()),
            chunks: Vec::new(),
            policy,
            known,
            links,
            speakers: BTreeMap::new(),
            followed: followed.map(|(turn, _)| (turn.branch, turn.ordinal)),
            is_answered: followed.is_some_and(|(_, is_answered)| is_answered),
        })
    }

    /// Finds the next turn of the batch among those that are stored, or adds it.
    fn put(&mut self, tx: &Tx<'_>, index: usize, turn: &'b NewTurn) -> Result<AppendedTurn> {
        let known = match turn.link {
            Some(link) => self.linked(tx, link, turn.is_answer)?,
            None => self.recognise(index, turn)?,
        };
        let put = match known {
            Some(known) => known,
            None => self.add(tx, index, turn)?,
        };
        if turn.link.is_some() {
            self.followed = Some((put.branch, put.ordinal));
        }
        Ok(put)
    }

    /// The stored turn that has a link.
    fn linked(&mut self, tx: &Tx<'_>, link: Link, is_answer: bool) -> Result<Option<AppendedTurn>> {
        let here = self.links.get_mut(&link).and_then(|before| before.here.as_mut());
        let Some((found, was_answered)) = here else { return Ok(None) };
        self.is_answered = *was_answered || is_answer;
        if self.is_answered && !*was_answered {
            *was_answered = true;
            // A turn of this batch has no row yet.
            match self.added.iter_mut().find(|added| added.place.seq == found.seq) {
                Some(added) => added.is_answered = true,
                None => links::note_answered(tx, self.scope, self.no, link)?,
            }
        }
        Ok(Some(*found))
    }

    /// The stored turn that this one repeats, by id or by body.
    fn recognise(&self, index: usize, turn: &NewTurn) -> Result<Option<AppendedTurn>> {
        let id = turn.turn.fields().id.as_ref();
        if id.is_none() && turn.occurrence == 0 {
            return Ok(None);
        }
        let body = turn.identity.body;
        let Some(known) = self.known.get(&turn.identity.lookup) else { return Ok(None) };
        let has_other_body = |((has_id, other), stored): (&(bool, [u8; 16]), &Bearers)| {
            *has_id && *other != body && !stored.present.is_empty()
        };
        if let Some(id) = id
            && known.iter().any(has_other_body)
        {
            let session = self.batch.session.as_str().to_owned();
            return Err(StoreError::Conflict { index, id: id.clone(), session });
        }
        let Some(same) = known.get(&(id.is_some(), body)) else { return Ok(None) };
        // Turns that are present come before erased ones, which an insisting caller does
        // not see.
        let nth = if id.is_some() { 0 } else { turn.occurrence as usize - 1 };
        let erased = if self.batch.insist { &[] } else { &same.erased[..] };
        Ok(same.present.iter().chain(erased).nth(nth).copied())
    }

    fn add(&mut self, tx: &Tx<'_>, index: usize, turn: &'b NewTurn) -> Result<AppendedTurn> {
        let branch = self.branch_for(tx, index, turn)?;
        let seq = Seq(self.last_seq.0 + 1);
        self.last_seq = seq;
        self.turns += 1;
        self.tokens += u64::from(turn.tokens);
        self.current = branch;
        let ordinal = self.cut(tx, branch, seq, turn.tokens)?;
        let known = AppendedTurn { outcome: Outcome::Known, seq, branch, ordinal };
        self.note(tx, turn, known)?;
        // The batch asks for no other lookups.
        if let Some(stored) = self.known.get_mut(&turn.identity.lookup) {
            stored.entry((has_id(turn), turn.identity.body)).or_default().present.push(known);
        }
        Ok(AppendedTurn { outcome: Outcome::Added, ..known })
    }

    /// The branch that a turn is added to, which may be new.
    fn branch_for(&mut self, tx: &Tx<'_>, index: usize, turn: &NewTurn) -> Result<Branch> {
        if turn.link.is_some() {
            return Ok(self.after(self.followed));
        }
        if turn.turn.fields().parent_ids.is_none() {
            return Ok(self.begin(self.current, None));
        }
        let mut first = None;
        for parent in &turn.parents {
            let found = self.find_parent(tx, parent)?;
            let found = found.ok_or_else(|| missing_parent(index, parent, self.batch))?;
            first.get_or_insert(found);
        }
        // An explicit "no parents" begins a tree of its own.
        Ok(self.after(first))
    }

    /// The branch whose head is `parent`, or else a new one.
    fn after(&mut self, parent: Option<Node>) -> Branch {
        let length = |branch| self.branches.get(branch).map(|state| state.record.tail.length);
        match parent {
            Some((branch, ordinal)) if length(&branch) == Some(ordinal.0) => branch,
            fork => {
                let next = self.branches.keys().next_back().map_or(0, |last| last.0 + 1);
                self.begin(Branch(next), fork)
            }
        }
    }

    fn begin(&mut self, branch: Branch, fork: Option<Node>) -> Branch {
        self.branches.entry(branch).or_insert_with(|| BranchState {
            policy: self.policy,
            first_seqs: [Seq(0); 3],
            tokens: [0; 3],
            record: BranchRecord {
                branch,
                fork,
                tail: OpenTail::empty(self.batch.policy),
                head_seq: Seq(0),
                warm_through: Ordinal(0),
                cold_through: Ordinal(0),
                summarized_through: [Ordinal(0); 3],
                version: 0,
            },
        });
        branch
    }

    fn find_parent(&self, tx: &Tx<'_>, parent: &ParentRef) -> Result<Option<Node>> {
        let known = self.known.get(&parent.lookup);
        let named = || known.into_iter().flatten().filter(|((has_id, _), _)| *has_id);
        // After an insisted re-import the newest bearer of the id is meant.
        let present = named().filter_map(|(_, stored)| stored.present.last());
        let erased = named().filter_map(|(_, stored)| stored.erased.last());
        let newest = present.max_by_key(|turn| turn.seq);
        if let Some(turn) = newest.or_else(|| erased.max_by_key(|turn| turn.seq)) {
            return Ok(Some((turn.branch, turn.ordinal)));
        }
        let Some(ours) = parent.ours.filter(|ours| ours.session == self.no) else {
            return Ok(None);
        };
        if let Some(added) = self.added.iter().find(|added| added.place.seq == ours.seq) {
            return Ok(Some((added.place.branch, added.place.ordinal)));
        }
        tx.first(
            "SELECT branch, ordinal FROM turns WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
            params![self.scope.tenant, self.no, ours.seq],
            tuple,
        )
    }

    /// Adds a turn to its branch's tail, closes the chunks that are complete with it, and
    /// returns its ordinal.
    fn cut(&mut self, tx: &Tx<'_>, branch: Branch, seq: Seq, tokens: u32) -> Result<Ordinal> {
        if !self.touched.contains(&branch) {
            self.touched.push(branch);
        }
        let Some(state) = self.branches.get_mut(&branch) else { return Err(StoreError::Closed) };
        let cuts = state.record.tail.push(tokens, self.batch.policy);
        let ordinal = state.record.tail.length;
        let previous_head = std::mem::replace(&mut state.record.head_seq, seq);
        // Only a session that was erased from can have tombstones.
        let has_tombstones = self.last_seq.0 > self.turns;
        let mut close = |state: &mut BranchState, cut: &Cut, last_seq: Seq| {
            let level = cut.level as usize;
            let first_seq = std::mem::take(&mut state.first_seqs[level]);
            let tokens = std::mem::take(&mut state.tokens[level]);
            let erased = if has_tombstones {
                tx.one(
                    &format!(
                        "SELECT count(*) FROM turns
                         WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                           AND seq BETWEEN ?4 AND ?5 AND flags & {ERASED} != 0"
                    ),
                    params![self.scope.tenant, self.no, branch, first_seq, last_seq],
                    column,
                )?
            } else {
                0
            };
            self.chunks.push([
                self.scope.tenant.into(),
                self.no.into(),
                branch.into(),
                cut.level.into(),
                cut.first.into(),
                cut.last.into(),
                first_seq.into(),
                last_seq.into(),
                (cut.last + 1 - cut.first).saturating_sub(erased).into(),
                tokens.into(),
                state.policy.into(),
            ]);
            if cut.level == Level::Macro {
                state.policy = self.policy;
            }
            Result::Ok(())
        };
        // A cut that ends before this turn comes first, and closes without it.
        let (before, with) = cuts.split_at(cuts.partition_point(|cut| cut.last < ordinal));
        before.iter().try_for_each(|cut| close(state, cut, previous_head))?;
        for (first_seq, sum) in state.first_seqs.iter_mut().zip(&mut state.tokens) {
            if *first_seq == Seq(0) {
                *first_seq = seq;
            }
            *sum += u64::from(tokens);
        }
        with.iter().try_for_each(|cut| close(state, cut, seq))?;
        Ok(Ordinal(ordinal))
    }

    fn note(&mut self, tx: &Tx<'_>, turn: &'b NewTurn, place: AppendedTurn) -> Result<()> {
        let speaker = turn.speaker.map_or(Ok(0), |hash| self.speaker(tx, &hash))?;
        let flags =
            i64::from(has_id(turn)) * HAS_CLIENT_ID + i64::from(turn.session_given) * SESSION_GIVEN;
        if let Some(link) = turn.link {
            let before = self.links.entry(link).or_default();
            self.is_answered |= turn.is_answer || before.is_answered;
            *before = LinkedBefore {
                here: Some((place, self.is_answered)),
                is_answered: self.is_answered,
            };
        }
        let (body, is_answered) = (rows::write_body(&turn.turn), self.is_answered);
        self.added.push(Added { turn, body, place, speaker, flags, is_answered });
        Ok(())
    }

    fn speaker(&mut self, tx: &Tx<'_>, hash: &[u8; 16]) -> Result<i64> {
        if let Some(known) = self.speakers.get(hash) {
            return Ok(*known);
        }
        let key = params![self.scope.tenant, self.no, *hash];
        let stored = tx.first(
            "SELECT speaker FROM speakers WHERE tenant = ?1 AND session = ?2 AND name_hash = ?3",
            key,
            column,
        )?;
        let speaker = match stored {
            Some(speaker) => speaker,
            None => tx.one(
                "INSERT INTO speakers (tenant, session, speaker, name_hash)
                 SELECT ?1, ?2, coalesce(max(speaker), 0) + 1, ?3 FROM speakers
                 WHERE tenant = ?1 AND session = ?2
                 RETURNING speaker",
                key,
                column,
            )?,
        };
        self.speakers.insert(*hash, speaker);
        Ok(speaker)
    }

    /// Writes all that was added, and returns the last position.
    fn finish(&self, tx: &Tx<'_>) -> Result<Position> {
        let tenant = tx.tenant()?;
        if self.added.is_empty() {
            return log::head(tx, tenant);
        }
        self.write_session(tx)?;
        // Last: from here on every other writer into a memory of this tenant waits.
        let bytes = self.added.iter().map(|added| added.body.len() as i64).sum();
        let change = Change { turns: self.added.len() as i64, bytes };
        let last = usage::keep_turns(tx, (tenant, self.scope.tenant), change)?;
        self.write_turns(tx, last - change.turns + 1)?;
        Ok(Position(last as u64))
    }

    /// Writes what does not depend on positions.
    fn write_session(&self, tx: &Tx<'_>) -> Result<()> {
        for state in self.touched.iter().filter_map(|branch| self.branches.get(branch)) {
            self.write_branch(tx, state)?;
        }
        tx.insert_all("chunks", CHUNK_COLUMNS, &self.chunks)?;
        let (tenant, session) = (Value::from(self.scope.tenant), Value::from(self.no));
        let bodies = self
            .added
            .iter()
            .map(|added| [tenant, session, added.place.seq.into(), added.body.as_slice().into()]);
        insert(tx, "bodies", ["tenant", "session", "seq", "body"], bodies)?;
        tx.change(
            "UPDATE sessions SET name = ?3, turns = ?4, tokens = ?5, last_seq = ?6,
                updated_at = ?7, current = ?8
             WHERE tenant = ?1 AND session = ?2",
            params![
                self.scope.tenant,
                self.no,
                self.batch.session.as_str(),
                self.turns,
                self.tokens,
                self.last_seq,
                self.batch.now,
                self.current,
            ],
        )
    }

    fn write_branch(&self, tx: &Tx<'_>, state: &BranchState) -> Result<()> {
        let record = &state.record;
        let tail = &record.tail;
        tx.change(
            "INSERT INTO branches (tenant, session, branch, fork_branch, fork_ordinal, policy, length,
                head_seq, micro_first, mini_first, macro_first, micro_first_seq, mini_first_seq, macro_first_seq,
                micro_tokens, mini_tokens, macro_tokens)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
             ON CONFLICT (tenant, session, branch) DO UPDATE SET policy = ?6, length = ?7, head_seq = ?8,
                micro_first = ?9, mini_first = ?10, macro_first = ?11, micro_first_seq = ?12, mini_first_seq = ?13,
                macro_first_seq = ?14, micro_tokens = ?15, mini_tokens = ?16, macro_tokens = ?17,
                version = branches.version + 1, unsettled = 1",
            params![
                self.scope.tenant,
                self.no,
                record.branch,
                record.fork.map(|(branch, _)| branch),
                record.fork.map(|(_, ordinal)| ordinal),
                state.policy,
                tail.length,
                record.head_seq,
                tail.micro_first,
                tail.mini_first,
                tail.macro_first,
                state.first_seqs[0],
                state.first_seqs[1],
                state.first_seqs[2],
                state.tokens[0],
                state.tokens[1],
                state.tokens[2],
            ],
        )
    }

    /// Writes the turns, from position `first` on, and what is found by their positions or
    /// links.
    fn write_turns(&self, tx: &Tx<'_>, first: i64) -> Result<()> {
        let (tenant, session) = (Value::from(self.scope.tenant), Value::from(self.no));
        let scope = Value::from(self.scope.scope);
        let turns = (first..).zip(&self.added).map(|(position, added)| {
            [
                tenant,
                session,
                added.place.seq.into(),
                position.into(),
                added.place.branch.into(),
                added.place.ordinal.into(),
                added.speaker.into(),
                u64::from(added.turn.tokens).into(),
                added.flags.into(),
                added.turn.at.into(),
                added.turn.identity.lookup.into(),
                added.turn.identity.body.as_slice().into(),
            ]
        });
        insert(tx, "turns", TURN_COLUMNS, turns)?;
        let (count, now) = (self.added.len(), self.batch.now);
        let first_seq = Seq(self.last_seq.0 - count as u64 + 1);
        let row = fields! {
            tenant: self.scope.tenant,
            first: first,
            scope: self.scope.scope,
            session: self.no,
            first_seq: first_seq,
            count: count,
            at: now,
        };
        tx.insert("runs", row)?;
        let hidden = (first..).zip(&self.added).flat_map(|(position, added)| {
            let hidden = added.turn.hidden.iter();
            hidden.map(move |(kind, count)| {
                [tenant, position.into(), scope, kind.as_str().into(), (*count).into()]
            })
        });
        insert(tx, "hidden", ["tenant", "position", "scope", "kind", "count"], hidden)?;
        let links = self.added.iter().filter_map(|added| {
            let link = added.turn.link.as_ref()?.into();
            let is_answered = i64::from(added.is_answered).into();
            let is_hollow = i64::from(added.turn.is_hollow).into();
            Some([tenant, scope, link, session, added.place.seq.into(), is_answered, is_hollow])
        });
        insert(tx, "links", LINK_COLUMNS, links)
    }
}

fn insert<'v, const N: usize>(
    tx: &Tx<'_>,
    table: &str,
    columns: [&str; N],
    rows: impl Iterator<Item = [Value<'v>; N]>,
) -> Result<()> {
    tx.insert_all(table, columns, &rows.collect::<Vec<_>>())
}

const TURN_COLUMNS: [&str; 12] = [
    "tenant", "session", "seq", "position", "branch", "ordinal", "speaker", "tokens", "flags",
    "at", "lookup", "identity",
];

const LINK_COLUMNS: [&str; 7] = ["tenant", "scope", "link", "session", "seq", "answered", "hollow"];

const CHUNK_COLUMNS: [&str; 11] = [
    "tenant", "session", "branch", "level", "first", "last", "first_seq", "last_seq", "turns",
    "tokens", "policy",
];

/// Stored turns with the same body, in order of `seq`.
#[derive(Default)]
struct Bearers {
    present: Vec<AppendedTurn>,
    erased: Vec<AppendedTurn>,
}

/// The turns of one lookup, by whether the client gave an id, and by body.
type Known = BTreeMap<(bool, [u8; 16]), Bearers>;

/// The stored turns that a batch may ask for, by lookup. Each is read once: a batch may
/// hold the same body many times over.
fn read_known(
    tx: &Tx<'_>,
    tenant: i64,
    session: SessionNo,
    last_seq: Seq,
    batch: &AppendBatch,
) -> Result<BTreeMap<i64, Known>> {
    let asks = |turn: &&NewTurn| turn.link.is_none() && (has_id(turn) || turn.occurrence > 0);
    let turns = batch.turns.iter().filter(asks).map(|turn| turn.identity.lookup);
    let parents = batch.turns.iter().flat_map(|turn| &turn.parents).map(|parent| parent.lookup);
    let lookups: BTreeSet<i64> = turns.chain(parents).collect();
    // Nothing is stored of a new session.
    if last_seq == Seq(0) {
        return Ok(lookups.into_iter().map(|lookup| (lookup, Known::new())).collect());
    }
    let keys = lookups.iter().map(|lookup| values![tenant, session, *lookup]);
    let found = tx.each(
        "SELECT seq, branch, ordinal, flags, identity FROM turns INDEXED BY turns_by_lookup
         WHERE tenant = ?1 AND session = ?2 AND lookup = ?3 ORDER BY seq",
        keys,
        |row| {
            let (seq, branch, ordinal, flags, body): (_, _, _, i64, _) = tuple(row)?;
            let is_erased = flags & ERASED != 0;
            let outcome = if is_erased { Outcome::Forgotten } else { Outcome::Known };
            let turn = AppendedTurn { outcome, seq, branch, ordinal };
            Ok(((flags & HAS_CLIENT_ID != 0, body), turn))
        },
    )?;
    let known = found.into_iter().map(|found| {
        let mut known = Known::new();
        for (key, turn) in found {
            let bearers = known.entry(key).or_default();
            match turn.outcome {
                Outcome::Forgotten => bearers.erased.push(turn),
                _ => bearers.present.push(turn),
            }
        }
        known
    });
    Ok(lookups.into_iter().zip(known).collect())
}

fn has_id(turn: &NewTurn) -> bool {
    turn.turn.fields().id.is_some()
}

/// Says why a parent that a turn names is not found.
fn missing_parent(index: usize, parent: &ParentRef, batch: &AppendBatch) -> StoreError {
    let turns = &batch.turns;
    let bearer =
        |lookup| turns.iter().position(|turn| has_id(turn) && turn.identity.lookup == lookup);
    let Some(mut at) = bearer(parent.lookup) else {
        return no_parent(index, &parent.shown, batch);
    };
    // Follow first parents; more steps than turns means a cycle.
    for _ in 0..=turns.len() {
        if at == index {
            let id = turns[index].turn.fields().id.clone().unwrap_or_default();
            return StoreError::Cycle { index, id };
        }
        match turns[at].parents.first().and_then(|next| bearer(next.lookup)) {
            Some(next) => at = next,
            None => break,
        }
    }
    StoreError::ParentLater { index, parent: parent.shown.clone() }
}

fn no_parent(index: usize, parent: &str, batch: &AppendBatch) -> StoreError {
    let session = batch.session.as_str().to_owned();
    StoreError::NoParent { index, parent: parent.to_owned(), session }
}

fn policy_no(tx: &Tx<'_>, policy: CutPolicy) -> Result<i64> {
    let sizes =
        params![policy.micro_turns, policy.mini_turns, policy.macro_turns, policy.micro_max_tokens];
    let found = tx.first(
        "SELECT policy FROM policies
         WHERE micro = ?1 AND mini = ?2 AND macro = ?3 AND max_tokens = ?4",
        sizes,
        column,
    )?;
    match found {
        Some(found) => Ok(found),
        None => tx.one(
            "INSERT INTO policies (policy, micro, mini, macro, max_tokens)
             SELECT coalesce(max(policy), 0) + 1, ?1, ?2, ?3, ?4 FROM policies RETURNING policy",
            sizes,
            column,
        ),
    }
}

fn new_session(
    tx: &Tx<'_>,
    no: ScopeNo,
    batch: &AppendBatch,
    name_hash: &[u8; 16],
) -> Result<SessionNo> {
    let session: SessionNo = tx.one(
        "UPDATE tenants SET sessions = sessions + 1 WHERE tenant = ?1 RETURNING sessions",
        [no.tenant],
        column,
    )?;
    let row = fields! {
        tenant: no.tenant,
        session: session,
        scope: no.scope,
        name: batch.session.as_str(),
        name_hash: *name_hash,
        turns: 0,
        tokens: 0,
        last_seq: 0,
        updated_at: batch.now,
        current: Branch::MAIN,
    };
    tx.insert("sessions", row)?;
    Ok(session)
}

#[cfg(test)]
mod tests {
    use crate::Store;
    use crate::contract::fixtures::*;

    #[tokio::test]
    async fn the_same_body_many_times_over_is_known_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        let turns: Vec<Say> = (1..=4000).map(|n| say("ok").nth(n)).collect();
        for _ in 0..2 {
            for part in turns.chunks(1000) {
                try_add(&store, "s", part).await.unwrap();
            }
        }
        assert_eq!(stats(&store).await.turns, 4000);
    }
}
