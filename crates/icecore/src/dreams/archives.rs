//! Archives of dreams: read back, verified, let go.
//!
//! An archive's body lies beside the packs under a random name, sealed with a key of its
//! own that the store holds. Where the key is gone the address stays, and says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use icecore_domain::dream::{Archive, Checksum, Distillate, Line};
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::{RedactedText, Redactor};
use icecore_domain::time::Millis;
use icecore_store::{ArchiveRecord, DreamQuery, DreamRecord, PackKey, StoreError, open_archive};

use crate::dreams::Dreams;
use crate::error::{MemoryError, Result, off_thread};
use crate::layers::let_go;

/// How the archives are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArchiveReport {
    /// Archives whose bytes have their address.
    pub sound: u64,
    /// Archives that were erased.
    pub erased: u64,
    /// Archives past their retention.
    pub expired: u64,
    /// Bodies that nothing refers to, which a crash left.
    pub orphans: u64,
    /// What is wrong, by address.
    pub damaged: Vec<(Checksum, String)>,
}

/// Archives that are kept open.
const OPENED: usize = 16;

const DAY_MILLIS: i64 = 24 * 3600 * 1000;

/// Why there is no body any more.
const ERASED: &str = "something that it was made of was forgotten, and its key destroyed";
const EXPIRED: &str = "it was taken back or is past its retention, and its key destroyed";

/// Archives that were opened lately, by the names of their bodies: a body never changes,
/// and one that was erased has no name any more.
#[derive(Default)]
pub(crate) struct ArchiveCache(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    opened: BTreeMap<String, (u64, Arc<Archive>)>,
    uses: u64,
}

impl ArchiveCache {
    fn get(&self, name: &str) -> Option<Arc<Archive>> {
        let mut kept = self.0.lock().ok()?;
        kept.uses += 1;
        let now = kept.uses;
        let (used, archive) = kept.opened.get_mut(name)?;
        *used = now;
        Some(Arc::clone(archive))
    }

    fn put(&self, name: &str, archive: &Arc<Archive>) {
        let Ok(mut kept) = self.0.lock() else { return };
        kept.uses += 1;
        let now = kept.uses;
        kept.opened.insert(name.to_owned(), (now, Arc::clone(archive)));
        while kept.opened.len() > OPENED {
            let oldest = kept.opened.iter().min_by_key(|(_, (used, _))| *used);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { break };
            kept.opened.remove(&name);
        }
    }

    /// Lets all of it go.
    pub(crate) fn clear(&self) {
        if let Ok(mut kept) = self.0.lock() {
            kept.opened.clear();
        }
    }
}

impl Dreams {
    /// The archives of a tenant, or of one of its memories, newest first, also those
    /// that were erased or are past their retention.
    pub async fn archives(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
    ) -> Result<Vec<ArchiveRecord>> {
        let mut archives = self.store.archives(Some(tenant)).await?;
        archives.retain(|archive| memory.is_none_or(|memory| archive.scope.memory() == memory));
        Ok(archives)
    }

    /// The bytes of an archive, whose SHA-256 is its address. One that was erased or is
    /// past its retention, that is damaged or that holds what is a secret now, is an
    /// error that says so.
    pub async fn archive(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        checksum: Checksum,
    ) -> Result<Vec<u8>> {
        let (_, archive) = self.find_archive(tenant, memory, checksum).await?;
        // Opening it has compared its bytes with these, to the last.
        off_thread(move || archive.to_bytes()).await
    }

    /// An archive that may be read: whole, and without what is a secret now.
    pub(crate) async fn find_archive(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        checksum: Checksum,
    ) -> Result<(ArchiveRecord, Arc<Archive>)> {
        let (record, archive) = self.whole_archive(tenant, memory, checksum).await?;
        let tells = match self.veil_of(tenant).await? {
            Some(veil) => {
                let archive = Arc::clone(&archive);
                off_thread(move || tells(&archive, |text| veil.text_of(text))).await?
            }
            None => false,
        };
        match tells {
            true => Err(MemoryError::ArchiveTells { checksum: checksum.to_string() }),
            false => Ok((record, archive)),
        }
    }

