//! Workspace files: small texts that agents share beside the memory.
//!
//! A file has a path and versions from 1 on; the last is the file. Its content goes
//! through the redactor as everything does. A path that holds a secret is refused
//! rather than rewritten: nobody could find the file again.
//!
//! [`Memory::forget`] leaves files alone. They are nobody's turns or entries, and
//! whoever wrote one can delete it, with all its versions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use icecore_domain::ids::{Position, Principal, Tenant};
use icecore_domain::redact::{Hidden, RedactedText, Redactor};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{
    DEFAULT_CONTENT_TYPE, FilePath, MAX_CONTENT_TYPE_BYTES, PathError, Workspace, check_path,
    is_content_type,
};
use icecore_settings::settings;
use icecore_store::{Claim, Expect, FileHead, FileRecord, NewFile, StoreError};
use sha2::{Digest, Sha256};

use crate::error::{MemoryError, Result, off_thread};
use crate::memory::{INLINE_BYTES, Memory};
use crate::pieces::in_pieces;
use crate::secrets::TenantRedactor;
use crate::secrets::write_redacted;
use crate::veil::Veil;

settings! {
    /// Limits on workspace files.
    #[derive(PartialEq, Eq, Copy)]
    pub struct WorkspaceSettings {
        /// Offers workspace files at all.
        enabled: bool = true;
        /// The largest content of a file.
        file_bytes: usize = 1 << 20, 1..=1 << 28;
        /// Files of one workspace.
        files: u64 = 256, 1..=100_000;
        /// Versions of a file that are kept, the last among them.
        versions: u64 = 20, 1..=100_000 => advanced;
    }
}

/// Something that cannot be done with a workspace file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// Workspaces are switched off.
    #[error("this memory keeps no workspace files: `workspace.enabled` is false")]
    Off,
    /// A path that cannot be one.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path or a content type that holds a secret.
    #[error("the {what} of a file may not hold a secret")]
    Secret {
        /// `path` or `content type`.
        what: &'static str,
    },
    /// A content type that is none.
    #[error(
        "a content type is a media type such as {DEFAULT_CONTENT_TYPE}, of at most {MAX_CONTENT_TYPE_BYTES} bytes"
    )]
    ContentType,
    /// More content than a file may have.
    #[error("a file has at most {most} bytes (`workspace.file_bytes`), and this one has {bytes}")]
    TooLarge {
        /// What it has.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// More files than a workspace may have.
    #[error("a workspace has at most {most} files (`workspace.files`)")]
    TooMany {
        /// The most.
        most: u64,
    },
    /// The file, or the version of it, is not there.
    #[error("there is no file `{path}`, or not this version of it")]
    NotFound {
        /// Its path.
        path: String,
    },
    /// The file is not what the caller expects.
    #[error("the file is not as expected: its version is {current}")]
    Conflict {
        /// Its last version; 0 where there is none.
        current: u64,
    },
}

impl WorkspaceError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            WorkspaceError::Off => "set `workspace.enabled = true`",
            WorkspaceError::Secret { .. } => "name it by what it is for",
            WorkspaceError::TooLarge { .. } => "split it into several files",
            WorkspaceError::TooMany { .. } => "delete files that are out of use",
            WorkspaceError::Conflict { .. } => "read the file again and write what follows from it",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// What a caller expects of a file that it writes or deletes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FileMatch {
    /// Nothing: whatever is there gets a next version.
    #[default]
    Anything,
    /// That there is one.
    Present,
    /// That there is none.
    Absent,
    /// That its entity tag is one of these.
    Tags(Vec<String>),
}

/// A file to write.
#[derive(Debug, Clone, Default)]
pub struct FileWrite {
    /// Where.
    pub path: String,
    /// What it shall hold.
    pub content: String,
    /// Its media type; `text/markdown` where none is named.
    pub content_type: Option<String>,
    /// What must be there.
    pub expect: FileMatch,
    /// The caller's idempotency key.
    pub claim: Option<Claim>,
}

