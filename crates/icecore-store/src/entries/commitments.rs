//! Commitments: intentions, written in entries, that fire when a condition holds.

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use serde_json::{Value as Json, json};

use crate::engine::prelude::*;
use crate::entries::NewEntry;
use crate::outcomes::{self, Claim, Effect};
use crate::reredact::Reredactor;
use crate::store::Store;
use crate::{entries, log, scopes, secrets};

#[derive(Debug, Clone)]
pub struct NewCommitment {
    pub intention: Intention,
    pub condition: Condition,
    pub now: Millis,
    pub secrets_seen: u64,
    pub most_pending: u64,
    pub most_pending_tenant: u64,
    pub claim: Option<Claim>,
}

#[derive(Debug, Clone)]
pub enum Intention {
    /// In an entry that is put in the same step. Its own claim is ignored.
    New(NewEntry),
    Entry(String),
}

/// When a commitment fires. It fires once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Time(Millis),
    /// When a later entry is put that matches all of these.
    Predicate {
        tag: Option<RedactedText>,
        /// The entry contains all these words.
        mentions: Option<RedactedText>,
    },
}

impl Condition {
    pub fn as_str(&self) -> &'static str {
        match self {
            Condition::Time(_) => "time",
            Condition::Predicate { .. } => "predicate",
        }
    }
}

/// A row holds its place in [`CommitmentState::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitmentState {
    Pending,
    Fired,
    Cancelled,
    /// Its intention no longer existed when it would have fired.
    Void,
}

impl CommitmentState {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Fired, Self::Cancelled, Self::Void];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Fired => "fired",
            Self::Cancelled => "cancelled",
            Self::Void => "void",
        }
    }
}

