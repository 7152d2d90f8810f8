//! Where the bodies of micros are: in the turns' rows, as text, or in a pack.

use std::collections::BTreeSet;

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use super::compressed;
use super::demotion::PACK_KEY;
use crate::engine::prelude::*;
use crate::keys::TenantKey;
use crate::pack::{PackKey, TextFormat};
use crate::store::Store;
use crate::turns::rows;

/// A body of a micro as text, made from turns that the store gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextBody {
    pub format: TextFormat,
    pub text: RedactedText,
}

#[derive(Debug, Clone)]
pub struct MicroBody {
    pub id: ChunkId,
    pub revision: u32,
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// Its turns that are there, neither erased nor expired, in order: those that its
    /// body holds.
    pub present: Vec<Ordinal>,
    pub place: BodyPlace,
}

#[derive(Debug, Clone)]
pub enum BodyPlace {
    /// In the turns' rows, also when all of them are tombstones.
    Rows,
    Text(TextBody),
    /// In a pack, as the member of this micro.
    Pack(PackRecord),
    /// Expired, or every turn of it was erased.
    Gone,
}

#[derive(Debug, Clone)]
pub struct PackRecord {
    pub scope: Scope,
    /// The macro whose bodies it holds.
    pub id: ChunkId,
    pub name: String,
    pub key: PackKey,
    pub bytes: u64,
    /// SHA-256 of the object as it lies there.
    pub sha256: [u8; 32],
    pub created_at: Millis,
}

/// A place among the names of all packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackCursor(i64, i64, i64, i64);

impl PackCursor {
    const START: Self = Self(i64::MIN, i64::MIN, i64::MIN, i64::MIN);
}

impl Store {
    /// Where the bodies of the micros are that overlap `first..=last`, in order.
    pub async fn bodies(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        first: Ordinal,
        last: Ordinal,
    ) -> Result<Vec<MicroBody>> {
        self.read(scope, "bodies", move |tx| tx.bodies(session, branch, first, last)).await
    }

    /// Where the bodies of the micros are that hold these turns, by session, branch and
    /// ordinal. Each comes once, in order of place, whatever the order asked. Micros between
    /// them are not read.
    pub async fn bodies_at(
        &self,
        scope: &Scope,
        places: &[(SessionNo, Branch, Ordinal)],
    ) -> Result<Vec<MicroBody>> {
        let places = places.to_vec();
        self.read(scope, "bodies_at", move |tx| tx.bodies_at(&places)).await
    }

    /// Packs written before `before`, oldest first.
    pub async fn packs_older_than(&self, before: Millis, limit: usize) -> Result<Vec<PackRecord>> {
        self.read(Isolation::Global, "packs_older_than", move |tx| {
            let sql = format!(
                "{PACKS} WHERE p.created_at < ?1
                 ORDER BY p.created_at, p.tenant, p.session, p.branch, p.first LIMIT ?2"
            );
            tx.all(&sql, params![before, limit], |row| read_pack(tx, row))
        })
        .await
    }

    /// The names of all packs, a page at a time and in no order that means anything; `after`
    /// is the place of the last one read. No key is opened.
    pub async fn pack_names(
        &self,
        after: Option<PackCursor>,
        limit: usize,
    ) -> Result<Vec<(PackCursor, String)>> {
        self.read(Isolation::Global, "pack_names", move |tx| {
            let PackCursor(tenant, session, branch, first) = after.unwrap_or(PackCursor::START);
            tx.all(
                "SELECT tenant, session, branch, first, name FROM packs
                 WHERE (tenant, session, branch, first) > (?1, ?2, ?3, ?4)
                 ORDER BY tenant, session, branch, first LIMIT ?5",
                params![tenant, session, branch, first, limit],
                |row| {
                    let at = PackCursor(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                    Ok((at, row.get(4)?))
                },
            )
        })
        .await
    }

    pub async fn packs(&self, tenant: Option<&Tenant>) -> Result<Vec<PackRecord>> {
        self.read(tenant, "packs", |tx| {
            let sql = format!(
                "{PACKS} WHERE ?1 IS NULL OR t.name = ?1
                 ORDER BY p.tenant, p.session, p.branch, p.first"
            );
            tx.all(&sql, [tx.of().tenant().map(Tenant::as_str)], |row| read_pack(tx, row))
        })
        .await
    }
}

impl Tx<'_> {
    /// As [`Store::bodies`].
    pub fn bodies(
        &self,
        session: SessionNo,
        branch: Branch,
        first: Ordinal,
        last: Ordinal,
    ) -> Result<Vec<MicroBody>> {
        let Some(no) = rows::owned(self, session)? else { return Ok(Vec::new()) };
        // Chunks tile, so those that overlap the range begin with the last that begins at or
        // before it.
        let sql = format!(
            "{MICROS}
             WHERE c.tenant = ?1 AND c.session = ?2 AND c.branch = ?3 AND c.level = 0
               AND c.first <= ?5
               AND c.first >= coalesce((SELECT max(first) FROM chunks WHERE tenant = ?1
                   AND session = ?2 AND branch = ?3 AND level = 0 AND first <= ?4), 0)
               AND c.last >= ?4
             ORDER BY c.first"
        );
        let found = self.all(&sql, params![no.tenant, session, branch, first, last], read_micro)?;
        complete(self, no, found)
    }

