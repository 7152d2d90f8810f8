//! The memory under test, as it lives: in a directory, settled.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use icecore::recall::{DocKind, Mode};
use icecore::{Context, ContextRequest, Hit, Memory, Principal, Scope, SearchRequest, Tenant};
use tempfile::TempDir;

use crate::Result;
use crate::data::Session;

/// Turns given at once.
const BATCH: usize = 100;

/// A memory in a directory.
pub struct Engine {
    pub memory: Memory,
    person: Principal,
    dir: PathBuf,
    /// Removes the directory with the engine, where it is ours.
    _temporary: Option<TempDir>,
}

impl Engine {
    /// A new memory that is gone with this.
    pub async fn new() -> Result<Self> {
        let temporary = tempfile::tempdir()?;
        let engine = Self::open(temporary.path()).await?;
        Ok(Self { _temporary: Some(temporary), ..engine })
    }

    pub async fn open(dir: &Path) -> Result<Self> {
        let memory = Memory::open(dir).await?;
        let person = Principal::local_operator(Tenant::new("evals")?);
        Ok(Self { memory, person, dir: dir.to_owned(), _temporary: None })
    }

    /// A memory that is opened already, whose directory goes with this.
    pub fn over(memory: Memory, dir: TempDir) -> Result<Self> {
        let person = Principal::local_operator(Tenant::new("evals")?);
        Ok(Self { memory, person, dir: dir.path().to_owned(), _temporary: Some(dir) })
    }

    pub async fn scope(&self, name: &str) -> Result<Scope> {
        Ok(self.memory.scope(&self.person, name).await?)
    }

    /// Takes in sessions as a scope.
    pub async fn remember(&self, name: &str, sessions: &[Session]) -> Result<Scope> {
        let scope = self.scope(name).await?;
        for session in sessions {
            for turns in session.turns.chunks(BATCH) {
                let turns = turns.iter().map(|turn| turn.raw()).collect::<Result<Vec<_>>>()?;
                self.memory.remember(&scope, &session.session, turns).await?;
            }
        }
        Ok(scope)
    }

    pub async fn settle(&self) -> Result<()> {
        let settled = self.memory.settle(|_, _| ()).await?;
        match settled.failed {
            0 => Ok(()),
            failed => Err(format!("{failed} branches did not settle").into()),
        }
    }

    /// Turns among the first hits, with how long that took.
    pub async fn search(
        &self,
        scope: &Scope,
        query: &str,
        mode: Mode,
        limit: usize,
    ) -> Result<(Vec<Hit>, Duration)> {
        let request = SearchRequest { limit, mode, ..SearchRequest::new(query) };
        let begun = Instant::now();
        let mut hits = self.memory.search(scope, &request).await?.hits;
        let took = begun.elapsed();
        hits.retain(|hit| hit.kind == DocKind::Turn);
        Ok((hits, took))
    }

    pub async fn context(
        &self,
        scope: &Scope,
        query: &str,
        budget: u32,
    ) -> Result<(Context, Duration)> {
        let request =
            ContextRequest { query: Some(query.to_owned()), budget, ..Default::default() };
        let begun = Instant::now();
        let context = self.memory.context(scope, request).await?;
        Ok((context, begun.elapsed()))
    }

    /// Where it lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of everything in the directory.
    pub fn disk_bytes(&self) -> Result<u64> {
        bytes_under(&self.dir)
    }
}

/// Bytes of all files of a directory.
pub fn bytes_under(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.metadata()?;
        bytes += if kind.is_dir() { bytes_under(&entry.path())? } else { kind.len() };
    }
    Ok(bytes)
}
