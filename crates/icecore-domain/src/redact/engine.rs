//! Finds credentials and puts markers in their place.
//!
//! One automaton looks for the keywords of all kinds at once. Only where one
//! occurs is the pattern of its kind tried, on a bounded piece of text, so the
//! work is linear however hostile the text. Text without keywords is not copied.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::bytes::{Regex, RegexBuilder};

use super::kind::{Edge, Kind};
use super::marker;
use super::plausible;

/// Hiding a secret can bare another (what stood before it is now a border), so
/// what is left is looked at again. Text that still yields secrets after this
/// many rounds is hidden whole, which ends the matter in linear time.
const MAX_ROUNDS: u32 = 5;

pub(super) struct Engine {
    kinds: &'static [Kind],
    patterns: Vec<OnceLock<Option<Regex>>>,
    keywords: Option<AhoCorasick>,
    /// The kinds of each keyword.
    owners: Vec<Vec<usize>>,
}

/// A secret: where it is and which kind it is.
#[derive(Debug, Clone)]
struct Secret {
    range: Range<usize>,
    kind: usize,
}

/// The text written so far, and what was hidden.
struct Output<'a> {
    text: String,
    changed: bool,
    hidden: &'a mut dyn FnMut(&'static str),
}

impl Engine {
    pub(super) fn new(kinds: &'static [Kind]) -> Self {
        let mut owners: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, kind) in kinds.iter().enumerate() {
            for keyword in kind.keywords {
                owners.entry(keyword).or_default().push(index);
            }
        }
        // Markers wake the engine too; no kind owns their openings.
        for opening in ["[byok:", "redacted:"] {
            owners.entry(opening).or_default();
        }
        let keywords = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(owners.keys());
        debug_assert!(keywords.is_ok(), "the table's keywords build");
        Self {
            kinds,
            patterns: kinds.iter().map(|_| OnceLock::new()).collect(),
            keywords: keywords.ok(),
            owners: owners.into_values().collect(),
        }
    }

    /// `text` with its secrets replaced, or `None` where nothing changes. Tells
    /// `hidden` the kind of each secret.
    pub(super) fn replaced(
        &self,
        text: &str,
        hidden: &mut dyn FnMut(&'static str),
    ) -> Option<String> {
        if !self.may_hold_secrets(text) {
            return None;
        }
        let mut out = Output { text: String::new(), changed: false, hidden };
        let mut at = 0;
        for found in marker::markers(text) {
            self.clean(&text[at..found.start], 1, &mut out);
            self.keep_marker(&text[found.start..found.end], found.name, &mut out);
            at = found.end;
        }
        self.clean(&text[at..], 1, &mut out);
        out.changed.then_some(out.text)
    }

    /// Whether any keyword occurs; most text has none.
    pub(super) fn may_hold_secrets(&self, text: &str) -> bool {
        self.keywords.as_ref().is_none_or(|keywords| keywords.is_match(text))
    }

    /// Writes a marker that was in the text, in our form. A marker around a
    /// credential would be a hole in the promise, so its name is looked at too.
    fn keep_marker(&self, marker: &str, name: Option<&str>, out: &mut Output) {
        let is_secret = |name: &&str| {
            let found = self.secrets(name);
            found.iter().any(|secret| self.is_self_evident(secret.kind))
        };
        let name = name.filter(|name| !is_secret(name)).unwrap_or(marker::UNNAMED);
        let before = out.text.len();
        marker::write(&mut out.text, name);
        out.changed |= &out.text[before..] != marker;
    }

    /// Whether a kind is known by itself, not by what stands around it.
    fn is_self_evident(&self, kind: usize) -> bool {
        self.pattern(kind).is_some_and(|pattern| pattern.captures_len() == 1)
    }

    /// Writes `text`, which holds no marker, with its secrets replaced.
    ///
    /// Every piece that stays was itself found clean, apart from its
    /// neighbours. A second redaction sees exactly these pieces.
    fn clean(&self, text: &str, round: u32, out: &mut Output) {
        if text.is_empty() {
            return;
        }
        let secrets = self.secrets(text);
        let Some(first) = secrets.first() else {
            out.text.push_str(text);
            return;
        };
        if round == MAX_ROUNDS {
            out.hide(self.kinds[first.kind].id);
            return;
        }
        let mut at = 0;
        for secret in &secrets {
            self.clean(&text[at..secret.range.start], round + 1, out);
            out.hide(self.kinds[secret.kind].id);
            at = secret.range.end;
        }
        self.clean(&text[at..], round + 1, out);
    }

    /// The secrets of `text`, in order and apart from each other.
    fn secrets(&self, text: &str) -> Vec<Secret> {
        let Some(keywords) = &self.keywords else { return Vec::new() };
        let mut found = Vec::new();
        // Where each kind may next be tried: past what it has already taken.
        let mut free_from: Vec<usize> = Vec::new();
        for hit in keywords.find_overlapping_iter(text) {
            free_from.resize(self.kinds.len(), 0);
            for &kind in &self.owners[hit.pattern().as_usize()] {
                if hit.start() >= free_from[kind] {
                    self.attempt(text, hit.start(), kind, &mut free_from[kind], &mut found);
                }
            }
        }
        merged(found)
    }

    /// Tries the pattern of `kind` at the keyword at `at`.
    fn attempt(
        &self,
        text: &str,
        at: usize,
        kind: usize,
        free_from: &mut usize,
        found: &mut Vec<Secret>,
    ) {
        let rule = &self.kinds[kind];
        let bytes = text.as_bytes();
        if rule.edge == Edge::Word
            && rule.lead == 0
            && at > 0
            && bytes[at - 1].is_ascii_alphanumeric()
        {
            return;
        }
        let start = at.saturating_sub(rule.lead).max(*free_from);
        let end = at.saturating_add(rule.reach).min(bytes.len());
        let Some(value) = self.pattern(kind).and_then(|regex| value(regex, &bytes[start..end]))
        else {
            return;
        };
        let mut range = start + value.start..start + value.end;
        if range.end == end {
            range.end += bytes[end..].iter().take_while(|byte| is_token_byte(**byte)).count();
        }
        let range = on_characters(text, range);
        let (kept, is_secret) = plausible::judge(rule, text, range);
        *free_from = kept.end.max(at + 1);
        if is_secret {
            found.push(Secret { range: kept, kind });
        }
    }

    /// The compiled pattern of `kind`; compiled when first needed, since most
    /// runs of the program meet only a few kinds.
    fn pattern(&self, kind: usize) -> Option<&Regex> {
        let compile = || {
            let rule = &self.kinds[kind];
            let anchor = if rule.lead == 0 { r"\A" } else { "" };
            let built =
                RegexBuilder::new(&format!("{anchor}(?:{})", rule.pattern)).unicode(false).build();
            debug_assert!(built.is_ok(), "the pattern of {} compiles: {built:?}", rule.id);
            built.ok()
        };
        self.patterns[kind].get_or_init(compile).as_ref()
    }
}

impl Output<'_> {
    fn hide(&mut self, id: &'static str) {
        marker::write(&mut self.text, id);
        self.changed = true;
        (self.hidden)(id);
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
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=_-.~%".contains(&byte)
}

/// Patterns work on bytes; a secret ends where a character does.
fn on_characters(text: &str, mut range: Range<usize>) -> Range<usize> {
    while !text.is_char_boundary(range.start) {
        range.start -= 1;
    }
    while !text.is_char_boundary(range.end) {
        range.end += 1;
    }
    range
}

/// Joins what overlaps, so that no end of a secret shows. The leftmost names
/// the whole, then the longest, then the first in the table.
fn merged(mut found: Vec<Secret>) -> Vec<Secret> {
    found.retain(|secret| !secret.range.is_empty());
    found.sort_by_key(|secret| (secret.range.start, usize::MAX - secret.range.end, secret.kind));
    let mut apart: Vec<Secret> = Vec::with_capacity(found.len());
    for secret in found {
        match apart.last_mut() {
            Some(last) if secret.range.start < last.range.end => {
                last.range.end = last.range.end.max(secret.range.end);
            }
            _ => apart.push(secret),
        }
    }
    apart
}
