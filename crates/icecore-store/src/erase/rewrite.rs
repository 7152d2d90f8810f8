//! Replacing bodies of turns, because something in them has to be hidden.

use std::collections::BTreeMap;

use icecore_domain::ids::Scope;

use super::dreams::{self, Going, Touched};
use super::turns::{Lost, still_as_read, swap_pack, swap_texts, take_out};
use super::{Rewrite, RewrittenTurn};
use crate::bounds::Change;
use crate::engine::prelude::*;
use crate::log::hidden;
use crate::store::Store;
use crate::turns::rows;
use crate::turns::rows::{ERASED, EXPIRED};
use crate::{answers, facts, usage};

impl Store {
    /// Replaces bodies of turns of one branch in one step, because something in them has
    /// to be hidden. The turns keep their place, time, speaker and identity; counts of
    /// tokens are corrected. Chunks that hold them are revised and lose their summaries,
    /// all facts of the scope are drawn again, verdicts stay, the branch is unsettled and
    /// the scope's epoch rises. New packs replace old ones, whose keys go, and are as old
    /// as they were. Erased and expired turns and those of other branches are skipped.
    ///
    /// Returns false and changes nothing when [`Store::erase`] would, or when a turn's
    /// body is in its row and not given, or the other way round.
    pub async fn rewrite(&self, scope: &Scope, rewrite: Rewrite) -> Result<bool> {
        self.write(scope, "rewrite", move |tx| {
            let Some(no) = rows::owned(tx, rewrite.session)? else {
                return Ok(false);
            };
            if !still_as_read(tx, no, &rewrite.seen())? || !bodies_fit(tx, no.tenant, &rewrite)? {
                return Ok(false);
            }
            let mut larger = 0;
            for (id, _, pack) in &rewrite.packs {
                larger += swap_pack(tx, no, id, pack)?;
            }
            let touched = rewrite_rows(tx, no, &rewrite, &mut larger)?;
            usage::change(tx, no.tenant, Change::bytes(larger))?;
            dreams::lose(tx, (tx.scope()?, no), &touched, Going::Erased, rewrite.now)?;
            Ok(true)
        })
        .await
    }
}

/// Whether exactly those turns have bodies in their rows for which one is given.
fn bodies_fit(tx: &Tx<'_>, tenant: i64, rewrite: &Rewrite) -> Result<bool> {
    for turn in &rewrite.turns {
        let found = present(tx, tenant, rewrite, turn)?;
        if found.is_some_and(|found| found.body.is_some() != turn.body.is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Present {
    ordinal: i64,
    tokens: i64,
    position: i64,
    /// Bytes of its body, if that is in its row.
    body: Option<i64>,
}

record! {
    Present { ordinal, tokens, position, body }
}

fn present(
    tx: &Tx<'_>,
    tenant: i64,
    rewrite: &Rewrite,
    turn: &RewrittenTurn,
) -> Result<Option<Present>> {
    tx.first(
        "SELECT t.ordinal, t.tokens, t.position, length(b.body) FROM turns t
         LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3 AND t.branch = ?4
           AND t.flags & ?5 = 0",
        params![tenant, rewrite.session, turn.seq, rewrite.branch, ERASED | EXPIRED],
        tuple,
    )
}

/// Returns the dreams that read what changes.
fn rewrite_rows(tx: &Tx<'_>, no: ScopeNo, rewrite: &Rewrite, larger: &mut i64) -> Result<Touched> {
    *larger += swap_texts(tx, no.tenant, &rewrite.micros)?;
    let mut changed = BTreeMap::new();
    for turn in &rewrite.turns {
        let Some(found) = present(tx, no.tenant, rewrite, turn)? else { continue };
        tx.change(
            "UPDATE turns SET tokens = ?4 WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
            params![no.tenant, rewrite.session, turn.seq, turn.tokens],
        )?;
        if let Some(body) = &turn.body {
            let body = rows::write_body(body);
            *larger += body.len() as i64 - found.body.unwrap_or(0);
            tx.change(
                "UPDATE bodies SET body = ?4 WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
                params![no.tenant, rewrite.session, turn.seq, body],
            )?;
        }
        hidden::put_hidden(tx, no, found.position, &turn.hidden)?;
        let tokens = found.tokens - i64::from(turn.tokens);
        changed.insert(found.ordinal, Lost { turns: 0, tokens });
    }
    facts::drop_all(tx, no)?;
    answers::forget_all(tx, no.tenant)?;
    take_out(tx, no, (rewrite.session, rewrite.branch), &changed)
}
