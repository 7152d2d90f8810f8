//! Secrets that are none: shaped like the real thing, made up on the spot, so
//! that no scanner finds one in our repository.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use icecore::privacy::Redactor;

use crate::failure::{Failure, Outcome};

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
    let registered = format!("saxifrage {} kestrel", random()? % 1_000_000);
    let conf = format!("remote station.example.org 1194\nphrase {registered}\nverb 3\n");
    let kinds = [
        ("{{secret:github}}", sample("github-token")?),
        ("{{secret:aws}}", sample("aws-access-key-id")?),
        ("{{secret:password}}", sample("password")?),
        ("{{secret:url}}", sample("url-password")?),
        ("{{registered:plain}}", registered.clone()),
        ("{{registered:base64}}", BASE64_STANDARD.encode(conf)),
    ];
    let mut text = conversation.to_owned();
    for (placeholder, secret) in &kinds {
        text = text.replace(placeholder, secret);
    }
    Ok(Filled { text, secrets: kinds.into_iter().map(|(_, secret)| secret).collect(), registered })
}

/// A credential of a kind, as its row in the table draws it, without the text
/// around it.
fn sample(id: &str) -> Outcome<String> {
    let broken = || Failure::Broken(format!("the table has no usable `{id}`"));
    let kind = Redactor::kinds().iter().find(|kind| kind.id == id).ok_or_else(broken)?;
    let sample = kind.sample(random()?);
    let hidden = Redactor::standard().text(&sample).into_string();
    let (before, after) = hidden.split_once(&format!("[REDACTED:{id}]")).ok_or_else(broken)?;
    let secret = sample.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    secret.map(str::to_owned).ok_or_else(broken)
}

fn random() -> Outcome<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::Broken(format!("the machine gives no random numbers: {error}"))
    })?;
    Ok(u64::from_le_bytes(bytes))
}
