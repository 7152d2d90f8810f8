//! Distinguishes a value that is probably a secret from one that only stands where a
//! secret could: a placeholder, a piece of code, a sentence.

use std::ops::Range;

use super::jumble::is_jumbled;
use super::kind::{Kind, Proof};

/// Words of which a placeholder is made. A value is one when nothing else of
/// weight is left beside them.
#[rustfmt::skip]
const FILLERS: &[&str] = &[
    "your", "my", "the", "some", "this", "insert", "enter", "replace", "with", "here", "example",
    "sample", "placeholder", "dummy", "fake", "changeme", "change", "me", "todo", "redacted",
    "hidden", "masked", "removed", "secret", "password", "passwd", "passphrase", "pass", "pwd",
    "token", "api", "key", "access", "auth", "client", "private", "user", "username", "value",
    "string", "none", "null", "undefined", "true", "false", "env", "xxx", "abc", "foo", "bar",
    "test", "id", "name", "goes", "real", "actual", "new", "old",
];

/// Openings of expressions that fetch a secret instead of being one.
#[rustfmt::skip]
const CODE: &[&str] = &[
    "$", "%", "{", "[", "(", "<", "&", "|", "*", "@", "!", "/", "./", "../", "~/", "process.",
    "os.", "env.", "env(", "self.", "this.", "config.", "settings.", "ENV[", "std::", "secrets.",
    "vault:", "arn:", "data:", "http://", "https://", "file:", "ref+", "op://", "var.", "local.",
    "args.", "opts.", "options.", "req.", "request.", "ctx.", "context.",
];

/// Words of sentences about passwords.
#[rustfmt::skip]
const ADVICE: &[&str] = &[
    "enter", "your", "must", "least", "character", "password", "please", "invalid", "minimum",
    "maximum", "digit", "between", "should", "forgot", "reset", "confirm", "incorrect", "wrong",
    "required", "match",
];

/// Anything shorter hides too much that is no password.
const MIN_PASSWORD_BYTES: usize = 6;

/// Base64 of this length around a value is a blob that it is part of.
const MIN_BLOB_BYTES: usize = 32;

/// How far back a word is looked for that says that a version follows.
const MAX_VERSION_BYTES: usize = 16;

/// What an identifier's one part with digits within may have, as in `x25519`.
const MAX_ODD_BYTES: usize = 6;

/// A longer run of letters is no word of a name.
const MAX_WORD_BYTES: usize = 24;

/// The part of `range` that is the value, and whether it is a secret.
pub(super) fn judge(kind: &Kind, text: &str, range: Range<usize>) -> (Range<usize>, bool) {
    let quoted = text[..range.start].ends_with(['"', '\'', '`', '\u{201c}']);
    let range = match kind.proof {
        Proof::Shape => range,
        Proof::Checked(_) => unwrapped(text, range),
        Proof::Random(_) if !quoted => token(text, bare(text, unwrapped(text, range))),
        Proof::Password if !quoted => unwrapped(text, bare(text, unwrapped(text, range))),
        Proof::Strong => ascii(text, bare(text, unwrapped(text, range))),
        Proof::Random(_) | Proof::Password => unwrapped(text, range),
    };
    let value = &text[range.clone()];
    // Of other kinds the name is no part of what the pattern reads.
    let is_bookmark = kind.keywords.contains(&"token") && is_bookmark(text, range.start);
    let is_allowed = kind.allow.iter().any(|word| contains(value, word));
    let is_secret = !is_allowed
        && !is_filler(value)
        && !is_in_blob(text, range.clone())
        && match kind.proof {
            Proof::Shape => !is_template(value),
            Proof::Checked(check) => {
                stands_alone(text, range.clone()) && check(unescaped(text, range.clone()))
            }
            Proof::Random(floor) => {
                is_random(value, floor)
                    && (!is_code(value, &text[range.end..]) || quoted && is_scrambled(value))
                    && !is_resource_name(text, range.start)
                    && !is_bookmark
                    && (quoted || !is_identifier(value))
            }
            Proof::Password => {
                let is_code =
                    if quoted { is_template(value) } else { is_code(value, &text[range.end..]) };
                is_password(spoken(text, &range), quoted) && !is_code
            }
            Proof::Strong => {
                is_strong(value)
                    && !is_code(value, &text[range.end..])
                    && !is_resource_name(text, range.start)
                    && !is_bookmark
                    && !is_public(kind, text, range.start)
            }
        };
    (range, is_secret)
}

