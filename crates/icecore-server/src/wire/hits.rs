//! What a search found.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

/// The answer to a search.
#[derive(Debug, Serialize, ToSchema)]
pub struct Hits<'a> {
    /// Best first.
    hits: Vec<Hit<'a>>,
    /// What a person should know about this answer.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notices: &'a [String],
}

/// Something that was found.
#[derive(Debug, Serialize, ToSchema)]
struct Hit<'a> {
    kind: &'a str,
    id: &'a str,
    /// The session that it is from.
    session: Option<&'a str>,
    /// A turn's place in it, or that of a summary's first turn.
    seq: Option<u64>,
    /// A turn's role.
    role: Option<&'a str>,
    /// Who spoke.
    name: Option<&'a str>,
    text: &'a str,
    /// Worth beside the other hits.
    score: f32,
    /// Why, in a line.
    reason: &'a str,
    /// What speaks for it, by name.
    signals: BTreeMap<&'a str, f32>,
    #[schema(format = DateTime)]
    timestamp: String,
}

impl<'a> From<&'a icecore::Hits> for Hits<'a> {
    fn from(found: &'a icecore::Hits) -> Self {
        Self { hits: found.hits.iter().map(Hit::from).collect(), notices: &found.notices }
    }
}

impl<'a> From<&'a icecore::Hit> for Hit<'a> {
    fn from(hit: &'a icecore::Hit) -> Self {
        Self {
            kind: hit.kind.as_str(),
            id: &hit.id,
            session: hit.session.as_deref(),
            seq: hit.seq.map(|seq| seq.0),
            role: hit.role.as_deref(),
            name: hit.name.as_deref(),
            text: &hit.text,
            score: hit.score,
            reason: &hit.reason,
            signals: hit.signals.iter().copied().collect(),
            timestamp: hit.at.to_rfc3339(),
        }
    }
}
