//! All scopes of a data directory. A few are open; the least used is closed when
//! another is wanted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use icecore_domain::ids::Scope;

use crate::disk::{self, Files};
use crate::error::IndexError;
use crate::scope::ScopeIndex;

/// What bounds the work and the memory of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSettings {
    /// Fewer documents than this are not committed: a small scope has no files.
    pub tail_docs: usize,
    /// More documents than this should not be left uncommitted.
    pub tail_most: usize,
    /// How many scopes are open at a time.
    pub open_scopes: usize,
    /// Up to this many vectors are compared exactly. Signs are faster from 10,000
    /// on; 20,000 exact comparisons take half a millisecond and miss nothing.
    pub exact_rows: usize,
    /// Up to this many vectors are in memory, 256 bytes each; of more, only their
    /// signs.
    pub memory_rows: usize,
    /// Above that, how many of them are compared exactly after a look at signs.
    pub rescore: usize,
    /// Memory of the text index's writer, in bytes.
    pub writer_bytes: usize,
}

impl Default for IndexSettings {
    fn default() -> Self {
        Self {
            tail_docs: 1_000,
            tail_most: 20_000,
            open_scopes: 64,
            exact_rows: 20_000,
            memory_rows: 200_000,
            rescore: 400,
            writer_bytes: 50_000_000,
        }
    }
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
        let opened = Arc::new(ScopeIndex::open(self.files(scope), self.settings));
        let mut open = self.lock();
        if let Some((_, found)) = open.iter().find(|(of, _)| of == scope) {
            return Ok(Arc::clone(found));
        }
        open.push((scope.clone(), Arc::clone(&opened)));
        close_unused(&mut open, self.settings.open_scopes);
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

/// Closes the least used beyond `most`, but none that somebody holds: that would
/// free nothing.
fn close_unused(open: &mut Vec<(Scope, Arc<ScopeIndex>)>, most: usize) {
    let mut excess = open.len().saturating_sub(most.max(1));
    open.retain(|(_, index)| {
        let close = excess > 0 && Arc::strong_count(index) == 1;
        excess -= usize::from(close);
        !close
    });
}
