//! Secrets that are none: shaped like the real thing, made up on the spot, so
//! that no scanner finds one in our repository.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use icecore::Redactor;

use crate::failure::{Failure, Outcome};

const ALPHANUMERIC: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const DIGITS: &[u8] = b"23456789";

/// What Mira registers before she begins.
pub const REGISTERED: &str = "station-tunnel";

/// The conversation with its placeholders filled.
pub struct Filled {
    /// Turn JSONL.
    pub text: String,
    /// What the placeholders were filled with.
    pub secrets: Vec<String>,
    /// The value of [`REGISTERED`]: words and numbers that no shape gives away.
    pub registered: String,
}

/// Fills the placeholders.
pub fn with_secrets(conversation: &str) -> Outcome<Filled> {
    let registered = format!("saxifrage {} kestrel {}", random(DIGITS, 4)?, random(DIGITS, 3)?);
    let conf = format!("remote station.example.org 1194\nphrase {registered}\nverb 3\n");
    let kinds = [
        ("{{secret:github}}", sample("github-token")?),
        ("{{secret:aws}}", sample("aws-access-key-id")?),
        ("{{secret:password}}", random(ALPHANUMERIC, 14)?),
        ("{{secret:url}}", random(ALPHANUMERIC, 18)?),
        ("{{registered:plain}}", registered.clone()),
        ("{{registered:base64}}", BASE64_STANDARD.encode(conf)),
    ];
    let mut text = conversation.to_owned();
    for (placeholder, secret) in &kinds {
        text = text.replace(placeholder, secret);
    }
    Ok(Filled { text, secrets: kinds.into_iter().map(|(_, secret)| secret).collect(), registered })
}

/// A credential of a kind, as its row in the table draws it.
fn sample(id: &str) -> Outcome<String> {
    let kind = Redactor::kinds().iter().find(|kind| kind.id == id);
    let kind = kind.ok_or_else(|| Failure::Broken(format!("the table has no `{id}`")))?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(no_randomness)?;
    Ok(kind.sample(u64::from_le_bytes(seed)))
}

fn random(alphabet: &[u8], length: usize) -> Outcome<String> {
    let mut bytes = vec![0_u8; length];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    let letter = |byte: u8| char::from(alphabet[usize::from(byte) % alphabet.len()]);
    Ok(bytes.into_iter().map(letter).collect())
}

fn no_randomness(error: getrandom::Error) -> Failure {
    Failure::Broken(format!("the machine gives no random numbers: {error}"))
}
