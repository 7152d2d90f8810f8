//! The files of one scope, and what is trusted of them.
//!
//! ```text
//! <hash of tenant and memory>/
//!   text/       the text index, whose commit carries the payload
//!   columns     documents, appended
//!   rows-<n>    vectors, appended; another file when they begin anew
//!   used        empty; its age is that of the last use
//! ```
//!
//! Files are appended to and synced first; then the text index commits. What is
//! beyond the lengths that the commit names is left over from a crash: readers
//! do not look at it, and the next writer cuts it off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use icecore_domain::ids::Scope;
use sha2::{Digest, Sha256};

use crate::codec::{self, Cursor};
use crate::columns::Columns;
use crate::document::Doc;
use crate::error::IndexError;
use crate::payload::{Payload, Prefix, RowsPayload};
use crate::rows::{DOC_BYTES, Rows};
use crate::segments::{Segments, Unusable};

/// Rows are read from disk in parts of about this many bytes.
const READ_BYTES: usize = 1 << 20;

/// Leads the name of a directory that is being deleted.
const DYING: &str = "dying-";

/// A file whose age is that of the last use.
const USED: &str = "used";

/// A scope's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    directory: PathBuf,
}

/// All of a commit.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub payload: Payload,
    pub segments: Segments,
    pub columns: Columns,
    pub cursor: Cursor,
    pub rows: Option<Rows>,
}

impl Files {
    /// Where the files of `scope` are. Its names can be told from the path by
    /// nobody who does not know them.
    pub fn of(root: &Path, scope: &Scope) -> Self {
        let mut hash = Sha256::new();
        hash.update(scope.tenant().as_str());
        // No name holds a control character, so this cannot be part of one.
        hash.update([0]);
        hash.update(scope.memory());
        Self { directory: root.join(hex::encode(&hash.finalize()[..16])) }
    }

    /// Notes that the scope is used now, by the clock of the file system.
    pub fn note_use(&self) {
        if self.directory.is_dir() {
            // Without it the scope seems older than it is, and goes sooner.
            let _ = fs::write(self.directory.join(USED), []);
        }
    }

    pub fn text(&self) -> PathBuf {
        self.directory.join("text")
    }

    fn columns(&self) -> PathBuf {
        self.directory.join("columns")
    }

    fn rows(&self, number: u32) -> PathBuf {
        self.directory.join(format!("rows-{number}"))
    }

    pub fn create(&self) -> Result<(), IndexError> {
        let text = self.text();
        fs::create_dir_all(&text).map_err(failed("create", &text))
    }

    /// The last commit. Somebody may commit while this reads, so damage is
    /// believed only when the commit stays the same.
    pub fn load(&self, memory_rows: usize) -> Result<Loaded, Unusable> {
        let mut seen: Option<Payload> = None;
        loop {
            let (segments, payload) = Segments::open(&self.text(), true)?;
            match self.load_files(&payload, segments, memory_rows) {
                Err(_) if seen.as_ref() != Some(&payload) => seen = Some(payload),
                loaded => return loaded,
            }
        }
    }

    fn load_files(
        &self,
        payload: &Payload,
        segments: Segments,
        memory_rows: usize,
    ) -> Result<Loaded, Unusable> {
        let (columns, cursor) = self.load_columns(payload)?;
        let rows = match &payload.rows {
            Some(told) => Some(self.load_rows(payload.rows_file, told, payload.docs, memory_rows)?),
            None => None,
        };
        Ok(Loaded { payload: payload.clone(), segments, columns, cursor, rows })
    }

    fn load_columns(&self, payload: &Payload) -> Result<(Columns, Cursor), Unusable> {
        let mut bytes = Vec::new();
        File::open(self.columns())?.take(payload.columns.bytes).read_to_end(&mut bytes)?;
        if Prefix::default().then(&bytes) != payload.columns {
            return Err(damaged("the columns' checksum is wrong"));
        }
        let (mut columns, mut cursor) = (Columns::default(), Cursor::default());
        codec::decode(&bytes, &mut columns, &mut cursor)
            .filter(|()| columns.len() == payload.docs)
            .ok_or_else(|| damaged("the columns cannot be read"))?;
        Ok((columns, cursor))
    }

    fn load_rows(
        &self,
        number: u32,
        told: &RowsPayload,
        docs: usize,
        memory_rows: usize,
    ) -> Result<Rows, Unusable> {
        let model = told.model().ok_or_else(|| damaged("the vectors' model cannot be read"))?;
        let mut rows = Rows::new(model);
        let mut file = File::open(self.rows(number))?;
        let keep = told.count <= memory_rows;
        if !keep {
            rows.store(file.try_clone()?, told.count);
        }
        let (stride, mut left, mut found) = (rows.stride(), told.count, Prefix::default());
        let (mut part, mut components) = (Vec::new(), Vec::new());
        while left > 0 {
            let count = left.min(READ_BYTES.div_ceil(stride));
            part.resize(count * stride, 0);
            file.read_exact(&mut part)?;
            found = found.then(&part);
            for row in part.chunks_exact(stride) {
                let (doc, row) = row.split_at(DOC_BYTES);
                components.clear();
                components.extend(row.iter().map(|byte| i8::from_le_bytes([*byte])));
                rows.push_row(number_of(doc), &components, keep);
            }
            left -= count;
        }
        rows.end_docs(told.docs);
        if found != told.prefix(stride) || told.docs > docs || !rows.are_whole() {
            return Err(damaged("the vectors' checksum is wrong"));
        }
        Ok(rows)
    }

