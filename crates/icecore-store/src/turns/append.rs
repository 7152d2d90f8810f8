//! Appending: recognise, place on a branch, cut, insert.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::Level;
use icecore_domain::cut::{Cut, CutPolicy, OpenTail};
use icecore_domain::identity::Link;
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::time::Millis;

use crate::bounds::Change;
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Value, params};
use crate::error::{Result, StoreError};
use crate::log::Outcome;
use crate::store::Store;
use crate::turns::rows::{BranchState, ERASED, HAS_CLIENT_ID, SESSION_GIVEN};
use crate::turns::{
    AppendBatch, Appended, AppendedTurn, BranchRecord, NewTurn, ParentRef, TurnPlace, TurnState,
    links, no_earlier_message, rows,
};
use crate::{engine, log, outcomes, scopes, secrets, usage};

pub(crate) fn append(tx: &Tx<'_>, scope: &Scope, batch: &AppendBatch) -> Result<Appended> {
    secrets::refuse_changed(tx, scope.tenant(), batch.secrets_seen)?;
    let no = scopes::ensure_scope(tx, scope)?;
    outcomes::refuse_taken(tx, no.tenant, batch.claim.as_ref(), batch.now)?;
    let mut session = OpenSession::load(tx, scope, no, batch)?;
    let mut turns = Vec::with_capacity(batch.turns.len());
    for (index, turn) in batch.turns.iter().enumerate() {
        let known = match turn.link {
            Some(link) => session.linked(tx, link, turn.is_answer)?,
            None => session.recognise(index, turn, batch)?,
        };
        let done = match known {
            Some(known) => known,
            None => session.add(tx, index, turn, batch)?,
        };
        if turn.link.is_some() {
            session.followed = Some((done.branch, done.ordinal));
        }
        turns.push(done);
    }
    let position = session.finish(tx, scope, batch.now)?;
    let appended = Appended { session: session.no, turns, position };
    outcomes::put_claimed(tx, no.tenant, batch.claim.as_ref(), &appended, batch.now)?;
    Ok(appended)
}

/// A session while turns are added to it. What is added is written when all is known:
/// the fewer statements, and the later the tenant's counter is locked, the better.
struct OpenSession<'b> {
    tenant: i64,
    scope: i64,
    no: SessionNo,
    name: String,
    last_seq: i64,
    turns: i64,
    tokens: i64,
    current: Branch,
    branches: BTreeMap<Branch, BranchState>,
    touched: Vec<Branch>,
    added: Vec<Added<'b>>,
    chunks: Vec<[i64; 11]>,
    policy: (i64, CutPolicy),
    /// The stored turns that this batch may ask for, by lookup.
    known: BTreeMap<i64, Known>,
    /// The stored turns that have links of this batch.
    links: BTreeMap<Link, LinkedBefore>,
    speakers: BTreeMap<[u8; 16], i64>,
    /// Where the last turn with a link is, which the next follows.
    followed: Option<(Branch, Ordinal)>,
    /// Whether that or one before it is an answer that went through us.
    is_answered: bool,
}

/// A turn that is to be written.
struct Added<'b> {
    turn: &'b NewTurn,
    body: Vec<u8>,
    seq: i64,
    branch: Branch,
    ordinal: u64,
    speaker: i64,
    flags: i64,
    is_answered: bool,
}

/// What is known of a link before its turn is added.
#[derive(Default)]
struct LinkedBefore {
    /// The turn of this session that has it, and whether it is answered.
    here: Option<(TurnPlace, bool)>,
    /// The same link is the same history: what was answered in another session is
    /// answered.
    is_answered: bool,
}

