//! A real server on a free port, over a directory of its own, spoken to over TCP.

#![cfg(test)]

mod agents;
mod auth;
mod bounds;
mod client;
mod commitment_lists;
mod commitments;
mod conformance;
mod consolidation;
mod crowd;
mod discovery;
mod dreams;
mod ending;
mod entries;
mod events;
mod handoffs;
mod hostile;
mod idempotency;
mod keys;
mod limits;
mod listening;
mod metrics;
mod openapi;
mod place;
mod proxy;
mod proxy_memory;
mod proxy_trouble;
mod read_only;
mod redaction;
mod routes;
mod runs;
mod schedules;
mod schema;
mod seams;
mod search;
mod tenants;
mod workspace;