/// A version of a file, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Where.
    pub path: String,
    /// Its media type.
    pub content_type: String,
    /// Which version.
    pub version: u64,
    /// Tells this version from any other, in quotes as in HTTP. A secret that is
    /// hidden in it later leaves the tag as it is.
    pub etag: String,
    /// When it was written.
    pub updated_at: Millis,
}

/// A version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceFile {
    /// All but its content.
    pub info: FileInfo,
    /// What it holds.
    pub content: String,
}

impl Memory {
    /// What bounds workspaces here.
    pub fn workspace(&self) -> &WorkspaceSettings {
        &self.inner.workspace
    }

    /// Writes the next version of a file, all or nothing; see [`FileMatch`] for how
    /// two writers keep out of each other's way.
    pub async fn put_file(&self, principal: &Principal, file: FileWrite) -> Result<WorkspaceFile> {
        let settings = *self.workspace_on()?;
        check_path(&file.path).map_err(WorkspaceError::from)?;
        let bytes = file.content.len();
        if bytes > settings.file_bytes {
            return Err(WorkspaceError::TooLarge { bytes, most: settings.file_bytes }.into());
        }
        let workspace = principal.workspace();
        write_redacted(|| self.put_file_once(&workspace, &file, &settings)).await
    }

    async fn put_file_once(
        &self,
        workspace: &Workspace,
        file: &FileWrite,
        settings: &WorkspaceSettings,
    ) -> Result<WorkspaceFile> {
        let known = self.redactor(workspace.tenant()).await?;
        let path = clean_path(&known.redactor, &file.path)?;
        let content_type = clean_type(&known.redactor, file.content_type.as_deref())?;
        let expect = self.expected(workspace, &path, &file.expect).await?;
        let secrets_seen = known.version;
        let (content, hidden) = redacted(known, file.content.clone()).await?;
        let claim = file.claim.clone();
        let file = NewFile {
            path,
            content,
            content_type,
            expect,
            versions_kept: settings.versions,
            most_files: settings.files,
            now: self.now(),
            secrets_seen,
            hidden,
            claim,
        };
        let taking = self.take_text(workspace.tenant(), file.content.as_str()).await?;
        let written = self.inner.store.put_file(workspace, file).await.map_err(refused);
        let written = written.inspect_err(|error| self.inner.counters.refused(error))?;
        taking.keep_all();
        Ok(written.into())
    }

