//! A real server on a free port, over a directory of its own, spoken to over TCP.

#![cfg(test)]

mod auth;
mod client;
mod ending;
mod events;
mod hostile;
mod idempotency;
mod limits;
mod openapi;
mod redaction;
mod routes;
mod schema;
mod search;