impl<'b> OpenSession<'b> {
    fn load(tx: &Tx<'_>, scope: &Scope, no: ScopeNo, batch: &'b AppendBatch) -> Result<Self> {
        let failed = StoreError::from;
        let (_, key) = scopes::ensure_tenant(tx, scope.tenant())?;
        let hash = rows::session_hash(&key, &batch.session);
        let policy = (policy_no(tx, batch.policy)?, batch.policy);
        let found: Option<(i64, i64, i64, i64, u32)> = tx
            .prepare_cached(
                "SELECT session, last_seq, turns, tokens, current FROM sessions
                 WHERE tenant = ?1 AND scope = ?2 AND name_hash = ?3",
            )
            .and_then(|mut q| {
                q.query_row(params![no.tenant, no.scope, hash.as_slice()], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                })
                .optional()
            })
            .map_err(failed)?;
        let (session, last_seq, turns, tokens, current) = match found {
            Some(found) => found,
            // A session begins with its first turn.
            None if batch.turns.is_empty() => (0, 0, 0, 0, 0),
            None => {
                (new_session(tx, no, &batch.session, &hash, batch.now).map_err(failed)?, 0, 0, 0, 0)
            }
        };
        let session = SessionNo(session as u64);
        let states = rows::branches(tx, no.tenant, session)?;
        let known = read_known(tx, no.tenant, session, last_seq, batch).map_err(failed)?;
        let links = links::before(tx, no, session, batch).map_err(failed)?;
        let (followed, is_answered) = match batch.after {
            None => (None, false),
            Some(link) => {
                let found = links::in_session(tx, no, session, link).map_err(failed)?;
                let (place, is_answered) =
                    found.ok_or_else(|| no_earlier_message(&batch.session))?;
                (Some((place.branch, place.ordinal)), is_answered)
            }
        };
        Ok(Self {
            tenant: no.tenant,
            scope: no.scope,
            no: session,
            name: batch.session.as_str().to_owned(),
            last_seq,
            turns,
            tokens,
            current: Branch(current),
            branches: states.into_iter().map(|state| (state.record.branch, state)).collect(),
            touched: Vec::new(),
            added: Vec::with_capacity(batch.turns.len()),
            chunks: Vec::new(),
            policy,
            known,
            links: links
                .into_iter()
                .map(|(link, here, is_answered)| (link, LinkedBefore { here, is_answered }))
                .collect(),
            speakers: BTreeMap::new(),
            followed,
            is_answered,
        })
    }

    /// The stored turn that has a link.
    fn linked(&mut self, tx: &Tx<'_>, link: Link, is_answer: bool) -> Result<Option<AppendedTurn>> {
        let before = self.links.entry(link).or_default();
        let Some((found, was_answered)) = &mut before.here else { return Ok(None) };
        let is_answered = *was_answered;
        if is_answer && !is_answered {
            *was_answered = true;
            // One that was added just now is not written yet.
            match self.added.iter_mut().find(|added| added.seq as u64 == found.id.seq.0) {
                Some(added) => added.is_answered = true,
                None => {
                    let no = ScopeNo { tenant: self.tenant, scope: self.scope };
                    links::note_answered(tx, no, self.no, link)?;
                }
            }
        }
        self.is_answered = is_answered || is_answer;
        Ok(Some(AppendedTurn {
            outcome: match found.state {
                TurnState::Erased => Outcome::Forgotten,
                TurnState::Present | TurnState::Expired => Outcome::Known,
            },
            seq: found.id.seq,
            branch: found.branch,
            ordinal: found.ordinal,
        }))
    }

    /// Finds the stored turn that this one is, if it is one.
    fn recognise(
        &self,
        index: usize,
        turn: &NewTurn,
        batch: &AppendBatch,
    ) -> Result<Option<AppendedTurn>> {
        let has_id = turn.turn.fields().id.is_some();
        if !has_id && turn.occurrence == 0 {
            return Ok(None);
        }
        let identity = turn.identity.body;
        let Some(known) = self.known.get(&turn.identity.lookup) else { return Ok(None) };
        let is_other = |(kind, body): &(bool, [u8; 16])| *kind && *body != identity;
        let is_taken = known.iter().any(|(kind, b)| is_other(kind) && !b.present.is_empty());
        if has_id && is_taken {
            return Err(StoreError::Conflict {
                index,
                id: turn.turn.fields().id.clone().unwrap_or_default(),
                session: self.name.clone(),
            });
        }
        let Some(same) = known.get(&(has_id, identity)) else { return Ok(None) };
        // What is there answers before what was erased; an insisting caller
        // sees only the former.
        let nth = if has_id { 0 } else { turn.occurrence as usize - 1 };
        let forgotten = || nth.checked_sub(same.present.len()).and_then(|nth| same.erased.get(nth));
        let found = match same.present.get(nth) {
            Some(found) => Some((Outcome::Known, found)),
            None if batch.insist => None,
            None => forgotten().map(|found| (Outcome::Forgotten, found)),
        };
        Ok(found.map(|(outcome, found)| AppendedTurn {
            outcome,
            seq: Seq(found.seq as u64),
            branch: found.branch,
            ordinal: found.ordinal,
        }))
    }

    fn add(
        &mut self,
        tx: &Tx<'_>,
        index: usize,
        turn: &'b NewTurn,
        batch: &AppendBatch,
    ) -> Result<AppendedTurn> {
        let branch = self.place(tx, index, turn, batch)?;
        let seq = self.last_seq + 1;
        self.last_seq = seq;
        self.turns += 1;
        self.tokens += i64::from(turn.tokens);
        self.current = branch;
        let ordinal = self.cut(tx, branch, seq, turn.tokens)?;
        self.note(tx, turn, seq, branch, ordinal)?;
        // Nobody in the batch asks for other lookups.
        if let Some(known) = self.known.get_mut(&turn.identity.lookup) {
            let has_id = turn.turn.fields().id.is_some();
            let bearers = known.entry((has_id, turn.identity.body)).or_default();
            bearers.present.push(Candidate { seq, branch, ordinal: Ordinal(ordinal) });
        }
        let (seq, ordinal) = (Seq(seq as u64), Ordinal(ordinal));
        Ok(AppendedTurn { outcome: Outcome::Added, seq, branch, ordinal })
    }

    /// The branch that a turn goes on, which may be a new one.
    fn place(
        &mut self,
        tx: &Tx<'_>,
        index: usize,
        turn: &NewTurn,
        batch: &AppendBatch,
    ) -> Result<Branch> {
        if turn.link.is_some() {
            return Ok(self.after(self.followed));
        }
        if turn.turn.fields().parent_ids.is_none() {
            let branch = self.current;
            self.begin_if_new(branch, None);
            return Ok(branch);
        }
        let mut first = None;
        for parent in &turn.parents {
            let found = self.find_parent(tx, parent)?;
            let found = found.ok_or_else(|| self.no_parent(index, parent, batch))?;
            first.get_or_insert((found.branch, found.ordinal));
        }
        // An explicit "no parents" begins a tree of its own.
        Ok(self.after(first))
    }

    /// The branch that a turn is on which follows another, or none.
    fn after(&mut self, parent: Option<(Branch, Ordinal)>) -> Branch {
        let is_head = |(branch, ordinal): &(Branch, Ordinal)| {
            self.branches.get(branch).is_some_and(|b| b.record.tail.length == ordinal.0)
        };
        match parent.filter(is_head) {
            Some((branch, _)) => branch,
            None => self.begin_next(parent),
        }
    }

    fn find_parent(&self, tx: &Tx<'_>, parent: &ParentRef) -> Result<Option<Candidate>> {
        let known = self.known.get(&parent.lookup);
        let named = || {
            known
                .into_iter()
                .flatten()
                .filter(|((has_id, _), _)| *has_id)
                .map(|(_, bearers)| bearers)
        };
        // After an insisted re-import the newest bearer of the id is meant.
        let present = named().filter_map(|bearers| bearers.present.last());
        let erased = named().filter_map(|bearers| bearers.erased.last());
        let newest = present.max_by_key(|found| found.seq);
        if let Some(found) = newest.or_else(|| erased.max_by_key(|found| found.seq)) {
            return Ok(Some(*found));
        }
        let Some(ours) = parent.ours.filter(|ours| ours.session == self.no) else {
            return Ok(None);
        };
        let seq = engine::number(ours.seq.0);
        if let Some(added) = self.added.iter().find(|added| added.seq == seq) {
            let (branch, ordinal) = (added.branch, Ordinal(added.ordinal));
            return Ok(Some(Candidate { seq, branch, ordinal }));
        }
        tx.prepare_cached(
            "SELECT branch, ordinal FROM turns WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        )
        .and_then(|mut q| {
            q.query_row(params![self.tenant, self.no.0 as i64, ours.seq.0 as i64], |row| {
                Ok(Candidate {
                    seq: ours.seq.0 as i64,
                    branch: Branch(row.get(0)?),
                    ordinal: Ordinal(row.get::<_, i64>(1)? as u64),
                })
            })
            .optional()
        })
    }

    fn no_parent(&self, index: usize, parent: &ParentRef, batch: &AppendBatch) -> StoreError {
        let shown = parent.shown.clone();
        let bearer = |lookup: i64| {
            batch
                .turns
                .iter()
                .position(|turn| turn.turn.fields().id.is_some() && turn.identity.lookup == lookup)
        };
        let Some(mut at) = bearer(parent.lookup) else {
            return StoreError::NoParent { index, parent: shown, session: self.name.clone() };
        };
        // Follow first parents; more steps than turns means they go round.
        for _ in 0..=batch.turns.len() {
            if at == index {
                let id = batch.turns[index].turn.fields().id.clone().unwrap_or_default();
                return StoreError::Cycle { index, id };
            }
            match batch.turns[at].parents.first().and_then(|next| bearer(next.lookup)) {
                Some(next) => at = next,
                None => break,
            }
        }
        StoreError::ParentLater { index, parent: shown }
    }

    fn begin_next(&mut self, fork: Option<(Branch, Ordinal)>) -> Branch {
        let next = self.branches.keys().next_back().map_or(0, |last| last.0 + 1);
        self.begin_if_new(Branch(next), fork);
        Branch(next)
    }

    fn begin_if_new(&mut self, branch: Branch, fork: Option<(Branch, Ordinal)>) {
        let (policy, sizes) = self.policy;
        self.branches.entry(branch).or_insert_with(|| BranchState {
            policy,
            first_seqs: [0; 3],
            tokens: [0; 3],
            record: BranchRecord {
                branch,
                fork,
                tail: OpenTail::empty(sizes),
                head_seq: Seq(0),
                warm_through: Ordinal(0),
                cold_through: Ordinal(0),
                summarized_through: [Ordinal(0); 3],
                version: 0,
            },
        });
    }

    /// Adds the turn to its branch's tail and writes the cuts that this makes.
    fn cut(&mut self, tx: &Tx<'_>, branch: Branch, seq: i64, tokens: u32) -> Result<u64> {
        if !self.touched.contains(&branch) {
            self.touched.push(branch);
        }
        let (policy_no, sizes) = self.policy;
        let Some(state) = self.branches.get_mut(&branch) else { return Err(StoreError::Closed) };
        let previous_head = state.record.head_seq.0 as i64;
        let cuts = state.record.tail.push(tokens, sizes);
        let ordinal = state.record.tail.length;
        state.record.head_seq = Seq(seq as u64);
        let mut counted = false;
        let count_turn = |state: &mut BranchState| {
            for level in 0..3 {
                if state.first_seqs[level] == 0 {
                    state.first_seqs[level] = seq;
                }
                state.tokens[level] += i64::from(tokens);
            }
        };
        for cut in &cuts {
            // A cut before this turn closes without it; later ones hold it.
            if cut.last == ordinal && !counted {
                count_turn(state);
                counted = true;
            }
            let last_seq = if cut.last == ordinal { seq } else { previous_head };
            let level = rows::level_no(cut.level) as usize;
            // Only a session that was erased from can have tombstones here.
            let erased = match self.last_seq > self.turns {
                true => {
                    let seqs = state.first_seqs[level]..=last_seq;
                    erased_in(tx, self.tenant, self.no, branch, seqs)?
                }
                false => 0,
            };
            let row = chunk_row(self.tenant, self.no, state, cut, last_seq, erased);
            self.chunks.push(row);
            state.first_seqs[level] = 0;
            state.tokens[level] = 0;
            if cut.level == Level::Macro {
                state.policy = policy_no;
            }
        }
        if !counted {
            count_turn(state);
        }
        Ok(ordinal)
    }

    /// Keeps a turn to be written.
    fn note(
        &mut self,
        tx: &Tx<'_>,
        turn: &'b NewTurn,
        seq: i64,
        branch: Branch,
        ordinal: u64,
    ) -> Result<()> {
        let speaker = match &turn.speaker {
            Some(hash) => self.speaker(tx, hash)?,
            None => 0,
        };
        let flags = if turn.turn.fields().id.is_some() { HAS_CLIENT_ID } else { 0 }
            | if turn.session_given { SESSION_GIVEN } else { 0 };
        if let Some(link) = turn.link {
            let before = self.links.entry(link).or_default();
            self.is_answered |= turn.is_answer || before.is_answered;
            before.is_answered = self.is_answered;
            let id = TurnId { session: self.no, seq: Seq(seq as u64) };
            let state = TurnState::Present;
            let place = TurnPlace { id, branch, ordinal: Ordinal(ordinal), state };
            before.here = Some((place, self.is_answered));
        }
        let (body, is_answered) = (rows::write_body(&turn.turn), self.is_answered);
        self.added.push(Added { turn, body, seq, branch, ordinal, speaker, flags, is_answered });
        Ok(())
    }

    fn speaker(&mut self, tx: &Tx<'_>, hash: &[u8; 16]) -> Result<i64> {
        if let Some(known) = self.speakers.get(hash) {
            return Ok(*known);
        }
        let speaker = self.stored_speaker(tx, hash)?;
        self.speakers.insert(*hash, speaker);
        Ok(speaker)
    }

    fn stored_speaker(&self, tx: &Tx<'_>, hash: &[u8; 16]) -> Result<i64> {
        let session = self.no.0 as i64;
        let known = tx
            .prepare_cached("SELECT speaker FROM speakers WHERE tenant = ?1 AND session = ?2 AND name_hash = ?3")?
            .query_row(params![self.tenant, session, hash.as_slice()], |row| row.get(0))
            .optional()?;
        if let Some(known) = known {
            return Ok(known);
        }
        tx.query_row(
            "INSERT INTO speakers (tenant, session, speaker, name_hash)
             SELECT ?1, ?2, coalesce(max(speaker), 0) + 1, ?3 FROM speakers WHERE tenant = ?1 AND session = ?2
             RETURNING speaker",
            params![self.tenant, session, hash.as_slice()],
            |row| row.get(0),
        )
    }

    /// Writes all that was added, and answers the last position.
    fn finish(&self, tx: &Tx<'_>, scope: &Scope, now: Millis) -> Result<Position> {
        if self.added.is_empty() {
            return log::head(tx, scope.tenant());
        }
        let failed = StoreError::from;
        self.write_session(tx, now).and_then(|()| self.write_bodies(tx)).map_err(failed)?;
        // Last: whoever else writes into a memory of this tenant waits from here on.
        let bytes = self.added.iter().map(|added| added.body.len() as i64).sum();
        let change = Change { turns: self.added.len() as i64, bytes };
        let last = usage::keep_turns(tx, (scope.tenant(), self.tenant), change)?;
        self.write_turns(tx, last - change.turns, now)
            .and_then(|()| self.write_links(tx))
            .map_err(failed)?;
        Ok(Position(last as u64))
    }

    /// The session, its branches and their cuts.
    fn write_session(&self, tx: &Tx<'_>, now: Millis) -> Result<()> {
        let session = self.no.0 as i64;
        for branch in &self.touched {
            if let Some(state) = self.branches.get(branch) {
                write_branch(tx, self.tenant, session, state)?;
            }
        }
        let chunks: Vec<_> = self.chunks.iter().map(|row| row.map(Value::Integer)).collect();
        tx.insert_all("chunks", CHUNK_COLUMNS, &chunks)?;
        tx.prepare_cached(
            "UPDATE sessions SET name = ?3, turns = ?4, tokens = ?5, last_seq = ?6, updated_at = ?7, current = ?8
             WHERE tenant = ?1 AND session = ?2",
        )?
        .execute(params![
            self.tenant, session, self.name, self.turns, self.tokens, self.last_seq, now.0, self.current.0
        ])?;
        Ok(())
    }

    /// What does not depend on positions.
    fn write_bodies<'s>(&'s self, tx: &Tx<'_>) -> Result<()> {
        let (tenant, session) = (Value::Integer(self.tenant), Value::Integer(self.no.0 as i64));
        let body = |added: &'s Added<'b>| {
            [tenant, session, Value::Integer(added.seq), Value::Blob(&added.body)]
        };
        let bodies: Vec<_> = self.added.iter().map(body).collect();
        tx.insert_all("bodies", ["tenant", "session", "seq", "body"], &bodies)
    }

    /// The turns, those after `before`, and what is found by their positions.
    fn write_turns<'s>(&'s self, tx: &Tx<'_>, before: i64, now: Millis) -> Result<()> {
        let session = self.no.0 as i64;
        let row = |(position, added): (i64, &'s Added<'b>)| {
            [
                Value::Integer(self.tenant),
                Value::Integer(session),
                Value::Integer(added.seq),
                Value::Integer(position),
                Value::Integer(added.branch.0.into()),
                Value::Integer(added.ordinal as i64),
                Value::Integer(added.speaker),
                Value::Integer(added.turn.tokens.into()),
                Value::Integer(added.flags),
                Value::Integer(added.turn.at.0),
                Value::Integer(added.turn.identity.lookup),
                Value::Blob(&added.turn.identity.body),
            ]
        };
        let turns: Vec<_> = (before + 1..).zip(&self.added).map(row).collect();
        tx.insert_all("turns", TURN_COLUMNS, &turns)?;
        let first_seq = self.last_seq - self.added.len() as i64 + 1;
        tx.prepare_cached(
            "INSERT INTO runs (tenant, first, scope, session, first_seq, count, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            self.tenant,
            before + 1,
            self.scope,
            session,
            first_seq,
            self.added.len() as i64,
            now.0
        ])?;
        let hidden = (before + 1..).zip(&self.added).flat_map(|(position, added)| {
            added.turn.hidden.iter().map(move |(kind, count)| (position, kind, *count))
        });
        let row = |(position, kind, count): (i64, &'s String, u64)| {
            let [tenant, position, scope, count] =
                [self.tenant, position, self.scope, engine::number(count)].map(Value::Integer);
            [tenant, position, scope, Value::Text(kind), count]
        };
        let hidden: Vec<_> = hidden.map(row).collect();
        tx.insert_all("hidden", ["tenant", "position", "scope", "kind", "count"], &hidden)
    }

    /// The links of turns that are written.
    fn write_links<'s>(&'s self, tx: &Tx<'_>) -> Result<()> {
        let (tenant, session) = (Value::Integer(self.tenant), Value::Integer(self.no.0 as i64));
        let scope = Value::Integer(self.scope);
        let link = |added: &'s Added<'b>| {
            let link = added.turn.link.as_ref()?;
            let (answered, hollow) = (added.is_answered.into(), added.turn.is_hollow.into());
            let (answered, hollow) = (Value::Integer(answered), Value::Integer(hollow));
            let (seq, link) = (Value::Integer(added.seq), Value::Blob(link.as_bytes()));
            Some([tenant, scope, link, session, seq, answered, hollow])
        };
        let links: Vec<_> = self.added.iter().filter_map(link).collect();
        tx.insert_all("links", LINK_COLUMNS, &links)
    }
}

