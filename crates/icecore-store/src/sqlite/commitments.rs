//! Intentions that wait for their condition.

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::rows::ScopeNo;
use super::{Shared, entries, log, rows, secrets};
use crate::commitments::{cancelled, commitment_id, fired, made, rewritten};
use crate::error::StoreError;
use crate::store::*;
use crate::told::Again;

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    commitment: NewCommitment,
) -> Result<CommitmentRecord> {
    let NewCommitment { intention, condition, now, secrets_seen, most_pending, claim } = commitment;
    secrets::refuse_changed(c, s, scope.tenant(), secrets_seen)?;
    if let (Some(claim), Some(tenant)) = (&claim, rows::tenant_no(c, s, scope.tenant())?) {
        log::refuse_taken(c, s, tenant, claim, now)?;
    }
    refuse_crowd(c, s, scope, most_pending)?;
    // Before the tenant is made, if it is new: its first entry may make it.
    let entry = intended(c, s, scope, intention, now)?;
    let no = rows::ensure_scope(c, s, scope)?;
    let position = Position(log::head(c, s, scope.tenant())?.0 + 1);
    let (_, key) = rows::ensure_tenant(c, s, scope.tenant())?;
    let record = CommitmentRecord {
        id: commitment_id(&key.identity_key(), position),
        scope: scope.clone(),
        entry,
        condition,
        state: CommitmentState::Pending,
        created_at: now,
        settled_at: None,
        through: position,
    };
    insert(c, no, &record).map_err(|e| s.failed(e))?;
    if let Some(claim) = claim {
        log::put_outcome_of(c, s, no.tenant, &claim.outcome(&record), now)?;
    }
    Ok(record)
}

fn refuse_crowd(c: &Connection, s: &Shared, scope: &Scope, most: u64) -> Result<()> {
    let count: i64 = match rows::scope_no(c, s, scope)? {
        None => 0,
        Some(no) => c
            .prepare_cached(
                "SELECT count(*) FROM commitments INDEXED BY commitments_by_entry
                 WHERE tenant = ?1 AND scope = ?2 AND state = 0",
            )
            .and_then(|mut q| q.query_row([no.tenant, no.scope], |row| row.get(0)))
            .map_err(|e| s.failed(e))?,
    };
    if count as u64 >= most { Err(StoreError::TooManyCommitments { most }) } else { Ok(()) }
}

/// The id of the entry that is the intention, which is put if it is new.
fn intended(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    intention: Intention,
    now: Millis,
) -> Result<String> {
    match intention {
        Intention::New(entry) => {
            let entry = NewEntry { claim: None, ..entry };
            entries::put(c, s, scope, entry).map(|entry| entry.id)
        }
        Intention::Entry(id) => {
            let found = entries::get(c, s, scope, &id, None, now)?;
            match found.filter(|entry| entry.successor.is_none()) {
                Some(entry) => Ok(entry.id),
                None => Err(StoreError::NoIntention { id }),
            }
        }
    }
}

fn insert(c: &Connection, no: ScopeNo, record: &CommitmentRecord) -> rusqlite::Result<()> {
    let (due_at, tag, mentions) = match &record.condition {
        Condition::Time(at) => (Some(at.0), None, None),
        Condition::Predicate { tag, mentions } => (None, tag.as_ref(), mentions.as_ref()),
    };
    let now = record.created_at;
    log::record(c, no.tenant, Some(no.scope), "commitment.made", &made(record), now)?;
    c.prepare_cached(
        "INSERT INTO commitments (tenant, scope, id, entry, state, created_at, due_at, tag,
                                  mentions, through, position)
         VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9, ?9)",
    )?
    .execute(params![
        no.tenant,
        no.scope,
        record.id,
        record.entry,
        now.0,
        due_at,
        tag.map(RedactedText::as_str),
        mentions.map(RedactedText::as_str),
        rows::number(record.through.0),
    ])?;
    Ok(())
}

// Reading

const COLUMNS: &str = "k.tenant, k.scope, k.id, k.entry, k.state, k.created_at, k.settled_at,
    k.due_at, k.tag, k.mentions, k.through";

