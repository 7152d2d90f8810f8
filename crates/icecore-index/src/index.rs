//! All scopes of a data directory. A few are open; the least used is closed when
//! another is wanted.
//!
//! What is on disk is a cache, too: all of it can be fed again. Where it outgrows its
//! bound, the scopes that were opened longest ago lose their files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use icecore_domain::ids::Scope;
use icecore_settings::{MOST, settings};

use crate::disk::{self, Cached, Files};
use crate::error::IndexError;
use crate::scope::ScopeIndex;

settings! {
    /// Limits on the work and the memory of an index.
    #[derive(PartialEq, Eq, Copy)]
    pub struct IndexSettings {
        /// A memory with fewer documents has no index files.
        tail_docs: usize = 1_000, 1..=1_000_000 => advanced;
        /// The most documents that are left uncommitted.
        tail_most: usize = 20_000 => none;
        /// Memories whose index is open at a time.
        open_scopes: usize = 64, 1..=100_000 => advanced;
        /// RAM for open indexes; beyond it those not in use are closed.
        open_bytes: usize = 512 << 20, 1 << 20..=MOST;
        /// Disk space for indexes; beyond it the index used longest ago goes first; 0: no limit.
        cache_bytes: u64 = 16 << 30;
        /// Up to this many vectors are compared exactly. Signs are faster from 10,000
        /// on; 20,000 exact comparisons take half a millisecond and miss nothing.
        exact_rows: usize = 20_000 => none;
        /// Up to this many vectors are in RAM, 256 bytes each; of more, only their signs.
        memory_rows: usize = 200_000, 0..=100_000_000 => advanced;
        /// Above `exact_rows`, how many vectors are compared exactly after a look at signs.
        rescore: usize = 400 => none;
        /// RAM of the text index's writer, in bytes.
        writer_bytes: usize = 50_000_000 => none;
    }
}

/// What became of a cache on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shrunk {
    /// Bytes that are left.
    pub bytes: u64,
    /// Scopes that lost their files.
    pub dropped: u64,
}

/// The indexes of all scopes under one directory, or in memory.
#[derive(Debug)]
pub struct Index {
    root: Option<PathBuf>,
    settings: IndexSettings,
    /// Least used first.
    open: Mutex<Vec<(Scope, Arc<ScopeIndex>)>>,
    /// Held to write while a scope's files are deleted, so that nobody opens
    /// half of them.
    opening: RwLock<()>,
}

impl Index {
    /// Indexes under `root`, which is made when the first scope is large enough;
    /// without a root everything stays in memory. Opens none yet.
    pub fn open(root: Option<PathBuf>, settings: IndexSettings) -> Self {
        root.iter().for_each(|root| disk::end_deletions(root));
        Self { root, settings, open: Mutex::new(Vec::new()), opening: RwLock::new(()) }
    }

    /// What bounds it.
    pub fn settings(&self) -> IndexSettings {
        self.settings
    }

    /// The index of a scope, opened if it is not. Its watermark says what to
    /// feed: after a crash, damage or a change of format that is everything.
    pub fn scope(&self, scope: &Scope) -> Result<Arc<ScopeIndex>, IndexError> {
        if let Some(found) = self.opened(scope) {
            return Ok(found);
        }
        let _opening = self.opening.read().unwrap_or_else(PoisonError::into_inner);
        // Others may go on meanwhile, and one may open the same scope first.
        let files = self.files(scope);
        files.iter().for_each(Files::note_use);
        let opened = Arc::new(ScopeIndex::open(files, self.settings));
        let mut open = self.lock();
        if let Some((_, found)) = open.iter().find(|(of, _)| of == scope) {
            return Ok(Arc::clone(found));
        }
        open.push((scope.clone(), Arc::clone(&opened)));
        close_unused(&mut open, &self.settings);
        Ok(opened)
    }

    /// Closes a scope and deletes its files at once, whether it was open or not.
    /// Whoever still holds it holds an empty index.
    pub fn drop_scope(&self, scope: &Scope) -> Result<(), IndexError> {
        let _opening = self.opening.write().unwrap_or_else(PoisonError::into_inner);
        let mut open = self.lock();
        let place = open.iter().position(|(of, _)| of == scope);
        let closed = place.map(|place| open.remove(place).1);
        drop(open);
        match (closed, self.files(scope)) {
            (Some(index), _) => index.reset(0, None),
            (None, Some(files)) => files.delete(),
            (None, None) => Ok(()),
        }
    }

    /// Deletes the files of scopes that were opened longest ago until the rest is within
    /// `cache_bytes`; none that somebody holds. Also closes what should not be open.
    pub fn shrink(&self) -> Result<Shrunk, IndexError> {
        close_unused(&mut self.lock(), &self.settings);
        let mut done = Shrunk::default();
        let Some(root) = self.root.as_ref().filter(|_| self.settings.cache_bytes > 0) else {
            return Ok(done);
        };
        let mut cached = disk::cached(root);
        done.bytes = cached.iter().map(|one| one.bytes).sum();
        cached.sort_by_key(|one| one.used);
        for is_open in [false, true] {
            for one in &cached {
                if done.bytes <= self.settings.cache_bytes {
                    return Ok(done);
                }
                if self.let_go(root, one, is_open)? {
                    done.bytes -= one.bytes;
                    done.dropped += 1;
                }
            }
        }
        Ok(done)
    }

    /// Deletes the files of a scope that nobody holds, if it is open or not as is said. The
    /// one that was used last stays: it is the likeliest to be used again.
    fn let_go(&self, root: &Path, cached: &Cached, is_open: bool) -> Result<bool, IndexError> {
        let _opening = self.opening.write().unwrap_or_else(PoisonError::into_inner);
        let mut open = self.lock();
        let place = open.iter().position(|(scope, _)| cached.files == Files::of(root, scope));
        match (place, is_open) {
            (None, false) => {
                drop(open);
                cached.files.delete().map(|()| true)
            }
            (Some(place), true)
                if place + 1 < open.len() && Arc::strong_count(&open[place].1) == 1 =>
            {
                let (_, closed) = open.remove(place);
                drop(open);
                closed.reset(0, None).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    fn files(&self, scope: &Scope) -> Option<Files> {
        self.root.as_ref().map(|root| Files::of(root, scope))
    }

    /// The scope if it is open; it is the most recently used from now on.
    pub fn opened(&self, scope: &Scope) -> Option<Arc<ScopeIndex>> {
        let mut open = self.lock();
        let place = open.iter().position(|(of, _)| of == scope)?;
        let entry = open.remove(place);
        let found = Arc::clone(&entry.1);
        open.push(entry);
        Some(found)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Scope, Arc<ScopeIndex>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the least used beyond what may be open, but none that somebody holds: that
/// would free nothing.
fn close_unused(open: &mut Vec<(Scope, Arc<ScopeIndex>)>, settings: &IndexSettings) {
    let mut excess = open.len().saturating_sub(settings.open_scopes.max(1));
    let mut bytes: usize = open.iter().map(|(_, index)| index.memory_bytes()).sum();
    open.retain(|(_, index)| {
        let is_wanted = excess == 0 && bytes <= settings.open_bytes;
        let close = !is_wanted && Arc::strong_count(index) == 1;
        if close {
            excess = excess.saturating_sub(1);
            bytes = bytes.saturating_sub(index.memory_bytes());
        }
        !close
    });
}
