//! Backups and what is restored of them, and moving from one store to another.
//!
//! What is moved is moved as it lies; how, is the store's business. Here it is said what
//! is moved, and what was derived from it on this machine is dropped where it came.

use std::path::Path;
use std::sync::Arc;

use icecore_store::{
    Backup, BackupOf, BackupReport, MasterKey, MigrationReport, Moved, Moving, Objects, Restored,
    Tell, back_up, restore,
};

use crate::error::Result;
use crate::maintenance::Upkeep;

impl Upkeep {
    /// Writes what `of` says to a new file, consistent at one position, whoever writes
    /// meanwhile.
    pub async fn back_up(
        &self,
        of: &BackupOf,
        path: &Path,
        tell: impl Fn(Moved) -> bool + Send + Sync + 'static,
    ) -> Result<BackupReport> {
        let (store, objects, now) = (&self.store, self.objects(), self.clock.now());
        Ok(back_up(store, &objects, of, path, now, &(Arc::new(tell) as _)).await?)
    }

    /// Writes what a backup holds where nothing of it is: all of it or nothing. Indexes of
    /// its memories that are on this machine are dropped, and made anew when asked for.
    pub async fn restore(
        &self,
        backup: &Backup,
        tell: impl Fn(Moved) -> bool + Send + Sync + 'static,
    ) -> Result<Restored> {
        let (store, objects, now) = (&self.store, self.objects(), self.clock.now());
        let restored = restore(store, &objects, backup, now, &(Arc::new(tell) as _)).await?;
        for scope in &restored.scopes {
            self.drop_index(scope).await?;
        }
        self.forget_keys();
        Ok(restored)
    }

    fn moving(&self) -> Moving {
        Moving { store: self.store.clone(), objects: self.objects() }
    }

    fn objects(&self) -> Objects {
        Objects { packs: self.packs.clone(), archives: self.archives.clone() }
    }
}

/// Copies everything from one memory's store to another's, which must be empty or have been
/// filled from there before; `name` is what a person calls the source. It may end at any
/// instruction and be run again. Until it is done, `to` can only be opened with
/// [`MemoryBuilder::half_moved`](crate::MemoryBuilder::half_moved).
pub async fn migrate(
    from: &Upkeep,
    to: &Upkeep,
    name: &str,
    tell: impl Fn(Moved) -> bool + Send + Sync + 'static,
) -> Result<MigrationReport> {
    let now = to.clock.now();
    let tell: Tell = Arc::new(tell);
    Ok(icecore_store::migrate(&from.moving(), &to.moving(), name, now, &tell).await?)
}

/// Reads a backup to its end, before anything is done with it. The master key that it was
/// taken with is the one in `environment`, or in the files of `dir`, or in `key_file`.
pub async fn open_backup(
    path: &Path,
    dir: &Path,
    environment: Option<&str>,
    key_file: Option<&Path>,
    tell: impl Fn(Moved) -> bool + Send + Sync + 'static,
) -> Result<Backup> {
    let keys = MasterKey::at_hand(dir, environment, key_file)?;
    Ok(Backup::open(path, keys, &(Arc::new(tell) as _)).await?)
}
