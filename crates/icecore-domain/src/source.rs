//! What summaries and dreams are made from: texts with their speakers and times.

use sha2::{Digest, Sha256};

use crate::fact::FactKind;
use crate::text::{Grounds, fence};
use crate::time::Millis;

/// What a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// What an earlier dream came to.
    Archive,
    /// A long-term entry.
    Entry,
    /// A turn of an open tail.
    Turn,
    /// A closed chunk of some ten turns.
    Micro,
    /// One of some twenty-five.
    Mini,
    /// One of some hundred.
    Macro,
}

crate::words!(SourceKind {
    Archive = "archive", Entry = "entry", Turn = "turn", Micro = "micro", Mini = "mini",
    Macro = "macro",
});

/// Something as it is given to the distiller. Its secrets are hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub kind: SourceKind,
    /// The name of its session; empty for what is of none.
    pub session: String,
    /// The first `seq` that it covers; 0 for what is of no session.
    pub seq: u64,
    /// What was said in it, in order.
    pub parts: Vec<Part>,
    /// The facts drawn from it.
    pub facts: Vec<SourceFact>,
}

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// `user`, `assistant`, …; empty for what nobody said.
    pub role: String,
    pub name: Option<String>,
    pub text: String,
    /// When, by the message's own time; none where only the host's clock knows.
    pub at: Option<Millis>,
}

/// A fact that was drawn from a source, or that a person stated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFact {
    pub kind: FactKind,
    /// About what, as in [`crate::fact::Fact`].
    pub subject: String,
    pub attribute: String,
    pub value: String,
    pub text: String,
    /// By the message's own time; none where only the host's clock knows.
    pub at: Option<Millis>,
    /// Whether a person confirmed it: then it stands verbatim.
    pub confirmed: bool,
}

impl Source {
    /// The text as it is given to the distiller, by which it is counted and hashed:
    /// a line for each part, after the name or role of who said it, then one for
    /// each fact.
    pub fn text(&self) -> String {
        let parts = self.parts.iter().map(|part| {
            let who = part.name.as_deref().unwrap_or(&part.role);
            if who.is_empty() { part.text.clone() } else { format!("{who}: {}", part.text) }
        });
        let facts = self.facts.iter().map(|fact| fact.text.clone());
        parts.chain(facts).collect::<Vec<_>>().join("\n")
    }

    /// What names it in an archive: the SHA-256 of its kind, its text and the own times
    /// of its parts.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(self.kind.as_str());
        hasher.update([0]);
        hasher.update(self.text());
        for part in &self.parts {
            hasher.update([0]);
            if let Some(at) = part.at {
                hasher.update(at.0.to_be_bytes());
            }
        }
        hasher.finalize().into()
    }

    /// What it says, for checking what others say of it.
    pub(crate) fn grounds(&self) -> Grounds {
        let parts = self.parts.iter().map(|part| (part.text.as_str(), part.at));
        Grounds::of_parts(&self.text(), parts)
    }
}

/// A mark that no source contains, so that none can end its own quotation.
pub(crate) fn fence_around(sources: &[Source]) -> String {
    let texts: Vec<String> = sources.iter().map(Source::text).collect();
    fence("source", "data", |mark| {
        let marks = [format!("<{mark}"), format!("</{mark}")];
        texts.iter().any(|text| marks.iter().any(|mark| text.contains(mark)))
    })
}
