//! Workspace files: small texts that agents share beside the memory.
//!
//! A file has a path and versions from 1 on; the last is the file. Secrets are hidden in
//! its content. A path that holds a secret is refused, since nobody could find the file
//! under another. Forgetting leaves files alone: their writers can delete them, with all
//! versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use icecore::extend::{self, INLINE_BYTES, in_pieces, off_thread, write_redacted};
use icecore::ids::Position;
use icecore::ingest::Claim;
use icecore::privacy::{Hidden, RedactedText, Redactor, TenantRedactor};
use icecore::store::StoreError;
use icecore::{Memory, MemoryError, Millis, Principal, Tenant};
use icecore_domain::workspace::{
    DEFAULT_CONTENT_TYPE, FilePath, MAX_CONTENT_TYPE_BYTES, Workspace, check_path, is_content_type,
};
pub use icecore_domain::workspace::{MAX_PATH_BYTES, PathError};
use icecore_store::{Expect, FileHead, FileRecord, NewFile, Store};
use sha2::{Digest, Sha256};

use crate::error::wraps_memory;
use crate::settings::WorkspaceSettings;

type Result<T> = std::result::Result<T, WorkspaceError>;

/// Something that cannot be done with a workspace file.
#[derive(Debug, thiserror::Error)]
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
    /// The memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

wraps_memory!(WorkspaceError);

impl WorkspaceError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            WorkspaceError::Off => "set `workspace.enabled = true`",
            WorkspaceError::Secret { .. } => "name it by what it is for",
            WorkspaceError::TooLarge { .. } => "split it into several files",
            WorkspaceError::TooMany { .. } => "delete files that are out of use",
            WorkspaceError::Conflict { .. } => "read the file again and write what follows from it",
            WorkspaceError::Memory(error) => return error.hint(),
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

/// The files of all workspaces. Clones share everything.
#[derive(Clone)]
pub struct Files {
    memory: Memory,
    settings: WorkspaceSettings,
    tidying: Arc<Tidying>,
}

impl Files {
    pub(crate) fn new(memory: Memory, settings: WorkspaceSettings) -> Self {
        Self { memory, settings, tidying: Arc::default() }
    }

    fn store(&self) -> &Store {
        extend::store(&self.memory)
    }

    /// Limits of workspaces.
    pub fn settings(&self) -> &WorkspaceSettings {
        &self.settings
    }

    /// Writes the next version of a file, all or nothing; see [`FileMatch`] for how
    /// two writers keep out of each other's way.
    pub async fn put(&self, principal: &Principal, file: FileWrite) -> Result<WorkspaceFile> {
        self.refuse_off()?;
        check_path(&file.path).map_err(WorkspaceError::from)?;
        let bytes = file.content.len();
        let most = self.settings.file_bytes;
        if bytes > most {
            return Err(WorkspaceError::TooLarge { bytes, most });
        }
        let workspace = principal.workspace();
        write_redacted(|| self.put_once(&workspace, &file)).await
    }

