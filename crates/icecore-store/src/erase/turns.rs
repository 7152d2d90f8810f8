//! Erasure: rows become tombstones, everything that quoted them goes.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo, Tenant};
use icecore_domain::time::Millis;

use crate::bounds::Change;
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Owned as Value, params};
use crate::erase::dreams::Touched;
use crate::erase::{Erasure, Seen, Selected, Selector, dreams as dream_loss};
use crate::error::Result;
use crate::layers::{NewPack, TextBody};
use crate::log::hidden;
use crate::store::Store;
use crate::turns::rows;
use crate::turns::rows::{ERASED, EXPIRED};
use crate::{engine, facts, handoffs, layers as pyramid, scopes, usage};

pub(crate) fn select(
    tx: &Tx<'_>,
    tenant: &Tenant,
    memory: Option<&str>,
    selector: &Selector,
) -> Result<Vec<Selected>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let (condition, value) = match selector {
        Selector::Entry(_) => return Ok(Vec::new()),
        Selector::Session(name) => {
            let Some(key) = scopes::tenant_key(tx, tenant)? else { return Ok(Vec::new()) };
            ("o.name_hash = ?3", Value::from(rows::session_hash(&key, name).to_vec()))
        }
        Selector::Subject { hash, .. } => (
            "t.speaker = (SELECT k.speaker FROM speakers k WHERE k.tenant = t.tenant
                AND k.session = t.session AND k.name_hash = ?3)",
            Value::from(hash.to_vec()),
        ),
        Selector::Before(at) => ("t.at < ?3", Value::from(at.0)),
    };
    let sql = format!(
        "SELECT o.scope, t.session, t.branch, t.seq, t.ordinal FROM sessions o
         JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
         JOIN turns t ON t.tenant = o.tenant AND t.session = o.session
         WHERE o.tenant = ?1 AND (?2 IS NULL OR p.memory = ?2) AND {condition} AND t.flags & {ERASED} = 0
         ORDER BY t.session, t.branch, t.seq"
    );
    let found: Vec<(i64, i64, u32, i64, i64)> = tx.prepare_cached(&sql).and_then(|mut q| {
        q.query_map(params![no, memory, value], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })?
        .collect()
    })?;
    let mut grouped: BTreeMap<(i64, i64, u32), Vec<(Seq, Ordinal)>> = BTreeMap::new();
    for (scope, session, branch, seq, ordinal) in found {
        let turn = (Seq(seq as u64), Ordinal(ordinal as u64));
        grouped.entry((scope, session, branch)).or_default().push(turn);
    }
    let whole_session = matches!(selector, Selector::Session(_));
    if whole_session {
        for session in named_and_empty(tx, no, memory, &value)? {
            grouped.entry(session).or_default();
        }
    }
    grouped
        .into_iter()
        .map(|((scope, session, branch), turns)| {
            Ok(Selected {
                scope: scopes::scope_of(tx, no, scope)?,
                session: SessionNo(session as u64),
                branch: Branch(branch),
                turns,
                whole_session,
            })
        })
        .collect()
}

