//! The host over real stores.

mod faults;
mod fixtures;
mod runs;
mod support;
