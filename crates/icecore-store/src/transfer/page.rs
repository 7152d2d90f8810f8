//! Reading and writing tables a bounded page of rows at a time.

use super::row;
use super::row::Values;
use crate::engine::tx::Tx;
use crate::engine::{Owned, column, params, params_from_iter};
use crate::error::{Result, StoreError};
use crate::tables::{Owner, TABLES, Table, Within};

/// Bytes that a page aims at; one row may be more.
const PAGE_BYTES: usize = 1 << 20;

/// Rows of a first page, before it is known how large they are.
const FIRST_ROWS: usize = 128;

/// Rows of a page at least and at most.
const ROWS: (usize, usize) = (8, 4_096);

/// Values that one statement takes at most.
const MOST_VALUES: usize = 1_000;

#[derive(Debug, Clone)]
pub(super) struct Whose {
    pub(super) tenant: i64,
    pub(super) name: String,
    pub(super) memory: Option<OneMemory>,
}

/// The numbers of a memory and of its sessions.
#[derive(Debug, Clone)]
pub(super) struct OneMemory {
    pub(super) scope: i64,
    pub(super) sessions: Vec<i64>,
}

impl OneMemory {
    /// Fails if the tenant has no memory of that name.
    pub(super) fn find(tx: &Tx<'_>, tenant: i64, memory: &str) -> Result<Self> {
        let scope = "SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2";
        let scope: i64 = tx
            .first(scope, params![tenant, memory], column)?
            .ok_or_else(|| StoreError::NothingThere { what: format!("memory `{memory}`") })?;
        let sessions = "SELECT session FROM sessions WHERE tenant = ?1 AND scope = ?2
                        ORDER BY session";
        Ok(Self { scope, sessions: tx.all(sessions, [tenant, scope], column)? })
    }
}

/// Part of a table: the rows that meet a condition.
struct Piece {
    /// Columns that lead the key and have one value in all of these rows.
    led_by: usize,
    condition: String,
    values: Values,
}

impl Whose {
    pub(super) fn tenant(tenant: i64, name: String) -> Self {
        Self { tenant, name, memory: None }
    }

    /// What the column `tenant` of a table holds in this tenant's rows.
    pub(super) fn owner(&self, table: &Table) -> Owned {
        match table.owner {
            Owner::Name => self.name.clone().into(),
            Owner::Number | Owner::Everyone => self.tenant.into(),
        }
    }

    /// The parts of a table that hold its rows. Within each, rows have the order of the key.
    fn pieces(&self, table: &Table) -> Vec<Piece> {
        let tenant = self.owner(table);
        let piece = |led_by, condition: &str, values: Values| Piece {
            led_by,
            condition: condition.to_owned(),
            values,
        };
        match (table.owner, &self.memory, table.within) {
            (Owner::Everyone, ..) => vec![piece(0, "1 = 1", Values::new())],
            (Owner::Name, None, _) => vec![piece(0, "tenant = ?1", vec![tenant])],
            (_, None, _) | (_, _, Within::Every) => vec![piece(1, "tenant = ?1", vec![tenant])],
            (_, Some(_), Within::None) => Vec::new(),
            (_, Some(memory), Within::Session) => {
                let of_session = |session: &i64| {
                    let values = vec![tenant.clone(), Owned::Integer(*session)];
                    piece(2, "tenant = ?1 AND session = ?2", values)
                };
                memory.sessions.iter().map(of_session).collect()
            }
            (_, Some(memory), Within::Where(condition)) => {
                let led_by = if table.key.get(1) == Some(&"scope") { 2 } else { 1 };
                let values = vec![tenant, Owned::Integer(memory.scope)];
                vec![piece(led_by, &format!("tenant = ?1 AND {condition}"), values)]
            }
        }
    }

    pub(super) fn count(&self, tx: &Tx<'_>, table: &Table) -> Result<u64> {
        let count = |piece: Piece| -> Result<u64> {
            let sql = format!("SELECT count(*) FROM {} WHERE {}", table.name, piece.condition);
            tx.one(&sql, params_from_iter(piece.values), column)
        };
        self.pieces(table).into_iter().map(count).sum()
    }

