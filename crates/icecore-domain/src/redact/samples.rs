//! Sample credentials, made from templates when they are needed.
//!
//! `ghp_{36w}` stands for `ghp_` and 36 letters and digits. The classes are
//! `w` letters and digits, `l` the same in lower case, `u` in upper case, `h`
//! and `H` hexadecimal, `d` digits, `a` lower-case letters, `b` base64, `U` URL-safe
//! base64, `B` base32, `s` base58, `z` bech32; `{uuid}` is a UUID. Any other brace
//! stands for itself. Where a value must pass a check, `«…»` encloses it and it is
//! drawn again until it does.

use std::ops::Range;

/// More than any check needs: the strictest lets one value in six hundred pass.
const MAX_DRAWS: u64 = 100_000;

const UUID: &str = "{8h}-{4h}-{4h}-{4h}-{12h}";

const CLASSES: [(char, &str); 12] = [
    ('w', "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ('l', "abcdefghijklmnopqrstuvwxyz"),
    ('u', "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ('h', "abcdef0123456789"),
    ('H', "ABCDEF0123456789"),
    ('d', "0123456789"),
    ('a', "abcdefghijklmnopqrstuvwxyz"),
    ('b', "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/"),
    ('U', "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"),
    ('B', "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ('s', "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"),
    ('z', "acdefghjklmnpqrstuvwxyz"),
];

/// `template` with its classes drawn from `seed`.
pub(crate) fn expand(template: &str, seed: u64) -> String {
    expand_marked(template, seed).0
}

/// As [`expand`], and where what was drawn stands.
pub(crate) fn expand_marked(template: &str, seed: u64) -> (String, Vec<Range<usize>>) {
    let template = template.replace("{uuid}", UUID);
    let mut state = seed;
    let mut out = String::new();
    let mut drawn = Vec::new();
    let mut rest = template.as_str();
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        match class(rest) {
            Some((count, letters, length)) => {
                let start = out.len();
                draw(&mut out, count, letters, &mut state);
                drawn.push(start..out.len());
                rest = &rest[length..];
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    (out, drawn)
}

/// The secret of a sample: of what was drawn, the parts that stand together and
/// are the most. What begins or ends them and is far shorter than the longest is
/// an account or a number.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn longest_part(text: &str, drawn: &[Range<usize>]) -> Range<usize> {
    const MAX_GAP_BYTES: usize = 4;
    const MIN_SECRET_BYTES: usize = 6;
    let secret = drawn
        .chunk_by(|part, next| next.start - part.end <= MAX_GAP_BYTES)
        .map(|parts| {
            let longest = parts.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
            let is_long = |part: &&Range<usize>| part.len() * 2 >= longest;
            let first = parts.iter().find(is_long).map_or(0, |part| part.start);
            first..parts.iter().rfind(is_long).map_or(0, |part| part.end)
        })
        .max_by_key(ExactSizeIterator::len)
        .unwrap_or(0..text.len());
    if secret.len() >= MIN_SECRET_BYTES {
        return secret;
    }
    // `hunter1234`: a word with a few digits is secret as a whole.
    let is_outside = |c: char| !c.is_ascii_alphanumeric();
    let start = text[..secret.start].rfind(is_outside).map_or(0, |at| at + 1);
    let after = text[secret.end..].find(is_outside).unwrap_or(text.len() - secret.end);
    start..secret.end + after
}

/// `template` drawn until what stands between its marks passes `check`. Without
/// marks it is drawn once.
pub(crate) fn expand_until(template: &str, seed: u64, check: impl Fn(&str) -> bool) -> String {
    let mut state = seed;
    let mut out = String::new();
    for _ in 0..MAX_DRAWS {
        out = expand(template, next(&mut state));
        let value = out.split_once('«').and_then(|(_, rest)| rest.split_once('»'));
        if value.is_none_or(|(value, _)| check(value)) {
            break;
        }
    }
    out.replace(['«', '»'], "")
}

/// How many characters of which class `text` asks for, and its own length.
fn class(text: &str) -> Option<(usize, (char, &'static str), usize)> {
    let inner = &text[1..text.find('}')?];
    let name = inner.chars().last()?;
    let count = inner[..inner.len() - name.len_utf8()].parse().ok()?;
    let class = CLASSES.iter().find(|(class, _)| *class == name)?;
    Some((count, *class, inner.len() + 2))
}

/// Adds `count` characters, each as likely as any other of its class; only the
/// first and last are never punctuation.
fn draw(out: &mut String, count: usize, (class, letters): (char, &str), state: &mut u64) {
    let digits = match class {
        'w' | 'l' | 'u' | 'b' | 'U' => "0123456789",
        'B' | 's' | 'z' => "234567",
        _ => "",
    };
    for at in 0..count {
        let letters = match class {
            'b' | 'U' if at == 0 || at + 1 == count => &letters[..52],
            _ => letters,
        };
        let index = next(state) % (letters.len() + digits.len()) as u64;
        let index = usize::try_from(index).unwrap_or(0);
        let drawn = letters
            .as_bytes()
            .get(index)
            .or(digits.as_bytes().get(index.wrapping_sub(letters.len())));
        out.extend(drawn.map(|byte| char::from(*byte)));
    }
}

/// The splitmix64 step.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_classes_and_keeps_other_braces() {
        let text = expand("{\"k\":\"x_{4d}{nope}{2h}\"}", 7);
        assert_eq!(text.len(), "{\"k\":\"x_{nope}\"}".len() + 6);
        assert!(text.starts_with("{\"k\":\"x_") && text.contains("{nope}"));
        assert_eq!(text, expand("{\"k\":\"x_{4d}{nope}{2h}\"}", 7));
        assert_ne!(expand("{20w}", 1), expand("{20w}", 2));
    }

    #[test]
    fn draws_until_the_check_passes() {
        let text = expand_until("n «{3d}»!", 7, |value| value.ends_with("42"));
        assert!(text.starts_with("n ") && text.ends_with("42!") && text.len() == 6, "{text}");
        assert_eq!(expand_until("no marks", 7, |_| false), "no marks");
    }

    #[test]
    fn the_secret_is_what_was_drawn() {
        for (template, before, after) in [
            ("ghp_{36w}", 4, 0),
            ("id={8h}-{4h}-{4h}-{4h}-{12h};", 3, 1),
            ("https://example.com/{18d}/{68U}", 39, 0),
            ("{36l}/path/{60l}", 42, 0),
            ("it is hunter{4d}.", 6, 1),
        ] {
            let (text, drawn) = expand_marked(template, 1);
            assert_eq!(longest_part(&text, &drawn), before..text.len() - after, "{template}");
        }
    }
}
