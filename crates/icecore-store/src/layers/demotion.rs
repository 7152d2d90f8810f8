//! Moving bodies down: from rows to text, from text into a pack, from there to nothing.

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Scope, SessionNo};
use icecore_domain::time::Millis;

use super::{PackRecord, TextBody, compressed, move_watermark, unrevised, watermark};
use crate::bounds::Change;
use crate::engine::prelude::*;
use crate::pack::{PackKey, TextFormat};
use crate::store::Store;
use crate::turns::rows::EXPIRED;
use crate::turns::{recalled, rows};
use crate::{log, usage};

pub(super) const PACK_KEY: &str = "pack";

/// Micros that leave the hot tier, oldest first, without a gap.
#[derive(Debug, Clone)]
pub struct WarmDemotion {
    pub session: SessionNo,
    pub branch: Branch,
    pub seen_through: Ordinal,
    /// The micros, with the revision that was read, and their text (none where every turn of
    /// it was erased).
    pub micros: Vec<(ChunkId, u32, Option<TextBody>)>,
}

/// A macro whose micros leave the warm tier.
#[derive(Debug, Clone)]
pub struct ColdDemotion {
    pub id: ChunkId,
    pub seen_through: Ordinal,
    /// Its micros with the revisions that were read.
    pub micros: Vec<(ChunkId, u32)>,
    pub body: ColdBody,
    pub now: Millis,
}

#[derive(Debug, Clone)]
pub enum ColdBody {
    /// Into this pack, already written and read back.
    Pack(NewPack),
    /// It stays as text in the store.
    StaysText,
    /// Nowhere: nothing is left of it, or it is not to be stored. What is left expires, as
    /// with [`Store::expire_pack`].
    Dropped,
}

#[derive(Debug, Clone)]
pub struct NewPack {
    pub name: String,
    pub key: PackKey,
    pub bytes: u64,
    /// SHA-256 of the object as it lies there.
    pub sha256: [u8; 32],
}

impl Store {
    /// Moves micros from rows to text. Answers false, having done nothing, when the branch is
    /// no longer as the caller saw it, or the micros do not follow each other from its
    /// watermark on.
    pub async fn demote_to_warm(&self, scope: &Scope, demotion: WarmDemotion) -> Result<bool> {
        self.write(scope, "demote_to_warm", move |tx| demote_to_warm(tx, &demotion)).await
    }

    /// Moves a macro's micros from text to wherever `body` says, with the same answer as
    /// [`Store::demote_to_warm`]. Macros go down in order.
    pub async fn demote_to_cold(&self, scope: &Scope, demotion: ColdDemotion) -> Result<bool> {
        self.write(scope, "demote_to_cold", move |tx| demote_to_cold(tx, &demotion)).await
    }

    /// Lets go of the body of a macro for good: destroys the pack's key, marks its turns
    /// expired, logs `memory.expired`.
    pub async fn expire_pack(&self, pack: &PackRecord, now: Millis) -> Result<()> {
        let (id, name) = (pack.id, pack.name.clone());
        self.write(&pack.scope, "expire_pack", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(()) };
            let gone: Option<i64> = tx.first(
                "DELETE FROM packs WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                   AND first = ?4 AND name = ?5 RETURNING bytes",
                params![no.tenant, id.session, id.branch, id.first, name],
                column,
            )?;
            let Some(bytes) = gone else { return Ok(()) };
            let turns = mark_expired(tx, no, id, now)?;
            usage::change(tx, no.tenant, Change { turns: -turns, bytes: -bytes })?;
            recalled::lose(tx, no)
        })
        .await
    }
}

fn demote_to_warm(tx: &Tx<'_>, demotion: &WarmDemotion) -> Result<bool> {
    let WarmDemotion { session, branch, seen_through, ref micros } = *demotion;
    let Some(no) = rows::owned(tx, session)? else { return Ok(false) };
    let at = (session, branch);
    let revisions = micros.iter().map(|(id, revision, _)| (id, *revision));
    let is_as_seen = watermark(tx, no.tenant, at, "warm_through")? == Some(seen_through)
        && follow_on(seen_through, micros.iter().map(|(id, _, _)| id))
        && unrevised(tx, no.tenant, at, Level::Micro, revisions)?;
    let Some((last, _, _)) = micros.last().filter(|_| is_as_seen) else { return Ok(false) };
    let mut larger = 0;
    for (id, _, body) in micros {
        if let Some(body) = body {
            larger += put_text(tx, no.tenant, id, body)?;
        }
        larger -= delete_bodies(tx, no.tenant, id)?;
    }
    usage::change(tx, no.tenant, Change::bytes(larger))?;
    move_watermark(tx, no.tenant, at, "warm_through", last.last)?;
    Ok(true)
}

/// Whether the chunks follow each other from just after `from`.
fn follow_on<'a>(from: Ordinal, mut ids: impl Iterator<Item = &'a ChunkId>) -> bool {
    let mut end = from.0;
    ids.all(|id| id.first.0 == std::mem::replace(&mut end, id.last.0) + 1)
}