/// Whether the value at `range` is a stretch of a longer base64 text, in which
/// any short prefix occurs by chance.
fn is_in_blob(text: &str, range: Range<usize>) -> bool {
    let (before, after) = (&text.as_bytes()[..range.start], &text.as_bytes()[range.end..]);
    is_blob(before.iter().rev()) || is_blob(after.iter())
}

/// Whether what leads away from a value is base64 that goes on through a `+` or
/// a slash. Paths and words are shorter or have no digits.
fn is_blob<'a>(away: impl Iterator<Item = &'a u8>) -> bool {
    let is_base64 = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    let run: Vec<u8> = away.take(MIN_BLOB_BYTES).take_while(is_base64).copied().collect();
    let has = |test: fn(&u8) -> bool| run.iter().any(test);
    run.len() == MIN_BLOB_BYTES
        && b"+/".contains(&run[0])
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
}

/// Whether the value at `range` is no part of a longer word or number and no
/// version.
fn stands_alone(text: &str, range: Range<usize>) -> bool {
    let (before, after) = (&text.as_bytes()[..range.start], &text.as_bytes()[range.end..]);
    let is_grouped = text[range.clone()].contains(' ');
    let before: Vec<u8> = before.iter().rev().copied().take(MAX_VERSION_BYTES).collect();
    !goes_on(&before, is_grouped) && !goes_on(after, is_grouped) && !names_version(&before)
}

/// The value at `range` without the letter of an escape before it, as in
/// `\n@app.route`.
fn unescaped(text: &str, range: Range<usize>) -> &str {
    let value = &text[range.clone()];
    if text[..range.start].ends_with('\\') { value.get(1..).unwrap_or_default() } else { value }
}

/// Whether a word or number goes on into `rest`, read away from it.
fn goes_on(rest: &[u8], is_grouped: bool) -> bool {
    let digits = rest.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
    match rest.first() {
        Some(b'.' | b'-') => digits > 0,
        // The next group of a number that is written in groups.
        Some(b' ') => is_grouped && digits >= 4,
        Some(byte) => byte.is_ascii_alphanumeric() || *byte == b'_',
        None => false,
    }
}

/// Whether `before`, read backwards, says that a version follows.
fn names_version(before: &[u8]) -> bool {
    let word: Vec<u8> = before
        .iter()
        .skip_while(|byte| b" :=\"'".contains(byte))
        .take_while(|byte| byte.is_ascii_alphabetic())
        .map(u8::to_ascii_lowercase)
        .collect();
    [&b"noisrev"[..], b"rev", b"v", b"esaeler", b"dliub"].contains(&word.as_slice())
}

/// An unquoted value without what follows it: the next setting of a list or a
/// connection string, the call it turns out to be, the full stop of a sentence.
fn bare(text: &str, range: Range<usize>) -> Range<usize> {
    let value = &text[range.clone()];
    let bytes = value.as_bytes();
    let mut end = value.len();
    for (at, byte) in value.bytes().enumerate() {
        let is_end = match byte {
            b'&' if is_entity(&bytes[at + 1..]) => true,
            b',' | b';' | b'&' => at + 1 == end || names_setting(&bytes[at + 1..]),
            b'(' => {
                at > 0
                    && bytes[..at]
                        .iter()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"_.:".contains(byte))
            }
            _ => false,
        };
        if is_end {
            end = at;
            break;
        }
    }
    let trimmed = value[..end].trim_end_matches(['.', ',', ';', ':', ')', ']', '}', '\\']);
    range.start..range.start + trimmed.len()
}

/// The part before what no random value holds: the comma of a list, the
/// asterisks of emphasis, a letter of another script.
fn token(text: &str, range: Range<usize>) -> Range<usize> {
    let ends = |c: char| !c.is_ascii() || ",;*".contains(c);
    let length = text[range.clone()].find(ends).unwrap_or(range.len());
    range.start..range.start + length
}

/// Whether `rest`, after an ampersand, is markup for a quote or a bracket.
fn is_entity(rest: &[u8]) -> bool {
    [&b"quot;"[..], b"lt;", b"gt;", b"#39;", b"#34;", b"#x3C;", b"#x27;"]
        .iter()
        .any(|entity| rest.starts_with(entity))
}

