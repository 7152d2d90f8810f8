//! Intentions that wait for their condition.

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use serde_json::{Value as Json, json};

use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Owned as Value, Row, params, params_from_iter};
use crate::entries::NewEntry;
use crate::error::{Result, StoreError};
use crate::outcomes::{self, Claim, Effect};
use crate::reredact::Again;
use crate::store::Store;
use crate::{engine, entries, log, scopes, secrets};

/// An intention to keep until its condition holds.
#[derive(Debug, Clone)]
pub struct NewCommitment {
    /// The intention: a new entry, or one that is there.
    pub intention: Intention,
    /// When it fires.
    pub condition: Condition,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which its text was redacted.
    pub secrets_seen: u64,
    /// So many may be pending in a memory.
    pub most_pending: u64,
    /// And so many in all memories of a tenant.
    pub most_pending_tenant: u64,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim>,
}

/// Where an intention is written.
#[derive(Debug, Clone)]
pub enum Intention {
    /// In an entry that is put in the same step. Its claim is not looked at.
    New(NewEntry),
    /// In an entry in force, by id.
    Entry(String),
}

/// When a commitment fires. It fires once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// At a moment.
    Time(Millis),
    /// When an entry is put, later, of which all that is asked for holds.
    Predicate {
        /// It has this tag.
        tag: Option<RedactedText>,
        /// It says all these words.
        mentions: Option<RedactedText>,
    },
}

impl Condition {
    /// The word for its kind.
    pub fn as_str(&self) -> &'static str {
        match self {
            Condition::Time(_) => "time",
            Condition::Predicate { .. } => "predicate",
        }
    }
}

/// How a commitment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitmentState {
    /// It waits.
    Pending,
    /// It fired.
    Fired,
    /// It was called off.
    Cancelled,
    /// Its intention was not there any more when it would have fired.
    Void,
}

impl CommitmentState {
    /// All of them.
    pub const ALL: [CommitmentState; 4] = [
        CommitmentState::Pending,
        CommitmentState::Fired,
        CommitmentState::Cancelled,
        CommitmentState::Void,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            CommitmentState::Pending => "pending",
            CommitmentState::Fired => "fired",
            CommitmentState::Cancelled => "cancelled",
            CommitmentState::Void => "void",
        }
    }
}

/// A commitment as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitmentRecord {
    /// Its id, which nothing else in the tenant has.
    pub id: String,
    /// Of which memory.
    pub scope: Scope,
    /// The entry that is the intention.
    pub entry: String,
    /// When it fires. A predicate that is settled tells nothing of what it was.
    pub condition: Condition,
    /// How it stands.
    pub state: CommitmentState,
    /// When it was made.
    pub created_at: Millis,
    /// When it fired, was called off or found void.
    pub settled_at: Option<Millis>,
    /// Where in the log it was made. Entries that begin later may fulfil it.
    pub made: Position,
}

impl Effect for CommitmentRecord {
    fn ids(&self) -> Json {
        json!({ "id": self.id })
    }
}

/// Which commitments of a tenant are listed, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitmentQuery {
    /// Those of this memory.
    pub memory: Option<String>,
    /// Those that stand so.
    pub state: Option<CommitmentState>,
    /// Those made before this one, by its id; none, if there is no such.
    pub before: Option<String>,
    /// So many at most.
    pub limit: usize,
}

impl CommitmentQuery {
    /// The newest of a tenant.
    pub fn newest(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }
}

/// What a memory's commitments wait for, and which entries are to be compared with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Those that are pending and wait for an entry, as they were made.
    pub waiting: Vec<CommitmentRecord>,
    /// Entries that began after this,
    pub after: Position,
    /// and no later than this. What is made from now on is made later.
    pub through: Position,
}

/// What came of comparing entries with what a memory's commitments wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// No entry up to here fulfils any other than these.
    pub through: Position,
    /// What is fulfilled.
    pub fulfilled: Vec<Fulfilled>,
    /// Now.
    pub now: Millis,
}

