//! Packs as objects: local files now, any object store by URL later.

use bytes::Bytes;

use crate::error::StoreError;

/// An object that lies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackObject {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Seconds since 1970 when it was written.
    pub modified_secs: i64,
}

/// Where packs are kept.
#[derive(Debug, Clone)]
pub struct Packs {}

impl Packs {
    /// Packs as files below `dir`, which is made if it is missing.
    pub fn local(dir: &std::path::Path) -> Result<Self, StoreError> {
        let _ = dir;
        unimplemented!()
    }
    /// Packs in memory, for tests.
    pub fn in_memory() -> Self {
        unimplemented!()
    }
    /// A new random name.
    pub fn new_name() -> String {
        unimplemented!()
    }
    /// Writes an object that must not be there yet; durable when it resolves.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<(), StoreError> {
        let _ = (name, bytes);
        unimplemented!()
    }
    /// Reads an object whole.
    pub async fn get(&self, name: &str) -> Result<Bytes, StoreError> {
        let _ = name;
        unimplemented!()
    }
    /// Deletes an object; one that is not there is no error.
    pub async fn delete(&self, name: &str) -> Result<(), StoreError> {
        let _ = name;
        unimplemented!()
    }
    /// All objects.
    pub async fn list(&self) -> Result<Vec<PackObject>, StoreError> {
        unimplemented!()
    }
}
