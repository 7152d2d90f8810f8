//! What a store has in words besides turns, looked through once more.

use std::collections::BTreeMap;

use icecore_domain::fact::RedactedFact;
use icecore_domain::ids::{Scope, check_name};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{Hidden, RedactedSummary, RedactedText, Redactor};

use crate::error::Result;

/// What a name becomes that cannot be kept in part.
const UNNAMED: &str = "[REDACTED:secret]";

/// A redactor over stored text. What it answers is `None` where nothing changes.
pub(crate) struct Again<'a>(pub(crate) &'a Redactor);

/// Adds counts to counts.
pub(crate) fn add(sum: &mut Hidden, counts: &Hidden) {
    for (kind, count) in counts {
        *sum.entry(kind.clone()).or_default() += count;
    }
}

/// An entry's content and tags as they are now, and what was hidden in them.
pub(crate) type Rewritten = (RedactedText, Vec<RedactedText>, Hidden);

impl Again<'_> {
    pub(crate) fn text(&self, text: &str) -> Option<(RedactedText, Hidden)> {
        let (clean, hidden) = self.0.text_counted(text);
        (clean.as_str() != text).then_some((clean, hidden))
    }

    /// An entry's content and tags.
    pub(crate) fn entry(&self, content: &RedactedText, tags: &[RedactedText]) -> Option<Rewritten> {
        let mut hidden = Hidden::new();
        let (content, is_new) = self.part(content, &mut hidden);
        let tags: Vec<_> = tags.iter().map(|tag| self.part(tag, &mut hidden)).collect();
        let is_new = is_new || tags.iter().any(|(_, is_new)| *is_new);
        is_new.then(|| (content, tags.into_iter().map(|(tag, _)| tag).collect(), hidden))
    }

    /// A fact; what is hidden in it is counted in its text, of which the rest are
    /// parts.
    pub(crate) fn fact(&self, fact: &RedactedFact) -> Option<(RedactedFact, Hidden)> {
        let mut hidden = Hidden::new();
        let text = self.part(&fact.text, &mut hidden).0;
        let part = |text: &RedactedText| self.part(text, &mut Hidden::new()).0;
        let clean = RedactedFact {
            kind: fact.kind,
            subject: part(&fact.subject),
            attribute: part(&fact.attribute),
            value: part(&fact.value),
            text,
            quote: part(&fact.quote),
            valid_from: fact.valid_from,
        };
        (clean != *fact).then_some((clean, hidden))
    }

    /// A text, and whether it is another than it was.
    fn part(&self, text: &RedactedText, hidden: &mut Hidden) -> (RedactedText, bool) {
        match self.text(text.as_str()) {
            Some((clean, counts)) => {
                add(hidden, &counts);
                (clean, true)
            }
            None => (text.clone(), false),
        }
    }

    /// Whether a summary has something to hide.
    pub(crate) fn finds_in(&self, summary: &RedactedSummary) -> bool {
        let parts = summary.parts();
        let mut texts = parts.themes.iter().chain(&parts.key_facts).chain([&parts.text]);
        texts.any(|text| self.text(text).is_some())
    }

    /// JSON, or text where it is none.
    pub(crate) fn json(&self, text: &str) -> Option<String> {
        let clean = match JsonText::parse(text) {
            Ok(json) => {
                let clean = self.0.json(&json);
                // Its own spelling of blanks is no change.
                return (clean != json).then(|| clean.as_str().to_owned());
            }
            Err(_) => self.0.text(text),
        };
        (clean.as_str() != text).then(|| clean.into_string())
    }

    /// The payload of an event, with the ids that facts have now and the name that
    /// its memory has.
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

    /// A name without what it told, with a number if another has that name.
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
        if !is_taken(&name)? {
            return Ok(Some((name, hidden)));
        }
        // After some names a number reads like a secret, or is a letter too many.
        if !fits(&format!("{name}#1000000")) {
            UNNAMED.clone_into(&mut name);
        }
        let mut number = 2_u64;
        loop {
            let numbered = format!("{name}#{number}");
            if !is_taken(&numbered)? {
                return Ok(Some((numbered, hidden)));
            }
            number += 1;
        }
    }
}

/// What [`Store::rewrite_told`] changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// Sessions with a new name.
    pub sessions: u64,
    /// Memories with a new name, by the old.
    pub memories: Vec<String>,
    /// Entries.
    pub entries: u64,
    /// Verdicts.
    pub verdicts: u64,
    /// Versions of files.
    pub files: u64,
    /// Runs, each with its events.
    pub runs: u64,
    /// Commitments.
    pub commitments: u64,
    /// Handoffs.
    pub handoffs: u64,
    /// Records of the log.
    pub events: u64,
    /// Names of API keys.
    pub keys: u64,
    /// Kept answers.
    pub outcomes: u64,
    /// Summaries, facts, and entries and handoffs made of others that were dropped.
    pub derived: u64,
    /// What was hidden in names, entries, verdicts, files and handoffs.
    pub hidden: Hidden,
    /// Where anything but runs, commitments, the log and kept answers changed, by the
    /// names of now.
    pub touched: Vec<Scope>,
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
        let again = Again(&redactor);
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
        let again = Again(&redactor);
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
            assert_eq!(Again(&redactor).payload(&payload, &none, None), None, "{payload}");
        }
    }
}