    /// What a dream in force came to. Where its archive is damaged, that is what its
    /// entry says, if that is all of it.
    pub(crate) async fn distillate_of(
        &self,
        scope: &Scope,
        dream: &DreamRecord,
    ) -> Result<Distillate> {
        let memory = Some(scope.memory());
        let damage = match self.find_archive(scope.tenant(), memory, dream.archive).await {
            Ok((_, archive)) => return Ok(archive.distillate.clone()),
            Err(damage @ MemoryError::ArchiveDamaged { .. }) => damage,
            Err(error) => return Err(error),
        };
        let entry = self.store.entry(scope, &dream.output, None, self.now()).await?;
        let whole =
            entry.filter(|entry| !entry.content.as_str().ends_with(&pointer(dream.archive)));
        let Some(entry) = whole else { return Err(damage) };
        tracing::warn!(%scope, error = %damage, "a dream goes on from the entry of the last one");
        Ok(Distillate::read(entry.content.as_str()))
    }

    async fn whole_archive(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        checksum: Checksum,
    ) -> Result<(ArchiveRecord, Arc<Archive>)> {
        // A body is no part of the transaction that finds it: it may be erased, or written
        // anew under another name, before it is read.
        let mut unread = String::new();
        loop {
            let mut found = self.store.archives_at(tenant, checksum).await?;
            found.retain(|archive| memory.is_none_or(|memory| archive.scope.memory() == memory));
            // Several memories may have come to the same: any body will do.
            let place = found.iter().position(|archive| archive.key.is_some());
            let Some(record) = place.map(|place| found.swap_remove(place)) else {
                return Err(match found.first() {
                    Some(gone) => gone_error(gone),
                    None => MemoryError::NoArchive { checksum: checksum.to_string() },
                });
            };
            match self.open_body(&record).await? {
                Ok(archive) => return Ok((record, archive)),
                Err(_) if record.name != unread => unread = record.name,
                Err(reason) => {
                    return Err(MemoryError::ArchiveDamaged {
                        checksum: checksum.to_string(),
                        reason,
                    });
                }
            }
        }
    }

    /// Opens an archive's body, or says what is wrong with it.
    async fn open_body(
        &self,
        record: &ArchiveRecord,
    ) -> Result<std::result::Result<Arc<Archive>, String>> {
        if let Some(archive) = self.opened_archives.get(&record.name) {
            return Ok(Ok(archive));
        }
        let opened = self.read_body(record, Reading::AnyCopy).await?;
        if let Ok(archive) = &opened {
            self.opened_archives.put(&record.name, archive);
        }
        Ok(opened)
    }

    async fn read_body(
        &self,
        record: &ArchiveRecord,
        reading: Reading,
    ) -> Result<std::result::Result<Arc<Archive>, String>> {
        let Some(key) = record.key.clone() else { return Ok(Err("it has no key".to_owned())) };
        let (objects, name) = (&self.archives, &record.name);
        let read = match reading {
            Reading::AnyCopy => objects.get(name, &record.sha256).await,
            Reading::WhereItLies => objects.get_lying(name, &record.sha256).await,
        };
        let body = match read {
            Ok(body) => body,
            Err(StoreError::PackDamaged { .. }) => {
                return Ok(Err("its body is not the one that was written".to_owned()));
            }
            Err(StoreError::PackMissing { name }) => {
                return Ok(Err(format!("its body `{name}` is missing")));
            }
            Err(error) => return Err(error.into()),
        };
        let checksum = record.checksum;
        off_thread(move || opened(&body, checksum, &key).map(Arc::new)).await
    }