/// Sessions of which only the name is left, at their current branch.
fn named_and_empty(
    tx: &Tx<'_>,
    tenant: i64,
    memory: Option<&str>,
    name_hash: &Value,
) -> Result<Vec<(i64, i64, u32)>> {
    tx.prepare_cached(
        "SELECT o.scope, o.session, o.current FROM sessions o
         JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
         WHERE o.tenant = ?1 AND (?2 IS NULL OR p.memory = ?2) AND o.name_hash = ?3
           AND o.name IS NOT NULL AND o.turns = 0",
    )?
    .query_map(params![tenant, memory, name_hash], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?
    .collect()
}

pub(crate) fn erase(tx: &Tx<'_>, scope: &Scope, erasure: &Erasure) -> Result<bool> {
    let Some(no) = rows::owned(tx, scope, erasure.session)? else { return Ok(false) };
    let seen = erasure.seen();
    if !still_as_read(tx, no, &seen)? {
        return Ok(false);
    }
    let mut change = Change::default();
    for (id, old, new) in &erasure.packs {
        change.bytes += match new {
            Some(pack) => swap_pack(tx, no, id, pack)?,
            None => -delete_pack(tx, no, erasure, id.first, old)?,
        };
    }
    let touched = erase_rows(tx, no, erasure, &mut change)?;
    usage::change(tx, no.tenant, change)?;
    let going = dream_loss::Going::Erased;
    dream_loss::lose(tx, (scope, no), &touched, going, erasure.now)?;
    Ok(true)
}

/// Puts a pack in the place of the one that a macro has, and answers by how many bytes it
/// is larger.
pub(crate) fn swap_pack(tx: &Tx<'_>, no: ScopeNo, id: &ChunkId, pack: &NewPack) -> Result<i64> {
    // Its turns are as old as they were: retention goes on counting.
    let (since, bytes) = packed(tx, no, id)?;
    pyramid::put_pack(tx, no.tenant, id, pack, since)?;
    Ok(engine::number(pack.bytes) - bytes)
}

/// When a macro was packed, and the bytes of that.
fn packed(tx: &Tx<'_>, no: ScopeNo, id: &ChunkId) -> Result<(Millis, i64)> {
    tx.query_row(
        "SELECT created_at, bytes FROM packs
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4",
        params![no.tenant, id.session.0 as i64, id.branch.0, id.first.0 as i64],
        |row| Ok((Millis(row.get(0)?), row.get(1)?)),
    )
}

/// Bodies are where they were and as they were when the caller read them.
pub(crate) fn still_as_read(tx: &Tx<'_>, no: ScopeNo, seen: &Seen<'_>) -> Result<bool> {
    let at = (seen.session, seen.branch);
    let micros = seen.micros.iter().map(|(id, revision, _)| (id, *revision));
    if pyramid::watermark(tx, no.tenant, at, "warm_through")?.is_none()
        || !pyramid::unrevised(tx, no.tenant, at, Level::Micro, micros)?
        || !every_micro_is_named(tx, no, seen)?
    {
        return Ok(false);
    }
    let (session, branch) = (seen.session.0 as i64, seen.branch.0);
    let emptied = Emptied::of(seen.emptied);
    for (id, _, text) in seen.micros {
        let has_text: bool = tx
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM texts WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4)",
            )?
            .query_row(params![no.tenant, session, branch, id.first.0 as i64], |row| row.get(0))?;
        // Text must be replaced or go with its last turn; no text, no replacement.
        if text.is_some() && !has_text {
            return Ok(false);
        }
        if has_text && text.is_none() && !emptied.covers(id.first, id.last) {
            return Ok(false);
        }
    }
    for (id, old) in &seen.packs {
        let name: Option<String> = tx
            .prepare_cached("SELECT name FROM packs WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4")?
            .query_row(params![no.tenant, session, branch, id.first.0 as i64], |row| row.get(0))
            .optional()?;
        if name.as_deref() != Some(*old) {
            return Ok(false);
        }
    }
    every_pack_is_named(tx, no, seen)
}

/// [`Seen::covers`] for many questions.
struct Emptied(Vec<(Ordinal, Ordinal)>);

impl Emptied {
    fn of(emptied: &[(Ordinal, Ordinal)]) -> Self {
        let mut ranges = emptied.to_vec();
        ranges.sort();
        // Each with the farthest end of those that begin no later.
        let mut end = Ordinal(0);
        for (_, last) in &mut ranges {
            end = end.max(*last);
            *last = end;
        }
        Self(ranges)
    }

    fn covers(&self, first: Ordinal, last: Ordinal) -> bool {
        let begun = self.0.partition_point(|(from, _)| *from <= first);
        begun > 0 && last <= self.0[begun - 1].1
    }
}

