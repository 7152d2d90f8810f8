//! What names and numbers things: tenants, memories, sessions, turns, moments.

pub use crate::base::SystemClock;
pub use icecore_domain::ids::{
    Branch, MAX_NAME_BYTES, NameError, Ordinal, Position, Principal, Scope, Seq, SessionName,
    Tenant, TurnId,
};
pub use icecore_domain::time::{Clock, Millis};
