//! What goes over the wire, apart from what the memory holds.
//!
//! One file for each noun. Answers are types that say what they hold, so that the
//! document of `openapi.rs` is made from them; the command line prints the same.
//! Turns are written as text, not through a tree, so that a client's own fields
//! come back in the spelling they had.

mod chunks;
mod context;
mod dreams;
mod events;
mod facts;
mod handoffs;
mod hits;
mod host;
mod receipts;
mod schedules;
mod sessions;
mod stats;
mod turns;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use icecore::formats::json::quote;
use serde::Serialize;

pub use chunks::{Chunk, Chunks};
pub use context::ContextAnswer;
pub(crate) use dreams::DreamOutcome;
pub use dreams::{Archives, DreamRow, Dreams, Previewed};
pub use events::{Event, Events};
pub use facts::Facts;
pub use handoffs::{CompactedRow, HandoffRow, api_view};
pub(crate) use handoffs::{Viewed, api_view_bytes};
pub use hits::Hits;
pub(crate) use host::{Health, Welcome};
pub use receipts::Receipt;
pub use schedules::{ScheduleDetail, ScheduleRemoved, ScheduleRow, Schedules, TickRow, state_of};
pub use sessions::Sessions;
pub use stats::Stats;
pub use turns::{Added, turn, turns, view};
pub(crate) use turns::{NewTurn, Turns, turn_bytes};

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: String) -> Response {
    let mut response = (status, body).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    // Memory is private: nothing between us and the caller may keep a copy.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A JSON answer to a request that went well.
pub(crate) fn ok(body: String) -> Response {
    json(StatusCode::OK, body)
}

/// An answer as text.
pub fn text<T: Serialize>(answer: &T) -> String {
    // Our types have nothing that JSON cannot say, so this does not fail.
    serde_json::to_string(answer).unwrap_or_default()
}

/// `{"<key>":[…]}`, with further members behind it.
fn list(key: &str, items: impl Iterator<Item = String>, more: &str) -> String {
    let mut out = format!("{{{}:[", quote(key));
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&item);
    }
    out.push(']');
    if !more.is_empty() {
        out.push(',');
        out.push_str(more);
    }
    out.push('}');
    out
}
