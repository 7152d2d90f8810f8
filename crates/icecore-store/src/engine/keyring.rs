//! The keys that a running store has at hand.
//!
//! Another process may give the store a new master key meanwhile. What was opened
//! stays at hand, and the new key is read from its file when it is first missed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use icecore_domain::ids::Tenant;

use crate::engine::rotation;
use crate::engine::tx::Tx;
use crate::error::{Result, StoreError};
use crate::keys::{MasterKey, TenantKey};

pub(crate) struct Keyring {
    dir: Option<PathBuf>,
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

    pub(crate) fn open(&self, tx: &Tx<'_>, tenant: &Tenant, sealed: Vec<u8>) -> Result<TenantKey> {
        let mut keys = self.keys();
        if let Some(key) = keys.by_sealed.get(&sealed) {
            return Ok(key.clone());
        }
        let key = match keys.open(&sealed) {
            Some(key) => key,
            None => self.open_with_new(tx, tenant, &sealed, &mut keys)?,
        };
        keys.by_sealed.insert(sealed, key.clone());
        keys.by_tenant.insert(tenant.clone(), key.clone());
        Ok(key)
    }

    /// Why the key that it was opened with is of no more use.
    pub(crate) fn replaced(&self) -> StoreError {
        StoreError::MasterKeyReplaced { origin: self.origin.clone() }
    }

    fn open_with_new(
        &self,
        tx: &Tx<'_>,
        tenant: &Tenant,
        sealed: &[u8],
        keys: &mut Keys,
    ) -> Result<TenantKey> {
        match self.current(tx, keys) {
            Ok(_) => keys.open(sealed).ok_or_else(|| {
                let reason = format!("the sealed key of tenant `{tenant}` does not open");
                tx.damaged(&reason)
            }),
            // Its sealed form is new, the key is not.
            Err(error) => keys.by_tenant.get(tenant).cloned().ok_or(error),
        }
    }

    /// Seals a new tenant's key with the master key that the store has now, which
    /// the connection must be writing to. It stays the store's until that has ended.
    pub(crate) fn seal(&self, tx: &Tx<'_>, key: &TenantKey) -> Result<Vec<u8>> {
        // Before ours, which others here wait for.
        tx.hold_master_key()?;
        let mut keys = self.keys();
        self.current(tx, &mut keys).map(|master| master.seal(key))
    }

    /// The master key that the store has now.
    pub(crate) fn master(&self, tx: &Tx<'_>) -> Result<MasterKey> {
        self.current(tx, &mut self.keys()).cloned()
    }

    /// The master key that the store has now, from its file if we do not have it.
    fn current<'a>(&self, tx: &Tx<'_>, keys: &'a mut Keys) -> Result<&'a MasterKey> {
        let check = rotation::check_value(tx)?;
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
