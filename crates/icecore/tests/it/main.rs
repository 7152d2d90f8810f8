//! The memory as a program uses it, over a real store.

#![cfg(test)]

mod archives;
mod arrows;
mod compaction;
mod consolidation;
mod distilling;
mod dreams;
mod dreams_reading;
mod entries;
mod exchanges;
mod exchanges_fuzz;
mod faults;
mod forgetting;
mod handoff_loss;
mod handoffs;
mod handoffs_models;
mod histories;
mod histories_made;
mod importing;
mod layers;
mod learning;
mod leases;
mod made_sessions;
mod models;
mod models_entries;
mod models_http;
mod models_turns;
mod objects;
mod recall;
mod recollection;
mod redaction;
mod refusals;
mod scan;
mod seed_wrongs;
mod support;
mod trials;
mod veiling;
mod workspace;
