//! Appending, on a copy of the session that takes its place at the end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::ChunkId;
use icecore_domain::cut::OpenTail;
use icecore_domain::identity::Link;
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, TurnId};

use super::secrets;
use super::state::{BranchState, ChunkState, SessionState, State, StoredTurn};
use crate::bounds::Change;
use crate::error::StoreError;
use crate::store::*;

pub(super) fn append(
    state: &mut State,
    scope: &Scope,
    name_hash: [u8; 16],
    batch: AppendBatch,
) -> Result<Appended> {
    secrets::refuse_changed(state, scope.tenant(), batch.secrets_seen)?;
    let tenant = state.tenant(scope.tenant());
    let taken = |claim: &Claim| {
        tenant.is_some_and(|t| t.outcome(&claim.operation, &claim.key, batch.now).is_some())
    };
    if batch.claim.as_ref().is_some_and(taken) {
        return Err(StoreError::ClaimTaken);
    }
    let known = state.sessions_in(scope).find(|session| session.name_hash == name_hash);
    let next_no = SessionNo(tenant.map_or(0, |tenant| tenant.sessions.len()) as u64 + 1);
    let is_new = known.is_none();
    let session = known.cloned().unwrap_or_else(|| SessionState {
        no: next_no,
        memory: scope.memory().to_owned(),
        name: None,
        name_hash,
        updated_at: batch.now,
        current: Branch::MAIN,
        branches: BTreeMap::new(),
        turns: Vec::new(),
    });
    let position = tenant.map_or(Position(0), |tenant| tenant.position);
    // The same link is the same history, whatever session it was answered in.
    let is_answered = |link: &Link| {
        let mut found = state.sessions_in(scope).filter_map(|session| session.linked(*link));
        found.any(|turn| turn.is_answered)
    };
    let links = batch.turns.iter().filter_map(|turn| turn.link);
    let answered: BTreeSet<Link> = links.filter(is_answered).collect();
    let mut adding = Adding::new(session, &batch, position, answered)?;
    let turns = adding.add_all()?;
    let (session, position) = adding.finish();
    if turns.iter().any(|turn| turn.outcome == Outcome::Added) {
        let change = || {
            let known = state.sessions_in(scope).find(|known| known.name_hash == name_hash);
            let before = known.map(SessionState::kept).unwrap_or_default();
            let after = session.kept();
            Change { turns: after.turns - before.turns, bytes: after.bytes - before.bytes }
        };
        state.refuse_beyond(scope.tenant(), change)?;
    }

    let tenant = state.ensure_scope(scope);
    tenant.position = position;
    let added = turns.iter().zip(&batch.turns).filter(|(turn, _)| turn.outcome == Outcome::Added);
    for (turn, new) in added {
        let position = session.turns[turn.seq.0 as usize - 1].row.position;
        tenant.add_hidden(scope.memory(), position, new.hidden.clone());
    }
    let begun = !(is_new && session.turns.is_empty());
    let no = if begun { session.no } else { SessionNo(0) };
    match is_new {
        false => tenant.sessions[no.0 as usize - 1] = session,
        true if begun => tenant.sessions.push(session),
        true => {}
    }
    let appended = Appended { session: no, turns, position };
    if let Some(claim) = batch.claim {
        tenant.put_outcome(claim.outcome(&appended), batch.now);
    }
    Ok(appended)
}

struct Adding<'a> {
    session: SessionState,
    batch: &'a AppendBatch,
    position: Position,
    touched: Vec<Branch>,
    /// Where the last turn with a link is, which the next follows.
    followed: Option<(Branch, Ordinal)>,
    /// Whether that or one before it is an answer that went through us.
    is_answered: bool,
    /// Links of the batch that are answered in any session.
    answered: BTreeSet<Link>,
}

impl<'a> Adding<'a> {
    fn new(
        session: SessionState,
        batch: &'a AppendBatch,
        position: Position,
        answered: BTreeSet<Link>,
    ) -> Result<Self> {
        let (followed, is_answered) = match batch.after.map(|link| session.linked(link)) {
            None => (None, false),
            Some(Some(found)) => {
                (Some((found.place.branch, found.place.ordinal)), found.is_answered)
            }
            Some(None) => return Err(no_earlier_message(&batch.session)),
        };
        Ok(Self { session, batch, position, touched: Vec::new(), followed, is_answered, answered })
    }

