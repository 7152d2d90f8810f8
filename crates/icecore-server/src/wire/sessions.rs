//! Sessions: what conversations there are.

use icecore::layers::SessionInfo;
use serde::Serialize;
use utoipa::ToSchema;

/// The sessions of a memory, in the order they began.
#[derive(Debug, Serialize, ToSchema)]
pub struct Sessions<'a> {
    sessions: Vec<Session<'a>>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Session<'a> {
    /// Its name.
    session: &'a str,
    /// Turns that are there.
    turns: u64,
    /// Their tokens.
    tokens: u64,
    /// Its branches, `main` first.
    branches: Vec<String>,
    /// The last `seq` given.
    last_seq: u64,
    /// When it was last added to.
    #[schema(format = DateTime)]
    updated_at: String,
}

impl<'a> Sessions<'a> {
    /// These.
    pub fn of(sessions: &'a [SessionInfo]) -> Self {
        Self { sessions: sessions.iter().map(Session::from).collect() }
    }
}

impl<'a> From<&'a SessionInfo> for Session<'a> {
    fn from(session: &'a SessionInfo) -> Self {
        Self {
            session: &session.session,
            turns: session.turns,
            tokens: session.tokens,
            branches: session.branches.iter().map(ToString::to_string).collect(),
            last_seq: session.last_seq.0,
            updated_at: session.updated_at.to_rfc3339(),
        }
    }
}