const TURN_COLUMNS: [&str; 12] = [
    "tenant", "session", "seq", "position", "branch", "ordinal", "speaker", "tokens", "flags",
    "at", "lookup", "identity",
];

const LINK_COLUMNS: [&str; 7] = ["tenant", "scope", "link", "session", "seq", "answered", "hollow"];

const CHUNK_COLUMNS: [&str; 11] = [
    "tenant",
    "session",
    "branch",
    "level",
    "first",
    "last",
    "first_seq",
    "last_seq",
    "turns",
    "tokens",
    "policy",
];

/// A stored turn that may be the one at hand.
#[derive(Clone, Copy)]
struct Candidate {
    seq: i64,
    branch: Branch,
    ordinal: Ordinal,
}

/// Turns with one body, each list in order of `seq`.
#[derive(Default)]
struct Bearers {
    present: Vec<Candidate>,
    erased: Vec<Candidate>,
}

/// The turns of one lookup, by whether the client gave an id, and by body.
type Known = BTreeMap<(bool, [u8; 16]), Bearers>;

/// The stored turns that a batch may ask for, by lookup. Each is read once: a batch may
/// hold the same body many times over.
fn read_known(
    tx: &Tx<'_>,
    tenant: i64,
    session: SessionNo,
    last_seq: i64,
    batch: &AppendBatch,
) -> Result<BTreeMap<i64, Known>> {
    let asks = |turn: &&NewTurn| {
        turn.link.is_none() && (turn.turn.fields().id.is_some() || turn.occurrence > 0)
    };
    let turns = batch.turns.iter().filter(asks).map(|turn| turn.identity.lookup);
    let parents = batch.turns.iter().flat_map(|turn| &turn.parents).map(|parent| parent.lookup);
    let lookups: BTreeSet<i64> = turns.chain(parents).collect();
    // Of a session that begins nothing is stored.
    if last_seq == 0 {
        return Ok(lookups.into_iter().map(|lookup| (lookup, Known::new())).collect());
    }
    let key = |lookup: &i64| vec![tenant, engine::number(session.0), *lookup];
    let keys: Vec<_> = lookups.iter().map(key).map(engine::integers).collect();
    let found = tx
        .prepare_cached(
            "SELECT seq, branch, ordinal, flags, identity FROM turns INDEXED BY turns_by_lookup
             WHERE tenant = ?1 AND session = ?2 AND lookup = ?3 ORDER BY seq",
        )?
        .query_each(&keys, |row| {
            let candidate = Candidate {
                seq: row.get(0)?,
                branch: Branch(row.get(1)?),
                ordinal: Ordinal(row.get::<_, i64>(2)? as u64),
            };
            let identity = row.get_ref(4)?.as_blob()?.try_into().unwrap_or_default();
            Ok((row.get::<_, i64>(3)?, identity, candidate))
        })?;
    let known = found.into_iter().map(|found| {
        let mut known = Known::new();
        for (flags, identity, candidate) in found {
            let bearers = known.entry((flags & HAS_CLIENT_ID != 0, identity)).or_default();
            match flags & ERASED {
                0 => bearers.present.push(candidate),
                _ => bearers.erased.push(candidate),
            }
        }
        known
    });
    Ok(lookups.into_iter().zip(known).collect())
}

