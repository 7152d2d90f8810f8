//! The host over real stores.

#![cfg(test)]

mod faults;
mod fixtures;
mod runs;
mod support;
