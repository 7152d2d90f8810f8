//! What becomes of dreams when something that they read goes, or is put anew.
//!
//! A dream carries what the one before it came to, so that with the first that is
//! touched all later ones of the memory go: their entries, the keys of their archives,
//! what they told, and the tenant's index file. What their entries stood for is in force
//! again, and the turns that they read count as unread.

use crate::dreams::COUNTS;
use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::dream::Checksum;
use icecore_domain::ids::{Principal, Scope, TurnId};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use icecore_domain::workspace::FilePath;

use crate::dreams::{DreamState, archives};
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, params};
use crate::entries::commitments;
use crate::erase::Selector;
use crate::error::Result;
use crate::host::workspace;
use crate::host::workspace::{Expect, INDEX_FILES};
use crate::store::Store;
use crate::turns::rows;
use crate::{dreams, engine, entries, log, scopes};

/// Dreams of a memory that something touches, by their numbers.
pub(crate) type Touched = BTreeSet<i64>;

/// How that which touches dreams goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going {
    /// It is deleted: entries that have ended stay until they are purged.
    Deleted,
    /// Its words go for good, wherever they are.
    Erased,
}

// What touches which

/// The dreams that wrote these entries.
pub(crate) fn by_entries<'a>(
    tx: &Tx<'_>,
    no: ScopeNo,
    ids: impl IntoIterator<Item = &'a str>,
) -> Result<Touched> {
    let mut query = tx.prepare_cached(
        "SELECT number FROM dreams INDEXED BY dreams_by_output
         WHERE tenant = ?1 AND scope = ?2 AND output = ?3",
    )?;
    let mut touched = Touched::new();
    for id in ids {
        let found = query.query_row(params![no.tenant, no.scope, id], |row| row.get(0));
        touched.extend(found.optional()?.into_iter().collect::<Vec<i64>>());
    }
    Ok(touched)
}

/// The dreams that read any of these turns of a branch.
pub(crate) fn by_turns(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (i64, u32),
    ordinals: &BTreeSet<i64>,
) -> Result<Touched> {
    let mut query = tx.prepare_cached(
        "SELECT d.number, p.after, p.through FROM dream_spans p
         JOIN dreams d ON d.tenant = p.tenant AND d.run = p.run
         WHERE p.tenant = ?1 AND p.session = ?2 AND p.branch = ?3",
    )?;
    let mut found = query.query(params![tenant, session, branch])?;
    let mut touched = Touched::new();
    while let Some(row) = found.next()? {
        let (after, through): (i64, i64) = (row.get(1)?, row.get(2)?);
        if after < through && ordinals.range(after + 1..=through).next().is_some() {
            touched.insert(row.get(0)?);
        }
    }
    Ok(touched)
}

/// The dreams that were kept after a position, for they may have read what was put there.
pub(crate) fn after(tx: &Tx<'_>, no: ScopeNo, position: Option<i64>) -> Result<Touched> {
    let Some(position) = position else { return Ok(Touched::new()) };
    tx.prepare_cached(
        "SELECT number FROM dreams WHERE tenant = ?1 AND scope = ?2 AND position > ?3",
    )?
    .query_map([no.tenant, no.scope, position], |row| row.get(0))?
    .collect()
}

// Losing them

/// Whether the archive of a dream `d` can be read.
const HAS_KEY: &str = "EXISTS (SELECT 1 FROM archives a
     WHERE a.tenant = d.tenant AND a.scope = d.scope AND a.checksum = d.archive
       AND a.sealed_key IS NOT NULL)";

/// A dream that goes.
struct Falling {
    number: i64,
    run: String,
    counts: bool,
    has_key: bool,
    told: bool,
    previous: Option<String>,
    output: String,
    archive: Vec<u8>,
    budget: i64,
}