/// Puts the text of a micro that has none; answers its bytes as stored.
pub(crate) fn put_text(tx: &Tx<'_>, tenant: i64, id: &ChunkId, body: &TextBody) -> Result<i64> {
    let (bytes, packed) = compressed::compress(body.text.as_str());
    let format = match body.format {
        TextFormat::Ctf => 0,
        TextFormat::Jsonl => 1,
    };
    let ChunkId { session, branch, first, .. } = *id;
    let row = fields! { tenant, session, branch, first, format, packed, text: bytes };
    tx.upsert("texts", 4, row)?;
    Ok(bytes.len() as i64)
}

/// Deletes the bodies of a micro from its rows; answers their bytes.
fn delete_bodies(tx: &Tx<'_>, tenant: i64, id: &ChunkId) -> Result<i64> {
    let span: Option<(i64, i64)> = tx.first(
        "SELECT first_seq, last_seq FROM chunks
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = 0 AND first = ?4",
        params![tenant, id.session, id.branch, id.first],
        tuple,
    )?;
    let Some((first, last)) = span else { return Ok(0) };
    // A range of the key, which any planner finds. Turns of other branches may lie within it.
    usage::freed(
        tx,
        "DELETE FROM bodies WHERE tenant = ?1 AND session = ?2 AND seq BETWEEN ?4 AND ?5
           AND EXISTS (SELECT 1 FROM turns t WHERE t.tenant = ?1 AND t.session = ?2
             AND t.seq = bodies.seq AND t.branch = ?3)
         RETURNING length(body)",
        params![tenant, id.session, id.branch, first, last],
    )
}

fn demote_to_cold(tx: &Tx<'_>, demotion: &ColdDemotion) -> Result<bool> {
    let ColdDemotion { id, seen_through, ref micros, ref body, now } = *demotion;
    let Some(no) = rows::owned(tx, id.session)? else { return Ok(false) };
    let at = (id.session, id.branch);
    let revisions = micros.iter().map(|(id, revision)| (id, *revision));
    let is_as_seen = watermark(tx, no.tenant, at, "cold_through")? == Some(seen_through)
        && follow_on(seen_through, std::iter::once(&id))
        && is_macro(tx, no.tenant, &id)?
        && watermark(tx, no.tenant, at, "warm_through")? >= Some(id.last)
        && unrevised(tx, no.tenant, at, Level::Micro, revisions)?;
    if !is_as_seen {
        return Ok(false);
    }
    let mut change = Change::default();
    if let ColdBody::Pack(pack) = body {
        put_pack(tx, no.tenant, &id, pack, now)?;
        change.bytes += number(pack.bytes);
    }
    if !matches!(body, ColdBody::StaysText) {
        change.bytes -= usage::freed(
            tx,
            "DELETE FROM texts WHERE tenant = ?1 AND session = ?2 AND branch = ?3
               AND first BETWEEN ?4 AND ?5 RETURNING length(text)",
            params![no.tenant, id.session, id.branch, id.first, id.last],
        )?;
    }
    if matches!(body, ColdBody::Dropped) {
        change.turns -= mark_expired(tx, no, id, now)?;
    }
    usage::change(tx, no.tenant, change)?;
    move_watermark(tx, no.tenant, at, "cold_through", id.last)?;
    Ok(true)
}

fn is_macro(tx: &Tx<'_>, tenant: i64, id: &ChunkId) -> Result<bool> {
    let sql = "SELECT 1 FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
         AND level = 2 AND first = ?4 AND last = ?5";
    let key = params![tenant, id.session, id.branch, id.first, id.last];
    Ok(id.level == Level::Macro && tx.finds(sql, key)?)
}

pub(crate) fn put_pack(
    tx: &Tx<'_>,
    tenant: i64,
    id: &ChunkId,
    pack: &NewPack,
    now: Millis,
) -> Result<()> {
    let (_, key) = tx.ensure_tenant()?;
    let sealed = key.seal(PACK_KEY, pack.key.as_bytes());
    let row = fields! {
        tenant,
        session: id.session,
        branch: id.branch,
        first: id.first,
        last: id.last,
        name: pack.name,
        sealed_key: sealed,
        bytes: pack.bytes,
        sha256: pack.sha256,
        created_at: now,
    };
    tx.upsert("packs", 4, row)
}

/// Marks the turns of a macro expired and logs it; answers how many.
fn mark_expired(tx: &Tx<'_>, no: ScopeNo, id: ChunkId, now: Millis) -> Result<i64> {
    let turns = tx.run(
        "UPDATE turns SET flags = flags | ?6 WHERE tenant = ?1 AND session = ?2 AND branch = ?3
           AND seq >= (SELECT first_seq FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                       AND level = 2 AND first = ?4)
           AND seq <= (SELECT last_seq FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                       AND level = 2 AND first = ?4)
           AND ordinal BETWEEN ?4 AND ?5 AND flags & 12 = 0",
        params![no.tenant, id.session, id.branch, id.first, id.last, EXPIRED],
    )?;
    if turns > 0 {
        let payload = serde_json::json!({ "chunk": id.to_string(), "turns": turns }).to_string();
        log::record(tx, no.tenant, Some(no.scope), "memory.expired", &payload, now)?;
    }
    Ok(turns as i64)
}