    /// Whether any of its rows is content, and not only room for content.
    pub(super) fn has_content(&self, tx: &Tx<'_>) -> Result<bool> {
        for table in TABLES.iter().filter(|table| holds_content(table)) {
            for piece in self.pieces(table) {
                let sql = format!("SELECT 1 FROM {} WHERE {} LIMIT 1", table.name, piece.condition);
                if tx.finds(&sql, params_from_iter(piece.values))? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Shows its rows of a table, page by page. No page is empty.
    pub(super) fn each_page(
        &self,
        tx: &Tx<'_>,
        table: &Table,
        mut visit: impl FnMut(Vec<Values>) -> Result<()>,
    ) -> Result<()> {
        for piece in self.pieces(table) {
            let (mut limit, mut after) = (FIRST_ROWS, Values::new());
            loop {
                let page = piece.page(tx, table, &after, limit)?;
                let Some(last) = page.last() else { break };
                after = table.key_of(last).split_off(piece.led_by);
                // Rows that have the whole key in common are one row.
                let is_last = page.len() < limit || after.is_empty();
                limit = next_limit(&page);
                visit(page)?;
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Whether the rows of a table are content, and not only room for content.
pub(super) fn holds_content(table: &Table) -> bool {
    table.owner != Owner::Everyone && !["tenants", "scopes"].contains(&table.name)
}

impl Piece {
    /// The rows that follow the one whose key ends with `after`, or the first if that is empty.
    fn page(
        &self,
        tx: &Tx<'_>,
        table: &Table,
        after: &[Owned],
        limit: usize,
    ) -> Result<Vec<Values>> {
        let mut values = self.values.clone();
        let columns = table.column_names().join(", ");
        let mut sql = format!("SELECT {columns} FROM {} WHERE {}", table.name, self.condition);
        let rest = table.key[self.led_by..].join(", ");
        if !after.is_empty() {
            sql.push_str(&format!(" AND ({rest}) > ({})", places(values.len(), after.len())));
            values.extend_from_slice(after);
        }
        if !rest.is_empty() {
            sql.push_str(&format!(" ORDER BY {rest}"));
        }
        values.push(Owned::Integer(limit as i64));
        sql.push_str(&format!(" LIMIT ?{}", values.len()));
        tx.all(&sql, params_from_iter(values), |found| row::read(found, &table.columns))
    }
}

/// As many rows as come to about a page, if the next are like these.
fn next_limit(page: &[Values]) -> usize {
    let size = |value: &Owned| match value {
        Owned::Null(_) => 1,
        Owned::Integer(_) => 8,
        Owned::Text(text) => text.len(),
        Owned::Blob(bytes) => bytes.len(),
    };
    let bytes: usize = page.iter().flatten().map(size).sum();
    let each = bytes / page.len().max(1);
    (PAGE_BYTES / each.max(1)).clamp(ROWS.0, ROWS.1)
}

/// Inserts rows, except those whose key is taken. Returns how many were inserted.
pub(super) fn insert(tx: &Tx<'_>, table: &Table, rows: &[Values]) -> Result<usize> {
    let (width, columns) = (table.columns.len(), table.column_names().join(", "));
    let mut inserted = 0;
    for rows in rows.chunks((MOST_VALUES / width).max(1)) {
        let row = |at: usize| format!("({})", places(at * width, width));
        let sql = format!(
            "INSERT INTO {} ({columns}) VALUES {} ON CONFLICT DO NOTHING",
            table.name,
            (0..rows.len()).map(row).collect::<Vec<_>>().join(", ")
        );
        inserted += tx.run(&sql, params_from_iter(rows.iter().flatten()))?;
    }
    Ok(inserted)
}

/// The places of `count` values in a statement, after the first `before`.
fn places(before: usize, count: usize) -> String {
    let places = (before + 1..=before + count).map(|at| format!("?{at}"));
    places.collect::<Vec<_>>().join(", ")
}