/// Commitments as `k`, by what comes after the table's name.
fn find(
    c: &Connection,
    s: &Shared,
    which: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<CommitmentRecord>> {
    let found: Vec<(i64, i64, Read)> = c
        .prepare_cached(&format!("SELECT {COLUMNS} FROM commitments k {which}"))
        .and_then(|mut q| q.query_map(params_from_iter(values), read)?.collect())
        .map_err(|e| s.failed(e))?;
    let of_scope = |(tenant, scope, read): (i64, i64, Read)| {
        let scope = rows::scope_of(c, s, tenant, scope)?;
        read(scope).ok_or_else(|| rows::damaged(s, "the row of a commitment is not valid"))
    };
    found.into_iter().map(of_scope).collect()
}

/// What a row holds, once its scope is known; none if it is not what was written.
type Read = Box<dyn FnOnce(Scope) -> Option<CommitmentRecord>>;

#[expect(clippy::disallowed_methods, reason = "commitments come from our own rows")]
fn read(row: &Row<'_>) -> rusqlite::Result<(i64, i64, Read)> {
    let (id, entry, state): (String, String, i64) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let created_at = Millis(row.get(5)?);
    let settled_at = row.get::<_, Option<i64>>(6)?.map(Millis);
    let text =
        |column| row.get::<_, Option<String>>(column).map(|text| text.map(RedactedText::read_back));
    let condition = match row.get::<_, Option<i64>>(7)? {
        Some(at) => Condition::Time(Millis(at)),
        None => Condition::Predicate { tag: text(8)?, mentions: text(9)? },
    };
    let through = Position(row.get::<_, i64>(10)? as u64);
    let of_scope = move |scope| {
        let state = *STATES.get(usize::try_from(state).ok()?)?;
        Some(CommitmentRecord {
            id,
            scope,
            entry,
            condition,
            state,
            created_at,
            settled_at,
            through,
        })
    };
    Ok((row.get(0)?, row.get(1)?, Box::new(of_scope)))
}

/// By the number that stands for each.
const STATES: [CommitmentState; 4] = [
    CommitmentState::Pending,
    CommitmentState::Fired,
    CommitmentState::Cancelled,
    CommitmentState::Void,
];

fn state_number(state: CommitmentState) -> i64 {
    STATES.iter().position(|known| *known == state).unwrap_or_default() as i64
}

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<CommitmentRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(None) };
    let key = [Value::from(no), Value::from(id.to_owned())];
    Ok(find(c, s, "WHERE k.tenant = ?1 AND k.id = ?2", key)?.pop())
}

pub(super) fn list(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    memory: Option<&str>,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    let which = "WHERE k.tenant = ?1 AND (?2 IS NULL OR k.scope =
           (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))
         ORDER BY k.position DESC LIMIT ?3";
    let memory = Value::from(memory.map(str::to_owned));
    find(c, s, which, [no.into(), memory, rows::number(limit as u64).into()])
}

pub(super) fn due(
    c: &Connection,
    s: &Shared,
    now: Millis,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    let which = "INDEXED BY commitments_due
         WHERE k.state = 0 AND k.due_at IS NOT NULL AND k.due_at <= ?1
         ORDER BY k.due_at, k.tenant, k.id LIMIT ?2";
    find(c, s, which, [now.0, rows::number(limit as u64)].map(Value::from))
}

pub(super) fn waiting(c: &Connection, s: &Shared, limit: usize) -> Result<Vec<CommitmentRecord>> {
    let which = "INDEXED BY commitments_waiting
         WHERE k.state = 0 AND k.due_at IS NULL AND EXISTS
           (SELECT 1 FROM entries e INDEXED BY entries_by_began
            WHERE e.tenant = k.tenant AND e.scope = k.scope AND e.began > k.through
              AND e.id != k.entry)
         ORDER BY k.tenant, k.position LIMIT ?1";
    find(c, s, which, [Value::from(rows::number(limit as u64))])
}

// Settling

pub(super) fn look_through(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    through: Position,
) -> Result<()> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(()) };
    c.prepare_cached(
        "UPDATE commitments SET through = max(through, ?3)
         WHERE tenant = ?1 AND id = ?2 AND state = 0",
    )
    .and_then(|mut q| q.execute(params![no, id, rows::number(through.0)]))
    .map(|_| ())
    .map_err(|e| s.failed(e))
}

