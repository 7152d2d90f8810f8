//! Lines made to be slow: what a byte costs in a short one and in a long one.

use icecore_domain::redact::Redactor;

use super::speed::read;

const SHORT_BYTES: usize = 1_000_000;
const LONG_BYTES: usize = 10_000_000;
const ROUNDS: usize = 3;

/// What is repeated.
const FORMS: &[&str] = &[
    "a",
    "=",
    "password=",
    "password",
    "password is ",
    "token=\"",
    "secret: 'a1",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\\n",
    "eyJ",
    "eyJaaaaaaaaaa.",
    "://a:",
    "://a:b1@",
    "cookie: sid",
    "[BYOK:",
    "[REDACTED:x]",
    "AKIA",
    "sk-",
    "1:aa",
    "é1-us",
    "aGVsbG8gd29ybGQ",
    "68656c6c6f",
    "%68%65%6c",
    "\u{0}",
];

/// A form of line and what its bytes cost.
pub struct Hostile {
    pub name: String,
    pub short_ns: f64,
    pub long_ns: f64,
}

pub fn measure(redactor: &Redactor) -> Vec<Hostile> {
    let mut lines: Vec<(String, String)> =
        FORMS.iter().map(|form| (form.escape_debug().to_string(), (*form).to_owned())).collect();
    lines.push(("every keyword".to_owned(), keywords()));
    lines.push(("every sample".to_owned(), samples()));
    lines.into_iter().map(|(name, piece)| cost(redactor, name, &piece)).collect()
}

fn keywords() -> String {
    let keywords = Redactor::kinds().iter().flat_map(|kind| kind.keywords);
    keywords.map(|keyword| format!("{keyword}=")).collect()
}

fn samples() -> String {
    Redactor::kinds().iter().map(|kind| kind.sample(1).replace('\n', " ")).collect()
}

fn cost(redactor: &Redactor, name: String, piece: &str) -> Hostile {
    let nanoseconds = |bytes: usize| {
        let line = piece.repeat(bytes.div_ceil(piece.len()));
        let seconds = (0..ROUNDS).map(|_| read(redactor, &[&line])).fold(f64::INFINITY, f64::min);
        seconds * 1e9 / line.len() as f64
    };
    Hostile { name, short_ns: nanoseconds(SHORT_BYTES), long_ns: nanoseconds(LONG_BYTES) }
}
