//! An archive: a distillate with what it was made of, as canonical JSON (RFC 8785),
//! addressed by the SHA-256 of its bytes. `docs/format-archive.md` describes it.

#[cfg(test)]
mod archive_tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Distillate, Line, Section, Source, SourceKind};
use crate::time::Millis;

/// What an archive calls its format.
pub const FORMAT: &str = "icecore-archive/1";

/// Numbers beyond this are not the same in every reader of JSON.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The address of an archive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(pub [u8; 32]);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Checksum {
    /// That of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Reads 64 hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| (pair[at] as char).to_digit(16);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Self(bytes))
    }
}

/// A source as an archive names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveSource {
    pub kind: SourceKind,
    /// [`Source::hash`], or the checksum of an earlier archive.
    pub hash: [u8; 32],
}

/// An archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The budget that it was made under.
    pub budget: u64,
    /// The most that might be written of it, in tokens.
    pub output: u64,
    /// What made it, for example [`super::EXTRACTIVE`].
    pub distiller: String,
    /// What counted its tokens, for example `o200k_base`.
    pub tokenizer: String,
    /// What it was made of, in the order of [`in_order`].
    pub sources: Vec<ArchiveSource>,
    pub distillate: Distillate,
}

/// Why bytes are no archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no archive: {0}")]
pub struct ArchiveError(pub String);

impl Archive {
    /// Its bytes. Lines stand by section, each with its sources in order; a section
    /// without lines is left out.
    pub fn to_bytes(&self) -> Vec<u8> {
        let document = Document::of(self);
        serde_json_canonicalizer::to_vec(&document).expect("strings and whole numbers are JSON")
    }

    /// Reads it back; bytes that [`Archive::to_bytes`] would not give are refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|error| ArchiveError(format!("its JSON ends at byte {}", error.column())))?;
        let archive = document.read().map_err(ArchiveError)?;
        if archive.to_bytes() == bytes {
            Ok(archive)
        } else {
            Err(ArchiveError("it is not canonical JSON".to_owned()))
        }
    }

    /// The earliest and the latest time of its lines.
    pub fn between(&self) -> Option<(Millis, Millis)> {
        let times = || self.distillate.lines.iter().filter_map(|line| line.at);
        Some((times().min()?, times().max()?))
    }
}

/// An archive as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    budget: u64,
    output: u64,
    distiller: String,
    tokenizer: String,
    sources: Vec<SourceJson>,
    distillate: BTreeMap<String, Vec<LineJson>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceJson {
    kind: String,
    sha256: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineJson {
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    sources: Vec<u32>,
}

impl Document {
    fn of(archive: &Archive) -> Self {
        let mut distillate: BTreeMap<String, Vec<LineJson>> = BTreeMap::new();
        for line in &archive.distillate.lines {
            let lines = distillate.entry(line.section.as_str().to_owned()).or_default();
            lines.push(LineJson::of(line));
        }
        let source = |source: &ArchiveSource| SourceJson {
            kind: source.kind.as_str().to_owned(),
            sha256: Checksum(source.hash).to_string(),
        };
        Self {
            format: FORMAT.to_owned(),
            budget: archive.budget,
            output: archive.output,
            distiller: archive.distiller.clone(),
            tokenizer: archive.tokenizer.clone(),
            sources: archive.sources.iter().map(source).collect(),
            distillate,
        }
    }

    fn read(mut self) -> Result<Archive, String> {
        if self.format != FORMAT {
            let format = crate::json::brief(&self.format);
            return Err(format!("its format is `{format}`, and this program knows `{FORMAT}`"));
        }
        if self.budget > MAX_NUMBER || self.output > self.budget {
            return Err(format!("its budget is above {MAX_NUMBER}, or its output above that"));
        }
        let sources: Vec<ArchiveSource> =
            self.sources.iter().map(SourceJson::read).collect::<Result<_, _>>()?;
        let mut lines = Vec::new();
        for section in Section::ALL {
            for line in self.distillate.remove(section.as_str()).unwrap_or_default() {
                lines.push(line.read(section, sources.len())?);
            }
        }
        if let Some(unknown) = self.distillate.keys().next() {
            return Err(format!("it has an unknown section `{}`", crate::json::brief(unknown)));
        }
        Ok(Archive {
            budget: self.budget,
            output: self.output,
            distiller: self.distiller,
            tokenizer: self.tokenizer,
            sources,
            distillate: Distillate { lines },
        })
    }
}

impl SourceJson {
    fn read(&self) -> Result<ArchiveSource, String> {
        let kind = SourceKind::parse(&self.kind)
            .ok_or_else(|| format!("a source of kind `{}`", crate::json::brief(&self.kind)))?;
        let Checksum(hash) = Checksum::parse(&self.sha256)
            .ok_or_else(|| "a source's hash is not 64 hex digits".to_owned())?;
        Ok(ArchiveSource { kind, hash })
    }
}

impl LineJson {
    fn of(line: &Line) -> Self {
        let mut sources = line.sources.clone();
        sources.sort_unstable();
        sources.dedup();
        Self {
            text: line.text.clone(),
            at: line.at.map(Millis::to_rfc3339),
            before: line.before.clone(),
            sources,
        }
    }

    fn read(self, section: Section, source_count: usize) -> Result<Line, String> {
        let told = || format!("a line of `{}`", section.as_str());
        if self.sources.is_empty() {
            return Err(format!("{} has no source", told()));
        }
        if self.sources.iter().any(|&place| place as usize >= source_count) {
            return Err(format!("{} has a source that is not there", told()));
        }
        let at = match &self.at {
            Some(at) => Some(Millis::parse_rfc3339(at).map_err(|error| error.to_string())?),
            None => None,
        };
        Ok(Line { section, text: self.text, at, before: self.before, sources: self.sources })
    }
}

/// Puts sources into the order of an archive's list, which does not depend on the order
/// in which they came: earlier archives, then entries by hash, then what was said by
/// session and `seq`.
pub fn in_order(sources: &mut [Source]) {
    sources.sort_by_cached_key(place_of);
}

/// Where a source stands in that order: compare, and nothing else.
pub fn place_of(source: &Source) -> impl Ord + use<> {
    let rank = match source.kind {
        SourceKind::Archive => 0,
        SourceKind::Entry => 1,
        _ => 2,
    };
    let place = (rank == 2).then(|| (source.session.clone(), source.seq));
    (rank, place, source.hash())
}
