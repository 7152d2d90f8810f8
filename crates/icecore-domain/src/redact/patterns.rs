//! The table of credential kinds.
//!
//! Written from the public formats of these credentials. Specific kinds come
//! first: where two take the same text, the earlier names it. Each row carries
//! a sample that it hides and a near miss that it keeps; see
//! [`super::samples`] for their templates.

use super::kind::Kind;

/// What may stand between an equals sign and a value: quotes in any escaping,
/// curly ones, a no-break space.
macro_rules! opening {
    () => {
        r#"(?:[\\"'`*]|\xe2\x80[\x98-\x9f]|\xc2\xa0){0,4}"#
    };
}

/// A value assigned to a name: the name, what may follow within it, a colon or
/// an equals sign, quotes in any escaping.
macro_rules! named {
    ($name:literal, $($value:tt)+) => {
        concat!(
            "(?i)",
            $name,
            r#"[\w .-]{0,30}[\\"'`\]*]{0,5}\s{0,3}(?:=>|:=|=|:| is )\s{0,3}"#,
            opening!(),
            "(",
            $($value)+,
            r")(?:[^\w-]|\z)"
        )
    };
}

/// As `named!`, where the name goes on to say that it names a key: for services
/// whose keys look like any other hexadecimal or random text.
macro_rules! keyed {
    ($name:literal, $($value:tt)+) => {
        concat!(
            "(?i)",
            $name,
            r"[\w .-]{0,24}?(?:key|token|secret|pass|pwd|auth|cred|pat)[\w .-]{0,12}",
            r#"[\\"'`\]*]{0,5}\s{0,3}(?:=>|:=|=|:|,| is )\s{0,3}"#,
            opening!(),
            "(",
            $($value)+,
            r")(?:[^\w-]|\z)"
        )
    };
}

/// The shape of a UUID.
macro_rules! uuid {
    () => {
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    };
}

/// A value assigned to a name that says what it is; any spelling of the value.
/// Only a value in quotes may follow a type, as in `key: &str = "…"`, or a blank,
/// as in `#define PASSWORD "…"`.
macro_rules! assigned {
    ($name:literal, $length:literal) => {
        concat!(
            "(?i)(?:",
            $name,
            r")(?:[_.-]?(?:prod|production|dev|test|staging|live|value|raw|plain|base|default|[0-9]{1,2}))?",
            r#"[\\"'`\]*]{0,5}(?:</[a-z]{1,6}>)?(?:\s{0,12}(?:=>|:=|={1,3}|:)\*{0,2}\s{0,12}(?:"#,
            r#"[@bru]?"((?:[^"\\\r\n]|\\[^\r\n])"#, $length, r#")"|"#,
            r#"[@bru]?'((?:[^'\\\r\n]|\\[^\r\n])"#, $length, r#")'|"#,
            r#"\\"((?:[^"\\\r\n]|\\[^"\r\n])"#, $length, r#")\\"|"#,
            r#"\\{2,3}"([^"\\\r\n]"#, $length, r#")\\{2,3}"|"#,
            r"`([^`\r\n]", $length, r")`|",
            r#"([^\s"'`<>]"#, $length, "))",
            r#"|(?:\s{0,2}:\s{0,2}&?(?:'static )?[a-z][\w.<>?]{0,20}\s{0,2}=\s{0,2}|\s{1,4})(?:"#,
            r#""([^"\\\r\n]"#, $length, r#")"|'([^'\\\r\n]"#, $length, ")'))"
        )
    };
}

// The macros above come first: a macro is seen only by what follows it.
mod ai;
mod chat;
mod cloud;
mod data;
mod forge;
mod hash;
mod header;
mod keys;
mod mail;
mod monitor;
mod network;
mod payment;
mod prose;
mod setting;
mod social;
mod vault;
mod wallet;
mod work;

/// The parts of the table, specific kinds before those known by their
/// surroundings only.
const PARTS: &[&[Kind]] = &[
    keys::KINDS,
    cloud::KINDS,
    forge::KINDS,
    chat::KINDS,
    payment::KINDS,
    mail::KINDS,
    ai::KINDS,
    data::KINDS,
    monitor::KINDS,
    vault::KINDS,
    work::KINDS,
    social::KINDS,
    network::KINDS,
    wallet::KINDS,
    header::KINDS,
    hash::KINDS,
    setting::KINDS,
    prose::KINDS,
];

/// Every kind, specific ones first.
pub(super) static KINDS: &[Kind] = &joined::<{ count(PARTS) }>(PARTS);

const fn count(parts: &[&[Kind]]) -> usize {
    let (mut count, mut part) = (0, 0);
    while part < parts.len() {
        count += parts[part].len();
        part += 1;
    }
    count
}

const fn joined<const COUNT: usize>(parts: &[&[Kind]]) -> [Kind; COUNT] {
    let mut all = [Kind::TOKEN; COUNT];
    let (mut at, mut part) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            all[at] = parts[part][row];
            at += 1;
            row += 1;
        }
        part += 1;
    }
    all
}
