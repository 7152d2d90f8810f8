//! The store under a memory: where it keeps things, and what can go wrong there.

pub use icecore_store::{
    KeptBound, ObjectKeys, ObjectPlace, ObjectSettings, PostgresOptions, Store, StoreError,
    StoreStats, StoreTimings, TIME_BOUNDS_SECONDS, Times,
};
