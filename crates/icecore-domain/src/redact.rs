//! Text whose secrets were looked for.
//!
//! Nothing reaches a disk, a log or a model unless it is one of the `Redacted…`
//! types, and only a [`Redactor`] makes those from what a client sent. "Redact
//! before writing" is a thing that compiles, not a thing to remember.

#[cfg(any(test, feature = "testing"))]
pub mod corpus;
mod engine;
mod kind;
mod marker;
mod patterns;
mod plausible;
mod samples;
mod secret;

#[cfg(test)]
mod redact_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use self::kind::{Edge, Kind, Proof};
pub use self::secret::{
    MAX_SECRET_BYTES, MAX_SECRET_NAME_CHARS, MAX_SECRETS, MIN_SECRET_CHARS, Secret, SecretError,
    SecretName, TagKey,
};

use self::engine::Engine;
use crate::fact::{Fact, RedactedFact};
use crate::json::JsonText;
use crate::summary::Summary;
use crate::turn::{Content, RawTurn};
use crate::turn_jsonl::KNOWN_FIELDS;

/// A value longer than this is no password, and its key says nothing about it.
const MAX_NAMED_VALUE_BYTES: usize = 4096;

/// How many secrets of each kind were hidden: by the kind's id, or the name of a
/// registered secret.
pub type Hidden = BTreeMap<String, u64>;

/// What a plain word in a password field is called.
const PASSWORD_FIELD: &str = "password";

/// Text that has been through a [`Redactor`].
///
/// The field is private and only the redactor and the store's own reading door
/// make one, so holding it is proof that its secrets were looked for. This does
/// not compile:
///
/// ```compile_fail,E0423
/// use icecore_domain::redact::RedactedText;
/// let text = RedactedText("straight from a client".to_owned());
/// ```
///
/// And this does:
///
/// ```
/// use icecore_domain::redact::{RedactedText, Redactor};
/// let text: RedactedText = Redactor::standard().text("straight from a client");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RedactedText(String);

/// A turn of which every field has been through a [`Redactor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedTurn(RawTurn);

/// A summary that has been through a [`Redactor`] again: its source was clean,
/// but what was put together from it must be looked at once more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedactedSummary(Summary);

impl RedactedText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, by value.
    pub fn into_string(self) -> String {
        self.0
    }

    /// The store's door for what it reads back from its own disk. Everywhere
    /// else this would break the promise, and clippy refuses it.
    pub fn read_back(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for RedactedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RedactedTurn {
    /// Its fields.
    pub fn fields(&self) -> &RawTurn {
        &self.0
    }

    /// Its fields, by value.
    pub fn into_fields(self) -> RawTurn {
        self.0
    }

    /// The store's door; see [`RedactedText::read_back`].
    pub fn read_back(turn: RawTurn) -> Self {
        Self(turn)
    }
}

impl RedactedSummary {
    /// Its parts.
    pub fn parts(&self) -> &Summary {
        &self.0
    }

    /// The store's door; see [`RedactedText::read_back`].
    pub fn read_back(summary: Summary) -> Self {
        Self(summary)
    }
}

/// Hides credentials. Built once, used everywhere.
///
/// What it takes away is replaced by `[REDACTED:<id>]`, the id of the
/// credential's [`Kind`]. Markers that are already there survive, and those of
/// others (`[BYOK:…]`, `<REDACTED:…>`) take our form, so redacting twice equals
/// redacting once.
pub struct Redactor {
    engine: Engine,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(…)")
    }
}

impl Redactor {
    /// The redactor with our table of credential kinds.
    pub fn standard() -> Self {
        Self { engine: Engine::new(patterns::KINDS) }
    }