impl FromSql for CommitmentState {
    fn from_value(value: Value<'_>) -> Result<Self> {
        let state = Self::ALL.get(usize::from_value(value)?);
        state.copied().ok_or_else(|| Error::broken(0, "not a state of a commitment"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitmentRecord {
    /// Unique in the tenant.
    pub id: String,
    pub scope: Scope,
    pub entry: String,
    /// The tag and words of a predicate are deleted once it is settled.
    pub condition: Condition,
    pub state: CommitmentState,
    pub created_at: Millis,
    pub settled_at: Option<Millis>,
    /// Where in the log it was made. Entries that begin later may fulfil it.
    pub made: Position,
}

impl Effect for CommitmentRecord {
    fn ids(&self) -> Json {
        json!({ "id": self.id })
    }
}

/// Which commitments of a tenant to list, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitmentQuery {
    pub memory: Option<String>,
    pub state: Option<CommitmentState>,
    /// Only those made before the commitment with this id; none if it does not exist.
    pub before: Option<String>,
    pub limit: usize,
}

impl CommitmentQuery {
    pub fn newest(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Pending commitments that wait for an entry, in the order in which they were made.
    pub waiting: Vec<CommitmentRecord>,
    /// Entries to compare began after this, and no later than `through`.
    pub after: Position,
    pub through: Position,
}

/// The result of comparing entries with what a memory's commitments wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Entries up to here fulfil no commitments other than these.
    pub through: Position,
    pub fulfilled: Vec<Fulfilled>,
    pub now: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fulfilled {
    pub commitment: String,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    pub commitment: String,
    pub payload: String,
    pub position: Position,
}

impl Store {
    /// Stores a commitment and logs `commitment.made`, and puts its intention in the same
    /// step where that is a new entry. An intention that is not in force is
    /// [`StoreError::NoIntention`], one too many [`StoreError::TooManyCommitments`] or
    /// [`StoreError::TooManyTenantCommitments`]. A claim that is taken is
    /// [`StoreError::ClaimTaken`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    pub async fn put_commitment(
        &self,
        scope: &Scope,
        commitment: NewCommitment,
    ) -> Result<CommitmentRecord> {
        self.write(scope, "put_commitment", move |tx| put(tx, commitment.clone())).await
    }

    /// A commitment by id. Erasing its intention deletes it; purging its intention voids it.
    pub async fn commitment(&self, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
        let id = id.to_owned();
        self.read(tenant, "commitment", move |tx| get(tx, &id)).await
    }

    /// Commitments of a tenant, newest first. Wherever several are read, damaged are skipped.
    pub async fn commitments(
        &self,
        tenant: &Tenant,
        query: &CommitmentQuery,
    ) -> Result<Vec<CommitmentRecord>> {
        let query = query.clone();
        self.read(tenant, "commitments", move |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(Vec::new()) };
            let CommitmentQuery { memory, state, before, limit } = &query;
            let which = "INDEXED BY commitments_made WHERE k.tenant = ?1
                   AND (?2 IS NULL OR k.scope =
                     (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))
                   AND (?3 IS NULL OR k.state = ?3)
                   AND k.position < CASE WHEN ?4 IS NULL THEN 9223372036854775807 ELSE
                     (SELECT position FROM commitments WHERE tenant = ?1 AND id = ?4) END
                 ORDER BY k.position DESC";
            let state = state.map(|state| state as i64);
            find(tx, which, params![no, memory, state, before], *limit)
        })
        .await
    }

    /// Pending commitments, of any tenant, whose moment is `now` or past: the earliest of
    /// each tenant, then their second.
    pub async fn due_commitments(
        &self,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<CommitmentRecord>> {
        self.read(Isolation::Global, "due_commitments", move |tx| {
            let which = "INDEXED BY commitments_due
                 WHERE k.state = 0 AND k.due_at IS NOT NULL AND k.due_at <= ?1
                 ORDER BY row_number() OVER (PARTITION BY k.tenant ORDER BY k.due_at, k.id),
                   k.due_at, k.tenant";
            find(tx, which, [now], limit)
        })
        .await
    }

    /// Memories with entries that were not yet compared with what their pending commitments
    /// wait for: of each tenant after `after`, in the order in which tenants were made, the
    /// memory furthest behind that is not in `except`.
    pub async fn waiting_memories(
        &self,
        after: Option<&Tenant>,
        except: &[Scope],
        limit: usize,
    ) -> Result<Vec<Scope>> {
        let (after, except) = (after.cloned(), except.to_vec());
        self.read(Isolation::Global, "waiting_memories", move |tx| {
            let mut skipped = Vec::with_capacity(except.len());
            for scope in &except {
                skipped.extend(scopes::scope_no(tx, scope)?.map(|no| (no.tenant, no.scope)));
            }
            let mut tenant = match &after {
                Some(after) => scopes::tenant_no(tx, after)?.unwrap_or(i64::MIN),
                None => i64::MIN,
            };
            let mut found = Vec::new();
            while found.len() < limit {
                let next = tx.first(
                    "SELECT tenant FROM commitments INDEXED BY commitments_waiting
                     WHERE state = 0 AND due_at IS NULL AND tenant > ?1 ORDER BY tenant LIMIT 1",
                    [tenant],
                    column,
                )?;
                let Some(next) = next else { break };
                tenant = next;
                if let Some(scope) = furthest_behind(tx, tenant, &skipped)? {
                    found.push(scopes::scope_of(tx, tenant, scope)?);
                }
            }
            Ok(found)
        })
        .await
    }

    pub async fn watch(&self, scope: &Scope) -> Result<Watch> {
        self.read(scope, "watch", |tx| {
            let through = log::head(tx, tx.tenant()?)?;
            let Some(no) = tx.scope_no()? else {
                return Ok(Watch { waiting: Vec::new(), after: through, through });
            };
            let which = "INDEXED BY commitments_waiting
                 WHERE k.state = 0 AND k.due_at IS NULL AND k.tenant = ?1 AND k.scope = ?2
                 ORDER BY k.position";
            let waiting = find(tx, which, [no.tenant, no.scope], usize::MAX)?;
            let compared: Position = scopes::field(tx, no, "looked_through")?;
            let after = waiting.first().map_or(through, |first| first.made.max(compared));
            Ok(Watch { waiting, after, through })
        })
        .await
    }

    /// Fires what is fulfilled, as [`Store::fire_commitment`] does, and notes how far the
    /// memory's entries were compared, in one step. Returns what fired.
    pub async fn look_through(&self, scope: &Scope, look: &Look) -> Result<Vec<Fired>> {
        let look = look.clone();
        self.write(scope, "look_through", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let mut fired = Vec::new();
            for Fulfilled { commitment, because } in &look.fulfilled {
                fired.extend(fire(tx, commitment, Some(because), look.now)?);
            }
            tx.change(
                "UPDATE scopes SET looked_through = ?3
                 WHERE tenant = ?1 AND scope = ?2 AND looked_through < ?3",
                params![no.tenant, no.scope, look.through],
            )?;
            Ok(fired)
        })
        .await
    }

    /// Fires a pending commitment and logs `commitment.fired` with ids alone; `because` is
    /// the entry that fulfilled it. Returns `None`, and logs nothing, if it is not pending, or
    /// if its intention has ended or expired (not merely been replaced): then it becomes void.
    pub async fn fire_commitment(
        &self,
        tenant: &Tenant,
        id: &str,
        because: Option<&str>,
        now: Millis,
    ) -> Result<Option<Fired>> {
        let (id, because) = (id.to_owned(), because.map(str::to_owned));
        self.write(tenant, "fire_commitment", move |tx| fire(tx, &id, because.as_deref(), now))
            .await
    }

    /// Cancels a pending commitment and logs `commitment.cancelled`; false if there is none.
    pub async fn cancel_commitment(&self, tenant: &Tenant, id: &str, now: Millis) -> Result<bool> {
        let id = id.to_owned();
        self.write(tenant, "cancel_commitment", move |tx| {
            let Some((no, record)) = pending(tx, &id)? else { return Ok(false) };
            settle(tx, no, &id, CommitmentState::Cancelled, now)?;
            let payload = named(&record).to_string();
            log::record(tx, no.tenant, Some(no.scope), "commitment.cancelled", &payload, now)?;
            Ok(true)
        })
        .await
    }

    /// Deletes commitments, of any tenant, that were settled at or before a moment;
    /// returns how many.
    pub async fn purge_commitments(&self, settled_by: Millis, limit: usize) -> Result<u64> {
        let purge = "DELETE FROM commitments WHERE (tenant, id) IN
               (SELECT tenant, id FROM commitments INDEXED BY commitments_settled
                WHERE state != 0 AND settled_at <= ?1 ORDER BY settled_at, tenant, id LIMIT ?2)";
        self.sweep("purge_commitments", purge, settled_by, limit).await
    }
}

fn put(tx: &Tx<'_>, new: NewCommitment) -> Result<CommitmentRecord> {
    let NewCommitment { intention, condition, now, claim, .. } = new;
    let scope = tx.scope()?;
    secrets::refuse_changed(tx, scope.tenant(), new.secrets_seen)?;
    if let Some(tenant) = tx.tenant_no()? {
        outcomes::refuse_taken(tx, tenant, claim.as_ref(), now)?;
    }
    refuse_too_many(tx, new.most_pending, new.most_pending_tenant)?;
    // Before the tenant is made, if it is new: its first entry may make it.
    let entry = intended(tx, scope, intention, now)?;
    let no = tx.ensure_scope()?;
    let (id, made) = log::new_id(tx, scope.tenant(), "commitment")?;
    let record = CommitmentRecord {
        id,
        scope: scope.clone(),
        entry,
        condition,
        state: CommitmentState::Pending,
        created_at: now,
        settled_at: None,
        made,
    };
    insert(tx, no, &record)?;
    outcomes::put_claimed(tx, no.tenant, claim.as_ref(), &record, now)?;
    Ok(record)
}

fn refuse_too_many(tx: &Tx<'_>, most: u64, most_of_tenant: u64) -> Result<()> {
    // Counts no further than the limit, for other writers wait meanwhile.
    let pending = |which: &str, numbers: &[i64], most: u64| -> Result<u64> {
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM commitments INDEXED BY commitments_pending
               WHERE state = 0 AND {which} LIMIT {}) k",
            number(most)
        );
        tx.one(&sql, params_from_iter(numbers), column)
    };
    let of_memory = tx
        .scope_no()?
        .map_or(Ok(0), |no| pending("tenant = ?1 AND scope = ?2", &[no.tenant, no.scope], most))?;
    if of_memory >= most {
        return Err(StoreError::TooManyCommitments { most });
    }
    let of_tenant = tx.tenant_no()?;
    let of_tenant = of_tenant.map_or(Ok(0), |no| pending("tenant = ?1", &[no], most_of_tenant))?;
    if of_tenant >= most_of_tenant {
        return Err(StoreError::TooManyTenantCommitments { most: most_of_tenant });
    }
    Ok(())
}

