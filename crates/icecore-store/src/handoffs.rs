//! Handoffs, and what providers counted of what models see.

use crate::turns::rows::ERASED;
use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::{Hidden, RedactedText, Redactor};
use icecore_domain::time::Millis;

use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::error::Result;
use crate::log::{COMPACTED, EDITED};
use crate::reredact::{Again, add};
use crate::store::Store;
use crate::turns::rows;
use crate::{engine, log, scopes, secrets};

/// Why a session was compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffTrigger {
    /// A person or a program asked for it.
    Hand,
    /// The next request would not have fit.
    Window,
    /// A provider said that it did not fit.
    Overflow,
}

impl HandoffTrigger {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hand, Self::Window, Self::Overflow];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hand => "hand",
            Self::Window => "window",
            Self::Overflow => "overflow",
        }
    }

    /// The trigger of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word)
    }
}

/// A handoff to keep: a mark in the history of a branch.
#[derive(Debug, Clone)]
pub struct NewHandoff {
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// The branch's head as it was read: its last turn's `seq`.
    pub seen_head: Seq,
    /// The handoff in force on the branch's path as it was read, by id.
    pub seen_previous: Option<String>,
    /// The memory's epoch as it was before anything was read: no turn that it tells of
    /// was erased since.
    pub epoch: u64,
    /// Nothing of the branch up to here, and nothing of what it forked from, is in the
    /// API view any more, but for the system prompt and what is `kept`.
    pub through: Ordinal,
    /// Turns up to there that stay, by their `seq`, in order.
    pub kept: Vec<Seq>,
    /// Its text.
    pub text: RedactedText,
    /// Tokens of its text.
    pub tokens: u64,
    /// Tokens of the API view before.
    pub tokens_before: u64,
    /// Tokens of the API view after.
    pub tokens_after: u64,
    /// What wrote it: `heuristic`, `fresh` or `model:NAME`.
    pub made_by: String,
    /// Why.
    pub trigger: HandoffTrigger,
    /// The version of the tenant's secrets that it was redacted with.
    pub secrets_seen: u64,
    /// When.
    pub now: Millis,
}

/// A handoff as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffRecord {
    /// Its id, which tells neither the tenant nor how much there is.
    pub id: String,
    /// The how manyth on its branch's path, from 1.
    pub number: u64,
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// See [`NewHandoff::through`].
    pub through: Ordinal,
    /// See [`NewHandoff::kept`].
    pub kept: Vec<Seq>,
    /// Its text.
    pub text: RedactedText,
    /// Tokens of its text.
    pub tokens: u64,
    /// Tokens of the API view before.
    pub tokens_before: u64,
    /// Tokens of the API view after.
    pub tokens_after: u64,
    /// What wrote it; `person` once one changed it.
    pub made_by: String,
    /// Why.
    pub trigger: HandoffTrigger,
    /// The one before on the path.
    pub previous: Option<String>,
    /// Its version: 1, and one more with each change by a person.
    pub version: u64,
    /// When it was made.
    pub at: Millis,
    /// Where it stands in the tenant's log.
    pub position: Position,
}

/// What came of keeping one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptHandoff {
    /// It is in force.
    Done(Box<HandoffRecord>),
    /// The head, the handoff before or the epoch is another by now; nothing was done.
    Changed,
}

/// A person's correction.
#[derive(Debug, Clone)]
pub struct HandoffEdit {
    /// The session.
    pub session: SessionNo,
    /// The branch that the person saw it on.
    pub branch: Branch,
    /// Which handoff.
    pub id: String,
    /// The version that the person saw.
    pub seen_version: u64,
    /// What it says now.
    pub text: RedactedText,
    /// Tokens of it.
    pub tokens: u64,
    /// Tokens of the API view with it.
    pub tokens_after: u64,
    /// The version of the tenant's secrets that it was redacted with.
    pub secrets_seen: u64,
    /// When.
    pub now: Millis,
}

/// What a provider counted for the API view of a branch up to a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewUsage {
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// Counted by which model, as its settings or its server call it.
    pub model: String,
    /// The last turn that was counted, by its `seq`.
    pub through: Seq,
    /// The handoff that the view began with.
    pub handoff: Option<String>,
    /// Tokens of all that, as the provider counts.
    pub tokens: u64,
    /// The same, as we count.
    pub counted: u64,
}

