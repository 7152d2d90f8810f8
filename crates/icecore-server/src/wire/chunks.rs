//! Chunks: stretches of a session, each with what stands for it.

use icecore::layers::ChunkInfo;
use serde::Serialize;
use utoipa::ToSchema;

/// Chunks, level by level.
#[derive(Debug, Serialize, ToSchema)]
pub struct Chunks<'a> {
    chunks: Vec<Chunk<'a>>,
}

impl<'a> Chunks<'a> {
    /// These.
    pub fn of(chunks: &'a [ChunkInfo]) -> Self {
        Self { chunks: chunks.iter().map(Chunk::from).collect() }
    }
}

/// A stretch of a session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Chunk<'a> {
    id: String,
    /// The session that it is of.
    session: &'a str,
    /// The branch that it is of.
    branch: String,
    level: &'a str,
    /// How its turns are kept.
    tier: &'a str,
    /// `seq` of its first turn.
    first_seq: u64,
    /// `seq` of its last turn.
    last_seq: u64,
    /// Turns of it that are there.
    turns: u64,
    /// Their tokens.
    tokens: u64,
    /// What stands for it, once derived.
    summary: Option<&'a str>,
    /// What it is about.
    themes: &'a [String],
    /// What to keep of it.
    key_facts: &'a [String],
    /// The chunk above, once that is closed.
    parent: Option<String>,
    /// The chunks below.
    children: Vec<String>,
}

impl<'a> From<&'a ChunkInfo> for Chunk<'a> {
    fn from(chunk: &'a ChunkInfo) -> Self {
        let summary = chunk.summary.as_ref();
        Self {
            id: chunk.id.to_string(),
            session: &chunk.session,
            branch: chunk.id.branch.to_string(),
            level: chunk.id.level.as_str(),
            tier: chunk.tier.as_str(),
            first_seq: chunk.first_seq.0,
            last_seq: chunk.last_seq.0,
            turns: chunk.turns,
            tokens: chunk.tokens,
            summary: summary.map(|summary| summary.text.as_str()),
            themes: summary.map(|summary| summary.themes.as_slice()).unwrap_or_default(),
            key_facts: summary.map(|summary| summary.key_facts.as_slice()).unwrap_or_default(),
            parent: chunk.parent.map(|id| id.to_string()),
            children: chunk.children.iter().map(ToString::to_string).collect(),
        }
    }
}
