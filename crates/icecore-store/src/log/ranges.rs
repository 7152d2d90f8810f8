//! Turns in the order of the log, found by way of the table `runs`.
//!
//! A row of `runs` says which positions the turns of one append have. It is read first, then
//! the turns between numbers that are known: in one statement the numbers would be sums over
//! a row of `runs`, which a database that hides other tenants' rows does not look up in an
//! index.

use icecore_domain::time::Millis;

use crate::engine::prelude::*;

/// Rows of `runs` that are read at a time. Each has at least one turn, and most have more.
const PAGE: usize = 64;

/// Consecutive turns of a session that also follow each other in the log.
pub(crate) struct TurnRange {
    session: i64,
    begin: i64,
    /// One past the `seq` of the last.
    end: i64,
    pub(crate) appended_at: Millis,
}

impl TurnRange {
    /// The parameters of a statement about its turns: tenant, session, and the `seq` that
    /// it begins at and ends before.
    pub(crate) fn key(&self, tenant: i64) -> Vec<Value<'static>> {
        values![tenant, self.session, self.begin, self.end]
    }
}

#[derive(Clone, Copy)]
pub(crate) struct LogOf {
    pub(crate) tenant: i64,
    pub(crate) scope: Option<i64>,
}

impl LogOf {
    /// The first `limit` turns at positions after `after`.
    pub(crate) fn turns_after(
        self,
        tx: &Tx<'_>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<TurnRange>> {
        let next = after.saturating_add(1);
        let (mut found, mut left) = (Vec::new(), i64::try_from(limit).unwrap_or(i64::MAX));
        // The run that holds the next position may have begun before it.
        let mut from = self.last_run_until(tx, next)?;
        while left > 0 {
            let page = self.runs_from(tx, from)?;
            let is_last = page.len() < PAGE;
            for (first, session, first_seq, count, appended_at) in page {
                from = first.saturating_add(1);
                let begin = first_seq.saturating_add((next - first).max(0));
                let end = (first_seq + count).min(begin.saturating_add(left));
                if begin < end {
                    left -= end - begin;
                    found.push(TurnRange { session, begin, end, appended_at });
                }
            }
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    /// Where the last run begins that begins no later than `position`.
    fn last_run_until(self, tx: &Tx<'_>, position: i64) -> Result<i64> {
        let sql = match self.scope {
            Some(_) => {
                "SELECT coalesce(max(first), 0) FROM runs INDEXED BY runs_by_scope
                 WHERE tenant = ?1 AND first <= ?2 AND scope = ?3"
            }
            None => "SELECT coalesce(max(first), 0) FROM runs WHERE tenant = ?1 AND first <= ?2",
        };
        tx.one(sql, params_from_iter([self.tenant, position].into_iter().chain(self.scope)), column)
    }

    /// A page of runs that begin at `from` or later: position and session of the first turn,
    /// its `seq`, how many turns there are, and when they were appended.
    fn runs_from(self, tx: &Tx<'_>, from: i64) -> Result<Vec<AppendRun>> {
        let sql = if self.scope.is_some() { RUNS_OF_SCOPE } else { RUNS_OF_TENANT };
        let values = [self.tenant, from, PAGE as i64].into_iter().chain(self.scope);
        tx.all(sql, params_from_iter(values), tuple)
    }
}

/// Position and session of the first turn, its `seq`, how many turns, and when.
type AppendRun = (i64, i64, i64, i64, Millis);

const RUNS_OF_TENANT: &str = "SELECT first, session, first_seq, count, at FROM runs
     WHERE tenant = ?1 AND first >= ?2 ORDER BY first LIMIT ?3";

pub(crate) const RUNS_OF_SCOPE: &str =
    "SELECT first, session, first_seq, count, at FROM runs INDEXED BY runs_by_scope
     WHERE tenant = ?1 AND scope = ?4 AND first >= ?2 ORDER BY first LIMIT ?3";
