//! The layers: chunks, where bodies are, and moving them down a tier.

use std::cell::RefCell;
use std::collections::BTreeSet;

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo, Tenant, TurnId};
use icecore_domain::redact::{RedactedSummary, RedactedText};
use icecore_domain::summary::Summary;
use icecore_domain::time::Millis;

use crate::bounds::Change;
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Row, Value, params};
use crate::error::{Result, StoreError};
use crate::keys::TenantKey;
use crate::pack::{PackKey, TextFormat};
use crate::store::Store;
use crate::turns::rows::EXPIRED;
use crate::turns::{TurnRow, recalled, rows};
use crate::{engine, facts, log, scopes, secrets, usage};

/// Which chunks to read.
#[derive(Debug, Clone, Copy)]
pub struct ChunkQuery {
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// Of which level.
    pub level: Level,
    /// Only chunks that begin at or after this ordinal.
    pub from: Ordinal,
    /// Only chunks that end at or before this ordinal.
    pub through: Ordinal,
    /// The newest of them instead of the oldest; the answer is in order anyway.
    pub newest: bool,
    /// At most so many.
    pub limit: usize,
}

impl ChunkQuery {
    /// All chunks of one level of a branch, up to `limit`.
    pub fn all(session: SessionNo, branch: Branch, level: Level, limit: usize) -> Self {
        let (from, through) = (Ordinal(0), Ordinal(u64::MAX >> 1));
        Self { session, branch, level, from, through, newest: false, limit }
    }
}

/// A chunk: its cut, and what was derived for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Its identity.
    pub id: ChunkId,
    /// `seq` of its first turn.
    pub first_seq: Seq,
    /// `seq` of its last turn.
    pub last_seq: Seq,
    /// The time of its first turn that is there.
    pub first_at: Millis,
    /// The time of its last turn that is there.
    pub last_at: Millis,
    /// Tokens of its turns that are there.
    pub tokens: u64,
    /// Turns of it that are there.
    pub turns: u64,
    /// Rises when erasure changes its body.
    pub revision: u32,
    /// What stands for it, once derived.
    pub summary: Option<RedactedSummary>,
}

/// A body of a micro as text, made from turns that the store gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextBody {
    /// How to read it.
    pub format: TextFormat,
    /// The text.
    pub text: RedactedText,
}

/// Where a micro's body is.
#[derive(Debug, Clone)]
pub struct MicroBody {
    /// Which micro.
    pub id: ChunkId,
    /// Its revision.
    pub revision: u32,
    /// `seq` of its first turn.
    pub first_seq: Seq,
    /// `seq` of its last turn.
    pub last_seq: Seq,
    /// Where.
    pub place: BodyPlace,
}

/// The one place of a body.
#[derive(Debug, Clone)]
pub enum BodyPlace {
    /// In the turns' rows, also when all of them are tombstones.
    Rows,
    /// In the store, as text.
    Text(TextBody),
    /// In a pack, as the member of this micro.
    Pack(PackRecord),
    /// Let go by retention, or nothing of it is left.
    Gone,
}

/// A branch with work due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueBranch {
    /// Whose.
    pub scope: Scope,
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
}

/// Micros that leave the hot tier, oldest first, without a gap.
#[derive(Debug, Clone)]
pub struct WarmDemotion {
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// The watermark as the caller saw it.
    pub seen_through: Ordinal,
    /// The micros, with the revision that was read, and their text (none where
    /// every turn of it was erased).
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
}

/// A macro whose micros leave the warm tier.
#[derive(Debug, Clone)]
pub struct ColdDemotion {
    /// Which macro.
    pub id: ChunkId,
    /// The watermark as the caller saw it.
    pub seen_through: Ordinal,
    /// Its micros with the revisions that were read.
    pub micros: Vec<(ChunkId, u32)>,
    /// Where the body goes.
    pub body: ColdBody,
    /// When.
    pub now: Millis,
}

/// Where a cold body goes.
#[derive(Debug, Clone)]
pub enum ColdBody {
    /// Into this pack, already written and read back.
    Pack(NewPack),
    /// It stays as text in the store.
    StaysText,
    /// Nowhere: nothing is left of it, or it is not to be kept. What is left
    /// expires, as with [`Store::expire_pack`].
    Dropped,
}

/// A pack that was written.
#[derive(Debug, Clone)]
pub struct NewPack {
    /// Its random name.
    pub name: String,
    /// Its own key.
    pub key: PackKey,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of the object as it lies there.
    pub sha256: [u8; 32],
}

/// A pack as recorded.
#[derive(Debug, Clone)]
pub struct PackRecord {
    /// Whose.
    pub scope: Scope,
    /// The macro whose bodies it holds.
    pub id: ChunkId,
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: PackKey,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of the object as it lies there.
    pub sha256: [u8; 32],
    /// When it was written.
    pub created_at: Millis,
}

/// Summaries of one level of one branch.
#[derive(Debug, Clone)]
pub struct SummaryBatch {
    /// Which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// Which level.
    pub level: Level,
    /// The watermark as the caller saw it.
    pub seen_through: Ordinal,
    /// The new watermark.
    pub through: Ordinal,
    /// The chunks, with the revision that was read.
    pub summaries: Vec<(ChunkId, u32, RedactedSummary)>,
    /// The version of the tenant's secrets that they were redacted with.
    pub secrets_seen: u64,
}

/// Label under which pack keys are sealed.
const PACK_KEY: &str = "pack";

/// Text is kept compressed if that saves at least a tenth.
const COMPRESSION_LEVEL: i32 = 6;

/// A body in the store never unpacks to more than this.
const MAX_TEXT_BYTES: usize = 256 << 20;

// Compressed text

/// Whether bytes are compressed, and the bytes.
type Squeezed = (bool, Vec<u8>);

thread_local! {
    // Making a context costs more than using it on a few hundred bytes.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> =
        RefCell::new(zstd::bulk::Compressor::new(COMPRESSION_LEVEL).ok());
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
        RefCell::new(zstd::bulk::Decompressor::new().ok());
}

/// The bytes to keep, and whether they are compressed.
pub(crate) fn squeeze(text: &[u8]) -> (Vec<u8>, bool) {
    let packed = COMPRESSOR.with_borrow_mut(|c| c.as_mut().and_then(|c| c.compress(text).ok()));
    match packed {
        Some(packed) if packed.len() * 10 <= text.len() * 9 => (packed, true),
        _ => (text.to_vec(), false),
    }
}

