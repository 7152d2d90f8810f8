//! Intentions that wait for their condition.

use super::engine::Owned as Value;
use super::engine::{self, Connection, OptionalExtension, Row, params, params_from_iter};
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

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
    let NewCommitment {
        intention,
        condition,
        now,
        secrets_seen,
        most_pending,
        most_pending_tenant,
        claim,
    } = commitment;
    secrets::refuse_changed(c, s, scope.tenant(), secrets_seen)?;
    if let (Some(claim), Some(tenant)) = (&claim, rows::tenant_no(c, s, scope.tenant())?) {
        log::refuse_taken(c, s, tenant, claim, now)?;
    }
    refuse_crowd(c, s, scope, most_pending, most_pending_tenant)?;
    // Before the tenant is made, if it is new: its first entry may make it.
    let entry = intended(c, s, scope, intention, now)?;
    let no = rows::ensure_scope(c, s, scope)?;
    let position = log::next(c, s, scope.tenant())?;
    let (_, key) = rows::ensure_tenant(c, s, scope.tenant())?;
    let record = CommitmentRecord {
        id: commitment_id(&key.identity_key(), position),
        scope: scope.clone(),
        entry,
        condition,
        state: CommitmentState::Pending,
        created_at: now,
        settled_at: None,
        made: position,
    };
    insert(c, no, &record).map_err(|e| s.failed(e))?;
    if let Some(claim) = claim {
        log::put_outcome_of(c, s, no.tenant, &claim.outcome(&record), now)?;
    }
    Ok(record)
}

fn refuse_crowd(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    most: u64,
    most_of_tenant: u64,
) -> Result<()> {
    let Some(tenant) = rows::tenant_no(c, s, scope.tenant())? else {
        // Who is not there has none, and may be allowed none.
        return match (most, most_of_tenant) {
            (0, _) => Err(StoreError::TooManyCommitments { most }),
            (_, 0) => Err(StoreError::TooManyTenantCommitments { most: most_of_tenant }),
            _ => Ok(()),
        };
    };
    // Counted no further than it matters: whoever writes waits meanwhile.
    let pending = |which: &str, numbers: &[i64], most: u64| {
        c.prepare_cached(&format!(
            "SELECT count(*) FROM (SELECT 1 FROM commitments INDEXED BY commitments_pending
               WHERE state = 0 AND {which} LIMIT {}) k",
            rows::number(most)
        ))
        .and_then(|mut q| q.query_row(params_from_iter(numbers), |row| row.get::<_, i64>(0)))
        .map_err(|e| s.failed(e))
    };
    let mine = match rows::scope_no(c, s, scope)? {
        Some(no) => pending("tenant = ?1 AND scope = ?2", &[tenant, no.scope], most)?,
        None => 0,
    };
    if mine as u64 >= most {
        return Err(StoreError::TooManyCommitments { most });
    }
    match pending("tenant = ?1", &[tenant], most_of_tenant)? as u64 >= most_of_tenant {
        true => Err(StoreError::TooManyTenantCommitments { most: most_of_tenant }),
        false => Ok(()),
    }
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

fn insert(c: &Connection, no: ScopeNo, record: &CommitmentRecord) -> engine::Result<()> {
    let (due_at, tag, mentions) = match &record.condition {
        Condition::Time(at) => (Some(at.0), None, None),
        Condition::Predicate { tag, mentions } => (None, tag.as_ref(), mentions.as_ref()),
    };
    let now = record.created_at;
    log::record(c, no.tenant, Some(no.scope), "commitment.made", &made(record), now)?;
    c.prepare_cached(
        "INSERT INTO commitments (tenant, scope, id, entry, state, created_at, due_at, tag,
                                  mentions, position)
         VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9)",
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
        rows::number(record.made.0),
    ])?;
    Ok(())
}

// Reading

const COLUMNS: &str = "k.tenant, k.scope, k.id, k.entry, k.state, k.created_at, k.settled_at,
    k.due_at, k.tag, k.mentions, k.position";

