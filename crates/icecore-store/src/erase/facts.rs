//! Erasing facts and verdicts.

use icecore_domain::fact::FactKey;
use icecore_domain::ids::{Scope, TurnId};
use icecore_domain::time::Millis;

use super::dreams;
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{Kind, Owned, params};
use crate::erase::Selector;
use crate::erase::dreams::{Going, Touched};
use crate::error::Result;
use crate::log::hidden;
use crate::store::Store;
use crate::turns::rows;
use crate::{answers, scopes};

pub(crate) fn erase(
    tx: &Tx<'_>,
    scope: &Scope,
    selector: &Selector,
    quoting: &[TurnId],
    dry_run: bool,
    now: Millis,
) -> Result<u64> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(0) };
    let goes = Goes::of(selector, quoting);
    let touched = match dry_run {
        true => Touched::new(),
        false => goes.touched(tx, no)?,
    };
    let erase = || -> Result<_> {
        let mut count = 0;
        for table in ["facts", "verdicts"] {
            count += match dry_run {
                true => goes.count(tx, no, table)?,
                false => goes.delete(tx, no, table)?,
            };
        }
        if count > 0 && !dry_run {
            rows::raise_epoch(tx, no)?;
            answers::forget(tx, no, None)?;
        }
        Ok(count)
    };
    let count = erase()?;
    dreams::lose(tx, (scope, no), &touched, Going::Erased, now)?;
    Ok(count)
}

/// The dreams that read what an erasure names of facts and verdicts.
pub(crate) fn touched(
    tx: &Tx<'_>,
    no: ScopeNo,
    selector: &Selector,
    quoting: &[TurnId],
) -> Result<Touched> {
    Goes::of(selector, quoting).touched(tx, no)
}

/// What an erasure names in a table of facts or verdicts.
struct Goes {
    condition: &'static str,
    value: Owned,
    /// Turns as JSON: session and seq, as the statement joins them.
    quoting: String,
}

impl Goes {
    fn of(selector: &Selector, quoting: &[TurnId]) -> Self {
        let nothing = ("?3 IS NOT NULL", Owned::Null(Kind::Integer));
        let (condition, value) = match selector {
            Selector::Session(_) => nothing,
            Selector::Subject { .. } => match selector.subject() {
                Some(subject) => ("subject = ?3", Owned::from(subject)),
                None => nothing,
            },
            Selector::Before(at) => ("at < ?3", Owned::from(at.0)),
            Selector::Entry(id) => match FactKey::parse(id) {
                Some(key) => ("key = ?3", Owned::from(key.0.to_vec())),
                None => nothing,
            },
        };
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
        let first: Option<i64> = tx.query_row(
            &format!("SELECT min(position) {}", self.from("verdicts")),
            values,
            |row| row.get(0),
        )?;
        let mut touched = dreams::after(tx, no, first)?;
        let facts = format!(
            "SELECT DISTINCT d.number FROM (SELECT session AS told, seq AS place {}) g
             JOIN turns t ON t.tenant = ?1 AND t.session = g.told AND t.seq = g.place
             JOIN dream_spans p ON p.tenant = t.tenant AND p.session = t.session
               AND p.branch = t.branch AND p.after < t.ordinal AND t.ordinal <= p.through
             JOIN dreams d ON d.tenant = p.tenant AND d.run = p.run",
            self.from("facts")
        );
        let mut query = tx.prepare(&facts)?;
        let found = query.query_map(values, |row| row.get(0))?;
        touched.extend(found.collect::<Result<Vec<i64>>>()?);
        Ok(touched)
    }

    fn count(&self, tx: &Tx<'_>, no: ScopeNo, table: &str) -> Result<u64> {
        let values = params![no.tenant, no.scope, self.value, self.quoting];
        let count = format!("SELECT count(*) {}", self.from(table));
        tx.query_row(&count, values, |row| row.get::<_, i64>(0)).map(|count| count as u64)
    }

    fn delete(&self, tx: &Tx<'_>, no: ScopeNo, table: &str) -> Result<u64> {
        let values = params![no.tenant, no.scope, self.value, self.quoting];
        if table == "verdicts" {
            hidden::forget_hidden(tx, &format!("SELECT position {}", self.from(table)), values)?;
        }
        tx.execute(&format!("DELETE {}", self.from(table)), values).map(|gone| gone as u64)
    }
}

impl Store {
    /// Erases facts and verdicts that a selector names, by subject, age or id, or
    /// that quote one of these turns; answers how many. [`Store::erase`] takes what
    /// quotes its turns by itself: this finds the rest, and counts ahead. Dreams that
    /// may have read them are lost; see [`Store::lost_dreams`].
    pub async fn erase_facts(
        &self,
        scope: &Scope,
        selector: &Selector,
        quoting: &[TurnId],
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        let (scope, selector, quoting) = (scope.clone(), selector.clone(), quoting.to_vec());
        self.write(Isolation::from(&scope), "erase_facts", move |tx| {
            erase(tx, &scope, &selector, &quoting, dry_run, now)
        })
        .await
    }
}
