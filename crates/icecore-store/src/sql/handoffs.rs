//! Handoffs, and what providers counted of what models see.

use std::collections::{BTreeMap, BTreeSet};

use super::engine::{self, Connection, OptionalExtension, Row, params};
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::{Hidden, RedactedText, Redactor};
use icecore_domain::time::Millis;

use super::rows::{self, ERASED, ScopeNo};
use super::{Shared, answers, log, pyramid, secrets};
use crate::handoffs::{
    COMPACTED, EDITED, Forks, Mark, PERSON, compacted, edited, handoff_id, losing, made_of, path,
};
use crate::store::*;
use crate::told::{Again, add};

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    new: NewHandoff,
) -> Result<KeptHandoff> {
    secrets::refuse_changed(c, s, scope.tenant(), new.secrets_seen)?;
    let Some(no) = pyramid::owned(c, s, scope, new.session)? else {
        return Ok(KeptHandoff::Changed);
    };
    let branches = rows::branches(c, s, no.tenant, new.session)?;
    let branch = branches.iter().map(|state| &state.record).find(|one| one.branch == new.branch);
    // Of a session that is empty all handoffs are gone with its last turn.
    let has_turns = c
        .prepare_cached("SELECT 1 FROM sessions WHERE tenant = ?1 AND session = ?2 AND turns > 0")
        .and_then(|mut q| q.exists([no.tenant, rows::number(new.session.0)]))
        .map_err(|e| s.failed(e))?;
    let is_same = branch.is_some_and(|branch| {
        has_turns && branch.head_seq == new.seen_head && new.through.0 <= branch.tail.length
    });
    if !is_same || rows::scope_head(c, s, scope)?.epoch != new.epoch {
        return Ok(KeptHandoff::Changed);
    }
    let forks = branches.iter().map(|state| (state.record.branch, state.record.fork)).collect();
    let mut previous = None;
    let mut is_next = false;
    for end in [Ordinal(u64::MAX), new.through] {
        let path = path(&forks, new.branch, end);
        previous = in_force(c, s, no.tenant, new.session, &path)?;
        is_next = previous.as_ref().map(|record| &record.id) == new.seen_previous.as_ref();
        if is_next {
            break;
        }
    }
    if !is_next {
        return Ok(KeptHandoff::Changed);
    }
    let (_, key) = rows::ensure_tenant(c, s, scope.tenant())?;
    let position = log::next(c, s, scope.tenant())?;
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
    insert(c, scope, no, &record).map_err(|e| s.failed(e))?;
    Ok(KeptHandoff::Done(Box::new(record)))
}

fn insert(
    c: &Connection,
    scope: &Scope,
    no: ScopeNo,
    record: &HandoffRecord,
) -> engine::Result<()> {
    let payload = compacted(scope, record);
    log::record(c, no.tenant, Some(no.scope), COMPACTED, &payload, record.at)?;
    let kept: Vec<u64> = record.kept.iter().map(|seq| seq.0).collect();
    c.prepare_cached(
        "INSERT INTO handoffs (tenant, session, branch, position, id, number, through, kept, text,
           tokens, tokens_before, tokens_after, made_by, trigger, previous, version, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?
    .execute(params![
        no.tenant,
        rows::number(record.session.0),
        record.branch.0,
        rows::number(record.position.0),
        record.id,
        rows::number(record.number),
        rows::number(record.through.0),
        serde_json::json!(kept).to_string(),
        record.text.as_str(),
        rows::number(record.tokens),
        rows::number(record.tokens_before),
        rows::number(record.tokens_after),
        record.made_by,
        record.trigger.as_str(),
        record.previous,
        rows::number(record.version),
        record.at.0,
    ])?;
    Ok(())
}

// Reading

const COLUMNS: &str = "id, number, session, branch, through, kept, text, tokens, tokens_before,
     tokens_after, made_by, trigger, previous, version, created_at, position";

#[expect(clippy::disallowed_methods, reason = "handoffs come from our own rows")]
fn read(row: &Row<'_>) -> engine::Result<HandoffRecord> {
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
    c: &Connection,
    s: &Shared,
    tenant: i64,
    session: SessionNo,
    path: &[(Branch, Ordinal)],
) -> Result<Option<HandoffRecord>> {
    let find = || {
        let mut query = c.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM handoffs
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND through <= ?4
             ORDER BY through DESC, position DESC LIMIT 1"
        ))?;
        for (branch, last) in path.iter().rev() {
            let key = params![tenant, rows::number(session.0), branch.0, rows::number(last.0)];
            if let Some(found) = query.query_row(key, read).optional()? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    };
    find().map_err(|e| s.failed(e))
}

