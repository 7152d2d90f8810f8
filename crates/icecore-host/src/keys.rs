//! API keys: who may ask for what. The store has only their hashes.

use icecore::{Memory, MemoryError, Millis, Tenant, extend};
pub use icecore_store::{ApiKeyRecord, KeyActor, KeyRevocation, KeyRotation, KeyState, RotatedKey};
use icecore_store::{LogKind, Store};

type Result<T> = std::result::Result<T, MemoryError>;

/// The API keys of all tenants. Clones share everything.
#[derive(Clone)]
pub struct Keys {
    memory: Memory,
}

impl Keys {
    /// The keys of the store under a memory.
    pub fn new(memory: Memory) -> Self {
        Self { memory }
    }

    fn store(&self) -> &Store {
        extend::store(&self.memory)
    }

    /// The keys of a tenant, or of all.
    pub async fn list(&self, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>> {
        Ok(self.store().api_keys(tenant).await?)
    }

    /// The key with this hash, also one that was revoked or has expired.
    pub async fn find(&self, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>> {
        Ok(self.store().api_key(hash).await?)
    }

    /// Adds a key by its hash.
    pub async fn add(&self, key: ApiKeyRecord, hash: [u8; 32], by: KeyActor) -> Result<()> {
        Ok(self.store().put_api_key(key, hash, by).await?)
    }

    /// Revokes a key; `None` if there is none.
    pub async fn revoke(&self, revocation: KeyRevocation) -> Result<Option<ApiKeyRecord>> {
        Ok(self.store().revoke_api_key(revocation).await?)
    }

    /// Replaces a key by a new one; `None` if there is none.
    pub async fn rotate(&self, rotation: KeyRotation) -> Result<Option<RotatedKey>> {
        Ok(self.store().rotate_api_key(rotation).await?)
    }

    /// Logs that requests of a tenant were denied. Secrets are hidden in the payload.
    pub async fn log_denied(&self, tenant: &Tenant, payload: &str, at: Millis) -> Result<()> {
        let redactor = self.memory.redactor(tenant).await?.redactor;
        let payload = redactor.text(payload).into_string();
        self.store().log(tenant, LogKind::Denied, payload, at).await?;
        Ok(())
    }
}