/// The id of the entry that is the intention, which is put if it is new.
fn intended(tx: &Tx<'_>, scope: &Scope, intention: Intention, now: Millis) -> Result<String> {
    match intention {
        Intention::New(entry) => Ok(entries::put(tx, scope, NewEntry { claim: None, ..entry })?.id),
        Intention::Entry(id) => match entries::get(tx, scope, &id, None, now)? {
            Some(entry) if entry.successor.is_none() => Ok(entry.id),
            _ => Err(StoreError::NoIntention { id }),
        },
    }
}

fn insert(tx: &Tx<'_>, no: ScopeNo, record: &CommitmentRecord) -> Result<()> {
    let (due_at, tag, mentions) = match &record.condition {
        Condition::Time(at) => (Some(at), None, None),
        Condition::Predicate { tag, mentions } => (None, tag.as_ref(), mentions.as_ref()),
    };
    let mut payload = named(record);
    payload["condition"] = record.condition.as_str().into();
    let (kind, now) = ("commitment.made", record.created_at);
    log::record(tx, no.tenant, Some(no.scope), kind, &payload.to_string(), now)?;
    let row = fields! {
        tenant: no.tenant,
        scope: no.scope,
        id: record.id,
        entry: record.entry,
        state: CommitmentState::Pending as i64,
        created_at: now,
        due_at: due_at,
        tag: tag,
        mentions: mentions,
        position: record.made,
    };
    tx.insert("commitments", row)
}