    /// The kinds it knows, each with its samples.
    pub fn kinds() -> &'static [Kind] {
        patterns::KINDS
    }

    /// Hides what is secret in `text`.
    pub fn text(&self, text: &str) -> RedactedText {
        RedactedText(self.replaced(text).unwrap_or_else(|| text.to_owned()))
    }

    /// As [`text`](Self::text), and how many secrets of each kind were hidden,
    /// by id. Markers that were already there are not counted.
    pub fn text_counted(&self, text: &str) -> (RedactedText, Vec<(&'static str, u32)>) {
        let mut counts: BTreeMap<&'static str, u32> = BTreeMap::new();
        let replaced = self.engine.replaced(text, &mut |id| *counts.entry(id).or_default() += 1);
        let text = RedactedText(replaced.unwrap_or_else(|| text.to_owned()));
        (text, counts.into_iter().collect())
    }

    /// Hides what is secret in every field of `turn`.
    pub fn turn(&self, turn: RawTurn) -> RedactedTurn {
        let text = |text: String| self.replaced(&text).unwrap_or(text);
        let list = |list: Vec<String>| list.into_iter().map(text).collect();
        RedactedTurn(RawTurn {
            id: turn.id.map(text),
            role: text(turn.role),
            content: match turn.content {
                Content::Text(content) => Content::Text(text(content)),
                Content::Null => Content::Null,
                Content::Parts(json) => Content::Parts(self.json(&json)),
            },
            name: turn.name.map(text),
            timestamp: turn.timestamp,
            model: turn.model.map(text),
            parent_ids: turn.parent_ids.map(list),
            tags: turn.tags.map(list),
            confidence: turn.confidence,
            tool_calls: turn.tool_calls.map(|json| self.json(&json)),
            tool_call_id: turn.tool_call_id.map(text),
            extra: self.extra(turn.extra),
        })
    }

    /// The fields we do not know, names and values. Names that are the same once
    /// their secrets are hidden stay apart by a number: a turn with one field
    /// twice could never be read back.
    fn extra(&self, fields: Vec<(String, JsonText)>) -> Vec<(String, JsonText)> {
        let clean: Vec<Option<String>> = fields.iter().map(|(key, _)| self.replaced(key)).collect();
        // Names that stay go first. So a second redaction, to which all of them
        // are such names, changes none.
        let kept = fields.iter().zip(&clean).filter(|(_, clean)| clean.is_none());
        let mut taken: BTreeSet<String> = kept.map(|((key, _), _)| key.clone()).collect();
        taken.extend(KNOWN_FIELDS.map(str::to_owned));
        let mut counts = BTreeMap::new();
        let renamed = |((key, json), clean): ((String, JsonText), Option<String>)| {
            let value = self.field(&key, &json);
            let Some(clean) = clean else { return (key, value) };
            let unique = self.unique_name(clean, &mut taken, &mut counts);
            // The value as a second redaction would see it, under its new name.
            let value = self.field(&unique, &value);
            (unique, value)
        };
        fields.into_iter().zip(clean).map(renamed).collect()
    }

    /// `name`, or `name#2`, `name#3` and so on if it is taken.
    fn unique_name(
        &self,
        mut name: String,
        taken: &mut BTreeSet<String>,
        counts: &mut BTreeMap<String, u64>,
    ) -> String {
        if taken.insert(name.clone()) {
            return name;
        }
        let unnamed = marker::of(marker::UNNAMED);
        loop {
            let count = counts.entry(name.clone()).or_insert(1);
            *count += 1;
            let numbered = format!("{name}#{count}");
            if name != unnamed && self.replaced(&numbered).is_some() {
                // After some names (`password=`) a number reads like a secret.
                name.clone_from(&unnamed);
            } else if taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }

    /// Hides what is secret in derived text, part by part.
    pub fn summary(&self, summary: Summary) -> RedactedSummary {
        let text = |text: String| self.replaced(&text).unwrap_or(text);
        RedactedSummary(Summary {
            text: text(summary.text),
            themes: summary.themes.into_iter().map(text).collect(),
            key_facts: summary.key_facts.into_iter().map(text).collect(),
        })
    }

    /// Hides what is secret in every text of a fact.
    pub fn fact(&self, fact: Fact) -> RedactedFact {
        RedactedFact {
            kind: fact.kind,
            subject: self.text(&fact.subject),
            attribute: self.text(&fact.attribute),
            value: self.text(&fact.value),
            text: self.text(&fact.text),
            quote: self.text(&fact.quote),
            valid_from: fact.valid_from,
        }
    }

    /// Hides what is secret in the strings, keys and bare scalars of `json`;
    /// the rest keeps its spelling.
    pub fn json(&self, json: &JsonText) -> JsonText {
        json.map_text(|key, text| match key {
            Some(key) => self.replaced_under(key, text),
            None => self.replaced(text),
        })
    }

    /// The same for the value of a field. The field's name counts for values
    /// that have no key of their own.
    fn field(&self, name: &str, json: &JsonText) -> JsonText {
        if json.as_str().contains('{') {
            return self.json(json);
        }
        json.map_text(|_, text| self.replaced_under(name, text))
    }

    /// The text of a value that stands under `key`, which may be all that tells
    /// a password from a word.
    fn replaced_under(&self, key: &str, text: &str) -> Option<String> {
        if text.len() > MAX_NAMED_VALUE_BYTES || !self.engine.may_hold_secrets(key) {
            return self.replaced(text);
        }
        // The key as it will be stored: a second redaction sees no other.
        let clean_key = self.replaced(key);
        let key = clean_key.as_deref().unwrap_or(key);
        let plain = self.replaced(text);
        let value = plain.as_deref().unwrap_or(text);
        // Written as code would write it, the table's own patterns apply.
        let named = self.replaced(&format!("{key}=\"{value}\""));
        let inner = named.as_deref().and_then(|named| {
            let named = named.strip_prefix(key)?.strip_prefix("=\"")?;
            named.strip_suffix('"')
        });
        if named.is_none()
            && marker::markers(value).is_empty()
            && plausible::is_password_field(key, value)
        {
            return Some(marker::of(PASSWORD_FIELD));
        }
        inner.map(str::to_owned).or(plain)
    }

    /// The text with its secrets hidden, or `None` where it holds none.
    fn replaced(&self, text: &str) -> Option<String> {
        self.engine.replaced(text, &mut |_| {})
    }
}
