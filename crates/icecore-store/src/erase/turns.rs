//! Erasing turns: their rows become tombstones, and everything that quoted them goes.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo, Tenant};
use icecore_domain::time::Millis;

use super::dreams::{self, Going, Touched};
use super::{Erasure, Seen, Selected, Selector};
use crate::bounds::Change;
use crate::engine::prelude::*;
use crate::layers::{NewPack, TextBody};
use crate::log::hidden;
use crate::store::Store;
use crate::turns::rows;
use crate::turns::rows::{ERASED, EXPIRED};
use crate::{answers, facts, handoffs, layers, scopes, usage};

impl Store {
    /// The turns that a selector names, by session, without the erased. A named session
    /// of which only the name is left is selected with no turns.
    pub async fn select(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Selected>> {
        let (memory, selector) = (memory.map(str::to_owned), selector.clone());
        self.read(tenant, "select", move |tx| select(tx, memory.as_deref(), &selector)).await
    }

    /// Erases turns of one session in one step: rows become tombstones; bodies and
    /// summaries that held them and facts and verdicts that quote them are deleted; the
    /// given bodies replace the old ones; the scope's epoch rises. Tombstones and turns of
    /// other branches are skipped. The session's name goes only with its last turn, so
    /// that a turn which came meanwhile is not hidden.
    ///
    /// Returns false and changes nothing if a chunk was revised or moved since it was
    /// read, or if a turn to erase lies in a closed micro that is not among those given.
    pub async fn erase(&self, scope: &Scope, erasure: Erasure) -> Result<bool> {
        self.write(scope, "erase", move |tx| {
            let Some(no) = rows::owned(tx, erasure.session)? else {
                return Ok(false);
            };
            if !still_as_read(tx, no, &erasure.seen())? {
                return Ok(false);
            }
            let mut change = Change::default();
            for (id, old, new) in &erasure.packs {
                change.bytes += match new {
                    Some(pack) => swap_pack(tx, no, id, pack)?,
                    None => -usage::freed(
                        tx,
                        "DELETE FROM packs WHERE tenant = ?1 AND session = ?2 AND branch = ?3
                           AND first = ?4 AND name = ?5 RETURNING bytes",
                        params![no.tenant, erasure.session, erasure.branch, id.first, old],
                    )?,
                };
            }
            let touched = erase_rows(tx, no, &erasure, &mut change)?;
            usage::change(tx, no.tenant, change)?;
            dreams::lose(tx, (tx.scope()?, no), &touched, Going::Erased, erasure.now)?;
            Ok(true)
        })
        .await
    }
}

fn select(tx: &Tx<'_>, memory: Option<&str>, selector: &Selector) -> Result<Vec<Selected>> {
    let Some(no) = tx.tenant_no()? else { return Ok(Vec::new()) };
    let (condition, value) = match selector {
        Selector::Entry(_) => return Ok(Vec::new()),
        Selector::Session(name) => {
            let Some(key) = scopes::tenant_key(tx, tx.tenant()?)? else { return Ok(Vec::new()) };
            ("o.name_hash = ?3", Owned::from(rows::session_hash(&key, name).to_vec()))
        }
        Selector::Subject { hash, .. } => (
            "t.speaker = (SELECT k.speaker FROM speakers k WHERE k.tenant = t.tenant
                AND k.session = t.session AND k.name_hash = ?3)",
            Owned::from(hash.to_vec()),
        ),
        Selector::Before(at) => ("t.at < ?3", Owned::from(at.0)),
    };
    let values = params![no, memory, value];
    let found = tx.all(
        &format!(
            "SELECT o.scope, t.session, t.branch, t.seq, t.ordinal FROM sessions o
             JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
             JOIN turns t ON t.tenant = o.tenant AND t.session = o.session
             WHERE o.tenant = ?1 AND (?2 IS NULL OR p.memory = ?2) AND {condition}
               AND t.flags & {ERASED} = 0
             ORDER BY t.session, t.branch, t.seq"
        ),
        values,
        tuple,
    )?;
    let mut grouped: BTreeMap<(i64, SessionNo, Branch), Vec<(Seq, Ordinal)>> = BTreeMap::new();
    for (scope, session, branch, seq, ordinal) in found {
        grouped.entry((scope, session, branch)).or_default().push((seq, ordinal));
    }
    let whole_session = matches!(selector, Selector::Session(_));
    if whole_session {
        // Also sessions of which only the name is left, at their current branch.
        let empty = tx.all(
            "SELECT o.scope, o.session, o.current FROM sessions o
             JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
             WHERE o.tenant = ?1 AND (?2 IS NULL OR p.memory = ?2) AND o.name_hash = ?3
               AND o.name IS NOT NULL AND o.turns = 0",
            values,
            tuple,
        )?;
        for session in empty {
            grouped.entry(session).or_default();
        }
    }
    let selected = grouped.into_iter().map(|((scope, session, branch), turns)| {
        let scope = scopes::scope_of(tx, no, scope)?;
        Ok(Selected { scope, session, branch, turns, whole_session })
    });
    selected.collect()
}