/// Whether `rest` begins with `name=` or `name:`.
fn names_setting(rest: &[u8]) -> bool {
    let name = rest
        .iter()
        .take(40)
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(byte))
        .count();
    name > 0 && matches!(rest.get(name), Some(b'=' | b':'))
}

/// A value without the blanks and the typographic quotes around it, which come
/// with text that was pasted: `token="\u{a0}…"`, `password: “…”`.
fn unwrapped(text: &str, range: Range<usize>) -> Range<usize> {
    let is_wrapping = |c: char| c.is_whitespace() || "“”„‘’‚«»".contains(c);
    let value = text[range.clone()].trim_end_matches(is_wrapping);
    let start = value.len() - value.trim_start_matches(is_wrapping).len();
    range.start + start..range.start + value.len()
}

/// The value without the `!` or `?` of the sentence it ends: "the password is
/// wrong!" holds no password, while `password=letmein!` does.
fn spoken<'a>(text: &'a str, range: &Range<usize>) -> &'a str {
    let before = text[..range.start].trim_end_matches(' ');
    if before.len() < range.start && before.ends_with(|c: char| c.is_alphabetic()) {
        text[range.clone()].trim_end_matches(['!', '?'])
    } else {
        &text[range.clone()]
    }
}

/// Whether the value is a part of the name of a cloud's resource, such as
/// `arn:aws:secretsmanager:eu-west-1:…:secret:db/main-a1B2c3`.
fn is_resource_name(text: &str, start: usize) -> bool {
    const MAX_NAME_BYTES: usize = 128;
    let before = &text.as_bytes()[start.saturating_sub(MAX_NAME_BYTES)..start];
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b":-_/.".contains(byte);
    let length = before.iter().rev().take_while(|byte| is_part(byte)).count();
    let name = &before[before.len() - length..];
    name.starts_with(b"arn:") && name.ends_with(b":secret:")
}

/// Whether the name before the value says that it marks a place in a list, as
/// `nextPageToken` does.
fn is_bookmark(text: &str, start: usize) -> bool {
    const MAX_NAME_BYTES: usize = 40;
    const PLACES: &[&str] = &["page", "next", "cursor", "continuation", "sync", "resume", "offset"];
    let before = &text.as_bytes()[start.saturating_sub(MAX_NAME_BYTES)..start];
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_' || **byte == b'-';
    let name: Vec<u8> = before
        .iter()
        .rev()
        .skip_while(|byte| !is_name(byte))
        .take_while(is_name)
        .map(u8::to_ascii_lowercase)
        .collect();
    let name: String = name.iter().rev().map(|byte| char::from(*byte)).collect();
    let place = name.strip_suffix("token").map(|name| name.trim_end_matches(['_', '-']));
    place.is_some_and(|name| PLACES.iter().any(|place| name.ends_with(place)))
}

/// Whether what leads to the value, from the word of the keyword on, says that
/// anybody may see it. What stands further back may be gone from a stream.
fn is_public(kind: &Kind, text: &str, start: usize) -> bool {
    const MAX_LEAD_BYTES: usize = 128;
    #[rustfmt::skip]
    const OPEN: &[&str] = &[
        "public", "pubkey", "fingerprint", "checksum", "integrity", "digest", "address", "contract",
        "commit", "model", "tokenid", "token_id", "token id", "keyid", "key_id", "key id", "mint",
    ];
    let (before, after) = text.as_bytes().split_at(start);
    let is_at = |bytes: &[u8], word: &str| {
        bytes.get(..word.len()).is_some_and(|there| there.eq_ignore_ascii_case(word.as_bytes()))
    };
    let begins = |bytes: &[u8]| kind.keywords.iter().any(|word| is_at(bytes, word));
    let first = start.saturating_sub(MAX_LEAD_BYTES);
    let keyword = (first..start).rev().find(|at| begins(&before[*at..]));
    let Some(keyword) = keyword.filter(|_| !begins(after)) else { return false };
    let blank = before[first..keyword].iter().rposition(u8::is_ascii_whitespace);
    let word = blank.map_or(first, |at| first + at + 1);
    OPEN.iter().any(|open| occurs(&before[word..], open))
}