/// What wrote a handoff that a person changed.
pub(crate) const PERSON: &str = "person";

/// The id of a handoff. It tells neither the tenant nor how much there is, and follows
/// from where it stands in the log.
pub(crate) fn handoff_id(key: &IdentityKey, position: Position) -> String {
    let hash = key.hash_name("handoff", &position.to_string());
    format!("h-{}", hex::encode(&hash[..10]))
}

/// What the log keeps of a handoff: ids and counts.
pub(crate) fn compacted(scope: &Scope, record: &HandoffRecord) -> String {
    serde_json::json!({
        "memoryRef": scope.memory(),
        "session": record.session.0,
        "branch": record.branch.to_string(),
        "compactionId": record.id,
        "number": record.number,
        "tokensBefore": record.tokens_before,
        "tokensAfter": record.tokens_after,
        "trigger": record.trigger.as_str(),
        "madeBy": record.made_by,
    })
    .to_string()
}

/// What the log keeps of a change of one.
pub(crate) fn edited(scope: &Scope, record: &HandoffRecord) -> String {
    serde_json::json!({
        "memoryRef": scope.memory(),
        "session": record.session.0,
        "branch": record.branch.to_string(),
        "compactionId": record.id,
        "version": record.version,
    })
    .to_string()
}

/// Where the branches of a session forked from others.
pub(crate) type Forks = BTreeMap<Branch, Option<(Branch, Ordinal)>>;

/// The path to an ordinal of a branch: branches root first, each with the last ordinal
/// of it that is on the path.
pub(crate) fn path(forks: &Forks, branch: Branch, last: Ordinal) -> Vec<(Branch, Ordinal)> {
    let mut path = vec![(branch, last)];
    let fork = |branch: Branch| forks.get(&branch).copied().flatten();
    while let Some((parent, at)) = path.last().and_then(|(branch, _)| fork(*branch)) {
        // A fork has a larger number than what it forks from.
        if path.last().is_some_and(|(branch, _)| parent >= *branch) {
            break;
        }
        path.push((parent, at));
    }
    path.reverse();
    path
}

/// Which turns a handoff covers, and what it was made of.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) id: String,
    pub(crate) branch: Branch,
    pub(crate) through: Ordinal,
    pub(crate) previous: Option<String>,
}

/// The handoffs of a session, given oldest first, that go when turns do, of which the
/// first of each branch is given: those that cover one, and those that were made of
/// these.
pub(crate) fn losing(
    forks: &Forks,
    marks: &[Mark],
    gone: &BTreeMap<Branch, Ordinal>,
) -> BTreeSet<String> {
    let mut lost = BTreeSet::new();
    for mark in marks {
        let path = path(forks, mark.branch, mark.through);
        let covers = |(branch, last): &(Branch, Ordinal)| {
            gone.get(branch).is_some_and(|first| first <= last)
        };
        let is_made_of_lost = mark.previous.as_ref().is_some_and(|one| lost.contains(one));
        if is_made_of_lost || path.iter().any(covers) {
            lost.insert(mark.id.clone());
        }
    }
    lost
}

/// The handoffs of a session, given oldest first, that were made of some of them.
pub(crate) fn made_of(marks: &[Mark], of: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for mark in marks {
        let is_made = |one: &String| of.contains(one) || found.contains(one);
        if mark.previous.as_ref().is_some_and(is_made) {
            found.insert(mark.id.clone());
        }
    }
    found
}

