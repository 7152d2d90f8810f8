//! Putting bodies anew, because something in them has to be hidden.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::ids::Scope;

use crate::bounds::Change;
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, params};
use crate::erase::dreams::Touched;
use crate::erase::turns::Lost;
use crate::erase::{Rewrite, RewrittenTurn, dreams as dream_loss, turns as erase};
use crate::error::Result;
use crate::log::hidden;
use crate::store::Store;
use crate::turns::rows;
use crate::turns::rows::{ERASED, EXPIRED};
use crate::{answers, engine, facts, handoffs, usage};

pub(crate) fn rewrite(tx: &Tx<'_>, scope: &Scope, rewrite: &Rewrite) -> Result<bool> {
    let Some(no) = rows::owned(tx, scope, rewrite.session)? else { return Ok(false) };
    if !erase::still_as_read(tx, no, &rewrite.seen())? || !bodies_fit(tx, no.tenant, rewrite)? {
        return Ok(false);
    }
    let mut larger = 0;
    for (id, _, pack) in &rewrite.packs {
        larger += erase::swap_pack(tx, no, id, pack)?;
    }
    let touched = rewrite_rows(tx, no, rewrite, &mut larger)?;
    usage::change(tx, no.tenant, Change::bytes(larger))?;
    let going = dream_loss::Going::Erased;
    dream_loss::lose(tx, (scope, no), &touched, going, rewrite.now)?;
    Ok(true)
}

/// A turn that can be put anew.
struct Present {
    ordinal: i64,
    tokens: i64,
    position: i64,
    /// Bytes of its body, if that is in its row.
    body: Option<i64>,
}

fn present(
    tx: &Tx<'_>,
    tenant: i64,
    rewrite: &Rewrite,
    turn: &RewrittenTurn,
) -> Result<Option<Present>> {
    tx.prepare_cached(
        "SELECT t.ordinal, t.tokens, t.position, length(b.body) FROM turns t
         LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3 AND t.branch = ?4 AND t.flags & ?5 = 0",
    )?
    .query_row(
        params![
            tenant,
            rewrite.session.0 as i64,
            engine::number(turn.seq.0),
            rewrite.branch.0,
            ERASED | EXPIRED
        ],
        |row| {
            Ok(Present {
                ordinal: row.get(0)?,
                tokens: row.get(1)?,
                position: row.get(2)?,
                body: row.get(3)?,
            })
        },
    )
    .optional()
}

/// Whether those turns have bodies in their rows for which one is given.
fn bodies_fit(tx: &Tx<'_>, tenant: i64, rewrite: &Rewrite) -> Result<bool> {
    for turn in &rewrite.turns {
        let found = present(tx, tenant, rewrite, turn)?;
        if found.is_some_and(|found| found.body.is_some() != turn.body.is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Answers the dreams that read what changes.
fn rewrite_rows(tx: &Tx<'_>, no: ScopeNo, rewrite: &Rewrite, larger: &mut i64) -> Result<Touched> {
    let session = rewrite.session.0 as i64;
    *larger += erase::swap_texts(tx, no.tenant, &rewrite.micros)?;
    let mut changed = BTreeMap::new();
    for turn in &rewrite.turns {
        let Some(found) = present(tx, no.tenant, rewrite, turn)? else { continue };
        let seq = engine::number(turn.seq.0);
        tx.prepare_cached(
            "UPDATE turns SET tokens = ?4 WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        )?
        .execute([no.tenant, session, seq, i64::from(turn.tokens)])?;
        if let Some(body) = &turn.body {
            let body = rows::write_body(body);
            *larger += body.len() as i64 - found.body.unwrap_or(0);
            tx.prepare_cached(
                "UPDATE bodies SET body = ?4 WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
            )?
            .execute(params![no.tenant, session, seq, body])?;
        }
        hidden::put_hidden(tx, no, found.position, &turn.hidden)?;
        let tokens = found.tokens - i64::from(turn.tokens);
        changed.insert(found.ordinal, Lost { turns: 0, tokens });
    }
    erase::take_out(tx, no.tenant, (session, rewrite.branch.0), &changed)?;
    facts::drop_all(tx, no)?;
    rows::raise_epoch(tx, no)?;
    let ordinals: BTreeSet<i64> = changed.into_keys().collect();
    handoffs::lose(tx, no.tenant, (session, rewrite.branch.0), &ordinals)?;
    answers::forget_all(tx, no.tenant)?;
    dream_loss::by_turns(tx, no.tenant, (session, rewrite.branch.0), &ordinals)
}

impl Store {
    /// Puts bodies of turns of one branch anew in one step, because something in
    /// them has to be hidden. The turns keep their place, time, speaker and
    /// identity; counts of tokens are set right. Chunks that hold them are revised
    /// and lose their summaries, all facts of the scope are drawn again, verdicts
    /// stay, the branch is unsettled and the scope's epoch rises. New packs take
    /// the place of old ones, whose keys go, and are as old as they were. Turns that
    /// are not there, or not of this branch, are passed over. Answers false, having
    /// done nothing, when [`Store::erase`] would, or when a turn's body is in its
    /// row and not given, or the other way round.
    pub async fn rewrite(&self, scope: &Scope, rewrite: Rewrite) -> Result<bool> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "rewrite", move |tx| {
            self::rewrite(tx, &scope, &rewrite)
        })
        .await
    }
}
