//! What becomes of dreams when something that they read is erased or rewritten.
//!
//! A dream builds on the result of the one before it, so that the first that is touched
//! takes all later ones of the memory with it: their entries, the keys of their archives,
//! what they told, and the tenant's index file. What their entries stood for is in force
//! again, and the turns that they read count as unread.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::dream::Checksum;
use icecore_domain::ids::{Principal, Scope, TurnId};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use icecore_domain::workspace::FilePath;
use serde_json::json;

use super::Selector;
use crate::dreams::{COUNTS, DreamState, archives};
use crate::engine::prelude::*;
use crate::entries::commitments;
use crate::host::workspace;
use crate::host::workspace::{Expect, INDEX_FILES};
use crate::store::Store;
use crate::turns::rows;
use crate::{dreams, entries, log};

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
        let (selector, turns) = (selector.clone(), turns.to_vec());
        self.read(scope, "archives_lost_with", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(0) };
            let ids = super::entries::erasable_ids(tx, no, &selector, now)?;
            let mut touched = by_entries(tx, no, ids.iter().map(String::as_str))?;
            touched.extend(super::facts::touched(tx, no, &selector, &turns)?);
            for (place, ordinals) in places(tx, no, &turns)? {
                touched.extend(by_turns(tx, no.tenant, place, &ordinals)?);
            }
            let mut lost = falling(tx, no, &touched)?;
            lost.retain(|dream| dream.counts);
            let Some(first) = lost.last() else { return Ok(0) };
            let stays = format!(
                "SELECT 1 FROM dreams INDEXED BY dreams_by_archive
                 WHERE tenant = ?1 AND scope = ?2 AND archive = ?3 AND number < ?4 AND {COUNTS}"
            );
            let mut going = BTreeSet::new();
            for dream in &lost {
                let values = params![no.tenant, no.scope, dream.archive, first.number];
                if archives::has_key(tx, no, &dream.archive)? && !tx.finds(&stays, values)? {
                    going.insert(&dream.archive);
                }
            }
            Ok(going.len() as u64)
        })
        .await
    }
}

/// Dreams of a memory that something touches, by their numbers.
pub(crate) type Touched = BTreeSet<i64>;

/// What happens to that which touches dreams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going {
    /// It is deleted: entries that have ended stay until they are purged.
    Deleted,
    /// Its words go for good, wherever they are.
    Erased,
}

pub(crate) fn by_entries<'a>(
    tx: &Tx<'_>,
    no: ScopeNo,
    ids: impl IntoIterator<Item = &'a str>,
) -> Result<Touched> {
    let mut touched = Touched::new();
    for id in ids {
        touched.extend(tx.first(
            "SELECT number FROM dreams INDEXED BY dreams_by_output
             WHERE tenant = ?1 AND scope = ?2 AND output = ?3",
            params![no.tenant, no.scope, id],
            column::<i64>,
        )?);
    }
    Ok(touched)
}

/// The dreams that read any of these turns of a branch.
pub(super) fn by_turns(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (i64, u32),
    ordinals: &BTreeSet<i64>,
) -> Result<Touched> {
    let spans: Vec<(i64, i64, i64)> = tx.all(
        "SELECT d.number, p.after, p.through FROM dream_spans p
         JOIN dreams d ON d.tenant = p.tenant AND d.run = p.run
         WHERE p.tenant = ?1 AND p.session = ?2 AND p.branch = ?3",
        params![tenant, session, branch],
        tuple,
    )?;
    let reads =
        |after, through| after < through && ordinals.range(after + 1..=through).next().is_some();
    let touched = spans.into_iter().filter(|(_, after, through)| reads(*after, *through));
    Ok(touched.map(|(number, ..)| number).collect())
}

/// The dreams that were kept after a position, for they may have read what was put there.
pub(crate) fn after(tx: &Tx<'_>, no: ScopeNo, position: Option<i64>) -> Result<Touched> {
    let Some(position) = position else { return Ok(Touched::new()) };
    let found = tx.all(
        "SELECT number FROM dreams WHERE tenant = ?1 AND scope = ?2 AND position > ?3",
        [no.tenant, no.scope, position],
        column,
    )?;
    Ok(found.into_iter().collect())
}

/// Where turns of the memory are: their ordinals by session and branch.
fn places(
    tx: &Tx<'_>,
    no: ScopeNo,
    turns: &[TurnId],
) -> Result<BTreeMap<(i64, u32), BTreeSet<i64>>> {
    let mut found: BTreeMap<(i64, u32), BTreeSet<i64>> = BTreeMap::new();
    for turn in turns {
        let place = tx.first(
            "SELECT t.branch, t.ordinal FROM turns t
             JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
             WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3",
            params![no.tenant, turn.session, turn.seq, no.scope],
            tuple,
        )?;
        if let Some((branch, ordinal)) = place {
            found.entry((number(turn.session.0), branch)).or_default().insert(ordinal);
        }
    }
    Ok(found)
}

