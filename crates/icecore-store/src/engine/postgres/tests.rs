//! The whole engine, against a real server.

pub(super) mod distribution;
mod faults;
mod hints;
mod pooler;
mod proxy;
mod replicas;
mod rotation;
mod schema;
mod transactions;
mod walls;

use super::*;
use crate::contract::broken_sentences;
use crate::contract::fixtures::{scope_of, tenant};
use crate::engine::column;
use crate::store::Store;
use crate::testing::postgres::{TestDatabase, fresh_database, prepared_database};

const MASTER_KEY: &str = "0101010101010101010101010101010101010101010101010101010101010101";

fn connect(url: &str) -> Store {
    connect_with(url, PostgresOptions::default()).unwrap()
}

fn connect_with(url: &str, options: PostgresOptions) -> Result<Store> {
    Store::connect(url, options, MASTER_KEY)
}

/// A store over a database of its own, which goes after it.
fn fresh_store() -> Option<(Store, TestDatabase)> {
    let database = fresh_database()?;
    Some((connect(database.url()), database))
}

/// Runs a write on this thread.
fn write<T>(store: &Store, of: &Isolation, act: impl Fn(&Tx<'_>) -> Result<T>) -> Result<T> {
    store.postgres().unwrap().database.write(of, &act)
}

/// Runs a read on this thread.
fn read<T>(store: &Store, of: &Isolation, act: impl Fn(&Tx<'_>) -> Result<T>) -> Result<T> {
    store.postgres().unwrap().database.read(of, "test", &act)
}

/// The wall of a memory.
fn of_memory(tenant: &str, memory: &str) -> Isolation {
    Isolation::Scope(scope_of(tenant, memory))
}

/// The wall of a tenant.
fn of_tenant(name: &str) -> Isolation {
    Isolation::Tenant(tenant(name))
}

/// What a number is called in the notes, which need no other rows.
fn put_note(tx: &Tx<'_>, name: &str, value: &str) -> Result<()> {
    let sql = "INSERT INTO notes (name, value) VALUES (?1, ?2)";
    tx.run(sql, params![name, value]).map(drop)
}

fn count_notes(store: &Store, name: &str) -> i64 {
    read(store, &Isolation::Global, |tx| {
        tx.one("SELECT count(*) FROM notes WHERE name = ?1", [name], column)
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
    distribution::check_statements(&database);
}
