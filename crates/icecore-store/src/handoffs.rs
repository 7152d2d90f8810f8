//! Handoffs, which replace the older part of a branch in what a model sees, and the
//! tokens that providers counted for such views.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::{Hidden, RedactedText, Redactor};
use icecore_domain::time::Millis;
use serde_json::json;

use crate::engine::prelude::*;
use crate::log::{COMPACTED, EDITED};
use crate::reredact::{Reredactor, add};
use crate::store::Store;
use crate::turns::rows::{self, ERASED};
use crate::{log, secrets};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffTrigger {
    /// A person or a program asked for it.
    Hand,
    /// The next request would not have fit the context window.
    Window,
    /// A provider answered that a request did not fit.
    Overflow,
}

words! { HandoffTrigger { Hand = "hand", Window = "window", Overflow = "overflow" } }

#[derive(Debug, Clone)]
pub struct NewHandoff {
    pub session: SessionNo,
    pub branch: Branch,
    /// The `seq` of the branch's last turn when it was read.
    pub seen_head: Seq,
    /// The handoff in force on the branch's path when it was read, by id.
    pub seen_previous: Option<String>,
    /// The memory's epoch from before anything was read: while it is the same, no turn
    /// that the text tells of was erased.
    pub epoch: u64,
    /// The API view omits the branch up to here and everything that it forked from,
    /// except the system prompt and the turns in `kept`.
    pub through: Ordinal,
    /// Turns up to `through` that stay in the view, by their `seq`, in order.
    pub kept: Vec<Seq>,
    pub text: RedactedText,
    pub tokens: u64,
    pub tokens_before: u64,
    pub tokens_after: u64,
    /// `heuristic`, `fresh` or `model:NAME`.
    pub made_by: String,
    pub trigger: HandoffTrigger,
    pub secrets_seen: u64,
    pub now: Millis,
}

/// A stored handoff. Its fields mean what they do in [`NewHandoff`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffRecord {
    pub id: String,
    /// Counts the handoffs on its branch's path, from 1.
    pub number: u64,
    pub session: SessionNo,
    pub branch: Branch,
    pub through: Ordinal,
    pub kept: Vec<Seq>,
    pub text: RedactedText,
    pub tokens: u64,
    pub tokens_before: u64,
    pub tokens_after: u64,
    /// `person` once a person has edited it.
    pub made_by: String,
    pub trigger: HandoffTrigger,
    /// The handoff before it on the path.
    pub previous: Option<String>,
    /// Starts at 1 and rises with each edit.
    pub version: u64,
    pub at: Millis,
    /// The position of its `session.compacted` in the log.
    pub position: Position,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptHandoff {
    Done(Box<HandoffRecord>),
    /// Something is not as the caller read it any more; nothing was done.
    Changed,
}

/// A person's correction.
#[derive(Debug, Clone)]
pub struct HandoffEdit {
    pub session: SessionNo,
    pub branch: Branch,
    pub id: String,
    pub seen_version: u64,
    pub text: RedactedText,
    pub tokens: u64,
    pub tokens_after: u64,
    pub secrets_seen: u64,
    pub now: Millis,
}

/// What a provider counted for the API view of a branch up to a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewUsage {
    pub session: SessionNo,
    pub branch: Branch,
    /// The model's name in its settings or at its server.
    pub model: String,
    /// The `seq` of the last turn that was counted.
    pub through: Seq,
    pub handoff: Option<String>,
    /// Tokens as the provider counts them.
    pub tokens: u64,
    /// Tokens of the same view as we count them.
    pub counted: u64,
}

impl Store {
    /// Inserts a handoff if the branch's head, the memory's epoch and the handoff in force
    /// (on the branch's path, or on the path to `through`) still equal those given, and
    /// `through` lies within the branch. Logs `session.compacted` with ids and counts
    /// alone. As with an append, it may be
    /// [`SecretsChanged`](crate::StoreError::SecretsChanged).
    ///
    /// A handoff is deleted when a turn that it covers is erased or rewritten, and with
    /// the one before it on its path. All of a session are deleted with its last turn.
    pub async fn put_handoff(&self, scope: &Scope, handoff: NewHandoff) -> Result<KeptHandoff> {
        self.write(scope, "put_handoff", move |tx| put(tx, &handoff)).await
    }