fn unsqueeze(bytes: Vec<u8>, packed: bool) -> std::result::Result<String, String> {
    let plain = match packed {
        true => decompress(&bytes)?,
        false => bytes,
    };
    String::from_utf8(plain).map_err(|_| "it is not UTF-8".to_owned())
}

fn decompress(bytes: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let size = zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten();
    let size = size.ok_or("it does not say how large it is")?;
    if size > MAX_TEXT_BYTES as u64 {
        return Err("it unpacks to more than 256 MiB".to_owned());
    }
    DECOMPRESSOR.with_borrow_mut(|d| match d {
        Some(d) => d.decompress(bytes, size as usize).map_err(|error| error.to_string()),
        None => Err("there is no memory to unpack it".to_owned()),
    })
}

// Chunks

pub(crate) fn chunks(tx: &Tx<'_>, scope: &Scope, query: &ChunkQuery) -> Result<Vec<ChunkRecord>> {
    let Some(no) = rows::owned(tx, scope, query.session)? else { return Ok(Vec::new()) };
    let order = if query.newest { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT {CHUNK_COLUMNS} FROM chunks c {WITH_SUMMARY}
         WHERE c.tenant = ?1 AND c.session = ?2 AND c.branch = ?3 AND c.level = ?4
           AND c.first >= ?5 AND c.last <= ?6
         ORDER BY c.first {order} LIMIT ?7"
    );
    let found: Vec<ChunkRow> = tx.prepare_cached(&sql).and_then(|mut q| {
        let bounds = params![
            no.tenant,
            query.session.0 as i64,
            query.branch.0,
            rows::level_no(query.level),
            engine::number(query.from.0),
            engine::number(query.through.0),
            engine::number(query.limit as u64)
        ];
        q.query_map(bounds, read_chunk)?.collect()
    })?;
    let mut records = found.into_iter().map(ChunkRow::open).collect::<Result<Vec<_>>>()?;
    if query.newest {
        records.reverse();
    }
    Ok(records)
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

/// A chunk before its summary is unpacked.
struct ChunkRow {
    record: ChunkRecord,
    summary: Option<Squeezed>,
}

impl ChunkRow {
    fn open(self) -> Result<ChunkRecord> {
        let ChunkRow { mut record, summary } = self;
        record.summary =
            summary.map(|(packed, bytes)| read_summary(&record.id, bytes, packed)).transpose()?;
        Ok(record)
    }
}

fn read_chunk(row: &Row<'_>) -> Result<ChunkRow> {
    let number = |column: usize| row.get::<_, i64>(column).map(|number| number as u64);
    let time =
        |column: usize| row.get::<_, Option<i64>>(column).map(|at| Millis(at.unwrap_or_default()));
    let summary = match row.get::<_, Option<Vec<u8>>>(11)? {
        Some(bytes) => Some((row.get(10)?, bytes)),
        None => None,
    };
    let level = number(2)? as usize;
    let record = ChunkRecord {
        id: ChunkId {
            session: SessionNo(number(0)?),
            branch: Branch(row.get(1)?),
            level: *Level::ALL.get(level).unwrap_or(&Level::Macro),
            first: Ordinal(number(3)?),
            last: Ordinal(number(4)?),
        },
        first_seq: Seq(number(5)?),
        last_seq: Seq(number(6)?),
        tokens: number(7)?,
        turns: number(8)?,
        revision: row.get(9)?,
        first_at: time(12)?,
        last_at: time(13)?,
        summary: None,
    };
    Ok(ChunkRow { record, summary })
}

pub(crate) fn chunks_at(
    tx: &Tx<'_>,
    scope: &Scope,
    ids: &[(SessionNo, Branch, Level, Ordinal)],
) -> Result<Vec<ChunkRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let read = || -> Result<_> {
        let mut query = tx.prepare_cached(&format!(
            "SELECT {CHUNK_COLUMNS} FROM chunks c
             JOIN sessions o ON o.tenant = c.tenant AND o.session = c.session AND o.scope = ?6
             {WITH_SUMMARY}
             WHERE c.tenant = ?1 AND c.session = ?2 AND c.branch = ?3 AND c.level = ?4 AND c.first = ?5"
        ))?;
        let key = |(session, branch, level, first): &(SessionNo, Branch, Level, Ordinal)| {
            let (session, first) = (engine::number(session.0), engine::number(first.0));
            vec![no.tenant, session, branch.0.into(), rows::level_no(*level), first, no.scope]
        };
        let keys: Vec<_> = ids.iter().map(key).map(engine::integers).collect();
        query.query_each(&keys, read_chunk)
    };
    let found = read()?;
    found.into_iter().flatten().map(ChunkRow::open).collect()
}

pub(crate) fn summaries_after(
    tx: &Tx<'_>,
    scope: &Scope,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, ChunkRecord)>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let found: Vec<(u64, ChunkRow)> =
        tx.prepare_cached(&summaries_after_sql()).and_then(|mut q| {
            let bounds = [no.tenant, no.scope, engine::number(after), engine::number(limit as u64)];
            q.query_map(bounds, |row| Ok((row.get::<_, i64>(14)? as u64, read_chunk(row)?)))?
                .collect()
        })?;
    found.into_iter().map(|(number, row)| Ok((number, row.open()?))).collect()
}

pub(crate) fn summaries_after_sql() -> String {
    format!(
        "SELECT {CHUNK_COLUMNS}, m.number FROM summaries m INDEXED BY summaries_by_number
         CROSS JOIN chunks c ON c.tenant = m.tenant AND c.session = m.session
           AND c.branch = m.branch AND c.level = m.level AND c.first = m.first
         WHERE m.tenant = ?1 AND m.scope = ?2 AND m.number > ?3 ORDER BY m.number LIMIT ?4"
    )
}

#[expect(clippy::disallowed_methods, reason = "the summary comes from our own rows")]
fn read_summary(id: &ChunkId, bytes: Vec<u8>, packed: bool) -> Result<RedactedSummary> {
    let damaged = |reason: String| StoreError::BodyDamaged { chunk: id.to_string(), reason };
    let text = unsqueeze(bytes, packed).map_err(damaged)?;
    let (text, themes, key_facts) =
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    Ok(RedactedSummary::read_back(Summary { text, themes, key_facts }))
}

