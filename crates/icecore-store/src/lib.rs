//! Where a memory's ground state lives: durable tables, and packs of cold bodies.
//!
//! Knows tables and objects, and nothing of models, HTTP, scheduling or ranking.
//! [`Store`] is the contract; [`SqliteStore`] keeps it on one machine, and
//! [`MemoryStore`] is what it is compared with.

mod api_keys;
mod archive;
mod bounds;
mod commitments;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod derivation;
mod dreams;
#[cfg(test)]
mod entries_tests;
mod error;
mod files;
mod handoffs;
mod in_memory;
mod keys;
mod leases;
mod objects;
#[cfg(test)]
mod oracle_tests;
mod pack;
mod packs;
#[cfg(feature = "postgres")]
mod postgres;
mod postgres_options;
mod runs;
mod schedules;
mod sql;
mod sqlite;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timings;
mod told;
mod workspace;
#[cfg(test)]
mod workspace_tests;

pub use archive::{MAX_ARCHIVE_BYTES, open_archive, seal_archive};
pub use bounds::{day_of, end_of_day};
pub use error::StoreError;
pub use in_memory::MemoryStore;
pub use keys::{MASTER_KEY_FILE, MASTER_KEY_NEXT_FILE, MASTER_KEY_VARIABLE, MasterKey, TenantKey};
pub use objects::{ObjectKeys, ObjectPlace, ObjectSettings};
pub use pack::{
    MAX_FRAME_BYTES, PACK_VERSION, PackKey, PackMember, PackReader, build as build_pack,
    identity as pack_identity,
};
pub use packs::{PackObject, Packs};
#[cfg(feature = "postgres")]
pub use postgres::{Hint, PgError, Postgres, PostgresStore};
pub use postgres_options::PostgresOptions;
pub use sql::engine::Error as DatabaseError;
pub use sql::{
    Backup, BackupOf, BackupReport, Doing, MOVING, MigrationReport, Moved, Moving, Objects,
    Restored, SqlStore, Tables, Tell, back_up, half_moved_from, migrate, restore,
};
pub use sqlite::{BUSY_SECONDS, Sqlite, SqliteStore};
pub use store::*;
pub use timings::{StoreTimings, TIME_BOUNDS_SECONDS, Times};