/// Replaces the pack of a macro, and returns by how many bytes the new one is larger.
pub(super) fn swap_pack(tx: &Tx<'_>, no: ScopeNo, id: &ChunkId, pack: &NewPack) -> Result<i64> {
    let (since, bytes): (Millis, i64) = tx.one(
        "SELECT created_at, bytes FROM packs
         WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4",
        params![no.tenant, id.session, id.branch, id.first],
        tuple,
    )?;
    // Its turns are as old as they were: retention counts from then on.
    layers::put_pack(tx, no.tenant, id, pack, since)?;
    Ok(number(pack.bytes) - bytes)
}

/// Whether bodies are where they were and as they were when the caller read them.
pub(super) fn still_as_read(tx: &Tx<'_>, no: ScopeNo, seen: &Seen<'_>) -> Result<bool> {
    let at = (seen.session, seen.branch);
    let micros = seen.micros.iter().map(|(id, revision, _)| (id, *revision));
    Ok(layers::watermark(tx, no.tenant, at, "warm_through")?.is_some()
        && layers::unrevised(tx, no.tenant, at, Level::Micro, micros)?
        && every_micro_is_named(tx, no, seen)?
        && every_text_fits(tx, no, seen)?
        && every_pack_is_named(tx, no, seen)?)
}