pub(crate) fn put(tx: &Tx<'_>, scope: &Scope, new: NewHandoff) -> Result<KeptHandoff> {
    secrets::refuse_changed(tx, scope.tenant(), new.secrets_seen)?;
    let Some(no) = rows::owned(tx, scope, new.session)? else {
        return Ok(KeptHandoff::Changed);
    };
    let branches = rows::branches(tx, no.tenant, new.session)?;
    let branch = branches.iter().map(|state| &state.record).find(|one| one.branch == new.branch);
    // Of a session that is empty all handoffs are gone with its last turn.
    let has_turns = tx
        .prepare_cached("SELECT 1 FROM sessions WHERE tenant = ?1 AND session = ?2 AND turns > 0")
        .and_then(|mut q| q.exists([no.tenant, engine::number(new.session.0)]))?;
    let is_same = branch.is_some_and(|branch| {
        has_turns && branch.head_seq == new.seen_head && new.through.0 <= branch.tail.length
    });
    if !is_same || rows::scope_head(tx, scope)?.epoch != new.epoch {
        return Ok(KeptHandoff::Changed);
    }
    let forks = branches.iter().map(|state| (state.record.branch, state.record.fork)).collect();
    let mut previous = None;
    let mut is_next = false;
    for end in [Ordinal(u64::MAX), new.through] {
        let path = path(&forks, new.branch, end);
        previous = in_force(tx, no.tenant, new.session, &path)?;
        is_next = previous.as_ref().map(|record| &record.id) == new.seen_previous.as_ref();
        if is_next {
            break;
        }
    }
    if !is_next {
        return Ok(KeptHandoff::Changed);
    }
    let (_, key) = scopes::ensure_tenant(tx, scope.tenant())?;
    let position = log::next(tx, scope.tenant())?;
    let record = HandoffRecord {
        id: handoff_id(&key.identity_key(), position),
        number: previous.as_ref().map_or(0, |record| record.number) + 1,
        session: new.session,
        branch: new.branch,
        through: new.through,
        kept: new.kept,
        text: new.text,
        tokens: new.tokens,
        tokens_before: new.tokens_before,
        tokens_after: new.tokens_after,
        made_by: new.made_by,
        trigger: new.trigger,
        previous: new.seen_previous,
        version: 1,
        at: new.now,
        position,
    };
    insert(tx, scope, no, &record)?;
    Ok(KeptHandoff::Done(Box::new(record)))
}

fn insert(tx: &Tx<'_>, scope: &Scope, no: ScopeNo, record: &HandoffRecord) -> Result<()> {
    let payload = compacted(scope, record);
    log::record(tx, no.tenant, Some(no.scope), COMPACTED, &payload, record.at)?;
    let kept: Vec<u64> = record.kept.iter().map(|seq| seq.0).collect();
    tx.prepare_cached(
        "INSERT INTO handoffs (tenant, session, branch, position, id, number, through, kept, text,
           tokens, tokens_before, tokens_after, made_by, trigger, previous, version, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?
    .execute(params![
        no.tenant,
        engine::number(record.session.0),
        record.branch.0,
        engine::number(record.position.0),
        record.id,
        engine::number(record.number),
        engine::number(record.through.0),
        serde_json::json!(kept).to_string(),
        record.text.as_str(),
        engine::number(record.tokens),
        engine::number(record.tokens_before),
        engine::number(record.tokens_after),
        record.made_by,
        record.trigger.as_str(),
        record.previous,
        engine::number(record.version),
        record.at.0,
    ])?;
    Ok(())
}

// Reading

const COLUMNS: &str = "id, number, session, branch, through, kept, text, tokens, tokens_before,
     tokens_after, made_by, trigger, previous, version, created_at, position";

#[expect(clippy::disallowed_methods, reason = "handoffs come from our own rows")]
fn read(row: &Row<'_>) -> Result<HandoffRecord> {
    let number = |column: usize| row.get::<_, i64>(column).map(|number| number as u64);
    let broken = |column: usize, reason: String| engine::Error::broken(column, reason);
    let kept: String = row.get(5)?;
    let kept: Vec<u64> =
        serde_json::from_str(&kept).map_err(|error| broken(5, error.to_string()))?;
    let trigger: String = row.get(11)?;
    let trigger = HandoffTrigger::parse(&trigger)
        .ok_or_else(|| broken(11, "no such trigger of a handoff".to_owned()))?;
    Ok(HandoffRecord {
        id: row.get(0)?,
        number: number(1)?,
        session: SessionNo(number(2)?),
        branch: Branch(row.get(3)?),
        through: Ordinal(number(4)?),
        kept: kept.into_iter().map(Seq).collect(),
        text: RedactedText::read_back(row.get(6)?),
        tokens: number(7)?,
        tokens_before: number(8)?,
        tokens_after: number(9)?,
        made_by: row.get(10)?,
        trigger,
        previous: row.get(12)?,
        version: number(13)?,
        at: Millis(row.get(14)?),
        position: Position(number(15)?),
    })
}

fn in_force(
    tx: &Tx<'_>,
    tenant: i64,
    session: SessionNo,
    path: &[(Branch, Ordinal)],
) -> Result<Option<HandoffRecord>> {
    let find = || -> Result<_> {
        let mut query = tx.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM handoffs
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND through <= ?4
             ORDER BY through DESC, position DESC LIMIT 1"
        ))?;
        for (branch, last) in path.iter().rev() {
            let key = params![tenant, engine::number(session.0), branch.0, engine::number(last.0)];
            if let Some(found) = query.query_row(key, read).optional()? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    };
    find()
}