pub(super) fn on_path(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    session: SessionNo,
    path: &[(Branch, Ordinal)],
) -> Result<Option<HandoffRecord>> {
    match pyramid::owned(c, s, scope, session)? {
        Some(no) => in_force(c, s, no.tenant, session, path),
        None => Ok(None),
    }
}

pub(super) fn of_session(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    session: SessionNo,
) -> Result<Vec<HandoffRecord>> {
    let Some(no) = pyramid::owned(c, s, scope, session)? else { return Ok(Vec::new()) };
    c.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM handoffs WHERE tenant = ?1 AND session = ?2 ORDER BY position"
    ))
    .and_then(|mut q| q.query_map([no.tenant, rows::number(session.0)], read)?.collect())
    .map_err(|e| s.failed(e))
}

// Changing

pub(super) fn edit(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    edit: HandoffEdit,
) -> Result<KeptHandoff> {
    secrets::refuse_changed(c, s, scope.tenant(), edit.secrets_seen)?;
    let Some(no) = pyramid::owned(c, s, scope, edit.session)? else {
        return Ok(KeptHandoff::Changed);
    };
    let forks = forks(c, no.tenant, rows::number(edit.session.0)).map_err(|e| s.failed(e))?;
    let path = path(&forks, edit.branch, Ordinal(u64::MAX));
    let found = in_force(c, s, no.tenant, edit.session, &path)?;
    let is_seen = |one: &HandoffRecord| one.id == edit.id && one.version == edit.seen_version;
    let Some(mut record) = found.filter(is_seen) else { return Ok(KeptHandoff::Changed) };
    (record.text, record.tokens, record.tokens_after) = (edit.text, edit.tokens, edit.tokens_after);
    PERSON.clone_into(&mut record.made_by);
    record.version += 1;
    let change = || {
        c.prepare_cached(
            "UPDATE handoffs SET text = ?3, tokens = ?4, tokens_after = ?5, made_by = ?6, version = ?7
             WHERE tenant = ?1 AND id = ?2",
        )?
        .execute(params![
            no.tenant,
            record.id,
            record.text.as_str(),
            rows::number(record.tokens),
            rows::number(record.tokens_after),
            record.made_by,
            rows::number(record.version),
        ])?;
        c.prepare_cached(
            "DELETE FROM view_usage WHERE tenant = ?1 AND session = ?2 AND handoff = ?3",
        )?
        .execute(params![no.tenant, rows::number(record.session.0), record.id])?;
        let payload = edited(scope, &record);
        log::record(c, no.tenant, Some(no.scope), EDITED, &payload, edit.now)
    };
    change().map_err(|e: engine::Error| s.failed(e))?;
    Ok(KeptHandoff::Done(Box::new(record)))
}

// Losing them

