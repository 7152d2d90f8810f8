//! Notes: what a store knows about itself, by name.

use super::OptionalExtension;
use super::tx::Tx;
use crate::error::{Result, StoreError};

/// Note under which the master key's check value is kept.
pub(crate) const KEY_CHECK: &str = "master-key-check";

pub(crate) fn put_note(tx: &Tx<'_>, name: &str, value: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO notes (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [name, value],
    )
    .map(|_| ())
    .map_err(StoreError::from)
}

pub(crate) fn note_once(tx: &Tx<'_>, name: &str, value: &str) -> Result<String> {
    tx.execute(
        "INSERT INTO notes (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
        [name, value],
    )
    .and_then(|_| {
        let mut there = tx.prepare_cached("SELECT value FROM notes WHERE name = ?1")?;
        there.query_row([name], |row| row.get(0))
    })
    .map_err(StoreError::from)
}

pub(crate) fn note(tx: &Tx<'_>, name: &str) -> Result<Option<String>> {
    tx.prepare_cached("SELECT value FROM notes WHERE name = ?1")
        .and_then(|mut q| q.query_row([name], |row| row.get(0)).optional())
        .map_err(StoreError::from)
}