/// A micro that was cut after the caller looked may be text by now.
fn every_micro_is_named(tx: &Tx<'_>, no: ScopeNo, seen: &Seen<'_>) -> Result<bool> {
    // These are micros of the branch, so that no two of them overlap.
    let named: BTreeMap<Ordinal, Ordinal> =
        seen.micros.iter().map(|(id, _, _)| (id.first, id.last)).collect();
    let closed_through = tx.first(
        "SELECT last FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = 0
         ORDER BY first DESC LIMIT 1",
        params![no.tenant, seen.session, seen.branch],
        column,
    )?;
    let closed_through = closed_through.unwrap_or(Ordinal(0));
    for seq in &seen.seqs {
        let Some(turn) = erasable(tx, no.tenant, seen.session, seen.branch, *seq)? else {
            continue;
        };
        let micro = named.range(..=turn.ordinal).next_back();
        let is_named = micro.is_some_and(|(_, last)| turn.ordinal <= *last);
        if !is_named && turn.ordinal <= closed_through {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Text must be replaced or go with its last turn; a micro without text gets none.
fn every_text_fits(tx: &Tx<'_>, no: ScopeNo, seen: &Seen<'_>) -> Result<bool> {
    let emptied = Emptied::of(seen.emptied);
    for (id, _, text) in seen.micros {
        let has_text = tx.finds(
            "SELECT 1 FROM texts
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4",
            params![no.tenant, seen.session, seen.branch, id.first],
        )?;
        let fits = match text {
            Some(_) => has_text,
            None => !has_text || emptied.covers(id.first, id.last),
        };
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Ranges of ordinals, for many questions.
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

/// A macro that went cold after the caller looked has a pack that must not be missed.
fn every_pack_is_named(tx: &Tx<'_>, no: ScopeNo, seen: &Seen<'_>) -> Result<bool> {
    for (id, old) in &seen.packs {
        let name: Option<String> = tx.first(
            "SELECT name FROM packs
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND first = ?4",
            params![no.tenant, seen.session, seen.branch, id.first],
            column,
        )?;
        if name.as_deref() != Some(*old) {
            return Ok(false);
        }
    }
    let named: BTreeSet<&str> = seen.packs.iter().map(|(_, old)| *old).collect();
    for (id, _, _) in seen.micros {
        // Packs do not overlap: if one holds the micro, it is the last to begin.
        let pack: Option<(String, Ordinal)> = tx.first(
            "SELECT name, last FROM packs WHERE tenant = ?1 AND session = ?2 AND branch = ?3
               AND first <= ?4 ORDER BY first DESC LIMIT 1",
            params![no.tenant, seen.session, seen.branch, id.first],
            tuple,
        )?;
        if pack.is_some_and(|(name, last)| id.last <= last && !named.contains(name.as_str())) {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Erasable {
    ordinal: Ordinal,
    tokens: i64,
    is_expired: bool,
}

record! {
    Erasable { ordinal, tokens, is_expired }
}

/// The turn of the branch, unless it is a tombstone.
fn erasable(
    tx: &Tx<'_>,
    tenant: i64,
    session: SessionNo,
    branch: Branch,
    seq: Seq,
) -> Result<Option<Erasable>> {
    tx.first(
        &format!(
            "SELECT ordinal, tokens, flags & {EXPIRED} FROM turns
             WHERE tenant = ?1 AND session = ?2 AND seq = ?3 AND branch = ?4
               AND flags & {ERASED} = 0"
        ),
        params![tenant, session, seq, branch],
        tuple,
    )
}

/// Returns the dreams that read what goes.
fn erase_rows(tx: &Tx<'_>, no: ScopeNo, erasure: &Erasure, change: &mut Change) -> Result<Touched> {
    change.bytes += swap_texts(tx, no.tenant, &erasure.micros)?;
    let verdicts = facts::verdicts_on(tx, no.tenant, number(erasure.session.0))?;
    let (mut gone, mut first_verdict) = (BTreeMap::new(), None);
    for seq in &erasure.seqs {
        let turn = erasable(tx, no.tenant, erasure.session, erasure.branch, *seq)?;
        let Some(turn) = turn else { continue };
        let bytes = erase_turn(tx, no.tenant, erasure.session, *seq)?;
        change.add(Change { turns: -i64::from(!turn.is_expired), bytes: -bytes });
        gone.insert(number(turn.ordinal.0), Lost { turns: 1, tokens: turn.tokens });
        let verdict = verdicts.get(&number(seq.0)).copied();
        first_verdict = first_verdict.into_iter().chain(verdict).min();
    }
    let mut touched = take_out(tx, no, (erasure.session, erasure.branch), &gone)?;
    // Hashes of names that no turn bears any more.
    tx.change(
        "DELETE FROM speakers WHERE tenant = ?1 AND session = ?2 AND speaker NOT IN (
             SELECT DISTINCT speaker FROM turns WHERE tenant = ?1 AND session = ?2)",
        params![no.tenant, erasure.session],
    )?;
    if erasure.forget_name {
        tx.change(
            "UPDATE sessions SET name = NULL WHERE tenant = ?1 AND session = ?2 AND turns <= 0",
            params![no.tenant, erasure.session],
        )?;
    }
    answers::forget(tx, no, Some(number(erasure.session.0)))?;
    touched.extend(dreams::after(tx, no, first_verdict)?);
    Ok(touched)
}

/// Replaces the texts of micros, and returns by how many bytes the new ones are larger.
pub(super) fn swap_texts(
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
            params![tenant, id.session, id.branch, id.first],
        )?;
        if let Some(text) = text {
            larger += layers::put_text(tx, tenant, id, text)?;
        }
    }
    Ok(larger)
}

/// Makes a tombstone of a turn, and returns the bytes of the body in its row.
fn erase_turn(tx: &Tx<'_>, tenant: i64, session: SessionNo, seq: Seq) -> Result<i64> {
    let key = params![tenant, session, seq];
    let bytes = usage::freed(
        tx,
        "DELETE FROM bodies WHERE tenant = ?1 AND session = ?2 AND seq = ?3 RETURNING length(body)",
        key,
    )?;
    hidden::forget_hidden(
        tx,
        "SELECT position FROM turns WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        key,
    )?;
    facts::erase_quoting(tx, tenant, number(session.0), number(seq.0))?;
    tx.change(
        &format!(
            "UPDATE turns SET flags = (flags & 3) | {ERASED}, tokens = 0, at = 0, speaker = 0
             WHERE tenant = ?1 AND session = ?2 AND seq = ?3"
        ),
        key,
    )?;
    Ok(bytes)
}

/// What a turn that changes takes from the counts it is in.
pub(super) struct Lost {
    pub(super) turns: i64,
    pub(super) tokens: i64,
}

/// Corrects all counts of turns, given by ordinal, deletes what was derived from them, and
/// raises the epoch. Returns the dreams that read them.
pub(super) fn take_out(
    tx: &Tx<'_>,
    no: ScopeNo,
    (session, branch): (SessionNo, Branch),
    changed: &BTreeMap<i64, Lost>,
) -> Result<Touched> {
    let tenant = no.tenant;
    for level in Level::ALL {
        revise_chunks(tx, tenant, (session, branch), level, changed)?;
    }
    // The open chunk of each level has fewer tokens now.
    let open = Level::ALL.map(|level| {
        format!(
            "{level}_tokens = (SELECT coalesce(sum(t.tokens), 0) FROM turns t WHERE t.tenant = ?1
                AND t.session = ?2 AND t.branch = ?3 AND t.seq >= {level}_first_seq AND {level}_first_seq > 0)"
        )
    });
    tx.change(
        &format!(
            "UPDATE branches SET version = version + 1, unsettled = 1, {}
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3",
            open.join(", ")
        ),
        params![tenant, session, branch],
    )?;
    let turns: i64 = changed.values().map(|lost| lost.turns).sum();
    let tokens: i64 = changed.values().map(|lost| lost.tokens).sum();
    tx.change(
        "UPDATE sessions SET turns = turns - ?3, tokens = tokens - ?4
         WHERE tenant = ?1 AND session = ?2",
        params![tenant, session, turns, tokens],
    )?;
    rows::raise_epoch(tx, no)?;
    let place = (number(session.0), branch.0);
    let ordinals: BTreeSet<i64> = changed.keys().copied().collect();
    handoffs::lose(tx, tenant, place, &ordinals)?;
    dreams::by_turns(tx, tenant, place, &ordinals)
}

/// Takes what turns lost out of the chunks of a level that hold them. Those chunks lose
/// their summaries, and the level's watermark is set back, so that they are made anew.
fn revise_chunks(
    tx: &Tx<'_>,
    tenant: i64,
    (session, branch): (SessionNo, Branch),
    level: Level,
    changed: &BTreeMap<i64, Lost>,
) -> Result<()> {
    let mut first_revised = None;
    let mut from = 0;
    while let Some((&ordinal, _)) = changed.range(from..).next() {
        let chunk: Option<(i64, i64)> = tx.first(
            "SELECT first, last FROM chunks WHERE tenant = ?1 AND session = ?2 AND branch = ?3
               AND level = ?4 AND first <= ?5 ORDER BY first DESC LIMIT 1",
            params![tenant, session, branch, level, ordinal],
            tuple,
        )?;
        // Beyond the last chunk the level is open.
        let Some((first, last)) = chunk.filter(|(_, last)| ordinal <= *last) else { break };
        let held = || changed.range(ordinal..=last).map(|(_, lost)| lost);
        let turns: i64 = held().map(|lost| lost.turns).sum();
        let tokens: i64 = held().map(|lost| lost.tokens).sum();
        tx.change(
            "UPDATE chunks SET turns = turns - ?6, tokens = tokens - ?7, revision = revision + ?8
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = ?4 AND first = ?5",
            params![tenant, session, branch, level, first, turns, tokens, held().count()],
        )?;
        tx.change(
            "DELETE FROM summaries
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND level = ?4 AND first = ?5",
            params![tenant, session, branch, level, first],
        )?;
        first_revised.get_or_insert(first);
        from = last + 1;
    }
    let Some(first) = first_revised else { return Ok(()) };
    tx.change(
        &format!(
            "UPDATE branches SET {level}_through = min({level}_through, ?4)
             WHERE tenant = ?1 AND session = ?2 AND branch = ?3"
        ),
        params![tenant, session, branch, first - 1],
    )
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
        let emptied = ranges.map(|(first, last)| (Ordinal(first), Ordinal(last)));
        let sorted = Emptied::of(&emptied);
        for first in (0..16).map(Ordinal) {
            for last in (first.0..16).map(Ordinal) {
                let covers = emptied.iter().any(|(from, to)| *from <= first && last <= *to);
                assert_eq!(sorted.covers(first, last), covers, "{first}-{last}");
            }
        }
    }
}
