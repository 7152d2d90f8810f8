//! Redacts stored text again: what each kind of text becomes under a newer redactor.

use std::collections::BTreeMap;

use icecore_domain::fact::RedactedFact;
use icecore_domain::ids::{Scope, check_name};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{Hidden, RedactedText, Redactor};
use icecore_domain::summary::RedactedSummary;

use crate::engine::Result;

/// Replaces a name of which no part can stay.
const UNNAMED: &str = "[REDACTED:secret]";

/// A redactor for text that was redacted before. Its methods return `None` where nothing
/// changes.
pub(crate) struct Reredactor<'a>(pub(crate) &'a Redactor);

/// The new content and tags of an entry, and what was hidden in them.
pub(crate) type RewrittenEntry = (RedactedText, Vec<RedactedText>, Hidden);

/// What [`Store::rewrite_stored_text`] changed.
///
/// [`Store::rewrite_stored_text`]: crate::Store::rewrite_stored_text
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RewriteCounts {
    pub sessions: u64,
    /// The old names of renamed memories.
    pub memories: Vec<String>,
    pub entries: u64,
    pub verdicts: u64,
    pub files: u64,
    /// Runs, each with its events.
    pub runs: u64,
    pub commitments: u64,
    pub handoffs: u64,
    pub events: u64,
    pub keys: u64,
    pub outcomes: u64,
    /// Dropped summaries and facts, and dropped entries and handoffs that were made of others.
    pub derived: u64,
    /// What was hidden in names, entries, verdicts, files and handoffs.
    pub hidden: Hidden,
    /// Scopes in which anything but runs, commitments, events and outcomes changed, by
    /// their new names.
    pub touched: Vec<Scope>,
}

pub(crate) fn add(sum: &mut Hidden, counts: &Hidden) {
    for (kind, count) in counts {
        *sum.entry(kind.clone()).or_default() += count;
    }
}

