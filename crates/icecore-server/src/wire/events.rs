//! Events: what happened, without what was said.

use icecore::maintenance::EventRecord;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A page of the log.
#[derive(Debug, Serialize, ToSchema)]
pub struct Events<'a> {
    events: Vec<Event<'a>>,
}

impl<'a> Events<'a> {
    /// These.
    pub fn of(events: &'a [EventRecord]) -> Self {
        Self { events: events.iter().map(Event::from).collect() }
    }
}

/// Something that happened.
#[derive(Debug, Serialize, ToSchema)]
pub struct Event<'a> {
    /// Its place in the log, to go on after.
    seq: u64,
    /// For example `turn.appended`.
    #[serde(rename = "type")]
    kind: &'a str,
    #[schema(format = DateTime)]
    timestamp: String,
    /// Numbers and ids, no content.
    #[schema(value_type = Object)]
    payload: Option<&'a RawValue>,
}

impl<'a> From<&'a EventRecord> for Event<'a> {
    fn from(event: &'a EventRecord) -> Self {
        Self {
            seq: event.position.0,
            kind: &event.kind,
            timestamp: event.at.to_rfc3339(),
            payload: serde_json::from_str(&event.payload).ok(),
        }
    }
}
