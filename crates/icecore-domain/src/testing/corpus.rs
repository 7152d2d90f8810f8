//! A labelled corpus, made from a seed: credentials of every kind where they are
//! met, and text that looks like them and is no secret.
//!
//! Nothing of it is stored, so no scanner trips over our repository and the
//! corpus grows with the table. What was drawn at random in a sample is its
//! secret; the words around it are not.

mod draw;
mod handling;
mod machine;
mod spellings;

#[cfg(test)]
mod corpus_tests;

use std::ops::Range;

use memchr::memmem;

use self::draw::Draw;
pub use self::spellings::SETTINGS;
use crate::redact::{Kind, Redactor};

/// So many characters of a secret in a row are a leak.
const LEAK_CHARS: usize = 6;

/// A text, and what in it must not survive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The id of the credential's kind, or the family of the negative.
    pub kind: &'static str,
    pub text: String,
    /// The bytes that must not survive. None: nothing may be hidden.
    pub secret: Option<Range<usize>>,
    /// What the text is: prose, code, JSON and so on; see [`SETTINGS`].
    pub setting: &'static str,
    /// Where in its line the credential is.
    pub place: Place,
}

/// Where in a line a credential is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It begins the line.
    Start,
    /// Something is before it and after it.
    Middle,
    /// It ends the line.
    End,
    /// A character that is not ASCII touches it.
    Unicode,
}

impl Place {
    /// Every place.
    pub const ALL: [Self; 4] = [Self::Start, Self::Middle, Self::End, Self::Unicode];

    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
            Self::Unicode => "unicode",
        }
    }
}

impl Case {
    /// Whether `redacted`, made of [`text`](Self::text), is right: a secret left
    /// a marker and nothing else, not even six of its characters in a row; a
    /// negative is unchanged.
    pub fn is_right(&self, redacted: &str) -> bool {
        match &self.secret {
            None => redacted == self.text,
            Some(secret) => {
                redacted.contains("[REDACTED:") && !leaks(&self.text[secret.clone()], redacted)
            }
        }
    }

    /// The text with its secret masked, fit to be printed.
    pub fn masked(&self) -> String {
        let Some(secret) = &self.secret else { return self.text.clone() };
        let hidden: String = self.text[secret.clone()]
            .chars()
            .map(|c| if c.is_alphanumeric() { '•' } else { c })
            .collect();
        format!("{}{hidden}{}", &self.text[..secret.start], &self.text[secret.end..])
    }
}

/// Whether some characters of `secret` in a row are in `text`. Blanks between its
/// lines do not count.
fn leaks(secret: &str, text: &str) -> bool {
    let window = LEAK_CHARS.min(secret.len());
    let is_shown = |piece: &[u8]| {
        piece.iter().all(u8::is_ascii_graphic) && memmem::find(text.as_bytes(), piece).is_some()
    };
    secret.as_bytes().windows(window).any(is_shown)
}

/// Credentials: `per_kind` of every kind the redactor knows, each of them in every
/// setting and at every place.
pub fn positives(seed: u64, per_kind: usize) -> impl Iterator<Item = Case> {
    Redactor::kinds().iter().flat_map(move |kind| {
        (0..per_kind).flat_map(move |number| positives_of(kind, seed, number))
    })
}

fn positives_of(kind: &'static Kind, seed: u64, number: usize) -> impl Iterator<Item = Case> {
    let spots = SETTINGS.iter().flat_map(|setting| Place::ALL.map(|place| (*setting, place)));
    spots.enumerate().map(move |(spot, (setting, place))| {
        let mut draw = Draw::named(seed, kind.id, number * 1_000 + spot);
        let (sample, secret) = kind.sample_secret(draw.next());
        // Neighbours take turns from setting to setting and from kind to kind.
        let turn = number + spot / Place::ALL.len() + kind.id.len();
        let (text, secret) = spellings::spelled((&sample, secret), setting, place, turn, &mut draw);
        Case { kind: kind.id, text, secret: Some(secret), setting, place }
    })
}

/// A family of negatives: its name, what its texts are, and how one is made.
type Family = (&'static str, &'static str, fn(&mut Draw) -> String);

/// Text that is no secret, however it looks: `count` texts, every family in turn.
pub fn negatives(seed: u64, count: usize) -> impl Iterator<Item = Case> {
    let families = || machine::FAMILIES.iter().chain(handling::FAMILIES);
    let many = families().count();
    families().cycle().take(count).enumerate().map(move |(at, (family, setting, make))| {
        let mut draw = Draw::named(seed, family, at / many);
        let text = make(&mut draw);
        Case { kind: family, text, secret: None, setting, place: Place::Middle }
    })
}

/// The families of [`negatives`].
pub fn families() -> impl Iterator<Item = &'static str> {
    machine::FAMILIES.iter().chain(handling::FAMILIES).map(|(family, ..)| *family)
}
