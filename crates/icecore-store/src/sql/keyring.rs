//! The keys that a running store has at hand.
//!
//! Another process may give the store a new master key meanwhile. What was opened
//! stays at hand, and the new key is read from its file when it is first missed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::engine::Connection;
use icecore_domain::ids::Tenant;

use super::{Shared, rotation, rows};
use crate::error::StoreError;
use crate::keys::{MasterKey, TenantKey};
use crate::store::Result;

pub(crate) struct Keyring {
    /// Where a new master key may lie.
    dir: Option<PathBuf>,
    /// Where the master key came from.
    origin: String,
    keys: Mutex<Keys>,
}

struct Keys {
    /// The last is the newest. A reader may still see a state from before it.
    masters: Vec<MasterKey>,
    /// Tenants' keys by their sealed form: opening one on every write is dear.
    by_sealed: BTreeMap<Vec<u8>, TenantKey>,
    /// The same by tenant, whose key stays while its sealed form changes.
    by_tenant: BTreeMap<Tenant, TenantKey>,
}

impl Keyring {
    pub(crate) fn new(dir: Option<PathBuf>, origin: String, master: MasterKey) -> Self {
        let keys =
            Keys { masters: vec![master], by_sealed: BTreeMap::new(), by_tenant: BTreeMap::new() };
        Self { dir, origin, keys: Mutex::new(keys) }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a tenant's key.
    pub(super) fn open(
        &self,
        c: &Connection,
        s: &Shared,
        tenant: &Tenant,
        sealed: Vec<u8>,
    ) -> Result<TenantKey> {
        let mut keys = self.keys();
        if let Some(key) = keys.by_sealed.get(&sealed) {
            return Ok(key.clone());
        }
        let key = match keys.open(&sealed) {
            Some(key) => key,
            None => self.open_with_new(c, s, tenant, &sealed, &mut keys)?,
        };
        keys.by_sealed.insert(sealed, key.clone());
        keys.by_tenant.insert(tenant.clone(), key.clone());
        Ok(key)
    }

    /// Why the key that it was opened with is of no more use.
    pub(super) fn replaced(&self) -> StoreError {
        StoreError::MasterKeyReplaced { origin: self.origin.clone() }
    }

    /// Opens what none of the master keys at hand opens.
    fn open_with_new(
        &self,
        c: &Connection,
        s: &Shared,
        tenant: &Tenant,
        sealed: &[u8],
        keys: &mut Keys,
    ) -> Result<TenantKey> {
        match self.current(c, s, keys) {
            Ok(_) => keys.open(sealed).ok_or_else(|| {
                let reason = format!("the sealed key of tenant `{tenant}` does not open");
                rows::damaged(s, &reason)
            }),
            // Its sealed form is new, the key is not.
            Err(error) => keys.by_tenant.get(tenant).cloned().ok_or(error),
        }
    }

    /// Seals a new tenant's key with the master key that the store has now, which
    /// the connection must be writing to. It stays the store's until that has ended.
    pub(super) fn seal(&self, c: &Connection, s: &Shared, key: &TenantKey) -> Result<Vec<u8>> {
        // Before ours, which others here wait for.
        c.hold_master_key().map_err(|e| s.failed(e))?;
        let mut keys = self.keys();
        self.current(c, s, &mut keys).map(|master| master.seal(key))
    }

    /// The master key that the store has now.
    pub(crate) fn master(&self, c: &Connection, s: &Shared) -> Result<MasterKey> {
        self.current(c, s, &mut self.keys()).cloned()
    }

    /// The master key that the store has now, from its file if we do not have it.
    fn current<'a>(&self, c: &Connection, s: &Shared, keys: &'a mut Keys) -> Result<&'a MasterKey> {
        let check = rotation::check_value(c, s)?;
        let at = match keys.masters.iter().rposition(|master| master.matches(&check)) {
            Some(at) => at,
            None => {
                let new = self.dir.as_ref().and_then(|dir| MasterKey::in_files(dir, &check));
                keys.masters.push(new.ok_or_else(|| self.replaced())?);
                keys.masters.len() - 1
            }
        };
        Ok(&keys.masters[at])
    }
}

impl Keys {
    fn open(&self, sealed: &[u8]) -> Option<TenantKey> {
        self.masters.iter().rev().find_map(|master| master.open(sealed))
    }
}