/// A commitment that is pending, with its scope's numbers.
fn pending(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<(ScopeNo, CommitmentRecord)>> {
    let found = get(c, s, tenant, id)?;
    let Some(record) = found.filter(|found| found.state == CommitmentState::Pending) else {
        return Ok(None);
    };
    Ok(rows::scope_no(c, s, &record.scope)?.map(|no| (no, record)))
}

fn settle(
    c: &Connection,
    no: ScopeNo,
    id: &str,
    state: CommitmentState,
    now: Millis,
) -> rusqlite::Result<()> {
    c.prepare_cached(
        "UPDATE commitments SET state = ?3, settled_at = ?4
         WHERE tenant = ?1 AND id = ?2 AND state = 0",
    )?
    .execute(params![no.tenant, id, state_number(state), now.0])?;
    Ok(())
}

pub(super) fn fire(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    because: Option<&str>,
    now: Millis,
) -> Result<Option<Fired>> {
    let Some((no, record)) = pending(c, s, tenant, id)? else { return Ok(None) };
    let fire = || {
        if !is_there(c, no, &record.entry, now)? {
            settle(c, no, id, CommitmentState::Void, now)?;
            return Ok(None);
        }
        settle(c, no, id, CommitmentState::Fired, now)?;
        let payload = fired(&record, because);
        let position =
            log::record(c, no.tenant, Some(no.scope), "commitment.fired", &payload, now)?;
        Ok(Some(Fired { payload, position }))
    };
    fire().map_err(|e: rusqlite::Error| s.failed(e))
}

/// Whether an intention is in force, or another entry stands for it.
fn is_there(c: &Connection, no: ScopeNo, entry: &str, now: Millis) -> rusqlite::Result<bool> {
    c.prepare_cached(
        "SELECT 1 FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3
           AND (expires_at IS NULL OR expires_at > ?4)
           AND (ended IS NULL OR ended_at IS NULL AND successor IS NOT NULL)",
    )?
    .exists(params![no.tenant, no.scope, entry, now.0])
}

pub(super) fn cancel(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    now: Millis,
) -> Result<bool> {
    let Some((no, record)) = pending(c, s, tenant, id)? else { return Ok(false) };
    settle(c, no, id, CommitmentState::Cancelled, now)
        .and_then(|()| {
            let payload = cancelled(&record);
            log::record(c, no.tenant, Some(no.scope), "commitment.cancelled", &payload, now)
        })
        .map(|_| true)
        .map_err(|e| s.failed(e))
}

/// Deletes commitments of a memory whose intentions have gone from it.
pub(super) fn forget_erased(c: &Connection, no: ScopeNo) -> rusqlite::Result<()> {
    c.execute(
        "DELETE FROM commitments WHERE tenant = ?1 AND scope = ?2 AND NOT EXISTS
           (SELECT 1 FROM entries e WHERE e.tenant = commitments.tenant
              AND e.scope = commitments.scope AND e.id = commitments.entry)",
        [no.tenant, no.scope],
    )?;
    Ok(())
}

// Rewriting

/// Puts what commitments of a tenant wait for through a redactor; answers how many are
/// other than they were.
pub(super) fn rewrite(c: &Connection, s: &Shared, tenant: i64, again: &Again<'_>) -> Result<u64> {
    let mut changed = 0;
    for record in find(c, s, "WHERE k.tenant = ?1 AND k.due_at IS NULL", [tenant.into()])? {
        let Some((tag, mentions)) = rewritten(again, &record.condition) else { continue };
        c.execute(
            "UPDATE commitments SET tag = ?3, mentions = ?4 WHERE tenant = ?1 AND id = ?2",
            params![
                tenant,
                record.id,
                tag.as_ref().map(RedactedText::as_str),
                mentions.as_ref().map(RedactedText::as_str)
            ],
        )
        .map_err(|e| s.failed(e))?;
        changed += 1;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use icecore_domain::ids::{Position, Principal};

    use crate::SqliteStore;
    use crate::contract::commitments::new_commitment;
    use crate::contract::fixtures::*;
    use crate::contract::runs::{new_run, next, write};
    use crate::store::*;

    #[tokio::test]
    async fn of_two_processes_one_does_it() {
        let dir = tempfile::tempdir().unwrap();
        let stores = [(); 2].map(|()| SqliteStore::open(dir.path(), None).unwrap());
        let (acme, [here, there]) = (tenant("acme"), &stores);
        let workspace = Principal::local_operator(acme.clone()).workspace();
        for number in 0..20 {
            let intention = Intention::New(write("notes", &format!("e{number}")).entry);
            let new = new_commitment(intention, Condition::Time(NOW));
            let id = here.put_commitment(&scope(), new).await.unwrap().id;
            let (a, b) = tokio::join!(
                here.fire_commitment(&acme, &id, None, NOW),
                there.fire_commitment(&acme, &id, None, NOW)
            );
            assert_ne!(a.unwrap().is_some(), b.unwrap().is_some());

            let run = format!("r{number}");
            here.create_run(&workspace, new_run(&run)).await.unwrap();
            let step = || RunStep {
                writes: vec![write("notes", &format!("by {run}"))],
                ..next(&run, 1, RunStatus::Running)
            };
            let (a, b) = tokio::join!(here.step_run(&acme, step()), there.step_run(&acme, step()));
            assert_ne!(a.unwrap().is_some(), b.unwrap().is_some());
        }
        let log = there.events(&acme, None, Position(0), 999).await.unwrap();
        let count = |kind: &str| log.iter().filter(|event| event.kind == kind).count();
        assert_eq!((count("commitment.fired"), count("memory.written")), (20, 40));
        clean(here).await;
    }
}
