//! Keys: a master key seals each tenant's key, which seals everything else.

use icecore_domain::identity::IdentityKey;

use crate::error::StoreError;

/// The key that seals tenants' keys. Wiped from memory when dropped.
pub struct MasterKey([u8; 32]);

/// A tenant's data key.
pub struct TenantKey([u8; 32]);

impl MasterKey {
    /// From `environment` (64 hex digits) if given, else from `dir/master.key`,
    /// which is made with mode 0600 if `may_create`.
    pub fn load(
        dir: &std::path::Path,
        environment: Option<&str>,
        may_create: bool,
    ) -> Result<Self, StoreError> {
        let _ = (dir, environment, may_create);
        unimplemented!()
    }
    /// Lets a store tell whether this is its key.
    pub fn check_value(&self) -> [u8; 32] {
        unimplemented!()
    }
    /// Whether a store's check value is this key's.
    pub fn matches(&self, check_value: &[u8]) -> bool {
        let _ = check_value;
        unimplemented!()
    }
    /// Seals a tenant's key.
    pub fn seal(&self, key: &TenantKey) -> Vec<u8> {
        let _ = key;
        unimplemented!()
    }
    /// Opens a sealed tenant's key.
    pub fn open(&self, sealed: &[u8]) -> Option<TenantKey> {
        let _ = sealed;
        unimplemented!()
    }
}

impl TenantKey {
    /// A new random key.
    pub fn random() -> Self {
        unimplemented!()
    }
    /// The key for identities, derived.
    pub fn identity_key(&self) -> IdentityKey {
        unimplemented!()
    }
    /// Seals a small secret under a label that must be given again to open it.
    pub fn seal(&self, label: &str, secret: &[u8]) -> Vec<u8> {
        let _ = (label, secret);
        unimplemented!()
    }
    /// Opens it.
    pub fn open(&self, label: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let _ = (label, sealed);
        unimplemented!()
    }
}
