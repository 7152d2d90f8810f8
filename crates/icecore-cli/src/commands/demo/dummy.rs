//! Secrets that are none: shaped like the real thing, made up on the spot, so
//! that no scanner finds one in our repository.

use crate::failure::{Failure, Outcome};

const UPPER_AND_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const ALPHANUMERIC: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// The conversation with its placeholders filled, and what they were filled with.
pub fn with_secrets(conversation: &str) -> Outcome<(String, Vec<String>)> {
    let kinds = [
        ("{{secret:github}}", format!("ghp_{}", random(ALPHANUMERIC, 36)?)),
        ("{{secret:aws}}", format!("AKIA{}", random(UPPER_AND_DIGITS, 16)?)),
        ("{{secret:password}}", random(ALPHANUMERIC, 14)?),
        ("{{secret:url}}", random(ALPHANUMERIC, 18)?),
    ];
    let mut text = conversation.to_owned();
    for (placeholder, secret) in &kinds {
        text = text.replace(placeholder, secret);
    }
    Ok((text, kinds.into_iter().map(|(_, secret)| secret).collect()))
}

fn random(alphabet: &[u8], length: usize) -> Outcome<String> {
    let mut bytes = vec![0_u8; length];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::Broken(format!("the machine gives no random numbers: {error}"))
    })?;
    let letter = |byte: u8| char::from(alphabet[usize::from(byte) % alphabet.len()]);
    Ok(bytes.into_iter().map(letter).collect())
}
