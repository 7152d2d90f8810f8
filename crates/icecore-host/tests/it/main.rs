//! The host over real stores.

#![cfg(test)]

mod bench;
mod bounds;
mod commitments;
mod faults;
mod files;
mod fixtures;
mod redaction;
mod runs;
#[path = "../../../icecore/tests/it/scan.rs"]
mod scan;
mod schedules;
mod support;
mod veiling;