    /// Opens every archive, of one tenant or all, and compares its bytes with its
    /// address. `tell` hears how many are done, and of how many.
    pub async fn verify_archives(
        &self,
        tenant: Option<&Tenant>,
        mut tell: impl FnMut(u64, u64) + Send,
    ) -> Result<ArchiveReport> {
        let records = self.store.archives(tenant).await?;
        let total = records.len() as u64;
        let mut report = ArchiveReport::default();
        for (number, record) in (1..).zip(records) {
            match self.verify_archive(record.clone()).await? {
                Verified::Sound => report.sound += 1,
                Verified::Erased => report.erased += 1,
                Verified::Expired => report.expired += 1,
                Verified::Damaged(problem) => report.damaged.push((record.checksum, problem)),
                Verified::NotThere => {}
            }
            tell(number, total);
        }
        report.orphans = self.orphan_archives().await?.len() as u64;
        Ok(report)
    }

    /// Reads the body itself, not what is kept open. What seems damaged is looked up once
    /// more: it may have been erased, or written anew under another name, meanwhile.
    async fn verify_archive(&self, record: ArchiveRecord) -> Result<Verified> {
        let mut record = Some(record);
        let mut unread = String::new();
        loop {
            let Some(looked_at) = record.take() else { return Ok(Verified::NotThere) };
            if looked_at.erased_at.is_some() {
                return Ok(Verified::Erased);
            }
            if looked_at.key.is_none() {
                return Ok(Verified::Expired);
            }
            match self.read_body(&looked_at, Reading::WhereItLies).await? {
                Ok(_) => return Ok(Verified::Sound),
                Err(_) if looked_at.name != unread => unread = looked_at.name,
                Err(problem) => return Ok(Verified::Damaged(problem)),
            }
            let ArchiveRecord { scope, checksum, .. } = looked_at;
            let again = self.store.archives_at(scope.tenant(), checksum).await?;
            record = again.into_iter().find(|record| record.scope == scope);
        }
    }

    /// Bodies of archives that no key opens: left by a crash before the archive was
    /// kept, or after its key was destroyed.
    pub(crate) async fn orphan_archives(&self) -> Result<Vec<icecore_store::PackObject>> {
        // Listed first: a body is written before it is recorded.
        let mut objects = self.archives.list().await?;
        if !objects.is_empty() {
            let recorded = self.recorded_archives().await?;
            objects.retain(|object| !recorded.contains(&object.name));
        }
        Ok(objects)
    }

    /// The names of bodies that have a key.
    async fn recorded_archives(&self) -> Result<BTreeSet<String>> {
        let archives = self.store.archives(None).await?.into_iter();
        Ok(archives.filter(|archive| archive.key.is_some()).map(|archive| archive.name).collect())
    }

    /// Deletes the bodies of a tenant's archives whose keys are gone.
    pub(crate) async fn delete_lost_bodies(&self, tenant: &Tenant) -> Result<()> {
        self.opened_archives.clear();
        self.distilled.clear();
        let lying = match self.archives.list().await {
            // Nobody can read them any more; the sweep finds them.
            Err(error) if error.is_out_of_reach() => {
                tracing::warn!(%error, "bodies of archives without a key are left to the sweep");
                return Ok(());
            }
            lying => lying?,
        };
        if lying.is_empty() {
            return Ok(());
        }
        let lying: BTreeSet<String> = lying.into_iter().map(|object| object.name).collect();
        for archive in self.store.archives(Some(tenant)).await? {
            if archive.key.is_none() && lying.contains(&archive.name) {
                let_go(&self.archives, &archive.name).await?;
            }
        }
        Ok(())
    }

