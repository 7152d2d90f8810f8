//! What a host keeps beside its memories: keys, outcomes of requests, signs of health.

use crate::error::MemoryError;
use crate::memory::Memory;
use icecore_domain::ids::{Position, Tenant};
use icecore_domain::time::Millis;
use icecore_store::{
    ApiKeyRecord, Erasures, KeyActor, KeyRevocation, KeyRotation, LogKind, NewOutcome, OutcomeBody,
    RotatedKey, StoreTimings, StoredOutcome,
};

/// Note that a host writes to see whether its store takes writes.
const PROBE: &str = "probe";

impl Memory {
    /// Whether the store takes writes and answers reads, by doing both. Answers how many
    /// branches have derived work that is due.
    pub async fn probe(&self) -> Result<u64, MemoryError> {
        let store = &self.inner.store;
        store.put_note(PROBE, &self.now().0.to_string()).await?;
        self.pending().await
    }

    /// How many branches have derived work that is due.
    pub async fn pending(&self) -> Result<u64, MemoryError> {
        Ok(self.inner.store.unsettled_count(None, None).await?)
    }

    /// How long the store's work took so far, in this process.
    pub fn store_timings(&self) -> StoreTimings {
        self.inner.store.timings()
    }

    /// Leaves nothing in the store's files that was deleted.
    pub async fn scrub(&self) -> Result<(), MemoryError> {
        Ok(self.inner.store.scrub().await?)
    }

    /// The position of the last event of a tenant.
    pub async fn head(&self, tenant: &Tenant) -> Result<Position, MemoryError> {
        Ok(self.inner.store.head(tenant).await?)
    }

    /// Writes into the log of a tenant that requests were denied. Secrets are hidden in the
    /// payload.
    pub async fn log_denied(
        &self,
        tenant: &Tenant,
        payload: &str,
        at: Millis,
    ) -> Result<(), MemoryError> {
        let payload = self.redactor(tenant).await?.redactor.text(payload).into_string();
        self.inner.store.log(tenant, LogKind::Denied, payload, at).await?;
        Ok(())
    }

    // Keys

    /// The keys of a tenant, or of all.
    pub async fn api_keys(
        &self,
        tenant: Option<&Tenant>,
    ) -> Result<Vec<ApiKeyRecord>, MemoryError> {
        Ok(self.inner.store.api_keys(tenant).await?)
    }

    /// The key with this hash, whatever has become of it.
    pub async fn api_key(&self, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>, MemoryError> {
        Ok(self.inner.store.api_key(hash).await?)
    }

    /// Adds a key, of which the store has only the hash.
    pub async fn put_api_key(
        &self,
        key: ApiKeyRecord,
        hash: [u8; 32],
        by: KeyActor,
    ) -> Result<(), MemoryError> {
        Ok(self.inner.store.put_api_key(key, hash, by).await?)
    }

    /// Revokes a key; nothing if there is none.
    pub async fn revoke_api_key(
        &self,
        revocation: KeyRevocation,
    ) -> Result<Option<ApiKeyRecord>, MemoryError> {
        Ok(self.inner.store.revoke_api_key(revocation).await?)
    }

    /// Puts a new key in the place of one; nothing if there is none.
    pub async fn rotate_api_key(
        &self,
        rotation: KeyRotation,
    ) -> Result<Option<RotatedKey>, MemoryError> {
        Ok(self.inner.store.rotate_api_key(rotation).await?)
    }

    // Outcomes

    /// What was answered to a request under a key of the caller's.
    pub async fn outcome(
        &self,
        tenant: &Tenant,
        operation: &str,
        key: &str,
    ) -> Result<Option<StoredOutcome>, MemoryError> {
        Ok(self.inner.store.outcome(tenant, operation, key, self.now()).await?)
    }

    /// Stores the answer to a request that wrote nothing else. Secrets are hidden in it.
    pub async fn put_outcome(
        &self,
        tenant: &Tenant,
        outcome: NewOutcome,
    ) -> Result<(), MemoryError> {
        let known = self.redactor(tenant).await?;
        let hide = |body: String| known.redactor.text(&body).into_string();
        let body = match outcome.body {
            OutcomeBody::Ids(body) => OutcomeBody::Ids(hide(body)),
            OutcomeBody::Text(body) => OutcomeBody::Text(hide(body)),
        };
        let outcome = NewOutcome { body, ..outcome };
        Ok(self.inner.store.put_outcome(tenant, outcome, self.now()).await?)
    }

    /// What was erased of a tenant since a position, and the version of its secrets: an
    /// answer made before either changed may say what it should not.
    pub async fn grounds(
        &self,
        tenant: &Tenant,
        after: Position,
    ) -> Result<(Erasures, u64), MemoryError> {
        let erasures = self.inner.store.erasures(tenant, after, self.now()).await?;
        Ok((erasures, self.inner.store.secrets_version(tenant).await?))
    }
}