fn write_summary(summary: &RedactedSummary) -> (Vec<u8>, bool) {
    let parts = summary.parts();
    squeeze(serde_json::json!([parts.text, parts.themes, parts.key_facts]).to_string().as_bytes())
}

// Bodies

pub(crate) fn bodies(
    tx: &Tx<'_>,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    first: Ordinal,
    last: Ordinal,
) -> Result<Vec<MicroBody>> {
    let Some(no) = rows::owned(tx, scope, session)? else { return Ok(Vec::new()) };
    let clamp = |ordinal: Ordinal| engine::number(ordinal.0);
    // Chunks tile, so those that overlap the range begin with the last that
    // begins at or before it.
    let found: Vec<MicroRow> = tx
        .prepare_cached(
            &format!("SELECT {MICRO_COLUMNS}
             WHERE c.tenant = ?1 AND c.session = ?2 AND c.branch = ?3 AND c.level = 0 AND c.first <= ?5
               AND c.first >= coalesce((SELECT max(first) FROM chunks WHERE tenant = ?1 AND session = ?2
                   AND branch = ?3 AND level = 0 AND first <= ?4), 0)
               AND c.last >= ?4
             ORDER BY c.first"),
        )
        .and_then(|mut q| {
            let range = params![no.tenant, session.0 as i64, branch.0, clamp(first), clamp(last)];
            q.query_map(range, read_micro)?.collect()
        })?;
    find_places(tx, scope, no, found)
}

pub(crate) fn bodies_at(
    tx: &Tx<'_>,
    scope: &Scope,
    places: Vec<(SessionNo, Branch, Ordinal)>,
) -> Result<Vec<MicroBody>> {
    match scopes::scope_no(tx, scope)? {
        Some(no) => bodies_in(tx, scope, no, places),
        None => Ok(Vec::new()),
    }
}

/// As [`Store::turns_at`], with the bodies that are not in their rows.
pub(crate) fn whole_turns_at(
    tx: &Tx<'_>,
    scope: &Scope,
    ids: &[TurnId],
) -> Result<(Vec<TurnRow>, Vec<MicroBody>)> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok((Vec::new(), Vec::new())) };
    let turns = rows::turns_in(tx, no, ids)?;
    let places = turns.iter().filter(|row| row.lacks_body()).map(TurnRow::place).collect();
    let bodies = bodies_in(tx, scope, no, places)?;
    Ok((turns, bodies))
}

fn bodies_in(
    tx: &Tx<'_>,
    scope: &Scope,
    no: ScopeNo,
    mut places: Vec<(SessionNo, Branch, Ordinal)>,
) -> Result<Vec<MicroBody>> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    places.sort_unstable();
    let read = || -> Result<_> {
        // A micro may hold many of them: first where each is, then each body once.
        let key = |(session, branch, ordinal): &(SessionNo, Branch, Ordinal)| {
            let (session, ordinal) = (engine::number(session.0), engine::number(ordinal.0));
            vec![no.tenant, session, branch.0.into(), ordinal, no.scope]
        };
        let keys: Vec<_> = places.iter().map(key).map(engine::integers).collect();
        let spans = tx
            .prepare_cached(
                "SELECT k.first, k.last FROM chunks k
                 WHERE k.tenant = ?1 AND k.session = ?2 AND k.branch = ?3 AND k.level = 0
                   AND k.first <= ?4 AND EXISTS (SELECT 1 FROM sessions o
                     WHERE o.tenant = ?1 AND o.session = ?2 AND o.scope = ?5)
                 ORDER BY k.first DESC LIMIT 1",
            )?
            .query_each(&keys, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let mut micros = BTreeSet::new();
        for ((session, branch, ordinal), span) in places.iter().zip(spans) {
            let holder = span.into_iter().find(|(_, last)| engine::number(ordinal.0) <= *last);
            micros.extend(holder.map(|(first, _)| (*session, *branch, first)));
        }
        let key = |(session, branch, first): &(SessionNo, Branch, i64)| {
            vec![no.tenant, engine::number(session.0), branch.0.into(), *first]
        };
        let keys: Vec<_> = micros.iter().map(key).map(engine::integers).collect();
        let found = tx
            .prepare_cached(&format!(
                "SELECT {MICRO_COLUMNS}
                 WHERE c.tenant = ?1 AND c.session = ?2 AND c.branch = ?3 AND c.level = 0
                   AND c.first = ?4"
            ))?
            .query_each(&keys, read_micro)?;
        Ok(found.into_iter().flatten().collect())
    };
    find_places(tx, scope, no, read()?)
}

const MICRO_COLUMNS: &str =
    "c.first, c.last, c.first_seq, c.last_seq, c.revision, c.turns > 0, x.format, x.packed, x.text,
     c.session, c.branch, w.warm_through
     FROM chunks c JOIN branches w ON w.tenant = c.tenant AND w.session = c.session
          AND w.branch = c.branch
     LEFT JOIN texts x ON x.tenant = c.tenant AND x.session = c.session
          AND x.branch = c.branch AND x.first = c.first";

/// Says of micros where their bodies are.
fn find_places(
    tx: &Tx<'_>,
    scope: &Scope,
    no: ScopeNo,
    found: Vec<MicroRow>,
) -> Result<Vec<MicroBody>> {
    let cold = found.iter().filter(|micro| micro.is_cold()).map(|micro| micro.body.id).collect();
    let mut packs = packs_of(tx, scope, no, cold)?.into_iter();
    let mut bodies = Vec::with_capacity(found.len());
    for micro in found {
        let is_cold = micro.is_cold();
        let MicroRow { mut body, any_left, is_hot, text } = micro;
        let id = body.id;
        body.place = match text {
            _ if is_hot => BodyPlace::Rows,
            Some((format, (packed, bytes))) => {
                BodyPlace::Text(read_text(&id, format, bytes, packed)?)
            }
            // A pack has no member for a micro of tombstones.
            None if !any_left || !is_cold => BodyPlace::Gone,
            None => packs.next().flatten().map_or(BodyPlace::Gone, BodyPlace::Pack),
        };
        bodies.push(body);
    }
    Ok(bodies)
}

/// A micro before its place is known.
struct MicroRow {
    body: MicroBody,
    any_left: bool,
    /// Whether its turns have their bodies themselves.
    is_hot: bool,
    /// Format and text, if it has one.
    text: Option<(i64, Squeezed)>,
}