fn policy_no(tx: &Tx<'_>, policy: CutPolicy) -> Result<i64> {
    let sizes =
        params![policy.micro_turns, policy.mini_turns, policy.macro_turns, policy.micro_max_tokens];
    let found = tx
        .prepare_cached(
            "SELECT policy FROM policies WHERE micro = ?1 AND mini = ?2 AND macro = ?3 AND max_tokens = ?4",
        )
        .and_then(|mut q| q.query_row(sizes, |row| row.get(0)).optional())?;
    match found {
        Some(found) => Ok(found),
        None => tx
            .prepare_cached(
                "INSERT INTO policies (policy, micro, mini, macro, max_tokens)
                 SELECT coalesce(max(policy), 0) + 1, ?1, ?2, ?3, ?4 FROM policies RETURNING policy",
            )
            .and_then(|mut q| q.query_row(sizes, |row| row.get(0))),
    }
}

fn new_session(
    tx: &Tx<'_>,
    no: ScopeNo,
    name: &icecore_domain::ids::SessionName,
    hash: &[u8; 16],
    now: Millis,
) -> Result<i64> {
    let session: i64 = tx.query_row(
        "UPDATE tenants SET sessions = sessions + 1 WHERE tenant = ?1 RETURNING sessions",
        [no.tenant],
        |row| row.get(0),
    )?;
    tx.execute(
        "INSERT INTO sessions (tenant, session, scope, name, name_hash, turns, tokens, last_seq, updated_at, current)
         VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, 0, ?6, 0)",
        params![no.tenant, session, no.scope, name.as_str(), hash.as_slice(), now.0],
    )?;
    Ok(session)
}

