//! Writing rows as they are, many with one statement.

use super::row::Values;
use crate::engine::tx::Tx;
use crate::engine::{Owned, params_from_iter};
use crate::error::Result;
use crate::tables::Table;

/// Values that one statement takes at most.
const MOST_VALUES: usize = 1_000;

/// Adds rows to a table.
pub(super) struct Inserter {
    columns: usize,
    into: String,
}

impl Inserter {
    /// Adds rows with these of its columns.
    pub(super) fn new(table: &Table, columns: &[&str]) -> Self {
        let into = format!("INSERT INTO {} ({}) VALUES ", table.name, columns.join(", "));
        Self { columns: columns.len(), into }
    }

    /// Adds rows, but for those whose place is taken; answers how many were added.
    pub(super) fn insert(&self, tx: &Tx<'_>, rows: &[Values]) -> Result<usize> {
        let at_once = (MOST_VALUES / self.columns.max(1)).max(1);
        let mut added = 0;
        for many in rows.chunks(at_once) {
            let values: Vec<&Owned> = many.iter().flatten().collect();
            added += tx.prepare_cached(&self.sql(many.len()))?.execute(params_from_iter(values))?;
        }
        Ok(added)
    }

    fn sql(&self, rows: usize) -> String {
        let mut sql = self.into.clone();
        for row in 0..rows {
            let first = row * self.columns;
            let places = (first + 1..=first + self.columns).map(|at| format!("?{at}"));
            let places: Vec<_> = places.collect();
            let comma = if row == 0 { "" } else { ", " };
            sql.push_str(&format!("{comma}({})", places.join(", ")));
        }
        sql.push_str(" ON CONFLICT DO NOTHING");
        sql
    }
}
