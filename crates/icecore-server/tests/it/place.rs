//! Where the memories of these tests are kept.
//!
//! In SQLite in their directories; with `ICECORE_TEST_STORE=postgres` in a database of a
//! real server, one for each directory, so that the same tests tell of both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use icecore::{Memory, MemoryBuilder};
use icecore_store::PostgresOptions;
use icecore_store::testing::postgres::{TestDatabase, prepared_database};

/// The databases of directories, so that a host that is started again finds its own.
static DATABASES: Mutex<BTreeMap<PathBuf, TestDatabase>> = Mutex::new(BTreeMap::new());

/// Opens a memory where these tests keep theirs.
pub async fn open(builder: MemoryBuilder, dir: &Path) -> Memory {
    match is_on_a_server() {
        true => {
            let path = dir.to_owned();
            let url = tokio::task::spawn_blocking(move || database(&path)).await.unwrap();
            builder.postgres(&url, options()).open(dir).await.unwrap()
        }
        false => builder.open(dir).await.unwrap(),
    }
}

/// Whether what is kept lies with a PostgreSQL, and not in files of ours.
pub fn is_on_a_server() -> bool {
    std::env::var("ICECORE_TEST_STORE").is_ok_and(|store| store == "postgres")
}

/// Few: many tests run at once.
fn options() -> PostgresOptions {
    PostgresOptions { connections: 6, idle_connections: 1, ..PostgresOptions::default() }
}

fn database(dir: &Path) -> String {
    let mut databases = DATABASES.lock().unwrap();
    let database = databases
        .entry(dir.to_owned())
        .or_insert_with(|| prepared_database().expect("a PostgreSQL was asked for"));
    database.url().to_owned()
}
