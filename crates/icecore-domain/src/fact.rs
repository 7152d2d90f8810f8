//! Facts worth keeping: what somebody is, prefers, decided, demands, plans.
//!
//! Turns are cut into clauses (`clause`), and a clause that has one of a few
//! forms (`forms`) is a fact ([`extract()`]). Few and sure is the aim: what is
//! asked, supposed, quoted or said by a machine is none, nor is what recall
//! itself put into a prompt (`echo`). What was found in many turns becomes what
//! is known by [`resolve()`].

mod clause;
mod echo;
mod extract;
mod forms;
mod read_back;
mod render;
mod resolve;

pub use echo::{CONTEXT_CLOSE, CONTEXT_OPEN, KnownTexts};
pub use extract::{MAX_FACTS_A_TURN, MAX_READ_CHARS, extract};
pub use resolve::{FactStatus, FoundFact, Judged, KnownFact, resolve};

pub(crate) use read_back::read_back;

use sha2::{Digest, Sha256};

use crate::redact::{Hidden, NotClean, RedactedText, Redactor, hidden_between};
use crate::text::normalise;
use crate::time::Millis;

/// What a fact is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FactKind {
    /// Who or what somebody is: name, work, family, home.
    Identity,
    /// What somebody likes or would rather have.
    Preference,
    /// What was settled.
    Decision,
    /// What must hold: a limit, a deadline, an allergy.
    Constraint,
    /// How to answer from now on.
    Instruction,
    /// What somebody intends.
    Plan,
    /// What happened, with its date.
    Event,
}

crate::words!(FactKind {
    Identity = "identity", Preference = "preference", Decision = "decision",
    Constraint = "constraint", Instruction = "instruction", Plan = "plan", Event = "event",
});

/// What says the same: hash of normalised subject, attribute and value. Its hex
/// is the fact's id, so that a verdict outlives a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FactKey(pub [u8; 8]);

impl FactKey {
    /// The key of a subject, an attribute and a value.
    pub fn new(subject: &str, attribute: &str, value: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [subject, attribute, value] {
            let part = normalise(part);
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let mut key = [0; 8];
        key.copy_from_slice(&digest[..8]);
        Self(key)
    }

    /// The key that an id names.
    pub fn parse(id: &str) -> Option<Self> {
        let hex = id.strip_prefix("fact-").filter(|hex| hex.len() == 16 && hex.is_ascii())?;
        let mut key = [0; 8];
        for (byte, digits) in key.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }
}

impl std::fmt::Display for FactKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fact-")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A fact as found, not yet looked through for secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub kind: FactKind,
    /// Whom or what it is about; `user` where nobody is named.
    pub subject: String,
    /// Which property of the subject; empty where values stand side by side.
    pub attribute: String,
    pub value: String,
    /// The fact as a sentence that can stand alone.
    pub text: String,
    /// The words of the turn that support it, letter by letter.
    pub quote: String,
    /// Since when it holds.
    pub valid_from: Millis,
}

/// A fact whose texts were all redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedFact {
    pub kind: FactKind,
    /// Whom or what it is about; `user` where nobody is named.
    pub subject: RedactedText,
    /// Which property of the subject; a newer value of it supersedes an older.
    /// Empty where values stand side by side.
    pub attribute: RedactedText,
    pub value: RedactedText,
    /// The fact as a sentence that can stand alone.
    pub text: RedactedText,
    /// The words of the turn that support it.
    pub quote: RedactedText,
    /// Since when it holds: the time of the turn, or the date that it names.
    pub valid_from: Millis,
}

impl Redactor {
    /// Hides what is secret in every text of a fact, and looks again.
    pub fn fact(&self, fact: Fact) -> Result<RedactedFact, NotClean> {
        let text = |text: String| self.derived_text(&text).map(|(text, _)| text);
        Ok(RedactedFact {
            kind: fact.kind,
            subject: text(fact.subject)?,
            attribute: text(fact.attribute)?,
            value: text(fact.value)?,
            text: text(fact.text)?,
            quote: text(fact.quote)?,
            valid_from: fact.valid_from,
        })
    }

    /// As [`fact`](Self::fact), with how many secrets were hidden in its text.
    pub fn fact_counted(&self, fact: Fact) -> Result<(RedactedFact, Hidden), NotClean> {
        let text = fact.text.clone();
        let redacted = self.fact(fact)?;
        let hidden = hidden_between(&text, redacted.text.as_str());
        Ok((redacted, hidden))
    }
}

impl RedactedFact {
    /// As it was before it was looked through, to be looked through again.
    pub fn into_fact(self) -> Fact {
        Fact {
            kind: self.kind,
            subject: self.subject.into_string(),
            attribute: self.attribute.into_string(),
            value: self.value.into_string(),
            text: self.text.into_string(),
            quote: self.quote.into_string(),
            valid_from: self.valid_from,
        }
    }

    /// What says the same.
    pub fn key(&self) -> FactKey {
        FactKey::new(self.subject.as_str(), self.attribute.as_str(), self.value.as_str())
    }
}

/// What a person thinks of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A person stated it.
    Added,
    /// A person agrees.
    Confirmed,
    /// A person disagrees: it does not come back.
    Rejected,
}

crate::words!(Verdict { Added = "added", Confirmed = "confirmed", Rejected = "rejected" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ignore_case_and_punctuation_and_come_back_from_their_ids() {
        let key = FactKey::new("Ana", "home", "Lisbon!");
        assert_eq!(key, FactKey::new("ana", "home", "lisbon"));
        assert_ne!(key, FactKey::new("ana home", "", "lisbon"));
        assert_eq!(FactKey::parse(&key.to_string()), Some(key));
        for wrong in ["fact-", "fact-12", "turn-1.2", "fact-zzzzzzzzzzzzzzzz", "fact-ééééééé1"]
        {
            assert_eq!(FactKey::parse(wrong), None, "{wrong}");
        }
    }
}
