//! The layers above the turns: chunks, their summaries, and in which tier their bodies lie.

mod bodies;
mod compressed;
mod demotion;
mod due;

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo};
use icecore_domain::summary::{RedactedSummary, Summary};
use icecore_domain::time::Millis;

use crate::engine::prelude::*;
use crate::store::Store;
use crate::turns::rows;
use crate::{facts, scopes, secrets};

pub(crate) use bodies::open_key;
pub use bodies::{BodyPlace, MicroBody, PackCursor, PackRecord, TextBody};
pub use demotion::{ColdBody, ColdDemotion, NewPack, WarmDemotion};
pub(crate) use demotion::{put_pack, put_text};
pub use due::DueBranch;

#[derive(Debug, Clone, Copy)]
pub struct ChunkQuery {
    pub session: SessionNo,
    pub branch: Branch,
    pub level: Level,
    /// Only chunks that begin at or after this ordinal.
    pub from: Ordinal,
    /// Only chunks that end at or before this ordinal.
    pub through: Ordinal,
    /// The newest of them instead of the oldest; the answer is in order anyway.
    pub newest: bool,
    pub limit: usize,
}

impl ChunkQuery {
    pub fn all(session: SessionNo, branch: Branch, level: Level, limit: usize) -> Self {
        let (from, through) = (Ordinal(0), Ordinal(u64::MAX >> 1));
        Self { session, branch, level, from, through, newest: false, limit }
    }
}

/// A chunk with its summary. Times, tokens and turns count only turns that are not erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRecord {
    pub id: ChunkId,
    pub first_seq: Seq,
    pub last_seq: Seq,
    pub first_at: Millis,
    pub last_at: Millis,
    pub tokens: u64,
    pub turns: u64,
    /// Rises when erasure changes its body.
    pub revision: u32,
    pub summary: Option<RedactedSummary>,
}

#[derive(Debug, Clone)]
pub struct SummaryBatch {
    pub session: SessionNo,
    pub branch: Branch,
    pub level: Level,
    pub seen_through: Ordinal,
    pub through: Ordinal,
    /// The chunks, with the revision that was read.
    pub summaries: Vec<(ChunkId, u32, RedactedSummary)>,
    pub secrets_seen: u64,
}

impl Store {
    /// Chunks of a branch at one level, in order; see [`ChunkQuery`].
    pub async fn chunks(&self, scope: &Scope, query: &ChunkQuery) -> Result<Vec<ChunkRecord>> {
        let query = *query;
        self.read(scope, "chunks", move |tx| {
            let ChunkQuery { session, branch, level, from, through, newest, limit } = query;
            let Some(no) = rows::owned(tx, session)? else { return Ok(Vec::new()) };
            let order = if newest { "DESC" } else { "ASC" };
            let sql = format!(
                "SELECT {CHUNK_COLUMNS} FROM chunks c {WITH_SUMMARY}
                 WHERE c.tenant = ?1 AND c.session = ?2 AND c.branch = ?3 AND c.level = ?4
                   AND c.first >= ?5 AND c.last <= ?6
                 ORDER BY c.first {order} LIMIT ?7"
            );
            let values = params![no.tenant, session, branch, level, from, through, limit];
            let mut chunks = tx.all(&sql, values, read_chunk)?;
            if newest {
                chunks.reverse();
            }
            Ok(chunks)
        })
        .await
    }