    fn add_all(&mut self) -> Result<Vec<AppendedTurn>> {
        let turns = self.batch.turns.iter().enumerate();
        turns
            .map(|(index, turn)| {
                let known = match turn.link {
                    Some(link) => self.linked(link, turn.is_answer),
                    None => self.recognise(index, turn)?,
                };
                let done = match known {
                    Some(known) => known,
                    None => self.add(index, turn)?,
                };
                if turn.link.is_some() {
                    self.followed = Some((done.branch, done.ordinal));
                }
                Ok(done)
            })
            .collect()
    }

    fn finish(mut self) -> (SessionState, Position) {
        for branch in &self.touched {
            if let Some(branch) = self.session.branches.get_mut(branch) {
                branch.record.version += 1;
                branch.unsettled = true;
            }
        }
        if !self.touched.is_empty() {
            self.session.name = Some(self.batch.session.clone());
            self.session.updated_at = self.batch.now;
        }
        (self.session, self.position)
    }

    fn rows(&self) -> impl Iterator<Item = &TurnRow> {
        self.session.turns.iter().map(|turn| &turn.row)
    }

    fn linked(&mut self, link: Link, is_answer: bool) -> Option<AppendedTurn> {
        let LinkedTurn { place, is_answered, .. } = self.session.linked(link)?;
        self.is_answered = is_answered || is_answer;
        self.session.turns[place.id.seq.0 as usize - 1].is_answered = self.is_answered;
        let outcome = match place.state {
            TurnState::Erased => Outcome::Forgotten,
            TurnState::Present | TurnState::Expired => Outcome::Known,
        };
        let TurnPlace { id, branch, ordinal, .. } = place;
        Some(AppendedTurn { outcome, seq: id.seq, branch, ordinal })
    }

    fn recognise(&self, index: usize, turn: &NewTurn) -> Result<Option<AppendedTurn>> {
        let id = turn.turn.fields().id.as_ref();
        if id.is_none() && turn.occurrence == 0 {
            return Ok(None);
        }
        let alike: Vec<&TurnRow> = self
            .rows()
            .filter(|row| row.identity.lookup == turn.identity.lookup)
            .filter(|row| row.has_client_id == id.is_some())
            .collect();
        let is_same = |row: &TurnRow| row.identity.body == turn.identity.body;
        let is_erased = |row: &TurnRow| row.state == TurnState::Erased;
        if let Some(id) = id
            && alike.iter().any(|row| !is_same(row) && !is_erased(row))
        {
            let session = self.batch.session.as_str().to_owned();
            return Err(StoreError::Conflict { index, id: id.clone(), session });
        }
        let there = alike.iter().filter(|row| is_same(row) && !is_erased(row));
        let erased =
            alike.iter().filter(|row| is_same(row) && is_erased(row) && !self.batch.insist);
        let nth = if id.is_some() { 0 } else { turn.occurrence as usize - 1 };
        Ok(there.chain(erased).nth(nth).map(|row| AppendedTurn {
            outcome: if is_erased(row) { Outcome::Forgotten } else { Outcome::Known },
            seq: row.id.seq,
            branch: row.branch,
            ordinal: row.ordinal,
        }))
    }

    fn add(&mut self, index: usize, turn: &NewTurn) -> Result<AppendedTurn> {
        let branch = self.place(index, turn)?;
        if !self.touched.contains(&branch) {
            self.touched.push(branch);
        }
        self.position.0 += 1;
        let seq = Seq(self.session.turns.len() as u64 + 1);
        let ordinal = Ordinal(self.session.branches[&branch].record.tail.length + 1);
        let row = TurnRow {
            id: TurnId { session: self.session.no, seq },
            position: self.position,
            branch,
            ordinal,
            tokens: turn.tokens,
            at: turn.at,
            identity: turn.identity,
            has_client_id: turn.turn.fields().id.is_some(),
            session_given: turn.session_given,
            state: TurnState::Present,
            body: Some(turn.turn.clone()),
        };
        let (speaker, appended_at) = (turn.speaker, self.batch.now);
        if let Some(link) = turn.link {
            self.is_answered |= turn.is_answer || self.answered.contains(&link);
        }
        self.session.turns.push(StoredTurn {
            row,
            speaker,
            appended_at,
            link: turn.link,
            is_hollow: turn.is_hollow,
            is_answered: turn.link.is_some() && self.is_answered,
            recalled: None,
        });
        self.session.current = branch;
        self.cut(branch, turn.tokens);
        Ok(AppendedTurn { outcome: Outcome::Added, seq, branch, ordinal })
    }