/// A micro that was cut after the caller looked may be text by now.
fn every_micro_is_named(tx: &Tx<'_>, no: ScopeNo, seen: &Seen<'_>) -> Result<bool> {
    let (session, branch) = (seen.session.0 as i64, seen.branch.0);
    // These are micros of the branch, so that no two of them overlap.
    let named: BTreeMap<Ordinal, Ordinal> =
        seen.micros.iter().map(|(id, _, _)| (id.first, id.last)).collect();
    let closed_through: Option<i64> = tx
        .prepare_cached(
            "SELECT last FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = 0
             ORDER BY first DESC LIMIT 1",
        )?
        .query_row(params![no.tenant, session, branch], |row| row.get(0))
        .optional()?;
    let closed_through = Ordinal(closed_through.unwrap_or(0) as u64);
    for seq in &seen.seqs {
        let Some(turn) = turn_to_erase(tx, no.tenant, session, branch, seq.0 as i64)? else {
            continue;
        };
        let ordinal = Ordinal(turn.ordinal as u64);
        let is_named =
            named.range(..=ordinal).next_back().is_some_and(|(_, last)| ordinal <= *last);
        if !is_named && ordinal <= closed_through {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A turn that is no tombstone.
struct Erasable {
    ordinal: i64,
    tokens: i64,
    is_expired: bool,
}

/// A turn of the branch, unless it is a tombstone.
fn turn_to_erase(
    tx: &Tx<'_>,
    tenant: i64,
    session: i64,
    branch: u32,
    seq: i64,
) -> Result<Option<Erasable>> {
    tx.prepare_cached(&format!(
        "SELECT ordinal, tokens, flags FROM turns WHERE tenant = ?1 AND session = ?2 AND seq = ?3
           AND branch = ?4 AND flags & {ERASED} = 0"
    ))?
    .query_row(params![tenant, session, seq, branch], |row| {
        let is_expired = row.get::<_, i64>(2)? & EXPIRED != 0;
        Ok(Erasable { ordinal: row.get(0)?, tokens: row.get(1)?, is_expired })
    })
    .optional()
}

/// A macro that went cold after the caller looked has a pack we must not miss.
fn every_pack_is_named(tx: &Tx<'_>, no: ScopeNo, seen: &Seen<'_>) -> Result<bool> {
    let (session, branch) = (seen.session.0 as i64, seen.branch.0);
    let named: BTreeSet<&str> = seen.packs.iter().map(|(_, old)| *old).collect();
    for (id, _, _) in seen.micros {
        // Packs do not overlap: if one holds the micro, it is the last to begin.
        let pack: Option<(String, i64)> = tx
            .prepare_cached(
                "SELECT name, last FROM packs WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                   AND first <= ?4 ORDER BY first DESC LIMIT 1",
            )?
            .query_row(params![no.tenant, session, branch, id.first.0 as i64], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let holding = pack.filter(|(_, last)| *last >= id.last.0 as i64);
        if holding.is_some_and(|(name, _)| !named.contains(name.as_str())) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Answers its bytes.
fn delete_pack(
    tx: &Tx<'_>,
    no: ScopeNo,
    erasure: &Erasure,
    first: Ordinal,
    name: &str,
) -> Result<i64> {
    usage::freed(
        tx,
        "DELETE FROM packs WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4
           AND name = ?5 RETURNING bytes",
        params![no.tenant, erasure.session.0 as i64, erasure.branch.0, first.0 as i64, name],
    )
}

/// Answers the dreams that read what goes.
fn erase_rows(tx: &Tx<'_>, no: ScopeNo, erasure: &Erasure, change: &mut Change) -> Result<Touched> {
    let (session, branch) = (erasure.session.0 as i64, erasure.branch.0);
    change.bytes += swap_texts(tx, no.tenant, &erasure.micros)?;
    let verdicts = facts::verdicts_on(tx, no.tenant, session)?;
    let (mut gone, mut first_verdict) = (BTreeMap::new(), None);
    for seq in &erasure.seqs {
        let turn = erase_turn(tx, no.tenant, session, branch, seq.0 as i64)?;
        let Some((turn, bytes)) = turn else { continue };
        change.add(Change { turns: -i64::from(!turn.is_expired), bytes: -bytes });
        gone.insert(turn.ordinal, Lost { turns: 1, tokens: turn.tokens });
        let verdict = verdicts.get(&(seq.0 as i64)).copied();
        first_verdict = first_verdict.into_iter().chain(verdict).min();
    }
    take_out(tx, no.tenant, (session, branch), &gone)?;
    forget_speakers(tx, no.tenant, session)?;
    if erasure.forget_name {
        tx.execute(
            "UPDATE sessions SET name = NULL WHERE tenant = ?1 AND session = ?2 AND turns <= 0",
            [no.tenant, session],
        )?;
    }
    rows::raise_epoch(tx, no)?;
    let ordinals: BTreeSet<i64> = gone.into_keys().collect();
    handoffs::forget(tx, no, (session, branch), &ordinals)?;
    let mut touched = dream_loss::by_turns(tx, no.tenant, (session, branch), &ordinals)?;
    touched.extend(dream_loss::after(tx, no, first_verdict)?);
    Ok(touched)
}

/// Puts the texts of micros in the place of those they have, and answers by how many bytes
/// they are larger.
pub(crate) fn swap_texts(
    tx: &Tx<'_>,
    tenant: i64,
    micros: &[(ChunkId, u32, Option<TextBody>)],
) -> Result<i64> {
    let mut larger = 0;
    for (id, _, text) in micros {
        larger -= usage::freed(
            tx,
            "DELETE FROM texts WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4
             RETURNING length(text)",
            params![tenant, id.session.0 as i64, id.branch.0, id.first.0 as i64],
        )?;
        if let Some(text) = text {
            larger += pyramid::put_text(tx, tenant, id, text)?;
        }
    }
    Ok(larger)
}

/// What a turn that changes takes from the counts it is in.
pub(crate) struct Lost {
    pub(crate) turns: i64,
    pub(crate) tokens: i64,
}

/// Sets right all that counts turns, given by ordinal, and what was made of them.
pub(crate) fn take_out(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (i64, u32),
    changed: &BTreeMap<i64, Lost>,
) -> Result<()> {
    for level in 0..3 {
        revise_chunks(tx, tenant, session, branch, level, changed)?;
    }
    // What is open at each level has fewer tokens now.
    let open = |level: &str| {
        format!(
            "{level}_tokens = (SELECT coalesce(sum(t.tokens), 0) FROM turns t WHERE t.tenant = ?1
                AND t.session = ?2 AND t.branch = ?3 AND t.seq >= {level}_first_seq AND {level}_first_seq > 0)"
        )
    };
    tx.execute(
        &format!(
            "UPDATE branches SET version = version + 1, unsettled = 1, {}, {}, {}
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3",
            open("micro"),
            open("mini"),
            open("macro")
        ),
        params![tenant, session, branch],
    )?;
    let turns: i64 = changed.values().map(|lost| lost.turns).sum();
    let tokens: i64 = changed.values().map(|lost| lost.tokens).sum();
    tx.execute(
        "UPDATE sessions SET turns = turns - ?3, tokens = tokens - ?4 WHERE tenant = ?1 AND session = ?2",
        [tenant, session, turns, tokens],
    )?;
    Ok(())
}

/// Makes a tombstone of a turn. Answers what it was and the bytes of its body in its row,
/// or nothing if it is no turn to erase.
fn erase_turn(
    tx: &Tx<'_>,
    tenant: i64,
    session: i64,
    branch: u32,
    seq: i64,
) -> Result<Option<(Erasable, i64)>> {
    let Some(turn) = turn_to_erase(tx, tenant, session, branch, seq)? else { return Ok(None) };
    let bytes = usage::freed(
        tx,
        "DELETE FROM bodies WHERE tenant = ?1 AND session = ?2 AND seq = ?3 RETURNING length(body)",
        [tenant, session, seq],
    )?;
    hidden::forget_hidden(
        tx,
        "SELECT position FROM turns WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        [tenant, session, seq],
    )?;
    facts::erase_quoting(tx, tenant, session, seq)?;
    tx.prepare_cached(
        "UPDATE turns SET flags = (flags & 3) | ?4, tokens = 0, at = 0, speaker = 0
         WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
    )?
    .execute([tenant, session, seq, ERASED])?;
    Ok(Some((turn, bytes)))
}

/// Takes what turns lost out of the chunks of a level that hold them. Those chunks' summaries go, and the level's watermark is set back,
/// so that they are made anew.
fn revise_chunks(
    tx: &Tx<'_>,
    tenant: i64,
    session: i64,
    branch: u32,
    level: i64,
    changed: &BTreeMap<i64, Lost>,
) -> Result<()> {
    let mut first_revised = None;
    let mut from = 0;
    while let Some((&ordinal, _)) = changed.range(from..).next() {
        let chunk: Option<(i64, i64)> = tx
            .prepare_cached(
                "SELECT first, last FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                   AND level = ?4 AND first <= ?5 ORDER BY first DESC LIMIT 1",
            )?
            .query_row(params![tenant, session, branch, level, ordinal], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        // Beyond the last chunk the level is open.
        let Some((first, last)) = chunk.filter(|(_, last)| ordinal <= *last) else { break };
        let held = || changed.range(ordinal..=last).map(|(_, lost)| lost);
        let (turns, tokens) = (
            held().map(|lost| lost.turns).sum::<i64>(),
            held().map(|lost| lost.tokens).sum::<i64>(),
        );
        tx.prepare_cached(
            "UPDATE chunks SET turns = turns - ?6, tokens = tokens - ?7, revision = revision + ?8
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = ?4 AND first = ?5",
        )?
        .execute(params![
            tenant,
            session,
            branch,
            level,
            first,
            turns,
            tokens,
            held().count() as i64
        ])?;
        tx.prepare_cached(
            "DELETE FROM summaries WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = ?4 AND first = ?5",
        )?
        .execute(params![tenant, session, branch, level, first])?;
        first_revised.get_or_insert(first);
        from = last + 1;
    }
    let Some(first) = first_revised else { return Ok(()) };
    let column = ["micro_through", "mini_through", "macro_through"][level as usize];
    tx.prepare_cached(&format!(
        "UPDATE branches SET {column} = min({column}, ?4) WHERE tenant = ?1 AND session = ?2 AND branch = ?3"
    ))?
    .execute(params![tenant, session, branch, first - 1])?;
    Ok(())
}

/// Hashes of names that no turn bears any more.
fn forget_speakers(tx: &Tx<'_>, tenant: i64, session: i64) -> Result<()> {
    tx.execute(
        "DELETE FROM speakers WHERE tenant = ?1 AND session = ?2 AND speaker NOT IN (
             SELECT DISTINCT speaker FROM turns WHERE tenant = ?1 AND session = ?2)",
        [tenant, session],
    )?;
    Ok(())
}

impl Store {
    /// The turns that a selector names, by session, without the erased. A named
    /// session of which nothing but the name is left is selected with no turns.
    pub async fn select(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Selected>> {
        let (tenant, memory, selector) =
            (tenant.clone(), memory.map(str::to_owned), selector.clone());
        self.read(Isolation::from(&tenant), "select", move |tx| {
            select(tx, &tenant, memory.as_deref(), &selector)
        })
        .await
    }

    /// Erases turns of one session in one step: rows become tombstones, bodies
    /// and summaries that held them and facts and verdicts that quote them go, the
    /// given bodies take their place, the scope's epoch rises. Turns that are tombstones already, or not of this
    /// branch, are passed over. The session's name goes only with its last turn,
    /// so that one that came meanwhile is not hidden. Answers false, having done nothing, when a chunk
    /// was revised or moved since it was read, or a turn that goes lies in a
    /// closed micro that is not among those given.
    pub async fn erase(&self, scope: &Scope, erasure: Erasure) -> Result<bool> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "erase", move |tx| erase(tx, &scope, &erasure)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::contract::fixtures::*;

    #[tokio::test]
    async fn a_large_session_is_erased_at_once() {
        const TURNS: u64 = 10_000;
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        let session = add(&store, "s", &say_many(TURNS as usize)).await;
        let through = Ordinal(TURNS);
        let micros = store.bodies(&scope(), session, Branch::MAIN, Ordinal(1), through).await;
        let micros = micros.unwrap().into_iter().map(|body| (body.id, body.revision, None));
        let micros: Vec<_> = micros.collect();
        let erasure = Erasure {
            session,
            branch: Branch::MAIN,
            seqs: (1..=TURNS).map(Seq).collect(),
            emptied: micros.iter().map(|(id, _, _)| (id.first, id.last)).collect(),
            forget_name: true,
            micros,
            packs: Vec::new(),
            now: NOW,
        };
        assert!(store.erase(&scope(), erasure).await.unwrap());
        assert_eq!(stats(&store).await.turns, 0);
    }

    #[test]
    fn emptied_ranges_cover_as_they_would_one_by_one() {
        let ranges = [(5, 6), (1, 9), (3, 4), (12, 12), (11, 13)];
        let emptied = ranges.map(|(first, last)| (Ordinal(first), Ordinal(last))).to_vec();
        let (session, branch) = (SessionNo(1), Branch::MAIN);
        let (seqs, micros, packs) = (Vec::new(), Vec::new(), Vec::new());
        let forget_name = false;
        let erasure =
            Erasure { session, branch, seqs, emptied, forget_name, micros, packs, now: NOW };
        let sorted = Emptied::of(&erasure.emptied);
        for first in (0..16).map(Ordinal) {
            for last in (first.0..16).map(Ordinal) {
                let covers = erasure.covers(first, last);
                assert_eq!(sorted.covers(first, last), covers, "{first}-{last}");
            }
        }
    }
}
