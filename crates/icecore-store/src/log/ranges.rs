//! Turns in the order of the log, by way of the runs that say where they are.
//!
//! Runs are read first, then the turns between numbers that are known: in one statement the
//! numbers would be sums over a row of `runs`, which a database that hides other tenants'
//! rows does not look up in an index.

use icecore_domain::time::Millis;

use crate::engine;
use crate::engine::tx::Tx;
use crate::engine::{Row, Value, params};
use crate::error::Result;

/// Runs that are read at once. Each has a turn at least, and most have more.
const PAGE: usize = 64;

/// Turns of a session that follow each other in the log, too.
pub(crate) struct Stretch {
    session: i64,
    begin: i64,
    end: i64,
    /// When they were appended.
    pub(crate) at: Millis,
}

/// Turns of one append: which position and `seq` the first has, and how many there are.
struct Run {
    first: i64,
    session: i64,
    first_seq: i64,
    count: i64,
    at: Millis,
}

/// What is read of which memory's turns, or of a tenant's.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    pub(crate) tenant: i64,
    pub(crate) scope: Option<i64>,
}

impl Reach {
    /// Where the turns are that have positions after `after`, `limit` of them.
    pub(crate) fn after(self, tx: &Tx<'_>, after: i64, limit: usize) -> Result<Vec<Stretch>> {
        let next = after.saturating_add(1);
        let (mut found, mut left) = (Vec::new(), engine::number(limit as u64));
        // The run that holds the next position may have begun before it.
        let mut from = self.begins(tx, next)?;
        while left > 0 {
            let page = self.page(tx, from, PAGE)?;
            let is_last = page.len() < PAGE;
            for run in page {
                from = run.first.saturating_add(1);
                let begin = run.first_seq.saturating_add((next - run.first).max(0));
                let end = (run.first_seq + run.count).min(begin.saturating_add(left));
                if begin < end {
                    left -= end - begin;
                    found.push(Stretch { session: run.session, begin, end, at: run.at });
                }
            }
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    fn begins(self, tx: &Tx<'_>, next: i64) -> Result<i64> {
        let mut query = match self.scope {
            Some(_) => tx.prepare_cached(
                "SELECT coalesce(max(first), 0) FROM runs INDEXED BY runs_by_scope
                 WHERE tenant = ?1 AND first <= ?2 AND scope = ?3",
            ),
            None => tx.prepare_cached(
                "SELECT coalesce(max(first), 0) FROM runs WHERE tenant = ?1 AND first <= ?2",
            ),
        }?;
        match self.scope {
            Some(scope) => query.query_row([self.tenant, next, scope], |row| row.get(0)),
            None => query.query_row([self.tenant, next], |row| row.get(0)),
        }
    }

    /// Runs from a position on.
    fn page(self, tx: &Tx<'_>, from: i64, limit: usize) -> Result<Vec<Run>> {
        let limit = engine::number(limit as u64);
        let read = |row: &Row<'_>| {
            let [first, session, first_seq, count] =
                [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
            Ok(Run { first, session, first_seq, count, at: Millis(row.get(4)?) })
        };
        match self.scope {
            Some(scope) => tx
                .prepare_cached(RUNS_OF_SCOPE)?
                .query_map([self.tenant, from, limit, scope], read)?
                .collect(),
            None => tx
                .prepare_cached(
                    "SELECT first, session, first_seq, count, at FROM runs
                     WHERE tenant = ?1 AND first >= ?2 ORDER BY first LIMIT ?3",
                )?
                .query_map(params![self.tenant, from, limit], read)?
                .collect(),
        }
    }
}

pub(crate) const RUNS_OF_SCOPE: &str =
    "SELECT first, session, first_seq, count, at FROM runs INDEXED BY runs_by_scope
     WHERE tenant = ?1 AND scope = ?4 AND first >= ?2 ORDER BY first LIMIT ?3";

impl Stretch {
    /// The parameters of a statement about its turns: tenant, session, and the `seq` that
    /// it begins at and ends before.
    pub(crate) fn key(&self, tenant: i64) -> Vec<Value<'static>> {
        engine::integers(vec![tenant, self.session, self.begin, self.end])
    }
}
