//! The index of a tenant's memories, kept as a file beside them: read, and written again.

use std::collections::BTreeSet;

use icecore_domain::dream::index::INDEX_MARKDOWN_PATH;
use icecore_domain::dream::{Checksum, INDEX_PATH, MemoryIndex, MemorySection};
use icecore_domain::ids::{Principal, Scope, Tenant};
use icecore_domain::redact::{Hidden, RedactedText, Redactor};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{DEFAULT_CONTENT_TYPE, FilePath, Workspace};
use icecore_store::{
    ArchiveRecord, DreamQuery, DreamRecord, Expect, FileRecord, NewFile, StoreError,
};

use crate::dreams::Dreams;
use crate::error::{MemoryError, Result};
use crate::privacy::secrets::{TenantRedactor, swapped};

/// Dreams that are read at once.
const DREAMS: usize = 256;

/// Limits of the file that a tenant's index is kept in, and of the files beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexFile {
    /// Bytes of the index.
    pub bytes: usize,
    /// Files that a tenant may have in all.
    pub files: u64,
    /// Versions of the index that are kept, the newest included.
    pub versions: u64,
}

impl Default for IndexFile {
    fn default() -> Self {
        Self { bytes: 1 << 20, files: 256, versions: 20 }
    }
}

impl Dreams {
    fn index_limits(&self) -> IndexFile {
        self.index_file.unwrap_or_default()
    }

    /// What the index says of a memory, if there is one.
    pub(crate) async fn index_section(&self, scope: &Scope) -> Result<Option<MemorySection>> {
        let Some(text) = self.index_text(scope.tenant()).await? else { return Ok(None) };
        let index = MemoryIndex::parse(&text);
        Ok(index.memories.into_iter().find(|section| section.memory == scope.memory()))
    }

    /// The text of a tenant's index, without what is secret by now.
    async fn index_text(&self, tenant: &Tenant) -> Result<Option<String>> {
        if self.index_file.is_none() {
            return Ok(None);
        }
        let (_, Some(file)) = self.seen(tenant, INDEX_PATH).await? else { return Ok(None) };
        Ok(Some(match self.veil_of(tenant).await? {
            Some(veil) => veil.text(&file.content).into_string(),
            None => file.content.into_string(),
        }))
    }