/// The dreams that go with those that are touched, newest first: all that count from
/// the first of them on, those before it whose archives are gone, for none of these
/// could be in force again, and whatever else is touched.
fn falling(tx: &Tx<'_>, no: ScopeNo, touched: &Touched) -> Result<Vec<Falling>> {
    let Some(first) = touched.first() else { return Ok(Vec::new()) };
    let readable: i64 = tx
        .prepare_cached(&format!(
            "SELECT coalesce(max(d.number), 0) FROM dreams d
             WHERE d.tenant = ?1 AND d.scope = ?2 AND d.number < ?3 AND {COUNTS} AND {HAS_KEY}"
        ))?
        .query_row([no.tenant, no.scope, *first], |row| row.get(0))?;
    let mut found: Vec<Falling> = tx
        .prepare_cached(&format!(
            "SELECT number, run, {COUNTS}, previous, output, archive, budget, {HAS_KEY},
               index_updated != 0 AND state != 'erased'
             FROM dreams d
             WHERE d.tenant = ?1 AND d.scope = ?2 AND d.number > ?3 ORDER BY number DESC"
        ))?
        .query_map([no.tenant, no.scope, readable], |row| {
            Ok(Falling {
                number: row.get(0)?,
                run: row.get(1)?,
                counts: row.get(2)?,
                previous: row.get(3)?,
                output: row.get(4)?,
                archive: row.get(5)?,
                budget: row.get(6)?,
                has_key: row.get(7)?,
                told: row.get(8)?,
            })
        })?
        .collect::<Result<_>>()?;
    let is_touched = |dream: &Falling| touched.contains(&dream.number);
    let counted = found.iter().filter(|dream| dream.counts && is_touched(dream));
    let from = counted.map(|dream| dream.number).min().map(|from| {
        let earlier = found.iter().filter(|dream| dream.counts && dream.number < from);
        earlier.take_while(|dream| !dream.has_key).map(|dream| dream.number).last().unwrap_or(from)
    });
    found.retain(|dream| is_touched(dream) || from.is_some_and(|from| dream.number >= from));
    Ok(found)
}

/// Loses the dreams that are touched and those after them; answers how many entries
/// went with them.
pub(crate) fn lose(
    tx: &Tx<'_>,
    (scope, no): (&Scope, ScopeNo),
    touched: &Touched,
    going: Going,
    now: Millis,
) -> Result<u64> {
    let falling = falling(tx, no, touched)?;
    if !falling.is_empty() {
        tx.execute(
            "UPDATE tenants SET dream_losses = dream_losses + 1 WHERE tenant = ?1",
            [no.tenant],
        )?;
    }
    let dropped = drop_outputs(tx, no, &falling, going)?;
    let lost: Vec<&Falling> = falling.iter().filter(|dream| dream.counts).collect();
    if falling.iter().any(|dream| dream.told) {
        lose_index(tx, scope, no, now)?;
    }
    if lost.is_empty() {
        return Ok(dropped);
    }
    take_back(tx, no, &lost, now)?;
    let tell = || -> Result<_> {
        let budget = lost.iter().map(|dream| dream.budget).max().unwrap_or_default();
        tx.execute(
            "UPDATE scopes SET dreams_lost = max(coalesce(dreams_lost, 0), ?3)
             WHERE tenant = ?1 AND scope = ?2",
            [no.tenant, no.scope, budget],
        )?;
        let payload = dreams::lost_event(scope, lost.len());
        log::record(tx, no.tenant, Some(no.scope), "dream.lost", &payload, now)?;
        entries::keep_from(tx, no, 0)?;
        rows::raise_epoch(tx, no)
    };
    tell()?;
    Ok(dropped)
}

/// Drops the entries that dreams wrote, and what was made of those.
fn drop_outputs(tx: &Tx<'_>, no: ScopeNo, falling: &[Falling], going: Going) -> Result<u64> {
    let mut is_there = tx.prepare_cached(
        "SELECT ended_at IS NULL FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
    )?;
    let mut outputs = Vec::new();
    for dream in falling {
        let key = params![no.tenant, no.scope, dream.output];
        let stays: Option<bool> = is_there.query_row(key, |row| row.get(0)).optional()?;
        if stays.is_some_and(|lives| lives || going == Going::Erased) {
            outputs.push(dream.output.clone());
        }
    }
    if outputs.is_empty() {
        return Ok(0);
    }
    let dropped = super::entries::drop_with_quoting(tx, no, outputs)?;
    commitments::forget_erased(tx, no)?;
    entries::keep_from(tx, no, 1)?;
    Ok(dropped)
}