fn named(record: &CommitmentRecord) -> Json {
    json!({
        "memoryRef": record.scope.memory(),
        "commitmentId": record.id,
        "memoryId": record.entry,
    })
}

/// Selects commitments `k`; `which` follows the table's name.
fn select(which: &str) -> String {
    format!(
        "SELECT k.id, (SELECT name FROM tenants t WHERE t.tenant = k.tenant),
                (SELECT memory FROM scopes s WHERE s.tenant = k.tenant AND s.scope = k.scope),
                k.entry, k.due_at, k.tag, k.mentions, k.state, k.created_at, k.settled_at,
                k.position
         FROM commitments k {which}"
    )
}

record! {
    CommitmentRecord { id, scope, entry, condition, state, created_at, settled_at, made }
}

impl FromColumns for Condition {
    fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self> {
        let (due_at, tag, mentions): (Option<Millis>, _, _) = columns.get()?;
        Ok(due_at.map_or(Condition::Predicate { tag, mentions }, Condition::Time))
    }
}

fn get(tx: &Tx<'_>, id: &str) -> Result<Option<CommitmentRecord>> {
    let Some(no) = tx.tenant_no()? else { return Ok(None) };
    tx.first(&select("WHERE k.tenant = ?1 AND k.id = ?2"), params![no, id], tuple)
}

/// Up to `limit` commitments. A damaged row must not keep the others from being read, nor
/// take their place.
fn find(
    tx: &Tx<'_>,
    which: &str,
    params: impl Params,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    let mut found = Vec::new();
    tx.visit(&select(which), params, |row| {
        if found.len() == limit {
            return Ok(false);
        }
        match tuple(row) {
            Ok(record) => found.push(record),
            Err(error) => tracing::warn!(error = %error, "a damaged commitment is skipped"),
        }
        Ok(true)
    })?;
    Ok(found)
}

/// The memory of a tenant whose entries are furthest behind with being compared.
fn furthest_behind(tx: &Tx<'_>, tenant: i64, except: &[(i64, i64)]) -> Result<Option<i64>> {
    // One after the other: a memory, up to where it was compared, and whether it is behind.
    let next = "SELECT k.scope, max(k.position, p.looked_through), EXISTS
             (SELECT 1 FROM entries e INDEXED BY entries_by_began
              WHERE e.tenant = k.tenant AND e.scope = k.scope
                AND e.began > max(k.position, p.looked_through))
         FROM commitments k INDEXED BY commitments_waiting
           CROSS JOIN scopes p ON p.tenant = k.tenant AND p.scope = k.scope
         WHERE k.state = 0 AND k.due_at IS NULL AND k.tenant = ?1 AND k.scope > ?2
         ORDER BY k.scope, k.position LIMIT 1";
    let mut furthest: Option<(i64, Position)> = None;
    let mut at = i64::MIN;
    while let Some((scope, compared, is_behind)) = tx.first(next, [tenant, at], tuple)? {
        at = scope;
        let is_further = furthest.is_none_or(|(_, other)| compared < other);
        if is_behind && is_further && !except.contains(&(tenant, scope)) {
            furthest = Some((scope, compared));
        }
    }
    Ok(furthest.map(|(scope, _)| scope))
}

fn pending(tx: &Tx<'_>, id: &str) -> Result<Option<(ScopeNo, CommitmentRecord)>> {
    match get(tx, id)? {
        Some(record) if record.state == CommitmentState::Pending => {
            Ok(scopes::scope_no(tx, &record.scope)?.map(|no| (no, record)))
        }
        _ => Ok(None),
    }
}

