//! The index of a tenant's memories as a workspace file: read, and written again.

use std::collections::BTreeSet;

use icecore_domain::dream::index::INDEX_MARKDOWN_PATH;
use icecore_domain::dream::{Checksum, INDEX_PATH, MemoryIndex, MemorySection};
use icecore_domain::ids::{Principal, Scope, Tenant};
use icecore_store::{ArchiveRecord, DreamQuery, DreamRecord};

use crate::error::{MemoryError, Result};
use crate::memory::{Memory, TRIES};
use crate::workspace::{FileMatch, FileWrite, WorkspaceError};

/// Dreams that are read at once.
const DREAMS: usize = 256;

impl Memory {
    /// What the index says of a memory, if there is one.
    pub(crate) async fn index_section(&self, scope: &Scope) -> Result<Option<MemorySection>> {
        let Some(file) = self.index_file(scope.tenant()).await? else { return Ok(None) };
        let index = MemoryIndex::parse(&file.content);
        Ok(index.memories.into_iter().find(|section| section.memory == scope.memory()))
    }

    async fn index_file(&self, tenant: &Tenant) -> Result<Option<crate::WorkspaceFile>> {
        let operator = Principal::local_operator(tenant.clone());
        match self.file(&operator, INDEX_PATH, None).await {
            Ok(file) => Ok(Some(file)),
            Err(MemoryError::Workspace(WorkspaceError::NotFound { .. } | WorkspaceError::Off)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The dreams in force of a tenant.
    async fn dreams_in_force(&self, tenant: &Tenant) -> Result<Vec<DreamRecord>> {
        let mut query = DreamQuery { memory: None, in_force: true, before: None, limit: DREAMS };
        let mut found = Vec::new();
        loop {
            let page = self.inner.store.dreams(tenant, &query).await?;
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

    /// Writes the index of a tenant from its dreams in force, where it was lost.
    pub(crate) async fn write_index_anew(&self, tenant: &Tenant) -> Result<()> {
        if !self.inner.workspace.enabled {
            return Ok(());
        }
        for _ in 0..TRIES {
            let index = self.index_of_dreams(tenant).await?;
            let expect = match self.index_file(tenant).await? {
                Some(file) if MemoryIndex::parse(&file.content) == index => return Ok(()),
                Some(file) => FileMatch::Tags(vec![file.info.etag]),
                None => FileMatch::Absent,
            };
            if self.put_index(tenant, &index, expect).await? {
                return Ok(());
            }
        }
        Err(MemoryError::Internal(format!("`{INDEX_PATH}` kept changing while it was written")))
    }

    /// Takes archives out of the index of a tenant, those that answer excepted.
    pub(crate) async fn drop_from_index(
        &self,
        tenant: &Tenant,
        archives: &[ArchiveRecord],
    ) -> Result<()> {
        for _ in 0..TRIES {
            let Some(file) = self.index_file(tenant).await? else { return Ok(()) };
            let before = MemoryIndex::parse(&file.content);
            let mut index = before.clone();
            for section in &mut index.memories {
                let goes = |checksum: Checksum| {
                    archives.iter().any(|archive| {
                        archive.scope.memory() == section.memory && archive.checksum == checksum
                    })
                };
                section.archives.retain(|archive| !goes(archive.checksum));
            }
            let expect = FileMatch::Tags(vec![file.info.etag]);
            if index == before || self.put_index(tenant, &index, expect).await? {
                return Ok(());
            }
        }
        Err(MemoryError::Internal(format!("`{INDEX_PATH}` kept changing while it was written")))
    }

    /// The index as the dreams in force have it, without archives that are gone.
    pub(crate) async fn index_of_dreams(&self, tenant: &Tenant) -> Result<MemoryIndex> {
        let dreams = self.dreams_in_force(tenant).await?;
        let mut index = MemoryIndex::default();
        if dreams.is_empty() {
            return Ok(index);
        }
        let archives = self.inner.store.archives(Some(tenant)).await?.into_iter();
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
        let written = async {
            if !self.drop_markdown(tenant).await? {
                return Ok(());
            }
            let index = self.index_of_dreams(tenant).await?;
            let file = FileWrite {
                path: INDEX_MARKDOWN_PATH.to_owned(),
                content: index.to_markdown(self.inner.workspace.file_bytes),
                content_type: None,
                expect: FileMatch::Anything,
                claim: None,
            };
            self.put_file(&Principal::local_operator(tenant.clone()), file).await.map(drop)
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "`{INDEX_MARKDOWN_PATH}` could not be written");
        }
    }

    /// Deletes the readable index with all its versions; false where none is kept.
    pub(crate) async fn drop_markdown(&self, tenant: &Tenant) -> Result<bool> {
        if !self.inner.settings.dreams.index_markdown || !self.inner.workspace.enabled {
            return Ok(false);
        }
        let operator = Principal::local_operator(tenant.clone());
        match self.delete_file(&operator, INDEX_MARKDOWN_PATH, &FileMatch::Anything).await {
            Ok(()) | Err(MemoryError::Workspace(WorkspaceError::NotFound { .. })) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Writes the index; false if it changed meanwhile.
    async fn put_index(
        &self,
        tenant: &Tenant,
        index: &MemoryIndex,
        expect: FileMatch,
    ) -> Result<bool> {
        let operator = Principal::local_operator(tenant.clone());
        let file = FileWrite {
            path: INDEX_PATH.to_owned(),
            content: index.to_text(self.inner.workspace.file_bytes),
            content_type: Some("application/json".to_owned()),
            expect,
            claim: None,
        };
        match self.put_file(&operator, file).await {
            Ok(_) => Ok(true),
            Err(MemoryError::Workspace(WorkspaceError::Conflict { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
