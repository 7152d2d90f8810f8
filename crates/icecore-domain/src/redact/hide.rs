//! Puts markers in the place of secrets.
//!
//! Secrets come from three places: those that the tenant registered, the table
//! of credentials, and either of them within what is encoded. What overlaps is
//! hidden as one.

use std::ops::Range;

use super::decode;
use super::engine::{Engine, on_characters};
use super::marker;
use super::marker::TagKey;
use super::registered::Registered;

/// Hiding a secret can bare another (what stood before it is now a border), so
/// what is left is looked at again. Text that still yields secrets after this
/// many rounds is hidden whole, which ends the matter in linear time.
const MAX_ROUNDS: u32 = 5;

/// Everything that decides what is hidden in a text.
#[derive(Clone, Copy)]
pub(super) struct Hider<'a> {
    pub engine: &'a Engine,
    pub registered: Option<&'a Registered>,
    /// The key of the markers' tags, where markers have tags.
    pub tag_key: Option<&'a TagKey>,
}

/// A secret: where it is and what it is called.
#[derive(Debug, Clone)]
struct Secret {
    range: Range<usize>,
    name: Name,
}

/// What names a secret; registered ones come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Registered(usize),
    Kind(usize),
}

/// The text written so far.
#[derive(Default)]
struct Output {
    text: String,
    changed: bool,
}

impl Hider<'_> {
    /// `text` with its secrets replaced, or `None` where nothing changes.
    pub(super) fn replaced(&self, text: &str) -> Option<String> {
        let mut out = Output::default();
        let mut at = 0;
        let markers = marker::markers(text);
        if markers.is_empty() {
            // Most text holds nothing at all, and is not copied.
            let secrets = self.secrets(text);
            if secrets.is_empty() {
                return None;
            }
            self.hide_all(text, &secrets, 1, &mut out);
            return Some(out.text);
        }
        for found in markers {
            self.clean(&text[at..found.start], 1, &mut out);
            self.keep_marker(&text[found.start..found.end], found.name, &mut out);
            at = found.end;
        }
        self.clean(&text[at..], 1, &mut out);
        out.changed.then_some(out.text)
    }

    /// Writes a marker that was in the text, in our form. A marker around a
    /// credential would be a hole in the promise, so its name is looked at too.
    fn keep_marker(&self, marker: &str, name: Option<&str>, out: &mut Output) {
        let is_secret = |name: &&str| {
            self.secrets(name).iter().any(|secret| match secret.name {
                Name::Registered(_) => true,
                Name::Kind(kind) => self.engine.is_self_evident(kind),
            })
        };
        match name.filter(|name| !is_secret(name)) {
            Some(name) => {
                let before = out.text.len();
                marker::write(&mut out.text, name);
                out.changed |= &out.text[before..] != marker;
            }
            // Ours says no more than this already.
            None if marker == marker::of(marker::UNNAMED) => out.text.push_str(marker),
            None => self.hide(marker::UNNAMED, marker, out),
        }
    }

    /// Writes `text`, which holds no marker, with its secrets replaced.
    fn clean(&self, text: &str, round: u32, out: &mut Output) {
        if !text.is_empty() {
            self.hide_all(text, &self.secrets(text), round, out)
        }
    }

    /// Writes `text` with these secrets of it replaced.
    ///
    /// Every piece that stays was itself found clean, apart from its
    /// neighbours. A second redaction sees exactly these pieces.
    fn hide_all(&self, text: &str, secrets: &[Secret], round: u32, out: &mut Output) {
        let Some(first) = secrets.first() else {
            out.text.push_str(text);
            return;
        };
        if round == MAX_ROUNDS {
            self.hide(self.name(first.name), text, out);
            return;
        }
        let mut at = 0;
        for secret in secrets {
            self.clean(&text[at..secret.range.start], round + 1, out);
            self.hide(self.name(secret.name), &text[secret.range.clone()], out);
            at = secret.range.end;
        }
        self.clean(&text[at..], round + 1, out);
    }

    /// Writes the marker for a secret.
    fn hide(&self, name: &str, secret: &str, out: &mut Output) {
        match self.tag_key {
            Some(key) => marker::write_tagged(&mut out.text, name, key, secret),
            None => marker::write(&mut out.text, name),
        }
        out.changed = true;
    }

    fn name(&self, name: Name) -> &str {
        match (name, self.registered) {
            (Name::Registered(number), Some(registered)) => registered.name(number).as_str(),
            (Name::Registered(_), None) => marker::UNNAMED,
            (Name::Kind(kind), _) => self.engine.kind(kind).id,
        }
    }

    /// The secrets of `text`, in order and apart from each other.
    fn secrets(&self, text: &str) -> Vec<Secret> {
        let mut found = self.plain(text);
        decode::unescaped(text, &mut |word| {
            let within = self.plain(&word.text).into_iter();
            found.extend(within.map(|secret| Secret { range: word.place(secret.range), ..secret }));
        });
        let looks = |decoded: &str| self.plain(decoded).into_iter().map(|secret| secret.name).min();
        decode::blobs(text, &looks, &mut |range, name| found.push(Secret { range, name }));
        merged(found)
    }

    /// The secrets that stand in `text` as it is, in no order.
    fn plain(&self, text: &str) -> Vec<Secret> {
        let credentials = self.engine.credentials(text).into_iter();
        let mut found: Vec<Secret> = credentials
            .map(|found| Secret { range: found.range, name: Name::Kind(found.kind) })
            .collect();
        if let Some(registered) = self.registered {
            registered.find(text.as_bytes(), &mut |range, number| {
                let range = on_characters(text, range);
                found.push(Secret { range, name: Name::Registered(number) });
            });
        }
        found
    }
}

/// Joins what overlaps, so that no end of a secret shows. A registered secret
/// names the whole, then the leftmost, the longest, the first in the table.
fn merged(mut found: Vec<Secret>) -> Vec<Secret> {
    found.sort_by_key(|secret| (secret.range.start, usize::MAX - secret.range.end, secret.name));
    let mut apart: Vec<Secret> = Vec::with_capacity(found.len());
    for secret in found {
        match apart.last_mut() {
            Some(last) if secret.range.start < last.range.end => {
                last.range.end = last.range.end.max(secret.range.end);
                if matches!(last.name, Name::Kind(_)) && matches!(secret.name, Name::Registered(_))
                {
                    last.name = secret.name;
                }
            }
            _ => apart.push(secret),
        }
    }
    apart
}
