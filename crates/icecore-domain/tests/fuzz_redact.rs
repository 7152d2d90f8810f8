//! A fuzz target for the redactor, on the stable toolchain.
//!
//! Inputs grow from a seed: credentials, near misses, markers, encodings and noise,
//! joined and then bent. Each run makes the same inputs. `ICECORE_FUZZ_SECONDS=60`
//! goes on for so long instead of a fixed number of inputs, and `ICECORE_FUZZ_SEED`
//! begins elsewhere: the seed of a finding is in its message.

#![cfg(test)]

use std::time::{Duration, Instant};

use base64::Engine as _;
use icecore_domain::json::JsonText;
use icecore_domain::redact::{RedactedStream, Redactor, Secret, SecretName, TagKey};

/// Inputs of a run without a time.
const INPUTS: u64 = 300;

/// Seeds that found something once: with 2725 a credential came to its end in the last
/// word, and what stood before it, shown already, would have been hidden beside it.
const FOUND: [u64; 1] = [2725];

/// What the tenant of the fuzz target registered. The second overlaps the first,
/// the third has blanks and what JSON and URLs escape.
const REGISTERED: [&str; 3] = ["q8Zk2Lm9Xw4R", "9Xw4Rq8Zk2Lm", "open \"sesame\" /7\\é"];

#[test]
fn the_redactor_holds_under_bent_input() {
    let seconds = variable("ICECORE_FUZZ_SECONDS").map(Duration::from_secs);
    let first = variable("ICECORE_FUZZ_SEED").unwrap_or(0);
    let redactors = [redactor(), redactor().with_tags(true), Redactor::standard()];
    let begun = Instant::now();
    let goes_on = |done: u64| match seconds {
        Some(seconds) => begun.elapsed() < seconds,
        None => done < INPUTS,
    };
    let mut done = 0;
    for seed in FOUND.into_iter().chain(first..) {
        if !goes_on(done) {
            break;
        }
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let text = input(&mut dice);
        for redactor in &redactors {
            check(redactor, &text, &mut dice, seed);
        }
        done += 1;
    }
    assert!(done > 0);
}

/// Everything that must hold for any text.
fn check(redactor: &Redactor, text: &str, dice: &mut Dice, seed: u64) {
    let (once, hidden) = redactor.text_counted(text);
    let say = |what: &str| format!("seed {seed}: {what}: {text:?} became {once:?}");
    assert_eq!(redactor.text(once.as_str()), once, "{}", say("twice equals once"));
    assert!(redactor.text_counted(once.as_str()).1.is_empty(), "{}", say("counted twice"));
    let markers = once.as_str().matches("[REDACTED:").count() as u64;
    assert!(hidden.values().sum::<u64>() <= markers, "{}", say("counts"));
    assert!(hidden.is_empty() || text != once.as_str(), "{}", say("counts what is the same"));
    if redactor.text(REGISTERED[0]).as_str() != REGISTERED[0] {
        for form in forms() {
            assert!(!once.as_str().contains(&form), "{}", say("a registered secret shows"));
        }
    }
    assert_eq!(streamed(redactor, text, dice), once.as_str(), "{}", say("in parts"));
    let json = serde_json::json!({ text: [text, { "password": text, "n": 1 }] }).to_string();
    let json = JsonText::parse(&json).unwrap();
    let clean = redactor.json(&json);
    assert!(JsonText::parse(clean.as_str()).is_ok(), "{}", say("as JSON"));
    assert_eq!(redactor.json(&clean), clean, "{}", say("JSON twice"));
}

fn streamed(redactor: &Redactor, text: &str, dice: &mut Dice) -> String {
    let mut stream = RedactedStream::new(redactor.clone());
    let (mut shown, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let cut = rest.ceil_char_boundary(1 + dice.below(24));
        shown += stream.push(&rest[..cut]).as_str();
        rest = &rest[cut..];
    }
    shown + stream.finish().as_str()
}