impl MicroRow {
    /// Whether its body can only be in a pack.
    fn is_cold(&self) -> bool {
        !self.is_hot && self.text.is_none() && self.any_left
    }
}

fn read_micro(row: &Row<'_>) -> Result<MicroRow> {
    let number = |column: usize| row.get::<_, i64>(column).map(|number| number as u64);
    let (first, last) = (Ordinal(number(0)?), Ordinal(number(1)?));
    let (session, branch) = (SessionNo(number(9)?), Branch(row.get(10)?));
    let is_hot = last > Ordinal(number(11)?);
    let body = MicroBody {
        id: ChunkId { session, branch, level: Level::Micro, first, last },
        first_seq: Seq(number(2)?),
        last_seq: Seq(number(3)?),
        revision: row.get(4)?,
        place: BodyPlace::Gone,
    };
    let text = match row.get::<_, Option<Vec<u8>>>(8)? {
        Some(bytes) => Some((row.get(6)?, (row.get(7)?, bytes))),
        None => None,
    };
    Ok(MicroRow { body, any_left: row.get(5)?, is_hot, text })
}

#[expect(clippy::disallowed_methods, reason = "the text comes from our own rows")]
fn read_text(id: &ChunkId, format: i64, bytes: Vec<u8>, packed: bool) -> Result<TextBody> {
    let damaged = |reason: String| StoreError::BodyDamaged { chunk: id.to_string(), reason };
    let format = match format {
        0 => TextFormat::Ctf,
        1 => TextFormat::Jsonl,
        other => return Err(damaged(format!("unknown format {other}"))),
    };
    let text = unsqueeze(bytes, packed).map_err(damaged)?;
    Ok(TextBody { format, text: RedactedText::read_back(text) })
}

/// Puts the text of a micro that has none, and answers its bytes as they are kept.
pub(crate) fn put_text(tx: &Tx<'_>, tenant: i64, id: &ChunkId, body: &TextBody) -> Result<i64> {
    let (bytes, packed) = squeeze(body.text.as_str().as_bytes());
    let format = match body.format {
        TextFormat::Ctf => 0,
        TextFormat::Jsonl => 1,
    };
    tx.prepare_cached(
        "INSERT INTO texts (tenant, session, branch, first, format, packed, text)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (tenant, session, branch, first) DO UPDATE
           SET format = excluded.format, packed = excluded.packed, text = excluded.text",
    )?
    .execute(params![
        tenant,
        id.session.0 as i64,
        id.branch.0,
        id.first.0 as i64,
        format,
        packed,
        bytes
    ])?;
    Ok(bytes.len() as i64)
}

// Packs

const PACK_COLUMNS: &str = "p.tenant, p.session, p.branch, p.first, p.last, p.name, p.sealed_key, p.bytes, p.sha256, p.created_at";

/// A pack's row, before its key is opened.
struct PackRow {
    tenant: i64,
    id: ChunkId,
    name: String,
    sealed_key: Vec<u8>,
    bytes: u64,
    sha256: Vec<u8>,
    created_at: Millis,
}

fn read_pack(row: &Row<'_>) -> Result<PackRow> {
    Ok(PackRow {
        tenant: row.get(0)?,
        id: ChunkId {
            session: SessionNo(row.get::<_, i64>(1)? as u64),
            branch: Branch(row.get(2)?),
            level: Level::Macro,
            first: Ordinal(row.get::<_, i64>(3)? as u64),
            last: Ordinal(row.get::<_, i64>(4)? as u64),
        },
        name: row.get(5)?,
        sealed_key: row.get(6)?,
        bytes: row.get::<_, i64>(7)? as u64,
        sha256: row.get(8)?,
        created_at: Millis(row.get(9)?),
    })
}

impl PackRow {
    fn open(self, scope: Scope, key: &TenantKey) -> Result<PackRecord> {
        let opened = key
            .open(PACK_KEY, &self.sealed_key)
            .and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
        let Some(key) = opened else {
            return Err(StoreError::PackDamaged {
                name: self.name,
                reason: "its sealed key does not open".to_owned(),
            });
        };
        Ok(PackRecord {
            scope,
            id: self.id,
            name: self.name,
            key: PackKey::from_bytes(key),
            bytes: self.bytes,
            sha256: self.sha256.try_into().unwrap_or_default(),
            created_at: self.created_at,
        })
    }
}

/// The packs that hold these micros, in the order asked.
fn packs_of(
    tx: &Tx<'_>,
    scope: &Scope,
    no: ScopeNo,
    micros: Vec<ChunkId>,
) -> Result<Vec<Option<PackRecord>>> {
    if micros.is_empty() {
        return Ok(Vec::new());
    }
    let key = |id: &ChunkId| {
        let (session, first) = (engine::number(id.session.0), engine::number(id.first.0));
        vec![no.tenant, session, id.branch.0.into(), first]
    };
    let keys: Vec<_> = micros.iter().map(key).map(engine::integers).collect();
    let found = tx
        .prepare_cached(&format!(
            "SELECT {PACK_COLUMNS}, t.sealed_key FROM packs p JOIN tenants t ON t.tenant = p.tenant
             WHERE p.tenant = ?1 AND p.session = ?2 AND p.branch = ?3 AND p.first <= ?4
             ORDER BY p.first DESC LIMIT 1"
        ))
        .and_then(|mut q| {
            q.query_each(&keys, |row| Ok((read_pack(row)?, row.get::<_, Vec<u8>>(10)?)))
        })?;
    let Some((_, sealed)) = found.iter().flatten().next() else {
        return Ok(vec![None; micros.len()]);
    };
    let key = tx.keys().open(tx, scope.tenant(), sealed.clone())?;
    let covers =
        |id: &ChunkId, pack: &PackRow| pack.id.first <= id.first && id.last <= pack.id.last;
    let opened = micros.iter().zip(found).map(|(id, found)| {
        let found = found.into_iter().next().map(|(pack, _)| pack);
        found.filter(|pack| covers(id, pack)).map(|pack| pack.open(scope.clone(), &key)).transpose()
    });
    opened.collect()
}

