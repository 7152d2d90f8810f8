//! Erasing facts and verdicts.

use icecore_domain::fact::FactKey;
use icecore_domain::ids::{Scope, TurnId};
use icecore_domain::time::Millis;

use super::Selector;
use super::dreams::{self, Going, Touched};
use crate::answers;
use crate::engine::Kind;
use crate::engine::prelude::*;
use crate::log::hidden;
use crate::store::Store;
use crate::turns::rows;

impl Store {
    /// Erases facts and verdicts that a selector names, by subject, age or id, or that
    /// quote one of these turns; returns how many. A dry run only counts them.
    /// [`Store::erase`] deletes what quotes its turns by itself: this finds the rest.
    /// Dreams that may have read any of them are lost; see [`Store::lost_dreams`].
    pub async fn erase_facts(
        &self,
        scope: &Scope,
        selector: &Selector,
        quoting: &[TurnId],
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        let named = Named::by(selector, quoting);
        self.write(scope, "erase_facts", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(0) };
            if dry_run {
                return Ok(named.count(tx, no, "facts")? + named.count(tx, no, "verdicts")?);
            }
            let touched = named.touched(tx, no)?;
            let gone = named.delete(tx, no)?;
            if gone > 0 {
                rows::raise_epoch(tx, no)?;
                answers::forget(tx, no, None)?;
            }
            dreams::lose(tx, (tx.scope()?, no), &touched, Going::Erased, now)?;
            Ok(gone)
        })
        .await
    }
}

/// The dreams that read what an erasure names of facts and verdicts.
pub(super) fn touched(
    tx: &Tx<'_>,
    no: ScopeNo,
    selector: &Selector,
    quoting: &[TurnId],
) -> Result<Touched> {
    Named::by(selector, quoting).touched(tx, no)
}

struct Named {
    condition: &'static str,
    value: Owned,
    /// Turns as JSON: session and seq, as the statement joins them.
    quoting: String,
}

impl Named {
    fn by(selector: &Selector, quoting: &[TurnId]) -> Self {
        let found = match selector {
            Selector::Session(_) => None,
            Selector::Subject { .. } => {
                selector.subject().map(|subject| ("subject = ?3", Owned::from(subject)))
            }
            Selector::Before(at) => Some(("at < ?3", Owned::from(at.0))),
            Selector::Entry(id) => {
                FactKey::parse(id).map(|key| ("key = ?3", Owned::from(key.0.to_vec())))
            }
        };
        let nothing = ("?3 IS NOT NULL", Owned::Null(Kind::Integer));
        let (condition, value) = found.unwrap_or(nothing);
        let place = |id: &TurnId| format!("{}/{}", id.session.0, id.seq.0);
        let quoting: Vec<_> = quoting.iter().map(place).collect();
        Self { condition, value, quoting: serde_json::json!(quoting).to_string() }
    }

    fn from(&self, table: &str) -> String {
        format!(
            "FROM {table} WHERE tenant = ?1 AND scope = ?2 AND ({} OR session || '/' || seq IN
               (SELECT value FROM json_each(?4)))",
            self.condition
        )
    }

    /// The dreams that read the turns of these facts, or were kept after the verdicts.
    fn touched(&self, tx: &Tx<'_>, no: ScopeNo) -> Result<Touched> {
        let values = params![no.tenant, no.scope, self.value, self.quoting];
        let verdicts = format!("SELECT min(position) {}", self.from("verdicts"));
        let mut touched = dreams::after(tx, no, tx.one(&verdicts, values, column)?)?;
        let by_facts = format!(
            "SELECT DISTINCT d.number FROM (SELECT session AS told, seq AS place {}) g
             JOIN turns t ON t.tenant = ?1 AND t.session = g.told AND t.seq = g.place
             JOIN dream_spans p ON p.tenant = t.tenant AND p.session = t.session
               AND p.branch = t.branch AND p.after < t.ordinal AND t.ordinal <= p.through
             JOIN dreams d ON d.tenant = p.tenant AND d.run = p.run",
            self.from("facts")
        );
        touched.extend(tx.all(&by_facts, values, column::<i64>)?);
        Ok(touched)
    }

    fn count(&self, tx: &Tx<'_>, no: ScopeNo, table: &str) -> Result<u64> {
        let values = params![no.tenant, no.scope, self.value, self.quoting];
        tx.one(&format!("SELECT count(*) {}", self.from(table)), values, column)
    }

    fn delete(&self, tx: &Tx<'_>, no: ScopeNo) -> Result<u64> {
        let values = params![no.tenant, no.scope, self.value, self.quoting];
        let (facts, verdicts) = (self.from("facts"), self.from("verdicts"));
        let facts = tx.run(&format!("DELETE {facts}"), values)?;
        hidden::forget_hidden(tx, &format!("SELECT position {verdicts}"), values)?;
        let verdicts = tx.run(&format!("DELETE {verdicts}"), values)?;
        Ok((facts + verdicts) as u64)
    }
}