    /// Appends to the columns after their trusted part.
    pub fn append_columns(&self, after: Prefix, bytes: &[u8]) -> Result<Prefix, IndexError> {
        append(&self.columns(), after, bytes)
    }

    /// Appends to the vectors after their trusted part.
    pub fn append_rows(
        &self,
        number: u32,
        after: Prefix,
        bytes: &[u8],
    ) -> Result<Prefix, IndexError> {
        append(&self.rows(number), after, bytes)
    }

    pub fn open_rows(&self, number: u32) -> Result<File, IndexError> {
        let path = self.rows(number);
        File::open(&path).map_err(failed("open", &path))
    }

    /// Deletes vectors that no commit names any more.
    pub fn keep_rows(&self, number: Option<u32>) {
        let kept = number.map(|number| self.rows(number));
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let rows = entry.file_name().to_string_lossy().starts_with("rows-");
            if rows && Some(entry.path()) != kept {
                // Left over at worst: the next commit tries again.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Deletes every file but the locks, first the one that makes the others
    /// mean something.
    pub fn clear(&self) -> Result<(), IndexError> {
        let meta = self.text().join("meta.json");
        remove(&meta)?;
        for directory in [self.text(), self.directory.clone()] {
            let entries = fs::read_dir(&directory).map_err(failed("list", &directory))?;
            for entry in entries.flatten() {
                let lock = entry.file_name().to_string_lossy().ends_with(".lock");
                if !lock && entry.path().is_file() {
                    remove(&entry.path())?;
                }
            }
        }
        Ok(())
    }

    /// Deletes the directory with all that is in it. It first gets another name,
    /// so that nobody can open a part of it, whatever happens next.
    pub fn delete(&self) -> Result<(), IndexError> {
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        let dying = (0..).map(|n: u32| {
            self.directory.with_file_name(format!("{DYING}{name}-{}-{n}", std::process::id()))
        });
        for dying in dying {
            match fs::rename(&self.directory, &dying) {
                Ok(()) => return delete_tree(&dying),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(_) if dying.exists() => {}
                Err(error) => return Err(failed("delete", &self.directory)(error)),
            }
        }
        Ok(())
    }
}

/// What a scope has on disk.
pub(crate) struct Cached {
    pub files: Files,
    pub bytes: u64,
    /// When it was last opened or committed.
    pub used: Option<SystemTime>,
}

/// All scopes that have files. What cannot be read does not count.
pub(crate) fn cached(root: &Path) -> Vec<Cached> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let is_scope = |entry: &fs::DirEntry| {
        entry.path().is_dir() && !entry.file_name().to_string_lossy().starts_with(DYING)
    };
    let scope = |entry: fs::DirEntry| {
        let mut cached = Cached { files: Files { directory: entry.path() }, bytes: 0, used: None };
        for directory in [entry.path(), cached.files.text()] {
            let files = fs::read_dir(directory).into_iter().flatten().flatten();
            for found in files.filter_map(|file| file.metadata().ok()) {
                cached.bytes += if found.is_file() { found.len() } else { 0 };
                cached.used = cached.used.max(found.modified().ok());
            }
        }
        cached
    };
    entries.flatten().filter(is_scope).map(scope).collect()
}

/// Ends deletions under `root` that a crash cut short.
pub(crate) fn end_deletions(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(DYING) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Somebody with an open writer may still add a file while we delete.
fn delete_tree(path: &Path) -> Result<(), IndexError> {
    let mut tries = 0;
    loop {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if tries < 10 => tries += 1,
            done => return done.map_err(failed("delete", path)),
        }
    }
}

fn number_of(bytes: &[u8]) -> Doc {
    bytes.iter().rev().fold(0, |doc, byte| doc << 8 | Doc::from(*byte))
}

fn append(path: &Path, after: Prefix, bytes: &[u8]) -> Result<Prefix, IndexError> {
    let mut open = OpenOptions::new();
    let mut file =
        open.create(true).write(true).truncate(false).open(path).map_err(failed("open", path))?;
    let written = (|| {
        file.set_len(after.bytes)?;
        file.seek(SeekFrom::Start(after.bytes))?;
        file.write_all(bytes)?;
        file.sync_all()
    })();
    written.map_err(failed("write", path))?;
    Ok(after.then(bytes))
}

fn remove(path: &Path) -> Result<(), IndexError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(failed("delete", path)),
    }
}

fn damaged(reason: &str) -> Unusable {
    Unusable::Damaged(reason.to_owned())
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IndexError {
    let path = path.to_owned();
    move |source| IndexError::File { action, path, source }
}
