//! Finds the secrets that a tenant registered, as they are and as they are
//! commonly written down: in base64, hex, percent-encoded, escaped.
//!
//! A form is found by its first eight bytes, then compared whole. The search
//! keeps every copy of a secret in memory that is wiped when dropped, which a
//! general automaton would not; see `docs/decisions/0004`.

use std::fmt::Write;
use std::ops::Range;

use base64::Engine as _;
use base64::alphabet::Alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::secret::{MIN_SECRET_CHARS, Secret, SecretName};

/// Bytes by which a form is first found. None is shorter.
const PREFIX_BYTES: usize = MIN_SECRET_CHARS;

/// A tenant's secrets, ready to be looked for.
pub(super) struct Registered {
    names: Vec<SecretName>,
    forms: Vec<Form>,
    /// First bytes and number of each form, sorted; a form that is longer
    /// comes before those that begin like it.
    prefixes: Zeroizing<Vec<(u64, usize)>>,
    /// A bit for each hash of the first bytes, so that most places in a text
    /// cost one look.
    hashes: Zeroizing<Vec<u64>>,
    shift: u32,
    /// Whether any form begins with a byte.
    firsts: Zeroizing<[bool; 256]>,
}

/// One way to write a secret.
struct Form {
    bytes: Zeroizing<Vec<u8>>,
    secret: usize,
    /// Characters before and after that hold bits of the secret beside those
    /// of its neighbours, as base64 has them.
    spill: (usize, usize),
}

impl Registered {
    /// `None` where there are no secrets.
    pub(super) fn new(secrets: &[Secret]) -> Option<Self> {
        let mut forms: Vec<Form> = Vec::new();
        for (number, secret) in secrets.iter().enumerate() {
            let own = forms.len();
            for (bytes, spill) in forms_of(secret.value()) {
                let is_new = forms[own..].iter().all(|form| form.bytes != bytes);
                if is_new && bytes.len() >= PREFIX_BYTES {
                    forms.push(Form { bytes, secret: number, spill });
                }
            }
        }
        if forms.is_empty() {
            return None;
        }
        let mut prefixes: Vec<(u64, usize)> =
            forms.iter().enumerate().map(|(at, form)| (prefix(&form.bytes), at)).collect();
        prefixes.sort_by_key(|(prefix, form)| (*prefix, usize::MAX - forms[*form].bytes.len()));
        // Sixteen bits a form keep false alarms rare.
        let bits = (forms.len() * 16).next_power_of_two().clamp(1 << 12, 1 << 20);
        let shift = 64 - bits.trailing_zeros();
        let mut hashes = vec![0_u64; bits / 64];
        for (prefix, _) in &prefixes {
            let hash = hash(*prefix, shift);
            hashes[hash / 64] |= 1 << (hash % 64);
        }
        let mut firsts = Zeroizing::new([false; 256]);
        forms.iter().for_each(|form| firsts[usize::from(form.bytes[0])] = true);
        Some(Self {
            firsts,
            names: secrets.iter().map(|secret| secret.name().clone()).collect(),
            forms,
            prefixes: Zeroizing::new(prefixes),
            hashes: Zeroizing::new(hashes),
            shift,
        })
    }

    /// What secret `number` is called.
    pub(super) fn name(&self, number: usize) -> &SecretName {
        &self.names[number]
    }

    /// Tells where each secret is, in whatever form; what overlaps is told too.
    pub(super) fn find(&self, text: &[u8], found: &mut dyn FnMut(Range<usize>, usize)) {
        for (at, window) in text.windows(PREFIX_BYTES).enumerate() {
            let prefix = prefix(window);
            let hash = hash(prefix, self.shift);
            if self.hashes[hash / 64] >> (hash % 64) & 1 == 1 {
                self.compare(text, at, prefix, found);
            }
        }
    }

    /// Compares the forms that begin with `prefix` with the text at `at`. Of
    /// those that are there the longest is told: it hides the others.
    fn compare(
        &self,
        text: &[u8],
        at: usize,
        wanted: u64,
        found: &mut dyn FnMut(Range<usize>, usize),
    ) {
        let from = self.prefixes.partition_point(|(prefix, _)| *prefix < wanted);
        let alike = self.prefixes[from..].iter().take_while(|(prefix, _)| *prefix == wanted);
        for (_, form) in alike {
            let form = &self.forms[*form];
            if form.is_at(text, at) {
                found(form.spilled(text, at..at + form.bytes.len()), form.secret);
                return;
            }
        }
    }

