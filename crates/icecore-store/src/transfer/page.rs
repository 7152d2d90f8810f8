//! Reading a table in the order of its key, a bounded page at a time.

use super::row;
use super::row::Values;
use crate::engine::tx::Tx;
use crate::engine::{Owned, params_from_iter};
use crate::error::Result;
use crate::tables::{Owner, Table, Within};

/// Bytes that a page aims at; one row may be more.
const PAGE_BYTES: usize = 1 << 20;

/// Rows of a first page, before it is known how large they are.
const FIRST_ROWS: usize = 128;

/// Rows of a page at least and at most.
const ROWS: (usize, usize) = (8, 4_096);

/// Whose rows are read.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    /// The tenant's number.
    pub(super) tenant: i64,
    /// Its name.
    pub(super) name: String,
    /// One memory's alone.
    pub(super) memory: Option<OneMemory>,
}

/// One memory of a tenant.
#[derive(Debug, Clone)]
pub(super) struct OneMemory {
    /// Its number.
    pub(super) scope: i64,
    /// The numbers of its sessions.
    pub(super) sessions: Vec<i64>,
}

/// Part of a table: the rows with these values in these columns for which this holds.
struct Piece {
    /// Columns that lead the key and have one value here.
    led_by: usize,
    condition: String,
    values: Values,
}

impl Whose {
    /// The parts of a table that are theirs, one after the other. In each, rows have the
    /// order of the key.
    fn pieces(&self, table: &Table) -> Vec<Piece> {
        let piece = |led_by, condition: &str, values: Values| Piece {
            led_by,
            condition: condition.to_owned(),
            values,
        };
        let of_tenant = vec![Owned::Integer(self.tenant)];
        match (table.owner, &self.memory, table.within) {
            (Owner::Everyone, ..) => vec![piece(0, "1 = 1", Values::new())],
            (_, Some(_), Within::None) => Vec::new(),
            (Owner::Name, ..) => vec![piece(0, "tenant = ?1", vec![self.name.clone().into()])],
            (Owner::Number, None, _) | (Owner::Number, Some(_), Within::Every) => {
                vec![piece(1, "tenant = ?1", of_tenant)]
            }
            (Owner::Number, Some(memory), Within::Session) => {
                let of_session = |session: &i64| {
                    let values = vec![Owned::Integer(self.tenant), Owned::Integer(*session)];
                    piece(2, "tenant = ?1 AND session = ?2", values)
                };
                memory.sessions.iter().map(of_session).collect()
            }
            (Owner::Number, Some(memory), Within::Where(condition)) => {
                let values = vec![Owned::Integer(self.tenant), Owned::Integer(memory.scope)];
                let is_led = table.key.get(1) == Some(&"scope");
                let condition = format!("tenant = ?1 AND {condition}");
                vec![piece(if is_led { 2 } else { 1 }, &condition, values)]
            }
        }
    }

    /// How many rows of a table are theirs.
    pub(super) fn count(&self, tx: &Tx<'_>, table: &Table) -> Result<u64> {
        let mut count = 0;
        for piece in self.pieces(table) {
            let sql = format!("SELECT count(*) FROM {} WHERE {}", table.name, piece.condition);
            let found: i64 = tx
                .prepare_cached(&sql)
                .and_then(|mut q| q.query_row(params_from_iter(piece.values), |row| row.get(0)))?;
            count += found as u64;
        }
        Ok(count)
    }

    /// Whether a row of a table is theirs.
    pub(super) fn has(&self, tx: &Tx<'_>, table: &Table) -> Result<bool> {
        for piece in self.pieces(table) {
            let sql = format!("SELECT 1 FROM {} WHERE {} LIMIT 1", table.name, piece.condition);
            let found = tx
                .prepare_cached(&sql)
                .and_then(|mut q| q.exists(params_from_iter(piece.values)))?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Shows every row of a table that is theirs, in pages.
    pub(super) fn each_page(
        &self,
        tx: &Tx<'_>,
        table: &Table,
        visit: &mut dyn FnMut(Vec<Values>) -> Result<()>,
    ) -> Result<()> {
        for piece in self.pieces(table) {
            let mut limit = FIRST_ROWS;
            let mut last = None;
            loop {
                let page = piece.page(tx, table, last.as_deref(), limit)?;
                let is_whole = page.len() < limit;
                limit = next_limit(&page);
                last = page.last().map(|row| piece.rest_of_key(table, row));
                if !page.is_empty() {
                    visit(page)?;
                }
                // Where all of the key is given there is one row.
                if is_whole || last.as_ref().is_none_or(Vec::is_empty) {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Piece {
    fn page(
        &self,
        tx: &Tx<'_>,
        table: &Table,
        after: Option<&[Owned]>,
        limit: usize,
    ) -> Result<Vec<Values>> {
        let mut values = self.values.clone();
        let mut sql = select(table);
        sql.push_str(&format!(" WHERE {}", self.condition));
        let rest = table.key[self.led_by..].join(", ");
        if let Some(after) = after {
            let first = values.len() + 1;
            let places: Vec<_> = (first..first + after.len()).map(|at| format!("?{at}")).collect();
            sql.push_str(&format!(" AND ({rest}) > ({})", places.join(", ")));
            values.extend_from_slice(after);
        }
        if !rest.is_empty() {
            sql.push_str(&format!(" ORDER BY {rest}"));
        }
        values.push(Owned::Integer(limit as i64));
        sql.push_str(&format!(" LIMIT ?{}", values.len()));
        tx.prepare_cached(&sql)?
            .query_map(params_from_iter(values), |found| row::read(found, &table.columns))?
            .collect()
    }

    /// What tells a row from the others of the piece.
    fn rest_of_key(&self, table: &Table, row: &[Owned]) -> Values {
        let rest = table.key[self.led_by..].iter();
        rest.filter_map(|name| table.at(name)).map(|at| row[at].clone()).collect()
    }
}

/// `SELECT` of all columns.
pub(super) fn select(table: &Table) -> String {
    let columns: Vec<_> = table.columns.iter().map(|column| column.name).collect();
    format!("SELECT {} FROM {}", columns.join(", "), table.name)
}

/// As many rows as come to about a page, if the next are like these.
fn next_limit(page: &[Values]) -> usize {
    let bytes: usize = page.iter().flatten().map(size).sum();
    let each = bytes / page.len().max(1);
    (PAGE_BYTES / each.max(1)).clamp(ROWS.0, ROWS.1)
}

fn size(value: &Owned) -> usize {
    match value {
        Owned::Null(_) => 1,
        Owned::Integer(_) => 8,
        Owned::Text(text) => text.len(),
        Owned::Blob(bytes) => bytes.len(),
    }
}
