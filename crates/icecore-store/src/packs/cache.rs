//! Copies of objects from elsewhere on this machine's disk, up to a bound.
//!
//! A file has the object's name and bytes, and was last used when it was last modified, so
//! processes may share the directory. A copy counts only if it has the checksum that the store
//! recorded, and one that cannot be kept costs a download.

use std::collections::BTreeSet;
use std::fs::{DirEntry, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use super::has_checksum;
use crate::error::StoreError;
use crate::files::{make_dir, sync_dir, write_error};
use crate::keys::random_bytes;

/// Separates a file's name from what tells its writer, while it is being written.
const WRITING: char = '#';

/// What was being written so long ago is nobody's any more.
const ABANDONED: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Cache {
    dir: PathBuf,
    most_bytes: u64,
    /// Bytes when last looked, and those that came since.
    held_bytes: Mutex<u64>,
}

struct Copy {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Cache {
    /// The copies in `dir`, which is made if it is missing; those beyond the bound go.
    pub(super) fn open(dir: &Path, most_bytes: u64) -> Result<Self, StoreError> {
        make_dir(dir)?;
        let cache = Self { dir: dir.to_owned(), most_bytes, held_bytes: Mutex::default() };
        let held = cache.make_room().map_err(|source| write_error("read", dir, source))?;
        *cache.held() = held;
        Ok(cache)
    }

    /// A copy that is what was written. One that is damaged is deleted.
    #[expect(clippy::disallowed_methods, reason = "files carry the time of their last use")]
    pub(super) fn get(&self, file: &str, sha256: &[u8; 32]) -> Option<Vec<u8>> {
        let path = self.path(file)?;
        let bytes = fs::read(&path).ok()?;
        if !has_checksum(&bytes, sha256) {
            tracing::warn!(file, "a cached object is damaged and is fetched again");
            fs::remove_file(&path).ok();
            return None;
        }
        // It was used now.
        File::open(&path).and_then(|file| file.set_modified(SystemTime::now())).ok();
        Some(bytes)
    }

    /// Keeps a copy, and lets go of those that were used longest ago.
    pub(super) fn put(&self, file: &str, bytes: &[u8]) {
        if bytes.len() as u64 > self.most_bytes {
            return;
        }
        if let Err(error) = self.try_put(file, bytes) {
            tracing::warn!(file, %error, "an object could not be cached");
        }
    }

    fn try_put(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let Some(path) = self.path(file) else { return Ok(()) };
        let writing = self.dir.join(format!("{file}{WRITING}{}", hex::encode(random_bytes::<8>())));
        let written = write_synced(&writing, bytes).and_then(|()| fs::rename(&writing, &path));
        if written.is_err() {
            fs::remove_file(&writing).ok();
            return written;
        }
        let mut held = self.held();
        *held += bytes.len() as u64;
        if *held > self.most_bytes {
            *held = self.make_room()?;
        }
        Ok(())
    }

    /// Lets go of a copy, durably: what was erased must not stay here.
    pub(super) fn remove(&self, file: &str) -> Result<(), StoreError> {
        let Some(path) = self.path(file) else { return Ok(()) };
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&self.dir),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(write_error("delete", &path, source)),
        }
    }

    /// Lets go of copies with that suffix whose objects are not there any more, such as
    /// those that another host erased.
    pub(super) fn retain(&self, suffix: &str, files: &BTreeSet<String>) -> Result<(), StoreError> {
        let failed = |source| write_error("clean", &self.dir, source);
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(name) = name.to_str().filter(|name| name.ends_with(suffix)) else { continue };
            if !files.contains(name) {
                self.remove(name)?;
            }
        }
        Ok(())
    }

    /// If the bound is passed, removes what was used longest ago down to nine tenths of it, so
    /// that a full cache is not read for each copy. Returns the bytes that are left.
    fn make_room(&self) -> io::Result<u64> {
        let mut copies = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            // Gone meanwhile, or none of ours.
            let Some(copy) = entry.ok().and_then(|entry| as_copy(&entry)) else { continue };
            copies.push(copy);
        }
        let mut held: u64 = copies.iter().map(|copy| copy.bytes).sum();
        if held <= self.most_bytes {
            return Ok(held);
        }
        copies.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        for copy in copies {
            if held <= self.most_bytes / 10 * 9 {
                break;
            }
            match fs::remove_file(&copy.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => held -= copy.bytes,
            }
        }
        Ok(held)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, u64> {
        self.held_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None for what is no name of a file.
    fn path(&self, file: &str) -> Option<PathBuf> {
        let is_plain = !file.contains(['/', WRITING, '\0']) && !file.starts_with('.');
        is_plain.then(|| self.dir.join(file))
    }
}