    /// The handoff in force on a path, which is given as branches root first, each with
    /// its last ordinal on the path. It is that of the last branch with one that ends on
    /// the path; of several, the one that ends last, and of these the newest.
    pub async fn handoff(
        &self,
        scope: &Scope,
        session: SessionNo,
        path: &[(Branch, Ordinal)],
    ) -> Result<Option<HandoffRecord>> {
        let path = path.to_vec();
        self.read(scope, "handoff", move |tx| {
            let Some(no) = rows::owned(tx, session)? else { return Ok(None) };
            in_force(tx, no.tenant, session, &path)
        })
        .await
    }

    /// All handoffs of a session, oldest first.
    pub async fn handoffs(&self, scope: &Scope, session: SessionNo) -> Result<Vec<HandoffRecord>> {
        self.read(scope, "handoffs", move |tx| {
            let Some(no) = rows::owned(tx, session)? else { return Ok(Vec::new()) };
            let sql = format!(
                "SELECT {COLUMNS} FROM handoffs WHERE tenant = ?1 AND session = ?2 ORDER BY position"
            );
            tx.all(&sql, params![no.tenant, session], tuple)
        })
        .await
    }

    /// Replaces the text of a handoff, if its version is the one given and it is still in
    /// force on the branch. Logs `session.handoff_edited` with ids alone. It may be
    /// [`SecretsChanged`](crate::StoreError::SecretsChanged).
    pub async fn edit_handoff(&self, scope: &Scope, edit: HandoffEdit) -> Result<KeptHandoff> {
        self.write(scope, "edit_handoff", move |tx| self::edit(tx, &edit)).await
    }

    /// How many handoffs would be deleted if these turns were erased.
    pub async fn handoffs_lost_with(&self, scope: &Scope, turns: &[TurnId]) -> Result<u64> {
        let turns = turns.to_vec();
        self.read(scope, "handoffs_lost_with", move |tx| count_lost(tx, &turns)).await
    }

    /// Stores what a provider counted last for a branch and model; nothing if the branch
    /// or the handoff is gone.
    ///
    /// The counts of a session are deleted when a turn or handoff of it is deleted or
    /// rewritten, those with a handoff when that is edited, and those of a model whose
    /// name holds a secret when the tenant is redacted again.
    pub async fn put_usage(&self, scope: &Scope, usage: ViewUsage) -> Result<()> {
        self.write(scope, "put_usage", move |tx| {
            let Some(no) = rows::owned(tx, usage.session)? else { return Ok(()) };
            tx.change(
                "INSERT INTO view_usage
                   (tenant, session, branch, model, through, handoff, tokens, counted)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
                 WHERE EXISTS (SELECT 1 FROM branches
                     WHERE tenant = ?1 AND session = ?2 AND branch = ?3)
                   AND (?6 IS NULL OR EXISTS
                     (SELECT 1 FROM handoffs WHERE tenant = ?1 AND id = ?6 AND session = ?2))
                 ON CONFLICT (tenant, session, branch, model) DO UPDATE
                   SET through = excluded.through, handoff = excluded.handoff,
                     tokens = excluded.tokens, counted = excluded.counted",
                params![
                    no.tenant, usage.session, usage.branch, usage.model, usage.through,
                    usage.handoff, usage.tokens, usage.counted,
                ],
            )
        })
        .await
    }

    pub async fn usage(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        model: &str,
    ) -> Result<Option<ViewUsage>> {
        let model = model.to_owned();
        self.read(scope, "usage", move |tx| {
            let Some(no) = rows::owned(tx, session)? else { return Ok(None) };
            let sql = "SELECT session, branch, model, through, handoff, tokens, counted
                 FROM view_usage
                 WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND model = ?4";
            tx.first(sql, params![no.tenant, session, branch, model], tuple)
        })
        .await
    }
}