/// Commitments as `k`, by what comes after the table's name, in turn to `take`, which
/// says whether to go on. What is not valid comes as an error.
fn each(
    c: &Connection,
    s: &Shared,
    which: &str,
    values: impl IntoIterator<Item = Value>,
    mut take: impl FnMut(Result<CommitmentRecord>) -> Result<bool>,
) -> Result<()> {
    let mut query = c
        .prepare_cached(&format!("SELECT {COLUMNS} FROM commitments k {which}"))
        .map_err(|e| s.failed(e))?;
    let mut found = query.query(params_from_iter(values)).map_err(|e| s.failed(e))?;
    let invalid = || rows::damaged(s, "the row of a commitment is not valid");
    while let Some(row) = found.next().map_err(|e| s.failed(e))? {
        let record = read(&row).map_err(|_| invalid()).and_then(|(tenant, scope, read)| {
            let scope = rows::scope_of(c, s, tenant, scope)?;
            read(scope).ok_or_else(invalid)
        });
        if !take(record)? {
            break;
        }
    }
    Ok(())
}

/// All of them; one that is not valid is an error.
fn find(
    c: &Connection,
    s: &Shared,
    which: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<CommitmentRecord>> {
    let mut found = Vec::new();
    each(c, s, which, values, |record| {
        found.push(record?);
        Ok(true)
    })?;
    Ok(found)
}

/// So many that are valid. One damaged row must not keep the others from being read,
/// nor take their place.
fn find_sound(
    c: &Connection,
    s: &Shared,
    which: &str,
    values: impl IntoIterator<Item = Value>,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    each(c, s, which, values, |record| {
        match record {
            Ok(record) => found.push(record),
            Err(error) => tracing::warn!(error = %error, "a damaged commitment is passed over"),
        }
        Ok(found.len() < limit)
    })?;
    Ok(found)
}

/// What a row holds, once its scope is known; none if it is not what was written.
type Read = Box<dyn FnOnce(Scope) -> Option<CommitmentRecord>>;

#[expect(clippy::disallowed_methods, reason = "commitments come from our own rows")]
fn read(row: &Row<'_>) -> engine::Result<(i64, i64, Read)> {
    let (id, entry, state): (String, String, i64) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let created_at = Millis(row.get(5)?);
    let settled_at = row.get::<_, Option<i64>>(6)?.map(Millis);
    let text =
        |column| row.get::<_, Option<String>>(column).map(|text| text.map(RedactedText::read_back));
    let condition = match row.get::<_, Option<i64>>(7)? {
        Some(at) => Condition::Time(Millis(at)),
        None => Condition::Predicate { tag: text(8)?, mentions: text(9)? },
    };
    let made = Position(row.get::<_, i64>(10)? as u64);
    let of_scope = move |scope| {
        let state = *STATES.get(usize::try_from(state).ok()?)?;
        Some(CommitmentRecord { id, scope, entry, condition, state, created_at, settled_at, made })
    };
    Ok((row.get(0)?, row.get(1)?, Box::new(of_scope)))
}

/// By the number that stands for each.
const STATES: [CommitmentState; 4] = CommitmentState::ALL;

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
    query: CommitmentQuery,
) -> Result<Vec<CommitmentRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    let which = "INDEXED BY commitments_made WHERE k.tenant = ?1
           AND (?2 IS NULL OR k.scope =
             (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))
           AND (?3 IS NULL OR k.state = ?3)
           AND k.position < CASE WHEN ?4 IS NULL THEN 9223372036854775807 ELSE
             (SELECT position FROM commitments WHERE tenant = ?1 AND id = ?4) END
         ORDER BY k.position DESC";
    let CommitmentQuery { memory, state, before, limit } = query;
    let values = [no.into(), memory.into(), state.map(state_number).into(), before.into()];
    find_sound(c, s, which, values, limit)
}

pub(super) fn due(
    c: &Connection,
    s: &Shared,
    now: Millis,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    let which = "INDEXED BY commitments_due
         WHERE k.state = 0 AND k.due_at IS NOT NULL AND k.due_at <= ?1
         ORDER BY row_number() OVER (PARTITION BY k.tenant ORDER BY k.due_at, k.id),
           k.due_at, k.tenant";
    find_sound(c, s, which, [Value::from(now.0)], limit)
}

// Waiting for an entry

/// A memory with pending commitments that wait for an entry.
struct Place {
    no: ScopeNo,
    /// Entries were looked at up to here.
    after: i64,
    /// Whether there are later ones.
    is_behind: bool,
}

