//! The whole engine, against a real server.

mod faults;
mod hints;
mod proxy;
mod rotation;
mod schema;
mod transactions;
mod walls;

use super::*;
use crate::contract::broken_sentences;
use crate::contract::fixtures::{scope_of, tenant};
use crate::testing::postgres::{TestDatabase, fresh_database, prepared_database};

const MASTER_KEY: &str = "0101010101010101010101010101010101010101010101010101010101010101";

fn connect(url: &str) -> PostgresStore {
    connect_with(url, PostgresOptions::default()).unwrap()
}

fn connect_with(url: &str, options: PostgresOptions) -> Result<PostgresStore> {
    PostgresStore::connect(url, options, MASTER_KEY)
}

/// A store over a database of its own, which goes after it.
fn fresh_store() -> Option<(PostgresStore, TestDatabase)> {
    let database = fresh_database()?;
    Some((connect(database.url()), database))
}

/// Runs a write on this thread.
fn write<T>(
    store: &PostgresStore,
    wall: &Wall,
    act: impl Fn(&Connection, &Shared) -> Result<T>,
) -> Result<T> {
    store.engine().database.write(wall, &act)
}

/// Runs a read on this thread.
fn read<T>(
    store: &PostgresStore,
    wall: &Wall,
    act: impl Fn(&Connection, &Shared) -> Result<T>,
) -> Result<T> {
    store.engine().database.read(wall, &act)
}

/// The wall of a memory.
fn of_memory(tenant: &str, memory: &str) -> Wall {
    Wall::Scope(scope_of(tenant, memory))
}

/// The wall of a tenant.
fn of_tenant(name: &str) -> Wall {
    Wall::Tenant(tenant(name))
}

/// What a number is called in the notes, which need no other rows.
fn put_note(c: &Connection, s: &Shared, name: &str, value: &str) -> Result<()> {
    let sql = "INSERT INTO notes (name, value) VALUES (?1, ?2)";
    c.execute(sql, params![name, value]).map(drop).map_err(|e| (s.classify)(e, &s.path))
}

fn count_notes(store: &PostgresStore, name: &str) -> i64 {
    read(store, &Wall::Everyone, |c, s| {
        c.query_row("SELECT count(*) FROM notes WHERE name = ?1", [name], |row| row.get(0))
            .map_err(|e| (s.classify)(e, &s.path))
    })
    .unwrap()
}

#[test]
fn postgres_keeps_the_contract() {
    let Some(database) = prepared_database() else { return };
    let fresh = || {
        database.empty();
        connect(database.url())
    };
    assert_eq!(broken_sentences(fresh), [""; 0]);
}