/// The part before a letter of another script.
fn ascii(text: &str, range: Range<usize>) -> Range<usize> {
    let length = text[range.clone()].find(|c: char| !c.is_ascii()).unwrap_or(range.len());
    range.start..range.start + length
}

/// `xxxx`, `********`, `YOUR_API_KEY`, `<token>`: nobody's secret.
pub(super) fn is_filler(value: &str) -> bool {
    is_one_letter(value)
        || longest_run(value) * 2 > value.chars().count().max(6)
        || is_counting(value)
        || is_worded(value)
}

/// Whether no two letters or digits differ: `--`, `xxx-xxx`, a UUID of zeros.
fn is_one_letter(value: &str) -> bool {
    let mut letters = value.chars().filter(|c| c.is_alphanumeric());
    let first = letters.next();
    letters.all(|c| Some(c) == first)
}

/// The length of the longest run of one character.
fn longest_run(value: &str) -> usize {
    let (mut longest, mut run, mut last) = (0, 0, None);
    for c in value.chars() {
        run = if last == Some(c) { run + 1 } else { 1 };
        last = Some(c);
        longest = longest.max(run);
    }
    longest
}

/// `1234567890abcdef` and its like, long enough that nobody chose it as a
/// password.
fn is_counting(value: &str) -> bool {
    let counted = "0123456789abcdef0123456789abcdefghijklmnopqrstuvwxyz01234567890abcdef";
    value.len() >= 12 && counted.contains(&value.to_ascii_lowercase())
}

/// Whether `value` is made of placeholder words alone, as `YOUR_API_KEY` or
/// `<my-token-here>`, without a digit.
fn is_worded(value: &str) -> bool {
    let value = value.replace("%5B", "[").replace("%5D", "]");
    let mut words = 0;
    for word in value.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
        let word = word.to_ascii_lowercase();
        if !FILLERS.contains(&word.as_str()) && !is_run_on(&word) {
            return false;
        }
        words += 1;
    }
    words > 0 && !value.bytes().any(|byte| byte.is_ascii_digit())
}

/// Whether `word` is two or three filler words written as one.
fn is_run_on(word: &str) -> bool {
    if word.bytes().all(|byte| byte == b'x') {
        return true;
    }
    let mut rest = word;
    for _ in 0..4 {
        let longest = FILLERS
            .iter()
            .filter(|filler| rest.starts_with(**filler))
            .map(|filler| filler.len())
            .max();
        rest = &rest[longest.unwrap_or(0)..];
    }
    rest.is_empty()
}

/// An expression or a place instead of a value.
fn is_code(value: &str, after: &str) -> bool {
    CODE.iter().any(|opening| value.starts_with(opening) && !opens_password(value, opening))
        || after.starts_with('(') && !value.is_empty()
        || is_declared(value, after)
        || is_indexed(value)
        || ["://", "::", "&&", "||", "...", "=>"].iter().any(|sign| value.contains(sign))
        || is_rule(value)
        || is_template(value)
}

/// `required|min:8|confirmed`: what a form asks of a password.
fn is_rule(value: &str) -> bool {
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let is_part = |part: &str| {
        let name = part.split(':').next().unwrap_or_default();
        name.len() >= 2 && name.bytes().all(is_lower)
    };
    value.contains('|') && value.split('|').all(is_part)
}

/// A quoted value with so many different signs that no expression has them.
fn is_scrambled(value: &str) -> bool {
    let signs = b"!@#$%^&*(-_=+)".iter().filter(|sign| value.as_bytes().contains(sign)).count();
    value.len() >= 30 && signs >= 5 && !is_template(value)
}

/// `PASSWORD: WIN32_ERROR = 86u32`, `key: Curve25519Seed<'_>`: what follows the
/// colon is a type.
fn is_declared(value: &str, after: &str) -> bool {
    let is_type = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_type && (after.starts_with(" = ") || after.starts_with("<'"))
}

/// `table[token1`, `Optional[str]`: an element or a type.
fn is_indexed(value: &str) -> bool {
    let Some((name, _)) = value.split_once('[') else { return false };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.bytes().all(is_name)
}

