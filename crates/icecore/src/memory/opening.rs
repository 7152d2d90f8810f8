//! Opening a memory: which store it is over, and what comes with that.

use std::path::Path;
use std::sync::Arc;

use icecore_domain::ids::Tenant;
use icecore_domain::time::Clock;
#[cfg(feature = "postgres")]
use icecore_domain::time::Millis;
#[cfg(feature = "postgres")]
use icecore_store::PostgresOptions;
use icecore_store::{
    MOVING, ObjectKeys, ObjectSettings, Packs, Rotated, Store, StoreError, half_moved_from,
};
use zeroize::Zeroizing;

use crate::base::SystemClock;
use crate::error::{MemoryError, Result, off_thread};
use crate::memory::Memory;
use crate::memory::MemoryBuilder;

/// A database that several hosts share.
#[cfg(feature = "postgres")]
#[derive(Clone)]
pub(crate) struct Shared {
    url: Zeroizing<String>,
    options: PostgresOptions,
}

impl MemoryBuilder {
    /// Keeps the memory in a PostgreSQL, by its URL, instead of in SQLite in the
    /// directory. Any number of hosts may share it; all have the same master key.
    #[cfg(feature = "postgres")]
    pub fn postgres(mut self, url: &str, options: PostgresOptions) -> Self {
        self.shared = Some(Shared { url: Zeroizing::new(url.to_owned()), options });
        self
    }

    /// Keeps packs and archives where the settings say, instead of in the directory.
    /// `keys` say who we are, where that is asked.
    pub fn objects(mut self, settings: ObjectSettings, keys: Option<ObjectKeys>) -> Self {
        (self.objects, self.object_keys) = (settings, keys);
        self
    }

    /// Opens also a store that is being filled from another, to go on with that.
    pub fn half_moved(mut self) -> Self {
        self.may_be_half_moved = true;
        self
    }