pub(crate) fn packs(
    tx: &Tx<'_>,
    tenant: Option<&Tenant>,
    before: Option<Millis>,
    limit: usize,
) -> Result<Vec<PackRecord>> {
    let age = if before.is_some() { "p.created_at, " } else { "" };
    let found: Vec<(PackRow, i64)> = tx
        .prepare_cached(&format!(
            "SELECT {PACK_COLUMNS}, o.scope FROM packs p
             JOIN sessions o ON o.tenant = p.tenant AND o.session = p.session
             JOIN tenants t ON t.tenant = p.tenant
             WHERE (?1 IS NULL OR t.name = ?1) AND (?2 IS NULL OR p.created_at < ?2)
             ORDER BY {age}p.tenant, p.session, p.branch, p.first LIMIT ?3"
        ))
        .and_then(|mut q| {
            q.query_map(
                params![
                    tenant.map(Tenant::as_str),
                    before.map(|b| b.0),
                    engine::number(limit as u64)
                ],
                |row| Ok((read_pack(row)?, row.get(10)?)),
            )?
            .collect()
        })?;
    let mut records = Vec::with_capacity(found.len());
    for (row, scope) in found {
        let scope = scopes::scope_of(tx, row.tenant, scope)?;
        if let Some(key) = scopes::tenant_key(tx, scope.tenant())? {
            records.push(row.open(scope, &key)?);
        }
    }
    Ok(records)
}

pub(crate) fn put_pack(
    tx: &Tx<'_>,
    scope: &Scope,
    tenant: i64,
    id: &ChunkId,
    pack: &NewPack,
    now: Millis,
) -> Result<()> {
    let (_, key) = scopes::ensure_tenant(tx, scope.tenant())?;
    tx.prepare_cached(
        "INSERT INTO packs (tenant, session, branch, first, last, name, sealed_key, bytes, sha256, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (tenant, session, branch, first) DO UPDATE
           SET last = excluded.last, name = excluded.name, sealed_key = excluded.sealed_key,
             bytes = excluded.bytes, sha256 = excluded.sha256, created_at = excluded.created_at",
    )
    .and_then(|mut q| {
        q.execute(params![
            tenant,
            id.session.0 as i64,
            id.branch.0,
            id.first.0 as i64,
            id.last.0 as i64,
            pack.name,
            key.seal(PACK_KEY, pack.key.as_bytes()),
            pack.bytes as i64,
            pack.sha256.as_slice(),
            now.0
        ])
    })
    .map(|_| ())
}

pub(crate) fn expire_pack(tx: &Tx<'_>, pack: &PackRecord, now: Millis) -> Result<()> {
    let Some(no) = scopes::scope_no(tx, &pack.scope)? else { return Ok(()) };
    let (session, branch) = (pack.id.session.0 as i64, pack.id.branch.0);
    let (first, last) = (pack.id.first.0 as i64, pack.id.last.0 as i64);
    let expire = || -> Result<_> {
        let gone: Option<i64> = tx
            .prepare_cached(
                "DELETE FROM packs WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4
                   AND name = ?5 RETURNING bytes",
            )?
            .query_row(params![no.tenant, session, branch, first, pack.name], |row| row.get(0))
            .optional()?;
        if let Some(bytes) = gone {
            let turns = mark_expired(tx, no, pack.id, first, last, now)?;
            usage::change(tx, no.tenant, Change { turns: -turns, bytes: -bytes })?;
            recalled::lose(tx, no)?;
        }
        Ok(())
    };
    expire()
}

/// Turns whose body is let go for good, with the record of it. Answers how many.
fn mark_expired(
    tx: &Tx<'_>,
    no: ScopeNo,
    id: ChunkId,
    first: i64,
    last: i64,
    now: Millis,
) -> Result<i64> {
    let turns = tx.execute(
        "UPDATE turns SET flags = flags | ?6 WHERE tenant = ?1 AND session = ?2 AND branch = ?3
           AND seq >= (SELECT first_seq FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                       AND level = 2 AND first = ?4)
           AND seq <= (SELECT last_seq FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                       AND level = 2 AND first = ?4)
           AND ordinal BETWEEN ?4 AND ?5 AND flags & 12 = 0",
        params![no.tenant, id.session.0 as i64, id.branch.0, first, last, EXPIRED],
    )?;
    if turns == 0 {
        return Ok(0);
    }
    let payload = serde_json::json!({ "chunk": id.to_string(), "turns": turns });
    log::record(tx, no.tenant, Some(no.scope), "memory.expired", &payload.to_string(), now)?;
    Ok(turns as i64)
}

// Moving down