/// A commitment that an entry fulfils.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fulfilled {
    /// The commitment's id.
    pub commitment: String,
    /// The entry's.
    pub because: String,
}

/// What came of firing one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    /// The commitment's id.
    pub commitment: String,
    /// The payload of `commitment.fired`.
    pub payload: String,
    /// Where in the log.
    pub position: Position,
}

/// The id of a commitment. As with an entry's, it tells nothing, and follows from where
/// the commitment was made.
pub(crate) fn commitment_id(key: &IdentityKey, made: Position) -> String {
    let hash = key.hash_name("commitment", &made.to_string());
    format!("c-{}", hex::encode(&hash[..10]))
}

/// What is kept of a condition once it is settled: its words are of no use any more.
pub(crate) fn settled(condition: &Condition) -> Condition {
    match condition {
        Condition::Time(at) => Condition::Time(*at),
        Condition::Predicate { .. } => Condition::Predicate { tag: None, mentions: None },
    }
}

/// The payload of `commitment.made`.
pub(crate) fn made(record: &CommitmentRecord) -> String {
    let payload = serde_json::json!({
        "memoryRef": record.scope.memory(),
        "commitmentId": record.id,
        "memoryId": record.entry,
        "condition": record.condition.as_str(),
    });
    payload.to_string()
}

/// The payload of `commitment.fired`.
pub(crate) fn fired(record: &CommitmentRecord, because: Option<&str>) -> String {
    let mut payload = serde_json::json!({
        "commitmentId": record.id,
        "memoryRef": record.scope.memory(),
        "condition": record.condition.as_str(),
        "memoryId": record.entry,
    });
    if let Some(entry) = because {
        payload["triggerId"] = entry.into();
    }
    payload.to_string()
}

/// The payload of `commitment.cancelled`.
pub(crate) fn cancelled(record: &CommitmentRecord) -> String {
    let payload = serde_json::json!({
        "memoryRef": record.scope.memory(),
        "commitmentId": record.id,
        "memoryId": record.entry,
    });
    payload.to_string()
}

/// The tag and the words that a commitment waits for without what a redactor would
/// hide; none if they are so already.
pub(crate) fn rewritten(
    again: &Again<'_>,
    condition: &Condition,
) -> Option<(Option<RedactedText>, Option<RedactedText>)> {
    let Condition::Predicate { tag, mentions } = condition else { return None };
    let clean = |text: &Option<RedactedText>| {
        let text = text.as_ref()?;
        Some(again.text(text.as_str()).map_or_else(|| text.clone(), |(clean, _)| clean))
    };
    let (new_tag, new_mentions) = (clean(tag), clean(mentions));
    ((&new_tag, &new_mentions) != (tag, mentions)).then_some((new_tag, new_mentions))
}

pub(crate) fn put(
    tx: &Tx<'_>,
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
    secrets::refuse_changed(tx, scope.tenant(), secrets_seen)?;
    if let Some(tenant) = scopes::tenant_no(tx, scope.tenant())? {
        outcomes::refuse_taken(tx, tenant, claim.as_ref(), now)?;
    }
    refuse_crowd(tx, scope, most_pending, most_pending_tenant)?;
    // Before the tenant is made, if it is new: its first entry may make it.
    let entry = intended(tx, scope, intention, now)?;
    let no = scopes::ensure_scope(tx, scope)?;
    let position = log::next(tx, scope.tenant())?;
    let (_, key) = scopes::ensure_tenant(tx, scope.tenant())?;
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
    insert(tx, no, &record)?;
    outcomes::put_claimed(tx, no.tenant, claim.as_ref(), &record, now)?;
    Ok(record)
}