fn fire(tx: &Tx<'_>, id: &str, because: Option<&str>, now: Millis) -> Result<Option<Fired>> {
    let Some((no, record)) = pending(tx, id)? else { return Ok(None) };
    if !has_intention(tx, no, &record.entry, now)? {
        settle(tx, no, id, CommitmentState::Void, now)?;
        return Ok(None);
    }
    settle(tx, no, id, CommitmentState::Fired, now)?;
    let mut payload = json!({
        "commitmentId": record.id,
        "memoryRef": record.scope.memory(),
        "condition": record.condition.as_str(),
        "memoryId": record.entry,
    });
    if let Some(entry) = because {
        payload["triggerId"] = entry.into();
    }
    let payload = payload.to_string();
    let position = log::record(tx, no.tenant, Some(no.scope), "commitment.fired", &payload, now)?;
    Ok(Some(Fired { commitment: record.id, payload, position }))
}

/// Whether an intention is in force, or was replaced by another entry.
fn has_intention(tx: &Tx<'_>, no: ScopeNo, entry: &str, now: Millis) -> Result<bool> {
    tx.finds(
        "SELECT 1 FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3
           AND (expires_at IS NULL OR expires_at > ?4)
           AND (ended IS NULL OR ended_at IS NULL AND successor IS NOT NULL)",
        params![no.tenant, no.scope, entry, now],
    )
}

fn settle(tx: &Tx<'_>, no: ScopeNo, id: &str, state: CommitmentState, now: Millis) -> Result<()> {
    tx.change(
        "UPDATE commitments SET state = ?3, settled_at = ?4, tag = NULL, mentions = NULL
         WHERE tenant = ?1 AND id = ?2 AND state = 0",
        params![no.tenant, id, state as i64, now],
    )
}

/// Voids the pending commitments of an intention that is being purged.
pub(crate) fn void(tx: &Tx<'_>, no: ScopeNo, entry: &str, now: Millis) -> Result<()> {
    tx.change(
        "UPDATE commitments INDEXED BY commitments_by_entry
         SET state = ?4, settled_at = ?5, tag = NULL, mentions = NULL
         WHERE tenant = ?1 AND scope = ?2 AND entry = ?3 AND state = 0",
        params![no.tenant, no.scope, entry, CommitmentState::Void as i64, now],
    )
}

/// Deletes commitments of a memory whose intentions no longer have a row.
pub(crate) fn forget_erased(tx: &Tx<'_>, no: ScopeNo) -> Result<()> {
    tx.change(
        "DELETE FROM commitments WHERE tenant = ?1 AND scope = ?2 AND NOT EXISTS
           (SELECT 1 FROM entries e WHERE e.tenant = commitments.tenant
              AND e.scope = commitments.scope AND e.id = commitments.entry)",
        [no.tenant, no.scope],
    )
}

/// Redacts what a tenant's commitments wait for again; returns how many changed. One whose
/// condition is unreadable becomes void: it must not keep the rest from being redacted, and
/// without a condition any entry would fulfil it.
pub(crate) fn rewrite(
    tx: &Tx<'_>,
    tenant: i64,
    redactor: &Reredactor<'_>,
    now: Millis,
) -> Result<u64> {
    type Texts = (Option<String>, Option<String>);
    let conditions: Vec<(String, Result<Texts>)> = tx.all(
        "SELECT id, tag, mentions FROM commitments
         WHERE tenant = ?1 AND (tag IS NOT NULL OR mentions IS NOT NULL)",
        [tenant],
        |row| Ok((row.get(0)?, row.get(1).and_then(|tag| Ok((tag, row.get(2)?))))),
    )?;
    let clean = |text: Option<String>| Some(redactor.text(&text?)?.0.into_string());
    let mut changed = 0;
    for (id, texts) in conditions {
        match texts.map(|(tag, mentions)| (clean(tag), clean(mentions))) {
            Ok((None, None)) => continue,
            Ok((tag, mentions)) => tx.run(
                "UPDATE commitments SET tag = coalesce(?3, tag), mentions = coalesce(?4, mentions)
                 WHERE tenant = ?1 AND id = ?2",
                params![tenant, id, tag, mentions],
            )?,
            Err(_) => {
                tracing::warn!(commitment = id, "a damaged commitment is made void");
                tx.run(
                    "UPDATE commitments SET tag = NULL, mentions = NULL,
                            state = CASE WHEN state = 0 THEN ?3 ELSE state END,
                            settled_at = coalesce(settled_at, ?4)
                     WHERE tenant = ?1 AND id = ?2",
                    params![tenant, id, CommitmentState::Void as i64, now],
                )?
            }
        };
        changed += 1;
    }
    Ok(changed)
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
        let act = move |tx: &Tx<'_>| tx.run(damaged, []);
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