    /// What a written file holds and of which media type it is, its secrets hidden by
    /// what is known of the tenant's secrets here and now.
    pub async fn shown_file(
        &self,
        tenant: &Tenant,
        file: &FileWrite,
    ) -> Result<(RedactedText, RedactedText)> {
        let known = self.redactor(tenant).await?;
        let kind = file.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE);
        let kind = known.redactor.text(kind);
        let (content, _) = redacted(known, file.content.clone()).await?;
        Ok((content, kind))
    }

    /// A version of a file, or its last. What was written before a secret was
    /// registered is shown without it.
    pub async fn file(
        &self,
        principal: &Principal,
        path: &str,
        version: Option<u64>,
    ) -> Result<WorkspaceFile> {
        self.workspace_on()?;
        let workspace = principal.workspace();
        let path = self.known_path(&workspace, path).await?;
        let found = self.veiled_file(&workspace, &path, version).await?;
        found.map(WorkspaceFile::from).ok_or_else(|| not_found(&path))
    }

    /// The files whose paths begin with `prefix`, by path. One whose path turned
    /// out to hold a secret is left out until [`Memory::rescan`] names it anew.
    pub async fn files(&self, principal: &Principal, prefix: &str) -> Result<Vec<FileInfo>> {
        self.workspace_on()?;
        let workspace = principal.workspace();
        let mut heads = self.inner.store.files(&workspace, prefix).await?;
        if let Some(veil) = self.veil_of(workspace.tenant()).await? {
            let mut shown: Vec<Option<FileHead>> = heads.into_iter().map(Some).collect();
            in_pieces(
                &mut shown,
                |_| LISTED_BYTES,
                move |head| {
                    *head = head.take().filter(|head| veil.shows_path(head)).map(|mut head| {
                        veil.head(&mut head);
                        head
                    });
                    Ok(())
                },
            )
            .await?;
            heads = shown.into_iter().flatten().collect();
        }
        Ok(heads.into_iter().map(FileInfo::from).collect())
    }

    /// Deletes a file with all its versions. One that is written at the same path
    /// later begins at version 1.
    pub async fn delete_file(
        &self,
        principal: &Principal,
        path: &str,
        expect: &FileMatch,
    ) -> Result<()> {
        self.workspace_on()?;
        let workspace = principal.workspace();
        let path = self.known_path(&workspace, path).await?;
        let expect = self.expected(&workspace, &path, expect).await?;
        let store = &self.inner.store;
        match store.delete_file(&workspace, &path, expect, self.now()).await.map_err(refused)? {
            true => {
                self.tidy_soon();
                Ok(())
            }
            false => Err(not_found(&path)),
        }
    }

    /// Has what was deleted leave the store's side files, beside all other work. What
    /// somebody who reads holds back is tried again.
    fn tidy_soon(&self) {
        self.inner.tidying.is_due.store(true, Ordering::SeqCst);
        let inner = self.inner.clone();
        tokio::spawn(async move {
            // One at a time: whoever waited finds that it was done on the way.
            let _alone = inner.tidying.alone.lock().await;
            if !inner.tidying.is_due.swap(false, Ordering::SeqCst) {
                return;
            }
            for attempt in 0..TIDY_TRIES {
                match inner.store.tidy().await {
                    Ok(true) => return,
                    Ok(false) => tokio::time::sleep(TIDY_PAUSE * 2_u32.pow(attempt)).await,
                    Err(error) => {
                        tracing::warn!(error = %error, "deleted files could not be cleared away");
                        return;
                    }
                }
            }
            tracing::warn!("deleted files are still in the write-ahead log, which is being read");
        });
    }

    fn workspace_on(&self) -> Result<&WorkspaceSettings> {
        match &self.inner.workspace {
            settings if settings.enabled => Ok(settings),
            _ => Err(WorkspaceError::Off.into()),
        }
    }

    async fn known_path(&self, workspace: &Workspace, path: &str) -> Result<FilePath> {
        check_path(path).map_err(WorkspaceError::from)?;
        clean_path(&self.redactor(workspace.tenant()).await?.redactor, path)
    }

    async fn veiled_file(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        version: Option<u64>,
    ) -> Result<Option<FileRecord>> {
        let mut found = self.inner.store.file(workspace, path, version).await?;
        if found.is_none() {
            return Ok(found);
        }
        if let Some(veil) = self.veil_of(workspace.tenant()).await? {
            let size = |file: &FileRecord| file.content.as_str().len();
            in_pieces(found.as_mut(), size, move |file| {
                file.content = veil.text(&file.content);
                veil.head(&mut file.head);
                Ok(())
            })
            .await?;
        }
        Ok(found)
    }

    /// What must be there, as the store compares it within the write.
    async fn expected(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        expect: &FileMatch,
    ) -> Result<Expect> {
        let tags = match expect {
            FileMatch::Anything => return Ok(Expect::Anything),
            FileMatch::Present => return Ok(Expect::Present),
            FileMatch::Absent => return Ok(Expect::Absent),
            FileMatch::Tags(tags) => tags,
        };
        let head = self.inner.store.file(workspace, path, None).await?.map(|file| file.head);
        match head {
            // A position is that of one write, so that what was compared here is
            // what is replaced there.
            Some(head) if tags.contains(&etag(&head)) => Ok(Expect::At(head.position)),
            head => {
                let current = head.map_or(0, |head| head.version);
                Err(WorkspaceError::Conflict { current }.into())
            }
        }
    }
}