/// Tombstones among a branch's turns in a range of `seq`.
fn erased_in(
    tx: &Tx<'_>,
    tenant: i64,
    session: SessionNo,
    branch: Branch,
    seqs: std::ops::RangeInclusive<i64>,
) -> Result<i64> {
    tx.prepare_cached(&format!(
        "SELECT count(*) FROM turns WHERE tenant = ?1 AND session = ?2 AND branch = ?3
           AND seq BETWEEN ?4 AND ?5 AND flags & {ERASED} != 0"
    ))?
    .query_row(params![tenant, session.0 as i64, branch.0, seqs.start(), seqs.end()], |row| {
        row.get(0)
    })
}

/// The row of a chunk, as [`CHUNK_COLUMNS`] name it.
fn chunk_row(
    tenant: i64,
    session: SessionNo,
    state: &BranchState,
    cut: &Cut,
    last_seq: i64,
    erased: i64,
) -> [i64; 11] {
    let level = rows::level_no(cut.level);
    [
        tenant,
        session.0 as i64,
        state.record.branch.0.into(),
        level,
        cut.first as i64,
        cut.last as i64,
        state.first_seqs[level as usize],
        last_seq,
        (cut.last + 1 - cut.first) as i64 - erased,
        state.tokens[level as usize],
        state.policy,
    ]
}