    /// From where on `text` may be the beginning of a secret that has not come
    /// to its end; its length where it is not.
    pub(super) fn begins_in(&self, text: &[u8]) -> usize {
        let longest = self.forms.iter().map(|form| form.bytes.len()).max().unwrap_or(0);
        // What a form spills to the left goes with it.
        let from = text.len().saturating_sub(longest);
        let begins = |at: &usize| {
            let rest = &text[*at..];
            self.firsts[usize::from(rest[0])]
                && self
                    .forms
                    .iter()
                    .any(|form| form.bytes.len() >= rest.len() && form.bytes.starts_with(rest))
        };
        (from..text.len()).find(begins).unwrap_or(text.len())
    }
}

impl Form {
    /// Compared at its end first: texts that repeat themselves begin alike.
    fn is_at(&self, text: &[u8], at: usize) -> bool {
        let end = at + self.bytes.len();
        let tail = self.bytes.len() - PREFIX_BYTES;
        text.get(at + tail..end).is_some_and(|last| *last == self.bytes[tail..])
            && text[at..end] == **self.bytes
    }

    /// `range` with the characters beside it that tell a part of the secret.
    fn spilled(&self, text: &[u8], mut range: Range<usize>) -> Range<usize> {
        let (before, after) = self.spill;
        for _ in 0..before {
            if range.start > 0 && is_base64(text[range.start - 1]) {
                range.start -= 1;
            }
        }
        for _ in 0..after {
            if text.get(range.end).is_some_and(|byte| is_base64(*byte)) {
                range.end += 1;
            }
        }
        if before + after > 0 {
            range.end += text[range.end..].iter().take(2).take_while(|byte| **byte == b'=').count();
        }
        range
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

/// The first bytes as a number; there are at least so many.
fn prefix(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

fn hash(prefix: u64, shift: u32) -> usize {
    (prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
}

/// Bytes of a form, and what it spills.
type Written = (Zeroizing<Vec<u8>>, (usize, usize));

/// Every way in which we expect `value` to be written.
fn forms_of(value: &str) -> Vec<Written> {
    let mut forms: Vec<Written> = Vec::new();
    let mut plain = |text: String| forms.push((Zeroizing::new(text.into_bytes()), (0, 0)));
    plain(value.to_owned());
    plain(value.replace('\n', "\r\n"));
    plain(value.replace('/', "\\"));
    plain(value.replace('\\', "/"));
    plain(value.replace('/', "\\/"));
    for escaped in escaped(value) {
        plain(escaped);
    }
    plain(entities(value));
    plain(each_byte(value, |byte| format!("{byte:02x}")));
    plain(each_byte(value, |byte| format!("{byte:02X}")));
    for encoded in percent_encoded(value) {
        plain(encoded);
    }
    for alphabet in [base64::alphabet::STANDARD, base64::alphabet::URL_SAFE] {
        forms.extend((0..3).map(|shift| base64_at(value, &alphabet, shift)));
    }
    forms
}

fn each_byte(value: &str, write: impl Fn(u8) -> String) -> String {
    value.bytes().map(write).collect()
}

/// As JSON writes it: as little as it must, with slashes, in ASCII alone, safe
/// inside HTML, and as a string within a string.
fn escaped(value: &str) -> Vec<String> {
    let quoted = |text: &str| {
        let quoted = serde_json::to_string(text).unwrap_or_default();
        quoted[1..quoted.len().max(2) - 1].to_owned()
    };
    let little = quoted(value);
    let ascii = |upper: bool| {
        let mut out = String::new();
        for c in little.chars() {
            if c.is_ascii() {
                out.push(c)
            } else {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    let _ = if upper {
                        write!(out, "\\u{unit:04X}")
                    } else {
                        write!(out, "\\u{unit:04x}")
                    };
                })
            }
        }
        out
    };
    let in_html = |c: char| match c {
        '<' | '>' | '&' | '\'' | '+' => format!("\\u{:04x}", u32::from(c)),
        _ => c.to_string(),
    };
    vec![
        little.replace('/', "\\/"),
        ascii(false),
        ascii(true),
        ascii(false).replace('/', "\\/"),
        little.chars().map(in_html).collect(),
        quoted(&little),
        value.replace('\'', "\\'"),
        little,
    ]
}

/// As HTML and XML write it.
fn entities(value: &str) -> String {
    let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    value.replace('"', "&quot;").replace('\'', "&#39;")
}

/// As it stands in URLs: what must be is encoded, all is encoded, or spaces are
/// plus signs; with digits of either case.
fn percent_encoded(value: &str) -> Vec<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let upper = |byte: u8| format!("%{byte:02X}");
    let lower = |byte: u8| format!("%{byte:02x}");
    let where_needed = |write: &dyn Fn(u8) -> String| {
        each_byte(
            value,
            |byte| if is_plain(byte) { char::from(byte).to_string() } else { write(byte) },
        )
    };
    vec![
        where_needed(&upper).replace("%20", "+"),
        where_needed(&lower).replace("%20", "+"),
        where_needed(&upper),
        where_needed(&lower),
        each_byte(value, upper),
        each_byte(value, lower),
    ]
}

/// The characters of base64 that only `value` decides when `shift` bytes stand
/// before it, and whether its neighbours hold a part of it.
fn base64_at(value: &str, alphabet: &Alphabet, shift: usize) -> Written {
    let engine = GeneralPurpose::new(alphabet, GeneralPurposeConfig::new());
    let mut bytes = Zeroizing::new(vec![0; shift]);
    bytes.extend_from_slice(value.as_bytes());
    let encoded = Zeroizing::new(engine.encode(bytes.as_slice()));
    let (bits_before, bits) = (8 * shift, 8 * bytes.len());
    let (first, end) = (bits_before.div_ceil(6), bits / 6);
    let inner = Zeroizing::new(encoded.as_bytes()[first..end].to_vec());
    (inner, (usize::from(bits_before % 6 > 0), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "p/ss\\w\"rd é<1>&2 + x";

    fn registered(values: &[&str]) -> Registered {
        let secret = |(at, value): (usize, &&str)| {
            let name = SecretName::new(&format!("s{at}")).unwrap();
            Secret::new(name, Zeroizing::new((*value).to_owned())).unwrap()
        };
        let secrets: Vec<Secret> = values.iter().enumerate().map(secret).collect();
        Registered::new(&secrets).unwrap()
    }

    fn found(registered: &Registered, text: &str) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        registered.find(text.as_bytes(), &mut |range, secret| {
            found.push((text[range].to_owned(), secret))
        });
        found
    }

    #[test]
    fn every_form_is_found_where_it_stands() {
        let registered = registered(&[VALUE]);
        let json = serde_json::to_string(VALUE).unwrap();
        for form in [
            VALUE,
            &json[1..json.len() - 1],
            "p\\/ss\\\\w\\\"rd é<1>&2 + x",
            "p/ss\\\\w\\\"rd \\u00e9<1>&2 + x",
            "p/ss\\\\w\\\"rd \\u00E9<1>&2 + x",
            "p/ss\\\\w\\\"rd é\\u003c1\\u003e\\u00262 \\u002b x",
            "p/ss\\w&quot;rd é&lt;1&gt;&amp;2 + x",
            "p%2Fss%5Cw%22rd%20%C3%A9%3C1%3E%262%20%2B%20x",
            "p%2fss%5cw%22rd%20%c3%a9%3c1%3e%262%20%2b%20x",
            "p%2Fss%5Cw%22rd+%C3%A9%3C1%3E%262+%2B+x",
            "p\\ss\\w\"rd é<1>&2 + x",
            "p/ss/w\"rd é<1>&2 + x",
            &each_byte(VALUE, |byte| format!("{byte:02x}")),
            &each_byte(VALUE, |byte| format!("{byte:02X}")),
            &each_byte(VALUE, |byte| format!("%{byte:02x}")),
        ] {
            assert_eq!(found(&registered, &format!("é {form}é")), [(form.to_owned(), 0)], "{form}");
        }
    }

    #[test]
    fn base64_is_found_at_every_alignment_and_in_both_alphabets() {
        for value in ["q8Zk2Lm9", "q8Zk2Lm9X", "q8Zk2Lm9Xw", "~~~???>>>~~~"] {
            let registered = registered(&[value]);
            for alphabet in [base64::alphabet::STANDARD, base64::alphabet::URL_SAFE] {
                let engine = GeneralPurpose::new(&alphabet, GeneralPurposeConfig::new());
                for before in 0..6 {
                    for after in 0..4 {
                        let text = "a".repeat(before) + value + &"b".repeat(after);
                        let encoded = engine.encode(text);
                        let hits = found(&registered, &encoded);
                        assert_eq!(hits.len(), 1, "{value} {before} {after}: {encoded}");
                        // Nothing of the secret is left in what stays.
                        let (start, length) = (
                            encoded.find(&hits[0].0).unwrap(),
                            hits[0].0.trim_end_matches('=').len(),
                        );
                        assert!(
                            start * 6 <= before * 8
                                && (start + length) * 6 >= (before + value.len()) * 8
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_longest_wins_and_overlaps_are_all_told() {
        let registered = registered(&["abcdefgh1", "abcdefgh1234", "h1234567"]);
        assert_eq!(
            found(&registered, "xabcdefgh1234567"),
            [("abcdefgh1234".to_owned(), 1), ("h1234567".to_owned(), 2)]
        );
    }

    #[test]
    fn what_may_become_a_secret_is_held() {
        let registered = registered(&["abcdefgh1"]);
        for (text, held) in [
            ("x abcdefgh", "abcdefgh"),
            ("x a", "a"),
            ("x b", ""),
            ("", ""),
            ("YWJjZGVm", "YWJjZGVm"),
        ] {
            assert_eq!(&text[registered.begins_in(text.as_bytes())..], held, "{text}");
        }
    }
}