    /// The dreams in force of a tenant.
    async fn dreams_in_force(&self, tenant: &Tenant) -> Result<Vec<DreamRecord>> {
        let mut query = DreamQuery { memory: None, in_force: true, before: None, limit: DREAMS };
        let mut found = Vec::new();
        loop {
            let page = self.store.dreams(tenant, &query).await?;
            query.before = page.last().map(|dream| dream.position);
            let is_last = page.len() < DREAMS;
            found.extend(page);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// The archives that dreams in force came to.
    pub(crate) async fn answering(&self, tenant: &Tenant) -> Result<BTreeSet<(Scope, Checksum)>> {
        let dreams = self.dreams_in_force(tenant).await?.into_iter();
        Ok(dreams.map(|dream| (dream.scope, dream.archive)).collect())
    }

    /// The index file with another section of a memory, or without one.
    pub(crate) async fn index_with(
        &self,
        scope: &Scope,
        section: Option<MemorySection>,
        redactor: &Redactor,
        secrets_seen: u64,
        now: Millis,
    ) -> Result<(Workspace, NewFile)> {
        let tenant = scope.tenant();
        let (expect, there) = self.seen(tenant, INDEX_PATH).await?;
        let known = there.as_ref().and_then(|file| MemoryIndex::read(file.content.as_str()));
        let mut index = match known {
            Some(index) => index,
            // Lost, or somebody else's: the dreams in force know what it said.
            None => self.index_of_dreams(tenant).await?,
        };
        index.set(scope.memory(), section);
        let known = TenantRedactor { redactor: redactor.clone(), version: secrets_seen };
        let mut file = self.index_json(known, index, expect)?;
        file.now = now;
        Ok((Principal::local_operator(tenant.clone()).workspace(), file))
    }

    /// Writes the index of a tenant from its dreams in force, where it was lost. A
    /// tenant that has too many files goes without, as does one whose index is not kept.
    pub(crate) async fn write_index_anew(&self, tenant: &Tenant) -> Result<()> {
        let store = &self.store;
        let written = swapped!(async {
            let losses = store.dream_losses(tenant).await?;
            let settled = async || Ok(Some(store.settle_lost_index(tenant, losses).await?));
            if self.index_file.is_none() {
                return settled().await;
            }
            let (expect, there) = self.seen(tenant, INDEX_PATH).await?;
            let index = self.index_of_dreams(tenant).await?;
            if there.is_some_and(|file| MemoryIndex::parse(file.content.as_str()) == index) {
                return settled().await;
            }
            let known = self.redactor(tenant).await?;
            match self.put_own(tenant, self.index_json(known, index, expect)?).await {
                Err(MemoryError::Store(StoreError::TooManyFiles { most })) => {
                    tracing::warn!(
                        tenant = tenant.as_str(),
                        most,
                        "the index is not written again: there are too many files"
                    );
                    settled().await
                }
                put => put,
            }
        });
        written?.ok_or_else(|| kept_changing(INDEX_PATH))
    }

    /// Takes archives out of the index of a tenant, those that answer excepted.
    pub(crate) async fn drop_from_index(
        &self,
        tenant: &Tenant,
        archives: &[ArchiveRecord],
    ) -> Result<()> {
        if self.index_file.is_none() {
            return Ok(());
        }
        let written = swapped!(async {
            let (expect, Some(file)) = self.seen(tenant, INDEX_PATH).await? else {
                return Ok(Some(()));
            };
            let before = MemoryIndex::parse(file.content.as_str());
            let mut index = before.clone();
            for section in &mut index.memories {
                let goes = |checksum: Checksum| {
                    archives.iter().any(|archive| {
                        archive.scope.memory() == section.memory && archive.checksum == checksum
                    })
                };
                section.archives.retain(|archive| !goes(archive.checksum));
            }
            let known = self.redactor(tenant).await?;
            if index == before {
                return Ok(Some(()));
            }
            self.put_own(tenant, self.index_json(known, index, expect)?).await
        });
        written?.ok_or_else(|| kept_changing(INDEX_PATH))
    }

    /// The index as the dreams in force have it, without archives that are gone.
    pub(crate) async fn index_of_dreams(&self, tenant: &Tenant) -> Result<MemoryIndex> {
        let dreams = self.dreams_in_force(tenant).await?;
        let mut index = MemoryIndex::default();
        if dreams.is_empty() {
            return Ok(index);
        }
        let archives = self.store.archives(Some(tenant)).await?.into_iter();
        let there: BTreeSet<(Scope, Checksum)> = archives
            .filter(|archive| archive.key.is_some())
            .map(|archive| (archive.scope, archive.checksum))
            .collect();
        for dream in dreams.into_iter().filter(|dream| dream.index_updated) {
            let memory = dream.scope.memory();
            let Some(mut section) = MemorySection::from_json(memory, dream.section.as_str()) else {
                continue;
            };
            let is_there = |checksum| there.contains(&(dream.scope.clone(), checksum));
            section.archives.retain(|archive| is_there(archive.checksum));
            index.set(memory, Some(section));
        }
        Ok(index)
    }

    /// Writes the readable index beside the other, where one is kept. It has no older
    /// versions: what was forgotten must not be found in them.
    pub(crate) async fn write_markdown(&self, tenant: &Tenant) {
        if !self.settings.dreams.index_markdown || self.index_file.is_none() {
            return;
        }
        if let Err(error) = self.try_to_write_markdown(tenant).await {
            tracing::warn!(%error, "`{INDEX_MARKDOWN_PATH}` could not be written");
        }
    }

    async fn try_to_write_markdown(&self, tenant: &Tenant) -> Result<()> {
        let written = swapped!(async {
            let (expect, there) = self.seen(tenant, INDEX_MARKDOWN_PATH).await?;
            let (_, index) = self.seen(tenant, INDEX_PATH).await?;
            let index = match index.and_then(|file| MemoryIndex::read(file.content.as_str())) {
                Some(index) => index,
                None => self.index_of_dreams(tenant).await?,
            };
            let known = self.redactor(tenant).await?;
            let most = self.index_limits().bytes;
            let (content, hidden) =
                known.redactor.text_counted(&cleaned(&known.redactor, index).to_markdown(most));
            if there.is_some_and(|file| file.content == content) {
                return Ok(Some(()));
            }
            let file = NewFile {
                versions_kept: 1,
                ..self.own_file(&known, INDEX_MARKDOWN_PATH, (content, hidden), expect)?
            };
            self.put_own(tenant, file).await
        });
        written?.ok_or_else(|| kept_changing(INDEX_MARKDOWN_PATH))
    }

    /// A file of ours as it is, and what must be so when it is written anew: it is still
    /// that, and no dream was lost, for what was read of dreams may tell of what is
    /// forgotten since.
    async fn seen(&self, tenant: &Tenant, path: &str) -> Result<(Expect, Option<FileRecord>)> {
        let store = &self.store;
        let losses = store.dream_losses(tenant).await?;
        let path = own_path(&self.redactor(tenant).await?.redactor, path)?;
        let workspace = Principal::local_operator(tenant.clone()).workspace();
        let file = store.file(&workspace, &path, None).await?;
        let last = file.as_ref().map(|file| file.head.position);
        Ok((Expect::Unlost { last, losses }, file))
    }

    fn index_json(
        &self,
        known: TenantRedactor,
        index: MemoryIndex,
        expect: Expect,
    ) -> Result<NewFile> {
        let text = cleaned(&known.redactor, index).to_text(self.index_limits().bytes);
        let text = known.redactor.text_counted(&text);
        let file = self.own_file(&known, INDEX_PATH, text, expect)?;
        Ok(NewFile { content_type: known.redactor.text("application/json"), ..file })
    }

    fn own_file(
        &self,
        known: &TenantRedactor,
        path: &str,
        (content, hidden): (RedactedText, Hidden),
        expect: Expect,
    ) -> Result<NewFile> {
        let limits = self.index_limits();
        Ok(NewFile {
            path: own_path(&known.redactor, path)?,
            content,
            content_type: known.redactor.text(DEFAULT_CONTENT_TYPE),
            expect,
            versions_kept: limits.versions,
            most_files: limits.files,
            now: self.now(),
            secrets_seen: known.version,
            hidden,
            claim: None,
        })
    }

    /// Writes a file of ours, unless something changed meanwhile.
    async fn put_own(&self, tenant: &Tenant, file: NewFile) -> Result<Option<()>> {
        let workspace = Principal::local_operator(tenant.clone()).workspace();
        match self.store.put_file(&workspace, file).await {
            Ok(_) => Ok(Some(())),
            Err(StoreError::FileConflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn kept_changing(path: &str) -> MemoryError {
    MemoryError::Internal(format!("`{path}` kept changing while it was written"))
}

fn own_path(redactor: &Redactor, path: &str) -> Result<FilePath> {
    let path = FilePath::new(redactor.text(path));
    path.map_err(|error| MemoryError::Internal(error.to_string()))
}

/// The index as it may be written. What a secret has turned up in since says less.
fn cleaned(redactor: &Redactor, mut index: MemoryIndex) -> MemoryIndex {
    let clean = |text: &str| redactor.text(text).as_str() == text;
    for section in &mut index.memories {
        section.topics.retain(|topic| clean(&topic.name));
    }
    index.memories.retain(|section| clean(&section.to_json()));
    index
}