fn refuse_crowd(tx: &Tx<'_>, scope: &Scope, most: u64, most_of_tenant: u64) -> Result<()> {
    let Some(tenant) = scopes::tenant_no(tx, scope.tenant())? else {
        // Who is not there has none, and may be allowed none.
        return match (most, most_of_tenant) {
            (0, _) => Err(StoreError::TooManyCommitments { most }),
            (_, 0) => Err(StoreError::TooManyTenantCommitments { most: most_of_tenant }),
            _ => Ok(()),
        };
    };
    // Counted no further than it matters: whoever writes waits meanwhile.
    let pending = |which: &str, numbers: &[i64], most: u64| {
        tx.prepare_cached(&format!(
            "SELECT count(*) FROM (SELECT 1 FROM commitments INDEXED BY commitments_pending
               WHERE state = 0 AND {which} LIMIT {}) k",
            engine::number(most)
        ))
        .and_then(|mut q| q.query_row(params_from_iter(numbers), |row| row.get::<_, i64>(0)))
    };
    let mine = match scopes::scope_no(tx, scope)? {
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
fn intended(tx: &Tx<'_>, scope: &Scope, intention: Intention, now: Millis) -> Result<String> {
    match intention {
        Intention::New(entry) => {
            let entry = NewEntry { claim: None, ..entry };
            entries::put(tx, scope, entry).map(|entry| entry.id)
        }
        Intention::Entry(id) => {
            let found = entries::get(tx, scope, &id, None, now)?;
            match found.filter(|entry| entry.successor.is_none()) {
                Some(entry) => Ok(entry.id),
                None => Err(StoreError::NoIntention { id }),
            }
        }
    }
}

fn insert(tx: &Tx<'_>, no: ScopeNo, record: &CommitmentRecord) -> Result<()> {
    let (due_at, tag, mentions) = match &record.condition {
        Condition::Time(at) => (Some(at.0), None, None),
        Condition::Predicate { tag, mentions } => (None, tag.as_ref(), mentions.as_ref()),
    };
    let now = record.created_at;
    log::record(tx, no.tenant, Some(no.scope), "commitment.made", &made(record), now)?;
    tx.prepare_cached(
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
        engine::number(record.made.0),
    ])?;
    Ok(())
}

// Reading

const COLUMNS: &str = "k.tenant, k.scope, k.id, k.entry, k.state, k.created_at, k.settled_at,
    k.due_at, k.tag, k.mentions, k.position";

