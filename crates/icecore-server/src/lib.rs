//! The HTTP door: wire formats, keys and limits over one [`Memory`](icecore::Memory).
//!
//! [`serve`] answers requests and runs the memory's worker until it is told to
//! stop; [`ensure_admin_key`] gives a new data directory its first key. The route
//! table is in `routes.rs`, the table of errors in `error.rs`, every number that
//! bounds work in [`Limits`].
//!
//! Knows wire formats, and no SQL, no flags and no model files.

mod agents;
mod app;
mod archives;
mod audit;
mod auth;
mod body;
mod commitments;
mod consolidation;
mod context;
mod discovery;
mod docs;
mod dreams;
mod entries;
mod error;
mod events;
mod facts;
mod forget;
mod guard;
mod handoffs;
mod health;
mod history;
mod host;
mod idempotency;
mod key_routes;
mod keyring;
mod keys;
mod limits;
mod line;
mod listen;
mod metrics;
mod open_files;
mod openapi;
mod params;
mod proxy;
mod rates;
mod refusal;
mod request_id;
mod routes;
mod runs;
mod schedules;
mod seams;
mod search;
mod serve;
mod share;
mod stream;
mod turns;
pub mod wire;
mod work;
mod workspace;

pub use auth::Role;
pub use keys::{
    ADMIN_KEY_FILE, AdminKey, KeyTerms, MAX_OVERLAP_SECONDS, NewKey, admin_key_id, create_key,
    create_key_with, ensure_admin_key, rotate_key,
};
pub use limits::Limits;
pub use listen::{ListenError, Listener, SocketFile};
pub use proxy::{Alone, ProxyOptions, TenantUpstreams, UpstreamKey, UpstreamOptions};
pub use serve::{ServeError, ServerOptions, serve, serve_proxy};