/// Whether each micro is one of this branch and still has the revision that was
/// read.
pub(crate) fn unrevised<'a>(
    tx: &Tx<'_>,
    tenant: i64,
    at: (SessionNo, Branch),
    micros: impl Iterator<Item = (&'a ChunkId, u32)>,
) -> Result<bool> {
    for (id, revision) in micros {
        if (id.session, id.branch, id.level) != (at.0, at.1, Level::Micro) {
            return Ok(false);
        }
        let now: Option<u32> = tx
            .prepare_cached(
                "SELECT revision FROM chunks
                 WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = 0 AND first = ?4 AND last = ?5",
            )?
            .query_row(
                params![tenant, id.session.0 as i64, id.branch.0, id.first.0 as i64, id.last.0 as i64],
                |row| row.get(0),
            )
            .optional()?;
        if now != Some(revision) {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn watermark(
    tx: &Tx<'_>,
    tenant: i64,
    id: (SessionNo, Branch),
    column: &str,
) -> Result<Option<i64>> {
    tx.prepare_cached(&format!(
        "SELECT {column} FROM branches WHERE tenant = ?1 AND session = ?2 AND branch = ?3"
    ))?
    .query_row(params![tenant, id.0.0 as i64, id.1.0], |row| row.get(0))
    .optional()
}

fn move_watermark(
    tx: &Tx<'_>,
    tenant: i64,
    id: (SessionNo, Branch),
    column: &str,
    to: Ordinal,
) -> Result<()> {
    tx.prepare_cached(&format!(
        "UPDATE branches SET {column} = ?4, version = version + 1
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3"
    ))?
    .execute(params![tenant, id.0.0 as i64, id.1.0, to.0 as i64])?;
    Ok(())
}

/// Whether the chunks follow each other from just after `from`.
fn follow_on<'a>(from: Ordinal, mut ids: impl Iterator<Item = &'a ChunkId>) -> bool {
    let mut end = from.0;
    ids.all(|id| id.first.0 == std::mem::replace(&mut end, id.last.0) + 1)
}

pub(crate) fn demote_to_warm(tx: &Tx<'_>, scope: &Scope, demotion: &WarmDemotion) -> Result<bool> {
    let Some(no) = rows::owned(tx, scope, demotion.session)? else { return Ok(false) };
    let at = (demotion.session, demotion.branch);
    let demote = || -> Result<_> {
        let micros = demotion.micros.iter().map(|(id, revision, _)| (id, *revision));
        let same = watermark(tx, no.tenant, at, "warm_through")?
            == Some(demotion.seen_through.0 as i64)
            && follow_on(demotion.seen_through, demotion.micros.iter().map(|(id, _, _)| id))
            && unrevised(tx, no.tenant, at, micros)?;
        let Some((last, _, _)) = demotion.micros.last().filter(|_| same) else { return Ok(false) };
        let mut larger = 0;
        for (id, _, body) in &demotion.micros {
            if let Some(body) = body {
                larger += put_text(tx, no.tenant, id, body)?;
            }
            larger -= delete_bodies(tx, no.tenant, id)?;
        }
        usage::change(tx, no.tenant, Change::bytes(larger))?;
        move_watermark(tx, no.tenant, at, "warm_through", last.last)?;
        Ok(true)
    };
    demote()
}

/// Lets go of the rows' bodies of a micro, and answers their bytes. Turns of other
/// branches may lie between its own, so the branch is asked for.
fn delete_bodies(tx: &Tx<'_>, tenant: i64, id: &ChunkId) -> Result<i64> {
    let (session, branch) = (engine::number(id.session.0), id.branch.0);
    let span: Option<(i64, i64)> = tx
        .prepare_cached(
            "SELECT first_seq, last_seq FROM chunks
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = 0 AND first = ?4",
        )?
        .query_row(params![tenant, session, branch, engine::number(id.first.0)], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let Some((first, last)) = span else { return Ok(0) };
    // A range of the key, which any planner finds.
    usage::freed(
        tx,
        "DELETE FROM bodies WHERE tenant = ?1 AND session = ?2 AND seq BETWEEN ?4 AND ?5
           AND EXISTS (SELECT 1 FROM turns t WHERE t.tenant = ?1 AND t.session = ?2
             AND t.seq = bodies.seq AND t.branch = ?3)
         RETURNING length(body)",
        params![tenant, session, branch, first, last],
    )
}

fn is_macro(tx: &Tx<'_>, tenant: i64, id: &ChunkId) -> Result<bool> {
    let found: bool = tx
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
               AND level = 2 AND first = ?4 AND last = ?5)",
        )?
        .query_row(
            params![tenant, id.session.0 as i64, id.branch.0, id.first.0 as i64, id.last.0 as i64],
            |row| row.get(0),
        )?;
    Ok(found && id.level == Level::Macro)
}

pub(crate) fn demote_to_cold(tx: &Tx<'_>, scope: &Scope, demotion: &ColdDemotion) -> Result<bool> {
    let id = &demotion.id;
    let Some(no) = rows::owned(tx, scope, id.session)? else { return Ok(false) };
    let at = (id.session, id.branch);
    let failed = StoreError::from;
    let same = || {
        let micros = demotion.micros.iter().map(|(id, revision)| (id, *revision));
        Ok(watermark(tx, no.tenant, at, "cold_through")? == Some(demotion.seen_through.0 as i64)
            && follow_on(demotion.seen_through, std::iter::once(id))
            && is_macro(tx, no.tenant, id)?
            && watermark(tx, no.tenant, at, "warm_through")? >= Some(id.last.0 as i64)
            && unrevised(tx, no.tenant, at, micros)?)
    };
    if !same().map_err(failed)? {
        return Ok(false);
    }
    let packed = match &demotion.body {
        ColdBody::Pack(pack) => {
            put_pack(tx, scope, no.tenant, id, pack, demotion.now)?;
            engine::number(pack.bytes)
        }
        ColdBody::StaysText | ColdBody::Dropped => 0,
    };
    let finish = || {
        let mut change = Change::bytes(packed);
        if !matches!(demotion.body, ColdBody::StaysText) {
            change.bytes -= usage::freed(
                tx,
                "DELETE FROM texts WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                   AND first BETWEEN ?4 AND ?5 RETURNING length(text)",
                params![
                    no.tenant,
                    id.session.0 as i64,
                    id.branch.0,
                    id.first.0 as i64,
                    id.last.0 as i64
                ],
            )?;
        }
        if matches!(demotion.body, ColdBody::Dropped) {
            change.turns -=
                mark_expired(tx, no, *id, id.first.0 as i64, id.last.0 as i64, demotion.now)?;
        }
        usage::change(tx, no.tenant, change)?;
        move_watermark(tx, no.tenant, at, "cold_through", id.last)
    };
    finish().map_err(failed)?;
    Ok(true)
}

// Summaries

fn summary_watermark(level: Level) -> &'static str {
    match level {
        Level::Micro => "micro_through",
        Level::Mini => "mini_through",
        Level::Macro => "macro_through",
    }
}