    /// Lets go of archives that hold what is a secret now, though nothing that is still
    /// there does: of those that answer by taking back their dreams, which are dreamt anew.
    pub(crate) async fn let_go_of_telling(
        &self,
        tenant: &Tenant,
        redactor: &Redactor,
    ) -> Result<()> {
        for record in self.store.archives(Some(tenant)).await? {
            if record.key.is_none() {
                continue;
            }
            // One that is damaged tells nobody anything.
            let Ok(archive) = self.open_body(&record).await? else { continue };
            let redactor = redactor.clone();
            if !off_thread(move || tells(&archive, |text| redactor.text(text))).await? {
                continue;
            }
            let (scope, store) = (&record.scope, &self.store);
            let has_key = |found: Vec<ArchiveRecord>| {
                found.iter().any(|found| found.scope == *scope && found.key.is_some())
            };
            while !store.expire_archive(scope, record.checksum, self.now()).await?
                && has_key(store.archives_at(tenant, record.checksum).await?)
            {
                let query = DreamQuery {
                    memory: Some(scope.memory().to_owned()),
                    in_force: true,
                    before: None,
                    limit: 1,
                };
                // It is in force, or newer ones were made of it.
                match store.dreams(tenant, &query).await?.pop() {
                    // Noted first: after a crash it is dreamt anew all the same.
                    Some(dream) => {
                        store.note_lost_dreams(scope, dream.figures.budget).await?;
                        self.undo_dream(tenant, &dream.run).await?;
                    }
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Lets go of archives past `archive_retention_days` that a newer one supersedes:
    /// first the index names them no more, then their keys are destroyed, then their
    /// bodies deleted. Answers how many.
    pub(crate) async fn expire_archives(&self) -> Result<u64> {
        let days = self.settings.dreams.archive_retention_days;
        if days == 0 {
            return Ok(0);
        }
        let now = self.clock.now();
        let before = Millis(now.0 - i64::from(days) * DAY_MILLIS);
        let mut due: BTreeMap<Tenant, Vec<ArchiveRecord>> = BTreeMap::new();
        for archive in self.store.archives(None).await? {
            if archive.key.is_some() && archive.created_at < before {
                due.entry(archive.scope.tenant().clone()).or_default().push(archive);
            }
        }
        let mut expired = 0;
        for (tenant, mut archives) in due {
            let answering: BTreeSet<(Scope, Checksum)> = self.answering(&tenant).await?;
            archives.retain(|one| !answering.contains(&(one.scope.clone(), one.checksum)));
            if archives.is_empty() {
                continue;
            }
            self.drop_from_index(&tenant, &archives).await?;
            self.write_markdown(&tenant).await;
            for archive in archives {
                let store = &self.store;
                if store.expire_archive(&archive.scope, archive.checksum, now).await? {
                    let_go(&self.archives, &archive.name).await?;
                    expired += 1;
                }
            }
            self.opened_archives.clear();
        }
        Ok(expired)
    }
}

/// Ends the entry of a dream that does not hold all that it came to.
pub(crate) fn pointer(checksum: Checksum) -> String {
    format!("The whole of it is in archive {checksum}.")
}

/// Where a body may come from.
#[derive(Clone, Copy)]
enum Reading {
    AnyCopy,
    WhereItLies,
}

enum Verified {
    Sound,
    Erased,
    Expired,
    Damaged(String),
    NotThere,
}

fn gone_error(archive: &ArchiveRecord) -> MemoryError {
    let reason = if archive.erased_at.is_some() { ERASED } else { EXPIRED };
    MemoryError::ArchiveGone { checksum: archive.checksum.to_string(), reason }
}

fn opened(body: &[u8], checksum: Checksum, key: &PackKey) -> std::result::Result<Archive, String> {
    Archive::parse(&open_archive(body, checksum, key)?).map_err(|error| error.to_string())
}

/// Whether an archive holds what is a secret now. Its hashes and words of ours are none.
fn tells(archive: &Archive, hide: impl Fn(&str) -> RedactedText) -> bool {
    let texts = |line: &Line| [Some(line.text.clone()), line.before.clone()];
    let mut texts = archive.distillate.lines.iter().flat_map(texts).flatten();
    texts.any(|text| hide(&text).as_str() != text)
}