/// Lets dreams count no more, given newest first; the one before them is in force.
fn take_back(tx: &Tx<'_>, no: ScopeNo, lost: &[&Falling], now: Millis) -> Result<()> {
    for dream in lost {
        dreams::unread(tx, no.tenant, &dream.run)?;
        dreams::take_back(tx, no.tenant, &dream.run, DreamState::Erased)?;
    }
    if let Some(previous) = lost.last().and_then(|first| first.previous.as_ref()) {
        dreams::set_state(tx, no.tenant, previous, DreamState::InForce)?;
    }
    for dream in lost {
        if let Ok(checksum) = <[u8; 32]>::try_from(dream.archive.as_slice()) {
            archives::let_go(tx, no, &Checksum(checksum), archives::Why::Erased, now)?;
        }
    }
    Ok(())
}

/// Deletes the files that tell of dreams, with all their versions.
#[expect(clippy::disallowed_methods, reason = "the paths are our own")]
fn lose_index(tx: &Tx<'_>, scope: &Scope, no: ScopeNo, now: Millis) -> Result<()> {
    let place = Principal::local_operator(scope.tenant().clone()).workspace();
    let mut is_lost = false;
    for path in INDEX_FILES {
        let Ok(path) = FilePath::new(RedactedText::read_back(path.to_owned())) else { continue };
        is_lost |= workspace::delete(tx, &place, &path, Expect::Anything, now)?;
    }
    if is_lost {
        tx.execute("UPDATE tenants SET index_lost = 1 WHERE tenant = ?1", [no.tenant])?;
    }
    Ok(())
}

// Counting ahead

pub(crate) fn count(
    tx: &Tx<'_>,
    scope: &Scope,
    selector: &Selector,
    turns: &[TurnId],
    now: Millis,
) -> Result<u64> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(0) };
    let count = || -> Result<_> {
        let ids = super::entries::erasable_ids(tx, no, selector, now)?;
        let mut touched = by_entries(tx, no, ids.iter().map(String::as_str))?;
        touched.extend(super::facts::touched(tx, no, selector, turns)?);
        for ((session, branch), ordinals) in places(tx, no, turns)? {
            touched.extend(by_turns(tx, no.tenant, (session, branch), &ordinals)?);
        }
        let falling = falling(tx, no, &touched)?;
        let lost: Vec<&Falling> = falling.iter().filter(|dream| dream.counts).collect();
        let Some(first) = lost.last() else { return Ok(0) };
        let mut stays = tx.prepare_cached(&format!(
            "SELECT 1 FROM dreams INDEXED BY dreams_by_archive
             WHERE tenant = ?1 AND scope = ?2 AND archive = ?3 AND number < ?4 AND {COUNTS}"
        ))?;
        let mut going = BTreeSet::new();
        for dream in &lost {
            let key = params![no.tenant, no.scope, dream.archive, first.number];
            if archives::has_key(tx, no, &dream.archive)? && !stays.exists(key)? {
                going.insert(&dream.archive);
            }
        }
        Ok(going.len() as u64)
    };
    count()
}

/// Where turns of the memory are, by session and branch.
fn places(
    tx: &Tx<'_>,
    no: ScopeNo,
    turns: &[TurnId],
) -> Result<BTreeMap<(i64, u32), BTreeSet<i64>>> {
    let mut query = tx.prepare_cached(
        "SELECT t.branch, t.ordinal FROM turns t
         JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3",
    )?;
    let mut found: BTreeMap<(i64, u32), BTreeSet<i64>> = BTreeMap::new();
    for turn in turns {
        let session = engine::number(turn.session.0);
        let key = [no.tenant, session, engine::number(turn.seq.0), no.scope];
        let place: Option<(u32, i64)> =
            query.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        if let Some((branch, ordinal)) = place {
            found.entry((session, branch)).or_default().insert(ordinal);
        }
    }
    Ok(found)
}

impl Store {
    /// How many archives with a key would go if what a selector names of entries, facts
    /// and verdicts were erased, and these turns.
    pub async fn archives_lost_with(
        &self,
        scope: &Scope,
        selector: &Selector,
        turns: &[TurnId],
        now: Millis,
    ) -> Result<u64> {
        let (scope, selector, turns) = (scope.clone(), selector.clone(), turns.to_vec());
        self.read(Isolation::from(&scope), "archives_lost_with", move |tx| {
            count(tx, &scope, &selector, &turns, now)
        })
        .await
    }
}