/// A text: some pieces, joined, with a few of its characters bent.
fn input(dice: &mut Dice) -> String {
    let mut text: String = (0..1 + dice.below(9)).map(|_| piece(dice)).collect();
    for _ in 0..dice.below(4) {
        text = bent(&text, dice);
    }
    text
}

fn piece(dice: &mut Dice) -> String {
    let kinds = Redactor::kinds();
    let kind = &kinds[dice.below(kinds.len())];
    let seed = dice.next();
    match dice.below(14) {
        0..4 => kind.sample(seed),
        4 => kind.near_miss(seed),
        5 => encoded(&kind.sample(seed), dice),
        6 => REGISTERED[dice.below(3)].to_owned(),
        7 => {
            let forms = forms();
            forms[dice.below(forms.len())].clone()
        }
        8 => encoded(REGISTERED[dice.below(3)], dice),
        9 => kind.keywords[dice.below(kind.keywords.len())].to_owned(),
        10 => pick(
            dice,
            &["[REDACTED:x]", "[REDACTED:", "[BYOK:a b]", "<REDACTED:é>", "]", ">", "[BYOK:"],
        ),
        11 => pick(
            dice,
            &[
                " ", "\n", "\r\n", "\t", "\\n", "\"", "'", "=", ": ", ", ", "@", "://u:", "%3D",
                "\u{0}", "é", "日", "\u{2019}",
            ],
        ),
        12 => pick(
            dice,
            &[
                "password", "is ", "token=", "the key", "secret: ", "-----BEGIN PRIVATE KEY-----",
                "Authorization: Basic ",
            ],
        ),
        _ => (0..dice.below(40)).map(|_| char::from(32 + dice.below(95) as u8)).collect(),
    }
}

fn pick(dice: &mut Dice, from: &[&str]) -> String {
    from[dice.below(from.len())].to_owned()
}

/// `text` with something cut, doubled, swapped or put in.
fn bent(text: &str, dice: &mut Dice) -> String {
    let at = |dice: &mut Dice| text.floor_char_boundary(dice.below(text.len() + 1));
    let (a, b) = (at(dice), at(dice));
    let (from, to) = (a.min(b), a.max(b));
    match dice.below(4) {
        0 => format!(
            "{}{}",
            &text[..from],
            &text[from.max(text.ceil_char_boundary(from + 1).min(text.len()))..]
        ),
        1 => format!("{}{}{}", &text[..to], &text[from..to], &text[to..])
            .chars()
            .take(4000)
            .collect(),
        2 => format!("{}{}{}", &text[..from], piece(dice), &text[from..]),
        _ => text.char_indices().map(|(i, c)| if i == from { 'x' } else { c }).collect(),
    }
}

fn encoded(text: &str, dice: &mut Dice) -> String {
    let text = "ab".repeat(dice.below(2)) + text;
    match dice.below(4) {
        0 => base64::engine::general_purpose::STANDARD.encode(text),
        1 => base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text),
        2 => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        _ => text.bytes().map(|byte| format!("%{byte:02X}")).collect(),
    }
}

/// How a registered secret must never be seen.
fn forms() -> Vec<String> {
    let of = |value: &str| {
        let json = serde_json::to_string(value).unwrap();
        [
            value.to_owned(),
            json[1..json.len() - 1].to_owned(),
            value.bytes().map(|byte| format!("{byte:02x}")).collect(),
            value.bytes().map(|byte| format!("%{byte:02X}")).collect(),
            base64::engine::general_purpose::STANDARD_NO_PAD.encode(value)[..value.len() * 8 / 6]
                .to_owned(),
        ]
    };
    REGISTERED.iter().flat_map(|value| of(value)).collect()
}

fn redactor() -> Redactor {
    let secret = |(at, value): (usize, &&str)| {
        let name = SecretName::new(&format!("s{at}")).unwrap();
        Secret::new(name, zeroize::Zeroizing::new((*value).to_owned())).unwrap()
    };
    let secrets: Vec<Secret> = REGISTERED.iter().enumerate().map(secret).collect();
    Redactor::standard().for_tenant(&secrets, TagKey::new([9; 32]))
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }
}
