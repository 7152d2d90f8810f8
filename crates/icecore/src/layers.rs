//! Turns in their layers: where their bodies are, summaries above them, and reading both back.

pub(crate) mod bodies;
pub(crate) mod history;
pub(crate) mod steps;

pub use self::history::{ChunkInfo, Found, SessionInfo, StoredTurn, View, ViewMessage};
pub use self::steps::Settled;
pub use icecore_domain::chunk::{ChunkId, Level, Tier};
pub use icecore_store::{BodyPlace, TurnState};

use std::sync::Arc;

use icecore_domain::handoff::{is_marked, voices};
use icecore_domain::turn::RawTurn;

use self::bodies::PackCache;
use crate::ingest::Ingest;

pub(crate) use self::steps::{let_go, summarize_above, summarize_micro, write_pack};

/// Reads turns from whatever tier they are in, and moves them down.
#[derive(Clone)]
pub struct Layers {
    pub(crate) ingest: Ingest,
    pub(crate) pack_texts: Arc<PackCache>,
}

crate::base::over!(Layers, ingest: Ingest);

/// Whether a turn is a handoff that was given back to us.
pub(crate) fn is_handoff(turn: &RawTurn) -> bool {
    is_marked(&turn.content.text())
}

/// What of a turn its own speaker says, and under which role: what tools gave back is
/// theirs, whoever's message brought it. Where nothing else is there, that is it.
pub(crate) fn own_words(turn: &RawTurn) -> (&str, String) {
    let all = voices(turn);
    let of = |role: &str| {
        let said = all.iter().filter(|(by, _)| *by == role).map(|(_, text)| &**text);
        said.collect::<Vec<_>>().join("\n")
    };
    match all.iter().find(|(role, text)| *role != "tool" && !text.trim().is_empty()) {
        Some((role, _)) => (role, of(role)),
        None => all.first().map_or((&turn.role, String::new()), |(role, _)| (role, of(role))),
    }
}