pub(crate) fn on_path(
    tx: &Tx<'_>,
    scope: &Scope,
    session: SessionNo,
    path: &[(Branch, Ordinal)],
) -> Result<Option<HandoffRecord>> {
    match rows::owned(tx, scope, session)? {
        Some(no) => in_force(tx, no.tenant, session, path),
        None => Ok(None),
    }
}

pub(crate) fn of_session(
    tx: &Tx<'_>,
    scope: &Scope,
    session: SessionNo,
) -> Result<Vec<HandoffRecord>> {
    let Some(no) = rows::owned(tx, scope, session)? else { return Ok(Vec::new()) };
    tx.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM handoffs WHERE tenant = ?1 AND session = ?2 ORDER BY position"
    ))
    .and_then(|mut q| q.query_map([no.tenant, engine::number(session.0)], read)?.collect())
}

// Changing

pub(crate) fn edit(tx: &Tx<'_>, scope: &Scope, edit: HandoffEdit) -> Result<KeptHandoff> {
    secrets::refuse_changed(tx, scope.tenant(), edit.secrets_seen)?;
    let Some(no) = rows::owned(tx, scope, edit.session)? else {
        return Ok(KeptHandoff::Changed);
    };
    let forks = forks(tx, no.tenant, engine::number(edit.session.0))?;
    let path = path(&forks, edit.branch, Ordinal(u64::MAX));
    let found = in_force(tx, no.tenant, edit.session, &path)?;
    let is_seen = |one: &HandoffRecord| one.id == edit.id && one.version == edit.seen_version;
    let Some(mut record) = found.filter(is_seen) else { return Ok(KeptHandoff::Changed) };
    (record.text, record.tokens, record.tokens_after) = (edit.text, edit.tokens, edit.tokens_after);
    PERSON.clone_into(&mut record.made_by);
    record.version += 1;
    let change = || -> Result<_> {
        tx.prepare_cached(
            "UPDATE handoffs SET text = ?3, tokens = ?4, tokens_after = ?5, made_by = ?6, version = ?7
             WHERE tenant = ?1 AND id = ?2",
        )?
        .execute(params![
            no.tenant,
            record.id,
            record.text.as_str(),
            engine::number(record.tokens),
            engine::number(record.tokens_after),
            record.made_by,
            engine::number(record.version),
        ])?;
        tx.prepare_cached(
            "DELETE FROM view_usage WHERE tenant = ?1 AND session = ?2 AND handoff = ?3",
        )?
        .execute(params![no.tenant, engine::number(record.session.0), record.id])?;
        let payload = edited(scope, &record);
        log::record(tx, no.tenant, Some(no.scope), EDITED, &payload, edit.now)
    };
    change()?;
    Ok(KeptHandoff::Done(Box::new(record)))
}

// Losing them

/// Handoffs of a session, oldest first, without their words.
fn marks(tx: &Tx<'_>, tenant: i64, session: i64) -> Result<Vec<Mark>> {
    tx.prepare_cached(
        "SELECT id, branch, through, previous FROM handoffs WHERE tenant = ?1 AND session = ?2
         ORDER BY position",
    )?
    .query_map([tenant, session], |row| {
        Ok(Mark {
            id: row.get(0)?,
            branch: Branch(row.get(1)?),
            through: Ordinal(row.get::<_, i64>(2)? as u64),
            previous: row.get(3)?,
        })
    })?
    .collect()
}

