//! A closed chunk by its layers: its turns, and what stands for them.

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Scope, Seq};
use icecore_domain::redact::{RedactedTurn, Redactor};
use icecore_domain::summary::Summary;
use icecore_domain::time::Millis;
use icecore_store::{ChunkQuery, ChunkRecord, TurnQuery, TurnRow};

use crate::dreams::Dreams;
use crate::error::{MemoryError, Result, off_thread};
use crate::layers::{summarize_above, summarize_micro};

/// Turns of a chunk read at once.
const TURNS_A_READ: usize = 1_000;

/// Summaries of chunks of one level.
pub(super) type Layer = (Level, Vec<Summary>);

impl Dreams {
    /// The summaries of a chunk and of those below it, finest first. What the worker has
    /// not made, or does not make, is made here as it would be, and not written: a dream
    /// does not depend on who was first. A level that cannot be told whole, because turns
    /// are damaged, is left out.
    pub(super) async fn levels(
        &self,
        scope: &Scope,
        redactor: &Redactor,
        id: ChunkId,
        first_seq: Seq,
    ) -> Result<Vec<Layer>> {
        let mut layers = Vec::new();
        for level in Level::ALL.into_iter().filter(|level| *level <= id.level) {
            let query = ChunkQuery {
                from: id.first,
                through: id.last,
                ..ChunkQuery::all(id.session, id.branch, level, usize::MAX >> 1)
            };
            let mut chunks = self.store.chunks(scope, &query).await?;
            chunks.retain(|chunk| chunk.turns > 0);
            layers.push((level, chunks));
        }
        let lacks = |chunk: &ChunkRecord| chunk.summary.is_none();
        let needs_turns =
            layers.iter().any(|(level, chunks)| *level == Level::Micro && chunks.iter().any(lacks));
        let rows = match needs_turns {
            false => Some(Vec::new()),
            true => match self.chunk_rows(scope, id, first_seq).await {
                Err(error) if is_damage(&error) => {
                    tracing::warn!(%scope, chunk = %id, %error, "a dream reads a chunk by what stands for it already");
                    None
                }
                rows => Some(rows?),
            },
        };
        let (inner, redactor) = (self.clone(), redactor.clone());
        off_thread(move || told(&inner, &redactor, &layers, rows.as_deref())).await?
    }

    /// The turns of a chunk, as far as they were not erased.
    pub(super) async fn chunk_rows(
        &self,
        scope: &Scope,
        id: ChunkId,
        first_seq: Seq,
    ) -> Result<Vec<TurnRow>> {
        let mut rows = Vec::new();
        let mut after = Seq(first_seq.0.saturating_sub(1));
        loop {
            let query = TurnQuery {
                branch: Some(id.branch),
                after,
                ..TurnQuery::all(id.session, TURNS_A_READ)
            };
            let page = self.store.turns(scope, &query).await?;
            let is_last =
                page.len() < TURNS_A_READ || page.last().is_none_or(|row| row.ordinal >= id.last);
            after = page.last().map_or(after, |row| row.id.seq);
            rows.extend(
                page.into_iter().filter(|row| id.first <= row.ordinal && row.ordinal <= id.last),
            );
            if is_last {
                return self.hydrate(scope, rows).await;
            }
        }
    }
}

/// Whether a part of the store is damaged or missing.
pub(super) fn is_damage(error: &MemoryError) -> bool {
    matches!(error, MemoryError::Store(error) if error.is_damage())
}

/// What stands for a chunk.
enum Told {
    By(Summary),
    /// There is nothing to say: its turns were let go.
    Nothing,
    /// Its turns cannot be read.
    Unknown,
}

fn told(
    inner: &Dreams,
    redactor: &Redactor,
    layers: &[(Level, Vec<ChunkRecord>)],
    rows: Option<&[TurnRow]>,
) -> Result<Vec<Layer>> {
    let mut levels = Vec::new();
    let mut below: Vec<(ChunkId, Told)> = Vec::new();
    for (level, chunks) in layers {
        let mut known = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let told = match &chunk.summary {
                Some(summary) => Told::By(summary.parts().clone()),
                None if *level == Level::Micro => from_turns(inner, redactor, chunk, rows)?,
                None => from_children(inner, redactor, chunk, &below)?,
            };
            known.push((chunk.id, told));
        }
        let summaries: Vec<Summary> = known
            .iter()
            .filter_map(|(_, told)| match told {
                Told::By(summary) => Some(summary.clone()),
                Told::Nothing | Told::Unknown => None,
            })
            .collect();
        let is_whole = !known.iter().any(|(_, told)| matches!(told, Told::Unknown));
        if is_whole && !summaries.is_empty() {
            levels.push((*level, summaries));
        }
        below = known;
    }
    Ok(levels)
}

fn from_turns(
    inner: &Dreams,
    redactor: &Redactor,
    micro: &ChunkRecord,
    rows: Option<&[TurnRow]>,
) -> Result<Told> {
    let Some(rows) = rows else { return Ok(Told::Unknown) };
    let inside = |row: &&TurnRow| micro.id.first <= row.ordinal && row.ordinal <= micro.id.last;
    let turns: Vec<(Millis, &RedactedTurn)> =
        rows.iter().filter(inside).filter_map(|row| Some((row.at, row.body.as_ref()?))).collect();
    if turns.is_empty() {
        return Ok(Told::Nothing);
    }
    let made = summarize_micro(inner, redactor, micro.tokens, &turns)?;
    Ok(Told::By(made.parts().clone()))
}

fn from_children(
    inner: &Dreams,
    redactor: &Redactor,
    chunk: &ChunkRecord,
    below: &[(ChunkId, Told)],
) -> Result<Told> {
    let inside = |id: &ChunkId| chunk.id.first <= id.first && id.last <= chunk.id.last;
    let mut parts = Vec::new();
    for (_, told) in below.iter().filter(|(id, _)| inside(id)) {
        match told {
            Told::By(summary) => parts.push(summary),
            Told::Nothing => {}
            Told::Unknown => return Ok(Told::Unknown),
        }
    }
    if parts.is_empty() {
        return Ok(Told::Nothing);
    }
    let made = summarize_above(inner, redactor, chunk.id.level, chunk.tokens, &parts)?;
    Ok(Told::By(made.parts().clone()))
}