    /// Chunks by session, branch, level and first ordinal, in the order asked. Those that
    /// are not in this scope are left out.
    pub async fn chunks_at(
        &self,
        scope: &Scope,
        ids: &[(SessionNo, Branch, Level, Ordinal)],
    ) -> Result<Vec<ChunkRecord>> {
        let ids = ids.to_vec();
        self.read(scope, "chunks_at", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let sql = format!(
        "SELECT {CHUNK_COLUMNS} FROM chunks c
         JOIN sessions o ON o.tenant = c.tenant AND o.session = c.session AND o.scope = ?6
         {WITH_SUMMARY}
         WHERE c.tenant = ?1 AND c.session = ?2 AND c.branch = ?3 AND c.level = ?4 AND c.first = ?5"
    );
            let key = |&(session, branch, level, first): &_| {
                values![no.tenant, session, branch, level, first, no.scope]
            };
            tx.all_of(&sql, ids.iter().map(key), read_chunk)
        })
        .await
    }

    /// Chunks of the scope that have summaries, by the number of the summary, after `after`.
    pub async fn summaries_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, ChunkRecord)>> {
        self.read(scope, "summaries_after", move |tx| {
            summaries_after(tx, tx.scope()?, after, limit)
        })
        .await
    }

    /// Records summaries of chunks and moves the watermark of that level to `through`. Does
    /// nothing if the watermark or the revision of one of the chunks is no longer the one
    /// given, so that they stay due. Each summary gets the scope's next number, also when it
    /// is written again. As with an append, it may be [`StoreError::SecretsChanged`].
    ///
    /// [`StoreError::SecretsChanged`]: crate::StoreError::SecretsChanged
    pub async fn put_summaries(&self, scope: &Scope, summaries: SummaryBatch) -> Result<()> {
        self.write(scope, "put_summaries", move |tx| put_summaries(tx, &summaries)).await
    }

    /// Drops every summary and fact of the scope, answers how many, marks its branches
    /// unsettled and has facts drawn from the first turn on. The epoch rises if anything was
    /// dropped. Numbers are not given again.
    pub async fn drop_derived(&self, scope: &Scope) -> Result<u64> {
        self.write(scope, "drop_derived", |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(0) };
            let dropped = drop_all(tx, no)?;
            if dropped > 0 {
                rows::raise_epoch(tx, no)?;
            }
            Ok(dropped)
        })
        .await
    }
}

const CHUNK_COLUMNS: &str =
    "c.session, c.branch, c.level, c.first, c.last, c.first_seq, c.last_seq,
    c.tokens, c.turns, c.revision, m.packed, m.summary,
    (SELECT t.at FROM turns t WHERE t.tenant = c.tenant AND t.session = c.session
       AND t.branch = c.branch AND t.seq BETWEEN c.first_seq AND c.last_seq AND t.flags & 4 = 0
     ORDER BY t.seq LIMIT 1),
    (SELECT t.at FROM turns t WHERE t.tenant = c.tenant AND t.session = c.session
       AND t.branch = c.branch AND t.seq BETWEEN c.first_seq AND c.last_seq AND t.flags & 4 = 0
     ORDER BY t.seq DESC LIMIT 1)";

const WITH_SUMMARY: &str = "LEFT JOIN summaries m ON m.tenant = c.tenant AND m.session = c.session
    AND m.branch = c.branch AND m.level = c.level AND m.first = c.first";

pub(crate) fn summaries_after(
    tx: &Tx<'_>,
    scope: &Scope,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, ChunkRecord)>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    tx.all(&summaries_after_sql(), params![no.tenant, no.scope, after, limit], |row| {
        Ok((row.get(14)?, read_chunk(row)?))
    })
}

pub(crate) fn summaries_after_sql() -> String {
    format!(
        "SELECT {CHUNK_COLUMNS}, m.number FROM summaries m INDEXED BY summaries_by_number
         CROSS JOIN chunks c ON c.tenant = m.tenant AND c.session = m.session
           AND c.branch = m.branch AND c.level = m.level AND c.first = m.first
         WHERE m.tenant = ?1 AND m.scope = ?2 AND m.number > ?3 ORDER BY m.number LIMIT ?4"
    )
}

fn read_chunk(row: &Row<'_>) -> Result<ChunkRecord> {
    let mut columns = Columns::of(row);
    let (session, branch, level, first, last) = columns.get()?;
    let id = ChunkId { session, branch, level, first, last };
    let (first_seq, last_seq, tokens, turns, revision) = columns.get()?;
    let summary: Option<(bool, Vec<u8>)> = columns.get()?;
    let summary = summary.map(|(is_compressed, bytes)| read_summary(&id, bytes, is_compressed));
    let (first_at, last_at): (Option<Millis>, Option<Millis>) = columns.get()?;
    Ok(ChunkRecord {
        id,
        first_seq,
        last_seq,
        first_at: first_at.unwrap_or_default(),
        last_at: last_at.unwrap_or_default(),
        tokens,
        turns,
        revision,
        summary: summary.transpose()?,
    })
}

#[expect(clippy::disallowed_methods, reason = "the summary comes from our own rows")]
fn read_summary(id: &ChunkId, bytes: Vec<u8>, is_compressed: bool) -> Result<RedactedSummary> {
    let json = compressed::decompress(id, bytes, is_compressed)?;
    let (text, themes, key_facts) =
        serde_json::from_str(&json).map_err(|error| compressed::damaged(id, error))?;
    Ok(RedactedSummary::read_back(Summary { text, themes, key_facts }))
}

