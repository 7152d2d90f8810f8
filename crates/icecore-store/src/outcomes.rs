//! Outcomes of requests under a client's `Idempotency-Key`: a retry is answered from here
//! and not done again.

use icecore_domain::ids::Tenant;
use icecore_domain::time::Millis;
use serde_json::Value;

use crate::engine::prelude::*;
use crate::store::Store;

pub const OUTCOME_KEPT_MILLIS: i64 = 24 * 3600 * 1000;

/// A client's key, recorded in the transaction of the write that it names.
#[derive(Debug, Clone)]
pub struct Claim {
    pub operation: String,
    pub key: String,
    pub request: [u8; 32],
    /// A number that the caller reads back with the outcome.
    pub code: u16,
}

/// A record whose making a claim can name.
pub(crate) trait Effect {
    /// What the outcome remembers of it: ids, numbers and times, nothing that was said.
    fn ids(&self) -> Value;
}

/// The outcome of a request that wrote nothing else.
#[derive(Debug, Clone)]
pub struct NewOutcome {
    pub claim: Claim,
    pub body: OutcomeBody,
}

/// What the caller wants back for a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutcomeBody {
    /// Ids, numbers and times: an erasure leaves it alone.
    Ids(String),
    /// May quote what is stored: an erasure deletes it.
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOutcome {
    pub request: [u8; 32],
    pub code: u16,
    pub body: String,
}

impl Store {
    /// The outcome of an earlier request under a client's key.
    pub async fn outcome(
        &self,
        tenant: &Tenant,
        operation: &str,
        key: &str,
        now: Millis,
    ) -> Result<Option<StoredOutcome>> {
        let (operation, key) = (operation.to_owned(), key.to_owned());
        self.read(tenant, "outcome", move |tx| {
            let Some(tenant) = tx.tenant_no()? else { return Ok(None) };
            let sql = "SELECT request, abs(status), body FROM outcomes
                 WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND at > ?4";
            let values = params![tenant, operation, key, now.0 - OUTCOME_KEPT_MILLIS];
            tx.first(sql, values, |row| {
                let (request, code, body): (Vec<u8>, _, Vec<u8>) = tuple(row)?;
                let request = request.try_into().unwrap_or_default();
                let body = String::from_utf8_lossy(&body).into_owned();
                Ok(StoredOutcome { request, code, body })
            })
        })
        .await
    }

    pub async fn put_outcome(
        &self,
        tenant: &Tenant,
        outcome: NewOutcome,
        now: Millis,
    ) -> Result<()> {
        self.write(tenant, "put_outcome", move |tx| {
            let (tenant, _) = tx.ensure_tenant()?;
            put(tx, tenant, &outcome.claim, &outcome.body, now)
        })
        .await
    }

    /// Deletes the outcomes of all tenants that answer no retries any more; answers how many.
    pub async fn purge_outcomes(&self, now: Millis) -> Result<u64> {
        self.write(Isolation::Global, "purge_outcomes", move |tx| {
            let until = now.0 - OUTCOME_KEPT_MILLIS;
            Ok(tx.run("DELETE FROM outcomes WHERE at <= ?1", [until])? as u64)
        })
        .await
    }
}

/// Fails with [`StoreError::ClaimTaken`] if the key of a claim has an outcome.
pub(crate) fn refuse_taken(
    tx: &Tx<'_>,
    tenant: i64,
    claim: Option<&Claim>,
    now: Millis,
) -> Result<()> {
    let Some(Claim { operation, key, .. }) = claim else { return Ok(()) };
    let is_taken = tx.finds(
        "SELECT 1 FROM outcomes WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND at > ?4",
        params![tenant, operation, key, now.0 - OUTCOME_KEPT_MILLIS],
    )?;
    if is_taken { Err(StoreError::ClaimTaken) } else { Ok(()) }
}

pub(crate) fn put_claimed(
    tx: &Tx<'_>,
    tenant: i64,
    claim: Option<&Claim>,
    effect: &impl Effect,
    now: Millis,
) -> Result<()> {
    let Some(claim) = claim else { return Ok(()) };
    put(tx, tenant, claim, &OutcomeBody::Ids(effect.ids().to_string()), now)
}

fn put(tx: &Tx<'_>, tenant: i64, claim: &Claim, body: &OutcomeBody, now: Millis) -> Result<()> {
    let until = now.0 - OUTCOME_KEPT_MILLIS;
    tx.change("DELETE FROM outcomes WHERE tenant = ?1 AND at <= ?2", [tenant, until])?;
    // A negative status marks a body that holds ids alone.
    let code = i64::from(claim.code);
    let (status, body) = match body {
        OutcomeBody::Ids(body) => (-code, body),
        OutcomeBody::Text(body) => (code, body),
    };
    let Claim { operation, key, request, .. } = claim;
    let body = body.as_bytes();
    tx.upsert("outcomes", 3, fields! { tenant, operation, key, request, status, body, at: now })
}

/// Deletes a tenant's outcomes that may quote what was erased.
pub(crate) fn forget_texts(tx: &Tx<'_>, tenant: i64) -> Result<()> {
    tx.change("DELETE FROM outcomes WHERE tenant = ?1 AND status >= 0", [tenant])
}