/// The next such memory of a tenant.
fn next_place(c: &Connection, tenant: i64, after: i64) -> engine::Result<Option<Place>> {
    c.prepare_cached(
        "SELECT k.scope, max(k.position, p.looked_through), EXISTS
             (SELECT 1 FROM entries e INDEXED BY entries_by_began
              WHERE e.tenant = k.tenant AND e.scope = k.scope
                AND e.began > max(k.position, p.looked_through))
         FROM commitments k INDEXED BY commitments_waiting
           CROSS JOIN scopes p ON p.tenant = k.tenant AND p.scope = k.scope
         WHERE k.state = 0 AND k.due_at IS NULL AND k.tenant = ?1 AND k.scope > ?2
         ORDER BY k.scope, k.position LIMIT 1",
    )?
    .query_row([tenant, after], |row| {
        let no = ScopeNo { tenant, scope: row.get(0)? };
        Ok(Place { no, after: row.get(1)?, is_behind: row.get(2)? })
    })
    .optional()
}

/// Of a tenant, the memory that is furthest behind.
fn furthest_behind(
    c: &Connection,
    tenant: i64,
    except: &[(i64, i64)],
) -> engine::Result<Option<Place>> {
    let (mut at, mut found) = (i64::MIN, None::<Place>);
    while let Some(place) = next_place(c, tenant, at)? {
        at = place.no.scope;
        let is_further = found.as_ref().is_none_or(|found| place.after < found.after);
        if place.is_behind && is_further && !except.contains(&(tenant, place.no.scope)) {
            found = Some(place);
        }
    }
    Ok(found)
}

pub(super) fn waiting(
    c: &Connection,
    s: &Shared,
    after: Option<&Tenant>,
    except: &[Scope],
    limit: usize,
) -> Result<Vec<Scope>> {
    let mut skipped = Vec::with_capacity(except.len());
    for scope in except {
        skipped.extend(rows::scope_no(c, s, scope)?.map(|no| (no.tenant, no.scope)));
    }
    let mut tenant = match after {
        Some(after) => rows::tenant_no(c, s, after)?.unwrap_or(i64::MIN),
        None => i64::MIN,
    };
    let next_tenant = |tenant: i64| {
        c.prepare_cached(
            "SELECT tenant FROM commitments INDEXED BY commitments_waiting
             WHERE state = 0 AND due_at IS NULL AND tenant > ?1 ORDER BY tenant LIMIT 1",
        )?
        .query_row([tenant], |row| row.get(0))
        .optional()
    };
    let mut found = Vec::new();
    while found.len() < limit {
        let Some(next) = next_tenant(tenant).map_err(|e| s.failed(e))? else { break };
        tenant = next;
        if let Some(place) = furthest_behind(c, tenant, &skipped).map_err(|e| s.failed(e))? {
            found.push(rows::scope_of(c, s, place.no.tenant, place.no.scope)?);
        }
    }
    Ok(found)
}

pub(super) fn watch(c: &Connection, s: &Shared, scope: &Scope) -> Result<Watch> {
    let through = log::head(c, s, scope.tenant())?;
    let Some(no) = rows::scope_no(c, s, scope)? else {
        return Ok(Watch { waiting: Vec::new(), after: through, through });
    };
    let which = "INDEXED BY commitments_waiting
         WHERE k.state = 0 AND k.due_at IS NULL AND k.tenant = ?1 AND k.scope = ?2
         ORDER BY k.position";
    let waiting = find_sound(c, s, which, [no.tenant, no.scope].map(Value::from), usize::MAX)?;
    let looked: i64 = c
        .prepare_cached("SELECT looked_through FROM scopes WHERE tenant = ?1 AND scope = ?2")
        .and_then(|mut q| q.query_row([no.tenant, no.scope], |row| row.get(0)))
        .map_err(|e| s.failed(e))?;
    let after = waiting.first().map_or(through, |first| first.made.max(Position(looked as u64)));
    Ok(Watch { waiting, after, through })
}

pub(super) fn look_through(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    look: &Look,
) -> Result<Vec<Fired>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let mut fired = Vec::new();
    for Fulfilled { commitment, because } in &look.fulfilled {
        fired.extend(fire(c, s, scope.tenant(), commitment, Some(because), look.now)?);
    }
    c.prepare_cached(
        "UPDATE scopes SET looked_through = ?3
         WHERE tenant = ?1 AND scope = ?2 AND looked_through < ?3",
    )
    .and_then(|mut q| q.execute([no.tenant, no.scope, rows::number(look.through.0)]))
    .map_err(|e| s.failed(e))?;
    Ok(fired)
}

