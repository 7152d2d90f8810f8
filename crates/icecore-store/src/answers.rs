//! What models answered, and what that cost.

use std::collections::BTreeMap;

use icecore_domain::ids::{Scope, SessionNo, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use crate::bounds::DayUse;
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::error::Result;
use crate::reredact::Reredactor;
use crate::store::Store;
use crate::turns::rows;
use crate::{engine, scopes, secrets, usage};

pub(crate) fn put(tx: &Tx<'_>, scope: &Scope, answer: &NewAnswer) -> Result<()> {
    secrets::refuse_changed(tx, scope.tenant(), answer.secrets_seen)?;
    if rows::scope_head(tx, scope)?.epoch != answer.epoch {
        return Ok(());
    }
    let no = match answer.session {
        Some(session) => rows::owned(tx, scope, session)?,
        None => Some(scopes::ensure_scope(tx, scope)?),
    };
    let Some(no) = no else { return Ok(()) };
    tx.prepare_cached(
        "INSERT INTO answers (tenant, scope, key, session, text, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (tenant, scope, key) DO UPDATE
           SET session = excluded.session, text = excluded.text, created_at = excluded.created_at",
    )
    .and_then(|mut q| {
        q.execute(params![
            no.tenant,
            no.scope,
            answer.key.as_slice(),
            answer.session.map(|session| engine::number(session.0)),
            answer.text.as_str(),
            answer.now.0,
        ])
    })
    .map(|_| ())
}

#[expect(clippy::disallowed_methods, reason = "answers come from our own rows")]
pub(crate) fn get(tx: &Tx<'_>, scope: &Scope, key: &[u8; 32]) -> Result<Option<RedactedText>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(None) };
    tx.prepare_cached("SELECT text FROM answers WHERE tenant = ?1 AND scope = ?2 AND key = ?3")
        .and_then(|mut q| {
            let key = params![no.tenant, no.scope, key.as_slice()];
            q.query_row(key, |row| row.get(0).map(RedactedText::read_back)).optional()
        })
}

/// Deletes the answers of a memory that are about no session alone, and those about one.
pub(crate) fn forget(tx: &Tx<'_>, no: ScopeNo, session: Option<i64>) -> Result<()> {
    tx.prepare_cached(
        "DELETE FROM answers WHERE tenant = ?1 AND scope = ?2 AND (session IS NULL OR session = ?3)",
    )?
    .execute(params![no.tenant, no.scope, session])?;
    Ok(())
}

/// Deletes all answers of a tenant.
pub(crate) fn forget_all(tx: &Tx<'_>, tenant: i64) -> Result<()> {
    tx.execute("DELETE FROM answers WHERE tenant = ?1", [tenant])?;
    Ok(())
}

/// Whether any answer of a tenant has something to hide.
pub(crate) fn hides(tx: &Tx<'_>, tenant: i64, again: &Reredactor<'_>) -> Result<bool> {
    let mut query = tx.prepare("SELECT text FROM answers WHERE tenant = ?1")?;
    let mut found = query.query([tenant])?;
    while let Some(row) = found.next()? {
        // One that cannot be read may hold anything, and can be asked for again.
        if row.get_ref(0)?.as_str().map_or(true, |text| again.text(text).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

// What it cost

const COUNTS: &str = "calls, failed, reused, input, cached_input, output, cost, saved";

fn read(row: &Row<'_>) -> Result<Spending> {
    let number = |column: usize| row.get::<_, i64>(column).map(|number| number as u64);
    Ok(Spending {
        day: row.get(0)?,
        purpose: row.get(1)?,
        model: row.get(2)?,
        calls: number(3)?,
        failed: number(4)?,
        reused: number(5)?,
        input: number(6)?,
        cached_input: number(7)?,
        output: number(8)?,
        cost: number(9)?,
        saved: number(10)?,
    })
}

pub(crate) fn spend(tx: &Tx<'_>, scope: &Scope, spent: &[Spending]) -> Result<()> {
    if spent.is_empty() {
        return Ok(());
    }
    let no = scopes::ensure_scope(tx, scope)?;
    let spend = |one: &Spending| {
        spend_one(tx, no, one)?;
        let more = DayUse { requests: 0, tokens: one.input.saturating_add(one.output) };
        match more.is_empty() {
            true => Ok(()),
            false => usage::count_day(tx, no.tenant, one.day, more).map(|_| ()),
        }
    };
    spent.iter().try_for_each(spend)
}

fn spend_one(tx: &Tx<'_>, no: ScopeNo, spent: &Spending) -> Result<()> {
    let known = tx
        .prepare_cached(&format!(
            "SELECT day, purpose, model, {COUNTS} FROM spending
             WHERE tenant = ?1 AND scope = ?2 AND day = ?3 AND purpose = ?4 AND model = ?5"
        ))?
        .query_row(params![no.tenant, no.scope, spent.day, spent.purpose, spent.model], read)
        .optional()?;
    let mut sum = known.unwrap_or_default();
    sum.add(spent);
    tx.prepare_cached(&format!(
        "INSERT INTO spending (tenant, scope, day, purpose, model, {COUNTS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (tenant, scope, day, purpose, model) DO UPDATE
           SET calls = excluded.calls, failed = excluded.failed, reused = excluded.reused,
             input = excluded.input, cached_input = excluded.cached_input,
             output = excluded.output, cost = excluded.cost, saved = excluded.saved"
    ))?
    .execute(params![
        no.tenant,
        no.scope,
        spent.day,
        spent.purpose,
        spent.model,
        engine::number(sum.calls),
        engine::number(sum.failed),
        engine::number(sum.reused),
        engine::number(sum.input),
        engine::number(sum.cached_input),
        engine::number(sum.output),
        engine::number(sum.cost),
        engine::number(sum.saved),
    ])?;
    Ok(())
}

pub(crate) fn spent(
    tx: &Tx<'_>,
    tenant: &Tenant,
    memory: Option<&str>,
    since_day: i64,
) -> Result<Vec<Spending>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let found: Vec<Spending> = tx
        .prepare_cached(&format!(
            "SELECT day, purpose, model, {COUNTS} FROM spending WHERE tenant = ?1 AND day >= ?2
               AND (?3 IS NULL OR scope = (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?3))"
        ))
        .and_then(|mut q| q.query_map(params![no, since_day, memory], read)?.collect())?;
    let mut sums: BTreeMap<(i64, String, String), Spending> = BTreeMap::new();
    for one in found {
        let key = (one.day, one.purpose.clone(), one.model.clone());
        match sums.get_mut(&key) {
            Some(sum) => sum.add(&one),
            None => drop(sums.insert(key, one)),
        }
    }
    Ok(sums.into_values().collect())
}

impl Store {
    /// Keeps a model's answer, so that it need not be asked again; the last of a key
    /// stands. It is passed over if its session is not there or the memory's epoch has
    /// risen, and it may be [`StoreError::SecretsChanged`]. Answers about a session go
    /// when any of its turns is erased. Those about none go when any turn, entry, fact or
    /// verdict of the memory is erased, or an entry deleted for good. All of a tenant's go
    /// when more of its texts are hidden. They stay when what is derived is dropped.
    pub async fn put_answer(&self, scope: &Scope, answer: NewAnswer) -> Result<()> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_answer", move |tx| put(tx, &scope, &answer)).await
    }

    /// A kept answer.
    pub async fn answer(&self, scope: &Scope, key: &[u8; 32]) -> Result<Option<RedactedText>> {
        let (scope, key) = (scope.clone(), *key);
        self.read(Isolation::from(&scope), "answer", move |tx| get(tx, &scope, &key)).await
    }

    /// Adds to what was spent and saved in a memory, by day, purpose and model.
    pub async fn add_spending(&self, scope: &Scope, spent: Vec<Spending>) -> Result<()> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "add_spending", move |tx| spend(tx, &scope, &spent))
            .await
    }

    /// What was spent and saved since a day, of a memory or a tenant, summed up by day,
    /// purpose and model, in that order.
    pub async fn spending(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        since_day: i64,
    ) -> Result<Vec<Spending>> {
        let (tenant, memory) = (tenant.clone(), memory.map(str::to_owned));
        self.read(Isolation::from(&tenant), "spending", move |tx| {
            spent(tx, &tenant, memory.as_deref(), since_day)
        })
        .await
    }
}