/// Whether each chunk is one of the batch's level and branch and still has the
/// revision that was read.
fn chunks_unrevised(tx: &Tx<'_>, tenant: i64, batch: &SummaryBatch) -> Result<bool> {
    for (id, revision, _) in &batch.summaries {
        let now: Option<u32> = tx
            .prepare_cached(
                "SELECT revision FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                   AND level = ?4 AND first = ?5 AND last = ?6",
            )?
            .query_row(
                params![
                    tenant,
                    batch.session.0 as i64,
                    batch.branch.0,
                    rows::level_no(batch.level),
                    id.first.0 as i64,
                    id.last.0 as i64
                ],
                |row| row.get(0),
            )
            .optional()?;
        let is_ours =
            (id.session, id.branch, id.level) == (batch.session, batch.branch, batch.level);
        if !is_ours || now != Some(*revision) {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn put_summaries(tx: &Tx<'_>, scope: &Scope, batch: &SummaryBatch) -> Result<()> {
    let Some(no) = rows::owned(tx, scope, batch.session)? else { return Ok(()) };
    secrets::refuse_changed(tx, scope.tenant(), batch.secrets_seen)?;
    let column = summary_watermark(batch.level);
    let at = (batch.session, batch.branch);
    let put = || -> Result<_> {
        if watermark(tx, no.tenant, at, column)? != Some(batch.seen_through.0 as i64)
            || !chunks_unrevised(tx, no.tenant, batch)?
        {
            return Ok(());
        }
        let before = scopes::take_numbers(tx, no, "summaries", batch.summaries.len())?;
        let written: Vec<_> =
            batch.summaries.iter().map(|(_, _, summary)| write_summary(summary)).collect();
        let mut rows = Vec::with_capacity(written.len());
        for (number, ((id, _, _), (bytes, packed))) in
            (before + 1..).zip(batch.summaries.iter().zip(&written))
        {
            let (session, first) = (engine::number(id.session.0), engine::number(id.first.0));
            let (level, packed) = (rows::level_no(id.level), i64::from(*packed));
            let key = [no.tenant, session, id.branch.0.into(), level, first, packed];
            let mut row = engine::integers(key.to_vec());
            row.extend([Value::Blob(bytes), Value::Integer(no.scope), Value::Integer(number)]);
            rows.push(row);
        }
        tx.prepare_cached(
                "INSERT INTO summaries (tenant, session, branch, level, first, packed, summary, scope, number)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (tenant, session, branch, level, first) DO UPDATE
                   SET packed = excluded.packed, summary = excluded.summary,
                     scope = excluded.scope, number = excluded.number",
            )?
            .execute_each(&rows)?;
        move_watermark(tx, no.tenant, at, column, batch.through)
    };
    put()
}

pub(crate) fn drop_derived(tx: &Tx<'_>, scope: &Scope) -> Result<u64> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(0) };
    let drop = || -> Result<_> {
        let gone = drop_all(tx, no)?;
        if gone > 0 {
            rows::raise_epoch(tx, no)?;
        }
        Ok(gone)
    };
    drop()
}

/// Has everything that is derived in a scope made anew.
pub(crate) fn drop_all(tx: &Tx<'_>, no: ScopeNo) -> Result<u64> {
    let in_scope = "tenant = ?1 AND session IN (SELECT session FROM sessions WHERE tenant = ?1 AND scope = ?2)";
    let gone = tx
        .execute(&format!("DELETE FROM summaries WHERE {in_scope}"), [no.tenant, no.scope])?
        + facts::drop_all(tx, no)?;
    tx.execute(
        &format!(
            "UPDATE branches SET micro_through = 0, mini_through = 0, macro_through = 0,
                version = version + 1, unsettled = 1 WHERE {in_scope}"
        ),
        [no.tenant, no.scope],
    )?;
    Ok(gone as u64)
}

// What is due

pub(crate) fn unsettled(tx: &Tx<'_>, limit: usize) -> Result<Vec<DueBranch>> {
    unsettled_in(tx, (i64::MIN, i64::MAX), limit)
}

/// Of the first tenant that has any and is none of these.
pub(crate) fn unsettled_beside(
    tx: &Tx<'_>,
    tenants: &[Tenant],
    limit: usize,
) -> Result<Vec<DueBranch>> {
    let mut passed = Vec::new();
    for tenant in tenants {
        passed.extend(scopes::tenant_no(tx, tenant)?);
    }
    let mut after = i64::MIN;
    loop {
        // From tenant to tenant, however many branches each has.
        let next: Option<i64> = tx
            .prepare_cached(
                "SELECT b.tenant FROM branches b INDEXED BY branches_unsettled
                 WHERE b.unsettled = 1 AND b.tenant > ?1 ORDER BY b.tenant LIMIT 1",
            )
            .and_then(|mut q| q.query_row([after], |row| row.get(0)).optional())?;
        match next {
            None => return Ok(Vec::new()),
            Some(tenant) if passed.contains(&tenant) => after = tenant,
            Some(tenant) => return unsettled_in(tx, (tenant, tenant), limit),
        }
    }
}

/// Of the tenants from one to another.
fn unsettled_in(tx: &Tx<'_>, (from, to): (i64, i64), limit: usize) -> Result<Vec<DueBranch>> {
    let found: Vec<(i64, i64, u32, i64)> = tx
        .prepare_cached(
            "SELECT b.tenant, b.session, b.branch, o.scope FROM branches b INDEXED BY branches_unsettled
             JOIN sessions o ON o.tenant = b.tenant AND o.session = b.session
             WHERE b.unsettled = 1 AND b.tenant BETWEEN ?1 AND ?2
             ORDER BY b.tenant, b.session, b.branch LIMIT ?3",
        )
        .and_then(|mut q| {
            q.query_map([from, to, engine::number(limit as u64)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?.collect()
        })?;
    found
        .into_iter()
        .map(|(tenant, session, branch, scope)| {
            Ok(DueBranch {
                scope: scopes::scope_of(tx, tenant, scope)?,
                session: SessionNo(session as u64),
                branch: Branch(branch),
            })
        })
        .collect()
}

pub(crate) fn unsettled_count(
    tx: &Tx<'_>,
    tenant: Option<&Tenant>,
    memory: Option<&str>,
) -> Result<u64> {
    tx.prepare_cached(
        "SELECT count(*) FROM branches b INDEXED BY branches_unsettled
         JOIN sessions o ON o.tenant = b.tenant AND o.session = b.session
         JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
         JOIN tenants t ON t.tenant = b.tenant
         WHERE b.unsettled = 1 AND (?1 IS NULL OR t.name = ?1) AND (?2 IS NULL OR p.memory = ?2)",
    )
    .and_then(|mut q| {
        q.query_row(params![tenant.map(Tenant::as_str), memory], |row| row.get::<_, i64>(0))
    })
    .map(|count| count as u64)
}

pub(crate) fn settle(
    tx: &Tx<'_>,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    seen: u64,
) -> Result<()> {
    let Some(no) = rows::owned(tx, scope, session)? else { return Ok(()) };
    tx.prepare_cached(
        "UPDATE branches SET unsettled = 0 WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND version = ?4",
    )
    .and_then(|mut q| q.execute(params![no.tenant, session.0 as i64, branch.0, engine::number(seen)]))
    .map(|_| ())
}

pub(crate) fn unsettle_all(tx: &Tx<'_>) -> Result<()> {
    tx.execute("UPDATE branches SET unsettled = 1", []).map(|_| ())
}

impl Store {
    /// As [`Store::turns_at`], and as [`Store::bodies_at`] for those that lack theirs: all
    /// of one moment.
    pub async fn whole_turns_at(
        &self,
        scope: &Scope,
        ids: &[TurnId],
    ) -> Result<(Vec<TurnRow>, Vec<MicroBody>)> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.read(Isolation::from(&scope), "whole_turns_at", move |tx| {
            whole_turns_at(tx, &scope, &ids)
        })
        .await
    }

    /// Chunks of a branch at one level, in order; see [`ChunkQuery`].
    pub async fn chunks(&self, scope: &Scope, query: &ChunkQuery) -> Result<Vec<ChunkRecord>> {
        let (scope, query) = (scope.clone(), *query);
        self.read(Isolation::from(&scope), "chunks", move |tx| chunks(tx, &scope, &query)).await
    }

    /// Where the bodies of the micros are that overlap `first..=last`, in order.
    pub async fn bodies(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        first: Ordinal,
        last: Ordinal,
    ) -> Result<Vec<MicroBody>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "bodies", move |tx| {
            bodies(tx, &scope, session, branch, first, last)
        })
        .await
    }

    /// Where the bodies of the micros are that hold any of these turns, by session,
    /// branch and ordinal; each once, in order, whatever the order asked. What lies
    /// between is not read.
    pub async fn bodies_at(
        &self,
        scope: &Scope,
        places: &[(SessionNo, Branch, Ordinal)],
    ) -> Result<Vec<MicroBody>> {
        let (scope, places) = (scope.clone(), places.to_vec());
        self.read(Isolation::from(&scope), "bodies_at", move |tx| {
            bodies_at(tx, &scope, places.clone())
        })
        .await
    }

    /// Chunks by session, branch, level and first ordinal, in the order asked;
    /// what is not of this scope is left out.
    pub async fn chunks_at(
        &self,
        scope: &Scope,
        ids: &[(SessionNo, Branch, Level, Ordinal)],
    ) -> Result<Vec<ChunkRecord>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.read(Isolation::from(&scope), "chunks_at", move |tx| chunks_at(tx, &scope, &ids)).await
    }

    /// Chunks of the scope that have summaries, by the number of the summary,
    /// after `after`.
    pub async fn summaries_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, ChunkRecord)>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "summaries_after", move |tx| {
            summaries_after(tx, &scope, after, limit)
        })
        .await
    }

    /// Branches, of any tenant, that changed since they were last found settled
    /// by an append, an erasure or dropped summaries. What the worker itself
    /// moves is no such change.
    pub async fn unsettled(&self, limit: usize) -> Result<Vec<DueBranch>> {
        self.read(Isolation::Global, "unsettled", move |tx| unsettled(tx, limit)).await
    }

    /// As [`Store::unsettled`], of one tenant: the first that has any and is none of
    /// these.
    pub async fn unsettled_beside(
        &self,
        tenants: &[Tenant],
        limit: usize,
    ) -> Result<Vec<DueBranch>> {
        let tenants = tenants.to_vec();
        self.read(Isolation::Global, "unsettled_beside", move |tx| {
            unsettled_beside(tx, &tenants, limit)
        })
        .await
    }

    /// How many branches are unsettled: of one memory, one tenant, or all.
    pub async fn unsettled_count(
        &self,
        tenant: Option<&Tenant>,
        memory: Option<&str>,
    ) -> Result<u64> {
        let (tenant, memory) = (tenant.cloned(), memory.map(str::to_owned));
        self.read(Isolation::from(tenant.as_ref()), "unsettled_count", move |tx| {
            unsettled_count(tx, tenant.as_ref(), memory.as_deref())
        })
        .await
    }

    /// Marks a branch settled, unless it has changed since `seen`.
    pub async fn settle(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        seen: u64,
    ) -> Result<()> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "settle", move |tx| {
            settle(tx, &scope, session, branch, seen)
        })
        .await
    }

    /// Marks every branch unsettled, so that changed settings take effect.
    pub async fn unsettle_all(&self) -> Result<()> {
        self.write(Isolation::Global, "unsettle_all", unsettle_all).await
    }

    /// Moves micros from rows to text. Answers false, having done nothing, when
    /// the branch is no longer as the caller saw it, or the micros do not follow
    /// each other from its watermark on.
    pub async fn demote_to_warm(&self, scope: &Scope, demotion: WarmDemotion) -> Result<bool> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "demote_to_warm", move |tx| {
            demote_to_warm(tx, &scope, &demotion)
        })
        .await
    }

    /// Moves a macro's micros from text to wherever `body` says, with the same
    /// answer as [`Store::demote_to_warm`]. Macros go down in order.
    pub async fn demote_to_cold(&self, scope: &Scope, demotion: ColdDemotion) -> Result<bool> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "demote_to_cold", move |tx| {
            demote_to_cold(tx, &scope, &demotion)
        })
        .await
    }

    /// Records summaries of chunks and moves the watermark of that level to
    /// `through`; or does nothing, when the watermark or the revision of one of
    /// the chunks is not the one given any more, so that they stay due. Each gets
    /// the scope's next number, also when it is written again. As with an append,
    /// it may be [`StoreError::SecretsChanged`].
    pub async fn put_summaries(&self, scope: &Scope, summaries: SummaryBatch) -> Result<()> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_summaries", move |tx| {
            put_summaries(tx, &scope, &summaries)
        })
        .await
    }

    /// Drops every summary and fact of the scope, answers how many, marks its
    /// branches unsettled and has facts drawn from the first turn on. The epoch
    /// rises if anything was dropped. Numbers are not given again.
    pub async fn drop_derived(&self, scope: &Scope) -> Result<u64> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "drop_derived", move |tx| drop_derived(tx, &scope))
            .await
    }

    /// Packs written before `before`, oldest first.
    pub async fn packs_older_than(&self, before: Millis, limit: usize) -> Result<Vec<PackRecord>> {
        self.read(Isolation::Global, "packs_older_than", move |tx| {
            packs(tx, None, Some(before), limit)
        })
        .await
    }

    /// All packs of a tenant, or of all, by session.
    pub async fn packs(&self, tenant: Option<&Tenant>) -> Result<Vec<PackRecord>> {
        let tenant = tenant.cloned();
        self.read(Isolation::from(tenant.as_ref()), "packs", move |tx| {
            packs(tx, tenant.as_ref(), None, usize::MAX >> 1)
        })
        .await
    }

    /// Lets the body of a macro go for good: destroys the pack's key, marks its
    /// turns expired, logs `memory.expired`.
    pub async fn expire_pack(&self, pack: &PackRecord, now: Millis) -> Result<()> {
        let pack = pack.clone();
        self.write(Isolation::from(&pack.scope), "expire_pack", move |tx| {
            expire_pack(tx, &pack, now)
        })
        .await
    }
}