impl Reredactor<'_> {
    pub(crate) fn text(&self, text: &str) -> Option<(RedactedText, Hidden)> {
        let (clean, hidden) = self.0.text_counted(text);
        (clean.as_str() != text).then_some((clean, hidden))
    }

    pub(crate) fn entry(
        &self,
        content: &RedactedText,
        tags: &[RedactedText],
    ) -> Option<RewrittenEntry> {
        let mut hidden = Hidden::new();
        let clean = self.part(content, &mut hidden);
        let clean_tags: Vec<_> = tags.iter().map(|tag| self.part(tag, &mut hidden)).collect();
        (clean != *content || clean_tags != tags).then_some((clean, clean_tags, hidden))
    }

    /// Hidden values are counted in the fact's text only: its other fields are parts of it.
    pub(crate) fn fact(&self, fact: &RedactedFact) -> Option<(RedactedFact, Hidden)> {
        let mut hidden = Hidden::new();
        let part = |text: &RedactedText| self.part(text, &mut Hidden::new());
        let clean = RedactedFact {
            subject: part(&fact.subject),
            attribute: part(&fact.attribute),
            value: part(&fact.value),
            text: self.part(&fact.text, &mut hidden),
            quote: part(&fact.quote),
            ..*fact
        };
        (clean != *fact).then_some((clean, hidden))
    }

    /// The text without secrets, whether it changes or not; adds to the counts.
    fn part(&self, text: &RedactedText, hidden: &mut Hidden) -> RedactedText {
        let Some((clean, counts)) = self.text(text.as_str()) else { return text.clone() };
        add(hidden, &counts);
        clean
    }

    pub(crate) fn finds_in(&self, summary: &RedactedSummary) -> bool {
        let parts = summary.parts();
        let mut texts = parts.themes.iter().chain(&parts.key_facts).chain([&parts.text]);
        texts.any(|text| self.text(text).is_some())
    }

    /// Redacts JSON value by value, and anything else as text.
    pub(crate) fn json(&self, text: &str) -> Option<String> {
        match JsonText::parse(text) {
            Ok(json) => {
                let clean = self.0.json(&json);
                // Compared after parsing: whitespace is no change.
                (clean != json).then(|| clean.as_str().to_owned())
            }
            Err(_) => Some(self.text(text)?.0.into_string()),
        }
    }

    /// The payload of an event, with the new ids of facts and the new name of its memory.
    pub(crate) fn payload(
        &self,
        payload: &str,
        fact_ids: &BTreeMap<String, String>,
        memory: Option<&str>,
    ) -> Option<String> {
        let clean = self.json(payload);
        let text = clean.as_deref().unwrap_or(payload);
        let Ok(mut value) = serde_json::from_str::<serde_json::Value>(text) else { return clean };
        let fact_id = value["factId"].as_str().and_then(|id| fact_ids.get(id)).cloned();
        let memory =
            memory.filter(|name| value["memoryRef"].as_str().is_some_and(|it| it != *name));
        if fact_id.is_none() && memory.is_none() {
            return clean;
        }
        if let Some(id) = fact_id {
            value["factId"] = id.into();
        }
        if let Some(memory) = memory {
            value["memoryRef"] = memory.into();
        }
        Some(value.to_string())
    }

    /// The name without secrets, with a number if another row has that name.
    pub(crate) fn name(
        &self,
        old: &str,
        mut is_taken: impl FnMut(&str) -> Result<bool>,
    ) -> Result<Option<(String, Hidden)>> {
        let clean = self.0.name(old).into_string();
        if clean == old {
            return Ok(None);
        }
        let hidden = self.0.text_counted(old).1;
        let fits =
            |name: &str| check_name("stored", name).is_ok() && self.0.name(name).as_str() == name;
        let mut name = if fits(&clean) { clean } else { UNNAMED.to_owned() };
        // A name with a number may be too long, or look like a secret.
        let is_numbered = fits(&format!("{name}#1000000"));
        let base = if is_numbered { name.clone() } else { UNNAMED.to_owned() };
        let mut number = 1_u64;
        while is_taken(&name)? {
            number += 1;
            name = format!("{base}#{number}");
        }
        Ok(Some((name, hidden)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::fixtures::secret;
    use icecore_domain::ids::MAX_NAME_BYTES;
    use icecore_domain::redact::TagKey;

    #[test]
    fn names_stay_apart_and_within_their_limits() {
        let redactor = Redactor::standard()
            .for_tenant(&[secret("a-name-longer-than-its-value", "q8Zk2Lm9Xw")], TagKey::default());
        let again = Reredactor(&redactor);
        let mut taken: Vec<String> = Vec::new();
        let long = format!("{}q8Zk2Lm9Xw", "x".repeat(MAX_NAME_BYTES - 10));
        let tagged = redactor.name("chat q8Zk2Lm9Xw").into_string();
        for (old, new) in [
            ("plain", None),
            ("chat q8Zk2Lm9Xw", Some(tagged.clone())),
            ("chat q8Zk2Lm9Xw", Some(format!("{tagged}#2"))),
            ("chat q8Zk2Lm9Xw", Some(format!("{tagged}#3"))),
            (&long, Some("[REDACTED:secret]".to_owned())),
            (&long, Some("[REDACTED:secret]#2".to_owned())),
        ] {
            let found = again.name(old, |name| Ok(taken.iter().any(|t| t == name))).unwrap();
            let found = found.map(|(name, _)| name);
            assert_eq!(found, new);
            if let Some(name) = found {
                assert!(again.text(&name).is_none(), "it is clean: {name}");
                taken.push(name);
            }
        }
    }

    #[test]
    fn payloads_name_facts_and_memories_as_they_are_called_now() {
        let redactor = Redactor::standard();
        let again = Reredactor(&redactor);
        let ids = BTreeMap::from([("fact-1".to_owned(), "fact-2".to_owned())]);
        let payload = r#"{"factId":"fact-1","memoryRef":"old"}"#;
        assert_eq!(again.payload(payload, &BTreeMap::new(), None), None);
        assert_eq!(again.payload(payload, &BTreeMap::new(), Some("old")), None);
        let new = again.payload(payload, &ids, Some("new")).unwrap();
        assert_eq!(new, r#"{"factId":"fact-2","memoryRef":"new"}"#);
        assert_eq!(again.payload(r#"{"name":"x"}"#, &ids, Some("new")), None);
    }

    #[test]
    fn what_we_write_into_the_log_ourselves_is_no_secret() {
        let (redactor, none) = (Redactor::standard(), BTreeMap::new());
        let hex = "9f86d081884c7d65";
        for payload in [
            serde_json::json!({ "keyId": format!("key-{hex}"), "role": "writer" }),
            serde_json::json!({ "memoryRef": "notes", "factId": format!("fact-{hex}") }),
            serde_json::json!({ "memoryRef": "notes", "memoryId": "e1", "redacted": { "jwt": 2 } }),
            serde_json::json!({ "name": "prod-db-password" }),
            serde_json::json!({ "commitmentId": format!("c-{hex}9f86"), "condition": "time" }),
            serde_json::json!({ "chunk": "chunk-1.main.macro.1-8", "turns": 8 }),
            serde_json::json!({ "compactionId": format!("h-{hex}9f86"), "session": 3, "madeBy": "model:small" }),
        ] {
            let payload = payload.to_string();
            assert_eq!(Reredactor(&redactor).payload(&payload, &none, None), None, "{payload}");
        }
    }
}