fn forks(tx: &Tx<'_>, tenant: i64, session: i64) -> Result<Forks> {
    tx.prepare_cached(
        "SELECT branch, fork_branch, fork_ordinal FROM branches WHERE tenant = ?1 AND session = ?2",
    )?
    .query_map([tenant, session], |row| {
        let fork: (Option<u32>, Option<i64>) = (row.get(1)?, row.get(2)?);
        let fork = fork.0.zip(fork.1).map(|(branch, at)| (Branch(branch), Ordinal(at as u64)));
        Ok((Branch(row.get(0)?), fork))
    })?
    .collect()
}

/// Takes back what was made of turns of a branch that go or are put anew: the handoffs
/// that cover any, all of them once no turn is left, and what providers counted.
pub(crate) fn lose(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (i64, u32),
    ordinals: &BTreeSet<i64>,
) -> Result<()> {
    let is_empty: bool = tx
        .prepare_cached("SELECT turns <= 0 FROM sessions WHERE tenant = ?1 AND session = ?2")?
        .query_row([tenant, session], |row| row.get(0))?;
    let marks = marks(tx, tenant, session)?;
    let lost = match ordinals.first() {
        _ if is_empty => marks.into_iter().map(|mark| mark.id).collect(),
        Some(first) => {
            let gone = BTreeMap::from([(Branch(branch), Ordinal(*first as u64))]);
            losing(&forks(tx, tenant, session)?, &marks, &gone)
        }
        None => return Ok(()),
    };
    delete(tx, tenant, session, &lost)
}

/// Lets go of what providers counted for models whose names hold what is hidden: clients
/// name them.
pub(crate) fn lose_usage(tx: &Tx<'_>, tenant: i64, redactor: &Redactor) -> Result<()> {
    let models: Vec<String> = tx
        .prepare("SELECT DISTINCT model FROM view_usage WHERE tenant = ?1")?
        .query_map([tenant], |row| row.get(0))?
        .collect::<Result<_>>()?;
    for model in models.iter().filter(|model| redactor.name(model).as_str() != model.as_str()) {
        tx.execute(
            "DELETE FROM view_usage WHERE tenant = ?1 AND model = ?2",
            params![tenant, model],
        )?;
    }
    Ok(())
}

/// Deletes handoffs of a session, and what providers counted of it.
fn delete(tx: &Tx<'_>, tenant: i64, session: i64, lost: &BTreeSet<String>) -> Result<()> {
    for id in lost {
        tx.prepare_cached("DELETE FROM handoffs WHERE tenant = ?1 AND id = ?2")?
            .execute(params![tenant, id])?;
    }
    tx.prepare_cached("DELETE FROM view_usage WHERE tenant = ?1 AND session = ?2")?
        .execute([tenant, session])?;
    Ok(())
}

pub(crate) fn lost_with(tx: &Tx<'_>, scope: &Scope, turns: &[TurnId]) -> Result<u64> {
    let mut sessions: BTreeMap<SessionNo, BTreeSet<Seq>> = BTreeMap::new();
    turns.iter().for_each(|id| {
        sessions.entry(id.session).or_default().insert(id.seq);
    });
    let mut lost = 0;
    for (session, seqs) in sessions {
        let Some(no) = rows::owned(tx, scope, session)? else { continue };
        lost += lost_in(tx, no.tenant, engine::number(session.0), &seqs)?;
    }
    Ok(lost)
}

