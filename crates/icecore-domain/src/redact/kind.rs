//! What one row of the table of credentials says.

use super::samples;

/// A kind of credential: how it is recognised, and how to tell that it is.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name in the marker `[REDACTED:<id>]`.
    pub id: &'static str,
    /// Words of which one must occur, in any case. The pattern is tried where
    /// one does and nowhere else, so text without them costs one pass.
    pub keywords: &'static [&'static str],
    /// A linear-time pattern over bytes that begins at the keyword (or up to
    /// [`lead`](Self::lead) bytes before it). The secret is the first group
    /// that took part, or all of the match where there are no groups, so that
    /// context such as `password=` stays.
    pub pattern: &'static str,
    /// How many bytes before the keyword a match may begin.
    pub lead: usize,
    /// How many bytes from the keyword on the pattern is shown.
    pub reach: usize,
    /// What may stand before the keyword.
    pub edge: Edge,
    /// What the secret must show besides its shape.
    pub proof: Proof,
    /// Words that show a harmless value, in any case.
    pub allow: &'static [&'static str],
    /// A template of text with a secret that is hidden; see [`Kind::sample`].
    pub hides: &'static str,
    /// A template of similar text that is not hidden.
    pub keeps: &'static str,
}

/// What may stand before a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Anything: the keyword may end a longer name, as in `dbPassword`.
    Any,
    /// No ASCII letter or digit: the keyword begins the credential itself.
    Word,
}

/// What a value must show besides its shape.
#[derive(Debug, Clone, Copy)]
pub enum Proof {
    /// The shape says it all; only fillers such as `xxxx` are let go.
    Shape,
    /// It must look drawn at random: letters and digits, and at least this
    /// many bits a character.
    Random(f64),
    /// Something a person would choose: short, but no plain word, no code and
    /// no sentence about passwords.
    Password,
    /// Nothing but a secret is written like this: capitals, small letters and
    /// digits, or a sign among them, in no order that names have. Where little
    /// else says so.
    Strong,
    /// It must stand alone, as no part of a longer number, and pass this check.
    Checked(fn(&str) -> bool),
}

impl Kind {
    /// What most rows share; a row names what differs.
    pub(super) const TOKEN: Self = Self {
        id: "",
        keywords: &[],
        pattern: "",
        lead: 0,
        reach: 1024,
        edge: Edge::Word,
        proof: Proof::Shape,
        allow: &[],
        hides: "",
        keeps: "",
    };

    /// Rows in which the name of the service or setting gives the value away.
    pub(super) const NAMED: Self =
        Self { edge: Edge::Any, proof: Proof::Random(2.5), ..Self::TOKEN };

    /// Text with a credential of this kind, another for each `seed`. It is put
    /// together here, so that no scanner trips over our repository.
    pub fn sample(&self, seed: u64) -> String {
        match self.proof {
            Proof::Checked(check) => samples::expand_until(self.hides, seed, check),
            _ => samples::expand(self.hides, seed),
        }
    }

    /// As [`sample`](Self::sample), and which bytes of it nobody may see: what was
    /// drawn at random, with no more than a sign or two between its parts.
    #[cfg(any(test, feature = "testing"))]
    pub fn sample_secret(&self, seed: u64) -> (String, std::ops::Range<usize>) {
        let (text, drawn) = samples::expand_marked(self.hides, seed);
        let secret = samples::longest_part(&text, &drawn);
        (text, secret)
    }

    /// Text that looks like this kind and is no credential.
    pub fn near_miss(&self, seed: u64) -> String {
        match self.proof {
            Proof::Checked(check) => samples::expand_until(self.keeps, seed, |value| !check(value)),
            _ => samples::expand(self.keeps, seed),
        }
    }
}
