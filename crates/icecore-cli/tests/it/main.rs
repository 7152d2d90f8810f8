//! The real binary on throw-away directories.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod bad_input;
mod chat;
mod commands;
mod damage;
mod dreams;
mod examples;
mod faults;
mod forget;
mod growth;
mod import;
mod keys;
mod moving;
mod objects;
mod proxy;
mod proxying;
mod readme;
mod real_model;
mod real_proxy;
mod run;
mod schedules;
mod sdks;
mod search;
mod secrets;
mod serve;
mod sessions;
mod signals;
mod talking;
mod telemetry;