/// Handoffs of a session, oldest first, without their words.
fn marks(c: &Connection, tenant: i64, session: i64) -> engine::Result<Vec<Mark>> {
    c.prepare_cached(
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

fn forks(c: &Connection, tenant: i64, session: i64) -> engine::Result<Forks> {
    c.prepare_cached(
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
pub(super) fn lose(
    c: &Connection,
    tenant: i64,
    (session, branch): (i64, u32),
    ordinals: &BTreeSet<i64>,
) -> engine::Result<()> {
    let is_empty: bool = c
        .prepare_cached("SELECT turns <= 0 FROM sessions WHERE tenant = ?1 AND session = ?2")?
        .query_row([tenant, session], |row| row.get(0))?;
    let marks = marks(c, tenant, session)?;
    let lost = match ordinals.first() {
        _ if is_empty => marks.into_iter().map(|mark| mark.id).collect(),
        Some(first) => {
            let gone = BTreeMap::from([(Branch(branch), Ordinal(*first as u64))]);
            losing(&forks(c, tenant, session)?, &marks, &gone)
        }
        None => return Ok(()),
    };
    delete(c, tenant, session, &lost)
}

/// Lets go of what providers counted for models whose names hold what is hidden: clients
/// name them.
pub(super) fn lose_usage(c: &Connection, tenant: i64, redactor: &Redactor) -> engine::Result<()> {
    let models: Vec<String> = c
        .prepare("SELECT DISTINCT model FROM view_usage WHERE tenant = ?1")?
        .query_map([tenant], |row| row.get(0))?
        .collect::<engine::Result<_>>()?;
    for model in models.iter().filter(|model| redactor.name(model).as_str() != model.as_str()) {
        c.execute(
            "DELETE FROM view_usage WHERE tenant = ?1 AND model = ?2",
            params![tenant, model],
        )?;
    }
    Ok(())
}

/// Deletes handoffs of a session, and what providers counted of it.
fn delete(
    c: &Connection,
    tenant: i64,
    session: i64,
    lost: &BTreeSet<String>,
) -> engine::Result<()> {
    for id in lost {
        c.prepare_cached("DELETE FROM handoffs WHERE tenant = ?1 AND id = ?2")?
            .execute(params![tenant, id])?;
    }
    c.prepare_cached("DELETE FROM view_usage WHERE tenant = ?1 AND session = ?2")?
        .execute([tenant, session])?;
    Ok(())
}

pub(super) fn lost_with(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    turns: &[TurnId],
) -> Result<u64> {
    let mut sessions: BTreeMap<SessionNo, BTreeSet<Seq>> = BTreeMap::new();
    turns.iter().for_each(|id| {
        sessions.entry(id.session).or_default().insert(id.seq);
    });
    let mut lost = 0;
    for (session, seqs) in sessions {
        let Some(no) = pyramid::owned(c, s, scope, session)? else { continue };
        lost += lost_in(c, no.tenant, rows::number(session.0), &seqs).map_err(|e| s.failed(e))?;
    }
    Ok(lost)
}

fn lost_in(c: &Connection, tenant: i64, session: i64, seqs: &BTreeSet<Seq>) -> engine::Result<u64> {
    let marks = marks(c, tenant, session)?;
    if marks.is_empty() {
        return Ok(0);
    }
    let mut gone: BTreeMap<Branch, Ordinal> = BTreeMap::new();
    let mut found = c.prepare_cached(&format!(
        "SELECT branch, ordinal FROM turns
         WHERE tenant = ?1 AND session = ?2 AND seq = ?3 AND flags & {ERASED} = 0"
    ))?;
    let mut going = 0_i64;
    for seq in seqs {
        let turn: Option<(u32, i64)> = found
            .query_row([tenant, session, rows::number(seq.0)], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((branch, ordinal)) = turn else { continue };
        going += 1;
        let ordinal = Ordinal(ordinal as u64);
        let first = gone.entry(Branch(branch)).or_insert(ordinal);
        *first = ordinal.min(*first);
    }
    let turns: i64 = c
        .prepare_cached("SELECT turns FROM sessions WHERE tenant = ?1 AND session = ?2")?
        .query_row([tenant, session], |row| row.get(0))?;
    if going > 0 && going >= turns {
        return Ok(marks.len() as u64);
    }
    Ok(losing(&forks(c, tenant, session)?, &marks, &gone).len() as u64)
}

// Redacting them again

/// What became of a memory's handoffs.
#[derive(Default)]
pub(super) struct Retold {
    pub(super) rewritten: u64,
    pub(super) dropped: u64,
    pub(super) hidden: Hidden,
}

/// Puts the handoffs of a memory through a redactor. Those that were made of one that
/// changes are dropped: they may hold a part of a secret, which nothing finds.
pub(super) fn rewrite(c: &Connection, no: ScopeNo, again: &Again<'_>) -> engine::Result<Retold> {
    let texts: Vec<(i64, String, String)> = c
        .prepare(
            "SELECT h.session, h.id, h.text FROM handoffs h
             JOIN sessions o ON o.tenant = h.tenant AND o.session = h.session AND o.scope = ?2
             WHERE h.tenant = ?1 ORDER BY h.position",
        )?
        .query_map([no.tenant, no.scope], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<engine::Result<_>>()?;
    let mut changed: BTreeMap<i64, BTreeMap<String, (RedactedText, Hidden)>> = BTreeMap::new();
    for (session, id, text) in texts {
        if let Some(clean) = again.text(&text) {
            changed.entry(session).or_default().insert(id, clean);
        }
    }
    let mut retold = Retold::default();
    for (session, mut changed) in changed {
        let ids = changed.keys().cloned().collect();
        let dropped = made_of(&marks(c, no.tenant, session)?, &ids);
        delete(c, no.tenant, session, &dropped)?;
        retold.dropped += dropped.len() as u64;
        changed.retain(|id, _| !dropped.contains(id));
        for (id, (text, hidden)) in changed {
            c.prepare_cached("UPDATE handoffs SET text = ?3 WHERE tenant = ?1 AND id = ?2")?
                .execute(params![no.tenant, id, text.as_str()])?;
            add(&mut retold.hidden, &hidden);
            retold.rewritten += 1;
        }
    }
    Ok(retold)
}

// What providers counted

pub(super) fn put_usage(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    usage: &ViewUsage,
) -> Result<()> {
    let Some(no) = pyramid::owned(c, s, scope, usage.session)? else { return Ok(()) };
    c.prepare_cached(
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
            rows::number(usage.session.0),
            usage.branch.0,
            usage.model,
            rows::number(usage.through.0),
            usage.handoff,
            rows::number(usage.tokens),
            rows::number(usage.counted),
        ])
    })
    .map(|_| ())
    .map_err(|e| s.failed(e))
}

pub(super) fn usage(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    model: &str,
) -> Result<Option<ViewUsage>> {
    let Some(no) = pyramid::owned(c, s, scope, session)? else { return Ok(None) };
    c.prepare_cached(
        "SELECT through, handoff, tokens, counted FROM view_usage
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND model = ?4",
    )
    .and_then(|mut q| {
        let key = params![no.tenant, rows::number(session.0), branch.0, model];
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
    .map_err(|e| s.failed(e))
}

/// Takes back what was made of turns of a branch that were erased: handoffs, what
/// providers counted and what models answered.
pub(super) fn forget(
    c: &Connection,
    no: ScopeNo,
    place: (i64, u32),
    ordinals: &BTreeSet<i64>,
) -> engine::Result<()> {
    lose(c, no.tenant, place, ordinals)?;
    answers::forget(c, no, Some(place.0))
}

#[cfg(test)]
mod tests {
    use crate::sql::Wall;
    use icecore_domain::ids::{Branch, Seq, SessionNo};

    use crate::contract::fixtures::*;
    use crate::contract::handoffs::new_handoff;
    use crate::store::*;
    use crate::{SqliteStore, StoreError};

    /// A store with two handoffs, one made of the other, what a provider counted and an
    /// answer.
    async fn handed_off(dir: &std::path::Path) -> SqliteStore {
        let store = SqliteStore::open(dir, None).unwrap();
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

    async fn change(store: &SqliteStore, sql: &'static str) {
        store
            .write(Wall::Everyone, move |c, s| c.execute_batch(sql).map_err(|e| s.failed(e)))
            .await
            .unwrap();
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
