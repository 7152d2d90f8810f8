//! Where a memory's ground state lives: durable tables, and packs of cold bodies.
//!
//! Knows tables and objects, and nothing of models, HTTP, scheduling or ranking.
//! [`Store`] is the contract; [`SqliteStore`] keeps it on one machine, and
//! [`MemoryStore`] is what it is compared with.

#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod error;
mod in_memory;
mod keys;
mod pack;
mod packs;
mod sqlite;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use error::StoreError;
pub use in_memory::MemoryStore;
pub use keys::{MasterKey, TenantKey};
pub use pack::{PackKey, PackMember, PackReader};
pub use packs::{PackObject, Packs};
pub use sqlite::{BUSY_SECONDS, SqliteStore};
pub use store::*;