/// Loses the dreams that are touched and those after them; returns how many entries went
/// with them.
pub(crate) fn lose(
    tx: &Tx<'_>,
    (scope, no): (&Scope, ScopeNo),
    touched: &Touched,
    going: Going,
    now: Millis,
) -> Result<u64> {
    let falling = falling(tx, no, touched)?;
    if falling.is_empty() {
        return Ok(0);
    }
    tx.change("UPDATE tenants SET dream_losses = dream_losses + 1 WHERE tenant = ?1", [no.tenant])?;
    let dropped = drop_outputs(tx, no, &falling, going)?;
    if falling.iter().any(|dream| dream.told) {
        lose_index(tx, scope, no, now)?;
    }
    let lost: Vec<&Falling> = falling.iter().filter(|dream| dream.counts).collect();
    if lost.is_empty() {
        return Ok(dropped);
    }
    take_back(tx, no, &lost, now)?;
    let budget = lost.iter().map(|dream| dream.budget).max().unwrap_or_default();
    dreams::note_lost(tx, no, budget)?;
    let payload = json!({ "memoryRef": scope.memory(), "runs": lost.len() }).to_string();
    log::record(tx, no.tenant, Some(no.scope), "dream.lost", &payload, now)?;
    entries::keep_from(tx, no, 0)?;
    rows::raise_epoch(tx, no)?;
    Ok(dropped)
}

struct Falling {
    number: i64,
    run: String,
    counts: bool,
    has_key: bool,
    told: bool,
    previous: Option<String>,
    output: String,
    archive: Checksum,
    budget: u64,
}

record! {
    Falling { number, run, counts, previous, output, archive, budget, has_key, told }
}

const HAS_KEY: &str = "EXISTS (SELECT 1 FROM archives a
     WHERE a.tenant = d.tenant AND a.scope = d.scope AND a.checksum = d.archive
       AND a.sealed_key IS NOT NULL)";

/// The dreams that go with those that are touched, newest first: all that count from
/// the first of them on, those before it whose archives are gone, for none of these
/// could be in force again, and whatever else is touched.
fn falling(tx: &Tx<'_>, no: ScopeNo, touched: &Touched) -> Result<Vec<Falling>> {
    let Some(first) = touched.first() else { return Ok(Vec::new()) };
    let readable: i64 = tx.one(
        &format!(
            "SELECT coalesce(max(d.number), 0) FROM dreams d
             WHERE d.tenant = ?1 AND d.scope = ?2 AND d.number < ?3 AND {COUNTS} AND {HAS_KEY}"
        ),
        [no.tenant, no.scope, *first],
        column,
    )?;
    let mut found: Vec<Falling> = tx.all(
        &format!(
            "SELECT number, run, {COUNTS}, previous, output, archive, budget, {HAS_KEY},
               index_updated != 0 AND state != 'erased'
             FROM dreams d
             WHERE d.tenant = ?1 AND d.scope = ?2 AND d.number > ?3 ORDER BY number DESC"
        ),
        [no.tenant, no.scope, readable],
        tuple,
    )?;
    let is_touched = |dream: &Falling| touched.contains(&dream.number);
    let counted = found.iter().filter(|dream| dream.counts && is_touched(dream));
    let from = counted.map(|dream| dream.number).min().map(|from| {
        let earlier = found.iter().filter(|dream| dream.counts && dream.number < from);
        earlier.take_while(|dream| !dream.has_key).map(|dream| dream.number).last().unwrap_or(from)
    });
    found.retain(|dream| is_touched(dream) || from.is_some_and(|from| dream.number >= from));
    Ok(found)
}

/// Drops the entries that dreams wrote, and what was made of those.
fn drop_outputs(tx: &Tx<'_>, no: ScopeNo, falling: &[Falling], going: Going) -> Result<u64> {
    let mut outputs = Vec::new();
    for dream in falling {
        let lives = tx.first(
            "SELECT ended_at IS NULL FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
            params![no.tenant, no.scope, dream.output],
            column,
        )?;
        if lives.is_some_and(|lives| lives || going == Going::Erased) {
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

/// Makes dreams count no more, given newest first; the one before them is in force.
fn take_back(tx: &Tx<'_>, no: ScopeNo, lost: &[&Falling], now: Millis) -> Result<()> {
    for dream in lost {
        dreams::unread(tx, no.tenant, &dream.run)?;
        dreams::take_back(tx, no.tenant, &dream.run, DreamState::Erased)?;
    }
    if let Some(previous) = lost.last().and_then(|first| first.previous.as_ref()) {
        dreams::set_state(tx, no.tenant, previous, DreamState::InForce)?;
    }
    for dream in lost {
        archives::let_go(tx, no, &dream.archive, archives::Why::Erased, now)?;
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
        tx.change("UPDATE tenants SET index_lost = 1 WHERE tenant = ?1", [no.tenant])?;
    }
    Ok(())
}
