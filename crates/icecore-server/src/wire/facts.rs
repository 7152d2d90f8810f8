//! Facts with what supports them.

use icecore::knowledge::{FactInfo, FactSource};
use serde::Serialize;
use utoipa::ToSchema;

/// Facts, in the order they were learned.
#[derive(Debug, Serialize, ToSchema)]
pub struct Facts<'a> {
    facts: Vec<Fact<'a>>,
}

/// A fact.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Fact<'a> {
    /// The same after a rebuild.
    id: &'a str,
    /// The fact as a sentence.
    text: &'a str,
    kind: &'a str,
    /// Whom or what it is about.
    subject: &'a str,
    /// What it is worth now.
    status: &'a str,
    /// Since when it holds.
    #[schema(format = DateTime)]
    valid_from: String,
    /// Until when it held.
    #[schema(format = DateTime)]
    valid_to: Option<String>,
    /// The turns that say so; none if only a person told it.
    sources: Vec<Source<'a>>,
}

/// The words of a turn that support a fact.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Source<'a> {
    turn_id: &'a str,
    quote: &'a str,
}

impl<'a> Facts<'a> {
    /// These.
    pub fn of(facts: &'a [FactInfo]) -> Self {
        Self { facts: facts.iter().map(Fact::from).collect() }
    }
}

impl<'a> From<&'a FactInfo> for Fact<'a> {
    fn from(fact: &'a FactInfo) -> Self {
        let source =
            |source: &'a FactSource| Source { turn_id: &source.turn_id, quote: &source.quote };
        Self {
            id: &fact.id,
            text: &fact.text,
            kind: fact.kind.as_str(),
            subject: &fact.subject,
            status: fact.status.as_str(),
            valid_from: fact.valid_from.to_rfc3339(),
            valid_to: fact.valid_to.map(|at| at.to_rfc3339()),
            sources: fact.sources.iter().map(source).collect(),
        }
    }
}