fn write_branch(tx: &Tx<'_>, tenant: i64, session: i64, state: &BranchState) -> Result<()> {
    let record = &state.record;
    let tail = &record.tail;
    tx.prepare_cached(
        "INSERT INTO branches (tenant, session, branch, fork_branch, fork_ordinal, policy, length,
            head_seq, micro_first, mini_first, macro_first, micro_first_seq, mini_first_seq, macro_first_seq,
            micro_tokens, mini_tokens, macro_tokens)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
         ON CONFLICT (tenant, session, branch) DO UPDATE SET policy = ?6, length = ?7, head_seq = ?8,
            micro_first = ?9, mini_first = ?10, macro_first = ?11, micro_first_seq = ?12, mini_first_seq = ?13,
            macro_first_seq = ?14, micro_tokens = ?15, mini_tokens = ?16, macro_tokens = ?17,
            version = branches.version + 1, unsettled = 1",
    )?
    .execute(params![
        tenant,
        session,
        record.branch.0,
        record.fork.map(|fork| fork.0.0),
        record.fork.map(|fork| fork.1.0 as i64),
        state.policy,
        tail.length as i64,
        record.head_seq.0 as i64,
        tail.micro_first as i64,
        tail.mini_first as i64,
        tail.macro_first as i64,
        state.first_seqs[0],
        state.first_seqs[1],
        state.first_seqs[2],
        state.tokens[0],
        state.tokens[1],
        state.tokens[2],
    ])?;
    Ok(())
}