fn put(tx: &Tx<'_>, new: &NewHandoff) -> Result<KeptHandoff> {
    let scope = tx.scope()?;
    secrets::refuse_changed(tx, scope.tenant(), new.secrets_seen)?;
    let Some(no) = rows::owned(tx, new.session)? else {
        return Ok(KeptHandoff::Changed);
    };
    let branches = rows::branches(tx, no.tenant, new.session)?;
    let branch = branches.iter().map(|state| &state.record).find(|one| one.branch == new.branch);
    // A session loses all handoffs with its last turn, so an empty one gets none.
    let has_turns = turns(tx, no.tenant, new.session)? > 0;
    let is_same = branch.is_some_and(|branch| {
        has_turns && branch.head_seq == new.seen_head && new.through.0 <= branch.tail.length
    });
    if !is_same || rows::scope_head(tx, scope)?.epoch != new.epoch {
        return Ok(KeptHandoff::Changed);
    }
    let forks = branches.iter().map(|state| (state.record.branch, state.record.fork)).collect();
    let Some(number) = next_number(tx, no, new, &forks)? else { return Ok(KeptHandoff::Changed) };
    let (id, position) = log::new_id(tx, scope.tenant(), "handoff")?;
    let kept: Vec<u64> = new.kept.iter().map(|seq| seq.0).collect();
    let row = fields! {
        tenant: no.tenant,
        session: new.session,
        branch: new.branch,
        position: position,
        id: id,
        number: number,
        through: new.through,
        kept: json!(kept).to_string(),
        text: new.text,
        tokens: new.tokens,
        tokens_before: new.tokens_before,
        tokens_after: new.tokens_after,
        made_by: new.made_by,
        trigger: new.trigger,
        previous: new.seen_previous,
        version: 1,
        created_at: new.now,
    };
    tx.insert("handoffs", row)?;
    let sql = format!("SELECT {COLUMNS} FROM handoffs WHERE tenant = ?1 AND id = ?2");
    let record: HandoffRecord = tx.one(&sql, params![no.tenant, id], tuple)?;
    let payload = json!({
        "memoryRef": scope.memory(),
        "session": record.session.0,
        "branch": record.branch.to_string(),
        "compactionId": record.id,
        "number": record.number,
        "tokensBefore": record.tokens_before,
        "tokensAfter": record.tokens_after,
        "trigger": record.trigger.as_str(),
        "madeBy": record.made_by,
    });
    log::record(tx, no.tenant, Some(no.scope), COMPACTED, &payload.to_string(), record.at)?;
    Ok(KeptHandoff::Done(Box::new(record)))
}

/// The number of a new handoff, if the one before it is in force on the whole path of the
/// branch, or on the path to where the new one ends.
fn next_number(tx: &Tx<'_>, no: ScopeNo, new: &NewHandoff, forks: &Forks) -> Result<Option<u64>> {
    for end in [Ordinal(u64::MAX), new.through] {
        let found = in_force(tx, no.tenant, new.session, &path(forks, new.branch, end))?;
        if found.as_ref().map(|record| &record.id) == new.seen_previous.as_ref() {
            return Ok(Some(found.map_or(1, |record| record.number + 1)));
        }
    }
    Ok(None)
}

const COLUMNS: &str = "id, number, session, branch, through, kept, text, tokens, tokens_before,
     tokens_after, made_by, trigger, previous, version, created_at, position";

record! {
    HandoffRecord {
        id, number, session, branch, through, kept, text, tokens, tokens_before, tokens_after,
        made_by, trigger, previous, version, at, position
    }
    ViewUsage { session, branch, model, through, handoff, tokens, counted }
    Mark { id, branch, through, previous }
}

impl FromSql for Vec<Seq> {
    fn from_value(value: Value<'_>) -> Result<Self> {
        let numbers: Vec<u64> =
            serde_json::from_str(value.as_str()?).map_err(|error| Error::broken(0, error))?;
        Ok(numbers.into_iter().map(Seq).collect())
    }
}