/// `D3DKMT_PRESENTHISTORYTOKEN_0`, `x25519_generate_private_key`: the name of
/// something in code. One short part may hold digits.
fn is_identifier(value: &str) -> bool {
    let parts: Vec<&str> = value.split('_').filter(|part| !part.is_empty()).collect();
    let odd: Vec<&str> = parts.iter().copied().filter(|part| !is_word(part)).collect();
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && parts.len() > 1
        && parts.iter().any(|part| part.len() > 2 && is_word(part))
        && odd.len() <= 1
        && odd.iter().all(|part| part.len() <= MAX_ODD_BYTES)
}

/// Whether `part` is a word, or words run together in camel case, with a short
/// number at most at its end.
fn is_word(part: &str) -> bool {
    let letters = part.trim_end_matches(|c: char| c.is_ascii_digit());
    let humps = letters.as_bytes().windows(2).filter(|two| two[0] > b'Z' && two[1] <= b'Z').count();
    part.len() - letters.len() <= 2
        && letters.len() <= MAX_WORD_BYTES
        && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
        && humps * 4 <= letters.len()
        && !is_jumbled(letters)
}

/// A hole to be filled with the secret later.
fn is_template(value: &str) -> bool {
    let is_between = |open, close| value.starts_with(open) && value.ends_with(close);
    ["${", "{{", "$(", "<%", "%("].iter().any(|hole| value.contains(hole))
        || is_between('<', '>')
        || is_between('{', '}')
        || value == "%s"
        || value.strip_prefix('$').is_some_and(|name| !name.bytes().any(|b| b.is_ascii_lowercase()))
}

/// A password may begin with punctuation; then it does not go on as a name or
/// a bracket would.
fn opens_password(value: &str, opening: &str) -> bool {
    if opening == "/" {
        return is_base64(value);
    }
    matches!(opening, "!" | "@" | "*" | "&" | "%" | "$")
        && value[1..].bytes().any(|byte| byte.is_ascii_digit())
        && !value[1..].starts_with(['{', '(', '$', '<'])
        && value[1..]
            .bytes()
            .any(|byte| !(byte.is_ascii_uppercase() || byte == b'_' || byte.is_ascii_digit()))
}

/// Random base64 that happens to begin with a slash, as one in 64 does. The parts
/// of a path are shorter, or are words.
fn is_base64(value: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    value.len() >= 32
        && value.bytes().all(is_letter)
        && value.split('/').any(|part| part.len() >= 12 && is_strong(part))
}

/// Capitals, small letters and digits, and more changes between them than names
/// have; see [`Proof::Strong`].
fn is_strong(value: &str) -> bool {
    const MIN_STRONG_BYTES: usize = 8;
    let has = |test: fn(&u8) -> bool| value.bytes().any(|byte| test(&byte));
    let class = |byte: u8| match byte {
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        b'0'..=b'9' => 3,
        _ => 0,
    };
    // A capital that begins a word is no change, and neither is a sign that ends one.
    let is_change = |two: &[u8]| match (class(two[0]), class(two[1])) {
        (2, 1) => false,
        (0, _) | (_, 0) => b"!#%^*$&~".iter().any(|sign| two.contains(sign)),
        (one, other) => one != other,
    };
    let changes = value.as_bytes().windows(2).filter(|two| is_change(two)).count();
    value.len() >= MIN_STRONG_BYTES
        && value.is_ascii()
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && (has(u8::is_ascii_digit) && changes * 4 >= value.len() || is_jumbled(value))
        && !value.starts_with("0x")
        && !contains(value, "%3a%2f%2f")
        && !is_spelled_out(value)
        && !is_identifier(value)
}

fn is_random(value: &str, floor: f64) -> bool {
    let has = |test: fn(&u8) -> bool| value.bytes().any(|byte| test(&byte));
    // Long values without a digit come up now and then.
    let letters: String = value.chars().filter(char::is_ascii_alphabetic).collect();
    let is_lettered = !has(u8::is_ascii_digit) && is_jumbled(&letters);
    (has(u8::is_ascii_digit) || is_lettered)
        && has(u8::is_ascii_alphabetic)
        && !value.contains(char::is_whitespace)
        && !is_spelled_out(value)
        && entropy_bits(value) >= floor
}

