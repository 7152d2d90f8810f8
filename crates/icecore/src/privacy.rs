//! What is secret, and how it stays out of everything that is written and read.

pub(crate) mod secrets;
pub(crate) mod veil;

pub use self::secrets::{AddedSecret, LogRedactor, TenantRedactor};
pub use icecore_domain::redact::{
    Hidden, Kind, MAX_SECRET_BYTES, Proof, RedactedStream, RedactedText, RedactedTurn, Redactor,
    SecretError, UnknownPii,
};
pub use icecore_store::SecretRecord;

use std::sync::{Arc, Mutex};

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Principal, Scope, SessionName, Tenant, check_memory};
use lru::LruCache;

use self::secrets::Redactors;
use crate::base::Base;
use crate::error::Result;

/// Redactors and keys of tenants.
#[derive(Clone)]
pub struct Privacy {
    pub(crate) base: Base,
    /// For one request: a tenant, and what hid its secrets when the request began.
    pub(crate) sight: Option<(Tenant, TenantRedactor)>,
    pub(crate) redactors: Arc<Redactors>,
    pub(crate) identity_keys: Arc<Mutex<LruCache<Tenant, IdentityKey>>>,
}

crate::base::over!(Privacy, base: Base);

impl Privacy {
    /// One memory of a principal's tenant.
    pub async fn scope(&self, principal: &Principal, memory: &str) -> Result<Scope> {
        check_memory(memory)?;
        let redactor = self.redactor(principal.tenant()).await?.redactor;
        Ok(principal.scope(redactor.name(memory))?)
    }

    /// A hash of `parts` under the tenant's own key, without which nothing can be guessed
    /// from it.
    pub async fn keyed_hash(
        &self,
        tenant: &Tenant,
        kind: &str,
        parts: &[&[u8]],
    ) -> Result<[u8; 32]> {
        Ok(self.identity_key(tenant).await?.hash_parts(kind, parts))
    }

    pub(crate) async fn identity_key(&self, tenant: &Tenant) -> Result<IdentityKey> {
        let known = self.identity_keys.lock().ok().and_then(|mut keys| keys.get(tenant).cloned());
        if let Some(key) = known {
            return Ok(key);
        }
        let key = self.store.identity_key(tenant).await?;
        if let Ok(mut keys) = self.identity_keys.lock() {
            keys.put(tenant.clone(), key.clone());
        }
        Ok(key)
    }

    /// Forgets keys that may not be the tenants' own any more.
    pub(crate) fn forget_keys(&self) {
        if let Ok(mut keys) = self.identity_keys.lock() {
            keys.clear();
        }
    }

    /// What hides a tenant's secrets now, to be used throughout one request.
    pub(crate) async fn sight_of(
        &self,
        tenant: &Tenant,
    ) -> Result<Option<(Tenant, TenantRedactor)>> {
        Ok(Some((tenant.clone(), self.redactor(tenant).await?)))
    }
}

/// A session's name as it is stored.
pub(crate) fn session_name(redactor: &Redactor, name: &str) -> Result<SessionName> {
    Ok(SessionName::new(redactor.name(name))?)
}