    /// The newest value of a secret that a tenant registered in the memory in `dir`, such
    /// as the key of a model that the memory is to be opened with.
    pub async fn secret(
        &self,
        dir: &Path,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Zeroizing<String>>> {
        let secrets = self.open_store(dir).await?.secrets(tenant).await?;
        let newest = secrets.secrets.iter().rev().find(|secret| secret.name().as_str() == name);
        Ok(newest.map(|secret| Zeroizing::new(secret.value().to_owned())))
    }

    /// Gives the store a new master key, as [`Store::rotate_master_key`] does for one
    /// in `dir`, and `Store::rotate_shared_master_key` for one that hosts share. What the
    /// old key sealed is gone from the files of the former after [`Store::scrub`].
    pub async fn rotate_master_key(
        &self,
        dir: &Path,
        new: Option<Zeroizing<String>>,
    ) -> Result<Rotated> {
        let (dir, present) = (dir.to_owned(), self.master_key.clone().map(Zeroizing::new));
        #[cfg(feature = "postgres")]
        let shared = self.shared.clone();
        off_thread(move || {
            let (present, new) = (present.as_ref(), new.as_ref());
            let (present, new) = (present.map(|key| key.as_str()), new.map(|key| key.as_str()));
            #[cfg(feature = "postgres")]
            if let Some(Shared { url, options }) = shared {
                make_private(&dir)?;
                return Ok(Store::rotate_shared_master_key(&url, options, &dir, present, new)?);
            }
            Ok(Store::rotate_master_key(&dir, present, new)?)
        })
        .await?
    }

    /// Opens the memory in `dir`, which is made if it is not there.
    pub async fn open(mut self, dir: &Path) -> Result<Memory> {
        let store = self.open_store(dir).await?;
        let (path, settings, keys) =
            (dir.to_owned(), self.objects.clone(), self.object_keys.take());
        let (packs, archives) =
            off_thread(move || Ok::<_, MemoryError>(Packs::at(&settings, keys.as_ref(), &path)?))
                .await??;
        #[cfg(feature = "postgres")]
        if self.shared.is_some() {
            warn_of_scattered(&store, &packs, dir).await?;
        }
        if self.archives.is_none() {
            self = self.archives(archives);
        }
        #[cfg(feature = "postgres")]
        if self.shared.is_some() && self.clock.is_none() {
            self.clock = Some(Arc::new(StoreClock(store.clone())));
        }
        let memory = self.over(store, packs, Some(dir.to_owned()));
        #[cfg(feature = "postgres")]
        memory.listen();
        Ok(memory)
    }

    /// Opens the store, unless it is being filled from another: half of it is no memory.
    async fn open_store(&self, dir: &Path) -> Result<Store> {
        let store = self.open_any_store(dir).await?;
        match store.note(MOVING).await? {
            Some(note) if !self.may_be_half_moved => {
                Err(StoreError::HalfMoved { from: half_moved_from(&note) }.into())
            }
            _ => Ok(store),
        }
    }

    async fn open_any_store(&self, dir: &Path) -> Result<Store> {
        let key = self.master_key.clone();
        #[cfg(feature = "postgres")]
        if let Some(Shared { url, options }) = self.shared.clone() {
            let dir = dir.to_owned();
            return off_thread(move || {
                make_private(&dir)?;
                Ok(match key {
                    Some(key) => Store::connect(&url, options, &key)?,
                    None => Store::connect_from(&url, options, &dir)?,
                })
            })
            .await?;
        }
        let dir = dir.to_owned();
        off_thread(move || Ok(Store::open(&dir, key.as_deref())?)).await?
    }
}

/// Makes the directory of a host, for its owner alone, if it is not there.
#[cfg(feature = "postgres")]
fn make_private(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let failed = |source| StoreError::Io { action: "make", path: dir.into(), source };
    Ok(std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?)
}

/// Note under which a shared store says where its packs and archives are.
#[cfg(feature = "postgres")]
const OBJECTS_NOTE: &str = "objects";

/// What the note says where all hosts reach them.
#[cfg(feature = "postgres")]
const SHARED: &str = "shared";

/// Packs in the files of one host are of no use to another: it is said where several would
/// have some.
#[cfg(feature = "postgres")]
async fn warn_of_scattered(store: &Store, packs: &Packs, dir: &Path) -> Result<()> {
    let here = match packs.is_shared() {
        true => SHARED.to_owned(),
        false => format!("files {}", own_name(dir).await?),
    };
    match store.note(OBJECTS_NOTE).await? {
        Some(there) if there == here => Ok(()),
        Some(_) if here != SHARED => {
            tracing::warn!(
                dir = %dir.display(),
                "other hosts cannot read packs and archives in the files of this one; name a \
                 place that all reach with `[objects] url` or ICECORE_OBJECTS"
            );
            Ok(())
        }
        _ => Ok(store.put_note(OBJECTS_NOTE, &here).await?),
    }
}

/// What tells a data directory from others.
#[cfg(feature = "postgres")]
async fn own_name(dir: &Path) -> Result<String> {
    let path = dir.join("objects.id");
    off_thread(move || {
        let failed = |source| StoreError::Io { action: "name", path: path.clone(), source };
        if !path.exists() {
            std::fs::write(&path, Packs::new_name()).map_err(failed)?;
        }
        Ok(std::fs::read_to_string(&path).map_err(failed)?)
    })
    .await?
}

/// The database's time; the machine's own until that is known.
#[cfg(feature = "postgres")]
struct StoreClock(Store);

#[cfg(feature = "postgres")]
impl Clock for StoreClock {
    fn now(&self) -> Millis {
        self.0.clock().unwrap_or_else(|| SystemClock.now())
    }
}

impl Memory {
    /// Has those look who wait for news, whenever another host may have some.
    #[cfg(feature = "postgres")]
    fn listen(&self) {
        let parts = Arc::downgrade(&self.parts);
        self.store.listen(move |_| {
            if let Some(parts) = parts.upgrade() {
                parts.wake.notify_one();
                parts.news.send_modify(|news| *news += 1);
            }
        });
    }

    /// Resolves when somebody, here or on another host, may have changed something since
    /// the receiver last looked. It may miss changes of other processes: look now and then
    /// without it, too.
    pub fn news(&self) -> tokio::sync::watch::Receiver<u64> {
        self.news.subscribe()
    }
}

/// What a memory goes by that was given no clock.
pub(crate) fn clock_or_own(clock: Option<Arc<dyn Clock>>) -> Arc<dyn Clock> {
    clock.unwrap_or_else(|| Arc::new(SystemClock))
}