/// `refresh-token-v2`, `user_secret_1`, `app.module.Class2`: words, each with a
/// digit at most at its end. A random value has digits within.
fn is_spelled_out(value: &str) -> bool {
    let parts: Vec<&str> =
        value.split(['-', '_', '.', '/', ':']).filter(|part| !part.is_empty()).collect();
    let is_word = |part: &&str| {
        let letters = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let has_one_case = letters.bytes().all(|byte| byte.is_ascii_uppercase())
            || letters.bytes().skip(1).all(|byte| byte.is_ascii_lowercase());
        let is_plain = part.len() - letters.len() <= 2
            && letters.len() <= 12
            && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
            && has_one_case;
        let is_number = part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
        is_plain || is_number || part.len() <= 2
    };
    parts.len() > 1 && parts.iter().all(is_word) || is_type_name(value)
}

/// `V1SecretVolumeSource`: words in camel case, a short number at most in front
/// of them or at their end.
fn is_type_name(value: &str) -> bool {
    let value = value.trim_end_matches(|c: char| c.is_ascii_digit());
    let from = value.bytes().take(3).rposition(|byte| byte.is_ascii_digit());
    let words = &value[from.map_or(0, |digit| digit + 1)..];
    let mut humps = words.split_inclusive(|c: char| c.is_ascii_uppercase());
    // The pieces end with the capital of the next word.
    let is_first = humps.next().is_some_and(|first| first.len() == 1);
    let mut rest = humps.map(|hump| hump.trim_end_matches(|c: char| c.is_ascii_uppercase()));
    is_first
        && words.bytes().filter(u8::is_ascii_uppercase).count() > 1
        && rest.all(|hump| hump.len() >= 2 && hump.bytes().all(|byte| byte.is_ascii_lowercase()))
}

fn is_password(value: &str, quoted: bool) -> bool {
    let words = value.split_whitespace().count();
    // The signs of a sentence are none of a password.
    let value = if words > 1 { value.trim_matches(['!', '?', '¿', '¡']) } else { value };
    let is_mixed = value.bytes().any(|byte| byte.is_ascii_digit())
        || value.bytes().any(|byte| b"!@#$%^&*+?=~".contains(&byte))
            && value.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_advice = words > 1 && ADVICE.iter().any(|word| contains(value, word));
    (is_mixed || is_jumbled(value.trim_matches(|c: char| !c.is_ascii_alphanumeric())))
        && value.len() >= MIN_PASSWORD_BYTES
        && (words == 1 || quoted && words <= 5)
        && !is_advice
        && entropy_bits(value) >= 1.5
}

/// Whether `key` names a password and nothing else, and `value` could be one.
/// Here the field says so much that a plain word will do.
pub(super) fn is_password_field(key: &str, value: &str) -> bool {
    let name: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "passphrase", "pwd"].iter().any(|word| name.ends_with(word))
        && (MIN_PASSWORD_BYTES..=128).contains(&value.len())
        && value.split_whitespace().count() <= 6
        && !ADVICE.iter().any(|word| contains(value, word))
        && !is_filler(value)
        && !is_code(value, "")
}

/// Whether `word`, in lower case, occurs in `value` in any case.
fn contains(value: &str, word: &str) -> bool {
    occurs(value.as_bytes(), word)
}

/// As [`contains`], of bytes.
fn occurs(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
}

