//! The HTTP door: wire formats, keys and limits over one [`Memory`](icecore::Memory).
//!
//! [`serve`] answers requests and runs the memory's worker until it is told to
//! stop; [`ensure_admin_key`] gives a new data directory its first key. The route
//! table is in `routes.rs`, the table of errors in `error.rs`, every number that
//! bounds work in [`Limits`].
//!
//! Knows wire formats, and no SQL, no flags and no model files.

mod app;
mod auth;
mod body;
mod context;
mod docs;
mod error;
mod events;
mod facts;
mod forget;
mod guard;
mod health;
mod history;
mod host;
mod idempotency;
mod keys;
mod limits;
mod openapi;
mod params;
mod refusal;
mod routes;
mod search;
mod serve;
mod turns;
pub mod wire;

pub use auth::Role;
pub use keys::{ADMIN_KEY_FILE, AdminKey, NewKey, create_key, ensure_admin_key};
pub use limits::Limits;
pub use serve::{ServeError, ServerOptions, serve};