fn in_force(
    tx: &Tx<'_>,
    tenant: i64,
    session: SessionNo,
    path: &[(Branch, Ordinal)],
) -> Result<Option<HandoffRecord>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM handoffs
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND through <= ?4
         ORDER BY through DESC, position DESC LIMIT 1"
    );
    for (branch, last) in path.iter().rev() {
        let found = tx.first(&sql, params![tenant, session, branch, last], tuple)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Where each branch of a session forked from another, if it did.
type Forks = BTreeMap<Branch, Option<(Branch, Ordinal)>>;

fn forks(tx: &Tx<'_>, tenant: i64, session: SessionNo) -> Result<Forks> {
    let sql = "SELECT branch, fork_branch, fork_ordinal FROM branches
         WHERE tenant = ?1 AND session = ?2";
    Ok(tx.all(sql, params![tenant, session], tuple)?.into_iter().collect())
}

/// The path to an ordinal of a branch: branches root first, each with its last ordinal on
/// the path.
fn path(forks: &Forks, mut branch: Branch, last: Ordinal) -> Vec<(Branch, Ordinal)> {
    let mut path = vec![(branch, last)];
    while let Some((parent, at)) = forks.get(&branch).copied().flatten() {
        // A fork has a larger number than its parent: in damaged rows there is no cycle.
        if parent >= branch {
            break;
        }
        path.push((parent, at));
        branch = parent;
    }
    path.reverse();
    path
}

fn edit(tx: &Tx<'_>, edit: &HandoffEdit) -> Result<KeptHandoff> {
    let scope = tx.scope()?;
    secrets::refuse_changed(tx, scope.tenant(), edit.secrets_seen)?;
    let Some(no) = rows::owned(tx, edit.session)? else {
        return Ok(KeptHandoff::Changed);
    };
    let path = path(&forks(tx, no.tenant, edit.session)?, edit.branch, Ordinal(u64::MAX));
    let is_seen = |one: HandoffRecord| one.id == edit.id && one.version == edit.seen_version;
    if !in_force(tx, no.tenant, edit.session, &path)?.is_some_and(is_seen) {
        return Ok(KeptHandoff::Changed);
    }
    let sql = format!(
        "UPDATE handoffs SET text = ?3, tokens = ?4, tokens_after = ?5, made_by = 'person',
           version = version + 1
         WHERE tenant = ?1 AND id = ?2 RETURNING {COLUMNS}"
    );
    let values = params![no.tenant, edit.id, edit.text, edit.tokens, edit.tokens_after];
    let record: HandoffRecord = tx.one(&sql, values, tuple)?;
    tx.change(
        "DELETE FROM view_usage WHERE tenant = ?1 AND session = ?2 AND handoff = ?3",
        params![no.tenant, record.session, record.id],
    )?;
    let payload = json!({
        "memoryRef": scope.memory(),
        "session": record.session.0,
        "branch": record.branch.to_string(),
        "compactionId": record.id,
        "version": record.version,
    });
    log::record(tx, no.tenant, Some(no.scope), EDITED, &payload.to_string(), edit.now)?;
    Ok(KeptHandoff::Done(Box::new(record)))
}

/// What a handoff covers, and the one that it was made of.
struct Mark {
    id: String,
    branch: Branch,
    through: Ordinal,
    previous: Option<String>,
}

fn marks(tx: &Tx<'_>, tenant: i64, session: SessionNo) -> Result<Vec<Mark>> {
    let sql = "SELECT id, branch, through, previous FROM handoffs
         WHERE tenant = ?1 AND session = ?2 ORDER BY position";
    tx.all(sql, params![tenant, session], tuple)
}

/// The handoffs that go, where each takes along what was made of it.
fn with_made_of(marks: &[Mark], goes: impl Fn(&Mark) -> bool) -> BTreeSet<String> {
    let mut going = BTreeSet::new();
    for mark in marks {
        if mark.previous.as_ref().is_some_and(|one| going.contains(one)) || goes(mark) {
            going.insert(mark.id.clone());
        }
    }
    going
}

fn delete(tx: &Tx<'_>, tenant: i64, session: SessionNo, lost: &BTreeSet<String>) -> Result<()> {
    for id in lost {
        tx.change("DELETE FROM handoffs WHERE tenant = ?1 AND id = ?2", params![tenant, id])?;
    }
    tx.change("DELETE FROM view_usage WHERE tenant = ?1 AND session = ?2", params![tenant, session])
}

/// Deletes what was made of turns of a branch that are erased or rewritten: the handoffs
/// that cover any, and what providers counted.
pub(crate) fn lose(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (i64, u32),
    ordinals: &BTreeSet<i64>,
) -> Result<()> {
    let session = SessionNo(session as u64);
    let first = ordinals.first().map(|first| (Branch(branch), Ordinal(*first as u64)));
    let is_empty = turns(tx, tenant, session)? <= 0;
    if first.is_none() && !is_empty {
        return Ok(());
    }
    let gone = first.into_iter().collect();
    let (marks, forks) = (marks(tx, tenant, session)?, forks(tx, tenant, session)?);
    delete(tx, tenant, session, &lost(&marks, &forks, &gone, is_empty))
}

/// The handoffs that are lost with turns, given the first turn of each branch that goes:
/// those that cover one, and all once no turn is left.
fn lost(
    marks: &[Mark],
    forks: &Forks,
    gone: &BTreeMap<Branch, Ordinal>,
    is_empty: bool,
) -> BTreeSet<String> {
    let is_gone =
        |(branch, last): &(Branch, Ordinal)| gone.get(branch).is_some_and(|first| first <= last);
    with_made_of(marks, |mark| {
        is_empty || path(forks, mark.branch, mark.through).iter().any(is_gone)
    })
}

fn turns(tx: &Tx<'_>, tenant: i64, session: SessionNo) -> Result<i64> {
    let sql = "SELECT turns FROM sessions WHERE tenant = ?1 AND session = ?2";
    tx.one(sql, params![tenant, session], column)
}

fn count_lost(tx: &Tx<'_>, ids: &[TurnId]) -> Result<u64> {
    let place = format!(
        "SELECT branch, ordinal FROM turns
         WHERE tenant = ?1 AND session = ?2 AND seq = ?3 AND flags & {ERASED} = 0"
    );
    let mut sessions: BTreeMap<SessionNo, BTreeSet<Seq>> = BTreeMap::new();
    for id in ids {
        sessions.entry(id.session).or_default().insert(id.seq);
    }
    let mut count = 0;
    for (session, seqs) in sessions {
        let Some(no) = rows::owned(tx, session)? else { continue };
        let marks = marks(tx, no.tenant, session)?;
        if marks.is_empty() {
            continue;
        }
        let mut gone: BTreeMap<Branch, Ordinal> = BTreeMap::new();
        let mut going = 0;
        for seq in seqs {
            let found = tx.first(&place, params![no.tenant, session, seq], tuple)?;
            let Some((branch, ordinal)) = found else { continue };
            going += 1;
            let first = gone.entry(branch).or_insert(ordinal);
            *first = ordinal.min(*first);
        }
        let is_empty = going > 0 && going >= turns(tx, no.tenant, session)?;
        count += lost(&marks, &forks(tx, no.tenant, session)?, &gone, is_empty).len();
    }
    Ok(count as u64)
}

#[derive(Default)]
pub(crate) struct Retold {
    pub(crate) rewritten: u64,
    pub(crate) dropped: u64,
    pub(crate) hidden: Hidden,
}

/// Puts the handoffs of a memory through a redactor. Those that were made of one that
/// changes are deleted: they may hold a part of a secret, which no redactor finds.
pub(crate) fn rewrite(tx: &Tx<'_>, no: ScopeNo, again: &Reredactor<'_>) -> Result<Retold> {
    let texts: Vec<(SessionNo, String, String)> = tx.all(
        "SELECT h.session, h.id, h.text FROM handoffs h
         JOIN sessions o ON o.tenant = h.tenant AND o.session = h.session AND o.scope = ?2
         WHERE h.tenant = ?1 ORDER BY h.position",
        [no.tenant, no.scope],
        tuple,
    )?;
    type Clean = (RedactedText, Hidden);
    let mut changed: BTreeMap<SessionNo, BTreeMap<String, Clean>> = BTreeMap::new();
    for (session, id, text) in texts {
        if let Some(clean) = again.text(&text) {
            changed.entry(session).or_default().insert(id, clean);
        }
    }
    let mut retold = Retold::default();
    for (session, mut changed) in changed {
        let is_changed = |id: &String| changed.contains_key(id);
        let dropped = with_made_of(&marks(tx, no.tenant, session)?, |mark| {
            mark.previous.as_ref().is_some_and(is_changed)
        });
        delete(tx, no.tenant, session, &dropped)?;
        retold.dropped += dropped.len() as u64;
        changed.retain(|id, _| !dropped.contains(id));
        for (id, (text, hidden)) in changed {
            tx.change(
                "UPDATE handoffs SET text = ?3 WHERE tenant = ?1 AND id = ?2",
                params![no.tenant, id, text],
            )?;
            add(&mut retold.hidden, &hidden);
            retold.rewritten += 1;
        }
    }
    Ok(retold)
}

/// Deletes what providers counted for models whose names hold a secret, for clients choose
/// these names.
pub(crate) fn lose_usage(tx: &Tx<'_>, tenant: i64, redactor: &Redactor) -> Result<()> {
    let sql = "SELECT DISTINCT model FROM view_usage WHERE tenant = ?1";
    let models: Vec<String> = tx.all(sql, [tenant], column)?;
    for model in models.iter().filter(|model| redactor.name(model).as_str() != model.as_str()) {
        tx.change(
            "DELETE FROM view_usage WHERE tenant = ?1 AND model = ?2",
            params![tenant, model],
        )?;
    }
    Ok(())
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