/// An answer of a model to keep.
#[derive(Debug, Clone)]
pub struct NewAnswer {
    /// Keyed hash of what was asked and of the model's identity.
    pub key: [u8; 32],
    /// The session whose turns were asked about; none if it was about several, or about
    /// entries. Goes when any of that goes.
    pub session: Option<SessionNo>,
    /// The memory's epoch as it was before anything was read that it was asked about.
    pub epoch: u64,
    /// What it answered.
    pub text: RedactedText,
    /// The version of the tenant's secrets that it was redacted with.
    pub secrets_seen: u64,
    /// When.
    pub now: Millis,
}

/// What was spent, or saved, for a purpose by a model on a day.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spending {
    /// The day, in days since 1970 in UTC.
    pub day: i64,
    /// For what: `summary`, `handoff`, `dream`, `consolidation`, `exchange`; `context` for
    /// what summaries saved.
    pub purpose: String,
    /// By which model; empty for `context`.
    pub model: String,
    /// Requests that were sent.
    pub calls: u64,
    /// Of these, how many brought no usable answer.
    pub failed: u64,
    /// Answers that were at hand and cost nothing.
    pub reused: u64,
    /// Tokens read.
    pub input: u64,
    /// Of these, from a cache.
    pub cached_input: u64,
    /// Tokens written.
    pub output: u64,
    /// Millionths of the currency.
    pub cost: u64,
    /// Tokens that contexts and views did not have to hold, thanks to it.
    pub saved: u64,
}

impl Spending {
    /// Adds what another counted. Counts stay at the largest number that a store has.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.calls, other.calls),
            (&mut self.failed, other.failed),
            (&mut self.reused, other.reused),
            (&mut self.input, other.input),
            (&mut self.cached_input, other.cached_input),
            (&mut self.output, other.output),
            (&mut self.cost, other.cost),
            (&mut self.saved, other.saved),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more).min(i64::MAX as u64);
        }
    }
}