    /// As [`Store::bodies_at`].
    pub fn bodies_at(&self, places: &[(SessionNo, Branch, Ordinal)]) -> Result<Vec<MicroBody>> {
        let Some(no) = self.scope_no()? else { return Ok(Vec::new()) };
        // A micro may hold many of them: first where each is, then each body once.
        let key = |&(session, branch, ordinal): &_| {
            values![no.tenant, session, branch, ordinal, no.scope]
        };
        let spans: Vec<Vec<(Ordinal, Ordinal)>> = self.each(
            "SELECT k.first, k.last FROM chunks k
             WHERE k.tenant = ?1 AND k.session = ?2 AND k.branch = ?3 AND k.level = 0
               AND k.first <= ?4 AND EXISTS (SELECT 1 FROM sessions o
                 WHERE o.tenant = ?1 AND o.session = ?2 AND o.scope = ?5)
             ORDER BY k.first DESC LIMIT 1",
            places.iter().map(key),
            tuple,
        )?;
        let mut micros = BTreeSet::new();
        for (&(session, branch, ordinal), span) in places.iter().zip(spans) {
            let holding = span.into_iter().find(|(_, last)| ordinal <= *last);
            micros.extend(holding.map(|(first, _)| (session, branch, first)));
        }
        let key = |&(session, branch, first): &_| values![no.tenant, session, branch, first];
        let sql = format!(
            "{MICROS}
             WHERE c.tenant = ?1 AND c.session = ?2 AND c.branch = ?3 AND c.level = 0
               AND c.first = ?4"
        );
        complete(self, no, self.all_of(&sql, micros.iter().map(key), read_micro)?)
    }
}

/// A micro as its row has it.
struct Micro {
    body: MicroBody,
    /// How many of its turns are not erased.
    turns: u64,
}

const MICROS: &str =
    "SELECT c.session, c.branch, c.first, c.last, c.first_seq, c.last_seq, c.revision,
       c.turns, w.warm_through, x.text, x.packed, x.format
     FROM chunks c JOIN branches w ON w.tenant = c.tenant AND w.session = c.session
          AND w.branch = c.branch
     LEFT JOIN texts x ON x.tenant = c.tenant AND x.session = c.session
          AND x.branch = c.branch AND x.first = c.first";

/// A micro, without the pack that may hold its body.
fn read_micro(row: &Row<'_>) -> Result<Micro> {
    let mut columns = Columns::of(row);
    let (session, branch, first, last) = columns.get()?;
    let id = ChunkId { session, branch, level: Level::Micro, first, last };
    let (first_seq, last_seq, revision, turns, warm_through) = columns.get()?;
    let place = match columns.get()? {
        _ if last > warm_through => BodyPlace::Rows,
        Some(bytes) => BodyPlace::Text(read_text(&id, bytes, &mut columns)?),
        None => BodyPlace::Gone,
    };
    let present = Vec::new();
    Ok(Micro { body: MicroBody { id, revision, first_seq, last_seq, present, place }, turns })
}

#[expect(clippy::disallowed_methods, reason = "the text comes from our own rows")]
fn read_text(id: &ChunkId, bytes: Vec<u8>, columns: &mut Columns<'_, '_>) -> Result<TextBody> {
    let text = compressed::decompress(id, bytes, columns.get()?)?;
    let format = match columns.get()? {
        0 => TextFormat::Ctf,
        1 => TextFormat::Jsonl,
        other => return Err(compressed::damaged(id, format!("unknown format {other}"))),
    };
    Ok(TextBody { format, text: RedactedText::read_back(text) })
}

