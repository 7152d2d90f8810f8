//! Finds credentials by the table of kinds.
//!
//! One pass looks for the keywords of all kinds at once. Only where one occurs is the pattern of its kind tried, on a bounded piece of text, so the
//! work is linear however hostile the text.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

use super::keywords::Keywords;
use super::kind::{Edge, Kind};
use super::plausible;

pub(super) struct Engine {
    kinds: Vec<&'static Kind>,
    patterns: Vec<OnceLock<Regex>>,
    keywords: Keywords,
    owners: Vec<Vec<usize>>,
}

/// A credential: where it is and which kind it is.
#[derive(Debug, Clone)]
pub(super) struct Credential {
    pub range: Range<usize>,
    pub kind: usize,
}

/// A place where a kind is to be tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub kind: usize,
    pub at: usize,
}

impl Engine {
    /// Kinds that come first name what later ones take too. Panics when the
    /// table is no table: without it nothing may be stored.
    pub(super) fn new(kinds: Vec<&'static Kind>) -> Self {
        let mut owners: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
        for (index, kind) in kinds.iter().enumerate() {
            for keyword in kind.keywords {
                owners.entry(keyword).or_default().push(index);
            }
        }
        let keywords = Keywords::new(owners.keys().copied().collect());
        Self {
            patterns: kinds.iter().map(|_| OnceLock::new()).collect(),
            kinds,
            keywords,
            owners: owners.into_values().collect(),
        }
    }

    pub(super) fn kind(&self, kind: usize) -> &'static Kind {
        self.kinds[kind]
    }

    /// Whether any keyword occurs; most text has none.
    pub(super) fn has_keyword(&self, text: &str) -> bool {
        self.keywords.is_in(text.as_bytes())
    }

    /// Whether a kind is known by itself, not by what stands around it.
    pub(super) fn is_self_evident(&self, kind: usize) -> bool {
        self.pattern(kind).captures_len() == 1
    }

    /// The credentials of `text`, in no order; they may overlap.
    pub(super) fn credentials(&self, text: &str) -> Vec<Credential> {
        let mut found = Vec::new();
        let mut free = Free::default();
        self.hits(text, &mut |attempt| {
            let free_from = free.from(attempt.kind);
            if attempt.at >= *free_from && self.is_at_edge(text, attempt) {
                found.extend(self.attempt(text, attempt, free_from));
            }
        });
        found.retain(|credential| !credential.range.is_empty());
        found
    }

    /// Every place where a keyword of a kind is.
    pub(super) fn hits(&self, text: &str, tell: &mut dyn FnMut(Attempt)) {
        self.keywords.find(text.as_bytes(), &mut |at, word| {
            for &kind in &self.owners[word] {
                tell(Attempt { kind, at });
            }
        });
    }

    /// Whether what stands before a keyword lets it be one.
    fn is_at_edge(&self, text: &str, attempt: Attempt) -> bool {
        let rule = self.kinds[attempt.kind];
        let before = attempt.at.checked_sub(1).map(|at| text.as_bytes()[at]);
        rule.edge == Edge::Any
            || rule.lead > 0
            || !before.is_some_and(|byte| byte.is_ascii_alphanumeric())
    }

    /// From where on `text` may be the beginning of a keyword with blanks in it;
    /// its length where it is not.
    pub(super) fn begins_in(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let begins = |keyword: &&str| {
            let most = keyword.len().min(bytes.len());
            (1..=most).rev().find(|length| {
                keyword.as_bytes()[..*length].eq_ignore_ascii_case(&bytes[bytes.len() - length..])
            })
        };
        let spaced = self.keywords.words().iter().filter(|keyword| keyword.contains(' '));
        bytes.len() - spaced.filter_map(begins).max().unwrap_or(0)
    }

    fn attempt(&self, text: &str, attempt: Attempt, free_from: &mut usize) -> Option<Credential> {
        let Attempt { kind, at } = attempt;
        let rule = self.kinds[kind];
        let bytes = text.as_bytes();
        let start = at.saturating_sub(rule.lead).max(*free_from);
        let end = at.saturating_add(rule.reach).min(bytes.len());
        let value = value(self.pattern(kind), &bytes[start..end])?;
        let mut range = start + value.start..start + value.end;
        if range.end == end {
            range.end += bytes[end..].iter().take_while(|byte| is_token_byte(**byte)).count();
        }
        let range = on_characters(text, range);
        let (kept, is_secret) = plausible::judge(rule, text, range);
        *free_from = kept.end.max(at + 1);
        is_secret.then_some(Credential { range: kept, kind })
    }

    /// The compiled pattern of `kind`; compiled when first needed, since most
    /// runs of the program meet only a few kinds. A test compiles them all.
    fn pattern(&self, kind: usize) -> &Regex {
        self.patterns[kind].get_or_init(|| {
            RegexBuilder::new(&self.anchored(kind))
                .unicode(false)
                .build()
                .expect("the table's patterns compile")
        })
    }

    /// The pattern of `kind` as it is tried.
    pub(super) fn anchored(&self, kind: usize) -> String {
        let rule = self.kinds[kind];
        let anchor = if rule.lead == 0 { r"\A" } else { "" };
        format!("{anchor}(?:{})", rule.pattern)
    }
}

/// Where each kind may next be tried: past what it has already taken. Most texts
/// meet a few kinds; a table of all is made for those that meet more.
#[derive(Default)]
struct Free {
    few: Vec<(usize, usize)>,
    all: Vec<usize>,
}

impl Free {
    const FEW: usize = 16;

    fn from(&mut self, kind: usize) -> &mut usize {
        if self.few.len() == Self::FEW {
            for (kind, from) in self.few.drain(..) {
                self.all.resize(self.all.len().max(kind + 1), 0);
                self.all[kind] = from;
            }
        }
        if !self.all.is_empty() {
            self.all.resize(self.all.len().max(kind + 1), 0);
            return &mut self.all[kind];
        }
        let at = self.few.iter().position(|(known, _)| *known == kind);
        let at = at.unwrap_or_else(|| {
            self.few.push((kind, 0));
            self.few.len() - 1
        });
        &mut self.few[at].1
    }
}

/// The secret part of the first match in `window`.
fn value(pattern: &Regex, window: &[u8]) -> Option<Range<usize>> {
    let whole = pattern.find(window)?;
    if pattern.captures_len() == 1 {
        return Some(whole.range());
    }
    let groups = pattern.captures(window)?;
    let group = groups.iter().skip(1).flatten().next();
    group.map(|group| group.range())
}

/// Bytes that go on a credential which is longer than a kind's reach.
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=_-.~%".contains(&byte)
}

/// Patterns work on bytes; a secret ends where a character does.
pub(super) fn on_characters(text: &str, mut range: Range<usize>) -> Range<usize> {
    while !text.is_char_boundary(range.start) {
        range.start -= 1;
    }
    while !text.is_char_boundary(range.end) {
        range.end += 1;
    }
    range
}