/// Shannon entropy, bits a byte. `libm`, so that every machine agrees.
fn entropy_bits(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let total = value.len() as f64;
    let share = |count: &u32| f64::from(*count) / total;
    -counts.iter().filter(|count| **count > 0).map(share).map(|p| p * libm::log2(p)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fillers_are_nobodys_secret() {
        for filler in [
            "xxxx",
            "********",
            "YOUR_API_KEY",
            "<token>",
            "your-secret-key-here",
            "changeme",
            "....",
            "yourpassword",
            "%5Bredacted%5D",
            "1234567890abcdef",
            "00000000-0000-0000-0000-000000000000",
        ] {
            assert!(is_filler(filler), "{filler}");
        }
        for value in ["hunter2", "correct horse 9", "Passw0rd!", "a8Fk2Lq9"] {
            assert!(!is_filler(value), "{value}");
        }
    }

    #[test]
    fn a_stretch_of_base64_is_no_credential() {
        let kind = Kind { pattern: "EAAC", ..Kind::TOKEN };
        let blob = "x9Ab".repeat(8);
        let value = "EAACabc123";
        let judged = |before: &str, after: &str| {
            let at = before.len();
            judge(&kind, &format!("{before}{value}{after}"), at..at + value.len()).1
        };
        assert!(judged("", "") && judged("a/b/", "/c") && judged(&format!("{blob} "), ""));
        assert!(!judged(&format!("{blob}/"), "") && !judged("", &format!("+{blob}")));
    }

    #[test]
    fn names_in_code_are_told_from_random_text() {
        for name in ["D3DKMT_PRESENTHISTORYTOKEN_0", "x25519_generate_private_key", "MI_Creds_0"] {
            assert!(is_identifier(name), "{name}");
        }
        for value in ["a8Fk2Lq9_x9Yz", "prod_9f8a7b6c5d4e", "a1b2c3d4", "x9_y8_z7q6w5"] {
            assert!(!is_identifier(value), "{value}");
        }
        for name in ["V1SecretVolumeSource", "UserCredentials2", "TokenProvider"] {
            assert!(is_type_name(name), "{name}");
        }
        for value in ["V1StGXR8Z5jdHi6B", "aB3dE5fG", "hunter2", "QWErty12345uiop"] {
            assert!(!is_type_name(value), "{value}");
        }
        for value in ["auth_info[0", "Optional[str]=None", "self.keys[i"] {
            assert!(is_indexed(value), "{value}");
        }
        assert!(!is_indexed("p4$s[word") && !is_indexed("[a"));
        assert!(is_declared("WIN32_ERROR", " = 86u32;") && !is_declared("hunter22", " ok"));
    }

    #[test]
    fn strong_values_are_told_from_names() {
        for value in ["Iwp94omrtYqi", "tKY2Eh!X6#n1Ak", "q8Zk2Lm9Xw4Rt7", "aB3dE5fG"] {
            assert!(is_strong(value), "{value}");
        }
        for name in [
            "PBKDF2-SHA256", "SHA256withRSA", "base64UrlSafe", "UserProfile2",
            "Qwen2.5-Coder-32B-Instruct", "2024-01-02T10:11:12Z", "hunter22", "Winter2024!",
            "pÄssw0rD1x", "0xC0000071_u32", "https%3A%2F%2Fa.b%2Fc",
        ] {
            assert!(!is_strong(name), "{name}");
        }
    }

    #[test]
    fn letters_alone_can_be_random() {
        for value in ["CAjTtecFebuMCcMXcsPUOvhQIPGnQgDU", "part_yenaYjZMgDsqcZrPtjbQhakrdeiDx"] {
            assert!(is_random(value, 3.0), "{value}");
        }
        for name in ["XMLHttpRequestEventTarget", "getAccessTokenFromHTTPHeader", "aBcD"] {
            assert!(!is_random(name, 3.0), "{name}");
        }
    }

    #[test]
    fn names_say_what_is_no_secret() {
        for name in
            ["nextPageToken: \"", "next_page_token=", "\"ContinuationToken\": \"", "sync-token "]
        {
            assert!(is_bookmark(name, name.len()), "{name}");
        }
        for name in ["pagerduty_token=", "context_token: ", "access_token: \""] {
            assert!(!is_bookmark(name, name.len()), "{name}");
        }
        let kind = Kind { keywords: &["key"], ..Kind::TOKEN };
        let is_open = |text: &str| is_public(&kind, text, text.len());
        assert!(
            is_open("public_key: ") && is_open("the key fingerprint is ") && is_open("key_id=")
        );
        assert!(!is_open("public data, key: ") && !is_open("public_") && !is_open("api_key="));
    }

    #[test]
    fn rules_and_paths_are_no_values() {
        assert!(is_rule("required|min:8|confirmed") && !is_rule("a|b2") && !is_rule("required"));
        assert!(is_base64("/9E4afGVbGB2vxMTicexGr/brls7VhiaKqWIJf200+8="));
        assert!(!is_base64("/usr/local/share/applications/icons/x2"));
        assert!(
            is_scrambled("(=jr4=^zd28-qi2jdkzu^mv&7^(oe@#pf4=c45f=o") && !is_scrambled("(a + b)")
        );
    }

    #[test]
    fn entropy_is_that_of_shannon() {
        assert_eq!(entropy_bits("aaaa"), 0.0);
        assert_eq!(entropy_bits("abcd"), 2.0);
    }
}
