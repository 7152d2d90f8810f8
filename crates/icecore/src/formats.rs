//! The formats of turns, and JSON as it is stored.

pub use icecore_domain::{ctf, json, turn_jsonl};