    fn cut(&mut self, branch: Branch, tokens: u32) {
        let no = self.session.no;
        let Some(state) = self.session.branches.get_mut(&branch) else { return };
        let cuts = state.record.tail.push(tokens, self.batch.policy);
        state.record.head_seq = Seq(self.session.turns.len() as u64);
        for cut in cuts {
            let seq_of = |ordinal: u64| {
                let rows = self.session.turns.iter().map(|turn| &turn.row);
                let mut own = rows.filter(|row| row.branch == branch);
                own.find(|row| row.ordinal.0 == ordinal).map_or(Seq(0), |row| row.id.seq)
            };
            state.chunks.push(ChunkState {
                id: ChunkId {
                    session: no,
                    branch,
                    level: cut.level,
                    first: Ordinal(cut.first),
                    last: Ordinal(cut.last),
                },
                first_seq: seq_of(cut.first),
                last_seq: seq_of(cut.last),
                revision: 0,
                summary: None,
            });
        }
    }

    fn place(&mut self, index: usize, turn: &NewTurn) -> Result<Branch> {
        if turn.link.is_some() {
            return Ok(self.after(self.followed));
        }
        if turn.turn.fields().parent_ids.is_none() {
            let current = self.session.current;
            if !self.session.branches.contains_key(&current) {
                self.begin(None);
            }
            return Ok(current);
        }
        let mut parents = Vec::new();
        for parent in &turn.parents {
            match self.find_parent(parent) {
                Some(found) => parents.push(found),
                None => return Err(self.no_parent(index, parent)),
            }
        }
        Ok(self.after(parents.first().copied()))
    }

    /// The branch that a turn is on which follows another, or none.
    fn after(&mut self, parent: Option<(Branch, Ordinal)>) -> Branch {
        let Some((branch, ordinal)) = parent else { return self.begin(None) };
        let length = self.session.branches[&branch].record.tail.length;
        match ordinal.0 == length {
            true => branch,
            false => self.begin(Some((branch, ordinal))),
        }
    }

    fn find_parent(&self, parent: &ParentRef) -> Option<(Branch, Ordinal)> {
        let named = self
            .rows()
            .filter(|row| row.has_client_id && row.identity.lookup == parent.lookup)
            .min_by_key(|row| (row.state == TurnState::Erased, Reverse(row.id.seq)));
        let ours = || self.rows().find(|row| Some(row.id) == parent.ours);
        named.or_else(ours).map(|row| (row.branch, row.ordinal))
    }

    fn no_parent(&self, index: usize, parent: &ParentRef) -> StoreError {
        let shown = parent.shown.clone();
        let turns = &self.batch.turns;
        let bearer = |parent: &ParentRef| {
            turns.iter().position(|turn| {
                turn.turn.fields().id.is_some() && turn.identity.lookup == parent.lookup
            })
        };
        let Some(mut at) = bearer(parent) else {
            let session = self.batch.session.as_str().to_owned();
            return StoreError::NoParent { index, parent: shown, session };
        };
        for _ in 0..=turns.len() {
            if at == index {
                let id = turns[index].turn.fields().id.clone().unwrap_or_default();
                return StoreError::Cycle { index, id };
            }
            match turns[at].parents.first().and_then(bearer) {
                Some(next) => at = next,
                None => break,
            }
        }
        StoreError::ParentLater { index, parent: shown }
    }

    fn begin(&mut self, fork: Option<(Branch, Ordinal)>) -> Branch {
        let branch = Branch(self.session.branches.len() as u32);
        let record = BranchRecord {
            branch,
            fork,
            tail: OpenTail::empty(self.batch.policy),
            head_seq: Seq(0),
            warm_through: Ordinal(0),
            cold_through: Ordinal(0),
            summarized_through: [Ordinal(0); 3],
            version: 0,
        };
        let state = BranchState {
            record,
            unsettled: true,
            chunks: Vec::new(),
            texts: BTreeMap::new(),
            packs: BTreeMap::new(),
        };
        self.session.branches.insert(branch, state);
        branch
    }
}