fn lost_in(tx: &Tx<'_>, tenant: i64, session: i64, seqs: &BTreeSet<Seq>) -> Result<u64> {
    let marks = marks(tx, tenant, session)?;
    if marks.is_empty() {
        return Ok(0);
    }
    let mut gone: BTreeMap<Branch, Ordinal> = BTreeMap::new();
    let mut found = tx.prepare_cached(&format!(
        "SELECT branch, ordinal FROM turns
         WHERE tenant = ?1 AND session = ?2 AND seq = ?3 AND flags & {ERASED} = 0"
    ))?;
    let mut going = 0_i64;
    for seq in seqs {
        let turn: Option<(u32, i64)> = found
            .query_row([tenant, session, engine::number(seq.0)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let Some((branch, ordinal)) = turn else { continue };
        going += 1;
        let ordinal = Ordinal(ordinal as u64);
        let first = gone.entry(Branch(branch)).or_insert(ordinal);
        *first = ordinal.min(*first);
    }
    let turns: i64 = tx
        .prepare_cached("SELECT turns FROM sessions WHERE tenant = ?1 AND session = ?2")?
        .query_row([tenant, session], |row| row.get(0))?;
    if going > 0 && going >= turns {
        return Ok(marks.len() as u64);
    }
    Ok(losing(&forks(tx, tenant, session)?, &marks, &gone).len() as u64)
}

// Redacting them again

/// What became of a memory's handoffs.
#[derive(Default)]
pub(crate) struct Retold {
    pub(crate) rewritten: u64,
    pub(crate) dropped: u64,
    pub(crate) hidden: Hidden,
}

/// Puts the handoffs of a memory through a redactor. Those that were made of one that
/// changes are dropped: they may hold a part of a secret, which nothing finds.
pub(crate) fn rewrite(tx: &Tx<'_>, no: ScopeNo, again: &Again<'_>) -> Result<Retold> {
    let texts: Vec<(i64, String, String)> = tx
        .prepare(
            "SELECT h.session, h.id, h.text FROM handoffs h
             JOIN sessions o ON o.tenant = h.tenant AND o.session = h.session AND o.scope = ?2
             WHERE h.tenant = ?1 ORDER BY h.position",
        )?
        .query_map([no.tenant, no.scope], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_>>()?;
    let mut changed: BTreeMap<i64, BTreeMap<String, (RedactedText, Hidden)>> = BTreeMap::new();
    for (session, id, text) in texts {
        if let Some(clean) = again.text(&text) {
            changed.entry(session).or_default().insert(id, clean);
        }
    }
    let mut retold = Retold::default();
    for (session, mut changed) in changed {
        let ids = changed.keys().cloned().collect();
        let dropped = made_of(&marks(tx, no.tenant, session)?, &ids);
        delete(tx, no.tenant, session, &dropped)?;
        retold.dropped += dropped.len() as u64;
        changed.retain(|id, _| !dropped.contains(id));
        for (id, (text, hidden)) in changed {
            tx.prepare_cached("UPDATE handoffs SET text = ?3 WHERE tenant = ?1 AND id = ?2")?
                .execute(params![no.tenant, id, text.as_str()])?;
            add(&mut retold.hidden, &hidden);
            retold.rewritten += 1;
        }
    }
    Ok(retold)
}

// What providers counted

pub(crate) fn put_usage(tx: &Tx<'_>, scope: &Scope, usage: &ViewUsage) -> Result<()> {
    let Some(no) = rows::owned(tx, scope, usage.session)? else { return Ok(()) };
    tx.prepare_cached(
        "INSERT INTO view_usage
           (tenant, session, branch, model, through, handoff, tokens, counted)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
         WHERE EXISTS (SELECT 1 FROM branches WHERE tenant = ?1 AND session = ?2 AND branch = ?3)
           AND (?6 IS NULL OR EXISTS
             (SELECT 1 FROM handoffs WHERE tenant = ?1 AND id = ?6 AND session = ?2))
         ON CONFLICT (tenant, session, branch, model) DO UPDATE
           SET through = excluded.through, handoff = excluded.handoff,
             tokens = excluded.tokens, counted = excluded.counted",
    )
    .and_then(|mut q| {
        q.execute(params![
            no.tenant,
            engine::number(usage.session.0),
            usage.branch.0,
            usage.model,
            engine::number(usage.through.0),
            usage.handoff,
            engine::number(usage.tokens),
            engine::number(usage.counted),
        ])
    })
    .map(|_| ())
}

pub(crate) fn usage(
    tx: &Tx<'_>,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    model: &str,
) -> Result<Option<ViewUsage>> {
    let Some(no) = rows::owned(tx, scope, session)? else { return Ok(None) };
    tx.prepare_cached(
        "SELECT through, handoff, tokens, counted FROM view_usage
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND model = ?4",
    )
    .and_then(|mut q| {
        let key = params![no.tenant, engine::number(session.0), branch.0, model];
        q.query_row(key, |row| {
            let number = |column: usize| row.get::<_, i64>(column).map(|number| number as u64);
            Ok(ViewUsage {
                session,
                branch,
                model: model.to_owned(),
                through: Seq(number(0)?),
                handoff: row.get(1)?,
                tokens: number(2)?,
                counted: number(3)?,
            })
        })
        .optional()
    })
}

impl Store {
    /// Keeps a handoff, if the branch's head, the handoff in force on its path, or on the
    /// path to where it reaches, and the memory's epoch are as they were read. It may reach no further than
    /// the branch; its number is one more than that of the one before. Logs `session.compacted` with ids
    /// and counts alone. As with an append, it may be [`StoreError::SecretsChanged`]; then
    /// too nothing was done.
    ///
    /// It goes when a turn that it covers is erased or rewritten, and with the one before
    /// it on its path; all of a session go with its last turn.
    pub async fn put_handoff(&self, scope: &Scope, handoff: NewHandoff) -> Result<KeptHandoff> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_handoff", move |tx| {
            put(tx, &scope, handoff.clone())
        })
        .await
    }

    /// The handoff in force on a path: branches root first, each with the last ordinal
    /// of it that is on the path. The last branch with one that reaches no further than
    /// the path decides, and of its the one that reaches furthest, of these the newest.
    pub async fn handoff(
        &self,
        scope: &Scope,
        session: SessionNo,
        path: &[(Branch, Ordinal)],
    ) -> Result<Option<HandoffRecord>> {
        let (scope, path) = (scope.clone(), path.to_vec());
        self.read(Isolation::from(&scope), "handoff", move |tx| on_path(tx, &scope, session, &path))
            .await
    }

    /// Handoffs of a session, oldest first, also those that later ones stand for.
    pub async fn handoffs(&self, scope: &Scope, session: SessionNo) -> Result<Vec<HandoffRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "handoffs", move |tx| of_session(tx, &scope, session))
            .await
    }

    /// Changes what a handoff says, if nobody has meanwhile and it is in force on the
    /// branch still; a person made it from then on. Logs `session.handoff_edited` with ids alone. It may be
    /// [`StoreError::SecretsChanged`]; then too nothing was done.
    pub async fn edit_handoff(&self, scope: &Scope, edit: HandoffEdit) -> Result<KeptHandoff> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "edit_handoff", move |tx| {
            self::edit(tx, &scope, edit.clone())
        })
        .await
    }

    /// How many handoffs would go if these turns were erased.
    pub async fn handoffs_lost_with(&self, scope: &Scope, turns: &[TurnId]) -> Result<u64> {
        let (scope, turns) = (scope.clone(), turns.to_vec());
        self.read(Isolation::from(&scope), "handoffs_lost_with", move |tx| {
            lost_with(tx, &scope, &turns)
        })
        .await
    }

    /// Notes what a provider counted; one for each branch and model. It is passed over if
    /// the branch or the handoff is not there. All of a session go when any turn or
    /// handoff of it goes or is put anew, and those with a handoff when that is changed. One
    /// of a model whose name is hidden in part goes when what is told is rewritten.
    pub async fn put_usage(&self, scope: &Scope, usage: ViewUsage) -> Result<()> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_usage", move |tx| put_usage(tx, &scope, &usage))
            .await
    }

    /// What a provider counted last for a branch.
    pub async fn usage(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        model: &str,
    ) -> Result<Option<ViewUsage>> {
        let (scope, model) = (scope.clone(), model.to_owned());
        self.read(Isolation::from(&scope), "usage", move |tx| {
            usage(tx, &scope, session, branch, &model)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::tx::Isolation;
    use icecore_domain::ids::{Branch, Seq, SessionNo};

    use crate::StoreError;
    use crate::contract::fixtures::*;
    use crate::contract::handoffs::new_handoff;
    use crate::store::Store;
    use crate::*;

    /// A store with two handoffs, one made of the other, what a provider counted and an
    /// answer.
    async fn handed_off(dir: &std::path::Path) -> Store {
        let store = Store::open(dir, None).unwrap();
        let session = add(&store, "s", &say_many(4)).await;
        for through in [1, 3] {
            let new = new_handoff(&store, session, Branch::MAIN, through).await;
            let kept = store.put_handoff(&scope(), new).await.unwrap();
            let KeptHandoff::Done(kept) = kept else { panic!("nothing is in its way") };
            let usage = ViewUsage {
                session,
                branch: Branch::MAIN,
                model: "m".to_owned(),
                through: Seq(4),
                handoff: Some(kept.id),
                tokens: 1,
                counted: 1,
            };
            store.put_usage(&scope(), usage).await.unwrap();
        }
        let answer = NewAnswer {
            key: [1; 32],
            session: Some(session),
            epoch: 0,
            text: text("said"),
            secrets_seen: 1,
            now: NOW,
        };
        store.put_answer(&scope(), answer).await.unwrap();
        // Ids follow from the store's own key.
        change(&store, "UPDATE handoffs SET id = 'h-' || number, previous = 'h-1' WHERE number = 2;
             UPDATE handoffs SET id = 'h-1' WHERE number = 1;
             UPDATE view_usage SET handoff = 'h-2';
             UPDATE log SET payload = json_set(payload, '$.compactionId', 'h-' || (payload ->> '$.number'))")
        .await;
        clean(&store).await;
        store
    }

    async fn change(store: &Store, sql: &'static str) {
        store.write(Isolation::Global, "test", move |tx| tx.execute_batch(sql)).await.unwrap();
    }

    #[tokio::test]
    async fn damaged_handoffs_are_found() {
        for (sql, finding) in [
            (
                "UPDATE handoffs SET through = 5 WHERE number = 2",
                "a handoff reaches beyond its branch: handoff h-2",
            ),
            (
                "UPDATE handoffs SET version = 0 WHERE number = 1",
                "a handoff has no version: handoff h-1",
            ),
            (
                "UPDATE handoffs SET kept = '[1,4]' WHERE number = 2",
                "a handoff keeps what it does not cover: handoff h-2",
            ),
            (
                "UPDATE handoffs SET kept = '[9]' WHERE number = 1",
                "a handoff keeps what it does not cover: handoff h-1",
            ),
            (
                "DELETE FROM handoffs WHERE number = 1",
                "what a handoff was made of is not there: handoff h-2",
            ),
            (
                "UPDATE handoffs SET number = 3 WHERE number = 2",
                "what a handoff was made of is not there: handoff h-2",
            ),
            (
                "DELETE FROM log WHERE payload ->> '$.number' = 1",
                "a handoff is not where the log says: handoff h-1",
            ),
            (
                "DELETE FROM handoffs WHERE number = 2",
                "what a provider counted is of no handoff: session 1",
            ),
            (
                "UPDATE answers SET session = 7",
                "an answer is about a session of another memory: session 7",
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = handed_off(dir.path()).await;
            change(&store, sql).await;
            let findings = store.check().await.unwrap();
            assert!(findings.iter().any(|found| found == finding), "{finding}: {findings:?}");
        }
    }

    #[tokio::test]
    async fn a_handoff_that_had_no_room_for_a_word_is_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        let store = handed_off(dir.path()).await;
        change(&store, "UPDATE handoffs SET text = '', tokens = 0 WHERE number = 1").await;
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_damaged_row_is_told_and_can_be_forgotten() {
        for sql in ["UPDATE handoffs SET trigger = 'whim'", "UPDATE handoffs SET kept = '['"] {
            let dir = tempfile::tempdir().unwrap();
            let store = handed_off(dir.path()).await;
            change(&store, sql).await;
            let session = SessionNo(1);
            let read = store.handoffs(&scope(), session).await;
            assert!(matches!(read, Err(StoreError::Database(_) | StoreError::Damaged { .. })));
            erase(&store, session, &[1]).await;
            assert!(store.handoffs(&scope(), session).await.unwrap().is_empty());
        }
    }
}