impl Store {
    /// Appends turns to a session, all or none, in one step with their cuts.
    ///
    /// The session begins with its first turn. `seq` is dense from 1 within it.
    /// A turn whose id is known with the same body, or whose body is already
    /// there as the same occurrence, is answered [`Outcome::Known`] and not added.
    /// A known id with another body is [`StoreError::Conflict`]. A turn that was
    /// erased is [`Outcome::Forgotten`] unless `insist`. A parent that is the
    /// head of a branch continues it, any other forks. Text that was redacted with
    /// secrets that are not those of now is [`StoreError::SecretsChanged`].
    ///
    /// A turn with a link is known by that alone, whatever its id, its parents, and
    /// `insist`: one that is in the session is [`Outcome::Known`], or
    /// [`Outcome::Forgotten`] if it was erased, and the link of one that is added is kept
    /// in the same step, for good. Turns of a batch with links are one path: each follows
    /// the one before it, whether that was there or not, and the first follows
    /// [`AppendBatch::after`], or begins a tree of its own. An `after` that the session
    /// does not have is [`StoreError::NoParent`].
    pub async fn append(&self, scope: &Scope, batch: AppendBatch) -> Result<Appended> {
        let scope = scope.clone();
        let of = Isolation::from(&scope);
        self.write_with(of, "append", batch, move |tx, batch| append(tx, &scope, batch)).await
    }
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