// Settling

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
) -> engine::Result<()> {
    c.prepare_cached(
        "UPDATE commitments SET state = ?3, settled_at = ?4, tag = NULL, mentions = NULL
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
    let fire = move || {
        if !is_there(c, no, &record.entry, now)? {
            settle(c, no, id, CommitmentState::Void, now)?;
            return Ok(None);
        }
        settle(c, no, id, CommitmentState::Fired, now)?;
        let payload = fired(&record, because);
        let position =
            log::record(c, no.tenant, Some(no.scope), "commitment.fired", &payload, now)?;
        Ok(Some(Fired { commitment: record.id, payload, position }))
    };
    fire().map_err(|e: engine::Error| s.failed(e))
}

/// Whether an intention is in force, or another entry stands for it.
fn is_there(c: &Connection, no: ScopeNo, entry: &str, now: Millis) -> engine::Result<bool> {
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

pub(super) fn purge(c: &Connection, s: &Shared, settled_by: Millis, limit: usize) -> Result<u64> {
    c.prepare_cached(
        "DELETE FROM commitments WHERE (tenant, id) IN
           (SELECT tenant, id FROM commitments INDEXED BY commitments_settled
            WHERE state != 0 AND settled_at <= ?1 ORDER BY settled_at, tenant, id LIMIT ?2)",
    )
    .and_then(|mut q| q.execute([settled_by.0, rows::number(limit as u64)]))
    .map(|count| count as u64)
    .map_err(|e| s.failed(e))
}

/// Voids what is pending of an intention that is being purged.
pub(super) fn void(c: &Connection, no: ScopeNo, entry: &str, now: Millis) -> engine::Result<()> {
    c.prepare_cached(
        "UPDATE commitments INDEXED BY commitments_by_entry
         SET state = ?4, settled_at = ?5, tag = NULL, mentions = NULL
         WHERE tenant = ?1 AND scope = ?2 AND entry = ?3 AND state = 0",
    )?
    .execute(params![
        no.tenant,
        no.scope,
        entry,
        state_number(CommitmentState::Void),
        now.0
    ])?;
    Ok(())
}

/// Deletes commitments of a memory whose intentions have gone from it.
pub(super) fn forget_erased(c: &Connection, no: ScopeNo) -> engine::Result<()> {
    c.execute(
        "DELETE FROM commitments WHERE tenant = ?1 AND scope = ?2 AND NOT EXISTS
           (SELECT 1 FROM entries e WHERE e.tenant = commitments.tenant
              AND e.scope = commitments.scope AND e.id = commitments.entry)",
        [no.tenant, no.scope],
    )?;
    Ok(())
}

/// Deletes commitments of a memory that a selector names themselves, whatever becomes of
/// their intentions: what they wait for is about somebody too.
pub(super) fn forget_named(c: &Connection, no: ScopeNo, selector: &Selector) -> engine::Result<()> {
    let (chosen, value) = match selector {
        Selector::Session(_) | Selector::Entry(_) => return Ok(()),
        Selector::Subject { tag, .. } => ("tag = ?3", Value::from(tag.as_str().to_owned())),
        Selector::Before(at) => ("created_at < ?3", Value::from(at.0)),
    };
    c.prepare_cached(&format!(
        "DELETE FROM commitments INDEXED BY commitments_by_entry
         WHERE tenant = ?1 AND scope = ?2 AND {chosen}"
    ))?
    .execute(params![no.tenant, no.scope, value])?;
    Ok(())
}

// Rewriting

/// Puts what commitments of a tenant wait for through a redactor; answers how many are
/// other than they were. One of which nobody can say what it waits for is void: it must
/// not keep the rest from being hidden, and without a condition anything would fulfil it.
#[expect(clippy::disallowed_methods, reason = "conditions come from our own rows")]
pub(super) fn rewrite(
    c: &Connection,
    tenant: i64,
    again: &Again<'_>,
    now: Millis,
) -> engine::Result<u64> {
    let text = |row: &Row<'_>, column| {
        row.get::<_, Option<String>>(column).map(|text| text.map(RedactedText::read_back))
    };
    let conditions: Vec<(String, Option<Condition>)> = c
        .prepare(
            "SELECT id, tag, mentions FROM commitments
             WHERE tenant = ?1 AND (tag IS NOT NULL OR mentions IS NOT NULL)",
        )?
        .query_map([tenant], |row| {
            let condition = text(row, 1)
                .and_then(|tag| Ok(Condition::Predicate { tag, mentions: text(row, 2)? }));
            Ok((row.get(0)?, condition.ok()))
        })?
        .collect::<engine::Result<_>>()?;
    let mut changed = 0;
    for (id, condition) in conditions {
        let Some(condition) = condition else {
            tracing::warn!(commitment = id, "a damaged commitment is made void");
            give_up(c, tenant, &id, now)?;
            changed += 1;
            continue;
        };
        let Some((tag, mentions)) = rewritten(again, &condition) else { continue };
        c.execute(
            "UPDATE commitments SET tag = ?3, mentions = ?4 WHERE tenant = ?1 AND id = ?2",
            params![
                tenant,
                id,
                tag.as_ref().map(RedactedText::as_str),
                mentions.as_ref().map(RedactedText::as_str)
            ],
        )?;
        changed += 1;
    }
    Ok(changed)
}

fn give_up(c: &Connection, tenant: i64, id: &str, now: Millis) -> engine::Result<()> {
    c.execute(
        "UPDATE commitments SET tag = NULL, mentions = NULL, state = CASE WHEN state = 0 THEN ?3 ELSE state END,
                                settled_at = coalesce(settled_at, ?4)
         WHERE tenant = ?1 AND id = ?2",
        params![tenant, id, state_number(CommitmentState::Void), now.0],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::sql::Wall;
    use crate::sql::engine::Connection;
    use icecore_domain::ids::{Position, Principal};

    use crate::SqliteStore;
    use crate::contract::commitments::new_commitment;
    use crate::contract::fixtures::*;
    use crate::contract::runs::{new_run, next, write};
    use crate::store::*;

    #[tokio::test]
    async fn a_damaged_row_keeps_no_other_from_being_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), None).unwrap();
        let acme = tenant("acme");
        let mut ids = Vec::new();
        for (number, condition) in [
            Condition::Time(NOW),
            Condition::Time(NOW),
            Condition::Predicate { tag: Some(text("t")), mentions: Some(text("w")) },
            Condition::Predicate { tag: Some(text("t")), mentions: Some(text("w")) },
        ]
        .into_iter()
        .enumerate()
        {
            let intention = Intention::New(write("notes", &format!("e{number}")).entry);
            let new = new_commitment(intention, condition);
            ids.push(store.put_commitment(&scope(), new).await.unwrap().id);
        }
        let damaged = "UPDATE commitments SET entry = CAST(x'ff' AS TEXT)
             WHERE entry IN ('e0', 'e2')";
        let act = move |c: &Connection, s: &super::Shared| {
            c.execute(damaged, []).map_err(|e| s.failed(e))
        };
        assert_eq!(store.write(Wall::Everyone, act).await.unwrap(), 2);
        store.put_entry(&scope(), write("notes", "new").entry).await.unwrap();
        let found = |found: Vec<CommitmentRecord>| {
            found.into_iter().map(|one| one.entry).collect::<Vec<_>>().join(" ")
        };
        let query = CommitmentQuery::newest(2);
        assert_eq!(found(store.commitments(&acme, &query).await.unwrap()), "e3 e1");
        assert_eq!(found(store.due_commitments(NOW, 1).await.unwrap()), "e1");
        assert_eq!(store.waiting_memories(None, &[], 9).await.unwrap(), [scope()]);
        let watch = store.watch(&scope()).await.unwrap();
        assert_eq!(found(watch.waiting), "e3");
        let fulfilled = vec![Fulfilled { commitment: ids[3].clone(), because: "new".to_owned() }];
        let look = Look { through: watch.through, fulfilled, now: NOW };
        assert_eq!(store.look_through(&scope(), &look).await.unwrap().len(), 1);
        assert_eq!(store.waiting_memories(None, &[], 9).await.unwrap(), []);
        assert!(store.commitment(&acme, &ids[0]).await.is_err(), "asked for by name, it is told");
    }

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