/// Commitments as `k`, by what comes after the table's name, in turn to `take`, which
/// says whether to go on. What is not valid comes as an error.
fn each(
    tx: &Tx<'_>,
    which: &str,
    values: impl IntoIterator<Item = Value>,
    mut take: impl FnMut(Result<CommitmentRecord>) -> Result<bool>,
) -> Result<()> {
    let mut query = tx.prepare_cached(&format!("SELECT {COLUMNS} FROM commitments k {which}"))?;
    let mut found = query.query(params_from_iter(values))?;
    let invalid = || tx.damaged("the row of a commitment is not valid");
    while let Some(row) = found.next()? {
        let record = read(&row).map_err(|_| invalid()).and_then(|(tenant, scope, read)| {
            let scope = scopes::scope_of(tx, tenant, scope)?;
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
    tx: &Tx<'_>,
    which: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<CommitmentRecord>> {
    let mut found = Vec::new();
    each(tx, which, values, |record| {
        found.push(record?);
        Ok(true)
    })?;
    Ok(found)
}

/// So many that are valid. One damaged row must not keep the others from being read,
/// nor take their place.
fn find_sound(
    tx: &Tx<'_>,
    which: &str,
    values: impl IntoIterator<Item = Value>,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    each(tx, which, values, |record| {
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
fn read(row: &Row<'_>) -> Result<(i64, i64, Read)> {
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

pub(crate) fn get(tx: &Tx<'_>, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(None) };
    let key = [Value::from(no), Value::from(id.to_owned())];
    Ok(find(tx, "WHERE k.tenant = ?1 AND k.id = ?2", key)?.pop())
}

pub(crate) fn list(
    tx: &Tx<'_>,
    tenant: &Tenant,
    query: CommitmentQuery,
) -> Result<Vec<CommitmentRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let which = "INDEXED BY commitments_made WHERE k.tenant = ?1
           AND (?2 IS NULL OR k.scope =
             (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))
           AND (?3 IS NULL OR k.state = ?3)
           AND k.position < CASE WHEN ?4 IS NULL THEN 9223372036854775807 ELSE
             (SELECT position FROM commitments WHERE tenant = ?1 AND id = ?4) END
         ORDER BY k.position DESC";
    let CommitmentQuery { memory, state, before, limit } = query;
    let values = [no.into(), memory.into(), state.map(state_number).into(), before.into()];
    find_sound(tx, which, values, limit)
}

pub(crate) fn due(tx: &Tx<'_>, now: Millis, limit: usize) -> Result<Vec<CommitmentRecord>> {
    let which = "INDEXED BY commitments_due
         WHERE k.state = 0 AND k.due_at IS NOT NULL AND k.due_at <= ?1
         ORDER BY row_number() OVER (PARTITION BY k.tenant ORDER BY k.due_at, k.id),
           k.due_at, k.tenant";
    find_sound(tx, which, [Value::from(now.0)], limit)
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
fn next_place(tx: &Tx<'_>, tenant: i64, after: i64) -> Result<Option<Place>> {
    tx.prepare_cached(
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
fn furthest_behind(tx: &Tx<'_>, tenant: i64, except: &[(i64, i64)]) -> Result<Option<Place>> {
    let (mut at, mut found) = (i64::MIN, None::<Place>);
    while let Some(place) = next_place(tx, tenant, at)? {
        at = place.no.scope;
        let is_further = found.as_ref().is_none_or(|found| place.after < found.after);
        if place.is_behind && is_further && !except.contains(&(tenant, place.no.scope)) {
            found = Some(place);
        }
    }
    Ok(found)
}

pub(crate) fn waiting(
    tx: &Tx<'_>,
    after: Option<&Tenant>,
    except: &[Scope],
    limit: usize,
) -> Result<Vec<Scope>> {
    let mut skipped = Vec::with_capacity(except.len());
    for scope in except {
        skipped.extend(scopes::scope_no(tx, scope)?.map(|no| (no.tenant, no.scope)));
    }
    let mut tenant = match after {
        Some(after) => scopes::tenant_no(tx, after)?.unwrap_or(i64::MIN),
        None => i64::MIN,
    };
    let next_tenant = |tenant: i64| {
        tx.prepare_cached(
            "SELECT tenant FROM commitments INDEXED BY commitments_waiting
             WHERE state = 0 AND due_at IS NULL AND tenant > ?1 ORDER BY tenant LIMIT 1",
        )?
        .query_row([tenant], |row| row.get(0))
        .optional()
    };
    let mut found = Vec::new();
    while found.len() < limit {
        let Some(next) = next_tenant(tenant)? else { break };
        tenant = next;
        if let Some(place) = furthest_behind(tx, tenant, &skipped)? {
            found.push(scopes::scope_of(tx, place.no.tenant, place.no.scope)?);
        }
    }
    Ok(found)
}

pub(crate) fn watch(tx: &Tx<'_>, scope: &Scope) -> Result<Watch> {
    let through = log::head(tx, scope.tenant())?;
    let Some(no) = scopes::scope_no(tx, scope)? else {
        return Ok(Watch { waiting: Vec::new(), after: through, through });
    };
    let which = "INDEXED BY commitments_waiting
         WHERE k.state = 0 AND k.due_at IS NULL AND k.tenant = ?1 AND k.scope = ?2
         ORDER BY k.position";
    let waiting = find_sound(tx, which, [no.tenant, no.scope].map(Value::from), usize::MAX)?;
    let looked: i64 = tx
        .prepare_cached("SELECT looked_through FROM scopes WHERE tenant = ?1 AND scope = ?2")
        .and_then(|mut q| q.query_row([no.tenant, no.scope], |row| row.get(0)))?;
    let after = waiting.first().map_or(through, |first| first.made.max(Position(looked as u64)));
    Ok(Watch { waiting, after, through })
}

pub(crate) fn look_through(tx: &Tx<'_>, scope: &Scope, look: &Look) -> Result<Vec<Fired>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let mut fired = Vec::new();
    for Fulfilled { commitment, because } in &look.fulfilled {
        fired.extend(fire(tx, scope.tenant(), commitment, Some(because), look.now)?);
    }
    tx.prepare_cached(
        "UPDATE scopes SET looked_through = ?3
         WHERE tenant = ?1 AND scope = ?2 AND looked_through < ?3",
    )
    .and_then(|mut q| q.execute([no.tenant, no.scope, engine::number(look.through.0)]))?;
    Ok(fired)
}

// Settling

/// A commitment that is pending, with its scope's numbers.
fn pending(tx: &Tx<'_>, tenant: &Tenant, id: &str) -> Result<Option<(ScopeNo, CommitmentRecord)>> {
    let found = get(tx, tenant, id)?;
    let Some(record) = found.filter(|found| found.state == CommitmentState::Pending) else {
        return Ok(None);
    };
    Ok(scopes::scope_no(tx, &record.scope)?.map(|no| (no, record)))
}

fn settle(tx: &Tx<'_>, no: ScopeNo, id: &str, state: CommitmentState, now: Millis) -> Result<()> {
    tx.prepare_cached(
        "UPDATE commitments SET state = ?3, settled_at = ?4, tag = NULL, mentions = NULL
         WHERE tenant = ?1 AND id = ?2 AND state = 0",
    )?
    .execute(params![no.tenant, id, state_number(state), now.0])?;
    Ok(())
}

pub(crate) fn fire(
    tx: &Tx<'_>,
    tenant: &Tenant,
    id: &str,
    because: Option<&str>,
    now: Millis,
) -> Result<Option<Fired>> {
    let Some((no, record)) = pending(tx, tenant, id)? else { return Ok(None) };
    let fire = move || -> Result<_> {
        if !is_there(tx, no, &record.entry, now)? {
            settle(tx, no, id, CommitmentState::Void, now)?;
            return Ok(None);
        }
        settle(tx, no, id, CommitmentState::Fired, now)?;
        let payload = fired(&record, because);
        let position =
            log::record(tx, no.tenant, Some(no.scope), "commitment.fired", &payload, now)?;
        Ok(Some(Fired { commitment: record.id, payload, position }))
    };
    fire()
}

/// Whether an intention is in force, or another entry stands for it.
fn is_there(tx: &Tx<'_>, no: ScopeNo, entry: &str, now: Millis) -> Result<bool> {
    tx.prepare_cached(
        "SELECT 1 FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3
           AND (expires_at IS NULL OR expires_at > ?4)
           AND (ended IS NULL OR ended_at IS NULL AND successor IS NOT NULL)",
    )?
    .exists(params![no.tenant, no.scope, entry, now.0])
}

pub(crate) fn cancel(tx: &Tx<'_>, tenant: &Tenant, id: &str, now: Millis) -> Result<bool> {
    let Some((no, record)) = pending(tx, tenant, id)? else { return Ok(false) };
    settle(tx, no, id, CommitmentState::Cancelled, now)
        .and_then(|()| {
            let payload = cancelled(&record);
            log::record(tx, no.tenant, Some(no.scope), "commitment.cancelled", &payload, now)
        })
        .map(|_| true)
}

pub(crate) fn purge(tx: &Tx<'_>, settled_by: Millis, limit: usize) -> Result<u64> {
    tx.prepare_cached(
        "DELETE FROM commitments WHERE (tenant, id) IN
           (SELECT tenant, id FROM commitments INDEXED BY commitments_settled
            WHERE state != 0 AND settled_at <= ?1 ORDER BY settled_at, tenant, id LIMIT ?2)",
    )
    .and_then(|mut q| q.execute([settled_by.0, engine::number(limit as u64)]))
    .map(|count| count as u64)
}

/// Voids what is pending of an intention that is being purged.
pub(crate) fn void(tx: &Tx<'_>, no: ScopeNo, entry: &str, now: Millis) -> Result<()> {
    tx.prepare_cached(
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
pub(crate) fn forget_erased(tx: &Tx<'_>, no: ScopeNo) -> Result<()> {
    tx.execute(
        "DELETE FROM commitments WHERE tenant = ?1 AND scope = ?2 AND NOT EXISTS
           (SELECT 1 FROM entries e WHERE e.tenant = commitments.tenant
              AND e.scope = commitments.scope AND e.id = commitments.entry)",
        [no.tenant, no.scope],
    )?;
    Ok(())
}

// Rewriting

/// Puts what commitments of a tenant wait for through a redactor; answers how many are
/// other than they were. One of which nobody can say what it waits for is void: it must
/// not keep the rest from being hidden, and without a condition anything would fulfil it.
#[expect(clippy::disallowed_methods, reason = "conditions come from our own rows")]
pub(crate) fn rewrite(tx: &Tx<'_>, tenant: i64, again: &Again<'_>, now: Millis) -> Result<u64> {
    let text = |row: &Row<'_>, column| {
        row.get::<_, Option<String>>(column).map(|text| text.map(RedactedText::read_back))
    };
    let conditions: Vec<(String, Option<Condition>)> = tx
        .prepare(
            "SELECT id, tag, mentions FROM commitments
             WHERE tenant = ?1 AND (tag IS NOT NULL OR mentions IS NOT NULL)",
        )?
        .query_map([tenant], |row| {
            let condition = text(row, 1)
                .and_then(|tag| Ok(Condition::Predicate { tag, mentions: text(row, 2)? }));
            Ok((row.get(0)?, condition.ok()))
        })?
        .collect::<Result<_>>()?;
    let mut changed = 0;
    for (id, condition) in conditions {
        let Some(condition) = condition else {
            tracing::warn!(commitment = id, "a damaged commitment is made void");
            give_up(tx, tenant, &id, now)?;
            changed += 1;
            continue;
        };
        let Some((tag, mentions)) = rewritten(again, &condition) else { continue };
        tx.execute(
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

fn give_up(tx: &Tx<'_>, tenant: i64, id: &str, now: Millis) -> Result<()> {
    tx.execute(
        "UPDATE commitments SET tag = NULL, mentions = NULL, state = CASE WHEN state = 0 THEN ?3 ELSE state END,
                                settled_at = coalesce(settled_at, ?4)
         WHERE tenant = ?1 AND id = ?2",
        params![tenant, id, state_number(CommitmentState::Void), now.0],
    )?;
    Ok(())
}

impl Store {
    /// Keeps a commitment and logs `commitment.made`, its intention put in the same
    /// step where that is a new entry. An intention that is not in force is
    /// [`StoreError::NoIntention`], one too many [`StoreError::TooManyCommitments`] or
    /// [`StoreError::TooManyTenantCommitments`].
    /// Its claim is kept in the same step, and one that is taken is
    /// [`StoreError::ClaimTaken`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    pub async fn put_commitment(
        &self,
        scope: &Scope,
        commitment: NewCommitment,
    ) -> Result<CommitmentRecord> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_commitment", move |tx| {
            put(tx, &scope, commitment.clone())
        })
        .await
    }

    /// A commitment of a tenant by id. With its intention's erasure it is gone; with its
    /// intention's purge it is void.
    pub async fn commitment(&self, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Isolation::from(&tenant), "commitment", move |tx| get(tx, &tenant, &id)).await
    }

    /// Commitments of a tenant, newest first. Rows that are damaged are passed over,
    /// here and wherever several are read.
    pub async fn commitments(
        &self,
        tenant: &Tenant,
        query: &CommitmentQuery,
    ) -> Result<Vec<CommitmentRecord>> {
        let (tenant, query) = (tenant.clone(), query.clone());
        self.read(Isolation::from(&tenant), "commitments", move |tx| {
            list(tx, &tenant, query.clone())
        })
        .await
    }

    /// Commitments, of any tenant, that are pending and whose moment is `now` or past:
    /// the first of each tenant by moment, then their second.
    pub async fn due_commitments(
        &self,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<CommitmentRecord>> {
        self.read(Isolation::Global, "due_commitments", move |tx| due(tx, now, limit)).await
    }

    /// Memories in which an entry has begun that was not compared with what pending
    /// commitments of theirs wait for. Of each tenant it is one, the one furthest
    /// behind that is not among `except`; the tenants as they came, those after
    /// `after` alone.
    pub async fn waiting_memories(
        &self,
        after: Option<&Tenant>,
        except: &[Scope],
        limit: usize,
    ) -> Result<Vec<Scope>> {
        let (after, except) = (after.cloned(), except.to_vec());
        self.read(Isolation::Global, "waiting_memories", move |tx| {
            waiting(tx, after.as_ref(), &except, limit)
        })
        .await
    }

    /// What a memory's commitments wait for, as of one moment.
    pub async fn watch(&self, scope: &Scope) -> Result<Watch> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "watch", move |tx| watch(tx, &scope)).await
    }

    /// Fires what is fulfilled, as [`Store::fire_commitment`] does, and notes how far
    /// entries of the memory were looked at, in one step. Answers what fired.
    pub async fn look_through(&self, scope: &Scope, look: &Look) -> Result<Vec<Fired>> {
        let (scope, look) = (scope.clone(), look.clone());
        self.write(Isolation::from(&scope), "look_through", move |tx| {
            look_through(tx, &scope, &look)
        })
        .await
    }

    /// Fires a commitment that is pending and logs `commitment.fired` with ids alone;
    /// `because` is the entry that fulfilled it. Nothing is answered, and nothing
    /// logged, when it is not pending; or when its intention is not there any more
    /// (ended or expired, not merely stood for by another): then it is void.
    pub async fn fire_commitment(
        &self,
        tenant: &Tenant,
        id: &str,
        because: Option<&str>,
        now: Millis,
    ) -> Result<Option<Fired>> {
        let (tenant, id, because) = (tenant.clone(), id.to_owned(), because.map(str::to_owned));
        self.write(Isolation::from(&tenant), "fire_commitment", move |tx| {
            fire(tx, &tenant, &id, because.as_deref(), now)
        })
        .await
    }

    /// Calls off a commitment that is pending and logs `commitment.cancelled`; false
    /// if there is none.
    pub async fn cancel_commitment(&self, tenant: &Tenant, id: &str, now: Millis) -> Result<bool> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Isolation::from(&tenant), "cancel_commitment", move |tx| {
            cancel(tx, &tenant, &id, now)
        })
        .await
    }

    /// Deletes commitments, of any tenant, that were settled at or before a moment;
    /// answers how many.
    pub async fn purge_commitments(&self, settled_by: Millis, limit: usize) -> Result<u64> {
        self.write(Isolation::Global, "purge_commitments", move |tx| purge(tx, settled_by, limit))
            .await
    }
}

#[cfg(test)]
mod tests {

    use crate::engine::tx::Isolation;
    use icecore_domain::ids::{Position, Principal};

    use super::Tx;
    use crate::contract::commitments::new_commitment;
    use crate::contract::fixtures::*;
    use crate::contract::runs::{new_run, next, write};
    use crate::store::Store;
    use crate::*;

    #[tokio::test]
    async fn a_damaged_row_keeps_no_other_from_being_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
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
        let act = move |tx: &Tx<'_>| tx.execute(damaged, []);
        assert_eq!(store.write(Isolation::Global, "test", act).await.unwrap(), 2);
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
        let stores = [(); 2].map(|()| Store::open(dir.path(), None).unwrap());
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