impl Veil {
    fn shows_path(&self, head: &FileHead) -> bool {
        self.text_of(head.path.as_str()).as_str() == head.path.as_str()
    }

    /// Hides what is secret in all but the content.
    fn head(&self, head: &mut FileHead) {
        if self.text(&head.content_type) != head.content_type {
            // What is left of a media type is none.
            head.content_type = self.text_of(DEFAULT_CONTENT_TYPE);
        }
    }
}

/// What keeps clearings of the store's side files from coming one after another.
#[derive(Debug, Default)]
pub(crate) struct Tidying {
    is_due: AtomicBool,
    alone: tokio::sync::Mutex<()>,
}

/// How often deleted files are cleared away before the next delete must do.
const TIDY_TRIES: u32 = 8;

/// The first wait between; each is twice the last.
const TIDY_PAUSE: Duration = Duration::from_millis(50);

/// The path, if it holds no secret.
fn clean_path(redactor: &Redactor, path: &str) -> Result<FilePath> {
    let clean = redactor.text(path);
    match clean.as_str() == path {
        true => Ok(FilePath::new(clean).map_err(WorkspaceError::from)?),
        false => Err(WorkspaceError::Secret { what: "path" }.into()),
    }
}

/// The content type, or the usual one.
fn clean_type(redactor: &Redactor, content_type: Option<&str>) -> Result<RedactedText> {
    let given = content_type.unwrap_or(DEFAULT_CONTENT_TYPE);
    if !is_content_type(given) {
        return Err(WorkspaceError::ContentType.into());
    }
    let clean = redactor.text(given);
    match clean.as_str() == given {
        true => Ok(clean),
        false => Err(WorkspaceError::Secret { what: "content type" }.into()),
    }
}

/// What hiding secrets in a row of a list costs, about: a path and a media type.
const LISTED_BYTES: usize = 256;

async fn redacted(known: TenantRedactor, content: String) -> Result<(RedactedText, Hidden)> {
    match content.len() <= INLINE_BYTES {
        true => Ok(known.redactor.text_counted(&content)),
        false => off_thread(move || known.redactor.text_counted(&content)).await,
    }
}

fn not_found(path: &FilePath) -> MemoryError {
    WorkspaceError::NotFound { path: path.as_str().to_owned() }.into()
}

fn refused(error: StoreError) -> MemoryError {
    match error {
        StoreError::FileConflict { current } => WorkspaceError::Conflict { current }.into(),
        StoreError::TooManyFiles { most } => WorkspaceError::TooMany { most }.into(),
        other => other.into(),
    }
}

impl FileInfo {
    /// The entity tag of the version that was written at a position of the log.
    ///
    /// The position keeps apart two lives of a path, whose versions and contents may be
    /// equal. The content is not part of it: a list would have to read and redact every
    /// file, and a reader who is not shown a secret could test guesses at it.
    pub fn etag_of(version: u64, Position(position): Position) -> String {
        let mut hash = Sha256::new();
        hash.update(version.to_be_bytes());
        hash.update(position.to_be_bytes());
        format!("\"{}\"", hex::encode(&hash.finalize()[..16]))
    }
}

fn etag(head: &FileHead) -> String {
    FileInfo::etag_of(head.version, head.position)
}

impl From<FileHead> for FileInfo {
    fn from(head: FileHead) -> Self {
        Self {
            etag: etag(&head),
            path: head.path.as_str().to_owned(),
            content_type: head.content_type.into_string(),
            version: head.version,
            updated_at: head.updated_at,
        }
    }
}

impl From<FileRecord> for WorkspaceFile {
    fn from(file: FileRecord) -> Self {
        Self { info: file.head.into(), content: file.content.into_string() }
    }
}