/// A whole copy. What a writer that was killed left half-written is removed.
fn as_copy(entry: &DirEntry) -> Option<Copy> {
    let (name, data) = (entry.file_name(), entry.metadata().ok()?);
    let used = data.modified().ok()?;
    if name.to_str()?.contains(WRITING) {
        if used.elapsed().is_ok_and(|age| age >= ABANDONED) {
            fs::remove_file(entry.path()).ok();
        }
        return None;
    }
    data.is_file().then(|| Copy { path: entry.path(), bytes: data.len(), used })
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn sha256(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    fn body(number: u8) -> Vec<u8> {
        vec![number; 100]
    }

    /// Puts copies `a`, `b` and so on of 100 bytes, each used an hour after the one before.
    fn filled(dir: &Path, most_bytes: u64, count: u8) -> Cache {
        let cache = Cache::open(dir, most_bytes).unwrap();
        for number in 0..count {
            cache.put(&name(number), &body(number));
            set_used(dir, number, u64::from(number));
        }
        cache
    }

    fn name(number: u8) -> String {
        format!("{}.icepack", char::from(b'a' + number))
    }

    fn set_used(dir: &Path, number: u8, hours: u64) {
        let Ok(file) = File::open(dir.join(name(number))) else { return };
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + hours * 3600);
        file.set_modified(used).unwrap();
    }

    fn files(dir: &Path) -> Vec<String> {
        let names = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = filled(dir.path(), 1_000, 10);
        assert_eq!(files(dir.path()).len(), 10);
        // `a` is the oldest but has just been used.
        assert_eq!(cache.get(&name(0), &sha256(&body(0))), Some(body(0)));
        cache.put(&name(10), &body(10));
        let expected: Vec<String> = (0..=10).filter(|n| ![1, 2].contains(n)).map(name).collect();
        assert_eq!(files(dir.path()), expected);
        assert_eq!(cache.get(&name(1), &sha256(&body(1))), None);
    }

    #[test]
    fn a_restart_knows_what_was_used_last() {
        let dir = tempfile::tempdir().unwrap();
        drop(filled(dir.path(), 1_000, 9));
        set_used(dir.path(), 0, 99);
        let cache = Cache::open(dir.path(), 500).unwrap();
        assert_eq!(files(dir.path()), [name(0), name(6), name(7), name(8)]);
        assert_eq!(cache.get(&name(8), &sha256(&body(8))), Some(body(8)));
    }

    #[test]
    fn what_is_larger_than_the_bound_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = filled(dir.path(), 250, 2);
        cache.put("large.icepack", &[0; 251]);
        assert_eq!(files(dir.path()), [name(0), name(1)]);
    }

    #[test]
    fn a_damaged_copy_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let cache = filled(dir.path(), 1_000, 1);
        let path = dir.path().join(name(0));
        for damage in [&b"short"[..], &[1; 100], b""] {
            cache.put(&name(0), &body(0));
            fs::write(&path, damage).unwrap();
            assert_eq!(cache.get(&name(0), &sha256(&body(0))), None);
            assert!(!path.exists());
        }
    }

    #[test]
    fn copies_go_with_their_objects() {
        let dir = tempfile::tempdir().unwrap();
        let cache = filled(dir.path(), 1_000, 3);
        cache.put("x.icearchive", b"other");
        cache.remove(&name(0)).unwrap();
        cache.remove(&name(0)).unwrap();
        cache.retain(".icepack", &BTreeSet::from([name(1)])).unwrap();
        assert_eq!(files(dir.path()), [name(1), "x.icearchive".to_owned()]);
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_when_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        for torn in ["old.icepack#1", "new.icepack#1"] {
            fs::write(dir.path().join(torn), b"half").unwrap();
        }
        let old = File::open(dir.path().join("old.icepack#1")).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let cache = Cache::open(dir.path(), 1_000).unwrap();
        assert_eq!(files(dir.path()), ["new.icepack#1"]);
        assert_eq!(cache.get("new.icepack#1", &sha256(b"half")), None, "it is no copy");
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("cache");
        let cache = Cache::open(&dir, 1_000).unwrap();
        for wrong in ["../out", "a/b", ".hidden", "x#1"] {
            cache.put(wrong, b"x");
            cache.remove(wrong).unwrap();
        }
        assert_eq!(files(root.path()), ["cache"]);
        assert!(files(&dir).is_empty());
    }

    #[test]
    fn a_cache_that_cannot_be_written_costs_no_more_than_a_download() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("cache");
        let cache = Cache::open(&dir, 1_000).unwrap();
        fs::remove_dir(&dir).unwrap();
        cache.put(&name(0), &body(0));
        assert_eq!(cache.get(&name(0), &sha256(&body(0))), None);
    }
}