    async fn put_once(&self, workspace: &Workspace, file: &FileWrite) -> Result<WorkspaceFile> {
        let known = self.memory.redactor(workspace.tenant()).await?;
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
            versions_kept: self.settings.versions,
            most_files: self.settings.files,
            now: self.memory.now(),
            secrets_seen,
            hidden,
            claim,
        };
        let admitted =
            extend::admit_text(&self.memory, workspace.tenant(), file.content.as_str()).await?;
        let written = self.store().put_file(workspace, file).await;
        let written = extend::written(&self.memory, written).map_err(refused)?;
        admitted.store_all();
        Ok(written.into())
    }

    /// What a written file holds and of which media type it is, its secrets hidden by
    /// what is known of the tenant's secrets here and now.
    pub async fn shown(
        &self,
        tenant: &Tenant,
        file: &FileWrite,
    ) -> Result<(RedactedText, RedactedText)> {
        let known = self.memory.redactor(tenant).await?;
        let kind = file.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE);
        let kind = known.redactor.text(kind);
        let (content, _) = redacted(known, file.content.clone()).await?;
        Ok((content, kind))
    }

    /// A version of a file, or its last. What was written before a secret was
    /// registered is shown without it.
    pub async fn get(
        &self,
        principal: &Principal,
        path: &str,
        version: Option<u64>,
    ) -> Result<WorkspaceFile> {
        self.refuse_off()?;
        let workspace = principal.workspace();
        let path = self.known_path(&workspace, path).await?;
        let found = self.read(&workspace, &path, version).await?;
        found.map(WorkspaceFile::from).ok_or_else(|| not_found(&path))
    }

    /// The files whose paths begin with `prefix`, by path. One whose path turned
    /// out to hold a secret is left out until a rescan names it anew.
    pub async fn list(&self, principal: &Principal, prefix: &str) -> Result<Vec<FileInfo>> {
        self.refuse_off()?;
        let workspace = principal.workspace();
        let mut heads = self.store().files(&workspace, prefix).await?;
        if let Some(redactor) = extend::read_redactor(&self.memory, workspace.tenant()).await? {
            let mut shown: Vec<Option<FileHead>> = heads.into_iter().map(Some).collect();
            in_pieces(
                &mut shown,
                |_| LISTED_BYTES,
                move |head| {
                    *head =
                        head.take().filter(|head| shows_path(&redactor, head)).map(|mut head| {
                            hide_type(&redactor, &mut head);
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
    pub async fn delete(
        &self,
        principal: &Principal,
        path: &str,
        expect: &FileMatch,
    ) -> Result<()> {
        self.refuse_off()?;
        let workspace = principal.workspace();
        let path = self.known_path(&workspace, path).await?;
        let expect = self.expected(&workspace, &path, expect).await?;
        let now = self.memory.now();
        let deleted = self.store().delete_file(&workspace, &path, expect, now).await;
        if !deleted.map_err(|error| refused(error.into()))? {
            return Err(not_found(&path));
        }
        self.tidy_soon();
        Ok(())
    }

    /// Has what was deleted leave the store's side files, beside all other work. What
    /// somebody who reads holds back is tried again.
    fn tidy_soon(&self) {
        self.tidying.is_due.store(true, Ordering::SeqCst);
        let files = self.clone();
        tokio::spawn(async move {
            // One at a time: whoever waited finds that it was done on the way.
            let _alone = files.tidying.alone.lock().await;
            if !files.tidying.is_due.swap(false, Ordering::SeqCst) {
                return;
            }
            for attempt in 0..TIDY_TRIES {
                match files.store().tidy().await {
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

    fn refuse_off(&self) -> Result<()> {
        if self.settings.enabled { Ok(()) } else { Err(WorkspaceError::Off) }
    }

    async fn known_path(&self, workspace: &Workspace, path: &str) -> Result<FilePath> {
        check_path(path).map_err(WorkspaceError::from)?;
        clean_path(&self.memory.redactor(workspace.tenant()).await?.redactor, path)
    }

    async fn read(
        &self,
        workspace: &Workspace,
        path: &FilePath,
        version: Option<u64>,
    ) -> Result<Option<FileRecord>> {
        let mut found = self.store().file(workspace, path, version).await?;
        if found.is_none() {
            return Ok(found);
        }
        if let Some(redactor) = extend::read_redactor(&self.memory, workspace.tenant()).await? {
            let size = |file: &FileRecord| file.content.as_str().len();
            in_pieces(found.as_mut(), size, move |file| {
                file.content = redactor.text(file.content.as_str());
                hide_type(&redactor, &mut file.head);
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
        let head = self.store().file(workspace, path, None).await?.map(|file| file.head);
        match head {
            // A position is that of one write, so that what was compared here is
            // what is replaced there.
            Some(head) if tags.contains(&etag(&head)) => Ok(Expect::At(head.position)),
            head => {
                let current = head.map_or(0, |head| head.version);
                Err(WorkspaceError::Conflict { current })
            }
        }
    }
}

fn shows_path(redactor: &Redactor, head: &FileHead) -> bool {
    redactor.text(head.path.as_str()).as_str() == head.path.as_str()
}

/// Replaces a media type that holds a secret: what would be left of it is none.
fn hide_type(redactor: &Redactor, head: &mut FileHead) {
    if redactor.text(head.content_type.as_str()) != head.content_type {
        head.content_type = redactor.text(DEFAULT_CONTENT_TYPE);
    }
}

/// What keeps clearings of the store's side files from coming one after another.
#[derive(Debug, Default)]
struct Tidying {
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
        false => Err(WorkspaceError::Secret { what: "path" }),
    }
}

/// The content type, or the usual one.
fn clean_type(redactor: &Redactor, content_type: Option<&str>) -> Result<RedactedText> {
    let given = content_type.unwrap_or(DEFAULT_CONTENT_TYPE);
    if !is_content_type(given) {
        return Err(WorkspaceError::ContentType);
    }
    let clean = redactor.text(given);
    match clean.as_str() == given {
        true => Ok(clean),
        false => Err(WorkspaceError::Secret { what: "content type" }),
    }
}

/// What hiding secrets in a row of a list costs, about: a path and a media type.
const LISTED_BYTES: usize = 256;

async fn redacted(known: TenantRedactor, content: String) -> Result<(RedactedText, Hidden)> {
    match content.len() <= INLINE_BYTES {
        true => Ok(known.redactor.text_counted(&content)),
        false => Ok(off_thread(move || known.redactor.text_counted(&content)).await?),
    }
}

fn not_found(path: &FilePath) -> WorkspaceError {
    WorkspaceError::NotFound { path: path.as_str().to_owned() }
}

fn refused(error: MemoryError) -> WorkspaceError {
    match error {
        MemoryError::Store(StoreError::FileConflict { current }) => {
            WorkspaceError::Conflict { current }
        }
        MemoryError::Store(StoreError::TooManyFiles { most }) => WorkspaceError::TooMany { most },
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
