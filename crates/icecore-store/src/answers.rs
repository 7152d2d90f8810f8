//! What models answered, so that they need not be asked again, and what they cost.

use std::collections::BTreeMap;

use icecore_domain::ids::{Scope, SessionNo, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use crate::bounds::DayUse;
use crate::engine::prelude::*;
use crate::reredact::Reredactor;
use crate::store::Store;
use crate::turns::rows;
use crate::{secrets, usage};

#[derive(Debug, Clone)]
pub struct NewAnswer {
    /// Keyed hash of what was asked and of the model's identity.
    pub key: [u8; 32],
    /// The session whose turns were asked about; none if it was about several, or about entries.
    pub session: Option<SessionNo>,
    /// The memory's epoch before anything was read that the model was asked about.
    pub epoch: u64,
    pub text: RedactedText,
    pub secrets_seen: u64,
    pub now: Millis,
}

/// What was spent, or saved, for a purpose by a model on a day.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spending {
    /// In days since 1970 in UTC.
    pub day: i64,
    /// `summary`, `handoff`, `dream`, `consolidation` or `exchange`; `context` for what
    /// summaries saved.
    pub purpose: String,
    /// Empty for `context`.
    pub model: String,
    pub calls: u64,
    /// Of these, how many brought no usable answer.
    pub failed: u64,
    /// Answers that were at hand and cost nothing.
    pub reused: u64,
    pub input: u64,
    /// Of these, from a cache.
    pub cached_input: u64,
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

impl Store {
    /// Stores a model's answer, so that it need not be asked again, in place of an earlier one
    /// of the same key. Does nothing if the session is not there or the memory's epoch has
    /// risen; it may be [`StoreError::SecretsChanged`]. Answers about a session go when any of
    /// its turns is erased. Those about none go when any turn, entry, fact or verdict of the
    /// memory is erased, or an entry deleted for good. All of a tenant's go when more of its
    /// texts are hidden. They stay when what is derived is dropped.
    ///
    /// [`StoreError::SecretsChanged`]: crate::StoreError::SecretsChanged
    pub async fn put_answer(&self, scope: &Scope, answer: NewAnswer) -> Result<()> {
        self.write(scope, "put_answer", move |tx| {
            let scope = tx.scope()?;
            secrets::refuse_changed(tx, scope.tenant(), answer.secrets_seen)?;
            if rows::scope_head(tx, scope)?.epoch != answer.epoch {
                return Ok(());
            }
            let no = match answer.session {
                Some(session) => rows::owned(tx, session)?,
                None => Some(tx.ensure_scope()?),
            };
            let Some(no) = no else { return Ok(()) };
            let NewAnswer { key, session, text, now, .. } = &answer;
            let (tenant, scope) = (no.tenant, no.scope);
            tx.upsert("answers", 3, fields! { tenant, scope, key, session, text, created_at: now })
        })
        .await
    }

    pub async fn answer(&self, scope: &Scope, key: &[u8; 32]) -> Result<Option<RedactedText>> {
        let key = *key;
        self.read(scope, "answer", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(None) };
            let sql = "SELECT text FROM answers WHERE tenant = ?1 AND scope = ?2 AND key = ?3";
            tx.first(sql, params![no.tenant, no.scope, key], column)
        })
        .await
    }

    /// Adds to what was spent and saved in a memory, by day, purpose and model.
    pub async fn add_spending(&self, scope: &Scope, spent: Vec<Spending>) -> Result<()> {
        self.write(scope, "add_spending", move |tx| {
            if spent.is_empty() {
                return Ok(());
            }
            let no = tx.ensure_scope()?;
            spent.iter().try_for_each(|one| spend(tx, no, one))
        })
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
        let memory = memory.map(str::to_owned);
        self.read(tenant, "spending", move |tx| {
    let Some(tenant) = tx.tenant_no()? else { return Ok(Vec::new()) };
    let sql = format!(
        "SELECT day, purpose, model, {} FROM spending WHERE tenant = ?1 AND day >= ?2
           AND (?3 IS NULL OR scope = (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?3))",
        COUNTS.join(", ")
    );
    let mut sums: BTreeMap<_, Spending> = BTreeMap::new();
    for one in tx.all(&sql, params![tenant, since_day, memory], tuple::<Spending>)? {
        let key = (one.day, one.purpose.clone(), one.model.clone());
        match sums.get_mut(&key) {
            Some(sum) => sum.add(&one),
            None => drop(sums.insert(key, one)),
        }
    }
    Ok(sums.into_values().collect())
}).await
    }
}

/// Deletes the answers of a memory that are about no session alone, and those about one.
pub(crate) fn forget(tx: &Tx<'_>, no: ScopeNo, session: Option<i64>) -> Result<()> {
    tx.change(
        "DELETE FROM answers WHERE tenant = ?1 AND scope = ?2 AND (session IS NULL OR session = ?3)",
        params![no.tenant, no.scope, session],
    )
}

pub(crate) fn forget_all(tx: &Tx<'_>, tenant: i64) -> Result<()> {
    tx.change("DELETE FROM answers WHERE tenant = ?1", [tenant])
}

/// Whether any answer of a tenant has something to hide. An answer that cannot be read may
/// hold anything, and can be asked for again.
pub(crate) fn hides(tx: &Tx<'_>, tenant: i64, again: &Reredactor<'_>) -> Result<bool> {
    let hides = tx.all("SELECT text FROM answers WHERE tenant = ?1", [tenant], |row| {
        Ok(row.get_ref(0)?.as_str().map_or(true, |text| again.text(text).is_some()))
    })?;
    Ok(hides.contains(&true))
}

const COUNTS: [&str; 8] =
    ["calls", "failed", "reused", "input", "cached_input", "output", "cost", "saved"];

fn spend(tx: &Tx<'_>, no: ScopeNo, spent: &Spending) -> Result<()> {
    let Spending { day, purpose, model, .. } = spent;
    // Never beyond the largest number, where the engines would fail or lose precision.
    let most = i64::MAX;
    let sums = COUNTS.map(|count| {
        format!("{count} = min(spending.{count}, {most} - excluded.{count}) + excluded.{count}")
    });
    tx.change(
        &format!(
            "INSERT INTO spending (tenant, scope, day, purpose, model, {})
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
             ON CONFLICT (tenant, scope, day, purpose, model) DO UPDATE SET {}",
            COUNTS.join(", "),
            sums.join(", ")
        ),
        params![
            no.tenant, no.scope, day, purpose, model, spent.calls, spent.failed, spent.reused,
            spent.input, spent.cached_input, spent.output, spent.cost, spent.saved
        ],
    )?;
    let more = DayUse { requests: 0, tokens: spent.input.saturating_add(spent.output) };
    if !more.is_empty() {
        usage::count_day(tx, no.tenant, *day, more)?;
    }
    Ok(())
}

record! {
    Spending {
        day, purpose, model, calls, failed, reused, input, cached_input, output, cost, saved
    }
}
