//! What nodes with a memory action put and look for.

use std::fmt;

use icecore::Millis;
use icecore::formats::json::JsonText;
use icecore::knowledge::EntryRecord;
use icecore_store::EntryRef;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::step::NewValue;
use super::workflow::MemoryAction;

/// How long the entry lives that is to expire.
const BRIEF_MILLIS: u64 = 150;

/// How long the entry lives that is to be there still.
const FRESH_MILLIS: u64 = 3_600_000;

/// Sentences of the entry that is larger than any budget of ours.
const SENTENCES: usize = 48;

/// An entry to put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draft {
    /// What it says.
    pub(crate) content: String,
    /// How long it lives, if not for good.
    pub(crate) lives_millis: Option<u64>,
}

/// The name of the secret that an action needs.
pub(crate) fn secret_of(action: &MemoryAction) -> Option<&str> {
    match action {
        MemoryAction::RedactionProbe { secret } => Some(secret),
        MemoryAction::InjectionBudget { secret, .. } => Some(secret),
        _ => None,
    }
}

/// When what an action put can be looked for, where that is not at once.
pub(crate) fn ready_at(action: &MemoryAction, put_at: Millis) -> Option<Millis> {
    match action {
        MemoryAction::TtlProbe => Some(Millis(put_at.0.saturating_add(BRIEF_MILLIS as i64))),
        _ => None,
    }
}

/// What an action puts, in order. `secret` is the value of the secret that it needs.
pub(crate) fn drafts(action: &MemoryAction, secret: &str) -> Vec<Draft> {
    let lasting = |content: String| Draft { content, lives_millis: None };
    let said = |content: &str| lasting(content.to_owned());
    match action {
        MemoryAction::WriteThenRead => vec![said("The harbour light was repaired in March.")],
        MemoryAction::RedactionProbe { .. } => {
            vec![lasting(format!("The relay at the harbour answers to {secret} from now on."))]
        }
        MemoryAction::TtlProbe => {
            let living = |content: &str, millis| Draft {
                content: content.to_owned(),
                lives_millis: Some(millis),
            };
            vec![
                living("The tide table of this hour.", FRESH_MILLIS),
                living("The tide table of the hour before.", BRIEF_MILLIS),
            ]
        }
        MemoryAction::CrossTenantProbe { .. } => {
            vec![said("The harbour master keeps the spare key.")]
        }
        // The first answers the query best and is the oldest, so that the two orders
        // cannot be the same.
        MemoryAction::InjectionBudget { query, .. } => vec![
            lasting(format!("{query} It does so at nine.")),
            said("Breakfast is served on the terrace."),
            lasting("The cook lists what is in the larder, jar by jar. ".repeat(SENTENCES)),
            lasting(format!("The guide signs in with {secret}.")),
            said("Umbrellas stand behind the door."),
        ],
    }
}

/// The places, among what [`drafts`] puts, of an entry that is too large for the
/// budget and of one that holds a secret.
pub(crate) const LARGE: usize = 2;
pub(crate) const SECRET: usize = 3;

/// A value of a run's own.
pub(crate) fn value(value: Value) -> NewValue {
    // What was written as JSON can be read as it.
    let text = value.to_string();
    NewValue::Json(JsonText::parse(&text).unwrap_or_else(|_| JsonText::string("")))
}

/// The fields of an object, each as it is written. A field that is there twice is set
/// twice.
pub(crate) fn fields(object: &JsonText) -> Vec<(String, NewValue)> {
    let Fields(fields) = serde_json::from_str(object.as_str()).unwrap_or_default();
    let value = |json: &RawValue| JsonText::parse(json.get()).ok().map(NewValue::Json);
    fields.into_iter().filter_map(|(name, json)| Some((name, value(&json)?))).collect()
}

#[derive(Default)]
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(Read)
    }
}

/// Entries that were found, as a variable.
pub(crate) fn entries(memory_ref: &str, found: &[EntryRecord]) -> NewValue {
    NewValue::Entries(named(memory_ref, found))
}

/// Entries that were found, by name.
pub(crate) fn named(memory_ref: &str, found: &[EntryRecord]) -> Vec<EntryRef> {
    let named = |entry: &EntryRecord| EntryRef {
        memory_ref: memory_ref.to_owned(),
        memory_id: entry.id.clone(),
    };
    found.iter().map(named).collect()
}

/// The ids of entries, in order.
pub(crate) fn ids(found: &[EntryRecord]) -> NewValue {
    let ids: Vec<&str> = found.iter().map(|entry| entry.id.as_str()).collect();
    value(json!(ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_spelling() {
        let check = |object: &str, expected: &[(&str, &str)]| {
            let found = fields(&JsonText::parse(object).unwrap());
            let json = |json: &str| NewValue::Json(JsonText::parse(json).unwrap());
            let expected: Vec<(String, NewValue)> =
                expected.iter().map(|(name, value)| ((*name).to_owned(), json(value))).collect();
            assert_eq!(found, expected, "{object}");
        };
        check("{}", &[]);
        check(r#"{"b": 1e999, "a\n": [ 1.0 ]}"#, &[("b", "1e999"), ("a\n", "[ 1.0 ]")]);
        check(r#"{"a": 1, "a": null}"#, &[("a", "1"), ("a", "null")]);
        check("[1]", &[]);
    }

    #[test]
    fn what_a_query_is_answered_by_is_the_oldest() {
        let action = MemoryAction::InjectionBudget {
            secret: "s".to_owned(),
            token_budget: 120,
            query: "Where is the key?".to_owned(),
        };
        let drafts = drafts(&action, "plaintext");
        assert!(drafts[0].content.starts_with("Where is the key?"));
        assert!(drafts[LARGE].content.split_whitespace().count() > 240);
        assert!(drafts[SECRET].content.contains("plaintext"));
    }
}