/// Finds the packs of micros, and which of their turns are there.
fn complete(tx: &Tx<'_>, no: ScopeNo, mut micros: Vec<Micro>) -> Result<Vec<MicroBody>> {
    find_packs(tx, no, &mut micros)?;
    // A micro of which nothing was erased holds all of its turns, unless it expired.
    let is_whole = |micro: &Micro| {
        micro.turns == micro.body.id.turn_count() && !matches!(micro.body.place, BodyPlace::Gone)
    };
    let (whole, partial): (Vec<_>, Vec<_>) = micros.iter_mut().partition(|micro| is_whole(micro));
    for micro in whole {
        let ChunkId { first, last, .. } = micro.body.id;
        micro.body.present = (first.0..=last.0).map(Ordinal).collect();
    }
    let key = |body: &MicroBody| {
        values![no.tenant, body.id.session, body.id.branch, body.first_seq, body.last_seq]
    };
    let keys: Vec<_> = partial.iter().map(|micro| key(&micro.body)).collect();
    let gone = rows::ERASED | rows::EXPIRED;
    let sql = format!(
        "SELECT ordinal FROM turns WHERE tenant = ?1 AND session = ?2 AND branch = ?3
           AND seq >= ?4 AND seq <= ?5 AND flags & {gone} = 0 ORDER BY seq"
    );
    let found = tx.each(&sql, keys, column)?;
    for (micro, present) in partial.into_iter().zip(found) {
        micro.body.present = present;
    }
    Ok(micros.into_iter().map(|micro| micro.body).collect())
}

/// Finds the packs of those micros that are neither hot nor text. A pack has no member for a
/// micro of tombstones.
fn find_packs(tx: &Tx<'_>, no: ScopeNo, micros: &mut [Micro]) -> Result<()> {
    let is_gone = |body: &&mut MicroBody| matches!(body.place, BodyPlace::Gone);
    let cold: Vec<_> = micros.iter_mut().map(|micro| &mut micro.body).filter(is_gone).collect();
    let key = |id: ChunkId| values![no.tenant, id.session, id.branch, id.first, id.last];
    let keys: Vec<_> = cold.iter().map(|micro| key(micro.id)).collect();
    let sql = format!(
        "{PACKS} JOIN chunks c ON c.tenant = p.tenant AND c.session = p.session
           AND c.branch = p.branch AND c.level = 0 AND c.first = ?4 AND c.turns > 0
         WHERE p.tenant = ?1 AND p.session = ?2 AND p.branch = ?3
           AND p.first <= ?4 AND p.last >= ?5 ORDER BY p.first DESC LIMIT 1"
    );
    let packs = tx.each(&sql, keys, |row| read_pack(tx, row))?;
    for (micro, pack) in cold.into_iter().zip(packs) {
        micro.place = pack.into_iter().next().map_or(BodyPlace::Gone, BodyPlace::Pack);
    }
    Ok(())
}

const PACKS: &str =
    "SELECT t.name, s.memory, t.sealed_key, p.sealed_key, p.name, p.session, p.branch, p.first,
       p.last, p.bytes, p.sha256, p.created_at
     FROM packs p JOIN tenants t ON t.tenant = p.tenant
     JOIN sessions o ON o.tenant = p.tenant AND o.session = p.session
     JOIN scopes s ON s.tenant = o.tenant AND s.scope = o.scope";

fn read_pack(tx: &Tx<'_>, row: &Row<'_>) -> Result<PackRecord> {
    let mut columns = Columns::of(row);
    let (scope, tenant_key): (Scope, Vec<u8>) = columns.get()?;
    let tenant_key = tx.keys().open(tx, scope.tenant(), tenant_key)?;
    let (sealed, name): (Vec<u8>, String) = columns.get()?;
    let key = open_key(&tenant_key, PACK_KEY, &sealed, &name)?;
    let (session, branch, first, last) = columns.get()?;
    let id = ChunkId { session, branch, level: Level::Macro, first, last };
    let (bytes, sha256, created_at) = columns.get()?;
    Ok(PackRecord { scope, id, name, key, bytes, sha256, created_at })
}

/// Opens the sealed key of the pack or archive of this name.
pub(crate) fn open_key(
    tenant_key: &TenantKey,
    label: &str,
    sealed: &[u8],
    name: &str,
) -> Result<PackKey> {
    let key = tenant_key.open(label, sealed).and_then(|key| key.try_into().ok());
    key.map(PackKey::from_bytes).ok_or_else(|| StoreError::PackDamaged {
        name: name.to_owned(),
        reason: "its sealed key does not open".to_owned(),
    })
}
