//! Putting bodies anew, because something in them has to be hidden.

use std::collections::{BTreeMap, BTreeSet};

use super::engine::{self, Connection, OptionalExtension, params};
use icecore_domain::ids::Scope;

use super::dream_loss::{self, Touched};
use super::erase::{self, Lost};
use super::rows::{self, ERASED, EXPIRED, ScopeNo};
use super::{Shared, answers, facts, handoffs, pyramid, secrets, usage};
use crate::bounds::Change;
use crate::store::*;

pub(super) fn rewrite(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    rewrite: &Rewrite,
) -> Result<bool> {
    let Some(no) = pyramid::owned(c, s, scope, rewrite.session)? else { return Ok(false) };
    let is_same =
        || Ok(erase::still_as_read(c, no, &rewrite.seen())? && bodies_fit(c, no.tenant, rewrite)?);
    if !is_same().map_err(|e: engine::Error| s.failed(e))? {
        return Ok(false);
    }
    let mut larger = 0;
    for (id, _, pack) in &rewrite.packs {
        larger += erase::swap_pack(c, s, scope, no, id, pack)?;
    }
    let touched = rewrite_rows(c, no, rewrite, &mut larger).map_err(|e| s.failed(e))?;
    usage::change(c, no.tenant, Change::bytes(larger)).map_err(|e| s.failed(e))?;
    let going = dream_loss::Going::Erased;
    dream_loss::lose(c, s, (scope, no), &touched, going, rewrite.now)?;
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
    c: &Connection,
    tenant: i64,
    rewrite: &Rewrite,
    turn: &RewrittenTurn,
) -> engine::Result<Option<Present>> {
    c.prepare_cached(
        "SELECT t.ordinal, t.tokens, t.position, length(b.body) FROM turns t
         LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3 AND t.branch = ?4 AND t.flags & ?5 = 0",
    )?
    .query_row(
        params![
            tenant,
            rewrite.session.0 as i64,
            rows::number(turn.seq.0),
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
fn bodies_fit(c: &Connection, tenant: i64, rewrite: &Rewrite) -> engine::Result<bool> {
    for turn in &rewrite.turns {
        let found = present(c, tenant, rewrite, turn)?;
        if found.is_some_and(|found| found.body.is_some() != turn.body.is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Answers the dreams that read what changes.
fn rewrite_rows(
    c: &Connection,
    no: ScopeNo,
    rewrite: &Rewrite,
    larger: &mut i64,
) -> engine::Result<Touched> {
    let session = rewrite.session.0 as i64;
    *larger += erase::swap_texts(c, no.tenant, &rewrite.micros)?;
    let mut changed = BTreeMap::new();
    for turn in &rewrite.turns {
        let Some(found) = present(c, no.tenant, rewrite, turn)? else { continue };
        let seq = rows::number(turn.seq.0);
        c.prepare_cached(
            "UPDATE turns SET tokens = ?4 WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        )?
        .execute([no.tenant, session, seq, i64::from(turn.tokens)])?;
        if let Some(body) = &turn.body {
            let body = rows::write_body(body);
            *larger += body.len() as i64 - found.body.unwrap_or(0);
            c.prepare_cached(
                "UPDATE bodies SET body = ?4 WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
            )?
            .execute(params![no.tenant, session, seq, body])?;
        }
        secrets::put_hidden(c, no, found.position, &turn.hidden)?;
        let tokens = found.tokens - i64::from(turn.tokens);
        changed.insert(found.ordinal, Lost { turns: 0, tokens });
    }
    erase::take_out(c, no.tenant, (session, rewrite.branch.0), &changed)?;
    facts::drop_all(c, no)?;
    erase::raise_epoch(c, no)?;
    let ordinals: BTreeSet<i64> = changed.into_keys().collect();
    handoffs::lose(c, no.tenant, (session, rewrite.branch.0), &ordinals)?;
    answers::forget_all(c, no.tenant)?;
    dream_loss::by_turns(c, no.tenant, (session, rewrite.branch.0), &ordinals)
}