fn write_summary(summary: &RedactedSummary) -> (Vec<u8>, bool) {
    let parts = summary.parts();
    let json = serde_json::json!([parts.text, parts.themes, parts.key_facts]);
    compressed::compress(&json.to_string())
}

fn put_summaries(tx: &Tx<'_>, batch: &SummaryBatch) -> Result<()> {
    let Some(no) = rows::owned(tx, batch.session)? else { return Ok(()) };
    secrets::refuse_changed(tx, tx.tenant()?, batch.secrets_seen)?;
    let at = (batch.session, batch.branch);
    let name = format!("{}_through", batch.level);
    let chunks = batch.summaries.iter().map(|(id, revision, _)| (id, *revision));
    if watermark(tx, no.tenant, at, &name)? != Some(batch.seen_through)
        || !unrevised(tx, no.tenant, at, batch.level, chunks)?
    {
        return Ok(());
    }
    let before = scopes::take_numbers(tx, no, "summaries", batch.summaries.len())?;
    let written: Vec<_> =
        batch.summaries.iter().map(|(id, _, summary)| (id, write_summary(summary))).collect();
    let rows: Vec<_> = (before + 1..)
        .zip(&written)
        .map(|(number, (id, (bytes, is_compressed)))| {
            let packed = i64::from(*is_compressed);
            values![
                no.tenant,
                id.session,
                id.branch,
                id.level,
                id.first,
                packed,
                bytes.as_slice(),
                no.scope,
                number
            ]
        })
        .collect();
    tx.run_each(
        "INSERT INTO summaries (tenant, session, branch, level, first, packed, summary, scope, number)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (tenant, session, branch, level, first) DO UPDATE
           SET packed = excluded.packed, summary = excluded.summary,
             scope = excluded.scope, number = excluded.number",
        &rows,
    )?;
    move_watermark(tx, no.tenant, at, &name, batch.through)
}

/// Drops what is derived in a scope, so that it is derived anew; answers how many.
pub(crate) fn drop_all(tx: &Tx<'_>, no: ScopeNo) -> Result<u64> {
    let in_scope = "tenant = ?1 AND session IN (SELECT session FROM sessions WHERE tenant = ?1 AND scope = ?2)";
    let scope = [no.tenant, no.scope];
    let summaries = tx.run(&format!("DELETE FROM summaries WHERE {in_scope}"), scope)?;
    let facts = facts::drop_all(tx, no)?;
    tx.change(
        &format!(
            "UPDATE branches SET micro_through = 0, mini_through = 0, macro_through = 0,
                version = version + 1, unsettled = 1 WHERE {in_scope}"
        ),
        scope,
    )?;
    Ok((summaries + facts) as u64)
}

/// Whether all are chunks of this branch and level, and still have the revisions that were
/// read.
pub(crate) fn unrevised<'a>(
    tx: &Tx<'_>,
    tenant: i64,
    at: (SessionNo, Branch),
    level: Level,
    chunks: impl Iterator<Item = (&'a ChunkId, u32)>,
) -> Result<bool> {
    let (ids, revisions): (Vec<&ChunkId>, Vec<u32>) = chunks.unzip();
    if ids.iter().any(|id| ((id.session, id.branch), id.level) != (at, level)) {
        return Ok(false);
    }
    let key = |id: &&ChunkId| values![tenant, id.session, id.branch, id.level, id.first, id.last];
    let found: Vec<u32> = tx.all_of(
        "SELECT revision FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
           AND level = ?4 AND first = ?5 AND last = ?6",
        ids.iter().map(key),
        column,
    )?;
    Ok(found == revisions)
}

/// A branch's column that says how far its layers go; none of a branch that is not there.
pub(crate) fn watermark(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (SessionNo, Branch),
    name: &str,
) -> Result<Option<Ordinal>> {
    let sql =
        format!("SELECT {name} FROM branches WHERE tenant = ?1 AND session = ?2 AND branch = ?3");
    tx.first(&sql, params![tenant, session, branch], column)
}

fn move_watermark(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (SessionNo, Branch),
    name: &str,
    to: Ordinal,
) -> Result<()> {
    let sql = format!(
        "UPDATE branches SET {name} = ?4, version = version + 1
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3"
    );
    tx.change(&sql, params![tenant, session, branch, to])
}
