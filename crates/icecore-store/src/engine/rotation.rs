//! A new master key for a store.
//!
//! One transaction seals all tenants' keys anew and changes the check value, which says which
//! key is the store's. A new key that goes to a file is synced beside the old one before that,
//! and takes its place after: at whatever instruction this ends, one of the two files has the
//! key that fits. The file of the next key is touched only inside such a transaction.

use std::path::Path;

use crate::engine::notes::KEY_CHECK;
use crate::engine::tx::Tx;
use crate::engine::{notes, params, tuple};
use crate::error::{Result, StoreError};
use crate::keys::{MASTER_KEY_FILE, MASTER_KEY_NEXT_FILE, MasterKey};

/// What came of a new master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// Tenants whose keys were sealed anew.
    pub tenants: u64,
    /// Where the new key lies; none if only the one who gave it has it.
    pub key_file: Option<std::path::PathBuf>,
}

/// What can keep all others from sealing.
pub(crate) trait Alone {
    /// Runs `act` in a transaction beside which nobody seals. It may run several times.
    fn alone<T>(&self, act: &impl Fn(&Tx<'_>) -> Result<T>) -> Result<T>;
}

/// A new key, and where it goes.
pub(crate) struct Rotation<'a> {
    next: MasterKey,
    /// The directory that gets it as its key file, unless it stays out of files.
    dir: Option<&'a Path>,
}

impl<'a> Rotation<'a> {
    /// `new` or a random one goes to the key file of `dir`, but for one that is given while
    /// the present key is `given`, too.
    pub(crate) fn plan(dir: &'a Path, is_given: bool, new: Option<&str>) -> Result<Self> {
        let new = new.map(MasterKey::given).transpose()?;
        let dir = (!is_given || new.is_none()).then_some(dir);
        Ok(Self { next: new.unwrap_or_else(MasterKey::random), dir })
    }

    /// The directory whose key file is replaced.
    #[cfg(feature = "postgres")]
    pub(crate) fn dir(&self) -> Option<&'a Path> {
        self.dir
    }

    /// Puts the new key in the place of the present one.
    pub(crate) fn run(&self, store: &impl Alone, present: &MasterKey) -> Result<Rotated> {
        if let Some(dir) = self.dir {
            refuse_to_lose_a_key(dir, present)?;
        }
        let resealed = store.alone(&|tx| {
            if let Some(dir) = self.dir {
                settle(tx, dir)?;
                self.next.write_next(dir)?;
            }
            reseal(tx, present, &self.next)
        });
        if let Some(dir) = self.dir {
            // Also where it failed: then the next key is taken away.
            settle_next(store, dir)?;
        }
        let key_file = self.dir.map(|dir| dir.join(MASTER_KEY_FILE));
        Ok(Rotated { tenants: resealed?, key_file })
    }
}

/// The file's key goes; one that is not this store's might be needed elsewhere.
fn refuse_to_lose_a_key(dir: &Path, present: &MasterKey) -> Result<()> {
    let path = dir.join(MASTER_KEY_FILE);
    match MasterKey::read(&path)? {
        Some(key) if !key.same_as(present) => {
            Err(StoreError::WrongMasterKey { origin: format!("`{}`", path.display()) })
        }
        _ => Ok(()),
    }
}

/// Seals every tenant's key with the next master key; answers how many.
pub(crate) fn reseal(tx: &Tx<'_>, present: &MasterKey, next: &MasterKey) -> Result<u64> {
    // Another process may have been faster.
    if !present.matches(&check_value(tx)?) {
        return Err(tx.keys().replaced());
    }
    let listed = "SELECT tenant, name, sealed_key FROM tenants ORDER BY tenant";
    let tenants: Vec<(i64, String, Vec<u8>)> = tx.all(listed, [], tuple)?;
    for (tenant, name, sealed) in &tenants {
        let key = present.open(sealed).ok_or_else(|| {
            tx.damaged(&format!("the sealed key of tenant `{name}` does not open"))
        })?;
        let reseal = "UPDATE tenants SET sealed_key = ?2 WHERE tenant = ?1";
        tx.run(reseal, params![tenant, next.seal(&key)])?;
    }
    notes::put_note(tx, KEY_CHECK, &hex::encode(next.check_value()))?;
    Ok(tenants.len() as u64)
}

/// By which the store's key is known; nothing if it has none yet.
pub(crate) fn check_value(tx: &Tx<'_>) -> Result<Vec<u8>> {
    let check = notes::note(tx, KEY_CHECK)?.unwrap_or_default();
    let damaged = |_| tx.damaged("the check value of the master key is not hexadecimal");
    hex::decode(check).map_err(damaged)
}

/// Puts a next key that was left in its place if it is the store's, else takes it away.
pub(crate) fn settle_next(store: &impl Alone, dir: &Path) -> Result<()> {
    match dir.join(MASTER_KEY_NEXT_FILE).exists() {
        true => store.alone(&|tx| settle(tx, dir)),
        false => Ok(()),
    }
}

fn settle(tx: &Tx<'_>, dir: &Path) -> Result<()> {
    let Some(key) = MasterKey::read(&dir.join(MASTER_KEY_NEXT_FILE))? else { return Ok(()) };
    match key.matches(&check_value(tx)?) {
        true => MasterKey::promote_next(dir),
        false => MasterKey::remove_next(dir),
    }
}
