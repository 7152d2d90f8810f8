//! Markers: ours, and the forms that other tools leave.

use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use hmac::{Hmac, KeyInit, Mac};
use memchr::memmem;
use regex::bytes::{Captures, Regex};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The name in a marker whose secret has no usable name.
pub(super) const UNNAMED: &str = "secret";

const MAX_NAME_BYTES: usize = 64;

/// What the pattern allows for the names of others.
const MAX_FOREIGN_BYTES: usize = 256;

/// Bytes of a tag, written in hex: enough to tell a few secrets apart, too few
/// to tell what they are.
const TAG_BYTES: usize = 3;

// No name may hold a bracket of either form. So two markers never overlap, and
// whether a piece of text is a marker does not depend on what is around it:
// that is half of why redacting twice equals redacting once.
static MARKER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex::bytes::RegexBuilder::new(
        r"\[REDACTED:([\w.:-]{1,64})\]|\[BYOK:([^\[\]<>\r\n]{0,256})\]|<REDACTED:([^\[\]<>\r\n]{0,256})>",
    )
    .unicode(false)
    .build()
    .ok()
});

/// What every marker begins with; looked for first, since most text has none.
static OPENINGS: LazyLock<[memmem::Finder<'static>; 2]> =
    LazyLock::new(|| [memmem::Finder::new("REDACTED:"), memmem::Finder::new("[BYOK:")]);

/// A marker found in text.
pub(super) struct Marker<'a> {
    pub start: usize,
    pub end: usize,
    /// The name, where it is one we keep.
    pub name: Option<&'a str>,
}

/// The markers of `text`, in order.
pub(super) fn markers(text: &str) -> Vec<Marker<'_>> {
    let bytes = text.as_bytes();
    let is_there = OPENINGS.iter().any(|opening| opening.find(bytes).is_some());
    match MARKER.as_ref() {
        Some(pattern) if is_there => {
            pattern.captures_iter(bytes).filter_map(|found| marker(&found)).collect()
        }
        _ => Vec::new(),
    }
}

fn marker<'a>(found: &Captures<'a>) -> Option<Marker<'a>> {
    let whole = found.get(0)?;
    let name = (1..=3).find_map(|group| found.get(group))?.as_bytes();
    let name = str::from_utf8(name).ok().filter(|name| is_name(name));
    Some(Marker { start: whole.start(), end: whole.end(), name })
}

/// Where markers begin in `text` and how far they may reach; without an end for
/// one that is not closed yet.
pub(super) fn open(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let closes = |byte: &u8| b"[]<>\r\n".contains(byte);
    let span = |opening: &str, start: usize| {
        let rest = &bytes[start + opening.len()..];
        match rest.iter().take(MAX_FOREIGN_BYTES + 1).position(closes) {
            Some(length) => start..start + opening.len() + length + 1,
            None if rest.len() > MAX_FOREIGN_BYTES => start..start + opening.len(),
            None => start..usize::MAX,
        }
    };
    let of = |opening: &'static str| {
        memmem::find_iter(bytes, opening).map(move |start| span(opening, start))
    };
    ["[REDACTED:", "[BYOK:", "<REDACTED:"].into_iter().flat_map(of).collect()
}

/// Whether `name` can stand in a marker.
pub(super) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

/// Writes the marker of `name`.
pub(super) fn write(out: &mut String, name: &str) {
    out.push_str("[REDACTED:");
    out.push_str(name);
    out.push(']');
}

/// Writes the marker of `name` with a tag that depends on `secret`.
pub(super) fn write_tagged(out: &mut String, name: &str, key: &TagKey, secret: &str) {
    write(out, &format!("{name}:{}", tag(key, secret)));
}

/// A few digits that are the same for the same secret of the same tenant.
fn tag(key: &TagKey, secret: &str) -> String {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key.bytes())
        .expect("HMAC takes keys of any length");
    mac.update(secret.as_bytes());
    let bytes = mac.finalize().into_bytes();
    bytes[..TAG_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The marker of `name`.
pub(super) fn of(name: &str) -> String {
    let mut out = String::new();
    write(&mut out, name);
    out
}
/// A tenant's key for the short tags that tell two secrets of a kind apart.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct TagKey([u8; 32]);

impl TagKey {
    /// A key; the store derives it from the tenant's.
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Default for TagKey {
    /// For text that belongs to no tenant. Anybody can make its tags.
    fn default() -> Self {
        Self([0; 32])
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(…)")
    }
}
